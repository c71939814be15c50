// SPDX-License-Identifier: MIT
// orb_products.cu: the first and second layers of an MLP, and plain layers of nodes, by the tiles of gpu/nn.
#include "gpu/nn/dense.cuh"
#include "orb_launch.cuh"

template <int NUMBERS, int WIDE>
static __global__ void __launch_bounds__(tile_of<NUMBERS, WIDE>::THREADS, tile_of<NUMBERS, WIDE>::RESIDENT)
    orb_edge_dense_kernel(const __grid_constant__ gpu_dense call, int unused)
{
    DYNAMIC_SHARED(shared);
    run_dense<NUMBERS, WIDE>(call, shared);
}

template <int NUMBERS, int WIDE>
static __global__ void __launch_bounds__(tile_of<NUMBERS, WIDE>::THREADS, tile_of<NUMBERS, WIDE>::RESIDENT)
    orb_node_dense_kernel(const __grid_constant__ gpu_dense call, int unused)
{
    DYNAMIC_SHARED(shared);
    run_dense<NUMBERS, WIDE>(call, shared);
}

// Projections of an edge's atoms, of a thread's two rows.
struct gathered_rows {
    const float *sender[2], *receiver[2];
};

// First layer of an edge: f(W_e e + (W_s n + b)_sender + (W_r n)_receiver).
template <int NUMBERS, int WIDE>
static __global__ void __launch_bounds__(tile_of<NUMBERS, WIDE>::THREADS, tile_of<NUMBERS, WIDE>::RESIDENT)
    orb_gather_kernel(const __grid_constant__ orb_gpu_gather call, int unused)
{
    DYNAMIC_SHARED(shared);
    constexpr int COLUMNS = tile_of<NUMBERS, WIDE>::COLUMNS;
    const gpu_linear &layer = call.product.layer;
    const auto prepare = [&](const tile_place &place) {
        gathered_rows rows; // of an atom that exists, also where the row does not
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int r = place.row + 8 * h;
            const bool exists = r < place.n_rows;
            rows.sender[h] = call.projection + (size_t)(exists ? call.sender[r] : 0) * (2 * layer.outputs);
            rows.receiver[h] = call.projection + (size_t)(exists ? call.receiver[r] : 0) * (2 * layer.outputs) + layer.outputs;
        }
        return rows;
    };
    // Projections are loaded ahead of the stores, of which the compiler cannot know that they are elsewhere.
    const auto finish = [&](float(&sum)[COLUMNS / 2], const tile_place &place, const gathered_rows &rows) {
        constexpr int COUNT = COLUMNS / 16, AHEAD = COUNT < 2 ? COUNT : 2;
        eight sender[AHEAD], receiver[AHEAD];
        const auto load = [&](int i) {
            const int c = min(place.column + 32 * (i / 2), layer.outputs - 8);
            sender[i % AHEAD] = load_floats(rows.sender[i % 2] + c);
            receiver[i % AHEAD] = load_floats(rows.receiver[i % 2] + c);
        };
#pragma unroll
        for (int i = 0; i < AHEAD; i++) load(i);
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            const int r = place.row + 8 * (i % 2), c = place.column + 32 * (i / 2);
            const bool exists = r < place.n_rows && c < layer.outputs;
            eight x = sums_of(sum, i / 2, i % 2, layer.unit);
#pragma unroll
            for (int k = 0; k < 8; k++) x.v[k] += sender[i % AHEAD].v[k] + receiver[i % AHEAD].v[k];
            if (i + AHEAD < COUNT) load(i + AHEAD);
            if (call.keep.high) store_operand_if<NUMBERS>(exists, call.keep, operand_index(call.keep, r, c), x);
            activate<NUMBERS>(call.activation, x);
            store_operand_if<NUMBERS>(exists, call.out, operand_index(call.out, r, c), x);
        }
    };
    run_tiles<NUMBERS, WIDE, false>(call.product, shared, {}, prepare, finish);
}

// ---- launches -------------------------------------------------------------------------------------------------------

LAUNCH_PRODUCT(edge_dense, orb_edge_dense_kernel, gpu_dense)
LAUNCH_PRODUCT(node_dense, orb_node_dense_kernel, gpu_dense)
LAUNCH_PRODUCT(gather, orb_gather_kernel, orb_gpu_gather)

template <int NUMBERS, int WIDE> static int prepare_one(int unused)
{
    int error = prepare_kernel<NUMBERS, WIDE>(orb_edge_dense_kernel<NUMBERS, WIDE>);
    if (error == 0) error = prepare_kernel<NUMBERS, WIDE>(orb_node_dense_kernel<NUMBERS, WIDE>);
    if (error == 0) error = prepare_kernel<NUMBERS, WIDE>(orb_gather_kernel<NUMBERS, WIDE>);
    return error;
}

int orb_gpu_prepare_products(int hopper)
{
    return for_all_plans(hopper, [](const gpu_linear_plan *plan) { return FOR_PLAN(plan, prepare_one, 0); });
}
