// SPDX-License-Identifier: MIT
// test_analysis.c: radial distribution and diffusion against closed forms: an ideal gas, aluminum's lattice, a random walk.
#include "mlff_analysis.h"
#include "support.h"

enum { N_BINS = 20 };

static mlff_system *cube(int n_atoms, double side)
{
    mlff_system *system;
    assert_ok(mlff_system_create(n_atoms, &system));
    for (int k = 0; k < 3; k++) {
        system->cell[4 * k] = side;
        system->periodic[k] = 1;
    }
    for (int i = 0; i < n_atoms; i++) system->species[i] = i % 2 ? 18 : 10;
    return system;
}

static void ideal_gas_is_one(void **state)
{
    (void)state;
    enum { N = 400, FRAMES = 64 };
    double g[N_BINS], error[N_BINS], coordination[N_BINS];
    for (int mixed = 0; mixed < 2; mixed++) {
        mlff_rdf *rdf;
        mlff_system *gas = cube(N, 10);
        assert_ok(mlff_rdf_create(5, N_BINS, mixed ? 10 : 0, mixed ? 18 : 0, &rdf));
        for (int frame = 0; frame < FRAMES; frame++) {
            for (int k = 0; k < 3 * N; k++) gas->positions[k] = 10 * base_random_uniform(1, (uint64_t)frame, (uint64_t)k);
            assert_ok(mlff_rdf_add(rdf, gas));
        }
        mlff_rdf_get(rdf, NULL, g, error, coordination);
        // Five standard errors, of at least 8 blocks: t of 7 degrees of freedom exceeds it with 0.2 %, in bins of Poisson counts.
        for (int k = 4; k < N_BINS; k++) {
            if (fabs(g[k] - 1) > 5 * error[k]) fail_msg("bin %d: g = %g +- %g of an ideal gas", k, g[k], error[k]);
            assert_true(error[k] > 0 && error[k] < 0.05);
        }
        // 4/3 π 5³ × density; 1 %: the counts' own spread is 0.1 %
        const double expected = 4 * BASE_PI / 3 * 125 * (mixed ? N / 2 : N - 1) / 1000;
        assert_true(fabs(coordination[N_BINS - 1] / expected - 1) < 0.01);
        mlff_rdf_destroy(rdf);
        mlff_system_destroy(gas);
    }
}

static void lattice_has_its_shells(void **state)
{
    (void)state;
    mlff_rdf *rdf;
    mlff_system *aluminum;
    double g[N_BINS], error[N_BINS], coordination[N_BINS];
    assert_ok(mlff_system_build("aluminum", 108, 0, &aluminum)); // a = 4.05 Å: 12 at 2.864 Å, 6 at 4.05, 24 at 4.96
    assert_ok(mlff_rdf_create(4.5, N_BINS, 0, 0, &rdf));
    assert_ok(mlff_rdf_add(rdf, aluminum));
    mlff_rdf_get(rdf, NULL, g, error, coordination);
    for (int k = 0; k < N_BINS; k++) {
        if (k != 17 && k != 18) assert_true((g[k] > 0) == (k == 12)); // 2.70 to 2.925 Å; 4.05 Å is the edge of bins 17 and 18
        assert_true(isnan(error[k]));                                 // one frame
    }
    assert_true(fabs(coordination[14] - 12) < 1e-12);
    assert_true(fabs(coordination[N_BINS - 1] - 18) < 1e-12);
    mlff_rdf_destroy(rdf);
    mlff_system_destroy(aluminum);
}

// Steps of variance s² along each axis each frame: <d²> = 3 s² lag, D = s² / (2 frame time); wrapped into the cube, which skewed vectors
// of the same lattice may describe.
static void check_random_walk(bool skewed)
{
    enum { N = 200, FRAMES = 1000 };
    static const double vectors[9] = {7, 0, 0, 21, 7, 0, 14, -28, 7};
    const double s = 0.3, frame_fs = 2;
    mlff_msd *msd;
    mlff_system *walkers = cube(N, 7);
    if (skewed) memcpy(walkers->cell, vectors, sizeof vectors);
    double values[3], diffusion, half_width;
    assert_ok(mlff_msd_create(frame_fs, 0, &msd));
    for (int frame = 0; frame < FRAMES; frame++) {
        assert_ok(mlff_msd_add(msd, walkers));
        for (int k = 0; k < 3 * N; k++) {
            const double moved = walkers->positions[k] + s * base_random_normal(2, (uint64_t)frame, (uint64_t)k);
            walkers->positions[k] = moved - 7 * floor(moved / 7);
        }
    }
    mlff_msd_get(msd, 3, values);
    // 600,000 squared normal deviates: a spread of 0.2 % at lag 1
    for (int k = 0; k < 3; k++) assert_true(fabs(values[k] / (3 * s * s * (k + 1)) - 1) < 0.01);
    mlff_msd_diffusion(msd, &diffusion, &half_width);
    const double expected = s * s / (2 * frame_fs);
    if (fabs(diffusion - expected) > 2 * half_width) fail_msg("D = %g +- %g, expected %g", diffusion, half_width, expected);
    assert_true(half_width > 0 && half_width < 0.2 * expected);
    mlff_msd_destroy(msd);
    mlff_system_destroy(walkers);
}

static void random_walk_diffuses(void **state)
{
    (void)state;
    check_random_walk(false);
    check_random_walk(true);
}

static void refuses(void **state)
{
    (void)state;
    mlff_rdf *rdf;
    mlff_msd *msd;
    mlff_system *water, *box = cube(2, 5);
    box->positions[0] = 1;
    assert_ok(mlff_system_build("h2o", 0, 0, &water));
    assert_int_equal(mlff_rdf_create(NAN, 10, 0, 0, &rdf), MLFF_ERR_USAGE);
    assert_int_equal(mlff_rdf_create(5, 0, 0, 0, &rdf), MLFF_ERR_USAGE);
    assert_int_equal(mlff_msd_create(0, 0, &msd), MLFF_ERR_USAGE);
    const int wrong[] = {-1, 119};
    for (int k = 0; k < 2; k++) {
        mlff_vdos *vdos;
        assert_refused(mlff_rdf_create(5, 10, wrong[k], 0, &rdf), MLFF_ERR_USAGE, "of no element");
        assert_refused(mlff_rdf_create(5, 10, 0, wrong[k], &rdf), MLFF_ERR_USAGE, "of no element");
        assert_refused(mlff_msd_create(1, wrong[k], &msd), MLFF_ERR_USAGE, "of no element");
        assert_refused(mlff_vdos_create(1, wrong[k], &vdos), MLFF_ERR_USAGE, "of no element");
    }
    assert_ok(mlff_rdf_create(2, 10, 8, 8, &rdf));
    assert_int_equal(mlff_rdf_add(rdf, water), MLFF_ERR_USAGE); // no cell
    assert_int_equal(mlff_rdf_add(rdf, box), MLFF_ERR_USAGE);   // no oxygen
    assert_ok(mlff_msd_create(1, 8, &msd));
    assert_int_equal(mlff_msd_add(msd, box), MLFF_ERR_USAGE);
    assert_ok(mlff_msd_add(msd, water));
    assert_int_equal(mlff_msd_add(msd, box), MLFF_ERR_USAGE); // other atoms
    mlff_rdf_destroy(rdf);
    mlff_msd_destroy(msd);
    mlff_system_destroy(water);
    mlff_system_destroy(box);
}

// Atoms in another order are other atoms, though there are as many of each element.
static void refuses_another_order(void **state)
{
    (void)state;
    mlff_msd *msd;
    mlff_vdos *vdos;
    mlff_geometry *geometry;
    mlff_system *water;
    assert_ok(mlff_system_build("h2o", 0, 0, &water));
    assert_ok(mlff_system_add_velocities(water));
    assert_ok(mlff_msd_create(1, 0, &msd));
    assert_ok(mlff_vdos_create(1, 0, &vdos));
    assert_ok(mlff_geometry_create(water, &geometry));
    for (int frame = 0; frame < 2; frame++) {
        const mlff_status expected = frame == 0 ? MLFF_OK : MLFF_ERR_USAGE;
        assert_int_equal(mlff_msd_add(msd, water), expected);
        assert_int_equal(mlff_vdos_add(vdos, water), expected);
        assert_int_equal(mlff_geometry_add(geometry, water), expected);
        const int first = water->species[0];
        water->species[0] = water->species[2];
        water->species[2] = first;
    }
    assert_non_null(strstr(mlff_last_error(), "atom 0 is H, and O in the first frame"));
    mlff_msd_destroy(msd);
    mlff_vdos_destroy(vdos);
    mlff_geometry_destroy(geometry);
    mlff_system_destroy(water);
}

// Two pairs of atoms that oscillate at two frequencies, with energies in the ratio 3 : 1: a peak at each, areas in that ratio.
static void density_of_states_has_the_frequencies(void **state)
{
    (void)state;
    enum { FRAMES = 5000, MOST = 512 };
    const double per_cm_fs = 2.99792458e-5, wavenumbers[2] = {1000, 3000};
    double x[MOST], density[MOST], error[MOST], area[2] = {0}, sum = 0;
    mlff_vdos *vdos;
    mlff_system *crystal = cube(4, 10);
    for (int i = 0; i < 4; i++) { // apart from each other
        crystal->species[i] = 1;
        crystal->positions[3 * i] = 2.0 * i;
    }
    assert_int_equal(mlff_vdos_create(0, 0, &vdos), MLFF_ERR_USAGE);
    assert_ok(mlff_vdos_create(1, 0, &vdos));
    assert_int_equal(mlff_vdos_add(vdos, crystal), MLFF_ERR_USAGE); // no velocities
    assert_ok(mlff_system_add_velocities(crystal));
    for (int frame = 0; frame < FRAMES; frame++) {
        for (int k = 0; k < 2; k++) { // pairs move against each other: the center of mass rests
            crystal->velocities[6 * k + 1] = (k ? 1.0 : sqrt(3.0)) * 1e-3 * cos(2 * BASE_PI * wavenumbers[k] * per_cm_fs * frame);
            crystal->velocities[6 * k + 4] = -crystal->velocities[6 * k + 1];
        }
        if (frame == 99) assert_int_equal(mlff_vdos_size(vdos), 0);
        assert_ok(mlff_vdos_add(vdos, crystal));
    }
    const int n = mlff_vdos_size(vdos);
    assert_int_equal(n, 500);
    assert_ok(mlff_vdos_get(vdos, x, density, error));
    for (int k = 0; k < n; k++) {
        sum += (k == 0 ? 0.5 : 1) * density[k] * x[1]; // trapezoids
        for (int peak = 0; peak < 2; peak++)           // the window's width is 2 steps to each side, its side lobes reach farther
            if (fabs(x[k] - wavenumbers[peak]) < 6 * x[1]) area[peak] += density[k] * x[1];
        assert_true(error[k] >= 0);
    }
    assert_true(fabs(sum - 1) < 1e-12); // by definition
    // 2 %: what the window leaks and the cut of negative lobes
    if (!(fabs(area[0] - 0.75) < 0.02 && fabs(area[1] - 0.25) < 0.02)) fail_msg("areas %g and %g", area[0], area[1]);
    mlff_vdos_destroy(vdos);
    assert_ok(mlff_vdos_create(1, 0, &vdos)); // white noise: each wavenumber has the same part, 0 too, as of a liquid
    for (int frame = 0; frame < 1000; frame++) {
        for (int c = 0; c < 12; c++) crystal->velocities[c] = base_random_normal(1, (uint64_t)c, (uint64_t)frame);
        assert_ok(mlff_vdos_add(vdos, crystal));
    }
    const int n_white = mlff_vdos_size(vdos);
    assert_ok(mlff_vdos_get(vdos, x, density, NULL));
    sum = 0;
    for (int k = 0; k < n_white; k++) sum += (k == 0 ? 0.5 : 1) * density[k] * x[1];
    assert_true(fabs(sum - 1) < 1e-12);
    mlff_system_destroy(crystal);
    mlff_vdos_destroy(vdos);
}

// Water across a boundary, one of its bonds longer in the second frame.
static void bonds_and_angles(void **state)
{
    (void)state;
    double density[MLFF_GEOMETRY_BINS], sum = 0;
    mlff_geometry_kind bond, angle;
    mlff_geometry *geometry;
    mlff_system *water = cube(3, 6), *other = cube(2, 6);
    static const int species[3] = {1, 8, 1};
    const double half = 0.5 * 104.5 * BASE_PI / 180;
    for (int i = 0; i < 3; i++) water->species[i] = species[i];
    // The oxygen at the origin, one hydrogen at the cell's other face.
    water->positions[0] = 0.96 * sin(half), water->positions[1] = 0.96 * cos(half);
    water->positions[6] = 6 - 0.96 * sin(half), water->positions[7] = 0.96 * cos(half);
    assert_ok(mlff_geometry_create(water, &geometry));
    assert_int_equal(mlff_geometry_size(geometry), 2);
    mlff_geometry_get(geometry, 0, &bond, NULL);
    if (bond.is_angle) mlff_geometry_get(geometry, 1, &bond, NULL);
    assert_true(isnan(bond.mean) && bond.count == 2);
    assert_ok(mlff_geometry_add(geometry, water));
    water->positions[0] *= 1.02 / 0.96;
    water->positions[1] *= 1.02 / 0.96;
    assert_ok(mlff_geometry_add(geometry, water));
    mlff_geometry_get(geometry, 0, &bond, density);
    mlff_geometry_get(geometry, 1, &angle, NULL);
    assert_true(!bond.is_angle && bond.elements[0] == 1 && bond.elements[1] == 8 && bond.count == 2);
    // 1e-12: rounding of positions of some Å
    assert_true(fabs(bond.low - 0.96) < 1e-12 && fabs(bond.high - 1.02) < 1e-12 && fabs(bond.mean - 0.975) < 1e-12);
    assert_true(fabs(bond.deviation - 0.03) < 1e-9); // of 0.96 three times and 1.02
    for (int k = 0; k < bond.n_bins; k++) sum += density[k] * bond.bin_width;
    assert_true(fabs(sum - 1) < 1e-12);
    assert_true(angle.is_angle && angle.elements[1] == 8 && angle.count == 1 && fabs(angle.mean - 104.5) < 1e-9);
    other->positions[3] = 3;
    assert_int_equal(mlff_geometry_add(geometry, other), MLFF_ERR_USAGE);
    mlff_geometry_destroy(geometry);
    other->n_atoms = 1; // one atom of a cell that is shorter than its bond
    for (int k = 0; k < 3; k++) other->cell[4 * k] = 1;
    assert_int_equal(mlff_geometry_create(other, &geometry), MLFF_ERR_UNSUPPORTED);
    other->n_atoms = 2; // a chain of two atoms: each is bonded to both neighbors, which are images of one atom
    other->species[0] = other->species[1] = 6;
    other->cell[0] = 2.6, other->cell[4] = other->cell[8] = 6;
    other->positions[3] = 1.3;
    assert_int_equal(mlff_geometry_create(other, &geometry), MLFF_ERR_UNSUPPORTED);
    assert_non_null(strstr(mlff_last_error(), "two images of atom"));
    mlff_system_destroy(other);
    mlff_system_destroy(water);
}

// The motion of the whole is no heat, unless fixed atoms hold the whole.
static void temperature_without_the_whole(void **state)
{
    (void)state;
    enum { N = 4 };
    mlff_system *gas = cube(N, 10);
    assert_ok(mlff_system_thermalize(gas, 300, 1));
    assert_true(fabs(mlff_system_temperature(gas) - 300) < 1e-9); // rounding
    for (int k = 0; k < 3 * N; k++) gas->velocities[k] += 0.01;   // Å/fs: about 3000 K of N atoms
    assert_true(fabs(mlff_system_temperature(gas) - 300) < 1e-9);
    assert_ok(mlff_system_add_fixed(gas));
    gas->fixed[0] = 1;
    assert_true(mlff_system_temperature(gas) > 1000);
    mlff_system_destroy(gas);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(ideal_gas_is_one),
                                       cmocka_unit_test(lattice_has_its_shells),
                                       cmocka_unit_test(random_walk_diffuses),
                                       cmocka_unit_test(refuses),
                                       cmocka_unit_test(refuses_another_order),
                                       cmocka_unit_test(density_of_states_has_the_frequencies),
                                       cmocka_unit_test(temperature_without_the_whole),
                                       cmocka_unit_test(bonds_and_angles)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
