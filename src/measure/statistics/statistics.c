// SPDX-License-Identifier: MIT
// statistics.c: the numbers that describe a list of times.
#include <math.h>
#include <string.h>

#include "measure/measure.h"

double statistics_percentile(const double *sorted, int64_t n, double fraction)
{
    double rank = fraction * (double)(n - 1);
    int64_t below = (int64_t)rank;
    if (below >= n - 1) return sorted[n - 1];
    double weight = rank - (double)below;
    return sorted[below] + weight * (sorted[below + 1] - sorted[below]);
}

static double *sorted_copy(const double *values, int64_t n)
{
    double *sorted = base_alloc((size_t)n, sizeof *sorted, "values to sort");
    if (!sorted) return NULL;
    memcpy(sorted, values, (size_t)n * sizeof *sorted);
    base_sort(sorted, (size_t)n);
    return sorted;
}

double statistics_quantile(const double *values, int64_t n, double fraction)
{
    if (n < 1) return NAN;
    double *sorted = sorted_copy(values, n);
    if (!sorted) return NAN;
    double quantile = statistics_percentile(sorted, n, fraction);
    base_free(sorted);
    return quantile;
}

double statistics_median(const double *values, int64_t n)
{
    return statistics_quantile(values, n, 0.5);
}

mlff_status mlff_statistics_of(const double *values, int64_t n, mlff_statistics *statistics_out)
{
    if (!values || !statistics_out) return mlff_fail(MLFF_ERR_USAGE, "statistics: values or the output is NULL");
    if (n < 1) return mlff_fail(MLFF_ERR_USAGE, "statistics of %lld values: at least 1 is needed", (long long)n);

    mlff_statistics result = {.n = n};
    double sum_squares = 0.0;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(values[i]))
            return mlff_fail(MLFF_ERR_VALUE, "statistics: value %lld of %lld is not finite", (long long)i, (long long)n);
        double step = values[i] - result.mean;
        result.mean += step / (double)(i + 1);
        sum_squares += step * (values[i] - result.mean);
    }
    double *sorted = sorted_copy(values, n);
    if (!sorted) return MLFF_ERR_MEMORY;
    result.std = n > 1 ? sqrt(sum_squares / (double)(n - 1)) : 0.0;
    result.cv = result.mean != 0.0 ? result.std / result.mean : 0.0;
    result.min = sorted[0];
    result.max = sorted[n - 1];
    result.median = statistics_percentile(sorted, n, 0.50);
    result.p95 = statistics_percentile(sorted, n, 0.95);
    result.p99 = statistics_percentile(sorted, n, 0.99);
    double q1 = statistics_percentile(sorted, n, 0.25), q3 = statistics_percentile(sorted, n, 0.75);
    double low = q1 - 3.0 * (q3 - q1), high = q3 + 3.0 * (q3 - q1);
    for (int64_t i = 0; i < n; i++) result.n_outliers += sorted[i] < low || sorted[i] > high;
    result.fence_low = low;
    result.fence_high = high;
    base_free(sorted);
    *statistics_out = result;
    return MLFF_OK;
}
