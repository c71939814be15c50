// SPDX-License-Identifier: MIT
// fuzz_schnetpack.c: any bytes as a SchNetPack save. A zip is taken as it is; anything else is the pickle of a zip that
// holds, for each size a small model has, a storage named after that size in bytes (tools/make_corpus.py writes such
// pickles): past the zip's checksums a mutation is hard to get otherwise.
#include <stdlib.h>

#include "model/painn/import/schnetpack.h"
#include "zip_stored.h"

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t length);

static void import(const unsigned char *bytes, size_t length)
{
    mlff_import_options options = mlff_import_options_default();
    model_weights weights = {0};
    mlff_model *model = NULL;
    torch_file *file = NULL;
    options.energy_unit = "eV";
    if (torch_file_parse((const char *)bytes, length, "fuzz", &file) != MLFF_OK) return;
    if (schnetpack_read(file, "fuzz", &options, &weights) == MLFF_OK && model_from_weights(&weights, "fuzz", &model) == MLFF_OK)
        mlff_model_destroy(model);
    torch_file_destroy(file);
}

// A zip with the storages, which the pickle follows.
static void begin_zip(zip_stored *zip)
{
    static const int sizes[] = {4, 8, 12, 16, 32, 40, 48, 64, 96, 128, 144, 160, 192, 288};
    static const float numbers[72] = {5.0f, 0.5f, -1.0f, 2.0f}; // the first is also the cutoff
    static unsigned char bytes[4096];
    static zip_stored storages = {.bytes = bytes};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && storages.n_entries <= (int)i; i++) {
        char name[32];
        snprintf(name, sizeof name, "m/data/%d", sizes[i]);
        zip_stored_add(&storages, name, numbers, (size_t)sizes[i]);
    }
    zip_stored_copy(&storages, zip);
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t length)
{
    zip_stored zip = {0};
    if (length > 1 << 20) return 0;
    zip_stored_set_zone();
    if (length >= 2 && memcmp(bytes, "PK", 2) == 0) {
        import(bytes, length);
        return 0;
    }
    if (!(zip.bytes = malloc(length + 8192))) return 0;
    begin_zip(&zip);
    zip_stored_add(&zip, "m/data.pkl", bytes, length);
    zip_stored_end(&zip);
    import(zip.bytes, zip.length);
    free(zip.bytes);
    return 0;
}
