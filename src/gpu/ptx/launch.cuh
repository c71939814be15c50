/* SPDX-License-Identifier: MIT */
/* launch.cuh: launches of kernels on the host; the beginning of a kernel on the device. With MLFF_EMULATE the same kernels are compiled for
 * the CPU, and what is under #ifndef MLFF_EMULATE here is in tests/emulate/emulate_cuda.h, which was included before. */
#ifndef GPU_LAUNCH_CUH
#define GPU_LAUNCH_CUH

#include <stdint.h>

#ifndef MLFF_EMULATE
#define DYNAMIC_SHARED(name) extern __shared__ uint4 name[]
#endif
#include <cuda_runtime.h>

/* Bits of `overlap`: 1, the kernel may start while the previous one ends; all blocks run at once (cooperative launch); shared memory has a
 * fixed share of what it and the L1 cache have together. Between kernels with different shares, as the driver chooses them otherwise, a
 * multiprocessor must be idle, so that kernels do not overlap. */
enum { LAUNCH_TOGETHER = 2, LAUNCH_SHARED = 4, LAUNCH_SHARED_PERCENT = 74 };

template <typename Step, typename... Extra>
static int launch(void (*kernel)(Step, Extra...), int n_blocks, int n_threads, size_t shared_bytes, int cluster, int overlap,
                  void *stream, const Step &step, Extra... extra)
{
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attributes[4];
    config.gridDim = dim3((unsigned)n_blocks);
    config.blockDim = dim3((unsigned)n_threads);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = (cudaStream_t)stream;
    config.attrs = attributes;
    if (cluster > 1) {
        attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
        attributes[config.numAttrs].val.clusterDim.x = (unsigned)cluster;
        attributes[config.numAttrs].val.clusterDim.y = attributes[config.numAttrs].val.clusterDim.z = 1;
        config.numAttrs++;
    }
    if (overlap & LAUNCH_TOGETHER) {
        attributes[config.numAttrs].id = cudaLaunchAttributeCooperative;
        attributes[config.numAttrs++].val.cooperative = 1;
    }
    if (overlap & 1) {
        attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attributes[config.numAttrs].val.programmaticStreamSerializationAllowed = 1;
        config.numAttrs++;
    }
// Toolkits before 12.6 may lack the attribute: the driver chooses the share then. The emulated runtime has it, and no version.
#if !defined(CUDART_VERSION) || CUDART_VERSION >= 12060
    if (overlap & LAUNCH_SHARED) {
        attributes[config.numAttrs].id = cudaLaunchAttributePreferredSharedMemoryCarveout;
        attributes[config.numAttrs++].val.sharedMemCarveout = LAUNCH_SHARED_PERCENT;
    }
#endif
    return (int)cudaLaunchKernelEx(&config, kernel, step, extra...);
}

/* How many clusters of `cluster` blocks run at once; 0: none. */
template <typename Kernel> static int clusters_at_once(Kernel *kernel, int cluster, int n_threads, size_t shared_bytes)
{
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = (unsigned)cluster;
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    config.gridDim = dim3((unsigned)cluster);
    config.blockDim = dim3((unsigned)n_threads);
    config.dynamicSmemBytes = shared_bytes;
    config.attrs = &attribute;
    config.numAttrs = 1;
    int n = 0;
    if (cudaOccupancyMaxActiveClusters(&n, kernel, &config) != cudaSuccess) n = 0;
    cudaGetLastError();
    return n;
}

#ifndef MLFF_EMULATE
/* Waits until the previous kernel is complete; what does not depend on it may be requested before (docs/decisions/overlapped-launches.md). */
static __device__ __forceinline__ void wait_for_previous()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/* Lets the next kernel be set up. */
static __device__ __forceinline__ void let_next_start()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

static __device__ __forceinline__ uint64_t gpu_timer()
{
    uint64_t time;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
    return time;
}
#endif

#endif
