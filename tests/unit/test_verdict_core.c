// SPDX-License-Identifier: MIT
// test_verdict_core.c: a verdict's bar of compressed pairs, of a planted well.
#include <math.h>
#include <unistd.h>

#include "mlff_distill.h"
#include "support.h"
#include "train/judging/verdict_kept.h"

// Two hydrogen atoms: E = k/2 (d - 0.74 Å)², and below `hole` a slope of 5 eV/Å inwards, or no result below `end`.
typedef struct well {
    double stiffness, hole, end;
} well;

static mlff_status in_well(void *context, const mlff_system *system, double *energy, double *forces)
{
    const well *w = context;
    double r[3], d = 0, slope;
    for (int c = 0; c < 3; c++) r[c] = system->positions[3 + c] - system->positions[c];
    d = sqrt(r[0] * r[0] + r[1] * r[1] + r[2] * r[2]);
    if (d < w->end) return mlff_fail(MLFF_ERR_UNSTABLE, "%g Å", d);
    const double from = fmax(d, w->hole) - 0.74;
    *energy = w->stiffness / 2 * from * from - 5 * fmax(w->hole - d, 0);
    slope = d < w->hole ? 5 : w->stiffness * from;
    for (int c = 0; c < 3; c++) {
        forces[3 + c] = -slope * r[c] / d;
        forces[c] = -forces[3 + c];
    }
    return MLFF_OK;
}

// The same, with the hole only where a third atom is not at its place.
static mlff_status in_well_of_three(void *context, const mlff_system *system, double *energy, double *forces)
{
    const well *planted = context, bare = {planted->stiffness, 0, 0};
    const double *third = system->positions + 6;
    const bool moved = fabs(third[0]) + fabs(third[1]) + fabs(third[2] - 4) > 1e-9;
    for (int c = 0; c < 3; c++) forces[6 + c] = 0;
    return in_well(moved ? context : (void *)(uintptr_t)&bare, system, energy, forces);
}

static mlff_status in_well_of_cell(void *context, const mlff_system *system, double *energy, double *forces)
{
    mlff_system *nearest;
    assert_int_equal(mlff_system_copy(system, &nearest), MLFF_OK);
    for (int c = 0; c < 3; c++) {
        double *b = &nearest->positions[3 + c];
        *b -= 10 * round((*b - nearest->positions[c]) / 10);
    }
    const mlff_status status = in_well(context, nearest, energy, forces);
    mlff_system_destroy(nearest);
    return status;
}

static void test_core(void **state)
{
    (void)state;
    mlff_system *system;
    assert_int_equal(mlff_system_create(2, &system), MLFF_OK);
    system->species[0] = system->species[1] = 1;
    system->positions[5] = 0.74;
    const struct {
        well well;
        mlff_bar_state state;
        double height;             // eV
        const char *says, *inside; // inside: the hole, NULL where its energy stays above the start
    } cases[] = {
        {{72, 0, 0},
         MLFF_BAR_PASSED,
         36 * 0.43 * 0.43,
         "1 of 1 pair of elements repels", // to 0.31 Å, half the sum of covalent radii
         NULL},
        {{72, 0.45, 0}, MLFF_BAR_PASSED, 36 * 0.29 * 0.29, "attracts from 0.4", NULL},
        {{12, 0.45, 0}, MLFF_BAR_FAILED, 6 * 0.29 * 0.29, "attracts from 0.4", "; closer, the energy of H-H falls 0."},
        {{72, 0, 0.45}, MLFF_BAR_PASSED, 36 * 0.29 * 0.29, "attracts from 0.4", "; closer, the energy of H-H is not finite"},
        {{12, 0.70, 0},
         MLFF_BAR_FAILED,
         6 * 0.04 * 0.04,
         "attracts from 0.4", // attraction farther out is chemistry, the lowered rim is not
         "; closer, the energy of H-H falls "},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        well planted = cases[k].well;
        mlff_verdict verdict = {.options = mlff_verdict_options_default()};
        const verdict_run run = {.verdict = &verdict, .student = {"well", in_well, &planted}, .start = system};
        assert_int_equal(verdict_core(&run), MLFF_OK);
        const mlff_bar *bar = verdict.bars;
        // The rim lies within a step of 0.02 Å of a point of the path.
        if (bar->state != cases[k].state || fabs(bar->value - cases[k].height) > planted.stiffness * 0.43 * 0.02)
            fail_msg("case %zu: %g eV, %g planted: %s", k, bar->value, cases[k].height, bar->text);
        assert_non_null(strstr(bar->text, cases[k].says));
        if (cases[k].inside)
            assert_non_null(strstr(bar->text, cases[k].inside));
        else
            assert_null(strstr(bar->text, "closer"));
    }
    // The pair of a cell's two sides: 0.74 Å across the boundary, 9.26 Å inside. The well measures the nearest image.
    well strong = cases[0].well;
    mlff_verdict across = {.options = mlff_verdict_options_default()};
    const verdict_run in_cell = {.verdict = &across, .student = {"well", in_well_of_cell, &strong}, .start = system};
    for (int c = 0; c < 3; c++) system->cell[4 * c] = 10, system->periodic[c] = 1;
    system->positions[2] = 0.3;
    system->positions[5] = 9.56;
    assert_int_equal(verdict_core(&in_cell), MLFF_OK);
    if (fabs(across.bars[0].value - cases[0].height) > strong.stiffness * 0.43 * 0.02) fail_msg("%g eV", across.bars[0].value);
    // What cannot be measured: a pair that begins pressed, and one atom.
    for (int n = 1; n <= 2; n++) {
        mlff_system *odd;
        well planted = cases[0].well;
        mlff_verdict verdict = {.options = mlff_verdict_options_default()};
        assert_int_equal(mlff_system_create(n, &odd), MLFF_OK);
        for (int k = 0; k < n; k++) odd->species[k] = 1;
        odd->positions[3 * n - 1] = 0.2;
        const verdict_run run = {.verdict = &verdict, .student = {"well", in_well, &planted}, .start = odd};
        assert_int_equal(verdict_core(&run), MLFF_OK);
        assert_int_equal(verdict.bars[0].state, MLFF_BAR_NOT_MEASURED);
        assert_non_null(strstr(verdict.bars[0].text, n == 1 ? "no pair" : "0.20 Å apart to begin with"));
        mlff_system_destroy(odd);
    }
    mlff_system_destroy(system);
}

// A well that the structure itself does not have, but those around it.
static void test_core_of_displaced(void **state)
{
    (void)state;
    well planted = {72, 0.65, 0};
    mlff_system *system;
    mlff_verdict verdict = {.options = mlff_verdict_options_default()};
    assert_int_equal(mlff_system_create(3, &system), MLFF_OK);
    for (int k = 0; k < 3; k++) system->species[k] = 1;
    system->positions[5] = 0.74;
    system->positions[8] = 4;
    const verdict_run run = {.verdict = &verdict, .student = {"well", in_well_of_three, &planted}, .start = system};
    assert_int_equal(verdict_core(&run), MLFF_OK);
    if (verdict.bars[0].state != MLFF_BAR_FAILED || !strstr(verdict.bars[0].text, "in 16 structures"))
        fail_msg("%s", verdict.bars[0].text);
    mlff_system_destroy(system);
}

// No result where the third atom is not at its place.
static mlff_status in_well_of_start(void *context, const mlff_system *system, double *energy, double *forces)
{
    const double *third = system->positions + 6;
    if (fabs(third[0]) + fabs(third[1]) + fabs(third[2] - 4) > 1e-9) return mlff_fail(MLFF_ERR_VALUE, "an energy of nan");
    for (int c = 0; c < 3; c++) forces[6 + c] = 0;
    return in_well(context, system, energy, forces);
}

// A student that has finite forces for the structure alone does not pass by that.
static void test_core_without_displaced(void **state)
{
    (void)state;
    well planted = {72, 0, 0};
    mlff_system *system;
    mlff_verdict verdict = {.options = mlff_verdict_options_default()};
    assert_int_equal(mlff_system_create(3, &system), MLFF_OK);
    for (int k = 0; k < 3; k++) system->species[k] = 1;
    system->positions[5] = 0.74;
    system->positions[8] = 4;
    const verdict_run run = {.verdict = &verdict, .student = {"well", in_well_of_start, &planted}, .start = system};
    assert_int_equal(verdict_core(&run), MLFF_OK);
    if (verdict.bars[0].state != MLFF_BAR_FAILED || !strstr(verdict.bars[0].text, "fails at 15 structures of 15"))
        fail_msg("%s", verdict.bars[0].text);
    mlff_system_destroy(system);
}

// A bar of before is taken again at the same temperature of the displaced structures, and measured at another.
static void test_core_kept(void **state)
{
    (void)state;
    static const double kelvin[] = {500, 500, 1000};
    static const int n_kept[] = {0, 1, 0};
    char path[] = P_tmpdir "/mlff-core-XXXXXX";
    well planted = {72, 0, 0};
    mlff_system *system;
    close(mkstemp(path));
    assert_int_equal(mlff_system_create(2, &system), MLFF_OK);
    system->species[0] = system->species[1] = 1;
    system->positions[5] = 0.74;
    for (int k = 0; k < 3; k++) {
        mlff_verdict verdict = {.options = mlff_verdict_options_default()};
        const verdict_run run = {.verdict = &verdict, .student = {"well", in_well, &planted}, .start = system};
        verdict.options.hot_kelvin = kelvin[k];
        assert_int_equal(verdict_kept_open(path, "a well", verdict.options.device, &verdict.kept), MLFF_OK);
        assert_int_equal(verdict_measure(&run, VERDICT_CORE, verdict_core), MLFF_OK);
        assert_int_equal(verdict.n_kept, n_kept[k]);
        verdict_kept_free(verdict.kept);
    }
    unlink(path);
    mlff_system_destroy(system);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_core_of_displaced),
        cmocka_unit_test(test_core_without_displaced),
        cmocka_unit_test(test_core_kept),
        cmocka_unit_test(test_core),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
