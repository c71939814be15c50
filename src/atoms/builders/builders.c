// SPDX-License-Identifier: MIT
// builders.c: crystals, water and molecules by name, at the size nearest to the one asked for.
//
// Lattice constants at room temperature (CRC Handbook of Chemistry and Physics, rounded): silicon 5.431 Å,
// aluminum 4.05 Å, iron 2.866 Å.
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "atoms/atoms.h"

static const mlff_builder_info builders[] = {
    {"silicon", "diamond silicon, a = 5.431 Å, periodic"},
    {"aluminum", "fcc aluminum, a = 4.05 Å, periodic"},
    {"iron", "bcc iron, a = 2.866 Å, periodic"},
    {"water", "liquid water, 0.997 g/cm³, periodic"},
    {"h2o", "one water molecule, 3 atoms"},
    {"methane", "CH4, 5 atoms"},
    {"ethanol", "C2H6O, trans, 9 atoms"},
    {"benzene", "C6H6, 12 atoms"},
    {"aspirin", "acetylsalicylic acid, C9H8O4, 21 atoms"},
    {"caffeine", "1,3,7-trimethylxanthine, C8H10N4O2, 24 atoms"},
};
enum { N_BUILDERS = sizeof builders / sizeof builders[0], DEFAULT_ATOMS = 64 };

const mlff_builder_info *mlff_builders(int *n_out)
{
    *n_out = N_BUILDERS;
    return builders;
}

// ---- crystals

// A cell, lengths in edges of the cubic cell.
typedef struct unit {
    int n_sites;
    double cell[9];
    const double *sites; // [n_sites][3], Cartesian
} unit;

static const double diamond_sites[] = {0,  0, 0,  .25, .25, .25, 0,  .5, .5, .25, .75, .75,
                                       .5, 0, .5, .75, .25, .75, .5, .5, 0,  .75, .75, .25};
static const double fcc_sites[] = {0, 0, 0, 0, .5, .5, .5, 0, .5, .5, .5, 0};
static const double bcc_sites[] = {0, 0, 0, .5, .5, .5};

#define CUBIC                                                                                                                    \
    {                                                                                                                            \
        1, 0, 0, 0, 1, 0, 0, 0, 1                                                                                                \
    }
#define FCC_PRIMITIVE                                                                                                            \
    {                                                                                                                            \
        0, .5, .5, .5, 0, .5, .5, .5, 0                                                                                          \
    }
#define BCC_PRIMITIVE                                                                                                            \
    {                                                                                                                            \
        -.5, .5, .5, .5, -.5, .5, .5, .5, -.5                                                                                    \
    }

static const struct crystal {
    const char *name;
    int species;
    double edge; // Å
    unit cubic, primitive;
} crystals[] = {
    {"silicon", 14, 5.431, {8, CUBIC, diamond_sites}, {2, FCC_PRIMITIVE, diamond_sites}},
    {"aluminum", 13, 4.05, {4, CUBIC, fcc_sites}, {1, FCC_PRIMITIVE, fcc_sites}},
    {"iron", 26, 2.866, {2, CUBIC, bcc_sites}, {1, BCC_PRIMITIVE, bcc_sites}},
};

// Repetitions a <= b <= c <= 2a of a cell: with these every count has one within a few per cent, and none is a needle.
// Nearest count first, then the most cubic, then the larger.
static void choose_repetition(int n_sites, int n_atoms, int n[3])
{
    double target = (double)n_atoms / n_sites;
    double best_miss = INFINITY, best_ratio = INFINITY;
    int64_t best_count = 0;
    for (int64_t a = 1; (double)((a - 1) * (a - 1) * (a - 1)) < target; a++)
        for (int64_t b = a; b <= 2 * a; b++) {
            double exact = target / (double)(a * b);
            for (int64_t c = (int64_t)floor(exact); c <= (int64_t)floor(exact) + 1; c++) {
                if (c < b || c > 2 * a) continue;
                int64_t count = a * b * c;
                double miss = fabs((double)count - target), ratio = (double)c / (double)a;
                if (miss > best_miss || (miss == best_miss && ratio > best_ratio)) continue;
                if (miss == best_miss && ratio == best_ratio && count <= best_count) continue;
                best_miss = miss;
                best_ratio = ratio;
                best_count = count;
                n[0] = (int)a;
                n[1] = (int)b;
                n[2] = (int)c;
            }
        }
}

static mlff_status build_crystal(const struct crystal *crystal, int n_atoms, mlff_system **system_out)
{
    mlff_status status = MLFF_OK;
    mlff_system *cell = NULL;
    const unit *basis = n_atoms < crystal->cubic.n_sites ? &crystal->primitive : &crystal->cubic;
    int n[3] = {1, 1, 1};

    choose_repetition(basis->n_sites, n_atoms, n);
    MLFF_TRY(mlff_system_create(basis->n_sites, &cell));
    for (int i = 0; i < basis->n_sites; i++) cell->species[i] = crystal->species;
    for (int k = 0; k < 3 * basis->n_sites; k++) cell->positions[k] = basis->sites[k] * crystal->edge;
    for (int k = 0; k < 9; k++) cell->cell[k] = basis->cell[k] * crystal->edge;
    for (int axis = 0; axis < 3; axis++) cell->periodic[axis] = 1;
    MLFF_TRY(mlff_system_repeat(cell, n, system_out));
done:
    mlff_system_destroy(cell);
    return status;
}

// ---- molecules

static mlff_status build_molecule(const atoms_molecule *molecule, mlff_system **system_out)
{
    mlff_system *system;
    mlff_status status = mlff_system_create(molecule->n_atoms, &system);
    if (status != MLFF_OK) return status;
    for (int i = 0; i < molecule->n_atoms; i++) {
        system->species[i] = molecule->sites[i].atomic_number;
        memcpy(system->positions + 3 * i, molecule->sites[i].position, 3 * sizeof(double));
    }
    *system_out = system;
    return MLFF_OK;
}

// Whether a name may be meant as a SMILES: of its characters alone.
static bool is_like_smiles(const char *name)
{
    return name[strspn(name, "BCNOPSFIHlrbcnops0123456789()[]=#@+-/\\.%")] == 0 && strpbrk(name, "BCNOPSFI[(=#");
}

mlff_status mlff_system_build(const char *name, int n_atoms, uint64_t seed, mlff_system **system_out)
{
    if (!name) name = "";
    if (n_atoms <= 0) n_atoms = DEFAULT_ATOMS;
    if (n_atoms > ATOMS_MAX_ATOMS)
        return mlff_fail(MLFF_ERR_LIMIT, "%s: %d atoms asked for; at most %d are built", name, n_atoms, ATOMS_MAX_ATOMS);

    for (size_t k = 0; k < sizeof crystals / sizeof crystals[0]; k++)
        if (strcmp(name, crystals[k].name) == 0) return build_crystal(&crystals[k], n_atoms, system_out);
    if (strcmp(name, "water") == 0) return liquid_water(n_atoms <= 3 ? 1 : (int)lround(n_atoms / 3.0), seed, system_out);
    int n_molecules;
    const atoms_molecule *molecules = atoms_molecules(&n_molecules);
    for (int k = 0; k < n_molecules; k++)
        if (strcmp(name, molecules[k].name) == 0) return build_molecule(&molecules[k], system_out);

    char known[256] = "";
    for (int k = 0; k < N_BUILDERS; k++) {
        size_t length = strlen(known);
        snprintf(known + length, sizeof known - length, "%s%s", k > 0 ? ", " : "", builders[k].name);
    }
    return mlff_fail(MLFF_ERR_USAGE, "no system is called '%.40s'; there are %s%s", name, known,
                     is_like_smiles(name) ? "; of a SMILES, seeds_from_smiles of the Python package makes structures for a file"
                                          : "");
}
