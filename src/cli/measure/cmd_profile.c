// SPDX-License-Identifier: MIT
// cmd_profile.c: mlff profile: where the time of a step goes.
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "cli/support/cli.h"
#include "compare_runs.h"
#include "mlff_label.h"
#include "profile_files.h"
#include "profile_runs.h"
#include "profile_teacher.h"

static const cli_option options[] = {
    CLI_SYSTEM_OPTIONS,
    {"trajectory", 0, "KIND",
     "thermal: a new thermal displacement at each step; md: MD run by the model itself; file: the\nframes of "
     "INPUT, again from the start when they end (file for an INPUT, thermal for a --system)"},
    {"n-steps", 0, "K", "steps that are measured (100; 1000 and more to see a leak)"},
    {"warmup", 0, "W", "steps before the measurement, reported separately (10)"},
    {"runs", 0, "N", "measure N times, each time in a new process (1; 5 or more for mlff compare)"},
    {"system-sizes", 0, "LIST",
     "measure a --system with each of these numbers of atoms, such as 32,64,128,256, and the growth of the step"},
    {"what-if", 0, "LIST", "forecast a step with faster stages: message=2x,readout=0"},
    {"print-nsys", 0, NULL, "print the commands of Nsight Systems and Nsight Compute for this run, and exit"},
    {"properties", 0, "LIST", "results to compute: energy, forces, stress (energy,forces)"},
    {"output", 'o', "FILE", "write the report as JSON; - is the same as --json"},
    {"full", 0, NULL, "print the whole report instead of the summary"},
    {"json", 0, NULL, "print the report as JSON on standard output instead of the text"},
    {"until-precision", 0, "PCT", "end before --n-steps when the 95 % interval of --precision-of is within ± this, %"},
    {"precision-of", 0, "NAME", "percentile for --until-precision: median, p95 or p99 (median)"},
    {"trace", 0, "FILE", "write the first 200 steps as a timeline (Chrome trace: Perfetto, TensorBoard)"},
    {"kernels", 0, "N",
     "after the run, trace N more steps with CUPTI: the GPU's kernels by name, and the device's part of\nthe step budget "
     "(0; 20 are enough)"},
    {"temperature", 0, "K", "temperature of thermal displacements and of the start of MD, K (300)"},
    {"timestep", 0, "FS", "timestep of MD, also used for ns/day, fs (0.5; for ns/day without MD: 1)"},
    {"ensemble", 0, "NAME", "ensemble of MD: nve or langevin (nve)"},
    {"seed", 0, "S", "seed of all random numbers (0)"},
    {"name", 0, "TEXT", "name of this profile in reports (model and system)"},
    CLI_READER_OPTIONS,
    CLI_EVALUATOR_OPTIONS,
    {0}};

enum { THERMAL, MD, FRAMES };
static const char *const trajectories[] = {"thermal", "md", "file", NULL};
static const char *const ensembles[] = {"nve", "langevin", NULL};

// "energy,forces" as flags; 0 if it is not that.
static unsigned parse_properties(const char *text)
{
    static const struct {
        const char *name;
        unsigned flag;
    } known[] = {{"energy", MLFF_ENERGY}, {"forces", MLFF_FORCES}, {"stress", MLFF_STRESS}};
    unsigned properties = 0;
    while (*text) {
        size_t length = strcspn(text, ",");
        unsigned flag = 0;
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
            if (strlen(known[i].name) == length && strncmp(text, known[i].name, length) == 0) flag = known[i].flag;
        if (!flag) return 0;
        properties |= flag;
        text += length;
        if (*text == ',' && *++text == 0) return 0;
    }
    return properties;
}

typedef struct progress_state {
    int64_t start_ns;
} progress_state;

static int on_progress(void *context, int64_t step, int64_t n_steps)
{
    progress_state *state = context;
    if (step < 0) {
        cli_progress("profile: warm-up");
    } else {
        if (!state->start_ns) state->start_ns = mlff_clock_ns();
        cli_progress_steps("profile", step, n_steps, state->start_ns);
    }
    return cli_interrupted();
}

typedef struct request {
    int kind;
    double temperature;
    mlff_dynamics_options dynamics;
    mlff_profile_options options;
    const char *path, *json_path, *what_if;
    bool json, full, quiet;
    int n_runs;
} request;

static int parse(cli_arguments *arguments, request *wanted)
{
    const char *path = arguments->n_positional > 1 ? arguments->positional[1] : NULL;
    const char *properties = cli_text(arguments, "properties", "energy,forces");

    wanted->path = path;
    wanted->json_path = cli_text(arguments, "output", NULL);
    wanted->what_if = cli_text(arguments, "what-if", NULL);
    wanted->json = cli_given(arguments, "json");
    wanted->full = cli_given(arguments, "full");
    wanted->quiet = arguments->quiet;
    if (wanted->json_path && strcmp(wanted->json_path, "-") == 0) { // one thing on standard output
        wanted->json = true;
        wanted->json_path = NULL;
    }
    wanted->kind = cli_choice(arguments, "trajectory", trajectories, path ? FRAMES : THERMAL);
    wanted->temperature = cli_number(arguments, "temperature", 0, 1e6, 300);
    wanted->dynamics = mlff_dynamics_options_default();
    wanted->dynamics.timestep_fs = cli_number(arguments, "timestep", 1e-6, 100, 0.5);
    wanted->dynamics.ensemble = cli_choice(arguments, "ensemble", ensembles, 0) == 1 ? MLFF_LANGEVIN : MLFF_NVE;
    wanted->dynamics.temperature_kelvin = wanted->temperature;
    wanted->dynamics.seed = (uint64_t)cli_int(arguments, "seed", 0, INT64_MAX, 0);
    wanted->options = mlff_profile_options_default();
    wanted->options.n_steps = cli_int(arguments, "n-steps", 1, INT64_MAX, 100);
    wanted->options.n_warmup = cli_int(arguments, "warmup", 0, INT64_MAX, 10);
    if (cli_given(arguments, "timestep")) wanted->options.timestep_fs = wanted->dynamics.timestep_fs;
    static const char *const percentiles[] = {"median", "p95", "p99", NULL};
    static const double fractions[] = {0.5, 0.95, 0.99};
    wanted->options.until_precision = cli_number(arguments, "until-precision", 0.001, 100, 0) / 100;
    wanted->options.precision_of = fractions[cli_choice(arguments, "precision-of", percentiles, 0)];
    wanted->options.trace_path = cli_text(arguments, "trace", NULL);
    wanted->options.kernels = cli_int(arguments, "kernels", 0, 10000, 0);
    wanted->n_runs = (int)cli_int(arguments, "runs", 1, 1000, 1);
    wanted->options.name = cli_text(arguments, "name", NULL);
    if (arguments->failed) return CLI_USAGE;
    wanted->options.properties = parse_properties(properties);
    if (!wanted->options.properties)
        return cli_usage_error(arguments, "--properties '%s' is not a list of energy, forces, stress", properties);
    if (wanted->quiet && wanted->full) return cli_usage_error(arguments, "--quiet prints no report; it excludes --full");
    if (cli_given(arguments, "precision-of") && !cli_given(arguments, "until-precision"))
        return cli_usage_error(arguments, "--precision-of needs --until-precision");
    if (wanted->what_if && (wanted->n_runs > 1 || cli_given(arguments, "system-sizes")))
        return cli_usage_error(arguments, "--what-if needs a single run; it excludes --runs and --system-sizes");
    if (wanted->what_if && (wanted->json || wanted->quiet))
        return cli_usage_error(arguments, "--what-if prints its forecast behind the text; it excludes --json and --quiet");
    if (wanted->options.trace_path && (wanted->n_runs > 1 || cli_given(arguments, "system-sizes")))
        return cli_usage_error(arguments, "--trace needs a single run; it excludes --runs and --system-sizes");
    if (cli_given(arguments, "system-sizes") && (path || cli_given(arguments, "n-atoms") || wanted->n_runs > 1))
        return cli_usage_error(arguments, "--system-sizes goes with --system, and excludes INPUT, --n-atoms and --runs");
    if (wanted->kind == FRAMES && !path) return cli_usage_error(arguments, "--trajectory file needs an INPUT");
    if (wanted->kind != MD && cli_given(arguments, "ensemble"))
        return cli_usage_error(arguments, "--ensemble needs --trajectory md");
    if (wanted->kind == FRAMES && cli_given(arguments, "temperature"))
        return cli_usage_error(arguments, "--temperature is of thermal and md trajectories; INPUT has the frames");
    if (wanted->kind == MD && !(wanted->options.properties & MLFF_FORCES))
        return cli_usage_error(arguments, "--trajectory md needs forces among --properties");
    return CLI_GOOD;
}

static mlff_status make_trajectory(const cli_arguments *arguments, const request *wanted, mlff_system *system,
                                   mlff_trajectory **trajectory_out)
{
    mlff_status status = MLFF_OK;
    switch (wanted->kind) {
    case FRAMES: return cli_trajectory_file(arguments, wanted->path, trajectory_out);
    case MD:
        if (!system->velocities) MLFF_TRY(mlff_system_thermalize(system, wanted->temperature, wanted->dynamics.seed));
        return mlff_trajectory_md(system, &wanted->dynamics, trajectory_out);
    default: return mlff_trajectory_thermal(system, wanted->temperature, wanted->dynamics.seed, trajectory_out);
    }
done:
    return status;
}

static mlff_status report_text(const request *wanted, const mlff_profile *profile, char **text_out)
{
    return wanted->full ? mlff_profile_text(profile, cli_width(), text_out)
                        : mlff_profile_text_short(profile, cli_width(), text_out);
}

// A file that cannot be written does not keep the report from being shown; it sets *exit_status.
static mlff_status report(const request *wanted, const mlff_profile *profile, char kept[PATH_MAX], int *exit_status)
{
    mlff_status status = MLFF_OK;
    mlff_profile_summary summary;
    char *text = NULL;
    const char *asked = getenv(COMPARE_REPORT); // by mlff compare --run
    if (asked) MLFF_TRY(mlff_profile_save(profile, asked));
    mlff_profile_summary_get(profile, &summary);
    *exit_status = cli_first(*exit_status, profile_file_save(profile, summary.partial, wanted->json_path, kept));
    if (wanted->quiet && !wanted->json) return MLFF_OK;
    MLFF_TRY(wanted->json ? mlff_profile_json(profile, &text) : report_text(wanted, profile, &text));
    fputs(text, stdout);
    if (*text && text[strlen(text) - 1] != '\n') putchar('\n');
    if (wanted->what_if && !wanted->json) {
        mlff_text_free(text);
        text = NULL;
        MLFF_TRY(mlff_profile_what_if(profile, wanted->what_if, NULL, &text));
        printf("\n%s", text);
    }
done:
    mlff_text_free(text);
    return status;
}

// On a busy machine fewer threads may be faster. Single runs there differ by more than threads do: one thread and all of them take
// turns as processes, and the answer is given where the same test as in mlff compare is sure of it.
static void try_one_thread(const cli_arguments *arguments, const cli_setup *setup, const mlff_profile *profile)
{
    enum { RUNS = 5 }; // the fewest that can tell
    static const int64_t limit_ns = 4000000000, run_ms = 200;
    double all[RUNS] = {0}, one[RUNS] = {0};
    char steps[24];
    mlff_comparison_row row;
    mlff_profile_summary now;
    bool busy = mlff_profile_cpu_wait(profile) > 0.05, several = setup->evaluator_info.n_threads > 1;
    if (!busy || !several || strncmp(setup->device, "cpu", 3) != 0 || profile_is_child()) return;
    mlff_profile_summary_get(profile, &now);
    int n_steps = (int)fmin(fmax((double)run_ms / now.latency_ms.mean, 20.0), 100.0);
    snprintf(steps, sizeof steps, "%d", n_steps);
    const char *const few[] = {"n-steps", steps, "threads", "1", NULL}, *const many[] = {"n-steps", steps, NULL};
    int64_t begun = mlff_clock_ns();
    fflush(stdout); // the report is read meanwhile
    for (int i = 0; i < 2 * RUNS; i++) {
        mlff_profile *run = NULL;
        if (mlff_clock_ns() - begun > limit_ns || cli_interrupted()) return;
        if (profile_child(arguments, i % 2 ? few : many, i % 2 ? "one thread" : "all threads", true, &run) != MLFF_OK) return;
        mlff_profile_summary_get(run, &now);
        double *runs = i % 2 ? one : all;
        runs[i / 2] = now.latency_ms.mean;
        mlff_profile_destroy(run);
    }
    if (mlff_compare_values(all, RUNS, one, RUNS, NULL, &row) != MLFF_OK || row.change != MLFF_FASTER) return;
    printf(
        "\nOn this busy machine one thread is faster: --threads 1 takes %.4g times as long as %d threads (between %.4g and %.4g "
        "at 95 %%; means of %d steps, %d runs each)\n",
        row.ratio, setup->evaluator_info.n_threads, row.low, row.high, n_steps, RUNS);
}

// A leak in some of them, which are of processes of their own.
static mlff_status tell_leaks(mlff_profile *const *profiles, int n, const char *what)
{
    int n_leaking = 0;
    for (int i = 0; i < n; i++) n_leaking += mlff_profile_leaks(profiles[i]) > 0;
    if (n_leaking == 0) return MLFF_OK;
    return mlff_fail(MLFF_ERR_VALUE, "memory leaks in %d of %d %s%s: see \"Memory\" in the report", n_leaking, n, what,
                     base_plural(n));
}

static int run_many(cli_arguments *arguments, const request *wanted)
{
    mlff_status status = MLFF_OK;
    mlff_profile **profiles = NULL;
    const char *path = wanted->json_path ? wanted->json_path : wanted->json ? "-" : NULL;
    char *text = NULL, cause[64], kept[PATH_MAX];
    int n = 0, exit_status = CLI_GOOD;
    MLFF_TRY(cli_output_check(wanted->json_path));
    cli_interrupt_catch();
    MLFF_TRY(profile_runs(arguments, wanted->n_runs, &profiles, &n));
    exit_status = cli_exit(profile_file_save_runs(profiles, n, n < wanted->n_runs, path, kept));
    if (!wanted->json && !wanted->quiet) {
        MLFF_TRY(report_text(wanted, profile_runs_middle(profiles, n), &text));
        fputs(text, stdout);
        profile_runs_print(profiles, n);
    }
    if (n < wanted->n_runs) {
        const bool interrupted = cli_interrupted();
        snprintf(cause, sizeof cause, "%s after %d of %d runs", interrupted ? "interrupted" : "a run failed", n, wanted->n_runs);
        status = profile_file_tell(interrupted ? MLFF_ERR_INTERRUPTED : MLFF_ERR_CALLBACK, cause, kept, n, "run",
                                   wanted->json || !wanted->quiet);
    } else {
        status = tell_leaks(profiles, n, "run");
    }
done:
    mlff_text_free(text);
    profile_runs_free(profiles, n);
    return cli_first(exit_status, status);
}

// A size that does not run, as one too large for the memory, is no failure: the sizes before it are the answer. It is one where they
// are not in the file asked for.
static int run_sizes(cli_arguments *arguments, const request *wanted, const char *sizes)
{
    mlff_status status = MLFF_OK, measured;
    mlff_profile **profiles = NULL;
    const char *path = wanted->json_path ? wanted->json_path : wanted->json ? "-" : NULL;
    char cause[1100], kept[PATH_MAX];
    int n = 0, exit_status = CLI_GOOD;
    MLFF_TRY(cli_output_check(wanted->json_path));
    cli_interrupt_catch();
    measured = profile_sizes(arguments, sizes, &profiles, &n);
    if (n == 0) MLFF_TRY(measured);
    snprintf(cause, sizeof cause, "%s", mlff_last_error());
    exit_status = cli_exit(profile_file_save_runs(profiles, n, measured != MLFF_OK, path, kept));
    if (!wanted->json && !wanted->quiet) profile_sizes_print(profiles, n);
    if (measured != MLFF_OK) status = profile_file_tell(measured, cause, kept, n, "size", wanted->json || !wanted->quiet);
    if (measured == MLFF_ERR_CALLBACK && (!kept[0] || strcmp(kept, path) == 0)) {
        cli_say("%s", mlff_last_error());
        status = MLFF_OK;
    }
    if (status == MLFF_OK) status = tell_leaks(profiles, n, "size");
done:
    profile_runs_free(profiles, n);
    return cli_first(exit_status, status);
}

// The command line as given, quoted for a shell, behind a tool's own.
static void print_quoted(const char *text)
{
    if (*text && strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=,:+") == strlen(text)) {
        cli_print(" %s", text);
        return;
    }
    printf(" '");
    for (; *text; text++) *text == '\'' ? printf("'\\''") : printf("%c", *text);
    printf("'");
}

static int print_nsys(const cli_arguments *arguments)
{
    static const char *const tools[] = {
        "nsys profile --trace=cuda,nvtx,osrt --cuda-graph-trace=node --sample=none -o mlff_profile",
        "ncu --set full --launch-skip 200 --launch-count 40 -o mlff_kernels"};
    for (int tool = 0; tool < 2; tool++) {
        printf("%s mlff %s", tools[tool], arguments->command->name);
        for (int i = 0; i < arguments->n_positional; i++) print_quoted(arguments->positional[i]);
        for (int i = 0; arguments->command->options[i].name; i++) {
            if (!arguments->values[i] || strcmp(arguments->command->options[i].name, "print-nsys") == 0) continue;
            printf(" --%s", arguments->command->options[i].name);
            if (arguments->command->options[i].value) print_quoted(arguments->values[i]);
        }
        printf("\n");
    }
    return CLI_GOOD;
}

// What a teacher in a process of its own has in place of a model and an evaluator.
static int setup_teacher(cli_arguments *arguments, cli_setup *setup, int *n_threads_out)
{
    const char *device = cli_text(arguments, "device", "auto");
    *n_threads_out = (int)cli_int(arguments, "threads", 1, 4096, 0);
    if (arguments->failed) return CLI_USAGE;
    if (strcmp(device, "auto") != 0 && strcmp(device, "cpu") != 0)
        return cli_usage_error(arguments, "%s computes on the CPU; --device %s is for models", arguments->positional[0], device);
    snprintf(setup->device, sizeof setup->device, "cpu");
    setup->precision = strncmp(arguments->positional[0], "kim:", 4) == 0 ? "in the model's own precision" : "float64";
    return CLI_GOOD;
}

static int run(cli_arguments *arguments)
{
    mlff_status status = MLFF_OK, measured = MLFF_OK;
    request wanted = {0};
    cli_setup setup = {0};
    cli_input input = {0};
    mlff_callable callable = {0};
    mlff_trajectory *trajectory = NULL;
    mlff_profile *profile = NULL;
    progress_state progress = {0};
    mlff_profile_summary summary = {0};
    char cause[1100] = "", kept[PATH_MAX] = "";

    int exit_status = parse(arguments, &wanted);
    if (exit_status == CLI_GOOD && cli_given(arguments, "print-nsys")) return print_nsys(arguments);
    if (exit_status == CLI_GOOD && cli_given(arguments, "system-sizes"))
        return run_sizes(arguments, &wanted, cli_text(arguments, "system-sizes", ""));
    if (exit_status == CLI_GOOD && wanted.n_runs > 1) return run_many(arguments, &wanted);
    const char *name = arguments->positional[0];
    const bool is_teacher = mlff_teacher_is_process(name);
    int n_threads = 0; // of a teacher
    if (exit_status == CLI_GOOD)
        exit_status = is_teacher ? setup_teacher(arguments, &setup, &n_threads) : cli_setup_make(arguments, &setup);
    const char *system = exit_status != CLI_GOOD || wanted.path ? NULL
                         : is_teacher                           ? "ethanol"
                                                                : cli_default_system(arguments, setup.model);
    if (exit_status == CLI_GOOD) exit_status = cli_input_make(arguments, wanted.path, system, wanted.dynamics.seed, &input);
    if (exit_status != CLI_GOOD) {
        cli_setup_free(&setup);
        return exit_status;
    }

    if (!is_teacher) MLFF_TRY(cli_input_check(setup.model, &input));
    MLFF_TRY(cli_output_check(wanted.json_path));
    MLFF_TRY(cli_output_check(wanted.options.trace_path));
    if (is_teacher) wanted.options.split = 0; // its energy takes as long as its forces: they come together
    if (is_teacher)
        MLFF_TRY(profile_teacher_callable(name, n_threads, input.system, &callable));
    else
        MLFF_TRY(mlff_callable_from_evaluator(setup.evaluator, setup.model, &callable));
    if (wanted.what_if) MLFF_TRY(mlff_profile_what_if_check(&callable, wanted.what_if));
    MLFF_TRY(make_trajectory(arguments, &wanted, input.system, &trajectory));
    cli_interrupt_catch();
    wanted.options.progress = on_progress;
    wanted.options.progress_context = &progress;
    if (!wanted.json && !wanted.quiet)
        cli_print("%s: %s%s; %s trajectory, %s, %s\n", name, input.text, wanted.kind == FRAMES ? " in the first frame" : "",
                  trajectories[wanted.kind], setup.device, setup.precision);
    fflush(stdout);
    measured = mlff_profile_run(&callable, trajectory, &wanted.options, &profile);
    cli_progress_clear();
    if (!wanted.options.trace_path || !strstr(mlff_last_error(), wanted.options.trace_path))
        measured = cli_in(wanted.path, measured);
    snprintf(cause, sizeof cause, "%s", mlff_last_error());
    if (profile) MLFF_TRY(report(&wanted, profile, kept, &exit_status));
    if (profile && measured == MLFF_OK && !wanted.json && !wanted.quiet) try_one_thread(arguments, &setup, profile);
    if (profile && mlff_profile_leaks(profile) > 0 && measured == MLFF_OK)
        MLFF_FAIL(MLFF_ERR_VALUE, "memory leaks: see \"Memory\" in the report");
    if (profile) mlff_profile_summary_get(profile, &summary);
    if (measured != MLFF_OK && profile_is_child())
        MLFF_FAIL(measured, "%s", cause); // its report is removed by the command that started it
    if (measured != MLFF_OK && kept[0]) MLFF_FAIL(measured, "%s; kept: what was measured in %s, marked partial", cause, kept);
    if (measured != MLFF_OK)
        MLFF_FAIL(measured, "%s%s", cause, summary.partial && !wanted.quiet ? "; what was measured is shown" : "");
done:
    mlff_profile_destroy(profile);
    mlff_trajectory_destroy(trajectory);
    mlff_callable_destroy(&callable);
    cli_input_free(&input);
    cli_setup_free(&setup);
    return cli_first(exit_status, status);
}

const cli_command profile_command = {
    .name = "profile",
    .summary = "measure steps: latency, stages, memory, verdicts, what to do",
    .usage = "MODEL [INPUT | --system NAME --n-atoms N] [--trajectory thermal|md|file] [--n-steps K]\n"
             " [--warmup W] [--properties energy,forces,stress] [-o REPORT.json] [OPTIONS]",
    .details =
        "Measures each step of a trajectory. The summary fits on one screen: median, mean and tail of the latency, the parts of\n"
        "a step, why it takes so long, the missed targets, and advice. --full adds the tables (stages, slow steps and their\n"
        "causes, memory, environment). The exit status is 1 for a memory leak; a missed target does not change it.\n"
        "MODEL may also be xtb:gfn2, xtb:gfn1 (libxtb) or kim:MODEL, which compute on the CPU in processes of their own: a step\n"
        "is one stage, and on a busy machine its waits are those of the other process.\n"
        "Without INPUT and --system it is silicon, or, of the built-in systems whose elements the model knows, the first one "
        "with\n"
        "the most elements; with --n-atoms or --system-sizes one that can have different sizes. For xtb and KIM it is ethanol.\n"
        "Of an INPUT with several frames, thermal and md use the first; file measures all, also of different atoms.\n"
        "Ctrl-C ends the run with exit status 130; the report covers the steps until then and is marked partial. Of --runs and\n"
        "--system-sizes what is whole is kept, also where a later one fails. If the file of -o is there already, it stays as it\n"
        "was, and this report is in NAME-partial.json.",
    .examples = "mlff profile painn.safetensors\n"
                "mlff profile painn.safetensors --system silicon --n-atoms 512 --n-steps 1000 -o report.json\n"
                "mlff profile ethanol.safetensors --system ethanol --trajectory md --timestep 0.5 --n-steps 10000\n"
                "mlff profile ethanol.safetensors frames.extxyz --properties energy,forces --device cpu --threads 2",
    .options = options,
    .min_positional = 1,
    .max_positional = 2,
    .run = run,
};
