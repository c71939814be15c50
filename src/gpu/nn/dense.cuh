/* SPDX-License-Identifier: MIT */
/* dense.cuh: the epilogue of a plain dense layer, forward or backward. */
#ifndef GPU_DENSE_CUH
#define GPU_DENSE_CUH

#include "linear_tile.cuh"

template <int NUMBERS> static __device__ __forceinline__ void store_values(const gpu_dense &d, int r, int c, eight x)
{
    const size_t at = (size_t)r * d.stride + c;
    const float scale = d.row_scale ? d.row_scale[r] : 1.0f;
    eight old = {};
    if (d.adds) old = load_floats(d.values + at);
#pragma unroll
    for (int k = 0; k < 8; k++) x.v[k] = fmaf(scale, x.v[k], old.v[k]);
    store_numbers<number_format<NUMBERS>::bfloat>(d.values, at, x, d.rounds);
}

template <int NUMBERS, int WIDE> static __device__ __forceinline__ void run_dense(const gpu_dense &d, uint4 *shared)
{
    typedef tile_of<NUMBERS, WIDE> tile;
    constexpr int COLUMNS = tile::COLUMNS;
    const gpu_linear &layer = d.product.layer;
    const tile_constants constants = {{layer.bias}};
    run_tiles<NUMBERS, WIDE, false>(d.product, shared, constants, prepare_nothing,
                                    [&](float(&sum)[COLUMNS / 2], const tile_place &place, nothing) {
#pragma unroll
                                        for (int q = 0; q < COLUMNS / 32; q++) {
                                            const int c = place.column + 32 * q;
                                            if (c >= layer.outputs) break;
                                            eight bias = {};
                                            if (layer.bias) bias = constants_at<tile>(constants, 0, place, c);
#pragma unroll
                                            for (int h = 0; h < 2; h++) {
                                                const int r = place.row + 8 * h;
                                                if (r >= place.n_rows) continue;
                                                eight x = sums_of(sum, q, h, layer.unit);
#pragma unroll
                                                for (int k = 0; k < 8; k++) x.v[k] += bias.v[k];
                                                if (d.keep.high) store_operand<NUMBERS>(d.keep, r, c, x);
                                                if (d.saved.high)
                                                    multiply_slope(d.activation, load_operand<NUMBERS>(d.saved, r, c), x);
                                                else
                                                    activate(d.activation, x);
                                                if (d.out.high) store_operand<NUMBERS>(d.out, r, c, x);
                                                if (d.values) store_values<NUMBERS>(d, r, c, x);
                                            }
                                        }
                                    });
}

#endif
