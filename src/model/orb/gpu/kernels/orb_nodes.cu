// SPDX-License-Identifier: MIT
// orb_nodes.cu: latent features of nodes at the beginning, and what charge and spin add to them.
#include "gpu/nn/operand.cuh"
#include "gpu/ptx/exchange.cuh"
#include "model/orb/gpu/orb_gpu.h"

enum { CLEARING_BLOCKS = 128 };

template <int NUMBERS>
static __global__ void __launch_bounds__(128) orb_node_kernel(const __grid_constant__ orb_gpu_step step, int cleared)
{
    wait_for_previous();
    let_next_start();
    exchange_clear(step.exchange, cleared, (int)(blockIdx.x * 128 + threadIdx.x), (int)gridDim.x * 128);
    const int lane = threadIdx.x % 32, i = blockIdx.x * 4 + threadIdx.x / 32;
    if (i >= step.gpu.call->n_atoms) return;
    const int z = step.gpu.neighbors.species[i];
    eight x = load_constants(step.node_table + (size_t)z * ORB_GPU_LATENT + 8 * lane);
    if (step.frequency) {
        const int system = step.gpu.call->n_systems == 1 ? 0 : step.gpu.neighbors.system_of[i];
        const eight added = load_floats(step.condition + (size_t)system * step.n_layers * ORB_GPU_LATENT + 8 * lane);
#pragma unroll
        for (int k = 0; k < 8; k++) x.v[k] += added.v[k];
    }
    store_operand<NUMBERS>(step.nodes, i, 8 * lane, x);
}

// What charge and spin of a system add to its nodes in a layer: a block for each system and layer. z = [sin 2πqw | cos 2πqw | sin 2πSw' |
// cos 2πSw'], zeros for spin 0.
static __global__ void __launch_bounds__(ORB_GPU_LATENT)
    orb_condition_kernel(const __grid_constant__ orb_gpu_step step, int unused)
{
    __shared__ float z[ORB_GPU_LATENT];
    wait_for_previous();
    let_next_start();
    const int s = blockIdx.x / step.n_layers, t = blockIdx.x % step.n_layers, f = threadIdx.x;
    if (s >= step.gpu.call->n_systems) return;
    const gpu_system &system = step.gpu.neighbors.systems[s];
    const double of = f < ORB_GPU_LATENT / 2 ? system.charge : system.spin;
    const double turns = of * step.frequency[f / (ORB_GPU_LATENT / 2) * (ORB_GPU_LATENT / 4) + f % (ORB_GPU_LATENT / 4)],
                 angle = 2.0 * 3.14159265358979323846 * (turns - floor(turns));
    const bool none = f >= ORB_GPU_LATENT / 2 && system.spin == 0;
    z[f] = none ? 0.0f : (float)(f / (ORB_GPU_LATENT / 4) % 2 == 0 ? sin(angle) : cos(angle));
    __syncthreads();
    const float *weight = step.condition_weight + (size_t)t * ORB_GPU_LATENT * ORB_GPU_LATENT + f;
    float sum = step.condition_bias[t * ORB_GPU_LATENT + f];
#pragma unroll 8
    for (int k = 0; k < ORB_GPU_LATENT; k++) sum = fmaf(weight[k * ORB_GPU_LATENT], z[k], sum);
    step.condition[((size_t)s * step.n_layers + t) * ORB_GPU_LATENT + f] = sum;
}

template <int NUMBERS> static int launch_nodes(const orb_gpu_step *step, const gpu_plan *plan, int cleared, void *stream)
{
    const int blocks = (plan->n_atoms + 3) / 4;
    return launch(orb_node_kernel<NUMBERS>, cleared ? max(blocks, (int)CLEARING_BLOCKS) : blocks, 128, 0, 1, plan->overlap,
                  stream, *step, cleared);
}

int orb_gpu_launch_nodes(const orb_gpu_step *step, const gpu_plan *plan, int cleared, void *stream)
{
    return FOR_NUMBERS(step->numbers, launch_nodes, step, plan, cleared, stream);
}

int orb_gpu_launch_condition(const orb_gpu_step *step, const gpu_plan *plan, void *stream)
{
    return launch(orb_condition_kernel, plan->n_systems * step->n_layers, ORB_GPU_LATENT, 0, 1, plan->overlap, stream, *step, 0);
}
