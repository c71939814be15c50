// SPDX-License-Identifier: MIT
// orb_nodes.cu: latent features of nodes at the beginning, and the sums of gated messages that a node has sent and received. A block for
// each atom: four warps sum what was sent, four what was received, each every fourth edge; their parts are added in order.
#include "gpu/nn/operand.cuh"
#include "orb_gpu.h"

enum { SUM_WARPS = 8, HALF = SUM_WARPS / 2 };

template <int NUMBERS>
static __global__ void __launch_bounds__(128) orb_node_kernel(const __grid_constant__ orb_gpu_step step, int unused)
{
    wait_for_previous();
    let_next_start();
    const int lane = threadIdx.x % 32, i = blockIdx.x * 4 + threadIdx.x / 32;
    if (i >= step.gpu.call->n_atoms) return;
    const int z = step.gpu.neighbors.species[i];
    store_operand<NUMBERS>(step.nodes, i, 8 * lane, load_constants(step.node_table + (size_t)z * ORB_GPU_LATENT + 8 * lane));
}

// Sending (0) or receiving (1) gate of edge e.
static __device__ __forceinline__ float gate_of(const orb_gpu_step &step, int e, int which, float bias)
{
    float sum = bias;
    for (int k = 0; k < step.gate_parts; k++) sum += step.gates[((size_t)e * ORB_GPU_GATE_PARTS + k) * 2 + which];
    return logistic(sum) * step.envelope[e];
}

template <int NUMBERS>
static __global__ void __launch_bounds__(32 * SUM_WARPS)
    orb_sum_kernel(const __grid_constant__ orb_gpu_step step, float bias_sent, float bias_received, int stamp)
{
    __shared__ float4 part[SUM_WARPS][2][32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, i = blockIdx.x, received = warp / HALF;
    // The graph is older than the previous kernel.
    const int32_t *first = received ? step.incoming_first : step.first_edge;
    const bool exists = i < step.gpu.call->n_atoms;
    const int begin = exists ? first[i] : 0, end = exists ? first[i + 1] : 0;
    wait_for_previous();
    let_next_start();
    if (step.gpu.stamps && blockIdx.x == 0 && threadIdx.x == 0) step.gpu.stamps[stamp] = gpu_timer();
    if (!exists) return;
    const float bias = received ? bias_received : bias_sent;
    eight sum = {};
#pragma unroll 4
    for (int k = begin + warp % HALF; k < end; k += HALF) {
        const int e = received ? step.incoming_edge[k] : k;
        const float gate = gate_of(step, e, received, bias);
        const eight m = load_floats(step.message + (size_t)e * ORB_GPU_LATENT + 8 * lane);
#pragma unroll
        for (int c = 0; c < 8; c++) sum.v[c] = fmaf(gate, m.v[c], sum.v[c]);
    }
    part[warp][0][lane] = make_float4(sum.v[0], sum.v[1], sum.v[2], sum.v[3]);
    part[warp][1][lane] = make_float4(sum.v[4], sum.v[5], sum.v[6], sum.v[7]);
    __syncthreads();
    if (warp % HALF != 0) return;
    for (int w = 1; w < HALF; w++) {
        const float4 a = part[warp + w][0][lane], b = part[warp + w][1][lane];
        sum.v[0] += a.x, sum.v[1] += a.y, sum.v[2] += a.z, sum.v[3] += a.w;
        sum.v[4] += b.x, sum.v[5] += b.y, sum.v[6] += b.z, sum.v[7] += b.w;
    }
    store_operand<NUMBERS>(step.gathered, i, (received ? 0 : ORB_GPU_LATENT) + 8 * lane, sum);
}

#define FOR_NUMBERS(numbers, f, ...)                                                                                             \
    ((numbers) == GPU_NUMBER_FLOAT32 ? f<GPU_NUMBER_FLOAT32>(__VA_ARGS__)                                                        \
     : (numbers) == GPU_NUMBER_TF32  ? f<GPU_NUMBER_TF32>(__VA_ARGS__)                                                           \
                                     : f<GPU_NUMBER_BF16>(__VA_ARGS__))

template <int NUMBERS> static int launch_nodes(const orb_gpu_step *step, const gpu_plan *plan, void *stream)
{
    return launch(orb_node_kernel<NUMBERS>, (plan->n_atoms + 3) / 4, 128, 0, 1, plan->overlap, stream, *step, 0);
}

int orb_gpu_launch_nodes(const orb_gpu_step *step, const gpu_plan *plan, void *stream)
{
    return FOR_NUMBERS(step->numbers, launch_nodes, step, plan, stream);
}

template <int NUMBERS> static int launch_sum(const orb_gpu_step *step, const gpu_plan *plan, int layer, void *stream)
{
    const float *bias = step->model->layer[layer].gate_bias;
    return launch(orb_sum_kernel<NUMBERS>, plan->n_atoms, 32 * SUM_WARPS, 0, 1, plan->overlap, stream, *step, bias[0], bias[1],
                  ORB_GPU_STAMP_LAYERS + 2 * layer + 1);
}

int orb_gpu_launch_sum_messages(const orb_gpu_step *step, const gpu_plan *plan, int layer, void *stream)
{
    return FOR_NUMBERS(step->numbers, launch_sum, step, plan, layer, stream);
}
