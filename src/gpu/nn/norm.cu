// SPDX-License-Identifier: MIT
// norm.cu: the reverse pass of norms (norm.h), a warp for each row.
#include "norm.cuh"

enum { WARPS = 4 };

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

template <int NUMBERS> static int launch_one(const gpu_norm_backward *call, int overlap, void *stream)
{
    return launch(norm_back_kernel<NUMBERS>, (call->rows + WARPS - 1) / WARPS, 32 * WARPS, 0, 1, overlap, stream, *call, 0);
}

int gpu_launch_norm_backward(const gpu_norm_backward *call, enum gpu_number numbers, int overlap, void *stream)
{
    return FOR_NUMBERS(numbers, launch_one, call, overlap, stream);
}
