// SPDX-License-Identifier: MIT
// soap.cu: weight matrices after a step of SOAP. g is the gradient times the clipping's scale; M has it already (optimizer.cu).
//
//   rotate   Q_Lᵀ g, Q_Lᵀ M; g gᵀ, gᵀ g
//   scale    g' = (Q_Lᵀ g) Q_R, M' = (Q_Lᵀ M) Q_R;  V ← β₂ V + (1 − β₂) g'²;  N = rate · M'/(1 − β₁ᵗ) / (√(V/(1 − β₂ᵗ)) + ε)
//            L ← s L + (1 − s) g gᵀ,  R ← s R + (1 − s) gᵀ g
//   return   Q_L N
//   move     w ← w (1 − rate · decay) − (Q_L N) Q_Rᵀ;  w̃ ← w̃ + (1 − average) (w − w̃)
//   grow     Z = (n/tr C) C Q + 1e-7 Q      every some steps, of both sides; C the covariances of this step
//   turn     Q = Z, orthonormalized
//
// A block has a tile of one matrix, a thread 2 × 2 elements of it; sums over the inner dimension, 128 at most, are in order, so that equal
// inputs give equal bits. The first four kernels are a wave or a few of blocks that wait for memory once or twice.
#include "gpu/ptx/primitives.cuh"
#include "gpu/train/gpu_soap.h"

enum { THREADS = 256, TILE = GPU_SOAP_TILE, INNER = 64, R = 2 };
#define SHIFT 1e-7f // SOAP_SHIFT: no column vanishes

// Element (i, k) of a left factor, (k, i) of a right one, i < n: at[i + k · ld] where OUTER, else at[i · ld + k].
template <bool OUTER> struct factor {
    const float *at;
    int n, ld;
};

// Where the elements of a thread begin in its tile.
static __device__ __forceinline__ int row_of_thread()
{
    return (int)threadIdx.x / (TILE / R) * R;
}

static __device__ __forceinline__ int column_of_thread()
{
    return (int)threadIdx.x % (TILE / R) * R;
}

struct elements {
    float of[R][R];
};

struct alignas(4 * R) neighbors {
    float of[R];
};

// INNER × TILE elements of a factor on their way to shared memory, neighbors in memory by neighboring threads.
struct staged {
    enum { EACH = TILE * INNER / THREADS };
    float value[EACH];

    template <bool OUTER> __device__ __forceinline__ void load(const factor<OUTER> &f, int first, int k_first, int n_inner)
    {
        const int fast = (int)threadIdx.x % (OUTER ? TILE : INNER), slow = (int)threadIdx.x / (OUTER ? TILE : INNER);
        const int each = THREADS / (OUTER ? TILE : INNER), i = first + (OUTER ? fast : slow), k = k_first + (OUTER ? slow : fast);
        const float *from = f.at + (OUTER ? i + k * f.ld : i * f.ld + k);
#pragma unroll
        for (int q = 0; q < EACH; q++, from += each * f.ld) {
            const bool there = OUTER ? i < f.n && k + q * each < n_inner : i + q * each < f.n && k < n_inner;
            value[q] = there ? *from : 0.0f;
        }
    }

    template <bool OUTER> __device__ __forceinline__ void store(const factor<OUTER> &, float (*to)[TILE + 4]) const
    {
        const int fast = (int)threadIdx.x % (OUTER ? TILE : INNER), slow = (int)threadIdx.x / (OUTER ? TILE : INNER);
        const int each = THREADS / (OUTER ? TILE : INNER);
#pragma unroll
        for (int q = 0; q < EACH; q++) to[OUTER ? slow + q * each : fast][OUTER ? fast : slow + q * each] = value[q];
    }
};

// sum[n] = the thread's elements of a[n] b, of N left factors of the same form.
template <int N, bool A, bool B>
static __device__ __forceinline__ void product(const factor<A> (&a)[N], const factor<B> &b, int n_inner, int row, int column,
                                               elements (&sum)[N])
{
    alignas(16) __shared__ float left[N][INNER][TILE + 4], right[INNER][TILE + 4];
    const int i = row_of_thread(), j = column_of_thread();
    staged next[N], next_right;
    for (int n = 0; n < N; n++) {
        sum[n] = {};
        next[n].load(a[n], row, 0, n_inner);
    }
    next_right.load(b, column, 0, n_inner);
    for (int k = 0; k < n_inner; k += INNER) {
        __syncthreads();
        for (int n = 0; n < N; n++) next[n].store(a[n], left[n]);
        next_right.store(b, right);
        __syncthreads();
        if (k + INNER < n_inner) {
            for (int n = 0; n < N; n++) next[n].load(a[n], row, k + INNER, n_inner);
            next_right.load(b, column, k + INNER, n_inner);
        }
#pragma unroll 8
        for (int l = 0; l < INNER; l++) {
            const neighbors y = *(const neighbors *)&right[l][j];
#pragma unroll
            for (int n = 0; n < N; n++) {
                const neighbors x = *(const neighbors *)&left[n][l][i];
#pragma unroll
                for (int r = 0; r < R; r++)
#pragma unroll
                    for (int c = 0; c < R; c++) sum[n].of[r][c] += x.of[r] * y.of[c];
            }
        }
    }
}

// x = change(x, …) of each element, of as many matrices as are given.
template <typename Change, typename... More>
static __device__ __forceinline__ void for_each(Change change, elements &x, More &...more)
{
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int c = 0; c < R; c++) change(x.of[r][c], more.of[r][c]...);
}

// The thread's elements of a matrix in memory, 0 beyond it: requested together, before any is stored.
static __device__ __forceinline__ elements load_elements(const float *from, int ld, int n_rows, int n_columns, int row,
                                                         int column)
{
    const int i = row + row_of_thread(), j = column + column_of_thread();
    elements x;
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int c = 0; c < R; c++) x.of[r][c] = i + r < n_rows && j + c < n_columns ? from[(i + r) * ld + j + c] : 0.0f;
    return x;
}

static __device__ __forceinline__ void store_elements(const elements &x, float *to, int ld, int n_rows, int n_columns, int row,
                                                      int column)
{
    const int i = row + row_of_thread(), j = column + column_of_thread();
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int c = 0; c < R; c++)
            if (i + r < n_rows && j + c < n_columns) to[(i + r) * ld + j + c] = x.of[r][c];
}

// What a block has to do. Tables are the same in each step: they are read before the previous kernel ends.
struct job {
    gpu_soap_tile tile;
    const gpu_soap_matrix &q;
};

static __device__ __forceinline__ job job_of(const gpu_soap &soap, int kernel)
{
    const gpu_soap_tile tile = soap.tiles[soap.first[kernel] + (int)blockIdx.x];
    const gpu_soap_matrix &q = soap.matrices[tile.matrix];
    wait_for_previous();
    let_next_start();
    return {tile, q};
}

// A part of G Gᵀ (LEFT) or Gᵀ G.
template <bool LEFT>
static __device__ __forceinline__ void sample(const float *g, const gpu_soap_matrix &q, const gpu_soap_tile &tile)
{
    const gpu_soap_side &side = LEFT ? q.left : q.right;
    const int first = tile.sample * GPU_SOAP_MAX_INNER, rest = (LEFT ? q.n_columns : q.n_rows) - first;
    const factor<!LEFT> f[1] = {{g + (LEFT ? first : first * q.n_columns), side.n, q.n_columns}};
    elements sum[1];
    product(f, f[0], rest < GPU_SOAP_MAX_INNER ? rest : GPU_SOAP_MAX_INNER, tile.row, tile.column, sum);
    float *to = side.sample + tile.sample * side.n * side.ld;
    store_elements(sum[0], to, side.ld, side.n, side.n, tile.row, tile.column);
}

static __global__ void __launch_bounds__(THREADS, 4) soap_rotate(gpu_optimizer o, gpu_soap soap)
{
    const job block = job_of(soap, GPU_SOAP_ROTATE);
    const gpu_soap_matrix &q = block.q;
    const gpu_soap_tile &tile = block.tile;
    if (tile.task == GPU_SOAP_LEFT_SAMPLE) return sample<true>(o.gradient + q.offset, q, tile);
    if (tile.task == GPU_SOAP_RIGHT_SAMPLE) return sample<false>(o.gradient + q.offset, q, tile);
    const bool of_gradient = tile.task == GPU_SOAP_LEFT_GRADIENT;
    const factor<true> basis[1] = {{q.left.basis, q.n_rows, q.left.ld}};
    const factor<true> x = {(of_gradient ? o.gradient : o.m) + q.offset, q.n_columns, q.n_columns};
    float *to = of_gradient ? q.gradient : q.momentum;
    elements sum[1];
    product(basis, x, q.n_rows, tile.row, tile.column, sum);
    store_elements(sum[0], to, q.n_columns, q.n_rows, q.n_columns, tile.row, tile.column);
}

// The mean of a covariance takes this step's samples.
static __device__ __forceinline__ void update_covariance(const gpu_train_call &call, float scale, const gpu_soap_side &side,
                                                         const gpu_soap_tile &tile)
{
    const float keep = (float)call.soap_decay, take = (float)(1 - call.soap_decay) * scale * scale;
    elements sum = {}, covariance = load_elements(side.covariance, side.ld, side.n, side.n, tile.row, tile.column);
    for (int k = 0; k < side.n_samples; k++) {
        elements sample = load_elements(side.sample + k * side.n * side.ld, side.ld, side.n, side.n, tile.row, tile.column);
        for_each([](float &to, float x) { to += x; }, sum, sample);
    }
    for_each([&](float &c, float x) { c = keep * c + take * x; }, covariance, sum);
    store_elements(covariance, side.covariance, side.ld, side.n, side.n, tile.row, tile.column);
}

// sum[n] = x[n] Q, or of Qᵀ; x[n] itself without a basis.
template <bool TRANSPOSED, int N>
static __device__ __forceinline__ void times_right(const gpu_soap_matrix &q, const float *const (&x)[N],
                                                   const gpu_soap_tile &tile, elements (&sum)[N])
{
    const gpu_soap_side &side = q.right;
    if (!side.basis) {
        for (int n = 0; n < N; n++) sum[n] = load_elements(x[n], q.n_columns, q.n_rows, q.n_columns, tile.row, tile.column);
        return;
    }
    factor<false> a[N];
    for (int n = 0; n < N; n++) a[n] = {x[n], q.n_rows, q.n_columns};
    const factor<!TRANSPOSED> basis = {side.basis, q.n_columns, side.ld};
    product(a, basis, q.n_columns, tile.row, tile.column, sum);
}

static __global__ void __launch_bounds__(THREADS, 4) soap_scale(gpu_optimizer o, gpu_soap soap)
{
    const job block = job_of(soap, GPU_SOAP_SCALE);
    const gpu_soap_matrix &q = block.q;
    const gpu_soap_tile &tile = block.tile;
    const gpu_train_call &call = *o.branch[0].call;
    const float scale = *o.scale; // 0: the step is not finite and changes nothing
    if (scale == 0) return;
    if (tile.task == GPU_SOAP_LEFT_COVARIANCE) return update_covariance(call, scale, q.left, tile);
    if (tile.task == GPU_SOAP_RIGHT_COVARIANCE) return update_covariance(call, scale, q.right, tile);
    const float *const from[2] = {q.gradient ? q.gradient : o.gradient + q.offset, q.momentum ? q.momentum : o.m + q.offset};
    elements rotated[2], v = load_elements(o.v + q.offset, q.n_columns, q.n_rows, q.n_columns, tile.row, tile.column);
    times_right<false>(q, from, tile, rotated);
    const float beta2 = (float)call.beta2, epsilon = (float)call.epsilon;
    const float rate = (float)(call.learning_rate / call.correction1), root_scale = (float)(1 / sqrt(call.correction2));
    for_each(
        [&](float &square, float gradient, float &m) {
            const float g = scale * gradient;
            square = beta2 * square + (1.0f - beta2) * g * g;
            m = rate * m / (sqrtf(square) * root_scale + epsilon);
        },
        v, rotated[0], rotated[1]);
    store_elements(v, o.v + q.offset, q.n_columns, q.n_rows, q.n_columns, tile.row, tile.column);
    store_elements(rotated[1], q.step, q.n_columns, q.n_rows, q.n_columns, tile.row, tile.column);
}

static __global__ void __launch_bounds__(THREADS, 4) soap_return(gpu_optimizer o, gpu_soap soap)
{
    const job block = job_of(soap, GPU_SOAP_RETURN);
    const gpu_soap_matrix &q = block.q;
    const gpu_soap_tile &tile = block.tile;
    if (*o.scale == 0) return;
    const factor<false> basis[1] = {{q.left.basis, q.n_rows, q.left.ld}};
    const factor<true> step = {q.step, q.n_columns, q.n_columns};
    elements sum[1];
    product(basis, step, q.n_rows, tile.row, tile.column, sum);
    store_elements(sum[0], q.moved, q.n_columns, q.n_rows, q.n_columns, tile.row, tile.column);
}

static __global__ void __launch_bounds__(THREADS, 4) soap_move(gpu_optimizer o, gpu_soap soap)
{
    const job block = job_of(soap, GPU_SOAP_MOVE);
    const gpu_soap_matrix &q = block.q;
    const gpu_soap_tile &tile = block.tile;
    const gpu_train_call &call = *o.branch[0].call;
    if (*o.scale == 0) return;
    const float *const from[1] = {q.moved ? q.moved : q.step};
    elements sum[1], w = load_elements(o.weights + q.offset, q.n_columns, q.n_rows, q.n_columns, tile.row, tile.column);
    elements average = load_elements(o.average + q.offset, q.n_columns, q.n_rows, q.n_columns, tile.row, tile.column);
    times_right<true>(q, from, tile, sum);
    const float keep = (float)(1 - call.learning_rate * call.weight_decay), follow = (float)(1 - call.average);
    for_each(
        [&](float &weight, float step, float &mean) {
            weight = keep * weight - step;
            mean += follow * (weight - mean);
        },
        w, sum[0], average);
    store_elements(w, o.weights + q.offset, q.n_columns, q.n_rows, q.n_columns, tile.row, tile.column);
    store_elements(average, o.average + q.offset, q.n_columns, q.n_rows, q.n_columns, tile.row, tile.column);
}

// Every thread adds up the same numbers in the same order.
static __device__ float trace_of(const gpu_soap_side &side)
{
    float trace = 0;
#pragma unroll 16
    for (int i = 0; i < side.n; i++) trace += side.covariance[(size_t)i * side.ld + i];
    return trace;
}

static __global__ void __launch_bounds__(THREADS, 4) soap_grow(gpu_optimizer o, gpu_soap soap)
{
    const job block = job_of(soap, GPU_SOAP_GROW);
    const gpu_soap_side &side = block.tile.task == GPU_SOAP_LEFT_NEXT ? block.q.left : block.q.right;
    if (*o.scale == 0) return;
    const factor<false> covariance[1] = {{side.covariance, side.n, side.ld}};
    const factor<true> basis = {side.basis, side.n, side.ld};
    const int row = block.tile.row, column = block.tile.column;
    elements sum[1], old = load_elements(side.basis, side.ld, side.n, side.n, row, column);
    product(covariance, basis, side.n, row, column, sum);
    const float trace = trace_of(side), unit = trace > 0 ? (float)side.n / trace : 0.0f;
    const float shift = trace > 0 ? SHIFT : 1.0f; // without a gradient so far the basis stays
    for_each([&](float &z, float x) { z = unit * z + shift * x; }, sum[0], old);
    store_elements(sum[0], side.next, side.ld, side.n, side.n, row, column);
}

// Modified Gram-Schmidt of the columns of a square, twice. A thread has ROWS elements of a column, eight neighboring threads the
// column. The column whose turn it is goes, normalized, through one of two places in shared memory, so that one barrier a column
// suffices: what a step waits for is the next column, its dot product, its norm.
enum { GROUPS = 8 };

// Over the threads of a column.
static __device__ __forceinline__ float sum_of_column(const float (&part)[4])
{
    float sum = (part[0] + part[1]) + (part[2] + part[3]);
#pragma unroll
    for (int offset = GROUPS / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    return sum;
}

// By a whole warp; the threads with `turn` normalize their column and put it into `place`.
template <int ROWS> static __device__ __forceinline__ void publish(bool turn, float (&z)[ROWS], float4 *place)
{
    float square[4] = {};
#pragma unroll
    for (int r = 0; r < ROWS; r++) square[r % 4] += z[r] * z[r];
    const float sum = sum_of_column(square);
    if (!turn) return;
    const float unit = sum > 0 ? rsqrtf(sum) : 1.0f;
#pragma unroll
    for (int r = 0; r < ROWS; r++) z[r] *= unit;
#pragma unroll
    for (int r = 0; r < ROWS; r += 4) place[r / 4 * GROUPS] = make_float4(z[r], z[r + 1], z[r + 2], z[r + 3]);
}

template <int ROWS>
static __device__ __forceinline__ void orthonormalize(const gpu_soap_side &side, float4 (*shared)[GPU_SOAP_MAX_SIDE / 4])
{
    const int n = side.n, column = (int)threadIdx.x / GROUPS, group = (int)threadIdx.x % GROUPS, first = group * ROWS;
    const int last_of_warp = column | (32 / GROUPS - 1);
    float z[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) z[r] = column < n && first + r < n ? side.next[(size_t)(first + r) * side.ld + column] : 0.0f;
    for (int pass = 0; pass < 2; pass++) {
        if (threadIdx.x < 32) publish<ROWS>(column == 0, z, &shared[0][group]);
        for (int turn = 0; turn < n; turn++) {
            __syncthreads();
            if (last_of_warp <= turn) continue;
            float x[ROWS], dot[4] = {};
#pragma unroll
            for (int r = 0; r < ROWS; r += 4) {
                const float4 four = shared[turn % 2][r / 4 * GROUPS + group];
                x[r] = four.x, x[r + 1] = four.y, x[r + 2] = four.z, x[r + 3] = four.w;
            }
#pragma unroll
            for (int r = 0; r < ROWS; r++) dot[r % 4] += x[r] * z[r];
            const float sum = sum_of_column(dot), along = column > turn ? sum : 0.0f;
#pragma unroll
            for (int r = 0; r < ROWS; r++) z[r] -= along * x[r];
            if ((column & ~(32 / GROUPS - 1)) <= turn + 1) publish<ROWS>(column == turn + 1, z, &shared[(turn + 1) % 2][group]);
        }
        __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        if (column < n && first + r < n) side.basis[(size_t)(first + r) * side.ld + column] = z[r];
}

template <int SIDE> static __global__ void __launch_bounds__(SIDE *GROUPS) soap_turn(gpu_optimizer o, gpu_soap soap)
{
    __shared__ float4 shared[2][GPU_SOAP_MAX_SIDE / 4];
    const job block = job_of(soap, GPU_SOAP_TURN);
    if (*o.scale == 0) return;
    orthonormalize<SIDE / GROUPS>(block.tile.task == GPU_SOAP_LEFT_BASIS ? block.q.left : block.q.right, shared);
}

typedef void (*kernel)(gpu_optimizer, gpu_soap);
static const kernel kernels[] = {soap_rotate, soap_scale, soap_return, soap_move, soap_grow};

static int launch_tiles(const gpu_optimizer *optimizer, const gpu_soap *soap, int which, int overlap, void *stream)
{
    const int n_blocks = soap->first[which + 1] - soap->first[which];
    return n_blocks > 0 ? launch(kernels[which], n_blocks, (int)THREADS, 0, 1, overlap, stream, *optimizer, *soap) : 0;
}

extern "C" int gpu_launch_soap(const gpu_optimizer *optimizer, const gpu_soap *soap, int overlap, void *stream)
{
    int error = 0;
    for (int k = GPU_SOAP_ROTATE; k <= GPU_SOAP_MOVE && !error; k++) error = launch_tiles(optimizer, soap, k, overlap, stream);
    return error;
}

extern "C" int gpu_launch_soap_bases(const gpu_optimizer *optimizer, const gpu_soap *soap, void *stream)
{
    const int n_sides = soap->first[GPU_SOAP_TURN + 1] - soap->first[GPU_SOAP_TURN];
    const int side = soap->largest_side > GPU_SOAP_MAX_SIDE / 2 ? GPU_SOAP_MAX_SIDE : GPU_SOAP_MAX_SIDE / 2;
    const int error = launch_tiles(optimizer, soap, GPU_SOAP_GROW, 0, stream);
    if (error || n_sides == 0) return error;
    return launch(side == GPU_SOAP_MAX_SIDE ? soap_turn<GPU_SOAP_MAX_SIDE> : soap_turn<GPU_SOAP_MAX_SIDE / 2>, n_sides,
                  side * GROUPS, 0, 1, 0, stream, *optimizer, *soap);
}
