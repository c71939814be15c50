/* SPDX-License-Identifier: MIT */
/* orb_together.cuh: what a block of a kernel whose blocks run at once (orb_layers.cu, orb_node_layers.cu) does with the tiles of products and the sums
 * that they exchange (gpu/ptx/exchange.cuh), and with norms. Operands are stored as mma reads them, [rows / 16][columns / 32][2][lane][8]: lane (g, t)
 * has rows g and g + 8 of columns 8 t … 8 t + 3, then of 8 t + 4 … 8 t + 7. Floats are in rows of 256, of each 32 columns first 8 t … 8 t + 3, then
 * 8 t + 4 … 8 t + 7. */
#ifndef ORB_TOGETHER_CUH
#define ORB_TOGETHER_CUH

#include "gpu/nn/tile.cuh"
#include "gpu/ptx/exchange.cuh"
#include "model/orb/gpu/orb_gpu.h"

enum {
    TOGETHER_THREADS = 256,
    TOGETHER_WARPS = 8 // each adds up every eighth 32 inputs of a product
};

/* `memory` has, of what follows in turn, two of each, so that a barrier separates a use from the next but one:
 *   float4 partial[2][TOGETHER_WARPS · N · 32]   sums of each warp, of up to N blocks of 8 columns
 *   float2 moments[2][TOGETHER_WARPS · 32]
 *   float weight[TOGETHER_WARPS] */
template <int NUMBERS, class memory> struct together_block {
    typedef number_format<NUMBERS> format;
    static constexpr int planes = format::planes;
    memory &shared;
    const float epsilon;
    const int thread, lane, warp, g, t, block, blocks;
    int turn = 0;

    __device__ __forceinline__ together_block(memory &shared_, float epsilon_)
        : shared(shared_), epsilon(epsilon_), thread(threadIdx.x), lane(threadIdx.x % 32), warp(threadIdx.x / 32),
          g(threadIdx.x % 32 / 4), t(threadIdx.x % 4), block(blockIdx.x), blocks(gridDim.x)
    {
    }
    // Place, in bytes, of this lane's part of 16 rows and 32 columns of an operand of `columns` columns; + 512: of the other columns.
    __device__ __forceinline__ uint32_t operand_place(int unit, int block_32, int columns) const
    {
        return (uint32_t)((unit * (columns / 32) + block_32) * 1024 + lane * 16);
    }
    // Of what a thread has of 8 columns, number j of 32: two columns of rows g and g + 8.
    static __device__ __forceinline__ uint32_t place_of_two(int j)
    {
        return (uint32_t)(j / 2 * 512 + j % 2 * 8);
    }
    // The first of a thread's two columns of block j of 8.
    __device__ __forceinline__ int column_of(int j) const
    {
        return j / 4 * 32 + 8 * t + j % 4 * 2;
    }
    // Of a row of floats: columns 8 t + 4 half … of block q of 32.
    static __device__ __forceinline__ uint32_t float_place(int row, int q, int half, int t)
    {
        return (uint32_t)(row * 1024 + q * 128 + half * 64 + t * 16);
    }

    // ---- products: this warp's part, of inputs 32 (warp + 8 s) …; U units of 16 rows, TILES blocks of 8 columns
    // Weights of blocks `at` … `at` + COUNT − 1, from column `first` on, of a layer of OUTPUTS.
    template <int TILES, int STEPS, int OUTPUTS, int COUNT = TILES>
    __device__ __forceinline__ void request(uint4 (&b)[planes * STEPS * TILES], const gpu_linear &layer, int first,
                                            int at = 0) const
    {
        const uint32_t place = (uint32_t)(warp * (OUTPUTS * 64) + first / 8 * WEIGHTS_COLUMN + t * WEIGHTS_K + g * 16);
#pragma unroll
        for (int plane = 0; plane < planes; plane++)
#pragma unroll
            for (int k = 0; k < STEPS * COUNT; k++)
                b[(plane * STEPS + k / COUNT) * TILES + at + k % COUNT] =
                    request_constants((const char *)(plane ? layer.low : layer.high) + place +
                                      k / COUNT * (TOGETHER_WARPS * OUTPUTS * 64) + k % COUNT * WEIGHTS_COLUMN);
    }
    template <int U, int TILES, int STEPS>
    static __device__ __forceinline__ void multiply(float4 (&sum)[U * TILES], const uint4 (&a)[planes * STEPS * 2 * U],
                                                    const uint4 (&b)[planes * STEPS * TILES])
    {
        const auto add = [](float4 &d, const uint4 &x, const uint4 &y, int second) {
            product<format::bfloat>(d, x, second ? y.z : y.x, second ? y.w : y.y);
        };
#pragma unroll
        for (int k = 0; k < U * TILES; k++) sum[k] = make_float4(0, 0, 0, 0);
#pragma unroll
        for (int s = 0; s < STEPS; s++)
#pragma unroll
            for (int k = 0; k < U * TILES; k++) {
                const int u = k / TILES, j = k % TILES, low_a = (((planes - 1) * STEPS + s) * U + u) * 2,
                          high_a = (s * U + u) * 2, low_b = ((planes - 1) * STEPS + s) * TILES + j, high_b = s * TILES + j;
                float4 d = sum[k];
                if (format::split) d = make_float4(0, 0, 0, 0); // as tile_runner::multiply_in_parts
#pragma unroll
                for (int second = 0; second < 2; second++) {
                    if (format::split) {
                        add(d, a[low_a + second], b[high_b], second);
                        add(d, a[high_a + second], b[low_b], second);
                    }
                    add(d, a[high_a + second], b[high_b], second);
                }
                sum[k] = format::split ? sum[k] + d : d;
            }
    }
    // The sum of all warps' parts of block `mine` of 8 columns, j + TILES u: two columns 8 t + 2 j % 4 … of rows g and g + 8. Has a barrier of the block.
    template <int N> __device__ __forceinline__ float4 add_warps(const float4 (&sum)[N], int mine)
    {
        float4 *const partial = shared.partial[turn];
        turn ^= 1;
#pragma unroll
        for (int k = 0; k < N; k++) partial[(k * TOGETHER_WARPS + warp) * 32 + lane] = sum[k];
        __syncthreads();
        float4 all = make_float4(0, 0, 0, 0);
        if (mine < N)
#pragma unroll
            for (int w = 0; w < TOGETHER_WARPS; w++) all = all + partial[(mine * TOGETHER_WARPS + w) * 32 + lane];
        return all;
    }
    static __device__ __forceinline__ float soften_one(float x)
    {
        return format::split ? shifted_softplus(x) : short_softplus(x);
    }
    static __device__ __forceinline__ float4 soften_four(float4 x)
    {
        return map4(soften_one, x);
    }
    static __device__ __forceinline__ float4 scale_and_add(float4 x, float unit, float2 bias)
    {
        return fma4(x, splat(unit), make_float4(bias.x, bias.y, bias.x, bias.y));
    }
    // U units of rows from `unit` on of an operand of 256 STEPS columns.
    template <int U, int STEPS>
    __device__ __forceinline__ void wait_for_rows(uint4 (&a)[planes * STEPS * 2 * U], const char *from, int plane_bytes,
                                                  int unit) const
    {
        const char *const mine = from + operand_place(unit, warp, 256 * STEPS);
        exchange_wait(a, [&](int k) {
            const int plane = k / (STEPS * 2 * U), s = k / (2 * U) % STEPS, u = k / 2 % U;
            return mine + (plane * plane_bytes + s * (TOGETHER_WARPS * 1024) + u * (STEPS * TOGETHER_WARPS * 1024) + k % 2 * 512);
        });
    }
    // Two columns of two rows of an operand.
    static __device__ __forceinline__ void store_four(char *to, int plane_bytes, float4 x)
    {
        const uint2 high = make_uint2(pack_pair<format::bfloat>(x.x, x.y), pack_pair<format::bfloat>(x.z, x.w));
        exchange_store(to, high);
        if (planes == 1) return;
        const float2 a = unpack_pair<format::bfloat>(high.x), b = unpack_pair<format::bfloat>(high.y);
        exchange_store(to + plane_bytes, make_uint2(pack_pair<format::bfloat>(x.x - a.x, x.y - a.y),
                                                    pack_pair<format::bfloat>(x.z - b.x, x.w - b.y)));
    }
    // Two columns of one row.
    static __device__ __forceinline__ void store_two(char *to, int plane_bytes, float x, float y)
    {
        const uint32_t high = pack_pair<format::bfloat>(x, y);
        exchange_store(to, high);
        if (planes == 1) return;
        const float2 a = unpack_pair<format::bfloat>(high);
        exchange_store(to + plane_bytes, pack_pair<format::bfloat>(x - a.x, y - a.y));
    }
    // Two columns of two rows of floats.
    static __device__ __forceinline__ void store_floats_of(char *to, float4 x)
    {
        exchange_store(to, make_uint2(exchange_bits(x.x), exchange_bits(x.y)));
        exchange_store(to + 8 * 1024, make_uint2(exchange_bits(x.z), exchange_bits(x.w)));
    }
    // An operand of a thread's latent features, of which it has rows g, g + 8, ….
    template <int ROWS> static __device__ __forceinline__ void round_rows(const eight (&x)[ROWS], uint4 *high, uint4 *low)
    {
#pragma unroll
        for (int k = 0; k < ROWS; k++) {
            const float *const upper = x[k / 2 * 2].v + k % 2 * 4, *const lower = x[k / 2 * 2 + 1].v + k % 2 * 4;
            const uint4 bits =
                make_uint4(pack_pair<format::bfloat>(upper[0], upper[1]), pack_pair<format::bfloat>(lower[0], lower[1]),
                           pack_pair<format::bfloat>(upper[2], upper[3]), pack_pair<format::bfloat>(lower[2], lower[3]));
            high[k] = bits;
            if (planes == 1) continue;
            low[k] = make_uint4(rest_of(upper, bits.x), rest_of(lower, bits.y), rest_of(upper + 2, bits.z),
                                rest_of(lower + 2, bits.w));
        }
    }
    static __device__ __forceinline__ uint32_t rest_of(const float *x, uint32_t high)
    {
        const float2 of = unpack_pair<format::bfloat>(high);
        return pack_pair<format::bfloat>(x[0] - of.x, x[1] - of.y);
    }
    template <int ROWS> __device__ __forceinline__ void load_rows(const float4 *from, eight (&x)[ROWS]) const
    {
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const float4 a = from[2 * r * TOGETHER_THREADS + thread], b = from[(2 * r + 1) * TOGETHER_THREADS + thread];
            const eight of_both = {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
            x[r] = of_both;
        }
    }
    template <int ROWS> __device__ __forceinline__ void keep_rows(float4 *to, const eight (&x)[ROWS]) const
    {
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            to[2 * r * TOGETHER_THREADS + thread] = make_float4(x[r].v[0], x[r].v[1], x[r].v[2], x[r].v[3]);
            to[(2 * r + 1) * TOGETHER_THREADS + thread] = make_float4(x[r].v[4], x[r].v[5], x[r].v[6], x[r].v[7]);
        }
    }
    __device__ __forceinline__ float scale_of(float squares) const
    {
        const float variance = squares * (1.0f / ORB_GPU_LATENT) + epsilon;
        return format::split ? 1.0f / sqrtf(variance) : fast_rsqrt(variance);
    }
    // x += norm(z) for rows `row` + g + 8 r of the numbers at `from`. Has a barrier of the block.
    template <int ROWS>
    __device__ __forceinline__ void add_normalized(eight (&x)[ROWS], const char *from, int row, const float *scale,
                                                   const float *shift)
    {
        const eight gamma = load_constants(scale + 32 * warp + 8 * t), beta = load_constants(shift + 32 * warp + 8 * t);
        const char *const mine = from + float_place(row + g, warp, 0, t);
        uint4 bits[2 * ROWS];
        exchange_wait(bits, [&](int k) { return mine + (k / 2 * 8 * 1024 + k % 2 * 64); });
        eight z[ROWS];
        float2 *const moments = shared.moments[turn];
        turn ^= 1;
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            z[r] = floats_of(bits[2 * r], bits[2 * r + 1]);
            float sum = 0, squares = 0;
#pragma unroll
            for (int k = 0; k < 8; k++) sum += z[r].v[k];
            const float mean = sum_quad(sum) * (1.0f / 32);
#pragma unroll
            for (int k = 0; k < 8; k++) squares = fmaf(z[r].v[k] - mean, z[r].v[k] - mean, squares);
            squares = sum_quad(squares);
            if (t == 0) moments[warp * 32 + 8 * r + g] = make_float2(mean, squares);
        }
        __syncthreads();
#pragma unroll
        for (int r = 0; r < ROWS; r++) { // each lane of four combines two of the warps' moments
            const float2 one = moments[2 * t * 32 + 8 * r + g], two = moments[(2 * t + 1) * 32 + 8 * r + g];
            const float mean = sum_quad(one.x + two.x) * (1.0f / TOGETHER_WARPS), a = one.x - mean, b = two.x - mean,
                        factor = scale_of(sum_quad(fmaf(32.0f, fmaf(a, a, b * b), one.y + two.y))), less = -mean * factor;
#pragma unroll
            for (int k = 0; k < 8; k++) x[r].v[k] += fmaf(fmaf(z[r].v[k], factor, less), gamma.v[k], beta.v[k]);
        }
    }
    // Stores scale ∘ Σ a z + shift Σ a of row `row` of 16, as columns of what an atom received or sent; each warp has a part of the sums. With TASKS 2 the
    // first four warps have what was sent, the others what was received.
    template <int TASKS>
    __device__ __forceinline__ void store_sums(char *to, int plane_bytes, int row, int received, const eight &sum, float weight,
                                               const float *scale, const float *shift)
    {
        constexpr int PARTS = TOGETHER_WARPS / TASKS;
        float4 *const partial = shared.partial[turn];
        turn ^= 1;
        partial[warp * 64 + 2 * lane] = make_float4(sum.v[0], sum.v[1], sum.v[2], sum.v[3]);
        partial[warp * 64 + 2 * lane + 1] = make_float4(sum.v[4], sum.v[5], sum.v[6], sum.v[7]);
        if (lane == 0) shared.weight[warp] = weight;
        __syncthreads();
        if (thread < 64 * TASKS) {
            const int first = thread / 64 * PARTS, q = thread % 64;
            const float4 gamma = __ldg((const float4 *)scale + q), beta = __ldg((const float4 *)shift + q);
            float4 all = make_float4(0, 0, 0, 0);
            float weights = 0;
            for (int w = first; w < first + PARTS; w++) all = all + partial[w * 64 + q], weights += shared.weight[w];
            all = fma4(all, gamma, splat(weights) * beta);
            char *const place = to + sums_place(row, TASKS == 2 ? thread / 64 : received);
            store_two(place, plane_bytes, all.x, all.y);
            store_two(place + 8, plane_bytes, all.z, all.w);
        }
        __syncthreads();
    }
    // Of columns 4 (thread % 64) … of a row's sums.
    __device__ __forceinline__ uint32_t sums_place(int row, int received) const
    {
        const int c = (received ? 0 : ORB_GPU_LATENT) + 4 * (thread % 64);
        return (uint32_t)(c / 32 * 1024 + c / 4 % 2 * 512 + (row % 8 * 4 + c % 32 / 8) * 16 + row / 8 * 4);
    }
};

#endif
