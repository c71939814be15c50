/* SPDX-License-Identifier: MIT */
/* mlff.h: models and evaluators: energies, forces and stress of atoms. Devices: mlff_device.h.
 * Conventions and the error contract: mlff_base.h.
 *
 *   mlff_model *model;            weights, read-only, shared by threads
 *   mlff_evaluator *evaluator;    one model on one device in one precision, with its buffers; one per thread
 *
 *   mlff_model_load("ethanol.safetensors", &model);
 *   mlff_evaluator_create(model, NULL, &evaluator);
 *   mlff_evaluator_compute(evaluator, &batch, &results);        the example: tests/api/examples */
#ifndef MLFF_H
#define MLFF_H

#include "mlff_atoms.h"
#include "mlff_device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- model ----------------------------------------------------------------------------------- */

typedef struct mlff_model mlff_model;

typedef enum mlff_precision {
    MLFF_PRECISION_DEFAULT = 0, /* float32 */
    MLFF_FLOAT32 = 1,
    MLFF_FLOAT64 = 2, /* the reference */
    /* Fast modes: operands of matrix products are rounded, sums are float32. Not for every model and processor (MLFF_ERR_UNSUPPORTED). */
    MLFF_TF32 =
        3, /* GPUs: operands of 11 significant bits, NVIDIA's TF32 or scaled IEEE half precision, which has as many. Processors
                      with AMX: of 16, as two numbers in bfloat16 */
    MLFF_BF16 = 4 /* operands of 8 significant bits: bfloat16; of Orb on processors with AMX or AVX512-BF16 too */
} mlff_precision;

/* Loads a model file (safetensors, written by mlff_model_save). A text that is no path of a file and has no "/" is a name:
 * NAME.safetensors in the folders of MLFF_MODEL_PATH (separated by ":"), then in $XDG_DATA_HOME/mlff/models or
 * ~/.local/share/mlff/models, then among the models that are installed with the library (ethanol, water, organic: models/README.md).
 * "fennol-ani2x" is a name whose absence is explained. Fails with MLFF_ERR_IO for a file that is
 * absent or cannot be read, MLFF_ERR_FORMAT for one that is not a model file, MLFF_ERR_UNSUPPORTED for an architecture that
 * this version does not have, MLFF_ERR_VALUE for weights that are not finite, MLFF_ERR_LIMIT, MLFF_ERR_MEMORY,
 * MLFF_ERR_USAGE. */
MLFF_API mlff_status mlff_model_load(const char *path, mlff_model **model_out);
/* The file that mlff_model_load reads for a name: the name itself if it is a path, else found in the folders of models. Fails
 * with MLFF_ERR_IO where there is no such file, MLFF_ERR_LIMIT for a path longer than path_bytes, MLFF_ERR_USAGE, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_model_find(const char *name, char *path, size_t path_bytes);
/* Where a model file must lie for mlff_model_load to find it by `name` for this user: NAME.safetensors in
 * $XDG_DATA_HOME/mlff/models or ~/.local/share/mlff/models. Nothing is created. Fails with MLFF_ERR_USAGE for a name that is
 * empty, begins with a dot or holds a slash or a colon, MLFF_ERR_LIMIT for a path longer than path_bytes, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_model_install_path(const char *name, char *path, size_t path_bytes);
/* Writes a model file, which appears whole or not at all. Fails with MLFF_ERR_IO, MLFF_ERR_MEMORY, MLFF_ERR_USAGE. */
MLFF_API mlff_status mlff_model_save(const mlff_model *model, const char *path);
MLFF_API void mlff_model_destroy(mlff_model *model);

typedef struct mlff_import_options {
    size_t struct_size;
    const char
        *energy_unit; /* "kcal/mol", "eV", "Hartree": what the foreign file computes; NULL: an error unless the file says */
    const char *length_unit; /* "Ang", "Bohr"; NULL: Ang */
    const char *elements;    /* "H,C,O", or NULL: unknown (a warning says so once) */
} mlff_import_options;
MLFF_API mlff_import_options mlff_import_options_default(void);
/* Reads a SchNetPack `best_model` (PaiNN; a zip with a pickle of which nothing is executed), an ANI ensemble in NeuroChem's
 * files (the .info file names the others), an ANI of FeNNol (.fnx), a checkpoint of orb-models (a zip with a pickle, likewise).
 * The last three say their units themselves, ANI its elements too. Fails with
 * MLFF_ERR_USAGE where the energy unit is not known or an option contradicts the file, MLFF_ERR_IO, MLFF_ERR_FORMAT,
 * MLFF_ERR_UNSUPPORTED for a model of another kind, MLFF_ERR_VALUE, MLFF_ERR_ELEMENT, MLFF_ERR_LIMIT, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_model_import(const char *path, const mlff_import_options *options, mlff_model **model_out);

/* One setting of a new model, as text. */
typedef struct mlff_setting {
    const char *name, *value; /* "n_features", "64" */
} mlff_setting;
/* An untrained model with random weights, deterministic in its setting "seed": to measure speed, or to train. Its information
 * says trained = 0, and so must every report that uses it. `architecture` is the name of an architecture, or of a published model
 * ("orb-v3-direct-inf-omat", "fennol-ani2x"), whose sizes are then the defaults; NULL: the architecture of students, "painn".
 * `settings` ends with a name of NULL; NULL: all defaults.
 *   mlff_model_create("painn", (mlff_setting[]){{"n_features", "64"}, {"elements", "H,C,O"}, {0}}, &model);
 * Fails with MLFF_ERR_USAGE for an architecture, a setting or a value that is not known, MLFF_ERR_ELEMENT for elements that the
 * architecture does not have, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_model_create(const char *architecture, const mlff_setting *settings, mlff_model **model_out);
/* Name of an architecture by index: "painn", "ani"; NULL past the end. */
MLFF_API const char *mlff_architecture_name(int index);
/* Name of a setting by index, of an architecture or a published model; NULL past the end or for an unknown one. `default_out` (NULL in it: not
 * set) and `description_out` may be NULL. Static. */
MLFF_API const char *mlff_architecture_setting(const char *architecture, int index, const char **default_out,
                                               const char **description_out);

typedef struct mlff_model_info {
    const char *architecture; /* "painn", "ani" */
    const char *name;         /* file name without folder and suffix, or "painn-untrained" */
    const char *description;  /* one line: "PaiNN, 128 features, 3 layers, …" */
    const char *reference;    /* paper and DOI */
    double cutoff_angstrom;   /* of the neighbor list */
    int n_layers;             /* message passing layers: influence distance = n_layers · cutoff */
    int64_t n_parameters;
    int64_t n_bytes;
    int trained;      /* 0: random weights */
    int conservative; /* 1: forces are the derivative of the energy */
    int has_atom_energies;
    double energy_unit_ev; /* the file's energy unit in eV */
    double length_unit_angstrom;
    int n_elements;                /* 0: unknown */
    const unsigned char *elements; /* [n_elements] atomic numbers, ascending */
    int n_members;                 /* of an ensemble, whose mean the energy is; 1 where it is none */
} mlff_model_info;
/* Strings and arrays are borrowed until the model is destroyed. */
MLFF_API void mlff_model_info_get(const mlff_model *model, mlff_model_info *info_out);
/* Results that evaluators of a model compute. A result that is not among them is refused with MLFF_ERR_UNSUPPORTED. */
enum {
    MLFF_OUTPUT_ENERGIES = 1,
    MLFF_OUTPUT_ATOM_ENERGIES = 2,
    MLFF_OUTPUT_FORCES = 4, /* derivatives of the energy where the model is conservative, else predicted directly */
    MLFF_OUTPUT_STRESS = 8,
    MLFF_OUTPUT_VIRIALS = 16,
    MLFF_OUTPUT_FORCE_ERRORS = 32 /* estimated by the model */
};
MLFF_API unsigned mlff_model_outputs(const mlff_model *model);
/* 1: results depend on charge and spin of a system, which must then be given; 0: they are not read. */
MLFF_API int mlff_model_depends_on_charge(const mlff_model *model);
/* Everything the file's metadata says, key and value by index; NULL past the end, `value_out` is then untouched, and may be NULL.
 * Borrowed until the model is destroyed. */
MLFF_API const char *mlff_model_metadata(const mlff_model *model, int index, const char **value_out);
/* 1: at this temperature forces are extrapolated, as it is more than 1.25 times the highest one of the structures that the model was
 * trained on. `highest_out`, or NULL: that one, K; infinite where the file does not say it. */
MLFF_API int mlff_model_extrapolates_at(const mlff_model *model, double temperature_kelvin, double *highest_out);
/* The shortest distance of two atoms in the structures that the model was trained on, as a part of the sum of their covalent radii, 1 at most; NaN where
 * the file does not say it. */
MLFF_API double mlff_model_nearest(const mlff_model *model);

/* ---- halo ------------------------------------------------------------------------------------ */

/* Exchange of ghost atoms' features between processes, layer by layer. All of them make the same calls in the same order.
 * forward: after layer `layer`, fills the rows of ghosts of each array from their owners; on a GPU also before the reverse pass of each
 * layer, for adjoints, so that `reverse` is not called.
 * reverse: before the reverse pass of layer `layer` is finished, adds the rows of ghosts to their owners' and zeroes them.
 * The time in these functions is no part of a stage on the CPU; on a GPU it is one of the stage beside it.
 * Arrays are [n_atoms][width] of `element_bytes` (4 or 8) bytes, at `location`, on `stream`; their number, and the order of the
 * numbers in a row, are the backend's. Owned rows and ghosts' rows have the same order.
 * any: on a GPU, at the end of each step: sets *flag to 1 if it is 1 in any of the processes. All of them then repeat the step, with
 * all its exchanges and without this call, with numbers of float32's range. NULL: activations beyond the range of halves are an error. */
typedef struct mlff_halo_array {
    void *data;
    int width;
    int element_bytes;
} mlff_halo_array;
typedef struct mlff_halo {
    mlff_status (*forward)(void *context, int layer, const mlff_halo_array *arrays, int n_arrays, mlff_location location,
                           void *stream);
    mlff_status (*reverse)(void *context, int layer, const mlff_halo_array *arrays, int n_arrays, mlff_location location,
                           void *stream);
    void *context;
    mlff_status (*any)(void *context, int *flag);
} mlff_halo;

/* ---- evaluator ------------------------------------------------------------------------------- */

typedef struct mlff_evaluator mlff_evaluator;

typedef struct mlff_evaluator_options {
    size_t struct_size;
    mlff_device device;       /* CPU */
    mlff_precision precision; /* MLFF_PRECISION_DEFAULT */
    double skin_angstrom;     /* of its own neighbor list; 0.5; 0 rebuilds at each call */
    int n_threads;            /* CPU; 0: OMP_NUM_THREADS, or all cores this process may use */
    const char *cpu_path;     /* one of mlff_cpu_paths(); NULL: MLFF_CPU or the best for the precision */
    const mlff_halo *halo;    /* NULL: none. Fixed for the evaluator's life, copied */
    const char *members;      /* of an ensemble, those to run: "0,3"; NULL: all. Read at creation */
    /* Several devices of one kind, in place of `device`; read at creation. One system is divided among them in space, with exact
     * results; the systems of a batch of several are handed out. Batches and results are then on the host. */
    const mlff_device *devices;
    int n_devices; /* 0: `device` alone */
} mlff_evaluator_options;
MLFF_API mlff_evaluator_options mlff_evaluator_options_default(void);

/* `options` may be NULL. The model must outlive the evaluator. Not to be used by two threads at once. Fails with
 * MLFF_ERR_USAGE for options out of range, MLFF_ERR_UNSUPPORTED for a model or precision that the device does not have,
 * MLFF_ERR_DEVICE, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_evaluator_create(const mlff_model *model, const mlff_evaluator_options *options,
                                           mlff_evaluator **evaluator_out);
MLFF_API void mlff_evaluator_destroy(mlff_evaluator *evaluator);

/* Where results go: the caller's arrays; NULL means not wanted, and is not computed where that saves work. */
typedef struct mlff_results {
    double *energies;      /* [n_systems] eV, model offsets included, over owned atoms */
    double *atom_energies; /* [n_atoms] eV, offsets included; 0 for ghosts */
    double *forces;        /* [n_atoms][3] eV/Å, on ghosts too */
    double *stresses;      /* [n_systems][6] eV/Å³; NaN where not all three axes are periodic */
    /* [n_systems][9] eV, -dE/dstrain, also without a cell. Of a model that predicts its stress (MLFF_OUTPUT_STRESS without
     * MLFF_OUTPUT_VIRIALS) -V times that stress, NaN where not all three axes are periodic, in host arrays only. */
    double *virials;
    mlff_location location; /* where all of them live */
    /* Of an ensemble, into host arrays; with any of them the call runs every member alone as well. Deviations are standard
     * deviations over the members (n - 1 in the denominator; NaN for one member): the ensemble's uncertainty. */
    double *member_energies;   /* [n_members][n_systems] eV */
    double *member_forces;     /* [n_members][n_atoms][3] eV/Å */
    double *energy_deviations; /* [n_systems] eV */
    double *force_deviations;  /* [n_atoms][3] eV/Å */
    /* [n_atoms] eV/Å at `location`, of a model that estimates the error of its forces (MLFF_OUTPUT_FORCE_ERRORS): expected mean
     * absolute error of an atom's force components */
    double *force_errors;
    /* [n_atoms][9] eV, into host arrays, of an evaluator on one CPU and a model with MLFF_OUTPUT_VIRIALS: a pair's part of the virial,
     * half to each of its two atoms, symmetric; on ghosts too. Their sum is the symmetric part of the system's virial */
    double *atom_virials;
} mlff_results;

/* Energy, forces and stress of each system of the batch. After the first calls of a size no memory is allocated. After a failure the
 * arrays of `results` may hold anything. Fails with
 * MLFF_ERR_ELEMENT for an element that the model does not know, MLFF_ERR_VALUE for positions, cells or results that are not finite,
 * two atoms at one position or a periodic axis without a cell vector, MLFF_ERR_UNSUPPORTED for a result that the model does not
 * have, MLFF_ERR_USAGE, MLFF_ERR_LIMIT, MLFF_ERR_MEMORY, MLFF_ERR_DEVICE, and as the halo functions do. */
MLFF_API mlff_status mlff_evaluator_compute(mlff_evaluator *evaluator, const mlff_batch *batch, const mlff_results *results);

/* mlff_dynamics_create with the evaluator's forces. Where the evaluator runs on a GPU that can integrate its model, the atoms stay
 * there: a run of steps (mlff_dynamics_run) leaves the GPU only at its end, and neither evaluator nor system may be used by others
 * meanwhile. The same holds for several GPUs, where each one's thread integrates its own atoms. Where a GPU
 * cannot integrate, the host does, with the evaluator's forces, and a warning says so; a warning says as well if the forces are not
 * the derivative of the energy. `forces` with its context replaces the evaluator's as the force function of steps that the host
 * integrates (at constant pressure call mlff_dynamics_virial_set as well); NULL: the evaluator's. Fails with
 * MLFF_ERR_UNSUPPORTED for a model without forces, and as mlff_dynamics_create and mlff_evaluator_compute. */
MLFF_API mlff_status mlff_dynamics_create_on(mlff_evaluator *evaluator, const mlff_dynamics_options *options, mlff_system *system,
                                             mlff_force_function forces, void *context, mlff_dynamics **dynamics_out);
/* As mlff_dynamics_restore, of dynamics with this evaluator's forces. Where the first step would take the file's forces, fails as well with
 * MLFF_ERR_VALUE if the energy in the file differs by more than 0.1 eV an atom from the evaluator's at the positions there: they are of
 * another model. The state is then the file's, without its forces. Warns where the forces differ by more than 0.5 % of their rms. Fails
 * as mlff_evaluator_compute too. */
MLFF_API mlff_status mlff_dynamics_restore_on(mlff_evaluator *evaluator, mlff_dynamics *dynamics, const char *path);
/* Device that integrates; the first of several GPUs. */
MLFF_API mlff_device mlff_dynamics_device(const mlff_dynamics *dynamics);

/* Simulations that make their steps together, with one computation of forces a step for all of them: copies of a system with seeds or
 * temperatures of their own, or different systems. Where the evaluator's GPU can integrate its model, all of them stay there. */
typedef struct mlff_replicas mlff_replicas;
/* options[k] and systems[k], none NULL, are those of replica k of n; all have one ensemble and timestep. The systems are integrated in
 * place: borrowed, and no two are one. Fails with MLFF_ERR_USAGE for other options, MLFF_ERR_UNSUPPORTED for a model without
 * forces, and as mlff_dynamics_create and mlff_evaluator_compute. */
MLFF_API mlff_status mlff_replicas_create(mlff_evaluator *evaluator, const mlff_dynamics_options *const *options,
                                          mlff_system *const *systems, int n, mlff_replicas **replicas_out);
/* n_steps of all that run. A replica that fails or explodes ends, at its last good step (on a GPU, one that explodes: where this run
 * began), and the others go on; a warning says which and why. times_ns: as mlff_dynamics_run. Fails with MLFF_ERR_UNSTABLE once
 * none is left, MLFF_ERR_USAGE, MLFF_ERR_DEVICE, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_replicas_run(mlff_replicas *replicas, int64_t n_steps, double *times_ns);
/* One of them, whose state can be asked for, saved and restored; not to be run or destroyed. NULL beyond the last. */
MLFF_API mlff_dynamics *mlff_replicas_dynamics(mlff_replicas *replicas, int replica);
/* Why it ended; "" while it runs. Borrowed. */
MLFF_API const char *mlff_replicas_error(const mlff_replicas *replicas, int replica);
/* Device that integrates. */
MLFF_API mlff_device mlff_replicas_device(const mlff_replicas *replicas);
MLFF_API void mlff_replicas_destroy(mlff_replicas *replicas);

/* Relaxes the structures of a queue, many at once, with one computation of forces a step for all of them. Fixed atoms stay. A structure
 * whose forces cannot be computed, or whose cell cannot relax, ends as MLFF_RELAX_FAILED, and the others go on. `options` may be NULL.
 * Warns if the forces are not the derivative of the energy. Fails with MLFF_ERR_USAGE for options out of range, MLFF_ERR_UNSUPPORTED for a
 * model without forces (for a cell that relaxes, stress), MLFF_ERR_MEMORY, MLFF_ERR_DEVICE, and as `next` and `done` do. */
MLFF_API mlff_status mlff_relax(mlff_evaluator *evaluator, const mlff_relax_options *options, const mlff_relax_queue *queue);

/* Harmonic vibrations around a structure, which should be a minimum; of a crystal those of its cell as it is (the Γ point). */
typedef struct mlff_vibrations {
    int n_modes;           /* 3 × atoms that may move, less n_rigid */
    double *wavenumbers;   /* [n_modes] 1/cm, ascending; of an imaginary frequency minus its magnitude */
    double *displacements; /* [n_modes][n_atoms][3] each of length 1 */
    int n_rigid; /* translations and rotations of the whole, left out: 6, of a linear molecule 5, of a chain 4, of a crystal 3 */
    double rigid_wavenumbers[6]; /* [n_rigid] 1/cm, which exact forces at a minimum make 0; minus the magnitude if imaginary */
    double zero_point_energy;    /* eV, half the sum over the real frequencies */
    double largest_force;        /* eV/Å, on an atom that may move */
} mlff_vibrations;
typedef struct mlff_vibrations_options {
    size_t struct_size;
    double step; /* 0.005: Å, to each side */
    /* NULL, or called before computations of forces and, once all are done, as the modes are found; not 0 ends with
     * MLFF_ERR_INTERRUPTED. */
    int (*progress)(void *context, int64_t n_done, int64_t n_computations);
    void *progress_context;
} mlff_vibrations_options;
MLFF_API mlff_vibrations_options mlff_vibrations_options_default(void);
/* By central differences of the forces, `step` to each side, 12 computations for each atom that may move, half of them along the modes
 * with twice the step. Fixed atoms do not move, and then nothing is left out. Warns of wavenumbers that depend on the step, as where the
 * energy has a kink, and if the forces are not the derivative of the energy: their derivatives are made symmetric. `options` may be NULL.
 * Free with mlff_vibrations_free. Fails with MLFF_ERR_LIMIT for more than 400 atoms that may move,
 * MLFF_ERR_USAGE for a step that is not between 1e-6 and 0.5 or if no atom may move, MLFF_ERR_UNSUPPORTED for a model without forces,
 * MLFF_ERR_INTERRUPTED, MLFF_ERR_MEMORY, and as mlff_evaluator_compute. */
MLFF_API mlff_status mlff_vibrations_compute(mlff_evaluator *evaluator, const mlff_system *system,
                                             const mlff_vibrations_options *options, mlff_vibrations *vibrations_out);
MLFF_API void mlff_vibrations_free(mlff_vibrations *vibrations);

/* A named piece of the step. Phases: "forward", "backward", and "" for what stands outside both. */
typedef struct mlff_stage {
    const char *name; /* "neighbors", "geometry", "radial", "message", "update", "readout", … */
    const char *phase;
    int layer;            /* -1 where not of a layer */
    const char *includes; /* what a fused stage holds beside its name, or "" */
} mlff_stage;
/* The fixed list of stages of this evaluator. Borrowed until it is destroyed. */
MLFF_API const mlff_stage *mlff_evaluator_stages(const mlff_evaluator *evaluator, int *n_out);
/* Size of a batch, as the work of a stage depends on it. */
typedef struct mlff_work_size {
    double n_systems, n_atoms;
    double n_pairs; /* directed, within the cutoff */
} mlff_work_size;
/* Least work of a stage that the model's equations need; an implementation may do more. */
typedef struct mlff_stage_work {
    double flops;          /* a multiply-add counts as two */
    double bytes;          /* read and written */
    double resident_bytes; /* of the arrays involved: which level of cache they fit into */
} mlff_stage_work;
/* Work of a stage, by its index in the list of stages, for a batch of this size. 1: described; 0: not, `work_out` is zeros. */
MLFF_API int mlff_evaluator_stage_work(const mlff_evaluator *evaluator, int stage, const mlff_work_size *size,
                                       mlff_stage_work *work_out);
/* What a stage computes, and what makes it faster: one or two sentences; "" where nothing is known. Static. */
MLFF_API const char *mlff_evaluator_stage_advice(const mlff_evaluator *evaluator, int stage);
/* The stage that a GPU kernel of this name belongs to: "forward/message"; "" for a kernel that runs between steps; NULL for one
 * that is not the evaluator's. `kernel` as profilers print it, with or without template arguments. Static. */
MLFF_API const char *mlff_evaluator_kernel_stage(const mlff_evaluator *evaluator, const char *kernel);
/* Switches the stages' clocks on or off (off at creation; off costs nothing). Fails with MLFF_ERR_MEMORY, MLFF_ERR_DEVICE. */
MLFF_API mlff_status mlff_evaluator_stage_clock_set(mlff_evaluator *evaluator, int on);
/* Time of each stage in the last compute, ns, [n_stages]; zeros if the clocks are off. */
MLFF_API void mlff_evaluator_stage_times(const mlff_evaluator *evaluator, double *time_ns);
/* When a stage of the last compute ran, by the monotonic clock; a stage may run several times. */
typedef struct mlff_stage_span {
    int64_t start_ns, end_ns;
    int stage; /* index in the list of stages */
} mlff_stage_span;
/* In order of time; the number of them, at most `capacity`. 0 where the clocks are off or, as on a GPU, know durations alone. */
MLFF_API int mlff_evaluator_stage_spans(const mlff_evaluator *evaluator, mlff_stage_span *spans, int capacity);

typedef struct mlff_evaluator_info {
    mlff_device device;
    mlff_precision precision;
    const char *cpu_path; /* "" on a GPU */
    int n_threads;
    int64_t n_computes;
    int64_t n_pairs;    /* of the last compute, directed, within the cutoff */
    int64_t n_rebuilds; /* of a neighbor list that is kept, so far; 0 where a GPU searches all pairs in each step */
    int64_t n_growths;  /* times buffers grew, so far */
    int64_t host_bytes; /* held by this evaluator */
    int64_t device_bytes;
    int n_members; /* of an ensemble that run; 1 where the model is none */
    /* Pairs of the last compute, from owned atoms and directed, nearer than 0.95 of the nearest of the training structures (mlff_model_nearest),
     * so that forces are extrapolated; where the model's file does not say that, pairs within its core repulsion. 0 for a model with neither;
     * -1: not counted (on GPUs, several devices). */
    int64_t n_near_pairs;
} mlff_evaluator_info;
MLFF_API void mlff_evaluator_info_get(const mlff_evaluator *evaluator, mlff_evaluator_info *info_out);

/* A device's part of a system that is divided among several. Times are those of its thread, ns, summed over all computations of one
 * system so far. On a GPU the exchange runs beside the host: its time there is part of compute_ns. */
typedef struct mlff_domain_info {
    mlff_device device;
    int n_owned, n_ghosts; /* atoms in the last computation */
    double compute_ns;     /* neighbors, layers, forces, integration */
    double exchange_ns;    /* copies and sums of ghosts' features, gathering of results */
    double wait_ns;        /* until other domains were ready, which may have more atoms or delayed threads */
} mlff_domain_info;
/* Domains of the last computation of one system; their number, of which at most `capacity` are filled (0: none, and `domains` may be
 * NULL). 0 on one device. */
MLFF_API int mlff_evaluator_domains(const mlff_evaluator *evaluator, mlff_domain_info *domains, int capacity);
/* mlff_evaluator_stage_times of a domain, in the last computation of one system; the last stage, "exchange", holds its waits for other
 * domains. mlff_evaluator_stage_times of such an evaluator is of domain 0. Fails with MLFF_ERR_USAGE. */
MLFF_API mlff_status mlff_evaluator_domain_stage_times(const mlff_evaluator *evaluator, int domain, double *time_ns);

/* Sizes of the public structs in this build, by name ("mlff_batch"); 0 if unknown. For bindings. */
MLFF_API size_t mlff_abi_size(const char *struct_name);

#ifdef __cplusplus
}
#endif
#endif
