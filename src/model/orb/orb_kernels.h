/* SPDX-License-Identifier: MIT */
/* orb_kernels.h: Orb's own pieces of the float32 step, one table per CPU path; matrix products are nn_kernels'. Widths are padded
 * to NN_PAD with zeros: F features, H hidden. `width` is the number of features that count in a norm. */
#ifndef ORB_KERNELS_H
#define ORB_KERNELS_H

#include "nn/nn.h"

/* A norm: LayerNorm where bias is given, else RMSNorm. */
typedef struct orb_norm_layer {
    int F, width;
    float epsilon;
    const float *weight, *bias; /* [F], zero in the padding */
} orb_norm_layer;

/* Edges begin .. end, and what the sums over them read. */
typedef struct orb_edge_arrays {
    const int32_t *sender, *receiver, *first, *first_incoming, *incoming;
    const float *envelope; /* [n_edges] */
} orb_edge_arrays;

typedef struct orb_kernels {
    /* h [end − begin][H] = project[sender][0 .. H) + project[receiver][H .. 2H). */
    void (*start_hidden)(const orb_edge_arrays *edges, int begin, int end, int H, const float *project, float *h);
    /* y [n][F] becomes its norm; z [n][F] the standardized y and inverse [n] the factor 1/s, where given. */
    void (*norm)(const orb_norm_layer *norm, int n, float *y, float *z, float *inverse);
    /* y_bar [n][F] from out_bar [n][F]. */
    void (*norm_backward)(const orb_norm_layer *norm, int n, const float *z, const float *inverse, const float *out_bar,
                          float *y_bar);
    /* gate [end − begin][2] = sigmoid of (send, receive)·e + bias; weights [2][F]. */
    void (*gates)(int n, int F, const float *weights, const float bias[2], const float *e, float *gate);
    /* context [end − begin][3F] of atoms = [n | A_r | A_s], sums of gated messages over edges. */
    void (*sum_messages)(const orb_edge_arrays *edges, int begin, int end, int F, const float *nodes, const float *message,
                         const float *gate, float *context);
    /* sums [end − begin][2H] of atoms: rows of h_bar over the edges it sends, and over those that end in it. */
    void (*sum_hidden)(const orb_edge_arrays *edges, int begin, int end, int H, const float *h_bar, float *sums);
    /* From dE/d(A_r | A_s) [n_atoms][2F]: m_bar [end − begin][F], e_bar += through the gates, envelope_bar += . */
    void (*message_backward)(const orb_edge_arrays *edges, int begin, int end, int F, const float *weights, const float *message,
                             const float *gate, const float *sums_bar, float *e_bar, float *m_bar, float *envelope_bar);
    /* a += b */
    void (*add)(size_t n, float *a, const float *b);
    /* a *= b */
    void (*multiply)(size_t n, float *a, const float *b);
} orb_kernels;
const orb_kernels *orb_kernels_get(const char *path);

#endif
