/* SPDX-License-Identifier: MIT */
/* systems.h: the integrator of ensembles with a thermostat or barostat of the whole system, and of several systems that make their
 * steps together: a kernel of its own between two computations of forces. (NVE and Langevin of one system need none: integrate.h.) */
#ifndef GPU_SYSTEMS_H
#define GPU_SYSTEMS_H

#include "atoms/dynamics/bath.h"
#include "gpu/gpu_step.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Pointers are to device memory, but for `trouble`, which is mapped host memory. */
typedef struct gpu_systems {
    int32_t n_systems, n_threads;         /* threads of a block, which moves one system */
    int32_t place;                        /* index in its graph of the step that ends, or, where none does, begins */
    const int32_t *first_atom;            /* [n_systems + 1] */
    const int64_t *first_step;            /* [n_systems] number of the system's first step */
    const double *n_degrees;              /* [n_systems] */
    const mlff_dynamics_options *options; /* [n_systems] */
    dynamics_bath *baths;                 /* [n_systems] */
    double *positions, *velocities;
    const double *forces, *inverse_mass;
    double *cells;            /* [n_systems][9] */
    const double *virials;    /* [n_systems][9], at constant pressure */
    const int64_t *step;      /* [2] steps made before the graph, before the chunk */
    uint64_t *times;          /* [chunk + 1] */
    const gpu_report *report; /* of the last step */
    gpu_report *trouble;      /* flags of all steps together */
} gpu_systems;

/* The end of a step with the forces of its new positions, the beginning of the next up to its positions, or both. `stream` is a
 * cudaStream_t, the result a cudaError_t. */
int gpu_launch_systems(const gpu_systems *systems, int ends, int begins, int overlap, void *stream);

#ifdef __cplusplus
}
#endif
#endif
