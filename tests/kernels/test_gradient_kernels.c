// SPDX-License-Identifier: MIT
// Training kernels of dense layers on every CPU path against plain float64.
#include "support.h"

#include "device/cpu.h"
#include "nn/gradient.h"

static float *random_array(size_t n, uint64_t seed)
{
    float *x = base_alloc(n + 1, sizeof *x, "x");
    for (size_t i = 0; i < n; i++) x[i] = (float)base_random_normal(seed, 0, i);
    return x;
}

static void free_all(float **arrays, int n)
{
    for (int k = 0; k < n; k++) base_free(arrays[k]);
}

// c += a1ᵀ b1 + a2ᵀ b2 for shapes around every edge of the blocking; what lies beside c stays.
static void test_outer(void **state)
{
    (void)state;
    static const int ms[] = {1, 5, 6, 7, 16, 23}, ns[] = {16, 32, 48, 64, 112, 144}, ks[] = {0, 1, 9, 40};
    for (const char *const *path = mlff_cpu_paths(); *path; path++)
        for (int shape = 0; shape < 6 * 6 * 4 * 2; shape++) {
            int m = ms[shape % 6], n = ns[shape / 6 % 6], k = ks[shape / 36 % 4], count = 1 + shape / 144, lda = m + 2,
                ldb = n + 16, ldc = n + 16;
            float *x[6] = {random_array((size_t)k * lda, 1), random_array((size_t)k * ldb, 2), random_array((size_t)k * lda, 3),
                           random_array((size_t)k * ldb, 4), random_array((size_t)m * ldc, 5), random_array((size_t)m * ldc, 5)};
            const nn_outer operands[2] = {{x[0], x[1]}, {x[2], x[3]}};
            nn_gradient_kernels_get(*path)->outer(m, n, k, count, operands, lda, ldb, x[4], ldc);
            for (int i = 0; i < m; i++)
                for (int j = 0; j < ldc; j++) {
                    double sum = (double)x[5][i * ldc + j], size = fabs(sum);
                    for (int o = 0; o < count && j < n; o++)
                        for (int l = 0; l < k; l++) {
                            double term = (double)operands[o].a[l * lda + i] * (double)operands[o].b[l * ldb + j];
                            sum += term;
                            size += fabs(term);
                        }
                    if (!(fabs((double)x[4][i * ldc + j] - sum) <= 1.2e-7 * (4 + sqrt(2.0 * k)) * size)) // as test_nn's product
                        fail_msg("%s m %d n %d k %d operands %d row %d column %d: %g, expected %g", *path, m, n, k, count, i, j,
                                 (double)x[4][i * ldc + j], sum);
                }
            free_all(x, 6);
        }
}

// The same panels as pack() makes of the transposed matrix.
static void test_pack_transposed(void **state)
{
    (void)state;
    for (const char *const *path = mlff_cpu_paths(); *path; path++)
        for (int n = 16; n <= 144; n += 16)
            for (int k = 16; k <= 64; k += 16) {
                size_t size = (size_t)n * (size_t)k;
                float *x[4] = {random_array(size, 1), random_array(size, 2), random_array(size, 3), random_array(size, 4)};
                for (int r = 0; r < n; r++)
                    for (int c = 0; c < k; c++) x[1][c * n + r] = x[0][r * k + c];
                nn_kernels_get(cpu_vector_path(*path), NN_FLOAT32)->pack(k, n, x[1], x[2]);
                nn_gradient_kernels_get(*path)->pack_transposed(k, n, x[0], x[3]);
                assert_memory_equal(x[2], x[3], sizeof(float) * size);
                free_all(x, 4);
            }
}

static void test_sums(void **state)
{
    (void)state;
    enum { ROWS = 7, LD = 64, N = 10007 };
    for (const char *const *path = mlff_cpu_paths(); *path; path++) {
        const nn_gradient_kernels *kernels = nn_gradient_kernels_get(*path);
        float *x[5] = {random_array(N, 1), random_array(N, 2), random_array(N, 3), random_array(N, 4), random_array(LD, 5)};
        float *start = random_array(LD, 5);
        double squares = 0;
        for (int k = 0; k < N; k++) squares += (double)x[0][k] * (double)x[0][k];
        assert_true(fabs(kernels->square_sum(N, x[0]) - squares) <= 2e-6 * squares);
        for (int count = 1; count <= 3; count++) {
            kernels->sum_arrays(N, count, (const float *const *)x, x[3]);
            for (int k = 0; k < N; k++)
                assert_true(x[3][k] == (count == 1 ? x[0][k] : count == 2 ? x[0][k] + x[1][k] : (x[0][k] + x[1][k]) + x[2][k]));
        }
        kernels->column_sums(48, ROWS, x[0], LD, x[4]);
        for (int f = 0; f < LD; f++) {
            double sum = (double)start[f];
            for (int i = 0; f < 48 && i < ROWS; i++) sum += (double)x[0][i * LD + f];
            assert_true(fabs((double)x[4][f] - sum) <= 1e-5);
        }
        free_all(x, 5);
        base_free(start);
    }
}

static double silu(double x)
{
    return x / (1 + exp(-x));
}

static double softplus(double x)
{
    return fmax(x, 0) + log1p(exp(-fabs(x))) - log(2);
}

// Functions and both derivatives, the second against differences of the first; the tails neither overflow nor lose their sign.
static void test_activate(void **state)
{
    (void)state;
    enum { N = 2048 };
    static const enum nn_activation kinds[] = {NN_SILU, NN_SHIFTED_SOFTPLUS};
    double (*const functions[])(double) = {silu, softplus};
    for (const char *const *path = mlff_cpu_paths(); *path; path++)
        for (int kind = 0; kind < 2; kind++) {
            float *x[3] = {random_array(N, 1), random_array(N, 1), random_array(N, 1)};
            for (int k = 0; k < N; k++) x[0][k] = (float)(-30 + 60.0 * k / N);
            x[0][0] = -1000, x[0][1] = 1000;
            nn_gradient_kernels_get(*path)->activate(kinds[kind], N, x[0], x[1], x[2]);
            for (int k = 0; k < N; k++) {
                double at = k == 0 ? -1000 : k == 1 ? 1000 : (double)(float)(-30 + 60.0 * k / N), h = 1e-3;
                double below = functions[kind](at - h), here = functions[kind](at), above = functions[kind](at + h);
                assert_true(fabs((double)x[0][k] - here) <= 1e-6 * (1 + fabs(here)));
                assert_true(fabs((double)x[1][k] - (above - below) / (2 * h)) <= 2e-6);
                assert_true(fabs((double)x[2][k] - (above - 2 * here + below) / (h * h)) <= 2e-6 + 1e-8 * fabs(at));
            }
            free_all(x, 3);
        }
}

static void test_elementwise(void **state)
{
    (void)state;
    enum { N = 160 };
    for (const char *const *path = mlff_cpu_paths(); *path; path++) {
        const nn_gradient_kernels *kernels = nn_gradient_kernels_get(*path);
        float *x[6];
        for (int k = 0; k < 6; k++) x[k] = random_array(N, (uint64_t)k + 1);
        float *before = random_array(N, 1);
        kernels->multiply(N, x[0], x[1], x[5]);
        kernels->multiply_dual(N, x[0], x[1], x[2], x[3], x[4]);
        for (int k = 0; k < N; k++) {
            double expected = (double)before[k] * (double)x[1][k] + (double)x[2][k] * (double)x[3][k] * (double)x[4][k];
            assert_true(x[5][k] == before[k] * x[1][k]);
            assert_true(fabs((double)x[0][k] - expected) <= 1e-6 * (1 + fabs(expected)));
        }
        free_all(x, 6);
        base_free(before);
    }
}

static void test_adamw(void **state)
{
    (void)state;
    enum { N = 37 };
    const nn_adamw u = {.gradient_scale = 0.5f,
                        .beta1 = 0.9f,
                        .beta2 = 0.99f,
                        .keep = 0.999f,
                        .epsilon = 1e-8f,
                        .rate = 0.01f,
                        .root_scale = 2.0f,
                        .average_factor = 0.25f};
    for (const char *const *path = mlff_cpu_paths(); *path; path++) {
        float *x[5], *old[5];
        for (int k = 0; k < 5; k++) {
            x[k] = random_array(N, (uint64_t)k + 1);
            old[k] = random_array(N, (uint64_t)k + 1);
        }
        for (int k = 0; k < N; k++) x[3][k] = old[3][k] = fabsf(old[3][k]);
        nn_gradient_kernels_get(*path)->adamw(&u, N, x[0], x[1], x[2], x[3], x[4]);
        for (int k = 0; k < N; k++) {
            double g = 0.5 * (double)old[0][k], m = 0.9 * (double)old[2][k] + 0.1 * g,
                   v = 0.99 * (double)old[3][k] + 0.01 * g * g;
            double w = 0.999 * (double)old[1][k] - 0.01 * m / (2 * sqrt(v) + 1e-8);
            assert_true(fabs((double)x[2][k] - m) <= 1e-6 && fabs((double)x[3][k] - v) <= 1e-6);
            assert_true(fabs((double)x[1][k] - w) <= 1e-5);
            assert_true(fabs((double)x[4][k] - (0.75 * (double)old[4][k] + 0.25 * w)) <= 1e-5);
        }
        free_all(x, 5);
        free_all(old, 5);
    }
}

// Orthonormal columns from graded ones, in the order of the columns: the first keeps its direction.
static void test_orthonormalize(void **state)
{
    (void)state;
    enum { N = 50, LD = 64 };
    for (const char *const *path = mlff_cpu_paths(); *path; path++) {
        float *z = random_array(N * LD, 3), *first = random_array(N * LD, 3), dots[LD];
        for (int k = 0; k < N * LD; k++) z[k] *= k % LD < N ? powf(10, -6.0f * (float)(k % LD) / N) : 0;
        nn_gradient_kernels_get(*path)->orthonormalize(N, LD, z, dots);
        double along = 0, square = 0;
        for (int i = 0; i < N; i++) {
            along += (double)z[i * LD] * (double)first[i * LD];
            square += (double)first[i * LD] * (double)first[i * LD];
        }
        assert_true(fabs(along / sqrt(square) - 1) <= 1e-6);
        for (int a = 0; a < LD; a++)
            for (int b = 0; b < LD; b++) {
                double dot = 0;
                for (int i = 0; i < N; i++) dot += (double)z[i * LD + a] * (double)z[i * LD + b];
                if (!(fabs(dot - (a == b && a < N)) <= 2e-6)) fail_msg("%s: columns %d and %d: %g", *path, a, b, dot);
            }
        base_free(z);
        base_free(first);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_outer),          cmocka_unit_test(test_pack_transposed), cmocka_unit_test(test_sums),
        cmocka_unit_test(test_activate),       cmocka_unit_test(test_elementwise),     cmocka_unit_test(test_adamw),
        cmocka_unit_test(test_orthonormalize),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
