// SPDX-License-Identifier: MIT
// steadiness.c: from which step on a run is itself, and percentiles of that part with intervals. Long runs are judged by the
// thinned series: an interval is then wider than it need be, never narrower.
#include <math.h>
#include <string.h>

#include "profile.h"

const double profile_bound_fractions[N_BOUNDS] = {0.5, 0.95, 0.99};
const char *const profile_bound_names[N_BOUNDS] = {"median", "P95", "P99"};
const char *const profile_steady_names[6] = {"too few steps", "flat", "warm-up", "slowdown", "cyclic", "none"};

mlff_status steadiness_derive(mlff_profile *profile)
{
    mlff_status status = MLFF_OK;
    const double *t = profile->latency_ms;
    int64_t n = profile->n_latency, every = profile->latency_every;
    steady_state s = steady_find(t, n);
    int64_t first = s.first;
    double mean = 0.0, before = 0.0;
    for (int64_t i = 0; i < first; i++) before += t[i];
    for (int64_t i = first; i < n; i++) mean += t[i];
    profile->steady_mean_ms = n > first ? mean / (double)(n - first) : NAN;
    profile->before_s = before * (double)every * 1e-3;
    profile->before_cost_s = first > 0 ? (before - profile->steady_mean_ms * (double)first) * (double)every * 1e-3 : 0.0;
    for (int k = 0; k < N_BOUNDS; k++)
        MLFF_TRY(percentile_interval(t + first, n - first, profile_bound_fractions[k], &profile->bounds[k]));
    s.first *= every;
    profile->steady = s;
done:
    return status;
}

double profile_typical_ms(const mlff_profile *profile)
{
    bool found = profile->steady.kind != STEADY_UNKNOWN && profile->steady.settled;
    return found ? profile->bounds[0].value : profile->summary.latency_ms.median;
}

void steadiness_text(const mlff_profile *profile, char *text, size_t text_bytes)
{
    const steady_state *s = &profile->steady;
    double percent = s->change * 100.0;
    text[0] = 0;
    switch (s->kind) {
    case STEADY_UNKNOWN: break;
    case STEADY_FLAT: snprintf(text, text_bytes, "flat: one level from the first measured step to the last"); break;
    case STEADY_WARM_UP:
        snprintf(
            text, text_bytes,
            "warm-up: steady from step %lld on, at %s a step; the steps before it took %.3g s, %.3g s more than steady ones. "
            "Intervals are of the steady part, all other numbers of all steps",
            (long long)s->first, PROFILE_TIME(profile->steady_mean_ms), profile->before_s, profile->before_cost_s);
        break;
    case STEADY_SLOWDOWN:
        if (s->settled)
            snprintf(text, text_bytes, "slowdown: from step %lld on, steps take %.1f %% more than at the start and stay there",
                     (long long)s->first, percent);
        else
            snprintf(text, text_bytes,
                     "slowdown: steps take %.1f %% more at the end than at the start, and there is no steady part", percent);
        break;
    case STEADY_CYCLIC:
        snprintf(text, text_bytes, "cyclic: step times go back and forth between levels, %d pieces; percentiles are over all",
                 s->n_pieces);
        break;
    case STEADY_NONE:
        snprintf(text, text_bytes,
                 "no steady state: %d levels, the last less than half of the run; measure longer before trusting a mean",
                 s->n_pieces);
        break;
    }
}

void overhead_text(const mlff_profile *profile, char *text, size_t text_bytes)
{
    double step_ns = profile->summary.latency_ms.median * 1e6;
    text[0] = 0;
    if (!isfinite(profile->overhead_ns)) return;
    snprintf(text, text_bytes,
             "measuring adds %s to a step (%s to %s at 95 %%), %.2g %% of it: blocks of steps with and without, in turns",
             PROFILE_TIME(profile->overhead_ns * 1e-6), PROFILE_TIME(profile->overhead_low_ns * 1e-6),
             PROFILE_TIME(profile->overhead_high_ns * 1e-6), step_ns > 0.0 ? 100.0 * profile->overhead_ns / step_ns : 0.0);
}

void steadiness_bound_text(const mlff_profile *profile, int bound, char *text, size_t text_bytes)
{
    const percentile_bounds *b = &profile->bounds[bound];
    const char *name = profile_bound_names[bound];
    if (isfinite(b->low) && isfinite(b->high))
        snprintf(text, text_bytes, "%s %s, between %s and %s at 95 %% (%.0f independent steps)", name, PROFILE_TIME(b->value),
                 PROFILE_TIME(b->low), PROFILE_TIME(b->high), b->n_effective);
    else if (isfinite(b->value))
        snprintf(text, text_bytes, "%s: needs %lld steps, %lld are there; %s is an estimate without bounds", name,
                 (long long)b->n_needed, (long long)profile->n_latency, PROFILE_TIME(b->value));
    else
        snprintf(text, text_bytes, "%s: no steps", name);
}
