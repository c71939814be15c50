// SPDX-License-Identifier: MIT
// budget.c: the books of a step, in the same rows for every force field: where the device was busy, where it waited for work,
// where the host waited for it, and what the host did meanwhile.
#include <math.h>
#include <string.h>

#include "gpu_kernels.h"

const char *const budget_names[N_BUDGET] = {"device busy", "launch gaps", "waits", "host work", "integrator", "unattributed"};

step_budget budget_of(const mlff_profile *profile)
{
    step_budget b = {.step_ms = profile->summary.latency_ms.mean, .between_ms = NAN};
    const kernel_report *kernels = profile->kernels;
    bool gpu = strncmp(profile->device, "cuda", 4) == 0;
    double stages = 0.0, sum = 0.0;
    for (int k = 0; k < N_BUDGET; k++) b.ms[k] = NAN;
    for (int i = 0; i < profile->n_stages; i++) {
        const profile_stage *s = &profile->stages[i];
        if (strcmp(s->name, "integrate") == 0)
            b.ms[BUDGET_INTEGRATE] = s->shown.mean_ms;
        else if (strcmp(s->name, "unattributed") != 0)
            stages += s->shown.mean_ms;
    }
    if (kernels && kernels->n_rows > 0) {
        b.traced = true;
        b.step_ms = kernels->step_ms;
        b.ms[BUDGET_BUSY] = kernels->busy_ms;
        b.ms[BUDGET_GAPS] = kernels->gap_ms;
        b.ms[BUDGET_WAITS] = kernels->wait_ms;
        b.ms[BUDGET_HOST] = kernels->host_ms;
        if (isfinite(b.ms[BUDGET_INTEGRATE])) b.ms[BUDGET_INTEGRATE] = kernels->integrate_ms;
    } else if (profile->stages_measured) {
        b.ms[gpu ? BUDGET_BUSY : BUDGET_HOST] = stages; // on a GPU with the gaps between kernels, which clocks do not see
    }
    for (int k = 0; k < BUDGET_UNATTRIBUTED; k++) sum += isnan(b.ms[k]) ? 0.0 : b.ms[k];
    b.ms[BUDGET_UNATTRIBUTED] = b.step_ms - sum;
    if (isfinite(profile->wall_time_s) && profile->summary.n_steps > 0)
        b.between_ms =
            fmax(profile->wall_time_s * 1e3 / (double)profile->summary.n_steps - profile->summary.latency_ms.mean, 0.0);
    return b;
}

void budget_text(const step_budget *b, char *text, size_t text_bytes)
{
    text[0] = 0;
    if (!b->traced || !(b->step_ms > 0.0)) return;
    double busy = b->ms[BUDGET_BUSY];
    snprintf(text, text_bytes, "%s: the GPU works in %.0f %% of the step; launch gaps %s, waits %s, host %s",
             2.0 * busy < b->step_ms ? "launch-bound" : "bound by the GPU", 100.0 * busy / b->step_ms,
             PROFILE_TIME(b->ms[BUDGET_GAPS]), PROFILE_TIME(b->ms[BUDGET_WAITS]), PROFILE_TIME(b->ms[BUDGET_HOST]));
}
