/* SPDX-License-Identifier: MIT */
/* gpu_dynamics.h: dynamics on a GPU: the run (gpu_dynamics.c), and its arrays (gpu_dynamics_state.c). */
#ifndef GPU_DYNAMICS_H
#define GPU_DYNAMICS_H

#include "gpu/evaluator/gpu_evaluator.h"
#include "systems.h"

enum { CHUNK = 1000, GRAPHS = 4 };

struct gpu_dynamics {
    gpu_evaluator *evaluator;
    int n_systems, n_atoms, largest; // largest: atoms of the largest system
    bool fused;                      // the kernels that compute forces move the atoms; else a kernel of its own does
    bool constant_pressure;
    gpu_motion motion;   // of it `systems` has no need, but for the last kernel of a graph
    gpu_systems systems; // unless `fused`
    mlff_batch batch;
    mlff_results results;
    int32_t *first_atom;     // host, [n_systems + 1]
    unsigned char *periodic; // host, [n_systems][3]
    double *cells;           // host, [n_systems][9] at the beginning
    double *charges;         // [2][n_systems] charges, then spins
    double *masses;          // host, [n_atoms] amu
    dynamics_bath *baths;    // host, [n_systems] of `fused`
    double heat_before;      // of `fused`: what its bath had given before
    cudaStream_t stream;
    cudaGraphExec_t graphs[GRAPHS], stamped; // stamped: one step with stage stamps; NULL until requested
    cudaGraphExec_t wide;                    // one step with float32's range; NULL until needed
    void *block, *pinned;
    double step_s;      // time of a step, as last measured
    size_t state_bytes; // what changes: contiguous, saved to restart a chunk
    char *state, *kept; // on the device; `kept`: the state at the beginning of the chunk
    char *seen;         // page-locked: copy of the state between calls
    uint64_t *times;    // page-locked, [CHUNK + 1]
    gpu_report *report; // page-locked, of the last step
    int cell_list;      // 1: the device counts Verlet lists
};

/* Copies systems, options and baths to the GPU. Fails with MLFF_ERR_MEMORY, MLFF_ERR_DEVICE. */
mlff_status gpu_dynamics_place(gpu_dynamics *dynamics, const gpu_dynamics_start *starts);
/* Address of a state array in the host's copy. */
const void *gpu_dynamics_seen(const gpu_dynamics *dynamics, const void *array);

#endif
