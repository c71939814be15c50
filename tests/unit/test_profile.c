// SPDX-License-Identifier: MIT
// Purpose: a profile of a force field with planted times, stages, leaks and failures says what was planted.
#include <cjson/cJSON.h>

#include "profile/profile.h"
#include "profile/sensors/gpu_kernels.h"
#include "synthetic.h"
#include "synthetic_clock.h"

// ---- times ---------------------------------------------------------------------------------------

static void test_known_time(void **state)
{
    (void)state;
    synthetic s = {.energy_us = 100, .forces_us = 200};
    mlff_callable callable = synthetic_black_box(&s);
    mlff_trajectory *trajectory = synthetic_thermal(64);
    mlff_profile_options options = synthetic_options(60);
    mlff_profile *profile;
    mlff_profile_summary summary;
    options.split = 0;
    options.timestep_fs = 2.0;
    assert_ok(mlff_profile_run(&callable, trajectory, &options, &profile));
    mlff_profile_summary_get(profile, &summary);

    assert_int_equal(s.n_calls, 65);
    assert_int_equal(summary.n_steps, 60);
    assert_int_equal(summary.n_warmup, 5);
    assert_int_equal(summary.n_atoms, 64);
    assert_int_equal(summary.partial, 0);
    assert_string_equal(summary.system_size, "64 atoms");
    assert_string_equal(summary.name, "planted Si64");
    assert_string_equal(summary.device, "cpu");
    assert_int_equal(strlen(summary.timestamp), 19);
    assert_true(summary.latency_ms.min >= 0.3);   // 300 µs of waiting
    assert_true(summary.latency_ms.max < 0.3005); // and some readings of the clock
    assert_true(summary.warmup_first_ms >= 0.3 && summary.warmup_mean_ms >= 0.3);
    double mean = summary.latency_ms.mean;
    assert_near(summary.total_time_s, 60 * mean * 1e-3, 1e-9);
    assert_near(summary.steps_per_second, 1e3 / mean, 1e-6 * 1e3 / mean);
    assert_near(summary.us_per_atom, mean * 1e3 / 64, 1e-9);
    assert_near(summary.ns_per_day, 86400e3 / mean * 2e-6, 1e-6 * 86400e3 / mean * 2e-6); // 2 fs a step
    assert_true(isnan(summary.energy_time_ms) && isnan(summary.forces_time_ms) && isnan(summary.stress_time_ms));
    assert_int_equal(profile->n_latency, 60);

    int n;
    const mlff_profile_stage *stages = mlff_profile_stages(profile, &n); // nothing is known but the whole
    assert_int_equal(n, 1);
    assert_string_equal(stages[0].name, "unattributed");
    assert_near(stages[0].share, 1.0, 1e-12);
    mlff_profile_destroy(profile);
    mlff_trajectory_destroy(trajectory);
}

static void test_frames_differ_and_repeat(void **state)
{
    (void)state;
    synthetic first = {0}, second = {0};
    mlff_callable one = synthetic_black_box(&first), two = synthetic_black_box(&second);
    mlff_trajectory *trajectory = synthetic_thermal(8);
    mlff_profile_options options = synthetic_options(20);
    mlff_profile *profile;
    options.split = 0;
    assert_ok(mlff_profile_run(&one, trajectory, &options, &profile));
    mlff_profile_destroy(profile);
    assert_ok(mlff_profile_run(&two, trajectory, &options, &profile)); // the same frames again
    mlff_profile_destroy(profile);
    assert_memory_equal(first.first_x, second.first_x, 25 * sizeof(double));
    for (int i = 1; i < 25; i++) assert_true(first.first_x[i] != first.first_x[i - 1]);
    mlff_trajectory_destroy(trajectory);
}

static void test_nothing_is_allocated_between_steps(void **state)
{
    (void)state;
    synthetic s = {.watch_from = 6, .watch_to = 3005};
    mlff_callable callable = synthetic_native(&s);
    mlff_trajectory *trajectory = synthetic_thermal(16);
    mlff_profile_options options = synthetic_options(3000);
    mlff_profile *profile;
    options.split = 0;
    options.memory_every = 1;
    assert_ok(mlff_profile_run(&callable, trajectory, &options, &profile));
    assert_true(s.allocations_first > 0);
    assert_int_equal(s.allocations_last, s.allocations_first);
    assert_int_equal(profile->memory_every, 2); // 3000 samples were halved once
    assert_int_equal(profile->n_memory, 1501);
    mlff_profile_destroy(profile);
    mlff_trajectory_destroy(trajectory);
}

// ---- stages --------------------------------------------------------------------------------------

static void test_planted_stage(void **state)
{
    (void)state;
    synthetic s = {.energy_us = 200};
    mlff_callable callable = synthetic_native(&s);
    mlff_trajectory *trajectory = synthetic_thermal(64);
    mlff_profile_options options = synthetic_options(50);
    mlff_profile *profile;
    int n;
    assert_ok(mlff_profile_run(&callable, trajectory, &options, &profile));
    const mlff_profile_stage *stages = mlff_profile_stages(profile, &n);
    assert_int_equal(n, SYNTHETIC_STAGES + 1);
    assert_string_equal(stages[0].name, "message");
    assert_string_equal(stages[0].phase, "forward");
    assert_int_equal(stages[1].layer, 1);
    // The step as we see it is the callable's own and a few readings of the clock, 20 ns of 200 µs each.
    assert_near(stages[0].share, 0.60, 0.002);
    assert_near(stages[1].share, 0.25, 0.001);
    assert_near(stages[2].share, 0.05, 0.001);
    assert_near(stages[3].share, 0.10, 0.003);
    assert_int_equal(stages[0].is_hotspot, 1);
    assert_int_equal(stages[2].is_hotspot, 0);
    assert_true(stages[0].p95_ms >= stages[0].median_ms && stages[0].median_ms >= 0.6 * 0.2);
    assert_books_close(profile);
    assert_true(synthetic_recommended(profile, "message (forward, 2 layers) takes 8"));
    assert_true(synthetic_recommended(profile, "most of it layer 0"));
    assert_true(synthetic_recommended(profile, "including filter"));
    assert_false(synthetic_recommended(profile, "neighbors"));
    assert_int_equal(s.clock_on, 0); // switched off again
    assert_int_equal(s.n_clock_sets, 2);
    mlff_profile_destroy(profile);

    options.stages = 0; // not wanted: then the parts
    assert_ok(mlff_profile_run(&callable, trajectory, &options, &profile));
    stages = mlff_profile_stages(profile, &n);
    assert_string_equal(stages[0].name, "energy");
    assert_int_equal(s.n_clock_sets, 2);
    assert_books_close(profile);
    mlff_profile_destroy(profile);
    mlff_trajectory_destroy(trajectory);
}

static void test_split(void **state)
{
    (void)state;
    synthetic s = {.energy_us = 100, .forces_us = 200, .stress_us = 100};
    mlff_callable callable = synthetic_black_box(&s);
    mlff_trajectory *trajectory = synthetic_thermal(64);
    mlff_profile_options options = synthetic_options(50);
    mlff_profile *profile;
    mlff_profile_summary summary;
    int n;
    options.properties = MLFF_ENERGY | MLFF_FORCES | MLFF_STRESS;
    assert_ok(mlff_profile_run(&callable, trajectory, &options, &profile));
    mlff_profile_summary_get(profile, &summary);
    assert_near(summary.energy_time_ms, 0.1, 0.001); // some readings of the clock, 20 ns each
    assert_near(summary.forces_time_ms, 0.2, 0.001);
    assert_near(summary.stress_time_ms, 0.1, 0.001);
    const mlff_profile_stage *stages = mlff_profile_stages(profile, &n);
    assert_int_equal(n, 4);
    assert_string_equal(stages[1].name, "forces");
    assert_books_close(profile);
    const step_budget budget = budget_of(profile);
    assert_near(budget.ms[BUDGET_HOST], fmin(profile->summary.latency_ms.median, profile->summary.latency_ms.mean), 1e-6);
    if (!(profile->tail.cpu_wait_share > CROWDED))
        assert_true(synthetic_recommended(profile, "forces takes")); // else advice is withheld
    assert_false(synthetic_recommended(profile, "forces are in it"));
    mlff_profile_destroy(profile);

    s.one_shot = true;
    options.properties = MLFF_ENERGY | MLFF_FORCES;
    assert_ok(mlff_profile_run(&callable, trajectory, &options, &profile));
    mlff_profile_summary_get(profile, &summary);
    assert_near(summary.energy_time_ms, 0.4, 0.001);
    assert_true(summary.forces_time_ms >= 0.0 && summary.forces_time_ms < 0.001);
    assert_true(isnan(summary.stress_time_ms));
    assert_non_null(strstr(summary.notes, "computes both at once"));
    assert_false(synthetic_recommended(profile, "the forward pass"));
    if (!(profile->tail.cpu_wait_share > CROWDED)) assert_true(synthetic_recommended(profile, "forces are in it"));
    mlff_profile_destroy(profile);

    callable.properties = MLFF_FORCES;
    options.properties = MLFF_FORCES;
    assert_ok(mlff_profile_run(&callable, trajectory, &options, &profile));
    mlff_profile_summary_get(profile, &summary);
    assert_true(isnan(summary.energy_time_ms));
    assert_non_null(strstr(summary.notes, "cannot be asked for the energy alone"));
    mlff_profile_destroy(profile);
    mlff_trajectory_destroy(trajectory);
}

// Parts are measured after the run: what the machine is faster by then is no part of a step.
static void test_split_on_a_faster_machine(void **state)
{
    (void)state;
    synthetic s = {.energy_us = 100, .forces_us = 300};
    mlff_callable callable = synthetic_black_box(&s);
    mlff_trajectory *trajectory = synthetic_thermal(64);
    mlff_profile_options options = synthetic_options(50);
    mlff_profile *profile;
    int n;
    s.halved_from = options.n_warmup + options.n_steps + 1;
    options.properties = MLFF_ENERGY | MLFF_FORCES;
    assert_ok(mlff_profile_run(&callable, trajectory, &options, &profile));
    const mlff_profile_stage *stages = mlff_profile_stages(profile, &n);
    assert_near(profile->summary.energy_time_ms, 0.05, 0.001);
    assert_near(profile->summary.forces_time_ms, 0.15, 0.001);
    assert_near(profile->summary.latency_ms.median, 0.4, 0.002);
    assert_int_equal(n, 3);
    for (int k = 0; k < 2; k++) assert_near(stages[k].mean_ms / profile->summary.latency_ms.median, k ? 0.75 : 0.25, 0.01);
    assert_null(strstr(profile->heaviest, "unattributed"));
    assert_books_close(profile);
    mlff_profile_destroy(profile);
    mlff_trajectory_destroy(trajectory);
}

// Where most steps are slow the median is above the mean: parts are of the median step, and their shares of the mean one all the same.
static void test_split_where_most_steps_are_slow(void **state)
{
    (void)state;
    synthetic s = {.energy_us = 100, .forces_us = 100, .rebuild_us = -150, .rebuild_every = 3};
    mlff_callable callable = synthetic_black_box(&s);
    mlff_trajectory *trajectory = synthetic_thermal(64);
    mlff_profile_options options = synthetic_options(60);
    mlff_profile *profile;
    int n;
    options.properties = MLFF_ENERGY | MLFF_FORCES;
    assert_ok(mlff_profile_run(&callable, trajectory, &options, &profile));
    const mlff_statistics *step = &profile->summary.latency_ms;
    const mlff_profile_stage *stages = mlff_profile_stages(profile, &n);
    assert_near(step->median, 0.2, 0.002);
    assert_near(step->mean, 0.15, 0.002);
    assert_int_equal(n, 3);
    for (int k = 0; k < n; k++) assert_true(stages[k].share >= 0.0 && stages[k].share <= 1.0 + 1e-12);
    assert_books_close(profile);
    assert_near(stages[0].median_ms + stages[1].median_ms + stages[2].median_ms, step->median, 1e-12);
    const step_budget budget = budget_of(profile);
    for (int k = 0; k < N_BUDGET; k++)
        if (!isnan(budget.ms[k])) assert_true(budget.ms[k] >= 0.0 && budget.ms[k] <= step->mean * (1.0 + 1e-12));
    mlff_profile_destroy(profile);
    mlff_trajectory_destroy(trajectory);
}

// ---- MD ------------------------------------------------------------------------------------------

static void test_md(void **state)
{
    (void)state;
    synthetic s = {.energy_us = 100};
    mlff_callable callable = synthetic_native(&s);
    mlff_dynamics_options dynamics = mlff_dynamics_options_default();
    mlff_profile_options options = synthetic_options(40);
    mlff_system *system = synthetic_system(16);
    mlff_trajectory *trajectory;
    mlff_profile *profile;
    mlff_profile_summary summary;
    int n;
    dynamics.timestep_fs = 0.25;
    options.split = 0;
    options.timestep_fs = 99.0; // the trajectory's own holds
    options.n_warmup = 0;       // so that the integrator's first step, with two force calls, is measured
    assert_ok(mlff_trajectory_md(system, &dynamics, &trajectory));
    assert_ok(mlff_profile_run(&callable, trajectory, &options, &profile));
    mlff_profile_summary_get(profile, &summary);
    assert_int_equal(s.n_calls, 41);
    assert_near(summary.ns_per_day, summary.steps_per_second * 0.25e-6 * 86400, 1e-6);
    const mlff_profile_stage *stages = mlff_profile_stages(profile, &n);
    assert_int_equal(n, SYNTHETIC_STAGES + 2);
    assert_string_equal(stages[n - 2].name, "integrate");
    assert_true(stages[n - 2].mean_ms > 0.0);
    assert_books_close(profile);
    // Stages of all 41 calls are in the books: 90 % of at least 41 × 100 µs.
    double sum_ms = 0.0;
    for (int i = 0; i < SYNTHETIC_STAGES; i++) sum_ms += stages[i].mean_ms * 40;
    assert_true(sum_ms >= 0.9 * 41 * 0.1);
    assert_true(s.first_x[40] != s.first_x[1]); // thermal velocities were given
    mlff_profile_destroy(profile);

    callable.properties = MLFF_ENERGY;
    options.properties = MLFF_ENERGY;
    profile = NULL;
    assert_int_equal(mlff_profile_run(&callable, trajectory, &options, &profile), MLFF_ERR_UNSUPPORTED);
    assert_non_null(strstr(mlff_last_error(), "needed by MD"));
    assert_null(profile);
    mlff_trajectory_destroy(trajectory);
    mlff_system_destroy(system);
}

// ---- frames --------------------------------------------------------------------------------------

static void test_frames_and_file(void **state)
{
    (void)state;
    synthetic s = {0};
    mlff_callable callable = synthetic_black_box(&s);
    mlff_system *frames[3] = {synthetic_system(2), synthetic_system(5), synthetic_system(3)};
    mlff_trajectory *trajectory;
    mlff_profile_options options = synthetic_options(8);
    mlff_profile *profile;
    mlff_writer *writer;
    char path[] = "/tmp/mlff-test-XXXXXX.extxyz";
    int file = mkstemps(path, 7);
    assert_true(file >= 0);
    close(file);
    options.split = 0;
    options.n_warmup = 2;

    assert_ok(mlff_trajectory_frames((const mlff_system *const *)frames, 3, &trajectory));
    assert_ok(mlff_profile_run(&callable, trajectory, &options, &profile));
    const int expected[] = {2, 5, 3, 2, 5, 3, 2, 5, 3, 2};
    assert_memory_equal(s.n_atoms_seen, expected, sizeof expected);
    assert_int_equal(profile->summary.n_atoms, 2); // of the first frame
    mlff_profile_destroy(profile);
    mlff_trajectory_destroy(trajectory);

    assert_ok(mlff_writer_open(path, NULL, 0, &writer));
    for (int i = 0; i < 3; i++) assert_ok(mlff_writer_write(writer, frames[i], NULL));
    assert_ok(mlff_writer_close(writer));
    s = (synthetic){0};
    options.split = 1;
    assert_ok(mlff_trajectory_file(path, &trajectory));
    assert_ok(mlff_profile_run(&callable, trajectory, &options, &profile));
    assert_memory_equal(s.n_atoms_seen, expected, sizeof expected);
    mlff_profile_destroy(profile);
    mlff_trajectory_destroy(trajectory);

    unlink(path);
    trajectory = NULL;
    assert_int_equal(mlff_trajectory_file(path, &trajectory), MLFF_ERR_IO);
    assert_int_equal(mlff_trajectory_file("-", &trajectory), MLFF_ERR_UNSUPPORTED);
    assert_int_equal(mlff_trajectory_frames((const mlff_system *const *)frames, 0, &trajectory), MLFF_ERR_USAGE);
    assert_int_equal(mlff_trajectory_thermal(frames[0], NAN, 0, &trajectory), MLFF_ERR_VALUE);
    assert_null(trajectory);
    for (int i = 0; i < 3; i++) mlff_system_destroy(frames[i]);
}

// ---- what goes wrong -----------------------------------------------------------------------------

static void test_failing_step(void **state)
{
    (void)state;
    synthetic s = {.fails_at = 5 + 13};
    mlff_callable callable = synthetic_native(&s);
    mlff_trajectory *trajectory = synthetic_thermal(8);
    mlff_profile_options options = synthetic_options(100);
    mlff_profile *profile = NULL;
    assert_int_equal(mlff_profile_run(&callable, trajectory, &options, &profile), MLFF_ERR_VALUE);
    assert_string_equal(mlff_last_error(), "planted failure in call 18 (in step 12)");
    assert_non_null(profile);
    assert_int_equal(profile->summary.n_steps, 12);
    assert_int_equal(profile->n_latency, 12);
    assert_int_equal(profile->summary.partial, 1);
    assert_non_null(strstr(profile->summary.notes, "planted failure"));
    assert_int_equal(s.clock_on, 0);
    assert_int_equal(s.n_calls, 18); // no split after a failure
    mlff_profile_destroy(profile);

    profile = NULL;
    s = (synthetic){.fails_at = 3}; // in the warm-up: nothing was measured
    assert_int_equal(mlff_profile_run(&callable, trajectory, &options, &profile), MLFF_ERR_VALUE);
    assert_null(profile);
    assert_string_equal(mlff_last_error(), "planted failure in call 3");

    s = (synthetic){.fails_at = 6, .fails_silently = true};
    mlff_fail(MLFF_ERR_IO, "an old failure that has nothing to do with it");
    assert_int_equal(mlff_profile_run(&callable, trajectory, &options, &profile), MLFF_ERR_CALLBACK);
    assert_null(profile);
    assert_non_null(strstr(mlff_last_error(), "planted failed in step 0"));
    mlff_trajectory_destroy(trajectory);
}

typedef struct watcher {
    int64_t stop_at, last, n_calls;
    bool ordered;
} watcher;

static int watch(void *context, int64_t step, int64_t n_steps)
{
    watcher *w = context;
    w->ordered = w->ordered && step >= w->last && step <= n_steps;
    w->last = step;
    w->n_calls++;
    return step == w->stop_at;
}

static void test_interrupt(void **state)
{
    (void)state;
    synthetic s = {0};
    mlff_callable callable = synthetic_black_box(&s);
    mlff_trajectory *trajectory = synthetic_thermal(8);
    mlff_profile_options options = synthetic_options(30);
    mlff_profile *profile = NULL;
    watcher w = {.stop_at = 7, .last = -5, .ordered = true};
    options.progress = watch;
    options.progress_context = &w;
    assert_int_equal(mlff_profile_run(&callable, trajectory, &options, &profile), MLFF_ERR_INTERRUPTED);
    assert_string_equal(mlff_last_error(), "interrupted after 7 of 30 steps");
    assert_int_equal(profile->summary.n_steps, 7);
    assert_int_equal(profile->summary.partial, 1);
    assert_int_equal(w.n_calls, 5 + 8);
    assert_true(w.ordered);
    mlff_profile_destroy(profile);

    profile = NULL;
    w = (watcher){.stop_at = -3, .last = -5, .ordered = true};
    assert_int_equal(mlff_profile_run(&callable, trajectory, &options, &profile), MLFF_ERR_INTERRUPTED);
    assert_null(profile);

    w = (watcher){.stop_at = 30, .last = -5, .ordered = true}; // all steps done: what is left out is the split
    assert_int_equal(mlff_profile_run(&callable, trajectory, &options, &profile), MLFF_ERR_INTERRUPTED);
    assert_int_equal(profile->summary.n_steps, 30);
    assert_int_equal(profile->summary.partial, 1);
    mlff_profile_destroy(profile);

    w = (watcher){.stop_at = 99, .last = -5, .ordered = true}; // never
    assert_ok(mlff_profile_run(&callable, trajectory, &options, &profile));
    assert_true(w.ordered);
    assert_int_equal(w.last, 30);
    mlff_profile_destroy(profile);
    mlff_trajectory_destroy(trajectory);
}

static void test_bad_requests(void **state)
{
    (void)state;
    synthetic s = {0};
    mlff_callable callable = synthetic_black_box(&s), broken;
    mlff_trajectory *trajectory = synthetic_thermal(8);
    mlff_profile_options options = synthetic_options(10);
    mlff_profile *profile = NULL;

    callable.properties = MLFF_ENERGY | MLFF_FORCES;
    options.properties = MLFF_ENERGY | MLFF_STRESS;
    assert_int_equal(mlff_profile_run(&callable, trajectory, &options, &profile), MLFF_ERR_UNSUPPORTED);
    assert_string_equal(mlff_last_error(), "planted offers energy forces; energy stress were asked for");
    options = synthetic_options(0);
    assert_int_equal(mlff_profile_run(&callable, trajectory, &options, &profile), MLFF_ERR_USAGE);
    options = synthetic_options(10);
    options.memory_every = 0;
    assert_int_equal(mlff_profile_run(&callable, trajectory, &options, &profile), MLFF_ERR_USAGE);
    options = synthetic_options(10);
    const size_t wrong[] = {0, sizeof options + 8}; // nothing, and a later library's
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        options.struct_size = wrong[k];
        assert_refused(mlff_profile_run(&callable, trajectory, &options, &profile), MLFF_ERR_USAGE, "struct_size");
    }
    mlff_dynamics_options dynamics = mlff_dynamics_options_default();
    mlff_trajectory *md = NULL;
    mlff_system *system;
    assert_ok(mlff_system_build("methane", 0, 0, &system));
    for (int k = 0; k < 2; k++) {
        dynamics.struct_size = k == 0 ? 0 : sizeof dynamics + 8;
        assert_refused(mlff_trajectory_md(system, &dynamics, &md), MLFF_ERR_USAGE, "struct_size");
    }
    assert_null(md);
    mlff_system_destroy(system);
    broken = callable;
    broken.step = NULL;
    assert_int_equal(mlff_profile_run(&broken, trajectory, NULL, &profile), MLFF_ERR_USAGE);
    broken = callable;
    broken.struct_size = 0;
    assert_int_equal(mlff_profile_run(&broken, trajectory, NULL, &profile), MLFF_ERR_USAGE);
    assert_int_equal(mlff_profile_run(&callable, NULL, NULL, &profile), MLFF_ERR_USAGE);
    assert_null(profile);
    assert_int_equal(s.n_calls, 0);
    mlff_trajectory_destroy(trajectory);
}

// Ledgers without names, and stages without times, are left out.
static void test_parts_that_are_not_whole(void **state)
{
    (void)state;
    synthetic s = {.energy_us = 2, .forces_us = 3};
    mlff_callable callable = synthetic_native(&s);
    mlff_trajectory *trajectory = synthetic_thermal(8);
    mlff_profile_options options = synthetic_options(20);
    mlff_profile *profile = NULL;
    int n_stages;
    callable.ledger_names = NULL;
    callable.stage_times = NULL;
    callable.stage_clock_set = NULL;
    assert_ok(mlff_profile_run(&callable, trajectory, &options, &profile));
    const mlff_profile_stage *stages = mlff_profile_stages(profile, &n_stages);
    for (int k = 0; k < n_stages; k++) assert_string_not_equal(stages[k].phase, "forward");
    mlff_profile_destroy(profile);
    mlff_trajectory_destroy(trajectory);
}

// A median step and the slowest one are kept with their stages, which add up to them; the record of a file is the same.
static void test_examples(void **state)
{
    (void)state;
    synthetic s = {.energy_us = 20, .forces_us = 30, .rebuild_us = 100, .rebuild_every = 7};
    mlff_callable callable = synthetic_native(&s);
    for (int md = 0; md < 2; md++) {
        mlff_dynamics_options dynamics = mlff_dynamics_options_default();
        mlff_profile_options options = synthetic_options(100);
        mlff_trajectory *trajectory = synthetic_thermal(8);
        mlff_system *system = synthetic_system(8);
        mlff_profile *profile, *again;
        char *written;
        if (md) {
            mlff_trajectory_destroy(trajectory);
            assert_ok(mlff_trajectory_md(system, &dynamics, &trajectory));
        }
        mlff_system_destroy(system);
        options.overhead = 1; // its steps are not of the run
        assert_ok(mlff_profile_run(&callable, trajectory, &options, &profile));
        const mlff_statistics *t = &profile->summary.latency_ms;
        assert_near(profile->examples[EXAMPLE_SLOW].ms, t->max, 1e-12);
        assert_int_equal(profile->examples[EXAMPLE_SLOW].step, profile->slowest[0].step);
        assert_near(profile->examples[EXAMPLE_MEDIAN].ms, t->median, 1e-3);
        for (int k = 0; k < N_EXAMPLES; k++) {
            double sum = 0.0;
            for (int i = 0; i < profile->n_stages; i++) sum += profile->stages[i].example_ms[k];
            assert_near(sum, profile->examples[k].ms, 1e-9);
        }
        assert_ok(mlff_profile_json(profile, &written));
        assert_ok(profile_parse("run.json", written, strlen(written), &again));
        for (int k = 0; k < N_EXAMPLES; k++) {
            assert_int_equal(again->examples[k].step, profile->examples[k].step);
            assert_near(again->stages[0].example_ms[k], profile->stages[0].example_ms[k], 1e-12);
        }
        mlff_text_free(written);
        mlff_profile_destroy(again);
        mlff_profile_destroy(profile);
        mlff_trajectory_destroy(trajectory);
    }
}

// ---- memory and findings -------------------------------------------------------------------------

static void test_planted_leak(void **state)
{
    (void)state;
    synthetic s = {.leak_bytes = 32 << 10};
    mlff_callable callable = synthetic_native(&s);
    mlff_trajectory *trajectory = synthetic_thermal(8);
    mlff_profile_options options = synthetic_options(1000);
    mlff_profile *profile;
    options.split = 0;
    assert_ok(mlff_profile_run(&callable, trajectory, &options, &profile));
    assert_int_equal(profile->summary.memory_stable, 0);
    double growth_mb = profile->summary.memory_delta_gb * 1024; // 31 MB and a few pages; a sanitizer's malloc adds a quarter
    if (growth_mb < 29 || growth_mb > 45) fail_msg("memory grew by %g MB", growth_mb);
    assert_true(synthetic_recommended(profile, "memory leak: \"resident\" grows steadily by"));
    int n;
    const mlff_profile_verdict *verdicts = mlff_profile_verdicts(profile, &n);
    assert_int_equal(n, 6);
    assert_string_equal(verdicts[3].target, "memory growth < 10 MB");
    assert_int_equal(verdicts[3].passed, 0);
    mlff_profile_destroy(profile);
    synthetic_free(&s);

    s = (synthetic){0};
    assert_ok(mlff_profile_run(&callable, trajectory, &options, &profile));
    assert_int_equal(profile->summary.memory_stable, 1);
    assert_false(synthetic_recommended(profile, "leak: "));
    assert_int_equal(mlff_profile_verdicts(profile, &n)[3].passed, 1);
    mlff_profile_destroy(profile);
    mlff_trajectory_destroy(trajectory);
}

static void test_device_memory_counts_on_a_gpu(void **state)
{
    (void)state;
    synthetic s = {.device_bytes = (int64_t)3 << 30};
    mlff_callable callable = synthetic_native(&s);
    mlff_trajectory *trajectory = synthetic_thermal(8);
    mlff_profile_options options = synthetic_options(20);
    mlff_profile *profile;
    assert_ok(mlff_profile_run(&callable, trajectory, &options, &profile));
    assert_true(profile->summary.memory_final_gb < 3.0);
    mlff_profile_destroy(profile);
    callable.device = "cuda:0";
    assert_ok(mlff_profile_run(&callable, trajectory, &options, &profile));
    assert_true(profile->summary.memory_final_gb > 3.0 && profile->summary.memory_peak_gb > 3.0);
    assert_true(profile->memory_gb[0] > 3.0);
    mlff_profile_destroy(profile);
    mlff_trajectory_destroy(trajectory);
}

static void test_rebuilds_and_tail(void **state)
{
    (void)state;
    synthetic s = {.energy_us = 30, .rebuild_us = 900, .rebuild_every = 20};
    mlff_callable callable = synthetic_native(&s);
    mlff_trajectory *trajectory = synthetic_thermal(8);
    mlff_profile_options options = synthetic_options(300);
    mlff_profile *profile;
    options.split = 0;
    assert_ok(mlff_profile_run(&callable, trajectory, &options, &profile));
    assert_int_equal(profile->summary.n_rebuilds, 15);
    assert_near(profile->summary.mean_pairs, 120, 0);
    assert_true(profile->rebuild_median_ms >= 0.93 && profile->other_median_ms >= 0.03);
    int n_tagged = 0;
    for (int i = 0; i < profile->n_slowest; i++) n_tagged += (profile->slowest[i].tags & TAG_REBUILD) != 0;
    assert_int_equal(n_tagged, 15); // all rebuilds
    assert_true(synthetic_recommended(profile, "steps that rebuild the neighbor list take"));
    assert_true(synthetic_recommended(profile, "raise the skin"));
    if (!(profile->tail.cpu_wait_share > CROWDED)) assert_true(synthetic_recommended(profile, "step times vary"));
    int n;
    const mlff_profile_verdict *verdicts = mlff_profile_verdicts(profile, &n);
    assert_int_equal(verdicts[2].passed, 0);  // P99 is a rebuild: some 10 × the mean
    assert_int_equal(verdicts[5].passed, 0);  // CV
    assert_int_equal(verdicts[0].passed, -1); // 8 atoms: the target is for 64
    mlff_profile_destroy(profile);
    mlff_trajectory_destroy(trajectory);
}

static void test_verdicts_say_what_they_rest_on(void **state)
{
    (void)state;
    synthetic s = {.energy_us = 50, .energy = NAN};
    mlff_callable callable = synthetic_black_box(&s);
    mlff_trajectory *trajectory = synthetic_thermal(64);
    mlff_profile_options options = synthetic_options(30);
    mlff_profile *profile;
    int n;
    callable.notes = "an Untrained toy";
    assert_ok(mlff_profile_run(&callable, trajectory, &options, &profile));
    const mlff_profile_verdict *verdicts = mlff_profile_verdicts(profile, &n);
    assert_int_equal(verdicts[0].passed, 1); // 64 atoms, 0.05 ms
    assert_non_null(strstr(verdicts[1].text, "n too small"));
    assert_non_null(strstr(verdicts[2].text, "n too small (30 steps; 299"));
    assert_int_equal(verdicts[4].passed, 1); // under 1 µs an atom
    assert_true(synthetic_recommended(profile, "30 of 30 steps is not a finite number"));
    assert_true(synthetic_recommended(profile, "30 steps are few"));
    assert_true(synthetic_recommended(profile, "the weights are untrained"));
    mlff_profile_destroy(profile);
    mlff_trajectory_destroy(trajectory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_time),
        cmocka_unit_test(test_frames_differ_and_repeat),
        cmocka_unit_test(test_nothing_is_allocated_between_steps),
        cmocka_unit_test(test_planted_stage),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_split_on_a_faster_machine),
        cmocka_unit_test(test_split_where_most_steps_are_slow),
        cmocka_unit_test(test_md),
        cmocka_unit_test(test_frames_and_file),
        cmocka_unit_test(test_failing_step),
        cmocka_unit_test(test_interrupt),
        cmocka_unit_test(test_bad_requests),
        cmocka_unit_test(test_parts_that_are_not_whole),
        cmocka_unit_test(test_examples),
        cmocka_unit_test(test_planted_leak),
        cmocka_unit_test(test_device_memory_counts_on_a_gpu),
        cmocka_unit_test(test_rebuilds_and_tail),
        cmocka_unit_test(test_verdicts_say_what_they_rest_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
