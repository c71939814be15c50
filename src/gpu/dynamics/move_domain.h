/* SPDX-License-Identifier: MIT */
/* move_domain.h: the integrator of a domain's own atoms (atoms/dynamics/domain_motion.h). */
#ifndef GPU_MOVE_DOMAIN_H
#define GPU_MOVE_DOMAIN_H

#include "atoms/dynamics/domain_motion.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `stream` is a cudaStream_t, the result a cudaError_t. */
int gpu_launch_move(int move, const domain_motion *motion, void *stream);

#ifdef __cplusplus
}
#endif
#endif
