// SPDX-License-Identifier: MIT
// test_verdict.c: verdicts against planted truth: a student that is its teacher passes, one that differs fails the bars that it must.
#include <cjson/cJSON.h>
#include <math.h>
#include <unistd.h>

#include "mlff_distill.h"
#include "support.h"
#include "train/judging/verdict_pressure.h"
#include "unit/log_springs.h"
#include "unit/verdict_bars.h"

static mlff_system *rest;   // of water
static mlff_model *student; // of springs about it
static mlff_dataset *test;

// A model as teacher, its energy and forces scaled.
typedef struct scaled {
    mlff_evaluator *evaluator;
    double scale;
} scaled;

static mlff_status evaluate(void *context, const mlff_system *system, double *energy, double *forces)
{
    const scaled *teacher = context;
    int32_t first[2];
    mlff_batch batch;
    mlff_batch_from_system(system, first, &batch);
    mlff_status status =
        mlff_evaluator_compute(teacher->evaluator, &batch, &(mlff_results){.energies = energy, .forces = forces});
    *energy *= teacher->scale;
    for (int k = 0; k < 3 * system->n_atoms; k++) forces[k] *= teacher->scale;
    return status;
}

// A model of water trained for a second on springs about the built geometry, so that its dynamics hold together.
static mlff_model *make_water(mlff_dataset **test_out)
{
    mlff_model *fresh = NULL, *model = NULL;
    mlff_dataset *data = NULL, *parts[2];
    mlff_trainer *trainer = NULL;
    mlff_trainer_options options = mlff_trainer_options_default();
    const mlff_setting settings[] = {{"n_features", "16"},
                                     {"n_layers", "1"},
                                     {"n_radial", "12"},
                                     {"cutoff", "4"},
                                     {"elements", "H,O"},
                                     {"seed", "3"},
                                     {"cutoff_function", "mollifier"},
                                     {0}};
    assert_int_equal(mlff_model_create("painn", settings, &fresh), MLFF_OK);
    assert_int_equal(mlff_dataset_create(&data), MLFF_OK);
    for (int k = 0; k < 240; k++) {
        mlff_system *system = NULL;
        double energy, forces[9];
        assert_int_equal(mlff_system_copy(rest, &system), MLFF_OK);
        const double size = 0.05 + 0.5 * base_random_uniform(9, (uint64_t)k, 99);
        for (int c = 0; c < 9; c++) system->positions[c] += size * (base_random_uniform(9, (uint64_t)k, (uint64_t)c) - 0.5);
        assert_int_equal(log_springs((void *)rest, system, &energy, forces), MLFF_OK);
        assert_int_equal(mlff_dataset_add(data, system, &(mlff_labels){.energy = energy, .forces = forces, .weight = 1}),
                         MLFF_OK);
        mlff_system_destroy(system);
    }
    assert_int_equal(mlff_dataset_split(data, 0.1, 1, &parts[0], &parts[1]), MLFF_OK);
    options.precision = MLFF_FLOAT64;
    options.n_steps = 1500;
    options.batch_size = 16;
    options.learning_rate = 5e-3;
    assert_int_equal(mlff_trainer_create(fresh, parts[0], &options, &trainer), MLFF_OK);
    assert_int_equal(mlff_trainer_run(trainer, 1500, NULL, NULL), MLFF_OK);
    assert_int_equal(mlff_trainer_model(trainer, 0, &model), MLFF_OK);
    mlff_trainer_destroy(trainer);
    mlff_dataset_destroy(data);
    mlff_dataset_destroy(parts[0]);
    mlff_model_destroy(fresh);
    *test_out = parts[1];
    return model;
}

static int set_up(void **state)
{
    (void)state;
    assert_ok(mlff_system_build("h2o", 0, 0, &rest));
    student = make_water(&test);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    mlff_model_destroy(student);
    mlff_dataset_destroy(test);
    mlff_system_destroy(rest);
    return 0;
}

// Limits that the student meets; no dynamics.
static mlff_verdict_options met_limits(void)
{
    mlff_verdict_options options = mlff_verdict_options_default();
    options.n_threads = 1;
    options.nve_ps = options.hot_ps = options.compare_ps = 0;
    options.speed_s = 0.05;
    options.max_force_error = 0.3;
    options.max_energy_error = 0.1;
    options.max_drift = 5e-5; // float32 forces of a smooth model at 0.5 fs drift by less than a tenth of this
    options.min_speed = 0.2;  // the same model on both sides: about 1, on any machine above this
    return options;
}

static mlff_verdict *judge(const mlff_model *model, const mlff_force_field *teacher, const mlff_dataset *data,
                           const mlff_verdict_options *options)
{
    mlff_verdict *verdict = NULL;
    assert_ok(mlff_verdict_create(model, teacher, data, options->systems ? NULL : rest, options, &verdict));
    return verdict;
}

static void create_teacher(scaled *teacher)
{
    const mlff_evaluator_options one = {
        .struct_size = sizeof one, .precision = MLFF_FLOAT32, .skin_angstrom = 0.5, .n_threads = 1};
    assert_ok(mlff_evaluator_create(student, &one, &teacher->evaluator));
}

// The student is its teacher: structure and spectrum agree within the teacher's own noise.
static void test_its_own_teacher(void **state)
{
    (void)state;
    static const char *const all[] = {"error.forces",  "error.energy", "speed",          "speed.batch", "stability.nve",
                                      "stability.hot", "pressed",      "error.dynamics", "structure",   "spectrum"};
    scaled teacher = {.scale = 1};
    create_teacher(&teacher);
    mlff_verdict_options options = met_limits();
    options.nve_ps = options.compare_ps = 4;
    options.hot_ps = 1;
    options.hot_runs = 2;
    mlff_verdict *verdict = judge(student, &(mlff_force_field){"itself", evaluate, &teacher}, test, &options);
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) assert_bar(verdict, all[k], MLFF_BAR_PASSED);
    assert_null(strstr(find_bar(verdict, "error.energy")->text, "shifted"));
    const double ratio = find_bar(verdict, "speed")->value;
    assert_true(ratio > 0.2 && ratio < 5);
    mlff_verdict_destroy(verdict);
    mlff_evaluator_destroy(teacher.evaluator);
}

// A teacher four times as stiff: vibrations at twice the wavenumber, narrower distances.
static void test_a_stiffer_teacher(void **state)
{
    (void)state;
    scaled teacher = {.scale = 4};
    create_teacher(&teacher);
    mlff_verdict_options options = met_limits();
    options.compare_ps = 4;
    mlff_verdict *verdict = judge(student, &(mlff_force_field){"stiff", evaluate, &teacher}, test, &options);
    assert_bar(verdict, "spectrum", MLFF_BAR_FAILED);
    assert_int_equal(mlff_verdict_passed(verdict), 0);
    mlff_verdict_destroy(verdict);
    mlff_evaluator_destroy(teacher.evaluator);
}

// Errors are those of the structures themselves, not also of the Hessian probes beside each.
static void test_probes(void **state)
{
    (void)state;
    mlff_dataset *data;
    mlff_verdict_options options = met_limits();
    options.min_speed = 0;
    assert_ok(mlff_dataset_create(&data));
    for (int k = 0; k < 11; k++) {
        mlff_system *system, *minus;
        double forces[9], wrong[9];
        assert_ok(mlff_dataset_get(test, k, &system));
        const mlff_labels labels = {.energy = system->label_energy, .forces = system->label_forces, .weight = 1};
        for (int c = 0; c < 9; c++) forces[c] = system->label_forces[c], wrong[c] = forces[c] + 1;
        assert_ok(mlff_dataset_add(data, system, &labels));
        assert_ok(mlff_system_copy(system, &minus));
        system->positions[0] += 0.01;
        minus->positions[0] -= 0.01;
        const mlff_labels probe = {.energy = labels.energy, .forces = wrong, .weight = 1};
        assert_ok(mlff_dataset_add_probe(data, system, minus, 0.01, &probe, &probe));
        mlff_system_destroy(system);
        mlff_system_destroy(minus);
    }
    mlff_verdict *verdict = judge(student, NULL, data, &options);
    assert_bar(verdict, "error.forces", MLFF_BAR_PASSED); // of the probes it is 1 eV/Å; one of 11 is strained
    assert_non_null(strstr(find_bar(verdict, "error.forces")->text, "against the labels of 10 structures"));
    mlff_verdict_destroy(verdict);
    mlff_dataset_destroy(data);
}

// Of a test with trajectories they alone are judged: here the other structures have wrong labels.
static void test_dynamics_alone(void **state)
{
    (void)state;
    static const char *const types[] = {"md 300 K", "modes 300 K", "student 1000 K", "alarm 300 K"};
    mlff_dataset *data;
    mlff_verdict_options options = met_limits();
    options.min_speed = 0;
    for (int with = 0; with < 2; with++) {
        assert_ok(mlff_dataset_create(&data));
        for (int k = 0; k < 20; k++) {
            mlff_system *system;
            double forces[9];
            assert_ok(mlff_dataset_get(test, k, &system));
            for (int c = 0; c < 9; c++) forces[c] = system->label_forces[c] + (k % 2);
            snprintf(system->config_type, sizeof system->config_type, "%s", with ? types[k % 4] : "");
            assert_ok(
                mlff_dataset_add(data, system, &(mlff_labels){.energy = system->label_energy, .forces = forces, .weight = 1}));
            mlff_system_destroy(system);
        }
        mlff_verdict *verdict = judge(student, NULL, data, &options);
        const mlff_bar *bar = find_bar(verdict, "error.forces");
        assert_int_equal(bar->state, with ? MLFF_BAR_PASSED : MLFF_BAR_FAILED);
        assert_int_equal(strstr(bar->text, "structures of dynamics") != NULL, with);
        assert_int_equal(strstr(bar->text, "displaced structures: ") != NULL, with);
        mlff_verdict_destroy(verdict);
        mlff_dataset_destroy(data);
    }
}

// Runs of 12 samples, and of one, are too short for a spectrum: told with what is needed, which then is enough.
static void test_short_comparisons(void **state)
{
    (void)state;
    static const double lengths_ps[] = {0.2, 0.001, 0.512};
    scaled teacher = {.scale = 1};
    create_teacher(&teacher);
    mlff_verdict_options options = met_limits();
    for (int k = 0; k < 3; k++) {
        options.compare_ps = lengths_ps[k];
        mlff_verdict *verdict = judge(student, &(mlff_force_field){"itself", evaluate, &teacher}, test, &options);
        const mlff_bar *bar = find_bar(verdict, "spectrum");
        assert_int_equal(bar->state == MLFF_BAR_NOT_MEASURED, k < 2);
        assert_int_equal(strstr(bar->text, "points and needs 16: compare 0.512 ps or more") != NULL, k < 2);
        assert_true(find_bar(verdict, "structure")->state != MLFF_BAR_NOT_MEASURED);
        mlff_verdict_destroy(verdict);
    }
    mlff_evaluator_destroy(teacher.evaluator);
}

// The bars that need a teacher are not measured, and the verdict fails.
static void test_no_teacher(void **state)
{
    (void)state;
    mlff_verdict_options options = met_limits();
    options.compare_ps = 4;
    mlff_verdict *verdict = judge(student, NULL, test, &options);
    assert_bar(verdict, "speed", MLFF_BAR_NOT_MEASURED);
    assert_bar(verdict, "pressed", MLFF_BAR_NOT_MEASURED);
    assert_bar(verdict, "error.dynamics", MLFF_BAR_NOT_MEASURED);
    assert_bar(verdict, "structure", MLFF_BAR_NOT_MEASURED);
    assert_int_equal(mlff_verdict_passed(verdict), 0);
    mlff_verdict_destroy(verdict);
    // Those that are not asked for are left out.
    options.compare_ps = options.min_speed = options.n_pressed = options.n_dynamics = 0;
    verdict = judge(student, NULL, test, &options);
    int n;
    const mlff_bar *bars = mlff_verdict_bars(verdict, &n);
    for (int k = 0; k < n; k++) assert_int_not_equal(bars[k].state, MLFF_BAR_NOT_MEASURED);
    mlff_verdict_destroy(verdict);
}

// Labels of another zero of the energy, 3 eV for three atoms: told as that.
static void test_shifted_labels(void **state)
{
    (void)state;
    mlff_dataset *shifted = NULL;
    assert_ok(mlff_dataset_create(&shifted));
    for (int64_t k = 0; k < mlff_dataset_size(test); k++) {
        mlff_system *system = NULL;
        assert_ok(mlff_dataset_get(test, k, &system));
        const mlff_labels labels = {.energy = system->label_energy + 3.0, .forces = system->label_forces, .weight = 1};
        assert_ok(mlff_dataset_add(shifted, system, &labels));
        mlff_system_destroy(system);
    }
    mlff_verdict_options options = met_limits();
    mlff_verdict *verdict = judge(student, NULL, shifted, &options);
    assert_bar(verdict, "error.energy", MLFF_BAR_FAILED);
    assert_non_null(strstr(find_bar(verdict, "error.energy")->text, "as by another zero of the energy"));
    double shift = 0;
    const char *told = strstr(find_bar(verdict, "error.energy")->text, "all are shifted by ");
    assert_non_null(told);
    assert_int_equal(sscanf(told, "all are shifted by %lf meV/atom", &shift), 1);
    assert_true(fabs(shift + 1000) < 100); // max_energy_error is 100 meV/atom, and the student passed
    mlff_verdict_destroy(verdict);
    // A shift within the limit is told, and is no other zero.
    options.max_energy_error = 2;
    verdict = judge(student, NULL, shifted, &options);
    assert_bar(verdict, "error.energy", MLFF_BAR_PASSED);
    assert_non_null(strstr(find_bar(verdict, "error.energy")->text, "all are shifted by "));
    assert_null(strstr(find_bar(verdict, "error.energy")->text, "another zero"));
    mlff_verdict_destroy(verdict);
    mlff_dataset_destroy(shifted);
}

// Forces of 0 on fixed atoms are no labels: the others decide.
static void test_fixed_atoms(void **state)
{
    (void)state;
    mlff_dataset *fixed = NULL;
    assert_ok(mlff_dataset_create(&fixed));
    for (int64_t k = 0; k < mlff_dataset_size(test); k++) {
        mlff_system *system = NULL;
        assert_ok(mlff_dataset_get(test, k, &system));
        assert_ok(mlff_system_add_fixed(system));
        system->fixed[0] = system->fixed[1] = 1;
        for (int c = 0; c < 3; c++) system->label_forces[c] = 0; // the second fixed atom has forces
        const mlff_labels labels = {.energy = system->label_energy, .forces = system->label_forces, .weight = 1};
        assert_ok(mlff_dataset_add(fixed, system, &labels));
        mlff_system_destroy(system);
    }
    mlff_verdict_options options = met_limits();
    options.speed_s = 0;
    mlff_verdict *whole = judge(student, NULL, test, &options), *part = judge(student, NULL, fixed, &options);
    const double all = find_bar(whole, "error.forces")->value, rest_of_them = find_bar(part, "error.forces")->value;
    if (!(rest_of_them > 0.4 * all && rest_of_them < 1.6 * all))
        fail_msg("%g meV/Å of two atoms, %g of three", rest_of_them, all);
    mlff_verdict_destroy(whole);
    mlff_verdict_destroy(part);
    mlff_dataset_destroy(fixed);
}

// Labels of two compositions, and of a third in a cell, that are off by so much, eV/Å: each has its error, the worst is named.
static void test_compositions(void **state)
{
    (void)state;
    static const double off[] = {0.03, 0.4, 0.1};
    mlff_dataset *mixed = NULL;
    mlff_evaluator *evaluator = NULL;
    assert_ok(mlff_dataset_create(&mixed));
    assert_ok(mlff_evaluator_create(student, NULL, &evaluator));
    scaled exact = {evaluator, 1};
    for (int k = 0; k < 30; k++) {
        const int kind = k % 5 == 0 ? 2 : k % 5 < 3; // 12 of water, 12 of H2, 6 of water in a cell
        mlff_system *system = NULL;
        double energy, forces[9];
        assert_ok(mlff_system_copy(rest, &system));
        for (int c = 0; c < 9; c++) system->positions[c] += 0.1 * (base_random_uniform(9, (uint64_t)k, (uint64_t)c) - 0.5);
        for (int c = 0; kind == 1 && c < 3; c++) { // without its oxygen
            system->positions[c] = system->positions[3 + c];
            system->positions[3 + c] = system->positions[6 + c];
        }
        if (kind == 1) {
            system->n_atoms = 2;
            system->species[0] = system->species[1] = 1;
        }
        for (int c = 0; kind == 2 && c < 3; c++) {
            system->cell[4 * c] = 12;
            system->periodic[c] = 1;
        }
        assert_ok(evaluate(&exact, system, &energy, forces));
        for (int c = 0; c < 3 * system->n_atoms; c++) forces[c] += (c + k) % 2 ? off[kind] : -off[kind];
        assert_ok(mlff_dataset_add(
            mixed, system, &(mlff_labels){.energy = energy + 0.5 * off[kind] * system->n_atoms, .forces = forces, .weight = 1}));
        mlff_system_destroy(system);
    }
    mlff_verdict_options options = met_limits();
    mlff_verdict *verdict = judge(student, NULL, mixed, &options);
    if (!strstr(find_bar(verdict, "error.forces")->text,
                "; of 3 compositions H2 is the worst, 400.0 (12 structures); by element"))
        fail_msg("%s", find_bar(verdict, "error.forces")->text);
    char path[] = P_tmpdir "/mlff-verdict-XXXXXX";
    const int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    assert_ok(mlff_verdict_save(verdict, path));
    char *text = NULL;
    size_t length;
    assert_ok(base_read_file(path, 1 << 20, &text, &length));
    cJSON *record = cJSON_Parse(text);
    const cJSON *list = cJSON_GetObjectItem(record, "errors_by_composition");
    static const char *const names[] = {"H2", "cell H2O", "H2O"};
    static const double errors[] = {0.4, 0.1, 0.03};
    assert_int_equal(cJSON_GetArraySize(list), 3);
    for (int k = 0; k < 3; k++) {
        const cJSON *one = cJSON_GetArrayItem(list, k);
        assert_string_equal(cJSON_GetObjectItem(one, "composition")->valuestring, names[k]);
        assert_int_equal(cJSON_GetObjectItem(one, "n_structures")->valueint, k == 1 ? 6 : 12);
        // float32: 1e-6 of the largest force, below 20 eV/Å, and as much of the energies.
        assert_true(fabs(cJSON_GetObjectItem(one, "force_mae_ev_per_angstrom")->valuedouble - errors[k]) < 2e-5);
        assert_true(fabs(cJSON_GetObjectItem(one, "energy_mae_ev_per_atom")->valuedouble - 0.5 * errors[k]) < 2e-5);
    }
    cJSON_Delete(record);
    base_free(text);
    remove(path);
    mlff_verdict_destroy(verdict);
    // Of one composition nothing is told.
    verdict = judge(student, NULL, test, &options);
    assert_null(strstr(find_bar(verdict, "error.forces")->text, "compositions"));
    mlff_verdict_destroy(verdict);
    mlff_evaluator_destroy(evaluator);
    mlff_dataset_destroy(mixed);
}

static void count_of_few(void *context, const char *text)
{
    *(int *)context += strstr(text, "tell little of the errors of others") != NULL;
}

// Errors of fewer than 10 structures are told; some of these are strained and are not counted.
static void test_few_structures(void **state)
{
    (void)state;
    int n_told = 0;
    mlff_dataset *few = NULL;
    mlff_verdict_options options = met_limits();
    assert_ok(mlff_dataset_create(&few));
    mlff_warning_handler_set(count_of_few, &n_told);
    for (int64_t k = 0; k < 30; k++) {
        mlff_system *system = NULL;
        assert_ok(mlff_dataset_get(test, k % mlff_dataset_size(test), &system));
        const mlff_labels labels = {.energy = system->label_energy, .forces = system->label_forces, .weight = 1};
        assert_ok(mlff_dataset_add(few, system, &labels));
        mlff_system_destroy(system);
        if (k != 8 && k != 29) continue;
        mlff_verdict_destroy(judge(student, NULL, few, &options));
        assert_int_equal(n_told, 1);
    }
    mlff_warning_handler_set(NULL, NULL);
    mlff_dataset_destroy(few);
}

// GPa: the mean difference from labels of 0, of structures that are not strained.
static double mean_pressure(const mlff_dataset *data)
{
    mlff_evaluator *evaluator;
    double sum = 0, stress[6], energy;
    int64_t n = 0;
    assert_ok(mlff_evaluator_create(student, NULL, &evaluator));
    for (int64_t k = 0; k < mlff_dataset_size(data); k++) {
        mlff_system *system;
        int32_t first[2];
        mlff_batch batch;
        double largest = 0;
        assert_ok(mlff_dataset_get(data, k, &system));
        for (int a = 0; a < 9; a++) largest = fmax(largest, fabs(system->label_forces[a]));
        mlff_batch_from_system(system, first, &batch);
        assert_ok(mlff_evaluator_compute(evaluator, &batch, &(mlff_results){.energies = &energy, .stresses = stress}));
        for (int c = 0; c < 3 && largest <= 20; c++) sum -= stress[c] / 3;
        n += largest <= 20;
        mlff_system_destroy(system);
    }
    mlff_evaluator_destroy(evaluator);
    return 160.21766208 * fabs(sum) / (double)n;
}

// Of structures that repeat along three axes the pressure is judged, or told that none is labelled; of others neither.
static void test_stress(void **state)
{
    (void)state;
    enum { MOLECULES, CELLS, CELLS_WITH_STRESS, N_KINDS };
    const double stress[6] = {0};
    mlff_verdict_options options = met_limits();
    options.min_speed = 0;
    for (int kind = 0; kind < N_KINDS; kind++) {
        mlff_dataset *data = NULL;
        assert_ok(mlff_dataset_create(&data));
        for (int64_t k = 0; k < 10; k++) {
            mlff_system *system = NULL;
            assert_ok(mlff_dataset_get(test, k, &system));
            for (int a = 0; a < 3; a++) {
                system->cell[4 * a] = kind == MOLECULES ? 0 : 12;
                system->periodic[a] = kind != MOLECULES;
            }
            const mlff_labels labels = {.energy = system->label_energy,
                                        .forces = system->label_forces,
                                        .stress = kind == CELLS_WITH_STRESS ? stress : NULL,
                                        .weight = 1};
            assert_ok(mlff_dataset_add(data, system, &labels));
            mlff_system_destroy(system);
        }
        mlff_verdict *verdict = judge(student, NULL, data, &options);
        const char *text = find_bar(verdict, "error.forces")->text;
        assert_int_equal(strstr(text, "; no stress is labelled") != NULL, kind == CELLS);
        if (kind == CELLS_WITH_STRESS) {
            const double error = mean_pressure(data);
            assert_true(fabs(find_bar(verdict, "error.pressure")->value / error - 1) < 1e-4); // float32, and a sum of both signs
            for (int met = 0; met < 2; met++) {
                mlff_verdict_destroy(verdict);
                options.max_pressure_error = error * (met ? 1.01 : 0.99);
                verdict = judge(student, NULL, data, &options);
                assert_bar(verdict, "error.pressure", met ? MLFF_BAR_PASSED : MLFF_BAR_FAILED);
            }
        } else {
            int n;
            const mlff_bar *bars = mlff_verdict_bars(verdict, &n);
            for (int k = 0; k < n; k++) assert_string_not_equal(bars[k].name, "error.pressure");
        }
        mlff_verdict_destroy(verdict);
        mlff_dataset_destroy(data);
    }
}

// Differences of a trajectory cancel, those of others do not.
static void test_pressure_errors(void **state)
{
    (void)state;
    static const pressure_error errors[] = {{3, 0.5}, {-1, 1}, {7, -2}, {3, -0.5}, {7, -4}, {-1, 2}, {3, 0.3}, {7, 0}};
    pressure_errors list = {0};
    int n_groups;
    assert_true(isnan(pressure_errors_mean(&list, &n_groups)) && n_groups == 0);
    for (size_t k = 0; k < sizeof errors / sizeof *errors; k++)
        assert_ok(pressure_errors_add(&list, errors[k].group, errors[k].difference));
    assert_true(fabs(pressure_errors_mean(&list, &n_groups) - (3 + 0.3 + 6) / 8) < 1e-12);
    assert_int_equal(n_groups, 3);
    pressure_errors_free(&list);
}

static mlff_model *random_weights(void)
{
    mlff_model *model;
    assert_ok(
        mlff_model_create("painn", (mlff_setting[]){{"n_features", "16"}, {"elements", "H,O"}, {"seed", "5"}, {0}}, &model));
    return model;
}

// Wrong forces, and dynamics that fall apart, are failed bars, no failure of the call.
static void test_random_weights(void **state)
{
    (void)state;
    mlff_model *random = random_weights();
    mlff_verdict_options options = met_limits();
    options.hot_ps = options.nve_ps = 1;
    options.max_force_error = 0.1;
    mlff_verdict *verdict = judge(random, NULL, test, &options);
    assert_bar(verdict, "error.forces", MLFF_BAR_FAILED);
    mlff_verdict_destroy(verdict);
    mlff_model_destroy(random);
}

// The student is as good as itself and better than random weights.
static void test_baseline(void **state)
{
    (void)state;
    mlff_model *random = random_weights();
    mlff_verdict_options options = met_limits();
    options.baseline = student;
    mlff_verdict *verdict = judge(student, NULL, test, &options);
    assert_bar(verdict, "baseline", MLFF_BAR_PASSED);
    assert_true(find_bar(verdict, "baseline")->value == 1);
    mlff_verdict_destroy(verdict);
    verdict = judge(random, NULL, test, &options);
    assert_bar(verdict, "baseline", MLFF_BAR_FAILED);
    mlff_verdict_destroy(verdict);
    mlff_model_destroy(random);
}

// Two systems: each has its bars, under its name.
static void test_systems(void **state)
{
    (void)state;
    mlff_samples *systems = NULL;
    mlff_verdict_options options = met_limits();
    options.nve_ps = 0.2;
    assert_ok(mlff_samples_create(&systems));
    assert_ok(mlff_samples_add_named(systems, NULL, "h2o", 0, 1));
    assert_int_equal(mlff_samples_add_named(systems, NULL, "nosuch", 0, 1), MLFF_ERR_USAGE);
    assert_non_null(strstr(mlff_last_error(), "there are silicon,"));
    assert_ok(mlff_samples_add(systems, rest, "second"));
    options.systems = systems;
    mlff_verdict *verdict = judge(student, NULL, test, &options);
    int n_bars, n_first = 0, n_second = 0;
    const mlff_bar *bars = mlff_verdict_bars(verdict, &n_bars);
    for (int k = 0; k < n_bars; k++) {
        n_first += strcmp(bars[k].name, "stability.nve") == 0 && strcmp(bars[k].system, "h2o") == 0;
        n_second += strcmp(bars[k].name, "stability.nve") == 0 && strcmp(bars[k].system, "second") == 0;
    }
    assert_true(n_first == 1 && n_second == 1);
    mlff_verdict_destroy(verdict);
    for (int k = 0; k < 15; k++) assert_ok(mlff_samples_add(systems, rest, NULL));
    assert_int_equal(mlff_verdict_create(student, NULL, test, NULL, &options, &verdict), MLFF_ERR_USAGE);
    assert_non_null(strstr(mlff_last_error(), "17 were given"));
    options.systems = NULL;
    assert_int_equal(mlff_verdict_create(student, NULL, test, NULL, &options, &verdict), MLFF_ERR_USAGE);
    mlff_samples_destroy(systems);
}

// A molecule torn apart has no bond to keep, and is not judged by explosions alone.
static void test_nothing_bonded(void **state)
{
    (void)state;
    mlff_verdict_options options = met_limits();
    mlff_verdict *verdict = NULL;
    mlff_system *apart;
    options.hot_ps = 0.1;
    assert_ok(mlff_system_copy(rest, &apart));
    for (int k = 0; k < 3 * apart->n_atoms; k++) apart->positions[k] *= 1.4;
    assert_ok(mlff_verdict_create(student, NULL, test, apart, &options, &verdict));
    assert_bar(verdict, "stability.hot", MLFF_BAR_NOT_MEASURED);
    assert_non_null(strstr(find_bar(verdict, "stability.hot")->text, "no two atoms are bonded"));
    mlff_verdict_destroy(verdict);
    mlff_system_destroy(apart);
}

static void take_systems(void *context, const char *text)
{
    if (strstr(text, "the test has none of")) snprintf(context, 200, "%s", text);
}

// Of two systems the test has dynamics of one: the other is named. Where there are none of either, nothing is told.
static void test_systems_without_dynamics(void **state)
{
    (void)state;
    mlff_verdict_options options = met_limits();
    mlff_samples *systems = NULL;
    mlff_system *pair = NULL;
    assert_ok(mlff_system_create(2, &pair));
    pair->species[0] = 8, pair->species[1] = 1, pair->positions[3] = 0.97;
    assert_ok(mlff_samples_create(&systems));
    assert_ok(mlff_samples_add_named(systems, NULL, "h2o", 0, 1));
    assert_ok(mlff_samples_add(systems, pair, "hydroxyl"));
    options.systems = systems;
    for (int of_dynamics = 0; of_dynamics < 2; of_dynamics++) {
        char told[200] = "";
        mlff_dataset *some = NULL;
        assert_ok(mlff_dataset_create(&some));
        for (int64_t k = 0; k < mlff_dataset_size(test); k++) {
            mlff_system *system = NULL;
            assert_ok(mlff_dataset_get(test, k, &system));
            snprintf(system->config_type, sizeof system->config_type, "%s", of_dynamics ? "md 300 K" : "rattle");
            const mlff_labels labels = {.energy = system->label_energy, .forces = system->label_forces, .weight = 1};
            assert_ok(mlff_dataset_add(some, system, &labels));
            mlff_system_destroy(system);
        }
        mlff_warning_handler_set(take_systems, told);
        mlff_verdict_destroy(judge(student, NULL, some, &options));
        mlff_warning_handler_set(NULL, NULL);
        assert_true(of_dynamics ? strstr(told, "none of hydroxyl:") != NULL : told[0] == 0);
        mlff_dataset_destroy(some);
    }
    mlff_system_destroy(pair);
    mlff_samples_destroy(systems);
}

// The interval of the slope decides: a limit far above it, one that a run of 0.2 ps cannot tell from it but a longer one can, and one that
// no run of four times the length can tell from a slope of nearly 0.
static void test_length_of_a_run(void **state)
{
    (void)state;
    static const struct {
        double max_drift; // eV/atom/ps
        mlff_bar_state expected;
        bool is_longer;
    } cases[] = {{1e-2, MLFF_BAR_PASSED, false}, {2e-4, MLFF_BAR_PASSED, true}, {1e-9, MLFF_BAR_NOT_MEASURED, true}};
    mlff_verdict_options options = met_limits();
    options.nve_ps = 0.2;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        options.max_drift = cases[k].max_drift;
        mlff_verdict *verdict = judge(student, NULL, test, &options);
        const mlff_bar *bar = find_bar(verdict, "stability.nve");
        print_message("limit %g: %g ± %g meV/atom/ps, %s\n", 1e3 * cases[k].max_drift, bar->value, bar->uncertainty, bar->text);
        assert_bar(verdict, "stability.nve", cases[k].expected);
        assert_int_equal(strstr(bar->text, "over 0.2 ps") == NULL, cases[k].is_longer);
        assert_int_equal(strstr(bar->text, "too short") != NULL, cases[k].expected == MLFF_BAR_NOT_MEASURED);
        mlff_verdict_destroy(verdict);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_its_own_teacher),
        cmocka_unit_test(test_a_stiffer_teacher),
        cmocka_unit_test(test_short_comparisons),
        cmocka_unit_test(test_probes),
        cmocka_unit_test(test_no_teacher),
        cmocka_unit_test(test_fixed_atoms),
        cmocka_unit_test(test_shifted_labels),
        cmocka_unit_test(test_random_weights),
        cmocka_unit_test(test_baseline),
        cmocka_unit_test(test_systems),
        cmocka_unit_test(test_systems_without_dynamics),
        cmocka_unit_test(test_nothing_bonded),
        cmocka_unit_test(test_length_of_a_run),
        cmocka_unit_test(test_compositions),
        cmocka_unit_test(test_stress),
        cmocka_unit_test(test_pressure_errors),
        cmocka_unit_test(test_few_structures),
        cmocka_unit_test(test_dynamics_alone),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
