/* SPDX-License-Identifier: MIT */
/* cell.h: what the neighbor search needs to know about a cell; computed by the host, or by the GPU where cells are in its memory. Plain
 * C for both compilers. */
#ifndef GPU_CELL_H
#define GPU_CELL_H

#include <math.h>

#include "gpu/gpu_step.h"

#ifdef __CUDACC__
#define GPU_HOST_DEVICE __host__ __device__
#define GPU_NOINLINE __noinline__ /* keeps its registers out of the callers' usual path */
#else
#define GPU_HOST_DEVICE
#define GPU_NOINLINE inline
#endif

static inline GPU_HOST_DEVICE void cell_cross(const double *a, const double *b, double *c)
{
    c[0] = a[1] * b[2] - a[2] * b[1];
    c[1] = a[2] * b[0] - a[0] * b[2];
    c[2] = a[0] * b[1] - a[1] * b[0];
}

static inline GPU_HOST_DEVICE double cell_square(const double *a)
{
    return a[0] * a[0] + a[1] * a[1] + a[2] * a[2];
}

static inline GPU_HOST_DEVICE double cell_length(const double *a)
{
    return sqrt(cell_square(a));
}

/* A unit vector for axis a, perpendicular to the other vectors that exist. */
static GPU_NOINLINE GPU_HOST_DEVICE void cell_complete_axis(double *h, int a)
{
    double *v = h + 3 * a, *p = h + 3 * ((a + 1) % 3), *q = h + 3 * ((a + 2) % 3);
    int has_p = cell_length(p) > 0, has_q = cell_length(q) > 0;
    if (has_p && has_q) {
        cell_cross(p, q, v);
    } else if (has_p || has_q) {
        const double *r = has_p ? p : q;
        double x = fabs(r[0]), y = fabs(r[1]), z = fabs(r[2]);
        int smallest = x <= y && x <= z ? 0 : y <= z ? 1 : 2;
        double axis[3] = {0, 0, 0};
        axis[smallest] = 1.0;
        cell_cross(r, axis, v);
    } else {
        v[a] = 1.0;
    }
    double length = cell_length(v);
    for (int c = 0; c < 3; c++) v[c] /= length;
}

/* A distance perpendicular to the other axes, in cells along axis a; in float: callers allow for the rounding. */
static inline GPU_HOST_DEVICE float cell_count_along(const gpu_system *system, int a, double distance)
{
    const double *v = system->inverse + a;
    return (float)distance * sqrtf((float)(v[0] * v[0] + v[3] * v[3] + v[6] * v[6]));
}

/* Fills cell, inverse, images and wrapped; `cell` and `periodic` may be NULL. Returns flags of the report. */
static inline GPU_HOST_DEVICE int cell_complete(const double *cell, const unsigned char *periodic, double cutoff,
                                                gpu_system *system)
{
    int flags = 0, any = 0;
    double *h = system->cell;
    for (int a = 0; a < 3; a++) {
        system->wrapped[a] = cell && periodic && periodic[a];
        any = any || system->wrapped[a];
        /* The cell vector of an axis without a period is ignored. */
        for (int c = 0; c < 3; c++) h[3 * a + c] = system->wrapped[a] ? cell[3 * a + c] : 0.0;
        system->images[a] = 0;
    }
    if (!any) {
        for (int k = 0; k < 9; k++) h[k] = system->inverse[k] = k % 4 == 0;
        return 0;
    }
    for (int a = 0; a < 3; a++)
        if (!system->wrapped[a]) cell_complete_axis(h, a);
    double n[9], volume = 0;
    cell_cross(h + 3, h + 6, n);
    cell_cross(h + 6, h, n + 3);
    cell_cross(h, h + 3, n + 6);
    for (int c = 0; c < 3; c++) volume += h[c] * n[c];
    /* Square roots in float and one division: on the GPU one thread computes this while the others wait. */
    double squares = cell_square(h) * cell_square(h + 3) * cell_square(h + 6);
    if (!(volume * volume > 1e-16 * squares)) { /* also not finite */
        flags = isfinite(volume) && isfinite(squares) ? GPU_NO_VOLUME : GPU_NOT_FINITE;
        volume = 1.0;
    }
    double part = 1.0 / volume;
    for (int a = 0; a < 3; a++) {
        for (int c = 0; c < 3; c++) system->inverse[3 * c + a] = n[3 * a + c] * part;
        float reach = ceilf(cell_count_along(system, a, cutoff) - 0.49999f);
        if (!system->wrapped[a] || !(reach > 0)) continue;
        if (reach <= (float)GPU_IMAGES)
            system->images[a] = (int)reach;
        else
            flags |= GPU_MANY_IMAGES; /* as of a very skewed cell */
    }
    for (int a = 0; a < 3 && flags; a++) system->images[a] = 0;
    return flags;
}

/* Radius of the Verlet list, and width of the cells of the cell list. */
static inline GPU_HOST_DEVICE double cell_reach(const gpu_step *step)
{
    return step->neighbors.cutoff + step->neighbors.skin + 0.01;
}

/* Cells ("bins") of the cell list of a completed system: at least as wide as `reach`, at most as many as atoms. On a periodic axis they
 * divide the cell's height; else bin k is also bin k + bins, so that the extent of the atoms need not be known. */
static inline GPU_HOST_DEVICE void cell_bins(double reach, gpu_system *system)
{
    int *bins = system->bins, n_open = 0;
    double periodic = 1.0;
    for (int a = 0; a < 3; a++) {
        float most = system->wrapped[a] ? floorf(0.99999f / cell_count_along(system, a, reach)) : 1.0f;
        bins[a] = most >= 1.0f ? (int)fminf(most, 4096.0f) : 1;
        periodic *= bins[a];
        n_open += !system->wrapped[a];
    }
    double share = system->n / periodic, each = n_open == 3 ? cbrt(share) : n_open == 2 ? sqrt(share) : share;
    for (int a = 0; a < 3; a++)
        if (!system->wrapped[a] && each > 1.0) bins[a] = (int)each;
    while ((int64_t)bins[0] * bins[1] * bins[2] > system->n) {
        int largest = bins[0] >= bins[1] && bins[0] >= bins[2] ? 0 : bins[1] >= bins[2] ? 1 : 2;
        bins[largest] -= (bins[largest] + 7) / 8;
    }
}

#endif
