// SPDX-License-Identifier: MIT
// ani_cuda_aev.cu: atomic environment vectors and their way back, one atom a group of W warps.
//
//   G[16 p + k]            = Σ_j ¼ exp(−η (d − s_k)²) f(d)                       over neighbours j of species p
//   G[.. + 32 (p, q) + a z] = Σ_{j<k} P_a Q_z f(d_j) f(d_k),   P_a = exp(−η' (½(d_j + d_k) − s_a)²),
//   Q_z = 2 u^ζ, u = ½ (1 + X cos s_z + Y sin s_z), X = 0.95 cos θ, Y = √(1 − X²)  over pairs of species p, q
//
// Neighbours inside the angular cutoff are sorted by species into shared memory. Forward, the lanes of a warp compute the
// P and Q of 32 triples, and then each lane sums one of the 32 functions over these triples: no two lanes write one
// number. Back, a lane has a triple: it sums dE/dG · dG over the block of its species, and the three results wait in
// shared memory until each neighbour's thread gathers its triples in order. Bound by the special function unit and issue.
#include "ani_cuda.h"
#include "model/painn/painn_cuda_cell.h"
#include "model/painn/painn_cuda_device.cuh"

// Angular neighbours of one atom, sorted by species; in shared memory.
struct neighbors {
    float *x, *y, *z, *d, *f, *df; // direction, distance, cutoff and its slope (the way back only)
    int *rank, *slot;              // of the species; in the row
    int n;
};

template <int W> static __device__ __forceinline__ void group_barrier()
{
    if (W == 1)
        __syncwarp();
    else
        __syncthreads();
}

static __device__ __forceinline__ int rank_of(const ani_cuda_groups &groups, const painn_cuda_edge &edge)
{
    return groups.rank_of[edge.species];
}

// Sorts with one warp; what a row's end leaves over stays as it is.
template <bool BACK>
static __device__ void sort_neighbors(const ani_cuda_step &step, const ani_cuda_groups &groups, int i, int length, neighbors &to,
                                      int *count_out)
{
    const int lane = threadIdx.x % 32, n_present = groups.n_present;
    const painn_cuda_edge *row = step.list.edges + (size_t)i * step.list.row_capacity;
    const float turn = 3.14159265f / step.angular_cutoff;
    int count = 0, place = 0; // of the species whose rank is the lane
    for (int pass = 0; pass < 2; pass++) {
        for (int begin = 0; begin < length; begin += 32) {
            painn_cuda_edge edge = {};
            int rank = -1;
            if (begin + lane < length) {
                edge = row[begin + lane];
                if (edge.d <= step.angular_cutoff) rank = rank_of(groups, edge);
            }
            int at = -1;
            for (int r = 0; r < n_present; r++) {
                const unsigned same = __ballot_sync(~0u, rank == r);
                if (pass == 0) {
                    if (lane == r) count += __popc(same);
                    continue;
                }
                const int from = __shfl_sync(~0u, place, r);
                if (rank == r) at = from + __popc(same & ((1u << lane) - 1));
                if (lane == r) place += __popc(same);
            }
            if (at < 0) continue;
            to.x[at] = edge.u[0];
            to.y[at] = edge.u[1];
            to.z[at] = edge.u[2];
            to.d[at] = edge.d;
            to.f[at] = 0.5f * __cosf(turn * edge.d) + 0.5f;
            if (BACK) {
                to.df[at] = -0.5f * turn * __sinf(turn * edge.d);
                to.slot[at] = begin + lane;
            }
            to.rank[at] = rank;
        }
        if (pass == 0) {
            int total = 0;
            for (int r = 0; r < n_present; r++) {
                if (lane == r) place = total;
                total += __shfl_sync(~0u, count, r);
            }
            if (lane == 0) *count_out = total;
        }
    }
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

static __device__ __forceinline__ float radial_cutoff(const ani_cuda_step &step, float d)
{
    return d <= step.radial_cutoff ? 0.5f * __cosf(3.14159265f / step.radial_cutoff * d) + 0.5f : 0.0f;
}

// Floats of shared memory for one atom: neighbours, then what forward or the way back need beside.
static PAINN_CUDA_BOTH inline int neighbor_floats(int capacity)
{
    return 8 * capacity + 32;
}
static PAINN_CUDA_BOTH inline int forward_floats(int capacity, int n_tiles, int warps)
{
    return neighbor_floats(capacity) + warps * (32 * 13 + 16 * n_tiles + ANI_CUDA_RADIAL * ANI_MAX_SPECIES);
}
static PAINN_CUDA_BOTH inline int triple_room(int capacity)
{
    return capacity > ANI_CUDA_TRIPLES ? capacity : ANI_CUDA_TRIPLES;
}
static PAINN_CUDA_BOTH inline int backward_floats(int capacity, int n_tiles)
{
    return neighbor_floats(capacity) + 16 * n_tiles + 4 * n_tiles + 16 + 3 * capacity + 3 * triple_room(capacity);
}

static __device__ __forceinline__ neighbors place_neighbors(float *shared, int capacity)
{
    neighbors a;
    float **floats[6] = {&a.x, &a.y, &a.z, &a.d, &a.f, &a.df};
    for (int k = 0; k < 6; k++) *floats[k] = shared + k * capacity;
    a.rank = (int *)(shared + 6 * capacity);
    a.slot = (int *)(shared + 7 * capacity);
    a.n = 0;
    return a;
}

// ---- forward --------------------------------------------------------------------------------------------------------

// One half of the warp has one neighbour, the other the next: two sums of each column.
template <int W>
static __device__ void add_radial(const ani_cuda_step &step, const ani_cuda_groups &groups, int i, int length, int warp,
                                  float *sum, float *other)
{
    const int lane = threadIdx.x % 32, half = lane / 16;
    const painn_cuda_edge *row = step.list.edges + (size_t)i * step.list.row_capacity;
    const float shift = step.radial_shift[lane % 16];
    float *mine = (half ? other : sum) + lane % 16;
    for (int begin = 32 * warp; begin < length; begin += 32 * W) {
        float d = 0, f = 0;
        int rank = -1;
        if (begin + lane < length) {
            d = row[begin + lane].d;
            rank = rank_of(groups, row[begin + lane]);
            f = (float)ANI_RADIAL_FACTOR * radial_cutoff(step, d);
        }
        const int n = min(length - begin, 32);
        for (int m = 0; m < n; m += 2) {
            const float dm = __shfl_sync(~0u, d, m + half), fm = __shfl_sync(~0u, f, m + half);
            const int rm = __shfl_sync(~0u, rank, m + half);
            const float x = dm - shift;
            if (rm >= 0) mine[ANI_CUDA_RADIAL * rm] += fm * exp2f(-step.eta_radial * x * x);
        }
    }
}

template <int NS, int NZ, int W>
static __device__ void add_angular(const ani_cuda_step &step, const neighbors &a, int n_present, int warp, float *chunk,
                                   float *sum)
{
    const int lane = threadIdx.x % 32, n_triples = a.n * (a.n - 1) / 2, own_shift = lane / NZ, own_section = NS + lane % NZ;
    int block = -1;
    float total = 0;
    for (int begin = 32 * warp; begin < n_triples; begin += 32 * W) {
        const int t = begin + lane, n = min(n_triples - begin, 32);
        if (t < n_triples) {
            int j, k;
            find_triple(a.n, t, j, k);
            const float X = (float)ANI_COSINE_FACTOR * (a.x[j] * a.x[k] + a.y[j] * a.y[k] + a.z[j] * a.z[k]);
            const float Y = sqrtf(1.0f - X * X), mean = 0.5f * (a.d[j] + a.d[k]), ff = 2.0f * a.f[j] * a.f[k];
            float *to = chunk + 13 * lane;
#pragma unroll
            for (int s = 0; s < NS; s++) {
                const float x = mean - step.angular_shift[s];
                to[s] = ff * exp2f(-step.eta_angular * x * x);
            }
#pragma unroll
            for (int s = 0; s < NZ; s++) {
                const float u = fmaxf(0.5f + X * (0.5f * step.cosine[s]) + Y * (0.5f * step.sine[s]), 1e-12f);
                to[NS + s] = exp2f(step.zeta * log2f(u));
            }
            ((int *)to)[NS + NZ] = pair_number(n_present, a.rank[j], a.rank[k]);
        }
        __syncwarp();
        for (int m = 0; m < n; m++) {
            const float *of = chunk + 13 * m;
            const int next = ((const int *)of)[NS + NZ];
            if (next != block) {
                if (block >= 0) sum[ANI_CUDA_ANGULAR * block + lane] += total;
                block = next;
                total = 0;
            }
            total += of[own_shift] * of[own_section];
        }
        __syncwarp();
    }
    if (block >= 0) sum[ANI_CUDA_ANGULAR * block + lane] += total;
}

template <int NS, int NZ, int W>
static __global__ void __launch_bounds__(128) aev_kernel(const __grid_constant__ ani_cuda_step step, int floats)
{
    DYNAMIC_SHARED(shared);
    begin_stage(step.list, ANI_CUDA_STAMP_RADIAL);
    const int group = threadIdx.x / (32 * W), thread = threadIdx.x % (32 * W), warp = thread / 32;
    const int i = blockIdx.x * (4 / W) + group, capacity = step.list.row_capacity;
    const ani_cuda_groups &groups = *step.groups;
    if (blockIdx.x == 0 && threadIdx.x == 0) step.groups->failed = step.list.report->flags;
    const int slot = i < step.list.call->n_atoms ? step.slot_of[i] : -1;
    if (slot < 0) return; // all of the group
    const int length = step.list.row_length[i], n_present = groups.n_present, columns = 16 * groups.n_tiles;
    float *mine = (float *)shared + (size_t)group * floats;
    neighbors a = place_neighbors(mine, capacity);
    int *count = (int *)(mine + 8 * capacity);
    // Sums of each warp: its AEV and the radial columns once more.
    float *sums = mine + neighbor_floats(capacity), *chunks = sums + W * (columns + ANI_CUDA_RADIAL * n_present);
    const int stride = columns + ANI_CUDA_RADIAL * n_present;
    for (int c = thread; c < W * stride; c += 32 * W) sums[c] = 0;
    if (warp == 0) sort_neighbors<false>(step, groups, i, length, a, count);
    group_barrier<W>();
    a.n = *count;
    add_radial<W>(step, groups, i, length, warp, sums + warp * stride, sums + warp * stride + columns);
    if (step.list.stamps && blockIdx.x == 0 && threadIdx.x == 0) step.list.stamps[ANI_CUDA_STAMP_ANGULAR] = gpu_timer();
    add_angular<NS, NZ, W>(step, a, n_present, warp, chunks + 32 * 13 * warp, sums + warp * stride + ANI_CUDA_RADIAL * n_present);
    group_barrier<W>();
    for (int c = 2 * thread; c < columns; c += 64 * W) {
        float v[2];
        for (int e = 0; e < 2; e++) {
            v[e] = 0;
            for (int w = 0; w < W; w++) {
                v[e] += sums[w * stride + c + e];
                if (c < ANI_CUDA_RADIAL * n_present) v[e] += sums[w * stride + columns + c + e];
            }
        }
        put_aev(step, groups.n_tiles, slot, c, v[0], v[1]);
    }
}

// ---- back -----------------------------------------------------------------------------------------------------------

// Places in shared memory: a species' 16 radial columns take 17 and a pair's 32 angular ones 36, so that lanes with
// different species meet in few banks.
static __device__ __forceinline__ int radial_place(int rank)
{
    return 17 * rank;
}
static __device__ __forceinline__ int angular_place(int n_present, int pair)
{
    return (17 * n_present + 3) / 4 * 4 + 36 * pair;
}

// dE/dAEV of the slot, members summed in order.
template <int W>
static __device__ void load_adjoint(const ani_cuda_step &step, const ani_cuda_groups &groups, int slot, float *bar)
{
    const int thread = threadIdx.x % (32 * W), columns = 16 * groups.n_tiles, n_present = groups.n_present;
    const int member = step.list.call->member, members = (step.n_members + step.n_parts - 1) / step.n_parts;
    const int first = member < 0 ? 0 : member / members, last = member < 0 ? (step.n_members - 1) / members : first;
    for (int c = thread; c < columns; c += 32 * W) {
        float v = 0;
        for (int p = first; p <= last; p++) v += step.adjoint[((size_t)p * step.slot_capacity + slot) * columns + c];
        const int angular = c - ANI_CUDA_RADIAL * n_present;
        bar[angular < 0 ? radial_place(c / ANI_CUDA_RADIAL) + c % ANI_CUDA_RADIAL
                        : angular_place(n_present, angular / ANI_CUDA_ANGULAR) + angular % ANI_CUDA_ANGULAR] = v;
    }
}

template <int W>
static __device__ void radial_back(const ani_cuda_step &step, const ani_cuda_groups &groups, int i, int length, const float *bar,
                                   float *g, int capacity)
{
    const painn_cuda_edge *row = step.list.edges + (size_t)i * step.list.row_capacity;
    const float turn = 3.14159265f / step.radial_cutoff, eta = step.eta_radial * 0.69314718f;
    for (int k = threadIdx.x % (32 * W); k < length; k += 32 * W) {
        const painn_cuda_edge edge = row[k];
        const int rank = rank_of(groups, edge);
        float slope = 0;
        if (rank >= 0 && edge.d <= step.radial_cutoff) {
            const float f = 0.5f * __cosf(turn * edge.d) + 0.5f, df = -0.5f * turn * __sinf(turn * edge.d);
            const float *of = bar + radial_place(rank);
#pragma unroll
            for (int s = 0; s < ANI_CUDA_RADIAL; s++) {
                const float x = edge.d - step.radial_shift[s];
                slope += of[s] * exp2f(-step.eta_radial * x * x) * (df - 2.0f * eta * x * f);
            }
            slope *= (float)ANI_RADIAL_FACTOR;
        }
        for (int c = 0; c < 3; c++) g[c * capacity + k] = slope * edge.u[c];
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
    return make_float3(both + 2.0f * S * a.df[j] * a.f[k] - by_c * c / a.d[j],
                       both + 2.0f * S * a.f[j] * a.df[k] - by_c * c / a.d[k], by_c);
}

template <int NS, int NZ, int W>
static __device__ void angular_back(const ani_cuda_step &step, const neighbors &a, int n_present, const float *bar, float *result,
                                    int room, float *g, int capacity)
{
    const int thread = threadIdx.x % (32 * W), n = a.n;
    for (int first = 0, last; first < n - 1; first = last) {
        const int begin = row_start(n, first);
        last = first + 1;
        while (last < n - 1 && row_start(n, last + 1) - begin <= room) last++;
        const int end = row_start(n, last);
        for (int t = begin + thread; t < end; t += 32 * W) {
            int j, k;
            find_triple(n, t, j, k);
            const float3 r =
                triple_back<NS, NZ>(step, a, j, k, bar + angular_place(n_present, pair_number(n_present, a.rank[j], a.rank[k])));
            result[t - begin] = r.x;
            result[room + t - begin] = r.y;
            result[2 * room + t - begin] = r.z;
        }
        group_barrier<W>();
        // Each neighbour adds up its triples of these rows: those of earlier neighbours' rows, then its own row.
        for (int m = thread; m < n; m += 32 * W) {
            float slope = 0, x = 0, y = 0, z = 0;
            for (int j = first; j < min(last, m); j++) {
                const int t = row_start(n, j) - begin + m - j - 1;
                const float by_c = result[2 * room + t];
                slope += result[room + t];
                x += by_c * a.x[j];
                y += by_c * a.y[j];
                z += by_c * a.z[j];
            }
            if (m >= first && m < last) {
                const int start = row_start(n, m) - begin - m - 1;
                for (int k = m + 1; k < n; k++) {
                    const float by_c = result[2 * room + start + k];
                    slope += result[start + k];
                    x += by_c * a.x[k];
                    y += by_c * a.y[k];
                    z += by_c * a.z[k];
                }
            }
            const float inverse = 1.0f / a.d[m];
            float *to = g + a.slot[m];
            to[0] += slope * a.x[m] + x * inverse;
            to[capacity] += slope * a.y[m] + y * inverse;
            to[2 * capacity] += slope * a.z[m] + z * inverse;
        }
        group_barrier<W>();
    }
}

// A pair's gradient, for its centre and for the atom it ends in.
static __device__ __forceinline__ void put_gradient(const ani_cuda_step &step, size_t at, float4 g)
{
    ((float4 *)step.gradient)[at] = g;
    ((float4 *)step.arrived)[step.list.reverse[at]] = g;
}

template <int NS, int NZ, int W>
static __global__ void __launch_bounds__(128) aev_back_kernel(const __grid_constant__ ani_cuda_step step, int floats)
{
    DYNAMIC_SHARED(shared);
    begin_stage(step.list, ANI_CUDA_STAMP_AEV_BACK);
    const int group = threadIdx.x / (32 * W), thread = threadIdx.x % (32 * W), warp = thread / 32;
    const int i = blockIdx.x * (4 / W) + group, capacity = step.list.row_capacity;
    if (blockIdx.x == 0 && threadIdx.x == 0) step.groups->failed = step.list.report->flags; // the reverses' too
    if (i >= step.list.call->n_atoms) return;
    const ani_cuda_groups &groups = *step.groups;
    const int slot = step.slot_of[i], length = step.list.row_length[i], n_present = groups.n_present;
    if (slot < 0) {
        for (int k = thread; k < length; k += 32 * W) put_gradient(step, (size_t)i * capacity + k, make_float4(0, 0, 0, 0));
        return;
    }
    float *mine = (float *)shared + (size_t)group * floats;
    neighbors a = place_neighbors(mine, capacity);
    int *count = (int *)(mine + 8 * capacity);
    float *bar = mine + neighbor_floats(capacity), *g = bar + 20 * groups.n_tiles + 16, *result = g + 3 * capacity;
    if (warp == 0) sort_neighbors<true>(step, groups, i, length, a, count);
    load_adjoint<W>(step, groups, slot, bar);
    group_barrier<W>();
    a.n = *count;
    radial_back<W>(step, groups, i, length, bar, g, capacity);
    group_barrier<W>();
    angular_back<NS, NZ, W>(step, a, n_present, bar, result, triple_room(capacity), g, capacity);
    for (int k = thread; k < length; k += 32 * W)
        put_gradient(step, (size_t)i * capacity + k, make_float4(g[k], g[capacity + k], g[2 * capacity + k], 0));
}

// ---- launches -------------------------------------------------------------------------------------------------------

// Four warps an atom where atoms are few, so that an atom's triples do not wait for one another.
static int warps_of(const painn_cuda_plan *plan)
{
    return plan->n_atoms <= 8 * plan->n_multiprocessors ? 4 : 1;
}

template <int NS, int NZ, int W>
static int launch_aev(const ani_cuda_step *step, const painn_cuda_plan *plan, bool back, void *stream)
{
    const int capacity = step->list.row_capacity, tiles = step->stored_tiles;
    const int floats = (back ? backward_floats(capacity, tiles) : forward_floats(capacity, tiles, W) + 3) / 4 * 4;
    void (*kernel)(ani_cuda_step, int) = back ? aev_back_kernel<NS, NZ, W> : aev_kernel<NS, NZ, W>;
    return launch(kernel, (plan->n_atoms + 4 / W - 1) / (4 / W), 128, (size_t)(4 / W * floats) * sizeof(float), 1, plan->overlap,
                  stream, *step, floats);
}

static int dispatch(const ani_cuda_step *step, const painn_cuda_plan *plan, bool back, void *stream)
{
    if (step->more_shifts)
        return warps_of(plan) == 4 ? launch_aev<8, 4, 4>(step, plan, back, stream)
                                   : launch_aev<8, 4, 1>(step, plan, back, stream);
    return warps_of(plan) == 4 ? launch_aev<4, 8, 4>(step, plan, back, stream) : launch_aev<4, 8, 1>(step, plan, back, stream);
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
    const int tiles = step->stored_tiles;
    const int forward = 4 * forward_floats(row_capacity, tiles, 1), wide = forward_floats(row_capacity, tiles, 4),
              back = 4 * backward_floats(row_capacity, tiles);
    return sizeof(float) * (size_t)(16 + (forward > wide ? forward > back ? forward : back : wide > back ? wide : back));
}

template <int NS, int NZ, int W> static int raise(int bytes)
{
    cudaError_t e = cudaFuncSetAttribute(aev_kernel<NS, NZ, W>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (e == cudaSuccess)
        e = cudaFuncSetAttribute(aev_back_kernel<NS, NZ, W>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    return (int)e;
}

int ani_cuda_prepare_aev(int bytes)
{
    const int errors[] = {raise<8, 4, 1>(bytes), raise<8, 4, 4>(bytes), raise<4, 8, 1>(bytes), raise<4, 8, 4>(bytes)};
    for (int k = 0; k < 4; k++)
        if (errors[k]) return errors[k];
    return 0;
}
