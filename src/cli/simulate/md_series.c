// SPDX-License-Identifier: MIT
// md_series.c: one number of a run's steps in bounded memory.
#include "cli/simulate/md_series.h"

#include <math.h>

#include "base/base.h"

void md_series_add(md_series *series, double value, int64_t n_steps)
{
    if (series->interval == 0) series->interval = n_steps;
    series->last_step += n_steps;
    series->sum += value * (double)n_steps;
    series->step_sum += (double)series->last_step * (double)n_steps;
    series->n_steps += n_steps;
    if (series->n_steps < series->interval) return;
    series->value[series->n] = series->sum / (double)series->n_steps;
    series->step[series->n++] = series->step_sum / (double)series->n_steps;
    series->sum = series->step_sum = 0;
    series->n_steps = 0;
    if (series->n < MD_SERIES_SAMPLES) return;
    for (int k = 0; k < MD_SERIES_SAMPLES / 2; k++) {
        series->value[k] = 0.5 * (series->value[2 * k] + series->value[2 * k + 1]);
        series->step[k] = 0.5 * (series->step[2 * k] + series->step[2 * k + 1]);
    }
    series->n = MD_SERIES_SAMPLES / 2;
    series->interval *= 2;
}

void md_series_slope(const md_series *series, double *slope_out, double *half_width_out)
{
    *slope_out = *half_width_out = NAN;
    if (series->n >= BASE_DRIFT_LEAST) base_drift(series->step, series->value, series->n, 0.95, slope_out, half_width_out);
}

double md_series_error(const md_series *series)
{
    enum { BLOCKS = 10, LEAST = 100 };
    double mean[BLOCKS] = {0}, total = 0, square = 0;
    const int each = series->n / BLOCKS;
    if (series->n < LEAST) return NAN;
    for (int b = 0; b < BLOCKS; b++) {
        for (int k = 0; k < each; k++) mean[b] += series->value[b * each + k] / each;
        total += mean[b] / BLOCKS;
    }
    for (int b = 0; b < BLOCKS; b++) square += (mean[b] - total) * (mean[b] - total);
    return sqrt(square / (BLOCKS - 1) / BLOCKS);
}
