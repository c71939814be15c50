// SPDX-License-Identifier: MIT
// soap_reference.c: SOAP in float64, plain: what soap.c is compared with.
#include <math.h>

#include "soap.h"

// c[n][m] = a[n][k] b[k][m], or with aᵀ of a[k][n], or with bᵀ of b[m][k]; lda and ldb are lengths of rows.
static void product(int n, int m, int k, const double *a, int lda, bool transpose_a, const double *b, int ldb, bool transpose_b,
                    double *c)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++) {
            double sum = 0;
            for (int l = 0; l < k; l++)
                sum += (transpose_a ? a[l * lda + i] : a[i * lda + l]) * (transpose_b ? b[j * ldb + l] : b[l * ldb + j]);
            c[i * m + j] = sum;
        }
}

static const double *basis_of(const soap_side *side, const double *state)
{
    return state + side->at + (int64_t)side->n * side->ld;
}

// x = Q_Lᵀ x Q_R, or back: Q_L x Q_Rᵀ.
static void rotate(const soap_matrix *q, const double *state, bool back, double *x, double *scratch)
{
    const int n = q->n_rows, m = q->n_columns;
    if (q->left.at >= 0) {
        product(n, m, n, basis_of(&q->left, state), q->left.ld, !back, x, m, false, scratch);
        for (int k = 0; k < n * m; k++) x[k] = scratch[k];
    }
    if (q->right.at >= 0) {
        product(n, m, m, x, m, false, basis_of(&q->right, state), q->right.ld, back, scratch);
        for (int k = 0; k < n * m; k++) x[k] = scratch[k];
    }
}

// Modified Gram-Schmidt of the columns of z[n][n], twice.
static void orthonormalize(int n, double *z)
{
    for (int pass = 0; pass < 2; pass++)
        for (int j = 0; j < n; j++) {
            double square = 0;
            for (int i = 0; i < n; i++) square += z[i * n + j] * z[i * n + j];
            for (int i = 0; i < n && square > 0; i++) z[i * n + j] /= sqrt(square);
            for (int k = j + 1; k < n; k++) {
                double dot = 0;
                for (int i = 0; i < n; i++) dot += z[i * n + j] * z[i * n + k];
                for (int i = 0; i < n; i++) z[i * n + k] -= dot * z[i * n + j];
            }
        }
}

// The covariance's mean takes x, its new sample; then, if it is time, the basis follows. Both scratch arrays are [n][n].
static void update_side(const soap_side *side, const train_update *u, const double *x, double *state, double *z)
{
    const int n = side->n, ld = side->ld;
    double *covariance = state + side->at, *basis = covariance + (int64_t)n * ld, trace = 0;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            covariance[i * ld + j] = u->soap_decay * covariance[i * ld + j] + (1 - u->soap_decay) * x[i * n + j];
    for (int i = 0; i < n; i++) trace += covariance[i * ld + i];
    if (!u->soap_refresh || !(trace > 0)) return;
    product(n, n, n, covariance, ld, false, basis, ld, false, z);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) z[i * n + j] += SOAP_SHIFT * trace / n * basis[i * ld + j];
    orthonormalize(n, z);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) basis[i * ld + j] = z[i * n + j];
}

mlff_status soap_step_reference(const soap_matrix *q, const train_update *u, double scale, const double *g, double *w, double *m,
                                double *v, double *average, double *state)
{
    mlff_status status = MLFF_OK;
    const int rows = q->n_rows, columns = q->n_columns, longer = rows > columns ? rows : columns;
    const size_t size = (size_t)rows * (size_t)columns, square = (size_t)longer * (size_t)longer;
    double *sample = base_alloc(size, sizeof *sample, "SOAP"), *rotated = base_alloc(size, sizeof *rotated, "SOAP");
    double *step = base_alloc(size, sizeof *step, "SOAP"), *covariance = base_alloc(square, sizeof *covariance, "SOAP");
    double *scratch = base_alloc(square, sizeof *scratch, "SOAP");
    if (!sample || !rotated || !step || !covariance || !scratch) MLFF_TRY(MLFF_ERR_MEMORY);
    g += q->offset, w += q->offset, m += q->offset, v += q->offset, average += q->offset;
    for (size_t k = 0; k < size; k++) {
        sample[k] = rotated[k] = scale * g[k];
        step[k] = m[k] = u->beta1 * m[k] + (1 - u->beta1) * sample[k];
    }
    rotate(q, state, false, rotated, scratch);
    rotate(q, state, false, step, scratch);
    for (size_t k = 0; k < size; k++) {
        v[k] = u->beta2 * v[k] + (1 - u->beta2) * rotated[k] * rotated[k];
        step[k] = step[k] / u->correction1 / (sqrt(v[k] / u->correction2) + u->epsilon);
    }
    rotate(q, state, true, step, scratch);
    for (size_t k = 0; k < size; k++) {
        w[k] = (1 - u->learning_rate * u->weight_decay) * w[k] - u->learning_rate * step[k];
        average[k] += (1 - u->average) * (w[k] - average[k]);
    }
    if (q->left.at >= 0) {
        product(rows, rows, columns, sample, columns, false, sample, columns, true, covariance);
        update_side(&q->left, u, covariance, state, scratch);
    }
    if (q->right.at >= 0) {
        product(columns, columns, rows, sample, columns, true, sample, columns, false, covariance);
        update_side(&q->right, u, covariance, state, scratch);
    }
done:
    base_free(sample);
    base_free(rotated);
    base_free(step);
    base_free(covariance);
    base_free(scratch);
    return status;
}
