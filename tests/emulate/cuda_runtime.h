/* SPDX-License-Identifier: MIT */
/* cuda_runtime.h: what kernel sources use of CUDA's runtime in C++: launches and attributes of kernels, emulated. */
#ifndef EMULATE_CUDA_RUNTIME_H
#define EMULATE_CUDA_RUNTIME_H

#include <functional>

#include "cuda_runtime_api.h"

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};
enum cudaLaunchAttributeID {
    cudaLaunchAttributeCooperative = 2,
    cudaLaunchAttributeClusterDimension = 4,
    cudaLaunchAttributeProgrammaticStreamSerialization = 6,
    cudaLaunchAttributePreferredSharedMemoryCarveout = 14
};
struct cudaLaunchAttribute {
    cudaLaunchAttributeID id;
    union {
        struct {
            unsigned x, y, z;
        } clusterDim;
        int cooperative, programmaticStreamSerializationAllowed;
        unsigned sharedMemCarveout;
    } val;
};
struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute *attrs;
    unsigned numAttrs;
};

namespace emulate
{
cudaError_t launch(const cudaLaunchConfig_t &config, const void *kernel, const std::function<void()> &body);
cudaError_t set_attribute(const void *kernel, cudaFuncAttribute attribute, int value);
cudaError_t clusters_at_once(int *n, const void *kernel, const cudaLaunchConfig_t &config);
} // namespace emulate

/* Parameters are copied at the launch, as CUDA does. */
template <typename... Parameters, typename... Arguments>
static cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(Parameters...), Arguments... arguments)
{
    return emulate::launch(*config, (const void *)kernel, [=]() { kernel(arguments...); });
}
template <typename Kernel> static cudaError_t cudaFuncSetAttribute(Kernel *kernel, cudaFuncAttribute attribute, int value)
{
    return emulate::set_attribute((const void *)kernel, attribute, value);
}
template <typename Kernel>
static cudaError_t cudaOccupancyMaxActiveClusters(int *n, Kernel *kernel, const cudaLaunchConfig_t *config)
{
    return emulate::clusters_at_once(n, (const void *)kernel, *config);
}
#endif
