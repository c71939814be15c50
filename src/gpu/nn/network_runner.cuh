/* SPDX-License-Identifier: MIT */
/* network_runner.cuh: what the blocks of a cluster share while they compute a network (tile_network.cuh): tiles, the ring of weights, inputs, exchange of
 * hidden features and of sums of rows. Hopper only. */
#ifndef GPU_NETWORK_RUNNER_CUH
#define GPU_NETWORK_RUNNER_CUH

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

    // Whether a slot has one plane; the slot of the low one is the first.
    template <int WIDTH, int BLOCKS_8> static constexpr bool planes_apart = tile::planes *WIDTH *BLOCKS_8 * 16 > tile::SLOT_BYTES;

    __device__ __forceinline__ network_runner(const gpu_network &net_, uint4 *shared_)
        : net(net_), shared((char *)shared_), barriers((network_barriers *)((char *)shared_ + tile::BARRIERS_AT)),
          rank(cluster_rank<tile::BLOCKS>()), cluster((int)blockIdx.x / tile::BLOCKS), clusters((int)gridDim.x / tile::BLOCKS),
          n_rows(min(*net_.n_rows, net_.first_row + net_.rows))
    {
        const int slabs = (max(n_rows - net.first_row, 0) + tile::SLAB_ROWS - 1) / tile::SLAB_ROWS,
                  rounds = slabs / (tile::SLABS * clusters), rest = slabs - rounds * tile::SLABS * clusters;
        whole = rest > clusters ? (slabs + tile::SLABS - 1) / tile::SLABS : rounds * clusters;
        tiles = rest > clusters ? whole : whole + rest;
    }
    __device__ __forceinline__ void next()
    {
        if (++slot == tile::SLOTS) slot = 0, parity ^= 1;
    }
    // The region of inputs and hidden features.
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
        return net.first_row + (tile::SLABS == 1 ? number * tile::ROWS
                                                 : min(number, whole) * tile::ROWS + max(number - whole, 0) * tile::SLAB_ROWS);
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
            for (int slab = 0; slab < tile::SLABS; slab++) {
                mbarrier_init(barriers->read + slab, 4 * tile::SHARING * tile::BLOCKS);
                mbarrier_init(barriers->moments + slab, 1);
            }
            mbarrier_init_fence();
            for (int k = 0; k < tile::SLABS * (tile::BLOCKS - 1); k++) {
                expect_share<HIDDEN_SHARE>(arrived_at(0, 0, k));
                if (tile::PROJECTS) expect_share<LAST_SHARE>(arrived_at(1, 0, k));
            }
            for (int slab = 0; slab < tile::SLABS; slab++) expect_moments(slab);
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
        mbarrier_expect(barriers->moments + slab, tile::PARTS * tile::SLAB_ROWS * (int)sizeof(float2));
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
            if constexpr (planes_apart<WIDTH, BLOCKS_8>) { // the low one, whose products are added up first
                fetch_slot<WIDTH, BLOCKS_8>(layer, rank * WIDTH, at, 1, lane);
                fetch_slot<WIDTH, BLOCKS_8>(layer, rank * WIDTH, at, 0, lane);
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
        constexpr int PLACES = tile::HIDDEN / 8;
        const gpu_operand &input = net.input[which > 0];
        const int split = net.input[0].columns / 8, begin = which == 2 ? PLACES - split : 0,
                  count = (which == 1 ? min(input.columns / 8, PLACES - split) : input.columns / 8) - begin, row = row_of(number),
                  stored = (net.first_row + net.rows + GPU_SLAB - 1) / GPU_SLAB * GPU_SLAB, // rows of whole slabs of the operand
            rows = min(max(stored - row, 0), slabs_of(number) * tile::SLAB_ROWS);
        if (lane == 0) mbarrier_expect(barriers->input + which, tile::planes * rows * count * 16);
        __syncwarp();
        if (tile::TRANSPOSED) {
            copy_rows(input, row, rows, count, which, lane);
        } else if (lane < tile::planes * (rows / GPU_SLAB)) {
            const int plane = lane % tile::planes, slab = lane / tile::planes;
            bulk_copy(slab_at(plane, slab) + (which == 1 ? split : 0) * tile::INPUT_BYTES,
                      (const char *)(plane ? input.low : input.high) +
                          ((size_t)(row / GPU_SLAB + slab) * (input.columns / 8) + begin) * tile::INPUT_BYTES,
                      count * tile::INPUT_BYTES, barriers->input + which);
        }
        __syncwarp();
    }
    // Of a tile that is no slab of the operand: copies for each plane and block of 8 columns.
    __device__ __forceinline__ void copy_rows(const gpu_operand &input, int row, int rows, int count, int which, int lane)
    {
        for (int k = lane; k < tile::planes * count; k += 32) {
            const int plane = k / count, k8 = k % count;
            for (int done = 0; done < rows;) {
                const int r = row + done, some = min(rows - done, GPU_SLAB - r % GPU_SLAB);
                bulk_copy(slab_at(plane, 0) + k8 * tile::INPUT_BYTES + done * 16,
                          (const char *)(plane ? input.low : input.high) +
                              (((size_t)(r / GPU_SLAB) * (input.columns / 8) + k8) * GPU_SLAB + r % GPU_SLAB) * 16,
                          some * 16, barriers->input + which);
                done += some;
            }
        }
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

    // ---- what products wait for
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
    // Eight hidden features of a row, at `at` of plane 0 of the region.
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
    // After stores of a slab's hidden layer or results: they are operands from here on, and are sent to the other blocks. `thread`: of the slab.
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

/* Sums of rows by the blocks and groups that share them: sends a thread's own of row `row` of the slab and of those 8, 16, … further, waits, and returns where
 * those of `row` are, parts ROWS numbers from each other. The four lanes that have the same rows send to a part of the blocks each. */
template <class tile> struct network_exchange {
    network_runner<tile> &run;
    const network_turn &turn;
    const int row, parity;
    template <int H> __device__ __forceinline__ const float2 *operator()(int part, const float2 (&of)[H]) const
    {
        const int here = turn.slab * tile::SLAB_ROWS + row;
        for (int block = turn.lane / tile::LANES_APART % 4; block < tile::BLOCKS; block += 4) {
            const cluster_base peer = cluster_map(run.shared, block);
#pragma unroll
            for (int h = 0; h < H; h++)
                store_async(peer, (uint32_t)(tile::MOMENTS_AT + (part * tile::ROWS + here + 8 * h) * 8),
                            (uint32_t)((char *)(run.barriers->moments + turn.slab) - run.shared),
                            make_uint2(__float_as_uint(of[h].x), __float_as_uint(of[h].y)));
        }
        mbarrier_wait(run.barriers->moments + turn.slab, parity);
        if (turn.first) run.expect_moments(turn.slab);
        return (const float2 *)(run.shared + tile::MOMENTS_AT) + here;
    }
};

#endif
