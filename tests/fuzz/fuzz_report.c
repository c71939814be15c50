// SPDX-License-Identifier: MIT
// fuzz_report.c: the reader of profile JSON on any bytes: an error or a record that can be shown and written, never a crash.
#include <assert.h>
#include <string.h>

#include "profile/profile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mlff_profile *profile = NULL;
    char *copy = base_alloc(size + 1, 1, "fuzzed bytes"), *text = NULL;
    if (!copy) return 0;
    memcpy(copy, data, size);
    if (profile_parse("fuzz.json", copy, size, &profile) == MLFF_OK) {
        const mlff_profile *shown = profile;
        if (mlff_profile_html(&shown, 1, NULL, &text) == MLFF_OK) {
            assert(!strstr(text, "<img")); // no page of ours has one
            mlff_text_free(text);
        }
        mlff_comparison *comparison = NULL;
        if (mlff_profile_compare(&shown, 1, &shown, 1, NULL, &comparison) == MLFF_OK) {
            if (mlff_comparison_text(comparison, &text) == MLFF_OK) mlff_text_free(text);
            mlff_comparison_destroy(comparison);
        }
        if (mlff_profile_text(profile, 80, &text) == MLFF_OK) mlff_text_free(text);
        if (mlff_profile_json(profile, &text) == MLFF_OK) {
            mlff_profile *again = NULL;
            mlff_status status = profile_parse("again.json", text, strlen(text), &again);
            assert(status == MLFF_OK); // what we write, we read
            (void)status;
            mlff_profile_destroy(again);
            mlff_text_free(text);
        }
        mlff_profile_destroy(profile);
    } else {
        assert(*mlff_last_error() && !strchr(mlff_last_error(), '\n'));
    }
    base_free(copy);
    return 0;
}
