// SPDX-License-Identifier: MIT
// drift.c: the drift of a series whose noise may accumulate, with an interval.
#include <float.h>
#include <math.h>

#include "base.h"

enum { PARTS = BASE_DRIFT_LEAST, FREEDOM = PARTS - 2, RATIOS = 21 };

// Chance of |T| <= t, Student's distribution with an even number of degrees of freedom.
static double t_within(double t)
{
    const double cosine2 = FREEDOM / (FREEDOM + t * t);
    double sum = 0, term = 1;
    for (int k = 0; k < FREEDOM / 2; k++) {
        sum += term;
        term *= cosine2 * (2 * k + 1) / (2 * k + 2);
    }
    return sum * sqrt(1 - cosine2);
}

// Covariance of the means of parts i and j: noise that does not accumulate, with variance 1, and a random walk with increments of variance
// `ratio` from part to part.
static double covariance(int i, int j, double ratio)
{
    return i == j ? 1 + ratio * (i + 1.0 / 3) : ratio * ((i < j ? i : j) + 0.5);
}

// Restricted likelihood (logarithm) of the ratio, and the standard error of the slope with it.
static double likelihood(const double x[PARTS], const double y[PARTS], double ratio, double *error_out)
{
    double factor[PARTS][PARTS], white[PARTS][3], product[3][3] = {{0}}, determinant = 0, xx = 0, variance = 0;
    for (int i = 0; i < PARTS; i++) {
        const double row[3] = {1, x[i], y[i]};
        for (int j = 0; j <= i; j++) {
            double sum = covariance(i, j, ratio);
            for (int k = 0; k < j; k++) sum -= factor[i][k] * factor[j][k];
            factor[i][j] = i == j ? sqrt(sum) : sum / factor[j][j];
        }
        for (int c = 0; c < 3; c++) {
            white[i][c] = row[c];
            for (int k = 0; k < i; k++) white[i][c] -= factor[i][k] * white[k][c];
            white[i][c] /= factor[i][i];
        }
        determinant += 2 * log(factor[i][i]);
        for (int a = 0; a < 3; a++)
            for (int b = 0; b < 3; b++) product[a][b] += white[i][a] * white[i][b];
        xx += x[i] * x[i];
        for (int j = 0; j < PARTS; j++) variance += x[i] * x[j] * covariance(i, j, ratio);
    }
    const double square = product[0][0] * product[1][1] - product[0][1] * product[0][1];
    const double u = (product[1][1] * product[0][2] - product[0][1] * product[1][2]) / square;
    const double v = (product[0][0] * product[1][2] - product[0][1] * product[0][2]) / square;
    double residual = 0;
    for (int i = 0; i < PARTS; i++) {
        const double r = white[i][2] - u * white[i][0] - v * white[i][1];
        residual += r * r;
    }
    *error_out = sqrt(residual / FREEDOM * variance) / xx;
    return -0.5 * (determinant + log(square) + FREEDOM * log(fmax(residual, DBL_MIN)));
}

void base_drift(const double *x, const double *y, int64_t n, double confidence, double *slope_out, double *half_width_out)
{
    double mean_x[PARTS], mean_y[PARTS], weight[RATIOS], error[RATIOS], center_x = 0, center_y = 0, best = -INFINITY, sum = 0,
                                                                        widest = 0;
    const int64_t size = n / PARTS;
    for (int p = 0; p < PARTS; p++) {
        mean_x[p] = mean_y[p] = 0;
        for (int64_t k = p * size; k < (p + 1) * size; k++) {
            mean_x[p] += (x ? x[k] : (double)k) / (double)size;
            mean_y[p] += (y[k] - y[0]) / (double)size;
        }
        center_x += mean_x[p] / PARTS;
        center_y += mean_y[p] / PARTS;
    }
    double half;
    base_slope(x, y, n, 10, slope_out, &half);
    for (int p = 0; p < PARTS; p++) mean_x[p] -= center_x, mean_y[p] -= center_y;
    // The ratio is not known: each one counts by its likelihood.
    for (int k = 0; k < RATIOS; k++) {
        weight[k] = likelihood(mean_x, mean_y, k == 0 ? 0 : pow(10, -3 + 0.25 * (k - 1)), &error[k]);
        best = fmax(best, weight[k]);
        widest = fmax(widest, error[k]);
    }
    for (int k = 0; k < RATIOS; k++) sum += weight[k] = exp(weight[k] - best);
    double low = 0, high = 100 * widest;
    for (int step = 0; step < 60; step++) {
        double within = 0;
        half = 0.5 * (low + high);
        for (int k = 0; k < RATIOS; k++) within += weight[k] / sum * (error[k] > 0 ? t_within(half / error[k]) : 1);
        if (within < confidence)
            low = half;
        else
            high = half;
    }
    *half_width_out = high;
}
