/* SPDX-License-Identifier: MIT */
/* train_backend.h: the contract between the trainer (src/train) and the backends of an architecture that compute
 * gradients and update weights: float64 reference, CPU, GPU.
 *
 * Data flow of a step:
 *   trainer.c chooses frames and the learning rate ─> backend: gather frames, forward and reverse pass (E, F, σ), loss and its
 *   derivatives c, v, B, tangent pass, weight gradients ─> clip, AdamW or SOAP, moving average ─> losses summed until asked for. */
#ifndef TRAIN_BACKEND_H
#define TRAIN_BACKEND_H

#include <stdbool.h>

#include "mlff_train.h"
#include "model/model.h"

/* One trainable tensor of a model: its place in the flat parameter vector. Tensors come in the order of the model file;
 * aliases (shared interactions) come once. */
typedef struct train_tensor {
    const char *name; /* of the file; borrowed from the model */
    int64_t offset, n_elements;
    bool decays; /* weight decay applies: matrices, not biases or embeddings */
    int n_rows;  /* of a matrix, row-major */
} train_tensor;
typedef struct train_layout {
    train_tensor *tensors; /* [n_tensors] */
    int n_tensors;
    int64_t n_parameters;
    int *of_file; /* [tensors of the model file] index in `tensors`, also of an alias; -1: not trainable */
} train_layout;
void train_layout_free(train_layout *layout);
/* The weights of a model as the flat vector, rounded to float32 where the file has float64, values_out[n_parameters]. */
void train_layout_read(const train_layout *layout, const mlff_model *model, double *values_out);
/* A copy of the model's file with its trainable tensors, aliases included, set from values[n_parameters]. */
mlff_status train_layout_write(const train_layout *layout, const mlff_model *model, const double *values,
                               model_weights *weights_out);

/* Labelled structures with their graphs, in the model's units; energies without the model's offsets. Built once by
 * train_set.c; borrowed by backends until the next set_data. Indices of atoms and pairs in `neighbor` and `reverse` count from the
 * frame's first atom and first pair. Lists are symmetric. */
typedef struct train_set {
    int64_t n_frames, n_atoms, n_pairs;
    const int64_t *first_atom;   /* [n_frames + 1] */
    const int64_t *first_pair;   /* [n_atoms + 1] */
    const int32_t *species;      /* [n_atoms] atomic numbers */
    const int32_t *neighbor;     /* [n_pairs] */
    const int32_t *reverse;      /* [n_pairs] */
    const double *vectors;       /* [n_pairs][3] from center to neighbor */
    const double *volume;        /* [n_frames]; NaN where not all axes are periodic */
    const double *energy;        /* [n_frames]; NaN: no label */
    const double *forces;        /* [n_atoms][3]; NaN: no label of the atom */
    const double *stress;        /* [n_frames][9] full 3×3; NaN in the first number: no label */
    const double *atom_energies; /* [n_atoms], NaN in a frame's first number: no label; or NULL: none anywhere */
    const double *weight;        /* [n_frames] */
    const double *probe_step;    /* [n_frames] h > 0: this frame and the next are a probe's + and -; else 0. Or NULL: none */
    int largest_frame;           /* atoms */
} train_set;

/* Sums over batches since they were last asked for. */
typedef struct train_sums {
    double loss; /* Σ over steps */
    int64_t n_steps, n_frames, n_atoms;
    double energy_absolute, energy_square; /* Σ |ΔE|/N_s, Σ (ΔE/N_s)² over n_energies frames */
    double force_absolute, force_square;   /* Σ over components, of n_force_components */
    double stress_absolute;                /* Σ over 6 components, of n_stresses frames */
    int64_t n_energies, n_force_components, n_stresses;
    double force_by_element[MLFF_MAX_ATOMIC_NUMBER + 1]; /* the part of force_absolute by atomic number; 0 for steps on a GPU */
    int64_t n_by_element[MLFF_MAX_ATOMIC_NUMBER + 1];
    bool finite; /* false: some loss or gradient was not finite; weights were left as before that step */
} train_sums;

/* What a step does with the gradient. */
typedef struct train_update {
    double learning_rate, beta1, beta2, epsilon, weight_decay, clip, average;
    double correction1, correction2; /* 1 - beta^t of this step's t */
    double soap_decay;               /* of SOAP's covariances */
    bool soap_refresh;               /* SOAP's bases are updated after this step */
} train_update;

/* What a backend keeps between steps, n_values numbers each: one for each parameter, and SOAP's covariances and bases (none with
 * AdamW). */
enum train_vector { TRAIN_WEIGHTS, TRAIN_AVERAGE, TRAIN_MOMENT1, TRAIN_MOMENT2, TRAIN_SOAP, TRAIN_VECTORS };

/* One model being trained on one device in one precision. Not to be used by two threads at once. */
typedef struct train_backend train_backend;
struct train_backend {
    train_layout layout;   /* filled at creation; freed by destroy */
    int64_t n_soap_values; /* of TRAIN_SOAP; 0: the optimizer is AdamW */
    /* Which structures later calls mean; on a GPU they are uploaded. A probe's two frames must be in the same batch. */
    mlff_status (*set_data)(train_backend *backend, const train_set *set);
    /* One step on frames[n_frames]; on a GPU enqueued and not waited for. */
    mlff_status (*step)(train_backend *backend, const int32_t *frames, int n_frames, const mlff_loss *loss,
                        const train_update *update);
    /* The gradient alone, of the raw weights; waits. */
    mlff_status (*gradient)(train_backend *backend, const int32_t *frames, int n_frames, const mlff_loss *loss,
                            double *gradient_out, double *loss_out);
    /* Energies and forces of the averaged weights on all frames of `set`, as sums of errors. */
    mlff_status (*evaluate)(train_backend *backend, const train_set *set, const mlff_loss *loss, train_sums *sums_out);
    /* Sums since the last call; waits. */
    mlff_status (*sums)(train_backend *backend, train_sums *sums_out);
    /* [train_vector_size] numbers; float32 backends convert, which loses nothing on the way back. */
    mlff_status (*get)(train_backend *backend, enum train_vector which, double *values_out);
    mlff_status (*set)(train_backend *backend, enum train_vector which, const double *values);
    void (*destroy)(train_backend *backend);
};
int64_t train_vector_size(const train_backend *backend, enum train_vector which);

typedef struct train_backend_options {
    mlff_device device;
    const int *devices; /* [n_devices] GPUs that share each batch, `device` first; n_devices 0 or 1: `device` alone */
    int n_devices;
    mlff_precision precision; /* MLFF_FLOAT32, MLFF_FLOAT64 (CPU), MLFF_TF32 (GPU) */
    int n_threads;            /* CPU */
    const char *cpu_path;     /* "avx512" ... */
    mlff_trainer_optimizer optimizer;
} train_backend_options;

/* The hook `create_train_backend` of model_architecture (model.h), NULL where an architecture cannot be trained. A backend
 * begins with the model's weights in TRAIN_WEIGHTS and TRAIN_AVERAGE and moments 0; the model must outlive it. Fails with
 * MLFF_ERR_UNSUPPORTED where the model, device or precision cannot be trained, MLFF_ERR_MEMORY, MLFF_ERR_DEVICE. */
typedef mlff_status (*train_backend_create)(const mlff_model *model, const train_backend_options *options,
                                            train_backend **backend_out);

/* The backend of the GPU plugin. `layout` (taken over, also on failure) and `trainable`, the architecture's own places in the
 * flat vector, describe the model. Fails as train_backend_create. */
mlff_status train_backend_create_gpu(const mlff_model *model, const train_backend_options *options, train_layout *layout,
                                     const void *trainable, size_t trainable_bytes, train_backend **backend_out);

#endif
