/* SPDX-License-Identifier: MIT */
/* painn_train_cpu.h: the float32 training step of PaiNN on the CPU: weights as the step reads them (painn_train_cpu_weights.c), the
 * passes over a group of frames (painn_train_cpu_group.c), batches, threads and the contract (painn_train_cpu.c). */
#ifndef PAINN_TRAIN_CPU_H
#define PAINN_TRAIN_CPU_H

#include "device/team.h"
#include "model/painn/painn_kernels.h"
#include "model/training/soap.h"
#include "model/training/train_batch.h"
#include "nn/gradient.h"
#include "painn_train_kernels.h"
#include "painn_trainable.h"

/* A matrix (out, in) or vector of the model. Rows and columns come in blocks of F that are padded to NN_PAD. */
typedef struct cpu_weight {
    int64_t flat;                /* offset in the flat vector */
    int rows, columns;           /* in the flat vector; a vector has one row */
    int row_block, column_block; /* lengths of blocks in the flat vector */
    int padded_rows, padded_columns;
    int skipped_block;     /* block of rows that is left out here and has no gradient; -1: none */
    bool is_vector;        /* bias: `forward` is plain, `back` NULL */
    float *forward, *back; /* packed for x Wᵀ, and for x̄ W */
    size_t gradient;       /* offset in a slot's gradient, [padded_rows][padded_columns] */
} cpu_weight;

/* A layer's filter: weight [3F][K] and bias [3F]; here slices of 16 features, each [K + 1][3][16]. The first layer has μ = 0 and, where
 * the filter is its own, no use for the block of μ. */
typedef struct cpu_filter {
    int64_t flat_weight, flat_bias;
    int blocks;      /* that are used, 2 or 3 */
    float *packed;   /* [F/16][K + 1][blocks][16] */
    size_t gradient; /* [F/16][K + 1][3][16] */
} cpu_filter;

/* Indices of weights[] and filters[]; layers that share have the same. */
typedef struct cpu_layer {
    int W1, b1, W2, b2, U, M1, c1, M2, c2, filter;
} cpu_layer;

enum {
    CPU_MAX_WEIGHTS = 9 * PAINN_MAX_LAYERS + 2 * PAINN_MAX_READOUT + 1,
    CPU_MAX_SLOTS = 16,
    CPU_GROUP_ATOMS = 48,       /* a group's activations stay in the second and third cache, its products have enough rows */
    CPU_KEPT_FILTERS = 4 << 20, /* bytes: filters of a group that are kept from pass to pass if they are no more */
};

/* What one thread needs for one group of frames; everything lies in `arena`. Arrays of a layer: [n][…F]. */
typedef struct group_layer {
    float *q, *mu;                                         /* input F, 3F */
    float *a, *slope, *curve, *x;                          /* F, F, F, 3F */
    float *mu1, *VB, *context, *s, *g_slope, *g_curve, *y; /* 3F, 6F, 2F, F, F, F, 3F */
    float *q_bar, *mu_bar;                                 /* adjoints of the output F, 3F */
    float *y_bar, *s_bar, *g_bar, *context_bar, *VB_bar;   /* 3F, F, F, 2F, 6F; s_bar before, g_bar after the slope */
    float *q1_bar, *mu1_bar, *x_bar, *a_bar, *h_bar;       /* F, 3F, 3F, F, F */
    float *dq, *dmu, *dh, *da, *dx;                        /* F, 3F, F, F, 3F */
    float *dmu1, *dVB, *dcontext, *dg, *ds, *dy;           /* 3F, 6F, 2F, F, F, 3F */
} group_layer;

typedef struct group_readout {
    float *act, *slope, *curve, *dz, *dact; /* outputs of the layer, [n][out] */
    float *z_bar, *act_bar;                 /* adjoints after and before the slope */
} group_readout;

typedef struct cpu_group {
    float *arena;
    size_t arena_floats;
    int n, m;                /* atoms, pairs */
    int begin, end;          /* frames of the batch */
    int32_t *first;          /* [n + 1] */
    painn_train_edge *edges; /* [2m] */
    int64_t *set_pair;       /* [m] index of the pair's first edge in the set */
    int32_t *atoms;          /* [m][2] its atoms in the group */
    int32_t *species, *row;  /* [n] atomic number, and row of the table of species */
    float *u, *du, *psi, *dpsi, *pair_bar, *filter_bar, *filter_moved;
    float *W, *dW;                           /* of a slice [group_pairs][48]; where they are kept, of each slice of each layer */
    group_layer layer[PAINN_MAX_LAYERS + 1]; /* the last one has q and dq only */
    group_readout readout[PAINN_MAX_READOUT];
    float *dq_bar, *dq1_bar, *dmu_bar, *dmu1_bar, *dy_bar, *dg_bar, *dcontext_bar, *dVB_bar, *dx_bar, *dh_bar, *dz_bar, *dact_bar;
    float *species_x_bar;                  /* [n_rows][3F] sums of a slot */
    float *species_a_bar, *species_gather; /* [n_rows][F] */
} cpu_group;

typedef struct painn_train_cpu {
    train_backend backend;
    painn_parameters parameters;
    painn_trainable trainable;
    const nn_kernels *nn;
    const nn_gradient_kernels *gradient;
    const painn_kernels *painn;
    const painn_train_kernels *train;
    enum nn_activation activation;
    int n_threads, F, K1; /* F padded; K + 1 */
    bool skips_last;      /* y^μ of the last layer is left out: not where layers share it */

    /* The model. */
    float *vectors[TRAIN_VECTORS]; /* [train_vector_size] */
    soap_plan soap;                /* empty with AdamW */
    float *soap_scratch[TEAM_MAX]; /* of each thread */
    int packed;                    /* enum train_vector that `weights` were packed from; -1: none */
    cpu_weight weights[CPU_MAX_WEIGHTS];
    cpu_filter filters[PAINN_MAX_LAYERS];
    int n_weights, n_filters;
    cpu_layer layer[PAINN_MAX_LAYERS];
    int readout_weight[PAINN_MAX_READOUT], readout_bias[PAINN_MAX_READOUT];
    int readout_width[PAINN_MAX_READOUT + 1]; /* padded */
    size_t embedding_gradient, slot_floats;
    float *pack_scratch[TEAM_MAX];
    /* Layer 0's message network for each species in use. */
    int n_rows;
    int32_t row_species[MLFF_MAX_ATOMIC_NUMBER + 1], species_row[MLFF_MAX_ATOMIC_NUMBER + 1];
    float *embedding, *a0, *slope0, *curve0, *x0; /* [n_rows][F, F, F, F, 3F] */

    /* A batch. */
    const train_set *set;
    train_batch batch;
    train_sums sums;
    int32_t *frames;        /* of evaluate() */
    int *group_begin;       /* [n_groups + 1] frames */
    train_sums *group_sums; /* [n_groups] */
    size_t group_capacity, group_sums_capacity, frames_capacity;
    int n_groups, n_slots;
    float *slots[CPU_MAX_SLOTS];
    float *total;                 /* [n_parameters] */
    double *squares;              /* of each tensor's part of the gradient */
    cpu_group groups[TEAM_MAX];   /* of each thread */
    int group_atoms, group_pairs; /* capacity */
    bool groups_stale;            /* not yet allocated for it */
    bool keeps_filters;
} painn_train_cpu;

/* Fills weights, filters and layers, and allocates their packed forms. */
mlff_status painn_train_cpu_plan_weights(painn_train_cpu *cpu);
void painn_train_cpu_free_weights(painn_train_cpu *cpu);
/* Packs cpu->vectors[which]; called by all members of a team. */
void painn_train_cpu_pack(painn_train_cpu *cpu, enum train_vector which, const team_member *member);
/* total = sum of the slots in order; squares[k] of weight, filter or embedding k. Called by all members of a team. */
void painn_train_cpu_reduce(painn_train_cpu *cpu, const team_member *member);
/* Number of entries of `squares`. */
int painn_train_cpu_n_parts(const painn_train_cpu *cpu);

/* Lays out the arena of a group for so many atoms and pairs; with a NULL arena only counts. Returns floats. */
size_t painn_train_cpu_layout(const painn_train_cpu *cpu, cpu_group *group, int n_atoms, int n_pairs);
/* Predictions of the group's frames into cpu->batch. */
void painn_train_cpu_base(painn_train_cpu *cpu, cpu_group *group);
/* Adds the gradient of the loss, whose c, v and B are in cpu->batch, to a slot. */
void painn_train_cpu_gradient(painn_train_cpu *cpu, cpu_group *group, float *slot);
/* Of layer 0's message network, after all groups of a slot. */
void painn_train_cpu_finish_slot(painn_train_cpu *cpu, cpu_group *group, float *slot);

#endif
