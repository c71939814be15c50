/* SPDX-License-Identifier: MIT */
/* primitives.cuh: what kernels without wgmma use. */
#ifndef GPU_PRIMITIVES_CUH
#define GPU_PRIMITIVES_CUH

#include "barrier.cuh"
#include "mma.cuh"
#include "reduce.cuh"
#include "store_async.cuh"
#endif
