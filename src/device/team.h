/* SPDX-License-Identifier: MIT */
/* team.h: the threads of the CPU. One team for each process: a caller that finds it busy uses its own thread only, so that several evaluators in
 * several threads never use more threads than there are cores. Waiting threads spin for some 30 µs, which a step's
 * barriers need, and then sleep, so that they do not load a busy machine. Where other programs keep members off their cores, a run
 * has fewer threads (team_size.h). */
#ifndef TEAM_H
#define TEAM_H

#include <stddef.h>

/* One thread of a running piece of work. */
typedef struct team_member {
    int thread, n; /* 0 is the caller; n threads work together */
} team_member;

enum { TEAM_MAX = 256 };

/* Runs work(context, member) in up to `n_wanted` threads, the caller among them, and returns when all are done.
 * `work` must accept any member->n. */
void team_run(int n_wanted, void (*work)(void *context, const team_member *member), void *context);
/* base_alloc, zeroed by up to `n_wanted` threads: the system's work to give a page is nearly all of the time that a large block takes. */
void *team_alloc(int n_wanted, size_t count, size_t size, const char *what);
/* Waits for the other members of this run. */
void team_barrier(const team_member *member);
/* Cores this process may use, by its affinity and its container's quota; OMP_NUM_THREADS, if set, replaces this
 * number. At least 1, at most TEAM_MAX. */
int team_default_size(void);
/* `wanted` within 1 to TEAM_MAX; 0 or less: team_default_size(). */
int team_size(int wanted);

#endif
