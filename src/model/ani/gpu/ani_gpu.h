/* SPDX-License-Identifier: MIT */
/* ani_gpu.h: what the files of ANI on CUDA share: the arrays of a step, and who launches what.
 *
 *   prepare > search > AEVs > networks, forward and back > AEVs back > forces > sums
 *   arrange (atoms sorted by species) beside prepare; each pair's reverse is found beside AEVs and networks
 *
 * Rows of neighbours are those of PaiNN's search, made anew in each step. AEVs hold the columns of species that are there
 * and no others: 16 for each species, 32 for each pair of species, which are one and two tiles of the networks' inner
 * dimension; which tiles these are is found on the GPU, so that no graph depends on it.
 *
 * Atoms that have energies stand in slots, sorted by species, each species beginning a new tile. A block (or cluster) of
 * the network kernel takes one tile of slots through all layers of one member, forward and back. Each atom gathers what
 * pairs give it, as centre and as neighbour: no float is added atomically. */
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
    ANI_GPU_WGMMA_WIDTH = 256 /* features of a hidden layer, at most, where tiles have 128 slots */
};

/* What operands of the tensor cores are multiplied with, so that both halves stay in a half's range. */
#define ANI_GPU_VALUE_SCALE 16.0f
#define ANI_GPU_ADJOINT_SCALE 64.0f

/* One species in one member. Widths are multiples of 16; what is added is zero. */
typedef struct ani_gpu_network {
    int32_t n_hidden, tiles[ANI_GPU_MAX_HIDDEN]; /* widths / 16 */
    float output_bias;
    const void *weight[ANI_GPU_MAX_HIDDEN], *back[ANI_GPU_MAX_HIDDEN]; /* operands for y = x wᵀ and for y = x w */
    const float *bias[ANI_GPU_MAX_HIDDEN];
    const float *output; /* weights of the last layer */
    /* For tiles of 128 slots: widths, weights in blocks of 8 columns × 16 inputs, 512 bytes each (see ani_pack.c). */
    int32_t wgmma_width[ANI_GPU_MAX_HIDDEN];
    const void *wgmma_weight[ANI_GPU_MAX_HIDDEN], *wgmma_back[ANI_GPU_MAX_HIDDEN];
    const float *wgmma_bias[ANI_GPU_MAX_HIDDEN]; /* times ANI_GPU_VALUE_SCALE */
} ani_gpu_network;

/* Atoms by species, made in each step. Species that are there are numbered by rank. */
typedef struct ani_gpu_groups {
    int32_t n_present, n_tiles;                  /* tiles of 16 columns an AEV has */
    int32_t failed;                              /* flags of the report, as far as they are known */
    int32_t first_slot[ANI_MAX_SPECIES + 1];     /* by species; multiples of the tile */
    int32_t rank_of[MLFF_MAX_ATOMIC_NUMBER + 1]; /* by atomic number; −1: none */
    int32_t stored_tile[ANI_GPU_MAX_TILES];      /* [n_tiles] the tile of the stored weights */
    int32_t next_item;                           /* of tiles of 128 slots: the next that a block takes */
} ani_gpu_groups;

typedef struct ani_gpu_step {
    gpu_step gpu; /* first: the call, the neighbor list, the integrator, the stamps */
    /* ---- the model */
    int32_t n_species, n_members;                                       /* members that run */
    int32_t stored_tiles;                                               /* of a first layer's weights */
    int32_t hidden_tiles;                                               /* most that a network's hidden layers have together */
    int32_t more_shifts;                                                /* 1: 8 shifts × 4 sections, 0: 4 × 8 */
    float weight_unit;                                                  /* 1 / what the weights are stored times */
    float radial_cutoff, angular_cutoff, eta_radial, eta_angular, zeta; /* etas times log2(e) */
    float radial_shift[ANI_GPU_RADIAL], angular_shift[8], cosine[8], sine[8];
    const ani_gpu_network *network; /* [n_members][n_species] */
    const int32_t *species_of;      /* [MLFF_MAX_ATOMIC_NUMBER + 1] */
    /* ---- on the device */
    int32_t slot_capacity, n_parts; /* n_parts: members that share an adjoint are summed as they come */
    int32_t tile, cluster;          /* slots of a tile; blocks that share its columns */
    int32_t warm_code;              /* 1: kernels that wait for others do their work for nothing first */
    int32_t wgmma_blocks;           /* that take tiles of 128 slots; 0: there are none */
    int32_t saved_columns;          /* slopes that a row of such a tile keeps for the way back */
    ani_gpu_groups *groups;
    int32_t *slot_of;         /* [n_atoms]; −1: a ghost */
    void *aev;                /* [slots/16][n_tiles][2][32] 16 bytes: operands A, high and low halves */
    float *adjoint;           /* [n_parts][slots][16 n_tiles] dE/dAEV of a part's members */
    float *member_energy;     /* [n_members][cluster][slots], a block's share */
    float *saved;             /* [wide_blocks][saved_columns][128] slopes */
    double *energy;           /* [n_atoms][2] eV: the model's, the offset */
    double *centre;           /* [n_atoms][3] dE/dr summed over the pairs of an atom */
    float *incoming_gradient; /* [n_atoms][row_capacity][4] dE/dr of each pair, in the row of the atom the pair ends in */
} ani_gpu_step;

/* Stamps of the stages after the list's own two; the last is the end. */
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

/* Launches. `stream` is a cudaStream_t; the answer a cudaError_t. */
int ani_gpu_launch_arrange(const ani_gpu_step *step, const gpu_plan *plan, void *stream);
/* 1 if atoms are so few that a step is one chain: the AEVs' way back finds the pairs' reverses itself. */
int ani_gpu_chained(const gpu_plan *plan);
/* 1 if the AEVs' kernel makes the rows of neighbours too. */
int ani_gpu_fuses_search(const ani_gpu_step *step, const gpu_plan *plan);
int ani_gpu_launch_aev(const ani_gpu_step *step, const gpu_plan *plan, void *stream);
int ani_gpu_launch_network(const ani_gpu_step *step, const gpu_plan *plan, void *stream);
int ani_gpu_launch_wgmma(const ani_gpu_step *step, const gpu_plan *plan, void *stream); /* tiles of 128 slots */
int ani_gpu_launch_aev_back(const ani_gpu_step *step, const gpu_plan *plan, void *stream);
int ani_gpu_launch_forces(const ani_gpu_step *step, const gpu_plan *plan, void *stream);
/* Shared memory of a block of the network kernel with this tile, in bytes. */
size_t ani_gpu_network_bytes(const ani_gpu_step *step, int tile);
/* Shared memory of a block of the AEV kernels with rows of this capacity, in bytes. */
size_t ani_gpu_aev_bytes(const ani_gpu_step *step, int row_capacity);
/* Raises the kernels' shared memory limits to `bytes`; once per device. */
int ani_gpu_prepare_network(int bytes);
int ani_gpu_prepare_aev(int bytes);
int ani_gpu_prepare_aev_back(int bytes); /* its part */
/* The same for tiles of 128 slots; whether this GPU can. */
int ani_gpu_prepare_wgmma(int shared_bytes, int *can);

/* NULL if the kernels have this shape, else what they lack. */
const char *ani_gpu_lacks(const ani_parameters *parameters);
/* Constants in one block of *bytes, pointers of `step` relative to `base`; with block NULL only *bytes is answered. */
void ani_gpu_pack(const ani_parameters *parameters, const mlff_model *model, const int *members, int n_members, void *block,
                  size_t *bytes, const void *base, ani_gpu_step *step);
/* Work arrays of a step beside those of its gpu_step: pointers relative to `base`; answers the bytes. */
size_t ani_gpu_arena(ani_gpu_step *step, void *base);

#ifdef __cplusplus
}
#endif
#endif
