// SPDX-License-Identifier: MIT
// ani_cuda_sums.cu: before and after the networks: atoms sorted by species; forces, energies, virials.
//
//   F_i = Σ g of the pairs of i − Σ g of the pairs that end in i,  g = dE/dr of a pair's centre ;  virial = −Σ g ⊗ r
//
// `arrange` is one block: a warp counts its piece of the atoms, and puts them into slots in their order. `forces` gives a
// warp to each atom, `sums` a block to each system; all sums in double and in one order.
#include "ani_cuda.h"
#include "model/painn/painn_cuda_sums.cuh"

static __global__ void __launch_bounds__(1024) arrange_kernel(const __grid_constant__ ani_cuda_step step, int unused)
{
    __shared__ int counts[32][ANI_MAX_SPECIES], present[ANI_MAX_SPECIES], rank[ANI_MAX_SPECIES];
    const painn_cuda_call &call = *step.list.call_in;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32, n_species = step.n_species;
    const int each = (call.n_atoms + 32 * warps - 1) / (32 * warps) * 32;
    const int begin = warp * each, end = min(begin + each, call.n_atoms);
    ani_cuda_groups &groups = *step.groups;
    if (threadIdx.x < ANI_MAX_SPECIES) present[threadIdx.x] = 0;
    __syncthreads();
    int place = 0; // of the species whose number is the lane
    for (int pass = 0; pass < 2; pass++) {
        for (int i = begin + lane; i - lane < end; i += 32) {
            const int z = i < end ? call.species[i] : -1;
            const int s = z >= 0 && z <= MLFF_MAX_ATOMIC_NUMBER ? step.species_of[z] : -1;
            const bool owned = s >= 0 && (!call.owned || call.owned[i]);
            int slot = -1;
            for (int q = 0; q < n_species; q++) {
                const unsigned same = __ballot_sync(~0u, s == q), own = __ballot_sync(~0u, owned && s == q);
                if (pass == 0) {
                    if (same && lane == 0) present[q] = 1;
                    if (lane == q) place += __popc(own);
                    continue;
                }
                const int from = __shfl_sync(~0u, place, q);
                if (owned && s == q) slot = from + __popc(own & ((1u << lane) - 1));
                if (lane == q) place += __popc(own);
            }
            if (pass == 1 && i < end) step.slot_of[i] = slot;
        }
        if (pass == 1) return;
        if (lane < ANI_MAX_SPECIES) counts[warp][lane] = place;
        __syncthreads();
        if (threadIdx.x == 0) {
            int slot = 0, n = 0, n_tiles = 0;
            for (int s = 0; s < n_species; s++) {
                groups.first_slot[s] = slot;
                rank[s] = present[s] ? n++ : -1;
                for (int w = 0; w < warps; w++) {
                    const int count = counts[w][s];
                    counts[w][s] = slot;
                    slot += count;
                }
                slot = (slot + step.tile - 1) / step.tile * step.tile;
            }
            groups.first_slot[n_species] = slot;
            groups.n_present = n;
            for (int s = 0; s < n_species; s++)
                if (rank[s] >= 0) groups.stored_tile[n_tiles++] = s;
            for (int p = 0; p < n_species; p++)
                for (int q = p; q < n_species; q++) {
                    if (rank[p] < 0 || rank[q] < 0) continue;
                    const int pair = p * n_species - p * (p - 1) / 2 + q - p;
                    groups.stored_tile[n_tiles++] = n_species + 2 * pair;
                    groups.stored_tile[n_tiles++] = n_species + 2 * pair + 1;
                }
            groups.n_tiles = n_tiles;
            groups.next_item = 0;
        }
        __syncthreads();
        for (int z = threadIdx.x; z <= MLFF_MAX_ATOMIC_NUMBER; z += blockDim.x)
            groups.rank_of[z] = step.species_of[z] >= 0 ? rank[step.species_of[z]] : -1;
        place = lane < n_species ? counts[warp][lane] : 0;
    }
}

// Model energy and offset of an atom; of the ensemble the mean, or one member. A lane has a block's share of a member.
static __device__ void add_energy(const ani_cuda_step &step, int i, int lane)
{
    const painn_cuda_step &list = step.list;
    const int slot = step.slot_of[i], member = list.call->member, first = member < 0 ? 0 : member;
    const int n = member < 0 ? step.n_members : 1;
    double energy = 0;
    for (int k = lane; slot >= 0 && k < n * step.cluster; k += 32)
        energy += step.member_energy[(size_t)(first * step.cluster + k) * step.slot_capacity + slot];
    energy = sum_warp(energy) * list.energy_unit / n;
    if (lane > 0) return;
    const double own = slot >= 0 ? list.offset[list.species[i]] : 0.0;
    step.energy[2 * (size_t)i] = energy;
    step.energy[2 * (size_t)i + 1] = own;
}

// By the lanes of a warp.
static __device__ void add_forces(const ani_cuda_step &step, int i, int lane)
{
    const painn_cuda_step &list = step.list;
    const bool want_virial = list.call->want_virial;
    const int n_out = list.row_length[i], n_in = list.incoming_length[i]; // the same, where each pair has its reverse
    const size_t row = (size_t)i * list.row_capacity;
    const float4 *gradient = (const float4 *)step.gradient + row, *arrived = (const float4 *)step.arrived + row;
    double f[3] = {0, 0, 0}, w[9] = {0, 0, 0, 0, 0, 0, 0, 0, 0};
    for (int k = lane; k < max(n_in, n_out); k += 32) {
        const float4 zero = make_float4(0, 0, 0, 0), out = k < n_out ? gradient[k] : zero, in = k < n_in ? arrived[k] : zero;
        f[0] += out.x - in.x;
        f[1] += out.y - in.y;
        f[2] += out.z - in.z;
        if (want_virial && k < n_out) {
            const painn_cuda_edge edge = list.edges[row + k];
            const float r[3] = {edge.d * edge.u[0], edge.d * edge.u[1], edge.d * edge.u[2]}, g[3] = {out.x, out.y, out.z};
            for (int c = 0; c < 9; c++) w[c] -= g[c / 3] * r[c % 3];
        }
    }
    const double unit = list.energy_unit / list.length_unit;
    for (int c = 0; c < 3; c++) {
        const double v = sum_warp(f[c]);
        if (lane == c && list.call->forces) list.call->forces[(size_t)i * 3 + c] = unit * v;
    }
    if (want_virial)
        for (int c = 0; c < 9; c++) {
            const double v = sum_warp(w[c]);
            if (lane == c) list.atom_virial[(size_t)i * 9 + c] = list.energy_unit * v;
        }
}

static __global__ void __launch_bounds__(128) forces_kernel(const __grid_constant__ ani_cuda_step step, int with_forces)
{
    begin_stage(step.list, ANI_CUDA_STAMP_FORCES);
    const int lane = threadIdx.x % 32, i = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (i >= step.list.call->n_atoms) return;
    add_energy(step, i, lane);
    if (with_forces) add_forces(step, i, lane);
}

// Sums of a block's system; of a small one, what its atoms' warps gather first.
template <bool small>
static __global__ void __launch_bounds__(small ? PAINN_CUDA_SMALL_WARPS * 32 : 1024)
    sums_kernel(const __grid_constant__ ani_cuda_step step, int with_forces)
{
    begin_stage(step.list, small ? ANI_CUDA_STAMP_FORCES : ANI_CUDA_STAMP_SUMS);
    const painn_cuda_step &list = step.list;
    const painn_cuda_call call = *list.call;
    const int s = blockIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    hand_over_report(list, call);
    if (s >= call.n_systems) return;
    if (small) {
        const int first = list.systems[s].first, n = list.systems[s].n;
        for (int k = warp; k < n; k += blockDim.x / 32) {
            add_energy(step, first + k, lane);
            if (with_forces) add_forces(step, first + k, lane);
        }
        __syncthreads();
        if (list.stamps && s == 0 && threadIdx.x == 0) list.stamps[ANI_CUDA_STAMP_SUMS] = gpu_timer();
    }
    sum_system(list, call, with_forces != 0, step.groups->failed != 0, [&](int i, double &own) {
        own = step.energy[2 * (size_t)i + 1];
        return step.energy[2 * (size_t)i];
    });
    if (list.stamps && s == 0 && threadIdx.x == 0) list.stamps[ANI_CUDA_STAMP_END] = gpu_timer();
}

int ani_cuda_launch_arrange(const ani_cuda_step *step, const painn_cuda_plan *plan, void *stream)
{
    return launch(arrange_kernel, 1, plan->n_atoms <= 128 ? 128 : 1024, 0, 1, 0, stream, *step, 0);
}

int ani_cuda_launch_forces(const ani_cuda_step *step, const painn_cuda_plan *plan, void *stream)
{
    if (plan->small)
        return launch(sums_kernel<true>, plan->n_systems, plan->small * 32, 0, 1, plan->overlap, stream, *step, plan->forces);
    const int threads = plan->n_atoms / plan->n_systems < 512 ? 128 : 1024;
    int error = launch(forces_kernel, (plan->n_atoms + 3) / 4, 128, 0, 1, plan->overlap, stream, *step, plan->forces);
    if (error == 0)
        error = launch(sums_kernel<false>, plan->n_systems, threads, 0, 1, plan->overlap, stream, *step, plan->forces);
    return error;
}
