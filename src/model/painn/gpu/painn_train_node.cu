// SPDX-License-Identifier: MIT
// painn_train_node.cu: what happens at atoms in a training step: message network, update and readout, their way back, and the
// tangents of all of them.
//
//   message network   h = q W1ᵀ + b1 ; x = act(h) W2ᵀ + b2
//   update            [V|B] = μ' Uᵀ ; n = √(Σ V² + ε) ; t = Σ V∘B ; g = [q'|n] M1ᵀ + c1 ; y = act(g) M2ᵀ + c2
//                     q'' = q' + yq + yt∘t ; μ'' = μ' + yμ∘B
//   and backwards     s̄ = ȳ M2 ; ḡ = s̄∘act'(g) ; [p̄|n̄] = ḡ M1 ; μ̄' = μ̄ + [V̄|B̄] U ; ā = x̄ W2 ; h̄ = ā∘act'(h) ; q̄ = q̄' + h̄ W1
// Two matrix products follow one another in most kernels: a block has a tile of atoms whose rows stand in shared memory, and
// makes the first product's rows whole; of the second one it makes the columns of its slice. Few atoms have small tiles and
// many slices, which repeat the first product. Bound by the tensor cores and by weights read from the L2 cache.
#include "gpu/train/tf32_product.cuh"
#include "painn_train_math.cuh"

enum { VECTOR_ATOMS = 16 };

typedef struct node_step {
    painn_train_step s;
    int32_t l, slices;
} node_step;

// Threads of a block: one warp for each 16 features.
static __device__ __forceinline__ int warp_of()
{
    return (int)threadIdx.x / 32;
}

// ---- tiles --------------------------------------------------------------------------------------------------------------

// Rows `first` … of `from` [n][width] into shared memory; rows from n on are zeros.
static __device__ __forceinline__ void load_rows(const float *from, int first, int n_rows, int n, int width, float *to)
{
    const int stride = width + TF32_ROW_PAD, pieces = width / 4;
    for (int k = (int)threadIdx.x; k < n_rows * pieces; k += (int)blockDim.x) {
        const int row = k / pieces, c = k % pieces * 4;
        *(float4 *)(to + row * stride + c) =
            first + row < n ? *(const float4 *)(from + (size_t)(first + row) * width + c) : make_float4(0, 0, 0, 0);
    }
}

// Runs the statements for each sum[m][c][…][e] of a lane, with its `row` of the tile and its `column` from n0 on.
#define EACH_SUM(MT, NC, NB, ...)                                                                                                \
    do {                                                                                                                         \
        const int lane_ = (int)threadIdx.x % 32;                                                                                 \
        _Pragma("unroll") for (int m = 0; m < MT; m++) _Pragma("unroll") for (int c = 0; c < NC; c++)                            \
            _Pragma("unroll") for (int e = 0; e < 4; e++)                                                                        \
        {                                                                                                                        \
            const int row = 16 * m + lane_ / 4 + e / 2 * 8, column = 8 * c + lane_ % 4 * 2 + e % 2;                              \
            __VA_ARGS__                                                                                                          \
        }                                                                                                                        \
    } while (0)

// ---- forward ------------------------------------------------------------------------------------------------------------

template <int PARTS, int MT, int TANGENT> static __global__ void message_net(node_step step)
{
    DYNAMIC_SHARED(memory);
    wait_for_previous();
    let_next_start();
    const painn_train_step &s = step.s;
    const int F = s.n_features, n = s.call->n_atoms, l = step.l, tile = (int)blockIdx.x / step.slices;
    const int slice = (int)blockIdx.x % step.slices, first = tile * 16 * MT, stride = F + TF32_ROW_PAD;
    if (first >= n) return;
    const float *w = s.weights.base;
    const painn_train_layer &L = s.layer[l];
    float *rows = (float *)memory, *hidden = rows + 16 * MT * stride;
    load_rows(TANGENT ? s.q[l].tangent : s.q[l].value, first, 16 * MT, n, F, rows);
    __syncthreads();
    {
        const int n0 = 16 * warp_of();
        float sum[MT][2][1][4] = {};
        tf32_tile<PARTS, MT, 2, 1, true>(rows, stride, F, w + s.weights.layer[l].W1, F, n0, 0, sum);
        EACH_SUM(MT, 2, 1, {
            const int f = n0 + column;
            const size_t at = (size_t)(first + row) * F + f;
            float a = 0;
            if (first + row < n) {
                if (TANGENT) {
                    a = activation_slope(s.activation, L.h.value[at]) * sum[m][c][0][e];
                    if (slice == 0) {
                        L.h.tangent[at] = sum[m][c][0][e];
                        L.a.tangent[at] = a;
                    }
                } else {
                    const float h = sum[m][c][0][e] + w[s.weights.layer[l].b1 + f];
                    a = activation(s.activation, h);
                    if (slice == 0) {
                        L.h.value[at] = h;
                        L.a.value[at] = a;
                    }
                }
            }
            hidden[row * stride + f] = a;
        });
    }
    __syncthreads();
    for (int unit = slice + step.slices * warp_of(); unit < F / 8; unit += step.slices * (int)(blockDim.x / 32)) {
        float sum[MT][1][3][4] = {};
        tf32_tile<PARTS, MT, 1, 3, true>(hidden, stride, F, w + s.weights.layer[l].W2, F, 8 * unit, F, sum);
        EACH_SUM(MT, 1, 3, {
            if (first + row < n)
                for (int b = 0; b < 3; b++) {
                    const int f = b * F + 8 * unit + column;
                    const size_t at = (size_t)(first + row) * 3 * F + f;
                    if (TANGENT)
                        L.x.tangent[at] = sum[m][c][b][e];
                    else
                        L.x.value[at] = sum[m][c][b][e] + w[s.weights.layer[l].b2 + f];
                }
        });
    }
}

// Rows of a tile: axis, then atom, so that a lane has all three axes of its sums.
static __device__ __forceinline__ void load_vectors(const float *from, int first, int n, int width, float *to)
{
    const int stride = width + TF32_ROW_PAD, pieces = width / 4;
    for (int k = (int)threadIdx.x; k < 3 * VECTOR_ATOMS * pieces; k += (int)blockDim.x) {
        const int row = k / pieces, c = k % pieces * 4, atom = first + row % VECTOR_ATOMS, axis = row / VECTOR_ATOMS;
        *(float4 *)(to + row * stride + c) =
            atom < n ? *(const float4 *)(from + ((size_t)atom * 3 + axis) * width + c) : make_float4(0, 0, 0, 0);
    }
}

template <int PARTS, int TANGENT> static __global__ void update_vector(node_step step)
{
    DYNAMIC_SHARED(memory);
    wait_for_previous();
    let_next_start();
    const painn_train_step &s = step.s;
    const int F = s.n_features, n = s.call->n_atoms, l = step.l, tile = (int)blockIdx.x / step.slices;
    const int slice = (int)blockIdx.x % step.slices, first = tile * VECTOR_ATOMS, stride = F + TF32_ROW_PAD;
    if (first >= n) return;
    const painn_train_layer &L = s.layer[l];
    float *rows = (float *)memory;
    load_vectors(TANGENT ? L.mu1.tangent : L.mu1.value, first, n, F, rows);
    __syncthreads();
    for (int unit = slice + step.slices * warp_of(); unit < F / 8; unit += step.slices * (int)(blockDim.x / 32)) {
        float sum[3][1][2][4] = {};
        tf32_tile<PARTS, 3, 1, 2, true>(rows, stride, F, s.weights.base + s.weights.layer[l].U, F, 8 * unit, F, sum);
        EACH_SUM(1, 1, 2, {
            const int atom = first + row, f = 8 * unit + column;
            if (atom >= n) continue;
            float norm = TANGENT ? 0.0f : s.epsilon, t = 0;
            for (int axis = 0; axis < 3; axis++) {
                const size_t at = ((size_t)atom * 3 + axis) * 2 * F + f;
                const float V = sum[axis + m][c][0][e], B = sum[axis + m][c][1][e];
                if (TANGENT) {
                    const float V0 = L.VB.value[at], B0 = L.VB.value[at + F];
                    L.VB.tangent[at] = V;
                    L.VB.tangent[at + F] = B;
                    norm += V0 * V;
                    t += V * B0 + V0 * B;
                } else {
                    L.VB.value[at] = V;
                    L.VB.value[at + F] = B;
                    norm += V * V;
                    t += V * B;
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
        });
    }
}

template <int PARTS, int MT, int TANGENT> static __global__ void update_net(node_step step)
{
    DYNAMIC_SHARED(memory);
    wait_for_previous();
    let_next_start();
    const painn_train_step &s = step.s;
    const int F = s.n_features, n = s.call->n_atoms, l = step.l, tile = (int)blockIdx.x / step.slices;
    const int slice = (int)blockIdx.x % step.slices, first = tile * 16 * MT;
    const int wide = 2 * F + TF32_ROW_PAD, stride = F + TF32_ROW_PAD;
    if (first >= n) return;
    const float *w = s.weights.base;
    const painn_train_layer &L = s.layer[l];
    float *rows = (float *)memory, *hidden = rows + 16 * MT * wide;
    load_rows(TANGENT ? L.context.tangent : L.context.value, first, 16 * MT, n, 2 * F, rows);
    __syncthreads();
    {
        const int n0 = 16 * warp_of();
        float sum[MT][2][1][4] = {};
        tf32_tile<PARTS, MT, 2, 1, true>(rows, wide, 2 * F, w + s.weights.layer[l].M1, 2 * F, n0, 0, sum);
        EACH_SUM(MT, 2, 1, {
            const int f = n0 + column;
            const size_t at = (size_t)(first + row) * F + f;
            float a = 0;
            if (first + row < n) {
                if (TANGENT) {
                    a = activation_slope(s.activation, L.g.value[at]) * sum[m][c][0][e];
                    if (slice == 0) {
                        L.g.tangent[at] = sum[m][c][0][e];
                        L.s.tangent[at] = a;
                    }
                } else {
                    const float g = sum[m][c][0][e] + w[s.weights.layer[l].c1 + f];
                    a = activation(s.activation, g);
                    if (slice == 0) {
                        L.g.value[at] = g;
                        L.s.value[at] = a;
                    }
                }
            }
            hidden[row * stride + f] = a;
        });
    }
    __syncthreads();
    for (int unit = slice + step.slices * warp_of(); unit < F / 8; unit += step.slices * (int)(blockDim.x / 32)) {
        float sum[MT][1][3][4] = {};
        tf32_tile<PARTS, MT, 1, 3, true>(hidden, stride, F, w + s.weights.layer[l].M2, F, 8 * unit, F, sum);
        EACH_SUM(MT, 1, 3, {
            const int f = 8 * unit + column, atom = first + row;
            if (atom >= n) continue;
            const size_t at = (size_t)atom * F + f, at_y = (size_t)atom * 3 * F + f;
            const float *bias = w + s.weights.layer[l].c2 + f;
            const float yq = sum[m][c][0][e] + (TANGENT ? 0.0f : bias[0]), ym = sum[m][c][1][e] + (TANGENT ? 0.0f : bias[F]);
            const float yt = sum[m][c][2][e] + (TANGENT ? 0.0f : bias[2 * F]);
            const float q1 = rows[row * wide + f];
            if (TANGENT) {
                const float ym0 = L.y.value[at_y + F], yt0 = L.y.value[at_y + 2 * F];
                L.y.tangent[at_y + F] = ym;
                L.y.tangent[at_y + 2 * F] = yt;
                s.q[l + 1].tangent[at] = q1 + yq + yt * L.t.value[at] + yt0 * L.t.tangent[at];
                for (int axis = 0; axis < 3 && l + 1 < s.n_layers; axis++) { // the last μ is not used
                    const size_t to = ((size_t)atom * 3 + axis) * F + f, from = ((size_t)atom * 3 + axis) * 2 * F + F + f;
                    s.mu[l + 1].tangent[to] = L.mu1.tangent[to] + ym * L.VB.value[from] + ym0 * L.VB.tangent[from];
                }
            } else {
                L.y.value[at_y + F] = ym;
                L.y.value[at_y + 2 * F] = yt;
                s.q[l + 1].value[at] = q1 + yq + yt * L.t.value[at];
                for (int axis = 0; axis < 3 && l + 1 < s.n_layers; axis++) { // the last μ is not used
                    const size_t to = ((size_t)atom * 3 + axis) * F + f, from = ((size_t)atom * 3 + axis) * 2 * F + F + f;
                    s.mu[l + 1].value[to] = L.mu1.value[to] + ym * L.VB.value[from];
                }
            }
        });
    }
}

// ---- readout ------------------------------------------------------------------------------------------------------------

// ε = act(q O1ᵀ + o1)·O2 + o2 and its adjoint q̄, seeded 1; of tangents, seeded c.
template <int PARTS, int MT, int TANGENT> static __global__ void readout(node_step step)
{
    DYNAMIC_SHARED(memory);
    wait_for_previous();
    let_next_start();
    const painn_train_step &s = step.s;
    const int F = s.n_features, H = s.n_hidden, n = s.call->n_atoms, l = s.n_layers, tile = (int)blockIdx.x / step.slices;
    const int slice = (int)blockIdx.x % step.slices, first = tile * 16 * MT;
    const int stride = F + TF32_ROW_PAD, narrow = H + TF32_ROW_PAD;
    if (first >= n) return;
    const float *w = s.weights.base;
    float *rows = (float *)memory, *hidden = rows + 16 * MT * stride, *terms = hidden + 16 * MT * narrow;
    load_rows(TANGENT ? s.q[l].tangent : s.q[l].value, first, 16 * MT, n, F, rows);
    __syncthreads();
    for (int unit = warp_of(); unit < H / 8; unit += (int)blockDim.x / 32) {
        float sum[MT][1][1][4] = {};
        tf32_tile<PARTS, MT, 1, 1, true>(rows, stride, F, w + s.weights.O1, F, 8 * unit, 0, sum);
        EACH_SUM(MT, 1, 1, {
            const int f = 8 * unit + column, atom = first + row;
            const size_t at = (size_t)atom * H + f;
            const float O2 = w[s.weights.O2 + f];
            float bar = 0, term = 0;
            if (atom < n) {
                if (TANGENT) {
                    const float z = s.z.value[at], moved = sum[m][c][0][e], slope = activation_slope(s.activation, z);
                    bar = O2 * (s.c[atom] * slope + activation_second(s.activation, z) * moved);
                    if (slice == 0) {
                        s.z.tangent[at] = moved;
                        s.z_bar.tangent[at] = bar;
                        s.readout_term[(size_t)atom * (H + PAINN_TRAIN_TERM_PAD) + f] =
                            s.c[atom] * activation(s.activation, z) + slope * moved;
                    }
                } else {
                    const float z = sum[m][c][0][e] + w[s.weights.o1 + f];
                    bar = O2 * activation_slope(s.activation, z);
                    term = O2 * activation(s.activation, z);
                    if (slice == 0) {
                        s.z.value[at] = z;
                        s.z_bar.value[at] = bar;
                    }
                }
            }
            hidden[row * narrow + f] = bar;
            if (!TANGENT) terms[row * narrow + f] = term;
        });
    }
    __syncthreads();
    if (!TANGENT && slice == 0)
        for (int row = (int)threadIdx.x; row < 16 * MT && first + row < n; row += (int)blockDim.x) {
            float energy = w[s.weights.o2];
            for (int f = 0; f < H; f++) energy += terms[row * narrow + f];
            s.atom_energy[first + row] = energy;
        }
    if (TANGENT && slice == 0)
        for (int row = (int)threadIdx.x; row < 16 * MT && first + row < n; row += (int)blockDim.x)
            s.readout_term[(size_t)(first + row) * (H + PAINN_TRAIN_TERM_PAD) + H] = s.c[first + row];
    for (int unit = slice + step.slices * warp_of(); unit < F / 8; unit += step.slices * (int)(blockDim.x / 32)) {
        float sum[MT][1][1][4] = {};
        tf32_tile<PARTS, MT, 1, 1, false>(hidden, narrow, H, w + s.weights.O1, F, 8 * unit, 0, sum);
        float *q_bar = TANGENT ? s.q_bar[l].tangent : s.q_bar[l].value;
        EACH_SUM(MT, 1, 1, {
            if (first + row < n) q_bar[(size_t)(first + row) * F + 8 * unit + column] = sum[m][c][0][e];
        });
    }
}

// ---- backward -----------------------------------------------------------------------------------------------------------

// ȳ = [q̄ | Σ μ̄_c∘B_c | q̄∘t] or its tangent, into shared memory, and by the first slice into memory.
template <int TANGENT>
static __device__ __forceinline__ void load_y_bar(const painn_train_step &s, int l, int first, int n_rows, int n, bool keep,
                                                  float *to)
{
    const int F = s.n_features, stride = 3 * F + TF32_ROW_PAD;
    const painn_train_layer &L = s.layer[l];
    for (int k = (int)threadIdx.x; k < n_rows * F; k += (int)blockDim.x) {
        const int row = k / F, f = k % F, atom = first + row;
        float yq = 0, ym = 0, yt = 0;
        if (atom < n) {
            const size_t at = (size_t)atom * F + f;
            const float q0 = s.q_bar[l + 1].value[at];
            if (TANGENT) {
                yq = s.q_bar[l + 1].tangent[at];
                yt = yq * L.t.value[at] + q0 * L.t.tangent[at];
            } else {
                yq = q0;
                yt = q0 * L.t.value[at];
            }
            if (l + 1 < s.n_layers)
                for (int axis = 0; axis < 3; axis++) {
                    const size_t from = ((size_t)atom * 3 + axis) * F + f, B = ((size_t)atom * 3 + axis) * 2 * F + F + f;
                    const float mu0 = s.mu_bar[l + 1].value[from];
                    ym += TANGENT ? s.mu_bar[l + 1].tangent[from] * L.VB.value[B] + mu0 * L.VB.tangent[B] : mu0 * L.VB.value[B];
                }
            if (keep) {
                float *y_bar = (TANGENT ? L.y_bar.tangent : L.y_bar.value) + (size_t)atom * 3 * F + f;
                y_bar[0] = yq;
                y_bar[F] = ym;
                y_bar[2 * F] = yt;
            }
        }
        to[row * stride + f] = yq;
        to[row * stride + F + f] = ym;
        to[row * stride + 2 * F + f] = yt;
    }
}

// [V̄|B̄] and q̄' of one atom and feature, from p̄ and n̄.
template <int TANGENT>
static __device__ __forceinline__ void norm_back(const painn_train_step &s, int l, int atom, int f, float p, float norm_bar)
{
    const int F = s.n_features;
    const painn_train_layer &L = s.layer[l];
    const size_t at = (size_t)atom * F + f, at_y = (size_t)atom * 3 * F + f, at_norm = (size_t)atom * 2 * F + F + f;
    const float q0 = s.q_bar[l + 1].value[at], ym0 = L.y.value[at_y + F], yt0 = L.y.value[at_y + 2 * F];
    const float t0 = q0 * yt0, norm = L.context.value[at_norm];
    float q1, k, k0 = 0, ym1 = 0, t1 = 0;
    if (TANGENT) {
        const float q = s.q_bar[l + 1].tangent[at];
        q1 = q + p;
        k0 = L.k[at];
        k = (norm_bar - k0 * L.context.tangent[at_norm]) / norm;
        ym1 = L.y.tangent[at_y + F];
        t1 = q * yt0 + q0 * L.y.tangent[at_y + 2 * F];
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

template <int PARTS, int MT, int TANGENT> static __global__ void update_net_back(node_step step)
{
    DYNAMIC_SHARED(memory);
    wait_for_previous();
    let_next_start();
    const painn_train_step &s = step.s;
    const int F = s.n_features, n = s.call->n_atoms, l = step.l, tile = (int)blockIdx.x / step.slices;
    const int slice = (int)blockIdx.x % step.slices, first = tile * 16 * MT;
    const int wide = 3 * F + TF32_ROW_PAD, stride = F + TF32_ROW_PAD;
    if (first >= n) return;
    const float *w = s.weights.base;
    const painn_train_layer &L = s.layer[l];
    float *rows = (float *)memory, *hidden = rows + 16 * MT * wide;
    load_y_bar<TANGENT>(s, l, first, 16 * MT, n, slice == 0, rows);
    __syncthreads();
    {
        const int n0 = 16 * warp_of();
        float sum[MT][2][1][4] = {};
        tf32_tile<PARTS, MT, 2, 1, false>(rows, wide, 3 * F, w + s.weights.layer[l].M2, F, n0, 0, sum);
        EACH_SUM(MT, 2, 1, {
            const int f = n0 + column;
            const size_t at = (size_t)(first + row) * F + f;
            float bar = 0;
            if (first + row < n) {
                const float g = L.g.value[at], slope = activation_slope(s.activation, g);
                if (TANGENT)
                    bar = sum[m][c][0][e] * slope + L.s_bar[at] * activation_second(s.activation, g) * L.g.tangent[at];
                else
                    bar = sum[m][c][0][e] * slope;
                if (slice == 0) {
                    (TANGENT ? L.g_bar.tangent : L.g_bar.value)[at] = bar;
                    if (!TANGENT) L.s_bar[at] = sum[m][c][0][e];
                }
            }
            hidden[row * stride + f] = bar;
        });
    }
    __syncthreads();
    for (int unit = slice + step.slices * warp_of(); unit < F / 8; unit += step.slices * (int)(blockDim.x / 32)) {
        float sum[MT][1][2][4] = {};
        tf32_tile<PARTS, MT, 1, 2, false>(hidden, stride, F, w + s.weights.layer[l].M1, 2 * F, 8 * unit, F, sum);
        EACH_SUM(MT, 1, 2, {
            if (first + row < n) norm_back<TANGENT>(s, l, first + row, 8 * unit + column, sum[m][c][0][e], sum[m][c][1][e]);
        });
    }
}

template <int PARTS, int TANGENT> static __global__ void update_vector_back(node_step step)
{
    DYNAMIC_SHARED(memory);
    wait_for_previous();
    let_next_start();
    const painn_train_step &s = step.s;
    const int F = s.n_features, n = s.call->n_atoms, l = step.l, tile = (int)blockIdx.x / step.slices;
    const int slice = (int)blockIdx.x % step.slices, first = tile * VECTOR_ATOMS, wide = 2 * F + TF32_ROW_PAD;
    if (first >= n) return;
    const painn_train_layer &L = s.layer[l];
    float *rows = (float *)memory;
    load_vectors(TANGENT ? L.VB_bar.tangent : L.VB_bar.value, first, n, 2 * F, rows);
    __syncthreads();
    const float *mu_bar = TANGENT ? s.mu_bar[l + 1].tangent : s.mu_bar[l + 1].value;
    float *mu1_bar = TANGENT ? L.mu1_bar.tangent : L.mu1_bar.value;
    for (int unit = slice + step.slices * warp_of(); unit < F / 8; unit += step.slices * (int)(blockDim.x / 32)) {
        float sum[3][1][1][4] = {};
        tf32_tile<PARTS, 3, 1, 1, false>(rows, wide, 2 * F, s.weights.base + s.weights.layer[l].U, F, 8 * unit, 0, sum);
        EACH_SUM(1, 1, 1, {
            for (int axis = 0; axis < 3 && first + row < n; axis++) {
                const size_t at = ((size_t)(first + row) * 3 + axis) * F + 8 * unit + column;
                mu1_bar[at] = sum[axis + m][c][0][e] + (l + 1 < s.n_layers ? mu_bar[at] : 0.0f);
            }
        });
    }
}

template <int PARTS, int MT, int TANGENT> static __global__ void message_net_back(node_step step)
{
    DYNAMIC_SHARED(memory);
    wait_for_previous();
    let_next_start();
    const painn_train_step &s = step.s;
    const int F = s.n_features, n = s.call->n_atoms, l = step.l, tile = (int)blockIdx.x / step.slices;
    const int slice = (int)blockIdx.x % step.slices, first = tile * 16 * MT;
    const int wide = 3 * F + TF32_ROW_PAD, stride = F + TF32_ROW_PAD;
    if (first >= n) return;
    const float *w = s.weights.base;
    const painn_train_layer &L = s.layer[l];
    float *rows = (float *)memory, *hidden = rows + 16 * MT * wide;
    load_rows(TANGENT ? L.x_bar.tangent : L.x_bar.value, first, 16 * MT, n, 3 * F, rows);
    __syncthreads();
    {
        const int n0 = 16 * warp_of();
        float sum[MT][2][1][4] = {};
        tf32_tile<PARTS, MT, 2, 1, false>(rows, wide, 3 * F, w + s.weights.layer[l].W2, F, n0, 0, sum);
        EACH_SUM(MT, 2, 1, {
            const int f = n0 + column;
            const size_t at = (size_t)(first + row) * F + f;
            float bar = 0;
            if (first + row < n) {
                const float h = L.h.value[at], slope = activation_slope(s.activation, h);
                if (TANGENT)
                    bar = sum[m][c][0][e] * slope + L.a_bar[at] * activation_second(s.activation, h) * L.h.tangent[at];
                else
                    bar = sum[m][c][0][e] * slope;
                if (slice == 0) {
                    (TANGENT ? L.h_bar.tangent : L.h_bar.value)[at] = bar;
                    if (!TANGENT) L.a_bar[at] = sum[m][c][0][e];
                }
            }
            hidden[row * stride + f] = bar;
        });
    }
    __syncthreads();
    const float *q1_bar = TANGENT ? L.q1_bar.tangent : L.q1_bar.value;
    float *q_bar = TANGENT ? s.q_bar[l].tangent : s.q_bar[l].value;
    for (int unit = slice + step.slices * warp_of(); unit < F / 8; unit += step.slices * (int)(blockDim.x / 32)) {
        float sum[MT][1][1][4] = {};
        tf32_tile<PARTS, MT, 1, 1, false>(hidden, stride, F, w + s.weights.layer[l].W1, F, 8 * unit, 0, sum);
        EACH_SUM(MT, 1, 1, {
            const size_t at = (size_t)(first + row) * F + 8 * unit + column;
            if (first + row < n) q_bar[at] = q1_bar[at] + sum[m][c][0][e];
        });
    }
}

// ---- launches -----------------------------------------------------------------------------------------------------------

enum { SMALL_TILES = 1, LARGE_TILES = 2 };

// Slices of a tile's columns such that all blocks together fill the GPU once.
static int slices_of(const painn_train_step *step, const painn_train_plan *plan, int tile_atoms)
{
    const int tiles = (plan->n_atoms + tile_atoms - 1) / tile_atoms, most = step->n_features / 8;
    int slices = 1;
    while (2 * slices <= most && tiles * 2 * slices <= 2 * plan->n_multiprocessors) slices *= 2;
    return slices;
}

typedef void (*node_kernel)(node_step);

static int launch_node(const painn_train_step *step, const painn_train_plan *plan, int l, int tile_atoms, size_t shared_bytes,
                       node_kernel kernel, void *stream)
{
    const int slices = slices_of(step, plan, tile_atoms), tiles = (plan->n_atoms + tile_atoms - 1) / tile_atoms;
    const node_step node = {*step, l, slices};
    return launch(kernel, tiles * slices, 2 * step->n_features, shared_bytes, 1, plan->overlap, stream, node);
}

#define KERNEL_OF(name, parts, tangent, ...)                                                                                     \
    ((parts) == 3 ? ((tangent) ? name<3, ##__VA_ARGS__, 1> : name<3, ##__VA_ARGS__, 0>)                                          \
                  : ((tangent) ? name<1, ##__VA_ARGS__, 1> : name<1, ##__VA_ARGS__, 0>))
#define TILED_KERNEL_OF(name, parts, tangent, small)                                                                             \
    ((small) ? KERNEL_OF(name, parts, tangent, SMALL_TILES) : KERNEL_OF(name, parts, tangent, LARGE_TILES))

enum { MESSAGE_NET, UPDATE_VECTOR, UPDATE_NET, READOUT, UPDATE_NET_BACK, UPDATE_VECTOR_BACK, MESSAGE_NET_BACK, NODE_KERNELS };

static node_kernel kernel_of(int which, int parts, int tangent, int small)
{
    switch (which) {
    case MESSAGE_NET: return TILED_KERNEL_OF(message_net, parts, tangent, small);
    case UPDATE_VECTOR: return KERNEL_OF(update_vector, parts, tangent);
    case UPDATE_NET: return TILED_KERNEL_OF(update_net, parts, tangent, small);
    case READOUT: return TILED_KERNEL_OF(readout, parts, tangent, small);
    case UPDATE_NET_BACK: return TILED_KERNEL_OF(update_net_back, parts, tangent, small);
    case UPDATE_VECTOR_BACK: return KERNEL_OF(update_vector_back, parts, tangent);
    default: return TILED_KERNEL_OF(message_net_back, parts, tangent, small);
    }
}

static int tile_of(int which, int small)
{
    return which == UPDATE_VECTOR || which == UPDATE_VECTOR_BACK ? VECTOR_ATOMS : 16 * (small ? SMALL_TILES : LARGE_TILES);
}

static size_t shared_of(const painn_train_step *step, int which, int small)
{
    const int F = step->n_features, atoms = tile_of(which, small), pad = TF32_ROW_PAD;
    int floats = 0;
    switch (which) {
    case MESSAGE_NET: floats = 2 * (F + pad); break;
    case UPDATE_VECTOR: floats = 3 * (F + pad); break;
    case UPDATE_NET: floats = 3 * F + 2 * pad; break;
    case READOUT: floats = F + pad + 2 * (step->n_hidden + pad); break;
    case UPDATE_VECTOR_BACK: floats = 3 * (2 * F + pad); break;
    default: floats = 4 * F + 2 * pad; break;
    }
    return sizeof(float) * (size_t)floats * (size_t)atoms;
}

static int launch_which(const painn_train_step *step, const painn_train_plan *plan, int which, int l, int tangent, void *stream)
{
    return launch_node(step, plan, l, tile_of(which, plan->small), shared_of(step, which, plan->small),
                       kernel_of(which, plan->parts, tangent, plan->small), stream);
}

extern "C" int painn_train_prepare(const painn_train_step *step, size_t shared_bytes)
{
    for (int which = 0; which < NODE_KERNELS; which++)
        for (int k = 0; k < 8; k++) {
            const size_t bytes = shared_of(step, which, k & 1);
            if (bytes > shared_bytes) continue; // large tiles are not used then
            cudaError_t error = cudaFuncSetAttribute(kernel_of(which, k & 2 ? 3 : 1, k & 4, k & 1),
                                                     cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
            if (error != cudaSuccess) return error;
        }
    return cudaSuccess;
}

extern "C" int painn_train_launch_message_net(const painn_train_step *step, const painn_train_plan *plan, int l, int tangent,
                                              void *stream)
{
    return launch_which(step, plan, MESSAGE_NET, l, tangent, stream);
}

extern "C" int painn_train_launch_update_vector(const painn_train_step *step, const painn_train_plan *plan, int l, int tangent,
                                                void *stream)
{
    return launch_which(step, plan, UPDATE_VECTOR, l, tangent, stream);
}

extern "C" int painn_train_launch_update_net(const painn_train_step *step, const painn_train_plan *plan, int l, int tangent,
                                             void *stream)
{
    return launch_which(step, plan, UPDATE_NET, l, tangent, stream);
}

extern "C" int painn_train_launch_readout(const painn_train_step *step, const painn_train_plan *plan, int tangent, void *stream)
{
    return launch_which(step, plan, READOUT, 0, tangent, stream);
}

extern "C" int painn_train_launch_update_net_back(const painn_train_step *step, const painn_train_plan *plan, int l, int tangent,
                                                  void *stream)
{
    return launch_which(step, plan, UPDATE_NET_BACK, l, tangent, stream);
}

extern "C" int painn_train_launch_update_vector_back(const painn_train_step *step, const painn_train_plan *plan, int l,
                                                     int tangent, void *stream)
{
    return launch_which(step, plan, UPDATE_VECTOR_BACK, l, tangent, stream);
}

extern "C" int painn_train_launch_message_net_back(const painn_train_step *step, const painn_train_plan *plan, int l, int tangent,
                                                   void *stream)
{
    return launch_which(step, plan, MESSAGE_NET_BACK, l, tangent, stream);
}
