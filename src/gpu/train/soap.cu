// SPDX-License-Identifier: MIT
// soap.cu: weight matrices after a step of SOAP. g is the gradient times the clipping's scale; M has it already (optimizer.cu).
//
//   rotate   Q_Lᵀ g, Q_Lᵀ M;  L ← s L + (1 − s) g gᵀ,  R ← s R + (1 − s) gᵀ g
//   scale    g' = (Q_Lᵀ g) Q_R, M' = (Q_Lᵀ M) Q_R;  V ← β₂ V + (1 − β₂) g'²;  N = rate · M'/(1 − β₁ᵗ) / (√(V/(1 − β₂ᵗ)) + ε)
//   return   Q_L N
//   move     w ← w (1 − rate · decay) − (Q_L N) Q_Rᵀ;  w̃ ← w̃ + (1 − average) (w − w̃)
//   grow     Z = (n/tr C) C Q + 1e-7 Q      every some steps, of both sides; C the covariances of this step
//   turn     Q = Z, orthonormalized
//
// A block has a tile of 64 × 64 of one matrix, a thread 4 × 4 of it; sums over the inner dimension in order, so that equal inputs give equal
// bits. Each kernel but the last is a wave or two of blocks that wait for memory and for each other's results, not for arithmetic.
#include "gpu/ptx/primitives.cuh"
#include "gpu/train/gpu_soap.h"

enum { TILE = GPU_SOAP_TILE, THREADS = 256, INNER = 32, PADDED = TILE + 4 };
#define SHIFT 1e-7f /* SOAP_SHIFT: no column vanishes */

// Element (i, k) of the left factor or (k, i) of the right one is at[i · outer + k · inner].
struct factor {
    const float *at;
    int n, outer, inner;
};

struct tile_sum {
    float of[4][4];
};

// A part of a factor, INNER × TILE, through registers: neighbors in memory by neighboring threads.
struct staged {
    float value[TILE * INNER / THREADS];
};

static __device__ __forceinline__ void stage(const factor &f, int first, int k_first, int n_inner, staged &to)
{
    for (int q = 0; q < TILE * INNER / THREADS; q++) {
        const int e = q * THREADS + (int)threadIdx.x;
        const int i = first + (f.outer == 1 ? e % TILE : e / INNER), k = k_first + (f.outer == 1 ? e / TILE : e % INNER);
        to.value[q] = i < f.n && k < n_inner ? f.at[(size_t)i * f.outer + (size_t)k * f.inner] : 0.0f;
    }
}

static __device__ __forceinline__ void store(const factor &f, const staged &from, float (*to)[PADDED])
{
    for (int q = 0; q < TILE * INNER / THREADS; q++) {
        const int e = q * THREADS + (int)threadIdx.x;
        to[f.outer == 1 ? e / TILE : e % INNER][f.outer == 1 ? e % TILE : e / INNER] = from.value[q];
    }
}

// Elements (row + 4 (thread / 16) + r, column + 4 (thread % 16) + c) of a product.
static __device__ tile_sum product(const factor &a, const factor &b, int n_inner, int row, int column)
{
    __shared__ float left[INNER][PADDED], right[INNER][PADDED];
    tile_sum sum = {};
    staged next_left, next_right;
    const int i = (int)threadIdx.x / 16 * 4, j = (int)threadIdx.x % 16 * 4;
    stage(a, row, 0, n_inner, next_left);
    stage(b, column, 0, n_inner, next_right);
    for (int k = 0; k < n_inner; k += INNER) {
        __syncthreads();
        store(a, next_left, left);
        store(b, next_right, right);
        __syncthreads();
        if (k + INNER < n_inner) {
            stage(a, row, k + INNER, n_inner, next_left);
            stage(b, column, k + INNER, n_inner, next_right);
        }
#pragma unroll 8
        for (int l = 0; l < INNER; l++) {
            const float4 x = *(const float4 *)&left[l][i], y = *(const float4 *)&right[l][j];
            const float xs[4] = {x.x, x.y, x.z, x.w}, ys[4] = {y.x, y.y, y.z, y.w};
            for (int r = 0; r < 4; r++)
                for (int c = 0; c < 4; c++) sum.of[r][c] += xs[r] * ys[c];
        }
    }
    return sum;
}

// The tile itself, where a side has no basis.
static __device__ __forceinline__ tile_sum tile_of(const float *from, int n_rows, int n_columns, int row, int column)
{
    tile_sum sum = {};
    const int i = row + (int)threadIdx.x / 16 * 4, j = column + (int)threadIdx.x % 16 * 4;
    for (int r = 0; r < 4; r++)
        for (int c = 0; c < 4; c++)
            if (i + r < n_rows && j + c < n_columns) sum.of[r][c] = from[(size_t)(i + r) * n_columns + j + c];
    return sum;
}

// take(place in the matrix, row, column, value) for each element of this thread.
template <typename Take>
static __device__ __forceinline__ void for_each(const tile_sum &sum, int n_rows, int n_columns, int row, int column, Take take)
{
    const int i = row + (int)threadIdx.x / 16 * 4, j = column + (int)threadIdx.x % 16 * 4;
    for (int r = 0; r < 4; r++)
        for (int c = 0; c < 4; c++)
            if (i + r < n_rows && j + c < n_columns) take(i + r, j + c, sum.of[r][c]);
}

// The gradient's scale; 0: the step is not finite and changes nothing.
static __device__ __forceinline__ float scale_of(const gpu_optimizer &o)
{
    return *o.scale;
}

static __device__ void update_covariance(const gpu_optimizer &o, const gpu_soap_matrix &q, const gpu_soap_side &side, bool left,
                                         const gpu_soap_tile &tile)
{
    const float *g = o.gradient + q.offset;
    const factor f = {g, side.n, left ? q.n_columns : 1, left ? 1 : q.n_columns};
    const tile_sum sum = product(f, f, left ? q.n_columns : q.n_rows, tile.row, tile.column);
    const float scale = scale_of(o), keep = (float)o.branch[0].call->soap_decay;
    const float take = (float)(1 - o.branch[0].call->soap_decay) * scale * scale;
    for_each(sum, side.n, side.n, tile.row, tile.column, [&](int i, int j, float x) {
        float &c = side.covariance[(size_t)i * side.ld + j];
        c = keep * c + take * x;
    });
}

static __global__ void __launch_bounds__(THREADS) soap_rotate(gpu_optimizer o, gpu_soap soap)
{
    wait_for_previous();
    let_next_start();
    const gpu_soap_tile tile = soap.tiles[soap.first[GPU_SOAP_ROTATE] + (int)blockIdx.x];
    const gpu_soap_matrix &q = soap.matrices[tile.matrix];
    if (scale_of(o) == 0) return;
    if (tile.task == GPU_SOAP_LEFT_COVARIANCE) return update_covariance(o, q, q.left, true, tile);
    if (tile.task == GPU_SOAP_RIGHT_COVARIANCE) return update_covariance(o, q, q.right, false, tile);
    const bool of_gradient = tile.task == GPU_SOAP_LEFT_GRADIENT;
    const factor basis = {q.left.basis, q.n_rows, 1, q.left.ld};
    const factor x = {(of_gradient ? o.gradient : o.m) + q.offset, q.n_columns, 1, q.n_columns};
    float *to = of_gradient ? q.gradient : q.momentum;
    const tile_sum sum = product(basis, x, q.n_rows, tile.row, tile.column);
    for_each(sum, q.n_rows, q.n_columns, tile.row, tile.column,
             [&](int i, int j, float value) { to[(size_t)i * q.n_columns + j] = value; });
}

// x Q_R, or x without a right basis.
static __device__ tile_sum times_right(const gpu_soap_matrix &q, const float *x, const gpu_soap_tile &tile)
{
    if (!q.right.basis) return tile_of(x, q.n_rows, q.n_columns, tile.row, tile.column);
    return product({x, q.n_rows, q.n_columns, 1}, {q.right.basis, q.n_columns, 1, q.right.ld}, q.n_columns, tile.row,
                   tile.column);
}

static __global__ void __launch_bounds__(THREADS) soap_scale(gpu_optimizer o, gpu_soap soap)
{
    wait_for_previous();
    let_next_start();
    const gpu_soap_tile tile = soap.tiles[soap.first[GPU_SOAP_SCALE] + (int)blockIdx.x];
    const gpu_soap_matrix &q = soap.matrices[tile.matrix];
    const float scale = scale_of(o);
    if (scale == 0) return;
    const tile_sum gradient = times_right(q, q.gradient ? q.gradient : o.gradient + q.offset, tile);
    const tile_sum momentum = times_right(q, q.momentum ? q.momentum : o.m + q.offset, tile);
    const gpu_train_call &call = *o.branch[0].call;
    const float beta2 = (float)call.beta2, epsilon = (float)call.epsilon;
    const float rate = (float)(call.learning_rate / call.correction1), root_scale = (float)(1 / sqrt(call.correction2));
    tile_sum step = momentum;
    for (int r = 0; r < 4; r++)
        for (int c = 0; c < 4; c++) {
            const int i = tile.row + (int)threadIdx.x / 16 * 4 + r, j = tile.column + (int)threadIdx.x % 16 * 4 + c;
            if (i >= q.n_rows || j >= q.n_columns) continue;
            float &v = o.v[q.offset + (size_t)i * q.n_columns + j];
            const float g = scale * gradient.of[r][c];
            v = beta2 * v + (1.0f - beta2) * g * g;
            step.of[r][c] = rate * momentum.of[r][c] / (sqrtf(v) * root_scale + epsilon);
        }
    for_each(step, q.n_rows, q.n_columns, tile.row, tile.column,
             [&](int i, int j, float value) { q.step[(size_t)i * q.n_columns + j] = value; });
}

static __global__ void __launch_bounds__(THREADS) soap_return(gpu_optimizer o, gpu_soap soap)
{
    wait_for_previous();
    let_next_start();
    const gpu_soap_tile tile = soap.tiles[soap.first[GPU_SOAP_RETURN] + (int)blockIdx.x];
    const gpu_soap_matrix &q = soap.matrices[tile.matrix];
    if (scale_of(o) == 0) return;
    const tile_sum sum =
        product({q.left.basis, q.n_rows, q.left.ld, 1}, {q.step, q.n_columns, 1, q.n_columns}, q.n_rows, tile.row, tile.column);
    for_each(sum, q.n_rows, q.n_columns, tile.row, tile.column,
             [&](int i, int j, float value) { q.moved[(size_t)i * q.n_columns + j] = value; });
}

static __global__ void __launch_bounds__(THREADS) soap_move(gpu_optimizer o, gpu_soap soap)
{
    wait_for_previous();
    let_next_start();
    const gpu_soap_tile tile = soap.tiles[soap.first[GPU_SOAP_MOVE] + (int)blockIdx.x];
    const gpu_soap_matrix &q = soap.matrices[tile.matrix];
    if (scale_of(o) == 0) return;
    const float *x = q.moved ? q.moved : q.step;
    const tile_sum sum = q.right.basis ? product({x, q.n_rows, q.n_columns, 1}, {q.right.basis, q.n_columns, q.right.ld, 1},
                                                 q.n_columns, tile.row, tile.column)
                                       : tile_of(x, q.n_rows, q.n_columns, tile.row, tile.column);
    const gpu_train_call &call = *o.branch[0].call;
    const float keep = (float)(1 - call.learning_rate * call.weight_decay), follow = (float)(1 - call.average);
    for_each(sum, q.n_rows, q.n_columns, tile.row, tile.column, [&](int i, int j, float value) {
        const size_t k = (size_t)q.offset + (size_t)i * q.n_columns + j;
        const float w = keep * o.weights[k] - value;
        o.weights[k] = w;
        o.average[k] += follow * (w - o.average[k]);
    });
}

// Every thread adds up the same numbers in the same order.
static __device__ float trace_of(const gpu_soap_side &side)
{
    float trace = 0;
    for (int i = 0; i < side.n; i++) trace += side.covariance[(size_t)i * side.ld + i];
    return trace;
}

static __global__ void __launch_bounds__(THREADS) soap_grow(gpu_optimizer o, gpu_soap soap)
{
    wait_for_previous();
    let_next_start();
    const gpu_soap_tile tile = soap.tiles[soap.first[GPU_SOAP_GROW] + (int)blockIdx.x];
    const gpu_soap_matrix &q = soap.matrices[tile.matrix];
    const gpu_soap_side &side = tile.task == GPU_SOAP_LEFT_NEXT ? q.left : q.right;
    if (scale_of(o) == 0) return;
    const tile_sum sum =
        product({side.covariance, side.n, side.ld, 1}, {side.basis, side.n, 1, side.ld}, side.n, tile.row, tile.column);
    const float trace = trace_of(side), factor_of_sum = trace > 0 ? (float)side.n / trace : 0.0f;
    const float shift = trace > 0 ? SHIFT : 1.0f; // without a gradient so far the basis stays
    for_each(sum, side.n, side.n, tile.row, tile.column, [&](int i, int j, float value) {
        const size_t k = (size_t)i * side.ld + j;
        side.next[k] = factor_of_sum * value + shift * side.basis[k];
    });
}

// Modified Gram-Schmidt of the columns of a square, twice. A thread has ROWS elements of a column, eight neighboring threads the
// column; the column whose turn it is goes through shared memory, in turns of two places, so that one barrier a column suffices.
enum { GROUPS = 8, TURN_THREADS = GPU_SOAP_MAX_SIDE * GROUPS };

template <int ROWS>
static __device__ __forceinline__ void orthonormalize(const gpu_soap_side &side, float (*shared)[GPU_SOAP_MAX_SIDE])
{
    const int column = (int)threadIdx.x / GROUPS, first = (int)threadIdx.x % GROUPS * ROWS;
    float z[ROWS];
    for (int r = 0; r < ROWS; r++)
        z[r] = column < side.n && first + r < side.n ? side.next[(size_t)(first + r) * side.ld + column] : 0.0f;
    for (int pass = 0; pass < 2; pass++) {
        if (column == 0)
            for (int r = 0; r < ROWS; r++) shared[0][first + r] = z[r];
        for (int turn = 0; turn < side.n; turn++) {
            __syncthreads();
            float x[ROWS], dot[4] = {}, square[4] = {};
            for (int r = 0; r < ROWS; r++) {
                x[r] = shared[turn % 2][first + r];
                dot[r % 4] += x[r] * z[r];
                square[r % 4] += x[r] * x[r];
            }
            float d = (dot[0] + dot[1]) + (dot[2] + dot[3]), s = (square[0] + square[1]) + (square[2] + square[3]);
            for (int offset = GROUPS / 2; offset > 0; offset /= 2) {
                d += __shfl_xor_sync(0xffffffffu, d, offset);
                s += __shfl_xor_sync(0xffffffffu, s, offset);
            }
            const float along = s > 0 ? d / s : 0.0f, unit = s > 0 ? 1.0f / sqrtf(s) : 1.0f;
            for (int r = 0; r < ROWS; r++) z[r] = column > turn ? z[r] - along * x[r] : column == turn ? unit * z[r] : z[r];
            if (column == turn + 1)
                for (int r = 0; r < ROWS; r++) shared[(turn + 1) % 2][first + r] = z[r];
        }
        __syncthreads();
    }
    for (int r = 0; r < ROWS; r++)
        if (column < side.n && first + r < side.n) side.basis[(size_t)(first + r) * side.ld + column] = z[r];
}

static __global__ void __launch_bounds__(TURN_THREADS) soap_turn(gpu_optimizer o, gpu_soap soap)
{
    __shared__ float shared[2][GPU_SOAP_MAX_SIDE];
    wait_for_previous();
    let_next_start();
    const gpu_soap_tile tile = soap.tiles[soap.first[GPU_SOAP_TURN] + (int)blockIdx.x];
    const gpu_soap_matrix &q = soap.matrices[tile.matrix];
    const gpu_soap_side &side = tile.task == GPU_SOAP_LEFT_BASIS ? q.left : q.right;
    if (scale_of(o) == 0) return;
    if (2 * side.n <= GPU_SOAP_MAX_SIDE)
        orthonormalize<GPU_SOAP_MAX_SIDE / 2 / GROUPS>(side, shared);
    else
        orthonormalize<GPU_SOAP_MAX_SIDE / GROUPS>(side, shared);
}

extern "C" int gpu_launch_soap(const gpu_optimizer *optimizer, const gpu_soap *soap, int refresh, int overlap, void *stream)
{
    static void (*const kernels[])(gpu_optimizer, gpu_soap) = {soap_rotate, soap_scale, soap_return,
                                                               soap_move,   soap_grow,  soap_turn};
    for (int k = 0; k < GPU_SOAP_KERNELS; k++) {
        const int n_blocks = soap->first[k + 1] - soap->first[k];
        if (n_blocks == 0 || (k >= GPU_SOAP_GROW && !refresh)) continue;
        const int error = launch(kernels[k], n_blocks, k == GPU_SOAP_TURN ? (int)TURN_THREADS : (int)THREADS, 0, 1, overlap,
                                 stream, *optimizer, *soap);
        if (error) return error;
    }
    return 0;
}
