// SPDX-License-Identifier: MIT
// painn_layers.cu: the fused layers of painn_layers_kernel.cuh for 128 features, and the choice among all widths.
#include "painn_layers_kernel.cuh"

int painn_gpu_launch_fused(const painn_gpu_step *step, const gpu_plan *plan, void *stream)
{
    return step->n_features == 32   ? painn_gpu_launch_fused_32(step, plan, stream)
           : step->n_features == 64 ? painn_gpu_launch_fused_64(step, plan, stream)
                                    : launch_fused_of<128>(step, plan, stream);
}

int painn_gpu_prepare_fused(const painn_gpu_step *step, int whole)
{
    if (!step->n_products) return 0;
    return step->n_features == 32   ? painn_gpu_prepare_fused_32(step, whole)
           : step->n_features == 64 ? painn_gpu_prepare_fused_64(step, whole)
                                    : prepare_fused_of<128>(step, whole);
}
