// SPDX-License-Identifier: MIT
// fuzz_report.c: the reader of profile JSON on any bytes: an error or records that can be shown and written, never a crash.
#include <string.h>

#include "fuzz/fuzz_file.h"
#include "profile/profile.h"

static void show(const mlff_profile *shown)
{
    mlff_comparison *comparison = NULL;
    char *text = NULL;
    if (mlff_profile_html(&shown, 1, NULL, &text) == MLFF_OK) {
        fuzz_demand(!strstr(text, "<img"), "no page of ours has an image");
        mlff_text_free(text);
    }
    if (mlff_profile_compare(&shown, 1, &shown, 1, NULL, &comparison) == MLFF_OK) {
        if (mlff_comparison_text(comparison, &text) == MLFF_OK) mlff_text_free(text);
        mlff_comparison_destroy(comparison);
    }
    if (mlff_profile_text(shown, 80, &text) == MLFF_OK) mlff_text_free(text);
    if (mlff_profile_text_short(shown, 80, &text) == MLFF_OK) mlff_text_free(text);
    if (mlff_profile_json(shown, &text) == MLFF_OK) {
        mlff_profile *again = NULL;
        fuzz_demand(profile_parse("again.json", text, strlen(text), &again) == MLFF_OK, "what is written can be read");
        mlff_profile_destroy(again);
        mlff_text_free(text);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mlff_profile *profile = NULL, **runs = NULL;
    int n_runs = 0;
    char *copy = base_alloc(size + 1, 1, "fuzzed bytes");
    if (!copy) return 0;
    memcpy(copy, data, size);
    mlff_status status = profile_parse("fuzz.json", copy, size, &profile);
    fuzz_demand_text(status);
    if (status == MLFF_OK) {
        show(profile);
        mlff_profile_destroy(profile);
    }
    status = profile_parse_runs("fuzz.json", copy, size, &runs, &n_runs);
    fuzz_demand_text(status);
    if (status == MLFF_OK) {
        char *text = NULL;
        fuzz_demand(n_runs > 0, "a file of runs has at least one");
        if (n_runs > 1 && mlff_profile_html((const mlff_profile *const *)runs, n_runs, "runs", &text) == MLFF_OK)
            mlff_text_free(text);
        mlff_profile_destroy_runs(runs, n_runs);
    }
    base_free(copy);
    return 0;
}
