// SPDX-License-Identifier: MIT
// lj_gpu.cu: kernels of the Lennard-Jones model: a warp for each atom, then a block for each system.
#include "gpu/dynamics/integrate.cuh"
#include "gpu/evaluator/system_sums.cuh"
#include "lennard_jones/lj_gpu.h"

enum { WARPS = 4 };

// Sums of a lane, then of the warp: energy, force and virial of an atom.
struct pair_sums {
    double energy, force[3], virial[9];

    __device__ void add(const lj_parameters &p, const gpu_edge &edge, double own_weight, double force_weight)
    {
        double by_r;
        const double d = edge.d, v = lj_pair(&p, d * d, d, &by_r), slope = by_r * d;
        energy += own_weight * v;
        for (int a = 0; a < 3; a++) {
            force[a] += force_weight * slope * edge.u[a];
            for (int b = 0; b < 3; b++) virial[3 * a + b] -= own_weight * slope * d * edge.u[a] * edge.u[b];
        }
    }
    __device__ void reduce()
    {
        energy = sum_warp(energy);
        for (int a = 0; a < 3; a++) force[a] = sum_warp(force[a]);
        for (int k = 0; k < 9; k++) virial[k] = sum_warp(virial[k]);
    }
};

// Half of a pair belongs to each atom that is owned. An asymmetric list has the incoming edges apart, else they are the rows.
static __device__ void sum_pairs(const lj_gpu_step &step, int i, int lane, pair_sums &sums)
{
    const gpu_neighbors &list = step.gpu.neighbors;
    const bool apart = list.given_pairs == 2;
    const double own = list.owned[i] ? 0.5 : 0.0;
    const gpu_edge *row = list.edges + (size_t)i * list.row_capacity, *incoming = list.incoming + (size_t)i * list.row_capacity;
    for (int k = lane; k < list.row_length[i]; k += 32) {
        const double other = list.owned[row[k].packed] ? 0.5 : 0.0;
        sums.add(step.parameters, row[k], own, apart ? own : own + other);
    }
    for (int k = lane; apart && k < list.incoming_length[i]; k += 32)
        sums.add(step.parameters, incoming[k], 0.0, list.owned[incoming[k].packed] ? 0.5 : 0.0);
}

static __global__ void __launch_bounds__(32 * WARPS) lj_pair_kernel(const __grid_constant__ lj_gpu_step step, int moves)
{
    const gpu_step &gpu = step.gpu;
    const int lane = threadIdx.x % 32, i = blockIdx.x * WARPS + threadIdx.x / 32;
    begin_stage(gpu, LJ_STAMP_PAIRS);
    if (i >= gpu.call->n_atoms) return;
    const moving_atom atom(gpu.motion, moves ? i : INT32_MAX, gpu.motion.place + 1);
    pair_sums sums = {};
    sum_pairs(step, i, lane, sums);
    sums.reduce();
    if (lane == 0) {
        step.energy[2 * (size_t)i] = gpu.report->flags ? nan("") : sums.energy;
        step.energy[2 * (size_t)i + 1] = gpu.neighbors.owned[i] ? gpu.neighbors.offset[gpu.neighbors.species[i]] : 0.0;
        for (int k = 0; k < 9; k++) gpu.atom_virial[(size_t)i * 9 + k] = sums.virial[k];
    }
    const double force = lane < 3 ? sums.force[lane] : 0.0;
    if (lane < 3 && gpu.call->forces) gpu.call->forces[(size_t)i * 3 + lane] = force;
    if (moves) move_atom(gpu, atom, force, true);
}

static __global__ void __launch_bounds__(128) lj_sum_kernel(const __grid_constant__ lj_gpu_step step, int with_forces)
{
    begin_stage(step.gpu, LJ_STAMP_SUMS);
    const gpu_call call = *step.gpu.call;
    const int s = blockIdx.x;
    if (s == 0) publish_report(step.gpu, call);
    if (s >= call.n_systems) return;
    sum_system(step.gpu, call, s, with_forces != 0, false, [&](int i, double &own) {
        own = step.energy[2 * (size_t)i + 1];
        return step.energy[2 * (size_t)i];
    });
    if (step.gpu.stamps && s == 0 && threadIdx.x == 0) step.gpu.stamps[LJ_STAMP_END] = gpu_timer();
}

int lj_gpu_launch_pairs(const lj_gpu_step *step, const gpu_plan *plan, void *stream)
{
    const int moves = step->gpu.motion.n_atoms > 0;
    return launch(lj_pair_kernel, (plan->n_atoms + WARPS - 1) / WARPS, 32 * WARPS, 0, 1, plan->overlap, stream, *step, moves);
}

int lj_gpu_launch_sums(const lj_gpu_step *step, const gpu_plan *plan, void *stream)
{
    return launch(lj_sum_kernel, plan->n_systems, 128, 0, 1, plan->overlap, stream, *step, plan->forces);
}
