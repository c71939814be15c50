/* SPDX-License-Identifier: MIT */
/* least_squares.h: minimum-norm linear least squares of many rows and few unknowns, float64, rows added one by one. */
#ifndef LEAST_SQUARES_H
#define LEAST_SQUARES_H

#include "base/base.h"

typedef struct least_squares {
    int n;              /* unknowns */
    double *triangle;   /* [n][n] R of the QR factorization of the rows so far, upper triangle */
    double *right_side; /* [n] Qᵀ b */
    double *row;        /* [n] scratch */
} least_squares;

/* Fails with MLFF_ERR_MEMORY. */
mlff_status least_squares_create(int n, least_squares *problem);
/* Adds Σ row[k] x[k] = right_side. */
void least_squares_add(least_squares *problem, const double *row, double right_side);
/* x[n] of least norm among those of least squared error. Directions whose singular value is below 1e-10 of the largest count as
 * undetermined. Uses up `triangle`. Fails with MLFF_ERR_MEMORY. */
mlff_status least_squares_solve(least_squares *problem, double *x);
void least_squares_free(least_squares *problem);

#endif
