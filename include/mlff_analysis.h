/* SPDX-License-Identifier: MIT */
/* mlff_analysis.h: what is computed from a trajectory: radial distribution, mean square displacement, diffusion, vibrational
 * density of states, bonds and angles. Frames are read one by one. Conventions and the error contract: mlff_base.h. */
#ifndef MLFF_ANALYSIS_H
#define MLFF_ANALYSIS_H

#include "mlff_atoms.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Radial distribution of the atoms of one element around those of another, averaged over frames in constant memory. 1 everywhere
 * in an ideal gas, as long as the range is below half the cell. */
typedef struct mlff_rdf mlff_rdf;
/* Bins of equal width from 0 to range_angstrom > 0; n_bins in 1..100000; atomic numbers, 0 for all atoms. Fails with
 * MLFF_ERR_USAGE, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_rdf_create(double range_angstrom, int n_bins, int center, int neighbor, mlff_rdf **rdf_out);
/* Fails with MLFF_ERR_USAGE for a system that is not periodic along three axes or has no such pair of elements, and as
 * mlff_neighbors_update(). */
MLFF_API mlff_status mlff_rdf_add(mlff_rdf *rdf, const mlff_system *system);
/* Each [n_bins], or NULL: the middle of the bin, Å; g; its standard error from blocks of frames (NaN with fewer than four frames);
 * neighbors of a center up to the bin's end. NaN before the first frame. */
MLFF_API void mlff_rdf_get(const mlff_rdf *rdf, double *r, double *g, double *error, double *coordination);
MLFF_API void mlff_rdf_destroy(mlff_rdf *rdf);

/* Mean square displacement of the atoms of one element. All frames are kept, 24 bytes an atom. Atoms are followed through periodic
 * boundaries by the nearest image, so none may move by half the cell between two frames. */
typedef struct mlff_msd mlff_msd;
/* Time between two frames, fs, > 0; atomic number, 0 for all atoms. Fails with MLFF_ERR_USAGE, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_msd_create(double frame_fs, int element, mlff_msd **msd_out);
/* Fails with MLFF_ERR_USAGE where the atoms are not those of the first frame in its order, some but not all axes are periodic, or no atom is of
 * the element, and with MLFF_ERR_VALUE, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_msd_add(mlff_msd *msd, const mlff_system *system);
/* Mean over atoms and origins, Å², after 1, 2, … n_lags frames; NaN where there are not so many frames. */
MLFF_API void mlff_msd_get(const mlff_msd *msd, int n_lags, double *values);
/* Diffusion coefficient, Å²/fs (× 0.1: cm²/s), from the slope of the displacement between a tenth and a half of the length of each
 * of five blocks of the run; mean and half width of its 95 % interval (Student's t, 4 degrees of freedom). NaN with fewer than 100
 * frames. Warns where the displacement does not grow linearly with time. The motion of the center of mass is not removed. */
MLFF_API void mlff_msd_diffusion(const mlff_msd *msd, double *diffusion_out, double *half_width_out);
MLFF_API void mlff_msd_destroy(mlff_msd *msd);

/* Vibrational density of states of the atoms of one element, from the velocities of the frames: the power spectrum of mass-weighted
 * velocities (cosine transform of their autocorrelation under a Hann window), without the motion and rotation of the whole. All frames
 * are kept, 24 bytes an atom. Wavenumbers above that of half a period between two frames are folded back. */
typedef struct mlff_vdos mlff_vdos;
/* Time between two frames, fs, > 0; atomic number, 0 for all atoms. Fails with MLFF_ERR_USAGE, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_vdos_create(double frame_fs, int element, mlff_vdos **vdos_out);
/* Fails with MLFF_ERR_USAGE where the frame has no velocities, or other atoms than the first or another
 * order of them, and with MLFF_ERR_VALUE, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_vdos_add(mlff_vdos *vdos, const mlff_system *system);
/* Points of the spectrum: a tenth of the frames, at most 512; 0 with fewer than 100 frames. */
MLFF_API int mlff_vdos_size(const mlff_vdos *vdos);
/* Each [mlff_vdos_size()], or NULL: wavenumber, 1/cm; density, cm, of integral 1; its standard error from five blocks of the run. Fails
 * with MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_vdos_get(const mlff_vdos *vdos, double *wavenumber, double *density, double *error);
MLFF_API void mlff_vdos_destroy(mlff_vdos *vdos);

/* Lengths and angles of the bonds of a trajectory's first frame, by elements: two atoms are bonded where they are nearer there than 1.25
 * times the sum of their covalent radii. They are followed by nearest images, so a bond is shorter than half the cell. */
typedef struct mlff_geometry mlff_geometry;
typedef struct mlff_geometry_kind {
    int elements[3];                   /* bond: A, B, 0; angle: end, center, end */
    int is_angle, count;               /* in a frame */
    double mean, deviation, low, high; /* over atoms and frames: Å or degrees; NaN before the first frame */
    double bin_width;                  /* Å or degrees, bins from 0 */
    int n_bins;                        /* at most MLFF_GEOMETRY_BINS */
} mlff_geometry_kind;
#define MLFF_GEOMETRY_BINS 500
/* Finds the bonds; the frame itself is not counted. Fails with MLFF_ERR_UNSUPPORTED where an atom is bonded to its own image or to two images of another,
 * MLFF_ERR_LIMIT, MLFF_ERR_VALUE, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_geometry_create(const mlff_system *first, mlff_geometry **geometry_out);
/* Fails with MLFF_ERR_USAGE where the frame has other atoms than the first or another order of them, MLFF_ERR_VALUE, MLFF_ERR_UNSUPPORTED. */
MLFF_API mlff_status mlff_geometry_add(mlff_geometry *geometry, const mlff_system *system);
/* How many kinds of bonds and angles there are. */
MLFF_API int mlff_geometry_size(const mlff_geometry *geometry);
/* Kind `index`, from 0 to below mlff_geometry_size; density [n_bins] per Å or degree, or NULL. */
MLFF_API void mlff_geometry_get(const mlff_geometry *geometry, int index, mlff_geometry_kind *kind_out, double *density);
MLFF_API void mlff_geometry_destroy(mlff_geometry *geometry);

#ifdef __cplusplus
}
#endif

#endif
