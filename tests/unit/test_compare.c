// SPDX-License-Identifier: MIT
// Purpose: a comparison of runs keeps its promises on synthetic runs whose truth is known: A/A is called different in at most
// 1 %, a slowdown of 2 % is found in at least 90 % at 5 + 5 runs, whatever steps of one run have to do with one another.
#include <stdlib.h>

#include "profile/profile.h"
#include "unit/near.h"

enum { STEPS = 200 };

static uint64_t draw; // every trial has numbers of its own
static double normal(uint64_t seed)
{
    return base_random_normal(seed, 3, draw++);
}

// A run of steps: run-to-run deviation `between`, steps with autocorrelation phi and deviation `within`, in logarithms. A
// negative `between` has heavy tails: every tenth run is five times as far off.
static mlff_profile *synthetic_run(uint64_t seed, double shift, double between, double within, double phi)
{
    mlff_profile *profile;
    assert_ok(profile_new(&profile));
    profile->latency_ms = base_alloc(STEPS, sizeof(double), "steps");
    profile->n_latency = profile->summary.n_steps = STEPS;
    double far = between < 0.0 && base_random_uniform(seed, 4, draw++) < 0.1 ? 5.0 : 1.0;
    double offset = log(2.0) + shift + far * fabs(between) * normal(seed), x = normal(seed);
    for (int i = 0; i < STEPS; i++) {
        x = phi * x + sqrt(1.0 - phi * phi) * normal(seed);
        profile->latency_ms[i] = exp(offset + within * x);
    }
    assert_ok(mlff_statistics_of(profile->latency_ms, STEPS, &profile->summary.latency_ms));
    return profile;
}

typedef struct rates {
    double different, same, unclear, detectable, covered;
} rates;

static rates trials(uint64_t seed, int n_trials, int n_runs, double shift, double between, double within, double phi)
{
    rates r = {0};
    for (int t = 0; t < n_trials; t++) {
        mlff_profile *runs[20];
        mlff_comparison *c;
        int n;
        for (int i = 0; i < 2 * n_runs; i++) runs[i] = synthetic_run(seed, i < n_runs ? 0.0 : shift, between, within, phi);
        // No floor: what the test itself does is looked at.
        mlff_comparison_options options = mlff_comparison_options_default();
        options.noise_floor = 0.0;
        assert_ok(mlff_profile_compare((const mlff_profile *const *)runs, n_runs, (const mlff_profile *const *)runs + n_runs,
                                       n_runs, &options, &c));
        const mlff_comparison_row *row = mlff_comparison_rows(c, &n);
        r.different += (row->change == MLFF_SLOWER || row->change == MLFF_FASTER) / (double)n_trials;
        r.same += (row->change == MLFF_SAME) / (double)n_trials;
        r.unclear += (row->change == MLFF_UNCLEAR) / (double)n_trials;
        r.covered += (row->low <= exp(shift) && exp(shift) <= row->high) / (double)n_trials;
        r.detectable += mlff_comparison_detectable(c) / n_trials;
        mlff_comparison_destroy(c);
        for (int i = 0; i < 2 * n_runs; i++) mlff_profile_destroy(runs[i]);
    }
    return r;
}

static void test_same_code_is_not_called_different(void **state)
{
    (void)state;
    static const struct {
        double between, within, phi;
    } cases[] = {{0.0, 0.02, 0.0},   {0.0, 0.02, 0.9},  {0.003, 0.02, 0.0},
                 {0.003, 0.02, 0.9}, {0.02, 0.05, 0.5}, {-0.005, 0.02, 0.5}};
    enum { TRIALS = 300 };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        rates r = trials(100 + k, TRIALS, 5, 0.0, cases[k].between, cases[k].within, cases[k].phi);
        printf("A/A, run-to-run %.1f %%%s, phi %.1f: called different in %.1f %%, interval holds the truth in %.1f %%\n",
               fabs(cases[k].between) * 100.0, cases[k].between < 0.0 ? " with heavy tails" : "", cases[k].phi,
               r.different * 100.0, r.covered * 100.0);
        double rate = 0.01 + 2.6 * sqrt(0.01 * 0.99 / TRIALS); // binomial; 2.6 standard errors are passed by chance in 0.5 %
        if (r.different > rate) fail_msg("case %zu: %.3f of A/A are called different", k, r.different);
        if (r.covered < 0.95 - 2.6 * sqrt(0.05 * 0.95 / TRIALS))
            fail_msg("case %zu: the interval holds the truth in %.3f only", k, r.covered);
    }
}

static void test_small_slowdown_is_found(void **state)
{
    (void)state;
    const double betweens[] = {0.001, 0.003, 0.005};
    for (int k = 0; k < 3; k++) {
        rates r = trials(200 + (uint64_t)k, 200, 5, log(1.02), betweens[k], 0.01, 0.5);
        printf("2 %% slowdown, run-to-run %.1f %%: found in %.1f %%, minimum detectable change %.2f %%\n", betweens[k] * 100.0,
               r.different * 100.0, r.detectable * 100.0);
        if (r.different < 0.90) fail_msg("run-to-run %.3f: found in %.3f only", betweens[k], r.different);
    }
    // With the default floor of 1 % too, the minimum detectable change tells the truth: found with about 90 % power there.
    const double change = 5.6 * 0.005 * sqrt(2.0 / 5.0); // all of A below all of B, as the exact test at 1 % asks
    rates at = trials(300, 300, 5, log(1.0 + change), 0.005, 0.001, 0.0);
    assert_near(at.detectable, change, 0.001);
    printf("at the minimum detectable change: found in %.1f %%\n", at.different * 100.0);
    assert_true(at.different > 0.80 && at.different < 0.99);
}

static mlff_comparison *compare(mlff_profile **a, int n_a, mlff_profile **b, int n_b, double noise_floor)
{
    mlff_comparison *c;
    mlff_comparison_options options = mlff_comparison_options_default();
    options.noise_floor = noise_floor;
    assert_ok(mlff_profile_compare((const mlff_profile *const *)a, n_a, (const mlff_profile *const *)b, n_b, &options, &c));
    return c;
}

static void test_one_run_a_side_is_unclear(void **state)
{
    (void)state;
    int n;
    char *text;
    mlff_profile *a = synthetic_run(7, 0.0, 0.0, 0.001, 0.0), *b = synthetic_run(7, log(1.05), 0.0, 0.001, 0.0);
    mlff_comparison *c = compare(&a, 1, &b, 1, NAN);
    assert_int_equal(mlff_comparison_rows(c, &n)[0].change, MLFF_UNCLEAR);
    assert_int_equal(mlff_comparison_rows(c, &n)[0].runs_needed, 4);
    assert_ok(mlff_comparison_text(c, &text));
    assert_non_null(strstr(text, "UNCLEAR"));
    assert_non_null(strstr(text, "smallest change"));
    mlff_text_free(text);
    mlff_comparison_destroy(c);
    // A measured floor of 1 % and a change of 5 %: blocks of steps are enough to say so.
    c = compare(&a, 1, &b, 1, 0.01);
    assert_int_equal(mlff_comparison_rows(c, &n)[0].change, MLFF_SLOWER);
    mlff_comparison_destroy(c);
    c = compare(&a, 1, &b, 1, 0.06); // but not of one that is less than the floor
    assert_int_equal(mlff_comparison_rows(c, &n)[0].change, MLFF_UNCLEAR);
    mlff_comparison_destroy(c);
    mlff_profile_destroy(a);
    mlff_profile_destroy(b);
}

static void test_four_answers(void **state)
{
    (void)state;
    static const struct {
        double shift, between;
        mlff_change expected;
    } cases[] = {{0.05, 0.002, MLFF_SLOWER},
                 {-0.05, 0.002, MLFF_FASTER},
                 {0.0, 0.001, MLFF_SAME},
                 {0.0, 0.05, MLFF_UNCLEAR},
                 {0.005, 0.0002, MLFF_SAME}}; // the last one is told from zero, but is below the floor
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        mlff_profile *runs[12];
        int n;
        for (int i = 0; i < 12; i++) runs[i] = synthetic_run(40 + k, i < 6 ? 0.0 : cases[k].shift, cases[k].between, 0.001, 0.0);
        mlff_comparison *c = compare(runs, 6, runs + 6, 6, NAN);
        assert_int_equal(mlff_comparison_rows(c, &n)[0].change, cases[k].expected);
        mlff_comparison_destroy(c);
        for (int i = 0; i < 12; i++) mlff_profile_destroy(runs[i]);
    }
}

static void test_what_is_not_comparable(void **state)
{
    (void)state;
    mlff_comparison *c = NULL;
    mlff_profile *a = synthetic_run(7, 0.0, 0.0, 0.001, 0.0), *b = synthetic_run(7, 0.0, 0.0, 0.001, 0.0);
    mlff_comparison_options options = mlff_comparison_options_default();
    const mlff_profile *pa = a, *pb = b;
    assert_ok(environment_add(&a->environment, "cpu", "x"));
    assert_ok(environment_add(&b->environment, "cpu", "y"));
    assert_int_equal(mlff_profile_compare(&pa, 1, &pb, 1, &options, &c), MLFF_ERR_VALUE);
    assert_non_null(strstr(mlff_last_error(), "cpu: x against y"));
    assert_null(c);
    options.across = 1;
    assert_ok(mlff_profile_compare(&pa, 1, &pb, 1, &options, &c));
    char *text;
    assert_ok(mlff_comparison_text(c, &text));
    assert_non_null(strstr(text, "NOT COMPARABLE"));
    mlff_text_free(text);
    assert_ok(mlff_comparison_json(c, &text));
    assert_non_null(strstr(text, "\"verdict\": \"unclear\""));
    mlff_text_free(text);
    mlff_comparison_destroy(c);
    mlff_profile_destroy(a);
    mlff_profile_destroy(b);
}

// Stages: one of three is 10 % slower; it alone is named, and with three runs a side none can be told at all.
static void test_stages(void **state)
{
    (void)state;
    static const mlff_stage stages[] = {{"a", "forward", -1, ""}, {"b", "forward", 0, ""}, {"c", "", -1, ""}};
    for (int n_runs = 3; n_runs <= 5; n_runs += 2) {
        mlff_profile *runs[12];
        int n;
        for (int i = 0; i < 2 * n_runs; i++) {
            runs[i] = synthetic_run(60, 0.0, 0.001, 0.001, 0.0);
            for (int k = 0; k < 3; k++) {
                double ms = (k == 1 && i >= n_runs ? 1.1 : 1.0) * exp(0.002 * normal(61));
                assert_ok(profile_add_stage(runs[i], &stages[k], &(mlff_statistics){.mean = ms, .median = ms, .p95 = ms}));
            }
        }
        mlff_comparison *c = compare(runs, n_runs, runs + n_runs, n_runs, NAN);
        const mlff_comparison_row *rows = mlff_comparison_rows(c, &n);
        assert_int_equal(n, 4);
        assert_string_equal(rows[2].name, "forward/b/0");
        assert_int_equal(rows[2].change, n_runs == 5 ? MLFF_SLOWER : MLFF_UNCLEAR);
        assert_int_equal(rows[2].runs_needed, n_runs == 5 ? 0 : 4);
        assert_true(rows[1].change != MLFF_SLOWER && rows[1].change != MLFF_FASTER);
        mlff_comparison_destroy(c);
        for (int i = 0; i < 2 * n_runs; i++) mlff_profile_destroy(runs[i]);
    }
}

// Of twelve stages that are the same, none is called different in 95 % of comparisons, and one that is 5 % slower is found.
static void test_many_stages(void **state)
{
    (void)state;
    enum { TRIALS = 200, RUNS = 5, STAGES = 12 };
    int n_wrong = 0, n_found = 0;
    for (int t = 0; t < TRIALS; t++) {
        mlff_profile *runs[2 * RUNS];
        bool wrong = false;
        int n;
        for (int i = 0; i < 2 * RUNS; i++) {
            runs[i] = synthetic_run(70, 0.0, 0.003, 0.01, 0.0);
            for (int k = 0; k < STAGES; k++) {
                mlff_stage stage = {"stage", "", k, ""};
                double ms = (k == 0 && i >= RUNS ? 1.05 : 1.0) * exp(0.005 * normal(71));
                assert_ok(profile_add_stage(runs[i], &stage, &(mlff_statistics){.mean = ms, .median = ms, .p95 = ms}));
            }
        }
        mlff_comparison *c = compare(runs, RUNS, runs + RUNS, RUNS, 0.0);
        const mlff_comparison_row *rows = mlff_comparison_rows(c, &n);
        assert_int_equal(n, STAGES + 1);
        n_found += rows[1].change == MLFF_SLOWER;
        for (int k = 2; k < n; k++) wrong = wrong || rows[k].change == MLFF_SLOWER || rows[k].change == MLFF_FASTER;
        n_wrong += wrong;
        mlff_comparison_destroy(c);
        for (int i = 0; i < 2 * RUNS; i++) mlff_profile_destroy(runs[i]);
    }
    printf("12 stages, run-to-run 0.5 %%: one or more wrongly called different in %.1f %%, a 5 %% slower one found in %.1f %%\n",
           100.0 * n_wrong / TRIALS, 100.0 * n_found / TRIALS);
    assert_true(n_wrong <= TRIALS * (0.05 + 2.6 * sqrt(0.05 * 0.95 / TRIALS))); // as above
    assert_true(n_found >= 0.9 * TRIALS);
}

// Student's distribution at values of the tables.
static void test_student(void **state)
{
    (void)state;
    assert_near(student_quantile(0.975, 1.0), 12.706, 1e-3);
    assert_near(student_quantile(0.975, 2.0), 4.303, 1e-3);
    assert_near(student_quantile(0.975, 8.0), 2.306, 1e-3);
    assert_near(student_quantile(0.05, 8.0), -1.860, 1e-3);
    assert_near(student_quantile(0.9, 1e4), 1.2816, 1e-3);
    assert_near(normal_quantile(0.975), 1.959964, 1e-6);
    assert_near(student_below(0.0, 3.0), 0.5, 1e-12);
}

// Pairs of values: where they scatter so that the floor is less than 3.3 standard errors, a difference needs nine pairs and the test
// at 0.5 %, so that less than 1 % of the same is called different by median and mean together; where they hardly do, six are enough.
static void test_noisy_pairs(void **state)
{
    (void)state;
    enum { PAIRS = 40, TRIALS = 1000 };
    double a[PAIRS], b[PAIRS];
    mlff_comparison_row row;
    mlff_comparison_options options = mlff_comparison_options_default();
    options.paired = 1;
    for (int k = 0; k < PAIRS; k++) {
        a[k] = 1.0 + 0.1 * (k % 3);
        b[k] = a[k] * (1.05 + 0.01 * (k % 4));
    }
    assert_ok(mlff_compare_values(a, 8, b, 8, &options, &row)); // every pair says slower: p is 2 / 2^8
    assert_int_equal(row.change, MLFF_UNCLEAR);
    assert_int_equal(row.runs_needed, 9);
    assert_ok(mlff_compare_values(a, 9, b, 9, &options, &row));
    assert_int_equal(row.change, MLFF_SLOWER);
    assert_int_equal(row.runs_needed, 0);
    for (int k = 0; k < PAIRS; k++) b[k] = a[k] * (3.0 + 0.5 * (k % 4)); // no noise doubles all times of one side
    assert_ok(mlff_compare_values(a, 8, b, 8, &options, &row));
    assert_int_equal(row.change, MLFF_SLOWER);
    assert_int_equal(row.runs_needed, 0);
    assert_ok(mlff_compare_values(b, 8, a, 8, &options, &row));
    assert_int_equal(row.change, MLFF_FASTER);
    for (int k = 0; k < PAIRS; k++) b[k] = a[k] * (1.05 + 0.001 * (k % 4));
    assert_ok(mlff_compare_values(a, 6, b, 6, &options, &row));
    assert_int_equal(row.change, MLFF_SLOWER);
    int n_different = 0;
    for (int t = 0; t < TRIALS; t++) {
        for (int k = 0; k < PAIRS; k++) {
            a[k] = exp(0.05 * normal(80));
            b[k] = exp(0.05 * normal(80));
        }
        assert_ok(mlff_compare_values(a, PAIRS, b, PAIRS, &options, &row));
        n_different += row.change == MLFF_SLOWER || row.change == MLFF_FASTER;
    }
    options.struct_size = 0;
    assert_refused(mlff_compare_values(a, PAIRS, b, PAIRS, &options, &row), MLFF_ERR_USAGE, "struct_size");
    options.struct_size = sizeof options + 8;
    assert_refused(mlff_compare_values(a, PAIRS, b, PAIRS, &options, &row), MLFF_ERR_USAGE, "struct_size");
    printf("A/A, 40 pairs that scatter by 5 %%: called different in %.1f %%\n", 100.0 * n_different / TRIALS);
    assert_true(n_different <= TRIALS * (0.005 + 2.6 * sqrt(0.005 * 0.995 / TRIALS)));
}

// Two in a hundred steps take three times as long, in runs of 20 steps and of 2000: the P99 of 20 steps is about their longest, which is mostly
// a usual one, and says nothing.
static void test_tails_of_short_runs(void **state)
{
    (void)state;
    enum { RUNS = 5, SHORT = 20, LONG = 2000 };
    mlff_profile *runs[2 * RUNS];
    mlff_comparison *c;
    int n;
    for (int i = 0; i < 2 * RUNS; i++) {
        const int n_steps = i < RUNS ? SHORT : LONG;
        assert_ok(profile_new(&runs[i]));
        runs[i]->latency_ms = base_alloc((size_t)n_steps, sizeof(double), "steps");
        runs[i]->n_latency = runs[i]->summary.n_steps = n_steps;
        for (int k = 0; k < n_steps; k++) runs[i]->latency_ms[k] = (k + 7 * i + 25) % 50 == 0 ? 3.0 : 1.0 + 0.001 * (k % 7);
        assert_ok(mlff_statistics_of(runs[i]->latency_ms, n_steps, &runs[i]->summary.latency_ms));
    }
    assert_ok(
        mlff_profile_compare((const mlff_profile *const *)runs, RUNS, (const mlff_profile *const *)runs + RUNS, RUNS, NULL, &c));
    const mlff_comparison_row *metrics = mlff_comparison_metrics(c, &n);
    for (int k = 0; k < n; k++)
        if (strcmp(metrics[k].name, "P99") == 0) fail_msg("P99 of 20 steps is judged: %g", metrics[k].ratio);
    assert_int_equal(n, 2); // mean and P95
    mlff_comparison_destroy(c);
    for (int i = 0; i < 2 * RUNS; i++) mlff_profile_destroy(runs[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_code_is_not_called_different),
        cmocka_unit_test(test_small_slowdown_is_found),
        cmocka_unit_test(test_one_run_a_side_is_unclear),
        cmocka_unit_test(test_four_answers),
        cmocka_unit_test(test_what_is_not_comparable),
        cmocka_unit_test(test_stages),
        cmocka_unit_test(test_many_stages),
        cmocka_unit_test(test_student),
        cmocka_unit_test(test_noisy_pairs),
        cmocka_unit_test(test_tails_of_short_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
