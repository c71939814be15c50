/* SPDX-License-Identifier: MIT */
/* same_atoms.h: whether each frame of a trajectory has the atoms of the first one, in the same order. */
#ifndef SAME_ATOMS_H
#define SAME_ATOMS_H

#include "base/base.h"
#include "mlff_atoms.h"

/* The elements of the first frame, in place of *species, which is freed; to be freed with base_free(). Fails with MLFF_ERR_MEMORY. */
mlff_status same_atoms_keep(const mlff_system *first, int **species);

/* Fails with MLFF_ERR_USAGE for an atomic number of no element, other than 0, which means all. */
mlff_status same_atoms_check_element(int element);

/* Fails with MLFF_ERR_USAGE where the number of atoms or an element is another one. species [n_atoms]. */
mlff_status same_atoms_check(const mlff_system *system, const int *species, int n_atoms);

#endif
