/* SPDX-License-Identifier: MIT */
/* mlff_train.h: labelled structures and training of a model on energies, forces, stress, atomic energies and products of the
 * Hessian with a vector. Conventions and the error contract: mlff_base.h. Gradients are exact (no automatic differentiation;
 * src/train/README.md derives them).
 *
 *   mlff_dataset *data;        labelled structures, shared by trainers
 *   mlff_trainer *trainer;     one model being trained on one device: weights, their average, the optimizer's state
 *
 *   mlff_dataset_create(&data);
 *   mlff_dataset_read(data, "train.extxyz");
 *   mlff_trainer_create(model, data, NULL, &trainer);
 *   while (!done) mlff_trainer_run(trainer, 1000, &history);
 *   mlff_trainer_model(trainer, &student);                       averaged weights */
#ifndef MLFF_TRAIN_H
#define MLFF_TRAIN_H

#include "mlff.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- labelled structures ---------------------------------------------------------------------- */

typedef struct mlff_dataset mlff_dataset;

/* Labels of one structure; what is absent (NULL, NaN) is not trained on. Borrowed for the call. */
typedef struct mlff_labels {
    double energy;               /* eV, the teacher's total energy; NaN: absent */
    const double *forces;        /* [n_atoms][3] eV/Å */
    const double *stress;        /* [6] eV/Å³, Voigt order xx yy zz yz xz xy; needs three periodic axes */
    const double *atom_energies; /* [n_atoms] eV, without the elements' means (mlff_dataset_center_atom_energies) */
    double weight;               /* of this structure in the loss, above 0; usually 1 */
} mlff_labels;

/* Fails with MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_dataset_create(mlff_dataset **dataset_out);
MLFF_API void mlff_dataset_destroy(mlff_dataset *dataset);

/* Adds a copy of a structure. `labels` NULL: those of the system (label_energy, label_forces, label_stress).
 * Fails with MLFF_ERR_VALUE for labels or positions that are not finite or a structure without any label,
 * MLFF_ERR_UNSUPPORTED for a charge other than 0, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_dataset_add(mlff_dataset *dataset, const mlff_system *system, const mlff_labels *labels);

/* Adds a Hessian probe: one structure displaced by +h and by -h along a direction [n_atoms][3] of length 1, each with its labels
 * (NULL: those of the system). The student is trained on the central difference -(F₊ - F₋)/2h as well as on both structures'
 * labels, so that teacher and student share the stencil's truncation error. `step_angstrom` is h; both labels need forces.
 * Fails as mlff_dataset_add, and with MLFF_ERR_VALUE where the structures differ in more than 2h along one direction. */
MLFF_API mlff_status mlff_dataset_add_probe(mlff_dataset *dataset, const mlff_system *plus, const mlff_system *minus,
                                            double step_angstrom, const mlff_labels *plus_labels,
                                            const mlff_labels *minus_labels);

/* Adds all frames of an extended XYZ file with their labels, or all labels of a file of labels (mlff_shard_open) with their
 * Hessian probes and atom energies, structures that failed left out; on failure the dataset is as before. Atom energies come as
 * the teacher gave them: call mlff_dataset_center_atom_energies after the last file. Fails with MLFF_ERR_IO, MLFF_ERR_FORMAT, and
 * as mlff_dataset_add, naming the frame. */
MLFF_API mlff_status mlff_dataset_read(mlff_dataset *dataset, const char *path);

/* For structures that are added one by one, as mlff_dataset_read does for files: the label of the one called `name` is a free energy
 * unlike its energy (is_free), or an energy without a free energy. A warning tells, once, where a dataset, or the structures of a training
 * and its validation, have both. Fails with MLFF_ERR_USAGE for NULL, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_dataset_note_energy(mlff_dataset *dataset, const char *name, int is_free);

/* Writes a file of labels from which mlff_dataset_read makes the same dataset: structures with their masses, fixed atoms, groups, labels,
 * weights and Hessian probes, every number to the bit. It appears whole or not at all. Fails with MLFF_ERR_VALUE (an empty dataset),
 * MLFF_ERR_IO, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_dataset_save(const mlff_dataset *dataset, const char *path);

typedef struct mlff_read_options {
    size_t struct_size;
    double largest_force;           /* eV/Å: structures with a larger force on an atom are left out; INFINITY */
    double largest_force_deviation; /* eV/Å: structures of which an ensemble of teachers is less sure are left out; INFINITY */
    int n_threads;                  /* of this and of mlff_dataset_check of the dataset; 0: all cores */
} mlff_read_options;
MLFF_API mlff_read_options mlff_read_options_default(void);
/* mlff_dataset_read with a choice; *n_left_out_out (or NULL) gets the number of structures left out by it.
 * Fails as mlff_dataset_read, MLFF_ERR_USAGE (a negative limit). */
MLFF_API mlff_status mlff_dataset_read_some(mlff_dataset *dataset, const char *path, const mlff_read_options *options,
                                            int64_t *n_left_out_out);

/* Subtracts from every atom energy the mean of its element, which is arbitrary: only sums of atom energies are observable. */
MLFF_API void mlff_dataset_center_atom_energies(mlff_dataset *dataset);

/* SHA-256 of every structure with its labels, in order: 64 hexadecimal digits into text. Fails with MLFF_ERR_USAGE for NULL. */
MLFF_API mlff_status mlff_dataset_hash(const mlff_dataset *dataset, char text[65]);

/* How many structures of `dataset` are also in `of`: as they are, moved, turned, mirrored or with their atoms in another order
 * (positions rounded to 1e-5 Å are found). The errors of a student on copies of its training data are not those on new structures.
 * indices_out, [mlff_dataset_size(dataset)] or NULL, gets for each structure the index of one in `of` that it is a copy of, else -1.
 * Labels are not compared. Fails with MLFF_ERR_USAGE for NULL, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_dataset_copies(const mlff_dataset *dataset, const mlff_dataset *of, int64_t *n_copies_out,
                                         int64_t *indices_out);

/* Structures (a probe counts as two). */
MLFF_API int64_t mlff_dataset_size(const mlff_dataset *dataset);
/* The same with both structures of a Hessian probe as one, as batches of a training count them: an epoch has this number over batch_size,
 * rounded up, steps. */
MLFF_API int64_t mlff_dataset_units(const mlff_dataset *dataset);
/* Copies structure `index` with its labels. Fails with MLFF_ERR_USAGE for an index out of range, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_dataset_get(const mlff_dataset *dataset, int64_t index, mlff_system **system_out);

/* Splits by group (mlff_system's `group`: frames of one trajectory), never by frame, since neighbors in time are near copies:
 * whole groups, chosen by `seed`, make up about `fraction` (above 0, below 1) of the structures and become *validation_out; the
 * rest becomes *training_out. Structures without a group are cut into 50 runs of consecutive ones, and so is a group that is
 * alone. The last group of an element stays in training, if any other can be held back. Both are copies. Fails with
 * MLFF_ERR_USAGE for another fraction or fewer than two structures, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_dataset_split(const mlff_dataset *dataset, double fraction, uint64_t seed, mlff_dataset **training_out,
                                        mlff_dataset **validation_out);

/* Looks for structures that no student can learn from: fails with MLFF_ERR_VALUE where two atoms are on one point, naming the structure;
 * where the farthest energy from the sum of its elements' energies (mlff_dataset_shifts) is more than 20 eV/atom away and more than
 * 20 times the median, naming it; where that median is more than 20 eV/atom (other units or another method); where the largest forces
 * (root mean square of a structure) are more than 100 eV/Å and more than 100 times the median, naming it; and where energies of near
 * structures do not change as their forces say (other units, gradients, another order), naming the first. */
MLFF_API mlff_status mlff_dataset_check(const mlff_dataset *dataset);

/* The elements of the structures, by atomic number: "H,C,O". A text of 512 bytes holds them all. */
MLFF_API void mlff_dataset_elements(const mlff_dataset *dataset, char *text, size_t text_bytes);

/* How many structures mlff_dataset_check refuses for the size of their energy or their forces, and the index of the first, -1 without one.
 * Fails with MLFF_ERR_USAGE for NULL, MLFF_ERR_VALUE if no structure has an energy, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_dataset_outliers(const mlff_dataset *dataset, int64_t *n_out, int64_t *first_out);

/* Energy of each element that fits the labels best: the minimum-norm least-squares solution of Σ n_z e_z = E (SVD, float64),
 * eV, into shifts[119] by atomic number, 0 for absent elements. Fails with MLFF_ERR_VALUE if no structure has an energy. */
MLFF_API mlff_status mlff_dataset_shifts(const mlff_dataset *dataset, double shifts[119]);

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
    int relax;         /* seeds are relaxed by the teacher first; 1 */
    uint64_t seed;     /* of all random numbers */
    mlff_sample_callback callback;
    void *context;
} mlff_sample_options;
MLFF_API mlff_sample_options mlff_sample_options_default(void);

/* Adds structures around the seeds, about the same number for each seed:
 *   modes    normal modes of the relaxed seed (64 atoms at most, else as thermal), drawn at each temperature
 *   thermal  independent displacements at each temperature (mlff_system_perturb)
 *   rattle   random displacements of all atoms followed by 0 to 8 steps of relaxation, in chains (arXiv:2506.10956)
 *   md       Langevin dynamics by the teacher at each temperature, one trajectory (group) for each
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
/* Appends one label that the caller has; with a status other than MLFF_OK, the record that the structure failed. Fails with
 * MLFF_ERR_UNSUPPORTED for a label of a charged system, MLFF_ERR_VALUE for a label that is not finite (an energy of NaN is absent),
 * MLFF_ERR_IO, MLFF_ERR_MEMORY, and as mlff_system_check. */
MLFF_API mlff_status mlff_shard_append(mlff_shard *shard, const mlff_system *system, const mlff_label *label, const char *origin);

/* Writes the labels of a file as extended XYZ with energies, forces and stresses. Fails as mlff_shard_open and
 * mlff_writer_open. */
MLFF_API mlff_status mlff_shard_export(const char *path, const char *extxyz_path);
/* Warns of labels in a file that mlff_dataset_check refuses for their size: how many, and the first. Fails with MLFF_ERR_IO,
 * MLFF_ERR_FORMAT, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_labels_warn(const char *path, int n_threads);

/* ---- training --------------------------------------------------------------------------------- */

typedef struct mlff_trainer mlff_trainer;

/* Loss of a batch of B structures with N atoms in all, in the model's units (eV, Å for new students; SchNetPack's own units
 * for imported models); Δ is prediction minus label, ω a structure's weight, N_s its atoms:
 *   energy_weight/B Σ ω (ΔE/N_s^a)²   a = 1 if energy_per_atom
 * + forces_weight/3N Σ ω |ΔF_i|²      + stress_weight/9B Σ ω |Δσ|² (full 3×3)
 * + atom_energies_weight/N Σ ω Δε_i²  + hessian_weight/3N Σ ω |Δy_i|² of probes.
 * With huber_forces δ > 0, |ΔF|² beyond |ΔF| = δ goes on as 2δ|ΔF| - δ² (rotation invariant). */
typedef struct mlff_loss {
    double energy_weight, forces_weight, stress_weight, atom_energies_weight, hessian_weight;
    int energy_per_atom;
    double huber_forces; /* 0: off */
} mlff_loss;

typedef enum mlff_schedule { MLFF_COSINE = 0, MLFF_PLATEAU = 1, MLFF_CONSTANT = 2 } mlff_schedule;

/* MLFF_ADAMW: Loshchilov & Hutter, arXiv:1711.05101. MLFF_SOAP: Vyas et al., arXiv:2409.11321, Adam in the eigenbasis of Shampoo's
 * preconditioner, for weight matrices; sides beyond 128 and all other weights as AdamW. On the CPU. */
typedef enum mlff_trainer_optimizer { MLFF_ADAMW = 0, MLFF_SOAP = 1 } mlff_trainer_optimizer;

typedef struct mlff_trainer_options {
    size_t struct_size;
    mlff_device device;
    mlff_precision precision; /* MLFF_FLOAT32; MLFF_FLOAT64: the reference, CPU; MLFF_TF32: GPU */
    int n_threads;            /* CPU; 0: all */
    uint64_t seed;            /* of the order of structures */
    int batch_size;           /* structures a step; 32 */
    int64_t n_steps;          /* of the whole run: what the schedule spans */
    mlff_loss loss;
    double energy_boost;      /* energy_weight is multiplied by this in the last fifth of the run; 100 */
    double learning_rate;     /* 1e-3, the peak */
    double learning_rate_end; /* 1e-6 */
    double warm_up;           /* fraction of the run in which the rate rises from 0; 0.02 */
    mlff_schedule schedule; /* cosine to learning_rate_end; or × plateau_factor after plateau_patience validations without gain */
    double plateau_factor;  /* 0.5 */
    int plateau_patience;   /* 75 */
    double beta1, beta2, epsilon, weight_decay; /* 0.9, 0.999, 1e-8, 0 */
    double clip;                                /* largest Euclidean norm of the gradient; 0: off; 10 */
    double average;                   /* decay of the weights' moving average, 0.999; at step t at most (1 + t)/(10 + t) */
    int n_devices;                    /* GPUs that share each batch (NCCL); 0: `device` alone */
    int devices[8];                   /* [n_devices] their indices, that of `device` first */
    mlff_trainer_optimizer optimizer; /* MLFF_ADAMW */
    int soap_interval;                /* steps between two updates of SOAP's bases; 10 */
    double soap_decay;                /* of the means of SOAP's covariances; 0.95 */
} mlff_trainer_options;
MLFF_API mlff_trainer_options mlff_trainer_options_default(void);

/* Begins with the weights of `model` (PaiNN). `data` is read now and not kept; elements the model does not know are refused.
 * Fails with MLFF_ERR_ELEMENT, MLFF_ERR_UNSUPPORTED (architecture, device or precision; SOAP on a GPU), MLFF_ERR_VALUE (an
 * empty dataset, no forces where the loss has a weight for them, two atoms on one point), MLFF_ERR_MEMORY, MLFF_ERR_DEVICE. The
 * model must outlive the trainer. */
MLFF_API mlff_status mlff_trainer_create(const mlff_model *model, const mlff_dataset *data, const mlff_trainer_options *options,
                                         mlff_trainer **trainer_out);
MLFF_API void mlff_trainer_destroy(mlff_trainer *trainer);

/* Means over the structures that were trained on or validated; NaN where no label is. Energies per atom eV, forces eV/Å by
 * component, stress eV/Å³. */
typedef struct mlff_training_errors {
    int64_t n_frames, n_atoms;
    double loss; /* model units */
    double energy_mae, energy_rmse, force_mae, force_rmse, stress_mae;
} mlff_training_errors;
/* For people: "forces 5.10 meV/Å, energy 0.102 meV/atom", without what had no labels. Returns `text`. */
MLFF_API const char *mlff_training_errors_text(const mlff_training_errors *errors, char text[96]);

/* n_steps more steps (less at the run's end: *n_done_out). Structures come in an order that the seed determines for each pass
 * over the data. `errors_out` (or NULL): of the batches since errors were asked for last, as they were trained on; without any,
 * 0 structures and NaN. Asking waits for the device. Fails with MLFF_ERR_UNSTABLE if the loss is not finite (the trainer stays at the last finite state asked for),
 * MLFF_ERR_MEMORY, MLFF_ERR_DEVICE. */
MLFF_API mlff_status mlff_trainer_run(mlff_trainer *trainer, int64_t n_steps, int64_t *n_done_out,
                                      mlff_training_errors *errors_out);

/* Errors of the averaged weights over a dataset. Fails as mlff_trainer_create. */
MLFF_API mlff_status mlff_trainer_validate(mlff_trainer *trainer, const mlff_dataset *data, mlff_training_errors *errors_out);

/* Mean absolute force errors by atomic number of the last validation, eV/Å; NaN for elements that it has no labelled atoms of, and
 * for all of them before the first validation. */
MLFF_API void mlff_trainer_element_errors(const mlff_trainer *trainer, double force_mae_out[119]);
/* For people: "H 3.1, C 6.4, O 5.9 meV/Å", "" without any. Returns `text`. */
MLFF_API const char *mlff_element_errors_text(const double force_mae[119], char text[96]);

/* Tells the plateau schedule the value it follows (a validation's loss or force error). */
MLFF_API void mlff_trainer_report(mlff_trainer *trainer, double value);

MLFF_API int64_t mlff_trainer_step(const mlff_trainer *trainer);
MLFF_API double mlff_trainer_learning_rate(const mlff_trainer *trainer);

/* A new model with the averaged weights (or, with `raw`, the weights being trained); its information says trained = 1.
 * Fails with MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_trainer_model(mlff_trainer *trainer, int raw, mlff_model **model_out);

/* A copy of `model` whose elements have these energies (mlff_dataset_shifts), eV, in place of its own: what a new student
 * begins with. Fails with MLFF_ERR_UNSUPPORTED for an architecture without such energies, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_model_with_shifts(const mlff_model *model, const double shifts[119], mlff_model **model_out);
/* The model that a training on `labels` begins with. A new one gets the energies of the elements that fit the labels best. One that was
 * trained before keeps its own, unless its energies are more than 1 eV/atom (mean absolute, of at most 100 structures) off the labels:
 * no training moves the energies of elements that far, and labels of another method have another zero; then it gets the energies that
 * fit the labels too, with a warning. A copy in any case. Fails with MLFF_ERR_UNSUPPORTED for an architecture that cannot be trained,
 * MLFF_ERR_VALUE where a new model's labels have no energies, MLFF_ERR_ELEMENT, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_model_to_train(const mlff_model *model, const mlff_dataset *labels, int n_threads,
                                         mlff_model **model_out);
/* Notes a fact about a model's training in its metadata, under "training.KEY" (teacher, errors, domain, license). Fails with
 * MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_model_note(mlff_model *model, const char *key, const char *value);

/* Where training structures came from: a file, and the part of it that was taken. */
typedef struct mlff_data_origin {
    const char *path;
    double largest_force; /* eV/Å: structures with a larger force were left out; INFINITY */
    double split;         /* fraction that mlff_dataset_split held back by `seed`; 0: none */
    uint64_t seed;
} mlff_data_origin;
/* Notes the number and SHA-256 of the training structures in a model's metadata, and, where `origin` is given, their file by its path
 * from the folder of `model_path`, where the model will be. Fails with MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_model_note_data(mlff_model *model, const mlff_dataset *train, const char *model_path,
                                          const mlff_data_origin *origin);
/* The structures that the model in the file `model_path` was trained on: of the file that its metadata name, or, of a student in the folder
 * of its mlff_distill run, of the labels there. *data_out, owned by the caller, is NULL where the metadata name none, where
 * nothing is there, and, with a warning, where their SHA-256 is not that of the metadata. Fails with MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_model_training_data(const mlff_model *model, const char *model_path, int n_threads,
                                              mlff_dataset **data_out);

/* Checkpoint: raw and averaged weights, moments, step, place in the data, schedule. Written whole or not at all, and
 * checksummed. A run that goes on from it ends in the same bits as one that was never stopped. Save fails with MLFF_ERR_IO;
 * restore with MLFF_ERR_IO, MLFF_ERR_FORMAT, or MLFF_ERR_VALUE where the file is of another model, dataset or options. */
MLFF_API mlff_status mlff_trainer_save(mlff_trainer *trainer, const char *path);
MLFF_API mlff_status mlff_trainer_restore(mlff_trainer *trainer, const char *path);

/* ---- a whole run: validation, best weights, checkpoints, history ------------------------------ */

/* What a run reports, at each validation and about twice a second between (validated = 0: errors are those of before). */
typedef struct mlff_fit_progress {
    int64_t step, n_steps;
    int validated;
    double learning_rate, structures_per_s, elapsed_s, remaining_s; /* elapsed_s: of the whole run, also before its checkpoint */
    mlff_training_errors training, validation;                      /* since the last validation; of the averaged weights */
    mlff_training_errors
        best;          /* validation of the best weights so far: lowest force MAE, without forces energy MAE; from the first
                                * validation with a raised energy_weight (energy_boost) on, lowest loss since */
    int64_t best_step; /* 0: none yet */
    const double *element_force_mae; /* [119] of the last validation, as mlff_trainer_element_errors */
    int history_failed; /* 1: options.history could not be written at the last validation, which a training without checkpoint outlives */
} mlff_fit_progress;
/* Not 0 ends the run: a checkpoint is written and the call fails with MLFF_ERR_INTERRUPTED. */
typedef int (*mlff_fit_callback)(void *context, const mlff_fit_progress *progress);

typedef struct mlff_fit_options {
    size_t struct_size;
    int64_t validate_every;  /* steps; 0: a hundredth of the run, one epoch at least */
    double checkpoint_every; /* seconds; 30 */
    const char *checkpoint;  /* file that is gone on from if it is there, and written; NULL: none */
    const char *best;        /* file that gets the best model so far (needed with `checkpoint`); NULL: none */
    const char *history;     /* file that gets one JSON object a validation and line; NULL: none */
    mlff_fit_callback callback;
    void *context;
} mlff_fit_options;
MLFF_API mlff_fit_options mlff_fit_options_default(void);

/* Trains to the end of the run and hands out the model with the lowest validation error (averaged weights). A run that was
 * killed and goes on from its checkpoint gives the same bits. Fails with MLFF_ERR_INTERRUPTED, MLFF_ERR_VALUE (a checkpoint of other
 * structures for validation), and as mlff_trainer_run, mlff_trainer_validate, mlff_trainer_save and mlff_trainer_restore; *model_out is then
 * the best model so far, or NULL. */
MLFF_API mlff_status mlff_trainer_fit(mlff_trainer *trainer, const mlff_dataset *validation, const mlff_fit_options *options,
                                      mlff_model **model_out);

/* Validation errors of the best weights that mlff_trainer_fit has found so far; n_frames is 0 before the first. */
MLFF_API void mlff_trainer_best(const mlff_trainer *trainer, mlff_training_errors *errors_out);

/* Gradient of the loss of the structures frames[n_frames] of the trainer's data with respect to every trainable parameter of
 * the raw weights, float64 into gradient_out[mlff_trainer_n_parameters()], in the order of the model file's tensors (dead and
 * unused ones 0). For checks and for optimizers of one's own. Fails with MLFF_ERR_USAGE for an index out of range. */
MLFF_API int64_t mlff_trainer_n_parameters(const mlff_trainer *trainer);
MLFF_API mlff_status mlff_trainer_gradient(mlff_trainer *trainer, const int64_t *frames, int n_frames, double *gradient_out,
                                           double *loss_out);

/* ---- verdict: may the student stand in for its teacher? ----------------------------------------- */

/* Anything that gives energies and forces: a model's evaluator, a quantum chemistry program, a caller's own function. */
typedef struct mlff_force_field {
    const char *name;
    mlff_force_function forces;
    void *context;
} mlff_force_field;

/* Energy and forces of one structure by a teacher, and nothing else that its labels have: an mlff_force_function whose context is the
 * mlff_teacher. Fails as mlff_teacher_compute, or as the structure's label does. */
MLFF_API mlff_status mlff_teacher_forces(void *teacher, const mlff_system *system, double *energy, double *forces);

typedef enum mlff_bar_state { MLFF_BAR_PASSED = 0, MLFF_BAR_FAILED = 1, MLFF_BAR_NOT_MEASURED = 2 } mlff_bar_state;

/* One requirement and what was measured. A bar that was asked for and could not be measured fails the verdict. */
typedef struct mlff_bar {
    const char *name; /* "held_out", "error.forces", "error.energy", "baseline", "speed", "speed.batch", "stability.nve",
                           "stability.hot", "core", "structure", "spectrum" */
    const char *unit; /* "meV/Å"; "" for a pure number */
    double value;     /* NaN: none; where the interval holds the limit there is a value, and the state is MLFF_BAR_NOT_MEASURED */
    /* Half width of the interval that decides: of "stability.nve" the one of 99 %, of "speed" and "speed.batch" all blocks of time but the
     * lowest and the highest; NaN where there is none. */
    double uncertainty;
    double limit;
    int at_least; /* 1: the value must reach the limit; 0: it must not exceed it */
    mlff_bar_state state;
    char text[320];  /* one line: what was done, or why it was not measured */
    char system[24]; /* that it was measured on, where there are several; "" */
} mlff_bar;

typedef struct mlff_verdict_options {
    size_t struct_size;
    mlff_device device; /* of the student */
    int n_threads;
    uint64_t seed;
    double timestep_fs;        /* 0.5 */
    double temperature_kelvin; /* 300: of the NVE run and of the comparison with the teacher */
    double hot_kelvin;         /* 500 */
    double nve_ps;             /* 20; 0 leaves the bar out */
    double hot_ps;             /* 50, in each of hot_runs runs; 0 leaves the bar out */
    int hot_runs;              /* 3 */
    double compare_ps;         /* 20: of student and teacher each, in four runs, for structure and spectrum; 0 leaves both out */
    double speed_s;            /* 1.2: of student and teacher together, for each of speed and speed.batch; at least 0.01 */
    double max_force_error;    /* eV/Å, mean absolute over structures without a force above 20 eV/Å; 0.05 */
    double max_energy_error;   /* eV/atom; 0.005 */
    double max_drift;          /* |slope| of the conserved energy, eV/atom/ps; 5e-5 */
    /* Teacher's time over the student's, of one structure a call and of many (32, on a GPU 256, or as many as have 2048, on a GPU 32,768
     * atoms; not of structures larger than half of that); 1; 0 leaves the bar out where there is no teacher. */
    double min_speed;
    int (*callback)(void *context, const char *what, double fraction); /* not 0: stop with MLFF_ERR_INTERRUPTED */
    void *context;
    const mlff_samples *systems; /* the bars but those of errors are measured on each (16 at most), named by its origin; NULL: on
                                    `start` alone */
    const mlff_model *baseline;  /* a model that the student's force error must not exceed on the same structures; NULL */
    const mlff_dataset *trained_on; /* the training data: the bar `held_out` counts structures of `test` that are in it; NULL */
} mlff_verdict_options;
MLFF_API mlff_verdict_options mlff_verdict_options_default(void);

typedef struct mlff_verdict mlff_verdict;
/* Judges a student on held-out labelled structures and in molecular dynamics from `start` (which may be NULL where
 * options->systems are given). `teacher` NULL: bars that need one
 * (speed, structure, spectrum) are not measured and therefore fail if they are asked for. Fails as mlff_evaluator_create,
 * mlff_evaluator_compute, and with MLFF_ERR_INTERRUPTED; a student whose dynamics fail is a failed bar, no failure. After a failure
 * *verdict_out has the bars that were measured before it, where there are any, and else what it had. */
MLFF_API mlff_status mlff_verdict_create(const mlff_model *student, const mlff_force_field *teacher, const mlff_dataset *test,
                                         const mlff_system *start, const mlff_verdict_options *options,
                                         mlff_verdict **verdict_out);
MLFF_API void mlff_verdict_destroy(mlff_verdict *verdict);
MLFF_API const mlff_bar *mlff_verdict_bars(const mlff_verdict *verdict, int *n_out);
/* 1 if every bar was measured and passed. */
MLFF_API int mlff_verdict_passed(const mlff_verdict *verdict);
/* Writes all bars and the settings as one JSON object. Fails with MLFF_ERR_IO, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_verdict_save(const mlff_verdict *verdict, const char *path);

/* ---- distillation: sample, label, train, judge -------------------------------------------------- */

/* All of a run's settings; config.json holds them by these names. Strings are borrowed for the call. */
typedef struct mlff_distill_config {
    size_t struct_size;
    const char *teacher; /* as mlff_teacher_open takes it */
    const char *systems; /* "ethanol,water.xyz": built-in systems and files, separated by commas */
    int n_atoms;         /* of built-in systems that have a choice; 0: their own default */
    uint64_t seed;
    /* Structures. n_structures are to be labelled, those of the rounds included (20 at least; 2000); of `labels` they are used at most,
     * chosen by the seed (50 at least; 0: all). */
    int n_structures;
    double lowest_kelvin, highest_kelvin; /* of the teacher's dynamics and the displacements; 300, 1000 */
    int n_probes;                         /* Hessian probes of each structure; 0 */
    int n_rounds; /* of active learning: dynamics by a committee of partly trained students, labels of the frames they agree on least; 0 */
    int committee;                /* students that explore, 1 to 8; 2 */
    double max_teacher_deviation; /* eV/Å: structures of which an ensemble of teachers is less sure are left out; 0: none */
    /* student */
    int n_features, n_layers, n_radial; /* 64, 2, 20 */
    double cutoff_angstrom;             /* 5 */
    /* Onset of a fixed repulsion of nuclei, as a part of the sum of covalent radii; 0: none; 0.7. Structures with closer atoms are not
     * sampled. Of `labels` (1): where a tenth of the structures have closer atoms, and at most this. */
    double core_repulsion;
    /* training */
    int batch_size; /* 8 */
    int64_t n_steps;
    double learning_rate;  /* the peak */
    double huber_forces;   /* eV/Å, mlff_loss; 0.1 */
    const char *optimizer; /* "adamw" or "soap" (mlff_trainer_optimizer); NULL: "adamw" */
    /* verdict */
    int baseline; /* 1: another student of the same size, steps and number of labels, without rounds and probes, must not be better */
    double nve_ps, hot_ps, compare_ps, speed_s; /* mlff_verdict_options */
    int hot_runs;
    double max_force_error, max_energy_error, max_drift, min_speed;
    /* Labels that are there, in place of systems that are sampled and labelled. `labels`: "a.extxyz,b.mlff", files as mlff_dataset_read
     * takes them, separated by commas; NULL: none. `labels_hash`: SHA-256 of each file's structures, labels and groups, separated by
     * commas, which mlff_distill sets. */
    const char *labels, *labels_hash;
} mlff_distill_config;
/* "demo", "quick", "standard" or "thorough"; teacher and systems are NULL. Fails with MLFF_ERR_USAGE for another name. */
MLFF_API mlff_status mlff_distill_preset(const char *name, mlff_distill_config *config_out);
/* Makes a preset one of a run from labels that are there: all structures of `labels` (n_structures 0), no rounds, no probes, no baseline,
 * a core_repulsion of 1 at most, and, where the configuration names no teacher to measure beside, no bars that need one
 * (min_speed 0, compare_ps 0). */
MLFF_API void mlff_distill_use_labels(mlff_distill_config *config, const char *labels);
/* Writes a configuration as JSON. Fails with MLFF_ERR_IO, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_distill_config_save(const mlff_distill_config *config, const char *path);
/* Reads one: keys that are absent keep what `config` has. Strings are stored in `text` of text_bytes. Fails with MLFF_ERR_IO,
 * MLFF_ERR_FORMAT (not JSON, an unknown key, a value out of range), MLFF_ERR_LIMIT for strings that `text` has no room for. */
MLFF_API mlff_status mlff_distill_config_read(const char *path, mlff_distill_config *config, char *text, size_t text_bytes);

typedef struct mlff_distill_progress {
    const char *stage; /* "sample", "label", or "read" of labels that are there; "round", "train", "baseline", "verdict" */
    double fraction;   /* of the stage, 0 to 1 */
    const char *text;  /* one line for people: counts, rates, errors, with units */
    int milestone;     /* 1: worth a line of its own */
} mlff_distill_progress;

typedef struct mlff_distill_options {
    size_t struct_size;
    mlff_device device;                                                    /* that trains and runs the student; CPU */
    int n_threads;                                                         /* 0: all */
    mlff_teacher *teacher;                                                 /* in place of the one config.teacher names; NULL */
    int (*callback)(void *context, const mlff_distill_progress *progress); /* not 0: stop with MLFF_ERR_INTERRUPTED */
    void *context;
    /* In place of the files that config.labels names, which is then any text; a new run writes them to labels.mlff, from which it goes on
     * without them; NULL. */
    const mlff_dataset *labels;
} mlff_distill_options;
MLFF_API mlff_distill_options mlff_distill_options_default(void);

/* Runs every stage in `folder`, which is made if it is not there: config.json and made-with.json, samples.extxyz, labels.mlff, of each
 * round K explored-K.extxyz, labels-K.mlff and round-K.json, checkpoint, history.jsonl, student.safetensors, verdict.json, report.html.
 * With config.labels nothing is sampled or labelled: their structures are checked as mlff_dataset_check does, divided into training,
 * validation and test by whole groups, and the student is judged against the labels of the test; a teacher is measured beside it if one
 * is named. A folder with a config.json is gone on with (and `config` may be NULL): finished stages are kept, the others end in the same
 * bits as without the interruption. *passed_out: the verdict. Fails with MLFF_ERR_USAGE for settings that exclude each other,
 * MLFF_ERR_VALUE where `config` is not that of the folder, where config.json was edited but for settings of the verdict, where labels
 * have changed or are too few (50 at least), MLFF_ERR_INTERRUPTED, and as the stages. */
MLFF_API mlff_status mlff_distill(const mlff_distill_config *config, const char *folder, const mlff_distill_options *options,
                                  int *passed_out);

#ifdef __cplusplus
}
#endif
#endif
