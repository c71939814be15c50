/* SPDX-License-Identifier: MIT */
/* orb_graph.cuh: the edges that an atom sends, by a warp. */
#ifndef ORB_GRAPH_CUH
#define ORB_GRAPH_CUH

#include "gpu/gpu_stage.cuh"
#include "model/orb/gpu/orb_gpu.h"

enum { ROW_AT_ONCE = 512 }; /* distances of a row in shared memory */

/* The bits of distances `begin` … begin + ROW_AT_ONCE − 1 of a row, as far as they exist, to shared memory, behind them infinity up to a multiple of
 * four. Returns how many, with these. */
static __device__ __forceinline__ int load_distances(uint32_t *distances, const gpu_edge *row, int begin, int length, int lane)
{
    const int n = min((length - begin + 3) / 4 * 4, (int)ROW_AT_ONCE);
    __syncwarp();
    for (int m = lane; m < n; m += 32) distances[m] = __float_as_uint(begin + m < length ? row[begin + m].d : INFINITY);
    __syncwarp();
    return n;
}

/* Distances that are shorter than `own`, or as short and in front of it in the row. Bits of numbers that are not negative are in the order of the numbers.
 * near: n of them, of which the lane's own is `before` places behind the first; `begin`: that of the warp's first lane, a multiple of 32. */
static __device__ __forceinline__ int rank_distance(const uint4 *near, int n, uint32_t own, int begin, int before)
{
    const int low = min(max(begin, 0), n), high = min(max(begin + 32, 0), n);
    int rank = 0;
#pragma unroll 4
    for (int m = 0; m < low; m += 4) {
        const uint4 d = near[m / 4];
        rank += (d.x <= own) + (d.y <= own) + (d.z <= own) + (d.w <= own);
    }
#pragma unroll 4
    for (int m = low; m < high; m += 4) {
        const uint4 d = near[m / 4];
        rank += (d.x < own + (before > m)) + (d.y < own + (before > m + 1)) + (d.z < own + (before > m + 2)) +
                (d.w < own + (before > m + 3));
    }
#pragma unroll 4
    for (int m = high; m < n; m += 4) {
        const uint4 d = near[m / 4];
        rank += (d.x < own) + (d.y < own) + (d.z < own) + (d.w < own);
    }
    return rank;
}

/* Stores the `cap` shortest edges of atom i's row from number `first` on, by distance and, of equal distances, by place in the row; then calls
 * kept(number, receiver). Counts atoms whose limit falls between equal distances. near: [ROW_AT_ONCE / 4] of this warp. */
template <class Kept>
static __device__ __forceinline__ void send_edges(const orb_gpu_step &step, int i, int first, uint4 *near, const Kept &kept)
{
    const int lane = threadIdx.x % 32, length = step.gpu.neighbors.row_length[i];
    const gpu_edge *row = step.gpu.neighbors.edges + (size_t)i * step.gpu.neighbors.row_capacity;
    const float unit = (float)step.gpu.length_unit, cutoff = (float)step.gpu.neighbors.cutoff;
    float last = 0, dropped = 0; // distances of the last edge that is kept and of the first that is not
    int n = 0;
    for (int begin = 0; begin < length; begin += 32) {
        const int k = begin + lane;
        gpu_edge edge = {};
        if (k < length) edge = row[k];
        int rank = 0;
        for (int part = 0; part < length; part += ROW_AT_ONCE) {
            if (begin == 0 || length > ROW_AT_ONCE) n = load_distances((uint32_t *)near, row, part, length, lane);
            rank += rank_distance(near, n, __float_as_uint(edge.d), begin - part, k - part);
        }
        if (k >= length) continue;
        if (rank == step.cap - 1) last = edge.d;
        if (rank == step.cap) dropped = edge.d;
        if (rank >= step.cap) continue;
        const int e = first + rank, j = edge.packed;
        const float r = edge.d * unit, u = r / cutoff, u2 = u * u;
        step.sender[e] = i;
        step.receiver[e] = j;
        ((float4 *)step.geometry)[e] = make_float4(edge.u[0], edge.u[1], edge.u[2], r);
        step.envelope[e] = u < 1.0f ? 1.0f + u2 * u2 * (-15.0f + u * (24.0f - 10.0f * u)) : 0.0f;
        kept(e, j);
    }
    if (length <= step.cap) return;
    const bool tied = max_warp(last) == max_warp(dropped);
    if (tied && lane == 0) atomicAdd(&step.gpu.report->n_ties, 1);
}

#endif
