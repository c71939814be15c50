// SPDX-License-Identifier: MIT
// Purpose: norms, attention, sums over edges and softmax of src/nn on every CPU path, forward and backward, against float64: sums in plain loops,
// derivatives by central differences of the float64 function (segment_support.h). Random and extreme sizes, atoms without edges, widths
// with padding.
// Tolerances, of the largest result: 3e-6, float32 sums of up to 256 terms behind an exponential; 2e-5 where gates saturate or rows have an
// offset, which cancels; central differences add 1e-7. Softmax: 1e-6 for shares, an exponential and sums of up to 9 terms.
#include "segment_support.h"

#include "nn/segment.h"

static float *aligned(size_t n)
{
    return base_alloc(n, sizeof(float), "x");
}

// Rows of `width` from a case's array, padded to F with zeros.
static float *padded(const float *from, int rows, int width, int stride, int F)
{
    float *x = aligned((size_t)rows * (size_t)F);
    for (int i = 0; i < rows; i++)
        memcpy(x + (size_t)i * (size_t)F, from + (size_t)i * (size_t)stride, sizeof *x * (size_t)width);
    return x;
}

static void expect(const char *path, const segment_case *c, const char *what, double error)
{
    const double tolerance = strcmp(c->name, "offset") == 0 || strcmp(c->name, "saturated gates") == 0 ? 2e-5 : 3e-6;
    if (!(error <= tolerance))
        fail_msg("%s, %s, width %d, %s, %s: %.2e", path, c->name, c->width, c->layer_norm ? "LayerNorm" : "RMSNorm", what, error);
}

static void check_layer(const char *path, const segment_case *c)
{
    const nn_segment_kernels *kernels = nn_segment_kernels_get(path);
    const int F = nn_padded(c->width), n = SEGMENT_EDGES, W = SEGMENT_WIDTH;
    float *weight = padded(c->weight, 1, c->width, W, F), *shift = padded(c->shift, 1, c->width, W, F),
          *gates = padded(c->gate[0], 2, c->width, W, F), *y = padded(c->y[0], n, c->width, W, F),
          *e = padded(c->e[0], n, c->width, W, F), *e_bar = padded(c->e_bar[0], n, c->width, W, F),
          *sums_bar = padded(c->sums_bar[0][0], 2 * SEGMENT_ATOMS, c->width, W, F), *z = aligned((size_t)n * (size_t)F),
          *sums = aligned((size_t)SEGMENT_ATOMS * 3 * (size_t)F), *v_bar = aligned((size_t)n * (size_t)F),
          *y_bar = aligned((size_t)n * (size_t)F), inverse[SEGMENT_EDGES], gate[SEGMENT_EDGES][2],
          envelope_bar[SEGMENT_EDGES] = {0};
    const nn_norm norm = {F, c->width, (float)c->epsilon, weight, c->layer_norm ? shift : NULL};
    const nn_edges edges = {c->sender, c->receiver, c->first, c->first_incoming, c->incoming, c->envelope};
    // Forward; y becomes v. Two ranges of atoms, as threads have.
    kernels->norm(&norm, n, y, z, inverse);
    kernels->gates(n, F, gates, c->gate_bias, e, gate[0]);
    kernels->attention(&edges, 0, 2, F, y, gate[0], sums + F, 3 * F);
    kernels->attention(&edges, 2, SEGMENT_ATOMS, F, y, gate[0], sums + 2 * 3 * F + F, 3 * F);
    expect(path, c, "z", segment_error(n, c->width, c->z[0], W, z, F));
    expect(path, c, "1/s", segment_error(n, 1, c->inverse, 1, inverse, 1));
    expect(path, c, "norm", segment_error(n, c->width, c->v[0], W, y, F));
    expect(path, c, "gates", segment_error(n, 2, c->sigma[0], 2, gate[0], 2));
    expect(path, c, "received", segment_error(SEGMENT_ATOMS, c->width, c->sums[0][0], 2 * W, sums + F, 3 * F));
    expect(path, c, "sent", segment_error(SEGMENT_ATOMS, c->width, c->sums[0][1], 2 * W, sums + 2 * F, 3 * F));
    // Backward, in two ranges of edges.
    kernels->attention_backward(&edges, 0, 10, F, gates, y, gate[0], sums_bar, e_bar, v_bar, envelope_bar);
    kernels->attention_backward(&edges, 10, n, F, gates, y, gate[0], sums_bar, e_bar, v_bar + 10 * F, envelope_bar);
    kernels->norm_backward(&norm, n, z, inverse, v_bar, y_bar);
    expect(path, c, "dL/de", segment_error(n, c->width, c->e_grad[0], W, e_bar, F));
    expect(path, c, "dL/d(envelope)", segment_error(n, 1, c->envelope_grad, 1, envelope_bar, 1));
    expect(path, c, "dL/dy", segment_error(n, c->width, c->y_grad[0], W, y_bar, F));
    for (int i = 0; i < n; i++)
        for (int k = c->width; k < F; k++) assert_true(y[i * F + k] == 0 && y_bar[i * F + k] == 0); // the padding stays zero
    float *arrays[] = {weight, shift, gates, y, e, e_bar, sums_bar, z, sums, v_bar, y_bar};
    for (size_t k = 0; k < sizeof arrays / sizeof *arrays; k++) base_free(arrays[k]);
}

static void test_layer(void **state)
{
    (void)state;
    static const int widths[] = {17, 40, 256};
    for (int k = 0; k < SEGMENT_SIZES * 3 * 2; k++) {
        const int width = widths[k / SEGMENT_SIZES % 3], layer_norm = k / SEGMENT_SIZES / 3;
        segment_case *c = segment_case_new(&segment_all_sizes[k % SEGMENT_SIZES], width, layer_norm, 31 + (uint64_t)k);
        for (const char *const *path = mlff_cpu_paths(); *path; path++) check_layer(*path, c);
        free(c);
    }
}

// 1/s of rows whose mean is large beside their deviations, and of equal numbers: 3e-5, of the mean's rounding.
static void test_norm_of_offset_rows(void **state)
{
    (void)state;
    for (int k = 0; k < 4 * 5; k++) {
        const int width = (int[]){2, 3, 17, 40, 48}[k % 5], F = nn_padded(width);
        const double offset = (double[]){10, 100, 300, 1000}[k / 5];
        for (int is_equal = 0; is_equal < 2; is_equal++)
            for (const char *const *path = mlff_cpu_paths(); *path; path++) {
                float *weight = aligned((size_t)F), *bias = aligned((size_t)F), *y = aligned((size_t)F), inverse;
                const nn_norm norm = {F, width, 1e-5f, weight, bias};
                double mean = 0, square = 0;
                for (int i = 0; i < width; i++) {
                    y[i] = (float)(offset + (is_equal ? 0 : 1 + base_random_normal(1, 1, (uint64_t)i)));
                    mean += (double)y[i] / width;
                }
                for (int i = 0; i < width; i++) square += ((double)y[i] - mean) * ((double)y[i] - mean) / width;
                nn_segment_kernels_get(*path)->norm(&norm, 1, y, NULL, &inverse);
                const double expected = 1 / sqrt(square + 1e-5), error = fabs((double)inverse / expected - 1);
                if (!(error <= (is_equal ? 1e-2 : 3e-5)))
                    fail_msg("%s, width %d, offset %g: 1/s is %g, expected %g", *path, width, offset, (double)inverse, expected);
                base_free(weight), base_free(bias), base_free(y);
            }
    }
}

// Σ gather(x) · b = Σ x · segment_sum(b): each is the reverse pass of the other; and both against plain loops.
static void test_gather_and_sum(void **state)
{
    (void)state;
    enum { H = 48 };
    segment_case *c = segment_case_new(&segment_all_sizes[0], 40, 1, 77);
    const nn_edges edges = {c->sender, c->receiver, c->first, c->first_incoming, c->incoming, c->envelope};
    float *x = aligned(SEGMENT_ATOMS * 2 * H), *b = aligned(SEGMENT_EDGES * H), *gathered = aligned(SEGMENT_EDGES * H),
          *sums = aligned(SEGMENT_ATOMS * 2 * H);
    double expected[SEGMENT_ATOMS][2][H];
    for (int k = 0; k < SEGMENT_ATOMS * 2 * H; k++) x[k] = (float)base_random_normal(1, 1, (uint64_t)k);
    for (int k = 0; k < SEGMENT_EDGES * H; k++) b[k] = (float)base_random_normal(1, 2, (uint64_t)k);
    memset(expected, 0, sizeof expected);
    for (int e = 0; e < SEGMENT_EDGES; e++)
        for (int k = 0; k < H; k++) {
            expected[c->sender[e]][0][k] += b[e * H + k];
            expected[c->receiver[e]][1][k] += b[e * H + k];
        }
    for (const char *const *path = mlff_cpu_paths(); *path; path++) {
        const nn_segment_kernels *kernels = nn_segment_kernels_get(*path);
        kernels->gather(&edges, 0, SEGMENT_EDGES, H, x, gathered);
        kernels->segment_sum(&edges, 0, SEGMENT_ATOMS, H, b, sums);
        for (int e = 0; e < SEGMENT_EDGES; e++)
            for (int k = 0; k < H; k++)
                assert_true(gathered[e * H + k] == x[c->sender[e] * 2 * H + k] + x[(c->receiver[e] * 2 + 1) * H + k]);
        expect(*path, c, "sums", segment_error(SEGMENT_ATOMS, 2 * H, expected[0][0], 2 * H, sums, 2 * H));
        double left = 0, right = 0;
        for (int k = 0; k < SEGMENT_EDGES * H; k++) left += (double)gathered[k] * (double)b[k];
        for (int k = 0; k < SEGMENT_ATOMS * 2 * H; k++) right += (double)x[k] * (double)sums[k];
        assert_true(fabs(left - right) <= 1e-5 * fabs(left));
    }
    base_free(x), base_free(b), base_free(gathered), base_free(sums), free(c);
}

// Shares of segments add up to 1; an atom without edges has none. The results replace the inputs, or do not.
static void check_softmax(const char *path, const softmax_case *s, bool in_place)
{
    const nn_segment_kernels *kernels = nn_segment_kernels_get(path);
    const int H = nn_padded(s->columns), n = SEGMENT_EDGES, W = SOFTMAX_COLUMNS;
    const nn_segments segments = {s->first, s->row};
    float *x = padded(s->x[0], n, s->columns, W, H), *bar = padded(s->share_bar[0], n, s->columns, W, H),
          *share = in_place ? x : aligned((size_t)n * (size_t)H), *x_bar = in_place ? bar : aligned((size_t)n * (size_t)H);
    kernels->segment_softmax(&segments, 0, 2, H, x, share);
    kernels->segment_softmax(&segments, 2, SEGMENT_ATOMS, H, x, share);
    kernels->segment_softmax_backward(&segments, 0, 4, H, share, bar, x_bar);
    kernels->segment_softmax_backward(&segments, 4, SEGMENT_ATOMS, H, share, bar, x_bar);
    const double error = softmax_error(s, s->share, share, H, 1), error_bar = softmax_error(s, s->x_grad, x_bar, H, s->adjoint);
    if (!(error <= 1e-6 && error_bar <= 3e-6))
        fail_msg("%s, softmax, %s, %d columns, %s: shares %.2e, dL/dx %.2e", path, s->name, s->columns,
                 s->row ? "incoming" : "sent", error, error_bar);
    for (int e = 0; e < n; e++) // the padding of an adjoint stays zero
        for (int c = s->columns; c < H; c++) assert_true(x_bar[e * H + c] == 0);
    if (!in_place) base_free(share), base_free(x_bar);
    base_free(x), base_free(bar);
}

static void test_softmax(void **state)
{
    (void)state;
    static const int columns[] = {1, 8, 32};
    segment_case *c = segment_case_new(&segment_all_sizes[0], 17, 1, 81);
    for (int k = 0; k < SOFTMAX_SIZES * 3 * 2; k++) {
        const softmax_case s = softmax_case_new(c, &softmax_all_sizes[k % SOFTMAX_SIZES], k / SOFTMAX_SIZES / 3,
                                                columns[k / SOFTMAX_SIZES % 3], 91 + (uint64_t)k);
        for (const char *const *path = mlff_cpu_paths(); *path; path++) check_softmax(*path, &s, k % 2);
    }
    free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_layer), cmocka_unit_test(test_norm_of_offset_rows),
                                       cmocka_unit_test(test_gather_and_sum), cmocka_unit_test(test_softmax)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
