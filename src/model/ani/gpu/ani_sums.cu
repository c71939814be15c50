// SPDX-License-Identifier: MIT
// ani_sums.cu: before and after the networks: atoms sorted by species; forces, energies, virials.
//
//   F_i = Σ g of the pairs of i − Σ g of the incoming pairs of i,  g = dE/dr of a pair ;  virial = −Σ g ⊗ r
//
// The sort by species: each warp of a block counts its part of the atoms and assigns their slots in order. Many atoms are several blocks,
// whose counts a kernel before finds. `forces` has one warp for each
// atom, `sums` one block for each system; all sums are in double precision and in a fixed order.
#include "ani_gpu.h"
#include "gpu/dynamics/integrate.cuh"
#include "gpu/evaluator/system_sums.cuh"
#include "gpu/neighbors/rows.cuh"

enum { SORT_THREADS = 1024 };

// Atoms of one species; of a block where there are several.
struct species_counts {
    int all[ANI_MAX_SPECIES], before[ANI_MAX_SPECIES],
        present[ANI_MAX_SPECIES]; // owned atoms in all and in earlier blocks; any, ghosts too
};

// By one warp, one lane for each species: offsets of the warps, slots that begin new tiles, ranks of the species present; returns their
// number.
static __device__ __forceinline__ int place_species(const ani_gpu_step &step, int warps, const species_counts &c,
                                                    int (*counts)[ANI_MAX_SPECIES], int *rank)
{
    const int lane = threadIdx.x % 32, n_species = step.n_species;
    ani_gpu_groups &groups = *step.groups;
    int mine = 0;
    for (int w = 0; w < warps && lane < n_species; w++) {
        const int count = counts[w][lane];
        counts[w][lane] = mine;
        mine += count;
    }
    const int all = lane < n_species ? (gridDim.x == 1 ? mine : c.all[lane]) : 0,
              total = (all + step.tile - 1) / step.tile * step.tile;
    const int first = sum_before(total);
    const bool there = lane < n_species && c.present[lane];
    const unsigned mask = __ballot_sync(~0u, there);
    for (int w = 0; w < warps && lane < n_species; w++) counts[w][lane] += first + c.before[lane];
    const int n = __popc(mask);
    if (lane < n_species) rank[lane] = there ? __popc(mask & ((1u << lane) - 1)) : -1;
    if (blockIdx.x > 0) return n;
    if (lane < n_species) groups.first_slot[lane] = first;
    if (lane == n_species - 1) groups.first_slot[n_species] = first + total;
    if (lane == 0) {
        groups.failed = groups.next_item = 0;
        groups.n_present = n;
        groups.n_tiles = n + n * (n + 1);
    }
    return n;
}

// By the block: ranks of elements, and the tiles of the stored weights for the AEVs' columns.
static __device__ __forceinline__ void list_tiles(const ani_gpu_step &step, const int *species_of, const int *rank, int n)
{
    ani_gpu_groups &groups = *step.groups;
    const int n_species = step.n_species;
    for (int z = threadIdx.x; z <= MLFF_MAX_ATOMIC_NUMBER; z += blockDim.x)
        groups.rank_of[z] = species_of[z] >= 0 ? rank[species_of[z]] : -1;
    for (int k = threadIdx.x; k < n_species * n_species; k += blockDim.x) {
        const int p = k / n_species, q = k % n_species;
        if (rank[p] < 0 || rank[q] < 0 || q < p) continue;
        const int stored = p * n_species - p * (p - 1) / 2 + q - p,
                  pair = rank[p] * n - rank[p] * (rank[p] - 1) / 2 + rank[q] - rank[p];
        if (p == q) groups.stored_tile[rank[p]] = p;
        groups.stored_tile[n + 2 * pair] = n_species + 2 * stored;
        groups.stored_tile[n + 2 * pair + 1] = n_species + 2 * stored + 1;
    }
}

// Species of atom i, −1: none or an unknown one; whether it is owned.
static __device__ __forceinline__ int species_at(const gpu_call &call, const int *species_of, int i, int end, bool *owned)
{
    const int z = i < end ? call.species[i] : -1, s = z >= 0 && z <= MLFF_MAX_ATOMIC_NUMBER ? species_of[z] : -1;
    *owned = s >= 0 && (!call.owned || call.owned[i]);
    return s;
}

// By a warp: adds a lane's atoms from `begin` to `end` of each species to the lane of its number, and notes which are present.
static __device__ __forceinline__ int count_species(const ani_gpu_step &step, const gpu_call &call, const int *species_of,
                                                    int begin, int end, int *present)
{
    const int lane = threadIdx.x % 32;
    int n = 0;
    for (int i = begin + lane; i - lane < end; i += 32) {
        bool owned;
        const int s = species_at(call, species_of, i, end, &owned);
        for (int q = 0; q < step.n_species; q++) {
            const unsigned same = __ballot_sync(~0u, s == q), own = __ballot_sync(~0u, owned && s == q);
            if (same && lane == 0) present[q] = 1;
            if (lane == q) n += __popc(own);
        }
    }
    return n;
}

// The part of the atoms that a warp of this block has: in all, ANI_GPU_SORT_ATOMS a block.
static __device__ __forceinline__ void part_of_warp(int n_atoms, int *begin, int *end)
{
    const int warps = blockDim.x / 32, from = gridDim.x == 1 ? 0 : blockIdx.x * ANI_GPU_SORT_ATOMS,
              to = gridDim.x == 1 ? n_atoms : min(n_atoms, from + ANI_GPU_SORT_ATOMS),
              each = (to - from + 32 * warps - 1) / (32 * warps) * 32;
    *begin = from + (int)(threadIdx.x / 32) * each;
    *end = min(*begin + each, to);
}

// Counts of a block for the sort: owned atoms of each species, and behind them which are present.
static __global__ void __launch_bounds__(SORT_THREADS) count_species_kernel(const __grid_constant__ ani_gpu_step step)
{
    __shared__ int species_of[MLFF_MAX_ATOMIC_NUMBER + 1], counts[ANI_MAX_SPECIES], present[ANI_MAX_SPECIES];
    const gpu_call call = *step.gpu.call_in;
    const int lane = threadIdx.x % 32;
    int begin, end;
    for (int z = threadIdx.x; z <= MLFF_MAX_ATOMIC_NUMBER; z += blockDim.x) species_of[z] = step.species_of[z];
    if (threadIdx.x < ANI_MAX_SPECIES) counts[threadIdx.x] = present[threadIdx.x] = 0;
    __syncthreads();
    part_of_warp(call.n_atoms, &begin, &end);
    const int n = count_species(step, call, species_of, begin, end, present);
    if (lane < step.n_species && n > 0) atomicAdd(&counts[lane], n);
    __syncthreads();
    int32_t *to = step.block_counts + (size_t)blockIdx.x * (2 * ANI_MAX_SPECIES);
    if (threadIdx.x < ANI_MAX_SPECIES) {
        to[threadIdx.x] = counts[threadIdx.x];
        to[ANI_MAX_SPECIES + threadIdx.x] = present[threadIdx.x];
    }
}

static __global__ void __launch_bounds__(SORT_THREADS) sort_species_kernel(const __grid_constant__ ani_gpu_step step)
{
    __shared__ int species_of[MLFF_MAX_ATOMIC_NUMBER + 1], counts[32][ANI_MAX_SPECIES], rank[ANI_MAX_SPECIES], n_ranks;
    __shared__ species_counts sums;
    let_next_start();
    const gpu_call call = *step.gpu.call_in;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32, n_species = step.n_species;
    int begin, end;
    for (int z = threadIdx.x; z <= MLFF_MAX_ATOMIC_NUMBER; z += blockDim.x) species_of[z] = step.species_of[z];
    if (threadIdx.x < ANI_MAX_SPECIES) sums.all[threadIdx.x] = sums.before[threadIdx.x] = sums.present[threadIdx.x] = 0;
    __syncthreads();
    part_of_warp(call.n_atoms, &begin, &end);
    const int own = count_species(step, call, species_of, begin, end, sums.present);
    if (lane < ANI_MAX_SPECIES) counts[warp][lane] = own;
    const int q = threadIdx.x % ANI_MAX_SPECIES;
    for (int b = threadIdx.x / ANI_MAX_SPECIES; gridDim.x > 1 && b < gridDim.x; b += blockDim.x / ANI_MAX_SPECIES) {
        const int32_t *from = step.block_counts + (size_t)b * (2 * ANI_MAX_SPECIES) + q;
        const int n = from[0];
        if (n > 0) atomicAdd(&sums.all[q], n);
        if (n > 0 && b < blockIdx.x) atomicAdd(&sums.before[q], n);
        if (from[ANI_MAX_SPECIES]) sums.present[q] = 1;
    }
    __syncthreads();
    if (warp == 0) {
        const int n = place_species(step, warps, sums, counts, rank);
        if (lane == 0) n_ranks = n;
    }
    __syncthreads();
    int place = lane < n_species ? counts[warp][lane] : 0; // next slot of the species whose number is the lane
    if (blockIdx.x == 0) list_tiles(step, species_of, rank, n_ranks);
    for (int i = begin + lane; i - lane < end; i += 32) {
        bool owned;
        const int s = species_at(call, species_of, i, end, &owned);
        int slot = -1;
        for (int p = 0; p < n_species; p++) {
            const unsigned mask = __ballot_sync(~0u, owned && s == p);
            const int from = __shfl_sync(~0u, place, p);
            if (owned && s == p) slot = from + __popc(mask & ((1u << lane) - 1));
            if (lane == p) place += __popc(mask);
        }
        if (i < end) step.slot_of[i] = slot;
    }
}

// Model energy of an atom, and its offset, in eV: the mean of the ensemble, or one member, of which each block of a cluster has a share.
static __device__ __forceinline__ double energy_of(const ani_gpu_step &step, int i, double &own)
{
    const gpu_step &gpu = step.gpu;
    const int slot = step.slot_of[i], member = gpu.call->member, n = member < 0 ? step.n_members : 1;
    own = slot >= 0 ? gpu.neighbors.offset[gpu.neighbors.species[i]] : 0.0;
    if (slot < 0) return 0;
    const float *share = step.member_energy + (size_t)(max(member, 0) * step.cluster) * step.slot_capacity + slot;
    double energy = 0;
#pragma unroll 8
    for (int k = 0; k < n * step.cluster; k++) energy += share[(size_t)k * step.slot_capacity];
    return energy * gpu.energy_unit / n;
}

// By the lanes of a warp; each of the first three gets a component. Without `keep`: a dry run that warms the instruction cache; results are
// discarded.
static __device__ __forceinline__ double add_forces(const ani_gpu_step &step, int i, int lane, bool keep)
{
    const gpu_step &gpu = step.gpu;
    const int n = gpu.neighbors.incoming_length[i];
    const float4 *incoming_gradient = (const float4 *)step.incoming_gradient + (size_t)i * gpu.neighbors.row_capacity;
    const double center = lane < 3 ? step.center[3 * (size_t)i + lane] : 0.0;
    double f[3] = {0, 0, 0};
    for (int k = lane; k < n; k += 64) { // two at once, to hide the latency of L2
        const float4 one = incoming_gradient[k], two = k + 32 < n ? incoming_gradient[k + 32] : make_float4(0, 0, 0, 0);
        f[0] += (double)one.x + two.x;
        f[1] += (double)one.y + two.y;
        f[2] += (double)one.z + two.z;
    }
    const double force = gpu.energy_unit / gpu.length_unit * (center - sum_three(f[0], f[1], f[2]));
    if (keep && lane < 3 && gpu.call->forces) gpu.call->forces[(size_t)i * 3 + lane] = force;
    return force;
}

// The networks are complete before a kernel that follows the AEVs' reverse begins; only the forces wait for that kernel. `apart`: energies
// are summed elsewhere, and this is the last kernel of the step.
template <bool moves>
static __global__ void __launch_bounds__(128) forces_kernel(const __grid_constant__ ani_gpu_step step, int with_forces, int apart)
{
    const int lane = threadIdx.x % 32, atoms = blockDim.x / 32, i = blockIdx.x * atoms + threadIdx.x / 32;
    if (!with_forces) wait_for_previous();
    const gpu_call call = *step.gpu.call;
    const bool there = i < call.n_atoms;
    const int energies_of = blockIdx.x * atoms + threadIdx.x;
    if (!apart && (int)threadIdx.x < atoms && energies_of < call.n_atoms) {
        double own;
        step.energy[2 * (size_t)energies_of] = energy_of(step, energies_of, own);
        step.energy[2 * (size_t)energies_of + 1] = own;
    }
    const int n_pairs = apart && blockIdx.x + threadIdx.x == 0 ? take_pair_counts(step.gpu) : 0;
    const moving_atom atom(step.gpu.motion, moves ? i : INT32_MAX, step.gpu.motion.place + 1);
#pragma unroll 1
    for (int pass = with_forces && step.warm_code ? 0 : 1; pass < 2; pass++) {
        if (pass == 1) begin_stage(step.gpu, ANI_GPU_STAMP_FORCES);
        if (!there || !with_forces) continue;
        const double force = add_forces(step, i, lane, pass == 1);
        if (moves) move_atom(step.gpu, atom, force, pass == 1);
    }
    if (!apart) return;
    if (blockIdx.x == 0) publish_report(step.gpu, call, n_pairs);
    if (step.gpu.stamps && i == call.n_atoms - 1 && lane == 0)
        step.gpu.stamps[ANI_GPU_STAMP_SUMS] = step.gpu.stamps[ANI_GPU_STAMP_END] = gpu_timer();
}

// Sums of a block's system. small: the atoms' warps gather the forces first. `apart`: energies only, while the AEVs' reverse runs.
template <bool small>
static __global__ void __launch_bounds__(small ? GPU_SMALL_WARPS * 32 : 1024)
    sums_kernel(const __grid_constant__ ani_gpu_step step, int with_forces, int apart)
{
    const gpu_step &gpu = step.gpu;
    const gpu_call call = *gpu.call;
    const int s = blockIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const int first = s < call.n_systems ? gpu.neighbors.systems[s].first : 0,
              n = s < call.n_systems ? gpu.neighbors.systems[s].n : 0, mine = first + threadIdx.x;
    double known = 0, offset = 0; // small: energies are known before the forces are
    if (small && !with_forces) wait_for_previous();
    if (small && (int)threadIdx.x < n) known = energy_of(step, mine, offset);
#pragma unroll 1
    for (int pass = small && with_forces && step.warm_code ? 0 : 1; pass < 2; pass++) {
        if (pass == 1) begin_stage(gpu, small ? ANI_GPU_STAMP_FORCES : ANI_GPU_STAMP_SUMS);
        for (int k = warp; small && k < n && with_forces; k += warps) add_forces(step, first + k, lane, pass == 1);
    }
    if (s == 0 && !apart) publish_report(gpu, call);
    if (n == 0) return;
    if (small) {
        __syncthreads();
        if (gpu.stamps && s == 0 && threadIdx.x == 0) gpu.stamps[ANI_GPU_STAMP_SUMS] = gpu_timer();
    }
    // The last kernel clears the flags, but only after `failed` has them: so they are read first.
    const int flags = apart ? *(const volatile int32_t *)&gpu.report->flags : 0;
    if (apart) __threadfence();
    const int failed = *(const volatile int32_t *)&step.groups->failed;
    sum_system(gpu, call, s, with_forces != 0, (flags | failed) != 0, [&](int i, double &own) {
        if (small) {
            own = offset; // a thread has at most one atom
            return known;
        }
        if (apart) return energy_of(step, i, own);
        own = step.energy[2 * (size_t)i + 1];
        return step.energy[2 * (size_t)i];
    });
    if (gpu.stamps && s == 0 && threadIdx.x == 0) gpu.stamps[ANI_GPU_STAMP_END] = gpu_timer();
}

int ani_gpu_launch_arrange(const ani_gpu_step *step, const gpu_plan *plan, void *stream)
{
    const int blocks =
        plan->n_atoms <= 2 * ANI_GPU_SORT_ATOMS ? 1 : (plan->n_atoms + ANI_GPU_SORT_ATOMS - 1) / ANI_GPU_SORT_ATOMS;
    const int error = blocks > 1 ? launch(count_species_kernel, blocks, SORT_THREADS, 0, 1, 0, stream, *step) : 0;
    return error ? error : launch(sort_species_kernel, blocks, plan->n_atoms <= 128 ? 128 : SORT_THREADS, 0, 1, 0, stream, *step);
}

// Virials need all forces, and in dynamics energies are read only after a graph's last step. With more atoms the AEVs' reverse occupies all
// multiprocessors, so that a large block would begin after it.
int ani_gpu_sums_apart(const ani_gpu_step *step, const gpu_plan *plan)
{
    // The AEVs' reverse may still refuse given pairs that are not symmetric, which the sums must know.
    return plan->forces && !plan->virial && step->gpu.motion.n_atoms == 0 && ani_gpu_chained(plan) &&
           step->gpu.neighbors.given_pairs != 1;
}

static int threads_of_sums(const gpu_plan *plan)
{
    return plan->n_atoms / plan->n_systems < 512 ? 128 : 1024;
}

int ani_gpu_launch_sums(const ani_gpu_step *step, const gpu_plan *plan, void *stream)
{
    ani_gpu_step quiet = *step;
    quiet.gpu.stamps = NULL; // runs concurrently: no stage
    return launch(sums_kernel<false>, plan->n_systems, threads_of_sums(plan), 0, 1, 0, stream, quiet, 0, 1);
}

int ani_gpu_launch_forces(const ani_gpu_step *step, const gpu_plan *plan, void *stream)
{
    const gpu_motion *motion = &step->gpu.motion;
    const bool moves = motion->n_atoms > 0;
    const int apart = ani_gpu_sums_apart(step, plan);
    if (plan->small && !moves && !apart)
        return launch(sums_kernel<true>, plan->n_systems, plan->small * 32, 0, 1, plan->overlap, stream, *step, plan->forces, 0);
    int error = launch(moves ? forces_kernel<true> : forces_kernel<false>, (plan->n_atoms + 3) / 4, 128, 0, 1, plan->overlap,
                       stream, *step, plan->forces, apart);
    if (error == 0 && !apart && (!moves || motion->place + 1 == motion->n_steps))
        error = launch(sums_kernel<false>, plan->n_systems, threads_of_sums(plan), 0, 1, plan->overlap, stream, *step,
                       plan->forces, 0);
    return error;
}
