/* SPDX-License-Identifier: MIT */
/* soap.h: SOAP (Vyas et al. 2024, arXiv:2409.11321): Adam in the eigenbasis of Shampoo's preconditioner. Each weight matrix W
 * with gradient G keeps running means of two covariances and a basis of each:
 *
 *   G' = Q_Lᵀ G Q_R,   M' = Q_Lᵀ M Q_R,   M = β1 M + (1 − β1) G,   V = β2 V + (1 − β2) G'²
 *   W = keep W − rate Q_L [(M'/(1 − β1ᵗ)) / (√(V/(1 − β2ᵗ)) + ε)] Q_Rᵀ
 *   L = s L + (1 − s) G Gᵀ,   R = s R + (1 − s) Gᵀ G,   every some steps Q = orthonormalized (C + 1e-7 tr(C)/n) Q of C = L, R
 *
 * Bases begin as the identity, so that the first step is Adam's. A side of more than SOAP_MAX_SIDE rows keeps the identity; vectors
 * and embeddings are updated by AdamW. M is kept unrotated, V in the bases. */
#ifndef SOAP_H
#define SOAP_H

#include "nn/gradient.h"
#include "train_backend.h"

enum { SOAP_MAX_SIDE = 128 };
#define SOAP_SHIFT 1e-7 /* of the mean eigenvalue, added to all: no column vanishes */

/* A covariance and its basis, one after the other in the state: n rows of ld numbers each, padded with zeros. */
typedef struct soap_side {
    int n, ld;
    int64_t at; /* place in the state; -1: this side keeps the identity */
} soap_side;
typedef struct soap_matrix {
    int64_t offset; /* in the flat vectors; row-major */
    int n_rows, n_columns;
    soap_side left, right;
} soap_matrix;
typedef struct soap_plan {
    int *of_tensor;        /* [tensors of the layout] its matrix; -1: updated by AdamW */
    soap_matrix *matrices; /* [n_matrices] */
    int n_matrices;
    int64_t n_state;  /* numbers of the state of all matrices */
    size_t n_scratch; /* numbers that soap_step needs beside it */
} soap_plan;

/* Which tensors of a layout are preconditioned, rows of the state padded to multiples of `pad`. Fails with MLFF_ERR_MEMORY. */
mlff_status soap_plan_create(const train_layout *layout, int pad, soap_plan *plan_out);
void soap_plan_free(soap_plan *plan);
/* The state before the first step into state[plan.n_state]: no covariance, bases the identity. */
void soap_begin(const soap_plan *plan, double *state);

/* One matrix in float64, plain. g, w, m, v, average are the flat vectors, `scale` multiplies the gradient. Fails with MLFF_ERR_MEMORY. */
mlff_status soap_step_reference(const soap_matrix *matrix, const train_update *update, double scale, const double *g, double *w,
                                double *m, double *v, double *average, double *state);
/* The same in float32; pad is NN_PAD. scratch[plan.n_scratch] and state are aligned as base_alloc does. */
void soap_step(const soap_matrix *matrix, const train_update *update, float scale, const nn_gradient_kernels *kernels,
               const float *g, float *w, float *m, float *v, float *average, float *state, float *scratch);

#endif
