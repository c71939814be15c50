/* SPDX-License-Identifier: MIT */
/* crew.h: threads that each serve one domain, and wait for each other. Other than the team of the CPU (device/team.h) each keeps its
 * GPU, and a failure of one ends the waits of all. */
#ifndef CREW_H
#define CREW_H

#include "base/base.h"

typedef struct crew crew;

/* Work of member `index`. It must return once crew_barrier fails. */
typedef mlff_status (*crew_work)(void *context, int index);

/* Members of domains on GPUs ask for a while before they sleep in crew_barrier: each has a core, as it asks its GPU. Fails with MLFF_ERR_MEMORY,
 * or MLFF_ERR_LIMIT where the system gives no more threads. */
mlff_status crew_create(int n_members, bool on_gpus, crew **crew_out);
void crew_destroy(crew *crew);
/* Runs work(context, 0 … n − 1), each in its own thread, and returns when all have ended: the failure that came first, with its text. */
mlff_status crew_run(crew *crew, crew_work work, void *context);
/* Waits until all members whose work has not returned have called it. false: another member has failed before that. All members get
 * the same answer. */
bool crew_barrier(crew *crew);
/* What a member returns whose wait was ended by another's failure. */
mlff_status crew_ended(void);

#endif
