// SPDX-License-Identifier: MIT
// optimizer.cu: from partial sums to new weights.
//
//   g = Σ partial sums          in the order of layers and splits
//   g ← g · min(1, clip / |g|)
//   m ← β₁ m + (1 − β₁) g ;  v ← β₂ v + (1 − β₂) g²
//   w ← w (1 − rate · decay) − rate · m/(1 − β₁ᵗ) / (√(v/(1 − β₂ᵗ)) + ε)          AdamW
//   w̃ ← w̃ + (1 − average) (w − w̃)
//
// Four threads add up the partial sums of an element, a quarter of them each. Sums of squares by blocks, added by every block of the
// update in the same order, so that equal inputs give equal bits. Bound by memory: five vectors of weights and the partial sums.
#include "gpu/ptx/primitives.cuh"
#include "gpu/train/gpu_train.h"

enum { THREADS = 256, QUARTERS = 4, SUM_THREADS = QUARTERS * GPU_GRADIENT_BLOCK, MOST_UPDATE_BLOCKS = 264 };

// Sum over a block of N threads, the same in all threads; any number of calls.
template <int N> static __device__ double block_sum(double value)
{
    __shared__ double sums[N / 32];
    __syncthreads();
    for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
    __syncthreads();
    value = 0;
    for (int w = 0; w < N / 32; w++) value += sums[w];
    return value;
}

// One quarter of the partial sums of each source.
static __device__ float sum_of_sources(const gpu_gradient_part &part, const gpu_train_call &call, size_t place, int quarter)
{
    float sum = 0;
    for (int s = 0; s < part.n_sources; s++) {
        const gpu_gradient_source &source = part.source[s];
        const int rows = call.n_atoms * source.rows_per_atom;
        const int n = source.rows_per_sum ? (rows + source.rows_per_sum - 1) / source.rows_per_sum : source.n_sums;
        const float *from = source.partial + place;
        const int end = n * (quarter + 1) / QUARTERS;
#pragma unroll 16
        for (int k = n * quarter / QUARTERS; k < end; k++) sum += from[k * source.stride];
    }
    return sum;
}

static __global__ void __launch_bounds__(SUM_THREADS) gradient_sums(gpu_optimizer o)
{
    __shared__ float quarters[QUARTERS][GPU_GRADIENT_BLOCK];
    wait_for_previous();
    let_next_start();
    int p = 0, high = o.n_parts; // the last part that begins with this block or before
    while (high - p > 1) {
        const int middle = (p + high) / 2;
        if (o.parts[middle].first_block <= (int)blockIdx.x)
            p = middle;
        else
            high = middle;
    }
    const gpu_gradient_part &part = o.parts[p];
    const int k = (int)threadIdx.x % GPU_GRADIENT_BLOCK, quarter = (int)threadIdx.x / GPU_GRADIENT_BLOCK;
    const int element = ((int)blockIdx.x - part.first_block) * GPU_GRADIENT_BLOCK + k;
    const bool there = element < part.n_rows * part.n_columns, by_rows = part.partial_row_stride == 1;
    // Neighboring threads read neighboring places of a partial sum.
    const int r = by_rows ? element % part.n_rows : element / part.n_columns;
    const int c = by_rows ? element / part.n_rows : element % part.n_columns;
    const size_t place = (size_t)c * part.column_stride + (size_t)r * part.partial_row_stride;
    quarters[quarter][k] = there ? sum_of_sources(part, *o.call, place, quarter) : 0.0f;
    __syncthreads();
    float g = 0;
    if (quarter == 0 && there) {
        for (int q = 0; q < QUARTERS; q++) g += quarters[q][k];
        o.gradient[part.offset + (int64_t)r * part.row_stride + c] = g;
    }
    const double square = block_sum<SUM_THREADS>((double)g * g);
    if (threadIdx.x == 0) o.squares[blockIdx.x] = square;
    if (blockIdx.x > 0) return;
    double loss = 0;
    for (int f = (int)threadIdx.x; f < o.call->n_frames; f += SUM_THREADS) loss += o.frame_sums[(size_t)f * GPU_TRAIN_FRAME_SUMS];
    loss = block_sum<SUM_THREADS>(loss);
    if (threadIdx.x == 0) *o.loss = loss;
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

// By the first block: this step's errors.
static __device__ void add_sums(const gpu_optimizer &o, bool finite)
{
    double *to = (double *)o.sums;
    for (int field = 0; field < GPU_TRAIN_FRAME_SUMS; field++) {
        double sum = 0;
        for (int k = (int)threadIdx.x; k < o.call->n_frames; k += THREADS)
            sum += o.frame_sums[(size_t)k * GPU_TRAIN_FRAME_SUMS + field];
        sum = block_sum<THREADS>(sum);
        if (threadIdx.x == 0) to[field] += sum;
    }
    if (threadIdx.x > 0) return;
    o.sums->n_steps += 1;
    o.sums->n_frames += o.call->n_frames;
    o.sums->n_atoms += o.call->n_atoms;
    o.sums->n_failed += finite ? 0 : 1;
}

static __device__ __forceinline__ void update_weight(const gpu_optimizer &o, const gpu_train_call &call, double scale, int64_t k)
{
    const float g = (float)(scale * o.gradient[k]);
    const float m = (float)(call.beta1 * o.m[k] + (1 - call.beta1) * g);
    const float v = (float)(call.beta2 * o.v[k] + (1 - call.beta2) * ((double)g * g));
    const double keep = o.decays[k] ? 1 - call.learning_rate * call.weight_decay : 1.0;
    const float w =
        (float)(keep * o.weights[k] - call.learning_rate * (m / call.correction1) / (sqrt(v / call.correction2) + call.epsilon));
    o.m[k] = m;
    o.v[k] = v;
    o.weights[k] = w;
    o.average[k] = (float)(o.average[k] + (1 - call.average) * ((double)w - o.average[k]));
}

static __global__ void __launch_bounds__(THREADS) update_weights(gpu_optimizer o)
{
    wait_for_previous();
    let_next_start();
    const gpu_train_call &call = *o.call;
    double square = 0;
    for (int k = (int)threadIdx.x; k < o.n_blocks; k += THREADS) square += o.squares[k];
    square = block_sum<THREADS>(square);
    const bool finite = isfinite(square) && isfinite(*o.loss);
    if (blockIdx.x == 0) add_sums(o, finite);
    if (!finite) return;
    const double norm = sqrt(square), scale = call.clip > 0 && norm > call.clip ? call.clip / norm : 1.0;
    for (int64_t k = (int64_t)blockIdx.x * THREADS + threadIdx.x; k < o.n; k += (int64_t)gridDim.x * THREADS)
        update_weight(o, call, scale, k);
}

static __global__ void __launch_bounds__(THREADS) count_step(gpu_optimizer o)
{
    wait_for_previous();
    let_next_start();
    double loss = 0;
    for (int k = (int)threadIdx.x; k < o.call->n_frames; k += THREADS) loss += o.frame_sums[(size_t)k * GPU_TRAIN_FRAME_SUMS];
    loss = block_sum<THREADS>(loss);
    add_sums(o, isfinite(loss));
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
    const int64_t blocks = (optimizer->n + THREADS - 1) / THREADS;
    return launch(update_weights, blocks < MOST_UPDATE_BLOCKS ? (int)blocks : (int)MOST_UPDATE_BLOCKS, THREADS, 0, 1, overlap,
                  stream, *optimizer);
}

extern "C" int gpu_launch_count(const gpu_optimizer *optimizer, int overlap, void *stream)
{
    return launch(count_step, 1, THREADS, 0, 1, overlap, stream, *optimizer);
}
