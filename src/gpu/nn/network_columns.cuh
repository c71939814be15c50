/* SPDX-License-Identifier: MIT */
/* network_columns.cuh: products of a network's tile (tile_network.cuh) computed transposed, Yᵀ = W Xᵀ: weights are operand A of wgmma, 64 columns of
 * results in a product, and the tile's rows are operand B, of which there may be any multiple of 8. Two groups of four warps: of the hidden layers each has 128
 * of the block's columns of all rows, of the third layer all of the block's 128 columns of half of the rows.
 *
 * Sums of a product are (column 16 w + g + 8 h, row 8 j + 2 t + k) in warp w, lane 4 g + t (h, k = 0, 1). Weights are stored so that column 8 n + 2 t + k of
 * a block of 32 is column 8 t + 2 n + k of the results where they are operand B. Operand A takes every second block of 8 columns, product i = 0, 1 from
 * block i on: then a thread has columns 32 w + 8 (g / 2) + 2 n + g % 2, n = i + 2 h. What it has of every second row it exchanges with the thread that has the
 * other columns, so that both have eight adjacent columns of a row, 8 j + 2 t + g % 2. */
#ifndef GPU_NETWORK_COLUMNS_CUH
#define GPU_NETWORK_COLUMNS_CUH

#include "network_runner.cuh"

template <class tile> struct network_columns {
    static constexpr int PRODUCTS = 2; // whose sums a thread has

    static __device__ __forceinline__ int row_of(int, int lane)
    {
        return 2 * (lane % 4) + lane / 4 % 2;
    }
    static __device__ __forceinline__ int column_of(int warp, int lane)
    {
        return 8 * (4 * warp + lane / 8);
    }
    static __device__ __forceinline__ wgmma_operand weights_at(const char *weights)
    {
        return wgmma_operand_at(weights, WEIGHTS_K, 2 * WEIGHTS_COLUMN);
    }
    // d = products of 128 columns of weights with 2 SUMS rows, of 16 of k; with `add` they are added to d. Enqueued.
    template <int SUMS>
    static __device__ __forceinline__ void enqueue(float (&d)[2][SUMS], wgmma_operand weights, wgmma_operand rows, int add)
    {
#pragma unroll
        for (int i = 0; i < 2; i++)
            wgmma_shared_product<tile::format::bfloat>(d[i], wgmma_operand_after(weights, i * WEIGHTS_COLUMN), rows, add);
    }
    template <int H, int SUMS>
    static __device__ __forceinline__ void arrange(const float (&sum)[2][SUMS], eight (&x)[1][H], int lane)
    {
        const bool odd = lane / 4 % 2;
#pragma unroll
        for (int j = 0; j < H; j++)
#pragma unroll
            for (int n = 0; n < 4; n++) {
                const float even_row = sum[n % 2][4 * j + n / 2 * 2], odd_row = sum[n % 2][4 * j + n / 2 * 2 + 1],
                            other = __shfl_xor_sync(~0u, odd ? even_row : odd_row, 4);
                x[0][j].v[2 * n] = odd ? other : even_row;
                x[0][j].v[2 * n + 1] = odd ? odd_row : other;
            }
    }
};

#endif
