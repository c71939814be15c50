/* SPDX-License-Identifier: MIT */
/* exchange.cuh: numbers that blocks which run at once pass to each other through memory. A word that was not stored yet is EXCHANGE_EMPTY, which
 * no result of arithmetic is; a reader repeats its loads until none of its words is. So there is one round trip to the L2 cache, not one
 * for a flag and one for the data, and no fence between them. */
#ifndef GPU_EXCHANGE_CUH
#define GPU_EXCHANGE_CUH

#include "shared.cuh"

static constexpr uint32_t EXCHANGE_EMPTY = 0xffffffffu;

#ifndef MLFF_EMULATE
/* v = 16 bytes that another block may be storing. */
static __device__ __forceinline__ void exchange_load(const void *from, uint4 &v)
{
#if __CUDA_ARCH__ >= 700
    asm volatile("ld.relaxed.gpu.global.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from)
                 : "memory");
#endif
}
/* The same where `here` is set. */
static __device__ __forceinline__ void exchange_load_if(bool here, const void *from, uint4 &v)
{
#if __CUDA_ARCH__ >= 700
    asm volatile("{\n.reg .pred here;\nsetp.ne.b32 here, %5, 0;\n@here ld.relaxed.gpu.global.v4.b32 {%0, %1, %2, %3}, [%4];\n}"
                 : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
                 : "l"(from), "r"((int)here)
                 : "memory");
#endif
}
static __device__ __forceinline__ void exchange_store(void *to, uint4 v)
{
#if __CUDA_ARCH__ >= 700
    asm volatile("st.relaxed.gpu.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
#endif
}
static __device__ __forceinline__ void exchange_store(void *to, uint2 v)
{
#if __CUDA_ARCH__ >= 700
    asm volatile("st.relaxed.gpu.global.v2.b32 [%0], {%1, %2};" ::"l"(to), "r"(v.x), "r"(v.y) : "memory");
#endif
}
static __device__ __forceinline__ void exchange_store(void *to, uint32_t v)
{
#if __CUDA_ARCH__ >= 700
    asm volatile("st.relaxed.gpu.global.b32 [%0], %1;" ::"l"(to), "r"(v) : "memory");
#endif
}
/* What this thread has stored is in memory before what it stores later. */
static __device__ __forceinline__ void exchange_fence()
{
#if __CUDA_ARCH__ >= 700
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
#endif
}
/* 16 bytes of constants, or two numbers; requested where this stands, also if they are used behind a loop that waits. */
static __device__ __forceinline__ float2 request_two(const float *from)
{
    float2 v;
    asm volatile("ld.global.nc.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "l"(from));
    return v;
}
static __device__ __forceinline__ uint4 request_constants(const void *from)
{
    uint4 v;
    asm volatile("ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from));
    return v;
}
#endif

/* Makes `bytes`, a multiple of 16, empty; by `threads` threads of any blocks, this one is number `thread`. */
static __device__ __forceinline__ void exchange_clear(void *at, int bytes, int thread, int threads)
{
    const uint4 empty = make_uint4(EXCHANGE_EMPTY, EXCHANGE_EMPTY, EXCHANGE_EMPTY, EXCHANGE_EMPTY);
    for (int k = thread; k < bytes / 16; k += threads) ((uint4 *)at)[k] = empty;
}
static __device__ __forceinline__ bool is_stored(uint4 v)
{
    return max(max(v.x, v.y), max(v.z, v.w)) != EXCHANGE_EMPTY;
}
/* The bits of a number; not EXCHANGE_EMPTY, which one bit pattern of a NaN is. */
static __device__ __forceinline__ uint32_t exchange_bits(float v)
{
    return min(__float_as_uint(v), EXCHANGE_EMPTY - 1);
}
/* Pieces v[k] from from(k), as soon as all are stored. By whole warps. */
template <int N, class From> static __device__ __forceinline__ void exchange_wait(uint4 (&v)[N], const From &from)
{
    bool again;
#pragma unroll
    for (int k = 0; k < N; k++) exchange_load(from(k), v[k]);
    do {
        again = false;
#pragma unroll
        for (int k = 0; k < N; k++) {
            const bool missing = !is_stored(v[k]);
            exchange_load_if(missing, from(k), v[k]);
            again |= missing;
        }
    } while (__ballot_sync(~0u, again));
}

#endif
