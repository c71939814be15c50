// SPDX-License-Identifier: MIT
// fuzz_config.c: any bytes as the config.json of a distillation: refused, or settings that are written and read back the same.
#include "fuzz/fuzz_file.h"
#include "mlff_distill.h"

static bool same_text(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : !a && !b;
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t length)
{
    mlff_distill_config config, again;
    char text[2000], text_again[2000];
    if (length > 1 << 16 || mlff_distill_preset("demo", &config) != MLFF_OK) return 0;
    again = config;
    const mlff_status status = mlff_distill_config_read(fuzz_file(bytes, length), &config, text, sizeof text);
    fuzz_demand_text(status);
    if (status != MLFF_OK) {
        fuzz_demand(memcmp(&config, &again, sizeof config) == 0, "settings that are refused change nothing");
        return 0;
    }
    fuzz_demand(mlff_distill_config_save(&config, FUZZ_SECOND) == MLFF_OK, "settings can be saved");
    fuzz_demand(mlff_distill_config_read(FUZZ_SECOND, &again, text_again, sizeof text_again) == MLFF_OK,
                "what is saved can be read");
    fuzz_demand(same_text(config.teacher, again.teacher) && same_text(config.systems, again.systems) &&
                    same_text(config.optimizer, again.optimizer) && same_text(config.labels, again.labels) &&
                    same_text(config.labels_hash, again.labels_hash) && same_text(config.systems_hash, again.systems_hash),
                "texts read back");
    again.teacher = config.teacher;
    again.labels = config.labels;
    again.labels_hash = config.labels_hash;
    again.systems_hash = config.systems_hash;
    again.systems = config.systems;
    again.optimizer = config.optimizer;
    fuzz_demand(memcmp(&config, &again, sizeof config) == 0, "numbers read back");
    return 0;
}
