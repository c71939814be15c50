// SPDX-License-Identifier: MIT
// verdicts.c: the targets a run is judged against. An estimate from too few steps is given, and marked as one.
#include <math.h>

#include "profile/profile.h"

// Smallest n for which the largest of n independent steps lies above the percentile with 95 % certainty:
// 1 - 0.95^59 and 1 - 0.99^299 are just over 0.95.
enum { MIN_STEPS_P95 = 59, MIN_STEPS_P99 = 299, TARGETS = 6 };

static mlff_status add(mlff_profile *profile, mlff_profile_verdict verdict, const char *text)
{
    char *copy = base_strdup(text);
    if (!copy) return MLFF_ERR_MEMORY;
    verdict.text = copy;
    profile->verdicts[profile->n_verdicts++] = verdict;
    return MLFF_OK;
}

static mlff_status judge_mean(mlff_profile *profile)
{
    char text[256];
    double mean_ms = profile->summary.latency_ms.mean;
    const int n_atoms = (int)lround(profile_atoms(profile));
    mlff_profile_verdict verdict = {"student mean ≤ 1 ms at 64 atoms", mean_ms, 1.0, "ms", mean_ms <= 1.0, NULL};
    if (n_atoms < 51 || n_atoms > 77) { // 64 ± 20 %
        verdict.passed = -1;
        snprintf(text, sizeof text, "mean %s at %d atom%s; the target is for 64 atoms (51 to 77), measure there",
                 PROFILE_TIME(mean_ms), n_atoms, base_plural(n_atoms));
    } else {
        snprintf(text, sizeof text, "mean %s at %d atoms; a student is to need at most 1 ms, a teacher's baseline is 2 to 10 ms",
                 PROFILE_TIME(mean_ms), n_atoms);
    }
    return add(profile, verdict, text);
}

static mlff_status judge_tail(mlff_profile *profile, const char *target, const char *name, double fraction, double value,
                              double limit, int min_steps)
{
    char text[256];
    double mean = profile->summary.latency_ms.mean;
    long long n = profile->summary.n_steps;
    double ratio = mean > 0.0 ? value / mean : 1.0;
    mlff_profile_verdict verdict = {target, ratio, limit, "× mean", ratio < limit, NULL};
    if (!steadiness_percentile_known(profile, fraction)) {
        verdict.passed = -1;
        snprintf(text, sizeof text, "n too small (%lld step%s; %d bound the %s with 95 %% certainty)", n, base_plural(n),
                 min_steps, name);
    } else if (n < min_steps)
        base_format(text, sizeof text,
                    "%s is %s, %.2f × the mean, as an estimate: n too small (%lld steps; %d bound it with 95 %% certainty)", name,
                    PROFILE_TIME(value), ratio, n, min_steps);
    else
        base_format(text, sizeof text, "%s is %s, %.2f × the mean", name, PROFILE_TIME(value), ratio);
    return add(profile, verdict, text);
}

static mlff_status judge_memory(mlff_profile *profile)
{
    char text[256];
    double growth_mb = profile->summary.memory_delta_gb * 1024.0;
    long long n = profile->summary.n_steps;
    mlff_profile_verdict verdict = {"memory growth < 10 MB", growth_mb, 10.0, "MB", growth_mb < 10.0, NULL};
    snprintf(text, sizeof text, "memory changed by %s over %lld step%s%s", PROFILE_GROWTH(&profile->summary), n, base_plural(n),
             n < 1000 ? "; a slow leak shows only in 1000 steps or more" : "");
    if (isnan(growth_mb)) {
        verdict.passed = -1;
        snprintf(text, sizeof text, "the memory of the process was not measured");
    }
    return add(profile, verdict, text);
}

static mlff_status judge_atoms(mlff_profile *profile)
{
    char text[256];
    double value = profile->summary.us_per_atom;
    mlff_profile_verdict verdict = {"student < 10 µs/atom", value, 10.0, "µs/atom", value < 10.0, NULL};
    base_format(text, sizeof text, "%.4g µs per atom and step%s", value,
                profile_atoms(profile) < 51 ? "; with so few atoms the fixed cost of a step weighs most" : "");
    return add(profile, verdict, text);
}

static mlff_status judge_variation(mlff_profile *profile)
{
    char text[256];
    double percent = profile->summary.latency_ms.cv * 100.0;
    mlff_profile_verdict verdict = {"CV < 20 %", percent, 20.0, "%", percent < 20.0, NULL};
    base_format(text, sizeof text, "steps vary by %.1f %% (standard deviation over mean)", percent);
    if (profile->summary.n_steps < 2) {
        verdict.passed = -1;
        snprintf(text, sizeof text, "a single step has no variation; measure 100");
    }
    return add(profile, verdict, text);
}

mlff_status verdicts_judge(mlff_profile *profile)
{
    mlff_status status = MLFF_OK;
    const mlff_statistics *time = &profile->summary.latency_ms;
    profile->verdicts = base_alloc(TARGETS, sizeof *profile->verdicts, "verdicts");
    if (!profile->verdicts) return MLFF_ERR_MEMORY;
    MLFF_TRY(judge_mean(profile));
    MLFF_TRY(judge_tail(profile, "P95 < 2 × mean", "P95", 0.95, time->p95, 2.0, MIN_STEPS_P95));
    MLFF_TRY(judge_tail(profile, "P99 < 3 × mean", "P99", 0.99, time->p99, 3.0, MIN_STEPS_P99));
    MLFF_TRY(judge_memory(profile));
    MLFF_TRY(judge_atoms(profile));
    MLFF_TRY(judge_variation(profile));
done:
    return status;
}
