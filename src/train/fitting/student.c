// SPDX-License-Identifier: MIT
// student.c: what a model is given before and after its training: the elements' energies, and notes of where it comes from.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "mlff_train.h"
#include "model/evaluator/evaluator.h"
#include "model/model.h"
#include "student.h"
#include "train/data/dataset.h"

static mlff_status check_trainable(const mlff_model *model)
{
    if (model->architecture->set_shifts) return MLFF_OK;
    return mlff_fail(MLFF_ERR_UNSUPPORTED, "the elements' energies of %s cannot be set, as it cannot be trained here",
                     model->architecture->title);
}

// A copy, with these energies where there are some.
static mlff_status copy_model(const mlff_model *model, const double *shifts, mlff_model **model_out)
{
    mlff_status status = MLFF_OK;
    model_weights weights = {0};
    MLFF_TRY(weights_copy(&model->file, &weights));
    if (shifts) MLFF_TRY(model->architecture->set_shifts(&weights, shifts));
    MLFF_TRY(weights_check_finite(&weights, "the elements' energies"));
    MLFF_TRY(model_from_weights(&weights, model->name, model_out));
done:
    weights_free(&weights);
    return status;
}

mlff_status mlff_model_with_shifts(const mlff_model *model, const double shifts[119], mlff_model **model_out)
{
    _Static_assert(MLFF_MAX_ATOMIC_NUMBER == 118, "shifts are indexed by atomic number");
    if (!model || !shifts || !model_out)
        return mlff_fail(MLFF_ERR_USAGE, "mlff_model_with_shifts: model, shifts and model_out must be given");
    const mlff_status status = check_trainable(model);
    return status == MLFF_OK ? copy_model(model, shifts, model_out) : status;
}

enum { SETTLED_BY = 500, JUDGED_BY = 100 }; // structures at most

// Labelled energies of at most n_most structures, spread over all, without the model's, ascending, eV/atom; infinite where the model's is no
// number.
static mlff_status energy_differences(const mlff_model *model, const mlff_dataset *labels, const mlff_evaluator_options *options,
                                      size_t n_most, double *differences, size_t *n_out)
{
    mlff_status status = MLFF_OK;
    mlff_evaluator *evaluator = NULL;
    const size_t n = labels->n_frames, n_judged = n < n_most ? n : n_most;
    size_t n_energies = 0;
    MLFF_TRY(mlff_evaluator_create(model, options, &evaluator));
    evaluator_expect_magnitudes(evaluator, true);
    for (size_t k = 0; k < n_judged; k++) {
        const mlff_system *system = labels->frames[k * n / n_judged].system;
        int32_t first_atom[2];
        mlff_batch batch;
        double energy;
        if (isnan(system->label_energy)) continue;
        mlff_batch_from_system(system, first_atom, &batch);
        status = mlff_evaluator_compute(evaluator, &batch, &(mlff_results){.energies = &energy});
        if (status != MLFF_OK && status != MLFF_ERR_VALUE) goto done;
        differences[n_energies++] = status == MLFF_OK ? (system->label_energy - energy) / system->n_atoms : INFINITY;
        status = MLFF_OK;
    }
    base_sort(differences, n_energies);
    *n_out = n_energies;
done:
    mlff_evaluator_destroy(evaluator);
    return status;
}

// Median absolute difference of the model's energies from the labels, eV/atom; NaN without energies. Not the mean: a student that diverges where
// atoms are pressed together is off by any amount in a few structures.
static mlff_status energy_error(const mlff_model *model, const mlff_dataset *labels, int n_threads, double *error_out)
{
    double differences[JUDGED_BY];
    size_t n;
    mlff_evaluator_options options = mlff_evaluator_options_default();
    options.n_threads = n_threads;
    const mlff_status status = energy_differences(model, labels, &options, JUDGED_BY, differences, &n);
    if (status != MLFF_OK) return status;
    for (size_t k = 0; k < n; k++) differences[k] = fabs(differences[k]);
    base_sort(differences, n);
    *error_out = n > 0 ? differences[n / 2] : NAN;
    return MLFF_OK;
}

mlff_status student_settle_energies(mlff_model **model, const mlff_dataset *labels, const mlff_evaluator_options *options,
                                    mlff_training_errors *errors)
{
    mlff_status status = MLFF_OK;
    double differences[SETTLED_BY], shifts[MLFF_MAX_ATOMIC_NUMBER + 1], absolute = 0, square = 0;
    size_t n;
    mlff_model *settled = NULL;
    MLFF_TRY(energy_differences(*model, labels, options, SETTLED_BY, differences, &n));
    if (n == 0 || !isfinite(differences[0]) || !isfinite(differences[n - 1])) goto done;
    const double shift = differences[n / 2];
    for (int z = 0; z <= MLFF_MAX_ATOMIC_NUMBER; z++) shifts[z] = (*model)->known[z] ? (*model)->offset[z] + shift : 0;
    MLFF_TRY(copy_model(*model, shifts, &settled));
    for (size_t k = 0; k < n; k++) {
        absolute += fabs(differences[k] - shift) / (double)n;
        square += pow(differences[k] - shift, 2) / (double)n;
    }
    errors->energy_mae = absolute;
    errors->energy_rmse = sqrt(square);
    mlff_model_destroy(*model);
    *model = settled;
done:
    return status;
}

mlff_status mlff_model_to_train(const mlff_model *model, const mlff_dataset *labels, int n_threads, mlff_model **model_out)
{
    mlff_status status = MLFF_OK;
    const double far = 1; // eV/atom
    double shifts[119], error = NAN;
    if (!model || !labels || !model_out)
        return mlff_fail(MLFF_ERR_USAGE, "mlff_model_to_train: model, labels and model_out must be given");
    MLFF_TRY(check_trainable(model));
    if (model->trained) {
        MLFF_TRY(energy_error(model, labels, n_threads, &error));
        if (!(error > far)) return copy_model(model, NULL, model_out);
        mlff_warn("the energies of the labels are %.4g eV/atom off those of the model '%s', as by another zero of the energy or "
                  "another method: training begins with energies of the elements that fit the labels",
                  error, model->name);
    }
    MLFF_TRY(mlff_dataset_shifts(labels, shifts));
    MLFF_TRY(copy_model(model, shifts, model_out));
done:
    return status;
}

mlff_status mlff_model_note(mlff_model *model, const char *key, const char *value)
{
    char name[128];
    if (!model || !key || !value || strlen(key) + sizeof "training." > sizeof name)
        return mlff_fail(MLFF_ERR_USAGE, "mlff_model_note: model, a key of at most 100 characters and a value must be given");
    snprintf(name, sizeof name, "training.%s", key);
    return weights_set(&model->file, name, "%s", value);
}
