// SPDX-License-Identifier: MIT
// painn_train_product.cu: the matrix products at atoms of a large batch in a training step, one kernel for each.
//
// A block makes 64 atoms × 32 features (of vectors: 32 atoms × 3 axes × 32 features) of up to three parts, so that what is made of
// the parts' sums needs no second kernel. Both matrices come in pieces of 32 terms by asynchronous copies, three pieces ahead; the
// first pieces of the weights are requested before the previous kernel ends. Bound by the tensor cores.
#include "painn_train_node.cuh"

enum { THREADS = 256, ROW_WARPS = 2, COLUMN_WARPS = 4, FEATURES = 8 * COLUMN_WARPS, TERMS = 32, HALF = TERMS / 2, STAGES = 3 };

// Rows of 16 terms: a warp's 16-byte loads of 8 rows use all banks evenly.
template <int MT, int NB> struct product_stage {
    float a[2][ROW_WARPS * 16 * MT][HALF], w[2][FEATURES * NB][HALF];
};

// The matrices of a product: `depth` terms of rows of `a`, and of rows n0 + b · block + 0 … 31 of `w`.
struct product_operands {
    const float *a, *w;
    int depth, block;
};

// Row of `a` that stands in row r of the tile. A warp's rows of vectors: axis, then atom, so that a lane has all axes of its sums.
template <int MT> static __device__ __forceinline__ size_t row_of(int first, int r, int n)
{
    if (MT == 3) return (size_t)min(first + r / 48 * 16 + r % 16, n - 1) * 3 + r % 48 / 16;
    return (size_t)min(first + r, n - 1);
}

template <int MT, int NB>
static __device__ __forceinline__ void copy_weights(product_stage<MT, NB> &stage, const product_operands &o, int n0, int k0)
{
    for (int piece = (int)threadIdx.x; piece < FEATURES * NB * TERMS / 4; piece += THREADS) {
        const int j = piece / (TERMS / 4), k = piece % (TERMS / 4) * 4;
        const size_t row = (size_t)(j / FEATURES) * o.block + n0 + j % FEATURES;
        copy_async(&stage.w[k / HALF][j][k % HALF], o.w + row * o.depth + k0 + k);
    }
}

template <int MT, int NB>
static __device__ __forceinline__ void copy_rows(product_stage<MT, NB> &stage, const product_operands &o, int first, int n,
                                                 int k0)
{
    for (int piece = (int)threadIdx.x; piece < ROW_WARPS * 16 * MT * TERMS / 4; piece += THREADS) {
        const int r = piece / (TERMS / 4), k = piece % (TERMS / 4) * 4;
        copy_async(&stage.a[k / HALF][r][k % HALF], o.a + row_of<MT>(first, r, n) * o.depth + k0 + k);
    }
}

// A block's sums, laid out as those of tf32_mma; 0 where the tile has no atoms.
template <int PARTS, int MT, int NB>
static __device__ __forceinline__ bool product_tile(const product_operands &o, const gpu_train_call *call, int first, int n0,
                                                    float (&sum)[MT][1][NB][4])
{
    DYNAMIC_SHARED(memory);
    product_stage<MT, NB> *stages = (product_stage<MT, NB> *)memory;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, pieces = o.depth / TERMS;
    for (int piece = 0; piece < STAGES - 1 && piece < pieces; piece++) copy_weights(stages[piece], o, n0, piece * TERMS);
    wait_for_previous();
    let_next_start();
    const int n = call->n_atoms;
    if (first >= n) return false;
    for (int piece = 0; piece < STAGES - 1; piece++) {
        if (piece < pieces) copy_rows(stages[piece], o, first, n, piece * TERMS);
        copy_commit();
    }
    for (int piece = 0; piece < pieces; piece++) {
        copy_wait<STAGES - 2>();
        __syncthreads();
        const int next = piece + STAGES - 1;
        if (next < pieces) {
            copy_weights(stages[next % STAGES], o, n0, next * TERMS);
            copy_rows(stages[next % STAGES], o, first, n, next * TERMS);
        }
        copy_commit();
        const product_stage<MT, NB> &stage = stages[piece % STAGES];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float4 v[1][NB];
            for (int b = 0; b < NB; b++)
                v[0][b] = *(const float4 *)&stage.w[half][b * FEATURES + warp / ROW_WARPS * 8 + lane / 4][lane % 4 * 4];
            tf32_step<PARTS, MT, 1, NB>(stage.a[half][warp % ROW_WARPS * 16 * MT], HALF, v, sum);
        }
    }
    return true;
}

// What a lane's sums belong to: `EACH_SUM`'s row and column from these on.
struct product_place {
    int first, n0; // of the block
    int atom, f;   // of the warp
};
template <int MT> static __device__ __forceinline__ product_place place_of(const node_step &step)
{
    enum { ATOMS = MT == 3 ? 32 : 32 * MT };
    const int warp = (int)threadIdx.x / 32;
    product_place p;
    p.first = (int)blockIdx.x / step.slices * ATOMS;
    p.n0 = (int)blockIdx.x % step.slices * FEATURES;
    p.atom = p.first + warp % ROW_WARPS * (ATOMS / ROW_WARPS);
    p.f = p.n0 + warp / ROW_WARPS * 8;
    return p;
}

enum { FIRST_OF_MESSAGE, FIRST_OF_UPDATE, FIRST_OF_UPDATE_BACK, FIRST_OF_MESSAGE_BACK };

// First product of a network, forwards or backwards: its hidden layer.
template <int PARTS, int TANGENT, int WHICH> static __global__ void __launch_bounds__(THREADS, 2) hidden_product(node_step step)
{
    const painn_train_step &s = step.s;
    const int F = s.n_features, l = step.l;
    const painn_train_layer &L = s.layer[l];
    const bool back = WHICH >= FIRST_OF_UPDATE_BACK, of_message = WHICH == FIRST_OF_MESSAGE || WHICH == FIRST_OF_MESSAGE_BACK;
    const painn_dual &from = WHICH == FIRST_OF_MESSAGE       ? s.q[l]
                             : WHICH == FIRST_OF_UPDATE      ? L.context
                             : WHICH == FIRST_OF_UPDATE_BACK ? L.y_bar
                                                             : L.x_bar;
    const float *w = WHICH == FIRST_OF_MESSAGE       ? s.weights.base + s.weights.layer[l].W1
                     : WHICH == FIRST_OF_UPDATE      ? s.weights.base + s.weights.layer[l].M1
                     : WHICH == FIRST_OF_UPDATE_BACK ? painn_transposed(&s, l, PAINN_M2)
                                                     : painn_transposed(&s, l, PAINN_W2);
    const product_operands o = {TANGENT ? from.tangent : from.value, w, (back ? 3 : of_message ? 1 : 2) * F, 0};
    const product_place p = place_of<2>(step);
    float sum[2][1][1][4] = {};
    if (!product_tile<PARTS, 2, 1>(o, s.call, p.first, p.n0, sum)) return;
    const int n = s.call->n_atoms;
    const float *bias = s.weights.base + (of_message ? s.weights.layer[l].b1 : s.weights.layer[l].c1);
    EACH_SUM(2, 1, {
        const int atom = p.atom + row, f = p.f + column;
        if (atom >= n) continue;
        const size_t at = (size_t)atom * F + f;
        if (back)
            hidden_back<TANGENT>(s.activation, of_message ? L.h : L.g, of_message ? L.h_bar : L.g_bar,
                                 of_message ? L.a_bar : L.s_bar, at, sum[m][c][0][e], true);
        else
            hidden_forward<TANGENT>(s.activation, of_message ? L.h : L.g, of_message ? L.a : L.s, TANGENT ? 0.0f : bias[f], at,
                                    sum[m][c][0][e], true);
    });
}

template <int PARTS, int TANGENT> static __global__ void __launch_bounds__(THREADS, 2) message_product(node_step step)
{
    const painn_train_step &s = step.s;
    const int F = s.n_features, l = step.l;
    const product_operands o = {TANGENT ? s.layer[l].a.tangent : s.layer[l].a.value, s.weights.base + s.weights.layer[l].W2, F,
                                F};
    const product_place p = place_of<2>(step);
    float sum[2][1][3][4] = {};
    if (!product_tile<PARTS, 2, 3>(o, s.call, p.first, p.n0, sum)) return;
    const int n = s.call->n_atoms;
    EACH_SUM(2, 1, {
        for (int b = 0; b < 3 && p.atom + row < n; b++)
            write_x<TANGENT>(s, l, p.atom + row, b * F + p.f + column, sum[m][c][b][e]);
    });
}

template <int PARTS, int TANGENT> static __global__ void __launch_bounds__(THREADS, 2) vector_product(node_step step)
{
    const painn_train_step &s = step.s;
    const int F = s.n_features, l = step.l;
    const painn_train_layer &L = s.layer[l];
    const product_operands o = {TANGENT ? L.mu1.tangent : L.mu1.value, s.weights.base + s.weights.layer[l].U, F, F};
    const product_place p = place_of<3>(step);
    float sum[3][1][2][4] = {};
    if (!product_tile<PARTS, 3, 2>(o, s.call, p.first, p.n0, sum)) return;
    const int n = s.call->n_atoms;
    EACH_SUM(1, 1, {
        if (p.atom + row >= n) continue;
        const float V[3] = {sum[m][c][0][e], sum[m + 1][c][0][e], sum[m + 2][c][0][e]};
        const float B[3] = {sum[m][c][1][e], sum[m + 1][c][1][e], sum[m + 2][c][1][e]};
        write_vectors<TANGENT>(s, l, p.atom + row, p.f + column, V, B);
    });
}

template <int PARTS, int TANGENT> static __global__ void __launch_bounds__(THREADS, 2) update_product(node_step step)
{
    const painn_train_step &s = step.s;
    const int F = s.n_features, l = step.l;
    const product_operands o = {TANGENT ? s.layer[l].s.tangent : s.layer[l].s.value, s.weights.base + s.weights.layer[l].M2, F,
                                F};
    const product_place p = place_of<2>(step);
    float sum[2][1][3][4] = {};
    if (!product_tile<PARTS, 2, 3>(o, s.call, p.first, p.n0, sum)) return;
    const int n = s.call->n_atoms;
    EACH_SUM(2, 1, {
        if (p.atom + row >= n) continue;
        const float y[3] = {sum[m][c][0][e], sum[m][c][1][e], sum[m][c][2][e]};
        write_update<TANGENT>(s, l, p.atom + row, p.f + column, y);
    });
}

template <int TANGENT> static __global__ void __launch_bounds__(THREADS) update_adjoint(node_step step)
{
    wait_for_previous();
    let_next_start();
    const int F = step.s.n_features, k = (int)(blockIdx.x * THREADS + threadIdx.x), atom = k / F;
    float y[3];
    if (atom < step.s.call->n_atoms) make_y_bar<TANGENT>(step.s, step.l, atom, k % F, true, y);
}

template <int PARTS, int TANGENT> static __global__ void __launch_bounds__(THREADS, 2) norm_product(node_step step)
{
    const painn_train_step &s = step.s;
    const int F = s.n_features, l = step.l;
    const painn_train_layer &L = s.layer[l];
    const product_operands o = {TANGENT ? L.g_bar.tangent : L.g_bar.value, painn_transposed(&s, l, PAINN_M1), F, F};
    const product_place p = place_of<2>(step);
    float sum[2][1][2][4] = {};
    if (!product_tile<PARTS, 2, 2>(o, s.call, p.first, p.n0, sum)) return;
    const int n = s.call->n_atoms;
    EACH_SUM(2, 1, {
        if (p.atom + row < n) norm_back<TANGENT>(s, l, p.atom + row, p.f + column, sum[m][c][0][e], sum[m][c][1][e]);
    });
}

template <int PARTS, int TANGENT> static __global__ void __launch_bounds__(THREADS, 2) vector_product_back(node_step step)
{
    const painn_train_step &s = step.s;
    const int l = step.l;
    const painn_train_layer &L = s.layer[l];
    const product_operands o = {TANGENT ? L.VB_bar.tangent : L.VB_bar.value, painn_transposed(&s, l, PAINN_U), 2 * s.n_features,
                                0};
    const product_place p = place_of<3>(step);
    float sum[3][1][1][4] = {};
    if (!product_tile<PARTS, 3, 1>(o, s.call, p.first, p.n0, sum)) return;
    const int n = s.call->n_atoms;
    EACH_SUM(1, 1, {
        if (p.atom + row >= n) continue;
        const float mu[3] = {sum[m][c][0][e], sum[m + 1][c][0][e], sum[m + 2][c][0][e]};
        write_mu1_bar<TANGENT>(s, l, p.atom + row, p.f + column, mu);
    });
}

template <int PARTS, int TANGENT> static __global__ void __launch_bounds__(THREADS, 2) message_product_back(node_step step)
{
    const painn_train_step &s = step.s;
    const int F = s.n_features, l = step.l;
    const painn_dual &from = s.layer[l].h_bar;
    const product_operands o = {TANGENT ? from.tangent : from.value, painn_transposed(&s, l, PAINN_W1), F, 0};
    const product_place p = place_of<2>(step);
    float sum[2][1][1][4] = {};
    if (!product_tile<PARTS, 2, 1>(o, s.call, p.first, p.n0, sum)) return;
    const int n = s.call->n_atoms;
    EACH_SUM(2, 1, {
        if (p.atom + row < n) write_q_bar<TANGENT>(s, l, p.atom + row, p.f + column, sum[m][c][0][e]);
    });
}

// ---- launches -----------------------------------------------------------------------------------------------------------

typedef void (*node_kernel)(node_step);

typedef struct product_kernel {
    node_kernel kernel;
    int tiles, parts; // MT, NB
} product_kernel;

#define PRODUCT_OF(name, parts, tangent, ...)                                                                                    \
    ((parts) == 3 ? ((tangent) ? name<3, 1, ##__VA_ARGS__> : name<3, 0, ##__VA_ARGS__>)                                          \
                  : ((tangent) ? name<1, 1, ##__VA_ARGS__> : name<1, 0, ##__VA_ARGS__>))

enum { PRODUCTS = 10 };

static product_kernel product_of(int which, int parts, int tangent)
{
    switch (which) {
    case 0: return {PRODUCT_OF(hidden_product, parts, tangent, FIRST_OF_MESSAGE), 2, 1};
    case 1: return {PRODUCT_OF(message_product, parts, tangent), 2, 3};
    case 2: return {PRODUCT_OF(vector_product, parts, tangent), 3, 2};
    case 3: return {PRODUCT_OF(hidden_product, parts, tangent, FIRST_OF_UPDATE), 2, 1};
    case 4: return {PRODUCT_OF(update_product, parts, tangent), 2, 3};
    case 5: return {PRODUCT_OF(hidden_product, parts, tangent, FIRST_OF_UPDATE_BACK), 2, 1};
    case 6: return {PRODUCT_OF(norm_product, parts, tangent), 2, 2};
    case 7: return {PRODUCT_OF(vector_product_back, parts, tangent), 3, 1};
    case 8: return {PRODUCT_OF(hidden_product, parts, tangent, FIRST_OF_MESSAGE_BACK), 2, 1};
    default: return {PRODUCT_OF(message_product_back, parts, tangent), 2, 1};
    }
}

static size_t stages_bytes(const product_kernel *product)
{
    return STAGES * sizeof(float) * (size_t)TERMS * (size_t)(ROW_WARPS * 16 * product->tiles + FEATURES * product->parts);
}

static int launch_product(const painn_train_step *step, const painn_train_plan *plan, int which, int l, int tangent, void *stream)
{
    const product_kernel product = product_of(which, plan->parts, tangent);
    const int atoms = product.tiles == 3 ? 32 : 32 * product.tiles, slices = step->n_features / FEATURES;
    const node_step node = {*step, l, slices};
    return launch(product.kernel, (plan->n_atoms + atoms - 1) / atoms * slices, THREADS, stages_bytes(&product), 1, plan->overlap,
                  stream, node);
}

extern "C" int painn_train_prepare_products(size_t shared_bytes)
{
    for (int k = 0; k < 4 * PRODUCTS; k++) {
        const product_kernel product = product_of(k / 4, k & 1 ? 3 : 1, k & 2);
        const size_t bytes = stages_bytes(&product);
        if (bytes > shared_bytes) return cudaErrorInvalidValue; // 80 kB at most: each GPU since compute capability 8.0 has them
        cudaError_t error = cudaFuncSetAttribute(product.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
        if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
}

extern "C" int painn_train_launch_products(const painn_train_step *step, const painn_train_plan *plan, int which, int l,
                                           int tangent, void *stream)
{
    const node_step node = {*step, l, 1};
    switch (which) {
    case PAINN_MESSAGE_NET: {
        const int error = launch_product(step, plan, 0, l, tangent, stream);
        return error ? error : launch_product(step, plan, 1, l, tangent, stream);
    }
    case PAINN_UPDATE_VECTOR: return launch_product(step, plan, 2, l, tangent, stream);
    case PAINN_UPDATE_NET: {
        const int error = launch_product(step, plan, 3, l, tangent, stream);
        return error ? error : launch_product(step, plan, 4, l, tangent, stream);
    }
    case PAINN_UPDATE_NET_BACK: {
        int error =
            launch(tangent ? update_adjoint<1> : update_adjoint<0>, (plan->n_atoms * step->n_features + THREADS - 1) / THREADS,
                   THREADS, 0, 1, plan->overlap, stream, node);
        if (!error) error = launch_product(step, plan, 5, l, tangent, stream);
        return error ? error : launch_product(step, plan, 6, l, tangent, stream);
    }
    case PAINN_UPDATE_VECTOR_BACK: return launch_product(step, plan, 7, l, tangent, stream);
    default: {
        const int error = launch_product(step, plan, 8, l, tangent, stream);
        return error ? error : launch_product(step, plan, 9, l, tangent, stream);
    }
    }
}
