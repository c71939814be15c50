// SPDX-License-Identifier: MIT
// bench_neighbors.c: time of the neighbor list: updates of small systems inside an MD step, and builds of large ones.
// One line for each case: median and 95th percentile over many calls, positions moved before each.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "bench.h"
#include "device/team.h"
#include "mlff_atoms.h"

// Silicon, n × n × n cubic cells.
static int silicon(int n, double *positions, double cell[9])
{
    static const double basis[8][3] = {{0, 0, 0},       {0, .5, .5},     {.5, 0, .5},     {.5, .5, 0},
                                       {.25, .25, .25}, {.25, .75, .75}, {.75, .25, .75}, {.75, .75, .25}};
    int count = 0;
    for (int a = 0; a < n; a++)
        for (int b = 0; b < n; b++)
            for (int c = 0; c < n; c++)
                for (int k = 0; k < 8; k++, count++) {
                    positions[3 * count] = 5.431 * (a + basis[k][0]);
                    positions[3 * count + 1] = 5.431 * (b + basis[k][1]);
                    positions[3 * count + 2] = 5.431 * (c + basis[k][2]);
                }
    for (int k = 0; k < 9; k++) cell[k] = k % 4 == 0 ? 5.431 * n : 0;
    return count;
}

static int benzene(double *positions)
{
    for (int k = 0; k < 12; k++) {
        double angle = BASE_PI / 3 * (k % 6), radius = k < 6 ? 1.397 : 2.481;
        positions[3 * k] = radius * cos(angle);
        positions[3 * k + 1] = radius * sin(angle);
        positions[3 * k + 2] = 0;
    }
    return 12;
}

// Points at the density of liquid water, 0.1 atoms/Å³, none closer than a jittered grid allows; `shuffled` in random order.
static int liquid(int n, double *positions, double cell[9], int shuffled)
{
    double edge = cbrt(n / 0.1003);
    int side = (int)ceil(cbrt((double)n));
    for (int i = 0; i < n; i++) {
        int site[3] = {i / (side * side), i / side % side, i % side};
        for (int c = 0; c < 3; c++)
            positions[3 * i + c] = edge / side * (site[c] + 0.9 * base_random_uniform(5, (uint64_t)c, (uint64_t)i));
    }
    for (int i = n - 1; i > 0 && shuffled; i--) {
        int j = (int)(base_random_uniform(6, 0, (uint64_t)i) * (i + 1));
        for (int c = 0; c < 3; c++) {
            double swap = positions[3 * i + c];
            positions[3 * i + c] = positions[3 * j + c];
            positions[3 * j + c] = swap;
        }
    }
    for (int k = 0; k < 9; k++) cell[k] = k % 4 == 0 ? edge : 0;
    return n;
}

static int run(const char *name, int n, double *positions, const double *cell, double skin, int n_calls)
{
    int32_t first_atom[2] = {0, n};
    unsigned char periodic[3] = {cell != NULL, cell != NULL, cell != NULL};
    mlff_batch batch = {.n_systems = 1, .first_atom = first_atom, .positions = positions, .cells = cell, .periodic = periodic};
    mlff_neighbors *neighbors;
    mlff_neighbors_info before, info;
    double *times = malloc(sizeof *times * (size_t)n_calls), *home = malloc(3 * sizeof *home * (size_t)n);
    if (!times || !home || mlff_neighbors_create(5.0, skin, &neighbors) != MLFF_OK) return 1;
    memcpy(home, positions, 3 * sizeof *home * (size_t)n);
    int n_warm = n_calls / 10 + 3;
    for (int call = -n_warm; call < n_calls; call++) {
        for (int k = 0; k < 3 * n; k++)
            positions[k] = home[k] + 0.1 * (base_random_uniform(1, 0, (uint64_t)(3 * n * (call + n_warm) + k)) - 0.5);
        if (call == 0) mlff_neighbors_info_get(neighbors, &before);
        double start = 1e3 * bench_now_ms();
        if (mlff_neighbors_update(neighbors, &batch) != MLFF_OK) {
            fprintf(stderr, "%s: %s\n", name, mlff_last_error());
            return 1;
        }
        if (call >= 0) times[call] = 1e3 * bench_now_ms() - start;
    }
    mlff_neighbors_info_get(neighbors, &info);
    qsort(times, (size_t)n_calls, sizeof *times, bench_ascending);
    printf("%-28s %7d atoms %9lld pairs  skin %.1f Å  %5.1f %% rebuilt  least %10.2f µs  median %10.2f µs  p95 %10.2f µs  %6.1f "
           "MB\n",
           name, n, (long long)info.n_pairs, skin, 100.0 * (double)(info.n_rebuilds - before.n_rebuilds) / n_calls, times[0],
           times[n_calls / 2], times[n_calls * 95 / 100], (double)info.bytes / 1048576);
    mlff_neighbors_destroy(neighbors);
    free(times);
    free(home);
    return 0;
}

int main(void)
{
    double *positions = malloc(sizeof *positions * 300000), cell[9];
    if (!positions) return 1;
    printf("cutoff 5 Å, at most %d threads\n", team_default_size());
    int failed = 0;
    failed |= run("benzene update", benzene(positions), positions, NULL, 1.0, 20000);
    failed |= run("benzene build", benzene(positions), positions, NULL, 0.0, 20000);
    for (int n = 2; n <= 8; n *= 2) {
        int calls = 40000 / (n * n * n);
        failed |= run("silicon update", silicon(n, positions, cell), positions, cell, 0.5, calls);
        failed |= run("silicon build", silicon(n, positions, cell), positions, cell, 0.0, calls);
    }
    for (int shuffled = 0; shuffled < 2; shuffled++) {
        const char *order = shuffled ? "liquid, shuffled" : "liquid";
        failed |= run(order, liquid(100000, positions, cell, shuffled), positions, cell, 0.5, 20);
        failed |= run(order, liquid(100000, positions, cell, shuffled), positions, cell, 0.0, 20);
    }
    free(positions);
    return failed;
}
