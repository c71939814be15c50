/* SPDX-License-Identifier: MIT */
/* symmetry.h: the symmetry operations of a crystal, and forces and virials averaged over them, so that rounding does not break the
 * symmetry of a structure that relaxes. */
#ifndef SYMMETRY_H
#define SYMMETRY_H

#include "base/base.h"
#include "mlff_atoms.h"

enum { SYMMETRY_ATOMS = 400 }; /* at most: operations times atoms grow with their square */

typedef struct symmetry {
    int n_atoms, n;    /* n operations, the identity among them */
    double *rotations; /* [n][9] orthogonal: row vectors turn as v R */
    int *images;       /* [n][n_atoms] the atom that each is moved to */
} symmetry;

/* Operations x -> x R + t that keep the lattice (angles and ratios of lengths to 1e-4) and move each atom to one of its element (to 1e-3 Å).
 * `system` is periodic along three axes; beyond SYMMETRY_ATOMS atoms n is 0. Fails with MLFF_ERR_MEMORY. */
mlff_status symmetry_find(const mlff_system *system, symmetry *found);
void symmetry_free(symmetry *s);
/* The mean of forces [n_atoms][3] over the operations. */
void symmetry_average_forces(const symmetry *s, const double *forces, double *mean);
/* The mean of a tensor [3][3] over the rotations. */
void symmetry_average_tensor(const symmetry *s, const double *tensor, double *mean);

#endif
