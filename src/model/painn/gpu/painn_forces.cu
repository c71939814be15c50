// SPDX-License-Identifier: MIT
// painn_forces.cu: forces, virials and energies from what the kernels of edges and atoms have computed.
//
//   g = κ u + (ū − u (u·ū))/d ;  F_i = Σ_row g_(i,j) − g_(j,i) ;  dE/dε = Σ g⊗r
//   With halo hooks g_(i,j) is known where the sender j is owned: the sums of all processes are complete.
//
// A warp has an atom, a lane a pair. Bound by latency for small systems, by memory for large ones.
#include "gpu/dynamics/integrate.cuh"
#include "gpu/evaluator/system_sums.cuh"
#include "gpu/neighbors/rows.cuh"
#include "painn_core.cuh"

// κ and ū of entry `at` of `incoming`, by slices: all loads are issued before the first is awaited.
template <int SLICES> struct edge_gradients {
    float4 part[SLICES];
    __device__ __forceinline__ edge_gradients(const painn_gpu_step &step, size_t at)
    {
        const float4 *from = (const float4 *)step.edge_gradient + at;
        const size_t slice = (size_t)step.gpu.neighbors.atom_capacity * step.gpu.neighbors.row_capacity;
#pragma unroll
        for (int s = 0; s < SLICES; s++) part[s] = from[s * slice];
    }
    // g = dE/dr of the pair whose reverse is that entry, from the pair's u and d.
    __device__ __forceinline__ float3 of_pair(float4 u) const
    {
        float4 sum = part[0];
#pragma unroll
        for (int s = 1; s < SLICES; s++) sum = sum + part[s];
        const float inverse = __fdividef(1.0f, u.w), along = sum.x - (u.x * sum.y + u.y * sum.z + u.z * sum.w) * inverse;
        return make_float3(fmaf(along, u.x, sum.y * inverse), fmaf(along, u.y, sum.z * inverse),
                           fmaf(along, u.z, sum.w * inverse));
    }
};

// An atom's edges from the neighbor list, one incoming and one outgoing for each lane; known long before the gradients.
struct pairs_of_atom {
    static __device__ __forceinline__ bool sends(const gpu_neighbors &list, int sender)
    {
        return !list.drop_ghost_pairs || list.owned[sender];
    }
    int i, n_in, n_out; // n_in = n_out in a symmetric list
    size_t row;
    float4 in, out;           // u and d of an incoming edge, reversed, and of an outgoing one
    int back;                 // index of the outgoing edge's reverse
    float core_in, core_out;  // slopes of their core repulsion
    bool known_in, known_out; // their gradients were computed here

    // Reverses found on another stream are available only after begin_stage.
    __device__ __forceinline__ pairs_of_atom(const painn_gpu_step &step, int atom, bool reverses_are_there)
        : i(atom), n_in(step.gpu.neighbors.incoming_length[atom]), n_out(step.gpu.neighbors.row_length[atom]),
          row((size_t)atom * step.gpu.neighbors.row_capacity), back(-1)
    {
        const int lane = threadIdx.x % 32;
        if (reverses_are_there && lane < n_out) back = step.gpu.neighbors.reverse[row + lane];
        look_at(step, lane);
    }
    __device__ __forceinline__ void look_at(const painn_gpu_step &step, int k)
    {
        in = k < n_in ? *(const float4 *)step.gpu.neighbors.incoming[row + k].u : make_float4(0, 0, 0, 1);
        out = k < n_out ? *(const float4 *)step.gpu.neighbors.edges[row + k].u : make_float4(0, 0, 0, 1);
        const gpu_neighbors &list = step.gpu.neighbors;
        known_in = k < n_in && sends(list, i);
        known_out = k < n_out && (!list.drop_ghost_pairs || sends(list, list.edges[row + k].packed >> list.tag_bits));
        core_in = core_out = 0;
        if (!step.core_radius) return;
        if (k < n_in) core_in = core_slope(step, list.incoming[row + k].packed >> list.tag_bits, list.species[i], in.w);
        if (k < n_out) core_out = core_slope(step, i, list.edges[row + k].species, out.w);
    }
};

// By the lanes of a warp; each of the first three gets a component. Without `keep`: a dry run over 32 pairs that warms the instruction
// cache; results are discarded.
template <int SLICES>
static __device__ __forceinline__ double forces_of_atom(const painn_gpu_step &step, const gpu_call &call, pairs_of_atom &pairs,
                                                        bool keep)
{
    const int lane = threadIdx.x % 32, i = pairs.i;
    const bool want_virial = call.want_virial;
    float fx = 0, fy = 0, fz = 0, w[9] = {0, 0, 0, 0, 0, 0, 0, 0, 0};
    const int n = max(pairs.n_in, pairs.n_out), end = keep ? n : min(n, 32);
    for (int k = lane; k < end; k += 32) {
        if (k >= 32) pairs.look_at(step, k);
        // A lane without a pair reads a valid entry.
        const int back = k >= pairs.n_out            ? 0
                         : k < 32 && pairs.back >= 0 ? pairs.back
                                                     : step.gpu.neighbors.reverse[pairs.row + k];
        const edge_gradients<SLICES> of_in(step, k < pairs.n_in ? pairs.row + k : 0), of_out(step, back);
        const float4 r = make_float4(-pairs.in.x, -pairs.in.y, -pairs.in.z, pairs.in.w);
        // Pairs (j, i) and (i, j).
        float3 in = of_in.of_pair(r), out = of_out.of_pair(pairs.out);
        if (!pairs.known_in) in = make_float3(0, 0, 0);
        if (!pairs.known_out) out = make_float3(0, 0, 0);
        in = add_core(in, pairs.core_in, r);
        out = add_core(out, pairs.core_out, pairs.out);
        fx += out.x - in.x;
        fy += out.y - in.y;
        fz += out.z - in.z;
        if (want_virial) {
            // dE/dε += g ⊗ r, the virial is its negative.
            const float rx = -r.w * r.x, ry = -r.w * r.y, rz = -r.w * r.z;
            w[0] += in.x * rx, w[1] += in.x * ry, w[2] += in.x * rz;
            w[3] += in.y * rx, w[4] += in.y * ry, w[5] += in.y * rz;
            w[6] += in.z * rx, w[7] += in.z * ry, w[8] += in.z * rz;
        }
    }
    const double force = step.gpu.energy_unit / step.gpu.length_unit * sum_three(fx, fy, fz);
    if (lane < 3 && call.forces && keep) call.forces[(size_t)i * 3 + lane] = force;
    if (lane < 3 && keep) note_overflow(step.gpu, force);
    if (want_virial)
        for (int c = 0; c < 9; c++) {
            double v = sum_warp(w[c]);
            if (lane == c && keep) step.gpu.atom_virial[(size_t)i * 9 + c] = step.gpu.energy_unit * v;
        }
    return force;
}

// Energy of system s, with forces its virial and stress, and energies of its atoms.
template <int SLICES>
static __device__ __forceinline__ void sum_system(const painn_gpu_step &step, const gpu_call &call, int s, bool with_forces,
                                                  const core_ahead &core, bool keep)
{
    sum_system(
        step.gpu, call, s, with_forces, false,
        [&](int atom, double &own) {
            const bool owned = step.gpu.neighbors.owned[atom];
            double raw = owned ? step.o2 : 0.0;
#pragma unroll
            for (int k = 0; k < SLICES; k++) raw += step.raw_energy[(size_t)k * step.gpu.neighbors.atom_capacity + atom];
            if (step.core_radius && owned) raw += core.of(step, atom);
            own = owned ? step.gpu.neighbors.offset[step.gpu.neighbors.species[atom]] : 0.0;
            return raw * step.gpu.energy_unit;
        },
        keep);
}

// Given pairs may lack their reverses, which the report must say: the last block to finish its search publishes it. Called by all threads;
// true in the first thread of that block.
static __device__ __forceinline__ bool last_to_search(const painn_gpu_step &step)
{
    __syncthreads();
    if (threadIdx.x > 0) return false;
    __threadfence();
    const bool last = atomicAdd(&step.gpu.report->n_searched, 1) + 1 == (int)gridDim.x;
    if (last) __threadfence(); // flags of other blocks are visible
    return last;
}

// The last kernel of a step. `after_fused`: starts while the fused layers run, with time to search for the reverses and for a dry run that
// warms the instruction cache. One warp for each atom, which in dynamics moves it; blocks from `sums_from` on sum the systems' energies,
// which need no forces (0: summed elsewhere). Registers suffice for all loads of a lane at once; with fewer, loads would wait for each
// other.
template <int SLICES, bool moves, bool sums>
static __global__ void __launch_bounds__(128, 1)
    forces_kernel(const __grid_constant__ painn_gpu_step step, int after_fused, int sums_from)
{
    if (after_fused) let_next_start();
    const gpu_call call = *step.gpu.call;
    const bool sum = sums && (int)blockIdx.x >= sums_from;
    const int i = sum ? INT32_MAX : blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, s = blockIdx.x - sums_from;
    const bool there = i < call.n_atoms;
    if (after_fused && there) find_reverses(step.gpu, i);
    const bool reports = sums && after_fused && step.gpu.neighbors.given_pairs ? last_to_search(step) : sum && s == 0;
    const int n_pairs = reports && threadIdx.x == 0 ? take_pair_counts(step.gpu) : 0; // known since the rows are
    pairs_of_atom pairs(step, there ? i : 0, after_fused && there);
    const core_ahead core(step, call, s, sum, !after_fused);
    const moving_atom atom(step.gpu.motion, moves ? i : INT32_MAX, step.gpu.motion.place + 1);
    __syncwarp(); // reconverge: lanes that diverged above would stay so
#pragma unroll 1
    for (int pass = after_fused ? 0 : 1; pass < 2; pass++) {
        const bool keep = pass == 1;
        if (keep) begin_stage(step.gpu, 1 + 4 * step.n_layers);
        if (sum && s < call.n_systems) sum_system<SLICES>(step, call, s, false, core, keep);
        if (!there) continue;
        const double force = forces_of_atom<SLICES>(step, call, pairs, keep);
        if (moves) move_atom(step.gpu, atom, force, keep);
    }
    if (reports) publish_report(step.gpu, call, n_pairs);
    if (!step.gpu.stamps || threadIdx.x > 0) return;
    uint64_t *const end = step.gpu.stamps + 2 + 4 * step.n_layers;
    if (sums && (blockIdx.x == 0 || s == 0)) end[sum ? 1 : 0] = gpu_timer();
    if (sums_from == 0 && (int)blockIdx.x == (call.n_atoms - 1) / (int)(blockDim.x / 32)) end[0] = end[1] = gpu_timer();
}

// Sums of large systems, or with virials: one block for each system, in a fixed order.
template <int SLICES>
static __global__ void __launch_bounds__(1024)
    sums_kernel(const __grid_constant__ painn_gpu_step step, int with_forces, int after_fused)
{
    const int s = blockIdx.x;
    const gpu_call call = *step.gpu.call;
    const core_ahead core(step, call, s, true, !after_fused);
#pragma unroll 1
    for (int pass = after_fused ? 0 : 1; pass < 2; pass++) {
        const bool keep = pass == 1;
        if (keep) begin_stage(step.gpu, 2 + 4 * step.n_layers);
        if (s == 0 && keep) publish_report(step.gpu, call);
        if (s < call.n_systems) sum_system<SLICES>(step, call, s, with_forces, core, keep);
    }
    if (step.gpu.stamps && s == 0 && threadIdx.x == 0) step.gpu.stamps[3 + 4 * step.n_layers] = gpu_timer();
}

// The repulsion in the energies of atoms, a warp for each: one thread would wait for its neighbors one after the other. With fewer warps than
// atoms, on multiprocessors that other kernels leave free, a warp walks over several.
static __global__ void __launch_bounds__(128) core_kernel(const __grid_constant__ painn_gpu_step step, int unused)
{
    const int lane = threadIdx.x % 32, warps = blockDim.x / 32, n = step.gpu.call->n_atoms;
    for (int i = blockIdx.x * warps + threadIdx.x / 32; i < n; i += gridDim.x * warps) {
        const float energy = step.gpu.neighbors.owned[i] ? core_of_atom(step, i, lane, 32) : 0.0f;
        const float sum = sum_warp(energy);
        if (lane == 0) step.core_energy[i] = sum;
    }
}

// ---- launches -------------------------------------------------------------------------------------------------------

// Where energies are summed. Virials need all forces, and in dynamics energies are read only after a graph's last step. Otherwise during
// the backward pass, or with the forces after fused layers.
enum sums_place { WITH_FORCES, DURING_BACKWARD, AFTER_FORCES };
static sums_place place_of_sums(const painn_gpu_step *step, const gpu_plan *plan)
{
    if (!plan->forces || plan->virial || step->gpu.motion.n_atoms > 0) return AFTER_FORCES;
    return plan->fused ? WITH_FORCES : DURING_BACKWARD;
}

bool painn_gpu_sums_separate(const painn_gpu_step *step, const gpu_plan *plan)
{
    return place_of_sums(step, plan) == DURING_BACKWARD;
}

// In dynamics energies are read only after a graph's last step.
static bool sums_energies(const painn_gpu_step *step)
{
    return step->gpu.motion.n_atoms == 0 || step->gpu.motion.place + 1 == step->gpu.motion.n_steps;
}

static int threads_of_sums(const gpu_plan *plan)
{
    return plan->n_atoms / plan->n_systems <= 512 ? 128 : 1024;
}

int painn_gpu_launch_core(const painn_gpu_step *step, const gpu_plan *plan, void *stream)
{
    if (!step->core_radius || !sums_energies(step)) return 0;
    return launch(core_kernel, (plan->n_atoms + 3) / 4, 128, 0, 1, 0, stream, *step, 0);
}

int painn_gpu_launch_sums(const painn_gpu_step *step, const gpu_plan *plan, void *stream)
{
    painn_gpu_step quiet = *step;
    quiet.gpu.stamps = NULL; // runs concurrently: no stage
    return launch(step->n_features == 32   ? sums_kernel<2>
                  : step->n_features == 64 ? sums_kernel<4>
                                           : sums_kernel<8>,
                  plan->n_systems, threads_of_sums(plan), 0, 1, 0, stream, quiet, 0, 0);
}

template <int SLICES> static int launch_forces(const painn_gpu_step *step, const gpu_plan *plan, int after_fused, void *stream)
{
    const int blocks = (plan->n_atoms + 3) / 4;
    const bool moves = step->gpu.motion.n_atoms > 0, apart = painn_gpu_sums_separate(step, plan);
    int error = 0;
    if (place_of_sums(step, plan) == WITH_FORCES)
        return launch(forces_kernel<SLICES, false, true>, blocks + plan->n_systems, 128, 0, 1, plan->overlap, stream, *step,
                      after_fused, blocks);
    if (plan->forces)
        error = launch(moves ? forces_kernel<SLICES, true, false> : forces_kernel<SLICES, false, false>, blocks, 128, 0, 1,
                       plan->overlap, stream, *step, after_fused, apart ? 0 : blocks);
    if (apart) return error;
    if (error == 0 && sums_energies(step))
        error = launch(sums_kernel<SLICES>, plan->n_systems, threads_of_sums(plan), 0, 1, plan->overlap, stream, *step,
                       plan->forces, after_fused);
    return error;
}

int painn_gpu_launch_forces(const painn_gpu_step *step, const gpu_plan *plan, int after_fused, void *stream)
{
    return step->n_features == 32   ? launch_forces<2>(step, plan, after_fused, stream)
           : step->n_features == 64 ? launch_forces<4>(step, plan, after_fused, stream)
                                    : launch_forces<8>(step, plan, after_fused, stream);
}

// The kernel reads much and has no shared memory: all of it is the L1 cache.
int painn_gpu_prepare_forces(int n_features)
{
    const auto kernel = n_features == 32   ? forces_kernel<2, false, false>
                        : n_features == 64 ? forces_kernel<4, false, false>
                                           : forces_kernel<8, false, false>;
    return (int)cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxL1);
}
