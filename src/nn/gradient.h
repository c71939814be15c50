/* SPDX-License-Identifier: MIT */
/* gradient.h: float32 kernels of training: gradients of dense layers, activations with two derivatives, AdamW,
 * orthonormal bases. */
#ifndef GRADIENT_H
#define GRADIENT_H

#include "nn/nn.h"

/* One pair of operands of a weight's gradient. */
typedef struct nn_outer {
    const float *a, *b; /* [k][lda], [k][ldb] */
} nn_outer;

/* AdamW on some elements: m = β1 m + (1 − β1) g, v = β2 v + (1 − β2) g², w = keep w − rate m / (√v scale + ε). */
typedef struct nn_adamw {
    float gradient_scale, beta1, beta2, keep, epsilon;
    float rate;           /* learning rate / (1 − β1ᵗ) */
    float root_scale;     /* 1 / √(1 − β2ᵗ) */
    float average_factor; /* average += factor (w − average) */
} nn_adamw;

typedef struct nn_gradient_kernels {
    /* c[m][n] += Σ over operands a1ᵀ b1 + a2ᵀ b2, sums over k rows in order; n is a multiple of NN_PAD, rows of b and c are
     * aligned. n_operands is 1 or 2. */
    void (*outer)(int m, int n, int k, int n_operands, const nn_outer *operands, int lda, int ldb, float *c, int ldc);
    /* Packs wᵀ for product(): w is row-major [n][k], both multiples of NN_PAD. */
    void (*pack_transposed)(int k, int n, const float *w, float *packed);
    /* out[n] = Σ over `count` arrays, in order. */
    void (*sum_arrays)(size_t n, int count, const float *const *arrays, float *out);
    /* Σ x², blocks of 4096 in float32, their sum in float64. */
    double (*square_sum)(size_t n, const float *x);
    /* sum[n] += Σ over the k rows of a. */
    void (*column_sums)(int n, int k, const float *a, int lda, float *sum);
    /* x[i] = act(x[i]), slope = act', curve = act''; n is a multiple of NN_PAD. SiLU or shifted softplus. */
    void (*activate)(enum nn_activation kind, size_t n, float *x, float *slope, float *curve);
    /* out = a b */
    void (*multiply)(size_t n, const float *a, const float *b, float *out);
    /* a = a slope + b curve c: the tangent of an adjoint passing an activation. */
    void (*multiply_dual)(size_t n, float *a, const float *slope, const float *b, const float *curve, const float *c);
    void (*adamw)(const nn_adamw *update, size_t n, const float *g, float *w, float *m, float *v, float *average);
    /* Columns of z[n][ld], beyond n 0: modified Gram-Schmidt, twice, so that rounding of the first pass does not count. A column of
     * zeros stays so. dots[ld] is scratch. */
    void (*orthonormalize)(int n, int ld, float *z, float *dots);
} nn_gradient_kernels;
/* `path` is one of mlff_cpu_paths(). */
const nn_gradient_kernels *nn_gradient_kernels_get(const char *path);

#endif
