/* SPDX-License-Identifier: MIT */
/* tiles.h: products of matrix tiles by AMX (Intel's Software Developer's Manual, volume 1, chapter 18). Eight registers hold tiles of 16
 * rows of 64 bytes; one instruction multiplies 16 × 32 by 32 × 16 numbers in bfloat16 and adds to 16 × 16 sums in float32.
 *
 * With TILES_EMULATED the same in plain C, to the bit, for tests on processors without AMX. */
#ifndef TILES_H
#define TILES_H

#include <stdint.h>
#include <string.h>

enum { TILE_ROWS = 16, TILE_SUMS = 16 /* columns of sums */, TILE_TERMS = 32 /* of bfloat16 in a row */ };

#ifdef TILES_EMULATED
#define TILES
/* Not inline: the kernels write these out some hundred times each, which took the compiler two minutes. */
#define TILES_EMULATION static __attribute__((noinline))

static _Thread_local union tile_emulated {
    uint16_t terms[TILE_ROWS][TILE_TERMS];
    float sums[TILE_ROWS][TILE_SUMS];
} tile_emulated[8];
static _Thread_local int tile_emulated_rows;

static inline void tile_fence(void)
{
}

static inline void tile_begin(int rows)
{
    tile_emulated_rows = rows;
    memset(tile_emulated, 0, sizeof tile_emulated);
}

static inline void tile_end(void)
{
}

TILES_EMULATION void tile_zero(int tile)
{
    memset(&tile_emulated[tile], 0, sizeof tile_emulated[tile]);
}

static inline int tile_rows(int tile)
{
    return tile == 7 ? TILE_ROWS : tile_emulated_rows;
}

TILES_EMULATION void tile_load(int tile, const void *rows, size_t stride)
{
    for (int row = 0; row < tile_rows(tile); row++)
        memcpy(tile_emulated[tile].terms[row], (const char *)rows + (size_t)row * stride, sizeof *tile_emulated[tile].terms);
}

TILES_EMULATION void tile_store(int tile, void *rows, size_t stride)
{
    for (int row = 0; row < tile_rows(tile); row++)
        memcpy((char *)rows + (size_t)row * stride, tile_emulated[tile].terms[row], sizeof *tile_emulated[tile].terms);
}

/* Subnormal numbers are zero, of operands and of results. */
static inline float tile_normal(float x)
{
    return x > -0x1p-126f && x < 0x1p-126f ? 0 * x : x;
}

static inline float tile_widened(uint16_t x)
{
    const uint32_t bits = (uint32_t)x << 16;
    float y;
    memcpy(&y, &bits, sizeof y);
    return tile_normal(y);
}

/* Terms of even and of odd order are summed apart, each a chain of fused multiply-adds from 0, and then added to the sum. A product of two
 * numbers of 8 bits is exact in float32, so that a fused multiply-add rounds as an addition does. */
TILES_EMULATION void tile_multiply(int to, int a, int b)
{
    float factors[2][TILE_TERMS / 2][TILE_SUMS];
    for (int k = 0; k < TILE_TERMS; k++)
        for (int column = 0; column < TILE_SUMS; column++)
            factors[k % 2][k / 2][column] = tile_widened(tile_emulated[b].terms[k / 2][2 * column + k % 2]);
    for (int row = 0; row < tile_rows(to); row++) {
        float part[2][TILE_SUMS] = {0}, *sum = tile_emulated[to].sums[row];
        for (int k = 0; k < TILE_TERMS; k++) {
            const float term = tile_widened(tile_emulated[a].terms[row][k]);
            for (int column = 0; column < TILE_SUMS; column++)
                part[k % 2][column] = tile_normal(part[k % 2][column] + term * factors[k % 2][k / 2][column]);
        }
        for (int column = 0; column < TILE_SUMS; column++)
            sum[column] = tile_normal(tile_normal(sum[column]) + tile_normal(part[0][column] + part[1][column]));
    }
}

/* 32 numbers that are taken apart. */
typedef struct tile_part {
    float x[TILE_TERMS];
} tile_part;

static inline tile_part tile_part_load(const float *x)
{
    tile_part part;
    memcpy(&part, x, sizeof part);
    return part;
}

/* Rounds to bfloat16, to nearest and ties to even, into `to`; what that leaves, unless the part is the last. */
TILES_EMULATION tile_part tile_part_take(tile_part part, int is_last, uint16_t *to)
{
    (void)is_last;
    for (int i = 0; i < TILE_TERMS; i++) {
        const float x = tile_normal(part.x[i]);
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        to[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
        part.x[i] -= tile_widened(to[i]);
    }
    return part;
}
#else
#include <immintrin.h>
#define TILES __attribute__((target("amx-tile,amx-bf16,avx512bf16")))

/* Eight tiles of rows of 64 bytes, the last of 16 rows and the others of `rows`. */
#define tile_begin(rows) _tile_loadconfig(&tile_shapes[(rows)-1])
/* The registers are not in use any more: nothing is saved of them when threads change. */
#define tile_end() _tile_release()
#define tile_zero(tile) _tile_zero(tile)
/* Rows of 64 bytes, `stride` bytes apart. */
#define tile_load(tile, rows, stride) _tile_loadd(tile, rows, stride)
#define tile_store(tile, rows, stride) _tile_stored(tile, rows, stride)
#define tile_multiply(to, a, b) _tile_dpbf16ps(to, a, b)
/* The instructions above do not tell the compiler which memory they read and write. */
#define tile_fence() __asm__ volatile("" ::: "memory")

typedef struct tile_shape {
    uint8_t palette, start_row, zero[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_shape;
#define TILE_SHAPE(n)                                                                                                            \
    {                                                                                                                            \
        .palette = 1, .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = { n, n, n, n, n, n, n, 16 }                         \
    }
static const tile_shape tile_shapes[TILE_ROWS] __attribute__((aligned(64))) = {
    TILE_SHAPE(1),  TILE_SHAPE(2),  TILE_SHAPE(3),  TILE_SHAPE(4),  TILE_SHAPE(5),  TILE_SHAPE(6),
    TILE_SHAPE(7),  TILE_SHAPE(8),  TILE_SHAPE(9),  TILE_SHAPE(10), TILE_SHAPE(11), TILE_SHAPE(12),
    TILE_SHAPE(13), TILE_SHAPE(14), TILE_SHAPE(15), TILE_SHAPE(16)};

typedef struct tile_part {
    __m512 low, high;
} tile_part;

TILES static inline tile_part tile_part_load(const float *x)
{
    return (tile_part){_mm512_loadu_ps(x), _mm512_loadu_ps(x + 16)};
}

TILES static inline tile_part tile_part_take(tile_part part, int is_last, uint16_t *to)
{
    const __m512i rounded = (__m512i)_mm512_cvtne2ps_pbh(part.high, part.low);
    _mm512_store_si512((void *)to, rounded);
    if (is_last) return part;
    const __m512i low = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(rounded)),
                  high = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(rounded, 1));
    return (tile_part){part.low - (__m512)_mm512_slli_epi32(low, 16), part.high - (__m512)_mm512_slli_epi32(high, 16)};
}
#endif

#endif
