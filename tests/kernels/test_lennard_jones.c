// SPDX-License-Identifier: MIT
// Purpose: a new architecture through the two registries, on the CPU and on the GPU that MLFF_CUDA_PLUGIN offers: energies, forces
// and virials against the closed form summed over all pairs and images, dynamics, and the profiler against known work.
// Tolerances: 1e-12 of the largest force on the CPU, float64 in another order; 2e-5 on the GPU, whose edges are float32 and whose
// forces grow as the thirteenth power of a distance.
#include "gpu_support.h"
#include "lennard_jones/lj_model.h"
#include "mlff_profile.h"
#include "profile/profile.h"

static int has_lennard_jones_on_gpu(void)
{
    mlff_model *model;
    mlff_evaluator *evaluator = NULL;
    mlff_evaluator_options options = mlff_evaluator_options_default();
    if (!have_gpu()) return 0;
    options.device.kind = MLFF_CUDA;
    assert_ok(mlff_model_create("lennard-jones", NULL, &model));
    mlff_status status = mlff_evaluator_create(model, &options, &evaluator);
    if (status == MLFF_ERR_UNSUPPORTED) {
        assert_string_equal(mlff_last_error(), "Lennard-Jones runs on the CPU only; use device cpu");
        printf("skipped: the plugin is without the tests' architecture\n");
    } else {
        assert_ok(status);
    }
    mlff_evaluator_destroy(evaluator);
    mlff_model_destroy(model);
    return status == MLFF_OK;
}

static mlff_evaluator *evaluator_on(const mlff_model *model, mlff_device_kind kind)
{
    mlff_evaluator_options options = mlff_evaluator_options_default();
    mlff_evaluator *evaluator;
    options.device.kind = kind;
    assert_ok(mlff_evaluator_create(model, &options, &evaluator));
    return evaluator;
}

// n atoms of argon, no two closer than 3 Å.
static mlff_system *argon(int n, int periodic, uint64_t seed)
{
    mlff_system *system = support_random_system(n, periodic, 2.0, seed);
    for (int i = 0; i < n; i++) system->species[i] = 18;
    for (int k = 0; k < 3 * n; k++) system->positions[k] *= 1.5;
    for (int k = 0; k < 9; k++) system->cell[k] *= 1.5;
    return system;
}

// All pairs of atoms and images within the cutoff, in another order than any list.
static void closed_form(const lj_parameters *p, const mlff_system *system, double *energy, double *forces, double virial[9],
                        double *virials)
{
    const int n = system->n_atoms, images = system->periodic[0] ? 4 : 0;
    *energy = 0;
    memset(forces, 0, sizeof(double) * 3 * (size_t)n);
    memset(virial, 0, sizeof(double) * 9);
    memset(virials, 0, sizeof(double) * 9 * (size_t)n);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            for (int cell = 0; cell < (2 * images + 1) * (2 * images + 1) * (2 * images + 1); cell++) {
                const int side = 2 * images + 1,
                          s[3] = {cell % side - images, cell / side % side - images, cell / side / side - images};
                double v[3], r2 = 0, by_r;
                for (int c = 0; c < 3; c++) {
                    v[c] = system->positions[3 * j + c] - system->positions[3 * i + c];
                    for (int a = 0; a < 3; a++) v[c] += s[a] * system->cell[3 * a + c];
                    r2 += v[c] * v[c];
                }
                if (r2 == 0 || r2 >= p->cutoff * p->cutoff) continue;
                *energy += 0.5 * lj_pair(p, r2, sqrt(r2), &by_r);
                for (int a = 0; a < 3; a++) {
                    forces[3 * i + a] += by_r * v[a];
                    for (int b = 0; b < 3; b++) {
                        virial[3 * a + b] -= 0.5 * by_r * v[a] * v[b];
                        virials[9 * i + 3 * a + b] -= 0.5 * by_r * v[a] * v[b]; // half of the pair; j has the other half
                    }
                }
            }
}

// Each atom's half of its pairs on the CPU; a GPU refuses, with the reason.
static void check_atom_virials(mlff_evaluator *evaluator, mlff_device_kind kind, const mlff_system *system,
                               const double *expected, double tolerance)
{
    const size_t n = 9 * (size_t)system->n_atoms;
    double *got = calloc(n, sizeof *got);
    int32_t first_atom[2];
    mlff_batch batch;
    mlff_batch_from_system(system, first_atom, &batch);
    const mlff_status status = mlff_evaluator_compute(evaluator, &batch, &(mlff_results){.atom_virials = got});
    if (kind == MLFF_CPU) {
        assert_ok(status);
        assert_true(support_difference(got, expected, n) <= tolerance * (support_largest(expected, n) + 1e-6));
    } else {
        assert_int_equal(status, MLFF_ERR_UNSUPPORTED);
        assert_string_equal(mlff_last_error(), "virials of atoms are computed on one CPU only; choose device cpu");
    }
    free(got);
}

static void check_device(mlff_device_kind kind, double tolerance)
{
    mlff_model *model;
    assert_ok(support_create(&model, "lennard-jones", "cutoff=7"));
    mlff_evaluator *evaluator = evaluator_on(model, kind);
    for (int periodic = 0; periodic <= 1; periodic++)
        for (int n = 2; n <= 40; n += 19) {
            mlff_system *system = argon(n, periodic, 5);
            double energy, virial[9], *forces = calloc(3 * (size_t)n, sizeof *forces),
                                      *virials = calloc(9 * (size_t)n, sizeof *virials);
            closed_form(model->parameters, system, &energy, forces, virial, virials);
            check_atom_virials(evaluator, kind, system, virials, tolerance);
            support_results got = support_compute_system(evaluator, system);
            const double size = support_largest(forces, 3 * (size_t)n) + 1e-6, energies = fabs(energy) + 1e-3 * n;
            const double df = support_difference(got.r.forces, forces, 3 * (size_t)n) / size;
            const double dv = support_difference(got.r.virials, virial, 9) / (support_largest(virial, 9) + 1e-6);
            double sum = 0;
            for (int i = 0; i < n; i++) sum += got.r.atom_energies[i];
            printf("%s, %d atoms%s: forces %.1e, virial %.1e, energy %.1e\n", kind == MLFF_CPU ? "CPU" : "GPU", n,
                   periodic ? ", periodic" : "", df, dv, fabs(got.r.energies[0] - energy) / energies);
            assert_true(df <= tolerance && dv <= tolerance && fabs(got.r.energies[0] - energy) <= tolerance * energies);
            assert_true(fabs(sum - got.r.energies[0]) <= 1e-12 * energies);
            support_results_free(&got);
            free(forces);
            free(virials);
            mlff_system_destroy(system);
        }
    mlff_evaluator_destroy(evaluator);
    mlff_model_destroy(model);
}

static void test_closed_form(void **state)
{
    (void)state;
    check_device(MLFF_CPU, 1e-12);
    if (has_lennard_jones_on_gpu()) check_device(MLFF_CUDA, 2e-5);
}

// Several systems at once, ghosts: the GPU as the CPU.
static void test_batches_on_gpu(void **state)
{
    (void)state;
    if (!has_lennard_jones_on_gpu()) return;
    mlff_model *model;
    assert_ok(support_create(&model, "lennard-jones", "cutoff=7"));
    mlff_evaluator *cpu = evaluator_on(model, MLFF_CPU), *gpu = evaluator_on(model, MLFF_CUDA);
    mlff_system *systems[3] = {argon(5, 0, 1), argon(12, 1, 2), argon(33, 0, 3)};
    joined all = join(systems, 3);
    unsigned char owned[50];
    for (int i = 0; i < 50; i++) owned[i] = i % 4 != 1;
    for (int ghosts = 0; ghosts <= 1; ghosts++) {
        all.batch.owned = ghosts ? owned : NULL;
        support_results expected = support_compute(cpu, &all.batch), got = support_compute(gpu, &all.batch);
        const double size = support_largest(expected.r.forces, 150);
        assert_true(support_difference(got.r.forces, expected.r.forces, 150) <= 2e-5 * size);
        assert_true(support_difference(got.r.atom_energies, expected.r.atom_energies, 50) <= 2e-5 * size);
        assert_true(support_difference(got.r.virials, expected.r.virials, 27) <= 2e-5 * support_largest(expected.r.virials, 27));
        support_results_free(&expected);
        support_results_free(&got);
    }
    unjoin(&all);
    for (int k = 0; k < 3; k++) mlff_system_destroy(systems[k]);
    mlff_evaluator_destroy(cpu);
    mlff_evaluator_destroy(gpu);
    mlff_model_destroy(model);
}

// NVE of a warm cluster: the energy is conserved, and the GPU follows the host.
static void test_dynamics(void **state)
{
    (void)state;
    mlff_model *model;
    mlff_dynamics_options options = mlff_dynamics_options_default();
    const int on_gpu = has_lennard_jones_on_gpu(), n_steps = 60;
    double first[3 * 20];
    options.timestep_fs = 2.0;
    options.temperature_kelvin = 40;
    assert_ok(support_create(&model, "lennard-jones", "cutoff=7"));
    for (int kind = MLFF_CPU; kind <= (on_gpu ? MLFF_CUDA : MLFF_CPU); kind++) {
        mlff_evaluator *evaluator = evaluator_on(model, (mlff_device_kind)kind);
        mlff_system *system = argon(20, 1, 9);
        mlff_dynamics *dynamics;
        mlff_dynamics_state before, after;
        assert_ok(mlff_system_add_masses(system));
        assert_ok(mlff_system_add_velocities(system));
        assert_ok(mlff_system_thermalize(system, 40, 4));
        assert_ok(mlff_dynamics_create_on(evaluator, &options, system, NULL, NULL, &dynamics));
        assert_int_equal(mlff_dynamics_device(dynamics).kind, kind);
        assert_ok(mlff_dynamics_run(dynamics, 1, NULL));
        mlff_dynamics_state_get(dynamics, &before);
        assert_ok(mlff_dynamics_run(dynamics, n_steps, NULL));
        mlff_dynamics_state_get(dynamics, &after);
        const double drift = after.potential_energy + after.kinetic_energy - before.potential_energy - before.kinetic_energy;
        const double moved = fabs(after.potential_energy - before.potential_energy);
        printf("%s: the energy drifts by %.1e eV while %.1e eV change form\n", kind == MLFF_CPU ? "CPU" : "GPU", drift, moved);
        assert_true(moved > 1e-3);
        assert_true(fabs(drift) < 0.02 * moved); // the second order of the step of 2 fs
        if (kind == MLFF_CPU)
            memcpy(first, system->positions, sizeof first);
        else // float32 edges, 2e-5 of the force in each of 61 steps
            assert_true(support_difference(system->positions, first, 60) < 1e-4);
        mlff_dynamics_destroy(dynamics);
        mlff_system_destroy(system);
        mlff_evaluator_destroy(evaluator);
    }
    mlff_model_destroy(model);
}

// A profile of known work: the record has it exactly, and the least time for it is not above the time taken.
static void test_profile(void **state)
{
    (void)state;
    mlff_model *model;
    mlff_callable callable;
    mlff_trajectory *trajectory;
    mlff_profile *profile;
    mlff_profile_options options = mlff_profile_options_default();
    int n_stages;
    assert_ok(mlff_model_create("lennard-jones", NULL, &model));
    mlff_evaluator *evaluator = evaluator_on(model, MLFF_CPU);
    mlff_system *system = argon(2000, 1, 3);
    options.n_steps = 30;
    options.split = 0;
    assert_ok(mlff_callable_from_evaluator(evaluator, model, &callable));
    assert_ok(mlff_trajectory_thermal(system, 10, 0, &trajectory));
    assert_ok(mlff_profile_run(&callable, trajectory, &options, &profile));
    (void)mlff_profile_stages(profile, &n_stages);
    const profile_stage *row = NULL;
    for (int k = 0; k < n_stages; k++)
        if (strcmp(profile->stages[k].name, "pair_sum") == 0) row = &profile->stages[k];
    assert_non_null(row);
    const double pairs = profile->summary.mean_pairs;
    assert_true(pairs > 2000 * 20);
    assert_true(row->flops == LJ_WORK_PER_PAIR * pairs);
    assert_true(row->bytes == LJ_BYTES_PER_PAIR * pairs + LJ_BYTES_PER_ATOM * 2000.0);
    printf("pair_sum: %.0f pairs, at least %.3g ms, took %.3g ms\n", pairs, row->bound_ms, row->shown.median_ms);
    assert_true(row->bound_ms > 0 && row->bound_ms <= row->shown.median_ms);
    assert_true(row->bound_ms >
                2e-4 * row->shown.median_ms); // a scalar loop reaches 4 % of the ceilings, 20 times less when sanitized
    assert_non_null(strstr(row->advice, "closed form"));
    mlff_profile_destroy(profile);
    mlff_trajectory_destroy(trajectory);
    mlff_callable_destroy(&callable);
    mlff_system_destroy(system);
    mlff_evaluator_destroy(evaluator);
    mlff_model_destroy(model);
}

// Stages on the GPU: their clocks, descriptions and kernels.
static void test_stages_on_gpu(void **state)
{
    (void)state;
    if (!has_lennard_jones_on_gpu()) return;
    mlff_model *model;
    int n;
    double time_ns[16], sum = 0;
    assert_ok(mlff_model_create("lennard-jones", NULL, &model));
    mlff_evaluator *evaluator = evaluator_on(model, MLFF_CUDA);
    mlff_system *system = argon(12, 0, 3);
    const mlff_stage *stages = mlff_evaluator_stages(evaluator, &n);
    const int pair_sum = 6; // inputs, repeated, enqueue, launch, transfer, neighbors, pair_sum, sums, wait, results
    assert_int_equal(n, 10);
    assert_string_equal(stages[pair_sum].name, "pair_sum");
    for (int k = 0; k < n; k++) assert_true(strlen(mlff_evaluator_stage_advice(evaluator, k)) > 40);
    mlff_stage_work work;
    assert_int_equal(mlff_evaluator_stage_work(evaluator, pair_sum, &(mlff_work_size){1, 12, 132}, &work), 1);
    assert_true(work.flops == LJ_WORK_PER_PAIR * 132.0);
    assert_string_equal(mlff_evaluator_kernel_stage(evaluator, "lj_pair_kernel(lj_gpu_step, int)"), "forward/pair_sum");
    assert_string_equal(mlff_evaluator_kernel_stage(evaluator, "search_kernel<4>"), "forward/neighbors");
    assert_null(mlff_evaluator_kernel_stage(evaluator, "message_kernel<128>"));
    assert_ok(mlff_evaluator_stage_clock_set(evaluator, 1));
    for (int k = 0; k < 2; k++) (void)support_energy(evaluator, system);
    mlff_evaluator_stage_times(evaluator, time_ns);
    for (int k = 0; k < n; k++) sum += time_ns[k];
    assert_true(time_ns[pair_sum] > 0 && sum < 1e12);
    mlff_system_destroy(system);
    mlff_evaluator_destroy(evaluator);
    mlff_model_destroy(model);
}

static void test_file(void **state)
{
    (void)state;
    char path[] = "/tmp/lennard-jones-XXXXXX.safetensors";
    mlff_model *model, *again;
    mlff_model_info info;
    const int descriptor = mkstemps(path, 12);
    assert_true(descriptor >= 0);
    close(descriptor);
    assert_ok(support_create(&model, "lennard-jones", "epsilon=0.02; sigma=3; cutoff=6; elements=Ar,Kr"));
    assert_ok(mlff_model_save(model, path));
    assert_ok(mlff_model_load(path, &again));
    assert_memory_equal(model->parameters, again->parameters, sizeof(lj_parameters));
    mlff_model_info_get(again, &info);
    assert_string_equal(info.architecture, "lennard-jones");
    assert_int_equal(info.n_elements, 2);
    unlink(path);
    mlff_model_destroy(model);
    mlff_model_destroy(again);
}

static int add_architecture(void **state)
{
    (void)state;
    return model_architecture_register(&lj_architecture) != MLFF_OK;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_closed_form),   cmocka_unit_test(test_batches_on_gpu),
                                       cmocka_unit_test(test_dynamics),      cmocka_unit_test(test_profile),
                                       cmocka_unit_test(test_stages_on_gpu), cmocka_unit_test(test_file)};
    return cmocka_run_group_tests(tests, add_architecture, NULL);
}
