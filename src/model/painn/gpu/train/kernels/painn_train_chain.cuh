/* SPDX-License-Identifier: MIT */
/* painn_train_chain.cuh: products, exchanges and shared memory of a cluster that does several products at atoms in one kernel
 * (painn_train_chain.cu). */
#ifndef PAINN_TRAIN_CHAIN_CUH
#define PAINN_TRAIN_CHAIN_CUH

#include "painn_train_node.cuh"

enum {
    CHAIN_ROWS = 16,
    CHAIN_COLUMNS = 16, /* threads of a row */
    CHAIN_THREADS = CHAIN_ROWS * CHAIN_COLUMNS,
    CHAIN_EXCHANGES = 8,
    CHAIN_BLOCKS = PAINN_TRAIN_MAX_FEATURES / CHAIN_COLUMNS, /* of a cluster at most */
    CHAIN_ENERGIES = 64,                                     /* offsets in bytes: mbarriers come first */
    CHAIN_BUFFERS = CHAIN_ENERGIES + 4 * CHAIN_ROWS * CHAIN_BLOCKS
};

/* Warps that share the terms of a product of `width` features of a block. */
static inline PAINN_BOTH constexpr int chain_splits(int width)
{
    return CHAIN_THREADS / 32 * 8 / width;
}

/* What a kernel does, in this order. */
enum { CHAIN_UPDATE = 1, CHAIN_NET = 2, CHAIN_READOUT = 4, CHAIN_NET_BACK = 8, CHAIN_UPDATE_BACK = 16 };

/* Floats of a tile of rows, of vectors and of sums. */
static inline PAINN_BOTH int chain_rows(int width)
{
    return CHAIN_ROWS * (width + TF32_ROW_PAD);
}
/* Floats of buffer `which`; the first rows of a kernel stand in buffer 1. */
static inline PAINN_BOTH int chain_buffer(int pieces, int which, int F)
{
    if (pieces & (which ? CHAIN_NET_BACK : CHAIN_READOUT) && pieces & CHAIN_UPDATE_BACK) return 3 * chain_rows(2 * F);
    if (pieces & CHAIN_UPDATE) return which ? 3 * chain_rows(F) : chain_rows(2 * F);
    return chain_rows(which && pieces & CHAIN_NET_BACK ? 3 * F : F);
}
/* Floats of the shares' sums: `blocks` times `width` columns for each of `rows` rows. */
static inline PAINN_BOTH int chain_sums(int width, int rows, int blocks)
{
    return chain_splits(width) * rows * (width * blocks + 4);
}
static inline int chain_bytes(int width, int pieces, int F)
{
    const int sums = pieces & CHAIN_UPDATE        ? chain_sums(width, 3 * CHAIN_ROWS, 2)
                     : pieces & CHAIN_UPDATE_BACK ? chain_sums(width, 3 * CHAIN_ROWS, 1)
                                                  : chain_sums(width, CHAIN_ROWS, 3);
    return CHAIN_BUFFERS + 4 * (chain_buffer(pieces, 0, F) + chain_buffer(pieces, 1, F) + sums);
}

/* A block of a cluster with WIDTH features, as one of its threads sees it. */
template <int WIDTH> struct chain {
    enum { EACH = WIDTH / CHAIN_COLUMNS, SPLITS = chain_splits(WIDTH), SENDERS = 4 / EACH };
    /* EACH: neighboring features of a thread; SENDERS: threads that send four numbers together, each to every SENDERS-th block */
    const painn_train_step &s;
    uint4 *memory;
    float *buffer[2], *sums;
    int rank, blocks, row, column; /* column: of the thread's first feature in the block */
    int first, n;                  /* atom of row 0, atoms of the batch */
    cluster_base peer[2];          /* that this lane sends to: ranks lane % SENDERS and lane % SENDERS + SENDERS */

    __device__ __forceinline__ uint64_t *mbarrier(int exchange) const
    {
        return (uint64_t *)memory + exchange;
    }

    __device__ __forceinline__ chain(const painn_train_step &step, uint4 *shared, int pieces) : s(step), memory(shared)
    {
        const int F = s.n_features;
        blocks = F / WIDTH;
        rank = (int)blockIdx.x % blocks;
        row = (int)threadIdx.x / CHAIN_COLUMNS;
        column = (int)threadIdx.x % CHAIN_COLUMNS * EACH;
        buffer[0] = (float *)memory + CHAIN_BUFFERS / 4;
        buffer[1] = buffer[0] + chain_buffer(pieces, 0, F);
        sums = buffer[1] + chain_buffer(pieces, 1, F);
        first = (int)blockIdx.x / blocks * CHAIN_ROWS;
        n = s.call->n_atoms; /* written two kernels ago at the latest */
        for (int k = 0; k < 2; k++) peer[k] = cluster_map(memory, min(receiver(k), blocks - 1));
    }
    static __device__ __forceinline__ int receiver(int k)
    {
        return (int)threadIdx.x % SENDERS + SENDERS * k;
    }
    __device__ __forceinline__ element own() const
    {
        return {max(0, min(first + row, n - 1)), rank * WIDTH + column, first + row < n};
    }

    /* ---- exchanges */

    /* By one thread: exchange k brings rows of `width` features to each block, and `more` bytes. */
    __device__ __forceinline__ void expect(int k, int width, int more = 0) const
    {
        mbarrier_init_bytes(mbarrier(k), 4 * CHAIN_ROWS * width + more);
    }
    /* After all mbarriers are initialized. */
    __device__ __forceinline__ void announce() const
    {
        if (threadIdx.x == 0) mbarrier_init_fence();
        cluster_arrive_relaxed();
    }
    /* The previous kernel's results are needed from here on, and all blocks of the cluster have their mbarriers. */
    __device__ __forceinline__ void begin() const
    {
        wait_for_previous();
        let_next_start();
        cluster_wait();
    }
    __device__ __forceinline__ const float *rows(int exchange) const
    {
        return buffer[exchange & 1];
    }
    __device__ __forceinline__ void receive(int exchange) const
    {
        mbarrier_wait_bytes(mbarrier(exchange));
    }
    /* Numbers for the columns from `to` on of a row of `width` in all blocks; neighboring lanes have neighboring columns. By whole
     * warps. */
    __device__ __forceinline__ void send(int exchange, int to_row, int to, int width, const numbers<EACH> &v,
                                         bool valid = true) const
    {
        const int first_lane = (int)threadIdx.x % 32 & ~(SENDERS - 1);
        float four[4];
        for (int k = 0; k < 4; k++) four[k] = __shfl_sync(0xffffffffu, v.v[k % EACH], first_lane + k / EACH);
        const float *there = buffer[exchange & 1] + to_row * (width + TF32_ROW_PAD) + (to & ~3);
        const uint32_t offset = (uint32_t)((const char *)there - (const char *)memory), open = 8u * (uint32_t)exchange;
        const uint4 bits =
            make_uint4(__float_as_uint(four[0]), __float_as_uint(four[1]), __float_as_uint(four[2]), __float_as_uint(four[3]));
        for (int k = 0; k < 2; k++)
            if (valid && receiver(k) < blocks) store_async(peer[k], offset, open, bits);
    }

    /* ---- rows that the previous kernel wrote */

    /* `width` columns of each row of `from`, whose rows are `stride` apart, into rows of `to_width`; axes 3: vectors, axis then atom. */
    __device__ __forceinline__ void load_rows(int exchange, const float *from, int axes, int width, int stride,
                                              int to_width) const
    {
        const int piece = 4 * ((int)threadIdx.x % CHAIN_COLUMNS);
        for (int axis = 0; axis < axes; axis++) {
            float *to = buffer[exchange & 1] + (axis * CHAIN_ROWS + row) * (to_width + TF32_ROW_PAD);
            const float *line = from + ((size_t)own().atom * axes + axis) * stride;
            for (int c = piece; c < width; c += 4 * CHAIN_COLUMNS) copy_async(to + c, line + c);
        }
    }
    __device__ __forceinline__ void rows_loaded() const
    {
        copy_commit();
        copy_wait<0>();
        __syncthreads();
    }

    /* ---- sums of a product with NB blocks of columns */

    /* Of the thread's features, in row r of `rows`. */
    template <int NB> __device__ __forceinline__ numbers<EACH> sum(int rows, int r, int b = 0) const
    {
        const float *from = sums + r * (WIDTH * NB + 4) + WIDTH * b + column;
        numbers<EACH> total = numbers_at<EACH>(from);
        for (int k = 1; k < SPLITS; k++) total = total + numbers_at<EACH>(from + k * rows * (WIDTH * NB + 4));
        return total;
    }
};

/* A warp's weights of a product of at most 64 DEPTH terms: 8 of the block's columns of NB blocks, STEPS times 16 terms. */
template <int WIDTH, int NB, int DEPTH> struct chain_weights {
    enum { UNITS = WIDTH / 8, SPLITS = chain_splits(WIDTH), STEPS = DEPTH * 4 / SPLITS };
    float4 v[STEPS][1][NB];

    static __device__ __forceinline__ int unit()
    {
        return (int)threadIdx.x / 32 % UNITS;
    }
    static __device__ __forceinline__ int term_of(int step)
    {
        return 16 * ((int)threadIdx.x / 32 / UNITS + SPLITS * step);
    }
    /* First of a warp's columns in rows of `w`. */
    static __device__ __forceinline__ int columns_of(const chain<WIDTH> &c)
    {
        return c.rank * WIDTH + unit() * 8;
    }
    /* Rows n0 … n0 + 7, and those `block` rows after them; `there`: else zeros. */
    __device__ __forceinline__ void load(const float *w, int depth, int block, int n0, bool there = true)
    {
        const int lane = (int)threadIdx.x % 32;
        const float *from = w + (size_t)(n0 + lane / 4) * depth + lane % 4 * 4;
#pragma unroll
        for (int step = 0; step < STEPS; step++)
#pragma unroll
            for (int b = 0; b < NB; b++)
                v[step][0][b] = there && term_of(step) < depth ? read_early4(from + (size_t)b * block * depth + term_of(step))
                                                               : make_float4(0, 0, 0, 0);
    }
    /* Where a thread has one feature its registers suffice to request weights before the previous product. */
    __device__ __forceinline__ void load_early(const float *w, int depth, int block, int n0)
    {
        if (WIDTH == CHAIN_COLUMNS) load(w, depth, block, n0);
    }
    __device__ __forceinline__ void load_late(const float *w, int depth, int block, int n0)
    {
        if (WIDTH != CHAIN_COLUMNS) load(w, depth, block, n0);
    }
    /* The share's sums of MT tiles of rows of `depth`. ROUNDED: the rows are (tf32_step). */
    template <int PARTS, bool ROUNDED, int MT>
    __device__ __forceinline__ void multiply(const chain<WIDTH> &c, const float *rows, int depth) const
    {
        enum { STRIDE = WIDTH * NB + 4 };
        float sum[MT][1][NB][4] = {};
#pragma unroll
        for (int step = 0; step < STEPS; step++)
            if (term_of(step) < depth)
                tf32_step<PARTS, ROUNDED, MT, 1, NB>(rows + term_of(step), depth + TF32_ROW_PAD, v[step], sum);
        float *to = c.sums + (int)threadIdx.x / 32 / UNITS * 16 * MT * STRIDE + unit() * 8;
        EACH_SUM(MT, 1, {
            for (int b = 0; b < NB; b++) to[row * STRIDE + WIDTH * b + column] = sum[m][c][b][e];
        });
        __syncthreads();
    }
};

#endif
