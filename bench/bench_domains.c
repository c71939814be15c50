// SPDX-License-Identifier: MIT
// bench_domains.c: time to divide a system of the density of water among domains, as dynamics on several GPUs do while these wait.
// Usage: bench_domains [THREADS] (0: all cores). For each case the least wall and processor time of 15 decompositions, atoms moved before each.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "parallel/decompose.h"

static double processor_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

// Atoms on a jittered grid, in its order.
static mlff_status time_case(int side, int n_domains, int n_threads)
{
    mlff_status status = MLFF_OK;
    const int n = side * side * side;
    const double edge = cbrt(n / 0.1);
    const double cell[9] = {edge, 0, 0, 0, edge, 0, 0, 0, edge};
    const unsigned char periodic[3] = {1, 1, 1};
    const int32_t first_atom[2] = {0, n};
    double wall = INFINITY, processor = INFINITY;
    int n_ghosts = 0;
    decomposition *d = NULL;
    int32_t *species = calloc((size_t)n, sizeof *species);
    double *positions = malloc(3 * (size_t)n * sizeof *positions);
    if (!species || !positions) MLFF_FAIL(MLFF_ERR_MEMORY, "out of memory: %d atoms", n);
    for (int i = 0; i < n; i++) {
        const int site[3] = {i / (side * side), i / side % side, i % side};
        for (int c = 0; c < 3; c++)
            positions[3 * i + c] = edge / side * (site[c] + base_random_uniform(5, (uint64_t)c, (uint64_t)i));
    }
    const mlff_batch batch = {.n_systems = 1,
                              .first_atom = first_atom,
                              .species = species,
                              .positions = positions,
                              .cells = cell,
                              .periodic = periodic};
    MLFF_TRY(decomposition_create(n_domains, 5.2, 1.8, &d));
    MLFF_TRY(decomposition_make(d, n_threads, &batch));
    for (int round = 0; round < 15; round++) {
        for (int k = 0; k < 3 * n; k++) positions[k] += 0.01;
        const double processor_before = processor_ms();
        const int64_t before = base_clock_ns();
        MLFF_TRY(decomposition_make(d, n_threads, &batch));
        wall = fmin(wall, 1e-6 * (double)(base_clock_ns() - before));
        processor = fmin(processor, processor_ms() - processor_before);
    }
    for (int k = 0; k < n_domains; k++) n_ghosts += d->domains[k].n_local - d->domains[k].n_owned;
    printf("%8d atoms %3d domains %8d ghosts %8.2f ms %8.2f ms of processor time\n", n, n_domains, n_ghosts, wall, processor);
done:
    decomposition_destroy(d);
    free(species);
    free(positions);
    return status;
}

int main(int argc, char **argv)
{
    const int n_threads = argc > 1 ? atoi(argv[1]) : 0;
    static const int cases[][2] = {{16, 4}, {46, 2}, {73, 4}, {92, 8}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        if (time_case(cases[k][0], cases[k][1], n_threads) != MLFF_OK) {
            fprintf(stderr, "bench_domains: %s\n", mlff_last_error());
            return 1;
        }
    return 0;
}
