// SPDX-License-Identifier: MIT
// ani_aev_back.cu: reverse of the atomic environment vectors: gradients of pairs from dE/dG.
#include "ani_aev.cuh"

// Index of an unordered pair of ranks p ≤ q.
static __device__ __forceinline__ int pair_number(int n_present, int p, int q)
{
    return p * n_present - p * (p - 1) / 2 + q - p;
}

// Offsets of dE/dAEV: a species' 16 radial columns take 20 and a pair's 32 angular ones 36, so that lanes with different species rarely
// conflict in banks.
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
    const int angular = column - ANI_GPU_RADIAL * n_present;
    return angular < 0 ? radial_place(column / ANI_GPU_RADIAL) + column % ANI_GPU_RADIAL
                       : angular_place(n_present, angular / ANI_GPU_ANGULAR) + angular % ANI_GPU_ANGULAR;
}

// dE/dAEV of the slot, members summed in order. Threads without columns of their own sum others' later members, through `scratch` (4
// floats for each thread). Ends with a barrier.
static __device__ __forceinline__ void load_adjoint(const ani_gpu_step &step, const atom_group<true> &g, int n_tiles,
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
        for (int p = begin; p < end; p += 4) { // four at once, to hide the latency of L2
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

// Four lanes for each neighbor, each with four shifts.
static __device__ __forceinline__ void radial_back(const ani_gpu_step &step, const atom_group<true> &g, const neighbors &a,
                                                   int length, const float *bar, float *gradient)
{
    const int lane = threadIdx.x % 32, quarter = lane % 4, capacity = step.gpu.neighbors.row_capacity;
    const float frequency = 3.14159265f / step.radial_cutoff, eta = step.eta_radial * 0.69314718f;
#pragma unroll 1
    for (int begin = 8 * g.warp; begin < length; begin += 8 * g.warps) {
        const int m = min(begin + lane / 4, length - 1);
        const float d = a.d[m];
        float slope = 0;
        if (d <= step.radial_cutoff) {
            const float f = 0.5f * __cosf(frequency * d) + 0.5f, df = -0.5f * frequency * __sinf(frequency * d);
            const float4 of = *(const float4 *)(bar + radial_place(a.rank[m]) + 4 * quarter);
            const float4 x = make_float4(d - step.radial_shift[4 * quarter], d - step.radial_shift[4 * quarter + 1],
                                         d - step.radial_shift[4 * quarter + 2], d - step.radial_shift[4 * quarter + 3]);
            slope = of.x * fast_exp2(-step.eta_radial * x.x * x.x) * (df - 2.0f * eta * x.x * f) +
                    of.y * fast_exp2(-step.eta_radial * x.y * x.y) * (df - 2.0f * eta * x.y * f) +
                    of.z * fast_exp2(-step.eta_radial * x.z * x.z) * (df - 2.0f * eta * x.z * f) +
                    of.w * fast_exp2(-step.eta_radial * x.w * x.w) * (df - 2.0f * eta * x.w * f);
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

// Gradients of triple (j, k): along each leg, and with respect to the cosine.
template <int NS, int NZ>
static __device__ __forceinline__ float3 triple_back(const ani_gpu_step &step, const neighbors &a, int j, int k, const float *of)
{
    const float c = a.x[j] * a.x[k] + a.y[j] * a.y[k] + a.z[j] * a.z[k], X = (float)ANI_COSINE_FACTOR * c;
    const float inverse = fast_rsqrt(1.0f - X * X), Y = (1.0f - X * X) * inverse, ratio = X * inverse;
    const float mean = 0.5f * (a.d[j] + a.d[k]), eta = step.eta_angular * 0.69314718f;
    float by_shift[NZ], by_slope[NZ];
#pragma unroll
    for (int z = 0; z < NZ; z++) by_shift[z] = by_slope[z] = 0;
#pragma unroll
    for (int s = 0; s < NS; s++) {
        const float x = mean - step.angular_shift[s], P = fast_exp2(-step.eta_angular * x * x), dP = -eta * x * P;
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
        const float u = fmaxf(0.5f + 0.5f * X * step.cosine[z] + 0.5f * Y * step.sine[z], 1e-12f);
        const float dQ = fast_exp2((step.zeta - 1.0f) * fast_log2(u)), Q = dQ * u;
        S += by_shift[z] * Q;
        Sr += by_slope[z] * Q;
        SX += by_shift[z] * dQ * (step.cosine[z] - ratio * step.sine[z]);
    }
    const float both = 2.0f * Sr * a.f[j] * a.f[k], by_c = (float)ANI_COSINE_FACTOR * step.zeta * SX * a.f[j] * a.f[k];
    return make_float3(both + 2.0f * S * a.e[j] * a.f[k] - by_c * c * fast_reciprocal(a.d[j]),
                       both + 2.0f * S * a.f[j] * a.e[k] - by_c * c * fast_reciprocal(a.d[k]), by_c);
}

// Each neighbor sums its triples of rows `first` … `last` − 1, which begin at triple `begin`: several lanes for each neighbor.
static __device__ __forceinline__ void gather_triples(const atom_group<true> &g, const neighbors &a, int first, int last,
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
template <int NS, int NZ>
static __device__ __forceinline__ void angular_back(const ani_gpu_step &step, const atom_group<true> &g, const neighbors &a,
                                                    int n_present, const float *bar, float *result, int room, float *gradient)
{
    const int n = a.n, capacity = step.gpu.neighbors.row_capacity;
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

// Force and virial of the central atom from its pairs, summed in double precision, one warp for each component.
static __device__ __forceinline__ void sum_row(const ani_gpu_step &step, const atom_group<true> &g, const neighbors &a,
                                               int length, const float *gradient)
{
    const int lane = threadIdx.x % 32, capacity = step.gpu.neighbors.row_capacity, n_sums = step.gpu.call->want_virial ? 12 : 3;
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
            step.center[3 * (size_t)g.atom + c] = sum;
        else
            step.gpu.atom_virial[9 * (size_t)g.atom + c - 3] = step.gpu.energy_unit * sum;
    }
}

// Index of each pair's gradient among the incoming edges of the atom it ends in.
static __device__ __forceinline__ void find_reverses(const ani_gpu_step &step, const atom_group<true> &g, int length,
                                                     int *arrives)
{
#pragma unroll 1
    for (int k = g.thread; k < length; k += g.n_threads) {
        bool found;
        arrives[k] = find_reverse(step.gpu, g.atom, k, &found);
        if (found) continue;
        raise_flag(step.gpu, GPU_NOT_SYMMETRIC, g.atom,
                   step.gpu.neighbors.edges[(size_t)g.atom * step.gpu.neighbors.row_capacity + k].packed);
        atomicOr(&step.groups->failed, GPU_NOT_SYMMETRIC);
    }
}

// A ghost has no gradients. The place of one of a pair (j, i) with a ghost j is that of the pair (i, j) in the row of i.
static __device__ __forceinline__ void clear_ghosts(const ani_gpu_step &step, const atom_group<true> &g, int length)
{
    const gpu_neighbors &list = step.gpu.neighbors;
    const size_t row = (size_t)g.atom * list.row_capacity;
#pragma unroll 1
    for (int k = g.thread; k < length; k += g.n_threads)
        if (!list.owned[list.edges[row + k].packed >> list.tag_bits])
            ((float4 *)step.incoming_gradient)[row + k] = make_float4(0, 0, 0, 0);
}

template <int NS, int NZ>
static __global__ void __launch_bounds__(MOST_THREADS, 4) aev_back_kernel(const __grid_constant__ ani_gpu_step step, int searches)
{
    DYNAMIC_SHARED(shared);
    const atom_group<true> g;
    const int capacity = step.gpu.neighbors.row_capacity;
    const ani_gpu_groups &groups = *step.groups;
    float *mine = (float *)shared;
    neighbors a = place_neighbors(mine, capacity);
    // Rows and groups are complete before the networks begin.
    const bool there = g.atom < step.gpu.call->n_atoms;
    const int slot = there ? step.slot_of[g.atom] : -1, length = there ? step.gpu.neighbors.row_length[g.atom] : 0;
    const int n_present = groups.n_present, n_tiles = groups.n_tiles, member = step.gpu.call->member;
    if (slot >= 0) sort_neighbors<true, true>(step, groups, g, length, a);
    int *arrives = a.counts;                                          // no longer needed
    const bool silent = slot < 0 && leaves_out_ghost_pairs(step.gpu); // its pairs end in owned atoms, which clear their places
    if (searches && !silent) find_reverses(step, g, length, arrives);
    // Else the networks' kernel or another stream finds them: they are available only after begin_stage.
    const int32_t *const found = step.gpu.neighbors.reverse + (size_t)g.atom * capacity;
    float *bar = mine + neighbor_floats(capacity), *gradient = bar + 20 * n_tiles, *result = gradient + 3 * capacity;
    float4 *incoming_gradient = (float4 *)step.incoming_gradient;
    // While the networks run, a dry run warms the instruction cache and address translation: 3 of 9 µs at 64 atoms.
#pragma unroll 1
    for (int pass = step.warm_code ? 0 : 1; pass < 2; pass++) {
        if (pass == 1) {
            begin_stage(step.gpu, ANI_GPU_STAMP_AEV_BACK);
            if (blockIdx.x == 0 && threadIdx.x == 0)
                atomicOr(&step.groups->failed, step.gpu.report->flags); // flags of the fused search
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
                if (k < 3) step.center[3 * (size_t)g.atom + k] = 0;
                step.gpu.atom_virial[9 * (size_t)g.atom + k] = 0;
            }
        }
#pragma unroll 1
        for (int k = g.thread; k < length && !silent && (searches || pass == 1); k += g.n_threads)
            incoming_gradient[searches ? arrives[k] : found[k]] =
                slot < 0 ? make_float4(0, 0, 0, 0)
                         : make_float4(gradient[k], gradient[capacity + k], gradient[2 * capacity + k], 0);
        if (slot >= 0 && leaves_out_ghost_pairs(step.gpu)) clear_ghosts(step, g, length);
        g.barrier();
    }
}

// ---- launches -------------------------------------------------------------------------------------------------------

template <int NS, int NZ> static int launch_back(const ani_gpu_step *step, const gpu_plan *plan, void *stream)
{
    const int warps = warps_of_back(plan), floats = floats_of(step, step->gpu.neighbors.row_capacity, warps, true);
    const int searches = ani_gpu_chained(plan) && step->gpu.neighbors.given_pairs != 2;
    return launch(aev_back_kernel<NS, NZ>, plan->n_atoms, 32 * warps, (size_t)floats * sizeof(float), 1, plan->overlap, stream,
                  *step, searches);
}

int ani_gpu_launch_aev_back(const ani_gpu_step *step, const gpu_plan *plan, void *stream)
{
    return step->more_shifts ? launch_back<8, 4>(step, plan, stream) : launch_back<4, 8>(step, plan, stream);
}

int ani_gpu_prepare_aev_back(int bytes)
{
    cudaError_t e = cudaFuncSetAttribute(aev_back_kernel<8, 4>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (e == cudaSuccess) e = cudaFuncSetAttribute(aev_back_kernel<4, 8>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    return (int)e;
}
