// SPDX-License-Identifier: MIT
// nn_kernels.c: dense layers, compiled once per instruction set.
//
// product: c = a b, with b packed in panels of SIMD_PANEL vectors. A block of 6 rows of c and one panel stay in
// registers while k runs: 24 accumulators on AVX-512 (10 loads for 24 fused multiply-adds a step of k), 12 else.
// Bound by the multiply-add units when m >= 6, by reading the packed matrix from L2 or L3 below.
#include <string.h>

#include "nn/nn.h"
#include "nn/simd.h"

extern const nn_kernels SIMD_SYMBOL(nn_kernels);

enum { ROWS = 6, PANEL = SIMD_PANEL * SIMD_WIDTH };

static void pack(int k, int n, const float *b, float *packed)
{
    for (int begin = 0; begin < n; begin += PANEL) {
        int width = n - begin < PANEL ? n - begin : PANEL;
        for (int row = 0; row < k; row++, packed += width) memcpy(packed, b + (size_t)row * n + begin, sizeof *b * (size_t)width);
    }
}

SIMD_INLINE void block(const int rows, const int vectors, int k, const float *restrict a, int lda, const float *restrict b,
                       const float *restrict bias, float *restrict c, int ldc, int accumulate)
{
    simd sum[ROWS][SIMD_PANEL];
    for (int v = 0; v < vectors; v++) {
        simd start = bias ? simd_load(bias + v * SIMD_WIDTH) : simd_set(0);
        for (int r = 0; r < rows; r++) sum[r][v] = start;
    }
    for (int i = 0; i < k; i++, b += vectors * SIMD_WIDTH) {
        simd column[SIMD_PANEL];
        for (int v = 0; v < vectors; v++) column[v] = simd_load(b + v * SIMD_WIDTH);
        for (int r = 0; r < rows; r++) {
            float x = a[(size_t)r * lda + i];
            for (int v = 0; v < vectors; v++) sum[r][v] += x * column[v];
        }
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) {
            float *out = c + (size_t)r * ldc + v * SIMD_WIDTH;
            if (accumulate) sum[r][v] += simd_load(out);
            simd_store(out, sum[r][v]);
        }
}

// Rows and vectors must be constants for the registers to be assigned.
SIMD_INLINE void rows_of_panel(const int vectors, int m, int k, const float *a, int lda, const float *b, const float *bias,
                               float *c, int ldc, int accumulate)
{
    int i = 0;
    for (; i + ROWS <= m; i += ROWS)
        block(ROWS, vectors, k, a + (size_t)i * lda, lda, b, bias, c + (size_t)i * ldc, ldc, accumulate);
    const float *rest = a + (size_t)i * lda;
    float *out = c + (size_t)i * ldc;
    switch (m - i) {
    case 5: block(5, vectors, k, rest, lda, b, bias, out, ldc, accumulate); break;
    case 4: block(4, vectors, k, rest, lda, b, bias, out, ldc, accumulate); break;
    case 3: block(3, vectors, k, rest, lda, b, bias, out, ldc, accumulate); break;
    case 2: block(2, vectors, k, rest, lda, b, bias, out, ldc, accumulate); break;
    case 1: block(1, vectors, k, rest, lda, b, bias, out, ldc, accumulate); break;
    default: break;
    }
}

static void product(int m, int n, int k, const float *a, int lda, const float *packed, const float *bias, float *c, int ldc,
                    int accumulate)
{
    for (int begin = 0; begin < n; begin += PANEL) {
        int width = n - begin < PANEL ? n - begin : PANEL;
        const float *start = bias ? bias + begin : NULL;
        switch (width / SIMD_WIDTH) {
        case 1: rows_of_panel(1, m, k, a, lda, packed, start, c + begin, ldc, accumulate); break;
        case 2: rows_of_panel(2, m, k, a, lda, packed, start, c + begin, ldc, accumulate); break;
#if SIMD_PANEL > 2
        case 3: rows_of_panel(3, m, k, a, lda, packed, start, c + begin, ldc, accumulate); break;
        case 4: rows_of_panel(4, m, k, a, lda, packed, start, c + begin, ldc, accumulate); break;
#endif
        default: break;
        }
        packed += (size_t)k * width;
    }
}

// silu = x σ(x), silu' = σ (1 + x (1 − σ)); shifted softplus = ln(1 + eˣ) − ln 2, derivative σ.
static void activate_silu(size_t n, float *restrict x, float *restrict derivative)
{
    for (size_t i = 0; i < n; i += SIMD_WIDTH) {
        simd v = simd_load(x + i), s = 1.0f / (1.0f + simd_exp(-v));
        simd_store(x + i, v * s);
        if (derivative) simd_store(derivative + i, s + v * s * (1.0f - s));
    }
}

static void activate(enum nn_activation kind, size_t n, float *x, float *derivative)
{
    if (kind == NN_SILU) {
        activate_silu(n, x, derivative);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        float v = x[i], e = __builtin_expf(v > 0 ? -v : v);
        x[i] = (v > 0 ? v : 0.0f) + __builtin_log1pf(e) - 0.69314718f;
        if (derivative) derivative[i] = v > 0 ? 1.0f / (1.0f + e) : e / (1.0f + e);
    }
}

const nn_kernels SIMD_SYMBOL(nn_kernels) = {
    .path = SIMD_NAME,
    .pack = pack,
    .product = product,
    .activate = activate,
};
