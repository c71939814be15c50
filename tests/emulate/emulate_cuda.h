/* SPDX-License-Identifier: MIT */
/* emulate_cuda.h: enough of CUDA C++ to run the project's kernels on a CPU, thread by thread, where there is no GPU.
 *
 * Each CUDA thread is a fiber; blocks of a cluster run together, clusters one after the other (all together for cooperative
 * launches). A barrier, a shuffle or a tensor-core product suspends a fiber until all participants have arrived. Not fast, but
 * every index, barrier and sum of the real source is exercised, under the sanitizers too. Stands before each kernel source, with
 * MLFF_EMULATE. Threads and what suspends them are in emulate_threads.h, tensor-core products in emulate_products.h. */
#ifndef EMULATE_CUDA_H
#define EMULATE_CUDA_H

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define __global__
#define __device__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ static __attribute__((section("emulate_shared"))) // saved while a block is suspended
#define __constant__ const
#define WGMMA_HERE 1
#define DYNAMIC_SHARED(name) uint4 *name = (uint4 *)emulate::self().shared

struct float2 {
    float x, y;
};
struct float3 {
    float x, y, z;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct uint2 {
    uint32_t x, y;
};
struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};
static inline float2 make_float2(float x, float y)
{
    return {x, y};
}
static inline float3 make_float3(float x, float y, float z)
{
    return {x, y, z};
}
static inline float4 make_float4(float x, float y, float z, float w)
{
    return {x, y, z, w};
}
static inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w)
{
    return {x, y, z, w};
}
static inline uint2 make_uint2(uint32_t x, uint32_t y)
{
    return {x, y};
}
struct emulate_index {
    int x;
};
#pragma GCC visibility push(hidden)
extern emulate_index threadIdx, blockIdx, blockDim, gridDim; /* of the fiber that runs */
#pragma GCC visibility pop
using std::isfinite;
using std::isnan;
using std::max;
using std::min;

#include "emulate/emulate_threads.h"

static inline void __syncthreads()
{
    emulate::wait(*emulate::self().block_barrier, emulate::self().block_threads);
}
template <typename T> static inline T __shfl_sync(unsigned, T v, int source)
{
    return emulate::exchange(v, source);
}
template <typename T> static inline T __shfl_xor_sync(unsigned, T v, int mask)
{
    return emulate::exchange(v, (emulate::self().thread % 32) ^ mask);
}
static inline unsigned __ballot_sync(unsigned, bool v)
{
    unsigned mask = 0;
    emulate::exchange((int)v, 0);
    for (int k = 0; k < 32; k++) mask |= (unsigned)emulate::given<int>(k) << k;
    return mask;
}
static inline void group_barrier(int number, int threads)
{
    emulate::wait(emulate::self().block_barrier[number], threads);
}
static inline void __syncwarp()
{
    emulate::exchange(0, 0);
}
static inline int __popc(unsigned v)
{
    return __builtin_popcount(v);
}
template <typename T> static inline T __ldg(const T *p)
{
    return *p;
}
template <typename T> static inline void __stcs(T *p, T v)
{
    *p = v;
}
static inline float __int_as_float(int v)
{
    float r;
    memcpy(&r, &v, 4);
    return r;
}
static inline int __float_as_int(float v)
{
    int r;
    memcpy(&r, &v, 4);
    return r;
}
static inline uint32_t __float_as_uint(float v)
{
    uint32_t r;
    memcpy(&r, &v, 4);
    return r;
}
static inline float __uint_as_float(uint32_t v)
{
    float r;
    memcpy(&r, &v, 4);
    return r;
}
/* The C library's are calls. */
static inline float emulate_larger(float a, float b)
{
    return a > b || isnan(b) ? a : b;
}
static inline float emulate_smaller(float a, float b)
{
    return a < b || isnan(b) ? a : b;
}
#define fmaxf emulate_larger
#define fminf emulate_smaller
#define __expf expf
#define __logf logf
#define __cosf cosf
#define __sinf sinf
static inline float __fdividef(float a, float b)
{
    return a / b;
}
static inline double rsqrt(double v)
{
    return 1.0 / sqrt(v);
}
static inline float rsqrtf(float v)
{
    return 1.0f / sqrtf(v);
}
static inline int atomicOr(int *p, int v)
{
    int old = *p;
    *p |= v;
    return old;
}
static inline int atomicAdd(int *p, int v)
{
    int old = *p;
    *p += v;
    return old;
}
static inline int atomicMax(int *p, int v)
{
    int old = *p;
    *p = std::max(old, v);
    return old;
}

static inline void __threadfence()
{
}
static inline void wait_for_previous()
{
    emulate::hold();
}
static inline void let_next_start()
{
    emulate::trigger();
}
static inline uint64_t gpu_timer()
{
    return emulate::clock_ns += 10;
}
static inline float fast_exp2(float v)
{
    return exp2f(v);
}
static inline float fast_log2(float v)
{
    return log2f(v);
}
static inline float fast_reciprocal(float v)
{
    return 1.0f / v;
}
static inline float fast_sqrt(float v)
{
    return sqrtf(v);
}
static inline float fast_rsqrt(float v)
{
    return 1.0f / sqrtf(v);
}
template <int C> static inline void cluster_barrier()
{
    if (C > 1)
        emulate::wait(*emulate::self().cluster_barrier, emulate::self().cluster_threads);
    else
        __syncthreads();
}
#define cluster_arrive_relaxed cluster_arrive
static inline void cluster_arrive()
{
}
static inline void cluster_wait()
{
    emulate::wait(*emulate::self().cluster_barrier, emulate::self().cluster_threads);
}
static inline void grid_barrier(uint32_t *counter, int n_blocks, bool first, uint32_t &phase)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        *counter += first ? 0x80000000u - (uint32_t)(n_blocks - 1) : 1;
        phase ^= 0x80000000u;
        while ((*(volatile uint32_t *)counter ^ phase) & 0x80000000u) emulate::yield();
    }
    __syncthreads();
}
template <int C> static inline int cluster_rank()
{
    return C > 1 ? emulate::self().block % C : 0;
}
static inline void mbarrier_init_fence()
{
}
template <typename T> static inline T read_shared(const uint4 *base, uint32_t offset)
{
    return *(const T *)((const char *)base + offset);
}
static inline float pin_in_register(float v)
{
    return v;
}
static inline int recompute(int v)
{
    return v;
}
static inline const char *pin_in_register(const void *pointer)
{
    return (const char *)pointer;
}
/* An mbarrier with phases: bytes still expected, arrivals still expected (from bit 32), arrivals of a phase (48), parity (63). */
static inline void emulate_mbarrier_change(uint64_t *mbarrier, int64_t bytes, int arrivals)
{
    const uint64_t old = *mbarrier, whole = old >> 48 & 0x7fff;
    const int64_t left = (int64_t)(old & 0xffffffff) + bytes, pending = (int64_t)(old >> 32 & 0xffff) - arrivals;
    if (left < 0 || pending < 0) abort(); /* more than was expected */
    *mbarrier = left == 0 && pending == 0 ? ((old >> 63) ^ 1) << 63 | whole << 48 | whole << 32
                                          : (old >> 48) << 48 | (uint64_t)pending << 32 | (uint64_t)left;
}
static inline void mbarrier_init(uint64_t *mbarrier, int arrivals)
{
    *mbarrier = (uint64_t)arrivals << 48 | (uint64_t)arrivals << 32;
}
static inline void mbarrier_arrive(uint64_t *mbarrier)
{
    emulate_mbarrier_change(mbarrier, 0, 1);
}
static inline void mbarrier_expect(uint64_t *mbarrier, int bytes)
{
    emulate_mbarrier_change(mbarrier, bytes, 1);
}
static inline void mbarrier_wait(uint64_t *mbarrier, int parity)
{
    while ((int)(*(volatile uint64_t *)mbarrier >> 63) == parity) emulate::yield();
}
/* For one use. */
static inline void mbarrier_init_bytes(uint64_t *mbarrier, int bytes)
{
    mbarrier_init(mbarrier, 1);
    mbarrier_expect(mbarrier, bytes);
}
static inline void mbarrier_wait_bytes(uint64_t *mbarrier)
{
    mbarrier_wait(mbarrier, 0);
}
struct cluster_base {
    char *shared;
    size_t first; /* fiber of that block */
};
static inline cluster_base cluster_map(const void *base, int rank)
{
    emulate::fiber &me = emulate::self();
    const size_t first = (size_t)(me.cluster_first + rank) * me.block_threads;
    return {(*emulate::fibers)[first].shared + ((const char *)base - me.shared), first};
}
/* At once, or with delays later. The block whose first thread is fiber `first` must not have exited. */
static inline void emulate_check_runs(size_t first)
{
    const emulate::fiber *of = &(*emulate::fibers)[first];
    if (std::all_of(of, of + of->block_threads, [](const emulate::fiber &f) { return f.done; })) abort();
}
template <typename Work> static inline void emulate_asynchronously(size_t first, const Work &work)
{
    if (emulate::delays_work) {
        emulate::later([=] {
            emulate_check_runs(first);
            work();
        });
        return;
    }
    emulate_check_runs(first);
    work();
}
template <typename T> static inline void store_async(cluster_base peer, uint32_t offset, uint32_t mbarrier, T v)
{
    emulate_asynchronously(peer.first, [=] {
        *(T *)(peer.shared + offset) = v;
        emulate_mbarrier_change((uint64_t *)(peer.shared + mbarrier), -(int64_t)sizeof v, 0);
    });
}
static inline void mbarrier_arrive_at(cluster_base mbarrier)
{
    emulate_check_runs(mbarrier.first); /* not later: a barrier of the cluster orders it */
    mbarrier_arrive((uint64_t *)mbarrier.shared);
}
static inline void bulk_copy_to_peer(cluster_base to, const void *from, int bytes, cluster_base mbarrier)
{
    emulate_asynchronously(to.first, [=] {
        memcpy(to.shared, from, (size_t)bytes);
        emulate_mbarrier_change((uint64_t *)mbarrier.shared, -(int64_t)bytes, 0);
    });
}
static inline void bulk_copy(void *shared, const void *global, int bytes, uint64_t *mbarrier)
{
    if (bytes % 16 || (uintptr_t)shared % 16 || (uintptr_t)global % 16) abort();
    const emulate::fiber &me = emulate::self();
    emulate_asynchronously((size_t)(&me - emulate::fibers->data()) / me.block_threads * me.block_threads, [=] {
        memcpy(shared, global, (size_t)bytes);
        emulate_mbarrier_change(mbarrier, -(int64_t)bytes, 0);
    });
}
static inline void bulk_prefetch(const void *, int)
{
}
static inline void async_proxy_fence()
{
}
static inline void store_if(bool here, uint4 *global, uint4 v)
{
    if (here) *global = v;
}
template <typename T> static inline void load_if(bool here, const T *global, T &v)
{
    if (here) v = *global;
}
/* ---- of exchange.cuh: a load waits for each of its words, so that blocks which wait take no time */
static inline void exchange_load(const void *from, uint4 &v)
{
    const unsigned *const word = (const unsigned *)from;
    for (int k = 0; k < 4; k++) emulate::wait_until_changed(word[k], 0xffffffffu);
    v = *(const uint4 *)from;
}
static inline void exchange_load_if(bool here, const void *from, uint4 &v)
{
    if (here) exchange_load(from, v);
}
template <typename T> static inline void exchange_store(void *to, T v)
{
    *(T *)to = v;
}
static inline void exchange_fence()
{
}
static inline float2 request_two(const float *from)
{
    return *(const float2 *)from;
}
static inline uint4 request_constants(const void *from)
{
    return *(const uint4 *)from;
}
static inline void copy_async(void *shared, const void *global)
{
    if (emulate::delays_work)
        emulate::copy_later(shared, global);
    else
        memcpy(shared, global, 16);
}
static inline void copy_commit()
{
    if (emulate::delays_work) emulate::commit_copies();
}
template <int N> static inline void copy_wait()
{
    if (emulate::delays_work) emulate::wait_for_copies(N);
}

#include "emulate/emulate_products.h"

#endif
