// SPDX-License-Identifier: MIT
// Dynamics on an emulated GPU (tests/emulate), through the public interface: trajectories against the CPU, failures of calls of the CUDA
// runtime, runs that become unstable. No GPU is needed.
#include <unistd.h>

#include "plugin_emulated.h"

enum { STEPS = 20 };

static mlff_dynamics_options options_of(mlff_ensemble ensemble, double kelvin)
{
    mlff_dynamics_options options = mlff_dynamics_options_default();
    options.ensemble = ensemble;
    options.temperature_kelvin = kelvin;
    options.timestep_fs = 1.0;
    options.seed = 7;
    options.thermostat_fs = 20.0;
    options.barostat_fs = 50.0;
    options.pressure = 0.02;
    return options;
}

static void prepare(mlff_system *system, const mlff_dynamics_options *options)
{
    assert_ok(mlff_system_add_masses(system));
    assert_ok(mlff_system_add_velocities(system));
    assert_ok(mlff_system_thermalize(system, options->temperature_kelvin, 1));
    if (options->ensemble != MLFF_LANGEVIN) return;
    assert_ok(mlff_system_add_fixed(system));
    system->fixed[1] = 1;
    memset(system->velocities + 3, 0, 3 * sizeof(double));
}

// Tolerance: 20 steps of float32 forces move an atom by some 1e-7 Å from where float64 moves it; a forgotten chunk or another noise by
// 1e-2 Å, a bath that is left out by 1e-3 Å.
static void assert_same(mlff_dynamics *dynamics, const mlff_system *at, mlff_dynamics *expected, const mlff_system *there)
{
    mlff_dynamics_state ours, theirs;
    const size_t n = (size_t)at->n_atoms;
    assert_ok(mlff_dynamics_state_get(dynamics, &ours));
    assert_ok(mlff_dynamics_state_get(expected, &theirs));
    const double dx = support_difference(at->positions, there->positions, 3 * n),
                 dv = support_difference(at->velocities, there->velocities, 3 * n),
                 dh = support_difference(at->cell, there->cell, 9);
    const double conserved = fabs(ours.conserved_energy - theirs.conserved_energy) / (double)n;
    if (dx > 1e-5 || dv > 1e-6 || dh > 1e-5 || !(conserved <= 1e-5))
        fail_msg("positions off by %.2e A, velocities by %.2e A/fs, cell by %.2e A, conserved energy by %.2e eV/atom", dx, dv, dh,
                 conserved);
    assert_true(fabs(ours.potential_energy - theirs.potential_energy) <= 1e-5 * (double)n);
    assert_int_equal(ours.step, theirs.step);
    if (isfinite(theirs.pressure)) assert_true(fabs(ours.pressure - theirs.pressure) <= 1e-4 * (fabs(theirs.pressure) + 0.01));
}

// Dynamics on the GPU follow those of the CPU in float64, noise, baths, cell and fixed atoms included; rows that become too long on the
// way (crowded) lead to a chunk taken again, not to another trajectory.
static void follow(mlff_system *system, const mlff_dynamics_options *options, int crowded)
{
    mlff_model *model = support_model(64, 1, "gaussian", "cosine", 0, 3);
    mlff_evaluator *reference, *evaluator;
    mlff_dynamics *expected, *dynamics;
    mlff_system *start;
    double times[STEPS];
    emulate_counts before = counts();
    prepare(system, options);
    assert_ok(mlff_system_copy(system, &start));
    assert_ok(create_on(model, MLFF_CPU, &reference));
    assert_ok(mlff_dynamics_create_on(reference, options, system, NULL, NULL, &expected));
    assert_ok(mlff_dynamics_run(expected, STEPS, NULL));
    assert_ok(create_on(model, MLFF_CUDA, &evaluator));
    assert_ok(mlff_dynamics_create_on(evaluator, options, start, NULL, NULL, &dynamics));
    assert_int_equal(mlff_dynamics_device(dynamics).kind, MLFF_CUDA);
    mlff_evaluator_info then, now;
    mlff_evaluator_info_get(evaluator, &then);
    assert_ok(mlff_dynamics_run(dynamics, 13, times));
    assert_ok(mlff_dynamics_run(dynamics, STEPS - 13, times + 13));
    mlff_evaluator_info_get(evaluator, &now);
    assert_true(!crowded || now.n_growths > then.n_growths);
    assert_same(dynamics, start, expected, system);
    for (int k = 0; k < STEPS; k++) assert_true(times[k] > 0); // of the emulated GPU's clock
    if (options->ensemble == MLFF_LANGEVIN) assert_memory_equal(start->positions + 3, system->positions + 3, 3 * sizeof(double));
    mlff_dynamics_destroy(dynamics);
    mlff_dynamics_destroy(expected);
    mlff_evaluator_destroy(evaluator);
    mlff_evaluator_destroy(reference);
    assert_given_back(&before, "dynamics", 0);
    mlff_system_destroy(start);
    mlff_model_destroy(model);
}

static void test_dynamics(void **state)
{
    (void)state;
    mlff_system *molecule = support_random_system(5, 0, 1.2, 41), *bath = support_random_system(6, 1, 1.2, 42), *crowd;
    const mlff_dynamics_options nve = options_of(MLFF_NVE, 300), langevin = options_of(MLFF_LANGEVIN, 600),
                                hot = options_of(MLFF_NVE, 20000);
    follow(molecule, &nve, 0);
    follow(bath, &langevin, 0);
    mlff_system_destroy(molecule);
    mlff_system_destroy(bath);
    // Rows hold 64 neighbors at first: a hot, dense system that begins with 62 has 67 after ten steps.
    crowd = support_random_system(8, 1, 1.2, 16);
    for (int k = 0; k < 9; k++) crowd->cell[k] *= 0.77;
    for (int k = 0; k < 24; k++) crowd->positions[k] *= 0.77;
    follow(crowd, &hot, 1);
    mlff_system_destroy(crowd);
}

// Thermostats and barostats of the whole system, and ramps of the temperature, with the same random numbers as on the CPU. 11 atoms are
// 33 components: more than a warp.
static void test_baths(void **state)
{
    (void)state;
    for (int ensemble = MLFF_LANGEVIN; ensemble <= MLFF_MTK; ensemble++)
        for (int variant = 0; variant < 2; variant++) { // along a ramp; anisotropic
            mlff_dynamics_options options = options_of((mlff_ensemble)ensemble, 400);
            if (ensemble == MLFF_LANGEVIN && variant == 0) continue; // test_dynamics
            options.anisotropic = variant;
            options.ramp_steps = variant ? 12 : 0;
            options.ramp_end_kelvin = 700;
            mlff_system *system = support_random_system(variant ? 4 : 11, 1, 1.2, 43 + (uint64_t)ensemble);
            follow(system, &options, 0);
            mlff_system_destroy(system);
        }
}

// A run has the same bits however it is divided, and over a restart file.
static void test_restart(void **state)
{
    (void)state;
    char path[] = "/tmp/mlff_test_restart_XXXXXX";
    mlff_model *model = support_model(64, 1, "gaussian", "cosine", 0, 3);
    mlff_evaluator *evaluator;
    const int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    assert_ok(create_on(model, MLFF_CUDA, &evaluator));
    for (int ensemble = MLFF_LANGEVIN; ensemble <= MLFF_MTK; ensemble++) {
        mlff_dynamics_options options = options_of((mlff_ensemble)ensemble, 400);
        options.ramp_steps = 9;
        options.ramp_end_kelvin = 500;
        mlff_system *whole = support_random_system(4, 1, 1.2, 43), *parts;
        mlff_dynamics *dynamics;
        mlff_dynamics_state at_once, resumed;
        prepare(whole, &options);
        assert_ok(mlff_system_copy(whole, &parts));
        assert_ok(mlff_dynamics_create_on(evaluator, &options, whole, NULL, NULL, &dynamics));
        assert_ok(mlff_dynamics_run(dynamics, 12, NULL));
        assert_ok(mlff_dynamics_state_get(dynamics, &at_once));
        mlff_dynamics_destroy(dynamics);
        assert_ok(mlff_dynamics_create_on(evaluator, &options, parts, NULL, NULL, &dynamics));
        assert_ok(mlff_dynamics_run(dynamics, 3, NULL));
        assert_ok(mlff_dynamics_run(dynamics, 4, NULL));
        assert_ok(mlff_dynamics_save(dynamics, path));
        mlff_dynamics_destroy(dynamics);
        assert_ok(mlff_dynamics_create_on(evaluator, &options, parts, NULL, NULL, &dynamics));
        assert_ok(mlff_dynamics_restore(dynamics, path));
        assert_ok(mlff_dynamics_run(dynamics, 5, NULL));
        assert_ok(mlff_dynamics_state_get(dynamics, &resumed));
        mlff_dynamics_destroy(dynamics);
        assert_memory_equal(whole->positions, parts->positions, 12 * sizeof(double));
        assert_memory_equal(whole->velocities, parts->velocities, 12 * sizeof(double));
        assert_memory_equal(whole->cell, parts->cell, sizeof whole->cell);
        if (ensemble != MLFF_LANGEVIN) assert_true(at_once.conserved_energy == resumed.conserved_energy);
        mlff_system_destroy(whole);
        mlff_system_destroy(parts);
    }
    unlink(path);
    mlff_evaluator_destroy(evaluator);
    mlff_model_destroy(model);
}

// Two simulations and other calls share an evaluator, one after the other: each simulation goes on with its atoms, also where a call needed longer rows.
static void test_shared_evaluator(void **state)
{
    (void)state;
    mlff_model *model = support_model(64, 1, "gaussian", "cosine", 0, 3);
    mlff_evaluator *reference, *evaluator;
    mlff_system *systems[2], *theirs[2], *crowd = support_random_system(8, 1, 1.2, 16);
    mlff_dynamics *dynamics[2], *expected[2];
    mlff_evaluator_info before, after;
    emulate_counts at_first = counts();
    assert_ok(create_on(model, MLFF_CPU, &reference));
    assert_ok(create_on(model, MLFF_CUDA, &evaluator));
    for (int k = 0; k < 2; k++) {
        const mlff_dynamics_options options = options_of(k ? MLFF_SCR : MLFF_NVE, 400);
        systems[k] = support_random_system(5 - k, 1, 1.2, 71 + (uint64_t)k);
        prepare(systems[k], &options);
        assert_ok(mlff_system_copy(systems[k], &theirs[k]));
        assert_ok(mlff_dynamics_create_on(reference, &options, theirs[k], NULL, NULL, &expected[k]));
        assert_ok(mlff_dynamics_run(expected[k], STEPS, NULL));
        assert_ok(mlff_dynamics_create_on(evaluator, &options, systems[k], NULL, NULL, &dynamics[k]));
    }
    for (int k = 0; k < 24; k++) crowd->positions[k] *= 0.7;
    for (int k = 0; k < 9; k++) crowd->cell[k] *= 0.7;
    for (int turn = 0; turn < 4; turn++) {
        for (int k = 0; k < 2; k++) assert_ok(mlff_dynamics_run(dynamics[k], STEPS / 4, NULL));
        mlff_evaluator_info_get(evaluator, &before);
        support_results results = support_compute_system(evaluator, turn == 1 ? crowd : systems[1]);
        support_results_free(&results);
        mlff_evaluator_info_get(evaluator, &after);
        assert_true(turn != 1 || after.n_growths > before.n_growths);
    }
    for (int k = 0; k < 2; k++) assert_same(dynamics[k], systems[k], expected[k], theirs[k]);
    for (int k = 0; k < 2; k++) {
        mlff_dynamics_destroy(dynamics[k]);
        mlff_dynamics_destroy(expected[k]);
        mlff_system_destroy(systems[k]);
        mlff_system_destroy(theirs[k]);
    }
    mlff_evaluator_destroy(evaluator);
    mlff_evaluator_destroy(reference);
    assert_given_back(&at_first, "shared evaluator", 0);
    mlff_system_destroy(crowd);
    mlff_model_destroy(model);
}

enum { N_REPLICAS = 3 };

static void make_replicas(mlff_evaluator *evaluator, mlff_dynamics_options *options, mlff_system **systems, mlff_replicas **out)
{
    const mlff_dynamics_options *each[N_REPLICAS];
    for (int k = 0; k < N_REPLICAS; k++) each[k] = &options[k];
    assert_ok(mlff_replicas_create(evaluator, each, systems, N_REPLICAS, out));
}

// Replicas with seeds and temperatures of their own, on the GPU and on the CPU, follow simulations of one system each; over restart files
// they have the same bits.
static void test_replicas(void **state)
{
    (void)state;
    mlff_model *model = support_model(64, 1, "gaussian", "cosine", 0, 3);
    mlff_evaluator *reference, *evaluators[2];
    assert_ok(create_on(model, MLFF_CPU, &reference));
    assert_ok(create_on(model, MLFF_CPU, &evaluators[0]));
    assert_ok(create_on(model, MLFF_CUDA, &evaluators[1]));
    const mlff_ensemble ensembles[] = {MLFF_NVE, MLFF_BUSSI, MLFF_SCR};
    for (int e = 0; e < 6; e++) {
        mlff_dynamics_options options[N_REPLICAS];
        mlff_system *alone[N_REPLICAS], *systems[N_REPLICAS], *resumed[N_REPLICAS];
        mlff_dynamics *expected[N_REPLICAS];
        mlff_replicas *replicas, *again;
        emulate_counts before = counts();
        char path[N_REPLICAS][64];
        for (int k = 0; k < N_REPLICAS; k++) {
            options[k] = options_of(ensembles[e / 2], 300 + 100 * k);
            options[k].seed = 5 + (uint64_t)k;
            alone[k] = support_random_system(3 + k, 1, 1.2, 50 + (uint64_t)k);
            prepare(alone[k], &options[k]);
            assert_ok(mlff_system_copy(alone[k], &systems[k]));
            assert_ok(mlff_system_copy(alone[k], &resumed[k]));
            assert_ok(mlff_dynamics_create_on(reference, &options[k], alone[k], NULL, NULL, &expected[k]));
            assert_ok(mlff_dynamics_run(expected[k], STEPS, NULL));
            snprintf(path[k], sizeof path[k], "/tmp/mlff_test_replica_%d_%d", (int)getpid(), k);
        }
        make_replicas(evaluators[e % 2], options, systems, &replicas);
        assert_int_equal(mlff_replicas_device(replicas).kind, e % 2 ? MLFF_CUDA : MLFF_CPU);
        assert_ok(mlff_replicas_run(replicas, 8, NULL));
        for (int k = 0; k < N_REPLICAS; k++) assert_ok(mlff_dynamics_save(mlff_replicas_dynamics(replicas, k), path[k]));
        assert_ok(mlff_replicas_run(replicas, STEPS - 8, NULL));
        for (int k = 0; k < N_REPLICAS; k++) assert_same(mlff_replicas_dynamics(replicas, k), systems[k], expected[k], alone[k]);
        mlff_replicas_destroy(replicas);
        make_replicas(evaluators[e % 2], options, resumed, &again);
        for (int k = 0; k < N_REPLICAS; k++) assert_ok(mlff_dynamics_restore(mlff_replicas_dynamics(again, k), path[k]));
        assert_ok(mlff_replicas_run(again, STEPS - 8, NULL));
        mlff_replicas_destroy(again);
        for (int k = 0; k < N_REPLICAS; k++) {
            const size_t bytes = 3 * (size_t)systems[k]->n_atoms * sizeof(double);
            assert_memory_equal(systems[k]->positions, resumed[k]->positions, bytes);
            assert_memory_equal(systems[k]->velocities, resumed[k]->velocities, bytes);
            assert_memory_equal(systems[k]->cell, resumed[k]->cell, sizeof systems[k]->cell);
            mlff_dynamics_destroy(expected[k]);
            mlff_system_destroy(alone[k]);
            mlff_system_destroy(systems[k]);
            mlff_system_destroy(resumed[k]);
            unlink(path[k]);
        }
        emulate_counts after = counts();
        assert_int_equal(after.host_blocks, before.host_blocks + (e == 1)); // the evaluator's own, of its first call
        assert_int_equal(after.streams, before.streams);
    }
    for (int k = 0; k < 2; k++) mlff_evaluator_destroy(evaluators[k]);
    mlff_evaluator_destroy(reference);
    mlff_model_destroy(model);
}

// A run of constant volume goes on behind one of constant pressure with its cell, by itself and among replicas.
static void test_behind_constant_pressure(void **state)
{
    (void)state;
    char path[64];
    mlff_model *model = support_model(64, 1, "gaussian", "cosine", 0, 3);
    mlff_evaluator *reference, *evaluator;
    mlff_system *start = support_random_system(4, 1, 1.2, 43), *pressed, *there, *here, *systems[N_REPLICAS];
    mlff_dynamics *dynamics, *expected;
    mlff_replicas *replicas;
    mlff_dynamics_options pressure = options_of(MLFF_SCR, 400), options[N_REPLICAS];
    snprintf(path, sizeof path, "/tmp/mlff_test_behind_%d", (int)getpid());
    prepare(start, &pressure);
    assert_ok(mlff_system_copy(start, &pressed));
    assert_ok(mlff_system_copy(start, &there));
    assert_ok(mlff_system_copy(start, &here));
    assert_ok(create_on(model, MLFF_CPU, &reference));
    assert_ok(mlff_dynamics_create_on(reference, &pressure, pressed, NULL, NULL, &dynamics));
    assert_ok(mlff_dynamics_run(dynamics, STEPS, NULL));
    assert_ok(mlff_dynamics_save(dynamics, path));
    mlff_dynamics_destroy(dynamics);
    assert_true(fabs(pressed->cell[0] - start->cell[0]) > 1e-3); // Å, a hundred times what assert_same allows

    for (int k = 0; k < N_REPLICAS; k++) {
        options[k] = options_of(MLFF_NVE, 400);
        assert_ok(mlff_system_copy(start, &systems[k]));
    }
    assert_ok(mlff_dynamics_create_on(reference, &options[0], there, NULL, NULL, &expected));
    assert_ok(mlff_dynamics_restore(expected, path));
    assert_memory_equal(there->cell, pressed->cell, sizeof there->cell);
    assert_ok(mlff_dynamics_run(expected, STEPS, NULL));
    assert_ok(create_on(model, MLFF_CUDA, &evaluator));
    assert_ok(mlff_dynamics_create_on(evaluator, &options[0], here, NULL, NULL, &dynamics));
    assert_ok(mlff_dynamics_restore(dynamics, path));
    assert_ok(mlff_dynamics_run(dynamics, STEPS, NULL));
    assert_same(dynamics, here, expected, there);
    mlff_dynamics_destroy(dynamics);
    make_replicas(evaluator, options, systems, &replicas);
    assert_ok(mlff_dynamics_restore(mlff_replicas_dynamics(replicas, 1), path));
    assert_ok(mlff_replicas_run(replicas, STEPS, NULL));
    assert_same(mlff_replicas_dynamics(replicas, 1), systems[1], expected, there);
    assert_memory_equal(systems[0]->cell, start->cell, sizeof start->cell);
    mlff_replicas_destroy(replicas);
    mlff_dynamics_destroy(expected);
    for (int k = 0; k < N_REPLICAS; k++) mlff_system_destroy(systems[k]);
    mlff_system_destroy(start);
    mlff_system_destroy(pressed);
    mlff_system_destroy(there);
    mlff_system_destroy(here);
    mlff_evaluator_destroy(evaluator);
    mlff_evaluator_destroy(reference);
    mlff_model_destroy(model);
    unlink(path);
}

static void count_warning(void *context, const char *text)
{
    int *n = context;
    *n += strstr(text, "replica 1 has ended: step 2: ") != NULL;
}

// Replica 1 becomes unstable in its second step, as in test_dynamics_unstable: it ends there, a warning names it, and the others go on
// as if they were alone.
static void test_replica_ends(void **state)
{
    (void)state;
    mlff_model *model = support_model(64, 1, "gaussian", "cosine", 0, 3);
    for (int on_gpu = 0; on_gpu < 2; on_gpu++) {
        mlff_dynamics_options options[N_REPLICAS];
        mlff_system *systems[N_REPLICAS], *alone;
        mlff_evaluator *evaluator, *reference;
        mlff_replicas *replicas;
        mlff_dynamics *expected;
        mlff_dynamics_state now;
        int n_warnings = 0;
        for (int k = 0; k < N_REPLICAS; k++) {
            options[k] = options_of(MLFF_NVE, 300);
            options[k].timestep_fs = 0.5;
            systems[k] = support_random_system(3, 0, 1.2, 61 + (uint64_t)k);
            prepare(systems[k], &options[k]);
        }
        // The GPU's limit of coordinates is 5e4 A from the first atom, the host's 1e9 A.
        systems[1]->velocities[6] = on_gpu ? 8e4 : 1e4;
        if (!on_gpu) systems[1]->positions[6] = 1e9 - 7.5e3;
        assert_ok(mlff_system_copy(systems[2], &alone));
        assert_ok(create_on(model, on_gpu ? MLFF_CUDA : MLFF_CPU, &evaluator));
        assert_ok(create_on(model, MLFF_CPU, &reference));
        assert_ok(mlff_dynamics_create_on(reference, &options[2], alone, NULL, NULL, &expected));
        assert_ok(mlff_dynamics_run(expected, 12, NULL));
        make_replicas(evaluator, options, systems, &replicas);
        mlff_warning_handler_set(count_warning, &n_warnings);
        assert_ok(mlff_replicas_run(replicas, 12, NULL));
        mlff_warning_handler_set(NULL, NULL);
        assert_int_equal(n_warnings, 1);
        if (!strstr(mlff_replicas_error(replicas, 1), "step 2: ")) fail_msg("%s", mlff_replicas_error(replicas, 1));
        assert_string_equal(mlff_replicas_error(replicas, 0), "");
        assert_ok(mlff_dynamics_state_get(mlff_replicas_dynamics(replicas, 1), &now));
        assert_int_equal(now.step, 1);
        assert_true(isfinite(now.conserved_energy));
        assert_same(mlff_replicas_dynamics(replicas, 2), systems[2], expected, alone);
        mlff_replicas_destroy(replicas);
        mlff_dynamics_destroy(expected);
        mlff_evaluator_destroy(evaluator);
        mlff_evaluator_destroy(reference);
        mlff_system_destroy(alone);
        for (int k = 0; k < N_REPLICAS; k++) mlff_system_destroy(systems[k]);
    }
    mlff_model_destroy(model);
}

// The same for dynamics: each call fails once during creation and run.
static void test_dynamics_failures(void **state)
{
    (void)state;
    mlff_model *model = support_model(64, 1, "gaussian", "cosine", 0, 3);
    mlff_system *system = support_random_system(2, 0, 1.2, 51);
    mlff_dynamics_options options = mlff_dynamics_options_default();
    mlff_evaluator *evaluator;
    int failures = 0;
    assert_ok(mlff_system_add_masses(system));
    assert_ok(mlff_system_add_velocities(system));
    assert_ok(create_on(model, MLFF_CUDA, &evaluator));
    support_results settled = support_compute_system(evaluator, system);
    for (int64_t nth = 1;; nth += 8 / SUPPORT_CASES(8)) {
        mlff_dynamics *dynamics = NULL;
        emulate_counts before = counts();
        plan_failure(NULL, nth, UNKNOWN);
        mlff_status status = mlff_dynamics_create_on(evaluator, &options, system, NULL, NULL, &dynamics);
        if (status == MLFF_OK) status = mlff_dynamics_run(dynamics, 2, NULL);
        mlff_dynamics_destroy(dynamics);
        int came = mend();
        if (status != MLFF_OK) {
            failures++;
            assert_int_equal(status, MLFF_ERR_DEVICE);
        } else if (!came) {
            break;
        }
        // Arrays of the evaluator remain; everything else is released with the dynamics. Its graphs may have been dropped.
        emulate_counts after = counts();
        if (after.streams != before.streams || after.host_blocks != before.host_blocks || after.graphs != before.graphs ||
            after.events != before.events || after.blocks > before.blocks + 1 || after.executables > before.executables + 1)
            fail_msg("call %d: %d streams, %d blocks, %d page-locked, %d graphs, %d executables left behind", (int)nth,
                     (int)(after.streams - before.streams), (int)(after.blocks - before.blocks),
                     (int)(after.host_blocks - before.host_blocks), (int)(after.graphs - before.graphs),
                     (int)(after.executables - before.executables));
        support_results again = support_compute_system(evaluator, system); // the evaluator serves on
        assert_int_equal(again.n_atoms, 2);
        support_results_free(&again);
    }
    assert_true(failures > 5);
    support_results_free(&settled);
    mlff_evaluator_destroy(evaluator);
    mlff_system_destroy(system);
    mlff_model_destroy(model);
}

static mlff_status no_exchange(void *context, int layer, const mlff_halo_array *arrays, int n_arrays, mlff_location location,
                               void *stream)
{
    (void)context, (void)layer, (void)arrays, (void)n_arrays, (void)location, (void)stream;
    return MLFF_OK;
}

static void remember(void *context, const char *text)
{
    snprintf(context, 256, "%s", text);
}

// What the GPU cannot integrate, the host integrates with the GPU's forces, with a warning.
static void test_dynamics_on_host(void **state)
{
    (void)state;
    char warned[256] = "";
    mlff_model *model = support_model(64, 1, "gaussian", "cosine", 0, 3);
    mlff_system *system = support_random_system(3, 0, 1.2, 61), *start;
    mlff_evaluator_options with_halo = mlff_evaluator_options_default();
    mlff_dynamics_options options = mlff_dynamics_options_default();
    mlff_evaluator *evaluator, *reference;
    mlff_dynamics *dynamics, *expected;
    with_halo.device = gpu;
    with_halo.halo = &(mlff_halo){.forward = no_exchange, .reverse = no_exchange};
    assert_ok(mlff_system_copy(system, &start));
    assert_ok(mlff_evaluator_create(model, &with_halo, &evaluator));
    assert_ok(create_on(model, MLFF_CPU, &reference));
    mlff_warning_handler_set(remember, warned);
    assert_ok(mlff_dynamics_create_on(evaluator, &options, start, NULL, NULL, &dynamics));
    mlff_warning_handler_set(NULL, NULL);
    assert_non_null(strstr(warned, "the host integrates"));
    assert_int_equal(mlff_dynamics_device(dynamics).kind, MLFF_CPU);
    assert_ok(mlff_dynamics_create_on(reference, &options, system, NULL, NULL, &expected));
    assert_ok(mlff_dynamics_run(dynamics, 3, NULL));
    assert_ok(mlff_dynamics_run(expected, 3, NULL));
    assert_true(support_difference(start->positions, system->positions, 9) <= 1e-6);
    mlff_dynamics_destroy(dynamics);
    mlff_dynamics_destroy(expected);
    mlff_evaluator_destroy(evaluator);
    mlff_evaluator_destroy(reference);
    mlff_system_destroy(start);
    mlff_system_destroy(system);
    mlff_model_destroy(model);
}

// A run that fails names the step, and leaves the atoms as before it. The last of three becomes unstable: 40,000 Å a step; 50,000 are
// beyond the range of coordinates.
static void test_dynamics_unstable(void **state)
{
    (void)state;
    mlff_model *model = support_model(64, 1, "gaussian", "cosine", 0, 3);
    mlff_system *system = support_random_system(3, 0, 1.2, 61);
    mlff_dynamics_options options = mlff_dynamics_options_default();
    mlff_evaluator *evaluator;
    mlff_dynamics *dynamics;
    mlff_dynamics_state now;
    options.timestep_fs = 2.0;
    assert_ok(mlff_system_add_velocities(system));
    double start = system->positions[6];
    system->velocities[6] = 2e4;
    assert_ok(create_on(model, MLFF_CUDA, &evaluator));
    assert_ok(mlff_dynamics_create_on(evaluator, &options, system, NULL, NULL, &dynamics));
    assert_int_equal(mlff_dynamics_run(dynamics, 12, NULL), MLFF_ERR_UNSTABLE);
    if (!strstr(mlff_last_error(), "step 2: atom 2 ")) fail_msg("%s", mlff_last_error());
    assert_ok(mlff_dynamics_state_get(dynamics, &now));
    assert_int_equal(now.step, 1);
    assert_true(isfinite(now.conserved_energy));
    assert_true(fabs(system->positions[6] - start - 4e4) < 10);
    mlff_dynamics_destroy(dynamics);
    mlff_evaluator_destroy(evaluator);
    mlff_system_destroy(system);
    mlff_model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_dynamics),         cmocka_unit_test(test_baths),
                                       cmocka_unit_test(test_restart),          cmocka_unit_test(test_shared_evaluator),
                                       cmocka_unit_test(test_replicas),         cmocka_unit_test(test_behind_constant_pressure),
                                       cmocka_unit_test(test_replica_ends),     cmocka_unit_test(test_dynamics_failures),
                                       cmocka_unit_test(test_dynamics_on_host), cmocka_unit_test(test_dynamics_unstable)};
    return run_on_emulator(tests, sizeof tests / sizeof *tests);
}
