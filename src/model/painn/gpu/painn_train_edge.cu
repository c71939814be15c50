// SPDX-License-Identifier: MIT
// painn_train_edge.cu: messages along pairs in a training step, their way back, and the tangents of both.
//
//   W_e = [A|b] ψ_e                 filters; with ψ' instead of ψ: W'_e, so that Ẇ_e = W'_e ḋ_e
//   Δq_i = Σ_e Wq∘xq_j ;  Δμ_i = Σ_e (WR∘xR_j) u_e + (Wμ∘xμ_j)∘μ_j
// and backwards, gathered by the sender j over its own row, whose pair e' = (j, i) is the reverse of e = (i, j): u_e = −u_e',
//   P = Σ_c u_c μ̄'_ic ;  Q = Σ_c μ̄'_ic∘μ_jc ;  D = [q̄'_i | P | Q]
//   x̄_j = Σ W∘D ;  μ̄_j = μ̄'_j + Σ (Wμ∘xμ_j)∘μ̄'_i ;  W̄ = x_j∘D ;  dE/dd = Σ_f W̄·W' ;  ū = Σ_f (WR∘xR_j) μ̄'_i
//   G_[A|b] = Σ_e W̄̇ ψᵀ + W̄ ψ'ᵀ ḋ   (of tangents)
// One thread per receiving atom and feature; it makes the filters of 8 (or 4) pairs at a time, so that a weight read is used
// as often. All sums are by one thread in the order of the row: no atomics. Filters are bound by float32 arithmetic, the rest
// by reads of neighbors' features from the caches.
#include "painn_train_math.cuh"

#include "gpu/ptx/primitives.cuh"

enum { THREADS = PAINN_TRAIN_EDGE_THREADS, MESSAGE_PAIRS = 8, GRADIENT_PAIRS = 4 };

typedef struct edge_step {
    painn_train_step s;
    int32_t l, first_back; /* first_back: dE/dr is set, not added to */
} edge_step;

static_assert(sizeof(edge_step) <= 4096, "parameters of a kernel");

static __device__ __forceinline__ float component(const float4 &v, int k)
{
    return k == 0 ? v.x : k == 1 ? v.y : k == 2 ? v.z : v.w;
}

static __device__ __forceinline__ float4 load4(const float *from)
{
    return *(const float4 *)from;
}

// W (and W' if SLOPES) of up to PAIRS pairs from p on, of feature f; pairs from `end` on have zeros.
template <int BASIS, int PAIRS, bool SLOPES>
static __device__ __forceinline__ void make_filters(const painn_train_step &s, int l, int p, int end, int f, float (&W)[PAIRS][3],
                                                    float (&dW)[PAIRS][3])
{
    const int F = s.n_features, stride = s.basis_stride;
    const float *columns = s.filter + (size_t)l * BASIS * 3 * F + f;
#pragma unroll
    for (int e = 0; e < PAIRS; e++)
#pragma unroll
        for (int b = 0; b < 3; b++) W[e][b] = dW[e][b] = 0;
#pragma unroll
    for (int k = 0; k < BASIS; k += 4) {
        float a[4][3];
#pragma unroll
        for (int j = 0; j < 4 && k + j < BASIS; j++)
#pragma unroll
            for (int b = 0; b < 3; b++) a[j][b] = __ldg(columns + (size_t)(k + j) * 3 * F + b * F);
#pragma unroll
        for (int e = 0; e < PAIRS; e++) {
            const size_t row = (size_t)min(p + e, end - 1) * stride + k;
            const float4 psi = load4(s.psi + row), dpsi = SLOPES ? load4(s.dpsi + row) : psi;
#pragma unroll
            for (int j = 0; j < 4 && k + j < BASIS; j++)
#pragma unroll
                for (int b = 0; b < 3; b++) {
                    W[e][b] += a[j][b] * component(psi, j);
                    if (SLOPES) dW[e][b] += a[j][b] * component(dpsi, j);
                }
        }
    }
#pragma unroll
    for (int e = 1; e < PAIRS; e++)
#pragma unroll
        for (int b = 0; b < 3; b++) {
            W[e][b] = p + e < end ? W[e][b] : 0.0f;
            if (SLOPES) dW[e][b] = p + e < end ? dW[e][b] : 0.0f;
        }
}

// Neighbors and geometry of up to PAIRS pairs from p on, requested together and before they are needed.
template <int PAIRS> struct pairs_ahead {
    int neighbor[PAIRS];
    float4 u[PAIRS];
};

template <int PAIRS>
static __device__ __forceinline__ void load_pairs(const painn_train_step &s, int p, int end, pairs_ahead<PAIRS> &pairs)
{
#pragma unroll
    for (int e = 0; e < PAIRS; e++) {
        const int at = min(p + e, end - 1);
        pairs.neighbor[e] = s.neighbor[at];
        pairs.u[e] = load4(s.edge + 4 * (size_t)at);
    }
}

// ---- forward ------------------------------------------------------------------------------------------------------------

template <int BASIS> static __global__ void __launch_bounds__(THREADS) message(edge_step step)
{
    wait_for_previous();
    let_next_start();
    const painn_train_step &s = step.s;
    const int F = s.n_features, l = step.l, f = (int)threadIdx.x % F;
    const int atom = (int)blockIdx.x * (THREADS / F) + (int)threadIdx.x / F;
    if (atom >= s.call->n_atoms) return;
    const int end = s.row[atom + 1];
    float dq = 0, dmu[3] = {};
    for (int p = s.row[atom]; p < end; p += MESSAGE_PAIRS) {
        float W[MESSAGE_PAIRS][3], unused[MESSAGE_PAIRS][3];
        pairs_ahead<MESSAGE_PAIRS> pairs;
        load_pairs(s, p, end, pairs);
        make_filters<BASIS, MESSAGE_PAIRS, false>(s, l, p, end, f, W, unused);
#pragma unroll
        for (int e = 0; e < MESSAGE_PAIRS; e++) {
            const size_t j = (size_t)pairs.neighbor[e] * 3 * F + f;
            const float4 u = pairs.u[e];
            const float *x = s.layer[l].x.value + j, *mu = s.mu[l].value + j;
            dq += W[e][0] * x[0];
            const float R = W[e][1] * x[F];
            dmu[0] += R * u.x;
            dmu[1] += R * u.y;
            dmu[2] += R * u.z;
            if (l == 0) continue; // μ = 0
            const float M = W[e][2] * x[2 * F];
            for (int c = 0; c < 3; c++) dmu[c] += M * mu[c * F];
        }
    }
    s.layer[l].context.value[(size_t)atom * 2 * F + f] = s.q[l].value[(size_t)atom * F + f] + dq;
    for (int c = 0; c < 3; c++) {
        const size_t at = ((size_t)atom * 3 + c) * F + f;
        s.layer[l].mu1.value[at] = (l ? s.mu[l].value[at] : 0.0f) + dmu[c];
    }
}

template <int BASIS> static __global__ void __launch_bounds__(THREADS) message_tangent(edge_step step)
{
    wait_for_previous();
    let_next_start();
    const painn_train_step &s = step.s;
    const int F = s.n_features, l = step.l, f = (int)threadIdx.x % F;
    const int atom = (int)blockIdx.x * (THREADS / F) + (int)threadIdx.x / F;
    if (atom >= s.call->n_atoms) return;
    const int end = s.row[atom + 1];
    float dq = 0, dmu[3] = {};
    for (int p = s.row[atom]; p < end; p += GRADIENT_PAIRS) {
        float W[GRADIENT_PAIRS][3], dW[GRADIENT_PAIRS][3];
        pairs_ahead<GRADIENT_PAIRS> pairs;
        load_pairs(s, p, end, pairs);
        make_filters<BASIS, GRADIENT_PAIRS, true>(s, l, p, end, f, W, dW);
#pragma unroll
        for (int e = 0; e < GRADIENT_PAIRS; e++) {
            const size_t j = (size_t)pairs.neighbor[e] * 3 * F + f;
            const float4 u = pairs.u[e], du = load4(s.edge_tangent + 4 * (size_t)min(p + e, end - 1));
            const float *x = s.layer[l].x.value + j, *dx = s.layer[l].x.tangent + j;
            const float *mu = s.mu[l].value + j, *moved = s.mu[l].tangent + j;
            dq += dW[e][0] * du.w * x[0] + W[e][0] * dx[0];
            const float R = W[e][1] * x[F], dR = dW[e][1] * du.w * x[F] + W[e][1] * dx[F];
            dmu[0] += dR * u.x + R * du.x;
            dmu[1] += dR * u.y + R * du.y;
            dmu[2] += dR * u.z + R * du.z;
            if (l == 0) continue;
            const float M = W[e][2] * x[2 * F], dM = dW[e][2] * du.w * x[2 * F] + W[e][2] * dx[2 * F];
            for (int c = 0; c < 3; c++) dmu[c] += dM * mu[c * F] + M * moved[c * F];
        }
    }
    s.layer[l].context.tangent[(size_t)atom * 2 * F + f] = (l ? s.q[l].tangent[(size_t)atom * F + f] : 0.0f) + dq;
    for (int c = 0; c < 3; c++) {
        const size_t at = ((size_t)atom * 3 + c) * F + f;
        s.layer[l].mu1.tangent[at] = (l ? s.mu[l].tangent[at] : 0.0f) + dmu[c];
    }
}

// ---- backward -----------------------------------------------------------------------------------------------------------

// Halves the values of a lane: it keeps those whose index has the lane's bit OFFSET.
template <int OFFSET> static __device__ __forceinline__ void halve_sums(float (&value)[32])
{
    const bool upper = ((int)threadIdx.x & OFFSET) != 0;
#pragma unroll
    for (int k = 0; k < OFFSET; k++) {
        const float given = upper ? value[k] : value[k + OFFSET], kept = upper ? value[k + OFFSET] : value[k];
        value[k] = kept + __shfl_xor_sync(0xffffffffu, given, OFFSET);
    }
}

// Lane k gets the warp's sum of value[k].
static __device__ __forceinline__ float sum_of_lane(float (&value)[32])
{
    halve_sums<16>(value);
    halve_sums<8>(value);
    halve_sums<4>(value);
    halve_sums<2>(value);
    halve_sums<1>(value);
    return value[0];
}

template <int BASIS> static __global__ void __launch_bounds__(THREADS, 3) message_back(edge_step step)
{
    wait_for_previous();
    let_next_start();
    const painn_train_step &s = step.s;
    const int F = s.n_features, l = step.l, f = (int)threadIdx.x % F, lane = (int)threadIdx.x % 32;
    const int atom = (int)blockIdx.x * (THREADS / F) + (int)threadIdx.x / F;
    if (atom >= s.call->n_atoms) return;
    const painn_train_layer &L = s.layer[l];
    const size_t own = (size_t)atom * 3 * F + f;
    const int end = s.row[atom + 1];
    float x[3], mu[3], x_bar[3] = {}, mu_bar[3];
    for (int c = 0; c < 3; c++) {
        x[c] = L.x.value[own + c * F];
        mu[c] = l ? s.mu[l].value[own + c * F] : 0.0f;
        mu_bar[c] = L.mu1_bar.value[own + c * F];
    }
    for (int p = s.row[atom]; p < end; p += MESSAGE_PAIRS) {
        float W[MESSAGE_PAIRS][3], dW[MESSAGE_PAIRS][3], sums[4 * MESSAGE_PAIRS];
        pairs_ahead<MESSAGE_PAIRS> pairs;
        load_pairs(s, p, end, pairs);
        make_filters<BASIS, MESSAGE_PAIRS, true>(s, l, p, end, f, W, dW);
#pragma unroll
        for (int e = 0; e < MESSAGE_PAIRS; e++) {
            const size_t i = (size_t)pairs.neighbor[e];
            const float4 u = pairs.u[e];
            const float q1 = L.q1_bar.value[i * F + f];
            float m[3], P = 0, Q = 0;
            for (int c = 0; c < 3; c++) {
                m[c] = L.mu1_bar.value[i * 3 * F + c * F + f];
                P -= component(u, c) * m[c];
                Q += m[c] * mu[c];
            }
            x_bar[0] += W[e][0] * q1;
            x_bar[1] += W[e][1] * P;
            x_bar[2] += W[e][2] * Q;
            for (int c = 0; c < 3; c++) {
                mu_bar[c] += W[e][2] * x[2] * m[c];
                sums[4 * e + c] = W[e][1] * x[1] * m[c];
            }
            sums[4 * e + 3] = x[0] * q1 * dW[e][0] + x[1] * P * dW[e][1] + x[2] * Q * dW[e][2];
        }
        const float sum = sum_of_lane(sums);
        if (p + lane / 4 < end) {
            float *to = s.pair_gradient + ((size_t)(p + lane / 4) * (F / 32) + f / 32) * 4 + lane % 4;
            *to = step.first_back ? sum : *to + sum;
        }
    }
    for (int c = 0; c < 3; c++) {
        L.x_bar.value[own + c * F] = x_bar[c];
        if (l) s.mu_bar[l].value[own + c * F] = mu_bar[c];
    }
}

// Blocks take one atom after another and keep the filters' gradients of their thread's feature in registers.
template <int BASIS> static __global__ void __launch_bounds__(THREADS, 2) message_back_tangent(edge_step step)
{
    wait_for_previous();
    let_next_start();
    const painn_train_step &s = step.s;
    const int F = s.n_features, l = step.l, f = (int)threadIdx.x % F, groups = THREADS / F;
    const int group = (int)blockIdx.x * groups + (int)threadIdx.x / F, n = s.call->n_atoms;
    const painn_train_layer &L = s.layer[l];
    float gradient[BASIS][3];
#pragma unroll
    for (int k = 0; k < BASIS; k++) gradient[k][0] = gradient[k][1] = gradient[k][2] = 0;
    for (int atom = group; atom < n; atom += (int)gridDim.x * groups) {
        const size_t own = (size_t)atom * 3 * F + f;
        const int end = s.row[atom + 1];
        float x[3], dx[3], mu[3], moved[3], x_bar[3] = {}, mu_bar[3];
        for (int c = 0; c < 3; c++) {
            x[c] = L.x.value[own + c * F];
            dx[c] = L.x.tangent[own + c * F];
            mu[c] = l ? s.mu[l].value[own + c * F] : 0.0f;
            moved[c] = l ? s.mu[l].tangent[own + c * F] : 0.0f;
            mu_bar[c] = L.mu1_bar.tangent[own + c * F];
        }
        for (int p = s.row[atom]; p < end; p += GRADIENT_PAIRS) {
            float W[GRADIENT_PAIRS][3], dW[GRADIENT_PAIRS][3];
            pairs_ahead<GRADIENT_PAIRS> pairs;
            load_pairs(s, p, end, pairs);
            make_filters<BASIS, GRADIENT_PAIRS, true>(s, l, p, end, f, W, dW);
#pragma unroll
            for (int e = 0; e < GRADIENT_PAIRS; e++) {
                const bool there = p + e < end;
                const int at = there ? p + e : end - 1;
                const size_t i = (size_t)pairs.neighbor[e];
                const float4 u = pairs.u[e], du = load4(s.edge_tangent + 4 * (size_t)at);
                float D[3], dD[3], m[3], dm[3];
                D[0] = L.q1_bar.value[i * F + f];
                dD[0] = L.q1_bar.tangent[i * F + f];
                D[1] = D[2] = dD[1] = dD[2] = 0;
                for (int c = 0; c < 3; c++) {
                    m[c] = L.mu1_bar.value[i * 3 * F + c * F + f];
                    dm[c] = L.mu1_bar.tangent[i * 3 * F + c * F + f];
                    D[1] -= component(u, c) * m[c];
                    dD[1] -= component(du, c) * m[c] + component(u, c) * dm[c];
                    D[2] += m[c] * mu[c];
                    dD[2] += dm[c] * mu[c] + m[c] * moved[c];
                }
                float bar[3], bar_tangent[3]; // W̄ ḋ, W̄̇
                for (int b = 0; b < 3; b++) {
                    dW[e][b] *= du.w;
                    x_bar[b] += dW[e][b] * D[b] + W[e][b] * dD[b];
                    bar[b] = there ? x[b] * D[b] * du.w : 0.0f;
                    bar_tangent[b] = there ? dx[b] * D[b] + x[b] * dD[b] : 0.0f;
                }
                const float Y = W[e][2] * x[2], dY = dW[e][2] * x[2] + W[e][2] * dx[2];
                for (int c = 0; c < 3; c++) mu_bar[c] += dY * m[c] + Y * dm[c];
#pragma unroll
                for (int k = 0; k < BASIS; k += 4) {
                    const size_t row = (size_t)at * s.basis_stride + k;
                    const float4 psi = load4(s.psi + row), dpsi = load4(s.dpsi + row);
#pragma unroll
                    for (int j = 0; j < 4 && k + j < BASIS; j++)
#pragma unroll
                        for (int b = 0; b < 3; b++)
                            gradient[k + j][b] += bar_tangent[b] * component(psi, j) + bar[b] * component(dpsi, j);
                }
            }
        }
        for (int c = 0; c < 3; c++) {
            L.x_bar.tangent[own + c * F] = x_bar[c];
            if (l) s.mu_bar[l].tangent[own + c * F] = mu_bar[c];
        }
    }
    float *to = s.filter_sums_of[l] + (size_t)group * BASIS * 3 * F + f;
#pragma unroll
    for (int k = 0; k < BASIS; k++)
#pragma unroll
        for (int b = 0; b < 3; b++) to[(size_t)k * 3 * F + b * F] = gradient[k][b];
}

// ---- launches -----------------------------------------------------------------------------------------------------------

static int launch_by_atoms(const painn_train_step *step, const painn_train_plan *plan, void (*kernel)(edge_step), int l,
                           void *stream)
{
    const int groups = THREADS / step->n_features;
    const edge_step edge = {*step, l, l + 1 == step->n_layers};
    return launch(kernel, (plan->n_atoms + groups - 1) / groups, THREADS, 0, 1, plan->overlap, stream, edge);
}

extern "C" int painn_train_launch_message(const painn_train_step *step, const painn_train_plan *plan, int l, int tangent,
                                          void *stream)
{
    const bool small = step->basis_rows == PAINN_TRAIN_SMALL_BASIS;
    return launch_by_atoms(step, plan,
                           tangent ? small ? message_tangent<PAINN_TRAIN_SMALL_BASIS> : message_tangent<PAINN_TRAIN_LARGE_BASIS>
                           : small ? message<PAINN_TRAIN_SMALL_BASIS>
                                   : message<PAINN_TRAIN_LARGE_BASIS>,
                           l, stream);
}

extern "C" int painn_train_launch_message_back(const painn_train_step *step, const painn_train_plan *plan, int l, int tangent,
                                               void *stream)
{
    const bool small = step->basis_rows == PAINN_TRAIN_SMALL_BASIS;
    if (!tangent)
        return launch_by_atoms(step, plan, small ? message_back<PAINN_TRAIN_SMALL_BASIS> : message_back<PAINN_TRAIN_LARGE_BASIS>,
                               l, stream);
    const edge_step edge = {*step, l, 0};
    return launch(small ? message_back_tangent<PAINN_TRAIN_SMALL_BASIS> : message_back_tangent<PAINN_TRAIN_LARGE_BASIS>,
                  step->filter_sums / (THREADS / step->n_features), THREADS, 0, 1, plan->overlap, stream, edge);
}
