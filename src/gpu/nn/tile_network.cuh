/* SPDX-License-Identifier: MIT */
/* tile_network.cuh: a network of three layers for a tile of rows, by a cluster of 2, 4 or 8 blocks; Hopper only. Hidden features stay in
 * shared memory, so that only the network's inputs, its weights and its results move through the L2 cache.
 *
 * A block computes its share of the columns of every layer, equal for all. It needs all columns of the hidden features: each block sends its
 * share to the others, by bulk copies between shared memories, and begins the next layer with its own share. One region of shared memory
 * holds in turn the inputs and both hidden layers of a tile; weights pass through a ring buffer. Two groups of four warps compute, one group
 * in clusters of 8: in clusters of 2 and of one plane they share the weights and each has 64 rows, else they share 64 rows and each has half
 * of the block's columns. Three warps fetch weights, one the inputs of the next tile. Blocks are persistent. Where the last round has no more
 * slabs than clusters, its tiles are of one slab each.
 *
 * The input may have 768 columns, of two operands: the last 256 take the places of the first 256 when these have been read. A fourth layer
 * without activation may follow, of the results, which blocks share as they share hidden features. */
#ifndef GPU_TILE_NETWORK_CUH
#define GPU_TILE_NETWORK_CUH

#include "network_shape.cuh"

template <class tile> struct network_runner {
    typedef typename tile::format format;
    const gpu_network &net;
    char *const shared;
    network_barriers *const barriers;
    const int rank, cluster, clusters, n_rows; // n_rows: where the rows end
    int tiles, whole;                  // whole: tiles of tile::SLABS slabs; the others, at most one of a cluster, have one
    static constexpr int FETCHING = 3; // warps
    static constexpr int HIDDEN_SHARE = tile::COLUMNS / 8, LAST_SHARE = tile::LAST / 8; // of a block, in blocks of 8 columns
    int slot = 0, parity = 0, turn = 0;                                                 // turn: slots until this warp's next one

    // Whether a slot has one plane; the slot of the high one is the first.
    template <int WIDTH, int BLOCKS_8> static constexpr bool planes_apart = tile::planes *WIDTH *BLOCKS_8 * 16 > tile::SLOT_BYTES;

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
    // Block of 8 of k at place `k8` of the order in which a block reads what blocks have computed, SHARE blocks of 8 each: its own share first.
    template <int SHARE> __device__ __forceinline__ int shared_k8(int k8) const
    {
        return (k8 + rank * SHARE) % (tile::BLOCKS * SHARE);
    }

    __device__ __forceinline__ void init()
    {
        if (threadIdx.x == 0) {
            for (int k = 0; k < tile::SLOTS; k++) {
                mbarrier_init(barriers->full + k, 1);
                mbarrier_init(barriers->empty + k, 4 * tile::GROUPS);
            }
            for (int k = 0; k < 3; k++) mbarrier_init(barriers->input + k, 1);
            mbarrier_init(&barriers->consumed, 4 * tile::GROUPS);
            mbarrier_init(&barriers->released, 4 * tile::GROUPS * tile::BLOCKS);
            for (int k = 0; k < 2 * tile::SLABS * (tile::BLOCKS - 1); k++) mbarrier_init(arrived_at(k % 2, 0, k / 2), 1);
            for (int s = 0; s < tile::SLABS; s++) {
                mbarrier_init(barriers->read + s, 4 * tile::SHARING * tile::BLOCKS);
                mbarrier_init(barriers->moments + s, 1);
            }
            mbarrier_init_fence();
            for (int k = 0; k < tile::SLABS * (tile::BLOCKS - 1); k++) {
                expect_share<HIDDEN_SHARE>(arrived_at(0, 0, k));
                if (tile::PROJECTS) expect_share<LAST_SHARE>(arrived_at(1, 0, k));
            }
            for (int s = 0; s < tile::SLABS; s++) expect_moments(s);
        }
        cluster_barrier<tile::BLOCKS>();
    }
    // Of a slab, of the peer that is `peer` + 1 blocks behind this one.
    __device__ __forceinline__ uint64_t *arrived_at(int results, int slab, int peer) const
    {
        return barriers->arrived[results] + slab * (tile::BLOCKS - 1) + peer;
    }
    template <int SHARE> static __device__ __forceinline__ void expect_share(uint64_t *mbarrier)
    {
        mbarrier_expect(mbarrier, tile::planes * SHARE * tile::BLOCK_BYTES);
    }
    __device__ __forceinline__ void expect_moments(int slab)
    {
        mbarrier_expect(barriers->moments + slab, tile::PARTS * GPU_SLAB * (int)sizeof(float2));
    }

    // ---- the warps that fetch weights, each every third slot: a warp issues its copies one by one
    // The next slot, if it is this warp's: BLOCKS_8 blocks of 8 of k at k8, WIDTH outputs from `column` on, of plane `plane` or, if it is −1, of all.
    template <int WIDTH, int BLOCKS_8>
    __device__ __forceinline__ void fetch_slot(const gpu_linear &layer, int column, int k8, int plane, int lane)
    {
        constexpr int DEPTH = GPU_WEIGHT_DEPTH / 8, PIECES = BLOCKS_8 / DEPTH, EACH = WIDTH * GPU_WEIGHT_DEPTH * 2;
        static_assert(BLOCKS_8 % DEPTH == 0, "whole pieces of memory");
        const bool mine = turn == 0;
        const int planes = plane < 0 ? tile::planes : 1;
        turn = mine ? FETCHING - 1 : turn - 1;
        if (mine) mbarrier_wait(barriers->empty + slot, parity ^ 1);
        if (mine && lane == 0) mbarrier_expect(barriers->full + slot, planes * PIECES * EACH);
        __syncwarp();
        if (mine && lane < planes * PIECES)
            bulk_copy(slot_at(slot) + lane * EACH,
                      weights_at(layer, plane < 0 ? lane / PIECES : plane, column, k8 + lane % PIECES * DEPTH), EACH,
                      barriers->full + slot);
        next();
    }
    // SHARE as in place_of.
    template <int WIDTH, int BLOCKS_8, int SHARE> __device__ __forceinline__ void fetch_layer(const gpu_linear &layer, int lane)
    {
        for (int k8 = 0; k8 < layer.inputs / 8; k8 += BLOCKS_8) {
            const int at = SHARE ? shared_k8 < SHARE ? SHARE : 1 > (k8) : k8;
            if constexpr (planes_apart<WIDTH, BLOCKS_8>) {
                fetch_slot<WIDTH, BLOCKS_8>(layer, rank * WIDTH, at, 0, lane);
                fetch_slot<WIDTH, BLOCKS_8>(layer, rank * WIDTH, at, 1, lane);
            } else {
                fetch_slot<WIDTH, BLOCKS_8>(layer, rank * WIDTH, at, -1, lane);
            }
        }
    }
    // The first slots are requested before the previous kernel is complete.
    __device__ __forceinline__ void fetch_weights(int which, int lane)
    {
        turn = which;
        for (int number = cluster; exists(number); number += clusters) {
            fetch_layer<tile::COLUMNS, tile::K8, 0>(net.layer[0], lane);
            fetch_layer<tile::COLUMNS, tile::K8, HIDDEN_SHARE>(net.layer[1], lane);
            fetch_layer<tile::LAST, tile::K8_LAST, HIDDEN_SHARE>(net.layer[2], lane);
            if constexpr (tile::PROJECTS) fetch_layer<tile::WIDE, tile::K8_WIDE, LAST_SHARE>(net.project, lane);
        }
    }
    // ---- the warp that fetches inputs
    // Part `which` of a tile's input: the first operand; as many columns of the second one as there are places for; the rest of it, in the places of
    // the first operand.
    __device__ __forceinline__ void fetch_part(int number, int which, int lane)
    {
        constexpr int BYTES = tile::INPUT_BYTES, PLACES = tile::HIDDEN / 8;
        const gpu_operand &input = net.input[which > 0];
        const int split = net.input[0].columns / 8, begin = which == 2 ? PLACES - split : 0,
                  count = (which == 1 ? min(input.columns / 8, PLACES - split) : input.columns / 8) - begin, row = row_of(number);
        int slabs = 0; // that exist
        while (slabs < slabs_of(number) && row + GPU_SLAB * slabs < net.first_row + net.rows) slabs++;
        if (lane == 0) mbarrier_expect(barriers->input + which, tile::planes * slabs * count * BYTES);
        __syncwarp();
        if (lane < tile::planes * slabs) {
            const int plane = lane / slabs, slab = lane % slabs;
            bulk_copy(slab_at(plane, slab) + (which == 1 ? split : 0) * BYTES,
                      (const char *)(plane ? input.low : input.high) +
                          ((size_t)(row / GPU_SLAB + slab) * (input.columns / 8) + begin) * BYTES,
                      count * BYTES, barriers->input + which);
        }
        __syncwarp();
    }
    __device__ __forceinline__ void fetch_inputs(int lane)
    {
        const int columns = net.input[0].columns + net.input[1].columns, parts = net.input[1].columns ? 2 : 1;
        int phase = 0;
        if (net.early) fetch_part(cluster, 0, lane);
        wait_for_previous();
        let_next_start();
        if (net.stamp && blockIdx.x == 0 && lane == 0) *net.stamp = gpu_timer();
        for (int number = cluster; exists(number); number += clusters, phase ^= 1) {
            if (number != cluster) mbarrier_wait(&barriers->released, phase ^ 1);
            for (int which = number == cluster && net.early; which < parts; which++) fetch_part(number, which, lane);
            if (columns <= tile::HIDDEN) continue;
            mbarrier_wait(&barriers->consumed, phase);
            fetch_part(number, 2, lane);
        }
    }

    // ---- the computing warps
    // d = products of slot `at`, `BLOCKS_8` blocks of 8 of k at k8 of the slab and N columns of weights of `WIDTH` in the slot, from `first` on; `low`: the slot of
    // the low plane.
    template <int N, int WIDTH, int BLOCKS_8, int SHARE>
    __device__ __forceinline__ void enqueue_slot(float (&d)[N / 2], int at, int low, int slab, int k8, int first, int add)
    {
        constexpr int APART = SHARE == 0 ? tile::INPUT_BYTES : tile::BLOCK_BYTES, DEPTH = GPU_WEIGHT_DEPTH / 8;
#pragma unroll
        for (int kk = 0; kk < BLOCKS_8; kk += 2) {
            wgmma_operand a[2], b[2];
#pragma unroll
            for (int plane = 0; plane < tile::planes; plane++) {
                const char *const weights =
                    plane && planes_apart<WIDTH, BLOCKS_8> ? slot_at(low) : slot_at(at) + plane * (BLOCKS_8 * WIDTH * 16);
                a[plane] = wgmma_operand_at(slab_at(plane, slab) + (k8 + kk) * APART, APART, 128);
                b[plane] =
                    wgmma_operand_at(weights + (kk / DEPTH * (WIDTH / 8) + first / 8) * WEIGHTS_COLUMN + kk % DEPTH * WEIGHTS_K,
                                     WEIGHTS_K, WEIGHTS_COLUMN);
            }
            if (format::split) {
                wgmma_shared_product<format::bfloat>(d, a[tile::planes - 1], b[0], add || kk > 0);
                wgmma_shared_product<format::bfloat>(d, a[0], b[tile::planes - 1], 1);
            }
            wgmma_shared_product<format::bfloat>(d, a[0], b[0], format::split || add || kk > 0);
        }
    }
    // Waits for what the slot at k8 needs, an input (SHARE 0) or another block's share; returns its place in the slab.
    template <int SHARE> __device__ __forceinline__ int place_of(int k8, const network_turn &turn)
    {
        if constexpr (SHARE == 0) {
            const int split = net.input[0].columns / 8;
            if (k8 == 0) mbarrier_wait(barriers->input, turn.phase);
            if (tile::TWO && k8 == split) mbarrier_wait(barriers->input + 1, turn.phase);
            if (tile::TWO && k8 == tile::HIDDEN / 8) mbarrier_wait(barriers->input + 2, turn.phase);
            return k8 % (tile::HIDDEN / 8);
        } else {
            if (k8 > 0 && k8 % SHARE == 0) {
                uint64_t *const arrived = arrived_at(turn.results, turn.slab, k8 / SHARE - 1);
                mbarrier_wait(arrived, turn.phase);
                if (turn.first) expect_share<SHARE>(arrived);
            }
            return shared_k8<SHARE>(k8);
        }
    }
    // After the products of the slot at k8 are enqueued and those before it complete.
    template <int SHARE> __device__ __forceinline__ void free_first_part(int k8, int lane)
    {
        if (SHARE == 0 && tile::TWO && k8 == net.input[0].columns / 8 && lane == 0) mbarrier_arrive(&barriers->consumed);
    }
    // sum = products of all `blocks` blocks of 8 of k with N columns of weights of WIDTH in a slot, from `column` on.
    template <int N, int WIDTH, int BLOCKS_8, int SHARE>
    __device__ __forceinline__ void multiply(float (&sum)[N / 2], int blocks, int column, const network_turn &turn)
    {
        if (format::split)
            multiply_in_parts<N, WIDTH, BLOCKS_8, SHARE>(sum, blocks, column, turn);
        else
            multiply_at_once<N, WIDTH, BLOCKS_8, SHARE>(sum, blocks, column, turn);
    }
    template <int N, int WIDTH, int BLOCKS_8, int SHARE>
    __device__ __forceinline__ void multiply_at_once(float (&sum)[N / 2], int blocks, int column, const network_turn &turn)
    {
        int last = -1;
#pragma unroll
        for (int k = 0; k < N / 2; k++) sum[k] = 0;
#pragma unroll 1
        for (int k8 = 0; k8 < blocks; k8 += BLOCKS_8) {
            const int at = place_of<SHARE>(k8, turn);
            mbarrier_wait(barriers->full + slot, parity);
            wgmma_begin();
            enqueue_slot<N, WIDTH, BLOCKS_8, SHARE>(sum, slot, slot, turn.slab, at, column, 1);
            wgmma_commit();
            wgmma_wait<1>();
            if (last >= 0 && turn.lane == 0) mbarrier_arrive(barriers->empty + last);
            free_first_part<SHARE>(k8, turn.lane);
            last = slot;
            next();
        }
        wgmma_wait<0>();
        wgmma_settle(sum);
        if (turn.lane == 0) mbarrier_arrive(barriers->empty + last);
    }
    // As tile_runner::multiply_in_parts: tensor cores add up 32 columns. While a group adds a part in registers, the products of the other group run.
    template <int N, int WIDTH, int BLOCKS_8, int SHARE>
    __device__ __forceinline__ void multiply_in_parts(float (&sum)[N / 2], int blocks, int column, const network_turn &turn)
    {
        constexpr bool apart = planes_apart<WIDTH, BLOCKS_8>;
        float part[N / 2] = {};
#pragma unroll
        for (int i = 0; i < N / 2; i++) sum[i] = 0;
#pragma unroll 1
        for (int k8 = 0; k8 < blocks; k8 += 4) {
            const int at = place_of<SHARE>(k8, turn), one = slot, parity_of_one = parity;
            next();
            const int two = slot;
            mbarrier_wait(barriers->full + one, parity_of_one);
            if (apart) mbarrier_wait(barriers->full + two, parity);
            wgmma_begin();
            enqueue_slot<N, WIDTH, BLOCKS_8, SHARE>(part, one, two, turn.slab, at, column, 0);
            wgmma_commit();
            wgmma_wait<0>();
            wgmma_settle(part);
            if (turn.lane == 0) mbarrier_arrive(barriers->empty + one);
            free_first_part<SHARE>(k8, turn.lane);
            if (apart) {
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
        const int slots = (net.layer[0].inputs + tile::HIDDEN) / 8 / tile::K8 + tile::HIDDEN / 8 / tile::K8_LAST; // of one plane
#pragma unroll 1
        for (int k = 0; k < slots; k++) {
            mbarrier_wait(barriers->full + slot, parity);
            if (lane == 0) mbarrier_arrive(barriers->empty + slot);
            next();
        }
    }
    // A warp's arrival in all blocks.
    __device__ __forceinline__ void arrive_in_all(uint64_t *mbarrier, int lane)
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
    // ---- constants of a block's columns: biases of both hidden layers, the vectors of the third, the bias of the fourth
    __device__ __forceinline__ float *constants_of(int vector)
    {
        const int last = max(vector - 2, 0); // vectors of the third layer before it
        return (float *)(shared + tile::CONSTANTS_AT) + min(vector, 2) * tile::COLUMNS + last * tile::LAST;
    }
    static __device__ __forceinline__ int width_of(int vector)
    {
        return vector < 2 ? tile::COLUMNS : vector < 2 + TILE_CONSTANTS ? tile::LAST : tile::WIDE;
    }
    // By the computing warps; a vector that is NULL is zero.
    __device__ __forceinline__ void copy_constants(const tile_constants &last)
    {
        constexpr int VECTORS = 2 + TILE_CONSTANTS + (tile::PROJECTS ? 1 : 0);
        float v[VECTORS];
#pragma unroll
        for (int vector = 0; vector < VECTORS; vector++) {
            const int width = width_of(vector);
            const float *const from = vector < 2                    ? net.layer[vector].bias
                                      : vector < 2 + TILE_CONSTANTS ? last.vector[vector - 2]
                                                                    : net.project.bias;
            v[vector] = (int)threadIdx.x < width && from ? __ldg(from + rank * width + threadIdx.x) : 0.0f;
        }
#pragma unroll
        for (int vector = 0; vector < VECTORS; vector++)
            if ((int)threadIdx.x < width_of(vector)) constants_of(vector)[threadIdx.x] = v[vector];
        group_barrier(1, tile::COMPUTING);
    }
    // After a group's stores of a hidden layer or of results: they are operands from here on, and are sent to the other blocks. `thread`: of the slab.
    template <int SHARE> __device__ __forceinline__ void share(int results, int slab, int thread)
    {
        async_proxy_fence();
        group_barrier(1 + slab, 128 * tile::SHARING);
        if (thread >= tile::BLOCKS - 1) return;
        const int peer = (rank + tile::BLOCKS - 1 - thread) % tile::BLOCKS; // it is `thread` + 1 blocks before this one
        const cluster_base arrived = cluster_map(arrived_at(results, slab, thread), peer);
#pragma unroll
        for (int plane = 0; plane < tile::planes; plane++) {
            char *const from = slab_at(plane, slab) + rank * SHARE * tile::BLOCK_BYTES;
            bulk_copy_to_peer(cluster_map(from, peer), from, SHARE * tile::BLOCK_BYTES, arrived);
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
        for (int block = place.lane % 4; block < tile::BLOCKS; block += 4) {
            const cluster_base peer = cluster_map(run.shared, block);
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
    typedef network_runner<tile> runner;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = warp / 4, slab = group / tile::SHARING,
              share = group % tile::SHARING, column = share * tile::MINE, last = share * tile::MINE_LAST;
    const int thread = threadIdx.x % (128 * tile::SHARING); // of the slab
    const bool first = thread == 0;
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
        network_turn turn = {slab, lane, first, parity, 0};
        place.constant = column + 8 * (lane % 4);
        {
            float sum[tile::MINE / 2];
            auto added = epilogues.added(atoms, place);
            if (number != run.cluster) epilogues.request(added);
            run.template multiply<tile::MINE, tile::COLUMNS, tile::K8, 0>(sum, run.net.layer[0].inputs / 8, column, turn);
            run.arrive_in_all(run.barriers->read + slab, lane);
            if (number == run.cluster) {
                wait_for_previous();
                epilogues.request(added);
            }
            mbarrier_wait(run.barriers->read + slab, 0);
            epilogues.template hide<0>(sum, place, added, run.constants_of(0), put);
        }
        run.template share<runner::HIDDEN_SHARE>(0, slab, thread);
        turn.phase = 0;
        {
            float sum[tile::MINE / 2];
            run.template multiply<tile::MINE, tile::COLUMNS, tile::K8, runner::HIDDEN_SHARE>(sum, tile::HIDDEN / 8, column, turn);
            run.arrive_in_all(run.barriers->read + slab, lane);
            mbarrier_wait(run.barriers->read + slab, 1);
            auto added = epilogues.added(atoms, place);
            epilogues.template hide<1>(sum, place, added, run.constants_of(1), put);
        }
        run.template share<runner::HIDDEN_SHARE>(0, slab, thread);
        turn.phase = 1;
        place.column = run.rank * tile::LAST + last + 8 * (lane % 4);
        place.constant = last + 8 * (lane % 4);
        if (number + run.clusters < run.tiles)
            atoms = epilogues.gather(run.row_of(number + run.clusters) + GPU_SLAB * slab + row, run.n_rows);
        const auto old = epilogues.prepare(place);
        float sum[tile::MINE_LAST / 2];
        run.template multiply<tile::MINE_LAST, tile::LAST, tile::K8_LAST, runner::HIDDEN_SHARE>(sum, tile::HIDDEN / 8, last,
                                                                                                turn);
        if (!tile::PROJECTS) run.arrive_in_all(&run.barriers->released, lane);
        // When the other blocks' sums of rows are there, they have read the second hidden layer.
        char *const results = run.slab_at(0, slab) + (place.column / 8) * tile::BLOCK_BYTES + row * 16;
        epilogues.finish(sum, place, old, run.constants_of(2), network_exchange<tile>{run, slab, parity, first},
                         [&](int q, int h, const eight &x) {
                             if (tile::PROJECTS) run.store_hidden(results + 4 * q * tile::BLOCK_BYTES + h * 128, x);
                         });
        if constexpr (tile::PROJECTS) {
            float wide[tile::WIDE / tile::SHARING / 2];
            const int mine_wide = share * (tile::WIDE / tile::SHARING);
            if (run.net.project.inputs > 0) {
                run.template share<runner::LAST_SHARE>(1, slab, thread);
                turn.phase = parity, turn.results = 1;
                run.template multiply<tile::WIDE / tile::SHARING, tile::WIDE, tile::K8_WIDE, runner::LAST_SHARE>(
                    wide, run.net.project.inputs / 8, mine_wide, turn);
            }
            run.arrive_in_all(&run.barriers->released, lane);
            place.column = run.rank * tile::WIDE + mine_wide + 8 * (lane % 4);
            place.constant = mine_wide + 8 * (lane % 4);
            if (run.net.project.inputs > 0) epilogues.project(wide, place, run.constants_of(2 + TILE_CONSTANTS));
        }
    }
    if (run.exists(number)) run.skip_weights(lane);
}

/* A whole block. Epilogues: `constants()` returns the third layer's vectors; `gather(row, n_rows)` returns which rows are added in the first layer, of a
 * tile to come, `added(atoms, place)` their place, and `request` begins to load them: before the first product, for a block's first tile behind it.
 * `hide<l>(sum, place, added, bias, put)` is the epilogue of layer l = 0 or 1: it calls put(q, h, x) for eight adjacent columns of block q of 32 and row h;
 * `prepare(place)` returns what the third one needs, before its product; `finish(sum, place, prepared, constants, exchange, put)` is the third one, calls
 * `exchange` once and put(q, h, x) for the results; `project(sum, place, bias)` is the fourth one. */
template <class tile, class Epilogues>
static __device__ __forceinline__ void run_network(const gpu_network &net, uint4 *shared, const Epilogues &epilogues)
{
    if (!WGMMA_HERE) return;
    network_runner<tile> run(net, shared);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    run.init();
    if (warp >= 4 * tile::GROUPS) {
        if (tile::GROUPS > 1) wgmma_release_registers<40>();
        if (warp == 4 * tile::GROUPS + run.FETCHING)
            run.fetch_inputs(lane);
        else
            run.fetch_weights(warp - 4 * tile::GROUPS, lane);
    } else {
        if (tile::GROUPS > 1) wgmma_claim_registers<232>();
        compute_network(run, epilogues);
    }
    __syncwarp();
    cluster_barrier<tile::BLOCKS>(); // other blocks may still send to this one
}

#endif
