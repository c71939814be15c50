// SPDX-License-Identifier: MIT
// Purpose: the reasons at the top of a report are those of largest weight, in order of weight, and each of them is text that was
// written: a report with as many reasons as there is room for has no line of uninitialized memory.
#include "profile/profile.h"
#include "unit/near.h"

// A record with one reason for each part of why(): energies that are not finite (weight 3), a leak (2), a heavy stage (0.8),
// rebuilds (0.4), a tail (0.2). Any subset is chosen by the bits of `parts`.
enum { NOT_FINITE = 1, LEAK = 2, STAGE = 4, REBUILDS = 8, TAIL = 16, ALL = 31 };

static mlff_profile *record_of(unsigned parts)
{
    mlff_profile *profile;
    assert_int_equal(profile_new(&profile), MLFF_OK);
    profile->summary.n_steps = 1000;
    profile->summary.latency_ms = (mlff_statistics){.n = 1000, .mean = 1.0, .median = 1.0, .p95 = 1.0, .p99 = 1.0};
    if (parts & NOT_FINITE) profile->n_not_finite = 7;
    if (parts & LEAK) {
        profile->ledgers = base_alloc(1, sizeof *profile->ledgers, "ledgers");
        assert_non_null(profile->ledgers);
        assert_int_equal(profile_set(&profile->ledgers[0].name, "resident"), MLFF_OK);
        profile->ledgers[0].leak = (leak_verdict){.kind = LEAK_GROWING, .bytes_per_sample = 4096};
        profile->n_ledgers = 1;
    }
    if (parts & STAGE) {
        mlff_stage stage = {"message", "forward", 0, ""};
        mlff_statistics time = {.mean = 0.8, .median = 0.8, .p95 = 0.8};
        assert_int_equal(profile_add_stage(profile, &stage, &time), MLFF_OK);
        profile->stages[0].shown.share = 0.8;
    }
    if (parts & REBUILDS) {
        profile->summary.n_rebuilds = 100;
        profile->rebuild_median_ms = 5.0;
        profile->other_median_ms = 1.0;
    }
    if (parts & TAIL) {
        profile->summary.latency_ms.median = 0.8;
        profile->summary.latency_ms.p99 = 5.0;
    }
    assert_int_equal(hotspots_recommend(profile), MLFF_OK); // names the heaviest stages
    return profile;
}

static void test_every_subset_of_reasons(void **state)
{
    (void)state;
    static const char *const begins[] = {"the energy of 7 of 1000", "MEMORY LEAK", "most of a step is", "rebuilds of",
                                         "slow steps"};
    for (unsigned parts = 0; parts <= ALL; parts++) {
        why_line lines[WHY_LINES];
        mlff_profile *profile = record_of(parts);
        memset(lines, 0x7f, sizeof lines); // weights and text that any line left unwritten would show
        int n = why(profile, lines), at = 0;
        for (int k = 0; k < 5 && at < WHY_LINES; k++) {
            if (!(parts >> k & 1)) continue;
            if (at >= n || strncmp(lines[at].text, begins[k], strlen(begins[k])) != 0)
                fail_msg("parts %u, line %d of %d: \"%.60s\", expected \"%s…\"", parts, at + 1, n, lines[at].text, begins[k]);
            at++;
        }
        assert_int_equal(n, at);
        mlff_profile_destroy(profile);
    }
}

// Of the course of a run a drift is told, which grows all along: of step times, or of processor time on a crowded machine, whose step
// times are those of the other programs. Where the core itself becomes slower as much, it is told as that. A single jump is told
// as what it is, and on a crowded machine not at all.
static void test_course(void **state)
{
    (void)state;
    static const struct {
        double change, rise, cpu_rise, cpu_wait, pace_rise;
        const char *told;
    } cases[] = {{0.4, 0.5, NAN, 0.0, 0.0, "slowdown: steps get slower all along the run, by 50 %"},
                 {0.4, 0.5, NAN, 0.0, NAN, "slowdown: steps get slower all along the run, by 50 %"},
                 {0.4, 0.5, NAN, 0.0, 0.1, "slowdown: steps get slower all along the run, by 50 %"},
                 {0.4, 0.5, NAN, 0.0, 0.44, "fixed arithmetic takes 44.0 % more: the processor became slower"},
                 {0.4, 0.5, NAN, 0.5, 0.0, NULL},
                 {0.4, 0.5, 0.3, 0.5, 0.0, "all along the run, by 30 % from its first eighth to its last (processor time"},
                 {0.4, 0.5, 0.3, 0.5, 0.2, NULL},
                 {0.4, 0.0, 0.3, 0.5, 0.0, "by 30 %"},
                 {0.4, 0.5, 0.18, 0.5, 0.0, NULL},
                 {0.4, 0.0, 0.0, 0.0, 0.0, "a jump: from step 500 on, steps take 40.0 % more"},
                 {0.4, 0.0, 0.0, 0.5, 0.0, NULL},
                 {0.03, 0.0, 0.0, 0.0, 0.0, NULL}, // the clocks of processors move as much
                 {0.03, 0.03, 0.03, 0.0, 0.0, NULL}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        why_line lines[WHY_LINES];
        const char *told = NULL;
        mlff_profile *profile = record_of(0);
        profile->steady = (steady_state){
            .kind = STEADY_SLOWDOWN, .settled = true, .first = 500, .change = cases[k].change, .rise = cases[k].rise};
        profile->tail.cpu_wait_share = cases[k].cpu_wait;
        profile->tail.cpu_rise = cases[k].cpu_rise;
        profile->tail.pace_rise = cases[k].pace_rise;
        for (int i = why(profile, lines) - 1; i >= 0; i--)
            if (strncmp(lines[i].text, "along the run: ", 15) == 0) told = lines[i].text;
        if (!told != !cases[k].told || (told && !strstr(told, cases[k].told)))
            fail_msg("case %zu: \"%s\", expected \"%s\"", k, told ? told : "nothing", cases[k].told ? cases[k].told : "nothing");
        mlff_profile_destroy(profile);
    }
}

// Whose a wait for a CPU was is said as far as it is known: other programs', other threads' of this process, or either's.
static void test_who_had_the_processor(void **state)
{
    (void)state;
    static const struct {
        double wait, team, programs;
        const char *told;
    } cases[] = {
        {0.04, 0.0, 1.9, NULL},
        {0.75, 0.01, 1.2, "the machine is busy: threads of this process waited for a CPU in 75 % of the time; these times"},
        {0.75, 0.01, NAN, "the machine is busy"},
        {0.75, 0.96, 0.1, "while other threads of this process ran (up to 0.96 cores) and other programs hardly did"},
        {0.75, 0.96, 1.0, "for other programs (1 cores on average) or for other threads of this process (up to 0.96 cores)"},
        {0.75, 0.96, NAN, "for other programs or for other threads of this process (up to 0.96 cores)"},
        {0.75, NAN, NAN, "for other programs or for other threads of this process, which share cores or a lock"},
        {0.75, 0.01, 0.1,
         "but neither other programs (0.1 cores on average) nor other threads of this process (up to 0.01 cores)"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        char text[500];
        mlff_profile *profile = record_of(0);
        profile->tail.cpu_wait_share = cases[k].wait;
        profile->tail.team_cores = cases[k].team;
        profile->tail.program_cores = cases[k].programs;
        const bool crowded = tail_crowded(profile, text, sizeof text);
        assert_int_equal(crowded, cases[k].told != NULL);
        if (crowded && !strstr(text, cases[k].told)) fail_msg("case %zu: \"%s\", expected \"%s\"", k, text, cases[k].told);
        if (crowded && cases[k].team > 0.5 && strstr(text, "the machine is busy")) fail_msg("case %zu: \"%s\"", k, text);
        assert_true(strlen(text) + 1 < sizeof text);
        mlff_profile_destroy(profile);
    }
}

// A load average says what ran before: not that it still did, nor what that cost.
static void test_load_before_the_run(void **state)
{
    (void)state;
    bool told = false;
    mlff_profile *profile = record_of(0);
    assert_int_equal(environment_add(&profile->environment, "load_average_at_start", "7.69"), MLFF_OK);
    assert_int_equal(environment_add(&profile->environment, "cores_online", "2"), MLFF_OK);
    assert_int_equal(hotspots_recommend(profile), MLFF_OK);
    for (int i = 0; i < profile->n_recommendations; i++)
        told = told || strncmp(profile->recommendations[i],
                               "the load average was 7.69 on 2 cores when the run began: if other programs", 71) == 0;
    assert_true(told);
    mlff_profile_destroy(profile);
}

// A level that comes back is not a jump of 0.0 %.
static void test_level_that_returns(void **state)
{
    (void)state;
    char text[512];
    mlff_profile *profile = record_of(0);
    profile->steady = (steady_state){.kind = STEADY_SLOWDOWN, .settled = true, .first = 60, .change = 0.00045};
    steadiness_text(profile, text, sizeof text);
    assert_string_equal(text, "disturbed for a while: from step 60 on, steps take as long as at the start");
    profile->steady.change = 0.02;
    steadiness_text(profile, text, sizeof text);
    assert_non_null(strstr(text, "a jump: from step 60 on, steps take 2.0 % more"));
    mlff_profile_destroy(profile);
}

static void add_ledger(mlff_profile *profile, const char *name, leak_verdict leak)
{
    profile_ledger *ledger = &profile->ledgers[profile->n_ledgers++];
    assert_int_equal(profile_set(&ledger->name, name), MLFF_OK);
    ledger->leak = leak;
}

// The end of memory is told of steady growth of the host's memory alone; what a GPU's allocator keeps may grow while what is used of it
// does not. "At most" stands before the upper end.
static void test_ledgers_in_words(void **state)
{
    (void)state;
    const leak_verdict grows = {.kind = LEAK_GROWING, .bytes_per_sample = 1024, .low = 512, .high = 2048};
    const leak_verdict unclear = {.kind = LEAK_INCONCLUSIVE, .bytes_per_sample = 1024, .low = 512, .high = 2048};
    static const char *const told[] = {
        "growing by 1 kB a step (512 B to 2 kB at 95 %): memory ends in about 1000 steps",
        "inconclusive: grew to the end, but not as steadily as a leak; measure longer. At most 2 kB a step (at 95 %)",
        "growing by 1 kB a step (512 B to 2 kB at 95 %)",
        "growing by 1 kB a step (512 B to 2 kB at 95 %)",
        "stable",
        "fragmentation: reserved memory grows, what is used of it does not",
        "stable",
        "fragmentation: reserved memory grows, what is used of it does not"};
    mlff_profile *profile = record_of(0);
    profile->available_bytes = 1024000;
    profile->ledgers = base_alloc(8, sizeof *profile->ledgers, "ledgers");
    assert_non_null(profile->ledgers);
    add_ledger(profile, "resident", grows);
    add_ledger(profile, "heap", unclear);
    add_ledger(profile, "driver (whole GPU, NVML)", grows);
    add_ledger(profile, "GPU pool reserved", grows); // what is used of it is not known here
    add_ledger(profile, "device: torch allocated", (leak_verdict){.kind = LEAK_STABLE, .detectable = NAN});
    add_ledger(profile, "torch reserved", grows);
    add_ledger(profile, "device: jax in use", (leak_verdict){.kind = LEAK_STABLE, .detectable = NAN});
    add_ledger(profile, "jax reserved", grows);
    leaks_relate(profile);
    for (int k = 0; k < profile->n_ledgers; k++) {
        char text[256];
        leaks_text(profile, &profile->ledgers[k], text, sizeof text);
        if (strcmp(text, told[k]) != 0) fail_msg("%s: \"%s\", expected \"%s\"", profile->ledgers[k].name, text, told[k]);
    }
    mlff_profile_destroy(profile);
}

// Numbers are written without powers of ten, and a change that rounds to nothing without a sign of its own.
static void test_numbers_in_words(void **state)
{
    (void)state;
    assert_string_equal(PROFILE_NUMBER(622.44, 4), "622.4");
    assert_string_equal(PROFILE_NUMBER(4239.7, 3), "4240");
    assert_string_equal(PROFILE_NUMBER(1014.0, 3), "1010");
    assert_string_equal(PROFILE_NUMBER(107893.0, 2), "110000");
    assert_string_equal(PROFILE_NUMBER(0.0, 3), "0");
    assert_string_equal(PROFILE_CHANGE_MB(-1024.0), "+0.00 MB");
    assert_string_equal(PROFILE_CHANGE_MB(-2097152.0), "-2.00 MB");
    assert_string_equal(PROFILE_CHANGE(0.99999), "+0.00 %");
    assert_string_equal(PROFILE_CHANGE(0.979), "-2.10 %");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_numbers_in_words),
                                       cmocka_unit_test(test_every_subset_of_reasons),
                                       cmocka_unit_test(test_course),
                                       cmocka_unit_test(test_level_that_returns),
                                       cmocka_unit_test(test_who_had_the_processor),
                                       cmocka_unit_test(test_load_before_the_run),
                                       cmocka_unit_test(test_ledgers_in_words)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
