// SPDX-License-Identifier: MIT
// test_relax.c: the model Hessian of L-BFGS against a sum over coordinates whose derivatives are central differences.
#include "atoms/covalent.h"
#include "atoms/relax/model_hessian.h"
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
        float *factor = model_hessian_create(system);
        assert_non_null(factor);
        model_hessian_solve(factor, N3, force);
        for (int k = 0; k < N3; k++) assert_near(force[k], x[k], 1e-4); // the factor is float32, the condition some 1e2
        base_free(factor);
        mlff_system_destroy(system);
    }
}

// H-C-N is straight: across its axis H is floor + k b bᵀ, so that b is an eigenvector.
static void a_straight_angle(void **state)
{
    (void)state;
    const double positions[9] = {-1.07, 0, 0, 0, 0, 0, 1.15, 0, 0};
    mlff_system *system = made(3, (const int32_t[]){1, 6, 7}, positions);
    float *factor = model_hessian_create(system);
    assert_non_null(factor);
    const double k = 4.08 * exp(1 - 1.07 / (covalent_radius(1) + covalent_radius(6))) *
                     exp(1 - 1.15 / (covalent_radius(6) + covalent_radius(7)));
    for (int c = 1; c < 3; c++) {
        const double b[3] = {1 / 1.07, -1 / 1.07 - 1 / 1.15, 1 / 1.15};
        double force[9] = {0};
        for (int i = 0; i < 3; i++) force[3 * i + c] = b[i] * (1 + k * (b[0] * b[0] + b[1] * b[1] + b[2] * b[2]));
        model_hessian_solve(factor, 9, force);
        for (int i = 0; i < 9; i++) assert_near(force[i], i % 3 == c ? b[i / 3] : 0, 1e-5);
    }
    base_free(factor);
    mlff_system_destroy(system);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_bent_chain), cmocka_unit_test(a_straight_angle)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
