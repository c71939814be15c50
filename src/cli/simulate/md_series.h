// SPDX-License-Identifier: MIT
// md_series.h: one number of a run's steps in bounded memory: how the conserved energy drifts, how exact a mean is.
#ifndef MD_SERIES_H
#define MD_SERIES_H

#include <stdint.h>

enum { MD_SERIES_SAMPLES = 2048 };
typedef struct md_series {
    double value[MD_SERIES_SAMPLES], step[MD_SERIES_SAMPLES]; // means over `interval` steps or more
    int n;
    int64_t interval;     // steps; 0 at the beginning, then that of the first addition
    int64_t last_step;    // of the last addition
    double sum, step_sum; // of the sample being gathered
    int64_t n_steps;
} md_series;

// The number, n_steps after the last addition. Intervals may differ, as pieces of a run on a GPU do. Where the room is used
// up, two samples become one.
void md_series_add(md_series *series, double energy, int64_t n_steps);
// Slope per step with the half width of its 95 % interval; both NaN of fewer than 20 samples.
void md_series_slope(const md_series *series, double *slope_out, double *half_width_out);
// Standard error of the mean by ten blocks, as that of mlff analyze; NaN of fewer than 100 samples. Too small if a block is not many times as
// long as the number is correlated.
double md_series_error(const md_series *series);

#endif
