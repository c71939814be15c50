/* SPDX-License-Identifier: MIT */
/* painn_layers.cuh: a block of the fused layers (painn_layers.cu): layout of its shared memory, transport of weights, values of a lane and
 * their transport to the other blocks of the tile, sums on the tensor cores, rows of edges. */
#ifndef PAINN_GPU_LAYERS_CUH
#define PAINN_GPU_LAYERS_CUH

#include "gpu/ptx/wgmma.cuh"
#include "model/painn/gpu/node/painn_tile.cuh"
#include "model/painn/gpu/painn_edges.cuh"

enum {
    FUSED_WARPS = 16,
    ATOM_ROW = 20,                              // floats of an atom's features in shared memory: without bank conflicts
    FEATURES = PAINN_GPU_TILE_ATOMS * ATOM_ROW, // floats of one component
    EDGE_SUMS = 6 * FEATURES,                   // sums over the edges of a tile, or over half of them
    NEAR_ROW = 100,                             // floats of an atom's slice of a layer's input, or of its adjoint, likewise
    NEAR_ATOMS = 2 * PAINN_GPU_TILE_ATOMS,
    NEAR_FLOATS = (NEAR_ATOMS + 1) * NEAR_ROW,                      // the last atom is zeros
    NEAR_BYTES = 2 * NEAR_FLOATS * 4 + 2 * PAINN_GPU_MAX_LAYERS * 8 // double-buffered, and an mbarrier for each exchange
};

// The warps' tasks are listed in painn_layers.cu; one thread of this warp fetches the weights.
enum { WARP_FETCH = FUSED_WARPS - 1 };

// mbarriers of a product, each used once.
struct product_barriers {
    uint64_t operand, early; // its operand has arrived; a part of it that arrives earlier
    uint64_t weights;        // its weights have arrived; for all tiles on the first tile's barrier
    uint64_t part;           // partial sums of other warps
    uint64_t done;           // its results for other warps are stored, and its weights read
};

// Operands of a tile in a block's shared memory, in units of F features: q, three of region A, n, three of B. In pieces, one for each lane.
template <int F_> struct operand_places {
    static const int F = F_, K_TILES = F / 16, UNIT = K_TILES * 32, AT_Q = 0, AT_A = UNIT, AT_N = 4 * UNIT, AT_B = 5 * UNIT,
                     OPERANDS = 8 * UNIT, BLOCKS = PAINN_GPU_TILE_BLOCKS(F), RING = PAINN_GPU_RING_SLOTS(F) * PAINN_GPU_SLOT(F);
};

// Floats of each tile of a block: three partial sums of warps, q̄'', q and μ or q̄ and μ̄, sums over edges.
template <int TILES> constexpr int tile_floats = 4 * 32 * 4 + 4 * FEATURES + 2 / TILES *EDGE_SUMS;
template <int F, int TILES, bool paired> static int fused_bytes(const painn_gpu_step *step, int piece_bytes)
{
    return (TILES * operand_places<F>::OPERANDS + operand_places<F>::RING) * piece_bytes + FUSED_WARPS * 2 * 32 * 16 +
           TILES * (tile_floats<TILES> * 4 + step->n_layers * PAINN_GPU_SAVED * 32 * 16) +
           step->n_products * (int)(TILES * sizeof(product_barriers) + sizeof(painn_gpu_product)) +
           2 * step->n_layers * (int)sizeof(uint64_t) + (paired ? NEAR_BYTES : 0);
}

// Weights of 16 features and 16 of k, for all lanes, as operand A.
template <typename Numbers> struct weights_tile {
    uint4 part[Numbers::stored::PARTS]; // high, low
    __device__ __forceinline__ void load(const uint4 *at)
    {
#pragma unroll
        for (int k = 0; k < Numbers::stored::PARTS; k++) part[k] = at[32 * k];
    }
};
// Products of the weights with 8 atoms.
static __device__ __forceinline__ void multiply_tile(float4 (&sum)[3], const weights_tile<split_halves> &w, const uint4 &v)
{
    product<false>(sum[1], w.part[1], v.x, v.y);
    product<false>(sum[2], w.part[0], v.z, v.w);
    product<false>(sum[0], w.part[0], v.x, v.y);
}
template <bool bfloat>
static __device__ __forceinline__ void multiply_tile(float4 (&sum)[3], const weights_tile<single_numbers<bfloat>> &w,
                                                     const uint2 &v)
{
    product<bfloat>(sum[0], w.part[0], v.x, v.y);
}
// Packs sums of features × atoms as an operand of atoms, transposed because the tensor cores take features in pairs.
static __device__ __forceinline__ uint4 pack_transposed(float4 v, split_halves)
{
    const uint32_t lower = pack_half2(v.x, v.y), upper = pack_half2(v.z, v.w);
    const float2 a = unpack_half2(lower), b = unpack_half2(upper);
    return make_uint4(transpose_tile(lower), transpose_tile(upper), transpose_tile(pack_half2(v.x - a.x, v.y - a.y)),
                      transpose_tile(pack_half2(v.z - b.x, v.w - b.y)));
}
template <bool bfloat> static __device__ __forceinline__ uint2 pack_transposed(float4 v, single_numbers<bfloat>)
{
    return make_uint2(transpose_tile(bfloat ? pack_bfloat2(v.x, v.y) : pack_half2(v.x, v.y)),
                      transpose_tile(bfloat ? pack_bfloat2(v.z, v.w) : pack_half2(v.z, v.w)));
}

template <typename Numbers, int F, int TILES, bool paired> struct fused_block : activations, operand_places<F> {
    typedef typename Numbers::piece piece;
    typedef operand_places<F> places;
    using places::K_TILES, places::UNIT, places::BLOCKS;
    static const int ATOM_WARPS = 2 / TILES; // warps that share an atom's edges
    char *shared;
    piece *operands, *ring;
    float *values;                    // of all tiles
    float4 *keep, *exchanged, *q_bar; // partial sums of three warps; q̄'' of a layer
    float *own, *sums; // own: q, μ or q̄, μ̄ of this block's atoms; sums: over edges, by each of the warps that share an atom
    float4 *row;       // 32 edges of this warp's atom
    float *near;       // paired: the exchanged features of all atoms
    product_barriers *barriers, *weights; // of the current tile; of the first tile, which has the barriers of weights
    painn_gpu_product *products;
    uint64_t *released; // for each exchange but the last: all blocks of the tile have read their operands
    int lane, warp, rank, first;
    int n_atoms, n_clusters;           // clusters that have atoms
    int first_peer;                    // rank in the cluster of the tile's first block
    int n_products, n_fetched, n_read; // n_fetched, n_read: of the thread that fetches weights
    uint32_t phase;                    // phase of the barrier of its rank's blocks
    cluster_base peers[BLOCKS];

    __device__ __forceinline__ fused_block(const painn_gpu_step &s, uint4 *memory, int forces)
        : activations(s), n_products(forces ? s.n_products : s.n_products_forward), n_fetched(0), n_read(0)
    {
        shared = (char *)memory;
        ring = (piece *)memory + TILES * places::OPERANDS;
        row = (float4 *)(ring + places::RING);
        near = (float *)(row + FUSED_WARPS * 2 * 32);
        values = near + (paired ? NEAR_BYTES / 4 : 0);
        weights = (product_barriers *)(values + TILES * (tile_floats<TILES> + s.n_layers * PAINN_GPU_SAVED * 32 * 4));
        products = (painn_gpu_product *)(weights + TILES * s.n_products);
        released = (uint64_t *)(products + s.n_products);
        lane = threadIdx.x % 32;
        warp = warp_in_block();
        row += warp * 2 * 32;
        first_peer = paired ? (int)blockIdx.x / BLOCKS * BLOCKS : 0;
        rank = blockIdx.x % BLOCKS;
        find(0);
#pragma unroll
        for (int r = 0; r < BLOCKS; r++) peers[r] = cluster_map(shared, first_peer + r);
    }
    __device__ __forceinline__ void find(int tile)
    {
        operands = (piece *)shared + tile * places::OPERANDS;
        exchanged = (float4 *)(values + tile * tile_floats<TILES>);
        q_bar = exchanged + 3 * 32;
        own = (float *)(q_bar + 32);
        sums = own + 4 * FEATURES;
        keep = (float4 *)(values + TILES * tile_floats<TILES>);
        keep += tile * step.n_layers * PAINN_GPU_SAVED * 32;
        barriers = weights + tile * step.n_products;
        first = ((int)(blockIdx.x / BLOCKS) * TILES + tile) * PAINN_GPU_TILE_ATOMS;
    }
    // Selects one of several tiles for what follows.
    __device__ __forceinline__ void choose(int tile)
    {
        if (TILES > 1) find(tile);
    }

    // Copies the product table, initializes barriers and requests the first weights. No step writes what is read here: in dynamics the
    // previous step may still run. Asynchronous stores are allowed after cluster_wait.
    __device__ __forceinline__ void prepare()
    {
        n_atoms = step.gpu.call_in->n_atoms;
        const int atoms = TILES * PAINN_GPU_TILE_ATOMS;
        n_clusters = (n_atoms + atoms - 1) / atoms;
        const int words = step.n_products * (int)sizeof(painn_gpu_product) / 4, unit = UNIT * (int)sizeof(piece);
        for (int k = threadIdx.x; k < words; k += FUSED_WARPS * 32)
            ((uint32_t *)products)[k] = __ldg((const uint32_t *)step.products + k);
        __syncthreads();
        // By one lane of each warp: several lanes would execute one after the other.
        for (int k = warp; lane == 0 && k < step.n_products; k += FUSED_WARPS) {
            const painn_gpu_product &p = products[k];
#pragma unroll 1
            for (int tile = 0; tile < TILES; tile++) {
                product_barriers &g = weights[tile * step.n_products + k];
                mbarrier_init_bytes(&g.operand, p.operand * unit / 2);
                if (p.early) mbarrier_init_bytes(&g.early, p.early * unit / 2);
                if (tile == 0) mbarrier_init(&g.weights, 1);
                if (p.parts) mbarrier_init(&g.part, p.parts);
                mbarrier_init(&g.done, p.warps);
            }
        }
        for (int k = warp; lane == 0 && k < 2 * step.n_layers - 2; k += FUSED_WARPS) mbarrier_init(&released[k], BLOCKS);
        for (int k = warp; paired && lane == 0 && k < 2 * step.n_layers - 1; k += FUSED_WARPS)
            mbarrier_init_bytes(near_barrier(k), near_pieces(k) * 16);
        if (paired && threadIdx.x < 2 * NEAR_ROW)
            near_of(threadIdx.x / NEAR_ROW)[NEAR_ATOMS * NEAR_ROW + threadIdx.x % NEAR_ROW] = 0;
        mbarrier_init_fence();
        __syncthreads();
        cluster_arrive();
        // With 128 features the other weights come after the first edges, which this warp has to process too; with fewer they are as
        // many bytes as one product's there.
        if (warp == WARP_FETCH) fetch(-1, F == 128 ? 1 : n_products);
    }
    // Requests the weights of the first n products that fit once product `last` has read its own. By one thread.
    __device__ __forceinline__ void fetch(int last, int n)
    {
        if (lane == 0) {
            while (n_fetched < n && products[n_fetched].after <= last) {
                const painn_gpu_product &p = products[n_fetched];
                for (; n_read <= p.after; n_read++) // and all products before it
                    for (int tile = 0; tile < TILES; tile++) mbarrier_wait(&weights[tile * step.n_products + n_read].done, 0);
                uint64_t *barrier = &weights[n_fetched].weights;
                mbarrier_expect(barrier, p.copies * p.bytes);
                for (int k = 0; k < p.copies; k++)
                    bulk_copy((char *)(ring + p.position) + k * p.bytes,
                              (const char *)p.source[k] + (size_t)(rank & (p.ranks - 1)) * p.bytes, p.bytes, barrier);
                n_fetched++;
            }
        }
        __syncwarp();
    }
    // Waits for requested weights: they must not arrive after the block has exited.
    __device__ __forceinline__ void wait_for_weights()
    {
        for (int k = 0; lane == 0 && k < n_fetched; k++) mbarrier_wait(&weights[k].weights, 0);
    }
    __device__ __forceinline__ void arrive(uint64_t &barrier) const
    {
        __syncwarp();
        if (lane == 0) mbarrier_arrive(&barrier);
    }

    // ---- values of a lane: features 2 (lane / 4) and the next of the block's 16 (in the order of rows of weights), for atoms 2 (lane % 4)
    // and the next of the tile
    __device__ __forceinline__ float2 *place_of(float *array) const
    {
        return (float2 *)(array + 2 * (lane % 4) * ATOM_ROW + 2 * (lane / 4));
    }
    static __device__ __forceinline__ float4 gather(const float2 *at)
    {
        const float2 even = at[0], odd = at[ATOM_ROW / 2];
        return make_float4(even.x, odd.x, even.y, odd.y);
    }
    __device__ __forceinline__ float4 own_of(int c) const
    {
        return gather(place_of(own + c * FEATURES));
    }
    __device__ __forceinline__ void set_own(int c, float4 v) const
    {
        float2 *at = place_of(own + c * FEATURES);
        at[0] = make_float2(v.x, v.z);
        at[ATOM_ROW / 2] = make_float2(v.y, v.w);
    }
    __device__ __forceinline__ float4 sum_of(int c) const
    {
        const float2 *at = place_of(sums + c * FEATURES);
        return ATOM_WARPS == 1 ? gather(at) : gather(at) + gather(at + EDGE_SUMS / 2);
    }
    __device__ __forceinline__ float4 &kept(int layer, int quantity) const
    {
        return keep[(layer * PAINN_GPU_SAVED + quantity) * 32 + lane];
    }
    __device__ __forceinline__ float4 bias(const painn_gpu_product &p, int k) const
    {
        const float2 b = __ldg((const float2 *)(p.bias[k] + 16 * (rank & (p.ranks - 1))) + lane / 4);
        return make_float4(b.x, b.x, b.y, b.y);
    }
    // Slices of P pairs of numbers for each atom, in `array` or in shared memory, and the distance from one atom to the next.
    struct slices {
        float *base;
        unsigned stride;
        __device__ __forceinline__ float *of(unsigned atom) const
        {
            return (float *)((char *)base + atom * (stride * (unsigned)sizeof(float)));
        }
    };
    template <int P> __device__ __forceinline__ slices slices_of(float *array, int exchange) const
    {
        return paired ? slices{near_of(exchange), (unsigned)NEAR_ROW}
                      : slices{array + rank * (P * 32), (unsigned)(K_TILES * P * 32)};
    }
    // Adjoints of an exchange, double-buffered: a block that writes has received the previous exchange, so the one before has been read.
    __device__ __forceinline__ float *adjoints_at(int exchange) const
    {
        return step.adjoint + (exchange % 2 ? (size_t)(step.gpu.neighbors.atom_capacity + 1) * 4 * F : 0);
    }
    // Writes component c of them for an exchange.
    template <int P> __device__ __forceinline__ void write(float *array, int c, float4 v, int exchange) const
    {
        const slices to = slices_of<P>(array, exchange);
        float *at = to.of(first + 2 * (lane % 4)) + c / 2 * 32 + lane / 4 * 4 + c % 2;
        at[0] = v.x;
        at[to.stride] = v.y;
        at[2] = v.z;
        at[to.stride + 2] = v.w;
    }
    // Stores v as this block's k tile of the operand at `at`, in all blocks of the tile; barrier: offset of the mbarrier.
    __device__ __forceinline__ void put(int barrier, int at, float4 v) const
    {
        const auto mine = pack_transposed(v * splat(PAINN_GPU_OPERAND_SCALE), Numbers());
        const uint32_t offset = offset_of(at + rank * 32 + lane);
#pragma unroll
        for (int k = 0; k < BLOCKS; k++) store_async(peers[k], offset, (uint32_t)barrier, mine);
    }
    // The same in N of them, from block r on.
    template <int N> __device__ __forceinline__ void put_some(int barrier, int at, float4 v, int r) const
    {
        const auto mine = pack_transposed(v * splat(PAINN_GPU_OPERAND_SCALE), Numbers());
        const uint32_t offset = offset_of(at + rank * 32 + lane);
#pragma unroll
        for (int k = 0; k < N; k++) store_async(cluster_map(shared, first_peer + r + k), offset, (uint32_t)barrier, mine);
    }
    // Offset of a piece of an operand, in each block's shared memory.
    __device__ __forceinline__ uint32_t offset_of(int at) const
    {
        return (uint32_t)((char *)(operands + at) - shared);
    }
    __device__ __forceinline__ int operand_barrier(int product) const
    {
        return (int)((char *)barriers - shared) + product * (int)sizeof(product_barriers);
    }
    __device__ __forceinline__ int early_barrier(int product) const
    {
        return operand_barrier(product) + 8;
    }

    // ---- products
    // What a warp sums: a block of a product's weights (`stored` k tiles) over F features of k, or half as many, of the operand at `from`;
    // before that over the other F features, which arrive earlier.
    struct factors {
        int product, stored, block, k, from, early_from; // −1: nothing arrives earlier
        bool half;
    };
    __device__ __forceinline__ float4 multiply(const factors &f) const
    {
        const int NEXT = Numbers::stored::PARTS * 32, HALF = K_TILES / 2, AHEAD = K_TILES > 4 ? HALF : K_TILES;
        product_barriers &g = barriers[f.product];
        float4 sum[2][3];
#pragma unroll
        for (int k = 0; k < 6; k++) sum[k / 3][k % 3] = splat(0);
        mbarrier_wait(&weights[f.product].weights, 0);
        bool early = f.early_from >= 0;
#pragma unroll 1
        for (;;) {
            const uint4 *at = (const uint4 *)(ring + products[f.product].position) +
                              (f.block * f.stored + (early ? K_TILES - f.k : f.k)) * NEXT + lane;
            const piece *v = operands + (early ? f.early_from : f.from) + lane;
            weights_tile<Numbers> w[K_TILES];
#pragma unroll
            for (int i = 0; i < AHEAD; i++) w[i].load(at + i * NEXT);
            mbarrier_wait_bytes(early ? &g.early : &g.operand);
#pragma unroll
            for (int i = 0; i < HALF; i++) multiply_tile(sum[i % 2], w[i], v[i * 32]);
            if (f.half) break;
#pragma unroll
            for (int i = HALF; i < K_TILES; i++) {
                if (i >= AHEAD) w[i].load(at + i * NEXT); // registers allow no earlier load
                multiply_tile(sum[i % 2], w[i], v[i * 32]);
            }
            if (!early) break;
            early = false;
        }
        if (Numbers::PRODUCTS == 1) return (sum[0][0] + sum[1][0]) * splat(step.weight_unit);
        return ((sum[0][0] + sum[1][0]) + ((sum[0][1] + sum[1][1]) + (sum[0][2] + sum[1][2]))) * splat(step.weight_unit);
    }
    // Partial sums go to the first of the warps that share a sum; it adds them in their order.
    __device__ __forceinline__ void give_part(product_barriers &g, int which, float4 v) const
    {
        exchanged[which * 32 + lane] = v;
        arrive(g.part);
    }
    __device__ __forceinline__ float4 take_parts(product_barriers &g, float4 mine, int n) const
    {
        mbarrier_wait(&g.part, 0);
        const float4 two = mine + exchanged[32 + lane];
        return n == 2 ? two : two + exchanged[64 + lane];
    }

    // Indices of layer l's products; in the backward pass they follow one of the readout.
    __device__ __forceinline__ int product_of(int l, int kind) const
    {
        return 5 * l + kind;
    }
    __device__ __forceinline__ int adjoint_of(int l, int kind) const
    {
        return step.n_products_forward + 1 + 5 * (step.n_layers - 1 - l) + kind - TO_G_BAR;
    }
    __device__ __forceinline__ void wait_for(int product) const
    {
        mbarrier_wait(&barriers[product].done, 0);
    }
    // Σ V∘B.
    __device__ __forceinline__ float4 t_of(int l) const
    {
        wait_for(product_of(l, TO_V));
        float4 t = kept(l, 0) * kept(l, 3);
        t = fma4(kept(l, 1), kept(l, 4), t);
        return fma4(kept(l, 2), kept(l, 5), t);
    }
    // ---- between layers: exchange l carries the input of layer l + 1; from n_layers − 1 on, adjoints from the last layer on
    __device__ __forceinline__ int exchange_back(int l) const
    {
        return 2 * step.n_layers - 2 - l;
    }
    // Double-buffered: a writer has already received the previous exchange, so the one before is no longer read.
    __device__ __forceinline__ float *near_of(int exchange) const
    {
        return near + exchange % 2 * NEAR_FLOATS;
    }
    __device__ __forceinline__ uint64_t *near_barrier(int exchange) const
    {
        return (uint64_t *)(near + 2 * NEAR_FLOATS) + exchange;
    }
    // Pieces of 16 bytes of a tile.
    __device__ __forceinline__ int near_pieces(int exchange) const
    {
        return (exchange < step.n_layers - 1 ? (int)STATE_PAIRS : (int)ADJOINT_PAIRS) * 8 * PAINN_GPU_TILE_ATOMS;
    }
    __device__ __forceinline__ uint32_t *exchange_counter() const
    {
        return step.exchange_count + rank * PAINN_GPU_COUNTER_STRIDE;
    }
    // The exchange keeps blocks of one rank together, not those of one tile: one of these may still read operands where another would store
    // the sums of the next message. So each tells all when its warps have read theirs, before an exchange, and sums wait for that. By the lanes
    // of one warp.
    __device__ __forceinline__ void release_operands(int exchange) const
    {
        if (warp == WARP_FETCH && lane < BLOCKS && exchange < 2 * step.n_layers - 2)
            mbarrier_arrive_at(cluster_map(&released[exchange], first_peer + lane));
    }
    __device__ __forceinline__ void wait_for_operands(int exchange) const
    {
        mbarrier_wait(&released[exchange], 0);
    }
    // Exchange between all blocks of one rank, which have the same features; no other block reads them. A layer's input is also stored in
    // `array`, for the backward pass.
    __device__ __forceinline__ void exchange_features(int exchange)
    {
        if (!paired) {
            grid_barrier(exchange_counter(), n_clusters, blockIdx.x < BLOCKS, phase);
            release_operands(exchange);
            return;
        }
        __syncthreads();
        release_operands(exchange);
        const bool input = exchange < step.n_layers - 1;
        const bool two = n_atoms > PAINN_GPU_TILE_ATOMS;
        if ((int)threadIdx.x < near_pieces(exchange)) {
            const int width = (input ? (int)STATE_PAIRS : (int)ADJOINT_PAIRS) * 8, atom = first + (int)threadIdx.x / width,
                      k = (int)threadIdx.x % width;
            const uint4 *at = (const uint4 *)(near_of(exchange) + atom * NEAR_ROW) + k, v = *at;
            if (two)
                store_async(cluster_map(shared, (first_peer ^ BLOCKS) + rank), (uint32_t)((char *)at - shared),
                            (uint32_t)((char *)near_barrier(exchange) - shared), v);
            if (input) ((uint4 *)step.state[exchange + 1])[((size_t)atom * K_TILES + rank) * width + k] = v;
        }
        if (two) mbarrier_wait_bytes(near_barrier(exchange));
    }
    __device__ __forceinline__ void stamp(int number) const
    {
        if (step.gpu.stamps && blockIdx.x == 0 && threadIdx.x == 0) step.gpu.stamps[number] = gpu_timer();
    }

    // Loads 32 edges of an atom's row from `begin` on; all layers use the first 32. For each edge u and its variable in the table, then
    // neighbor, species, interval, and the row's length. Lanes without an edge get one to the atom of zeros behind the last one.
    __device__ __forceinline__ void take_row(int atom, int begin)
    {
        edge_chunk chunk;
        chunk.load(step, step.gpu.neighbors.edges, step.gpu.neighbors.row_length, atom, begin);
        chunk.close(step, begin);
        const int j = chunk.packed / PAINN_GPU_INTERVALS;
        __syncwarp();
        row[lane] = make_float4(chunk.a.x, chunk.a.y, chunk.a.z, chunk.t);
        row[32 + lane] =
            make_float4(__int_as_float(paired ? min(j, (int)NEAR_ATOMS) : j), __int_as_float(chunk.species),
                        __int_as_float(chunk.packed % PAINN_GPU_INTERVALS), __int_as_float(atom < n_atoms ? chunk.length : 0));
        __syncwarp();
    }
    __device__ __forceinline__ int row_length() const
    {
        return __float_as_int(row[32].w);
    }
    // Fields of an edge; each quarter of the warp has its own edge.
    static __device__ __forceinline__ unsigned neighbor_of(const float4 *edge)
    {
        return __float_as_uint(edge[32].x);
    }
    static __device__ __forceinline__ unsigned species_of(const float4 *edge)
    {
        return __float_as_uint(edge[32].y);
    }
    // Requests the edge's table entries without waiting.
    template <typename Table>
    static __device__ __forceinline__ void ask(const Table &table, typename Table::template entries<3> &entries,
                                               const float4 *edge)
    {
        table.fetch(__float_as_uint(edge[32].z), entries);
    }
    // The edge with its filters.
    template <typename Table, typename View>
    static __device__ __forceinline__ View view(const typename Table::template entries<3> &entries, const float4 *edge)
    {
        View e;
        e.ux = edge->x, e.uy = edge->y, e.uz = edge->z;
        e.t = edge->w;
        e.template evaluate<Table>(entries);
        return e;
    }
};

#endif
