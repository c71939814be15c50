/* SPDX-License-Identifier: MIT */
/* painn_train_pairs.cuh: how a warp takes the pairs of its atoms in a training step, and filters on the tensor cores.
 *
 * A warp has 16 features and takes the pairs of a row eight at a time. Lane (g, t) = (lane / 4, lane % 4) has features f = 16 slice
 * + 2g and f + 1 and pairs p + 2t and p + 2t + 1 of the group, in products and in the sums made of them:
 *   W[features][pairs] = [A|b] ψ       16 × 8 of each of the three parts, from 16 × 32 and 32 × 8 numbers
 * so that [A|b] stays in shared memory and nothing is exchanged but sums over pairs at the end of a row.
 * Numbers are two halves, a = high + low / 2048: 22 bits from 2⁻³⁶ to 65504. Products are high·high and (PARTS = 3) high·low and
 * low·high; the tensor cores add up 32 terms.
 * Basis function k stands in lane t = k / L of its pair's row, L = 6 or 8 of a lane's 8 halves, the others 0. */
#ifndef PAINN_TRAIN_PAIRS_CUH
#define PAINN_TRAIN_PAIRS_CUH

#include "gpu/ptx/primitives.cuh"
#include "model/painn/gpu/train/painn_train_gpu.h"

enum { PAIR_GROUP = 8, PAIR_ATOMS = 31, LOW_SCALE = 2048 };

struct pair_lane {
    int g, t, slice, f; /* f: the first of its two features */
};

/* A block has a slice of features, its warps have groups of atoms, or SHARES warps one group. */
template <int SHARES> static __device__ __forceinline__ pair_lane lane_of_pairs(int F, int &group, int &n_groups)
{
    const int lane = (int)threadIdx.x % 32, groups = (int)blockDim.x / 32 / SHARES, slices = F / 16,
              slice = (int)blockIdx.x % slices;
    group = (int)blockIdx.x / slices * groups + (int)threadIdx.x / 32 / SHARES;
    n_groups = (int)gridDim.x / slices * groups;
    return {lane / 4, lane % 4, slice, slice * 16 + lane / 4 * 2};
}

/* ---- rows */

/* A place in the pairs of up to PAIR_ATOMS consecutive atoms. An atom without pairs has one group without pairs. Of SHARES warps each has every
 * SHARES-th group of a row, at least one, which may be behind its end. */
struct pair_walk {
    int rows; /* lane k: first pair of atom k */
    int count, k, p, end;
};

template <int SHARES> static __device__ __forceinline__ int first_of_share()
{
    return SHARES > 1 ? (int)threadIdx.x / 32 % SHARES * PAIR_GROUP : 0;
}

template <int SHARES> static __device__ __forceinline__ pair_walk walk_rows(const int32_t *row, int first, int count)
{
    pair_walk w;
    w.rows = row[first + min((int)threadIdx.x % 32, count)];
    w.count = count;
    w.k = 0;
    w.p = __shfl_sync(0xffffffffu, w.rows, 0) + first_of_share<SHARES>();
    w.end = __shfl_sync(0xffffffffu, w.rows, 1);
    return w;
}

template <int SHARES> static __device__ __forceinline__ bool row_ends(const pair_walk &w)
{
    return w.p + SHARES * PAIR_GROUP >= w.end;
}

/* The next group; false behind the last one. */
template <int SHARES> static __device__ __forceinline__ bool walk_on(pair_walk &w)
{
    if (!row_ends<SHARES>(w)) {
        w.p += SHARES * PAIR_GROUP;
        return true;
    }
    if (w.k + 1 == w.count) return false;
    w.k++;
    w.p = w.end + first_of_share<SHARES>();
    w.end = __shfl_sync(0xffffffffu, w.rows, w.k + 1);
    return true;
}

/* Of a lane's pair e. Absent pairs have the atom itself as their neighbor and zeros as their geometry and filters. */
static __device__ __forceinline__ int neighbor_of(const painn_train_step &s, const pair_walk &w, int first, int t, int e)
{
    const int p = w.p + 2 * t + e;
    return p < w.end ? s.neighbor[p] : first + w.k;
}

static __device__ __forceinline__ float4 edge_of(const float *edges, const pair_walk &w, int t, int e)
{
    const int p = w.p + 2 * t + e;
    return p < w.end ? *(const float4 *)(edges + 4 * (size_t)p) : make_float4(0, 0, 0, 0);
}

/* ---- filters */

/* ψ and ψ' of pair p + g: eight basis functions of a lane, high and low halves. */
struct pair_basis {
    uint4 value[2], slope[2];
};

/* Of eight pairs, four lanes each: ψ, then ψ', then the low halves of both, so that a warp reads whole lines of the L1 cache. */
enum { BASIS_KIND = PAIR_GROUP * 4 };
static __device__ __forceinline__ size_t basis_place(int p)
{
    return (size_t)(p / PAIR_GROUP) * (4 * BASIS_KIND) + (size_t)(p % PAIR_GROUP * 4);
}

template <int PARTS, bool SLOPES>
static __device__ __forceinline__ pair_basis load_basis(const painn_train_step &s, const pair_walk &w, const pair_lane &lane)
{
    const int p = w.p + lane.g;
    const uint4 *from = (const uint4 *)s.basis_halves + basis_place(p) + lane.t, none = make_uint4(0, 0, 0, 0);
    const bool there = p < w.end;
    pair_basis b = {{none, none}, {none, none}};
    if (!there) return b;
    b.value[0] = from[0];
    if (SLOPES) b.slope[0] = from[BASIS_KIND];
    if (PARTS == 3) b.value[1] = from[2 * BASIS_KIND];
    if (SLOPES && PARTS == 3) b.slope[1] = from[3 * BASIS_KIND];
    return b;
}

/* [A|b] of a block's 16 features in shared memory, as the products have them: [part][step of 16 terms][high, low][lane]. */
enum { FILTER_OPERANDS = 12 };
struct pair_filters {
    const uint4 *operands;
};

static __device__ __forceinline__ pair_filters load_filters(const painn_train_step &s, int l, int slice)
{
    __shared__ uint4 operands[FILTER_OPERANDS * 32];
    const uint4 *from = (const uint4 *)s.filter_halves + (size_t)(l * (s.n_features / 16) + slice) * FILTER_OPERANDS * 32;
    for (int k = (int)threadIdx.x; k < FILTER_OPERANDS * 32; k += (int)blockDim.x) operands[k] = from[k];
    __syncthreads();
    return {operands + threadIdx.x % 32};
}

/* Sums of a product: feature j, pair e of a lane. */
static __device__ __forceinline__ float of_product(const float4 &v, int j, int e)
{
    return j == 0 ? e == 0 ? v.x : v.y : e == 0 ? v.z : v.w;
}
static __device__ __forceinline__ float of_pair(const float2 &v, int j)
{
    return j == 0 ? v.x : v.y;
}
static __device__ __forceinline__ float of_axis(const float4 &v, int c)
{
    return c == 0 ? v.x : c == 1 ? v.y : v.z;
}

/* Part b of W, and of W' if SLOPES. */
template <int PARTS, bool SLOPES>
static __device__ __forceinline__ void filter_products(const pair_filters &filters, int b, const pair_basis &basis, float4 &W,
                                                       float4 &dW)
{
    float4 rest = make_float4(0, 0, 0, 0), slope_rest = rest;
    W = dW = rest;
#pragma unroll
    for (int k = 0; k < 2; k++) {
        const uint4 high = filters.operands[(b * 2 + k) * 2 * 32];
        const uint4 v = basis.value[0], d = basis.slope[0];
        product<false>(W, high, k ? v.z : v.x, k ? v.w : v.y);
        if (SLOPES) product<false>(dW, high, k ? d.z : d.x, k ? d.w : d.y);
        if (PARTS == 1) continue;
        const uint4 low = filters.operands[((b * 2 + k) * 2 + 1) * 32], v_low = basis.value[1], d_low = basis.slope[1];
        product<false>(rest, high, k ? v_low.z : v_low.x, k ? v_low.w : v_low.y);
        product<false>(rest, low, k ? v.z : v.x, k ? v.w : v.y);
        if (SLOPES) product<false>(slope_rest, high, k ? d_low.z : d_low.x, k ? d_low.w : d_low.y);
        if (SLOPES) product<false>(slope_rest, low, k ? d.z : d.x, k ? d.w : d.y);
    }
    if (PARTS == 1) return;
    W = fma4(rest, splat(1.0f / LOW_SCALE), W);
    if (SLOPES) dW = fma4(slope_rest, splat(1.0f / LOW_SCALE), dW);
}

/* ---- sums */

/* Sums over the group's pairs of N ≤ 4 (or 8) values of two features: lane t gets value t (values 2t and 2t + 1). */
static __device__ __forceinline__ float2 add_lanes(const float2 &kept, const float2 &given, int offset)
{
    return make_float2(kept.x + __shfl_xor_sync(0xffffffffu, given.x, offset),
                       kept.y + __shfl_xor_sync(0xffffffffu, given.y, offset));
}

/* Of numbers: a choice between elements of an array is compiled as an index, which costs a comparison for each element. */
static __device__ __forceinline__ float choose(bool first, float a, float b)
{
    return first ? a : b;
}
static __device__ __forceinline__ float2 choose(bool first, const float2 &a, const float2 &b)
{
    return make_float2(choose(first, a.x, b.x), choose(first, a.y, b.y));
}

static __device__ __forceinline__ float2 sum_over_pairs(const float2 (&v)[4], int t)
{
    const bool upper = (t & 2) != 0, odd = (t & 1) != 0;
    const float2 a = add_lanes(choose(upper, v[2], v[0]), choose(upper, v[0], v[2]), 2);
    const float2 b = add_lanes(choose(upper, v[3], v[1]), choose(upper, v[1], v[3]), 2);
    return add_lanes(choose(odd, b, a), choose(odd, a, b), 1);
}

/* Six values: lane t < 3 gets values t and 3 + t. */
static __device__ __forceinline__ void sum_over_pairs(const float2 (&v)[3], const float2 (&w)[3], int t, float2 &v_out,
                                                      float2 &w_out)
{
    const float2 none = make_float2(0, 0);
    const float2 first[4] = {v[0], v[1], v[2], none}, second[4] = {w[0], w[1], w[2], none};
    v_out = sum_over_pairs(first, t);
    w_out = sum_over_pairs(second, t);
}

/* Sums over 16 features of four values of each of a lane's two pairs, value[4 e + c]: lane g gets value g. */
static __device__ __forceinline__ float sum_over_features(float (&value)[8], int g)
{
#pragma unroll
    for (int half = 4; half > 0; half /= 2) {
        const bool upper = (g & half) != 0;
#pragma unroll
        for (int k = 0; k < half; k++) {
            const float given = choose(upper, value[k], value[k + half]), kept = choose(upper, value[k + half], value[k]);
            value[k] = kept + __shfl_xor_sync(0xffffffffu, given, 4 * half);
        }
    }
    return value[0];
}

#endif
