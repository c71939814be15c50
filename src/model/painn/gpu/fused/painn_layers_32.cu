// SPDX-License-Identifier: MIT
// painn_layers_32.cu: the fused layers of painn_layers_kernel.cuh for 32 features.
#include "painn_layers_kernel.cuh"

int painn_gpu_launch_fused_32(const painn_gpu_step *step, const gpu_plan *plan, void *stream)
{
    return launch_fused_of<32>(step, plan, stream);
}

int painn_gpu_prepare_fused_32(const painn_gpu_step *step, int whole)
{
    return prepare_fused_of<32>(step, whole);
}
