// SPDX-License-Identifier: MIT
// test_ensembles.c: thermostats and barostats against theory. The kinetic energy of N degrees of freedom has a gamma distribution
// of shape N/2 and scale k_B T. At constant pressure n atoms without forces, momentum of the whole zero, have volumes with a gamma
// distribution of shape n and scale k_B T/P0. With Lennard-Jones forces the mean pressure is P0. Distributions are compared by
// mean and variance, whose errors come from block averages, so that correlated samples do not pass for independent ones.
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

#include "atoms/dynamics/dynamics.h"

// ---- forces -------------------------------------------------------------------------------------------------------------

static mlff_status no_forces(void *context, const mlff_system *system, double *energy, double *forces, double *virial)
{
    (void)context;
    *energy = 0;
    memset(forces, 0, 3 * (size_t)system->n_atoms * sizeof *forces);
    memset(virial, 0, 9 * sizeof *virial);
    return MLFF_OK;
}

// Lennard-Jones argon in an orthogonal cell, nearest images, cut and shifted with its force at 8 Å.
static mlff_status lennard_jones(void *context, const mlff_system *system, double *energy, double *forces, double *virial)
{
    (void)context;
    const double epsilon = 0.0104, s2 = 3.4 * 3.4, cutoff = 8.0, c6 = pow(s2 / (cutoff * cutoff), 3);
    const double slope = -24 * epsilon * (2 * c6 * c6 - c6) / cutoff, shift = 4 * epsilon * (c6 * c6 - c6);
    *energy = 0;
    memset(forces, 0, 3 * (size_t)system->n_atoms * sizeof *forces);
    memset(virial, 0, 9 * sizeof *virial);
    for (int i = 0; i < system->n_atoms; i++)
        for (int j = 0; j < i; j++) {
            double r[3], square = 0;
            for (int c = 0; c < 3; c++) {
                const double length = system->cell[4 * c];
                r[c] = system->positions[3 * i + c] - system->positions[3 * j + c];
                r[c] -= length * round(r[c] / length);
                square += r[c] * r[c];
            }
            const double d = sqrt(square);
            if (d >= cutoff) continue;
            const double s6 = pow(s2 / square, 3);
            *energy += 4 * epsilon * (s6 * s6 - s6) - shift - (d - cutoff) * slope;
            const double scale = 24 * epsilon * (2 * s6 * s6 - s6) / square + slope / d;
            for (int c = 0; c < 3; c++) {
                forces[3 * i + c] += scale * r[c];
                forces[3 * j + c] -= scale * r[c];
                virial[4 * c] += scale * r[c] * r[c];
            }
        }
    return MLFF_OK;
}

static mlff_status never(void *context, const mlff_system *system, double *energy, double *forces)
{
    (void)context, (void)system, (void)energy, (void)forces;
    return mlff_fail(MLFF_ERR_USAGE, "the virial function replaces this one");
}

// ---- systems ------------------------------------------------------------------------------------------------------------

enum { GAS_ATOMS = 8 };
static const double temperature = 120.0;

// Argon atoms on a lattice of n³ sites of `spacing`.
static mlff_system *argon(int n, double spacing)
{
    mlff_system *system = NULL;
    assert_int_equal(mlff_system_create(n * n * n, &system), MLFF_OK);
    for (int i = 0; i < n * n * n; i++) {
        const int site[3] = {i % n, i / n % n, i / (n * n)};
        system->species[i] = 18;
        for (int c = 0; c < 3; c++) system->positions[3 * i + c] = spacing * site[c];
    }
    for (int c = 0; c < 3; c++) system->cell[4 * c] = n * spacing, system->periodic[c] = 1;
    assert_int_equal(mlff_system_thermalize(system, temperature, 5), MLFF_OK);
    return system;
}

static mlff_dynamics *make(mlff_system *system, mlff_virial_function forces, mlff_dynamics_options options)
{
    mlff_dynamics *dynamics = NULL;
    if (mlff_dynamics_create(&options, system, never, NULL, &dynamics) != MLFF_OK) fail_msg("%s", mlff_last_error());
    mlff_dynamics_virial_set(dynamics, forces, NULL);
    return dynamics;
}

static void run(mlff_dynamics *dynamics, int n)
{
    if (mlff_dynamics_run(dynamics, n, NULL) != MLFF_OK) fail_msg("%s", mlff_last_error());
}

static mlff_dynamics_state look(mlff_dynamics *dynamics)
{
    mlff_dynamics_state state;
    if (mlff_dynamics_state_get(dynamics, &state) != MLFF_OK) fail_msg("%s", mlff_last_error());
    return state;
}

static mlff_dynamics_options options_of(mlff_ensemble ensemble)
{
    mlff_dynamics_options options = mlff_dynamics_options_default();
    options.ensemble = ensemble;
    options.timestep_fs = 4;
    options.temperature_kelvin = temperature;
    options.seed = 11;
    return options;
}

// ---- statistics ---------------------------------------------------------------------------------------------------------

enum { BLOCKS = 25 };

// The mean of n values with the standard error of BLOCKS block means.
static void block_mean(const double *values, int n, double *mean_out, double *error_out)
{
    double sum = 0, squares = 0;
    for (int b = 0; b < BLOCKS; b++) {
        double block = 0;
        for (int k = b * (n / BLOCKS); k < (b + 1) * (n / BLOCKS); k++) block += values[k] / (n / BLOCKS);
        sum += block;
        squares += block * block;
    }
    *mean_out = sum / BLOCKS;
    *error_out = sqrt((squares / BLOCKS - *mean_out * *mean_out) / (BLOCKS - 1));
}

// Mean and variance of a gamma distribution within 4 standard errors: a right program fails once in 8000 tests, and the seed is fixed.
static void assert_gamma(const char *what, double *values, int n, double shape, double scale)
{
    double mean, mean_error, variance, variance_error;
    block_mean(values, n, &mean, &mean_error);
    for (int k = 0; k < n; k++) values[k] = (values[k] - shape * scale) * (values[k] - shape * scale);
    block_mean(values, n, &variance, &variance_error);
    print_message("%s: mean %.5g ± %.2g (theory %.5g), variance %.4g ± %.2g (theory %.4g)\n", what, mean, mean_error,
                  shape * scale, variance, variance_error, shape * scale * scale);
    assert_true(fabs(mean - shape * scale) < 4 * mean_error);
    assert_true(fabs(variance - shape * scale * scale) < 4 * variance_error);
    assert_true(mean_error < 0.05 * mean && variance_error < 0.25 * variance); // a test that can fail
}

static const char *const names[] = {"nve", "langevin", "bussi", "nose-hoover", "scr", "mtk"};

// ---- tests --------------------------------------------------------------------------------------------------------------

static void kinetic_energy_of(mlff_ensemble ensemble)
{
    enum { N = 20000 };
    double *values = malloc(N * sizeof *values);
    mlff_dynamics_options options = options_of(ensemble);
    options.friction_per_fs = 0.005;
    options.pressure = 0.002;
    mlff_system *system = argon(2, 4.6);
    system->cell[0] = system->cell[4] = system->cell[8] = 18;
    mlff_dynamics *dynamics = make(system, lennard_jones, options);
    run(dynamics, 2000);
    for (int k = 0; k < N; k++) {
        run(dynamics, 5);
        values[k] = look(dynamics).kinetic_energy;
    }
    const int n_degrees = 3 * GAS_ATOMS - (ensemble == MLFF_LANGEVIN ? 0 : 3);
    assert_gamma(names[ensemble], values, N, 0.5 * n_degrees, BASE_KB_EV_PER_K * temperature);
    mlff_dynamics_destroy(dynamics);
    mlff_system_destroy(system);
    free(values);
}

static void test_kinetic_energy_has_its_distribution(void **state)
{
    (void)state;
    for (int ensemble = MLFF_LANGEVIN; ensemble <= MLFF_MTK; ensemble++) kinetic_energy_of((mlff_ensemble)ensemble);
}

static void volume_of(mlff_ensemble ensemble, int anisotropic, double timestep_fs)
{
    enum { N = 40000 };
    double *values = malloc(N * sizeof *values);
    mlff_dynamics_options options = options_of(ensemble);
    options.timestep_fs = timestep_fs;
    options.thermostat_fs = 50;
    options.barostat_fs = 400;
    options.pressure = BASE_KB_EV_PER_K * temperature / 300; // 300 Å³ an atom
    options.compressibility = 1 / options.pressure;          // an ideal gas's: the time constant is then the one asked for
    options.anisotropic = anisotropic;
    mlff_system *system = argon(2, 6.7);
    mlff_dynamics *dynamics = make(system, no_forces, options);
    run(dynamics, 5000);
    for (int k = 0; k < N; k++) {
        run(dynamics, 10);
        values[k] = look(dynamics).volume;
    }
    char what[60];
    snprintf(what, sizeof what, "volume by %s%s, %g fs", names[ensemble], anisotropic ? ", anisotropic" : "", timestep_fs);
    assert_gamma(what, values, N, GAS_ATOMS, BASE_KB_EV_PER_K * temperature / options.pressure);
    mlff_dynamics_destroy(dynamics);
    mlff_system_destroy(system);
    free(values);
}

static void test_volume_of_an_ideal_gas_has_its_distribution(void **state)
{
    (void)state;
    for (int anisotropic = 0; anisotropic < 2; anisotropic++) {
        volume_of(MLFF_SCR, anisotropic, 4);
        // A tenth of the time constant: a strain of first order in the timestep has a variance 9.8 % too large, here an error of some 1 %.
        volume_of(MLFF_SCR, anisotropic, 40);
        volume_of(MLFF_MTK, anisotropic, 4);
    }
}

// Liquid argon: the mean pressure is the one asked for, and both barostats find the same density.
static void test_liquid_has_the_pressure(void **state)
{
    (void)state;
    enum { N = 3000 };
    double volume[2], error[2], *volumes = malloc(N * sizeof *volumes), *pressures = malloc(N * sizeof *pressures);
    for (int k = 0; k < 2; k++) {
        mlff_dynamics_options options = options_of(k ? MLFF_MTK : MLFF_SCR);
        options.pressure = 0.0006;       // 960 bar
        options.compressibility = 120.0; // near liquid argon's
        mlff_system *system = argon(4, 4.1);
        mlff_dynamics *dynamics = make(system, lennard_jones, options);
        run(dynamics, 2000);
        for (int s = 0; s < N; s++) {
            run(dynamics, 10);
            volumes[s] = look(dynamics).volume;
            pressures[s] = look(dynamics).pressure;
        }
        double pressure, pressure_error;
        block_mean(volumes, N, &volume[k], &error[k]);
        block_mean(pressures, N, &pressure, &pressure_error);
        print_message("%s: volume %.1f ± %.1f Å³, pressure %.3g ± %.1g eV/Å³ (asked %.3g)\n", names[options.ensemble], volume[k],
                      error[k], pressure, pressure_error, options.pressure);
        // The momentum of the whole is zero, so <P - P0> V is 0 to k_B T: 2.5e-6 eV/Å³ here, below the error.
        assert_true(fabs(pressure - options.pressure) < 4 * pressure_error + 5e-6);
        mlff_dynamics_destroy(dynamics);
        mlff_system_destroy(system);
    }
    assert_true(fabs(volume[0] - volume[1]) < 4 * hypot(error[0], error[1]));
    free(volumes);
    free(pressures);
}

// Volumes at two pressures have distributions whose ratio is proportional to exp(-(P2 - P1) V / k_B T), whatever the forces
// (Shirts 2013, doi:10.1021/ct300688p). Slope of the logarithm of the ratio, per Å³, by logistic regression; samples of one block of
// BLOCKS are left out (-1: none).
static double slope_of_ratio(const double *low, const double *high, int n, int left_out)
{
    double center = 0, slope = 0, offset = 0;
    for (int k = 0; k < n; k++) center += (low[k] + high[k]) / (2 * n);
    for (int iteration = 0; iteration < 30; iteration++) { // Newton's method
        double g0 = 0, g1 = 0, h00 = 0, h01 = 0, h11 = 0;
        for (int k = 0; k < 2 * n; k++) {
            if (k % n / (n / BLOCKS) == left_out) continue;
            const double v = (k < n ? low[k] : high[k - n]) - center, p = 1 / (1 + exp(-offset - slope * v));
            const double residual = (k >= n) - p, weight = p * (1 - p);
            g0 += residual, g1 += residual * v;
            h00 += weight, h01 += weight * v, h11 += weight * v * v;
        }
        const double determinant = h00 * h11 - h01 * h01;
        offset += (h11 * g0 - h01 * g1) / determinant;
        slope += (h00 * g1 - h01 * g0) / determinant;
    }
    return slope;
}

static void test_volumes_of_a_liquid_have_their_distribution(void **state)
{
    (void)state;
    enum { N = 6000 };
    static const double pressures[2] = {0.0006, 0.0009}; // volumes differ by two standard deviations
    double *volumes[2] = {malloc(N * sizeof(double)), malloc(N * sizeof(double))};
    for (int ensemble = MLFF_SCR; ensemble <= MLFF_MTK; ensemble++) {
        const int n = ensemble == MLFF_SCR ? N : N / 2; // volumes of the stochastic barostat are correlated for longer
        for (int p = 0; p < 2; p++) {
            mlff_dynamics_options options = options_of((mlff_ensemble)ensemble);
            options.pressure = pressures[p];
            options.barostat_fs = 500;
            options.compressibility = 120.0;
            mlff_system *system = argon(4, 4.1);
            mlff_dynamics *dynamics = make(system, lennard_jones, options);
            run(dynamics, 2000);
            for (int k = 0; k < n; k++) {
                run(dynamics, 10);
                volumes[p][k] = look(dynamics).volume;
            }
            mlff_dynamics_destroy(dynamics);
            mlff_system_destroy(system);
        }
        const double theory = -(pressures[1] - pressures[0]) / (BASE_KB_EV_PER_K * temperature);
        const double slope = slope_of_ratio(volumes[0], volumes[1], n, -1);
        double sum = 0, squares = 0;
        for (int b = 0; b < BLOCKS; b++) {
            const double part = slope_of_ratio(volumes[0], volumes[1], n, b) - slope;
            sum += part, squares += part * part;
        }
        const double error = sqrt((BLOCKS - 1.0) / BLOCKS * (squares - sum * sum / BLOCKS));
        print_message("%s: slope of the logarithm of the ratio %.5g ± %.1g per Å³ (theory %.5g)\n", names[ensemble], slope, error,
                      theory);
        assert_true(fabs(slope - theory) < 4 * error);
        assert_true(error < 0.15 * fabs(theory)); // a test that can fail
    }
    free(volumes[0]);
    free(volumes[1]);
}

// Root mean square about the mean of the conserved energy along 8 ps of liquid.
static double energy_error(mlff_dynamics_options options, double timestep_fs)
{
    options.timestep_fs = timestep_fs;
    options.pressure = 0.0006;
    mlff_system *system = argon(3, 5.6);
    mlff_dynamics *dynamics = make(system, lennard_jones, options);
    double sum = 0, squares = 0, start = look(dynamics).conserved_energy;
    const int n = (int)lround(8000 / timestep_fs);
    for (int k = 0; k < n; k++) {
        run(dynamics, 1);
        const double error = look(dynamics).conserved_energy - start;
        sum += error / n;
        squares += error * error / n;
    }
    mlff_dynamics_destroy(dynamics);
    mlff_system_destroy(system);
    return sqrt(squares - sum * sum);
}

// Deterministic baths are of second order: half the timestep gives about a quarter of the error, not half of it.
static void test_conserved_energy_is_conserved(void **state)
{
    (void)state;
    for (int k = 0; k < 3; k++) {
        mlff_dynamics_options options = options_of(k ? MLFF_MTK : MLFF_NOSE_HOOVER);
        options.anisotropic = k == 2;
        const double coarse = energy_error(options, 8), fine = energy_error(options, 4);
        print_message("%s: conserved energy to %.3g eV at 8 fs, %.3g eV at 4 fs\n", names[options.ensemble], coarse, fine);
        assert_true(coarse / fine > 2.5 && coarse / fine < 6);
        assert_true(fine < 27 * 1e-4); // 0.1 meV an atom
    }
    for (int k = 0; k < 2; k++) { // stochastic: the kinetic energy fluctuates by 0.05 eV, the conserved energy does not
        const mlff_dynamics_options options = options_of(k ? MLFF_SCR : MLFF_BUSSI);
        const double error = energy_error(options, 4);
        print_message("%s: conserved energy to %.3g eV\n", names[options.ensemble], error);
        assert_true(error < 27 * 1e-4);
    }
}

static void reverse(mlff_dynamics *dynamics)
{
    dynamics_bath *bath = &dynamics->bath;
    for (size_t k = 0; k < 3 * (size_t)dynamics->system->n_atoms; k++) dynamics->system->velocities[k] *= -1;
    for (int k = 0; k < CHAIN_LENGTH; k++) bath->on_atoms.rate[k] *= -1, bath->on_cell.rate[k] *= -1;
    for (int k = 0; k < 3; k++) bath->strain_rate[k] *= -1;
}

// Velocities and rates reversed, the run goes back to where it began. 1e-7 Å: rounding, grown by 200 steps of a liquid.
static void test_deterministic_baths_are_reversible(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        mlff_dynamics_options options = options_of(k ? MLFF_MTK : MLFF_NOSE_HOOVER);
        options.pressure = 0.0006;
        mlff_system *system = argon(3, 5.6), *start = NULL;
        mlff_dynamics *dynamics = make(system, lennard_jones, options);
        assert_int_equal(mlff_system_copy(system, &start), MLFF_OK);
        run(dynamics, 200);
        reverse(dynamics);
        run(dynamics, 200);
        for (int i = 0; i < 3 * system->n_atoms; i++) assert_true(fabs(system->positions[i] - start->positions[i]) < 1e-7);
        for (int i = 0; i < 9; i++) assert_true(fabs(system->cell[i] - start->cell[i]) < 1e-7);
        mlff_dynamics_destroy(dynamics);
        mlff_system_destroy(system);
        mlff_system_destroy(start);
    }
}

// A run restored from a file goes on to the bit.
static void test_restart_is_exact(void **state)
{
    (void)state;
    char path[] = "/tmp/mlff-ensembles-XXXXXX";
    close(mkstemp(path));
    for (int ensemble = MLFF_BUSSI; ensemble <= MLFF_MTK; ensemble++) {
        mlff_dynamics_options options = options_of((mlff_ensemble)ensemble);
        options.pressure = 0.0006;
        options.anisotropic = 1;
        options.ramp_steps = 80;
        options.ramp_end_kelvin = 150;
        mlff_system *system = argon(3, 5.6), *other = argon(3, 5.6);
        mlff_dynamics *dynamics = make(system, lennard_jones, options), *restored = make(other, lennard_jones, options);
        run(dynamics, 50);
        assert_int_equal(mlff_dynamics_save(dynamics, path), MLFF_OK);
        run(dynamics, 50);
        if (mlff_dynamics_restore(restored, path) != MLFF_OK) fail_msg("%s", mlff_last_error());
        run(restored, 50);
        const size_t bytes = 3 * (size_t)system->n_atoms * sizeof(double);
        assert_memory_equal(system->positions, other->positions, bytes);
        assert_memory_equal(system->velocities, other->velocities, bytes);
        assert_memory_equal(system->cell, other->cell, sizeof system->cell);
        assert_true(look(dynamics).conserved_energy == look(restored).conserved_energy);
        mlff_dynamics_destroy(dynamics);
        mlff_dynamics_destroy(restored);
        mlff_system_destroy(system);
        mlff_system_destroy(other);
    }
    unlink(path);
}

// The mean temperature follows the ramp, and stays at its end.
static void test_temperature_follows_a_ramp(void **state)
{
    (void)state;
    mlff_dynamics_options options = options_of(MLFF_BUSSI);
    options.ramp_steps = 10000;
    options.ramp_end_kelvin = 3 * temperature;
    options.thermostat_fs = 20;
    mlff_system *system = argon(4, 6);
    mlff_dynamics *dynamics = make(system, lennard_jones, options);
    double middle = 0, end = 0;
    run(dynamics, 4500);
    for (int k = 0; k < 1000; k++) run(dynamics, 1), middle += look(dynamics).temperature_kelvin / 1000;
    run(dynamics, 5000);
    for (int k = 0; k < 1000; k++) run(dynamics, 1), end += look(dynamics).temperature_kelvin / 1000;
    print_message("ramp from 120 to 360 K: %.1f K in its middle, %.1f K at its end\n", middle, end);
    // 64 atoms, some 100 independent values: 360 sqrt(2/189/100) = 3.7 K.
    assert_true(fabs(middle - 2 * temperature) < 12 && fabs(end - 3 * temperature) < 15);
    mlff_dynamics_destroy(dynamics);
    mlff_system_destroy(system);
}

static void test_wrong_use_is_refused(void **state)
{
    (void)state;
    mlff_dynamics *dynamics = NULL;
    mlff_dynamics_options options = options_of(MLFF_SCR);
    mlff_system *system = argon(2, 6);
    system->periodic[1] = 0;
    assert_int_equal(mlff_dynamics_create(&options, system, never, NULL, &dynamics), MLFF_ERR_VALUE);
    system->periodic[1] = 1;
    assert_int_equal(mlff_system_add_fixed(system), MLFF_OK);
    system->fixed[3] = 1;
    assert_int_equal(mlff_dynamics_create(&options, system, never, NULL, &dynamics), MLFF_ERR_VALUE);
    assert_non_null(strstr(mlff_last_error(), "atom 3 is fixed"));
    system->fixed[3] = 0;
    options.thermostat_fs = 0;
    assert_int_equal(mlff_dynamics_create(&options, system, never, NULL, &dynamics), MLFF_ERR_USAGE);
    options.thermostat_fs = 100;
    assert_int_equal(mlff_dynamics_create(&options, system, never, NULL, &dynamics), MLFF_OK);
    assert_int_equal(mlff_dynamics_step(dynamics), MLFF_ERR_USAGE); // no virial
    mlff_dynamics_destroy(dynamics);
    mlff_system_destroy(system);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinetic_energy_has_its_distribution),
        cmocka_unit_test(test_volume_of_an_ideal_gas_has_its_distribution),
        cmocka_unit_test(test_liquid_has_the_pressure),
        cmocka_unit_test(test_volumes_of_a_liquid_have_their_distribution),
        cmocka_unit_test(test_conserved_energy_is_conserved),
        cmocka_unit_test(test_deterministic_baths_are_reversible),
        cmocka_unit_test(test_restart_is_exact),
        cmocka_unit_test(test_temperature_follows_a_ramp),
        cmocka_unit_test(test_wrong_use_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
