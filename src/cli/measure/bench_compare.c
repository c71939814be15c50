// SPDX-License-Identifier: MIT
// bench_compare.c: mlff bench compare: implementations, interleaved, on the same fresh frames, with parity.
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "bench.h"

// A path of the CPU, whether this machine has it or not; NULL: none is named so.
static const char *cpu_path_named(const char *word)
{
    static const char *const paths[] = {"avx512", "amx", "avx2", "portable"};
    for (size_t k = 0; k < sizeof paths / sizeof *paths; k++)
        if (strcmp(word, paths[k]) == 0) return paths[k];
    return NULL;
}

// Takes one word off the end of "MODEL:word:word" if it is a setting; a file name may have colons of its own.
static bool take_setting(char *spec, mlff_evaluator_options *options, mlff_status *status)
{
    char *colon = strrchr(spec, ':'), device[16];
    const char *path;
    int64_t threads;
    if (!colon || colon == spec) return false;
    const char *word = colon + 1;
    if (strcmp(word, "float32") == 0) {
        options->precision = MLFF_FLOAT32;
    } else if (strcmp(word, "float64") == 0) {
        options->precision = MLFF_FLOAT64;
    } else if (strcmp(word, "tf32") == 0) {
        options->precision = MLFF_TF32;
    } else if (strcmp(word, "bf16") == 0) {
        options->precision = MLFF_BF16;
    } else if ((path = cpu_path_named(word))) {
        options->cpu_path = path;
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

int bench_defaults_get(cli_arguments *arguments, bench_defaults *defaults)
{
    *defaults = (bench_defaults){.threads = (int)cli_int(arguments, "threads", 1, 4096, 0)};
    if (arguments->failed) return CLI_USAGE;
    return cli_exit(mlff_device_parse(cli_text(arguments, "device", "cpu"), &defaults->device));
}

int bench_frames_check(const cli_arguments *arguments)
{
    static const char *const made[] = {"trajectory", "temperature", "seed"};
    for (size_t k = 0; cli_given(arguments, "input") && k < sizeof made / sizeof *made; k++)
        if (cli_given(arguments, made[k]))
            return cli_usage_error(arguments, "--input has the frames; --%s goes with --system", made[k]);
    return CLI_GOOD;
}

mlff_status bench_entry_make(const char *text, const bench_defaults *defaults, bench_entry *entry)
{
    mlff_status status = MLFF_OK;
    bench_entry made = {0};
    mlff_evaluator_options options = mlff_evaluator_options_default();
    options.n_threads = defaults->threads;
    options.device = defaults->device;
    char *spec = base_strdup(text);
    if (!spec) return MLFF_ERR_MEMORY;
    while (take_setting(spec, &options, &status))
        if (status != MLFF_OK) goto done;
    made.name = base_strdup(text);
    if (!made.name) {
        status = MLFF_ERR_MEMORY;
        goto done;
    }
    made.path = spec;
    spec = NULL;
    MLFF_TRY(mlff_model_load(made.path, &made.model));
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
    base_free(entry->path);
    *entry = (bench_entry){0};
}

int bench_input_make(cli_arguments *arguments, const char *text, uint64_t seed, cli_input *input)
{
    mlff_status status = MLFF_OK;
    mlff_evaluator_options unused = mlff_evaluator_options_default();
    mlff_model *model = NULL;
    int exit_status = CLI_GOOD;
    const char *path = cli_text(arguments, "input", NULL);
    if (path || cli_given(arguments, "system")) return cli_input_make(arguments, path, NULL, seed, input);
    char *spec = base_strdup(text);
    if (!spec) return cli_exit(MLFF_ERR_MEMORY);
    while (take_setting(spec, &unused, &status))
        if (status != MLFF_OK) goto done;
    MLFF_TRY(mlff_model_load(spec, &model));
    exit_status = cli_input_make(arguments, NULL, cli_default_system(arguments, model), seed, input);
done:
    base_free(spec);
    mlff_model_destroy(model);
    return status != MLFF_OK ? cli_exit(status) : exit_status;
}

static int on_progress(void *context, int64_t round, int64_t n_rounds)
{
    (void)context;
    cli_progress("bench compare: round %d of %d", (int)round + 1, (int)n_rounds);
    return cli_interrupted();
}

enum { ENTRIES_MAX = 16, CLI_SLOWER = 3, CLI_UNCLEAR = 4 };

// Names of implementations: --model, then what stands behind "compare" and is no structure file of --input. Returns how many there are, of
// which ENTRIES_MAX are in `names`.
static int collect(const cli_arguments *arguments, const char **names)
{
    int n = 0;
    const char *name;
    for (int i = 0; (name = cli_each(arguments, "model", i)); i++, n++)
        if (n < ENTRIES_MAX) names[n] = name;
    for (int i = 1; i < arguments->n_positional; i++, n++)
        if (n < ENTRIES_MAX) names[n] = arguments->positional[i];
    return n;
}

// Frames of MD by one model, on which all of them are compared.
static mlff_status md_trajectory(const bench_entry *entry, mlff_system *system, const mlff_dynamics_options *options,
                                 int n_frames, mlff_trajectory **trajectory_out)
{
    enum { STEPS_A_FRAME = 10 };
    mlff_status status = MLFF_OK;
    mlff_dynamics *dynamics = NULL;
    mlff_system **frames = base_alloc((size_t)n_frames, sizeof *frames, "frames");
    if (!frames) return MLFF_ERR_MEMORY;
    if (!system->velocities) MLFF_TRY(mlff_system_thermalize(system, options->temperature_kelvin, options->seed));
    MLFF_TRY(mlff_dynamics_create_on(entry->evaluator, options, system, NULL, NULL, &dynamics));
    for (int k = 0; k < n_frames; k++) {
        if (cli_interrupted()) MLFF_FAIL(MLFF_ERR_INTERRUPTED, "interrupted in the trajectory");
        MLFF_TRY(mlff_dynamics_run(dynamics, STEPS_A_FRAME, NULL));
        MLFF_TRY(mlff_system_copy(system, &frames[k]));
        cli_progress("bench compare: trajectory, frame %d of %d", k + 1, n_frames);
    }
    MLFF_TRY(mlff_trajectory_frames((const mlff_system *const *)frames, n_frames, trajectory_out));
done:
    mlff_dynamics_destroy(dynamics);
    for (int k = 0; k < n_frames; k++) mlff_system_destroy(frames[k]);
    base_free(frames);
    return status;
}

// Everything of one comparison.
typedef struct comparison {
    const char *names[ENTRIES_MAX];
    bench_entry entries[ENTRIES_MAX];
    mlff_callable callables[ENTRIES_MAX];
    mlff_profile *profiles[ENTRIES_MAX];
    int models[ENTRIES_MAX]; // index of the first entry of the same model
    int n, n_profiles;
    int exit_status;                                       // of the files, and of implementations that failed
    mlff_implementation_failure failures[2 * ENTRIES_MAX]; // of those that cannot do what the others can; problems are owned
    int n_failures;
    cli_input input;
    mlff_dynamics_options motion; // its temperature and seed are also those of thermal displacements
    bool by_md;
    mlff_trajectory *trajectory;
    mlff_implementations *implementations;
} comparison;

static void find_models(comparison *c)
{
    for (int k = 0; k < c->n; k++) {
        const char *path = c->entries[k].path;
        c->models[k] = 0;
        while (strcmp(path, c->entries[c->models[k]].path) != 0 && !base_same_file(path, c->entries[c->models[k]].path))
            c->models[k]++;
    }
}

static mlff_status load(comparison *c, const bench_defaults *defaults)
{
    mlff_status status = MLFF_OK;
    for (int k = 0; k < c->n; k++) {
        bench_entry *entry = &c->entries[k];
        MLFF_TRY(bench_entry_make(c->names[k], defaults, entry));
        MLFF_TRY(cli_input_check(entry->model, &c->input));
        c->callables[k] = entry->callable;
    }
    find_models(c);
done:
    return status;
}

// The k-th failed at what the others can do: said now, and where the result is; the command ends with status 1.
static mlff_status keep_failure(comparison *c, int k, const char *consequence)
{
    char *problem = base_strdup(mlff_last_error());
    if (!problem) return MLFF_ERR_MEMORY;
    c->failures[c->n_failures++] = (mlff_implementation_failure){c->names[k], consequence, problem};
    cli_say("%s %s: %s", c->names[k], consequence, problem);
    c->exit_status = CLI_FAILED;
    return MLFF_OK;
}

// The input and the failures.
static void add_title(const comparison *c, base_text *title)
{
    base_text_add(title, "%s", c->input.text);
    for (int k = 0; k < c->n_failures; k++)
        base_text_add(title, "; %s %s: %s", c->failures[k].name, c->failures[k].consequence, c->failures[k].problem);
}

// Leaves out those that cannot compute such a structure, for want of memory for example.
static mlff_status leave_out_failing(comparison *c)
{
    mlff_status status = MLFF_OK;
    mlff_system *system = NULL;
    double energy, *forces = base_alloc(3 * (size_t)c->input.system->n_atoms, sizeof *forces, "forces");
    if (!forces) return MLFF_ERR_MEMORY;
    MLFF_TRY(mlff_system_copy(c->input.system, &system));
    MLFF_TRY(mlff_system_perturb(system, 10, 0)); // in a perfect crystal an Orb would warn of equal distances
    for (int k = 0; k < c->n;) {
        const mlff_callable *callable = &c->callables[k];
        status = callable->step(callable->context, system, MLFF_ENERGY | MLFF_FORCES, &energy, forces, NULL);
        if (status == MLFF_OK) {
            k++;
            continue;
        }
        if (c->n == 2) MLFF_FAIL(status, "%s: %s", c->names[k], mlff_last_error());
        MLFF_TRY(keep_failure(c, k, "is left out"));
        bench_entry_free(&c->entries[k]);
        for (int j = k + 1; j < c->n; j++) {
            c->names[j - 1] = c->names[j];
            c->entries[j - 1] = c->entries[j];
            c->callables[j - 1] = c->callables[j];
        }
        c->entries[--c->n] = (bench_entry){0};
        status = MLFF_OK;
    }
    find_models(c);
done:
    mlff_system_destroy(system);
    base_free(forces);
    return status;
}

// By the first model; an untrained one may end it, and then it is the next one's.
static mlff_status any_md_trajectory(comparison *c, const mlff_dynamics_options *options, int n_frames)
{
    mlff_status status = MLFF_OK;
    for (int k = 0; k < c->n; k++) {
        mlff_system *start = NULL;
        MLFF_TRY(mlff_system_copy(c->input.system, &start));
        status = md_trajectory(&c->entries[k], start, options, n_frames, &c->trajectory);
        mlff_system_destroy(start);
        if (status == MLFF_OK || status == MLFF_ERR_INTERRUPTED || status == MLFF_ERR_MEMORY) return status;
        if (k + 1 < c->n) {
            const mlff_status kept = keep_failure(c, k, "makes no trajectory, which is the next one's");
            if (kept != MLFF_OK) return kept;
        }
    }
done:
    return status;
}

static mlff_status frames_of(comparison *c, const cli_arguments *arguments, const char *path,
                             const mlff_implementations_options *options)
{
    if (c->by_md) {
        int64_t n = (int64_t)options->n_rounds * options->n_frames + options->n_warmup;
        return any_md_trajectory(c, &c->motion, n < 1000 ? (int)n : 1000);
    }
    return path ? cli_trajectory_file(arguments, path, &c->trajectory)
                : mlff_trajectory_thermal(c->input.system, c->motion.temperature_kelvin, c->motion.seed, &c->trajectory);
}

// A profile of each on the same frames: what a page and a file of runs show beside the comparison.
static mlff_status profile_all(comparison *c)
{
    mlff_status status = MLFF_OK;
    for (; c->n_profiles < c->n; c->n_profiles++) {
        mlff_profile_options options = mlff_profile_options_default();
        char name[256];
        const char *of = c->names[c->n_profiles];
        snprintf(name, sizeof name, "%.*s, %.100s", base_whole_length(of, 120), of, c->input.formula);
        options.name = name;
        options.timestep_fs = 0.5;
        cli_progress("bench compare: profile of %.100s", c->names[c->n_profiles]);
        MLFF_TRY(mlff_profile_run(&c->callables[c->n_profiles], c->trajectory, &options, &c->profiles[c->n_profiles]));
    }
done:
    cli_progress_clear();
    return status;
}

static mlff_status write_page(const comparison *c, const char *page)
{
    mlff_status status = MLFF_OK;
    base_output output = {0};
    base_text title = {0};
    char *text = NULL;
    base_text_add(&title, "%d implementations on ", c->n);
    add_title(c, &title);
    MLFF_TRY(title.status);
    MLFF_TRY(mlff_implementations_html(c->implementations, (const mlff_profile *const *)c->profiles, c->n_profiles, title.text,
                                       &text));
    MLFF_TRY(base_output_open(page, &output));
    fputs(text, output.file);
    MLFF_TRY(base_output_commit(&output));
done:
    if (output.file) base_output_abandon(&output);
    base_text_free(&title);
    mlff_text_free(text);
    return status;
}

// The profiles first: a page can be made from them again. Each is written whatever befell the other. An exit status.
static int write_files(const comparison *c, const char *page, const char *json)
{
    int exit_status = CLI_GOOD;
    if (json)
        exit_status =
            cli_first(exit_status, mlff_profile_save_runs((const mlff_profile *const *)c->profiles, c->n_profiles, json));
    if (page) exit_status = cli_first(exit_status, write_page(c, page));
    return exit_status;
}

static int verdict_of(const mlff_implementations *implementations)
{
    int n, verdict = CLI_GOOD;
    const mlff_implementation *rows = mlff_implementations_rows(implementations, &n);
    for (int k = 1; k < n; k++) {
        if (rows[k].change == MLFF_UNCLEAR && verdict == CLI_GOOD) verdict = CLI_UNCLEAR;
        if (rows[k].change == MLFF_SLOWER && verdict != CLI_FAILED) verdict = CLI_SLOWER;
        if (rows[k].agrees == 0) verdict = CLI_FAILED;
    }
    return verdict;
}

static mlff_status print_result(const comparison *c, bool as_json)
{
    mlff_status status = MLFF_OK;
    base_text title = {0};
    char *text = NULL;
    MLFF_TRY(as_json ? mlff_implementations_json(c->implementations, c->failures, c->n_failures, &text)
                     : mlff_implementations_text(c->implementations, &text));
    add_title(c, &title);
    MLFF_TRY(title.status);
    if (!as_json) cli_print("%s\n\n", title.text);
    fputs(text, stdout);
    fflush(stdout);
done:
    base_text_free(&title);
    mlff_text_free(text);
    return status;
}

mlff_status bench_interrupted(mlff_status status, const mlff_implementations *implementations)
{
    if (status != MLFF_ERR_INTERRUPTED) return status;
    return mlff_fail(status, "%s%s", mlff_last_error(),
                     implementations ? ", which are shown" : "; nothing is shown, for which six rounds are needed");
}

static mlff_status compare(comparison *c, cli_arguments *arguments, const bench_defaults *defaults,
                           mlff_implementations_options *options)
{
    mlff_status status = MLFF_OK;
    bool json = cli_given(arguments, "json");
    const char *page = cli_text(arguments, "html", NULL), *runs = cli_text(arguments, "output", NULL);
    MLFF_TRY(cli_output_check(page));
    MLFF_TRY(cli_output_check(runs));
    MLFF_TRY(load(c, defaults));
    cli_interrupt_catch();
    MLFF_TRY(leave_out_failing(c));
    MLFF_TRY(frames_of(c, arguments, cli_text(arguments, "input", NULL), options));
    options->progress = on_progress;
    options->models = c->models;
    status = mlff_profile_implementations(c->callables, c->n, c->trajectory, options, &c->implementations);
    cli_progress_clear();
    status = bench_interrupted(status, c->implementations);
    if (c->implementations) {
        const mlff_status printed = print_result(c, json);
        if (status == MLFF_OK) status = printed;
    }
    MLFF_TRY(status);
    if (page || runs) MLFF_TRY(profile_all(c));
    const int written = write_files(c, page, runs);
    if (written != CLI_GOOD) c->exit_status = written;
    if (written == CLI_GOOD && page && !json) cli_print("%s: open it in a browser\n", page);
done:
    cli_progress_clear();
    return status;
}

int bench_compare(cli_arguments *arguments)
{
    static const char *const kinds[] = {"thermal", "md", NULL};
    comparison c = {.motion = mlff_dynamics_options_default()};
    bench_defaults defaults;
    mlff_implementations_options options = mlff_implementations_options_default();
    c.n = collect(arguments, c.names);
    options.n_rounds = (int)cli_int(arguments, "rounds", 6, 100000, options.n_rounds);
    options.n_frames = (int)cli_int(arguments, "frames", 1, 100000, options.n_frames);
    options.energy_tolerance = cli_number(arguments, "energy-tolerance", 0, 1e9, options.energy_tolerance * 1e3) * 1e-3;
    options.force_tolerance = cli_number(arguments, "force-tolerance", 0, 1e9, options.force_tolerance * 1e3) * 1e-3;
    options.noise_floor = cli_number(arguments, "noise-floor", 0, 100, 1) / 100;
    c.motion.temperature_kelvin = cli_number(arguments, "temperature", 0, 1e6, 300);
    c.motion.seed = (uint64_t)cli_int(arguments, "seed", 0, INT64_MAX, 0);
    c.by_md = cli_choice(arguments, "trajectory", kinds, 0) == 1;
    if (arguments->failed) return CLI_USAGE;
    if (c.n > ENTRIES_MAX) return cli_usage_error(arguments, "%d models are given; compare takes %d at most", c.n, ENTRIES_MAX);
    if (c.n < 2)
        return cli_usage_error(arguments,
                               "compare needs two models or more, as in --model A.safetensors --model B.safetensors:float64");
    int exit_status = bench_frames_check(arguments);
    if (exit_status == CLI_GOOD) exit_status = bench_defaults_get(arguments, &defaults);
    if (exit_status == CLI_GOOD) exit_status = bench_input_make(arguments, c.names[0], c.motion.seed, &c.input);
    if (exit_status != CLI_GOOD) return exit_status;

    mlff_status status = compare(&c, arguments, &defaults, &options);
    int verdict = status != MLFF_OK           ? cli_exit(status)
                  : c.exit_status != CLI_GOOD ? c.exit_status
                                              : verdict_of(c.implementations);
    for (int k = 0; k < c.n_failures; k++) base_free((char *)(uintptr_t)c.failures[k].problem);
    for (int k = 0; k < c.n_profiles; k++) mlff_profile_destroy(c.profiles[k]);
    mlff_implementations_destroy(c.implementations);
    mlff_trajectory_destroy(c.trajectory);
    for (int k = 0; k < c.n; k++) bench_entry_free(&c.entries[k]);
    cli_input_free(&c.input);
    return verdict;
}
