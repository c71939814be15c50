// SPDX-License-Identifier: MIT
// bfloat16_kernels.c: products of matrices whose operands are rounded to bfloat16, with sums in float32: VDPBF16PS of AVX512-BF16, which
// multiplies and adds two pairs a lane where a float32 instruction takes one. Activations to 14 bits, as they are rounded to 8 next.
//
// Two rows of b lie in one row of 32-bit pairs, in panels of 64 columns. ROWS rows of a are rounded at a time, so that a panel which only
// the third cache holds is read once for 24 rows; 6 of them and 4 vectors of columns stay in registers.
#include "nn/nn.h"
#include "nn/simd.h"

extern const nn_kernels SIMD_SYMBOL(nn_bfloat16_kernels);

#if defined(KERNEL_PATH_avx512)
nn_activate SIMD_SYMBOL(nn_activate), nn_bfloat16_activate;
#include <immintrin.h>
#include <string.h>

#define BFLOAT16 __attribute__((target("avx512bf16")))
#define BFLOAT16_INLINE BFLOAT16 static inline __attribute__((always_inline))

enum { PANEL = 64, ROWS = 24, BLOCK = 6, COLUMNS = 1024 /* of a, rounded at a time */ };

// Round to nearest, ties to even; b is finite.
static uint32_t rounded(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

static size_t packed_floats(int k, int n)
{
    return (size_t)k * (size_t)n / 2;
}

static void pack(int k, int n, const float *b, float *packed)
{
    for (int begin = 0; begin < n; begin += PANEL) {
        const int width = n - begin < PANEL ? n - begin : PANEL;
        for (int row = 0; row < k; row += 2)
            for (int column = begin; column < begin + width; column++, packed++) {
                const float *at = b + (size_t)row * (size_t)n + column;
                const uint32_t pair = rounded(at[0]) | rounded(at[n]) << 16;
                memcpy(packed, &pair, sizeof pair);
            }
    }
}

// m rows of k numbers, k a multiple of 16.
BFLOAT16_INLINE void round_rows(int m, int k, const float *a, int lda, uint16_t *to)
{
    for (int i = 0; i < m; i++)
        for (int at = 0; at < k; at += 16)
            _mm256_store_si256((__m256i *)(to + (size_t)i * COLUMNS + at),
                               (__m256i)_mm512_cvtneps_pbh(_mm512_load_ps(a + (size_t)i * (size_t)lda + at)));
}

BFLOAT16_INLINE void block(const int rows, const int vectors, int n_pairs, const uint16_t *a, const float *panel,
                           const float *bias, float *c, int ldc, int accumulate)
{
    __m512 sum[BLOCK][4];
    for (int v = 0; v < vectors; v++)
        for (int r = 0; r < rows; r++) sum[r][v] = bias ? _mm512_load_ps(bias + 16 * v) : _mm512_setzero_ps();
    for (int i = 0; i < n_pairs; i++, panel += 16 * vectors) {
        __m512bh column[4];
        for (int v = 0; v < vectors; v++) column[v] = (__m512bh)_mm512_load_ps(panel + 16 * v);
        for (int r = 0; r < rows; r++) {
            int32_t pair;
            memcpy(&pair, a + (size_t)r * COLUMNS + 2 * i, sizeof pair);
            const __m512bh x = (__m512bh)_mm512_set1_epi32(pair);
            for (int v = 0; v < vectors; v++) sum[r][v] = _mm512_dpbf16_ps(sum[r][v], x, column[v]);
        }
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) {
            float *out = c + (size_t)r * (size_t)ldc + 16 * v;
            _mm512_store_ps(out, accumulate ? _mm512_add_ps(sum[r][v], _mm512_load_ps(out)) : sum[r][v]);
        }
}

// Rows and vectors must be constants for the registers to be assigned.
BFLOAT16_INLINE void rows_of_panel(const int vectors, int m, int n_pairs, const uint16_t *a, const float *panel,
                                   const float *bias, float *c, int ldc, int accumulate)
{
    int i = 0;
    for (; i + BLOCK <= m; i += BLOCK)
        block(BLOCK, vectors, n_pairs, a + (size_t)i * COLUMNS, panel, bias, c + (size_t)i * (size_t)ldc, ldc, accumulate);
    for (; i + BLOCK / 2 <= m; i += BLOCK / 2)
        block(BLOCK / 2, vectors, n_pairs, a + (size_t)i * COLUMNS, panel, bias, c + (size_t)i * (size_t)ldc, ldc, accumulate);
    for (; i < m; i++)
        block(1, vectors, n_pairs, a + (size_t)i * COLUMNS, panel, bias, c + (size_t)i * (size_t)ldc, ldc, accumulate);
}

BFLOAT16_INLINE void panels(int m, int n, int k, int begin, int width, const uint16_t *a, const float *packed, const float *bias,
                            float *c, int ldc, int accumulate)
{
    for (int column = 0; column < n; column += PANEL) {
        const int n_columns = n - column < PANEL ? n - column : PANEL;
        const float *panel = packed + (size_t)(begin / 2) * (size_t)n_columns, *start = bias ? bias + column : NULL;
        switch (n_columns / 16) {
        case 1: rows_of_panel(1, m, width / 2, a, panel, start, c + column, ldc, accumulate); break;
        case 2: rows_of_panel(2, m, width / 2, a, panel, start, c + column, ldc, accumulate); break;
        case 3: rows_of_panel(3, m, width / 2, a, panel, start, c + column, ldc, accumulate); break;
        default: rows_of_panel(4, m, width / 2, a, panel, start, c + column, ldc, accumulate); break;
        }
        packed += (size_t)(k / 2) * (size_t)n_columns;
    }
}

BFLOAT16 static void product(int m, int n, int k, const float *a, int lda, const float *packed, const float *bias, float *c,
                             int ldc, int accumulate)
{
    uint16_t rows[ROWS * COLUMNS] __attribute__((aligned(64)));
    for (int i = 0; i < m; i += ROWS)
        for (int begin = 0; begin < k; begin += COLUMNS) {
            const int n_rows = m - i < ROWS ? m - i : ROWS, width = k - begin < COLUMNS ? k - begin : COLUMNS;
            round_rows(n_rows, width, a + (size_t)i * (size_t)lda + begin, lda, rows);
            panels(n_rows, n, k, begin, width, rows, packed, begin ? NULL : bias, c + (size_t)i * (size_t)ldc, ldc,
                   accumulate || begin);
        }
}

// eˣ = 2ʳ 2ᶠ, f = -½ … ½: a polynomial, relative error 7.5e-5; 0 and infinity beyond float32.
BFLOAT16_INLINE __m512 exp_to_14_bits(__m512 x)
{
    const __m512 t = x * 1.44269504f, r = _mm512_roundscale_ps(t, 0), f = t - r;
    __m512 p = f * 0.05517167f + 0.24261113f;
    p = p * f + 0.69326099f;
    p = p * f + 0.99992807f;
    return _mm512_scalef_ps(p, r);
}

// ln(1 + e) for e = 0 … 1: e times a polynomial, relative error 5.7e-5.
BFLOAT16_INLINE __m512 log_of_one_plus(__m512 e)
{
    __m512 p = e * 0.04134731f - 0.15742724f;
    p = p * e + 0.30630097f;
    p = p * e - 0.49697782f;
    p = p * e + 0.99994328f;
    return p * e;
}

BFLOAT16 void nn_bfloat16_activate(enum nn_activation kind, size_t n, float *x, float *derivative)
{
    if (kind == NN_CELU) {
        SIMD_SYMBOL(nn_activate)(kind, n, x, derivative);
        return;
    }
    for (size_t i = 0; i < n; i += 16) {
        const __m512 v = _mm512_load_ps(x + i);
        __m512 y, slope;
        if (kind == NN_SILU) {
            const __m512 e = exp_to_14_bits(_mm512_min_ps(-v, _mm512_set1_ps(80))), s = _mm512_rcp14_ps(1.0f + e);
            y = v * s;
            slope = s + y * (e * s);
        } else { // NN_SHIFTED_SOFTPLUS
            const __m512 positive = _mm512_max_ps(v, _mm512_setzero_ps()), e = exp_to_14_bits(v - 2.0f * positive);
            y = positive + (log_of_one_plus(e) - 0.69314718f);
            const __m512 s = _mm512_rcp14_ps(1.0f + e);
            slope = _mm512_mask_blend_ps(_mm512_cmp_ps_mask(v, _mm512_setzero_ps(), _CMP_GT_OQ), s * e, s);
        }
        _mm512_store_ps(x + i, y);
        if (derivative) _mm512_store_ps(derivative + i, slope);
    }
}

const nn_kernels SIMD_SYMBOL(nn_bfloat16_kernels) = {.path = SIMD_NAME,
                                                     .packed_floats = packed_floats,
                                                     .pack = pack,
                                                     .product = product,
                                                     .product_in_parts = product,
                                                     .activate = nn_bfloat16_activate};
#else
const nn_kernels SIMD_SYMBOL(nn_bfloat16_kernels) = {0};
#endif
