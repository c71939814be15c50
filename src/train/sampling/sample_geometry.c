// SPDX-License-Identifier: MIT
// sample_geometry.c: distances as multiples of the sum of covalent radii (Cordero et al. 2008).
#include "sample_geometry.h"

#include <math.h>

#include "atoms/atoms.h"
#include "atoms/elements/covalent.h"

// Calls `visit` for each pair closer than `limit` sums of radii, once in each direction.
typedef void (*pair_visitor)(void *context, int i, int j, const int32_t *shift, double ratio, double radii);

static mlff_status visit_pairs(const mlff_system *system, double limit, pair_visitor visit, void *context)
{
    mlff_status status = MLFF_OK;
    mlff_neighbors *neighbors = NULL;
    mlff_pairs pairs;
    mlff_batch batch;
    int32_t first_atom[2];
    const double *vectors;
    const int32_t none[3] = {0};
    double largest = 0;

    for (int i = 0; i < system->n_atoms; i++) largest = fmax(largest, covalent_radius(system->species[i]));
    MLFF_TRY(mlff_neighbors_create(2 * limit * largest, 0, &neighbors));
    mlff_batch_from_system(system, first_atom, &batch);
    MLFF_TRY(mlff_neighbors_update(neighbors, &batch));
    mlff_neighbors_get(neighbors, &pairs, &vectors, NULL);
    for (int i = 0; i < system->n_atoms; i++)
        for (int32_t p = pairs.first[i]; p < pairs.first[i + 1]; p++) {
            const int j = pairs.neighbor[p];
            const double *r = vectors + 3 * (size_t)p;
            const double radii = covalent_radius(system->species[i]) + covalent_radius(system->species[j]);
            const double ratio = sqrt(r[0] * r[0] + r[1] * r[1] + r[2] * r[2]) / radii;
            if (ratio < limit) visit(context, i, j, pairs.shift ? pairs.shift + 3 * (size_t)p : none, ratio, radii);
        }
done:
    mlff_neighbors_destroy(neighbors);
    return status;
}

static void take_closest(void *context, int i, int j, const int32_t *shift, double ratio, double radii)
{
    sample_contact *closest = context;
    (void)shift, (void)radii;
    if (ratio < closest->ratio) *closest = (sample_contact){i, j, ratio};
}

mlff_status sample_closest_pair(const mlff_system *system, sample_contact *closest_out)
{
    sample_contact closest = {-1, -1, 1e9};
    const mlff_status status = visit_pairs(system, 1.0, take_closest, &closest);
    if (status != MLFF_OK && status != MLFF_ERR_VALUE) return status;
    if (status == MLFF_ERR_VALUE) closest = (sample_contact){-1, -1, 0}; // two atoms on one point, or far away
    *closest_out = closest;
    return MLFF_OK;
}

mlff_status sample_closest(const mlff_system *system, double *ratio_out)
{
    sample_contact closest;
    const mlff_status status = sample_closest_pair(system, &closest);
    if (status == MLFF_OK) *ratio_out = closest.ratio;
    return status;
}

typedef struct bond_search {
    sample_bonds *bonds;
    mlff_status status;
} bond_search;

static void take_bond(void *context, int i, int j, const int32_t *shift, double ratio, double radii)
{
    bond_search *search = context;
    sample_bonds *bonds = search->bonds;
    (void)ratio;
    if (j < i || search->status != MLFF_OK) return; // once; an atom's own images come twice, which does no harm
    search->status = base_grow(&bonds->bonds, &bonds->capacity, bonds->n + 1, sizeof *bonds->bonds, "bonds");
    if (search->status != MLFF_OK) return;
    bonds->bonds[bonds->n++] = (sample_bond){.first = i, .second = j, .shift = {shift[0], shift[1], shift[2]}, .radii = radii};
}

mlff_status sample_bonds_find(const mlff_system *system, sample_bonds *bonds)
{
    bond_search search = {bonds, MLFF_OK};
    bonds->n = 0;
    const mlff_status status = visit_pairs(system, COVALENT_REACH, take_bond, &search);
    return status != MLFF_OK ? status : search.status;
}

double sample_bonds_longest(const sample_bonds *bonds, const mlff_system *system)
{
    double longest = 0;
    for (size_t b = 0; b < bonds->n; b++) {
        const sample_bond *bond = &bonds->bonds[b];
        double square = 0;
        for (int c = 0; c < 3; c++) {
            double d =
                system->positions[3 * (size_t)bond->second + (size_t)c] - system->positions[3 * (size_t)bond->first + (size_t)c];
            for (int k = 0; k < 3; k++) d += bond->shift[k] * system->cell[3 * k + c];
            square += d * d;
        }
        longest = fmax(longest, sqrt(square) / bond->radii);
    }
    return longest;
}

void sample_bonds_free(sample_bonds *bonds)
{
    base_free(bonds->bonds);
    *bonds = (sample_bonds){0};
}

// The widest empty layer along an axis, Å: vacuum beside a surface or around a molecule.
static double widest_gap(const mlff_system *system, const double inverse[9], int axis, double *fractions)
{
    double widest = 0, square = 0;
    const int n = system->n_atoms;
    for (int i = 0; i < n; i++) {
        const double *r = system->positions + 3 * (size_t)i;
        const double fraction = r[0] * inverse[axis] + r[1] * inverse[3 + axis] + r[2] * inverse[6 + axis];
        fractions[i] = fraction - floor(fraction);
    }
    base_sort(fractions, (size_t)n);
    for (int i = 0; i + 1 < n; i++) widest = fmax(widest, fractions[i + 1] - fractions[i]);
    widest = fmax(widest, fractions[0] + 1 - fractions[n - 1]);
    for (int c = 0; c < 3; c++) square += inverse[3 * c + axis] * inverse[3 * c + axis];
    return widest / sqrt(square);
}

// Can its volume change in dynamics at constant pressure? Three axes repeat, nothing is fixed, and there is no vacuum.
static mlff_status fills_its_cell(const mlff_system *system, bool *fills_out)
{
    static const double VACUUM = 6; // Å: wider than any two layers of a crystal, narrower than what surfaces are given
    double inverse[9];
    *fills_out = system->n_atoms > 0 && system->periodic[0] && system->periodic[1] && system->periodic[2] &&
                 atoms_invert(system->cell, inverse);
    for (int i = 0; system->fixed && i < system->n_atoms; i++) *fills_out = *fills_out && !system->fixed[i];
    if (!*fills_out) return MLFF_OK;
    double *fractions = base_alloc((size_t)system->n_atoms, sizeof *fractions, "fractions");
    if (!fractions) return MLFF_ERR_MEMORY;
    for (int axis = 0; axis < 3; axis++) *fills_out = *fills_out && widest_gap(system, inverse, axis, fractions) < VACUUM;
    base_free(fractions);
    return MLFF_OK;
}

mlff_status sample_strain(mlff_system *system, double largest, uint64_t seed, int64_t number)
{
    const uint64_t stream = ((uint64_t)0x73747261 << 32) + (uint64_t)number;
    double strain[6]; // xx, yy, zz, yz, xz, xy
    bool fills;
    const mlff_status status = fills_its_cell(system, &fills);
    if (status != MLFF_OK || !fills) return status;
    const double all = (number % 2 ? -largest : largest) * (0.2 + 0.8 * base_random_uniform(seed, stream, 0));
    for (int k = 0; k < 6; k++)
        strain[k] = largest / 3 * (2 * base_random_uniform(seed, stream, 1 + (uint64_t)k) - 1) + (k < 3 ? all : 0);
    const double map[3][3] = {
        {1 + strain[0], strain[5], strain[4]}, {strain[5], 1 + strain[1], strain[3]}, {strain[4], strain[3], 1 + strain[2]}};
    for (int row = 0; row < 3 + system->n_atoms; row++) {
        double *r = row < 3 ? system->cell + 3 * row : system->positions + 3 * (size_t)(row - 3);
        const double before[3] = {r[0], r[1], r[2]};
        for (int c = 0; c < 3; c++) r[c] = before[0] * map[0][c] + before[1] * map[1][c] + before[2] * map[2][c];
    }
    return MLFF_OK;
}
