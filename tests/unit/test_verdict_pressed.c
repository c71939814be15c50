// SPDX-License-Identifier: MIT
// test_verdict_pressed.c: a verdict's bar of structures with two atoms pressed together, of students that are wrong in a planted share of them.
#include <math.h>

#include "mlff_distill.h"
#include "support.h"
#include "train/judging/analysis.h"
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

enum error { OFF, NOT_FINITE, UNSTABLE, OTHER };

// Springs, whose forces are off by a multiple of the largest one, or of 10 eV/Å if that is more, or which fail, in a share of the structures.
typedef struct planted {
    double share;
    enum error error;
    double off;
    mlff_status status; // of OTHER
    double scale;       // of all forces, where it is not 0
    int n_calls, n_wrong;
} planted;

// As likely below any share as that: digits of a coordinate that no bar looks at.
static double draw(const mlff_system *system)
{
    const double digits = 1e7 * (system->positions[0] - rest->positions[0]) + 1e6 * (system->positions[4] - rest->positions[4]);
    return digits - floor(digits);
}

static mlff_status springs(void *context, const mlff_system *system, double *energy, double *forces)
{
    planted *p = context;
    double largest = 0;
    p->n_calls++;
    assert_ok(log_springs(rest, system, energy, forces));
    for (int k = 0; k < 3 * system->n_atoms; k++) {
        if (p->scale != 0) forces[k] *= p->scale;
        largest = fmax(largest, fabs(forces[k]));
    }
    if (draw(system) >= p->share) return MLFF_OK;
    p->n_wrong++;
    if (p->error == UNSTABLE) return mlff_fail(MLFF_ERR_UNSTABLE, "not finite");
    if (p->error == OTHER) return mlff_fail(p->status, "no convergence");
    forces[7] += p->error == NOT_FINITE ? NAN : p->off * fmax(largest, 10);
    return MLFF_OK;
}

// The bar alone, of `start`.
static mlff_bar measure(planted *student, planted *teacher, const mlff_system *start, uint64_t seed, int n_pressed)
{
    mlff_verdict verdict = {.options = mlff_verdict_options_default()};
    verdict.options.seed = seed;
    verdict.options.n_pressed = n_pressed;
    const mlff_force_field field = {"teacher", springs, teacher};
    const verdict_run run = {
        .verdict = &verdict, .student = {"student", springs, student}, .teacher = teacher ? &field : NULL, .start = start};
    student->n_calls = student->n_wrong = 0;
    assert_ok(verdict_pressed(&run));
    assert_int_equal(verdict.n_bars, 1);
    assert_string_equal(verdict.bars[0].name, "pressed");
    return verdict.bars[0];
}

static void assert_text(const mlff_bar *bar, mlff_bar_state state, const char *words)
{
    if (bar->state != state || !strstr(bar->text, words))
        fail_msg("state %d, %g %% ± %g: \"%s\", expected %d and \"%s\"", bar->state, bar->value, bar->uncertainty, bar->text,
                 state, words);
}

// A student that is its teacher is right everywhere; the value of others is the share of calls in which they were made wrong.
static void test_planted_shares(void **state)
{
    (void)state;
    static const struct {
        planted student;
        mlff_bar_state state;
        const char *says;
    } cases[] = {
        {{.share = 0},
         MLFF_BAR_PASSED,
         "0 of 64 structures with two atoms pressed to 0.6 of their covalent distance are wrong (0.0 to"},
        {{.share = 0.05, .off = 1e6}, MLFF_BAR_PASSED, "e+07 eV/Å off where the teacher has "},
        {{.share = 0.3, .off = 1.01}, MLFF_BAR_FAILED, " eV/Å off where the teacher has "},
        {{.share = 1, .off = 0.99}, MLFF_BAR_PASSED, "0 of 64 structures"},
        {{.share = 0.3, .error = NOT_FINITE}, MLFF_BAR_FAILED, ", forces that are not finite where the teacher has "},
        {{.share = 0.3, .error = UNSTABLE}, MLFF_BAR_FAILED, ", forces that are not finite where the teacher has "},
        {{.share = 0.1, .off = 2}, MLFF_BAR_NOT_MEASURED, " of 1024 structures with "},
        {{.share = 0.1, .off = 2}, MLFF_BAR_NOT_MEASURED, "%: too few to tell, more decide); worst: "},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        planted student = cases[k].student, teacher = {0};
        const mlff_bar bar = measure(&student, &teacher, rest, 5, 1024);
        assert_text(&bar, cases[k].state, cases[k].says);
        const int n_wrong = student.error == OFF && student.off < 1 ? 0 : student.n_wrong;
        assert_true(bar.value == 100.0 * n_wrong / student.n_calls && bar.uncertainty > 0 && bar.limit == 10);
        // Three standard deviations of the binomial: the draws are as likely as planted.
        const double share = student.share, n = student.n_calls;
        assert_true(fabs(student.n_wrong / n - share) <= 3 * sqrt(share * (1 - share) / n));
    }
}

// The same seed makes the same structures, another one others.
static void test_seeds(void **state)
{
    (void)state;
    double values[3];
    for (int k = 0; k < 3; k++) {
        planted student = {.share = 0.07, .off = 2}, teacher = {0};
        values[k] = measure(&student, &teacher, rest, k == 2, 512).value;
    }
    assert_true(values[0] == values[1] && values[0] != values[2]);
}

// How often a verdict is wrong: at 4 and 20 % none is on the wrong side or undecided, at the limit 1.3 % are decided (by the binomials 5 of 50
// or more in one series of 2000).
static void test_sides_of_the_limit(void **state)
{
    (void)state;
    enum { TRIALS = SUPPORT_CASES(50) };
    static const double shares[] = {0.04, 0.1, 0.2};
    int n_of[3][3] = {{0}};
    for (int s = 0; s < 3; s++)
        for (int trial = 0; trial < TRIALS; trial++) {
            planted student = {.share = shares[s], .off = 2}, teacher = {0};
            n_of[s][measure(&student, &teacher, rest, (uint64_t)trial, 1024).state]++;
        }
    for (int s = 0; s < 3; s++)
        printf("%.0f %% wrong: %d passed, %d failed, %d undecided\n", 100 * shares[s], n_of[s][MLFF_BAR_PASSED],
               n_of[s][MLFF_BAR_FAILED], n_of[s][MLFF_BAR_NOT_MEASURED]);
    assert_int_equal(n_of[0][MLFF_BAR_PASSED], TRIALS);
    assert_true(n_of[1][MLFF_BAR_NOT_MEASURED] >= TRIALS - 4);
    assert_int_equal(n_of[2][MLFF_BAR_FAILED], TRIALS);
}

// What is not counted: structures at which the teacher fails, gives nothing finite, or has forces that no dynamics meet.
static void test_teachers(void **state)
{
    (void)state;
    planted student = {0}, some = {.share = 0.2, .error = OTHER, .status = MLFF_ERR_UNSUPPORTED}, all = some;
    mlff_bar bar = measure(&student, &some, rest, 1, 1024);
    assert_text(&bar, MLFF_BAR_PASSED, "0 of 64 structures");
    assert_text(&bar, MLFF_BAR_PASSED, "; not counted: ");
    assert_text(&bar, MLFF_BAR_PASSED, " where the teacher fails");
    assert_int_equal(student.n_calls, 64);
    planted no_numbers = {.share = 0.2, .error = NOT_FINITE};
    bar = measure(&student, &no_numbers, rest, 1, 1024);
    assert_text(&bar, MLFF_BAR_PASSED, " where the teacher fails");
    all.share = 1;
    bar = measure(&student, &all, rest, 1, 1024);
    assert_text(&bar, MLFF_BAR_NOT_MEASURED,
                "the teacher fails at 16 of 16 structures with two atoms pressed together: no convergence");
    assert_true(isnan(bar.value) && student.n_calls == 0 && all.n_calls == 16);
    planted stiff = {.scale = 5};
    student.scale = 5;
    bar = measure(&student, &stiff, rest, 1, 1024);
    assert_text(&bar, MLFF_BAR_PASSED, " where the teacher has more than 100 eV/Å");
    student.scale = stiff.scale = 1000;
    bar = measure(&student, &stiff, rest, 1, 1024);
    assert_text(&bar, MLFF_BAR_NOT_MEASURED, "the teacher has more than 100 eV/Å in each of 2");
}

// Forces of which the largest is up to 4 eV/Å: errors of 9.9 eV/Å are not wrong, of 10.1 they are.
static void test_small_forces(void **state)
{
    (void)state;
    planted student = {.share = 1, .off = 0.99, .scale = 0.1}, teacher = {.scale = 0.1};
    mlff_bar bar = measure(&student, &teacher, rest, 1, 1024);
    assert_text(&bar, MLFF_BAR_PASSED, "0 of 64 structures");
    student.off = 1.01;
    bar = measure(&student, &teacher, rest, 1, 1024);
    assert_text(&bar, MLFF_BAR_FAILED, "64 of 64 structures");
}

static int stop(void *context, const char *what, double fraction)
{
    (void)context, (void)fraction;
    assert_string_equal(what, "atoms pressed together");
    return 1;
}

// Errors that are not of a structure end the verdict; so does the caller.
static void test_ends(void **state)
{
    (void)state;
    static const struct {
        mlff_status status;
        bool of_student;
    } cases[] = {{MLFF_ERR_INTERRUPTED, false}, {MLFF_ERR_DEVICE, false}, {MLFF_ERR_MEMORY, false}, {MLFF_ERR_DEVICE, true}};
    for (size_t k = 0; k <= sizeof cases / sizeof *cases; k++) {
        const bool by_caller = k == sizeof cases / sizeof *cases;
        planted good = {0}, bad = {.share = 0.5, .error = OTHER, .status = by_caller ? MLFF_OK : cases[k].status};
        const bool of_student = by_caller || cases[k].of_student;
        mlff_verdict verdict = {.options = mlff_verdict_options_default()};
        if (by_caller) verdict.options.callback = stop;
        const mlff_force_field field = {"teacher", springs, of_student ? &good : &bad};
        const verdict_run run = {.verdict = &verdict,
                                 .student = {"student", springs, of_student && !by_caller ? &bad : &good},
                                 .teacher = &field,
                                 .start = rest};
        assert_int_equal(verdict_pressed(&run), by_caller ? MLFF_ERR_INTERRUPTED : cases[k].status);
        assert_int_equal(verdict.n_bars, 0);
    }
}

static mlff_bar measure_atoms(int n, double apart)
{
    mlff_system *atoms;
    planted student = {0}, teacher = {0};
    assert_ok(mlff_system_create(n, &atoms));
    for (int k = 0; k < n; k++) {
        atoms->species[k] = 18;
        atoms->positions[3 * k] = apart * k;
    }
    const mlff_bar bar = measure(&student, &teacher, atoms, 0, 1024);
    mlff_system_destroy(atoms);
    return bar;
}

// Bars without a value, with what is missing; and atoms that are farther apart than those of molecules.
static void test_not_measured(void **state)
{
    (void)state;
    planted student = {0}, teacher = {0};
    mlff_bar bar = measure(&student, NULL, rest, 0, 1024);
    assert_text(&bar, MLFF_BAR_NOT_MEASURED, "no teacher to measure beside; name one, or ask for 0 pressed structures");
    bar = measure(&student, &teacher, rest, 0, 20);
    assert_text(&bar, MLFF_BAR_NOT_MEASURED, "0 of 20 structures");
    bar = measure_atoms(1, 0);
    assert_text(&bar, MLFF_BAR_NOT_MEASURED, "one atom has no pair to press");
    bar = measure_atoms(3, 3.8);
    assert_text(&bar, MLFF_BAR_PASSED, "0 of 64 structures");
    bar = measure_atoms(2, 7);
    assert_text(&bar, MLFF_BAR_NOT_MEASURED, "no atoms are within 6 Å");
}

// Clopper and Pearson's interval in closed form at the ends, and of 5 of 50 as R's binom.test and scipy have it.
static void test_interval(void **state)
{
    (void)state;
    const analysis_interval none = analysis_share(0, 64, 0.002), all = analysis_share(64, 64, 0.002),
                            five = analysis_share(5, 50, 0.025);
    assert_true(none.low == 0 && fabs(none.high - (1 - pow(0.002, 1.0 / 64))) < 1e-8);
    assert_true(all.high == 1 && fabs(all.low - pow(0.002, 1.0 / 64)) < 1e-8);
    assert_true(fabs(five.low - 0.0332750936) < 1e-8 && fabs(five.high - 0.2181353664) < 1e-8); // bisection: to 1e-9
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_planted_shares), cmocka_unit_test(test_seeds),    cmocka_unit_test(test_sides_of_the_limit),
        cmocka_unit_test(test_small_forces),   cmocka_unit_test(test_teachers), cmocka_unit_test(test_ends),
        cmocka_unit_test(test_not_measured),   cmocka_unit_test(test_interval),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
