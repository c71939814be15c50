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
/* An operand as a format's products read it: said to the compiler, so that it removes the branches. */
template <int NUMBERS> static __device__ __forceinline__ gpu_operand operand_of_format(const gpu_operand &m)
{
    const gpu_operand known = {m.high, number_format<NUMBERS>::split ? m.low : NULL, m.columns};
    if (!known.high || (number_format<NUMBERS>::split && !known.low)) __builtin_unreachable();
    return known;
}
template <int NUMBERS> static __device__ __forceinline__ bool has_format(const gpu_operand &m)
{
    return m.high && (m.low != NULL) == number_format<NUMBERS>::split;
}
/* A hidden layer: the activation, and the operand of the next one; `keeps`: what is before the activation, too. */
template <int NUMBERS, int WIDE, int ACTIVATION, bool keeps>
static __device__ __forceinline__ void finish_hidden(const gpu_dense &d, const float (&sum)[tile_of<NUMBERS, WIDE>::COLUMNS / 2],
                                                     const tile_place &place, const tile_constants &constants)
{
    const gpu_operand out = operand_of_format<NUMBERS>(d.out), keep = keeps ? operand_of_format<NUMBERS>(d.keep) : out;
    const size_t first[2] = {operand_index(out, place.row, place.column), operand_index(out, place.row + 8, place.column)};
    finish_plain<NUMBERS, WIDE>(d, sum, place, constants, [&](int q, int h, eight &x) {
        const bool exists = place.row + 8 * h < place.n_rows;
        const size_t at = first[h] + (size_t)(4 * GPU_SLAB) * q;
        if (keeps) store_operand_if<NUMBERS>(exists, keep, at, x);
        activate<NUMBERS>(ACTIVATION, x);
        store_operand_if<NUMBERS>(exists, out, at, x);
    });
}
/* Backward through an activation: times its slope at the saved numbers, which the results may replace. These are loaded some blocks ahead. */
template <int NUMBERS, int WIDE, int ACTIVATION>
static __device__ __forceinline__ void finish_slope(const gpu_dense &d, const float (&sum)[tile_of<NUMBERS, WIDE>::COLUMNS / 2],
                                                    const tile_place &place)
{
    constexpr int COUNT = tile_of<NUMBERS, WIDE>::COLUMNS / 16, AHEAD = 4 / number_format<NUMBERS>::planes;
    const gpu_operand out = operand_of_format<NUMBERS>(d.out), saved = operand_of_format<NUMBERS>(d.saved);
    const size_t first[2] = {operand_index(out, place.row, place.column), operand_index(out, place.row + 8, place.column)};
    packed_eight<number_format<NUMBERS>::bfloat, number_format<NUMBERS>::planes> ahead[AHEAD];
    const auto place_of = [&](int i) { return first[i % 2] + (size_t)(4 * GPU_SLAB) * (i / 2); };
#pragma unroll
    for (int i = 0; i < AHEAD; i++) ahead[i].load(saved, place_of(i));
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        const eight p = ahead[i % AHEAD].unpack();
        if (i + AHEAD < COUNT) ahead[i % AHEAD].load(saved, place_of(i + AHEAD));
        eight x = sums_of(sum, i / 2, i % 2, d.product.layer.unit);
        multiply_slope(ACTIVATION, p, x);
        store_operand_if<NUMBERS>(place.row + 8 * (i % 2) < place.n_rows, out, place_of(i), x);
    }
}
/* Values to which a row's scale times x Wᵀ is added, loaded ahead as above. */
template <int NUMBERS, int WIDE>
static __device__ __forceinline__ void finish_added(const gpu_dense &d, const float (&sum)[tile_of<NUMBERS, WIDE>::COLUMNS / 2],
                                                    const tile_place &place)
{
    constexpr int COUNT = tile_of<NUMBERS, WIDE>::COLUMNS / 16, AHEAD = 2;
    eight ahead[AHEAD];
    float *row[2];
    float scale[2];
#pragma unroll
    for (int h = 0; h < 2; h++) { // a row that does not exist reads another one
        const int r = min(place.row + 8 * h, max(place.n_rows - 1, 0));
        row[h] = d.values + (size_t)r * d.stride + place.column;
        scale[h] = d.row_scale[r] * d.product.layer.unit;
    }
#pragma unroll
    for (int i = 0; i < AHEAD; i++) ahead[i] = load_floats(row[i % 2] + i / 2 * 32);
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        eight x = ahead[i % AHEAD];
        if (i + AHEAD < COUNT) ahead[i % AHEAD] = load_floats(row[i % 2] + (i + AHEAD) / 2 * 32);
        const eight y = sums_of(sum, i / 2, i % 2, 1.0f);
#pragma unroll
        for (int k = 0; k < 8; k++) x.v[k] = fmaf(scale[i % 2], y.v[k], x.v[k]);
        store_numbers_if<false>(place.row + 8 * (i % 2) < place.n_rows, row[i % 2], (size_t)(i / 2 * 32), x, 0);
    }
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
    // Tiles of many columns, whose epilogues take long, have code without branches for what most layers do.
    constexpr bool many = WIDE == 1 || WIDE == 2;
    const bool whole = layer.outputs % tile::COLUMNS == 0, plain = whole && layer.bias && !d.saved.high,
               silu = d.activation == GPU_SILU && many, softplus = d.activation == GPU_SHIFTED_SOFTPLUS,
               hidden = plain && has_format<NUMBERS>(d.out) && !d.values,
               keeps = has_format<NUMBERS>(d.keep) && d.keep.columns == d.out.columns,
               values = plain && !d.keep.high && d.activation == GPU_IDENTITY && !d.out.high && !d.adds && !d.row_scale,
               back = many && whole && !layer.bias && !d.keep.high,
               slope = back && !d.values && has_format<NUMBERS>(d.out) && has_format<NUMBERS>(d.saved) &&
                       d.saved.columns == d.out.columns,
               added = back && !d.saved.high && !d.out.high && d.adds && d.row_scale && !d.rounds;
    run_tiles<NUMBERS, WIDE, false>(d.product, shared, constants, prepare_nothing,
                                    [&](float(&sum)[tile::COLUMNS / 2], const tile_place &place, nothing) {
                                        if constexpr (many) {
                                            if (hidden && silu && keeps)
                                                return finish_hidden<NUMBERS, WIDE, GPU_SILU, true>(d, sum, place, constants);
                                            if (hidden && silu && !d.keep.high)
                                                return finish_hidden<NUMBERS, WIDE, GPU_SILU, false>(d, sum, place, constants);
                                            if (slope && silu) return finish_slope<NUMBERS, WIDE, GPU_SILU>(d, sum, place);
                                            if (added) return finish_added<NUMBERS, WIDE>(d, sum, place);
                                        }
                                        if (hidden && softplus && !d.keep.high)
                                            finish_hidden<NUMBERS, WIDE, GPU_SHIFTED_SOFTPLUS, false>(d, sum, place, constants);
                                        else if (values && d.rounds)
                                            finish_values<NUMBERS, WIDE, true>(d, sum, place, constants);
                                        else if (values)
                                            finish_values<NUMBERS, WIDE, false>(d, sum, place, constants);
                                        else
                                            finish_dense<NUMBERS, WIDE>(d, sum, place, constants);
                                    });
}

#endif
