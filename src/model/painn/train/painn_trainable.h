/* SPDX-License-Identifier: MIT */
/* painn_trainable.h: the trainable tensors of a PaiNN as one flat vector. */
#ifndef PAINN_TRAINABLE_H
#define PAINN_TRAINABLE_H

#include "model/painn/painn.h"
#include "model/training/train_backend.h"

/* Where each array of painn_layer begins in the flat vector. Layers that share tensors have equal offsets. */
typedef struct painn_trainable_layer {
    int64_t filter_weight, filter_bias, W1, b1, W2, b2, U, M1, c1, M2, c2;
} painn_trainable_layer;

typedef struct painn_trainable {
    int64_t embedding;
    painn_trainable_layer layer[PAINN_MAX_LAYERS];
    int64_t readout_weight[PAINN_MAX_READOUT], readout_bias[PAINN_MAX_READOUT];
} painn_trainable;

/* Layout and offsets of a model's trainable tensors: all but the buffers of the radial basis and the cutoff and the elements' own
 * energies. Freed with train_layout_free. */
mlff_status painn_trainable_create(const mlff_model *model, train_layout *layout_out, painn_trainable *trainable_out);

/* float64, plain: painn_train_reference.c. */
mlff_status painn_train_reference_create(const mlff_model *model, const train_backend_options *options,
                                         train_backend **backend_out);
/* float32, fast: painn_train_cpu.c. */
mlff_status painn_train_cpu_create(const mlff_model *model, const train_backend_options *options, train_backend **backend_out);

#endif
