/* SPDX-License-Identifier: MIT */
/* painn_train_node.cuh: what is made of each element of a matrix product at atoms in a training step, values (TANGENT 0) or tangents.
 *
 *   message network   h = q W1ᵀ + b1 ; x = act(h) W2ᵀ + b2
 *   update            [V|B] = μ' Uᵀ ; n = √(Σ V² + ε) ; t = Σ V∘B ; g = [q'|n] M1ᵀ + c1 ; y = act(g) M2ᵀ + c2
 *                     q'' = q' + yq + yt∘t ; μ'' = μ' + yμ∘B
 *   and backwards     s̄ = ȳ M2 ; ḡ = s̄∘act'(g) ; [p̄|n̄] = ḡ M1 ; μ̄' = μ̄ + [V̄|B̄] U ; ā = x̄ W2 ; h̄ = ā∘act'(h) ; q̄ = q̄' + h̄ W1
 * Products are of rows of two matrices: of W forwards, of Wᵀ backwards, of which `begin` keeps a copy.
 * An operation is a struct: `load` reads what it needs besides the product, which may be requested before the product is made;
 * `finish` takes the product and writes the results. Small batches do several products in one kernel (painn_train_chain.cu), large
 * ones have a kernel for each (painn_train_product.cu). */
#ifndef PAINN_TRAIN_NODE_CUH
#define PAINN_TRAIN_NODE_CUH

#include "gpu/train/tf32_product.cuh"
#include "painn_train_math.cuh"

typedef struct node_step {
    painn_train_step s;
    int32_t l, slices;
} node_step;
typedef void (*node_kernel)(node_step);

/* An atom and a feature. Without `there` results are not written. */
struct element {
    int atom, f;
    bool there;
};

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

/* Hidden layer of a network: h, or ḣ, from its product; a = act(h), which finish returns. */
template <int TANGENT> struct hidden_forward {
    size_t at;
    float value; /* of tangents, h of the values; else the bias */

    __device__ __forceinline__ void load(int F, const element &e, const painn_dual &h, const float *bias)
    {
        at = (size_t)e.atom * F + e.f;
        value = TANGENT ? h.value[at] : bias[e.f];
    }
    __device__ __forceinline__ float finish(int kind, bool there, const painn_dual &h, const painn_dual &a, float sum) const
    {
        const float moved = TANGENT ? sum : sum + value;
        const float active = TANGENT ? activation_slope(kind, value) * sum : activation(kind, moved);
        if (there) {
            (TANGENT ? h.tangent : h.value)[at] = moved;
            (TANGENT ? a.tangent : a.value)[at] = active;
        }
        return active;
    }
};

/* h̄, or its tangent, from ā; `adjoint` keeps ā of the values. Without h.tangent (NULL): it is 0. */
template <int TANGENT> struct hidden_back {
    size_t at;
    float value, moved, before;

    __device__ __forceinline__ void load(int F, const element &e, const painn_dual &h, const float *adjoint)
    {
        at = (size_t)e.atom * F + e.f;
        value = h.value[at];
        moved = TANGENT && h.tangent ? h.tangent[at] : 0.0f;
        before = TANGENT && h.tangent ? adjoint[at] : 0.0f;
    }
    __device__ __forceinline__ float finish(int kind, bool there, const painn_dual &bar, float *adjoint, float sum) const
    {
        float result = sum * activation_slope(kind, value);
        if (TANGENT) result += before * activation_second(kind, value) * moved;
        if (there) {
            (TANGENT ? bar.tangent : bar.value)[at] = result;
            if (!TANGENT) adjoint[at] = sum;
        }
        return result;
    }
};

/* x of an atom and a feature. */
template <int TANGENT> struct message_output {
    float bias[3];

    __device__ __forceinline__ void load(const painn_train_step &s, int l, const element &e)
    {
        const float *from = s.weights.base + s.weights.layer[l].b2 + e.f;
        for (int b = 0; b < 3; b++) bias[b] = TANGENT ? 0.0f : from[b * s.n_features];
    }
    __device__ __forceinline__ void finish(const painn_train_step &s, int l, const element &e, const float (&sum)[3]) const
    {
        const int F = s.n_features;
        const painn_dual &x = s.layer[l].x;
        float *to = (TANGENT ? x.tangent : x.value) + (size_t)e.atom * 3 * F + e.f;
        for (int b = 0; b < 3 && e.there; b++) to[b * F] = sum[b] + bias[b];
    }
};

/* V, B, n and t of an atom and a feature; finish returns n. */
template <int TANGENT> struct update_vectors {
    float V0[3], B0[3], n0;

    __device__ __forceinline__ void load(const painn_train_step &s, int l, const element &e)
    {
        if (!TANGENT) return;
        const int F = s.n_features;
        const painn_train_layer &L = s.layer[l];
        for (int axis = 0; axis < 3; axis++) {
            const size_t at = ((size_t)e.atom * 3 + axis) * 2 * F + e.f;
            V0[axis] = L.VB.value[at];
            B0[axis] = L.VB.value[at + F];
        }
        n0 = L.context.value[(size_t)e.atom * 2 * F + F + e.f];
    }
    __device__ __forceinline__ float finish(const painn_train_step &s, int l, const element &e, const float (&V)[3],
                                            const float (&B)[3]) const
    {
        const int F = s.n_features;
        const painn_train_layer &L = s.layer[l];
        float norm = TANGENT ? 0.0f : s.epsilon, t = 0;
        for (int axis = 0; axis < 3; axis++) {
            norm += TANGENT ? V0[axis] * V[axis] : V[axis] * V[axis];
            t += TANGENT ? V[axis] * B0[axis] + V0[axis] * B[axis] : V[axis] * B[axis];
        }
        norm = TANGENT ? norm / n0 : sqrtf(norm);
        if (!e.there) return norm;
        for (int axis = 0; axis < 3; axis++) {
            float *to = (TANGENT ? L.VB.tangent : L.VB.value) + ((size_t)e.atom * 3 + axis) * 2 * F + e.f;
            to[0] = V[axis];
            to[F] = B[axis];
        }
        (TANGENT ? L.context.tangent : L.context.value)[(size_t)e.atom * 2 * F + F + e.f] = norm;
        (TANGENT ? L.t.tangent : L.t.value)[(size_t)e.atom * F + e.f] = t;
        return norm;
    }
};

/* The update of an atom and a feature from the products for y; finish returns q''. */
template <int TANGENT> struct update_features {
    float q1, t0, t1, ym0, yt0, bias[3], mu1[3], B0[3], B1[3];

    __device__ __forceinline__ void load(const painn_train_step &s, int l, const element &e)
    {
        const int F = s.n_features;
        const painn_train_layer &L = s.layer[l];
        const size_t at = (size_t)e.atom * F + e.f, at_y = (size_t)e.atom * 2 * F + e.f;
        q1 = (TANGENT ? L.context.tangent : L.context.value)[at_y];
        t0 = L.t.value[at];
        t1 = TANGENT ? L.t.tangent[at] : 0.0f;
        ym0 = TANGENT ? L.y.value[at_y] : 0.0f;
        yt0 = TANGENT ? L.y.value[at_y + F] : 0.0f;
        for (int b = 0; b < 3; b++) bias[b] = TANGENT ? 0.0f : s.weights.base[s.weights.layer[l].c2 + b * F + e.f];
        for (int axis = 0; axis < 3 && l + 1 < s.n_layers; axis++) { // the last μ is not used
            const size_t mu = ((size_t)e.atom * 3 + axis) * F + e.f, B = ((size_t)e.atom * 3 + axis) * 2 * F + F + e.f;
            mu1[axis] = (TANGENT ? L.mu1.tangent : L.mu1.value)[mu];
            B0[axis] = L.VB.value[B];
            B1[axis] = TANGENT ? L.VB.tangent[B] : 0.0f;
        }
    }
    __device__ __forceinline__ float finish(const painn_train_step &s, int l, const element &e, const float (&sum)[3]) const
    {
        const int F = s.n_features;
        const painn_train_layer &L = s.layer[l];
        const size_t at = (size_t)e.atom * F + e.f, at_y = (size_t)e.atom * 2 * F + e.f;
        const float ym = sum[1] + bias[1], yt = sum[2] + bias[2];
        const float q = q1 + (sum[0] + bias[0]) + yt * t0 + yt0 * t1;
        if (!e.there) return q;
        float *y = TANGENT ? L.y.tangent : L.y.value;
        y[at_y] = ym;
        y[at_y + F] = yt;
        (TANGENT ? s.q[l + 1].tangent : s.q[l + 1].value)[at] = q;
        for (int axis = 0; axis < 3 && l + 1 < s.n_layers; axis++)
            (TANGENT ? s.mu[l + 1].tangent : s.mu[l + 1].value)[((size_t)e.atom * 3 + axis) * F + e.f] =
                mu1[axis] + ym * B0[axis] + ym0 * B1[axis];
        return q;
    }
};

/* ȳ = [q̄ | Σ μ̄_c∘B_c | q̄∘t] of an atom and a feature, or its tangent, from q̄ of the layer's output, or its tangent. */
template <int TANGENT> struct update_adjoint {
    float q0, t0, t1, y1;

    __device__ __forceinline__ void load(const painn_train_step &s, int l, const element &e)
    {
        const int F = s.n_features;
        const painn_train_layer &L = s.layer[l];
        const size_t at = (size_t)e.atom * F + e.f;
        q0 = TANGENT ? s.q_bar[l + 1].value[at] : 0.0f;
        t0 = L.t.value[at];
        t1 = TANGENT ? L.t.tangent[at] : 0.0f;
        y1 = 0;
        for (int axis = 0; axis < 3 && l + 1 < s.n_layers; axis++) {
            const size_t mu = ((size_t)e.atom * 3 + axis) * F + e.f, B = ((size_t)e.atom * 3 + axis) * 2 * F + F + e.f;
            const float mu0 = s.mu_bar[l + 1].value[mu];
            y1 += TANGENT ? s.mu_bar[l + 1].tangent[mu] * L.VB.value[B] + mu0 * L.VB.tangent[B] : mu0 * L.VB.value[B];
        }
    }
    __device__ __forceinline__ void finish(const painn_train_step &s, int l, const element &e, float q, float (&y)[3]) const
    {
        const int F = s.n_features;
        const painn_train_layer &L = s.layer[l];
        y[0] = q;
        y[1] = y1;
        y[2] = q * t0 + q0 * t1;
        float *to = (TANGENT ? L.y_bar.tangent : L.y_bar.value) + (size_t)e.atom * 3 * F + e.f;
        for (int k = 0; k < 3 && e.there; k++) to[k * F] = y[k];
    }
};

/* [V̄|B̄] and q̄' of an atom and a feature, from p̄ and n̄ and from q̄ of the layer's output, or its tangent. */
template <int TANGENT> struct norm_back {
    float q0, k0, n0, n1, ym0, ym1, yt0, yt1, V0[3], B0[3], V1[3], B1[3], mu0[3], mu1[3];

    __device__ __forceinline__ void load(const painn_train_step &s, int l, const element &e)
    {
        const int F = s.n_features;
        const painn_train_layer &L = s.layer[l];
        const size_t at = (size_t)e.atom * F + e.f, at_y = (size_t)e.atom * 2 * F + e.f;
        q0 = TANGENT ? s.q_bar[l + 1].value[at] : 0.0f;
        k0 = TANGENT ? L.k[at] : 0.0f;
        n0 = L.context.value[at_y + F];
        n1 = TANGENT ? L.context.tangent[at_y + F] : 0.0f;
        ym0 = L.y.value[at_y];
        yt0 = L.y.value[at_y + F];
        ym1 = TANGENT ? L.y.tangent[at_y] : 0.0f;
        yt1 = TANGENT ? L.y.tangent[at_y + F] : 0.0f;
        for (int axis = 0; axis < 3; axis++) {
            const size_t mu = ((size_t)e.atom * 3 + axis) * F + e.f, V = ((size_t)e.atom * 3 + axis) * 2 * F + e.f;
            const bool last = l + 1 == s.n_layers;
            mu0[axis] = last ? 0.0f : s.mu_bar[l + 1].value[mu];
            mu1[axis] = last || !TANGENT ? 0.0f : s.mu_bar[l + 1].tangent[mu];
            V0[axis] = L.VB.value[V];
            B0[axis] = L.VB.value[V + F];
            V1[axis] = TANGENT ? L.VB.tangent[V] : 0.0f;
            B1[axis] = TANGENT ? L.VB.tangent[V + F] : 0.0f;
        }
    }
    __device__ __forceinline__ void finish(const painn_train_step &s, int l, const element &e, float q, float p, float n_bar,
                                           float (&V)[3], float (&B)[3]) const
    {
        const int F = s.n_features;
        const painn_train_layer &L = s.layer[l];
        const float k = TANGENT ? (n_bar - k0 * n1) / n0 : n_bar / n0;
        const float t0 = TANGENT ? q0 * yt0 : q * yt0, t1 = TANGENT ? q * yt0 + q0 * yt1 : 0.0f;
        for (int axis = 0; axis < 3; axis++) {
            V[axis] = TANGENT ? t1 * B0[axis] + t0 * B1[axis] + k * V0[axis] + k0 * V1[axis] : t0 * B0[axis] + k * V0[axis];
            B[axis] =
                TANGENT ? mu1[axis] * ym0 + mu0[axis] * ym1 + t1 * V0[axis] + t0 * V1[axis] : mu0[axis] * ym0 + t0 * V0[axis];
        }
        if (!e.there) return;
        const size_t at = (size_t)e.atom * F + e.f;
        (TANGENT ? L.q1_bar.tangent : L.q1_bar.value)[at] = q + p;
        if (!TANGENT) L.k[at] = k;
        for (int axis = 0; axis < 3; axis++) {
            float *to = (TANGENT ? L.VB_bar.tangent : L.VB_bar.value) + ((size_t)e.atom * 3 + axis) * 2 * F + e.f;
            to[0] = V[axis];
            to[F] = B[axis];
        }
    }
};

/* q̄ of the output of layer l, of an atom and a feature, or its tangent. */
template <int TANGENT> static __device__ __forceinline__ float load_q_bar(const painn_train_step &s, int l, const element &e)
{
    return (TANGENT ? s.q_bar[l + 1].tangent : s.q_bar[l + 1].value)[(size_t)e.atom * s.n_features + e.f];
}

/* μ̄' of an atom and a feature. */
template <int TANGENT> struct vector_back {
    float mu_bar[3];

    __device__ __forceinline__ void load(const painn_train_step &s, int l, const element &e)
    {
        const float *from = TANGENT ? s.mu_bar[l + 1].tangent : s.mu_bar[l + 1].value;
        for (int axis = 0; axis < 3; axis++)
            mu_bar[axis] = l + 1 < s.n_layers ? from[((size_t)e.atom * 3 + axis) * s.n_features + e.f] : 0.0f;
    }
    __device__ __forceinline__ void finish(const painn_train_step &s, int l, const element &e, const float (&sum)[3]) const
    {
        float *to = TANGENT ? s.layer[l].mu1_bar.tangent : s.layer[l].mu1_bar.value;
        for (int axis = 0; axis < 3 && e.there; axis++)
            to[((size_t)e.atom * 3 + axis) * s.n_features + e.f] = sum[axis] + mu_bar[axis];
    }
};

/* q̄ of a layer's input, of an atom and a feature; finish returns it. */
template <int TANGENT> struct features_back {
    float q1_bar;

    __device__ __forceinline__ void load(const painn_train_step &s, int l, const element &e)
    {
        const painn_dual &from = s.layer[l].q1_bar;
        q1_bar = (TANGENT ? from.tangent : from.value)[(size_t)e.atom * s.n_features + e.f];
    }
    __device__ __forceinline__ float finish(const painn_train_step &s, int l, const element &e, float sum) const
    {
        const float q = q1_bar + sum;
        if (e.there) (TANGENT ? s.q_bar[l].tangent : s.q_bar[l].value)[(size_t)e.atom * s.n_features + e.f] = q;
        return q;
    }
};

/* ---- readout: ε = act(q O1ᵀ + o1)·O2 + o2 and its adjoint q̄, seeded 1; of tangents, seeded c */

template <int TANGENT> struct readout_hidden {
    size_t at;
    float O2, z, c; /* z: without tangents the bias */

    __device__ __forceinline__ void load(const painn_train_step &s, const element &e)
    {
        at = (size_t)e.atom * s.n_hidden + e.f;
        O2 = s.weights.base[s.weights.O2 + e.f];
        z = TANGENT ? s.z.value[at] : s.weights.base[s.weights.o1 + e.f];
        c = TANGENT ? s.c[e.atom] : 0.0f;
    }
    /* Returns the adjoint of z; `term`: what ε gets of this element. */
    __device__ __forceinline__ float finish(const painn_train_step &s, const element &e, float sum, float &term) const
    {
        if (TANGENT) {
            const float slope = activation_slope(s.activation, z);
            const float bar = O2 * (c * slope + activation_second(s.activation, z) * sum);
            if (e.there) {
                s.z.tangent[at] = sum;
                s.z_bar.tangent[at] = bar;
                s.readout_term[(size_t)e.atom * (s.n_hidden + PAINN_TRAIN_TERM_PAD) + e.f] =
                    c * activation(s.activation, z) + slope * sum;
            }
            return bar;
        }
        const float value = sum + z, bar = O2 * activation_slope(s.activation, value);
        term = O2 * activation(s.activation, value);
        if (e.there) {
            s.z.value[at] = value;
            s.z_bar.value[at] = bar;
        }
        return bar;
    }
};

/* An atom's energy from the sum of its terms; of tangents, the gradient of the readout's last bias. By one thread. */
template <int TANGENT> static __device__ __forceinline__ void write_energy(const painn_train_step &s, int atom, float sum)
{
    if (TANGENT)
        s.readout_term[(size_t)atom * (s.n_hidden + PAINN_TRAIN_TERM_PAD) + s.n_hidden] = s.c[atom];
    else
        s.atom_energy[atom] = s.weights.base[s.weights.o2] + sum;
}

#endif
