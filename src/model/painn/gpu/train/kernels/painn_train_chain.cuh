/* SPDX-License-Identifier: MIT */
/* painn_train_chain.cuh: products, exchanges and shared memory of a cluster that does several products at atoms in one kernel
 * (painn_train_chain.cu).
 *
 * A product's sums stand as D[features][atoms] = W[features][terms] · rows[atoms][terms]ᵀ in tiles of 16 × 8 × 8: the rows, which all units of a
 * block read from shared memory, are the operand of which a lane has neighboring terms of one atom. Rows 2r and 2r + 1 of W alternate number by
 * number in memory (`begin`), so that four neighboring numbers are a lane's part of a tile: rows g and g + 8 of it are features 2g and 2g + 1. */
#ifndef PAINN_TRAIN_CHAIN_CUH
#define PAINN_TRAIN_CHAIN_CUH

#include "painn_train_node.cuh"

enum {
    CHAIN_ROWS = 16,
    CHAIN_COLUMNS = 16, /* threads of a row, and features of a unit of a product */
    CHAIN_THREADS = CHAIN_ROWS * CHAIN_COLUMNS,
    CHAIN_WARPS = CHAIN_THREADS / 32,
    CHAIN_EXCHANGES = 8,
    CHAIN_BLOCKS = PAINN_TRAIN_MAX_FEATURES / CHAIN_COLUMNS, /* of a cluster at most */
    CHAIN_ENERGIES = 64,                                     /* offsets in bytes: mbarriers come first */
    CHAIN_BUFFERS = CHAIN_ENERGIES + 4 * CHAIN_ROWS * CHAIN_BLOCKS
};

/* Blocks of columns of a warp in a product with NB of them: of two each has one, so that there are fewer shares of the terms. */
static inline PAINN_BOTH constexpr int chain_blocks(int NB)
{
    return NB == 2 ? 1 : NB;
}
/* Units of a product of `width` features of a block, and warps that share the terms of a unit. */
static inline PAINN_BOTH constexpr int chain_units(int width, int NB)
{
    return width / CHAIN_COLUMNS * (NB / chain_blocks(NB));
}
static inline PAINN_BOTH constexpr int chain_splits(int width, int NB)
{
    return CHAIN_WARPS / chain_units(width, NB);
}

/* What a kernel does, in this order. */
enum { CHAIN_UPDATE = 1, CHAIN_NET = 2, CHAIN_READOUT = 4, CHAIN_NET_BACK = 8, CHAIN_UPDATE_BACK = 16 };

/* Floats of a tile of rows, of vectors and of sums. */
static inline PAINN_BOTH constexpr int chain_rows(int width)
{
    return CHAIN_ROWS * (width + TF32_ROW_PAD);
}
/* Floats of buffer `which`; the first rows of a kernel stand in buffer 1. */
static inline PAINN_BOTH constexpr int chain_buffer(int pieces, int which, int F)
{
    if (pieces & (which ? CHAIN_NET_BACK : CHAIN_READOUT) && pieces & CHAIN_UPDATE_BACK) return 3 * chain_rows(2 * F);
    if (pieces & CHAIN_UPDATE) return which ? 3 * chain_rows(F) : chain_rows(2 * F);
    return chain_rows(which && pieces & CHAIN_NET_BACK ? 3 * F : F);
}
/* Floats of a row of sums: with the padding, stores of two neighboring features of four atoms use all banks evenly. */
static inline PAINN_BOTH constexpr int chain_stride(int width, int NB)
{
    return width * NB + 4;
}
/* Floats of the shares' sums for `rows` rows. */
static inline PAINN_BOTH constexpr int chain_sums(int width, int rows, int NB)
{
    return chain_splits(width, NB) * rows * chain_stride(width, NB);
}
static inline int chain_larger(int a, int b)
{
    return a > b ? a : b;
}
static inline int chain_bytes(int width, int pieces, int F)
{
    int sums = chain_larger(chain_sums(width, CHAIN_ROWS, 1), chain_sums(width, CHAIN_ROWS, 3));
    if (pieces & CHAIN_UPDATE) sums = chain_larger(sums, chain_sums(width, 3 * CHAIN_ROWS, 2));
    if (pieces & CHAIN_UPDATE_BACK) sums = chain_larger(sums, chain_sums(width, 3 * CHAIN_ROWS, 1));
    return CHAIN_BUFFERS + 4 * (chain_buffer(pieces, 0, F) + chain_buffer(pieces, 1, F) + sums);
}

/* A block of a cluster with WIDTH of F features, as one of its threads sees it. */
template <int WIDTH, int F> struct chain {
    static constexpr int width = WIDTH, features = F;
    static constexpr int EACH = WIDTH / CHAIN_COLUMNS, SENDERS = 4 / EACH, blocks = F / WIDTH;
    /* EACH: neighboring features of a thread; SENDERS: threads that send four numbers together, each to every SENDERS-th block */
    const known_step<F> &s;
    uint4 *memory;
    float *buffer[2], *sums;
    int rank, row, column; /* column: of the thread's first feature in the block */
    int first, n;          /* atom of row 0, atoms of the batch */
    cluster_base peer[2];  /* that this lane sends to: ranks lane % SENDERS and lane % SENDERS + SENDERS */

    __device__ __forceinline__ uint64_t *mbarrier(int exchange) const
    {
        return (uint64_t *)memory + exchange;
    }

    __device__ __forceinline__ chain(const known_step<F> &step, uint4 *shared, int pieces) : s(step), memory(shared)
    {
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

    /* By one thread: exchange k brings rows of `n_columns` to each block, and `more` bytes. */
    __device__ __forceinline__ void expect(int k, int n_columns, int more = 0) const
    {
        mbarrier_init_bytes(mbarrier(k), 4 * CHAIN_ROWS * n_columns + more);
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
    /* Numbers for the columns from `to` on of a row of `n_columns` in all blocks; neighboring lanes have neighboring columns. By whole
     * warps. */
    __device__ __forceinline__ void send(int exchange, int to_row, int to, int n_columns, const numbers<EACH> &v,
                                         bool valid = true) const
    {
        const int first_lane = (int)threadIdx.x % 32 & ~(SENDERS - 1);
        float four[4];
        for (int k = 0; k < 4; k++) four[k] = __shfl_sync(0xffffffffu, v.v[k % EACH], first_lane + k / EACH);
        const float *there = buffer[exchange & 1] + to_row * (n_columns + TF32_ROW_PAD) + (to & ~3);
        const uint32_t offset = (uint32_t)((const char *)there - (const char *)memory), open = 8u * (uint32_t)exchange;
        const uint4 bits =
            make_uint4(__float_as_uint(four[0]), __float_as_uint(four[1]), __float_as_uint(four[2]), __float_as_uint(four[3]));
        for (int k = 0; k < 2; k++)
            if (valid && receiver(k) < blocks) store_async(peer[k], offset, open, bits);
    }

    /* ---- rows that the previous kernel wrote */

    /* `n_columns` of each row of `from`, whose rows are `stride` apart, into rows of `to_width`; axes 3: vectors, axis then atom. */
    __device__ __forceinline__ void load_rows(int exchange, const float *from, int axes, int n_columns, int stride,
                                              int to_width) const
    {
        const int piece = 4 * ((int)threadIdx.x % CHAIN_COLUMNS);
        const float *line = from + (uint32_t)own().atom * axes * stride;
#pragma unroll
        for (int axis = 0; axis < axes; axis++) {
            float *to = buffer[exchange & 1] + (axis * CHAIN_ROWS + row) * (to_width + TF32_ROW_PAD);
#pragma unroll
            for (int k = 0; k < n_columns; k += 4 * CHAIN_COLUMNS)
                if (piece + k < n_columns) copy_async(to + piece + k, line + axis * stride + piece + k);
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
        constexpr int STRIDE = chain_stride(WIDTH, NB);
        const float *from = sums + r * STRIDE + WIDTH * b + column;
        numbers<EACH> total = numbers_at<EACH>(from);
        for (int k = 1; k < chain_splits(WIDTH, NB); k++) total = total + numbers_at<EACH>(from + k * rows * STRIDE);
        return total;
    }
};

/* sum[tile][b] += the part of a step of 16 terms: `w` of 16 features of each of B blocks, rows of 8 TILES atoms. ROUNDED: the rows are
 * (tf32_step). The tensor cores truncate their sums: with PARTS = 3 they add up only these terms, and float32 additions the rest. */
template <int PARTS, bool ROUNDED, int TILES, int B>
static __device__ __forceinline__ void chain_step(const float *rows, int stride, const float4 (&w)[B][2],
                                                  float (&sum)[TILES][B][4])
{
    const int lane = (int)threadIdx.x % 32;
    uint32_t w_high[B][2][4], w_low[B][2][4];
#pragma unroll
    for (int b = 0; b < B; b++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            tf32_bits<PARTS, true>(w[b][half].x, w_high[b][half][0], w_low[b][half][0]);
            tf32_bits<PARTS, true>(w[b][half].y, w_high[b][half][1], w_low[b][half][1]);
            tf32_bits<PARTS, true>(w[b][half].z, w_high[b][half][2], w_low[b][half][2]);
            tf32_bits<PARTS, true>(w[b][half].w, w_high[b][half][3], w_low[b][half][3]);
        }
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) {
        const float4 v = *(const float4 *)(rows + (8 * tile + lane / 4) * stride + lane % 4 * 4);
        uint32_t high[2][2], low[2][2];
        tf32_bits<PARTS, ROUNDED>(v.x, high[0][0], low[0][0]);
        tf32_bits<PARTS, ROUNDED>(v.y, high[0][1], low[0][1]);
        tf32_bits<PARTS, ROUNDED>(v.z, high[1][0], low[1][0]);
        tf32_bits<PARTS, ROUNDED>(v.w, high[1][1], low[1][1]);
#pragma unroll
        for (int b = 0; b < B; b++) {
            float part[4] = {0, 0, 0, 0};
            float(&to)[4] = PARTS == 1 ? sum[tile][b] : part;
            for (int half = 0; half < 2; half++) tf32_product<PARTS>(to, w_high[b][half], w_low[b][half], high[half], low[half]);
            for (int e = 0; e < 4 && PARTS == 3; e++) sum[tile][b][e] += part[e];
        }
    }
}

/* A warp's weights of a product of at most TERMS terms with NB blocks of columns: its unit of 16 of the block's columns, STEPS times 16 terms. */
template <class Chain, int NB, int TERMS> struct chain_weights {
    static constexpr int WIDTH = Chain::width, B = chain_blocks(NB), UNITS = WIDTH / CHAIN_COLUMNS;
    static constexpr int SPLITS = chain_splits(WIDTH, NB), STEPS = (TERMS / 16 + SPLITS - 1) / SPLITS;
    float4 v[STEPS][B][2];

    static __device__ __forceinline__ int warp()
    {
        return (int)threadIdx.x / 32 % CHAIN_WARPS;
    }
    static __device__ __forceinline__ int unit()
    {
        return warp() % UNITS;
    }
    /* The warp's first block of columns. */
    static __device__ __forceinline__ int first_block()
    {
        return NB == 2 ? warp() / UNITS % 2 : 0;
    }
    static __device__ __forceinline__ int split()
    {
        return warp() / chain_units(WIDTH, NB);
    }
    static __device__ __forceinline__ int term_of(int step)
    {
        return 16 * (split() + SPLITS * step);
    }
    /* First of a warp's columns in rows of `w`. */
    static __device__ __forceinline__ int columns_of(const Chain &c)
    {
        return c.rank * WIDTH + unit() * CHAIN_COLUMNS;
    }
    /* Rows n0 … n0 + 15, and those `block` rows after them; `there`: else zeros. */
    __device__ __forceinline__ void load(const float *w, int depth, int block, int n0, bool there = true)
    {
        const int lane = (int)threadIdx.x % 32;
        const float *from = w + (uint32_t)((n0 + first_block() * block) * depth + lane / 4 * 2 * depth + lane % 4 * 8);
#pragma unroll
        for (int step = 0; step < STEPS; step++)
#pragma unroll
            for (int b = 0; b < B; b++)
#pragma unroll
                for (int half = 0; half < 2; half++)
                    v[step][b][half] = there && term_of(step) < depth
                                           ? read_early4(from + b * block * depth + 2 * term_of(step) + 4 * half)
                                           : make_float4(0, 0, 0, 0);
    }
    /* The share's sums of 16 MT rows of `depth` terms. ROUNDED: the rows are (tf32_step). */
    template <int PARTS, bool ROUNDED, int MT>
    __device__ __forceinline__ void multiply(const Chain &c, const float *rows, int depth) const
    {
        constexpr int STRIDE = chain_stride(WIDTH, NB), TILES = 2 * MT;
        const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
        float sum[TILES][B][4] = {};
#pragma unroll
        for (int step = 0; step < STEPS; step++)
            if (term_of(step) < depth)
                chain_step<PARTS, ROUNDED, TILES, B>(rows + term_of(step), depth + TF32_ROW_PAD, v[step], sum);
        float *to = c.sums + (split() * 16 * MT + 2 * t) * STRIDE + WIDTH * first_block() + unit() * CHAIN_COLUMNS + 2 * g;
#pragma unroll
        for (int tile = 0; tile < TILES; tile++)
#pragma unroll
            for (int b = 0; b < B; b++)
                for (int e = 0; e < 2; e++)
                    *(float2 *)(to + (8 * tile + e) * STRIDE + WIDTH * b) = make_float2(sum[tile][b][e], sum[tile][b][2 + e]);
        __syncthreads();
    }
};

#endif
