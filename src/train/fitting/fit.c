// SPDX-License-Identifier: MIT
// fit.c: a training run from its beginning, or from its checkpoint, to its end.
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "history.h"
#include "student.h"
#include "train_record.h"
#include "trainer.h"

typedef struct fit {
    mlff_trainer *trainer;
    const mlff_dataset *validation;
    mlff_fit_options options;
    mlff_model *best;  // see is_better
    base_text history; // lines so far
    mlff_fit_progress progress;
    int lock; // of the checkpoint; -1: none
    int64_t begun_ns, saved_ns, shown_ns;
    int64_t first_step, first_structure; // of this process
    double elapsed_before_s;             // of processes before this one
} fit;

mlff_fit_options mlff_fit_options_default(void)
{
    return (mlff_fit_options){.struct_size = sizeof(mlff_fit_options), .checkpoint_every = 30};
}

// ---- history --------------------------------------------------------------------------------------------------------

static void add_errors(base_text *line, const char *key, const mlff_training_errors *e, const double *by_element)
{
    base_text_add(line, ", \"%s\": {", key);
    record_integer(line, true, "structures", e->n_frames);
    record_number(line, false, "loss", e->loss);
    record_number(line, false, "energy_mae_ev_per_atom", e->energy_mae);
    record_number(line, false, "energy_rmse_ev_per_atom", e->energy_rmse);
    record_number(line, false, "force_mae_ev_per_angstrom", e->force_mae);
    record_number(line, false, "force_rmse_ev_per_angstrom", e->force_rmse);
    record_number(line, false, "stress_mae_ev_per_angstrom3", e->stress_mae);
    for (int z = 1; by_element && z <= MLFF_MAX_ATOMIC_NUMBER; z++) {
        char name[48];
        if (isnan(by_element[z])) continue;
        snprintf(name, sizeof name, "force_mae_%s_ev_per_angstrom", mlff_element_symbol(z));
        record_number(line, false, name, by_element[z]);
    }
    base_text_add(line, "}");
}

// Without a checkpoint to go on from, a history that cannot be written does not end the training; the next validation tries again.
static mlff_status write_history(fit *f)
{
    const mlff_status status = base_text_write(&f->history, f->options.history);
    if (status != MLFF_ERR_IO || f->options.checkpoint) {
        f->progress.history_failed = 0;
        return status;
    }
    if (!f->progress.history_failed) mlff_warn("%s; the training goes on", mlff_last_error());
    f->progress.history_failed = 1;
    return MLFF_OK;
}

static mlff_status add_history(fit *f)
{
    const mlff_fit_progress *p = &f->progress;
    base_text_add(&f->history, "{");
    record_integer(&f->history, true, "step", p->step);
    record_number(&f->history, false, "epoch", (double)p->step / (double)f->trainer->per_epoch);
    record_number(&f->history, false, "learning_rate", p->learning_rate);
    add_errors(&f->history, "training", &p->training, NULL);
    add_errors(&f->history, "validation", &p->validation, f->trainer->element_force_mae);
    record_number(&f->history, false, "structures_per_s", p->structures_per_s);
    record_number(&f->history, false, "elapsed_s", p->elapsed_s);
    base_text_add(&f->history, "}\n");
    return f->options.history ? write_history(f) : MLFF_OK;
}

// ---- checkpoint and best --------------------------------------------------------------------------------------------

// One process writes a checkpoint and its best student. Each checkpoint is a new file of the name: the lock goes over to it.
static mlff_status lock_checkpoint(fit *f)
{
    int descriptor;
    const mlff_status status = base_lock_name(f->options.checkpoint, O_RDONLY, "a training", &descriptor);
    if (status != MLFF_OK) return status;
    if (f->lock >= 0) close(f->lock);
    f->lock = descriptor;
    return MLFF_OK;
}

// Of this process.
static double seconds_of(const fit *f)
{
    return (double)(base_clock_ns() - f->begun_ns) * 1e-9;
}

static mlff_status save(fit *f)
{
    mlff_status status = MLFF_OK;
    if (!f->options.checkpoint) return MLFF_OK;
    f->trainer->elapsed_s = f->elapsed_before_s + seconds_of(f);
    MLFF_TRY(mlff_trainer_save(f->trainer, f->options.checkpoint));
    MLFF_TRY(lock_checkpoint(f));
    f->saved_ns = base_clock_ns();
done:
    return status;
}

// With the identity of its training, which the model that is handed out does not have.
static mlff_status save_best(const fit *f, mlff_model *model)
{
    mlff_status status = weights_set(&model->file, TRAINER_IDENTITY, "%s", f->trainer->identity);
    if (status == MLFF_OK) status = mlff_model_save(model, f->options.best);
    weights_remove(&model->file, TRAINER_IDENTITY);
    return status;
}

// A file of this name may be of another training, whose student would be handed out with the errors of this one. One beside a checkpoint of
// before there were identities gets that of this training.
static mlff_status load_best(fit *f, bool has_identity)
{
    mlff_status status = MLFF_OK;
    mlff_model *own = NULL, *best = NULL;
    mlff_model_info expected, there;
    const char *checkpoint = f->options.checkpoint, *path = f->options.best;
    if (access(path, F_OK) != 0)
        MLFF_FAIL(
            MLFF_ERR_VALUE,
            "%s: is not there; it has the best student of the training that %s is of, which goes on with it only: put it back, "
            "or remove the checkpoint to train again",
            path, checkpoint);
    MLFF_TRY(mlff_model_load(path, &best));
    MLFF_TRY(mlff_trainer_model(f->trainer, 0, &own));
    mlff_model_info_get(own, &expected);
    mlff_model_info_get(best, &there);
    if (strcmp(expected.description, there.description) != 0 || expected.n_parameters != there.n_parameters ||
        expected.n_elements != there.n_elements ||
        memcmp(expected.elements, there.elements, (size_t)expected.n_elements * sizeof *expected.elements) != 0)
        MLFF_FAIL(
            MLFF_ERR_VALUE,
            "%s: is not the best student of the training that %s is of (%s), but %s; put that back, or move both away to train "
            "again",
            path, checkpoint, expected.description, there.description);
    const char *identity = weights_get(&best->file, TRAINER_IDENTITY);
    if (identity ? strcmp(identity, f->trainer->identity) != 0 : has_identity)
        MLFF_FAIL(MLFF_ERR_VALUE,
                  "%s: is the best student of another training than %s is of; put that of this training back, or move both away "
                  "to train again",
                  path, checkpoint);
    if (!identity) MLFF_TRY(save_best(f, best));
    weights_remove(&best->file, TRAINER_IDENTITY);
    f->best = best;
    best = NULL;
done:
    mlff_model_destroy(own);
    mlff_model_destroy(best);
    return status;
}

// A training begins with a checkpoint of no step: what is found under the name of the best student without one is not of a training.
static mlff_status begin(fit *f, bool was_there)
{
    mlff_status status = MLFF_OK;
    struct stat file;
    const char *best = f->options.best;
    if (access(best, F_OK) == 0)
        MLFF_FAIL(MLFF_ERR_USAGE,
                  "%s: is there, and would be replaced by the best student of this training, as %s is %s to go on "
                  "from; move it away, or name another checkpoint",
                  best, f->options.checkpoint, was_there ? "empty, with nothing" : "not there");
    MLFF_TRY(trainer_identify(f->trainer));
    MLFF_TRY(save(f));
done:
    f->trainer->elapsed_s = 0;
    if (status != MLFF_OK && !was_there && stat(f->options.checkpoint, &file) == 0 && file.st_size == 0)
        unlink(f->options.checkpoint);
    return status;
}

static mlff_status resume(fit *f)
{
    mlff_status status = MLFF_OK;
    mlff_trainer *t = f->trainer;
    struct stat file;
    if (!f->options.checkpoint) return MLFF_OK;
    const bool was_there = access(f->options.checkpoint, F_OK) == 0;
    MLFF_TRY(lock_checkpoint(f)); // where there is none, an empty file is made
    if (fstat(f->lock, &file) == 0 && file.st_size == 0) return begin(f, was_there);
    MLFF_TRY(mlff_trainer_restore(t, f->options.checkpoint));
    const bool has_identity = t->identity[0] != 0;
    if (!has_identity) MLFF_TRY(trainer_identify(t));
    if (t->best_step > 0) MLFF_TRY(load_best(f, has_identity));
    if (f->options.history) MLFF_TRY(history_read(f->options.history, t->step, &f->history)); // later steps are made again
done:
    return status;
}

static double score_of(const mlff_training_errors *e)
{
    return isnan(e->force_mae) ? e->energy_mae : e->force_mae;
}

// Forces choose the weights, and then, once the weight of the energy is raised, the loss: energies improve there while forces hardly
// change, so that weights from before are not compared with.
static bool is_better(const mlff_trainer *t, const mlff_training_errors *e)
{
    if (!isfinite(score_of(e))) return false;
    if (t->best_step == 0) return true;
    if (!trainer_boosts_energy(t, t->step)) return score_of(e) < score_of(&t->best);
    return !trainer_boosts_energy(t, t->best_step) || e->loss < t->best.loss;
}

static mlff_status keep_best(fit *f)
{
    mlff_status status = MLFF_OK;
    mlff_trainer *t = f->trainer;
    mlff_model *model = NULL;
    if (!is_better(t, &f->progress.validation)) return MLFF_OK;
    MLFF_TRY(mlff_trainer_model(t, 0, &model));
    weights_remove(&model->file, TRAINER_IDENTITY); // of the training whose best student this one began with
    if (f->options.best) MLFF_TRY(save_best(f, model));
    t->best = f->progress.validation;
    t->best_step = t->step;
    mlff_model_destroy(f->best);
    f->best = model;
    model = NULL;
done:
    mlff_model_destroy(model);
    return status;
}

// ---- the run --------------------------------------------------------------------------------------------------------

static void update_progress(fit *f, int validated)
{
    mlff_fit_progress *p = &f->progress;
    const mlff_trainer *t = f->trainer;
    const double seconds = seconds_of(f);
    p->step = t->step;
    p->n_steps = t->options.n_steps;
    p->validated = validated;
    p->learning_rate = mlff_trainer_learning_rate(t);
    p->elapsed_s = f->elapsed_before_s + seconds;
    p->structures_per_s = seconds > 0 ? (double)(t->n_structures - f->first_structure) / seconds : 0;
    p->remaining_s = t->step > f->first_step ? seconds * (double)(p->n_steps - t->step) / (double)(t->step - f->first_step) : NAN;
    p->best = t->best;
    p->best_step = t->best_step;
    p->element_force_mae = t->element_force_mae;
}

// Calls the caller back; MLFF_ERR_INTERRUPTED, with the checkpoint written, if it asks to stop.
static mlff_status report(fit *f)
{
    const mlff_trainer *t = f->trainer;
    f->shown_ns = base_clock_ns();
    if (!f->options.callback || f->options.callback(f->options.context, &f->progress) == 0) return MLFF_OK;
    const mlff_status status = save(f);
    if (status != MLFF_OK) return status;
    return mlff_fail(MLFF_ERR_INTERRUPTED, "training stopped after step %" PRId64 " of %" PRId64 "%s", t->step,
                     t->options.n_steps, f->options.checkpoint ? "; the checkpoint holds it" : "");
}

static mlff_status validate(fit *f)
{
    mlff_status status = MLFF_OK;
    mlff_trainer *t = f->trainer;
    MLFF_TRY(mlff_trainer_validate(t, f->validation, &f->progress.validation));
    MLFF_TRY(keep_best(f));
    mlff_trainer_report(t, score_of(&f->progress.validation));
    update_progress(f, 1);
    MLFF_TRY(add_history(f));
    MLFF_TRY(report(f));
done:
    return status;
}

// Steps up to the next validation, in pieces short enough to report about twice a second.
static mlff_status steps_until(fit *f, int64_t end)
{
    mlff_status status = MLFF_OK;
    mlff_trainer *t = f->trainer;
    int64_t piece = 1;
    while (t->step < end) {
        const int64_t before = base_clock_ns(), n = end - t->step < piece ? end - t->step : piece;
        const bool last = t->step + n == end;
        MLFF_TRY(mlff_trainer_run(t, n, NULL, last ? &f->progress.training : NULL));
        const int64_t now = base_clock_ns(), took = now - before;
        piece = took < 100000000 ? 2 * piece : took > 400000000 && piece > 1 ? piece / 2 : piece;
        if (!last && now - f->shown_ns > 400000000) {
            update_progress(f, 0);
            MLFF_TRY(report(f));
        }
        if (!last && (double)(now - f->saved_ns) * 1e-9 > f->options.checkpoint_every) MLFF_TRY(save(f));
    }
done:
    return status;
}

// A student is used in float32.
static mlff_status settle(fit *f)
{
    mlff_evaluator_options options = mlff_evaluator_options_default();
    options.device = f->trainer->options.device;
    options.n_threads = f->trainer->options.n_threads;
    return student_settle_energies(&f->best, f->validation, &options, &f->trainer->best);
}

static int64_t default_interval(const mlff_trainer *t)
{
    const int64_t hundredth = t->options.n_steps / 100;
    return hundredth > t->per_epoch ? hundredth : t->per_epoch;
}

mlff_status mlff_trainer_fit(mlff_trainer *t, const mlff_dataset *validation, const mlff_fit_options *options,
                             mlff_model **model_out)
{
    mlff_status status = MLFF_OK;
    fit f = {.trainer = t, .validation = validation, .options = mlff_fit_options_default(), .lock = -1};
    if (!t || !validation || !model_out)
        return mlff_fail(MLFF_ERR_USAGE, "mlff_trainer_fit: trainer, validation data and model_out must be given");
    MLFF_TRY(base_take_options("mlff_trainer_fit", "mlff_fit_options", options, sizeof f.options, &f.options));
    if (f.options.checkpoint && !f.options.best)
        return mlff_fail(MLFF_ERR_USAGE, "mlff_trainer_fit: a checkpoint needs a file for the best model too");
    *model_out = NULL;
    energy_kinds_compare(&t->kinds, &validation->kinds);
    MLFF_TRY(trainer_compare_zeros(t, validation));
    const int64_t every = f.options.validate_every > 0 ? f.options.validate_every : default_interval(t);
    if (f.options.checkpoint) MLFF_TRY(mlff_dataset_hash(validation, t->best_by));
    f.begun_ns = f.saved_ns = base_clock_ns();
    MLFF_TRY(resume(&f));
    f.begun_ns = f.saved_ns = base_clock_ns();
    f.first_step = t->step;
    f.first_structure = t->n_structures;
    f.elapsed_before_s = t->elapsed_s;
    while (t->step < t->options.n_steps) {
        int64_t end = (t->step / every + 1) * every;
        if (end > t->options.n_steps) end = t->options.n_steps;
        MLFF_TRY(steps_until(&f, end));
        MLFF_TRY(validate(&f));
        if ((double)(base_clock_ns() - f.saved_ns) * 1e-9 > f.options.checkpoint_every) MLFF_TRY(save(&f));
    }
    MLFF_TRY(save(&f));
    if (!f.best) MLFF_FAIL(MLFF_ERR_UNSTABLE, "no validation gave a finite error; lower the learning rate");
    if (t->options.precision == MLFF_TF32) MLFF_TRY(settle(&f));
done:
    *model_out = f.best;
    if (f.lock >= 0) close(f.lock);
    base_text_free(&f.history);
    return status;
}

// Adds "name value unit" where the value is finite; what has no room is cut off: those of a training that diverges have many digits.
static void add_error(char text[96], const char *name, double value, int digits, const char *unit)
{
    const size_t length = strlen(text);
    if (isfinite(value))
        base_format(text + length, 96 - length, "%s%s %.*f %s", length > 0 ? ", " : "", name, digits, 1e3 * value, unit);
}

const char *mlff_training_errors_text(const mlff_training_errors *errors, char text[96])
{
    text[0] = 0;
    add_error(text, "forces", errors->force_mae, 2, "meV/Å");
    add_error(text, "energy", errors->energy_mae, 3, "meV/atom");
    add_error(text, "stress", errors->stress_mae, 3, "meV/Å³");
    return text;
}

// As many elements as there is room for.
const char *mlff_element_errors_text(const double force_mae[119], char text[96])
{
    static const char more[] = ", …", unit[] = " meV/Å";
    size_t length = 0;
    text[0] = 0;
    for (int z = 1; z <= MLFF_MAX_ATOMIC_NUMBER; z++) {
        char one[40];
        if (isnan(force_mae[z])) continue;
        const size_t added =
            (size_t)base_format(one, sizeof one, "%s%s %.1f", length ? ", " : "", mlff_element_symbol(z), 1e3 * force_mae[z]);
        const bool is_full = length + added + sizeof more + sizeof unit > 96;
        length += (size_t)snprintf(text + length, 96 - length, "%s", is_full ? more : one);
        if (is_full) break;
    }
    if (length > 0) snprintf(text + length, 96 - length, "%s", unit);
    return text;
}

void mlff_trainer_best(const mlff_trainer *t, mlff_training_errors *errors_out)
{
    *errors_out = t->best;
}
