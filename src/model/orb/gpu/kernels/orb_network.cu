// SPDX-License-Identifier: MIT
// orb_network.cu: a network of three layers of edges or nodes in one kernel, for direct forces on Hopper: nothing is kept for a reverse pass.
#include "gpu/nn/tile_network.cuh"
#include "orb_update.cuh"

template <int NUMBERS, int BLOCKS> using edge_tile = network_tile<NUMBERS, BLOCKS, false>;
template <int NUMBERS, int BLOCKS> using node_tile = network_tile<NUMBERS, BLOCKS, true>;

// The atoms of a thread's two edges; 0 where there is no edge.
struct network_atoms {
    int sender[2], receiver[2];
};

// Eight projections as they are stored: floats, or 16 bits in the fast modes.
template <bool split> struct stored_eight {
    uint4 bits[split ? 2 : 1];
};

// What a kernel computes: the encoder, whose result is the latent feature itself; a layer's edges, to whose first layer their atoms' projections are added;
// a layer's nodes.
enum network_kind { NETWORK_ENCODER, NETWORK_EDGES, NETWORK_NODES };

// What is known of Orb-v2 is said to the
// compiler: code without branches, in which it computes many rows and columns at once. Loads are written before the stores that they would otherwise wait
// behind: the compiler cannot know that they read other places.
template <class tile_, int KIND> struct network_epilogues {
    typedef tile_ tile;
    typedef typename tile::format format;
    static constexpr int NUMBERS = tile::NUMBERS;
    static constexpr bool encodes = KIND == NETWORK_ENCODER, of_edges = KIND == NETWORK_EDGES;
    typedef stored_eight<format::split> stored;
    static constexpr int BLOCKS = tile::MINE / 32, LAST_BLOCKS = tile::MINE_LAST / 32,
                         AHEAD = BLOCKS < 2 ? BLOCKS : 2; // blocks of 32 columns
    struct old_features {
        uint4 high[LAST_BLOCKS][2], low[LAST_BLOCKS][2];
    };
    const orb_gpu_network &call;

    __device__ __forceinline__ tile_constants constants() const
    {
        const orb_gpu_update &update = call.update; // as enum update_constant
        return {
            {call.net.layer[2].bias, update.scale, update.shift, update.gate, update.gate ? update.gate + ORB_GPU_LATENT : NULL}};
    }
    __device__ __forceinline__ network_atoms gather(int row, int n_rows) const
    {
        network_atoms atoms;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const bool exists = of_edges && row + 8 * h < n_rows;
            atoms.sender[h] = exists ? call.sender[row + 8 * h] : 0;
            atoms.receiver[h] = exists ? call.receiver[row + 8 * h] : 0;
        }
        return atoms;
    }
    // Where the projections of a thread's two rows are, and those of the next blocks of 32 columns: [row][of the sender, of the receiver].
    struct projections {
        const uint4 *from[2][2];
        stored of[AHEAD][2][2];
    };
    __device__ __forceinline__ projections added(const network_atoms &atoms, const network_place &place) const
    {
        projections x;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            x.from[h][0] = projections_at(atoms.sender[h], place.column);
            x.from[h][1] = projections_at(atoms.receiver[h], place.column + GPU_NETWORK_HIDDEN);
        }
        return x;
    }
    __device__ __forceinline__ const uint4 *projections_at(int atom, int c) const
    {
        const size_t at = (size_t)atom * (2 * GPU_NETWORK_HIDDEN) + (size_t)c;
        return format::split ? (const uint4 *)(call.projection + at) : (const uint4 *)((const uint16_t *)call.projection + at);
    }
    __device__ __forceinline__ void request(projections &x) const
    {
#pragma unroll
        for (int q = 0; q < (of_edges ? AHEAD : 0); q++) load_block(x, q);
    }
    static __device__ __forceinline__ void load_block(projections &x, int q)
    {
        constexpr int PIECES = format::split ? 2 : 1;
#pragma unroll
        for (int k = 0; k < 4 * PIECES; k++) {
            const int h = k / PIECES / 2, other = k / PIECES % 2;
            x.of[q % AHEAD][h][other].bits[k % PIECES] = x.from[h][other][q * 4 * PIECES + k % PIECES];
        }
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
    template <int l, class Put>
    __device__ __forceinline__ void hide(float (&sum)[tile::MINE / 2], const network_place &place, projections &added,
                                         const float *bias_of, const Put &put) const
    {
        constexpr bool adds = l == 0 && of_edges;
        const float unit = call.net.layer[l].unit;
#pragma unroll
        for (int q = 0; q < BLOCKS; q++) {
            eight bias = {}, x[2];
            if (!adds) bias = load_floats(bias_of + place.constant + 32 * q);
#pragma unroll
            for (int h = 0; h < 2; h++) {
#pragma unroll
                for (int k = 0; k < 8; k++) x[h].v[k] = fmaf(sum[16 * q + 4 * (k / 2) + 2 * h + k % 2], unit, bias.v[k]);
                if constexpr (adds) add_stored(added.of[q % AHEAD][h][0], x[h]), add_stored(added.of[q % AHEAD][h][1], x[h]);
            }
            if (adds && q + AHEAD < BLOCKS) load_block(added, q + AHEAD);
#pragma unroll
            for (int h = 0; h < 2; h++) {
                soften<NUMBERS>(x[h]);
                put(q, h, x[h]);
            }
        }
    }
    __device__ __forceinline__ old_features prepare(const network_place &place) const
    {
        old_features old = {};
#pragma unroll
        for (int h = 0; h < (encodes ? 0 : 2); h++) {
            const size_t at = operand_index(call.update.latent, min(place.row + 8 * h, max(place.n_rows - 1, 0)), place.column);
#pragma unroll
            for (int q = 0; q < LAST_BLOCKS; q++) {
                old.high[q][h] = ((const uint4 *)call.update.latent.high)[at + 4 * GPU_SLAB * q];
                old.low[q][h] = ((const uint4 *)call.update.latent.low)[at + 4 * GPU_SLAB * q];
            }
        }
        return old;
    }
    template <class Put>
    __device__ __forceinline__ void finish(float (&sum)[tile::MINE_LAST / 2], const network_place &place,
                                           const old_features &loaded, const float *constants,
                                           const network_exchange<tile> &exchange, const Put &put) const
    {
        const update_place at = {place.row, place.column, place.n_rows, place.lane, place.part};
        orb_gpu_update update = call.update; // what is fixed in this kernel, so that the compiler removes the branches
        update.replaces = encodes;
        update.halves = !format::split;
        update.inverse = NULL;
        update.added = NULL;
        if (!of_edges) update.z = NULL, update.keeps = 0;
        if (!update.shift || !update.latent.low || (of_edges && !update.z)) __builtin_unreachable();
        finish_update<NUMBERS, tile::PARTS, KIND != NETWORK_NODES>(
            update, sum, at,
            [&](int k, int c) { return load_floats(constants + k * tile::LAST + place.constant + (c - place.column)); },
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
            },
            put);
    }
    // The projections of the next layer's edges.
    template <int SUMS>
    __device__ __forceinline__ void project(const float (&sum)[SUMS], const network_place &place, const float *bias_of) const
    {
        const float unit = call.net.project.unit;
#pragma unroll
        for (int q = 0; q < SUMS / 16; q++) {
            const eight bias = load_floats(bias_of + place.constant + 32 * q);
#pragma unroll
            for (int h = 0; h < 2; h++) {
                eight x;
#pragma unroll
                for (int k = 0; k < 8; k++) x.v[k] = fmaf(sum[16 * q + 4 * (k / 2) + 2 * h + k % 2], unit, bias.v[k]);
                store_numbers_if<format::bfloat>(place.row + 8 * h < place.n_rows, call.projects,
                                                 (size_t)(place.row + 8 * h) * (2 * GPU_NETWORK_HIDDEN) + place.column + 32 * q,
                                                 x, !format::split);
            }
        }
    }
};

template <class tile, int KIND> static __device__ __forceinline__ void run_kind(const orb_gpu_network &call, uint4 *shared)
{
    run_network<tile>(call.net, shared, network_epilogues<tile, KIND>{call});
}

template <int NUMBERS, int BLOCKS, bool encodes>
static __global__ void __launch_bounds__(edge_tile<NUMBERS, BLOCKS>::THREADS, 1)
    orb_network_kernel(const __grid_constant__ orb_gpu_network call, int unused)
{
    DYNAMIC_SHARED(shared);
    run_kind<edge_tile<NUMBERS, BLOCKS>, encodes ? NETWORK_ENCODER : NETWORK_EDGES>(call, shared);
}

template <int NUMBERS, int BLOCKS>
static __global__ void __launch_bounds__(node_tile<NUMBERS, BLOCKS>::THREADS, 1)
    orb_node_network_kernel(const __grid_constant__ orb_gpu_network call, int unused)
{
    DYNAMIC_SHARED(shared);
    run_kind<node_tile<NUMBERS, BLOCKS>, NETWORK_NODES>(call, shared);
}

// ---- launches -------------------------------------------------------------------------------------------------------

template <class tile, class Kernel>
static int launch_tiles(Kernel *kernel, const orb_gpu_network *call, const gpu_linear_plan *plan, void *stream)
{
    const int slabs = (call->net.rows + GPU_SLAB - 1) / GPU_SLAB, clusters = min(slabs, (int)plan->blocks / tile::BLOCKS);
    return launch(kernel, clusters * tile::BLOCKS, tile::THREADS, tile::SHARED_BYTES, tile::BLOCKS, plan->overlap, stream, *call,
                  0);
}

template <int NUMBERS, int BLOCKS> static int launch_edges(const orb_gpu_network *call, const gpu_linear_plan *plan, void *stream)
{
    return launch_tiles<edge_tile<NUMBERS, BLOCKS>>(call->projection ? orb_network_kernel<NUMBERS, BLOCKS, false>
                                                                     : orb_network_kernel<NUMBERS, BLOCKS, true>,
                                                    call, plan, stream);
}

template <int NUMBERS> static int launch_one(const orb_gpu_network *call, const gpu_linear_plan *plan, void *stream)
{
    return call->net.blocks == 4 ? launch_edges<NUMBERS, 4>(call, plan, stream) : launch_edges<NUMBERS, 2>(call, plan, stream);
}

int orb_gpu_launch_network(const orb_gpu_network *call, const gpu_linear_plan *plan, void *stream)
{
    return FOR_NUMBERS(plan->numbers, launch_one, call, plan, stream);
}

template <int NUMBERS> static int launch_nodes(const orb_gpu_network *call, const gpu_linear_plan *plan, void *stream)
{
    return call->net.blocks == 8 ? launch_tiles<node_tile<NUMBERS, 8>>(orb_node_network_kernel<NUMBERS, 8>, call, plan, stream)
                                 : launch_tiles<node_tile<NUMBERS, 4>>(orb_node_network_kernel<NUMBERS, 4>, call, plan, stream);
}

int orb_gpu_launch_node_network(const orb_gpu_network *call, const gpu_linear_plan *plan, void *stream)
{
    return plan->numbers == GPU_NUMBER_TF32 ? launch_nodes<GPU_NUMBER_TF32>(call, plan, stream)
                                            : launch_nodes<GPU_NUMBER_BF16>(call, plan, stream);
}

template <class tile, class Kernel> static int prepare_kernel(Kernel *kernel)
{
    return (int)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, tile::SHARED_BYTES);
}
template <int NUMBERS, int BLOCKS> static int prepare_edges(void)
{
    typedef edge_tile<NUMBERS, BLOCKS> tile;
    const int error = prepare_kernel<tile>(orb_network_kernel<NUMBERS, BLOCKS, true>);
    return error ? error : prepare_kernel<tile>(orb_network_kernel<NUMBERS, BLOCKS, false>);
}
template <int NUMBERS> static int prepare_one(int unused)
{
    const int error = prepare_edges<NUMBERS, 2>();
    return error ? error : prepare_edges<NUMBERS, 4>();
}
template <int NUMBERS> static int prepare_nodes(void)
{
    const int error = prepare_kernel<node_tile<NUMBERS, 4>>(orb_node_network_kernel<NUMBERS, 4>);
    return error ? error : prepare_kernel<node_tile<NUMBERS, 8>>(orb_node_network_kernel<NUMBERS, 8>);
}

int orb_gpu_prepare_networks(void)
{
    int error = 0;
    FOR_EACH_NUMBERS(error, prepare_one, 0);
    if (!error) error = prepare_nodes<GPU_NUMBER_TF32>();
    return error ? error : prepare_nodes<GPU_NUMBER_BF16>();
}
