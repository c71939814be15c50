// SPDX-License-Identifier: MIT
// orb_forces.cu: conservative forces from the gradients of edges, and energies and stress of systems.
#include "gpu/dynamics/integrate.cuh"
#include "gpu/evaluator/system_sums.cuh"
#include "gpu/nn/norm.cuh"
#include "model/orb/gpu/orb_gpu.h"

enum { WARPS = 4, SUM_THREADS = 256 };

// Part of the repulsion's energy, forces and virial that counts: the mean over a system's atoms, or the sum.
static __device__ __forceinline__ double repulsion_share(const orb_gpu_step &step, const gpu_system &system)
{
    return step.repulsion_is_mean ? 1.0 / max(system.n, 1) : 1.0;
}

// A warp for each atom, which moves it in dynamics: F_i = Σ g over the edges it sends − Σ g over those that end in it.
static __global__ void __launch_bounds__(32 * WARPS)
    orb_gathered_force_kernel(const __grid_constant__ orb_gpu_step step, int moves)
{
    wait_for_previous();
    let_next_start();
    const gpu_step &gpu = step.gpu;
    if (gpu.stamps && blockIdx.x == 0 && threadIdx.x == 0) gpu.stamps[step.stamp_heads + 2 + 2 * step.n_layers] = gpu_timer();
    const int lane = threadIdx.x % 32, i = blockIdx.x * WARPS + threadIdx.x / 32;
    if (i >= gpu.call->n_atoms) return;
    const gpu_call &call = *gpu.call;
    const moving_atom atom(gpu.motion, moves ? i : INT32_MAX, gpu.motion.place + 1);
    const int begin = step.first_edge[i], sent = step.first_edge[i + 1] - begin, incoming = step.incoming_first[i],
              all = sent + step.incoming_first[i + 1] - incoming;
    double f[3] = {0, 0, 0}, w[9] = {0, 0, 0, 0, 0, 0, 0, 0, 0};
    for (int k = lane; k < all; k += 32) {
        const int e = k < sent ? begin + k : step.incoming_edge[incoming + k - sent];
        const float4 g = ((const float4 *)step.gradient)[e], r = ((const float4 *)step.geometry)[e];
        const float of[3] = {g.x, g.y, g.z}, u[3] = {r.x, r.y, r.z};
        for (int a = 0; a < 3; a++) {
            f[a] += k < sent ? of[a] : -of[a];
            for (int b = 0; b < 3 && call.want_virial && k < sent; b++) w[3 * a + b] -= (double)of[a] * (u[b] * r.w);
        }
    }
    for (int a = 0; a < 3; a++) f[a] = sum_warp(f[a]);
    const gpu_system &system = gpu.neighbors.systems[call.n_systems == 1 ? 0 : gpu.neighbors.system_of[i]];
    const double share = repulsion_share(step, system);
    double force = lane == 0 ? f[0] : lane == 1 ? f[1] : f[2];
    if (step.repulsion_table) force += share * step.repulsion[i].force[min(lane, 2)];
    if (gpu.report->flags) force = nan("");
    if (lane < 3 && call.forces) call.forces[(size_t)i * 3 + lane] = force;
    if (lane < 3) note_overflow(gpu, force);
    for (int c = 0; c < 9 && call.want_virial; c++) {
        const int a = min(c / 3, c % 3), b = max(c / 3, c % 3), voigt = a == b ? a : 6 - a - b; // xx yy zz yz xz xy
        const double sum = sum_warp(w[c]), own = step.repulsion_table ? share * step.repulsion[i].stress[voigt] : 0.0;
        if (lane == 0) gpu.atom_virial[(size_t)i * 9 + c] = sum - own;
    }
    __syncwarp();
    if (moves) move_atom(gpu, atom, force, true);
}

// Energy, and with forces virial and stress: a block for each system.
static __global__ void __launch_bounds__(SUM_THREADS)
    orb_energy_kernel(const __grid_constant__ orb_gpu_step step, int with_forces)
{
    __shared__ double network;
    wait_for_previous();
    let_next_start();
    const gpu_call call = *step.gpu.call;
    const int s = blockIdx.x;
    if (s < call.n_systems) {
        const gpu_system &system = step.gpu.neighbors.systems[s];
        const double share = repulsion_share(step, system);
        const float *hidden = step.system_hidden_values + (size_t)s * 2 * ORB_GPU_LATENT;
        if (threadIdx.x < 32) {
            const float y =
                sum_warp(dot_eight(load_floats(hidden + 8 * threadIdx.x), load_constants(step.energy.weight + 8 * threadIdx.x)));
            if (threadIdx.x == 0) network = ((double)(y + step.energy.bias[0]) * step.energy_scale + step.energy_mean) * system.n;
        }
        __syncthreads();
        // Of a step that has failed `network` is not a number.
        sum_system(step.gpu, call, s, with_forces != 0, false, [&](int atom, double &own) {
            own = step.gpu.neighbors.offset[step.gpu.neighbors.species[atom]];
            return (atom == system.first ? network : 0.0) + (step.repulsion_table ? share * step.repulsion[atom].energy : 0.0);
        });
    }
    if (s > 0) return;
    __syncthreads();
    publish_report(step.gpu, call);
    if (step.gpu.stamps && threadIdx.x == 0)
        step.gpu.stamps[step.stamp_heads + (with_forces ? 3 + 2 * step.n_layers : 1)] = gpu_timer();
}

int orb_gpu_launch_gathered_forces(const orb_gpu_step *step, const gpu_plan *plan, void *stream)
{
    return launch(orb_gathered_force_kernel, (plan->n_atoms + WARPS - 1) / WARPS, 32 * WARPS, 0, 1, plan->overlap, stream, *step,
                  step->gpu.motion.n_atoms > 0 ? 1 : 0);
}

int orb_gpu_launch_energies(const orb_gpu_step *step, const gpu_plan *plan, void *stream)
{
    return launch(orb_energy_kernel, plan->n_systems, SUM_THREADS, 0, 1, plan->overlap, stream, *step, plan->forces);
}
