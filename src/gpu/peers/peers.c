// SPDX-License-Identifier: MIT
// peers.c: GPUs that read each other's memory, and memory that all can read: functions of the plugin's struct.
#include "peers.h"

#include <string.h>

#include "device/device_cuda.h"

static mlff_status connect(int from, int to)
{
    mlff_status status = MLFF_OK;
    int can = 0;
    PLUGIN_TRY(cuda_use(from));
    CUDA_TRY(cudaDeviceCanAccessPeer(&can, from, to), "connecting GPUs");
    if (!can)
        return host.fail(
            MLFF_ERR_UNSUPPORTED,
            "cuda:%d cannot read the memory of cuda:%d, which dividing a system between them needs; use one of them, or "
            "LAMMPS over MPI",
            from, to);
    const cudaError_t error = cudaDeviceEnablePeerAccess(to, 0);
    if (error == cudaErrorPeerAccessAlreadyEnabled)
        cudaGetLastError(); // clears it
    else
        CUDA_TRY(error, "connecting GPUs");
done:
    return status;
}

mlff_status cuda_peers_connect(const int *indices, int n)
{
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++) {
            const mlff_status status = indices[i] == indices[k] ? MLFF_OK : connect(indices[i], indices[k]);
            if (status != MLFF_OK) return status;
        }
    return MLFF_OK;
}

mlff_status cuda_stream_wait(void *stream, void *event)
{
    mlff_status status = MLFF_OK;
    CUDA_TRY(cudaStreamWaitEvent(stream, event, 0), "waiting for another GPU");
done:
    return status;
}

mlff_status cuda_rows_exchange(int index, const device_rows *rows, void *stream)
{
    mlff_status status = MLFF_OK;
    PLUGIN_TRY(cuda_use(index));
    CUDA_TRY(gpu_launch_rows(rows, stream), "launching an exchange");
done:
    return status;
}

mlff_status cuda_allocate_host(int index, size_t bytes, void **memory_out)
{
    mlff_status status = MLFF_OK;
    PLUGIN_TRY(cuda_use(index));
    CUDA_TRY(cudaHostAlloc(memory_out, bytes, cudaHostAllocMapped | cudaHostAllocPortable), "page-locked memory");
done:
    return status;
}

void cuda_release_host(void *memory)
{
    if (memory && !cuda_stuck()) cudaFreeHost(memory);
}

mlff_status cuda_zero(int index, void *memory, size_t bytes, void *stream)
{
    mlff_status status = MLFF_OK;
    PLUGIN_TRY(cuda_use(index));
    CUDA_TRY(cudaMemsetAsync(memory, 0, bytes, stream), "clearing rows");
done:
    return status;
}

_Static_assert(sizeof(cudaIpcMemHandle_t) == 64, "the size of a handle");

mlff_status cuda_memory_share(int index, void *memory, void *handle_out)
{
    mlff_status status = MLFF_OK;
    cudaIpcMemHandle_t handle;
    PLUGIN_TRY(cuda_use(index));
    CUDA_TRY(cudaIpcGetMemHandle(&handle, memory), "sharing memory with another process");
    memcpy(handle_out, &handle, sizeof handle);
done:
    return status;
}

mlff_status cuda_memory_open(int index, const void *handle, void **memory_out)
{
    mlff_status status = MLFF_OK;
    cudaIpcMemHandle_t copy;
    memcpy(&copy, handle, sizeof copy);
    PLUGIN_TRY(cuda_use(index));
    CUDA_TRY(cudaIpcOpenMemHandle(memory_out, copy, cudaIpcMemLazyEnablePeerAccess), "opening another process's memory");
done:
    return status;
}

void cuda_memory_close(int index, void *memory)
{
    if (memory && !cuda_stuck() && cuda_use(index) == MLFF_OK) cudaIpcCloseMemHandle(memory);
}
