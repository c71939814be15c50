/* SPDX-License-Identifier: MIT */
/* gpu_call.h: what a call brings and takes. A host batch is copied into page-locked memory, from where the step's own graph copies it to
 * the GPU; results of it are written to page-locked memory by the GPU, and copied from there. Arrays of a device batch are read and
 * written where the caller has them: only what the host knows of it is sent, before the step, and only if it is not there already. */
#ifndef GPU_CALL_H
#define GPU_CALL_H

#include "device/device_cuda.h"
#include "gpu/gpu_step.h"

/* The opaque types of device/device.h. */
typedef struct cuda_evaluator gpu_evaluator;
typedef struct cuda_dynamics gpu_dynamics;
typedef cuda_dynamics_options gpu_dynamics_options;

// What the GPU reads of a call, one block: for a host batch copied by the graph itself, for a device batch only the part
// before `species`, and only when it changes. Offsets follow from the numbers of atoms and systems.
typedef struct input_block {
    gpu_call *call;
    gpu_system *systems;
    int32_t *system_of, *species;
    double *cells, *positions;
    unsigned char *owned;
} input_block;

// Page-locked memory: inputs of host batches as the graph copies them; results, which the GPU writes there.
typedef struct host_arrays {
    void *block;
    size_t bytes, input_bytes;
    int n_atoms, n_systems, n_pairs; // capacities
    char *input;
    gpu_report *report;
    int32_t *pair_first, *pair_neighbor, *pair_shift;
    double *energies, *atom_energies, *forces, *virials, *stresses;
    uint64_t *stamps;
} host_arrays;

/* Pointers into a block at `base`, for so many atoms and systems; answers its bytes. With base NULL pointers are NULL. */
size_t gpu_place_input(input_block *input, char *base, int n_atoms, int n_systems);
/* Room for a host batch and its results: evaluator->io, and evaluator->input on the GPU. If it moves, graphs are
 * forgotten. Errors: of memory and of the GPU. */
mlff_status gpu_evaluator_grow_host(gpu_evaluator *evaluator, int n_atoms, int n_systems, int n_pairs);
/* Host batch: all of it into evaluator->io, laid out for the sizes of the plan, for which there is room. MLFF_ERR_MEMORY, if
 * there is none for what is remembered of it. */
mlff_status gpu_evaluator_fill_host(gpu_evaluator *evaluator, const mlff_batch *batch, const mlff_results *results,
                                    const gpu_plan *plan);
/* Host batch: results that were asked for to the caller's arrays. The step must be over. */
void gpu_evaluator_take_results(const gpu_evaluator *evaluator, const mlff_batch *batch, const mlff_results *results);
/* Device batch: what the host knows of it goes to evaluator->staged, in the stream's order, and is not waited for. Errors: of
 * memory and of the GPU. */
mlff_status gpu_evaluator_send_call(gpu_evaluator *evaluator, const mlff_batch *batch, const mlff_results *results,
                                    cudaStream_t stream);

#endif
