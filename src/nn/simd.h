/* SPDX-License-Identifier: MIT */
/* simd.h: vectors of floats in the width of the instruction set a *_kernels.c file is being compiled for
 * (CMake compiles each such file once per path, with KERNEL_PATH set). GCC and Clang vector extensions. */
#ifndef SIMD_H
#define SIMD_H

#include <stdint.h>

/* Floats in a vector, and vectors in a panel of a packed matrix. */
#if defined(KERNEL_PATH_avx512)
#define SIMD_WIDTH 16
#define SIMD_PANEL 4
#elif defined(KERNEL_PATH_avx2)
#define SIMD_WIDTH 8
#define SIMD_PANEL 2
#else
#define SIMD_WIDTH 4
#define SIMD_PANEL 2
#endif

typedef float simd __attribute__((vector_size(SIMD_WIDTH * 4), may_alias));
typedef int32_t simd_int __attribute__((vector_size(SIMD_WIDTH * 4), may_alias));

#define SIMD_INLINE static inline __attribute__((always_inline))

/* Aligned: every array of this engine is, and every row is a multiple of 16 floats. */
SIMD_INLINE simd simd_load(const float *p)
{
    return *(const simd *)p;
}

SIMD_INLINE void simd_store(float *p, simd v)
{
    *(simd *)p = v;
}

SIMD_INLINE simd simd_set(float x)
{
    return x - (simd){0};
}

/* a where the mask is set, else b. */
SIMD_INLINE simd simd_select(simd_int mask, simd a, simd b)
{
    return (simd)((mask & (simd_int)a) | (~mask & (simd_int)b));
}

/* Four vectors summed over groups of lanes: the result's lanes c, 4 + c, 8 + c, … add up to the sum of vector c. */
SIMD_INLINE simd simd_sum_groups(const simd v[4])
{
#if SIMD_WIDTH == 16
#define LOW 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29
#define HIGH 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31
#define LOW_PAIRS 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29
#define HIGH_PAIRS 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31
#elif SIMD_WIDTH == 8
#define LOW 0, 8, 1, 9, 4, 12, 5, 13
#define HIGH 2, 10, 3, 11, 6, 14, 7, 15
#define LOW_PAIRS 0, 1, 8, 9, 4, 5, 12, 13
#define HIGH_PAIRS 2, 3, 10, 11, 6, 7, 14, 15
#else
#define LOW 0, 4, 1, 5
#define HIGH 2, 6, 3, 7
#define LOW_PAIRS 0, 1, 4, 5
#define HIGH_PAIRS 2, 3, 6, 7
#endif
    simd first = __builtin_shufflevector(v[0], v[1], LOW) + __builtin_shufflevector(v[0], v[1], HIGH);
    simd second = __builtin_shufflevector(v[2], v[3], LOW) + __builtin_shufflevector(v[2], v[3], HIGH);
    return __builtin_shufflevector(first, second, LOW_PAIRS) + __builtin_shufflevector(first, second, HIGH_PAIRS);
#undef LOW
#undef HIGH
#undef LOW_PAIRS
#undef HIGH_PAIRS
}

/* exp(x) for |x| <= 87, relative error below 2e-7. Range reduction to |r| <= ln2/2, then a polynomial of degree 6. */
SIMD_INLINE simd simd_exp_in_range(simd x)
{
    simd scaled = x * 1.44269504088896341f;
    simd magic = simd_set(12582912.0f); /* 1.5 · 2²³: adding it rounds to the nearest integer */
    simd rounded = (scaled + magic) - magic;
    simd r = x - rounded * 0.693359375f;
    r = r - rounded * -2.12194440e-4f;
    simd p = simd_set(1.3981999507e-3f);
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    simd_int exponent = __builtin_convertvector(rounded, simd_int);
    return p * (simd)((exponent + 127) << 23);
}

/* The same with x cut to ±87. */
SIMD_INLINE simd simd_exp(simd x)
{
    simd high = simd_set(87.0f), low = simd_set(-87.0f);
    x = simd_select(x > high, high, x);
    x = simd_select(x < low, low, x);
    return simd_exp_in_range(x);
}

/* ln(x) of a normal, positive x, error below 2e-7 of max(|ln x|, 1). Cephes' polynomial on √½ … √2. */
SIMD_INLINE simd simd_log(simd x)
{
    simd_int bits = (simd_int)x, exponent = (bits >> 23) - 126;
    simd m = (simd)((bits & 0x007fffff) | 0x3f000000);
    simd_int below = m < simd_set(0.707106781186547524f); /* -1 where true */
    exponent += below;
    m = m + (simd)((simd_int)m & below) - 1.0f;
    simd e = __builtin_convertvector(exponent, simd), z = m * m;
    simd p = simd_set(7.0376836292e-2f);
    p = p * m - 1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m - 1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m - 1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m - 2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    simd y = p * m * z + e * -2.12194440e-4f - z * 0.5f;
    return m + y + e * 0.693359375f;
}

#define SIMD_PASTE_(a, b) a##_##b
#define SIMD_PASTE(a, b) SIMD_PASTE_(a, b)
/* The name of this path's version of a symbol: SIMD_SYMBOL(nn_kernels) is nn_kernels_avx512. */
#define SIMD_SYMBOL(name) SIMD_PASTE(name, KERNEL_PATH)
#define SIMD_TEXT_(a) #a
#define SIMD_TEXT(a) SIMD_TEXT_(a)
#define SIMD_NAME SIMD_TEXT(KERNEL_PATH)

#endif
