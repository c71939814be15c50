/* SPDX-License-Identifier: MIT */
/* matrix.h: matrices [3][3], row by row. `out` is none of the inputs. */
#ifndef MATRIX_H
#define MATRIX_H

static inline void matrix_multiply(const double *a, const double *b, double out[9])
{
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++) out[3 * i + j] = a[3 * i] * b[j] + a[3 * i + 1] * b[3 + j] + a[3 * i + 2] * b[6 + j];
}

static inline void matrix_transpose(const double *a, double out[9])
{
    for (int i = 0; i < 9; i++) out[i] = a[3 * (i % 3) + i / 3];
}

/* a is not singular. */
static inline void matrix_invert(const double *a, double out[9])
{
    double determinant = 0;
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++) {
            const int i1 = (j + 1) % 3, i2 = (j + 2) % 3, j1 = (i + 1) % 3, j2 = (i + 2) % 3;
            out[3 * i + j] = a[3 * i1 + j1] * a[3 * i2 + j2] - a[3 * i1 + j2] * a[3 * i2 + j1];
        }
    for (int j = 0; j < 3; j++) determinant += a[j] * out[3 * j];
    for (int k = 0; k < 9; k++) out[k] /= determinant;
}

#endif
