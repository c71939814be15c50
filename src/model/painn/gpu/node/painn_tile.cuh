/* SPDX-License-Identifier: MIT */
/* painn_tile.cuh: a tile of 16 atoms in one block, by products of single warps (mma.sync), on any GPU: where its operands lie in
 * shared memory, products on the tensor cores, values of a thread. What PaiNN computes with them: painn_node.cuh. */
#ifndef PAINN_TILE_CUH
#define PAINN_TILE_CUH

#include "model/painn/gpu/painn_gpu.cuh"
#include "painn_wgmma.cuh"

/* Operands of the tensor cores. A lane's piece of 16 rows × 8 features is two registers of two numbers each; the pieces of two feature
 * tiles, the even and the odd, make operand A of a product, and a weight's piece is operand B. */

/* Float32-class: each number is two halves, together 22 bits; their product is three (low × low is left out). */
struct split_halves {
    typedef uint4 piece; /* high, low */
    typedef wgmma_numbers<2, false> stored;
    static const int PRODUCTS = 3;
    static constexpr float SCALE = PAINN_GPU_OPERAND_SCALE; /* of activations */
    static __device__ __forceinline__ piece pack(float4 v)
    {
        return pack_split(v);
    }
    /* Index of a lane's piece among the 64 of two feature tiles. */
    static __device__ __forceinline__ int place(int lane, int odd)
    {
        return 32 * odd + lane;
    }
    struct operand {
        uint4 high, low;
        __device__ __forceinline__ operand(const piece *tiles, int lane)
        {
            uint4 even = tiles[lane], odd = tiles[32 + lane];
            high = make_uint4(even.x, even.y, odd.x, odd.y);
            low = make_uint4(even.z, even.w, odd.z, odd.w);
        }
        __device__ __forceinline__ void multiply(float4 &sum, const piece &w) const
        {
            product<false>(sum, low, w.x, w.y);
            product<false>(sum, high, w.z, w.w);
            product<false>(sum, high, w.x, w.y);
        }
    };
};

/* One product. Halves: 11 significant bits, as TF32 has, at twice its rate; bfloat16: 8 bits, of any size. */
template <bool bfloat> struct single_numbers {
    typedef uint2 piece;
    typedef wgmma_numbers<1, bfloat> stored;
    static const int PRODUCTS = 1;
    static constexpr float SCALE = PAINN_GPU_OPERAND_SCALE;
    static __device__ __forceinline__ piece pack(float4 v)
    {
        return bfloat ? make_uint2(pack_bfloat2(v.x, v.y), pack_bfloat2(v.z, v.w))
                      : make_uint2(pack_half2(v.x, v.y), pack_half2(v.z, v.w));
    }
    static __device__ __forceinline__ int place(int lane, int odd)
    {
        return 2 * lane + odd;
    }
    struct operand {
        uint4 both;
        __device__ __forceinline__ operand(const piece *tiles, int lane) : both(((const uint4 *)tiles)[lane])
        {
        }
        __device__ __forceinline__ void multiply(float4 &sum, const piece &w) const
        {
            product<bfloat>(sum, both, w.x, w.y);
        }
    };
};

/* Float32-class with float32's range: three bfloat16, together 24 bits; six products (those below 2⁻²⁴ are left out). */
struct three_bfloats {
    struct piece {
        uint2 high, middle, low;
    };
    static constexpr float SCALE = 1;
    static __device__ __forceinline__ piece pack(float4 v)
    {
        piece p;
        p.high = split(v);
        p.middle = split(v);
        p.low = split(v);
        return p;
    }
    static __device__ __forceinline__ int place(int lane, int odd)
    {
        return 32 * odd + lane;
    }
    struct operand {
        uint4 high, middle, low;
        __device__ __forceinline__ operand(const piece *tiles, int lane)
        {
            const piece even = tiles[lane], odd = tiles[32 + lane];
            high = make_uint4(even.high.x, even.high.y, odd.high.x, odd.high.y);
            middle = make_uint4(even.middle.x, even.middle.y, odd.middle.x, odd.middle.y);
            low = make_uint4(even.low.x, even.low.y, odd.low.x, odd.low.y);
        }
        __device__ __forceinline__ void multiply(float4 &sum, const piece &w) const
        {
            product<true>(sum, low, w.high.x, w.high.y);
            product<true>(sum, high, w.low.x, w.low.y);
            product<true>(sum, middle, w.middle.x, w.middle.y);
            product<true>(sum, middle, w.high.x, w.high.y);
            product<true>(sum, high, w.middle.x, w.middle.y);
            product<true>(sum, high, w.high.x, w.high.y);
        }
    };

  private:
    /* The four numbers rounded; v keeps what is left of them. */
    static __device__ __forceinline__ uint2 split(float4 &v)
    {
        const uint2 rounded = make_uint2(pack_bfloat2(v.x, v.y), pack_bfloat2(v.z, v.w));
        const float2 a = unpack_bfloat2(rounded.x), b = unpack_bfloat2(rounded.y);
        v = make_float4(v.x - a.x, v.y - a.y, v.z - b.x, v.w - b.y);
        return rounded;
    }
};

/* Weights, which no kernel writes. */
template <typename Piece> static __device__ __forceinline__ Piece read_constant(const Piece *at)
{
    return __ldg(at);
}
template <> __device__ __forceinline__ three_bfloats::piece read_constant(const three_bfloats::piece *at)
{
    const uint2 *parts = (const uint2 *)at;
    three_bfloats::piece p;
    p.high = __ldg(parts);
    p.middle = __ldg(parts + 1);
    p.low = __ldg(parts + 2);
    return p;
}

template <int F_, typename Numbers_> struct shape {
    typedef Numbers_ Numbers;
    typedef typename Numbers::piece piece;
    static const int F = F_;
    static const int FT = F / 8;  // feature tiles, one for each warp
    static const int KF = F / 16; // k tiles of F features
    static const int WARPS = FT, TILE = 16;
    // Regions of shared memory, in operands of 16 × 16, 64 pieces each.
    static const int R0 = 3 * 2 * KF, R1 = 3 * KF, R2 = KF, R3 = KF;
    static const int BYTES = (R0 + R1 + R2 + R3) * 64 * (int)sizeof(piece) + 1024;
};

template <typename S> struct node : activations {
    typedef typename S::piece piece;
    typedef typename S::Numbers Numbers;
    piece *r0, *r1, *r2, *r3;
    int lane, ft, first; // ft: the warp's feature tile; first: the tile's first atom

    __device__ __forceinline__ node(const painn_gpu_step &s, uint4 *shared) : activations(s)
    {
        r0 = (piece *)shared;
        r1 = r0 + S::R0 * 64;
        r2 = r1 + S::R1 * 64;
        r3 = r2 + S::R2 * 64;
        lane = threadIdx.x % 32;
        ft = threadIdx.x / 32;
        first = (int)blockIdx.x * S::TILE;
    }

    // ---- values of a thread: rows g and g + 8 of the tile, two features
    template <int C> __device__ __forceinline__ float4 load(const float *array, int c) const
    {
        int f = 8 * ft + 2 * (lane % 4), atom = first + lane / 4;
        float2 a = *(const float2 *)(array + place<S::F, C>(atom, c, f)),
               b = *(const float2 *)(array + place<S::F, C>(atom + 8, c, f));
        return make_float4(a.x, a.y, b.x, b.y);
    }
    template <int P> __device__ __forceinline__ float4 load_paired(const float *array, int c) const
    {
        int f = 8 * ft + 2 * (lane % 4), atom = first + lane / 4;
        const float *a = array + place_paired<S::F, P>(atom, c, f), *b = array + place_paired<S::F, P>(atom + 8, c, f);
        return make_float4(a[0], a[2], b[0], b[2]);
    }
    template <int P> __device__ __forceinline__ void store_one(float *array, int c, float4 v) const
    {
        int f = 8 * ft + 2 * (lane % 4), atom = first + lane / 4;
        float *a = array + place_paired<S::F, P>(atom, c, f), *b = array + place_paired<S::F, P>(atom + 8, c, f);
        a[0] = v.x;
        a[2] = v.y;
        b[0] = v.z;
        b[2] = v.w;
    }
    // Components c (even) and c + 1.
    template <int P> __device__ __forceinline__ void store_pair(float *array, int c, float4 v, float4 w) const
    {
        int f = 8 * ft + 2 * (lane % 4), atom = first + lane / 4;
        *(float4 *)(array + place_paired<S::F, P>(atom, c, f)) = make_float4(v.x, w.x, v.y, w.y);
        *(float4 *)(array + place_paired<S::F, P>(atom + 8, c, f)) = make_float4(v.z, w.z, v.w, w.w);
    }
    __device__ __forceinline__ void store_q(float4 v) const
    {
        int f = 8 * ft + 2 * (lane % 4), atom = first + lane / 4;
        *(float2 *)(step.q + place<S::F, 1>(atom, 0, f)) = make_float2(v.x, v.y);
        *(float2 *)(step.q + place<S::F, 1>(atom + 8, 0, f)) = make_float2(v.z, v.w);
    }
    __device__ __forceinline__ float2 bias(const float *array, int block) const
    {
        return __ldg((const float2 *)(array + block * S::F + 8 * ft + 2 * (lane % 4)));
    }
    __device__ __forceinline__ float4 *saved(int layer, int quantity) const
    {
        size_t tile = (size_t)first / 16, tiles = (size_t)step.gpu.neighbors.atom_capacity / 16;
        return (float4 *)step.saved + (((layer * PAINN_GPU_SAVED + quantity) * tiles + tile) * S::FT + ft) * 32 + lane;
    }

    // Stores v, the values of feature tile `tile`, in `buffer` as an operand.
    __device__ __forceinline__ void put(piece *buffer, int tile, float4 v) const
    {
        buffer[tile / 2 * 64 + Numbers::place(lane, tile % 2)] = Numbers::pack(v * splat(Numbers::SCALE));
    }

    // ---- products: this warp's column tile of NB blocks, one row tile or three (components, one behind the other in the buffer),
    // KT k tiles
    template <int KT, int NB> struct weights {
        static const int AHEAD = NB == 1 ? 4 : 2, D = KT < AHEAD ? KT : AHEAD; // k tiles fetched at a time
        const piece *base[NB];
        piece held[NB][D];
    };
    // k tiles k … k + D − 1.
    template <int KT, int NB> __device__ __forceinline__ void fetch_chunk(weights<KT, NB> &w, int k) const
    {
        typedef weights<KT, NB> W;
#pragma unroll
        for (int b = 0; b < NB; b++)
#pragma unroll
            for (int d = 0; d < W::D; d++)
                if (k + d < KT) w.held[b][d] = read_constant(w.base[b] + (k + d) * 32);
    }
    // Requests the first weights ahead of their product. k_tiles: of the stored matrix.
    template <int KT, int NB>
    __device__ __forceinline__ void fetch(weights<KT, NB> &w, const void *matrix, const int *column_tile, int k_tiles) const
    {
#pragma unroll
        for (int b = 0; b < NB; b++) w.base[b] = (const piece *)matrix + (size_t)column_tile[b] * k_tiles * 32 + lane;
        fetch_chunk(w, 0);
    }
    // sum[b][m] over k.
    template <int KT, int NB, int TILES>
    __device__ __forceinline__ void multiply(float4 (&sum)[NB][TILES], const piece *buffer, weights<KT, NB> &w,
                                             bool active = true) const
    {
        typedef weights<KT, NB> W;
#pragma unroll
        for (int b = 0; b < NB; b++)
#pragma unroll
            for (int m = 0; m < TILES; m++) sum[b][m] = make_float4(0, 0, 0, 0);
#pragma unroll 1
        for (int k = 0; k < KT; k += W::D) {
            weights<KT, NB> now = w;
            if (k + W::D < KT) fetch_chunk(w, k + W::D);
#pragma unroll
            for (int d = 0; d < W::D; d++) {
                if (k + d >= KT || !active) continue;
#pragma unroll
                for (int m = 0; m < TILES; m++) {
                    const typename Numbers::operand a(buffer + (m * KT + k + d) * 64, lane);
#pragma unroll
                    for (int b = 0; b < NB; b++) a.multiply(sum[b][m], now.held[b][d]);
                }
            }
        }
        const float4 unit = splat(step.weight_unit);
#pragma unroll
        for (int b = 0; b < NB; b++)
#pragma unroll
            for (int m = 0; m < TILES; m++) sum[b][m] = sum[b][m] * unit;
    }
    template <int KT, int NB>
    __device__ __forceinline__ void multiply(float4 (&sum)[NB], const piece *buffer, weights<KT, NB> &w, bool active = true) const
    {
        multiply(reinterpret_cast<float4(&)[NB][1]>(sum), buffer, w, active);
    }
};

static __device__ __forceinline__ float4 operator+(float4 v, float2 bias)
{
    return make_float4(v.x + bias.x, v.y + bias.y, v.z + bias.x, v.w + bias.y);
}

#endif
