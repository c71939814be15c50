/* SPDX-License-Identifier: MIT */
/* orb_edge_inputs.cuh: inputs of the edges' encoder, eight columns from `c` on. g: direction and distance in Å. */
#ifndef ORB_EDGE_INPUTS_CUH
#define ORB_EDGE_INPUTS_CUH

#include "gpu/nn/operand.cuh"
#include "orb_harmonics.cuh"

/* Orb-v2: 20 Gaussians, the direction, zeros. */
static __device__ __forceinline__ void gaussians_and_direction(float4 g, int c, eight &x)
{
#pragma unroll
    for (int k = 0; k < 8; k++) {
        const float d = g.w - 0.5f * (float)(c + k), direction = c + k == 20 ? g.x : c + k == 21 ? g.y : g.z;
        x.v[k] = c + k < 20 ? fast_exp2(-1.4426950408889634f * d * d) : c + k < 23 ? direction : 0.0f;
    }
}

/* Orb-v3: 8 Bessel functions × 16 spherical harmonics × the envelope. */
static __device__ __forceinline__ void bessel_and_harmonics(float4 g, float cutoff, float envelope, int c, eight &x)
{
    float y[16];
    harmonics(g, y);
    const float n = (float)(c / 16 + 1);
    const float radial = sqrtf(2.0f / cutoff) * sinf(n * 3.14159265f * (g.w / cutoff)) / g.w * envelope;
#pragma unroll
    for (int k = 0; k < 8; k++) x.v[k] = radial * (c % 16 ? y[8 + k] : y[k]);
}

#endif
