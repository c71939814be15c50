// SPDX-License-Identifier: MIT
// gradient_kernels.c: kernels of training, compiled once per instruction set.
//
// outer: c += aᵀ b with both operands as they are, row-major over k. A block of 6 rows and a panel of columns of c stay in
// registers while k runs; each step of k loads one panel row of b and 6 neighboring numbers of a, so nothing is packed.
#include <string.h>

#include "nn/gradient.h"
#include "nn/simd.h"

extern const nn_gradient_kernels SIMD_SYMBOL(nn_gradient_kernels);

enum { ROWS = 6, PANEL = SIMD_PANEL * SIMD_WIDTH };

SIMD_INLINE void block(const int rows, const int vectors, int k, int n_operands, const nn_outer *operands, size_t at_a,
                       size_t at_b, int lda, int ldb, float *restrict c, int ldc)
{
    simd sum[ROWS][SIMD_PANEL];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) sum[r][v] = simd_load(c + (size_t)r * ldc + v * SIMD_WIDTH);
    for (int o = 0; o < n_operands; o++) {
        const float *restrict a = operands[o].a + at_a, *restrict b = operands[o].b + at_b;
        for (int i = 0; i < k; i++, a += lda, b += ldb) {
            simd row[SIMD_PANEL];
            for (int v = 0; v < vectors; v++) row[v] = simd_load(b + v * SIMD_WIDTH);
            for (int r = 0; r < rows; r++)
                for (int v = 0; v < vectors; v++) sum[r][v] += a[r] * row[v];
        }
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) simd_store(c + (size_t)r * ldc + v * SIMD_WIDTH, sum[r][v]);
}

// Rows and vectors must be constants for the registers to be assigned.
SIMD_INLINE void columns(const int vectors, int m, int k, int n_operands, const nn_outer *operands, size_t at_b, int lda, int ldb,
                         float *c, int ldc)
{
    int i = 0;
    for (; i + ROWS <= m; i += ROWS)
        block(ROWS, vectors, k, n_operands, operands, (size_t)i, at_b, lda, ldb, c + (size_t)i * ldc, ldc);
    float *rest = c + (size_t)i * ldc;
    switch (m - i) {
    case 5: block(5, vectors, k, n_operands, operands, (size_t)i, at_b, lda, ldb, rest, ldc); break;
    case 4: block(4, vectors, k, n_operands, operands, (size_t)i, at_b, lda, ldb, rest, ldc); break;
    case 3: block(3, vectors, k, n_operands, operands, (size_t)i, at_b, lda, ldb, rest, ldc); break;
    case 2: block(2, vectors, k, n_operands, operands, (size_t)i, at_b, lda, ldb, rest, ldc); break;
    case 1: block(1, vectors, k, n_operands, operands, (size_t)i, at_b, lda, ldb, rest, ldc); break;
    default: break;
    }
}

static void outer(int m, int n, int k, int n_operands, const nn_outer *operands, int lda, int ldb, float *c, int ldc)
{
    for (int begin = 0; begin < n; begin += PANEL) {
        int width = n - begin < PANEL ? n - begin : PANEL;
        switch (width / SIMD_WIDTH) {
        case 1: columns(1, m, k, n_operands, operands, (size_t)begin, lda, ldb, c + begin, ldc); break;
        case 2: columns(2, m, k, n_operands, operands, (size_t)begin, lda, ldb, c + begin, ldc); break;
#if SIMD_PANEL > 2
        case 3: columns(3, m, k, n_operands, operands, (size_t)begin, lda, ldb, c + begin, ldc); break;
        case 4: columns(4, m, k, n_operands, operands, (size_t)begin, lda, ldb, c + begin, ldc); break;
#endif
        default: break;
        }
    }
}

// Squares of 16 × 16 numbers stay in the first cache on both sides.
static void pack_transposed(int k, int n, const float *w, float *packed)
{
    for (int begin = 0; begin < n; begin += PANEL) {
        int width = n - begin < PANEL ? n - begin : PANEL;
        for (int row = 0; row < k; row += NN_PAD)
            for (int c = 0; c < width; c++) {
                const float *from = w + (size_t)(begin + c) * (size_t)k + row;
                float *to = packed + (size_t)row * (size_t)width + c;
                for (int r = 0; r < NN_PAD; r++) to[(size_t)r * (size_t)width] = from[r];
            }
        packed += (size_t)k * (size_t)width;
    }
}

static void sum_arrays(size_t n, int count, const float *const *arrays, float *restrict out)
{
    const float *restrict first = arrays[0];
    if (count == 1) {
        memcpy(out, first, sizeof *out * n);
        return;
    }
    const float *restrict second = arrays[1];
    for (size_t i = 0; i < n; i++) out[i] = first[i] + second[i];
    for (int a = 2; a < count; a++) {
        const float *restrict more = arrays[a];
        for (size_t i = 0; i < n; i++) out[i] += more[i];
    }
}

static double square_sum(size_t n, const float *x)
{
    double total = 0;
    for (size_t begin = 0; begin < n; begin += 4096) {
        size_t end = n - begin < 4096 ? n : begin + 4096, i = begin;
        float lanes[4 * SIMD_WIDTH] = {0}, sum = 0;
        for (; i + 4 * SIMD_WIDTH <= end; i += 4 * SIMD_WIDTH)
            for (int k = 0; k < 4 * SIMD_WIDTH; k++) lanes[k] += x[i + (size_t)k] * x[i + (size_t)k];
        for (; i < end; i++) sum += x[i] * x[i];
        for (int k = 0; k < 4 * SIMD_WIDTH; k++) sum += lanes[k];
        total += (double)sum;
    }
    return total;
}

static void column_sums(int n, int k, const float *a, int lda, float *sum)
{
    for (int f = 0; f < n; f += SIMD_WIDTH) {
        simd total = simd_load(sum + f);
        for (int i = 0; i < k; i++) total += simd_load(a + (size_t)i * lda + f);
        simd_store(sum + f, total);
    }
}

// silu = x σ, silu' = σ + x σ (1 − σ), silu'' = σ (1 − σ)(2 + x (1 − 2σ)).
static void activate_silu(size_t n, float *restrict x, float *restrict slope, float *restrict curve)
{
    for (size_t i = 0; i < n; i += SIMD_WIDTH) {
        simd v = simd_load(x + i), s = 1.0f / (1.0f + simd_exp(-v)), rest = s * (1.0f - s);
        simd_store(x + i, v * s);
        simd_store(slope + i, s + v * rest);
        simd_store(curve + i, rest * (2.0f + v * (1.0f - 2.0f * s)));
    }
}

// ln(1 + eˣ) − ln 2, σ, σ (1 − σ).
static void activate_softplus(size_t n, float *restrict x, float *restrict slope, float *restrict curve)
{
    for (size_t i = 0; i < n; i++) {
        float v = x[i], e = __builtin_expf(v > 0 ? -v : v), s = v > 0 ? 1.0f / (1.0f + e) : e / (1.0f + e);
        x[i] = (v > 0 ? v : 0.0f) + __builtin_log1pf(e) - 0.69314718f;
        slope[i] = s;
        curve[i] = s * (1.0f - s);
    }
}

static void activate(enum nn_activation kind, size_t n, float *x, float *slope, float *curve)
{
    (kind == NN_SILU ? activate_silu : activate_softplus)(n, x, slope, curve);
}

static void multiply(size_t n, const float *a, const float *b, float *out)
{
    for (size_t i = 0; i < n; i += SIMD_WIDTH) simd_store(out + i, simd_load(a + i) * simd_load(b + i));
}

static void multiply_dual(size_t n, float *a, const float *slope, const float *b, const float *curve, const float *c)
{
    for (size_t i = 0; i < n; i += SIMD_WIDTH)
        simd_store(a + i, simd_load(a + i) * simd_load(slope + i) + simd_load(b + i) * simd_load(curve + i) * simd_load(c + i));
}

static void adamw(const nn_adamw *u, size_t n, const float *restrict g, float *restrict w, float *restrict m, float *restrict v,
                  float *restrict average)
{
    nn_adamw a = *u;
    for (size_t i = 0; i < n; i++) {
        float gradient = a.gradient_scale * g[i];
        m[i] = a.beta1 * m[i] + (1.0f - a.beta1) * gradient;
        v[i] = a.beta2 * v[i] + (1.0f - a.beta2) * gradient * gradient;
        w[i] = a.keep * w[i] - a.rate * m[i] / (__builtin_sqrtf(v[i]) * a.root_scale + a.epsilon);
        average[i] += a.average_factor * (w[i] - average[i]);
    }
}

static void orthonormalize_once(int n, int ld, float *restrict z, float *restrict dots)
{
    for (int j = 0; j < n; j++) {
        float square = 0;
        for (int i = 0; i < n; i++) square += z[(size_t)i * ld + j] * z[(size_t)i * ld + j];
        if (!(square > 0)) continue;
        const float scale = 1.0f / __builtin_sqrtf(square);
        memset(dots, 0, sizeof *dots * (size_t)ld);
        for (int i = 0; i < n; i++) {
            float *row = z + (size_t)i * ld;
            const float unit = row[j] *= scale;
            for (int k = j + 1; k < ld; k++) dots[k] += unit * row[k];
        }
        for (int i = 0; i < n; i++) {
            float *row = z + (size_t)i * ld;
            const float unit = row[j];
            for (int k = j + 1; k < ld; k++) row[k] -= unit * dots[k];
        }
    }
}

static void orthonormalize(int n, int ld, float *z, float *dots)
{
    orthonormalize_once(n, ld, z, dots);
    orthonormalize_once(n, ld, z, dots);
}

const nn_gradient_kernels SIMD_SYMBOL(nn_gradient_kernels) = {
    .outer = outer,
    .pack_transposed = pack_transposed,
    .sum_arrays = sum_arrays,
    .square_sum = square_sum,
    .column_sums = column_sums,
    .activate = activate,
    .multiply = multiply,
    .multiply_dual = multiply_dual,
    .adamw = adamw,
    .orthonormalize = orthonormalize,
};
