// SPDX-License-Identifier: MIT
// test_dataset_units.c: a warning of forces that are too large for their energies, planted in harmonic structures of 300 and 1000 K, relaxed and
// turned ones; rates of false alarms on sampled labels are in bench/results/cpu-forces-and-spread.json.
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_planted_units)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
