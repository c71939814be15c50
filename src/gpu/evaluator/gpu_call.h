/* SPDX-License-Identifier: MIT */
/* gpu_call.h: inputs and results of a call. A host batch is copied into page-locked memory, from where the step's graph copies it to the
 * GPU; the GPU writes its results to page-locked memory. Arrays of a device batch are read and written in place: only what the host knows
 * of it is copied before the step, and only if it has changed. */
#ifndef GPU_CALL_H
#define GPU_CALL_H

#include "device/device_cuda.h"
#include "gpu/gpu_step.h"

// What the GPU reads of a call, in one block: copied by the graph for a host batch; for a device batch only the part before `species` is
// copied, when it changes. Offsets follow from the numbers of atoms and systems.
typedef struct input_block {
    gpu_call *call;
    gpu_system *systems;
    int32_t *system_of, *species;
    double *cells, *positions;
    unsigned char *owned;
} input_block;

// Page-locked memory: inputs of host batches, from where the graph copies them; results, written by the GPU.
typedef struct host_arrays {
    void *block;
    size_t bytes, input_bytes;
    int n_atoms, n_systems, n_pairs; // capacities
    char *input;
    gpu_report *report, *report_of_rows; // report_of_rows: of steps without a graph, before their model
    int32_t *overflow;                   // 1: an energy or a force of the last step is not finite
    int32_t *pair_first, *pair_neighbor, *pair_shift;
    double *energies, *atom_energies, *forces, *virials, *stresses, *force_errors;
    uint64_t *stamps;
} host_arrays;

/* Sets pointers into a block at `base` for so many atoms and systems; returns its bytes. With base NULL the pointers are NULL. */
size_t gpu_place_input(input_block *input, char *base, int n_atoms, int n_systems);
/* Fails with MLFF_ERR_VALUE if the model depends on charge and spin and a system has none. */
mlff_status gpu_evaluator_check_charges(const gpu_evaluator *evaluator, const mlff_batch *batch);
/* Ensures room for a host batch and its results: evaluator->io, and evaluator->input on the GPU. If an array moves, graphs are dropped.
 * Fails with MLFF_ERR_MEMORY or MLFF_ERR_DEVICE. */
mlff_status gpu_evaluator_grow_host(gpu_evaluator *evaluator, int n_atoms, int n_systems, int n_pairs);
/* Host batch: copies it into evaluator->io, laid out for the sizes of the plan, for which there must be room. Fails with
 * MLFF_ERR_MEMORY. */
mlff_status gpu_evaluator_fill_host(gpu_evaluator *evaluator, const mlff_batch *batch, const mlff_results *results,
                                    const gpu_plan *plan);
/* Host batch: copies the requested results to the caller's arrays. The step must be complete. */
void gpu_evaluator_take_results(const gpu_evaluator *evaluator, const mlff_batch *batch, const mlff_results *results);
/* Device batch: copies what the host knows of it to evaluator->staged, in stream order, without waiting. Fails with MLFF_ERR_MEMORY or
 * MLFF_ERR_DEVICE. */
mlff_status gpu_evaluator_send_call(gpu_evaluator *evaluator, const mlff_batch *batch, const mlff_results *results,
                                    cudaStream_t stream);

#endif
