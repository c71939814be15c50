// SPDX-License-Identifier: MIT
// Purpose: models that do not compute everything: energies of systems without energies of atoms, direct forces and stress, or
// no forces at all. What a model computes arrives with its units; what it does not is refused with the reason.
#include "mlff_label.h"
#include "mlff_profile.h"
#include "model/model.h"
#include "support.h"

// Known answers, in model units: energy 0.5 n, force on atom i (i, 1, −2), stress (1, 2, 3, 4, 5, 6).
static mlff_status fake_compute(model_backend *backend, const model_graph *graph, const model_outputs *outputs,
                                stage_clock *clock, int stage)
{
    (void)backend;
    assert_null(outputs->atom_energy);
    assert_null(outputs->pair_gradient);
    for (int s = 0; s < graph->n_systems; s++) {
        outputs->system_energy[s] = 0.5 * (graph->first_atom[s + 1] - graph->first_atom[s]);
        for (int k = 0; outputs->stress && k < 6; k++) outputs->stress[6 * s + k] = k + 1;
    }
    for (int i = 0; outputs->atom_force && i < graph->n_atoms; i++) {
        outputs->atom_force[3 * i] = i;
        outputs->atom_force[3 * i + 1] = 1;
        outputs->atom_force[3 * i + 2] = -2;
    }
    stage_end(clock, stage);
    return MLFF_OK;
}

static void fake_info(const model_backend *backend, int64_t *bytes, int64_t *n_growths)
{
    (void)backend;
    *bytes = *n_growths = 0;
}

static void fake_destroy(model_backend *backend)
{
    (void)backend;
}

static mlff_status fake_create_cpu(const mlff_model *model, const cpu_options *options, model_backend **backend_out)
{
    (void)model, (void)options;
    static const mlff_stage stages[] = {{"network", "forward", -1, ""}};
    static model_backend backend = {
        .stages = stages, .n_stages = 1, .compute = fake_compute, .info = fake_info, .destroy = fake_destroy};
    *backend_out = &backend;
    return MLFF_OK;
}

static mlff_status load(mlff_model *model, unsigned outputs)
{
    model->outputs = outputs;
    model->cutoff = 4.0;
    for (int z = 1; z <= MLFF_MAX_ATOMIC_NUMBER; z++) {
        model->known[z] = true;
        model->offset[z] = -10.0 * z;
    }
    return MLFF_OK;
}

static mlff_status load_direct(mlff_model *model)
{
    return load(model, MODEL_SYSTEM_ENERGY | MODEL_ATOM_FORCE | MODEL_STRESS);
}

static mlff_status load_forces(mlff_model *model)
{
    return load(model, MODEL_SYSTEM_ENERGY | MODEL_ATOM_FORCE);
}

static mlff_status load_energy(mlff_model *model)
{
    return load(model, MODEL_SYSTEM_ENERGY);
}

static void nothing_to_free(mlff_model *model)
{
    (void)model;
}

static const model_architecture direct = {
    .name = "direct", .title = "Direct", .load = load_direct, .create_cpu = fake_create_cpu, .destroy = nothing_to_free};
static const model_architecture no_stress = {
    .name = "no-stress", .title = "Forces", .load = load_forces, .create_cpu = fake_create_cpu, .destroy = nothing_to_free};
static const model_architecture energy_only = {
    .name = "energy-only", .title = "Energy", .load = load_energy, .create_cpu = fake_create_cpu, .destroy = nothing_to_free};

// Energies in units of 2 eV, lengths in units of 0.5 Å.
static mlff_model *model_of(const char *architecture)
{
    model_weights weights = {0};
    mlff_model *model;
    assert_ok(weights_set(&weights, "format", "mlff"));
    assert_ok(weights_set(&weights, "architecture", "%s", architecture));
    assert_ok(weights_set(&weights, "energy_unit_ev", "2"));
    assert_ok(weights_set(&weights, "length_unit_angstrom", "0.5"));
    assert_ok(weights_set(&weights, "trained", "true"));
    assert_ok(weights_set(&weights, "elements", "unknown"));
    assert_ok(model_from_weights(&weights, architecture, &model));
    return model;
}

static int register_models(void **state)
{
    (void)state;
    assert_ok(model_architecture_register(&direct));
    assert_ok(model_architecture_register(&no_stress));
    assert_ok(model_architecture_register(&energy_only));
    assert_int_equal(model_architecture_register(&direct), MLFF_ERR_USAGE);
    assert_non_null(strstr(mlff_last_error(), "registered already"));
    return 0;
}

#define assert_refused(call, reason)                                                                                             \
    do {                                                                                                                         \
        assert_int_equal(call, MLFF_ERR_UNSUPPORTED);                                                                            \
        assert_non_null(strstr(mlff_last_error(), reason));                                                                      \
    } while (0)

static void test_direct_forces(void **state)
{
    (void)state;
    mlff_model *model = model_of("direct");
    mlff_evaluator *evaluator = support_evaluator(model, MLFF_FLOAT32);
    mlff_system *water;
    mlff_model_info info;
    mlff_callable callable;
    mlff_batch batch;
    int32_t first_atom[2];
    double energy = NAN, forces[9], stress[6], atom_energies[3] = {7, 7, 7}, virial[9];
    mlff_model_info_get(model, &info);
    assert_int_equal(info.conservative, 0);
    assert_int_equal(info.has_atom_energies, 0);
    assert_int_equal(mlff_model_outputs(model), MLFF_OUTPUT_ENERGIES | MLFF_OUTPUT_FORCES | MLFF_OUTPUT_STRESS);

    assert_ok(mlff_system_build("water", 3, 0, &water));
    mlff_batch_from_system(water, first_atom, &batch);
    assert_int_equal(water->n_atoms, 3);
    assert_ok(
        mlff_evaluator_compute(evaluator, &batch, &(mlff_results){.energies = &energy, .forces = forces, .stresses = stress}));
    assert_true(fabs(energy - (2.0 * 1.5 - 10.0 * (8 + 1 + 1))) < 1e-12);
    for (int i = 0; i < 3; i++) assert_true(forces[3 * i] == 4.0 * i && forces[3 * i + 1] == 4.0 && forces[3 * i + 2] == -8.0);
    for (int k = 0; k < 6; k++) assert_true(stress[k] == 16.0 * (k + 1)); // 2 eV / (0.5 Å)³

    // Virials are -V σ, of each system, beside stresses or alone.
    static const int component[9] = {0, 5, 4, 5, 1, 3, 4, 3, 2};
    const double volume = mlff_system_volume(water);
    double two_cells[18], two_positions[18], two_stresses[12], virials[18];
    const int32_t two_first[3] = {0, 3, 6}, two_species[6] = {8, 1, 1, 8, 1, 1};
    const unsigned char everywhere[6] = {1, 1, 1, 1, 1, 1};
    for (int k = 0; k < 18; k++) {
        two_cells[k] = water->cell[k % 9] * (k < 9 ? 1 : 2);
        two_positions[k] = water->positions[k % 9];
    }
    const mlff_batch two = {.n_systems = 2,
                            .first_atom = two_first,
                            .species = two_species,
                            .positions = two_positions,
                            .cells = two_cells,
                            .periodic = everywhere};
    for (int with = 0; with < 2; with++) {
        assert_ok(
            mlff_evaluator_compute(evaluator, &two, &(mlff_results){.virials = virials, .stresses = with ? two_stresses : NULL}));
        for (int k = 0; k < 18; k++) {
            const double expected = -16.0 * (component[k % 9] + 1) * volume * (k < 9 ? 1 : 8);
            assert_true(fabs(virials[k] - expected) <= 1e-12 * fabs(expected));
        }
    }
    assert_true(two_stresses[11] == 16.0 * 6);
    assert_refused(mlff_evaluator_compute(evaluator, &two, &(mlff_results){.virials = virials, .location = MLFF_DEVICE_MEMORY}),
                   "host only");
    assert_int_equal(mlff_evaluator_compute(evaluator, NULL, &(mlff_results){.virials = virials}), MLFF_ERR_USAGE);

    water->periodic[0] = 0; // without a volume there is no stress
    assert_ok(mlff_evaluator_compute(evaluator, &batch, &(mlff_results){.stresses = stress, .virials = virial}));
    for (int k = 0; k < 6; k++) assert_true(isnan(stress[k]) && isnan(virial[k]));

    assert_refused(mlff_evaluator_compute(evaluator, &batch, &(mlff_results){.atom_energies = atom_energies}),
                   "no energies of atoms");
    assert_true(atom_energies[0] == 7); // not filled with zeros
    mlff_batch divided = batch;
    divided.owned = (const unsigned char[]){1, 1, 0};
    assert_refused(mlff_evaluator_compute(evaluator, &divided, &(mlff_results){.energies = &energy}), "cannot be divided");
    assert_ok(mlff_callable_from_evaluator(evaluator, model, &callable));
    assert_int_equal(callable.properties, MLFF_ENERGY | MLFF_FORCES | MLFF_STRESS);
    assert_non_null(strstr(callable.notes, "not the derivative of its energy"));
    mlff_callable_destroy(&callable);
    assert_refused(mlff_evaluator_compute(evaluator, &batch, &(mlff_results){.energy_deviations = &energy}), "not an ensemble");
    mlff_system_destroy(water);
    mlff_evaluator_destroy(evaluator);
    mlff_model_destroy(model);
}

static void count_warnings(void *context, const char *text)
{
    if (strstr(text, "not the derivative of its energy")) ++*(int *)context;
}

static void test_dynamics_warns_once(void **state)
{
    (void)state;
    mlff_model *model = model_of("direct");
    mlff_evaluator *evaluator = support_evaluator(model, MLFF_FLOAT32);
    mlff_dynamics_options options = mlff_dynamics_options_default();
    mlff_dynamics *dynamics;
    mlff_system *water;
    int n_warnings = 0;
    assert_ok(mlff_system_build("water", 3, 0, &water));
    mlff_warning_handler_set(count_warnings, &n_warnings);
    options.timestep_fs = 1e-3;
    assert_ok(mlff_dynamics_create_on(evaluator, &options, water, NULL, NULL, &dynamics));
    assert_ok(mlff_dynamics_run(dynamics, 20, NULL));
    assert_int_equal(n_warnings, 1);
    mlff_warning_handler_set(NULL, NULL);
    mlff_dynamics_destroy(dynamics);
    mlff_system_destroy(water);
    mlff_evaluator_destroy(evaluator);
    mlff_model_destroy(model);
}

static mlff_status next_system(void *context, mlff_system **system_out)
{
    mlff_system **left = context;
    *system_out = *left;
    *left = NULL;
    return MLFF_OK;
}

static mlff_status take_relaxed(void *context, mlff_system *system, const mlff_relaxed *relaxed)
{
    (void)context, (void)system, (void)relaxed;
    return MLFF_OK;
}

// Relaxations and vibrations say once that the forces are no derivative; what the model lacks for them is refused.
static void test_relaxation_and_vibrations(void **state)
{
    (void)state;
    mlff_model *model = model_of("direct"), *energies = model_of("energy-only"), *forces = model_of("no-stress");
    mlff_evaluator *evaluator = support_evaluator(model, MLFF_FLOAT32), *other = support_evaluator(energies, MLFF_FLOAT32),
                   *without = support_evaluator(forces, MLFF_FLOAT32);
    mlff_relax_options options = mlff_relax_options_default();
    mlff_vibrations vibrations;
    mlff_system *water, *left;
    const mlff_relax_queue queue = {.context = &left, .next = next_system, .done = take_relaxed};
    int n_warnings = 0;
    options.max_steps = 1;
    assert_ok(mlff_system_build("water", 3, 0, &water));
    mlff_warning_handler_set(count_warnings, &n_warnings);
    left = water;
    assert_ok(mlff_relax(evaluator, &options, &queue));
    assert_int_equal(n_warnings, 1);
    assert_ok(mlff_vibrations_compute(evaluator, water, NULL, &vibrations));
    assert_int_equal(n_warnings, 2);
    mlff_vibrations_free(&vibrations);

    options.relax_cell = 1;
    left = water;
    assert_ok(mlff_relax(evaluator, &options, &queue));
    assert_int_equal(n_warnings, 3);
    assert_refused(mlff_relax(without, &options, &queue), "has no stress, which relaxing a cell needs");
    mlff_dynamics_options constant_pressure = mlff_dynamics_options_default();
    mlff_dynamics *dynamics = NULL;
    constant_pressure.ensemble = MLFF_MTK;
    assert_refused(mlff_dynamics_create_on(without, &constant_pressure, water, NULL, NULL, &dynamics),
                   "has no stress, which constant pressure needs");
    assert_refused(mlff_relax(other, NULL, &queue), "has no forces, which relaxing needs");
    assert_refused(mlff_vibrations_compute(other, water, NULL, &vibrations), "has no forces, which vibrations need");
    assert_int_equal(n_warnings, 3);
    mlff_warning_handler_set(NULL, NULL);
    mlff_system_destroy(water);
    mlff_evaluator_destroy(without);
    mlff_evaluator_destroy(other);
    mlff_evaluator_destroy(evaluator);
    mlff_model_destroy(forces);
    mlff_model_destroy(energies);
    mlff_model_destroy(model);
}

// Constant pressure needs virials, which direct forces do not have; replicas warn as one simulation does.
static void test_pressure_and_replicas(void **state)
{
    (void)state;
    mlff_model *model = model_of("direct");
    mlff_evaluator *evaluator = support_evaluator(model, MLFF_FLOAT32);
    mlff_dynamics_options options = mlff_dynamics_options_default();
    const mlff_dynamics_options *both[] = {&options, &options};
    mlff_dynamics *dynamics;
    mlff_replicas *replicas;
    mlff_system *systems[2];
    int n_warnings = 0;
    for (int k = 0; k < 2; k++) assert_ok(mlff_system_build("water", 3, 0, &systems[k]));
    mlff_warning_handler_set(count_warnings, &n_warnings);
    options.timestep_fs = 1e-3;
    assert_ok(mlff_replicas_create(evaluator, both, systems, 2, &replicas));
    assert_int_equal(n_warnings, 1);
    mlff_replicas_destroy(replicas);
    options.ensemble = MLFF_SCR;
    mlff_dynamics_state at;
    assert_ok(mlff_dynamics_create_on(evaluator, &options, systems[0], NULL, NULL, &dynamics));
    assert_ok(mlff_dynamics_state_get(dynamics, &at)); // P = 2 K / 3 V - (16 + 32 + 48) / 3, the predicted stress
    const double volume = mlff_system_volume(systems[0]), expected = 2 * at.kinetic_energy / (3 * volume) - 32;
    assert_true(fabs(at.pressure - expected) < 1e-9);
    mlff_dynamics_destroy(dynamics);
    mlff_warning_handler_set(NULL, NULL);
    for (int k = 0; k < 2; k++) mlff_system_destroy(systems[k]);
    mlff_evaluator_destroy(evaluator);
    mlff_model_destroy(model);
}

// Labels have what the teacher computes, and nothing else; a teacher without forces is refused when it is opened.
static void test_teachers(void **state)
{
    (void)state;
    const char *const names[] = {"direct", "no-stress"};
    mlff_teacher *teacher;
    mlff_system *water;
    int n_warnings = 0;
    assert_ok(mlff_system_build("water", 3, 0, &water));
    mlff_warning_handler_set(count_warnings, &n_warnings);
    for (int k = 0; k < 2; k++) {
        mlff_model *model = model_of(names[k]);
        mlff_label label = {0};
        assert_ok(mlff_teacher_create_model(model, NULL, &teacher));
        assert_int_equal(n_warnings, k + 1);
        mlff_teacher_info info;
        mlff_teacher_info_get(teacher, &info);
        assert_int_equal(info.has_atom_energies, 0);
        assert_int_equal(info.has_stress, k == 0);
        assert_ok(mlff_teacher_compute(teacher, (const mlff_system *const *)&water, 1, &label));
        assert_ok(label.status);
        assert_null(label.atom_energies);
        assert_true(isnan(label.stress[0]) == (k == 1));
        mlff_label_clear(&label);
        mlff_teacher_destroy(teacher);
        mlff_model_destroy(model);
    }
    mlff_model *model = model_of("energy-only");
    assert_refused(mlff_teacher_create_model(model, NULL, &teacher), "has no forces, which labels need");
    mlff_warning_handler_set(NULL, NULL);
    mlff_system_destroy(water);
    mlff_model_destroy(model);
}

static void test_energy_only(void **state)
{
    (void)state;
    mlff_model *model = model_of("energy-only");
    mlff_evaluator *evaluator = support_evaluator(model, MLFF_FLOAT32);
    mlff_dynamics_options options = mlff_dynamics_options_default();
    mlff_dynamics *dynamics;
    mlff_callable callable;
    mlff_system *water;
    mlff_batch batch;
    int32_t first_atom[2];
    double energy, forces[9], stress[6];
    assert_ok(mlff_system_build("water", 3, 0, &water));
    mlff_batch_from_system(water, first_atom, &batch);
    assert_ok(mlff_evaluator_compute(evaluator, &batch, &(mlff_results){.energies = &energy}));
    assert_refused(mlff_evaluator_compute(evaluator, &batch, &(mlff_results){.forces = forces}), "has no forces");
    assert_refused(mlff_evaluator_compute(evaluator, &batch, &(mlff_results){.stresses = stress}), "has no stress");
    assert_refused(mlff_dynamics_create_on(evaluator, &options, water, NULL, NULL, &dynamics), "has no forces");
    assert_ok(mlff_callable_from_evaluator(evaluator, model, &callable));
    assert_int_equal(callable.properties, MLFF_ENERGY);
    assert_null(callable.notes);
    mlff_callable_destroy(&callable);
    mlff_system_destroy(water);
    mlff_evaluator_destroy(evaluator);
    mlff_model_destroy(model);
}

static void count_magnitudes(void *context, const char *text)
{
    assert_non_null(strstr(text, "system 0: the model gives 1e+03 eV per atom besides its offsets"));
    ++*(int *)context;
}

// Energies so large that float32 does not resolve them are reported once; the offsets, here −33 eV per atom, do not count.
static void test_magnitude_beyond_float32(void **state)
{
    (void)state;
    static const struct {
        double ev_per_atom;
        mlff_precision precision;
        int n_warnings;
    } cases[] = {{999, MLFF_FLOAT32, 0}, {1001, MLFF_FLOAT32, 1}, {-1001, MLFF_FLOAT64, 0}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        mlff_model *model = model_of("energy-only");
        mlff_evaluator *evaluator = support_evaluator(model, cases[k].precision);
        mlff_system *water;
        mlff_batch batch;
        int32_t first_atom[2];
        int n_warnings = 0;
        double energy;
        assert_ok(mlff_system_build("water", 3, 0, &water));
        mlff_batch_from_system(water, first_atom, &batch);
        model->energy_unit = cases[k].ev_per_atom / 0.5;
        mlff_warning_handler_set(count_magnitudes, &n_warnings);
        for (int call = 0; call < 3; call++)
            assert_ok(mlff_evaluator_compute(evaluator, &batch, &(mlff_results){.energies = &energy}));
        mlff_warning_handler_set(NULL, NULL);
        assert_int_equal(n_warnings, cases[k].n_warnings);
        mlff_system_destroy(water);
        mlff_evaluator_destroy(evaluator);
        mlff_model_destroy(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_direct_forces),
                                       cmocka_unit_test(test_dynamics_warns_once),
                                       cmocka_unit_test(test_relaxation_and_vibrations),
                                       cmocka_unit_test(test_pressure_and_replicas),
                                       cmocka_unit_test(test_teachers),
                                       cmocka_unit_test(test_energy_only),
                                       cmocka_unit_test(test_magnitude_beyond_float32)};
    return cmocka_run_group_tests(tests, register_models, NULL);
}
