// SPDX-License-Identifier: MIT
// dataset_stiffness.c: whether forces are too large for the energies, where no two structures are near each other.
//
// Of n coordinates with springs k at a temperature T, or displaced by as much, forces have the mean square k k_B T and energies the
// standard deviation sqrt(n/2) k_B T. So <F²> sqrt(n/2) / σ(E), of structures of the same atoms, is a mean spring: 5.3 to 85 eV/Å² in 46
// sets of labels (modes, independent displacements, rattling, dynamics and pressed pairs of molecules and water, 300 to 1000 K), 2.4 to
// 134 in 220 parts of 20 of their structures. Forces in kcal/mol/Å beside energies in eV make it 532 times as large, at least 1250. Of these
// sets, parts and 14 relaxed ones none was told, with forces in kcal/mol/Å all but the relaxed ones, which are below the least spread
// (bench/distill/forces_and_spread.py; bench/results/cpu-forces-and-spread.json).
// Medians and quartiles stand for means, so that single structures out of all proportion have no weight.
#include <math.h>
#include <stdlib.h>

#include "dataset.h"

enum { FEWEST = 20 };         // structures of the same atoms, of different energies
#define STIFFEST 700.0        // eV/Å²
#define LEAST_SPREAD 5e-3     // eV; turned copies and relaxed structures are below
#define LEAST_DIFFERENCE 1e-5 // eV, of different energies
#define QUARTILES_IN_DEVIATIONS 1.349

typedef struct labelled {
    uint64_t atoms;        // the same of the same atoms in any order
    double energy, square; // eV; mean square of the components of forces, eV²/Å²
    int n_atoms;
} labelled;

static uint64_t mixed(uint64_t x)
{
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

uint64_t dataset_atoms_key(const int *species, int n_atoms)
{
    uint64_t key = 0;
    for (int i = 0; i < n_atoms; i++) key += mixed((uint64_t)species[i]);
    return key;
}

static labelled describe(const mlff_system *system)
{
    labelled l = {
        .atoms = dataset_atoms_key(system->species, system->n_atoms), .energy = system->label_energy, .n_atoms = system->n_atoms};
    for (int k = 0; k < 3 * system->n_atoms; k++) l.square += system->label_forces[k] * system->label_forces[k];
    l.square /= 3.0 * system->n_atoms;
    return l;
}

static int by_atoms_and_energy(const void *a, const void *b)
{
    const labelled *x = a, *y = b;
    if (x->atoms != y->atoms) return x->atoms < y->atoms ? -1 : 1;
    return (x->energy > y->energy) - (x->energy < y->energy);
}

static int by_square(const void *a, const void *b)
{
    const labelled *x = a, *y = b;
    return (x->square > y->square) - (x->square < y->square);
}

// Of structures of the same atoms, by ascending energy, which are put into another order. 0: too few, or too much alike.
static double spring_of(labelled *group, size_t n, double *spread_out, double *force_out)
{
    size_t n_different = n > 0;
    for (size_t k = 1; k < n; k++) n_different += group[k].energy - group[k - 1].energy > LEAST_DIFFERENCE;
    if (n_different < FEWEST) return 0;
    *spread_out = (group[n - 1 - n / 4].energy - group[n / 4].energy) / QUARTILES_IN_DEVIATIONS;
    if (*spread_out < LEAST_SPREAD) return 0;
    qsort(group, n, sizeof *group, by_square);
    *force_out = sqrt(group[n / 2].square);
    return group[n / 2].square * sqrt(1.5 * group[0].n_atoms) / *spread_out;
}

mlff_status dataset_warn_of_forces(const mlff_dataset *dataset, size_t first, const char *name)
{
    size_t n = 0, n_stiff = 0, n_judged = 0;
    double stiffest = 0, spread = 0, force = 0;
    if (dataset->n_frames <= first) return MLFF_OK;
    labelled *all = base_alloc(dataset->n_frames - first, sizeof *all, "labels");
    if (!all) return MLFF_ERR_MEMORY;
    for (size_t f = first; f < dataset->n_frames; f++) {
        const mlff_system *system = dataset->frames[f].system;
        if (system->label_forces && !isnan(system->label_energy)) all[n++] = describe(system);
    }
    qsort(all, n, sizeof *all, by_atoms_and_energy);
    for (size_t begin = 0, end; begin < n; begin = end) {
        double group_spread = 0, group_force = 0;
        for (end = begin + 1; end < n && all[end].atoms == all[begin].atoms; end++) continue;
        const double spring = spring_of(all + begin, end - begin, &group_spread, &group_force);
        if (spring > 0) n_judged += end - begin;
        if (spring > STIFFEST) n_stiff += end - begin;
        if (spring <= stiffest) continue;
        stiffest = spring, spread = group_spread, force = group_force;
    }
    base_free(all);
    if (2 * n_stiff > n_judged)
        base_warn(
            "%s: its forces seem too large for its energies: %.3g eV/Å (median) where energies of the same atoms have a standard "
            "deviation of %.3g eV, as springs of %.3g eV/Å² would (stiff bonds have 100); are they in eV/Å, not kcal/mol/Å?",
            name, force, spread, stiffest);
    return MLFF_OK;
}
