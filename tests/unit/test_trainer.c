// SPDX-License-Identifier: MIT
// test_trainer.c: training runs learn, and refuse what they cannot use.
#include <math.h>
#include <unistd.h>

#include "train/data/dataset.h"
#include "train/fitting/history.h"
#include "trainer_support.h"

static void test_learns(void **state)
{
    (void)state;
    mlff_model *teacher = make_model("8", "1"), *student = make_model("16", "2");
    mlff_dataset *data = make_data(teacher, 10, N_FRAMES), *other = make_data(teacher, 11, 8);
    for (int p = 0; p < 2; p++) {
        mlff_trainer_options options = small_run(p ? MLFF_FLOAT32 : MLFF_FLOAT64);
        mlff_training_errors before, after, trained;
        int64_t done;
        options.n_steps = 300;
        mlff_trainer *trainer = make_trainer(student, data, &options);
        assert_int_equal(mlff_trainer_validate(trainer, other, &before), MLFF_OK);
        assert_int_equal(mlff_trainer_run(trainer, 1000, &done, &trained), MLFF_OK);
        assert_int_equal(done, 300); // not beyond the run's end
        assert_int_equal(mlff_trainer_step(trainer), 300);
        assert_int_equal(mlff_trainer_validate(trainer, other, &after), MLFF_OK);
        // Held-out errors, and those of the model that comes out, which the evaluator confirms.
        assert_true(after.force_mae < 0.2 * before.force_mae && after.n_frames == 8 && after.n_atoms == 24);
        assert_true(trained.n_frames >= 300 * 4 && isnan(trained.stress_mae) && trained.force_rmse >= trained.force_mae);
        mlff_model *model = NULL;
        mlff_model_info info;
        assert_int_equal(mlff_trainer_model(trainer, 0, &model), MLFF_OK);
        mlff_model_info_get(model, &info);
        assert_true(info.trained);
        mlff_evaluator *evaluator = NULL;
        assert_int_equal(mlff_evaluator_create(model, NULL, &evaluator), MLFF_OK);
        double sum = 0, by_element[119], found[119] = {0};
        char text[96], expected[96];
        mlff_trainer_element_errors(trainer, by_element);
        for (int64_t k = 0; k < 8; k++) {
            mlff_system *system = NULL;
            mlff_batch batch;
            int32_t first[2];
            double forces[9];
            assert_int_equal(mlff_dataset_get(other, k, &system), MLFF_OK);
            mlff_batch_from_system(system, first, &batch);
            assert_int_equal(mlff_evaluator_compute(evaluator, &batch, &(mlff_results){.forces = forces}), MLFF_OK);
            for (int c = 0; c < 9; c++) {
                const int z = system->species[c / 3];
                sum += fabs(forces[c] - system->label_forces[c]) / 72;
                found[z] += fabs(forces[c] - system->label_forces[c]) / (z == 1 ? 48 : 24);
            }
            mlff_system_destroy(system);
        }
        assert_true(fabs(sum - after.force_mae) < 1e-5 * before.force_mae); // float32 on both sides
        for (int z = 0; z < 119; z++)
            if (z == 1 || z == 8)
                assert_true(fabs(by_element[z] - found[z]) < 1e-5 * before.force_mae);
            else
                assert_true(isnan(by_element[z]));
        snprintf(expected, sizeof expected, "H %.1f, O %.1f meV/Å", 1e3 * by_element[1], 1e3 * by_element[8]);
        assert_string_equal(mlff_element_errors_text(by_element, text), expected);
        mlff_evaluator_destroy(evaluator);
        mlff_model_destroy(model);
        mlff_trainer_destroy(trainer);
    }
    mlff_dataset_destroy(data);
    mlff_dataset_destroy(other);
    mlff_model_destroy(teacher);
    mlff_model_destroy(student);
}

// Ten structures are learned to below 1 meV/Å: nothing in loss, gradient or optimizer stands in the way.
static void test_overfits_ten_structures(void **state)
{
    (void)state;
    if (SUPPORT_SANITIZED) skip(); // 2 s without
    mlff_model *teacher = make_model("8", "1"), *student = make_model("32", "2");
    mlff_dataset *data = make_data(teacher, 10, 10);
    mlff_trainer_options options = small_run(MLFF_FLOAT32);
    mlff_training_errors errors;
    options.batch_size = 10;
    options.n_steps = 20000;
    mlff_trainer *trainer = make_trainer(student, data, &options);
    assert_int_equal(mlff_trainer_run(trainer, options.n_steps, NULL, NULL), MLFF_OK);
    assert_int_equal(mlff_trainer_validate(trainer, data, &errors), MLFF_OK);
    printf("ten structures: %.3f meV/Å, %.4f meV/atom\n", 1e3 * errors.force_mae, 1e3 * errors.energy_mae);
    assert_true(errors.force_mae < 1e-3);
    mlff_trainer_destroy(trainer);
    mlff_dataset_destroy(data);
    mlff_model_destroy(teacher);
    mlff_model_destroy(student);
}

static char warned[512];

static void keep_warning(void *context, const char *text)
{
    (void)context;
    snprintf(warned, sizeof warned, "%s", text);
}

// Without any forces nothing is trained unless forces are not asked for; where some lack, a warning says how many.
static void test_missing_forces(void **state)
{
    (void)state;
    mlff_model *student = make_model("16", "2");
    mlff_dataset *none = make_data_with(student, 10, 3, 0), *some = make_data_with(student, 10, 3, 1);
    mlff_trainer *trainer = NULL;
    mlff_training_errors errors;
    mlff_trainer_options options = small_run(MLFF_FLOAT64);
    assert_refused(mlff_trainer_create(student, none, &options, &trainer), MLFF_ERR_VALUE,
                   "the structures to train on have no forces");
    mlff_warning_handler_set(keep_warning, NULL);
    trainer = make_trainer(student, some, &options);
    assert_non_null(strstr(warned, "2 of 3 structures to train on have no forces"));
    warned[0] = 0;
    assert_refused(mlff_trainer_validate(trainer, none, &errors), MLFF_ERR_VALUE, "structures for validation have no forces");
    mlff_trainer_destroy(trainer);
    options.loss.forces_weight = 0;
    trainer = make_trainer(student, none, &options);
    assert_string_equal(warned, "");
    options.loss = (mlff_loss){.stress_weight = 100}; // which no label has
    mlff_trainer *idle = NULL;
    assert_refused(mlff_trainer_create(student, some, &options, &idle), MLFF_ERR_VALUE, "none of the labels whose weights");
    mlff_warning_handler_set(NULL, NULL);
    mlff_trainer_destroy(trainer);
    mlff_dataset_destroy(none);
    mlff_dataset_destroy(some);
    mlff_model_destroy(student);
}

// Structures for validation of another zero of the energy are told before the run; those of other atoms are not compared.
static void test_zero_of_validation(void **state)
{
    (void)state;
    mlff_model *student = make_model("16", "2"), *best;
    mlff_dataset *data = make_data(student, 10, 10);
    mlff_trainer_options options = small_run(MLFF_FLOAT64);
    options.n_steps = 1;
    mlff_warning_handler_set(keep_warning, NULL);
    for (int k = 0; k < 3; k++) {
        mlff_dataset *validation;
        mlff_system *system;
        assert_int_equal(mlff_dataset_create(&validation), MLFF_OK);
        for (int64_t f = 0; f < 5; f++) {
            assert_int_equal(mlff_dataset_get(data, f, &system), MLFF_OK);
            if (k > 0) system->label_energy -= 3 * 40;
            if (k == 2) system->species[1] = 8;
            assert_int_equal(mlff_dataset_add(validation, system, NULL), MLFF_OK);
            mlff_system_destroy(system);
        }
        warned[0] = 0;
        mlff_trainer *trainer = make_trainer(student, data, &options);
        assert_int_equal(mlff_trainer_fit(trainer, validation, NULL, &best), MLFF_OK);
        assert_true((strstr(warned, "the energies of the structures for validation are 40 eV/atom below those of the same atoms "
                                    "that are trained on") != NULL) == (k == 1));
        mlff_model_destroy(best);
        mlff_trainer_destroy(trainer);
        mlff_dataset_destroy(validation);
    }
    mlff_warning_handler_set(NULL, NULL);
    mlff_dataset_destroy(data);
    mlff_model_destroy(student);
}

// The force of 0 that a constraint makes of a fixed atom is no label; a force of the teacher on it is.
static void test_constrained_forces(void **state)
{
    (void)state;
    mlff_model *student = make_model("16", "2");
    mlff_dataset *data = make_data(student, 10, 3), *fixed;
    mlff_trainer_options options = small_run(MLFF_FLOAT64);
    mlff_training_errors errors;
    mlff_system *system;
    assert_int_equal(mlff_dataset_create(&fixed), MLFF_OK);
    mlff_warning_handler_set(keep_warning, NULL);
    for (int with_zeros = 0; with_zeros < 2; with_zeros++) {
        assert_int_equal(mlff_dataset_get(data, 0, &system), MLFF_OK);
        assert_int_equal(mlff_system_add_fixed(system), MLFF_OK);
        memset(system->fixed, 1, 2);
        if (with_zeros) memset(system->label_forces, 0, sizeof(double) * 6);
        assert_int_equal(mlff_dataset_add(fixed, system, NULL), MLFF_OK);
        mlff_system_destroy(system);
        warned[0] = 0;
        mlff_trainer *trainer = make_trainer(student, fixed, &options);
        if (with_zeros) assert_non_null(strstr(warned, "1 of 2 structures to train on has fixed atoms with forces of 0"));
        if (!with_zeros) assert_string_equal(warned, "");
        assert_int_equal(mlff_trainer_validate(trainer, fixed, &errors), MLFF_OK);
        assert_true(errors.force_mae < 1e-9); // the labels are the student's own
        mlff_trainer_destroy(trainer);
    }
    mlff_warning_handler_set(NULL, NULL);
    mlff_dataset_destroy(fixed);
    mlff_dataset_destroy(data);
    mlff_model_destroy(student);
}

// Molecules have no stress; of structures with a cell a warning says how many lack it, or that all do.
static void test_missing_stress(void **state)
{
    (void)state;
    const double stress[6] = {0};
    mlff_model *student = make_model("16", "2");
    mlff_dataset *data = make_data(student, 10, 2);
    mlff_trainer_options options = small_run(MLFF_FLOAT64);
    mlff_warning_handler_set(keep_warning, NULL);
    for (int k = 0; k < 4; k++) {
        mlff_labels labels = {.energy = -1, .stress = k == 2 ? stress : NULL, .weight = 1};
        mlff_system *system = NULL;
        assert_int_equal(mlff_system_build("silicon", 8, 0, &system), MLFF_OK);
        const double forces[24] = {0};
        assert_int_equal(system->n_atoms, 8);
        for (int i = 0; i < 8; i++) system->species[i] = 1; // which the student knows
        labels.forces = forces;
        warned[0] = 0;
        assert_int_equal(mlff_dataset_add(data, system, &labels), MLFF_OK);
        mlff_trainer_destroy(make_trainer(student, data, &options));
        assert_string_equal(
            warned,
            k < 2    ? "no structure that repeats along three axes has a stress: the student's pressure is not trained, and its "
                       "volumes "
                       "and elastic constants may be wrong; add labels with a stress, or take a teacher that has one"
            : k == 2 ? "2 of 3 structures to train on with a cell have no stress, or nan: of these the other labels alone count"
                     : "3 of 4 structures to train on with a cell have no stress, or nan: of these the other labels alone count");
        mlff_system_destroy(system);
    }
    options.loss.stress_weight = 0;
    warned[0] = 0;
    mlff_trainer_destroy(make_trainer(student, data, &options));
    assert_string_equal(warned, "");
    mlff_warning_handler_set(NULL, NULL);
    mlff_dataset_destroy(data);
    mlff_model_destroy(student);
}

// Errors of a training that diverges have more digits than there is room for: they are cut off.
static void test_text_of_errors(void **state)
{
    (void)state;
    struct {
        char text[96], behind[96];
    } room;
    const mlff_training_errors usual = {.force_mae = 0.01234, .energy_mae = 0.0015, .stress_mae = 0.0004};
    assert_string_equal(mlff_training_errors_text(&usual, room.text),
                        "forces 12.34 meV/Å, energy 1.500 meV/atom, stress 0.400 meV/Å³");
    const mlff_training_errors partly = {.force_mae = NAN, .energy_mae = 0.0015, .stress_mae = NAN};
    assert_string_equal(mlff_training_errors_text(&partly, room.text), "energy 1.500 meV/atom");
    const mlff_training_errors huge = {.force_mae = 1e35, .energy_mae = 1e40, .stress_mae = 1e38};
    memset(&room, '#', sizeof room);
    mlff_training_errors_text(&huge, room.text);
    assert_non_null(memchr(room.text, 0, sizeof room.text));
    for (size_t k = 0; k < sizeof room.behind; k++) assert_int_equal(room.behind[k], '#');
}

static void test_refuses(void **state)
{
    (void)state;
    mlff_model *student = make_model("16", "2"), *ani = NULL;
    mlff_dataset *data = make_data(student, 10, 3), *empty = NULL;
    mlff_trainer *trainer = NULL;
    mlff_trainer_options options = small_run(MLFF_FLOAT64);
    assert_int_equal(mlff_dataset_create(&empty), MLFF_OK);
    assert_int_equal(mlff_model_create("ani", (mlff_setting[]){{"n_members", "1"}, {0}}, &ani), MLFF_OK);
    assert_refused(mlff_trainer_create(student, empty, &options, &trainer), MLFF_ERR_VALUE, "no structure");
    assert_refused(mlff_trainer_create(ani, data, &options, &trainer), MLFF_ERR_UNSUPPORTED, "cannot be trained");
    options.learning_rate = NAN;
    assert_refused(mlff_trainer_create(student, data, &options, &trainer), MLFF_ERR_USAGE, "learning_rate");
    options = small_run(MLFF_FLOAT64);
    options.loss = (mlff_loss){0};
    assert_refused(mlff_trainer_create(student, data, &options, &trainer), MLFF_ERR_USAGE, "every weight of the loss is 0");
    options = small_run(MLFF_FLOAT64);
    options.learning_rate = 10; // weights soon overflow
    options.clip = 0;
    options.warm_up = 0;
    options.n_steps = 4000;
    trainer = make_trainer(student, data, &options);
    mlff_training_errors errors;
    mlff_status status = MLFF_OK;
    for (int k = 0; k < 40 && status == MLFF_OK; k++) status = mlff_trainer_run(trainer, 100, NULL, &errors);
    if (status != MLFF_OK) assert_refused(status, MLFF_ERR_UNSTABLE, "learning rate (10 at its highest)"); // not that of the end
    mlff_model *model = NULL;                                                                              // finite in any case
    assert_int_equal(mlff_trainer_model(trainer, 1, &model), MLFF_OK);
    mlff_model_destroy(model);
    mlff_trainer_destroy(trainer);
    mlff_dataset_destroy(data);
    mlff_dataset_destroy(empty);
    mlff_model_destroy(student);
    mlff_model_destroy(ani);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_learns),
        cmocka_unit_test(test_overfits_ten_structures),
        cmocka_unit_test(test_missing_forces),
        cmocka_unit_test(test_zero_of_validation),
        cmocka_unit_test(test_constrained_forces),
        cmocka_unit_test(test_missing_stress),
        cmocka_unit_test(test_text_of_errors),
        cmocka_unit_test(test_refuses),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
