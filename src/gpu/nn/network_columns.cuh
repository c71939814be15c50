/* SPDX-License-Identifier: MIT */
/* network_columns.cuh: the computing warps of a network's tile whose products are computed transposed, Yᵀ = W Xᵀ (tile_network.cuh): weights are operand A
 * of 64 columns of results, and the tile's rows are operand B, of which there may be any multiple of 8. Two groups of four warps: of the hidden layers each has
 * 128 of the block's columns of all rows, of the third layer all of the block's 128 columns of half of the rows.
 *
 * Sums of a product are (column 16 w + g + 8 i, row 8 j + 2 t + k) in warp w, lane 4 g + t (i, k = 0, 1). Weights are stored so that column 8 j + 2 t + k of
 * rows as operand A would be column 8 t + 2 j + k of a block of 32. Operand A takes every second block of 8 columns, the first product from block 0 on and the
 * second from block 1 on: then a thread has columns 32 w + 8 (g / 2) + 2 n + g % 2, n = 0 … 3. What it has of every second row it exchanges with the
 * thread that has the other columns, so that both have eight adjacent columns of a row, 8 j + 2 t + g % 2. */
#ifndef GPU_NETWORK_COLUMNS_CUH
#define GPU_NETWORK_COLUMNS_CUH

#include "network_runner.cuh"

template <class tile> struct network_columns : network_runner<tile> {
    typedef network_runner<tile> base;
    typedef typename tile::format format;
    using base::barriers;
    using base::base;
    using base::next;
    using base::parity;
    using base::slot;

    // d = products of 128 columns of weights, from `first` on of WIDTH in a slot at `weights`, with N rows at `rows`, of 16 of k from 8 kk on; with `add` they are
    // added to d. Enqueued.
    template <int N, int WIDTH>
    static __device__ __forceinline__ void enqueue(float (&d)[2][N / 2], const char *weights, const char *rows, int first, int kk,
                                                   int add)
    {
        constexpr int DEPTH = GPU_WEIGHT_DEPTH / 8;
        const char *const at = weights + (kk / DEPTH * (WIDTH / 8) + first / 8) * WEIGHTS_COLUMN + kk % DEPTH * WEIGHTS_K;
        const wgmma_operand b = wgmma_operand_at(rows + kk * tile::BLOCK_BYTES, tile::BLOCK_BYTES, 128);
#pragma unroll
        for (int i = 0; i < 2; i++)
            wgmma_shared_product<format::bfloat>(d[i], wgmma_operand_at(at + i * WEIGHTS_COLUMN, WEIGHTS_K, 2 * WEIGHTS_COLUMN),
                                                 b, add);
    }
    // x = products of all `blocks` blocks of 8 of k of 128 columns of weights of WIDTH in a slot, from `column` on, with N rows from `row` on.
    template <int N, int WIDTH, int BLOCKS_8, int SHARE>
    __device__ __forceinline__ void multiply(eight (&x)[1][N / 8], int blocks, int column, int row, const network_turn &turn)
    {
        float sum[2][N / 2];
        if constexpr (format::split)
            multiply_in_parts<N, WIDTH, BLOCKS_8, SHARE>(sum, blocks, column, row, turn);
        else
            multiply_at_once<N, WIDTH, BLOCKS_8, SHARE>(sum, blocks, column, row, turn);
        const bool odd = turn.lane / 4 % 2;
#pragma unroll
        for (int j = 0; j < N / 8; j++)
#pragma unroll
            for (int n = 0; n < 4; n++) { // n = i + 2 h
                const float even_row = sum[n % 2][4 * j + n / 2 * 2], odd_row = sum[n % 2][4 * j + n / 2 * 2 + 1],
                            other = __shfl_xor_sync(~0u, odd ? even_row : odd_row, 4);
                x[0][j].v[2 * n] = odd ? other : even_row;
                x[0][j].v[2 * n + 1] = odd ? odd_row : other;
            }
    }
    template <int N, int WIDTH, int BLOCKS_8, int SHARE>
    __device__ __forceinline__ void multiply_at_once(float (&sum)[2][N / 2], int blocks, int column, int row,
                                                     const network_turn &turn)
    {
        int last = -1;
#pragma unroll
        for (int k = 0; k < N; k++) sum[k % 2][k / 2] = 0;
#pragma unroll 1
        for (int k8 = 0; k8 < blocks; k8 += BLOCKS_8) {
            const char *const rows =
                base::slab_at(0, 0) + base::template place_of<SHARE>(k8, turn) * tile::BLOCK_BYTES + row * 16;
            mbarrier_wait(barriers->full + slot, parity);
            wgmma_begin();
#pragma unroll
            for (int kk = 0; kk < BLOCKS_8; kk += 2) enqueue<N, WIDTH>(sum, base::slot_at(slot), rows, column, kk, 1);
            wgmma_commit();
            wgmma_wait<1>();
            if (last >= 0 && turn.lane == 0) mbarrier_arrive(barriers->empty + last);
            last = slot;
            next();
        }
        wgmma_wait<0>();
        wgmma_settle(sum[0]);
        wgmma_settle(sum[1]);
        if (turn.lane == 0) mbarrier_arrive(barriers->empty + last);
    }
    // As tile_runner::multiply_in_parts: tensor cores add up 32 columns. The weights' low plane is free when its products are complete.
    template <int N, int WIDTH, int BLOCKS_8, int SHARE>
    __device__ __forceinline__ void multiply_in_parts(float (&sum)[2][N / 2], int blocks, int column, int row,
                                                      const network_turn &turn)
    {
        constexpr bool apart = base::template planes_apart<WIDTH, BLOCKS_8>;
        static_assert(BLOCKS_8 == 4, "32 columns");
        float part[2][N / 2] = {};
#pragma unroll
        for (int k = 0; k < N; k++) sum[k % 2][k / 2] = 0;
#pragma unroll 1
        for (int k8 = 0; k8 < blocks; k8 += 4) {
            const int at = base::template place_of<SHARE>(k8, turn) * tile::BLOCK_BYTES + row * 16;
            const char *const high = base::slab_at(0, 0) + at, *const rest = base::slab_at(1, 0) + at;
            const int low_slot = slot;
            mbarrier_wait(barriers->full + slot, parity);
            wgmma_begin();
#pragma unroll
            for (int kk = 0; kk < 4; kk += 2)
                enqueue<N, WIDTH>(part, base::slot_at(low_slot) + (apart ? 0 : 4 * WIDTH * 16), high, column, kk, kk > 0);
            wgmma_commit();
            if (apart) {
                next();
                mbarrier_wait(barriers->full + slot, parity);
            }
            const char *const weights = base::slot_at(slot);
            wgmma_begin();
#pragma unroll
            for (int kk = 0; kk < 4; kk += 2) {
                enqueue<N, WIDTH>(part, weights, rest, column, kk, 1);
                enqueue<N, WIDTH>(part, weights, high, column, kk, 1);
            }
            wgmma_commit();
            if (apart) {
                wgmma_wait<1>();
                if (turn.lane == 0) mbarrier_arrive(barriers->empty + low_slot);
            }
            wgmma_wait<0>();
            wgmma_settle(part[0]);
            wgmma_settle(part[1]);
            if (turn.lane == 0) mbarrier_arrive(barriers->empty + slot);
            next();
#pragma unroll
            for (int k = 0; k < N; k++) sum[k % 2][k / 2] += part[k % 2][k / 2];
        }
    }

    template <class Epilogues> __device__ __forceinline__ void compute(const Epilogues &epilogues)
    {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = warp / 4, row = 2 * (lane % 4) + lane / 4 % 2,
                  octet = 8 * (4 * (warp % 4) + lane / 8), column = group * tile::MINE + octet; // octet: of 128 columns
        const int row_last = group * tile::ROWS_LAST;
        char *const mine = base::slab_at(0, 0) + (base::rank * tile::COLUMNS + column) / 8 * tile::BLOCK_BYTES + row * 16;
        const auto put = [&](int, int h, const eight &x) { base::store_hidden(mine + h * 128, x); };
        int turns = 0; // parity of
        auto atoms = epilogues.gather(base::row_of(base::cluster) + row, base::n_rows);
        base::copy_constants(epilogues.constants());
        for (int number = base::cluster; base::exists(number); number += base::clusters, turns ^= 1) {
            network_place place = {base::row_of(number) + row,
                                   base::rank * tile::COLUMNS + column,
                                   base::n_rows,
                                   lane,
                                   base::rank * 4 + warp % 4,
                                   column};
            network_turn turn = {0, lane, threadIdx.x == 0, turns, 0};
            {
                eight x[1][tile::H];
                auto added = epilogues.added(atoms, place);
                if (number != base::cluster) epilogues.request(added);
                multiply<tile::ROWS, tile::COLUMNS, tile::K8, 0>(x, base::net.layer[0].inputs / 8, group * tile::MINE, 0, turn);
                base::arrive_in_all(barriers->read, lane);
                if (number == base::cluster) {
                    wait_for_previous();
                    epilogues.request(added);
                }
                mbarrier_wait(barriers->read, 0);
                epilogues.template hide<0>(x, place, added, base::constants_of(0), put);
            }
            base::template share<base::HIDDEN_SHARE>(0, 0, threadIdx.x);
            turn.phase = 0;
            {
                eight x[1][tile::H];
                multiply<tile::ROWS, tile::COLUMNS, tile::K8, base::HIDDEN_SHARE>(x, tile::HIDDEN / 8, group * tile::MINE, 0,
                                                                                  turn);
                base::arrive_in_all(barriers->read, lane);
                mbarrier_wait(barriers->read, 1);
                auto added = epilogues.added(atoms, place);
                epilogues.template hide<1>(x, place, added, base::constants_of(1), put);
            }
            base::template share<base::HIDDEN_SHARE>(0, 0, threadIdx.x);
            turn.phase = 1;
            place.row += row_last;
            place.column = base::rank * tile::LAST + octet;
            place.constant = octet;
            if (number + base::clusters < base::tiles)
                atoms = epilogues.gather(base::row_of(number + base::clusters) + row, base::n_rows);
            const auto old = epilogues.prepare(place);
            eight x[1][tile::H_LAST];
            multiply<tile::ROWS_LAST, tile::LAST, tile::K8_LAST, base::HIDDEN_SHARE>(x, tile::HIDDEN / 8, 0, row_last, turn);
            base::arrive_in_all(&barriers->released, lane);
            epilogues.finish(x, place, old, base::constants_of(2),
                             network_exchange<tile>{*this, turn, row_last + row, lane / 8, turns},
                             [](int, int, const eight &) {});
        }
    }
};

#endif
