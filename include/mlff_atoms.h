/* SPDX-License-Identifier: MIT */
/* mlff_atoms.h: systems and batches, their files, builders of common ones, neighbor lists, dynamics.
 * Conventions and the error contract: mlff_base.h. */
#ifndef MLFF_ATOMS_H
#define MLFF_ATOMS_H

#include "mlff_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- elements -------------------------------------------------------------------------------- */

#define MLFF_MAX_ATOMIC_NUMBER 118

/* "Si" for 14; NULL outside 1..118. Static. */
MLFF_API const char *mlff_element_symbol(int atomic_number);
/* 14 for "Si" (case as usual: first letter upper, second lower); 0 if unknown. */
MLFF_API int mlff_element_number(const char *symbol);
/* Standard atomic weight, amu (IUPAC 2016 as ASE has it); 0 outside 1..118. */
MLFF_API double mlff_element_mass(int atomic_number);

/* ---- system ---------------------------------------------------------------------------------- */

enum { MLFF_CONFIG_TYPE_BYTES = 24 };

/* Atoms. Made by mlff_system_create(), a reader or a builder; fields may be changed by the caller, array
 * lengths may not. Arrays are the system's own and released by mlff_system_destroy(). */
typedef struct mlff_system {
    int n_atoms;
    int *species;              /* [n_atoms] atomic numbers */
    double *positions;         /* [n_atoms][3] Å */
    double cell[9];            /* [3][3] Å, rows are lattice vectors; all zero if there is no cell */
    unsigned char periodic[3]; /* 1 where the axis repeats */
    double *velocities;        /* [n_atoms][3] Å/fs, or NULL */
    double *masses;            /* [n_atoms] amu, or NULL for the elements' own */
    unsigned char *fixed;      /* [n_atoms] 1 where the atom may not move, or NULL */
    double charge;             /* e; NaN where not given */
    double spin;               /* multiplicity 2S+1; NaN where not given */

    /* Labels from a file: reference results. NaN or NULL where absent. */
    double label_energy;    /* eV, or NaN */
    double *label_forces;   /* [n_atoms][3] eV/Å, or NULL */
    double label_stress[6]; /* Voigt, eV/Å³; label_stress[0] is NaN if absent */

    int64_t group;  /* trajectory that the frame belongs to, >= 0 ("group" in extended XYZ, mlff_group_of_text); -1: not given */
    double time_fs; /* of the frame in its trajectory ("time_fs" in extended XYZ); NaN where not given */
    /* How the structure was made, as "md 300 K" ("config_type" in extended XYZ, cut to 23 bytes); empty where not given. */
    char config_type[MLFF_CONFIG_TYPE_BYTES];
    /* What else the comment line of extended XYZ holds, as name=mol_17: its key=value pairs as they stood, on one line
     * (mlff_system_set_info); NULL: nothing. Files of extended XYZ get them back; 64 KiB are read at most.
     * Dynamics, relaxation and displacements remove energies, stresses and virials, as REF_energy=-12.5, which are of other positions. */
    char *info;
} mlff_system;

/* n_atoms >= 1; species 0, positions 0, no cell, everything optional absent. Fails with MLFF_ERR_USAGE, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_system_create(int n_atoms, mlff_system **system_out);
/* A copy with all its arrays. Fails with MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_system_copy(const mlff_system *system, mlff_system **system_out);
/* The system repeated n[0] × n[1] × n[2] times along its cell vectors; cell, arrays and charge grow, labels are dropped, and so is the
 * spin of several copies. Fails with MLFF_ERR_USAGE for an n below 1 or an axis without a cell vector, MLFF_ERR_LIMIT, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_system_repeat(const mlff_system *system, const int n[3], mlff_system **system_out);
/* Takes a copy of `info` in place of the one before; NULL: none. Fails with MLFF_ERR_USAGE for a line break, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_system_set_info(mlff_system *system, const char *info);
MLFF_API void mlff_system_destroy(mlff_system *system);
/* Adds the array (zeros; masses: the elements') if it is absent. Fails with MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_system_add_velocities(mlff_system *system);
MLFF_API mlff_status mlff_system_add_masses(mlff_system *system);
MLFF_API mlff_status mlff_system_add_fixed(mlff_system *system);
/* Checks what a computation needs: species in 1..118, finite positions, velocities and cell, masses above 0, a periodic axis has a
 * cell vector, the periodic vectors are independent. `name` (may be NULL) begins the error text. Fails with MLFF_ERR_ELEMENT, MLFF_ERR_VALUE,
 * MLFF_ERR_USAGE. */
MLFF_API mlff_status mlff_system_check(const mlff_system *system, const char *name);
/* Charge of a structure, e, whose atoms' initial charges have this sum: rounded, since computed charges do not add up to a whole number.
 * NaN (not given) where it rounds to 0 or is not finite. */
MLFF_API double mlff_charge_of_sum(double sum);
/* The group of a text that names a trajectory: the number that it is, or, of other texts, one from 2^61 on, the same for the same text. -1
 * for an empty text or a negative number. */
MLFF_API int64_t mlff_group_of_text(const char *text);
/* |det cell| in Å³; 0 without a cell. */
MLFF_API double mlff_system_volume(const mlff_system *system);
/* g/cm³, of the masses and the volume; NaN unless the cell repeats along all three axes. */
MLFF_API double mlff_system_density(const mlff_system *system);
/* K, of the velocities of atoms that may move, and of 3 degrees of freedom for each of them; where several atoms and none fixed move,
 * without the velocity of the center of mass and its 3 degrees. NaN without velocities or without an atom that may move. */
MLFF_API double mlff_system_temperature(const mlff_system *system);
/* "C9H8O4", Hill order, into text of at least 64 bytes (cut with "…" if longer). */
MLFF_API void mlff_system_formula(const mlff_system *system, char *text, size_t text_bytes);

/* ---- batch ----------------------------------------------------------------------------------- */

typedef enum mlff_location { MLFF_HOST = 0, MLFF_DEVICE_MEMORY = 1 } mlff_location;

/* Pairs given by the caller (an MD engine's list) instead of the evaluator's own list.
 * Pair p of row i runs from atom i to the image of neighbor[p]:
 *   r_p = positions[neighbor[p]] - positions[i] + shift[p] · cell
 * Pairs beyond the model's cutoff are allowed and ignored; i to itself with zero shift is not. */
typedef struct mlff_pairs {
    const int32_t *first;    /* [n_atoms + 1] row i is first[i] .. first[i+1] */
    const int32_t *neighbor; /* [n_pairs] */
    const int32_t *shift;    /* [n_pairs][3] in cell vectors, or NULL for all zero */
    int symmetric;           /* 1: for each pair its reverse is present too. 0: truncated rows (halo, caps) */
} mlff_pairs;

/* Several systems, concatenated. A view: all arrays are the caller's and are only read. */
typedef struct mlff_batch {
    int n_systems;
    const int32_t *first_atom;     /* [n_systems + 1] host; system s is atoms first_atom[s] .. first_atom[s+1] */
    const int32_t *species;        /* [n_atoms] atomic numbers */
    const double *positions;       /* [n_atoms][3] Å */
    const double *cells;           /* [n_systems][9] Å, or NULL: no cells */
    const unsigned char *periodic; /* [n_systems][3], or NULL: nothing repeats. Host */
    const unsigned char *owned;    /* [n_atoms] 0 marks a ghost: it has no energy of its own; NULL: all owned */
    const mlff_pairs *pairs;       /* NULL: the evaluator makes its own list */
    mlff_location location;        /* where species, positions, cells and pairs live */
    void *stream;                  /* CUDA stream of the caller, used if location is the device; NULL: default */
    const double *charges;         /* [n_systems] e, NaN where not given; NULL: none is. Host. Read by models that depend on it */
    const double *spins;           /* [n_systems] multiplicity 2S+1, NaN where not given; NULL: none is. Host */
} mlff_batch;

/* A batch of one system; borrows its arrays and needs `first_atom[2]` from the caller to point to. */
MLFF_API void mlff_batch_from_system(const mlff_system *system, int32_t first_atom[2], mlff_batch *batch_out);

/* ---- files ----------------------------------------------------------------------------------- */

/* A format of files. Static. */
typedef struct mlff_file_format {
    const char *name;     /* "extxyz", what `format` means below */
    const char *title;    /* "extended XYZ" */
    const char *suffixes; /* ".extxyz .xyz" */
    int reads, writes;    /* whether it can be read, and written */
} mlff_file_format;
MLFF_API const mlff_file_format *mlff_file_formats(int *n_out);
/* Whether a file of this name can be written, in `format` or where it is NULL in the one that its suffix says; streams are extended XYZ.
 * Fails with MLFF_ERR_USAGE, naming the formats. */
MLFF_API mlff_status mlff_file_format_check(const char *path, const char *format);

/* Reads frames one by one in constant memory. The format is `format`, or where that is NULL told by name and content: extended XYZ
 * (comments of any form, any column order, Lattice, Properties, pbc; energy, forces, stress, virial and
 * momenta as ASE writes them, velocities in Å/fs), POSCAR/CONTCAR (VASP 5), PDB (.pdb, .ent; a frame for each model), CIF and mmCIF (.cif,
 * .mmcif; a frame for each data block, symmetry operations applied; partial occupancies are refused), LAMMPS data (.data, .lmp; units
 * metal or real, elements from the masses, periodic along three axes), LAMMPS dumps, DCD or AMBER NetCDF. "-" is standard input. */
typedef struct mlff_reader mlff_reader;
/* Fails with MLFF_ERR_IO, MLFF_ERR_USAGE, MLFF_ERR_FORMAT, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_reader_open(const char *path, const char *format, mlff_reader **reader_out);
/* Before the first frame: the elements, masses, fixed atoms, charge, spin and periodic axes of frames that do not hold them,
 * which are those of DCD, AMBER NetCDF and LAMMPS dumps without the column element. Copied. Fails with MLFF_ERR_USAGE for
 * another format, as mlff_system_check(), and with MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_reader_set_topology(mlff_reader *reader, const mlff_system *topology);
/* Next frame, or *system_out = NULL at the end. The frame is the caller's. After a failure the reader reads no further: each call
 * fails. Fails with MLFF_ERR_FORMAT, MLFF_ERR_VALUE,
 * MLFF_ERR_ELEMENT, each naming file and line, MLFF_ERR_USAGE where a topology is lacking or has other atoms, MLFF_ERR_IO,
 * MLFF_ERR_UNSUPPORTED, MLFF_ERR_LIMIT, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_reader_next(mlff_reader *reader, mlff_system **system_out);
MLFF_API void mlff_reader_destroy(mlff_reader *reader);

/* Results written with a frame; NULL or NaN where absent. */
typedef struct mlff_frame_results {
    double energy;        /* eV, or NaN */
    const double *forces; /* [n_atoms][3] eV/Å, or NULL */
    const double *stress; /* [6] Voigt, eV/Å³, or NULL */
    int64_t step;         /* -1 where absent */
    double time_fs;       /* NaN where absent */
    const char *comment;  /* further pairs for the frame's second line, "key=value key=value", or NULL */
} mlff_frame_results;

/* Writes `format`, or where it is NULL the format that the name ends in: .extxyz or .xyz (extended XYZ, which alone keeps everything),
 * .lammpstrj or .dump (LAMMPS, units metal), .dcd (positions in float32), .nc or .ncdf (AMBER NetCDF: positions and velocities in
 * float32). The last three turn the system so that the cell's a lies along x and b in the xy plane, and refuse a left-handed cell with
 * MLFF_ERR_UNSUPPORTED; the last two cannot be written into a pipe. A new file is written beside its name and takes the name
 * only at a good end (mlff_writer_close); with `append`, an existing file is added to frame by frame (a trajectory being grown;
 * each frame is flushed whole). "-" is standard output, in extended XYZ. */
typedef struct mlff_writer mlff_writer;
/* Fails with MLFF_ERR_IO, MLFF_ERR_USAGE for a suffix or name of no format that is written, MLFF_ERR_UNSUPPORTED, MLFF_ERR_FORMAT for a
 * file to append to that is none of this format, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_writer_open(const char *path, const char *format, int append, mlff_writer **writer_out);
/* Opens a trajectory of `n_atoms` atoms to go on behind the frame of `step`, with frames at the multiples of `every` steps: frames with a
 * later step and a last frame that is cut off are removed from the file, *n_removed_out (or NULL) of them; an absent file is created.
 * *last_step_out (or NULL) is the step of the last frame that stays, -1: there is none. Fails with MLFF_ERR_IO, and with MLFF_ERR_FORMAT
 * where the file is no trajectory of so many atoms with a step in each frame, or a DCD whose frames had none or were at uneven intervals,
 * MLFF_ERR_UNSUPPORTED for a DCD whose one interval of frames is another: the file is then as it was. Fails as mlff_writer_open too. */
MLFF_API mlff_status mlff_writer_resume(const char *path, const char *format, int n_atoms, int64_t step, int64_t every,
                                        int64_t *n_removed_out, int64_t *last_step_out, mlff_writer **writer_out);
/* `results` may be NULL; the system's own labels are not written, since its atoms may have moved since. Fails with
 * MLFF_ERR_VALUE for numbers that are not finite, MLFF_ERR_USAGE for a comment of several lines, MLFF_ERR_ELEMENT, MLFF_ERR_IO,
 * MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_writer_write(mlff_writer *writer, const mlff_system *system, const mlff_frame_results *results);
/* Flushes, checks (a full disk is an error here) and names the file. The writer is gone afterwards, also on failure. Fails
 * with MLFF_ERR_IO. */
MLFF_API mlff_status mlff_writer_close(mlff_writer *writer);
/* In place of mlff_writer_close where not all frames can be written: a new file keeps those that were, under a name that says so and
 * that no file has, relaxed-partial.extxyz for relaxed.extxyz (then relaxed-partial-2.extxyz, …). A file of the writer's own name stays
 * as it is. `path_out` (of `bytes`) is the file's name and *n_frames_out the number of its frames; "" and 0 for a pipe, or where there
 * are none. The writer is gone afterwards, also on failure. Fails with MLFF_ERR_IO. */
MLFF_API mlff_status mlff_writer_keep(mlff_writer *writer, char *path_out, size_t bytes, int64_t *n_frames_out);
/* Cancels: a file not yet closed is removed (frames of an appended one stay). NULL is fine. */
MLFF_API void mlff_writer_destroy(mlff_writer *writer);

/* ---- builders -------------------------------------------------------------------------------- */

typedef struct mlff_builder_info {
    const char *name;        /* "silicon" */
    const char *description; /* "diamond silicon, a = 5.431 Å, periodic" */
} mlff_builder_info;
/* Known systems: silicon, aluminum, iron, water (liquid density, periodic), and the molecules h2o, methane,
 * ethanol, benzene, aspirin, caffeine. Static. */
MLFF_API const mlff_builder_info *mlff_builders(int *n_out);
/* Builds `name` with the number of atoms nearest to n_atoms that it allows (crystals: the most cubic repetition; water:
 * whole molecules; a molecule: its own count, n_atoms is not asked). n_atoms <= 0 takes the default (64 for what can grow).
 * `seed` orients the waters. Fails with MLFF_ERR_USAGE for an unknown name, MLFF_ERR_LIMIT, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_system_build(const char *name, int n_atoms, uint64_t seed, mlff_system **system_out);

/* ---- random motion --------------------------------------------------------------------------- */

/* Displaces free atoms by normal deviates with the standard deviation of a harmonic atom, sqrt(k_B T / (m ω²)) with ħω = 25
 * meV·sqrt(28/m) (silicon-like), at most 0.3 Å a component. Deterministic in `seed`. Labels, which are not of the new
 * positions, are dropped. Fails with MLFF_ERR_VALUE for a temperature that is negative or not finite. */
MLFF_API mlff_status mlff_system_perturb(mlff_system *system, double temperature_kelvin, uint64_t seed);
/* The same displacements from a structure at rest, but bonds between nonmetals (nearer than 1.25 times the sum of their covalent radii)
 * are stretched as a spring of 30 eV/Å² is at the temperature: by 0.029 Å at 300 K, in place of 0.11 Å. */
typedef struct mlff_vibrator mlff_vibrator;
/* Copies `rest` and finds its bonds. Fails with MLFF_ERR_VALUE for two atoms at one position, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_vibrator_create(const mlff_system *rest, mlff_vibrator **vibrator_out);
/* Sets the positions of `system`, which has the same atoms; allocates nothing. Deterministic in `seed`. Fails with MLFF_ERR_USAGE for
 * another number of atoms, and as mlff_system_perturb. */
MLFF_API mlff_status mlff_vibrator_displace(mlff_vibrator *vibrator, double temperature_kelvin, uint64_t seed,
                                            mlff_system *system);
MLFF_API void mlff_vibrator_destroy(mlff_vibrator *vibrator);
/* Maxwell-Boltzmann velocities, center-of-mass motion removed if nothing is fixed, scaled to the exact temperature. Fails
 * with MLFF_ERR_VALUE for a temperature that is negative or not finite, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_system_thermalize(mlff_system *system, double temperature_kelvin, uint64_t seed);

/* ---- neighbor list --------------------------------------------------------------------------- */

/* A full list (each pair in both directions), rows in canonical order (neighbor, then shift), images as
 * integer shifts, per-axis periodicity, any cell with self-images. Cell list: time linear in atoms. */
typedef struct mlff_neighbors mlff_neighbors;
/* The cutoff is above 0, and it and the skin are at most 1e6 Å. Pairs within cutoff + skin are kept, and the list is rebuilt
 * when two atoms may have come closer by `skin`, or by what a changed cell leaves of it, when an atom was wrapped, or when the number of atoms or the periodicity changes; also
 * with any other cell where not all three axes repeat. The pairs returned are exactly
 * those with r < cutoff. Fails with MLFF_ERR_USAGE, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_neighbors_create(double cutoff_angstrom, double skin_angstrom, mlff_neighbors **neighbors_out);
/* Brings the list up to date with a batch (positions on the host; `pairs` of the batch is not looked at). After a failure the list is
 * empty. Fails with
 * MLFF_ERR_VALUE for positions or cells that are not finite or two atoms at one position, MLFF_ERR_USAGE, MLFF_ERR_LIMIT,
 * MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_neighbors_update(mlff_neighbors *neighbors, const mlff_batch *batch);
/* The current pairs; borrowed until the next update. `vectors` (may be NULL) gets [n_pairs][3] r_p in Å,
 * `reverse` (may be NULL) gets [n_pairs] the index of each pair's reverse. Any output may be NULL. */
MLFF_API void mlff_neighbors_get(const mlff_neighbors *neighbors, mlff_pairs *pairs_out, const double **vectors_out,
                                 const int32_t **reverse_out);
typedef struct mlff_neighbors_info {
    int64_t n_pairs;      /* within the cutoff, directed */
    int64_t n_pairs_skin; /* within cutoff + skin */
    int64_t n_updates, n_rebuilds, n_growths;
    int64_t bytes;
} mlff_neighbors_info;
MLFF_API void mlff_neighbors_info_get(const mlff_neighbors *neighbors, mlff_neighbors_info *info_out);
MLFF_API void mlff_neighbors_destroy(mlff_neighbors *neighbors);

/* ---- dynamics -------------------------------------------------------------------------------- */

/* What is held constant. With nothing fixed all but MLFF_LANGEVIN conserve the momentum of the whole: the three degrees of freedom
 * of its motion are then not counted, and those after MLFF_LANGEVIN remove it at creation. Those of constant pressure need three
 * periodic axes and no fixed atoms. */
typedef enum mlff_ensemble {
    MLFF_NVE = 0,         /* velocity Verlet */
    MLFF_LANGEVIN = 1,    /* BAOAB (Leimkuhler & Matthews, doi:10.1093/amrx/abs010) */
    MLFF_BUSSI = 2,       /* stochastic velocity rescaling (Bussi, Donadio & Parrinello, doi:10.1063/1.2408420) */
    MLFF_NOSE_HOOVER = 3, /* chains of three (Martyna, Klein & Tuckerman, doi:10.1063/1.463940) */
    MLFF_SCR = 4,         /* stochastic cell rescaling (Bernetti & Bussi, doi:10.1063/5.0020514), velocities as MLFF_BUSSI */
    MLFF_MTK = 5          /* Martyna-Tobias-Klein (doi:10.1063/1.467468), chains on atoms and cell */
} mlff_ensemble;

typedef struct mlff_dynamics_options {
    size_t struct_size;
    mlff_ensemble ensemble;
    double timestep_fs;        /* 0.5 */
    double temperature_kelvin; /* 300; of the thermostat */
    double friction_per_fs;    /* 0.01; MLFF_LANGEVIN */
    uint64_t seed;             /* of the noise; a counter-based generator, so that restarts continue it exactly */
    double thermostat_fs;      /* 100; time constant of the other thermostats */
    double pressure;           /* 0; eV/Å³, of the barostat */
    double barostat_fs;        /* 1000; its time constant */
    double compressibility;    /* 72.1 Å³/eV, water's 4.5e-5/bar; MLFF_SCR, scales its time constant alone */
    int anisotropic;           /* 0: the cell keeps its shape; 1: it is strained along x, y and z independently */
    int64_t ramp_steps;        /* 0; until this step the temperature goes linearly from temperature_kelvin to … */
    double ramp_end_kelvin;    /* 300; … this, where it stays. 0 steps: no ramp */
} mlff_dynamics_options;
MLFF_API mlff_dynamics_options mlff_dynamics_options_default(void);

/* Computes energy (eV) and forces ([n_atoms][3] eV/Å) of the system. A status other than MLFF_OK ends the step. */
typedef mlff_status (*mlff_force_function)(void *context, const mlff_system *system, double *energy, double *forces);

typedef struct mlff_dynamics_state {
    int64_t step;
    double time_fs;
    double potential_energy;   /* eV */
    double kinetic_energy;     /* eV */
    double temperature_kelvin; /* of the free degrees of freedom */
    double conserved_energy;   /* eV: total energy, with pressure times volume and the energy of thermostat and barostat; less the
                                * heat that stochastic ones gave */
    const double *forces;      /* [n_atoms][3] eV/Å, borrowed until the next step */
    double pressure;           /* eV/Å³, of atoms' motion and virial; NaN unless the ensemble is one of constant pressure */
    double volume;             /* Å³; 0 without a cell */
} mlff_dynamics_state;

/* As mlff_force_function, with the virial -dE/dstrain, [3][3] eV. */
typedef mlff_status (*mlff_virial_function)(void *context, const mlff_system *system, double *energy, double *forces,
                                            double *virial);

/* Integrates `system` in place (borrowed; velocities and masses are added if absent; at constant pressure its cell changes). Fixed
 * atoms stay and have no kinetic energy. The first step computes the forces of the start. */
typedef struct mlff_dynamics mlff_dynamics;
/* Fails with MLFF_ERR_USAGE for options out of range, MLFF_ERR_MEMORY, and as mlff_system_check. */
MLFF_API mlff_status mlff_dynamics_create(const mlff_dynamics_options *options, mlff_system *system, mlff_force_function forces,
                                          void *context, mlff_dynamics **dynamics_out);
/* Replaces the force function, with its context. Ensembles of constant pressure need it before the first step. */
MLFF_API void mlff_dynamics_virial_set(mlff_dynamics *dynamics, mlff_virial_function function, void *context);
/* One step. Fails with MLFF_ERR_UNSTABLE if energy, forces or positions stop being finite (the text names step, atom and
 * remedy), and as the force function does. */
MLFF_API mlff_status mlff_dynamics_step(mlff_dynamics *dynamics);
/* n_steps, one after the other. times_ns (NULL, or [n_steps]) gets each step's time by the clock of the device that integrates.
 * After a failure the system is at the end of the last good step, and the state tells which that was. Fails as
 * mlff_dynamics_step. */
MLFF_API mlff_status mlff_dynamics_run(mlff_dynamics *dynamics, int64_t n_steps, double *times_ns);
/* The state after the last step; where a GPU integrates, the system is updated first. Before the first step the forces of the start
 * are computed. Fails with MLFF_ERR_USAGE, MLFF_ERR_DEVICE, and as the force function does. */
MLFF_API mlff_status mlff_dynamics_state_get(mlff_dynamics *dynamics, mlff_dynamics_state *state_out);
/* Restart file: everything to continue bit for bit. Written beside its name, then renamed. Fails with MLFF_ERR_IO,
 * MLFF_ERR_USAGE, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_dynamics_save(const mlff_dynamics *dynamics, const char *path);
/* Sets step, time, cell, positions, velocities, forces and noise counter from a restart file, whose atoms and periodic axes are the
 * system's. Ensembles after MLFF_LANGEVIN stop the motion of the whole where the file is of NVE or Langevin dynamics. Warns where the
 * cell is another one and the file is of constant volume. Fails with MLFF_ERR_IO, MLFF_ERR_FORMAT, MLFF_ERR_VALUE where the file is of
 * another system, MLFF_ERR_LIMIT, MLFF_ERR_USAGE. */
MLFF_API mlff_status mlff_dynamics_restore(mlff_dynamics *dynamics, const char *path);
MLFF_API void mlff_dynamics_destroy(mlff_dynamics *dynamics);

/* ---- relaxation ------------------------------------------------------------------------------ */

/* FIRE (doi:10.1103/PhysRevLett.97.170201) needs no energies and survives rough ones; L-BFGS (doi:10.1007/BF01589116) needs fewer
 * steps. */
typedef enum mlff_optimizer { MLFF_FIRE = 0, MLFF_LBFGS = 1 } mlff_optimizer;

typedef struct mlff_relax_options {
    size_t struct_size;
    mlff_optimizer optimizer; /* MLFF_LBFGS */
    double force_limit;       /* 0.05 eV/Å; the longest force on a free atom at the end */
    int64_t max_steps;        /* 1000, of one structure */
    int relax_cell;           /* 1: the cell relaxes too, to a minimum of E + P V */
    double pressure;          /* 0 eV/Å³ */
    double
        stress_limit; /* 3.12e-4 eV/Å³ (500 bar); the largest component of stress + pressure at the end, where the cell relaxes */
    int n_at_once;    /* 64; structures in one batch. One that has ended is replaced by the next */
    int keep_symmetry; /* 1: a structure whose cell relaxes keeps the symmetry it starts with (lattice to 1e-4, atoms to 1e-3 Å; up to 400 atoms) */
} mlff_relax_options;
MLFF_API mlff_relax_options mlff_relax_options_default(void);

typedef enum mlff_relax_end {
    MLFF_RELAX_CONVERGED = 0,
    MLFF_RELAX_STEPS = 1,  /* max_steps were made before the limit was reached */
    MLFF_RELAX_FAILED = 2, /* its forces could not be computed: `error` says why; the system is as it came, without velocities */
    MLFF_RELAX_STOPPED = 3 /* the run ended before: see mlff_relax_queue */
} mlff_relax_end;

typedef struct mlff_relaxed {
    mlff_relax_end end;
    int64_t n_steps;
    double start_energy, energy; /* eV; NaN where not computed */
    double largest_force;        /* eV/Å, on a free atom */
    double largest_stress;       /* eV/Å³, of stress + pressure; NaN unless the cell relaxes */
    const double *forces;        /* [n_atoms][3] eV/Å, of the system as it stands; NULL where not computed */
    const char *error;           /* or "" */
} mlff_relaxed;

/* Where structures come from and go to. Systems are borrowed from `next` until `done`, and are changed (velocities are
 * removed); they end in any order. `next` and `done` may return MLFF_ERR_INTERRUPTED, and `stopped` not 0: those under way then
 * end as MLFF_RELAX_STOPPED. */
typedef struct mlff_relax_queue {
    mlff_status (*next)(void *context, mlff_system **system_out); /* NULL in it at the end */
    mlff_status (*done)(void *context, mlff_system *system, const mlff_relaxed *result);
    void *context;
    int (*stopped)(void *context); /* NULL, or asked before each step; not 0 ends the run with MLFF_ERR_INTERRUPTED */
} mlff_relax_queue;

#ifdef __cplusplus
}
#endif
#endif
