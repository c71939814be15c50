// SPDX-License-Identifier: MIT
// Purpose: the numbers a list of times is told by are NumPy's, and the benchmark and the clock do what they say.
// Reference: numpy.percentile, numpy.std(ddof=1), worked by hand for lists short enough to check on paper.
#include "cli/simulate/md_series.c" // a part of the command, which no library holds
#include "measure/measure.h"
#include "unit/near.h"

static void test_of_a_known_list(void **state)
{
    (void)state;
    const double values[] = {10, 2, 3, 9, 5, 6, 7, 8, 4, 1}; // 1..10, shuffled
    mlff_statistics s;
    assert_ok(mlff_statistics_of(values, 10, &s));
    assert_int_equal(s.n, 10);
    assert_near(s.mean, 5.5, 1e-15);
    assert_near(s.median, 5.5, 1e-15);
    assert_near(s.std, 3.0276503540974917, 1e-14); // sqrt(82.5 / 9)
    assert_near(s.cv, 3.0276503540974917 / 5.5, 1e-14);
    assert_near(s.min, 1, 0);
    assert_near(s.max, 10, 0);
    assert_near(s.p95, 9.55, 1e-13); // rank 8.55
    assert_near(s.p99, 9.91, 1e-13); // rank 8.91
    assert_int_equal(s.n_outliers, 0);
}

static void test_outliers_are_labelled_and_kept(void **state)
{
    (void)state;
    double values[101];
    for (int i = 0; i < 100; i++) values[i] = 10.0 + i * 0.01; // quartiles 10.25 and 10.75: fences 8.75 and 12.25
    values[100] = 12.2;
    mlff_statistics s;
    assert_ok(mlff_statistics_of(values, 101, &s));
    assert_int_equal(s.n_outliers, 0);
    assert_near(s.fence_low, 8.75, 1e-12);
    assert_near(s.fence_high, 12.25, 1e-12);
    values[100] = 500.0;
    values[0] = 1.0;
    assert_ok(mlff_statistics_of(values, 101, &s));
    assert_int_equal(s.n_outliers, 2);
    assert_near(s.max, 500.0, 0);
    assert_int_equal(s.n, 101);
}

static void test_of_one_value(void **state)
{
    (void)state;
    double value = 3.5;
    mlff_statistics s;
    assert_ok(mlff_statistics_of(&value, 1, &s));
    assert_near(s.mean, 3.5, 0);
    assert_near(s.p99, 3.5, 0);
    assert_near(s.std, 0.0, 0);
    assert_near(s.cv, 0.0, 0);
}

static void test_bad_input(void **state)
{
    (void)state;
    double values[] = {1.0, NAN, 2.0};
    mlff_statistics s = {.n = -7};
    assert_int_equal(mlff_statistics_of(values, 3, &s), MLFF_ERR_VALUE);
    assert_non_null(strstr(mlff_last_error(), "value 1 of 3"));
    assert_int_equal(mlff_statistics_of(values, 0, &s), MLFF_ERR_USAGE);
    assert_int_equal(mlff_statistics_of(NULL, 3, &s), MLFF_ERR_USAGE);
    assert_int_equal(s.n, -7); // untouched
}

// A mean far from the spread: sums of squares would lose all digits of the standard deviation.
static void test_std_far_from_zero(void **state)
{
    (void)state;
    double values[1000];
    for (int i = 0; i < 1000; i++) values[i] = 1e9 + (i % 2 ? 0.5 : -0.5);
    mlff_statistics s;
    assert_ok(mlff_statistics_of(values, 1000, &s));
    assert_near(s.std, 0.5 * sqrt(1000.0 / 999.0), 1e-6); // float64 at 1e9 resolves 1e-7
}

static void test_clock(void **state)
{
    (void)state;
    double quantum = 0, cost = 0, quantum_again, cost_again;
    mlff_clock_calibration(&quantum, &cost);
    mlff_clock_calibration(&quantum_again, &cost_again);
    assert_true(quantum >= 1.0 && quantum < 1e8);
    assert_true(cost > 0.0 && cost < 1e6);
    assert_near(quantum, quantum_again, 0); // calibrated once
    assert_near(cost, cost_again, 0);
    int64_t last = mlff_clock_ns();
    for (int i = 0; i < 10000; i++) {
        int64_t now = mlff_clock_ns();
        assert_true(now >= last);
        last = now;
    }
}

typedef struct counted {
    int n_calls, fails_at;
} counted;

static mlff_status busy(void *context)
{
    counted *c = context;
    if (++c->n_calls == c->fails_at) return mlff_fail(MLFF_ERR_CALLBACK, "call %d fails on purpose", c->n_calls);
    for (int64_t start = mlff_clock_ns(); mlff_clock_ns() - start < 200000;) {}
    return MLFF_OK;
}

static void test_benchmark(void **state)
{
    (void)state;
    counted c = {0};
    double times[20];
    mlff_statistics s;
    assert_ok(mlff_benchmark(busy, &c, 3, 20, times, &s));
    assert_int_equal(c.n_calls, 23);
    assert_int_equal(s.n, 20);
    assert_true(s.min >= 200000.0); // 200 µs of waiting; how much more is the machine's affair
    for (int i = 0; i < 20; i++) assert_true(times[i] >= s.min && times[i] <= s.max);

    c = (counted){0};
    assert_ok(mlff_benchmark(busy, &c, 0, 1, NULL, &s)); // without an array of times
    c = (counted){.fails_at = 5};
    assert_int_equal(mlff_benchmark(busy, &c, 1, 20, times, &s), MLFF_ERR_CALLBACK);
    assert_string_equal(mlff_last_error(), "call 5 fails on purpose");
    assert_int_equal(mlff_benchmark(busy, &c, -1, 20, times, &s), MLFF_ERR_USAGE);
    assert_int_equal(mlff_benchmark(busy, &c, 0, 0, times, &s), MLFF_ERR_USAGE);
    assert_int_equal(mlff_benchmark(NULL, &c, 0, 1, times, &s), MLFF_ERR_USAGE);
}

// A conserved energy takes a random walk: each step adds an error of its own. The interval covers the planted drift nevertheless.
static void test_drift_of_a_random_walk(void **state)
{
    (void)state;
    enum { TRIALS = 200, N = 1000 };
    static md_series drift;
    int covered = 0;
    for (int trial = 0; trial < TRIALS; trial++) {
        double slope, half, energy = -1e5;
        memset(&drift, 0, sizeof drift);
        for (int k = 0; k < N; k++)
            md_series_add(&drift, energy += 1e-3 * (0.01 + base_random_normal(3, (uint64_t)trial, (uint64_t)k)), 1);
        md_series_slope(&drift, &slope, &half);
        covered += fabs(slope - 1e-5) <= half;
    }
    if (covered < 180) fail_msg("the 95 %% interval covers %d of %d", covered, TRIALS); // 190 ± 3
}

// The slope of mlff md: pieces of a run on a GPU are short at first and end with lines of the table. Those of the CPU are one step each,
// more than there is room for.
static void test_drift_of_unequal_pieces(void **state)
{
    (void)state;
    static md_series drift;
    for (int resident = 0; resident < 2; resident++) {
        double slope, half;
        int64_t step = 0;
        memset(&drift, 0, sizeof drift);
        for (int64_t piece = resident ? 10 : 1; step < 100000; piece *= resident && piece < 1000 ? 2 : 1) {
            const int64_t to_line = 1000 - step % 1000, n = piece < to_line ? piece : to_line;
            step += n;
            md_series_add(&drift, -1e5 + 1e-6 * (double)step, n);
        }
        md_series_slope(&drift, &slope, &half);
        assert_near(slope, 1e-6, 1e-12); // rounding of the energies: 1e-11 eV in 100000 steps
        assert_near(half, 0, 1e-12);
    }
}

// The error of a mean of normal numbers of width 2, also where samples were joined: 95 % of the means are within the limits of Student's
// distribution with 9 degrees of freedom. Of correlated ones, each held for 20 steps, as well.
static void means_have_errors(void **state)
{
    (void)state;
    enum { TRIALS = 400 };
    static const int lengths[] = {100, 3000, 10000};
    static md_series numbers;
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
        for (int correlated = 0; correlated < (lengths[l] > 100 ? 2 : 1); correlated++) {
            int n_within = 0;
            for (int trial = 0; trial < TRIALS; trial++) {
                double sum = 0, shared = 0;
                numbers = (md_series){0};
                for (int k = 0; k < lengths[l]; k++) {
                    const double number = 2 * base_random_normal(5, (uint64_t)trial, (uint64_t)k);
                    if (k % 20 == 0) shared = number; // held for 20 steps
                    md_series_add(&numbers, correlated ? shared : number, 1);
                    sum += correlated ? shared : number;
                }
                n_within += fabs(sum / lengths[l]) < 2.262 * md_series_error(&numbers);
            }
            if (n_within < 365 || n_within > 395)
                fail_msg("%d of %d within, length %d", n_within, TRIALS, lengths[l]); // 380 ± 3.4 sigma
        }
    numbers = (md_series){0};
    for (int k = 0; k < 99; k++) md_series_add(&numbers, k, 1);
    assert_true(isnan(md_series_error(&numbers)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_drift_of_unequal_pieces),
        cmocka_unit_test(test_drift_of_a_random_walk),
        cmocka_unit_test(test_of_a_known_list),
        cmocka_unit_test(test_outliers_are_labelled_and_kept),
        cmocka_unit_test(test_of_one_value),
        cmocka_unit_test(test_bad_input),
        cmocka_unit_test(test_std_far_from_zero),
        cmocka_unit_test(test_clock),
        cmocka_unit_test(test_benchmark),
        cmocka_unit_test(means_have_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
