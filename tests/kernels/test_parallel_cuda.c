// SPDX-License-Identifier: MIT
// A system divided between two GPUs, its dynamics, and a batch handed out to them, against float64 on one CPU. With the emulated plugin
// (MLFF_CUDA_PLUGIN; MLFF_EMULATE_DEVICES is 2) also GPUs that cannot read each other's memory, and failures of calls of the CUDA
// runtime, after which no domain may wait for another that has failed. Tolerance: support_compare. Skipped with a message where there
// are no two GPUs.
#include <dlfcn.h>

#include "ani_support.h"
#include "emulate/emulate.h"
#include "gpu_support.h"
#include "model/painn/painn.h"

enum { OUT_OF_MEMORY = 2, STRIDE = SUPPORT_SANITIZED ? 101 : 37 };

static emulate_fail_function plan_failure; // NULL: real GPUs
static emulate_mend_function mend;

static void find_emulator(void)
{
    const char *path = getenv("MLFF_CUDA_PLUGIN");
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL, *symbols[2];
    if (!library) return;
    symbols[0] = dlsym(library, "emulate_fail");
    symbols[1] = dlsym(library, "emulate_mend");
    if (!symbols[0] || !symbols[1]) return;
    memcpy(&plan_failure, &symbols[0], sizeof plan_failure);
    memcpy(&mend, &symbols[1], sizeof mend);
}

static mlff_status create_on(const mlff_model *model, int first, int second, mlff_evaluator **evaluator_out)
{
    const mlff_device devices[2] = {{MLFF_CUDA, first}, {MLFF_CUDA, second}};
    mlff_evaluator_options options = mlff_evaluator_options_default();
    options.devices = devices;
    options.n_devices = 2;
    options.skin_angstrom = 0.2; // of the decomposition: 2.4 times as much, which atoms of test_dynamics leave
    return mlff_evaluator_create(model, &options, evaluator_out);
}

static mlff_system *silicon(int n_atoms)
{
    mlff_system *system;
    assert_ok(mlff_system_build("silicon", n_atoms, 0, &system));
    assert_ok(mlff_system_perturb(system, 600, 3));
    return system;
}

static void check(const char *what, const mlff_model *model, const mlff_system *system, int first, int second)
{
    mlff_evaluator *reference = support_evaluator(model, MLFF_FLOAT64), *several;
    assert_ok(create_on(model, first, second, &several));
    support_results expected = support_compute_system(reference, system), got = support_compute_system(several, system);
    support_results again = support_compute_system(several, system);
    support_compare(what, &got, &expected, (double[2]){1e-3, 1e-3});
    assert_memory_equal(got.r.forces, again.r.forces, 3 * (size_t)got.n_atoms * sizeof(double));
    support_results_free(&again);
    support_results_free(&got);
    support_results_free(&expected);
    mlff_evaluator_destroy(several);
    mlff_evaluator_destroy(reference);
}

static mlff_model *small_painn(void)
{
    mlff_model *model;
    assert_ok(support_create(&model, "painn", "n_features=32; n_layers=3; cutoff=3.0; seed=1"));
    return model;
}

static void test_divided(void **state)
{
    (void)state;
    mlff_model *painn = small_painn(), *ani = ani_shaped(&ani_small_2x, 5);
    mlff_system *crystal = silicon(8), *searched_late = silicon(4096), *molecule = ani_random_system(9, 7, 0, 1.2, 61),
                *liquid = ani_random_system(24, 7, 1, 1.2, 62);
    check("PaiNN, two GPUs", painn, crystal, 0, 1);
    check("PaiNN, one GPU twice", painn, crystal, 1, 1);
    check("PaiNN, reverses searched for after the forward pass", painn, searched_late, 0, 1);
    setenv("MLFF_CUDA_PLAN", "cell_list=1,fused_search=0", 1); // as for large systems, without pairs of two ghosts
    check("PaiNN, cell list", painn, crystal, 0, 1);
    check("ANI, cell list", ani, liquid, 0, 1);
    setenv("MLFF_CUDA_PLAN", "cell_list=0,fused_search=0", 1);
    check("PaiNN, search", painn, crystal, 0, 1);
    check("ANI, search", ani, liquid, 0, 1);
    unsetenv("MLFF_CUDA_PLAN");
    check("ANI", ani, molecule, 0, 1);
    if (!plan_failure) {
        mlff_model *usual = support_model(128, 3, "gaussian", "cosine", 0, 1);
        mlff_system *large = silicon(1000);
        check("PaiNN, 1000 atoms", usual, large, 0, 1);
        mlff_system_destroy(large);
        mlff_model_destroy(usual);
    }
    mlff_system_destroy(crystal);
    mlff_system_destroy(searched_late);
    mlff_system_destroy(molecule);
    mlff_system_destroy(liquid);
    mlff_model_destroy(painn);
    mlff_model_destroy(ani);
}

// A chain whose first atoms exceed the range of halves by far; its other end, more layers than one away, does not. Both domains repeat the
// step with float32's range, and agree with float64 within the tolerances of usual activations.
static void test_range(void **state)
{
    (void)state;
    enum { N = 24 };
    mlff_model *model;
    mlff_system *chain;
    assert_ok(support_create(&model, "painn", "n_features=32; n_layers=2; cutoff=3.0; seed=1"));
    painn_parameters *parameters = (painn_parameters *)(uintptr_t)model->parameters;
    const size_t width = (size_t)parameters->n_features, n = (size_t)parameters->n_species * width;
    float *embedding = base_alloc(n, sizeof *embedding, "embedding");
    memcpy(embedding, parameters->embedding, n * sizeof *embedding);
    const int sulfur = mlff_element_number("S"), carbon = mlff_element_number("C");
    for (size_t k = 0; k < width; k++) embedding[(size_t)sulfur * width + k] *= 1e4f;
    parameters->embedding = embedding;
    assert_ok(mlff_system_create(N, &chain));
    for (int i = 0; i < N; i++) {
        chain->species[i] = i < 3 ? sulfur : carbon;
        chain->positions[3 * i] = 1.7 * i;
        chain->positions[3 * i + 1] = 0.4 * (i % 3);
        chain->positions[3 * i + 2] = 0.3 * (i % 2);
    }
    check("a chain beyond the range of halves", model, chain, 0, 1);
    mlff_system_destroy(chain);
    parameters->embedding = NULL;
    base_free(embedding);
    mlff_model_destroy(model);
}

// Orb has no energies of atoms: one of the GPUs computes the system whole, with the bits of a GPU by itself.
static void test_not_divided(void **state)
{
    (void)state;
    mlff_model *model;
    mlff_system *molecule = ani_random_system(3, 4, 0, 1.2, 61);
    mlff_evaluator *one, *several;
    mlff_evaluator_options options = mlff_evaluator_options_default();
    options.device.kind = MLFF_CUDA;
    int32_t first_atom[2];
    mlff_batch batch;
    double energy[2], forces[2][9];
    assert_ok(support_create(&model, "orb-v2", "n_layers=1; hidden=512; seed=9"));
    mlff_batch_from_system(molecule, first_atom, &batch);
    assert_ok(mlff_evaluator_create(model, &options, &one));
    assert_ok(create_on(model, 0, 1, &several));
    for (int k = 0; k < 2; k++)
        assert_ok(
            mlff_evaluator_compute(k ? several : one, &batch, &(mlff_results){.energies = &energy[k], .forces = forces[k]}));
    assert_memory_equal(&energy[0], &energy[1], sizeof(double));
    assert_memory_equal(forces[0], forces[1], sizeof forces[0]);
    mlff_evaluator_destroy(one);
    mlff_evaluator_destroy(several);
    mlff_system_destroy(molecule);
    mlff_model_destroy(model);
}

static void test_handed_out(void **state)
{
    (void)state;
    mlff_model *painn = small_painn();
    mlff_system *systems[3] = {silicon(8), silicon(8), silicon(8)};
    joined j = join(systems, 3);
    mlff_evaluator *reference = support_evaluator(painn, MLFF_FLOAT64), *several;
    assert_ok(create_on(painn, 0, 1, &several));
    support_results expected = support_compute(reference, &j.batch), got = support_compute(several, &j.batch);
    support_compare("three systems on two GPUs", &got, &expected, (double[2]){1e-3, 1e-3});
    support_results_free(&got);
    support_results_free(&expected);
    mlff_evaluator_destroy(several);
    mlff_evaluator_destroy(reference);
    unjoin(&j);
    for (int k = 0; k < 3; k++) mlff_system_destroy(systems[k]);
    mlff_model_destroy(painn);
}

static void test_gpus_apart(void **state)
{
    (void)state;
    if (!plan_failure) return;
    mlff_model *painn = small_painn();
    mlff_system *system = silicon(8);
    mlff_evaluator *several;
    int32_t first_atom[2];
    mlff_batch batch;
    double energy;
    mlff_batch_from_system(system, first_atom, &batch);
    setenv("MLFF_EMULATE_PEERS", "0", 1);
    assert_ok(create_on(painn, 0, 1, &several)); // a batch of several systems needs no access
    assert_int_equal(mlff_evaluator_compute(several, &batch, &(mlff_results){.energies = &energy}), MLFF_ERR_UNSUPPORTED);
    assert_non_null(strstr(mlff_last_error(), "cannot read the memory of cuda:1"));
    unsetenv("MLFF_EMULATE_PEERS");
    assert_ok(mlff_evaluator_compute(several, &batch, &(mlff_results){.energies = &energy}));
    mlff_evaluator_destroy(several);
    mlff_system_destroy(system);
    mlff_model_destroy(painn);
}

static mlff_dynamics_options hot_options(mlff_ensemble ensemble)
{
    mlff_dynamics_options options = mlff_dynamics_options_default();
    options.ensemble = ensemble;
    options.barostat_fs = 50;
    options.timestep_fs = 2;
    options.temperature_kelvin = 3000;
    return options;
}

static mlff_system *run_hot(mlff_evaluator *evaluator, mlff_ensemble ensemble, int n_steps, mlff_device_kind kind)
{
    const mlff_dynamics_options options = hot_options(ensemble);
    mlff_system *system = silicon(8);
    mlff_dynamics *dynamics;
    assert_ok(mlff_system_thermalize(system, 3000, 1));
    assert_ok(mlff_dynamics_create_on(evaluator, &options, system, NULL, NULL, &dynamics));
    assert_int_equal(mlff_dynamics_device(dynamics).kind, kind);
    assert_ok(mlff_dynamics_run(dynamics, n_steps, NULL));
    mlff_dynamics_destroy(dynamics);
    return system;
}

// Forces are off by 1e-6 of some 0.1 eV/Å, which in N_STEPS steps of 2 fs moves an atom of 28 amu by some 1e-8 Å.
enum { N_STEPS = 12 };
#define SAME_POSITION 1e-6

static void test_dynamics(void **state)
{
    (void)state;
    mlff_model *painn = small_painn();
    mlff_evaluator *reference = support_evaluator(painn, MLFF_FLOAT64), *several;
    assert_ok(create_on(painn, 0, 1, &several));
    static const mlff_ensemble ensembles[] = {MLFF_BUSSI, MLFF_SCR, MLFF_MTK};
    for (int k = 0; k < 3; k++) {
        mlff_system *expected = run_hot(reference, ensembles[k], N_STEPS, MLFF_CPU),
                    *got = run_hot(several, ensembles[k], N_STEPS, MLFF_CUDA),
                    *again = run_hot(several, ensembles[k], N_STEPS, MLFF_CUDA), *begun = silicon(8);
        const size_t n = 3 * (size_t)got->n_atoms;
        assert_true(support_difference(got->positions, expected->positions, n) < SAME_POSITION);
        assert_true(support_difference(got->cell, expected->cell, 9) < SAME_POSITION);
        assert_memory_equal(got->positions, again->positions, n * sizeof(double));
        assert_memory_equal(got->cell, again->cell, sizeof got->cell);
        assert_true(support_difference(got->positions, begun->positions, n) > 0.24); // half the skin: it was decomposed again
        assert_true((fabs(got->cell[0] - begun->cell[0]) > 0.01) == (k > 0));
        mlff_system *const all[4] = {expected, got, again, begun};
        for (int j = 0; j < 4; j++) mlff_system_destroy(all[j]);
    }
    mlff_evaluator_destroy(several);
    mlff_evaluator_destroy(reference);
    mlff_model_destroy(painn);
}

// Between its runs the evaluator serves others: the same system where it is now, whose cell has changed, and a larger one. Each makes other
// domains, out of which the dynamics go on.
static void test_shared_evaluator(void **state)
{
    (void)state;
    mlff_model *painn = small_painn();
    mlff_evaluator *several;
    assert_ok(create_on(painn, 0, 1, &several));
    mlff_system *expected = run_hot(several, MLFF_SCR, N_STEPS, MLFF_CUDA), *system = silicon(8), *larger = silicon(16);
    const mlff_dynamics_options options = hot_options(MLFF_SCR);
    mlff_dynamics *dynamics;
    assert_ok(mlff_system_thermalize(system, 3000, 1));
    assert_ok(mlff_dynamics_create_on(several, &options, system, NULL, NULL, &dynamics));
    for (int k = 0; k < 3; k++) {
        assert_ok(mlff_dynamics_run(dynamics, N_STEPS / 3, NULL));
        support_results results = support_compute_system(several, k == 0 ? system : larger);
        support_results_free(&results);
    }
    assert_true(support_difference(system->positions, expected->positions, 3 * (size_t)system->n_atoms) < SAME_POSITION);
    assert_true(support_difference(system->cell, expected->cell, 9) < SAME_POSITION);
    mlff_dynamics_destroy(dynamics);
    mlff_evaluator_destroy(several);
    mlff_system_destroy(expected);
    mlff_system_destroy(system);
    mlff_system_destroy(larger);
    mlff_model_destroy(painn);
}

// Calls of the runtime that fail within a run: it ends at its last good step, and goes on from there.
static void test_failing_steps(void **state)
{
    (void)state;
    if (!plan_failure) return;
    mlff_model *painn = small_painn();
    mlff_evaluator *several;
    assert_ok(create_on(painn, 0, 1, &several));
    mlff_system *expected = run_hot(several, MLFF_MTK, N_STEPS, MLFF_CUDA);
    int n_failed = 0, came = 1;
    for (int64_t nth = 1; came; nth += 3 * STRIDE) {
        const mlff_dynamics_options options = hot_options(MLFF_MTK);
        mlff_system *system = silicon(8);
        mlff_dynamics *dynamics;
        mlff_dynamics_state now;
        assert_ok(mlff_system_thermalize(system, 3000, 1));
        assert_ok(mlff_dynamics_create_on(several, &options, system, NULL, NULL, &dynamics));
        plan_failure(NULL, nth, OUT_OF_MEMORY);
        const mlff_status status = mlff_dynamics_run(dynamics, N_STEPS, NULL);
        came = mend();
        if (status != MLFF_OK) assert_null(strstr(mlff_last_error(), "another domain"));
        n_failed += status != MLFF_OK;
        assert_ok(mlff_dynamics_state_get(dynamics, &now));
        assert_true(status == MLFF_OK ? now.step == N_STEPS : now.step <= N_STEPS); // the copy of the last state may fail
        assert_ok(mlff_dynamics_run(dynamics, N_STEPS - now.step, NULL));
        assert_true(support_difference(system->positions, expected->positions, 3 * (size_t)system->n_atoms) < SAME_POSITION);
        mlff_dynamics_destroy(dynamics);
        mlff_system_destroy(system);
    }
    assert_true(n_failed > 5);
    mlff_evaluator_destroy(several);
    mlff_system_destroy(expected);
    mlff_model_destroy(painn);
}

// Every STRIDE-th call of creation and of two computations fails in turn.
static void test_failing_calls(void **state)
{
    (void)state;
    if (!plan_failure) return;
    mlff_model *painn = small_painn();
    mlff_system *system = silicon(8);
    int32_t first_atom[2];
    mlff_batch batch;
    double energy, *forces = calloc(3 * (size_t)system->n_atoms, sizeof *forces);
    const mlff_results wanted = {.energies = &energy, .forces = forces};
    mlff_batch_from_system(system, first_atom, &batch);
    int n_failed = 0, came = 1;
    for (int64_t nth = 1; came; nth += STRIDE) {
        mlff_evaluator *several = NULL;
        plan_failure(NULL, nth, OUT_OF_MEMORY);
        mlff_status status = create_on(painn, 0, 1, &several);
        if (status == MLFF_OK) status = mlff_evaluator_compute(several, &batch, &wanted);
        if (status == MLFF_OK) status = mlff_evaluator_compute(several, &batch, &wanted);
        came = mend();
        if (status != MLFF_OK) {
            assert_null(strstr(mlff_last_error(), "another domain"));
            n_failed++;
        }
        if (several && status != MLFF_OK) assert_ok(mlff_evaluator_compute(several, &batch, &wanted));
        mlff_evaluator_destroy(several);
    }
    assert_true(n_failed > 5);
    free(forces);
    mlff_system_destroy(system);
    mlff_model_destroy(painn);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpus_apart), // first: access is granted once for all
        cmocka_unit_test(test_divided),       cmocka_unit_test(test_range),
        cmocka_unit_test(test_not_divided),   cmocka_unit_test(test_handed_out),
        cmocka_unit_test(test_dynamics),      cmocka_unit_test(test_failing_calls),
        cmocka_unit_test(test_failing_steps), cmocka_unit_test(test_shared_evaluator),
    };
    find_emulator();
    if (mlff_device_count(MLFF_CUDA) < 2) {
        printf("skipped: no two GPUs: %s\n", mlff_device_problem());
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
