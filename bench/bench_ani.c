// SPDX-License-Identifier: MIT
// bench_ani.c: time of one energy + forces call of an ensemble of ANI-2x's shape (8 members; untrained, or a model file) on
// the CPU, neighbor list included, positions moved before each call. One JSON line a case.
// Usage: bench_ani [--model FILE] [--threads N] [--path avx512|avx2|portable] [--members 0,3] [--stages] [CASE …]
//        bench_ani --xyz CASE     its structure as extended XYZ
// Cases: benzene hcno64 water64 water192 water1000 hcno1000
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "mlff.h"

// The structure of liquid water with its atoms renamed to H, C, N, O at organic matter's rates (H 1/2, C 1/3): what the
// columns of four species cost at the density of a liquid.
static void mix_elements(mlff_system *system)
{
    static const int elements[12] = {1, 6, 1, 6, 1, 7, 1, 6, 1, 8, 1, 6};
    for (int i = 0; i < system->n_atoms; i++) system->species[i] = elements[i % 12];
}

typedef struct bench_case {
    const char *name, *builder;
    int n_atoms, mixed, n_calls;
} bench_case;

static mlff_system *structure_of(const bench_case *c)
{
    mlff_system *system;
    bench_check(mlff_system_build(c->builder, c->n_atoms, 0, &system));
    if (c->mixed) mix_elements(system);
    return system;
}

static void write_structure(const bench_case *c)
{
    mlff_system *system = structure_of(c);
    mlff_writer *writer;
    bench_check(mlff_writer_open("-", NULL, 0, &writer));
    bench_check(mlff_writer_write(writer, system, NULL));
    bench_check(mlff_writer_close(writer));
    mlff_system_destroy(system);
}

static void run(const bench_case *c, mlff_evaluator *evaluator, int with_stages)
{
    const char *name = c->name;
    const int n_calls = c->n_calls;
    mlff_system *system = structure_of(c);
    int n = 3 * system->n_atoms, n_stages;
    double *base = malloc(sizeof(double) * (size_t)n), *forces = malloc(sizeof(double) * (size_t)n);
    double *times = malloc(sizeof(double) * (size_t)n_calls), energy;
    const mlff_stage *stages = mlff_evaluator_stages(evaluator, &n_stages);
    double *stage = calloc((size_t)n_stages, sizeof *stage), *sum = calloc((size_t)n_stages, sizeof *sum);
    memcpy(base, system->positions, sizeof(double) * (size_t)n);
    int32_t first_atom[2];
    mlff_batch batch;
    mlff_batch_from_system(system, first_atom, &batch);
    bench_check(mlff_evaluator_stage_clock_set(evaluator, with_stages));
    uint32_t noise = 1;
    for (int call = -5; call < n_calls; call++) {
        for (int k = 0; k < n; k++) {
            noise = noise * 1664525u + 1013904223u;
            system->positions[k] = base[k] + 0.02 * ((double)(noise >> 8) / (1 << 24) - 0.5);
        }
        double start = bench_now_ms();
        bench_check(mlff_evaluator_compute(evaluator, &batch, &(mlff_results){.energies = &energy, .forces = forces}));
        if (call < 0) continue;
        times[call] = bench_now_ms() - start;
        mlff_evaluator_stage_times(evaluator, stage);
        for (int s = 0; s < n_stages; s++) sum[s] += stage[s];
    }
    qsort(times, (size_t)n_calls, sizeof *times, bench_ascending);
    memcpy(system->positions, base, sizeof(double) * (size_t)n);
    bench_check(mlff_evaluator_compute(evaluator, &batch, &(mlff_results){.energies = &energy}));
    mlff_evaluator_info info;
    mlff_evaluator_info_get(evaluator, &info);
    printf("{\"case\": \"%s\", \"n_atoms\": %d, \"n_pairs\": %lld, \"path\": \"%s\", \"threads\": %d, \"members\": %d, "
           "\"calls\": %d, \"median_ms\": %.4f, \"min_ms\": %.4f, \"p95_ms\": %.4f, \"energy_ev\": %.6f",
           name, system->n_atoms, (long long)info.n_pairs, info.cpu_path, info.n_threads, info.n_members, n_calls,
           times[n_calls / 2], times[0], times[(int)(0.95 * (n_calls - 1))], energy);
    if (with_stages)
        for (int s = 0; s < n_stages; s++)
            printf("%s\"%s\": %.4f", s ? ", " : ", \"stages_ms\": {", stages[s].name, sum[s] / n_calls * 1e-6);
    printf("%s}\n", with_stages ? "}" : "");
    free(base);
    free(forces);
    free(times);
    free(stage);
    free(sum);
    mlff_system_destroy(system);
}

int main(int argc, char **argv)
{
    static const struct option long_options[] = {{"model", required_argument, NULL, 'm'},
                                                 {"threads", required_argument, NULL, 't'},
                                                 {"path", required_argument, NULL, 'p'},
                                                 {"members", required_argument, NULL, 'e'},
                                                 {"stages", no_argument, NULL, 's'},
                                                 {"xyz", required_argument, NULL, 'x'},
                                                 {0}};
    static const bench_case cases[] = {{"benzene", "benzene", 0, 0, 1000}, {"hcno64", "water", 63, 1, 200},
                                       {"water64", "water", 63, 0, 200},   {"water192", "water", 192, 0, 60},
                                       {"water1000", "water", 999, 0, 10}, {"hcno1000", "water", 999, 1, 10}};
    mlff_evaluator_options options = mlff_evaluator_options_default();
    const char *path = NULL, *xyz = NULL;
    int with_stages = 0;
    for (int c; (c = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
        if (c == 'm') path = optarg;
        if (c == 't') options.n_threads = atoi(optarg);
        if (c == 'p') options.cpu_path = optarg;
        if (c == 'e') options.members = optarg;
        if (c == 's') with_stages = 1;
        if (c == 'x') xyz = optarg;
        if (c == '?') return 2;
    }
    for (size_t k = 0; xyz && k < sizeof cases / sizeof *cases; k++)
        if (strcmp(xyz, cases[k].name) == 0) write_structure(&cases[k]);
    if (xyz) return 0;
    mlff_model *model;
    mlff_evaluator *evaluator;
    bench_check(path ? mlff_model_load(path, &model) : mlff_model_create("ani", NULL, &model));
    bench_check(mlff_evaluator_create(model, &options, &evaluator));
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        int wanted = optind == argc;
        for (int a = optind; a < argc; a++) wanted |= strcmp(argv[a], cases[k].name) == 0;
        if (wanted) run(&cases[k], evaluator, with_stages);
    }
    mlff_evaluator_destroy(evaluator);
    mlff_model_destroy(model);
    return 0;
}
