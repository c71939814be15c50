// SPDX-License-Identifier: MIT
// bench_precision.c: mlff bench precision: one model in every precision that works here, speed and error of forces side by side.
// The reference is float64 on the CPU.
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "bench.h"

// The reference first: the others' results are held against it.
static const struct {
    const char *setting, *precision, *device;
} modes[] = {
    {"float64:cpu", "float64", "CPU"}, {"float32:cpu", "float32", "CPU"},  {"tf32:cpu", "tf32", "CPU"},
    {"bf16:cpu", "bf16", "CPU"},       {"float32:cuda", "float32", "GPU"}, {"tf32:cuda", "tf32", "GPU"},
    {"bf16:cuda", "bf16", "GPU"},
};
enum { N_MODES = sizeof modes / sizeof *modes };

typedef struct sweep {
    bench_entry entries[N_MODES];
    mlff_callable callables[N_MODES];
    int modes[N_MODES], n; // of those that work
    char missing[N_MODES][256];
} sweep;

static int on_progress(void *context, int64_t round, int64_t n_rounds)
{
    (void)context;
    cli_progress("bench precision: round %d of %d", (int)round + 1, (int)n_rounds);
    return cli_interrupted();
}

// All modes that this machine and this model have; what is missing is told. Without the reference there is no sweep.
static mlff_status load(sweep *s, const char *model, const bench_defaults *defaults, cli_input *input)
{
    mlff_status status = MLFF_OK;
    for (int k = 0; k < N_MODES; k++) {
        char spec[4096];
        if (snprintf(spec, sizeof spec, "%s:%s", model, modes[k].setting) >= (int)sizeof spec)
            return mlff_fail(MLFF_ERR_USAGE, "bench precision: the model's name is longer than a path can be");
        status = bench_entry_make(spec, defaults, &s->entries[s->n]);
        if (status != MLFF_OK && k == 0) return status;
        if (status != MLFF_OK) {
            const char *reason = status == MLFF_ERR_UNSUPPORTED ? mlff_last_cause() : mlff_last_error();
            snprintf(s->missing[k], sizeof s->missing[k], "%s", reason);
            continue;
        }
        s->callables[s->n] = s->entries[s->n].callable;
        s->callables[s->n].name = modes[k].setting;
        s->modes[s->n++] = k;
    }
    status = cli_input_check(s->entries[0].model, input);
    if (status == MLFF_OK && s->n < 2) status = mlff_fail(MLFF_ERR_UNSUPPORTED, "bench precision: %s", s->missing[1]);
    return status;
}

static void print_text(const sweep *s, const mlff_implementation *rows, const char *model, const char *input)
{
    printf("%s: %s\n%-9s %-6s %12s %10s %-18s %14s %14s\n", model, input, "precision", "on", "median/ms", "speed-up",
           "95 % interval", "ΔF max meV/Å", "ΔF rms meV/Å");
    for (int k = 0; k < s->n; k++) {
        char interval[40] = "–", difference[2][24] = {"reference", ""};
        if (k > 0) {
            if (isfinite(rows[k].low + rows[k].high)) // else too few rounds are independent
                snprintf(interval, sizeof interval, "%.3g to %.3g", 1.0 / rows[k].high, 1.0 / rows[k].low);
            snprintf(difference[0], sizeof difference[0], "%.3g", rows[k].force_difference * 1e3);
            snprintf(difference[1], sizeof difference[1], "%.3g", rows[k].force_rms * 1e3);
        }
        printf("%-9s %-6s %12.5g %9.3g× %-18s %12s %12s\n", modes[s->modes[k]].precision, modes[s->modes[k]].device,
               rows[k].median_ms, 1.0 / rows[k].ratio, interval, difference[0], difference[1]);
    }
    for (int k = 1; k < N_MODES; k++) // one word for all modes of a device that is not there
        if (*s->missing[k] && strcmp(s->missing[k], s->missing[k - 1]) != 0)
            printf("%s on the %s is not available: %s\n", modes[k].precision, modes[k].device, s->missing[k]);
    printf("differences are from float64 on the same new frames, interleaved; intervals are of this process\n");
}

static void print_json(const sweep *s, const mlff_implementation *rows, const char *model, const char *input)
{
    cli_json json = {.file = stdout};
    cli_json_object(&json, NULL);
    cli_json_text(&json, "model", model);
    cli_json_text(&json, "system", input);
    cli_json_array(&json, "precisions");
    for (int k = 0; k < s->n; k++) {
        cli_json_object(&json, NULL);
        cli_json_text(&json, "precision", modes[s->modes[k]].precision);
        cli_json_text(&json, "device", rows[k].device);
        cli_json_number(&json, "median_ms", rows[k].median_ms);
        cli_json_number(&json, "speed_up", 1.0 / rows[k].ratio);
        cli_json_number(&json, "speed_up_low", 1.0 / rows[k].high);
        cli_json_number(&json, "speed_up_high", 1.0 / rows[k].low);
        cli_json_number(&json, "energy_difference_ev_per_atom", rows[k].energy_difference);
        cli_json_number(&json, "force_difference_ev_per_angstrom", rows[k].force_difference);
        cli_json_number(&json, "force_rms_ev_per_angstrom", rows[k].force_rms);
        cli_json_end(&json, '}');
    }
    cli_json_end(&json, ']');
    cli_json_end(&json, '}');
}

int bench_precision(cli_arguments *arguments)
{
    mlff_status status = MLFF_OK;
    const char *model = arguments->n_positional > 1 ? arguments->positional[1] : cli_each(arguments, "model", 0);
    const char *path = cli_text(arguments, "input", NULL);
    sweep s = {.n = 0};
    cli_input input = {0};
    mlff_trajectory *trajectory = NULL;
    mlff_implementations *implementations = NULL;
    bench_defaults defaults;
    mlff_implementations_options options = mlff_implementations_options_default();
    options.n_rounds = (int)cli_int(arguments, "rounds", 6, 100000, options.n_rounds);
    options.n_frames = (int)cli_int(arguments, "frames", 1, 100000, options.n_frames);
    options.progress = on_progress;
    double temperature = cli_number(arguments, "temperature", 0, 1e6, 300);
    uint64_t seed = (uint64_t)cli_int(arguments, "seed", 0, INT64_MAX, 0);
    int exit_status = bench_frames_check(arguments);
    if (exit_status == CLI_GOOD) exit_status = bench_defaults_get(arguments, &defaults);
    if (exit_status != CLI_GOOD) return exit_status;
    if (!model) return cli_usage_error(arguments, "precision needs a model, as in mlff bench precision painn.safetensors");
    exit_status = bench_input_make(arguments, model, seed, &input);
    if (exit_status != CLI_GOOD) return exit_status;
    MLFF_TRY(load(&s, model, &defaults, &input));
    MLFF_TRY(path ? cli_trajectory_file(arguments, path, &trajectory)
                  : mlff_trajectory_thermal(input.system, temperature, seed, &trajectory));
    cli_interrupt_catch();
    status = mlff_profile_implementations(s.callables, s.n, trajectory, &options, &implementations);
    cli_progress_clear();
    status = bench_interrupted(status, implementations);
    if (implementations)
        (cli_given(arguments, "json") ? print_json : print_text)(&s, mlff_implementations_rows(implementations, NULL), model,
                                                                 input.text);
done:
    cli_progress_clear();
    mlff_implementations_destroy(implementations);
    mlff_trajectory_destroy(trajectory);
    for (int k = 0; k < s.n; k++) bench_entry_free(&s.entries[k]);
    cli_input_free(&input);
    return cli_exit(status);
}
