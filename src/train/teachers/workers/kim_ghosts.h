/* SPDX-License-Identifier: MIT */
/* kim_ghosts.h: a structure as a KIM simulator hands it to a model: its atoms, copies of them ("ghosts") out to the influence distance,
 * and a neighbor list of all of these for each cutoff. */
#ifndef KIM_GHOSTS_H
#define KIM_GHOSTS_H

#include "mlff_atoms.h"
#include "worker.h"

typedef struct kim_ghosts kim_ghosts;

/* Distances in Å; a list with no_ghost_rows has rows of the structure's own atoms only. Fails with MLFF_ERR_LIMIT for too many lists,
 * and as mlff_neighbors_create. */
mlff_status kim_ghosts_create(double influence, int n_lists, const double *cutoffs, const int *no_ghost_rows,
                              kim_ghosts **ghosts_out);
/* Fails as mlff_neighbors_update. */
mlff_status kim_ghosts_update(kim_ghosts *ghosts, const worker_request *request, const int32_t *species, const double *positions);
/* The structure's atoms come first; all borrowed until the next update. owner[n]: the atom of which a particle is a copy, or itself;
 * contributing[n]: 0 for ghosts; positions[n][3] Å. */
int kim_ghosts_get(const kim_ghosts *ghosts, const int **owner_out, const int **contributing_out, const double **positions_out);
/* Neighbors of a particle in list `list`; as KIM_GetNeighborListFunction, with the ghosts as data: not 0 for what does not exist. */
int kim_ghosts_list(void *ghosts, int n_lists, const double *cutoffs, int list, int particle, int *n_out,
                    const int **neighbors_out);

#endif
