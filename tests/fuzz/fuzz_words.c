// SPDX-License-Identifier: MIT
// fuzz_words.c: any bytes as words of an input file of LAMMPS, ended by newlines: those of pair_style mlff if the first byte is S, else those of
// pair_coeff. LAMMPS hands words over without NUL.
#include "fuzz/fuzz_file.h"
#include "words.h"

enum { MOST_WORDS = 64 };

static void read_style(int n, const char *const *words)
{
    mlff_evaluator_options options = mlff_evaluator_options_default();
    const char *device = NULL;
    const mlff_status status = words_style(n, words, &options, &device);
    fuzz_demand_text(status);
    fuzz_demand(options.n_threads >= 0, "threads are a number");
    fuzz_demand(options.precision <= MLFF_BF16, "a precision is one of those offered");
    mlff_device devices[8];
    int n_devices = 0;
    if (status != MLFF_OK || !device || strcmp(device, "auto") == 0) return; // auto warns
    const mlff_status parsed = mlff_devices_parse(device, devices, 8, &n_devices);
    fuzz_demand_text(parsed);
    fuzz_demand(parsed != MLFF_OK || (n_devices >= 1 && n_devices <= 8), "devices are counted");
}

static void read_elements(int n, const char *const *words)
{
    int elements[MOST_WORDS];
    static const unsigned char known[] = {1, 8};
    const mlff_model_info info = {.n_elements = 2, .elements = known};
    const mlff_status status = words_elements(n, words, &info, "water", elements);
    fuzz_demand_text(status);
    for (int t = 0; t < n && status == MLFF_OK; t++)
        fuzz_demand(elements[t] == 0 || elements[t] == 1 || elements[t] == 8, "elements are those of the model");
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t length)
{
    char text[1024];
    const char *words[MOST_WORDS];
    int n = 0;
    if (length < 1 || length > sizeof text || memchr(bytes, 0, length)) return 0;
    memcpy(text, bytes + 1, length - 1);
    text[length - 1] = 0;
    for (char *at = text, *end; n < MOST_WORDS && (end = strchr(at, '\n')); at = end + 1) {
        *end = 0;
        words[n++] = at;
    }
    if (bytes[0] == 'S')
        read_style(n, words);
    else
        read_elements(n, words);
    return 0;
}
