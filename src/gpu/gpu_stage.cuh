/* SPDX-License-Identifier: MIT */
/* gpu_stage.cuh: how a kernel that is a stage of a step begins. */
#ifndef GPU_STAGE_CUH
#define GPU_STAGE_CUH

#include "gpu/ptx/primitives.cuh"
#include "gpu_step.h"

/* Called once what does not depend on the previous kernel has been requested: waits for that kernel, lets the next one be set up,
 * and stamps the time if stage clocks are on. */
static __device__ __forceinline__ void begin_stage(const gpu_step &step, int stage)
{
    wait_for_previous();
    let_next_start();
    if (step.stamps && blockIdx.x == 0 && threadIdx.x == 0) step.stamps[stage] = gpu_timer();
}

/* Pairs of the rows that were built since the last call; the counters are zero again. By one thread. */
static __device__ __forceinline__ int take_pair_counts(const gpu_step &step)
{
    int sum = 0;
#pragma unroll
    for (int k = 0; k < GPU_PAIR_COUNTS; k++) {
        sum += step.neighbors.pair_counts[32 * k];
        step.neighbors.pair_counts[32 * k] = 0;
    }
    return sum;
}

#endif
