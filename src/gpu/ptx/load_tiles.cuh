/* SPDX-License-Identifier: MIT */
/* load_tiles.cuh: operands of tensor cores from shared memory, as they are or transposed (ldmatrix). */
#ifndef GPU_LOAD_TILES_CUH
#define GPU_LOAD_TILES_CUH

#include "shared.cuh"

#ifndef MLFF_EMULATE
/* Four tiles of 8 × 8 numbers of 16 bits from shared memory; lane k has the address of row k % 8 of tile k / 8, of 16 bytes. Each lane gets
 * two numbers of row lane / 4 of each tile, with `transposed` of column lane / 4. */
template <bool transposed> static __device__ __forceinline__ uint4 load_tiles(const uint4 *row)
{
    uint4 v = {};
#if __CUDA_ARCH__ >= 750
    if (transposed)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "r"(shared_address(row))
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "r"(shared_address(row))
                     : "memory");
#endif
    return v;
}
#endif

#endif
