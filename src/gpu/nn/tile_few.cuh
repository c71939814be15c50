/* SPDX-License-Identifier: MIT */
/* tile_few.cuh: tiles of few rows, whose operands go to registers. */
#ifndef GPU_TILE_FEW_CUH
#define GPU_TILE_FEW_CUH

#include "tile.cuh"

/* A tile of few rows. Warp w adds up columns 32 (w + 8 m) … of the operands, and the warps' sums are added in order. A lane (g, t) reads 16 bytes
 * of a row of each operand, columns 8 t … 8 t + 7 of 32, and takes them as columns 2 t, 2 t + 1, 2 t + 8, 2 t + 9 of two products: the order of columns is
 * the same in both operands. */
template <int NUMBERS, int WIDE> struct few_rows {
    typedef tile_of<NUMBERS, WIDE> tile;
    typedef number_format<NUMBERS> format;
    static constexpr int WARPS = tile::THREADS / 32, UNITS = tile::ROWS / 16, TILES = tile::COLUMNS / 8;
    static constexpr int DEPTH = tile::planes == 1 && UNITS == 1 ? 3 : 2; // steps in flight, as far as registers allow
    const gpu_product &p;
    const int row, column, steps, lane, warp;
    const char *weights[tile::planes]; // of the lane
    const uint32_t weights_step;
    uint4 a[DEPTH][tile::planes][UNITS][2], b[DEPTH][tile::planes][TILES];
    float4 sum[UNITS][TILES];

    __device__ __forceinline__ few_rows(const gpu_product &product_, int row_, int column_)
        : p(product_), row(row_), column(column_), steps(product_.layer.inputs / 32), lane(threadIdx.x % 32),
          warp(threadIdx.x / 32), weights_step(weights_bytes(product_.layer))
    {
#pragma unroll
        for (int plane = 0; plane < tile::planes; plane++)
            weights[plane] = weights_at(p.layer, plane, column, lane % 4) + lane / 4 * 16;
    }
    __device__ __forceinline__ void load_weights(int at, int step)
    {
#pragma unroll
        for (int plane = 0; plane < tile::planes; plane++)
#pragma unroll
            for (int j = 0; j < TILES; j++)
                b[at][plane][j] = __ldg((const uint4 *)(weights[plane] + (uint32_t)step * weights_step + j * WEIGHTS_COLUMN));
    }
    __device__ __forceinline__ void load_rows(int at, int step)
    {
#pragma unroll
        for (int plane = 0; plane < tile::planes; plane++)
#pragma unroll
            for (int k = 0; k < 2 * UNITS; k++)
                a[at][plane][k / 2][k % 2] =
                    ((const uint4 *)operand_at(p, plane, row / GPU_SLAB, 4 * step + lane % 4))[row % GPU_SLAB + lane / 4 + 8 * k];
    }
    __device__ __forceinline__ bool is_early(int step) const
    {
        return 32 * step < p.early;
    }
    // What does not depend on the previous kernel.
    __device__ __forceinline__ void request()
    {
#pragma unroll
        for (int at = 0; at < DEPTH; at++)
            if (warp + WARPS * at < steps) load_weights(at, warp + WARPS * at);
#pragma unroll
        for (int at = 0; at < DEPTH; at++)
            if (warp + WARPS * at < steps && is_early(warp + WARPS * at)) load_rows(at, warp + WARPS * at);
    }
    __device__ __forceinline__ void multiply()
    {
#pragma unroll
        for (int k = 0; k < UNITS * TILES; k++) sum[k / TILES][k % TILES] = make_float4(0, 0, 0, 0);
#pragma unroll 1
        for (int first = warp; first < steps; first += WARPS * DEPTH) {
#pragma unroll
            for (int at = 0; at < DEPTH; at++) {
                const int step = first + WARPS * at;
                if (step < steps && first > warp) load_weights(at, step);
                if (step < steps && !(first == warp && is_early(step))) load_rows(at, step);
            }
#pragma unroll
            for (int at = 0; at < DEPTH; at++)
                if (first + WARPS * at < steps) add_step(at);
        }
    }
    __device__ __forceinline__ void add_step(int at)
    {
#pragma unroll
        for (int k = 0; k < UNITS * TILES; k++) {
            const int u = k / TILES, j = k % TILES;
            float4 d = sum[u][j];
            if (format::split) d = make_float4(0, 0, 0, 0); // as multiply_in_parts
#pragma unroll
            for (int second = 0; second < 2; second++) {
                if (format::split) {
                    add_product(d, a[at][tile::planes - 1][u], b[at][0][j], second);
                    add_product(d, a[at][0][u], b[at][tile::planes - 1][j], second);
                }
                add_product(d, a[at][0][u], b[at][0][j], second);
            }
            sum[u][j] = format::split ? sum[u][j] + d : d;
        }
    }
    static __device__ __forceinline__ void add_product(float4 &d, const uint4 (&a)[2], const uint4 &b, int second)
    {
        if (second)
            product<format::bfloat>(d, make_uint4(a[0].z, a[1].z, a[0].w, a[1].w), b.z, b.w);
        else
            product<format::bfloat>(d, make_uint4(a[0].x, a[1].x, a[0].y, a[1].y), b.x, b.y);
    }
    // The sums of all warps, of 16 rows for each of the first warps.
    __device__ __forceinline__ void add_warps(float4 *shared, float (&all)[tile::COLUMNS / 2])
    {
#pragma unroll
        for (int k = 0; k < UNITS * TILES; k++) shared[(warp * UNITS * TILES + k) * 32 + lane] = sum[k / TILES][k % TILES];
        __syncthreads();
        if (warp >= UNITS) return;
#pragma unroll
        for (int j = 0; j < TILES; j++) {
            float4 d = make_float4(0, 0, 0, 0);
#pragma unroll
            for (int w = 0; w < WARPS; w++) d = d + shared[((w * UNITS + warp) * TILES + j) * 32 + lane];
            all[4 * j] = d.x, all[4 * j + 1] = d.y, all[4 * j + 2] = d.z, all[4 * j + 3] = d.w;
        }
    }
};

/* run_tiles of few rows. The next kernel may begin at once: what it reads before its wait was complete before this one began, too
 * (gpu_product.early). */
template <int NUMBERS, int WIDE, bool clusters, class Prepare, class Finish>
static __device__ __forceinline__ void run_few_rows(const gpu_product &p, uint4 *shared, const tile_constants &constants,
                                                    const Prepare &prepare, const Finish &finish)
{
    typedef tile_of<NUMBERS, WIDE> tile;
    tile_barriers *barriers = (tile_barriers *)((char *)shared + tile::EXCHANGE_AT + tile::CLUSTER * tile::ROWS * 8);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, column_tiles = p.layer.outputs / tile::COLUMNS,
              row = p.first_row + (int)blockIdx.x / column_tiles * tile::ROWS,
              column = (int)blockIdx.x % column_tiles * tile::COLUMNS, n_rows = min(*p.n_rows, p.first_row + p.rows);
    const bool finishes = warp < tile::ROWS / 16;
    few_rows<NUMBERS, WIDE> run(p, row, column);
    let_next_start();
    if (row < n_rows) run.request();
#pragma unroll
    for (int k = 0; k < TILE_CONSTANTS; k++)
        if (warp == tile::ROWS / 16 + k && constants.vector[k])
            ((float *)((char *)shared + tile::CONSTANTS_AT))[k * tile::COLUMNS + lane] =
                __ldg(constants.vector[k] + column + lane);
    if (clusters) {
        if (threadIdx.x == 0) {
            mbarrier_init_bytes(&barriers->exchange, tile::CLUSTER * tile::ROWS * (int)sizeof(float2));
            mbarrier_init_fence();
        }
        cluster_barrier<tile::CLUSTER>();
    }
    const tile_place place = {finishes ? row + 16 * warp + lane / 4 : n_rows,
                              column + 8 * (lane % 4),
                              n_rows,
                              lane,
                              warp,
                              shared,
                              (uint32_t)tile::EXCHANGE_AT,
                              (uint32_t)((char *)&barriers->exchange - (char *)shared),
                              column};
    const auto prepared = prepare(place);
    wait_for_previous();
    if (p.stamp && blockIdx.x == 0 && threadIdx.x == 0) *p.stamp = gpu_timer();
    if (row >= n_rows) return;
    float sum[tile::COLUMNS / 2];
    run.multiply();
    run.add_warps((float4 *)shared, sum);
    if (finishes) finish(sum, place, prepared);
}

#endif
