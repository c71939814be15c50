// SPDX-License-Identifier: MIT
// test_vibrations.c: harmonic frequencies against second differences of the energy along each mode, under rotation and other masses, of a
// crystal, a linear molecule, and with fixed atoms.
#include "mlff.h"
#include "support.h"

static mlff_model *model(void)
{
    mlff_model *m;
    assert_ok(support_create(&m, "painn", "n_features=16; n_layers=2; n_radial=8; cutoff=4.0; seed=3"));
    return m;
}

static double energy_of(mlff_evaluator *evaluator, const mlff_system *system)
{
    support_results results = support_compute_system(evaluator, system);
    const double energy = results.r.energies[0];
    support_results_free(&results);
    return energy;
}

// ω² of a mode x (length 1) from E(x0 + d x) + E(x0 - d x) - 2 E(x0) = d² xᵀK x and ω² = xᵀK x / xᵀM x.
static void check_energies(mlff_evaluator *evaluator, const mlff_system *system, const mlff_vibrations *v)
{
    const size_t n = 3 * (size_t)system->n_atoms;
    const double d = 0.003, middle = energy_of(evaluator, system);
    for (int k = 0; k < v->n_modes; k++) {
        const double *x = v->displacements + n * (size_t)k;
        mlff_system *moved;
        double sum = 0, inertia = 0, length = 0;
        for (int side = -1; side <= 1; side += 2) {
            assert_ok(mlff_system_copy(system, &moved));
            for (size_t a = 0; a < n; a++) moved->positions[a] += side * d * x[a];
            sum += energy_of(evaluator, moved) - middle;
            mlff_system_destroy(moved);
        }
        for (size_t a = 0; a < n; a++) {
            inertia += (system->masses ? system->masses[a / 3] : mlff_element_mass(system->species[a / 3])) * x[a] * x[a];
            length += x[a] * x[a];
        }
        const double square = sum / (d * d) / (inertia * BASE_AMU_ANG2_FS2_EV);
        const double expected = copysign(sqrt(fabs(square)), square) / (2 * BASE_PI * 2.99792458e-5);
        assert_true(fabs(length - 1) < 1e-12);
        // Quartic terms: d² of a relative curvature of some 10 /Å². Away from a minimum a soft mode also feels the projection.
        if (fabs(v->wavenumbers[k] - expected) > 3e-3 * fabs(expected) + 2)
            fail_msg("mode %d: %g /cm, from energies %g", k, v->wavenumbers[k], expected);
    }
}

// Without symmetry: where vector features vanish by symmetry, their norms in PaiNN have a kink and the energy no second derivative.
static mlff_system *molecule(const char *name)
{
    mlff_system *system;
    assert_ok(mlff_system_build(name, 0, 0, &system));
    assert_ok(mlff_system_perturb(system, 900, 5));
    return system;
}

static void frequencies_are_curvatures(void **state)
{
    (void)state;
    mlff_model *m = model();
    mlff_evaluator *evaluator = support_evaluator(m, MLFF_FLOAT64);
    mlff_system *system = molecule("methane"), *crystal;
    mlff_vibrations v;
    assert_ok(mlff_vibrations_compute(evaluator, system, NULL, &v));
    assert_int_equal(v.n_rigid, 6);
    assert_int_equal(v.n_modes, 9);
    for (int k = 1; k < v.n_modes; k++) assert_true(v.wavenumbers[k] >= v.wavenumbers[k - 1]);
    for (int r = 0; r < 3; r++) assert_true(fabs(v.rigid_wavenumbers[r]) < 1); // translations: exact but for rounding
    check_energies(evaluator, system, &v);
    mlff_vibrations_free(NULL);
    mlff_vibrations_free(&v);
    assert_ok(mlff_system_build("silicon", 8, 0, &crystal));
    assert_ok(mlff_system_perturb(crystal, 900, 5));
    assert_ok(mlff_vibrations_compute(evaluator, crystal, NULL, &v));
    assert_int_equal(v.n_rigid, 3);
    assert_int_equal(v.n_modes, 21);
    check_energies(evaluator, crystal, &v);
    mlff_vibrations_free(&v);
    mlff_system_destroy(crystal);
    mlff_system_destroy(system);
    mlff_evaluator_destroy(evaluator);
    mlff_model_destroy(m);
}

// Two atoms of silicon at the Γ point: three acoustic modes at 0, and three optical ones that the cubic group makes equal.
static void silicon_at_gamma(void **state)
{
    (void)state;
    const double cell[9] = {0, 2.715, 2.715, 2.715, 0, 2.715, 2.715, 2.715, 0};
    mlff_model *m = model();
    mlff_evaluator *evaluator = support_evaluator(m, MLFF_FLOAT64);
    mlff_system *system;
    mlff_vibrations v;
    assert_ok(mlff_system_create(2, &system));
    for (int k = 0; k < 9; k++) system->cell[k] = cell[k];
    for (int i = 0; i < 2; i++) {
        system->species[i] = 14;
        for (int c = 0; c < 3; c++) system->positions[3 * i + c] = i * 1.3575;
    }
    memset(system->periodic, 1, 3);
    assert_ok(mlff_vibrations_compute(evaluator, system, NULL, &v));
    assert_int_equal(v.n_rigid, 3);
    assert_int_equal(v.n_modes, 3);
    for (int r = 0; r < 3; r++) assert_true(fabs(v.rigid_wavenumbers[r]) < 1);
    assert_true(fabs(v.wavenumbers[0]) > 10);
    for (int k = 1; k < 3; k++)
        if (!(fabs(v.wavenumbers[k] - v.wavenumbers[0]) < 1e-4 * fabs(v.wavenumbers[0]))) // float64 forces over 0.01 Å
            fail_msg("mode %d at %.6f, mode 0 at %.6f", k, v.wavenumbers[k], v.wavenumbers[0]);
    mlff_vibrations_free(&v);
    mlff_system_destroy(system);
    mlff_evaluator_destroy(evaluator);
    mlff_model_destroy(m);
}

static void rotation_and_masses(void **state)
{
    (void)state;
    mlff_model *m = model();
    mlff_evaluator *evaluator = support_evaluator(m, MLFF_FLOAT64);
    mlff_system *system = molecule("h2o"), *turned, *heavy;
    mlff_vibrations v, other;
    assert_ok(mlff_vibrations_compute(evaluator, system, NULL, &v));
    assert_ok(mlff_system_copy(system, &turned));
    const double c = cos(0.7), s = sin(0.7);
    for (int i = 0; i < 3; i++) {
        double *x = turned->positions + 3 * (size_t)i, old[3] = {x[0], x[1], x[2]};
        x[0] = c * old[0] - s * old[2] + 5;
        x[1] = old[1] - 3;
        x[2] = s * old[0] + c * old[2];
    }
    assert_ok(mlff_vibrations_compute(evaluator, turned, NULL, &other));
    for (int k = 0; k < 3; k++) // truncation of differences depends on the axes: h² of it
        assert_true(fabs(v.wavenumbers[k] - other.wavenumbers[k]) < 1e-3 * fabs(v.wavenumbers[k]) + 1);
    mlff_vibrations_free(&other);
    assert_ok(mlff_system_copy(system, &heavy));
    if (!heavy->masses) assert_ok(mlff_system_add_masses(heavy));
    for (int i = 0; i < 3; i++) heavy->masses[i] = 4 * mlff_element_mass(heavy->species[i]);
    assert_ok(mlff_vibrations_compute(evaluator, heavy, NULL, &other));
    for (int k = 0; k < 3; k++)
        assert_true(fabs(v.wavenumbers[k] - 2 * other.wavenumbers[k]) < 1e-6 * fabs(v.wavenumbers[k]) + 1e-3);
    mlff_vibrations_free(&other);
    mlff_vibrations_free(&v);
    mlff_system_destroy(heavy);
    mlff_system_destroy(turned);
    mlff_system_destroy(system);
    mlff_evaluator_destroy(evaluator);
    mlff_model_destroy(m);
}

// A chain turns about its own axis: no mode has an angular momentum about it.
static void chain_turns(void **state)
{
    (void)state;
    mlff_model *m = model();
    mlff_evaluator *evaluator = support_evaluator(m, MLFF_FLOAT64);
    mlff_system *system = molecule("h2o");
    mlff_vibrations v;
    system->periodic[1] = 1;
    system->cell[4] = 3, system->cell[5] = 4;
    assert_ok(mlff_vibrations_compute(evaluator, system, NULL, &v));
    assert_int_equal(v.n_rigid, 4);
    assert_int_equal(v.n_modes, 5);
    for (int k = 0; k < v.n_modes; k++) {
        double momentum = 0; // about (0, 3, 4) / 5
        for (int i = 0; i < 3; i++) {
            const double *d = v.displacements + 9 * k + 3 * i, *x = system->positions + 3 * i;
            momentum +=
                mlff_element_mass(system->species[i]) * (0.6 * (x[2] * d[0] - x[0] * d[2]) + 0.8 * (x[0] * d[1] - x[1] * d[0]));
        }
        if (fabs(momentum) > 1e-9) fail_msg("mode %d turns: %g amu Å²", k, momentum); // rounding of some amu Å²
    }
    mlff_vibrations_free(&v);
    mlff_system_destroy(system);
    mlff_evaluator_destroy(evaluator);
    mlff_model_destroy(m);
}

static void fixed_and_refused(void **state)
{
    (void)state;
    mlff_model *m = model();
    mlff_evaluator *evaluator = support_evaluator(m, MLFF_FLOAT64);
    mlff_system *system = molecule("h2o"), *pair;
    mlff_vibrations v;
    mlff_vibrations_options wide = mlff_vibrations_options_default();
    wide.step = 1.0;
    assert_int_equal(mlff_vibrations_compute(evaluator, system, &wide, &v), MLFF_ERR_USAGE);
    assert_int_equal(mlff_vibrations_compute(NULL, system, NULL, &v), MLFF_ERR_USAGE);
    assert_int_equal(mlff_vibrations_compute(evaluator, NULL, NULL, &v), MLFF_ERR_USAGE);
    assert_int_equal(mlff_vibrations_compute(evaluator, system, NULL, NULL), MLFF_ERR_USAGE);
    if (!system->fixed) assert_ok(mlff_system_add_fixed(system));
    system->fixed[0] = 1;
    assert_ok(mlff_vibrations_compute(evaluator, system, NULL, &v));
    assert_int_equal(v.n_rigid, 0);
    assert_int_equal(v.n_modes, 6);
    for (int k = 0; k < 6; k++)
        for (int axis = 0; axis < 3; axis++) assert_true(v.displacements[9 * k + axis] == 0);
    check_energies(evaluator, system, &v);
    mlff_vibrations_free(&v);
    for (int i = 0; i < 3; i++) system->fixed[i] = 1;
    assert_int_equal(mlff_vibrations_compute(evaluator, system, NULL, &v), MLFF_ERR_USAGE);
    assert_ok(mlff_system_create(2, &pair));
    pair->species[0] = 6;
    pair->species[1] = 8;
    pair->positions[5] = 1.2; // no vector feature of this network passes zero near it
    assert_ok(mlff_vibrations_compute(evaluator, pair, NULL, &v));
    assert_int_equal(v.n_rigid, 5);
    assert_int_equal(v.n_modes, 1);
    check_energies(evaluator, pair, &v);
    mlff_vibrations_free(&v);
    mlff_system_destroy(pair);
    mlff_system_destroy(system);
    mlff_evaluator_destroy(evaluator);
    mlff_model_destroy(m);
}

// Atoms that no force holds move freely, as the whole does: of 9 + 3 motions without a force 6 are those of the whole. Which ones mixed
// with them depends on rounding, and with it whether the molecule's vibration was there.
static void free_atoms_keep_the_vibration(void **state)
{
    (void)state;
    mlff_model *m = model();
    mlff_evaluator *evaluator = support_evaluator(m, MLFF_FLOAT64);
    mlff_vibrations v, alone;
    mlff_system *pair;
    assert_ok(mlff_system_create(2, &pair));
    for (int i = 0; i < 2; i++) pair->species[i] = 6;
    pair->positions[3] = 0.8, pair->positions[4] = 0.3, pair->positions[5] = 0.1;
    assert_ok(mlff_vibrations_compute(evaluator, pair, NULL, &alone));
    assert_int_equal(alone.n_modes, 1);
    for (uint64_t seed = 0; seed < 100; seed++) {
        mlff_system *system;
        double nearest = INFINITY;
        assert_ok(mlff_system_create(4, &system));
        memcpy(system->positions, pair->positions, 6 * sizeof(double));
        for (int i = 0; i < 4; i++) system->species[i] = i < 2 ? 6 : 2;
        for (int k = 6; k < 12; k++) system->positions[k] = 100 * (k / 3 - 1) + 30 * base_random_normal(seed, 0, (uint64_t)k);
        assert_ok(mlff_vibrations_compute(evaluator, system, NULL, &v));
        assert_int_equal(v.n_modes, 6);
        for (int k = 0; k < 6; k++) {
            double momentum[3] = {0}, length = 0;
            for (int a = 0; a < 12; a++) {
                momentum[a % 3] += mlff_element_mass(system->species[a / 3]) * v.displacements[12 * k + a];
                length += v.displacements[12 * k + a] * v.displacements[12 * k + a];
            }
            nearest = fmin(nearest, fabs(v.wavenumbers[k] - alone.wavenumbers[0]));
            if (!(fabs(length - 1) < 1e-9)) fail_msg("seed %d: mode %d has the length %g", (int)seed, k, length);
            for (int c = 0; c < 3; c++)
                if (!(fabs(momentum[c]) < 1e-6))
                    fail_msg("seed %d: mode %d moves the whole: %g amu Å", (int)seed, k, momentum[c]);
        }
        if (!(nearest < 1)) fail_msg("seed %d: no vibration near %g /cm", (int)seed, alone.wavenumbers[0]);
        mlff_vibrations_free(&v);
        mlff_system_destroy(system);
    }
    mlff_vibrations_free(&alone);
    mlff_system_destroy(pair);
    mlff_evaluator_destroy(evaluator);
    mlff_model_destroy(m);
}

typedef struct stopper {
    int64_t after, n_done, n_computations, n_modes_calls; // calls when all computations of the Hessian are done
} stopper;

static int stop(void *context, int64_t n_done, int64_t n_computations)
{
    stopper *s = context;
    assert_true(n_done >= s->n_done && n_done < n_computations);
    s->n_modes_calls += n_done == s->n_done && n_done > 0;
    s->n_done = n_done;
    s->n_computations = n_computations;
    return n_done >= s->after;
}

// Before a computation, and while eigenvectors are found, which takes longer than the forces of a large molecule by a fast model.
static void stopped(void **state)
{
    (void)state;
    mlff_model *m = model();
    mlff_evaluator *evaluator = support_evaluator(m, MLFF_FLOAT64);
    mlff_system *system = molecule("ethanol");
    mlff_vibrations v;
    mlff_vibrations_options options = mlff_vibrations_options_default();
    stopper s = {.after = INT64_MAX};
    options.progress = stop;
    options.progress_context = &s;
    assert_ok(mlff_vibrations_compute(evaluator, system, &options, &v));
    assert_int_equal(s.n_computations, 1 + 2 * 27 + 2 * 21);
    assert_true(s.n_modes_calls > 27);
    mlff_vibrations_free(&v);
    const struct {
        int64_t after;
        const char *text;
    } cases[] = {{0, "interrupted after 0 of"}, {1, "interrupted after 1 of"}, {55, "interrupted after 55 of 97 computations"}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        s = (stopper){.after = cases[k].after};
        assert_int_equal(mlff_vibrations_compute(evaluator, system, &options, &v), MLFF_ERR_INTERRUPTED);
        assert_non_null(strstr(mlff_last_error(), cases[k].text));
    }
    mlff_system_destroy(system);
    mlff_evaluator_destroy(evaluator);
    mlff_model_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frequencies_are_curvatures),
        cmocka_unit_test(silicon_at_gamma),
        cmocka_unit_test(rotation_and_masses),
        cmocka_unit_test(chain_turns),
        cmocka_unit_test(fixed_and_refused),
        cmocka_unit_test(free_atoms_keep_the_vibration),
        cmocka_unit_test(stopped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
