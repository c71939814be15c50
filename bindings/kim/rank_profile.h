/* SPDX-License-Identifier: MIT */
/* rank_profile.h: profile of the force field in a process of a simulator, where MLFF_PROFILE names a file. */
#ifndef RANK_PROFILE_H
#define RANK_PROFILE_H

#include <stdbool.h>

#include "mlff_profile.h"

typedef struct rank_profile rank_profile;

/* What a simulator's process does around the evaluator: parts of a step that have a time of their own. */
enum { RANK_LIST, RANK_GATHER, RANK_EXCHANGE, N_RANK_PARTS };

/* NULL, and MLFF_OK, where MLFF_PROFILE is not set. Evaluator and model are borrowed. exchanges: ghosts' features are exchanged between
 * layers. Removes this rank's file of an earlier run. */
mlff_status rank_profile_create(mlff_evaluator *evaluator, const mlff_model *model, int rank, int n_ranks, bool exchanges,
                                rank_profile **profile_out);
/* Calls step(context), which computes; timed from the second call on: the first one allocates. NULL only calls it. */
mlff_status rank_profile_step(rank_profile *profile, mlff_status (*step)(void *context), void *context);
/* Time that the step spends in a part: from `begin`, which _begin gave, until now. Both accept NULL. */
int64_t rank_profile_begin(const rank_profile *profile);
void rank_profile_add(rank_profile *profile, int part, int64_t begin);
/* The same for RANK_LIST, and how often the list was built. */
void rank_profile_list(rank_profile *profile, int64_t begin, const mlff_neighbors *neighbors);
/* After a step: the atoms of the process, n_owned in the order of `species` where `owned` is not 0, or all where it is NULL. */
void rank_profile_atoms(rank_profile *profile, const int32_t *species, const unsigned char *owned, int n_atoms);
/* Writes the file, if a step was timed; what goes wrong is one line on stderr. Accepts NULL. */
void rank_profile_destroy(rank_profile *profile);

#endif
