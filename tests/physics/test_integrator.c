// SPDX-License-Identifier: MIT
// test_integrator.c: the integrators against mechanics and statistics, with forces known in closed form: energy error falling
// as the square of the timestep, reversibility, conserved momentum, atoms that stay, the temperature of a bath.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "mlff_atoms.h"

// ---- forces -------------------------------------------------------------------------------------------------------------

// Lennard-Jones argon, all pairs.
static mlff_status lennard_jones(void *context, const mlff_system *system, double *energy, double *forces)
{
    (void)context;
    const double epsilon = 0.0104, sigma = 3.4;
    *energy = 0;
    memset(forces, 0, 3 * (size_t)system->n_atoms * sizeof *forces);
    for (int i = 0; i < system->n_atoms; i++)
        for (int j = 0; j < i; j++) {
            double r[3], square = 0;
            for (int c = 0; c < 3; c++) {
                r[c] = system->positions[3 * i + c] - system->positions[3 * j + c];
                square += r[c] * r[c];
            }
            double s6 = pow(sigma * sigma / square, 3), scale = 24 * epsilon * (2 * s6 * s6 - s6) / square;
            *energy += 4 * epsilon * (s6 * s6 - s6);
            for (int c = 0; c < 3; c++) {
                forces[3 * i + c] += scale * r[c];
                forces[3 * j + c] -= scale * r[c];
            }
        }
    return MLFF_OK;
}

// Each coordinate in its own well about 0, with the constants of silicon's optical mode.
static const double well_constant = 14.0; // eV/Å²
static mlff_status wells(void *context, const mlff_system *system, double *energy, double *forces)
{
    (void)context;
    *energy = 0;
    for (int k = 0; k < 3 * system->n_atoms; k++) {
        *energy += 0.5 * well_constant * system->positions[k] * system->positions[k];
        forces[k] = -well_constant * system->positions[k];
    }
    return MLFF_OK;
}

// ---- systems ------------------------------------------------------------------------------------------------------------

// 13 atoms of argon on a piece of the fcc lattice, warm enough to rattle and too cold to evaporate.
static mlff_system *argon_cluster(void)
{
    static const int sites[13][3] = {{0, 0, 0},  {1, 1, 0},   {1, -1, 0}, {-1, 1, 0}, {-1, -1, 0}, {1, 0, 1},  {1, 0, -1},
                                     {-1, 0, 1}, {-1, 0, -1}, {0, 1, 1},  {0, 1, -1}, {0, -1, 1},  {0, -1, -1}};
    mlff_system *system = NULL;
    assert_int_equal(mlff_system_create(13, &system), MLFF_OK);
    for (int i = 0; i < 13; i++) {
        system->species[i] = 18;
        for (int c = 0; c < 3; c++) system->positions[3 * i + c] = 2.68 * sites[i][c];
    }
    assert_int_equal(mlff_system_thermalize(system, 30, 9), MLFF_OK);
    return system;
}

static mlff_dynamics *make(mlff_system *system, mlff_force_function forces, mlff_dynamics_options options)
{
    mlff_dynamics *dynamics = NULL;
    if (mlff_dynamics_create(&options, system, forces, NULL, &dynamics) != MLFF_OK) fail_msg("%s", mlff_last_error());
    return dynamics;
}

static void step(mlff_dynamics *dynamics)
{
    if (mlff_dynamics_step(dynamics) != MLFF_OK) fail_msg("%s", mlff_last_error());
}

static mlff_dynamics_state look(mlff_dynamics *dynamics)
{
    mlff_dynamics_state state;
    if (mlff_dynamics_state_get(dynamics, &state) != MLFF_OK) fail_msg("%s", mlff_last_error());
    return state;
}

// Root mean square of the conserved energy about its mean, along 4 ps.
static double energy_error(double timestep_fs)
{
    mlff_dynamics_options options = mlff_dynamics_options_default();
    options.timestep_fs = timestep_fs;
    mlff_system *system = argon_cluster();
    mlff_dynamics *dynamics = make(system, lennard_jones, options);
    double sum = 0, sum_squares = 0, start = look(dynamics).conserved_energy;
    int n = (int)lround(4000 / timestep_fs);
    for (int k = 0; k < n; k++) {
        step(dynamics);
        double error = look(dynamics).conserved_energy - start;
        sum += error;
        sum_squares += error * error;
    }
    assert_true(fabs(look(dynamics).time_fs - 4000) < 1e-6);
    mlff_dynamics_destroy(dynamics);
    mlff_system_destroy(system);
    return sqrt(sum_squares / n - sum / n * (sum / n));
}

// ---- tests --------------------------------------------------------------------------------------------------------------

// Velocity Verlet is of second order: half the timestep, a quarter of the error.
static void test_energy_error_is_quadratic(void **state)
{
    (void)state;
    double coarse = energy_error(8), middle = energy_error(4), fine = energy_error(2);
    print_message("energy error %.3g, %.3g, %.3g eV at 8, 4, 2 fs\n", coarse, middle, fine);
    assert_true(coarse < 1e-4); // of some 50 meV of motion
    // 4 up to terms of fourth order, and to trajectories that part slowly.
    assert_true(coarse / middle > 3.4 && coarse / middle < 4.6);
    assert_true(middle / fine > 3.7 && middle / fine < 4.3);
}

// An oscillator of 60 fs: the frequency of velocity Verlet is ω (1 + (ω dt)²/24), and its energy never drifts.
static void test_oscillator(void **state)
{
    (void)state;
    mlff_dynamics_options options = mlff_dynamics_options_default();
    options.timestep_fs = 2;
    mlff_system *system = NULL;
    assert_int_equal(mlff_system_create(1, &system), MLFF_OK);
    system->species[0] = 14;
    system->positions[0] = 0.1;
    mlff_dynamics *dynamics = make(system, wells, options);
    double omega = sqrt(well_constant / (mlff_element_mass(14) * BASE_AMU_ANG2_FS2_EV));
    double verlet = 2 / options.timestep_fs * asin(0.5 * omega * options.timestep_fs), largest = 0;
    for (int k = 1; k <= 20000; k++) {
        step(dynamics);
        // The exact solution of the Verlet recursion; 1e-10 Å: rounding of 20000 steps.
        double error = fabs(system->positions[0] - 0.1 * cos(verlet * options.timestep_fs * k));
        if (error > largest) largest = error;
    }
    print_message("oscillator: largest error %.2g Å in 20000 steps\n", largest);
    assert_true(largest < 1e-10);
    assert_true(system->positions[1] == 0 && system->positions[2] == 0);
    mlff_dynamics_destroy(dynamics);
    mlff_system_destroy(system);
}

// With velocities turned round, a run comes back to where it started: 1e-9 Å is rounding, grown a little by 1000 steps.
static void test_time_reversal(void **state)
{
    (void)state;
    mlff_dynamics_options options = mlff_dynamics_options_default();
    options.timestep_fs = 4;
    mlff_system *system = argon_cluster();
    double start[39], largest = 0, moved = 0;
    memcpy(start, system->positions, sizeof start);
    mlff_dynamics *dynamics = make(system, lennard_jones, options);
    for (int k = 0; k < 1000; k++) step(dynamics);
    for (int k = 0; k < 39; k++) {
        moved = fmax(moved, fabs(system->positions[k] - start[k]));
        system->velocities[k] = -system->velocities[k];
    }
    for (int k = 0; k < 1000; k++) step(dynamics);
    for (int k = 0; k < 39; k++) largest = fmax(largest, fabs(system->positions[k] - start[k]));
    print_message("time reversal: %.2g Å off after 2 × 1000 steps\n", largest);
    assert_true(moved > 0.1);
    assert_true(largest < 1e-9);
    mlff_dynamics_destroy(dynamics);
    mlff_system_destroy(system);
}

static void test_momentum(void **state)
{
    (void)state;
    mlff_dynamics_options options = mlff_dynamics_options_default();
    options.timestep_fs = 4;
    mlff_system *system = argon_cluster();
    for (int i = 0; i < 13; i++) system->velocities[3 * i] += 0.001;
    mlff_dynamics *dynamics = make(system, lennard_jones, options);
    for (int k = 0; k < 2000; k++) step(dynamics);
    for (int c = 0; c < 3; c++) {
        double momentum = 0;
        for (int i = 0; i < 13; i++) momentum += system->velocities[3 * i + c] / 13;
        assert_true(fabs(momentum - (c == 0 ? 0.001 : 0)) < 1e-15); // rounding; velocities are of the order 1e-3
    }
    mlff_dynamics_destroy(dynamics);
    mlff_system_destroy(system);
}

// Fixed atoms stay to the bit, with both integrators, and the energy of the others is conserved.
static void test_fixed_atoms(void **state)
{
    (void)state;
    for (int ensemble = 0; ensemble < 2; ensemble++) {
        mlff_dynamics_options options = mlff_dynamics_options_default();
        options.ensemble = (mlff_ensemble)ensemble;
        options.timestep_fs = 2;
        options.temperature_kelvin = 20;
        mlff_system *system = argon_cluster();
        assert_int_equal(mlff_system_add_fixed(system), MLFF_OK);
        for (int i = 0; i < 13; i += 4) system->fixed[i] = 1;
        double start[39];
        memcpy(start, system->positions, sizeof start);
        mlff_dynamics *dynamics = make(system, lennard_jones, options);
        double energy = look(dynamics).conserved_energy, largest = 0;
        for (int k = 0; k < 2000; k++) {
            step(dynamics);
            largest = fmax(largest, fabs(look(dynamics).conserved_energy - energy));
        }
        for (int i = 0; i < 13; i++) {
            int same = memcmp(system->positions + 3 * i, start + 3 * i, 3 * sizeof *start) == 0;
            assert_int_equal(same, i % 4 == 0);
        }
        assert_true(largest < 1e-5); // eV; at 2 fs the cluster's energy swings by some 1e-6
        mlff_dynamics_destroy(dynamics);
        mlff_system_destroy(system);
    }
}

// Oscillators in a bath: mean energies are k_B T / 2 for each coordinate and each velocity component. BAOAB's
// configurations are exact for harmonic forces at any timestep; its velocities fall short by (ω dt)²/4.
static void test_bath_temperature(void **state)
{
    (void)state;
    enum { ATOMS = 100, STEPS = 20000, BLOCKS = 40 };
    mlff_dynamics_options options = mlff_dynamics_options_default();
    options.ensemble = MLFF_LANGEVIN;
    options.timestep_fs = 2;
    options.temperature_kelvin = 400;
    options.friction_per_fs = 0.02;
    options.seed = 2024;
    mlff_system *system = NULL;
    assert_int_equal(mlff_system_create(ATOMS, &system), MLFF_OK);
    for (int i = 0; i < ATOMS; i++) system->species[i] = 14;
    mlff_dynamics *dynamics = make(system, wells, options);
    for (int k = 0; k < 1000; k++) step(dynamics); // 20 relaxation times from rest at 0 K
    double block_potential[BLOCKS] = {0}, block_kinetic[BLOCKS] = {0};
    for (int k = 0; k < STEPS; k++) {
        step(dynamics);
        mlff_dynamics_state now = look(dynamics);
        block_potential[k / (STEPS / BLOCKS)] += now.potential_energy / (STEPS / BLOCKS);
        block_kinetic[k / (STEPS / BLOCKS)] += now.temperature_kelvin / (STEPS / BLOCKS);
    }
    double mean[2] = {0}, error[2] = {0};
    for (int b = 0; b < BLOCKS; b++) {
        block_potential[b] /= 0.5 * 3 * ATOMS * BASE_KB_EV_PER_K; // as a temperature
        mean[0] += block_potential[b] / BLOCKS;
        mean[1] += block_kinetic[b] / BLOCKS;
    }
    for (int b = 0; b < BLOCKS; b++) {
        error[0] += pow(block_potential[b] - mean[0], 2) / (BLOCKS * (BLOCKS - 1));
        error[1] += pow(block_kinetic[b] - mean[1], 2) / (BLOCKS * (BLOCKS - 1));
    }
    double omega_dt = options.timestep_fs * sqrt(well_constant / (mlff_element_mass(14) * BASE_AMU_ANG2_FS2_EV));
    double expected[2] = {400, 400 * (1 - omega_dt * omega_dt / 4)};
    for (int k = 0; k < 2; k++) {
        print_message("bath: %s temperature %.2f ± %.2f K, expected %.2f\n", k ? "kinetic" : "potential", mean[k], sqrt(error[k]),
                      expected[k]);
        assert_true(sqrt(error[k]) < 2.0); // the test would see 2 % at four deviations
        assert_true(fabs(mean[k] - expected[k]) < 4 * sqrt(error[k]));
    }
    mlff_dynamics_destroy(dynamics);
    mlff_system_destroy(system);
}

// The heat of the bath is counted: the conserved energy stays while the energy of a cluster rises from 0 K.
static void test_bath_heat(void **state)
{
    (void)state;
    mlff_dynamics_options options = mlff_dynamics_options_default();
    options.ensemble = MLFF_LANGEVIN;
    options.timestep_fs = 2;
    options.temperature_kelvin = 30;
    options.friction_per_fs = 0.005;
    mlff_system *system = argon_cluster();
    memset(system->velocities, 0, 39 * sizeof(double));
    mlff_dynamics *dynamics = make(system, lennard_jones, options);
    mlff_dynamics_state start = look(dynamics);
    for (int k = 0; k < 5000; k++) step(dynamics);
    mlff_dynamics_state end = look(dynamics);
    double given = end.potential_energy + end.kinetic_energy - start.potential_energy - start.kinetic_energy;
    print_message("bath: gave %.4f eV, conserved energy moved by %.2g eV\n", given,
                  end.conserved_energy - start.conserved_energy);
    assert_true(given > 0.02);
    assert_true(fabs(end.conserved_energy - start.conserved_energy) < 1e-5); // as in NVE at this timestep
    mlff_dynamics_destroy(dynamics);
    mlff_system_destroy(system);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_energy_error_is_quadratic),
        cmocka_unit_test(test_oscillator),
        cmocka_unit_test(test_time_reversal),
        cmocka_unit_test(test_momentum),
        cmocka_unit_test(test_fixed_atoms),
        cmocka_unit_test(test_bath_temperature),
        cmocka_unit_test(test_bath_heat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
