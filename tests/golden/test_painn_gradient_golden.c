// SPDX-License-Identifier: MIT
// Training in float64 against an independent implementation (make_painn_gradient.py, NumPy): gradients of a molecule and a cell with
// self-images, both radial bases, shared weights, to 1e-11 of the sum of a tensor's elements' sizes (rounding of some 10³ terms);
// and a run of 100 steps with SchNetPack's recipe, its losses to 1e-9.
#include "train_support.h"

#include "golden/reference_json.h"
#include "model/painn/train/painn_gradient.h"

// Element k of the tensor with the t-th smallest name is 0.4 sin(1.3 t + 0.7 k + 0.2).
static void fill_weights(const train_layout *layout, double *weights)
{
    for (int a = 0; a < layout->n_tensors; a++) {
        int t = 0;
        for (int b = 0; b < layout->n_tensors; b++) t += strcmp(layout->tensors[b].name, layout->tensors[a].name) < 0;
        for (int64_t k = 0; k < layout->tensors[a].n_elements; k++)
            weights[layout->tensors[a].offset + k] = 0.4 * sin(1.3 * t + 0.7 * (double)k + 0.2);
    }
}

static mlff_model *model_of(const cJSON *file, const cJSON *c)
{
    const char *flag = cJSON_IsTrue(cJSON_GetObjectItem(c, "shared")) ? "true" : "false";
    mlff_model *model;
    assert_ok(support_create(&model, "painn",
                             "n_features=%d; n_layers=%d; n_radial=%d; cutoff=%g; radial_basis=%s; shared_filters=%s; "
                             "shared_interactions=%s",
                             count_of(file, "n_features"), count_of(file, "n_layers"), count_of(file, "n_radial"),
                             cJSON_GetObjectItem(file, "cutoff")->valuedouble, cJSON_GetObjectItem(c, "basis")->valuestring, flag,
                             flag));
    return model;
}

static train_set *set_of(const cJSON *file, const cJSON *c, const mlff_model *model)
{
    double species[8];
    mlff_system *system;
    assert_ok(mlff_system_create(read_numbers(file, "species", species, 8), &system));
    for (int i = 0; i < system->n_atoms; i++) system->species[i] = (int)species[i];
    assert_int_equal(read_numbers(file, "positions", system->positions, 24), 3 * system->n_atoms);
    for (int k = 0; k < 3; k++) system->periodic[k] = read_numbers(c, "cell", system->cell, 9) == 9;
    train_set *set;
    mlff_labels labels = {.energy = 0, .weight = 1};
    assert_ok(train_set_build(model, (const mlff_system *const *)&system, &labels, NULL, 1, 1, &set));
    mlff_system_destroy(system);
    return set;
}

static void check_sums(const train_layout *layout, const cJSON *c, const double *total)
{
    for (int t = 0; t < layout->n_tensors; t++) {
        const train_tensor *tensor = &layout->tensors[t];
        double expected[4], sum[3] = {0};
        assert_int_equal(read_numbers(cJSON_GetObjectItem(c, "sums"), tensor->name, expected, 4), 4);
        for (int64_t k = 0; k < tensor->n_elements; k++) {
            double g = total[tensor->offset + k];
            sum[0] += g;
            sum[1] += g * cos((double)k);
            sum[2] += g * sin(0.3 * (double)k);
        }
        for (int k = 0; k < 3; k++)
            if (!(fabs(sum[k] - expected[k]) <= 1e-11 * expected[3]))
                fail_msg("%s: sum %d is %.15g, expected %.15g, sizes sum to %.3g", tensor->name, k, sum[k], expected[k],
                         expected[3]);
    }
}

static void check_case(const cJSON *file, const cJSON *c)
{
    mlff_model *model = model_of(file, c);
    train_set *set = set_of(file, c, model);
    train_layout layout;
    painn_trainable trainable;
    painn_gradient *gradient;
    assert_ok(painn_trainable_create(model, &layout, &trainable));
    assert_ok(painn_gradient_create(model->parameters, &trainable, &gradient));
    assert_int_equal(set->n_pairs, count_of(c, "pairs"));
    size_t n = (size_t)layout.n_parameters, n_pairs = (size_t)set->n_pairs;
    double *weights = calloc(n, sizeof *weights), *total = calloc(n, sizeof *total);
    double *g = calloc(3 * n_pairs, sizeof *g), *w = calloc(3 * n_pairs, sizeof *w);
    double seed[8], v[24], B[9], energies[8], expected[8];
    int n_atoms = read_numbers(c, "c", seed, 8);
    read_numbers(c, "v", v, 24);
    read_numbers(c, "B", B, 9);
    read_numbers(c, "energies", expected, 8);
    for (int i = 0; i < n_atoms; i++)
        for (int64_t p = set->first_pair[i]; p < set->first_pair[i + 1]; p++)
            for (int a = 0; a < 3; a++) {
                w[3 * p + a] = v[3 * i + a] - v[3 * set->neighbor[p] + a];
                for (int b = 0; b < 3; b++) w[3 * p + a] += B[3 * a + b] * set->vectors[3 * p + b];
            }
    painn_gradient_frame frame = {n_atoms, set->species, set->first_pair, set->neighbor, set->vectors};
    fill_weights(&layout, weights);
    assert_ok(painn_gradient_base(gradient, &frame, weights, energies, g));
    assert_true(support_difference(energies, expected, (size_t)n_atoms) <= 1e-13 * support_largest(expected, (size_t)n_atoms));
    assert_ok(painn_gradient_add(gradient, &frame, weights, seed, w, total, NULL));
    check_sums(&layout, c, total);
    free(weights);
    free(total);
    free(g);
    free(w);
    painn_gradient_destroy(gradient);
    train_layout_free(&layout);
    train_set_free(set);
    mlff_model_destroy(model);
}

static void test_against_numpy(void **state)
{
    (void)state;
    cJSON *file = read_json("tests/golden/painn_gradient.json"), *c;
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(file, "cases")), 5);
    cJSON_ArrayForEach(c, cJSON_GetObjectItem(file, "cases")) check_case(file, c);
    cJSON_Delete(file);
}

// ---- a training run -------------------------------------------------------------------------------------------------------

static const cJSON *item(const cJSON *array, int index)
{
    return cJSON_GetArrayItem(array, index);
}

static void check_weights(train_backend *backend, enum train_vector which, const cJSON *expected, double *values)
{
    assert_ok(backend->get(backend, which, values));
    for (int t = 0; t < backend->layout.n_tensors; t++) {
        const train_tensor *tensor = &backend->layout.tensors[t];
        const cJSON *sums = cJSON_GetObjectItem(expected, tensor->name);
        double sum = 0, size = item(sums, 1)->valuedouble;
        for (int64_t k = 0; k < tensor->n_elements; k++) sum += values[tensor->offset + k];
        if (!(fabs(sum - item(sums, 0)->valuedouble) <= 1e-9 * size))
            fail_msg("%s: weights sum to %.12g, expected %.12g", tensor->name, sum, item(sums, 0)->valuedouble);
    }
}

// 100 steps with SchNetPack's loss, optimizer and average: every loss within 1e-9, weights and averages at the end.
static void test_training_run(void **state)
{
    (void)state;
    cJSON *file = read_json("tests/golden/painn_gradient.json");
    const cJSON *run = cJSON_GetObjectItem(file, "training");
    mlff_model *model = model_of(file, item(cJSON_GetObjectItem(file, "cases"), 0));
    enum { N = 6 };
    double forces[N][16], species[8];
    mlff_system *systems[N];
    mlff_labels labels[N];
    int n_atoms = read_numbers(file, "species", species, 8);
    for (int k = 0; k < N; k++) {
        assert_ok(mlff_system_create(n_atoms, &systems[k]));
        for (int i = 0; i < n_atoms; i++) systems[k]->species[i] = (int)species[i];
        for (int a = 0; a < 3 * n_atoms; a++) {
            systems[k]->positions[a] = item(item(cJSON_GetObjectItem(run, "positions"), k), a)->valuedouble;
            forces[k][a] = item(item(cJSON_GetObjectItem(run, "forces"), k), a)->valuedouble;
        }
        labels[k] =
            (mlff_labels){.energy = item(cJSON_GetObjectItem(run, "energies"), k)->valuedouble, .forces = forces[k], .weight = 1};
    }
    train_set *set;
    assert_ok(train_set_build(model, (const mlff_system *const *)systems, labels, NULL, N, 1, &set));
    train_backend *backend = train_support_backend(model, MLFF_FLOAT64, 1, NULL);
    double *values = calloc((size_t)backend->layout.n_parameters, sizeof *values);
    fill_weights(&backend->layout, values);
    assert_ok(backend->set(backend, TRAIN_WEIGHTS, values));
    assert_ok(backend->set(backend, TRAIN_AVERAGE, values));
    assert_ok(backend->set_data(backend, set));
    const mlff_loss loss = {.energy_weight = 0.01, .forces_weight = 0.99};
    const cJSON *losses = cJSON_GetObjectItem(run, "losses");
    int batch = count_of(run, "batch"), n_steps = cJSON_GetArraySize(losses);
    assert_int_equal(n_steps, 100);
    for (int step = 0; step < n_steps; step++) {
        int32_t frames[N];
        train_sums sums;
        train_update update = {.learning_rate = cJSON_GetObjectItem(run, "rate")->valuedouble,
                               .beta1 = 0.9,
                               .beta2 = 0.999,
                               .epsilon = 1e-8,
                               .average = cJSON_GetObjectItem(run, "average")->valuedouble,
                               .correction1 = 1 - pow(0.9, step + 1),
                               .correction2 = 1 - pow(0.999, step + 1)};
        for (int k = 0; k < batch; k++) frames[k] = (batch * step + k) % N;
        assert_ok(backend->step(backend, frames, batch, &loss, &update));
        assert_ok(backend->sums(backend, &sums));
        double expected = item(losses, step)->valuedouble;
        if (!(fabs(sums.loss - expected) <= 1e-9 * expected))
            fail_msg("step %d: loss %.15g, expected %.15g", step, sums.loss, expected);
    }
    check_weights(backend, TRAIN_WEIGHTS, cJSON_GetObjectItem(run, "weights"), values);
    check_weights(backend, TRAIN_AVERAGE, cJSON_GetObjectItem(run, "averages"), values);
    free(values);
    backend->destroy(backend);
    train_set_free(set);
    for (int k = 0; k < N; k++) mlff_system_destroy(systems[k]);
    mlff_model_destroy(model);
    cJSON_Delete(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_numpy), cmocka_unit_test(test_training_run)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
