/* SPDX-License-Identifier: MIT */
/* painn_cuda_motion.h: what begins and ends a graph of steps of dynamics; between its steps atoms are moved where their forces are
 * made. */
#ifndef PAINN_CUDA_MOTION_H
#define PAINN_CUDA_MOTION_H

#include "painn_cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The half step before a graph's first forces; and after its last ones what is told of its steps. `stream` is a cudaStream_t, the
 * answer a cudaError_t. */
int painn_cuda_launch_advance(const painn_cuda_motion *motion, int overlap, void *stream);
int painn_cuda_launch_finish(const painn_cuda_motion *motion, int overlap, void *stream);

#ifdef __cplusplus
}
#endif
#endif
