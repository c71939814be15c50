/* SPDX-License-Identifier: MIT */
/* gpu_clock.h: kernels that the evaluator launches for itself. `stream` is a cudaStream_t, the result a cudaError_t. */
#ifndef GPU_CLOCK_H
#define GPU_CLOCK_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What the kernels that this GPU runs were compiled for: to[0] = compute capability times 10; to[1] = 1: code for Hopper alone. */
int gpu_launch_code(int32_t *to, void *stream);
/* Stamps of the GPU timer, ns: times[0] launches so far, then the beginning and the end of each. */
int gpu_launch_clock(uint64_t *times, void *stream);

#ifdef __cplusplus
}
#endif
#endif
