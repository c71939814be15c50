// SPDX-License-Identifier: MIT
// orb_network.cu: an edge's network of three layers in one kernel, for direct forces on Hopper: nothing is kept for a reverse pass.
#include "gpu/nn/tile_network.cuh"
#include "orb_update.cuh"

// Where the projections of an edge's atoms are, of a thread's two rows.
struct network_rows {
    bool exists[2];
    size_t sender[2], receiver[2];
};

static __device__ __forceinline__ network_rows projections_of(const orb_gpu_network &call, const network_place &place)
{
    network_rows rows = {};
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int r = place.row + 8 * h;
        rows.exists[h] = r < place.n_rows && call.projection;
        if (!rows.exists[h]) continue;
        rows.sender[h] = (size_t)call.sender[r] * (2 * GPU_NETWORK_HIDDEN);
        rows.receiver[h] = (size_t)call.receiver[r] * (2 * GPU_NETWORK_HIDDEN) + GPU_NETWORK_HIDDEN;
    }
    return rows;
}

// Eight projections as they are stored: floats, or 16 bits in the fast modes.
template <bool split> struct stored_eight {
    uint4 bits[split ? 2 : 1];
};

// Loads are written before the stores that they would otherwise wait behind: the compiler cannot know that they read other places.
template <int NUMBERS> struct network_epilogues {
    typedef network_tile<NUMBERS> tile;
    typedef number_format<NUMBERS> format;
    typedef stored_eight<format::split> stored;
    static constexpr int BLOCKS = tile::MINE / 32, LAST_BLOCKS = tile::MINE_LAST / 32, AHEAD = 2; // blocks of 32 columns
    // Projections of one block: [row][of the sender, of the receiver].
    struct projections {
        stored of[2][2];
    };
    struct old_features {
        uint4 high[LAST_BLOCKS][2], low[LAST_BLOCKS][2];
    };
    const orb_gpu_network &call;

    __device__ __forceinline__ network_rows gather(const network_place &place) const
    {
        return projections_of(call, place);
    }
    __device__ __forceinline__ stored load_stored(size_t at) const
    {
        stored x;
        const uint4 *const from =
            format::split ? (const uint4 *)(call.projection + at) : (const uint4 *)((const uint16_t *)call.projection + at);
#pragma unroll
        for (int k = 0; k < (format::split ? 2 : 1); k++) x.bits[k] = from[k];
        return x;
    }
    static __device__ __forceinline__ void add_stored(const stored &from, eight &x)
    {
        eight y;
        if constexpr (format::split) {
            y = {{__uint_as_float(from.bits[0].x), __uint_as_float(from.bits[0].y), __uint_as_float(from.bits[0].z),
                  __uint_as_float(from.bits[0].w), __uint_as_float(from.bits[1].x), __uint_as_float(from.bits[1].y),
                  __uint_as_float(from.bits[1].z), __uint_as_float(from.bits[1].w)}};
        } else {
            unpack_eight<format::bfloat>(from.bits[0], y);
        }
#pragma unroll
        for (int k = 0; k < 8; k++) x.v[k] += y.v[k];
    }
    __device__ __forceinline__ void load_projections(projections &of, const network_rows &rows, int c) const
    {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            of.of[h][0] = of.of[h][1] = {};
            if (!rows.exists[h]) continue;
            of.of[h][0] = load_stored(rows.sender[h] + c);
            of.of[h][1] = load_stored(rows.receiver[h] + c);
        }
    }
    template <class Put>
    __device__ __forceinline__ void hide(int l, float (&sum)[tile::MINE / 2], const network_place &place,
                                         const network_rows &rows, const Put &put) const
    {
        const gpu_linear &layer = call.net.layer[l];
        projections of[AHEAD];
#pragma unroll
        for (int q = 0; q < (l == 0 ? AHEAD : 0); q++) load_projections(of[q], rows, place.column + 32 * q);
#pragma unroll
        for (int q = 0; q < BLOCKS; q++) {
            const int c = place.column + 32 * q;
            eight bias = {};
            if (layer.bias) bias = load_constants(layer.bias + c);
            eight x[2];
#pragma unroll
            for (int h = 0; h < 2; h++) {
                x[h] = sums_of(sum, q, h, layer.unit);
#pragma unroll
                for (int k = 0; k < 8; k++) x[h].v[k] += bias.v[k];
                if (l == 0) add_stored(of[q % AHEAD].of[h][0], x[h]), add_stored(of[q % AHEAD].of[h][1], x[h]);
            }
            if (l == 0 && q + AHEAD < BLOCKS) load_projections(of[q % AHEAD], rows, c + 32 * AHEAD);
#pragma unroll
            for (int h = 0; h < 2; h++) {
                activate(call.activation, x[h]);
                put(place.row + 8 * h, c, x[h]);
            }
        }
    }
    __device__ __forceinline__ old_features prepare(const network_place &place) const
    {
        old_features old;
#pragma unroll
        for (int k = 0; k < 2 * LAST_BLOCKS; k++) {
            const int q = k / 2, h = k % 2, r = place.row + 8 * h;
            old.high[q][h] = old.low[q][h] = make_uint4(0, 0, 0, 0);
            if (r >= place.n_rows || call.update.replaces) continue;
            const size_t at = operand_index(call.update.latent, r, place.column + 32 * q);
            old.high[q][h] = ((const uint4 *)call.update.latent.high)[at];
            old.low[q][h] = ((const uint4 *)call.update.latent.low)[at];
        }
        return old;
    }
    __device__ __forceinline__ void finish(float (&sum)[tile::MINE_LAST / 2], const network_place &place,
                                           const old_features &loaded, const network_exchange<tile> &exchange) const
    {
        const orb_gpu_update &update = call.update;
        const float *const constants[] = {call.net.layer[2].bias, update.scale, update.shift, update.gate,
                                          update.gate ? update.gate + ORB_GPU_LATENT : NULL}; // as enum update_constant
        const update_place at = {place.row, place.column, place.n_rows, place.lane, place.part};
        finish_update<NUMBERS, tile::PARTS, true>(
            update, sum, at, [&](int k, int c) { return load_constants(constants[k] + c); },
            [&](int q, int h, int, int) {
                eight x, rest;
                unpack_eight<format::bfloat>(loaded.high[q][h], x);
                unpack_eight<format::bfloat>(loaded.low[q][h], rest);
#pragma unroll
                for (int k = 0; k < 8; k++) x.v[k] += rest.v[k];
                return x;
            },
            [&](moments(&of)[2]) {
                const float2 mine[2] = {make_float2(of[0].mean, of[0].squares), make_float2(of[1].mean, of[1].squares)};
                combine_moments<tile::PARTS>(exchange(place, mine), tile::ROWS, of);
            });
    }
};

template <int NUMBERS>
static __global__ void __launch_bounds__(network_tile<NUMBERS>::THREADS, 1)
    orb_network_kernel(const __grid_constant__ orb_gpu_network call, int unused)
{
    DYNAMIC_SHARED(shared);
    run_network<network_tile<NUMBERS>>(call.net, shared, network_epilogues<NUMBERS>{call});
}

// ---- launches -------------------------------------------------------------------------------------------------------

template <int NUMBERS> static int launch_one(const orb_gpu_network *call, const gpu_linear_plan *plan, void *stream)
{
    typedef network_tile<NUMBERS> tile;
    const int tiles = (call->net.rows + tile::ROWS - 1) / tile::ROWS, clusters = min(tiles, (int)plan->blocks / tile::BLOCKS);
    return launch(orb_network_kernel<NUMBERS>, clusters * tile::BLOCKS, tile::THREADS, tile::SHARED_BYTES, tile::BLOCKS,
                  plan->overlap, stream, *call, 0);
}

int orb_gpu_launch_network(const orb_gpu_network *call, const gpu_linear_plan *plan, void *stream)
{
    return FOR_NUMBERS(plan->numbers, launch_one, call, plan, stream);
}

template <int NUMBERS> static int prepare_one(int unused)
{
    return (int)cudaFuncSetAttribute(orb_network_kernel<NUMBERS>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     network_tile<NUMBERS>::SHARED_BYTES);
}

int orb_gpu_prepare_networks(void)
{
    int error = 0;
    for (int numbers = 0; numbers < 3 && error == 0; numbers++) error = FOR_NUMBERS((gpu_number)numbers, prepare_one, 0);
    return error;
}
