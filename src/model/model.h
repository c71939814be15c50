/* SPDX-License-Identifier: MIT */
/* model.h: what an architecture (painn/, ani/, orb/) is to the rest of the house.
 *
 * The data's way through one call on the CPU:
 *   batch ─ evaluator.c ─> graph (pairs, edge vectors) ─ backend ─> atom energies, dE/dr of each pair
 *         ─ evaluator.c ─> energies, forces, virials, stress in eV and Å
 * A GPU backend takes the whole batch instead and does all of it on the device (device/device.h). */
#ifndef MODEL_H
#define MODEL_H

#include "base/base.h"
#include "mlff.h"

typedef struct model_architecture model_architecture;
struct device_plugin; /* device/device.h */
struct cuda_evaluator;
struct train_backend; /* model/train_backend.h */
struct train_backend_options;

/* A named array of a model file, float32 or float64, little-endian as stored. */
typedef struct model_tensor {
    char *name;
    int is_double;
    int n_dimensions;
    int64_t shape[4];
    int64_t n_elements;
    void *data; /* float or double [n_elements] */
} model_tensor;

/* A model as a file holds it: tensors and string metadata. The one form in which importers, `new` and the
 * safetensors reader hand a model over. weights.c owns reading and writing it. */
typedef struct model_weights {
    model_tensor *tensors;
    size_t n_tensors, tensor_capacity;
    char **keys, **values; /* metadata */
    size_t n_keys, key_capacity;
} model_weights;

void weights_free(model_weights *weights);
/* Adds an empty (zero) tensor and returns it, or NULL (error text set). */
model_tensor *weights_add(model_weights *weights, const char *name, int is_double, int n_dimensions, const int64_t *shape);
mlff_status weights_set(model_weights *weights, const char *key, const char *format, ...) MLFF_PRINTF(3, 4);
const model_tensor *weights_find(const model_weights *weights, const char *name);
const char *weights_get(const model_weights *weights, const char *key); /* NULL if absent */
/* safetensors: 8-byte little-endian length, JSON header, raw data. Strict; every number must be finite. */
mlff_status weights_read(const char *path, model_weights *weights_out);
/* The same from memory; `path` only names it in errors. */
mlff_status weights_parse(const char *bytes, size_t length, const char *path, model_weights *weights_out);
/* Fails on the first NaN or infinity. */
mlff_status weights_check_finite(const model_weights *weights, const char *path);
bool weights_utf8_valid(const char *bytes, size_t length);
mlff_status weights_write(const model_weights *weights, const char *path);
/* Restricted reader of a SchNetPack save: tensors under their state_dict names, hyper-parameters as metadata. */
mlff_status schnetpack_read(const char *path, const mlff_import_options *options, model_weights *weights_out);
mlff_status schnetpack_parse(const char *bytes, size_t length, const char *path, const mlff_import_options *options,
                             model_weights *weights_out);

struct mlff_model {
    const model_architecture *architecture;
    model_weights file; /* as loaded; saved back unchanged */
    char *name, *description;
    double cutoff; /* Å */
    int n_layers;
    int n_members; /* of an ensemble; 1 where it is none */
    int64_t n_parameters;
    double energy_unit; /* eV per model unit */
    double length_unit; /* Å per model unit */
    bool trained, conservative, has_atom_energies;
    int n_elements; /* 0: unknown, all are let through that the embedding has */
    unsigned char elements[MLFF_MAX_ATOMIC_NUMBER];
    bool known[MLFF_MAX_ATOMIC_NUMBER + 1];    /* by atomic number */
    double offset[MLFF_MAX_ATOMIC_NUMBER + 1]; /* eV added to an atom's energy, by atomic number (mean and atomref) */
    void *parameters;                          /* the architecture's own, from `file` */
};

/* The graph a CPU backend works on; arrays are borrowed for the call. Vectors are in the model's length unit. */
typedef struct model_graph {
    int n_atoms, n_pairs;
    const int32_t *species;     /* [n_atoms] */
    const int32_t *first;       /* [n_atoms + 1] */
    const int32_t *neighbor;    /* [n_pairs] */
    const int32_t *reverse;     /* [n_pairs], or NULL: the list is not symmetric, scatter */
    const double *vectors;      /* [n_pairs][3] from centre to neighbour */
    const unsigned char *owned; /* [n_atoms] or NULL */
    const mlff_halo *halo;      /* or NULL */
} model_graph;

/* Clocks of the stages. stage_end(clock, k) gives the time since the last mark to stage k. Called by one thread. */
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
    /* Energies of atoms in model units, without offsets, 0 for ghosts; with `pair_gradient` also dE/dr of each pair.
     * `stage` is the index of the backend's first stage on the clock. */
    mlff_status (*compute)(model_backend *backend, const model_graph *graph, double *atom_energy /* [n_atoms] */,
                           double *pair_gradient /* [n_pairs][3] or NULL */, stage_clock *clock, int stage);
    void (*info)(const model_backend *backend, int64_t *bytes, int64_t *n_growths);
    void (*destroy)(model_backend *backend);
    int n_members; /* of an ensemble this backend runs; 0 where the model is none */
    /* Of an ensemble: compute() is of this one of them, or, with −1, of their mean. */
    void (*select_member)(model_backend *backend, int member);
};

typedef struct cpu_options {
    mlff_precision precision; /* MLFF_FLOAT32 or MLFF_FLOAT64 */
    int n_threads;
    const char *path; /* "avx512" … */
    const mlff_halo *halo;
    const int *members; /* [n_members] of an ensemble, to be run; n_members 0: all */
    int n_members;
} cpu_options;

/* One row of the registry. */
struct model_architecture {
    const char *name, *title, *reference;
    /* Checks tensors and metadata and fills the model's fields; model->file is filled. */
    mlff_status (*load)(mlff_model *model);
    mlff_status (*create_cpu)(const mlff_model *model, const cpu_options *options, model_backend **backend_out);
    /* One model on a GPU through the plugin, of an ensemble these members; NULL: on the CPU only. */
    mlff_status (*create_gpu)(const mlff_model *model, const struct device_plugin *plugin, const mlff_evaluator_options *options,
                              const int *members, int n_members, struct cuda_evaluator **evaluator_out);
    /* Trains on a device (model/train_backend.h); NULL: the architecture cannot be trained. */
    mlff_status (*create_train_backend)(const mlff_model *model, const struct train_backend_options *options,
                                        struct train_backend **backend_out);
    void (*destroy)(mlff_model *model); /* frees model->parameters */
};
extern const model_architecture painn_architecture, ani_architecture;
const model_architecture *model_architecture_find(const char *name);
/* Takes over `weights` (also on failure), finds the architecture in its metadata and loads it. The model is named
 * after `path`, without folder and suffix. */
mlff_status model_from_weights(model_weights *weights, const char *path, mlff_model **model_out);

/* The evaluator's part on a GPU and the plugin it is of; NULL: it runs on the CPU. */
struct cuda_evaluator *evaluator_on_gpu(mlff_evaluator *evaluator, const struct device_plugin **plugin_out);

/* Path of a model file: `name` itself if it is one or has a folder, else the file of this name in the search path of
 * models (model_path.c). Freed with base_free. */
mlff_status model_path_find(const char *name, char **path_out);

/* Metadata of a model being loaded, checked; errors name the model and the key. `choices` ends with NULL. */
mlff_status model_metadata_number(const mlff_model *model, const char *key, double least, double most, double *value_out);
mlff_status model_metadata_count(const mlff_model *model, const char *key, int least, int most, int *value_out);
mlff_status model_metadata_choice(const mlff_model *model, const char *key, const char *const *choices, int *index_out);
/* "H,C,O" or "1,6,8" to flags by atomic number; to the metadata `elements` (NULL: "unknown"). */
mlff_status model_elements_parse(const char *elements, bool known[MLFF_MAX_ATOMIC_NUMBER + 1]);
mlff_status model_elements_set(model_weights *weights, const char *elements);

#endif
