// SPDX-License-Identifier: MIT
// tensors.c: an architecture takes the tensors of a model file, each checked, until none is left.
#include "tensors.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

mlff_status model_taken_create(const mlff_model *model, model_taken *taken)
{
    taken->used = base_alloc(model->file.n_tensors, sizeof *taken->used, "tensors");
    taken->converted = base_alloc(model->file.n_tensors, sizeof *taken->converted, "tensors");
    if (!taken->used || !taken->converted) return MLFF_ERR_MEMORY;
    taken->n_tensors = model->file.n_tensors;
    return MLFF_OK;
}

void model_taken_free(model_taken *taken)
{
    for (size_t i = 0; i < taken->n_tensors; i++) base_free(taken->converted[i]);
    base_free(taken->converted);
    base_free(taken->used);
    *taken = (model_taken){0};
}

static mlff_status find(const mlff_model *model, model_taken *taken, int n_dimensions, const int64_t *shape, const char *name,
                        const model_tensor **tensor_out)
{
    const model_tensor *tensor = weights_find(&model->file, name);
    if (!tensor) return mlff_fail(MLFF_ERR_FORMAT, "%s: tensor %s is missing", model->name, name);
    bool fits = tensor->n_dimensions == n_dimensions;
    for (int d = 0; fits && d < n_dimensions; d++) fits = tensor->shape[d] == shape[d];
    if (!fits) {
        char expected[64] = "", found[128] = "";
        for (int d = 0, at = 0; d < n_dimensions; d++)
            at += snprintf(expected + at, sizeof expected - (size_t)at, "%s%" PRId64, d ? " × " : "", shape[d]);
        for (int d = 0, at = 0; d < tensor->n_dimensions; d++)
            at += snprintf(found + at, sizeof found - (size_t)at, "%s%" PRId64, d ? " × " : "", tensor->shape[d]);
        return mlff_fail(MLFF_ERR_FORMAT, "%s: tensor %s is %s, expected %s", model->name, name,
                         tensor->n_dimensions ? found : "a scalar", expected);
    }
    taken->used[tensor - model->file.tensors] = true;
    *tensor_out = tensor;
    return MLFF_OK;
}

// A float64 tensor as floats; the rest of its precision is dropped.
static mlff_status convert(const mlff_model *model, const model_tensor *tensor, float **copy_out)
{
    float *copy = base_alloc((size_t)tensor->n_elements, sizeof *copy, tensor->name);
    if (!copy) return MLFF_ERR_MEMORY;
    for (int64_t k = 0; k < tensor->n_elements; k++) {
        const double value = ((const double *)tensor->data)[k];
        if (!(fabs(value) <= (double)FLT_MAX)) { // an infinity is another weight
            base_free(copy);
            return mlff_fail(MLFF_ERR_VALUE, "%s: tensor %s holds %g at element %" PRId64 ", beyond the range of float32",
                             model->name, tensor->name, value, k);
        }
        copy[k] = (float)value;
    }
    *copy_out = copy;
    return MLFF_OK;
}

mlff_status model_take(const mlff_model *model, model_taken *taken, bool optional, const float **data_out, int n_dimensions,
                       const int64_t *shape, const char *name)
{
    mlff_status status = MLFF_OK;
    const model_tensor *tensor = NULL;
    if (optional && !weights_find(&model->file, name)) {
        *data_out = NULL;
        return MLFF_OK;
    }
    MLFF_TRY(find(model, taken, n_dimensions, shape, name, &tensor));
    if (!tensor->is_double) {
        *data_out = tensor->data;
        return MLFF_OK;
    }
    float **copy = &taken->converted[tensor - model->file.tensors];
    if (!*copy) MLFF_TRY(convert(model, tensor, copy));
    *data_out = *copy;
done:
    return status;
}

mlff_status model_take_doubles(const mlff_model *model, model_taken *taken, double *data, int64_t length, const char *name)
{
    mlff_status status = MLFF_OK;
    const model_tensor *tensor = NULL;
    MLFF_TRY(find(model, taken, 1, &length, name, &tensor));
    for (int64_t k = 0; k < length; k++)
        data[k] = tensor->is_double ? ((const double *)tensor->data)[k] : (double)((const float *)tensor->data)[k];
done:
    return status;
}

mlff_status model_taken_all(const mlff_model *model, const model_taken *taken)
{
    for (size_t i = 0; i < model->file.n_tensors; i++)
        if (!taken->used[i])
            return mlff_fail(MLFF_ERR_FORMAT, "%s: tensor %s is unknown: %s with these settings has none of this name",
                             model->name, model->file.tensors[i].name, model->architecture->title);
    return MLFF_OK;
}
