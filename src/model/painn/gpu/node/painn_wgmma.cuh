// SPDX-License-Identifier: MIT
// painn_wgmma.cuh: the kernels of painn_node.cuh for 64 and 128 features on Hopper, by wgmma; the equations are there.
//
// A block takes a tile of 8 NT atoms through the whole chain. Products are transposed: rows are features, so the weights are operand A and
// are loaded from L2 straight into registers, by a ring of RING steps in flight, across products and the work between them; columns are
// atoms (and components), operand B, in shared memory, written by the warps that computed them. So each weight is read once by a block,
// and each of its warps has 16 features of all products: values between two products stay in its registers, or in a part of shared
// memory private to each thread (the stash). Values that an update saves for the backward pass are laid out for the thread that saved
// them, and return by bulk copies. Each warp executes the code once and it comes from L2 as weights do: few instructions, no branches, and
// work that a product does not need (stores, the next product's other operands) overlaps with it.
#ifndef PAINN_WGMMA_CUH
#define PAINN_WGMMA_CUH

#include "painn_wgmma_node.cuh"

// Update of layer l up to q'' in R3 as an operand. V and B go to the stash if `last`, else to memory; μ'' to the stash, 1 to 3.
template <typename S, wgmma_kind kind>
static __device__ __forceinline__ bool wgmma_update(wgmma_node<S, kind> &n, float4 (&q_out)[S::NT], float4 (&g_out)[S::NT],
                                                    float4 (&yt_out)[S::NT], float4 (&ymu_out)[S::NT])
{
    const bool last = kind == WGMMA_LAST;
    const int NT = S::NT, l = n.l;
    const painn_gpu_layer &w = n.step.layer[l];
    typedef wgmma_order<kind, S::KF> O;
    n.fetch_first();
    const int n_atoms = n.step.gpu.call->n_atoms;
    begin_stage(n.step.gpu, stage_message(l) + 1);
    if (n.first >= n_atoms) return false;

    float4 q[NT], VB[2][3 * NT];
#pragma unroll
    for (int c = 0; c < 3; c++)
#pragma unroll
        for (int j = 0; j < NT; j++) {
            const float4 v = n.template read<4>(n.step.prime, j, 1 + c);
            if (!last) n.stash(1 + c, j) = v;
            n.put(0, 3 * NT, 0, c * NT + j, v);
        }
    n.publish();
    n.template multiply_both<S::KF>(VB, 0, O::U, [&](int i) {
        some_of(i, S::KF, 2 * NT, [&](int k) {
            if (k < NT)
                q[k] = n.template read<4>(n.step.prime, k, 0);
            else
                n.put(S::R1, NT, 0, k - NT, q[k - NT]);
        });
    });
    n.publish();
    {
        const float2 c1 = n.bias(w.c1, 0);
        float4 g[NT];
        n.template multiply<2 * S::KF>(g, S::R1, O::M1, [&](int i) {
            // n, the second half of k, is computed while the first half is multiplied.
            some_of(i, S::KF / 2, NT, [&](int j) {
                float4 square = splat(n.epsilon), t = splat(0);
#pragma unroll
                for (int c = 0; c < 3; c++) {
                    const float4 V = VB[0][c * NT + j], B = VB[1][c * NT + j];
                    if (last) {
                        n.stash(c, j) = V;
                        n.stash(3 + c, j) = B;
                    }
                    square = fma4(V, V, square);
                    t = fma4(V, B, t);
                }
                n.kept(3, j) = t;
                n.put(S::R1, NT, 1, j, map4(fast_sqrt, square));
            });
            if (i == S::KF / 2 - 1) n.publish();
            for (int k = i; !last && k < 3 * NT; k += S::KF) __stcs(n.saved(l, k / NT, k % NT), VB[0][k]);
        });
#pragma unroll
        for (int j = 0; j < NT; j++) {
            g[j] = n.biased(g[j], c1);
            if (last)
                g_out[j] = g[j];
            else
                __stcs(n.saved(l, 6, j), g[j]);
        }
        n.activate(g);
#pragma unroll
        for (int j = 0; j < NT; j++) n.put(S::R2, NT, 0, j, g[j]);
    }
    n.publish();
    const float2 c2q = n.bias(w.c2, 0), c2mu = n.bias(w.c2, 1), c2t = n.bias(w.c2, 2);
    float4 y[3][NT] = {}; // q, t, μ
    const auto finish_q = [&](int j) {
        yt_out[j] = n.biased(y[1][j], c2t);
        q_out[j] = q[j] + fma4(yt_out[j], n.kept(3, j), n.biased(y[0][j], c2q));
        n.put(S::R3, NT, 0, j, q_out[j]);
    };
#pragma unroll
    for (int b = 0; b < 2; b++)
        n.template multiply<S::KF>(y[b], S::R2, O::M2 + b * S::KF, [&](int j) {
            if (!last) __stcs(n.saved(l, 3 + b, j), VB[1][b * NT + j]);
        });
    if (last) {
#pragma unroll
        for (int j = 0; j < NT; j++) finish_q(j);
    } else {
        n.template multiply<S::KF>(y[2], S::R2, O::M2 + 2 * S::KF, [&](int j) {
            __stcs(n.saved(l, 5, j), VB[1][2 * NT + j]);
            finish_q(j);
        });
#pragma unroll
        for (int j = 0; j < NT; j++) {
            ymu_out[j] = n.biased(y[2][j], c2mu);
#pragma unroll
            for (int c = 0; c < 3; c++) n.stash(1 + c, j) = fma4(ymu_out[j], VB[1][c * NT + j], n.stash(1 + c, j));
        }
    }
    n.publish();
    return true;
}

// Update of layer l, message network of layer l + 1.
template <typename S>
static __global__ void __launch_bounds__(S::THREADS, 1) wgmma_update_kernel(const __grid_constant__ painn_gpu_step step, int l)
{
    DYNAMIC_SHARED(shared);
    typedef wgmma_order<WGMMA_UPDATE, S::KF> O;
    const int NT = S::NT;
    wgmma_node<S, WGMMA_UPDATE> n(step, l, shared);
    float4 q[NT], none[NT], yt[NT], ymu[NT];
    const painn_gpu_layer &w = step.layer[l + 1];
    if (!wgmma_update<S, WGMMA_UPDATE>(n, q, none, yt, ymu)) return;
    {
        const float2 b1 = n.bias(w.b1, 0);
        float4 h[NT];
        n.template multiply<S::KF>(h, S::R3, O::W1, [&](int j) {
            __stcs(n.saved(l, 8, j), yt[j]);
            __stcs(n.saved(l, 7, j), ymu[j]);
        });
#pragma unroll
        for (int j = 0; j < NT; j++) {
            h[j] = n.biased(h[j], b1);
            __stcs(n.saved(l + 1, 9, j), h[j]);
        }
        n.activate(h);
#pragma unroll
        for (int j = 0; j < NT; j++) n.put(S::R2, NT, 0, j, h[j]);
    }
    n.publish();
    const float2 b2q = n.bias(w.b2, 0), b2R = n.bias(w.b2, 1), b2m = n.bias(w.b2, 2);
    float4 x[3][NT]; // m, q, R
    n.template multiply<S::KF>(x[0], S::R2, O::W2, [&](int j) {
        n.write_q(j, q[j]);
        n.template write_pair<STATE_PAIRS>(step.state[l + 1], j, STATE_MUX, n.stash(1, j), n.stash(2, j));
    });
    n.template multiply<S::KF>(x[1], S::R2, O::W2 + S::KF, [&](int j) {
        n.template write_pair<STATE_PAIRS>(step.state[l + 1], j, STATE_MUZ, n.stash(3, j), n.biased(x[0][j], b2m));
    });
    n.template multiply<S::KF>(x[2], S::R2, O::W2 + 2 * S::KF);
#pragma unroll
    for (int j = 0; j < NT; j++)
        n.template write_pair<STATE_PAIRS>(step.state[l + 1], j, STATE_XQ, n.biased(x[1][j], b2q), n.biased(x[2][j], b2R));
}

// Energies of atoms and q̄ from q'' in R3.
template <typename S> static __device__ __forceinline__ void wgmma_readout(wgmma_node<S, WGMMA_LAST> &n, float4 (&q_bar)[S::NT])
{
    typedef wgmma_order<WGMMA_LAST, S::KF> O;
    const int NT = S::NT;
    const painn_gpu_step &step = n.step;
    // H = F / 2 hidden features: half of the warps only take part in the product.
    {
        const bool works = n.warp < S::WARPS / 2;
        const float2 zero = make_float2(0, 0), o1 = works ? n.bias(step.o1, 0) : zero, o2 = works ? n.bias(step.O2, 0) : zero;
        const bool failed = step.gpu.report->flags != 0;
        float2 owned[4]; // a ghost has no energy of its own: its adjoint is zero
#pragma unroll
        for (int j = 0; j < NT; j++) {
            const int atom = n.first + 8 * j + 2 * (n.lane % 4);
            owned[j] =
                make_float2(step.gpu.neighbors.owned[atom] ? 1.0f : 0.0f, step.gpu.neighbors.owned[atom + 1] ? 1.0f : 0.0f);
        }
        float4 z[NT], slopes[NT];
        n.template multiply<S::KF>(z, S::R3, O::O1);
#pragma unroll
        for (int j = 0; j < NT; j++) slopes[j] = z[j] = n.biased(z[j], o1);
        n.activate(z);
        n.slope(slopes);
        const float4 o4 = make_float4(o2.x, o2.x, o2.y, o2.y);
        if (works) {
#pragma unroll
            for (int j = 0; j < NT; j++)
                n.put(S::R2, NT, 0, j, slopes[j] * o4 * make_float4(owned[j].x, owned[j].y, owned[j].x, owned[j].y));
        }
        // Sums over the warp's 8 even and 8 odd features: each lane passes on the values that another lane continues with.
        const bool odd = n.lane & 16, upper = n.lane & 8, second = n.lane & 4;
        float2 e[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            e[j] = make_float2(0, 0);
            if (j >= NT) {
                owned[j] = e[j];
                continue;
            }
            z[j] = z[j] * o4;
            const float x = __shfl_xor_sync(~0u, odd ? z[j].x : z[j].z, 16), y = __shfl_xor_sync(~0u, odd ? z[j].y : z[j].w, 16);
            e[j] = odd ? make_float2(z[j].z + x, z[j].w + y) : make_float2(z[j].x + x, z[j].y + y);
        }
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const float2 mine = upper ? e[j + 2] : e[j], other = upper ? e[j] : e[j + 2];
            e[j] = make_float2(mine.x + __shfl_xor_sync(~0u, other.x, 8), mine.y + __shfl_xor_sync(~0u, other.y, 8));
        }
        static_assert(NT <= 4, "lanes take turns for four columns");
        const float2 mine = second ? e[1] : e[0], other = second ? e[0] : e[1];
        const float2 all = make_float2(mine.x + __shfl_xor_sync(~0u, other.x, 4), mine.y + __shfl_xor_sync(~0u, other.y, 4));
        const int column = 2 * upper + second;
        if (works && column < NT) {
            const float2 own = upper ? (second ? owned[3] : owned[2]) : (second ? owned[1] : owned[0]);
            // A caller that does not wait for the report sees from the energies that the step failed.
            const float2 v = failed ? make_float2(nanf(""), nanf("")) : make_float2(all.x * own.x, all.y * own.y);
            const int atom = n.first + 8 * column + 2 * (n.lane % 4);
            *(float2 *)(step.raw_energy + (size_t)(2 * n.warp + odd) * step.gpu.neighbors.atom_capacity + atom) = v;
        }
    }
    n.publish();
    float4 sum[1][NT];
    n.template multiply<S::KF / 2>(sum[0], S::R2, O::O1T);
#pragma unroll
    for (int j = 0; j < NT; j++) q_bar[j] = sum[0][j];
}

// For one j: t, and ȳ^μ as an operand.
template <typename S>
static __device__ __forceinline__ void wgmma_gate(wgmma_node<S, WGMMA_BACK> &n, int j, float4 &t,
                                                  const float4 (&mu_bar)[3][S::NT])
{
    float4 gate = splat(0);
    t = splat(0);
#pragma unroll
    for (int c = 0; c < 3; c++) {
        const float4 B = n.stash(3 + c, j);
        t = fma4(n.stash(c, j), B, t);
        gate = fma4(mu_bar[c][j], B, gate);
    }
    n.put(0, S::NT, 2, j, gate);
}

// Reverse of the update of layer l from q̄'' and, but for the last layer, μ̄'': writes q̄', μ̄'. V and B are in the stash.
template <typename S, wgmma_kind kind>
static __device__ __forceinline__ void wgmma_update_back(wgmma_node<S, kind> &n, float4 (&q_bar)[S::NT], const float4 (&t)[S::NT],
                                                         const float4 (&mu_bar)[3][S::NT], const float4 (&g_last)[S::NT],
                                                         const float4 (&yt_last)[S::NT])
{
    const bool last = kind == WGMMA_LAST;
    typedef wgmma_order<kind, S::KF> O;
    const int NT = S::NT;
    float4 yt[NT], ymu[NT];
#pragma unroll
    for (int j = 0; j < NT; j++) {
        n.put(0, NT, 0, j, q_bar[j]);
        n.put(0, NT, 1, j, q_bar[j] * t[j]);
    }
    n.publish();
    {
        float4 sum[NT], slope[NT];
        n.template multiply<(last ? 2 : 3) * S::KF>(sum, 0, O::M2T);
#pragma unroll
        for (int j = 0; j < NT; j++) {
            slope[j] = last ? g_last[j] : n.kept(0, j);
            yt[j] = last ? yt_last[j] : n.kept(2, j);
            if (!last) ymu[j] = n.kept(1, j);
        }
        n.slope(slope);
#pragma unroll
        for (int j = 0; j < NT; j++) n.put(S::R2, NT, 0, j, sum[j] * slope[j]);
    }
    n.publish();
    float4 n_bar[NT], p_bar[NT];
    n.template multiply<S::KF>(n_bar, S::R2, O::M1T, [&](int j) {
        const float4 t_bar = q_bar[j] * yt[j];
#pragma unroll
        for (int c = 0; c < 3; c++) {
            float4 B_bar = t_bar * n.stash(c, j);
            if (!last) B_bar = fma4(mu_bar[c][j], ymu[j], B_bar);
            n.put(0, 3 * NT, 1, c * NT + j, B_bar);
        }
    });
    n.template multiply<S::KF>(p_bar, S::R2, O::M1T + S::KF, [&](int j) {
        const float4 t_bar = q_bar[j] * yt[j];
        float4 square = splat(n.epsilon), V[3];
#pragma unroll
        for (int c = 0; c < 3; c++) {
            V[c] = n.stash(c, j);
            square = fma4(V[c], V[c], square);
        }
        const float4 ratio = n_bar[j] * map4(fast_rsqrt, square);
#pragma unroll
        for (int c = 0; c < 3; c++) n.put(0, 3 * NT, 0, c * NT + j, fma4(t_bar, n.stash(3 + c, j), ratio * V[c]));
    });
#pragma unroll
    for (int j = 0; j < NT; j++) q_bar[j] = q_bar[j] + p_bar[j];
    n.publish();
    float4 sum[1][3 * NT];
    n.template multiply<2 * S::KF>(sum[0], 0, O::UT);
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
static __global__ void __launch_bounds__(S::THREADS, 1) wgmma_last_kernel(const __grid_constant__ painn_gpu_step step, int l)
{
    DYNAMIC_SHARED(shared);
    const int NT = S::NT;
    wgmma_node<S, WGMMA_LAST> n(step, l, shared);
    float4 q[NT], none[NT], no_mu[3][NT], g[NT], yt[NT], q_bar[NT], t[NT];
    if (!wgmma_update<S, WGMMA_LAST>(n, q, g, yt, none)) return;
    wgmma_readout<S>(n, q_bar);
#pragma unroll
    for (int j = 0; j < NT; j++) t[j] = n.kept(3, j);
    wgmma_update_back<S, WGMMA_LAST>(n, q_bar, t, no_mu, g, yt);
}

// Reverse of the message network of layer l (h̄ = (x̄ W2)∘act'(h), q̄ = q̄' + h̄ W1), then of the update of layer l − 1.
template <typename S>
static __global__ void __launch_bounds__(S::THREADS, 1) wgmma_back_kernel(const __grid_constant__ painn_gpu_step step, int l)
{
    DYNAMIC_SHARED(shared);
    typedef wgmma_order<WGMMA_BACK, S::KF> O;
    const int NT = S::NT;
    wgmma_node<S, WGMMA_BACK> n(step, l, shared);
    n.fetch_first();
    const int n_atoms = step.gpu.call->n_atoms;
    // Values saved by the forward pass are complete since the kernel before the previous one at least: request them before the adjoints.
    if (n.first < n_atoms && threadIdx.x == 0) n.recall(l, l - 1);
    begin_stage(step.gpu, stage_edges(step.n_layers, l) + 1);
    if (n.first >= n_atoms) return;

    float4 x_bar[3][NT], mu_bar[3][NT], q_bar[NT], sum[NT], t[NT];
#pragma unroll
    for (int b = 0; b < 3; b++)
#pragma unroll
        for (int j = 0; j < NT; j++) x_bar[b][j] = n.template read<6>(step.sender, j, b);
#pragma unroll
    for (int j = 0; j < NT; j++) n.put(0, NT, 0, j, x_bar[0][j]);
    n.publish();
    n.template multiply<3 * S::KF>(sum, 0, O::W2T, [&](int i) {
        // Stores the next part of x̄ while one is multiplied; μ̄ is needed by the product after this one.
        const int b = i / (S::KF / 2) + 1, part = i % (S::KF / 2);
        some_of(part, S::KF / 2, NT, [&](int j) {
            if (b < 3)
                n.put(0, NT, b, j, x_bar[b][j]);
            else
#pragma unroll
                for (int c = 0; c < 3; c++) mu_bar[c][j] = n.template read<6>(step.sender, j, 3 + c);
        });
        if (b < 3 && part == S::KF / 2 - 1) n.publish();
    });
    float4 slope[NT];
    mbarrier_wait(n.returned(0), 0);
#pragma unroll
    for (int j = 0; j < NT; j++) slope[j] = n.kept(3, j);
    n.slope(slope);
#pragma unroll
    for (int j = 0; j < NT; j++) n.put(S::R2, NT, 0, j, sum[j] * slope[j]);
    n.publish();
    mbarrier_wait(n.returned(1), 0);
    n.template multiply<S::KF>(sum, S::R2, O::W1T, [&](int j) {
        q_bar[j] = n.template read_paired<ADJOINT_PAIRS>(step.adjoint, j, ADJOINT_Q);
        wgmma_gate<S>(n, j, t[j], mu_bar);
    });
#pragma unroll
    for (int j = 0; j < NT; j++) q_bar[j] = q_bar[j] + sum[j];
    wgmma_update_back<S, WGMMA_BACK>(n, q_bar, t, mu_bar, q_bar, q_bar);
}

// ---- launches -------------------------------------------------------------------------------------------------------

template <typename S> static int launch_wgmma(const painn_gpu_step *step, const gpu_plan *plan, int layer, int back, void *stream)
{
    void (*kernel)(painn_gpu_step, int) = back                          ? wgmma_back_kernel<S>
                                          : layer + 1 == step->n_layers ? wgmma_last_kernel<S>
                                                                        : wgmma_update_kernel<S>;
    // A multiprocessor reads the weights for each of its blocks: where there are enough multiprocessors, a block asks for more than half of the
    // shared memory, so that it has one for itself.
    const int blocks = (plan->n_atoms + S::TILE - 1) / S::TILE, ALONE = 116 * 1024,
              bytes = blocks <= plan->n_multiprocessors && S::BYTES < ALONE ? ALONE : S::BYTES;
    // Here, when a step is captured, and not for all shapes at the start: it loads the kernel's code.
    const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (error != cudaSuccess) return (int)error;
    return launch(kernel, blocks, S::THREADS, bytes, 1, plan->overlap, stream, *step, layer);
}

#endif
