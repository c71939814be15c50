/* SPDX-License-Identifier: MIT */
/* model_hessian.h: an estimate of a molecule's Hessian from its geometry alone, as a metric for L-BFGS: bonds are some thousand times
 * stiffer than torsions, and steps that know this are fewer. */
#ifndef MODEL_HESSIAN_H
#define MODEL_HESSIAN_H

#include "atoms/relax/relax_kernels.h"
#include "base/base.h"
#include "mlff_atoms.h"

enum { MODEL_HESSIAN_ATOMS = 200 }; /* at most: 600 variables, a factor of 1.4 MB */

/* UᵀU = H, n = 3 n_atoms, in eV^½/Å, of atoms in an order that keeps U near its diagonal. Rows of fixed atoms are uncoupled. */
typedef struct model_hessian {
    const relax_kernels *kernels;
    size_t n;
    float *factor;  /* [n][relax_stride(n)] U; elements left of the diagonal and from a row's end on are not used */
    size_t *ends;   /* [n] */
    int *place;     /* [n_atoms] of each atom in the order */
    float *ordered; /* [relax_stride(n)] for a solution */
    double *rho;    /* [n_atoms][n_atoms] while it is made */
    int *lists;     /* [3 n_atoms + n_atoms²] likewise */
} model_hessian;

/* Room for the atoms of this system. NULL: no memory, which fails nothing: L-BFGS works without. */
model_hessian *model_hessian_create(const mlff_system *system);
/* Makes it from the positions as they are. */
void model_hessian_update(model_hessian *h, const mlff_system *system);
void model_hessian_destroy(model_hessian *h);
/* x = H⁻¹ x, [n]. One thread at a time. */
void model_hessian_solve(const model_hessian *h, double *x);

#endif
