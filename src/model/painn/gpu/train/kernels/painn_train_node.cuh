/* SPDX-License-Identifier: MIT */
/* painn_train_node.cuh: what is made of each element of a matrix product at atoms in a training step, values (TANGENT 0) or tangents.
 *
 *   message network   h = q W1ᵀ + b1 ; x = act(h) W2ᵀ + b2
 *   update            [V|B] = μ' Uᵀ ; n = √(Σ V² + ε) ; t = Σ V∘B ; g = [q'|n] M1ᵀ + c1 ; y = act(g) M2ᵀ + c2
 *                     q'' = q' + yq + yt∘t ; μ'' = μ' + yμ∘B
 *   and backwards     s̄ = ȳ M2 ; ḡ = s̄∘act'(g) ; [p̄|n̄] = ḡ M1 ; μ̄' = μ̄ + [V̄|B̄] U ; ā = x̄ W2 ; h̄ = ā∘act'(h) ; q̄ = q̄' + h̄ W1
 * Products are of rows of two matrices: of W forwards, of Wᵀ backwards, of which `begin` keeps a copy.
 * An operation is a struct for N neighboring features of an atom: `load` reads what it needs besides the product, which may be
 * requested before the product is made; `finish` takes the product and writes the results. Small batches do several products in
 * one kernel (painn_train_chain.cu), large ones have a kernel for each (painn_train_product.cu).
 * Indices have 32 bits: a batch has less than 2²¹ atoms (painn_train_count), an atom less than 2¹⁰ numbers in an array. With TF32 what only
 * products read is rounded where it is stored: a, s, x̄, h̄, ȳ, ḡ, [V̄|B̄], z̄ and their tangents. */
#ifndef PAINN_TRAIN_NODE_CUH
#define PAINN_TRAIN_NODE_CUH

#include "gpu/train/tf32_product.cuh"
#include "painn_train_math.cuh"

typedef struct node_step {
    painn_train_step s;
    int32_t l, slices;
} node_step;
typedef void (*node_kernel)(node_step);

/* A step whose number of features the compiler knows: half of the instructions of chains were indices. Operations take either. */
template <int F> struct known_step : painn_train_step {
    static constexpr int n_features = F;
};

/* An atom and the first of some neighboring features (painn_train_math.cuh). Without `there` results are not written. */
struct element {
    int atom, f;
    bool there;
};

/* Numbers that are stored for products and used by nothing else (tf32_operand). */
template <int PARTS, int N> static __device__ __forceinline__ numbers<N> operands(const numbers<N> &a)
{
    OF_EACH(N, tf32_operand<PARTS>(a.v[k]));
}

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
template <int PARTS, int TANGENT, int N> struct hidden_forward {
    uint32_t at;
    numbers<N> value; /* of tangents, h of the values; else the bias */

    __device__ __forceinline__ void load(int F, const element &e, const painn_dual &h, const float *bias)
    {
        at = (uint32_t)e.atom * F + e.f;
        value = numbers_at<N>(TANGENT ? h.value + at : bias + e.f);
    }
    __device__ __forceinline__ numbers<N> finish(int kind, bool there, const painn_dual &h, const painn_dual &a,
                                                 const numbers<N> &sum) const
    {
        const numbers<N> moved = TANGENT ? sum : sum + value;
        const numbers<N> active = operands<PARTS>(TANGENT ? activation_slope(kind, value) * sum : activation(kind, moved));
        if (there) {
            put((TANGENT ? h.tangent : h.value) + at, moved);
            put((TANGENT ? a.tangent : a.value) + at, active);
        }
        return active;
    }
};

/* h̄, or its tangent, from ā; `adjoint` keeps ā of the values. Without h.tangent (NULL): it is 0. */
template <int PARTS, int TANGENT, int N> struct hidden_back {
    uint32_t at;
    numbers<N> value, moved, before;

    __device__ __forceinline__ void load(int F, const element &e, const painn_dual &h, const float *adjoint)
    {
        const bool more = TANGENT && h.tangent;
        at = (uint32_t)e.atom * F + e.f;
        value = numbers_at<N>(h.value + at);
        moved = more ? numbers_at<N>(h.tangent + at) : all_of<N>(0);
        before = numbers_if<N>(more, adjoint + at);
    }
    __device__ __forceinline__ numbers<N> finish(int kind, bool there, const painn_dual &bar, float *adjoint,
                                                 const numbers<N> &sum) const
    {
        numbers<N> result = sum * activation_slope(kind, value);
        if (TANGENT) result = result + before * activation_second(kind, value) * moved;
        result = operands<PARTS>(result);
        if (there) {
            put((TANGENT ? bar.tangent : bar.value) + at, result);
            if (!TANGENT) put(adjoint + at, sum);
        }
        return result;
    }
};

/* x of an atom and its features. */
template <int TANGENT, int N> struct message_output {
    numbers<N> bias[3];

    template <class Step> __device__ __forceinline__ void load(const Step &s, int l, const element &e)
    {
        const float *from = s.weights.base + s.weights.layer[l].b2 + e.f;
        for (int b = 0; b < 3; b++) bias[b] = numbers_if<N>(!TANGENT, from + b * s.n_features);
    }
    template <class Step>
    __device__ __forceinline__ void finish(const Step &s, int l, const element &e, const numbers<N> (&sum)[3]) const
    {
        const int F = s.n_features;
        const painn_dual &x = s.layer[l].x;
        float *to = TANGENT ? x.tangent : x.value;
        if (!e.there) return;
        for (int b = 0; b < 3 && l > 0; b++) put(to + ((uint32_t)e.atom * 3 + b) * F + e.f, sum[b] + bias[b]);
        for (int b = 0; b < 2 && l == 0; b++)
            put_first_x(to + (uint32_t)e.atom * 2 * F + painn_first_x(b, e.f), sum[b] + bias[b]);
    }
};

/* V, B, n and t of an atom and its features; finish returns n. */
template <int TANGENT, int N> struct update_vectors {
    numbers<N> V0[3], B0[3], n0;

    template <class Step> __device__ __forceinline__ void load(const Step &s, int l, const element &e)
    {
        if (!TANGENT) return;
        const int F = s.n_features;
        const painn_train_layer &L = s.layer[l];
        for (int axis = 0; axis < 3; axis++) {
            const uint32_t at = ((uint32_t)e.atom * 3 + axis) * 2 * F + e.f;
            V0[axis] = numbers_at<N>(L.VB.value + at);
            B0[axis] = numbers_at<N>(L.VB.value + at + F);
        }
        n0 = numbers_at<N>(L.context.value + (uint32_t)e.atom * 2 * F + F + e.f);
    }
    template <class Step>
    __device__ __forceinline__ numbers<N> finish(const Step &s, int l, const element &e, const numbers<N> (&V)[3],
                                                 const numbers<N> (&B)[3]) const
    {
        const int F = s.n_features;
        const painn_train_layer &L = s.layer[l];
        numbers<N> norm = all_of<N>(TANGENT ? 0.0f : s.epsilon), t = all_of<N>(0);
        for (int axis = 0; axis < 3; axis++) {
            norm = norm + (TANGENT ? V0[axis] * V[axis] : V[axis] * V[axis]);
            t = t + (TANGENT ? V[axis] * B0[axis] + V0[axis] * B[axis] : V[axis] * B[axis]);
        }
        norm = TANGENT ? norm / n0 : square_root(norm);
        if (!e.there) return norm;
        for (int axis = 0; axis < 3; axis++) {
            float *to = (TANGENT ? L.VB.tangent : L.VB.value) + ((uint32_t)e.atom * 3 + axis) * 2 * F + e.f;
            put(to, V[axis]);
            put(to + F, B[axis]);
        }
        put((TANGENT ? L.context.tangent : L.context.value) + (uint32_t)e.atom * 2 * F + F + e.f, norm);
        put((TANGENT ? L.t.tangent : L.t.value) + (uint32_t)e.atom * F + e.f, t);
        return norm;
    }
};

/* The update of an atom and its features from the products for y; finish returns q''. */
template <int TANGENT, int N> struct update_features {
    numbers<N> q1, t0, t1, ym0, yt0, bias[3], mu1[3], B0[3], B1[3];

    template <class Step> __device__ __forceinline__ void load(const Step &s, int l, const element &e)
    {
        const int F = s.n_features;
        const painn_train_layer &L = s.layer[l];
        const uint32_t at = (uint32_t)e.atom * F + e.f, at_y = (uint32_t)e.atom * 2 * F + e.f;
        q1 = numbers_at<N>((TANGENT ? L.context.tangent : L.context.value) + at_y);
        t0 = numbers_at<N>(L.t.value + at);
        t1 = numbers_if<N>(TANGENT, L.t.tangent + at);
        ym0 = numbers_if<N>(TANGENT, L.y.value + at_y);
        yt0 = numbers_if<N>(TANGENT, L.y.value + at_y + F);
        for (int b = 0; b < 3; b++) bias[b] = numbers_if<N>(!TANGENT, s.weights.base + s.weights.layer[l].c2 + b * F + e.f);
        for (int axis = 0; axis < 3 && l + 1 < s.n_layers; axis++) { // the last μ is not used
            const uint32_t mu = ((uint32_t)e.atom * 3 + axis) * F + e.f, B = ((uint32_t)e.atom * 3 + axis) * 2 * F + F + e.f;
            mu1[axis] = numbers_at<N>((TANGENT ? L.mu1.tangent : L.mu1.value) + mu);
            B0[axis] = numbers_at<N>(L.VB.value + B);
            B1[axis] = numbers_if<N>(TANGENT, L.VB.tangent + B);
        }
    }
    template <class Step>
    __device__ __forceinline__ numbers<N> finish(const Step &s, int l, const element &e, const numbers<N> (&sum)[3]) const
    {
        const int F = s.n_features;
        const painn_train_layer &L = s.layer[l];
        const uint32_t at = (uint32_t)e.atom * F + e.f, at_y = (uint32_t)e.atom * 2 * F + e.f;
        const numbers<N> ym = sum[1] + bias[1], yt = sum[2] + bias[2];
        numbers<N> q = q1 + (sum[0] + bias[0]) + yt * t0;
        if (TANGENT) q = q + yt0 * t1;
        if (!e.there) return q;
        float *y = TANGENT ? L.y.tangent : L.y.value;
        put(y + at_y, ym);
        put(y + at_y + F, yt);
        put((TANGENT ? s.q[l + 1].tangent : s.q[l + 1].value) + at, q);
        for (int axis = 0; axis < 3 && l + 1 < s.n_layers; axis++) {
            numbers<N> mu = mu1[axis] + ym * B0[axis];
            if (TANGENT) mu = mu + ym0 * B1[axis];
            put((TANGENT ? s.mu[l + 1].tangent : s.mu[l + 1].value) + ((uint32_t)e.atom * 3 + axis) * F + e.f, mu);
        }
        return q;
    }
};

/* ȳ = [q̄ | Σ μ̄_c∘B_c | q̄∘t] of an atom and its features, or its tangent, from q̄ of the layer's output, or its tangent. */
template <int PARTS, int TANGENT, int N> struct update_adjoint {
    numbers<N> q0, t0, t1, y1;

    template <class Step> __device__ __forceinline__ void load(const Step &s, int l, const element &e)
    {
        const int F = s.n_features;
        const painn_train_layer &L = s.layer[l];
        const uint32_t at = (uint32_t)e.atom * F + e.f;
        q0 = numbers_if<N>(TANGENT, s.q_bar[l + 1].value + at);
        t0 = numbers_at<N>(L.t.value + at);
        t1 = numbers_if<N>(TANGENT, L.t.tangent + at);
        y1 = all_of<N>(0);
        for (int axis = 0; axis < 3 && l + 1 < s.n_layers; axis++) {
            const uint32_t mu = ((uint32_t)e.atom * 3 + axis) * F + e.f, B = ((uint32_t)e.atom * 3 + axis) * 2 * F + F + e.f;
            const numbers<N> mu0 = numbers_at<N>(s.mu_bar[l + 1].value + mu), B0 = numbers_at<N>(L.VB.value + B);
            if (TANGENT)
                y1 = y1 + (numbers_at<N>(s.mu_bar[l + 1].tangent + mu) * B0 + mu0 * numbers_at<N>(L.VB.tangent + B));
            else
                y1 = y1 + mu0 * B0;
        }
    }
    template <class Step>
    __device__ __forceinline__ void finish(const Step &s, int l, const element &e, const numbers<N> &q, numbers<N> (&y)[3]) const
    {
        const int F = s.n_features;
        const painn_train_layer &L = s.layer[l];
        y[0] = operands<PARTS>(q);
        y[1] = operands<PARTS>(y1);
        y[2] = operands<PARTS>(TANGENT ? q * t0 + q0 * t1 : q * t0);
        float *to = (TANGENT ? L.y_bar.tangent : L.y_bar.value) + (uint32_t)e.atom * 3 * F + e.f;
        for (int k = 0; k < 3 && e.there; k++) put(to + k * F, y[k]);
    }
};

/* [V̄|B̄] and q̄' of an atom and its features, from p̄ and n̄ and from q̄ of the layer's output, or its tangent. */
template <int PARTS, int TANGENT, int N> struct norm_back {
    numbers<N> q0, k0, n0, n1, ym0, ym1, yt0, yt1, V0[3], B0[3], V1[3], B1[3], mu0[3], mu1[3];

    template <class Step> __device__ __forceinline__ void load(const Step &s, int l, const element &e)
    {
        const int F = s.n_features;
        const painn_train_layer &L = s.layer[l];
        const uint32_t at = (uint32_t)e.atom * F + e.f, at_y = (uint32_t)e.atom * 2 * F + e.f;
        q0 = numbers_if<N>(TANGENT, s.q_bar[l + 1].value + at);
        k0 = numbers_if<N>(TANGENT, L.k + at);
        n0 = numbers_at<N>(L.context.value + at_y + F);
        n1 = numbers_if<N>(TANGENT, L.context.tangent + at_y + F);
        ym0 = numbers_at<N>(L.y.value + at_y);
        yt0 = numbers_at<N>(L.y.value + at_y + F);
        ym1 = numbers_if<N>(TANGENT, L.y.tangent + at_y);
        yt1 = numbers_if<N>(TANGENT, L.y.tangent + at_y + F);
        for (int axis = 0; axis < 3; axis++) {
            const uint32_t mu = ((uint32_t)e.atom * 3 + axis) * F + e.f, V = ((uint32_t)e.atom * 3 + axis) * 2 * F + e.f;
            const bool last = l + 1 == s.n_layers;
            mu0[axis] = numbers_if<N>(!last, s.mu_bar[l + 1].value + mu);
            mu1[axis] = numbers_if<N>(!last && TANGENT, s.mu_bar[l + 1].tangent + mu);
            V0[axis] = numbers_at<N>(L.VB.value + V);
            B0[axis] = numbers_at<N>(L.VB.value + V + F);
            V1[axis] = numbers_if<N>(TANGENT, L.VB.tangent + V);
            B1[axis] = numbers_if<N>(TANGENT, L.VB.tangent + V + F);
        }
    }
    template <class Step>
    __device__ __forceinline__ void finish(const Step &s, int l, const element &e, const numbers<N> &q, const numbers<N> &p,
                                           const numbers<N> &n_bar, numbers<N> (&V)[3], numbers<N> (&B)[3]) const
    {
        const int F = s.n_features;
        const painn_train_layer &L = s.layer[l];
        const numbers<N> k = TANGENT ? (n_bar - k0 * n1) / n0 : n_bar / n0;
        const numbers<N> t0 = TANGENT ? q0 * yt0 : q * yt0, t1 = TANGENT ? q * yt0 + q0 * yt1 : all_of<N>(0);
        for (int axis = 0; axis < 3; axis++) {
            V[axis] = operands<PARTS>(TANGENT ? t1 * B0[axis] + t0 * B1[axis] + k * V0[axis] + k0 * V1[axis]
                                              : t0 * B0[axis] + k * V0[axis]);
            B[axis] = operands<PARTS>(TANGENT ? mu1[axis] * ym0 + mu0[axis] * ym1 + t1 * V0[axis] + t0 * V1[axis]
                                              : mu0[axis] * ym0 + t0 * V0[axis]);
        }
        if (!e.there) return;
        const uint32_t at = (uint32_t)e.atom * F + e.f;
        put((TANGENT ? L.q1_bar.tangent : L.q1_bar.value) + at, q + p);
        if (!TANGENT) put(L.k + at, k);
        for (int axis = 0; axis < 3; axis++) {
            float *to = (TANGENT ? L.VB_bar.tangent : L.VB_bar.value) + ((uint32_t)e.atom * 3 + axis) * 2 * F + e.f;
            put(to, V[axis]);
            put(to + F, B[axis]);
        }
    }
};

/* q̄ of the output of layer l, of an atom and its features, or its tangent. */
template <int TANGENT, int N, class Step>
static __device__ __forceinline__ numbers<N> load_q_bar(const Step &s, int l, const element &e)
{
    return numbers_at<N>((TANGENT ? s.q_bar[l + 1].tangent : s.q_bar[l + 1].value) + (uint32_t)e.atom * s.n_features + e.f);
}

/* μ̄' of an atom and its features. */
template <int TANGENT, int N> struct vector_back {
    numbers<N> mu_bar[3];

    template <class Step> __device__ __forceinline__ void load(const Step &s, int l, const element &e)
    {
        const float *from = TANGENT ? s.mu_bar[l + 1].tangent : s.mu_bar[l + 1].value;
        for (int axis = 0; axis < 3; axis++)
            mu_bar[axis] = numbers_if<N>(l + 1 < s.n_layers, from + ((uint32_t)e.atom * 3 + axis) * s.n_features + e.f);
    }
    template <class Step>
    __device__ __forceinline__ void finish(const Step &s, int l, const element &e, const numbers<N> (&sum)[3]) const
    {
        float *to = TANGENT ? s.layer[l].mu1_bar.tangent : s.layer[l].mu1_bar.value;
        for (int axis = 0; axis < 3 && e.there; axis++)
            put(to + ((uint32_t)e.atom * 3 + axis) * s.n_features + e.f, sum[axis] + mu_bar[axis]);
    }
};

/* q̄ of a layer's input, of an atom and its features; finish returns it. */
template <int TANGENT, int N> struct features_back {
    numbers<N> q1_bar;

    template <class Step> __device__ __forceinline__ void load(const Step &s, int l, const element &e)
    {
        const painn_dual &from = s.layer[l].q1_bar;
        q1_bar = numbers_at<N>((TANGENT ? from.tangent : from.value) + (uint32_t)e.atom * s.n_features + e.f);
    }
    template <class Step>
    __device__ __forceinline__ numbers<N> finish(const Step &s, int l, const element &e, const numbers<N> &sum) const
    {
        const numbers<N> q = q1_bar + sum;
        if (e.there) put((TANGENT ? s.q_bar[l].tangent : s.q_bar[l].value) + (uint32_t)e.atom * s.n_features + e.f, q);
        return q;
    }
};

/* ---- readout: ε = act(q O1ᵀ + o1)·O2 + o2 and its adjoint q̄, seeded 1; of tangents, seeded c */

template <int PARTS, int TANGENT, int N> struct readout_hidden {
    uint32_t at;
    numbers<N> O2, z; /* z: without tangents the bias */
    float c;

    template <class Step> __device__ __forceinline__ void load(const Step &s, const element &e)
    {
        at = (uint32_t)e.atom * s.n_hidden + e.f;
        O2 = numbers_at<N>(s.weights.base + s.weights.O2 + e.f);
        z = numbers_at<N>(TANGENT ? s.z.value + at : s.weights.base + s.weights.o1 + e.f);
        c = TANGENT ? s.c[e.atom] : 0.0f;
    }
    /* Returns the adjoint of z; `term`: what ε gets of these elements. */
    template <class Step>
    __device__ __forceinline__ numbers<N> finish(const Step &s, const element &e, const numbers<N> &sum, numbers<N> &term) const
    {
        if (TANGENT) {
            const numbers<N> slope = activation_slope(s.activation, z), seed = all_of<N>(c);
            const numbers<N> bar = operands<PARTS>(O2 * (seed * slope + activation_second(s.activation, z) * sum));
            if (e.there) {
                put(s.z.tangent + at, sum);
                put(s.z_bar.tangent + at, bar);
                put(s.readout_term + (uint32_t)e.atom * (s.n_hidden + PAINN_TRAIN_TERM_PAD) + e.f,
                    seed * activation(s.activation, z) + slope * sum);
            }
            return bar;
        }
        const numbers<N> value = sum + z, bar = operands<PARTS>(O2 * activation_slope(s.activation, value));
        term = O2 * activation(s.activation, value);
        if (e.there) {
            put(s.z.value + at, value);
            put(s.z_bar.value + at, bar);
        }
        return bar;
    }
};

/* An atom's energy from the sum of its terms; of tangents, the gradient of the readout's last bias. By one thread. */
template <int TANGENT, class Step> static __device__ __forceinline__ void write_energy(const Step &s, int atom, float sum)
{
    if (TANGENT)
        s.readout_term[(size_t)atom * (s.n_hidden + PAINN_TRAIN_TERM_PAD) + s.n_hidden] = s.c[atom];
    else
        s.atom_energy[atom] = s.weights.base[s.weights.o2] + sum;
}

#endif
