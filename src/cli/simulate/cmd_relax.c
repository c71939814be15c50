// SPDX-License-Identifier: MIT
// cmd_relax.c: mlff relax: the structures of a file to minima of the energy, many at once; results in the order of the file.
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "cli/support/cli.h"

static const cli_option options[] = {
    {"output", 'o', "FILE",
     "relaxed structures: .extxyz (energy, forces, steps and how each ended too), .lammpstrj, .dump, .dcd, .nc;\n- is standard "
     "output"},
    CLI_FORMAT_OPTION,
    CLI_READER_OPTIONS,
    CLI_SKIP_OPTION,
    CLI_SYSTEM_OPTIONS,
    {"optimizer", 0, "NAME", "lbfgs, or fire, which is slower but more robust for noisy energies (lbfgs)"},
    {"fmax", 0, "EV_PER_ANG", "converged when no force on a free atom is longer than this, eV/Å (0.05)"},
    {"max-steps", 0, "N", "most steps of one structure (1000)"},
    {"cell", 0, NULL, "relax the cell as well; it must be periodic along three axes"},
    {"pressure", 0, "BAR", "with --cell: pressure, bar; 10000 bar are 1 GPa (0)"},
    {"stress-max", 0, "BAR", "with --cell: converged when no component of stress plus pressure exceeds this, bar (500)"},
    {"no-symmetry", 0, NULL, "with --cell: do not enforce the initial symmetry of a crystal"},
    {"batch", 0, "B", "structures relaxed at once; a finished one is replaced by the next (64; on a GPU 256)"},
    {"json", 0, NULL, "results and summary as JSON on standard output"},
    CLI_EVALUATOR_OPTIONS,
    {0}};

static const char *const optimizers[] = {"fire", "lbfgs", NULL};                         // by mlff_optimizer
static const char *const ends[] = {"converged", "max_steps", "failed", "stopped", NULL}; // by mlff_relax_end

// A structure from the reader until it is written, in the order of the file.
typedef struct entry {
    mlff_system *system;
    mlff_relaxed result;
    double *forces; // a copy
    char *error;
    bool finished;
} entry;

typedef struct relaxing {
    const cli_arguments *arguments;
    cli_setup setup;
    mlff_relax_options options;
    const char *input, *output;
    mlff_reader *reader;
    mlff_system *built; // of --system, in place of a reader's frames; NULL once it was taken
    mlff_writer *writer;
    entry *entries; // [capacity] those not yet written: number n_written is the first
    size_t capacity;
    int64_t n_skipped, n_read, n_written;
    mlff_status reading, writing; // of a structure that cannot be read or checked, or not written
    char unread[1024];
    bool table, to_json;
    cli_json json;
    int64_t n_ends[4], n_steps, begun_ns;
} relaxing;

static void print_header(const relaxing *run)
{
    const mlff_relax_options *o = &run->options;
    cli_setup_print(&run->setup);
    printf("%s to forces below %g eV/Å%s, %d at once\n", o->optimizer == MLFF_FIRE ? "FIRE" : "L-BFGS", o->force_limit,
           o->relax_cell ? ", positions and cell" : "", o->n_at_once);
    printf("%8s %7s %18s %14s %12s", "frame", "atoms", "energy", "change", "max |F|");
    if (o->relax_cell) printf(" %12s %12s", "max |stress|", "volume");
    printf(" %7s %s\n%8s %7s %18s %14s %12s", "steps", "end", "", "", "eV", "eV", "eV/Å");
    if (o->relax_cell) printf(" %12s %14s", "bar", "Å³"); // two bytes more than characters
    printf("\n");
}

static void show(relaxing *run, const entry *e)
{
    const mlff_relaxed *r = &e->result;
    if (run->table) {
        printf("%8" PRId64 " %7d", run->n_skipped + run->n_written, e->system->n_atoms);
        if (isfinite(r->energy))
            printf(" %18.6f %14.6f %12.5f", r->energy, r->energy - r->start_energy, r->largest_force);
        else
            printf(" %18s %14s %12s", "-", "-", "-");
        if (run->options.relax_cell && isfinite(r->energy))
            printf(" %12.1f %12.3f", r->largest_stress / CLI_EV_ANG3_PER_BAR, mlff_system_volume(e->system));
        else if (run->options.relax_cell)
            printf(" %12s %12s", "-", "-");
        printf(" %7" PRId64 " %s\n", r->n_steps, ends[r->end]);
        fflush(stdout);
    }
    if (r->end == MLFF_RELAX_FAILED)
        cli_say("%s, frame %" PRId64 ": %s", run->input, run->n_skipped + run->n_written, e->error ? e->error : "failed");
    if (!run->to_json) return;
    cli_json *json = &run->json;
    cli_json_object(json, NULL);
    cli_json_int(json, "n_atoms", e->system->n_atoms);
    cli_json_text(json, "end", ends[r->end]);
    cli_json_int(json, "n_steps", r->n_steps);
    cli_json_number(json, "start_energy_ev", r->start_energy);
    cli_json_number(json, "energy_ev", r->energy);
    cli_json_number(json, "largest_force_ev_per_ang", r->largest_force);
    if (run->options.relax_cell) {
        cli_json_number(json, "largest_stress_bar", r->largest_stress / CLI_EV_ANG3_PER_BAR);
        cli_json_number(json, "volume_ang3", mlff_system_volume(e->system));
    }
    if (e->error) cli_json_text(json, "error", e->error);
    cli_json_end(json, '}');
}

static void entry_free(entry *e)
{
    mlff_system_destroy(e->system);
    base_free(e->forces);
    base_free(e->error);
    *e = (entry){0};
}

// Writes the finished structures that none is missing before, `most` at most.
static mlff_status write_finished(relaxing *run, size_t most)
{
    size_t n = 0;
    const size_t n_held = (size_t)(run->n_read - run->n_written);
    for (; n < n_held && n < most && run->entries[n].finished; n++, run->n_written++) {
        entry *e = &run->entries[n];
        char comment[96];
        snprintf(comment, sizeof comment, "relax_end=%s relax_steps=%" PRId64, ends[e->result.end], e->result.n_steps);
        const mlff_frame_results results = {
            .energy = e->result.energy, .forces = e->forces, .step = -1, .time_fs = NAN, .comment = comment};
        if (run->writer && (run->writing = mlff_writer_write(run->writer, e->system, &results)) != MLFF_OK) break;
        show(run, e);
        entry_free(e);
    }
    if (n) memmove(run->entries, run->entries + n, (n_held - n) * sizeof *run->entries);
    return run->writing;
}

static mlff_status take_next(relaxing *run, mlff_system **system_out)
{
    mlff_status status = MLFF_OK;
    mlff_system *system = NULL;
    const size_t n_held = (size_t)(run->n_read - run->n_written);
    MLFF_TRY(base_grow(&run->entries, &run->capacity, n_held + 1, sizeof *run->entries, "structures"));
    if (run->reader) {
        MLFF_TRY(cli_reader_next(run->arguments, run->reader, &system));
    } else {
        system = run->built;
        run->built = NULL;
    }
    if (system && cli_model_check_elements(run->setup.model, system, "elements") != MLFF_OK)
        MLFF_FAIL(MLFF_ERR_ELEMENT, "%s, frame %" PRId64 ": %s", run->input, run->n_skipped + run->n_read, mlff_last_error());
    if (system) system->config_type[0] = 0; // of the input: a relaxed structure is made otherwise
    if (system) run->entries[n_held] = (entry){.system = system};
    if (system && run->n_read++ == 0 && run->table) print_header(run); // not above an error
    *system_out = system;
    system = NULL;
done:
    mlff_system_destroy(system);
    return status;
}

// A structure that cannot be read or checked ends the input; those before it are relaxed.
static mlff_status next(void *context, mlff_system **system_out)
{
    relaxing *run = context;
    *system_out = NULL;
    if (cli_interrupted()) return mlff_fail(MLFF_ERR_INTERRUPTED, "interrupted");
    if (cli_reader_left() && !run->writer) return MLFF_OK;
    run->reading = take_next(run, system_out);
    if (run->reading == MLFF_ERR_INTERRUPTED || run->n_read == 0) return run->reading;
    if (run->reading != MLFF_OK) snprintf(run->unread, sizeof run->unread, "%s", mlff_last_error());
    return MLFF_OK;
}

static mlff_status finished(void *context, mlff_system *system, const mlff_relaxed *result)
{
    relaxing *run = context;
    entry *e = run->entries;
    while (e->system != system) e++;
    e->result = *result;
    e->finished = true;
    run->n_ends[result->end]++;
    run->n_steps += result->n_steps;
    if (result->forces) {
        const size_t n = 3 * (size_t)system->n_atoms;
        if (!(e->forces = base_alloc(n, sizeof *e->forces, "forces"))) return MLFF_ERR_MEMORY;
        memcpy(e->forces, result->forces, n * sizeof *e->forces);
    }
    if (*result->error) e->error = base_strdup(result->error);
    cli_progress("relax: %" PRId64 " of %" PRId64 " structure%s read ended", run->n_ends[0] + run->n_ends[1] + run->n_ends[2],
                 run->n_read, base_plural(run->n_read));
    if (result->end == MLFF_RELAX_STOPPED) return MLFF_OK;
    // The others' steps wait for this call: what one slow structure held back is written little by little.
    const mlff_status status = write_finished(run, 2);
    return status == MLFF_OK && cli_interrupted() ? mlff_fail(MLFF_ERR_INTERRUPTED, "interrupted") : status;
}

static int stopped(void *context)
{
    (void)context;
    return cli_interrupted();
}

static void summarize(relaxing *run, bool partial)
{
    const double seconds = (double)(mlff_clock_ns() - run->begun_ns) * 1e-9;
    const int64_t n = run->n_ends[MLFF_RELAX_CONVERGED] + run->n_ends[MLFF_RELAX_STEPS] + run->n_ends[MLFF_RELAX_FAILED];
    if (run->table && run->n_read > 0)
        printf("\n%" PRId64 " structure%s in %.3f s: %.2f structures/s, %.1f steps on average; %" PRId64 " converged, %" PRId64
               " reached --max-steps, %" PRId64 " failed\n",
               n, base_plural(n), seconds, (double)n / seconds, n ? (double)run->n_steps / (double)n : 0.0,
               run->n_ends[MLFF_RELAX_CONVERGED], run->n_ends[MLFF_RELAX_STEPS], run->n_ends[MLFF_RELAX_FAILED]);
    if (!run->to_json) return;
    cli_json *json = &run->json;
    cli_json_end(json, ']');
    cli_json_object(json, "summary");
    cli_json_text(json, "model", run->setup.info.name);
    cli_json_bool(json, "trained", run->setup.info.trained);
    cli_json_text(json, "device", run->setup.device);
    cli_json_text(json, "precision", run->setup.precision);
    cli_json_text(json, "optimizer", optimizers[run->options.optimizer]);
    cli_json_number(json, "force_limit_ev_per_ang", run->options.force_limit);
    cli_json_bool(json, "partial", partial);
    cli_json_int(json, "n_structures", n);
    cli_json_int(json, "n_converged", run->n_ends[MLFF_RELAX_CONVERGED]);
    cli_json_int(json, "n_max_steps", run->n_ends[MLFF_RELAX_STEPS]);
    cli_json_int(json, "n_failed", run->n_ends[MLFF_RELAX_FAILED]);
    cli_json_int(json, "n_steps", run->n_steps);
    cli_json_number(json, "total_time_s", seconds);
    cli_json_number(json, "structures_per_second", (double)n / seconds);
    cli_json_end(json, '}');
    cli_json_end(json, '}');
}

static int parse(cli_arguments *arguments, relaxing *run)
{
    mlff_relax_options *o = &run->options;
    *o = mlff_relax_options_default();
    o->optimizer = (mlff_optimizer)cli_choice(arguments, "optimizer", optimizers, MLFF_LBFGS);
    o->force_limit = cli_number(arguments, "fmax", 1e-9, 1e3, 0.05);
    o->max_steps = cli_int(arguments, "max-steps", 0, INT64_MAX, 1000);
    o->relax_cell = cli_given(arguments, "cell");
    o->keep_symmetry = !cli_given(arguments, "no-symmetry");
    o->pressure = CLI_EV_ANG3_PER_BAR * cli_number(arguments, "pressure", -1e7, 1e8, 0);
    o->stress_limit = CLI_EV_ANG3_PER_BAR * cli_number(arguments, "stress-max", 1e-6, 1e8, 500);
    o->n_at_once = (int)cli_int(arguments, "batch", 1, 65536, 64);
    run->n_skipped = cli_int(arguments, "skip", 0, INT64_MAX, 0);
    run->output = cli_text(arguments, "output", NULL);
    run->to_json = cli_given(arguments, "json");
    const bool frames_to_stdout = run->output && strcmp(run->output, "-") == 0;
    run->table = !run->to_json && !frames_to_stdout;
    if (arguments->failed) return CLI_USAGE;
    if (run->to_json && frames_to_stdout) return cli_usage_error(arguments, "--json and -o - cannot both have standard output");
    if (cli_given(arguments, "pressure") && !o->relax_cell) return cli_usage_error(arguments, "--pressure needs --cell");
    if (cli_given(arguments, "stress-max") && !o->relax_cell) return cli_usage_error(arguments, "--stress-max needs --cell");
    if (!o->keep_symmetry && !o->relax_cell) return cli_usage_error(arguments, "--no-symmetry needs --cell");
    return cli_format_check(arguments, run->output);
}

// What a failure leaves: structures that ended, up to the first that did not; what Ctrl-C leaves also has those under way, from the first
// of which --skip goes on.
static mlff_status keep(relaxing *run, mlff_status cause)
{
    cli_kept kept = cli_kept_begin(cause);
    const size_t n_held = (size_t)(run->n_read - run->n_written);
    size_t n = 0;
    while (n < n_held && run->entries[n].finished && run->entries[n].result.end != MLFF_RELAX_STOPPED) n++;
    const int64_t n_ended = run->n_written + (int64_t)n;
    if (run->writing == MLFF_OK) (void)write_finished(run, cause == MLFF_ERR_INTERRUPTED ? SIZE_MAX : n);
    cli_kept_frames(&kept, run->writer, "structure");
    run->writer = NULL;
    if (kept.n_least > n_ended) kept.n_least = n_ended;
    return cli_kept_tell_skip(&kept, run->n_skipped);
}

static void tell_interrupted(const relaxing *run)
{
    const int64_t n = run->n_ends[MLFF_RELAX_CONVERGED] + run->n_ends[MLFF_RELAX_STEPS] + run->n_ends[MLFF_RELAX_FAILED];
    if (run->n_read == 0)
        mlff_fail(MLFF_ERR_INTERRUPTED, "interrupted before a structure was read; no file is written");
    else
        mlff_fail(MLFF_ERR_INTERRUPTED, "interrupted after %" PRId64 " structure%s", n, base_plural(n));
}

// The built-in system, where there is no INPUT.
static int take_system(cli_arguments *arguments, relaxing *run)
{
    cli_input input = {0};
    if (run->input && cli_given(arguments, "system"))
        return cli_usage_error(arguments, "INPUT '%s' and --system exclude each other", run->input);
    if (!run->input && run->n_skipped > 0) return cli_usage_error(arguments, "--skip needs INPUT");
    if (run->input && cli_given(arguments, "n-atoms"))
        return cli_usage_error(arguments, "--n-atoms goes with --system; '%s' has its own atoms", run->input);
    if (run->input) return CLI_GOOD;
    int exit_status = cli_input_make(arguments, NULL, NULL, 0, &input);
    if (exit_status == CLI_GOOD) exit_status = cli_exit(cli_input_check(run->setup.model, &input));
    if (exit_status == CLI_GOOD) {
        run->built = input.system;
        input.system = NULL;
        run->input = cli_text(arguments, "system", NULL);
    }
    cli_input_free(&input);
    return exit_status;
}

static int run_relax(cli_arguments *arguments)
{
    mlff_status status = MLFF_OK, relaxed;
    relaxing run = {.arguments = arguments, .input = arguments->n_positional > 1 ? arguments->positional[1] : NULL};
    int exit_status = parse(arguments, &run);
    if (exit_status == CLI_GOOD) exit_status = cli_setup_make(arguments, &run.setup);
    if (exit_status == CLI_GOOD) exit_status = take_system(arguments, &run);
    if (exit_status != CLI_GOOD) {
        cli_setup_free(&run.setup);
        return exit_status;
    }
    if (!cli_given(arguments, "batch") && run.setup.evaluator_info.device.kind != MLFF_CPU) run.options.n_at_once = 256;
    MLFF_TRY(cli_output_check(run.output));
    if (!run.built) MLFF_TRY(cli_reader_open(arguments, run.input, &run.reader));
    if (run.output) MLFF_TRY(mlff_writer_open(run.output, cli_text(arguments, "format", NULL), 0, &run.writer));
    cli_interrupt_catch();
    if (run.reader) MLFF_TRY(cli_reader_skip(arguments, run.reader, run.n_skipped, &run.n_skipped));
    run.begun_ns = mlff_clock_ns();
    if (run.to_json) {
        run.json.file = stdout;
        cli_json_object(&run.json, NULL);
        cli_json_array(&run.json, "structures");
    }
    relaxed = mlff_relax(run.setup.evaluator, &run.options, &(mlff_relax_queue){next, finished, &run, stopped});
    if (relaxed == MLFF_OK) relaxed = write_finished(&run, SIZE_MAX);
    if (relaxed == MLFF_OK && run.n_read == 0) relaxed = cli_no_frames(run.input, run.n_skipped);
    if (relaxed == MLFF_OK && run.reading != MLFF_OK) relaxed = mlff_fail(run.reading, "%s", run.unread);
    if (relaxed == MLFF_ERR_INTERRUPTED) tell_interrupted(&run);
    if (relaxed != MLFF_OK) status = keep(&run, relaxed);
    cli_progress_clear();
    summarize(&run, relaxed != MLFF_OK);
    MLFF_TRY(status);
    if (run.writer) {
        exit_status = cli_first(exit_status, mlff_writer_close(run.writer));
        run.writer = NULL;
    }
    if (run.n_ends[MLFF_RELAX_FAILED] > 0)
        MLFF_FAIL(MLFF_ERR_VALUE, "%" PRId64 " of %" PRId64 " structure%s could not be relaxed", run.n_ends[MLFF_RELAX_FAILED],
                  run.n_read, base_plural(run.n_read));
done:
    mlff_writer_destroy(run.writer);
    mlff_reader_destroy(run.reader);
    mlff_system_destroy(run.built);
    for (int64_t k = 0; k < run.n_read - run.n_written; k++) entry_free(&run.entries[k]);
    base_free(run.entries);
    cli_setup_free(&run.setup);
    return cli_first(exit_status, status);
}

const cli_command relax_command = {
    .name = "relax",
    .summary = "structures to minima of the energy, many at once",
    .usage = "MODEL INPUT|--system NAME [-o RELAXED.extxyz] [--fmax F] [--optimizer lbfgs|fire] [--cell] [OPTIONS]",
    .details =
        "Relaxes every frame of INPUT (- is standard input), --batch of them at once; a finished one is replaced by the next.\n"
        "--system takes a built-in system instead. Fixed atoms do not move. The output has the structures in the order of\n"
        "INPUT, with energy, forces, relax_steps and relax_end: converged, max_steps, or stopped (by Ctrl-C, without energy).\n"
        "If the forces of a structure cannot be computed, its name and the reason are printed, it is written unchanged with\n"
        "relax_end=failed, the others continue, and the exit status is 1. With --cell the minimum is that of E + P V, and a\n"
        "crystal of up to 400 atoms keeps its initial symmetry (lattice to 1e-4, atoms to 0.001 Å). If a structure cannot be "
        "read or\n"
        "written, and after Ctrl-C, those before are kept, in NAME-partial.SUFFIX, and the error tells how --skip goes on. A "
        "file\n"
        "of the name NAME.SUFFIX stays as it was.",
    .examples = "mlff relax ethanol --system ethanol -o minimum.extxyz --fmax 0.001\n"
                "mlff relax fennol-ani2x ligands.extxyz -o relaxed.extxyz --fmax 0.01\n"
                "mlff relax silicon.safetensors POSCAR -o relaxed.extxyz --cell --pressure 10000",
    .options = options,
    .min_positional = 1,
    .max_positional = 2,
    .run = run_relax,
};
