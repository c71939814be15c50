// SPDX-License-Identifier: MIT
// Dynamics on an emulated GPU (tests/emulate), through the public interface: trajectories against the CPU, failures of calls of the CUDA
// runtime, runs that become unstable. No GPU is needed.
#include "plugin_emulated.h"

// Dynamics on the GPU follow those of the CPU in float64, noise and fixed atoms included; rows that become too long on the
// way (crowded) lead to a chunk taken again, not to another trajectory. Tolerance: 20 steps of float32 forces move an atom
// by some 1e-7 Å from where float64 moves it; a forgotten chunk or another noise by 1e-2 Å.
static void follow(mlff_system *system, mlff_ensemble ensemble, double kelvin, int crowded)
{
    mlff_model *model = support_model(64, 1, "gaussian", "cosine", 0, 3);
    mlff_evaluator *reference, *evaluator;
    mlff_dynamics *expected, *dynamics;
    mlff_dynamics_options options = mlff_dynamics_options_default();
    mlff_system *start;
    enum { STEPS = 20 };
    double times[STEPS];
    emulate_counts before = counts();
    size_t n = (size_t)system->n_atoms;
    assert_ok(mlff_system_add_masses(system));
    assert_ok(mlff_system_add_velocities(system));
    assert_ok(mlff_system_thermalize(system, kelvin, 1));
    if (ensemble == MLFF_LANGEVIN) {
        assert_ok(mlff_system_add_fixed(system));
        system->fixed[1] = 1;
        memset(system->velocities + 3, 0, 3 * sizeof(double));
    }
    assert_ok(mlff_system_copy(system, &start));
    options.ensemble = ensemble;
    options.temperature_kelvin = kelvin;
    options.timestep_fs = 1.0;
    options.seed = 7;
    assert_ok(create_on(model, MLFF_CPU, &reference));
    assert_ok(mlff_dynamics_create(&options, system, support_forces_of, reference, &expected));
    assert_ok(mlff_dynamics_run(expected, STEPS, NULL));
    assert_ok(create_on(model, MLFF_CUDA, &evaluator));
    assert_ok(mlff_dynamics_create_on(evaluator, &options, start, NULL, NULL, &dynamics));
    assert_int_equal(mlff_dynamics_device(dynamics).kind, MLFF_CUDA);
    mlff_evaluator_info then, now;
    mlff_dynamics_state ours, theirs;
    mlff_evaluator_info_get(evaluator, &then);
    assert_ok(mlff_dynamics_run(dynamics, 13, times));
    assert_ok(mlff_dynamics_run(dynamics, STEPS - 13, times + 13));
    mlff_evaluator_info_get(evaluator, &now);
    assert_int_equal(now.n_growths > then.n_growths, crowded);
    assert_ok(mlff_dynamics_state_get(dynamics, &ours));
    assert_ok(mlff_dynamics_state_get(expected, &theirs));
    assert_true(support_difference(start->positions, system->positions, 3 * n) <= 1e-5);
    assert_true(support_difference(start->velocities, system->velocities, 3 * n) <= 1e-6);
    assert_true(fabs(ours.conserved_energy - theirs.conserved_energy) <= 1e-5 * (double)n);
    assert_true(fabs(ours.potential_energy - theirs.potential_energy) <= 1e-5 * (double)n);
    for (int k = 0; k < STEPS; k++) assert_true(times[k] > 0); // of the emulated GPU's clock
    if (ensemble == MLFF_LANGEVIN) assert_memory_equal(start->positions + 3, system->positions + 3, 3 * sizeof(double));
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
    follow(molecule, MLFF_NVE, 300, 0);
    follow(bath, MLFF_LANGEVIN, 600, 0);
    mlff_system_destroy(molecule);
    mlff_system_destroy(bath);
    // Rows hold 64 neighbors at first: a hot, dense system that begins with 62 has 67 after ten steps.
    crowd = support_random_system(8, 1, 1.2, 16);
    for (int k = 0; k < 9; k++) crowd->cell[k] *= 0.77;
    for (int k = 0; k < 24; k++) crowd->positions[k] *= 0.77;
    follow(crowd, MLFF_NVE, 20000, 1);
    mlff_system_destroy(crowd);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_dynamics), cmocka_unit_test(test_dynamics_failures),
                                       cmocka_unit_test(test_dynamics_on_host), cmocka_unit_test(test_dynamics_unstable)};
    return run_on_emulator(tests, sizeof tests / sizeof *tests);
}
