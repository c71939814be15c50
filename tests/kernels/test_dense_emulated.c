// SPDX-License-Identifier: MIT
// Purpose: dense layers of src/gpu/nn, forward and backward, run thread by thread on the CPU (emulate_cuda.h), against sums in float64:
// every precision and kind of tile, two operands side by side, ragged numbers of rows, later rows only.
// Tolerances, of the largest result: 1e-6 for float32 (operands of 22 bits, weights too), 2e-3 for tf32 (11 bits), 2e-2 for bf16 (8 bits).
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "gpu_operand.h"

enum { ROWS = 150, OUTPUTS = 320, INPUTS = 192, FIRST = 128 };
static const double tolerance[] = {1e-6, 2e-3, 2e-2};

typedef struct case_data {
    double x[ROWS][INPUTS], w[OUTPUTS][INPUTS], expected[ROWS][OUTPUTS];
    float bias[OUTPUTS];
} case_data;

static double next_normal(uint64_t *state)
{
    return base_random_normal(3, 1, (*state)++);
}

static void weights(const void *context, int n, int k, int count, float *values)
{
    for (int j = 0; j < count; j++) values[j] = (float)((const case_data *)context)->w[n][k + j];
}

static void transposed_weights(const void *context, int n, int k, int count, float *values)
{
    for (int j = 0; j < count; j++) values[j] = (float)((const case_data *)context)->w[k + j][n];
}

static void fill(case_data *d, uint64_t seed)
{
    uint64_t state = seed;
    for (int n = 0; n < OUTPUTS; n++) {
        d->bias[n] = (float)next_normal(&state);
        for (int k = 0; k < INPUTS; k++) d->w[n][k] = next_normal(&state) / sqrt(INPUTS);
    }
    for (int r = 0; r < ROWS; r++)
        for (int k = 0; k < INPUTS; k++) d->x[r][k] = next_normal(&state);
}

static double silu(double x)
{
    return x / (1 + exp(-x));
}
static double silu_slope(double x)
{
    const double s = 1 / (1 + exp(-x));
    return s * (1 + x * (1 - s));
}
static double softplus(double x)
{
    return log1p(exp(x)) - log(2.0);
}

static void *new_block(enum gpu_number numbers, int outputs, int inputs, const float *bias, gpu_weights value, const case_data *d,
                       gpu_linear *layer)
{
    gpu_packer p = {NULL, NULL, 0};
    gpu_pack_linear(&p, numbers, outputs, inputs, bias, value, d);
    char *block = aligned_alloc(256, (p.at + 255) / 256 * 256);
    p = (gpu_packer){block, block, 0};
    *layer = gpu_pack_linear(&p, numbers, outputs, inputs, bias, value, d);
    return block;
}

// Forward with two operands, columns 0 … 63 and the rest; rows from `first` on.
static double forward_error(case_data *d, enum gpu_number numbers, int wide, enum gpu_activation kind, int first)
{
    gpu_linear layer;
    const int32_t n_rows = ROWS;
    void *block = new_block(numbers, OUTPUTS, INPUTS, d->bias, weights, d, &layer);
    gpu_operand a = operand_new(64), b = operand_new(INPUTS - 64), out = operand_new(OUTPUTS);
    float *values = calloc((size_t)ROWS * OUTPUTS, sizeof *values);
    for (int r = 0; r < ROWS; r++)
        for (int k = 0; k < INPUTS; k++) operand_set(k < 64 ? a : b, numbers, r, k < 64 ? k : k - 64, d->x[r][k]);
    const gpu_dense dense = {
        .product = {.a = {a, b}, .layer = layer, .n_rows = &n_rows, .first_row = first, .rows = ROWS - first},
        .activation = kind,
        .out = out,
        .values = values,
        .stride = OUTPUTS};
    const gpu_linear_plan plan = {numbers, wide, 3, 0};
    assert_int_equal(gpu_launch_dense(&dense, &plan, NULL), 0);
    double worst = 0, size = 0;
    for (int r = first; r < ROWS; r++)
        for (int n = 0; n < OUTPUTS; n++) {
            double y = d->bias[n];
            for (int k = 0; k < INPUTS; k++) y += d->w[n][k] * d->x[r][k];
            y = kind == GPU_SILU ? silu(y) : kind == GPU_SHIFTED_SOFTPLUS ? softplus(y) : y;
            size = fmax(size, fabs(y));
            worst = fmax(worst, fabs(values[(size_t)r * OUTPUTS + (size_t)n] - y));
            worst = fmax(worst, fabs(operand_get(out, numbers, r, n) - y)); // NaN where a result is missing
            if (!(fabs(operand_get(out, numbers, r, n) - y) < 1))
                fail_msg("row %d, output %d: %g, expected %g", r, n, operand_get(out, numbers, r, n), y);
        }
    for (int r = 0; r < first; r++)
        for (int n = 0; n < OUTPUTS; n++) assert_true(values[(size_t)r * OUTPUTS + (size_t)n] == 0);
    operand_free(a), operand_free(b), operand_free(out), free(values), free(block);
    return worst / size;
}

// Backward: x̄ = (ȳ W) f'(p) with the transposed weights and the saved p, whose place the result may take; the same times a factor for each
// row, added to floats.
static double backward_error(case_data *d, enum gpu_number numbers, int wide, int in_place)
{
    gpu_linear layer;
    const int32_t n_rows = ROWS;
    uint64_t state = 11;
    void *block = new_block(numbers, INPUTS, OUTPUTS, NULL, transposed_weights, d, &layer);
    gpu_operand adjoint = operand_new(OUTPUTS), saved = operand_new(INPUTS), out = operand_new(INPUTS);
    double worst = 0, size = 0, *bar = calloc((size_t)ROWS * OUTPUTS, sizeof *bar);
    for (int r = 0; r < ROWS; r++) {
        for (int n = 0; n < OUTPUTS; n++) operand_set(adjoint, numbers, r, n, bar[r * OUTPUTS + n] = next_normal(&state));
        for (int k = 0; k < INPUTS; k++) operand_set(saved, numbers, r, k, d->x[r][k]);
    }
    float *values = calloc((size_t)ROWS * INPUTS, sizeof *values), *row_scale = calloc(ROWS, sizeof *row_scale);
    for (int r = 0; r < ROWS; r++) {
        row_scale[r] = ldexpf(1, r % 5 - 2);
        for (int k = 0; k < INPUTS; k++) values[r * INPUTS + k] = (float)(k % 8) / 8;
    }
    const gpu_dense dense = {.product = {.a = {adjoint}, .layer = layer, .n_rows = &n_rows, .rows = ROWS},
                             .activation = GPU_SILU,
                             .out = in_place ? saved : out,
                             .saved = saved,
                             .values = values,
                             .stride = INPUTS,
                             .adds = 1,
                             .row_scale = row_scale};
    const gpu_linear_plan plan = {numbers, wide, 3, 0};
    assert_int_equal(gpu_launch_dense(&dense, &plan, NULL), 0);
    for (int r = 0; r < ROWS; r++)
        for (int k = 0; k < INPUTS; k++) {
            double y = 0;
            for (int n = 0; n < OUTPUTS; n++) y += bar[r * OUTPUTS + n] * d->w[n][k];
            y *= silu_slope(d->x[r][k]);
            size = fmax(size, fabs(y));
            worst = fmax(worst, fabs(operand_get(in_place ? saved : out, numbers, r, k) - y));
            worst = fmax(worst, fabs(((double)values[r * INPUTS + k] - k % 8 / 8.0) / (double)row_scale[r] - y));
        }
    free(values), free(row_scale), operand_free(adjoint), operand_free(saved), operand_free(out), free(bar), free(block);
    return worst / size;
}

static void test_dense(void **state)
{
    (void)state;
    case_data *d = malloc(sizeof *d);
    fill(d, 5);
    assert_int_equal(gpu_prepare_dense(1), 0);
    for (int numbers = 0; numbers < 3; numbers++)
        for (int wide = 0; wide < GPU_LINEAR_TILES; wide++) {
            const double forward = forward_error(d, (enum gpu_number)numbers, wide, (enum gpu_activation)(wide % 3), 0),
                         back = backward_error(d, (enum gpu_number)numbers, wide, wide % 2);
            printf("numbers %d, tiles %d: forward %.1e, backward %.1e\n", numbers, wide, forward, back);
            assert_true(forward <= tolerance[numbers] && back <= tolerance[numbers]);
        }
    assert_true(forward_error(d, GPU_NUMBER_FLOAT32, 1, GPU_SILU, FIRST) <= tolerance[0]);
    free(d);
}

// Tiles for few and for many rows, and without Hopper's instructions.
static void test_choice(void **state)
{
    (void)state;
    assert_int_equal(gpu_linear_choose(GPU_NUMBER_TF32, 12, 512, 132, 1).wide, 3);
    assert_int_equal(gpu_linear_choose(GPU_NUMBER_TF32, 240, 512, 132, 1).wide, 4);
    assert_int_equal(gpu_linear_choose(GPU_NUMBER_TF32, 1260, 512, 132, 1).wide, 2);
    assert_int_equal(gpu_linear_choose(GPU_NUMBER_TF32, 20480, 512, 132, 1).wide, 1);
    assert_int_equal(gpu_linear_choose(GPU_NUMBER_TF32, 20480, 512, 132, 0).wide, 0);
}

static void bits_of_place(const void *context, int n, int k, float *values)
{
    const uint32_t first = *(const uint32_t *)context + (uint32_t)(16 * n + k) * 16;
    for (int j = 0; j < 16; j++) {
        const uint32_t bits = (first + (uint32_t)j) * 2654435761u; // odd: other places have other bits
        memcpy(&values[j], &bits, sizeof bits);
    }
}

static void special_values(const void *context, int n, int k, float *values)
{
    (void)n;
    memcpy(values, (const float *)context + k, 16 * sizeof *values);
}

// Operands that are packed a tile at a time have the bits of gpu_to_half and gpu_to_bfloat, number by number: all sizes, subnormal halves,
// what is too large, infinities, NaN.
static void test_packed_operands(void **state)
{
    (void)state;
    enum { COLUMNS = 512, DEPTH = 512 };
    static const int numbers[] = {GPU_SPLIT_HALVES, GPU_HALVES, GPU_BFLOATS, GPU_THREE_BFLOATS}, parts[] = {2, 1, 1, 3};
    const float special[] = {0.0f,     -0.0f,        65519.99f, 65520.0f, -65536.0f,  INFINITY,  -INFINITY,  NAN,
                             0x1p-14f, 0x1.ffcp-15f, 0x1p-24f,  0x1p-25f, 0x1.8p-24f, -0x1p-30f, 0x1.002p3f, 1e-40f};
    for (int kind = 0; kind < 4; kind++)
        for (int turn = 0; turn < 2; turn++) {
            const uint32_t first = (uint32_t)(kind * 2 + turn) << 22;
            const float scale = turn ? 0x1p-9f : 1.0f;
            const bool bfloats = numbers[kind] == GPU_BFLOATS || numbers[kind] == GPU_THREE_BFLOATS;
            uint16_t *packed = malloc((size_t)COLUMNS * DEPTH * 2 * (size_t)parts[kind]);
            gpu_packer p = {(char *)packed, NULL, 0};
            gpu_pack_operand(&p, numbers[kind], COLUMNS, DEPTH, scale, bits_of_place, &first);
            assert_int_equal(p.at, (size_t)COLUMNS * DEPTH * 2 * (size_t)parts[kind]);
            for (int n = 0; n < COLUMNS; n++)
                for (int k = 0; k < DEPTH; k++) {
                    float values[16];
                    bits_of_place(&first, n, k / 16 * 16, values);
                    double w = (double)(values[k % 16] * scale);
                    const int lane = 4 * (n % 8) + k % 8 / 2, tile = n / 8 * (DEPTH / 16) + k / 16, e = k % 2 + 2 * (k % 16 / 8);
                    for (int part = 0; part < parts[kind]; part++) {
                        const uint16_t expected = bfloats ? gpu_to_bfloat(w) : gpu_to_half(w);
                        assert_int_equal(packed[((tile * 32 + lane) * parts[kind] + part) * 4 + e], expected);
                        w -= bfloats ? operand_from_bfloat(expected) : gpu_from_half(expected);
                    }
                }
            free(packed);
        }
    for (int kind = 0; kind < 2; kind++) {
        uint16_t packed[256];
        gpu_packer p = {(char *)packed, NULL, 0};
        gpu_pack_operand(&p, numbers[kind], 8, 16, 1, special_values, special);
        for (int k = 0; k < 16; k++) {
            const int at = k % 8 / 2 * 4 * parts[kind] + k % 2 + 2 * (k / 8);
            const uint16_t high = gpu_to_half(special[k]);
            assert_int_equal(packed[at], high);
            if (kind == 0) assert_int_equal(packed[at + 4], gpu_to_half((double)special[k] - gpu_from_half(high)));
        }
    }
}

// Packed layers have the bits of gpu_to_half and gpu_to_bfloat of the weights times the layer's scale, at their places; outputs and inputs that
// fill no block are followed by zeros. The largest weight is below 2¹³.
static void test_packed_layer(void **state)
{
    (void)state;
    enum { N = 300, K = 150, ROWS_PADDED = 512, K_PADDED = 192 };
    case_data *d = malloc(sizeof *d);
    fill(d, 9);
    for (int kind = 0; kind < 3; kind++) {
        const enum gpu_number numbers = (enum gpu_number)kind;
        gpu_linear layer;
        void *block = new_block(numbers, N, K, NULL, weights, d, &layer);
        const uint16_t *high = layer.high, *low = layer.low;
        double largest = 0;
        for (int p = 0; p < ROWS_PADDED; p++)
            for (int k = 0; k < K_PADDED; k++) {
                const int n = p / 32 * 32 + p % 8 / 2 * 8 + p % 32 / 8 * 2 + p % 2;
                const size_t at =
                    (size_t)((k / 32 * (ROWS_PADDED / 8) + p / 8) * 4 + k % 32 / 8) * 64 + (size_t)(p % 8 * 8 + k % 8);
                const double w = n < N && k < K ? (double)(float)d->w[n][k] / (double)layer.unit : 0;
                const uint16_t expected = kind == 2 ? gpu_to_bfloat(w) : gpu_to_half(w);
                largest = fmax(largest, fabs(w));
                assert_int_equal(high[at], expected);
                if (kind == 0) assert_int_equal(low[at], gpu_to_half(w - gpu_from_half(expected)));
            }
        if (kind < 2) assert_true(largest <= 8192 && largest > 4096);
        free(block);
    }
    free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_dense), cmocka_unit_test(test_choice),
                                       cmocka_unit_test(test_packed_operands), cmocka_unit_test(test_packed_layer)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
