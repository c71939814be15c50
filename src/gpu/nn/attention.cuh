/* SPDX-License-Identifier: MIT */
/* attention.cuh: sums of attention over a list of edges (gpu_segment.h) by warps. A warp takes AT_ONCE edges at a time, eight columns of each in a lane, and
 * 32 / AT_ONCE lanes have the logit of one of them. All that is loaded of these edges is requested before any of it is used. */
#ifndef GPU_ATTENTION_CUH
#define GPU_ATTENTION_CUH

#include "gpu_segment.h"
#include "operand.cuh"

template <int AT_ONCE, bool halves> struct attention_edges {
    static constexpr int LANES = 32 / AT_ONCE, PARTS = (GPU_LOGIT_PARTS + LANES - 1) / LANES, PIECES = halves ? 1 : 2;
    float logit[PARTS], envelope;
    uint4 z[AT_ONCE][PIECES];

    /* edge: of this lane's LANES, −1: none. which: 0 of what is sent, 1 of what is received. */
    __device__ __forceinline__ void request(const gpu_attention &of, int edge, int which, int lane)
    {
        const int e = max(edge, 0);
#pragma unroll
        for (int k = 0; k < PARTS; k++) {
            const int part = lane % LANES + k * LANES;
            logit[k] = 0;
            load_if(edge >= 0 && part < of.logit_parts,
                    of.logits + ((size_t)e * (size_t)of.logit_parts + (size_t)part) * 2 + which, logit[k]);
        }
        envelope = 0;
        load_if(edge >= 0, of.envelope + e, envelope);
#pragma unroll
        for (int m = 0; m < AT_ONCE; m++) {
            const int row = __shfl_sync(~0u, edge, m * LANES);
            const char *const at = (const char *)of.z + ((size_t)max(row, 0) * GPU_NORM_WIDTH + 8 * lane) * (halves ? 2 : 4);
#pragma unroll
            for (int k = 0; k < PIECES; k++) {
                z[m][k] = make_uint4(0, 0, 0, 0);
                load_if(row >= 0, (const uint4 *)at + k, z[m][k]);
            }
        }
    }
    /* sum += Σ a z and weight += Σ a of these edges. */
    __device__ __forceinline__ void add(const gpu_attention &of, int which, eight &sum, float &weight) const
    {
        float all = logit[0];
#pragma unroll
        for (int k = 1; k < PARTS; k++) all += logit[k];
#pragma unroll
        for (int step = 1; step < LANES; step *= 2) all += __shfl_xor_sync(~0u, all, step);
        const float own = logistic(all + of.bias[which]) * envelope;
#pragma unroll
        for (int m = 0; m < AT_ONCE; m++) {
            const float a = __shfl_sync(~0u, own, m * LANES);
            eight v;
            if constexpr (halves)
                unpack_eight<false>(z[m][0], v);
            else
                v = {{__uint_as_float(z[m][0].x), __uint_as_float(z[m][0].y), __uint_as_float(z[m][0].z),
                      __uint_as_float(z[m][0].w), __uint_as_float(z[m][PIECES - 1].x), __uint_as_float(z[m][PIECES - 1].y),
                      __uint_as_float(z[m][PIECES - 1].z), __uint_as_float(z[m][PIECES - 1].w)}};
#pragma unroll
            for (int c = 0; c < 8; c++) sum.v[c] = fmaf(a, v.v[c], sum.v[c]);
            weight += a;
        }
    }
};

#endif
