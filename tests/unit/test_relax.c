// SPDX-License-Identifier: MIT
// test_relax.c: the model Hessian of L-BFGS against a sum over coordinates whose derivatives are central differences; symmetry operations of
// crystals, whose numbers are those of their space groups, and that relaxing in a fixed cell keeps them.
#include "atoms/elements/covalent.h"
#include "atoms/relax/model_hessian.h"
#include "atoms/relax/symmetry.h"
#include "near.h"
#include "support.h"

enum { N = 4, N3 = 3 * N };

static mlff_system *made(int n, const int32_t *species, const double *positions)
{
    mlff_system *system;
    assert_ok(mlff_system_create(n, &system));
    for (int i = 0; i < n; i++) system->species[i] = species[i];
    for (int k = 0; k < 3 * n; k++) system->positions[k] = positions[k];
    return system;
}

static double distance(const double *x, int i, int j)
{
    double sum = 0;
    for (int c = 0; c < 3; c++) sum += (x[3 * i + c] - x[3 * j + c]) * (x[3 * i + c] - x[3 * j + c]);
    return sqrt(sum);
}

static double angle(const double *x, int i, int j, int k)
{
    const double a = distance(x, i, j), b = distance(x, j, k), c = distance(x, i, k);
    return acos((a * a + b * b - c * c) / (2 * a * b));
}

static double torsion(const double *x, int i, int j, int k, int l)
{
    double p[3], q[3], s[3], m[3], n[3], along = 0, cosine = 0;
    for (int c = 0; c < 3; c++) {
        p[c] = x[3 * i + c] - x[3 * j + c];
        q[c] = x[3 * k + c] - x[3 * j + c];
        s[c] = x[3 * l + c] - x[3 * k + c];
    }
    for (int c = 0; c < 3; c++) {
        const int d = (c + 1) % 3, e = (c + 2) % 3;
        m[c] = p[d] * q[e] - p[e] * q[d];
        n[c] = q[d] * s[e] - q[e] * s[d];
    }
    for (int c = 0; c < 3; c++) {
        along += p[c] * n[c];
        cosine -= m[c] * n[c];
    }
    return atan2(-along * distance(x, j, k), cosine);
}

static double coordinate(const double *x, const int *atoms, int n)
{
    if (n == 2) return distance(x, atoms[0], atoms[1]);
    return n == 3 ? angle(x, atoms[0], atoms[1], atoms[2]) : torsion(x, atoms[0], atoms[1], atoms[2], atoms[3]);
}

static void add(double *hessian, const mlff_system *system, const int *atoms, int n, double constant)
{
    double b[N3], x[N3], stiffness = constant;
    for (int k = 0; k < N3; k++) x[k] = system->positions[k];
    for (int p = 0; p + 1 < n; p++) {
        const double sum = covalent_radius(system->species[atoms[p]]) + covalent_radius(system->species[atoms[p + 1]]);
        const double rho = exp(1 - distance(x, atoms[p], atoms[p + 1]) / sum);
        if (n == 2 && rho <= 0.2) return; // softer than the floor: left out
        stiffness *= n == 2 ? rho * rho * rho : rho;
    }
    for (int k = 0; k < N3; k++) {
        const double step = 1e-5, was = x[k];
        x[k] = was + step;
        const double up = coordinate(x, atoms, n);
        x[k] = was - step;
        b[k] = (up - coordinate(x, atoms, n)) / (2 * step);
        x[k] = was;
    }
    for (int k = 0; k < N3; k++)
        for (int l = 0; l < N3; l++) hessian[N3 * k + l] += stiffness * b[k] * b[l];
}

// x of H x = force, where H is the sum by differences, is what the factor gives; one atom that is fixed is not coupled.
static void a_bent_chain(void **state)
{
    (void)state;
    const double positions[N3] = {0, 0, 0, 1.47, 0, 0.03, 2.0, 1.3, 0.1, 2.7, 1.5, 0.75}; // C-C-O-H
    for (int fixed = -1; fixed < N; fixed += 3) {
        mlff_system *system = made(N, (const int32_t[]){6, 6, 8, 1}, positions);
        double hessian[N3 * N3] = {0}, x[N3], force[N3] = {0};
        for (int i = 0; i < N; i++)
            for (int j = i + 1; j < N; j++) add(hessian, system, (int[]){i, j}, 2, 34.0);
        for (int k = 0; k < 2; k++) add(hessian, system, (int[]){k, k + 1, k + 2}, 3, 4.08);
        add(hessian, system, (int[]){0, 1, 2, 3}, 4, 1.0);
        for (int k = 0; k < N3; k++) {
            for (int l = 0; l < N3 && fixed >= 0; l++)
                if (k / 3 == fixed || l / 3 == fixed) hessian[N3 * k + l] = 0;
            hessian[(N3 + 1) * k] += 1;
            x[k] = sin(3.0 + 5 * k);
        }
        for (int k = 0; k < N3; k++)
            for (int l = 0; l < N3; l++) force[k] += hessian[N3 * k + l] * x[l];
        if (fixed >= 0) assert_ok(mlff_system_add_fixed(system));
        if (fixed >= 0) system->fixed[fixed] = 1;
        model_hessian *metric = model_hessian_create(system);
        assert_non_null(metric);
        model_hessian_update(metric, system);
        model_hessian_solve(metric, force);
        for (int k = 0; k < N3; k++) assert_near(force[k], x[k], 1e-4); // the factor is float32, the condition some 1e2
        model_hessian_destroy(metric);
        mlff_system_destroy(system);
    }
}

// Two molecules far from each other, their atoms in turn, one of them backward: each is solved as it is alone, and no row of the
// factor reaches into the other molecule.
static void molecules_are_apart(void **state)
{
    (void)state;
    const int32_t species[N] = {6, 6, 8, 1};
    const double positions[N3] = {0, 0, 0, 1.47, 0, 0.03, 2.0, 1.3, 0.1, 2.7, 1.5, 0.75};
    int32_t both_species[2 * N];
    double both_positions[2 * N3], x[N3], both_x[2 * N3];
    for (int i = 0; i < N; i++) {
        both_species[2 * i] = species[i];
        both_species[2 * i + 1] = species[N - 1 - i];
        for (int c = 0; c < 3; c++) {
            x[3 * i + c] = both_x[6 * i + c] = cos(2.0 + 7 * i + c);
            both_positions[6 * i + c] = positions[3 * i + c];
            both_positions[6 * i + 3 + c] = positions[3 * (N - 1 - i) + c] + 200;
        }
    }
    for (int i = 0; i < N; i++)
        for (int c = 0; c < 3; c++) both_x[6 * i + 3 + c] = x[3 * (N - 1 - i) + c];
    mlff_system *one = made(N, species, positions), *both = made(2 * N, both_species, both_positions);
    model_hessian *alone = model_hessian_create(one), *together = model_hessian_create(both);
    assert_non_null(alone);
    assert_non_null(together);
    model_hessian_update(alone, one);
    model_hessian_update(together, both);
    for (size_t k = 0; k < 2 * N3; k++) assert_true(together->ends[k] <= (k < N3 ? N3 : 2 * N3));
    model_hessian_solve(alone, x);
    model_hessian_solve(together, both_x);
    for (int i = 0; i < N; i++)
        for (int c = 0; c < 3; c++) {
            assert_near(both_x[6 * i + c], x[3 * i + c], 1e-4); // float32, the condition some 1e2
            assert_near(both_x[6 * i + 3 + c], x[3 * (N - 1 - i) + c], 1e-4);
        }
    model_hessian_destroy(alone);
    model_hessian_destroy(together);
    mlff_system_destroy(one);
    mlff_system_destroy(both);
}

// H-C-N is straight: across its axis H is floor + k b bᵀ, so that b is an eigenvector.
static void a_straight_angle(void **state)
{
    (void)state;
    const double positions[9] = {-1.07, 0, 0, 0, 0, 0, 1.15, 0, 0};
    mlff_system *system = made(3, (const int32_t[]){1, 6, 7}, positions);
    model_hessian *metric = model_hessian_create(system);
    assert_non_null(metric);
    model_hessian_update(metric, system);
    const double k = 4.08 * exp(1 - 1.07 / (covalent_radius(1) + covalent_radius(6))) *
                     exp(1 - 1.15 / (covalent_radius(6) + covalent_radius(7)));
    for (int c = 1; c < 3; c++) {
        const double b[3] = {1 / 1.07, -1 / 1.07 - 1 / 1.15, 1 / 1.15};
        double force[9] = {0};
        for (int i = 0; i < 3; i++) force[3 * i + c] = b[i] * (1 + k * (b[0] * b[0] + b[1] * b[1] + b[2] * b[2]));
        model_hessian_solve(metric, force);
        for (int i = 0; i < 9; i++) assert_near(force[i], i % 3 == c ? b[i / 3] : 0, 1e-5);
    }
    model_hessian_destroy(metric);
    mlff_system_destroy(system);
}

typedef struct crystal {
    const char *name;
    int n, n_operations;
    int32_t species[8];
    double cell[9], fractions[24];
} crystal;

// Orders of the point groups (48 cubic, 24 hexagonal) times the translations in the cell.
static const crystal crystals[] = {
    {"fcc, one atom", 1, 48, {13}, {0, 2, 2, 2, 0, 2, 2, 2, 0}, {0}},
    {"fcc, skewed cell", 1, 48, {13}, {0, 2, 2, 2, 2, 4, 4, 6, 6}, {0.3}},
    {"fcc, four atoms", 4, 192, {13, 13, 13, 13}, {4, 0, 0, 0, 4, 0, 0, 0, 4}, {0, 0, 0, 0, .5, .5, .5, 0, .5, .5, .5, 0}},
    {"diamond", 2, 48, {14, 14}, {0, 2.7, 2.7, 2.7, 0, 2.7, 2.7, 2.7, 0}, {0, 0, 0, .25, .25, .25}},
    {"zincblende", 2, 24, {31, 33}, {0, 2.7, 2.7, 2.7, 0, 2.7, 2.7, 2.7, 0}, {0, 0, 0, .25, .25, .25}},
    {"hcp", 2, 24, {12, 12}, {3.2, 0, 0, -1.6, 2.77128129, 0, 0, 0, 5.2}, {1. / 3, 2. / 3, .25, 2. / 3, 1. / 3, .75}},
    {"rock salt, one atom moved", 2, 8, {11, 17}, {0, 2.8, 2.8, 2.8, 0, 2.8, 2.8, 2.8, 0}, {0, 0, 0, .49, .49, .51}},
    {"triclinic", 2, 1, {11, 17}, {4, 0, 0, .3, 5, 0, .2, .7, 6}, {0, 0, 0, .4, .3, .2}},
    {"triclinic, one atom", 1, 2, {11}, {4, 0, 0, .3, 5, 0, .2, .7, 6}, {0}},
};

static mlff_system *built(const crystal *c)
{
    mlff_system *system;
    assert_ok(mlff_system_create(c->n, &system));
    for (int k = 0; k < 9; k++) system->cell[k] = c->cell[k];
    for (int i = 0; i < c->n; i++) {
        system->species[i] = c->species[i];
        for (int k = 0; k < 9; k++) system->positions[3 * i + k % 3] += c->fractions[3 * i + k / 3] * c->cell[k];
    }
    memset(system->periodic, 1, 3);
    return system;
}

// The numbers of operations; each image is one of the same element, rotations are orthogonal, and averages do not change twice.
static void operations(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof crystals / sizeof *crystals; n++) {
        mlff_system *system = built(&crystals[n]);
        symmetry s;
        assert_ok(symmetry_find(system, &s));
        if (s.n != crystals[n].n_operations)
            fail_msg("%s: %d operations, expected %d", crystals[n].name, s.n, crystals[n].n_operations);
        double forces[24], once[24], twice[24], tensor[9], mean[9], again[9];
        for (int k = 0; k < 24; k++) forces[k] = sin(1 + 7 * k);
        for (int k = 0; k < 9; k++) tensor[k] = cos(2 + 5 * k);
        symmetry_average_forces(&s, forces, once);
        symmetry_average_forces(&s, once, twice);
        symmetry_average_tensor(&s, tensor, mean);
        symmetry_average_tensor(&s, mean, again);
        for (int k = 0; k < 3 * system->n_atoms; k++) assert_near(twice[k], once[k], 1e-12);
        for (int k = 0; k < 9; k++) assert_near(again[k], mean[k], 1e-12);
        for (int k = 0; k < 9 && s.n >= 48; k++)
            assert_near(mean[k], k % 4 == 0 ? (tensor[0] + tensor[4] + tensor[8]) / 3 : 0, 1e-12);
        if (s.n == 1)
            for (int k = 0; k < 3 * system->n_atoms; k++) assert_near(once[k], forces[k], 1e-15);
        symmetry_free(&s);
        mlff_system_destroy(system);
    }
}

// Atoms that are off by less than the tolerance have the symmetry of the crystal; off by more they lose it.
static void tolerance(void **state)
{
    (void)state;
    for (int far = 0; far < 2; far++) {
        mlff_system *system = built(&crystals[4]);
        symmetry s;
        system->positions[4] += far ? 0.01 : 2e-4;
        assert_ok(symmetry_find(system, &s));
        if (far ? s.n >= 24 : s.n != 24) fail_msg("%d operations", s.n);
        symmetry_free(&s);
        mlff_system_destroy(system);
    }
}

// ---- in a fixed cell forces are not averaged: they have the symmetry but for rounding -----------------------------------

static mlff_status first_only(void *context, mlff_system **system_out)
{
    mlff_system **at = context;
    *system_out = *at;
    *at = NULL;
    return MLFF_OK;
}

static mlff_status moved(void *context, mlff_system *system, const mlff_relaxed *result)
{
    (void)context, (void)system;
    assert_int_equal(result->end, MLFF_RELAX_CONVERGED);
    assert_true(result->n_steps >= 3); // a test that can fail
    return MLFF_OK;
}

static int count_operations(const mlff_system *system)
{
    symmetry s;
    assert_ok(symmetry_find(system, &s));
    const int n = s.n;
    symmetry_free(&s);
    return n;
}

// Zincblende with Ga 0.2 Å off along a diagonal of the cube (6 of 24 operations), by both optimizers. The operations are found to 0.001 Å.
static void fixed_cell(void **state)
{
    (void)state;
    const mlff_setting settings[] = {{"n_features", "16"}, {"n_layers", "1"}, {"cutoff", "4"}, {"elements", "Ga,As"}, {0}};
    mlff_model *model;
    mlff_evaluator *evaluator;
    assert_ok(mlff_model_create("painn", settings, &model));
    assert_ok(mlff_evaluator_create(model, NULL, &evaluator));
    for (int optimizer = MLFF_FIRE; optimizer <= MLFF_LBFGS; optimizer++) {
        mlff_system *system = built(&crystals[4]), *next = system;
        mlff_relax_options options = mlff_relax_options_default();
        assert_near(options.stress_limit / 6.241509074e-7, 500, 1e-9); // bar, as of mlff relax
        options.optimizer = (mlff_optimizer)optimizer;
        options.force_limit = 0.001;
        for (int c = 0; c < 3; c++) system->positions[c] += 0.2 / sqrt(3);
        assert_int_equal(count_operations(system), 6);
        assert_ok(mlff_relax(evaluator, &options, &(mlff_relax_queue){first_only, moved, &next, NULL}));
        const int n = count_operations(system);
        if (n < 6) fail_msg("optimizer %d: %d of 6 operations remain", optimizer, n);
        mlff_system_destroy(system);
    }
    mlff_evaluator_destroy(evaluator);
    mlff_model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_bent_chain),     cmocka_unit_test(molecules_are_apart),
                                       cmocka_unit_test(a_straight_angle), cmocka_unit_test(operations),
                                       cmocka_unit_test(tolerance),        cmocka_unit_test(fixed_cell)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
