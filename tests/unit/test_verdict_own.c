// SPDX-License-Identifier: MIT
// test_verdict_own.c: a verdict's bar of errors in new dynamics of the student, beside teachers that are off by a planted amount.
#include <math.h>

#include "mlff_distill.h"
#include "support.h"
#include "train/judging/verdict.h"
#include "unit/log_springs.h"

static mlff_system *rest; // of ethanol

static int set_up(void **state)
{
    (void)state;
    assert_ok(mlff_system_build("ethanol", 0, 0, &rest));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    mlff_system_destroy(rest);
    return 0;
}

// Springs, all of whose forces are off by the same; every fail_every-th call fails, and those from n_good on.
typedef struct planted {
    double off; // eV/Å
    int fail_every, n_good, n_calls;
} planted;

static mlff_status springs(void *context, const mlff_system *system, double *energy, double *forces)
{
    planted *p = context;
    p->n_calls++;
    assert_ok(log_springs(rest, system, energy, forces));
    for (int k = 0; k < 3 * system->n_atoms; k++) forces[k] += p->off * (k % 2 ? 1 : -1);
    if (p->n_good > 0 && p->n_calls > p->n_good) return mlff_fail(MLFF_ERR_UNSTABLE, "forces are not finite");
    if (p->fail_every > 0 && p->n_calls % p->fail_every == 0) return mlff_fail(MLFF_ERR_VALUE, "no convergence");
    return MLFF_OK;
}

// The bar alone.
static mlff_bar measure(planted *student, planted *teacher, const mlff_system *start, int n_dynamics)
{
    mlff_verdict verdict = {.options = mlff_verdict_options_default()};
    const mlff_force_field beside = {"teacher", springs, teacher};
    verdict.options.n_dynamics = n_dynamics;
    const verdict_run run = {
        .verdict = &verdict, .student = {"student", springs, student}, .teacher = teacher ? &beside : NULL, .start = start};
    assert_ok(verdict_own_dynamics(&run));
    assert_int_equal(verdict.n_bars, 1);
    assert_string_equal(verdict.bars[0].name, "error.dynamics");
    return verdict.bars[0];
}

static void test_planted_errors(void **state)
{
    (void)state;
    static const double errors[] = {0, 0.02, 0.0499, 0.0501, 3}; // eV/Å; the limit is 0.05
    for (size_t k = 0; k < sizeof errors / sizeof *errors; k++) {
        planted student = {0}, teacher = {.off = errors[k]};
        const mlff_bar bar = measure(&student, &teacher, rest, 64);
        assert_true(fabs(bar.value - 1e3 * errors[k]) < 1e-6);
        assert_int_equal(bar.state, errors[k] > 0.05 ? MLFF_BAR_FAILED : MLFF_BAR_PASSED);
        assert_int_equal(teacher.n_calls, 64);
        assert_non_null(strstr(bar.text, "64 structures (32 at 300 K: "));
    }
}

// More than wait until a run has ended.
static void test_many_structures(void **state)
{
    (void)state;
    planted student = {0}, teacher = {.off = 0.01};
    const mlff_bar bar = measure(&student, &teacher, rest, 1208);
    assert_true(fabs(bar.value - 10) < 1e-6);
    assert_int_equal(teacher.n_calls, 1208);
    assert_non_null(strstr(bar.text, "1208 structures (604 at 300 K: "));
}

// Structures at which the teacher fails are left out and told; of too many of them nothing is said of the others.
static void test_failing_teacher(void **state)
{
    (void)state;
    for (int every = 1; every <= 8; every *= 2) {
        planted student = {0}, teacher = {.off = 0.01, .fail_every = every};
        const mlff_bar bar = measure(&student, &teacher, rest, 64);
        assert_int_equal(bar.state, every <= 2 ? MLFF_BAR_NOT_MEASURED : MLFF_BAR_PASSED);
        char told[80];
        snprintf(told, sizeof told, "the teacher fails at %d more: no convergence", 64 / every);
        if (!strstr(bar.text, told)) fail_msg("%s", bar.text);
        if (every > 1) assert_true(fabs(bar.value - 10) < 1e-6);
    }
}

// Dynamics of the student that end are its failure, whatever the structures before them say.
static void test_failing_student(void **state)
{
    (void)state;
    planted student = {.n_good = 4000}, teacher = {0};
    const mlff_bar bar = measure(&student, &teacher, rest, 64);
    assert_int_equal(bar.state, MLFF_BAR_FAILED);
    assert_non_null(strstr(bar.text, "the student's dynamics ended: "));
}

// Forces on fixed atoms are of no account; without others, and without a teacher, nothing is measured.
static void test_nothing_to_compare(void **state)
{
    (void)state;
    mlff_system *fixed;
    planted student = {0}, teacher = {.off = 0.01};
    assert_ok(mlff_system_copy(rest, &fixed));
    assert_ok(mlff_system_add_fixed(fixed));
    for (int i = 0; i < fixed->n_atoms; i++) fixed->fixed[i] = i < 5;
    mlff_bar bar = measure(&student, &teacher, fixed, 16);
    assert_int_equal(bar.state, MLFF_BAR_PASSED);
    assert_true(fabs(bar.value - 10) < 1e-6);
    bar = measure(&student, NULL, rest, 16);
    assert_int_equal(bar.state, MLFF_BAR_NOT_MEASURED);
    assert_true(isnan(bar.value));
    mlff_system_destroy(fixed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_planted_errors),  cmocka_unit_test(test_many_structures),    cmocka_unit_test(test_failing_teacher),
        cmocka_unit_test(test_failing_student), cmocka_unit_test(test_nothing_to_compare),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
