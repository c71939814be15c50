// SPDX-License-Identifier: MIT
// trainer.c: which structures a step takes, at which learning rate; errors in eV and Å; a model from the trained weights.
#include "trainer.h"

#include <math.h>
#include <string.h>

#include "base/helper_thread.h"
#include "device/cpu.h"
#include "device/team.h"
#include "model/model.h"
#include "model/training/train_batch.h"
#include "train/data/dataset.h"
#include "train_set.h"

mlff_trainer_options mlff_trainer_options_default(void)
{
    return (mlff_trainer_options){
        .struct_size = sizeof(mlff_trainer_options),
        .precision = MLFF_FLOAT32,
        .batch_size = 32,
        .n_steps = 10000,
        .loss = {.energy_weight = 1, .forces_weight = 100, .stress_weight = 3000, .energy_per_atom = 1},
        .energy_boost = 100,
        .learning_rate = 1e-3,
        .learning_rate_end = 1e-6,
        .warm_up = 0.02,
        .schedule = MLFF_COSINE,
        .plateau_factor = 0.5,
        .plateau_patience = 75,
        .beta1 = 0.9,
        .beta2 = 0.999,
        .epsilon = 1e-8,
        .clip = 10,
        .average = 0.999,
        .soap_interval = 10,
        .soap_decay = 0.95,
        .nearer = 0.03,
    };
}

// ---- options ------------------------------------------------------------------------------------------------------

typedef struct range {
    const char *name;
    double value, least, most;
} range;

static mlff_status check_options(const mlff_trainer_options *o)
{
    const range ranges[] = {
        {"batch_size", o->batch_size, 1, 1 << 20},
        {"n_steps", (double)o->n_steps, 1, 1e12},
        {"learning_rate", o->learning_rate, 0, 10},
        {"learning_rate_end", o->learning_rate_end, 0, 10},
        {"warm_up", o->warm_up, 0, 1},
        {"plateau_factor", o->plateau_factor, 1e-6, 1},
        {"plateau_patience", o->plateau_patience, 0, 1e9},
        {"beta1", o->beta1, 0, 0.999999},
        {"beta2", o->beta2, 0, 0.999999999},
        {"epsilon", o->epsilon, 1e-30, 1},
        {"weight_decay", o->weight_decay, 0, 1},
        {"clip", o->clip, 0, 1e30},
        {"average", o->average, 0, 0.9999999},
        {"energy_boost", o->energy_boost, 0, 1e12},
        {"n_threads", o->n_threads, 0, 4096},
        {"optimizer", o->optimizer, MLFF_ADAMW, MLFF_SOAP},
        {"soap_interval", o->soap_interval, 1, 1e9},
        {"soap_decay", o->soap_decay, 0, 0.999999},
        {"nearer", o->nearer, 0, 1},
        {"energy_weight", o->loss.energy_weight, 0, 1e12},
        {"forces_weight", o->loss.forces_weight, 0, 1e12},
        {"stress_weight", o->loss.stress_weight, 0, 1e12},
        {"atom_energies_weight", o->loss.atom_energies_weight, 0, 1e12},
        {"hessian_weight", o->loss.hessian_weight, 0, 1e12},
        {"huber_forces", o->loss.huber_forces, 0, 1e12},
    };
    for (size_t k = 0; k < sizeof ranges / sizeof *ranges; k++)
        if (!(ranges[k].value >= ranges[k].least && ranges[k].value <= ranges[k].most))
            return mlff_fail(MLFF_ERR_USAGE, "mlff_trainer_create: %s is %g; it must lie in %g to %g", ranges[k].name,
                             ranges[k].value, ranges[k].least, ranges[k].most);
    if (o->schedule < MLFF_COSINE || o->schedule > MLFF_CONSTANT)
        return mlff_fail(MLFF_ERR_USAGE, "mlff_trainer_create: unknown schedule %d", (int)o->schedule);
    const mlff_loss *w = &o->loss;
    if (w->energy_weight + w->forces_weight + w->stress_weight + w->atom_energies_weight + w->hessian_weight == 0)
        return mlff_fail(MLFF_ERR_USAGE, "mlff_trainer_create: every weight of the loss is 0; there is nothing to train on");
    return MLFF_OK;
}

// ---- creation -----------------------------------------------------------------------------------------------------

static void hash_data(void *context)
{
    mlff_trainer *t = context;
    t->data_hash = trainer_hash(t->set);
}

// The two frames of a Hessian probe are one unit: they must be in the same batch.
static mlff_status find_units(mlff_trainer *t)
{
    const train_set *set = t->set;
    if (set->n_frames > INT32_MAX)
        return mlff_fail(MLFF_ERR_LIMIT, "%lld structures; at most %d can be trained on", (long long)set->n_frames, INT32_MAX);
    if (!(t->unit = base_alloc((size_t)set->n_frames, sizeof *t->unit, "structures")) ||
        !(t->order = base_alloc((size_t)set->n_frames, sizeof *t->order, "structures")) ||
        !(t->frames = base_alloc(2 * (size_t)t->options.batch_size, sizeof *t->frames, "a batch")))
        return MLFF_ERR_MEMORY;
    for (int64_t f = 0; f < set->n_frames; f++) {
        t->unit[t->n_units++] = (int32_t)f;
        if (set->probe_step && set->probe_step[f] > 0) f++;
    }
    t->per_epoch = (t->n_units + t->options.batch_size - 1) / t->options.batch_size;
    t->ordered_epoch = -1;
    return MLFF_OK;
}

static mlff_status create_backend(mlff_trainer *t)
{
    mlff_status status = MLFF_OK;
    const model_architecture *architecture = t->model->architecture;
    train_backend_options wanted = {.device = t->options.device,
                                    .devices = t->options.devices,
                                    .n_devices = t->options.n_devices,
                                    .precision = t->options.precision,
                                    .n_threads = t->options.n_threads,
                                    .optimizer = t->options.optimizer};
    if (!architecture->create_train_backend)
        return mlff_fail(MLFF_ERR_UNSUPPORTED, "%s cannot be trained here; a student is a %s (mlff new --arch %s)",
                         architecture->title, model_architecture_of_students()->title, model_architecture_of_students()->name);
    if (wanted.precision == MLFF_PRECISION_DEFAULT) wanted.precision = MLFF_FLOAT32;
    if (wanted.device.kind == MLFF_CPU) {
        wanted.n_threads = team_size(wanted.n_threads);
        MLFF_TRY(cpu_path_choose(NULL, false, &wanted.cpu_path));
    }
    MLFF_TRY(architecture->create_train_backend(t->model, &wanted, &t->backend));
    MLFF_TRY(t->backend->set_data(t->backend, t->set));
done:
    return status;
}

mlff_status mlff_trainer_create(const mlff_model *model, const mlff_dataset *data, const mlff_trainer_options *options,
                                mlff_trainer **trainer_out)
{
    mlff_status status = MLFF_OK;
    mlff_trainer *t = NULL;
    mlff_dataset *nearer = NULL;
    helper_thread hashing = {0};
    mlff_trainer_options chosen = mlff_trainer_options_default();
    if (!model || !data || !trainer_out)
        return mlff_fail(MLFF_ERR_USAGE, "mlff_trainer_create: model, data and trainer_out must be given");
    MLFF_TRY(base_take_options("mlff_trainer_create", "mlff_trainer_options", options, sizeof chosen, &chosen));
    MLFF_TRY(check_options(&chosen));
    if (!(t = base_alloc(1, sizeof *t, "a trainer"))) return MLFF_ERR_MEMORY;
    t->model = model;
    t->options = chosen;
    t->plateau_scale = 1;
    t->plateau_best = INFINITY;
    t->sums.finite = true;
    for (int z = 0; z <= MLFF_MAX_ATOMIC_NUMBER; z++) t->element_force_mae[z] = NAN;
    MLFF_TRY(energy_kinds_join(&t->kinds, &data->kinds));
    MLFF_TRY(mlff_dataset_create(&nearer));
    MLFF_TRY(dataset_make_nearer(data, model, chosen.nearer, chosen.n_threads, chosen.seed, nearer));
    t->n_nearer = mlff_dataset_size(nearer);
    MLFF_TRY(trainer_build_set(model, &chosen.loss, data, nearer, false, chosen.n_threads, &t->set));
    if (helper_begin(&hashing)) // while the data go to the device
        helper_start(&hashing, hash_data, t);
    else
        hash_data(t);
    MLFF_TRY(find_units(t));
    MLFF_TRY(create_backend(t));
    *trainer_out = t;
    t = NULL;
done:
    mlff_dataset_destroy(nearer);
    helper_end(&hashing);
    mlff_trainer_destroy(t);
    return status;
}

void mlff_trainer_destroy(mlff_trainer *t)
{
    if (!t) return;
    if (t->backend) t->backend->destroy(t->backend);
    energy_kinds_free(&t->kinds);
    train_set_free(t->set);
    train_set_free(t->validation_set);
    base_free(t->unit);
    base_free(t->order);
    base_free(t->frames);
    base_free(t);
}

// ---- steps ----------------------------------------------------------------------------------------------------------

// Fisher-Yates, from the seed and the epoch alone.
static void order_epoch(mlff_trainer *t, int64_t epoch)
{
    for (int64_t k = 0; k < t->n_units; k++) t->order[k] = (int32_t)k;
    for (int64_t k = t->n_units - 1; k > 0; k--) {
        int64_t other = (int64_t)(base_random_uniform(t->options.seed, (uint64_t)epoch, (uint64_t)k) * (double)(k + 1));
        int32_t swap = t->order[k];
        t->order[k] = t->order[other];
        t->order[other] = swap;
    }
    t->ordered_epoch = epoch;
}

// Fills t->frames with the structures of a step, of which the last batch of an epoch has fewer. Returns the number of frames, which is
// larger where there are Hessian probes.
static int choose_frames(mlff_trainer *t, int64_t step, int64_t *n_structures_out)
{
    const int64_t epoch = step / t->per_epoch, first = step % t->per_epoch * t->options.batch_size;
    int64_t end = first + t->options.batch_size;
    int n = 0;
    if (end > t->n_units) end = t->n_units;
    if (t->ordered_epoch != epoch) order_epoch(t, epoch);
    for (int64_t k = first; k < end; k++) {
        const int32_t frame = t->unit[t->order[k]];
        t->frames[n++] = frame;
        if (t->set->probe_step && t->set->probe_step[frame] > 0) t->frames[n++] = frame + 1;
    }
    *n_structures_out = end - first;
    return n;
}

static double learning_rate(const mlff_trainer *t, int64_t step)
{
    const mlff_trainer_options *o = &t->options;
    const double warm = o->warm_up * (double)o->n_steps, place = (double)step;
    if (place < warm) return o->learning_rate * (place + 1) / (warm + 1);
    if (o->schedule == MLFF_CONSTANT) return o->learning_rate;
    if (o->schedule == MLFF_PLATEAU) return fmax(o->learning_rate * t->plateau_scale, o->learning_rate_end);
    const double left = (double)o->n_steps - warm, fraction = left > 0 ? fmin((place - warm) / left, 1.0) : 1.0;
    return o->learning_rate_end + 0.5 * (o->learning_rate - o->learning_rate_end) * (1 + cos(BASE_PI * fraction));
}

bool trainer_boosts_energy(const mlff_trainer *t, int64_t step)
{
    return t->options.energy_boost > 0 && 5 * step >= 4 * t->options.n_steps;
}

static mlff_loss loss_of_step(const mlff_trainer *t, int64_t step)
{
    mlff_loss loss = t->options.loss;
    if (trainer_boosts_energy(t, step)) loss.energy_weight *= t->options.energy_boost;
    return loss;
}

static mlff_status one_step(mlff_trainer *t)
{
    const mlff_trainer_options *o = &t->options;
    const mlff_loss loss = loss_of_step(t, t->step);
    int64_t n_structures;
    const int n = choose_frames(t, t->step, &n_structures);
    const double count = (double)(t->step + 1);
    const train_update update = {.learning_rate = learning_rate(t, t->step),
                                 .beta1 = o->beta1,
                                 .beta2 = o->beta2,
                                 .epsilon = o->epsilon,
                                 .weight_decay = o->weight_decay,
                                 .clip = o->clip,
                                 .average = fmin(o->average, (1 + count) / (10 + count)), // the first weights are soon forgotten
                                 .correction1 = 1 - pow(o->beta1, count),
                                 .correction2 = 1 - pow(o->beta2, count),
                                 .soap_decay = o->soap_decay,
                                 .soap_refresh = t->step % o->soap_interval == 0};
    mlff_status status = t->backend->step(t->backend, t->frames, n, &loss, &update);
    if (status == MLFF_OK) t->step++, t->n_structures += n_structures;
    return status;
}

static double ratio(double sum, int64_t n)
{
    return n > 0 ? sum / (double)n : NAN;
}

static mlff_training_errors errors_of(const mlff_model *model, const train_sums *s)
{
    const double energy = model->energy_unit, force = energy / model->length_unit;
    const double stress = force / (model->length_unit * model->length_unit);
    return (mlff_training_errors){.n_frames = s->n_frames,
                                  .n_atoms = s->n_atoms,
                                  .loss = ratio(s->loss, s->n_steps),
                                  .energy_mae = energy * ratio(s->energy_absolute, s->n_energies),
                                  .energy_rmse = energy * sqrt(ratio(s->energy_square, s->n_energies)),
                                  .force_mae = force * ratio(s->force_absolute, s->n_force_components),
                                  .force_rmse = force * sqrt(ratio(s->force_square, s->n_force_components)),
                                  .stress_mae = stress * ratio(s->stress_absolute, 6 * s->n_stresses)};
}

mlff_status trainer_collect_sums(mlff_trainer *t)
{
    train_sums more;
    const mlff_status status = t->backend->sums(t->backend, &more);
    if (status == MLFF_OK) train_sums_add(&t->sums, &more);
    return status;
}

mlff_status mlff_trainer_run(mlff_trainer *t, int64_t n_steps, int64_t *n_done_out, mlff_training_errors *errors_out)
{
    mlff_status status = MLFF_OK;
    int64_t n_done = 0;
    if (!t || n_steps < 0) return mlff_fail(MLFF_ERR_USAGE, "mlff_trainer_run: a trainer and a number of steps must be given");
    for (; n_done < n_steps && t->step < t->options.n_steps; n_done++) MLFF_TRY(one_step(t));
    if (errors_out) {
        MLFF_TRY(trainer_collect_sums(t));
        const train_sums sums = t->sums;
        t->sums = (train_sums){.finite = true};
        *errors_out = errors_of(t->model, &sums);
        if (!sums.finite)
            MLFF_FAIL(MLFF_ERR_UNSTABLE,
                      "the loss stopped being finite before step %lld; lower the learning rate (%.2g at its highest) or look for "
                      "labels "
                      "that are too large",
                      (long long)t->step, t->options.learning_rate);
    }
done:
    if (n_done_out) *n_done_out = n_done;
    return status;
}

mlff_status mlff_trainer_validate(mlff_trainer *t, const mlff_dataset *data, mlff_training_errors *errors_out)
{
    mlff_status status = MLFF_OK;
    train_sums sums = {0};
    if (!t || !data || !errors_out)
        return mlff_fail(MLFF_ERR_USAGE, "mlff_trainer_validate: trainer, data and errors_out must be given");
    if (t->validated != data->state) {
        train_set_free(t->validation_set);
        t->validation_set = NULL;
        t->validated = 0;
        MLFF_TRY(trainer_build_set(t->model, &t->options.loss, data, NULL, true, t->options.n_threads, &t->validation_set));
        t->validated = data->state;
    }
    const mlff_loss loss = loss_of_step(t, t->step);
    MLFF_TRY(t->backend->evaluate(t->backend, t->validation_set, &loss, &sums));
    *errors_out = errors_of(t->model, &sums);
    for (int z = 0; z <= MLFF_MAX_ATOMIC_NUMBER; z++)
        t->element_force_mae[z] =
            t->model->energy_unit / t->model->length_unit * ratio(sums.force_by_element[z], sums.n_by_element[z]);
done:
    return status;
}

void mlff_trainer_element_errors(const mlff_trainer *t, double force_mae_out[119])
{
    memcpy(force_mae_out, t->element_force_mae, sizeof t->element_force_mae);
}

void mlff_trainer_report(mlff_trainer *t, double value)
{
    if (value < t->plateau_best) {
        t->plateau_best = value;
        t->plateau_waited = 0;
    } else if (++t->plateau_waited > t->options.plateau_patience) {
        t->plateau_scale *= t->options.plateau_factor;
        t->plateau_waited = 0;
    }
}

int64_t mlff_trainer_n_nearer(const mlff_trainer *t)
{
    return t->n_nearer;
}

int64_t mlff_trainer_step(const mlff_trainer *t)
{
    return t->step;
}

double mlff_trainer_learning_rate(const mlff_trainer *t)
{
    return learning_rate(t, t->step);
}

int64_t mlff_trainer_n_parameters(const mlff_trainer *t)
{
    return t->backend->layout.n_parameters;
}

mlff_status mlff_trainer_gradient(mlff_trainer *t, const int64_t *frames, int n_frames, double *gradient_out, double *loss_out)
{
    mlff_status status = MLFF_OK;
    int32_t *chosen = NULL;
    if (!t || !frames || n_frames < 1 || !gradient_out)
        return mlff_fail(MLFF_ERR_USAGE, "mlff_trainer_gradient: trainer, at least one frame and gradient_out must be given");
    if (!(chosen = base_alloc((size_t)n_frames, sizeof *chosen, "a batch"))) return MLFF_ERR_MEMORY;
    for (int k = 0; k < n_frames; k++) {
        if (frames[k] < 0 || frames[k] >= t->set->n_frames)
            MLFF_FAIL(MLFF_ERR_USAGE, "mlff_trainer_gradient: frame %lld of %lld", (long long)frames[k],
                      (long long)t->set->n_frames);
        chosen[k] = (int32_t)frames[k];
    }
    const mlff_loss loss = loss_of_step(t, t->step);
    double value = 0;
    MLFF_TRY(t->backend->gradient(t->backend, chosen, n_frames, &loss, gradient_out, &value));
    if (loss_out) *loss_out = value;
done:
    base_free(chosen);
    return status;
}

// ---- the trained model ----------------------------------------------------------------------------------------------

mlff_status mlff_trainer_model(mlff_trainer *t, int raw, mlff_model **model_out)
{
    mlff_status status = MLFF_OK;
    model_weights weights = {0};
    double *values = NULL;
    if (!t || !model_out) return mlff_fail(MLFF_ERR_USAGE, "mlff_trainer_model: trainer and model_out must be given");
    const train_layout *layout = &t->backend->layout;
    if (!(values = base_alloc((size_t)layout->n_parameters, sizeof *values, "weights"))) return MLFF_ERR_MEMORY;
    MLFF_TRY(t->backend->get(t->backend, raw ? TRAIN_WEIGHTS : TRAIN_AVERAGE, values));
    MLFF_TRY(train_layout_write(layout, t->model, values, &weights));
    MLFF_TRY(weights_check_finite(&weights, "the trained model"));
    MLFF_TRY(weights_set(&weights, "trained", "true"));
    MLFF_TRY(model_from_weights(&weights, "student", model_out));
done:
    weights_free(&weights);
    base_free(values);
    return status;
}
