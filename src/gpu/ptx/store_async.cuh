/* SPDX-License-Identifier: MIT */
/* store_async.cuh: asynchronous stores into the shared memory of another block of the cluster, counted by its mbarrier. */
#ifndef GPU_STORE_ASYNC_CUH
#define GPU_STORE_ASYNC_CUH

#include "mbarrier.cuh"

#ifndef MLFF_EMULATE
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
/* Arrives at an mbarrier with phases, of any block of the cluster: says that this thread has read something. What it has written is not made visible
 * there, which would take a fence of the whole GPU. */
static __device__ __forceinline__ void mbarrier_arrive_at(cluster_base mbarrier)
{
#if WGMMA_HERE
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(mbarrier) : "memory");
#endif
}
/* Copies bytes (a multiple of 16, as are both addresses) of shared memory to another block of the cluster and counts them in an mbarrier there. By
 * one thread. */
static __device__ __forceinline__ void bulk_copy_to_peer(cluster_base to, const void *from, int bytes, cluster_base mbarrier)
{
#if WGMMA_HERE
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "r"(shared_address(from)), "r"(bytes), "r"(mbarrier)
                 : "memory");
#endif
}
#endif

#endif
