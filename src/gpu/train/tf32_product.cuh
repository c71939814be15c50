/* SPDX-License-Identifier: MIT */
/* tf32_product.cuh: matrix products of float32 numbers on the tensor cores (mma.m16n8k8, TF32).
 *
 * Each operand is split into a TF32 number and the TF32 rounding of what is left: a = a₁ + a₂. With PARTS = 3 the product is
 * a₁b₁ + a₁b₂ + a₂b₁, of relative error 2⁻²², close to float32; with PARTS = 1 it is a₁b₁, of relative error 2⁻¹¹. */
#ifndef TF32_PRODUCT_CUH
#define TF32_PRODUCT_CUH

#include "gpu/ptx/primitives.cuh"

/* Padding of a row in shared memory, floats: with it a warp's 16-byte loads of 8 rows use all banks evenly. */
enum { TF32_ROW_PAD = 16 };

#ifndef MLFF_EMULATE
/* d[16][8] += a[16][8] b[8][8]; lane (g, t) = (lane / 4, lane % 4) holds a: (g, t), (g + 8, t), (g, t + 4), (g + 8, t + 4),
 * b: (t, g), (t + 4, g), d: (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1). Needs compute capability 8.0. */
static __device__ __forceinline__ void tf32_mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}
/* A number that is read before it is needed, so that its cache line comes into the L1 cache; for data that no running kernel writes.
 * Sums of such numbers go to keep_read. */
static __device__ __forceinline__ float read_early(const float *address)
{
    float value;
    asm volatile("ld.global.ca.f32 %0, [%1];" : "=f"(value) : "l"(address));
    return value;
}
/* The same of four numbers, which are used. */
static __device__ __forceinline__ float4 read_early4(const float *address)
{
    float4 v;
    asm volatile("ld.global.ca.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(address));
    return v;
}
/* Has no effect but to need the value: the compiler would leave out the reads. */
static __device__ __forceinline__ void keep_read(float value)
{
    asm volatile("{\n.reg .pred never;\nsetp.eq.f32 never, %0, 0f7E12A457;\n@never trap;\n}" ::"f"(value));
}
#else
static inline float read_early(const float *address)
{
    return *address;
}
static inline float4 read_early4(const float *address)
{
    return *(const float4 *)address;
}
static inline void keep_read(float)
{
}
#endif

/* `high` and, with PARTS = 3, `low` of a number. The mma itself ignores the last 13 bits, which are cleared only for the difference. */
template <int PARTS> static __device__ __forceinline__ void tf32_split(float value, uint32_t &high, uint32_t &low)
{
    high = __float_as_uint(value) + 0x1000u;
    if (PARTS == 3) high &= 0xffffe000u;
    low = PARTS == 3 ? __float_as_uint(value - __uint_as_float(high)) : 0u;
}

/* A number that becomes an operand of products: with PARTS = 1 rounded to TF32 once, where it is stored. */
template <int PARTS> static __device__ __forceinline__ float tf32_operand(float value)
{
    return PARTS == 1 ? __uint_as_float((__float_as_uint(value) + 0x1000u) & 0xffffe000u) : value;
}
/* The same bits as those of tf32_split, without rounding a number that was. */
template <int PARTS, bool ROUNDED> static __device__ __forceinline__ void tf32_bits(float value, uint32_t &high, uint32_t &low)
{
    tf32_split<PARTS>(value, high, low);
    if (PARTS == 1 && ROUNDED) high = __float_as_uint(value);
}

template <int PARTS>
static __device__ __forceinline__ void tf32_product(float (&d)[4], const uint32_t (&a_high)[4], const uint32_t (&a_low)[4],
                                                    const uint32_t (&b_high)[2], const uint32_t (&b_low)[2])
{
    if (PARTS == 3) {
        tf32_mma(d, a_low, b_high);
        tf32_mma(d, a_high, b_low);
    }
    tf32_mma(d, a_high, b_high);
}

/* 16 terms. With PARTS = 1 weights are rounded to TF32 already, and with ROUNDED all operands. The tensor cores truncate their sums, so
 * that with PARTS = 3 they add up only these terms, and float32 additions the rest. */
template <int PARTS, bool ROUNDED, int MT, int NC, int NB>
static __device__ __forceinline__ void tf32_step(const float *a, int a_stride, const float4 (&v)[NC][NB],
                                                 float (&sum)[MT][NC][NB][4])
{
    const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
    uint32_t a_high[MT][2][4], a_low[MT][2][4];
#pragma unroll
    for (int m = 0; m < MT; m++) {
        const float4 upper = *(const float4 *)(a + (16 * m + g) * a_stride + 4 * t);
        const float4 lower = *(const float4 *)(a + (16 * m + g + 8) * a_stride + 4 * t);
        tf32_bits<PARTS, ROUNDED>(upper.x, a_high[m][0][0], a_low[m][0][0]);
        tf32_bits<PARTS, ROUNDED>(lower.x, a_high[m][0][1], a_low[m][0][1]);
        tf32_bits<PARTS, ROUNDED>(upper.y, a_high[m][0][2], a_low[m][0][2]);
        tf32_bits<PARTS, ROUNDED>(lower.y, a_high[m][0][3], a_low[m][0][3]);
        tf32_bits<PARTS, ROUNDED>(upper.z, a_high[m][1][0], a_low[m][1][0]);
        tf32_bits<PARTS, ROUNDED>(lower.z, a_high[m][1][1], a_low[m][1][1]);
        tf32_bits<PARTS, ROUNDED>(upper.w, a_high[m][1][2], a_low[m][1][2]);
        tf32_bits<PARTS, ROUNDED>(lower.w, a_high[m][1][3], a_low[m][1][3]);
    }
#pragma unroll
    for (int c = 0; c < NC; c++)
#pragma unroll
        for (int b = 0; b < NB; b++) {
            uint32_t b_high[2][2], b_low[2][2];
            tf32_bits<PARTS, true>(v[c][b].x, b_high[0][0], b_low[0][0]);
            tf32_bits<PARTS, true>(v[c][b].y, b_high[0][1], b_low[0][1]);
            tf32_bits<PARTS, true>(v[c][b].z, b_high[1][0], b_low[1][0]);
            tf32_bits<PARTS, true>(v[c][b].w, b_high[1][1], b_low[1][1]);
#pragma unroll
            for (int m = 0; m < MT; m++) {
                if (PARTS == 1) {
                    for (int half = 0; half < 2; half++)
                        tf32_product<PARTS>(sum[m][c][b], a_high[m][half], a_low[m][half], b_high[half], b_low[half]);
                    continue;
                }
                float part[4] = {0, 0, 0, 0};
                if (MT * NC * NB > 3) {
                    for (int half = 0; half < 2; half++)
                        tf32_product<PARTS>(part, a_high[m][half], a_low[m][half], b_high[half], b_low[half]);
                } else { // few sums: shorter chains of products
                    float low[2][4] = {};
                    for (int half = 0; half < 2; half++) {
                        tf32_mma(low[0], a_low[m][half], b_high[half]);
                        tf32_mma(low[1], a_high[m][half], b_low[half]);
                        tf32_mma(part, a_high[m][half], b_high[half]);
                    }
                    for (int e = 0; e < 4; e++) part[e] += low[0][e] + low[1][e];
                }
                for (int e = 0; e < 4; e++) sum[m][c][b][e] += part[e];
            }
        }
}

/* sum[m][c][b] += A Wᵀ for one warp: 16 MT rows of `a` (shared memory, row stride `a_stride`) times the rows n0 + 8 c + b · block
 * of W, c < NC, b < NB, over `depth` (a multiple of 16) terms; `w_stride` is W's row stride. Sums are laid out as those of
 * tf32_mma. */
template <int PARTS, bool ROUNDED, int MT, int NC, int NB>
static __device__ __forceinline__ void tf32_tile(const float *a, int a_stride, int depth, const float *__restrict__ w,
                                                 int w_stride, int n0, int block, float (&sum)[MT][NC][NB][4])
{
    enum { AHEAD = MT * NC * NB <= 3 ? 4 : 2 };
    const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
    for (int k0 = 0; k0 < depth; k0 += 16 * AHEAD) { // lane t has terms k + 4t … k + 4t + 3: any order of terms will do
        float4 v[AHEAD][NC][NB];
#pragma unroll
        for (int ahead = 0; ahead < AHEAD; ahead++)
#pragma unroll
            for (int c = 0; c < NC; c++)
#pragma unroll
                for (int b = 0; b < NB; b++)
                    if (k0 + 16 * ahead < depth)
                        v[ahead][c][b] =
                            *(const float4 *)(w + (size_t)(n0 + 8 * c + b * block + g) * w_stride + k0 + 16 * ahead + 4 * t);
#pragma unroll
        for (int ahead = 0; ahead < AHEAD; ahead++)
            if (k0 + 16 * ahead < depth) tf32_step<PARTS, ROUNDED, MT, NC, NB>(a + k0 + 16 * ahead, a_stride, v[ahead], sum);
    }
}

#endif
