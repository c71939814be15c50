// SPDX-License-Identifier: MIT
// painn_train_node.cu: what happens at atoms of a small batch in a training step: message network, update and readout, their way back,
// and the tangents of all of them (painn_train_node.cuh).
//
// Two matrix products follow one another in most kernels: a block has a tile of 16 atoms whose rows stand in shared memory, makes the
// first product's rows whole, and of the second one the columns of its slice, each warp some of the terms. Few atoms have many
// slices, which repeat the first product. Bound by latency: weights are requested before the previous kernel ends.
#include "painn_train_node.cuh"

enum { TILE = 16 };

static __device__ __forceinline__ int warp_of()
{
    return (int)threadIdx.x / 32;
}

// ---- tiles --------------------------------------------------------------------------------------------------------------

// Rows first … first + 15 of `from` [n][width] into shared memory; rows from n on are zeros.
static __device__ __forceinline__ void load_rows(const float *from, int first, int n, int width, float *to)
{
    const int stride = width + TF32_ROW_PAD, pieces = width / 4;
    for (int k = (int)threadIdx.x; k < TILE * pieces; k += (int)blockDim.x) {
        const int row = k / pieces, c = k % pieces * 4;
        *(float4 *)(to + row * stride + c) =
            first + row < n ? *(const float4 *)(from + (size_t)(first + row) * width + c) : make_float4(0, 0, 0, 0);
    }
}

// The same of vectors. Rows of a tile: axis, then atom, so that a lane has all three axes of its sums.
static __device__ __forceinline__ void load_vectors(const float *from, int first, int n, int width, float *to)
{
    const int stride = width + TF32_ROW_PAD, pieces = width / 4;
    for (int k = (int)threadIdx.x; k < 3 * TILE * pieces; k += (int)blockDim.x) {
        const int row = k / pieces, c = k % pieces * 4, atom = first + row % TILE, axis = row / TILE;
        *(float4 *)(to + row * stride + c) =
            atom < n ? *(const float4 *)(from + ((size_t)atom * 3 + axis) * width + c) : make_float4(0, 0, 0, 0);
    }
}

// Reads rows n0 … n0 + n_rows − 1 of weights, `depth` floats each, into the L1 cache. By a block.
static __device__ __forceinline__ float read_rows(const float *w, int depth, int n0, int n_rows)
{
    const float *from = w + (size_t)n0 * depth;
    float sum = 0;
#pragma unroll 4
    for (int k = (int)threadIdx.x * 32; k < n_rows * depth; k += (int)blockDim.x * 32) sum += read_early(from + k);
    return sum;
}

// A slice's columns: `block` floats between its parts' columns in the same row of results.
struct sliced {
    int first, n; // features
};
static __device__ __forceinline__ sliced slice_of(const node_step &step)
{
    const int n = step.s.n_features / step.slices;
    return {(int)blockIdx.x % step.slices * n, n};
}

// Into `part` [splits][16 MT][NB n + 4]: the products of rows in shared memory with the slice's rows of each of NB blocks of `w`,
// by units of 8 columns and, where there are more warps than units, splits of the terms. Returns the splits.
template <int PARTS, int MT, int NB>
static __device__ __forceinline__ int sliced_product(const float *rows, int stride, int depth, const float *w, int block,
                                                     const sliced &slice, float *part)
{
    const int warps = (int)blockDim.x / 32, units = slice.n / 8, splits = units < warps ? warps / units : 1;
    const int split_depth = depth / splits, width = NB * slice.n + 4;
    for (int k = warp_of(); k < units * splits; k += warps) {
        const int unit = k % units, split = k / units;
        float sum[MT][1][NB][4] = {};
        tf32_tile<PARTS, MT, 1, NB>(rows + split * split_depth, stride, split_depth, w + split * split_depth, depth,
                                    slice.first + 8 * unit, block, sum);
        float *to = part + (size_t)split * 16 * MT * width + 8 * unit;
        EACH_SUM(MT, 1, {
            for (int b = 0; b < NB; b++) to[row * width + b * slice.n + column] = sum[m][c][b][e];
        });
    }
    return splits;
}

// Sum over the splits of a row and column.
template <int MT>
static __device__ __forceinline__ float sum_of_splits(const float *part, int splits, int width, int row, int column)
{
    float sum = 0;
    for (int k = 0; k < splits; k++) sum += part[(k * 16 * MT + row) * width + column];
    return sum;
}

// First product of a network and its hidden layer, into shared memory [16][F + pad]: 16 columns by each warp.
template <int PARTS, int TANGENT, bool BACK>
static __device__ __forceinline__ void hidden_layer(const painn_train_step &s, const float *rows, int depth, const float *w,
                                                    const painn_dual &h, const painn_dual &to, float *adjoint, const float *bias,
                                                    int first, int n, bool keep, float *hidden)
{
    const int F = s.n_features, stride = F + TF32_ROW_PAD, n0 = 16 * warp_of();
    float sum[1][2][1][4] = {};
    tf32_tile<PARTS, 1, 2, 1>(rows, depth + TF32_ROW_PAD, depth, w, depth, n0, 0, sum);
    EACH_SUM(1, 2, {
        const int f = n0 + column;
        const size_t at = (size_t)(first + row) * F + f;
        float value = 0;
        if (first + row < n)
            value = BACK ? hidden_back<TANGENT>(s.activation, h, to, adjoint, at, sum[m][c][0][e], keep)
                         : hidden_forward<TANGENT>(s.activation, h, to, TANGENT ? 0.0f : bias[f], at, sum[m][c][0][e], keep);
        hidden[row * stride + f] = value;
    });
}

// What a kernel of two products has in shared memory.
struct network_tile {
    sliced slice;
    int first, n; // atoms
    float *rows, *hidden, *part;
};

// Requests the weights of a network's products, F rows of `depth` terms of w1 and the slice's rows of BLOCKS blocks of w2, before it
// waits for the previous kernel. False: the tile has no atoms.
template <int BLOCKS>
static __device__ __forceinline__ bool begin_network(const node_step &step, const float *w1, int depth, const float *w2,
                                                     network_tile &t)
{
    DYNAMIC_SHARED(memory);
    const int F = step.s.n_features;
    t.slice = slice_of(step);
    t.first = (int)blockIdx.x / step.slices * TILE;
    t.rows = (float *)memory;
    t.hidden = t.rows + TILE * (depth + TF32_ROW_PAD);
    t.part = t.hidden + TILE * (F + TF32_ROW_PAD);
    float early = read_rows(w1, depth, 0, F);
    for (int b = 0; b < BLOCKS; b++) early += read_rows(w2, F, b * F + t.slice.first, t.slice.n);
    wait_for_previous();
    let_next_start();
    keep_read(early);
    t.n = step.s.call->n_atoms;
    return t.first < t.n;
}

// Both products, of the rows in shared memory; the sums are in t.part. Returns the splits.
template <int PARTS, int TANGENT, bool BACK, int BLOCKS>
static __device__ __forceinline__ int network(const painn_train_step &s, const network_tile &t, const float *w1, int depth,
                                              const float *w2, const painn_dual &h, const painn_dual &to, float *adjoint,
                                              const float *bias)
{
    const int F = s.n_features;
    __syncthreads();
    hidden_layer<PARTS, TANGENT, BACK>(s, t.rows, depth, w1, h, to, adjoint, bias, t.first, t.n, t.slice.first == 0, t.hidden);
    __syncthreads();
    const int splits = sliced_product<PARTS, 1, BLOCKS>(t.hidden, F + TF32_ROW_PAD, F, w2, F, t.slice, t.part);
    __syncthreads();
    return splits;
}

// Runs the statements for each `atom` of the tile and feature `f` of the slice, with its `row` and `column`.
#define EACH_ELEMENT(first_atom, n_atoms, slice, ...)                                                                            \
    for (int k_ = (int)threadIdx.x; k_ < TILE * (slice).n; k_ += (int)blockDim.x) {                                              \
        const int row = k_ / (slice).n, column = k_ % (slice).n, atom = (first_atom) + row, f = (slice).first + column;          \
        if (atom < (n_atoms)) {                                                                                                  \
            __VA_ARGS__                                                                                                          \
        }                                                                                                                        \
    }

// ---- forward ------------------------------------------------------------------------------------------------------------

template <int PARTS, int TANGENT> static __global__ void __launch_bounds__(256, 2) message_net(node_step step)
{
    const painn_train_step &s = step.s;
    const int F = s.n_features, l = step.l;
    const painn_train_layer &L = s.layer[l];
    const float *W1 = s.weights.base + s.weights.layer[l].W1, *W2 = s.weights.base + s.weights.layer[l].W2;
    network_tile t;
    if (!begin_network<3>(step, W1, F, W2, t)) return;
    load_rows(TANGENT ? s.q[l].tangent : s.q[l].value, t.first, t.n, F, t.rows);
    const int splits = network<PARTS, TANGENT, false, 3>(s, t, W1, F, W2, L.h, L.a, NULL, s.weights.base + s.weights.layer[l].b1);
    const int width = 3 * t.slice.n + 4;
    EACH_ELEMENT(t.first, t.n, t.slice, {
        for (int b = 0; b < 3; b++)
            write_x<TANGENT>(s, l, atom, b * F + f, sum_of_splits<1>(t.part, splits, width, row, b * t.slice.n + column));
    })
}

template <int PARTS, int TANGENT> static __global__ void __launch_bounds__(256, 2) update_vector(node_step step)
{
    DYNAMIC_SHARED(memory);
    const painn_train_step &s = step.s;
    const int F = s.n_features, l = step.l, first = (int)blockIdx.x / step.slices * TILE, stride = F + TF32_ROW_PAD;
    const sliced slice = slice_of(step);
    const float *U = s.weights.base + s.weights.layer[l].U;
    float early = 0;
    for (int b = 0; b < 2; b++) early += read_rows(U, F, b * F + slice.first, slice.n);
    wait_for_previous();
    let_next_start();
    keep_read(early);
    const int n = s.call->n_atoms;
    if (first >= n) return;
    const painn_train_layer &L = s.layer[l];
    float *rows = (float *)memory, *part = rows + 3 * TILE * stride;
    load_vectors(TANGENT ? L.mu1.tangent : L.mu1.value, first, n, F, rows);
    __syncthreads();
    const int splits = sliced_product<PARTS, 3, 2>(rows, stride, F, U, F, slice, part), width = 2 * slice.n + 4;
    __syncthreads();
    EACH_ELEMENT(first, n, slice, {
        float V[3], B[3];
        for (int axis = 0; axis < 3; axis++) {
            V[axis] = sum_of_splits<3>(part, splits, width, axis * TILE + row, column);
            B[axis] = sum_of_splits<3>(part, splits, width, axis * TILE + row, slice.n + column);
        }
        write_vectors<TANGENT>(s, l, atom, f, V, B);
    })
}

template <int PARTS, int TANGENT> static __global__ void __launch_bounds__(256, 2) update_net(node_step step)
{
    const painn_train_step &s = step.s;
    const int F = s.n_features, l = step.l;
    const painn_train_layer &L = s.layer[l];
    const float *M1 = s.weights.base + s.weights.layer[l].M1, *M2 = s.weights.base + s.weights.layer[l].M2;
    network_tile t;
    if (!begin_network<3>(step, M1, 2 * F, M2, t)) return;
    load_rows(TANGENT ? L.context.tangent : L.context.value, t.first, t.n, 2 * F, t.rows);
    const int splits =
        network<PARTS, TANGENT, false, 3>(s, t, M1, 2 * F, M2, L.g, L.s, NULL, s.weights.base + s.weights.layer[l].c1);
    const int width = 3 * t.slice.n + 4;
    EACH_ELEMENT(t.first, t.n, t.slice, {
        float y[3];
        for (int b = 0; b < 3; b++) y[b] = sum_of_splits<1>(t.part, splits, width, row, b * t.slice.n + column);
        write_update<TANGENT>(s, l, atom, f, y);
    })
}

// ---- readout ------------------------------------------------------------------------------------------------------------

// ε = act(q O1ᵀ + o1)·O2 + o2 and its adjoint q̄, seeded 1; of tangents, seeded c. For batches of any size.
template <int PARTS, int TANGENT> static __global__ void __launch_bounds__(256, 2) readout(node_step step)
{
    DYNAMIC_SHARED(memory);
    const painn_train_step &s = step.s;
    const int F = s.n_features, H = s.n_hidden, l = s.n_layers, first = (int)blockIdx.x / step.slices * TILE;
    const int stride = F + TF32_ROW_PAD, narrow = H + TF32_ROW_PAD;
    const sliced slice = slice_of(step);
    const bool keep = slice.first == 0;
    const float *w = s.weights.base, *back = painn_transposed_readout(&s);
    float early = read_rows(w + s.weights.O1, F, 0, H);
    early += read_rows(back, H, slice.first, slice.n);
    wait_for_previous();
    let_next_start();
    keep_read(early);
    const int n = s.call->n_atoms;
    if (first >= n) return;
    float *rows = (float *)memory, *hidden = rows + TILE * stride, *terms = hidden + TILE * narrow;
    load_rows(TANGENT ? s.q[l].tangent : s.q[l].value, first, n, F, rows);
    __syncthreads();
    for (int unit = warp_of(); unit < H / 8; unit += (int)blockDim.x / 32) {
        float sum[1][1][1][4] = {};
        tf32_tile<PARTS, 1, 1, 1>(rows, stride, F, w + s.weights.O1, F, 8 * unit, 0, sum);
        EACH_SUM(1, 1, {
            const int f = 8 * unit + column, atom = first + row;
            const size_t at = (size_t)atom * H + f;
            const float O2 = w[s.weights.O2 + f];
            float bar = 0, term = 0;
            if (atom < n) {
                if (TANGENT) {
                    const float z = s.z.value[at], moved = sum[m][c][0][e], slope = activation_slope(s.activation, z);
                    bar = O2 * (s.c[atom] * slope + activation_second(s.activation, z) * moved);
                    if (keep) {
                        s.z.tangent[at] = moved;
                        s.z_bar.tangent[at] = bar;
                        s.readout_term[(size_t)atom * (H + PAINN_TRAIN_TERM_PAD) + f] =
                            s.c[atom] * activation(s.activation, z) + slope * moved;
                    }
                } else {
                    const float z = sum[m][c][0][e] + w[s.weights.o1 + f];
                    bar = O2 * activation_slope(s.activation, z);
                    term = O2 * activation(s.activation, z);
                    if (keep) {
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
    for (int row = (int)threadIdx.x; keep && row < TILE && first + row < n; row += (int)blockDim.x) {
        if (TANGENT) {
            s.readout_term[(size_t)(first + row) * (H + PAINN_TRAIN_TERM_PAD) + H] = s.c[first + row];
            continue;
        }
        float energy = w[s.weights.o2];
        for (int f = 0; f < H; f++) energy += terms[row * narrow + f];
        s.atom_energy[first + row] = energy;
    }
    for (int unit = warp_of(); unit < slice.n / 8; unit += (int)blockDim.x / 32) {
        float sum[1][1][1][4] = {};
        tf32_tile<PARTS, 1, 1, 1>(hidden, narrow, H, back, H, slice.first + 8 * unit, 0, sum);
        float *q_bar = TANGENT ? s.q_bar[l].tangent : s.q_bar[l].value;
        EACH_SUM(1, 1, {
            if (first + row < n) q_bar[(size_t)(first + row) * F + slice.first + 8 * unit + column] = sum[m][c][0][e];
        });
    }
}

// ---- backward -----------------------------------------------------------------------------------------------------------

template <int PARTS, int TANGENT> static __global__ void __launch_bounds__(256, 2) update_net_back(node_step step)
{
    const painn_train_step &s = step.s;
    const int F = s.n_features, l = step.l, wide = 3 * F + TF32_ROW_PAD;
    const painn_train_layer &L = s.layer[l];
    const float *M2 = painn_transposed(&s, l, PAINN_M2), *M1 = painn_transposed(&s, l, PAINN_M1);
    network_tile t;
    if (!begin_network<2>(step, M2, 3 * F, M1, t)) return;
    for (int k = (int)threadIdx.x; k < TILE * F; k += (int)blockDim.x) {
        const int row = k / F, f = k % F;
        float y[3] = {0, 0, 0};
        if (t.first + row < t.n) make_y_bar<TANGENT>(s, l, t.first + row, f, t.slice.first == 0, y);
        for (int b = 0; b < 3; b++) t.rows[row * wide + b * F + f] = y[b];
    }
    const int splits = network<PARTS, TANGENT, true, 2>(s, t, M2, 3 * F, M1, L.g, L.g_bar, L.s_bar, NULL);
    const int width = 2 * t.slice.n + 4;
    EACH_ELEMENT(t.first, t.n, t.slice, {
        const float p = sum_of_splits<1>(t.part, splits, width, row, column);
        norm_back<TANGENT>(s, l, atom, f, p, sum_of_splits<1>(t.part, splits, width, row, t.slice.n + column));
    })
}

template <int PARTS, int TANGENT> static __global__ void __launch_bounds__(256, 2) update_vector_back(node_step step)
{
    DYNAMIC_SHARED(memory);
    const painn_train_step &s = step.s;
    const int F = s.n_features, l = step.l, first = (int)blockIdx.x / step.slices * TILE, wide = 2 * F + TF32_ROW_PAD;
    const sliced slice = slice_of(step);
    const float *U = painn_transposed(&s, l, PAINN_U);
    float early = read_rows(U, 2 * F, slice.first, slice.n);
    wait_for_previous();
    let_next_start();
    keep_read(early);
    const int n = s.call->n_atoms;
    if (first >= n) return;
    const painn_train_layer &L = s.layer[l];
    float *rows = (float *)memory, *part = rows + 3 * TILE * wide;
    load_vectors(TANGENT ? L.VB_bar.tangent : L.VB_bar.value, first, n, 2 * F, rows);
    __syncthreads();
    const int splits = sliced_product<PARTS, 3, 1>(rows, wide, 2 * F, U, 0, slice, part), width = slice.n + 4;
    __syncthreads();
    EACH_ELEMENT(first, n, slice, {
        float mu[3];
        for (int axis = 0; axis < 3; axis++) mu[axis] = sum_of_splits<3>(part, splits, width, axis * TILE + row, column);
        write_mu1_bar<TANGENT>(s, l, atom, f, mu);
    })
}

template <int PARTS, int TANGENT> static __global__ void __launch_bounds__(256, 2) message_net_back(node_step step)
{
    const painn_train_step &s = step.s;
    const int F = s.n_features, l = step.l;
    const painn_train_layer &L = s.layer[l];
    const float *W2 = painn_transposed(&s, l, PAINN_W2), *W1 = painn_transposed(&s, l, PAINN_W1);
    network_tile t;
    if (!begin_network<1>(step, W2, 3 * F, W1, t)) return;
    load_rows(TANGENT ? L.x_bar.tangent : L.x_bar.value, t.first, t.n, 3 * F, t.rows);
    const int splits = network<PARTS, TANGENT, true, 1>(s, t, W2, 3 * F, W1, L.h, L.h_bar, L.a_bar, NULL);
    const int width = t.slice.n + 4;
    EACH_ELEMENT(t.first, t.n, t.slice,
                 { write_q_bar<TANGENT>(s, l, atom, f, sum_of_splits<1>(t.part, splits, width, row, column)); })
}

// ---- launches -----------------------------------------------------------------------------------------------------------

// Slices of a tile's columns such that all blocks together fill the GPU once.
static int slices_of(const painn_train_step *step, const painn_train_plan *plan)
{
    const int tiles = (plan->n_atoms + TILE - 1) / TILE, most = step->n_features / 8;
    int slices = 1;
    while (2 * slices <= most && tiles * 2 * slices <= 2 * plan->n_multiprocessors) slices *= 2;
    return slices;
}

typedef void (*node_kernel)(node_step);

#define KERNEL_OF(name, parts, tangent)                                                                                          \
    ((parts) == 3 ? ((tangent) ? name<3, 1> : name<3, 0>) : ((tangent) ? name<1, 1> : name<1, 0>))

static node_kernel kernel_of(int which, int parts, int tangent)
{
    switch (which) {
    case PAINN_MESSAGE_NET: return KERNEL_OF(message_net, parts, tangent);
    case PAINN_UPDATE_VECTOR: return KERNEL_OF(update_vector, parts, tangent);
    case PAINN_UPDATE_NET: return KERNEL_OF(update_net, parts, tangent);
    case PAINN_READOUT: return KERNEL_OF(readout, parts, tangent);
    case PAINN_UPDATE_NET_BACK: return KERNEL_OF(update_net_back, parts, tangent);
    case PAINN_UPDATE_VECTOR_BACK: return KERNEL_OF(update_vector_back, parts, tangent);
    default: return KERNEL_OF(message_net_back, parts, tangent);
    }
}

// Floats of sliced_product's sums.
static int part_floats(const painn_train_step *step, int slices, int tiles, int parts)
{
    const int n = step->n_features / slices, warps = step->n_features / 16, units = n / 8;
    return (units < warps ? warps / units : 1) * tiles * TILE * (parts * n + 4);
}

static size_t shared_of(const painn_train_step *step, int which, int slices)
{
    const int F = step->n_features, pad = TF32_ROW_PAD, row = F + pad;
    int floats = 0;
    switch (which) {
    case PAINN_MESSAGE_NET: floats = TILE * 2 * row + part_floats(step, slices, 1, 3); break;
    case PAINN_UPDATE_VECTOR: floats = TILE * 3 * row + part_floats(step, slices, 3, 2); break;
    case PAINN_UPDATE_NET: floats = TILE * (row + F + row) + part_floats(step, slices, 1, 3); break;
    case PAINN_READOUT: floats = TILE * (row + 2 * (step->n_hidden + pad)); break;
    case PAINN_UPDATE_NET_BACK: floats = TILE * (row + 2 * F + row) + part_floats(step, slices, 1, 2); break;
    case PAINN_UPDATE_VECTOR_BACK: floats = TILE * 3 * (F + row) + part_floats(step, slices, 3, 1); break;
    default: floats = TILE * (row + 2 * F + row) + part_floats(step, slices, 1, 1); break;
    }
    return sizeof(float) * (size_t)floats;
}

extern "C" int painn_train_prepare(const painn_train_step *step, size_t shared_bytes)
{
    for (int which = 0; which < PAINN_NODE_KERNELS; which++)
        for (int k = 0; k < 4; k++) {
            size_t bytes = 0;
            for (int slices = 1; slices <= step->n_features / 8; slices *= 2)
                bytes = shared_of(step, which, slices) > bytes ? shared_of(step, which, slices) : bytes;
            if (bytes > shared_bytes) return cudaErrorInvalidValue; // 92 kB at most
            cudaError_t error = cudaFuncSetAttribute(kernel_of(which, k & 1 ? 3 : 1, k & 2),
                                                     cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
            if (error != cudaSuccess) return error;
        }
    return painn_train_prepare_products(shared_bytes);
}

extern "C" int painn_train_launch_node(const painn_train_step *step, const painn_train_plan *plan, int which, int l, int tangent,
                                       void *stream)
{
    if (!plan->small && which != PAINN_READOUT) return painn_train_launch_products(step, plan, which, l, tangent, stream);
    const int slices = slices_of(step, plan), tiles = (plan->n_atoms + TILE - 1) / TILE;
    const node_step node = {*step, l, slices};
    return launch(kernel_of(which, plan->parts, tangent), tiles * slices, 2 * step->n_features, shared_of(step, which, slices), 1,
                  plan->overlap, stream, node);
}
