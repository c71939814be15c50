/* SPDX-License-Identifier: MIT */
/* painn_cuda_motion.h: what the integrator's kernels and their owner share. */
#ifndef PAINN_CUDA_MOTION_H
#define PAINN_CUDA_MOTION_H

#include "painn_cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Pointers are the device's, but for `trouble`, which is mapped host memory. */
typedef struct painn_cuda_motion {
    int32_t n_atoms, langevin;
    double timestep_fs, keep, noise; /* c = exp(−friction dt) and (1 − c²) k_B T, eV */
    uint64_t seed;
    double *positions, *velocities, *forces; /* [n_atoms][3] */
    const double *inverse_mass;              /* [n_atoms] Å²/(fs² eV); 0: the atom is fixed */
    double *heat;                            /* [n_atoms] eV that the bath gave */
    int64_t *step;                           /* number of the step; and the one this chunk began with */
    uint64_t *times;                         /* [chunk + 1] the GPU's timer: begin, end of each step */
    const painn_cuda_report *report;         /* of the step done */
    painn_cuda_report *trouble;              /* flags of all steps together */
} painn_cuda_motion;

/* The half step before the forces, and the one after. `stream` is a cudaStream_t; the answer a cudaError_t. */
int painn_cuda_launch_advance(const painn_cuda_motion *motion, void *stream);
int painn_cuda_launch_finish(const painn_cuda_motion *motion, void *stream);

#ifdef __cplusplus
}
#endif
#endif
