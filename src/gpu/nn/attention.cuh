/* SPDX-License-Identifier: MIT */
/* attention.cuh: sums of attention over a list of edges (gpu_segment.h) by warps. A warp takes AT_ONCE edges at a time, eight columns of each in a lane, and
 * 32 / AT_ONCE lanes have the logit of one of them. All that is loaded of these edges is requested before any of it is used. */
#ifndef GPU_ATTENTION_CUH
#define GPU_ATTENTION_CUH

#include "gpu_segment.h"
#include "operand.cuh"

/* A warp's part of the list of what an atom sent or received: this lane's next place, the end, the edge there, −1: none. */
struct attention_list {
    int next, end, edge;
};

template <int AT_ONCE, bool halves> struct attention_edges {
    static constexpr int LANES = 32 / AT_ONCE, PARTS = (GPU_LOGIT_PARTS + LANES - 1) / LANES, PIECES = halves ? 1 : 2;
    float logit[PARTS], envelope;
    uint4 z[AT_ONCE][PIECES];

    /* which: 0 of what is sent, 1 of what is received. */
    static __device__ __forceinline__ int edge_at(const gpu_attention &of, int which, int k, int end)
    {
        return k < end ? which ? of.edges.incoming[k] : k : -1;
    }
    /* Of warp `warp` of `warps`, which share the list; no edges where there is no atom. */
    static __device__ __forceinline__ attention_list list_of(const gpu_attention &of, int which, int atom, bool exists, int warp,
                                                             int warps, int lane)
    {
        const int32_t *const first = which ? of.edges.incoming_first : of.edges.first;
        attention_list list = {0, 0, -1};
        if (!exists) return list;
        list.next = first[atom] + warp + warps * (lane / LANES), list.end = first[atom + 1];
        list.edge = edge_at(of, which, list.next, list.end);
        return list;
    }
    /* sum += Σ a z and weight += Σ a of a list's edges. */
    static __device__ __forceinline__ void add_list(const gpu_attention &of, int which, attention_list list, int warps, int lane,
                                                    eight &sum, float &weight)
    {
        while (__ballot_sync(~0u, list.edge >= 0)) {
            attention_edges edges;
            edges.request(of, list.edge, which, lane);
            list.edge = edge_at(of, which, list.next += warps * AT_ONCE, list.end);
            edges.add(of, which, sum, weight);
        }
    }
    /* edge: of this lane's LANES, −1: none. */
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
                v = floats_of(z[m][0], z[m][1]);
#pragma unroll
            for (int c = 0; c < 8; c++) sum.v[c] = fmaf(a, v.v[c], sum.v[c]);
            weight += a;
        }
    }
};

#endif
