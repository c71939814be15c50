// SPDX-License-Identifier: MIT
// Purpose: a reader of nothing but the first screen of the terminal's report learns why the force field is slow. Planted, and
// found there by name: a stage that is slow, a leak, a list that is rebuilt in every step, steps that lose the processor.
#include "profile/profile.h"
#include "synthetic.h"
#include "synthetic_clock.h"
#include "synthetic_process.h"

enum { SCREEN_LINES = 24, N_STAGES = 4 };

typedef struct planted {
    double stage_us[N_STAGES];
    int64_t n_calls, n_rebuilds;
    int rebuild_every, slow_every;
    size_t leak_bytes;
    void *leaked;
    double stage_ns[N_STAGES];
} planted;

static const mlff_stage stages[N_STAGES] = {{"neighbors", "forward", -1, ""},
                                            {"message", "forward", 0, ""},
                                            {"readout", "forward", -1, ""},
                                            {"forces", "backward", -1, ""}};

static mlff_status step(void *context, const mlff_system *frame, unsigned wanted, double *energy, double *forces, double *stress)
{
    planted *p = context;
    (void)wanted;
    (void)stress;
    p->n_calls++;
    bool rebuild = p->rebuild_every && p->n_calls % p->rebuild_every == 0;
    p->n_rebuilds += rebuild;
    for (int k = 0; k < N_STAGES; k++) {
        int64_t start = mlff_clock_ns();
        synthetic_wait(k == 0 && !rebuild ? 1.0 : p->stage_us[k]);
        if (k == 3 && p->slow_every && p->n_calls % p->slow_every == 0) synthetic_wait(3000.0);
        p->stage_ns[k] = (double)(mlff_clock_ns() - start);
    }
    if (p->leak_bytes) {
        void **block = malloc(p->leak_bytes);
        assert_non_null(block);
        memset(block, 1, p->leak_bytes);
        *block = p->leaked;
        p->leaked = block;
    }
    synthetic_nothing(frame, wanted, energy, forces);
    return MLFF_OK;
}

static void stage_times(void *context, double *time_ns)
{
    memcpy(time_ns, ((planted *)context)->stage_ns, N_STAGES * sizeof *time_ns);
}

static void counters(void *context, int64_t *n_pairs, int64_t *n_rebuilds, int64_t *n_growths)
{
    *n_pairs = 100;
    *n_rebuilds = ((planted *)context)->n_rebuilds;
    *n_growths = 0;
}

// The first screen of the report of MD with the planted force field, through the public header alone.
static char *first_screen(planted *p, int64_t n_steps)
{
    mlff_callable callable = {.struct_size = sizeof callable,
                              .name = "force field",
                              .context = p,
                              .properties = MLFF_ENERGY | MLFF_FORCES,
                              .step = step,
                              .n_stages = N_STAGES,
                              .stages = stages,
                              .stage_times = stage_times,
                              .counters = counters};
    mlff_system *system = synthetic_system(16);
    mlff_dynamics_options dynamics = mlff_dynamics_options_default();
    mlff_profile_options options = mlff_profile_options_default();
    mlff_trajectory *trajectory;
    mlff_profile *profile;
    char *text, *end;
    options.n_steps = n_steps;
    options.overhead = 0;
    assert_ok(mlff_trajectory_md(system, &dynamics, &trajectory));
    assert_ok(mlff_profile_run(&callable, trajectory, &options, &profile));
    assert_ok(mlff_profile_text(profile, 100, &text));
    end = text;
    for (int line = 0; line < SCREEN_LINES && end; line++) end = strchr(end + 1, '\n');
    if (end) *end = 0;
    mlff_profile_destroy(profile);
    mlff_trajectory_destroy(trajectory);
    mlff_system_destroy(system);
    while (p->leaked) {
        void *next = *(void **)p->leaked;
        free(p->leaked);
        p->leaked = next;
    }
    return text;
}

// `said` stands on the first screen; as the first reason if it is to be.
static void expect(planted p, int64_t n_steps, const char *said, bool first)
{
    char *screen = first_screen(&p, n_steps);
    const char *why = strstr(screen, "Why a step takes"), *found = why ? strstr(why, said) : NULL;
    if (!found) fail_msg("\"%s\" is not on the first screen:\n%s", said, screen);
    if (first && strstr(why, " 1. ") + 4 != found) fail_msg("\"%s\" is not said first:\n%s", said, screen);
    mlff_text_free(screen);
}

static void test_slow_stage(void **state)
{
    (void)state;
    for (int k = 1; k < N_STAGES; k++) { // each of them in turn ten times as slow as the others
        planted p = {.stage_us = {20, 20, 20, 20}};
        char said[96];
        p.stage_us[k] = 200;
        snprintf(said, sizeof said, "most of a step is %s/%s 8", stages[k].phase, stages[k].name); // 80 to 89 %
        expect(p, 300, said, true);
    }
}

static void test_leak(void **state)
{
    (void)state;
    planted p = {.stage_us = {20, 20, 20, 20}, .leak_bytes = 32 << 10};
    expect(p, 1500, "MEMORY LEAK: \"", true);
    expect(p, 1500, "kB a step (", false); // 32 kB, and what malloc adds: a sanitizer's a quarter
}

static void test_rebuild_every_step(void **state)
{
    (void)state;
    planted p = {.stage_us = {200, 20, 20, 20}, .rebuild_every = 1};
    expect(p, 300, "the neighbor list is rebuilt in every step; where frames follow from one another", false);
    expect(p, 300, "raise the skin", false);
    p.rebuild_every = 4;
    expect(p, 300, "rebuilds of the neighbor list cost ", false);
}

static void test_slow_steps(void **state)
{
    (void)state;
    planted p = {.stage_us = {5, 5, 5, 5}, .slow_every = 30};
    expect(p, 600, "slow steps: 8", false); // 3 ms every 30 steps of 20 µs: 83 % of the run
}

// Of few steps no percentile is told beyond which none of them lies, nor a target judged by it; of one step no spread either.
static void test_few_steps(void **state)
{
    (void)state;
    static const struct {
        int64_t n_steps;
        const char *said, *unsaid;
    } cases[] = {
        {1, "1 step,", "CV"}, {1, "median ", "P95"}, {10, "longest ", "P95"}, {30, "P95 ", "P99"}, {120, "P99 ", "longest"}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        planted p = {.stage_us = {5, 5, 5, 5}};
        mlff_callable callable = {.struct_size = sizeof callable,
                                  .name = "force field",
                                  .context = &p,
                                  .properties = MLFF_ENERGY | MLFF_FORCES,
                                  .step = step};
        mlff_profile_options options = mlff_profile_options_default();
        mlff_system *system = synthetic_system(16);
        mlff_trajectory *trajectory;
        mlff_profile *profile;
        char *text, *whole;
        int n;
        options.n_steps = cases[k].n_steps;
        options.overhead = options.split = 0;
        assert_ok(mlff_trajectory_thermal(system, 300.0, 1, &trajectory));
        assert_ok(mlff_profile_run(&callable, trajectory, &options, &profile));
        assert_ok(mlff_profile_text_short(profile, 300, &text));
        assert_ok(mlff_profile_text(profile, 100, &whole));
        const mlff_profile_verdict *verdicts = mlff_profile_verdicts(profile, &n);
        assert_int_equal(verdicts[1].passed < 0, cases[k].n_steps < 20);
        assert_int_equal(verdicts[2].passed < 0, cases[k].n_steps < 100);
        char *end = strstr(text, "ns/day");
        assert_non_null(end);
        *end = 0;
        if (!strstr(text, cases[k].said) || strstr(text, cases[k].unsaid))
            fail_msg("%lld steps: \"%s\" is wanted, \"%s\" is not:\n%s", (long long)cases[k].n_steps, cases[k].said,
                     cases[k].unsaid, text);
        assert_null(strstr(whole, " 1 steps"));
        assert_int_equal(strstr(whole, "spread (CV)") != NULL, cases[k].n_steps > 1);
        mlff_text_free(text);
        mlff_text_free(whole);
        mlff_profile_destroy(profile);
        mlff_trajectory_destroy(trajectory);
        mlff_system_destroy(system);
    }
}

// Of a force field without stages nothing is said about parts of a step, and a number and its unit stand on one line at any width.
static void test_report_without_stages(void **state)
{
    (void)state;
    static const char *const units[] = {"%", "ns", "µs", "ms", "s", "kB", "MB"};
    planted p = {.stage_us = {20, 20, 20, 20}, .slow_every = 10};
    mlff_callable callable = {.struct_size = sizeof callable,
                              .name = "force field",
                              .context = &p,
                              .properties = MLFF_ENERGY | MLFF_FORCES,
                              .step = step};
    mlff_profile_options options = mlff_profile_options_default();
    mlff_system *system = synthetic_system(16);
    mlff_trajectory *trajectory;
    mlff_profile *profile;
    options.n_steps = 200;
    options.overhead = options.split = 0;
    assert_ok(mlff_trajectory_thermal(system, 300.0, 1, &trajectory));
    assert_ok(mlff_profile_run(&callable, trajectory, &options, &profile));
    for (int width = 60; width <= 140; width++) {
        char *text;
        assert_ok(mlff_profile_text_short(profile, width, &text));
        assert_non_null(strstr(text, "slow steps: "));
        assert_null(strstr(text, "most of a step"));
        for (const char *line = text; line; line = strchr(line + 1, '\n')) {
            const char *word = line + strspn(line, "\n ");
            for (size_t k = 0; k < sizeof units / sizeof *units; k++)
                if (strcspn(word, " .,;:)\n") == strlen(units[k]) && strncmp(word, units[k], strlen(units[k])) == 0)
                    fail_msg("width %d: a line begins with \"%.20s\"", width, word);
        }
        mlff_text_free(text);
    }
    mlff_profile_destroy(profile);
    mlff_trajectory_destroy(trajectory);
    mlff_system_destroy(system);
}

static void test_nothing_stands_out_of_nothing(void **state)
{
    (void)state;
    planted p = {.stage_us = {20, 20, 20, 20}, .rebuild_every = 40};
    char *screen = first_screen(&p, 1500);
    assert_null(strstr(screen, "LEAK"));
    assert_null(strstr(screen, "rebuil"));
    assert_null(strstr(screen, "along the run"));
    mlff_text_free(screen);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slow_stage),
        cmocka_unit_test(test_leak),
        cmocka_unit_test(test_rebuild_every_step),
        cmocka_unit_test(test_slow_steps),
        cmocka_unit_test(test_few_steps),
        cmocka_unit_test(test_report_without_stages),
        cmocka_unit_test(test_nothing_stands_out_of_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
