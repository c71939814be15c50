/* SPDX-License-Identifier: MIT */
/* images.h: ghost atoms that are periodic images of the process's own atoms.
 *
 * KIM gives a model positions and no cell: every periodic image within the influence distance is a ghost. Where one lattice makes all
 * ghosts images of owned atoms, and no image that matters is missing, an evaluator computes the owned atoms in the lattice's cell,
 * with the same energy and without ghosts. The lattice is found from the positions; each call checks it again. Where several lattices
 * explain the ghosts, as those of a crystal on its sites, none is taken: forces on ghosts would go to other atoms than the simulator's. */
#ifndef IMAGES_H
#define IMAGES_H

#include <stdbool.h>

#include "mlff.h"

typedef struct images images;

/* reach: influence distance, Å: images within it of the space that the owned atoms take matter. */
mlff_status images_create(double reach, images **images_out);
void images_destroy(images *images);

/* Whether all ghosts are images. contributing and atomic_numbers: [n_atoms], positions: [n_atoms][3] Å. Then *batch_out is the batch of the
 * owned atoms, of one system that is periodic along some axes of its cell, and atom_out: [atoms of the batch] their indices in the
 * caller's arrays, or NULL where they are its first ones and the batch has these arrays; both are borrowed until the next call. Otherwise
 * *batch_out is NULL: also where there are no ghosts. */
mlff_status images_update(images *images, int n_atoms, const int *atomic_numbers, const int *contributing,
                          const double *positions, const mlff_batch **batch_out, const int **atom_out);

/* After a call that gave a batch: simulators take the virial W from sums of f r over all atoms, ghosts too, and add the forces on ghosts
 * to their owners. `forces`: [n_atoms][3], those of the batch on its atoms, and 0 on ghosts. Forces on a few ghosts and their owners are
 * added, which cancel for each owner, so that the sum is `virial`: [9] eV, -dE/dstrain. */
void images_add_virial(const images *images, const double *positions, const double *virial, double *forces);

#endif
