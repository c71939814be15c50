/* SPDX-License-Identifier: MIT */
/* vibrations.h: the algebra of harmonic vibrations: from a Hessian to modes.
 *
 *   H = M^-1/2 K M^-1/2,  H u = ω² u,  displacements x = M^-1/2 u
 *
 * E. B. Wilson, J. C. Decius, P. C. Cross, Molecular Vibrations (McGraw-Hill, 1955). */
#ifndef VIBRATIONS_H
#define VIBRATIONS_H

#include "mlff_atoms.h"

/* Eigenvalues (ascending) and vectors (row k of value k) of a symmetric matrix [n][n], which is used up: Jacobi rotations. `stopped`
 * is NULL or asked before each of n parts of a sweep. Fails with MLFF_ERR_MEMORY, and with what `stopped` returns. */
mlff_status symmetric_eigen(double *matrix, int n, double *values, double *vectors, mlff_status (*stopped)(void *context),
                            void *context);

/* Mass-weighted translations and rotations of the whole, orthonormal: rigid[6][3 n_atoms], of which the number that is returned is
 * set: 6 of a molecule, 5 of a linear one, 4 of a chain (periodic along one axis), 3 of an atom, a layer or a crystal, 0 if an atom is
 * fixed. */
int vibrations_rigid(const mlff_system *system, double *rigid);

/* H becomes (1 - Σ r rᵀ) H (1 - Σ r rᵀ) for n_rigid rows r[n] of length 1. */
void vibrations_project(const double *rigid, int n_rigid, double *hessian, size_t n);

/* Gives the rows r, which a projection has given the eigenvalue 0, one above all others: other motions without a force, as of parts that
 * are beyond each other's reach, have the eigenvalue 0 too, and eigenvectors would be any mixture of both. */
void vibrations_set_apart(const double *rigid, int n_rigid, double *hessian, size_t n);

#endif
