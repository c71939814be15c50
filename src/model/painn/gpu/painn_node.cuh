// SPDX-License-Identifier: MIT
// painn_node.cuh: all of PaiNN that is local to an atom, for one kind of operands (painn_gpu_node*.cu): update
// of layer l, message network of layer l + 1, readout, and their reverse.
//
//   [V_c | B_c] = μ'_c Uᵀ ;  n = √(Σ V² + ε) ;  t = Σ V∘B ;  g = [q' | n] M1ᵀ + c1 ;  y = act(g) M2ᵀ + c2
//   q'' = q' + y^q + y^t∘t ;  μ''_c = μ'_c + y^μ∘B_c ;  h = q'' W1ᵀ + b1 ;  x = act(h) W2ᵀ + b2
//
// A tile of 16 atoms goes through the whole chain in one block, or in a cluster of C blocks that share the features; activations pass
// from product to product in shared memory, laid out as operands of the tensor cores and split into two halves (three products:
// fp32-class), or, in the fast modes, rounded to one number (one product). A warp owns 8 features of all products, so that what
// stands between two products is in its registers. With C > 1 several warps share the sums of a product over k; the first of them
// adds these in order. Between blocks values travel as mail: stores into the others' shared memory that count themselves in at the
// receiver's mailbox, so that no fence waits for anything else. Weights come from L2 as fragments, 16 bytes a lane. Bound by latency
// up to some hundred atoms, by L2 reads of the weights to some thousand, by the tensor cores beyond.
//
// Which shapes are chosen (plan_of_painn): 64 features, C = 1, on any GPU; 128 features, C = 1, before Hopper and, of many atoms, on
// what comes after it; C = 8, 4 and 2 there and on parts of a Hopper GPU (MIG) for as many tiles as run at once. On a whole Hopper GPU
// C = 8 for up to 128 atoms whose layers are not in one kernel (halos, pairs without reverses), and in the fast modes C = 8 and 4 to
// some 500 atoms; all else there are painn_wgmma.cuh's and painn_layers.cu's.
#ifndef PAINN_GPU_NODE_CUH
#define PAINN_GPU_NODE_CUH

#include "painn_tile.cuh"
#include "painn_wgmma.cuh"

// Values that stay with a leading warp between the parts of the chain.
template <typename S> struct update_values {
    float4 V[3], B[3], q, mu[3], t, g, ymu, yt;
};

// What an update saved for the way back.
template <typename S> static __device__ __forceinline__ void recall(const node<S> &n, int layer, update_values<S> &v)
{
#pragma unroll
    for (int c = 0; c < 3; c++) {
        v.V[c] = *n.saved(layer, c);
        v.B[c] = *n.saved(layer, 3 + c);
    }
    v.g = *n.saved(layer, 6);
    v.yt = *n.saved(layer, 8);
    v.ymu = *n.saved(layer, 7);
}
template <typename S> static __device__ __forceinline__ void dot(update_values<S> &v)
{
    v.t = splat(0);
#pragma unroll
    for (int c = 0; c < 3; c++) v.t = fma4(v.V[c], v.B[c], v.t);
}

// Weights of what follows an update, fetched while it still works.
template <typename S> struct network_weights {
    typename node<S>::template weights<S::KF, 1, 1> w1;
    typename node<S>::template weights<S::KF, 3, S::SPLIT_3> w2;
    float2 b1, b2q, b2R, b2m;
    __device__ __forceinline__ void fetch(const node<S> &n, const painn_gpu_layer &w)
    {
        const int columns1[1] = {n.ft}, columns2[3] = {n.ft, S::FT + n.ft, 2 * S::FT + n.ft};
        n.fetch(w1, w.W1, columns1, S::KF);
        n.fetch(w2, w.W2, columns2, S::KF);
        b1 = n.bias(w.b1, 0);
        b2q = n.bias(w.b2, 0);
        b2R = n.bias(w.b2, 1);
        b2m = n.bias(w.b2, 2);
    }
};
template <typename S> struct readout_weights {
    // H = F/2 hidden features: half as many column tiles, so half of the warps (or blocks' tiles) rest.
    static const int HTC = S::NTC / 2, KH = S::KF / 2, LOCAL = HTC > 0 ? HTC : 1;
    typename node<S>::template weights<S::KF, 1, 1> w1;
    typename node<S>::template weights<KH, 1, 1> w1t;
    int ht;
    bool works, failed;
    float2 o1, o2;
    float owned[2];
    __device__ __forceinline__ void fetch(const node<S> &n, const painn_gpu_layer &)
    {
        works = n.ntl < LOCAL;
        ht = works ? cluster_rank<S::C>() * LOCAL + n.ntl : 0;
        const int columns1[1] = {ht}, columns1t[1] = {n.ft}, h = 8 * ht + 2 * (n.lane % 4);
        n.fetch(w1, n.step.O1, columns1, S::KF);
        n.fetch(w1t, n.step.O1t, columns1t, KH);
        o1 = __ldg((const float2 *)(n.step.o1 + h));
        o2 = __ldg((const float2 *)(n.step.O2 + h));
        failed = n.step.gpu.report->flags != 0;
        for (int k = 0; k < 2; k++) owned[k] = n.step.gpu.neighbors.owned[n.first + n.lane / 4 + 8 * k] ? 1.0f : 0.0f;
    }
};

// Update of layer l. Leaves q'' in r3 as an operand (not yet behind a barrier) and, but for the last layer, in step.q
// and μ'' in step.state[l + 1]. False if the tile has no atoms.
template <typename S, bool last, typename After>
static __device__ __forceinline__ bool update(node<S> &n, int l, update_values<S> &v, After &after)
{
    const painn_gpu_layer &w = n.step.layer[l];
    typename node<S>::template weights<S::KF, 2, S::SPLIT_U> wU;
    typename node<S>::template weights<2 * S::KF, 1, 1> wM1;
    typename node<S>::template weights<S::KF, last ? 2 : 3, last ? S::SPLIT_2 : S::SPLIT_3> wM2;
    const int columns_U[2] = {n.ft, S::FT + n.ft}, columns_M1[1] = {n.ft};
    const int columns_M2[3] = {n.ft, 2 * S::FT + n.ft, S::FT + n.ft}; // q, t, μ: the last layer needs no μ
    // Ahead of what the kernel before this one computes: weights, biases, mailboxes.
    n.fetch(wU, w.U, columns_U, S::KF);
    n.fetch(wM1, w.M1, columns_M1, 2 * S::KF);
    const float2 c1 = n.bias(w.c1, 0), c2q = n.bias(w.c2, 0), c2mu = n.bias(w.c2, 1), c2t = n.bias(w.c2, 2);
    const int n_atoms = n.step.gpu.call->n_atoms;
    if (last) {
        const int bytes[7] = {S::UNIT, S::UNIT, S::UNIT, S::UNIT / 2, 2 * S::UNIT, S::UNIT, 6 * S::UNIT};
        n.open(bytes);
    } else {
        const int bytes[4] = {S::UNIT, S::UNIT, S::UNIT, S::UNIT};
        n.open(bytes);
    }
    begin_stage(n.step.gpu, stage_message(l) + 1);
    if (n.first >= n_atoms) return false;

    // Every warp splits the values of one feature tile; a leading warp's is the one it keeps.
    const int tile = (cluster_rank<S::C>() * S::NTC + n.warp) % S::FT;
    v.q = n.template load<4>(n.step.prime, 0, tile);
#pragma unroll
    for (int c = 0; c < 3; c++) v.mu[c] = n.template load<4>(n.step.prime, 1 + c, tile);
    n.template put<false>(n.r1, tile, v.q);
#pragma unroll
    for (int c = 0; c < 3; c++) n.template put<false>(n.r0 + c * (S::KF * 64), tile, v.mu[c]);
    __syncthreads();
    {
        float4 sum[2][3];
        n.multiply(sum, n.r0, wU);
        if (n.leads()) {
            float4 square = splat(n.step.epsilon);
            v.t = splat(0);
#pragma unroll
            for (int c = 0; c < 3; c++) {
                float4 V = sum[0][c], B = sum[1][c];
                if (!last) {
                    *n.saved(l, c) = V;
                    *n.saved(l, 3 + c) = B;
                }
                square = fma4(V, V, square);
                v.t = fma4(V, B, v.t);
                v.V[c] = V;
                v.B[c] = B;
            }
            n.template put<true>(n.r1, S::FT + n.ft,
                                 make_float4(sqrtf(square.x), sqrtf(square.y), sqrtf(square.z), sqrtf(square.w)));
        }
    }
    n.fetch(wM2, w.M2, columns_M2, S::KF);
    if (S::KS >= 8) after.fetch(n, n.step.layer[l + 1]);
    n.receive();
    {
        float4 sum[1];
        n.multiply(sum, n.r1, wM1);
        if (n.leads()) {
            v.g = sum[0] + c1;
            if (!last) *n.saved(l, 6) = v.g;
            n.template put<true>(n.r2, n.ft, n.activate(v.g));
        }
    }
    n.receive();
    {
        float4 sum[last ? 2 : 3];
        n.multiply(sum, n.r2, wM2);
        if (n.leads()) {
            float4 yq = sum[0] + c2q, yt = sum[1] + c2t;
            float4 q = v.q + fma4(yt, v.t, yq);
            n.template put<true>(n.r3, n.ft, q);
            if (!last) *n.saved(l, 8) = yt;
            v.yt = yt;
            if (!last) {
                float4 ymu = sum[last ? 0 : 2] + c2mu, mu[3];
                *n.saved(l, 7) = ymu;
                n.store_q(q);
#pragma unroll
                for (int c = 0; c < 3; c++) mu[c] = fma4(ymu, v.B[c], v.mu[c]);
                n.template store_pair<STATE_PAIRS>(n.step.state[l + 1], STATE_MUX, mu[0], mu[1]);
                n.template store_one<STATE_PAIRS>(n.step.state[l + 1], STATE_MUZ, mu[2]);
            }
        }
    }
    return true;
}

// Message network of layer l: x from q'' in r3.
template <typename S> static __device__ __forceinline__ void network(node<S> &n, int l, network_weights<S> &w)
{
    if (S::KS < 8) w.fetch(n, n.step.layer[l]);
    n.receive();
    {
        float4 sum[1];
        n.multiply(sum, n.r3, w.w1);
        if (n.leads()) {
            const float4 h = sum[0] + w.b1;
            *n.saved(l, 9) = h;
            n.template put<true>(n.r2, n.ft, n.activate(h));
        }
    }
    n.receive();
    float4 sum[3];
    n.multiply(sum, n.r2, w.w2);
    if (n.leads()) {
        n.template store_pair<STATE_PAIRS>(n.step.state[l], STATE_XQ, sum[0] + w.b2q, sum[1] + w.b2R);
        n.template store_one<STATE_PAIRS>(n.step.state[l], STATE_XM, sum[2] + w.b2m);
    }
}

// Energies of atoms and q̄ from q'' in r3.
template <typename S> static __device__ __forceinline__ void readout(node<S> &n, float4 &q_bar, readout_weights<S> &w)
{
    if (S::KS < 8) w.fetch(n, n.step.layer[0]);
    n.receive();
    {
        float4 sum[1];
        n.multiply(sum, n.r3, w.w1, w.works);
        if (n.leads() && w.works) {
            float4 z = sum[0] + w.o1, s = n.activate(z), d = n.slope(z);
            int atom = n.first + n.lane / 4;
            // A ghost has no energy of its own: nothing flows back from it.
            float upper = w.owned[0], lower = w.owned[1];
            n.template put<true>(n.r2, w.ht, d * make_float4(w.o2.x * upper, w.o2.y * upper, w.o2.x * lower, w.o2.y * lower));
            float e0 = s.x * w.o2.x + s.y * w.o2.y, e1 = s.z * w.o2.x + s.w * w.o2.y;
            e0 += __shfl_xor_sync(~0u, e0, 1);
            e1 += __shfl_xor_sync(~0u, e1, 1);
            e0 += __shfl_xor_sync(~0u, e0, 2);
            e1 += __shfl_xor_sync(~0u, e1, 2);
            if (n.lane % 4 == 0) {
                // Who does not wait for the report sees from the energies that the step went wrong.
                if (w.failed) e0 = e1 = nanf("");
                float *at = n.step.raw_energy + (size_t)w.ht * n.step.gpu.neighbors.atom_capacity + atom;
                at[0] = upper * e0;
                at[8] = lower * e1;
            }
        }
    }
    n.receive();
    float4 sum[1];
    n.multiply(sum, n.r2, w.w1t);
    q_bar = sum[0];
}

template <typename S, bool last> struct back_weights {
    typename node<S>::template weights<(last ? 2 : 3) * S::KF, 1, 1> M2;
    typename node<S>::template weights<S::KF, 2, S::SPLIT_2> M1;
    typename node<S>::template weights<2 * S::KF, 1, S::SPLIT_3> U;
    __device__ __forceinline__ void fetch(const node<S> &n, const painn_gpu_layer &w)
    {
        const int columns[1] = {n.ft}, columns_M1[2] = {n.ft, S::FT + n.ft};
        n.fetch(M2, w.M2t, columns, 3 * S::KF);
        n.fetch(M1, w.M1t, columns_M1, S::KF);
    }
    __device__ __forceinline__ void fetch_U(const node<S> &n, const painn_gpu_layer &w)
    {
        const int columns[1] = {n.ft};
        n.fetch(U, w.Ut, columns, 2 * S::KF);
    }
};

// Reverse of the update of layer l from q̄'' and, but for the last layer, μ̄'': writes q̄', μ̄'. v holds what the update left.
template <typename S, bool last>
static __device__ __forceinline__ void update_back(node<S> &n, int l, update_values<S> &v, float4 &q_bar, float4 (&mu_bar)[3],
                                                   back_weights<S, last> &w)
{
    const painn_gpu_layer &layer = n.step.layer[l];
    if (S::KS < 8) w.fetch(n, layer);
    if (n.leads()) {
        if (!last) dot<S>(v);
        n.template put<true>(n.r1, n.ft, q_bar);
        n.template put<true>(n.r1, S::FT + n.ft, q_bar * v.t);
        if (!last) {
            float4 gate = splat(0);
#pragma unroll
            for (int c = 0; c < 3; c++) gate = fma4(mu_bar[c], v.B[c], gate);
            n.template put<true>(n.r1, 2 * S::FT + n.ft, gate);
        }
    }
    n.receive();
    {
        if (S::KS >= 8) w.fetch_U(n, layer);
        float4 sum[1];
        n.multiply(sum, n.r1, w.M2);
        if (n.leads()) n.template put<true>(n.r2, n.ft, sum[0] * n.slope(v.g));
    }
    if (S::KS < 8) w.fetch_U(n, layer);
    n.receive();
    {
        float4 sum[2];
        n.multiply(sum, n.r2, w.M1);
        if (n.leads()) {
            float4 square = splat(n.step.epsilon), t_bar = q_bar * v.yt;
#pragma unroll
            for (int c = 0; c < 3; c++) square = fma4(v.V[c], v.V[c], square);
            float4 ratio = sum[1] * make_float4(rsqrtf(square.x), rsqrtf(square.y), rsqrtf(square.z), rsqrtf(square.w));
#pragma unroll
            for (int c = 0; c < 3; c++) {
                float4 B_bar = t_bar * v.V[c];
                if (!last) B_bar = fma4(mu_bar[c], v.ymu, B_bar);
                n.template put<true>(n.r0 + c * (2 * S::KF * 64), n.ft, fma4(t_bar, v.B[c], ratio * v.V[c]));
                n.template put<true>(n.r0 + c * (2 * S::KF * 64), S::FT + n.ft, B_bar);
            }
            q_bar = q_bar + sum[0];
        }
    }
    n.receive();
    float4 sum[1][3];
    n.multiply(sum, n.r0, w.U);
    if (n.leads()) {
        float4 mu[3];
#pragma unroll
        for (int c = 0; c < 3; c++) mu[c] = last ? sum[0][c] : sum[0][c] + mu_bar[c];
        n.template store_pair<ADJOINT_PAIRS>(n.step.adjoint, ADJOINT_Q, q_bar, mu[0]);
        n.template store_pair<ADJOINT_PAIRS>(n.step.adjoint, ADJOINT_MUY, mu[1], mu[2]);
    }
}

template <typename S>
static __global__ void __launch_bounds__(S::WARPS * 32, 1) mix_kernel(const __grid_constant__ painn_gpu_step step, int l)
{
    DYNAMIC_SHARED(shared);
    node<S> n(step, shared);
    update_values<S> v;
    network_weights<S> after;
    if (update<S, false>(n, l, v, after)) network<S>(n, l + 1, after);
}

template <typename S>
static __global__ void __launch_bounds__(S::WARPS * 32, 1) mix_last_kernel(const __grid_constant__ painn_gpu_step step, int l)
{
    DYNAMIC_SHARED(shared);
    node<S> n(step, shared);
    update_values<S> v;
    float4 q_bar, mu_bar[3];
    readout_weights<S> after;
    back_weights<S, true> back;
    if (!update<S, true>(n, l, v, after)) return;
    if (S::KS >= 8) back.fetch(n, step.layer[l]);
    readout<S>(n, q_bar, after);
    update_back<S, true>(n, l, v, q_bar, mu_bar, back);
}

// Reverse of the message network of layer l (h̄ = (x̄ W2)∘act'(h), q̄ = q̄' + h̄ W1), then of the update of layer l − 1.
template <typename S>
static __global__ void __launch_bounds__(S::WARPS * 32, 1) mix_back_kernel(const __grid_constant__ painn_gpu_step step, int l)
{
    DYNAMIC_SHARED(shared);
    node<S> n(step, shared);
    update_values<S> v;
    typename node<S>::template weights<3 * S::KF, 1, 1> w2;
    typename node<S>::template weights<S::KF, 1, 1> w1;
    const int columns[1] = {n.ft};
    n.fetch(w2, step.layer[l].W2t, columns, 3 * S::KF);
    n.fetch(w1, step.layer[l].W1t, columns, S::KF);
    back_weights<S, false> back;
    if (S::KS >= 8) back.fetch(n, step.layer[l - 1]);
    const int bytes[4] = {S::UNIT, 3 * S::UNIT, S::UNIT, 6 * S::UNIT};
    float4 h, q_prime, mu_bar[3];
    const int n_atoms = step.gpu.call->n_atoms;
    n.open(bytes);
    if (n.leads()) {
        recall(n, l - 1, v);
        h = *n.saved(l, 9);
        q_prime = n.template load_paired<ADJOINT_PAIRS>(step.adjoint, ADJOINT_Q);
    }
    begin_stage(step.gpu, stage_edges(step.n_layers, l) + 1);
    if (n.first >= n_atoms) return;

    float4 x_bar[3];
#pragma unroll
    for (int b = 0; b < 3; b++) {
        x_bar[b] = n.template load<6>(step.sender, b, n.warp);
        if (n.leads()) mu_bar[b] = n.template load<6>(step.sender, 3 + b, n.ft);
    }
#pragma unroll
    for (int b = 0; b < 3; b++) n.template put<false>(n.r0, b * S::FT + n.warp, x_bar[b]);
    __syncthreads();
    float4 sum[1], q_bar;
    n.multiply(sum, n.r0, w2);
    if (n.leads()) n.template put<true>(n.r2, n.ft, sum[0] * n.slope(h));
    n.receive();
    n.multiply(sum, n.r2, w1);
    q_bar = q_prime + sum[0];
    update_back<S, false>(n, l - 1, v, q_bar, mu_bar, back);
}

// ---- launches -------------------------------------------------------------------------------------------------------

template <typename S>
static int launch_update(const painn_gpu_step *step, const gpu_plan *plan, int layer, int back, void *stream)
{
    int blocks = (plan->n_atoms + S::TILE - 1) / S::TILE * S::C;
    void (*kernel)(painn_gpu_step, int) = back                          ? mix_back_kernel<S>
                                          : layer + 1 == step->n_layers ? mix_last_kernel<S>
                                                                        : mix_kernel<S>;
    return launch(kernel, blocks, S::WARPS * 32, S::BYTES, S::C, plan->overlap, stream, *step, layer);
}

// Update `layer` and message network `layer` + 1, or, with `back`, their reverse.
template <typename Numbers>
static int launch_update_of(const painn_gpu_step *step, const gpu_plan *plan, int layer, int back, void *stream)
{
    if (step->n_features == 64) return launch_update<shape<64, 1, Numbers>>(step, plan, layer, back, stream);
    if (plan->cluster == 8) return launch_update<shape<128, 8, Numbers>>(step, plan, layer, back, stream);
    if (plan->cluster == 4) return launch_update<shape<128, 4, Numbers>>(step, plan, layer, back, stream);
    if (plan->cluster == 2) return launch_update<shape<128, 2, Numbers>>(step, plan, layer, back, stream);
    if (plan->tile == 8) return launch_wgmma<wgmma_shape<1, typename Numbers::stored>>(step, plan, layer, back, stream);
    if (plan->tile == 16 && plan->four_warps)
        return launch_wgmma<wgmma_shape<2, typename Numbers::stored>>(step, plan, layer, back, stream);
    if (plan->tile == 16) return launch_update<shape<128, 1, Numbers>>(step, plan, layer, back, stream);
    if (plan->tile == 24) return launch_wgmma<wgmma_shape<3, typename Numbers::stored>>(step, plan, layer, back, stream);
    return launch_wgmma<wgmma_shape<4, typename Numbers::stored>>(step, plan, layer, back, stream);
}

template <typename S> static cudaError_t raise()
{
    cudaError_t e = cudaFuncSetAttribute(mix_kernel<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, S::BYTES);
    if (e == cudaSuccess) e = cudaFuncSetAttribute(mix_last_kernel<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, S::BYTES);
    if (e == cudaSuccess) e = cudaFuncSetAttribute(mix_back_kernel<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, S::BYTES);
    return e;
}

template <typename S> static int clusters_at_once()
{
    return clusters_at_once(mix_last_kernel<S>, S::C, S::WARPS * 32, S::BYTES);
}

// Shapes that do not fit the shared memory of this GPU are not chosen: clusters need Hopper, tiles of 32 atoms 225 KB.
template <typename Numbers> static int prepare_update_of(int n_features)
{
    cudaError_t e = n_features == 64 ? raise<shape<64, 1, Numbers>>() : raise<shape<128, 1, Numbers>>();
    raise_wgmma<wgmma_shape<1, typename Numbers::stored>>();
    raise_wgmma<wgmma_shape<2, typename Numbers::stored>>();
    raise_wgmma<wgmma_shape<3, typename Numbers::stored>>();
    raise_wgmma<wgmma_shape<4, typename Numbers::stored>>();
    raise<shape<128, 2, Numbers>>();
    raise<shape<128, 4, Numbers>>();
    raise<shape<128, 8, Numbers>>();
    cudaGetLastError();
    return (int)e;
}

// Tiles that are worked on at once by clusters of 2, 4 and 8 blocks.
template <typename Numbers> static int tiles_at_once(int cluster)
{
    return cluster == 8   ? clusters_at_once<shape<128, 8, Numbers>>()
           : cluster == 4 ? clusters_at_once<shape<128, 4, Numbers>>()
                          : clusters_at_once<shape<128, 2, Numbers>>();
}

#endif
