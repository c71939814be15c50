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

template <int NUMBERS, int WIDE>
static __device__ __forceinline__ void finish_dense(const gpu_dense &d, const float (&sum)[tile_of<NUMBERS, WIDE>::COLUMNS / 2],
                                                    const tile_place &place, const tile_constants &constants)
{
    const gpu_linear &layer = d.product.layer;
#pragma unroll
    for (int q = 0; q < tile_of<NUMBERS, WIDE>::COLUMNS / 32; q++) {
        const int c = place.column + 32 * q;
        if (c >= layer.outputs) break;
        eight bias = {};
        if (layer.bias) bias = constants_at<tile_of<NUMBERS, WIDE>>(constants, 0, place, c);
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
                activate<NUMBERS>(d.activation, x);
            if (d.out.high) store_operand<NUMBERS>(d.out, r, c, x);
            if (d.values) store_values<NUMBERS>(d, r, c, x);
        }
    }
}

/* The epilogue of the layers of which there are most, without branches, so that many rows and columns are computed at once: bias, then
 * put(q, h, x) for eight columns of block q of 32 and row h. */
template <int NUMBERS, int WIDE, class Put>
static __device__ __forceinline__ void finish_plain(const gpu_dense &d, const float (&sum)[tile_of<NUMBERS, WIDE>::COLUMNS / 2],
                                                    const tile_place &place, const tile_constants &constants, const Put &put)
{
#pragma unroll
    for (int q = 0; q < tile_of<NUMBERS, WIDE>::COLUMNS / 32; q++) {
        const eight bias = constants_at<tile_of<NUMBERS, WIDE>>(constants, 0, place, place.column + 32 * q);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            eight x = sums_of(sum, q, h, d.product.layer.unit);
#pragma unroll
            for (int k = 0; k < 8; k++) x.v[k] += bias.v[k];
            put(q, h, x);
        }
    }
}
/* A hidden layer: softplus, and the operand of the next one. */
template <int NUMBERS, int WIDE>
static __device__ __forceinline__ void finish_hidden(const gpu_dense &d, const float (&sum)[tile_of<NUMBERS, WIDE>::COLUMNS / 2],
                                                     const tile_place &place, const tile_constants &constants)
{
    const gpu_operand out = {d.out.high, number_format<NUMBERS>::split ? d.out.low : NULL, d.out.columns};
    const size_t first[2] = {operand_index(out, place.row, place.column), operand_index(out, place.row + 8, place.column)};
    if (number_format<NUMBERS>::split && !out.low) __builtin_unreachable();
    finish_plain<NUMBERS, WIDE>(d, sum, place, constants, [&](int q, int h, eight &x) {
        soften<NUMBERS>(x);
        store_operand_if<NUMBERS>(place.row + 8 * h < place.n_rows, out, first[h] + (size_t)(4 * GPU_SLAB) * q, x);
    });
}
/* Values that are x Wᵀ + b. */
template <int NUMBERS, int WIDE, bool rounds>
static __device__ __forceinline__ void finish_values(const gpu_dense &d, const float (&sum)[tile_of<NUMBERS, WIDE>::COLUMNS / 2],
                                                     const tile_place &place, const tile_constants &constants)
{
    finish_plain<NUMBERS, WIDE>(d, sum, place, constants, [&](int q, int h, const eight &x) {
        store_numbers_if<number_format<NUMBERS>::bfloat>(place.row + 8 * h < place.n_rows, d.values,
                                                         (size_t)(place.row + 8 * h) * d.stride + place.column + 32 * q, x,
                                                         rounds);
    });
}

template <int NUMBERS, int WIDE> static __device__ __forceinline__ void run_dense(const gpu_dense &d, uint4 *shared)
{
    typedef tile_of<NUMBERS, WIDE> tile;
    const gpu_linear &layer = d.product.layer;
    const tile_constants constants = {{layer.bias}};
    const bool plain = layer.bias && !d.keep.high && !d.saved.high && layer.outputs % tile::COLUMNS == 0,
               hidden = plain && d.activation == GPU_SHIFTED_SOFTPLUS && d.out.high && !d.values &&
                        (d.out.low != NULL) == number_format<NUMBERS>::split,
               values = plain && d.activation == GPU_IDENTITY && !d.out.high && !d.adds && !d.row_scale;
    run_tiles<NUMBERS, WIDE, false>(d.product, shared, constants, prepare_nothing,
                                    [&](float(&sum)[tile::COLUMNS / 2], const tile_place &place, nothing) {
                                        if (hidden)
                                            finish_hidden<NUMBERS, WIDE>(d, sum, place, constants);
                                        else if (values && d.rounds)
                                            finish_values<NUMBERS, WIDE, true>(d, sum, place, constants);
                                        else if (values)
                                            finish_values<NUMBERS, WIDE, false>(d, sum, place, constants);
                                        else
                                            finish_dense<NUMBERS, WIDE>(d, sum, place, constants);
                                    });
}

#endif
