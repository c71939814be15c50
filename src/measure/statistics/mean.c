// SPDX-License-Identifier: MIT
// mean.c: the mean of a series whose values depend on each other, with an interval.
//
// Means y of up to 24 blocks of values: a constant plus noise whose correlation is φ^d over d blocks (a first-order autoregression). With
// R_ij = φ^|i - j| the variance of their mean is σ² 1ᵀR1 / n², σ² the residuals' sum of squares under R over n - 1. φ is not known: each
// one counts by its restricted likelihood, and by √(1 - φ), since noise of short correlation is the rule. The interval is the quantile of
// that mixture of Student's distributions. Of 1000 planted series it holds the mean in 988 without correlation, in 92 % and more with one
// over a fifth of the series, in 77 % with one over half of it, of which the series cannot tell. (Blocks taken for independent: 46 and 27 %.)
// Of runs that are slower in spells of a fifth of their length it holds the mean in 81 to 83 % (bench/truth/mean).
#include <float.h>
#include <math.h>

#include "measure/measure.h"

enum { BLOCKS = 24, FEWEST = 12, STEPS = 20 };
#define SPACING 0.05

typedef struct blocks {
    int n;
    double mean, y[BLOCKS]; // less the mean
} blocks;

static blocks make_blocks(const double *values, int64_t n)
{
    blocks b = {.n = n / 2 < BLOCKS ? (int)(n / 2) : BLOCKS};
    for (int k = 0; k < b.n; k++) {
        const int64_t begin = n * k / b.n, end = n * (k + 1) / b.n;
        for (int64_t i = begin; i < end; i++) b.y[k] += (values[i] - values[0]) / (double)(end - begin);
        b.mean += b.y[k] / b.n;
    }
    for (int k = 0; k < b.n; k++) b.y[k] -= b.mean;
    b.mean += values[0];
    return b;
}

// aᵀ R⁻¹ b, times 1 - φ²: R⁻¹ has three diagonals.
static double product(const double *a, const double *b, int n, double correlation)
{
    double sum = 0.0;
    for (int i = 0; i < n; i++) {
        const double diagonal = i == 0 || i == n - 1 ? 1.0 : 1.0 + correlation * correlation;
        sum += a[i] * b[i] * diagonal;
        if (i > 0) sum -= correlation * (a[i] * b[i - 1] + a[i - 1] * b[i]);
    }
    return sum;
}

// Logarithm of the restricted likelihood, and the standard error of the mean.
static double likelihood(const blocks *b, double correlation, double *error_out)
{
    const double scale = 1.0 - correlation * correlation;
    double ones[BLOCKS], variance = b->n, power = 1.0;
    for (int i = 0; i < b->n; i++) ones[i] = 1.0;
    for (int d = 1; d < b->n; d++) variance += 2.0 * (b->n - d) * (power *= correlation);
    const double weight = product(ones, ones, b->n, correlation) / scale, cross = product(ones, b->y, b->n, correlation) / scale;
    const double residual = fmax(product(b->y, b->y, b->n, correlation) / scale - cross * cross / weight, 0.0);
    *error_out = sqrt(residual / (b->n - 1) * variance) / b->n;
    return -0.5 * ((b->n - 1) * log(scale) + log(weight) + (b->n - 1) * log(fmax(residual, DBL_MIN)));
}

void mean_interval(const double *values, int64_t n, double *low_out, double *high_out)
{
    double weight[STEPS], error[STEPS], best = -INFINITY, sum = 0.0, widest = 0.0;
    *low_out = *high_out = NAN;
    if (n < FEWEST) return;
    const blocks b = make_blocks(values, n);
    for (int k = 0; k < STEPS; k++) {
        weight[k] = likelihood(&b, SPACING * k, &error[k]) + 0.5 * log(1.0 - SPACING * k);
        best = fmax(best, weight[k]);
        widest = fmax(widest, error[k]);
    }
    for (int k = 0; k < STEPS; k++) sum += weight[k] = exp(weight[k] - best);
    double low = 0.0, high = 100.0 * widest;
    for (int i = 0; i < 40; i++) {
        const double half = 0.5 * (low + high);
        double within = 0.0;
        for (int k = 0; k < STEPS; k++)
            within += weight[k] / sum * (error[k] > 0.0 ? 2.0 * student_below(half / error[k], b.n - 1) - 1.0 : 1.0);
        if (within < 0.95)
            low = half;
        else
            high = half;
    }
    *low_out = b.mean - high;
    *high_out = b.mean + high;
}
