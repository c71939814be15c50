// SPDX-License-Identifier: MIT
// fuzz_neurochem.c: any text as one of the three that NeuroChem's importer reads; the first byte says which: P .params,
// S self energies, else inputtrain.ipt. What is accepted is written as metadata.
#include <stdlib.h>
#include <string.h>

#include "model/ani/import/ani_import.h"

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t length);

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t length)
{
    ani_settings settings = {
        .species = "H,O", .n_species = 2, .n_members = 1, .n_radial = 2, .n_shifts = 2, .n_sections = 2, .energy_unit = 1};
    neurochem_net nets[ANI_MAX_SPECIES];
    model_weights weights = {0};
    if (length < 1 || length > 1 << 16) return 0;
    char *text = malloc(length);
    if (!text) return 0;
    memcpy(text, bytes + 1, length - 1);
    text[length - 1] = 0;
    if (bytes[0] == 'P') {
        if (neurochem_params_parse(text, "fuzz", &settings) == MLFF_OK) ani_settings_write(&settings, "fuzz", &weights);
    } else if (bytes[0] == 'S') {
        neurochem_energies_parse(text, "fuzz", &settings);
    } else {
        neurochem_input_parse(text, "fuzz", &settings, nets);
    }
    weights_free(&weights);
    free(text);
    return 0;
}
