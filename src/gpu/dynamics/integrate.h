/* SPDX-License-Identifier: MIT */
/* integrate.h: first and last kernel of a graph of dynamics steps; between its steps atoms are moved by the kernel that computes their
 * forces. */
#ifndef GPU_INTEGRATE_H
#define GPU_INTEGRATE_H

#include "gpu/gpu_step.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The half step before a graph's first forces; after its last ones, the report on its steps. `stream` is a cudaStream_t, the result a
 * cudaError_t. */
int gpu_launch_advance(const gpu_motion *motion, int overlap, void *stream);
int gpu_launch_finish(const gpu_motion *motion, int overlap, void *stream);

#ifdef __cplusplus
}
#endif
#endif
