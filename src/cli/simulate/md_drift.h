// SPDX-License-Identifier: MIT
// md_drift.h: how the conserved energy of a run drifts.
#ifndef MD_DRIFT_H
#define MD_DRIFT_H

#include <stdint.h>

enum { MD_DRIFT_SAMPLES = 2048 };
typedef struct md_drift {
    double value[MD_DRIFT_SAMPLES], step[MD_DRIFT_SAMPLES]; // means over `interval` steps or more
    int n;
    int64_t interval;     // steps; 0 at the beginning, then that of the first addition
    int64_t last_step;    // of the last addition
    double sum, step_sum; // of the sample being gathered
    int64_t n_steps;
} md_drift;

// The conserved energy, n_steps after the last addition. Intervals may differ, as pieces of a run on a GPU do. Where the room is used
// up, two samples become one.
void md_drift_add(md_drift *drift, double energy, int64_t n_steps);
// Slope per step with the half width of its 95 % interval; both NaN of fewer than 20 samples.
void md_drift_slope(const md_drift *drift, double *slope_out, double *half_width_out);

#endif
