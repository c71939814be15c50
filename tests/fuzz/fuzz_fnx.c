// SPDX-License-Identifier: MIT
// fuzz_fnx.c: any bytes as a FeNNol file: refused, or weights that are an ANI model or refused as one.
#include "model/ani/import/ani_import.h"

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t length);

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t length)
{
    model_weights weights = {0};
    mlff_model *model = NULL;
    if (fnx_parse((const char *)bytes, length, "fuzz", &weights) != MLFF_OK) return 0;
    if (model_from_weights(&weights, "fuzz", &model) == MLFF_OK) mlff_model_destroy(model);
    return 0;
}
