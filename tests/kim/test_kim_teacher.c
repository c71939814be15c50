// SPDX-License-Identifier: MIT
/* KIM models as teachers, installed by tests/kim/run.sh: mlff's own against the evaluator in float64 (MLFF_PRECISION), and stub_model.cc,
 * which has other units, numbers and lists, against its formula summed over images, whose derivatives are taken numerically. A structure
 * that makes the model fail, crash or hang fails alone. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "mlff.h"
#include "mlff_label.h"

#define assert_ok(call)                                                                                                          \
    do {                                                                                                                         \
        if ((call) != MLFF_OK) fail_msg("%s: %s", #call, mlff_last_error());                                                     \
    } while (0)

static void assert_close(double value, double expected, double tolerance, const char *what)
{
    if (!(fabs(value - expected) <= tolerance)) fail_msg("%s: %.15g, expected %.15g within %g", what, value, expected, tolerance);
}

static mlff_teacher *open_teacher(const char *name, int n_workers, double timeout_s)
{
    mlff_teacher_options options = mlff_teacher_options_default();
    mlff_teacher *teacher;
    options.n_threads = n_workers;
    options.timeout_s = timeout_s;
    assert_ok(mlff_teacher_open(name, &options, &teacher));
    return teacher;
}

static mlff_system *build(const char *name, int n)
{
    mlff_system *system;
    assert_ok(mlff_system_build(name, n, 1, &system));
    assert_ok(mlff_system_perturb(system, 600, 2));
    return system;
}

// ---- against the evaluator

static void compare(mlff_teacher *teacher, mlff_evaluator *evaluator, const mlff_system *system)
{
    int32_t first_atom[2];
    mlff_batch batch;
    mlff_label label;
    double energy, stress[6], *forces = calloc(3 * (size_t)system->n_atoms, sizeof *forces);
    const int bulk = system->periodic[0] && system->periodic[1] && system->periodic[2];
    const mlff_results results = {.energies = &energy, .forces = forces, .stresses = bulk ? stress : NULL};
    mlff_batch_from_system(system, first_atom, &batch);
    assert_ok(mlff_evaluator_compute(evaluator, &batch, &results));
    assert_ok(mlff_teacher_compute(teacher, &system, 1, &label));
    if (label.status != MLFF_OK) fail_msg("%s", label.problem);
    // Sums in another order: 1e-10 eV of up to 10^5 eV (ANI's offsets), 1e-10 eV/Å
    assert_close(label.energy, energy, 1e-10 + 1e-13 * fabs(energy), "energy");
    for (int k = 0; k < 3 * system->n_atoms; k++) assert_close(label.forces[k], forces[k], 1e-10, "force");
    assert_int_equal(isnan(label.stress[0]), !bulk);
    for (int k = 0; bulk && k < 6; k++) assert_close(label.stress[k], stress[k], 1e-11, "stress");
    mlff_label_clear(&label);
    free(forces);
}

static void test_own_models(void **state)
{
    (void)state;
    static const struct {
        const char *teacher, *file, *system;
        int n_atoms, n_periodic;
    } cases[] = {{"kim:Silicon_PaiNN", "silicon.safetensors", "silicon", 8, 3}, // smaller than the halo
                 {"kim:Silicon_PaiNN", "silicon.safetensors", "silicon", 64, 3},
                 {"kim:Silicon_PaiNN", "silicon.safetensors", "silicon", 8, 2},
                 {"kim:Water_PaiNN", "water.safetensors", "water", 24, 3},
                 {"kim:Water_PaiNN", "water.safetensors", "h2o", 3, 0},
                 {"kim:Water_ANI", "ani.safetensors", "water", 24, 3}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        mlff_evaluator_options options = mlff_evaluator_options_default();
        mlff_model *model;
        mlff_evaluator *evaluator;
        options.precision = MLFF_FLOAT64;
        assert_ok(mlff_model_load(cases[k].file, &model));
        assert_ok(mlff_evaluator_create(model, &options, &evaluator));
        mlff_teacher *teacher = open_teacher(cases[k].teacher, 1, 60);
        mlff_system *system = build(cases[k].system, cases[k].n_atoms);
        for (int c = cases[k].n_periodic; c < 3; c++) system->periodic[c] = 0;
        compare(teacher, evaluator, system);
        mlff_system_destroy(system);
        mlff_teacher_destroy(teacher);
        mlff_evaluator_destroy(evaluator);
        mlff_model_destroy(model);
    }
}

// ---- against a formula

static const double bohr = 0.5291772105638411, hartree = 27.211386024367243; // Å, eV; CODATA 2014

static double f(const double *a, const double *b, double cutoff_bohr)
{
    const double x = b[0] - a[0], y = b[1] - a[1], z = b[2] - a[2], c = cutoff_bohr * bohr;
    const double u = 1 - (x * x + y * y + z * z) / (c * c);
    return u > 0 ? u * u * u : 0;
}

// All images with shifts to ±2: those of neighbors within 3.7 Å of an atom of the cell, whose axes are 5.4 Å long.
typedef struct image {
    double position[3];
    int atom, is_self[8]; // of which atoms in the cell it is no image but the atom
} image;

static int make_images(const mlff_system *s, image *images)
{
    int n = 0, most[3];
    for (int c = 0; c < 3; c++) most[c] = s->periodic[c] ? 2 : 0;
    for (int x = -most[0]; x <= most[0]; x++)
        for (int y = -most[1]; y <= most[1]; y++)
            for (int z = -most[2]; z <= most[2]; z++)
                for (int j = 0; j < s->n_atoms; j++, n++) {
                    images[n] = (image){.atom = j};
                    if (x == 0 && y == 0 && z == 0) images[n].is_self[j] = 1;
                    for (int c = 0; c < 3; c++)
                        images[n].position[c] =
                            s->positions[3 * j + c] + x * s->cell[c] + y * s->cell[3 + c] + z * s->cell[6 + c];
                }
    return n;
}

static double formula(const mlff_system *s)
{
    image *images = malloc(125 * 8 * sizeof *images);
    double *density = calloc((size_t)s->n_atoms, sizeof *density), energy = 0;
    const int n = make_images(s, images);
    for (int part = 0; part < 2; part++)
        for (int i = 0; i < s->n_atoms; i++)
            for (int k = 0; k < n; k++) {
                if (images[k].is_self[i]) continue;
                const double *at = &s->positions[3 * i], near = f(at, images[k].position, 7);
                const int j = images[k].atom;
                if (part == 0) {
                    density[i] += near;
                    continue;
                }
                const double weights = (s->species[i] == 1 ? 2 : 1) * (s->species[j] == 1 ? 2 : 1);
                energy += 0.1 * near * density[j] + 0.2 * weights * f(at, images[k].position, 5);
            }
    free(images);
    free(density);
    return energy * hartree;
}

// The derivative by *at, central differences of fourth order.
static double derivative(const mlff_system *system, double *at)
{
    const double before = *at, h = 1e-3;
    double energy[4];
    static const int steps[4] = {-2, -1, 1, 2};
    for (int k = 0; k < 4; k++) {
        *at = before + steps[k] * h;
        energy[k] = formula(system);
    }
    *at = before;
    return (energy[0] - 8 * energy[1] + 8 * energy[2] - energy[3]) / (12 * h);
}

// (1/V) dE/dε of a strain of components a, b
static double strain_derivative(const mlff_system *system, int a, int b, double volume)
{
    static const int steps[4] = {-2, -1, 1, 2};
    double energy[4], *positions = malloc(3 * (size_t)system->n_atoms * sizeof *positions);
    mlff_system strained = *system;
    strained.positions = positions;
    const double h = 1e-4;
    for (int k = 0; k < 4; k++) {
        const double strain = steps[k] * h / 2; // of both (a, b) and (b, a)
        for (int i = 0; i < system->n_atoms; i++)
            for (int c = 0; c < 3; c++)
                positions[3 * i + c] = system->positions[3 * i + c] + (c == a ? strain * system->positions[3 * i + b] : 0) +
                                       (c == b ? strain * system->positions[3 * i + a] : 0);
        for (int i = 0; i < 3; i++)
            for (int c = 0; c < 3; c++)
                strained.cell[3 * i + c] = system->cell[3 * i + c] + (c == a ? strain * system->cell[3 * i + b] : 0) +
                                           (c == b ? strain * system->cell[3 * i + a] : 0);
        energy[k] = formula(&strained);
    }
    free(positions);
    return (energy[0] - 8 * energy[1] + 8 * energy[2] - energy[3]) / (12 * h) / volume;
}

static void test_stub_model(void **state)
{
    (void)state;
    static const int first[6] = {0, 1, 2, 1, 0, 0}, second[6] = {0, 1, 2, 2, 2, 1};
    mlff_teacher *teacher = open_teacher("kim:Stub_Model", 1, 60);
    for (int n_periodic = 0; n_periodic <= 3; n_periodic++) {
        mlff_system *system = build("silicon", 8);
        mlff_label label;
        const mlff_system *const systems[] = {system};
        for (int c = n_periodic; c < 3; c++) system->periodic[c] = 0;
        system->species[1] = system->species[6] = 1;
        system->cell[3] = 0.7, system->cell[7] = -0.4;                           // triclinic; the volume stays
        for (int c = 0; c < 3; c++) system->positions[9 + c] += system->cell[c]; // outside of the cell
        assert_ok(mlff_teacher_compute(teacher, systems, 1, &label));
        if (label.status != MLFF_OK) fail_msg("%s", label.problem);
        const double energy = formula(system), volume = system->cell[0] * system->cell[4] * system->cell[8];
        assert_true(energy > 1);
        assert_close(label.energy, energy, 1e-10 * energy, "energy");
        // 1e-7 eV/Å: h⁴ of the differences; a jump of f's third derivative at the cutoff
        for (int k = 0; k < 24; k++) assert_close(label.forces[k], -derivative(system, &system->positions[k]), 1e-7, "force");
        assert_int_equal(isnan(label.stress[0]), n_periodic < 3);
        for (int k = 0; n_periodic == 3 && k < 6; k++)
            assert_close(label.stress[k], strain_derivative(system, first[k], second[k], volume), 1e-8, "stress");
        mlff_label_clear(&label);
        mlff_system_destroy(system);
    }
    mlff_teacher_destroy(teacher);
}

// ---- failures

static void test_failures(void **state)
{
    (void)state;
    enum { N = 6 };
    static const int element[N] = {1, 10, 36, 54, 26, 14};
    static const char *const problem[N] = {NULL, "no parameters of neon", "signal 11", "no answer within", "does not know Fe",
                                           NULL};
    mlff_system *systems[N];
    mlff_label labels[N], alone;
    for (int k = 0; k < N; k++) {
        systems[k] = build("silicon", 8);
        systems[k]->species[2] = element[k];
    }
    mlff_teacher *teacher = open_teacher("kim:Stub_Model", 2, 6); // s: on a busy machine its process does not start in 2
    assert_ok(mlff_teacher_compute(teacher, (const mlff_system *const *)systems, N, labels));
    for (int k = 0; k < N; k++) {
        if (!problem[k] && labels[k].status != MLFF_OK) fail_msg("%d: %s", k, labels[k].problem);
        if (problem[k] && !strstr(labels[k].problem, problem[k])) fail_msg("%d: '%s'", k, labels[k].problem);
        if (problem[k]) printf("refused: %s\n", labels[k].problem);
    }
    assert_ok(mlff_teacher_compute(teacher, (const mlff_system *const *)systems + 5, 1, &alone)); // by another process
    assert_int_equal(alone.status, MLFF_OK);
    assert_true(alone.energy == labels[5].energy);
    assert_memory_equal(alone.forces, labels[5].forces, 24 * sizeof(double));
    mlff_label_clear(&alone);
    for (int k = 0; k < N; k++) {
        mlff_label_clear(&labels[k]);
        mlff_system_destroy(systems[k]);
    }
    mlff_teacher_destroy(teacher);
}

static void test_names(void **state)
{
    (void)state;
    mlff_teacher *teacher;
    mlff_teacher_info info;
    assert_int_equal(mlff_teacher_open("kim:Absent_Model", NULL, &teacher), MLFF_ERR_USAGE);
    assert_non_null(strstr(mlff_last_error(), "no such KIM model is installed"));
    assert_int_equal(mlff_teacher_open("kim:MLFF_Distiller_Driver", NULL, &teacher), MLFF_ERR_UNSUPPORTED);
    assert_non_null(strstr(mlff_last_error(), "a portable model is needed"));
    assert_int_equal(mlff_teacher_open("kim:", NULL, &teacher), MLFF_ERR_USAGE);
    teacher = open_teacher("kim:Stub_Model", 1, 60);
    mlff_teacher_info_get(teacher, &info);
    static const unsigned char elements[] = {1, 10, 14, 36, 54};
    assert_int_equal(info.n_elements, 5);
    assert_memory_equal(info.elements, elements, 5);
    assert_int_equal(strlen(info.hash), 64);
    assert_true(info.has_stress && strstr(info.description, "7.408 Å")); // 14 Bohr
    mlff_teacher_destroy(teacher);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_own_models), cmocka_unit_test(test_stub_model),
                                       cmocka_unit_test(test_failures), cmocka_unit_test(test_names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
