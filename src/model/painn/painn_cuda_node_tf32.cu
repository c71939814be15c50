// SPDX-License-Identifier: MIT
// painn_cuda_node_tf32.cu: the kernels of painn_cuda_node.cuh for halves, one product: mode tf32.
#include "painn_cuda_node.cuh"

int painn_cuda_launch_mix_tf32(const painn_cuda_step *step, const painn_cuda_plan *plan, int layer, int back, void *stream)
{
    return launch_mix_of<single_numbers<false>>(step, plan, layer, back, stream);
}

int painn_cuda_prepare_node_tf32(int n_features)
{
    return prepare_mix_of<single_numbers<false>>(n_features);
}

int painn_cuda_clusters_at_once_tf32(int cluster)
{
    return tiles_at_once<single_numbers<false>>(cluster);
}
