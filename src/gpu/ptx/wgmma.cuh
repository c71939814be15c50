/* SPDX-License-Identifier: MIT */
/* wgmma.cuh: products of four warps together (wgmma), of 64 rows with up to 256 columns. Hopper only: where WGMMA_HERE is
 * 0 all functions are empty, and a plan must not choose a kernel that uses them. Emulated: tests/emulate.
 *
 * Rows are operand A, in registers: thread (warp w, lane 4 g + t) of the four warps has rows 16 w + g and 16 w + g + 8, as for
 * `product`. Columns are operand B, in shared memory, in blocks of 8 columns × 8 of k: 16 bytes for a column, 128 bytes for a block.
 * Sums: d[4 j …] is (g, 8 j + 2 t), (g, 8 j + 2 t + 1), (g + 8, the same two): a thread's sums, split into halves, are its operand A
 * of a next product. */
#ifndef GPU_WGMMA_CUH
#define GPU_WGMMA_CUH

#include "primitives.cuh"

#ifndef MLFF_EMULATE
/* Sets the registers of each thread from here on; called by four whole warps. Registers released by some can be claimed by others. */
template <int N> static __device__ __forceinline__ void wgmma_release_registers()
{
#if WGMMA_HERE
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
#endif
}
template <int N> static __device__ __forceinline__ void wgmma_claim_registers()
{
#if WGMMA_HERE
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
#endif
}

/* ---- products: begin, some products, commit; complete only after a wait. By all four warps, with the same operand B */

static __device__ __forceinline__ void wgmma_begin()
{
#if WGMMA_HERE
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
static __device__ __forceinline__ void wgmma_commit()
{
#if WGMMA_HERE
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
/* Waits until at most N groups of products are in flight. Registers that a product in flight reads or writes must have been set on every
 * path that leads here: sums before their first product, operands A before a loop repeats. Otherwise the compiler reserves registers for
 * them from the beginning of the kernel. */
template <int N> static __device__ __forceinline__ void wgmma_wait()
{
#if WGMMA_HERE
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
#endif
}

/* Descriptor of an operand B of 16 of k in shared memory; strides in bytes to the next 8 of k and to the next 8 columns. */
typedef uint64_t wgmma_operand;
static __device__ __forceinline__ wgmma_operand wgmma_operand_at(const void *shared, int k_stride, int column_stride)
{
    return (wgmma_operand)(shared_address(shared) >> 4 & 0x3fff) | (wgmma_operand)(k_stride >> 4) << 16 |
           (wgmma_operand)(column_stride >> 4) << 32;
}
/* The same, `bytes` further. */
static __device__ __forceinline__ wgmma_operand wgmma_operand_after(wgmma_operand b, int bytes)
{
    return (b & ~(wgmma_operand)0xffffffff) |
           ((uint32_t)b + (uint32_t)(bytes >> 4)); // within shared memory, so nothing is carried
}

#define WGMMA_P16(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p)                                                                \
    "%" #a ",%" #b ",%" #c ",%" #d ",%" #e ",%" #f ",%" #g ",%" #h ",%" #i ",%" #j ",%" #k ",%" #l ",%" #m ",%" #n ",%" #o ","   \
    "%" #p
#define WGMMA_P4(a, b, c, d) "%" #a ",%" #b ",%" #c ",%" #d
#define WGMMA_N16 WGMMA_P4(0, 1, 2, 3) "," WGMMA_P4(4, 5, 6, 7)
#define WGMMA_N24 WGMMA_N16 "," WGMMA_P4(8, 9, 10, 11)
#define WGMMA_N32 WGMMA_P16(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
#define WGMMA_N40 WGMMA_N32 "," WGMMA_P4(16, 17, 18, 19)
#define WGMMA_N48 WGMMA_N40 "," WGMMA_P4(20, 21, 22, 23)
#define WGMMA_N64 WGMMA_N32 "," WGMMA_P16(16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31)
#define WGMMA_N80 WGMMA_N64 "," WGMMA_P4(32, 33, 34, 35) "," WGMMA_P4(36, 37, 38, 39)
#define WGMMA_N96 WGMMA_N64 "," WGMMA_P16(32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47)
#define WGMMA_N128 WGMMA_N96 "," WGMMA_P16(48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63)
#define WGMMA_N160 WGMMA_N128 "," WGMMA_P16(64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75, 76, 77, 78, 79)
#define WGMMA_N192 WGMMA_N160 "," WGMMA_P16(80, 81, 82, 83, 84, 85, 86, 87, 88, 89, 90, 91, 92, 93, 94, 95)
#define WGMMA_N224 WGMMA_N192 "," WGMMA_P16(96, 97, 98, 99, 100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111)
#define WGMMA_N256 WGMMA_N224 "," WGMMA_P16(112, 113, 114, 115, 116, 117, 118, 119, 120, 121, 122, 123, 124, 125, 126, 127)
#define WGMMA_SUMS4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define WGMMA_SUMS16(i) WGMMA_SUMS4(i), WGMMA_SUMS4(i + 4), WGMMA_SUMS4(i + 8), WGMMA_SUMS4(i + 12)
#define WGMMA_D16 WGMMA_SUMS4(0), WGMMA_SUMS4(4)
#define WGMMA_D24 WGMMA_D16, WGMMA_SUMS4(8)
#define WGMMA_D32 WGMMA_SUMS16(0)
#define WGMMA_D40 WGMMA_D32, WGMMA_SUMS4(16)
#define WGMMA_D48 WGMMA_D40, WGMMA_SUMS4(20)
#define WGMMA_D64 WGMMA_D32, WGMMA_SUMS16(16)
#define WGMMA_D80 WGMMA_D64, WGMMA_SUMS4(32), WGMMA_SUMS4(36)
#define WGMMA_D96 WGMMA_D64, WGMMA_SUMS16(32)
#define WGMMA_D128 WGMMA_D96, WGMMA_SUMS16(48)
#define WGMMA_D160 WGMMA_D128, WGMMA_SUMS16(64)
#define WGMMA_D192 WGMMA_D160, WGMMA_SUMS16(80)
#define WGMMA_D224 WGMMA_D192, WGMMA_SUMS16(96)
#define WGMMA_D256 WGMMA_D224, WGMMA_SUMS16(112)
/* a0 …: numbers of the asm operands after N/2 sums. */
#define WGMMA_PRODUCT(N, a0, a1, a2, a3, bb, more)                                                                               \
    static __device__ __forceinline__ void wgmma_product(float(&d)[N / 2], const uint4 &a, wgmma_operand b, int add)             \
    {                                                                                                                            \
        asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" #more ", 0;\n"                                                     \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.f16.f16 {" WGMMA_N##N                                       \
                     "}, {%" #a0 ",%" #a1 ",%" #a2 ",%" #a3 "}, %" #bb ", add, 1, 1, 0;\n}"                                      \
                     : WGMMA_D##N                                                                                                \
                     : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "l"(b), "r"(add));                                                \
    }
#if WGMMA_HERE
/* d = a b, with `add` d += a b, of 64 × 16 and 16 × N halves. */
WGMMA_PRODUCT(64, 32, 33, 34, 35, 36, 37)
WGMMA_PRODUCT(96, 48, 49, 50, 51, 52, 53)
WGMMA_PRODUCT(128, 64, 65, 66, 67, 68, 69)
WGMMA_PRODUCT(160, 80, 81, 82, 83, 84, 85)
WGMMA_PRODUCT(192, 96, 97, 98, 99, 100, 101)
WGMMA_PRODUCT(224, 112, 113, 114, 115, 116, 117)
WGMMA_PRODUCT(256, 128, 129, 130, 131, 132, 133)
#else
template <int SUMS> static __device__ __forceinline__ void wgmma_product(float (&)[SUMS], const uint4 &, wgmma_operand, int)
{
}
#endif
#undef WGMMA_PRODUCT

/* The same with operand A in shared memory too, 64 rows in blocks of 8 rows × 8 of k, laid out as operand B; halves or bfloat16. */
#define WGMMA_BOTH_SHARED(N, type, aa, bb, more)                                                                                 \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" #more ", 0;\n"                                                         \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." type "." type " {" WGMMA_N##N "}, %" #aa ", %" #bb            \
                                                                                                 ", add, 1, 1, 0, 0;\n}"         \
                 : WGMMA_D##N                                                                                                    \
                 : "l"(a), "l"(b), "r"(add))
#define WGMMA_SHARED_PRODUCT(N, aa, bb, more)                                                                                    \
    template <bool bfloat>                                                                                                       \
    static __device__ __forceinline__ void wgmma_shared_product(float(&d)[N / 2], wgmma_operand a, wgmma_operand b, int add)     \
    {                                                                                                                            \
        if (bfloat)                                                                                                              \
            WGMMA_BOTH_SHARED(N, "bf16", aa, bb, more);                                                                          \
        else                                                                                                                     \
            WGMMA_BOTH_SHARED(N, "f16", aa, bb, more);                                                                           \
    }
#if WGMMA_HERE
WGMMA_SHARED_PRODUCT(16, 8, 9, 10)
WGMMA_SHARED_PRODUCT(24, 12, 13, 14)
WGMMA_SHARED_PRODUCT(32, 16, 17, 18)
WGMMA_SHARED_PRODUCT(40, 20, 21, 22)
WGMMA_SHARED_PRODUCT(48, 24, 25, 26)
WGMMA_SHARED_PRODUCT(64, 32, 33, 34)
WGMMA_SHARED_PRODUCT(80, 40, 41, 42)
WGMMA_SHARED_PRODUCT(128, 64, 65, 66)
WGMMA_SHARED_PRODUCT(256, 128, 129, 130)
#else
template <bool bfloat, int SUMS>
static __device__ __forceinline__ void wgmma_shared_product(float (&)[SUMS], wgmma_operand, wgmma_operand, int)
{
}
#endif
#undef WGMMA_SHARED_PRODUCT
#undef WGMMA_BOTH_SHARED
/* After a wait: keeps uses of the sums behind it. */
template <int SUMS> static __device__ __forceinline__ void wgmma_settle(float (&d)[SUMS])
{
#pragma unroll
    for (int i = 0; i < SUMS; i++) asm volatile("" : "+f"(d[i])::"memory");
}
#endif
#endif
