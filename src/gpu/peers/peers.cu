// SPDX-License-Identifier: MIT
// peers.cu: rows of an array, read from the memory of several GPUs.
#include "gpu/ptx/primitives.cuh"
#include "peers.h"

// One thread for each four floats of a row. A sum runs in the order of its list.
static __global__ void __launch_bounds__(256) rows_kernel(const __grid_constant__ device_rows rows)
{
    const int quads = rows.width / 4;
    const int64_t n = (int64_t)rows.n_rows * quads, stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < n; at += stride) {
        const int k = (int)(at / quads), c = (int)(at % quads);
        const int64_t target = rows.to_row ? rows.to_row[k] : rows.to_first + k;
        float4 *const to = (float4 *)rows.to + target * quads + c;
        float4 sum = {0, 0, 0, 0};
        if (rows.add) sum = *to;
        const int begin = rows.first ? rows.first[k] : k, end = rows.first ? rows.first[k + 1] : k + 1;
        for (int j = begin; j < end; j++) {
            const float4 *const from = (const float4 *)rows.from[rows.source ? rows.source[j] : 0];
            const float4 x = from[(int64_t)(rows.row ? rows.row[j] : j) * quads + c];
            sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w;
        }
        *to = sum;
    }
}

int gpu_launch_rows(const device_rows *rows, void *stream)
{
    const int64_t blocks = ((int64_t)rows->n_rows * (rows->width / 4) + 255) / 256;
    return launch(rows_kernel, (int)(blocks < 2048 ? blocks : 2048), 256, 0, 1, 0, stream, *rows);
}
