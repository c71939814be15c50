/* SPDX-License-Identifier: MIT */
/* barrier.cuh: barriers: of warps of a block, of the blocks of a cluster, of all blocks. */
#ifndef GPU_BARRIER_CUH
#define GPU_BARRIER_CUH

#include "launch.cuh"

#ifndef MLFF_EMULATE
/* A barrier of the blocks of a cluster, in two parts. */
static __device__ __forceinline__ void cluster_arrive()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
/* The same without waiting for the whole GPU to see this thread's stores, of which only mbarriers matter (mbarrier_init_fence). */
static __device__ __forceinline__ void cluster_arrive_relaxed()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
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
#endif

/* This thread's warp in its block. The compiler knows that it is the same in all lanes, so that addresses of operands are computed once for a warp; from
 * threadIdx.x it does not, and copies each descriptor of a product from vector registers. By whole warps. */
static __device__ __forceinline__ int warp_in_block()
{
    return __shfl_sync(~0u, (int)threadIdx.x / 32, 0);
}

#endif
