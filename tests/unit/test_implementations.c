// SPDX-License-Identifier: MIT
// Purpose: implementations, interleaved: a planted slowdown is found, the same one twice is not told apart, and answers that are
// fast because they are wrong (zero forces, those of the frame before, not a number) are called wrong.
#include "mlff_profile.h"
#include "unit/near.h"
#include "unit/synthetic_clock.h"

typedef enum answer { RIGHT, ZERO_FORCES, STALE, NOT_A_NUMBER, NOT_WRITTEN, SLIGHTLY_OFF } answer;
typedef struct test_field {
    double us;
    answer kind;
    int n_calls, only_call; // the kind is of this call alone; 0: of all
    int slow_from;          // call from which it takes twice as long; 0: none
    double last_energy, last_forces[3 * 16];
} test_field;

// Springs to the origin.
static mlff_status field_step(void *context, const mlff_system *frame, unsigned wanted, double *energy, double *forces,
                              double *stress)
{
    test_field *f = context;
    double e = 0.0, now[3 * 16];
    (void)wanted;
    (void)stress;
    for (int i = 0; i < 3 * frame->n_atoms; i++) {
        e += 0.5 * frame->positions[i] * frame->positions[i];
        now[i] = -frame->positions[i];
    }
    f->n_calls++;
    const double us = f->slow_from && f->n_calls >= f->slow_from ? 2 * f->us : f->us;
    for (int64_t start = mlff_clock_ns(); (double)(mlff_clock_ns() - start) < us * 1e3;) {}
    const answer kind = f->only_call == 0 || f->only_call == f->n_calls ? f->kind : RIGHT;
    if (kind == NOT_WRITTEN) return MLFF_OK;
    *energy = kind == STALE ? f->last_energy : kind == SLIGHTLY_OFF ? e * (1.0 + 1e-9) : e;
    for (int i = 0; i < 3 * frame->n_atoms; i++)
        forces[i] = kind == ZERO_FORCES ? 0.0 : kind == STALE ? f->last_forces[i] : kind == NOT_A_NUMBER ? NAN : now[i];
    f->last_energy = e;
    memcpy(f->last_forces, now, sizeof now);
    return MLFF_OK;
}

static mlff_callable callable_of(test_field *f, const char *name)
{
    return (mlff_callable){.struct_size = sizeof(mlff_callable),
                           .name = name,
                           .context = f,
                           .properties = MLFF_ENERGY | MLFF_FORCES,
                           .step = field_step};
}

static mlff_trajectory *frames_of(int n_atoms, bool labels)
{
    mlff_system *system;
    mlff_trajectory *trajectory;
    assert_ok(mlff_system_create(n_atoms, &system));
    for (int i = 0; i < n_atoms; i++) {
        system->species[i] = 14;
        system->positions[3 * i] = 2.5 * i;
    }
    if (labels) {
        system->label_energy = 0.0;
        for (int i = 0; i < 3 * n_atoms; i++) system->label_energy += 0.5 * system->positions[i] * system->positions[i];
        system->label_energy += 0.01 * n_atoms; // 10 meV/atom off
        assert_ok(mlff_trajectory_frames((const mlff_system *const *)&system, 1, &trajectory));
    } else {
        assert_ok(mlff_trajectory_thermal(system, 300.0, 1, &trajectory));
    }
    mlff_system_destroy(system);
    return trajectory;
}

static void test_wrong_answers(void **state)
{
    (void)state;
    test_field fields[6];
    mlff_callable callables[6];
    static const char *const names[] = {"right", "zero forces", "stale", "nan", "nothing", "slightly off"};
    for (int k = 0; k < 6; k++) {
        fields[k] = (test_field){.us = k == 0 || k == 5 ? 20 : 2, .kind = (answer)k};
        callables[k] = callable_of(&fields[k], names[k]);
    }
    mlff_trajectory *trajectory = frames_of(16, false);
    mlff_implementations_options options = mlff_implementations_options_default();
    mlff_implementations *implementations;
    char *text;
    int n;
    options.n_rounds = 8;
    assert_ok(mlff_profile_implementations(callables, 6, trajectory, &options, &implementations));
    const mlff_implementation *rows = mlff_implementations_rows(implementations, &n);
    assert_int_equal(n, 6);
    for (int k = 0; k < 6; k++)
        if (rows[k].agrees != (k == RIGHT || k == SLIGHTLY_OFF)) fail_msg("%s: agrees %d", names[k], rows[k].agrees);
    assert_true(isinf(rows[NOT_A_NUMBER].force_difference));
    assert_true(isinf(rows[NOT_WRITTEN].energy_difference));
    assert_int_equal(rows[ZERO_FORCES].change, MLFF_FASTER);
    assert_ok(mlff_implementations_text(implementations, &text));
    assert_non_null(strstr(text, "faster, but WRONG"));
    mlff_text_free(text);
    const mlff_implementation_failure failure = {"sixth", "is left out", "no \"memory\""};
    assert_refused(mlff_implementations_json(implementations, NULL, 1, &text), MLFF_ERR_USAGE, "failures");
    assert_ok(mlff_implementations_json(implementations, &failure, 1, &text));
    assert_non_null(strstr(text, "\"sixth\""));
    assert_non_null(strstr(text, "\"is left out\""));
    assert_non_null(strstr(text, "no \\\"memory\\\""));
    mlff_text_free(text);
    mlff_implementations_destroy(implementations);
    mlff_trajectory_destroy(trajectory);
}

// A wrong answer stays one, whatever the first one says of a later frame.
static void test_wrong_before_the_first_fails(void **state)
{
    (void)state;
    test_field fields[2] = {{.us = 2, .kind = NOT_A_NUMBER, .only_call = 30}, {.us = 2, .kind = ZERO_FORCES, .only_call = 10}};
    const mlff_callable callables[2] = {callable_of(&fields[0], "first"), callable_of(&fields[1], "second")};
    mlff_trajectory *trajectory = frames_of(16, false);
    mlff_implementations_options options = mlff_implementations_options_default();
    mlff_implementations *implementations;
    int n;
    options.n_rounds = 8;
    assert_ok(mlff_profile_implementations(callables, 2, trajectory, &options, &implementations));
    const mlff_implementation *rows = mlff_implementations_rows(implementations, &n);
    assert_int_equal(rows[1].agrees, 0);
    assert_true(isinf(rows[1].force_difference));
    mlff_implementations_destroy(implementations);
    mlff_trajectory_destroy(trajectory);
}

// One that becomes slower half way: so few rounds are independent that there is no interval, and none is written.
static void test_no_interval(void **state)
{
    (void)state;
    test_field fields[2] = {{.us = 20}, {.us = 20, .slow_from = 100}};
    const mlff_callable callables[2] = {callable_of(&fields[0], "first"), callable_of(&fields[1], "second")};
    mlff_trajectory *trajectory = frames_of(2, false);
    mlff_implementations_options options = mlff_implementations_options_default();
    mlff_implementations *implementations;
    char *page;
    int n;
    options.n_rounds = 40;
    assert_ok(mlff_profile_implementations(callables, 2, trajectory, &options, &implementations));
    const mlff_implementation *rows = mlff_implementations_rows(implementations, &n);
    assert_true(isnan(rows[1].low) && isnan(rows[1].high));
    assert_int_equal(rows[1].change, MLFF_UNCLEAR);
    assert_ok(mlff_implementations_html(implementations, NULL, 0, NULL, &page));
    assert_null(strstr(page, "nan to"));
    mlff_text_free(page);
    mlff_implementations_destroy(implementations);
    mlff_trajectory_destroy(trajectory);
}

static void test_speed(void **state)
{
    (void)state;
    test_field fields[3] = {{.us = 50}, {.us = 50}, {.us = 80}};
    mlff_callable callables[3];
    for (int k = 0; k < 3; k++) callables[k] = callable_of(&fields[k], "field");
    mlff_trajectory *trajectory = frames_of(4, false);
    mlff_implementations *implementations;
    int n;
    assert_ok(mlff_profile_implementations(callables, 3, trajectory, NULL, &implementations));
    const mlff_implementation *rows = mlff_implementations_rows(implementations, &n);
    assert_true(rows[1].change == MLFF_SAME || rows[1].change == MLFF_UNCLEAR);
    assert_int_equal(rows[2].change, MLFF_SLOWER);
    assert_true(rows[2].low > 1.2 && rows[2].ratio > 1.3); // 1.6 was planted; a busy machine blurs it
    mlff_implementations_destroy(implementations);
    mlff_trajectory_destroy(trajectory);
}

// What another model computes is shown and not judged; what is not a number is wrong all the same. The page has both.
static void test_other_models(void **state)
{
    (void)state;
    test_field fields[3] = {{.us = 2}, {.us = 2, .kind = ZERO_FORCES}, {.us = 2, .kind = NOT_A_NUMBER}};
    mlff_callable callables[3] = {callable_of(&fields[0], "teacher"), callable_of(&fields[1], "<student>"),
                                  callable_of(&fields[2], "nan")};
    callables[1].notes = "untrained";
    mlff_trajectory *trajectory = frames_of(4, false);
    mlff_implementations *implementations;
    mlff_implementations_options options = mlff_implementations_options_default();
    char *text;
    int n;
    options.n_rounds = 6;
    options.models = (const int[]){0, 1, 2};
    assert_ok(mlff_profile_implementations(callables, 3, trajectory, &options, &implementations));
    const mlff_implementation *rows = mlff_implementations_rows(implementations, &n);
    assert_int_equal(rows[0].agrees, 1);
    assert_int_equal(rows[1].agrees, -1);
    assert_int_equal(rows[2].agrees, 0);
    assert_near(rows[1].energy_shift, 0.0, 0.0); // the same energies, no forces
    assert_true(rows[1].force_rms > 0.1 && rows[1].force_rms < rows[1].force_difference);
    assert_ok(mlff_implementations_text(implementations, &text));
    assert_non_null(strstr(text, "different models: difference shown, not judged"));
    assert_non_null(strstr(text, "<student>: untrained"));
    mlff_text_free(text);
    assert_ok(mlff_implementations_html(implementations, NULL, 0, NULL, &text));
    assert_non_null(strstr(text, "Different models: difference shown, not judged"));
    assert_non_null(strstr(text, "&#60;student&#62;"));
    assert_null(strstr(text, "<student>"));
    mlff_text_free(text);
    mlff_implementations_destroy(implementations);
    mlff_trajectory_destroy(trajectory);
}

static int stop_after(void *context, int64_t round, int64_t n_rounds)
{
    (void)n_rounds;
    return round >= *(const int *)context;
}

static void test_labels_and_refusals(void **state)
{
    (void)state;
    test_field fields[2] = {{.us = 2}, {.us = 2}};
    mlff_callable callables[2] = {callable_of(&fields[0], "a"), callable_of(&fields[1], "b")};
    mlff_trajectory *trajectory = frames_of(4, true);
    mlff_implementations *implementations = NULL;
    mlff_implementations_options options = mlff_implementations_options_default();
    int n;
    options.n_rounds = 6;
    assert_ok(mlff_profile_implementations(callables, 2, trajectory, &options, &implementations));
    assert_near(mlff_implementations_rows(implementations, &n)[1].energy_error, 0.01, 1e-9);
    assert_true(isnan(mlff_implementations_rows(implementations, &n)[1].force_error));
    mlff_implementations_destroy(implementations);
    implementations = NULL;
    mlff_implementations_options stopped = options; // after six rounds what was measured is a result, before there is none
    for (int after = 5; after <= 8; after++) {
        int n_rows = 0;
        mlff_implementations *kept = NULL;
        stopped.n_rounds = 20;
        stopped.progress = stop_after;
        stopped.progress_context = &after;
        assert_int_equal(mlff_profile_implementations(callables, 2, trajectory, &stopped, &kept), MLFF_ERR_INTERRUPTED);
        assert_non_null(strstr(mlff_last_error(), "of 20 rounds"));
        assert_int_equal(kept != NULL, after >= 6);
        if (kept) assert_true(mlff_implementations_rows(kept, &n_rows)[1].median_ms > 0 && n_rows == 2);
        mlff_implementations_destroy(kept);
    }
    assert_int_equal(mlff_profile_implementations(callables, 1, trajectory, &options, &implementations), MLFF_ERR_USAGE);
    options.n_rounds = 2;
    assert_int_equal(mlff_profile_implementations(callables, 2, trajectory, &options, &implementations), MLFF_ERR_USAGE);
    options.n_rounds = 6;
    options.struct_size = sizeof options + 8; // a later library's
    assert_refused(mlff_profile_implementations(callables, 2, trajectory, &options, &implementations), MLFF_ERR_USAGE,
                   "struct_size");
    options.struct_size = sizeof options;
    callables[1].properties = MLFF_ENERGY;
    assert_int_equal(mlff_profile_implementations(callables, 2, trajectory, &options, &implementations), MLFF_ERR_UNSUPPORTED);
    assert_null(implementations);
    mlff_trajectory_destroy(trajectory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_wrong_answers),
                                       cmocka_unit_test(test_no_interval),
                                       cmocka_unit_test(test_wrong_before_the_first_fails),
                                       cmocka_unit_test(test_speed),
                                       cmocka_unit_test(test_other_models),
                                       cmocka_unit_test(test_labels_and_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
