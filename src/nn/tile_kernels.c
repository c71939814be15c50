// SPDX-License-Identifier: MIT
// tile_kernels.c: products of matrices by AMX tiles (tiles.h), with numbers in one, two or three parts of bfloat16.
//
// x = x₀ + x₁ + x₂, each part the rest rounded to the nearest bfloat16 (8 bits of significand), so that |xᵢ| ≤ 2⁻⁹ⁱ |x|. A product of two
// numbers is the sum of the products of parts of orders that add up to less than the number of parts,
//   1 part:  x₀y₀                                   operands of 8 bits
//   2 parts: x₁y₀ + x₀y₁ + x₀y₀                     16 bits: |error| ≤ 3 · 2⁻¹⁸ |xy|
//   3 parts: x₂y₀ + x₁y₀ + x₁y₁ + x₀y₁ + x₀y₂ + x₀y₀   24 bits, those of float32
// Every sum is in float32, in parts of 32 terms.
//
// b lies in columns of 16, for each part in blocks of 16 rows [8][16][2]: two blocks in a row are a tile. Rows of a are split into parts for
// some hundred columns at a time, in tiles, which stay in the second cache. Two tiles of rows by two of columns, or one by four, are summed
// in registers.
#include "nn/nn.h"
#include "nn/simd.h"

#if defined(KERNEL_PATH_avx512) || defined(TILES_EMULATED)
#include "nn/tiles.h"

nn_activate SIMD_SYMBOL(nn_activate);
#ifdef TILES_EMULATED
#define nn_bfloat16_activate SIMD_SYMBOL(nn_activate)
#else
nn_activate nn_bfloat16_activate;
#endif
extern const nn_kernels SIMD_SYMBOL(nn_tile_kernels)[];

#define TILES_INLINE TILES static inline __attribute__((always_inline))

enum {
    MAX_PARTS = 3,
    ROW_TILES = 6,
    MAX_STEPS = 24,
    MAX_TILES = ROW_TILES * MAX_STEPS,
    BLOCK = 16,
    TILE = TILE_ROWS * TILE_TERMS
};

static int blocks_of(int k)
{
    return (k + BLOCK - 1) / BLOCK;
}

// ---- b ----------------------------------------------------------------------------------------------------------------

// Numbers of two bytes: all parts of the columns, and half a tile that the last tile of an odd number of blocks reads (times zero).
static size_t packed_numbers(int parts, int k, int n)
{
    return ((size_t)parts * (size_t)blocks_of(k) * (size_t)n + TILE_SUMS) * BLOCK;
}

// x, which is finite, rounded to bfloat16, to nearest and ties to even; what that leaves takes its place.
static uint16_t take_part(float *x)
{
    uint32_t bits, widened;
    memcpy(&bits, x, sizeof bits);
    const uint16_t part = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    widened = (uint32_t)part << 16;
    float y;
    memcpy(&y, &widened, sizeof y);
    *x -= y;
    return part;
}

static void pack(int parts, int k, int n, const float *b, uint16_t *packed)
{
    memset(packed, 0, sizeof *packed * packed_numbers(parts, k, n));
    const size_t part_size = (size_t)blocks_of(k) * BLOCK * TILE_SUMS;
    for (int row = 0; row < k; row++)
        for (int column = 0; column < n; column++) {
            float rest = b[(size_t)row * (size_t)n + (size_t)column];
            uint16_t *to = packed + (size_t)(column / TILE_SUMS) * (size_t)parts * part_size + (size_t)(row / 2) * TILE_TERMS +
                           (size_t)(2 * (column % TILE_SUMS) + row % 2);
            for (int part = 0; part < parts; part++) to[(size_t)part * part_size] = take_part(&rest);
        }
}

// ---- a ----------------------------------------------------------------------------------------------------------------

// Columns of a for a tile of rows of b, which begins at an even block: `width` from `first` on, the others are zero.
typedef struct step {
    int column, first, width, block;
} step;

// Rows of a in parts, in tiles [parts][row_tiles][max_steps][16][32], of at most MAX_TILES (144 KB).
typedef struct split_rows {
    uint16_t *tiles;
    int row_tiles, max_steps;
} split_rows;

static inline uint16_t *tile_of(const split_rows *a, int part, int row_tile, int at)
{
    return a->tiles + ((size_t)(part * a->row_tiles + row_tile) * (size_t)a->max_steps + (size_t)at) * TILE;
}

TILES_INLINE void split_row(const int parts, int n_steps, const step *steps, const float *a, const split_rows *to, int row)
{
    for (int s = 0; s < n_steps; s++) {
        float copy[TILE_TERMS] = {0};
        const float *from = a + steps[s].column;
        if (steps[s].width < TILE_TERMS) {
            memcpy(copy + steps[s].first, from, sizeof *from * (size_t)steps[s].width);
            from = copy;
        }
        tile_part rest = tile_part_load(from);
        for (int part = 0; part < parts; part++) {
            uint16_t *numbers = tile_of(to, part, row / TILE_ROWS, s) + (size_t)(row % TILE_ROWS) * TILE_TERMS;
            rest = tile_part_take(rest, part + 1 == parts, numbers);
        }
    }
}

TILES_INLINE void split(const int parts, int m, int n_steps, const step *steps, const float *a, int lda, const split_rows *to)
{
    for (int row = 0; row < m; row++) split_row(parts, n_steps, steps, a + (size_t)row * (size_t)lda, to, row);
}

// ---- products ---------------------------------------------------------------------------------------------------------

// What is multiplied by the registers: tiles of rows from `row_tile`, columns of 16 from `b`.
typedef struct operands {
    split_rows a;
    int row_tile, n_steps;
    const step *steps;
    const uint16_t *b;
    size_t part_size; // of b, a column of 16
} operands;

// Products of parts of a and of b, one after the other, in an order in which few tiles are loaded again.
static const signed char order[MAX_PARTS][6][2] = {
    {{0, 0}}, {{1, 0}, {0, 0}, {0, 1}}, {{0, 2}, {0, 1}, {1, 1}, {1, 0}, {2, 0}, {0, 0}}};
static const int n_products[MAX_PARTS] = {1, 3, 6};

// Two tiles of rows by one or two of columns. Registers: sums 0 … 3, a 4 and 5, b 6 and 7; their numbers must be literals.
TILES_INLINE void multiply_two(const int parts, const int columns, const operands *o, int s)
{
    const uint16_t *at = o->b + (size_t)o->steps[s].block * BLOCK * TILE_SUMS;
    const size_t column = (size_t)parts * o->part_size;
#pragma GCC unroll 6
    for (int i = 0; i < n_products[parts - 1]; i++) {
        const int part_a = order[parts - 1][i][0], part_b = order[parts - 1][i][1];
        if (i == 0 || part_a != order[parts - 1][i - 1][0]) {
            tile_load(4, tile_of(&o->a, part_a, o->row_tile, s), 64);
            tile_load(5, tile_of(&o->a, part_a, o->row_tile + 1, s), 64);
        }
        if (i == 0 || part_b != order[parts - 1][i - 1][1]) {
            tile_load(6, at + (size_t)part_b * o->part_size, 64);
            if (columns == 2) tile_load(7, at + (size_t)part_b * o->part_size + column, 64);
        }
        tile_multiply(0, 4, 6);
        tile_multiply(1, 5, 6);
        if (columns == 2) {
            tile_multiply(2, 4, 7);
            tile_multiply(3, 5, 7);
        }
    }
}

// One column by one tile of rows, whose parts are in registers 4, 5 and 6; b in 7.
#define MULTIPLY_COLUMN(sum)                                                                                                     \
    _Pragma("GCC unroll 6") for (int i = 0; i < n_products[parts - 1]; i++)                                                      \
    {                                                                                                                            \
        const int part_a = order[parts - 1][i][0], part_b = order[parts - 1][i][1];                                              \
        if (i == 0 || part_b != order[parts - 1][i - 1][1]) tile_load(7, at + (size_t)part_b * o->part_size + (sum)*column, 64); \
        if (part_a == 0) tile_multiply(sum, 4, 7);                                                                               \
        if (part_a == 1) tile_multiply(sum, 5, 7);                                                                               \
        if (part_a == 2) tile_multiply(sum, 6, 7);                                                                               \
    }

// One tile of rows by up to four of columns.
TILES_INLINE void multiply_one(const int parts, const int columns, const operands *o, int s)
{
    const uint16_t *at = o->b + (size_t)o->steps[s].block * BLOCK * TILE_SUMS;
    const size_t column = (size_t)parts * o->part_size;
    tile_load(4, tile_of(&o->a, 0, o->row_tile, s), 64);
    if (parts > 1) tile_load(5, tile_of(&o->a, 1, o->row_tile, s), 64);
    if (parts > 2) tile_load(6, tile_of(&o->a, 2, o->row_tile, s), 64);
    MULTIPLY_COLUMN(0)
    if (columns > 1) MULTIPLY_COLUMN(1)
    if (columns > 2) MULTIPLY_COLUMN(2)
    if (columns > 3) MULTIPLY_COLUMN(3)
}

// What sums start with, and what becomes of them: c = a b + bias; c continued with more columns of a; or c += a b, rounded once.
enum start { SET, CONTINUE, ADD };

typedef struct result {
    enum start start;
    const float *bias;
    float *c;
    int ldc;
} result;

static inline float *sum_of(const result *to, int row, int column)
{
    return to->c + (size_t)row * TILE_ROWS * (size_t)to->ldc + column * TILE_SUMS;
}

#define BEGIN_SUM(sum, row, column)                                                                                              \
    {                                                                                                                            \
        if (to->start == CONTINUE)                                                                                               \
            tile_load(sum, sum_of(to, row, column), sizeof(float) * (size_t)to->ldc);                                            \
        else if (to->bias)                                                                                                       \
            tile_load(sum, to->bias + (column)*TILE_SUMS, 0); /* the same for all rows */                                        \
        else                                                                                                                     \
            tile_zero(sum);                                                                                                      \
    }
#define END_SUM(sum, row, column)                                                                                                \
    {                                                                                                                            \
        if (to->start == ADD) {                                                                                                  \
            tile_store(sum, sums, sizeof(float) * TILE_SUMS);                                                                    \
            add_tile(m, sums, sum_of(to, row, column), to->ldc);                                                                 \
        } else {                                                                                                                 \
            tile_store(sum, sum_of(to, row, column), sizeof(float) * (size_t)to->ldc);                                           \
        }                                                                                                                        \
    }

// c += sums, of m rows.
static inline void add_tile(int m, const float *sums, float *c, int ldc)
{
    typedef float vector __attribute__((vector_size(64), aligned(64), may_alias));
    tile_fence();
    for (int row = 0; row < m; row++) *(vector *)(c + (size_t)row * (size_t)ldc) += *(const vector *)(sums + row * TILE_SUMS);
}

TILES_INLINE void two_tiles(const int parts, const int columns, const operands *o, const result *to)
{
    enum { m = TILE_ROWS };
    float sums[TILE_ROWS * TILE_SUMS] __attribute__((aligned(64)));
    BEGIN_SUM(0, 0, 0)
    BEGIN_SUM(1, 1, 0)
    if (columns == 2) BEGIN_SUM(2, 0, 1)
    if (columns == 2) BEGIN_SUM(3, 1, 1)
    for (int s = 0; s < o->n_steps; s++) multiply_two(parts, columns, o, s);
    END_SUM(0, 0, 0)
    END_SUM(1, 1, 0)
    if (columns == 2) END_SUM(2, 0, 1)
    if (columns == 2) END_SUM(3, 1, 1)
}

TILES_INLINE void one_tile(const int parts, const int columns, const operands *o, int m, const result *to)
{
    float sums[TILE_ROWS * TILE_SUMS] __attribute__((aligned(64)));
    BEGIN_SUM(0, 0, 0)
    if (columns > 1) BEGIN_SUM(1, 0, 1)
    if (columns > 2) BEGIN_SUM(2, 0, 2)
    if (columns > 3) BEGIN_SUM(3, 0, 3)
    for (int s = 0; s < o->n_steps; s++) multiply_one(parts, columns, o, s);
    END_SUM(0, 0, 0)
    if (columns > 1) END_SUM(1, 0, 1)
    if (columns > 2) END_SUM(2, 0, 2)
    if (columns > 3) END_SUM(3, 0, 3)
}

// Pairs of tiles of rows by all columns, two at a time.
TILES_INLINE void rows_in_pairs(const int parts, int n_tiles, int n, operands o, result to)
{
    float *c = to.c;
    for (int column = 0; column < n; column += 2 * TILE_SUMS, o.b += 2 * (size_t)parts * o.part_size) {
        for (o.row_tile = 0; o.row_tile < n_tiles; o.row_tile += 2) {
            to.c = c + (size_t)o.row_tile * TILE_ROWS * (size_t)to.ldc + column;
            if (n - column > TILE_SUMS)
                two_tiles(parts, 2, &o, &to);
            else
                two_tiles(parts, 1, &o, &to);
        }
        if (to.bias) to.bias += 2 * TILE_SUMS;
    }
}

// One tile of m rows by all columns.
TILES_INLINE void rows_of_one(const int parts, int m, int n, operands o, result to)
{
    for (int column = 0; column < n; column += 4 * TILE_SUMS, o.b += 4 * (size_t)parts * o.part_size) {
        switch ((n - column) / TILE_SUMS) {
        case 1: one_tile(parts, 1, &o, m, &to); break;
        case 2: one_tile(parts, 2, &o, m, &to); break;
        case 3: one_tile(parts, 3, &o, m, &to); break;
        default: one_tile(parts, 4, &o, m, &to); break;
        }
        to.c += 4 * TILE_SUMS;
        if (to.bias) to.bias += 4 * TILE_SUMS;
    }
}

// Rows that have been split, by all matrices.
TILES_INLINE void rows_by_blocks(const int parts, int m, int n_blocks, const nn_block *blocks, operands o, result to)
{
    const int paired = m / (2 * TILE_ROWS) * 2;
    float *c = to.c;
    if (paired) tile_begin(TILE_ROWS);
    for (const nn_block *b = blocks; paired && b < blocks + n_blocks; b++) {
        o.b = (const uint16_t *)b->packed;
        to.c = c + b->column;
        rows_in_pairs(parts, paired, b->n, o, to);
    }
    for (o.row_tile = paired; o.row_tile * TILE_ROWS < m; o.row_tile++) {
        const int done = o.row_tile * TILE_ROWS, left = m - done < TILE_ROWS ? m - done : TILE_ROWS;
        tile_begin(left);
        for (const nn_block *b = blocks; b < blocks + n_blocks; b++) {
            o.b = (const uint16_t *)b->packed;
            to.c = c + (size_t)done * (size_t)to.ldc + b->column;
            rows_of_one(parts, left, b->n, o, to);
        }
    }
    tile_fence();
}

// The next columns of a, from run `*run` and its row `*at` of b on. Tiles of b begin at multiples of 32 rows, so that the bits of a sum do not
// depend on which of the other rows are left out.
static int next_steps(int max_steps, int n_runs, const nn_rows *runs, int *run, int *at, int *column, step *steps)
{
    int n = 0;
    while (n < max_steps && *run < n_runs) {
        const int row = runs[*run].first + *at, first = row % TILE_TERMS, left = runs[*run].count - *at;
        const int width = left < TILE_TERMS - first ? left : TILE_TERMS - first;
        steps[n++] = (step){*column, first, width, (row - first) / BLOCK};
        *column += width;
        *at += width;
        if (*at == runs[*run].count) {
            ++*run;
            *at = 0;
        }
    }
    return n;
}

// Tiles of terms for which rows of a are split at a time, and rows: all terms where c += a b, so that this rounds as a sum and an addition do.
static void choose_split(int parts, int accumulate, int n_runs, const nn_rows *runs, split_rows *a)
{
    int all = 0;
    a->row_tiles = ROW_TILES;
    a->max_steps = MAX_STEPS / parts;
    for (int r = 0; r < n_runs; r++) all += (runs[r].first % TILE_TERMS + runs[r].count + TILE_TERMS - 1) / TILE_TERMS;
    if (!accumulate || all <= a->max_steps || all * parts > MAX_TILES) return;
    a->max_steps = all;
    a->row_tiles = MAX_TILES / (all * parts);
    if (a->row_tiles > 1) a->row_tiles -= a->row_tiles % 2;
}

TILES_INLINE void product_of_parts(const int parts, int m, int k, int n_runs, const nn_rows *runs, int n_blocks,
                                   const nn_block *blocks, const float *a, int lda, const float *bias, float *c, int ldc,
                                   int accumulate)
{
    uint16_t tiles[MAX_TILES * TILE] __attribute__((aligned(64)));
    step steps[MAX_TILES];
    operands o = {.a = {.tiles = tiles}, .steps = steps, .part_size = (size_t)blocks_of(k) * BLOCK * TILE_SUMS};
    choose_split(parts, accumulate, n_runs, runs, &o.a);
    const int rows = o.a.row_tiles * TILE_ROWS;
    for (int row = 0; row < m; row += rows, a += (size_t)rows * (size_t)lda, c += (size_t)rows * (size_t)ldc) {
        const int n_rows = m - row < rows ? m - row : rows;
        int run = 0, at = 0, column = 0;
        result to = {accumulate ? ADD : SET, bias, c, ldc};
        while ((o.n_steps = next_steps(o.a.max_steps, n_runs, runs, &run, &at, &column, steps)) > 0) {
            split(parts, n_rows, o.n_steps, steps, a, lda, &o.a);
            tile_fence();
            rows_by_blocks(parts, n_rows, n_blocks, blocks, o, to);
            to.bias = NULL;
            if (!accumulate) to.start = CONTINUE;
        }
    }
    tile_end();
}

// ---- tables -------------------------------------------------------------------------------------------------------------

#define PRODUCTS(parts)                                                                                                          \
    static size_t packed_floats_##parts(int k, int n)                                                                            \
    {                                                                                                                            \
        return packed_numbers(parts, k, n) / 2;                                                                                  \
    }                                                                                                                            \
    static void pack_##parts(int k, int n, const float *b, float *packed)                                                        \
    {                                                                                                                            \
        pack(parts, k, n, b, (uint16_t *)packed);                                                                                \
    }                                                                                                                            \
    TILES static void product_rows_##parts(int m, int n, int k, int n_runs, const nn_rows *runs, const float *a, int lda,        \
                                           const float *packed, const float *bias, float *c, int ldc, int accumulate)            \
    {                                                                                                                            \
        const nn_block all = {packed, n, 0};                                                                                     \
        product_of_parts(parts, m, k, n_runs, runs, 1, &all, a, lda, bias, c, ldc, accumulate);                                  \
    }                                                                                                                            \
    TILES static void product_blocks_##parts(int m, int k, int n_blocks, const nn_block *blocks, const float *a, int lda,        \
                                             float *c, int ldc, int accumulate)                                                  \
    {                                                                                                                            \
        const nn_rows all = {0, k};                                                                                              \
        product_of_parts(parts, m, k, 1, &all, n_blocks, blocks, a, lda, NULL, c, ldc, accumulate);                              \
    }                                                                                                                            \
    static void product_##parts(int m, int n, int k, const float *a, int lda, const float *packed, const float *bias, float *c,  \
                                int ldc, int accumulate)                                                                         \
    {                                                                                                                            \
        const nn_rows all = {0, k};                                                                                              \
        product_rows_##parts(m, n, k, 1, &all, a, lda, packed, bias, c, ldc, accumulate);                                        \
    }
PRODUCTS(1)
PRODUCTS(2)
PRODUCTS(3)

#define TABLE(parts, activation)                                                                                                 \
    {                                                                                                                            \
        .path = "amx", .packed_floats = packed_floats_##parts, .pack = pack_##parts, .product = product_##parts,                 \
        .product_in_parts = product_##parts, .product_rows = product_rows_##parts, .product_blocks = product_blocks_##parts,     \
        .activate = activation                                                                                                   \
    }
const nn_kernels SIMD_SYMBOL(nn_tile_kernels)[] = {[NN_FLOAT32] = TABLE(3, SIMD_SYMBOL(nn_activate)),
                                                   [NN_TF32] = TABLE(2, SIMD_SYMBOL(nn_activate)),
                                                   [NN_BF16] = TABLE(1, nn_bfloat16_activate)};
#endif
