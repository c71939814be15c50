// SPDX-License-Identifier: MIT
// steadiness.c: the step from which on a run is steady, and percentiles of the steady part with intervals. Of long runs the
// thinned series is used: an interval is then wider than necessary, never narrower.
#include <math.h>
#include <string.h>

#include "profile/profile.h"

#define DRIFT_TOLD 0.05     // a smaller rise along the run is the clock's of the processor as well
#define DRIFT_CROWDED 0.25  // nor one of processor time where other programs take turns: they empty the caches
#define DRIFT_OWN 0.3       // of a rise: where the core's own rise leaves less than this, it is the core's
#define CLOCK_OF_CHANGE 0.5 // fixed arithmetic that takes so much of a change longer explains it
#define LEVEL_SAME 0.01     // a smaller change of level than this is none
#define OVERHEAD_TOLD 0.05  // of a step: an upper bound on the cost of measuring above this says nothing
#define BOUND_TOLD 1.0      // of a percentile: an interval that reaches further than this on one side says nothing

static const double bound_fractions[N_BOUNDS] = {0.5, 0.95, 0.99};
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
        MLFF_TRY(percentile_interval(t + first, n - first, bound_fractions[k], &profile->bounds[k]));
    s.first *= every;
    profile->steady = s;
done:
    return status;
}

double steadiness_drift(const mlff_profile *profile)
{
    bool crowded = profile->tail.cpu_wait_share > CROWDED;
    double rise = crowded ? profile->tail.cpu_rise : profile->steady.rise,
           clock = fmax(profile->tail.pace_rise, 0.0); // 0 for NaN
    double own = (1.0 + rise) / (1.0 + clock) - 1.0;
    return own >= fmax(crowded ? DRIFT_CROWDED : DRIFT_TOLD, DRIFT_OWN * rise) ? rise : 0.0; // also 0 for NaN
}

double profile_typical_ms(const mlff_profile *profile)
{
    bool found = profile->steady.kind != STEADY_UNKNOWN && profile->steady.settled;
    return found ? profile->bounds[0].value : profile->summary.latency_ms.median;
}

void steadiness_text(const mlff_profile *profile, char *text, size_t text_bytes)
{
    const steady_state *s = &profile->steady;
    double percent = s->change * 100.0, drift = steadiness_drift(profile);
    char cost[64] = ""; // outliers in the steady part can make its mean larger: the difference then says nothing
    if (profile->before_cost_s > 0.0)
        base_format(cost, sizeof cost, ", %.3g s more than as many steady ones", profile->before_cost_s);
    text[0] = 0;
    if (drift > 0.0) {
        base_format(text, text_bytes,
                    "slowdown: steps get slower all along the run, by %.0f %% from its first eighth to its last%s", drift * 100.0,
                    profile->tail.cpu_wait_share > CROWDED ? " (processor time, without waits for a CPU)" : "");
        return;
    }
    switch (s->kind) {
    case STEADY_UNKNOWN: break;
    case STEADY_FLAT: snprintf(text, text_bytes, "flat: one level from the first measured step to the last"); break;
    case STEADY_WARM_UP:
        base_format(text, text_bytes,
                    "warm-up: steady from step %lld on, at %s a step; the steps before it took %.3g s%s. "
                    "Intervals are of the steady part, all other numbers of all steps",
                    (long long)s->first, PROFILE_TIME(profile->steady_mean_ms), profile->before_s, cost);
        break;
    case STEADY_SLOWDOWN:
        if (s->settled && s->change < LEVEL_SAME)
            snprintf(text, text_bytes, "disturbed for a while: from step %lld on, steps take as long as at the start",
                     (long long)s->first);
        else if (profile->tail.pace_rise > CLOCK_OF_CHANGE * s->change)
            base_format(
                text, text_bytes,
                "steps take %.1f %% more at the end than at the start, and fixed arithmetic takes %.1f %% more: the processor "
                "became slower (its clock, or the host of a virtual machine)",
                percent, profile->tail.pace_rise * 100.0);
        else if (s->settled)
            base_format(
                text, text_bytes,
                "a jump: from step %lld on, steps take %.1f %% more than at the start and stay there; the machine may be the "
                "cause (its clock, another program): if it comes at the same step in a second run, it is the force field",
                (long long)s->first, percent);
        else
            base_format(
                text, text_bytes,
                "steps take %.1f %% more at the end than at the start, but not steadily so; the machine may be the cause: "
                "measure longer or again",
                percent);
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
    double step_ns = profile->summary.latency_ms.median * 1e6, low = profile->overhead_low_ns, high = profile->overhead_high_ns;
    text[0] = 0;
    if (!isfinite(profile->overhead_ns)) return;
    if (low >= 0.0 && high - low <= 2.0 * profile->overhead_ns && high < step_ns)
        base_format(
            text, text_bytes,
            "measuring adds %s to a step (%s to %s at 95 %%), %.2g %% of it, from interleaved blocks of steps with and without",
            PROFILE_TIME(profile->overhead_ns * 1e-6), PROFILE_TIME(low * 1e-6), PROFILE_TIME(high * 1e-6),
            step_ns > 0.0 ? 100.0 * profile->overhead_ns / step_ns : 0.0);
    else if (high > 0.0 && high < OVERHEAD_TOLD * step_ns)
        base_format(text, text_bytes, "measuring adds at most %s to a step, %.2g %% of it (at 95 %%)", PROFILE_TIME(high * 1e-6),
                    100.0 * high / step_ns);
    else
        snprintf(text, text_bytes,
                 "the cost of measuring could not be measured on this machine: blocks of steps with and without differ more from "
                 "block to block than by it");
}

// True if the interval says something about the value: within BOUND_TOLD of it on either side.
static bool bound_informs(const percentile_bounds *b)
{
    return isfinite(b->low) && isfinite(b->high) && b->high - b->value <= BOUND_TOLD * b->value &&
           b->value - b->low <= BOUND_TOLD * b->value;
}

bool steadiness_percentile_known(const mlff_profile *profile, double fraction)
{
    return (double)profile->summary.n_steps * (1.0 - fraction) > 1.0 - 1e-9; // rounding of the fraction
}

void steadiness_bound_text(const mlff_profile *profile, int bound, char *text, size_t text_bytes)
{
    const percentile_bounds *b = &profile->bounds[bound];
    const char *name = profile_bound_names[bound];
    const int64_t first = profile->steady.first, every = profile->latency_every;
    const int64_t n_values = profile->n_latency - first / every, n_steady = n_values * every;
    char there[96], dependent[96];
    if (first > 0)
        snprintf(there, sizeof there, "%lld after step %lld are there", (long long)n_steady, (long long)first);
    else
        snprintf(there, sizeof there, "%lld %s there", (long long)n_steady, n_steady == 1 ? "is" : "are");
    snprintf(dependent, sizeof dependent, first > 0 ? " of the steady part (from step %lld on)" : "", (long long)first);
    if (isfinite(b->low) && isfinite(b->high) && !bound_informs(b))
        base_format(text, text_bytes,
                    "%s %s; its error could not be bounded on this machine: step times vary too much for %.0f independent steps",
                    name, PROFILE_TIME(b->value), b->n_effective);
    else if (bound_informs(b))
        base_format(text, text_bytes, "%s %s, between %s and %s at 95 %% (%.0f independent steps)", name, PROFILE_TIME(b->value),
                    PROFILE_TIME(b->low), PROFILE_TIME(b->high), b->n_effective);
    else if (isfinite(b->value) && !steadiness_percentile_known(profile, bound_fractions[bound]))
        snprintf(text, text_bytes, "%s: needs %lld steps, %s", name, (long long)(b->n_needed * every), there);
    else if (isfinite(b->value) && b->n_needed * every > n_steady)
        snprintf(text, text_bytes, "%s: needs %lld steps, %s; %s is an estimate without bounds", name,
                 (long long)(b->n_needed * every), there, PROFILE_TIME(b->value));
    else if (isfinite(b->value) && b->n_effective < (double)n_values)
        base_format(text, text_bytes,
                    "%s: %s is an estimate without bounds: steps depend on each other, %.0f of %lld%s are independent", name,
                    PROFILE_TIME(b->value), b->n_effective, (long long)n_values, dependent);
    else if (isfinite(b->value))
        base_format(text, text_bytes, "%s: %s is an estimate without bounds: too few steps, %s", name, PROFILE_TIME(b->value),
                    there);
    else
        snprintf(text, text_bytes, "%s: no steps", name);
}
