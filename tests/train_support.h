/* SPDX-License-Identifier: MIT */
/* train_support.h: labelled random structures for tests of training, and the backends under test. */
#ifndef TRAIN_SUPPORT_H
#define TRAIN_SUPPORT_H

#include "device/cpu.h"
#include "model/training/train_backend.h"
#include "support.h"
#include "train/fitting/train_set.h"

enum { TRAIN_FRAMES_MAX = 4096 };

typedef struct train_frames {
    int64_t n;
    mlff_system *systems[TRAIN_FRAMES_MAX];
    mlff_labels labels[TRAIN_FRAMES_MAX];
    double *arrays[TRAIN_FRAMES_MAX][3]; /* forces, stress, atom energies behind the labels */
    double probe_steps[TRAIN_FRAMES_MAX];
} train_frames;

/* Takes over `system`; labels are random numbers of the size of real ones, the stress only where all axes repeat. */
SUPPORT void train_frames_add(train_frames *frames, mlff_system *system, double probe_step, uint64_t seed)
{
    assert_true(frames->n < TRAIN_FRAMES_MAX);
    int64_t k = frames->n++;
    int n = system->n_atoms;
    double *forces = calloc((size_t)n * 3, sizeof(double)), *stress = calloc(6, sizeof(double));
    double *atom_energies = calloc((size_t)n, sizeof(double));
    for (int a = 0; a < 3 * n; a++) forces[a] = base_random_normal(seed, 10, (uint64_t)a);
    for (int a = 0; a < 6; a++) stress[a] = 0.05 * base_random_normal(seed, 11, (uint64_t)a);
    for (int a = 0; a < n; a++) atom_energies[a] = base_random_normal(seed, 12, (uint64_t)a);
    frames->systems[k] = system;
    frames->probe_steps[k] = probe_step;
    frames->arrays[k][0] = forces;
    frames->arrays[k][1] = stress;
    frames->arrays[k][2] = atom_energies;
    frames->labels[k] = (mlff_labels){.energy = 3 * base_random_normal(seed, 13, 0),
                                      .forces = forces,
                                      .stress = system->periodic[0] ? stress : NULL,
                                      .atom_energies = atom_energies,
                                      .weight = 0.5 + base_random_uniform(seed, 14, 0)};
}

/* Adds both halves of a Hessian probe of `system` (kept by the caller) with step h along a random direction. */
SUPPORT void train_frames_add_probe(train_frames *frames, const mlff_system *system, double h, uint64_t seed)
{
    for (int side = 0; side < 2; side++) {
        mlff_system *moved;
        assert_ok(mlff_system_copy(system, &moved));
        for (int a = 0; a < 3 * system->n_atoms; a++)
            moved->positions[a] += (side ? -h : h) * base_random_normal(seed, 15, (uint64_t)a);
        train_frames_add(frames, moved, side ? 0 : h, seed + (uint64_t)side);
    }
    // A real teacher's forces at both ends are close to each other, so that their quotient has the size of a force constant.
    int64_t minus = frames->n - 1;
    for (int a = 0; a < 3 * system->n_atoms; a++)
        frames->arrays[minus][0][a] = frames->arrays[minus - 1][0][a] + h * frames->arrays[minus][0][a];
}

/* Fixes the first atom of frame k, with the force of 0 that constraints give, which is no label. */
SUPPORT void train_frames_constrain(train_frames *frames, int64_t k)
{
    assert_ok(mlff_system_add_fixed(frames->systems[k]));
    frames->systems[k]->fixed[0] = 1;
    for (int a = 0; a < 3; a++) frames->arrays[k][0][a] = 0;
}

SUPPORT void train_frames_free(train_frames *frames)
{
    for (int64_t k = 0; k < frames->n; k++) {
        mlff_system_destroy(frames->systems[k]);
        for (int a = 0; a < 3; a++) free(frames->arrays[k][a]);
    }
    *frames = (train_frames){0};
}

/* AdamW's update number `step`, from 1. */
SUPPORT train_update train_support_update(int step, double weight_decay)
{
    const double beta1 = 0.9, beta2 = 0.999;
    return (train_update){.learning_rate = 1e-3,
                          .beta1 = beta1,
                          .beta2 = beta2,
                          .epsilon = 1e-8,
                          .weight_decay = weight_decay,
                          .clip = 10,
                          .average = 0.9,
                          .correction1 = 1 - pow(beta1, step),
                          .correction2 = 1 - pow(beta2, step)};
}

SUPPORT train_set *train_frames_set(const train_frames *frames, const mlff_model *model)
{
    train_set *set;
    assert_ok(train_set_build(model, (const mlff_system *const *)frames->systems, frames->labels, frames->probe_steps, frames->n,
                              2, &set));
    return set;
}

SUPPORT train_backend *train_support_backend(const mlff_model *model, mlff_precision precision, int n_threads, const char *path)
{
    train_backend_options options = {.precision = precision, .n_threads = n_threads};
    train_backend *backend;
    assert_ok(cpu_path_choose(path, false, &options.cpu_path));
    assert_ok(model->architecture->create_train_backend(model, &options, &backend));
    return backend;
}

/* Weights of the model with noise, so that no bias is 0, as flat vector; rounded to float32. Freed with free. */
SUPPORT double *train_support_weights(train_backend *backend, double noise, uint64_t seed)
{
    int64_t n = backend->layout.n_parameters;
    double *weights = calloc((size_t)n, sizeof *weights);
    assert_ok(backend->get(backend, TRAIN_WEIGHTS, weights));
    for (int64_t k = 0; k < n; k++) weights[k] = (float)(weights[k] + noise * base_random_normal(seed, 20, (uint64_t)k));
    return weights;
}

/* Gradient of the loss of all frames as one batch. Freed with free. */
SUPPORT double *train_support_gradient(train_backend *backend, const train_set *set, const mlff_loss *loss, double *loss_out)
{
    double *gradient = calloc((size_t)backend->layout.n_parameters, sizeof *gradient);
    int32_t frames[TRAIN_FRAMES_MAX];
    for (int k = 0; k < set->n_frames; k++) frames[k] = k;
    assert_ok(backend->set_data(backend, set));
    assert_ok(backend->gradient(backend, frames, (int)set->n_frames, loss, gradient, loss_out));
    return gradient;
}

/* Relative L2 error. */
SUPPORT double train_support_error(const double *got, const double *expected, size_t n)
{
    double difference = 0, size = 0;
    for (size_t k = 0; k < n; k++) {
        difference += (got[k] - expected[k]) * (got[k] - expected[k]);
        size += expected[k] * expected[k];
    }
    return sqrt(difference / size);
}

/* Each tensor within `tolerance` of its largest element; zeros where zeros are expected. */
SUPPORT void train_support_check_tensors(const char *name, const train_layout *layout, const double *got, const double *expected,
                                         double tolerance)
{
    for (int t = 0; t < layout->n_tensors; t++) {
        const train_tensor *tensor = &layout->tensors[t];
        const double *part = expected + tensor->offset;
        double largest = support_largest(part, (size_t)tensor->n_elements);
        double difference = support_difference(got + tensor->offset, part, (size_t)tensor->n_elements);
        if (!(difference <= tolerance * largest))
            fail_msg("%s, %s: off by %.3g of %.3g", name, tensor->name, difference, largest);
        for (int64_t k = 0; k < tensor->n_elements; k++)
            if (part[k] == 0 && got[tensor->offset + k] != 0) fail_msg("%s, %s: element %d is not 0", name, tensor->name, (int)k);
    }
}

// How much the gradient moves when weights move by the rounding of float32. In random structures some |V| nearly vanish, and the
// gradient of the norm √(Σ V² + 1e-8) is as ill-conditioned as they are small.
SUPPORT double train_support_sensitivity(train_backend *reference, const train_set *set, const mlff_loss *loss_terms,
                                         const double *weights, const double *expected)
{
    size_t n = (size_t)reference->layout.n_parameters;
    double *moved = calloc(n, sizeof *moved), loss;
    for (size_t k = 0; k < n; k++) moved[k] = weights[k] * (1 + 6e-8 * base_random_normal(1, 2, k));
    assert_ok(reference->set(reference, TRAIN_WEIGHTS, moved));
    double *gradient = train_support_gradient(reference, set, loss_terms, &loss),
           change = train_support_error(gradient, expected, n);
    assert_ok(reference->set(reference, TRAIN_WEIGHTS, weights));
    free(gradient);
    free(moved);
    return change;
}

#endif
