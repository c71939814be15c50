// SPDX-License-Identifier: MIT
// Purpose: a timeline shows stages when they ran: the file is read back, and every stage stands where its clock saw it, inside
// its step, on a track on which nothing overlaps.
#include <cjson/cJSON.h>

#include "profile/profile.h"
#include "synthetic.h"

enum { STEPS = 30 };

// A force field that remembers the spans it told of.
typedef struct teller {
    mlff_callable inner;
    mlff_stage_span told[STEPS * 64];
    int n_told;
} teller;

static mlff_status step(void *context, const mlff_system *frame, unsigned wanted, double *energy, double *forces, double *stress)
{
    teller *t = context;
    return t->inner.step(t->inner.context, frame, wanted, energy, forces, stress);
}

static mlff_status clock_set(void *context, int on)
{
    teller *t = context;
    return t->inner.stage_clock_set(t->inner.context, on);
}

static void times(void *context, double *time_ns)
{
    teller *t = context;
    t->inner.stage_times(t->inner.context, time_ns);
}

static int spans(void *context, mlff_stage_span *spans_out, int capacity)
{
    teller *t = context;
    int n = t->inner.stage_spans(t->inner.context, spans_out, capacity);
    assert_true(n > 0 && n <= 64 && t->n_told + n <= STEPS * 64);
    memcpy(t->told + t->n_told, spans_out, (size_t)n * sizeof *spans_out);
    t->n_told += n;
    return n;
}

static cJSON *timeline_of(const mlff_callable *callable, mlff_trajectory *trajectory)
{
    char path[] = "/tmp/mlff-trace-XXXXXX", *text;
    size_t length;
    int file = mkstemp(path);
    mlff_profile_options options = synthetic_options(STEPS);
    mlff_profile *profile;
    assert_true(file >= 0);
    close(file);
    options.split = 0;
    options.trace_path = path;
    assert_ok(mlff_profile_run(callable, trajectory, &options, &profile));
    assert_ok(base_read_file(path, 16 << 20, &text, &length));
    cJSON *root = cJSON_Parse(text);
    assert_non_null(root);
    base_free(text);
    unlink(path);
    mlff_profile_destroy(profile);
    return root;
}

static double number(const cJSON *event, const char *key)
{
    const cJSON *item = cJSON_GetObjectItem(event, key);
    if (!cJSON_IsNumber(item)) fail_msg("an event without %s", key);
    return item->valuedouble;
}

// Events of all stages against what was told; of MD also the integrator around them.
static void assert_stages_where_they_ran(const cJSON *root, const teller *t, bool md)
{
    const cJSON *event, *events = cJSON_GetObjectItem(root, "traceEvents");
    double zero_us = NAN, end_us = -1.0;
    int n = 0, n_steps = 0, n_integrate = 0;
    assert_string_equal(cJSON_GetObjectItem(cJSON_GetObjectItem(root, "otherData"), "stages")->valuestring,
                        "starts and durations are measured");
    cJSON_ArrayForEach(event, events)
    {
        const char *name = cJSON_GetObjectItem(event, "name")->valuestring;
        if (strcmp(cJSON_GetObjectItem(event, "ph")->valuestring, "X") != 0) continue;
        double start_us = number(event, "ts"), time_us = number(event, "dur");
        if (number(event, "tid") == 1) { // a step; on its own track none overlaps the one before
            assert_true(start_us >= end_us);
            end_us = start_us + time_us;
            n_steps++;
        } else if (strcmp(name, "integrate") == 0) {
            n_integrate++;
        } else {
            const mlff_stage_span *told = &t->told[n++];
            assert_true(n <= t->n_told);
            if (isnan(zero_us)) zero_us = (double)told->start_ns * 1e-3 - start_us; // of the whole timeline
            assert_near(start_us, (double)told->start_ns * 1e-3 - zero_us, 2e-3);   // µs: doubles of a clock of days, and digits
            assert_near(time_us, (double)(told->end_ns - told->start_ns) * 1e-3, 2e-3);
            if (n > 1) assert_true(told->start_ns >= told[-1].end_ns);
        }
    }
    assert_int_equal(n_steps, STEPS);
    assert_int_equal(n, t->n_told);
    assert_true(md ? n_integrate >= 2 * STEPS - 1 : n_integrate == 0); // before the forces and after them
}

static void test_our_evaluator(void **state)
{
    (void)state;
    mlff_model *model = support_model(16, 2, "gaussian", "cosine", 0, 3);
    mlff_evaluator *evaluator = support_evaluator(model, MLFF_FLOAT32);
    mlff_system *system;
    assert_ok(mlff_system_build("silicon", 64, 0, &system));
    for (int md = 0; md < 2; md++) {
        mlff_trajectory *trajectory;
        mlff_dynamics_options dynamics = mlff_dynamics_options_default();
        teller t = {.n_told = 0};
        assert_ok(mlff_callable_from_evaluator(evaluator, model, &t.inner));
        mlff_callable callable = t.inner;
        callable.context = &t;
        callable.step = step;
        callable.stage_clock_set = clock_set;
        callable.stage_times = times;
        callable.stage_spans = spans;
        callable.counters = NULL;
        callable.n_ledgers = 0;
        callable.ledgers = NULL;
        callable.destroy = NULL;
        callable.stage_advice = NULL; // of the context that was replaced
        callable.stage_work = NULL;
        assert_ok(md ? mlff_trajectory_md(system, &dynamics, &trajectory)
                     : mlff_trajectory_thermal(system, 300.0, 0, &trajectory));
        cJSON *root = timeline_of(&callable, trajectory);
        assert_stages_where_they_ran(root, &t, md);
        cJSON_Delete(root);
        mlff_trajectory_destroy(trajectory);
        mlff_callable_destroy(&t.inner);
    }
    mlff_system_destroy(system);
    mlff_evaluator_destroy(evaluator);
    mlff_model_destroy(model);
}

// Spans and durations of the evaluator's clocks are the same measurement.
static void test_spans_add_up(void **state)
{
    (void)state;
    enum { MAX = 128 };
    mlff_model *model = support_model(16, 2, "gaussian", "cosine", 0, 3);
    mlff_evaluator *evaluator = support_evaluator(model, MLFF_FLOAT32);
    mlff_system *system;
    mlff_stage_span found[MAX];
    double sums[MAX] = {0}, times_ns[MAX], energy;
    int32_t first_atom[2];
    int n_stages;
    mlff_batch batch;
    assert_ok(mlff_system_build("silicon", 64, 0, &system));
    mlff_batch_from_system(system, first_atom, &batch);
    assert_ok(mlff_evaluator_compute(evaluator, &batch, &(mlff_results){.energies = &energy}));
    assert_int_equal(mlff_evaluator_stage_spans(evaluator, found, MAX), 0); // the clocks are off
    assert_ok(mlff_evaluator_stage_clock_set(evaluator, 1));
    assert_ok(mlff_evaluator_compute(evaluator, &batch, &(mlff_results){.energies = &energy}));
    (void)mlff_evaluator_stages(evaluator, &n_stages);
    mlff_evaluator_stage_times(evaluator, times_ns);
    int n = mlff_evaluator_stage_spans(evaluator, found, MAX);
    assert_true(n > 0 && n_stages <= MAX);
    for (int k = 0; k < n; k++) {
        assert_in_range(found[k].stage, 0, n_stages - 1);
        assert_true(found[k].end_ns >= found[k].start_ns && (k == 0 || found[k].start_ns >= found[k - 1].end_ns));
        sums[found[k].stage] += (double)(found[k].end_ns - found[k].start_ns);
    }
    for (int k = 0; k < n_stages; k++) assert_near(sums[k], times_ns[k], 0);
    assert_int_equal(mlff_evaluator_stage_spans(evaluator, found, 3), 3);
    mlff_system_destroy(system);
    mlff_evaluator_destroy(evaluator);
    mlff_model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_our_evaluator), cmocka_unit_test(test_spans_add_up)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
