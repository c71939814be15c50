// SPDX-License-Identifier: MIT
// test_soap.c: SOAP (model/training/soap.h): which matrices it takes; the float64 reference against the algorithm written out again
// here; float32 against the reference on every CPU path; a quadratic problem whose axes are hidden by rotations.
#include "model/training/soap.h"

#include "device/cpu.h"
#include "support.h"

enum { MOST = 200 * 64 };

// A layout of one matrix.
static train_tensor tensor;
static train_layout layout_of(int rows, int columns)
{
    tensor = (train_tensor){"w", 0, (int64_t)rows * columns, true, rows};
    return (train_layout){.tensors = &tensor, .n_tensors = 1, .n_parameters = tensor.n_elements};
}

static train_update update_of(int step, int interval)
{
    return (train_update){.learning_rate = 0.01,
                          .beta1 = 0.9,
                          .beta2 = 0.95,
                          .epsilon = 1e-8,
                          .weight_decay = 0.1,
                          .average = 0.9,
                          .correction1 = 1 - pow(0.9, step + 1),
                          .correction2 = 1 - pow(0.95, step + 1),
                          .soap_decay = 0.9,
                          .soap_refresh = step % interval == interval - 1};
}

static double random_number(int what, int step, int k)
{
    return base_random_normal(7, (uint64_t)(100 * what + step), (uint64_t)k);
}

// Gradients with correlated rows and columns.
static void fill_gradient(int rows, int columns, int step, double *g)
{
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++)
            g[i * columns + j] =
                random_number(1, step, i * columns + j) + 0.5 * random_number(2, step, i) + 0.5 * random_number(3, step, j);
}

static void test_plan(void **state)
{
    (void)state;
    static const char *const names[] = {"both sides", "right side", "none: both beyond 128", "none: one row", "none: no decay"};
    train_tensor tensors[] = {{names[0], 0, 64 * 32, true, 64},
                              {names[1], 2048, 200 * 20, true, 200},
                              {names[2], 6048, 200 * 150, true, 200},
                              {names[3], 36048, 32, true, 1},
                              {names[4], 36080, 100 * 64, false, 100}};
    const train_layout layout = {.tensors = tensors, .n_tensors = 5, .n_parameters = 42480};
    soap_plan plan;
    assert_ok(soap_plan_create(&layout, 16, &plan));
    assert_int_equal(plan.n_matrices, 2);
    assert_int_equal(plan.matrices[0].left.at, 0);
    assert_int_equal(plan.matrices[0].right.at, 2 * 64 * 64);
    assert_int_equal(plan.matrices[1].left.at, -1);
    assert_int_equal(plan.matrices[1].right.ld, 32);
    assert_int_equal(plan.n_state, 2 * 64 * 64 + 2 * 32 * 32 + 2 * 20 * 32);
    assert_true(plan.of_tensor[0] == 0 && plan.of_tensor[1] == 1 && plan.of_tensor[2] == -1 && plan.of_tensor[3] == -1 &&
                plan.of_tensor[4] == -1);
    soap_plan_free(&plan);
}

// ---- the algorithm again, without regard to speed: bases as lists of vectors, rotation as double sums --------------------------

enum { SMALL = 6 };

typedef struct plain {
    int rows, columns;
    double w[SMALL][SMALL], m[SMALL][SMALL], v[SMALL][SMALL], average[SMALL][SMALL];
    double left[SMALL][SMALL], right[SMALL][SMALL];               // covariances
    double left_vector[SMALL][SMALL], right_vector[SMALL][SMALL]; // [vector][component]
} plain;

static void plain_basis(int n, double covariance[SMALL][SMALL], double vectors[SMALL][SMALL])
{
    double trace = 0, next[SMALL][SMALL] = {{0}};
    for (int i = 0; i < n; i++) trace += covariance[i][i];
    for (int k = 0; k < n; k++) {
        for (int i = 0; i < n; i++) {
            next[k][i] = 1e-7 * trace / n * vectors[k][i];
            for (int j = 0; j < n; j++) next[k][i] += covariance[i][j] * vectors[k][j];
        }
        for (int again = 0; again < 3; again++)
            for (int l = 0; l < k; l++) { // what earlier vectors have is taken away
                double dot = 0;
                for (int i = 0; i < n; i++) dot += next[l][i] * next[k][i];
                for (int i = 0; i < n; i++) next[k][i] -= dot * next[l][i];
            }
        double square = 0;
        for (int i = 0; i < n; i++) square += next[k][i] * next[k][i];
        for (int i = 0; i < n; i++) next[k][i] /= sqrt(square);
    }
    memcpy(vectors, next, sizeof next);
}

static void plain_step(plain *p, const train_update *u, const double *g)
{
    double step[SMALL][SMALL];
    for (int i = 0; i < p->rows; i++)
        for (int j = 0; j < p->columns; j++) p->m[i][j] = u->beta1 * p->m[i][j] + (1 - u->beta1) * g[i * p->columns + j];
    for (int a = 0; a < p->rows; a++)
        for (int b = 0; b < p->columns; b++) {
            double gradient = 0, momentum = 0;
            for (int i = 0; i < p->rows; i++)
                for (int j = 0; j < p->columns; j++) {
                    const double weight = p->left_vector[a][i] * p->right_vector[b][j];
                    gradient += weight * g[i * p->columns + j], momentum += weight * p->m[i][j];
                }
            p->v[a][b] = u->beta2 * p->v[a][b] + (1 - u->beta2) * gradient * gradient;
            step[a][b] = momentum / u->correction1 / (sqrt(p->v[a][b] / u->correction2) + u->epsilon);
        }
    for (int i = 0; i < p->rows; i++)
        for (int j = 0; j < p->columns; j++) {
            double moved = 0;
            for (int a = 0; a < p->rows; a++)
                for (int b = 0; b < p->columns; b++) moved += p->left_vector[a][i] * step[a][b] * p->right_vector[b][j];
            p->w[i][j] -= u->learning_rate * (moved + u->weight_decay * p->w[i][j]);
            p->average[i][j] = u->average * p->average[i][j] + (1 - u->average) * p->w[i][j];
        }
    for (int i = 0; i < SMALL; i++)
        for (int j = 0; j < SMALL; j++) {
            p->left[i][j] *= u->soap_decay, p->right[i][j] *= u->soap_decay;
            for (int k = 0; k < p->columns && i < p->rows && j < p->rows; k++)
                p->left[i][j] += (1 - u->soap_decay) * g[i * p->columns + k] * g[j * p->columns + k];
            for (int k = 0; k < p->rows && i < p->columns && j < p->columns; k++)
                p->right[i][j] += (1 - u->soap_decay) * g[k * p->columns + i] * g[k * p->columns + j];
        }
    if (!u->soap_refresh) return;
    plain_basis(p->rows, p->left, p->left_vector);
    plain_basis(p->columns, p->right, p->right_vector);
}

static void test_reference_is_the_algorithm(void **state)
{
    (void)state;
    enum { STEPS = 12 };
    static plain p;
    p = (plain){.rows = 5, .columns = 4};
    const train_layout layout = layout_of(5, 4);
    double g[20], w[20], m[20] = {0}, v[20] = {0}, average[20], bases[2 * 25 + 2 * 16];
    soap_plan plan;
    assert_ok(soap_plan_create(&layout, 1, &plan));
    assert_int_equal(plan.n_state, 2 * 25 + 2 * 16);
    soap_begin(&plan, bases);
    for (int k = 0; k < 20; k++) w[k] = average[k] = p.w[k / 4][k % 4] = p.average[k / 4][k % 4] = random_number(4, 0, k);
    for (int i = 0; i < SMALL; i++) p.left_vector[i][i] = p.right_vector[i][i] = 1;
    for (int s = 0; s < STEPS; s++) {
        const train_update u = update_of(s, 3);
        fill_gradient(5, 4, s, g);
        assert_ok(soap_step_reference(&plan.matrices[0], &u, 0.5, g, w, m, v, average, bases));
        for (int k = 0; k < 20; k++) g[k] *= 0.5;
        plain_step(&p, &u, g);
        for (int k = 0; k < 20; k++) { // some 1e-16 times the condition of the first bases, 1e3
            const int i = k / 4, j = k % 4;
            if (!(fabs(w[k] - p.w[i][j]) <= 1e-11 && fabs(v[k] - p.v[i][j]) <= 1e-11 &&
                  fabs(average[k] - p.average[i][j]) <= 1e-11))
                fail_msg("step %d, element %d: %.15g, expected %.15g", s, k, w[k], p.w[i][j]);
        }
    }
    soap_plan_free(&plan);
}

// The way of the weights in 20 steps, on all CPU paths. Adam divides by the gradient's size, so that rounding of small elements of
// the rotated gradient counts: measured 2e-6 to 2e-5.
static void test_float32(void **state)
{
    (void)state;
    enum { STEPS = 20 };
    static const int shapes[][2] = {{64, 64}, {20, 33}, {200, 24}, {3, 2}, {48, 130}};
    for (const char *const *path = mlff_cpu_paths(); *path; path++)
        for (size_t shape = 0; shape < sizeof shapes / sizeof *shapes; shape++) {
            const int rows = shapes[shape][0], columns = shapes[shape][1], n = rows * columns;
            const train_layout layout = layout_of(rows, columns);
            soap_plan plain_plan, plan;
            assert_ok(soap_plan_create(&layout, 1, &plain_plan));
            assert_ok(soap_plan_create(&layout, NN_PAD, &plan));
            double *x[5], *bases = calloc((size_t)plain_plan.n_state, sizeof *bases),
                          *begin = calloc((size_t)plan.n_state, sizeof *begin);
            float *y[5], *state32 = base_alloc((size_t)plan.n_state, sizeof *state32, "test");
            float *scratch = base_alloc(plan.n_scratch, sizeof *scratch, "test");
            for (int k = 0; k < 5; k++) x[k] = calloc((size_t)n, sizeof **x), y[k] = base_alloc((size_t)n, sizeof **y, "test");
            soap_begin(&plain_plan, bases);
            soap_begin(&plan, begin);
            for (int64_t k = 0; k < plan.n_state; k++) state32[k] = (float)begin[k];
            for (int s = 0; s < STEPS; s++) {
                const train_update u = update_of(s, 8); // covariances have full rank by then
                fill_gradient(rows, columns, s, x[0]);
                for (int k = 0; k < n; k++) x[0][k] = (double)(y[0][k] = (float)x[0][k]);
                assert_ok(soap_step_reference(&plain_plan.matrices[0], &u, 0.5, x[0], x[1], x[2], x[3], x[4], bases));
                soap_step(&plan.matrices[0], &u, 0.5f, nn_gradient_kernels_get(*path), y[0], y[1], y[2], y[3], y[4], state32,
                          scratch);
            }
            double difference = 0, way = 0;
            for (int k = 0; k < n; k++) difference += pow((double)y[1][k] - x[1][k], 2), way += x[1][k] * x[1][k];
            printf("%s, %d x %d: %.1e of the weights' way\n", *path, rows, columns, sqrt(difference / way));
            assert_true(sqrt(difference / way) <= 2e-4);
            for (int k = 0; k < 5; k++) free(x[k]), base_free(y[k]);
            free(bases), free(begin), base_free(state32), base_free(scratch);
            soap_plan_free(&plain_plan), soap_plan_free(&plan);
        }
}

// ---- a planted problem: ½ Σ λ_i D_ij² of D = R W S with random rotations R, S; λ from 0.01 to 100 ---------------------------

enum { SIDE = 16 };

// Rows are orthonormal.
static void random_rotation(int what, double r[SIDE][SIDE])
{
    for (int k = 0; k < SIDE; k++) {
        for (int i = 0; i < SIDE; i++) r[k][i] = random_number(what, 0, k * SIDE + i);
        for (int again = 0; again < 2; again++)
            for (int l = 0; l < k; l++) {
                double dot = 0;
                for (int i = 0; i < SIDE; i++) dot += r[l][i] * r[k][i];
                for (int i = 0; i < SIDE; i++) r[k][i] -= dot * r[l][i];
            }
        double square = 0;
        for (int i = 0; i < SIDE; i++) square += r[k][i] * r[k][i];
        for (int i = 0; i < SIDE; i++) r[k][i] /= sqrt(square);
    }
}

// The loss of w, whose minimum is at 0, and its gradient.
static double planted(const double *w, double *g)
{
    static double r[SIDE][SIDE], s[SIDE][SIDE], d[SIDE][SIDE];
    double loss = 0;
    random_rotation(5, r);
    random_rotation(6, s);
    for (int a = 0; a < SIDE; a++)
        for (int b = 0; b < SIDE; b++) {
            const double stiffness = pow(10, 4.0 * a / (SIDE - 1) - 2);
            double along = 0;
            for (int i = 0; i < SIDE; i++)
                for (int j = 0; j < SIDE; j++) along += r[a][i] * w[i * SIDE + j] * s[b][j];
            loss += 0.5 * stiffness * along * along;
            d[a][b] = stiffness * along;
        }
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++) {
            double sum = 0;
            for (int a = 0; a < SIDE; a++)
                for (int b = 0; b < SIDE; b++) sum += r[a][i] * d[a][b] * s[b][j];
            g[i * SIDE + j] = sum;
        }
    return loss;
}

// The loss after 150 steps, the rate falling to 0; `finds_axes`: bases are updated every tenth step, else never (Adam).
static double minimize(bool finds_axes)
{
    enum { STEPS = 150 };
    const train_layout layout = layout_of(SIDE, SIDE);
    soap_plan plan;
    double w[SIDE * SIDE], g[SIDE * SIDE], m[SIDE * SIDE] = {0}, v[SIDE * SIDE] = {0}, average[SIDE * SIDE] = {0};
    static double bases[4 * SIDE * SIDE];
    assert_ok(soap_plan_create(&layout, 1, &plan));
    soap_begin(&plan, bases);
    for (int k = 0; k < SIDE * SIDE; k++) w[k] = random_number(7, 0, k);
    for (int s = 0; s < STEPS; s++) {
        planted(w, g);
        const train_update u = {.learning_rate = 0.1 * (1 - (double)s / STEPS),
                                .beta1 = 0.9,
                                .beta2 = 0.95,
                                .epsilon = 1e-12,
                                .correction1 = 1 - pow(0.9, s + 1),
                                .correction2 = 1 - pow(0.95, s + 1),
                                .soap_decay = 0.95,
                                .soap_refresh = finds_axes && s % 10 == 0};
        assert_ok(soap_step_reference(&plan.matrices[0], &u, 1, g, w, m, v, average, bases));
    }
    soap_plan_free(&plan);
    return planted(w, g);
}

static void test_planted_problem(void **state)
{
    (void)state;
    const double soap = minimize(true), adam = minimize(false);
    printf("loss after 150 steps: SOAP %.3g, Adam %.3g\n", soap, adam);
    assert_true(soap < 0.5 * adam); // measured 0.23
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan),
        cmocka_unit_test(test_reference_is_the_algorithm),
        cmocka_unit_test(test_float32),
        cmocka_unit_test(test_planted_problem),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
