/* SPDX-License-Identifier: MIT */
/* orb_cpu.h: Orb in float32 on the CPU, with products in a precision of nn.h: packed weights and buffers, shared by orb_cpu*.c. Widths are
 * padded to NN_PAD: F features, H hidden, D edge inputs. */
#ifndef ORB_CPU_H
#define ORB_CPU_H

#include "device/team.h"
#include "nn/segment.h"
#include "orb_graph.h"

enum { ORB_BLOCK = 96 }; /* rows that go through a network together: 16 blocks of 6 rows of a matrix product */

/* Packed for products; *_back are the transposed products of the reverse pass, NULL where forces are direct. */
typedef struct orb_cpu_mlp {
    int n_in; /* padded */
    float *W1, *W2, *W3, *b1, *b2, *b3;
    float *W1_back, *W2_back, *W3_back;
    float *norm_weight, *norm_bias;
    nn_norm norm;
} orb_cpu_mlp;

/* What the reverse pass needs of a network applied to n rows. */
typedef struct orb_cpu_saved {
    float *slope1, *slope2; /* [n][H] */
    float *z, *inverse;     /* [n][F], [n] of the norm */
} orb_cpu_saved;

typedef struct orb_cpu_layer {
    orb_cpu_mlp edge, node;        /* edge: its first layer acts on e alone, the atoms' parts are `project` */
    float *project, *project_bias; /* F -> 2H: of a sender, with the bias, and of a receiver */
    float *project_back;           /* 2H -> F */
    float *gate;                   /* [2][F] send, receive */
    float gate_bias[2];
    orb_cpu_saved edge_saved, node_saved;
    float *message; /* [n_edges][F] */
    float *gates;   /* [n_edges][2] without the envelope */
} orb_cpu_layer;

typedef struct orb_cpu {
    model_backend backend;
    orb_parameters parameters;
    mlff_stage *stages;
    const nn_kernels *nn;
    const nn_segment_kernels *segment;
    enum nn_activation activation;
    int F, H, D, head, n_threads;
    orb_cpu_mlp encoder;
    orb_cpu_saved encoder_saved;
    orb_cpu_layer layer[ORB_MAX_LAYERS];
    float *encoded;                                               /* [n_species][F] encoded nodes by atomic number */
    float *force_hidden, *force_hidden_bias, *force, *force_bias; /* packed; 3 outputs padded to NN_PAD */
    orb_graph graph;
    nn_edges edges;
    float *envelope, *inputs, *e, *nodes, *project, *forces; /* forces [n_atoms][NN_PAD] of the head */
    float *e_bar, *h_bar, *envelope_bar, *nodes_bar, *sums_bar;
    float *condition;   /* [n_systems][n_layers][F] */
    int32_t *system_of; /* [n_atoms] */
    double *mean;       /* [n_systems][F] of the last nodes */
    float *scratch[TEAM_MAX];
    double *plain[TEAM_MAX]; /* scratch of the heads in float64 */
    size_t atom_capacity, edge_capacity, system_capacity, system_of_capacity, condition_capacity;
    int64_t n_growths, bytes;
} orb_cpu;

/* One compute, as all threads see it. */
typedef struct orb_run {
    orb_cpu *cpu;
    const model_graph *graph;
    const model_outputs *outputs;
    stage_clock *clock;
    int stage;
} orb_run;

/* Rows of one thread. */
typedef struct orb_span {
    int begin, end;
} orb_span;
static inline orb_span orb_span_of(int n, const team_member *member)
{
    return (orb_span){(int)((int64_t)n * member->thread / member->n), (int)((int64_t)n * (member->thread + 1) / member->n)};
}
static inline void orb_mark(const orb_run *r, const team_member *member, int stage)
{
    if (member->thread == 0) stage_end(r->clock, r->stage + stage);
}

/* Packs the weights; orb_cpu_weights.c. */
mlff_status orb_cpu_pack(orb_cpu *cpu);
void orb_cpu_free_weights(orb_cpu *cpu);
/* y [n][F] = norm(MLP(x)), x [n][mlp->n_in]; `started`: h holds the other parts of the first layer. `h` [2][ORB_BLOCK][H];
 * `saved`, at row `row`, is filled where it is not NULL. */
void orb_cpu_mlp_forward(const orb_cpu *cpu, const orb_cpu_mlp *mlp, int n, const float *x, bool started, float *h, float *y,
                         const orb_cpu_saved *saved, int row);
/* dE/d(first hidden layer before its activation) [n][H], from y_bar [n][F]; `scratch` [ORB_BLOCK][F + H]. */
void orb_cpu_mlp_backward(const orb_cpu *cpu, const orb_cpu_mlp *mlp, int n, const float *y_bar, const orb_cpu_saved *saved,
                          int row, float *scratch, float *h_bar);
/* The reverse pass, after a barrier behind the readout: orb_cpu_gradient.c. */
void orb_cpu_backward(const orb_run *run, const team_member *member);
/* The float32 backend. */
mlff_status orb_cpu_create(const mlff_model *model, const cpu_options *options, model_backend **backend_out);

#endif
