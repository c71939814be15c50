/* SPDX-License-Identifier: MIT */
/* painn_tile.cuh: a tile of atoms in one block, or in a cluster of blocks that share its features: where its operands
 * lie in shared memory, products on the tensor cores, sums shared by warps, mail between blocks. What PaiNN does with
 * them: painn_node.cuh. */
#ifndef PAINN_GPU_TILE_CUH
#define PAINN_GPU_TILE_CUH

#include "painn_gpu.cuh"
#include "painn_wgmma.cuh"

/* Numbers as operands of the tensor cores. A lane's piece of 16 rows × 8 features is two registers of two numbers each; the
 * pieces of two feature tiles, the even and the odd, make operand A of a product, and a weight's piece is operand B. */

/* Float32-class: each number is two halves, together 22 bits; their product is three (low × low is left out). */
struct split_halves {
    typedef uint4 piece; /* high, low */
    typedef wgmma_numbers<2, false> stored;
    static const int PRODUCTS = 3;
    static __device__ __forceinline__ piece pack(float4 v)
    {
        return pack_split(v);
    }
    /* Where in the 64 pieces of two feature tiles that of one lane stands; those that travel stand in a row. */
    template <bool travels> static __device__ __forceinline__ int place(int lane, int odd)
    {
        return 32 * odd + lane;
    }
    template <bool travels> struct operand {
        uint4 high, low;
        __device__ __forceinline__ operand(const piece *tiles, int lane)
        {
            uint4 even = tiles[lane], odd = tiles[32 + lane];
            high = make_uint4(even.x, even.y, odd.x, odd.y);
            low = make_uint4(even.z, even.w, odd.z, odd.w);
        }
        __device__ __forceinline__ void multiply(float4 &sum, float4 &sum_low, float4 &sum_weight, const piece &w) const
        {
            product<false>(sum_low, low, w.x, w.y);
            product<false>(sum_weight, high, w.z, w.w);
            product<false>(sum, high, w.x, w.y);
        }
    };
};

/* One product. Halves: 11 significant bits, as TF32 has, at twice its rate; bfloat16: 8 bits, of any size. */
template <bool bfloat> struct single_numbers {
    typedef uint2 piece;
    typedef wgmma_numbers<1, bfloat> stored;
    static const int PRODUCTS = 1;
    static __device__ __forceinline__ piece pack(float4 v)
    {
        return bfloat ? make_uint2(pack_bfloat2(v.x, v.y), pack_bfloat2(v.z, v.w))
                      : make_uint2(pack_half2(v.x, v.y), pack_half2(v.z, v.w));
    }
    template <bool travels> static __device__ __forceinline__ int place(int lane, int odd)
    {
        return travels ? 32 * odd + lane : 2 * lane + odd;
    }
    template <bool travels> struct operand {
        uint4 both;
        __device__ __forceinline__ operand(const piece *tiles, int lane)
        {
            if (travels) {
                const uint2 even = tiles[lane], odd = tiles[32 + lane];
                both = make_uint4(even.x, even.y, odd.x, odd.y);
            } else {
                both = ((const uint4 *)tiles)[lane];
            }
        }
        __device__ __forceinline__ void multiply(float4 &sum, float4 &, float4 &, const piece &w) const
        {
            product<bfloat>(sum, both, w.x, w.y);
        }
    };
};

template <int F_, int C_, typename Numbers_> struct shape {
    typedef Numbers_ Numbers;
    typedef typename Numbers::piece piece;
    static const int F = F_, C = C_;
    static const int FT = F / 8;  // feature tiles
    static const int KF = F / 16; // k tiles of one block of F features
    static const int WARPS = C == 1 ? FT : 16;
    static const int NTC = FT / C;     // feature tiles of a block
    static const int KS = WARPS / NTC; // warps that share a sum over k
    static const int TILE = 16;        // atoms
    // Regions of shared memory: in operands of 16 × 16, 64 pieces each; `red` in KB.
    static const int R0 = 3 * 2 * KF, R1 = 3 * KF, R2 = KF, R3 = KF;
    static const int RED = KS > 1 ? ((KS - 1) * NTC * (KS >= 6 ? 1 : 3) + 1) / 2 : 0;
    static const int BYTES = (R0 + R1 + R2 + R3) * 64 * (int)sizeof(piece) + (RED + 1) * 1024;
    // Into how many groups the warps of a tile divide the items of a product before they divide the sum over k.
    static const int SPLIT_U = KS >= 6 ? 6 : KS >= 2 ? 2 : 1, SPLIT_2 = KS >= 2 ? 2 : 1, SPLIT_3 = KS >= 3 ? 3 : 1;
    static const int UNIT = FT * 32 * (int)sizeof(piece); // bytes of F features of a tile as operand
};

template <typename S> struct node : activations {
    typedef typename S::piece piece;
    typedef typename S::Numbers Numbers;
    piece *r0, *r1, *r2, *r3;
    float4 *red;
    uint64_t *barriers;
    cluster_base peers[S::C];
    int stage = 0; // of mail
    int lane, warp, ks, ntl, ft, first;

    __device__ __forceinline__ node(const painn_gpu_step &s, uint4 *shared) : activations(s)
    {
        r0 = (piece *)shared;
        r1 = r0 + S::R0 * 64;
        r2 = r1 + S::R1 * 64;
        r3 = r2 + S::R2 * 64;
        red = (float4 *)(r3 + S::R3 * 64);
        barriers = (uint64_t *)(red + S::RED * 64);
#pragma unroll
        for (int r = 0; r < S::C; r++) peers[r] = cluster_map(shared, r);
        lane = threadIdx.x % 32;
        warp = threadIdx.x / 32;
        ntl = warp % S::NTC;
        ks = warp / S::NTC;
        ft = cluster_rank<S::C>() * S::NTC + ntl;
        first = (int)(blockIdx.x / S::C) * S::TILE;
    }
    __device__ __forceinline__ bool leads() const
    {
        return S::KS == 1 || ks == 0;
    }

    // ---- values of a thread: rows g and g + 8 of the tile, two features
    template <int C> __device__ __forceinline__ float4 load(const float *array, int c, int tile) const
    {
        int f = 8 * tile + 2 * (lane % 4), atom = first + lane / 4;
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

    // ---- operands
    // Puts v, the values of feature tile `tile`, into `buffer` as an operand, of all blocks of the cluster if `everywhere`.
    template <bool everywhere> __device__ __forceinline__ void put(piece *buffer, int tile, float4 v) const
    {
        const piece mine = Numbers::pack(v * splat(PAINN_GPU_OPERAND_SCALE));
        piece *at = buffer + tile / 2 * 64 + Numbers::template place<(S::C > 1)>(lane, tile % 2);
        if (everywhere && S::C > 1) {
#pragma unroll
            for (int r = 0; r < S::C; r++)
                store_async(peers[r], (uint32_t)((char *)at - (char *)r0), (uint32_t)((char *)(barriers + stage) - (char *)r0),
                            mine);
        } else {
            *at = mine;
        }
    }
    // Mailboxes of the stages to come, with the bytes each waits for. Ends with a barrier of the cluster.
    template <int N> __device__ __forceinline__ void open(const int (&bytes)[N])
    {
        if (S::C > 1 && threadIdx.x == 0) {
#pragma unroll
            for (int k = 0; k < N; k++) mbarrier_init_bytes(barriers + k, bytes[k]);
            mbarrier_init_fence();
        }
        cluster_barrier<S::C>();
    }
    // Until all that was put everywhere has come.
    __device__ __forceinline__ void receive()
    {
        if (S::C > 1)
            mbarrier_wait_bytes(barriers + stage++);
        else
            __syncthreads();
    }

    // ---- products: this warp's column tile of NB blocks, one row tile or three (components, one behind the other in the buffer),
    // KT k tiles. The NB · TILES items are divided among `split` groups of the tile's warps, and the sum over k among the KS / split
    // warps of a group.
    template <int KT, int NB, int SPLIT> struct weights {
        static const int SHARES = S::KS / SPLIT, N = (KT + SHARES - 1) / SHARES, HELD = SPLIT == 1 ? NB : 1;
        static const int AHEAD = S::KS >= 8 ? 8 : HELD == 1 ? 4 : 2, D = N < AHEAD ? N : AHEAD; // k tiles fetched at a time
        const piece *base[HELD];
        piece held[HELD][D];
    };
    // This warp's k tiles i … i + D − 1 of its share.
    template <int KT, int NB, int SPLIT> __device__ __forceinline__ void fetch_chunk(weights<KT, NB, SPLIT> &w, int i) const
    {
        typedef weights<KT, NB, SPLIT> W;
#pragma unroll
        for (int b = 0; b < W::HELD; b++)
#pragma unroll
            for (int d = 0; d < W::D; d++) {
                int k = ks / SPLIT + (i + d) * W::SHARES;
                if (k < KT && ks < SPLIT * W::SHARES) w.held[b][d] = __ldg(w.base[b] + k * 32);
            }
    }
    // Fetches the first of the weights ahead of time. k_tiles: of the stored matrix.
    template <int KT, int NB, int SPLIT>
    __device__ __forceinline__ void fetch(weights<KT, NB, SPLIT> &w, const void *matrix, const int *column_tile,
                                          int k_tiles) const
    {
        typedef weights<KT, NB, SPLIT> W;
#pragma unroll
        for (int b = 0; b < W::HELD; b++) {
            int column = column_tile[b];
            if constexpr (SPLIT > 1) {
#pragma unroll
                for (int k = 0; k < NB; k++)
                    if (ks % SPLIT / (SPLIT / NB) == k) column = column_tile[k];
            }
            w.base[b] = (const piece *)matrix + (size_t)column * k_tiles * 32 + lane;
        }
        fetch_chunk(w, 0);
    }
    // sum[b][m] over k; complete in the leading warps only. All warps of the block must come here.
    template <int KT, int NB, int TILES, int SPLIT>
    __device__ __forceinline__ void multiply(float4 (&sum)[NB][TILES], const piece *buffer, weights<KT, NB, SPLIT> &w,
                                             bool active = true) const
    {
        typedef weights<KT, NB, SPLIT> W;
        const int ROWS = SPLIT == 1 ? TILES : NB * TILES / SPLIT; // row tiles of a group
        // Where a warp has few tiles the three products of each have sums of their own: no waiting for the one before.
        const int SUMS = S::KS >= 8 ? Numbers::PRODUCTS : 1;
        float4 part[W::HELD][ROWS], other[2][W::HELD][ROWS];
#pragma unroll
        for (int b = 0; b < W::HELD; b++)
#pragma unroll
            for (int m = 0; m < ROWS; m++) part[b][m] = other[0][b][m] = other[1][b][m] = make_float4(0, 0, 0, 0);
        const piece *rows = buffer + (SPLIT == 1 ? 0 : ks % SPLIT * ROWS % TILES) * KT * 64;
#pragma unroll 1
        for (int i = 0; i < W::N; i += W::D) {
            weights<KT, NB, SPLIT> now = w;
            if (i + W::D < W::N) fetch_chunk(w, i + W::D);
#pragma unroll
            for (int d = 0; d < W::D; d++) {
                int k = ks / SPLIT + (i + d) * W::SHARES;
                if (k < KT && ks < SPLIT * W::SHARES && active) {
                    if (SUMS == 3)
                        step_k<KT>(part, other[0], other[1], rows, k, now.held, d);
                    else
                        step_k<KT>(part, part, part, rows, k, now.held, d);
                }
            }
        }
        if (SUMS == 3) {
#pragma unroll
            for (int b = 0; b < W::HELD; b++)
#pragma unroll
                for (int m = 0; m < ROWS; m++) part[b][m] = part[b][m] + (other[0][b][m] + other[1][b][m]);
        }
        if constexpr (S::KS > 1) {
            reduce<NB, TILES, SPLIT>(sum, part);
        } else {
#pragma unroll
            for (int b = 0; b < NB; b++)
#pragma unroll
                for (int m = 0; m < TILES; m++) sum[b][m] = part[b][m];
        }
        const float4 unit = splat(step.weight_unit);
#pragma unroll
        for (int b = 0; b < NB; b++)
#pragma unroll
            for (int m = 0; m < TILES; m++) sum[b][m] = sum[b][m] * unit;
    }
    template <int KT, int NB, int SPLIT>
    __device__ __forceinline__ void multiply(float4 (&sum)[NB], const piece *buffer, weights<KT, NB, SPLIT> &w,
                                             bool active = true) const
    {
        multiply(reinterpret_cast<float4(&)[NB][1]>(sum), buffer, w, active);
    }
    template <int KT, int NB, int ROWS, int N>
    __device__ __forceinline__ void step_k(float4 (&sum)[NB][ROWS], float4 (&sum_low)[NB][ROWS], float4 (&sum_weight)[NB][ROWS],
                                           const piece *buffer, int k, const piece (&w)[NB][N], int i) const
    {
#pragma unroll
        for (int m = 0; m < ROWS; m++) {
            const typename Numbers::template operand<(S::C > 1)> a(buffer + (m * KT + k) * 64, lane);
#pragma unroll
            for (int b = 0; b < NB; b++) a.multiply(sum[b][m], sum_low[b][m], sum_weight[b][m], w[b][i]);
        }
    }
    // Items of all groups to the leading warp, the shares of each added in order.
    template <int NB, int TILES, int SPLIT, int HELD, int ROWS>
    __device__ __forceinline__ void reduce(float4 (&sum)[NB][TILES], const float4 (&part)[HELD][ROWS]) const
    {
        const int SHARES = S::KS / SPLIT, ITEMS = HELD * ROWS;
        if (ks > 0) {
#pragma unroll
            for (int b = 0; b < HELD; b++)
#pragma unroll
                for (int m = 0; m < ROWS; m++) red[(((ks - 1) * S::NTC + ntl) * ITEMS + b * ROWS + m) * 32 + lane] = part[b][m];
        }
        __syncthreads();
        if (ks == 0) {
#pragma unroll
            for (int item = 0; item < NB * TILES; item++) {
                float4 total = make_float4(0, 0, 0, 0);
                const int group = SPLIT == 1 ? 0 : item / ROWS, own = SPLIT == 1 ? item : item % ROWS;
#pragma unroll
                for (int share = 0; share < SHARES; share++) {
                    const int from = group + share * SPLIT;
                    total = total + (from == 0 ? part[own / ROWS][own % ROWS]
                                               : red[(((from - 1) * S::NTC + ntl) * ITEMS + own) * 32 + lane]);
                }
                sum[item / TILES][item % TILES] = total;
            }
        }
    }
};

static __device__ __forceinline__ float4 operator+(float4 v, float2 bias)
{
    return make_float4(v.x + bias.x, v.y + bias.y, v.z + bias.x, v.w + bias.y);
}

#endif
