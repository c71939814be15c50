/* SPDX-License-Identifier: MIT */
/* lj_gpu.h: a Lennard-Jones step on the GPU, and the launches of its kernels. */
#ifndef LJ_GPU_H
#define LJ_GPU_H

#include "gpu/gpu_step.h"
#include "lennard_jones/lj.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lj_gpu_step {
    gpu_step gpu; /* first: the call, the neighbor list, the integrator, the stamps */
    lj_parameters parameters;
    double *energy; /* [n_atoms][2] eV: the model's, the offset */
} lj_gpu_step;

/* Stamps after the neighbor list's own two; the last is the end. */
enum { LJ_STAMP_PAIRS = 2, LJ_STAMP_SUMS, LJ_STAMP_END };

/* `stream` is a cudaStream_t, the result a cudaError_t. */
int lj_gpu_launch_pairs(const lj_gpu_step *step, const gpu_plan *plan, void *stream);
int lj_gpu_launch_sums(const lj_gpu_step *step, const gpu_plan *plan, void *stream);

#ifdef __cplusplus
}
#endif
#endif
