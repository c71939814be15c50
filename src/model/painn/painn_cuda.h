/* SPDX-License-Identifier: MIT */
/* painn_cuda.h: what the files of PaiNN on CUDA share: the arrays of a step, and who launches what.
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
#ifndef PAINN_CUDA_H
#define PAINN_CUDA_H

#include "device/pack_cuda.h"
#include "model/painn/painn.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    PAINN_CUDA_MAX_LAYERS = PAINN_MAX_LAYERS,
    PAINN_CUDA_INTERVALS = 128,  /* of the filter table */
    PAINN_CUDA_TABLE_RANGE = 8,  /* the variable goes from −1/8 to 1/8 in an interval */
    PAINN_CUDA_SLICE = 16,       /* features */
    PAINN_CUDA_VALUES = 576,     /* bytes of a slice's interval in the table of values: 12 a feature and filter */
    PAINN_CUDA_SAVED = 10,       /* values an atom's feature keeps for the way back: V, B [3] each, g, y^mu, y^t, h */
    PAINN_CUDA_SMALL_WARPS = 16, /* of a block that has a small system for itself … */
    PAINN_CUDA_SMALL = 32,       /* … of so many atoms */
    PAINN_CUDA_ALONE = 128,      /* atoms of a system that a row's threads wrap themselves */
    PAINN_CUDA_BIN_BLOCK = 1024, /* bins that one block sums */
    PAINN_CUDA_ATOM_BLOCK = 96   /* atom capacities are multiples of it: tiles of 16, 24 and 32 */
};

/* Numbers as operands of the tensor cores: two halves each (three products), or one half, or one bfloat16. Powers of two keep
 * halves in their range: weights are stored times a common factor, activations times 16. */
enum { PAINN_CUDA_SPLIT_HALVES = CUDA_SPLIT_HALVES, PAINN_CUDA_HALVES = CUDA_HALVES, PAINN_CUDA_BFLOATS = CUDA_BFLOATS };
#define PAINN_CUDA_OPERAND_SCALE 16.0f
typedef struct painn_cuda_layer {
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
} painn_cuda_layer;

/* Of one system. Missing cell vectors are completed; lengths in Å. */
typedef struct painn_cuda_system {
    double cell[9], inverse[9];
    int32_t first, n;
    int32_t images[3]; /* −images … images beside the nearest one are looked at */
    int32_t wrapped[3];
    int32_t bins[3];        /* along each axis, together no more than atoms; where nothing repeats the bins do */
    int32_t pending, flags; /* pending: the GPU is to complete the cell; flags of the report */
} painn_cuda_system;

/* One call: what the host says before a step. Pointers are the device's: to its own or to mapped host memory. */
typedef struct painn_cuda_call {
    int32_t n_atoms, n_systems;
    int32_t want_virial;
    int32_t member;                                         /* of an ensemble, the one that runs; -1: all */
    const painn_cuda_system *systems;                       /* [n_systems] */
    const int32_t *system_of;                               /* [n_atoms] */
    const double *cells;                                    /* [n_systems][9], or NULL */
    const int32_t *species;                                 /* [n_atoms] */
    const double *positions;                                /* [n_atoms][3] */
    const unsigned char *owned;                             /* [n_atoms], or NULL */
    const int32_t *pair_first, *pair_neighbor, *pair_shift; /* handed-in pairs, or NULL */
    struct painn_cuda_report *report;
    double *energies;                                    /* [n_systems] */
    double *atom_energies, *forces, *virials, *stresses; /* each may be NULL; virials is needed for stresses */
} painn_cuda_call;

/* What a step says of itself. */
enum {
    PAINN_CUDA_ROW_FULL = 1,       /* an atom has more neighbours than a row holds: `longest_row` says how many */
    PAINN_CUDA_NOT_FINITE = 2,     /* position or cell */
    PAINN_CUDA_SAME_POINT = 4,     /* two atoms */
    PAINN_CUDA_NO_VOLUME = 8,      /* a periodic axis without a cell vector, or dependent ones */
    PAINN_CUDA_SHIFT_RANGE = 16,   /* an image shift beyond ±511 */
    PAINN_CUDA_NOT_SYMMETRIC = 32, /* a handed-in pair has no reverse */
    PAINN_CUDA_ELEMENT = 64,
    PAINN_CUDA_TOO_WIDE = 128 /* coordinates beyond ±5·10⁴ Å of the first atom */
};
typedef struct painn_cuda_report {
    int32_t flags, longest_row, n_pairs, atom, other; /* `atom`, `other`: one that a flag is about */
    int32_t n_lists;                                  /* made of candidates, since the arrays are there */
    int32_t n_looked;                                 /* blocks that have looked for the reverses of pairs handed in */
    int32_t unused;
} painn_cuda_report;

/* What the list of candidates was made of; zeros: nothing yet. */
typedef struct painn_cuda_list {
    int32_t n_atoms, n_systems; /* −1: the list is not to be used again */
    int32_t stale, making;      /* there has to be a new one; this step makes it */
    int32_t n_lists;
} painn_cuda_list;

/* Dynamics: atoms move as soon as their forces are there (painn_cuda_motion.cuh). Pointers are the device's, but for `trouble`, which
 * is mapped host memory. */
typedef struct painn_cuda_motion {
    int32_t n_atoms, langevin;       /* n_atoms 0: the step is none of dynamics */
    int32_t place, n_steps;          /* of the step in its graph; of the graph */
    double timestep_fs, keep, noise; /* c = exp(−friction dt) and (1 − c²) k_B T, eV */
    uint64_t seed;
    double *positions, *velocities, *forces; /* [n_atoms][3] */
    const double *inverse_mass;              /* [n_atoms] Å²/(fs² eV); 0: the atom is fixed */
    double *heat;                            /* [n_atoms] eV that the bath gave */
    int64_t *step;                           /* number of the graph's first step; and of the one this chunk began with */
    uint64_t *times;                         /* [chunk + 1] the GPU's timer: begin, end of each step */
    const painn_cuda_report *report;         /* of the graph's steps together */
    painn_cuda_report *trouble;              /* flags of all graphs together */
} painn_cuda_motion;

/* One edge of a row: geometry, and its place in the filter table. */
typedef struct __attribute__((aligned(16))) painn_cuda_edge {
    float u[3], d;   /* from the row's atom to the neighbour; model units */
    int32_t packed;  /* neighbour · intervals + interval */
    float t;         /* the table's variable in the interval */
    int32_t species; /* of the neighbour */
    int32_t shift;   /* three times 10 bits, + 512 each */
} painn_cuda_edge;

/* The kernel of all layers. Operands of a tile in its blocks' shared memory, and a ring for weights; in pieces (of a lane). */
enum {
    PAINN_CUDA_LAYERS_F = 128,
    PAINN_CUDA_TILE_ATOMS = 8,
    PAINN_CUDA_TILE_BLOCKS = 8,
    PAINN_CUDA_MEETING = 32,                         /* words from one count to the next */
    PAINN_CUDA_UNIT = PAINN_CUDA_LAYERS_F / 16 * 32, /* F features: q, three of region A, n, three of B */
    PAINN_CUDA_AT_Q = 0,
    PAINN_CUDA_AT_A = PAINN_CUDA_UNIT,
    PAINN_CUDA_AT_N = 4 * PAINN_CUDA_UNIT,
    PAINN_CUDA_AT_B = 5 * PAINN_CUDA_UNIT,
    PAINN_CUDA_OPERANDS = 8 * PAINN_CUDA_UNIT,
    PAINN_CUDA_RING_SLOTS = 11, /* each 16 columns, F of k: a layer's weights */
    PAINN_CUDA_SLOT = 2 * PAINN_CUDA_UNIT,
    PAINN_CUDA_RING = PAINN_CUDA_RING_SLOTS * PAINN_CUDA_SLOT
};
/* What is made of its products: activations, five a layer in this order (the last one's fourth is the readout), and adjoints: one of
 * the readout, then five a layer from above. */
enum { TO_V, TO_G, TO_Q, TO_H, TO_X };
enum { TO_Q_BAR, TO_G_BAR, TO_V_BAR, TO_MU_BAR, TO_H_BAR, TO_Q_BELOW };
/* One product: where its weights come from, and who waits for whom. */
typedef struct painn_cuda_product {
    const void *source[3]; /* of its weights: of the first block; `copies` of `bytes` each */
    const float *bias[3];  /* added to its sums, or NULL; of the first block */
    int32_t bytes, copies;
    int32_t position;     /* in the ring */
    int32_t after;        /* the product that must have read its weights before these may come; −1: none */
    int32_t ranks;        /* blocks with features of their own, in turn */
    int32_t mail, early;  /* halves of F features that come before it, and before these */
    int32_t warps, parts; /* that work on it, and that have a part for others of a sum */
} painn_cuda_product;

typedef struct painn_cuda_step {
    /* ---- the model */
    int32_t n_features, n_layers, n_species, n_hidden; /* n_hidden: of the readout */
    int32_t numbers;                                   /* operands: PAINN_CUDA_SPLIT_HALVES … */
    int32_t softplus;                                  /* activation: 0 silu, 1 shifted softplus */
    float epsilon;
    float weight_unit; /* of a product of operands: 1 / (16 · factor of the weights) */
    double cutoff;     /* Å */
    double length_unit, energy_unit;
    double inverse_unit, intervals_per_angstrom; /* 1 / length_unit; of the filter table */
    painn_cuda_layer layer[PAINN_CUDA_MAX_LAYERS];
    const float *embedding; /* [n_species][F/16][16] */
    const float *x0;        /* [n_species][F/16][16][2]: message input x^q, x^R of layer 0, a function of the element */
    const void *O1, *O1t;
    ptrdiff_t rows_distance; /* from each matrix to the same as operand A, two features side by side */
    const float *o1, *O2;
    float o2;
    float table_scale;    /* change of a table's variable with distance, 1/model length */
    const double *offset; /* [n_species] eV */

    const painn_cuda_product *products; /* [n_products] of the kernel of all layers */
    int32_t n_products, n_products_forward;

    const painn_cuda_call *call_in; /* on the device */

    /* ---- on the device */
    int32_t atom_capacity, system_capacity, row_capacity;
    int32_t handed_pairs; /* 1: rows come from the caller's pairs; 2: and these lack their reverses */
    int32_t arrival_room; /* 1: there is room for these */
    int32_t candidate_capacity;
    double skin;           /* Å, of candidates */
    painn_cuda_call *call; /* *call_in, copied */
    painn_cuda_system *systems;
    int32_t *species, *system_of; /* [n_atoms] */
    unsigned char *owned;
    double *fractional;      /* [n_atoms][3], wrapped on periodic axes */
    float *fractional_float; /* [n_atoms][4], last one unused */
    int32_t *row_length;     /* [n_atoms] */
    painn_cuda_edge *edges;  /* [n_atoms][row_capacity] */
    /* Rows of the pairs that end in an atom, each turned round: the edges themselves where every pair has its reverse. */
    const painn_cuda_edge *incoming;
    const int32_t *incoming_length;
    int32_t *reverse; /* [n_atoms][row_capacity] of each edge, its index in `incoming` */

    /* ---- only with pairs that lack their reverses */
    int32_t *arrivals, *arrival_keys; /* [n_atoms] pairs that end there; [n_atoms][row_capacity] their indices in `edges` */
    painn_cuda_edge *arrival_edges;   /* [n_atoms][row_capacity] */

    /* ---- neighbours by bins: candidates, kept while no atom moves by half the skin */
    painn_cuda_list *list;
    int32_t *bin, *place_in_bin;            /* [n_atoms] */
    int32_t *bin_count, *bin_first;         /* [n_atoms + 1] of the bins of a system, from its first atom's place on */
    int32_t *bin_total;                     /* of PAINN_CUDA_BIN_BLOCK bins each */
    float *binned;                          /* [n_atoms][4] fractional_float in the order of bins, and the atom */
    double *listed;                         /* [n_atoms][3] fractional, when the list was made */
    int32_t *candidates, *candidate_length; /* [n_atoms][candidate_capacity] (neighbour, image), in order */

    float *q; /* [n_atoms][F/16][16] q'' of the last layer done */
    float *state
        [PAINN_CUDA_MAX_LAYERS]; /* [n_atoms][F/16][3][16][2] x^q x^R, μ_x μ_y, μ_z x^μ at the layer's input; none for layer 0 */
    float *prime;                /* [n_atoms][F/16][4][16] q', μ' */
    float *adjoint; /* [2][n_atoms + 1][F/16][2][16][2] q̄' μ̄'_x, μ̄'_y μ̄'_z; the kernel of all layers takes both in turn */
    float *sender;        /* [n_atoms][F/16][6][16] x̄, μ̄ */
    float *saved;         /* [layers][10][n_atoms/16][F/8][32][4] */
    float *edge_gradient; /* [F/16][n_atoms][row_capacity][4] κ, ū by slice */
    float *raw_energy;    /* [F/16][n_atoms] by 8 hidden features of the readout, without its bias */
    double *atom_virial;  /* [n_atoms][9] */
    uint32_t *meeting;    /* [8][PAINN_CUDA_MEETING] each counts blocks of one rank at barriers of the kernel of all layers */

    uint64_t *stamps;          /* [4 layers + 4] the GPU's timer at the beginning of each kernel and the end; NULL: off */
    painn_cuda_report *report; /* zero at the beginning and at the end of a step; of dynamics, of a graph of steps */

    painn_cuda_motion motion;
    int32_t follows_motion; /* 1: the kernel before the list's first moves the atoms */
} painn_cuda_step;

/* Clusters of the kernel of all layers: 16 blocks for two tiles, if these are all; 8 for one tile; 8 for two. */
enum { PAINN_CUDA_PAIRED = 1, PAINN_CUDA_APART, PAINN_CUDA_DOUBLED };

/* How a step is cut into launches. */
typedef struct painn_cuda_plan {
    int n_atoms, n_systems; /* upper bounds: what grids are made for */
    int cluster;            /* blocks that share a tile of atoms in node kernels: 1, 2, 4 or 8 */
    int tile;               /* 16 atoms, or 8, 16, 24 or 32 by products of four warps (painn_cuda_wide.cuh), Hopper only */
    int four_warps;         /* 1: 16 atoms are by products of four warps */
    int edge_mode;          /* 0: a warp a row's slice; 1: and the filter table in shared memory; 2: a block a row's slice */
    int overlap;            /* programmatic launches: a kernel starts while the one before it ends */
    int chained;            /* 1: the list's first kernel may start while the one before it runs */
    int n_multiprocessors;
    int forces; /* 0: energies only */
    int virial; /* 1: virials or stresses too, for whose sums all forces must be there */
    int bins;   /* 1: neighbours by bins, for large systems; 2: and candidates never kept; 0: all pairs are looked at */
    int alone; /* atoms of a system that who makes rows wraps: of small ones a row's threads, as many; of one larger a block; 0: neither */
    int whole; /* all layers in one kernel, and its clusters: PAINN_CUDA_PAIRED …; 0: a kernel for each part */
    int small; /* warps of a block that sums a small system for itself (ANI); 0: systems are too large */
} painn_cuda_plan;

/* What the kernels were compiled for that this GPU runs: to[0], on the device, compute capability times 10; to[1], 1: Hopper's own. */
int painn_cuda_launch_code(int32_t *to, void *stream);
/* Stamps of the GPU's timer, ns: times[0] launches so far, then the beginning and the end of each. */
int painn_cuda_launch_clock(uint64_t *times, void *stream);
/* Launches. `stream` is a cudaStream_t; the answer a cudaError_t. Sizes must have been checked. */
int painn_cuda_launch_list(const painn_cuda_step *step, const painn_cuda_plan *plan, void *stream);
int painn_cuda_launch_bins(const painn_cuda_step *step, const painn_cuda_plan *plan, void *stream); /* its part with bins */
int painn_cuda_launch_reverse(const painn_cuda_step *step, const painn_cuda_plan *plan, void *stream);
int painn_cuda_launch_message(const painn_cuda_step *step, const painn_cuda_plan *plan, int layer, void *stream);
int painn_cuda_launch_edges(const painn_cuda_step *step, const painn_cuda_plan *plan, int layer, void *stream);
/* back: the reverse of message network `layer` and update `layer` − 1. */
int painn_cuda_launch_mix(const painn_cuda_step *step, const painn_cuda_plan *plan, int layer, int back, void *stream);
/* All layers at once, instead of messages, edges and mixes; only of pairs that have their reverses. */
int painn_cuda_launch_layers(const painn_cuda_step *step, const painn_cuda_plan *plan, void *stream);
/* Whether energies of systems are not summed with or behind the forces, but by painn_cuda_launch_sums, once the last layer's are there. */
bool painn_cuda_sums_apart(const painn_cuda_step *step, const painn_cuda_plan *plan);
int painn_cuda_launch_sums(const painn_cuda_step *step, const painn_cuda_plan *plan, void *stream);
/* beside_layers: follows the kernel of all layers, beside which it looks for the pairs' reverses itself. */
int painn_cuda_launch_forces(const painn_cuda_step *step, const painn_cuda_plan *plan, int beside_layers, void *stream);
/* Its parts, compiled one by one. */
int painn_cuda_launch_mix_tf32(const painn_cuda_step *step, const painn_cuda_plan *plan, int layer, int back, void *stream);
int painn_cuda_launch_mix_bf16(const painn_cuda_step *step, const painn_cuda_plan *plan, int layer, int back, void *stream);
int painn_cuda_prepare_node_tf32(int n_features);
int painn_cuda_prepare_node_bf16(int n_features);
int painn_cuda_clusters_at_once_tf32(int cluster);
int painn_cuda_clusters_at_once_bf16(int cluster);
/* Raises the shared memory limits of all kernels; once per device. */
int painn_cuda_prepare_node(int numbers, int n_features);
int painn_cuda_prepare_edge(void);
/* Tiles that the kernel of all layers holds at once in these clusters; 0: it does not fit this model or GPU. */
int painn_cuda_prepare_layers(const painn_cuda_step *step, int whole);
/* Tiles that are worked on at once by clusters of 2, 4 or 8 blocks. */
int painn_cuda_clusters_at_once(int numbers, int cluster);

/* 1 if the kernels have this shape. */
int painn_cuda_supported(const painn_parameters *parameters);

/* Host side of the model: all constant arrays in one block of *bytes, pointers of `step` set relative to `base`.
 * With block NULL only *bytes is answered. `radial` is painn_radial. step->numbers must be set. */
void painn_cuda_pack(const painn_parameters *parameters, const mlff_model *model,
                     void (*radial)(const painn_parameters *, double, double *, double *), void *block, size_t *bytes,
                     const void *base, painn_cuda_step *step);
/* Work arrays of a step: pointers relative to `base`; answers the bytes. Sizes are those in `step`. */
size_t painn_cuda_arena(painn_cuda_step *step, void *base);
/* Where the rows of a step come from; `handed_pairs` as in the step. */
void painn_cuda_choose_rows(painn_cuda_step *step, int handed_pairs);

#ifdef __cplusplus
}
#endif
#endif
