// SPDX-License-Identifier: MIT
// painn_cuda_wide.cuh: the same as painn_cuda_node.cuh, for many atoms of 128 features on Hopper; the equations are there.
//
// A block has a tile of 8 NT atoms for itself and goes with it through the whole chain. Products stand the other way round:
// rows are features, so the weights are operand A and go from L2 straight into registers, where a ring of RING steps of them is
// kept on its way, across the products and what stands between them; columns are atoms (and components), operand B, in
// shared memory, written by the warps that computed them. So each weight is read once by a block, and each of its 8 warps
// has 16 features of all products: what stands between two products is in its registers, or in the part of shared memory
// that no other thread looks at (the stash). What an update saves for the way back is laid out for the thread that saved it.
#ifndef PAINN_CUDA_WIDE_CUH
#define PAINN_CUDA_WIDE_CUH

#include "painn_cuda_wide_product.cuh"

/* ---- numbers: split into two halves (three products), or one half or bfloat16 (one product) */

template <int parts, bool bfloat> struct wide_numbers {
    static const int PARTS = parts;
    static const bool BFLOAT = bfloat;
};

template <int NT_, typename Numbers_> struct wide_shape {
    typedef Numbers_ Numbers;
    static const int F = 128, NT = NT_, TILE = 8 * NT, WARPS = F / 16, THREADS = 32 * WARPS;
    static const int KF = F / 16; // k tiles of F features
    static const int RING = 8;
    static const int UNIT = F * TILE * 2 * Numbers::PARTS; // bytes of F features of a tile as operand
    static const int R1 = 3 * UNIT, R3 = 5 * UNIT, R2 = 6 * UNIT, STASH = 7 * UNIT, BYTES = STASH + 6 * F * TILE * 4;
};

// Where a product's weights stand in the order in which a kernel reads them, in steps of 16 of k for 128 rows.
enum wide_kind { WIDE_MIX, WIDE_LAST, WIDE_BACK };
template <wide_kind kind> struct wide_order;
template <> struct wide_order<WIDE_MIX> {
    static const int U = 0, M1 = 16, M2 = 32, W1 = 56, W2 = 64, END = 88;
};
template <> struct wide_order<WIDE_LAST> {
    static const int U = 0, M1 = 16, M2 = 32, O1 = 48, O1T = 56, M2T = 60, M1T = 76, UT = 92, END = 108;
};
template <> struct wide_order<WIDE_BACK> {
    static const int W2T = 0, W1T = 24, M2T = 32, M1T = 56, UT = 72, END = 88;
};

template <typename S, wide_kind kind> struct wide_node : activations {
    typedef typename S::Numbers Numbers;
    const int l; // of the kernel
    char *shared;
    uint4 ring[S::RING][Numbers::PARTS]; // high, low
    int lane, warp, first;

    __device__ __forceinline__ wide_node(const painn_cuda_step &s, int layer, uint4 *shared_memory) : activations(s), l(layer)
    {
        shared = (char *)shared_memory;
        lane = threadIdx.x % 32;
        warp = threadIdx.x / 32;
        first = (int)blockIdx.x * S::TILE;
    }

    // ---- weights
    // k tile k of output block `block` (F features) of a matrix of k_tiles. Warps beyond those with rows take the first ones' again.
    __device__ __forceinline__ void load(const void *matrix, int k_tiles, int block, int k, uint4 (&to)[Numbers::PARTS],
                                         int warps = S::WARPS) const
    {
        const uint4 *at = (const uint4 *)((const char *)matrix + step.rows_distance) +
                          ((block * S::WARPS + warp % warps) * k_tiles + k) * 32 * Numbers::PARTS + lane;
#pragma unroll
        for (int part = 0; part < Numbers::PARTS; part++) load_weights(to[part], at + 32 * part);
    }
    // Starts step s of the kernel's weights on its way.
    __device__ __forceinline__ void fetch(int s)
    {
        uint4(&to)[Numbers::PARTS] = ring[s % S::RING];
        if (kind == WIDE_BACK) {
            typedef wide_order<WIDE_BACK> O;
            const painn_cuda_layer &network = step.layer[l], &update = step.layer[l - 1];
            if (s < O::W1T)
                load(network.W2t, 24, 0, s, to);
            else if (s < O::M2T)
                load(network.W1t, 8, 0, s - O::W1T, to);
            else if (s < O::M1T)
                load(update.M2t, 24, 0, s - O::M2T, to);
            else if (s < O::UT)
                load(update.M1t, 8, (s - O::M1T) % 2, (s - O::M1T) / 2, to);
            else if (s < O::END)
                load(update.Ut, 16, 0, s - O::UT, to);
            return;
        }
        const painn_cuda_layer &update = step.layer[l];
        if (s < 16) {
            load(update.U, 8, s % 2, s / 2, to);
        } else if (s < 32) {
            load(update.M1, 16, 0, s - 16, to);
        } else if (kind == WIDE_MIX) {
            typedef wide_order<WIDE_MIX> O;
            const painn_cuda_layer &network = step.layer[l + 1];
            if (s < O::W1)
                load(update.M2, 8, (s - O::M2) % 3 == 0 ? 0 : 3 - (s - O::M2) % 3, (s - O::M2) / 3, to); // q, t, μ
            else if (s < O::W2)
                load(network.W1, 8, 0, s - O::W1, to);
            else if (s < O::END)
                load(network.W2, 8, (s - O::W2) % 3, (s - O::W2) / 3, to);
        } else {
            typedef wide_order<WIDE_LAST> O;
            if (s < O::O1)
                load(update.M2, 8, (s - O::M2) % 2 * 2, (s - O::M2) / 2, to); // q, t
            else if (s < O::O1T)
                load(step.O1, 8, 0, s - O::O1, to, S::WARPS / 2);
            else if (s < O::M2T)
                load(step.O1t, 4, 0, s - O::O1T, to);
            else if (s < O::M1T)
                load(update.M2t, 24, 0, s - O::M2T, to);
            else if (s < O::UT)
                load(update.M1t, 8, (s - O::M1T) % 2, (s - O::M1T) / 2, to);
            else if (s < O::END)
                load(update.Ut, 16, 0, s - O::UT, to);
        }
    }
    // Before that: all weights of the kernel into L2, a part by each block. Between two kernels that read them more has passed
    // through it than it holds.
    __device__ __forceinline__ void prefetch(const void *matrix, int k_tiles, int blocks) const
    {
        const int bytes = k_tiles * blocks * S::WARPS * 32 * Numbers::PARTS * 16;
        for (int at = (blockIdx.x * S::THREADS + threadIdx.x) * 128; at < bytes; at += gridDim.x * S::THREADS * 128)
            prefetch_to_l2((const char *)matrix + step.rows_distance + at);
    }
    __device__ __forceinline__ void fetch_first()
    {
        const painn_cuda_layer &network = step.layer[kind == WIDE_BACK ? l : l + 1],
                               &update = step.layer[kind == WIDE_BACK ? l - 1 : l];
        if (kind != WIDE_BACK) {
            prefetch(update.U, 8, 2);
            prefetch(update.M1, 16, 1);
            prefetch(update.M2, 8, 3);
        }
        if (kind == WIDE_MIX) {
            prefetch(network.W1, 8, 1);
            prefetch(network.W2, 8, 3);
        } else {
            if (kind == WIDE_BACK) {
                prefetch(network.W2t, 24, 1);
                prefetch(network.W1t, 8, 1);
            }
            prefetch(update.M2t, 24, 1);
            prefetch(update.M1t, 8, 2);
            prefetch(update.Ut, 16, 1);
        }
#pragma unroll
        for (int s = 0; s < S::RING; s++) fetch(s);
    }

    // ---- products
    template <int J>
    __device__ __forceinline__ void multiply_step(float4 (&sum)[J], const uint4 &a, rows_operand b, bool add) const
    {
        if (add)
            rows_product<Numbers::BFLOAT, true>(sum, a, b);
        else
            rows_product<Numbers::BFLOAT, false>(sum, a, b);
    }
    // sum[b] of B blocks of F rows, over K tiles of k of the operand at byte `from` with 8 J columns; from step `s0` on. A
    // block alone has two sums in turn: products that need not wait for each other.
    template <int K, int B, int J> __device__ __forceinline__ void multiply(float4 (&sum)[B][J], int from, int s0)
    {
        const int PART = J * 128, K8 = PART * Numbers::PARTS, TURNS = B * J <= S::NT ? 2 : 1;
        rows_operand b = rows_operand_at(shared + from, K8);
        float4 part[TURNS * B][J];
#pragma unroll
        for (int k = 0; k < K; k++) {
#pragma unroll
            for (int block = 0; block < B; block++) {
                const int s = k * B + block;
                const uint4 high = ring[(s0 + s) % S::RING][0], low = ring[(s0 + s) % S::RING][Numbers::PARTS - 1];
                float4(&first_sum)[J] = part[TURNS == 2 ? s % 2 : block], (&second_sum)[J] = part[TURNS == 2 ? 1 - s % 2 : block];
                if (s % 2 == 0) wide_begin();
                multiply_step(first_sum, high, b, TURNS == 2 ? s > (Numbers::PARTS == 1) : k > 0);
                if (Numbers::PARTS == 2) {
                    multiply_step(second_sum, high, rows_operand_after(b, PART), TURNS == 1 || s > 0);
                    multiply_step(first_sum, low, b, true);
                }
                if (s % 2 == 0) continue;
                wide_commit();
                if (s > 1) {
                    wide_wait<1>();
                    fetch(s0 + s - 3 + S::RING);
                    fetch(s0 + s - 2 + S::RING);
                }
            }
            b = rows_operand_after(b, 2 * K8);
        }
        wide_wait<0>();
#pragma unroll
        for (int k = 0; k < TURNS * B; k++) rows_settle(part[k]);
        fetch(s0 + K * B - 2 + S::RING);
        fetch(s0 + K * B - 1 + S::RING);
        const float unit = step.weight_unit;
#pragma unroll
        for (int k = 0; k < B; k++)
#pragma unroll
            for (int j = 0; j < J; j++)
                sum[k][j] = (TURNS == 2 ? part[0][j] + part[TURNS - 1][j] : part[k][j]) * make_float4(unit, unit, unit, unit);
    }
    // Rows of this warp in F features of an operand with 8 `columns` columns, columns 8 c …; `block`: which F features.
    __device__ __forceinline__ void put(int to, int columns, int block, int c, float4 v) const
    {
        const float scale = PAINN_CUDA_OPERAND_SCALE;
        const int part = columns * 128, k8 = part * Numbers::PARTS;
        char *at = shared + to + (block * 2 * S::WARPS + 2 * warp) * k8 + c * 128 + lane * 4;
        v = make_float4(v.x * scale, v.y * scale, v.z * scale, v.w * scale);
        if (Numbers::PARTS == 2) {
            const uint2 high = make_uint2(pack_half2(v.x, v.y), pack_half2(v.z, v.w));
            const float2 upper = unpack_half2(high.x), lower = unpack_half2(high.y);
            *(uint32_t *)at = high.x;
            *(uint32_t *)(at + k8) = high.y;
            *(uint32_t *)(at + part) = pack_half2(v.x - upper.x, v.y - upper.y);
            *(uint32_t *)(at + k8 + part) = pack_half2(v.z - lower.x, v.w - lower.y);
        } else {
            *(uint32_t *)at = Numbers::BFLOAT ? pack_bfloat2(v.x, v.y) : pack_half2(v.x, v.y);
            *(uint32_t *)(at + k8) = Numbers::BFLOAT ? pack_bfloat2(v.z, v.w) : pack_half2(v.z, v.w);
        }
    }
    __device__ __forceinline__ void pass_on() const
    {
        rows_publish();
        __syncthreads();
    }

    // ---- values of a thread: features 16 warp + g and that + 8 of atoms 8 j + 2 t and the next
    template <int C> __device__ __forceinline__ float4 read(const float *array, int j, int c) const
    {
        const float *at = array + ((size_t)((first + 8 * j + 2 * (lane % 4)) * S::KF + warp) * C + c) * 16 + lane / 4;
        return make_float4(at[0], at[S::KF * C * 16], at[8], at[S::KF * C * 16 + 8]);
    }
    template <int P> __device__ __forceinline__ size_t paired(int j, int c) const
    {
        return ((size_t)((first + 8 * j + 2 * (lane % 4)) * S::KF + warp) * P + c / 2) * 32 + lane / 4 * 2 + c % 2;
    }
    template <int P> __device__ __forceinline__ float4 read_paired(const float *array, int j, int c) const
    {
        const float *at = array + paired<P>(j, c);
        return make_float4(at[0], at[S::KF * P * 32], at[16], at[S::KF * P * 32 + 16]);
    }
    // Components c (even) and c + 1.
    template <int P> __device__ __forceinline__ void write_pair(float *array, int j, int c, float4 v, float4 w) const
    {
        float *at = array + paired<P>(j, c);
        *(float2 *)at = make_float2(v.x, w.x);
        *(float2 *)(at + S::KF * P * 32) = make_float2(v.y, w.y);
        *(float2 *)(at + 16) = make_float2(v.z, w.z);
        *(float2 *)(at + S::KF * P * 32 + 16) = make_float2(v.w, w.w);
    }
    __device__ __forceinline__ void write_q(int j, float4 v) const
    {
        float *at = step.q + (size_t)((first + 8 * j + 2 * (lane % 4)) * S::KF + warp) * 16 + lane / 4;
        at[0] = v.x;
        at[S::KF * 16] = v.y;
        at[8] = v.z;
        at[S::KF * 16 + 8] = v.w;
    }
    __device__ __forceinline__ float2 bias(const float *array, int block) const
    {
        const float *at = array + block * S::F + 16 * warp + lane / 4;
        return make_float2(__ldg(at), __ldg(at + 8));
    }
    static __device__ __forceinline__ float4 biased(float4 v, float2 b)
    {
        return make_float4(v.x + b.x, v.y + b.x, v.z + b.y, v.w + b.y);
    }
    __device__ __forceinline__ float4 *saved(int layer, int quantity, int j) const
    {
        const size_t tiles = (size_t)step.atom_capacity / S::TILE;
        return (float4 *)step.saved +
               (((layer * PAINN_CUDA_SAVED + quantity) * tiles + blockIdx.x) * S::WARPS + warp) * S::NT * 32 + j * 32 + lane;
    }
    __device__ __forceinline__ float4 &stash(int quantity, int j) const
    {
        return ((float4 *)(shared + S::STASH))[(quantity * S::NT + j) * S::THREADS + threadIdx.x];
    }
};

static __device__ __forceinline__ float4 splat(float v)
{
    return make_float4(v, v, v, v);
}

// Update of layer l up to q'' in R3 as an operand (not yet behind a barrier). With `last` V and B go to the stash, else to memory,
// with q'' and μ''; of μ'' the last component stays in mu_z.
template <typename S, wide_kind kind>
static __device__ __forceinline__ bool wide_update(wide_node<S, kind> &n, float4 (&mu_z)[S::NT], float4 (&g_out)[S::NT],
                                                   float4 (&yt_out)[S::NT])
{
    const bool last = kind == WIDE_LAST;
    const int NT = S::NT, l = n.l;
    const painn_cuda_layer &w = n.step.layer[l];
    typedef wide_order<kind> O;
    n.fetch_first();
    const float2 c1 = n.bias(w.c1, 0), c2q = n.bias(w.c2, 0), c2mu = n.bias(w.c2, 1), c2t = n.bias(w.c2, 2);
    const int n_atoms = n.step.call->n_atoms;
    begin_stage(n.step, stage_message(l) + 1);
    if (n.first >= n_atoms) return false;

    float4 q[NT], t[NT], B[3][NT];
#pragma unroll
    for (int c = 0; c < 4; c++)
#pragma unroll
        for (int j = 0; j < NT; j++) {
            const float4 v = n.template read<4>(n.step.prime, j, c);
            if (c == 0) {
                if (last)
                    q[j] = v;
                else
                    n.stash(0, j) = v;
                n.put(S::R1, NT, 0, j, v);
            } else {
                if (!last) n.stash(c, j) = v;
                n.put(0, 3 * NT, 0, (c - 1) * NT + j, v);
            }
        }
    n.pass_on();
    {
        float4 sum[2][3 * NT];
        n.template multiply<S::KF, 2>(sum, 0, O::U);
#pragma unroll
        for (int j = 0; j < NT; j++) {
            float4 square = splat(n.step.epsilon);
            t[j] = splat(0);
#pragma unroll
            for (int c = 0; c < 3; c++) {
                const float4 V = sum[0][c * NT + j], Bc = sum[1][c * NT + j];
                if (last) {
                    n.stash(c, j) = V;
                    n.stash(3 + c, j) = Bc;
                } else {
                    __stcs(n.saved(l, c, j), V);
                    __stcs(n.saved(l, 3 + c, j), Bc);
                    B[c][j] = Bc;
                }
                square = fma4(V, V, square);
                t[j] = fma4(V, Bc, t[j]);
            }
            n.put(S::R1, NT, 1, j, make_float4(sqrtf(square.x), sqrtf(square.y), sqrtf(square.z), sqrtf(square.w)));
        }
    }
    n.pass_on();
    {
        float4 sum[1][NT];
        n.template multiply<2 * S::KF, 1>(sum, S::R1, O::M1);
#pragma unroll
        for (int j = 0; j < NT; j++) {
            const float4 g = n.biased(sum[0][j], c1);
            if (last)
                g_out[j] = g;
            else
                __stcs(n.saved(l, 6, j), g);
            n.put(S::R2, NT, 0, j, n.activate(g));
        }
    }
    n.pass_on();
    {
        float4 sum[last ? 2 : 3][NT];
        n.template multiply<S::KF, last ? 2 : 3>(sum, S::R2, O::M2);
#pragma unroll
        for (int j = 0; j < NT; j++) {
            const float4 yq = n.biased(sum[0][j], c2q), yt = n.biased(sum[1][j], c2t);
            const float4 qq = (last ? q[j] : n.stash(0, j)) + fma4(yt, t[j], yq);
            n.put(S::R3, NT, 0, j, qq);
            if (last) {
                yt_out[j] = yt;
            } else {
                const float4 ymu = n.biased(sum[last ? 0 : 2][j], c2mu);
                __stcs(n.saved(l, 8, j), yt);
                __stcs(n.saved(l, 7, j), ymu);
                n.write_q(j, qq);
                n.template write_pair<STATE_PAIRS>(n.step.state[l + 1], j, STATE_MUX, fma4(ymu, B[0][j], n.stash(1, j)),
                                                   fma4(ymu, B[1][j], n.stash(2, j)));
                mu_z[j] = fma4(ymu, B[2][j], n.stash(3, j));
            }
        }
    }
    n.pass_on();
    return true;
}

// Update of layer l, message network of layer l + 1.
template <typename S>
static __global__ void __launch_bounds__(S::THREADS, 1) wide_mix_kernel(const __grid_constant__ painn_cuda_step step, int l)
{
    DYNAMIC_SHARED(shared);
    typedef wide_order<WIDE_MIX> O;
    const int NT = S::NT;
    wide_node<S, WIDE_MIX> n(step, l, shared);
    float4 mu_z[NT], none[NT];
    const painn_cuda_layer &w = step.layer[l + 1];
    const float2 b1 = n.bias(w.b1, 0), b2q = n.bias(w.b2, 0), b2R = n.bias(w.b2, 1), b2m = n.bias(w.b2, 2);
    if (!wide_update<S, WIDE_MIX>(n, mu_z, none, none)) return;
    {
        float4 sum[1][NT];
        n.template multiply<S::KF, 1>(sum, S::R3, O::W1);
#pragma unroll
        for (int j = 0; j < NT; j++) {
            const float4 h = n.biased(sum[0][j], b1);
            __stcs(n.saved(l + 1, 9, j), h);
            n.put(S::R2, NT, 0, j, n.activate(h));
        }
    }
    n.pass_on();
    float4 sum[3][NT];
    n.template multiply<S::KF, 3>(sum, S::R2, O::W2);
#pragma unroll
    for (int j = 0; j < NT; j++) {
        n.template write_pair<STATE_PAIRS>(step.state[l + 1], j, STATE_XQ, n.biased(sum[0][j], b2q), n.biased(sum[1][j], b2R));
        n.template write_pair<STATE_PAIRS>(step.state[l + 1], j, STATE_MUZ, mu_z[j], n.biased(sum[2][j], b2m));
    }
}

// Energies of atoms and q̄ from q'' in R3.
template <typename S> static __device__ __forceinline__ void wide_readout(wide_node<S, WIDE_LAST> &n, float4 (&q_bar)[S::NT])
{
    typedef wide_order<WIDE_LAST> O;
    const int NT = S::NT;
    const painn_cuda_step &step = n.step;
    // H = F / 2 hidden features: half of the warps only take part in the product.
    {
        const bool works = n.warp < S::WARPS / 2;
        const float2 zero = make_float2(0, 0), o1 = works ? n.bias(step.o1, 0) : zero, o2 = works ? n.bias(step.O2, 0) : zero;
        const bool failed = step.report->flags != 0;
        float4 sum[1][NT];
        n.template multiply<S::KF, 1>(sum, S::R3, O::O1);
#pragma unroll
        for (int j = 0; j < NT; j++) {
            const float4 z = n.biased(sum[0][j], o1), s = n.activate(z), d = n.slope(z);
            const int atom = n.first + 8 * j + 2 * (n.lane % 4);
            // A ghost has no energy of its own: nothing flows back from it.
            const float even = step.owned[atom] ? 1.0f : 0.0f, odd = step.owned[atom + 1] ? 1.0f : 0.0f;
            if (works) n.put(S::R2, NT, 0, j, d * make_float4(o2.x * even, o2.x * odd, o2.y * even, o2.y * odd));
            float4 e = s * make_float4(o2.x, o2.x, o2.y, o2.y);
#pragma unroll
            for (int mask = 4; mask <= 16; mask *= 2)
                e = e + make_float4(__shfl_xor_sync(~0u, e.x, mask), __shfl_xor_sync(~0u, e.y, mask),
                                    __shfl_xor_sync(~0u, e.z, mask), __shfl_xor_sync(~0u, e.w, mask));
            if (works && n.lane / 4 == 0) {
                // Who does not wait for the report sees from the energies that the step went wrong.
                if (failed) e = splat(nanf(""));
                float *at = step.raw_energy + (size_t)(2 * n.warp) * step.atom_capacity + atom;
                at[0] = even * e.x;
                at[1] = odd * e.y;
                at[step.atom_capacity] = even * e.z;
                at[step.atom_capacity + 1] = odd * e.w;
            }
        }
    }
    n.pass_on();
    float4 sum[1][NT];
    n.template multiply<S::KF / 2, 1>(sum, S::R2, O::O1T);
#pragma unroll
    for (int j = 0; j < NT; j++) q_bar[j] = sum[0][j];
}

// Reverse of the update of layer l from q̄'' and, but for the last layer, μ̄'': writes q̄', μ̄'. V and B are in the stash.
template <typename S, wide_kind kind>
static __device__ __forceinline__ void wide_update_back(wide_node<S, kind> &n, int l, const float4 (&g)[S::NT],
                                                        const float4 (&yt)[S::NT], const float4 (&ymu)[S::NT],
                                                        float4 (&q_bar)[S::NT], const float4 (&mu_bar)[3][S::NT])
{
    const bool last = kind == WIDE_LAST;
    typedef wide_order<kind> O;
    const int NT = S::NT;
#pragma unroll
    for (int j = 0; j < NT; j++) {
        float4 t = splat(0), gate = splat(0);
#pragma unroll
        for (int c = 0; c < 3; c++) {
            const float4 B = n.stash(3 + c, j);
            t = fma4(n.stash(c, j), B, t);
            if (!last) gate = fma4(mu_bar[c][j], B, gate);
        }
        n.put(0, NT, 0, j, q_bar[j]);
        n.put(0, NT, 1, j, q_bar[j] * t);
        if (!last) n.put(0, NT, 2, j, gate);
    }
    n.pass_on();
    {
        float4 sum[1][NT];
        n.template multiply<(last ? 2 : 3) * S::KF, 1>(sum, 0, O::M2T);
#pragma unroll
        for (int j = 0; j < NT; j++) n.put(S::R2, NT, 0, j, sum[0][j] * n.slope(g[j]));
    }
    n.pass_on();
    {
        float4 sum[2][NT];
        n.template multiply<S::KF, 2>(sum, S::R2, O::M1T);
#pragma unroll
        for (int j = 0; j < NT; j++) {
            const float4 t_bar = q_bar[j] * yt[j];
            float4 square = splat(n.step.epsilon), V[3];
#pragma unroll
            for (int c = 0; c < 3; c++) {
                V[c] = n.stash(c, j);
                square = fma4(V[c], V[c], square);
            }
            const float4 ratio = sum[1][j] * make_float4(rsqrtf(square.x), rsqrtf(square.y), rsqrtf(square.z), rsqrtf(square.w));
#pragma unroll
            for (int c = 0; c < 3; c++) {
                float4 B_bar = t_bar * V[c];
                if (!last) B_bar = fma4(mu_bar[c][j], ymu[j], B_bar);
                n.put(0, 3 * NT, 0, c * NT + j, fma4(t_bar, n.stash(3 + c, j), ratio * V[c]));
                n.put(0, 3 * NT, 1, c * NT + j, B_bar);
            }
            q_bar[j] = q_bar[j] + sum[0][j];
        }
    }
    n.pass_on();
    float4 sum[1][3 * NT];
    n.template multiply<2 * S::KF, 1>(sum, 0, O::UT);
#pragma unroll
    for (int j = 0; j < NT; j++) {
        float4 mu[3];
#pragma unroll
        for (int c = 0; c < 3; c++) mu[c] = last ? sum[0][c * NT + j] : sum[0][c * NT + j] + mu_bar[c][j];
        n.template write_pair<ADJOINT_PAIRS>(n.step.adjoint, j, ADJOINT_Q, q_bar[j], mu[0]);
        n.template write_pair<ADJOINT_PAIRS>(n.step.adjoint, j, ADJOINT_MUY, mu[1], mu[2]);
    }
}

template <typename S>
static __global__ void __launch_bounds__(S::THREADS, 1) wide_last_kernel(const __grid_constant__ painn_cuda_step step, int l)
{
    DYNAMIC_SHARED(shared);
    const int NT = S::NT;
    wide_node<S, WIDE_LAST> n(step, l, shared);
    float4 none[NT], no_mu[3][NT], g[NT], yt[NT], q_bar[NT];
    if (!wide_update<S, WIDE_LAST>(n, none, g, yt)) return;
    wide_readout<S>(n, q_bar);
    wide_update_back<S, WIDE_LAST>(n, l, g, yt, none, q_bar, no_mu);
}

// Reverse of the message network of layer l (h̄ = (x̄ W2)∘act'(h), q̄ = q̄' + h̄ W1), then of the update of layer l − 1.
template <typename S>
static __global__ void __launch_bounds__(S::THREADS, 1) wide_back_kernel(const __grid_constant__ painn_cuda_step step, int l)
{
    DYNAMIC_SHARED(shared);
    typedef wide_order<WIDE_BACK> O;
    const int NT = S::NT;
    wide_node<S, WIDE_BACK> n(step, l, shared);
    n.fetch_first();
    const int n_atoms = step.call->n_atoms;
    // What the way forward left lies in memory: it may set out before the adjoints are there.
    if (n.first < n_atoms) {
#pragma unroll
        for (int quantity = 0; quantity < 9; quantity++)
#pragma unroll
            for (int j = 0; j < NT; j++) prefetch_to_l2(n.saved(l - 1, quantity, j));
#pragma unroll
        for (int j = 0; j < NT; j++) prefetch_to_l2(n.saved(l, 9, j));
    }
    begin_stage(step, stage_edges(step.n_layers, l) + 1);
    if (n.first >= n_atoms) return;

    float4 mu_bar[3][NT], q_bar[NT];
#pragma unroll
    for (int b = 0; b < 3; b++)
#pragma unroll
        for (int j = 0; j < NT; j++) n.put(0, NT, b, j, n.template read<6>(step.sender, j, b));
    n.pass_on();
    // Wanted only after two products. Not before the fence above, which would wait for them.
#pragma unroll
    for (int b = 0; b < 3; b++)
#pragma unroll
        for (int j = 0; j < NT; j++) mu_bar[b][j] = n.template read<6>(step.sender, j, 3 + b);
#pragma unroll
    for (int k = 0; k < 6; k++)
#pragma unroll
        for (int j = 0; j < NT; j++) copy_async(&n.stash(k, j), n.saved(l - 1, k, j));
    copy_commit();
    {
        float4 sum[1][NT];
        n.template multiply<3 * S::KF, 1>(sum, 0, O::W2T);
#pragma unroll
        for (int j = 0; j < NT; j++) n.put(S::R2, NT, 0, j, sum[0][j] * n.slope(*n.saved(l, 9, j)));
    }
    n.pass_on();
    {
        float4 sum[1][NT];
        n.template multiply<S::KF, 1>(sum, S::R2, O::W1T);
#pragma unroll
        for (int j = 0; j < NT; j++) q_bar[j] = n.template read_paired<ADJOINT_PAIRS>(step.adjoint, j, ADJOINT_Q) + sum[0][j];
    }
    float4 g[NT], yt[NT], ymu[NT];
#pragma unroll
    for (int j = 0; j < NT; j++) {
        g[j] = *n.saved(l - 1, 6, j);
        yt[j] = *n.saved(l - 1, 8, j);
        ymu[j] = *n.saved(l - 1, 7, j);
    }
    copy_wait<0>();
    wide_update_back<S, WIDE_BACK>(n, l - 1, g, yt, ymu, q_bar, mu_bar);
}

// ---- launches -------------------------------------------------------------------------------------------------------

template <typename S>
static int launch_wide(const painn_cuda_step *step, const painn_cuda_plan *plan, int layer, int back, void *stream)
{
    void (*kernel)(painn_cuda_step, int) = back                          ? wide_back_kernel<S>
                                           : layer + 1 == step->n_layers ? wide_last_kernel<S>
                                                                         : wide_mix_kernel<S>;
    return launch(kernel, (plan->n_atoms + S::TILE - 1) / S::TILE, S::THREADS, S::BYTES, 1, plan->overlap, stream, *step, layer);
}

template <typename S> static void raise_wide()
{
    cudaFuncSetAttribute(wide_mix_kernel<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, S::BYTES);
    cudaFuncSetAttribute(wide_last_kernel<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, S::BYTES);
    cudaFuncSetAttribute(wide_back_kernel<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, S::BYTES);
}

#endif
