// SPDX-License-Identifier: MIT
// What must hold for any weights: forces are the gradient, nothing depends on the frame of reference, the order of
// atoms or the choice of the cell, stress is the strain derivative, and MD conserves energy. Untrained models; with the
// shared data at hand the trained ethanol too. Runs on the device of MLFF_DEVICE.
#include "support.h"

// float32: forces carry errors of some 1e-6 of the largest; energies of 40 atoms some 1e-6 of their size.
static double force_tolerance(mlff_precision precision)
{
    return precision == MLFF_FLOAT64 ? 1e-9 : 2e-5;
}

static mlff_model *any_model(int which)
{
    return which == 0 ? support_model(128, 3, "gaussian", "cosine", 0, 5) : support_model(64, 2, "bessel", "mollifier", 1, 6);
}

// Central difference of the energy along the force itself: one number that catches nearly everything.
static void check_gradient(mlff_evaluator *evaluator, mlff_system *system, mlff_precision precision, const char *what)
{
    size_t n = 3 * (size_t)system->n_atoms;
    support_results at = support_compute_system(evaluator, system);
    double norm = 0;
    for (size_t k = 0; k < n; k++) norm += at.r.forces[k] * at.r.forces[k];
    norm = sqrt(norm);
    // Step: truncation ~ h² against rounding ~ ε E / h; 1e-3 Å in float64, 1e-2 Å in float32.
    double h = precision == MLFF_FLOAT64 ? 1e-3 : 1e-2, energy[4];
    double *origin = malloc(n * sizeof *origin);
    memcpy(origin, system->positions, n * sizeof *origin);
    for (int k = 0; k < 4; k++) {
        static const double places[4] = {-2, -1, 1, 2};
        for (size_t c = 0; c < n; c++) system->positions[c] = origin[c] + places[k] * h * at.r.forces[c] / norm;
        energy[k] = support_energy(evaluator, system);
    }
    memcpy(system->positions, origin, n * sizeof *origin);
    free(origin);
    double slope = -(energy[0] - 8 * energy[1] + 8 * energy[2] - energy[3]) / (12 * h);
    double size = 0;
    for (int i = 0; i < system->n_atoms; i++) size += fabs(at.r.atom_energies[i]);
    double allowed = precision == MLFF_FLOAT64 ? 1e-7 * norm : 1e-3 * norm + 4e-7 * size / h;
    if (!(fabs(slope - norm) <= allowed))
        fail_msg("%s: |F| %.9g, difference quotient %.9g, allowed %.1e", what, norm, slope, allowed);
    support_results_free(&at);
}

static void test_forces_are_the_gradient(void **state)
{
    (void)state;
    for (int which = 0; which < 2; which++) {
        mlff_model *model = any_model(which);
        for (int precision = MLFF_FLOAT32; precision <= MLFF_FLOAT64; precision++) {
            mlff_evaluator *evaluator = support_evaluator(model, (mlff_precision)precision);
            for (int periodic = 0; periodic < 2; periodic++) {
                mlff_system *system = support_random_system(14, periodic, 1.2, 60 + (uint64_t)periodic);
                char what[96];
                snprintf(what, sizeof what, "model %d, periodic %d, precision %d", which, periodic, precision);
                check_gradient(evaluator, system, (mlff_precision)precision, what);
                mlff_system_destroy(system);
            }
            mlff_evaluator_destroy(evaluator);
        }
        mlff_model_destroy(model);
    }
}

static void test_stress_is_the_strain_derivative(void **state)
{
    (void)state;
    mlff_model *model = any_model(0);
    mlff_evaluator *evaluator = support_evaluator(model, MLFF_FLOAT64);
    mlff_system *system = support_random_system(10, 1, 1.4, 62);
    support_check_stress(evaluator, system, 1e-4, 1e-6); // truncation: h² times the third derivative
    mlff_system_destroy(system);
    mlff_evaluator_destroy(evaluator);
    mlff_model_destroy(model);
}

// E, F and σ of a moved system against the moved results of the first.
static void expect_same(const support_results *a, const support_results *b, double tolerance, const char *what)
{
    size_t n = 3 * (size_t)a->n_atoms;
    double size = 0, df = support_difference(a->r.forces, b->r.forces, n) / support_largest(a->r.forces, n);
    for (int i = 0; i < a->n_atoms; i++) size += fabs(a->r.atom_energies[i]);
    double de = fabs(a->r.energies[0] - b->r.energies[0]) / size;
    if (!(df <= tolerance) || !(de <= tolerance))
        fail_msg("%s: forces differ by %.1e, energy by %.1e (allowed %.1e)", what, df, de, tolerance);
}

static void test_frames_of_reference(void **state)
{
    (void)state;
    for (int precision = MLFF_FLOAT32; precision <= MLFF_FLOAT64; precision++) {
        double tolerance = force_tolerance((mlff_precision)precision);
        mlff_model *model = any_model(0);
        mlff_evaluator *evaluator = support_evaluator(model, (mlff_precision)precision);
        for (int periodic = 0; periodic < 2; periodic++) {
            mlff_system *system = support_random_system(18, periodic, 1.2, 64), *moved;
            support_results at = support_compute_system(evaluator, system);

            // forces add up to nothing
            double net[3] = {0};
            for (int k = 0; k < 54; k++) net[k % 3] += at.r.forces[k];
            assert_true(support_largest(net, 3) < 1e-6 * support_largest(at.r.forces, 54));

            for (int mirror = 0; mirror < 2; mirror++) { // rotation, reflection
                double q[9];
                support_random_orthogonal(9, mirror, q);
                assert_ok(mlff_system_copy(system, &moved));
                support_rotate(q, system->positions, moved->positions, 18);
                support_rotate(q, system->cell, moved->cell, 3);
                support_results turned = support_compute_system(evaluator, moved);
                double expected[54];
                support_rotate(q, at.r.forces, expected, 18);
                memcpy(at.r.forces, expected, sizeof expected);
                expect_same(&at, &turned, tolerance, mirror ? "reflection" : "rotation");
                support_results_free(&turned);
                mlff_system_destroy(moved);
                support_results_free(&at);
                at = support_compute_system(evaluator, system);
            }

            assert_ok(mlff_system_copy(system, &moved)); // translation; with a cell, some atoms by lattice vectors
            for (int i = 0; i < 18; i++)
                for (int c = 0; c < 3; c++)
                    moved->positions[3 * i + c] += 7.3 + (i % 3) * (2 * system->cell[c] - system->cell[6 + c]);
            support_results shifted = support_compute_system(evaluator, moved);
            expect_same(&at, &shifted, tolerance, "translation");
            support_results_free(&shifted);

            for (int i = 0; i < 18; i++) { // permutation: back to front
                moved->species[i] = system->species[17 - i];
                memcpy(moved->positions + 3 * i, system->positions + 3 * (17 - i), 3 * sizeof(double));
            }
            support_results permuted = support_compute_system(evaluator, moved);
            for (int i = 0; i < 9; i++)
                for (int c = 0; c < 3; c++) {
                    double swap = permuted.r.forces[3 * i + c];
                    permuted.r.forces[3 * i + c] = permuted.r.forces[3 * (17 - i) + c];
                    permuted.r.forces[3 * (17 - i) + c] = swap;
                }
            expect_same(&at, &permuted, tolerance, "permutation");
            support_results_free(&permuted);
            mlff_system_destroy(moved);

            if (periodic) { // supercell: the same forces in each copy, the same stress, energy times copies
                static const int copies[3] = {2, 1, 3};
                assert_ok(mlff_system_repeat(system, copies, &moved));
                support_results big = support_compute_system(evaluator, moved);
                double largest = support_largest(at.r.forces, 54), size = 0;
                for (int i = 0; i < 18; i++) size += fabs(at.r.atom_energies[i]);
                assert_true(fabs(big.r.energies[0] - 6 * at.r.energies[0]) < 6 * tolerance * size);
                assert_true(support_difference(big.r.stresses, at.r.stresses, 6) < tolerance * support_largest(at.r.stresses, 6));
                for (int k = 0; k < 6; k++)
                    for (int i = 0; i < 18; i++) {
                        // copies may be laid out copy by copy: find the atom by its place
                        int at_copy = 18 * k + i;
                        double df = support_difference(big.r.forces + 3 * at_copy, at.r.forces + 3 * i, 3);
                        assert_int_equal(moved->species[at_copy], system->species[i]);
                        if (df > tolerance * largest)
                            fail_msg("supercell: atom %d of copy %d differs by %.1e of %.1e", i, k, df, largest);
                    }
                support_results_free(&big);
                mlff_system_destroy(moved);
            }
            support_results_free(&at);
            mlff_system_destroy(system);
        }
        mlff_evaluator_destroy(evaluator);
        mlff_model_destroy(model);
    }
}

// ---- dynamics -----------------------------------------------------------------------------------------------------

// NVE of trained ethanol at 300 K, 1 ps (less under sanitizers): the energy stays within its oscillation, which shrinks with the step squared.
static void test_nve_trained(void **state)
{
    (void)state;
    const char *path = support_shared("data/painn/ethanol.best_model");
    if (!path) skip();
    mlff_import_options options = mlff_import_options_default();
    options.energy_unit = "kcal/mol";
    options.elements = "H,C,O";
    mlff_model *model;
    assert_ok(mlff_model_import(path, &options, &model));
    mlff_evaluator *evaluator = support_evaluator(model, MLFF_FLOAT32);
    mlff_system *system;
    assert_ok(mlff_system_build("ethanol", 0, 0, &system));
    assert_ok(mlff_system_thermalize(system, 300, 1));
    double coarse = support_largest_drift(evaluator, system, 0.5, SUPPORT_CASES(2000)),
           fine = support_largest_drift(evaluator, system, 0.25, SUPPORT_CASES(4000));
    printf("ethanol NVE, %.3f ps: largest departure %.2e eV at 0.5 fs, %.2e eV at 0.25 fs\n", SUPPORT_CASES(2000) * 0.5e-3,
           coarse, fine);
    assert_true(coarse < 0.02);        // 2 meV an atom: the Verlet oscillation of C-H bonds at 0.5 fs
    assert_true(fine < 0.45 * coarse); // second order: 0.25, and room for float32's random walk
    mlff_system_destroy(system);
    mlff_evaluator_destroy(evaluator);
    mlff_model_destroy(model);
}

// NVE of an untrained model in a periodic box with list rebuilds: as float64 does.
static void test_nve_periodic(void **state)
{
    (void)state;
    mlff_model *model = support_model(64, 2, "gaussian", "cosine", 0, 12);
    mlff_system *system = support_random_system(24, 1, 1.8, 70);
    assert_ok(mlff_system_thermalize(system, 300, 2));
    double departure[2];
    for (int k = 0; k < 2; k++) {
        mlff_evaluator *evaluator = support_evaluator(model, k ? MLFF_FLOAT64 : MLFF_FLOAT32);
        departure[k] = support_largest_drift(evaluator, system, 0.5, SUPPORT_CASES(300));
        mlff_evaluator_destroy(evaluator);
    }
    printf("untrained box NVE: largest departure %.2e eV in float32, %.2e eV in float64\n", departure[0], departure[1]);
    assert_true(departure[0] < 1.05 * departure[1] + 1e-4);
    mlff_system_destroy(system);
    mlff_model_destroy(model);
}

// With an argument the tests whose names match it: "test_f*".
int main(int argc, char **argv)
{
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forces_are_the_gradient),
        cmocka_unit_test(test_stress_is_the_strain_derivative),
        cmocka_unit_test(test_frames_of_reference),
        cmocka_unit_test(test_nve_trained),
        cmocka_unit_test(test_nve_periodic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
