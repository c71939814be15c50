/* SPDX-License-Identifier: MIT */
/* orb_update.cuh: the epilogue of an MLP's third layer: a row is normalized and added to the latent features of an edge or a node. The parts of a row
 * are in several blocks or groups of warps, which exchange mean and sum of squares. */
#ifndef ORB_UPDATE_CUH
#define ORB_UPDATE_CUH

#include "gpu/nn/tile.cuh"
#include "model/orb/gpu/orb_gpu.h"

struct moments {
    float mean, squares; // squares: Σ (x − mean)²
};

// Moments of a thread's two rows over the columns of this block.
template <int SUMS> static __device__ __forceinline__ void moments_of(const float (&x)[SUMS], moments (&of)[2])
{
    constexpr int COLUMNS = 2 * SUMS;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float sum = 0, squares = 0;
#pragma unroll
        for (int k = 0; k < SUMS; k += 4) sum += x[k + 2 * h] + x[k + 2 * h + 1];
        of[h].mean = sum_quad(sum) * (1.0f / COLUMNS);
#pragma unroll
        for (int k = 0; k < SUMS; k += 4) {
            const float a = x[k + 2 * h] - of[h].mean, b = x[k + 2 * h + 1] - of[h].mean;
            squares += a * a + b * b;
        }
        of[h].squares = sum_quad(squares);
    }
}

// Of the whole rows, from those of all parts, `stride` numbers from each other; `all`: of row g.
template <int PARTS> static __device__ __forceinline__ void combine_moments(const float2 *all, int stride, moments (&of)[2])
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float mean = 0, squares = 0;
        for (int k = 0; k < PARTS; k++) mean += (1.0f / PARTS) * all[k * stride + 8 * h].x;
        for (int k = 0; k < PARTS; k++) {
            const float2 part = all[k * stride + 8 * h];
            squares += part.y + (float)(ORB_GPU_LATENT / PARTS) * (part.x - mean) * (part.x - mean);
        }
        of[h].mean = mean;
        of[h].squares = squares;
    }
}

// Adds what charge and spin of the node's system give in the next layer.
static __device__ __forceinline__ void add_to_node(const orb_gpu_update &call, int r, int c, eight &x)
{
    const int system = call.system_of ? call.system_of[r] : 0;
    const eight added = load_floats(call.added + (size_t)system * call.stride + c);
#pragma unroll
    for (int k = 0; k < 8; k++) x.v[k] += added.v[k];
}

/* Where the sums of a thread belong: as tile_place; `part` of PARTS of a row. */
struct update_place {
    int row, column, n_rows, lane, part;
};
enum update_constant { UPDATE_BIAS, UPDATE_SCALE, UPDATE_SHIFT, UPDATE_SENDING, UPDATE_RECEIVING };

/* `constant(k, c)`: eight of an update_constant from column c on; `old(q, h, r, c)`: old features, of rows that do not exist anything; `exchange(of)`: moments of whole rows from those of
 * this part; `put(q, h, x)`: gets the results. */
template <int NUMBERS, int PARTS, bool edges, int SUMS, class Constant, class Old, class Exchange, class Put>
static __device__ __forceinline__ void finish_update(const orb_gpu_update &call, float (&sum)[SUMS], const update_place &place,
                                                     const Constant &constant, const Old &old_features, const Exchange &exchange,
                                                     const Put &put)
{
    const float unit = call.product.layer.unit;
    moments of[2];
    float scale[2], shift[2], gate[2][2] = {{0, 0}, {0, 0}};
    const size_t first[2] = {operand_index(call.latent, place.row, place.column),
                             operand_index(call.latent, place.row + 8, place.column)};
#pragma unroll
    for (int q = 0; q < SUMS / 16; q++) {
        const eight bias = constant(UPDATE_BIAS, place.column + 32 * q);
#pragma unroll
        for (int k = 0; k < 16; k++) {
            const int j = k / 4, c = k % 2;
            sum[16 * q + k] = fmaf(sum[16 * q + k], unit, bias.v[2 * j + c]);
        }
    }
    moments_of(sum, of);
    exchange(of);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const float n = (float)ORB_GPU_LATENT, mean = call.shift ? of[h].mean : 0.0f,
                    squares = call.shift ? of[h].squares : fmaf(n * of[h].mean, of[h].mean, of[h].squares);
        const float variance = squares * (1.0f / ORB_GPU_LATENT) + call.epsilon;
        scale[h] = number_format<NUMBERS>::split ? 1.0f / sqrtf(variance) : fast_rsqrt(variance);
        shift[h] = -mean * scale[h];
    }
#pragma unroll
    for (int q = 0; q < SUMS / 16; q++) {
        const int c = place.column + 32 * q;
        const eight gamma = constant(UPDATE_SCALE, c);
        eight beta = {};
        if (call.shift) beta = constant(UPDATE_SHIFT, c);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int r = place.row + 8 * h;
            const bool exists = r < place.n_rows;
            eight x = sums_of(sum, q, h, 1.0f);
#pragma unroll
            for (int k = 0; k < 8; k++) x.v[k] = fmaf(x.v[k], scale[h], shift[h]);
            if (call.z) store_numbers_if<false>(exists, call.z, (size_t)r * ORB_GPU_LATENT + c, x, call.halves);
#pragma unroll
            for (int k = 0; k < 8; k++) x.v[k] = fmaf(x.v[k], gamma.v[k], beta.v[k]);
            if (!call.replaces) {
                const eight old = old_features(q, h, r, c);
                if (edges) {
                    const eight sending = constant(UPDATE_SENDING, c), receiving = constant(UPDATE_RECEIVING, c);
#pragma unroll
                    for (int k = 0; k < 8; k++) {
                        gate[h][0] = fmaf(old.v[k], sending.v[k], gate[h][0]);
                        gate[h][1] = fmaf(old.v[k], receiving.v[k], gate[h][1]);
                    }
                }
#pragma unroll
                for (int k = 0; k < 8; k++) x.v[k] += old.v[k];
                if (!edges && call.added && exists) add_to_node(call, r, c, x);
            }
            store_operand_if<NUMBERS>(exists && !call.keeps, call.latent, first[h] + (size_t)(4 * GPU_SLAB) * q, x);
            put(q, h, x);
        }
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int r = place.row + 8 * h;
        const bool first = place.lane % 4 == 0 && r < place.n_rows;
        if (call.inverse && first && place.part == 0) call.inverse[r] = scale[h];
        if (!edges || call.replaces) continue;
        const float sending = sum_quad(gate[h][0]), receiving = sum_quad(gate[h][1]);
        if (first) ((float2 *)call.gates)[(size_t)r * PARTS + (size_t)place.part] = make_float2(sending, receiving);
    }
}

#endif
