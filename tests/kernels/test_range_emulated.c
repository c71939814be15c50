// SPDX-License-Identifier: MIT
// Activations beyond what halves hold (some 4,000), on an emulated GPU (tests/emulate): a step that exceeds them is repeated with
// float32's range, in calls with host and device arrays and in dynamics; float32's own limit is the limit. No GPU is needed.
// Tolerance: 2e-5 of the rms force against float64, as within the range of halves; energies 1e-5 of their size: tensor cores truncate sums
// (4.8e-6 on an H200; 1e-6 when emulated).
#include "ani_support.h"
#include "gpu_support.h"
#include "model/painn/painn.h"

static const mlff_device gpu = {MLFF_CUDA, 0};

// An untrained model whose embedding, with which all activations grow, is multiplied by `factor`, and a few atoms.
typedef struct scene {
    mlff_model *model;
    float *embedding, *last; // of the model, scaled
    mlff_system *system;
    int32_t first_atom[2];
    mlff_batch batch;
    double largest; // number of the embedding
} scene;

static void make_scene(scene *s, int n_features, double factor)
{
    *s = (scene){.model = support_model(n_features, 1, "gaussian", "cosine", 0, 3),
                 .system = support_random_system(5, 0, 1.2, 41)};
    painn_parameters *parameters = (painn_parameters *)(uintptr_t)s->model->parameters;
    const size_t n = (size_t)parameters->n_species * (size_t)n_features;
    s->embedding = base_alloc(n, sizeof *s->embedding, "embedding");
    for (size_t k = 0; k < n; k++) {
        s->embedding[k] = (float)(factor * parameters->embedding[k]);
        s->largest = fmax(s->largest, fabs(s->embedding[k]));
    }
    parameters->embedding = s->embedding;
    s->first_atom[1] = s->system->n_atoms;
    s->batch = (mlff_batch){
        .n_systems = 1, .first_atom = s->first_atom, .species = s->system->species, .positions = s->system->positions};
}

// Multiplies energies and forces by `factor`.
static void scale_energies(scene *s, double factor)
{
    painn_parameters *parameters = (painn_parameters *)(uintptr_t)s->model->parameters;
    const int n = parameters->readout_width[1];
    s->last = base_alloc((size_t)n, sizeof *s->last, "readout");
    for (int k = 0; k < n; k++) s->last[k] = (float)(factor * parameters->readout_weight[1][k]);
    parameters->readout_weight[1] = s->last;
}

static void free_scene(scene *s)
{
    base_free(s->embedding);
    base_free(s->last);
    mlff_system_destroy(s->system);
    mlff_model_destroy(s->model);
}

static mlff_evaluator *create_on(const mlff_model *model, mlff_device_kind kind, mlff_precision precision)
{
    mlff_evaluator_options options = mlff_evaluator_options_default();
    mlff_evaluator *evaluator;
    options.device.kind = kind;
    options.precision = precision;
    assert_ok(mlff_evaluator_create(model, &options, &evaluator));
    return evaluator;
}

static support_results reference_of(const scene *s)
{
    mlff_evaluator *reference = create_on(s->model, MLFF_CPU, MLFF_FLOAT64);
    const support_results expected = support_compute(reference, &s->batch);
    mlff_evaluator_destroy(reference);
    return expected;
}

static void compare(const support_results *got, const support_results *expected, double factor)
{
    const size_t n = 3 * (size_t)expected->n_atoms;
    const double force = rms(expected->r.forces, n), df = support_difference(got->r.forces, expected->r.forces, n),
                 energy = support_atom_energy_size(expected), de = fabs(got->r.energies[0] - expected->r.energies[0]);
    if (!(df <= 4 * 2e-5 * force && de <= 1e-5 * energy))
        fail_msg("weights times %g: forces off by %.2e of %.2e rms, energy by %.2e of %.2e", factor, df, force, de, energy);
}

static void test_host(void **state)
{
    (void)state;
    static const int widths[] = {32, 64, 128};
    for (int w = 0; w < 3; w++)
        for (double factor = 1; factor < 1e11; factor *= 1e5) { // 1, 1e5, 1e10
            scene s;
            make_scene(&s, widths[w], factor);
            if (factor > 1) assert_true(s.largest > 2 * factor);
            support_results expected = reference_of(&s);
            mlff_evaluator *evaluator = create_on(s.model, MLFF_CUDA, MLFF_FLOAT32);
            support_results got = support_compute(evaluator, &s.batch), again = support_compute(evaluator, &s.batch);
            compare(&got, &expected, factor);
            assert_memory_equal(got.r.forces, again.r.forces, 3 * (size_t)got.n_atoms * sizeof(double));
            mlff_evaluator_destroy(evaluator);
            support_results_free(&expected);
            support_results_free(&got);
            support_results_free(&again);
            free_scene(&s);
        }
}

static double stage_ns(const mlff_stage *stages, const double *time_ns, int n, const char *name)
{
    for (int k = 0; k < n; k++)
        if (strcmp(stages[k].name, name) == 0) return time_ns[k];
    fail_msg("no stage %s", name);
    return 0;
}

// The time of the computation that was given up is a stage of its own: not of the inputs, which a copy of five atoms is.
static void test_stage(void **state)
{
    (void)state;
    for (double factor = 1; factor <= 1e5; factor *= 1e5) {
        scene s;
        make_scene(&s, 32, factor);
        mlff_evaluator *evaluator = create_on(s.model, MLFF_CUDA, MLFF_FLOAT32);
        int n;
        double time_ns[64];
        assert_ok(mlff_evaluator_stage_clock_set(evaluator, 1));
        for (int call = 0; call < 2; call++) {
            support_results got = support_compute(evaluator, &s.batch);
            support_results_free(&got);
        }
        const mlff_stage *stages = mlff_evaluator_stages(evaluator, &n);
        assert_true(n <= 64);
        mlff_evaluator_stage_times(evaluator, time_ns);
        const double repeated = stage_ns(stages, time_ns, n, "repeated"), inputs = stage_ns(stages, time_ns, n, "inputs");
        if (factor > 1)
            assert_true(repeated > 10 * inputs); // an emulated step takes milliseconds
        else
            assert_true(repeated == 0);
        assert_true(inputs > 0);
        mlff_evaluator_destroy(evaluator);
        free_scene(&s);
    }
}

// ANI: the first layer's weights times 100 and 10,000 give activations of up to some 10² and 10⁵; the latter are repeated with a smaller
// scale factor. In two systems of one batch, one of them without such activations: a lone atom, whose AEV is zero.
static void test_ani(void **state)
{
    (void)state;
    mlff_system *systems[2] = {ani_random_system(6, 4, 0, 1.2, 61), ani_random_system(1, 4, 0, 1.2, 62)};
    for (double factor = 1; factor <= 1e4; factor *= 100) {
        mlff_model *model = ani_shaped(&ani_small_2x, 5);
        const ani_parameters *parameters = model->parameters;
        for (int m = 0; m < parameters->n_members; m++)
            for (int s = 0; s < parameters->n_species; s++) {
                const ani_network *net = &parameters->network[m][s];
                float *weight = (float *)(uintptr_t)net->weight[0];
                for (int k = 0; k < net->width[0] * net->width[1]; k++) weight[k] *= (float)factor;
            }
        joined j = join(systems, 2);
        mlff_evaluator *reference = create_on(model, MLFF_CPU, MLFF_FLOAT64),
                       *evaluator = create_on(model, MLFF_CUDA, MLFF_FLOAT32);
        support_results expected = support_compute(reference, &j.batch), got = support_compute(evaluator, &j.batch),
                        again = support_compute(evaluator, &j.batch);
        compare(&got, &expected, factor);
        assert_true(fabs(got.r.energies[1] - expected.r.energies[1]) <= 1e-5 * fabs(expected.r.energies[1]));
        assert_memory_equal(got.r.forces, again.r.forces, 3 * (size_t)got.n_atoms * sizeof(double));
        support_results_free(&expected);
        support_results_free(&got);
        support_results_free(&again);
        mlff_evaluator_destroy(reference);
        mlff_evaluator_destroy(evaluator);
        unjoin(&j);
        mlff_model_destroy(model);
    }
    for (int k = 0; k < 2; k++) mlff_system_destroy(systems[k]);
}

// The GPU fails where float32 on the CPU fails, within a factor of ten, and says so.
static void test_limit(void **state)
{
    (void)state;
    enum { FIRST = 6, LAST = 20 };
    mlff_status status[2][LAST + 1];
    int n_failed = 0;
    for (int k = FIRST; k <= LAST; k++) {
        scene s;
        make_scene(&s, 32, pow(10, k));
        double energy, forces[15];
        mlff_results results = {.energies = &energy, .forces = forces};
        for (int on = 0; on < 2; on++) {
            mlff_evaluator *evaluator = create_on(s.model, on ? MLFF_CUDA : MLFF_CPU, MLFF_FLOAT32);
            status[on][k] = mlff_evaluator_compute(evaluator, &s.batch, &results);
            if (status[on][k] != MLFF_OK) {
                assert_int_equal(status[on][k], MLFF_ERR_VALUE);
                assert_non_null(strstr(mlff_last_error(), "not finite"));
                n_failed += on;
            }
            mlff_evaluator_destroy(evaluator);
        }
        free_scene(&s);
    }
    assert_int_equal(status[1][FIRST], MLFF_OK);
    assert_true(n_failed > 0);
    for (int k = FIRST + 1; k < LAST; k++) {
        if (status[0][k + 1] == MLFF_OK) assert_int_equal(status[1][k], MLFF_OK);
        if (status[0][k - 1] != MLFF_OK) assert_int_equal(status[1][k], MLFF_ERR_VALUE);
    }
}

// A result that is asked for alone fails as well; a system that is not periodic has no stress, which is no failure.
static void test_limit_of_each_result(void **state)
{
    (void)state;
    scene s;
    make_scene(&s, 32, 1e20);
    const double cell[9] = {20, 0, 0, 0, 20, 0, 0, 0, 20};
    const unsigned char periodic[3] = {1, 1, 1};
    double numbers[15];
    const mlff_results results[] = {
        {.energies = numbers}, {.atom_energies = numbers}, {.forces = numbers}, {.virials = numbers}, {.stresses = numbers}};
    enum { N = sizeof results / sizeof *results };
    mlff_evaluator *evaluator = create_on(s.model, MLFF_CUDA, MLFF_FLOAT32);
    for (int in_cell = 0; in_cell < 2; in_cell++) {
        s.batch.cells = in_cell ? cell : NULL;
        s.batch.periodic = in_cell ? periodic : NULL;
        for (int k = 0; k < (in_cell ? N : N - 1); k++)
            assert_int_equal(mlff_evaluator_compute(evaluator, &s.batch, &results[k]), MLFF_ERR_VALUE);
    }
    mlff_evaluator_destroy(evaluator);
    free_scene(&s);
    make_scene(&s, 32, 1);
    evaluator = create_on(s.model, MLFF_CUDA, MLFF_FLOAT32);
    assert_ok(mlff_evaluator_compute(evaluator, &s.batch, &results[N - 1]));
    assert_true(isnan(numbers[0]));
    mlff_evaluator_destroy(evaluator);
    free_scene(&s);
}

// Arrays on the device: calls beyond the range of halves are waited for and right, one after the other.
static void test_device(void **state)
{
    (void)state;
    scene s;
    make_scene(&s, 64, 1e6);
    support_results expected = reference_of(&s), got = reference_of(&s);
    mlff_evaluator *evaluator = create_on(s.model, MLFF_CUDA, MLFF_FLOAT32);
    const size_t n = (size_t)expected.n_atoms;
    mlff_batch on = s.batch;
    void *species, *positions, *energies, *forces;
    assert_ok(mlff_device_allocate(gpu, n * sizeof(int32_t), &species));
    assert_ok(mlff_device_allocate(gpu, 3 * n * sizeof(double), &positions));
    assert_ok(mlff_device_allocate(gpu, sizeof(double), &energies));
    assert_ok(mlff_device_allocate(gpu, 3 * n * sizeof(double), &forces));
    assert_ok(mlff_device_copy(gpu, species, s.batch.species, n * sizeof(int32_t)));
    assert_ok(mlff_device_copy(gpu, positions, s.batch.positions, 3 * n * sizeof(double)));
    assert_ok(mlff_stream_create(gpu, &on.stream));
    on.location = MLFF_DEVICE_MEMORY;
    on.species = species;
    on.positions = positions;
    const mlff_results results = {.energies = energies, .forces = forces, .location = MLFF_DEVICE_MEMORY};
    for (int call = 0; call < 3; call++) {
        assert_ok(mlff_evaluator_compute(evaluator, &on, &results));
        assert_ok(mlff_stream_synchronize(gpu, on.stream));
        assert_ok(mlff_device_copy(gpu, got.r.energies, energies, sizeof(double)));
        assert_ok(mlff_device_copy(gpu, got.r.forces, forces, 3 * n * sizeof(double)));
        compare(&got, &expected, 1e6);
    }
    mlff_evaluator_destroy(evaluator);
    mlff_stream_destroy(gpu, on.stream);
    mlff_device_release(gpu, species);
    mlff_device_release(gpu, positions);
    mlff_device_release(gpu, energies);
    mlff_device_release(gpu, forces);
    support_results_free(&expected);
    support_results_free(&got);
    free_scene(&s);
}

// Dynamics follow those of the CPU in float64 (tolerance: test_plugin_dynamics_emulated.c), with the same bits wherever chunks begin.
static void test_dynamics(void **state)
{
    (void)state;
    scene s;
    make_scene(&s, 32, 1e6);
    support_results expected = reference_of(&s);
    scale_energies(&s, 1 / rms(expected.r.forces, 15));
    mlff_dynamics_options options = mlff_dynamics_options_default();
    mlff_system *starts[3]; // float64 on the CPU; on the GPU, in one run and in two
    mlff_evaluator *reference = create_on(s.model, MLFF_CPU, MLFF_FLOAT64),
                   *evaluator = create_on(s.model, MLFF_CUDA, MLFF_FLOAT32);
    assert_ok(mlff_system_add_masses(s.system));
    assert_ok(mlff_system_add_velocities(s.system));
    assert_ok(mlff_system_thermalize(s.system, 300, 1));
    for (int k = 0; k < 3; k++) {
        mlff_dynamics *dynamics;
        assert_ok(mlff_system_copy(s.system, &starts[k]));
        if (k == 0)
            assert_ok(mlff_dynamics_create(&options, starts[k], support_forces_of, reference, &dynamics));
        else
            assert_ok(mlff_dynamics_create_on(evaluator, &options, starts[k], NULL, NULL, &dynamics));
        assert_int_equal(mlff_dynamics_device(dynamics).kind, k == 0 ? MLFF_CPU : MLFF_CUDA);
        if (k == 2) assert_ok(mlff_dynamics_run(dynamics, 5, NULL));
        assert_ok(mlff_dynamics_run(dynamics, k == 2 ? 7 : 12, NULL));
        mlff_dynamics_destroy(dynamics);
    }
    assert_true(support_difference(starts[0]->positions, s.system->positions, 15) > 1e-3);
    assert_true(support_difference(starts[1]->positions, starts[0]->positions, 15) <= 1e-5);
    assert_memory_equal(starts[1]->positions, starts[2]->positions, 15 * sizeof(double));
    for (int k = 0; k < 3; k++) mlff_system_destroy(starts[k]);
    mlff_evaluator_destroy(reference);
    mlff_evaluator_destroy(evaluator);
    support_results_free(&expected);
    free_scene(&s);
}

int main(void)
{
    if (!getenv("MLFF_CUDA_PLUGIN")) {
        printf("skipped: MLFF_CUDA_PLUGIN does not name the emulated plugin\n");
        return 0;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_host),
                                       cmocka_unit_test(test_stage),
                                       cmocka_unit_test(test_ani),
                                       cmocka_unit_test(test_limit),
                                       cmocka_unit_test(test_limit_of_each_result),
                                       cmocka_unit_test(test_device),
                                       cmocka_unit_test(test_dynamics)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
