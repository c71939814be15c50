/* SPDX-License-Identifier: MIT */
/* tile.cuh: the shape of a tile, where its operands are, and what an epilogue knows (linear_tile.cuh). */
#ifndef GPU_TILE_CUH
#define GPU_TILE_CUH

#include "gpu/ptx/wgmma.cuh"
#include "operand.cuh"

/* Vectors of an output's constants that an epilogue reads; NULL: none. */
enum { TILE_CONSTANTS = 5 };
struct tile_constants {
    const float *vector[TILE_CONSTANTS];
};

template <int NUMBERS, int WIDE> struct tile_of {
    static constexpr int planes = number_format<NUMBERS>::planes;
    static constexpr bool few = WIDE >= 3;
    static constexpr int GROUPS = WIDE == 1 ? 2 : 1,
                         ROWS = WIDE == 3   ? 16
                                : WIDE == 4 ? 32
                                            : GPU_SLAB * GROUPS,
                         COLUMNS = few         ? 32
                                   : WIDE == 2 ? 64
                                               : GPU_WEIGHT_BLOCK;
    static constexpr int CLUSTER = GPU_NORM_WIDTH / COLUMNS;                        // blocks that share a row that is normalized
    static constexpr int K8 = (WIDE ? 8 : 4) / planes;                              // blocks of 8 of k in a stage of the ring
    static constexpr int A_BYTES = K8 * GPU_SLAB * 16, B_BYTES = K8 * COLUMNS * 16; // of a plane; A of a slab
    static constexpr int STAGE_BYTES = planes * (GROUPS * A_BYTES + B_BYTES), STAGES = WIDE == 2 ? 6 : WIDE ? 4 : 2;
    static constexpr int THREADS = few ? 256 : WIDE == 1 ? 384 : WIDE == 2 ? 160 : 128;
    static constexpr int RESIDENT = WIDE == 2 || (few && planes == 1) ? 2 : 1; // blocks of a multiprocessor
    // The ring, or the sums of eight warps; the exchange of a row's blocks; mbarriers.
    static constexpr int EXCHANGE_AT = few ? THREADS / 32 * ROWS * COLUMNS * 4 : STAGES * STAGE_BYTES;
    static constexpr int CONSTANTS_AT = EXCHANGE_AT + CLUSTER * ROWS * 8 + 256;
    static constexpr int SHARED_BYTES = CONSTANTS_AT + (few ? TILE_CONSTANTS * COLUMNS * 4 : 0);
};

struct tile_barriers {
    uint64_t full[8], empty[8], exchange;
};

/* What an epilogue knows of its place. */
struct tile_place {
    int row, column, n_rows; // row: of g, the other is row + 8; column: first of the tile, + 8 t
    int lane, warp;          // warp: of the computing ones
    uint4 *shared;           // of the block
    uint32_t exchange;       // offset of [CLUSTER][ROWS] float2, where blocks exchange sums of rows
    uint32_t arrived;        // offset of its mbarrier
    int first;               // column of the tile
};

/* Eight values of a vector of constants, from column c on: of few rows from shared memory, where they are before the previous kernel has ended. */
template <class tile>
static __device__ __forceinline__ eight constants_at(const tile_constants &constants, int k, const tile_place &place, int c)
{
    if (tile::few)
        return load_floats((const float *)((const char *)place.shared + tile::CONSTANTS_AT) + k * tile::COLUMNS + c -
                           place.first);
    return load_constants(constants.vector[k] + c);
}

// One plane of one operand at block k8 of 8 columns of a row's slab.
static __device__ __forceinline__ const char *operand_at(const gpu_product &p, int plane, int slab, int k8)
{
    const int split = p.a[0].columns / 8, second = k8 >= split;
    const gpu_operand &m = p.a[second];
    return (const char *)(plane ? m.low : m.high) +
           ((size_t)slab * (m.columns / 8) + (k8 - (second ? split : 0))) * (GPU_SLAB * 16);
}
/* Where the weights of a column, a multiple of 8, and of inputs 8 k8 … 8 k8 + 7 are: eight columns of 16 bytes. The next 8 inputs, up to a multiple of 32,
 * are WEIGHTS_K bytes further, the next 8 columns WEIGHTS_COLUMN bytes. */
enum { WEIGHTS_K = 128, WEIGHTS_COLUMN = GPU_WEIGHT_DEPTH / 8 * WEIGHTS_K };
// Of 32 inputs.
static __device__ __forceinline__ uint32_t weights_bytes(const gpu_linear &layer)
{
    return ((uint32_t)layer.outputs + GPU_WEIGHT_BLOCK - 1) / GPU_WEIGHT_BLOCK * (GPU_WEIGHT_BLOCK / 8 * WEIGHTS_COLUMN);
}
static __device__ __forceinline__ const char *weights_at(const gpu_linear &layer, int plane, int column, int k8)
{
    return (const char *)(plane ? layer.low : layer.high) +
           ((uint32_t)k8 / (GPU_WEIGHT_DEPTH / 8) * weights_bytes(layer) + (uint32_t)column / 8 * WEIGHTS_COLUMN +
            (uint32_t)k8 % (GPU_WEIGHT_DEPTH / 8) * WEIGHTS_K);
}

/* Columns of a thread's block q of 8: sums of its row h (0: g, 1: g + 8), times `unit`. */
template <int SUMS> static __device__ __forceinline__ eight sums_of(const float (&sum)[SUMS], int q, int h, float unit)
{
    eight x;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        x.v[2 * j] = sum[16 * q + 4 * j + 2 * h] * unit;
        x.v[2 * j + 1] = sum[16 * q + 4 * j + 2 * h + 1] * unit;
    }
    return x;
}

#endif
