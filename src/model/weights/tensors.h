/* SPDX-License-Identifier: MIT */
/* tensors.h: an architecture takes the tensors of a model file, each checked, until none is left. */
#ifndef TENSORS_H
#define TENSORS_H

#include "model/model.h"

typedef struct model_taken {
    float *
        *converted; /* [n_tensors] float copies of the file's double tensors, one of each: layers that share a tensor share it */
    bool *used;     /* [n_tensors] */
    size_t n_tensors;
} model_taken;

mlff_status model_taken_create(const mlff_model *model, model_taken *taken);
void model_taken_free(model_taken *taken);
/* The tensor `name` with exactly this shape, as floats, borrowed from model and taken. `optional` and absent: NULL. */
mlff_status model_take(const mlff_model *model, model_taken *taken, bool optional, const float **data_out, int n_dimensions,
                       const int64_t *shape, const char *name);
/* The vector `name` of this length, copied as doubles. */
mlff_status model_take_doubles(const mlff_model *model, model_taken *taken, double *data, int64_t length, const char *name);
/* Fails with MLFF_ERR_FORMAT on the first tensor that was not taken. */
mlff_status model_taken_all(const mlff_model *model, const model_taken *taken);

#endif
