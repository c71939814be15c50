// SPDX-License-Identifier: MIT
// why.c: why a step takes so long, in a few lines for the top of a report, by weight. The tables below have the rest, and "What was
// seen, and what to do" the advice.
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "profile/profile.h"
#include "profile/sensors/gpu_kernels.h"

#define COURSE_TOLD 0.05 // a smaller rise of the level of step times is no reason

typedef struct reasons {
    why_line *lines;
    int n;
} reasons;

// Inserted by weight; with WHY_LINES reasons already there, the lightest is dropped.
static void add(reasons *r, double weight, const char *format, ...) MLFF_PRINTF(3, 4);
static void add(reasons *r, double weight, const char *format, ...)
{
    why_line line = {.weight = weight};
    va_list arguments;
    va_start(arguments, format);
    base_format_list(line.text, sizeof line.text, format, arguments);
    va_end(arguments);
    if (r->n == WHY_LINES && r->lines[r->n - 1].weight >= weight) return;
    int place = r->n < WHY_LINES ? r->n++ : WHY_LINES - 1;
    for (; place > 0 && r->lines[place - 1].weight < weight; place--) r->lines[place] = r->lines[place - 1];
    r->lines[place] = line;
}

static void add_leaks(reasons *r, const mlff_profile *profile)
{
    const profile_ledger *worst = NULL;
    for (int k = 0; k < profile->n_ledgers; k++) {
        const profile_ledger *ledger = &profile->ledgers[k];
        if (ledger->leak.kind != LEAK_GROWING || !leaks_decides(ledger)) continue;
        if (!worst || ledger->leak.bytes_per_sample > worst->leak.bytes_per_sample) worst = ledger;
    }
    char verdict[256];
    if (!worst) return;
    leaks_text(profile, worst, verdict, sizeof verdict);
    add(r, 2.0, "MEMORY LEAK: \"%.60s\" is %.250s", worst->name, verdict);
}

static void add_stages(reasons *r, const mlff_profile *profile)
{
    char every[EVERY_STEP_BYTES];
    (void)every_step_text(profile, every, sizeof every);
    if (*every)
        add(r, 1.0, "%s", every); // the parts of a step are then not what the model takes
    else if (*profile->heaviest)
        add(r, profile->heaviest_share, "most of a step is %s", profile->heaviest);
}

static void add_rebuilds(reasons *r, const mlff_profile *profile)
{
    const mlff_profile_summary *s = &profile->summary;
    double share = s->n_rebuilds > 0 ? (double)s->n_rebuilds / (double)s->n_steps : 0.0, neighbors = 0.0;
    double extra = (profile->rebuild_median_ms - profile->other_median_ms) * share / fmax(s->latency_ms.mean, 1e-9);
    char text[256];
    hotspots_rebuilds_text(profile, text, sizeof text);
    for (int i = 0; i < profile->n_stages; i++)
        if (profile_stage_of_list(profile->stages[i].name)) neighbors += profile->stages[i].shown.share;
    if (*text) // so often that the time of a step without a rebuild is not known
        add(r, fmax(fmax(neighbors, isfinite(extra) ? extra : 0.0), 0.06), "%s", text);
    else if (extra > 0.05)
        add(r, extra, "rebuilds of the neighbor list cost %.0f %% of the run (%.0f %% of steps rebuild and take %s longer)",
            extra * 100.0, share * 100.0, PROFILE_TIME(profile->rebuild_median_ms - profile->other_median_ms));
}

static void add_tail(reasons *r, const mlff_profile *profile)
{
    const mlff_statistics *t = &profile->summary.latency_ms;
    const profile_tail *tail = &profile->tail;
    char text[400] = "", crowd[320];
    int order[N_CAUSES], n = tail_order(tail, true, order), n_named = 0;
    double share = fmax(tail->share, 1.0 - t->median / fmax(t->mean, 1e-12));
    bool crowded = tail_crowded(profile, crowd, sizeof crowd);
    size_t length = 0;
    if (t->p99 < 2.0 * t->median && share < 0.03) return;
    for (int i = 0; i < n && n_named < 3 && length < sizeof text - 1; i++) {
        char cause[160];
        if (crowded && order[i] == CAUSE_CPU_WAIT) continue; // has a line of its own
        tail_cause_text(tail, order[i], cause, sizeof cause);
        length += (size_t)snprintf(text + length, sizeof text - length, "%s%s", n_named++ ? ", " : "; of that: ", cause);
    }
    if (crowded && n_named == 0) return;
    add(r, share > 0.1 && n_named > 0 ? 1.5 : fmax(share, 0.05),
        "slow steps: %.0f %% of the run is time that steps took beyond the median%s%s", 100.0 * share, text,
        n_named == 0 ? "; no cause stands out" : "");
}

static void add_crowd(reasons *r, const mlff_profile *profile)
{
    char text[500];
    if (tail_crowded(profile, text, sizeof text)) add(r, 1.9, "%s", text);
}

static void add_course(reasons *r, const mlff_profile *profile)
{
    char text[512];
    const steady_state *s = &profile->steady;
    double drift = steadiness_drift(profile);
    if (!(drift > 0.0)) {
        if (tail_crowded(profile, text, sizeof text)) return;              // the course is that of the other programs
        if (s->kind == STEADY_SLOWDOWN && s->change < COURSE_TOLD) return; // clocks of processors move as much
        if (s->kind != STEADY_SLOWDOWN && s->kind != STEADY_NONE && s->kind != STEADY_WARM_UP) return;
    }
    steadiness_text(profile, text, sizeof text);
    add(r, drift > 0.0 ? fmax(drift, 0.2) : 0.05, "along the run: %.400s", text);
}

static void add_budget(reasons *r, const mlff_profile *profile)
{
    char text[512];
    step_budget budget = budget_of(profile);
    if (tail_gpu_shared(profile, text, sizeof text)) {
        add(r, 1.9, "%.500s", text);
        return; // how much of a step the GPU works is then the others' doing
    }
    budget_text(&budget, text, sizeof text);
    if (*text) add(r, 0.9, "%.500s", text);
}

int why(const mlff_profile *profile, why_line lines[WHY_LINES])
{
    reasons r = {.lines = lines};
    if (profile->n_not_finite > 0)
        add(&r, 3.0, "the energy of %lld of %lld step%s is not a finite number: these times say nothing; check the frames",
            (long long)profile->n_not_finite, (long long)profile->summary.n_steps, base_plural(profile->summary.n_steps));
    add_leaks(&r, profile);
    add_crowd(&r, profile);
    add_budget(&r, profile);
    add_stages(&r, profile);
    add_rebuilds(&r, profile);
    add_tail(&r, profile);
    add_course(&r, profile);
    return r.n;
}
