// SPDX-License-Identifier: MIT
// fuzz_orb.c: any bytes as a checkpoint of orb-models: a zip as it is, or the pickle of one (fuzz_schnetpack.c).
#include <stdlib.h>

#include "model/orb/orb_import.h"
#include "zip_stored.h"

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t length);

static void import(const char *bytes, size_t length)
{
    mlff_import_options options = mlff_import_options_default();
    model_weights weights = {0};
    mlff_model *model = NULL;
    torch_file *file = NULL;
    if (torch_file_parse(bytes, length, "fuzz", &file) != MLFF_OK) return;
    if (orb_checkpoint_read(file, "fuzz", &options, &weights) == MLFF_OK &&
        model_from_weights(&weights, "fuzz", &model) == MLFF_OK)
        mlff_model_destroy(model);
    torch_file_destroy(file);
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t length)
{
    static const float numbers[64] = {5.0f, 0.5f, -1.0f, 2.0f};
    zip_stored zip = {0};
    if (length > 1 << 20) return 0;
    if (length >= 2 && memcmp(bytes, "PK", 2) == 0) {
        import((const char *)bytes, length);
        return 0;
    }
    if (!(zip.bytes = malloc(length + 8192))) return 0;
    zip_stored_add(&zip, "m/data.pkl", bytes, length);
    for (int k = 0; k < 16; k++) {
        char name[32];
        snprintf(name, sizeof name, "m/data/%d", k);
        zip_stored_add(&zip, name, numbers, (size_t)(4 * (k + 1)));
    }
    zip_stored_end(&zip);
    import((const char *)zip.bytes, zip.length);
    free(zip.bytes);
    return 0;
}
