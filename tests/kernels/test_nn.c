// SPDX-License-Identifier: MIT
// Dense layers, activations and spline tables of every CPU path against plain float64.
#include "support.h"

#include "device/cpu.h"
#include "nn/nn.h"

static void random_fill(float *x, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) x[i] = (float)base_random_normal(seed, 0, i);
}

// Shapes around every edge of the blocking: 6 rows, panels of 8, 16 or 64 columns.
static void test_product(void **state)
{
    (void)state;
    static const int ms[] = {1, 2, 5, 6, 7, 12, 13, 64}, ns[] = {16, 32, 48, 64, 80, 112, 128, 144, 256}, ks[] = {1, 16, 33, 128};
    for (const char *const *path = mlff_cpu_paths(); *path; path++) {
        const nn_kernels *nn = nn_kernels_get(*path, NN_FLOAT32);
        assert_string_equal(nn->path, *path);
        for (size_t im = 0; im < sizeof ms / sizeof *ms; im++)
            for (size_t in = 0; in < sizeof ns / sizeof *ns; in++)
                for (size_t ik = 0; ik < sizeof ks / sizeof *ks; ik++) {
                    int m = ms[im], n = ns[in], k = ks[ik], lda = k + 3, ldc = n + 16;
                    float *a = base_alloc((size_t)m * lda, 4, "a"), *b = base_alloc((size_t)k * n, 4, "b"),
                          *bias = base_alloc(n, 4, "b");
                    float *packed = base_alloc(nn->packed_floats(k, n), 4, "p"), *c = base_alloc((size_t)m * ldc, 4, "c");
                    random_fill(a, (size_t)m * lda, 1);
                    random_fill(b, (size_t)k * n, 2);
                    random_fill(bias, (size_t)n, 3);
                    random_fill(c, (size_t)m * ldc, 4);
                    nn->pack(k, n, b, packed);
                    nn->product(m, n, k, a, lda, packed, bias, c, ldc, 0);
                    nn->product(m, n, k, a, lda, packed, NULL, c, ldc, 1); // now bias + 2 a b
                    for (int i = 0; i < m; i++)
                        for (int j = 0; j < ldc; j++) {
                            if (j >= n) { // beside the block nothing was written
                                assert_true(c[(size_t)i * ldc + j] == (float)base_random_normal(4, 0, (uint64_t)i * ldc + j));
                                continue;
                            }
                            double sum = bias[j], size = fabs(bias[j]);
                            for (int l = 0; l < k; l++) {
                                double term = 2.0 * a[(size_t)i * lda + l] * b[(size_t)l * n + j];
                                sum += term;
                                size += fabs(term);
                            }
                            // a float32 sum of k terms: k/2 roundings of the running size at worst, sqrt(k) in practice
                            if (fabs(c[(size_t)i * ldc + j] - sum) > 1.2e-7 * (4 + sqrt(k)) * size)
                                fail_msg("%s m %d n %d k %d row %d column %d: %g, expected %g", *path, m, n, k, i, j,
                                         c[(size_t)i * ldc + j], sum);
                        }
                    base_free(a);
                    base_free(b);
                    base_free(bias);
                    base_free(packed);
                    base_free(c);
                }
    }
}

// Sums of 1024 positive terms: in parts of 32 each sum loses what 32 + 32 roundings lose, without parts what 1024 do. Errors of random
// roundings grow with the root of the number of terms, in a product of many columns by 4 or more; asked for is half of the error.
static void test_product_in_parts(void **state)
{
    (void)state;
    enum { M = 7, N = 80, K = 1024 };
    float *a = base_alloc(M * K, 4, "a"), *b = base_alloc(K * N, 4, "b"), *packed = base_alloc(2 * K * N, 4, "b");
    float *c = base_alloc(M * N, 4, "c"), *row = base_alloc(N, 4, "c"), *bias = base_alloc(N, 4, "b");
    random_fill(a, M * K, 5);
    random_fill(b, K * N, 6);
    random_fill(bias, N, 7);
    for (size_t i = 0; i < M * K; i++) a[i] = fabsf(a[i]);
    for (size_t i = 0; i < K * N; i++) b[i] = fabsf(b[i]);
    for (const char *const *path = mlff_cpu_paths(); *path; path++) {
        const nn_kernels *nn = nn_kernels_get(*path, NN_FLOAT32);
        double error[2] = {0, 0};
        nn->pack(K, N, b, packed);
        for (int in_parts = 0; in_parts < 2; in_parts++) {
            (in_parts ? nn->product_in_parts : nn->product)(M, N, K, a, K, packed, bias, c, N, 0);
            for (int i = 0; i < M; i++)
                for (int j = 0; j < N; j++) {
                    double sum = bias[j];
                    for (int l = 0; l < K; l++) sum += (double)a[i * K + l] * (double)b[l * N + j];
                    error[in_parts] += pow((c[i * N + j] - sum) / sum, 2) / (M * N);
                }
        }
        const bool always_in_parts = nn->product == nn->product_in_parts;
        if (!((always_in_parts || sqrt(error[1]) < 0.5 * sqrt(error[0])) && sqrt(error[1]) < 1e-6))
            fail_msg("%s: rms error %.2e in parts, %.2e without", *path, sqrt(error[1]), sqrt(error[0]));
        nn->product_in_parts(1, N, K, a + 6 * K, K, packed, bias, row, N, 0); // a row's bits do not depend on other rows
        assert_memory_equal(row, c + 6 * N, sizeof *row * N);
        nn->product_in_parts(1, N, K, a + 6 * K, K, packed, NULL, row, N, 1); // adds: bias + 2 a b
        for (int j = 0; j < N; j++) assert_true(fabs(row[j] - (2.0 * c[6 * N + j] - bias[j])) < 1e-6 * row[j]);
    }
    base_free(a);
    base_free(b);
    base_free(packed);
    base_free(c);
    base_free(row);
    base_free(bias);
}

// The tiles of AMX, and the same in plain C: the bits of products in each precision.
static void test_tiles_of_the_processor(void **state)
{
    (void)state;
#if defined(__x86_64__)
    extern const nn_kernels nn_tile_kernels_portable[];
    enum { M = 131, N = 80, K = 400 };
    const char *const *path = mlff_cpu_paths();
    while (*path && strcmp(*path, "amx") != 0) path++;
    if (!*path) skip();
    float *a = base_alloc(M * K, 4, "a"), *b = base_alloc(K * N, 4, "b"), *packed = base_alloc(2 * K * N, 4, "p"),
          *c[2] = {base_alloc(M * N, 4, "c"), base_alloc(M * N, 4, "c")};
    random_fill(a, M * K, 1);
    random_fill(b, K * N, 2);
    for (int i = 0; i < M * K; i++) a[i] = ldexpf(a[i], i % 201 - 100);
    for (int precision = NN_FLOAT32; precision <= NN_BF16; precision++) {
        const nn_kernels *kernels[] = {nn_kernels_get("amx", (enum nn_precision)precision), &nn_tile_kernels_portable[precision]};
        for (int k = 0; k < 2; k++) {
            kernels[k]->pack(K, N, b, packed);
            kernels[k]->product(M, N, K, a, K, packed, NULL, c[k], N, 0);
        }
        assert_memory_equal(c[0], c[1], sizeof(float) * M * N);
    }
    float *arrays[] = {a, b, packed, c[0], c[1]};
    for (size_t k = 0; k < sizeof arrays / sizeof *arrays; k++) base_free(arrays[k]);
#else
    skip();
#endif
}

// x rounded to 8 bits, ties to even.
static double bfloat16(float x)
{
    int exponent;
    const double fraction = frexp((double)x, &exponent);
    return ldexp(nearbyint(fraction * 256), exponent - 8);
}

// Rows around the blocks of 24 and 6, columns around panels of 64, more terms than are rounded at a time (1024).
static void test_bfloat16_product(void **state)
{
    (void)state;
    if (!cpu_has_bfloat16()) skip();
    static const int ms[] = {1, 5, 6, 9, 24, 25, 53}, ns[] = {16, 48, 64, 112, 128}, ks[] = {16, 48, 1024, 1040};
    enum { M = 53, N = 128, K = 1040 };
    const nn_kernels *nn = nn_kernels_get("avx512", NN_BF16);
    float *a = base_alloc(M * K, 4, "a"), *b = base_alloc(K * N, 4, "b"), *bias = base_alloc(N, 4, "b"),
          *packed = base_alloc(K * N / 2, 4, "p"), *c = base_alloc(M * N, 4, "c"), *row = base_alloc(N, 4, "c");
    double *terms = base_alloc(M * K, sizeof *terms, "a"), *factors = base_alloc(K * N, sizeof *factors, "b");
    random_fill(a, M * K, 1);
    random_fill(b, K * N, 2);
    random_fill(bias, N, 3);
    for (size_t i = 0; i < M * K; i++) terms[i] = bfloat16(a[i]);
    for (size_t i = 0; i < K * N; i++) factors[i] = bfloat16(b[i]);
    for (size_t shape = 0; shape < 7 * 5 * 4; shape++) {
        const int m = ms[shape % 7], n = ns[shape / 7 % 5], k = ks[shape / 35];
        nn->pack(k, n, b, packed);
        nn->product(m, n, k, a, K, packed, bias, c, N, 0);
        nn->product(1, n, k, a + (size_t)(m - 1) * K, K, packed, bias, row, N, 0); // a row's bits do not depend on other rows
        assert_memory_equal(row, c + (size_t)(m - 1) * N, sizeof *row * (size_t)n);
        nn->product(m, n, k, a, K, packed, NULL, c, N, 1); // now bias + 2 a b
        for (int i = 0; i < m; i++)
            for (int j = 0; j < n; j++) {
                double sum = bias[j], size = fabs(bias[j]);
                for (int l = 0; l < k; l++) {
                    const double term = 2 * terms[(size_t)i * K + (size_t)l] * factors[(size_t)l * (size_t)n + (size_t)j];
                    sum += term;
                    size += fabs(term);
                }
                if (fabs(c[(size_t)i * N + (size_t)j] - sum) > 1.2e-7 * (4 + sqrt(k)) * size) // as of test_product
                    fail_msg("m %d n %d k %d row %d column %d: %g, expected %g", m, n, k, i, j, c[(size_t)i * N + (size_t)j],
                             sum);
            }
    }
    float *arrays[] = {a, b, bias, packed, c, row};
    for (size_t k = 0; k < sizeof arrays / sizeof *arrays; k++) base_free(arrays[k]);
    base_free(terms);
    base_free(factors);
}

// Columns of a for some rows of b only: the same bits as with zeros for the others.
static void test_product_rows(void **state)
{
    (void)state;
    enum { M = 7, N = 112, K = 144, N_RUNS = 3, COMPACT = 80 };
    static const nn_rows runs[N_RUNS] = {{16, 16}, {48, 48}, {128, 16}};
    float *full = base_alloc(M * K, 4, "a"), *compact = base_alloc(M * COMPACT, 4, "a"), *b = base_alloc(K * N, 4, "b");
    float *packed = base_alloc(2 * K * N, 4, "p"), *c = base_alloc(M * N, 4, "c"), *d = base_alloc(M * N, 4, "d");
    random_fill(compact, M * COMPACT, 1);
    random_fill(b, K * N, 2);
    for (int i = 0; i < M; i++)
        for (int run = 0, from = 0; run < N_RUNS; from += runs[run++].count)
            memcpy(full + i * K + runs[run].first, compact + i * COMPACT + from, sizeof(float) * (size_t)runs[run].count);
    for (const char *const *path = mlff_cpu_paths(); *path; path++) {
        const nn_kernels *nn = nn_kernels_get(*path, NN_FLOAT32);
        nn->pack(K, N, b, packed);
        nn->product(M, N, K, full, K, packed, b, c, N, 0);
        nn->product_rows(M, N, K, N_RUNS, runs, compact, COMPACT, packed, b, d, N, 0);
        assert_memory_equal(c, d, M * N * sizeof *c);
    }
    float *arrays[] = {full, compact, b, packed, c, d};
    for (size_t k = 0; k < sizeof arrays / sizeof *arrays; k++) base_free(arrays[k]);
}

// Values at ordinary and extreme inputs x[n], against `tolerance` of max(1, |x|) and, of derivatives, four times that.
static void check_activation(const char *name, nn_activate *activate, enum nn_activation kind, int n, const float *x,
                             double tolerance)
{
    float *y = base_alloc((size_t)n, 4, "y"), *slope = base_alloc((size_t)n, 4, "slope");
    memcpy(y, x, (size_t)n * sizeof *x);
    activate(kind, (size_t)n, y, slope);
    for (int i = 0; i < n; i++) {
        double v = x[i], s = 1 / (1 + exp(-v)), value, derivative;
        value = kind == NN_SILU ? v * s : fmax(v, 0) + log1p(exp(-fabs(v))) - log(2);
        derivative = kind == NN_SILU ? s * (1 + v * (1 - s)) : s;
        if (kind == NN_CELU) {
            value = v > 0 ? v : 0.1 * expm1(10 * v);
            derivative = v > 0 ? 1 : exp(10 * v);
        }
        if (!(fabs(y[i] - value) <= tolerance * fmax(1, fabs(v)) && fabs(slope[i] - derivative) <= 4 * tolerance))
            fail_msg("%s kind %d x %g: %g %g, expected %g %g", name, (int)kind, v, y[i], slope[i], value, derivative);
    }
    base_free(y);
    base_free(slope);
}

// 3e-7 is two roundings beyond that of exp; 1e-4 is 14 bits, where a rounding to 8 follows.
static void test_activate(void **state)
{
    (void)state;
    enum { N = 4096 };
    float *x = base_alloc(N, 4, "x");
    for (int i = 0; i < N; i++) x[i] = (float)(30.0 * base_random_normal(7, 0, i) * pow(base_random_uniform(7, 1, i), 3));
    const float extremes[] = {0, -0.0f, 1e-30f, -1e-30f, 88, -88, 1000, -1000, 1e30f, -1e30f};
    memcpy(x, extremes, sizeof extremes);
    for (const char *const *path = mlff_cpu_paths(); *path; path++)
        for (int kind = NN_SILU; kind <= NN_CELU; kind++)
            check_activation(*path, nn_kernels_get(*path, NN_FLOAT32)->activate, (enum nn_activation)kind, N, x, 3e-7);
    for (int kind = NN_SILU; cpu_has_bfloat16() && kind <= NN_SHIFTED_SOFTPLUS; kind++)
        check_activation("bfloat16", nn_kernels_get("avx512", NN_BF16)->activate, (enum nn_activation)kind, N, x, 1e-4);
    base_free(x);
}

static void waves(void *context, double x, double *f)
{
    (void)context;
    for (int c = 0; c < 16; c++) f[c] = sin((c + 1) * x) + 0.1 * c;
}

// The spline meets its tolerance between the knots, and its derivative is the function's.
static void test_spline(void **state)
{
    (void)state;
    nn_spline spline;
    assert_ok(nn_spline_create(16, 5.0, 3e-8, waves, NULL, &spline));
    printf("spline of sin(16 x) on 0 … 5: %d intervals\n", spline.n_intervals);
    assert_in_range(spline.n_intervals, 128, 1024); // sin(16 x) has 12.7 waves on it
    double worst = 0;
    for (int i = 0; i < 2000; i++) {
        double x = 5.0 * (i + 0.5) / 2000, place = x * spline.n_intervals / spline.end, f[16];
        int knot = (int)place;
        double t = place - knot, s = 1 - t;
        double w[6] = {pow(s, 5) / 120,
                       (26 - 50 * t + 20 * t * t + 20 * pow(t, 3) - 20 * pow(t, 4) + 5 * pow(t, 5)) / 120,
                       (66 - 60 * t * t + 30 * pow(t, 4) - 10 * pow(t, 5)) / 120,
                       (26 + 50 * t + 20 * t * t - 20 * pow(t, 3) - 20 * pow(t, 4) + 10 * pow(t, 5)) / 120,
                       (1 + 5 * t + 10 * t * t + 10 * pow(t, 3) + 5 * pow(t, 4) - 5 * pow(t, 5)) / 120,
                       pow(t, 5) / 120};
        waves(NULL, x, f);
        for (int c = 0; c < 16; c++) {
            double sum = 0;
            for (int k = 0; k < 6; k++) sum += w[k] * spline.coefficient[(size_t)(knot + k) * 16 + c];
            worst = fmax(worst, fabs(sum - f[c]));
        }
    }
    assert_true(worst < 4e-7); // 3e-8 of 2.5, and coefficients rounded to float32
    nn_spline_free(&spline);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_product),
                                       cmocka_unit_test(test_product_in_parts),
                                       cmocka_unit_test(test_product_rows),
                                       cmocka_unit_test(test_tiles_of_the_processor),
                                       cmocka_unit_test(test_bfloat16_product),
                                       cmocka_unit_test(test_activate),
                                       cmocka_unit_test(test_spline)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
