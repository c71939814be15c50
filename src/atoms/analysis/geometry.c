// SPDX-License-Identifier: MIT
// geometry.c: lengths of the bonds and angles between the bonds of a trajectory's first frame, by elements. Two atoms are bonded where
// they are nearer than 1.25 times the sum of their covalent radii.
#include <math.h>
#include <string.h>

#include "atoms/analysis/same_atoms.h"
#include "atoms/elements/covalent.h"
#include "atoms/images.h"
#include "base/base.h"
#include "mlff_analysis.h"

enum { BOND_BINS = 500, ANGLE_BINS = 180, MOST_KINDS = 256, MOST_ANGLES = 8000000 };
#define BOND_RANGE 5.0 // Å

typedef struct kind {
    int elements[3]; // of a bond A, B, 0; of an angle end, center, end
    int count;       // in a frame
    double n, sum, squares, low, high;
    double bins[BOND_BINS];
} kind;

typedef struct bond {
    int atoms[2], kind;
} bond;

typedef struct angle {
    int atoms[3], kind; // the center stands in the middle
} angle;

struct mlff_geometry {
    int n_atoms;
    int *species; // [n_atoms] of the first frame
    bond *bonds;
    angle *angles;
    kind *kinds;
    size_t n_bonds, n_angles, n_kinds, bond_capacity, angle_capacity, kind_capacity;
    int64_t n_frames;
};

// The kind of these elements, made where it is not there.
static mlff_status find_kind(mlff_geometry *g, int a, int center, int b, int *index_out)
{
    const int elements[3] = {a < b ? a : b, center ? center : (a < b ? b : a), center ? (a < b ? b : a) : 0};
    for (size_t k = 0; k < g->n_kinds; k++)
        if (memcmp(g->kinds[k].elements, elements, sizeof elements) == 0) {
            g->kinds[k].count++;
            *index_out = (int)k;
            return MLFF_OK;
        }
    if (g->n_kinds == MOST_KINDS)
        return mlff_fail(MLFF_ERR_LIMIT, "more than %d kinds of bonds and angles; analyze fewer elements", MOST_KINDS);
    const mlff_status status = base_grow(&g->kinds, &g->kind_capacity, g->n_kinds + 1, sizeof *g->kinds, "kinds of bonds");
    if (status != MLFF_OK) return status;
    g->kinds[g->n_kinds] = (kind){.count = 1, .low = INFINITY, .high = -INFINITY};
    memcpy(g->kinds[g->n_kinds].elements, elements, sizeof elements);
    *index_out = (int)g->n_kinds++;
    return MLFF_OK;
}

static mlff_status add_bond(mlff_geometry *g, const mlff_system *system, int i, int j)
{
    bond added = {.atoms = {i, j}};
    mlff_status status = find_kind(g, system->species[i], 0, system->species[j], &added.kind);
    if (status == MLFF_OK) status = base_grow(&g->bonds, &g->bond_capacity, g->n_bonds + 1, sizeof *g->bonds, "bonds");
    if (status == MLFF_OK) g->bonds[g->n_bonds++] = added;
    return status;
}

static mlff_status add_angle(mlff_geometry *g, const mlff_system *system, int i, int center, int k)
{
    angle added = {.atoms = {i, center, k}};
    if (g->n_angles == MOST_ANGLES) return mlff_fail(MLFF_ERR_LIMIT, "more than %d angles; analyze fewer atoms", MOST_ANGLES);
    mlff_status status = find_kind(g, system->species[i], system->species[center], system->species[k], &added.kind);
    if (status == MLFF_OK) status = base_grow(&g->angles, &g->angle_capacity, g->n_angles + 1, sizeof *g->angles, "angles");
    if (status == MLFF_OK) g->angles[g->n_angles++] = added;
    return status;
}

static bool is_bond(const mlff_system *system, int i, int j, const double v[3])
{
    const double reach = COVALENT_REACH * (covalent_radius(system->species[i]) + covalent_radius(system->species[j]));
    return v[0] * v[0] + v[1] * v[1] + v[2] * v[2] < reach * reach;
}

static mlff_status find_bonds(mlff_geometry *g, const mlff_system *system)
{
    mlff_status status = MLFF_OK;
    mlff_neighbors *neighbors = NULL;
    mlff_batch batch;
    mlff_pairs pairs;
    const double *vectors;
    int32_t first[2];
    double largest = 0;
    for (int i = 0; i < system->n_atoms; i++) largest = fmax(largest, covalent_radius(system->species[i]));
    MLFF_TRY(mlff_neighbors_create(2 * COVALENT_REACH * largest, 0, &neighbors));
    mlff_batch_from_system(system, first, &batch);
    MLFF_TRY(mlff_neighbors_update(neighbors, &batch));
    mlff_neighbors_get(neighbors, &pairs, &vectors, NULL);
    for (int i = 0; i < system->n_atoms; i++)
        for (int32_t p = pairs.first[i]; p < pairs.first[i + 1]; p++) {
            const int j = pairs.neighbor[p];
            if (!is_bond(system, i, j, vectors + 3 * (size_t)p)) continue;
            if (j == i) MLFF_FAIL(MLFF_ERR_UNSUPPORTED, "atom %d is bonded to its own image; repeat the cell", i);
            if (i < j) MLFF_TRY(add_bond(g, system, i, j));
            for (int32_t q = pairs.first[i]; q < p; q++) {
                if (!is_bond(system, i, pairs.neighbor[q], vectors + 3 * (size_t)q)) continue;
                if (pairs.neighbor[q] == j)
                    MLFF_FAIL(MLFF_ERR_UNSUPPORTED, "atom %d is bonded to two images of atom %d; repeat the cell", i, j);
                MLFF_TRY(add_angle(g, system, pairs.neighbor[q], i, j));
            }
        }
done:
    mlff_neighbors_destroy(neighbors);
    return status;
}

mlff_status mlff_geometry_create(const mlff_system *first, mlff_geometry **geometry_out)
{
    mlff_status status = mlff_system_check(first, "bonds");
    if (status != MLFF_OK) return status;
    mlff_geometry *g = base_alloc(1, sizeof *g, "bonds");
    if (!g) return MLFF_ERR_MEMORY;
    g->n_atoms = first->n_atoms;
    MLFF_TRY(same_atoms_keep(first, &g->species));
    MLFF_TRY(find_bonds(g, first));
    *geometry_out = g;
    g = NULL;
done:
    mlff_geometry_destroy(g);
    return status;
}

// From atom i to the nearest image of atom j.
static void vector_between(const mlff_system *system, const atoms_images *images, int i, int j, double v[3])
{
    const double *a = system->positions + 3 * (size_t)i, *b = system->positions + 3 * (size_t)j;
    for (int c = 0; c < 3; c++) v[c] = b[c] - a[c];
    atoms_nearest_image(images, v);
}

static void count(kind *to, double value, double bin, int n_bins)
{
    to->n++;
    to->sum += value;
    to->squares += value * value;
    to->low = fmin(to->low, value);
    to->high = fmax(to->high, value);
    if (bin < n_bins) to->bins[(int)bin]++;
}

static double length_of(const double v[3])
{
    return sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
}

mlff_status mlff_geometry_add(mlff_geometry *g, const mlff_system *system)
{
    double u[3], v[3];
    atoms_images images;
    mlff_status status = mlff_system_check(system, "bonds");
    if (status == MLFF_OK) status = same_atoms_check(system, g->species, g->n_atoms);
    if (status != MLFF_OK) return status;
    atoms_images_make(system, &images);
    for (size_t k = 0; k < g->n_bonds; k++) {
        vector_between(system, &images, g->bonds[k].atoms[0], g->bonds[k].atoms[1], v);
        const double length = length_of(v);
        count(&g->kinds[g->bonds[k].kind], length, length / BOND_RANGE * BOND_BINS, BOND_BINS);
    }
    for (size_t k = 0; k < g->n_angles; k++) {
        const int *atoms = g->angles[k].atoms;
        vector_between(system, &images, atoms[1], atoms[0], u);
        vector_between(system, &images, atoms[1], atoms[2], v);
        const double cosine = (u[0] * v[0] + u[1] * v[1] + u[2] * v[2]) / (length_of(u) * length_of(v));
        const double degrees = acos(fmax(-1, fmin(1, cosine))) * (180 / BASE_PI);
        count(&g->kinds[g->angles[k].kind], degrees, fmin(degrees, 179.9), ANGLE_BINS);
    }
    g->n_frames++;
    return MLFF_OK;
}

int mlff_geometry_size(const mlff_geometry *g)
{
    return (int)g->n_kinds;
}

void mlff_geometry_get(const mlff_geometry *g, int index, mlff_geometry_kind *kind_out, double *density)
{
    const kind *k = &g->kinds[index];
    const bool is_angle = k->elements[2] != 0;
    const double mean = k->n > 0 ? k->sum / k->n : NAN;
    *kind_out =
        (mlff_geometry_kind){.is_angle = is_angle,
                             .count = k->count,
                             .mean = mean,
                             .deviation = k->n > 1 ? sqrt(fmax(k->squares / k->n - mean * mean, 0) * k->n / (k->n - 1)) : NAN,
                             .low = k->n > 0 ? k->low : NAN,
                             .high = k->n > 0 ? k->high : NAN,
                             .bin_width = is_angle ? 180.0 / ANGLE_BINS : BOND_RANGE / BOND_BINS,
                             .n_bins = is_angle ? ANGLE_BINS : BOND_BINS};
    memcpy(kind_out->elements, k->elements, sizeof kind_out->elements);
    for (int b = 0; density && b < kind_out->n_bins; b++) density[b] = k->n > 0 ? k->bins[b] / (k->n * kind_out->bin_width) : NAN;
}

void mlff_geometry_destroy(mlff_geometry *g)
{
    if (!g) return;
    base_free(g->species);
    base_free(g->bonds);
    base_free(g->angles);
    base_free(g->kinds);
    base_free(g);
}
