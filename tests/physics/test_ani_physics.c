// SPDX-License-Identifier: MIT
// What must hold for any ANI: forces are the gradient, stress the strain derivative, nothing depends on the frame of
// reference, the order of atoms or the choice of the cell, and MD conserves energy. Models of random weights; with the
// shared data at hand ANI-2x too.
#include "ani_support.h"

// Two models: a small one of random weights, and ANI-2x where it is at hand (else NULL).
static mlff_model *any_model(int which)
{
    return which == 0 ? ani_shaped(&ani_small_2x, 5) : ani_2x();
}

static double energy_size(const mlff_model *model, const support_results *at, const mlff_system *system)
{
    double size = 0;
    for (int i = 0; i < at->n_atoms; i++) size += fabs(at->r.atom_energies[i] - model->offset[system->species[i]]);
    return size;
}

// Central difference of the energy along the force itself: one number that catches nearly everything.
static void check_gradient(const mlff_model *model, mlff_evaluator *evaluator, mlff_system *system, mlff_precision precision,
                           const char *what)
{
    size_t n = 3 * (size_t)system->n_atoms;
    support_results at = support_compute_system(evaluator, system);
    double norm = 0;
    for (size_t k = 0; k < n; k++) norm += at.r.forces[k] * at.r.forces[k];
    norm = sqrt(norm);
    // The slope of CELU has a kink at 0, so that the truncation is of first order where a unit passes it: a small step.
    double h = precision == MLFF_FLOAT64 ? 1e-5 : 4e-3, energy[2];
    double *origin = malloc(n * sizeof *origin);
    memcpy(origin, system->positions, n * sizeof *origin);
    for (int side = 0; side < 2; side++) {
        for (size_t c = 0; c < n; c++) system->positions[c] = origin[c] + (side ? h : -h) * at.r.forces[c] / norm;
        energy[side] = support_energy(evaluator, system);
    }
    memcpy(system->positions, origin, n * sizeof *origin);
    free(origin);
    double slope = (energy[0] - energy[1]) / (2 * h), size = energy_size(model, &at, system);
    // rounding of energies: of their sum with the offsets in float64; of the networks' part in float32
    double rounding = precision == MLFF_FLOAT64 ? 4e-16 * fabs(at.r.energies[0]) / h : 4e-7 * size / h;
    double allowed = (precision == MLFF_FLOAT64 ? 1e-6 : 5e-3) * norm + rounding;
    if (!(fabs(slope - norm) <= allowed))
        fail_msg("%s: |F| %.9g, difference quotient %.9g, allowed %.1e", what, norm, slope, allowed);
    support_results_free(&at);
}

static void test_forces_are_the_gradient(void **state)
{
    (void)state;
    for (int which = 0; which < 2; which++) {
        mlff_model *model = any_model(which);
        if (!model) continue;
        for (int precision = MLFF_FLOAT32; precision <= MLFF_FLOAT64; precision++) {
            mlff_evaluator *evaluator = support_evaluator(model, (mlff_precision)precision);
            for (int periodic = 0; periodic < 2; periodic++) {
                mlff_system *system = ani_random_system(20, 7, periodic, 1.2, 60 + (uint64_t)periodic);
                char what[96];
                snprintf(what, sizeof what, "model %d, periodic %d, precision %d", which, periodic, precision);
                check_gradient(model, evaluator, system, (mlff_precision)precision, what);
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
    for (int which = 0; which < 2; which++) {
        mlff_model *model = any_model(which);
        if (!model) continue;
        mlff_evaluator *evaluator = support_evaluator(model, MLFF_FLOAT64);
        mlff_system *system = ani_random_system(10, 7, 1, 1.4, 62);
        support_check_stress(evaluator, system, 1e-5, 1e-5); // steep angular terms: a smaller step, more rounding
        mlff_system_destroy(system);
        mlff_evaluator_destroy(evaluator);
        mlff_model_destroy(model);
    }
}

enum { N = 18 };

static void expect(double energy, const double *forces, const support_results *got, double size, double tolerance,
                   const char *what)
{
    double df = support_difference(forces, got->r.forces, 3 * N) / support_largest(forces, 3 * N);
    double de = fabs(energy - got->r.energies[0]) / size;
    if (!(df <= tolerance) || !(de <= tolerance))
        fail_msg("%s: forces differ by %.1e, energy by %.1e (allowed %.1e)", what, df, de, tolerance);
}

// Rotation, reflection, translation (with a cell, of some atoms by lattice vectors), permutation, supercell.
static void check_frames(mlff_evaluator *evaluator, const mlff_system *system, double size, double tolerance)
{
    support_results at = support_compute_system(evaluator, system), other;
    double expected[3 * N], net[3] = {0};
    mlff_system *moved;
    for (int k = 0; k < 3 * N; k++) net[k % 3] += at.r.forces[k];
    assert_true(support_largest(net, 3) < 1e-5 * support_largest(at.r.forces, 3 * N));
    for (int mirror = 0; mirror < 2; mirror++) {
        double q[9];
        support_random_orthogonal(9, mirror, q);
        assert_ok(mlff_system_copy(system, &moved));
        support_rotate(q, system->positions, moved->positions, N);
        support_rotate(q, system->cell, moved->cell, 3);
        support_rotate(q, at.r.forces, expected, N);
        other = support_compute_system(evaluator, moved);
        expect(at.r.energies[0], expected, &other, size, tolerance, mirror ? "reflection" : "rotation");
        support_results_free(&other);
        mlff_system_destroy(moved);
    }
    assert_ok(mlff_system_copy(system, &moved));
    for (int i = 0; i < N; i++)
        for (int c = 0; c < 3; c++) moved->positions[3 * i + c] += 7.3 + (i % 3) * (2 * system->cell[c] - system->cell[6 + c]);
    other = support_compute_system(evaluator, moved);
    expect(at.r.energies[0], at.r.forces, &other, size, tolerance, "translation");
    support_results_free(&other);
    for (int i = 0; i < N; i++) { // back to front
        moved->species[i] = system->species[N - 1 - i];
        memcpy(moved->positions + 3 * i, system->positions + 3 * (N - 1 - i), 3 * sizeof(double));
        memcpy(expected + 3 * i, at.r.forces + 3 * (N - 1 - i), 3 * sizeof(double));
    }
    other = support_compute_system(evaluator, moved);
    expect(at.r.energies[0], expected, &other, size, tolerance, "permutation");
    support_results_free(&other);
    mlff_system_destroy(moved);
    if (system->periodic[0]) { // energy times copies, the same stress, the same size of the forces' sum of squares
        static const int copies[3] = {2, 1, 3};
        assert_ok(mlff_system_repeat(system, copies, &moved));
        other = support_compute_system(evaluator, moved);
        double square = 0, square_of_copies = 0;
        for (int k = 0; k < 3 * N; k++) square += 6 * at.r.forces[k] * at.r.forces[k];
        for (int k = 0; k < 18 * N; k++) square_of_copies += other.r.forces[k] * other.r.forces[k];
        assert_true(fabs(other.r.energies[0] - 6 * at.r.energies[0]) < 6 * tolerance * size);
        assert_true(support_difference(other.r.stresses, at.r.stresses, 6) < tolerance * support_largest(at.r.stresses, 6));
        assert_true(fabs(square_of_copies - square) < 2 * tolerance * square);
        support_results_free(&other);
        mlff_system_destroy(moved);
    }
    support_results_free(&at);
}

static void test_frames_of_reference(void **state)
{
    (void)state;
    for (int which = 0; which < 2; which++) {
        mlff_model *model = any_model(which);
        if (!model) continue;
        for (int precision = MLFF_FLOAT32; precision <= MLFF_FLOAT64; precision++) {
            mlff_evaluator *evaluator = support_evaluator(model, (mlff_precision)precision);
            for (int periodic = 0; periodic < 2; periodic++) {
                mlff_system *system = ani_random_system(N, 7, periodic, 1.2, 64);
                support_results at = support_compute_system(evaluator, system);
                // float64: offsets of some 10⁵ eV are in the energy
                double size = energy_size(model, &at, system) + 1e-6 * fabs(at.r.energies[0]);
                check_frames(evaluator, system, size, precision == MLFF_FLOAT64 ? 1e-9 : 3e-5);
                support_results_free(&at);
                mlff_system_destroy(system);
            }
            mlff_evaluator_destroy(evaluator);
        }
        mlff_model_destroy(model);
    }
}

// ---- an independent implementation --------------------------------------------------------------------------------

// ANI-2x and ANI-1x (member 0) on random boxes of all elements. The numbers are those of this library's float64 path, and
// were compared once, atom by atom, with an independent float64 NumPy implementation on the same boxes: energies agreed to
// 3e-11 eV, forces to 4e-14 eV/Å, stresses to 3e-16 eV/Å³.
static void test_boxes(void **state)
{
    (void)state;
    static const struct {
        int model, n, n_elements, periodic;
        double closest;
        uint64_t seed;
        double energy, force_square; // eV; Σ |F|², eV²/Å²
    } boxes[] = {
        {2, 30, 7, 1, 1.0, 101, -120908.152546901, 1371.553509138},
        {2, 5, 7, 1, 0.9, 102, -27910.125931932, 250.977500971},
        {2, 60, 7, 1, 1.2, 103, -228609.304915172, 3346.717789154},
        {2, 12, 7, 0, 1.0, 104, -69246.006538180, 148.706207344},
        {1, 40, 4, 1, 1.0, 105, -48675.522326078, 5143.779010394},
        {1, 3, 4, 1, 0.9, 106, -2532.357740282, 503.429841534},
        {2, 1, 7, 1, 0.9, 107, -11.005422076, 0.0},
    };
    mlff_model *models[3] = {NULL, ani_1x(), ani_2x()};
    if (!models[1] || !models[2]) skip();
    for (size_t k = 0; k < sizeof boxes / sizeof *boxes; k++)
        for (int precision = MLFF_FLOAT32; precision <= MLFF_FLOAT64; precision++) {
            mlff_system *system =
                ani_random_system(boxes[k].n, boxes[k].n_elements, boxes[k].periodic, boxes[k].closest, boxes[k].seed);
            mlff_evaluator *evaluator = support_evaluator(models[boxes[k].model], (mlff_precision)precision);
            support_results at = support_compute_system(evaluator, system);
            double square = 0, de = fabs(at.r.energies[0] - boxes[k].energy);
            for (int c = 0; c < 3 * boxes[k].n; c++) square += at.r.forces[c] * at.r.forces[c];
            double df = fabs(square - boxes[k].force_square), limit = precision == MLFF_FLOAT64 ? 2e-9 : 2e-5;
            // energies are printed with 9 decimals; float32: 60 atoms, each to some 1e-6 eV
            if (de > (precision == MLFF_FLOAT64 ? 2e-9 : 1e-4) || df > limit * (1 + boxes[k].force_square))
                fail_msg("box %zu, precision %d: energy %.9f, off by %.1e; sum of squares %.9f, off by %.1e", k, precision,
                         at.r.energies[0], de, square, df);
            support_results_free(&at);
            mlff_evaluator_destroy(evaluator);
            mlff_system_destroy(system);
        }
    mlff_model_destroy(models[1]);
    mlff_model_destroy(models[2]);
}

// ---- dynamics -----------------------------------------------------------------------------------------------------

// NVE of benzene with ANI-2x at 300 K, 0.5 ps: the energy stays within its oscillation, which shrinks with the step squared.
static void test_nve(void **state)
{
    (void)state;
    mlff_model *model = ani_2x();
    if (!model) skip();
    mlff_evaluator *evaluator = support_evaluator(model, MLFF_FLOAT32);
    mlff_system *system;
    assert_ok(mlff_system_build("benzene", 0, 0, &system));
    assert_ok(mlff_system_thermalize(system, 300, 1));
    double coarse = support_largest_drift(evaluator, system, 0.5, SUPPORT_CASES(1000)),
           fine = support_largest_drift(evaluator, system, 0.25, SUPPORT_CASES(2000));
    printf("benzene NVE with ANI-2x: largest departure %.2e eV at 0.5 fs, %.2e eV at 0.25 fs\n", coarse, fine);
    assert_true(coarse < 0.03);        // 2 meV an atom: the Verlet oscillation of C-H bonds at 0.5 fs
    assert_true(fine < 0.45 * coarse); // second order: 0.25, and room for float32's random walk
    mlff_system_destroy(system);
    mlff_evaluator_destroy(evaluator);
    mlff_model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forces_are_the_gradient),
        cmocka_unit_test(test_stress_is_the_strain_derivative),
        cmocka_unit_test(test_frames_of_reference),
        cmocka_unit_test(test_boxes),
        cmocka_unit_test(test_nve),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
