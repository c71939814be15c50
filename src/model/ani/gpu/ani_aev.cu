// SPDX-License-Identifier: MIT
// ani_aev.cu: atomic environment vectors, forward, and their launches.
#include "ani_aev.cuh"

// Half a warp sums a part of the neighbors of one species, one lane for each column.
template <bool WIDE>
static __device__ __forceinline__ void sum_radial(const ani_gpu_step &step, const atom_group<WIDE> &g, const neighbors &a,
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
        parts[ANI_GPU_RADIAL * u + lane] = (float)ANI_RADIAL_FACTOR * sum;
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

// Adds the 32 functions of triple (j, k) to v.
template <int NS, int NZ>
static __device__ __forceinline__ void add_triple(const ani_gpu_step &step, const neighbors &a, int j, int k, float (&v)[32])
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
static __device__ __forceinline__ void sum_angular(const ani_gpu_step &step, const atom_group<WIDE> &g, const neighbors &a,
                                                   int n_present, float *units)
{
    const int lane = threadIdx.x % 32, n_pairs = n_present * (n_present + 1) / 2;
#pragma unroll 1
    for (int u = g.warp; u < a.unit_first[n_pairs]; u += g.warps) {
        int b = -1; // the last pair of species that begins at u or before
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
        units[ANI_GPU_ANGULAR * u + lane] = sum_across(v);
    }
}

// Stores columns c and c + 1 (even) of a slot's AEV in the operand of its tile.
static __device__ __forceinline__ void put_aev(const ani_gpu_step &step, int n_tiles, int slot, int c, float a, float b)
{
    a *= step.value_scale;
    b *= step.value_scale;
    const uint32_t high = pack_half2(a, b);
    const float2 rounded = unpack_half2(high);
    const int row = slot % 16, lane = row % 8 * 4 + c % 8 / 2;
    uint32_t *at = (uint32_t *)step.aev + ((((size_t)(slot / 16) * n_tiles + c / 16) * 2 + c / 8 % 2) * 32 + lane) * 4 + row / 8;
    at[0] = high;
    at[2] = pack_half2(a - rounded.x, b - rounded.y);
}

// ALONE: the block first builds its atom's row (fused search), which does not need the atoms by species.
template <int NS, int NZ, bool WIDE, bool ALONE>
static __global__ void __launch_bounds__(MOST_THREADS, ALONE ? 1 : 4)
    aev_kernel(const __grid_constant__ ani_gpu_step step, int floats)
{
    DYNAMIC_SHARED(all_shared);
    uint4 *shared = all_shared + (ALONE ? fused_search_bytes(GPU_FUSED_ATOMS) / sizeof(uint4) : 0);
    const atom_group<WIDE> g;
    const int capacity = step.gpu.neighbors.row_capacity;
    int length = -1;
    if (ALONE) {
        if (step.gpu.stamps && blockIdx.x == 0 && threadIdx.x == 0) step.gpu.stamps[0] = gpu_timer();
        const row_group block = {(int)blockIdx.x, 0, (int)blockDim.x, 0};
        length = make_row<true>(step.gpu, block, block, (char *)all_shared, (char *)shared, queue_room(capacity));
        __syncthreads();
        wait_for_previous();
        let_next_start(); // the network kernel reads the groups at its start
        if (step.gpu.stamps && blockIdx.x == 0 && threadIdx.x == 0) step.gpu.stamps[ANI_GPU_STAMP_RADIAL] = gpu_timer();
    } else {
        begin_stage(step.gpu, ANI_GPU_STAMP_RADIAL);
        if (blockIdx.x == 0 && threadIdx.x == 0) step.groups->failed = step.gpu.report->flags;
        length = step.gpu.neighbors.row_length[g.atom];
        if (g.atom >= step.gpu.call->n_atoms) length = -1;
    }
    const ani_gpu_groups &groups = *step.groups;
    const int slot = step.slot_of[g.atom], n_present = groups.n_present, n_tiles = groups.n_tiles;
    if (length < 0 || slot < 0) return; // the whole group returns
    float *mine = (float *)shared + (WIDE ? 0 : threadIdx.x / 32 * floats);
    neighbors a = place_neighbors(mine, capacity);
    sort_neighbors<WIDE, false>(step, groups, g, length, a);
    const int n_parts = radial_parts(g.warps, n_present);
    float *parts = mine + neighbor_floats(capacity), *units = parts + ANI_GPU_RADIAL * n_present * n_parts;
    sum_radial(step, g, a, n_present, parts);
    if (step.gpu.stamps && blockIdx.x == 0 && threadIdx.x == 0) step.gpu.stamps[ANI_GPU_STAMP_ANGULAR] = gpu_timer();
    sum_angular<NS, NZ>(step, g, a, n_present, units);
    g.barrier();
#pragma unroll 1
    for (int c = 2 * g.thread; c < 16 * n_tiles; c += 2 * g.n_threads) {
        const int angular = c - ANI_GPU_RADIAL * n_present;
        float v0 = 0, v1 = 0;
        if (angular < 0) {
            const float *of = parts + ANI_GPU_RADIAL * (c / ANI_GPU_RADIAL * n_parts) + c % ANI_GPU_RADIAL;
#pragma unroll 1
            for (int k = 0; k < n_parts; k++, of += ANI_GPU_RADIAL) v0 += of[0], v1 += of[1];
        } else {
            const int b = angular / ANI_GPU_ANGULAR;
#pragma unroll 1
            for (int u = a.unit_first[b]; u < a.unit_first[b + 1]; u++) {
                v0 += units[ANI_GPU_ANGULAR * u + angular % ANI_GPU_ANGULAR];
                v1 += units[ANI_GPU_ANGULAR * u + angular % ANI_GPU_ANGULAR + 1];
            }
        }
        put_aev(step, n_tiles, slot, c, v0, v1);
    }
}

// ---- launches -------------------------------------------------------------------------------------------------------

template <int NS, int NZ, bool WIDE, bool ALONE>
static int launch_aev(const ani_gpu_step *step, const gpu_plan *plan, void *stream)
{
    const int warps = warps_of(plan), capacity = step->gpu.neighbors.row_capacity, atoms = WIDE ? 1 : 4;
    const int floats = floats_of(step, capacity, warps, false);
    size_t bytes = (size_t)(atoms * floats) * sizeof(float);
    if (ALONE) {
        const size_t queue = (size_t)queue_bytes(warps, queue_room(capacity));
        bytes = fused_search_bytes(GPU_FUSED_ATOMS) + (bytes > queue ? bytes : queue);
    }
    return launch(aev_kernel<NS, NZ, WIDE, ALONE>, (plan->n_atoms + atoms - 1) / atoms, WIDE ? 32 * warps : 128, bytes, 1,
                  plan->overlap, stream, *step, floats);
}

template <int NS, int NZ> static int dispatch(const ani_gpu_step *step, const gpu_plan *plan, void *stream)
{
    return ani_gpu_fuses_search(step, plan) ? launch_aev<NS, NZ, true, true>(step, plan, stream)
           : warps_of(plan) > 1             ? launch_aev<NS, NZ, true, false>(step, plan, stream)
                                            : launch_aev<NS, NZ, false, false>(step, plan, stream);
}

int ani_gpu_launch_aev(const ani_gpu_step *step, const gpu_plan *plan, void *stream)
{
    return step->more_shifts ? dispatch<8, 4>(step, plan, stream) : dispatch<4, 8>(step, plan, stream);
}

int ani_gpu_chained(const gpu_plan *plan)
{
    return warps_of(plan) > 1;
}

int ani_gpu_fuses_search(const ani_gpu_step *step, const gpu_plan *plan)
{
    // Without forces no later kernel would pass errors in rows on to the sums.
    return plan->forces && uses_fused_search(&step->gpu, plan) && plan->fused_search <= GPU_FUSED_ATOMS &&
           32 * warps_of(plan) >= GPU_FUSED_ATOMS;
}

size_t ani_gpu_aev_bytes(const ani_gpu_step *step, int row_capacity)
{
    int most = 0;
    for (int warps = 1; warps <= MOST_THREADS / 32; warps++)
        for (int back = 0; back < 2; back++) {
            const int floats = (warps == 1 ? 4 : 1) * floats_of(step, row_capacity, warps, back);
            if (floats > most) most = floats;
        }
    return fused_search_bytes(GPU_FUSED_ATOMS) + sizeof(float) * (size_t)most +
           (size_t)queue_bytes(MOST_THREADS / 32, queue_room(row_capacity));
}

template <int NS, int NZ> static int raise(int bytes)
{
    void (*const kernels[])(ani_gpu_step, int) = {aev_kernel<NS, NZ, false, false>, aev_kernel<NS, NZ, true, false>,
                                                  aev_kernel<NS, NZ, true, true>};
    cudaError_t e = cudaSuccess;
    for (int k = 0; k < 3 && e == cudaSuccess; k++)
        e = cudaFuncSetAttribute(kernels[k], cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    return (int)e;
}

int ani_gpu_prepare_aev(int bytes)
{
    const int errors[] = {raise<8, 4>(bytes), raise<4, 8>(bytes), ani_gpu_prepare_aev_back(bytes)};
    for (int k = 0; k < 3; k++)
        if (errors[k]) return errors[k];
    return 0;
}
