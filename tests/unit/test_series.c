// SPDX-License-Identifier: MIT
// Purpose: a series of step times tells the same numbers as a sorted list of all of them, in bounded memory.
// Reference: mlff_statistics_of over every value.
#include "measure/measure.h"
#include "unit/near.h"

// Step times as MD has them: log-normal around 0.4 ms, every 50th step three times as long.
static double step_time(int64_t i)
{
    double ns = 4e5 * exp(0.1 * base_random_normal(7, 0, (uint64_t)i));
    return floor(i % 50 == 49 ? 3.0 * ns : ns);
}

static void test_short_run_is_exact(void **state)
{
    (void)state;
    enum { N = 1000 };
    double values[N];
    series s;
    mlff_statistics kept, all;
    assert_ok(series_init(&s, N, 100000));
    assert_null(s.counts);
    for (int i = 0; i < N; i++) series_add(&s, values[i] = step_time(i), 0);
    assert_ok(series_statistics(&s, 1e-6, &kept));
    assert_ok(mlff_statistics_of(values, N, &all));
    assert_int_equal(s.every, 1);
    assert_int_equal(s.n_values, N);
    assert_memory_equal(s.values, values, sizeof values);
    assert_near(kept.mean, all.mean * 1e-6, 1e-12);
    assert_near(kept.median, all.median * 1e-6, 0);
    assert_near(kept.p95, all.p95 * 1e-6, 0);
    assert_near(kept.p99, all.p99 * 1e-6, 0);
    assert_near(kept.std, all.std * 1e-6, 1e-12);
    assert_int_equal(kept.n_outliers, all.n_outliers);
    series_free(&s);
}

static void test_long_run_is_close_and_bounded(void **state)
{
    (void)state;
    enum { N = 500000, LIMIT = 1000 };
    double *values = malloc(N * sizeof *values);
    series s;
    mlff_statistics kept, all;
    assert_ok(series_init(&s, N, LIMIT));
    int64_t allocations = base_allocation_count();
    for (int i = 0; i < N; i++) series_add(&s, values[i] = step_time(i), (uint32_t)(i % 50 == 49));
    assert_int_equal(base_allocation_count(), allocations); // adding never allocates
    assert_ok(series_statistics(&s, 1.0, &kept));
    assert_ok(mlff_statistics_of(values, N, &all));

    assert_int_equal(kept.n, N);
    assert_near(kept.mean, all.mean, 1e-9 * all.mean); // Welford both: rounding only
    assert_near(kept.std, all.std, 1e-9 * all.std);
    assert_near(kept.min, all.min, 0);
    assert_near(kept.max, all.max, 0);
    assert_near(kept.median, all.median, 0.005 * all.median); // a bucket is 0.4 % wide
    assert_near(kept.p95, all.p95, 0.005 * all.p95);
    assert_near(kept.p99, all.p99, 0.005 * all.p99);
    // Outliers of the bucket that a fence cuts may go either way; here the density at the fences is low.
    assert_near((double)kept.n_outliers, (double)all.n_outliers, 0.02 * (double)all.n_outliers);

    assert_in_range(s.n_values, LIMIT / 2, LIMIT);
    assert_int_equal(s.n_values, (N - 1) / s.every + 1);
    int64_t n_slow = 0;
    for (int64_t i = 0; i < s.n_values; i++) {
        const int64_t step = series_step(&s, i);
        assert_in_range(step, i * s.every, (i + 1) * s.every - 1);
        if (s.values[i] != values[step]) fail_msg("value %lld is not that of step %lld", (long long)i, (long long)step);
        n_slow += step % 50 == 49;
    }
    assert_near((double)n_slow, (double)s.n_values / 50, 4 * sqrt((double)s.n_values / 50)); // none would be of every 512th

    assert_int_equal(s.n_slowest, SERIES_SLOWEST);
    assert_near(s.slowest[0].value, all.max, 0);
    for (int i = 0; i < s.n_slowest; i++) {
        assert_near(s.slowest[i].value, values[s.slowest[i].step], 0);
        assert_int_equal(s.slowest[i].tags, s.slowest[i].step % 50 == 49);
        if (i > 0) assert_true(s.slowest[i].value <= s.slowest[i - 1].value);
    }
    int64_t larger = 0;
    for (int i = 0; i < N; i++) larger += values[i] > s.slowest[SERIES_SLOWEST - 1].value;
    assert_int_equal(larger, SERIES_SLOWEST - 1);
    series_free(&s);
    free(values);
}

// Series of the same steps keep the same ones, however often each was thinned.
static void test_thinner_series(void **state)
{
    (void)state;
    enum { N = 70001 };
    series fine, thin;
    assert_ok(series_init(&fine, N, 1000));
    assert_ok(series_init(&thin, N, 100));
    for (int i = 0; i < N; i++) {
        series_add(&fine, i, 0);
        series_add(&thin, i, 0);
    }
    assert_int_equal(thin.n_values, (N - 1) / thin.every + 1);
    for (int64_t i = 0; i < thin.n_values; i++) {
        const int64_t step = series_step(&thin, i);
        assert_near(thin.values[i], (double)step, 0);
        assert_near(fine.values[step / fine.every], (double)step, 0);
    }
    series_free(&fine);
    series_free(&thin);
}

// 10^8 steps with 25 stages, as the profiler sets them up.
static void test_memory_of_a_huge_run(void **state)
{
    (void)state;
    series all[26];
    int64_t before = base_allocated_bytes();
    assert_ok(series_init(&all[0], 100000000, 100000));
    for (int k = 1; k < 26; k++) assert_ok(series_init(&all[k], 100000000, 4096));
    assert_true(base_allocated_bytes() - before < 6 << 20); // 0.9 MB for the steps, 0.12 MB a stage
    for (int k = 0; k < 26; k++) series_free(&all[k]);
    assert_int_equal(base_allocated_bytes(), before);
}

static void test_strange_values(void **state)
{
    (void)state;
    const double values[] = {0.0, -3.0, 1e18, -1e18, 0.25, 1.0, 7.0, 7.0, 7.0, 7.0, 7.0};
    enum { N = sizeof values / sizeof *values };
    series s;
    mlff_statistics t;
    assert_ok(series_init(&s, N, 4)); // the histogram, and decimation
    for (int i = 0; i < N; i++) series_add(&s, values[i], 0);
    assert_ok(series_statistics(&s, 1.0, &t));
    assert_near(t.min, -1e18, 0);
    assert_near(t.max, 1e18, 0);
    assert_near(t.median, 7.0, 0.03);
    series_free(&s);

    assert_ok(series_init(&s, 10, 4));
    assert_ok(series_statistics(&s, 1.0, &t)); // nothing added
    assert_int_equal(t.n, 0);
    assert_near(t.mean, 0.0, 0);
    series_free(&s);
}

// The percentiles of any bucket, not only of those a sample happens to meet.
static void test_every_octave(void **state)
{
    (void)state;
    for (int octave = 0; octave < 40; octave++)
        for (int part = 0; part < 7; part++) {
            double value = ldexp(1.0 + part / 7.0, octave);
            series s;
            mlff_statistics t;
            assert_ok(series_init(&s, 8, 2));
            series_add(&s, value * 0.5, 0);
            for (int i = 0; i < 6; i++) series_add(&s, value, 0);
            series_add(&s, value * 2.0, 0);
            assert_ok(series_statistics(&s, 1.0, &t));
            if (fabs(t.median - value) > 0.005 * value) fail_msg("median %.17g of %.17g (octave %d)", t.median, value, octave);
            series_free(&s);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_short_run_is_exact), cmocka_unit_test(test_long_run_is_close_and_bounded),
        cmocka_unit_test(test_thinner_series),     cmocka_unit_test(test_memory_of_a_huge_run),
        cmocka_unit_test(test_strange_values),     cmocka_unit_test(test_every_octave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
