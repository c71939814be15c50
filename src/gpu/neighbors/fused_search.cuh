/* SPDX-License-Identifier: MIT */
/* fused_search.cuh: the search that wraps the atoms of a system itself: groups of threads that build one row of the list together. */
#ifndef GPU_FUSED_SEARCH_CUH
#define GPU_FUSED_SEARCH_CUH

#include "rows.cuh"

enum {
    ROW_WARPS = 8,
    ROW_CAPACITY = 1024, /* longest row of a fused search */
    NO_SHIFT = 512 | 512 << 10 | 512 << 20
};

// Completes the system's cell on the GPU, where the host has not seen it.
static __device__ __noinline__ void complete_system(const gpu_step &step, const gpu_call &call, int s, gpu_system &system)
{
    const unsigned char periodic[3] = {(unsigned char)system.wrapped[0], (unsigned char)system.wrapped[1],
                                       (unsigned char)system.wrapped[2]};
    system.flags = cell_complete(call.cells + (size_t)s * 9, periodic, step.neighbors.cutoff, &system);
}

// Called by several threads together.
static __device__ __forceinline__ void copy_system(gpu_system &to, const gpu_system &from, int thread, int threads)
{
#pragma unroll 1
    for (int w = thread; w < (int)(sizeof to / sizeof(int)); w += threads) ((int *)&to)[w] = ((const int *)&from)[w];
}

static __device__ __forceinline__ void keep_system(const gpu_step &step, int s, const gpu_system &system)
{
    if (system.flags) raise_flag(step, system.flags, system.first, -1);
    step.neighbors.systems[s] = system;
}

// An atom's position in units of its system's cell vectors, relative to the system's first atom.
struct wrapped_atom {
    double f[3];
    bool finite, wide;
};

static __device__ __forceinline__ wrapped_atom wrap_atom(const gpu_system &system, const double *raw, const double *origin)
{
    wrapped_atom atom = {{0, 0, 0}, true, false};
    double r[3];
    for (int c = 0; c < 3; c++) {
        r[c] = raw[c] - origin[c];
        atom.finite = atom.finite && isfinite(r[c]);
    }
    for (int a = 0; a < 3; a++) {
        double f = fma(r[2], system.inverse[6 + a], fma(r[1], system.inverse[3 + a], r[0] * system.inverse[a]));
        if (system.wrapped[a])
            f -= floor(f);
        else
            atom.wide = atom.wide || fabs(f) > 5e4;
        atom.f[a] = atom.finite ? f : 0;
    }
    return atom;
}

// Energy offset of an element; not finite if the model does not have it.
static __device__ __forceinline__ double offset_of(const gpu_step &step, int z)
{
    return z >= 0 && z < step.neighbors.n_species ? step.neighbors.offset[z] : INFINITY;
}

// The element, or 0 if it has no row in the model's tables.
static __device__ __forceinline__ int known_species(const gpu_step &step, int z)
{
    return z >= 0 && z < step.neighbors.n_species ? z : 0;
}

// Stores what the call says of atom i and flags what is wrong with it. `offset`: of element z.
static __device__ __forceinline__ void keep_atom(const gpu_step &step, int i, int s, int z, double offset, unsigned char owned,
                                                 bool finite, bool wide)
{
    const bool known = isfinite(offset);
    if (!finite) raise_flag(step, GPU_NOT_FINITE, i, -1);
    if (wide) raise_flag(step, GPU_TOO_WIDE, i, -1);
    if (!known) raise_flag(step, GPU_ELEMENT, i, z);
    step.neighbors.species[i] = known ? z : 0;
    step.neighbors.system_of[i] = s;
    step.neighbors.owned[i] = owned;
}

// Of the previous kernel the neighbor list needs only the atoms that it moves. The list's first kernel waits for the previous kernel at
// its end, so that the kernels after it find both complete.
static __device__ __forceinline__ void begin_rows(const gpu_step &step)
{
    let_next_start();
    if (step.stamps && blockIdx.x == 0 && threadIdx.x == 0) step.stamps[0] = gpu_timer();
}

// Called before an atom's position is read.
static __device__ __forceinline__ void wait_for_integrator(const gpu_step &step)
{
    if (!step.follows_motion) return;
    wait_for_previous();
    if (step.stamps && blockIdx.x == 0 && threadIdx.x == 0) step.stamps[0] = gpu_timer();
}

// Threads that build a row, or all rows of a block: a block, or some of its warps.
struct row_group {
    int row, begin, threads, number; // index of its first thread in the block; number of its barrier, less than 16
    __device__ __forceinline__ int thread() const
    {
        return (int)threadIdx.x - begin;
    }
    __device__ __forceinline__ void barrier() const
    {
        group_barrier(number, threads);
    }
};

// Atoms that may be inside the cutoff of a row. Each warp has tested its part of the atoms, in order.
struct row_queue {
    uint2 *entries; // [warps][room] index in the system; image, three times 10 bits, + 512 each
    int *counts;    // [warps], entries found, including those that do not fit
    int *inside;    // [warps] neighbors among the entries just tested
    int room;
    int all; // not 0: no entries; all so many atoms of the system are tested, the nearest image of each
};

static __device__ __forceinline__ bool has_one_image(const gpu_system &system)
{
    return !(system.images[0] || system.images[1] || system.images[2]);
}

// A warp's part of the candidates of row i. difference(j, d): position of j relative to i; on wrapped axes, to the nearest image.
template <class Difference>
static __device__ __forceinline__ void queue_candidates(const gpu_step &step, const gpu_system &system, const row_group &group,
                                                        int n, const row_queue &queue, const Difference &difference)
{
    const int lane = threadIdx.x % 32, warp = group.thread() / 32, warps = group.threads / 32;
    const double reach = step.neighbors.cutoff + 0.01;
    const near_test test(system, reach);
    const bool one_image = has_one_image(system);
    float range[3] = {0, 0, 0}; // reach along each axis, in cells
    for (int a = 0; a < 3 && !one_image; a++) {
        const float v0 = (float)system.inverse[a], v1 = (float)system.inverse[3 + a], v2 = (float)system.inverse[6 + a];
        range[a] = (float)reach * sqrtf(v0 * v0 + v1 * v1 + v2 * v2) + 1e-4f;
    }
    // A lane has an atom, or with several images those of an atom in one place along the first axis.
    const int places = 2 * system.images[0] + 1, candidates = n * places;
    const int share = (candidates + 32 * warps - 1) / (32 * warps) * 32, end = min(candidates, (warp + 1) * share);
    uint2 *own = queue.entries + warp * queue.room;
    int length = 0;
#pragma unroll 1
    for (int c = warp * share + lane; c - lane < end; c += 32) {
        float d[3];
        const int j = one_image ? c : c / places;
        if (c < end) difference(j, d);
        if (one_image) {
            const bool near = c < end && test.inside(d[0], d[1], d[2]);
            const unsigned mask = __ballot_sync(~0u, near);
            const int at = length + __popc(mask & ((1u << lane) - 1));
            if (near && at < queue.room) own[at] = make_uint2(j, NO_SHIFT);
            length += __popc(mask);
            continue;
        }
        int low[3] = {0, 0, 0}, high[3] = {-1, -1, -1}, count = 0;
#pragma unroll
        for (int a = 0; a < 3 && c < end; a++) {
            low[a] = max(-system.images[a], (int)ceilf(-range[a] - d[a]));
            high[a] = min(system.images[a], (int)floorf(range[a] - d[a]));
            if (system.images[a] == 0) low[a] = high[a] = 0;
        }
        const int place = c - j * places - system.images[0];
        low[0] = max(low[0], place);
        high[0] = min(high[0], place);
#pragma unroll 1
        for (int s0 = low[0]; s0 <= high[0]; s0++)
#pragma unroll 1
            for (int s1 = low[1]; s1 <= high[1]; s1++)
#pragma unroll 1
                for (int s2 = low[2]; s2 <= high[2]; s2++) count += test.inside(d[0] + s0, d[1] + s1, d[2] + s2);
        int at = length + sum_before(count);
        length = __shfl_sync(~0u, at + count, 31);
        if (count == 0) continue;
#pragma unroll 1
        for (int s0 = low[0]; s0 <= high[0]; s0++)
#pragma unroll 1
            for (int s1 = low[1]; s1 <= high[1]; s1++)
#pragma unroll 1
                for (int s2 = low[2]; s2 <= high[2]; s2++) {
                    if (!test.inside(d[0] + s0, d[1] + s1, d[2] + s2)) continue;
                    if (at < queue.room) own[at] = make_uint2(j, (s0 + 512) | (s1 + 512) << 10 | (s2 + 512) << 20);
                    at++;
                }
    }
    if (lane == 0) queue.counts[warp] = length;
}

// Builds the group's row from its queue, one thread for each entry; returns its length. of(j), species(j): position and element of atom j
// of the system. Without `keep` it is a dry run that warms the instruction cache: nothing is stored.
template <class Place, class Species>
static __device__ __forceinline__ int close_queue(const gpu_step &step, const gpu_system &system, const row_group &group,
                                                  const row_queue &queue, const Place &of, const Species &species, bool keep)
{
    const int i = group.row, lane = threadIdx.x % 32, warp = group.thread() / 32, warps = group.threads / 32;
    int total = queue.all, longest = 0, length = 0;
#pragma unroll 1
    for (int w = 0; w < warps && !queue.all; w++) {
        longest = max(longest, queue.counts[w]);
        total += min(queue.counts[w], queue.room);
    }
#pragma unroll 1
    for (int base = 0; base < total; base += group.threads) {
        int k = base + group.thread(), w = 0;
        bool inside = false;
        pair_vector p = {};
        int j = 0;
        if (k < total) {
            uint2 entry = make_uint2(k, NO_SHIFT);
            if (!queue.all) {
                while (k >= min(queue.counts[w], queue.room)) k -= min(queue.counts[w++], queue.room);
                entry = queue.entries[w * queue.room + k];
            }
            j = system.first + (int)entry.x;
            p = pair_of(system, of(i - system.first), of((int)entry.x), (int)(entry.y & 1023) - 512,
                        (int)(entry.y >> 10 & 1023) - 512, (int)(entry.y >> 20 & 1023) - 512);
            inside = is_neighbor(step, p, i, j, keep);
        }
        const unsigned found = __ballot_sync(~0u, inside);
        if (lane == 0) queue.inside[warp] = __popc(found);
        group.barrier();
        int slot = length + __popc(found & ((1u << lane) - 1));
#pragma unroll 1
        for (int v = 0; v < warps; v++) {
            if (v < warp) slot += queue.inside[v];
            length += queue.inside[v];
        }
        if (inside && slot < step.neighbors.row_capacity)
            write_edge(step, i, slot, j, species(j - system.first), p.x, p.y, p.z, p.square, p.s0, p.s1, p.s2, keep);
        group.barrier();
    }
    // Some candidates did not fit: ask for a row that would be long enough at the same ratio.
    if (longest > queue.room) length = max(length, (int)((long long)longest * step.neighbors.row_capacity / queue.room) + 1);
    if (warp == 0 && keep) close_row(step, i, length);
    return min(length, step.neighbors.row_capacity);
}

// Candidates that fit into a warp's queue.
static GPU_HOST_DEVICE inline int queue_room(int row_capacity)
{
    return row_capacity + row_capacity / 4 + 32;
}

// Shared memory of a group's queue.
static GPU_HOST_DEVICE inline int queue_bytes(int warps, int room)
{
    return warps * room * (int)sizeof(uint2) + (2 * warps * (int)sizeof(int) + 15) / 16 * 16;
}

static __device__ __forceinline__ row_queue place_queue(char *memory, int warps, int room, int all)
{
    int *const counts = (int *)(memory + warps * room * (int)sizeof(uint2));
    return {(uint2 *)memory, counts, counts + warps, room, all};
}

// Shared memory of a system with at most so many atoms: the system, positions [3] and elements.
static GPU_HOST_DEVICE constexpr int fused_search_bytes(int atoms)
{
    return ((int)sizeof(gpu_system) + 8 + atoms * 28 + 15) / 16 * 16;
}

static inline bool uses_fused_search(const gpu_step *step, const gpu_plan *plan)
{
    return plan->fused_search && !plan->cell_list && !step->neighbors.given_pairs && step->neighbors.row_capacity <= ROW_CAPACITY;
}

// Builds the group's row and stores its atom. The atoms of the row's system are wrapped by `team`: the group, or the block if all its
// rows belong to one system. `own`: the team's shared memory. Returns the row's length, −1 if there is no such atom. `moves`: the step
// may follow an integrator step; while it waits for the atoms it does a dry run that warms the instruction cache, with `dry_run`.
template <bool moves, bool dry_run>
static __device__ __forceinline__ int make_row(const gpu_step &step, const row_group &group, const row_group &team, char *own,
                                               char *queued, int room)
{
    const gpu_call call = *step.call_in;
    if (team.row >= call.n_atoms) return -1;
    const bool there = group.row < call.n_atoms;
    const int i = there ? group.row : team.row, thread = team.thread();
    // With one system, all values can be requested at once.
    const int s = call.n_systems == 1 ? 0 : call.system_of[i], first = call.n_systems == 1 ? 0 : call.systems[s].first,
              n = call.n_systems == 1 ? call.n_atoms : call.systems[s].n;
    gpu_system &system = *(gpu_system *)own;
    double(*const places)[3] = (double(*)[3])(own + (sizeof system + 7) / 8 * 8);
    int *const species = (int *)(places + n);
    const int z = call.species[i], element = thread < n ? call.species[first + thread] : 0;
    const unsigned char owned = call.owned ? call.owned[i] : 1;
    const double *origin = call.positions + (size_t)first * 3;
    int length = there ? 0 : -1;
#pragma unroll 1
    for (int pass = moves && dry_run && step.follows_motion ? 0 : 1; pass < 2; pass++) {
        const bool keep = !(moves && dry_run) || pass == 1;
        // Groups of one team end the dry run one after another: the system is not written while one of them reads it.
        if (moves && dry_run && keep && step.follows_motion) team.barrier();
        if (moves && keep) wait_for_integrator(step);
        double raw[3] = {0, 0, 0};
        if (thread < n)
            for (int c = 0; c < 3; c++) raw[c] = origin[(size_t)thread * 3 + c];
        const double begin[3] = {origin[0], origin[1], origin[2]},
                     offset = offset_of(step, z); // waits for z: last, after all other requests
        if (i == 0 && thread == 0 && keep) {
            *step.call = call;
            step.neighbors.list->n_atoms = -1;
        }
        copy_system(system, call.systems[s], thread, team.threads);
        team.barrier();
        if (system.pending) {
            if (thread == 0) complete_system(step, call, s, system);
            team.barrier();
        }
#pragma unroll 1
        for (int k = thread; k < n; k += team.threads) {
            if (k != thread)
                for (int c = 0; c < 3; c++) raw[c] = origin[(size_t)k * 3 + c];
            const wrapped_atom atom = wrap_atom(system, raw, begin);
            for (int a = 0; a < 3; a++) places[k][a] = atom.finite ? atom.f[a] : NAN;
            species[k] = known_species(step, k == thread ? element : call.species[first + k]);
        }
        team.barrier();
        if (step.stamps && i == 0 && thread == 0 && keep) step.stamps[1] = gpu_timer();
        if (!there) continue; // this group only helped to wrap
        // With one image per atom and a thread for each atom, no queue is needed.
        const row_queue queue =
            place_queue(queued, group.threads / 32, room, has_one_image(system) && n <= group.threads ? n : 0);
        const double *const mine = places[i - first];
        if (!queue.all) {
            queue_candidates(step, system, group, n, queue, [&](int j, float *d) {
                for (int a = 0; a < 3; a++) {
                    const double e = places[j][a] - mine[a];
                    d[a] = (float)(system.wrapped[a] ? e - rint(e) : e);
                }
            });
            group.barrier();
        }
        length = close_queue(
            step, system, group, queue, [&](int j) { return (const double *)places[j]; }, [&](int j) { return species[j]; },
            keep);
        if (group.thread() > 0 || !keep) continue;
        bool wide = false;
        for (int a = 0; a < 3; a++) wide = wide || (!system.wrapped[a] && fabs(mine[a]) > 5e4);
        keep_atom(step, i, s, z, offset, owned, !isnan(mine[0]), wide);
        if (first == i) keep_system(step, s, system);
    }
    return length;
}

#endif
