/* SPDX-License-Identifier: MIT */
/* emulate_cuda.h: enough of CUDA C++ to run the project's kernels on a CPU, thread by thread, where there is no GPU.
 *
 * Each CUDA thread is a fiber; blocks of a cluster run together, clusters one after the other (all together for cooperative
 * launches). A barrier, a shuffle or a tensor-core product suspends a fiber until all participants have arrived. Not fast, but
 * every index, barrier and sum of the real source is exercised, under the sanitizers too. Stands before each kernel source, with
 * MLFF_EMULATE. */
#ifndef EMULATE_CUDA_H
#define EMULATE_CUDA_H

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <immintrin.h>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ static __attribute__((section("emulate_shared"))) // saved while a block is suspended
#define __constant__ const
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

/* Reads and writes the emulator's own memory only: sanitizers check kernels. */
#define EMULATE_OWN __attribute__((no_sanitize("address", "undefined")))
#define EMULATE_INLINE __attribute__((always_inline)) static inline

namespace emulate
{
struct warp_state {
    int arrived = 0;
    unsigned generation = 0;
    uint64_t in[2][32];
    alignas(16) float rows[2][16][16], columns[2][8][16]; // operands of a product, 16 (or 8) numbers along k each
};
struct barrier_state {
    int arrived = 0;
    unsigned generation = 0;
};
struct context { // of what is suspended
    void *stack, *frame, *resume;
};
struct fiber {
    context at;
    int thread, block, cluster_first; /* of the blocks that run together, its cluster's first */
    bool done;
    fiber *warp_end; /* behind the warp's last lane */
    char *shared;
    warp_state *warp;
    barrier_state *block_barrier /* [16] */, *cluster_barrier;
    int block_threads, cluster_threads;
    const unsigned *awaited; // not resumed while this has the value `seen`
    unsigned seen;
};
#pragma GCC visibility push(hidden)
extern fiber *current;
extern context scheduler;
extern std::vector<fiber> *fibers;
extern uint64_t clock_ns; /* grows with what is done */
#pragma GCC visibility pop
__attribute__((always_inline)) inline fiber &self()
{
    return *current;
}
/* In place, not a call: lanes in lockstep resume at one instruction and below the same callers, both of which the CPU predicts. */
__attribute__((always_inline)) inline void switch_context(context *from, const context *to)
{
    asm volatile("movq %%rsp, (%0)\n\tmovq %%rbp, 8(%0)\n\tleaq 1f(%%rip), %%rax\n\tmovq %%rax, 16(%0)\n\t"
                 "movq (%1), %%rsp\n\tmovq 8(%1), %%rbp\n\tjmp *16(%1)\n1:"
                 : "+D"(from), "+S"(to)
                 :
                 : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "xmm0", "xmm1", "xmm2",
                   "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15",
                   "cc", "memory");
}
/* To the warp's next lane that can go on; after the last one to the scheduler. */
EMULATE_OWN inline void yield()
{
    fiber *const me = current, *next = me + 1;
    while (next < me->warp_end && (next->done || (next->awaited && *next->awaited == next->seen))) next++;
    if (next == me->warp_end) {
        switch_context(&me->at, &scheduler);
    } else {
        current = next;
        threadIdx.x = next->thread;
        switch_context(&me->at, &next->at);
    }
}
EMULATE_OWN inline void wait_until_changed(const unsigned &generation, unsigned seen)
{
    fiber *const me = current;
    me->awaited = &generation;
    me->seen = seen;
    while (generation == seen) yield();
    me->awaited = nullptr;
}
struct block_set;
/* A launched kernel. `together`: blocks that run at once, a multiple of the cluster. */
struct launch_shape {
    int blocks, threads;
    size_t shared_bytes;
    int cluster, together;
    std::function<void()> body;
};
class grid
{
  public:
    explicit grid(const launch_shape &launched);
    ~grid();
    void begin();       // some blocks, until their threads wait for the previous kernel
    bool starts_next(); // these let the next kernel start already
    bool never_waits(); // all blocks have ended already
    void finish();      // all blocks

  private:
    const launch_shape &shape;
    std::vector<block_set *> begun; // of the sets of blocks; NULL: not begun
};
extern bool delays_work; /* MLFF_EMULATE_DELAY */
void later(std::function<void()> work);
void copy_later(void *shared, const void *global);
void commit_copies();
void wait_for_copies(size_t groups);
void hold();    /* until the previous kernel is complete */
void trigger(); /* the next kernel may start */
/* What a lane gave to the last exchange: kept in its half of the buffer until the collective after the next. */
template <typename T> EMULATE_OWN T given(int lane)
{
    const warp_state &w = *self().warp;
    T value;
    memcpy(&value, &w.in[(w.generation - 1) & 1][lane & 31], sizeof value);
    return value;
}
template <typename T> EMULATE_OWN T exchange(T value, int source)
{
    warp_state &w = *self().warp;
    const unsigned g = w.generation;
    memcpy(&w.in[g & 1][self().thread % 32], &value, sizeof value);
    if (++w.arrived == 32) {
        w.arrived = 0;
        w.generation++;
    }
    wait_until_changed(w.generation, g);
    return given<T>(source);
}
EMULATE_OWN inline void wait(barrier_state &b, int n)
{
    unsigned g = b.generation;
    if (++b.arrived == n) {
        b.arrived = 0;
        b.generation++;
    }
    wait_until_changed(b.generation, g);
}
} // namespace emulate

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
static inline void async_proxy_fence()
{
}
static inline void store_if(bool here, uint4 *global, uint4 v)
{
    if (here) *global = v;
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
/* Sixteen numbers along k, and eight halves (or bfloat16) as floats. Products call these for most of the time that they take:
 * no branches, and no more than SSE2 where the compiler may not use more. */
struct emulate_sixteen {
    __m128 of[4];
};
template <bool bfloat> EMULATE_INLINE __m128 emulate_unpack(__m128i halves) /* the first four */
{
    const __m128i bits = _mm_unpacklo_epi16(halves, _mm_setzero_si128());
    if (bfloat) return _mm_castsi128_ps(_mm_slli_epi32(bits, 16));
#ifdef __F16C__
    return _mm_cvtph_ps(halves);
#endif
    const __m128i size = _mm_and_si128(bits, _mm_set1_epi32(0x7fff)), rebias = _mm_set1_epi32(112 << 23);
    const __m128i sign = _mm_slli_epi32(_mm_xor_si128(bits, size), 16);
    const __m128i small = _mm_castps_si128(_mm_mul_ps(_mm_cvtepi32_ps(size), _mm_set1_ps(5.9604644775390625e-08f))); /* 2⁻²⁴ */
    const __m128i infinite = _mm_cmpgt_epi32(size, _mm_set1_epi32(0x7bff)),
                  subnormal = _mm_cmplt_epi32(size, _mm_set1_epi32(0x400));
    const __m128i normal = _mm_add_epi32(_mm_add_epi32(_mm_slli_epi32(size, 13), rebias), _mm_and_si128(infinite, rebias));
    return _mm_castsi128_ps(
        _mm_or_si128(sign, _mm_or_si128(_mm_and_si128(subnormal, small), _mm_andnot_si128(subnormal, normal))));
}
template <bool bfloat> EMULATE_INLINE void emulate_unpack_eight(__m128i halves, __m128 *out)
{
    out[0] = emulate_unpack<bfloat>(halves);
    out[1] = emulate_unpack<bfloat>(_mm_unpackhi_epi64(halves, halves));
}
template <bool bfloat> static inline emulate_sixteen emulate_operand(const char *at, int k_stride)
{
    emulate_sixteen v;
    emulate_unpack_eight<bfloat>(_mm_loadu_si128((const __m128i *)at), v.of);
    emulate_unpack_eight<bfloat>(_mm_loadu_si128((const __m128i *)(at + k_stride)), v.of + 2);
    return v;
}
EMULATE_INLINE emulate_sixteen emulate_load(const float *at)
{
    return {{_mm_loadu_ps(at), _mm_loadu_ps(at + 4), _mm_loadu_ps(at + 8), _mm_loadu_ps(at + 12)}};
}
EMULATE_INLINE __m128 emulate_products(const emulate_sixteen &a, const emulate_sixteen &b)
{
    return _mm_add_ps(_mm_add_ps(_mm_mul_ps(a.of[0], b.of[0]), _mm_mul_ps(a.of[1], b.of[1])),
                      _mm_add_ps(_mm_mul_ps(a.of[2], b.of[2]), _mm_mul_ps(a.of[3], b.of[3])));
}
/* The products of two rows and two columns: x0·y0, x0·y1, x1·y0, x1·y1. */
EMULATE_INLINE __m128 emulate_dots(const emulate_sixteen (&x)[2], const emulate_sixteen (&y)[2])
{
    const __m128 a = emulate_products(x[0], y[0]), b = emulate_products(x[0], y[1]), c = emulate_products(x[1], y[0]),
                 d = emulate_products(x[1], y[1]);
    const __m128 ab = _mm_add_ps(_mm_unpacklo_ps(a, b), _mm_unpackhi_ps(a, b)),
                 cd = _mm_add_ps(_mm_unpacklo_ps(c, d), _mm_unpackhi_ps(c, d));
    return _mm_add_ps(_mm_movelh_ps(ab, cd), _mm_movehl_ps(cd, ab));
}
static inline float2 unpack_half2(uint32_t w)
{
    float v[4];
    _mm_storeu_ps(v, emulate_unpack<false>(_mm_cvtsi32_si128((int)w)));
    return {v[0], v[1]};
}
static inline uint32_t emulate_to_half(float v)
{
    const uint32_t bits = __float_as_uint(v), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    if (size >= 0x477ff000) return sign | 0x7c00;                                                      /* 65520 */
    if (size < 0x38800000) return sign | (__float_as_uint(__uint_as_float(size) + 0.5f) - 0x3f000000); /* rounds to 2⁻²⁴ */
    return sign | ((size - (112 << 23) + 0xfff + (size >> 13 & 1)) >> 13);
}
static inline uint32_t pack_half2(float a, float b)
{
    return emulate_to_half(a) | emulate_to_half(b) << 16;
}
static inline uint32_t fma_half2(uint32_t a, uint32_t b, uint32_t c)
{
    const float2 x = unpack_half2(a), y = unpack_half2(b), z = unpack_half2(c);
    return pack_half2(x.x * y.x + z.x, x.y * y.y + z.y);
}
static inline uint32_t pack_bfloat2(float a, float b)
{
    const auto round = [](float v) {
        uint32_t bits = __float_as_uint(v);
        return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    };
    return round(a) | round(b) << 16;
}
static inline uint32_t transpose_tile(uint32_t v)
{
    const int lane = emulate::self().thread % 32, g = lane / 4, t = lane % 4;
    const uint32_t even = emulate::exchange(v, 8 * t + g / 2), odd = emulate::given<uint32_t>(8 * t + 4 + g / 2);
    return (even >> g % 2 * 16 & 0xffff) | (odd >> g % 2 * 16 & 0xffff) << 16;
}
template <bool transposed> static inline uint4 load_tiles(const uint4 *row)
{
    const int lane = emulate::self().thread % 32, g = lane / 4, t = lane % 4;
    uint32_t v[4];
    emulate::exchange(row, 0);
    for (int tile = 0; tile < 4; tile++) {
        const uint16_t *const even = emulate::given<const uint16_t *>(8 * tile + (transposed ? 2 * t : g)),
                              *const odd = emulate::given<const uint16_t *>(8 * tile + (transposed ? 2 * t + 1 : g));
        v[tile] = transposed ? even[g] | (uint32_t)odd[g] << 16 : even[2 * t] | (uint32_t)odd[2 * t + 1] << 16;
    }
    __syncwarp(); // all lanes have read before one overwrites a row
    return {v[0], v[1], v[2], v[3]};
}
/* A thread's words of the 16 × 16 operand A, to the warp's rows. */
template <bool bfloat> EMULATE_OWN static inline void emulate_give_rows(emulate::warp_state &w, unsigned half, uint4 a)
{
    const int lane = emulate::self().thread % 32, g = lane / 4, t = lane % 4;
    __m128 v[2];
    emulate_unpack_eight<bfloat>(_mm_set_epi32((int)a.w, (int)a.z, (int)a.y, (int)a.x), v);
    for (int k = 0; k < 2; k++) {
        _mm_storel_pi((__m64 *)&w.rows[half][g][2 * t + 8 * k], v[k]);
        _mm_storeh_pi((__m64 *)&w.rows[half][g + 8][2 * t + 8 * k], v[k]);
    }
}
template <bool bfloat> EMULATE_OWN static inline __m128 emulate_product(uint4 a, uint32_t b0, uint32_t b1)
{
    emulate::warp_state &w = *emulate::self().warp;
    const int lane = emulate::self().thread % 32, g = lane / 4, t = lane % 4;
    const unsigned half = w.generation & 1;
    emulate_give_rows<bfloat>(w, half, a);
    const __m128 b = emulate_unpack<bfloat>(_mm_set_epi32(0, 0, (int)b1, (int)b0));
    _mm_storel_pi((__m64 *)&w.columns[half][g][2 * t], b);
    _mm_storeh_pi((__m64 *)&w.columns[half][g][2 * t + 8], b);
    emulate::exchange(0, 0);
    const emulate_sixteen y[2] = {emulate_load(w.columns[half][2 * t]), emulate_load(w.columns[half][2 * t + 1])};
    const emulate_sixteen x[2] = {emulate_load(w.rows[half][g]), emulate_load(w.rows[half][g + 8])};
    return emulate_dots(x, y);
}
template <bool bfloat> static inline void product(float4 &d, const uint4 &a, uint32_t b0, uint32_t b1)
{
    const __m128 sums = emulate_product<bfloat>(a, b0, b1);
    _mm_store_ps(&d.x, _mm_add_ps(_mm_load_ps(&d.x), sums));
}

/* ---- of tf32_product.cuh */
static inline void tf32_mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    emulate::warp_state &w = *emulate::self().warp;
    const int lane = emulate::self().thread % 32, g = lane / 4, t = lane % 4;
    const unsigned half = w.generation & 1;
    for (int k = 0; k < 4; k++) w.rows[half][g + k % 2 * 8][t + k / 2 * 4] = __uint_as_float(a[k] & 0xffffe000u);
    for (int k = 0; k < 2; k++) w.columns[half][g][t + 4 * k] = __uint_as_float(b[k] & 0xffffe000u);
    emulate::exchange(0, 0);
    __m128 sums = _mm_loadu_ps(d); // of two rows and two columns, added k by k
    for (int k = 0; k < 8; k += 4) {
        const __m128 x0 = _mm_load_ps(w.rows[half][g] + k), x1 = _mm_load_ps(w.rows[half][g + 8] + k),
                     y0 = _mm_load_ps(w.columns[half][2 * t] + k), y1 = _mm_load_ps(w.columns[half][2 * t + 1] + k);
        const __m128 x[2] = {_mm_unpacklo_ps(x0, x1), _mm_unpackhi_ps(x0, x1)},
                     y[2] = {_mm_unpacklo_ps(y0, y1), _mm_unpackhi_ps(y0, y1)};
        for (int two = 0; two < 2; two++) {
            sums = _mm_add_ps(sums, _mm_mul_ps(_mm_unpacklo_ps(x[two], x[two]), _mm_movelh_ps(y[two], y[two])));
            sums = _mm_add_ps(sums, _mm_mul_ps(_mm_unpackhi_ps(x[two], x[two]), _mm_movehl_ps(y[two], y[two])));
        }
    }
    _mm_storeu_ps(d, sums);
}

/* ---- of wgmma.cuh */
#define WGMMA_HERE 1

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
template <int N> static inline void wgmma_release_registers()
{
}
template <int N> static inline void wgmma_claim_registers()
{
}
static inline void wgmma_begin()
{
}
static inline void wgmma_commit()
{
}
template <int N> static inline void wgmma_wait()
{
}
struct wgmma_operand {
    const char *at;
    int k_stride, column_stride;
};
static inline wgmma_operand wgmma_operand_at(const void *shared, int k_stride, int column_stride)
{
    return {(const char *)shared, k_stride, column_stride};
}
static inline wgmma_operand wgmma_operand_after(wgmma_operand b, int bytes)
{
    return {b.at + bytes, b.k_stride, b.column_stride};
}
/* The thread's sums of rows g and g + 8 with the columns of operand b. */
template <bool bfloat, int SUMS>
static inline void emulate_wgmma(float (&d)[SUMS], const emulate_sixteen (&x)[2], wgmma_operand b, int add)
{
    const char *column = b.at + emulate::self().thread % 4 * 32;
    for (int j = 0; j < SUMS / 4; j++, column += b.column_stride) {
        const emulate_sixteen y[2] = {emulate_operand<bfloat>(column, b.k_stride),
                                      emulate_operand<bfloat>(column + 16, b.k_stride)};
        const __m128 before = add ? _mm_loadu_ps(d + 4 * j) : _mm_setzero_ps();
        _mm_storeu_ps(d + 4 * j, _mm_add_ps(before, emulate_dots(x, y)));
    }
}
template <int SUMS> static inline void wgmma_product(float (&d)[SUMS], const uint4 &a, wgmma_operand b, int add)
{
    emulate::warp_state &w = *emulate::self().warp;
    const int g = emulate::self().thread % 32 / 4;
    const unsigned half = w.generation & 1;
    emulate_give_rows<false>(w, half, a);
    emulate::exchange(0, 0);
    const emulate_sixteen x[2] = {emulate_load(w.rows[half][g]), emulate_load(w.rows[half][g + 8])};
    emulate_wgmma<false>(d, x, b, add);
}
template <int SUMS> static inline void wgmma_settle(float (&)[SUMS])
{
}
template <bool bfloat, int SUMS>
static inline void wgmma_shared_product(float (&d)[SUMS], wgmma_operand a, wgmma_operand b, int add)
{
    const int lane = emulate::self().thread % 32, warp = emulate::self().thread / 32 % 4;
    const char *row = a.at + 2 * warp * a.column_stride + lane / 4 * 16;
    const emulate_sixteen x[2] = {emulate_operand<bfloat>(row, a.k_stride),
                                  emulate_operand<bfloat>(row + a.column_stride, a.k_stride)};
    emulate_wgmma<bfloat>(d, x, b, add);
}
#endif
