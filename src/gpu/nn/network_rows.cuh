/* SPDX-License-Identifier: MIT */
/* network_rows.cuh: products of a network's tile (tile_network.cuh) with rows as operand A of wgmma, 64 of a slab, and weights as operand B. Each group of
 * four warps has a slab, or its share of the block's columns of the only one.
 *
 * In warp w, lane 4 g + t, a thread has rows 16 w + g and 8 further, and of each block of 32 columns eight adjacent ones, from 8 t on (sums_of). */
#ifndef GPU_NETWORK_ROWS_CUH
#define GPU_NETWORK_ROWS_CUH

#include "network_runner.cuh"

template <class tile> struct network_rows {
    static constexpr int PRODUCTS = 1; // whose sums a thread has

    static __device__ __forceinline__ int row_of(int warp, int lane)
    {
        return 16 * warp + lane / 4;
    }
    static __device__ __forceinline__ int column_of(int, int lane)
    {
        return 8 * (lane % 4);
    }
    static __device__ __forceinline__ wgmma_operand weights_at(const char *weights)
    {
        return wgmma_operand_at(weights, WEIGHTS_K, WEIGHTS_COLUMN);
    }
    // d = products of 2 SUMS columns of weights with the slab's rows, of 16 of k; with `add` they are added to d. Enqueued.
    template <int SUMS>
    static __device__ __forceinline__ void enqueue(float (&d)[1][SUMS], wgmma_operand weights, wgmma_operand rows, int add)
    {
        wgmma_shared_product<tile::format::bfloat>(d[0], rows, weights, add);
    }
    template <int Q, int SUMS> static __device__ __forceinline__ void arrange(const float (&sum)[1][SUMS], eight (&x)[Q][2], int)
    {
#pragma unroll
        for (int k = 0; k < 2 * Q; k++) x[k / 2][k % 2] = sums_of(sum[0], k / 2, k % 2, 1.0f);
    }
};

#endif
