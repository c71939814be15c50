/* SPDX-License-Identifier: MIT */
/* reduce.cuh: sums and maxima over the lanes of a warp or the threads of a block, in a fixed order. */
#ifndef GPU_REDUCE_CUH
#define GPU_REDUCE_CUH

#include "launch.cuh"

/* Over a warp; every lane has the sum. */
template <typename T> static __device__ __forceinline__ T sum_warp(T v)
{
    for (int mask = 16; mask > 0; mask /= 2) v += __shfl_xor_sync(~0u, v, mask);
    return v;
}
/* Three sums over a warp; lanes 0, 1 and 2 get one each. */
static __device__ __forceinline__ double sum_three(double x, double y, double z)
{
    const int lane = threadIdx.x % 32;
    double sum = (lane & 1 ? y : x) + __shfl_xor_sync(~0u, lane & 1 ? x : y, 1);
    z += __shfl_xor_sync(~0u, z, 1);
    sum = (lane & 2 ? z : sum) + __shfl_xor_sync(~0u, lane & 2 ? sum : z, 2);
#pragma unroll
    for (int mask = 4; mask < 32; mask *= 2) sum += __shfl_xor_sync(~0u, sum, mask);
    return sum;
}
/* The largest value of a warp; every lane has it. */
static __device__ __forceinline__ float max_warp(float v)
{
    for (int mask = 16; mask > 0; mask /= 2) v = fmaxf(v, __shfl_xor_sync(~0u, v, mask));
    return v;
}
/* Over four lanes, APART from each other; adjacent ones unless said. */
template <int APART = 1> static __device__ __forceinline__ float sum_quad(float v)
{
    v += __shfl_xor_sync(~0u, v, APART);
    return v + __shfl_xor_sync(~0u, v, 2 * APART);
}
/* N sums over a block of THREADS, in the order of warps; every thread has them. */
template <int THREADS, typename T, int N> static __device__ __forceinline__ void sum_block(T (&v)[N])
{
    __shared__ T part[THREADS / 32][N];
    __syncthreads();
    for (int k = 0; k < N; k++) {
        v[k] = sum_warp(v[k]);
        if (threadIdx.x % 32 == 0) part[threadIdx.x / 32][k] = v[k];
    }
    __syncthreads();
    for (int k = 0; k < N; k++) {
        v[k] = 0;
        for (int w = 0; w < THREADS / 32; w++) v[k] += part[w][k];
    }
}
#endif
