/* SPDX-License-Identifier: MIT */
/* numbers.cuh: arithmetic: functions of one instruction, numbers of 16 bits, a number as two halves, groups of four. */
#ifndef GPU_NUMBERS_CUH
#define GPU_NUMBERS_CUH

#include "launch.cuh"

#ifndef MLFF_EMULATE
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

static __device__ __forceinline__ float2 unpack_bfloat2(uint32_t bits)
{
    return make_float2(__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000u));
}

#ifndef MLFF_EMULATE
/* One instruction each, relative error 2^-22; not for numbers below 2^-126. */
#define ONE_INSTRUCTION(name, instruction)                                                                                       \
    static __device__ __forceinline__ float name(float v)                                                                        \
    {                                                                                                                            \
        asm(instruction ".approx.ftz.f32 %0, %0;" : "+f"(v));                                                                    \
        return v;                                                                                                                \
    }
ONE_INSTRUCTION(fast_exp2, "ex2")
ONE_INSTRUCTION(fast_log2, "lg2")
ONE_INSTRUCTION(fast_reciprocal, "rcp")
ONE_INSTRUCTION(fast_sqrt, "sqrt")
ONE_INSTRUCTION(fast_rsqrt, "rsqrt")
#undef ONE_INSTRUCTION

/* Pins a value in a register that the compiler, short of registers, would reload or recompute at each use: it cannot see that the result
 * is the same value. */
static __device__ __forceinline__ float pin_in_register(float v)
{
    asm("fma.rn.f32 %0, %1, 0f00000000, %0;" : "+f"(v) : "f"((float)(threadIdx.x % 32)));
    return v;
}
/* The same for a pointer to global memory; by whole warps. */
static __device__ __forceinline__ const char *pin_in_register(const void *pointer)
{
    const char *same = (const char *)__shfl_sync(~0u, (unsigned long long)pointer, threadIdx.x % 32);
    __builtin_assume(__isGlobal(same));
    return same;
}
/* The opposite: a number, the same in all lanes, whose derived values are recomputed in each round of a loop. */
static __device__ __forceinline__ int recompute(int v)
{
    return __shfl_sync(~0u, v, 0);
}
static __device__ __forceinline__ uint32_t pack_half2(float a, float b)
{
    __half2 pair = __floats2half2_rn(a, b);
    return *reinterpret_cast<uint32_t *>(&pair);
}
static __device__ __forceinline__ float2 unpack_half2(uint32_t bits)
{
    return __half22float2(*reinterpret_cast<__half2 *>(&bits));
}

/* a b + c, for two halves each. */
static __device__ __forceinline__ uint32_t fma_half2(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t d;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}
static __device__ __forceinline__ uint32_t pack_bfloat2(float a, float b)
{
    __nv_bfloat162 pair = __floats2bfloat162_rn(a, b);
    return *reinterpret_cast<uint32_t *>(&pair);
}
#endif

static __device__ __forceinline__ float4 operator+(float4 a, float4 b)
{
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}
static __device__ __forceinline__ float4 operator*(float4 a, float4 b)
{
    return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w);
}
/* a b + c */
static __device__ __forceinline__ float4 fma4(float4 a, float4 b, float4 c)
{
    return make_float4(fmaf(a.x, b.x, c.x), fmaf(a.y, b.y, c.y), fmaf(a.z, b.z, c.z), fmaf(a.w, b.w, c.w));
}

static __device__ __forceinline__ float4 splat(float v)
{
    return make_float4(v, v, v, v);
}
/* A number as two halves, 22 bits together: the high halves of four numbers, then the low ones. */
static __device__ __forceinline__ uint4 pack_split(float4 v)
{
    const uint2 high = make_uint2(pack_half2(v.x, v.y), pack_half2(v.z, v.w));
    const float2 upper = unpack_half2(high.x), lower = unpack_half2(high.y);
    return make_uint4(high.x, high.y, pack_half2(v.x - upper.x, v.y - upper.y), pack_half2(v.z - lower.x, v.w - lower.y));
}
template <typename Function> static __device__ __forceinline__ float4 map4(Function f, float4 v)
{
    return make_float4(f(v.x), f(v.y), f(v.z), f(v.w));
}
#endif
