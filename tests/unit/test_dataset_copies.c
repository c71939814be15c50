// SPDX-License-Identifier: MIT
// Copies of training structures among others: found however they are moved, and near structures that are none.
#include "support.h"

#include "mlff_train.h"
#include "train/data/dataset.h"

// Copies are found moved, turned, mirrored, with atoms in another order, across a cell's face and rounded; near structures are none.
static void test_copies(void **state)
{
    (void)state;
    static const char *const names[] = {"ethanol", "silicon"};
    for (int k = 0; k < 2; k++) {
        mlff_dataset *of, *data;
        mlff_system *system;
        int64_t n, indices[22];
        assert_ok(mlff_dataset_create(&of));
        assert_ok(mlff_dataset_create(&data));
        assert_ok(mlff_system_build(names[k], k == 1 ? 64 : 0, 0, &system));
        const int atoms = system->n_atoms;
        for (int frame = 0; frame < 20; frame++) {
            for (int i = 0; i < 3 * atoms; i++)
                system->positions[i] += 0.03 * base_random_normal(4, (uint64_t)frame, (uint64_t)i);
            system->label_energy = 0;
            assert_ok(mlff_dataset_add(of, system, NULL));
            if (frame == 7 || frame == 12) { // turned about (1, 1, 1), moved, mirrored, reversed
                mlff_system *copy;
                assert_ok(mlff_system_copy(system, &copy));
                for (int i = 0; i < atoms; i++) {
                    copy->species[i] = system->species[atoms - 1 - i];
                    for (int c = 0; c < 3; c++) {
                        const double x = system->positions[3 * (atoms - 1 - i) + (c + 1) % 3] + 1.7;
                        copy->positions[3 * i + c] = (frame == 12 ? -1 : 1) * 1e-5 * round(1e5 * x);
                    }
                }
                if (system->periodic[0]) copy->positions[0] += copy->cell[0];
                assert_ok(mlff_dataset_add(data, copy, NULL));
                mlff_system_destroy(copy);
            }
            system->positions[0] += 0.003; // an atom after some 0.5 fs
            assert_ok(mlff_dataset_add(data, system, NULL));
            system->positions[0] -= 0.003;
        }
        assert_ok(mlff_dataset_copies(data, of, &n, indices));
        assert_int_equal(n, 2);
        for (int i = 0; i < 22; i++) assert_int_equal(indices[i], i == 7 ? 7 : i == 13 ? 12 : -1);
        assert_ok(mlff_dataset_copies(of, of, &n, NULL));
        assert_int_equal(n, 20);
        assert_int_equal(mlff_dataset_copies(of, NULL, &n, NULL), MLFF_ERR_USAGE);
        mlff_system_destroy(system);
        mlff_dataset_destroy(of);
        mlff_dataset_destroy(data);
    }
}

// Independent displacements of a crystal, where means over atoms change in second order only, and one displaced atom.
static void test_displaced_crystals(void **state)
{
    (void)state;
    static const double lengths[] = {0.01, 0.05, 0.08};
    for (int k = 0; k < 3; k++) {
        mlff_dataset *of, *data;
        mlff_system *system, *moved;
        int64_t n;
        assert_ok(mlff_dataset_create(&of));
        assert_ok(mlff_dataset_create(&data));
        assert_ok(mlff_system_build("silicon", 216, 0, &system));
        for (int frame = 0; frame < 40; frame++) {
            assert_ok(mlff_system_copy(system, &moved));
            for (int i = 0; i < 3 * moved->n_atoms; i++)
                moved->positions[i] += lengths[k] * base_random_normal(4, (uint64_t)frame, (uint64_t)i);
            moved->label_energy = 0;
            assert_ok(mlff_dataset_add(frame < 20 ? of : data, moved, NULL));
            moved->positions[5] += 0.01;
            if (frame < 20) assert_ok(mlff_dataset_add(data, moved, NULL));
            mlff_system_destroy(moved);
        }
        assert_ok(mlff_dataset_copies(data, of, &n, NULL));
        assert_int_equal(n, 0);
        assert_ok(mlff_dataset_copies(of, of, &n, NULL));
        assert_int_equal(n, 20);
        mlff_system_destroy(system);
        mlff_dataset_destroy(of);
        mlff_dataset_destroy(data);
    }
}

// Two atoms in a cell have one nearest distance, in which many displaced ones agree; copies are found also across faces and turned.
static void test_copies_of_two_atoms(void **state)
{
    (void)state;
    static const double cell[9] = {0, 2.715, 2.715, 2.715, 0, 2.715, 2.715, 2.715, 0}; // of diamond
    mlff_dataset *of, *data, *turned;
    mlff_system *system;
    int64_t n;
    assert_ok(mlff_dataset_create(&of));
    assert_ok(mlff_dataset_create(&data));
    assert_ok(mlff_dataset_create(&turned));
    assert_ok(mlff_system_create(2, &system));
    memcpy(system->cell, cell, sizeof cell);
    for (int k = 0; k < 3; k++) system->periodic[k] = 1;
    system->species[0] = system->species[1] = 14;
    system->label_energy = 0;
    for (int frame = 0; frame < 1100; frame++) {
        double *second = system->positions + 3;
        for (int c = 0; c < 3; c++) second[c] = 1.3575 + 0.05 * base_random_normal(4, (uint64_t)frame, (uint64_t)c);
        assert_ok(mlff_dataset_add(frame < 1000 ? of : data, system, NULL));
        if (frame >= 1000) continue;
        const double before[3] = {second[0], second[1], second[2]};
        for (int c = 0; c < 3; c++) // turned about (1, 1, 1), which the lattice allows, mirrored, in another cell, rounded
            second[c] = 1e-5 * round(-1e5 * (before[(c + 1) % 3] + cell[3 * (frame % 3) + c] - cell[c]));
        assert_ok(mlff_dataset_add(turned, system, NULL));
    }
    assert_ok(mlff_dataset_copies(data, of, &n, NULL));
    assert_int_equal(n, 0);
    assert_ok(mlff_dataset_copies(turned, of, &n, NULL));
    assert_int_equal(n, 1000);
    mlff_system_destroy(system);
    mlff_dataset_destroy(of);
    mlff_dataset_destroy(data);
    mlff_dataset_destroy(turned);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_displaced_crystals),
        cmocka_unit_test(test_copies_of_two_atoms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
