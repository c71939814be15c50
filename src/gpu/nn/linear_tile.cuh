/* SPDX-License-Identifier: MIT */
/* linear_tile.cuh: tiles of a product x Wᵀ (linear.h). A kernel gives its epilogue, which gets a thread's sums.
 *
 *   WIDE 1   128 × 256 by two groups of four warps (wgmma); a ninth warp fetches both operands in bulk copies through a ring buffer;
 *            blocks are persistent and fetch the next tile during the epilogue; in a last round of few tiles each is two of 64 rows
 *   WIDE 2   64 × 64 by one group, for few rows; one tile for each block
 *   WIDE 3   16 × 32 by eight warps (mma) that share k, for the fewest rows; one tile for each block
 *   WIDE 4   32 × 32, the same
 *   WIDE 0   64 × 256 by four warps (mma), for all GPUs
 *
 * A thread has rows g and g + 8 of its warp's 16 (lane 4 g + t). Weights are stored in an order in which its 16 sums of 32 columns are
 * columns 8 t … 8 t + 7 of both rows. */
#ifndef GPU_LINEAR_TILE_CUH
#define GPU_LINEAR_TILE_CUH

#include "tile_few.cuh"
#include "tile_ring.cuh"

/* Runs all tiles of a block. `prepare(place)` returns what the epilogue needs and does not depend on the previous kernel, which may still
 * run; `finish(sum, place, prepared)` is the epilogue; `clusters`: blocks exchange sums of rows in it. */
template <int NUMBERS, int WIDE, bool clusters, class Prepare, class Finish>
static __device__ __forceinline__ void run_tiles(const gpu_product &p, uint4 *shared, const tile_constants &constants,
                                                 const Prepare &prepare, const Finish &finish)
{
    if constexpr (tile_of<NUMBERS, WIDE>::few)
        run_few_rows<NUMBERS, WIDE, clusters>(p, shared, constants, prepare, finish);
    else
        run_ring<NUMBERS, WIDE, clusters>(p, shared, prepare, finish);
}

/* For epilogues that prepare nothing. */
struct nothing {
};
static __device__ __forceinline__ nothing prepare_nothing(const tile_place &)
{
    return nothing();
}

/* Blocks of a launch. */
template <int NUMBERS, int WIDE> static int tile_blocks(const gpu_product &p, const gpu_linear_plan &plan)
{
    typedef tile_of<NUMBERS, WIDE> tile;
    const int tiles = (p.rows + tile::ROWS - 1) / tile::ROWS * ((p.layer.outputs + tile::COLUMNS - 1) / tile::COLUMNS);
    return WIDE == 1 ? min(tiles, (int)plan.blocks) : tiles;
}

/* Calls f<NUMBERS, WIDE>() for a plan. */
#define FOR_PLAN(plan, f, ...)                                                                                                   \
    ((plan)->numbers == GPU_NUMBER_FLOAT32 ? FOR_WIDE(plan, f, GPU_NUMBER_FLOAT32, __VA_ARGS__)                                  \
     : (plan)->numbers == GPU_NUMBER_TF32  ? FOR_WIDE(plan, f, GPU_NUMBER_TF32, __VA_ARGS__)                                     \
                                           : FOR_WIDE(plan, f, GPU_NUMBER_BF16, __VA_ARGS__))
#define FOR_WIDE(plan, f, numbers, ...)                                                                                          \
    ((plan)->wide == 1   ? f<numbers, 1>(__VA_ARGS__)                                                                            \
     : (plan)->wide == 2 ? f<numbers, 2>(__VA_ARGS__)                                                                            \
     : (plan)->wide == 3 ? f<numbers, 3>(__VA_ARGS__)                                                                            \
     : (plan)->wide == 4 ? f<numbers, 4>(__VA_ARGS__)                                                                            \
                         : f<numbers, 0>(__VA_ARGS__))

/* Raises a kernel's limit of shared memory. */
template <int NUMBERS, int WIDE, class Kernel> static int prepare_kernel(Kernel *kernel)
{
    return (int)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, tile_of<NUMBERS, WIDE>::SHARED_BYTES);
}

/* Calls `one(plan)` for every plan that the GPU can run, until one fails. */
template <class One> static int for_all_plans(int hopper, const One &one)
{
    int error = 0;
    for (int numbers = 0; numbers < 3 && error == 0; numbers++)
        for (int wide = 0; wide < (hopper ? GPU_LINEAR_TILES : 1) && error == 0; wide++) {
            const gpu_linear_plan plan = {(gpu_number)numbers, wide, 0, 0};
            error = one(&plan);
        }
    return error;
}

#endif
