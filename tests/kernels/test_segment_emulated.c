// SPDX-License-Identifier: MIT
// Purpose: norms, attention, sums over edges and softmax of src/gpu/nn, forward and backward, run thread by thread on the CPU
// (emulate_cuda.h), against float64: sums in plain loops, derivatives by central differences of the float64 function
// (segment_support.h). Random and extreme sizes, an atom without edges, logits in one part and in four, every precision.
// Tolerances, of the largest result: 3e-6 for float32 (as on the CPU), 2e-3 for tf32 and 2e-2 for bf16, operands of 11 and 8 bits; 2e-5 for
// float32 where gates saturate or rows have an offset, which cancels. Softmax is float32 in every precision: 1e-6 for shares.
#include "gpu_operand.h"
#include "segment_support.h"

#include "gpu/nn/gpu_segment.h"

enum { N = SEGMENT_EDGES, ATOMS = SEGMENT_ATOMS, W = SEGMENT_WIDTH };
static const int32_t n_atoms = ATOMS, n_edges = N;

static double tolerance_of(const segment_case *c, enum gpu_number numbers)
{
    const bool hard = strcmp(c->name, "offset") == 0 || strcmp(c->name, "saturated gates") == 0;
    return numbers == GPU_NUMBER_TF32 ? 2e-3 : numbers == GPU_NUMBER_BF16 ? 2e-2 : hard ? 2e-5 : 3e-6;
}

static void expect(const segment_case *c, enum gpu_number numbers, const char *what, double error, double tolerance)
{
    if (!(error <= tolerance))
        fail_msg("%s, %s, numbers %d, %s: %.2e", c->name, c->layer_norm ? "LayerNorm" : "RMSNorm", numbers, what, error);
}

// Rows of an operand times a factor for each row (NULL: 1), as floats.
static float *rows_of(gpu_operand m, enum gpu_number numbers, int rows, const float *scale)
{
    float *x = calloc((size_t)rows * (size_t)m.columns, sizeof *x);
    for (int i = 0; i < rows; i++)
        for (int k = 0; k < m.columns; k++)
            x[i * m.columns + k] = (float)((scale ? (double)scale[i] : 1.0) * operand_get(m, numbers, i, k));
    return x;
}

static gpu_edge_list list_of(const segment_case *c)
{
    return (gpu_edge_list){&n_atoms, &n_edges, c->first, c->first_incoming, c->incoming, c->sender, c->receiver};
}

typedef struct float_layer {
    float z[N][W], inverse[N], logits[N * GPU_LOGIT_PARTS][2];
} float_layer;

// z, 1/s and the logits, which the epilogues of products give, rounded to float32; logits in 1 or 8 parts.
static void fill_layer(const segment_case *c, int parts, float_layer *layer)
{
    for (int i = 0; i < N; i++) {
        layer->inverse[i] = (float)c->inverse[i];
        for (int k = 0; k < W; k++) layer->z[i][k] = (float)c->z[i][k];
        for (int p = 0; p < parts; p++)
            for (int g = 0; g < 2; g++) {
                double sum = 0;
                for (int k = 0; k < W; k++)
                    if (k * parts / W == p) sum += (double)c->gate[g][k] * (double)c->e[i][k];
                layer->logits[i * parts + p][g] = (float)sum;
            }
    }
}

static void check_layer(const segment_case *c, enum gpu_number numbers, int parts)
{
    float_layer *layer = calloc(1, sizeof *layer);
    const double tolerance = tolerance_of(c, numbers);
    fill_layer(c, parts, layer);
    gpu_attention attention = {.edges = list_of(c),
                               .logits = layer->logits[0],
                               .logit_parts = parts,
                               .bias = {c->gate_bias[0], c->gate_bias[1]},
                               .envelope = c->envelope,
                               .z = layer->z[0],
                               .scale = c->weight,
                               .shift = c->layer_norm ? c->shift : NULL,
                               .out = operand_new(2 * W)};
    assert_int_equal(gpu_launch_attention(&attention, numbers, ATOMS + 3, 0, NULL), 0);
    float *sums = rows_of(attention.out, numbers, ATOMS, NULL);
    expect(c, numbers, "attention", segment_error(ATOMS, 2 * W, c->sums[0][0], 2 * W, sums, 2 * W), tolerance);

    float *e_bar = malloc(sizeof c->e_bar), *envelope_bar = calloc(N, sizeof *envelope_bar),
          *row_scale = calloc(N, sizeof *row_scale);
    memcpy(e_bar, c->e_bar, sizeof c->e_bar);
    gpu_attention_backward back = {.attention = attention,
                                   .weight = c->gate[0],
                                   .sums_bar = c->sums_bar[0][0],
                                   .stride = 2 * W,
                                   .e_bar = e_bar,
                                   .envelope_bar = envelope_bar,
                                   .norm = {layer->z[0], layer->inverse, c->weight, c->layer_norm, operand_new(W), row_scale},
                                   .rows = N};
    assert_int_equal(gpu_launch_attention_backward(&back, numbers, 0, NULL), 0);
    float *y_bar = rows_of(back.norm.y_bar, numbers, N, row_scale);
    // Adjoints of edges' features and envelopes stay float32 in every precision.
    expect(c, numbers, "dL/de", segment_error(N, W, c->e_grad[0], W, e_bar, W), tolerance_of(c, GPU_NUMBER_FLOAT32));
    expect(c, numbers, "dL/d(envelope)", segment_error(N, 1, c->envelope_grad, 1, envelope_bar, 1),
           tolerance_of(c, GPU_NUMBER_FLOAT32));
    expect(c, numbers, "dL/dy", segment_error(N, W, c->y_grad[0], W, y_bar, W), tolerance);
    for (int i = 0; i < N; i++) { // rows are stored with their largest element between 4 and 8
        double largest = 0;
        for (int k = 0; k < W; k++) largest = fmax(largest, fabs(operand_get(back.norm.y_bar, numbers, i, k)));
        assert_true(largest == 0 || (largest > 3.9 && largest < 8.1));
    }
    operand_free(attention.out), operand_free(back.norm.y_bar);
    free(layer), free(sums), free(e_bar), free(envelope_bar), free(row_scale), free(y_bar);
}

static void test_attention(void **state)
{
    (void)state;
    for (int k = 0; k < SEGMENT_SIZES * 2; k++) {
        segment_case *c = segment_case_new(&segment_all_sizes[k % SEGMENT_SIZES], W, k / SEGMENT_SIZES, 41 + (uint64_t)k);
        for (int numbers = 0; numbers < 3; numbers++) check_layer(c, (enum gpu_number)numbers, k % 2 ? 1 : GPU_LOGIT_PARTS);
        free(c);
    }
}

// The first layer of the reverse pass begins with zeros, whatever the arrays hold.
static void test_beginning(void **state)
{
    (void)state;
    segment_sizes sizes = {"begins", 1, 0, 1, 1};
    segment_case *c = segment_case_new(&sizes, W, 1, 61);
    memset(c->e_bar, 0, sizeof c->e_bar);
    segment_differentiate(c);
    float_layer *layer = calloc(1, sizeof *layer);
    _Alignas(16) float e_bar[N][W], envelope_bar[N], row_scale[N];
    fill_layer(c, 1, layer);
    for (int i = 0; i < N; i++) {
        envelope_bar[i] = NAN;
        for (int k = 0; k < W; k++) e_bar[i][k] = NAN;
    }
    gpu_attention_backward back = {.attention = {.edges = list_of(c),
                                                 .logits = layer->logits[0],
                                                 .logit_parts = 1,
                                                 .bias = {c->gate_bias[0], c->gate_bias[1]},
                                                 .envelope = c->envelope,
                                                 .z = layer->z[0],
                                                 .scale = c->weight,
                                                 .shift = c->shift},
                                   .weight = c->gate[0],
                                   .sums_bar = c->sums_bar[0][0],
                                   .stride = 2 * W,
                                   .begins = 1,
                                   .e_bar = e_bar[0],
                                   .envelope_bar = envelope_bar,
                                   .norm = {layer->z[0], layer->inverse, c->weight, 1, operand_new(W), row_scale},
                                   .rows = N};
    assert_int_equal(gpu_launch_attention_backward(&back, GPU_NUMBER_FLOAT32, 0, NULL), 0);
    expect(c, GPU_NUMBER_FLOAT32, "dL/de", segment_error(N, W, c->e_grad[0], W, e_bar[0], W), 3e-6);
    expect(c, GPU_NUMBER_FLOAT32, "dL/d(envelope)", segment_error(N, 1, c->envelope_grad, 1, envelope_bar, 1), 3e-6);
    operand_free(back.norm.y_bar), free(layer), free(c);
}

// Forward: z, 1/s and the operand; z in the place of y, or elsewhere.
static void check_norm_forward(const segment_case *c, enum gpu_number numbers, int first)
{
    static _Alignas(16) float y[N][W], z[N][W];
    float inverse[N];
    memcpy(y, c->y, sizeof y);
    gpu_norm call = {.n_rows = &n_edges,
                     .first_row = first,
                     .rows = N,
                     .y = y[0],
                     .scale = c->weight,
                     .shift = c->layer_norm ? c->shift : NULL,
                     .epsilon = (float)c->epsilon,
                     .z = first ? y[0] : z[0],
                     .inverse = inverse,
                     .out = operand_new(W)};
    assert_int_equal(gpu_launch_norm(&call, numbers, 0, NULL), 0);
    float *out = rows_of(call.out, numbers, N, NULL);
    const double exact = tolerance_of(c, GPU_NUMBER_FLOAT32);
    expect(c, numbers, "z", segment_error(N - first, W, c->z[first], W, call.z + first * W, W), exact);
    expect(c, numbers, "1/s", segment_error(N - first, 1, c->inverse + first, 1, inverse + first, 1), exact);
    expect(c, numbers, "norm", segment_error(N - first, W, c->v[first], W, out + first * W, W), tolerance_of(c, numbers));
    call.z = call.inverse = NULL; // not stored
    assert_int_equal(gpu_launch_norm(&call, numbers, 0, NULL), 0);
    operand_free(call.out), free(out);
}

// dL/dy of L = Σ norm(y) · total with total = bar + added, or the row of a group.
static void check_norm(const segment_case *c, enum gpu_number numbers, int from_groups, int first)
{
    static _Alignas(16) float bar[N][W], added[N][3 * W], initial[2][W], z[N][W], inverse[N], row_scale[N];
    static double expected[N][W];
    int32_t group[N];
    for (int i = 0; i < N; i++) {
        double g[W], mean = 0, along = 0;
        group[i] = i % 2;
        inverse[i] = (float)c->inverse[i];
        for (int k = 0; k < W; k++) {
            z[i][k] = (float)c->z[i][k];
            added[i][k] = (float)k * c->e_bar[0][k] / W;
            initial[i % 2][k] = c->e_bar[i % 2][k];
            bar[i][k] = from_groups ? NAN : c->e_bar[i][k];
            g[k] = (double)c->weight[k] * (from_groups ? (double)initial[i % 2][k] : (double)(bar[i][k] + added[i][k]));
            mean += c->layer_norm ? g[k] / W : 0;
            along += g[k] * c->z[i][k] / W;
        }
        for (int k = 0; k < W; k++) expected[i][k] = (g[k] - mean - c->z[i][k] * along) * c->inverse[i];
    }
    gpu_norm_backward call = {.norm = {z[0], inverse, c->weight, c->layer_norm, operand_new(W), row_scale},
                              .n_rows = &n_edges,
                              .first_row = first,
                              .rows = N, // more than there are behind the first
                              .bar = bar[0],
                              .added = from_groups ? NULL : added[0],
                              .stride = 3 * W,
                              .initial = from_groups ? initial[0] : NULL,
                              .group = group};
    assert_int_equal(gpu_launch_norm_backward(&call, numbers, 0, NULL), 0);
    float *y_bar = rows_of(call.norm.y_bar, numbers, N - first, row_scale + first);
    expect(c, numbers, "norm backward", segment_error(N - first, W, expected[first], W, y_bar, W), tolerance_of(c, numbers));
    for (int i = first; i < N; i++)
        for (int k = 0; k < W; k++) // the total is stored
            assert_true(bar[i][k] == (from_groups ? initial[i % 2][k] : c->e_bar[i][k] + added[i][k]));
    operand_free(call.norm.y_bar), free(y_bar);
}

static void test_norm(void **state)
{
    (void)state;
    for (int k = 0; k < SEGMENT_SIZES * 2; k++) {
        segment_case *c = segment_case_new(&segment_all_sizes[k % SEGMENT_SIZES], W, k / SEGMENT_SIZES, 51 + (uint64_t)k);
        for (int numbers = 0; numbers < 3; numbers++) {
            check_norm_forward(c, (enum gpu_number)numbers, k % 2 == 0 ? 5 : 0);
            check_norm(c, (enum gpu_number)numbers, k % 2, k % 3 == 0 ? 7 : 0);
        }
        free(c);
    }
}

// Sums of scaled rows of different sizes, over sent and over received edges.
static void test_segment_sum(void **state)
{
    (void)state;
    enum { H = 128 };
    segment_case *c = segment_case_new(&segment_all_sizes[0], W, 1, 71);
    for (int numbers = 0; numbers < 3; numbers++) {
        static double expected[ATOMS][2][H];
        float row_scale[N], sums_scale[ATOMS] = {0};
        gpu_segment_sum call = {list_of(c), operand_new(H), row_scale, operand_new(2 * H), sums_scale};
        memset(expected, 0, sizeof expected);
        for (int e = 0; e < N; e++) {
            row_scale[e] = ldexpf(1, c->sender[e] == 3 ? -20 : 3);
            for (int k = 0; k < H; k++) {
                operand_set(call.rows, (enum gpu_number)numbers, e, k, c->y[e][k]);
                const double x = (double)row_scale[e] * operand_get(call.rows, (enum gpu_number)numbers, e, k);
                expected[c->sender[e]][0][k] += x;
                expected[c->receiver[e]][1][k] += x;
            }
        }
        assert_int_equal(gpu_launch_segment_sum(&call, (enum gpu_number)numbers, ATOMS + 2, 0, NULL), 0);
        float *sums = rows_of(call.sums, (enum gpu_number)numbers, ATOMS, sums_scale);
        for (int i = 0; i < ATOMS; i++) // each atom by itself: their sizes differ by 10⁶
            expect(c, (enum gpu_number)numbers, "sums of an atom",
                   segment_error(1, 2 * H, expected[i][0], 2 * H, sums + i * 2 * H, 2 * H),
                   tolerance_of(c, (enum gpu_number)numbers));
        operand_free(call.rows), operand_free(call.sums), free(sums);
    }
    free(c);
}

// The results replace the inputs, or do not; rows of other columns are not written.
static void check_softmax(const softmax_case *s, bool in_place)
{
    const int H = s->columns;
    float *x = malloc(sizeof *x * (size_t)(N * H)), *bar = malloc(sizeof *bar * (size_t)(N * H)),
          *share = in_place ? x : malloc(sizeof *share * (size_t)(N * H)),
          *x_bar = in_place ? bar : malloc(sizeof *x_bar * (size_t)(N * H));
    for (int e = 0; e < N; e++) {
        memcpy(x + e * H, s->x[e], sizeof *x * (size_t)H);
        memcpy(bar + e * H, s->share_bar[e], sizeof *bar * (size_t)H);
    }
    const gpu_segments segments = {&n_atoms, s->first, s->row};
    const gpu_softmax call = {segments, H, x, share, NULL};
    const gpu_softmax_backward back = {segments, H, share, bar, x_bar, NULL};
    assert_int_equal(gpu_launch_softmax(&call, ATOMS + 3, 0, NULL), 0);
    assert_int_equal(gpu_launch_softmax_backward(&back, ATOMS + 3, 0, NULL), 0);
    const double error = softmax_error(s, s->share, share, H, 1), error_bar = softmax_error(s, s->x_grad, x_bar, H, s->adjoint);
    if (!(error <= 1e-6 && error_bar <= 3e-6))
        fail_msg("softmax, %s, %d columns, %s: shares %.2e, dL/dx %.2e", s->name, H, s->row ? "incoming" : "sent", error,
                 error_bar);
    if (!in_place) free(share), free(x_bar);
    free(x), free(bar);
}

static void test_softmax(void **state)
{
    (void)state;
    static const int columns[] = {1, 6, 8, 32};
    segment_case *c = segment_case_new(&segment_all_sizes[0], W, 1, 81);
    for (int k = 0; k < SOFTMAX_SIZES * 4 * 2; k++) {
        const softmax_case s = softmax_case_new(c, &softmax_all_sizes[k % SOFTMAX_SIZES], k / SOFTMAX_SIZES / 4,
                                                columns[k / SOFTMAX_SIZES % 4], 91 + (uint64_t)k);
        check_softmax(&s, k % 2);
    }
    const gpu_softmax wide = {.columns = GPU_SOFTMAX_COLUMNS + 1}, none = {.columns = 0};
    assert_int_equal(gpu_launch_softmax(&wide, 1, 0, NULL), 1); // cudaErrorInvalidValue
    assert_int_equal(gpu_launch_softmax(&none, 1, 0, NULL), 1);
    free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_attention), cmocka_unit_test(test_beginning),
                                       cmocka_unit_test(test_norm), cmocka_unit_test(test_segment_sum),
                                       cmocka_unit_test(test_softmax)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
