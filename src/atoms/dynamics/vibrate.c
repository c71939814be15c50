// SPDX-License-Identifier: MIT
// vibrate.c: random displacements at a temperature that stretch covalent bonds as much as bonds are stretched at it.
//
// Independent displacements (mlff_system_perturb) have the same spring of 4.2 eV/Å² for all directions: at 300 K 0.078 Å a component, and
// 0.11 Å along a bond. Bends and rotations are as soft as that, bonds are not: their spring k is 28 (C-C) to 48 eV/Å² (O-H). So each
// bond's length is set to r₀ + ξ sqrt(k_B T / k) with a normal deviate ξ: both ends move along the bond, by shares that leave their center
// of mass in place, in sweeps over all bonds, as SHAKE does (doi:10.1016/0021-9991(77)90098-5).
#include <math.h>
#include <string.h>

#include "atoms/atoms.h"
#include "atoms/elements/covalent.h"
#include "base/random.h"

#define BOND_SPRING 30.0 // eV/Å²
#define MAX_STRETCH 0.2  // of a bond's length
enum { SWEEPS = 20, STREAM_BOND = 0x626f6e64 };

typedef struct bond {
    int atoms[2];
    double rest[3], length; // at rest, from the first atom to the image of the second
    double wanted;          // length in the frame being made
} bond;

struct mlff_vibrator {
    mlff_system *rest;
    bond *bonds;
    size_t n, capacity;
};

// Elements whose bonds with one another are that stiff: not metals, silicon and germanium.
static bool has_stiff_bonds(int z)
{
    return !element_is_metal(z) && z != 14 && z != 32;
}

static double largest_radius(const mlff_system *system)
{
    double largest = 0;
    for (int i = 0; i < system->n_atoms; i++)
        if (has_stiff_bonds(system->species[i])) largest = fmax(largest, covalent_radius(system->species[i]));
    return largest;
}

static mlff_status find_bonds(mlff_vibrator *vibrator, double cutoff)
{
    mlff_status status = MLFF_OK;
    mlff_neighbors *neighbors = NULL;
    mlff_batch batch;
    mlff_pairs pairs;
    const double *vectors;
    const mlff_system *system = vibrator->rest;
    int32_t first[2];
    MLFF_TRY(mlff_neighbors_create(cutoff, 0, &neighbors));
    mlff_batch_from_system(system, first, &batch);
    MLFF_TRY(mlff_neighbors_update(neighbors, &batch));
    mlff_neighbors_get(neighbors, &pairs, &vectors, NULL);
    for (int i = 0; i < system->n_atoms; i++)
        for (int64_t p = pairs.first[i]; p < pairs.first[i + 1]; p++) {
            const int j = pairs.neighbor[p], a = system->species[i], b = system->species[j];
            const double *v = vectors + 3 * p, length = sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
            if (j <= i || !has_stiff_bonds(a) || !has_stiff_bonds(b)) continue;
            if (length >= COVALENT_REACH * (covalent_radius(a) + covalent_radius(b))) continue;
            MLFF_TRY(base_grow(&vibrator->bonds, &vibrator->capacity, vibrator->n + 1, sizeof *vibrator->bonds, "bonds"));
            vibrator->bonds[vibrator->n++] = (bond){.atoms = {i, j}, .rest = {v[0], v[1], v[2]}, .length = length};
        }
done:
    mlff_neighbors_destroy(neighbors);
    return status;
}

static double inverse_mass(const mlff_system *system, int i)
{
    return system->fixed && system->fixed[i] ? 0 : 1 / atoms_mass(system, i);
}

// Gives one bond its length. `start`: positions at rest.
static void set_length(mlff_system *system, const double *start, const bond *b)
{
    const size_t i = 3 * (size_t)b->atoms[0], j = 3 * (size_t)b->atoms[1];
    const double of_i = inverse_mass(system, b->atoms[0]), of_j = inverse_mass(system, b->atoms[1]);
    double *r = system->positions, v[3], square = 0;
    for (size_t c = 0; c < 3; c++) {
        v[c] = b->rest[c] + (r[j + c] - start[j + c]) - (r[i + c] - start[i + c]);
        square += v[c] * v[c];
    }
    if (!(of_i + of_j > 0 && square > 0)) return;
    const double change = (1 - b->wanted / sqrt(square)) / (of_i + of_j);
    for (size_t c = 0; c < 3; c++) {
        r[i + c] += of_i * change * v[c];
        r[j + c] -= of_j * change * v[c];
    }
}

void mlff_vibrator_destroy(mlff_vibrator *vibrator)
{
    if (!vibrator) return;
    mlff_system_destroy(vibrator->rest);
    base_free(vibrator->bonds);
    base_free(vibrator);
}

mlff_status mlff_vibrator_create(const mlff_system *rest, mlff_vibrator **vibrator_out)
{
    mlff_status status = MLFF_OK;
    const double radius = largest_radius(rest);
    mlff_vibrator *vibrator = base_alloc(1, sizeof *vibrator, "bonds");
    if (!vibrator) return MLFF_ERR_MEMORY;
    MLFF_TRY(mlff_system_copy(rest, &vibrator->rest));
    if (radius > 0) MLFF_TRY(find_bonds(vibrator, 2 * COVALENT_REACH * radius));
    *vibrator_out = vibrator;
    vibrator = NULL;
done:
    mlff_vibrator_destroy(vibrator);
    return status;
}

mlff_status mlff_vibrator_displace(mlff_vibrator *vibrator, double temperature_kelvin, uint64_t seed, mlff_system *system)
{
    const mlff_system *rest = vibrator->rest;
    if (system->n_atoms != rest->n_atoms)
        return mlff_fail(MLFF_ERR_USAGE, "%d atoms are to be displaced as %d others", system->n_atoms, rest->n_atoms);
    memcpy(system->positions, rest->positions, 3 * sizeof(double) * (size_t)rest->n_atoms);
    const mlff_status status = mlff_system_perturb(system, temperature_kelvin, seed);
    if (status != MLFF_OK) return status;
    const double deviation = sqrt(BASE_KB_EV_PER_K * temperature_kelvin / BOND_SPRING);
    for (size_t k = 0; k < vibrator->n; k++) {
        bond *b = &vibrator->bonds[k];
        const double change = deviation * base_random_normal(seed, STREAM_BOND, k), most = MAX_STRETCH * b->length;
        b->wanted = b->length + fmin(fmax(change, -most), most);
    }
    for (int sweep = 0; sweep < SWEEPS; sweep++)
        for (size_t k = 0; k < vibrator->n; k++) set_length(system, rest->positions, &vibrator->bonds[k]);
    return MLFF_OK;
}
