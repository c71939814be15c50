// SPDX-License-Identifier: MIT
// painn_cuda_node_bf16.cu: the kernels of painn_cuda_node.cuh for bfloat16 numbers, one product: mode bf16.
#include "painn_cuda_node.cuh"

int painn_cuda_launch_mix_bf16(const painn_cuda_step *step, const painn_cuda_plan *plan, int layer, int back, void *stream)
{
    return launch_mix_of<single_numbers<true>>(step, plan, layer, back, stream);
}

int painn_cuda_prepare_node_bf16(int n_features)
{
    return prepare_mix_of<single_numbers<true>>(n_features);
}

int painn_cuda_clusters_at_once_bf16(int cluster)
{
    return tiles_at_once<single_numbers<true>>(cluster);
}
