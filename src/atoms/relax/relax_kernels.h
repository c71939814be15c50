/* SPDX-License-Identifier: MIT */
/* relax_kernels.h: the loops in which L-BFGS spends its time, compiled once per instruction set. Paths round differently. */
#ifndef RELAX_KERNELS_H
#define RELAX_KERNELS_H

#include <stddef.h>

/* Rows of a factor are this many floats apart: whole vectors. */
enum { RELAX_VECTOR = 16 };
static inline size_t relax_stride(size_t n)
{
    return (n + RELAX_VECTOR - 1) / RELAX_VECTOR * RELAX_VECTOR;
}

/* `factor` is [n][relax_stride(n)], n a multiple of 3, aligned to 64 bytes; row k is zero from ends[k] on, which is the same for the three rows
 * of an atom and never less than in the row above. `y` is [relax_stride(n)] and aligned, zero from n on. */
typedef struct relax_kernels {
    /* H = UᵀU in place; what is left of the diagonal is not used, and written. */
    void (*factorize)(float *factor, size_t n, const size_t *ends);
    /* y = (UᵀU)⁻¹ y */
    void (*solve)(const float *factor, size_t n, const size_t *ends, float *y);
    double (*dot)(const double *a, const double *b, size_t n);
    /* to += weight × what */
    void (*add)(double *to, double weight, const double *what, size_t n);
} relax_kernels;
extern const relax_kernels relax_kernels_portable, relax_kernels_avx2, relax_kernels_avx512;

/* Those of the fastest path, or of MLFF_CPU. */
const relax_kernels *relax_kernels_get(void);

#endif
