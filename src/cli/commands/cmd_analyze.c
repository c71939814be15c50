// SPDX-License-Identifier: MIT
// cmd_analyze.c: mlff analyze: radial distribution, mean square displacement and diffusion of a trajectory.
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "cli/support/cli.h"
#include "mlff_analysis.h"

static const cli_option options[] = {
    {"pair", 0, "A-B", "elements of the radial distribution: B around A, as O-H (all atoms)"},
    {"range", 0, "ANGSTROM", "of the radial distribution, Å (6)"},
    {"bins", 0, "N", "of the radial distribution (120)"},
    {"element", 0, "A", "whose displacement is followed (all atoms)"},
    {"frame-time", 0, "FS", "time between two frames, fs; without it there is no displacement and no diffusion"},
    CLI_INPUT_FORMAT_OPTION,
    {"json", 0, NULL, "the result as JSON on standard output"},
    {0}};

enum { MAX_LAGS = 200 };

typedef struct analysis {
    const char *pair, *element, *format;
    int n_bins, n_lags;
    double range, frame_fs;
    mlff_rdf *rdf; // NULL: the first frame has no cell
    mlff_msd *msd; // NULL: no --frame-time
    int64_t n_frames;
    double *values;                                // [4][n_bins] r, g, error, coordination
    double lags[MAX_LAGS], displacement[MAX_LAGS]; // [n_lags]
    double diffusion, half_width;
} analysis;

static int parse(cli_arguments *arguments, analysis *run, int elements[3])
{
    char first[4] = "", second[4] = "";
    run->pair = cli_text(arguments, "pair", NULL);
    run->format = cli_text(arguments, "input-format", NULL);
    run->element = cli_text(arguments, "element", NULL);
    run->range = cli_number(arguments, "range", 1e-3, 100, 6);
    run->n_bins = (int)cli_int(arguments, "bins", 1, 100000, 120);
    run->frame_fs = cli_number(arguments, "frame-time", 1e-9, 1e12, NAN);
    if (arguments->failed) return CLI_USAGE;
    if (run->pair) {
        int end = 0;
        if (sscanf(run->pair, "%3[A-Za-z]-%3[A-Za-z]%n", first, second, &end) != 2 || run->pair[end] ||
            !(elements[0] = mlff_element_number(first)) || !(elements[1] = mlff_element_number(second)))
            return cli_usage_error(arguments, "--pair %s: give two elements, as O-H", run->pair);
    }
    if (run->element && !(elements[2] = mlff_element_number(run->element)))
        return cli_usage_error(arguments, "--element %s is no element", run->element);
    if (run->element && !cli_given(arguments, "frame-time")) return cli_usage_error(arguments, "--element needs --frame-time");
    return CLI_GOOD;
}

static mlff_status read_frames(analysis *run, const char *path, const int elements[3])
{
    mlff_status status = MLFF_OK;
    mlff_reader *reader = NULL;
    mlff_system *system = NULL;
    MLFF_TRY(mlff_reader_open(path, run->format, &reader));
    for (;; run->n_frames++) {
        if (cli_interrupted()) MLFF_FAIL(MLFF_ERR_INTERRUPTED, "interrupted");
        MLFF_TRY(mlff_reader_next(reader, &system));
        if (!system) break;
        const bool has_cell = system->periodic[0] && system->periodic[1] && system->periodic[2];
        if (run->n_frames == 0 && (has_cell || run->pair))
            MLFF_TRY(mlff_rdf_create(run->range, run->n_bins, elements[0], elements[1], &run->rdf));
        if (run->n_frames == 0 && !isnan(run->frame_fs)) MLFF_TRY(mlff_msd_create(run->frame_fs, elements[2], &run->msd));
        if (!run->rdf && !run->msd)
            MLFF_FAIL(MLFF_ERR_USAGE, "no cell, so no radial distribution; --frame-time gives displacements");
        if (run->rdf) status = mlff_rdf_add(run->rdf, system);
        if (run->msd && status == MLFF_OK) status = mlff_msd_add(run->msd, system);
        if (status != MLFF_OK) MLFF_FAIL(status, "frame %" PRId64 ": %s", run->n_frames, mlff_last_error());
        mlff_system_destroy(system);
        system = NULL;
        cli_progress("analyze: %" PRId64 " frames", run->n_frames + 1);
    }
    if (run->n_frames == 0) MLFF_FAIL(MLFF_ERR_FORMAT, "there are no frames");
done:
    cli_progress_clear();
    mlff_system_destroy(system);
    mlff_reader_destroy(reader);
    return cli_in(path, status);
}

static mlff_status evaluate(analysis *run)
{
    const size_t n = (size_t)run->n_bins;
    if (!(run->values = base_alloc(4 * n, sizeof *run->values, "radial distribution"))) return MLFF_ERR_MEMORY;
    if (run->rdf) mlff_rdf_get(run->rdf, run->values, run->values + n, run->values + 2 * n, run->values + 3 * n);
    if (!run->msd) return MLFF_OK;
    run->n_lags = run->n_frames / 2 < MAX_LAGS ? (int)(run->n_frames / 2) : MAX_LAGS;
    for (int k = 0; k < run->n_lags; k++) run->lags[k] = (k + 1) * run->frame_fs;
    mlff_msd_get(run->msd, run->n_lags, run->displacement);
    mlff_msd_diffusion(run->msd, &run->diffusion, &run->half_width);
    return MLFF_OK;
}

static void print_json(const analysis *run)
{
    const double *v = run->values;
    const int n = run->n_bins;
    cli_json json = {.file = stdout};
    cli_json_object(&json, NULL);
    cli_json_int(&json, "n_frames", run->n_frames);
    if (run->rdf) {
        cli_json_object(&json, "rdf");
        cli_json_text(&json, "pair", run->pair);
        cli_json_numbers(&json, "r_angstrom", v, n);
        cli_json_numbers(&json, "g", v + n, n);
        cli_json_numbers(&json, "g_standard_error", v + 2 * (size_t)n, n);
        cli_json_numbers(&json, "coordination", v + 3 * (size_t)n, n);
        cli_json_end(&json, '}');
    }
    if (run->msd) {
        cli_json_object(&json, "msd");
        cli_json_text(&json, "element", run->element);
        cli_json_numbers(&json, "lag_fs", run->lags, run->n_lags);
        cli_json_numbers(&json, "msd_angstrom2", run->displacement, run->n_lags);
        cli_json_number(&json, "diffusion_cm2_per_s", 0.1 * run->diffusion);
        cli_json_number(&json, "diffusion_half_width_cm2_per_s", 0.1 * run->half_width);
        cli_json_end(&json, '}');
    }
    cli_json_end(&json, '}');
    putchar('\n');
}

static void print_table(const analysis *run)
{
    const double *v = run->values;
    const size_t n = (size_t)run->n_bins;
    printf("%" PRId64 " frames\n", run->n_frames);
    if (run->rdf)
        printf("\n%8s %10s %10s %13s   radial distribution, %s\n", "r, Å", "g", "std.err.", "coordination",
               run->pair ? run->pair : "all atoms");
    for (size_t k = 0; run->rdf && k < n; k++) {
        printf("%7.3f %10.4f ", v[k], v[n + k]);
        if (isnan(v[2 * n + k]))
            printf("%10s", "-");
        else
            printf("%10.4f", v[2 * n + k]);
        printf(" %13.3f\n", v[3 * n + k]);
    }
    if (!run->msd) return;
    printf("\n%10s %12s   mean square displacement, %s\n", "lag, fs", "Å²", run->element ? run->element : "all atoms");
    for (int k = 0; k < run->n_lags; k++) printf("%10.6g %12.6g\n", run->lags[k], run->displacement[k]);
    if (isnan(run->diffusion))
        printf("\ndiffusion: needs 100 frames\n");
    else
        printf("\ndiffusion: %.3g ± %.2g cm²/s (95 %%, five blocks)\n", 0.1 * run->diffusion, 0.1 * run->half_width);
}

static int run_analyze(cli_arguments *arguments)
{
    mlff_status status = MLFF_OK;
    analysis run = {0};
    int elements[3] = {0};
    const int exit_status = parse(arguments, &run, elements);
    if (exit_status != CLI_GOOD) return exit_status;
    cli_interrupt_catch();
    MLFF_TRY(read_frames(&run, arguments->positional[0], elements));
    MLFF_TRY(evaluate(&run));
    if (cli_given(arguments, "json"))
        print_json(&run);
    else
        print_table(&run);
done:
    base_free(run.values);
    mlff_rdf_destroy(run.rdf);
    mlff_msd_destroy(run.msd);
    return cli_exit(status);
}

const cli_command analyze_command = {
    .name = "analyze",
    .summary = "radial distribution, displacement and diffusion of a trajectory",
    .usage = "TRAJECTORY [--pair A-B] [--range R] [--frame-time FS] [OPTIONS]",
    .details =
        "The radial distribution needs a cell that is periodic along three axes. Its errors are standard errors from blocks of\n"
        "frames. Displacements hold all frames in memory; diffusion needs 100 of them.",
    .examples = "mlff analyze water.extxyz --pair O-O --frame-time 10\n"
                "mlff analyze silicon.extxyz --range 8 --json",
    .options = options,
    .min_positional = 1,
    .max_positional = 1,
    .run = run_analyze,
};
