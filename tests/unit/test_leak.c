// SPDX-License-Identifier: MIT
// Purpose: the leak verdict on series whose truth is known: the ten kinds it was designed on, ten it was not, and memory that
// follows the work. No kind without a leak may be called one in more than a few per cent; a leak that is not seen must not be
// called stable. Beside it, what "final minus first > 1 %" says of the same series.
#include "measure/measure.h"
#include "unit/near.h"

enum { N = 2000, DRAWS = 60, MIB = 1 << 20 };

typedef struct series_case {
    const char *name;
    int leaks;         // 1: a leak, 0: none
    double at_least;   // of leaks: called one
    double not_stable; // of leaks: called a leak or inconclusive
} series_case;

static double uniform(uint64_t seed, uint64_t stream)
{
    return base_random_uniform(seed, stream, 0);
}

// MiB at sample i of N; `state` carries what wanders.
static double value(int kind, uint64_t seed, int i, double *state)
{
    double noise = base_random_normal(seed, 1, (uint64_t)i), t = (double)i / N, x = 1000.0;
    double at = 0.2 + 0.6 * uniform(seed, 2), at2 = 0.1 + 0.8 * uniform(seed, 3);
    int period = 60 + (int)(200.0 * uniform(seed, 4)), phase = (int)(period * uniform(seed, 5));
    double saw = (double)((i + phase) % period) / period, doubled = 0.0;
    *state = 0.99 * *state + sqrt(1.0 - 0.9801) * noise;
    switch (kind) {
    // the designed-on ones
    case 0: return floor(x + 0.6 * noise);                                                     // flat, quantised
    case 1: return floor(x + 60.0 * (1.0 - exp(-t * 25.0)) + 0.6 * noise);                     // warm-up plateau
    case 2: return floor(x + 40.0 * saw);                                                      // sawtooth
    case 3: return floor(x + 8.0 * *state);                                                    // AR(1) 0.99
    case 4: return floor(x + (t > at ? 32.0 : 0.0) + 0.6 * noise);                             // one step up
    case 5: return floor(x + (base_random_uniform(seed, 6, (uint64_t)i) < 0.02 ? 60.0 : 0.0)); // spikes
    case 6: return floor(x + 12.0 * t + 0.6 * noise);                                          // leak +12
    case 7: return floor(x + 30.0 * t + 40.0 * saw);                                           // leak +30 under a sawtooth of 40
    case 8: return floor(x + 40.0 * t + 8.0 * *state);                                         // leak +40 under AR 0.99 sd 8
    case 9:
        return x + 2.0 * (i / 100); // 2 MiB every 100 steps
    // the fresh ones
    case 10: return floor(x + 20.0 * (t > at) + 20.0 * (t > at2)); // two steps up
    case 11:                                                       // capacity doubles each time a wandering demand passes it
        for (double room = 8.0; room < 64.0 * fmin(1.0, 2.0 * t); room *= 2.0) doubled = room;
        return x + doubled;
    case 12: return floor(x + 30.0 * sin(2.0 * BASE_PI * (t * 3.0 + uniform(seed, 7))) + 0.5 * noise); // slow waves
    case 13: return floor(x - 60.0 * t + 2.0 * noise);                                                 // shrinks
    case 14: return floor(x + 100.0 * (1.0 - exp(-t * 8.0)) + 0.5 * noise); // a cache that fills in a third of the run
    case 15: return floor((x + 0.01 * x * noise) * 16.0) / 16.0;            // 1 % noise
    case 16: return x + 20.0 * t * t + 5.0 * t;                             // leak that speeds up
    case 17: return floor((x + 25.0 * t + 3.0 * noise) * 4.0) / 4.0;        // noisy leak
    case 18: return x + (i / 25) * (base_random_uniform(seed, 8, (uint64_t)(i / 25)) * 0.2 + 0.4); // lumps of any size
    case 19: return 30.0 + 2.0 * t; // small leak in a small process
    default: return x;
    }
}

static const series_case cases[] = {
    {"flat, quantised", 0, 0, 0},
    {"warm-up plateau +60", 0, 0, 0},
    {"sawtooth 40", 0, 0, 0},
    {"AR(1) 0.99", 0, 0, 0},
    {"one step up +32", 0, 0, 0},
    {"spikes", 0, 0, 0},
    {"leak +12", 1, 0.98, 1},
    {"leak +30 under sawtooth", 1, 0.4, 0.9},
    {"leak +40 under AR 0.99", 1, 0.4, 0.85},
    {"leak 2 MiB per 100", 1, 0.98, 1},
    {"two steps up", 0, 0, 0},
    {"capacity doubling", 0, 0, 0},
    {"slow waves", 0, 0, 0},
    {"shrinking", 0, 0, 0},
    {"slow cache", 0, 0, 0},
    {"1 % noise", 0, 0, 0},
    {"leak that speeds up", 1, 0.98, 1},
    {"noisy leak", 1, 0.95, 1},
    {"leak in lumps", 1, 0.9, 1},
    {"small leak", 1, 0.98, 1},
};

static void test_table(void **state)
{
    (void)state;
    static double bytes[N];
    printf("%-26s %8s %14s %8s %9s\n", "series", "recipe", "inconclusive", "stable", "final>1 %");
    for (int kind = 0; kind < (int)(sizeof cases / sizeof *cases); kind++) {
        int counts[N_LEAK_KINDS] = {0}, naive = 0;
        for (uint64_t draw = 0; draw < DRAWS; draw++) {
            uint64_t seed = 7000 + 100 * (uint64_t)kind + draw;
            double wander = base_random_normal(seed, 9, 0);
            for (int i = 0; i < N; i++) bytes[i] = value(kind, seed, i, &wander) * MIB;
            counts[leak_judge(bytes, N).kind]++;
            naive += bytes[N - 1] > 1.01 * bytes[0];
        }
        const series_case *c = &cases[kind];
        printf("%-26s %6.0f %% %12.0f %% %6.0f %% %7.0f %%\n", c->name, 100.0 * counts[LEAK_GROWING] / DRAWS,
               100.0 * counts[LEAK_INCONCLUSIVE] / DRAWS, 100.0 * counts[LEAK_STABLE] / DRAWS, 100.0 * naive / DRAWS);
        double called = (double)counts[LEAK_GROWING] / DRAWS, doubted = called + (double)counts[LEAK_INCONCLUSIVE] / DRAWS;
        if (!c->leaks && called > 0.034) fail_msg("%s: called a leak in %.2f", c->name, called); // two of sixty
        if (c->leaks && called < c->at_least) fail_msg("%s: called a leak in %.2f only", c->name, called);
        if (c->leaks && doubted < c->not_stable) fail_msg("%s: passes as no leak in %.2f", c->name, 1.0 - doubted);
    }
}

// Pairs that grow by a tenth as a system densifies; memory follows them, follows and leaks, or leaks beside steady pairs.
static void test_physics(void **state)
{
    (void)state;
    enum { FOLLOWS, FOLLOWS_IN_STEPS, LEAKS_TOO, LEAKS_BESIDE, N_WAYS };
    static const char *const names[] = {"follows pairs", "follows in steps", "follows and leaks", "leaks beside steady pairs"};
    static double bytes[N], pairs[N], atoms[N];
    const double *const work[] = {atoms, pairs};
    for (int way = 0; way < N_WAYS; way++) {
        int explained = 0, growing = 0;
        for (uint64_t draw = 0; draw < DRAWS; draw++) {
            double capacity = 0.0;
            for (int i = 0; i < N; i++) {
                double t = (double)i / N, grows = way == LEAKS_BESIDE ? 0.0 : 8000.0 * t;
                pairs[i] = floor(80000.0 + grows + 300.0 * base_random_normal(4000 + draw, 1, (uint64_t)i));
                atoms[i] = 1000.0;
                if (pairs[i] > capacity) capacity = pairs[i] * 1.02;
                bytes[i] = 200.0 * MIB + (way == FOLLOWS_IN_STEPS ? capacity : pairs[i]) * 2000.0 +
                           (way >= LEAKS_TOO ? 25.0 * MIB * t * (way == LEAKS_TOO ? 1.0 + t : 1.0) : 0.0);
            }
            leak_verdict v = leak_judge_physics(bytes, work, 2, N);
            explained += v.kind == LEAK_EXPLAINED;
            growing += v.kind == LEAK_GROWING;
            if (way == FOLLOWS && v.kind == LEAK_EXPLAINED) {
                assert_int_equal(v.explained_by, 1);
                assert_near(v.bytes_per_unit, 2000.0, 1.0);
            }
        }
        printf("%s: explained %d, leak %d of %d\n", names[way], explained, growing, DRAWS);
        if (way == FOLLOWS || way == FOLLOWS_IN_STEPS) assert_true(growing <= 2);
        if (way == FOLLOWS) assert_true(explained >= DRAWS * 95 / 100);
        if (way == LEAKS_BESIDE) assert_true(growing >= DRAWS * 95 / 100);
        if (way == LEAKS_TOO) assert_true(growing >= DRAWS / 2); // it trends with the work: told by what is left of it
    }
}

static void test_slope(void **state)
{
    (void)state;
    static double bytes[N];
    int covered = 0, below = 0;
    for (uint64_t draw = 0; draw < DRAWS; draw++) {
        for (int i = 0; i < N; i++) bytes[i] = 1e9 + 8192.0 * i + 65536.0 * base_random_normal(9000 + draw, 1, (uint64_t)i);
        leak_verdict v = leak_judge(bytes, N);
        assert_int_equal(v.kind, LEAK_GROWING);
        covered += v.low <= 8192.0 && 8192.0 <= v.high;
        for (int i = 0; i < N; i++) bytes[i] += (1.5 * v.detectable - 8192.0) * i;
        below += leak_judge(bytes, N).kind == LEAK_GROWING; // half more than the smallest slope that shows: it shows
    }
    printf("slope's interval holds the truth in %d of %d; 1.5 × detectable is seen in %d\n", covered, DRAWS, below);
    assert_true(covered >= DRAWS * 85 / 100);
    assert_true(below >= DRAWS * 9 / 10);
}

// What is said to show in a stable series does when it is planted there: always without noise, in nine of ten with it.
static void test_detectable(void **state)
{
    (void)state;
    static const double noises[] = {0.0, 1e5, 1e6};
    static double bytes[N];
    for (size_t k = 0; k < sizeof noises / sizeof *noises; k++) {
        int n_stable = 0, n_seen = 0;
        for (uint64_t draw = 0; draw < DRAWS; draw++) {
            for (int i = 0; i < N; i++) bytes[i] = 1e8 + noises[k] * base_random_normal(700 + draw, 2, (uint64_t)i);
            const leak_verdict v = leak_judge(bytes, N);
            if (v.kind != LEAK_STABLE) continue;
            n_stable++;
            for (int i = 0; i < N; i++) bytes[i] += v.detectable * i;
            const leak_kind kind = leak_judge(bytes, N).kind;
            n_seen += kind == LEAK_GROWING || kind == LEAK_INCONCLUSIVE;
        }
        printf("noise %g B: the smallest leak that would show shows in %d of %d\n", noises[k], n_seen, n_stable);
        assert_true(n_seen * 100 >= n_stable * (noises[k] > 0.0 ? 85 : 100));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_table), cmocka_unit_test(test_physics), cmocka_unit_test(test_slope),
                                       cmocka_unit_test(test_detectable)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
