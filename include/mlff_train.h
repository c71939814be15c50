/* SPDX-License-Identifier: MIT */
/* mlff_train.h: labelled structures and training of a model on energies, forces, stress, atomic energies and products of the
 * Hessian with a vector. Conventions and the error contract: mlff_base.h. Gradients are exact (no automatic differentiation;
 * src/model/painn/README.md derives them).
 *
 *   mlff_dataset *data;        labelled structures, shared by trainers
 *   mlff_trainer *trainer;     one model being trained on one device: weights, their average, the optimizer's state
 *
 *   mlff_dataset_create(&data);
 *   mlff_dataset_read(data, "train.extxyz");
 *   mlff_trainer_create(model, data, NULL, &trainer);
 *   mlff_trainer_run(trainer, 1000, &n_done, &errors);
 *   mlff_trainer_model(trainer, 0, &student);                    averaged weights */
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
 * whole groups, chosen by `seed`, make up about `fraction` (above 0, below 1) of the structures, and of those of each config_type, and become *validation_out; the
 * rest becomes *training_out. Of structures of one composition and config_type one group at least is in training, if there are two. Where
 * those of some compositions are held back, as "md" of "md 300 K", so is a group of each other composition that has two, unless the part became more than twice
 * the fraction. Structures without a group are cut into 50 runs of consecutive ones, and so is a group that is
 * alone. The last group of an element stays in training, if any other can be held back. Both are copies. Fails with
 * MLFF_ERR_USAGE for another fraction, fewer than two structures or one Hessian probe alone, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_dataset_split(const mlff_dataset *dataset, double fraction, uint64_t seed, mlff_dataset **training_out,
                                        mlff_dataset **validation_out);

/* Looks for structures that no student can learn from: fails with MLFF_ERR_VALUE where two atoms are on one point, naming the structure;
 * where the farthest energy from the sum of its elements' energies (mlff_dataset_shifts) is more than 20 eV/atom away and more than
 * 20 times the median, naming it; where that median is more than 20 eV/atom (other units or another method); where the largest forces
 * (root mean square of a structure) are more than 100 eV/Å and more than 100 times the median, naming it; and where energies of near
 * structures do not change as their forces, or with the cell as their stress, say (other units or signs, gradients, another order),
 * naming the first; or half of the structures have a stress of more than 50 eV an atom, times the volume. A warning names the first of
 * single energies that are 15 standard deviations, 3 eV and 0.2 eV/atom or more from the median of 20 or more structures of the same atoms, whose forces
 * and distances are as theirs; MLFF_ERR_VALUE where it is 0 and the forces are not. Fails with MLFF_ERR_MEMORY too. */
MLFF_API mlff_status mlff_dataset_check(const mlff_dataset *dataset);

/* The elements of the structures, by atomic number: "H,C,O". A text of 512 bytes holds them all. */
MLFF_API void mlff_dataset_elements(const mlff_dataset *dataset, char *text, size_t text_bytes);

/* How many structures mlff_dataset_check refuses for the size of their energy or their forces, and the index of the first, -1 without one.
 * Fails with MLFF_ERR_USAGE for NULL, MLFF_ERR_VALUE if no structure has an energy, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_dataset_outliers(const mlff_dataset *dataset, int64_t *n_out, int64_t *first_out);

/* Removes the structures at which a force of `model` differs from the label by more than `largest_error` on an atom, eV/Å, or is not finite,
 * a Hessian probe as two or none; those without forces stay. A training that begins with `model` cannot learn where it diverges: there no
 * gradient is finite. `options` (or NULL) are of the evaluator. *n_removed_out (or NULL) gets their number. Fails with MLFF_ERR_USAGE for
 * NULL or a limit that is not above 0, and as mlff_evaluator_create and mlff_evaluator_compute; the dataset is then as it was. */
MLFF_API mlff_status mlff_dataset_remove_far(mlff_dataset *dataset, const mlff_model *model, double largest_error,
                                             const mlff_evaluator_options *options, int64_t *n_removed_out);

/* Energy of each element that fits the labels best: the minimum-norm least-squares solution of Σ n_z e_z = E (SVD, float64),
 * eV, into shifts[119] by atomic number, 0 for absent elements. Fails with MLFF_ERR_VALUE if no structure has an energy. */
MLFF_API mlff_status mlff_dataset_shifts(const mlff_dataset *dataset, double shifts[119]);

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
 * preconditioner, for weight matrices; sides beyond 128 and all other weights as AdamW. */
typedef enum mlff_trainer_optimizer { MLFF_ADAMW = 0, MLFF_SOAP = 1 } mlff_trainer_optimizer;

typedef struct mlff_trainer_options {
    size_t struct_size;
    mlff_device device;
    mlff_precision precision; /* MLFF_FLOAT32; MLFF_FLOAT64: the reference, CPU; MLFF_TF32: GPU */
    int n_threads;            /* CPU; 0: all */
    uint64_t seed;            /* of the order of structures */
    int batch_size;           /* structures a step; 32 */
    int64_t n_steps;          /* of the whole run: what the schedule spans; 10000 */
    mlff_loss loss;           /* energy_weight 1, per atom; forces_weight 100, stress_weight 3000; the others 0 */
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
    /* Structures with two atoms nearer than in any label are added to those of a model with core repulsion, this part of their number at
     * most; 0.03. They are made of labelled ones in which two atoms are at 0.76 of the sum of their covalent radii or nearer: one atom moves
     * on along their line, to 0.2 at least, and the energy grows by the core repulsion alone. They have forces and no energy. Of two elements that no
     * label has as near, the structures with the nearest such atoms are continued, at most five times that part, with 0.3 of their weight or less. */
    double nearer;
} mlff_trainer_options;
MLFF_API mlff_trainer_options mlff_trainer_options_default(void);

/* Begins with the weights of `model` (PaiNN). `data` is read now and not kept; elements the model does not know are refused.
 * Fails with MLFF_ERR_ELEMENT, MLFF_ERR_UNSUPPORTED (architecture, device or precision), MLFF_ERR_VALUE (an
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
 * over the data. *n_done_out (or NULL) is the number made, also on failure. `errors_out` (or NULL): of the batches since errors were
 * asked for last, as they were trained on; without any, 0 structures and NaN. Asking waits for the device. Fails with MLFF_ERR_UNSTABLE if the loss is not finite (the trainer stays at the last finite state asked for),
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

/* How many structures were added (`nearer` of the options). */
MLFF_API int64_t mlff_trainer_n_nearer(const mlff_trainer *trainer);
MLFF_API int64_t mlff_trainer_step(const mlff_trainer *trainer);
MLFF_API double mlff_trainer_learning_rate(const mlff_trainer *trainer);

/* A new model with the averaged weights (or, with `raw`, the weights being trained); its information says trained = 1.
 * Fails with MLFF_ERR_VALUE for weights that are not finite, MLFF_ERR_USAGE, MLFF_ERR_DEVICE, MLFF_ERR_MEMORY. */
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
 * MLFF_ERR_USAGE for NULL or a key of more than 100 bytes, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_model_note(mlff_model *model, const char *key, const char *value);

/* Where training structures came from: a file, and the part of it that was taken; and the model that the training began with. */
typedef struct mlff_data_origin {
    const char *path;     /* NULL: not to be named */
    double largest_force; /* eV/Å: structures with a larger force were left out; INFINITY */
    double split;         /* fraction that mlff_dataset_split held back by `seed`; 0: none */
    uint64_t seed;
    const char *begun_with; /* file or name of a trained model, which was trained on other structures before; NULL: none */
} mlff_data_origin;
/* Notes the number and SHA-256 of the training structures in a model's metadata, and, where `origin` is given, their file and the model
 * begun with by their paths from the folder of `model_path`, where the model will be. Fails with MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_model_note_data(mlff_model *model, const mlff_dataset *train, const char *model_path,
                                          const mlff_data_origin *origin);
/* The structures that the model in the file `model_path` was trained on: of the file that its metadata name, or, of a student in the folder
 * of its mlff_distill run, of the labels there; and those of the model that its training began with. A part is absent where the metadata
 * name none, where nothing is there, and, with a warning, where the SHA-256 is not that of the metadata: *complete_out (or NULL) is then 0, else 1.
 * *data_out, owned by the caller, is NULL where all are absent. Fails with MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_model_training_data(const mlff_model *model, const char *model_path, int n_threads,
                                              mlff_dataset **data_out, int *complete_out);

/* Checkpoint: raw and averaged weights, moments, step, place in the data, schedule. Written whole or not at all, and
 * checksummed. A run that goes on from it ends in the same bits as one that was never stopped. Save fails with MLFF_ERR_IO, or
 * MLFF_ERR_VALUE for weights that are not finite, restore with MLFF_ERR_IO, MLFF_ERR_FORMAT, or MLFF_ERR_VALUE where the file is of another model, dataset or options. */
MLFF_API mlff_status mlff_trainer_save(mlff_trainer *trainer, const char *path);
MLFF_API mlff_status mlff_trainer_restore(mlff_trainer *trainer, const char *path);

/* What a checkpoint says of its training. */
typedef struct mlff_checkpoint_info {
    size_t struct_size;        /* set by the caller; no more than this is written */
    char model[256];           /* one line: "PaiNN, 64 features, 2 layers, …" */
    int64_t n_parameters;      /* trainable ones */
    int64_t n_structures;      /* trained on */
    int64_t step, n_steps;     /* made, and in all */
    int64_t best_step;         /* of the best weights so far; 0: none yet */
    mlff_training_errors best; /* of these on the validation structures */
    double learning_rate;      /* the highest */
    double elapsed_s;          /* of all steps; 0 where the file does not say it */
    int batch_size;
    uint64_t seed;
    mlff_trainer_optimizer optimizer;
} mlff_checkpoint_info;
/* Fails with MLFF_ERR_UNSUPPORTED for what is no checkpoint of a training, MLFF_ERR_FORMAT for a damaged one, MLFF_ERR_IO, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_checkpoint_info_get(const char *path, mlff_checkpoint_info *info_out);
/* Where mlff train and distill keep the best model so far of a training (mlff_fit_options.best): NAME.best.safetensors beside NAME.checkpoint,
 * or beside a checkpoint NAME of another suffix. Fails with MLFF_ERR_USAGE, MLFF_ERR_LIMIT. */
MLFF_API mlff_status mlff_checkpoint_best_path(const char *checkpoint, char *text, size_t text_bytes);

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

/* Trains to the end of the run and hands out the model with the lowest validation error (averaged weights). After a training in TF32, whose
 * products shift all energies, one energy an atom is added, so that the median error in float32 is 0. A run that was
 * killed and goes on from its checkpoint gives the same bits. Fails with MLFF_ERR_INTERRUPTED, MLFF_ERR_VALUE (a checkpoint of other
 * structures for validation; a `best` of another training), MLFF_ERR_USAGE (`best` is there without `checkpoint`: it would be replaced), and as mlff_trainer_run, mlff_trainer_validate, mlff_trainer_save and mlff_trainer_restore; *model_out is then
 * the best model so far, or NULL. */
MLFF_API mlff_status mlff_trainer_fit(mlff_trainer *trainer, const mlff_dataset *validation, const mlff_fit_options *options,
                                      mlff_model **model_out);

/* Validation errors of the best weights that mlff_trainer_fit has found so far; n_frames is 0 before the first. */
MLFF_API void mlff_trainer_best(const mlff_trainer *trainer, mlff_training_errors *errors_out);

/* Gradient of the loss of the structures frames[n_frames] of the trainer's data with respect to every trainable parameter of
 * the raw weights, float64 into gradient_out[mlff_trainer_n_parameters()], in the order of the model file's tensors (dead and
 * unused ones 0); *loss_out (or NULL) is the loss. For checks and for optimizers of one's own. Fails with MLFF_ERR_USAGE for an index
 * out of range, MLFF_ERR_DEVICE, MLFF_ERR_MEMORY. */
MLFF_API int64_t mlff_trainer_n_parameters(const mlff_trainer *trainer);
MLFF_API mlff_status mlff_trainer_gradient(mlff_trainer *trainer, const int64_t *frames, int n_frames, double *gradient_out,
                                           double *loss_out);

#ifdef __cplusplus
}
#endif
#endif
