/* SPDX-License-Identifier: MIT */
/* primitives.cuh: launches, barriers of a cluster, asynchronous stores, products on tensor cores, values split into two halves. With
 * MLFF_EMULATE the same kernels are compiled for the CPU (tests/emulate). */
#ifndef GPU_PRIMITIVES_CUH
#define GPU_PRIMITIVES_CUH

#include <stdint.h>

#ifndef MLFF_EMULATE /* else the includer has its own primitives */
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define DYNAMIC_SHARED(name) extern __shared__ uint4 name[]
#endif
#include <cuda_runtime.h>

/* Bits of `overlap`: 1, the kernel may start while the previous one ends; this one, all blocks run at once (cooperative launch). */
enum { LAUNCH_TOGETHER = 2 };

template <typename Step, typename... Extra>
static int launch(void (*kernel)(Step, Extra...), int n_blocks, int n_threads, size_t shared_bytes, int cluster, int overlap,
                  void *stream, const Step &step, Extra... extra)
{
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attributes[3];
    config.gridDim = dim3((unsigned)n_blocks);
    config.blockDim = dim3((unsigned)n_threads);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = (cudaStream_t)stream;
    config.attrs = attributes;
    if (cluster > 1) {
        attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
        attributes[config.numAttrs].val.clusterDim.x = (unsigned)cluster;
        attributes[config.numAttrs].val.clusterDim.y = attributes[config.numAttrs].val.clusterDim.z = 1;
        config.numAttrs++;
    }
    if (overlap & LAUNCH_TOGETHER) {
        attributes[config.numAttrs].id = cudaLaunchAttributeCooperative;
        attributes[config.numAttrs++].val.cooperative = 1;
    }
    if (overlap & 1) {
        attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attributes[config.numAttrs].val.programmaticStreamSerializationAllowed = 1;
        config.numAttrs++;
    }
    return (int)cudaLaunchKernelEx(&config, kernel, step, extra...);
}

/* How many clusters of `cluster` blocks run at once; 0: none. */
template <typename Kernel> static int clusters_at_once(Kernel *kernel, int cluster, int n_threads, size_t shared_bytes)
{
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = (unsigned)cluster;
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    config.gridDim = dim3((unsigned)cluster);
    config.blockDim = dim3((unsigned)n_threads);
    config.dynamicSmemBytes = shared_bytes;
    config.attrs = &attribute;
    config.numAttrs = 1;
    int n = 0;
    if (cudaOccupancyMaxActiveClusters(&n, kernel, &config) != cudaSuccess) n = 0;
    cudaGetLastError();
    return n;
}

static __device__ __forceinline__ float2 unpack_bfloat2(uint32_t bits)
{
    return make_float2(__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000u));
}

#ifndef MLFF_EMULATE
/* Waits until the previous kernel is complete; what does not depend on it may be requested before. */
static __device__ __forceinline__ void wait_for_previous()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/* Lets the next kernel be set up. */
static __device__ __forceinline__ void let_next_start()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

static __device__ __forceinline__ uint64_t gpu_timer()
{
    uint64_t time;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
    return time;
}

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

/* A barrier of the blocks of a cluster, in two parts. */
static __device__ __forceinline__ void cluster_arrive()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
static __device__ __forceinline__ void cluster_wait()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}
template <int C> static __device__ __forceinline__ void cluster_barrier()
{
#if __CUDA_ARCH__ >= 900
    if (C > 1) {
        cluster_arrive();
        cluster_wait();
        return;
    }
#endif
    __syncthreads();
}
/* A barrier of `threads` threads of a block, in whole warps; `number`: of the barrier, less than 16. */
static __device__ __forceinline__ void group_barrier(int number, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
/* A barrier of `n_blocks` blocks that all run at once; one of them has `first` set. Writes before it are visible after it. The counter's
 * highest bit flips when all blocks have arrived; `phase` is that bit, read by the block's first thread before its first barrier. */
static __device__ __forceinline__ void grid_barrier(uint32_t *counter, int n_blocks, bool first, uint32_t &phase)
{
    __syncthreads();
#if __CUDA_ARCH__ >= 700
    if (threadIdx.x == 0) {
        const uint32_t mine = first ? 0x80000000u - (uint32_t)(n_blocks - 1) : 1;
        uint32_t now;
        asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(counter), "r"(mine) : "memory");
        phase ^= 0x80000000u;
        do {
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
        } while ((now ^ phase) & 0x80000000u);
    }
#endif
    __syncthreads();
}
template <int C> static __device__ __forceinline__ int cluster_rank()
{
    return C > 1 ? (int)(blockIdx.x % C) : 0;
}
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
/* An mbarrier for one use, complete when `bytes` have been stored by any blocks of the cluster. */
static __device__ __forceinline__ void mbarrier_init_bytes(uint64_t *mbarrier, int bytes)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(mbarrier)) : "memory");
    asm volatile(
        "{\n.reg .b64 state;\nmbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1;\n}" ::"r"(shared_address(mbarrier)),
        "r"(bytes)
        : "memory");
#endif
}
/* After all mbarriers of a block are initialized, before the barrier of the cluster. */
static __device__ __forceinline__ void mbarrier_init_fence()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}
static __device__ __forceinline__ void mbarrier_wait_bytes(uint64_t *mbarrier)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("{\n.reg .pred open;\nagain:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 open, [%0], 0;\n"
                 "@open bra.uni done;\nbra.uni again;\ndone:\n}" ::"r"(shared_address(mbarrier))
                 : "memory");
#endif
}
/* Address of the shared memory of block `rank` of the cluster that corresponds to `base` in this block. */
typedef uint32_t cluster_base;
static __device__ __forceinline__ cluster_base cluster_map(const void *base, int rank)
{
    uint32_t there = 0;
#if __CUDA_ARCH__ >= 900
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(base)), "r"(rank));
#endif
    return there;
}
/* Stores 16 bytes at `offset` there and counts them in the mbarrier at offset `mbarrier`. Asynchronous. */
static __device__ __forceinline__ void store_async(cluster_base peer, uint32_t offset, uint32_t mbarrier, uint4 v)
{
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(peer + offset),
        "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "r"(peer + mbarrier)
        : "memory");
#endif
}

static __device__ __forceinline__ void store_async(cluster_base peer, uint32_t offset, uint32_t mbarrier, uint2 v)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" ::"r"(peer + offset),
                 "r"(v.x), "r"(v.y), "r"(peer + mbarrier)
                 : "memory");
#endif
}

static __device__ __forceinline__ void store_async(cluster_base peer, uint32_t offset, uint32_t mbarrier, uint32_t v)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(peer + offset), "r"(v),
                 "r"(peer + mbarrier)
                 : "memory");
#endif
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
