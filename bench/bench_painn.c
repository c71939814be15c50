// SPDX-License-Identifier: MIT
// bench_painn.c: time of one energy + forces call of an untrained PaiNN (F = 128, L = 3, 20 radial functions, 5 Å) on
// the CPU, neighbor list included, positions moved before each call. One JSON line a case.
// Usage: bench_painn [--threads N] [--path avx512|avx2|portable] [--stages] [CASE …]   cases: benzene si64 si512 si4096 water1000
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "mlff.h"

static void run(const char *name, const char *builder, int n_atoms, int n_calls, mlff_evaluator *evaluator, int with_stages)
{
    mlff_system *system;
    bench_check(mlff_system_build(builder, n_atoms, 0, &system));
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
    for (int call = -10; call < n_calls; call++) {
        for (int k = 0; k < n; k++) {
            noise = noise * 1664525u + 1013904223u;
            system->positions[k] = base[k] + 0.1 * ((double)noise / 4294967296.0 - 0.5);
        }
        double start = bench_now_ms();
        bench_check(mlff_evaluator_compute(evaluator, &batch, &(mlff_results){.energies = &energy, .forces = forces}));
        if (call < 0) continue;
        times[call] = bench_now_ms() - start;
        mlff_evaluator_stage_times(evaluator, stage);
        for (int k = 0; k < n_stages; k++) sum[k] += stage[k] * 1e-6 / n_calls;
    }
    qsort(times, (size_t)n_calls, sizeof *times, bench_ascending);
    mlff_evaluator_info info;
    mlff_evaluator_info_get(evaluator, &info);
    printf("{\"case\": \"%s\", \"atoms\": %d, \"pairs\": %lld, \"threads\": %d, \"path\": \"%s\", \"calls\": %d, \"median_ms\": "
           "%.4f, "
           "\"min_ms\": %.4f, \"p95_ms\": %.4f, \"energy_ev\": %.6f}\n",
           name, system->n_atoms, (long long)info.n_pairs, info.n_threads, info.cpu_path, n_calls, times[n_calls / 2], times[0],
           times[(int)(0.95 * n_calls)], energy);
    for (int k = 0; with_stages && k < n_stages; k++)
        printf("  %-10s %-10s %2d  %8.4f ms\n", stages[k].phase, stages[k].name, stages[k].layer, sum[k]);
    fflush(stdout);
    free(base);
    free(forces);
    free(times);
    free(stage);
    free(sum);
    mlff_system_destroy(system);
}

int main(int argc, char **argv)
{
    static const struct option long_options[] = {{"threads", required_argument, NULL, 't'},
                                                 {"path", required_argument, NULL, 'p'},
                                                 {"stages", no_argument, NULL, 's'},
                                                 {0}};
    static const struct {
        const char *name, *builder;
        int n_atoms, n_calls;
    } cases[] = {{"benzene", "benzene", 0, 3000},
                 {"si64", "silicon", 64, 600},
                 {"si512", "silicon", 512, 60},
                 {"si4096", "silicon", 4096, 10},
                 {"water1000", "water", 999, 30}};
    mlff_evaluator_options options = mlff_evaluator_options_default();
    int with_stages = 0;
    for (int c; (c = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
        if (c == 't') options.n_threads = atoi(optarg);
        if (c == 'p') options.cpu_path = optarg;
        if (c == 's') with_stages = 1;
        if (c == '?') return 2;
    }
    mlff_model *model;
    mlff_evaluator *evaluator;
    bench_check(mlff_model_create("painn", NULL, &model));
    bench_check(mlff_evaluator_create(model, &options, &evaluator));
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        int wanted = optind == argc && k < 3;
        for (int a = optind; a < argc; a++) wanted |= strcmp(argv[a], cases[k].name) == 0;
        if (wanted) run(cases[k].name, cases[k].builder, cases[k].n_atoms, cases[k].n_calls, evaluator, with_stages);
    }
    mlff_evaluator_destroy(evaluator);
    mlff_model_destroy(model);
    return 0;
}
