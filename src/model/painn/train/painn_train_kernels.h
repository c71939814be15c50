/* SPDX-License-Identifier: MIT */
/* painn_train_kernels.h: PaiNN's own pieces of a float32 training step, one table per CPU path. Symbols: src/model/painn/README.md,
 * "Training". A name that begins with d is a tangent (a dot there), _bar an adjoint.
 *
 * F is padded to NN_PAD. Features of an atom: q [F]; μ, x [3][F]; VB [3][2F]; y [3][F], or [2][F] (blocks q, t) in the last
 * layer. A pair of atoms has two edges, one each way, with the same filter: arrays of pairs have half as many rows as edges. */
#ifndef PAINN_TRAIN_KERNELS_H
#define PAINN_TRAIN_KERNELS_H

#include "nn/nn.h"

/* An edge from the atom whose row it is in. */
typedef struct painn_train_edge {
    int32_t other, pair;
    float sign; /* 1: in the direction of the pair's u, the first of its two edges; -1: against it */
} painn_train_edge;

/* One slice of NN_PAD features of the sums over edges of one layer. What a kernel does not need is NULL. */
typedef struct painn_train_edges {
    int F, n_atoms;
    int slice;            /* first feature */
    const int32_t *first; /* [n_atoms + 1] */
    const painn_train_edge *edges;
    const float *u;                   /* [n_pairs][4] direction; 0 */
    const float *du;                  /* [n_pairs][4] its tangent; ḋ */
    const float *W, *dW;              /* [n_pairs][3][NN_PAD] of this slice: filter, its derivative in d; blocks q, R, μ */
    const int32_t *x_row;             /* layer 0: row of x of each atom; else NULL */
    const float *x, *mu, *dx, *dmu;   /* layer input [n][3F]; layer 0: only x */
    const float *q, *dq;              /* layer input [n][F]; layer 0: no dq */
    float *q_out, *mu_out;            /* forward: after the message */
    const float *q_bar, *mu_bar;      /* adjoints after the message [n][F], [n][3F] */
    const float *dq_bar, *dmu_bar;    /* their tangents */
    float *x_bar, *mu_bar_out;        /* reverse; layer 0: NULL, in the dual pass x_bar only */
    float *pair_bar;                  /* reverse: [n_pairs][4][4], four partial sums of dE/dd and ū (along the pair's u) each */
    int start;                        /* reverse: 1 sets pair_bar, 0 adds */
    float *filter_bar, *filter_moved; /* dual: [n_pairs][3][NN_PAD] Σ W̄̇ and ḋ Σ W̄ of both edges */
} painn_train_edges;

typedef struct painn_train_kernels {
    void (*message)(const painn_train_edges *edges);
    void (*message_backward)(const painn_train_edges *edges);
    void (*message_tangent)(const painn_train_edges *edges); /* q_out, mu_out are tangents */
    void (*message_dual)(const painn_train_edges *edges);    /* x_bar, mu_bar_out are tangents */
    /* dcontext = [q̇' | ṅ], n from context. */
    void (*context_tangent)(int n, int F, const float *dq, const float *VB, const float *dVB, const float *context,
                            float *dcontext);
    /* q̇'' in place of q̇', and μ̇''. */
    void (*mix_tangent)(int n, int F, int last, const float *y, const float *dy, const float *VB, const float *dVB,
                        const float *dmu1, float *dq, float *dmu);
    /* ȳ̇ */
    void (*mix_dual)(int n, int F, int last, const float *VB, const float *dVB, const float *q_bar, const float *dq_bar,
                     const float *mu_bar, const float *dmu_bar, float *dy_bar);
    /* V̄̇, B̄̇, and dq_bar += the first half of dcontext_bar. */
    void (*context_dual)(int n, int F, int last, const float *VB, const float *dVB, const float *y, const float *dy,
                         const float *context, const float *dcontext, const float *context_bar, const float *dcontext_bar,
                         const float *q_bar, const float *mu_bar, const float *dmu_bar, float *dq_bar, float *dVB_bar);
} painn_train_kernels;
const painn_train_kernels *painn_train_kernels_get(const char *path);

#endif
