// SPDX-License-Identifier: MIT
// team_size.c: threads of a team on a machine that other programs use too.
#include "device/team_size.h"

// A time slice of the scheduler is some 4 ms: a window holds several. It ends with the run that exceeds it, however few they are: on a
// crowded machine a run can take a hundred times as long as on a quiet one.
static const int64_t window_ns = 20000000, trial_ns = 10000000;
static const int64_t shortest_hold_ns = 50000000, longest_hold_ns = 2000000000;
static const double asleep_share = 0.45; // 0.5 is where half the threads are as fast

int pace_threads(pace *p, int n_wanted, int64_t now_ns)
{
    if (p->limit == 0 || n_wanted <= p->limit) return n_wanted;
    if (now_ns >= p->retry_at_ns && !p->trial) {
        p->trial = true;
        p->limit *= 2;
        p->elapsed_ns = p->asleep_ns = 0;
    }
    return n_wanted < p->limit ? n_wanted : p->limit;
}

void pace_record(pace *p, int n, int64_t elapsed_ns, int64_t asleep_ns, int64_t now_ns)
{
    p->elapsed_ns += elapsed_ns;
    p->asleep_ns += asleep_ns;
    if (p->elapsed_ns < (p->trial ? trial_ns : window_ns)) return;
    if ((double)p->asleep_ns > asleep_share * (double)p->elapsed_ns) {
        p->hold_ns = !p->trial ? shortest_hold_ns : 2 * p->hold_ns < longest_hold_ns ? 2 * p->hold_ns : longest_hold_ns;
        p->limit = n > 1 ? n / 2 : 1;
    } else if (p->trial) {
        p->hold_ns = shortest_hold_ns;
    }
    p->retry_at_ns = now_ns + p->hold_ns;
    p->trial = false;
    p->elapsed_ns = p->asleep_ns = 0;
}
