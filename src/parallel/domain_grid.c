// SPDX-License-Identifier: MIT
// domain_grid.c: how many domains there are along each axis, and the planes between them.
#include "parallel/domain_grid.h"

#include <string.h>

// Planes are placed by so many of the atoms: domains then differ by some 0.3 %.
enum { SAMPLES = 65536 };

// Å: products of three such lengths are numbers; atoms that are farther apart are refused later.
#define LONGEST 1e9

// How far the system reaches along each axis of its cell, Å.
static void find_lengths(const decomposition *d, const mlff_batch *batch, double length[3])
{
    for (int k = 0; k < 3; k++) {
        double low = INFINITY, high = -INFINITY;
        length[k] = d->axes.height[k];
        if (d->axes.periodic[k]) continue;
        for (size_t i = 0; i < (size_t)d->n_atoms; i++) {
            const double f = neighbors_fraction(&d->axes, batch->positions + 3 * i, k);
            low = fmin(low, f);
            high = fmax(high, f);
        }
        length[k] = high - low;
    }
}

// Of the grids with so many domains, that with the fewest ghosts in a system of these lengths.
void domain_grid_choose(decomposition *d, const mlff_batch *batch)
{
    double length[3], fewest = INFINITY;
    find_lengths(d, batch, length);
    for (int x = 1; x <= d->n_domains; x++)
        for (int y = 1; x * y <= d->n_domains; y++) {
            const int n[3] = {x, y, d->n_domains / (x * y)};
            double inside = 1, around = 1;
            if (n[0] * n[1] * n[2] != d->n_domains) continue;
            for (int k = 0; k < 3; k++) {
                const double width = fmin(fmax(length[k], 1.0), LONGEST) / n[k];
                inside *= width;
                around *= width + (n[k] > 1 ? 2 * d->reach : 0);
            }
            if (!(around / inside < fewest * (1 - 1e-9))) continue;
            fewest = around / inside;
            memcpy(d->grid, n, sizeof n);
        }
    for (int k = 0; k < 3; k++) d->divided[k] = d->grid[k] > 1;
}

// Planes along axis k that divide n sampled fractions evenly; without samples, evenly spaced.
static void place_planes(const decomposition *d, int k, double *sample, int n, double *planes)
{
    const int parts = d->grid[k];
    const bool periodic = d->axes.periodic[k];
    base_sort(sample, (size_t)n);
    planes[0] = periodic ? 0 : -INFINITY;
    planes[parts] = periodic ? 1 : INFINITY;
    for (int p = 1; p < parts; p++) {
        const int at = (int)((int64_t)n * p / parts);
        planes[p] = at > 0 ? 0.5 * (sample[at - 1] + sample[at]) : periodic ? (double)p / parts : 0;
        if (p > 1 && planes[p] < planes[p - 1]) planes[p] = planes[p - 1];
    }
}

// Fractions of samples: of each run of atoms one, at random, since a fixed distance would take the same site of each cell of a crystal.
static size_t sample_atoms(decomposition *d, const double *positions)
{
    const size_t stride = ((size_t)d->n_atoms + SAMPLES - 1) / SAMPLES;
    int32_t wrap[3];
    size_t n = 0;
    for (size_t begin = 0; begin < (size_t)d->n_atoms; begin += stride) {
        const size_t i = begin + (size_t)((double)stride * base_random_uniform(1, 0, begin));
        if (i >= (size_t)d->n_atoms) break;
        n += domain_wrap(d, positions + 3 * i, d->sampled + 3 * n, wrap);
    }
    return n;
}

// Samples within layer x and column y (−1: all).
static int collect_sample(decomposition *d, size_t n_sampled, int k, int x, int y)
{
    int n = 0;
    for (size_t s = 0; s < n_sampled; s++) {
        const double *f = d->sampled + 3 * s;
        if (x >= 0 && domain_part(d->planes[0], d->grid[0], f[0]) != x) continue;
        if (y >= 0 && domain_part(domain_planes_y(d, x), d->grid[1], f[1]) != y) continue;
        d->sample[n++] = f[k];
    }
    return n;
}

mlff_status domain_grid_place(decomposition *d, const double *positions)
{
    mlff_status status = MLFF_OK;
    const int *n = d->grid;
    const size_t counts[3] = {(size_t)n[0] + 1, (size_t)n[0] * (size_t)(n[1] + 1),
                              (size_t)n[0] * (size_t)n[1] * (size_t)(n[2] + 1)};
    for (int k = 0; k < 3; k++) MLFF_TRY(base_grow(&d->planes[k], &d->plane_capacity[k], counts[k], sizeof(double), "domains"));
    MLFF_TRY(base_grow(&d->sampled, &d->sampled_capacity, 3 * SAMPLES, sizeof(double), "domains"));
    MLFF_TRY(base_grow(&d->sample, &d->sample_capacity, SAMPLES, sizeof(double), "domains"));
    const size_t s = sample_atoms(d, positions);
    place_planes(d, 0, d->sample, collect_sample(d, s, 0, -1, -1), d->planes[0]);
    for (int x = 0; x < n[0]; x++) {
        place_planes(d, 1, d->sample, collect_sample(d, s, 1, x, -1), d->planes[1] + (size_t)x * (size_t)(n[1] + 1));
        for (int y = 0; y < n[1]; y++)
            place_planes(d, 2, d->sample, collect_sample(d, s, 2, x, y),
                         d->planes[2] + (size_t)(x * n[1] + y) * (size_t)(n[2] + 1));
    }
done:
    return status;
}
