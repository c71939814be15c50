/* SPDX-License-Identifier: MIT */
/* emulate_products.h: numbers of 16 bits, matrices that a warp's lanes exchange, and products of tensor cores (mma, tf32, wgmma). Part of
 * emulate_cuda.h. */
#ifndef EMULATE_PRODUCTS_H
#define EMULATE_PRODUCTS_H

#include <immintrin.h>

#define EMULATE_INLINE __attribute__((always_inline)) static inline

/* Sixteen numbers along k, and eight halves (or bfloat16) as floats. Products call these for most of the time that they take:
 * no branches, and no more than SSE2 where the compiler may not use more, with the same bits. */
#if defined __AVX2__ && defined __F16C__ /* as of x86-64-v3 */
#define EMULATE_V3
typedef __m256 emulate_eight;
#else
struct emulate_eight {
    __m128 low, high;
};
#endif
struct emulate_sixteen {
    emulate_eight of[2];
};
template <bool bfloat> EMULATE_INLINE __m128 emulate_unpack(__m128i halves) /* the first four */
{
    const __m128i bits = _mm_unpacklo_epi16(halves, _mm_setzero_si128());
    if (bfloat) return _mm_castsi128_ps(_mm_slli_epi32(bits, 16));
#ifdef EMULATE_V3
    return _mm_cvtph_ps(halves);
#else
    const __m128i size = _mm_and_si128(bits, _mm_set1_epi32(0x7fff)), rebias = _mm_set1_epi32(112 << 23);
    const __m128i sign = _mm_slli_epi32(_mm_xor_si128(bits, size), 16);
    const __m128i small = _mm_castps_si128(_mm_mul_ps(_mm_cvtepi32_ps(size), _mm_set1_ps(5.9604644775390625e-08f))); /* 2⁻²⁴ */
    const __m128i infinite = _mm_cmpgt_epi32(size, _mm_set1_epi32(0x7bff)),
                  subnormal = _mm_cmplt_epi32(size, _mm_set1_epi32(0x400));
    const __m128i normal = _mm_add_epi32(_mm_add_epi32(_mm_slli_epi32(size, 13), rebias), _mm_and_si128(infinite, rebias));
    return _mm_castsi128_ps(
        _mm_or_si128(sign, _mm_or_si128(_mm_and_si128(subnormal, small), _mm_andnot_si128(subnormal, normal))));
#endif
}
template <bool bfloat> EMULATE_INLINE void emulate_unpack_eight(__m128i halves, __m128 *out)
{
    out[0] = emulate_unpack<bfloat>(halves);
    out[1] = emulate_unpack<bfloat>(_mm_unpackhi_epi64(halves, halves));
}
/* Four products of two rows and two columns, x0·y0, x0·y1, x1·y0, x1·y1, of which eight parts each are added. */
#ifdef EMULATE_V3
template <bool bfloat> EMULATE_INLINE emulate_eight emulate_widen(__m128i halves)
{
    if (!bfloat) return _mm256_cvtph_ps(halves);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}
EMULATE_INLINE emulate_eight emulate_eight_at(const float *at)
{
    return _mm256_loadu_ps(at);
}
EMULATE_INLINE emulate_eight emulate_products(const emulate_sixteen &a, const emulate_sixteen &b)
{
    return _mm256_add_ps(_mm256_mul_ps(a.of[0], b.of[0]), _mm256_mul_ps(a.of[1], b.of[1]));
}
EMULATE_INLINE __m128 emulate_sums(emulate_eight a, emulate_eight b, emulate_eight c, emulate_eight d)
{
    const __m256 ab = _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b)),
                 cd = _mm256_add_ps(_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
    const __m256 of = _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee));
    return _mm_add_ps(_mm256_castps256_ps128(of), _mm256_extractf128_ps(of, 1));
}
#else
template <bool bfloat> EMULATE_INLINE emulate_eight emulate_widen(__m128i halves)
{
    __m128 v[2];
    emulate_unpack_eight<bfloat>(halves, v);
    return {v[0], v[1]};
}
EMULATE_INLINE emulate_eight emulate_eight_at(const float *at)
{
    return {_mm_loadu_ps(at), _mm_loadu_ps(at + 4)};
}
EMULATE_INLINE emulate_eight emulate_products(const emulate_sixteen &a, const emulate_sixteen &b)
{
    return {_mm_add_ps(_mm_mul_ps(a.of[0].low, b.of[0].low), _mm_mul_ps(a.of[1].low, b.of[1].low)),
            _mm_add_ps(_mm_mul_ps(a.of[0].high, b.of[0].high), _mm_mul_ps(a.of[1].high, b.of[1].high))};
}
EMULATE_INLINE __m128 emulate_sums_of_four(__m128 a, __m128 b, __m128 c, __m128 d)
{
    const __m128 ab = _mm_add_ps(_mm_unpacklo_ps(a, b), _mm_unpackhi_ps(a, b)),
                 cd = _mm_add_ps(_mm_unpacklo_ps(c, d), _mm_unpackhi_ps(c, d));
    return _mm_add_ps(_mm_movelh_ps(ab, cd), _mm_movehl_ps(cd, ab));
}
EMULATE_INLINE __m128 emulate_sums(emulate_eight a, emulate_eight b, emulate_eight c, emulate_eight d)
{
    return _mm_add_ps(emulate_sums_of_four(a.low, b.low, c.low, d.low), emulate_sums_of_four(a.high, b.high, c.high, d.high));
}
#endif
template <bool bfloat> EMULATE_INLINE emulate_sixteen emulate_operand(const char *at, int k_stride)
{
    return {{emulate_widen<bfloat>(_mm_loadu_si128((const __m128i *)at)),
             emulate_widen<bfloat>(_mm_loadu_si128((const __m128i *)(at + k_stride)))}};
}
EMULATE_INLINE emulate_sixteen emulate_load(const float *at)
{
    return {{emulate_eight_at(at), emulate_eight_at(at + 8)}};
}
EMULATE_INLINE __m128 emulate_dots(const emulate_sixteen (&x)[2], const emulate_sixteen (&y)[2])
{
    return emulate_sums(emulate_products(x[0], y[0]), emulate_products(x[0], y[1]), emulate_products(x[1], y[0]),
                        emulate_products(x[1], y[1]));
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
