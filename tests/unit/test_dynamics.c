// SPDX-License-Identifier: MIT
// test_dynamics.c: the contract of dynamics: what is checked, what a failed step leaves behind, and restart files.
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

#include "base/base.h"
#include "mlff_atoms.h"

enum { N = 5 };

// Harmonic wells at the start; from call `fail_at` on it fails in the given way.
typedef struct wells {
    double centers[3 * N];
    int n_calls, fail_at;
    enum { GOOD, STATUS, NAN_FORCE, NAN_ENERGY, HUGE_FORCE } failure;
} wells;

static mlff_status wells_forces(void *context, const mlff_system *system, double *energy, double *forces)
{
    wells *w = context;
    *energy = 0;
    for (int k = 0; k < 3 * system->n_atoms; k++) {
        double d = system->positions[k] - w->centers[k];
        *energy += 0.5 * 2.0 * d * d + 0.1 * d * d * d * d;
        forces[k] = -2.0 * d - 0.4 * d * d * d;
    }
    if (w->failure == GOOD || w->n_calls++ < w->fail_at) return MLFF_OK;
    if (w->failure == STATUS) return mlff_fail(MLFF_ERR_INTERRUPTED, "asked to stop");
    if (w->failure == NAN_FORCE) forces[3 * 3 + 1] = NAN;
    if (w->failure == NAN_ENERGY) *energy = INFINITY;
    if (w->failure == HUGE_FORCE) forces[3 * 2] = 1e300;
    return MLFF_OK;
}

static mlff_system *make_system(wells *w)
{
    static const int species[N] = {6, 1, 8, 14, 1};
    mlff_system *system = NULL;
    assert_int_equal(mlff_system_create(N, &system), MLFF_OK);
    memcpy(system->species, species, sizeof species);
    for (int k = 0; k < 3 * N; k++) system->positions[k] = 3.0 * base_random_uniform(3, 0, (uint64_t)k);
    memset(w, 0, sizeof *w);
    memcpy(w->centers, system->positions, sizeof w->centers);
    assert_int_equal(mlff_system_add_velocities(system), MLFF_OK);
    for (int k = 0; k < 3 * N; k++) system->velocities[k] = 0.02 * (base_random_uniform(4, 0, (uint64_t)k) - 0.5);
    return system;
}

static mlff_dynamics *make_dynamics(mlff_system *system, wells *w, mlff_ensemble ensemble)
{
    mlff_dynamics_options options = mlff_dynamics_options_default();
    options.ensemble = ensemble;
    options.seed = 11;
    mlff_dynamics *dynamics = NULL;
    assert_int_equal(mlff_dynamics_create(&options, system, wells_forces, w, &dynamics), MLFF_OK);
    return dynamics;
}

static void steps(mlff_dynamics *dynamics, int n)
{
    for (int k = 0; k < n; k++)
        if (mlff_dynamics_step(dynamics) != MLFF_OK) fail_msg("step %d: %s", k, mlff_last_error());
}

static void assert_failed(mlff_status status, mlff_status expected, const char *words)
{
    if (status != expected || !strstr(mlff_last_error(), words))
        fail_msg("%s \"%s\", expected %s with \"%s\"", mlff_status_name(status), mlff_last_error(), mlff_status_name(expected),
                 words);
}

// ---- creation -----------------------------------------------------------------------------------------------------------

static void test_bad_options(void **state)
{
    (void)state;
    wells w;
    mlff_system *system = make_system(&w);
    mlff_dynamics *dynamics = NULL;
    const mlff_dynamics_options good = mlff_dynamics_options_default();
    assert_true(good.timestep_fs == 0.5 && good.temperature_kelvin == 300 && good.friction_per_fs == 0.01);
    struct {
        mlff_dynamics_options options;
        const char *words;
    } bad[] = {{good, "timestep"},         {good, "timestep"},      {good, "temperature"},
               {good, "friction"},         {good, "ensemble"},      {good, "struct_size"},
               {good, "ramp of -5 steps"}, {good, "a pressure of"}, {good, "a compressibility of"}};
    bad[0].options.timestep_fs = 0;
    bad[1].options.timestep_fs = NAN;
    bad[2].options.temperature_kelvin = -1;
    bad[3].options.friction_per_fs = INFINITY;
    bad[4].options.ensemble = (mlff_ensemble)7;
    bad[5].options.struct_size = 0;
    bad[6].options.ramp_steps = -5;
    bad[7].options.ensemble = bad[8].options.ensemble = MLFF_SCR;
    bad[7].options.pressure = 1e5;
    bad[8].options.compressibility = 0;
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++)
        assert_failed(mlff_dynamics_create(&bad[k].options, system, wells_forces, &w, &dynamics), MLFF_ERR_USAGE, bad[k].words);
    assert_failed(mlff_dynamics_create(&good, NULL, wells_forces, &w, &dynamics), MLFF_ERR_USAGE, "system");
    assert_failed(mlff_dynamics_create(&good, system, NULL, &w, &dynamics), MLFF_ERR_USAGE, "force function");

    const double masses[] = {0, -1, NAN, INFINITY};
    assert_int_equal(mlff_system_add_masses(system), MLFF_OK);
    for (size_t k = 0; k < sizeof masses / sizeof *masses; k++) {
        system->masses[3] = masses[k];
        assert_failed(mlff_dynamics_create(&good, system, wells_forces, &w, &dynamics), MLFF_ERR_VALUE, "atom 3");
    }
    system->masses[3] = 28;
    system->velocities[4] = NAN;
    assert_failed(mlff_dynamics_create(&good, system, wells_forces, &w, &dynamics), MLFF_ERR_VALUE, "atom 1");
    assert_null(dynamics);
    mlff_dynamics_destroy(NULL);
    mlff_system_destroy(system);
}

// ---- failed steps -------------------------------------------------------------------------------------------------------

// Whatever stops a step, the system is where the step began and the error says which step, which atom and what to do.
static void test_failed_step(void **state)
{
    (void)state;
    struct {
        int failure;
        mlff_status status;
        const char *words[3];
    } cases[] = {
        {STATUS, MLFF_ERR_INTERRUPTED, {"asked to stop", "", ""}},
        {NAN_FORCE, MLFF_ERR_UNSTABLE, {"step 7", "force of atom 3", "halve the timestep (now 0.5 fs)"}},
        {NAN_ENERGY, MLFF_ERR_UNSTABLE, {"step 7", "energy", "relax the start"}},
        {HUGE_FORCE, MLFF_ERR_UNSTABLE, {"step 7", "exploded", "halve the timestep"}},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        wells w;
        mlff_system *system = make_system(&w);
        mlff_dynamics *dynamics = make_dynamics(system, &w, MLFF_NVE);
        w.failure = (int)cases[k].failure;
        w.fail_at = 7; // the start and six steps are good
        steps(dynamics, 6);
        mlff_dynamics_state before, after;
        assert_int_equal(mlff_dynamics_state_get(dynamics, &before), MLFF_OK);
        double positions[3 * N], velocities[3 * N], forces[3 * N];
        memcpy(positions, system->positions, sizeof positions);
        memcpy(velocities, system->velocities, sizeof velocities);
        memcpy(forces, before.forces, sizeof forces);
        mlff_status status = mlff_dynamics_step(dynamics);
        for (int word = 0; word < 3; word++) assert_failed(status, cases[k].status, cases[k].words[word]);
        assert_memory_equal(system->positions, positions, sizeof positions);
        assert_memory_equal(system->velocities, velocities, sizeof velocities);
        assert_int_equal(mlff_dynamics_state_get(dynamics, &after), MLFF_OK);
        assert_memory_equal(after.forces, forces, sizeof forces);
        assert_int_equal(after.step, before.step);
        assert_true(after.time_fs == before.time_fs && after.conserved_energy == before.conserved_energy);
        mlff_dynamics_destroy(dynamics);
        mlff_system_destroy(system);
    }
}

// With a timestep beyond what the oscillators bear the run stops and the atoms are where the last good step ended,
// with a bath and without. The caller's own change of velocities is no explosion.
static void test_explosion(void **state)
{
    (void)state;
    for (int ensemble = 0; ensemble < 2; ensemble++) {
        wells w;
        mlff_system *system = make_system(&w);
        mlff_dynamics_options options = mlff_dynamics_options_default();
        options.ensemble = ensemble ? MLFF_LANGEVIN : MLFF_NVE;
        options.timestep_fs = 60;
        mlff_dynamics *dynamics = NULL;
        assert_int_equal(mlff_dynamics_create(&options, system, wells_forces, &w, &dynamics), MLFF_OK);
        mlff_status status = mlff_dynamics_run(dynamics, 2000, NULL);
        assert_failed(status, MLFF_ERR_UNSTABLE, "exploded");
        assert_failed(status, MLFF_ERR_UNSTABLE, "kinetic energy");
        for (int k = 0; k < 3 * system->n_atoms; k++) assert_true(fabs(system->positions[k]) < 1e3);
        mlff_dynamics_destroy(dynamics);
        mlff_system_destroy(system);
    }
    wells w;
    mlff_system *system = make_system(&w);
    mlff_dynamics *dynamics = make_dynamics(system, &w, MLFF_NVE);
    for (int k = 0; k < 20; k++) {
        steps(dynamics, 5);
        for (int c = 0; c < 3 * system->n_atoms; c++) system->velocities[c] *= 1.1; // 45 times the kinetic energy in all
    }
    mlff_dynamics_destroy(dynamics);
    mlff_system_destroy(system);
}

static void test_bad_start(void **state)
{
    (void)state;
    wells w;
    mlff_system *system = make_system(&w);
    mlff_dynamics *dynamics = make_dynamics(system, &w, MLFF_LANGEVIN);
    w.failure = NAN_FORCE;
    mlff_dynamics_state now;
    assert_failed(mlff_dynamics_step(dynamics), MLFF_ERR_UNSTABLE, "step 0");
    assert_failed(mlff_dynamics_state_get(dynamics, &now), MLFF_ERR_UNSTABLE, "step 0");
    w.failure = GOOD;
    steps(dynamics, 1);
    assert_int_equal(mlff_dynamics_state_get(dynamics, &now), MLFF_OK);
    assert_int_equal(now.step, 1);
    mlff_dynamics_destroy(dynamics);
    mlff_system_destroy(system);
}

// A run allocates nothing after it was made.
static void test_no_allocation(void **state)
{
    (void)state;
    wells w;
    mlff_system *system = make_system(&w);
    mlff_dynamics *dynamics = make_dynamics(system, &w, MLFF_LANGEVIN);
    int64_t before = base_allocation_count();
    steps(dynamics, 50);
    assert_int_equal(base_allocation_count(), before);
    mlff_dynamics_destroy(dynamics);
    mlff_system_destroy(system);
}

// ---- temperature --------------------------------------------------------------------------------------------------------

// The degrees of freedom: 3 of each free atom; without bath and fixed atoms, those of the center of mass are no heat.
static void test_degrees_of_freedom(void **state)
{
    (void)state;
    wells w;
    mlff_dynamics_state now;
    for (int fixed = 0; fixed < 2; fixed++)
        for (int ensemble = 0; ensemble < 2; ensemble++) {
            mlff_system *system = make_system(&w);
            if (fixed) {
                assert_int_equal(mlff_system_add_fixed(system), MLFF_OK);
                system->fixed[1] = system->fixed[2] = 1;
            }
            mlff_dynamics *dynamics = make_dynamics(system, &w, (mlff_ensemble)ensemble);
            assert_int_equal(mlff_dynamics_state_get(dynamics, &now), MLFF_OK);
            double energy = 0, thermal, momentum[3] = {0}, mass = 0;
            for (int i = 0; i < N; i++)
                for (int c = 0; c < 3; c++) {
                    double m = system->masses[i] * BASE_AMU_ANG2_FS2_EV, v = system->velocities[3 * i + c];
                    if (fixed && (i == 1 || i == 2)) assert_true(v == 0);
                    energy += 0.5 * m * v * v;
                    momentum[c] += m * v;
                    mass += c == 0 ? m : 0;
                }
            bool drifts = !fixed && ensemble == MLFF_NVE;
            thermal = energy;
            for (int c = 0; c < 3 && drifts; c++) thermal -= 0.5 * momentum[c] * momentum[c] / mass;
            int n_degrees = 3 * (fixed ? N - 2 : N) - (drifts ? 3 : 0);
            assert_true(fabs(now.kinetic_energy - energy) <= 1e-14 * energy); // rounding of 15 terms
            double temperature = 2 * thermal / (n_degrees * BASE_KB_EV_PER_K);
            assert_true(fabs(now.temperature_kelvin - temperature) <= 1e-12 * temperature);
            if (drifts) { // what mlff_system_thermalize promises is what is read
                assert_int_equal(mlff_system_thermalize(system, 321, 5), MLFF_OK);
                assert_int_equal(mlff_dynamics_state_get(dynamics, &now), MLFF_OK);
                assert_true(fabs(now.temperature_kelvin - 321) < 1e-9);
            }
            mlff_dynamics_destroy(dynamics);
            mlff_system_destroy(system);
        }
}

// ---- restart ------------------------------------------------------------------------------------------------------------

static const char *restart_path(void)
{
    static char path[64];
    snprintf(path, sizeof path, "/tmp/mlff_test_dynamics_%ld.restart", (long)getpid());
    return path;
}

static int n_warnings;
static void count_warning(void *context, const char *text)
{
    (void)context;
    (void)text;
    n_warnings++;
}

// A run that is saved after `n` steps and continued by another process's worth of new objects ends in the same bits.
static void test_restart_continues(void **state)
{
    (void)state;
    mlff_warning_handler_set(count_warning, NULL);
    n_warnings = 0;
    for (int ensemble = 0; ensemble < 2; ensemble++)
        for (int n = 0; n < 30; n += 13) { // 0: before the start's forces are known
            wells w, w2;
            mlff_dynamics_state whole, continued;
            mlff_system *system = make_system(&w), *system2 = make_system(&w2);
            mlff_dynamics *dynamics = make_dynamics(system, &w, (mlff_ensemble)ensemble);
            steps(dynamics, n);
            if (mlff_dynamics_save(dynamics, restart_path()) != MLFF_OK) fail_msg("%s", mlff_last_error());
            steps(dynamics, 40);

            memset(system2->velocities, 0, 3 * N * sizeof(double));
            system2->positions[0] += 1;
            mlff_dynamics *dynamics2 = make_dynamics(system2, &w2, (mlff_ensemble)ensemble);
            steps(dynamics2, 3);
            if (mlff_dynamics_restore(dynamics2, restart_path()) != MLFF_OK) fail_msg("%s", mlff_last_error());
            steps(dynamics2, 40);

            assert_memory_equal(system->positions, system2->positions, 3 * N * sizeof(double));
            assert_memory_equal(system->velocities, system2->velocities, 3 * N * sizeof(double));
            assert_int_equal(mlff_dynamics_state_get(dynamics, &whole), MLFF_OK);
            assert_int_equal(mlff_dynamics_state_get(dynamics2, &continued), MLFF_OK);
            assert_memory_equal(whole.forces, continued.forces, 3 * N * sizeof(double));
            assert_int_equal(continued.step, n + 40);
            assert_true(whole.time_fs == continued.time_fs && whole.conserved_energy == continued.conserved_energy);
            mlff_dynamics_destroy(dynamics);
            mlff_dynamics_destroy(dynamics2);
            mlff_system_destroy(system);
            mlff_system_destroy(system2);
        }
    assert_int_equal(n_warnings, 0);
    mlff_warning_handler_set(NULL, NULL);
    unlink(restart_path());
}

static void write_bytes(const char *path, const char *text, size_t length)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
}

// Replaces the first `from` of a text, which is there.
static char *replaced(const char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from);
    assert_non_null(at);
    size_t before = (size_t)(at - text), length = strlen(text) - strlen(from) + strlen(to) + 1;
    char *result = malloc(length);
    assert_non_null(result);
    snprintf(result, length, "%.*s%s%s", (int)before, text, to, at + strlen(from));
    return result;
}

// Files cut at any byte, damaged in any field or of another system are refused and change nothing.
static void test_bad_restart_files(void **state)
{
    (void)state;
    wells w;
    mlff_system *system = make_system(&w);
    mlff_dynamics *dynamics = make_dynamics(system, &w, MLFF_LANGEVIN);
    steps(dynamics, 5);
    assert_int_equal(mlff_dynamics_save(dynamics, restart_path()), MLFF_OK);
    char *text = NULL;
    size_t length;
    assert_int_equal(base_read_file(restart_path(), 1 << 20, &text, &length), MLFF_OK);
    steps(dynamics, 5);
    double positions[3 * N], velocities[3 * N];
    memcpy(positions, system->positions, sizeof positions);
    memcpy(velocities, system->velocities, sizeof velocities);
    mlff_dynamics_state before, after;
    assert_int_equal(mlff_dynamics_state_get(dynamics, &before), MLFF_OK);

    for (size_t cut = 0; cut < length; cut++) {
        write_bytes(restart_path(), text, cut);
        mlff_status status = mlff_dynamics_restore(dynamics, restart_path());
        if (status != MLFF_ERR_FORMAT) fail_msg("cut at byte %zu of %zu: %s", cut, length, mlff_status_name(status));
    }
    static const struct {
        const char *from, *to;
        mlff_status status;
        const char *words;
    } damages[] = {
        {"mlff restart file", "mlff something", MLFF_ERR_FORMAT, "not a restart file"},
        {"n_atoms 5", "n_atoms 6", MLFF_ERR_VALUE, "6 atoms, this one has 5"},
        {"n_atoms 5", "n_atoms -5", MLFF_ERR_FORMAT, "n_atoms"},
        {"n_atoms 5", "n_atoms 99999999999999999999", MLFF_ERR_FORMAT, "n_atoms"},
        {"species_hash ", "species_hash x", MLFF_ERR_FORMAT, "16 hexadecimal"},
        {"masses_hash ", "masses_hash x", MLFF_ERR_FORMAT, "16 hexadecimal"},
        {"fixed_hash ", "fixed_hash x", MLFF_ERR_FORMAT, "16 hexadecimal"},
        {"cell_angstrom 0x0p+0", "cell_angstrom nan", MLFF_ERR_FORMAT, "9 finite numbers"},
        {"periodic 0 0 0", "periodic 0 1 0", MLFF_ERR_VALUE, "periodicity"},
        {"periodic 0 0 0", "periodic 0 0", MLFF_ERR_FORMAT, "3 finite numbers"},
        {"ensemble langevin", "ensemble npt", MLFF_ERR_FORMAT, "npt"},
        {"step 5", "step 5.5", MLFF_ERR_FORMAT, "whole number"},
        {"step 5", "step -1", MLFF_ERR_FORMAT, "whole number"},
        {"time_fs ", "time_ps ", MLFF_ERR_FORMAT, "expected time_fs"},
        {"bath_heat_ev ", "bath_heat_ev nan ", MLFF_ERR_FORMAT, "finite"},
        {"potential_energy_ev 0x", "potential_energy_ev 0y", MLFF_ERR_FORMAT, "finite"},
        {"atoms position", "atoms velocity", MLFF_ERR_FORMAT, "columns"},
        {"\nend\n", "\nend\n\n", MLFF_ERR_FORMAT, "more lines"},
        {"\nend\n", "\n0 0 0 0 0 0 0 0 0\nend\n", MLFF_ERR_FORMAT, "more lines"},
        {"\nend\n", " 0x1p+0\nend\n", MLFF_ERR_FORMAT, "9 finite numbers"},
        {"\nend\n", " \nend\n", MLFF_ERR_FORMAT, "9 finite numbers"},
    };
    for (size_t k = 0; k < sizeof damages / sizeof *damages; k++) {
        char *damaged = replaced(text, damages[k].from, damages[k].to);
        write_bytes(restart_path(), damaged, strlen(damaged));
        assert_failed(mlff_dynamics_restore(dynamics, restart_path()), damages[k].status, damages[k].words);
        free(damaged);
    }
    write_bytes(restart_path(), text, length);
    system->species[0] = 7;
    assert_failed(mlff_dynamics_restore(dynamics, restart_path()), MLFF_ERR_VALUE, "other elements");
    system->species[0] = 6;
    unlink(restart_path());
    assert_failed(mlff_dynamics_restore(dynamics, restart_path()), MLFF_ERR_IO, restart_path());
    assert_failed(mlff_dynamics_restore(dynamics, "/tmp"), MLFF_ERR_IO, "/tmp");
    assert_failed(mlff_dynamics_save(dynamics, "/tmp/no/such/folder"), MLFF_ERR_IO, "/tmp/no/such/folder");
    if (access("/dev/full", W_OK) == 0) assert_failed(mlff_dynamics_save(dynamics, "/dev/full"), MLFF_ERR_IO, "/dev/full");

    assert_memory_equal(system->positions, positions, sizeof positions);
    assert_memory_equal(system->velocities, velocities, sizeof velocities);
    assert_int_equal(mlff_dynamics_state_get(dynamics, &after), MLFF_OK);
    assert_true(after.step == before.step && after.time_fs == before.time_fs &&
                after.conserved_energy == before.conserved_energy);
    base_free(text);
    mlff_dynamics_destroy(dynamics);
    mlff_system_destroy(system);
}

// A run continued with another timestep or seed is not the same run, and a warning says so.
static void test_restart_warns(void **state)
{
    (void)state;
    wells w;
    mlff_system *system = make_system(&w);
    mlff_dynamics *dynamics = make_dynamics(system, &w, MLFF_LANGEVIN);
    assert_int_equal(mlff_dynamics_save(dynamics, restart_path()), MLFF_OK);
    mlff_dynamics_destroy(dynamics);
    mlff_warning_handler_set(count_warning, NULL);
    for (int change = 0; change < 5; change++) {
        mlff_dynamics_options options = mlff_dynamics_options_default();
        options.ensemble = change == 4 ? MLFF_NVE : MLFF_LANGEVIN;
        options.seed = change == 0 ? 12 : 11;
        if (change == 1) options.timestep_fs = 1;
        if (change == 2) options.friction_per_fs = 0.1;
        if (change == 3) options.temperature_kelvin = 310;
        assert_int_equal(mlff_dynamics_create(&options, system, wells_forces, &w, &dynamics), MLFF_OK);
        n_warnings = 0;
        assert_int_equal(mlff_dynamics_restore(dynamics, restart_path()), MLFF_OK);
        assert_int_equal(n_warnings, 1);
        mlff_dynamics_destroy(dynamics);
    }
    mlff_warning_handler_set(NULL, NULL);
    unlink(restart_path());
    mlff_system_destroy(system);
}

// The run continues with the cell of the file; where that is of constant volume and the cell another one, a warning says so.
static void test_restart_takes_the_cell(void **state)
{
    (void)state;
    wells w;
    mlff_system *system = make_system(&w);
    mlff_dynamics *dynamics = make_dynamics(system, &w, MLFF_NVE);
    system->cell[4] = 7;
    assert_int_equal(mlff_dynamics_save(dynamics, restart_path()), MLFF_OK);
    mlff_warning_handler_set(count_warning, NULL);
    for (int change = 0; change < 2; change++) {
        system->cell[4] = 7 + change;
        n_warnings = 0;
        assert_int_equal(mlff_dynamics_restore(dynamics, restart_path()), MLFF_OK);
        assert_int_equal(n_warnings, change);
        assert_true(system->cell[4] == 7);
    }
    mlff_warning_handler_set(NULL, NULL);
    unlink(restart_path());
    mlff_dynamics_destroy(dynamics);
    mlff_system_destroy(system);
}

// Other masses or other fixed atoms than those of the file: a warning each, and what is fixed now stands still.
static void test_restart_masses_and_fixed(void **state)
{
    (void)state;
    wells w;
    mlff_system *system = make_system(&w);
    if (mlff_system_add_fixed(system) != MLFF_OK) fail_msg("%s", mlff_last_error());
    mlff_dynamics *dynamics = make_dynamics(system, &w, MLFF_NVE);
    steps(dynamics, 5);
    assert_int_equal(mlff_dynamics_save(dynamics, restart_path()), MLFF_OK);
    mlff_warning_handler_set(count_warning, NULL);
    for (int change = 0; change < 4; change++) {
        bool mass = change & 1, fixed = change & 2;
        if (mass) system->masses[2] *= 2;
        system->fixed[3] = fixed;
        n_warnings = 0;
        assert_int_equal(mlff_dynamics_restore(dynamics, restart_path()), MLFF_OK);
        assert_int_equal(n_warnings, mass + fixed);
        for (int k = 9; k < 12; k++) assert_true((system->velocities[k] == 0) == fixed);
        assert_true(system->velocities[0] != 0);
        if (mass) system->masses[2] /= 2;
    }
    mlff_warning_handler_set(NULL, NULL);
    unlink(restart_path());
    mlff_dynamics_destroy(dynamics);
    mlff_system_destroy(system);
}

// A thermostat that scales all velocities does not take over the motion of the whole that noise, or the start of NVE, left there.
static void test_restart_stops_the_drift(void **state)
{
    (void)state;
    wells w;
    for (int ensemble = MLFF_NVE; ensemble <= MLFF_NOSE_HOOVER; ensemble++) {
        mlff_system *system = make_system(&w);
        mlff_dynamics *dynamics = make_dynamics(system, &w, (mlff_ensemble)ensemble);
        if (ensemble > MLFF_LANGEVIN) system->velocities[0] += 0.01; // the same ensemble goes on with what it had, to the bit
        assert_int_equal(mlff_dynamics_save(dynamics, restart_path()), MLFF_OK);
        mlff_dynamics_destroy(dynamics);
        dynamics = make_dynamics(system, &w, ensemble > MLFF_LANGEVIN ? (mlff_ensemble)ensemble : MLFF_BUSSI);
        mlff_warning_handler_set(count_warning, NULL);
        assert_int_equal(mlff_dynamics_restore(dynamics, restart_path()), MLFF_OK);
        mlff_warning_handler_set(NULL, NULL);
        double momentum = 0;
        for (int i = 0; i < N; i++) momentum += mlff_element_mass(system->species[i]) * system->velocities[3 * i];
        assert_true((fabs(momentum) < 1e-12) == (ensemble <= MLFF_LANGEVIN));
        mlff_dynamics_destroy(dynamics);
        mlff_system_destroy(system);
    }
    unlink(restart_path());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_options),
        cmocka_unit_test(test_failed_step),
        cmocka_unit_test(test_explosion),
        cmocka_unit_test(test_bad_start),
        cmocka_unit_test(test_no_allocation),
        cmocka_unit_test(test_degrees_of_freedom),
        cmocka_unit_test(test_restart_continues),
        cmocka_unit_test(test_bad_restart_files),
        cmocka_unit_test(test_restart_warns),
        cmocka_unit_test(test_restart_masses_and_fixed),
        cmocka_unit_test(test_restart_takes_the_cell),
        cmocka_unit_test(test_restart_stops_the_drift),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
