/* SPDX-License-Identifier: MIT */
/* domain_grid.h: the grid of domains and its planes (domain_grid.c), and where an atom is in it. */
#ifndef DOMAIN_GRID_H
#define DOMAIN_GRID_H

#include <math.h>

#include "parallel/decompose.h"

/* The grid of d->n_domains boxes for the system of the batch: d->grid and d->divided. */
void domain_grid_choose(decomposition *d, const mlff_batch *batch);
/* Places the planes so that domains own as many atoms each. Fails with MLFF_ERR_MEMORY. */
mlff_status domain_grid_place(decomposition *d, const double *positions);

/* An atom may lie so many cells outside of its own. */
enum { DOMAIN_MOST_CELLS = 131072 };

/* Fractions of an atom's coordinates, within the cell along periodic axes that are divided, and the cells that are taken off for that. False
 * for an atom that is too far away. */
static inline bool domain_wrap(const decomposition *d, const double x[3], double fraction[3], int32_t wrap[3])
{
    for (int k = 0; k < 3; k++) {
        double f = neighbors_fraction(&d->axes, x, k), cells = 0;
        if (!isfinite(f)) return false;
        if (d->axes.periodic[k] && d->divided[k] && !(f >= 0 && f < 1)) cells = floor(f);
        if (!(fabs(cells) <= DOMAIN_MOST_CELLS)) return false;
        f -= cells;
        if (cells != 0 && f >= 1) f = 0, cells++; // −1e-17 would wrap to 1: it is at 0 as it is
        fraction[k] = f;
        wrap[k] = (int32_t)cells;
    }
    return true;
}

static inline int domain_part(const double *planes, int parts, double f)
{
    int part = 0;
    while (part + 1 < parts && f >= planes[part + 1]) part++;
    return part;
}

static inline const double *domain_planes_y(const decomposition *d, int x)
{
    return d->planes[1] + (size_t)x * (size_t)(d->grid[1] + 1);
}

static inline const double *domain_planes_z(const decomposition *d, int x, int y)
{
    return d->planes[2] + (size_t)(x * d->grid[1] + y) * (size_t)(d->grid[2] + 1);
}

static inline int domain_owner(const decomposition *d, const double f[3])
{
    const int x = domain_part(d->planes[0], d->grid[0], f[0]), y = domain_part(domain_planes_y(d, x), d->grid[1], f[1]);
    return (x * d->grid[1] + y) * d->grid[2] + domain_part(domain_planes_z(d, x, y), d->grid[2], f[2]);
}

/* The box of a domain, in fractions. */
typedef struct domain_box {
    double low[3], high[3];
} domain_box;

static inline domain_box domain_box_of(const decomposition *d, int index)
{
    const int z = index % d->grid[2], y = index / d->grid[2] % d->grid[1], x = index / d->grid[2] / d->grid[1];
    return (domain_box){{d->planes[0][x], domain_planes_y(d, x)[y], domain_planes_z(d, x, y)[z]},
                        {d->planes[0][x + 1], domain_planes_y(d, x)[y + 1], domain_planes_z(d, x, y)[z + 1]}};
}

#endif
