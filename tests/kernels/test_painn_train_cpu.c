// SPDX-License-Identifier: MIT
// The float32 training backend against the float64 reference on every CPU path: gradients, losses, steps, evaluate(); the same
// bits for any number of threads; no allocation after the first batch.
#include "train_support.h"

#include "device/cpu.h"
#include "model/painn/painn.h"

// Relative L2 error of a gradient: float32 sums of some 10² to 10³ terms, measured 4e-7 to 8e-7 for molecules.
#define TOLERANCE 2e-6

static const mlff_loss all_terms = {0.3, 1, 2, 0.5, 0.2, 1, 1.5};

typedef struct setting {
    const char *name;
    int n_features, n_layers;
    const char *basis, *cutoff_function;
    int shared, softplus, doubles;
} setting;

static const setting settings[] = {
    {"128 features", 128, 3, "gaussian", "cosine", 0, 0, 0},
    {"64 features, Bessel, mollifier", 64, 2, "bessel", "mollifier", 0, 0, 0},
    {"40 features, padded", 40, 3, "gaussian", "cosine", 0, 0, 0},
    {"shared weights, softplus", 24, 3, "gaussian", "cosine", 1, 1, 0},
    {"one layer", 32, 1, "gaussian", "mollifier", 0, 0, 0},
    {"shared weights, in float64", 24, 3, "gaussian", "cosine", 1, 0, 1},
};
enum { N_SETTINGS = sizeof settings / sizeof *settings };

// The model from a file whose tensors are float64, as of an import.
static mlff_model *in_doubles(mlff_model *model)
{
    model_weights weights = {0};
    mlff_model *converted = NULL;
    for (size_t k = 0; k < model->file.n_keys; k++)
        assert_ok(weights_set(&weights, model->file.keys[k], "%s", model->file.values[k]));
    for (size_t t = 0; t < model->file.n_tensors; t++) {
        const model_tensor *tensor = &model->file.tensors[t];
        model_tensor *copy = weights_add(&weights, tensor->name, 1, tensor->n_dimensions, tensor->shape);
        assert_non_null(copy);
        for (int64_t k = 0; k < tensor->n_elements; k++) ((double *)copy->data)[k] = (double)((const float *)tensor->data)[k];
    }
    mlff_model_destroy(model);
    assert_ok(model_from_weights(&weights, "doubles", &converted));
    return converted;
}

static mlff_model *model_of(const setting *s)
{
    mlff_model *model = support_model(s->n_features, s->n_layers, s->basis, s->cutoff_function, s->shared, 5);
    if (s->softplus) ((painn_parameters *)model->parameters)->activation = PAINN_SHIFTED_SOFTPLUS;
    return s->doubles ? in_doubles(model) : model;
}

// A ragged batch: molecules, a cell with self-images, one atom alone, a Hessian probe; 16 frames.
static void add_structures(train_frames *frames)
{
    for (int k = 0; k < 10; k++)
        train_frames_add(frames, support_random_system(3 + 2 * k, k % 3 == 0, 1.0, (uint64_t)k), 0, (uint64_t)k);
    train_frames_add(frames, support_random_system(2, 1, 1.6, 20), 0, 20);
    train_frames_add(frames, support_random_system(1, 0, 1.0, 21), 0, 21);
    for (int k = 0; k < 2; k++) {
        mlff_system *probed = support_random_system(5 + k, 0, 1.1, 30 + (uint64_t)k);
        train_frames_add_probe(frames, probed, 0.02, 30 + (uint64_t)k);
        mlff_system_destroy(probed);
    }
    train_frames_constrain(frames, 0);
    train_frames_constrain(frames, frames->n - 1); // of a probe
}

static void check_gradient(const setting *s, void (*fill)(train_frames *frames), bool well_conditioned)
{
    mlff_model *model = model_of(s);
    train_backend *reference = train_support_backend(model, MLFF_FLOAT64, 1, NULL);
    double *weights = train_support_weights(reference, 0.02, 9), loss, expected_loss;
    size_t n = (size_t)reference->layout.n_parameters;
    train_frames frames = {0};
    fill(&frames);
    train_set *set = train_frames_set(&frames, model);
    assert_ok(reference->set(reference, TRAIN_WEIGHTS, weights));
    double *expected = train_support_gradient(reference, set, &all_terms, &expected_loss);
    double sensitivity = train_support_sensitivity(reference, set, &all_terms, weights, expected);
    for (const char *const *path = mlff_cpu_paths(); *path; path++) {
        train_backend *backend = train_support_backend(model, MLFF_FLOAT32, 2, *path);
        assert_ok(backend->set(backend, TRAIN_WEIGHTS, weights));
        double *gradient = train_support_gradient(backend, set, &all_terms, &loss),
               error = train_support_error(gradient, expected, n);
        printf("%s, %s: relative error of the gradient %.1e (weights' rounding: %.1e), of the loss %.1e\n", s->name, *path, error,
               sensitivity, fabs(loss - expected_loss) / expected_loss);
        assert_true(fabs(loss - expected_loss) <= 2e-6 * expected_loss);
        train_support_check_tensors(s->name, &backend->layout, gradient, expected, 2e-5);
        assert_true(error <= (well_conditioned ? TOLERANCE : fmax(TOLERANCE, 8 * sensitivity)));
        free(gradient);
        backend->destroy(backend);
    }
    free(expected);
    free(weights);
    train_set_free(set);
    train_frames_free(&frames);
    reference->destroy(reference);
    mlff_model_destroy(model);
}

static void add_ethanols(train_frames *frames)
{
    for (uint64_t k = 0; k < 12; k++) {
        mlff_system *system;
        assert_ok(mlff_system_build("ethanol", 0, 0, &system));
        assert_ok(mlff_system_perturb(system, 600, k));
        train_frames_add(frames, system, 0, k);
    }
}

// Structures larger than a group's aim, in any order.
static void add_large(train_frames *frames)
{
    static const int sizes[] = {60, 5, 110, 30, 97, 2};
    for (uint64_t k = 0; k < 6; k++) train_frames_add(frames, support_random_system(sizes[k], k % 2, 1.3, k), 0, k);
}

static void test_gradient_of_large_structures(void **state)
{
    (void)state;
    check_gradient(&(setting){"large structures", 16, 2, "gaussian", "cosine", 0, 0, 0}, add_large, false);
}

static void test_gradient(void **state)
{
    (void)state;
    for (int s = 0; s < N_SETTINGS; s++) check_gradient(&settings[s], add_structures, false);
}

static void test_gradient_of_molecules(void **state)
{
    (void)state;
    for (int s = 0; s < 2; s++) check_gradient(&settings[s], add_ethanols, true);
}

// Steps, sums and evaluate() as the reference's. Adam divides by the gradient's size, so that relative errors of small elements
// count: the weights' way agrees to 2e-3 of its length.
static void test_steps(void **state)
{
    (void)state;
    mlff_model *model = model_of(&settings[2]);
    train_frames frames = {0};
    add_structures(&frames);
    train_set *set = train_frames_set(&frames, model);
    train_backend *backends[2] = {train_support_backend(model, MLFF_FLOAT64, 1, NULL),
                                  train_support_backend(model, MLFF_FLOAT32, 2, NULL)};
    size_t n = (size_t)backends[0]->layout.n_parameters;
    double *vectors[2][TRAIN_VECTORS], *start = train_support_weights(backends[0], 0, 0);
    train_sums sums[2], errors[2];
    for (int b = 0; b < 2; b++) {
        int32_t batch[8] = {1, 0, 7, 12, 13, 10, 11, 5};
        assert_ok(backends[b]->set_data(backends[b], set));
        for (int s = 1; s <= 3; s++) {
            const train_update u = train_support_update(s, 0.1);
            assert_ok(backends[b]->step(backends[b], batch, 8, &all_terms, &u));
        }
        assert_ok(backends[b]->sums(backends[b], &sums[b]));
        assert_ok(backends[b]->evaluate(backends[b], set, &all_terms, &errors[b]));
        for (int v = 0; v < TRAIN_VECTORS; v++) {
            vectors[b][v] = calloc(n, sizeof(double));
            assert_ok(backends[b]->get(backends[b], (enum train_vector)v, vectors[b][v]));
        }
    }
    const double pairs[][2] = {{sums[0].loss, sums[1].loss},
                               {sums[0].energy_absolute, sums[1].energy_absolute},
                               {sums[0].force_square, sums[1].force_square},
                               {errors[0].loss, errors[1].loss},
                               {errors[0].energy_square, errors[1].energy_square},
                               {errors[0].force_absolute, errors[1].force_absolute},
                               {errors[0].stress_absolute, errors[1].stress_absolute}};
    for (int k = 0; k < 7; k++)
        if (!(fabs(pairs[k][0] - pairs[k][1]) <= 1e-5 * pairs[k][0]))
            fail_msg("sum %d: %.12g, reference %.12g", k, pairs[k][1], pairs[k][0]);
    assert_memory_equal(errors[0].n_by_element, errors[1].n_by_element, sizeof errors[0].n_by_element);
    for (int z = 0; z <= MLFF_MAX_ATOMIC_NUMBER; z++)
        assert_true(fabs(errors[0].force_by_element[z] - errors[1].force_by_element[z]) <= 1e-5 * errors[0].force_absolute);
    assert_true(sums[1].finite && sums[1].n_steps == 3 && sums[1].n_frames == 24 && sums[1].n_atoms == sums[0].n_atoms);
    assert_true(errors[1].n_steps == 1 && errors[1].n_frames == set->n_frames && errors[1].n_stresses == errors[0].n_stresses);
    double moved = 0;
    for (size_t k = 0; k < n; k++) moved = fmax(moved, fabs(vectors[0][TRAIN_WEIGHTS][k] - vectors[0][TRAIN_AVERAGE][k]));
    assert_true(moved > 1e-4);
    assert_true(train_support_error(vectors[1][TRAIN_MOMENT1], vectors[0][TRAIN_MOMENT1], n) <= 2e-5);
    assert_true(train_support_error(vectors[1][TRAIN_MOMENT2], vectors[0][TRAIN_MOMENT2], n) <= 2e-5);
    for (size_t k = 0; k < n; k++)
        for (int b = 0; b < 2; b++) vectors[b][TRAIN_WEIGHTS][k] -= start[k], vectors[b][TRAIN_AVERAGE][k] -= start[k];
    printf("steps: %.1e of the weights' way, %.1e of the average's\n",
           train_support_error(vectors[1][TRAIN_WEIGHTS], vectors[0][TRAIN_WEIGHTS], n),
           train_support_error(vectors[1][TRAIN_AVERAGE], vectors[0][TRAIN_AVERAGE], n));
    assert_true(train_support_error(vectors[1][TRAIN_WEIGHTS], vectors[0][TRAIN_WEIGHTS], n) <= 2e-3);
    assert_true(train_support_error(vectors[1][TRAIN_AVERAGE], vectors[0][TRAIN_AVERAGE], n) <= 2e-3);
    free(start);
    for (int b = 0; b < 2; b++) {
        for (int v = 0; v < TRAIN_VECTORS; v++) free(vectors[b][v]);
        backends[b]->destroy(backends[b]);
    }
    train_set_free(set);
    train_frames_free(&frames);
    mlff_model_destroy(model);
}

// Groups and the order of sums depend on the batch only.
static void test_threads_and_allocations(void **state)
{
    (void)state;
    mlff_model *model = model_of(&settings[1]);
    train_frames frames = {0};
    add_structures(&frames);
    train_set *set = train_frames_set(&frames, model);
    double *expected = NULL;
    for (int threads = 1; threads <= 5; threads += 2) {
        train_backend *backend = train_support_backend(model, MLFF_FLOAT32, threads, NULL);
        size_t n = (size_t)backend->layout.n_parameters;
        double *weights = calloc(n, sizeof *weights);
        const train_update u = train_support_update(1, 0);
        train_sums sums;
        int32_t batch[TRAIN_FRAMES_MAX];
        for (int k = 0; k < set->n_frames; k++) batch[k] = k;
        assert_ok(backend->set_data(backend, set));
        assert_ok(backend->step(backend, batch, (int)set->n_frames, &all_terms, &u));
        assert_ok(backend->evaluate(backend, set, &all_terms, &sums));
        int64_t allocations = base_allocation_count();
        for (int s = 0; s < 5; s++) assert_ok(backend->step(backend, batch + s, (int)set->n_frames - 4 - s, &all_terms, &u));
        assert_ok(backend->evaluate(backend, set, &all_terms, &sums));
        assert_ok(backend->gradient(backend, batch, 3, &all_terms, weights, &sums.loss));
        int32_t alone = 11; // one atom without neighbors
        assert_int_equal(set->first_atom[12] - set->first_atom[11], 1);
        assert_ok(backend->gradient(backend, &alone, 1, &all_terms, weights, &sums.loss));
        assert_true(isfinite(sums.loss) && support_largest(weights, n) > 0);
        assert_int_equal(base_allocation_count(), allocations);
        assert_ok(backend->get(backend, TRAIN_WEIGHTS, weights));
        if (expected) {
            assert_memory_equal(weights, expected, sizeof *weights * n);
            free(weights);
        } else {
            expected = weights;
        }
        backend->destroy(backend);
    }
    free(expected);
    train_set_free(set);
    train_frames_free(&frames);
    mlff_model_destroy(model);
}

// Weights without a finite loss stay as they are, and training goes on once better ones are set.
static void test_not_finite(void **state)
{
    (void)state;
    mlff_model *model = model_of(&settings[4]);
    train_backend *backend = train_support_backend(model, MLFF_FLOAT32, 2, NULL);
    train_frames frames = {0};
    add_structures(&frames);
    train_set *set = train_frames_set(&frames, model);
    size_t n = (size_t)backend->layout.n_parameters;
    double *good = train_support_weights(backend, 0, 0), *bad = calloc(n, sizeof *bad), *got = calloc(n, sizeof *got);
    const train_update u = train_support_update(1, 0);
    train_sums sums;
    int32_t batch[3] = {0, 1, 2};
    for (size_t k = 0; k < n; k++) bad[k] = 1e30;
    assert_ok(backend->set_data(backend, set));
    assert_ok(backend->set(backend, TRAIN_WEIGHTS, bad));
    assert_ok(backend->step(backend, batch, 3, &all_terms, &u));
    assert_ok(backend->get(backend, TRAIN_WEIGHTS, got));
    assert_true(support_difference(got, bad, n) <= 1e23); // float32 of 1e30
    assert_ok(backend->sums(backend, &sums));
    assert_true(!sums.finite && sums.n_steps == 1);
    assert_ok(backend->set(backend, TRAIN_WEIGHTS, good));
    assert_ok(backend->step(backend, batch, 3, &all_terms, &u));
    assert_ok(backend->sums(backend, &sums));
    assert_true(sums.finite && sums.n_steps == 1 && isfinite(sums.loss));
    free(good);
    free(bad);
    free(got);
    train_set_free(set);
    train_frames_free(&frames);
    backend->destroy(backend);
    mlff_model_destroy(model);
}

// Subnormals count as 0 in a step, and afterwards the caller computes with them as before.
static void test_subnormals(void **state)
{
    (void)state;
    volatile float tiny = 1e-40f, small = 1e-30f, of_operand = 1, of_result = 1;
    const uint64_t rounding = cpu_flush_subnormals();
    of_operand = tiny * 1e10f;
    of_result = small * 1e-10f;
    cpu_rounding_restore(rounding);
    assert_true(of_operand == 0 && of_result == 0);
    assert_true(tiny * 1e10f > 0 && small * 1e-10f > 0);

    mlff_model *model = model_of(&settings[4]);
    train_frames frames = {0};
    add_structures(&frames);
    train_set *set = train_frames_set(&frames, model);
    train_backend *backend = train_support_backend(model, MLFF_FLOAT32, 2, NULL);
    double loss;
    free(train_support_gradient(backend, set, &all_terms, &loss));
    assert_true(tiny * 1e10f > 0 && small * 1e-10f > 0);
    train_set_free(set);
    train_frames_free(&frames);
    backend->destroy(backend);
    mlff_model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradient),
        cmocka_unit_test(test_gradient_of_molecules),
        cmocka_unit_test(test_gradient_of_large_structures),
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_threads_and_allocations),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_subnormals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
