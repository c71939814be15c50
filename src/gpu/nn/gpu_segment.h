/* SPDX-License-Identifier: MIT */
/* gpu_segment.h: sums over the edges of an atom, those that it sends and those that end in it, softmax over segments of rows, and their reverse
 * passes. Sums run in the order of the edges; no float is added atomically. */
#ifndef GPU_SEGMENT_H
#define GPU_SEGMENT_H

#include "norm.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { GPU_LOGIT_PARTS = 8 }; /* at most: blocks of a cluster that share a row */

/* Edges sorted by sender, and listed by receiver in ascending order; on the device. */
typedef struct gpu_edge_list {
    const int32_t *n_atoms, *n_edges;
    const int32_t *first, *incoming_first; /* [n_atoms + 1] */
    const int32_t *incoming;               /* [n_edges] */
    const int32_t *sender, *receiver;      /* [n_edges] */
} gpu_edge_list;

/* Attention: an edge has two weights a = σ(logit + bias) c and a value v = scale ∘ z + shift of 256 columns, or v = z;
 *   received[j] = Σ a_r v over the edges that end in j,   sent[i] = Σ a_s v over the edges that i sends */
typedef struct gpu_attention {
    gpu_edge_list edges;
    const float *logits; /* [n_edges][logit_parts][2] parts of the logits, of senders and of receivers */
    int32_t logit_parts;
    float bias[2];
    const float *envelope;      /* [n_edges] c */
    const float *z;             /* [n_edges][256] */
    int32_t halves;             /* 1: z are halves; not of those of a reverse pass */
    const float *scale, *shift; /* [256]; shift may be NULL, and scale if v = z */
    gpu_operand out;            /* [n_atoms][512] received, sent */
    uint64_t *stamp;
} gpu_attention;

/* Reverse pass where the edge's features e give the logits, weight · e, and are updated, e' = e + v, and v is the output of a norm, with a scale:
 *   e_bar += Σ over both kinds of weight (dE/da) a(1 − σ);  envelope_bar += Σ (dE/da) σ;  v̄ = e_bar before + a_s sent_bar + a_r received_bar
 * and on through the norm. */
typedef struct gpu_attention_backward {
    gpu_attention attention; /* out and stamp are not used */
    const float *weight;     /* [2][256] */
    const float *sums_bar;   /* [n_atoms][stride] adjoints of received and sent, 256 each */
    int32_t stride;
    int32_t begins;      /* 1: e_bar and envelope_bar begin with zeros, whatever they hold */
    float *e_bar;        /* [n_edges][256] */
    float *envelope_bar; /* [n_edges] */
    gpu_norm_rows norm;
    int32_t first_row, rows;
    uint64_t *stamp;
} gpu_attention_backward;

/* Sums of rows over the edges that an atom sends, and over those that end in it; each row times its factor. The sums of an atom are
 * stored as gpu_norm_rows stores rows. */
typedef struct gpu_segment_sum {
    gpu_edge_list edges;
    gpu_operand rows;       /* [n_edges][columns] */
    const float *row_scale; /* [n_edges] */
    gpu_operand sums;       /* [n_atoms][2 columns] sent, received */
    float *sums_scale;      /* [n_atoms] */
} gpu_segment_sum;

/* Rows of segments: rows first[i] … first[i + 1] − 1 where `row` is NULL, else row[first[i]] … row[first[i + 1] − 1]; a row is in one segment.
 * {n_atoms, first, NULL} of an edge list are the edges that an atom sends, {n_atoms, incoming_first, incoming} those that end in it. */
typedef struct gpu_segments {
    const int32_t *n_segments; /* on the device */
    const int32_t *first;      /* [n_segments + 1] */
    const int32_t *row;
} gpu_segments;

enum { GPU_SOFTMAX_COLUMNS = 32 }; /* at most */

/* Softmax over the rows of a segment, each column by itself: share = exp(x − max)/Σ exp(x − max). */
typedef struct gpu_softmax {
    gpu_segments segments;
    int32_t columns;
    const float *x; /* [rows][columns] */
    float *share;   /* the same shape; may be x */
    uint64_t *stamp;
} gpu_softmax;

/* x_bar = share ∘ (share_bar − Σ share ∘ share_bar) */
typedef struct gpu_softmax_backward {
    gpu_segments segments;
    int32_t columns;
    const float *share, *share_bar; /* [rows][columns] */
    float *x_bar;                   /* the same shape; may be share_bar */
    uint64_t *stamp;
} gpu_softmax_backward;

/* `n_atoms`, `n_segments`: upper bound; more columns than GPU_SOFTMAX_COLUMNS are cudaErrorInvalidValue. `stream` is a cudaStream_t, the result a cudaError_t. */
int gpu_launch_attention(const gpu_attention *call, enum gpu_number numbers, int n_atoms, int overlap, void *stream);
int gpu_launch_attention_backward(const gpu_attention_backward *call, enum gpu_number numbers, int overlap, void *stream);
int gpu_launch_segment_sum(const gpu_segment_sum *call, enum gpu_number numbers, int n_atoms, int overlap, void *stream);
int gpu_launch_softmax(const gpu_softmax *call, int n_segments, int overlap, void *stream);
int gpu_launch_softmax_backward(const gpu_softmax_backward *call, int n_segments, int overlap, void *stream);

#ifdef __cplusplus
}
#endif
#endif
