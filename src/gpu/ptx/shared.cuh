/* SPDX-License-Identifier: MIT */
/* shared.cuh: shared memory: addresses of 32 bits, asynchronous copies into it. */
#ifndef GPU_SHARED_CUH
#define GPU_SHARED_CUH

#include "launch.cuh"

#ifndef MLFF_EMULATE
static __device__ __forceinline__ uint32_t shared_address(const void *pointer)
{
    return (uint32_t)__cvta_generic_to_shared(pointer);
}
/* A value at `offset` from `base`, addressed with 32 bits. */
template <typename T> static __device__ __forceinline__ T read_shared(const uint4 *base, uint32_t offset);
template <> __device__ __forceinline__ float4 read_shared(const uint4 *base, uint32_t offset)
{
    float4 v;
    asm("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
        : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
        : "r"(shared_address(base) + offset));
    return v;
}
template <> __device__ __forceinline__ float2 read_shared(const uint4 *base, uint32_t offset)
{
    float2 v;
    asm("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(shared_address(base) + offset));
    return v;
}
/* Asynchronous copy of 16 bytes from global to shared memory; copies since the last commit are a group. */
static __device__ __forceinline__ void copy_async(void *shared, const void *global)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(shared)), "l"(global) : "memory");
#else
    *(uint4 *)shared = *(const uint4 *)global;
#endif
}
/* Stores 16 bytes to global memory where `here` is set: without a branch, across which the compiler would not move other work. */
static __device__ __forceinline__ void store_if(bool here, uint4 *global, uint4 v)
{
    asm volatile("{\n.reg .pred here;\nsetp.ne.b32 here, %5, 0;\n@here st.global.v4.b32 [%0], {%1, %2, %3, %4};\n}" ::"l"(global),
                 "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "r"((int)here)
                 : "memory");
}
/* Loads where `here` is set, requested where this stands; else v stays. */
static __device__ __forceinline__ void load_if(bool here, const uint4 *global, uint4 &v)
{
    asm volatile("{\n.reg .pred here;\nsetp.ne.b32 here, %5, 0;\n@here ld.global.v4.b32 {%0, %1, %2, %3}, [%4];\n}"
                 : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
                 : "l"(global), "r"((int)here)
                 : "memory");
}
static __device__ __forceinline__ void load_if(bool here, const float *global, float &v)
{
    asm volatile("{\n.reg .pred here;\nsetp.ne.b32 here, %2, 0;\n@here ld.global.f32 %0, [%1];\n}"
                 : "+f"(v)
                 : "l"(global), "r"((int)here)
                 : "memory");
}
static __device__ __forceinline__ void copy_commit()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
/* Waits until at most N groups of the thread's own copies are in flight. */
template <int N> static __device__ __forceinline__ void copy_wait()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}
#endif

#endif
