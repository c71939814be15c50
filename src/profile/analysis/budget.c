// SPDX-License-Identifier: MIT
// budget.c: the budget of a step, in the same rows for every force field: the device was busy, the device waited for work, the host
// waited for the device, the host worked.
#include <math.h>
#include <string.h>

#include "profile/sensors/gpu_kernels.h"

const char *const budget_names[N_BUDGET] = {"device busy", "launch gaps", "waits", "host work", "integrator", "unattributed"};

static int gpu_row(const profile_stage *stage)
{
    switch (profile_stage_part(stage->phase, stage->name)) {
    case PART_QUEUE: return *stage->phase ? BUDGET_WAITS : BUDGET_GAPS;
    case PART_ENQUEUE: return BUDGET_HOST;
    default: return BUDGET_BUSY;
    }
}

step_budget budget_of(const mlff_profile *profile)
{
    step_budget b = {.step_ms = profile->summary.latency_ms.mean, .between_ms = NAN, .usual_ms = NAN};
    const kernel_report *kernels = profile->kernels;
    bool gpu = strncmp(profile->device, "cuda", 4) == 0;
    double stages[N_BUDGET] = {0}, sum = 0.0;
    for (int k = 0; k < N_BUDGET; k++) b.ms[k] = NAN;
    for (int i = 0; i < profile->n_stages; i++) {
        const profile_stage *s = &profile->stages[i];
        if (strcmp(s->name, "integrate") == 0)
            b.ms[BUDGET_INTEGRATE] = s->shown.mean_ms;
        else if (strcmp(s->name, "unattributed") != 0)
            stages[gpu ? gpu_row(s) : BUDGET_BUSY] += s->shown.mean_ms;
    }
    if (kernels && kernels->n_rows > 0) {
        b.traced = true;
        b.usual_ms = kernels->usual_ms;
        b.step_ms = kernels->step_ms;
        b.ms[BUDGET_BUSY] = kernels->busy_ms;
        b.ms[BUDGET_GAPS] = kernels->gap_ms;
        b.ms[BUDGET_WAITS] = kernels->wait_ms;
        b.ms[BUDGET_HOST] = kernels->host_ms;
        if (isfinite(b.ms[BUDGET_INTEGRATE])) b.ms[BUDGET_INTEGRATE] = kernels->integrate_ms;
    } else if (profile->stages_measured && stages[BUDGET_HOST] > 0.0) {
        b.divided = true; // busy with the gaps between kernels, which clocks do not see
        for (int k = BUDGET_BUSY; k <= BUDGET_HOST; k++) b.ms[k] = stages[k];
    } else if (profile->stages_measured || (!gpu && stages[BUDGET_BUSY] > 0.0)) { // the parts of a force field without stages too
        b.ms[gpu ? BUDGET_BUSY : BUDGET_HOST] = stages[BUDGET_BUSY] + stages[BUDGET_GAPS];
    }
    for (int k = 0; k < BUDGET_UNATTRIBUTED; k++) sum += isnan(b.ms[k]) ? 0.0 : b.ms[k];
    double rest = b.step_ms - sum;
    b.ms[BUDGET_UNATTRIBUTED] = fabs(rest) > 1e-9 * b.step_ms ? rest : 0.0; // rounding of the sum, not a finding
    if (isfinite(profile->wall_time_s) && profile->summary.n_steps > 0)
        b.between_ms =
            fmax(profile->wall_time_s * 1e3 / (double)profile->summary.n_steps - profile->summary.latency_ms.mean, 0.0);
    return b;
}

double budget_busy_share(const step_budget *b)
{
    double step_ms = b->usual_ms > 0.0 ? fmin(b->usual_ms, b->step_ms) : b->step_ms; // false for NaN
    return (b->traced || b->divided) && step_ms > 0.0 ? fmin(b->ms[BUDGET_BUSY] / step_ms, 1.0) : NAN;
}

void budget_rest_text(const step_budget *b, char *text, size_t text_bytes)
{
    text[0] = 0;
    for (int k = BUDGET_BUSY + 1; k < N_BUDGET; k++) {
        const bool small = k >= BUDGET_INTEGRATE && !(fabs(b->ms[k]) > 0.005 * b->step_ms); // also where there is none: NaN
        const size_t length = strlen(text);
        if (!small && length < text_bytes)
            base_format(text + length, text_bytes - length, "%s%s %s", length ? ", " : "", budget_names[k],
                        PROFILE_TIME(b->ms[k]));
    }
}

double budget_launch_gain(const step_budget *b)
{
    const double step_ms = b->usual_ms > 0.0 ? fmin(b->usual_ms, b->step_ms) : b->step_ms;
    double stays = b->ms[BUDGET_BUSY];
    for (int k = BUDGET_INTEGRATE; k <= BUDGET_UNATTRIBUTED; k++) stays += fmax(b->ms[k], 0.0); // 0 for NaN
    return fmax(step_ms / stays, 1.0);
}

void budget_text(const step_budget *b, char *text, size_t text_bytes)
{
    char watching[96] = "", rest[256];
    double share = budget_busy_share(b), idle_ms = fmax(b->step_ms - b->ms[BUDGET_BUSY], 0.0),
           added_ms = b->step_ms - b->usual_ms;
    text[0] = 0;
    if (isnan(share)) return;
    if (added_ms > 0.02 * b->step_ms) snprintf(watching, sizeof watching, ", of which tracing adds %s", PROFILE_TIME(added_ms));
    budget_rest_text(b, rest, sizeof rest);
    base_format(text, text_bytes, "%s: the GPU works in %.0f %% of a step%s is idle for %s (%s)%s",
                share < 0.5 ? "launch-bound" : "bound by the GPU", 100.0 * share, b->traced ? "; of a traced one it" : " and",
                PROFILE_TIME(idle_ms), rest, watching);
}
