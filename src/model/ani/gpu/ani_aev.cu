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
                sum += a.e[m] * fast_exp2(-step.eta_radial * x * x);
            }
        }
        parts[ANI_GPU_RADIAL * u + lane] = (float)ANI_RADIAL_FACTOR * sum;
    }
}

// Stores the factors of triple (j, k), P_a f f and Q_z, or zeros, in a column of `factors`.
template <int NS, int NZ>
static __device__ __forceinline__ void put_factors(const ani_gpu_step &step, const neighbors &a, int j, int k, bool there,
                                                   float *factors)
{
    const float X = 0.5f * (float)ANI_COSINE_FACTOR * (a.x[j] * a.x[k] + a.y[j] * a.y[k] + a.z[j] * a.z[k]);
    const float Y = fast_sqrt(0.25f - X * X), mean = 0.5f * (a.d[j] + a.d[k]), ff = there ? 2.0f * a.f[j] * a.f[k] : 0.0f;
#pragma unroll
    for (int s = 0; s < NS; s++) {
        const float x = mean - step.angular_shift[s];
        factors[s * FACTOR_STRIDE] = ff * fast_exp2(-step.eta_angular * x * x);
    }
#pragma unroll
    for (int z = 0; z < NZ; z++) {
        const float u = fmaxf(0.5f + X * step.cosine[z] + Y * step.sine[z], 1e-12f);
        factors[(NS + z) * FACTOR_STRIDE] = fast_exp2(step.zeta * fast_log2(u));
    }
}

// Places of each warp, a multiple of 32.
static __device__ __forceinline__ int places_of_warp(int places, int warps)
{
    return (places + 32 * warps - 1) / (32 * warps) * 32;
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

// Sums over the triples of each pair of species, by each warp over its places: pair b, warp w to sums[32 (b + w)]; with one warp to the
// AEV of the slot, which has zeros for pairs without triples.
template <int NS, int NZ, bool WIDE>
static __device__ __forceinline__ void sum_angular(const ani_gpu_step &step, const atom_group<WIDE> &g, const neighbors &a,
                                                   int n_present, int n_tiles, int slot, float *all_factors, float *sums)
{
    const int lane = threadIdx.x % 32, n_pairs = n_present * (n_present + 1) / 2, places = a.place[n_pairs],
              each = places_of_warp(places, g.warps), stop = min(places, (g.warp + 1) * each);
    float *factors = all_factors + g.warp * (FACTOR_ROWS * FACTOR_STRIDE);
    const float *P = factors + lane / NZ * FACTOR_STRIDE, *Q = factors + (NS + lane % NZ) * FACTOR_STRIDE;
    float sum = 0;
#pragma unroll 1
    for (int begin = g.warp * each; begin < stop; begin += PLACES) {
        const int end = min(begin + PLACES, stop);
        int four = -1; // the last pair that begins at the lane's four places or before: that of their triples
#pragma unroll 4
        for (int k = 0; k < n_pairs; k++) four += a.place[k] <= begin + 4 * (lane % (PLACES / 4));
#pragma unroll 1
        for (int at = begin; at < end; at += 32) {
            const int place = min(at + lane, end - 1), b = __shfl_sync(~0u, four, (place - begin) / 4);
            const int p = a.pair[b] & 255, q = a.pair[b] >> 8, first_p = a.first[p], first_q = a.first[q],
                      n_p = a.first[p + 1] - first_p, n_q = a.first[q + 1] - first_q;
            int t = place - a.place[b], j, k;
            const bool there = t < (p == q ? n_p * (n_p - 1) / 2 : n_p * n_q);
            if (!there) t = 0;
            if (p == q) {
                find_triple(n_p, t, j, k);
            } else {
                // t + ½ is further from a multiple of n_q than the rounding error.
                j = (int)(((float)t + 0.5f) * fast_reciprocal((float)n_q));
                k = t - j * n_q;
            }
            put_factors<NS, NZ>(step, a, first_p + j, first_q + k, there, factors + at - begin + lane);
        }
        __syncwarp();
#pragma unroll 1
        for (int at = begin; at < end;) {
            const int b = __shfl_sync(~0u, four, (at - begin) / 4), pair_end = a.place[b + 1], until = min(pair_end, end);
#pragma unroll 4
            for (; at < until; at += 4) {
                const float4 x = *(const float4 *)(P + at - begin), y = *(const float4 *)(Q + at - begin);
                sum += x.x * y.x + x.y * y.y + x.z * y.z + x.w * y.w;
            }
            if (at < min(pair_end, stop)) continue; // the pair goes on in the next places
            if (WIDE) {
                sums[ANI_GPU_ANGULAR * (b + g.warp) + lane] = sum;
            } else {
                const float next = __shfl_xor_sync(~0u, sum, 1);
                if (lane % 2 == 0)
                    put_aev(step, n_tiles, slot, ANI_GPU_RADIAL * n_present + ANI_GPU_ANGULAR * b + lane, sum, next);
            }
            sum = 0;
        }
        __syncwarp();
    }
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
        length = make_row<true, true>(step.gpu, block, block, (char *)all_shared, (char *)shared, queue_room(capacity));
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
    float *factors = mine + neighbor_floats(capacity), *parts = factors + FACTOR_ROWS * FACTOR_STRIDE * g.warps,
          *sums = parts + ANI_GPU_RADIAL * n_present * n_parts;
    sum_radial(step, g, a, n_present, parts);
    if (step.gpu.stamps && blockIdx.x == 0 && threadIdx.x == 0) step.gpu.stamps[ANI_GPU_STAMP_ANGULAR] = gpu_timer();
    sum_angular<NS, NZ>(step, g, a, n_present, n_tiles, slot, factors, sums);
    g.barrier();
    const int each = places_of_warp(a.place[n_present * (n_present + 1) / 2], g.warps);
#pragma unroll 1
    for (int c = 2 * g.thread; c < 16 * n_tiles; c += 2 * g.n_threads) {
        const int angular = c - ANI_GPU_RADIAL * n_present;
        float v0 = 0, v1 = 0;
        if (angular < 0) {
            const float *of = parts + ANI_GPU_RADIAL * (c / ANI_GPU_RADIAL * n_parts) + c % ANI_GPU_RADIAL;
#pragma unroll 1
            for (int k = 0; k < n_parts; k++, of += ANI_GPU_RADIAL) v0 += of[0], v1 += of[1];
        } else {
            const int b = angular / ANI_GPU_ANGULAR, begin = a.place[b], end = a.place[b + 1];
            if (!WIDE && begin < end) continue; // stored above
            const float *of = sums + ANI_GPU_ANGULAR * b + angular % ANI_GPU_ANGULAR;
#pragma unroll 1
            for (int w = begin < end ? begin / each : 0; w * each < end && begin < end; w++) {
                v0 += of[ANI_GPU_ANGULAR * w];
                v1 += of[ANI_GPU_ANGULAR * w + 1];
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
    // Without forces no later kernel would pass errors in rows on to the sums; the networks of wide tiles read rows at their start.
    return plan->forces && plan->tile < ANI_GPU_MAX_TILE && uses_fused_search(&step->gpu, plan) &&
           plan->fused_search <= GPU_FUSED_ATOMS && 32 * warps_of(plan) >= GPU_FUSED_ATOMS;
}

size_t ani_gpu_aev_bytes(const ani_gpu_step *step, int row_capacity)
{
    int most = 0;
    for (int warps = 1; warps <= MOST_THREADS / 32; warps++)
        for (int back = 0; back < 2; back++) {
            const int floats = (warps == 1 && !back ? 4 : 1) * floats_of(step, row_capacity, warps, back);
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
