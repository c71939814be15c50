// SPDX-License-Identifier: MIT
// orb_back.cu: products of the reverse pass, by the tiles of gpu/nn, and its ends: from the energy to the nodes of a system, from an
// edge's inputs and envelope to its vector.
#include "gpu/nn/dense.cuh"
#include "gpu/nn/norm.cuh"
#include "orb_harmonics.cuh"
#include "orb_launch.cuh"

enum { READOUT_THREADS = 1024, GROUPS = READOUT_THREADS / ORB_GPU_LATENT, LANES = 16 /* of an edge, one for each harmonic */ };

template <int NUMBERS, int WIDE>
static __global__ void __launch_bounds__(tile_of<NUMBERS, WIDE>::THREADS, tile_of<NUMBERS, WIDE>::RESIDENT)
    orb_edge_back_kernel(const __grid_constant__ gpu_dense call, int unused)
{
    DYNAMIC_SHARED(shared);
    run_dense<NUMBERS, WIDE>(call, shared);
}

template <int NUMBERS, int WIDE>
static __global__ void __launch_bounds__(tile_of<NUMBERS, WIDE>::THREADS, tile_of<NUMBERS, WIDE>::RESIDENT)
    orb_node_back_kernel(const __grid_constant__ gpu_dense call, int unused)
{
    DYNAMIC_SHARED(shared);
    run_dense<NUMBERS, WIDE>(call, shared);
}

// dE/dn = scale W₁ᵀ(w₂ ∘ act'(z)), the same for all nodes of a system: a block for each.
template <int NUMBERS>
static __global__ void __launch_bounds__(READOUT_THREADS)
    orb_readout_back_kernel(const __grid_constant__ orb_gpu_step step, int unused)
{
    __shared__ float hidden_bar[ORB_GPU_LATENT], part[GROUPS][ORB_GPU_LATENT];
    wait_for_previous();
    let_next_start();
    const int s = blockIdx.x, f = threadIdx.x % ORB_GPU_LATENT, group = threadIdx.x / ORB_GPU_LATENT;
    if (s >= step.gpu.call->n_systems) return;
    if (threadIdx.x < ORB_GPU_LATENT / 8) {
        eight slope = load_constants(step.energy.weight + 8 * threadIdx.x);
        multiply_slope(step.activation, load_operand<NUMBERS>(step.pooled_hidden, s, 8 * threadIdx.x), slope);
        for (int k = 0; k < 8; k++) hidden_bar[8 * threadIdx.x + k] = (float)step.energy_scale * slope.v[k];
    }
    __syncthreads();
    float sum = 0;
#pragma unroll 8
    for (int k = group; k < ORB_GPU_LATENT; k += GROUPS) sum = fmaf(step.energy_back[k * ORB_GPU_LATENT + f], hidden_bar[k], sum);
    part[group][f] = sum;
    __syncthreads();
    if (group > 0) return;
    for (int k = 1; k < GROUPS; k++) sum += part[k][f];
    step.system_bar[(size_t)s * ORB_GPU_LATENT + f] = sum;
}

// ---- edges

static __device__ __forceinline__ float sum_lanes(float v)
{
    for (int mask = LANES / 2; mask > 0; mask /= 2) v += __shfl_xor_sync(~0u, v, mask);
    return v;
}

// Lane k of an edge has harmonic k of all radial functions b_n(r) c(r); lanes n < 8 compute b_n and its slope.
static __global__ void __launch_bounds__(128) orb_gradient_kernel(const __grid_constant__ orb_gpu_step step, int chunk)
{
    wait_for_previous();
    let_next_start();
    const int lane = threadIdx.x % LANES, before = threadIdx.x % 32 - lane, local = (blockIdx.x * 128 + threadIdx.x) / LANES,
              n_edges = *step.n_edges;
    const bool exists = local < step.chunk && chunk + local < n_edges;
    if (chunk + (int)blockIdx.x * (128 / LANES) >= n_edges) return;
    const int e = exists ? chunk + local : chunk; // all lanes take part in shuffles
    const float4 g = ((const float4 *)step.geometry)[e];
    const float u[3] = {g.x, g.y, g.z}, r = g.w, cutoff = (float)step.gpu.neighbors.cutoff, x = r / cutoff;
    const float c = step.envelope[e], slope = x < 1.0f ? x * x * x * (-60.0f + x * (120.0f - 60.0f * x)) / cutoff : 0.0f;
    const float frequency = (float)(lane % 8 + 1) * 3.14159265f / cutoff, prefactor = sqrtf(2.0f / cutoff);
    const float own = prefactor * sinf(frequency * r) / r, own_slope = (prefactor * frequency * cosf(frequency * r) - own) / r;
    float b[LANES], Y[LANES], vector[3], harmonic_bar = 0, along_slope = 0, along = 0;
    harmonics(g, Y);
    float harmonic = Y[0];
#pragma unroll
    for (int k = 1; k < LANES; k++) harmonic = lane == k ? Y[k] : harmonic;
    const float *bar = step.input_bar + (size_t)(exists ? local : 0) * step.edge_inputs + lane;
#pragma unroll
    for (int n = 0; n < 8; n++) {
        const float bessel = __shfl_sync(~0u, own, before + n), bessel_slope = __shfl_sync(~0u, own_slope, before + n),
                    of = bar[LANES * n];
        harmonic_bar = fmaf(of, bessel * c, harmonic_bar);
        along_slope = fmaf(of * harmonic, bessel_slope * c, along_slope);
        along = fmaf(of * harmonic, bessel, along);
    }
    const float d_bar = sum_lanes(along_slope) + (step.envelope_bar[e] + sum_lanes(along)) * slope;
#pragma unroll
    for (int k = 0; k < LANES; k++) b[k] = __shfl_sync(~0u, harmonic_bar, before + k);
    harmonics_backward(u, b, vector);
    const float radial = u[0] * vector[0] + u[1] * vector[1] + u[2] * vector[2];
    for (int k = 0; k < 3; k++) vector[k] = d_bar * u[k] + (vector[k] - radial * u[k]) / r;
    if (exists && lane == 0) ((float4 *)step.gradient)[e] = make_float4(vector[0], vector[1], vector[2], 0);
}

// ---- launches -------------------------------------------------------------------------------------------------------

LAUNCH_PRODUCT(edge_back, orb_edge_back_kernel, gpu_dense)
LAUNCH_PRODUCT(node_back, orb_node_back_kernel, gpu_dense)

template <int NUMBERS, int WIDE> static int prepare_one(int unused)
{
    const int error = prepare_kernel<NUMBERS, WIDE>(orb_edge_back_kernel<NUMBERS, WIDE>);
    return error ? error : prepare_kernel<NUMBERS, WIDE>(orb_node_back_kernel<NUMBERS, WIDE>);
}

int orb_gpu_prepare_back(int hopper)
{
    return for_all_plans(hopper, [](const gpu_linear_plan *plan) { return FOR_PLAN(plan, prepare_one, 0); });
}

template <int NUMBERS> static int launch_readout(const orb_gpu_step *step, const gpu_plan *plan, void *stream)
{
    return launch(orb_readout_back_kernel<NUMBERS>, plan->n_systems, READOUT_THREADS, 0, 1, plan->overlap, stream, *step, 0);
}

int orb_gpu_launch_readout_back(const orb_gpu_step *step, const gpu_plan *plan, void *stream)
{
    return FOR_NUMBERS(step->numbers, launch_readout, step, plan, stream);
}

int orb_gpu_launch_gradient(const orb_gpu_step *step, const gpu_plan *plan, int first, void *stream)
{
    const int rows = min(step->chunk, min(step->edge_capacity, plan->n_atoms * step->cap) - first);
    return launch(orb_gradient_kernel, (rows * LANES + 127) / 128, 128, 0, 1, plan->overlap, stream, *step, first);
}
