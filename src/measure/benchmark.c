// SPDX-License-Identifier: MIT
// benchmark.c: one function, many calls.
#include "measure.h"

mlff_status mlff_benchmark(mlff_status (*function)(void *context), void *context, int64_t n_warmup, int64_t n_calls,
                           double *times_ns, mlff_statistics *statistics_out)
{
    if (!function) return mlff_fail(MLFF_ERR_USAGE, "benchmark: no function to call");
    if (n_warmup < 0) return mlff_fail(MLFF_ERR_USAGE, "benchmark: %lld warm-up calls; expected 0 or more", (long long)n_warmup);
    if (n_calls < 1) return mlff_fail(MLFF_ERR_USAGE, "benchmark: %lld calls; at least 1 is needed", (long long)n_calls);

    mlff_status status = MLFF_OK;
    double *times = times_ns ? times_ns : base_alloc((size_t)n_calls, sizeof *times, "times of calls");
    if (!times) return MLFF_ERR_MEMORY;
    for (int64_t i = 0; i < n_warmup; i++) MLFF_TRY(function(context));
    for (int64_t i = 0; i < n_calls; i++) {
        int64_t start = mlff_clock_ns();
        MLFF_TRY(function(context));
        times[i] = (double)(mlff_clock_ns() - start);
    }
    if (statistics_out) MLFF_TRY(mlff_statistics_of(times, n_calls, statistics_out));
done:
    if (times != times_ns) base_free(times);
    return status;
}
