// SPDX-License-Identifier: MIT
// optimizer.cu: from partial sums to new weights.
//
//   g = Σ partial sums          in the order of layers and splits
//   g ← g · min(1, clip / |g|)
//   m ← β₁ m + (1 − β₁) g ;  v ← β₂ v + (1 − β₂) g²
//   w ← w (1 − rate · decay) − rate · m/(1 − β₁ᵗ) / (√(v/(1 − β₂ᵗ)) + ε)          AdamW
//   w̃ ← w̃ + (1 − average) (w − w̃)
//
// Of weights that SOAP updates, m alone (soap.cu follows).
//
// A thread adds up the partial sums of four elements, or where they are many a sixteenth of them. Sums of squares by blocks, added by every block of the
// update in the same order, so that equal inputs give equal bits. Bound by memory: five vectors of weights and the partial sums.
#include "gpu/ptx/primitives.cuh"
#include "gpu/train/gpu_train.h"

enum { THREADS = 256, SUM_THREADS = GPU_GRADIENT_THREADS };

static_assert((int)GPU_TRAIN_SHARED == (int)LAUNCH_SHARED, "bits of a launch");

// Sum over a block of N threads, the same in all threads; any number of calls.
template <int N> static __device__ double block_sum(double value)
{
    __shared__ double sums[N / 32];
    __syncthreads();
    for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
    __syncthreads();
    value = threadIdx.x % 32 < N / 32 ? sums[threadIdx.x % 32] : 0;
    for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
    return value;
}

// One share of the partial sums of each source, of four neighbors. `place`: of the first of them in a partial sum.
static __device__ __forceinline__ float4 sum_of_sources(const gpu_gradient_part &part, const int *n_atoms, size_t place,
                                                        int share)
{
    float4 sum = make_float4(0, 0, 0, 0);
    for (int s = 0; s < part.n_sources; s++) {
        const gpu_gradient_source &source = part.source[s];
        const int atoms = n_atoms[source.branch], rows = atoms * source.rows_per_atom;
        const int n = source.rows_per_sum ? (rows + source.rows_per_sum - 1) / source.rows_per_sum : atoms ? source.n_sums : 0;
        const int first = part.n_shares > 1 ? n * share / GPU_GRADIENT_SHARES : 0;
        const int end = part.n_shares > 1 ? n * (share + 1) / GPU_GRADIENT_SHARES : n;
        const float *from = source.partial + place + first * source.stride;
#pragma unroll 4
        for (int k = first; k < end; k++, from += source.stride) sum = sum + *(const float4 *)from;
    }
    return sum;
}

// Writes elements `first` … of a part, as many as it has, at most four; returns the sum of their squares.
static __device__ __forceinline__ double write_gradient(float *gradient, const gpu_gradient_part &part, int first,
                                                        const float4 &sum)
{
    const int rows = part.n_rows, left = rows * part.n_columns - first;
    const float v[4] = {sum.x, sum.y, sum.z, sum.w};
    double square = 0;
    for (int k = 0; k < 4; k++) square += k < left ? (double)v[k] * v[k] : 0;
    if (rows > 1) {
        float *to = gradient + part.offset + first % rows * part.n_columns + first / rows;
        for (int k = 0; k < 4; k++) to[k * part.n_columns] = v[k];
    } else if (left >= 4) {
        *(float4 *)(gradient + part.offset + first) = sum;
    } else {
        for (int k = 0; k < left; k++) gradient[part.offset + first + k] = v[k];
    }
    return square;
}

// The part of a block of gradient_sums, for all its threads.
static __device__ __forceinline__ const gpu_gradient_part &part_of_block(const gpu_optimizer &o)
{
    __shared__ int part;
    for (int p = (int)threadIdx.x; p < o.n_parts; p += SUM_THREADS)
        if (o.parts[p].first_block <= (int)blockIdx.x && (p + 1 == o.n_parts || (int)blockIdx.x < o.parts[p + 1].first_block))
            part = p;
    __syncthreads();
    return o.parts[part];
}

// Frame sums are those of an earlier kernel.
template <int N> static __device__ __forceinline__ double sum_of_losses(const gpu_optimizer &o)
{
    double loss = 0;
    for (int b = 0; b < o.n_branches; b++)
        for (int k = (int)threadIdx.x; k < o.branch[b].call->n_frames; k += N)
            loss += o.branch[b].frame_sums[(size_t)k * GPU_TRAIN_FRAME_SUMS];
    return block_sum<N>(loss);
}

static __global__ void __launch_bounds__(SUM_THREADS, 4) gradient_sums(gpu_optimizer o)
{
    __shared__ float4 sums[SUM_THREADS];
    __shared__ int n_atoms[GPU_TRAIN_BRANCHES];
    if ((int)threadIdx.x < o.n_branches) n_atoms[threadIdx.x] = o.branch[threadIdx.x].call->n_atoms;
    const gpu_gradient_part &part = part_of_block(o); // tables are the same in each step
    const int lanes = part.n_shares > 1 ? SUM_THREADS / GPU_GRADIENT_SHARES : SUM_THREADS;
    const int lane = (int)threadIdx.x % lanes, share = (int)threadIdx.x / lanes;
    const int first = (((int)blockIdx.x - part.first_block) * lanes + lane) * 4;
    const bool there = first < part.n_rows * part.n_columns;
    if (blockIdx.x == 0) {
        const double loss = sum_of_losses<SUM_THREADS>(o);
        if (threadIdx.x == 0) *o.loss = loss;
    }
    wait_for_previous();
    let_next_start();
    float4 sum = there ? sum_of_sources(part, n_atoms, (size_t)first, share) : make_float4(0, 0, 0, 0);
    if (part.n_shares > 1) {
        sums[threadIdx.x] = sum;
        __syncthreads();
        for (int k = 1; k < GPU_GRADIENT_SHARES && share == 0; k++) sum = sum + sums[k * lanes + lane];
    }
    double square = there && share == 0 ? write_gradient(o.gradient, part, first, sum) : 0;
    square = block_sum<SUM_THREADS>(square);
    if (threadIdx.x == 0) o.squares[blockIdx.x] = square;
}

static __global__ void __launch_bounds__(THREADS) squares(gpu_optimizer o)
{
    wait_for_previous();
    let_next_start();
    const int64_t each = (o.n + gridDim.x - 1) / gridDim.x, first = blockIdx.x * each,
                  last = first + each < o.n ? first + each : o.n;
    double sum = 0;
    for (int64_t k = first + threadIdx.x; k < last; k += THREADS) sum += (double)o.gradient[k] * o.gradient[k];
    sum = block_sum<THREADS>(sum);
    if (threadIdx.x == 0) o.squares[blockIdx.x] = sum;
}

// By the first block: this step's errors, a warp for each field. They are results of earlier kernels than the previous one.
static __device__ void add_errors(const gpu_optimizer &o)
{
    double *to = (double *)o.sums;
    const int lane = (int)threadIdx.x % 32;
    for (int field = (int)threadIdx.x / 32; field < GPU_TRAIN_FRAME_SUMS; field += THREADS / 32) {
        double sum = 0;
        for (int b = 0; b < o.n_branches; b++) {
            const double *from = o.branch[b].frame_sums + field;
            const int n = o.branch[b].call->n_frames;
#pragma unroll 8
            for (int k = lane; k < n; k += 32) sum += from[(size_t)k * GPU_TRAIN_FRAME_SUMS];
        }
        for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
        if (lane == 0) to[field] += sum;
    }
}

static __device__ void count(const gpu_optimizer &o, bool finite)
{
    if (threadIdx.x > 0) return;
    o.sums->n_steps += 1;
    for (int b = 0; b < o.n_branches; b++) {
        o.sums->n_frames += o.branch[b].call->n_frames;
        o.sums->n_atoms += o.branch[b].call->n_atoms;
    }
    o.sums->n_failed += finite ? 0 : 1;
}

// What the update reads of four weights besides their gradient. None of it is written by the kernels of a gradient.
struct weight_state {
    float4 weight, average, m, v;
    uint32_t rules; // a byte each
};

static __device__ __forceinline__ void update_weight(const gpu_train_call &call, double scale, float rate, float correction,
                                                     float gradient, uint32_t rules, float &weight, float &average, float &m_of,
                                                     float &v_of)
{
    const float g = (float)(scale * gradient);
    const float m = (float)(call.beta1 * m_of + (1 - call.beta1) * g);
    m_of = m;
    if (rules & GPU_OF_SOAP) return;
    const float v = (float)(call.beta2 * v_of + (1 - call.beta2) * ((double)g * g));
    const double keep = rules & GPU_DECAYS ? 1 - call.learning_rate * call.weight_decay : 1.0;
    const float step = rate * m / (sqrtf(v * correction) + (float)call.epsilon), w = (float)(keep * weight - step);
    v_of = v;
    weight = w;
    average = (float)(average + (1 - call.average) * ((double)w - average));
}

// A thread has four weights; the vectors of weights end at a multiple of four.
static __global__ void __launch_bounds__(THREADS, 5) update_weights(gpu_optimizer o)
{
    const int64_t k = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    const bool there = 4 * k < o.n;
    weight_state s = {};
    if (there)
        s = {((const float4 *)o.weights)[k], ((const float4 *)o.average)[k], ((const float4 *)o.m)[k], ((const float4 *)o.v)[k],
             ((const uint32_t *)o.rules)[k]};
    if (blockIdx.x == 0) add_errors(o);
    wait_for_previous();
    let_next_start();
    const gpu_train_call &call = *o.branch[0].call;
    const float4 g = there ? ((const float4 *)o.gradient)[k] : make_float4(0, 0, 0, 0);
    double square = 0;
    for (int block = (int)threadIdx.x; block < o.n_blocks; block += THREADS) square += o.squares[block];
    square = block_sum<THREADS>(square);
    const bool finite = isfinite(square) && isfinite(*o.loss);
    const double norm = sqrt(square), scale = call.clip > 0 && norm > call.clip ? call.clip / norm : 1.0;
    if (blockIdx.x == 0) count(o, finite);
    if (blockIdx.x == 0 && threadIdx.x == 0 && o.scale) *o.scale = finite ? (float)scale : 0.0f;
    if (!finite || !there) return;
    const float rate = (float)(call.learning_rate / call.correction1), correction = (float)(1 / call.correction2);
    update_weight(call, scale, rate, correction, g.x, s.rules, s.weight.x, s.average.x, s.m.x, s.v.x);
    update_weight(call, scale, rate, correction, g.y, s.rules >> 8, s.weight.y, s.average.y, s.m.y, s.v.y);
    update_weight(call, scale, rate, correction, g.z, s.rules >> 16, s.weight.z, s.average.z, s.m.z, s.v.z);
    update_weight(call, scale, rate, correction, g.w, s.rules >> 24, s.weight.w, s.average.w, s.m.w, s.v.w);
    ((float4 *)o.weights)[k] = s.weight;
    ((float4 *)o.average)[k] = s.average;
    ((float4 *)o.m)[k] = s.m;
    ((float4 *)o.v)[k] = s.v;
}

static __global__ void __launch_bounds__(THREADS) count_step(gpu_optimizer o)
{
    wait_for_previous();
    let_next_start();
    const double loss = sum_of_losses<THREADS>(o);
    add_errors(o);
    count(o, isfinite(loss));
}

extern "C" int gpu_launch_gradient_sums(const gpu_optimizer *optimizer, int overlap, void *stream)
{
    return launch(gradient_sums, optimizer->n_blocks, SUM_THREADS, 0, 1, overlap, stream, *optimizer);
}

extern "C" int gpu_launch_squares(const gpu_optimizer *optimizer, int overlap, void *stream)
{
    return launch(squares, optimizer->n_blocks, THREADS, 0, 1, overlap, stream, *optimizer);
}

extern "C" int gpu_launch_update(const gpu_optimizer *optimizer, int overlap, void *stream)
{
    return launch(update_weights, (int)((optimizer->n / 4 + THREADS - 1) / THREADS), THREADS, 0, 1, overlap, stream, *optimizer);
}

extern "C" int gpu_launch_count(const gpu_optimizer *optimizer, int overlap, void *stream)
{
    return launch(count_step, 1, THREADS, 0, 1, overlap, stream, *optimizer);
}
