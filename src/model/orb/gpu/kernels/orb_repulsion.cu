// SPDX-License-Identifier: MIT
// orb_repulsion.cu: ZBL repulsion of Orb-v3's edges (orb_edge.c), by a warp for each atom: energy and stress of the edges that it sends,
// force of these and of those that end in it. Terms are float32, sums float64 in the order of the edges.
#include "gpu/evaluator/system_sums.cuh"
#include "gpu/nn/operand.cuh"
#include "model/orb/gpu/orb_gpu.h"

enum { WARPS = 4 };

// Energy of an edge between atoms of Z = a and b at distance r in Å, and its slope.
static __device__ __forceinline__ float repulsion_of_edge(const orb_gpu_step &step, int a, int b, float r, float &slope)
{
    const float2 of_a = ((const float2 *)step.repulsion_table)[a], of_b = ((const float2 *)step.repulsion_table)[b];
    const float end = of_a.x + of_b.x, scale = (of_a.y + of_b.y) * (1.0f / (0.4543f * 0.529f));
    slope = 0;
    if (!(r < end)) return 0;
    const float weight[4] = {0.1818f, 0.5099f, 0.2802f, 0.02817f}, decay[4] = {3.2f, 0.9423f, 0.4028f, 0.2016f};
    float phi = 0, phi_slope = 0;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const float term = weight[k] * expf(-decay[k] * scale * r);
        phi += term;
        phi_slope -= decay[k] * scale * term;
    }
    const float x = r / end, x2 = x * x, x5 = x2 * x2 * x, envelope = 1.0f - x5 * x * (28.0f - x * (48.0f - 21.0f * x)),
                envelope_slope = x5 * (-168.0f + x * (336.0f - 168.0f * x)) / end,
                half = 0.5f * 14.3996f * (float)(a + 1) * (float)(b + 1) / r;
    slope = half * ((phi_slope - phi / r) * envelope + phi * envelope_slope);
    return half * phi * envelope;
}

static __global__ void __launch_bounds__(32 * WARPS) orb_repulsion_kernel(const __grid_constant__ orb_gpu_step step, int unused)
{
    wait_for_previous();
    let_next_start();
    const int lane = threadIdx.x % 32, i = blockIdx.x * WARPS + threadIdx.x / 32;
    if (i >= step.gpu.call->n_atoms) return;
    const int32_t *species = step.gpu.neighbors.species;
    const int sent = step.first_edge[i + 1] - step.first_edge[i],
              all = sent + step.incoming_first[i + 1] - step.incoming_first[i];
    double sum[10] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0}; // as orb_gpu_repulsion
    for (int k = lane; k < all; k += 32) {
        const bool own = k < sent;
        const int e = own ? step.first_edge[i] + k : step.incoming_edge[step.incoming_first[i] + k - sent];
        const float4 g = ((const float4 *)step.geometry)[e];
        const float u[3] = {g.x, g.y, g.z};
        float slope;
        const float energy = repulsion_of_edge(step, species[step.sender[e]], species[step.receiver[e]], g.w, slope);
        for (int c = 0; c < 3; c++) sum[7 + c] += own ? slope * u[c] : -slope * u[c];
        if (!own) continue;
        sum[0] += energy;
        for (int c = 0; c < 6; c++) {
            const int a = c < 3 ? c : c == 3 ? 1 : 0, b = c < 3 ? c : c == 5 ? 1 : 2; // xx yy zz yz xz xy
            sum[1 + c] += slope * g.w * u[a] * u[b];
        }
    }
    for (int k = 0; k < 10; k++) sum[k] = sum_warp(sum[k]);
    if (lane > 0) return;
    orb_gpu_repulsion to;
    to.energy = sum[0];
    for (int c = 0; c < 6; c++) to.stress[c] = sum[1 + c];
    for (int c = 0; c < 3; c++) to.force[c] = sum[7 + c];
    step.repulsion[i] = to;
}

int orb_gpu_launch_repulsion(const orb_gpu_step *step, const gpu_plan *plan, void *stream)
{
    return launch(orb_repulsion_kernel, (plan->n_atoms + WARPS - 1) / WARPS, 32 * WARPS, 0, 1, plan->overlap, stream, *step, 0);
}
