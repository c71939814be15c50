/* SPDX-License-Identifier: MIT */
/* painn_gpu.cuh: what all kernels of PaiNN share: activations, stage numbers, indices into arrays of features. */
#ifndef PAINN_GPU_CUH
#define PAINN_GPU_CUH

#include "gpu/gpu_stage.cuh"
#include "painn_gpu.h"

/* The model's activation and its slope, for four numbers or N times four; the choice is made once for all of them. */
struct activations {
    const painn_gpu_step &step;
    __device__ __forceinline__ explicit activations(const painn_gpu_step &s) : step(s)
    {
    }
    static __device__ __forceinline__ float sigmoid(float x)
    {
        return fast_reciprocal(1.0f + fast_exp2(-1.44269504f * x));
    }
    static __device__ __forceinline__ float shifted_softplus(float x)
    {
        return fmaxf(x, 0.0f) + 0.69314718f * (fast_log2(1.0f + fast_exp2(-1.44269504f * fabsf(x))) - 1.0f);
    }
    template <int N> __device__ __forceinline__ void activate(float4 (&v)[N]) const
    {
        if (__builtin_expect(step.softplus, 0)) {
#pragma unroll
            for (int j = 0; j < N; j++) v[j] = map4(shifted_softplus, v[j]);
        } else {
#pragma unroll
            for (int j = 0; j < N; j++) v[j] = v[j] * map4(sigmoid, v[j]);
        }
    }
    template <int N> __device__ __forceinline__ void slope(float4 (&v)[N]) const
    {
        float4 s[N];
#pragma unroll
        for (int j = 0; j < N; j++) s[j] = map4(sigmoid, v[j]);
        if (!step.softplus) {
#pragma unroll
            for (int j = 0; j < N; j++) s[j] = s[j] * fma4(v[j], splat(1) + s[j] * splat(-1), splat(1));
        }
#pragma unroll
        for (int j = 0; j < N; j++) v[j] = s[j];
    }
    __device__ __forceinline__ float4 activate(float4 v) const
    {
        float4 one[1] = {v};
        activate(one);
        return one[0];
    }
    __device__ __forceinline__ float4 slope(float4 v) const
    {
        float4 one[1] = {v};
        slope(one);
        return one[0];
    }
};

/* Stage numbers, in order of time; the last stamp is the end of `sums`. */
static __device__ __forceinline__ int stage_message(int l)
{
    return 2 + 2 * l;
}
static __device__ __forceinline__ int stage_edges(int n_layers, int l)
{
    return 2 + 2 * n_layers + 2 * (n_layers - 1 - l);
}

/* Index of component c, feature f of an atom in an array of C components. */
template <int F, int C> static __device__ __forceinline__ size_t place(int atom, int c, int f)
{
    return (((size_t)atom * (F / PAINN_GPU_SLICE) + f / PAINN_GPU_SLICE) * C + c) * PAINN_GPU_SLICE + f % PAINN_GPU_SLICE;
}
/* The same for components in P pairs, the two of a feature adjacent: arrays that edges gather, 128 bytes for each pair. */
template <int F, int P> static __device__ __forceinline__ size_t place_paired(int atom, int c, int f)
{
    return (((size_t)atom * (F / PAINN_GPU_SLICE) + f / PAINN_GPU_SLICE) * P + c / 2) * 2 * PAINN_GPU_SLICE +
           f % PAINN_GPU_SLICE * 2 + c % 2;
}
/* Components of `state` and of `adjoint`. */
enum { STATE_XQ, STATE_XR, STATE_MUX, STATE_MUY, STATE_MUZ, STATE_XM, STATE_PAIRS = 3 };
enum { ADJOINT_Q, ADJOINT_MUX, ADJOINT_MUY, ADJOINT_MUZ, ADJOINT_PAIRS = 2 };

#endif
