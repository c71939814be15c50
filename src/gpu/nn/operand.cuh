/* SPDX-License-Identifier: MIT */
/* operand.cuh: eight adjacent columns of a row of an operand (linear.h): 16 bytes of each plane. */
#ifndef GPU_OPERAND_CUH
#define GPU_OPERAND_CUH

#include "gpu/ptx/primitives.cuh"
#include "linear.h"

template <int NUMBERS> struct number_format {
    static constexpr bool split = NUMBERS == GPU_NUMBER_FLOAT32, bfloat = NUMBERS == GPU_NUMBER_BF16;
    static constexpr int planes = split ? 2 : 1; // that products read
};

/* Calls f<NUMBERS>(…). */
#define FOR_NUMBERS(numbers, f, ...)                                                                                             \
    ((numbers) == GPU_NUMBER_FLOAT32 ? f<GPU_NUMBER_FLOAT32>(__VA_ARGS__)                                                        \
     : (numbers) == GPU_NUMBER_TF32  ? f<GPU_NUMBER_TF32>(__VA_ARGS__)                                                           \
                                     : f<GPU_NUMBER_BF16>(__VA_ARGS__))

/* Of all formats, until one fails: error = f<NUMBERS>(…). */
#define FOR_EACH_NUMBERS(error, f, ...)                                                                                          \
    for (int numbers_ = 0; numbers_ < 3 && (error) == 0; numbers_++) (error) = FOR_NUMBERS((gpu_number)numbers_, f, __VA_ARGS__)

struct eight {
    float v[8];
};

/* Index, in units of 16 bytes, of columns c … c + 7 of row r. */
static __device__ __forceinline__ size_t operand_index(const gpu_operand &m, int r, int c)
{
    return ((size_t)(r / GPU_SLAB) * (m.columns / 8) + c / 8) * GPU_SLAB + r % GPU_SLAB;
}

template <bool bfloat> static __device__ __forceinline__ uint32_t pack_pair(float a, float b)
{
    return bfloat ? pack_bfloat2(a, b) : pack_half2(a, b);
}
template <bool bfloat> static __device__ __forceinline__ float2 unpack_pair(uint32_t bits)
{
    return bfloat ? unpack_bfloat2(bits) : unpack_half2(bits);
}

template <bool bfloat> static __device__ __forceinline__ void unpack_eight(uint4 bits, eight &x)
{
    const uint32_t word[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const float2 pair = unpack_pair<bfloat>(word[k]);
        x.v[2 * k] = pair.x;
        x.v[2 * k + 1] = pair.y;
    }
}
template <bool bfloat> static __device__ __forceinline__ uint4 pack_eight(const eight &x)
{
    return make_uint4(pack_pair<bfloat>(x.v[0], x.v[1]), pack_pair<bfloat>(x.v[2], x.v[3]), pack_pair<bfloat>(x.v[4], x.v[5]),
                      pack_pair<bfloat>(x.v[6], x.v[7]));
}

/* Stores the high parts and, if there is a plane for them, the rest, where `here` is set; `at`: operand_index. */
template <int NUMBERS>
static __device__ __forceinline__ void store_operand_if(bool here, const gpu_operand &m, size_t at, const eight &x)
{
    constexpr bool bfloat = number_format<NUMBERS>::bfloat;
    const uint4 high = pack_eight<bfloat>(x);
    store_if(here, (uint4 *)m.high + at, high);
    if (!m.low) return;
    eight rest, upper;
    unpack_eight<bfloat>(high, upper);
#pragma unroll
    for (int k = 0; k < 8; k++) rest.v[k] = x.v[k] - upper.v[k];
    store_if(here, (uint4 *)m.low + at, pack_eight<bfloat>(rest));
}
template <int NUMBERS> static __device__ __forceinline__ void store_operand(const gpu_operand &m, int r, int c, const eight &x)
{
    store_operand_if<NUMBERS>(true, m, operand_index(m, r, c), x);
}
/* Eight columns as they are stored, in so many planes: loaded before they are used, where stores lie between, of which the compiler cannot know that
 * they are elsewhere. */
template <bool bfloat, int planes> struct packed_eight {
    uint4 plane[planes];
    __device__ __forceinline__ void load(const gpu_operand &m, size_t at)
    {
        plane[0] = ((const uint4 *)m.high)[at];
        if (planes > 1) plane[planes - 1] = ((const uint4 *)m.low)[at];
    }
    __device__ __forceinline__ eight unpack() const
    {
        eight x, rest;
        unpack_eight<bfloat>(plane[0], x);
        if (planes == 1) return x;
        unpack_eight<bfloat>(plane[planes - 1], rest);
#pragma unroll
        for (int k = 0; k < 8; k++) x.v[k] += rest.v[k];
        return x;
    }
};
/* The sum of both planes. */
template <int NUMBERS> static __device__ __forceinline__ eight load_operand(const gpu_operand &m, int r, int c)
{
    constexpr bool bfloat = number_format<NUMBERS>::bfloat;
    const size_t at = operand_index(m, r, c);
    eight x, rest;
    unpack_eight<bfloat>(((const uint4 *)m.high)[at], x);
    if (!m.low) return x;
    unpack_eight<bfloat>(((const uint4 *)m.low)[at], rest);
#pragma unroll
    for (int k = 0; k < 8; k++) x.v[k] += rest.v[k];
    return x;
}

/* Eight floats as they are stored. */
static __device__ __forceinline__ eight floats_of(uint4 a, uint4 b)
{
    return {{__uint_as_float(a.x), __uint_as_float(a.y), __uint_as_float(a.z), __uint_as_float(a.w), __uint_as_float(b.x),
             __uint_as_float(b.y), __uint_as_float(b.z), __uint_as_float(b.w)}};
}
static __device__ __forceinline__ eight load_floats(const float *at)
{
    const float4 a = *(const float4 *)at, b = *(const float4 *)(at + 4);
    return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}
/* Constants, which no kernel writes. */
static __device__ __forceinline__ eight load_constants(const float *at)
{
    const float4 a = __ldg((const float4 *)at), b = __ldg((const float4 *)(at + 4));
    return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}
static __device__ __forceinline__ void store_floats(float *at, const eight &x)
{
    *(float4 *)at = make_float4(x.v[0], x.v[1], x.v[2], x.v[3]);
    *(float4 *)(at + 4) = make_float4(x.v[4], x.v[5], x.v[6], x.v[7]);
}

/* Eight numbers from index `at` on of an array of floats or, if `rounded`, of 16-bit numbers. */
template <bool bfloat> static __device__ __forceinline__ eight load_numbers(const float *array, size_t at, int rounded)
{
    if (!rounded) return load_floats(array + at);
    eight x;
    unpack_eight<bfloat>(*(const uint4 *)((const uint16_t *)array + at), x);
    return x;
}
template <bool bfloat>
static __device__ __forceinline__ void store_numbers_if(bool here, float *array, size_t at, const eight &x, int rounded)
{
    if (rounded) {
        store_if(here, (uint4 *)((uint16_t *)array + at), pack_eight<bfloat>(x));
        return;
    }
#pragma unroll
    for (int k = 0; k < 8; k += 4)
        store_if(here, (uint4 *)(array + at + k),
                 make_uint4(__float_as_uint(x.v[k]), __float_as_uint(x.v[k + 1]), __float_as_uint(x.v[k + 2]),
                            __float_as_uint(x.v[k + 3])));
}
template <bool bfloat> static __device__ __forceinline__ void store_numbers(float *array, size_t at, const eight &x, int rounded)
{
    store_numbers_if<bfloat>(true, array, at, x, rounded);
}

/* ---- activations and their derivatives; absolute error 2⁻²² */

static __device__ __forceinline__ float logistic(float x)
{
    return fast_reciprocal(1.0f + fast_exp2(-1.4426950408889634f * fmaxf(x, -80.0f)));
}
static __device__ __forceinline__ float silu(float x)
{
    return x * logistic(x);
}
/* ln(1 + eˣ) − ln 2 */
static __device__ __forceinline__ float shifted_softplus(float x)
{
    return fmaxf(x, 0.0f) + 0.69314718056f * (fast_log2(1.0f + fast_exp2(-1.4426950408889634f * fminf(fabsf(x), 80.0f))) - 1.0f);
}
/* The same with an absolute error of 9e-6, where results become numbers of 16 bits. ln(1 + t) for t in 0 … 1 is a polynomial: units for ex2 and lg2
 * compute four numbers a clock, those for products 32. */
static __device__ __forceinline__ float short_softplus(float x)
{
    const float t = fast_exp2(-1.4426950408889634f * fabsf(x));
    float p = fmaf(t, 0.0311040165f, -0.133219863f);
    p = fmaf(t, p, 0.286706551f);
    p = fmaf(t, p, -0.49074311f);
    p = fmaf(t, p, 0.999299586f);
    return fmaf(t, p, fmaxf(x, 0.0f) - (0.69314718056f - 8.69119544e-06f));
}
template <int NUMBERS> static __device__ __forceinline__ void soften(eight &x)
{
#pragma unroll
    for (int k = 0; k < 8; k++) x.v[k] = number_format<NUMBERS>::split ? shifted_softplus(x.v[k]) : short_softplus(x.v[k]);
}
/* The choice is outside of the loops, so that eight values are computed at once and not one behind the other. */
template <int NUMBERS> static __device__ __forceinline__ void activate(int kind, eight &x)
{
    if (kind == GPU_SILU) {
#pragma unroll
        for (int k = 0; k < 8; k++) x.v[k] = silu(x.v[k]);
    } else if (kind == GPU_SHIFTED_SOFTPLUS) {
        soften<NUMBERS>(x);
    }
}
/* y times the activation's derivative at x. */
static __device__ __forceinline__ void multiply_slope(int kind, const eight &x, eight &y)
{
    if (kind == GPU_IDENTITY) return;
#pragma unroll
    for (int k = 0; k < 8; k++) {
        const float s = logistic(x.v[k]);
        y.v[k] *= kind == GPU_SILU ? s * (1.0f + x.v[k] * (1.0f - s)) : s;
    }
}

#endif
