// SPDX-License-Identifier: MIT
// test_images.c: the nearest image against a search of all that could be nearer, in random skewed cells; and copies
// found by it.
#include "atoms/atoms.h"
#include "atoms/images.h"
#include "mlff_train.h"
#include "support.h"

static double uniform(uint64_t seed, uint64_t *at, double low, double high)
{
    return low + (high - low) * base_random_uniform(seed, 0, (*at)++);
}

static double square(const double v[3])
{
    return v[0] * v[0] + v[1] * v[1] + v[2] * v[2];
}

// A cell of some 5 Å with random periodic axes, `compact`, and in the system one of the same lattice with skewed vectors. Every third is a
// cube, where many images have one length.
static void make_cells(uint64_t seed, uint64_t *at, double compact[9], mlff_system *system)
{
    for (int axis = 0; axis < 3; axis++) system->periodic[axis] = seed % 4 ? 1 : uniform(seed, at, 0, 1) < 0.6;
    do
        for (int k = 0; k < 9; k++) system->cell[k] = seed % 3 ? uniform(seed, at, -6, 6) : 5.0 * (k % 4 == 0);
    while (mlff_system_volume(system) < 100);
    memcpy(compact, system->cell, sizeof system->cell);
    for (int round_trip = 0; round_trip < 2; round_trip++)
        for (int axis = 0; axis < 3; axis++) {
            const int other = (axis + 1 + round_trip) % 3;
            const double cells = system->periodic[axis] && system->periodic[other] ? round(uniform(seed, at, -3, 3)) : 0;
            for (int c = 0; c < 3; c++) system->cell[3 * axis + c] += cells * system->cell[3 * other + c];
        }
}

static void round_off(const double cell[9], const double inverse[9], const unsigned char *periodic, double v[3])
{
    double cells[3];
    for (int k = 0; k < 3; k++)
        cells[k] = periodic[k] ? round(v[0] * inverse[k] + v[1] * inverse[3 + k] + v[2] * inverse[6 + k]) : 0;
    for (int c = 0; c < 3; c++) v[c] -= cells[0] * cell[c] + cells[1] * cell[3 + c] + cells[2] * cell[6 + c];
}

// The square of the nearest image. An image that is shorter than r differs from it by at most 2 |r|, so by at most 2 |r| times the length
// of column k of the inverse along axis k.
static double search(const double cell[9], const unsigned char *periodic, const double v[3])
{
    double inverse[9], r[3] = {v[0], v[1], v[2]}, least;
    int most[3];
    assert_true(atoms_invert(cell, inverse));
    round_off(cell, inverse, periodic, r);
    least = square(r);
    for (int k = 0; k < 3; k++) {
        const double column[3] = {inverse[k], inverse[3 + k], inverse[6 + k]};
        most[k] = periodic[k] ? (int)(2 * sqrt(least * square(column)) + 1e-9) : 0;
    }
    for (int i = -most[0]; i <= most[0]; i++)
        for (int j = -most[1]; j <= most[1]; j++)
            for (int k = -most[2]; k <= most[2]; k++) {
                double image[3];
                for (int c = 0; c < 3; c++) image[c] = r[c] + i * cell[c] + j * cell[3 + c] + k * cell[6 + c];
                least = fmin(least, square(image));
            }
    return least;
}

static void nearest_of_all(void **state)
{
    (void)state;
    enum { CELLS = 400, VECTORS = 8 };
    int n_rounding_fails = 0;
    mlff_system *system;
    assert_ok(mlff_system_create(1, &system));
    for (uint64_t seed = 0; seed < CELLS; seed++) {
        uint64_t at = 0;
        double compact[9], inverse[9];
        atoms_images images;
        make_cells(seed, &at, compact, system);
        assert_true(atoms_invert(system->cell, inverse));
        atoms_images_make(system, &images);
        for (int n = 0; n < VECTORS; n++) {
            double v[3], nearest[3], difference[3];
            for (int c = 0; c < 3; c++) v[c] = nearest[c] = uniform(seed, &at, -20, 20);
            atoms_nearest_image(&images, nearest);
            const double expected = search(compact, system->periodic, v);
            if (!(fabs(square(nearest) - expected) <= 1e-6)) // Å²: images within 1e-9 of one length are not told apart
                fail_msg("cell %d: %.12g Å², the nearest image has %.12g", (int)seed, square(nearest), expected);
            for (int c = 0; c < 3; c++) difference[c] = v[c] - nearest[c];
            round_off(system->cell, inverse, system->periodic, difference);
            assert_true(square(difference) < 1e-16); // it is an image
            round_off(system->cell, inverse, system->periodic, v);
            n_rounding_fails += square(v) > expected + 0.01;
        }
    }
    assert_true(n_rounding_fails > CELLS * VECTORS / 4); // the cells are skewed enough to matter
    mlff_system_destroy(system);
}

static void without_axes(void **state)
{
    (void)state;
    mlff_system *system;
    atoms_images images;
    double v[3] = {1e3, -2, 7};
    assert_ok(mlff_system_build("h2o", 0, 0, &system));
    atoms_images_make(system, &images);
    atoms_nearest_image(&images, v);
    assert_true(v[0] == 1e3 && v[1] == -2 && v[2] == 7);
    mlff_system_destroy(system);
}

// Two atoms that are 2.0 and 2.5 Å apart, in a cell so skewed that rounded coordinates give images beyond the range of descriptions.
static void skewed_structures_are_described(void **state)
{
    (void)state;
    static const double cell[9] = {10, 0, 0, 40, 10, 0, 0, 0, 10};
    mlff_dataset *of, *data;
    mlff_system *system;
    int64_t n;
    assert_ok(mlff_dataset_create(&of));
    assert_ok(mlff_dataset_create(&data));
    assert_ok(mlff_system_create(2, &system));
    memcpy(system->cell, cell, sizeof cell);
    for (int k = 0; k < 3; k++) system->periodic[k] = 1;
    system->species[0] = system->species[1] = 6;
    system->label_energy = 0;
    system->positions[4] = 2;
    assert_ok(mlff_dataset_add(of, system, NULL));
    system->positions[4] = 2.5;
    assert_ok(mlff_dataset_add(data, system, NULL));
    assert_ok(mlff_dataset_copies(data, of, &n, NULL));
    assert_int_equal(n, 0);
    mlff_system_destroy(system);
    mlff_dataset_destroy(of);
    mlff_dataset_destroy(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(nearest_of_all), cmocka_unit_test(without_axes),
                                       cmocka_unit_test(skewed_structures_are_described)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
