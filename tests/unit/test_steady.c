// SPDX-License-Identifier: MIT
// Purpose: runs of known kind are told apart (flat, warm-up, slowdown, cyclic, none), and intervals of percentiles hold the
// true percentile as often as they promise, with and without autocorrelation.
#include "measure/measure.h"
#include "unit/near.h"

enum { N = 2000, DRAWS = 40 };
typedef enum run_kind {
    FLAT,
    CORRELATED,
    SPIKES,
    REBUILDS,
    WARM_UP,
    WARM_UP_SLOWLY,
    SLOWER,
    DRIFT,
    WAVES,
    WALK,
    N_KINDS
} run_kind;
static const char *const names[] = {"flat",        "correlated", "spikes", "rebuilds every 20", "warm-up", "slow warm-up",
                                    "one step up", "drift",      "waves",  "random walk"};
static const char *const kind_names[] = {"unknown", "flat", "warm-up", "slowdown", "cyclic", "none"};

static void generate(run_kind kind, uint64_t seed, double *values, int64_t *change_at)
{
    double x = 0.0, walk = 0.0;
    int64_t at = 100 + (int64_t)(600.0 * base_random_uniform(seed, 50, 0));
    *change_at = kind == WARM_UP || kind == SLOWER ? at : 0;
    for (int i = 0; i < N; i++) {
        double noise = base_random_normal(seed, (uint64_t)kind, (uint64_t)i), level = 0.0,
               u = base_random_uniform(seed, 77, (uint64_t)i);
        x = 0.9 * x + sqrt(1.0 - 0.81) * noise;
        walk += 0.01 * noise;
        switch (kind) {
        case FLAT: level = 0.02 * noise; break;
        case CORRELATED: level = 0.02 * x; break;
        case SPIKES: level = 0.02 * noise + (u < 0.02 ? 2.0 * u / 0.02 : 0.0); break;
        case REBUILDS: level = 0.02 * noise + (i % 20 == 0 ? 0.7 : 0.0); break;
        case WARM_UP: level = 0.02 * noise + (i < at ? 0.3 : 0.0); break;
        case WARM_UP_SLOWLY: level = 0.02 * noise + 0.5 * exp(-i / 120.0); break;
        case SLOWER: level = 0.02 * noise + (i < at ? 0.0 : 0.2); break;
        case DRIFT: level = 0.02 * noise + 0.5 * i / N; break;
        case WAVES: level = 0.02 * noise + (i / 200 % 2 ? 0.3 : 0.0); break;
        case WALK: level = walk; break;
        case N_KINDS: break;
        }
        values[i] = 4e5 * exp(level);
    }
}

static void test_kinds(void **state)
{
    (void)state;
    static const steady_kind expected[] = {STEADY_FLAT,    STEADY_FLAT,     STEADY_FLAT,     STEADY_FLAT,   STEADY_WARM_UP,
                                           STEADY_WARM_UP, STEADY_SLOWDOWN, STEADY_SLOWDOWN, STEADY_CYCLIC, STEADY_NONE};
    double values[N];
    for (int kind = 0; kind < N_KINDS; kind++) {
        int counts[6] = {0};
        int64_t at, worst = 0;
        for (uint64_t draw = 0; draw < DRAWS; draw++) {
            generate((run_kind)kind, 500 + draw, values, &at);
            steady_state s = steady_find(values, N);
            counts[s.kind]++;
            if (at > 0 && s.kind == expected[kind] && llabs(s.first - at) > worst) worst = llabs(s.first - at);
        }
        printf("%s:", names[kind]);
        for (int k = 0; k < 6; k++)
            if (counts[k]) printf(" %s %d", kind_names[k], counts[k]);
        printf(" of %d; change found within %lld steps\n", DRAWS, (long long)worst);
        if (kind == WALK) // over so few correlation times a walk is sometimes taken for slow noise around one level
            assert_true(counts[STEADY_FLAT] <= DRAWS / 2);
        else if (counts[expected[kind]] < DRAWS * 9 / 10)
            fail_msg("%s: too few", names[kind]);
        assert_true(worst <= 30); // three blocks
    }
    assert_int_equal(steady_find(values, STEADY_MIN - 1).kind, STEADY_UNKNOWN);
    for (int i = 0; i < N; i++) values[i] = 0.0; // a clock that does not move
    assert_int_equal(steady_find(values, N).kind, STEADY_FLAT);
}

// A drift grows in every eighth of a run. Jumps, warm-ups and noise do not; a random walk seldom does, and a noise of a few
// percent by less than the 5 % from which on a report tells it.
static void test_rise(void **state)
{
    (void)state;
    enum { TRIALS = 400 };
    double values[N];
    for (int kind = 0; kind < N_KINDS; kind++) {
        int64_t at;
        int n_told = 0;
        for (uint64_t trial = 0; trial < TRIALS; trial++) {
            generate((run_kind)kind, 9000 + trial, values, &at);
            n_told += steady_find(values, N).rise >= 0.05;
        }
        printf("%s: %d of %d are told to rise\n", names[kind], n_told, TRIALS);
        if (kind == DRIFT) assert_int_equal(n_told, TRIALS);
        if (kind == WALK)
            assert_true(n_told <= TRIALS / 50); // seven rises in a row have a chance of 1/128, more where it is a trend
        if (kind != DRIFT && kind != WALK) assert_int_equal(n_told, 0);
    }
    for (int i = 0; i < N; i++) values[i] = 1.0 + 0.5 * i / N;
    double first = 1.0 + 0.5 / 32.0, last = 1.0 + 0.5 * 29.0 / 32.0; // lower quartiles of the eighths
    assert_near(steady_rise(values, N), last / first - 1.0, 1e-3);
    // Another program slows down two of three steps in the first and in the fourth eighth.
    for (int i = 0; i < N; i++) values[i] = 1.0 + 0.9 * i / N + (i % 3 != 0 && (i < N / 8 || i / (N / 8) == 3) ? 0.5 : 0.0);
    assert_true(steady_rise(values, N) > 0.5);
    assert_true(steady_rise(values, STEADY_MIN - 1) == 0.0);
}

static void test_coverage(void **state)
{
    (void)state;
    enum { TRIALS = 400, STEPS = 1000 };
    static const double fractions[] = {0.5, 0.95, 0.99}, normal[] = {0.0, 1.6448536, 2.3263479};
    double values[STEPS];
    for (int correlated = 0; correlated < 2; correlated++) {
        double phi = correlated ? 0.8 : 0.0;
        for (int k = 0; k < 3; k++) {
            int covered = 0, bounded = 0;
            double effective = 0.0;
            for (uint64_t trial = 0; trial < TRIALS; trial++) {
                double x = base_random_normal(trial, 9, 1000000);
                for (int i = 0; i < STEPS; i++) {
                    x = phi * x + sqrt(1.0 - phi * phi) * base_random_normal(trial, 9, (uint64_t)i);
                    values[i] = exp(0.1 * x);
                }
                percentile_bounds b;
                assert_ok(percentile_interval(values, STEPS, fractions[k], &b));
                double truth = exp(0.1 * normal[k]);
                bounded += isfinite(b.high);
                covered += !(b.low > truth) && !(b.high < truth);
                effective += b.n_effective / TRIALS;
            }
            printf("P%g, phi %.1f: holds the truth in %.1f %%, upper bound in %.1f %%, %.0f of %d steps count\n",
                   fractions[k] * 100.0, phi, 100.0 * covered / TRIALS, 100.0 * bounded / TRIALS, effective, STEPS);
            // 95 % promised; the autocorrelation is estimated, which costs a few per cent.
            assert_true(covered >= TRIALS * (correlated ? 0.90 : 0.93));
            if (!correlated) assert_true(bounded == TRIALS && effective > 0.85 * STEPS);
            if (correlated && k == 0) assert_true(effective < 0.35 * STEPS); // (1 - phi)/(1 + phi) of them, about
        }
    }
}

static void test_too_few(void **state)
{
    (void)state;
    double values[400];
    percentile_bounds b;
    for (int i = 0; i < 400; i++) values[i] = 1.0 + base_random_uniform(3, 3, (uint64_t)i);
    assert_ok(percentile_interval(values, 100, 0.99, &b));
    assert_true(isnan(b.high));
    assert_true(b.n_needed >= 299);
    assert_ok(percentile_interval(values, 0, 0.5, &b));
    assert_true(isnan(b.value));
    assert_ok(percentile_interval(values, 1, 0.5, &b));
    assert_near(b.value, values[0], 0);
    assert_ok(percentile_interval(values, 400, 0.99, &b));
    if (b.n_effective >= 299) assert_true(isfinite(b.high));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kinds), cmocka_unit_test(test_rise), cmocka_unit_test(test_coverage),
                                       cmocka_unit_test(test_too_few)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
