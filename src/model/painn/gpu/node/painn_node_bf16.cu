// SPDX-License-Identifier: MIT
// painn_node_bf16.cu: the kernels of painn_node.cuh for bfloat16 numbers, one product: mode bf16.
#include "painn_node.cuh"

int painn_gpu_launch_update_bf16(const painn_gpu_step *step, const gpu_plan *plan, int layer, int back, void *stream)
{
    return launch_update_of<single_numbers<true>>(step, plan, layer, back, stream);
}

int painn_gpu_prepare_node_bf16(int n_features)
{
    return prepare_update_of<single_numbers<true>>(n_features);
}
