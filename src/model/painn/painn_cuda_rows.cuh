/* SPDX-License-Identifier: MIT */
/* painn_cuda_rows.cuh: what all neighbour searches share: the exact decision about a candidate, and entries of rows. */
#ifndef PAINN_CUDA_ROWS_CUH
#define PAINN_CUDA_ROWS_CUH

#include "painn_cuda_cell.h"
#include "painn_cuda_device.cuh"

static __device__ void raise_flag(const painn_cuda_step &step, int flag, int atom, int other)
{
    // The first trouble is told; others may follow from it.
    if (atomicOr(&step.report->flags, flag) == 0) {
        step.report->atom = atom;
        step.report->other = other;
    }
}

// Writes entry `slot` of row i.
static __device__ __forceinline__ void write_edge(const painn_cuda_step &step, int i, int slot, int j, double rx, double ry,
                                                  double rz, double square, int sx, int sy, int sz)
{
    painn_cuda_edge edge;
    double d = sqrt(square), inverse = 1.0 / d, along = d * ((double)PAINN_CUDA_INTERVALS / step.cutoff);
    int interval = (int)along;
    if (interval > PAINN_CUDA_INTERVALS - 1) interval = PAINN_CUDA_INTERVALS - 1;
    edge.u[0] = (float)(rx * inverse);
    edge.u[1] = (float)(ry * inverse);
    edge.u[2] = (float)(rz * inverse);
    edge.d = (float)(d / step.length_unit);
    edge.packed = j * PAINN_CUDA_INTERVALS + interval;
    edge.t = (float)((2.0 * (along - interval) - 1.0) / PAINN_CUDA_TABLE_RANGE);
    edge.species = step.species[j];
    edge.shift = (sx + 512) | (sy + 512) << 10 | (sz + 512) << 20;
    step.edges[(size_t)i * step.row_capacity + slot] = edge;
}

static __device__ void close_row(const painn_cuda_step &step, int i, int length)
{
    if (threadIdx.x % 32 != 0) return;
    if (length > step.row_capacity) {
        atomicMax(&step.report->longest_row, length);
        raise_flag(step, PAINN_CUDA_ROW_FULL, i, -1);
        length = step.row_capacity;
    }
    step.row_length[i] = length;
    atomicAdd(&step.report->n_pairs, length);
}

// Decides in double about 32 candidates (−1: none) and appends those inside to row i; answers the row's length.
static __device__ int look_closely(const painn_cuda_step &step, const painn_cuda_system &system, int i, int candidate, int images,
                                   int n1, int n2, int length)
{
    bool inside = false;
    int j = 0, s0 = 0, s1 = 0, s2 = 0;
    double rx = 0, ry = 0, rz = 0, square = 0;
    if (candidate >= 0) {
        j = system.first + candidate / images;
        const int image = candidate % images;
        double d0 = step.fractional[(size_t)j * 3] - step.fractional[(size_t)i * 3];
        double d1 = step.fractional[(size_t)j * 3 + 1] - step.fractional[(size_t)i * 3 + 1];
        double d2 = step.fractional[(size_t)j * 3 + 2] - step.fractional[(size_t)i * 3 + 2];
        s0 = image / (n1 * n2) - system.images[0] - (system.wrapped[0] ? (int)rint(d0) : 0);
        s1 = image / n2 % n1 - system.images[1] - (system.wrapped[1] ? (int)rint(d1) : 0);
        s2 = image % n2 - system.images[2] - (system.wrapped[2] ? (int)rint(d2) : 0);
        d0 += s0;
        d1 += s1;
        d2 += s2;
        // Written out, so that each kernel that looks at a pair gets the same bits.
        rx = fma(d2, system.cell[6], fma(d1, system.cell[3], d0 * system.cell[0]));
        ry = fma(d2, system.cell[7], fma(d1, system.cell[4], d0 * system.cell[1]));
        rz = fma(d2, system.cell[8], fma(d1, system.cell[5], d0 * system.cell[2]));
        square = fma(rz, rz, fma(ry, ry, rx * rx));
        inside = square < step.cutoff * step.cutoff && (j != i || s0 != 0 || s1 != 0 || s2 != 0);
        if (inside && square < 1e-8) {
            raise_flag(step, PAINN_CUDA_SAME_POINT, i, j);
            inside = false;
        }
    }
    const unsigned found = __ballot_sync(~0u, inside);
    const int slot = length + __popc(found & ((1u << (threadIdx.x % 32)) - 1));
    if (inside && slot < step.row_capacity) write_edge(step, i, slot, j, rx, ry, rz, square, s0, s1, s2);
    return length + __popc(found);
}

// x less the nearest integer, for |x| < 2²² (by adding 1.5 · 2²³ and taking it off again: cheaper than a rounding).
static __device__ __forceinline__ float nearest_image(float x)
{
    return x - ((x + 12582912.0f) - 12582912.0f);
}

/* How many of `keys` are smaller: the key's place in order, for different keys. */
static __device__ __forceinline__ int rank_among(const int32_t *keys, int n, int key)
{
    int rank = 0;
    for (int k = 0; k < n; k++) rank += keys[k] < key;
    return rank;
}

/* The float test of a candidate: whether its distance may be less than √reach2. Differences of wrapped coordinates. */
struct near_test {
    float w0, w1, w2, h[9], reach2;
    __device__ __forceinline__ near_test(const painn_cuda_system &system, double reach)
    {
        w0 = system.wrapped[0], w1 = system.wrapped[1], w2 = system.wrapped[2];
#pragma unroll
        for (int c = 0; c < 9; c++) h[c] = (float)system.cell[c];
        reach2 = (float)(reach * reach);
    }
    /* Of the image s0, s1, s2 cells from the nearest one. Close to half a cell the doubles decide which that is. */
    __device__ __forceinline__ bool image(float a0, float a1, float a2, int s0, int s1, int s2) const
    {
        float b0 = wrap(a0, w0), b1 = wrap(a1, w1), b2 = wrap(a2, w2);
        return inside(b0 + (float)s0, b1 + (float)s1, b2 + (float)s2) || ambiguous(b0, b1, b2);
    }
    __device__ __forceinline__ float wrap(float a, float w) const
    {
        return fmaf(w, nearest_image(a) - a, a);
    }
    __device__ __forceinline__ bool inside(float a0, float a1, float a2) const
    {
        const float x = a0 * h[0] + a1 * h[3] + a2 * h[6], y = a0 * h[1] + a1 * h[4] + a2 * h[7],
                    z = a0 * h[2] + a1 * h[5] + a2 * h[8];
        return x * x + y * y + z * z < reach2;
    }
    __device__ __forceinline__ bool ambiguous(float a0, float a1, float a2) const
    {
        return fmaxf(w0 * fabsf(a0), fmaxf(w1 * fabsf(a1), w2 * fabsf(a2))) > 0.4999f;
    }
};

#endif
