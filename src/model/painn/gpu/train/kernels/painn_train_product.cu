// SPDX-License-Identifier: MIT
// painn_train_product.cu: the matrix products at atoms in a training step, one kernel for each: of large batches.
//
// A block makes up to 64 atoms × 64 features (of vectors: 32 atoms × 3 axes) of up to three parts. Both matrices come in pieces of 32
// terms by asynchronous copies, two pieces ahead; the first pieces of the weights are requested before the previous kernel ends. The
// sums go through shared memory, so that neighboring threads make neighboring features of what follows. Bound by the tensor cores
// and by memory.
#include "painn_train_node.cuh"

enum { THREADS = 256, ROW_WARPS = 2, COLUMN_WARPS = 4, TERMS = 32, HALF = TERMS / 2, STAGES = 3 };

// A warp has MT tiles of 16 rows (3: the axes of 16 atoms) and NC tiles of 8 features of each of NB parts.
template <int MT, int NC, int NB> struct product_shape {
    static constexpr int ROWS = ROW_WARPS * 16 * MT, ATOMS = MT == 3 ? ROW_WARPS * 16 : ROWS, FEATURES = 8 * NC * COLUMN_WARPS;
    static constexpr int SUM_STRIDE = FEATURES + 4;
    struct stage { // rows of 16 terms: a warp's 16-byte loads of 8 rows use all banks evenly
        float a[2][ROWS][HALF], w[2][FEATURES * NB][HALF];
    };
    static constexpr size_t BYTES = sizeof(stage) * STAGES;
    static_assert(sizeof(float) * NB * ROWS * SUM_STRIDE <= BYTES, "sums take the place of the stages");
};

// The matrices of a product: `depth` terms of rows of `a`, and of rows n0 + b · block + 0 … of `w`.
struct product_operands {
    const float *a, *w;
    int depth, block;
};

// The part of a product that a block makes.
struct product_place {
    int first, n0;
};
template <typename Shape> static __device__ __forceinline__ product_place place_of(const node_step &step)
{
    return {(int)blockIdx.x / step.slices * Shape::ATOMS, (int)blockIdx.x % step.slices * Shape::FEATURES};
}

// Row of the tile of an atom. A warp's rows of vectors: axis, then atom.
template <int MT> static __device__ __forceinline__ int row_of(int atom, int axis)
{
    return MT == 3 ? atom / 16 * 48 + axis * 16 + atom % 16 : atom;
}
// Row of `a` that stands in row r of the tile.
template <int MT> static __device__ __forceinline__ size_t source_of(int first, int r, int n)
{
    if (MT == 3) return (size_t)min(first + r / 48 * 16 + r % 16, n - 1) * 3 + r % 48 / 16;
    return (size_t)min(first + r, n - 1);
}

template <typename Shape, int NB>
static __device__ __forceinline__ void copy_weights(typename Shape::stage &stage, const product_operands &o, int n0, int k0)
{
    for (int piece = (int)threadIdx.x; piece < Shape::FEATURES * NB * TERMS / 4; piece += THREADS) {
        const int j = piece / (TERMS / 4), k = piece % (TERMS / 4) * 4;
        const size_t row = (size_t)(j / Shape::FEATURES) * o.block + n0 + j % Shape::FEATURES;
        copy_async(&stage.w[k / HALF][j][k % HALF], o.w + row * o.depth + k0 + k);
    }
}

template <typename Shape, int MT>
static __device__ __forceinline__ void copy_rows(typename Shape::stage &stage, const product_operands &o, int first, int n,
                                                 int k0)
{
    for (int piece = (int)threadIdx.x; piece < Shape::ROWS * TERMS / 4; piece += THREADS) {
        const int r = piece / (TERMS / 4), k = piece % (TERMS / 4) * 4;
        copy_async(&stage.a[k / HALF][r][k % HALF], o.a + source_of<MT>(first, r, n) * o.depth + k0 + k);
    }
}

// The block's sums in shared memory, [NB][ROWS][SUM_STRIDE]; false where the tile has no atoms. ROUNDED: `a` is (tf32_step).
template <int PARTS, bool ROUNDED, int MT, int NC, int NB>
static __device__ __forceinline__ bool product_tile(const product_operands &o, const gpu_train_call *call, const product_place &p)
{
    typedef product_shape<MT, NC, NB> Shape;
    DYNAMIC_SHARED(memory);
    typename Shape::stage *stages = (typename Shape::stage *)memory;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, pieces = o.depth / TERMS;
    const int row0 = warp % ROW_WARPS * 16 * MT, column0 = warp / ROW_WARPS * 8 * NC;
    for (int piece = 0; piece < STAGES - 1 && piece < pieces; piece++)
        copy_weights<Shape, NB>(stages[piece], o, p.n0, piece * TERMS);
    wait_for_previous();
    let_next_start();
    const int n = call->n_atoms;
    if (p.first >= n) return false;
    for (int piece = 0; piece < STAGES - 1; piece++) {
        if (piece < pieces) copy_rows<Shape, MT>(stages[piece], o, p.first, n, piece * TERMS);
        copy_commit();
    }
    float sum[MT][NC][NB][4] = {};
    for (int piece = 0; piece < pieces; piece++) {
        copy_wait<STAGES - 2>();
        __syncthreads();
        const int next = piece + STAGES - 1;
        if (next < pieces) {
            copy_weights<Shape, NB>(stages[next % STAGES], o, p.n0, next * TERMS);
            copy_rows<Shape, MT>(stages[next % STAGES], o, p.first, n, next * TERMS);
        }
        copy_commit();
        const typename Shape::stage &stage = stages[piece % STAGES];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float4 v[NC][NB];
            for (int c = 0; c < NC; c++)
                for (int b = 0; b < NB; b++)
                    v[c][b] = *(const float4 *)&stage.w[half][b * Shape::FEATURES + column0 + 8 * c + lane / 4][lane % 4 * 4];
            tf32_step<PARTS, ROUNDED, MT, NC, NB>(stage.a[half][row0], HALF, v, sum);
        }
    }
    copy_wait<0>();
    __syncthreads();
    float *sums = (float *)memory;
    EACH_SUM(MT, NC, {
        for (int b = 0; b < NB; b++)
            sums[(b * Shape::ROWS + row0 + row) * Shape::SUM_STRIDE + column0 + column] = sum[m][c][b][e];
    });
    __syncthreads();
    return true;
}

// Sums of N neighboring columns.
template <int MT, int NC, int NB, int N>
static __device__ __forceinline__ numbers<N> sum_of(int b, int atom, int axis, int column)
{
    typedef product_shape<MT, NC, NB> Shape;
    DYNAMIC_SHARED(memory);
    return numbers_at<N>((const float *)memory + (b * Shape::ROWS + row_of<MT>(atom, axis)) * Shape::SUM_STRIDE + column);
}

// Loads and finishes an operation for each N elements of a block; `finish` gets the row and column of their sums. The operands of UNITS
// times N elements are requested together.
template <typename Shape, typename Operation, int N, int UNITS, typename Load, typename Finish>
static __device__ __forceinline__ void each_element(const product_place &p, int n_atoms, Load load, Finish finish)
{
    enum { ROW = Shape::FEATURES / N, PIECES = Shape::ATOMS * ROW };
    static_assert(PIECES % THREADS == 0, "whole pieces for each thread");
    for (int first = (int)threadIdx.x; first < PIECES; first += UNITS * THREADS) {
        Operation op[UNITS];
#pragma unroll
        for (int unit = 0; unit < UNITS; unit++) {
            const int k = first + unit * THREADS;
            const element e = {p.first + k / ROW, p.n0 + k % ROW * N, true};
            if (k < PIECES && e.atom < n_atoms) load(op[unit], e);
        }
#pragma unroll
        for (int unit = 0; unit < UNITS; unit++) {
            const int k = first + unit * THREADS;
            const element e = {p.first + k / ROW, p.n0 + k % ROW * N, true};
            if (k < PIECES && e.atom < n_atoms) finish(op[unit], e, k / ROW, k % ROW * N);
        }
    }
}

enum { FIRST_OF_MESSAGE, FIRST_OF_UPDATE, FIRST_OF_UPDATE_BACK, FIRST_OF_MESSAGE_BACK };

// First product of a network, forwards or backwards: its hidden layer. MT, NC: 2, 2 or, for fewer atoms, 1, 1. BLOCKS: of a
// multiprocessor that run at once.
template <int PARTS, int TANGENT, int MT, int BLOCKS, int WHICH>
static __global__ void __launch_bounds__(THREADS, BLOCKS) hidden_product(node_step step)
{
    typedef product_shape<MT, MT, 1> Shape;
    const painn_train_step &s = step.s;
    const int F = s.n_features, l = step.l;
    const painn_train_layer &L = s.layer[l];
    const bool back = WHICH >= FIRST_OF_UPDATE_BACK, of_message = WHICH == FIRST_OF_MESSAGE || WHICH == FIRST_OF_MESSAGE_BACK;
    const painn_dual &from = WHICH == FIRST_OF_MESSAGE       ? s.q[l]
                             : WHICH == FIRST_OF_UPDATE      ? L.context
                             : WHICH == FIRST_OF_UPDATE_BACK ? L.y_bar
                                                             : L.x_bar;
    const float *w = WHICH == FIRST_OF_MESSAGE       ? painn_weights(&s, l, PAINN_W1)
                     : WHICH == FIRST_OF_UPDATE      ? painn_weights(&s, l, PAINN_M1)
                     : WHICH == FIRST_OF_UPDATE_BACK ? painn_transposed(&s, l, PAINN_M2)
                                                     : painn_transposed(&s, l, PAINN_W2);
    const product_operands o = {TANGENT ? from.tangent : from.value, w, (back ? 3 : of_message ? 1 : 2) * F, 0};
    const product_place p = place_of<Shape>(step);
    if (!product_tile<PARTS, WHICH >= FIRST_OF_UPDATE_BACK, MT, MT, 1>(o, s.call, p)) return;
    const float *bias = s.weights.base + (of_message ? s.weights.layer[l].b1 : s.weights.layer[l].c1);
    const painn_dual &h = of_message ? L.h : L.g;
    float *adjoint = of_message ? L.a_bar : L.s_bar;
    if (back)
        each_element<Shape, hidden_back<PARTS, TANGENT, 4>, 4, 2>(
            p, s.call->n_atoms, [&](hidden_back<PARTS, TANGENT, 4> &op, const element &e) { op.load(F, e, h, adjoint); },
            [&](const hidden_back<PARTS, TANGENT, 4> &op, const element &, int row, int column) {
                op.finish(s.activation, true, of_message ? L.h_bar : L.g_bar, adjoint, sum_of<MT, MT, 1, 4>(0, row, 0, column));
            });
    else
        each_element<Shape, hidden_forward<PARTS, TANGENT, 4>, 4, 4>(
            p, s.call->n_atoms, [&](hidden_forward<PARTS, TANGENT, 4> &op, const element &e) { op.load(F, e, h, bias); },
            [&](const hidden_forward<PARTS, TANGENT, 4> &op, const element &, int row, int column) {
                op.finish(s.activation, true, h, of_message ? L.a : L.s, sum_of<MT, MT, 1, 4>(0, row, 0, column));
            });
}

template <int PARTS, int TANGENT, int MT> static __global__ void __launch_bounds__(THREADS, 2) message_product(node_step step)
{
    typedef product_shape<MT, 1, 3> Shape;
    const painn_train_step &s = step.s;
    const int F = s.n_features, l = step.l;
    const product_operands o = {TANGENT ? s.layer[l].a.tangent : s.layer[l].a.value, painn_weights(&s, l, PAINN_W2), F, F};
    const product_place p = place_of<Shape>(step);
    if (!product_tile<PARTS, true, MT, 1, 3>(o, s.call, p)) return;
    each_element<Shape, message_output<TANGENT, 4>, 4, 2>(
        p, s.call->n_atoms, [&](message_output<TANGENT, 4> &op, const element &e) { op.load(s, l, e); },
        [&](const message_output<TANGENT, 4> &op, const element &e, int row, int column) {
            numbers<4> x[3];
            for (int b = 0; b < 3; b++) x[b] = sum_of<MT, 1, 3, 4>(b, row, 0, column);
            op.finish(s, l, e, x);
        });
}

template <int PARTS, int TANGENT> static __global__ void __launch_bounds__(THREADS, 2) vector_product(node_step step)
{
    typedef product_shape<3, 1, 2> Shape;
    const painn_train_step &s = step.s;
    const int F = s.n_features, l = step.l;
    const painn_train_layer &L = s.layer[l];
    const product_operands o = {TANGENT ? L.mu1.tangent : L.mu1.value, painn_weights(&s, l, PAINN_U), F, F};
    const product_place p = place_of<Shape>(step);
    if (!product_tile<PARTS, false, 3, 1, 2>(o, s.call, p)) return;
    each_element<Shape, update_vectors<TANGENT, 4>, 4, 1>(
        p, s.call->n_atoms, [&](update_vectors<TANGENT, 4> &op, const element &e) { op.load(s, l, e); },
        [&](const update_vectors<TANGENT, 4> &op, const element &e, int row, int column) {
            numbers<4> V[3], B[3];
            for (int axis = 0; axis < 3; axis++) {
                V[axis] = sum_of<3, 1, 2, 4>(0, row, axis, column);
                B[axis] = sum_of<3, 1, 2, 4>(1, row, axis, column);
            }
            op.finish(s, l, e, V, B);
        });
}

template <int PARTS, int TANGENT, int MT> static __global__ void __launch_bounds__(THREADS, 2) update_product(node_step step)
{
    typedef product_shape<MT, 1, 3> Shape;
    const painn_train_step &s = step.s;
    const int F = s.n_features, l = step.l;
    const product_operands o = {TANGENT ? s.layer[l].s.tangent : s.layer[l].s.value, painn_weights(&s, l, PAINN_M2), F, F};
    const product_place p = place_of<Shape>(step);
    if (!product_tile<PARTS, true, MT, 1, 3>(o, s.call, p)) return;
    each_element<Shape, update_features<TANGENT, 4>, 4, 1>(
        p, s.call->n_atoms, [&](update_features<TANGENT, 4> &op, const element &e) { op.load(s, l, e); },
        [&](const update_features<TANGENT, 4> &op, const element &e, int row, int column) {
            numbers<4> y[3];
            for (int b = 0; b < 3; b++) y[b] = sum_of<MT, 1, 3, 4>(b, row, 0, column);
            op.finish(s, l, e, y);
        });
}

enum { ADJOINT_FEATURES = 4 }; // of a thread of output_adjoint

template <int PARTS, int TANGENT> static __global__ void __launch_bounds__(THREADS) output_adjoint(node_step step)
{
    wait_for_previous();
    let_next_start();
    const int F = step.s.n_features, k = (int)(blockIdx.x * THREADS + threadIdx.x) * ADJOINT_FEATURES;
    const element e = {k / F, k % F, true};
    if (e.atom >= step.s.call->n_atoms) return;
    update_adjoint<PARTS, TANGENT, ADJOINT_FEATURES> op;
    numbers<ADJOINT_FEATURES> y[3];
    op.load(step.s, step.l, e);
    op.finish(step.s, step.l, e, load_q_bar<TANGENT, ADJOINT_FEATURES>(step.s, step.l, e), y);
}

template <int PARTS, int TANGENT, int MT, int BLOCKS>
static __global__ void __launch_bounds__(THREADS, BLOCKS) norm_product(node_step step)
{
    typedef product_shape<MT, 1, 2> Shape;
    const painn_train_step &s = step.s;
    const int F = s.n_features, l = step.l;
    const painn_train_layer &L = s.layer[l];
    const product_operands o = {TANGENT ? L.g_bar.tangent : L.g_bar.value, painn_transposed(&s, l, PAINN_M1), F, F};
    const product_place p = place_of<Shape>(step);
    if (!product_tile<PARTS, true, MT, 1, 2>(o, s.call, p)) return;
    each_element<Shape, norm_back<PARTS, TANGENT, 2>, 2, 1>(
        p, s.call->n_atoms, [&](norm_back<PARTS, TANGENT, 2> &op, const element &e) { op.load(s, l, e); },
        [&](const norm_back<PARTS, TANGENT, 2> &op, const element &e, int row, int column) {
            numbers<2> V[3], B[3];
            op.finish(s, l, e, load_q_bar<TANGENT, 2>(s, l, e), sum_of<MT, 1, 2, 2>(0, row, 0, column),
                      sum_of<MT, 1, 2, 2>(1, row, 0, column), V, B);
        });
}

template <int PARTS, int TANGENT, int NC> static __global__ void __launch_bounds__(THREADS, 2) vector_product_back(node_step step)
{
    typedef product_shape<3, NC, 1> Shape;
    const painn_train_step &s = step.s;
    const int l = step.l;
    const painn_train_layer &L = s.layer[l];
    const product_operands o = {TANGENT ? L.VB_bar.tangent : L.VB_bar.value, painn_transposed(&s, l, PAINN_U), 2 * s.n_features,
                                0};
    const product_place p = place_of<Shape>(step);
    if (!product_tile<PARTS, true, 3, NC, 1>(o, s.call, p)) return;
    each_element<Shape, vector_back<TANGENT, 4>, 4, 2>(
        p, s.call->n_atoms, [&](vector_back<TANGENT, 4> &op, const element &e) { op.load(s, l, e); },
        [&](const vector_back<TANGENT, 4> &op, const element &e, int row, int column) {
            numbers<4> mu[3];
            for (int axis = 0; axis < 3; axis++) mu[axis] = sum_of<3, NC, 1, 4>(0, row, axis, column);
            op.finish(s, l, e, mu);
        });
}

// q̄ of a layer's input, and ȳ of the update of the layer below, if there is one.
template <int PARTS, int TANGENT, int N> struct input_back {
    features_back<TANGENT, N> features;
    update_adjoint<PARTS, TANGENT, N> below;

    __device__ __forceinline__ void load(const painn_train_step &s, int l, const element &e)
    {
        features.load(s, l, e);
        if (l > 0) below.load(s, l - 1, e);
    }
    __device__ __forceinline__ void finish(const painn_train_step &s, int l, const element &e, const numbers<N> &sum) const
    {
        numbers<N> y[3];
        const numbers<N> q = features.finish(s, l, e, sum);
        if (l > 0) below.finish(s, l - 1, e, q, y);
    }
};

template <int PARTS, int TANGENT, int MT, int BLOCKS>
static __global__ void __launch_bounds__(THREADS, BLOCKS) message_product_back(node_step step)
{
    typedef product_shape<MT, MT, 1> Shape;
    const painn_train_step &s = step.s;
    const int F = s.n_features, l = step.l;
    const painn_dual &from = s.layer[l].h_bar;
    const product_operands o = {TANGENT ? from.tangent : from.value, painn_transposed(&s, l, PAINN_W1), F, 0};
    const product_place p = place_of<Shape>(step);
    if (!product_tile<PARTS, true, MT, MT, 1>(o, s.call, p)) return;
    each_element<Shape, input_back<PARTS, TANGENT, 4>, 4, 1>(
        p, s.call->n_atoms, [&](input_back<PARTS, TANGENT, 4> &op, const element &e) { op.load(s, l, e); },
        [&](const input_back<PARTS, TANGENT, 4> &op, const element &e, int row, int column) {
            op.finish(s, l, e, sum_of<MT, MT, 1, 4>(0, row, 0, column));
        });
}

// ---- launches -----------------------------------------------------------------------------------------------------------

typedef struct product_kernel {
    node_kernel kernel;
    int atoms, features; // of a block
    size_t bytes;
} product_kernel;

#define PRODUCT(shape, ...)                                                                                                      \
    {                                                                                                                            \
        __VA_ARGS__, product_shape<shape>::ATOMS, product_shape<shape>::FEATURES, product_shape<shape>::BYTES                    \
    }
#define SHAPE(...) __VA_ARGS__

// SMALL: for few atoms. CROWDED: for more blocks than two of a multiprocessor; with TF32, products whose registers suffice then run
// three at once.
enum product_size { SMALL, LARGE, CROWDED };

template <int PARTS, int TANGENT, product_size SIZE> static product_kernel product_of(int which)
{
    enum { MT = SIZE == SMALL ? 1 : 2, BLOCKS = SIZE == CROWDED && PARTS == 1 ? 3 : 2 };
    switch (which) {
    case 0: return PRODUCT(SHAPE(MT, MT, 1), hidden_product<PARTS, TANGENT, MT, BLOCKS, FIRST_OF_MESSAGE>);
    case 1: return PRODUCT(SHAPE(MT, 1, 3), message_product<PARTS, TANGENT, MT>);
    case 2: return PRODUCT(SHAPE(3, 1, 2), vector_product<PARTS, TANGENT>);
    case 3: return PRODUCT(SHAPE(MT, MT, 1), hidden_product<PARTS, TANGENT, MT, BLOCKS, FIRST_OF_UPDATE>);
    case 4: return PRODUCT(SHAPE(MT, 1, 3), update_product<PARTS, TANGENT, MT>);
    case 5: return PRODUCT(SHAPE(MT, MT, 1), hidden_product<PARTS, TANGENT, MT, BLOCKS, FIRST_OF_UPDATE_BACK>);
    case 6: return PRODUCT(SHAPE(MT, 1, 2), norm_product<PARTS, TANGENT, MT, BLOCKS>);
    case 7: return PRODUCT(SHAPE(3, MT, 1), vector_product_back<PARTS, TANGENT, MT>);
    case 8: return PRODUCT(SHAPE(MT, MT, 1), hidden_product<PARTS, TANGENT, MT, BLOCKS, FIRST_OF_MESSAGE_BACK>);
    default: return PRODUCT(SHAPE(MT, MT, 1), message_product_back<PARTS, TANGENT, MT, BLOCKS>);
    }
}
enum { PRODUCTS = 10 };

template <int PARTS, int TANGENT> static product_kernel sized_product_of(int which, product_size size)
{
    return size == SMALL   ? product_of<PARTS, TANGENT, SMALL>(which)
           : size == LARGE ? product_of<PARTS, TANGENT, LARGE>(which)
                           : product_of<PARTS, TANGENT, CROWDED>(which);
}

static product_kernel kernel_of(int which, int parts, int tangent, product_size size)
{
    if (parts == 3) return tangent ? sized_product_of<3, 1>(which, size) : sized_product_of<3, 0>(which, size);
    return tangent ? sized_product_of<1, 1>(which, size) : sized_product_of<1, 0>(which, size);
}

static int launch_product(const painn_train_step *step, const painn_train_plan *plan, int which, int l, int tangent, void *stream)
{
    const bool large = plan->n_atoms >= 16 * plan->n_multiprocessors && step->n_features >= 64;
    product_kernel p = kernel_of(which, plan->parts, tangent, large ? LARGE : SMALL);
    const node_step node = {*step, l, step->n_features / p.features};
    const int blocks = (plan->n_atoms + p.atoms - 1) / p.atoms * node.slices;
    if (large && blocks > 2 * plan->n_multiprocessors) p = kernel_of(which, plan->parts, tangent, CROWDED); // of the same shape
    return launch(p.kernel, blocks, THREADS, p.bytes, 1, plan->overlap, stream, node);
}

extern "C" int painn_train_prepare_products(size_t shared_bytes)
{
    for (int k = 0; k < 12 * PRODUCTS; k++) {
        const product_kernel p = kernel_of(k / 12, k & 1 ? 3 : 1, k & 2, (product_size)(k % 12 / 4));
        if (p.bytes > shared_bytes) return cudaErrorInvalidValue; // 60 kB at most: each GPU since compute capability 8.0 has them
        cudaError_t error = cudaFuncSetAttribute(p.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)p.bytes);
        if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
}

extern "C" int painn_train_launch_node(const painn_train_step *step, const painn_train_plan *plan, int which, int l, int tangent,
                                       void *stream)
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
        int error = 0;
        if (l + 1 == step->n_layers) // of the layers below, message_product_back has made ȳ
            error = launch(plan->parts == 3 ? tangent ? output_adjoint<3, 1> : output_adjoint<3, 0>
                           : tangent ? output_adjoint<1, 1>
                                            : output_adjoint<1, 0>,
                           (plan->n_atoms * step->n_features / ADJOINT_FEATURES + THREADS - 1) / THREADS, THREADS, 0, 1,
                           plan->overlap, stream, node);
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
