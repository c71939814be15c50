// SPDX-License-Identifier: MIT
// slope.c: the slope of a series, with an interval.
#include <math.h>

#include "base.h"

// The slope by least squares without points begin <= k < end, about the means, so that a large offset of y costs no digits.
static double slope_without(const double *x, const double *y, int64_t n, int64_t begin, int64_t end)
{
    double count = 0, mean_x = 0, mean_y = 0, xy = 0, xx = 0;
    for (int64_t k = 0; k < n; k++) {
        if (k >= begin && k < end) continue;
        count++;
        mean_x += ((x ? x[k] : (double)k) - mean_x) / count;
        mean_y += (y[k] - mean_y) / count;
    }
    for (int64_t k = 0; k < n; k++) {
        if (k >= begin && k < end) continue;
        const double from_mean = (x ? x[k] : (double)k) - mean_x;
        xy += from_mean * (y[k] - mean_y);
        xx += from_mean * from_mean;
    }
    return xx > 0 ? xy / xx : 0;
}

void base_slope(const double *x, const double *y, int64_t n, int blocks, double *slope_out, double *half_width_out)
{
    // Student's t at 97.5 % for blocks - 1 degrees of freedom, 2 to 9 and above.
    static const double t_table[] = {4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262};
    double mean = 0, square = 0, estimate[10];
    if (blocks > 10) blocks = 10;
    const int64_t size = n / blocks;
    *slope_out = slope_without(x, y, n, 0, 0);
    for (int b = 0; b < blocks; b++) { // delete-one jackknife
        estimate[b] = slope_without(x, y, size * blocks, b * size, (b + 1) * size);
        mean += estimate[b] / blocks;
    }
    for (int b = 0; b < blocks; b++) square += (estimate[b] - mean) * (estimate[b] - mean);
    *half_width_out = t_table[blocks - 3] * sqrt(square * (blocks - 1) / blocks);
}
