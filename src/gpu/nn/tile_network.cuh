/* SPDX-License-Identifier: MIT */
/* tile_network.cuh: a network of three layers for a tile of rows, by a cluster of two blocks; Hopper only. Hidden features stay in shared
 * memory, so that only the network's inputs, its weights and its results move through the L2 cache.
 *
 * A block computes half of the columns of every layer. It needs all columns of the hidden features: each block sends its half to the other,
 * by bulk copies between shared memories, and begins the next layer with its own half. One region of shared memory holds in turn the inputs
 * and both hidden layers of a tile; weights pass through a ring buffer. Two groups of four warps compute: of one plane they share the
 * weights and each has 64 rows, of two planes they share 64 rows and each has half of the block's columns. Three warps fetch weights, one
 * the inputs of the next tile. Blocks are persistent. Where the last round has no more slabs than clusters, its tiles are of one slab each. */
#ifndef GPU_TILE_NETWORK_CUH
#define GPU_TILE_NETWORK_CUH

#include "tile.cuh"

template <int NUMBERS> struct network_tile {
    typedef number_format<NUMBERS> format;
    static constexpr int planes = format::planes, BLOCKS = 2, GROUPS = 2;
    static constexpr int HIDDEN = GPU_NETWORK_HIDDEN, COLUMNS = HIDDEN / BLOCKS, LAST = GPU_NORM_WIDTH / BLOCKS; // of a block
    static constexpr int SLABS = 2 / planes, ROWS = SLABS * GPU_SLAB,
                         SHARING = GROUPS / SLABS;                             // SHARING: groups that share a slab
    static constexpr int MINE = COLUMNS / SHARING, MINE_LAST = LAST / SHARING; // columns of a group
    static constexpr int PARTS = BLOCKS * SHARING;                             // of a row
    /* Blocks of 8 columns of a slab are 32 bytes further apart than they are long: a quarter of a warp stores 16 bytes of two rows of four blocks. */
    static constexpr int BLOCK_BYTES = GPU_SLAB * 16 + 32, SLAB_BYTES = HIDDEN / 8 * BLOCK_BYTES,
                         HALF_BYTES = SLAB_BYTES / BLOCKS;
    static constexpr int SLOT_BYTES = 16384, SLOTS = 5, K8 = 4 / planes, K8_LAST = 8 / planes; // blocks of 8 of k in a slot
    static constexpr int RING_AT = planes * SLABS * SLAB_BYTES, MOMENTS_AT = RING_AT + SLOTS * SLOT_BYTES,
                         CONSTANTS_AT = MOMENTS_AT + PARTS * ROWS * 8,
                         BARRIERS_AT = CONSTANTS_AT + (2 * COLUMNS + TILE_CONSTANTS * LAST) * 4, SHARED_BYTES = BARRIERS_AT + 256;
    static constexpr int COMPUTING = 128 * GROUPS, THREADS = COMPUTING + 128;
    static_assert(COLUMNS <= COMPUTING && LAST <= COMPUTING, "a thread copies one constant of a vector");
    static_assert(COLUMNS == GPU_WEIGHT_BLOCK, "weights are stored in blocks of a block's columns");
    static_assert(SHARED_BYTES <= 227 * 1024, "shared memory of a multiprocessor");
};

struct network_barriers {
    uint64_t full[5], empty[5]; // of the ring
    uint64_t input, released;   // the inputs of a tile are there; the region is free, in both blocks
    /* Of each slab. */
    uint64_t arrived[2]; // the other block's half of a hidden layer is there
    uint64_t read[2];    // both blocks have read an operand of the first or the second layer
    uint64_t moments[2]; // sums of rows of both blocks are there
};

/* What an epilogue knows of its place. */
struct network_place {
    int row, column, n_rows;  // row: of g, the other is row + 8; column: first of the group's columns, + 8 t
    int lane, part, constant; // part: of the row; constant: `column` among the block's columns
};

/* What a product waits for, and whose it is. */
struct network_turn {
    int slab, lane;
    bool first; // of the threads of the slab
    int phase;  // of a tile's inputs, or of the halves
};

template <class tile> struct network_runner {
    typedef typename tile::format format;
    const gpu_network &net;
    char *const shared;
    network_barriers *const barriers;
    const int rank, cluster, clusters, n_rows; // n_rows: where the rows end
    int tiles, whole;                   // whole: tiles of tile::SLABS slabs; the others, at most one of a cluster, have one
    static constexpr int FETCHING = 3;  // warps
    int slot = 0, parity = 0, turn = 0; // turn: slots until this warp's next one

    __device__ __forceinline__ network_runner(const gpu_network &net_, uint4 *shared_)
        : net(net_), shared((char *)shared_), barriers((network_barriers *)((char *)shared_ + tile::BARRIERS_AT)),
          rank(cluster_rank<tile::BLOCKS>()), cluster((int)blockIdx.x / tile::BLOCKS), clusters((int)gridDim.x / tile::BLOCKS),
          n_rows(min(*net_.n_rows, net_.first_row + net_.rows))
    {
        const int slabs = (max(n_rows - net.first_row, 0) + GPU_SLAB - 1) / GPU_SLAB, rounds = slabs / (tile::SLABS * clusters),
                  rest = slabs - rounds * tile::SLABS * clusters;
        whole = rest > clusters ? (slabs + tile::SLABS - 1) / tile::SLABS : rounds * clusters;
        tiles = rest > clusters ? whole : whole + rest;
    }
    __device__ __forceinline__ void next()
    {
        if (++slot == tile::SLOTS) slot = 0, parity ^= 1;
    }
    __device__ __forceinline__ char *slab_at(int plane, int slab) const
    {
        return shared + (plane * tile::SLABS + slab) * tile::SLAB_BYTES;
    }
    __device__ __forceinline__ char *slot_at(int k) const
    {
        return shared + tile::RING_AT + k * tile::SLOT_BYTES;
    }
    __device__ __forceinline__ int row_of(int number) const
    {
        return net.first_row + min(number, whole) * tile::ROWS + max(number - whole, 0) * GPU_SLAB;
    }
    __device__ __forceinline__ int slabs_of(int number) const
    {
        return number < whole ? tile::SLABS : 1;
    }
    // A block's first tile is computed even if it has no rows.
    __device__ __forceinline__ bool exists(int number) const
    {
        return number == cluster || number < tiles;
    }
    // Block of 8 of k at place `k8` of the order in which a block reads hidden features: its own half first.
    __device__ __forceinline__ int hidden_k8(int k8) const
    {
        return (k8 + rank * (tile::COLUMNS / 8)) % (tile::HIDDEN / 8);
    }

    __device__ __forceinline__ void init()
    {
        if (threadIdx.x == 0) {
            for (int k = 0; k < tile::SLOTS; k++) {
                mbarrier_init(barriers->full + k, 1);
                mbarrier_init(barriers->empty + k, 4 * tile::GROUPS);
            }
            mbarrier_init(&barriers->input, 1);
            mbarrier_init(&barriers->released, 4 * tile::GROUPS * tile::BLOCKS);
            for (int s = 0; s < tile::SLABS; s++) {
                mbarrier_init(barriers->arrived + s, 1);
                mbarrier_init(barriers->read + s, 4 * tile::SHARING * tile::BLOCKS);
                mbarrier_init(barriers->moments + s, 1);
            }
            mbarrier_init_fence();
            for (int s = 0; s < tile::SLABS; s++) expect_half(s), expect_moments(s);
        }
        cluster_barrier<tile::BLOCKS>();
    }
    __device__ __forceinline__ void expect_half(int slab)
    {
        mbarrier_expect(barriers->arrived + slab, tile::planes * tile::HALF_BYTES);
    }
    __device__ __forceinline__ void expect_moments(int slab)
    {
        mbarrier_expect(barriers->moments + slab, tile::PARTS * GPU_SLAB * (int)sizeof(float2));
    }

    // ---- the warps that fetch weights, each every third slot: a warp issues its copies one by one
    // The next slot, if it is this warp's: BLOCKS_8 blocks of 8 of k at k8, WIDTH outputs from `column` on.
    template <int WIDTH, int BLOCKS_8>
    __device__ __forceinline__ void fetch_slot(const gpu_linear &layer, int column, int k8, int lane)
    {
        constexpr int PIECES = WIDTH == GPU_WEIGHT_BLOCK ? 1 : BLOCKS_8, EACH = BLOCKS_8 / PIECES * WIDTH * 16;
        const bool mine = turn == 0;
        turn = mine ? FETCHING - 1 : turn - 1;
        if (mine) mbarrier_wait(barriers->empty + slot, parity ^ 1);
        if (mine && lane == 0) mbarrier_expect(barriers->full + slot, tile::planes * PIECES * EACH);
        __syncwarp();
        if (mine && lane < tile::planes * PIECES) {
            const int plane = lane / PIECES, piece = lane % PIECES;
            bulk_copy(slot_at(slot) + lane * EACH,
                      (const char *)(plane ? layer.low : layer.high) +
                          (((size_t)(column / GPU_WEIGHT_BLOCK) * (layer.inputs / 8) + k8 + piece) * GPU_WEIGHT_BLOCK +
                           column % GPU_WEIGHT_BLOCK) *
                              16,
                      EACH, barriers->full + slot);
        }
        next();
    }
    // The first slots are requested before the previous kernel is complete.
    __device__ __forceinline__ void fetch_weights(int which, int lane)
    {
        turn = which;
        for (int number = cluster; exists(number); number += clusters) {
            for (int k8 = 0; k8 < net.layer[0].inputs / 8; k8 += tile::K8)
                fetch_slot<tile::COLUMNS, tile::K8>(net.layer[0], rank * tile::COLUMNS, k8, lane);
            for (int k8 = 0; k8 < tile::HIDDEN / 8; k8 += tile::K8)
                fetch_slot<tile::COLUMNS, tile::K8>(net.layer[1], rank * tile::COLUMNS, hidden_k8(k8), lane);
            for (int k8 = 0; k8 < tile::HIDDEN / 8; k8 += tile::K8_LAST)
                fetch_slot<tile::LAST, tile::K8_LAST>(net.layer[2], rank * tile::LAST, hidden_k8(k8), lane);
        }
    }
    // ---- the warp that fetches inputs
    __device__ __forceinline__ void fetch_input(int number, int lane)
    {
        constexpr int BYTES = GPU_SLAB * 16; // of a block of 8 columns
        const int blocks = net.input.columns / 8, row = row_of(number);
        int slabs = 0; // that exist
        while (slabs < slabs_of(number) && row + GPU_SLAB * slabs < net.first_row + net.rows) slabs++;
        if (lane == 0) mbarrier_expect(&barriers->input, tile::planes * slabs * blocks * BYTES);
        __syncwarp();
        for (int k = lane; k < tile::planes * slabs * blocks; k += 32) {
            const int block = k % blocks, plane = k / blocks / slabs, slab = k / blocks % slabs;
            bulk_copy(slab_at(plane, slab) + block * tile::BLOCK_BYTES,
                      (const char *)(plane ? net.input.low : net.input.high) +
                          ((size_t)(row / GPU_SLAB + slab) * blocks + block) * BYTES,
                      BYTES, &barriers->input);
        }
        __syncwarp();
    }
    __device__ __forceinline__ void fetch_inputs(int lane)
    {
        if (net.early) fetch_input(cluster, lane);
        wait_for_previous();
        let_next_start();
        if (!net.early) fetch_input(cluster, lane);
        for (int number = cluster + clusters, k = 0; number < tiles; number += clusters, k ^= 1) {
            mbarrier_wait(&barriers->released, k);
            fetch_input(number, lane);
        }
    }

    // ---- the computing warps
    // d = products of slot `at`, `BLOCKS_8` blocks of 8 of k at k8 of the slab and N columns of weights of `WIDTH` in the slot, from `first` on.
    template <int N, int WIDTH, int BLOCKS_8>
    __device__ __forceinline__ void enqueue_slot(float (&d)[N / 2], int at, int slab, int k8, int first, int add)
    {
#pragma unroll
        for (int kk = 0; kk < BLOCKS_8 / 2; kk++) {
            wgmma_operand a[2], b[2];
#pragma unroll
            for (int plane = 0; plane < tile::planes; plane++) {
                a[plane] = wgmma_operand_at(slab_at(plane, slab) + (k8 + 2 * kk) * tile::BLOCK_BYTES, tile::BLOCK_BYTES, 128);
                b[plane] = wgmma_operand_at(slot_at(at) + plane * (BLOCKS_8 * WIDTH * 16) + kk * WIDTH * 32 + first * 16,
                                            WIDTH * 16, 128);
            }
            if (format::split) {
                wgmma_shared_product<format::bfloat>(d, a[tile::planes - 1], b[0], add || kk > 0);
                wgmma_shared_product<format::bfloat>(d, a[0], b[tile::planes - 1], 1);
            }
            wgmma_shared_product<format::bfloat>(d, a[0], b[0], format::split || add || kk > 0);
        }
    }
    // Waits for what the slot at k8 needs, the input or the other block's half; returns its place in the slab.
    template <bool hidden> __device__ __forceinline__ int place_of(int k8, const network_turn &turn)
    {
        if (k8 == (hidden ? tile::COLUMNS / 8 : 0)) {
            mbarrier_wait(hidden ? barriers->arrived + turn.slab : &barriers->input, turn.phase);
            if (hidden && turn.first) expect_half(turn.slab);
        }
        return hidden ? hidden_k8(k8) : k8;
    }
    // sum = products of all `blocks` blocks of 8 of k with N columns of weights of WIDTH in a slot, from `column` on.
    template <int N, int WIDTH, int BLOCKS_8, bool hidden>
    __device__ __forceinline__ void multiply(float (&sum)[N / 2], int blocks, int column, const network_turn &turn)
    {
        if (format::split)
            multiply_in_parts<N, WIDTH, BLOCKS_8, hidden>(sum, blocks, column, turn);
        else
            multiply_at_once<N, WIDTH, BLOCKS_8, hidden>(sum, blocks, column, turn);
    }
    template <int N, int WIDTH, int BLOCKS_8, bool hidden>
    __device__ __forceinline__ void multiply_at_once(float (&sum)[N / 2], int blocks, int column, const network_turn &turn)
    {
        int last = -1;
#pragma unroll
        for (int k = 0; k < N / 2; k++) sum[k] = 0;
#pragma unroll 1
        for (int k8 = 0; k8 < blocks; k8 += BLOCKS_8) {
            const int at = place_of<hidden>(k8, turn);
            mbarrier_wait(barriers->full + slot, parity);
            wgmma_begin();
            enqueue_slot<N, WIDTH, BLOCKS_8>(sum, slot, turn.slab, at, column, 1);
            wgmma_commit();
            wgmma_wait<1>();
            if (last >= 0 && turn.lane == 0) mbarrier_arrive(barriers->empty + last);
            last = slot;
            next();
        }
        wgmma_wait<0>();
        wgmma_settle(sum);
        if (turn.lane == 0) mbarrier_arrive(barriers->empty + last);
    }
    // As tile_runner::multiply_in_parts: tensor cores add up 32 columns. While a group adds a part in registers, the products of the other group run.
    template <int N, int WIDTH, int BLOCKS_8, bool hidden>
    __device__ __forceinline__ void multiply_in_parts(float (&sum)[N / 2], int blocks, int column, const network_turn &turn)
    {
        float part[N / 2] = {};
#pragma unroll
        for (int i = 0; i < N / 2; i++) sum[i] = 0;
#pragma unroll 1
        for (int k8 = 0; k8 < blocks; k8 += 4) {
            const int at = place_of<hidden>(k8, turn), one = slot, parity_of_one = parity;
            next();
            const int two = slot;
            mbarrier_wait(barriers->full + one, parity_of_one);
            if (BLOCKS_8 < 4) mbarrier_wait(barriers->full + two, parity);
            wgmma_begin();
            enqueue_slot<N, WIDTH, BLOCKS_8>(part, one, turn.slab, at, column, 0);
            if (BLOCKS_8 < 4) enqueue_slot<N, WIDTH, BLOCKS_8>(part, two, turn.slab, at + BLOCKS_8, column, 1);
            wgmma_commit();
            wgmma_wait<0>();
            wgmma_settle(part);
            if (turn.lane == 0) mbarrier_arrive(barriers->empty + one);
            if (BLOCKS_8 < 4) {
                if (turn.lane == 0) mbarrier_arrive(barriers->empty + two);
                next();
            }
#pragma unroll
            for (int i = 0; i < N / 2; i++) sum[i] += part[i];
        }
    }
    // Gives back the weights of a tile in which this group has no slab.
    __device__ __forceinline__ void skip_weights(int lane)
    {
        const int slots = net.layer[0].inputs / 8 / tile::K8 + tile::HIDDEN / 8 / tile::K8 + tile::HIDDEN / 8 / tile::K8_LAST;
#pragma unroll 1
        for (int k = 0; k < slots; k++) {
            mbarrier_wait(barriers->full + slot, parity);
            if (lane == 0) mbarrier_arrive(barriers->empty + slot);
            next();
        }
    }
    // A warp's arrival in both blocks.
    __device__ __forceinline__ void arrive_in_both(uint64_t *mbarrier, int lane)
    {
        if (lane < tile::BLOCKS) mbarrier_arrive_at(cluster_map(mbarrier, lane));
        __syncwarp();
    }
    // Eight hidden features of a row and a block of 8 columns, at `at` of plane 0 of the region.
    __device__ __forceinline__ void store_hidden(char *at, const eight &x)
    {
        const uint4 high = pack_eight<format::bfloat>(x);
        *(uint4 *)at = high;
        if (tile::planes == 1) return;
        eight rest, upper;
        unpack_eight<format::bfloat>(high, upper);
#pragma unroll
        for (int k = 0; k < 8; k++) rest.v[k] = x.v[k] - upper.v[k];
        *(uint4 *)(at + tile::SLABS * tile::SLAB_BYTES) = pack_eight<format::bfloat>(rest);
    }
    // ---- constants of a block's columns: biases of both hidden layers, then the vectors of the third
    __device__ __forceinline__ float *constants_of(int vector)
    {
        return (float *)(shared + tile::CONSTANTS_AT) +
               (vector < 2 ? vector * tile::COLUMNS : 2 * tile::COLUMNS + (vector - 2) * tile::LAST);
    }
    // By the computing warps; a vector that is NULL is zero.
    __device__ __forceinline__ void copy_constants(const tile_constants &last)
    {
        float v[2 + TILE_CONSTANTS];
#pragma unroll
        for (int vector = 0; vector < 2 + TILE_CONSTANTS; vector++) {
            const int width = vector < 2 ? tile::COLUMNS : tile::LAST;
            const float *const from = vector < 2 ? net.layer[vector].bias : last.vector[vector - 2];
            v[vector] = (int)threadIdx.x < width && from ? __ldg(from + rank * width + threadIdx.x) : 0.0f;
        }
#pragma unroll
        for (int vector = 0; vector < 2 + TILE_CONSTANTS; vector++)
            if ((int)threadIdx.x < (vector < 2 ? tile::COLUMNS : tile::LAST)) constants_of(vector)[threadIdx.x] = v[vector];
        group_barrier(1, tile::COMPUTING);
    }
    // After a group's stores of a hidden layer: they are operands from here on, and are sent to the other block.
    __device__ __forceinline__ void share(int slab, bool first)
    {
        async_proxy_fence();
        group_barrier(1 + slab, 128 * tile::SHARING);
        if (!first) return;
#pragma unroll
        for (int plane = 0; plane < tile::planes; plane++) {
            char *const from = slab_at(plane, slab) + rank * tile::HALF_BYTES;
            bulk_copy_to_peer(cluster_map(from, rank ^ 1), from, tile::HALF_BYTES,
                              cluster_map(barriers->arrived + slab, rank ^ 1));
        }
    }
};

/* Sums of rows by the blocks and groups that share them: sends a thread's own, waits, and returns where those of row g are, parts ROWS numbers from
 * each other. */
template <class tile> struct network_exchange {
    network_runner<tile> &run;
    const int slab, parity;
    const bool first;
    __device__ __forceinline__ const float2 *operator()(const network_place &place, const float2 (&of)[2]) const
    {
        const int row = slab * GPU_SLAB + place.row % GPU_SLAB;
        if (place.lane % 4 < tile::BLOCKS) {
            const cluster_base peer = cluster_map(run.shared, place.lane % 4);
#pragma unroll
            for (int h = 0; h < 2; h++)
                store_async(peer, (uint32_t)(tile::MOMENTS_AT + (place.part * tile::ROWS + row + 8 * h) * 8),
                            (uint32_t)((char *)(run.barriers->moments + slab) - run.shared),
                            make_uint2(__float_as_uint(of[h].x), __float_as_uint(of[h].y)));
        }
        mbarrier_wait(run.barriers->moments + slab, parity);
        if (first) run.expect_moments(slab);
        return (const float2 *)(run.shared + tile::MOMENTS_AT) + row;
    }
};

/* The computing warps of a block. */
template <class tile, class Epilogues>
static __device__ __forceinline__ void compute_network(network_runner<tile> &run, const Epilogues &epilogues)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = warp / 4, slab = group / tile::SHARING,
              share = group % tile::SHARING, column = share * tile::MINE, last = share * tile::MINE_LAST;
    const bool first = threadIdx.x % (128 * tile::SHARING) == 0;
    const int row = 16 * (warp % 4) + lane / 4; // of the slab
    char *const mine = run.slab_at(0, slab) + ((run.rank * tile::COLUMNS + column) / 8 + lane % 4) * tile::BLOCK_BYTES + row * 16;
    const auto put = [&](int q, int h, const eight &x) { run.store_hidden(mine + 4 * q * tile::BLOCK_BYTES + h * 128, x); };
    int parity = 0, number = run.cluster;
    auto atoms = epilogues.gather(run.row_of(run.cluster) + GPU_SLAB * slab + row, run.n_rows);
    run.copy_constants(epilogues.constants());
    for (; slab == 0 ? run.exists(number) : number < run.whole; number += run.clusters, parity ^= 1) {
        network_place place = {run.row_of(number) + GPU_SLAB * slab + row,
                               run.rank * tile::COLUMNS + column + 8 * (lane % 4),
                               run.n_rows,
                               lane,
                               run.rank * tile::SHARING + share,
                               0};
        network_turn turn = {slab, lane, first, parity};
        place.constant = column + 8 * (lane % 4);
        {
            float sum[tile::MINE / 2];
            auto added = epilogues.added(atoms, place);
            if (number != run.cluster) epilogues.request(added);
            run.template multiply<tile::MINE, tile::COLUMNS, tile::K8, false>(sum, run.net.layer[0].inputs / 8, column, turn);
            run.arrive_in_both(run.barriers->read + slab, lane);
            if (number == run.cluster) {
                wait_for_previous();
                epilogues.request(added);
            }
            mbarrier_wait(run.barriers->read + slab, 0);
            epilogues.template hide<0>(sum, place, added, run.constants_of(0), put);
        }
        run.share(slab, first);
        turn.phase = 0;
        {
            float sum[tile::MINE / 2];
            run.template multiply<tile::MINE, tile::COLUMNS, tile::K8, true>(sum, tile::HIDDEN / 8, column, turn);
            run.arrive_in_both(run.barriers->read + slab, lane);
            mbarrier_wait(run.barriers->read + slab, 1);
            auto added = epilogues.added(atoms, place);
            epilogues.template hide<1>(sum, place, added, run.constants_of(1), put);
        }
        run.share(slab, first);
        turn.phase = 1;
        place.column = run.rank * tile::LAST + last + 8 * (lane % 4);
        place.constant = last + 8 * (lane % 4);
        if (number + run.clusters < run.tiles)
            atoms = epilogues.gather(run.row_of(number + run.clusters) + GPU_SLAB * slab + row, run.n_rows);
        const auto old = epilogues.prepare(place);
        float sum[tile::MINE_LAST / 2];
        run.template multiply<tile::MINE_LAST, tile::LAST, tile::K8_LAST, true>(sum, tile::HIDDEN / 8, last, turn);
        run.arrive_in_both(&run.barriers->released, lane);
        epilogues.finish(sum, place, old, run.constants_of(2), network_exchange<tile>{run, slab, parity, first});
    }
    if (run.exists(number)) run.skip_weights(lane);
}

/* A whole block. Epilogues: `constants()` returns the third layer's vectors; `gather(row, n_rows)` returns which rows are added in the first layer, of a
 * tile to come, `added(atoms, place)` their place, and `request` begins to load them: before the first product, for a block's first tile behind it.
 * `hide<l>(sum, place, added, bias, put)` is the epilogue of layer l = 0 or 1: it calls put(q, h, x) for eight adjacent columns of block q of 32 and row h;
 * `prepare(place)` returns what the third one needs, before its product; `finish(sum, place, prepared, constants, exchange)` is the third one, and calls
 * `exchange` once. */
template <class tile, class Epilogues>
static __device__ __forceinline__ void run_network(const gpu_network &net, uint4 *shared, const Epilogues &epilogues)
{
    if (!WGMMA_HERE) return;
    network_runner<tile> run(net, shared);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    run.init();
    if (warp >= 4 * tile::GROUPS) {
        wgmma_release_registers<40>();
        if (warp == 4 * tile::GROUPS + run.FETCHING)
            run.fetch_inputs(lane);
        else
            run.fetch_weights(warp - 4 * tile::GROUPS, lane);
    } else {
        wgmma_claim_registers<232>();
        compute_network(run, epilogues);
    }
    __syncwarp();
    cluster_barrier<tile::BLOCKS>(); // the other block may still send to this one
}

#endif
