/* SPDX-License-Identifier: MIT */
/* integrate.h: what begins and ends a graph of steps of dynamics; between its steps atoms are moved where their forces are
 * made. */
#ifndef GPU_INTEGRATE_H
#define GPU_INTEGRATE_H

#include "gpu/gpu_step.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The half step before a graph's first forces; and after its last ones what is told of its steps. `stream` is a cudaStream_t, the
 * answer a cudaError_t. */
int gpu_launch_advance(const gpu_motion *motion, int overlap, void *stream);
int gpu_launch_finish(const gpu_motion *motion, int overlap, void *stream);

#ifdef __cplusplus
}
#endif
#endif
