// SPDX-License-Identifier: MIT
// distill_students.c: students of a run: young ones that explore, the one that is handed out, and its baseline.
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/sha256.h"
#include "distill.h"
#include "train/data/dataset.h"

static int while_training(void *context, const mlff_fit_progress *p)
{
    const bool best = p->validated && p->best_step == p->step;
    char elements[96], so_far[48] = "";
    mlff_element_errors_text(p->element_force_mae, elements);
    if (p->best_step > 0) snprintf(so_far, sizeof so_far, ", best %.2f meV/Å", 1e3 * p->best.force_mae);
    return distill_tell(context, (double)p->step / (double)p->n_steps,
                        best && 10 * (p->step - 1) / p->n_steps != 10 * p->step / p->n_steps,
                        "step %" PRId64 " of %" PRId64 ", %.0f structures/s%s%s%s%s, %.0f s left", p->step, p->n_steps,
                        p->structures_per_s, so_far, elements[0] ? " (last: " : "", elements, elements[0] ? ")" : "",
                        p->remaining_s) != MLFF_OK;
}

// "H,C,O" of the seeds, or, of a run from labels, of the structures that are trained on.
static void list_elements(const distill *d, const mlff_dataset *train, char *elements, size_t bytes)
{
    bool present[MLFF_MAX_ATOMIC_NUMBER + 1] = {false};
    for (int64_t s = 0; d->seeds && s < mlff_samples_size(d->seeds); s++) {
        const mlff_system *system = mlff_samples_get(d->seeds, s, NULL);
        for (int i = 0; i < system->n_atoms; i++) present[system->species[i]] = true;
    }
    if (!d->seeds) dataset_find_elements(train, present);
    dataset_elements_text(present, elements, bytes);
}

static mlff_status new_student(distill *d, const distill_data *data, uint64_t with_seed, mlff_model **model_out)
{
    mlff_status status = MLFF_OK;
    const mlff_distill_config *c = &d->config;
    mlff_model *bare = NULL;
    double shifts[119];
    char features[16], layers[16], radial[16], cutoff[32], core[32], seed[24], elements[512];
    list_elements(d, data->train, elements, sizeof elements);
    snprintf(features, sizeof features, "%d", c->n_features);
    snprintf(layers, sizeof layers, "%d", c->n_layers);
    snprintf(radial, sizeof radial, "%d", c->n_radial);
    locale_t callers = uselocale(base_c_locale());
    base_format(cutoff, sizeof cutoff, "%.17g", c->cutoff_angstrom);
    base_format(core, sizeof core, "%.17g", d->core_repulsion);
    uselocale(callers);
    snprintf(seed, sizeof seed, "%" PRIu64, with_seed);
    const mlff_setting settings[] = {{"n_features", features},
                                     {"n_layers", layers},
                                     {"n_radial", radial},
                                     {"cutoff", cutoff},
                                     {"cutoff_function", "mollifier"},
                                     {"core_repulsion", core},
                                     {"elements", elements},
                                     {"seed", seed},
                                     {0}};
    MLFF_TRY(mlff_dataset_shifts(data->train, shifts));
    MLFF_TRY(mlff_model_create(NULL, settings, &bare));
    MLFF_TRY(mlff_model_with_shifts(bare, shifts, model_out));
done:
    mlff_model_destroy(bare);
    return status;
}

// The teacher of sampled structures, or the files of labels that were there, without their folders.
static mlff_status note_labels(const distill *d, const mlff_dataset *train, mlff_model *model)
{
    mlff_status status = MLFF_OK;
    const mlff_distill_config *c = &d->config;
    mlff_teacher_info teacher;
    base_text text = {0};
    base_text_add(&text, "%" PRId64 " structure%s", mlff_dataset_size(train), base_plural(mlff_dataset_size(train)));
    if (c->labels) {
        base_text_add(&text, " of ");
        distill_add_names(c->labels, &text);
    }
    if (!c->labels) {
        base_text_add(&text, ", %g to %g K", c->lowest_kelvin, c->highest_kelvin);
        mlff_teacher_info_get(d->teacher, &teacher);
        MLFF_TRY(mlff_model_note(model, "teacher", teacher.name));
        MLFF_TRY(mlff_model_note(model, "teacher_description", teacher.description));
        MLFF_TRY(mlff_model_note(model, "teacher_hash", teacher.hash));
        MLFF_TRY(mlff_model_note(model, "systems", c->systems));
    }
    MLFF_TRY(text.status);
    MLFF_TRY(mlff_model_note(model, "data", text.text));
done:
    base_text_free(&text);
    return status;
}

static mlff_status note_origin(const distill *d, const distill_data *data, const mlff_training_errors *best, mlff_model *model)
{
    mlff_status status = MLFF_OK;
    char hash[SHA256_TEXT_BYTES], text[160], errors[96];
    MLFF_TRY(note_labels(d, data->train, model));
    MLFF_TRY(mlff_dataset_hash(data->train, hash));
    MLFF_TRY(mlff_model_note(model, "data_hash", hash));
    MLFF_TRY(distill_note_nearest(data->train, false, model));
    base_format(text, sizeof text, "%g", d->config.highest_kelvin);
    if (!d->config.labels) MLFF_TRY(mlff_model_note(model, "highest_kelvin", text));
    snprintf(text, sizeof text, "validation: %s (mean absolute)", mlff_training_errors_text(best, errors));
    MLFF_TRY(mlff_model_note(model, "error", text));
done:
    return status;
}

// Files of a training, whose names begin as that of its model.
enum { TRAINED_MODEL, TRAINING_CHECKPOINT, TRAINING_BEST, N_TRAINING_FILES };

static mlff_status training_path(const char *model_path, int file, char path[PATH_MAX])
{
    static const char of_model[] = ".safetensors";
    char checkpoint[PATH_MAX];
    const int stem = (int)(strlen(model_path) - strlen(of_model));
    const int length = snprintf(checkpoint, sizeof checkpoint, "%.*s.checkpoint", stem, model_path);
    if (length >= PATH_MAX) return mlff_fail(MLFF_ERR_LIMIT, "%s: the path is too long", model_path);
    if (file == TRAINING_BEST) return mlff_checkpoint_best_path(checkpoint, path, PATH_MAX);
    snprintf(path, PATH_MAX, "%s", file == TRAINED_MODEL ? model_path : checkpoint);
    return MLFF_OK;
}

bool distill_is_of_training(const char *name, size_t length, const char *model_name)
{
    char path[PATH_MAX];
    for (int file = 0; file < N_TRAINING_FILES; file++)
        if (training_path(model_name, file, path) == MLFF_OK && strlen(path) == length && strncmp(name, path, length) == 0)
            return true;
    return false;
}

mlff_status distill_training_check_absent(const char *model_path)
{
    mlff_status status = MLFF_OK;
    char path[PATH_MAX];
    for (int file = 0; file < N_TRAINING_FILES && status == MLFF_OK; file++) {
        status = training_path(model_path, file, path);
        if (status == MLFF_OK) status = distill_refuse_found(path);
    }
    return status;
}

mlff_status distill_train(distill *d, const distill_data *data, const char *path, uint64_t seed, int64_t n_steps,
                          bool with_probes, const char *history, mlff_model **model_out)
{
    mlff_status status = MLFF_OK;
    mlff_model *fresh = NULL, *model = NULL;
    mlff_trainer *trainer = NULL;
    mlff_training_errors best = {0};
    mlff_trainer_options options = mlff_trainer_options_default();
    mlff_fit_options fit = mlff_fit_options_default();
    char errors[96], nearer[64] = "", checkpoint[PATH_MAX], kept[PATH_MAX];
    MLFF_TRY(training_path(path, TRAINING_CHECKPOINT, checkpoint));
    MLFF_TRY(training_path(path, TRAINING_BEST, kept));
    if (access(path, F_OK) == 0) {
        status = mlff_model_load(path, model_out);
        if (status == MLFF_ERR_FORMAT) MLFF_FAIL(status, "%s; remove it, and it is trained again", mlff_last_error());
        MLFF_TRY(status);
        MLFF_TRY(distill_check_trained_on(data->train, *model_out, path));
        goto trained; // a checkpoint may have outlived it
    }
    if (mlff_dataset_size(data->validation) == 0)
        MLFF_FAIL(MLFF_ERR_VALUE,
                  "no structure is left for validation: each has a force above 20 eV/Å, or an unsure teacher; add structures, or "
                  "raise max_teacher_deviation");
    MLFF_TRY(distill_optimizer(&d->config, &options.optimizer));
    options.device = d->options.device;
    options.n_threads = d->options.n_threads;
    options.seed = seed;
    options.batch_size = d->config.batch_size;
    options.n_steps = n_steps;
    options.learning_rate = d->config.learning_rate;
    options.loss.huber_forces = d->config.huber_forces;
    options.nearer = d->config.nearer;
    if (with_probes) options.loss.hessian_weight = 0.1 * options.loss.forces_weight;
    fit.checkpoint = checkpoint;
    fit.best = kept;
    fit.history = history;
    fit.checkpoint_every = 10;
    fit.callback = while_training;
    fit.context = d;
    MLFF_TRY(new_student(d, data, seed, &fresh));
    MLFF_TRY(mlff_trainer_create(fresh, data->train, &options, &trainer));
    MLFF_TRY(mlff_trainer_fit(trainer, data->validation, &fit, &model));
    mlff_trainer_best(trainer, &best);
    MLFF_TRY(note_origin(d, data, &best, model));
    MLFF_TRY(mlff_model_save(model, path));
    const int64_t n_nearer = mlff_trainer_n_nearer(trainer);
    if (n_nearer > 0) snprintf(nearer, sizeof nearer, " and %" PRId64 " with nearer atoms", n_nearer);
    MLFF_TRY(distill_tell(d, 1, 1, "%" PRId64 " step%s on %" PRId64 " structure%s%s: %s (validation)", n_steps,
                          base_plural(n_steps), mlff_dataset_size(data->train), base_plural(mlff_dataset_size(data->train)),
                          nearer, mlff_training_errors_text(&best, errors)));
    *model_out = model;
    model = NULL;
trained:
    unlink(kept);
    unlink(checkpoint);
done:
    mlff_trainer_destroy(trainer);
    mlff_model_destroy(fresh);
    mlff_model_destroy(model);
    return status;
}

mlff_status distill_train_student(distill *d)
{
    d->stage = "train";
    return distill_train(d, &d->data, d->path[DISTILL_STUDENT], d->config.seed, d->config.n_steps, d->config.n_probes > 0,
                         d->path[DISTILL_HISTORY], &d->student);
}

// The first structures with as many others of the same kind as the rounds had labelled, which had no probes. Without rounds and probes
// the student is its own baseline.
mlff_status distill_train_baseline(distill *d)
{
    mlff_status status = MLFF_OK;
    const mlff_distill_config *c = &d->config;
    distill_data data = {0};
    mlff_samples *more = NULL;
    d->stage = "baseline";
    if (!c->baseline || (c->n_rounds == 0 && c->n_probes == 0)) return MLFF_OK;
    MLFF_TRY(distill_data_create(&data));
    MLFF_TRY(distill_add_labels(d, d->path[DISTILL_LABELS], c->seed, &data));
    if (d->n_explored > 0) {
        MLFF_TRY(mlff_samples_create(&more));
        MLFF_TRY(distill_sample(d, DISTILL_BASELINE_SAMPLES, DISTILL_BASELINE_RECORDED, d->n_explored, 0, c->seed + 1, more));
        MLFF_TRY(distill_label(d, more, d->path[DISTILL_BASELINE_LABELS]));
        MLFF_TRY(distill_add_labels(d, d->path[DISTILL_BASELINE_LABELS], c->seed, &data));
    }
    MLFF_TRY(distill_train(d, &data, d->path[DISTILL_BASELINE], c->seed, c->n_steps, false, NULL, &d->baseline));
done:
    mlff_samples_destroy(more);
    distill_data_free(&data);
    return status;
}
