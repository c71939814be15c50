/* SPDX-License-Identifier: MIT */
/* ani_aev.cuh: shared by atomic environment vectors and their reverse: a block for each atom; forward one warp if atoms are many.
 *
 *   G[16 p + k]            = Σ_j ¼ exp(−η (d − s_k)²) f(d)                       over neighbors j of species p
 *   G[.. + 32 (p, q) + a z] = Σ_{j<k} P_a Q_z f(d_j) f(d_k),   P_a = exp(−η' (½(d_j + d_k) − s_a)²),
 *   Q_z = 2 u^ζ, u = ½ (1 + X cos s_z + Y sin s_z), X = 0.95 cos θ, Y = √(1 − X²)  over pairs of species p, q
 *
 * Neighbors are sorted into shared memory, those inside the angular cutoff first, each part by species. Forward, a lane has a triple and
 * stores its P_a and Q_z in shared memory; then a lane has a function and sums over the triples of each pair of species. Backward, a lane
 * has a triple: it sums dE/dG · dG over the block of its species, and the three results wait in shared memory until each neighbor's lanes
 * gather its triples in order. Work that does not depend on the networks overlaps with them. Bound by the special function unit and
 * issue; with few atoms, by the latency of a block. */
#ifndef ANI_GPU_AEV_CUH
#define ANI_GPU_AEV_CUH

#include "ani_gpu.h"
#include "gpu/evaluator/system_sums.cuh"
#include "gpu/neighbors/fused_search.cuh"
#include "gpu/ptx/primitives.cuh"

enum { MOST_THREADS = 256 };

// The warps that work on an atom: a block's, or one.
template <bool WIDE> struct atom_group {
    int thread, warp, warps, n_threads, atom;
    __device__ __forceinline__ atom_group()
    {
        warps = WIDE ? blockDim.x / 32 : 1;
        n_threads = 32 * warps;
        thread = threadIdx.x % n_threads;
        warp = thread / 32;
        atom = WIDE ? blockIdx.x : blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    }
    __device__ __forceinline__ void barrier() const
    {
        if (WIDE)
            __syncthreads();
        else
            __syncwarp();
    }
};

// Neighbors of one atom in shared memory: angular ones by rank of species, then the others by rank.
struct neighbors {
    float *x, *y, *z, *d, *f,
        *e;            // direction, distance, angular cutoff; forward the radial cutoff, backward the slope of the angular one
    int *rank, *slot;  // rank of the species; index in the row
    int *counts;       // [chunks][keys] counts of 32 entries of the row
    int *first;        // [keys + 1] first neighbor of each key; angular neighbors end at first[n_present]
    int *place, *pair; // [pairs + 1] first place of a pair's triples, a multiple of 4; its ranks
    int n;             // angular neighbors
};
enum { KEYS = 2 * ANI_MAX_SPECIES, PAIRS = ANI_MAX_SPECIES * (ANI_MAX_SPECIES + 1) / 2 };

static GPU_HOST_DEVICE inline int neighbor_floats(int capacity)
{
    return 8 * capacity + KEYS * ((capacity + 31) / 32) + KEYS + 4 + 2 * PAIRS + 4;
}

static __device__ __forceinline__ neighbors place_neighbors(float *shared, int capacity)
{
    neighbors a;
    float **floats[6] = {&a.x, &a.y, &a.z, &a.d, &a.f, &a.e};
    for (int k = 0; k < 6; k++) *floats[k] = shared + k * capacity;
    a.rank = (int *)(shared + 6 * capacity);
    a.slot = a.rank + capacity;
    a.counts = a.slot + capacity;
    a.first = a.counts + KEYS * ((capacity + 31) / 32);
    a.place = a.first + KEYS + 4;
    a.pair = a.place + PAIRS + 4;
    return a;
}

// Sort key of a row's entry: rank of an angular neighbor's species, or rank + n_present of another's.
static __device__ __forceinline__ int key_of(const ani_gpu_step &step, const ani_gpu_groups &groups, const gpu_edge &edge)
{
    const int rank = groups.rank_of[edge.species];
    return rank < 0 ? -1 : edge.d <= step.angular_cutoff ? rank : groups.n_present + rank;
}

// By one warp: places of the triples of each pair of species.
static __device__ __forceinline__ void place_triples(const neighbors &a, int n_present)
{
    const int lane = threadIdx.x % 32, n_pairs = n_present * (n_present + 1) / 2;
    int places = 0;
#pragma unroll 1
    for (int begin = 0; begin < n_pairs; begin += 32) {
        int p = 0, rest = begin + lane, n = 0;
        if (begin + lane < n_pairs) {
            while (rest >= n_present - p) rest -= n_present - p++;
            const int q = p + rest, n_p = a.first[p + 1] - a.first[p], n_q = a.first[q + 1] - a.first[q];
            a.pair[begin + lane] = p | q << 8;
            n = ((p == q ? n_p * (n_p - 1) / 2 : n_p * n_q) + 3) / 4 * 4;
        }
        const int before = sum_before(n);
        if (begin + lane < n_pairs) a.place[begin + lane] = places + before;
        places += __shfl_sync(~0u, before + n, 31);
    }
    if (lane == 0) a.place[n_pairs] = places;
}

static __device__ __forceinline__ float radial_cutoff(const ani_gpu_step &step, float d)
{
    return d <= step.radial_cutoff ? 0.5f * __cosf(3.14159265f / step.radial_cutoff * d) + 0.5f : 0.0f;
}

// Sorts a row, by the group. Ends with a barrier.
template <bool WIDE, bool BACK>
static __device__ __forceinline__ void sort_neighbors(const ani_gpu_step &step, const ani_gpu_groups &groups,
                                                      const atom_group<WIDE> &g, int length, neighbors &a)
{
    const int lane = threadIdx.x % 32, n_present = groups.n_present, keys = 2 * n_present, chunks = (length + 31) / 32;
    const gpu_edge *row = step.gpu.neighbors.edges + (size_t)g.atom * step.gpu.neighbors.row_capacity;
    gpu_edge edge;
    int key = -1, before = 0; // key of the lane's entry; its index among those of its key in the chunk
    const auto look = [&](int chunk, bool count) {
        key = -1;
        if (32 * chunk + lane < length) {
            edge = row[32 * chunk + lane];
            key = key_of(step, groups, edge);
        }
#pragma unroll 1
        for (int r = 0; r < keys; r++) {
            const unsigned same = __ballot_sync(~0u, key == r);
            if (key == r) before = __popc(same & ((1u << lane) - 1));
            if (count && lane == r) a.counts[KEYS * chunk + r] = __popc(same);
        }
    };
    int last = g.warp;
    while (last + g.warps < chunks) last += g.warps;
#pragma unroll 1
    for (int chunk = last; chunk >= g.warp && chunk < chunks; chunk -= g.warps)
        look(chunk, true); // ends with the warp's first chunk
    g.barrier();
    int total = 0;
#pragma unroll 1
    for (int c = 0; c < chunks && lane < keys; c++) total += a.counts[KEYS * c + lane];
    const int begin = sum_before(total); // first index of the key equal to the lane
    a.n = __shfl_sync(~0u, begin, n_present % 32);
    if (g.warp == 0) {
        if (lane < keys) a.first[lane] = begin;
        if (lane == keys - 1) a.first[keys] = begin + total;
        __syncwarp();
        if (!BACK) place_triples(a, n_present);
    }
    const float frequency = 3.14159265f / step.angular_cutoff;
#pragma unroll 1
    for (int chunk = g.warp; chunk < chunks; chunk += g.warps) {
        if (chunk > g.warp) look(chunk, false);
        int at = begin;
#pragma unroll 1
        for (int c = 0; c < chunk && lane < keys; c++) at += a.counts[KEYS * c + lane];
        at = __shfl_sync(~0u, at, max(key, 0)) + before;
        if (key < 0) continue;
        a.x[at] = edge.u[0];
        a.y[at] = edge.u[1];
        a.z[at] = edge.u[2];
        a.d[at] = edge.d;
        a.slot[at] = 32 * chunk + lane;
        a.rank[at] = key < n_present ? key : key - n_present;
        a.f[at] = 0.5f * __cosf(frequency * edge.d) + 0.5f;
        a.e[at] = BACK ? -0.5f * frequency * __sinf(frequency * edge.d) : radial_cutoff(step, edge.d);
    }
    g.barrier();
}

// First triple (j, k), j < k, of row j of n neighbors.
static __device__ __forceinline__ int row_start(int n, int j)
{
    return j * (2 * n - 1 - j) / 2;
}

static __device__ __forceinline__ void find_triple(int n, int t, int &j, int &k)
{
    const float b = 2 * n - 1;
    j = (int)(0.5f * (b - fast_sqrt(fmaxf(b * b - 8.0f * t, 0.0f))));
    if (j > n - 2) j = n - 2;
    if (row_start(n, j) > t) j--;
    if (row_start(n, j + 1) <= t) j++;
    k = t - row_start(n, j) + j + 1;
}

/* ---- shared memory and warps of an atom */

// Places of triples that a warp fills before it sums over them; distance between two rows of its P_a and Q_z, which keeps reads of four
// places of 8 rows free of bank conflicts.
enum { PLACES = 64, FACTOR_ROWS = 12, FACTOR_STRIDE = PLACES + 4 };

// Shared memory after the neighbors: factors of triples for each warp, partial sums of radial columns, and of angular ones.
static __device__ __forceinline__ int radial_parts(int warps, int n_present)
{
    return max(1, 2 * warps / n_present);
}
static GPU_HOST_DEVICE inline int forward_floats(int capacity, int n_species, int warps)
{
    const int radial = 2 * warps > n_species ? 2 * warps : n_species,
              angular = warps > 1 ? n_species * (n_species + 1) / 2 + warps : 0;
    return neighbor_floats(capacity) + FACTOR_ROWS * FACTOR_STRIDE * warps + ANI_GPU_RADIAL * radial + ANI_GPU_ANGULAR * angular;
}

// Shared memory after the neighbors: dE/dAEV, gradients of a row, and gradients of triples.
static GPU_HOST_DEVICE inline int triple_room(int capacity, int warps)
{
    const int room = warps > 4 ? 64 * warps : 256;
    return capacity > room ? capacity : room;
}
static GPU_HOST_DEVICE inline int backward_floats(int capacity, int n_tiles, int warps)
{
    return neighbor_floats(capacity) + 20 * n_tiles + 3 * capacity + 3 * triple_room(capacity, warps);
}

/* Warps for each atom: as many as its triples can use, while atoms do not fill the GPU. The backward pass has two at least: its values of
 * an atom in shared memory allow no more than 16 atoms on a multiprocessor. */
static inline int warps_of(const gpu_plan *plan)
{
    return plan->n_atoms <= 2 * plan->n_multiprocessors ? 8 : plan->n_atoms <= 8 * plan->n_multiprocessors ? 4 : 1;
}
static inline int warps_of_back(const gpu_plan *plan)
{
    return warps_of(plan) > 1 ? warps_of(plan) : 2;
}
static inline int floats_of(const ani_gpu_step *step, int capacity, int warps, bool back)
{
    const int floats =
        back ? backward_floats(capacity, step->stored_tiles, warps) : forward_floats(capacity, step->n_species, warps);
    return (floats + 3) / 4 * 4;
}

#endif
