// SPDX-License-Identifier: MIT
// Purpose: the shift between two groups is the median of their differences, one outlier moves neither it nor its interval by much,
// and p and interval are those of the exact rank tests. Reference: tables of Wilcoxon's tests (two-sided), and counting by hand.
#include "measure/measure.h"
#include "unit/near.h"

static void test_exact_groups(void **state)
{
    (void)state;
    const double a[] = {1, 2, 3, 4, 5}, b[] = {11, 12, 13, 14, 15};
    shift_result r;
    assert_ok(shift_of_groups(a, 5, b, 5, 0.05, &r));
    assert_near(r.shift, 10.0, 1e-12);
    assert_near(r.p, 2.0 / 252.0, 1e-12);
    // At 5 % two-sided the table's critical value for 5 and 5 is U = 2: differences 3 and 23 of 25, 7 and 13.
    assert_near(r.low, 7.0, 1e-12);
    assert_near(r.high, 13.0, 1e-12);
    assert_ok(shift_of_groups(a, 5, b, 5, 0.005, &r)); // less than 2 in 252: nothing can be told
    assert_true(isinf(r.low) && isinf(r.high));
    assert_ok(shift_of_groups(a, 4, b, 4, 0.05, &r));
    assert_near(r.p, 2.0 / 70.0, 1e-12);
    assert_true(r.low > 0.0);
    assert_ok(shift_of_groups(a, 3, b, 3, 0.05, &r));
    assert_true(isinf(r.high));
    assert_ok(shift_of_groups(a, 5, a, 5, 0.05, &r));
    assert_near(r.shift, 0.0, 0.0);
    assert_true(r.low < 0.0 && r.high > 0.0 && r.p > 0.5);
    const double c[] = {0.5, 12, 13, 14, 15}; // one of b below all of a: 5 of 25 differences are negative
    assert_ok(shift_of_groups(a, 5, c, 5, 0.05, &r));
    assert_near(r.p, 2.0 * 19.0 / 252.0, 1e-12);    // partitions of 0 to 5 into at most 5 parts: 1 + 1 + 2 + 3 + 5 + 7 = 19
    assert_int_equal(shift_groups_needed(0.05), 4); // 2 in 20 and 2 in 70
    assert_int_equal(shift_groups_needed(0.01), 5); // 2 in 252
}

static void test_exact_pairs(void **state)
{
    (void)state;
    double a[8], b[8];
    shift_result r;
    for (int i = 0; i < 8; i++) {
        a[i] = i * i;
        b[i] = a[i] + 1.0 + 0.01 * i;
    }
    assert_int_equal(shift_pairs_needed(0.05), 6);
    assert_ok(shift_of_pairs(a, b, 8, 0.05, &r));
    assert_near(r.p, 2.0 / 256.0, 1e-12);
    assert_near(r.shift, 1.035, 1e-12);
    // The table's critical value for 8 pairs is 3: averages 4 and 33 of 36.
    assert_near(r.low, 1.01, 1e-12);
    assert_near(r.high, 1.06, 1e-12);
    assert_ok(shift_of_pairs(a, b, 5, 0.05, &r)); // 2 in 32 is more than 5 %
    assert_true(isinf(r.low));
}

static void test_outlier(void **state)
{
    (void)state;
    const double a[] = {1.00, 1.01, 0.99, 1.02, 0.98, 1.00}, b[] = {1.05, 1.06, 1.04, 1.07, 1.03, 9.0};
    shift_result r;
    assert_ok(shift_of_groups(a, 6, b, 6, 0.05, &r));
    assert_near(r.shift, 0.055, 0.011);
    assert_true(r.low > 0.0); // the upper end may be the outlier's: 6 of 36 differences are
    assert_true(r.p < 0.01);
    const double c[] = {1.00, 1.01, 0.99, 1.02, 0.98, 1.00, 1.01, 1.00}, d[] = {1.05, 1.06, 1.04, 1.07, 1.03, 1.05, 1.06, 9.0};
    assert_ok(shift_of_groups(c, 8, d, 8, 0.05, &r));
    assert_near(r.shift, 0.05, 0.011);
    assert_true(r.low > 0.0 && r.high < 0.2);
}

// Normal groups of 5 to 50 values a side: the interval holds the truth in 95 % or more, as the tests are exact.
static void test_coverage(void **state)
{
    (void)state;
    enum { TRIALS = 2000, MOST = 50 };
    static const int sizes[] = {5, 8, 20, MOST};
    uint64_t draw = 0;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        int n = sizes[k], trials = n == MOST ? TRIALS / 10 : TRIALS, held[2] = {0};
        for (int t = 0; t < trials; t++) {
            double a[MOST], b[MOST];
            shift_result r;
            for (int i = 0; i < n; i++) {
                a[i] = base_random_normal(1, k, draw++);
                b[i] = 0.5 + base_random_normal(1, k, draw++);
            }
            assert_ok(shift_of_groups(a, n, b, n, 0.05, &r));
            held[0] += r.low <= 0.5 && 0.5 <= r.high;
            assert_ok(shift_of_pairs(a, b, n, 0.05, &r));
            held[1] += r.low <= 0.5 && 0.5 <= r.high;
        }
        for (int which = 0; which < 2; which++) // 2.6 binomial errors are passed by chance in 0.5 %
            if (held[which] < trials * (0.95 - 2.6 * sqrt(0.05 * 0.95 / trials)))
                fail_msg("%d values, %s: held in %.3f", n, which ? "pairs" : "groups", held[which] / (double)trials);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_exact_groups), cmocka_unit_test(test_exact_pairs),
                                       cmocka_unit_test(test_outlier), cmocka_unit_test(test_coverage)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
