// SPDX-License-Identifier: MIT
// student.c: what a model is given before and after its training: the elements' energies, and notes of where it comes from.
#include <stdio.h>
#include <string.h>

#include "mlff_train.h"
#include "model/model.h"

mlff_status mlff_model_with_shifts(const mlff_model *model, const double shifts[119], mlff_model **model_out)
{
    mlff_status status = MLFF_OK;
    model_weights weights = {0};
    _Static_assert(MLFF_MAX_ATOMIC_NUMBER == 118, "shifts are indexed by atomic number");
    if (!model || !shifts || !model_out)
        return mlff_fail(MLFF_ERR_USAGE, "mlff_model_with_shifts: model, shifts and model_out must be given");
    if (!model->architecture->set_shifts)
        return mlff_fail(MLFF_ERR_UNSUPPORTED, "the elements' energies of %s cannot be set, as it cannot be trained here",
                         model->architecture->title);
    MLFF_TRY(weights_copy(&model->file, &weights));
    MLFF_TRY(model->architecture->set_shifts(&weights, shifts));
    MLFF_TRY(weights_check_finite(&weights, "the elements' energies"));
    MLFF_TRY(model_from_weights(&weights, model->name, model_out));
done:
    weights_free(&weights);
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
