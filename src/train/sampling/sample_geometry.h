/* SPDX-License-Identifier: MIT */
/* sample_geometry.h: is a structure physical: no two atoms too close, no bond broken; and cells of other sizes. */
#ifndef SAMPLE_GEOMETRY_H
#define SAMPLE_GEOMETRY_H

#include "base/base.h"
#include "mlff_atoms.h"

typedef struct sample_bond {
    int first, second;
    int shift[3]; /* cell vectors from the first's cell to the second's */
    double radii; /* Å, sum of covalent radii */
} sample_bond;

typedef struct sample_bonds {
    sample_bond *bonds; /* [n] */
    size_t n, capacity;
} sample_bonds;

/* Two atoms, and their distance as a multiple of the sum of their covalent radii. */
typedef struct sample_contact {
    int a, b; /* -1: none */
    double ratio;
} sample_contact;

/* Shortest distance between two atoms as a multiple of the sum of their covalent radii; 1e9 where that is above 1,
 * 0 for two atoms on one point. Fails with MLFF_ERR_MEMORY. */
mlff_status sample_closest(const mlff_system *system, double *ratio_out);
/* The two atoms of that distance as well; none where it is above 1 or 0. */
mlff_status sample_closest_pair(const mlff_system *system, sample_contact *closest_out);
/* Pairs closer than 1.25 of the sum of their covalent radii. */
mlff_status sample_bonds_find(const mlff_system *system, sample_bonds *bonds);
/* Largest length of a bond as a multiple of that sum; 0 without bonds. Atoms must not have been wrapped since. */
double sample_bonds_longest(const sample_bonds *bonds, const mlff_system *system);
void sample_bonds_free(sample_bonds *bonds);

/* Strains a structure whose volume may change, its atoms with it (three axes repeat, nothing is fixed, and no layer of 6 Å is empty): all lengths by the same, 0.2 to 1 of largest (shorter where number is odd), and each
 * component of the strain by up to a third of that. Others are left as they are. Deterministic in seed and number. Fails with MLFF_ERR_MEMORY. */
mlff_status sample_strain(mlff_system *system, double largest, uint64_t seed, int64_t number);

#endif
