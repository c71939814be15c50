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

// Moments of a thread's rows over the columns of this part of them. Here and below: Q blocks of eight columns, 32 columns from each other, of H rows, 8 rows
// from each other, in each thread; four lanes that are APART from each other have the same rows.
template <int APART, int Q, int H> static __device__ __forceinline__ void moments_of(const eight (&x)[Q][H], moments (&of)[H])
{
    constexpr int COLUMNS = 32 * Q;
#pragma unroll
    for (int h = 0; h < H; h++) {
        float sum = 0, squares = 0;
#pragma unroll
        for (int k = 0; k < 4 * Q; k++) sum += x[k / 4][h].v[k % 4 * 2] + x[k / 4][h].v[k % 4 * 2 + 1];
        of[h].mean = sum_quad<APART>(sum) * (1.0f / COLUMNS);
#pragma unroll
        for (int k = 0; k < 4 * Q; k++) {
            const float a = x[k / 4][h].v[k % 4 * 2] - of[h].mean, b = x[k / 4][h].v[k % 4 * 2 + 1] - of[h].mean;
            squares += a * a + b * b;
        }
        of[h].squares = sum_quad<APART>(squares);
    }
}

// Of the whole rows, from those of all parts, `stride` numbers from each other; `all`: of a thread's first row.
template <int PARTS, int H>
static __device__ __forceinline__ void combine_moments(const float2 *all, int stride, moments (&of)[H])
{
#pragma unroll
    for (int h = 0; h < H; h++) {
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

/* Where the sums of a thread belong; row: the first, the others are 8 further each; column: the first of a block of eight, the others are 32 further each;
 * `part` of PARTS of a row. */
struct update_place {
    int row, column, n_rows, lane, part;
};
enum update_constant { UPDATE_BIAS, UPDATE_SCALE, UPDATE_SHIFT, UPDATE_SENDING, UPDATE_RECEIVING };

/* `sum`: of products. `constant(k, c)`: eight of an update_constant from column c on; `old(q, h, r, c)`: old features, of rows that do not exist anything;
 * `exchange(of)`: moments of whole rows from those of this part; `put(q, h, x)`: gets the results. */
template <int NUMBERS, int PARTS, bool edges, int APART, int Q, int H, class Constant, class Old, class Exchange, class Put>
static __device__ __forceinline__ void finish_update(const orb_gpu_update &call, eight (&sum)[Q][H], const update_place &place,
                                                     const Constant &constant, const Old &old_features, const Exchange &exchange,
                                                     const Put &put)
{
    const float unit = call.product.layer.unit;
    moments of[H];
    float scale[H], shift[H], gate[H][2];
    size_t first[H];
#pragma unroll
    for (int h = 0; h < H; h++) {
        gate[h][0] = gate[h][1] = 0;
        first[h] = operand_index(call.latent, place.row + 8 * h, place.column);
    }
#pragma unroll
    for (int q = 0; q < Q; q++) {
        const eight bias = constant(UPDATE_BIAS, place.column + 32 * q);
#pragma unroll
        for (int k = 0; k < 8 * H; k++) sum[q][k / 8].v[k % 8] = fmaf(sum[q][k / 8].v[k % 8], unit, bias.v[k % 8]);
    }
    moments_of<APART>(sum, of);
    exchange(of);
#pragma unroll
    for (int h = 0; h < H; h++) {
        const float n = (float)ORB_GPU_LATENT, mean = call.shift ? of[h].mean : 0.0f,
                    squares = call.shift ? of[h].squares : fmaf(n * of[h].mean, of[h].mean, of[h].squares);
        const float variance = squares * (1.0f / ORB_GPU_LATENT) + call.epsilon;
        scale[h] = number_format<NUMBERS>::split ? 1.0f / sqrtf(variance) : fast_rsqrt(variance);
        shift[h] = -mean * scale[h];
    }
#pragma unroll
    for (int q = 0; q < Q; q++) {
        const int c = place.column + 32 * q;
        const eight gamma = constant(UPDATE_SCALE, c);
        eight beta = {};
        if (call.shift) beta = constant(UPDATE_SHIFT, c);
#pragma unroll
        for (int h = 0; h < H; h++) {
            const int r = place.row + 8 * h;
            const bool exists = r < place.n_rows;
            eight x = sum[q][h];
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
    for (int h = 0; h < H; h++) {
        const int r = place.row + 8 * h;
        const bool leads = place.lane / APART % 4 == 0 && r < place.n_rows;
        if (call.inverse && leads && place.part == 0) call.inverse[r] = scale[h];
        if (!edges || call.replaces) continue;
        const float sending = sum_quad<APART>(gate[h][0]), receiving = sum_quad<APART>(gate[h][1]);
        if (leads) ((float2 *)call.gates)[(size_t)r * PARTS + (size_t)place.part] = make_float2(sending, receiving);
    }
}

#endif
