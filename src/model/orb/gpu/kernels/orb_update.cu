// SPDX-License-Identifier: MIT
// orb_update.cu: the third layer of an MLP: its rows are normalized and added to the latent features of edges or nodes. For few rows the
// blocks of a cluster share a row and exchange mean and sum of squares. The reverse pass of the norm: gpu/nn/norm.h.
#include "gpu/nn/linear_tile.cuh"
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

// Of the whole rows, from those of all blocks of the cluster.
template <class tile> static __device__ __forceinline__ void exchange_moments(const tile_place &place, moments (&of)[2])
{
    constexpr int BLOCKS = tile::CLUSTER;
    const int rank = cluster_rank<BLOCKS>(), row = place.row % tile::ROWS;
    const float2 *all = (const float2 *)((const char *)place.shared + place.exchange);
    for (int rank_of_peer = place.lane % 4; rank_of_peer < BLOCKS; rank_of_peer += 4) {
        const cluster_base peer = cluster_map(place.shared, rank_of_peer);
#pragma unroll
        for (int h = 0; h < 2; h++)
            store_async(peer, place.exchange + (uint32_t)(rank * tile::ROWS + row + 8 * h) * 8, place.arrived,
                        make_uint2(__float_as_uint(of[h].mean), __float_as_uint(of[h].squares)));
    }
    mbarrier_wait_bytes((uint64_t *)((char *)place.shared + place.arrived));
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float mean = 0, squares = 0;
        for (int k = 0; k < BLOCKS; k++) mean += (1.0f / BLOCKS) * all[k * tile::ROWS + row + 8 * h].x;
        for (int k = 0; k < BLOCKS; k++) {
            const float2 part = all[k * tile::ROWS + row + 8 * h];
            squares += part.y + (float)tile::COLUMNS * (part.x - mean) * (part.x - mean);
        }
        of[h].mean = mean;
        of[h].squares = squares;
    }
}

template <class tile> struct old_rows {
    static constexpr int COUNT = tile::CLUSTER > 1 ? tile::COLUMNS / 16 : 1;
    eight x[COUNT];
};

// Adds what charge and spin of the node's system give in the next layer.
static __device__ __forceinline__ void add_to_node(const orb_gpu_update &call, int r, int c, eight &x)
{
    const int system = call.system_of ? call.system_of[r] : 0;
    const eight added = load_floats(call.added + (size_t)system * call.stride + c);
#pragma unroll
    for (int k = 0; k < 8; k++) x.v[k] += added.v[k];
}

template <int NUMBERS, int WIDE, bool edges>
static __device__ __forceinline__ void run_update(const orb_gpu_update &call, uint4 *shared)
{
    typedef tile_of<NUMBERS, WIDE> tile;
    constexpr int COLUMNS = tile::COLUMNS;
    constexpr bool shared_rows = tile::CLUSTER > 1;
    enum { BIAS, SCALE, SHIFT, SENDING, RECEIVING };
    const gpu_linear &layer = call.product.layer;
    const tile_constants constants = {
        {layer.bias, call.scale, call.shift, edges ? call.gate : NULL, edges && call.gate ? call.gate + ORB_GPU_LATENT : NULL}};
    // Of few columns the old features are loaded early; they are older than the previous kernel.
    const auto prepare = [&](const tile_place &place) {
        old_rows<tile> old;
#pragma unroll
        for (int k = 0; k < (shared_rows ? old.COUNT : 0); k++) {
            const int r = place.row + 8 * (k % 2);
            old.x[k] = {};
            if (r < place.n_rows && !call.replaces) old.x[k] = load_operand<NUMBERS>(call.latent, r, place.column + 32 * (k / 2));
        }
        return old;
    };
    const auto finish = [&](float(&sum)[COLUMNS / 2], const tile_place &place, const old_rows<tile> &loaded) {
        moments of[2];
        float scale[2], shift[2], gate[2][2] = {{0, 0}, {0, 0}};
#pragma unroll
        for (int q = 0; q < COLUMNS / 32; q++) {
            const eight bias = constants_at<tile>(constants, BIAS, place, place.column + 32 * q);
#pragma unroll
            for (int k = 0; k < 16; k++) {
                const int j = k / 4, c = k % 2;
                sum[16 * q + k] = fmaf(sum[16 * q + k], layer.unit, bias.v[2 * j + c]);
            }
        }
        moments_of(sum, of);
        if constexpr (shared_rows) exchange_moments<tile>(place, of);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float n = (float)ORB_GPU_LATENT, mean = call.shift ? of[h].mean : 0.0f,
                        squares = call.shift ? of[h].squares : fmaf(n * of[h].mean, of[h].mean, of[h].squares);
            scale[h] = 1.0f / sqrtf(squares * (1.0f / ORB_GPU_LATENT) + call.epsilon);
            shift[h] = -mean * scale[h];
        }
#pragma unroll
        for (int q = 0; q < COLUMNS / 32; q++) {
            const int c = place.column + 32 * q;
            const eight gamma = constants_at<tile>(constants, SCALE, place, c);
            eight beta = {};
            if (call.shift) beta = constants_at<tile>(constants, SHIFT, place, c);
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int r = place.row + 8 * h;
                if (r >= place.n_rows) continue;
                eight x = sums_of(sum, q, h, 1.0f);
#pragma unroll
                for (int k = 0; k < 8; k++) x.v[k] = fmaf(x.v[k], scale[h], shift[h]);
                if (call.z) store_floats(call.z + (size_t)r * ORB_GPU_LATENT + c, x);
#pragma unroll
                for (int k = 0; k < 8; k++) x.v[k] = fmaf(x.v[k], gamma.v[k], beta.v[k]);
                if (!call.replaces) {
                    const eight old =
                        shared_rows ? loaded.x[(2 * q + h) % loaded.COUNT] : load_operand<NUMBERS>(call.latent, r, c);
                    if (edges) {
                        const eight sending = constants_at<tile>(constants, SENDING, place, c),
                                    receiving = constants_at<tile>(constants, RECEIVING, place, c);
#pragma unroll
                        for (int k = 0; k < 8; k++) {
                            gate[h][0] = fmaf(old.v[k], sending.v[k], gate[h][0]);
                            gate[h][1] = fmaf(old.v[k], receiving.v[k], gate[h][1]);
                        }
                    }
#pragma unroll
                    for (int k = 0; k < 8; k++) x.v[k] += old.v[k];
                    if (!edges && call.added) add_to_node(call, r, c, x);
                }
                if (!call.keeps) store_operand<NUMBERS>(call.latent, r, c, x);
            }
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int r = place.row + 8 * h;
            const bool first = place.lane % 4 == 0 && r < place.n_rows;
            if (call.inverse && first && cluster_rank<tile::CLUSTER>() == 0) call.inverse[r] = scale[h];
            if (!edges || call.replaces) continue;
            const float sending = sum_quad(gate[h][0]), receiving = sum_quad(gate[h][1]);
            if (first)
                ((float2 *)call.gates)[(size_t)r * tile::CLUSTER + (size_t)cluster_rank<tile::CLUSTER>()] =
                    make_float2(sending, receiving);
        }
    };
    run_tiles<NUMBERS, WIDE, shared_rows>(call.product, shared, constants, prepare, finish);
}

template <int NUMBERS, int WIDE>
static __global__ void __launch_bounds__(tile_of<NUMBERS, WIDE>::THREADS, tile_of<NUMBERS, WIDE>::RESIDENT)
    orb_edge_update_kernel(const __grid_constant__ orb_gpu_update call, int unused)
{
    DYNAMIC_SHARED(shared);
    run_update<NUMBERS, WIDE, true>(call, shared);
}

template <int NUMBERS, int WIDE>
static __global__ void __launch_bounds__(tile_of<NUMBERS, WIDE>::THREADS, tile_of<NUMBERS, WIDE>::RESIDENT)
    orb_node_update_kernel(const __grid_constant__ orb_gpu_update call, int unused)
{
    DYNAMIC_SHARED(shared);
    run_update<NUMBERS, WIDE, false>(call, shared);
}

// ---- launches -------------------------------------------------------------------------------------------------------

#define LAUNCH_UPDATE(name, kernel)                                                                                              \
    template <int NUMBERS, int WIDE>                                                                                             \
    static int launch_##name(const orb_gpu_update *call, const gpu_linear_plan *plan, void *stream)                              \
    {                                                                                                                            \
        typedef tile_of<NUMBERS, WIDE> tile;                                                                                     \
        return launch(kernel<NUMBERS, WIDE>, tile_blocks<NUMBERS, WIDE>(call->product, *plan), tile::THREADS,                    \
                      tile::SHARED_BYTES, tile::CLUSTER, plan->overlap, stream, *call, 0);                                       \
    }                                                                                                                            \
    int orb_gpu_launch_##name(const orb_gpu_update *call, const gpu_linear_plan *plan, void *stream)                             \
    {                                                                                                                            \
        return FOR_PLAN(plan, launch_##name, call, plan, stream);                                                                \
    }
LAUNCH_UPDATE(edge_update, orb_edge_update_kernel)
LAUNCH_UPDATE(node_update, orb_node_update_kernel)

template <int NUMBERS, int WIDE> static int prepare_one(int unused)
{
    const int error = prepare_kernel<NUMBERS, WIDE>(orb_edge_update_kernel<NUMBERS, WIDE>);
    return error ? error : prepare_kernel<NUMBERS, WIDE>(orb_node_update_kernel<NUMBERS, WIDE>);
}

int orb_gpu_prepare_updates(int hopper)
{
    return for_all_plans(hopper, [](const gpu_linear_plan *plan) { return FOR_PLAN(plan, prepare_one, 0); });
}
