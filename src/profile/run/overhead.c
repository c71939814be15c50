// SPDX-License-Identifier: MIT
// overhead.c: what measuring costs. After the run, short blocks of steps with everything on (stage clocks, counters, resource
// usage, series, memory samples) are interleaved with blocks of bare steps, in the order on off off on, so that a drift of the
// machine affects both alike. The difference of consecutive blocks is the overhead of a step. Of long steps it is next to nothing, and
// these blocks would take longer than a short run: it is then not measured.
#include <math.h>
#include <string.h>

#include "run.h"

enum { PAIRS_MAX = 24, PAIRS_MIN = 6, BLOCK = 10, BUDGET_NS = 250000000, LONGEST_NS = 2000000000 };

// The run with series of its own, so that what was measured stays.
static mlff_status scratch_make(run *r, const run *saved)
{
    mlff_status status = MLFF_OK;
    int64_t n = PAIRS_MAX * BLOCK + BLOCK;
    r->slow_ns = INFINITY; // the slowest step stays that of the run
    r->step = r->with_rebuild = r->without = r->integrate = r->unattributed = (series){0};
    r->stages = base_alloc((size_t)saved->n_stages, sizeof *r->stages, "stages");
    if (!r->stages) return MLFF_ERR_MEMORY;
    MLFF_TRY(series_init(&r->step, n, n));
    MLFF_TRY(series_init(&r->with_rebuild, n, n));
    MLFF_TRY(series_init(&r->without, n, n));
    MLFF_TRY(series_init(&r->integrate, n, n));
    MLFF_TRY(series_init(&r->unattributed, n, n));
    for (int k = 0; k < saved->n_stages; k++) MLFF_TRY(series_init(&r->stages[k], n, n));
done:
    return status;
}

static void scratch_free(run *r, const run *saved)
{
    series *own[] = {&r->step, &r->with_rebuild, &r->without, &r->integrate, &r->unattributed};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) series_free(own[i]);
    for (int k = 0; r->stages && k < saved->n_stages; k++) series_free(&r->stages[k]);
    base_free(r->stages);
    const mlff_system *frame = r->frame; // what lives on: the frame, and the buffer of forces, which may have moved
    double *forces = r->forces;
    process_watch watch = r->watch;
    size_t capacity = r->forces_capacity;
    *r = *saved;
    r->frame = frame;
    r->forces = forces;
    r->watch = watch;
    r->forces_capacity = capacity;
}

static mlff_status switch_clocks(run *r, bool on, int n_stages)
{
    r->n_stages = on ? n_stages : 0;
    if (n_stages == 0 || !r->callable.stage_clock_set) return MLFF_OK;
    return r->callable.stage_clock_set(r->callable.context, on);
}

static mlff_status block(run *r, bool on, int n_stages, double *ns_a_step)
{
    mlff_status status = MLFF_OK;
    double times[BLOCK];
    process_events before, after;
    process_events_get(&before);
    MLFF_TRY(switch_clocks(r, on, n_stages));
    for (int i = 0; i < BLOCK; i++) {
        int64_t time_ns;
        MLFF_TRY(run_frame_next(r));
        int64_t start = mlff_clock_ns();
        if (on) run_prepare(r, &before);
        MLFF_TRY(run_step(r, &time_ns));
        if (on) {
            process_events_get(&after);
            run_note(r, time_ns, &before, &after);
            before = after;
        }
        times[i] = (double)(mlff_clock_ns() - start);
    }
    *ns_a_step = statistics_median(times, BLOCK); // steps that lost the processor do not affect it
done:
    return status;
}

mlff_status run_overhead(run *r, mlff_profile *profile)
{
    mlff_status status = MLFF_OK;
    if (r->step.mean * 2 * PAIRS_MIN * BLOCK > LONGEST_NS) return MLFF_OK;
    run saved = *r;
    r->watched_ns = 0;
    r->watched_off_ns = r->watched_cpu_ns = 0.0;
    double differences[PAIRS_MAX];
    int n = 0, n_stages = r->n_stages;
    int64_t begun = mlff_clock_ns();
    MLFF_TRY(scratch_make(r, &saved));
    for (; n < PAIRS_MAX && (n < PAIRS_MIN || mlff_clock_ns() - begun < BUDGET_NS) && !run_stops(r, r->options.n_steps); n++) {
        double on = 0.0, off = 0.0;
        bool on_first = n % 2 == 0;
        MLFF_TRY(block(r, on_first, n_stages, on_first ? &on : &off));
        MLFF_TRY(block(r, !on_first, n_stages, on_first ? &off : &on));
        differences[n] = on - off;
    }
    if (n < PAIRS_MIN) goto done;
    percentile_bounds b;
    MLFF_TRY(percentile_interval(differences, n, 0.5, &b));
    profile->overhead_ns = b.value;
    profile->overhead_low_ns = b.low;
    profile->overhead_high_ns = b.high;
done:
    scratch_free(r, &saved);
    (void)switch_clocks(r, saved.clocks_running, n_stages);
    r->n_stages = n_stages;
    return status;
}
