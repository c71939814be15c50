// SPDX-License-Identifier: MIT
// painn_ghosts.cu: the first atoms, for which alone a layer is computed.
//
// Energies are those of owned atoms, which depend on layer l of L (0-based) at atoms that are at most k = L − 1 − l edges away.
//   rows 0:      up to the last owned atom
//   rows k + 1:  up to the last neighbor of an atom in rows k
// All in whole tiles, which an update reads and writes. So every feature that is read has been computed in this step, in any order of
// atoms; callers that put ghosts behind the owned atoms, near ones first, save the others' work. Adjoints of atoms beyond are zeros. With
// halo hooks ghosts' features come from their owners, and all layers have rows 0.
#include "gpu/gpu_stage.cuh"
#include "gpu/ptx/primitives.cuh"
#include "painn_gpu.h"

static __device__ __forceinline__ int whole_tiles(const painn_gpu_step &step, int k, int n_atoms)
{
    return min((step.reach[k] + GPU_ATOM_BLOCK - 1) / GPU_ATOM_BLOCK * GPU_ATOM_BLOCK, n_atoms);
}

static __global__ void __launch_bounds__(256) last_owned_kernel(const __grid_constant__ painn_gpu_step step)
{
    wait_for_previous();
    const int n = step.gpu.call->n_atoms, i = blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned char *const owned = step.gpu.neighbors.owned;
    if (i < n && owned[i] && (i + 1 == n || !owned[i + 1])) atomicMax(step.reach, i + 1);
}

// One warp for each atom.
static __global__ void __launch_bounds__(256) last_neighbor_kernel(const __grid_constant__ painn_gpu_step step, int k)
{
    wait_for_previous();
    const int lane = threadIdx.x % 32, i = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (i >= whole_tiles(step, k, step.gpu.call->n_atoms)) return;
    const gpu_neighbors &list = step.gpu.neighbors;
    const gpu_edge *const row = list.edges + (size_t)i * list.row_capacity;
    int end = i + 1;
    for (int m = lane; m < list.row_length[i]; m += 32) end = max(end, (row[m].packed >> list.tag_bits) + 1);
    for (int mask = 16; mask > 0; mask /= 2) end = max(end, __shfl_xor_sync(~0u, end, mask));
    // A value that is read may be old, but not too large.
    if (lane == 0 && end > *(volatile int32_t *)&step.reach[k + 1]) atomicMax(&step.reach[k + 1], end);
}

// One warp for each atom.
static __global__ void __launch_bounds__(256) clear_ghosts_kernel(const __grid_constant__ painn_gpu_step step)
{
    wait_for_previous();
    const gpu_call call = *step.gpu.call;
    const int n = whole_tiles(step, 0, call.n_atoms);
    const int lane = threadIdx.x % 32, i = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (i == 0 && lane <= step.n_layers) {
        step.calls[lane] = call;
        step.calls[lane].n_atoms = whole_tiles(step, lane, call.n_atoms);
    }
    if (i < n || i >= call.n_atoms) return;
    const int F = step.n_features;
    float4 *const adjoint = (float4 *)step.adjoint + (size_t)i * F;
    for (int k = lane; k < F; k += 32) adjoint[k] = make_float4(0, 0, 0, 0);
    if (lane < F / PAINN_GPU_SLICE) step.raw_energy[(size_t)lane * step.gpu.neighbors.atom_capacity + i] = 0;
}

int painn_gpu_launch_ghosts(const painn_gpu_step *step, const gpu_plan *plan, int layers, void *stream)
{
    const int warps = (plan->n_atoms + 7) / 8;
    int error = launch(last_owned_kernel, (plan->n_atoms + 255) / 256, 256, 0, 1, 0, stream, *step);
    for (int k = 0; layers && k < step->n_layers && error == 0; k++)
        error = launch(last_neighbor_kernel, warps, 256, 0, 1, 0, stream, *step, k);
    return error ? error : launch(clear_ghosts_kernel, warps, 256, 0, 1, 0, stream, *step);
}
