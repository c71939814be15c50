// SPDX-License-Identifier: MIT
// test_builders.c: built systems have the count, density, structure and chemistry their names promise.
#include <time.h>

#include "atoms/atoms.h"
#include "support.h"

static mlff_system *build(const char *name, int n_atoms, uint64_t seed)
{
    mlff_system *system = NULL;
    mlff_status status = mlff_system_build(name, n_atoms, seed, &system);
    if (status != MLFF_OK) fail_msg("%s of %d atoms: %s", name, n_atoms, mlff_last_error());
    status = mlff_system_check(system, name);
    if (status != MLFF_OK) fail_msg("%s of %d atoms: %s", name, n_atoms, mlff_last_error());
    return system;
}

static void lists(void **state)
{
    (void)state;
    static const char *const expected[] = {"silicon", "aluminum", "iron",    "water",   "h2o",
                                           "methane", "ethanol",  "benzene", "aspirin", "caffeine"};
    int n;
    const mlff_builder_info *builders = mlff_builders(&n);
    assert_int_equal(n, 10);
    for (int k = 0; k < n; k++) {
        assert_string_equal(builders[k].name, expected[k]);
        assert_true(strlen(builders[k].description) > 10);
        mlff_system_destroy(build(builders[k].name, 0, 0));
    }
    mlff_system *system = NULL;
    assert_int_equal(mlff_system_build("kryptonite", 8, 0, &system), MLFF_ERR_USAGE);
    assert_string_equal(mlff_last_error(),
                        "no system is called 'kryptonite'; there are silicon, aluminum, iron, water, h2o, methane, ethanol, "
                        "benzene, aspirin, caffeine");
    static const char *const smiles[] = {"CCO", "CC(=O)Oc1ccccc1C(=O)O", "[NH4+]", "C/C=C\\C"};
    for (size_t k = 0; k < sizeof smiles / sizeof *smiles; k++) {
        assert_int_equal(mlff_system_build(smiles[k], 0, 0, &system), MLFF_ERR_USAGE);
        assert_non_null(strstr(mlff_last_error(), "seeds_from_smiles"));
    }
    static const char *const others[] = {"", "silicon-64", "spoon", "h2", "Water", "mol.xyz"};
    for (size_t k = 0; k < sizeof others / sizeof *others; k++) {
        assert_int_equal(mlff_system_build(others[k], 0, 0, &system), MLFF_ERR_USAGE);
        assert_null(strstr(mlff_last_error(), "seeds_from_smiles"));
    }
    assert_int_equal(mlff_system_build(NULL, 8, 0, &system), MLFF_ERR_USAGE);
    assert_int_equal(mlff_system_build("silicon", 2000000000, 0, &system), MLFF_ERR_LIMIT);
    assert_null(system);
}

static void has_counts(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int asked, built;
    } cases[] = {{"silicon", 0, 64},
                 {"silicon", 2, 2},
                 {"silicon", 8, 8},
                 {"silicon", 32, 32},
                 {"silicon", 64, 64},
                 {"silicon", 100, 96},
                 {"silicon", 128, 128},
                 {"silicon", 256, 256},
                 {"silicon", 512, 512},
                 {"silicon", 1000, 1000},
                 {"silicon", 1024, 1024},
                 {"silicon", 4096, 4096},
                 {"silicon", 100000, 100000},
                 {"aluminum", 0, 64},
                 {"aluminum", 2, 2},
                 {"aluminum", 4, 4},
                 {"aluminum", 32, 32},
                 {"aluminum", 108, 108},
                 {"aluminum", 256, 256},
                 {"aluminum", 500, 500},
                 {"iron", 2, 2},
                 {"iron", 16, 16},
                 {"iron", 54, 54},
                 {"iron", 128, 128},
                 {"iron", 250, 250},
                 {"iron", 1024, 1024},
                 {"water", 0, 63},
                 {"water", 1, 3},
                 {"water", 3, 3},
                 {"water", 64, 63},
                 {"water", 65, 66},
                 {"water", 192, 192},
                 {"h2o", 500, 3},
                 {"aspirin", 2, 21}};
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        mlff_system *system = build(cases[k].name, cases[k].asked, 1);
        if (system->n_atoms != cases[k].built)
            fail_msg("%s, %d asked for: %d, expected %d", cases[k].name, cases[k].asked, system->n_atoms, cases[k].built);
        mlff_system_destroy(system);
    }
    // Whatever is asked for, what comes is near and no needle.
    static const char *const crystals[] = {"silicon", "aluminum", "iron"};
    for (int k = 0; k < 3; k++)
        for (int n = 2; n < 100000; n += 1 + n / 7) {
            mlff_system *system = build(crystals[k], n, 0);
            double shortest = INFINITY, longest = 0.0;
            for (int axis = 0; axis < 3; axis++) {
                const double *v = system->cell + 3 * axis;
                double length = sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
                shortest = fmin(shortest, length);
                longest = fmax(longest, length);
            }
            double miss = fabs(system->n_atoms - (double)n) / n;
            if (longest > 2.0001 * shortest || miss > (n < 100 ? 1.0 : n < 1000 ? 0.2 : 0.05))
                fail_msg("%s, %d asked for: %d atoms, edges %g to %g Å", crystals[k], n, system->n_atoms, shortest, longest);
            mlff_system_destroy(system);
        }
}

// Distances from an atom to all images of all atoms within a radius, sorted into a count at the nearest distance.
static int count_nearest(const mlff_system *system, int atom, double *nearest_out)
{
    int count = 0;
    double nearest = INFINITY;
    for (int j = 0; j < system->n_atoms; j++)
        for (int image = 0; image < 125; image++) {
            int shift[3] = {image / 25 - 2, image / 5 % 5 - 2, image % 5 - 2};
            double square = 0.0;
            for (int c = 0; c < 3; c++) {
                double d = system->positions[3 * j + c] - system->positions[3 * atom + c];
                for (int axis = 0; axis < 3; axis++) d += shift[axis] * system->cell[3 * axis + c];
                square += d * d;
            }
            if (square < 1e-6) continue;
            double distance = sqrt(square);
            if (distance < nearest - 1e-6) nearest = distance, count = 0;
            count += distance < nearest + 1e-6;
        }
    *nearest_out = nearest;
    return count;
}

static void builds_crystals(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int n_neighbors;
        double distance, atom_volume; // Å, Å³
    } cases[] = {{"silicon", 4, 5.431 * 0.4330127018922193, 5.431 * 5.431 * 5.431 / 8},
                 {"aluminum", 12, 4.05 * 0.7071067811865476, 4.05 * 4.05 * 4.05 / 4},
                 {"iron", 8, 2.866 * 0.8660254037844386, 2.866 * 2.866 * 2.866 / 2}};
    static const int sizes[] = {1, 2, 4, 8, 64, 96};
    for (size_t k = 0; k < 3; k++)
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
            mlff_system *system = build(cases[k].name, sizes[s], 0);
            double volume = mlff_system_volume(system) / system->n_atoms;
            assert_true(fabs(volume / cases[k].atom_volume - 1.0) < 1e-12);
            for (int i = 0; i < system->n_atoms; i++) {
                double distance;
                int n = count_nearest(system, i, &distance);
                if (n != cases[k].n_neighbors || fabs(distance - cases[k].distance) > 1e-9)
                    fail_msg("%s, %d atoms, atom %d: %d neighbors at %.6f Å", cases[k].name, system->n_atoms, i, n, distance);
            }
            mlff_system_destroy(system);
        }
}

// Least distances between atoms of different molecules, or of a molecule and its images: O-O, O-H, H-H.
static void least_distances(const mlff_system *water, double least[3])
{
    int n = water->n_atoms, range = water->cell[0] < 9.0 ? 2 : 1;
    least[0] = least[1] = least[2] = INFINITY;
    for (int i = 0; i < n; i++)
        for (int j = i; j < n; j++)
            for (int x = -range; x <= range; x++)
                for (int y = -range; y <= range; y++)
                    for (int z = -range; z <= range; z++) {
                        if (i / 3 == j / 3 && x == 0 && y == 0 && z == 0) continue;
                        double d[3] = {x * water->cell[0], y * water->cell[4], z * water->cell[8]}, square = 0.0;
                        for (int c = 0; c < 3; c++) {
                            d[c] += water->positions[3 * j + c] - water->positions[3 * i + c];
                            square += d[c] * d[c];
                        }
                        int kind = (water->species[i] == 1) + (water->species[j] == 1);
                        least[kind] = fmin(least[kind], sqrt(square));
                    }
}

static void builds_water(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 4; seed++)
        for (int n_molecules = 1; n_molecules <= 110; n_molecules += 1 + (int)seed + n_molecules / 20) {
            mlff_system *water = build("water", 3 * n_molecules, seed);
            assert_int_equal(water->n_atoms, 3 * n_molecules);
            double density = n_molecules * 18.015 * 1.66053904 / mlff_system_volume(water); // g/cm³
            assert_true(fabs(density - 0.997) < 1e-9);
            for (int m = 0; m < n_molecules; m++) {
                const double *o = water->positions + 9 * m, *a = o + 3, *b = o + 6;
                assert_true(water->species[3 * m] == 8 && water->species[3 * m + 1] == 1 && water->species[3 * m + 2] == 1);
                double oa = hypot(hypot(a[0] - o[0], a[1] - o[1]), a[2] - o[2]),
                       ob = hypot(hypot(b[0] - o[0], b[1] - o[1]), b[2] - o[2]);
                double ab = hypot(hypot(a[0] - b[0], a[1] - b[1]), a[2] - b[2]);
                assert_true(fabs(oa - 0.9572) < 1e-9 && fabs(ob - 0.9572) < 1e-9);
                assert_true(fabs(2 * asin(ab / 2 / 0.9572) * 180 / BASE_PI - 104.52) < 1e-6);
                for (int c = 0; c < 3; c++) assert_true(o[c] >= 0.0 && o[c] < water->cell[0]);
            }
            double least[3];
            least_distances(water, least);
            if (least[0] < 2.3 || least[1] < 1.5 || least[2] < 1.5)
                fail_msg("seed %d, %d molecules: O-O %.3f, O-H %.3f, H-H %.3f Å", (int)seed, n_molecules, least[0], least[1],
                         least[2]);
            mlff_system_destroy(water);
        }

    mlff_system *one = build("water", 192, 5), *same = build("water", 192, 5), *other = build("water", 192, 6);
    assert_memory_equal(one->positions, same->positions, 192 * 3 * sizeof(double));
    assert_memory_not_equal(one->positions, other->positions, 192 * 3 * sizeof(double));
    // Orientations have no preference: the mean dipole direction of 64 molecules is about 1/8 long.
    double dipole[3] = {0};
    for (int m = 0; m < 64; m++)
        for (int c = 0; c < 3; c++)
            dipole[c] += (one->positions[9 * m + 3 + c] + one->positions[9 * m + 6 + c]) / 2 - one->positions[9 * m + c];
    assert_true(hypot(hypot(dipole[0], dipole[1]), dipole[2]) / 64 / 0.586 < 0.4);
    mlff_system_destroy(one);
    mlff_system_destroy(same);
    mlff_system_destroy(other);
}

static void builds_large_ones_fast(void **state)
{
    (void)state;
    static const char *const names[] = {"silicon", "aluminum", "iron", "water"};
    for (int k = 0; k < 4; k++) {
        struct timespec begin, end;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        mlff_system *system = build(names[k], 100000, 1);
        clock_gettime(CLOCK_MONOTONIC, &end);
        double seconds = (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
        printf("%s: %d atoms in %.3f s\n", names[k], system->n_atoms, seconds);
        assert_true(abs(system->n_atoms - 100000) <= 1000);
        assert_true(seconds < 20.0); // 1 s is meant; a loaded machine under sanitizers is allowed more
        mlff_system_destroy(system);
    }
}

// Bonds by the rule of covalent radii: closer than 1.25 times their sum.
static double covalent_radius(int z)
{
    return z == 1 ? 0.31 : z == 6 ? 0.76 : z == 7 ? 0.71 : 0.66; // Å, Cordero 2008
}

static void builds_molecules(void **state)
{
    (void)state;
    // Number of bonds; how many atoms there are of each element and number of bonds, as "C4" "C3" "O2" "O1" "N3" "N2" "H1".
    static const struct {
        const char *name, *formula;
        int n_bonds, c4, c3, o2, o1, n3, n2, h1;
    } cases[] = {
        {"h2o", "H2O", 2, 0, 0, 1, 0, 0, 0, 2},         {"methane", "CH4", 4, 1, 0, 0, 0, 0, 0, 4},
        {"ethanol", "C2H6O", 8, 2, 0, 1, 0, 0, 0, 6},   {"benzene", "C6H6", 12, 0, 6, 0, 0, 0, 0, 6},
        {"aspirin", "C9H8O4", 21, 1, 8, 2, 2, 0, 0, 8}, {"caffeine", "C8H10N4O2", 25, 3, 5, 0, 2, 3, 1, 10},
    };
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        mlff_system *system = build(cases[k].name, 0, 0);
        char formula[64];
        mlff_system_formula(system, formula, sizeof formula);
        assert_string_equal(formula, cases[k].formula);
        assert_true(!system->periodic[0] && !system->periodic[1] && !system->periodic[2] && mlff_system_volume(system) == 0.0);
        int n_bonds = 0, counts[9][5] = {{0}};
        for (int i = 0; i < system->n_atoms; i++) {
            int n = 0;
            for (int j = 0; j < system->n_atoms; j++) {
                if (i == j) continue;
                const double *a = system->positions + 3 * i, *b = system->positions + 3 * j;
                double distance = hypot(hypot(a[0] - b[0], a[1] - b[1]), a[2] - b[2]);
                double sum = covalent_radius(system->species[i]) + covalent_radius(system->species[j]);
                if (distance < 0.75 * sum || (distance > 1.25 * sum && distance < 1.35 * sum))
                    fail_msg("%s: atoms %d and %d are %.3f Å apart", cases[k].name, i, j, distance);
                n += distance < 1.25 * sum;
            }
            assert_in_range(n, 1, 4);
            counts[system->species[i]][n]++;
            n_bonds += n;
        }
        assert_int_equal(n_bonds, 2 * cases[k].n_bonds);
        assert_int_equal(counts[6][4], cases[k].c4);
        assert_int_equal(counts[6][3], cases[k].c3);
        assert_int_equal(counts[8][2], cases[k].o2);
        assert_int_equal(counts[8][1], cases[k].o1);
        assert_int_equal(counts[7][3], cases[k].n3);
        assert_int_equal(counts[7][2], cases[k].n2);
        assert_int_equal(counts[1][1], cases[k].h1);
        mlff_system_destroy(system);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists),
        cmocka_unit_test(has_counts),
        cmocka_unit_test(builds_crystals),
        cmocka_unit_test(builds_water),
        cmocka_unit_test(builds_large_ones_fast),
        cmocka_unit_test(builds_molecules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
