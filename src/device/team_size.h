/* SPDX-License-Identifier: MIT */
/* team_size.h: how many threads a team uses while other programs want the same cores. A member that the scheduler has taken off its
 * core keeps the others waiting: at a load of 2.6 on two cores, two threads were 2.2 times slower than one. Of runs with n threads the
 * caller's time asleep at barriers is added up; beyond 45 % of their time half the threads would be faster, since
 * T(n/2) ≤ 2 (T(n) − asleep). The number is then halved, and doubled again for a trial after a while that grows with each trial that fails. */
#ifndef TEAM_SIZE_H
#define TEAM_SIZE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct pace {
    int limit; /* threads at most; 0: no limit yet */
    bool trial;
    int64_t elapsed_ns, asleep_ns; /* of the window */
    int64_t hold_ns, retry_at_ns;
} pace;

/* Threads for a run that begins at `now_ns` (monotonic clock) and wants n_wanted. */
int pace_threads(pace *p, int n_wanted, int64_t now_ns);
/* A run of n > 1 threads took elapsed_ns and ended at now_ns; its caller slept asleep_ns of it at barriers. */
void pace_record(pace *p, int n, int64_t elapsed_ns, int64_t asleep_ns, int64_t now_ns);

#endif
