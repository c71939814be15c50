/* SPDX-License-Identifier: MIT */
/* ani_gpu.h: what the files of ANI on a GPU share: the arrays of a step, and the launches of its kernels.
 *
 *   neighbor list > AEVs > networks, forward and backward > AEVs backward > forces > sums
 *   atoms are sorted by species concurrently with the neighbor list; each pair's reverse is found concurrently with AEVs and networks
 *
 * AEVs have only the columns of species that are present: 16 for each species, 32 for each pair of species, which are one and two tiles of
 * the networks' inner dimension. Which tiles these are is determined on the GPU, so that no graph depends on it.
 *
 * Atoms that have energies are in slots, sorted by species; each species begins a new tile. A block (or cluster) of the network kernel
 * takes one tile of slots through all layers of one member, forward and backward. Each atom gathers the gradients of its pairs, as central
 * atom and as neighbor: no float is added atomically. */
#ifndef ANI_GPU_H
#define ANI_GPU_H

#include "gpu/gpu_pack.h"
#include "gpu/gpu_step.h"
#include "model/ani/ani.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    ANI_GPU_RADIAL = 16,  /* columns of a species, at most 16 used */
    ANI_GPU_ANGULAR = 32, /* columns of a pair of species: 8 shifts × 4 sections, or 4 × 8 */
    ANI_GPU_MAX_HIDDEN = 4,
    ANI_GPU_MAX_TILES = ANI_MAX_SPECIES + ANI_MAX_SPECIES * (ANI_MAX_SPECIES + 1), /* of 16 columns */
    ANI_GPU_MAX_TILE = 128,                                                        /* slots */
    ANI_GPU_WGMMA_WIDTH = 256, /* most features of a hidden layer for tiles of 128 slots */
    ANI_GPU_SORT_ATOMS = 2048  /* of a block of the sort by species */
};

/* Scale factors of operands of the tensor cores, so that both halves stay in range: activations up to some 4,000. A step that exceeds
 * this is repeated with a smaller factor (gpu_plan.wide): up to 10⁶, with an absolute error of 2⁻²¹. */
#define ANI_GPU_VALUE_SCALE 16.0f
#define ANI_GPU_WIDE_SCALE 0.0625f
#define ANI_GPU_ADJOINT_SCALE 64.0f

/* One species in one member. Widths are multiples of 16; padding is zero. */
typedef struct ani_gpu_network {
    int32_t n_hidden, tiles[ANI_GPU_MAX_HIDDEN]; /* widths / 16 */
    float output_bias;
    /* Weights in pieces of 8 columns × 16 inputs, 512 bytes each: the high parts of 8 inputs (column by column, 16 bytes each), of the other
     * 8, then the low parts; [tiles of 8 columns][tiles of inputs]. Both passes read them, the backward pass transposed. */
    const void *weight[ANI_GPU_MAX_HIDDEN];
    const float *bias[ANI_GPU_MAX_HIDDEN];
    const float *output; /* weights of the last layer */
    /* For tiles of 128 slots: widths, weights in the same pieces, in other orders. Missing columns and inputs are zero. */
    int32_t wgmma_width[ANI_GPU_MAX_HIDDEN];
    const void *wgmma_weight[ANI_GPU_MAX_HIDDEN], *wgmma_back[ANI_GPU_MAX_HIDDEN];
    const float *wgmma_bias[ANI_GPU_MAX_HIDDEN]; /* times ANI_GPU_VALUE_SCALE */
} ani_gpu_network;

/* The weights of a hidden layer as the model has them: [out][in], on the device. */
typedef struct ani_gpu_source {
    const float *weight;
    int32_t in, out;
} ani_gpu_source;

/* Atoms by species, sorted in each step. Species that are present are numbered by rank. */
typedef struct ani_gpu_groups {
    int32_t n_present, n_tiles;                  /* tiles of 16 columns an AEV has */
    int32_t failed;                              /* flags of the report, as far as they are known when set */
    int32_t first_slot[ANI_MAX_SPECIES + 1];     /* by species; multiples of the tile */
    int32_t rank_of[MLFF_MAX_ATOMIC_NUMBER + 1]; /* by atomic number; −1: none */
    int32_t stored_tile[ANI_GPU_MAX_TILES];      /* [n_tiles] the tile of the stored weights */
    int32_t next_item;                           /* tiles of 128 slots: the next one that a block takes */
} ani_gpu_groups;

typedef struct ani_gpu_step {
    gpu_step gpu; /* first: the call, the neighbor list, the integrator, the stamps */
    /* ---- the model */
    int32_t n_species, n_members;  /* members that run */
    int32_t stored_tiles;          /* tiles of a first layer's weights */
    int32_t hidden_tiles;          /* most tiles of a network's hidden layers together */
    int32_t more_shifts;           /* 1: 8 shifts × 4 sections, 0: 4 × 8 */
    float weight_unit;             /* 1 / scale factor of the weights */
    float value_scale, value_unit; /* scale factor of activations, and 1 / it; tiles of 128 slots have ANI_GPU_VALUE_SCALE */
    float radial_cutoff, angular_cutoff, eta_radial, eta_angular, zeta; /* etas times log2(e) */
    float radial_shift[ANI_GPU_RADIAL], angular_shift[8], cosine[8], sine[8];
    const ani_gpu_network *network; /* [n_members][n_species] */
    const int32_t *element;         /* [16 stored_tiles] the AEV element of each stored input of a first layer, −1: none */
    const int32_t *species_of;      /* [MLFF_MAX_ATOMIC_NUMBER + 1] */
    /* ---- on the device */
    int32_t slot_capacity, n_parts; /* n_parts: arrays of adjoints; members that share one are accumulated */
    int32_t tile, cluster;          /* slots of a tile; blocks that share its columns */
    int32_t warm_code;              /* 1: kernels that wait for others do a dry run first, to warm the instruction cache */
    int32_t wgmma_blocks;           /* blocks that take tiles of 128 slots; 0: not used */
    int32_t saved_columns;          /* slopes that a row of such a tile saves for the backward pass */
    ani_gpu_groups *groups;
    int32_t *slot_of;         /* [n_atoms]; −1: a ghost */
    int32_t *block_counts;    /* [blocks of the sort][2][ANI_MAX_SPECIES] atoms of each species; whether it is present */
    void *aev;                /* [slots/16][n_tiles][2][32] 16 bytes: operands A, high and low halves */
    float *adjoint;           /* [n_parts][slots][16 n_tiles] dE/dAEV of a part's members */
    float *member_energy;     /* [n_members][cluster][slots], a block's share */
    float *saved;             /* [wgmma_blocks][saved_columns][128] slopes */
    double *energy;           /* [n_atoms][2] eV: the model's, the offset */
    double *center;           /* [n_atoms][3] dE/dr summed over the pairs of an atom */
    float *incoming_gradient; /* [n_atoms][row_capacity][4] dE/dr of each pair, in the row of the atom the pair ends in */
} ani_gpu_step;

/* Stamps of the stages after the neighbor list's two; the last is the end. */
enum ani_gpu_stamp {
    ANI_GPU_STAMP_RADIAL = 2,
    ANI_GPU_STAMP_ANGULAR,
    ANI_GPU_STAMP_NETWORK,
    ANI_GPU_STAMP_NETWORK_BACK,
    ANI_GPU_STAMP_AEV_BACK,
    ANI_GPU_STAMP_FORCES,
    ANI_GPU_STAMP_SUMS,
    ANI_GPU_STAMP_END
};

/* Launches. `stream` is a cudaStream_t, the result a cudaError_t. */
/* Writes the operands of all networks, once; sources [n_members][n_species][ANI_GPU_MAX_HIDDEN], on the device. */
int ani_gpu_launch_operands(const ani_gpu_step *step, const ani_gpu_source *sources, void *stream);
int ani_gpu_launch_arrange(const ani_gpu_step *step, const gpu_plan *plan, void *stream);
/* 1 if atoms are so few that a step is one chain: the AEVs' reverse finds the pairs' reverses itself. */
int ani_gpu_chained(const gpu_plan *plan);
/* 1 if the AEVs' kernel builds the neighbor rows too. */
int ani_gpu_fuses_search(const ani_gpu_step *step, const gpu_plan *plan);
int ani_gpu_launch_aev(const ani_gpu_step *step, const gpu_plan *plan, void *stream);
int ani_gpu_launch_network(const ani_gpu_step *step, const gpu_plan *plan, void *stream);
int ani_gpu_launch_wgmma(const ani_gpu_step *step, const gpu_plan *plan, void *stream); /* tiles of 128 slots */
int ani_gpu_launch_aev_back(const ani_gpu_step *step, const gpu_plan *plan, void *stream);
int ani_gpu_launch_forces(const ani_gpu_step *step, const gpu_plan *plan, void *stream);
/* 1 if energies are summed on another stream, by ani_gpu_launch_sums, while the AEVs' reverse runs. */
int ani_gpu_sums_apart(const ani_gpu_step *step, const gpu_plan *plan);
int ani_gpu_launch_sums(const ani_gpu_step *step, const gpu_plan *plan, void *stream);
/* Shared memory of a block of the network kernel with this tile, in bytes. */
size_t ani_gpu_network_bytes(const ani_gpu_step *step, int tile);
/* Shared memory of a block of the AEV kernels with rows of this capacity, in bytes. */
size_t ani_gpu_aev_bytes(const ani_gpu_step *step, int row_capacity);
/* Raises the kernels' shared memory limits to `bytes`; once per device. */
int ani_gpu_prepare_network(int bytes);
int ani_gpu_prepare_aev(int bytes);
int ani_gpu_prepare_aev_back(int bytes); /* its part */
/* Clusters of `cluster` blocks for tiles of 16 or 32 slots that run at once; after ani_gpu_prepare_network. */
int ani_gpu_clusters_at_once(const ani_gpu_step *step, int tile, int cluster);
/* The same for tiles of 128 slots; *can: 1 if this GPU supports them. */
int ani_gpu_prepare_wgmma(int shared_bytes, int *can);

/* NULL if the kernels support this shape, else what they lack. */
const char *ani_gpu_lacks(const ani_parameters *parameters);
/* Constants in one block of *bytes, pointers of `step` relative to `base`; with block NULL only *bytes is set. Operands get their places from
 * `operands`, which counts; ani_gpu_launch_operands writes them. */
void ani_gpu_pack(const ani_parameters *parameters, const mlff_model *model, const int *members, int n_members, void *block,
                  size_t *bytes, const void *base, gpu_packer *operands, ani_gpu_step *step);
/* Lists the hidden layers with the model's own weights: sources [n_members][n_species][ANI_GPU_MAX_HIDDEN], zero where there is none. */
void ani_gpu_list_sources(const ani_parameters *parameters, const int *members, int n_members, ani_gpu_source *sources);
/* ANI's arrays of a step whose sizes are set: pointers relative to `base`; returns the bytes. */
size_t ani_gpu_arena(ani_gpu_step *step, void *base);

#ifdef __cplusplus
}
#endif
#endif
