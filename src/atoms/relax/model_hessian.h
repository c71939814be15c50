/* SPDX-License-Identifier: MIT */
/* model_hessian.h: an estimate of a molecule's Hessian from its geometry alone, as a metric for L-BFGS: bonds are some thousand times
 * stiffer than torsions, and steps that know this are fewer. */
#ifndef MODEL_HESSIAN_H
#define MODEL_HESSIAN_H

#include "base/base.h"
#include "mlff_atoms.h"

enum { MODEL_HESSIAN_ATOMS = 200 }; /* at most: a factorization of 600 variables takes some 50 ms */

/* The upper factor U [n][n] of UᵀU = H, n = 3 n_atoms, in eV^½/Å; the lower part is not used. Rows of fixed atoms are uncoupled.
 * NULL: no memory, which fails nothing: L-BFGS works without. The caller frees it with base_free. */
float *model_hessian_create(const mlff_system *system);
/* x = H⁻¹ x, [n]. */
void model_hessian_solve(const float *factor, size_t n, double *x);

#endif
