// SPDX-License-Identifier: MIT
// painn_node_tf32.cu: the kernels of painn_node.cuh for halves, one product: mode tf32.
#include "painn_node.cuh"

int painn_gpu_launch_update_tf32(const painn_gpu_step *step, const gpu_plan *plan, int layer, int back, void *stream)
{
    return launch_update_of<single_numbers<false>>(step, plan, layer, back, stream);
}

int painn_gpu_prepare_node_tf32(int n_features)
{
    return prepare_update_of<single_numbers<false>>(n_features);
}
