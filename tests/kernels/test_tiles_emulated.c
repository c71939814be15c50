// SPDX-License-Identifier: MIT
// Products by AMX tiles, emulated (emulate/emulated_tiles.c): the paths of this machine are "amx" and "portable". test_nn compares the bits of
// the emulation with those of a processor that has AMX.
#include "support.h"

#include "ani_support.h"
#include "device/cpu.h"
#include "nn/nn.h"

enum { M = 113, N = 80, K = 400 };
static const char *const names[] = {[NN_FLOAT32] = "float32", [NN_TF32] = "tf32", [NN_BF16] = "bf16"};

typedef struct arrays {
    float *a, *b, *bias, *packed, *c, *d;
} arrays;

static arrays make(void)
{
    arrays x = {.a = base_alloc(M * K, 4, "a"),
                .b = base_alloc(K * N, 4, "b"),
                .bias = base_alloc(N, 4, "b"),
                .packed = base_alloc(2 * K * N, 4, "p"),
                .c = base_alloc(M * N, 4, "c"),
                .d = base_alloc(M * N, 4, "c")};
    for (size_t i = 0; i < (size_t)M * K; i++) x.a[i] = (float)base_random_normal(1, 0, i);
    for (size_t i = 0; i < (size_t)K * N; i++) x.b[i] = (float)base_random_normal(2, 0, i);
    for (size_t i = 0; i < N; i++) x.bias[i] = (float)base_random_normal(3, 0, i);
    return x;
}

static void release(arrays *x)
{
    float *all[] = {x->a, x->b, x->bias, x->packed, x->c, x->d};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) base_free(all[k]);
}

// Error of bias + 2 a b in units of the size of a sum, the sum of its terms' sizes.
static double largest_error(const arrays *x, int m, int n, int k)
{
    double worst = 0;
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            double sum = x->bias[j], size = fabs(x->bias[j]);
            for (int l = 0; l < k; l++) {
                const double term = 2.0 * (double)x->a[i * K + l] * (double)x->b[l * n + j];
                sum += term;
                size += fabs(term);
            }
            worst = fmax(worst, fabs((double)x->c[i * n + j] - sum) / size);
        }
    return worst;
}

// Rows around a tile, two of them and the block of 96; columns around two and four tiles; terms around a tile and what is split at a time.
static void test_products(void **state)
{
    (void)state;
    static const int ms[] = {1, 16, 17, 45, 97, M}, ns[] = {16, 48, 64, N}, ks[] = {16, 48, 144, K};
    // Operands: half a unit of 24, 16 or 8 bits each; sums of random signs lose less than 10 roundings of the running size.
    static const double bounds[] = {
        [NN_FLOAT32] = 10 * 0x1p-24, [NN_TF32] = 3 * 0x1p-18 + 10 * 0x1p-24, [NN_BF16] = 2.1 * 0x1p-9};
    arrays x = make();
    for (int precision = 0; precision < 3; precision++) {
        const nn_kernels *nn = nn_kernels_get("amx", (enum nn_precision)precision);
        double worst = 0;
        for (size_t shape = 0; shape < 6 * 4 * 4; shape++) {
            const int m = ms[shape % 6], n = ns[shape / 6 % 4], k = ks[shape / 24];
            assert_true(nn->packed_floats(k, n) <= 2 * K * N);
            nn->pack(k, n, x.b, x.packed);
            nn->product(m, n, k, x.a, K, x.packed, x.bias, x.c, n, 0);
            nn->product(1, n, k, x.a + (size_t)(m - 1) * K, K, x.packed, x.bias, x.d, n, 0); // no row depends on other rows
            assert_memory_equal(x.d, x.c + (size_t)(m - 1) * (size_t)n, sizeof(float) * (size_t)n);
            nn->product(m, n, k, x.a, K, x.packed, NULL, x.c, n, 1);
            const double error = largest_error(&x, m, n, k);
            worst = fmax(worst, error);
            if (error > bounds[precision])
                fail_msg("%s m %d n %d k %d: error %.2e, allowed %.2e", names[precision], m, n, k, error, bounds[precision]);
        }
        assert_true(worst > 0.05 * bounds[precision]); // the bound is not empty
    }
    release(&x);
}

// Numbers of float32's whole range keep their bits: 2^±60 in rows and columns.
static void test_range(void **state)
{
    (void)state;
    arrays x = make();
    for (int i = 0; i < M; i++)
        for (int l = 0; l < K; l++) x.a[i * K + l] = ldexpf(x.a[i * K + l], i % 121 - 60);
    for (int l = 0; l < K; l++)
        for (int j = 0; j < N; j++) x.b[l * N + j] = ldexpf(x.b[l * N + j], 40 - j);
    const nn_kernels *nn = nn_kernels_get("amx", NN_FLOAT32);
    nn->pack(K, N, x.b, x.packed);
    memset(x.bias, 0, sizeof(float) * N);
    nn->product(M, N, K, x.a, K, x.packed, NULL, x.c, N, 0);
    nn->product(M, N, K, x.a, K, x.packed, NULL, x.c, N, 1);
    assert_true(largest_error(&x, M, N, K) < 10 * 0x1p-24);
    release(&x);
}

// Columns of a for some rows of b only: the same bits as with zeros for the others. Blocks of columns: the bits of products one by one.
static void test_rows_and_blocks(void **state)
{
    (void)state;
    enum { N_RUNS = 3, COMPACT = 144, ROWS = 37 };
    static const nn_rows runs[N_RUNS] = {{16, 16}, {48, 112}, {384, 16}};
    arrays x = make();
    for (int precision = 0; precision < 3; precision++) {
        const nn_kernels *nn = nn_kernels_get("amx", (enum nn_precision)precision);
        float *full = base_alloc(ROWS * K, 4, "a");
        for (int i = 0; i < ROWS; i++)
            for (int r = 0, from = 0; r < N_RUNS; from += runs[r++].count)
                memcpy(full + i * K + runs[r].first, x.a + i * COMPACT + from, sizeof *full * (size_t)runs[r].count);
        nn->pack(K, N, x.b, x.packed);
        nn->product(ROWS, N, K, full, K, x.packed, x.bias, x.c, N, 0);
        nn->product_rows(ROWS, N, K, N_RUNS, runs, x.a, COMPACT, x.packed, x.bias, x.d, N, 0);
        assert_memory_equal(x.c, x.d, sizeof(float) * ROWS * N);
        base_free(full);

        float *second = base_alloc(nn->packed_floats(K, 32), 4, "p"), *both = base_alloc(ROWS * 112, 4, "c");
        nn->pack(K, 32, x.b, second);
        const nn_block blocks[] = {{second, 32, 80}, {x.packed, N, 0}};
        nn->product_blocks(ROWS, K, 2, blocks, x.a, K, both, 112, 0);
        nn->product(ROWS, N, K, x.a, K, x.packed, NULL, x.c, N, 0);
        nn->product(ROWS, 32, K, x.a, K, second, NULL, x.d, 32, 0);
        for (int i = 0; i < ROWS; i++) {
            assert_memory_equal(both + i * 112, x.c + i * N, sizeof(float) * N);
            assert_memory_equal(both + i * 112 + 80, x.d + i * 32, sizeof(float) * 32);
        }
        base_free(second);
        base_free(both);

        // c += a b rounds as the sum and an addition do, as parts of it that are summed apart.
        nn->product(ROWS, N, K, x.a, K, x.packed, NULL, x.d, N, 0);
        for (int i = 0; i < ROWS * N; i++) x.d[i] += (x.c[i] = x.a[i]);
        nn->product(ROWS, N, K, x.a, K, x.packed, NULL, x.c, N, 1);
        assert_memory_equal(x.c, x.d, sizeof(float) * ROWS * N);
    }
    release(&x);
}

static void forces_of(const mlff_model *model, const mlff_system *system, mlff_precision precision, int n_threads, double *forces)
{
    int32_t first_atom[2];
    mlff_batch batch;
    mlff_batch_from_system(system, first_atom, &batch);
    mlff_evaluator *evaluator = support_evaluator_on(model, precision, "amx", n_threads, NULL);
    assert_ok(mlff_evaluator_compute(evaluator, &batch, &(mlff_results){.forces = forces}));
    mlff_evaluator_destroy(evaluator);
}

// Largest errors of a force, in units of the largest: float32 as on the other paths; operands of 16 and 8 bits in some ten products.
static void check_model(const char *what, mlff_model *model, const mlff_system *system)
{
    static const struct {
        mlff_precision precision;
        double bound;
    } rows[] = {{MLFF_FLOAT32, 2e-5}, {MLFF_TF32, 1e-4}, {MLFF_BF16, 0.05}};
    const size_t n = 3 * (size_t)system->n_atoms;
    double *expected = base_alloc(n, sizeof *expected, "f"), *got = base_alloc(n, sizeof *got, "f");
    double *again = base_alloc(n, sizeof *again, "f");
    forces_of(model, system, MLFF_FLOAT64, 1, expected);
    for (int k = 0; k < 3; k++) {
        if (rows[k].precision == MLFF_BF16 && !model->architecture->cpu_bfloat16) continue;
        forces_of(model, system, rows[k].precision, 1, got);
        forces_of(model, system, rows[k].precision, 3, again);
        assert_memory_equal(got, again, sizeof *got * n);
        const double error = support_difference(got, expected, n) / support_largest(expected, n);
        if (!(error < rows[k].bound && error > 1e-3 * rows[k].bound))
            fail_msg("%s, %s: forces off by %.2e of the largest", what, names[k], error);
    }
    base_free(expected);
    base_free(got);
    base_free(again);
    mlff_model_destroy(model);
}

// Whole steps of each architecture: more than a block of rows, and species that are absent.
static void test_models(void **state)
{
    (void)state;
    mlff_system *system = ani_random_system(41, 3, 1, 1.0, 7), *small = ani_random_system(9, 7, 0, 1.0, 8);
    check_model("PaiNN", support_model(24, 2, "gaussian", "cosine", 0, 17), system);
    check_model("ANI", ani_shaped(&ani_small_2x, 3), system);
    check_model("ANI, all species", ani_shaped(&ani_small_2x, 4), small);
    static const char *const orbs[] = {"v2", "v3-conservative"};
    for (int k = 0; k < 2; k++) {
        char path[256];
        mlff_import_options options = mlff_import_options_default();
        mlff_model *model = NULL;
        options.elements = "H,C,N,O,F,Na,Al,Si,Cl,Ar";
        snprintf(path, sizeof path, "tests/golden/orb/orb-%s.ckpt", orbs[k]);
        assert_ok(mlff_model_import(path, &options, &model));
        check_model(orbs[k], model, system);
    }
    mlff_system_destroy(system);
    mlff_system_destroy(small);
}

// Without AMX a precision that needs it is refused in a line that says what to do.
static void test_refused(void **state)
{
    (void)state;
    mlff_model *model = support_model(16, 1, "gaussian", "cosine", 0, 17);
    mlff_evaluator_options options = mlff_evaluator_options_default();
    mlff_evaluator *evaluator = NULL;
    options.precision = MLFF_TF32;
    options.cpu_path = "portable";
    assert_int_equal(mlff_evaluator_create(model, &options, &evaluator), MLFF_ERR_UNSUPPORTED);
    assert_non_null(strstr(mlff_last_error(), "AMX"));
    assert_non_null(strstr(mlff_last_error(), "use float32"));
    mlff_model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products), cmocka_unit_test(test_range),   cmocka_unit_test(test_rows_and_blocks),
        cmocka_unit_test(test_models),   cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
