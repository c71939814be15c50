/* SPDX-License-Identifier: MIT */
/* mma.cuh: products of one warp on tensor cores (mma). */
#ifndef GPU_MMA_CUH
#define GPU_MMA_CUH

#include "numbers.cuh"

#ifndef MLFF_EMULATE
/* Transposes a tile of 8 × 8 numbers of 16 bits; each lane has two of row lane / 4. */
static __device__ __forceinline__ uint32_t transpose_tile(uint32_t v)
{
#if __CUDA_ARCH__ >= 750
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %0;" : "+r"(v));
#endif
    return v;
}

/* d += a b for tiles of 16 × 16 and 16 × 8 halves, or bfloat16 numbers. */
template <bool bfloat> static __device__ __forceinline__ void product(float4 &d, const uint4 &a, uint32_t b0, uint32_t b1)
{
#if __CUDA_ARCH__ >= 800
    if (bfloat)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(d.x), "+f"(d.y), "+f"(d.z), "+f"(d.w)
            : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
    else
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(d.x), "+f"(d.y), "+f"(d.z), "+f"(d.w)
            : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
#else
    /* Before compute capability 8.0: the same sums by shuffles. Lane (g, t) has rows g, g + 8 and columns 2t, 2t + 1. */
    const auto unpack = [](uint32_t bits) { return bfloat ? unpack_bfloat2(bits) : unpack_half2(bits); };
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    for (int k = 0; k < 4; k++) {
        uint32_t a0 = __shfl_sync(~0u, a.x, g * 4 + k), a1 = __shfl_sync(~0u, a.y, g * 4 + k);
        uint32_t a2 = __shfl_sync(~0u, a.z, g * 4 + k), a3 = __shfl_sync(~0u, a.w, g * 4 + k);
        for (int c = 0; c < 2; c++) {
            uint32_t p = __shfl_sync(~0u, b0, (2 * t + c) * 4 + k), r = __shfl_sync(~0u, b1, (2 * t + c) * 4 + k);
            float2 p2 = unpack(p), r2 = unpack(r), u0 = unpack(a0), u1 = unpack(a1), u2 = unpack(a2), u3 = unpack(a3);
            float upper = u0.x * p2.x + u0.y * p2.y + u2.x * r2.x + u2.y * r2.y;
            float lower = u1.x * p2.x + u1.y * p2.y + u3.x * r2.x + u3.y * r2.y;
            if (c == 0) {
                d.x += upper;
                d.z += lower;
            } else {
                d.y += upper;
                d.w += lower;
            }
        }
    }
#endif
}
#endif

#endif
