// SPDX-License-Identifier: MIT
// train_layout.c: a model's trainable tensors to one flat vector and back.
#include "train_backend.h"

void train_layout_free(train_layout *layout)
{
    base_free(layout->tensors);
    base_free(layout->of_file);
    *layout = (train_layout){0};
}

void train_layout_read(const train_layout *layout, const mlff_model *model, double *values_out)
{
    for (size_t i = model->file.n_tensors; i-- > 0;) { // backwards: of aliases the first one counts
        const model_tensor *tensor = &model->file.tensors[i];
        if (layout->of_file[i] < 0) continue;
        double *values = values_out + layout->tensors[layout->of_file[i]].offset;
        for (int64_t k = 0; k < tensor->n_elements; k++)
            values[k] =
                tensor->is_double ? (double)(float)((const double *)tensor->data)[k] : (double)((const float *)tensor->data)[k];
    }
}

mlff_status train_layout_write(const train_layout *layout, const mlff_model *model, const double *values,
                               model_weights *weights_out)
{
    mlff_status status = MLFF_OK;
    model_weights weights = {0};
    for (size_t i = 0; i < model->file.n_tensors; i++) {
        const model_tensor *from = &model->file.tensors[i];
        model_tensor *to = weights_add(&weights, from->name, from->is_double, from->n_dimensions, from->shape);
        if (!to) {
            status = MLFF_ERR_MEMORY;
            goto done;
        }
        const double *trained = layout->of_file[i] < 0 ? NULL : values + layout->tensors[layout->of_file[i]].offset;
        for (int64_t k = 0; k < from->n_elements; k++)
            if (from->is_double)
                ((double *)to->data)[k] = trained ? trained[k] : ((const double *)from->data)[k];
            else
                ((float *)to->data)[k] = trained ? (float)trained[k] : ((const float *)from->data)[k];
    }
    for (size_t i = 0; i < model->file.n_keys; i++)
        MLFF_TRY(weights_set(&weights, model->file.keys[i], "%s", model->file.values[i]));
    *weights_out = weights;
    weights = (model_weights){0};
done:
    weights_free(&weights);
    return status;
}
