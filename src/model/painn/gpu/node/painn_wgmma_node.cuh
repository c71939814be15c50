/* SPDX-License-Identifier: MIT */
/* painn_wgmma_node.cuh: a tile of the kernels of painn_wgmma.cuh: its shape, order and transport of weights, products, operands, values of
 * a thread, and values that an update saves. */
#ifndef PAINN_WGMMA_NODE_CUH
#define PAINN_WGMMA_NODE_CUH

#include "painn_wgmma_product.cuh"

/* ---- numbers: split into two halves (three products), or one half or bfloat16 (one product) */

template <int parts, bool bfloat> struct wgmma_numbers {
    static const int PARTS = parts;
    static const bool BFLOAT = bfloat;
};

template <int F_, int NT_, typename Numbers_> struct wgmma_shape {
    typedef Numbers_ Numbers;
    static const int F = F_, NT = NT_, TILE = 8 * NT, WARPS = F / 16, THREADS = 32 * WARPS;
    static const int KF = F / 16;                                       // k tiles of F features
    static const int RING = NT == 1 ? 16 : F == 64 && NT == 2 ? 12 : 8; // as registers allow
    static const int UNIT = F * TILE * 2 * Numbers::PARTS;              // bytes of F features of a tile as operand
    static const int R1 = 3 * UNIT, R3 = 5 * UNIT, R2 = 6 * UNIT, STASH = 7 * UNIT, FLOATS = F * TILE * 4;
    static const int KEPT = STASH + 6 * FLOATS, GATES = KEPT + (Numbers::PARTS == 2 ? 1 : 4) * FLOATS, BYTES = GATES + 64;
};

// Order of a kernel's weights, in steps of 16 of k for F rows: first step of each product. KF: k tiles of F features.
enum wgmma_kind { WGMMA_UPDATE, WGMMA_LAST, WGMMA_BACK };
template <wgmma_kind kind, int KF> struct wgmma_order;
template <int KF> struct wgmma_order<WGMMA_UPDATE, KF> {
    static const int U = 0, M1 = 2 * KF, M2 = 4 * KF, W1 = 7 * KF, W2 = 8 * KF, END = 11 * KF;
};
template <int KF> struct wgmma_order<WGMMA_LAST, KF> {
    static const int U = 0, M1 = 2 * KF, M2 = 4 * KF, O1 = 6 * KF, O1T = 7 * KF, M2T = O1T + KF / 2, M1T = M2T + 2 * KF,
                     UT = M1T + 2 * KF, END = UT + 2 * KF;
};
template <int KF> struct wgmma_order<WGMMA_BACK, KF> {
    static const int W2T = 0, W1T = 3 * KF, M2T = 4 * KF, M1T = 7 * KF, UT = 9 * KF, END = 11 * KF;
};

// Part `part` of `parts` of n things: f(j) for each.
template <typename Function> static __device__ __forceinline__ void some_of(int part, int parts, int n, Function f)
{
    const int each = (n + parts - 1) / parts;
#pragma unroll
    for (int k = 0; k < each; k++)
        if (part * each + k < n) f(part * each + k);
}

template <typename S, wgmma_kind kind> struct wgmma_node : activations {
    typedef typename S::Numbers Numbers;
    const int l; // layer of the kernel
    char *shared;
    uint4 ring[S::RING][Numbers::PARTS]; // high, low
    int lane, warp, first;
    uint64_t policy;
    float unit, epsilon; // pinned in registers: from constant memory each use would cost an instruction

    __device__ __forceinline__ wgmma_node(const painn_gpu_step &s, int layer, uint4 *shared_memory)
        : activations(s), l(layer), policy(policy_of_weights()), unit(pin_in_register(s.weight_unit)),
          epsilon(pin_in_register(s.epsilon))
    {
        shared = (char *)shared_memory;
        lane = threadIdx.x % 32;
        warp = threadIdx.x / 32;
        first = (int)blockIdx.x * S::TILE;
    }

    // ---- weights
    // Loads k tile k of output block `block` (F features) of a matrix of k_tiles. Warps without rows load those of the first warps.
    __device__ __forceinline__ void load(const void *matrix, int k_tiles, int block, int k, uint4 (&to)[Numbers::PARTS],
                                         int warps = S::WARPS) const
    {
        const int K_TILE = 512 * Numbers::PARTS; // bytes of a warp
        const char *at = (const char *)matrix + step.rows_distance + (warp % warps * (k_tiles * K_TILE) + lane * 16) +
                         (size_t)((block * S::WARPS * k_tiles + k) * K_TILE);
#pragma unroll
        for (int part = 0; part < Numbers::PARTS; part++) load_weights(to[part], (const uint4 *)at + 32 * part, policy);
    }
    // Requests step s of the kernel's weights.
    __device__ __forceinline__ void fetch(int s)
    {
        uint4(&to)[Numbers::PARTS] = ring[s % S::RING];
        typedef wgmma_order<kind, S::KF> O;
        const int KF = S::KF;
        const painn_gpu_layer &update = step.layer[kind == WGMMA_BACK ? l - 1 : l],
                              &network = step.layer[kind == WGMMA_BACK ? l : l + 1];
        if (s >= O::END) return;
        if constexpr (kind != WGMMA_UPDATE) {
            if (s >= O::UT) return load(update.Ut, 2 * KF, 0, s - O::UT, to);
            if (s >= O::M1T) return load(update.M1t, KF, 1 - (s - O::M1T) / KF, (s - O::M1T) % KF, to); // n̄, p̄
            if (s >= O::M2T) return load(update.M2t, 3 * KF, 0, s - O::M2T, to);
        }
        if constexpr (kind == WGMMA_BACK) {
            if (s >= O::W1T) return load(network.W1t, KF, 0, s - O::W1T, to);
            return load(network.W2t, 3 * KF, 0, s, to);
        } else {
            if (s < O::M1) return load(update.U, KF, s % 2, s / 2, to);
            if (s < O::M2) return load(update.M1, 2 * KF, 0, s - O::M1, to);
        }
        if constexpr (kind == WGMMA_UPDATE) {
            if (s < O::W1) return load(update.M2, KF, s < O::M2 + KF ? 0 : 3 - (s - O::M2) / KF, (s - O::M2) % KF, to); // q, t, μ
            if (s < O::W2) return load(network.W1, KF, 0, s - O::W1, to);
            return load(network.W2, KF, ((s - O::W2) / KF + 2) % 3, (s - O::W2) % KF, to); // μ, q, R
        }
        if constexpr (kind == WGMMA_LAST) {
            if (s < O::O1) return load(update.M2, KF, (s - O::M2) / KF * 2, (s - O::M2) % KF, to); // q, t
            if (s < O::O1T) return load(step.O1, KF, 0, s - O::O1, to, S::WARPS / 2);
            return load(step.O1t, KF / 2, 0, s - O::O1T, to);
        }
    }
    // Prefetches all weights of the kernel into L2, a part by each block: between two kernels that read them, more data than L2 holds has
    // passed through it.
    __device__ __forceinline__ void prefetch(const void *matrix, int k_tiles, int blocks) const
    {
        const int bytes = k_tiles * blocks * S::WARPS * 32 * Numbers::PARTS * 16;
        for (int at = (blockIdx.x * S::THREADS + threadIdx.x) * 128; at < bytes; at += gridDim.x * S::THREADS * 128)
            prefetch_to_l2((const char *)matrix + step.rows_distance + at);
    }
    __device__ __forceinline__ void fetch_first()
    {
        const int KF = S::KF;
        const painn_gpu_layer &network = step.layer[kind == WGMMA_BACK ? l : l + 1],
                              &update = step.layer[kind == WGMMA_BACK ? l - 1 : l];
        if (kind != WGMMA_BACK) {
            prefetch(update.U, KF, 2);
            prefetch(update.M1, 2 * KF, 1);
            prefetch(update.M2, KF, 3);
        }
        if (kind == WGMMA_UPDATE) {
            prefetch(network.W1, KF, 1);
            prefetch(network.W2, KF, 3);
        } else {
            if (kind == WGMMA_BACK) {
                prefetch(network.W2t, 3 * KF, 1);
                prefetch(network.W1t, KF, 1);
            }
            prefetch(update.M2t, 3 * KF, 1);
            prefetch(update.M1t, KF, 2);
            prefetch(update.Ut, 2 * KF, 1);
        }
#pragma unroll
        for (int s = 0; s < S::RING; s++) fetch(s);
    }

    // ---- products
    template <int J>
    __device__ __forceinline__ void multiply_part(float4 (&sum)[J], const uint4 &a, row_operand b, bool add) const
    {
        if (add)
            row_product<Numbers::BFLOAT, true>(sum, a, b);
        else
            row_product<Numbers::BFLOAT, false>(sum, a, b);
    }
    template <int J>
    __device__ __forceinline__ void multiply_step(float4 (&sum)[J], const uint4 (&a)[Numbers::PARTS], row_operand b, int part,
                                                  bool add) const
    {
        multiply_part(sum, a[0], b, add);
        if (Numbers::PARTS == 2) {
            multiply_part(sum, a[0], row_operand_after(b, part), true);
            multiply_part(sum, a[Numbers::PARTS - 1], b, true);
        }
    }
    // After the products of steps s − 1 and s, of a product that begins at step s0: when earlier ones are complete, their ring entries are
    // refilled.
    __device__ __forceinline__ void turn_ring(int s0, int s)
    {
        wgmma_commit();
        if (s < 2) return;
        wgmma_wait<1>();
        fetch(s0 + s - 3 + S::RING);
        fetch(s0 + s - 2 + S::RING);
    }
    __device__ __forceinline__ void end_ring(int s0, int steps)
    {
        wgmma_wait<0>();
        fetch(s0 + steps - 2 + S::RING);
        fetch(s0 + steps - 1 + S::RING);
    }
    // V and B, sum[0] and [1]: K tiles of k of the operand at byte `from` with 3 NT columns, from step `s0` on.
    template <int K, typename Function>
    __device__ __forceinline__ void multiply_both(float4 (&sum)[2][3 * S::NT], int from, int s0, Function beside)
    {
        const int PART = 3 * S::NT * 128, K8 = PART * Numbers::PARTS;
        row_operand b = row_operand_at(shared + from, K8);
#pragma unroll
        for (int k = 0; k < K; k++) {
            wgmma_begin();
#pragma unroll
            for (int block = 0; block < 2; block++)
                multiply_step(sum[block], ring[(s0 + 2 * k + block) % S::RING], b, PART, k > 0);
            turn_ring(s0, 2 * k + 1);
            beside(k);
            b = row_operand_after(b, 2 * K8);
        }
        end_ring(s0, 2 * K);
        finish(sum[0]);
        finish(sum[1]);
    }
    // The same for one block of F rows. `beside(i)`, i = 0 … K / 2 − 1, for a short product 0 … NT − 1, runs while products are in
    // flight: mainly stores, which a multiprocessor writes at 32 bytes per clock.
    template <int K, int J> __device__ __forceinline__ void multiply(float4 (&sum)[J], int from, int s0)
    {
        multiply<K>(sum, from, s0, [](int) {});
    }
    template <int K, int J, typename Function>
    __device__ __forceinline__ void multiply(float4 (&sum)[J], int from, int s0, Function beside)
    {
        const int PART = J * 128, K8 = PART * Numbers::PARTS;
        const bool BOTH = Numbers::PARTS == 2 && J == S::NT;
        row_operand b = row_operand_at(shared + from, K8);
        float4 both[BOTH ? 2 * J : J];
#pragma unroll
        for (int k = 0; k < K; k++) {
            const uint4(&a)[Numbers::PARTS] = ring[(s0 + k) % S::RING];
            if (k % 2 == 0) wgmma_begin();
            if constexpr (BOTH) {
                // High and low parts of B together: two products instead of three; low × low costs nothing more.
                multiply_part(both, a[0], b, k > 0);
                multiply_part(both, a[1], b, true);
            } else {
                multiply_step(both, a, b, PART, k > 0);
            }
            if (k % 2 == 1) {
                turn_ring(s0, k);
                if (K > S::KF)
                    beside(k / 2);
                else
                    some_of(k / 2, K / 2, S::NT, beside);
            }
            b = row_operand_after(b, 2 * K8);
        }
        end_ring(s0, K);
        if constexpr (BOTH) {
            operand_settle(both);
#pragma unroll
            for (int j = 0; j < J; j++) sum[j] = (both[j] + both[J + j]) * splat(unit);
        } else {
#pragma unroll
            for (int j = 0; j < J; j++) sum[j] = both[j];
            finish(sum);
        }
    }
    template <int J> __device__ __forceinline__ void finish(float4 (&sum)[J]) const
    {
        operand_settle(sum);
#pragma unroll
        for (int j = 0; j < J; j++) sum[j] = sum[j] * splat(unit);
    }
    // Stores this warp's rows of F features into an operand with 8 `columns` columns, columns 8 c …; `block`: which F features.
    __device__ __forceinline__ void put(int to, int columns, int block, int c, float4 v) const
    {
        const int part = columns * 128, k8 = part * Numbers::PARTS;
        char *at = shared + to + (block * 2 * S::WARPS + 2 * warp) * k8 + c * 128;
        v = v * splat(PAINN_GPU_OPERAND_SCALE);
        if (Numbers::PARTS == 2) {
            const uint4 both = pack_split(v);
            store_pieces(at, lane, k8, part, make_uint2(both.x, both.y), make_uint2(both.z, both.w));
        } else {
            store_pieces(at, lane, k8,
                         Numbers::BFLOAT ? make_uint2(pack_bfloat2(v.x, v.y), pack_bfloat2(v.z, v.w))
                                         : make_uint2(pack_half2(v.x, v.y), pack_half2(v.z, v.w)));
        }
    }
    __device__ __forceinline__ void publish() const
    {
        operand_fence();
        __syncthreads();
    }

    // ---- values of a thread: features 16 warp + 2 g (x, y) and the next (z, w) of atoms 8 j + 2 t (x, z) and the next (y, w): weights'
    // rows and k are permuted so that row g of a product is feature 2 g, row g + 8 the next
    template <int C> __device__ __forceinline__ float4 read(const float *array, int j, int c) const
    {
        const float *at = array + ((size_t)((first + 8 * j + 2 * (lane % 4)) * S::KF + warp) * C + c) * 16 + lane / 4 * 2;
        const float2 even = *(const float2 *)at, odd = *(const float2 *)(at + S::KF * C * 16);
        return make_float4(even.x, odd.x, even.y, odd.y);
    }
    template <int P> __device__ __forceinline__ size_t paired(int j, int c) const
    {
        return ((size_t)((first + 8 * j + 2 * (lane % 4)) * S::KF + warp) * P + c / 2) * 32 + lane / 4 * 4;
    }
    // Component c, which is even.
    template <int P> __device__ __forceinline__ float4 read_paired(const float *array, int j, int c) const
    {
        const float *at = array + paired<P>(j, c);
        const float4 even = *(const float4 *)at, odd = *(const float4 *)(at + S::KF * P * 32);
        return make_float4(even.x, odd.x, even.z, odd.z);
    }
    // Components c (even) and c + 1.
    template <int P> __device__ __forceinline__ void write_pair(float *array, int j, int c, float4 v, float4 w) const
    {
        float *at = array + paired<P>(j, c);
        *(float4 *)at = make_float4(v.x, w.x, v.z, w.z);
        *(float4 *)(at + S::KF * P * 32) = make_float4(v.y, w.y, v.w, w.w);
    }
    __device__ __forceinline__ void write_q(int j, float4 v) const
    {
        float *at = step.q + (size_t)((first + 8 * j + 2 * (lane % 4)) * S::KF + warp) * 16 + lane / 4 * 2;
        *(float2 *)at = make_float2(v.x, v.z);
        *(float2 *)(at + S::KF * 16) = make_float2(v.y, v.w);
    }
    __device__ __forceinline__ float2 bias(const float *array, int block) const
    {
        return __ldg((const float2 *)(array + block * S::F + 16 * warp + lane / 4 * 2));
    }
    static __device__ __forceinline__ float4 biased(float4 v, float2 b)
    {
        return make_float4(v.x + b.x, v.y + b.x, v.z + b.y, v.w + b.y);
    }
    // [layers][tiles][quantities][NT][threads], as in the stash.
    __device__ __forceinline__ float4 *saved(int layer, int quantity, int j) const
    {
        const size_t tiles = (size_t)step.gpu.neighbors.atom_capacity / S::TILE;
        const int TILE = PAINN_GPU_SAVED * S::NT * S::THREADS;
        return (float4 *)step.saved + (layer * tiles + blockIdx.x) * TILE + threadIdx.x +
               (size_t)((quantity * S::NT + j) * S::THREADS);
    }
    // mbarrier 0: h has returned, kept(3); mbarrier 1: V and B, the stash, and g, y^μ, y^t, kept(0 … 2).
    __device__ __forceinline__ uint64_t *returned(int which) const
    {
        return (uint64_t *)(shared + S::GATES) + which;
    }
    // Requests saved values. By one thread, before the first barrier.
    __device__ __forceinline__ void recall(int network, int update) const
    {
        mbarrier_init(returned(0), 1);
        mbarrier_init(returned(1), 1);
        mbarrier_init_fence();
        mbarrier_expect(returned(0), S::FLOATS);
        bulk_copy(&kept(3, 0), saved(network, 9, 0), S::FLOATS, returned(0));
        mbarrier_expect(returned(1), 9 * S::FLOATS);
        bulk_copy(&stash(0, 0), saved(update, 0, 0), 6 * S::FLOATS, returned(1));
        bulk_copy(&kept(0, 0), saved(update, 6, 0), 3 * S::FLOATS, returned(1));
    }
    // Four more quantities; with split operands three of them are stored where no operand is until the product with Uᵀ.
    __device__ __forceinline__ float4 &kept(int quantity, int j) const
    {
        const int at = Numbers::PARTS == 1 ? S::KEPT + quantity * S::FLOATS
                       : quantity == 3     ? S::KEPT
                                           : S::R1 + quantity * S::FLOATS;
        return ((float4 *)(shared + at))[j * S::THREADS + threadIdx.x];
    }
    __device__ __forceinline__ float4 &stash(int quantity, int j) const
    {
        return ((float4 *)(shared + S::STASH))[(quantity * S::NT + j) * S::THREADS + threadIdx.x];
    }
};

#endif
