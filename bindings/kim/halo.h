/* SPDX-License-Identifier: MIT */
/* halo.h: the atoms that the energies of contributing atoms depend on, as a batch for an evaluator.
 *
 * KIM hands over owned ("contributing") and ghost atoms out to the influence distance and, under LAMMPS, a skin beyond it.
 * A model of L layers passes messages over L edges: atoms that cannot be reached from an owned atom in L steps are dropped,
 * and those reached only in L steps need no row of their own in the neighbor list. Atoms are sorted by that number of steps, which
 * lets evaluators on the CPU end each layer early. */
#ifndef HALO_H
#define HALO_H

#include <stdbool.h>

#include "mlff.h"

typedef struct halo halo;

/* cutoff in Å. with_pairs: the batch carries a neighbor list with the rows that matter (for evaluators on the CPU); otherwise the
 * evaluator builds the list, only atoms far from all owned ones are dropped, and ghosts are sorted by their distance from these. */
mlff_status halo_create(double cutoff, int n_layers, bool with_pairs, halo **halo_out);

/* The batch of one system without a cell for these atoms. contributing and atomic_numbers: [n_atoms], positions: [n_atoms][3] Å.
 * atom_out: [atoms of the batch] index of each in the caller's arrays. Both are borrowed until the next call. The batch has no
 * atoms where none contributes. */
mlff_status halo_update(halo *halo, int n_atoms, const int *atomic_numbers, const int *contributing, const double *positions,
                        const mlff_batch **batch_out, const int **atom_out);
/* The list of its pairs; NULL where the evaluator builds it. */
const mlff_neighbors *halo_neighbors(const halo *halo);
void halo_destroy(halo *halo);

#endif
