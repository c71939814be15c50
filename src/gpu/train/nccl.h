/* SPDX-License-Identifier: MIT */
/* nccl.h: NVIDIA's collective communication between GPUs, opened at run time ($MLFF_NCCL, or the loader's search for libnccl.so.2).
 * No header of it is needed. */
#ifndef GPU_NCCL_H
#define GPU_NCCL_H

#include "device/device_cuda.h"

typedef struct ncclComm *nccl_comm;

/* One communicator for each of `n` different GPUs of this process. Fails with MLFF_ERR_DEVICE: no library, or what it says. */
mlff_status nccl_create(const int *devices, int n, nccl_comm *comms_out);
void nccl_destroy(nccl_comm *comms, int n);

/* A vector of each GPU, and the stream in which it is replaced by the sum over all GPUs. */
typedef struct nccl_vector {
    void *values;
    cudaStream_t stream;
} nccl_vector;
/* Enqueued: floats[k] and doubles[k] belong to comms[k]. */
mlff_status nccl_sum(nccl_comm *comms, int n, const nccl_vector *floats, size_t n_floats, const nccl_vector *doubles,
                     size_t n_doubles);

#endif
