// SPDX-License-Identifier: MIT
// painn_layers_64.cu: the fused layers of painn_layers_kernel.cuh for 64 features.
#include "painn_layers_kernel.cuh"

int painn_gpu_launch_fused_64(const painn_gpu_step *step, const gpu_plan *plan, void *stream)
{
    return launch_fused_of<64>(step, plan, stream);
}

int painn_gpu_prepare_fused_64(const painn_gpu_step *step, int whole)
{
    return prepare_fused_of<64>(step, whole);
}
