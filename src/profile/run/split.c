// SPDX-License-Identifier: MIT
// split.c: what forces add to the energy, and stress to forces, measured after the run.
#include <math.h>
#include <string.h>

#include "run.h"

// Energy alone, then with forces, then with stress, interleaved so that a drift of the machine affects all alike. Generated
// frames are new for each call, as in the run; frames of a file differ in size, so that the calls of a round share one, and
// alternate in being first. The first round is not counted: buffers are allocated in it. Nor are calls in which a thread waited for a CPU, if
// enough others are left: on a busy machine that is most of the longer calls and fewer of the shorter ones.
enum { SPLIT_ROUNDS = 50, SPLIT_MASKS = 3, SPLIT_FEWEST = 5, SPLIT_NS = 2000000000 };

typedef struct split_times {
    double all[SPLIT_ROUNDS], running[SPLIT_ROUNDS]; // ms; running: of calls without such a wait
    int n_all, n_running;
} split_times;

static double split_median(split_times *t)
{
    const bool enough = t->n_running >= SPLIT_FEWEST;
    return statistics_median(enough ? t->running : t->all, enough ? t->n_running : t->n_all);
}

static mlff_status split_round(run *r, const unsigned *masks, int n_masks, int round, split_times *times)
{
    mlff_status status = MLFF_OK;
    bool fresh = r->md || strcmp(trajectory_kind(r->trajectory), "thermal") == 0;
    for (int i = 0; i < n_masks; i++) {
        int which = (i + round) % n_masks;
        int64_t time_ns;
        if (i == 0 || fresh) {
            if (r->md) MLFF_TRY(trajectory_integrate(r->trajectory));
            MLFF_TRY(run_frame_next(r));
        }
        process_watch_seen seen;
        process_watch_read(&r->watch, &seen);
        MLFF_TRY(run_call(r, masks[which], &time_ns));
        process_watch_read(&r->watch, &seen);
        split_times *t = &times[which];
        t->all[t->n_all++] = (double)time_ns * 1e-6;
        if (seen.wait_ns <= 0 && seen.team_wait_ns <= 0) t->running[t->n_running++] = (double)time_ns * 1e-6;
    }
done:
    return status;
}

mlff_status run_split(run *r, mlff_profile *profile)
{
    mlff_status status = MLFF_OK;
    unsigned masks[SPLIT_MASKS] = {MLFF_ENERGY};
    split_times times[SPLIT_MASKS] = {0};
    double median[SPLIT_MASKS], parts[SPLIT_MASKS] = {0};
    int n_masks = 1, rounds = 0;
    int max_rounds = r->options.n_steps < SPLIT_ROUNDS ? (int)r->options.n_steps : SPLIT_ROUNDS;

    if (!(r->callable.properties & MLFF_ENERGY))
        return profile_note(profile, "%s cannot be asked for the energy alone, so the split is not measured", r->callable.name);
    if (r->wanted & MLFF_FORCES) {
        masks[n_masks] = masks[n_masks - 1] | MLFF_FORCES;
        n_masks++;
    }
    if (r->wanted & MLFF_STRESS) {
        masks[n_masks] = masks[n_masks - 1] | MLFF_STRESS;
        n_masks++;
    }
    int64_t start = mlff_clock_ns();
    MLFF_TRY(split_round(r, masks, n_masks, 0, times));
    memset(times, 0, sizeof times);
    do {
        if (run_stops(r, r->options.n_steps))
            MLFF_FAIL(MLFF_ERR_INTERRUPTED, "interrupted after the last step, while energy and forces were measured apart");
        MLFF_TRY(split_round(r, masks, n_masks, rounds, times));
        rounds++;
    } while (rounds < max_rounds && mlff_clock_ns() - start < SPLIT_NS);

    for (int k = 0; k < n_masks; k++) {
        median[k] = split_median(&times[k]);
        parts[k] = k == 0 ? median[0] : fmax(median[k] - median[k - 1], 0.0);
    }
    profile->summary.energy_time_ms = parts[0];
    int next = 1;
    if (r->wanted & MLFF_FORCES) profile->summary.forces_time_ms = parts[next++];
    if (r->wanted & MLFF_STRESS) profile->summary.stress_time_ms = parts[next];
    if (profile_is_one_shot(profile))
        MLFF_TRY(profile_note(profile,
                              "an energy-only step takes as long as one with forces: it seems that %s computes both at once",
                              r->callable.name));
done:
    return status;
}
