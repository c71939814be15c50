/* SPDX-License-Identifier: MIT */
/* mlff_label.h: what a student is trained on: teachers, structures to be labelled and how they are sampled, files of labels.
 * Conventions and the error contract: mlff_base.h.
 *
 *   mlff_teacher *teacher;     computes labels
 *   mlff_samples *samples;     structures to be labelled
 *   mlff_shard *shard;         a file of labels
 *
 *   mlff_teacher_open("xtb:gfn2", NULL, &teacher);
 *   mlff_sample(teacher, seeds, NULL, samples);
 *   mlff_shard_open("labels.mlff", teacher, &shard);
 *   mlff_shard_label(shard, teacher, samples, NULL, NULL);       mlff_dataset_read (mlff_train.h) reads it */
#ifndef MLFF_LABEL_H
#define MLFF_LABEL_H

#include "mlff.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- teachers --------------------------------------------------------------------------------- */

/* What computes labels: a model file, a quantum-chemical method, or a caller's function. Safe from several threads at once. */
typedef struct mlff_teacher mlff_teacher;

typedef struct mlff_teacher_options {
    size_t struct_size;
    mlff_device device;         /* of a model; the CPU */
    mlff_precision precision;   /* of a model; MLFF_PRECISION_DEFAULT */
    int n_threads;              /* CPU threads of a model, processes of xtb and KIM; 0: all cores this process may use */
    int deviations;             /* of an ensemble's members too, which takes each of them once more; 1 */
    double timeout_s;           /* xtb and KIM: longest time for one structure; 120 */
    const mlff_device *devices; /* several devices of a model, in place of `device`, as mlff_evaluator_options has them */
    int n_devices;
} mlff_teacher_options;
MLFF_API mlff_teacher_options mlff_teacher_options_default(void);

/* `name`: a model's file or name (mlff_model_load), "xtb:gfn2" or "xtb:gfn1" (GFN2-xTB, Bannwarth et al. 2019,
 * doi:10.1021/acs.jctc.8b01176; GFN1-xTB, Grimme et al. 2017, doi:10.1021/acs.jctc.7b00118; by libxtb.so.6),
 * "kim:MODEL" (a portable model of the KIM API, by libkim-api.so.2; its hash is of the files in the model's folder, not of its
 * driver). These libraries are opened at run time in processes of their own, so that a crash or a hang costs one structure. Fails
 * with MLFF_ERR_UNSUPPORTED where a library is absent or a KIM model cannot be used, MLFF_ERR_USAGE for another xtb method or a KIM
 * model that is not installed, and as mlff_model_load and mlff_evaluator_create. */
MLFF_API mlff_status mlff_teacher_open(const char *name, const mlff_teacher_options *options, mlff_teacher **teacher_out);
/* A model in memory as teacher, or a student as what drives dynamics (mlff_explore). The model must outlive it. Fails as
 * mlff_evaluator_create. */
MLFF_API mlff_status mlff_teacher_create_model(const mlff_model *model, const mlff_teacher_options *options,
                                               mlff_teacher **teacher_out);
/* A caller's function as teacher, called by one thread at a time. `name` identifies it: labels of one name are taken to be of
 * one teacher. Fails with MLFF_ERR_USAGE for an empty name, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_teacher_create(const char *name, mlff_force_function function, void *context,
                                         mlff_teacher **teacher_out);
/* Of a teacher that mlff_teacher_create made, before it computes: what is called in place of its function for labels of systems that repeat
 * along three axes, whose stress they then have. A virial that begins with NaN: this system has none. */
MLFF_API void mlff_teacher_virial_set(mlff_teacher *teacher, mlff_virial_function function, void *context);
MLFF_API void mlff_teacher_destroy(mlff_teacher *teacher);

typedef struct mlff_teacher_info {
    const char *name;              /* "xtb:gfn2"; the model's name */
    const char *description;       /* one line: "GFN2-xTB, libxtb.so.6.5.1" */
    const char *hash;              /* 64 hexadecimal digits: SHA-256 of a model's file or files, or of name and version */
    int n_elements;                /* 0: unknown */
    const unsigned char *elements; /* [n_elements] atomic numbers, ascending */
    int n_members;                 /* of an ensemble; 1 */
    int has_stress, has_atom_energies;
} mlff_teacher_info;
/* Strings and arrays are borrowed until the teacher is destroyed. */
MLFF_API void mlff_teacher_info_get(const mlff_teacher *teacher, mlff_teacher_info *info_out);

/* 1 if a teacher of this name computes in processes of its own (xtb:…, kim:…), else 0: the name is that of a model. */
MLFF_API int mlff_teacher_is_process(const char *name);

/* Can this teacher label the system? Fails with MLFF_ERR_ELEMENT, MLFF_ERR_UNSUPPORTED (a charge, a cell), MLFF_ERR_VALUE, and
 * as mlff_system_check; `name` (may be NULL) begins the text. */
MLFF_API mlff_status mlff_teacher_check(const mlff_teacher *teacher, const mlff_system *system, const char *name);

/* What a teacher says about one structure. */
typedef struct mlff_label {
    mlff_status status;      /* MLFF_OK, or why this structure has no label */
    char problem[200];       /* one line if not MLFF_OK */
    double energy;           /* eV */
    double *forces;          /* [n_atoms][3] eV/Å */
    double *atom_energies;   /* [n_atoms] eV, the elements' own energies included, or NULL */
    double stress[6];        /* Voigt, eV/Å³; stress[0] is NaN if absent */
    double energy_deviation; /* eV, standard deviation over an ensemble's members; NaN if absent */
    double force_deviation;  /* eV/Å, the largest over atoms of sqrt(Σ_c σ_c²); NaN if absent */
} mlff_label;

/* Labels of n structures into labels[n], which are released by mlff_label_clear. A structure that cannot be labelled (a self-
 * consistent field that does not converge, a crash, a timeout, a result that is not finite) fails alone, by labels[k].status.
 * The call itself fails with MLFF_ERR_MEMORY, MLFF_ERR_DEVICE, or MLFF_ERR_INTERRUPTED, and labels[n] are then cleared. */
MLFF_API mlff_status mlff_teacher_compute(mlff_teacher *teacher, const mlff_system *const *systems, int n, mlff_label *labels);
/* Energy and forces of one structure by a teacher, and nothing else that its labels have: an mlff_force_function whose context is the
 * mlff_teacher. Fails as mlff_teacher_compute, or as the structure's label does. */
MLFF_API mlff_status mlff_teacher_forces(void *teacher, const mlff_system *system, double *energy, double *forces);
/* Releases the arrays. */
MLFF_API void mlff_label_clear(mlff_label *label);

/* ---- structures to be labelled ---------------------------------------------------------------- */

typedef struct mlff_samples mlff_samples;

/* Fails with MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_samples_create(mlff_samples **samples_out);
MLFF_API void mlff_samples_destroy(mlff_samples *samples);
/* Adds a copy. `origin`: a word or two on where it comes from, at most 23 bytes, or NULL. Fails as mlff_system_check. */
MLFF_API mlff_status mlff_samples_add(mlff_samples *samples, const mlff_system *system, const char *origin);
/* Adds all frames of a file; on failure the samples are as before. Fails as mlff_reader_open, mlff_reader_next and
 * mlff_system_check, naming the frame. */
MLFF_API mlff_status mlff_samples_read(mlff_samples *samples, const char *path);
/* As mlff_samples_read, of a reader, which may have a topology: all frames that are left. `path` names it in errors. Fails as
 * mlff_reader_next and mlff_system_check, naming the frame, and with MLFF_ERR_FORMAT where none is left. */
MLFF_API mlff_status mlff_samples_add_frames(mlff_samples *samples, mlff_reader *reader, const char *path);
/* Adds what a name stands for: a built-in system (mlff_builders) of about n_atoms (0: its own default) with its name as origin, or
 * all frames of a file, with the file's name and, where there are several, the frame's number. A built-in system gets charge 0 and spin 1
 * if the teacher (may be NULL) depends on them. Fails as mlff_system_build and mlff_samples_read. */
MLFF_API mlff_status mlff_samples_add_named(mlff_samples *samples, const mlff_teacher *teacher, const char *name, int n_atoms,
                                            uint64_t seed);
/* Writes extended XYZ, without labels. Fails as mlff_writer_open. */
MLFF_API mlff_status mlff_samples_write(const mlff_samples *samples, const char *path);
MLFF_API int64_t mlff_samples_size(const mlff_samples *samples);
/* Structure `index`, and its origin (or NULL), borrowed until the samples change; NULL for an index out of range. */
MLFF_API const mlff_system *mlff_samples_get(const mlff_samples *samples, int64_t index, const char **origin_out);
/* Adds Hessian probes: for each structure `per_structure` random directions of length 1 (without translation, deterministic in
 * `seed`), and the structure displaced by ±step_angstrom along each; 0.01 Å is usual. Fails with MLFF_ERR_USAGE,
 * MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_samples_add_probes(mlff_samples *samples, int per_structure, double step_angstrom, uint64_t seed);

/* Keeps the n structures that differ most from each other and from `known` (or NULL): farthest points of histograms of distances
 * between elements, which do not change under rotation and renumbering. Deterministic; order is kept. Fails with
 * MLFF_ERR_USAGE, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_samples_select(mlff_samples *samples, int64_t n, const mlff_samples *known);

/* ---- sampling --------------------------------------------------------------------------------- */

typedef struct mlff_sample_progress {
    const char *method;      /* being made: "relax", "modes", "thermal", "rattle", "md", "pairs", "select" */
    int64_t n_done, n_total; /* candidates, of all methods */
    int64_t n_rejected;      /* atoms too close, or the teacher failed */
    double elapsed_s;
} mlff_sample_progress;
/* Not 0 stops, and the call fails with MLFF_ERR_INTERRUPTED. */
typedef int (*mlff_sample_callback)(void *context, const mlff_sample_progress *progress);

enum { MLFF_SAMPLE_TEMPERATURES = 8 };
typedef struct mlff_sample_options {
    size_t struct_size;
    int64_t n_samples;                             /* in all; 1000 */
    const char *methods;                           /* some of "modes,thermal,rattle,md,pairs"; NULL: "modes,rattle,md,pairs" */
    double temperatures[MLFF_SAMPLE_TEMPERATURES]; /* K, of modes, thermal and md; 300, 600, 1000 */
    int n_temperatures;                            /* 3 */
    double timestep_fs;                            /* of md; 1 */
    double friction_per_fs;                        /* of md (Langevin); 0.02 */
    double interval_fs;                            /* between two samples of a trajectory; 25 */
    double rattle_angstrom;                        /* largest standard deviation of a rattled coordinate; 0.15 */
    double closest;    /* structures with atoms closer than this part of the sum of their covalent radii are rejected; 0.55 */
    double oversample; /* candidates made (but by md) for each sample that farthest-point selection keeps; 1: no selection; 2 */
    int relax;         /* seeds are relaxed by the teacher first, in their cells; 1 */
    uint64_t seed;     /* of all random numbers */
    mlff_sample_callback callback;
    void *context;
    /* Of structures that repeat along three axes without vacuum or fixed atoms, every other displaced structure, chain and trajectory has another cell: the lengths change
     * by up to ± this, and each component of the strain by a third of it beside. 0.03; 0: all have the seeds' cells. */
    double strain;
} mlff_sample_options;
MLFF_API mlff_sample_options mlff_sample_options_default(void);

/* Adds structures around the seeds, about the same number for each seed:
 *   modes    normal modes of the relaxed seed (64 atoms at most, else as thermal), drawn at each temperature
 *   thermal  independent displacements at each temperature (mlff_system_perturb)
 *   rattle   random displacements of all atoms followed by 0 to 8 steps of relaxation, in chains (arXiv:2506.10956)
 *   md       Langevin dynamics by the teacher at each temperature, trajectories (groups) of at most 60 samples, or 240 in a cell
 *   pairs    two near atoms pushed together, to 0.95 of their distance down to `closest`, the rest thermal at the lowest
 *            temperature: what a core is learned from
 * and keeps n_samples of them by farthest-point selection, the relaxed seeds always. Deterministic in `seed` for a teacher whose
 * results are. Fewer than asked for is a warning. Fails with MLFF_ERR_USAGE for a method or a number that is not valid, as
 * mlff_teacher_check for the seeds, as mlff_teacher_compute, and with MLFF_ERR_INTERRUPTED; what was made before is then in `samples`:
 * relaxed seeds and all candidates, of which none is chosen. The callback is called before each call of the teacher. */
MLFF_API mlff_status mlff_sample(mlff_teacher *teacher, const mlff_samples *seeds, const mlff_sample_options *options,
                                 mlff_samples *samples);

typedef struct mlff_explore_options {
    size_t struct_size;
    int64_t n_samples;                                /* wanted; 100 */
    double temperatures[MLFF_SAMPLE_TEMPERATURES];    /* K; 300, 600, 1000 */
    int n_temperatures;                               /* 3 */
    int n_trajectories;                               /* of each temperature, from seeds in turn; 4 */
    double duration_fs;                               /* of each; 5000 */
    double timestep_fs, friction_per_fs, interval_fs; /* 0.5, 0.02, 25 */
    double longest_bond;    /* a bond longer than this multiple of the sum of covalent radii ends a trajectory; 1.6 */
    double closest;         /* so do atoms closer than this part of that sum; 0.55 */
    double deviation_alarm; /* eV/Å: so does a larger deviation; 0: five times the median of the first tenth, adaptive */
    uint64_t seed;
    mlff_sample_callback callback;
    void *context;
    double strain; /* of every other trajectory of a seed in a cell, as in mlff_sample_options; 0.03 */
} mlff_explore_options;
MLFF_API mlff_explore_options mlff_explore_options_default(void);

typedef struct mlff_explore_info {
    int64_t n_frames;                      /* looked at */
    int n_trajectories;                    /* made */
    int n_bond_alarms, n_deviation_alarms; /* trajectories that ended early, by bonds or contacts, by deviation or a failure */
    double simulated_fs;                   /* of all trajectories together */
    double median_deviation;               /* eV/Å of the committee's forces over all frames; NaN for one member */
    double upper_deviation;                /* its 90th percentile: converged when it no longer falls */
    double deviation_level;                /* smallest deviation of a sample taken */
} mlff_explore_info;

/* Molecular dynamics by committee[0], with the deviation of all members' forces (the largest over atoms of the standard deviation
 * of the force) as uncertainty: adds the frames worth a label. These are those with the highest deviations below the alarm (by
 * farthest point where there is one member) and, of trajectories that ended by an alarm, the last frame before it. Fails as
 * mlff_sample. */
MLFF_API mlff_status mlff_explore(mlff_teacher *const *committee, int n_members, const mlff_samples *seeds,
                                  const mlff_explore_options *options, mlff_samples *samples, mlff_explore_info *info_out);

/* ---- files of labels -------------------------------------------------------------------------- */

/* A file that grows by one label after the other, each with a checksum, all of one teacher. A process that is killed leaves an
 * incomplete last label at most, which is dropped with a warning when the file is opened again. mlff_dataset_read reads it. */
typedef struct mlff_shard mlff_shard;

/* Opens or creates. Fails with MLFF_ERR_VALUE where its labels are of another teacher (by hash), MLFF_ERR_FORMAT (something
 * else, or damaged before its end), MLFF_ERR_IO (also where another process is writing to it). */
MLFF_API mlff_status mlff_shard_open(const char *path, const mlff_teacher *teacher, mlff_shard **shard_out);
/* Syncs. The shard is gone afterwards, also on failure. NULL is fine. Fails with MLFF_ERR_IO. */
MLFF_API mlff_status mlff_shard_close(mlff_shard *shard);

typedef struct mlff_shard_info {
    const char *teacher, *teacher_hash; /* name; 64 hexadecimal digits. Borrowed until the shard is closed */
    int64_t n_labels, n_failed;         /* structures with a label; those that the teacher could not label */
    int64_t n_bytes;
} mlff_shard_info;
MLFF_API void mlff_shard_info_get(const mlff_shard *shard, mlff_shard_info *info_out);

typedef struct mlff_label_progress {
    int64_t n_done, n_total, n_before; /* structures; of n_done those whose label was there before */
    int64_t n_failed;                  /* in this call */
    double elapsed_s;
} mlff_label_progress;
/* Not 0 stops, and the call fails with MLFF_ERR_INTERRUPTED; labels so far are kept. */
typedef int (*mlff_label_callback)(void *context, const mlff_label_progress *progress);

typedef struct mlff_label_options {
    size_t struct_size;
    mlff_label_callback callback; /* about three times a second; NULL */
    void *context;
} mlff_label_options;
MLFF_API mlff_label_options mlff_label_options_default(void);

/* Labels the samples that the file has not yet, in their order, and appends them: called again after an interruption, it goes
 * on. Structures that fail are recorded, so that they are not tried again, and each is a warning. `progress_out` (or NULL) gets
 * the last state, also on failure. Fails with MLFF_ERR_IO (a full disk: whole labels are kept), MLFF_ERR_INTERRUPTED,
 * MLFF_ERR_VALUE for a teacher other than the file's, and as mlff_teacher_compute. */
MLFF_API mlff_status mlff_shard_label(mlff_shard *shard, mlff_teacher *teacher, const mlff_samples *samples,
                                      const mlff_label_options *options, mlff_label_progress *progress_out);
/* 1 if the file has a label of this structure (the same atoms, positions and cell), or a record that it failed; else 0. */
MLFF_API int mlff_shard_has(const mlff_shard *shard, const mlff_system *system);
/* Appends one label that the caller has; with a status other than MLFF_OK, the record that the structure failed. `origin` as in
 * mlff_samples_add, or NULL. Fails with
 * MLFF_ERR_UNSUPPORTED for a label of a charged system, MLFF_ERR_VALUE for a label that is not finite (an energy of NaN is absent),
 * MLFF_ERR_IO, MLFF_ERR_MEMORY, and as mlff_system_check. */
MLFF_API mlff_status mlff_shard_append(mlff_shard *shard, const mlff_system *system, const mlff_label *label, const char *origin);

/* Writes the labels of a file as extended XYZ with energies, forces and stresses. Fails as mlff_shard_open and
 * mlff_writer_open. */
MLFF_API mlff_status mlff_shard_export(const char *path, const char *extxyz_path);
/* Warns of labels in a file that mlff_dataset_check refuses for their size: how many, and the first. Fails with MLFF_ERR_IO,
 * MLFF_ERR_FORMAT, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_labels_warn(const char *path, int n_threads);

#ifdef __cplusplus
}
#endif
#endif
