/* SPDX-License-Identifier: MIT */
/* norm.cuh: the reverse pass of a norm for one row, by a warp: eight columns for each lane. */
#ifndef GPU_NORM_CUH
#define GPU_NORM_CUH

#include "norm.h"
#include "operand.cuh"

static __device__ __forceinline__ float dot_eight(const eight &a, const eight &b)
{
    float sum = 0;
#pragma unroll
    for (int k = 0; k < 8; k++) sum = fmaf(a.v[k], b.v[k], sum);
    return sum;
}

/* Stores a row of an operand times a power of two, so that its largest element is 4 to 8; returns the inverse of the power. */
template <int NUMBERS>
static __device__ __forceinline__ float store_scaled_row(const gpu_operand &m, int r, int column, float largest, const eight &x)
{
    const uint32_t exponent = min(max(__float_as_uint(largest) >> 23, 3u), 250u); // 2^(exponent − 127) is the largest one's power
    const float power = __uint_as_float((256u - exponent) << 23);
    eight scaled;
#pragma unroll
    for (int k = 0; k < 8; k++) scaled.v[k] = x.v[k] * power;
    store_operand<NUMBERS>(m, r, column, scaled);
    return __uint_as_float((exponent - 2u) << 23);
}

static __device__ __forceinline__ float largest_of(const eight &x)
{
    float largest = 0;
#pragma unroll
    for (int k = 0; k < 8; k++) largest = fmaxf(largest, fabsf(x.v[k]));
    return largest;
}

/* Row `r` of z, inverse and row_scale, row `to` of the operand. */
template <int NUMBERS>
static __device__ __forceinline__ void norm_row_backward(const gpu_norm_rows &norm, int r, int to, int lane, const eight &out_bar,
                                                         const eight &z)
{
    const eight scale = load_constants(norm.scale + 8 * lane);
    eight g;
#pragma unroll
    for (int k = 0; k < 8; k++) g.v[k] = scale.v[k] * out_bar.v[k];
    const float along = sum_warp(dot_eight(g, z)) * (1.0f / GPU_NORM_WIDTH), inverse = norm.inverse[r];
    float mean = 0;
    if (norm.centered) {
#pragma unroll
        for (int k = 0; k < 8; k++) mean += g.v[k];
        mean = sum_warp(mean) * (1.0f / GPU_NORM_WIDTH);
    }
#pragma unroll
    for (int k = 0; k < 8; k++) g.v[k] = (g.v[k] - mean - z.v[k] * along) * inverse;
    const float row_scale = store_scaled_row<NUMBERS>(norm.y_bar, to, 8 * lane, max_warp(largest_of(g)), g);
    if (lane == 0) norm.row_scale[r] = row_scale;
}

#endif
