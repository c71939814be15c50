// SPDX-License-Identifier: MIT
// test_verdict_observables.c: what a verdict is measured by, against closed forms: slopes and their intervals, spectra, distances, bonds
// and contacts; the text of a bar.
#include "atoms/analysis/spectrum.h"
#include "mlff_distill.h"
#include "support.h"
#include "train/judging/analysis.h"
#include "train/judging/verdict.h"

static void test_slope(void **state)
{
    (void)state;
    enum { N = 2000 };
    static double x[N], y[N];
    int covered = 0;
    for (int k = 0; k < N; k++) y[k] = 3 + 0.25 * k;
    double slope, half;
    base_slope(NULL, y, N, 10, &slope, &half);
    assert_true(fabs(slope - 0.25) < 1e-12 && half < 1e-12);
    for (int k = 0; k < N; k++) { // unequal intervals
        x[k] = k < 8 ? k : 100.0 * (k - 7);
        y[k] = -1e5 + 0.5 * x[k];
    }
    base_slope(x, y, N, 10, &slope, &half);
    assert_true(fabs(slope - 0.5) < 1e-12 && half < 1e-12);
    for (int trial = 0; trial < 200; trial++) { // correlated noise: the interval covers the planted slope about 95 times in 100
        double noise = 0;
        for (int k = 0; k < N; k++) {
            noise = 0.98 * noise + base_random_normal(1, (uint64_t)trial, (uint64_t)k);
            y[k] = 1e-3 * k + noise;
        }
        base_slope(NULL, y, N, 10, &slope, &half);
        covered += fabs(slope - 1e-3) <= half;
    }
    if (covered < 176 || covered > 199)
        fail_msg("the 95 %% interval covers %d of 200", covered); // binomial at 0.9 … 0.98, 3 sigma
}

// Planted drifts at half and at twice the limit in correlated noise, looked at up to three times, as a verdict looks at a run that is made
// longer: how often the wrong side is told, and how often none.
static void test_sides_of_a_limit(void **state)
{
    (void)state;
    enum { N = 500, LOOKS = 3, TRIALS = SUPPORT_CASES(400) };
    static double y[4 * N];
    static const double noises[] = {0.01, 0.03, 0.1}, drifts[] = {0.5, 2}; // of the limit: 1e-4 a sample
    for (int d = 0; d < 2; d++)
        for (int s = 0; s < 3; s++) {
            int wrong = 0, none = 0;
            for (int trial = 0; trial < TRIALS; trial++) {
                analysis_slope drift = {0};
                double noise = 0;
                for (int k = 0; k < 4 * N; k++) {
                    noise = 0.9 * noise + noises[s] * base_random_normal(2 + (uint64_t)(3 * d + s), (uint64_t)trial, (uint64_t)k);
                    y[k] = -500 + 1e-4 * drifts[d] * k + noise;
                }
                for (int look = 0; look < LOOKS && !drift.decided; look++) drift = analysis_drift(y, N << look, 1e-4);
                none += !drift.decided;
                wrong += drift.decided && (fabs(drift.slope) > 1e-4) != (drifts[d] > 1);
            }
            print_message("drift of %g limits, noise %g: %d of %d told wrong, %d not told\n", drifts[d], noises[s], wrong, TRIALS,
                          none);
            assert_true(wrong <= 0.04 * TRIALS); // 0.5 % for each of three looks; the binomial's spread is 0.6 %
        }
}

static void test_spectrum(void **state)
{
    (void)state;
    enum { N = 4096, LAGS = 512 };
    static double v[3 * N], spectrum[LAGS];
    const double mass = 12, dt = 4, wavenumber = 1500; // 1/cm
    for (int k = 0; k < N; k++) v[3 * k + 1] = cos(2 * BASE_PI * wavenumber * 2.99792458e-5 * dt * k);
    double step, sum = 0;
    int peak = 0;
    assert_int_equal(spectrum_of(v, N, &mass, 1, dt, LAGS, spectrum, &step), MLFF_OK);
    for (int k = 0; k < LAGS; k++) {
        sum += spectrum[k];
        if (spectrum[k] > spectrum[peak]) peak = k;
    }
    assert_true(fabs(sum - 1) < 1e-12);
    assert_true(fabs(peak * step - wavenumber) <= step);
    assert_true(fabs(LAGS * step - 1 / (2 * dt * 2.99792458e-5)) < 1e-9); // Nyquist's wavenumber
}

static void test_distances_and_bonds(void **state)
{
    (void)state;
    mlff_system *system = NULL;
    distance_histogram histogram;
    bond_list bonds;
    double stretch;
    assert_int_equal(mlff_system_build("h2o", 0, 0, &system), MLFF_OK);
    assert_int_equal(distance_histogram_create(100, 0.05, &histogram), MLFF_OK);
    distance_histogram_add(&histogram, system);
    assert_true(histogram.total == 3); // two O-H, one H-H
    assert_int_equal(bond_list_create(system, &bonds), MLFF_OK);
    assert_int_equal(bonds.n, 2); // no bond between the hydrogens
    bond_list_worst(&bonds, system, &stretch);
    assert_true(stretch < 1e-12);
    const int h = bonds.atoms[1][system->species[bonds.atoms[1][0]] == 1 ? 0 : 1];
    for (int c = 0; c < 3; c++) system->positions[3 * h + c] += 5;
    assert_int_equal(bond_list_worst(&bonds, system, &stretch), 1);
    assert_true(stretch > 3);
    // Through a periodic cell the shifted molecule is whole again.
    for (int c = 0; c < 3; c++) system->cell[4 * c] = 5, system->periodic[c] = 1;
    bond_list_worst(&bonds, system, &stretch);
    assert_true(stretch < 1e-9);
    bond_list_free(&bonds);
    distance_histogram_free(&histogram);
    mlff_system_destroy(system);
    assert_true(analysis_distance((double[]){1, 1}, (double[]){2, 2}, 2) == 0);
    assert_true(analysis_distance((double[]){1, 0}, (double[]){0, 5}, 2) == 1);
}

// Atoms of a metal move against each other by more than a bond may: only where they collide or leave the others is that found. Oxygen
// on it has contacts too, water beside it keeps its bonds.
static void test_contacts_of_metals(void **state)
{
    (void)state;
    mlff_system *metal = NULL, *water = NULL, *both = NULL;
    bond_list bonds;
    double stretch;
    assert_ok(mlff_system_build("aluminum", 32, 0, &metal));
    assert_ok(bond_list_create(metal, &bonds));
    assert_int_equal(bonds.n, 0);
    assert_int_equal(bonds.n_in_contact, metal->n_atoms);
    contact_range range = bond_list_contacts(&bonds, metal);
    const double rest = 4.05 / sqrt(2) / (2 * 1.21); // nearest neighbors of the lattice over two radii
    assert_true(fabs(range.closest - rest) < 0.01 && fabs(range.farthest - rest) < 0.01);
    const double x = metal->positions[0];
    metal->positions[0] = x + 0.6; // allowed
    range = bond_list_contacts(&bonds, metal);
    assert_true(bond_list_worst(&bonds, metal, &stretch) == -1 && stretch == 0);
    assert_true(range.closest > 0.75 && range.farthest < 1.2);
    for (int c = 0; c < 3; c++) metal->positions[c] = metal->positions[3 + c] + (c == 0 ? 1.0 : 0.0);
    range = bond_list_contacts(&bonds, metal);
    assert_true(fabs(range.closest - 1.0 / 2.42) < 1e-6 && range.pair[0] == 0 && range.pair[1] == 1);
    metal->periodic[0] = 0;
    metal->positions[0] = 60;
    range = bond_list_contacts(&bonds, metal);
    assert_true(range.alone == 0 && range.farthest > 10);
    bond_list_free(&bonds);
    mlff_system_destroy(metal);

    assert_ok(mlff_system_build("h2o", 0, 0, &water));
    assert_ok(mlff_system_create(5, &both));
    memcpy(both->species, water->species, 3 * sizeof *both->species);
    memcpy(both->positions, water->positions, 9 * sizeof(double));
    for (int i = 3; i < 5; i++) { // Cu and O, 1.8 Å from each other, 10 Å from the molecule
        both->species[i] = i == 3 ? 29 : 8;
        both->positions[3 * i] = 10 + 1.8 * (i - 3);
    }
    assert_ok(bond_list_create(both, &bonds));
    assert_true(bonds.n == 2 && bonds.n_in_contact == 2 && !bonds.in_contact[0] && bonds.in_contact[3] && bonds.in_contact[4]);
    bond_list_free(&bonds);
    mlff_system_destroy(both);
    mlff_system_destroy(water);
}

// A text that is longer than its room ends with a whole character.
static void test_text_of_a_bar(void **state)
{
    (void)state;
    mlff_bar bar = {0};
    verdict_say(&bar, "%s", "");
    assert_string_equal(bar.text, "");
    verdict_say(&bar, "1 meV/Å³");
    assert_string_equal(bar.text, "1 meV/Å³");
    const int room = sizeof bar.text;
    for (int before = room - 20; before < room + 10; before++) {
        verdict_say(&bar, "%*s%s", before, "", "Å³…Å³…Å³…");
        assert_in_range(strlen(bar.text), sizeof bar.text - 3, sizeof bar.text - 1);
        for (const char *at = bar.text; *at; at += base_utf8_length(at)) assert_true(base_utf8_length(at) > 0);
    }
}

// Rigid motion has no internal velocities; a stretch keeps its own.
static void test_internal_velocities(void **state)
{
    (void)state;
    static const char *const names[] = {"h2o", "ethanol"};
    for (int k = 0; k < 2; k++) {
        mlff_system *system = NULL;
        assert_int_equal(mlff_system_build(names[k], 0, 0, &system), MLFF_OK);
        assert_int_equal(mlff_system_add_velocities(system), MLFF_OK);
        assert_int_equal(mlff_system_add_masses(system), MLFF_OK);
        double *internal = calloc(3 * (size_t)system->n_atoms, sizeof *internal), omega[3] = {0.01, -0.02, 0.03};
        assert_non_null(internal);
        for (int i = 0; i < system->n_atoms; i++)
            for (int a = 0; a < 3; a++) {
                const int b = (a + 1) % 3, c = (a + 2) % 3;
                system->velocities[3 * i + a] =
                    0.5 + omega[b] * system->positions[3 * i + c] - omega[c] * system->positions[3 * i + b];
            }
        spectrum_velocities(system, internal);
        for (int c = 0; c < 3 * system->n_atoms; c++) assert_true(fabs(internal[c]) < 1e-8); // ε of the inertia: 1e-9
        free(internal);
        mlff_system_destroy(system);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slope),
        cmocka_unit_test(test_sides_of_a_limit),
        cmocka_unit_test(test_spectrum),
        cmocka_unit_test(test_distances_and_bonds),
        cmocka_unit_test(test_contacts_of_metals),
        cmocka_unit_test(test_text_of_a_bar),
        cmocka_unit_test(test_internal_velocities),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
