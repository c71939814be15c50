/* SPDX-License-Identifier: MIT */
/* painn_train_gpu.h: a training step of PaiNN on a GPU: its arrays and kernels. Read by C and by C++ (nvcc).
 *
 * Data flow of a step, one CUDA graph:
 *   slot of mapped memory ─ begin ─> call, frames        data set ─ gather ─> atoms, pairs, radial functions
 *   ─ message network, message, update of each layer ─ readout ─> energies ─ the same backwards ─> dE/dr of pairs
 *   ─ forces, loss ─> c, v, B ─ tangents ─> u̇, ḋ of pairs, in one kernel
 *   ─ layers, readout and the way back once more for tangents ─> adjoints and their tangents
 *   ─ weight gradients ─ sums ─ update ─> weights (gpu/train)
 * A large batch is divided between two branches of the graph, from `gather` to the weight gradients, each with its arrays (painn_train_batch.c).
 * Symbols: README.md of model/painn, "Training". A `dual` is a value and its tangent. */
#ifndef PAINN_TRAIN_GPU_H
#define PAINN_TRAIN_GPU_H

#include "gpu/train/gpu_train.h"
#include "mlff_atoms.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    PAINN_TRAIN_MAX_LAYERS = 6,
    PAINN_TRAIN_MAX_FEATURES = 128,
    PAINN_TRAIN_EDGE_THREADS = 128,
    PAINN_TRAIN_GRADIENT_BLOCKS = 3, /* of a multiprocessor that sum filters' gradients */
    PAINN_TRAIN_SMALL_BASIS = 24,    /* rows of a filter's gradient: K + 1 at most, a multiple of 8 */
    PAINN_TRAIN_LARGE_BASIS = 32,
    PAINN_TRAIN_EMBEDDING_ATOMS = 32, /* of a partial sum */
    PAINN_TRAIN_FRAME_SHARES = 8,     /* blocks of a large frame's loss */
    PAINN_TRAIN_FRAME_TOTALS = 14,
    PAINN_TRAIN_TERM_PAD = 4, /* columns behind n_hidden of readout_term */
    PAINN_TRAIN_SLOTS = 64    /* calls that the host may be ahead of the device, a power of two */
};

typedef struct painn_dual {
    float *value, *tangent;
} painn_dual;

/* Labelled structures on the device, as train_set; vectors as direction and distance. */
typedef struct painn_train_data {
    const int64_t *first_atom, *first_pair;
    const int32_t *species, *neighbor, *reverse;
    const float *edge;      /* [n_pairs][4] u, d */
    const double *distance; /* [n_pairs] d for the radial functions, whose arguments are many times 2π */
    const double *volume, *energy, *forces, *stress, *atom_energies, *weight, *probe_step; /* the two NULL where the set's are */
} painn_train_data;

typedef struct painn_train_weights {
    const float *base; /* of the vector of weights; all below are offsets into it */
    int64_t embedding, O1, o1, O2, o2;
    struct {
        int64_t filter_weight, filter_bias, W1, b1, W2, b2, U, M1, c1, M2, c2;
    } layer[PAINN_TRAIN_MAX_LAYERS];
} painn_train_weights;

/* Arrays of a layer, per atom. Of adjoints the tangents of q1_bar and mu1_bar are shared by all layers. */
typedef struct painn_train_layer {
    painn_dual h, a;            /* [F] message network; a = act(h) */
    painn_dual x;               /* [3F]; of the first layer, whose μ is 0, [2F] (painn_first_x) */
    painn_dual context;         /* [2F] q', n */
    painn_dual mu1;             /* [3][F] μ' */
    painn_dual VB;              /* [3][2F] */
    painn_dual g, s, t;         /* [F] update network, s = act(g); V·B */
    painn_dual y;               /* [2F] its last two thirds; the first is not used again */
    painn_dual y_bar;           /* [3F] */
    painn_dual g_bar;           /* [F] */
    painn_dual VB_bar;          /* [3][2F] */
    painn_dual q1_bar, mu1_bar; /* [F], [3][F] */
    painn_dual x_bar, h_bar;    /* [3F], [F] */
    float *s_bar, *a_bar, *k;   /* [F] values only; k = n̄/n */
} painn_train_layer;

typedef struct painn_train_step {
    /* ---- the model */
    int32_t n_features, n_layers, n_radial, n_hidden; /* n_hidden: width of the readout */
    int32_t basis, cutoff_function, activation;       /* enum painn_basis, … */
    int32_t basis_rows;                               /* K + 1 or more: PAINN_TRAIN_SMALL_BASIS or _LARGE_BASIS */
    double cutoff;
    float epsilon;
    const float *center, *width, *frequency; /* [K] */
    painn_train_weights weights;
    /* Each layer's W1, W2, U, M1, M2, then O1, and all of them transposed; of the weights of this step, with TF32 rounded, for chains in
     * pairs of rows (painn_train_chain.cuh). */
    float *operands;
    painn_train_data data;

    /* ---- capacities */
    int32_t frame_capacity, atom_capacity, pair_capacity;
    int32_t n_elements, filter_sums; /* elements of the data; partial sums of a layer's filter gradient */

    /* ---- the call */
    const void *slots; /* [PAINN_TRAIN_SLOTS] mapped memory: each a gpu_train_call of each branch, then their painn_train_list */
    int32_t n_branches;
    size_t slot_bytes;
    uint32_t *turn; /* calls so far, modulo PAINN_TRAIN_SLOTS the slot of this one; counted by the first branch */
    int32_t counts_turn;
    gpu_train_call *call;                      /* of this branch, in a copy of the slot on the device */
    int64_t *set_atom, *set_pair;              /* [frame_capacity] first atom and pair of a frame in the data */
    int32_t *frames, *first_atom, *first_pair; /* [frame_capacity (+ 1)] */

    /* ---- per atom of the batch */
    int32_t *species, *frame, *element;                                       /* element: index among the data's elements */
    const int32_t *element_of;                                                /* [n_species] */
    int32_t *row;                                                             /* [atoms + 1] first pair */
    painn_dual q[PAINN_TRAIN_MAX_LAYERS + 1], mu[PAINN_TRAIN_MAX_LAYERS + 1]; /* [F], [3][F] input of a layer */
    painn_dual q_bar[PAINN_TRAIN_MAX_LAYERS + 1], mu_bar[PAINN_TRAIN_MAX_LAYERS + 1]; /* adjoints of q, mu */
    painn_train_layer layer[PAINN_TRAIN_MAX_LAYERS];
    painn_dual z, z_bar; /* [n_hidden] readout */
    float *readout_term; /* [n_hidden + PAINN_TRAIN_TERM_PAD] gradient of the readout's last row and, in the next column, bias */
    float *atom_energy;  /* [1] */
    float *c, *v;        /* [1] ∂L/∂ε, [3] ∂L/∂F */
    double *force_error; /* [1] Σ |ΔF| over its components, −1 without a label */
    float *embedding_sums; /* [atoms / PAINN_TRAIN_EMBEDDING_ATOMS][n_elements][F] */

    /* ---- per pair */
    int32_t *neighbor, *reverse; /* of the batch */
    float *edge;                 /* [4] u, d */
    float *edge_tangent;         /* [4] u̇, ḋ */
    void *basis_halves; /* of eight pairs uint4 [4][8][4]: ψ, dψ/dd, their low halves; each 8 halves (painn_train_pairs.cuh) */
    float *pair_gradient; /* [F / 16][4] of the reverse of a pair: ū and dE/dd, by groups of 16 features */

    /* ---- per frame */
    double *frame_sums;   /* [GPU_TRAIN_FRAME_SUMS] */
    double *frame_shares; /* [PAINN_TRAIN_FRAME_SHARES][PAINN_TRAIN_FRAME_TOTALS] of the blocks of a frame's loss */

    void *filter_halves;                           /* uint4 [n_layers][F / 16][3][2][2][32] [A | b] (painn_train_pairs.cuh) */
    float *filter_sums_of[PAINN_TRAIN_MAX_LAYERS]; /* [filter_sums][basis_rows][3F] partial gradients */
} painn_train_step;

/* Errors of forces by atomic number over several batches, and of how many components. */
typedef struct painn_train_elements {
    double absolute[MLFF_MAX_ATOMIC_NUMBER + 1], n_components[MLFF_MAX_ATOMIC_NUMBER + 1];
} painn_train_elements;

/* How a step is divided: blocks are for these upper bounds, of each branch. */
typedef struct painn_train_plan {
    int n_frames, n_atoms, n_pairs;
    int parts;   /* of products: 1 TF32, 3 float32 */
    int overlap; /* GPU_TRAIN_OVERLAP, GPU_TRAIN_SHARED */
    int n_branches;
    int chains; /* one kernel for all products at atoms between two pair kernels; else a kernel for each product */
    int n_multiprocessors;
    size_t shared_bytes; /* that a block may have */
} painn_train_plan;

#ifdef __CUDACC__
#define PAINN_BOTH __host__ __device__
#else
#define PAINN_BOTH
#endif

/* ---- x of the first layer */

/* x_q (0) and x_R (1) of two neighboring features stand together, so that a lane of a pair kernel, which has two features, reads all it needs of a
 * neighbor at once. Place of feature f among an atom's 2F numbers. */
static inline PAINN_BOTH uint32_t painn_first_x(int which, int f)
{
    return (uint32_t)((f & ~1) * 2 + which * 2 + (f & 1));
}

/* ---- operands of products */

enum { PAINN_W1, PAINN_W2, PAINN_U, PAINN_M1, PAINN_M2, PAINN_OPERANDS = 5, PAINN_OPERANDS_SIZE = 11 /* F² */ };

/* Rows, columns and place, each in units of F, F and F², of matrix `which` of a layer. */
static inline PAINN_BOTH void painn_operand_shape(int which, int *n_out, int *n_in, int *place)
{
    *n_out = which == PAINN_W2 || which == PAINN_M2 ? 3 : which == PAINN_U ? 2 : 1;
    *n_in = which == PAINN_M1 ? 2 : 1;
    *place = which == PAINN_W1 ? 0 : which == PAINN_W2 ? 1 : which == PAINN_U ? 4 : which == PAINN_M1 ? 6 : 8;
}
/* Floats of all of them, as they are or transposed. */
static inline PAINN_BOTH size_t painn_operands_size(const painn_train_step *s)
{
    return (size_t)(s->n_layers * PAINN_OPERANDS_SIZE * s->n_features + s->n_hidden) * (size_t)s->n_features;
}
static inline PAINN_BOTH float *painn_weights(const painn_train_step *s, int l, int which)
{
    int n_out, n_in, place;
    painn_operand_shape(which, &n_out, &n_in, &place);
    return s->operands + (size_t)(l * PAINN_OPERANDS_SIZE + place) * (size_t)(s->n_features * s->n_features);
}
static inline PAINN_BOTH float *painn_weights_of_readout(const painn_train_step *s)
{
    return s->operands + (size_t)(s->n_layers * PAINN_OPERANDS_SIZE) * (size_t)(s->n_features * s->n_features);
}
static inline PAINN_BOTH float *painn_transposed(const painn_train_step *s, int l, int which)
{
    return painn_weights(s, l, which) + painn_operands_size(s);
}
static inline PAINN_BOTH float *painn_transposed_readout(const painn_train_step *s)
{
    return painn_weights_of_readout(s) + painn_operands_size(s);
}

/* Words of a branch's lists in a slot, from set_atom to first_pair; an even number. */
static inline PAINN_BOTH size_t painn_train_list(int frame_capacity)
{
    return (7 * (size_t)frame_capacity + 3) / 2 * 2;
}

/* ---- launches */

/* Dynamic shared memory of the kernels is granted; once for each device. cudaError_t. */
int painn_train_prepare_products(size_t shared_bytes);
int painn_train_prepare_readout(const painn_train_step *step);
/* `there_out`: the GPU has enough shared memory for painn_train_launch_chain. */
int painn_train_prepare_chains(const painn_train_step *step, size_t shared_bytes, int *there_out);

/* edge [n][4] and distance [n] of vectors [n][3]. */
int painn_train_launch_edges(const double *vectors, float *edge, double *distance, int n, void *stream);
int painn_train_launch_begin(const painn_train_step *step, const painn_train_plan *plan, void *stream);
int painn_train_launch_gather(const painn_train_step *step, const painn_train_plan *plan, void *stream);
/* What happens at atoms in layer l; tangent 0: values, 1: tangents. A kernel for each product. */
enum {
    PAINN_MESSAGE_NET,
    PAINN_UPDATE_VECTOR,
    PAINN_UPDATE_NET,
    PAINN_UPDATE_NET_BACK,
    PAINN_UPDATE_VECTOR_BACK,
    PAINN_MESSAGE_NET_BACK
};
int painn_train_launch_node(const painn_train_step *step, const painn_train_plan *plan, int which, int l, int tangent,
                            void *stream);
int painn_train_launch_readout(const painn_train_step *step, const painn_train_plan *plan, int tangent, void *stream);
/* The same in one kernel for all that happens at atoms between two pair kernels; needs compute capability 9.0 (clusters). */
enum {
    PAINN_CHAIN_BEGIN,   /* message network of layer l, the first */
    PAINN_CHAIN_FORWARD, /* update of layer l, message network of l + 1 */
    PAINN_CHAIN_TURN,    /* update of layer l, the last, readout, update's reverse */
    PAINN_CHAIN_BACK,    /* message network's reverse of layer l, update's of l − 1 */
    PAINN_CHAIN_END,     /* message network's reverse of layer l, the first */
    PAINN_CHAINS
};
int painn_train_launch_chain(const painn_train_step *step, const painn_train_plan *plan, int which, int l, int tangent,
                             void *stream);
/* Pair kernels. The tangent of the way back also sums the filters' gradients. */
int painn_train_launch_message(const painn_train_step *step, const painn_train_plan *plan, int l, int tangent, void *stream);
int painn_train_launch_message_back(const painn_train_step *step, const painn_train_plan *plan, int l, int tangent, void *stream);
/* Forces, the loss, tangents of pairs. */
int painn_train_launch_loss(const painn_train_step *step, const painn_train_plan *plan, void *stream);
/* Adds the batch's force_error to `sums` by atomic number. */
int painn_train_launch_element_errors(const painn_train_step *step, const painn_train_plan *plan, painn_train_elements *sums,
                                      void *stream);
int painn_train_launch_embedding(const painn_train_step *step, const painn_train_plan *plan, void *stream);

#ifdef __cplusplus
}
#endif
#endif
