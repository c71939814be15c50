/* SPDX-License-Identifier: MIT */
/* support.h: what the test programs of models share: shared data, evaluators on the device under test, random systems.
 * MLFF_DEVICE (cpu, cuda) names the device under test; MLFF_SHARED the folder of upstream data (else ../shared). */
#ifndef SUPPORT_H
#define SUPPORT_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "mlff.h"

#define SUPPORT __attribute__((unused)) static

#define assert_ok(call)                                                                                                          \
    do {                                                                                                                         \
        mlff_status status_ = (call);                                                                                            \
        if (status_ != MLFF_OK) fail_msg("%s: %s: %s", #call, mlff_status_name(status_), mlff_last_error());                     \
    } while (0)

/* Path of a file of the shared data, or NULL (and a word) where it is not at hand. Static buffers, four at a time. */
SUPPORT const char *support_shared(const char *name)
{
    static char paths[4][1024];
    static int next;
    const char *root = getenv("MLFF_SHARED");
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", root && *root ? root : "../shared", name);
    if (access(path, R_OK) == 0) return path;
    printf("skipped: %s is not at hand (MLFF_SHARED)\n", name);
    return NULL;
}

SUPPORT mlff_evaluator *support_evaluator(const mlff_model *model, mlff_precision precision)
{
    mlff_evaluator_options options = mlff_evaluator_options_default();
    const char *device = getenv("MLFF_DEVICE");
    // float64 is the reference and runs on the CPU wherever the rest runs.
    if (device && *device && precision != MLFF_FLOAT64) assert_ok(mlff_device_parse(device, &options.device));
    options.precision = precision;
    mlff_evaluator *evaluator;
    assert_ok(mlff_evaluator_create(model, &options, &evaluator));
    return evaluator;
}

/* Results of a batch with all arrays; freed with support_results_free. */
typedef struct support_results {
    int n_systems, n_atoms;
    mlff_results r;
} support_results;

SUPPORT support_results support_compute(mlff_evaluator *evaluator, const mlff_batch *batch)
{
    support_results s = {.n_systems = batch->n_systems, .n_atoms = batch->first_atom[batch->n_systems]};
    s.r.energies = calloc((size_t)s.n_systems, sizeof(double));
    s.r.atom_energies = calloc((size_t)s.n_atoms, sizeof(double));
    s.r.forces = calloc((size_t)s.n_atoms * 3, sizeof(double));
    s.r.stresses = calloc((size_t)s.n_systems * 6, sizeof(double));
    s.r.virials = calloc((size_t)s.n_systems * 9, sizeof(double));
    assert_ok(mlff_evaluator_compute(evaluator, batch, &s.r));
    return s;
}

SUPPORT void support_results_free(support_results *s)
{
    free(s->r.energies);
    free(s->r.atom_energies);
    free(s->r.forces);
    free(s->r.stresses);
    free(s->r.virials);
}

SUPPORT support_results support_compute_system(mlff_evaluator *evaluator, const mlff_system *system)
{
    int32_t first_atom[2];
    mlff_batch batch;
    mlff_batch_from_system(system, first_atom, &batch);
    return support_compute(evaluator, &batch);
}

SUPPORT double support_energy(mlff_evaluator *evaluator, const mlff_system *system)
{
    int32_t first_atom[2];
    mlff_batch batch;
    double energy = NAN;
    mlff_batch_from_system(system, first_atom, &batch);
    assert_ok(mlff_evaluator_compute(evaluator, &batch, &(mlff_results){.energies = &energy}));
    return energy;
}

SUPPORT double support_largest(const double *x, size_t n)
{
    double largest = 0;
    for (size_t i = 0; i < n; i++) largest = fmax(largest, fabs(x[i]));
    return largest;
}

/* Largest |a − b|; fails the test on NaN. */
SUPPORT double support_difference(const double *a, const double *b, size_t n)
{
    double largest = 0;
    for (size_t i = 0; i < n; i++) {
        double difference = fabs(a[i] - b[i]);
        if (!(difference >= 0)) fail_msg("element %zu: %g and %g", i, a[i], b[i]);
        largest = fmax(largest, difference);
    }
    return largest;
}

/* An untrained model whose forces have the size of real ones: SchNetPack's start, F features, L layers. */
SUPPORT mlff_model *support_model(int n_features, int n_layers, const char *basis, const char *cutoff_function, int shared,
                                  uint64_t seed)
{
    mlff_painn_options options = mlff_painn_options_default();
    options.n_features = n_features;
    options.n_layers = n_layers;
    options.radial_basis = basis;
    options.cutoff_function = cutoff_function;
    options.shared_filters = options.shared_interactions = shared;
    options.seed = seed;
    mlff_model *model;
    assert_ok(mlff_model_create_painn(&options, &model));
    return model;
}

/* n atoms of mixed elements at about 0.05 Å⁻³, no two closer than `closest`; periodic in a skewed cell, or free. */
SUPPORT mlff_system *support_random_system(int n, int periodic, double closest, uint64_t seed)
{
    static const int elements[] = {1, 6, 7, 8, 14, 17};
    mlff_system *system;
    assert_ok(mlff_system_create(n, &system));
    double side = cbrt(n / 0.05) + (n < 3 ? 2 : 0);
    const double skew[9] = {1, 0, 0, 0.2, 0.98, 0, -0.1, 0.15, 0.97};
    uint64_t draw = 0;
    for (int k = 0; k < 9; k++) system->cell[k] = periodic ? side * skew[k] : 0;
    for (int c = 0; c < 3; c++) system->periodic[c] = periodic != 0;
    for (int i = 0; i < n; i++) {
        system->species[i] = elements[(int)(6 * base_random_uniform(seed, 1, (uint64_t)i))];
        for (int tries = 0;; tries++) {
            if (tries == 10000) fail_msg("no room for atom %d of %d with %g Å between atoms (seed %d)", i, n, closest, (int)seed);
            double s[3], nearest = 1e9;
            for (int c = 0; c < 3; c++) s[c] = base_random_uniform(seed, 2, draw++);
            for (int c = 0; c < 3; c++)
                system->positions[3 * i + c] = side * (s[0] * skew[c] + s[1] * skew[3 + c] + s[2] * skew[6 + c]);
            for (int j = 0; j < i; j++)
                for (int image = 0; image < (periodic ? 27 : 1); image++) {
                    int shift[3] = {image % 3 - 1, image / 3 % 3 - 1, image / 9 - 1};
                    double square = 0;
                    for (int c = 0; c < 3; c++) {
                        double d = system->positions[3 * j + c] - system->positions[3 * i + c];
                        if (periodic)
                            for (int k = 0; k < 3; k++) d += shift[k] * system->cell[3 * k + c];
                        square += d * d;
                    }
                    nearest = fmin(nearest, square);
                }
            if (nearest > closest * closest) break;
        }
    }
    return system;
}

#endif
