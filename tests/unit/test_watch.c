// SPDX-License-Identifier: MIT
// Purpose: runs that end when they know enough, the cost of measuring, timelines, and runs that the caller integrates.
#include <cjson/cJSON.h>

#include "profile/profile.h"
#include "synthetic.h"
#include "synthetic_clock.h"

// The machine's load, replaced for this program.
static double planted_load = 0.25;
int getloadavg(double *loads, int n)
{
    for (int k = 0; k < n; k++) loads[k] = planted_load;
    return n;
}

// A run that may end early does, once its median is known; one that may not, does not.
static void test_until_precision(void **state)
{
    (void)state;
    synthetic s = {.energy_us = 10, .forces_us = 10};
    mlff_callable callable = synthetic_native(&s);
    mlff_trajectory *trajectory = synthetic_thermal(8);
    mlff_profile_options options = synthetic_options(20000);
    mlff_profile *profile;
    options.until_precision = 0.10;
    assert_ok(mlff_profile_run(&callable, trajectory, &options, &profile));
    assert_in_range(profile->summary.n_steps, STEADY_MIN / 2, 19000);
    assert_int_equal(profile->n_latency, profile->summary.n_steps);
    assert_int_equal(profile->summary.partial, 0);
    assert_non_null(strstr(profile->summary.notes, "ended after"));
    mlff_profile_destroy(profile);
    options.n_steps = 60;
    options.until_precision = 1e-9;
    assert_ok(mlff_profile_run(&callable, trajectory, &options, &profile));
    assert_int_equal(profile->summary.n_steps, 60);
    assert_non_null(strstr(profile->summary.notes, "were not enough"));
    mlff_profile_destroy(profile);
    mlff_trajectory_destroy(trajectory);
}

static int stop_at_ten(void *context, int64_t step, int64_t n_steps)
{
    (void)context;
    (void)n_steps;
    return step == 10;
}

// What is said of the precision is of the steps there are: of a run that was interrupted, and of one that was never looked at before
// its end.
static void test_precision_is_of_the_steps_there_are(void **state)
{
    (void)state;
    synthetic s = {.energy_us = 10, .forces_us = 10};
    mlff_callable callable = synthetic_native(&s);
    mlff_trajectory *trajectory = synthetic_thermal(8);
    mlff_profile_options options = synthetic_options(20);
    mlff_profile *profile = NULL;
    options.until_precision = 0.5;
    options.precision_of = 0.99;
    options.progress = stop_at_ten;
    assert_int_equal(mlff_profile_run(&callable, trajectory, &options, &profile), MLFF_ERR_INTERRUPTED);
    assert_null(strstr(profile->summary.notes, "is known within"));
    assert_non_null(strstr(profile->summary.notes, "10 steps were not enough to know P99"));
    mlff_profile_destroy(profile);
    options.progress = NULL;
    options.precision_of = 0.5;
    assert_ok(mlff_profile_run(&callable, trajectory, &options, &profile));
    assert_int_equal(profile->summary.n_steps, 20);
    assert_true(profile->bounds[0].high - profile->bounds[0].low < profile->bounds[0].value);
    assert_null(strstr(profile->summary.notes, "not enough"));
    assert_non_null(strstr(profile->summary.notes, "P50 is known within"));
    mlff_profile_destroy(profile);
    mlff_trajectory_destroy(trajectory);
}

// The overhead of stage clocks that cost 30 µs a step is found; what was measured before is not touched by it.
static mlff_status slow_clock_step(void *context, const mlff_system *frame, unsigned wanted, double *energy, double *forces,
                                   double *stress)
{
    mlff_status status = synthetic_step(context, frame, wanted, energy, forces, stress);
    if (((synthetic *)context)->clock_on) synthetic_wait(30);
    return status;
}

static void test_overhead(void **state)
{
    (void)state;
    synthetic s = {.energy_us = 20, .forces_us = 30};
    mlff_callable callable = synthetic_native(&s);
    mlff_trajectory *trajectory = synthetic_thermal(8);
    mlff_profile_options options = synthetic_options(40);
    mlff_profile *profile;
    callable.step = slow_clock_step;
    options.overhead = 1;
    assert_ok(mlff_profile_run(&callable, trajectory, &options, &profile));
    assert_int_equal(profile->summary.n_steps, 40);
    assert_int_equal(profile->n_latency, 40);
    assert_int_equal(s.clock_on, 0);
    if (profile->overhead_ns < 29e3 || profile->overhead_ns > 32e3)
        fail_msg("overhead %.0f ns (%.0f to %.0f), 30000 were planted", profile->overhead_ns, profile->overhead_low_ns,
                 profile->overhead_high_ns);
    mlff_profile_destroy(profile);
    mlff_trajectory_destroy(trajectory);
}

// Steps of 0.1 s: the blocks would take 12 s, after a run of 0.5 s.
static void test_overhead_of_long_steps(void **state)
{
    (void)state;
    synthetic s = {.energy_us = 40e3, .forces_us = 60e3};
    mlff_callable callable = synthetic_native(&s);
    mlff_trajectory *trajectory = synthetic_thermal(8);
    mlff_profile_options options = synthetic_options(5);
    mlff_profile *profile;
    options.overhead = 1;
    options.split = 0;
    assert_ok(mlff_profile_run(&callable, trajectory, &options, &profile));
    assert_int_equal(s.n_calls, options.n_warmup + 5);
    assert_true(isnan(profile->overhead_ns));
    mlff_profile_destroy(profile);
    mlff_trajectory_destroy(trajectory);
}

// The timeline is JSON with one event a step and one for each of its stages, none longer than its step.
static void test_trace(void **state)
{
    (void)state;
    char path[] = "/tmp/mlff-trace-XXXXXX", *text;
    size_t length;
    int file = mkstemp(path), n_steps = 0, n_stages = 0;
    close(file);
    synthetic s = {.energy_us = 20, .forces_us = 30};
    mlff_callable callable = synthetic_native(&s);
    mlff_trajectory *trajectory = synthetic_thermal(8);
    mlff_profile_options options = synthetic_options(30);
    mlff_profile *profile;
    options.trace_path = path;
    options.trace_steps = 20;
    assert_ok(mlff_profile_run(&callable, trajectory, &options, &profile));
    assert_ok(base_read_file(path, 1 << 20, &text, &length));
    cJSON *root = cJSON_Parse(text), *event;
    assert_non_null(root);
    double end = -1.0, step_us = 0.0, stages_us = 0.0;
    cJSON_ArrayForEach(event, cJSON_GetObjectItem(root, "traceEvents"))
    {
        if (strcmp(cJSON_GetObjectItem(event, "ph")->valuestring, "X") != 0) continue;
        double start = cJSON_GetObjectItem(event, "ts")->valuedouble, us = cJSON_GetObjectItem(event, "dur")->valuedouble;
        if (cJSON_GetObjectItem(event, "tid")->valueint == 1) {
            assert_true(start >= end); // steps do not overlap: viewers drop events that do
            end = start + us;
            step_us += us;
            n_steps++;
        } else {
            stages_us += us;
            n_stages++;
        }
    }
    assert_int_equal(n_steps, 20);
    assert_int_equal(n_stages, 20 * SYNTHETIC_STAGES);
    assert_near(stages_us, 0.9 * step_us, 0.05 * step_us); // 60, 25 and 5 %
    cJSON_Delete(root);
    base_free(text);
    unlink(path);
    mlff_profile_destroy(profile);
    mlff_trajectory_destroy(trajectory);
}

// A run that the caller integrates: all steps timed, stages seen in blocks, rebuilds counted, the overhead small; twice in a
// row the record grows with the run.
static void test_monitor(void **state)
{
    (void)state;
    synthetic s = {.energy_us = 20, .forces_us = 30, .rebuild_us = 40, .rebuild_every = 10};
    mlff_callable callable = synthetic_native(&s);
    mlff_system *system = synthetic_system(8);
    mlff_monitor *monitor;
    mlff_dynamics *dynamics;
    mlff_profile *profile;
    mlff_dynamics_options options = mlff_dynamics_options_default();
    assert_ok(mlff_monitor_create(&callable, system, 0.5, 10, &monitor));
    assert_int_equal(mlff_monitor_profile(monitor, NULL, NULL, &profile), MLFF_ERR_USAGE);
    assert_ok(mlff_dynamics_create(&options, system, mlff_monitor_forces, monitor, &dynamics));
    int64_t allocations = 0;
    for (int i = 0; i < 3200; i++) {
        if (i == 400) allocations = base_allocation_count();
        assert_ok(mlff_monitor_step(monitor, dynamics));
        if (i != 1599) continue;
        assert_int_equal(base_allocation_count(), allocations); // watching does not allocate
        assert_ok(mlff_monitor_profile(monitor, "half", NULL, &profile));
        assert_int_equal(profile->summary.n_steps, 1600);
        mlff_profile_destroy(profile);
    }
    planted_load = 1000; // of this run, which has ended
    assert_ok(mlff_monitor_profile(monitor, "whole", "a note", &profile));
    planted_load = 0.25;
    assert_string_equal(environment_find(&profile->environment, "load_average_at_start"), "0.25");
    assert_false(synthetic_recommended(profile, "the load average was"));
    const mlff_profile_summary *summary = &profile->summary;
    assert_int_equal(summary->n_steps, 3200);
    assert_int_equal(profile->n_latency, 3200);
    assert_near(summary->latency_ms.median, 0.05, 0.001); // some readings of the clock more
    assert_near((double)summary->n_rebuilds, 320.0, 1.0);
    assert_near(profile->timestep_fs, 0.5, 0);
    assert_near((double)profile->n_tagged[0], 320.0, 200.0); // from the blocks: 16 steps of 320
    double sum = 0.0;
    int n;
    const mlff_profile_stage *stages = mlff_profile_stages(profile, &n);
    for (int k = 0; k < n; k++) sum += stages[k].share;
    assert_near(sum, 1.0, 1e-9); // a closed budget
    assert_string_equal(stages[n - 2].name, "integrate");
    assert_true(profile->overhead_low_ns <= profile->overhead_high_ns); // how many is for the benchmark, not for a test
    assert_int_equal(s.clock_on, 0);
    mlff_profile_destroy(profile);
    mlff_dynamics_destroy(dynamics);
    mlff_monitor_destroy(monitor);
    mlff_system_destroy(system);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_until_precision), cmocka_unit_test(test_precision_is_of_the_steps_there_are),
        cmocka_unit_test(test_overhead),        cmocka_unit_test(test_overhead_of_long_steps),
        cmocka_unit_test(test_trace),           cmocka_unit_test(test_monitor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
