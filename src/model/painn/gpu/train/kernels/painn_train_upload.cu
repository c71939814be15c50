// SPDX-License-Identifier: MIT
// painn_train_upload.cu: directions and distances of a data set's pairs, from their vectors, once.
//
//   d = |r|, u = r / d      in float64; u and d are rounded to float32 for the layers, d also stays as it is
#include "gpu/ptx/launch.cuh"
#include "painn_train_math.cuh"

enum { THREADS = 256 };

static __global__ void set_edges(const double *vectors, float4 *edge, double *distance, int n)
{
    const int p = blockIdx.x * THREADS + threadIdx.x;
    if (p >= n) return;
    const double *r = vectors + 3 * (size_t)p;
    const double d = sqrt(r[0] * r[0] + r[1] * r[1] + r[2] * r[2]);
    edge[p] = make_float4((float)(r[0] / d), (float)(r[1] / d), (float)(r[2] / d), (float)d);
    distance[p] = d;
}

extern "C" int painn_train_launch_edges(const double *vectors, float *edge, double *distance, int n, void *stream)
{
    return launch(set_edges, (n + THREADS - 1) / THREADS, THREADS, 0, 1, 0, stream, vectors, (float4 *)edge, distance, n);
}
