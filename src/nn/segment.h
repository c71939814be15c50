/* SPDX-License-Identifier: MIT */
/* segment.h: float32 operations of message-passing networks with their reverse passes: norms, sums over the edges of an atom, attention,
 * softmax. One table per CPU path; matrix products are nn_kernels'. Numbers of columns are padded to NN_PAD with zeros, which stay zero. */
#ifndef NN_SEGMENT_H
#define NN_SEGMENT_H

#include "nn/nn.h"

/* A norm of rows: out = weight ∘ z + bias with z = (y − μ)/s and s = √(mean (y − μ)² + ε) (LayerNorm), or where bias is NULL
 * out = weight ∘ z with z = y/s and s = √(mean y² + ε) (RMSNorm). Means are over the first `width` columns. */
typedef struct nn_norm {
    int F, width; /* padded; columns that count */
    float epsilon;
    const float *weight, *bias; /* [F], zero in the padding */
} nn_norm;

/* Edges grouped by sender, ascending, and listed by receiver. */
typedef struct nn_edges {
    const int32_t *sender, *receiver;                 /* [n_edges] */
    const int32_t *first, *first_incoming, *incoming; /* [n_atoms + 1] twice, [n_edges] */
    const float *envelope;                            /* [n_edges] c */
} nn_edges;

/* Rows of segments: rows first[i] … first[i + 1] − 1 where `row` is NULL, else row[first[i]] … row[first[i + 1] − 1]; a row is in one segment.
 * With nn_edges: {first, NULL} are the edges that an atom sends, {first_incoming, incoming} those that end in it. */
typedef struct nn_segments {
    const int32_t *first; /* [n_segments + 1] */
    const int32_t *row;
} nn_segments;

/* Edges or atoms begin … end − 1. Arrays of all edges or atoms are addressed by their indices; `out` begins with row `begin`. */
typedef struct nn_segment_kernels {
    /* out [end − begin][H] of edges = x[sender][0 .. H) + x[receiver][H .. 2H), x [n_atoms][2H]. */
    void (*gather)(const nn_edges *edges, int begin, int end, int H, const float *x, float *out);
    /* Its reverse pass: out [end − begin][2H] of atoms: sums of rows of x [n_edges][H] over the edges that an atom sends, and over those
     * that end in it. */
    void (*segment_sum)(const nn_edges *edges, int begin, int end, int H, const float *x, float *out);
    /* y [n][F] becomes its norm; z [n][F] and inverse [n], 1/s, where given. */
    void (*norm)(const nn_norm *norm, int n, float *y, float *z, float *inverse);
    /* y_bar [n][F] from out_bar [n][F]: (g − mean g − z mean(g z))/s with g = weight ∘ out_bar, without mean g for RMSNorm. */
    void (*norm_backward)(const nn_norm *norm, int n, const float *z, const float *inverse, const float *out_bar, float *y_bar);
    /* gate [n][2] = σ(weights · e + bias), weights [2][F] of senders and of receivers. */
    void (*gates)(int n, int F, const float *weights, const float bias[2], const float *e, float *gate);
    /* out [end − begin][stride] of atoms: [received | sent], F columns each: sums of gate · envelope · value, value [n_edges][F], over the
     * edges that end in an atom and over those that it sends. */
    void (*attention)(const nn_edges *edges, int begin, int end, int F, const float *value, const float *gate, float *out,
                      int stride);
    /* Reverse pass of attention and gates, of edges whose features are updated, e' = e + value. From sums_bar [n_atoms][2F], adjoints of
     * [received | sent], and e_bar [n_edges][F], that of e': value_bar [end − begin][F]; e_bar, that of e through the gates and e';
     * envelope_bar [n_edges] += . */
    void (*attention_backward)(const nn_edges *edges, int begin, int end, int F, const float *weights, const float *value,
                               const float *gate, const float *sums_bar, float *e_bar, float *value_bar, float *envelope_bar);
    /* share [n_rows][H] of segments begin … end − 1, each column by itself: exp(x − max)/Σ exp(x − max) over the segment's rows. `share`
     * may be x. */
    void (*segment_softmax)(const nn_segments *segments, int begin, int end, int H, const float *x, float *share);
    /* x_bar = share ∘ (share_bar − Σ share ∘ share_bar). `x_bar` may be share_bar. */
    void (*segment_softmax_backward)(const nn_segments *segments, int begin, int end, int H, const float *share,
                                     const float *share_bar, float *x_bar);
    /* a += b */
    void (*add)(size_t n, float *a, const float *b);
    /* a *= b */
    void (*multiply)(size_t n, float *a, const float *b);
} nn_segment_kernels;
/* `path` is one of mlff_cpu_paths(). */
const nn_segment_kernels *nn_segment_kernels_get(const char *path);

#endif
