/* SPDX-License-Identifier: MIT */
/* painn_train_node.cuh: what is made of each element of a matrix product at atoms in a training step, values (TANGENT 0) or tangents.
 *
 *   message network   h = q W1ᵀ + b1 ; x = act(h) W2ᵀ + b2
 *   update            [V|B] = μ' Uᵀ ; n = √(Σ V² + ε) ; t = Σ V∘B ; g = [q'|n] M1ᵀ + c1 ; y = act(g) M2ᵀ + c2
 *                     q'' = q' + yq + yt∘t ; μ'' = μ' + yμ∘B
 *   and backwards     s̄ = ȳ M2 ; ḡ = s̄∘act'(g) ; [p̄|n̄] = ḡ M1 ; μ̄' = μ̄ + [V̄|B̄] U ; ā = x̄ W2 ; h̄ = ā∘act'(h) ; q̄ = q̄' + h̄ W1
 * Products are of rows of two matrices: of W forwards, of Wᵀ backwards, of which `begin` keeps a copy.
 * Small batches have a kernel for two products that follow one another (painn_train_node.cu), large ones a kernel for each
 * (painn_train_product.cu). */
#ifndef PAINN_TRAIN_NODE_CUH
#define PAINN_TRAIN_NODE_CUH

#include "gpu/train/tf32_product.cuh"
#include "painn_train_math.cuh"

typedef struct node_step {
    painn_train_step s;
    int32_t l, slices;
} node_step;

/* Runs the statements for each sum[m][c][…][e] of a lane, with its `row` of the tile and its `column` from n0 on. */
#define EACH_SUM(MT, NC, ...)                                                                                                    \
    do {                                                                                                                         \
        const int lane_ = (int)threadIdx.x % 32;                                                                                 \
        _Pragma("unroll") for (int m = 0; m < MT; m++) _Pragma("unroll") for (int c = 0; c < NC; c++)                            \
            _Pragma("unroll") for (int e = 0; e < 4; e++)                                                                        \
        {                                                                                                                        \
            const int row = 16 * m + lane_ / 4 + e / 2 * 8, column = 8 * c + lane_ % 4 * 2 + e % 2;                              \
            __VA_ARGS__                                                                                                          \
        }                                                                                                                        \
    } while (0)

/* Hidden layer of a network: h, or ḣ, from its product; a = act(h), which is returned. `keep`: written to memory. */
template <int TANGENT>
static __device__ __forceinline__ float hidden_forward(int kind, const painn_dual &h, const painn_dual &a, float bias, size_t at,
                                                       float sum, bool keep)
{
    const float moved = TANGENT ? sum : sum + bias;
    const float active = TANGENT ? activation_slope(kind, h.value[at]) * sum : activation(kind, moved);
    if (keep) {
        (TANGENT ? h.tangent : h.value)[at] = moved;
        (TANGENT ? a.tangent : a.value)[at] = active;
    }
    return active;
}

/* h̄, or its tangent, from ā; `adjoint` keeps ā of the values. */
template <int TANGENT>
static __device__ __forceinline__ float hidden_back(int kind, const painn_dual &h, const painn_dual &bar, float *adjoint,
                                                    size_t at, float sum, bool keep)
{
    const float value = h.value[at];
    float result = sum * activation_slope(kind, value);
    if (TANGENT && h.tangent) result += adjoint[at] * activation_second(kind, value) * h.tangent[at]; // NULL: 0
    if (keep) {
        (TANGENT ? bar.tangent : bar.value)[at] = result;
        if (!TANGENT) adjoint[at] = sum;
    }
    return result;
}

/* One third of x. */
template <int TANGENT>
static __device__ __forceinline__ void write_x(const painn_train_step &s, int l, int atom, int f, float sum)
{
    const painn_dual &x = s.layer[l].x;
    const size_t at = (size_t)atom * 3 * s.n_features + f;
    if (TANGENT)
        x.tangent[at] = sum;
    else
        x.value[at] = sum + s.weights.base[s.weights.layer[l].b2 + f];
}

/* V, B, n and t of an atom and a feature. */
template <int TANGENT>
static __device__ __forceinline__ void write_vectors(const painn_train_step &s, int l, int atom, int f, const float (&V)[3],
                                                     const float (&B)[3])
{
    const int F = s.n_features;
    const painn_train_layer &L = s.layer[l];
    float norm = TANGENT ? 0.0f : s.epsilon, t = 0;
    for (int axis = 0; axis < 3; axis++) {
        const size_t at = ((size_t)atom * 3 + axis) * 2 * F + f;
        if (TANGENT) {
            const float V0 = L.VB.value[at], B0 = L.VB.value[at + F];
            L.VB.tangent[at] = V[axis];
            L.VB.tangent[at + F] = B[axis];
            norm += V0 * V[axis];
            t += V[axis] * B0 + V0 * B[axis];
        } else {
            L.VB.value[at] = V[axis];
            L.VB.value[at + F] = B[axis];
            norm += V[axis] * V[axis];
            t += V[axis] * B[axis];
        }
    }
    const size_t at = (size_t)atom * F + f, at_norm = (size_t)atom * 2 * F + F + f;
    if (TANGENT) {
        L.context.tangent[at_norm] = norm / L.context.value[at_norm];
        L.t.tangent[at] = t;
    } else {
        L.context.value[at_norm] = sqrtf(norm);
        L.t.value[at] = t;
    }
}

/* The update of an atom and a feature from the products for y. */
template <int TANGENT>
static __device__ __forceinline__ void write_update(const painn_train_step &s, int l, int atom, int f, const float (&sum)[3])
{
    const int F = s.n_features;
    const painn_train_layer &L = s.layer[l];
    const size_t at = (size_t)atom * F + f, at_y = (size_t)atom * 2 * F + f;
    const float *bias = s.weights.base + s.weights.layer[l].c2 + f;
    const float yq = sum[0] + (TANGENT ? 0.0f : bias[0]), ym = sum[1] + (TANGENT ? 0.0f : bias[F]);
    const float yt = sum[2] + (TANGENT ? 0.0f : bias[2 * F]);
    const float q1 = (TANGENT ? L.context.tangent : L.context.value)[(size_t)atom * 2 * F + f];
    float *y = TANGENT ? L.y.tangent : L.y.value;
    y[at_y] = ym;
    y[at_y + F] = yt;
    float ym0 = 0;
    if (TANGENT) {
        ym0 = L.y.value[at_y];
        s.q[l + 1].tangent[at] = q1 + yq + yt * L.t.value[at] + L.y.value[at_y + F] * L.t.tangent[at];
    } else {
        s.q[l + 1].value[at] = q1 + yq + yt * L.t.value[at];
    }
    for (int axis = 0; axis < 3 && l + 1 < s.n_layers; axis++) { // the last μ is not used
        const size_t to = ((size_t)atom * 3 + axis) * F + f, from = ((size_t)atom * 3 + axis) * 2 * F + F + f;
        if (TANGENT)
            s.mu[l + 1].tangent[to] = L.mu1.tangent[to] + ym * L.VB.value[from] + ym0 * L.VB.tangent[from];
        else
            s.mu[l + 1].value[to] = L.mu1.value[to] + ym * L.VB.value[from];
    }
}

/* ȳ = [q̄ | Σ μ̄_c∘B_c | q̄∘t] of an atom and a feature, or its tangent; `keep`: written to memory. */
template <int TANGENT>
static __device__ __forceinline__ void make_y_bar(const painn_train_step &s, int l, int atom, int f, bool keep, float (&y)[3])
{
    const int F = s.n_features;
    const painn_train_layer &L = s.layer[l];
    const size_t at = (size_t)atom * F + f;
    const float q0 = s.q_bar[l + 1].value[at], q = TANGENT ? s.q_bar[l + 1].tangent[at] : q0;
    y[0] = q;
    y[1] = 0;
    y[2] = TANGENT ? q * L.t.value[at] + q0 * L.t.tangent[at] : q0 * L.t.value[at];
    for (int axis = 0; axis < 3 && l + 1 < s.n_layers; axis++) {
        const size_t from = ((size_t)atom * 3 + axis) * F + f, B = ((size_t)atom * 3 + axis) * 2 * F + F + f;
        const float mu0 = s.mu_bar[l + 1].value[from];
        y[1] += TANGENT ? s.mu_bar[l + 1].tangent[from] * L.VB.value[B] + mu0 * L.VB.tangent[B] : mu0 * L.VB.value[B];
    }
    if (!keep) return;
    float *to = (TANGENT ? L.y_bar.tangent : L.y_bar.value) + (size_t)atom * 3 * F + f;
    for (int k = 0; k < 3; k++) to[k * F] = y[k];
}

/* [V̄|B̄] and q̄' of an atom and a feature, from p̄ and n̄. */
template <int TANGENT>
static __device__ __forceinline__ void norm_back(const painn_train_step &s, int l, int atom, int f, float p, float norm_bar)
{
    const int F = s.n_features;
    const painn_train_layer &L = s.layer[l];
    const size_t at = (size_t)atom * F + f, at_y = (size_t)atom * 2 * F + f, at_norm = (size_t)atom * 2 * F + F + f;
    const float q0 = s.q_bar[l + 1].value[at], ym0 = L.y.value[at_y], yt0 = L.y.value[at_y + F];
    const float t0 = q0 * yt0, norm = L.context.value[at_norm];
    float q1, k, k0 = 0, ym1 = 0, t1 = 0;
    if (TANGENT) {
        const float q = s.q_bar[l + 1].tangent[at];
        q1 = q + p;
        k0 = L.k[at];
        k = (norm_bar - k0 * L.context.tangent[at_norm]) / norm;
        ym1 = L.y.tangent[at_y];
        t1 = q * yt0 + q0 * L.y.tangent[at_y + F];
        L.q1_bar.tangent[at] = q1;
    } else {
        q1 = q0 + p;
        k = norm_bar / norm;
        L.q1_bar.value[at] = q1;
        L.k[at] = k;
    }
    for (int axis = 0; axis < 3; axis++) {
        const size_t at_mu = ((size_t)atom * 3 + axis) * F + f, V = ((size_t)atom * 3 + axis) * 2 * F + f;
        const bool last = l + 1 == s.n_layers;
        const float mu0 = last ? 0.0f : s.mu_bar[l + 1].value[at_mu], V0 = L.VB.value[V], B0 = L.VB.value[V + F];
        if (TANGENT) {
            const float mu = last ? 0.0f : s.mu_bar[l + 1].tangent[at_mu], V1 = L.VB.tangent[V], B1 = L.VB.tangent[V + F];
            L.VB_bar.tangent[V] = t1 * B0 + t0 * B1 + k * V0 + k0 * V1;
            L.VB_bar.tangent[V + F] = mu * ym0 + mu0 * ym1 + t1 * V0 + t0 * V1;
        } else {
            L.VB_bar.value[V] = t0 * B0 + k * V0;
            L.VB_bar.value[V + F] = mu0 * ym0 + t0 * V0;
        }
    }
}

/* μ̄' of an atom and a feature. */
template <int TANGENT>
static __device__ __forceinline__ void write_mu1_bar(const painn_train_step &s, int l, int atom, int f, const float (&sum)[3])
{
    const float *mu_bar = TANGENT ? s.mu_bar[l + 1].tangent : s.mu_bar[l + 1].value;
    float *mu1_bar = TANGENT ? s.layer[l].mu1_bar.tangent : s.layer[l].mu1_bar.value;
    for (int axis = 0; axis < 3; axis++) {
        const size_t at = ((size_t)atom * 3 + axis) * s.n_features + f;
        mu1_bar[at] = sum[axis] + (l + 1 < s.n_layers ? mu_bar[at] : 0.0f);
    }
}

template <int TANGENT>
static __device__ __forceinline__ void write_q_bar(const painn_train_step &s, int l, int atom, int f, float sum)
{
    const size_t at = (size_t)atom * s.n_features + f;
    if (TANGENT)
        s.q_bar[l].tangent[at] = s.layer[l].q1_bar.tangent[at] + sum;
    else
        s.q_bar[l].value[at] = s.layer[l].q1_bar.value[at] + sum;
}

#endif
