// SPDX-License-Identifier: MIT
// Purpose: what is read off profiles of several sizes (exponent, floor, price of an atom, memory) is what was planted, and
// Amdahl's forecast is his arithmetic.
#include "device/cpu.h"
#include "profile/profile.h"
#include "unit/near.h"

static mlff_profile *of_size(int n_atoms, double ms, double gb)
{
    mlff_profile *profile;
    assert_ok(profile_new(&profile));
    profile->summary.n_atoms = n_atoms;
    profile->summary.latency_ms.median = profile->summary.latency_ms.mean = ms;
    profile->summary.memory_peak_gb = gb;
    assert_ok(profile_set(&profile->device, "cpu"));
    profile->available_bytes = (int64_t)1 << 30;
    return profile;
}

static const int sizes[] = {16, 32, 64, 128, 256, 512, 1024, 2048, 4096};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

static mlff_scaling scaling_of(double floor_ms, double us, double power, double noise, uint64_t seed)
{
    mlff_profile *profiles[N_SIZES];
    mlff_scaling s;
    for (int i = 0; i < N_SIZES; i++) {
        double ms = fmax(floor_ms, us * 1e-3 * pow(sizes[i], power));
        ms *= exp(noise * base_random_normal(seed, 0, (uint64_t)i));
        profiles[i] = of_size(sizes[i], ms, 0.1 + sizes[i] * 50e3 / 1073741824.0);
    }
    assert_ok(mlff_profile_scaling((const mlff_profile *const *)profiles, N_SIZES, &s));
    for (int i = 0; i < N_SIZES; i++) mlff_profile_destroy(profiles[i]);
    return s;
}

static void test_scaling(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        mlff_scaling s = scaling_of(2.0, 10.0, 1.0, 0.02, seed); // a floor up to 200 atoms
        assert_near(s.floor_ms, 2.0, 0.08);
        assert_near(s.b_us, 10.0, 0.6);
        assert_near(s.crossover_atoms, 200.0, 30.0);
        assert_near(s.exponent, 1.0, 0.06);
        assert_true(s.exponent_low < 1.0 + 0.03 && s.exponent_high > 1.0 - 0.03);
        assert_near(s.bytes_per_atom, 50e3, 1.0);
        assert_near(s.max_atoms, 4096 + 1073741824.0 / 50e3, 2.0);
        s = scaling_of(0.0, 10.0, 1.0, 0.02, seed);
        assert_near(s.crossover_atoms, 0.0, 0);
        assert_near(s.b_us, 10.0, 0.6);
        s = scaling_of(0.0, 0.01, 2.0, 0.02, seed);
        assert_near(s.exponent, 2.0, 0.06);
    }
    mlff_profile *one[2] = {of_size(64, 1.0, 0.1), of_size(64, 1.1, 0.1)};
    mlff_scaling s;
    assert_int_equal(mlff_profile_scaling((const mlff_profile *const *)one, 2, &s), MLFF_ERR_VALUE);
    mlff_profile_destroy(one[0]);
    mlff_profile_destroy(one[1]);
}

static mlff_scaling scaling_of_times(const double *ms, int n)
{
    mlff_profile *profiles[N_SIZES] = {NULL};
    mlff_scaling s;
    for (int i = 0; i < n; i++) profiles[i] = of_size(sizes[i], ms[i], 0.1);
    assert_ok(mlff_profile_scaling((const mlff_profile *const *)profiles, n, &s));
    for (int i = 0; i < n; i++) mlff_profile_destroy(profiles[i]);
    return s;
}

// Small systems on a GPU take the same time, and by chance the larger ones less.
static void test_steps_that_do_not_grow(void **state)
{
    (void)state;
    static const double falling[] = {1.0, 0.98, 0.97, 0.95}, level[] = {1, 1.2, 1, 1.2, 1.8, 3.6, 7.2, 14.4, 28.8};
    mlff_scaling s = scaling_of_times(falling, 4);
    assert_near(s.floor_ms, pow(1.0 * 0.98 * 0.97 * 0.95, 0.25), 1e-12);
    assert_true(s.a_ms == 0 && s.b_us == 0 && s.crossover_atoms == 0);
    assert_near(s.fit_error, 0.0183, 1e-3); // of logarithms: sqrt(mean of squares)
    char *text;
    assert_ok(mlff_scaling_text(&s, &text));
    assert_non_null(strstr(text, "step = 974.8 µs, which does not grow with the number of atoms at these sizes; measure larger"));
    assert_null(strstr(text, "inf"));
    mlff_text_free(text);
    // The error is that of the fit: four of nine times are off the floor by log(1.2) / 2.
    s = scaling_of_times(level, 9);
    assert_near(s.floor_ms, sqrt(1.2), 1e-9);
    assert_near(s.fit_error, 0.5 * log(1.2) * sqrt(4.0 / 9), 1e-9);
}

// Repeated sizes count once; every profile counts, and the memory that is left is that beside the largest system.
static void test_sizes_that_repeat(void **state)
{
    (void)state;
    enum { SMALL = 300, N_ALL = SMALL + 5 };
    mlff_profile *profiles[N_ALL];
    mlff_scaling s;
    char *text;
    for (int i = 0; i < N_ALL; i++) {
        const int n_atoms = i < SMALL ? 16 : 32 << (i - SMALL); // 16, then 32 … 512
        profiles[i] = of_size(n_atoms, 1e-2 * n_atoms, 0.1 + n_atoms * 50e3 / 1073741824.0);
        if (n_atoms == 16) profiles[i]->available_bytes = (int64_t)1 << 40;
    }
    mlff_profile *first = profiles[0];
    profiles[0] = profiles[N_ALL - 1]; // the order says nothing
    profiles[N_ALL - 1] = first;
    assert_ok(mlff_profile_scaling((const mlff_profile *const *)profiles, N_ALL, &s));
    assert_int_equal(s.n_sizes, 6);
    assert_near(s.exponent, 1.0, 1e-9);
    assert_near(s.exponent_high, 1.0, 1e-6); // exact times: the interval is rounding
    assert_near(s.max_atoms, 512 + 1073741824.0 / 50e3, 2.0);
    assert_ok(mlff_scaling_text(&s, &text));
    assert_non_null(strstr(text, "at 95 %) among the larger systems\n"));
    mlff_text_free(text);

    assert_ok(mlff_profile_scaling((const mlff_profile *const *)profiles + SMALL - 1, 3, &s)); // 16, 32, 64
    assert_int_equal(s.n_sizes, 3);
    assert_ok(mlff_scaling_text(&s, &text));
    assert_null(strstr(text, "larger systems"));
    mlff_text_free(text);
    for (int i = 0; i < N_ALL; i++) mlff_profile_destroy(profiles[i]);
}

// Molecules of water: 24 and 48 atoms differ by 0.17 MB, which is no price of an atom (it is 52 kB), nor says how many fit.
static void test_memory_of_small_sizes(void **state)
{
    (void)state;
    mlff_profile *profiles[2] = {of_size(24, 1.0, 16.25 / 1024), of_size(48, 2.0, 16.42 / 1024)};
    mlff_scaling s;
    char *text;
    for (int i = 0; i < 2; i++) profiles[i]->available_bytes = (int64_t)24 << 30;
    assert_ok(mlff_profile_scaling((const mlff_profile *const *)profiles, 2, &s));
    assert_true(isnan(s.bytes_per_atom) && s.max_atoms < 0);
    assert_ok(mlff_scaling_text(&s, &text));
    assert_non_null(strstr(text, "memory: does not follow the number of atoms at these sizes; measure larger ones"));
    mlff_text_free(text);
    for (int i = 0; i < 2; i++) mlff_profile_destroy(profiles[i]);
}

static void test_what_if(void **state)
{
    (void)state;
    static const struct {
        mlff_stage stage;
        double ms;
    } rows[] = {{{"message", "forward", 0, ""}, 3.0},
                {{"message", "backward", 0, ""}, 4.0},
                {{"readout", "forward", -1, ""}, 1.0},
                {{"unattributed", "", -1, ""}, 2.0}};
    mlff_profile *profile = of_size(64, 10.0, 0.1);
    for (int k = 0; k < 4; k++)
        assert_ok(profile_add_stage(profile, &rows[k].stage, &(mlff_statistics){.mean = rows[k].ms, .median = rows[k].ms}));
    static const struct {
        const char *changes;
        double ms;
    } cases[] = {{"message=2x", 6.5},
                 {"message=2x,readout=0", 5.5},
                 {"forward/message=3x", 8.0},
                 {"backward/message/0=0", 6.0},
                 {"backward=4x,readout=0x", 0},
                 {"message=0.5x", 17.0},
                 {"message", 0},
                 {"nothing=2x", 0},
                 {"message=-1x", 0},
                 {"message=2", 0},
                 {"=2x", 0},
                 {"message=2x,message=3x", 0},
                 {"message=nanx", 0}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        char *text = NULL;
        double ms = 0.0;
        mlff_status status = mlff_profile_what_if(profile, cases[k].changes, &ms, &text);
        if (cases[k].ms > 0.0) {
            assert_ok(status);
            assert_near(ms, cases[k].ms, 1e-9);
            assert_non_null(strstr(text, "a step would take"));
        } else {
            if (status != MLFF_ERR_USAGE) fail_msg("'%s' is taken", cases[k].changes);
        }
        mlff_text_free(text);
    }
    mlff_profile_destroy(profile);
}

// A list is checked against the stages before anything is measured.
static void test_what_if_check(void **state)
{
    (void)state;
    static const mlff_stage stages[] = {
        {"message", "forward", 0, ""}, {"message", "backward", 0, ""}, {"readout", "forward", -1, ""}};
    mlff_callable callable = {.struct_size = sizeof callable, .n_stages = 3, .stages = stages};
    static const char *const good[] = {"message=2x", "backward/message=2x,readout=0", "forward/message/0=3x", "forward=2x",
                                       "integrate=2x"};
    static const char *const bad[] = {"mesage=2x", "message=2", "energy=2x", "message/0=2x", "readout=2x,nothing=0"};
    for (size_t k = 0; k < sizeof good / sizeof *good; k++) assert_ok(mlff_profile_what_if_check(&callable, good[k]));
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++)
        if (mlff_profile_what_if_check(&callable, bad[k]) != MLFF_ERR_USAGE) fail_msg("'%s' is accepted", bad[k]);
    callable.n_stages = 0; // a black box: the parts that are measured apart
    assert_ok(mlff_profile_what_if_check(&callable, "forces=2x"));
    assert_int_equal(mlff_profile_what_if_check(&callable, "message=2x"), MLFF_ERR_USAGE);
}

// A forecast says how far it may be off: of runs of 400 steps, one of whose two stages of 3 ± 0.3 ms would be twice as fast, the
// interval holds the truth as often as it says.
static void test_what_if_interval(void **state)
{
    (void)state;
    enum { STEPS = 400, DRAWS = 300 };
    static const mlff_stage stages[] = {{"a", "", -1, ""}, {"b", "", -1, ""}};
    int n_holds = 0;
    uint64_t draw = 0;
    for (int d = 0; d < DRAWS; d++) {
        mlff_profile *profile = of_size(64, 6.0, 0.1);
        char *text;
        double sum = 0.0, ms, low, high;
        profile->latency_ms = base_alloc(STEPS, sizeof(double), "steps");
        profile->n_latency = STEPS;
        for (int k = 0; k < 2; k++) assert_ok(profile_add_stage(profile, &stages[k], &(mlff_statistics){.mean = 3.0}));
        assert_ok(mlff_profile_what_if(profile, "a=2x", &ms, &text)); // parts of the run are not known
        assert_null(strstr(text, "at 95 %"));
        mlff_text_free(text);
        profile->stages[0].n_blocks = profile->stages[1].n_blocks = STAGE_BLOCKS;
        for (int i = 0; i < STEPS; i++) {
            double a = 3.0 + 0.3 * base_random_normal(9, 0, draw++), b = 3.0 + 0.3 * base_random_normal(9, 0, draw++);
            profile->latency_ms[i] = a + b;
            profile->stages[0].blocks_ms[i / (STEPS / STAGE_BLOCKS)] += a / (STEPS / STAGE_BLOCKS);
            profile->stages[1].blocks_ms[i / (STEPS / STAGE_BLOCKS)] += b / (STEPS / STAGE_BLOCKS);
            sum += a + b;
        }
        profile->summary.latency_ms.mean = sum / STEPS;
        assert_ok(mlff_profile_what_if(profile, "a=2x", &ms, &text));
        const char *interval = strchr(strstr(text, "as fast ("), '(');
        assert_int_equal(sscanf(interval, "(%lf ms to %lf ms", &low, &high), 2);
        n_holds += low <= 4.5 && 4.5 <= high;
        mlff_text_free(text);
        mlff_profile_destroy(profile);
    }
    printf("what-if: the interval holds the truth in %.1f %%\n", 100.0 * n_holds / DRAWS);
    assert_true(n_holds >= DRAWS * (0.95 - 2.6 * sqrt(0.05 * 0.95 / DRAWS))); // 2.6 binomial errors are passed in 0.5 %
}

// Other programs took parts of the run, outside of the stage that is to be faster: the gain that is printed lies in its interval.
static void test_gain_of_an_uneven_run(void **state)
{
    (void)state;
    static const mlff_stage stages[] = {{"a", "", -1, ""}, {"b", "", -1, ""}};
    mlff_profile *profile = of_size(64, (30 * 8.0 + 10 * 24.0) / 40, 0.1);
    char *text;
    double ms, gain, low, high;
    profile->latency_ms = base_alloc(STAGE_BLOCKS, sizeof(double), "steps");
    profile->n_latency = STAGE_BLOCKS;
    for (int k = 0; k < 2; k++) assert_ok(profile_add_stage(profile, &stages[k], &(mlff_statistics){.mean = 6.0}));
    profile->stages[0].n_blocks = profile->stages[1].n_blocks = STAGE_BLOCKS;
    for (int i = 0; i < STAGE_BLOCKS; i++) {
        profile->latency_ms[i] = i % 4 == 2 ? 24.0 : 8.0;
        profile->stages[0].blocks_ms[i] = 6.0;
    }
    assert_ok(mlff_profile_what_if(profile, "a=0", &ms, &text));
    const char *place = strstr(text, "ms, ");
    assert_int_equal(sscanf(place, "ms, %lf", &gain), 1);
    const char *interval = strchr(place, '(');
    assert_non_null(interval);
    assert_int_equal(sscanf(strstr(interval, "ms, "), "ms, %lf to %lf", &low, &high), 2);
    if (!(low <= gain && gain <= high)) fail_msg("%s", text);
    mlff_text_free(text);
    mlff_profile_destroy(profile);
}

// Work as a force field states it: the index of the stage tells what is expected of it.
static int stated_work(void *context, int stage, const mlff_work_size *size, mlff_stage_work *work_out)
{
    (void)context;
    *work_out = (mlff_stage_work){100.0 * size->n_pairs, 4.0 * size->n_atoms, 64.0};
    if (stage == 1) *work_out = (mlff_stage_work){1.0, 8e9, 8e9}; // memory-bound
    return stage != 2;
}

// The rate of a set between two measured sizes is that of the smaller one: a set is not read faster than a smaller one, so that
// the bound stays below every time.
static void test_rate_of_a_working_set(void **state)
{
    (void)state;
    const ceilings c = {.n_threads = 2, .level_bytes = {1e3, 1e4, 1e5, 1e6, 1e7}, .bytes_a_ns = {50, 40, 30, 20, 10}};
    const double sets[] = {0, 500, 2e3, 1.9e4, 2e4, 1.9e6, 2e6, 1e9}, rates[] = {50, 50, 50, 50, 40, 30, 20, 10};
    for (int k = 0; k < 8; k++)
        if (ceilings_bytes_a_ns(&c, sets[k]) != rates[k])
            fail_msg("%g bytes: %g, expected %g", sets[k], ceilings_bytes_a_ns(&c, sets[k]), rates[k]);
}

// Bounds from stated work: that work over the ceiling, whichever is slower.
static void test_bounds(void **state)
{
    (void)state;
    static const mlff_stage stages[] = {
        {"message", "forward", 0, ""}, {"copy", "forward", -1, ""}, {"neighbors", "forward", -1, ""}};
    const mlff_callable callable = {.n_stages = 3, .stages = stages, .stage_work = stated_work};
    mlff_profile *profile = of_size(10, 1.0, 0.1);
    profile->stages_measured = true;
    profile->summary.mean_pairs = 100.0;
    for (int k = 0; k < 3; k++) assert_ok(profile_add_stage(profile, &stages[k], &(mlff_statistics){.mean = 1e6, .median = 1e6}));
    assert_ok(bounds_derive(profile, &callable, 0, CEILING_VECTORS)); // on a device without ceilings: the work alone
    const profile_stage *rows = profile->stages;
    assert_near(rows[0].flops, 10000.0, 0);
    assert_near(rows[0].bytes, 40.0, 0);
    assert_near(rows[0].bound_ms, 0.0, 0);
    assert_ok(bounds_derive(profile, &callable, 1, CEILING_VECTORS));
    assert_near(rows[2].flops, 0.0, 0); // not described
    assert_near(rows[2].bound_ms, 0.0, 0);
    const ceilings *c = &profile->ceilings;
    printf("%.4g Gflop/s, %.3g to %.3g GB/s\n", c->flops_a_ns, c->bytes_a_ns[0], c->bytes_a_ns[CEILING_LEVELS - 1]);
    assert_true(c->flops_a_ns > 0.1 && c->flops_a_ns < 1e5);
    for (int k = 0; k < CEILING_LEVELS; k++) assert_true(c->bytes_a_ns[k] > 0.05 && c->bytes_a_ns[k] < 1e5);
    assert_near(rows[0].bound_ms, 10000.0 / c->flops_a_ns * 1e-6, 1e-15);
    assert_false(rows[0].bound_by_memory);
    assert_near(rows[1].bound_ms, 8e9 / c->bytes_a_ns[CEILING_LEVELS - 1] * 1e-6, 1e-9);
    assert_true(rows[1].bound_by_memory);
    assert_false(profile->notes && *profile->notes);
    // A stage that was faster than its bound shows that the ceilings are too low: none is compared, and it is said.
    profile->stages[1].shown.median_ms = 0.9 * rows[1].bound_ms;
    assert_ok(bounds_derive(profile, &callable, 1, CEILING_VECTORS));
    for (int k = 0; k < 3; k++) assert_near(rows[k].bound_ms, 0.0, 0);
    assert_non_null(strstr(profile->notes, "not compared with this machine's limits: forward/copy was faster"));
    mlff_profile_destroy(profile);
}

// Where matrices are multiplied in bfloat16, the faster unit bounds the arithmetic, and weights have half of the bytes.
static void test_bounds_of_products(void **state)
{
    (void)state;
    static const mlff_stage stages[] = {{"message", "forward", 0, ""}, {"copy", "forward", -1, ""}};
    const mlff_callable callable = {.n_stages = 2, .stages = stages, .stage_work = stated_work};
    if (!cpu_has_bfloat16()) {
        printf("skipped: no AVX512-BF16\n");
        skip();
    }
    mlff_profile *profile = of_size(10, 1.0, 0.1);
    profile->stages_measured = true;
    profile->summary.mean_pairs = 100.0;
    for (int k = 0; k < 2; k++) assert_ok(profile_add_stage(profile, &stages[k], &(mlff_statistics){.mean = 1e6, .median = 1e6}));
    assert_ok(bounds_derive(profile, &callable, 1, CEILING_BF16_DOTS));
    const ceilings *c = &profile->ceilings;
    printf("%.4g Gflop/s by vectors, %.4g in bfloat16\n", c->flops_a_ns, c->product_flops_a_ns);
    assert_int_equal(c->products, CEILING_BF16_DOTS);
    // Half the rate of float32 (Sapphire Rapids) to twice as much (Zen 4); beside other work 15 times as much in one run. A wrong unit is a
    // factor of 1000.
    assert_true(c->product_flops_a_ns > 0.01 * c->flops_a_ns && c->product_flops_a_ns < 100 * c->flops_a_ns);
    assert_near(profile->stages[0].bound_ms, 10000.0 / fmax(c->flops_a_ns, c->product_flops_a_ns) * 1e-6, 1e-15);
    assert_near(profile->stages[1].bound_ms, 4e9 / c->bytes_a_ns[CEILING_LEVELS - 1] * 1e-6, 1e-9);
    const ceilings faster = {.flops_a_ns = 2, .product_flops_a_ns = 3}, slower = {.flops_a_ns = 2, .product_flops_a_ns = 1};
    assert_near(ceilings_flops_a_ns(&faster), 3, 0);
    assert_near(ceilings_flops_a_ns(&slower), 2, 0);
    mlff_profile_destroy(profile);
}

// The advice says that a stage is bound by a limit only where its share of this limit was measured and is a half at least. Two layers of
// one stage, of which the shares are of their sum; the smaller limit of mixed layers does not count for the larger one.
static void test_advice_claims_measured_limits(void **state)
{
    (void)state;
    static const struct {
        double bound_ms[2];
        bool by_memory[2];
        const char *told;
    } cases[] = {
        {{0.0, 0.0}, {false, false}, "layer 0 with 1 ms): matrix products"}, // no limit was measured
        {{0.9, 0.88}, {false, false}, "layer 0 with 1 ms), bound by arithmetic (89 % of the measured limit): matrix products"},
        {{0.5, 0.5}, {true, true}, "layer 0 with 1 ms), bound by memory traffic (50 % of the measured limit): matrix"},
        {{0.9, 0.08}, {false, false}, "layer 0 with 1 ms), at 49 % of the measured limit of arithmetic: matrix"},
        {{0.3, 0.9}, {false, true}, "layer 0 with 1 ms), at 45 % of the measured limit of memory traffic: matrix"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        mlff_profile *profile = of_size(10, 2.0, 0.1);
        for (int layer = 0; layer < 2; layer++) {
            const mlff_stage stage = {"message", "forward", layer, ""};
            assert_ok(profile_add_stage(profile, &stage, &(mlff_statistics){.mean = 1.0, .median = 1.0}));
            assert_ok(profile_set(&profile->stages[layer].advice, "matrix products"));
            profile->stages[layer].bound_ms = cases[k].bound_ms[layer];
            profile->stages[layer].bound_by_memory = cases[k].by_memory[layer];
        }
        assert_ok(hotspots_recommend(profile));
        int n;
        const char *const *texts = mlff_profile_recommendations(profile, &n);
        assert_true(n > 0);
        if (!strstr(texts[0], cases[k].told)) fail_msg("case %zu: \"%s\", expected \"%s\"", k, texts[0], cases[k].told);
        mlff_profile_destroy(profile);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rate_of_a_working_set),
                                       cmocka_unit_test(test_scaling),
                                       cmocka_unit_test(test_sizes_that_repeat),
                                       cmocka_unit_test(test_steps_that_do_not_grow),
                                       cmocka_unit_test(test_memory_of_small_sizes),
                                       cmocka_unit_test(test_what_if),
                                       cmocka_unit_test(test_what_if_check),
                                       cmocka_unit_test(test_what_if_interval),
                                       cmocka_unit_test(test_gain_of_an_uneven_run),
                                       cmocka_unit_test(test_bounds),
                                       cmocka_unit_test(test_advice_claims_measured_limits),
                                       cmocka_unit_test(test_bounds_of_products)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
