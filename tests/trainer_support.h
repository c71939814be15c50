/* SPDX-License-Identifier: MIT */
/* trainer_support.h: small models, data and training runs, and a folder for their files. */
#ifndef TRAINER_SUPPORT_H
#define TRAINER_SUPPORT_H

#include <unistd.h>

#include "mlff_train.h"
#include "support.h"

enum { N_FRAMES = 24, N_STEPS = 40 };

static char folder[] = P_tmpdir "/mlff-trainer-XXXXXX";

SUPPORT const char *in_folder(const char *name)
{
    static char paths[8][256];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

SUPPORT int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

SUPPORT int remove_folder(void **state)
{
    (void)state;
    static const char *const names[] = {"a.checkpoint", "a.best.safetensors", "a.jsonl", "damaged", "verdict.json"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) unlink(in_folder(names[k]));
    return rmdir(folder);
}

SUPPORT mlff_model *make_model_of(const char *features, const char *layers, const char *seed)
{
    mlff_model *model = NULL;
    const mlff_setting settings[] = {{"n_features", features},
                                     {"n_layers", layers},
                                     {"n_radial", "8"},
                                     {"cutoff", "4"},
                                     {"elements", "H,O"},
                                     {"seed", seed},
                                     {"cutoff_function", "mollifier"},
                                     {0}};
    assert_int_equal(mlff_model_create("painn", settings, &model), MLFF_OK);
    return model;
}

SUPPORT mlff_model *make_model(const char *features, const char *seed)
{
    return make_model_of(features, "2", seed);
}

// Water molecules out of shape, labelled by a model with random weights; the first `n_with_forces` of them with forces too.
SUPPORT mlff_dataset *make_data_with(const mlff_model *teacher, uint64_t seed, int n, int n_with_forces)
{
    mlff_dataset *data = NULL;
    mlff_evaluator *evaluator = NULL;
    const mlff_evaluator_options options = {
        .struct_size = sizeof options, .precision = MLFF_FLOAT64, .skin_angstrom = 0.5, .n_threads = 1};
    assert_int_equal(mlff_dataset_create(&data), MLFF_OK);
    assert_int_equal(mlff_evaluator_create(teacher, &options, &evaluator), MLFF_OK);
    for (int k = 0; k < n; k++) {
        mlff_system *system = NULL;
        mlff_batch batch;
        int32_t first[2];
        double energy, forces[9];
        assert_int_equal(mlff_system_build("h2o", 0, 0, &system), MLFF_OK);
        assert_int_equal(system->n_atoms, 3);
        for (int c = 0; c < 9; c++) system->positions[c] += 0.2 * (base_random_uniform(seed, (uint64_t)k, (uint64_t)c) - 0.5);
        mlff_batch_from_system(system, first, &batch);
        assert_int_equal(mlff_evaluator_compute(evaluator, &batch, &(mlff_results){.energies = &energy, .forces = forces}),
                         MLFF_OK);
        const mlff_labels labels = {.energy = energy, .forces = k < n_with_forces ? forces : NULL, .weight = 1};
        assert_int_equal(mlff_dataset_add(data, system, &labels), MLFF_OK);
        mlff_system_destroy(system);
    }
    mlff_evaluator_destroy(evaluator);
    return data;
}

SUPPORT mlff_dataset *make_data(const mlff_model *teacher, uint64_t seed, int n)
{
    return make_data_with(teacher, seed, n, n);
}

SUPPORT mlff_trainer_options small_run(mlff_precision precision)
{
    mlff_trainer_options options = mlff_trainer_options_default();
    options.precision = precision;
    options.n_threads = 2;
    options.batch_size = 5; // does not divide the data: the last batch of an epoch is smaller
    options.n_steps = N_STEPS;
    options.learning_rate = 5e-3;
    return options;
}

SUPPORT mlff_trainer *make_trainer(const mlff_model *student, const mlff_dataset *data, const mlff_trainer_options *options)
{
    mlff_trainer *trainer = NULL;
    if (mlff_trainer_create(student, data, options, &trainer) != MLFF_OK) fail_msg("%s", mlff_last_error());
    return trainer;
}

// All weights of a model file as bytes: what bit-identity means.
SUPPORT char *file_of(const mlff_model *model, size_t *length_out)
{
    char *text = NULL;
    const char *path = in_folder("a.best.safetensors");
    assert_int_equal(mlff_model_save(model, path), MLFF_OK);
    assert_int_equal(base_read_file(path, 1 << 24, &text, length_out), MLFF_OK);
    return text;
}

SUPPORT void assert_same_model(const mlff_model *a, const mlff_model *b)
{
    size_t n, m;
    char *left = file_of(a, &n), *right = file_of(b, &m);
    assert_int_equal(n, m);
    assert_memory_equal(left, right, n);
    base_free(left);
    base_free(right);
}

#endif
