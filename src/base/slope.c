// SPDX-License-Identifier: MIT
// slope.c: the slope of a series, with an interval.
#include <math.h>

#include "base.h"

static double slope_of(const double *y, int64_t n, double dx)
{
    const double middle = 0.5 * (double)(n - 1);
    double sum = 0, square = 0;
    for (int64_t k = 0; k < n; k++) {
        sum += ((double)k - middle) * y[k];
        square += ((double)k - middle) * ((double)k - middle);
    }
    return square > 0 ? sum / (square * dx) : 0;
}

void base_slope(const double *y, int64_t n, double dx, int blocks, double *slope_out, double *half_width_out)
{
    // Student's t at 97.5 % for blocks - 1 degrees of freedom, 2 to 9 and above.
    static const double t_table[] = {4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262};
    double mean = 0, square = 0, estimate[10];
    if (blocks > 10) blocks = 10;
    const int64_t size = n / blocks;
    *slope_out = slope_of(y, n, dx);
    for (int b = 0; b < blocks; b++) { // the slope without block b (delete-one jackknife)
        double sx = 0, sy = 0, sxx = 0, sxy = 0, count = 0;
        for (int64_t k = 0; k < size * blocks; k++) {
            if (k / size == b) continue;
            const double x = (double)k * dx;
            sx += x, sy += y[k], sxx += x * x, sxy += x * y[k], count++;
        }
        estimate[b] = (count * sxy - sx * sy) / (count * sxx - sx * sx);
        mean += estimate[b] / blocks;
    }
    for (int b = 0; b < blocks; b++) square += (estimate[b] - mean) * (estimate[b] - mean);
    *half_width_out = t_table[blocks - 3] * sqrt(square * (blocks - 1) / blocks);
}
