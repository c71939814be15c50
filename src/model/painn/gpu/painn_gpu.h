/* SPDX-License-Identifier: MIT */
/* painn_gpu.h: what the files of PaiNN on CUDA share: the arrays of a step, and who launches what.
 *
 * One step is a chain of kernels, captured once into a CUDA graph. `mix` is update l and message network l + 1, all
 * that is local to an atom, in one kernel; edges are summed by the atom that owns the row, forward and backward:
 *
 *   prepare > search (by bins: scan > sort > rows) > message 0 > mix 0 > message 1 > … > mix L-1 with readout and back > edges L-1 > mix back > …
 *   > edges 0 > forces > sums;         reverse (the index of each pair's reverse) beside them, before forces
 *
 * Of small systems, of one of up to 1024 atoms, and of pairs handed in one kernel makes the rows. Few atoms have all layers in one kernel;
 * then forces look for the reverses themselves, while it runs. Energies are
 * summed beside the way back, or beside the forces where few atoms have one kernel; with virials behind the forces. In dynamics `forces` moves the atoms and the next list follows; sums are left to the last step of a graph.
 *
 * The reverse pass gathers: for the pair (i, j) whose sender j owns the row, the row of j holds the reverse pair, with
 * the same length and the opposite direction. So nothing is scattered and no float is added atomically.
 *
 * Features stand in slices of 16: an array of C components is [atom][F/16][C][16], of what edges gather
 * [atom][F/16][C/2][16][2]. Tiles of 16 atoms × 8 features are
 * the units of the tensor cores' products (nodes); thread layouts of saved values are private to the node kernels. */
#ifndef PAINN_GPU_H
#define PAINN_GPU_H

#include "gpu/gpu_pack.h"
#include "gpu/gpu_step.h"
#include "model/painn/painn.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    PAINN_GPU_MAX_LAYERS = PAINN_MAX_LAYERS,
    PAINN_GPU_TAG_BITS = 7,
    PAINN_GPU_INTERVALS = 1 << PAINN_GPU_TAG_BITS, /* of the filter table */
    PAINN_GPU_TABLE_RANGE = 8,                     /* the variable goes from −1/8 to 1/8 in an interval */
    PAINN_GPU_SLICE = 16,                          /* features */
    PAINN_GPU_VALUES = 576, /* bytes of a slice's interval in the table of values: 12 a feature and filter */
    PAINN_GPU_SAVED = 10,   /* values an atom's feature keeps for the way back: V, B [3] each, g, y^mu, y^t, h */
};

/* Numbers as operands of the tensor cores: two halves each (three products), or one half, or one bfloat16. Powers of two keep
 * halves in their range: weights are stored times a common factor, activations times 16. */
enum { PAINN_GPU_SPLIT_HALVES = GPU_SPLIT_HALVES, PAINN_GPU_HALVES = GPU_HALVES, PAINN_GPU_BFLOATS = GPU_BFLOATS };
#define PAINN_GPU_OPERAND_SCALE 16.0f
typedef struct painn_gpu_layer {
    /* [F/16][intervals][3][2][8] 16 bytes: c0, c1, c2 of one of a lane's two features, and c3 of both, or c4, as halves. In the fast modes a cubic of halves, two features
     * together: [F/16][intervals][3][8] 16 bytes: half2 c0, c1, c2, c3. */
    const void *filter;
    /* What the way forward looks up, but for the fast modes: of degree 3, without a derivative, lanes with
     * two features each. [F/16][intervals]: [3][8] c0, c1 of one, c0, c1 of the other; then halves of both, [8] c2, c3 of q and of R,
     * [8] c2, c3 of μ. */
    const void *values;
    const void *U, *M1, *M2, *W1, *W2;      /* y = x wᵀ */
    const void *Ut, *M1t, *M2t, *W1t, *W2t; /* y = x w; rows of M2t in the order q, t, μ */
    const float *c1, *c2, *b1, *b2;
} painn_gpu_layer;

/* The kernel of all layers. Operands of a tile in its blocks' shared memory, and a ring for weights; in pieces (of a lane). */
enum {
    PAINN_GPU_FUSED_F = 128,
    PAINN_GPU_TILE_ATOMS = 8,
    PAINN_GPU_TILE_BLOCKS = 8,
    PAINN_GPU_COUNTER_STRIDE = 32,                /* words from one count to the next */
    PAINN_GPU_UNIT = PAINN_GPU_FUSED_F / 16 * 32, /* F features: q, three of region A, n, three of B */
    PAINN_GPU_AT_Q = 0,
    PAINN_GPU_AT_A = PAINN_GPU_UNIT,
    PAINN_GPU_AT_N = 4 * PAINN_GPU_UNIT,
    PAINN_GPU_AT_B = 5 * PAINN_GPU_UNIT,
    PAINN_GPU_OPERANDS = 8 * PAINN_GPU_UNIT,
    PAINN_GPU_RING_SLOTS = 11, /* each 16 columns, F of k: a layer's weights */
    PAINN_GPU_SLOT = 2 * PAINN_GPU_UNIT,
    PAINN_GPU_RING = PAINN_GPU_RING_SLOTS * PAINN_GPU_SLOT
};
/* What is made of its products: activations, five a layer in this order (the last one's fourth is the readout), and adjoints: one of
 * the readout, then five a layer from above. */
enum { TO_V, TO_G, TO_Q, TO_H, TO_X };
enum { TO_Q_BAR, TO_G_BAR, TO_V_BAR, TO_MU_BAR, TO_H_BAR, TO_Q_BELOW };
/* One product: where its weights come from, and who waits for whom. */
typedef struct painn_gpu_product {
    const void *source[3]; /* of its weights: of the first block; `copies` of `bytes` each */
    const float *bias[3];  /* added to its sums, or NULL; of the first block */
    int32_t bytes, copies;
    int32_t position;       /* in the ring */
    int32_t after;          /* the product that must have read its weights before these may come; −1: none */
    int32_t ranks;          /* blocks with features of their own, in turn */
    int32_t operand, early; /* halves of F features that come before it, and before these */
    int32_t warps, parts;   /* that work on it, and that have a part for others of a sum */
} painn_gpu_product;

typedef struct painn_gpu_step {
    gpu_step gpu; /* first: the call, the neighbor list, the integrator, the stamps */
    /* ---- the model */
    int32_t n_features, n_layers, n_hidden; /* n_hidden: of the readout */
    int32_t numbers;                        /* operands: PAINN_GPU_SPLIT_HALVES … */
    int32_t softplus;                       /* activation: 0 silu, 1 shifted softplus */
    float epsilon;
    float weight_unit; /* of a product of operands: 1 / (16 · factor of the weights) */
    painn_gpu_layer layer[PAINN_GPU_MAX_LAYERS];
    const float *embedding; /* [n_species][F/16][16] */
    const float *x0;        /* [n_species][F/16][16][2]: message input x^q, x^R of layer 0, a function of the element */
    const void *O1, *O1t;
    ptrdiff_t rows_distance; /* from each matrix to the same as operand A, two features side by side */
    const float *o1, *O2;
    float o2;
    float table_scale; /* change of a table's variable with distance, 1/model length */

    const painn_gpu_product *products; /* [n_products] of the kernel of all layers */
    int32_t n_products, n_products_forward;

    /* ---- on the device */
    float *q; /* [n_atoms][F/16][16] q'' of the last layer done */
    float *state
        [PAINN_GPU_MAX_LAYERS]; /* [n_atoms][F/16][3][16][2] x^q x^R, μ_x μ_y, μ_z x^μ at the layer's input; none for layer 0 */
    float *prime;               /* [n_atoms][F/16][4][16] q', μ' */
    float *adjoint; /* [2][n_atoms + 1][F/16][2][16][2] q̄' μ̄'_x, μ̄'_y μ̄'_z; the kernel of all layers takes both in turn */
    float *sender;        /* [n_atoms][F/16][6][16] x̄, μ̄ */
    float *saved;         /* [layers][10][n_atoms/16][F/8][32][4] */
    float *edge_gradient; /* [F/16][n_atoms][row_capacity][4] κ, ū by slice */
    float *raw_energy;    /* [F/16][n_atoms] by 8 hidden features of the readout, without its bias */
    uint32_t *
        exchange_count; /* [8][PAINN_GPU_COUNTER_STRIDE] each counts blocks of one rank at barriers of the kernel of all layers */
} painn_gpu_step;

/* gpu_plan.edge_mode: blocks that walk over atoms, their slice of the filter table in shared memory; or a block for each row's slice,
 * for few atoms, or if the table does not fit. */
enum { PAINN_GPU_TABLE_SHARED = 1, PAINN_GPU_ROW_BLOCK };

/* Clusters of the kernel of all layers: 16 blocks for two tiles, if these are all; 8 for one tile; 8 for two. */
enum { PAINN_GPU_CLUSTER_OF_TWO = 1, PAINN_GPU_ONE_TILE, PAINN_GPU_TWO_TILES };

int painn_gpu_launch_message(const painn_gpu_step *step, const gpu_plan *plan, int layer, void *stream);
int painn_gpu_launch_edges(const painn_gpu_step *step, const gpu_plan *plan, int layer, void *stream);
/* back: the reverse of message network `layer` and update `layer` − 1. */
int painn_gpu_launch_update(const painn_gpu_step *step, const gpu_plan *plan, int layer, int back, void *stream);
/* All layers at once, instead of messages, edges and mixes; only of pairs that have their reverses. */
int painn_gpu_launch_fused(const painn_gpu_step *step, const gpu_plan *plan, void *stream);
/* Whether energies of systems are not summed with or behind the forces, but by painn_gpu_launch_sums, once the last layer's are there. */
bool painn_gpu_sums_separate(const painn_gpu_step *step, const gpu_plan *plan);
int painn_gpu_launch_sums(const painn_gpu_step *step, const gpu_plan *plan, void *stream);
/* after_fused: follows the kernel of all layers, beside which it looks for the pairs' reverses itself. */
int painn_gpu_launch_forces(const painn_gpu_step *step, const gpu_plan *plan, int after_fused, void *stream);
/* Its parts, compiled one by one. */
int painn_gpu_launch_update_tf32(const painn_gpu_step *step, const gpu_plan *plan, int layer, int back, void *stream);
int painn_gpu_launch_update_bf16(const painn_gpu_step *step, const gpu_plan *plan, int layer, int back, void *stream);
int painn_gpu_prepare_node_tf32(int n_features);
int painn_gpu_prepare_node_bf16(int n_features);
/* Raises the shared memory limits of all kernels; once per device. */
int painn_gpu_prepare_node(int numbers, int n_features);
int painn_gpu_prepare_edge(void);
/* Largest slice of a filter table, which blocks keep in shared memory in mode PAINN_GPU_TABLE_SHARED. */
int painn_gpu_table_bytes(int numbers);
/* Tiles that the kernel of all layers holds at once in these clusters; 0: it does not fit this model or GPU. */
int painn_gpu_prepare_fused(const painn_gpu_step *step, int whole);

/* The blocks of the list's first kernel, so that the kernel of all layers can be set up beside it. Sets row_warps and row_cluster. */
void painn_gpu_plan_rows(gpu_plan *plan);

/* 1 if the kernels have this shape. */
int painn_gpu_supported(const painn_parameters *parameters);

/* Host side of the model: all constant arrays in one block of *bytes, pointers of `step` set relative to `base`.
 * With block NULL only *bytes is answered. `radial` is painn_radial. step->numbers must be set. */
void painn_gpu_pack(const painn_parameters *parameters, const mlff_model *model,
                    void (*radial)(const painn_parameters *, double, double *, double *), void *block, size_t *bytes,
                    const void *base, painn_gpu_step *step);
/* Work arrays of a step: pointers relative to `base`; answers the bytes. Sizes are those in `step`. */
size_t painn_gpu_arena(painn_gpu_step *step, void *base);

#ifdef __cplusplus
}
#endif
#endif
