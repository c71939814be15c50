// SPDX-License-Identifier: MIT
// painn_cuda_node.cu: the kernels of painn_cuda_node.cuh for float32-class products, and the choice among all.
#include "painn_cuda_node.cuh"

int painn_cuda_launch_mix(const painn_cuda_step *step, const painn_cuda_plan *plan, int layer, int back, void *stream)
{
    return step->numbers == PAINN_CUDA_BFLOATS  ? painn_cuda_launch_mix_bf16(step, plan, layer, back, stream)
           : step->numbers == PAINN_CUDA_HALVES ? painn_cuda_launch_mix_tf32(step, plan, layer, back, stream)
                                                : launch_mix_of<split_halves>(step, plan, layer, back, stream);
}

int painn_cuda_prepare_node(int numbers, int n_features)
{
    return numbers == PAINN_CUDA_BFLOATS  ? painn_cuda_prepare_node_bf16(n_features)
           : numbers == PAINN_CUDA_HALVES ? painn_cuda_prepare_node_tf32(n_features)
                                          : prepare_mix_of<split_halves>(n_features);
}

int painn_cuda_clusters_at_once(int numbers, int cluster)
{
    return numbers == PAINN_CUDA_BFLOATS  ? painn_cuda_clusters_at_once_bf16(cluster)
           : numbers == PAINN_CUDA_HALVES ? painn_cuda_clusters_at_once_tf32(cluster)
                                          : tiles_at_once<split_halves>(cluster);
}
