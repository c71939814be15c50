/* SPDX-License-Identifier: MIT */
/* bench_calls.h: the time of calls of an evaluator on a structure whose atoms move before each call. */
#ifndef BENCH_CALLS_H
#define BENCH_CALLS_H

#include <string.h>

#include "bench.h"
#include "mlff.h"

typedef struct bench_series {
    const char *name;
    int n_before, n_calls; /* calls that are not counted, and counted ones */
    double displacement;   /* Å: each coordinate is within ± half of it of where it was */
    int with_stages;
} bench_series;

/* Times calls for energy and forces, neighbor list included, and prints one JSON line: median, least and 95th percentile, ms; the
   energy of the structure itself, eV; with stages also the mean time of each, ms. Positions are left as they were. */
static inline void bench_calls(const bench_series *series, mlff_evaluator *evaluator, mlff_system *system)
{
    int n = 3 * system->n_atoms, n_calls = series->n_calls, n_stages;
    double *base = malloc(sizeof(double) * (size_t)n), *forces = malloc(sizeof(double) * (size_t)n);
    double *times = malloc(sizeof(double) * (size_t)n_calls), energy;
    const mlff_stage *stages = mlff_evaluator_stages(evaluator, &n_stages);
    double *stage = calloc((size_t)n_stages + 1, sizeof *stage), *sum = calloc((size_t)n_stages + 1, sizeof *sum);
    memcpy(base, system->positions, sizeof(double) * (size_t)n);
    int32_t first_atom[2];
    mlff_batch batch;
    mlff_batch_from_system(system, first_atom, &batch);
    bench_check(mlff_evaluator_stage_clock_set(evaluator, series->with_stages));
    uint32_t noise = 1;
    for (int call = -series->n_before; call < n_calls; call++) {
        for (int k = 0; k < n; k++) {
            noise = noise * 1664525u + 1013904223u;
            system->positions[k] = base[k] + series->displacement * ((double)(noise >> 8) / (1 << 24) - 0.5);
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
           series->name, system->n_atoms, (long long)info.n_pairs, info.cpu_path, info.n_threads, info.n_members, n_calls,
           times[n_calls / 2], times[0], times[(int)(0.95 * (n_calls - 1))], energy);
    for (int s = 0; series->with_stages && s < n_stages; s++) {
        printf("%s\"%s %s", s ? ", " : ", \"stages_ms\": {", stages[s].phase, stages[s].name);
        if (stages[s].layer >= 0) printf(" %d", stages[s].layer);
        printf("\": %.4f", sum[s] / n_calls * 1e-6);
    }
    printf("%s}\n", series->with_stages ? "}" : "");
    fflush(stdout);
    free(base);
    free(forces);
    free(times);
    free(stage);
    free(sum);
}

#endif
