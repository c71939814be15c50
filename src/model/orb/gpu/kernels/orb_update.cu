// SPDX-License-Identifier: MIT
// orb_update.cu: the third layer of an MLP: its rows are normalized and added to the latent features of edges or nodes. For few rows the
// blocks of a cluster share a row and exchange mean and sum of squares. The reverse pass of the norm: gpu/nn/norm.h.
#include "gpu/nn/linear_tile.cuh"
#include "orb_update.cuh"

// Moments of the whole rows, from those of all blocks of the cluster.
template <class tile> static __device__ __forceinline__ void exchange_moments(const tile_place &place, moments (&of)[2])
{
    const int rank = cluster_rank<tile::CLUSTER>(), row = place.row % tile::ROWS;
    for (int rank_of_peer = place.lane % 4; rank_of_peer < tile::CLUSTER; rank_of_peer += 4) {
        const cluster_base peer = cluster_map(place.shared, rank_of_peer);
#pragma unroll
        for (int h = 0; h < 2; h++)
            store_async(peer, place.exchange + (uint32_t)(rank * tile::ROWS + row + 8 * h) * 8, place.arrived,
                        make_uint2(__float_as_uint(of[h].mean), __float_as_uint(of[h].squares)));
    }
    mbarrier_wait_bytes((uint64_t *)((char *)place.shared + place.arrived));
    combine_moments<tile::CLUSTER>((const float2 *)((const char *)place.shared + place.exchange) + row, tile::ROWS, of);
}

template <class tile> struct old_rows {
    static constexpr int COUNT = tile::CLUSTER > 1 ? tile::COLUMNS / 16 : 1;
    eight x[COUNT];
};

template <int NUMBERS, int WIDE, bool edges>
static __device__ __forceinline__ void run_update(const orb_gpu_update &call, uint4 *shared)
{
    typedef tile_of<NUMBERS, WIDE> tile;
    constexpr int COLUMNS = tile::COLUMNS;
    constexpr bool shared_rows = tile::CLUSTER > 1;
    const tile_constants constants = {{call.product.layer.bias, call.scale, call.shift, edges ? call.gate : NULL,
                                       edges && call.gate ? call.gate + ORB_GPU_LATENT : NULL}}; // as enum update_constant
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
        const update_place at = {place.row, place.column, place.n_rows, place.lane, cluster_rank<tile::CLUSTER>()};
        constexpr int COUNT = COLUMNS / 16, AHEAD = 2; // of many columns the old features are loaded ahead
        packed_eight<number_format<NUMBERS>::bfloat, 2> ahead[AHEAD] = {};
        const auto load = [&](int i) { // a row that does not exist reads another one
            const int r = min(place.row + 8 * (i % 2), max(place.n_rows - 1, 0));
            ahead[i % AHEAD].load(call.latent, operand_index(call.latent, r, place.column + 32 * (i / 2)));
        };
#pragma unroll
        for (int i = 0; i < (shared_rows ? 0 : AHEAD); i++)
            if (!call.replaces) load(i);
        eight x[COLUMNS / 32][2];
#pragma unroll
        for (int k = 0; k < COUNT; k++) x[k / 2][k % 2] = sums_of(sum, k / 2, k % 2, 1.0f);
        finish_update<NUMBERS, tile::CLUSTER, edges, 1>(
            call, x, at, [&](int k, int c) { return constants_at<tile>(constants, k, place, c); },
            [&](int q, int h, int, int) {
                const int i = 2 * q + h;
                if (shared_rows) return loaded.x[i % loaded.COUNT];
                const eight old = ahead[i % AHEAD].unpack();
                if (i + AHEAD < COUNT) load(i + AHEAD);
                return old;
            },
            [&](moments(&of)[2]) {
                if constexpr (shared_rows) exchange_moments<tile>(place, of);
            },
            [](int, int, const eight &) {});
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
