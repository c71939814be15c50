/* SPDX-License-Identifier: MIT */
/* painn_wgmma_product.cuh: products of four warps (wgmma.cuh) whose rows are features: weights are operand A, in registers; atoms are
 * columns, operand B, in shared memory in the layout of the warps' sums: two atoms of a feature adjacent. A thread's sums d[j] are rows
 * 16 warp + g and that + 8 of atoms 8 j + 2 t and the next; as weights are packed these rows are features 16 warp + 2 g and the next. */
#ifndef PAINN_WGMMA_PRODUCT_CUH
#define PAINN_WGMMA_PRODUCT_CUH

#include "gpu/ptx/wgmma.cuh"

#ifndef MLFF_EMULATE
/* Makes stores to shared memory visible to products after the next barrier. */
static __device__ __forceinline__ void operand_fence()
{
#if WGMMA_HERE
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
/* Cache policy: weights stay in L2 while data that is read once passes through it. */
static __device__ __forceinline__ uint64_t policy_of_weights()
{
    uint64_t policy = 0;
#if WGMMA_HERE
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
#endif
    return policy;
}
/* A load that stays in program order: a ring is useless if the compiler sinks the loads to their uses. */
static __device__ __forceinline__ void load_weights(uint4 &v, const uint4 *at, uint64_t policy)
{
#if WGMMA_HERE
    asm volatile("ld.relaxed.gpu.global.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(at), "l"(policy));
#endif
}
static __device__ __forceinline__ void prefetch_to_l2(const void *at)
{
#if WGMMA_HERE
    asm volatile("prefetch.global.L2::evict_last [%0];" ::"l"(at));
#endif
}
/* Stores a warp's pieces of 8 of k × 8 columns: one, and `k8` bytes further the next 8 of k; low parts `part` bytes further. A row of a
 * piece is 16 bytes, from four lanes. */
static __device__ __forceinline__ void store_pieces(char *at, int lane, int k8, int part, uint2 high, uint2 low)
{
#if WGMMA_HERE
    const uint32_t row = shared_address(at) + (lane % 8 * 16 + lane / 8 % 2 * k8 + lane / 16 * part);
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(high.x), "r"(high.y),
                 "r"(low.x), "r"(low.y)
                 : "memory");
#endif
}
static __device__ __forceinline__ void store_pieces(char *at, int lane, int k8, uint2 v)
{
#if WGMMA_HERE
    const uint32_t row = shared_address(at) + (lane % 8 * 16 + lane / 8 % 2 * k8);
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(row), "r"(v.x), "r"(v.y) : "memory");
#endif
}
/* Operand B of 16 of k: blocks of 8 of k × 8 columns, 16 bytes (8 columns) for each k; k_stride: bytes to the next 8 of k. */
typedef uint64_t row_operand;
static __device__ __forceinline__ row_operand row_operand_at(const void *shared, int k_stride)
{
    return (row_operand)(shared_address(shared) >> 4 & 0x3fff) | (row_operand)(k_stride >> 4) << 16 |
           (row_operand)(128 >> 4) << 32;
}
static __device__ __forceinline__ row_operand row_operand_after(row_operand b, int bytes)
{
    return b + (row_operand)(bytes >> 4);
}
#if WGMMA_HERE
/* The first product of a sum has it as output only. With an undefined input the compiler may assign it the registers of another sum that
 * is still in use (nvcc 13.0: the readout's q̄). */
#define ROWS_D(io, i) io(d[i].x), io(d[i].y), io(d[i].z), io(d[i].w)
#define ROWS_D1(io) ROWS_D(io, 0)
#define ROWS_D2(io) ROWS_D1(io), ROWS_D(io, 1)
#define ROWS_D3(io) ROWS_D2(io), ROWS_D(io, 2)
#define ROWS_D4(io) ROWS_D3(io), ROWS_D(io, 3)
#define ROWS_D6(io) ROWS_D4(io), ROWS_D(io, 4), ROWS_D(io, 5)
#define ROWS_D8(io) ROWS_D6(io), ROWS_D(io, 6), ROWS_D(io, 7)
#define ROWS_D9(io) ROWS_D8(io), ROWS_D(io, 8)
#define ROWS_D12(io) ROWS_D9(io), ROWS_D(io, 9), ROWS_D(io, 10), ROWS_D(io, 11)
#define ROWS_OUT "=f"
#define ROWS_IN_OUT "+f"
#define ROWS_PRODUCT(N, type, add, list, after, sums)                                                                            \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." type "." type " {" list "}, " after ", " add ", 1, 1, 1;"     \
                 : sums                                                                                                          \
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "l"(b))
#define ROWS_L4 "%0,%1,%2,%3"
#define ROWS_L8 ROWS_L4 ",%4,%5,%6,%7"
#define ROWS_L12 ROWS_L8 ",%8,%9,%10,%11"
#define ROWS_L16 ROWS_L12 ",%12,%13,%14,%15"
#define ROWS_L24 ROWS_L16 ",%16,%17,%18,%19,%20,%21,%22,%23"
#define ROWS_L32 ROWS_L24 ",%24,%25,%26,%27,%28,%29,%30,%31"
#define ROWS_L36 ROWS_L32 ",%32,%33,%34,%35"
#define ROWS_L48 ROWS_L36 ",%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define ROWS_A4 "{%4,%5,%6,%7}, %8"
#define ROWS_A8 "{%8,%9,%10,%11}, %12"
#define ROWS_A12 "{%12,%13,%14,%15}, %16"
#define ROWS_A16 "{%16,%17,%18,%19}, %20"
#define ROWS_A24 "{%24,%25,%26,%27}, %28"
#define ROWS_A32 "{%32,%33,%34,%35}, %36"
#define ROWS_A36 "{%36,%37,%38,%39}, %40"
#define ROWS_A48 "{%48,%49,%50,%51}, %52"
/* d = a b, or with `add` d += a b, of 64 × 16 and 16 × N numbers; SUMS a fourth of N / 2, L and A lists of N / 2. */
#define ROWS_PRODUCTS(N, SUMS, L)                                                                                                \
    template <bool bfloat, bool add>                                                                                             \
    static __device__ __forceinline__ void row_product(float4(&d)[SUMS], const uint4 &a, row_operand b)                          \
    {                                                                                                                            \
        if (bfloat && add)                                                                                                       \
            ROWS_PRODUCT(N, "bf16", "1", ROWS_L##L, ROWS_A##L, ROWS_D##SUMS(ROWS_IN_OUT));                                       \
        else if (bfloat)                                                                                                         \
            ROWS_PRODUCT(N, "bf16", "0", ROWS_L##L, ROWS_A##L, ROWS_D##SUMS(ROWS_OUT));                                          \
        else if (add)                                                                                                            \
            ROWS_PRODUCT(N, "f16", "1", ROWS_L##L, ROWS_A##L, ROWS_D##SUMS(ROWS_IN_OUT));                                        \
        else                                                                                                                     \
            ROWS_PRODUCT(N, "f16", "0", ROWS_L##L, ROWS_A##L, ROWS_D##SUMS(ROWS_OUT));                                           \
    }
ROWS_PRODUCTS(8, 1, 4)
ROWS_PRODUCTS(16, 2, 8)
ROWS_PRODUCTS(24, 3, 12)
ROWS_PRODUCTS(32, 4, 16)
ROWS_PRODUCTS(48, 6, 24)
ROWS_PRODUCTS(64, 8, 32)
ROWS_PRODUCTS(72, 9, 36)
ROWS_PRODUCTS(96, 12, 48)
/* After a wait: keeps uses of the sums behind it. */
template <int J> static __device__ __forceinline__ void operand_settle(float4 (&d)[J])
{
#pragma unroll
    for (int i = 0; i < J; i++) asm volatile("" : "+f"(d[i].x), "+f"(d[i].y), "+f"(d[i].z), "+f"(d[i].w)::"memory");
}
#else
template <bool bfloat, bool add, int J>
static __device__ __forceinline__ void row_product(float4 (&)[J], const uint4 &, row_operand)
{
}
template <int J> static __device__ __forceinline__ void operand_settle(float4 (&)[J])
{
}
#endif
#else
static inline uint64_t policy_of_weights()
{
    return 0;
}
static inline void load_weights(uint4 &v, const uint4 *at, uint64_t)
{
    v = *at;
}
static inline void prefetch_to_l2(const void *)
{
}
static inline void operand_fence()
{
}
static inline void store_pieces(char *at, int lane, int k8, uint2 v)
{
    *(uint32_t *)(at + lane * 4) = v.x;
    *(uint32_t *)(at + lane * 4 + k8) = v.y;
}
static inline void store_pieces(char *at, int lane, int k8, int part, uint2 high, uint2 low)
{
    store_pieces(at, lane, k8, high);
    store_pieces(at + part, lane, k8, low);
}
struct row_operand {
    const char *at;
    int k_stride;
};
static inline row_operand row_operand_at(const void *shared, int k_stride)
{
    return {(const char *)shared, k_stride};
}
static inline row_operand row_operand_after(row_operand b, int bytes)
{
    return {b.at + bytes, b.k_stride};
}
template <int J> static inline void operand_settle(float4 (&)[J])
{
}
template <bool bfloat, bool add, int J> static inline void row_product(float4 (&d)[J], const uint4 &a, row_operand b)
{
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    for (int j = 0; j < J; j++) {
        uint32_t w[2];
        for (int h = 0; h < 2; h++) {
            uint16_t pair[2];
            for (int c = 0; c < 2; c++) memcpy(pair + c, b.at + h * b.k_stride + j * 128 + (2 * t + c) * 16 + g * 2, 2);
            w[h] = pair[0] | (uint32_t)pair[1] << 16;
        }
        if (!add) d[j] = make_float4(0, 0, 0, 0);
        product<bfloat>(d[j], a, w[0], w[1]);
    }
}
#endif

#endif
