/* SPDX-License-Identifier: MIT */
/* synthetic.h: a force field whose times, stages, leaks and failures are planted, so that a profile of it has known answers. */
#ifndef SYNTHETIC_H
#define SYNTHETIC_H

#include "mlff_profile.h"
#include "unit/near.h"

enum { SYNTHETIC_STAGES = 3 };

typedef struct synthetic {
    double energy_us, forces_us, stress_us; /* busy waiting for each part that is wanted */
    double rebuild_us;                      /* more, in calls that rebuild the list */
    int rebuild_every;                      /* 0: never */
    int64_t fails_at;                       /* call; 0: never */
    int64_t halved_from;                    /* call from which all takes half the time, as where other programs end; 0: none */
    bool fails_silently;
    int64_t leak_bytes; /* of heap, kept at each call */
    double energy;      /* what it returns; NaN for a broken one */
    bool one_shot;      /* energy alone costs as much as all */

    int64_t n_calls, n_rebuilds;
    double stage_ns[SYNTHETIC_STAGES]; /* of the last call: 60, 25 and 5 % of it */
    int clock_on, n_clock_sets;
    int64_t device_bytes;
    double first_x[64]; /* x of atom 0 in the first calls */
    int n_atoms_seen[64];
    int64_t allocations_first, allocations_last; /* of ours, at calls `watch_from` and `watch_to` */
    int64_t watch_from, watch_to;
    void *leaked; /* a list, so that it can be freed at the end */
} synthetic;

SUPPORT void synthetic_wait(double us)
{
    for (int64_t start = mlff_clock_ns(); (double)(mlff_clock_ns() - start) < us * 1e3;) {}
}

/* The results of a force field without interactions. */
SUPPORT void synthetic_nothing(const mlff_system *frame, unsigned wanted, double *energy, double *forces)
{
    if (energy) *energy = 0.0;
    for (int i = 0; (wanted & MLFF_FORCES) && forces && i < 3 * frame->n_atoms; i++) forces[i] = 0.0;
}

SUPPORT mlff_status synthetic_step(void *context, const mlff_system *frame, unsigned wanted, double *energy, double *forces,
                                   double *stress)
{
    synthetic *s = context;
    int64_t start = mlff_clock_ns();
    if (s->n_calls < 64) {
        s->first_x[s->n_calls] = frame->positions[0];
        s->n_atoms_seen[s->n_calls] = frame->n_atoms;
    }
    s->n_calls++;
    if (s->n_calls == s->watch_from) s->allocations_first = base_allocation_count();
    if (s->n_calls == s->watch_to) s->allocations_last = base_allocation_count();
    if (s->n_calls == s->fails_at)
        return s->fails_silently ? MLFF_ERR_CALLBACK
                                 : mlff_fail(MLFF_ERR_VALUE, "planted failure in call %lld", (long long)s->n_calls);

    double us = s->energy_us;
    if (wanted & MLFF_FORCES || s->one_shot) us += s->forces_us;
    if (wanted & MLFF_STRESS || s->one_shot) us += s->stress_us;
    if (s->rebuild_every && s->n_calls % s->rebuild_every == 0) {
        s->n_rebuilds++;
        us += s->rebuild_us;
    }
    if (s->halved_from && s->n_calls >= s->halved_from) us /= 2;
    if (s->leak_bytes) {
        void **block = malloc((size_t)s->leak_bytes);
        assert_non_null(block);
        memset(block, 1, (size_t)s->leak_bytes);
        *block = s->leaked;
        s->leaked = block;
    }
    if (energy) *energy = s->energy;
    for (int i = 0; forces && i < 3 * frame->n_atoms; i++) forces[i] = 0.0;
    for (int i = 0; stress && i < 6; i++) stress[i] = 0.0;
    synthetic_wait(us);
    double elapsed = (double)(mlff_clock_ns() - start);
    s->stage_ns[0] = 0.60 * elapsed;
    s->stage_ns[1] = 0.25 * elapsed;
    s->stage_ns[2] = 0.05 * elapsed;
    return MLFF_OK;
}

SUPPORT mlff_status synthetic_clock_set(void *context, int on)
{
    synthetic *s = context;
    s->clock_on = on;
    s->n_clock_sets++;
    return MLFF_OK;
}

SUPPORT void synthetic_times(void *context, double *time_ns)
{
    memcpy(time_ns, ((synthetic *)context)->stage_ns, sizeof((synthetic *)context)->stage_ns);
}

SUPPORT void synthetic_counters(void *context, int64_t *n_pairs, int64_t *n_rebuilds, int64_t *n_growths)
{
    *n_pairs = 120;
    *n_rebuilds = ((synthetic *)context)->n_rebuilds;
    *n_growths = 0;
}

SUPPORT void synthetic_ledgers(void *context, int64_t *bytes)
{
    bytes[0] = 12345;
    bytes[1] = ((synthetic *)context)->device_bytes;
}

/* Without stages, counters and ledgers: a black box. */
SUPPORT mlff_callable synthetic_black_box(synthetic *s)
{
    return (mlff_callable){.struct_size = sizeof(mlff_callable),
                           .name = "planted",
                           .context = s,
                           .properties = MLFF_ENERGY | MLFF_FORCES | MLFF_STRESS,
                           .step = synthetic_step};
}

SUPPORT mlff_callable synthetic_native(synthetic *s)
{
    static const mlff_stage stages[SYNTHETIC_STAGES] = {
        {"message", "forward", 0, "filter"}, {"message", "forward", 1, "filter"}, {"neighbors", "forward", -1, ""}};
    static const char *const ledgers[] = {"evaluator (host)", "device: evaluator"};
    mlff_callable callable = synthetic_black_box(s);
    callable.n_stages = SYNTHETIC_STAGES;
    callable.stages = stages;
    callable.stage_clock_set = synthetic_clock_set;
    callable.stage_times = synthetic_times;
    callable.counters = synthetic_counters;
    callable.n_ledgers = 2;
    callable.ledger_names = ledgers;
    callable.ledgers = synthetic_ledgers;
    return callable;
}

SUPPORT void synthetic_free(synthetic *s)
{
    while (s->leaked) {
        void *next = *(void **)s->leaked;
        free(s->leaked);
        s->leaked = next;
    }
}

SUPPORT mlff_system *synthetic_system(int n_atoms)
{
    mlff_system *system;
    assert_ok(mlff_system_create(n_atoms, &system));
    for (int i = 0; i < n_atoms; i++) {
        system->species[i] = 14;
        system->positions[3 * i] = 2.5 * i;
    }
    return system;
}

SUPPORT mlff_trajectory *synthetic_thermal(int n_atoms)
{
    mlff_trajectory *trajectory;
    mlff_system *system = synthetic_system(n_atoms);
    assert_ok(mlff_trajectory_thermal(system, 300.0, 5, &trajectory));
    mlff_system_destroy(system);
    return trajectory;
}

SUPPORT mlff_profile_options synthetic_options(int64_t n_steps)
{
    mlff_profile_options options = mlff_profile_options_default();
    options.n_steps = n_steps;
    options.n_warmup = 5;
    options.overhead = 0; // tests count calls
    return options;
}

SUPPORT bool synthetic_recommended(const mlff_profile *profile, const char *part)
{
    int n;
    const char *const *texts = mlff_profile_recommendations(profile, &n);
    for (int i = 0; i < n; i++)
        if (strstr(texts[i], part)) return true;
    return false;
}

/* The stages of a profile add up to its step. */
SUPPORT void assert_books_close(const mlff_profile *profile)
{
    int n;
    double sum = 0.0, shares = 0.0;
    mlff_profile_summary summary;
    const mlff_profile_stage *stages = mlff_profile_stages(profile, &n);
    mlff_profile_summary_get(profile, &summary);
    for (int i = 0; i < n; i++) {
        sum += stages[i].mean_ms;
        shares += stages[i].share;
    }
    assert_near(sum, summary.latency_ms.mean, 1e-12 * summary.latency_ms.mean); // by definition; the rounding of the sum
    assert_near(shares, 1.0, 1e-12);
    assert_string_equal(stages[n - 1].name, "unattributed");
}

#endif
