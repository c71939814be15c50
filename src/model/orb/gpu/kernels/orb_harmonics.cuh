/* SPDX-License-Identifier: MIT */
/* orb_harmonics.cuh: real spherical harmonics to l = 3 of a direction, each l times √(2l + 1), in the order of e3nn (orb_edge.c), and the
 * derivatives of their polynomials. */
#ifndef ORB_HARMONICS_CUH
#define ORB_HARMONICS_CUH

#include "gpu/ptx/primitives.cuh"

/* y [16] of the direction g.x, g.y, g.z. */
static __device__ __forceinline__ void harmonics(float4 g, float *y)
{
    const float s3 = 1.7320508f, s5 = 2.2360680f, s7 = 2.6457513f, a = 0.91287093f /* √(5/6) */, b = 0.61237244f /* √(3/8) */;
    const float x = g.x, v = g.y, z = g.z;
    const float q0 = s3 * x * z, q1 = s3 * x * v, q2 = v * v - 0.5f * (x * x + z * z), q3 = s3 * v * z,
                q4 = 0.5f * s3 * (z * z - x * x), w = 4.0f * v * v - x * x - z * z;
    y[0] = 1.0f;
    y[1] = s3 * x, y[2] = s3 * v, y[3] = s3 * z;
    y[4] = s5 * q0, y[5] = s5 * q1, y[6] = s5 * q2, y[7] = s5 * q3, y[8] = s5 * q4;
    y[9] = s7 * a * (q0 * z + q4 * x);
    y[10] = s7 * s5 * q0 * v;
    y[11] = s7 * b * w * x;
    y[12] = s7 * 0.5f * v * (2.0f * v * v - 3.0f * x * x - 3.0f * z * z);
    y[13] = s7 * b * z * w;
    y[14] = s7 * s5 * q4 * v;
    y[15] = s7 * a * (q4 * z - q0 * x);
}

/* g = Σ b_k dy_k/d(x, y, z) at u. */
static __device__ __forceinline__ void harmonics_backward(const float *u, const float *b, float *g)
{
    const float s3 = 1.7320508f, s5 = 2.2360680f, s15 = 3.8729833f, s7 = 2.6457513f, s7a = 2.4152295f /* √7 √(5/6) */,
                s7b = 5.9160798f /* √35 */, s7c = 1.6201852f /* √7 √(3/8) */;
    const float x = u[0], y = u[1], z = u[2], q0 = s3 * x * z, q4 = 0.5f * s3 * (z * z - x * x), r = 4.0f * y * y - x * x - z * z;
    const float q0x = s3 * z, q0z = s3 * x, q4x = -s3 * x, q4z = s3 * z;
    g[0] = s3 * b[1] + s5 * q0x * b[4] + s15 * y * b[5] - s5 * x * b[6] + s5 * q4x * b[8] +
           s7a * (q0x * z + q4x * x + q4) * b[9] + s7b * q0x * y * b[10] + s7c * (r - 2.0f * x * x) * b[11] -
           s7 * 3.0f * x * y * b[12] - s7c * 2.0f * x * z * b[13] + s7b * q4x * y * b[14] +
           s7a * (q4x * z - q0x * x - q0) * b[15];
    g[1] = s3 * b[2] + s15 * x * b[5] + s5 * 2.0f * y * b[6] + s15 * z * b[7] + s7b * q0 * b[10] + s7c * 8.0f * y * x * b[11] +
           s7 * 0.5f * (6.0f * y * y - 3.0f * x * x - 3.0f * z * z) * b[12] + s7c * 8.0f * y * z * b[13] + s7b * q4 * b[14];
    g[2] = s3 * b[3] + s5 * q0z * b[4] - s5 * z * b[6] + s15 * y * b[7] + s5 * q4z * b[8] +
           s7a * (q0z * z + q0 + q4z * x) * b[9] + s7b * q0z * y * b[10] - s7c * 2.0f * z * x * b[11] -
           s7 * 3.0f * y * z * b[12] + s7c * (r - 2.0f * z * z) * b[13] + s7b * q4z * y * b[14] +
           s7a * (q4z * z + q4 - q0z * x) * b[15];
}

#endif
