// SPDX-License-Identifier: MIT
// painn_node.cu: the kernels of painn_node.cuh for float32-class products, and the choice among all.
#include "painn_node.cuh"

int painn_gpu_launch_update(const painn_gpu_step *step, const gpu_plan *plan, int layer, int back, void *stream)
{
    if (plan->wide) return painn_gpu_launch_update_wide(step, plan, layer, back, stream);
    return step->numbers == PAINN_GPU_BFLOATS  ? painn_gpu_launch_update_bf16(step, plan, layer, back, stream)
           : step->numbers == PAINN_GPU_HALVES ? painn_gpu_launch_update_tf32(step, plan, layer, back, stream)
                                               : launch_update_of<split_halves>(step, plan, layer, back, stream);
}

int painn_gpu_prepare_node(int numbers, int n_features)
{
    return numbers == PAINN_GPU_BFLOATS  ? painn_gpu_prepare_node_bf16(n_features)
           : numbers == PAINN_GPU_HALVES ? painn_gpu_prepare_node_tf32(n_features)
                                         : prepare_update_of<split_halves>(n_features);
}
