// SPDX-License-Identifier: MIT
// least_squares.c: min |A x - b|, and of all such x the one of least |x|.
//
//   A = Q R     Givens rotations, one row of A at a time: only R [n][n] and Qᵀ b are kept
//   R V = U S   one-sided Jacobi rotations of R's columns until all are orthogonal
//   x = Σ v_k (u_k · Qᵀ b) / s_k over s_k > 1e-10 s_max
// The normal equations AᵀA are never formed, which would square the condition number.
#include "least_squares.h"

#include <math.h>
#include <string.h>

// Below this share of the largest singular value a direction is one that the rows do not determine. Counts of atoms are small
// integers: directions that are determined stay above 1e-5 with 1e6 rows, rounding of R stays below 1e-12.
#define RANK_TOLERANCE 1e-10
enum { MAX_SWEEPS = 60 }; // of Jacobi rotations; some 10 suffice

mlff_status least_squares_create(int n, least_squares *problem)
{
    least_squares made = {.n = n};
    const size_t size = (size_t)n;
    made.triangle = base_alloc(size * size, sizeof(double), "a least-squares problem");
    made.right_side = base_alloc(size, sizeof(double), "a least-squares problem");
    made.row = base_alloc(size, sizeof(double), "a least-squares problem");
    if (!made.triangle || !made.right_side || !made.row) {
        least_squares_free(&made);
        return MLFF_ERR_MEMORY;
    }
    *problem = made;
    return MLFF_OK;
}

void least_squares_free(least_squares *problem)
{
    base_free(problem->triangle);
    base_free(problem->right_side);
    base_free(problem->row);
    *problem = (least_squares){0};
}

void least_squares_add(least_squares *problem, const double *row, double right_side)
{
    const int n = problem->n;
    double *a = problem->row;
    memcpy(a, row, (size_t)n * sizeof *a);
    for (int k = 0; k < n; k++) {
        if (a[k] == 0) continue;
        double *r = problem->triangle + (size_t)k * (size_t)n;
        const double length = hypot(r[k], a[k]), c = r[k] / length, s = a[k] / length;
        for (int j = k; j < n; j++) {
            const double upper = r[j], lower = a[j];
            r[j] = c * upper + s * lower;
            a[j] = c * lower - s * upper;
        }
        const double upper = problem->right_side[k];
        problem->right_side[k] = c * upper + s * right_side;
        right_side = c * right_side - s * upper;
    }
}

// Columns p and q of an [n][n] matrix become c p - s q and s p + c q.
static void rotate_columns(double *matrix, int n, int p, int q, double c, double s)
{
    for (int i = 0; i < n; i++) {
        double *row = matrix + (size_t)i * (size_t)n, at_p = row[p], at_q = row[q];
        row[p] = c * at_p - s * at_q;
        row[q] = s * at_p + c * at_q;
    }
}

static double column_product(const double *matrix, int n, int p, int q)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += matrix[(size_t)i * (size_t)n + (size_t)p] * matrix[(size_t)i * (size_t)n + (size_t)q];
    return sum;
}

// Makes two columns orthogonal; false if they were already.
static bool orthogonalize(double *matrix, double *v, int n, int p, int q)
{
    const double pp = column_product(matrix, n, p, p), qq = column_product(matrix, n, q, q), pq = column_product(matrix, n, p, q);
    if (pq == 0 || fabs(pq) <= 1e-16 * sqrt(pp) * sqrt(qq)) return false;
    const double zeta = (qq - pp) / (2 * pq), t = copysign(1, zeta) / (fabs(zeta) + hypot(1, zeta)), c = 1 / hypot(1, t);
    rotate_columns(matrix, n, p, q, c, c * t);
    rotate_columns(v, n, p, q, c, c * t);
    return true;
}

mlff_status least_squares_solve(least_squares *problem, double *x)
{
    const int n = problem->n;
    const size_t size = (size_t)n;
    double *us = problem->triangle, largest = 0;
    double *v = base_alloc(size * size, sizeof *v, "a least-squares problem");
    if (!v) return MLFF_ERR_MEMORY;

    for (size_t k = 0; k < size; k++) v[k * size + k] = 1;
    bool again = true;
    for (int sweep = 0; again && sweep < MAX_SWEEPS; sweep++) {
        again = false;
        for (int p = 0; p < n; p++)
            for (int q = p + 1; q < n; q++) again |= orthogonalize(us, v, n, p, q);
    }
    for (int k = 0; k < n; k++) largest = fmax(largest, column_product(us, n, k, k));
    for (size_t i = 0; i < size; i++) x[i] = 0;
    for (size_t k = 0; k < size; k++) {
        const double square = column_product(us, n, (int)k, (int)k);
        if (!(square > RANK_TOLERANCE * RANK_TOLERANCE * largest)) continue;
        double along = 0;
        for (size_t i = 0; i < size; i++) along += us[i * size + k] * problem->right_side[i];
        for (size_t i = 0; i < size; i++) x[i] += v[i * size + k] * along / square;
    }
    base_free(v);
    return MLFF_OK;
}
