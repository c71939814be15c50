// SPDX-License-Identifier: MIT
// spline.c: interpolating quintic B-splines (cardinal: Σ_k c_{i+k} β(k) = f_i with β = 66, 26, 1 over 120).
//
// The system is solved on a range 24 knots wider than [0, end] on each side, where the caller's function is continued;
// what the outermost rows lack dies out as 0.43 a knot, so the result does not depend on it (0.43²⁴ = 2e-9).
#include <math.h>
#include <string.h>

#include "nn/nn.h"

enum { MARGIN = 24, FIRST_INTERVALS = 64, LAST_INTERVALS = 2048 };

// Value of the six functions at t in [0, 1].
static void weights_at(double t, double w[6])
{
    double t2 = t * t, t3 = t2 * t, t4 = t3 * t, t5 = t4 * t, s = 1 - t;
    w[0] = s * s * s * s * s / 120;
    w[1] = (26 - 50 * t + 20 * t2 + 20 * t3 - 20 * t4 + 5 * t5) / 120;
    w[2] = (66 - 60 * t2 + 30 * t4 - 10 * t5) / 120;
    w[3] = (26 + 50 * t + 20 * t2 - 20 * t3 - 20 * t4 + 10 * t5) / 120;
    w[4] = (1 + 5 * t + 10 * t2 + 10 * t3 + 5 * t4 - 5 * t5) / 120;
    w[5] = t5 / 120;
}

// Solves the pentadiagonal system in place, all columns at once. No pivoting: the diagonal dominates (66 > 2·27).
static void solve(double *rows, int n, int columns)
{
    double *band = rows + (size_t)n * columns; // [n][5] behind the right-hand sides
    for (int i = 0; i < n; i++)
        for (int k = 0; k < 5; k++) band[5 * i + k] = (const double[]){1, 26, 66, 26, 1}[k] / 120;
    for (int i = 0; i < n; i++)
        for (int below = 1; below <= 2 && i + below < n; below++) {
            double factor = band[5 * (i + below) + 2 - below] / band[5 * i + 2];
            for (int k = 2; k < 5; k++)
                if (k - below >= 0) band[5 * (i + below) + k - below] -= factor * band[5 * i + k];
            for (int c = 0; c < columns; c++) rows[(size_t)(i + below) * columns + c] -= factor * rows[(size_t)i * columns + c];
        }
    for (int i = n - 1; i >= 0; i--)
        for (int c = 0; c < columns; c++) {
            double *x = rows + (size_t)i * columns + c;
            for (int k = 1; k <= 2 && i + k < n; k++) *x -= band[5 * i + 2 + k] * x[(size_t)k * columns];
            *x /= band[5 * i + 2];
        }
}

// Largest error at the quarters of all intervals, relative to the largest value.
static double worst_error(const double *c, int n_intervals, int columns, double end, void (*function)(void *, double, double *),
                          void *context, double *f)
{
    double error = 0, largest = 0;
    for (int i = 0; i < n_intervals; i++)
        for (int quarter = 1; quarter < 4; quarter++) {
            double t = 0.25 * quarter, w[6];
            weights_at(t, w);
            function(context, (i + t) * end / n_intervals, f);
            for (int k = 0; k < columns; k++) {
                double sum = 0;
                for (int j = 0; j < 6; j++) sum += w[j] * c[(size_t)(MARGIN + i + j - 2) * columns + k];
                error = fmax(error, fabs(sum - f[k]));
                largest = fmax(largest, fabs(f[k]));
            }
        }
    return largest > 0 ? error / largest : 0;
}

// The next number of intervals to try after `n` with this error, which falls as the sixth power of their width: four fifths of what that
// predicts, since it falls less where intervals are wide.
static int next_intervals(int n, double error, double tolerance)
{
    const double predicted = fmin(0.8 * n * pow(error / tolerance, 1.0 / 6), LAST_INTERVALS);
    const int step = n < 256 && predicted < 256 ? 16 : 64, jump = (int)predicted / step * step;
    return jump > n + step ? jump : n + step;
}

mlff_status nn_spline_create(int n_columns, double end, double tolerance, void (*function)(void *context, double x, double *f),
                             void *context, nn_spline *spline_out)
{
    mlff_status status = MLFF_OK;
    double *rows = NULL, *f = NULL;
    nn_spline spline = {.n_columns = n_columns, .end = end};
    double error = INFINITY;

    if (!(f = base_alloc((size_t)n_columns, sizeof *f, "a filter table"))) return MLFF_ERR_MEMORY;
    for (int n = FIRST_INTERVALS; n <= LAST_INTERVALS; n = next_intervals(n, error, tolerance)) {
        int n_rows = n + 1 + 2 * MARGIN;
        base_free(rows);
        if (!(rows = base_alloc((size_t)n_rows * ((size_t)n_columns + 5), sizeof *rows, "a filter table"))) {
            status = MLFF_ERR_MEMORY;
            goto done;
        }
        for (int i = 0; i < n_rows; i++) function(context, (i - MARGIN) * end / n, rows + (size_t)i * n_columns);
        solve(rows, n_rows, n_columns);
        spline.n_intervals = n;
        error = worst_error(rows, n, n_columns, end, function, context, f);
        if (error <= tolerance) break;
    }
    if (!(error <= tolerance))
        MLFF_FAIL(MLFF_ERR_UNSUPPORTED, "a table of %d intervals is still off by %.1e; the functions are too narrow for it",
                  spline.n_intervals, error);
    size_t count = ((size_t)spline.n_intervals + 5) * (size_t)n_columns;
    if (!(spline.coefficient = base_alloc(count, sizeof(float), "a filter table"))) {
        status = MLFF_ERR_MEMORY;
        goto done;
    }
    for (size_t k = 0; k < count; k++) spline.coefficient[k] = (float)rows[(size_t)(MARGIN - 2) * n_columns + k];
    *spline_out = spline;
done:
    base_free(rows);
    base_free(f);
    return status;
}

void nn_spline_free(nn_spline *spline)
{
    base_free(spline->coefficient);
    *spline = (nn_spline){0};
}
