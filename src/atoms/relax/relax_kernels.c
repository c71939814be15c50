// SPDX-License-Identifier: MIT
// relax_kernels.c: factors of banded matrices by atoms (three rows at once), their solutions, and products of vectors, compiled once per
// instruction set. Sums have LANES parts, which a processor adds at once, and which are added in a fixed order.
#include "atoms/relax/relax_kernels.h"

#include <math.h>

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define KERNELS JOIN(relax_kernels_, KERNEL_PATH)

extern const relax_kernels KERNELS;

enum { LANES = RELAX_VECTOR };

// The whole vectors that hold elements begin .. end.
static size_t first_of(size_t begin)
{
    return begin / LANES * LANES;
}

// The square root of an atom's three rows k, k + 1, k + 2, up to `end`.
static void factorize_rows(float *rows, size_t stride, size_t k, size_t end)
{
    for (size_t c = k; c < k + 3; c++) {
        float *restrict row = rows + (c - k) * stride;
        const float scale = 1 / sqrtf(row[c]);
        for (size_t j = first_of(c); j < end; j += LANES)
            for (size_t l = j; l < j + LANES; l++) row[l] *= scale;
        for (size_t d = c + 1; d < k + 3; d++) {
            float *restrict to = rows + (d - k) * stride;
            const float weight = row[d];
            for (size_t j = first_of(d); j < end; j += LANES)
                for (size_t l = j; l < j + LANES; l++) to[l] -= weight * row[l];
        }
    }
}

// Three rows are subtracted at once from each later one.
static void factorize(float *factor, size_t n, const size_t *ends)
{
    const size_t stride = relax_stride(n);
    for (size_t k = 0; k < n; k += 3) {
        const float *restrict a = factor + k * stride, *restrict b = a + stride, *restrict c = b + stride;
        const size_t end = ends[k];
        factorize_rows(factor + k * stride, stride, k, end);
        for (size_t i = k + 3; i < end; i++) {
            float *restrict to = factor + i * stride;
            const float x = a[i], y = b[i], z = c[i];
            if (x == 0 && y == 0 && z == 0) continue;
            for (size_t j = first_of(i); j < end; j += LANES)
                for (size_t l = j; l < j + LANES; l++) to[l] -= x * a[l] + y * b[l] + z * c[l];
        }
    }
}

// Σ row_j y_j of three rows for begin <= j < end.
static void dot_rows(const float *restrict rows, size_t stride, const float *restrict y, size_t begin, size_t end, float sums[3])
{
    float part[3][LANES] = {{0}};
    const size_t whole = first_of(begin) + LANES; // the first vector holds other elements too
    for (size_t r = 0; r < 3; r++)
        for (size_t j = begin; j < end && j < whole; j++) part[r][j % LANES] = rows[r * stride + j] * y[j];
    for (size_t j = whole; j < end; j += LANES)
        for (size_t r = 0; r < 3; r++)
            for (size_t l = 0; l < LANES; l++) part[r][l] += rows[r * stride + j + l] * y[j + l];
    for (size_t r = 0; r < 3; r++) {
        sums[r] = 0;
        for (size_t l = 0; l < LANES; l++) sums[r] += part[r][l];
    }
}

static void solve(const float *factor, size_t n, const size_t *ends, float *restrict y)
{
    const size_t stride = relax_stride(n);
    for (size_t k = 0; k < n; k += 3) {
        const float *restrict a = factor + k * stride, *restrict b = a + stride, *restrict c = b + stride;
        const float p = y[k] = y[k] / a[k];
        const float q = y[k + 1] = (y[k + 1] - p * a[k + 1]) / b[k + 1];
        const float r = y[k + 2] = (y[k + 2] - p * a[k + 2] - q * b[k + 2]) / c[k + 2];
        size_t j = k + 3;
        for (; j < ends[k] && j % LANES != 0; j++) y[j] -= p * a[j] + q * b[j] + r * c[j];
        for (; j < ends[k]; j += LANES)
            for (size_t l = j; l < j + LANES; l++) y[l] -= p * a[l] + q * b[l] + r * c[l];
    }
    for (size_t k = n; k > 0;) {
        k -= 3;
        const float *restrict a = factor + k * stride, *restrict b = a + stride, *restrict c = b + stride;
        float sums[3];
        dot_rows(a, stride, y, k + 3, ends[k], sums);
        y[k + 2] = (y[k + 2] - sums[2]) / c[k + 2];
        y[k + 1] = (y[k + 1] - sums[1] - b[k + 2] * y[k + 2]) / b[k + 1];
        y[k] = (y[k] - sums[0] - a[k + 1] * y[k + 1] - a[k + 2] * y[k + 2]) / a[k];
    }
}

static double dot(const double *restrict a, const double *restrict b, size_t n)
{
    double part[LANES] = {0}, sum = 0;
    size_t k = 0;
    for (; k + LANES <= n; k += LANES)
        for (size_t c = 0; c < LANES; c++) part[c] += a[k + c] * b[k + c];
    for (; k < n; k++) sum += a[k] * b[k];
    for (size_t c = 0; c < LANES; c++) sum += part[c];
    return sum;
}

static void add(double *restrict to, double weight, const double *restrict what, size_t n)
{
    for (size_t k = 0; k < n; k++) to[k] += weight * what[k];
}

const relax_kernels KERNELS = {.factorize = factorize, .solve = solve, .dot = dot, .add = add};
