// SPDX-License-Identifier: MIT
// test_dataset_units.c: a warning of forces that are too large for their energies, planted in harmonic structures of 300 and 1000 K, relaxed and
// turned ones; rates of false alarms on sampled labels are in bench/results/cpu-forces-and-spread.json. And of single wrong energies.
#include <math.h>
#include <unistd.h>

#include "base/random.h"
#include "mlff_train.h"
#include "support.h"
#include "unit/test_folder.h"

#define SPRING 30.0 // eV/Å²
enum { FRAMES = 40 };

typedef struct plant {
    const char *name;
    double kelvin, unit; // forces are multiplied by the unit
    int n_different;     // the others are copies with the same energy
    bool is_told;
} plant;

static char warned[512];

static void keep_warning(void *context, const char *text)
{
    (void)context;
    snprintf(warned, sizeof warned, "%s", text);
}

static void write_plant(const char *path, const plant *p, uint64_t seed)
{
    mlff_writer *writer;
    mlff_system *rest, *moved;
    double forces[27];
    assert_ok(mlff_system_build("ethanol", 0, 0, &rest));
    assert_ok(mlff_writer_open(path, NULL, 0, &writer));
    for (uint64_t f = 0; f < FRAMES; f++) {
        double energy = -100;
        assert_ok(mlff_system_copy(rest, &moved));
        for (uint64_t k = 0; k < 27; k++) {
            const double u = sqrt(8.617333e-5 * p->kelvin / SPRING) * base_random_normal(seed, f % (uint64_t)p->n_different, k);
            moved->positions[k] += u + 10 * (double)f * (k % 3 == 0); // frames are not near each other
            forces[k] = -SPRING * u * p->unit;
            energy += 0.5 * SPRING * u * u;
        }
        assert_ok(mlff_writer_write(writer, moved,
                                    &(mlff_frame_results){.energy = energy, .forces = forces, .step = -1, .time_fs = NAN}));
        mlff_system_destroy(moved);
    }
    assert_ok(mlff_writer_close(writer));
    mlff_system_destroy(rest);
}

static void test_planted_units(void **state)
{
    (void)state;
    static const plant plants[] = {
        {"300 K", 300, 1, FRAMES, false},
        {"1000 K", 1000, 1, FRAMES, false},
        {"relaxed", 0.1, 1, FRAMES, false},
        {"turned", 300, 1, 1, false},
        {"few", 300, 23.0605, 19, false},
        {"300 K, kcal/mol/Å", 300, 23.0605, FRAMES, true},
        {"1000 K, kcal/mol/Å", 1000, 23.0605, FRAMES, true},
    };
    const char *path = in_folder("planted.extxyz");
    mlff_warning_handler_set(keep_warning, NULL);
    for (size_t k = 0; k < sizeof plants / sizeof *plants; k++)
        for (uint64_t seed = 0; seed < 20; seed++) {
            mlff_dataset *data;
            write_plant(path, &plants[k], seed);
            assert_ok(mlff_dataset_create(&data));
            warned[0] = 0;
            assert_ok(mlff_dataset_read(data, path));
            if ((warned[0] != 0) != plants[k].is_told) fail_msg("%s, seed %d: '%s'", plants[k].name, (int)seed, warned);
            if (warned[0]) assert_non_null(strstr(warned, "planted.extxyz: its forces seem too large for its energies: "));
            mlff_dataset_destroy(data);
        }
    // A second file is judged by itself, beside a good one.
    mlff_dataset *data;
    assert_ok(mlff_dataset_create(&data));
    for (size_t k = 0; k < 2; k++) {
        write_plant(path, &plants[k ? 5 : 0], 1);
        warned[0] = 0;
        assert_ok(mlff_dataset_read(data, path));
        assert_true((warned[0] != 0) == (k == 1));
    }
    mlff_warning_handler_set(NULL, NULL);
    mlff_dataset_destroy(data);
    assert_int_equal(unlink(path), 0);
}

// ---- single energies

typedef struct far_plant {
    const char *name;
    int n, n_far;            // structures, and how many of them are changed
    double added, apart;     // eV; Å by which the last atom is moved away, with its force gone
    double pressed;          // Å by which the first bond is shorter, with the forces and the energy of a spring
    bool is_zero, no_forces; // the energy is 0; all forces are 0
    mlff_status status;
    const char *told; // in the warning or the error; NULL: none
} far_plant;

static void add_far(mlff_dataset *data, const mlff_system *rest, const far_plant *p, int f, uint64_t seed)
{
    mlff_system *moved;
    double forces[27], energy = -100;
    const bool is_far = f >= 7 && f < 7 + p->n_far;
    assert_ok(mlff_system_copy(rest, &moved));
    for (uint64_t k = 0; k < 27; k++) {
        double u = sqrt(8.617333e-5 * 300 / SPRING) * base_random_normal(seed, (uint64_t)f, k);
        if (is_far && k < 3) u -= p->pressed * (rest->positions[k] - rest->positions[3 + k]) / 1.5;
        moved->positions[k] += u + 10 * (double)f * (k % 3 == 0); // frames are not near each other
        forces[k] = -SPRING * u;
        energy += 0.5 * SPRING * u * u;
    }
    if (is_far && p->apart > 0) moved->positions[24] += p->apart, forces[24] = forces[25] = forces[26] = 0;
    if (is_far) energy = p->is_zero ? 0 : energy + p->added;
    for (int k = 0; is_far && p->no_forces && k < 27; k++) forces[k] = 0;
    assert_ok(mlff_dataset_add(data, moved, &(mlff_labels){.energy = energy, .forces = forces, .weight = 1}));
    mlff_system_destroy(moved);
}

static void test_single_energies(void **state)
{
    (void)state;
    static const far_plant plants[] = {
        {.name = "right", .n = FRAMES},
        {.name = "high", .n = FRAMES, .n_far = 1, .added = 8, .told = "structure 7: its energy, -91.6"},
        {.name = "low", .n = FRAMES, .n_far = 3, .added = -8, .told = "leave such structures out (3)"},
        {.name = "isomer", .n = FRAMES, .n_far = 1, .added = 2},
        {.name = "few", .n = 19, .n_far = 1, .added = 8},
        {.name = "another kind", .n = FRAMES, .n_far = 5, .added = 8},
        {.name = "dissociated", .n = FRAMES, .n_far = 2, .added = 5, .apart = 6},
        {.name = "pressed", .n = FRAMES, .n_far = 2, .pressed = 0.5},
        {.name = "zero",
         .n = FRAMES,
         .n_far = 2,
         .is_zero = true,
         .status = MLFF_ERR_VALUE,
         .told = "structure 7: its energy is 0"},
        {.name = "all zero",
         .n = FRAMES,
         .n_far = 2,
         .is_zero = true,
         .no_forces = true,
         .told = "structure 7: its energy, 0 eV"},
    };
    mlff_system *rest;
    assert_ok(mlff_system_build("ethanol", 0, 0, &rest));
    mlff_warning_handler_set(keep_warning, NULL);
    for (size_t k = 0; k < sizeof plants / sizeof *plants; k++) {
        const far_plant *p = &plants[k];
        mlff_dataset *data;
        assert_ok(mlff_dataset_create(&data));
        for (int f = 0; f < p->n; f++) add_far(data, rest, p, f, k);
        warned[0] = 0;
        const mlff_status status = mlff_dataset_check(data);
        const char *text = status == MLFF_OK ? warned : mlff_last_error();
        if (status != p->status || !strstr(text, p->told ? p->told : "") || (!p->told && text[0]))
            fail_msg("%s: status %d, '%s'", p->name, (int)status, text);
        mlff_dataset_destroy(data);
    }
    mlff_warning_handler_set(NULL, NULL);
    mlff_system_destroy(rest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_planted_units), cmocka_unit_test(test_single_energies)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
