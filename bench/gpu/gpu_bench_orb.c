// SPDX-License-Identifier: MIT
// gpu_bench_orb.c: times of Orb (a model file, or untrained weights) on the GPU, and errors of its energy and forces. The errors are
// differences to the float64 reference for up to 16 atoms, else to float32 on the GPU; from 50,000 atoms on there are none.
//
// For each case and precision, one JSON object a line on standard output: device_us, the time of a step by the GPU's events, with
// the neighbor search; graph_given_us, the part of it after the search; host_call_us, the time of a call with arrays on the host.
// Times are medians, but graph_given_us is a sum of the stages' means. Cases from 50,000 atoms on run only by name (--case).
// Usage: gpu_bench_orb [--calls N] [--case NAME] [--precision NAME] [--no-check] [--no-stages] [--arch NAME] [--model FILE]
//                      [--layers N]
//        gpu_bench_orb --xyz CASE     its structure as extended XYZ (needs no GPU)
#include <math.h>

#include "timing.h"

typedef struct bench_case {
    const char *name, *builder;
    int n_atoms;
} bench_case;

static const bench_case cases[] = {{"methane", "methane", 0},       {"ethanol", "ethanol", 0},     {"benzene", "benzene", 0},
                                   {"water 12", "water", 12},       {"water 33", "water", 33},     {"water 96", "water", 96},
                                   {"water 126", "water", 126},     {"water 64", "water", 63},     {"water 160", "water", 159},
                                   {"water 256", "water", 255},     {"water 1024", "water", 1023}, {"water 10000", "water", 9999},
                                   {"water 100000", "water", 99999}};
enum { N_CASES = sizeof cases / sizeof *cases, CHECKED_ATOMS = 16, LARGE = 50000 };

static const struct {
    const char *name;
    mlff_precision value;
} precisions[] = {{"float32", MLFF_FLOAT32}, {"tf32", MLFF_TF32}, {"bf16", MLFF_BF16}};

typedef struct run_options {
    int calls, check, stages;
} run_options;

static mlff_system *structure_of(const bench_case *c)
{
    mlff_system *system;
    must(mlff_system_build(c->builder, c->n_atoms, 0, &system), c->name);
    must(mlff_system_perturb(system, 300.0, 7), c->name);
    return system;
}

// Energy and forces to compare with: float64 on the CPU, or float32 on the GPU.
static void reference_of(const mlff_model *model, const mlff_batch *batch, double *energy, double *forces)
{
    mlff_evaluator_options options = mlff_evaluator_options_default();
    mlff_evaluator *reference;
    if (batch->first_atom[1] <= CHECKED_ATOMS)
        options.precision = MLFF_FLOAT64;
    else
        options.device.kind = MLFF_CUDA;
    must(mlff_evaluator_create(model, &options, &reference), "reference");
    must(mlff_evaluator_compute(reference, batch, &(mlff_results){.energies = energy, .forces = forces}), "reference");
    mlff_evaluator_destroy(reference);
}

static void print_errors(const mlff_batch *batch, double energy, const double *forces, const mlff_results *got)
{
    const int n_atoms = batch->first_atom[1];
    double difference = 0, size = 0;
    for (int k = 0; k < 3 * n_atoms; k++) {
        difference += pow(forces[k] - got->forces[k], 2);
        size += pow(forces[k], 2);
    }
    printf("\"against\": \"%s\", \"force_rel_rms\": %.3g, \"energy_error_ev_per_atom\": %.3g, ",
           n_atoms <= CHECKED_ATOMS ? "float64" : "float32 on the GPU", sqrt(difference / size),
           fabs(energy - got->energies[0]) / n_atoms);
}

// Whether a stage is computed where the graph is given.
static int is_behind_search(const mlff_stage *stage)
{
    static const char *const before[] = {"transfer", "neighbors", "radial"};
    for (size_t k = 0; k < sizeof before / sizeof *before; k++)
        if (strcmp(stage->name, before[k]) == 0) return 0;
    return strcmp(stage->phase, "forward") == 0 || strcmp(stage->phase, "backward") == 0;
}

static void print_parts(const device_plugin *gpu, gpu_evaluator *e, const mlff_batch *batch, const mlff_results *results,
                        int calls)
{
    const mlff_stage *stages;
    int n_stages;
    double *mean = time_stages(gpu, e, batch, results, calls, &stages, &n_stages), behind = 0;
    for (int s = 0; s < n_stages; s++)
        if (is_behind_search(&stages[s])) behind += mean[s];
    printf(", \"graph_given_us\": %.2f, ", behind / 1e3);
    print_stage_times(stages, mean, n_stages);
    free(mean);
}

static void run(const mlff_model *model, const device_plugin *gpu, gpu_evaluator *e, const bench_case *c, const char *precision,
                const run_options *o)
{
    mlff_system *system = structure_of(c);
    mlff_batch batch;
    int32_t first_atom[2];
    mlff_batch_from_system(system, first_atom, &batch);
    const size_t n = (size_t)system->n_atoms;
    const int calls = n > LARGE ? 5 : n > 5000 ? o->calls / 10 + 1 : o->calls;
    double expected_energy = 0, *expected = need(3 * n, sizeof *expected);
    timed_case t = time_case(gpu, e, &batch, calls, 3);
    const mlff_results results = {.energies = &t.energy, .forces = t.forces};
    printf("{\"case\": \"%s\", \"precision\": \"%s\", \"atoms\": %zu, \"pairs\": %lld, \"device_us\": %.2f, \"p5_us\": %.2f, "
           "\"host_call_us\": %.2f, ",
           c->name, precision, n, t.n_pairs, t.device_ns / 1e3, t.p5_ns / 1e3, t.host_ns / 1e3);
    if (o->check && n < LARGE) {
        reference_of(model, &batch, &expected_energy, expected);
        print_errors(&batch, expected_energy, expected, &results);
    }
    printf("\"bitwise_repeatable\": %d, \"device_mb\": %.1f", t.repeatable, t.device_mb);
    if (o->stages) print_parts(gpu, e, &batch, &results, calls < 20 ? 3 : 20);
    printf("}\n");
    fflush(stdout);
    free(t.forces);
    free(expected);
    mlff_system_destroy(system);
}

int main(int argc, char **argv)
{
    run_options o = {200, 1, 1};
    const char *only = NULL, *file = NULL, *xyz = NULL, *precision = NULL, *architecture = "orb-v2";
    mlff_setting settings[2] = {{0}};
    for (int k = 1; k < argc; k++) {
        const char *value = k + 1 < argc ? argv[k + 1] : "";
        if (strcmp(argv[k], "--calls") == 0) o.calls = atoi(value), k++;
        if (strcmp(argv[k], "--case") == 0) only = value;
        if (strcmp(argv[k], "--precision") == 0) precision = value;
        if (strcmp(argv[k], "--arch") == 0) architecture = value;
        if (strcmp(argv[k], "--model") == 0) file = value;
        if (strcmp(argv[k], "--layers") == 0) settings[0] = (mlff_setting){"n_layers", value};
        if (strcmp(argv[k], "--xyz") == 0) xyz = value;
        if (strcmp(argv[k], "--no-check") == 0) o.check = 0;
        if (strcmp(argv[k], "--no-stages") == 0) o.stages = 0;
    }
    for (size_t k = 0; xyz && k < N_CASES; k++)
        if (strcmp(xyz, cases[k].name) == 0) print_structure(structure_of(&cases[k]));
    if (xyz) return 0;
    const device_plugin *gpu;
    mlff_model *model;
    must(file ? mlff_model_load(file, &model) : mlff_model_create(architecture, settings, &model), "model");
    must(device_plugin_get(&gpu), "plugin");
    must(gpu->warm_up(0), "warm up");
    for (size_t p = 0; p < sizeof precisions / sizeof *precisions; p++) {
        if (precision && strcmp(precision, precisions[p].name) != 0) continue;
        mlff_evaluator_options options = mlff_evaluator_options_default();
        options.device = (mlff_device){MLFF_CUDA, 0};
        options.precision = precisions[p].value;
        gpu_evaluator *e = create_evaluator(gpu, model, &options);
        for (size_t k = 0; k < N_CASES; k++)
            if (only ? strcmp(only, cases[k].name) == 0 : cases[k].n_atoms < LARGE)
                run(model, gpu, e, &cases[k], precisions[p].name, &o);
        gpu->destroy(e);
    }
    mlff_model_destroy(model);
    return 0;
}
