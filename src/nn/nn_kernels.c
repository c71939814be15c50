// SPDX-License-Identifier: MIT
// nn_kernels.c: dense layers, compiled once per instruction set.
//
// product: c = a b, with b packed in panels of SIMD_PANEL vectors. A block of 6 rows of c and one panel stay in
// registers while k runs: 24 accumulators on AVX-512 (10 loads for 24 fused multiply-adds a step of k), 12 else.
// Bound by the multiply-add units when m >= 6, by reading the packed matrix from L2 or L3 below.
#include <string.h>

#include "nn/nn.h"
#include "nn/simd.h"

nn_activate SIMD_SYMBOL(nn_activate);
extern const nn_kernels SIMD_SYMBOL(nn_kernels);

enum { ROWS = 6, PANEL = SIMD_PANEL * SIMD_WIDTH, PART = 32 };

static size_t packed_floats(int k, int n)
{
    return (size_t)k * (size_t)n;
}

static void pack(int k, int n, const float *b, float *packed)
{
    for (int begin = 0; begin < n; begin += PANEL) {
        int width = n - begin < PANEL ? n - begin : PANEL;
        for (int row = 0; row < k; row++, packed += width) memcpy(packed, b + (size_t)row * n + begin, sizeof *b * (size_t)width);
    }
}

SIMD_INLINE void block(const int rows, const int vectors, int n_runs, const nn_rows *runs, const float *restrict a, int lda,
                       const float *restrict panel, const float *restrict bias, float *restrict c, int ldc, int accumulate)
{
    simd sum[ROWS][SIMD_PANEL];
    for (int v = 0; v < vectors; v++) {
        simd start = bias ? simd_load(bias + v * SIMD_WIDTH) : simd_set(0);
        for (int r = 0; r < rows; r++) sum[r][v] = start;
    }
    for (int run = 0; run < n_runs; a += runs[run++].count) {
        const float *b = panel + (size_t)runs[run].first * (vectors * SIMD_WIDTH);
        for (int i = 0; i < runs[run].count; i++, b += vectors * SIMD_WIDTH) {
            simd column[SIMD_PANEL];
            for (int v = 0; v < vectors; v++) column[v] = simd_load(b + v * SIMD_WIDTH);
            for (int r = 0; r < rows; r++) {
                float x = a[(size_t)r * lda + i];
                for (int v = 0; v < vectors; v++) sum[r][v] += x * column[v];
            }
        }
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) {
            float *out = c + (size_t)r * ldc + v * SIMD_WIDTH;
            if (accumulate) sum[r][v] += simd_load(out);
            simd_store(out, sum[r][v]);
        }
}

// The same, where `part` is above 0 as a sum of parts of so many columns each.
SIMD_INLINE void block_in_parts(const int rows, const int vectors, const int part, int n_runs, const nn_rows *runs,
                                const float *a, int lda, const float *panel, const float *bias, float *c, int ldc, int accumulate)
{
    if (part == 0) {
        block(rows, vectors, n_runs, runs, a, lda, panel, bias, c, ldc, accumulate);
        return;
    }
    for (int begin = 0; begin < runs->count; begin += part) {
        const nn_rows run = {begin, runs->count - begin < part ? runs->count - begin : part};
        block(rows, vectors, 1, &run, a + begin, lda, panel, begin ? NULL : bias, c, ldc, accumulate || begin);
    }
}

// Rows, vectors and part must be constants for the registers to be assigned.
SIMD_INLINE void rows_of_panel(const int vectors, const int part, int m, int n_runs, const nn_rows *runs, const float *a, int lda,
                               const float *b, const float *bias, float *c, int ldc, int accumulate)
{
    int i = 0;
    for (; i + ROWS <= m; i += ROWS)
        block_in_parts(ROWS, vectors, part, n_runs, runs, a + (size_t)i * lda, lda, b, bias, c + (size_t)i * ldc, ldc,
                       accumulate);
    const float *rest = a + (size_t)i * lda;
    float *out = c + (size_t)i * ldc;
    switch (m - i) {
    case 5: block_in_parts(5, vectors, part, n_runs, runs, rest, lda, b, bias, out, ldc, accumulate); break;
    case 4: block_in_parts(4, vectors, part, n_runs, runs, rest, lda, b, bias, out, ldc, accumulate); break;
    case 3: block_in_parts(3, vectors, part, n_runs, runs, rest, lda, b, bias, out, ldc, accumulate); break;
    case 2: block_in_parts(2, vectors, part, n_runs, runs, rest, lda, b, bias, out, ldc, accumulate); break;
    case 1: block_in_parts(1, vectors, part, n_runs, runs, rest, lda, b, bias, out, ldc, accumulate); break;
    default: break;
    }
}

SIMD_INLINE void panels(const int part, int m, int n, int k, int n_runs, const nn_rows *runs, const float *a, int lda,
                        const float *packed, const float *bias, float *c, int ldc, int accumulate)
{
    for (int begin = 0; begin < n; begin += PANEL) {
        int width = n - begin < PANEL ? n - begin : PANEL;
        const float *start = bias ? bias + begin : NULL;
        float *out = c + begin;
        switch (width / SIMD_WIDTH) {
        case 1: rows_of_panel(1, part, m, n_runs, runs, a, lda, packed, start, out, ldc, accumulate); break;
        case 2: rows_of_panel(2, part, m, n_runs, runs, a, lda, packed, start, out, ldc, accumulate); break;
#if SIMD_PANEL > 2
        case 3: rows_of_panel(3, part, m, n_runs, runs, a, lda, packed, start, out, ldc, accumulate); break;
        case 4: rows_of_panel(4, part, m, n_runs, runs, a, lda, packed, start, out, ldc, accumulate); break;
#endif
        default: break;
        }
        packed += (size_t)k * width;
    }
}

static void product_rows(int m, int n, int k, int n_runs, const nn_rows *runs, const float *a, int lda, const float *packed,
                         const float *bias, float *c, int ldc, int accumulate)
{
    panels(0, m, n, k, n_runs, runs, a, lda, packed, bias, c, ldc, accumulate);
}

static void product_in_parts(int m, int n, int k, const float *a, int lda, const float *packed, const float *bias, float *c,
                             int ldc, int accumulate)
{
    nn_rows all = {0, k};
    panels(PART, m, n, k, 1, &all, a, lda, packed, bias, c, ldc, accumulate);
}

static void product(int m, int n, int k, const float *a, int lda, const float *packed, const float *bias, float *c, int ldc,
                    int accumulate)
{
    nn_rows all = {0, k};
    product_rows(m, n, k, 1, &all, a, lda, packed, bias, c, ldc, accumulate);
}

static void product_blocks(int m, int k, int n_blocks, const nn_block *blocks, const float *a, int lda, float *c, int ldc,
                           int accumulate)
{
    for (const nn_block *b = blocks; b < blocks + n_blocks; b++)
        product(m, b->n, k, a, lda, b->packed, NULL, c + b->column, ldc, accumulate);
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

// celu = x, or 0.1 (e^10x − 1) below 0; derivative 1, or e^10x.
static void activate_celu(size_t n, float *restrict x, float *restrict derivative)
{
    for (size_t i = 0; i < n; i += SIMD_WIDTH) {
        simd v = simd_load(x + i), e = simd_exp(v * 10.0f);
        simd_int positive = v > simd_set(0);
        simd_store(x + i, simd_select(positive, v, e * 0.1f - 0.1f));
        if (derivative) simd_store(derivative + i, simd_select(positive, simd_set(1), e));
    }
}

// ln(1 + e) for e = 0 … 1 as 2 artanh(s), s = e / (2 + e) ≤ 1/3: a polynomial in s², relative error below 2e-8 before rounding.
SIMD_INLINE simd log_of_one_plus(simd e)
{
    const simd s = e / (2.0f + e), z = s * s;
    simd p = simd_set(0.26867611f);
    p = p * z + 0.28233944f;
    p = p * z + 0.40007672f;
    p = p * z + 0.66666640f;
    return s * (p * z + 2.0f);
}

// ln(1 + eˣ) − ln 2 = max(x, 0) + ln(1 + e^−|x|) − ln 2; derivative σ.
static void activate_softplus(size_t n, float *restrict x, float *restrict derivative)
{
    for (size_t i = 0; i < n; i += SIMD_WIDTH) {
        const simd v = simd_load(x + i), zero = simd_set(0);
        const simd_int positive = v > zero;
        const simd e = simd_exp(simd_select(positive, -v, v));
        simd_store(x + i, simd_select(positive, v, zero) + (log_of_one_plus(e) - 0.69314718f));
        if (derivative) simd_store(derivative + i, simd_select(positive, simd_set(1), e) / (1.0f + e));
    }
}

void SIMD_SYMBOL(nn_activate)(enum nn_activation kind, size_t n, float *x, float *derivative)
{
    if (kind == NN_SILU)
        activate_silu(n, x, derivative);
    else if (kind == NN_CELU)
        activate_celu(n, x, derivative);
    else
        activate_softplus(n, x, derivative);
}

const nn_kernels SIMD_SYMBOL(nn_kernels) = {
    .path = SIMD_NAME,
    .packed_floats = packed_floats,
    .pack = pack,
    .product = product,
    .product_in_parts = product_in_parts,
    .product_rows = product_rows,
    .product_blocks = product_blocks,
    .activate = SIMD_SYMBOL(nn_activate),
};
