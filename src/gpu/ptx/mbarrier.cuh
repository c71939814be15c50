/* SPDX-License-Identifier: MIT */
/* mbarrier.cuh: mbarriers: of one use, which count bytes; with phases; bulk copies that they count. Those with phases and bulk copies are
 * empty where WGMMA_HERE is 0. */
#ifndef GPU_MBARRIER_CUH
#define GPU_MBARRIER_CUH

#include "shared.cuh"

#ifndef MLFF_EMULATE
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define WGMMA_HERE 1
#else
#define WGMMA_HERE 0
#endif

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

/* ---- mbarriers with phases. The n-th wait of a thread has `parity` n % 2 */

/* A phase completes after `arrivals` arrivals and all expected bytes. By one thread, before mbarrier_init_fence and a barrier. */
static __device__ __forceinline__ void mbarrier_init(uint64_t *mbarrier, int arrivals)
{
#if WGMMA_HERE
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(mbarrier)), "r"(arrivals) : "memory");
#endif
}
static __device__ __forceinline__ void mbarrier_arrive(uint64_t *mbarrier)
{
#if WGMMA_HERE
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(mbarrier)) : "memory");
#endif
}
/* Arrives, and expects bytes that bulk copies will bring. */
static __device__ __forceinline__ void mbarrier_expect(uint64_t *mbarrier, int bytes)
{
#if WGMMA_HERE
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(mbarrier)), "r"(bytes) : "memory");
#endif
}
static __device__ __forceinline__ void mbarrier_wait(uint64_t *mbarrier, int parity)
{
#if WGMMA_HERE
    asm volatile("{\n.reg .pred open;\nagain:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 open, [%0], %1;\n"
                 "@open bra.uni done;\nbra.uni again;\ndone:\n}" ::"r"(shared_address(mbarrier)),
                 "r"(parity)
                 : "memory");
#endif
}
/* Copies bytes (a multiple of 16, as are both addresses) from global to shared memory and counts them in the mbarrier. By one thread. */
static __device__ __forceinline__ void bulk_copy(void *shared, const void *global, int bytes, uint64_t *mbarrier)
{
#if WGMMA_HERE
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(shared)),
        "l"(global), "r"(bytes), "r"(shared_address(mbarrier))
        : "memory");
#endif
}

/* Makes a thread's stores to shared memory visible to what reads it asynchronously, after a barrier: wgmma and bulk copies. */
static __device__ __forceinline__ void async_proxy_fence()
{
#if WGMMA_HERE
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
/* Prefetches bytes (a multiple of 16, as is the address) into L2. */
static __device__ __forceinline__ void bulk_prefetch(const void *global, int bytes)
{
#if WGMMA_HERE
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(global), "r"(bytes) : "memory");
#endif
}
#endif

#endif
