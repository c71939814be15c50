/* SPDX-License-Identifier: MIT */
/* painn_plain.h: functions of one number and products of matrices in float64, shared by the reference implementations. */
#ifndef PAINN_PLAIN_H
#define PAINN_PLAIN_H

#include <math.h>
#include <stddef.h>

#include "model/painn/painn.h"

static inline double plain_sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

static inline double plain_activation(enum painn_activation kind, double x)
{
    if (kind == PAINN_SILU) return x * plain_sigmoid(x);
    return (x > 0 ? x : 0) + log1p(exp(-fabs(x))) - 0.6931471805599453; /* softplus - ln 2 */
}

static inline double plain_activation_derivative(enum painn_activation kind, double x)
{
    double s = plain_sigmoid(x);
    return kind == PAINN_SILU ? s * (1.0 + x * (1.0 - s)) : s;
}

/* silu'' = σ(1 - σ)(2 + x(1 - 2σ)); the shifted softplus has σ(1 - σ). */
static inline double plain_activation_second(enum painn_activation kind, double x)
{
    double s = plain_sigmoid(x), slope = s * (1.0 - s);
    return kind == PAINN_SILU ? slope * (2.0 + x * (1.0 - 2.0 * s)) : slope;
}

/* y[n][b] += x[n][a] m[a][b] */
static inline void plain_add_product(int n, int a, int b, const double *x, const double *m, double *y)
{
    for (int i = 0; i < n; i++)
        for (int k = 0; k < a; k++) {
            double factor = x[(size_t)i * a + k];
            const double *row = m + (size_t)k * b;
            double *out = y + (size_t)i * b;
            for (int j = 0; j < b; j++) out[j] += factor * row[j];
        }
}

#endif
