/* SPDX-License-Identifier: MIT */
/* device_cuda.h: private to libmlff_cuda.so: errors, counted memory, and functions of the plugin's struct. */
#ifndef DEVICE_CUDA_H
#define DEVICE_CUDA_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

#include "device/device.h"

extern device_host host; /* functions of libmlff, passed when the plugin is opened */

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
/* A copy that is complete when this returns, for every stream. */
cudaError_t cuda_copy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind);
/* wait_cuda.c: waits for the work on a stream at most MLFF_GPU_TIMEOUT seconds (600) and 20 times what is expected (0: one step).
 * Fails with cudaErrorLaunchTimeout; from then on the GPU is stuck, and no function that waits for it may be called, cudaFree
 * included. */
cudaError_t cuda_wait(cudaStream_t stream, double expected_s);
cudaError_t cuda_wait_event(cudaEvent_t event); /* the same for what was recorded */
cudaError_t
cuda_wait_device(void); /* for all work of the current device; without a limit where driver or toolkit are older than 12.5 */
bool cuda_stuck(void);
double cuda_seconds(void); /* a monotonic clock */
/* Makes the device current for this thread. */
mlff_status cuda_use(int index);

/* gpu/evaluator/gpu_registry.c: an evaluator of the architecture that the model names. Fails with MLFF_ERR_UNSUPPORTED where it has
 * no GPU kernels, MLFF_ERR_DEVICE where library and plugin were built from different sources, or as the architecture does. */
mlff_status gpu_evaluator_create(const device_model *model, const mlff_evaluator_options *options, gpu_evaluator **evaluator_out);
/* The same for training. */
mlff_status gpu_trainer_create(const device_trainee *trainee, const struct train_backend_options *options,
                               struct train_backend **backend_out);
/* Stage of a kernel by its demangled name, template arguments ignored: the architecture's own kernels first. NULL: unknown. */
const char *gpu_evaluator_kernel_stage(const gpu_evaluator *evaluator, const char *kernel);
void gpu_evaluator_select_member(gpu_evaluator *evaluator, int member);
mlff_status gpu_evaluator_compute(gpu_evaluator *evaluator, const mlff_batch *batch, const mlff_results *results);
const mlff_stage *gpu_evaluator_stages(const gpu_evaluator *evaluator, int *n_out);
mlff_status gpu_evaluator_stage_clock_set(gpu_evaluator *evaluator, int on);
void gpu_evaluator_stage_times(gpu_evaluator *evaluator, double *time_ns);
void gpu_evaluator_info(const gpu_evaluator *evaluator, mlff_evaluator_info *info_out);
void gpu_evaluator_destroy(gpu_evaluator *evaluator);

/* gpu/dynamics/move_domain.c */
mlff_status cuda_move_domain(int move, const struct domain_motion *motion, void *stream);

/* gpu/peers/peers.c */
mlff_status cuda_peers_connect(const int *indices, int n);
mlff_status cuda_stream_wait(void *stream, void *event);
mlff_status cuda_rows_exchange(int index, const device_rows *rows, void *stream);
mlff_status cuda_memory_share(int index, void *memory, void *handle_out);
mlff_status cuda_memory_open(int index, const void *handle, void **memory_out);
void cuda_memory_close(int index, void *memory);
mlff_status cuda_zero(int index, void *memory, size_t bytes, void *stream);
mlff_status cuda_allocate_host(int index, size_t bytes, void **memory_out);
void cuda_release_host(void *memory);

mlff_status gpu_dynamics_create(gpu_evaluator *evaluator, const gpu_dynamics_start *starts, int n_systems,
                                gpu_dynamics **dynamics_out);
mlff_status gpu_dynamics_run(gpu_dynamics *dynamics, int64_t n_steps, double *times_ns, int64_t *n_done_out, int *failed_out);
void gpu_dynamics_get(gpu_dynamics *dynamics, int system, gpu_dynamics_state *state_out);
void gpu_dynamics_destroy(gpu_dynamics *dynamics);

#endif
