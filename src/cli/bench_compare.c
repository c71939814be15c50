// SPDX-License-Identifier: MIT
// bench_compare.c: mlff bench compare: implementations in turns on the same fresh frames, with parity.
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "bench.h"

// Takes one word off the end of "MODEL:word:word" if it is a setting; a file name may have colons of its own.
static bool take_setting(char *spec, mlff_evaluator_options *options, mlff_status *status)
{
    char *colon = strrchr(spec, ':'), device[16];
    int64_t threads;
    if (!colon || colon == spec) return false;
    const char *word = colon + 1;
    if (strcmp(word, "float32") == 0) {
        options->precision = MLFF_FLOAT32;
    } else if (strcmp(word, "float64") == 0) {
        options->precision = MLFF_FLOAT64;
    } else if (strcmp(word, "avx512") == 0) {
        options->cpu_path = "avx512";
    } else if (strcmp(word, "avx2") == 0) {
        options->cpu_path = "avx2";
    } else if (strcmp(word, "portable") == 0) {
        options->cpu_path = "portable";
    } else if (word[0] == 't' && base_parse_int64(word + 1, &threads) && threads >= 1 && threads <= 4096) {
        options->n_threads = (int)threads;
    } else if (strcmp(word, "cpu") == 0 || strcmp(word, "cuda") == 0) {
        *status = mlff_device_parse(word, &options->device);
    } else if (strncmp(word, "cuda", 4) == 0 && strlen(word) <= 6 && strspn(word + 4, "0123456789") == strlen(word + 4)) {
        snprintf(device, sizeof device, "cuda:%.2s", word + 4);
        *status = mlff_device_parse(device, &options->device);
    } else {
        return false;
    }
    *colon = 0;
    return true;
}

mlff_status bench_entry_make(const char *text, int threads, bench_entry *entry)
{
    mlff_status status = MLFF_OK;
    bench_entry made = {0};
    mlff_evaluator_options options = mlff_evaluator_options_default();
    options.n_threads = threads;
    char *spec = base_strdup(text);
    if (!spec) return MLFF_ERR_MEMORY;
    while (take_setting(spec, &options, &status))
        if (status != MLFF_OK) goto done;
    made.name = base_strdup(text);
    if (!made.name) {
        status = MLFF_ERR_MEMORY;
        goto done;
    }
    MLFF_TRY(mlff_model_load(spec, &made.model));
    MLFF_TRY(mlff_evaluator_create(made.model, &options, &made.evaluator));
    MLFF_TRY(mlff_callable_from_evaluator(made.evaluator, made.model, &made.callable));
    made.callable.name = made.name;
    *entry = made;
    made = (bench_entry){0};
done:
    base_free(spec);
    bench_entry_free(&made);
    return status;
}

void bench_entry_free(bench_entry *entry)
{
    mlff_callable_destroy(&entry->callable);
    mlff_evaluator_destroy(entry->evaluator);
    mlff_model_destroy(entry->model);
    base_free(entry->name);
    *entry = (bench_entry){0};
}

static int on_progress(void *context, int64_t round, int64_t n_rounds)
{
    (void)context;
    cli_progress("bench compare: round %d of %d", (int)round + 1, (int)n_rounds);
    return cli_interrupted();
}

enum { ENTRIES_MAX = 16, CLI_SLOWER = 3, CLI_UNCLEAR = 4 };

// Names of implementations: --model, then what stands behind "compare" and is no structure file of --input.
static int collect(const cli_arguments *arguments, const char **names)
{
    int n = 0;
    const char *name;
    for (int i = 0; (name = cli_each(arguments, "model", i)) && n < ENTRIES_MAX; i++) names[n++] = name;
    for (int i = 1; i < arguments->n_positional && n < ENTRIES_MAX; i++) names[n++] = arguments->positional[i];
    return n;
}

int bench_compare(cli_arguments *arguments)
{
    mlff_status status = MLFF_OK;
    const char *names[ENTRIES_MAX], *path = cli_text(arguments, "input", NULL);
    bench_entry entries[ENTRIES_MAX] = {{0}};
    mlff_callable callables[ENTRIES_MAX];
    cli_input input = {0};
    mlff_trajectory *trajectory = NULL;
    mlff_rivals *rivals = NULL;
    char *text = NULL;
    int n = collect(arguments, names), n_rows, verdict = CLI_GOOD;
    mlff_rivals_options options = mlff_rivals_options_default();
    options.n_rounds = (int)cli_int(arguments, "rounds", 6, 100000, options.n_rounds);
    options.n_frames = (int)cli_int(arguments, "frames", 1, 100000, options.n_frames);
    options.energy_tolerance = cli_number(arguments, "energy-tolerance", 0, 1e9, options.energy_tolerance * 1e3) * 1e-3;
    options.force_tolerance = cli_number(arguments, "force-tolerance", 0, 1e9, options.force_tolerance * 1e3) * 1e-3;
    options.noise_floor = cli_number(arguments, "noise-floor", 0, 100, 1) / 100;
    double temperature = cli_number(arguments, "temperature", 0, 1e6, 300);
    uint64_t seed = (uint64_t)cli_int(arguments, "seed", 0, INT64_MAX, 0);
    int threads = (int)cli_int(arguments, "threads", 1, 4096, 0);
    if (arguments->failed) return CLI_USAGE;
    if (n < 2)
        return cli_usage_error(arguments,
                               "compare needs two models or more, as in --model A.safetensors --model B.safetensors:float64");
    int exit_status = cli_input_make(arguments, path, path ? NULL : "silicon", seed, &input);
    if (exit_status != CLI_GOOD) return exit_status;

    for (int k = 0; k < n; k++) {
        MLFF_TRY(bench_entry_make(names[k], threads, &entries[k]));
        callables[k] = entries[k].callable;
    }
    MLFF_TRY(path ? mlff_trajectory_file(path, &trajectory)
                  : mlff_trajectory_thermal(input.system, temperature, seed, &trajectory));
    cli_interrupt_catch();
    options.progress = on_progress;
    MLFF_TRY(mlff_profile_rivals(callables, n, trajectory, &options, &rivals));
    cli_progress_clear();
    bool json = cli_given(arguments, "json");
    MLFF_TRY(json ? mlff_rivals_json(rivals, &text) : mlff_rivals_text(rivals, &text));
    if (!json) printf("%s\n\n", input.text);
    fputs(text, stdout);
    const mlff_rival *rows = mlff_rivals_rows(rivals, &n_rows);
    for (int k = 1; k < n_rows; k++) {
        if (rows[k].change == MLFF_UNCLEAR && verdict == CLI_GOOD) verdict = CLI_UNCLEAR;
        if (rows[k].change == MLFF_SLOWER && verdict != CLI_FAILED) verdict = CLI_SLOWER;
        if (!rows[k].agrees) verdict = CLI_FAILED;
    }
done:
    cli_progress_clear();
    mlff_text_free(text);
    mlff_rivals_destroy(rivals);
    mlff_trajectory_destroy(trajectory);
    for (int k = 0; k < n; k++) bench_entry_free(&entries[k]);
    cli_input_free(&input);
    return status == MLFF_OK ? verdict : cli_exit(status);
}
