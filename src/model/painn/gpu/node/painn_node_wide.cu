// SPDX-License-Identifier: MIT
// painn_node_wide.cu: the kernels of painn_node.cuh with float32's range, for a step whose activations exceed what halves hold.
#include "painn_node.cuh"

int painn_gpu_launch_update_wide(const painn_gpu_step *step, const gpu_plan *plan, int layer, int back, void *stream)
{
    return step->n_features == 32   ? launch_update<shape<32, three_bfloats>>(step, plan, layer, back, stream)
           : step->n_features == 64 ? launch_update<shape<64, three_bfloats>>(step, plan, layer, back, stream)
                                    : launch_update<shape<128, three_bfloats>>(step, plan, layer, back, stream);
}

int painn_gpu_prepare_node_wide(int n_features)
{
    const cudaError_t error = n_features == 32   ? raise<shape<32, three_bfloats>>()
                              : n_features == 64 ? raise<shape<64, three_bfloats>>()
                                                 : raise<shape<128, three_bfloats>>();
    cudaGetLastError();
    return (int)error;
}
