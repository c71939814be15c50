/* SPDX-License-Identifier: MIT */
/* painn_train_math.cuh: the activation and its derivatives, in float32. A sigmoid that saturates: no overflow. */
#ifndef PAINN_TRAIN_MATH_CUH
#define PAINN_TRAIN_MATH_CUH

#include "model/painn/gpu/train/painn_train_gpu.h"

enum { TRAIN_SILU = 0 }; /* PAINN_SILU; else the shifted softplus */

static __device__ __forceinline__ float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

static __device__ __forceinline__ float activation(int kind, float x)
{
    if (kind == TRAIN_SILU) return x * sigmoid(x);
    return (x > 0 ? x : 0.0f) + log1pf(expf(-fabsf(x))) - 0.693147181f;
}

static __device__ __forceinline__ float activation_slope(int kind, float x)
{
    const float s = sigmoid(x);
    return kind == TRAIN_SILU ? s * (1.0f + x * (1.0f - s)) : s;
}

/* silu'' = σ (1 − σ) (2 + x (1 − 2σ)); the shifted softplus has σ (1 − σ). */
static __device__ __forceinline__ float activation_second(int kind, float x)
{
    const float s = sigmoid(x), slope = s * (1.0f - s);
    return kind == TRAIN_SILU ? slope * (2.0f + x * (1.0f - 2.0f * s)) : slope;
}

#endif
