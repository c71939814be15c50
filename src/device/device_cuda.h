/* SPDX-License-Identifier: MIT */
/* device_cuda.h: private to libmlff_cuda.so: errors, memory that is counted, and the parts the plugin's struct is made of. */
#ifndef DEVICE_CUDA_H
#define DEVICE_CUDA_H

#include <cuda_runtime_api.h>

#include "device/device.h"

extern device_host host; /* what libmlff lends us */

/* Turns an error of the CUDA runtime into a status and a text: "what: reason". */
mlff_status cuda_failed(cudaError_t error, const char *what);

/* In a function with `mlff_status status` and `done:`. */
#define CUDA_TRY(call, what)                                                                                                     \
    do {                                                                                                                         \
        cudaError_t cuda_error_ = (call);                                                                                        \
        if (cuda_error_ != cudaSuccess) {                                                                                        \
            status = cuda_failed(cuda_error_, what);                                                                             \
            goto done;                                                                                                           \
        }                                                                                                                        \
    } while (0)
#define PLUGIN_TRY(call)                                                                                                         \
    do {                                                                                                                         \
        status = (call);                                                                                                         \
        if (status != MLFF_OK) goto done;                                                                                        \
    } while (0)

/* Device memory, zeroed, counted in mlff_device_memory_get. */
mlff_status cuda_allocate(int index, size_t bytes, const char *what, void **memory_out);
void cuda_release(int index, void *memory);
/* A copy that is done when this returns, for every stream. */
cudaError_t cuda_copy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind);
/* Makes the device current for this thread. */
mlff_status cuda_use(int index);

mlff_status painn_gpu_create(const device_painn *painn, const mlff_evaluator_options *options, cuda_evaluator **evaluator_out);
mlff_status ani_gpu_create(const device_ani *ani, const mlff_evaluator_options *options, cuda_evaluator **evaluator_out);
void gpu_evaluator_select_member(cuda_evaluator *evaluator, int member);
mlff_status gpu_evaluator_compute(cuda_evaluator *evaluator, const mlff_batch *batch, const mlff_results *results);
const mlff_stage *gpu_evaluator_stages(const cuda_evaluator *evaluator, int *n_out);
mlff_status gpu_evaluator_stage_clock_set(cuda_evaluator *evaluator, int on);
void gpu_evaluator_stage_times(const cuda_evaluator *evaluator, double *time_ns);
void gpu_evaluator_info(const cuda_evaluator *evaluator, mlff_evaluator_info *info_out);
void gpu_evaluator_destroy(cuda_evaluator *evaluator);

mlff_status gpu_dynamics_create(cuda_evaluator *evaluator, const mlff_system *system, const cuda_dynamics_options *options,
                                cuda_dynamics **dynamics_out);
mlff_status gpu_dynamics_run(cuda_dynamics *dynamics, int64_t n_steps, double *times_ns, int64_t *n_done_out);
mlff_status gpu_dynamics_get(cuda_dynamics *dynamics, double *positions, double *velocities, double *forces, double *energies);
void gpu_dynamics_destroy(cuda_dynamics *dynamics);

#endif
