// SPDX-License-Identifier: MIT
// train_gpu.c: passes a model to the GPU plugin for training.
#include "device/device.h"
#include "nn/nn.h"
#include "soap.h"

mlff_status train_backend_create_gpu(const mlff_model *model, const train_backend_options *options, train_layout *layout,
                                     const void *trainable, size_t trainable_bytes, train_backend **backend_out)
{
    mlff_status status = MLFF_OK;
    const device_plugin *plugin = NULL;
    const bool by_soap = options->optimizer == MLFF_SOAP;
    soap_plan soap = {0};
    double *weights = base_alloc((size_t)layout->n_parameters, sizeof *weights, "weights"), *soap_state = NULL;
    if (!weights) MLFF_TRY(MLFF_ERR_MEMORY);
    MLFF_TRY(device_plugin_get(&plugin));
    train_layout_read(layout, model, weights);
    if (by_soap) {
        MLFF_TRY(soap_plan_create(layout, NN_PAD, &soap));
        if (!(soap_state = base_alloc((size_t)soap.n_state, sizeof *soap_state, "SOAP"))) MLFF_TRY(MLFF_ERR_MEMORY);
        soap_begin(&soap, soap_state);
    }
    const device_trainee trainee = {.model = {.architecture = model->architecture->name,
                                              .title = model->architecture->title,
                                              .model = model,
                                              .model_bytes = sizeof *model,
                                              .parameters = model->parameters,
                                              .parameters_bytes = model->architecture->parameters_bytes},
                                    .layout = layout,
                                    .layout_free = train_layout_free,
                                    .trainable = trainable,
                                    .trainable_bytes = trainable_bytes,
                                    .weights = weights,
                                    .soap = by_soap ? &soap : NULL,
                                    .soap_state = soap_state};
    MLFF_TRY(plugin->trainer_create(&trainee, options, backend_out));
    *layout = (train_layout){0};
done:
    train_layout_free(layout);
    base_free(weights);
    base_free(soap_state);
    soap_plan_free(&soap);
    return status;
}
