/* SPDX-License-Identifier: MIT */
/* model.h: what an architecture, a folder beside this file, provides, and the model files, graphs and backends it works with.
 *
 * Data flow of a call on the CPU:
 *   batch ─ evaluator_cpu.c ─> graph (pairs, edge vectors) ─ backend ─> outputs in model units
 *         ─ assemble.c ─> energies, forces, virials, stress in eV and Å
 * On a GPU the plugin takes the whole batch and does all of it on the device (evaluator_gpu.c, device/device.h). */
#ifndef MODEL_H
#define MODEL_H

#include "base/base.h"
#include "mlff.h"
#include "model/stages.h"
#include "model/weights/settings.h"

typedef struct model_architecture model_architecture;
struct train_backend; /* model/train_backend.h */
struct train_backend_options;
struct nn_kernels; /* nn/nn.h */

/* A named array of a model file, float32 or float64, little-endian as stored. */
typedef struct model_tensor {
    char *name;
    int is_double;
    int n_dimensions;
    int64_t shape[4];
    int64_t n_elements;
    void *data; /* float or double [n_elements] */
} model_tensor;

/* Contents of a model file: tensors and string metadata. Importers, constructors of untrained models and the
 * safetensors reader all produce it; weights.c reads and writes it. */
typedef struct model_weights {
    model_tensor *tensors;
    size_t n_tensors, tensor_capacity;
    char **keys, **values; /* metadata */
    size_t n_keys, key_capacity;
} model_weights;

/* The metadata `format` of a checkpoint of a training (train/fitting/checkpoint.c), which is no model. */
#define MODEL_CHECKPOINT_FORMAT "mlff-checkpoint"

void weights_free(model_weights *weights);
/* Adds an empty (zero) tensor and returns it, or NULL (error text set). */
model_tensor *weights_add(model_weights *weights, const char *name, int is_double, int n_dimensions, const int64_t *shape);
mlff_status weights_set(model_weights *weights, const char *key, const char *format, ...) MLFF_PRINTF(3, 4);
/* Takes a key out of the metadata, if it is there. */
void weights_remove(model_weights *weights, const char *key);
/* Adds everything of `from` to the empty `to`. On failure `to` holds a part; the caller frees it. */
mlff_status weights_copy(const model_weights *from, model_weights *to);
const model_tensor *weights_find(const model_weights *weights, const char *name);
const char *weights_get(const model_weights *weights, const char *key); /* NULL if absent */
bool weights_is_true(const model_weights *weights, const char *key);
/* safetensors: 8-byte little-endian length, JSON header, raw data. Strict; every number must be finite. */
mlff_status weights_read(const char *path, model_weights *weights_out);
/* The same from memory; `path` only names it in errors. */
mlff_status weights_parse(const char *bytes, size_t length, const char *path, model_weights *weights_out);
/* Fails on the first NaN or infinity. */
mlff_status weights_check_finite(const model_weights *weights, const char *path);
bool weights_utf8_valid(const char *bytes, size_t length);
mlff_status weights_write(const model_weights *weights, const char *path);

/* What a backend can compute. A model has MODEL_ATOM_ENERGY or MODEL_SYSTEM_ENERGY, and for forces MODEL_PAIR_GRADIENT
 * (forces are the derivative of the energy) or MODEL_ATOM_FORCE (predicted directly; not conservative). */
enum {
    MODEL_ATOM_ENERGY = 1,   /* an energy of each atom; the system's energy is their sum */
    MODEL_SYSTEM_ENERGY = 2, /* the energy of each system, without energies of atoms */
    MODEL_PAIR_GRADIENT = 4, /* dE/dr of each pair, from which forces, virials and stress follow */
    MODEL_ATOM_FORCE = 8,
    MODEL_STRESS = 16,     /* predicted directly */
    MODEL_FORCE_ERROR = 32 /* estimated error of each atom's force */
};

struct mlff_model {
    const model_architecture *architecture;
    model_weights file; /* as loaded; saved back unchanged */
    char *name, *description;
    double cutoff; /* Å */
    int n_layers;
    int n_members; /* of an ensemble; 1 where it is none */
    int64_t n_parameters;
    double energy_unit;    /* eV per model unit */
    double length_unit;    /* Å per model unit */
    double core_repulsion; /* onset, as a part of the sum of covalent radii; 0: none (evaluator/core_repulsion.h) */
    double core_radius[MLFF_MAX_ATOMIC_NUMBER + 1]; /* Å, onset times covalent radius: a pair repels below the sum of two */
    bool trained;
    unsigned outputs; /* MODEL_ATOM_ENERGY | … */
    int n_elements;   /* 0: unknown; every element with an embedding is accepted */
    unsigned char elements[MLFF_MAX_ATOMIC_NUMBER];
    bool known[MLFF_MAX_ATOMIC_NUMBER + 1];    /* by atomic number */
    double offset[MLFF_MAX_ATOMIC_NUMBER + 1]; /* eV added to an atom's energy, by atomic number (mean and atomref) */
    void *parameters;                          /* the architecture's own, from `file` */
};

static inline bool model_is_conservative(const mlff_model *model)
{
    return (model->outputs & MODEL_PAIR_GRADIENT) != 0;
}

/* The graph a CPU backend works on; arrays are borrowed for the call. Vectors are in the model's length unit. */
typedef struct model_graph {
    int n_systems, n_atoms, n_pairs;
    const int32_t *first_atom;  /* [n_systems + 1] */
    const int32_t *species;     /* [n_atoms] */
    const int32_t *first;       /* [n_atoms + 1] */
    const int32_t *neighbor;    /* [n_pairs] */
    const int32_t *reverse;     /* [n_pairs], or NULL: the list is not symmetric, scatter */
    const double *vectors;      /* [n_pairs][3] from center to neighbor */
    const unsigned char *owned; /* [n_atoms] or NULL */
    const mlff_halo *halo;      /* or NULL */
    const double *positions;    /* [n_atoms][3] Å */
    const double *cells;        /* [n_systems][9] Å, or NULL */
    const double *charges;      /* [n_systems] e, NaN where not given, or NULL */
    const double *spins;        /* [n_systems] multiplicity, NaN where not given, or NULL */
} model_graph;

/* Where a backend writes, in model units; NULL: not wanted. Only outputs that the model has are asked for. */
typedef struct model_outputs {
    double *atom_energy;   /* [n_atoms] without offsets; 0 for ghosts */
    double *system_energy; /* [n_systems] without offsets */
    double *pair_gradient; /* [n_pairs][3] dE/dr */
    double *atom_force;    /* [n_atoms][3] 0 for ghosts */
    double *stress;        /* [n_systems][6] xx yy zz yz xz xy; unused where not all axes are periodic */
    double *force_error;   /* [n_atoms] expected error of a force component */
} model_outputs;

/* Clocks of the stages: stage_end(clock, k) adds the time since the last mark to stage k. Called by one thread. */
enum { STAGE_SPANS_MAX = 128 };
typedef struct stage_clock {
    bool on;
    int n_spans; /* of this compute; the first ones are kept */
    int64_t mark;
    double *time_ns; /* [n_stages] of this compute */
    mlff_stage_span spans[STAGE_SPANS_MAX];
} stage_clock;
static inline void stage_begin(stage_clock *clock)
{
    if (clock->on) clock->mark = base_clock_ns();
}
static inline void stage_end(stage_clock *clock, int stage)
{
    if (clock->on) {
        int64_t now = base_clock_ns();
        clock->time_ns[stage] += (double)(now - clock->mark);
        if (clock->n_spans < STAGE_SPANS_MAX) clock->spans[clock->n_spans++] = (mlff_stage_span){clock->mark, now, stage};
        clock->mark = now;
    }
}

/* One model on the CPU in one precision: made once, with all its buffers. */
typedef struct model_backend model_backend;
struct model_backend {
    const mlff_stage *stages; /* between the evaluator's own first (neighbors, geometry) and last (forces, stress) */
    int n_stages;
    /* Fills the outputs that are not NULL; the energy always is wanted. `stage` is the index of the backend's first
     * stage on the clock. */
    mlff_status (*compute)(model_backend *backend, const model_graph *graph, const model_outputs *outputs, stage_clock *clock,
                           int stage);
    void (*info)(const model_backend *backend, int64_t *bytes, int64_t *n_growths);
    void (*destroy)(model_backend *backend);
    int n_members; /* of an ensemble that this backend runs; 0 where the model is not an ensemble */
    /* Ensembles: compute() runs this member, or, with −1, their mean. NULL where the model is not an ensemble. */
    void (*select_member)(model_backend *backend, int member);
};

typedef struct cpu_options {
    mlff_precision precision; /* MLFF_BF16 only of an architecture with cpu_bfloat16 */
    int n_threads;
    const char *path; /* "avx512" … */
    const mlff_halo *halo;
    const int *members; /* [n_members] of an ensemble, to be run; n_members 0: all */
    int n_members;
} cpu_options;

/* Products in the precision wanted, on the path; MLFF_ERR_UNSUPPORTED where it has none such. */
mlff_status cpu_products(const cpu_options *options, const struct nn_kernels **nn_out);

/* One row of the registry. */
/* A model whose weights are published: it is found by its names in the search path of models, and made with random weights by them. */
typedef struct model_published {
    const char *names[4];         /* all mean this model: a user may give any, and its file may have any, with its suffix */
    const char *source;           /* where its weights can be had and how they are installed, for an error */
    const mlff_setting *settings; /* of its sizes, where they are not the architecture's defaults; NULL: none */
} model_published;

struct model_architecture {
    const char *name, *title, *reference;
    size_t parameters_bytes; /* of model->parameters, checked against the plugin's */
    bool cpu_bfloat16;       /* runs with products of bfloat16 on the CPU too, where the processor has them */
    bool ensemble;           /* its models have members (n_members, possibly 1) that can be run one by one */
    /* Checks tensors and metadata and fills the model's fields; model->file is filled. */
    mlff_status (*load)(mlff_model *model);
    mlff_status (*create_cpu)(const mlff_model *model, const cpu_options *options, model_backend **backend_out);
    /* Trains on a device (model/train_backend.h); NULL: the architecture cannot be trained. */
    mlff_status (*create_train_backend)(const mlff_model *model, const struct train_backend_options *options,
                                        struct train_backend **backend_out);
    /* Puts the elements' own energies, eV by atomic number, into a model file; NULL where the architecture has none. */
    mlff_status (*set_shifts)(model_weights *weights, const double shifts[MLFF_MAX_ATOMIC_NUMBER + 1]);
    void (*destroy)(mlff_model *model); /* frees model->parameters */
    /* Untrained models: a table of settings, the struct they fill, and the weights made from it. NULL: none can be created. */
    const model_setting *settings;
    size_t options_bytes;
    mlff_status (*create)(const void *options, model_weights *weights_out);
    const model_stage *stages;        /* ends with a name of NULL; NULL: none is described */
    const model_published *published; /* ends with a first name of NULL; NULL: none */
};
enum { MODEL_MAX_ARCHITECTURES = 16 };
const model_architecture *model_architecture_find(const char *name); /* NULL: unknown */
/* The architecture of students: the first one that can be made and trained. */
const model_architecture *model_architecture_of_students(void);
/* A published model by any of its names, and its architecture; NULL: there is none of this name. */
const model_published *model_published_find(const char *name, const model_architecture **architecture_out);
/* Adds an architecture, which is borrowed for ever; before other threads use the library. Fails with MLFF_ERR_USAGE if its
 * name is taken, MLFF_ERR_LIMIT if there are too many. */
mlff_status model_architecture_register(const model_architecture *architecture);
/* Takes ownership of `weights` (also on failure), finds the architecture in the metadata and loads the model. It is named
 * after `path`, without folder and suffix. */
mlff_status model_from_weights(model_weights *weights, const char *path, mlff_model **model_out);

/* Path of a model file: `name` itself if such a file exists or it has a folder, else the file of this name in the search
 * path of models (model_path.c). Freed with base_free. */
mlff_status model_path_find(const char *name, char **path_out);

/* Metadata of a model being loaded, checked; errors name the model and the key. `choices` ends with NULL. */
mlff_status model_metadata_number(const mlff_model *model, const char *key, double least, double most, double *value_out);
mlff_status model_metadata_count(const mlff_model *model, const char *key, int least, int most, int *value_out);
mlff_status model_metadata_choice(const mlff_model *model, const char *key, const char *const *choices, int *index_out);
/* eV of an energy unit by its name: kcal/mol, eV or Hartree. Fails with MLFF_ERR_USAGE. */
mlff_status model_energy_unit(const char *name, double *ev_out);
/* "H,C,O" or "1,6,8" to flags by atomic number; to the metadata `elements` (NULL: "unknown"). */
mlff_status model_elements_parse(const char *elements, bool known[MLFF_MAX_ATOMIC_NUMBER + 1]);
mlff_status model_elements_set(model_weights *weights, const char *elements);
/* The same for an architecture, whose name is `kind`, that has elements 1 to `last`; NULL: all of them. Fails with MLFF_ERR_ELEMENT. */
mlff_status model_elements_set_within(model_weights *weights, const char *elements, int last, const char *kind);
/* Metadata of an untrained model in eV and Å. */
mlff_status model_untrained_set(model_weights *weights, const char *architecture, uint64_t seed);

#endif
