// SPDX-License-Identifier: MIT
// test_relax_kernels.c: factor and solution of banded matrices, and products of vectors, on every path against plain loops in double. Sizes
// are multiples of 3 around those of vectors; rows end at random, never before the row above.
#include "atoms/relax/relax_kernels.h"
#include "base/base.h"
#include "support.h"

enum { MOST = 99 };

static const struct {
    const char *name;
    const relax_kernels *kernels;
} paths[] = {{"portable", &relax_kernels_portable},
#if defined(__x86_64__)
             {"avx2", &relax_kernels_avx2},
             {"avx512", &relax_kernels_avx512}
#endif
};

static bool runs_here(const char *name)
{
    for (const char *const *path = mlff_cpu_paths(); *path; path++)
        if (strcmp(*path, name) == 0) return true;
    return false;
}

static double random_number(int n, size_t index)
{
    return base_random_uniform(5, (uint64_t)n, index) - 0.5;
}

// H = M + 4 within the band, symmetric; diagonally dominant, so that its condition is below 1e2. The lower half of `h` is not written.
static void make_matrix(int n, size_t *ends, double full[MOST][MOST], float *h)
{
    const size_t stride = relax_stride((size_t)n);
    for (int k = 0; k < n; k += 3) {
        const int reach = k + 3 + 3 * (int)(8 * (random_number(n, 77 + (size_t)k) + 0.5)), before = k > 0 ? (int)ends[k - 1] : 0;
        const int end = reach > before ? reach : before;
        for (int c = 0; c < 3; c++) ends[k + c] = (size_t)(end < n ? end : n);
    }
    for (int i = 0; i < n; i++)
        for (int j = i; j < n; j++) {
            const double value = j >= (int)ends[i] ? 0 : random_number(n, 1000 + (size_t)(i * n + j)) + (i == j ? 14 : 0);
            full[i][j] = full[j][i] = (float)value;
            h[(size_t)i * stride + (size_t)j] = (float)value;
        }
}

static void solves(void **state)
{
    (void)state;
    for (size_t p = 0; p < sizeof paths / sizeof *paths; p++)
        for (int n = 3; runs_here(paths[p].name) && n <= MOST; n += n < 54 ? 3 : 15) {
            static double full[MOST][MOST];
            size_t ends[MOST];
            double x[MOST];
            const size_t stride = relax_stride((size_t)n);
            float *h = base_alloc((size_t)n * stride, sizeof *h, "a matrix"), *y = base_alloc(stride, sizeof *y, "a vector");
            assert_true(h && y);
            make_matrix(n, ends, full, h);
            for (int i = 0; i < n; i++) x[i] = random_number(n, (size_t)i);
            for (int i = 0; i < n; i++) {
                double sum = 0;
                for (int j = 0; j < n; j++) sum += full[i][j] * x[j];
                y[i] = (float)sum;
            }
            paths[p].kernels->factorize(h, (size_t)n, ends);
            paths[p].kernels->solve(h, (size_t)n, ends, y);
            // 1e-5: float32, the condition is below 10 by dominance, sums of up to 30 terms
            for (int i = 0; i < n; i++)
                if (!(fabs(y[i] - x[i]) <= 1e-5))
                    fail_msg("%s, n %d, element %d: %.9g, expected %.9g", paths[p].name, n, i, (double)y[i], x[i]);
            base_free(h);
            base_free(y);
        }
}

static void adds_products(void **state)
{
    (void)state;
    for (size_t p = 0; p < sizeof paths / sizeof *paths; p++)
        for (size_t n = 0; runs_here(paths[p].name) && n < MOST; n++) {
            double a[MOST], b[MOST], to[MOST], sum = 0;
            for (size_t k = 0; k < n; k++)
                a[k] = random_number(1, k), b[k] = random_number(2, k), to[k] = a[k], sum += a[k] * b[k];
            assert_true(fabs(paths[p].kernels->dot(a, b, n) - sum) <= 1e-14); // 99 terms below 0.25, in another order
            paths[p].kernels->add(to, 0.7, b, n);
            for (size_t k = 0; k < n; k++) assert_true(fabs(to[k] - (a[k] + 0.7 * b[k])) <= 1e-15); // fused or not
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(solves), cmocka_unit_test(adds_products)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
