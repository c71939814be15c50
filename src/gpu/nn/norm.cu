// SPDX-License-Identifier: MIT
// norm.cu: norms and their reverse pass (norm.h), a warp for each row. Bound by memory.
#include "norm.cuh"

enum { WARPS = 4 };

template <int NUMBERS>
static __global__ void __launch_bounds__(32 * WARPS) norm_kernel(const __grid_constant__ gpu_norm call, int unused)
{
    wait_for_previous();
    let_next_start();
    if (call.stamp && blockIdx.x == 0 && threadIdx.x == 0) *call.stamp = gpu_timer();
    const int lane = threadIdx.x % 32, local = blockIdx.x * WARPS + threadIdx.x / 32, r = call.first_row + local;
    if (local >= call.rows || r >= *call.n_rows) return;
    const size_t at = (size_t)r * GPU_NORM_WIDTH + 8 * lane;
    const eight scale = load_constants(call.scale + 8 * lane);
    eight y = load_floats(call.y + at), shift = {};
    if (call.shift) {
        shift = load_constants(call.shift + 8 * lane);
        float sum = 0;
#pragma unroll
        for (int k = 0; k < 8; k++) sum += y.v[k];
        const float mean = sum_warp(sum) * (1.0f / GPU_NORM_WIDTH);
#pragma unroll
        for (int k = 0; k < 8; k++) y.v[k] -= mean;
    }
    const float inverse = 1.0f / sqrtf(sum_warp(dot_eight(y, y)) * (1.0f / GPU_NORM_WIDTH) + call.epsilon);
#pragma unroll
    for (int k = 0; k < 8; k++) y.v[k] *= inverse;
    if (call.z) store_floats(call.z + at, y);
    if (call.inverse && lane == 0) call.inverse[r] = inverse;
#pragma unroll
    for (int k = 0; k < 8; k++) y.v[k] = fmaf(scale.v[k], y.v[k], shift.v[k]);
    store_operand<NUMBERS>(call.out, r, 8 * lane, y);
}

template <int NUMBERS>
static __global__ void __launch_bounds__(32 * WARPS) norm_back_kernel(const __grid_constant__ gpu_norm_backward call, int unused)
{
    wait_for_previous();
    let_next_start();
    if (call.stamp && blockIdx.x == 0 && threadIdx.x == 0) *call.stamp = gpu_timer();
    const int lane = threadIdx.x % 32, local = blockIdx.x * WARPS + threadIdx.x / 32, r = call.first_row + local;
    if (local >= call.rows || r >= *call.n_rows) return;
    const size_t at = (size_t)r * GPU_NORM_WIDTH + 8 * lane;
    const int group = call.group ? call.group[r] : 0;
    eight total = load_floats(call.initial ? call.initial + (size_t)group * GPU_NORM_WIDTH + 8 * lane : call.bar + at);
    if (call.added) {
        const eight added = load_floats(call.added + (size_t)r * call.stride + 8 * lane);
#pragma unroll
        for (int k = 0; k < 8; k++) total.v[k] += added.v[k];
    }
    if (call.added || call.initial) store_floats(call.bar + at, total);
    norm_row_backward<NUMBERS>(call.norm, r, local, lane, total, load_floats(call.norm.z + at));
}

template <int NUMBERS> static int launch_forward(const gpu_norm *call, int overlap, void *stream)
{
    return launch(norm_kernel<NUMBERS>, (call->rows + WARPS - 1) / WARPS, 32 * WARPS, 0, 1, overlap, stream, *call, 0);
}

int gpu_launch_norm(const gpu_norm *call, enum gpu_number numbers, int overlap, void *stream)
{
    return FOR_NUMBERS(numbers, launch_forward, call, overlap, stream);
}

template <int NUMBERS> static int launch_backward(const gpu_norm_backward *call, int overlap, void *stream)
{
    return launch(norm_back_kernel<NUMBERS>, (call->rows + WARPS - 1) / WARPS, 32 * WARPS, 0, 1, overlap, stream, *call, 0);
}

int gpu_launch_norm_backward(const gpu_norm_backward *call, enum gpu_number numbers, int overlap, void *stream)
{
    return FOR_NUMBERS(numbers, launch_backward, call, overlap, stream);
}
