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

/* How many of n cases: all, or an eighth where each is checked by sanitizers, which look for other things and are slow. */
#ifdef __SANITIZE_ADDRESS__
enum { SUPPORT_SANITIZED = 1 };
#define SUPPORT_CASES(n) (((n) + 7) / 8)
#else
enum { SUPPORT_SANITIZED = 0 };
#define SUPPORT_CASES(n) (n)
#endif

#define assert_ok(call)                                                                                                          \
    do {                                                                                                                         \
        mlff_status status_ = (call);                                                                                            \
        if (status_ != MLFF_OK) fail_msg("%s: %s: %s", #call, mlff_status_name(status_), mlff_last_error());                     \
    } while (0)

/* That a call failed with this status, and that the last error has these words. */
SUPPORT void assert_refused(mlff_status got, mlff_status expected, const char *words)
{
    if (got != expected || !strstr(mlff_last_error(), words))
        fail_msg("%s \"%s\", expected %s with \"%s\"", mlff_status_name(got), mlff_last_error(), mlff_status_name(expected),
                 words);
}

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

/* Warning handler: appends each warning and a line feed to the context, a text of SUPPORT_WARNING_BYTES. */
enum { SUPPORT_WARNING_BYTES = 2048 };
SUPPORT void support_keep_warning(void *context, const char *text)
{
    char *kept = context;
    const size_t at = strlen(kept);
    snprintf(kept + at, SUPPORT_WARNING_BYTES - at, "%s\n", text);
}

/* Results of a batch with all arrays; freed with support_results_free. */
typedef struct support_results {
    int n_systems, n_atoms;
    mlff_results r;
} support_results;

SUPPORT support_results support_results_for(const mlff_batch *batch)
{
    support_results s = {.n_systems = batch->n_systems, .n_atoms = batch->first_atom[batch->n_systems]};
    s.r.energies = calloc((size_t)s.n_systems, sizeof(double));
    s.r.atom_energies = calloc((size_t)s.n_atoms, sizeof(double));
    s.r.forces = calloc((size_t)s.n_atoms * 3, sizeof(double));
    s.r.stresses = calloc((size_t)s.n_systems * 6, sizeof(double));
    s.r.virials = calloc((size_t)s.n_systems * 9, sizeof(double));
    return s;
}

SUPPORT support_results support_compute(mlff_evaluator *evaluator, const mlff_batch *batch)
{
    support_results s = support_results_for(batch);
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

// Several systems in one batch; owns its arrays.
typedef struct joined {
    mlff_batch batch;
    int32_t *first_atom, *species;
    double *positions, *cells;
    unsigned char *periodic;
} joined;

SUPPORT joined join(mlff_system *const *systems, unsigned n)
{
    joined j = {.first_atom = calloc((size_t)n + 1, sizeof(int32_t))};
    for (unsigned k = 0; k < n; k++) j.first_atom[k + 1] = j.first_atom[k] + systems[k]->n_atoms;
    j.species = calloc((size_t)j.first_atom[n], sizeof(int32_t));
    j.positions = calloc((size_t)j.first_atom[n] * 3, sizeof(double));
    j.cells = calloc((size_t)n * 9, sizeof(double));
    j.periodic = calloc(n, 3);
    for (unsigned k = 0; k < n; k++) {
        for (int i = 0; i < systems[k]->n_atoms; i++) j.species[j.first_atom[k] + i] = systems[k]->species[i];
        memcpy(j.positions + 3 * j.first_atom[k], systems[k]->positions, sizeof(double) * 3 * (size_t)systems[k]->n_atoms);
        memcpy(j.cells + 9 * (size_t)k, systems[k]->cell, sizeof systems[k]->cell);
        memcpy(j.periodic + 3 * (size_t)k, systems[k]->periodic, 3);
    }
    j.batch = (mlff_batch){.n_systems = (int)n,
                           .first_atom = j.first_atom,
                           .species = j.species,
                           .positions = j.positions,
                           .cells = j.cells,
                           .periodic = j.periodic};
    return j;
}

SUPPORT void unjoin(joined *j)
{
    free(j->first_atom);
    free(j->species);
    free(j->positions);
    free(j->cells);
    free(j->periodic);
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

/* mlff_model_create with settings as text: "n_features=%d; elements=H,C". */
MLFF_PRINTF(3, 4)
SUPPORT mlff_status support_create(mlff_model **model_out, const char *architecture, const char *format, ...)
{
    char text[512];
    mlff_setting settings[16] = {{0}};
    int n = 0;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    for (char *at = text; *at && n < 15; n++) {
        char *equals = strchr(at, '='), *end = at + strcspn(at, ";");
        assert_non_null(equals);
        *equals = 0;
        settings[n] = (mlff_setting){at, equals + 1};
        at = end;
        if (*at) *at++ = 0;
        at += strspn(at, " ");
    }
    return mlff_model_create(architecture, settings, model_out);
}

/* An untrained model whose forces have the size of real ones: SchNetPack's start, F features, L layers. */
SUPPORT mlff_model *support_model(int n_features, int n_layers, const char *basis, const char *cutoff_function, int shared,
                                  uint64_t seed)
{
    const char *flag = shared ? "true" : "false";
    mlff_model *model;
    assert_ok(support_create(&model, "painn",
                             "n_features=%d; n_layers=%d; radial_basis=%s; cutoff_function=%s; shared_filters=%s; "
                             "shared_interactions=%s; seed=%llu",
                             n_features, n_layers, basis, cutoff_function, flag, flag, (unsigned long long)seed));
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

/* An evaluator of one path, with so many threads; `members` NULL: all. */
SUPPORT mlff_evaluator *support_evaluator_on(const mlff_model *model, mlff_precision precision, const char *path, int n_threads,
                                             const char *members)
{
    mlff_evaluator_options options = mlff_evaluator_options_default();
    options.precision = precision;
    options.cpu_path = path;
    options.n_threads = n_threads;
    options.members = members;
    mlff_evaluator *evaluator;
    assert_ok(mlff_evaluator_create(model, &options, &evaluator));
    return evaluator;
}

SUPPORT double support_atom_energy_size(const support_results *r)
{
    double sum = 0;
    for (int i = 0; i < r->n_atoms; i++) sum += fabs(r->r.atom_energies[i]);
    return sum;
}

/* float32 against float64: forces and virials to 2e-5 of the largest, energies to 1e-5 of the sum of their sizes. Below `floors`
 * (eV/Å, eV) a largest force or virial is rounding itself. */
SUPPORT void support_compare(const char *what, const support_results *got, const support_results *expected,
                             const double floors[2])
{
    size_t n = (size_t)expected->n_atoms, s = (size_t)expected->n_systems;
    double size = fmax(support_largest(expected->r.forces, 3 * n), floors[0]),
           energy = fmax(support_atom_energy_size(expected), 1e-3);
    double virial = fmax(support_largest(expected->r.virials, 9 * s), floors[1]);
    double df = support_difference(got->r.forces, expected->r.forces, 3 * n);
    double de = support_difference(got->r.energies, expected->r.energies, s);
    double da = support_difference(got->r.atom_energies, expected->r.atom_energies, n);
    double dv = support_difference(got->r.virials, expected->r.virials, 9 * s);
    if (df > 2e-5 * size || de > 1e-5 * energy || da > 1e-5 * energy || dv > 2e-5 * virial)
        fail_msg("%s: forces off by %.2e of %.2e, energies by %.2e of %.2e, atom energies by %.2e, virials by %.2e of %.2e", what,
                 df, size, de, energy, da, dv, virial);
}

SUPPORT void support_same_bits(const support_results *a, const support_results *b)
{
    assert_memory_equal(a->r.forces, b->r.forces, sizeof(double) * 3 * (size_t)a->n_atoms);
    assert_memory_equal(a->r.energies, b->r.energies, sizeof(double) * (size_t)a->n_systems);
    assert_memory_equal(a->r.atom_energies, b->r.atom_energies, sizeof(double) * (size_t)a->n_atoms);
}

/* All CPU paths, each with 1 to 3 threads, against the float64 reference. The bits of a path do not depend on the number of threads;
 * with sanitizers, which are slow, 2 threads are left out. */
SUPPORT void support_check_paths(const mlff_model *model, const mlff_batch *batch, const double floors[2], const char *what)
{
    mlff_evaluator *reference = support_evaluator_on(model, MLFF_FLOAT64, NULL, 1, NULL);
    support_results expected = support_compute(reference, batch);
    for (const char *const *path = mlff_cpu_paths(); *path; path++) {
        support_results first = {0};
        for (int threads = 1; threads <= 3; threads += 1 + SUPPORT_SANITIZED) {
            char name[256];
            snprintf(name, sizeof name, "%s, %s, %d threads", what, *path, threads);
            mlff_evaluator *evaluator = support_evaluator_on(model, MLFF_FLOAT32, *path, threads, NULL);
            support_results got = support_compute(evaluator, batch);
            support_compare(name, &got, &expected, floors);
            if (threads == 1) {
                first = got;
            } else {
                support_same_bits(&got, &first);
                support_results_free(&got);
            }
            mlff_evaluator_destroy(evaluator);
        }
        support_results_free(&first);
    }
    support_results_free(&expected);
    mlff_evaluator_destroy(reference);
}

/* A random orthogonal matrix from three random vectors; determinant +1, or -1 with `mirror`. */
SUPPORT void support_random_orthogonal(uint64_t seed, int mirror, double q[9])
{
    for (int r = 0; r < 3; r++) {
        double length = 0;
        for (int c = 0; c < 3; c++) q[3 * r + c] = base_random_normal(seed, (uint64_t)r, (uint64_t)c);
        for (int s = 0; s < r; s++) {
            double along = q[3 * r] * q[3 * s] + q[3 * r + 1] * q[3 * s + 1] + q[3 * r + 2] * q[3 * s + 2];
            for (int c = 0; c < 3; c++) q[3 * r + c] -= along * q[3 * s + c];
        }
        for (int c = 0; c < 3; c++) length += q[3 * r + c] * q[3 * r + c];
        for (int c = 0; c < 3; c++) q[3 * r + c] /= sqrt(length);
    }
    double det = q[0] * (q[4] * q[8] - q[5] * q[7]) - q[1] * (q[3] * q[8] - q[5] * q[6]) + q[2] * (q[3] * q[7] - q[4] * q[6]);
    if ((det < 0) != (mirror != 0))
        for (int c = 0; c < 3; c++) q[c] = -q[c];
}

SUPPORT void support_rotate(const double q[9], const double *from, double *to, int rows)
{
    for (int i = 0; i < rows; i++) {
        double r[3];
        for (int a = 0; a < 3; a++)
            r[a] = q[3 * a] * from[3 * i] + q[3 * a + 1] * from[3 * i + 1] + q[3 * a + 2] * from[3 * i + 2];
        memcpy(to + 3 * i, r, sizeof r);
    }
}

SUPPORT mlff_status support_forces_of(void *context, const mlff_system *system, double *energy, double *forces)
{
    int32_t first_atom[2];
    mlff_batch batch;
    mlff_batch_from_system(system, first_atom, &batch);
    return mlff_evaluator_compute(context, &batch, &(mlff_results){.energies = energy, .forces = forces});
}

/* Largest departure of the total energy from its start over n steps, eV. */
SUPPORT double support_largest_drift(mlff_evaluator *evaluator, const mlff_system *start, double timestep, int n_steps)
{
    mlff_system *system;
    assert_ok(mlff_system_copy(start, &system));
    mlff_dynamics_options options = mlff_dynamics_options_default();
    options.timestep_fs = timestep;
    mlff_dynamics *dynamics;
    assert_ok(mlff_dynamics_create(&options, system, support_forces_of, evaluator, &dynamics));
    mlff_dynamics_state now;
    assert_ok(mlff_dynamics_state_get(dynamics, &now));
    double first = now.conserved_energy, largest = 0;
    for (int step = 0; step < n_steps; step++) {
        assert_ok(mlff_dynamics_step(dynamics));
        assert_ok(mlff_dynamics_state_get(dynamics, &now));
        largest = fmax(largest, fabs(now.conserved_energy - first));
    }
    mlff_dynamics_destroy(dynamics);
    mlff_system_destroy(system);
    return largest;
}

/* σ = (1/V) dE/dε: each of the six against the central difference of a strained cell (strain ±h), and the virial's symmetry,
 * which holds because the energy does not change when everything rotates. float64. */
SUPPORT void support_check_stress(mlff_evaluator *evaluator, const mlff_system *system, double h, double tolerance)
{
    static const int voigt[6][2] = {{0, 0}, {1, 1}, {2, 2}, {1, 2}, {0, 2}, {0, 1}};
    support_results at = support_compute_system(evaluator, system);
    double volume = mlff_system_volume(system), largest = support_largest(at.r.stresses, 6);
    double rounding = 4e-16 * fabs(at.r.energies[0]) / h / volume;
    for (int k = 0; k < 6; k++) {
        double energy[2];
        for (int side = 0; side < 2; side++) {
            mlff_system *strained;
            assert_ok(mlff_system_copy(system, &strained));
            double strain[9] = {0}, e = (side ? 1 : -1) * h;
            strain[3 * voigt[k][0] + voigt[k][1]] += 0.5 * e;
            strain[3 * voigt[k][1] + voigt[k][0]] += 0.5 * e;
            for (int row = 0; row < system->n_atoms + 3; row++) {
                double *to = row < 3 ? strained->cell + 3 * row : strained->positions + 3 * (row - 3);
                const double *from = row < 3 ? system->cell + 3 * row : system->positions + 3 * (row - 3);
                for (int a = 0; a < 3; a++)
                    to[a] = from[a] + strain[3 * a] * from[0] + strain[3 * a + 1] * from[1] + strain[3 * a + 2] * from[2];
            }
            energy[side] = support_energy(evaluator, strained);
            mlff_system_destroy(strained);
        }
        double expected = (energy[1] - energy[0]) / (2 * h) / volume;
        if (!(fabs(at.r.stresses[k] - expected) <= tolerance * largest + rounding))
            fail_msg("stress %d: %.10g, by strain %.10g", k, at.r.stresses[k], expected);
    }
    for (int a = 0; a < 3; a++)
        for (int b = 0; b < a; b++)
            assert_true(fabs(at.r.virials[3 * a + b] - at.r.virials[3 * b + a]) < 1e-10 * support_largest(at.r.virials, 9));
    support_results_free(&at);
}

#endif
