/* SPDX-License-Identifier: MIT */
/* painn_gpu.h: what the files of PaiNN on a GPU share: the arrays of a step, and the launches of its kernels.
 *
 * One step is a chain of kernels, captured once into a CUDA graph. `update` is update l and message network l + 1, all that is local to
 * an atom, in one kernel; edges are summed by the atom that owns the row, forward and backward:
 *
 *   neighbor list > message 0 > update 0 > message 1 > … > update L-1 with readout and its reverse > message back L-1 > update back > …
 *   > message back 0 > forces > sums;   the search for each pair's reverse runs concurrently, before forces
 *
 * With few atoms all layers are one kernel, and `forces` searches for the reverses itself while that kernel runs. Energies are summed
 * concurrently with the backward pass, or with the forces after fused layers; if virials are requested, after the forces. In dynamics
 * `forces` moves the atoms and the next neighbor list follows; only the last step of a graph sums energies.
 *
 * The reverse pass gathers: for the pair (i, j) whose sender j owns the row, the row of j holds the reverse pair, with the same length
 * and the opposite direction. So nothing is scattered and no float is added atomically.
 *
 * Features are stored in slices of 16: an array of C components is [atom][F/16][C][16], arrays that edges gather are
 * [atom][F/16][C/2][16][2]. Tiles of 16 atoms × 8 features are the units of the tensor cores' products; thread layouts of saved values
 * are private to the update kernels. */
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
    PAINN_GPU_TABLE_RANGE = 8,                     /* the variable is in −1/8 … 1/8 in each interval */
    PAINN_GPU_SLICE = 16,                          /* features */
    PAINN_GPU_VALUES = 576, /* bytes of a slice's interval in the table of values: 12 for each feature and filter */
    PAINN_GPU_SAVED = 10,   /* values saved for the backward pass, for each feature of an atom: V, B [3] each, g, y^mu, y^t, h */
};

/* Operands of the tensor cores: two halves for a number (three products), or one half, or one bfloat16. Scaling by powers of two keeps
 * halves in range: weights have a common factor, activations a factor of 16, so that they may have some 4,000. A step that exceeds this is
 * repeated with three bfloat16 for a number (six products), which have float32's range (gpu_plan.wide). */
enum {
    PAINN_GPU_SPLIT_HALVES = GPU_SPLIT_HALVES,
    PAINN_GPU_HALVES = GPU_HALVES,
    PAINN_GPU_BFLOATS = GPU_BFLOATS,
    PAINN_GPU_THREE_BFLOATS = GPU_THREE_BFLOATS
};
#define PAINN_GPU_OPERAND_SCALE 16.0f
typedef struct painn_gpu_layer {
    /* [F/16][intervals][3][2][8] 16 bytes: c0, c1, c2 of one of a lane's two features, and c3 of both, or c4, as halves. In the fast modes
     * cubics of halves, two features together: [F/16][intervals][3][8] 16 bytes: half2 c0, c1, c2, c3. */
    const void *filter;
    /* For the forward pass, except in the fast modes: cubics without a derivative, lanes with two features each. [F/16][intervals]:
     * [3][8] c0, c1 of one, c0, c1 of the other; then halves of both, [8] c2, c3 of q and of R, [8] c2, c3 of μ. */
    const void *values;
    const void *U, *M1, *M2, *W1, *W2;      /* y = x wᵀ */
    const void *Ut, *M1t, *M2t, *W1t, *W2t; /* y = x w; rows of M2t in the order q, t, μ */
    const float *c1, *c2, *b1, *b2;
} painn_gpu_layer;

/* Fused layers: a tile of atoms in F / 16 blocks with 16 features each. Weights come through a ring buffer of slots; a slot has 16
 * columns and F of k. With 128 features the slots hold a layer's weights, with fewer more than that. */
enum {
    PAINN_GPU_TILE_ATOMS = 8,
    PAINN_GPU_MOST_BLOCKS = 128 / PAINN_GPU_SLICE, /* of a tile */
    PAINN_GPU_COUNTER_STRIDE = 32,                 /* words from one counter to the next */
    PAINN_GPU_MOST_SLOTS = 24
};
#define PAINN_GPU_TILE_BLOCKS(n_features) ((n_features) / PAINN_GPU_SLICE)
#define PAINN_GPU_RING_SLOTS(n_features) ((n_features) > 64 ? 11 : PAINN_GPU_MOST_SLOTS)
#define PAINN_GPU_SLOT(n_features) ((n_features) / 16 * 64) /* pieces: one for each lane */
/* Products of the fused layers, named by their results: activations, five for each layer in this order (the last layer's fourth is the
 * readout); adjoints: one of the readout, then five for each layer from the last one. */
enum { TO_V, TO_G, TO_Q, TO_H, TO_X };
enum { TO_Q_BAR, TO_G_BAR, TO_V_BAR, TO_MU_BAR, TO_H_BAR, TO_Q_BELOW };
/* One product: the source of its weights, and what it waits for. */
typedef struct painn_gpu_product {
    const void *source[3]; /* its weights, for the first block; `copies` of `bytes` each */
    const float *bias[3];  /* added to its sums, or NULL; of the first block */
    int32_t bytes, copies;
    int32_t position;       /* in the ring buffer */
    int32_t after;          /* product that must have read its weights before these overwrite them; −1: none */
    int32_t ranks;          /* number of blocks with different features */
    int32_t operand, early; /* halves of F features that it waits for, and those that arrive earlier */
    int32_t warps, parts;   /* warps that compute it; of these, warps that share a sum */
} painn_gpu_product;

typedef struct painn_gpu_step {
    gpu_step gpu; /* first: the call, the neighbor list, the integrator, the stamps */
    /* ---- the model */
    int32_t n_features, n_layers, n_hidden; /* n_hidden: of the readout */
    int32_t numbers;                        /* operands: PAINN_GPU_SPLIT_HALVES … */
    int32_t softplus;                       /* activation: 0 silu, 1 shifted softplus */
    float epsilon;
    float weight_unit; /* scale of a product of operands: 1 / (16 · factor of the weights) */
    painn_gpu_layer layer[PAINN_GPU_MAX_LAYERS];
    const float *embedding; /* [n_species][F/16][16] */
    const float *x0;        /* [n_species][F/16][16][2]: message input x^q, x^R of layer 0, a function of the element */
    const void *O1, *O1t;
    ptrdiff_t rows_distance; /* bytes from each matrix to its copy as operand A */
    const float *o1, *O2;
    float o2;
    /* The model's core repulsion (atoms/zbl.h), in model units. */
    const float *core_radius; /* [MLFF_MAX_ATOMIC_NUMBER + 1] a pair repels below the sum of two; NULL: none */
    float core_reach, core_coulomb, core_screening; /* the largest such sum; e²/(4π ε₀); 0.8854 a₀ */

    float table_scale; /* change of a table's variable with distance, 1/model length */

    const painn_gpu_product *products; /* [n_products] of the fused layers */
    int32_t n_products, n_products_forward;

    /* ---- on the device */
    float *q; /* [n_atoms][F/16][16] q'' of the last layer done */
    float *state
        [PAINN_GPU_MAX_LAYERS]; /* [n_atoms][F/16][3][16][2] x^q x^R, μ_x μ_y, μ_z x^μ at the layer's input; none for layer 0 */
    float *prime;               /* [n_atoms][F/16][4][16] q', μ' */
    float *adjoint; /* [2][n_atoms + 1][F/16][2][16][2] q̄' μ̄'_x, μ̄'_y μ̄'_z; double-buffered by the fused layers */
    float *sender;  /* [n_atoms][F/16][6][16] x̄, μ̄ */
    float *saved;   /* [layers][10][n_atoms/16][F/8][32][4] */
    float *edge_gradient; /* [F/16][n_atoms][row_capacity][4] κ, ū by slice */
    float *core_energy;   /* [n_atoms] of the core repulsion, model units; except after fused layers, where the sums compute it */
    float *raw_energy;    /* [F/16][n_atoms] sums over 8 hidden features of the readout, without its bias */
    /* With ghosts (painn_ghosts.cu), of the first atoms, at most k edges away from an owned one: their number, and the call with these
     * alone, in whole tiles. */
    int32_t *reach;
    gpu_call *calls;
    /* In the reverse of a message: the call with the atoms that the layer above has given gradients of edges. */
    const gpu_call *call_above;
    uint32_t *
        exchange_count; /* [PAINN_GPU_MOST_BLOCKS][PAINN_GPU_COUNTER_STRIDE] barrier counters of the fused layers, one for the blocks of each rank */
} painn_gpu_step;

/* gpu_plan.edge_mode: blocks that walk over atoms, their slice of the filter table in shared memory; or a block for each row's slice,
 * for few atoms, or if the table does not fit; or as the first, four rows a warp, for batches of small molecules. */
enum { PAINN_GPU_TABLE_SHARED = 1, PAINN_GPU_ROW_BLOCK, PAINN_GPU_SHORT_ROWS };

/* Multiprocessors that kernels of edges leave free in the first and the last mode, for kernels of other streams. */
enum { PAINN_GPU_SPARE = 4, PAINN_GPU_SPARE_BLOCKS = 16 /* of 128 threads on each */ };

/* gpu_plan.fused, clusters of the fused layers: one cluster with the blocks of two tiles; a tile's blocks for one tile, or for two. */
enum { PAINN_GPU_CLUSTER_OF_TWO = 1, PAINN_GPU_ONE_TILE, PAINN_GPU_TWO_TILES };

int painn_gpu_launch_message(const painn_gpu_step *step, const gpu_plan *plan, int layer, void *stream);
int painn_gpu_launch_edges(const painn_gpu_step *step, const gpu_plan *plan, int layer, void *stream);
/* back: the reverse of message network `layer` and update `layer` − 1. */
int painn_gpu_launch_update(const painn_gpu_step *step, const gpu_plan *plan, int layer, int back, void *stream);
/* With ghosts, after the neighbor rows: sets calls[0], or with `layers` calls[0 … n_layers]; zeros the adjoints and energies of the atoms that
 * are not in calls[0]. */
int painn_gpu_launch_ghosts(const painn_gpu_step *step, const gpu_plan *plan, int layers, void *stream);
/* Fused layers: replaces messages and updates; only for symmetric lists. */
int painn_gpu_launch_fused(const painn_gpu_step *step, const gpu_plan *plan, void *stream);
/* Whether energies are summed by a separate painn_gpu_launch_sums once those of the last layer are known. */
bool painn_gpu_sums_separate(const painn_gpu_step *step, const gpu_plan *plan);
int painn_gpu_launch_sums(const painn_gpu_step *step, const gpu_plan *plan, void *stream);
/* Without fused layers: energies of the core repulsion, after the neighbor rows; nothing if the model has none or the step sums no energies. */
int painn_gpu_launch_core(const painn_gpu_step *step, const gpu_plan *plan, void *stream);
/* after_fused: follows the fused layers and searches for the pairs' reverses itself. */
int painn_gpu_launch_forces(const painn_gpu_step *step, const gpu_plan *plan, int after_fused, void *stream);
/* Parts of the above, compiled separately. */
int painn_gpu_launch_update_tf32(const painn_gpu_step *step, const gpu_plan *plan, int layer, int back, void *stream);
int painn_gpu_launch_update_bf16(const painn_gpu_step *step, const gpu_plan *plan, int layer, int back, void *stream);
int painn_gpu_prepare_node_tf32(int n_features);
int painn_gpu_prepare_node_bf16(int n_features);
int painn_gpu_launch_fused_64(const painn_gpu_step *step, const gpu_plan *plan, void *stream);
int painn_gpu_launch_fused_32(const painn_gpu_step *step, const gpu_plan *plan, void *stream);
int painn_gpu_prepare_fused_64(const painn_gpu_step *step, int whole);
int painn_gpu_prepare_fused_32(const painn_gpu_step *step, int whole);
/* gpu_plan.wide: kernels with float32's range. */
int painn_gpu_launch_update_wide(const painn_gpu_step *step, const gpu_plan *plan, int layer, int back, void *stream);
int painn_gpu_prepare_node_wide(int n_features);
/* Raises the shared memory limits of the kernels of such a model; once per device. */
int painn_gpu_prepare_node(int numbers, int n_features);
int painn_gpu_prepare_edge(int numbers, int n_features);
int painn_gpu_prepare_forces(int n_features);
/* Largest slice of a filter table, which blocks keep in shared memory in mode PAINN_GPU_TABLE_SHARED. */
int painn_gpu_table_bytes(int numbers);
/* Tiles that the fused layers hold at once with these clusters; 0: they do not fit this model or GPU. */
int painn_gpu_prepare_fused(const painn_gpu_step *step, int whole);

/* Sets row_warps and row_cluster so that the fused layers can be set up while the neighbor list is computed. */
void painn_gpu_plan_rows(gpu_plan *plan, int n_features);

/* 1 if the kernels support this shape. */
int painn_gpu_supported(const painn_parameters *parameters);

/* Host side of the model: all constant arrays in one block of *bytes, pointers of `step` relative to `base`. With block NULL only *bytes
 * is set. `radial` is painn_radial. step->numbers must be set. */
void painn_gpu_pack(const painn_parameters *parameters, const mlff_model *model,
                    void (*radial)(const painn_parameters *, double, double *, double *), void *block, size_t *bytes,
                    const void *base, painn_gpu_step *step);
/* The same for the matrices of steps with float32's range alone: sets them and weight_unit in a step that was packed before. */
void painn_gpu_pack_wide(const painn_parameters *parameters, void *block, size_t *bytes, const void *base, painn_gpu_step *step);
/* PaiNN's arrays of a step whose sizes are set: pointers relative to `base`; returns the bytes. */
size_t painn_gpu_arena(painn_gpu_step *step, void *base);

#ifdef __cplusplus
}
#endif
#endif
