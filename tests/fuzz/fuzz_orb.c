// SPDX-License-Identifier: MIT
// fuzz_orb.c: any bytes as a checkpoint of orb-models: a zip as it is, or the pickle of one whose storages
// are named after their sizes in bytes (as fuzz_schnetpack.c).
#include <stdlib.h>

#include "model/orb/import/orb_import.h"
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

// A zip with the storages of the corpus' checkpoints, each named after its size in bytes; the pickle comes after them.
static void begin_zip(zip_stored *zip)
{
    static const int sizes[] = {4,   8,   12,   16,   24,   64,   80,   96,   200,  204,  240,  288,
                                472, 480, 1024, 1280, 1536, 2208, 2304, 4000, 4608, 7616, 12288};
    static const float numbers[3072] = {5.0f, 0.5f, -1.0f, 2.0f};
    static const double cutoff = 6; // a checkpoint is refused if it holds another than its settings
    static unsigned char bytes[1 << 16];
    static zip_stored storages = {.bytes = bytes};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes && storages.n_entries <= (int)k; k++) {
        char name[32];
        snprintf(name, sizeof name, "m/data/%d", sizes[k]);
        zip_stored_add(&storages, name, sizes[k] == sizeof cutoff ? (const void *)&cutoff : numbers, (size_t)sizes[k]);
    }
    zip_stored_copy(&storages, zip);
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t length)
{
    zip_stored zip = {0};
    if (length > 1 << 20) return 0;
    zip_stored_set_zone();
    if (length >= 2 && memcmp(bytes, "PK", 2) == 0) {
        import((const char *)bytes, length);
        return 0;
    }
    if (!(zip.bytes = malloc(length + (1 << 16) + 8192))) return 0;
    begin_zip(&zip);
    zip_stored_add(&zip, "m/data.pkl", bytes, length);
    zip_stored_end(&zip);
    import((const char *)zip.bytes, zip.length);
    free(zip.bytes);
    return 0;
}
