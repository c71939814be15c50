// SPDX-License-Identifier: MIT
// painn_ghosts.cu: with halo hooks, features of ghosts come from their owners, so that messages and updates are computed for owned atoms
// alone. They come first: rows 0 … n − 1, n behind the last owned atom and rounded up to whole tiles, which an update may read and write.
// Ghosts have no energy of their own: their adjoints and energies are zeros.
#include "gpu/gpu_stage.cuh"
#include "gpu/ptx/primitives.cuh"
#include "painn_gpu.h"

static __global__ void __launch_bounds__(256) last_owned_kernel(const __grid_constant__ painn_gpu_step step)
{
    wait_for_previous();
    const int n = step.gpu.call->n_atoms, i = blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned char *const owned = step.gpu.neighbors.owned;
    if (i < n && owned[i] && (i + 1 == n || !owned[i + 1])) atomicMax(&step.gpu.report->n_rows, i + 1);
}

// One warp for each atom.
static __global__ void __launch_bounds__(256) clear_ghosts_kernel(const __grid_constant__ painn_gpu_step step)
{
    wait_for_previous();
    const gpu_call call = *step.gpu.call;
    const int whole = (step.gpu.report->n_rows + GPU_ATOM_BLOCK - 1) / GPU_ATOM_BLOCK * GPU_ATOM_BLOCK,
              n = min(whole, call.n_atoms);
    const int lane = threadIdx.x % 32, i = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (i == 0 && lane == 0) {
        *step.call_of_rows = call;
        step.call_of_rows->n_atoms = n;
    }
    if (i < n || i >= call.n_atoms) return;
    const int F = step.n_features;
    float4 *const adjoint = (float4 *)step.adjoint + (size_t)i * F;
    for (int k = lane; k < F; k += 32) adjoint[k] = make_float4(0, 0, 0, 0);
    if (lane < F / PAINN_GPU_SLICE) step.raw_energy[(size_t)lane * step.gpu.neighbors.atom_capacity + i] = 0;
}

int painn_gpu_launch_ghosts(const painn_gpu_step *step, const gpu_plan *plan, void *stream)
{
    const int error = launch(last_owned_kernel, (plan->n_atoms + 255) / 256, 256, 0, 1, 0, stream, *step);
    return error ? error : launch(clear_ghosts_kernel, (plan->n_atoms + 7) / 8, 256, 0, 1, 0, stream, *step);
}
