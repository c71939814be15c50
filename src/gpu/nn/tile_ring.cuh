/* SPDX-License-Identifier: MIT */
/* tile_ring.cuh: tiles whose operands pass through a ring buffer in shared memory. */
#ifndef GPU_TILE_RING_CUH
#define GPU_TILE_RING_CUH

#include "tile.cuh"

template <int NUMBERS, int WIDE> struct tile_runner {
    typedef tile_of<NUMBERS, WIDE> tile;
    typedef number_format<NUMBERS> format;
    const gpu_product &p;
    char *ring;
    tile_barriers *barriers;
    int slot = 0, parity = 0;
    int steps, column_tiles;
    int whole = 1 << 30; // turns of which each is a whole tile

    __device__ __forceinline__ tile_runner(const gpu_product &product_, char *shared, tile_barriers *barriers_)
        : p(product_), ring(shared), barriers(barriers_), steps(product_.layer.inputs / 8 / tile::K8),
          column_tiles((product_.layer.outputs + tile::COLUMNS - 1) / tile::COLUMNS)
    {
    }
    __device__ __forceinline__ void next()
    {
        if (++slot == tile::STAGES) slot = 0, parity ^= 1;
    }
    // What a block computes at a time: a tile, or one of the two slabs of its rows; in float32 that took longer.
    static constexpr bool HALVES = tile::GROUPS > 1 && !format::split;
    struct turn {
        int row, column;
        bool half;
    };
    __device__ __forceinline__ turn turn_of(int number) const
    {
        const bool half = HALVES && number >= whole;
        const int at = half ? whole + (number - whole) / 2 : number, slab = half ? (number - whole) % 2 : 0;
        return {p.first_row + at / column_tiles * tile::ROWS + slab * GPU_SLAB, at % column_tiles * tile::COLUMNS, half};
    }
    // Turns of all blocks. If at most half of them would have a tile in the last round, two share each of its tiles.
    __device__ __forceinline__ int count()
    {
        const int tiles = max(rows_here() - p.first_row + tile::ROWS - 1, 0) / tile::ROWS * column_tiles, blocks = gridDim.x,
                  last = tiles % blocks;
        if (!HALVES || tiles < blocks || 2 * last > blocks) return tiles;
        whole = tiles - last;
        return whole + 2 * last;
    }
    __device__ __forceinline__ char *a_of(int at, int plane, int group) const
    {
        return ring + at * tile::STAGE_BYTES + (plane * tile::GROUPS + group) * tile::A_BYTES;
    }
    __device__ __forceinline__ char *b_of(int at, int plane) const
    {
        return ring + at * tile::STAGE_BYTES + tile::planes * tile::GROUPS * tile::A_BYTES + plane * tile::B_BYTES;
    }

    static constexpr int DEPTH =
        tile::K8 * 8 < GPU_WEIGHT_DEPTH ? tile::K8 : GPU_WEIGHT_DEPTH / 8; // blocks of 8 inputs that are stored together
    // Of the ring: weights of columns from `column` on and of block k8 of 8 inputs of a stage.
    static __device__ __forceinline__ const char *weights_in(const char *b, int column, int k8)
    {
        return b + ((k8 / DEPTH * (tile::COLUMNS / 8) + column / 8) * DEPTH + k8 % DEPTH) * WEIGHTS_K;
    }

    // ---- the fetching warp: each lane one copy
    __device__ __forceinline__ void copy_weights(int at, int column, int step, int lane)
    {
        constexpr int bytes = tile::COLUMNS * DEPTH * 16, pieces = tile::B_BYTES / bytes;
        if (lane >= tile::planes * pieces) return;
        const int plane = lane / pieces, piece = lane % pieces;
        bulk_copy(b_of(at, plane) + piece * bytes, weights_at(p.layer, plane, column, step * tile::K8 + piece * DEPTH), bytes,
                  barriers->full + at);
    }
    __device__ __forceinline__ void copy_rows(int at, const turn &t, int step, int lane)
    {
        const int plane = lane / tile::GROUPS, group = lane % tile::GROUPS;
        if (plane >= tile::planes || (t.half && group > 0)) return;
        bulk_copy(a_of(at, plane, group), operand_at(p, plane, t.row / GPU_SLAB + group, step * tile::K8), tile::A_BYTES,
                  barriers->full + at);
    }
    __device__ __forceinline__ void expect(int at, const turn &t, int lane)
    {
        if (lane == 0) mbarrier_expect(barriers->full + at, tile::STAGE_BYTES - (t.half ? tile::planes * tile::A_BYTES : 0));
        __syncwarp();
    }
    // What does not depend on the previous kernel is requested before that is complete: weights and `early` columns of the first tile,
    // which is computed even if it has no rows.
    __device__ __forceinline__ void fetch(int lane)
    {
        const int ahead = min(steps, (int)tile::STAGES), early = p.early / 8 / tile::K8, first = blockIdx.x;
        const turn mine = turn_of(first);
        for (int k = 0; k < ahead; k++) {
            expect(k, mine, lane);
            copy_weights(k, mine.column, k, lane);
            if (k < early) copy_rows(k, mine, k, lane);
        }
        begin();
        for (int k = early; k < ahead; k++) copy_rows(k, mine, k, lane);
        slot = ahead % tile::STAGES;
        parity = ahead / tile::STAGES;
        const int turns = count();
        for (int number = first; number == first || number < turns; number += gridDim.x) {
            const turn t = turn_of(number);
            for (int k = number == first ? ahead : 0; k < steps; k++) {
                mbarrier_wait(barriers->empty + slot, parity ^ 1);
                expect(slot, t, lane);
                copy_weights(slot, t.column, k, lane);
                copy_rows(slot, t, k, lane);
                next();
            }
        }
    }
    __device__ __forceinline__ void begin()
    {
        wait_for_previous();
        let_next_start();
        if (p.stamp && blockIdx.x == 0 && threadIdx.x % 32 == 0) *p.stamp = gpu_timer();
    }
    __device__ __forceinline__ int rows_here() const
    {
        return min(*p.n_rows, p.first_row + p.rows);
    }

    // ---- the computing warps
    // Of warps that have no rows.
    __device__ __forceinline__ void pass_stages(int lane)
    {
        for (int k = 0; k < steps; k++) {
            mbarrier_wait(barriers->full + slot, parity);
            if (lane == 0) mbarrier_arrive(barriers->empty + slot);
            next();
        }
    }
    // d = products of the columns of a stage with `PART` columns of weights from `first` on, with `add` added to d; enqueued.
    template <int PART> __device__ __forceinline__ void enqueue_stage(float (&d)[PART / 2], int at, int first, int warp, int add)
    {
#pragma unroll
        for (int kk = 0; kk < tile::K8 / 2; kk++) {
            wgmma_operand a[2], b[2];
#pragma unroll
            for (int plane = 0; plane < tile::planes; plane++) {
                a[plane] = wgmma_operand_after(wgmma_operand_at(a_of(0, plane, warp / 4), GPU_SLAB * 16, 128),
                                               at * tile::STAGE_BYTES + kk * 2048);
                b[plane] =
                    wgmma_operand_after(wgmma_operand_at(weights_in(b_of(0, plane), first, 2 * kk), WEIGHTS_K, DEPTH * WEIGHTS_K),
                                        at * tile::STAGE_BYTES);
            }
            if (format::split) {
                wgmma_shared_product<format::bfloat>(d, a[tile::planes - 1], b[0], add || kk > 0);
                wgmma_shared_product<format::bfloat>(d, a[0], b[tile::planes - 1], 1);
            }
            wgmma_shared_product<format::bfloat>(d, a[0], b[0], format::split || add || kk > 0);
        }
    }
    __device__ __forceinline__ void multiply(float (&sum)[tile::COLUMNS / 2], int warp, int lane)
    {
        if (format::split)
            multiply_in_parts(sum, warp, lane);
        else
            multiply_at_once(sum, warp, lane);
    }
    __device__ __forceinline__ void multiply_at_once(float (&sum)[tile::COLUMNS / 2], int warp, int lane)
    {
        int last = -1;
#pragma unroll 1
        for (int k = 0; k < steps; k++) {
            mbarrier_wait(barriers->full + slot, parity);
            wgmma_begin();
            enqueue_stage<tile::COLUMNS>(sum, slot, 0, warp, 1);
            wgmma_commit();
            wgmma_wait<1>();
            if (last >= 0 && lane == 0) mbarrier_arrive(barriers->empty + last);
            last = slot;
            next();
        }
        wgmma_wait<0>();
        wgmma_settle(sum);
        if (lane == 0) mbarrier_arrive(barriers->empty + last);
    }
    // Tensor cores truncate their sums, so the error of a long sum grows with its length: they add up 32 or 64 columns, and registers,
    // which round, add up the rest.
    __device__ __forceinline__ void multiply_in_parts(float (&sum)[tile::COLUMNS / 2], int warp, int lane)
    {
        if constexpr (WIDE == 1)
            multiply_in_halves(sum, warp, lane);
        else
            multiply_in_pairs(sum, warp, lane);
    }
    template <int PART> static __device__ __forceinline__ void add_part(float *sum, float (&part)[PART])
    {
        wgmma_settle(part);
#pragma unroll
        for (int i = 0; i < PART; i++) sum[i] += part[i];
    }
    // Two stages and half of the tile's columns at a time: there are no registers for more. The number of stages is even.
    __device__ __forceinline__ void multiply_in_halves(float (&sum)[tile::COLUMNS / 2], int warp, int lane)
    {
        constexpr int HALF = tile::COLUMNS / 2;
        float part[HALF / 2] = {};
#pragma unroll 1
        for (int k = 0; k < steps; k += 2) {
            const int one = slot;
            mbarrier_wait(barriers->full + slot, parity);
            next();
            const int two = slot;
            mbarrier_wait(barriers->full + slot, parity);
            next();
            wgmma_begin();
            enqueue_stage<HALF>(part, one, 0, warp, 0);
            enqueue_stage<HALF>(part, two, 0, warp, 1);
            wgmma_commit();
            wgmma_wait<0>();
            add_part(sum, part);
            wgmma_begin();
            enqueue_stage<HALF>(part, one, HALF, warp, 0);
            wgmma_commit();
            enqueue_stage<HALF>(part, two, HALF, warp, 1);
            wgmma_commit();
            wgmma_wait<1>();
            if (lane == 0) mbarrier_arrive(barriers->empty + one);
            wgmma_wait<0>();
            if (lane == 0) mbarrier_arrive(barriers->empty + two);
            add_part(sum + HALF / 2, part);
        }
    }
    // Two stages at a time: the first one's products are added up while those of the second are computed. No product is in flight when the
    // loop repeats, else the compiler serializes them (C7520). The number of stages is even.
    __device__ __forceinline__ void multiply_in_pairs(float (&sum)[tile::COLUMNS / 2], int warp, int lane)
    {
        float even[tile::COLUMNS / 2] = {}, odd[tile::COLUMNS / 2] = {};
#pragma unroll 1
        for (int k = 0; k < steps; k += 2) {
            const int one = enqueue_next(even, warp), two = enqueue_next(odd, warp);
            finish_stage<1>(sum, even, one, lane);
            finish_stage<0>(sum, odd, two, lane);
        }
    }
    __device__ __forceinline__ int enqueue_next(float (&part)[tile::COLUMNS / 2], int warp)
    {
        const int mine = slot;
        mbarrier_wait(barriers->full + slot, parity);
        wgmma_begin();
        enqueue_stage<tile::COLUMNS>(part, slot, 0, warp, 0);
        wgmma_commit();
        next();
        return mine;
    }
    template <int LATER>
    __device__ __forceinline__ void finish_stage(float (&sum)[tile::COLUMNS / 2], float (&part)[tile::COLUMNS / 2], int at,
                                                 int lane)
    {
        wgmma_wait<LATER>();
        if (lane == 0) mbarrier_arrive(barriers->empty + at);
        add_part(sum, part);
    }

    // ---- portable: all threads fetch
    __device__ __forceinline__ void copy_stage(int at, int row, int column, int step)
    {
        for (int k = threadIdx.x; k < tile::STAGE_BYTES / 16; k += tile::THREADS) {
            const bool is_a = k < tile::planes * tile::A_BYTES / 16;
            const int rest = is_a ? k : k - tile::planes * tile::A_BYTES / 16, each = (is_a ? tile::A_BYTES : tile::B_BYTES) / 16;
            const int plane = rest / each, piece = rest % each, block = piece / 8; // block: of 8 columns and of 8 inputs
            const char *const from =
                is_a ? operand_at(p, plane, row / GPU_SLAB, step * tile::K8) + (size_t)piece * 16
                     : weights_at(p.layer, plane, column + block / tile::K8 * 8, step * tile::K8 + block % tile::K8) +
                           piece % 8 * 16;
            copy_async((is_a ? a_of(at, plane, 0) : b_of(at, plane)) + piece * 16, from);
        }
        copy_commit();
    }
    __device__ __forceinline__ void multiply_portable(float (&sum)[tile::COLUMNS / 2], int row, int column, int warp, int lane)
    {
        const int g = lane / 4, t = lane % 4;
        copy_stage(0, row, column, 0);
#pragma unroll 1
        for (int k = 0; k < steps; k++) {
            if (k + 1 < steps)
                copy_stage((k + 1) % 2, row, column, k + 1);
            else
                copy_commit();
            copy_wait<1>();
            __syncthreads();
#pragma unroll
            for (int kk = 0; kk < tile::K8 / 2; kk++) {
                uint4 a[2];
#pragma unroll
                for (int plane = 0; plane < tile::planes; plane++) {
                    const char *at = a_of(k % 2, plane, 0) + kk * 2048 + (16 * warp + g) * 16 + 4 * t;
                    a[plane] = make_uint4(word(at), word(at + 128), word(at + 1024), word(at + 1024 + 128));
                }
#pragma unroll
                for (int j = 0; j < tile::COLUMNS / 8; j++) {
                    uint32_t b[2][2];
#pragma unroll
                    for (int plane = 0; plane < tile::planes; plane++) {
                        const char *at = weights_in(b_of(k % 2, plane), 8 * j, 2 * kk) + 16 * g + 4 * t;
                        b[plane][0] = word(at);
                        b[plane][1] = word(at + WEIGHTS_K);
                    }
                    float4 d = make_float4(0, 0, 0, 0); // as multiply_in_parts
                    if (!format::split) d = make_float4(sum[4 * j], sum[4 * j + 1], sum[4 * j + 2], sum[4 * j + 3]);
                    if (format::split) {
                        product<format::bfloat>(d, a[tile::planes - 1], b[0][0], b[0][1]);
                        product<format::bfloat>(d, a[0], b[tile::planes - 1][0], b[tile::planes - 1][1]);
                    }
                    product<format::bfloat>(d, a[0], b[0][0], b[0][1]);
                    if (format::split) d = d + make_float4(sum[4 * j], sum[4 * j + 1], sum[4 * j + 2], sum[4 * j + 3]);
                    sum[4 * j] = d.x, sum[4 * j + 1] = d.y, sum[4 * j + 2] = d.z, sum[4 * j + 3] = d.w;
                }
            }
            __syncthreads();
        }
    }
    static __device__ __forceinline__ uint32_t word(const char *at)
    {
        return *(const uint32_t *)at;
    }
};

/* run_tiles of the other tiles. */
template <int NUMBERS, int WIDE, bool clusters, class Prepare, class Finish>
static __device__ __forceinline__ void run_ring(const gpu_product &p, uint4 *shared, const Prepare &prepare, const Finish &finish)
{
    typedef tile_of<NUMBERS, WIDE> tile;
    if (WIDE && !WGMMA_HERE) return;
    char *const exchange = (char *)shared + tile::EXCHANGE_AT;
    tile_barriers *barriers = (tile_barriers *)(exchange + tile::CLUSTER * tile::ROWS * 8);
    const int lane = threadIdx.x % 32, warp = warp_in_block();
    tile_runner<NUMBERS, WIDE> run(p, (char *)shared, barriers);
    if (WIDE) {
        if (threadIdx.x == 0) {
            for (int k = 0; k < tile::STAGES; k++) {
                mbarrier_init(barriers->full + k, 1);
                mbarrier_init(barriers->empty + k, 4 * tile::GROUPS);
            }
            if (clusters) mbarrier_init_bytes(&barriers->exchange, tile::CLUSTER * tile::ROWS * (int)sizeof(float2));
            mbarrier_init_fence();
        }
        cluster_barrier<clusters ? tile::CLUSTER : 1>();
    } else {
        run.begin();
    }
    const auto compute = [&]() {
        const int group = WIDE == 1 ? warp / 4 : 0, turns = run.count();
        for (int number = blockIdx.x; (WIDE && number == (int)blockIdx.x) || number < turns; number += gridDim.x) {
            const auto turn = run.turn_of(number);
            if (turn.half && group > 0) {
                run.pass_stages(lane);
                continue;
            }
            float sum[tile::COLUMNS / 2];
#pragma unroll
            for (int k = 0; k < tile::COLUMNS / 2; k++) sum[k] = 0;
            const tile_place place = {turn.row + GPU_SLAB * group + 16 * (warp % 4) + lane / 4,
                                      turn.column + 8 * (lane % 4),
                                      run.rows_here(),
                                      lane,
                                      warp,
                                      shared,
                                      (uint32_t)(exchange - (char *)shared),
                                      (uint32_t)((char *)&barriers->exchange - (char *)shared),
                                      turn.column};
            const auto prepared = prepare(place);
            if (WIDE)
                run.multiply(sum, warp, lane);
            else
                run.multiply_portable(sum, turn.row, turn.column, warp, lane);
            if (WIDE) wait_for_previous();
            finish(sum, place, prepared);
        }
    };
    if (WIDE == 0) {
        compute();
    } else if (warp >= 4 * tile::GROUPS) {
        if (WIDE == 1) wgmma_release_registers<40>();
        if (warp == 4 * tile::GROUPS) run.fetch(lane);
    } else {
        if (WIDE == 1) wgmma_claim_registers<232>();
        compute();
    }
}

#endif
