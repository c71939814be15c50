/* SPDX-License-Identifier: MIT */
/* tile_network.cuh: a network of three layers for a tile of rows, by a cluster of 2, 4 or 8 blocks; Hopper only. Hidden features stay in
 * shared memory, so that only the network's inputs, its weights and its results move through the L2 cache.
 *
 * A block computes its share of the columns of every layer, equal for all. It needs all columns of the hidden features: each block sends its
 * share to the others, by bulk copies between shared memories, and begins the next layer with its own share. One region of shared memory
 * holds in turn the inputs and both hidden layers of a tile; weights pass through a ring buffer. Two groups of four warps compute, one group
 * in clusters of 8. Rows are operand A of their products (network_rows.cuh), or few rows in clusters of 2 are operand B (network_columns.cuh). Three warps
 * fetch weights, one the inputs of the next tile. Blocks are persistent.
 *
 * The input may have 768 columns, of two operands: the last 256 take the places of the first 256 when these have been read. A fourth layer
 * without activation may follow, of the results, which blocks share as they share hidden features. */
#ifndef GPU_TILE_NETWORK_CUH
#define GPU_TILE_NETWORK_CUH

#include "network_columns.cuh"
#include "network_rows.cuh"

template <bool transposed, class tile> struct network_products {
    typedef network_rows<tile> type;
};
template <class tile> struct network_products<true, tile> {
    typedef network_columns<tile> type;
};

/* The computing warps of a block. */
template <class tile> struct network_computing : network_runner<tile> {
    typedef network_runner<tile> base;
    typedef typename tile::format format;
    typedef typename network_products<tile::TRANSPOSED, tile>::type products;
    using base::barriers;
    using base::base;
    using base::next;
    using base::parity;
    using base::slot;

    template <int SHARE> static constexpr int apart = SHARE == 0 ? tile::INPUT_BYTES : tile::BLOCK_BYTES;
    // d = products of weights of a slot of WIDTH columns with rows whose blocks of 8 of k are `apart` bytes apart, of 16 of k from 8 kk on; with `add` they are
    // added to d. Enqueued.
    template <int WIDTH, int SUMS>
    static __device__ __forceinline__ void enqueue(float (&d)[products::PRODUCTS][SUMS], wgmma_operand weights,
                                                   wgmma_operand rows, int apart, int kk, int add)
    {
        constexpr int DEPTH = GPU_WEIGHT_DEPTH / 8;
        products::enqueue(d, wgmma_operand_after(weights, kk / DEPTH * (WIDTH / 8) * WEIGHTS_COLUMN + kk % DEPTH * WEIGHTS_K),
                          wgmma_operand_after(rows, kk * apart), add);
    }
    // Operands of a product's weights from `column` on in the first slot, and of the slab's rows from `row` on, of plane 0.
    __device__ __forceinline__ wgmma_operand first_weights(int column) const
    {
        return products::weights_at(base::slot_at(0) + column / 8 * WEIGHTS_COLUMN);
    }
    template <int SHARE> __device__ __forceinline__ wgmma_operand first_rows(int row, const network_turn &turn) const
    {
        return wgmma_operand_at(base::slab_at(0, turn.slab) + row * 16, apart<SHARE>, 128);
    }
    template <int SUMS> static __device__ __forceinline__ void settle(float (&d)[products::PRODUCTS][SUMS])
    {
#pragma unroll
        for (int i = 0; i < products::PRODUCTS; i++) wgmma_settle(d[i]);
    }
    // x = products of all `blocks` blocks of 8 of k of weights of WIDTH columns in a slot, from `column` on, with the slab's rows from `row` on.
    template <int WIDTH, int BLOCKS_8, int SHARE, int Q, int H>
    __device__ __forceinline__ void multiply(eight (&x)[Q][H], int blocks, int column, int row, const network_turn &turn)
    {
        float sum[products::PRODUCTS][8 * Q * H / products::PRODUCTS];
#pragma unroll
        for (int k = 0; k < 8 * Q * H; k++) sum[k % products::PRODUCTS][k / products::PRODUCTS] = 0;
        if constexpr (format::split)
            multiply_in_parts<WIDTH, BLOCKS_8, SHARE>(sum, blocks, column, row, turn);
        else
            multiply_at_once<WIDTH, BLOCKS_8, SHARE>(sum, blocks, column, row, turn);
        products::arrange(sum, x, turn.lane);
    }
    template <int WIDTH, int BLOCKS_8, int SHARE, int SUMS>
    __device__ __forceinline__ void multiply_at_once(float (&sum)[products::PRODUCTS][SUMS], int blocks, int column, int row,
                                                     const network_turn &turn)
    {
        const wgmma_operand all_weights = first_weights(column), all_rows = first_rows<SHARE>(row, turn);
        int last = -1;
#pragma unroll 1
        for (int k8 = 0; k8 < blocks; k8 += BLOCKS_8) {
            const wgmma_operand rows = wgmma_operand_after(all_rows, base::template place_of<SHARE>(k8, turn) * apart<SHARE>),
                                weights = wgmma_operand_after(all_weights, slot * tile::SLOT_BYTES);
            mbarrier_wait(barriers->full + slot, parity);
            wgmma_begin();
#pragma unroll
            for (int kk = 0; kk < BLOCKS_8; kk += 2) enqueue<WIDTH>(sum, weights, rows, apart<SHARE>, kk, 1);
            wgmma_commit();
            wgmma_wait<1>();
            if (last >= 0 && turn.lane == 0) mbarrier_arrive(barriers->empty + last);
            base::template free_first_part<SHARE>(k8, turn.lane);
            last = slot;
            next();
        }
        wgmma_wait<0>();
        settle(sum);
        if (turn.lane == 0) mbarrier_arrive(barriers->empty + last);
    }
    // As tile_runner::multiply_in_parts: tensor cores add up 32 columns. While a group adds a part in registers, the products of the other group run. A slot of the
    // weights' low plane is free when its products are complete.
    template <int WIDTH, int BLOCKS_8, int SHARE, int SUMS>
    __device__ __forceinline__ void multiply_in_parts(float (&sum)[products::PRODUCTS][SUMS], int blocks, int column, int row,
                                                      const network_turn &turn)
    {
        constexpr bool planes_apart = base::template planes_apart<WIDTH, BLOCKS_8>;
        static_assert(BLOCKS_8 == 4, "32 columns");
        const wgmma_operand all_weights = first_weights(column), all_rows = first_rows<SHARE>(row, turn);
        float part[products::PRODUCTS][SUMS] = {};
#pragma unroll 1
        for (int k8 = 0; k8 < blocks; k8 += 4) {
            const int low_slot = slot;
            const wgmma_operand high = wgmma_operand_after(all_rows, base::template place_of<SHARE>(k8, turn) * apart<SHARE>),
                                low = wgmma_operand_after(high, tile::SLABS * tile::SLAB_BYTES),
                                low_weights = wgmma_operand_after(all_weights, low_slot * tile::SLOT_BYTES +
                                                                                   (planes_apart ? 0 : 4 * WIDTH * 16));
            mbarrier_wait(barriers->full + slot, parity);
            wgmma_begin();
#pragma unroll
            for (int kk = 0; kk < 4; kk += 2) enqueue<WIDTH>(part, low_weights, high, apart<SHARE>, kk, kk > 0);
            wgmma_commit();
            if (planes_apart) {
                next();
                mbarrier_wait(barriers->full + slot, parity);
            }
            const wgmma_operand weights = wgmma_operand_after(all_weights, slot * tile::SLOT_BYTES);
            wgmma_begin();
#pragma unroll
            for (int kk = 0; kk < 4; kk += 2) {
                enqueue<WIDTH>(part, weights, low, apart<SHARE>, kk, 1);
                enqueue<WIDTH>(part, weights, high, apart<SHARE>, kk, 1);
            }
            wgmma_commit();
            if (planes_apart) {
                wgmma_wait<1>();
                if (turn.lane == 0) mbarrier_arrive(barriers->empty + low_slot);
            }
            wgmma_wait<0>();
            settle(part);
            if (turn.lane == 0) mbarrier_arrive(barriers->empty + slot);
            base::template free_first_part<SHARE>(k8, turn.lane);
            next();
#pragma unroll
            for (int k = 0; k < products::PRODUCTS * SUMS; k++)
                sum[k % products::PRODUCTS][k / products::PRODUCTS] += part[k % products::PRODUCTS][k / products::PRODUCTS];
        }
    }

    template <class Epilogues> __device__ __forceinline__ void compute(const Epilogues &epilogues)
    {
        const int lane = threadIdx.x % 32, warp = warp_in_block() % 4, group = warp_in_block() / 4,
                  slab = tile::SLABS == 1 ? 0 : group, sharing = tile::SLABS == 1 ? group : 0,
                  thread = threadIdx.x % (128 * tile::SHARING); // of the slab
        // Of the thread in the slab and among its group's columns; where the group's columns, and its rows of the third layer, begin.
        const int row = products::row_of(warp, lane), octet = products::column_of(warp, lane), first = sharing * tile::MINE,
                  first_last = tile::TRANSPOSED ? 0 : sharing * tile::MINE_LAST,
                  row_last = tile::TRANSPOSED ? sharing * tile::ROWS_LAST : 0;
        char *const mine =
            base::slab_at(0, slab) + (base::rank * tile::COLUMNS + first + octet) / 8 * tile::BLOCK_BYTES + row * 16;
        const auto put = [&](int q, int h, const eight &x) { base::store_hidden(mine + 4 * q * tile::BLOCK_BYTES + h * 128, x); };
        const auto row_in = [&](int number) { return base::row_of(number) + slab * tile::SLAB_ROWS + row; };
        int odd = 0, number = base::cluster; // odd: whether this is the second, fourth, … tile
        auto atoms = epilogues.gather(row_in(number), base::n_rows);
        base::copy_constants(epilogues.constants());
        for (; slab == 0 ? base::exists(number) : number < base::whole; number += base::clusters, odd ^= 1) {
            network_place place = {row_in(number),
                                   base::rank * tile::COLUMNS + first + octet,
                                   base::n_rows,
                                   lane,
                                   tile::TRANSPOSED ? base::rank * 4 + warp : base::rank * tile::SHARING + sharing,
                                   first + octet};
            network_turn turn = {slab, lane, thread == 0, odd, 0};
            {
                eight x[tile::Q][tile::H];
                auto added = epilogues.added(atoms, place);
                if (number != base::cluster) epilogues.request(added);
                multiply<tile::COLUMNS, tile::K8, 0>(x, base::net.layer[0].inputs / 8, first, 0, turn);
                base::arrive_in_all(barriers->read + slab, lane);
                if (number == base::cluster) {
                    wait_for_previous();
                    epilogues.request(added);
                }
                mbarrier_wait(barriers->read + slab, 0);
                epilogues.template hide<0>(x, place, added, base::constants_of(0), put);
            }
            base::template share<base::HIDDEN_SHARE>(0, slab, thread);
            turn.phase = 0;
            {
                eight x[tile::Q][tile::H];
                multiply<tile::COLUMNS, tile::K8, base::HIDDEN_SHARE>(x, tile::HIDDEN / 8, first, 0, turn);
                base::arrive_in_all(barriers->read + slab, lane);
                mbarrier_wait(barriers->read + slab, 1);
                auto added = epilogues.added(atoms, place);
                epilogues.template hide<1>(x, place, added, base::constants_of(1), put);
            }
            base::template share<base::HIDDEN_SHARE>(0, slab, thread);
            turn.phase = 1;
            place.row += row_last;
            place.column = base::rank * tile::LAST + first_last + octet;
            place.constant = first_last + octet;
            if (number + base::clusters < base::tiles) atoms = epilogues.gather(row_in(number + base::clusters), base::n_rows);
            const auto old = epilogues.prepare(place);
            eight x[tile::Q_LAST][tile::H_LAST];
            multiply<tile::LAST, tile::K8_LAST, base::HIDDEN_SHARE>(x, tile::HIDDEN / 8, first_last, row_last, turn);
            if (!tile::PROJECTS) base::arrive_in_all(&barriers->released, lane);
            // When the other blocks' sums of rows are there, they have read the second hidden layer.
            char *const results = base::slab_at(0, slab) + place.column / 8 * tile::BLOCK_BYTES + row * 16;
            epilogues.finish(x, place, old, base::constants_of(2), network_exchange<tile>{*this, turn, row_last + row, odd},
                             [&](int q, int h, const eight &of) {
                                 if (tile::PROJECTS) base::store_hidden(results + 4 * q * tile::BLOCK_BYTES + h * 128, of);
                             });
            if constexpr (tile::PROJECTS) {
                constexpr int WIDE = tile::WIDE / tile::SHARING;
                eight wide[WIDE / 32][2];
                if (base::net.project.inputs > 0) {
                    base::template share<base::LAST_SHARE>(1, slab, thread);
                    turn.phase = odd, turn.results = 1;
                    multiply<tile::WIDE, tile::K8_WIDE, base::LAST_SHARE>(wide, base::net.project.inputs / 8, sharing * WIDE, 0,
                                                                          turn);
                }
                base::arrive_in_all(&barriers->released, lane);
                place.column = base::rank * tile::WIDE + sharing * WIDE + octet;
                place.constant = sharing * WIDE + octet;
                if (base::net.project.inputs > 0) epilogues.project(wide, place, base::constants_of(2 + TILE_CONSTANTS));
            }
        }
        if (base::exists(number)) base::skip_weights(lane);
    }
};

/* A whole block. Epilogues: `constants()` returns the third layer's vectors; `gather(row, n_rows)` returns which rows are added in the first layer, of a
 * tile to come, `added(atoms, place)` their place, and `request` begins to load them: before the first product, for a block's first tile behind it.
 * `hide<l>(x, place, added, bias, put)` is the epilogue of layer l = 0 or 1: x are sums of products, x[q][h] of eight adjacent columns of block q and row h
 * (network_shape.cuh); it calls put(q, h, x) for each. `prepare(place)` returns what the third one needs, before its product;
 * `finish(x, place, prepared, constants, exchange, put)` is the third one, calls `exchange` once and put(q, h, x) for the results; `project(x, place, bias)` is the
 * fourth one. */
template <class tile, class Epilogues>
static __device__ __forceinline__ void run_network(const gpu_network &net, uint4 *shared, const Epilogues &epilogues)
{
    if (!WGMMA_HERE) return;
    network_computing<tile> run(net, shared);
    const int warp = warp_in_block(), lane = threadIdx.x % 32;
    run.init();
    if (warp >= 4 * tile::GROUPS) {
        if (tile::GROUPS > 1) wgmma_release_registers<40>();
        if (warp == 4 * tile::GROUPS + run.FETCHING)
            run.fetch_inputs(lane);
        else
            run.fetch_weights(warp - 4 * tile::GROUPS, lane);
    } else {
        if (tile::GROUPS > 1) wgmma_claim_registers<232>();
        run.compute(epilogues);
    }
    __syncwarp();
    cluster_barrier<tile::BLOCKS>(); // other blocks may still send to this one
}

#endif
