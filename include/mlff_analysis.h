/* SPDX-License-Identifier: MIT */
/* mlff_analysis.h: what is computed from a trajectory: radial distribution, mean square displacement, diffusion. Frames are
 * read one by one. Conventions and the error contract: mlff_base.h. */
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
/* Fails with MLFF_ERR_USAGE where the atoms are not those of the first frame, some but not all axes are periodic, or no atom is of
 * the element, and with MLFF_ERR_VALUE, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_msd_add(mlff_msd *msd, const mlff_system *system);
/* Mean over atoms and origins, Å², after 1, 2, … n_lags frames; NaN where there are not so many frames. */
MLFF_API void mlff_msd_get(const mlff_msd *msd, int n_lags, double *values);
/* Diffusion coefficient, Å²/fs (× 0.1: cm²/s), from the slope of the displacement between a tenth and a half of the length of each
 * of five blocks of the run; mean and half width of its 95 % interval (Student's t, 4 degrees of freedom). NaN with fewer than 100
 * frames. The motion of the center of mass is not removed. */
MLFF_API void mlff_msd_diffusion(const mlff_msd *msd, double *diffusion_out, double *half_width_out);
MLFF_API void mlff_msd_destroy(mlff_msd *msd);

#ifdef __cplusplus
}
#endif

#endif
