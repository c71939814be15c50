// SPDX-License-Identifier: MIT
// test_dataset_parts.c: parts of a dataset: elements that stay in training, some of many structures, structures that the check refuses.
#include "support.h"

#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

#include "train/data/dataset.h"
#include "train/data/mapped_file.h"

static mlff_system *molecule(const char *name)
{
    mlff_system *system;
    assert_ok(mlff_system_build(name, 0, 0, &system));
    return system;
}

// An element that one group alone has stays in training, whatever the seed; where each group has one of its own, some group is held back.
static void test_split_keeps_elements(void **state)
{
    (void)state;
    for (int n_methanes = 1; n_methanes <= 20; n_methanes += 19) {
        mlff_dataset *data;
        int n_held_out = 0;
        assert_ok(mlff_dataset_create(&data));
        for (int k = 0; k < 20; k++) {
            mlff_system *system = molecule(k < n_methanes ? "methane" : "h2o");
            system->label_energy = k;
            system->group = k;
            if (n_methanes == 20) system->species[0] = 21 + k;
            assert_ok(mlff_dataset_add(data, system, NULL));
            mlff_system_destroy(system);
        }
        for (uint64_t seed = 0; seed < 50; seed++) {
            mlff_dataset *parts[2];
            assert_ok(mlff_dataset_split(data, 0.1, seed, &parts[0], &parts[1]));
            assert_int_equal(mlff_dataset_size(parts[1]), n_methanes == 1 ? 2 : 1);
            for (size_t f = 0; f < parts[1]->n_frames; f++) n_held_out += parts[1]->frames[f].system->n_atoms == 5;
            mlff_dataset_destroy(parts[0]);
            mlff_dataset_destroy(parts[1]);
        }
        assert_int_equal(n_held_out, n_methanes == 1 ? 0 : 50);
        mlff_dataset_destroy(data);
    }
}

// Adds n molecules as group `group` of this type, whose energy is the group.
static void add_molecules(mlff_dataset *data, const char *name, int n, int group, const char *type)
{
    for (int k = 0; k < n; k++) {
        mlff_system *system = molecule(name);
        system->label_energy = group;
        system->group = group;
        snprintf(system->config_type, sizeof system->config_type, "%s", type);
        assert_ok(mlff_dataset_add(data, system, NULL));
        mlff_system_destroy(system);
    }
}

// Each type is held out in its share, though a trajectory is more than that; of trajectories alone not only the one that is short.
static void test_split_by_type(void **state)
{
    (void)state;
    static const char *const types[] = {"md 1000 K", "md 300 K", "md 548 K"};
    for (uint64_t seed = 0; seed < 20; seed++) {
        mlff_dataset *typed, *plain, *parts[2];
        int n[3] = {0}, n_others = 0;
        assert_ok(mlff_dataset_create(&typed));
        assert_ok(mlff_dataset_create(&plain));
        for (int g = 0; g < 24; g++) add_molecules(typed, "h2o", 30, g, types[g % 3]);
        for (int g = 24; g < 624; g++) add_molecules(typed, "h2o", 1, g, "modes 300 K");
        assert_ok(mlff_dataset_split(typed, 0.1, seed, &parts[0], &parts[1]));
        for (size_t f = 0; f < parts[1]->n_frames; f++) {
            const int group = (int)parts[1]->frames[f].system->group;
            if (group < 24)
                n[group % 3]++;
            else
                n_others++;
        }
        if (!(n[0] == 30 && n[1] == 30 && n[2] <= 30)) fail_msg("%d, %d and %d of 240 each", n[0], n[1], n[2]);
        assert_true(n_others >= 40 && n[0] + n[1] + n[2] + n_others >= 131 && parts[1]->n_frames <= 133);
        for (int p = 0; p < 2; p++) mlff_dataset_destroy(parts[p]);
        for (int g = 0; g < 9; g++) add_molecules(plain, "h2o", g < 8 ? 50 : 1, g, "");
        assert_ok(mlff_dataset_split(plain, 0.1, seed, &parts[0], &parts[1]));
        assert_true(parts[1]->n_frames >= 50 && parts[1]->n_frames <= 51);
        for (int p = 0; p < 2; p++) mlff_dataset_destroy(parts[p]);
        mlff_dataset_destroy(typed);
        mlff_dataset_destroy(plain);
    }
}

// Frames of dynamics of each molecule, which has this number of atoms.
static void count_dynamics(const mlff_dataset *data, const int n_atoms[3], int n[3])
{
    for (int m = 0; m < 3; m++) n[m] = 0;
    for (size_t f = 0; f < data->n_frames; f++)
        for (int m = 0; m < 3; m++) {
            const mlff_system *system = data->frames[f].system;
            n[m] += system->n_atoms == n_atoms[m] && strncmp(system->config_type, "md ", 3) == 0;
        }
}

// Of three molecules with three trajectories each, of which one's are short, each is in each part. Of many with two each, a tenth is.
static void test_split_by_composition(void **state)
{
    (void)state;
    static const char *const types[] = {"md 1000 K", "md 300 K", "md 548 K"}, *const names[] = {"ethanol", "h2o", "methane"};
    static const int lengths[3] = {45, 3, 30}, n_atoms[3] = {9, 3, 5};
    for (uint64_t seed = 0; seed < 20; seed++) {
        mlff_dataset *few, *many, *parts[2], *rest[2];
        int n[3], held_out[3];
        assert_ok(mlff_dataset_create(&few));
        assert_ok(mlff_dataset_create(&many));
        for (int g = 0; g < 9; g++) add_molecules(few, names[g / 3], lengths[g / 3], g, types[g % 3]);
        for (int g = 9; g < 759; g++) add_molecules(few, names[g % 3], 1, g, "modes 300 K");
        assert_ok(mlff_dataset_split(few, 0.1, seed, &parts[0], &parts[1]));
        assert_ok(mlff_dataset_split(parts[0], 0.1, seed + 1, &rest[0], &rest[1]));
        count_dynamics(parts[1], n_atoms, n);
        for (int m = 0; m < 3; m++) assert_int_equal(n[m], lengths[m]);
        count_dynamics(rest[0], n_atoms, n);
        count_dynamics(rest[1], n_atoms, held_out);
        for (int m = 0; m < 3; m++) assert_true(n[m] == lengths[m] && held_out[m] == lengths[m]);
        assert_true(mlff_dataset_size(parts[1]) < 2 * 99);
        for (int p = 0; p < 2; p++) mlff_dataset_destroy(parts[p]), mlff_dataset_destroy(rest[p]);
        for (int g = 0; g < 200; g++) {
            mlff_system *system = molecule("methane");
            system->species[0] = 1 + g / 2 % 50;
            system->species[1] = 1 + g / 100;
            system->group = system->label_energy = g;
            for (int k = 0; k < 4; k++) assert_ok(mlff_dataset_add(many, system, NULL));
            mlff_system_destroy(system);
        }
        assert_ok(mlff_dataset_split(many, 0.1, seed, &parts[0], &parts[1]));
        assert_int_equal(mlff_dataset_size(parts[1]), 80);
        for (int p = 0; p < 2; p++) mlff_dataset_destroy(parts[p]);
        mlff_dataset_destroy(few);
        mlff_dataset_destroy(many);
    }
}

// An atom alone, whose energy no other structure tells, is never held out; an atom in a cell is a structure as others.
static void test_split_keeps_atoms(void **state)
{
    (void)state;
    mlff_dataset *data;
    int n_cells = 0;
    assert_ok(mlff_dataset_create(&data));
    for (int k = 0; k < 40; k++) {
        mlff_system *system;
        assert_ok(mlff_system_create(1, &system));
        system->species[0] = 13;
        system->label_energy = k;
        system->group = k;
        for (int c = 0; k < 20 && c < 3; c++) system->cell[4 * c] = 4, system->periodic[c] = 1;
        assert_ok(mlff_dataset_add(data, system, NULL));
        mlff_system_destroy(system);
    }
    for (uint64_t seed = 0; seed < 20; seed++) {
        mlff_dataset *parts[2];
        assert_ok(mlff_dataset_split(data, 0.1, seed, &parts[0], &parts[1]));
        for (size_t f = 0; f < parts[1]->n_frames; f++) {
            assert_true(parts[1]->frames[f].system->periodic[0]);
            n_cells++;
        }
        for (int p = 0; p < 2; p++) mlff_dataset_destroy(parts[p]);
    }
    assert_int_equal(n_cells, 20 * 4);
    mlff_dataset_destroy(data);
}

// Some of many structures, the same ones for the same seed, in their order, a probe as a whole.
static void test_choice(void **state)
{
    (void)state;
    mlff_dataset *data[3];
    for (int d = 0; d < 3; d++) {
        assert_ok(mlff_dataset_create(&data[d]));
        for (int k = 0; k < 100; k++) {
            mlff_system *system = molecule("h2o");
            system->label_energy = k;
            assert_ok(mlff_dataset_add(data[d], system, NULL));
            if (k % 4 == 1) data[d]->frames[k - 1].probe_step = 0.01; // frames 0 and 1, 4 and 5, …
            mlff_system_destroy(system);
        }
        assert_ok(dataset_choose(data[d], 31, d == 2 ? 9 : 8));
        assert_true(data[d]->n_frames >= 30 && data[d]->n_frames <= 31);
        double before = -1;
        for (size_t f = 0; f < data[d]->n_frames; f++) {
            const double number = data[d]->frames[f].system->label_energy;
            assert_true(number > before);
            if (fmod(number, 4) == 1) assert_true(before == number - 1); // its other half
            if (before >= 0 && fmod(before, 4) == 0) assert_true(number == before + 1);
            before = number;
        }
    }
    int n_other = 0;
    for (size_t f = 0; f < 30; f++) {
        assert_true(data[0]->frames[f].system->label_energy == data[1]->frames[f].system->label_energy);
        n_other += data[0]->frames[f].system->label_energy != data[2]->frames[f].system->label_energy;
    }
    assert_true(n_other > 10);
    for (int d = 0; d < 3; d++) mlff_dataset_destroy(data[d]);
}

// Counted are those that the check refuses.
static void test_outliers(void **state)
{
    (void)state;
    mlff_dataset *data;
    int64_t n, first;
    assert_ok(mlff_dataset_create(&data));
    for (int k = 0; k < 60; k++) {
        mlff_system *system = molecule("h2o");
        double forces[9] = {0.1, 0, 0, -0.1};
        if (k == 41) forces[0] = 1e9;
        system->positions[0] += 2 * k; // no neighbors of each other
        const mlff_labels labels = {.energy = k == 20 ? 1e20 : -76 + 0.01 * k, .forces = forces, .weight = 1};
        assert_ok(mlff_dataset_add(data, system, &labels));
        mlff_system_destroy(system);
    }
    assert_ok(mlff_dataset_outliers(data, &n, &first));
    assert_true(n == 2 && first == 20);
    assert_refused(mlff_dataset_check(data), MLFF_ERR_VALUE, "structure 20");
    data->frames[20].system->label_energy = -76;
    assert_ok(mlff_dataset_outliers(data, &n, &first));
    assert_true(n == 1 && first == 41);
    assert_refused(mlff_dataset_check(data), MLFF_ERR_VALUE, "structure 41");
    data->frames[41].system->label_forces[0] = 0.1;
    assert_ok(mlff_dataset_outliers(data, &n, &first));
    assert_true(n == 0 && first == -1);
    assert_ok(mlff_dataset_check(data));
    for (int k = 0; k < 60; k++) data->frames[k].system->label_energy = NAN;
    n = first = -7;
    assert_int_equal(mlff_dataset_outliers(data, &n, &first), MLFF_ERR_VALUE);
    assert_true(n == -7 && first == -7); // a failure leaves what is the caller's
    mlff_dataset_destroy(data);
}

// A model is far off where it diverges, also where it has no number, and where labels are; the others stay in their order, a probe as a whole.
static void test_far(void **state)
{
    (void)state;
    const mlff_setting settings[] = {{"n_features", "8"}, {"n_layers", "1"}, {"elements", "H,O"}, {NULL, NULL}};
    mlff_evaluator_options options = mlff_evaluator_options_default();
    mlff_model *model;
    mlff_dataset *data;
    int64_t n;
    assert_ok(mlff_model_create("painn", settings, &model));
    assert_ok(mlff_dataset_create(&data));
    for (int k = 0; k < 600; k++) { // more than one call
        mlff_system *system = molecule("h2o");
        double forces[9] = {0};
        if (k % 100 == 41) forces[4] = 1e4;
        assert_ok(mlff_dataset_add(data, system, &(mlff_labels){.energy = k, .forces = k == 500 ? NULL : forces, .weight = 1}));
        mlff_system_destroy(system);
    }
    data->frames[40].probe_step = 0.01;           // with 41
    data->frames[300].system->positions[0] = NAN; // the call of these 256 is refused
    options.n_threads = 1;
    assert_refused(mlff_dataset_remove_far(data, model, 0, &options, &n), MLFF_ERR_USAGE, "above 0");
    assert_refused(mlff_dataset_remove_far(data, model, NAN, &options, &n), MLFF_ERR_USAGE, "above 0");
    assert_ok(mlff_dataset_remove_far(data, model, 1e3, &options, &n));
    assert_int_equal(n, 6 + 1 + 1);
    assert_int_equal(mlff_dataset_size(data), 592);
    int before = -1;
    for (size_t f = 0; f < data->n_frames; f++) {
        const int k = (int)data->frames[f].system->label_energy;
        assert_true(k > before && k % 100 != 41 && k != 40 && k != 300);
        before = k;
    }
    assert_ok(mlff_dataset_remove_far(data, model, 1e3, NULL, NULL));
    assert_int_equal(mlff_dataset_size(data), 592);
    mlff_dataset_destroy(data);
    mlff_model_destroy(model);
}

// Closed twice, as where repeated calls of a teacher end before the run does: memory that came to lie there meanwhile stays.
static void test_map_closed_twice(void **state)
{
    (void)state;
    char name[] = "/tmp/mlff_map_XXXXXX";
    const int descriptor = mkstemp(name);
    mapped_file map;
    assert_true(descriptor >= 0 && write(descriptor, "abc", 3) == 3);
    close(descriptor);
    assert_ok(mapped_file_open(name, &map));
    assert_true(map.length == 3 && memcmp(map.bytes, "abc", 3) == 0);
    void *before = (void *)(uintptr_t)map.bytes;
    mapped_file_close(&map);
    char *other = mmap(before, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); // the same place, if it is free
    assert_true(other != MAP_FAILED);
    mapped_file_close(&map);
    other[0] = 'x';
    assert_int_equal(munmap(other, 4096), 0);
    unlink(name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_split_keeps_elements),
                                       cmocka_unit_test(test_split_by_type),
                                       cmocka_unit_test(test_split_by_composition),
                                       cmocka_unit_test(test_split_keeps_atoms),
                                       cmocka_unit_test(test_choice),
                                       cmocka_unit_test(test_outliers),
                                       cmocka_unit_test(test_far),
                                       cmocka_unit_test(test_map_closed_twice)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
