/* SPDX-License-Identifier: MIT */
/* nn.h: dense layers in float32 and tables of one-dimensional functions. */
#ifndef NN_H
#define NN_H

#include "base/base.h"

/* Widths of layers are padded to this many floats with zeros, which stay zero through every stage. */
enum { NN_PAD = 16 };
static inline int nn_padded(int width)
{
    return (width + NN_PAD - 1) / NN_PAD * NN_PAD;
}

enum nn_activation { NN_SILU, NN_SHIFTED_SOFTPLUS, NN_CELU }; /* CELU with alpha = 0.1 */

/* Rows first … first + count − 1 of a packed matrix. */
typedef struct nn_rows {
    int first, count;
} nn_rows;

/* A packed matrix of n columns, whose product lies from `column` of c on. */
typedef struct nn_block {
    const float *packed;
    int n, column;
} nn_block;

/* Floats of memory of a packed k × n matrix. */
typedef size_t nn_packed_floats(int k, int n);
/* Copies the k × n matrix b[k][n] into the order in which a product reads it; n is a multiple of NN_PAD. */
typedef void nn_pack(int k, int n, const float *b, float *packed);
/* c[m][n] = a[m][k] b[k][n] + bias[n] (bias may be NULL), or c += a b, where a b is rounded first (on "amx" up to k = 1536). The order of each
 * sum is that of k, whatever m is, so a row's bits do not depend on other rows. */
typedef void nn_product(int m, int n, int k, const float *a, int lda, const float *packed, const float *bias, float *c, int ldc,
                        int accumulate);

/* x[i] = act(x[i]) and, where given, derivative[i] = act'(x[i]); n is a multiple of NN_PAD. */
typedef void nn_activate(enum nn_activation kind, size_t n, float *x, float *derivative);

/* Of a path and a precision. In float32 k is any number, else a multiple of NN_PAD. */
typedef struct nn_kernels {
    const char *path;
    nn_packed_floats *packed_floats;
    nn_pack *pack;
    nn_product *product;
    /* The same as a sum of parts of 32 columns each: rounding errors grow with the number of terms of a part and the number of parts, not
     * with k. 2 to 5 % slower (k = 256 to 1024); a row's bits do not depend on other rows either. */
    nn_product *product_in_parts;
    /* The same as product, to the bit, where a has columns for some rows of the k × n matrix only, those of `rows`, one after the other. On
     * "amx" they begin and end at multiples of NN_PAD. */
    void (*product_rows)(int m, int n, int k, int n_runs, const nn_rows *rows, const float *a, int lda, const float *packed,
                         const float *bias, float *c, int ldc, int accumulate);
    /* Products of the same a with several matrices, each for columns of c of its own. */
    void (*product_blocks)(int m, int k, int n_blocks, const nn_block *blocks, const float *a, int lda, float *c, int ldc,
                           int accumulate);
    nn_activate *activate;
} nn_kernels;
/* Operands of products; sums are in float32. */
enum nn_precision {
    NN_FLOAT32, /* on every path */
    NN_TF32,    /* 16 bits, two numbers in bfloat16: on "amx" */
    NN_BF16     /* 8 bits, and activations to 1e-4: on "amx", and on "avx512" where the processor has AVX512-BF16 */
};
/* `path` is one of mlff_cpu_paths(). NULL where it has no such products. */
const nn_kernels *nn_kernels_get(const char *path, enum nn_precision precision);

/* n_columns functions of one variable on [0, end], as quintic B-splines on uniform knots:
 *   f_c(x) = Σ_{k<6} w_k(t) coefficient[knot + k][c],   x = (knot + t) · end / n_intervals
 * Their derivative is that of the spline, so that forces are the derivative of the energy that is returned. */
typedef struct nn_spline {
    int n_intervals, n_columns;
    double end;
    float *coefficient; /* [n_intervals + 5][n_columns] */
} nn_spline;
/* Interpolates `function` (fills f[n_columns] at x, which may lie a little outside [0, end]: the analytic
 * continuation) with as many intervals, 64 to 2048, as it takes to reach `tolerance` relative to the largest
 * value of any column. */
mlff_status nn_spline_create(int n_columns, double end, double tolerance, void (*function)(void *context, double x, double *f),
                             void *context, nn_spline *spline_out);
void nn_spline_free(nn_spline *spline);

#endif
