// SPDX-License-Identifier: MIT
// fuzz_safetensors.c: any bytes as a model file: refused, or a model whose every parameter can be read.
#include "model/model.h"

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t length);

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t length)
{
    model_weights weights = {0};
    mlff_model *model = NULL;
    mlff_model_info info;
    if (weights_parse((const char *)bytes, length, "fuzz", &weights) != MLFF_OK) return 0;
    if (model_from_weights(&weights, "fuzz", &model) != MLFF_OK) return 0;
    mlff_model_info_get(model, &info);
    mlff_model_destroy(model);
    return 0;
}
