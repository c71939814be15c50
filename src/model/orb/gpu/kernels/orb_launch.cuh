/* SPDX-License-Identifier: MIT */
/* orb_launch.cuh: launches of kernels that compute products by the tiles of gpu/nn. */
#ifndef ORB_LAUNCH_CUH
#define ORB_LAUNCH_CUH

#include "gpu/nn/linear_tile.cuh"
#include "model/orb/gpu/orb_gpu.h"

#define LAUNCH_PRODUCT(name, kernel, type)                                                                                       \
    template <int NUMBERS, int WIDE> static int launch_##name(const type *call, const gpu_linear_plan *plan, void *stream)       \
    {                                                                                                                            \
        typedef tile_of<NUMBERS, WIDE> tile;                                                                                     \
        return launch(kernel<NUMBERS, WIDE>, tile_blocks<NUMBERS, WIDE>(call->product, *plan), tile::THREADS,                    \
                      tile::SHARED_BYTES, 1, plan->overlap, stream, *call, 0);                                                   \
    }                                                                                                                            \
    int orb_gpu_launch_##name(const type *call, const gpu_linear_plan *plan, void *stream)                                       \
    {                                                                                                                            \
        return FOR_PLAN(plan, launch_##name, call, plan, stream);                                                                \
    }

#endif
