// SPDX-License-Identifier: MIT
// gpu_bench_ani.c: an ensemble of ANI-2x's shape (8 members, untrained, or a model file) on the GPU: the clock, and the error of
// forces against the float64 reference up to 100 atoms, against the CPU's float32 above.
//
// For each case: device time of a step by events, neighbors searched in the step; wall time of a call with host arrays.
// Medians. HCNO mixtures are liquid water with its atoms renamed at organic matter's rates (H 1/2, C 1/3). One JSON object a
// case on standard output. Usage: gpu_bench_ani [--calls N] [--case NAME] [--no-check] [--model FILE]
//        gpu_bench_ani --xyz CASE     its structure as extended XYZ (needs no GPU)
#include <math.h>

#include "model/ani/ani.h"
#include "timing.h"

typedef struct bench_case {
    const char *name, *builder;
    int n_atoms, mixed;
} bench_case;

static const bench_case cases[] = {
    {"benzene", "benzene", 0, 0},    {"hcno 64", "water", 63, 1},       {"water 64", "water", 63, 0},
    {"hcno 256", "water", 255, 1},   {"hcno 1000", "water", 999, 1},    {"water 1000", "water", 999, 0},
    {"hcno 4000", "water", 3999, 1}, {"hcno 16000", "water", 15999, 1}, {"water 16000", "water", 15999, 0},
};

static void mix_elements(mlff_system *system)
{
    static const int elements[12] = {1, 6, 1, 6, 1, 7, 1, 6, 1, 8, 1, 6};
    for (int i = 0; i < system->n_atoms; i++) system->species[i] = elements[i % 12];
}

static mlff_system *structure_of(const bench_case *c)
{
    mlff_system *system;
    must(mlff_system_build(c->builder, c->n_atoms, 0, &system), c->name);
    if (c->mixed) mix_elements(system);
    must(mlff_system_perturb(system, 300.0, 7), c->name);
    return system;
}

// Errors of energy and forces in eV and relative to the rms force, against the CPU.
static void print_errors(const mlff_model *model, const mlff_batch *batch, const mlff_results *got)
{
    mlff_evaluator_options options = mlff_evaluator_options_default();
    mlff_evaluator *reference;
    int n_atoms = batch->first_atom[batch->n_systems];
    options.precision = n_atoms <= 100 ? MLFF_FLOAT64 : MLFF_FLOAT32;
    must(mlff_evaluator_create(model, &options, &reference), "reference");
    double energy, *forces = need(3 * (size_t)n_atoms, sizeof *forces), difference = 0, size = 0, worst = 0;
    must(mlff_evaluator_compute(reference, batch, &(mlff_results){.energies = &energy, .forces = forces}), "reference");
    for (int k = 0; k < 3 * n_atoms; k++) {
        double d = fabs(forces[k] - got->forces[k]);
        difference += d * d;
        size += forces[k] * forces[k];
        worst = fmax(worst, isnan(d) ? INFINITY : d);
    }
    printf("\"against\": \"%s\", \"force_rel_rms\": %.3g, \"force_max_over_rms\": %.3g, \"energy_error_ev\": %.3g, ",
           n_atoms <= 100 ? "float64" : "float32 on the CPU", sqrt(difference / size), worst / sqrt(size / (3.0 * n_atoms)),
           fabs(energy - got->energies[0]));
    free(forces);
    mlff_evaluator_destroy(reference);
}

static void run(const mlff_model *model, const device_plugin *gpu, gpu_evaluator *e, const bench_case *c, int calls, int check)
{
    mlff_system *system = structure_of(c);
    mlff_batch batch;
    int32_t first_atom[2];
    mlff_batch_from_system(system, first_atom, &batch);
    timed_case t = time_case(gpu, e, &batch, calls, 20);
    const mlff_results results = {.energies = &t.energy, .forces = t.forces};
    printf("{\"case\": \"%s\", \"atoms\": %d, \"pairs\": %lld, \"device_us\": %.2f, \"p5_us\": %.2f, \"host_call_us\": %.2f, ",
           c->name, system->n_atoms, t.n_pairs, t.device_ns / 1e3, t.p5_ns / 1e3, t.host_ns / 1e3);
    if (check) print_errors(model, &batch, &results);
    printf("\"bitwise_repeatable\": %d, \"device_mb\": %.1f, ", t.repeatable, t.device_mb);
    print_stages(gpu, e, &batch, &results, 200);
    printf("}\n");
    fflush(stdout);
    free(t.forces);
    mlff_system_destroy(system);
}

int main(int argc, char **argv)
{
    int calls = 1000, check = 1;
    const char *only = NULL, *file = NULL, *xyz = NULL;
    for (int k = 1; k < argc; k++) {
        if (strcmp(argv[k], "--calls") == 0 && k + 1 < argc) calls = atoi(argv[++k]);
        if (strcmp(argv[k], "--case") == 0 && k + 1 < argc) only = argv[++k];
        if (strcmp(argv[k], "--model") == 0 && k + 1 < argc) file = argv[++k];
        if (strcmp(argv[k], "--xyz") == 0 && k + 1 < argc) xyz = argv[++k];
        if (strcmp(argv[k], "--no-check") == 0) check = 0;
    }
    for (size_t k = 0; xyz && k < sizeof cases / sizeof *cases; k++)
        if (strcmp(xyz, cases[k].name) == 0) print_structure(structure_of(&cases[k]));
    if (xyz) return 0;
    const device_plugin *gpu;
    mlff_model *model;
    must(file ? mlff_model_load(file, &model) : mlff_model_create("ani", NULL, &model), "model");
    must(device_plugin_get(&gpu), "plugin");
    must(gpu->warm_up(0), "warm up");
    gpu_evaluator *e;
    mlff_evaluator_options options = mlff_evaluator_options_default();
    options.device = (mlff_device){MLFF_CUDA, 0};
    e = create_evaluator(gpu, model, &options);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        if (!only || strcmp(only, cases[k].name) == 0) run(model, gpu, e, &cases[k], calls, check);
    gpu->destroy(e);
    mlff_model_destroy(model);
    return 0;
}
