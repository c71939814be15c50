// SPDX-License-Identifier: MIT
// cmd_analyze.c: mlff analyze: structure, motion, spectrum and energies of a trajectory.
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "cli/simulate/analyze.h"
#include "cli/support/cli.h"

static const cli_option options[] = {
    {"pair", 0, "A-B", "elements of the radial distribution: B around A, as O-H (all atoms)"},
    {"range", 0, "ANGSTROM", "of the radial distribution, Å (6)"},
    {"bins", 0, "N", "of the radial distribution (120)"},
    {"element", 0, "A", "whose displacement and spectrum are computed (all atoms)"},
    {"frame-time", 0, "FS", "time between two frames, fs; without it there is no displacement, diffusion or spectrum"},
    {"skip", 0, "N", "frames at the beginning that are left out, such as those before equilibrium (0)"},
    {"geometry", 0, NULL, "lengths of bonds and angles between them, by elements; bonds are those of the first frame"},
    {"html", 0, "FILE", "a page with plots, for a browser"},
    CLI_READER_OPTIONS,
    {"json", 0, NULL, "the result as JSON on standard output"},
    {0}};

static int parse(cli_arguments *arguments, analysis *run, int elements[3])
{
    char first[4] = "", second[4] = "";
    run->pair = cli_text(arguments, "pair", NULL);
    run->page = cli_text(arguments, "html", NULL);
    run->with_geometry = cli_given(arguments, "geometry");
    run->element = cli_text(arguments, "element", NULL);
    run->range = cli_number(arguments, "range", 1e-3, 100, 6);
    run->n_bins = (int)cli_int(arguments, "bins", 1, 100000, 120);
    run->frame_fs = cli_number(arguments, "frame-time", 1e-9, 1e12, NAN);
    run->n_skipped = cli_int(arguments, "skip", 0, INT64_MAX, 0);
    if (arguments->failed) return CLI_USAGE;
    if (run->pair) {
        int end = 0;
        if (sscanf(run->pair, "%3[A-Za-z]-%3[A-Za-z]%n", first, second, &end) != 2 || run->pair[end] ||
            !(elements[0] = mlff_element_number(first)) || !(elements[1] = mlff_element_number(second)))
            return cli_usage_error(arguments, "--pair %s: give two elements, as O-H", run->pair);
    }
    if (run->element && !(elements[2] = mlff_element_number(run->element)))
        return cli_usage_error(arguments, "--element '%s' is not an element; give a symbol, as H", run->element);
    if (run->element && !cli_given(arguments, "frame-time")) return cli_usage_error(arguments, "--element needs --frame-time");
    return CLI_GOOD;
}

// What the first frame allows.
static mlff_status begin(analysis *run, const mlff_system *system, const int elements[3])
{
    mlff_status status = MLFF_OK;
    const bool has_cell = system->periodic[0] && system->periodic[1] && system->periodic[2];
    if ((has_cell && system->n_atoms > 1) || run->pair)
        MLFF_TRY(mlff_rdf_create(run->range, run->n_bins, elements[0], elements[1], &run->rdf));
    if (run->with_geometry) MLFF_TRY(mlff_geometry_create(system, &run->geometry));
    if (isnan(run->frame_fs)) return MLFF_OK;
    MLFF_TRY(mlff_msd_create(run->frame_fs, elements[2], &run->msd));
    if (system->velocities) MLFF_TRY(mlff_vdos_create(run->frame_fs, elements[2], &run->vdos));
done:
    return status;
}

static mlff_status add_value(frame_series *series, double value)
{
    const mlff_status status = base_grow(&series->values, &series->capacity, series->n + 1, sizeof *series->values, "a series");
    if (status == MLFF_OK) series->values[series->n++] = value;
    return status;
}

static mlff_status add_frame(analysis *run, const mlff_system *system)
{
    mlff_status status = MLFF_OK;
    if (run->rdf) MLFF_TRY(mlff_rdf_add(run->rdf, system));
    if (run->msd) MLFF_TRY(mlff_msd_add(run->msd, system));
    if (run->vdos) MLFF_TRY(mlff_vdos_add(run->vdos, system));
    if (run->geometry) MLFF_TRY(mlff_geometry_add(run->geometry, system));
    // A series is of all frames or of none.
    if (isfinite(system->label_energy) && run->energy.n == (size_t)run->n_frames)
        MLFF_TRY(add_value(&run->energy, system->label_energy));
    const double temperature = mlff_system_temperature(system); // NaN where no atom may move
    if (isfinite(temperature) && run->temperature.n == (size_t)run->n_frames) MLFF_TRY(add_value(&run->temperature, temperature));
    const double density = mlff_system_density(system);
    if (isfinite(density) && run->density.n == (size_t)run->n_frames) MLFF_TRY(add_value(&run->density, density));
done:
    return status;
}

typedef struct frame_times {
    double last_fs, shortest_fs, longest_fs; // of the last frame; intervals
} frame_times;

// Frames that were written more rarely than the user thinks give other displacements and frequencies.
static void check_times(analysis *run, const frame_times *times)
{
    // Times of 32 bits, as in NetCDF, have seven digits.
    const double least_digits = 1e-6 * fabs(times->last_fs), rounding = 1e-3 * run->frame_fs + least_digits;
    if (!(times->shortest_fs <= times->longest_fs)) return;
    if (times->longest_fs - times->shortest_fs <= 1e-3 * times->longest_fs + least_digits) run->interval_fs = times->longest_fs;
    if (isnan(run->frame_fs)) return;
    if (times->longest_fs - times->shortest_fs > rounding)
        cli_say("warning: the frames are %.4g to %.4g fs apart by their own times (time_fs), and are taken to be %g fs apart "
                "(--frame-time): displacements and spectra are wrong; give frames at equal intervals",
                times->shortest_fs, times->longest_fs, run->frame_fs);
    else if (fabs(times->longest_fs - run->frame_fs) > rounding)
        cli_say("warning: the frames are %.4g fs apart by their own times (time_fs), and %g fs by --frame-time, which is used",
                times->longest_fs, run->frame_fs);
}

// The next frame, or NULL at the end. Where frames were read, one that cannot be, or an interruption, ends the input.
static mlff_status next_frame(const cli_arguments *arguments, analysis *run, mlff_reader *reader, mlff_system **system_out)
{
    mlff_status status =
        cli_interrupted() ? mlff_fail(MLFF_ERR_INTERRUPTED, "interrupted") : cli_reader_next(arguments, reader, system_out);
    status = cli_in(run->path, status);
    if (status == MLFF_OK || run->n_frames == 0) return status;
    run->ended = status;
    snprintf(run->why_ended, sizeof run->why_ended, "%s", mlff_last_error());
    *system_out = NULL;
    return MLFF_OK;
}

static mlff_status read_frames(const cli_arguments *arguments, analysis *run, const int elements[3])
{
    mlff_status status = MLFF_OK;
    frame_times times = {.last_fs = NAN, .shortest_fs = INFINITY, .longest_fs = -INFINITY};
    mlff_reader *reader = NULL;
    mlff_system *system = NULL;
    MLFF_TRY(cli_reader_open(arguments, run->path, &reader));
    MLFF_TRY(cli_reader_skip(arguments, reader, run->n_skipped, &run->n_skipped));
    for (;; run->n_frames++) {
        MLFF_TRY(next_frame(arguments, run, reader, &system));
        if (!system) break;
        if (run->n_frames == 0) MLFF_TRY(begin(run, system, elements));
        times.shortest_fs = fmin(times.shortest_fs, system->time_fs - times.last_fs); // NaN of the first frame, or without times
        times.longest_fs = fmax(times.longest_fs, system->time_fs - times.last_fs);
        times.last_fs = system->time_fs;
        status = add_frame(run, system);
        if (status != MLFF_OK) MLFF_FAIL(status, "frame %" PRId64 ": %s", run->n_skipped + run->n_frames, mlff_last_error());
        mlff_system_destroy(system);
        system = NULL;
        cli_progress("analyze: %" PRId64 " frame%s", run->n_frames + 1, base_plural(run->n_frames + 1));
    }
    if (run->n_frames == 0) MLFF_TRY(cli_no_frames(run->path, run->n_skipped));
    if (run->energy.n < (size_t)run->n_frames) run->energy.n = 0;
    if (run->temperature.n < (size_t)run->n_frames) run->temperature.n = 0;
    if (run->density.n < (size_t)run->n_frames) run->density.n = 0;
    if (!run->rdf && !run->msd && !run->geometry && run->energy.n == 0 && run->temperature.n == 0)
        MLFF_FAIL(MLFF_ERR_USAGE, "no cell, energies or velocities; --geometry gives bonds, --frame-time displacements");
    check_times(run, &times);
done:
    cli_progress_clear();
    mlff_system_destroy(system);
    mlff_reader_destroy(reader);
    return cli_in(run->path, status);
}

// Blocks are longer than the correlation of most quantities; a mean of frames one after the other has too small an error otherwise.
static mlff_status evaluate_series(frame_series *series)
{
    double squares = 0, sum = 0;
    const size_t length = series->n / ANALYZE_BLOCKS;
    series->mean = series->error = series->slope = series->slope_half_width = NAN;
    for (size_t k = 0; k < series->n; k++) sum += series->values[k];
    if (series->n > 0) series->mean = sum / (double)series->n;
    if (series->n > 0 && !(series->beyond = base_alloc(series->n, sizeof *series->beyond, "a series"))) return MLFF_ERR_MEMORY;
    for (size_t k = 0; k < series->n; k++) series->beyond[k] = series->values[k] - series->mean;
    if (length < 2) return MLFF_OK;
    for (size_t b = 0; b < ANALYZE_BLOCKS; b++) {
        double mean = 0;
        for (size_t k = 0; k < length; k++) mean += series->values[b * length + k] / (double)length;
        squares += (mean - series->mean) * (mean - series->mean);
    }
    series->error = sqrt(squares / (ANALYZE_BLOCKS - 1) / ANALYZE_BLOCKS);
    base_slope(NULL, series->values, (int64_t)series->n, ANALYZE_BLOCKS, &series->slope, &series->slope_half_width);
    return MLFF_OK;
}

static mlff_status evaluate(analysis *run)
{
    mlff_status status = MLFF_OK;
    const size_t n = (size_t)run->n_bins;
    MLFF_TRY(evaluate_series(&run->energy));
    MLFF_TRY(evaluate_series(&run->temperature));
    MLFF_TRY(evaluate_series(&run->density));
    if (!(run->values = base_alloc(4 * n, sizeof *run->values, "radial distribution"))) return MLFF_ERR_MEMORY;
    if (run->rdf) mlff_rdf_get(run->rdf, run->values, run->values + n, run->values + 2 * n, run->values + 3 * n);
    if (run->vdos && (run->n_points = mlff_vdos_size(run->vdos)) > 0) {
        const size_t points = (size_t)run->n_points;
        if (!(run->spectrum = base_alloc(3 * points, sizeof *run->spectrum, "spectrum"))) return MLFF_ERR_MEMORY;
        MLFF_TRY(mlff_vdos_get(run->vdos, run->spectrum, run->spectrum + points, run->spectrum + 2 * points));
    }
    if (!run->msd) return MLFF_OK;
    run->n_lags = run->n_frames / 2 < ANALYZE_MAX_LAGS ? (int)(run->n_frames / 2) : ANALYZE_MAX_LAGS;
    for (int k = 0; k < run->n_lags; k++) run->lags[k] = (k + 1) * run->frame_fs;
    mlff_msd_get(run->msd, run->n_lags, run->displacement);
    mlff_msd_diffusion(run->msd, &run->diffusion, &run->half_width);
done:
    return status;
}

static int run_analyze(cli_arguments *arguments)
{
    mlff_status status = MLFF_OK;
    analysis run = {.interval_fs = NAN};
    int elements[3] = {0};
    int exit_status = parse(arguments, &run, elements);
    if (exit_status != CLI_GOOD) return exit_status;
    cli_interrupt_catch();
    run.path = arguments->positional[0];
    MLFF_TRY(cli_output_check(run.page));
    MLFF_TRY(read_frames(arguments, &run, elements));
    MLFF_TRY(evaluate(&run));
    if (run.page && run.ended == MLFF_OK) exit_status = cli_exit(analyze_write_page(&run)); // the tables are shown all the same
    if (cli_given(arguments, "json"))
        analyze_print_json(&run);
    else
        analyze_print_tables(&run);
    if (run.ended != MLFF_OK)
        MLFF_FAIL(run.ended, "%s; the %" PRId64 " frame%s before %s shown%s", run.why_ended, run.n_frames,
                  base_plural(run.n_frames), run.n_frames == 1 ? "it is" : "it are", run.page ? ", and no page is written" : "");
done:
    base_free(run.energy.values);
    base_free(run.energy.beyond);
    base_free(run.temperature.values);
    base_free(run.temperature.beyond);
    base_free(run.density.values);
    base_free(run.density.beyond);
    base_free(run.spectrum);
    mlff_vdos_destroy(run.vdos);
    mlff_geometry_destroy(run.geometry);
    base_free(run.values);
    mlff_rdf_destroy(run.rdf);
    mlff_msd_destroy(run.msd);
    return cli_first(exit_status, status);
}

const cli_command analyze_command = {
    .name = "analyze",
    .summary = "structure, motion, spectrum and energies of a trajectory",
    .usage = "TRAJECTORY [--topology FILE] [--pair A-B] [--frame-time FS] [--skip N] [--geometry] [--html PAGE]\n"
             " [OPTIONS]",
    .details =
        "The radial distribution needs a cell that is periodic along three axes. Its errors are standard errors from blocks of\n"
        "frames. --frame-time adds the mean square displacement and the diffusion coefficient, and, if frames have velocities, "
        "the\n"
        "vibrational density of states. They hold all frames in memory; the last two need 100 of them. Energies, temperatures\n"
        "and densities are printed with the standard error of ten blocks and the slope of a fit.",
    .examples = "mlff analyze water.extxyz --pair O-O --frame-time 10\n"
                "mlff analyze ethanol.extxyz --frame-time 1 --geometry --html ethanol.html\n"
                "mlff analyze water.dcd --topology water.extxyz --pair O-O\n"
                "mlff analyze silicon.extxyz --range 8 --json",
    .options = options,
    .min_positional = 1,
    .max_positional = 1,
    .run = run_analyze,
};
