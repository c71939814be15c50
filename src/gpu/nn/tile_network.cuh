/* SPDX-License-Identifier: MIT */
/* tile_network.cuh: a network of three layers for a tile of rows, by a cluster of 2, 4 or 8 blocks; Hopper only. Hidden features stay in
 * shared memory, so that only the network's inputs, its weights and its results move through the L2 cache.
 *
 * A block computes its share of the columns of every layer, equal for all. It needs all columns of the hidden features: each block sends its
 * share to the others, by bulk copies between shared memories, and begins the next layer with its own share. One region of shared memory
 * holds in turn the inputs and both hidden layers of a tile; weights pass through a ring buffer. Two groups of four warps compute, one group
 * in clusters of 8: in clusters of 4 and 8 each has its part of the block's columns of 64 rows (network_rows.cuh), in clusters of 2 products are computed
 * transposed (network_columns.cuh). Three warps fetch weights, one the inputs of the next tile. Blocks are persistent.
 *
 * The input may have 768 columns, of two operands: the last 256 take the places of the first 256 when these have been read. A fourth layer
 * without activation may follow, of the results, which blocks share as they share hidden features. */
#ifndef GPU_TILE_NETWORK_CUH
#define GPU_TILE_NETWORK_CUH

#include "network_columns.cuh"
#include "network_rows.cuh"

template <bool transposed, class tile> struct network_of {
    typedef network_rows<tile> type;
};
template <class tile> struct network_of<true, tile> {
    typedef network_columns<tile> type;
};

/* A whole block. Epilogues: `constants()` returns the third layer's vectors; `gather(row, n_rows)` returns which rows are added in the first layer, of a
 * tile to come, `added(atoms, place)` their place, and `request` begins to load them: before the first product, for a block's first tile behind it.
 * `hide<l>(x, place, added, bias, put)` is the epilogue of layer l = 0 or 1: x are sums of products, x[q][h] of eight adjacent columns of block q and row h
 * (network_shape.cuh); it calls put(q, h, x) for each. `prepare(place)` returns what the third one needs, before its product;
 * `finish(x, place, prepared, constants, exchange, put)` is the third one, calls `exchange` once and put(q, h, x) for the results; `project(x, place, bias)` is the
 * fourth one. */
template <class tile, class Epilogues>
static __device__ __forceinline__ void run_network(const gpu_network &net, uint4 *shared, const Epilogues &epilogues)
{
    if (!WGMMA_HERE) return;
    typename network_of<tile::TRANSPOSED, tile>::type run(net, shared);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    run.init();
    if (warp >= 4 * tile::GROUPS) {
        if (tile::GROUPS > 1) wgmma_release_registers<40>();
        if (warp == 4 * tile::GROUPS + run.FETCHING)
            run.fetch_inputs(lane);
        else
            run.fetch_weights(warp - 4 * tile::GROUPS, lane);
    } else {
        if (tile::GROUPS > 1) wgmma_claim_registers<232>();
        run.compute(epilogues);
    }
    __syncwarp();
    cluster_barrier<tile::BLOCKS>(); // other blocks may still send to this one
}

#endif
