// SPDX-License-Identifier: MIT
// test_trainer_fit.c: whole training runs: they stop and go on to the same bits, choose the best weights, and tell how they fare.
#include <fcntl.h>
#include <math.h>
#include <sys/file.h>
#include <unistd.h>

#include "model/model.h"
#include "train/data/dataset.h"
#include "train/fitting/history.h"
#include "train/fitting/student.h"
#include "train/fitting/trainer.h"
#include "trainer_support.h"

static int stop_at(void *context, const mlff_fit_progress *progress)
{
    return progress->validated && progress->step >= *(int64_t *)context;
}

static mlff_trainer_optimizer optimizer = MLFF_ADAMW; // of fit()
static int n_threads = 2;

static mlff_status fit(const mlff_model *student, const mlff_dataset *data, const mlff_dataset *validation, int64_t stop,
                       bool with_files, mlff_model **model_out)
{
    mlff_trainer_options options = small_run(MLFF_FLOAT32);
    options.optimizer = optimizer;
    options.soap_interval = 3;
    options.n_threads = n_threads;
    mlff_trainer *trainer = make_trainer(student, data, &options);
    mlff_fit_options fit = mlff_fit_options_default();
    fit.validate_every = 4;
    fit.callback = stop_at;
    fit.context = &stop;
    if (with_files) {
        fit.checkpoint = in_folder("a.checkpoint");
        fit.best = in_folder("a.best.safetensors");
        fit.history = in_folder("a.jsonl");
    }
    mlff_status status = mlff_trainer_fit(trainer, validation, &fit, model_out);
    if (status != MLFF_OK) { // the best so far is the caller's
        mlff_model_destroy(*model_out);
        *model_out = NULL;
    }
    mlff_trainer_destroy(trainer);
    return status;
}

static void remove_files(void)
{
    unlink(in_folder("a.checkpoint"));
    unlink(in_folder("a.best.safetensors"));
}

static double number_in(const char *line, const char *key)
{
    char text[64];
    snprintf(text, sizeof text, "\"%s\": ", key);
    const char *at = strstr(line, text);
    return at ? strtod(at + strlen(text), NULL) : NAN;
}

// Structures a second are of those that were trained on: the last batch of an epoch has fewer.
static void test_structures_per_second(void **state)
{
    (void)state;
    mlff_model *teacher = make_model("8", "1"), *student = make_model("16", "2"), *trained = NULL;
    mlff_dataset *data = make_data(teacher, 10, N_FRAMES), *other = make_data(teacher, 11, 6);
    char *history = NULL;
    size_t length;
    remove_files();
    assert_int_equal(fit(student, data, other, INT64_MAX, true, &trained), MLFF_OK);
    assert_int_equal(base_read_file(in_folder("a.jsonl"), 1 << 20, &history, &length), MLFF_OK);
    for (char *line = history; *line; line = strchr(line, '\n') + 1) {
        const int step = (int)number_in(line, "step"), n = N_FRAMES * (step / 5) + 5 * (step % 5);
        const double found = number_in(line, "structures_per_s") * number_in(line, "elapsed_s");
        if (!(fabs(found - n) <= 1e-6 * n)) fail_msg("step %d: %.9g structures, expected %d", step, found, n);
    }
    remove_files();
    base_free(history);
    mlff_model_destroy(trained);
    mlff_dataset_destroy(data);
    mlff_dataset_destroy(other);
    mlff_model_destroy(teacher);
    mlff_model_destroy(student);
}

// Each error of the learning curve stands at its step, of which the first is not 0, some are left out and the last is nearer than others.
static void test_learning_curve(void **state)
{
    (void)state;
    static const char *const lines = "{\"step\": 100, \"training\": {\"force_mae_ev_per_angstrom\": 1}, "
                                     "\"validation\": {\"force_mae_ev_per_angstrom\": 1}}\n"
                                     "{\"step\": 200, \"training\": {\"force_mae_ev_per_angstrom\": null}, "
                                     "\"validation\": {\"force_mae_ev_per_angstrom\": 1}}\n"
                                     "{\"step\": 400, \"training\": {\"force_mae_ev_per_angstrom\": 1}, "
                                     "\"validation\": {\"force_mae_ev_per_angstrom\": 0.5}}\n"
                                     "{\"step\": 500, \"training\": {\"force_mae_ev_per_angstrom\": 0.5}, "
                                     "\"validation\": {\"force_mae_ev_per_angstrom\": 0.5}}\n";
    base_text page = {0}, file = {0};
    base_text_add(&file, "%s", lines);
    assert_int_equal(base_text_write(&file, in_folder("a.jsonl")), MLFF_OK);
    assert_int_equal(history_draw(in_folder("a.jsonl"), &page), MLFF_OK);
    int n = 0;
    for (const char *line = page.text; (line = strstr(line, "points=\"")); n++) {
        double x[3], y[3];
        line += strlen("points=\"");
        assert_int_equal(sscanf(line, "%lf,%lf %lf,%lf %lf,%lf \"", &x[0], &y[0], &x[1], &y[1], &x[2], &y[2]), 6);
        for (int k = 0; k < 3; k++) // the abscissa is 370 wide and begins with step 0 at 64
            if (!(fabs(x[k] - (64 + 370 * (double[]){0.2, 0.8, 1}[k])) <= 0.051)) fail_msg("point %d is at %g", k, x[k]);
    }
    assert_int_equal(n, 2);
    base_text_free(&page);
    base_text_free(&file);
}

// Errors since they were last asked for are of the steps before a checkpoint, too, and not of steps that are given up.
static void test_errors_across_a_checkpoint(void **state)
{
    (void)state;
    const char *path = in_folder("a.checkpoint");
    mlff_model *teacher = make_model("8", "1"), *student = make_model("16", "2");
    mlff_dataset *data = make_data(teacher, 10, N_FRAMES);
    const mlff_trainer_options options = small_run(MLFF_FLOAT64);
    mlff_trainer *one = make_trainer(student, data, &options), *other = make_trainer(student, data, &options);
    mlff_training_errors whole, pieces;
    assert_int_equal(mlff_trainer_run(one, 9, NULL, NULL), MLFF_OK);
    assert_int_equal(mlff_trainer_save(one, path), MLFF_OK);
    assert_int_equal(mlff_trainer_run(one, 8, NULL, &whole), MLFF_OK);
    assert_int_equal(mlff_trainer_run(other, 3, NULL, NULL), MLFF_OK);
    assert_int_equal(mlff_trainer_restore(other, path), MLFF_OK);
    assert_int_equal(mlff_trainer_run(other, 8, NULL, &pieces), MLFF_OK);
    assert_int_equal(pieces.n_frames, whole.n_frames);
    assert_int_equal(pieces.n_atoms, whole.n_atoms);
    const double pairs[][2] = {{whole.loss, pieces.loss},
                               {whole.energy_mae, pieces.energy_mae},
                               {whole.energy_rmse, pieces.energy_rmse},
                               {whole.force_mae, pieces.force_mae},
                               {whole.force_rmse, pieces.force_rmse}};
    for (int k = 0; k < 5; k++)
        if (!(fabs(pairs[k][0] - pairs[k][1]) <= 1e-12 * pairs[k][0]))
            fail_msg("error %d: %.15g, in one go %.15g", k, pairs[k][1], pairs[k][0]);
    unlink(path);
    mlff_trainer_destroy(one);
    mlff_trainer_destroy(other);
    mlff_dataset_destroy(data);
    mlff_model_destroy(teacher);
    mlff_model_destroy(student);
}

// Stopped at every validation and gone on with, in processes' stead by new trainers: the same bits as in one go.
static void test_resumes_to_the_same_bits(void **state)
{
    (void)state;
    mlff_model *teacher = make_model("8", "1"), *student = make_model("16", "2"), *whole = NULL, *pieces = NULL;
    mlff_dataset *data = make_data(teacher, 10, N_FRAMES), *other = make_data(teacher, 11, 6);
    assert_int_equal(fit(student, data, other, INT64_MAX, false, &whole), MLFF_OK);
    for (int64_t stop = 4; stop < N_STEPS; stop += 4)
        assert_int_equal(fit(student, data, other, stop, true, &pieces), MLFF_ERR_INTERRUPTED);
    mlff_dataset *changed = make_data(teacher, 12, 6); // errors of the best weights so far are not of these
    assert_refused(fit(student, data, changed, INT64_MAX, true, &pieces), MLFF_ERR_VALUE, "other structures for validation");
    mlff_dataset_destroy(changed);
    mlff_model *begun_with = make_model("16", "3"); // its weights are not those that are trained
    assert_refused(fit(begun_with, data, other, INT64_MAX, true, &pieces), MLFF_ERR_VALUE, "began with other weights");
    mlff_model_destroy(begun_with);
    assert_int_equal(fit(student, data, other, INT64_MAX, true, &pieces), MLFF_OK);

    char *history = NULL;
    size_t length;
    int64_t lines = 0;
    double elapsed = 0;
    assert_int_equal(base_read_file(in_folder("a.jsonl"), 1 << 20, &history, &length), MLFF_OK);
    for (char *line = history; *line;
         line = strchr(line, '\n') + 1) { // each validation once, in order, and later than that before
        long long step;
        assert_int_equal(sscanf(line, "{\"step\": %lld", &step), 1);
        assert_int_equal(step, 4 * ++lines);
        assert_true(number_in(line, "elapsed_s") > elapsed);
        elapsed = number_in(line, "elapsed_s");
    }
    assert_int_equal(lines, N_STEPS / 4);
    base_free(history);

    // A best student of the same shape, of another training: with its identity, and with none.
    assert_int_equal(rename(in_folder("a.best.safetensors"), in_folder("kept")), 0);
    for (int k = 0; k < 2; k++) {
        mlff_model *none = NULL;
        if (k == 0) assert_int_equal(weights_set(&whole->file, TRAINER_IDENTITY, "0123456789abcdef"), MLFF_OK);
        assert_int_equal(mlff_model_save(whole, in_folder("a.best.safetensors")), MLFF_OK);
        assert_refused(fit(student, data, other, INT64_MAX, true, &none), MLFF_ERR_VALUE,
                       "is the best student of another training than");
        weights_remove(&whole->file, TRAINER_IDENTITY);
    }
    assert_int_equal(rename(in_folder("kept"), in_folder("a.best.safetensors")), 0);
    mlff_model_destroy(pieces);
    assert_int_equal(fit(student, data, other, INT64_MAX, true, &pieces), MLFF_OK);
    assert_same_model(whole, pieces);

    // Without its checkpoint a best student is not known to be of a training, and stays.
    mlff_model *none = NULL;
    unlink(in_folder("a.checkpoint"));
    assert_refused(fit(student, data, other, INT64_MAX, true, &none), MLFF_ERR_USAGE, "would be replaced by the best student");
    assert_int_equal(access(in_folder("a.best.safetensors"), F_OK), 0);
    assert_int_equal(access(in_folder("a.checkpoint"), F_OK), -1);
    remove_files();
    mlff_model_destroy(whole);
    mlff_model_destroy(pieces);
    mlff_dataset_destroy(data);
    mlff_dataset_destroy(other);
    mlff_model_destroy(teacher);
    mlff_model_destroy(student);
}

static bool is_locked(const char *path)
{
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(descriptor >= 0);
    const bool locked = flock(descriptor, LOCK_EX | LOCK_NB) != 0;
    close(descriptor);
    return locked;
}

static int stop_and_look(void *context, const mlff_fit_progress *progress)
{
    if (progress->validated) *(bool *)context = is_locked(in_folder("a.checkpoint"));
    return progress->validated;
}

// Another process, for which a second opening of the file stands, does not write its checkpoints and best student between those of this one.
static void test_one_process_trains(void **state)
{
    (void)state;
    mlff_model *teacher = make_model("8", "1"), *student = make_model("16", "2"), *trained = NULL;
    mlff_dataset *data = make_data(teacher, 10, N_FRAMES), *other = make_data(teacher, 11, 6);
    mlff_trainer_options options = small_run(MLFF_FLOAT32);
    mlff_fit_options run = mlff_fit_options_default();
    bool locked = false;
    int descriptor;
    run.validate_every = 4;
    run.callback = stop_and_look;
    run.context = &locked;
    run.checkpoint = in_folder("a.checkpoint");
    run.best = in_folder("a.best.safetensors");
    fclose(fopen(run.checkpoint, "w")); // of a process that was killed before its first checkpoint
    mlff_trainer *trainer = make_trainer(student, data, &options);
    assert_int_equal(mlff_trainer_fit(trainer, other, &run, &trained), MLFF_ERR_INTERRUPTED);
    assert_true(locked);
    assert_false(is_locked(run.checkpoint));
    mlff_model_destroy(trained);
    mlff_trainer_destroy(trainer);

    assert_int_equal(base_lock_name(run.checkpoint, O_RDONLY, "a training", &descriptor), MLFF_OK);
    assert_refused(fit(student, data, other, INT64_MAX, true, &trained), MLFF_ERR_IO,
                   "another process is writing a training there");
    close(descriptor);
    assert_int_equal(fit(student, data, other, INT64_MAX, true, &trained), MLFF_OK);
    remove_files();
    mlff_model_destroy(trained);
    mlff_dataset_destroy(data);
    mlff_dataset_destroy(other);
    mlff_model_destroy(teacher);
    mlff_model_destroy(student);
}

// SOAP goes on to the same bits too, has them for any number of threads, and differs from AdamW.
static void test_soap(void **state)
{
    (void)state;
    mlff_model *teacher = make_model("8", "1"), *student = make_model("16", "2"), *adamw = NULL, *serial = NULL;
    mlff_dataset *data = make_data(teacher, 10, N_FRAMES), *other = make_data(teacher, 11, 6);
    assert_int_equal(fit(student, data, other, INT64_MAX, false, &adamw), MLFF_OK);
    optimizer = MLFF_SOAP;
    test_resumes_to_the_same_bits(NULL);
    mlff_model *parallel = NULL;
    assert_int_equal(fit(student, data, other, INT64_MAX, false, &parallel), MLFF_OK);
    n_threads = 1;
    assert_int_equal(fit(student, data, other, INT64_MAX, false, &serial), MLFF_OK);
    assert_same_model(serial, parallel);
    size_t n_soap, n_adamw;
    char *with_soap = file_of(serial, &n_soap), *with_adamw = file_of(adamw, &n_adamw);
    assert_int_equal(n_soap, n_adamw);
    assert_memory_not_equal(with_soap, with_adamw, n_soap);
    base_free(with_soap);
    base_free(with_adamw);
    optimizer = MLFF_ADAMW;
    n_threads = 2;
    mlff_model *models[] = {teacher, student, adamw, serial, parallel};
    for (int k = 0; k < 5; k++) mlff_model_destroy(models[k]);
    mlff_dataset_destroy(data);
    mlff_dataset_destroy(other);
}

// The validations of a run, and the best weights that it told at the end.
typedef struct validations {
    int n;
    int64_t step[N_STEPS], best_step;
    double force[N_STEPS], loss[N_STEPS];
} validations;

static int note_validation(void *context, const mlff_fit_progress *progress)
{
    validations *v = context;
    if (!progress->validated) return 0;
    assert_true(v->n < N_STEPS);
    v->step[v->n] = progress->step;
    v->force[v->n] = progress->validation.force_mae;
    v->loss[v->n++] = progress->validation.loss;
    v->best_step = progress->best_step;
    return 0;
}

static int64_t step_of_least(const validations *v, const double *values, int64_t from)
{
    int least = -1;
    for (int k = 0; k < v->n; k++)
        if (v->step[k] >= from && (least < 0 || values[k] < values[least])) least = k;
    assert_true(least >= 0);
    return v->step[least];
}

// Forces choose the best weights; once the weight of the energy is raised, in the last fifth, the loss chooses among the weights since
// then, even where forces were better before.
static void test_best_weights(void **state)
{
    (void)state;
    mlff_model *teacher = make_model("8", "1"), *student = make_model("16", "2");
    mlff_dataset *data = make_data(teacher, 10, N_FRAMES), *other = make_data(teacher, 11, 6);
    for (int boosted = 0; boosted < 2; boosted++) {
        mlff_trainer_options options = small_run(MLFF_FLOAT32);
        mlff_fit_options fit_options = mlff_fit_options_default();
        validations seen = {0};
        mlff_model *model;
        options.energy_boost = boosted ? 1e7 : 0;
        options.schedule = MLFF_CONSTANT;
        options.n_steps = 10 * N_STEPS; // until forces get worse where the energy alone counts
        fit_options.validate_every = N_STEPS / 2;
        fit_options.callback = note_validation;
        fit_options.context = &seen;
        mlff_trainer *trainer = make_trainer(student, data, &options);
        assert_int_equal(mlff_trainer_fit(trainer, other, &fit_options, &model), MLFF_OK);
        const int64_t last_fifth = options.n_steps / 5 * 4, best_forces = step_of_least(&seen, seen.force, 0);
        if (boosted) assert_true(best_forces < last_fifth); // or the test shows nothing
        assert_int_equal(seen.best_step, boosted ? step_of_least(&seen, seen.loss, last_fifth) : best_forces);
        mlff_trainer_destroy(trainer);
        mlff_model_destroy(model);
    }
    mlff_dataset_destroy(data);
    mlff_dataset_destroy(other);
    mlff_model_destroy(teacher);
    mlff_model_destroy(student);
}

static void test_checkpoints_are_checked(void **state)
{
    (void)state;
    mlff_model *teacher = make_model("8", "1"), *student = make_model("16", "2");
    mlff_dataset *data = make_data(teacher, 10, N_FRAMES), *other = make_data(teacher, 12, N_FRAMES);
    mlff_trainer_options options = small_run(MLFF_FLOAT64);
    mlff_trainer *trainer = make_trainer(student, data, &options);
    const char *path = in_folder("a.checkpoint");
    assert_int_equal(mlff_trainer_run(trainer, 3, NULL, NULL), MLFF_OK);
    assert_int_equal(mlff_trainer_save(trainer, path), MLFF_OK);
    assert_int_equal(mlff_trainer_restore(trainer, path), MLFF_OK);
    assert_int_equal(mlff_trainer_step(trainer), 3);
    mlff_checkpoint_info told = {.struct_size = sizeof told};
    assert_int_equal(mlff_checkpoint_info_get(path, &told), MLFF_OK);
    assert_int_equal(told.step, 3);
    assert_int_equal(told.n_steps, options.n_steps);
    assert_int_equal(told.seed, options.seed);
    assert_int_equal(told.batch_size, options.batch_size);
    assert_int_equal(told.n_structures, mlff_dataset_size(data));
    assert_true(told.learning_rate == options.learning_rate && told.best_step == 0 && told.best.n_frames == 0);
    assert_non_null(strstr(told.model, "PaiNN, "));
    told.struct_size = 2 * sizeof told;
    assert_refused(mlff_checkpoint_info_get(path, &told), MLFF_ERR_USAGE, "struct_size");

    // What a run is known by keeps its bytes, or older checkpoints are refused: one layer is "1 layers" there.
    mlff_model *flat = make_model_of("8", "1", "1");
    mlff_trainer *of_flat = make_trainer(flat, data, &options);
    static char header[8192];
    assert_int_equal(mlff_trainer_save(of_flat, path), MLFF_OK);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    for (size_t n = fread(header, 1, sizeof header - 1, file), k = 0; k < n; k++) header[k] = header[k] ? header[k] : '.';
    fclose(file);
    assert_non_null(strstr(header, "PaiNN, 8 features, 1 layers, "));
    mlff_trainer_destroy(of_flat);
    mlff_model_destroy(flat);
    assert_int_equal(mlff_trainer_save(trainer, path), MLFF_OK);

    mlff_trainer *of_other = make_trainer(student, other, &options);
    assert_refused(mlff_trainer_restore(of_other, path), MLFF_ERR_VALUE, "another run");
    mlff_trainer_destroy(of_other);
    options.learning_rate *= 2;
    of_other = make_trainer(student, data, &options);
    assert_refused(mlff_trainer_restore(of_other, path), MLFF_ERR_VALUE, "another run");
    assert_int_equal(mlff_trainer_step(of_other), 0);
    mlff_trainer_destroy(of_other);

    char *bytes = NULL;
    size_t length;
    assert_int_equal(base_read_file(path, 1 << 24, &bytes, &length), MLFF_OK);
    for (int k = 0; k < 64; k++) { // a bit anywhere, or the end cut off
        const char *damaged = in_folder("damaged");
        const size_t at = (size_t)(base_random_uniform(5, 0, (uint64_t)k) * (double)length);
        file = fopen(damaged, "wb");
        assert_non_null(file);
        bytes[at] ^= k % 2 ? 0x10 : 0;
        fwrite(bytes, 1, k % 2 ? length : at, file);
        fclose(file);
        bytes[at] ^= k % 2 ? 0x10 : 0;
        if (mlff_trainer_restore(trainer, damaged) == MLFF_OK) fail_msg("byte %zu of %zu, case %d, is accepted", at, length, k);
        assert_int_equal(mlff_trainer_step(trainer), 3);
    }
    base_free(bytes);
    mlff_trainer_destroy(trainer);
    mlff_dataset_destroy(data);
    mlff_dataset_destroy(other);
    mlff_model_destroy(teacher);
    mlff_model_destroy(student);
}

// A dataset with other content is another one, though its address and its size are those of the one before.
static void test_changed_validation(void **state)
{
    (void)state;
    mlff_model *teacher = make_model("8", "1"), *student = make_model("16", "2");
    mlff_dataset *data = make_data(teacher, 10, 3), *other = make_data(teacher, 11, 3);
    mlff_trainer_options options = small_run(MLFF_FLOAT64);
    mlff_trainer *trainer = make_trainer(student, data, &options);
    mlff_training_errors expected, before, after;
    assert_int_equal(mlff_trainer_validate(trainer, other, &expected), MLFF_OK);
    assert_int_equal(mlff_trainer_validate(trainer, data, &before), MLFF_OK);
    dataset_truncate(data, 0);
    for (int k = 0; k < 3; k++) assert_int_equal(dataset_add_copy(data, &other->frames[k]), MLFF_OK);
    assert_int_equal(mlff_trainer_validate(trainer, data, &after), MLFF_OK);
    assert_true(before.loss != expected.loss && after.loss == expected.loss);
    mlff_trainer_destroy(trainer);
    mlff_dataset_destroy(data);
    mlff_dataset_destroy(other);
    mlff_model_destroy(teacher);
    mlff_model_destroy(student);
}

// Energies that are 3 meV/atom too high, one of them by far more: only the common part is taken away, from every element.
static void test_settled_energies(void **state)
{
    (void)state;
    const mlff_evaluator_options options = mlff_evaluator_options_default();
    mlff_model *model = make_model("16", "4");
    mlff_dataset *data = make_data(model, 9, 21);
    mlff_training_errors errors = {.force_mae = 0.5};
    double before[2], after[2];
    for (int k = 0; k < 21; k++) data->frames[k].system->label_energy -= 3 * (k == 4 ? 1.0 : 0.003 + 1e-5 * (k - 10));
    for (int k = 0; k < 2; k++) before[k] = model->offset[k ? 8 : 1];
    assert_ok(student_settle_energies(&model, data, &options, &errors));
    for (int k = 0; k < 2; k++) after[k] = model->offset[k ? 8 : 1];
    for (int k = 0; k < 2; k++) assert_true(fabs(after[k] - before[k] + 0.003) <= 1.5e-5); // rounding of float32 energies
    assert_true(errors.force_mae == 0.5 && fabs(errors.energy_mae - 0.997 / 21) <= 1e-4);
    assert_true(fabs(errors.energy_rmse - 0.997 / sqrt(21)) <= 1e-4);
    // Without energies it stays.
    for (int k = 0; k < 21; k++) data->frames[k].system->label_energy = NAN;
    assert_ok(student_settle_energies(&model, data, &options, &errors));
    assert_true(model->offset[1] == after[0] && model->offset[8] == after[1]);
    mlff_dataset_destroy(data);
    mlff_model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_structures_per_second), cmocka_unit_test(test_errors_across_a_checkpoint),
        cmocka_unit_test(test_learning_curve),        cmocka_unit_test(test_resumes_to_the_same_bits),
        cmocka_unit_test(test_one_process_trains),    cmocka_unit_test(test_soap),
        cmocka_unit_test(test_best_weights),          cmocka_unit_test(test_checkpoints_are_checked),
        cmocka_unit_test(test_changed_validation),    cmocka_unit_test(test_settled_energies),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
