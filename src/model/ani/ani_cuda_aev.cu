// SPDX-License-Identifier: MIT
// ani_cuda_aev.cu: atomic environment vectors and their way back, one atom a block where atoms are few, else a warp.
//
//   G[16 p + k]            = Σ_j ¼ exp(−η (d − s_k)²) f(d)                       over neighbours j of species p
//   G[.. + 32 (p, q) + a z] = Σ_{j<k} P_a Q_z f(d_j) f(d_k),   P_a = exp(−η' (½(d_j + d_k) − s_a)²),
//   Q_z = 2 u^ζ, u = ½ (1 + X cos s_z + Y sin s_z), X = 0.95 cos θ, Y = √(1 − X²)  over pairs of species p, q
//
// Neighbours are sorted into shared memory, those inside the angular cutoff first, each part by species. Forward, a warp
// takes a unit of triples of one pair of species: a lane keeps 32 sums over its triples, and then lanes add up across the
// warp, so that each has one function. Back, a lane has a triple: it sums dE/dG · dG over the block of its species, and the
// three results wait in shared memory until each neighbour's lanes gather its triples in order. What does not need the
// networks is done while they run. Bound by the special function unit and issue; of few atoms, by the chain of a block.
#include "ani_cuda.h"
#include "model/painn/painn_cuda_alone.cuh"
#include "model/painn/painn_cuda_device.cuh"
#include "model/painn/painn_cuda_sums.cuh"

enum { MOST_THREADS = 256 };

// The warps that have an atom: a block's, or one.
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

// Neighbours of one atom in shared memory: angular ones by rank of species, then the others by rank.
struct neighbors {
    float *x, *y, *z, *d, *f, *e; // direction, distance, angular cutoff; forward the radial one, back the angular one's slope
    int *rank, *slot;             // of the species; in the row
    int *counts;                  // [chunks][keys] of 32 entries of the row
    int *first;                   // [keys + 1] where a key's begin; angular neighbours end at first[n_present]
    int *unit_first, *pair;       // [pairs + 1] where a pair of species' units begin; its ranks
    int n, unit_rows;             // angular neighbours; lanes' rounds in a unit
};
enum { KEYS = 2 * ANI_MAX_SPECIES, PAIRS = ANI_MAX_SPECIES * (ANI_MAX_SPECIES + 1) / 2 };

static PAINN_CUDA_BOTH inline int neighbor_floats(int capacity)
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
    a.unit_first = a.first + KEYS + 4;
    a.pair = a.unit_first + PAIRS + 4;
    return a;
}

// Number of a row's entry `key` for its place: rank of an angular neighbour's species, or that of another's + n_present.
static __device__ __forceinline__ int key_of(const ani_cuda_step &step, const ani_cuda_groups &groups,
                                             const painn_cuda_edge &edge)
{
    const int rank = groups.rank_of[edge.species];
    return rank < 0 ? -1 : edge.d <= step.angular_cutoff ? rank : groups.n_present + rank;
}

// By one warp: units of triples, `warps` of them or some more, none of two pairs of species.
static __device__ __forceinline__ void divide_triples(const neighbors &a, int n_present, int rows)
{
    const int lane = threadIdx.x % 32, n_pairs = n_present * (n_present + 1) / 2;
    int units = 0;
#pragma unroll 1
    for (int begin = 0; begin < n_pairs; begin += 32) {
        int p = 0, rest = begin + lane, n = 0;
        if (begin + lane < n_pairs) {
            while (rest >= n_present - p) rest -= n_present - p++;
            const int q = p + rest, n_p = a.first[p + 1] - a.first[p], n_q = a.first[q + 1] - a.first[q];
            a.pair[begin + lane] = p | q << 8;
            n = ((p == q ? n_p * (n_p - 1) / 2 : n_p * n_q) + 32 * rows - 1) / (32 * rows);
        }
        const int before = sum_before(n);
        if (begin + lane < n_pairs) a.unit_first[begin + lane] = units + before;
        units += __shfl_sync(~0u, before + n, 31);
    }
    if (lane == 0) a.unit_first[n_pairs] = units;
}

static __device__ __forceinline__ float radial_cutoff(const ani_cuda_step &step, float d)
{
    return d <= step.radial_cutoff ? 0.5f * __cosf(3.14159265f / step.radial_cutoff * d) + 0.5f : 0.0f;
}

// Sorts a row. For the group; ends with a barrier.
template <bool WIDE, bool BACK>
static __device__ __forceinline__ void sort_neighbors(const ani_cuda_step &step, const ani_cuda_groups &groups,
                                                      const atom_group<WIDE> &g, int length, neighbors &a)
{
    const int lane = threadIdx.x % 32, n_present = groups.n_present, keys = 2 * n_present, chunks = (length + 31) / 32;
    const painn_cuda_edge *row = step.list.edges + (size_t)g.atom * step.list.row_capacity;
    painn_cuda_edge edge;
    int key = -1, before = 0; // of the lane's entry; among those of its key in the chunk
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
    for (int chunk = last; chunk >= g.warp && chunk < chunks; chunk -= g.warps) look(chunk, true); // leaves the warp's first
    g.barrier();
    int total = 0;
#pragma unroll 1
    for (int c = 0; c < chunks && lane < keys; c++) total += a.counts[KEYS * c + lane];
    const int begin = sum_before(total); // where the key that is the lane begins
    a.n = __shfl_sync(~0u, begin, n_present % 32);
    a.unit_rows = max(1, (a.n * (a.n - 1) / 2 + g.n_threads - 1) / g.n_threads);
    if (g.warp == 0) {
        if (lane < keys) a.first[lane] = begin;
        if (lane == keys - 1) a.first[keys] = begin + total;
        __syncwarp();
        if (!BACK) divide_triples(a, n_present, a.unit_rows);
    }
    const float turn = 3.14159265f / step.angular_cutoff;
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
        a.f[at] = 0.5f * __cosf(turn * edge.d) + 0.5f;
        a.e[at] = BACK ? -0.5f * turn * __sinf(turn * edge.d) : radial_cutoff(step, edge.d);
    }
    g.barrier();
}

// Row j of n neighbours' triples (j, k), j < k, begins here.
static __device__ __forceinline__ int row_start(int n, int j)
{
    return j * (2 * n - 1 - j) / 2;
}

static __device__ __forceinline__ void find_triple(int n, int t, int &j, int &k)
{
    const float b = 2 * n - 1;
    j = (int)(0.5f * (b - sqrtf(fmaxf(b * b - 8.0f * t, 0.0f))));
    if (j > n - 2) j = n - 2;
    if (row_start(n, j) > t) j--;
    if (row_start(n, j + 1) <= t) j++;
    k = t - row_start(n, j) + j + 1;
}

// Number of an unordered pair of ranks p ≤ q.
static __device__ __forceinline__ int pair_number(int n_present, int p, int q)
{
    return p * n_present - p * (p - 1) / 2 + q - p;
}

// Puts columns c and c + 1 (even) of a slot's AEV into the operand of its tile.
static __device__ __forceinline__ void put_aev(const ani_cuda_step &step, int n_tiles, int slot, int c, float a, float b)
{
    a *= ANI_CUDA_VALUE_SCALE;
    b *= ANI_CUDA_VALUE_SCALE;
    const uint32_t high = pack_half2(a, b);
    const float2 rounded = unpack_half2(high);
    const int row = slot % 16, lane = row % 8 * 4 + c % 8 / 2;
    uint32_t *at = (uint32_t *)step.aev + ((((size_t)(slot / 16) * n_tiles + c / 16) * 2 + c / 8 % 2) * 32 + lane) * 4 + row / 8;
    at[0] = high;
    at[2] = pack_half2(a - rounded.x, b - rounded.y);
}

// ---- forward --------------------------------------------------------------------------------------------------------

// Shared memory after the neighbours: partial sums of radial columns, of units.
static __device__ __forceinline__ int radial_parts(int warps, int n_present)
{
    return max(1, 2 * warps / n_present);
}
static PAINN_CUDA_BOTH inline int forward_floats(int capacity, int n_species, int warps)
{
    const int radial = 2 * warps > n_species ? 2 * warps : n_species, units = n_species * (n_species + 1) / 2 + warps;
    return neighbor_floats(capacity) + ANI_CUDA_RADIAL * radial + ANI_CUDA_ANGULAR * units;
}

// Half a warp takes a part of the neighbours of one species, a lane a column.
template <bool WIDE>
static __device__ __forceinline__ void sum_radial(const ani_cuda_step &step, const atom_group<WIDE> &g, const neighbors &a,
                                                  int n_present, float *parts)
{
    const int lane = g.thread % 16, n_parts = radial_parts(g.warps, n_present);
    const float shift = step.radial_shift[lane];
#pragma unroll 1
    for (int u = g.thread / 16; u < n_present * n_parts; u += 2 * g.warps) {
        const int p = u / n_parts, part = u % n_parts;
        float sum = 0;
        for (int outer = 0; outer < 2; outer++) {
            const int end = a.first[outer * n_present + p + 1];
#pragma unroll 1
            for (int m = a.first[outer * n_present + p] + part; m < end; m += n_parts) {
                const float x = a.d[m] - shift;
                sum += a.e[m] * exp2f(-step.eta_radial * x * x);
            }
        }
        parts[ANI_CUDA_RADIAL * u + lane] = (float)ANI_RADIAL_FACTOR * sum;
    }
}

// Adds 32 sums across the warp: lane k gets the k-th.
static __device__ __forceinline__ float sum_across(float (&v)[32])
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int level = 0; level < 5; level++) {
        const int width = 16 >> level;
        const bool upper = lane & width;
#pragma unroll
        for (int k = 0; k < 16; k++) {
            if (k >= width) continue;
            const float mine = upper ? v[k + width] : v[k], other = upper ? v[k] : v[k + width];
            v[k] = mine + __shfl_xor_sync(~0u, other, width);
        }
    }
    return v[0];
}

// The 32 functions of triple (j, k), added to v.
template <int NS, int NZ>
static __device__ __forceinline__ void add_triple(const ani_cuda_step &step, const neighbors &a, int j, int k, float (&v)[32])
{
    const float X = (float)ANI_COSINE_FACTOR * (a.x[j] * a.x[k] + a.y[j] * a.y[k] + a.z[j] * a.z[k]);
    const float Y = sqrtf(1.0f - X * X), mean = 0.5f * (a.d[j] + a.d[k]), ff = 2.0f * a.f[j] * a.f[k];
    float Q[NZ];
#pragma unroll
    for (int z = 0; z < NZ; z++) {
        const float u = fmaxf(0.5f + X * (0.5f * step.cosine[z]) + Y * (0.5f * step.sine[z]), 1e-12f);
        Q[z] = exp2f(step.zeta * log2f(u));
    }
#pragma unroll
    for (int s = 0; s < NS; s++) {
        const float x = mean - step.angular_shift[s], P = ff * exp2f(-step.eta_angular * x * x);
#pragma unroll
        for (int z = 0; z < NZ; z++) v[s * NZ + z] += P * Q[z];
    }
}

template <int NS, int NZ, bool WIDE>
static __device__ __forceinline__ void sum_angular(const ani_cuda_step &step, const atom_group<WIDE> &g, const neighbors &a,
                                                   int n_present, float *units)
{
    const int lane = threadIdx.x % 32, n_pairs = n_present * (n_present + 1) / 2;
#pragma unroll 1
    for (int u = g.warp; u < a.unit_first[n_pairs]; u += g.warps) {
        int b = -1; // the last pair that begins at u or before
#pragma unroll 1
        for (int k = 0; k < n_pairs; k += 32) b += __popc(__ballot_sync(~0u, k + lane < n_pairs && a.unit_first[k + lane] <= u));
        const int p = a.pair[b] & 255, q = a.pair[b] >> 8, first_p = a.first[p], first_q = a.first[q],
                  n_p = a.first[p + 1] - first_p, n_q = a.first[q + 1] - first_q;
        const int begin = (u - a.unit_first[b]) * 32 * a.unit_rows,
                  end = min(p == q ? n_p * (n_p - 1) / 2 : n_p * n_q, begin + 32 * a.unit_rows);
        float v[32];
#pragma unroll
        for (int k = 0; k < 32; k++) v[k] = 0;
#pragma unroll 1
        for (int t = begin + lane; t < end; t += 32) {
            int j, k;
            if (p == q) {
                find_triple(n_p, t, j, k);
            } else {
                j = t / n_q;
                k = t - j * n_q;
            }
            add_triple<NS, NZ>(step, a, first_p + j, first_q + k, v);
        }
        __syncwarp();
        units[ANI_CUDA_ANGULAR * u + lane] = sum_across(v);
    }
}

// ALONE: the block makes its atom's row first, for which it needs not know the atoms by species.
template <int NS, int NZ, bool WIDE, bool ALONE>
static __global__ void __launch_bounds__(MOST_THREADS, ALONE ? 1 : 4)
    aev_kernel(const __grid_constant__ ani_cuda_step step, int floats)
{
    DYNAMIC_SHARED(all_shared);
    uint4 *shared = all_shared + (ALONE ? sizeof(alone_system) / sizeof(uint4) : 0);
    const atom_group<WIDE> g;
    const int capacity = step.list.row_capacity;
    int length = -1;
    if (ALONE) {
        if (step.list.stamps && blockIdx.x == 0 && threadIdx.x == 0) step.list.stamps[0] = gpu_timer();
        length = make_row(step.list, *(alone_system *)all_shared, (uint2 *)shared, queue_room(capacity));
        __syncthreads();
        wait_for_previous();
        let_next_start(); // the networks look at the groups at once
        if (step.list.stamps && blockIdx.x == 0 && threadIdx.x == 0) step.list.stamps[ANI_CUDA_STAMP_RADIAL] = gpu_timer();
    } else {
        begin_stage(step.list, ANI_CUDA_STAMP_RADIAL);
        if (blockIdx.x == 0 && threadIdx.x == 0) step.groups->failed = step.list.report->flags;
        length = step.list.row_length[g.atom];
        if (g.atom >= step.list.call->n_atoms) length = -1;
    }
    const ani_cuda_groups &groups = *step.groups;
    const int slot = step.slot_of[g.atom], n_present = groups.n_present, n_tiles = groups.n_tiles;
    if (length < 0 || slot < 0) return; // all of the group
    float *mine = (float *)shared + (WIDE ? 0 : threadIdx.x / 32 * floats);
    neighbors a = place_neighbors(mine, capacity);
    sort_neighbors<WIDE, false>(step, groups, g, length, a);
    const int n_parts = radial_parts(g.warps, n_present);
    float *parts = mine + neighbor_floats(capacity), *units = parts + ANI_CUDA_RADIAL * n_present * n_parts;
    sum_radial(step, g, a, n_present, parts);
    if (step.list.stamps && blockIdx.x == 0 && threadIdx.x == 0) step.list.stamps[ANI_CUDA_STAMP_ANGULAR] = gpu_timer();
    sum_angular<NS, NZ>(step, g, a, n_present, units);
    g.barrier();
#pragma unroll 1
    for (int c = 2 * g.thread; c < 16 * n_tiles; c += 2 * g.n_threads) {
        const int angular = c - ANI_CUDA_RADIAL * n_present;
        float v0 = 0, v1 = 0;
        if (angular < 0) {
            const float *of = parts + ANI_CUDA_RADIAL * (c / ANI_CUDA_RADIAL * n_parts) + c % ANI_CUDA_RADIAL;
#pragma unroll 1
            for (int k = 0; k < n_parts; k++, of += ANI_CUDA_RADIAL) v0 += of[0], v1 += of[1];
        } else {
            const int b = angular / ANI_CUDA_ANGULAR;
#pragma unroll 1
            for (int u = a.unit_first[b]; u < a.unit_first[b + 1]; u++) {
                v0 += units[ANI_CUDA_ANGULAR * u + angular % ANI_CUDA_ANGULAR];
                v1 += units[ANI_CUDA_ANGULAR * u + angular % ANI_CUDA_ANGULAR + 1];
            }
        }
        put_aev(step, n_tiles, slot, c, v0, v1);
    }
}

// ---- back -----------------------------------------------------------------------------------------------------------

// Shared memory after the neighbours: dE/dAEV, gradients of a row, and those of triples that wait.
static PAINN_CUDA_BOTH inline int triple_room(int capacity, int warps)
{
    const int room = warps > 4 ? 64 * warps : 256;
    return capacity > room ? capacity : room;
}
static PAINN_CUDA_BOTH inline int backward_floats(int capacity, int n_tiles, int warps)
{
    return neighbor_floats(capacity) + 20 * n_tiles + 3 * capacity + 3 * triple_room(capacity, warps);
}

// Places of dE/dAEV: a species' 16 radial columns take 20 and a pair's 32 angular ones 36, so that lanes with different
// species meet in few banks.
static __device__ __forceinline__ int radial_place(int rank)
{
    return 20 * rank;
}
static __device__ __forceinline__ int angular_place(int n_present, int pair)
{
    return 20 * n_present + 36 * pair;
}

static __device__ __forceinline__ int adjoint_place(int n_present, int column)
{
    const int angular = column - ANI_CUDA_RADIAL * n_present;
    return angular < 0 ? radial_place(column / ANI_CUDA_RADIAL) + column % ANI_CUDA_RADIAL
                       : angular_place(n_present, angular / ANI_CUDA_ANGULAR) + angular % ANI_CUDA_ANGULAR;
}

// dE/dAEV of the slot, members summed in order. Threads that have no columns of their own take others' later members, which
// wait in `scratch` (4 floats a thread). Ends with a barrier.
template <bool WIDE>
static __device__ __forceinline__ void load_adjoint(const ani_cuda_step &step, const atom_group<WIDE> &g, int n_tiles,
                                                    int n_present, int slot, int member, float *bar, float *scratch)
{
    const int columns = 4 * n_tiles, members = (step.n_members + step.n_parts - 1) / step.n_parts; // columns of 4
    const int first = member < 0 ? 0 : member / members, n = member < 0 ? (step.n_members - 1) / members + 1 : 1;
    const float4 *from = (const float4 *)step.adjoint + ((size_t)first * step.slot_capacity + slot) * columns;
    const size_t stride = (size_t)step.slot_capacity * columns;
    const int shares = min(n, max(1, g.n_threads / columns)), each = (n + shares - 1) / shares;
#pragma unroll 1
    for (int c = g.thread; c < columns * shares; c += g.n_threads) {
        const int begin = c / columns * each, end = min(n, begin + each);
        const float4 zero = make_float4(0, 0, 0, 0), *at = from + c % columns;
        float4 v = zero;
#pragma unroll 1
        for (int p = begin; p < end; p += 4) { // four at once: each waits for L2
            const float4 v0 = at[p * stride], v1 = p + 1 < end ? at[(p + 1) * stride] : zero,
                         v2 = p + 2 < end ? at[(p + 2) * stride] : zero, v3 = p + 3 < end ? at[(p + 3) * stride] : zero;
            v = v + v0 + v1 + v2 + v3;
        }
        if (shares > 1) {
            ((float4 *)scratch)[c] = v;
            continue;
        }
        *(float4 *)(bar + adjoint_place(n_present, 4 * c)) = v;
    }
    g.barrier();
    if (shares == 1) return;
#pragma unroll 1
    for (int c = g.thread; c < columns; c += g.n_threads) {
        float4 v = ((const float4 *)scratch)[c];
#pragma unroll 1
        for (int k = 1; k < shares; k++) v = v + ((const float4 *)scratch)[k * columns + c];
        *(float4 *)(bar + adjoint_place(n_present, 4 * c)) = v;
    }
    g.barrier();
}

// Four lanes a neighbour, each with four shifts.
template <bool WIDE>
static __device__ __forceinline__ void radial_back(const ani_cuda_step &step, const atom_group<WIDE> &g, const neighbors &a,
                                                   int length, const float *bar, float *gradient)
{
    const int lane = threadIdx.x % 32, quarter = lane % 4, capacity = step.list.row_capacity;
    const float turn = 3.14159265f / step.radial_cutoff, eta = step.eta_radial * 0.69314718f;
#pragma unroll 1
    for (int begin = 8 * g.warp; begin < length; begin += 8 * g.warps) {
        const int m = min(begin + lane / 4, length - 1);
        const float d = a.d[m];
        float slope = 0;
        if (d <= step.radial_cutoff) {
            const float f = 0.5f * __cosf(turn * d) + 0.5f, df = -0.5f * turn * __sinf(turn * d);
            const float4 of = *(const float4 *)(bar + radial_place(a.rank[m]) + 4 * quarter);
            const float4 x = make_float4(d - step.radial_shift[4 * quarter], d - step.radial_shift[4 * quarter + 1],
                                         d - step.radial_shift[4 * quarter + 2], d - step.radial_shift[4 * quarter + 3]);
            slope = of.x * exp2f(-step.eta_radial * x.x * x.x) * (df - 2.0f * eta * x.x * f) +
                    of.y * exp2f(-step.eta_radial * x.y * x.y) * (df - 2.0f * eta * x.y * f) +
                    of.z * exp2f(-step.eta_radial * x.z * x.z) * (df - 2.0f * eta * x.z * f) +
                    of.w * exp2f(-step.eta_radial * x.w * x.w) * (df - 2.0f * eta * x.w * f);
        }
        slope += __shfl_xor_sync(~0u, slope, 1);
        slope += __shfl_xor_sync(~0u, slope, 2);
        if (begin + lane / 4 < length && quarter < 3)
            gradient[quarter * capacity + a.slot[m]] = (float)ANI_RADIAL_FACTOR * slope *
                                                       (quarter == 0   ? a.x
                                                        : quarter == 1 ? a.y
                                                                       : a.z)[m];
    }
}

// Gradients of triple (j, k): along each leg, and by the cosine.
template <int NS, int NZ>
static __device__ __forceinline__ float3 triple_back(const ani_cuda_step &step, const neighbors &a, int j, int k, const float *of)
{
    const float c = a.x[j] * a.x[k] + a.y[j] * a.y[k] + a.z[j] * a.z[k], X = (float)ANI_COSINE_FACTOR * c;
    const float Y = sqrtf(1.0f - X * X), ratio = X / Y, mean = 0.5f * (a.d[j] + a.d[k]), eta = step.eta_angular * 0.69314718f;
    float by_shift[NZ], by_slope[NZ];
#pragma unroll
    for (int z = 0; z < NZ; z++) by_shift[z] = by_slope[z] = 0;
#pragma unroll
    for (int s = 0; s < NS; s++) {
        const float x = mean - step.angular_shift[s], P = exp2f(-step.eta_angular * x * x), dP = -eta * x * P;
#pragma unroll
        for (int z = 0; z < NZ; z += 4) {
            const float4 bar = *(const float4 *)(of + s * NZ + z);
            by_shift[z] += bar.x * P, by_shift[z + 1] += bar.y * P, by_shift[z + 2] += bar.z * P, by_shift[z + 3] += bar.w * P;
            by_slope[z] += bar.x * dP, by_slope[z + 1] += bar.y * dP, by_slope[z + 2] += bar.z * dP;
            by_slope[z + 3] += bar.w * dP;
        }
    }
    float S = 0, Sr = 0, SX = 0;
#pragma unroll
    for (int z = 0; z < NZ; z++) {
        const float u = fmaxf(0.5f + X * (0.5f * step.cosine[z]) + Y * (0.5f * step.sine[z]), 1e-12f);
        const float Q = exp2f(step.zeta * log2f(u));
        S += by_shift[z] * Q;
        Sr += by_slope[z] * Q;
        SX += by_shift[z] * __fdividef(Q, u) * (step.cosine[z] - ratio * step.sine[z]);
    }
    const float both = 2.0f * Sr * a.f[j] * a.f[k], by_c = (float)ANI_COSINE_FACTOR * step.zeta * SX * a.f[j] * a.f[k];
    return make_float3(both + 2.0f * S * a.e[j] * a.f[k] - by_c * c / a.d[j],
                       both + 2.0f * S * a.f[j] * a.e[k] - by_c * c / a.d[k], by_c);
}

// Each neighbour adds up its triples of rows `first` … `last` − 1, which begin at triple `begin`: several lanes each.
template <bool WIDE>
static __device__ __forceinline__ void gather_triples(const atom_group<WIDE> &g, const neighbors &a, int first, int last,
                                                      int begin, const float *result, int room, float *gradient, int capacity)
{
    const int n = a.n;
    int lanes = 1;
    while (lanes < 32 && 2 * lanes * n <= g.n_threads) lanes *= 2;
#pragma unroll 1
    for (int some = 0; some < n; some += g.n_threads / lanes) {
        const int m = some + g.thread / lanes;
        float slope = 0, x = 0, y = 0, z = 0;
#pragma unroll 1
        for (int other = g.thread % lanes; other < n && m < n; other += lanes) {
            const int low = min(m, other), high = max(m, other);
            if (low == high || low < first || low >= last) continue;
            const int t = row_start(n, low) - begin + high - low - 1;
            const float by_c = result[2 * room + t];
            slope += result[(other < m ? room : 0) + t];
            x += by_c * a.x[other];
            y += by_c * a.y[other];
            z += by_c * a.z[other];
        }
#pragma unroll 1
        for (int width = lanes / 2; width > 0; width /= 2) {
            slope += __shfl_xor_sync(~0u, slope, width);
            x += __shfl_xor_sync(~0u, x, width);
            y += __shfl_xor_sync(~0u, y, width);
            z += __shfl_xor_sync(~0u, z, width);
        }
        if (m >= n || g.thread % lanes > 0) continue;
        const float inverse = 1.0f / a.d[m];
        float *to = gradient + a.slot[m];
        to[0] += slope * a.x[m] + x * inverse;
        to[capacity] += slope * a.y[m] + y * inverse;
        to[2 * capacity] += slope * a.z[m] + z * inverse;
    }
}

// Ends with a barrier.
template <int NS, int NZ, bool WIDE>
static __device__ __forceinline__ void angular_back(const ani_cuda_step &step, const atom_group<WIDE> &g, const neighbors &a,
                                                    int n_present, const float *bar, float *result, int room, float *gradient)
{
    const int n = a.n, capacity = step.list.row_capacity;
#pragma unroll 1
    for (int first = 0, last; first < n - 1; first = last) {
        const int begin = row_start(n, first);
        last = row_start(n, n - 1) - begin <= room ? n - 1 : first + 1;
        while (last < n - 1 && row_start(n, last + 1) - begin <= room) last++;
        const int end = row_start(n, last);
#pragma unroll 1
        for (int t = begin + g.thread; t < end; t += g.n_threads) {
            int j, k;
            find_triple(n, t, j, k);
            const float3 r =
                triple_back<NS, NZ>(step, a, j, k, bar + angular_place(n_present, pair_number(n_present, a.rank[j], a.rank[k])));
            result[t - begin] = r.x;
            result[room + t - begin] = r.y;
            result[2 * room + t - begin] = r.z;
        }
        g.barrier();
        gather_triples(g, a, first, last, begin, result, room, gradient, capacity);
        g.barrier();
    }
}

// What pairs give their centre: force and virial, summed in double by a warp a component.
template <bool WIDE>
static __device__ __forceinline__ void sum_row(const ani_cuda_step &step, const atom_group<WIDE> &g, const neighbors &a,
                                               int length, const float *gradient)
{
    const int lane = threadIdx.x % 32, capacity = step.list.row_capacity, n_sums = step.list.call->want_virial ? 12 : 3;
#pragma unroll 1
    for (int c = g.warp; c < n_sums; c += g.warps) {
        const float *of = gradient + (c < 3 ? c : (c - 3) / 3) * capacity, *r = c % 3 == 0 ? a.x : c % 3 == 1 ? a.y : a.z;
        double sum = 0;
#pragma unroll 1
        for (int m = lane; m < length; m += 32) {
            const float v = of[a.slot[m]];
            sum += c < 3 ? v : -v * (a.d[m] * r[m]);
        }
        sum = sum_warp(sum);
        if (lane > 0) continue;
        if (c < 3)
            step.centre[3 * (size_t)g.atom + c] = sum;
        else
            step.list.atom_virial[9 * (size_t)g.atom + c - 3] = step.list.energy_unit * sum;
    }
}

// Where the gradients of a row's pairs are to arrive.
template <bool WIDE>
static __device__ __forceinline__ void find_reverses(const ani_cuda_step &step, const atom_group<WIDE> &g, int length,
                                                     int *arrives)
{
#pragma unroll 1
    for (int k = g.thread; k < length; k += g.n_threads) {
        bool found;
        arrives[k] = find_reverse(step.list, g.atom, k, &found);
        if (found) continue;
        raise_flag(step.list, PAINN_CUDA_NOT_SYMMETRIC, g.atom,
                   step.list.edges[(size_t)g.atom * step.list.row_capacity + k].packed / PAINN_CUDA_INTERVALS);
        atomicOr(&step.groups->failed, PAINN_CUDA_NOT_SYMMETRIC);
    }
}

template <int NS, int NZ, bool WIDE>
static __global__ void __launch_bounds__(MOST_THREADS, WIDE ? 4 : 1)
    aev_back_kernel(const __grid_constant__ ani_cuda_step step, int floats)
{
    DYNAMIC_SHARED(shared);
    const atom_group<WIDE> g;
    const int capacity = step.list.row_capacity;
    const ani_cuda_groups &groups = *step.groups;
    float *mine = (float *)shared + (WIDE ? 0 : threadIdx.x / 32 * floats);
    neighbors a = place_neighbors(mine, capacity);
    // Rows and groups were there before the networks began.
    const bool there = g.atom < step.list.call->n_atoms;
    const int slot = there ? step.slot_of[g.atom] : -1, length = there ? step.list.row_length[g.atom] : 0;
    const int n_present = groups.n_present, n_tiles = groups.n_tiles, member = step.list.call->member;
    if (slot >= 0) sort_neighbors<WIDE, true>(step, groups, g, length, a);
    int *arrives = a.counts; // not needed any longer
    if (WIDE && step.list.handed_pairs != 2)
        find_reverses(step, g, length, arrives);
    else
#pragma unroll 1
        for (int k = g.thread; k < length; k += g.n_threads) arrives[k] = step.list.reverse[(size_t)g.atom * capacity + k];
    float *bar = mine + neighbor_floats(capacity), *gradient = bar + 20 * n_tiles, *result = gradient + 3 * capacity;
    float4 *arrived = (float4 *)step.arrived;
    // While the networks run all is done once for nothing: then pages of memory and instructions are at hand, 3 of 9 µs at 64
    // atoms.
#pragma unroll 1
    for (int pass = WIDE && step.rehearse ? 0 : 1; pass < 2; pass++) {
        if (pass == 1) {
            begin_stage(step.list, ANI_CUDA_STAMP_AEV_BACK);
            if (blockIdx.x == 0 && threadIdx.x == 0)
                atomicOr(&step.groups->failed, step.list.report->flags); // of rows made alone
        }
        if (slot >= 0) {
            load_adjoint(step, g, n_tiles, n_present, slot, member, bar, result);
            radial_back(step, g, a, length, bar, gradient);
            g.barrier();
            angular_back<NS, NZ>(step, g, a, n_present, bar, result, triple_room(capacity, g.warps), gradient);
            sum_row(step, g, a, length, gradient);
        } else if (there) {
#pragma unroll 1
            for (int k = g.thread; k < 9; k += g.n_threads) {
                if (k < 3) step.centre[3 * (size_t)g.atom + k] = 0;
                step.list.atom_virial[9 * (size_t)g.atom + k] = 0;
            }
        }
#pragma unroll 1
        for (int k = g.thread; k < length; k += g.n_threads)
            arrived[arrives[k]] = slot < 0 ? make_float4(0, 0, 0, 0)
                                           : make_float4(gradient[k], gradient[capacity + k], gradient[2 * capacity + k], 0);
        g.barrier();
    }
}

// ---- launches -------------------------------------------------------------------------------------------------------

// Warps of an atom: as many as its triples can use while atoms do not fill the GPU, so that these do not wait for one another.
static int warps_of(const painn_cuda_plan *plan)
{
    return plan->n_atoms <= 2 * plan->n_multiprocessors ? 8 : plan->n_atoms <= 8 * plan->n_multiprocessors ? 4 : 1;
}

static int floats_of(const ani_cuda_step *step, int capacity, int warps, bool back)
{
    const int floats =
        back ? backward_floats(capacity, step->stored_tiles, warps) : forward_floats(capacity, step->n_species, warps);
    return (floats + 3) / 4 * 4;
}

template <int NS, int NZ, bool WIDE, bool ALONE>
static int launch_aev(const ani_cuda_step *step, const painn_cuda_plan *plan, bool back, void *stream)
{
    const int warps = warps_of(plan), capacity = step->list.row_capacity, atoms = WIDE ? 1 : 4;
    const int floats = floats_of(step, capacity, warps, back);
    size_t bytes = (size_t)(atoms * floats) * sizeof(float);
    if (ALONE && !back) {
        const size_t queue = (size_t)(warps * queue_room(capacity)) * sizeof(uint2);
        bytes = sizeof(alone_system) + (bytes > queue ? bytes : queue);
    }
    void (*kernel)(ani_cuda_step, int) = back ? aev_back_kernel<NS, NZ, WIDE> : aev_kernel<NS, NZ, WIDE, ALONE>;
    return launch(kernel, (plan->n_atoms + atoms - 1) / atoms, WIDE ? 32 * warps : 128, bytes, 1, plan->overlap, stream, *step,
                  floats);
}

int ani_cuda_chained(const painn_cuda_plan *plan)
{
    return warps_of(plan) > 1;
}

int ani_cuda_makes_rows(const ani_cuda_step *step, const painn_cuda_plan *plan)
{
    // Without forces nothing would tell the sums what was wrong with rows.
    return plan->forces && makes_rows_alone(&step->list, plan) && 32 * warps_of(plan) >= PAINN_CUDA_ALONE;
}

static int dispatch(const ani_cuda_step *step, const painn_cuda_plan *plan, bool back, void *stream)
{
    const bool wide = warps_of(plan) > 1, alone = ani_cuda_makes_rows(step, plan);
    if (step->more_shifts)
        return alone  ? launch_aev<8, 4, true, true>(step, plan, back, stream)
               : wide ? launch_aev<8, 4, true, false>(step, plan, back, stream)
                      : launch_aev<8, 4, false, false>(step, plan, back, stream);
    return alone  ? launch_aev<4, 8, true, true>(step, plan, back, stream)
           : wide ? launch_aev<4, 8, true, false>(step, plan, back, stream)
                  : launch_aev<4, 8, false, false>(step, plan, back, stream);
}

int ani_cuda_launch_aev(const ani_cuda_step *step, const painn_cuda_plan *plan, void *stream)
{
    return dispatch(step, plan, false, stream);
}

int ani_cuda_launch_aev_back(const ani_cuda_step *step, const painn_cuda_plan *plan, void *stream)
{
    return dispatch(step, plan, true, stream);
}

size_t ani_cuda_aev_bytes(const ani_cuda_step *step, int row_capacity)
{
    int most = 0;
    for (int warps = 1; warps <= MOST_THREADS / 32; warps++)
        for (int back = 0; back < 2; back++) {
            const int floats = (warps == 1 ? 4 : 1) * floats_of(step, row_capacity, warps, back);
            if (floats > most) most = floats;
        }
    return sizeof(alone_system) + sizeof(float) * (size_t)most +
           (size_t)(MOST_THREADS / 32 * queue_room(row_capacity)) * sizeof(uint2);
}

template <int NS, int NZ> static int raise(int bytes)
{
    void (*const kernels[])(ani_cuda_step, int) = {aev_kernel<NS, NZ, false, false>, aev_kernel<NS, NZ, true, false>,
                                                   aev_kernel<NS, NZ, true, true>, aev_back_kernel<NS, NZ, false>,
                                                   aev_back_kernel<NS, NZ, true>};
    cudaError_t e = cudaSuccess;
    for (int k = 0; k < 5 && e == cudaSuccess; k++)
        e = cudaFuncSetAttribute(kernels[k], cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    return (int)e;
}

int ani_cuda_prepare_aev(int bytes)
{
    const int error = raise<8, 4>(bytes);
    return error ? error : raise<4, 8>(bytes);
}
