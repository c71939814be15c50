// SPDX-License-Identifier: MIT
// train_layout.c: a model's trainable tensors to one flat vector and back.
#include "train_backend.h"

void train_layout_free(train_layout *layout)
{
    base_free(layout->tensors);
    base_free(layout->of_file);
    *layout = (train_layout){0};
}

int64_t train_vector_size(const train_backend *backend, enum train_vector which)
{
    return which == TRAIN_SOAP ? backend->n_soap_values : backend->layout.n_parameters;
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
    MLFF_TRY(weights_copy(&model->file, &weights));
    for (size_t i = 0; i < weights.n_tensors; i++) {
        model_tensor *tensor = &weights.tensors[i];
        if (layout->of_file[i] < 0) continue;
        const double *trained = values + layout->tensors[layout->of_file[i]].offset;
        for (int64_t k = 0; k < tensor->n_elements; k++)
            if (tensor->is_double)
                ((double *)tensor->data)[k] = trained[k];
            else
                ((float *)tensor->data)[k] = (float)trained[k];
    }
    *weights_out = weights;
    weights = (model_weights){0};
done:
    weights_free(&weights);
    return status;
}
