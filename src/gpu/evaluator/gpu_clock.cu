// SPDX-License-Identifier: MIT
// gpu_clock.cu: kernels that the evaluator launches for itself: what code this GPU runs, and a clock between two steps.
#include "gpu/ptx/wgmma.cuh"
#include "gpu_clock.h"

// Reports the architecture that the running code was compiled for, and whether it is code for Hopper alone.
static __global__ void code_kernel(int32_t *const to)
{
#ifdef __CUDA_ARCH__
    const int architecture = __CUDA_ARCH__ / 10;
#else
    const int architecture = 90;
#endif
    if (threadIdx.x > 0) return;
    to[0] = architecture;
    to[1] = WGMMA_HERE;
}

// Stamps its beginning and its end after those of earlier launches; runs longer than the host needs for the next launch.
static __global__ void clock_kernel(uint64_t *const times)
{
    const uint64_t begin = gpu_timer();
    if (threadIdx.x > 0) return;
    const uint64_t n = times[0];
    times[0] = n + 1;
    times[1 + 2 * n] = begin;
    while (gpu_timer() - begin < 30000) {}
    times[2 + 2 * n] = gpu_timer();
}

int gpu_launch_clock(uint64_t *times, void *stream)
{
    return launch<uint64_t *>(clock_kernel, 1, 32, 0, 1, 0, stream, times);
}

int gpu_launch_code(int32_t *to, void *stream)
{
    return launch<int32_t *>(code_kernel, 1, 32, 0, 1, 0, stream, to);
}
