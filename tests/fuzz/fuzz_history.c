// SPDX-License-Identifier: MIT
// fuzz_history.c: any bytes as the history.jsonl of a training run: the lines that a run goes on after, which are read again as they are, and a
// figure of finite numbers.
#include "fuzz/fuzz_file.h"
#include "train/fitting/history.h"

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t length)
{
    base_text lines = {0}, again = {0}, page = {0};
    if (length < 1 || length > 1 << 16) return 0;
    const char *path = fuzz_file(bytes + 1, length - 1);
    const int64_t last_step = bytes[0];
    fuzz_demand_text(history_read(path, last_step, &lines));
    if (lines.text && *lines.text) {
        fuzz_demand(lines.text[strlen(lines.text) - 1] == '\n', "whole lines are kept");
        memory_files_put(FUZZ_SECOND, lines.text, strlen(lines.text));
        fuzz_demand(history_read(FUZZ_SECOND, last_step, &again) == MLFF_OK, "what is kept can be read");
        fuzz_demand(again.text && strcmp(lines.text, again.text) == 0, "what is kept is kept again");
        base_text_free(&again);
        fuzz_demand(history_read(FUZZ_SECOND, -1, &again) == MLFF_OK && !again.text, "later lines are left out");
    }
    fuzz_demand_text(history_draw(path, &page));
    if (page.text) fuzz_demand(!strstr(page.text, "nan") && !strstr(page.text, "inf"), "a figure has finite numbers");
    base_text_free(&lines);
    base_text_free(&again);
    base_text_free(&page);
    return 0;
}
