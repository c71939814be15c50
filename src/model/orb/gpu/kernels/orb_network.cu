// SPDX-License-Identifier: MIT
// orb_network.cu: a network of three layers of edges or nodes in one kernel, for direct forces on Hopper: nothing is kept for a reverse pass.
#include "gpu/nn/tile_network.cuh"
#include "orb_update.cuh"

// ROWS: as gpu_network.tile_rows.
template <int NUMBERS, int BLOCKS, int ROWS> using edge_tile = network_tile<NUMBERS, BLOCKS, false, ROWS>;
template <int NUMBERS, int BLOCKS> using node_tile = network_tile<NUMBERS, BLOCKS, true, 0>;

// The atoms of a thread's edges; 0 where there is no edge.
template <int H> struct network_atoms {
    int sender[H], receiver[H];
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
    static constexpr int Q = tile::Q, H = tile::H, Q_LAST = tile::Q_LAST, H_LAST = tile::H_LAST;
    static constexpr int AHEAD = least(Q * H, tile::TRANSPOSED &&format::split ? 2 : 4); // blocks of eight columns of a row
    struct old_rows {
        packed_eight<format::bfloat, 2> of[Q_LAST][H_LAST];
    };
    const orb_gpu_network &call;

    __device__ __forceinline__ tile_constants constants() const
    {
        const orb_gpu_update &update = call.update; // as enum update_constant
        return {
            {call.net.layer[2].bias, update.scale, update.shift, update.gate, update.gate ? update.gate + ORB_GPU_LATENT : NULL}};
    }
    __device__ __forceinline__ network_atoms<H> gather(int row, int n_rows) const
    {
        network_atoms<H> atoms;
#pragma unroll
        for (int h = 0; h < H; h++) {
            const bool exists = of_edges && row + 8 * h < n_rows;
            atoms.sender[h] = exists ? call.sender[row + 8 * h] : 0;
            atoms.receiver[h] = exists ? call.receiver[row + 8 * h] : 0;
        }
        return atoms;
    }
    // Where the projections of a thread's rows are, and those of the next blocks: [of the sender, of the receiver].
    struct projections {
        const uint4 *from[H][2];
        stored of[AHEAD][2];
    };
    __device__ __forceinline__ projections added(const network_atoms<H> &atoms, const network_place &place) const
    {
        projections x;
#pragma unroll
        for (int h = 0; h < H; h++) {
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
        for (int i = 0; i < (of_edges ? AHEAD : 0); i++) load_block(x, i);
    }
    // Block i: blocks of columns, of the rows of each.
    static __device__ __forceinline__ void load_block(projections &x, int i)
    {
        constexpr int PIECES = format::split ? 2 : 1;
#pragma unroll
        for (int k = 0; k < 2 * PIECES; k++)
            x.of[i % AHEAD][k / PIECES].bits[k % PIECES] = x.from[i % H][k / PIECES][i / H * 4 * PIECES + k % PIECES];
    }
    static __device__ __forceinline__ void add_stored(const stored &from, eight &x)
    {
        eight y;
        if constexpr (format::split) {
            y = floats_of(from.bits[0], from.bits[1]);
        } else {
            unpack_eight<format::bfloat>(from.bits[0], y);
        }
#pragma unroll
        for (int k = 0; k < 8; k++) x.v[k] += y.v[k];
    }
    template <int l, class Put>
    __device__ __forceinline__ void hide(const eight (&sum)[Q][H], const network_place &place, projections &added,
                                         const float *bias_of, const Put &put) const
    {
        constexpr bool adds = l == 0 && of_edges;
        const float unit = call.net.layer[l].unit;
#pragma unroll
        for (int q = 0; q < Q; q++) {
            eight bias = {};
            if (!adds) bias = load_floats(bias_of + place.constant + 32 * q);
#pragma unroll
            for (int h = 0; h < H; h += 2) { // two rows at a time
                const int i = q * H + h;
                eight x[2];
#pragma unroll
                for (int k = 0; k < 2; k++) {
#pragma unroll
                    for (int c = 0; c < 8; c++) x[k].v[c] = fmaf(sum[q][h + k].v[c], unit, bias.v[c]);
                    if constexpr (adds)
                        add_stored(added.of[(i + k) % AHEAD][0], x[k]), add_stored(added.of[(i + k) % AHEAD][1], x[k]);
                }
                if (adds && i + AHEAD < Q * H) load_block(added, i + AHEAD), load_block(added, i + 1 + AHEAD);
#pragma unroll
                for (int k = 0; k < 2; k++) {
                    soften<NUMBERS>(x[k]);
                    put(q, h + k, x[k]);
                }
            }
        }
    }
    __device__ __forceinline__ old_rows prepare(const network_place &place) const
    {
        old_rows old = {};
#pragma unroll
        for (int h = 0; h < (encodes ? 0 : H_LAST); h++) {
            const size_t at = operand_index(call.update.latent, min(place.row + 8 * h, max(place.n_rows - 1, 0)), place.column);
#pragma unroll
            for (int q = 0; q < Q_LAST; q++) old.of[q][h].load(call.update.latent, at + 4 * GPU_SLAB * q);
        }
        return old;
    }
    template <class Put>
    __device__ __forceinline__ void finish(eight (&sum)[Q_LAST][H_LAST], const network_place &place, const old_rows &loaded,
                                           const float *constants, const network_exchange<tile> &exchange, const Put &put) const
    {
        const update_place at = {place.row, place.column, place.n_rows, place.lane, place.part};
        orb_gpu_update update = call.update; // what is fixed in this kernel, so that the compiler removes the branches
        update.replaces = encodes;
        update.halves = !format::split;
        update.inverse = NULL;
        update.added = NULL;
        if (!of_edges) update.z = NULL, update.keeps = 0;
        if (!update.shift || !update.latent.low || (of_edges && !update.z)) __builtin_unreachable();
        finish_update<NUMBERS, tile::PARTS, KIND != NETWORK_NODES, tile::LANES_APART>(
            update, sum, at,
            [&](int k, int c) { return load_floats(constants + k * tile::LAST + place.constant + (c - place.column)); },
            [&](int q, int h, int, int) { return loaded.of[q][h].unpack(); },
            [&](moments(&of)[H_LAST]) {
                float2 mine[H_LAST];
#pragma unroll
                for (int h = 0; h < H_LAST; h++) mine[h] = make_float2(of[h].mean, of[h].squares);
                combine_moments<tile::PARTS>(exchange(place.part, mine), tile::ROWS, of);
            },
            put);
    }
    // The projections of the next layer's edges.
    template <int BLOCKS>
    __device__ __forceinline__ void project(const eight (&sum)[BLOCKS][H], const network_place &place, const float *bias_of) const
    {
        const float unit = call.net.project.unit;
#pragma unroll
        for (int q = 0; q < BLOCKS; q++) {
            const eight bias = load_floats(bias_of + place.constant + 32 * q);
#pragma unroll
            for (int h = 0; h < H; h++) {
                eight x;
#pragma unroll
                for (int k = 0; k < 8; k++) x.v[k] = fmaf(sum[q][h].v[k], unit, bias.v[k]);
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

template <int NUMBERS, int BLOCKS, int ROWS, bool encodes>
static __global__ void __launch_bounds__(edge_tile<NUMBERS, BLOCKS, ROWS>::THREADS, 1)
    orb_network_kernel(const __grid_constant__ orb_gpu_network call, int unused)
{
    DYNAMIC_SHARED(shared);
    run_kind<edge_tile<NUMBERS, BLOCKS, ROWS>, encodes ? NETWORK_ENCODER : NETWORK_EDGES>(call, shared);
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
    const int tiles = (call->net.rows + tile::ROWS - 1) / tile::ROWS, clusters = min(tiles, (int)plan->blocks / tile::BLOCKS);
    return launch(kernel, clusters * tile::BLOCKS, tile::THREADS, tile::SHARED_BYTES, tile::BLOCKS, plan->overlap, stream, *call,
                  0);
}

template <int NUMBERS, int BLOCKS, int ROWS>
static int launch_edges(const orb_gpu_network *call, const gpu_linear_plan *plan, void *stream)
{
    return launch_tiles<edge_tile<NUMBERS, BLOCKS, ROWS>>(call->projection ? orb_network_kernel<NUMBERS, BLOCKS, ROWS, false>
                                                                           : orb_network_kernel<NUMBERS, BLOCKS, ROWS, true>,
                                                          call, plan, stream);
}

template <int NUMBERS> static int launch_one(const orb_gpu_network *call, const gpu_linear_plan *plan, void *stream)
{
    if (call->net.blocks == 4) return launch_edges<NUMBERS, 4, 0>(call, plan, stream);
    constexpr bool split = NUMBERS == GPU_NUMBER_FLOAT32;
    switch (call->net.tile_rows) {
    case 32: return launch_edges < NUMBERS, 2, split ? 32 : 48 > (call, plan, stream);
    case 48: return launch_edges<NUMBERS, 2, 48>(call, plan, stream);
    case 64: return launch_edges < NUMBERS, 2, split ? 80 : 64 > (call, plan, stream);
    case 80: return launch_edges<NUMBERS, 2, 80>(call, plan, stream);
    default: return launch_edges<NUMBERS, 2, 0>(call, plan, stream);
    }
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
template <int NUMBERS, int BLOCKS, int ROWS> static int prepare_edges(void)
{
    typedef edge_tile<NUMBERS, BLOCKS, ROWS> tile;
    const int error = prepare_kernel<tile>(orb_network_kernel<NUMBERS, BLOCKS, ROWS, true>);
    return error ? error : prepare_kernel<tile>(orb_network_kernel<NUMBERS, BLOCKS, ROWS, false>);
}
template <int NUMBERS> static int prepare_one(int unused)
{
    int error = prepare_edges<NUMBERS, 4, 0>();
    if (!error) error = prepare_edges<NUMBERS, 2, 0>();
    if (!error) error = prepare_edges < NUMBERS, 2, NUMBERS == GPU_NUMBER_FLOAT32 ? 32 : 64 > ();
    if (!error) error = prepare_edges<NUMBERS, 2, 48>();
    return error ? error : prepare_edges<NUMBERS, 2, 80>();
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
