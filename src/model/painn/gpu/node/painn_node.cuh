// SPDX-License-Identifier: MIT
// painn_node.cuh: all of PaiNN that is local to an atom, for one kind of operands (painn_node*.cu): update of layer l, message network
// of layer l + 1, readout, and their reverse.
//
//   [V_c | B_c] = μ'_c Uᵀ ;  n = √(Σ V² + ε) ;  t = Σ V∘B ;  g = [q' | n] M1ᵀ + c1 ;  y = act(g) M2ᵀ + c2
//   q'' = q' + y^q + y^t∘t ;  μ''_c = μ'_c + y^μ∘B_c ;  h = q'' W1ᵀ + b1 ;  x = act(h) W2ᵀ + b2
//
// A tile of 16 atoms goes through the whole chain in one block. Activations pass from product to product in shared memory, laid out
// as operands of the tensor cores and split into two halves (three products: float32-class), or, in the fast modes, rounded to one
// number (one product). A warp owns 8 features of all products, so that values between two products stay in its registers. Weights
// are read from L2 as fragments, 16 bytes a lane. Bound by latency up to some hundred atoms, by L2 reads of the weights to some
// thousand, by the tensor cores beyond.
//
// These kernels run on any GPU. On Hopper they serve models of 64 features; with 128 features wgmma tiles (painn_wgmma.cuh) and the
// fused layers (painn_layers.cu) take their place.
#ifndef PAINN_NODE_CUH
#define PAINN_NODE_CUH

#include "painn_tile.cuh"
#include "painn_wgmma.cuh"

// Values that a warp keeps between the parts of the chain.
template <typename S> struct update_values {
    float4 V[3], B[3], q, mu[3], t, g, ymu, yt;
};

// What an update saved for the backward pass.
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

// Update of layer l. Leaves q'' in r3 as an operand (not yet behind a barrier) and, but for the last layer, in step.q, and μ'' in
// step.state[l + 1]. False if the tile has no atoms.
template <typename S, bool last> static __device__ __forceinline__ bool update(node<S> &n, int l, update_values<S> &v)
{
    const painn_gpu_layer &w = n.step.layer[l];
    typename node<S>::template weights<S::KF, 2> wU;
    typename node<S>::template weights<2 * S::KF, 1> wM1;
    typename node<S>::template weights<S::KF, last ? 2 : 3> wM2;
    const int columns_U[2] = {n.ft, S::FT + n.ft}, columns_M1[1] = {n.ft};
    const int columns_M2[3] = {n.ft, 2 * S::FT + n.ft, S::FT + n.ft}; // q, t, μ: the last layer needs no μ
    // Requested before the previous kernel's results are awaited: weights, biases.
    n.fetch(wU, w.U, columns_U, S::KF);
    n.fetch(wM1, w.M1, columns_M1, 2 * S::KF);
    const float2 c1 = n.bias(w.c1, 0), c2q = n.bias(w.c2, 0), c2mu = n.bias(w.c2, 1), c2t = n.bias(w.c2, 2);
    const int n_atoms = n.step.gpu.call->n_atoms;
    begin_stage(n.step.gpu, stage_message(l) + 1);
    if (n.first >= n_atoms) return false;

    v.q = n.template load<4>(n.step.prime, 0);
#pragma unroll
    for (int c = 0; c < 3; c++) v.mu[c] = n.template load<4>(n.step.prime, 1 + c);
    n.put(n.r1, n.ft, v.q);
#pragma unroll
    for (int c = 0; c < 3; c++) n.put(n.r0 + c * (S::KF * 64), n.ft, v.mu[c]);
    __syncthreads();
    {
        float4 sum[2][3];
        n.multiply(sum, n.r0, wU);
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
        n.put(n.r1, S::FT + n.ft, make_float4(sqrtf(square.x), sqrtf(square.y), sqrtf(square.z), sqrtf(square.w)));
    }
    n.fetch(wM2, w.M2, columns_M2, S::KF);
    __syncthreads();
    {
        float4 sum[1];
        n.multiply(sum, n.r1, wM1);
        v.g = sum[0] + c1;
        if (!last) *n.saved(l, 6) = v.g;
        n.put(n.r2, n.ft, n.activate(v.g));
    }
    __syncthreads();
    float4 sum[last ? 2 : 3];
    n.multiply(sum, n.r2, wM2);
    const float4 yq = sum[0] + c2q, yt = sum[1] + c2t, q = v.q + fma4(yt, v.t, yq);
    n.put(n.r3, n.ft, q);
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
    return true;
}

// Message network of layer l: x from q'' in r3.
template <typename S> static __device__ __forceinline__ void network(node<S> &n, int l)
{
    const painn_gpu_layer &w = n.step.layer[l];
    typename node<S>::template weights<S::KF, 1> w1;
    typename node<S>::template weights<S::KF, 3> w2;
    const int columns1[1] = {n.ft}, columns2[3] = {n.ft, S::FT + n.ft, 2 * S::FT + n.ft};
    n.fetch(w1, w.W1, columns1, S::KF);
    n.fetch(w2, w.W2, columns2, S::KF);
    const float2 b1 = n.bias(w.b1, 0), b2q = n.bias(w.b2, 0), b2R = n.bias(w.b2, 1), b2m = n.bias(w.b2, 2);
    __syncthreads();
    {
        float4 sum[1];
        n.multiply(sum, n.r3, w1);
        const float4 h = sum[0] + b1;
        *n.saved(l, 9) = h;
        n.put(n.r2, n.ft, n.activate(h));
    }
    __syncthreads();
    float4 sum[3];
    n.multiply(sum, n.r2, w2);
    n.template store_pair<STATE_PAIRS>(n.step.state[l], STATE_XQ, sum[0] + b2q, sum[1] + b2R);
    n.template store_one<STATE_PAIRS>(n.step.state[l], STATE_XM, sum[2] + b2m);
}

// Energies of atoms and q̄ from q'' in r3. F/2 hidden features: half as many column tiles, so half of the warps only take part in the
// barriers and in the second product.
template <typename S> static __device__ __forceinline__ void readout(node<S> &n, float4 &q_bar)
{
    const painn_gpu_step &step = n.step;
    const int KH = S::KF / 2;
    typename node<S>::template weights<S::KF, 1> w1;
    typename node<S>::template weights<KH, 1> w1t;
    const bool works = n.ft < S::FT / 2;
    const int ht = works ? n.ft : 0, columns1[1] = {ht}, columns1t[1] = {n.ft}, h = 8 * ht + 2 * (n.lane % 4);
    n.fetch(w1, step.O1, columns1, S::KF);
    n.fetch(w1t, step.O1t, columns1t, KH);
    const float2 o1 = __ldg((const float2 *)(step.o1 + h)), o2 = __ldg((const float2 *)(step.O2 + h));
    const bool failed = step.gpu.report->flags != 0;
    // A ghost has no energy of its own: its adjoint is zero.
    float owned[2];
    for (int k = 0; k < 2; k++) owned[k] = step.gpu.neighbors.owned[n.first + n.lane / 4 + 8 * k] ? 1.0f : 0.0f;
    __syncthreads();
    {
        float4 sum[1];
        n.multiply(sum, n.r3, w1, works);
        if (works) {
            float4 z = sum[0] + o1, s = n.activate(z), d = n.slope(z);
            const float upper = owned[0], lower = owned[1];
            n.put(n.r2, ht, d * make_float4(o2.x * upper, o2.y * upper, o2.x * lower, o2.y * lower));
            float e0 = s.x * o2.x + s.y * o2.y, e1 = s.z * o2.x + s.w * o2.y;
            e0 += __shfl_xor_sync(~0u, e0, 1);
            e1 += __shfl_xor_sync(~0u, e1, 1);
            e0 += __shfl_xor_sync(~0u, e0, 2);
            e1 += __shfl_xor_sync(~0u, e1, 2);
            if (n.lane % 4 == 0) {
                // A caller that does not wait for the report sees from the energies that the step failed.
                if (failed) e0 = e1 = nanf("");
                float *at = step.raw_energy + (size_t)ht * step.gpu.neighbors.atom_capacity + n.first + n.lane / 4;
                at[0] = upper * e0;
                at[8] = lower * e1;
            }
        }
    }
    __syncthreads();
    float4 sum[1];
    n.multiply(sum, n.r2, w1t);
    q_bar = sum[0];
}

// Reverse of the update of layer l from q̄'' and, but for the last layer, μ̄'': writes q̄', μ̄'. v holds what the update left.
template <typename S, bool last>
static __device__ __forceinline__ void update_back(node<S> &n, int l, update_values<S> &v, float4 &q_bar, float4 (&mu_bar)[3])
{
    const painn_gpu_layer &w = n.step.layer[l];
    typename node<S>::template weights<(last ? 2 : 3) * S::KF, 1> wM2;
    typename node<S>::template weights<S::KF, 2> wM1;
    typename node<S>::template weights<2 * S::KF, 1> wU;
    const int columns[1] = {n.ft}, columns_M1[2] = {n.ft, S::FT + n.ft};
    n.fetch(wM2, w.M2t, columns, 3 * S::KF);
    n.fetch(wM1, w.M1t, columns_M1, S::KF);
    if (!last) dot<S>(v);
    n.put(n.r1, n.ft, q_bar);
    n.put(n.r1, S::FT + n.ft, q_bar * v.t);
    if (!last) {
        float4 gate = splat(0);
#pragma unroll
        for (int c = 0; c < 3; c++) gate = fma4(mu_bar[c], v.B[c], gate);
        n.put(n.r1, 2 * S::FT + n.ft, gate);
    }
    __syncthreads();
    {
        float4 sum[1];
        n.multiply(sum, n.r1, wM2);
        n.put(n.r2, n.ft, sum[0] * n.slope(v.g));
    }
    n.fetch(wU, w.Ut, columns, 2 * S::KF);
    __syncthreads();
    {
        float4 sum[2];
        n.multiply(sum, n.r2, wM1);
        float4 square = splat(n.step.epsilon), t_bar = q_bar * v.yt;
#pragma unroll
        for (int c = 0; c < 3; c++) square = fma4(v.V[c], v.V[c], square);
        float4 ratio = sum[1] * make_float4(rsqrtf(square.x), rsqrtf(square.y), rsqrtf(square.z), rsqrtf(square.w));
#pragma unroll
        for (int c = 0; c < 3; c++) {
            float4 B_bar = t_bar * v.V[c];
            if (!last) B_bar = fma4(mu_bar[c], v.ymu, B_bar);
            n.put(n.r0 + c * (2 * S::KF * 64), n.ft, fma4(t_bar, v.B[c], ratio * v.V[c]));
            n.put(n.r0 + c * (2 * S::KF * 64), S::FT + n.ft, B_bar);
        }
        q_bar = q_bar + sum[0];
    }
    __syncthreads();
    float4 sum[1][3], mu[3];
    n.multiply(sum, n.r0, wU);
#pragma unroll
    for (int c = 0; c < 3; c++) mu[c] = last ? sum[0][c] : sum[0][c] + mu_bar[c];
    n.template store_pair<ADJOINT_PAIRS>(n.step.adjoint, ADJOINT_Q, q_bar, mu[0]);
    n.template store_pair<ADJOINT_PAIRS>(n.step.adjoint, ADJOINT_MUY, mu[1], mu[2]);
}

template <typename S>
static __global__ void __launch_bounds__(S::WARPS * 32, 1) update_kernel(const __grid_constant__ painn_gpu_step step, int l)
{
    DYNAMIC_SHARED(shared);
    node<S> n(step, shared);
    update_values<S> v;
    if (update<S, false>(n, l, v)) network<S>(n, l + 1);
}

template <typename S>
static __global__ void __launch_bounds__(S::WARPS * 32, 1) update_last_kernel(const __grid_constant__ painn_gpu_step step, int l)
{
    DYNAMIC_SHARED(shared);
    node<S> n(step, shared);
    update_values<S> v;
    float4 q_bar, mu_bar[3];
    if (!update<S, true>(n, l, v)) return;
    readout<S>(n, q_bar);
    update_back<S, true>(n, l, v, q_bar, mu_bar);
}

// Reverse of the message network of layer l (h̄ = (x̄ W2)∘act'(h), q̄ = q̄' + h̄ W1), then of the update of layer l − 1.
template <typename S>
static __global__ void __launch_bounds__(S::WARPS * 32, 1) update_back_kernel(const __grid_constant__ painn_gpu_step step, int l)
{
    DYNAMIC_SHARED(shared);
    node<S> n(step, shared);
    update_values<S> v;
    typename node<S>::template weights<3 * S::KF, 1> w2;
    typename node<S>::template weights<S::KF, 1> w1;
    const int columns[1] = {n.ft};
    n.fetch(w2, step.layer[l].W2t, columns, 3 * S::KF);
    n.fetch(w1, step.layer[l].W1t, columns, S::KF);
    const int n_atoms = step.gpu.call->n_atoms;
    recall(n, l - 1, v);
    const float4 h = *n.saved(l, 9), q_prime = n.template load_paired<ADJOINT_PAIRS>(step.adjoint, ADJOINT_Q);
    begin_stage(step.gpu, stage_edges(step.n_layers, l) + 1);
    if (n.first >= n_atoms) return;

    float4 x_bar[3], mu_bar[3];
#pragma unroll
    for (int b = 0; b < 3; b++) {
        x_bar[b] = n.template load<6>(step.sender, b);
        mu_bar[b] = n.template load<6>(step.sender, 3 + b);
    }
#pragma unroll
    for (int b = 0; b < 3; b++) n.put(n.r0, b * S::FT + n.ft, x_bar[b]);
    __syncthreads();
    float4 sum[1], q_bar;
    n.multiply(sum, n.r0, w2);
    n.put(n.r2, n.ft, sum[0] * n.slope(h));
    __syncthreads();
    n.multiply(sum, n.r2, w1);
    q_bar = q_prime + sum[0];
    update_back<S, false>(n, l - 1, v, q_bar, mu_bar);
}

// ---- launches -------------------------------------------------------------------------------------------------------

template <typename S>
static int launch_update(const painn_gpu_step *step, const gpu_plan *plan, int layer, int back, void *stream)
{
    void (*kernel)(painn_gpu_step, int) = back                          ? update_back_kernel<S>
                                          : layer + 1 == step->n_layers ? update_last_kernel<S>
                                                                        : update_kernel<S>;
    return launch(kernel, (plan->n_atoms + S::TILE - 1) / S::TILE, S::WARPS * 32, S::BYTES, 1, plan->overlap, stream, *step,
                  layer);
}

template <int F, typename Numbers>
static int launch_wgmma_of(const painn_gpu_step *step, const gpu_plan *plan, int layer, int back, void *stream)
{
    switch (plan->tile) {
    case 8: return launch_wgmma<wgmma_shape<F, 1, Numbers>>(step, plan, layer, back, stream);
    case 16: return launch_wgmma<wgmma_shape<F, 2, Numbers>>(step, plan, layer, back, stream);
    case 24: return launch_wgmma<wgmma_shape<F, 3, Numbers>>(step, plan, layer, back, stream);
    default: return launch_wgmma<wgmma_shape<F, 4, Numbers>>(step, plan, layer, back, stream);
    }
}

// Update `layer` and message network `layer` + 1, or, with `back`, their reverse.
template <typename Numbers>
static int launch_update_of(const painn_gpu_step *step, const gpu_plan *plan, int layer, int back, void *stream)
{
    typedef typename Numbers::stored stored;
    if (step->n_features == 32) return launch_update<shape<32, Numbers>>(step, plan, layer, back, stream);
    if (step->n_features == 64)
        return plan->wgmma ? launch_wgmma_of<64, stored>(step, plan, layer, back, stream)
                           : launch_update<shape<64, Numbers>>(step, plan, layer, back, stream);
    return plan->wgmma ? launch_wgmma_of<128, stored>(step, plan, layer, back, stream)
                       : launch_update<shape<128, Numbers>>(step, plan, layer, back, stream);
}

template <typename S> static cudaError_t raise()
{
    cudaError_t e = cudaFuncSetAttribute(update_kernel<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, S::BYTES);
    if (e == cudaSuccess) e = cudaFuncSetAttribute(update_last_kernel<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, S::BYTES);
    if (e == cudaSuccess) e = cudaFuncSetAttribute(update_back_kernel<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, S::BYTES);
    return e;
}

// Raises the shared memory limits of the kernels without wgmma.
template <typename Numbers> static int prepare_update_of(int n_features)
{
    cudaError_t e = n_features == 32   ? raise<shape<32, Numbers>>()
                    : n_features == 64 ? raise<shape<64, Numbers>>()
                                       : raise<shape<128, Numbers>>();
    cudaGetLastError();
    return (int)e;
}

#endif
