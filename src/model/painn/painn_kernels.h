/* SPDX-License-Identifier: MIT */
/* painn_kernels.h: PaiNN's own pieces of the float32 step, one table per CPU path. Symbols: README.md of this folder.
 *
 * F is padded to NN_PAD. Features of an atom: q [F]; μ [3][F]; x [3][F], blocks q, R, μ; VB [3][2F], V then B;
 * y [3][F], blocks q, μ, t. The filter table of a layer is [F/16][n_intervals + 5][3][16]: a slice of 16 features
 * (19 kB at 96 intervals) stays in the first cache while the rows of a block of atoms go by. */
#ifndef PAINN_KERNELS_H
#define PAINN_KERNELS_H

#include "nn/nn.h"

/* A directed pair: one cache line. */
typedef struct painn_pair {
    float u[3];        /* direction from the central atom to the neighbor */
    int32_t knot;      /* interval of the filter table */
    float w[6], dw[6]; /* weights of its six rows: for W and for dW/dd */
} painn_pair;

/* What the sums over pairs of one layer read and write. Atoms begin .. end are this thread's. */
typedef struct painn_edges {
    int F, begin, end;
    const float *table;
    size_t slice;                 /* floats from one slice of 16 features to the next */
    const int32_t *first, *other; /* rows of each atom: in the forward sum its own pairs and their neighbors, in the
                                     reverse sum the pairs that end in it and their central atoms */
    const painn_pair *pairs;      /* of the rows; in the reverse sum turned around, from the atom to its central atom */
    const float *x, *mu;          /* layer input: x [n][3][F] (layer 0: [species][3][F]), mu [n][3][F] (layer 0: NULL) */
    const int32_t *x_row;         /* layer 0: species; else NULL: row j of x is atom j */
    float *q, *mu_out;            /* forward: q += Δq in place; mu_out = mu + Δμ */
    const float *q_bar, *mu_bar;  /* reverse, read at the centers */
    float *x_bar, *mu_bar_out;    /* reverse: x_bar [end − begin][3][F], mu_bar_out [n][3][F] = mu_bar + …; NULL in layer 0 */
    float *pair_bar;              /* reverse: of each row [4][4], four partial sums of (dE/dd, ū) of its pair */
    /* reverse: rows end at last[j]; from first_new[j] on, pair_bar is set, before it is added to */
    const int32_t *last, *first_new;
} painn_edges;

typedef struct painn_kernels {
    /* Pairs from edge vectors (model units); d >= end lies in the last interval with all weights zero. */
    void (*geometry)(int begin, int end, const double *vectors, int n_intervals, double table_end, painn_pair *pairs);
    void (*message)(const painn_edges *edges);
    void (*message_backward)(const painn_edges *edges);
    /* Per atom: context [2F] = [q | n]; n = sqrt(Σ V² + ε). */
    void (*context)(int n, int F, float epsilon, const float *q, const float *VB, float *context);
    /* q += y^q + y^t t; mu = mu1 + y^μ B, or, with `last`, y has blocks q, t and μ is not computed. */
    void (*mix)(int n, int F, int last, const float *y, const float *VB, const float *mu1, float *q, float *mu);
    /* y_bar [3F] (last: [2F]) from q_bar and mu_bar. */
    void (*mix_backward)(int n, int F, int last, const float *VB, const float *q_bar, const float *mu_bar, float *y_bar);
    /* VB_bar, and q_bar += the first half of context_bar. */
    void (*context_backward)(int n, int F, int last, float epsilon, const float *VB, const float *y, const float *context_bar,
                             const float *mu_bar, float *q_bar, float *VB_bar);
    /* a *= b, n a multiple of NN_PAD. */
    void (*multiply)(size_t n, float *a, const float *b);
    /* g = (Σ dE/dd) u + (ū − u (u·ū)) / d of each pair; its sums are row[p] of pair_bar (NULL: p). */
    void (*gradient)(int begin, int end, const double *vectors, const int32_t *row, const float *pair_bar, double *pair_gradient);
} painn_kernels;
const painn_kernels *painn_kernels_get(const char *path);

#endif
