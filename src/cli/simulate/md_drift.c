// SPDX-License-Identifier: MIT
// md_drift.c: the drift of the conserved energy of a run in bounded memory.
#include "cli/simulate/md_drift.h"

#include <math.h>

#include "base/base.h"

void md_drift_add(md_drift *drift, double energy, int64_t n_steps)
{
    if (drift->interval == 0) drift->interval = n_steps;
    drift->last_step += n_steps;
    drift->sum += energy * (double)n_steps;
    drift->step_sum += (double)drift->last_step * (double)n_steps;
    drift->n_steps += n_steps;
    if (drift->n_steps < drift->interval) return;
    drift->value[drift->n] = drift->sum / (double)drift->n_steps;
    drift->step[drift->n++] = drift->step_sum / (double)drift->n_steps;
    drift->sum = drift->step_sum = 0;
    drift->n_steps = 0;
    if (drift->n < MD_DRIFT_SAMPLES) return;
    for (int k = 0; k < MD_DRIFT_SAMPLES / 2; k++) {
        drift->value[k] = 0.5 * (drift->value[2 * k] + drift->value[2 * k + 1]);
        drift->step[k] = 0.5 * (drift->step[2 * k] + drift->step[2 * k + 1]);
    }
    drift->n = MD_DRIFT_SAMPLES / 2;
    drift->interval *= 2;
}

void md_drift_slope(const md_drift *drift, double *slope_out, double *half_width_out)
{
    *slope_out = *half_width_out = NAN;
    if (drift->n >= BASE_DRIFT_LEAST) base_drift(drift->step, drift->value, drift->n, 0.95, slope_out, half_width_out);
}
