// SPDX-License-Identifier: MIT
// bench_registry.c: mlff bench list, run and example: named workloads on every implementation and device that works here.
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "bench.h"
#include "profile_files.h"

typedef struct workload {
    const char *name, *system;
    int n_atoms, n_features, n_layers;
    const char *elements, *about;
} workload;
static const workload workloads[] = {
    {"si64", "silicon", 64, 64, 3, "Si", "64 atoms of silicon, PaiNN of 64 features, 3 layers: the size the targets are for"},
    {"si512", "silicon", 512, 64, 3, "Si", "512 atoms of silicon"},
    {"water192", "water", 192, 64, 3, "H,O", "64 water molecules"},
    {"aspirin", "aspirin", 21, 128, 3, "H,C,O", "one molecule, PaiNN of 128 features"},
};
enum { N_WORKLOADS = sizeof workloads / sizeof *workloads };

typedef struct implementation {
    const char *name, *device;
    mlff_precision precision;
    const char *cpu_path;
} implementation;
static const implementation implementations[] = {
    {"cpu float32", "cpu", MLFF_FLOAT32, NULL},
    {"cpu float32 portable", "cpu", MLFF_FLOAT32, "portable"},
    {"cpu float64 reference", "cpu", MLFF_FLOAT64, NULL},
    {"cuda float32", "cuda", MLFF_FLOAT32, NULL},
};
enum { N_IMPLEMENTATIONS = sizeof implementations / sizeof *implementations };

static mlff_status make_model(int n_features, int n_layers, const char *elements, mlff_model **model_out)
{
    char features[16], layers[16];
    snprintf(features, sizeof features, "%d", n_features);
    snprintf(layers, sizeof layers, "%d", n_layers);
    const mlff_setting settings[] = {{"n_features", features}, {"n_layers", layers}, {"elements", elements}, {0}};
    return mlff_model_create(NULL, settings, model_out); // the architecture of students
}

int bench_list(cli_arguments *arguments)
{
    (void)arguments;
    printf("workloads\n");
    for (int i = 0; i < N_WORKLOADS; i++) printf("  %-10s %s\n", workloads[i].name, workloads[i].about);
    printf("implementations\n");
    for (int i = 0; i < N_IMPLEMENTATIONS; i++) {
        mlff_device device;
        bool works = mlff_device_parse(implementations[i].device, &device) == MLFF_OK;
        printf("  %-22s %s\n", implementations[i].name, works ? "works here" : mlff_last_error());
    }
    int n;
    const mlff_builder_info *builders = mlff_builders(&n);
    printf("systems (--system)\n");
    for (int i = 0; i < n; i++) printf("  %-10s %s\n", builders[i].name, builders[i].description);
    return CLI_GOOD;
}

static int on_progress(void *context, int64_t step, int64_t n_steps)
{
    cli_progress("bench: %s, step %" PRId64 " of %" PRId64, (const char *)context, step > 0 ? step : 0, n_steps);
    return cli_interrupted();
}

// One profile of one workload by one implementation; none of one that is interrupted.
static mlff_status profile_one(const workload *w, const implementation *by, int64_t n_steps, int threads,
                               mlff_profile **profile_out)
{
    mlff_status status = MLFF_OK;
    mlff_model *model = NULL;
    mlff_evaluator *evaluator = NULL;
    mlff_callable callable = {0};
    mlff_system *system = NULL;
    mlff_trajectory *trajectory = NULL;
    mlff_profile *profile = NULL;
    char name[128];
    mlff_evaluator_options options = mlff_evaluator_options_default();
    mlff_profile_options profile_options = mlff_profile_options_default();
    options.n_threads = threads;
    options.precision = by->precision;
    options.cpu_path = by->cpu_path;
    MLFF_TRY(mlff_device_parse(by->device, &options.device));
    MLFF_TRY(make_model(w->n_features, w->n_layers, w->elements, &model));
    MLFF_TRY(mlff_evaluator_create(model, &options, &evaluator));
    MLFF_TRY(mlff_callable_from_evaluator(evaluator, model, &callable));
    MLFF_TRY(mlff_system_build(w->system, w->n_atoms, 0, &system));
    MLFF_TRY(mlff_trajectory_thermal(system, 300.0, 0, &trajectory));
    snprintf(name, sizeof name, "%s, %s", w->name, by->name);
    profile_options.n_steps = n_steps;
    profile_options.name = name;
    profile_options.progress = on_progress;
    profile_options.progress_context = name;
    status = mlff_profile_run(&callable, trajectory, &profile_options, &profile);
    if (status != MLFF_OK) MLFF_FAIL(status, "%s: %s", name, mlff_last_error());
    *profile_out = profile;
    profile = NULL;
done:
    mlff_profile_destroy(profile);
    cli_progress_clear();
    mlff_trajectory_destroy(trajectory);
    mlff_system_destroy(system);
    mlff_callable_destroy(&callable);
    mlff_evaluator_destroy(evaluator);
    mlff_model_destroy(model);
    return status;
}

static void print_head(void)
{
    printf("%-36s %7s %12s %12s %12s %11s %10s\n", "", "atoms", "median/ms", "P95/ms", "P99/ms", "µs/atom", "memory/MB");
}

static void print_row(const mlff_profile *profile)
{
    mlff_profile_summary s;
    mlff_profile_summary_get(profile, &s);
    char p95[32], p99[32];
    printf("%-36s %7d %12.5g %s %s %10.4g %10.4g\n", s.name, s.n_atoms, s.latency_ms.median,
           cli_percentile(p95, 12, s.latency_ms.p95, 0.95, s.n_steps), cli_percentile(p99, 12, s.latency_ms.p99, 0.99, s.n_steps),
           s.latency_ms.median * 1e3 / s.n_atoms, s.memory_peak_gb * 1024.0);
    fflush(stdout);
}

static bool chosen(const cli_arguments *arguments, const char *name)
{
    for (int i = 1; i < arguments->n_positional; i++)
        if (strcmp(arguments->positional[i], name) == 0) return true;
    return arguments->n_positional == 1;
}

enum { PROFILES_MAX = 64 };

// Saves what was measured, also before a failure, and reports how it ended. `path` NULL: no file.
static int finish(const cli_arguments *arguments, mlff_status status, mlff_profile **profiles, int n, const char *path,
                  bool to_json)
{
    char cause[1100], kept[PATH_MAX] = "";
    int exit_status = CLI_GOOD;
    snprintf(cause, sizeof cause, "%s", mlff_last_error());
    if (n > 0) exit_status = cli_exit(profile_file_save_runs(profiles, n, status != MLFF_OK, path, kept));
    if (n > 0 && to_json)
        exit_status = cli_first(exit_status, mlff_profile_save_runs((const mlff_profile *const *)profiles, n, "-"));
    const bool is_shown = n > 0 && (!arguments->quiet || to_json);
    if (status != MLFF_OK) status = profile_file_tell(status, cause, kept, n, "profile", is_shown);
    for (int i = 0; i < n; i++) mlff_profile_destroy(profiles[i]);
    return cli_first(exit_status, status);
}

int bench_run(cli_arguments *arguments)
{
    mlff_status status = MLFF_OK;
    mlff_profile *profiles[PROFILES_MAX];
    int n = 0;
    int64_t n_steps = cli_int(arguments, "n-calls", 1, 1000000, 30);
    int threads = (int)cli_int(arguments, "threads", 1, 4096, 0);
    const char *path = cli_text(arguments, "output", NULL);
    const bool to_json = cli_given(arguments, "json");
    if (arguments->failed) return CLI_USAGE;
    for (int i = 1; i < arguments->n_positional; i++) {
        bool known = false;
        for (int k = 0; k < N_WORKLOADS; k++) known = known || strcmp(arguments->positional[i], workloads[k].name) == 0;
        if (!known)
            return cli_usage_error(arguments, "'%s' is not a workload; mlff bench list names them", arguments->positional[i]);
    }
    MLFF_TRY(cli_output_check(path));
    cli_interrupt_catch();
    if (!to_json) print_head();
    for (int w = 0; w < N_WORKLOADS; w++) {
        for (int k = 0; k < N_IMPLEMENTATIONS && !(cli_reader_left() && !path) && chosen(arguments, workloads[w].name); k++) {
            mlff_device device;
            if (mlff_device_parse(implementations[k].device, &device) != MLFF_OK) continue; // not here; `list` says why
            MLFF_TRY(profile_one(&workloads[w], &implementations[k], n_steps, threads, &profiles[n]));
            if (!to_json) print_row(profiles[n]);
            n++;
        }
    }
done:
    return finish(arguments, status, profiles, n, path, to_json);
}

// ---- the worked example --------------------------------------------------------------------------

typedef struct one_call {
    mlff_evaluator *evaluator;
    mlff_system *system;
    bool with_forces;
    double energy, *forces;
    uint64_t n_calls;
} one_call;

static mlff_status call(void *context)
{
    one_call *c = context;
    int32_t first[2];
    mlff_batch batch;
    if (cli_interrupted()) return mlff_fail(MLFF_ERR_INTERRUPTED, "interrupted in the first part");
    c->system->positions[0] += c->n_calls++ % 2 ? 1e-4 : -1e-4; // every call has work of its own
    mlff_batch_from_system(c->system, first, &batch);
    return mlff_evaluator_compute(c->evaluator, &batch,
                                  &(mlff_results){.energies = &c->energy, .forces = c->with_forces ? c->forces : NULL});
}

static mlff_status example_function(int64_t n_calls, int threads)
{
    mlff_status status = MLFF_OK;
    mlff_model *model = NULL;
    one_call c = {0};
    mlff_evaluator_options options = mlff_evaluator_options_default();
    options.n_threads = threads;
    MLFF_TRY(make_model(64, 3, "Si", &model));
    MLFF_TRY(mlff_evaluator_create(model, &options, &c.evaluator));
    MLFF_TRY(mlff_system_build("silicon", 64, 0, &c.system));
    c.forces = base_alloc(3 * (size_t)c.system->n_atoms, sizeof *c.forces, "forces");
    if (!c.forces) {
        status = MLFF_ERR_MEMORY;
        goto done;
    }
    printf("1. One function, %lld call%s after 10 of warm-up (64 atoms of silicon)\n", (long long)n_calls, base_plural(n_calls));
    for (int with = 0; with < 2; with++) {
        mlff_statistics t;
        c.with_forces = with;
        MLFF_TRY(mlff_benchmark(call, &c, 10, n_calls, NULL, &t));
        char p95[32], p99[32];
        printf("   %-17s median %8.4g ms, mean %8.4g, P95 %s, P99 %s, %lld outlier%s, %.5g calls/s\n",
               with ? "energy and forces" : "energy", t.median * 1e-6, t.mean * 1e-6,
               cli_percentile(p95, 8, t.p95 * 1e-6, 0.95, n_calls), cli_percentile(p99, 8, t.p99 * 1e-6, 0.99, n_calls),
               (long long)t.n_outliers, base_plural(t.n_outliers), 1e9 / t.mean);
    }
done:
    base_free(c.forces);
    mlff_system_destroy(c.system);
    mlff_evaluator_destroy(c.evaluator);
    mlff_model_destroy(model);
    return status;
}

int bench_example(cli_arguments *arguments)
{
    static const int widths[] = {32, 64, 128}, sizes[] = {50, 100, 200, 500, 1000};
    mlff_status status = MLFF_OK;
    mlff_profile *profiles[PROFILES_MAX];
    mlff_scaling scaling;
    char *text = NULL;
    int n = 0, first_size;
    int64_t n_calls = cli_int(arguments, "n-calls", 1, 1000000, 50);
    int64_t n_steps = cli_int(arguments, "n-trajectory-steps", 1, 1000000, 100);
    int threads = (int)cli_int(arguments, "threads", 1, 4096, 0);
    const char *path = cli_text(arguments, "output", NULL);
    if (arguments->failed) return CLI_USAGE;
    MLFF_TRY(cli_output_check(path));
    cli_interrupt_catch();
    printf("Untrained PaiNN models, made on the spot: the times are real, energies mean nothing.\n\n");
    MLFF_TRY(example_function(n_calls, threads));

    printf("\n2. A trajectory of %lld step%s\n", (long long)n_steps, base_plural(n_steps));
    MLFF_TRY(profile_one(&workloads[0], &implementations[0], n_steps, threads, &profiles[n]));
    n++;
    MLFF_TRY(mlff_profile_text(profiles[0], cli_width(), &text));
    fputs(text, stdout);

    printf("\n3. Three sizes of the model, 64 atoms\n");
    print_head();
    for (int i = 0; i < 3; i++) {
        char name[32];
        workload w = workloads[0];
        snprintf(name, sizeof name, "%d features", widths[i]);
        w.name = name;
        w.n_features = widths[i];
        MLFF_TRY(profile_one(&w, &implementations[0], n_calls, threads, &profiles[n]));
        print_row(profiles[n++]);
    }
    printf("\n4. Latency and memory against the number of atoms\n");
    print_head();
    first_size = n;
    for (int i = 0; i < 5; i++) {
        workload w = workloads[0];
        w.name = "silicon";
        w.n_atoms = sizes[i];
        MLFF_TRY(profile_one(&w, &implementations[0], n_calls < 30 ? n_calls : 30, threads, &profiles[n]));
        print_row(profiles[n++]);
    }
    mlff_text_free(text);
    text = NULL;
    MLFF_TRY(mlff_profile_scaling((const mlff_profile *const *)profiles + first_size, n - first_size, &scaling));
    MLFF_TRY(mlff_scaling_text(&scaling, &text));
    printf("%s", text);
    if (path) {
        printf("\n5. mlff report %s -o report.html shows all of it in a browser;\n", path);
    } else {
        printf("\n5. With -o example.json, mlff report example.json -o report.html shows all of it in a browser;\n");
    }
    printf("   mlff profile MODEL --trace trace.json writes a timeline for Perfetto or TensorBoard\n");
done:
    cli_progress_clear();
    mlff_text_free(text);
    return finish(arguments, status, profiles, n, path, false);
}
