// SPDX-License-Identifier: MIT
// dense.cu: dense layers of any model (linear.h).
#include "dense.cuh"

template <int NUMBERS, int WIDE>
static __global__ void __launch_bounds__(tile_of<NUMBERS, WIDE>::THREADS, tile_of<NUMBERS, WIDE>::RESIDENT)
    dense_kernel(const __grid_constant__ gpu_dense dense, int unused)
{
    DYNAMIC_SHARED(shared);
    run_dense<NUMBERS, WIDE>(dense, shared);
}

template <int NUMBERS, int WIDE> static int launch_one(const gpu_dense *d, const gpu_linear_plan *plan, void *stream)
{
    typedef tile_of<NUMBERS, WIDE> tile;
    return launch(dense_kernel<NUMBERS, WIDE>, tile_blocks<NUMBERS, WIDE>(d->product, *plan), tile::THREADS, tile::SHARED_BYTES,
                  1, plan->overlap, stream, *d, 0);
}

int gpu_launch_dense(const gpu_dense *dense, const gpu_linear_plan *plan, void *stream)
{
    return FOR_PLAN(plan, launch_one, dense, plan, stream);
}

template <int NUMBERS, int WIDE> static int prepare_one(int unused)
{
    return prepare_kernel<NUMBERS, WIDE>(dense_kernel<NUMBERS, WIDE>);
}

int gpu_prepare_dense(int hopper)
{
    return for_all_plans(hopper, [](const gpu_linear_plan *plan) { return FOR_PLAN(plan, prepare_one, 0); });
}
