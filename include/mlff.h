/* SPDX-License-Identifier: MIT */
/* mlff.h: devices, models and evaluators: energies, forces and stress of atoms.
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

#ifdef __cplusplus
extern "C" {
#endif

/* ---- device ---------------------------------------------------------------------------------- */

typedef enum mlff_device_kind { MLFF_CPU = 0, MLFF_CUDA = 1 } mlff_device_kind;
typedef struct mlff_device {
    mlff_device_kind kind;
    int index;
} mlff_device;
/* "auto" (a GPU if one works, else the CPU with a warning), "cpu", "cuda", "cuda:1". */
MLFF_API mlff_status mlff_device_parse(const char *text, mlff_device *device_out);
/* "cpu" or "cuda:0" into text of at least 16 bytes. */
MLFF_API void mlff_device_text(mlff_device device, char *text, size_t text_bytes);

/* Working devices of a kind: 1 for the CPU; 0 for CUDA where no GPU works (mlff_device_problem says why). */
MLFF_API int mlff_device_count(mlff_device_kind kind);
/* Why there is no GPU, one line; "" if there is one. Borrowed until this thread's next failure. */
MLFF_API const char *mlff_device_problem(void);

typedef struct mlff_device_info {
    size_t struct_size;                     /* set by the caller; no more than this is written */
    char name[128];                         /* "NVIDIA H200"; the processor's name for the CPU */
    int capability_major, capability_minor; /* 9, 0; 0 for the CPU */
    int64_t memory_bytes;
    int n_multiprocessors;               /* CPU: cores this process may use */
    double clock_mhz, memory_clock_mhz;  /* highest; 0 where unknown */
    int64_t l2_bytes;                    /* 0 where unknown */
    int shared_memory_bytes;             /* a block can have */
    int driver_version, runtime_version; /* 13000 for CUDA 13.0; 0 for the CPU */
    int driver_version_required;         /* oldest driver this build runs on */
    char pci[32];                        /* "0000:3b:00.0", or "" */
} mlff_device_info;
MLFF_API mlff_status mlff_device_info_get(mlff_device device, mlff_device_info *info_out);

/* Bytes. `allocated` and its peak: held by this process through this library; `reserved`: taken from the driver for it.
 * CPU: allocated is this library's heap, reserved the resident set of the whole process, and peak the high-water mark of that
 * resident set, not of allocated. */
typedef struct mlff_device_memory {
    int64_t allocated, reserved, peak, free, total;
} mlff_device_memory;
MLFF_API mlff_status mlff_device_memory_get(mlff_device device, mlff_device_memory *memory_out);
/* The peak counts from what is allocated now. */
MLFF_API mlff_status mlff_device_peak_reset(mlff_device device);
/* What a piece of code takes and leaves. begin: the peak counts from here, and `before_out` is what it starts from. end:
 * waits for the device; `after_out` (or NULL), with the peak in between, and in `grown_out` the bytes that stayed: of what is
 * allocated on a GPU, of the resident set on the CPU. A leak is growth that comes again with each repetition and exceeds what
 * allocators keep for themselves; 10 MB is a usual tolerance. Scopes of one device that overlap share one peak. */
MLFF_API mlff_status mlff_memory_scope_begin(mlff_device device, mlff_device_memory *before_out);
MLFF_API mlff_status mlff_memory_scope_end(mlff_device device, const mlff_device_memory *before, mlff_device_memory *after_out,
                                           int64_t *grown_out);
/* Gives memory that is reserved but not allocated back to the driver. */
MLFF_API mlff_status mlff_device_cache_empty(mlff_device device);
/* Waits for all work of the device. */
MLFF_API mlff_status mlff_device_synchronize(mlff_device device);
/* Context, clocks and first launch out of the way: the next timed call is representative. */
MLFF_API mlff_status mlff_device_warm_up(mlff_device device);

/* Streams and events; on the CPU a stream is nothing and an event is a clock reading. */
MLFF_API mlff_status mlff_stream_create(mlff_device device, void **stream_out);
MLFF_API mlff_status mlff_stream_synchronize(mlff_device device, void *stream);
MLFF_API void mlff_stream_destroy(mlff_device device, void *stream);
MLFF_API mlff_status mlff_event_create(mlff_device device, void **event_out);
MLFF_API mlff_status mlff_event_record(mlff_device device, void *event, void *stream);
/* Waits for `end`; ns between the two. */
MLFF_API mlff_status mlff_event_elapsed(mlff_device device, void *start, void *end, double *time_ns_out);
MLFF_API void mlff_event_destroy(mlff_device device, void *event);

/* Memory of a device (host memory for the CPU), and copies to, from and inside it; a copy waits. */
MLFF_API mlff_status mlff_device_allocate(mlff_device device, size_t bytes, void **memory_out);
MLFF_API void mlff_device_release(mlff_device device, void *memory);
MLFF_API mlff_status mlff_device_copy(mlff_device device, void *to, const void *from, size_t bytes);

/* Fast paths of the CPU that this build has and this machine runs, best first, NULL-terminated: of
 * "avx512", "avx2", "portable". Static. The environment variable MLFF_CPU forces one. */
MLFF_API const char *const *mlff_cpu_paths(void);

/* ---- model ----------------------------------------------------------------------------------- */

typedef struct mlff_model mlff_model;

typedef enum mlff_precision {
    MLFF_PRECISION_DEFAULT = 0, /* float32 */
    MLFF_FLOAT32 = 1,
    MLFF_FLOAT64 = 2, /* the reference */
    /* Fast modes of GPUs: products of matrices from operands of so many bits, sums in float32. */
    MLFF_TF32 = 3, /* 11 significant bits */
    MLFF_BF16 = 4  /* 8 */
} mlff_precision;

/* Loads a model file (safetensors, written by mlff_model_save). What is no path of a file and has no "/" is a name:
 * NAME.safetensors in the folders of MLFF_MODEL_PATH (separated by ":"), then in $XDG_DATA_HOME/mlff/models or
 * ~/.local/share/mlff/models. "fennol-ani2x" is a name whose absence is explained. */
MLFF_API mlff_status mlff_model_load(const char *path, mlff_model **model_out);
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
/* Reads a SchNetPack `best_model` (PaiNN; a zip with a pickle of which nothing is executed), an ANI ensemble in
 * NeuroChem's files (the .info file names the others), an ANI of FeNNol (.fnx). The last two say their unit themselves. */
MLFF_API mlff_status mlff_model_import(const char *path, const mlff_import_options *options, mlff_model **model_out);

/* One setting of a new model, as text. */
typedef struct mlff_setting {
    const char *name, *value; /* "n_features", "64" */
} mlff_setting;
/* An untrained model with random weights, deterministic in its setting "seed": to measure speed, or to train. Its information
 * says trained = 0, and so must every report that uses it. `settings` ends with a name of NULL; NULL: all defaults.
 *   mlff_model_create("painn", (mlff_setting[]){{"n_features", "64"}, {"elements", "H,C,O"}, {0}}, &model);
 * Fails with MLFF_ERR_USAGE for an architecture, a setting or a value that is not known, MLFF_ERR_ELEMENT for elements that the
 * architecture does not have, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_model_create(const char *architecture, const mlff_setting *settings, mlff_model **model_out);
/* Name of an architecture by index: "painn", "ani"; NULL past the end. */
MLFF_API const char *mlff_architecture_name(int index);
/* Name of an architecture's setting by index; NULL past the end or for an unknown architecture. `default_out` (NULL in it: not
 * set) and `description_out` may be NULL. Static. */
MLFF_API const char *mlff_architecture_setting(const char *architecture, int index, const char **default_out,
                                               const char **description_out);

typedef struct mlff_model_info {
    const char *architecture; /* "painn", "ani" */
    const char *name;         /* file name without folder and suffix, or "painn-untrained" */
    const char *description;  /* one line: "PaiNN, 128 features, 3 layers, …" */
    const char *reference;    /* paper and DOI */
    double cutoff_angstrom;   /* of the neighbour list */
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
    MLFF_OUTPUT_VIRIALS = 16
};
MLFF_API unsigned mlff_model_outputs(const mlff_model *model);
/* Everything the file's metadata says, key and value by index; NULL past the end. Borrowed. */
MLFF_API const char *mlff_model_metadata(const mlff_model *model, int index, const char **value_out);

/* ---- halo ------------------------------------------------------------------------------------ */

/* Exchange of ghost atoms' features between processes, layer by layer (architecture page "neighbours").
 * forward: after layer `layer` fill the rows of ghosts of each array from their owners.
 * reverse: before the reverse pass of layer `layer` is finished, add the rows of ghosts to their owners' and zero them.
 * Arrays are [n_atoms][width] of `element_bytes` (4 or 8) bytes, at `location`, on `stream`; how many there are, and in which
 * order a row's numbers stand, is the backend's affair. Owned rows and ghosts' rows have the same order. */
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
} mlff_halo;

/* ---- evaluator ------------------------------------------------------------------------------- */

typedef struct mlff_evaluator mlff_evaluator;

typedef struct mlff_evaluator_options {
    size_t struct_size;
    mlff_device device;       /* CPU */
    mlff_precision precision; /* MLFF_PRECISION_DEFAULT */
    double skin_angstrom;     /* of its own neighbour list; 0.5; 0 rebuilds at each call */
    int n_threads;            /* CPU; 0: all cores this process may use */
    const char *cpu_path;     /* "avx512", "avx2", "portable"; NULL: MLFF_CPU or the best */
    const mlff_halo *halo;    /* NULL: none. Fixed for the evaluator's life, copied */
    const char *members;      /* of an ensemble, those to run: "0,3"; NULL: all. Read at creation */
} mlff_evaluator_options;
MLFF_API mlff_evaluator_options mlff_evaluator_options_default(void);

/* `options` may be NULL. The model must outlive the evaluator. Not to be used by two threads at once. */
MLFF_API mlff_status mlff_evaluator_create(const mlff_model *model, const mlff_evaluator_options *options,
                                           mlff_evaluator **evaluator_out);
MLFF_API void mlff_evaluator_destroy(mlff_evaluator *evaluator);

/* Where results go: the caller's arrays; NULL means not wanted, and is not computed where that saves work. */
typedef struct mlff_results {
    double *energies;       /* [n_systems] eV, model offsets included, over owned atoms */
    double *atom_energies;  /* [n_atoms] eV, offsets included; 0 for ghosts */
    double *forces;         /* [n_atoms][3] eV/Å, on ghosts too */
    double *stresses;       /* [n_systems][6] eV/Å³; NaN where not all three axes are periodic */
    double *virials;        /* [n_systems][9] eV, -dE/dstrain, also without a cell */
    mlff_location location; /* where all of them live */
    /* Of an ensemble, into host arrays; each makes the call run every member by itself once more. Deviations are standard
     * deviations over the members (n - 1 in the denominator; NaN for one member): the ensemble's uncertainty. */
    double *member_energies;   /* [n_members][n_systems] eV */
    double *member_forces;     /* [n_members][n_atoms][3] eV/Å */
    double *energy_deviations; /* [n_systems] eV */
    double *force_deviations;  /* [n_atoms][3] eV/Å */
} mlff_results;

/* Energy, forces and stress of each system of the batch. Fails with MLFF_ERR_ELEMENT for an element the model
 * does not know, MLFF_ERR_VALUE for positions or cells that are not finite, two atoms on one point, a periodic
 * axis without a cell vector. After the first calls of a size no memory is allocated. */
MLFF_API mlff_status mlff_evaluator_compute(mlff_evaluator *evaluator, const mlff_batch *batch, const mlff_results *results);

/* mlff_dynamics_create with the evaluator's forces. Where the evaluator runs on a GPU that can integrate its model, the atoms
 * stay there: a run of steps (mlff_dynamics_run) leaves the GPU at its end only, and neither evaluator nor system are to be
 * touched by others meanwhile. Where it cannot, the host makes the steps with the evaluator's forces, and a warning says so.
 * `forces` with its context replaces the evaluator's as the force function of steps that the host makes; NULL: the evaluator's. */
MLFF_API mlff_status mlff_dynamics_create_on(mlff_evaluator *evaluator, const mlff_dynamics_options *options, mlff_system *system,
                                             mlff_force_function forces, void *context, mlff_dynamics **dynamics_out);
/* Who makes the steps. */
MLFF_API mlff_device mlff_dynamics_device(const mlff_dynamics *dynamics);

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
/* What bounds a stage, and what makes it faster: one or two sentences; "" where nothing is known. Static. */
MLFF_API const char *mlff_evaluator_stage_advice(const mlff_evaluator *evaluator, int stage);
/* The stage that a GPU kernel of this name belongs to: "forward/message"; "" for a kernel that runs between steps; NULL for one
 * that is not the evaluator's. `kernel` as profilers print it, with or without template arguments. Static. */
MLFF_API const char *mlff_evaluator_kernel_stage(const mlff_evaluator *evaluator, const char *kernel);
/* Switches the stages' clocks on or off (off at creation; off costs nothing). */
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
    int64_t n_rebuilds; /* of a neighbour list that is kept, so far; 0 where a GPU looks at all pairs in each step */
    int64_t n_growths;  /* times buffers grew, so far */
    int64_t host_bytes; /* held by this evaluator */
    int64_t device_bytes;
    int n_members; /* of an ensemble that run; 1 where the model is none */
} mlff_evaluator_info;
MLFF_API void mlff_evaluator_info_get(const mlff_evaluator *evaluator, mlff_evaluator_info *info_out);

/* Sizes of the public structs in this build, by name ("mlff_batch"); 0 if unknown. For bindings. */
MLFF_API size_t mlff_abi_size(const char *struct_name);

#ifdef __cplusplus
}
#endif
#endif
