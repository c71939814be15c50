/* SPDX-License-Identifier: MIT */
/* network_rows.cuh: the computing warps of a network's tile (tile_network.cuh) whose rows are operand A of all products, in slabs of 64. Each group of four warps
 * has a slab, or its share of the block's columns of the only one. */
#ifndef GPU_NETWORK_ROWS_CUH
#define GPU_NETWORK_ROWS_CUH

#include "network_runner.cuh"

template <class tile> struct network_rows : network_runner<tile> {
    typedef network_runner<tile> base;
    typedef typename tile::format format;
    using base::barriers;
    using base::base;
    using base::next;
    using base::parity;
    using base::slot;

    // d = products of slot `at`, BLOCKS_8 blocks of 8 of k at k8 of the slab and N columns of weights of WIDTH in the slot, from `first` on; `low`: the slot of
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
                const char *const weights = plane && base::template planes_apart<WIDTH, BLOCKS_8>
                                                ? base::slot_at(low)
                                                : base::slot_at(at) + plane * (BLOCKS_8 * WIDTH * 16);
                a[plane] = wgmma_operand_at(base::slab_at(plane, slab) + (k8 + kk) * APART, APART, 128);
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
    // x = products of all `blocks` blocks of 8 of k with N columns of weights of WIDTH in a slot, from `column` on.
    template <int N, int WIDTH, int BLOCKS_8, int SHARE>
    __device__ __forceinline__ void multiply(eight (&x)[N / 32][2], int blocks, int column, const network_turn &turn)
    {
        float sum[N / 2];
        if constexpr (format::split)
            multiply_in_parts<N, WIDTH, BLOCKS_8, SHARE>(sum, blocks, column, turn);
        else
            multiply_at_once<N, WIDTH, BLOCKS_8, SHARE>(sum, blocks, column, turn);
#pragma unroll
        for (int k = 0; k < N / 16; k++) x[k / 2][k % 2] = sums_of(sum, k / 2, k % 2, 1.0f);
    }
    template <int N, int WIDTH, int BLOCKS_8, int SHARE>
    __device__ __forceinline__ void multiply_at_once(float (&sum)[N / 2], int blocks, int column, const network_turn &turn)
    {
        int last = -1;
#pragma unroll
        for (int k = 0; k < N / 2; k++) sum[k] = 0;
#pragma unroll 1
        for (int k8 = 0; k8 < blocks; k8 += BLOCKS_8) {
            const int at = base::template place_of<SHARE>(k8, turn);
            mbarrier_wait(barriers->full + slot, parity);
            wgmma_begin();
            enqueue_slot<N, WIDTH, BLOCKS_8, SHARE>(sum, slot, slot, turn.slab, at, column, 1);
            wgmma_commit();
            wgmma_wait<1>();
            if (last >= 0 && turn.lane == 0) mbarrier_arrive(barriers->empty + last);
            base::template free_first_part<SHARE>(k8, turn.lane);
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
        constexpr bool apart = base::template planes_apart<WIDTH, BLOCKS_8>;
        float part[N / 2] = {};
#pragma unroll
        for (int i = 0; i < N / 2; i++) sum[i] = 0;
#pragma unroll 1
        for (int k8 = 0; k8 < blocks; k8 += 4) {
            const int at = base::template place_of<SHARE>(k8, turn), low = slot, parity_of_low = parity;
            if (apart) next();
            const int high = slot;
            mbarrier_wait(barriers->full + low, parity_of_low);
            if (apart) mbarrier_wait(barriers->full + high, parity);
            wgmma_begin();
            enqueue_slot<N, WIDTH, BLOCKS_8, SHARE>(part, high, low, turn.slab, at, column, 0);
            wgmma_commit();
            wgmma_wait<0>();
            wgmma_settle(part);
            if (turn.lane == 0) {
                mbarrier_arrive(barriers->empty + low);
                if (apart) mbarrier_arrive(barriers->empty + high);
            }
            base::template free_first_part<SHARE>(k8, turn.lane);
            next();
#pragma unroll
            for (int i = 0; i < N / 2; i++) sum[i] += part[i];
        }
    }

    template <class Epilogues> __device__ __forceinline__ void compute(const Epilogues &epilogues)
    {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = warp / 4, slab = group / tile::SHARING,
                  sharing = group % tile::SHARING, column = sharing * tile::MINE, last = sharing * tile::MINE_LAST,
                  thread = threadIdx.x % (128 * tile::SHARING), row = 16 * (warp % 4) + lane / 4; // of the slab
        char *const mine =
            base::slab_at(0, slab) + ((base::rank * tile::COLUMNS + column) / 8 + lane % 4) * tile::BLOCK_BYTES + row * 16;
        const auto put = [&](int q, int h, const eight &x) { base::store_hidden(mine + 4 * q * tile::BLOCK_BYTES + h * 128, x); };
        const auto row_in = [&](int number) { return base::row_of(number) + slab * tile::SLAB_ROWS + row; };
        int turns = 0, number = base::cluster; // turns: their parity
        auto atoms = epilogues.gather(row_in(number), base::n_rows);
        base::copy_constants(epilogues.constants());
        for (; slab == 0 ? base::exists(number) : number < base::whole; number += base::clusters, turns ^= 1) {
            network_place place = {row_in(number),
                                   base::rank * tile::COLUMNS + column + 8 * (lane % 4),
                                   base::n_rows,
                                   lane,
                                   base::rank * tile::SHARING + sharing,
                                   column + 8 * (lane % 4)};
            network_turn turn = {slab, lane, thread == 0, turns, 0};
            {
                eight x[tile::Q][2];
                auto added = epilogues.added(atoms, place);
                if (number != base::cluster) epilogues.request(added);
                multiply<tile::MINE, tile::COLUMNS, tile::K8, 0>(x, base::net.layer[0].inputs / 8, column, turn);
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
                eight x[tile::Q][2];
                multiply<tile::MINE, tile::COLUMNS, tile::K8, base::HIDDEN_SHARE>(x, tile::HIDDEN / 8, column, turn);
                base::arrive_in_all(barriers->read + slab, lane);
                mbarrier_wait(barriers->read + slab, 1);
                auto added = epilogues.added(atoms, place);
                epilogues.template hide<1>(x, place, added, base::constants_of(1), put);
            }
            base::template share<base::HIDDEN_SHARE>(0, slab, thread);
            turn.phase = 1;
            place.column = base::rank * tile::LAST + last + 8 * (lane % 4);
            place.constant = last + 8 * (lane % 4);
            if (number + base::clusters < base::tiles) atoms = epilogues.gather(row_in(number + base::clusters), base::n_rows);
            const auto old = epilogues.prepare(place);
            eight x[tile::Q_LAST][2];
            multiply<tile::MINE_LAST, tile::LAST, tile::K8_LAST, base::HIDDEN_SHARE>(x, tile::HIDDEN / 8, last, turn);
            if (!tile::PROJECTS) base::arrive_in_all(&barriers->released, lane);
            // When the other blocks' sums of rows are there, they have read the second hidden layer.
            char *const results = base::slab_at(0, slab) + (place.column / 8) * tile::BLOCK_BYTES + row * 16;
            epilogues.finish(x, place, old, base::constants_of(2), network_exchange<tile>{*this, turn, row, lane % 4, turns},
                             [&](int q, int h, const eight &of) {
                                 if (tile::PROJECTS) base::store_hidden(results + 4 * q * tile::BLOCK_BYTES + h * 128, of);
                             });
            if constexpr (tile::PROJECTS) {
                constexpr int WIDE = tile::WIDE / tile::SHARING;
                eight wide[WIDE / 32][2];
                if (base::net.project.inputs > 0) {
                    base::template share<base::LAST_SHARE>(1, slab, thread);
                    turn.phase = turns, turn.results = 1;
                    multiply<WIDE, tile::WIDE, tile::K8_WIDE, base::LAST_SHARE>(wide, base::net.project.inputs / 8,
                                                                                sharing * WIDE, turn);
                }
                base::arrive_in_all(&barriers->released, lane);
                place.column = base::rank * tile::WIDE + sharing * WIDE + 8 * (lane % 4);
                place.constant = sharing * WIDE + 8 * (lane % 4);
                if (base::net.project.inputs > 0) epilogues.project(wide, place, base::constants_of(2 + TILE_CONSTANTS));
            }
        }
        if (base::exists(number)) base::skip_weights(lane);
    }
};

#endif
