// SPDX-License-Identifier: MIT
// painn_train_reference.c: training backend in float64, plain: gradients of painn_gradient_reference.c, AdamW or SOAP, moving
// average.
#include <math.h>
#include <string.h>

#include "model/training/soap.h"
#include "model/training/train_batch.h"
#include "painn_gradient.h"

typedef struct reference_train {
    train_backend backend;
    painn_parameters parameters;
    painn_trainable trainable;
    painn_gradient *gradient;
    const train_set *set;
    train_batch batch;
    train_sums sums;
    double *vectors[TRAIN_VECTORS]; // [train_vector_size] each
    soap_plan soap;                 // empty with AdamW
    double *total;                  // gradient of the loss [n_parameters]
    double *pairs;                  // g, then w, of one frame [n_pairs][3]
    size_t pair_capacity;
} reference_train;

static painn_gradient_frame frame_of(const train_set *set, int32_t frame)
{
    int64_t atom = set->first_atom[frame], pair = set->first_pair[atom];
    return (painn_gradient_frame){(int)(set->first_atom[frame + 1] - atom), set->species + atom, set->first_pair + atom,
                                  set->neighbor + pair, set->vectors + 3 * pair};
}

// Predictions of the batch with `weights`.
static mlff_status predict(reference_train *r, const train_set *set, const int32_t *frames, int n_frames, const double *weights)
{
    mlff_status status = MLFF_OK;
    MLFF_TRY(train_batch_begin(&r->batch, set, frames, n_frames));
    for (int k = 0; k < n_frames; k++) {
        painn_gradient_frame frame = frame_of(set, frames[k]);
        size_t n_pairs = (size_t)(frame.first_pair[frame.n_atoms] - frame.first_pair[0]);
        MLFF_TRY(base_grow(&r->pairs, &r->pair_capacity, 3 * n_pairs + 1, sizeof *r->pairs, "pairs"));
        MLFF_TRY(painn_gradient_base(r->gradient, &frame, weights, r->batch.energy + r->batch.first_atom[k], r->pairs));
        train_batch_set_gradient(&r->batch, k, r->pairs);
    }
done:
    return status;
}

static mlff_status compute_gradient(reference_train *r, const int32_t *frames, int n_frames, const mlff_loss *loss,
                                    train_sums *sums, double *loss_out)
{
    mlff_status status = MLFF_OK;
    MLFF_TRY(predict(r, r->set, frames, n_frames, r->vectors[TRAIN_WEIGHTS]));
    *loss_out = train_batch_loss(&r->batch, 0, n_frames, loss, sums);
    memset(r->total, 0, sizeof *r->total * (size_t)r->backend.layout.n_parameters);
    for (int k = 0; k < n_frames; k++) {
        painn_gradient_frame frame = frame_of(r->set, frames[k]);
        train_batch_edge_tangent(&r->batch, k, r->pairs);
        MLFF_TRY(painn_gradient_add(r->gradient, &frame, r->vectors[TRAIN_WEIGHTS], r->batch.c + r->batch.first_atom[k], r->pairs,
                                    r->total, NULL));
    }
done:
    return status;
}

// ---- the contract ---------------------------------------------------------------------------------------------------------

static mlff_status set_data(train_backend *backend, const train_set *set)
{
    ((reference_train *)backend)->set = set;
    return MLFF_OK;
}

// SOAP of the matrices it has; then AdamW of all others: w -= rate (decay w + (m/(1 − β1ᵗ)) / (√(v/(1 − β2ᵗ)) + ε)); the average follows.
static mlff_status update(reference_train *r, const train_update *u, double scale)
{
    mlff_status status = MLFF_OK;
    const train_layout *layout = &r->backend.layout;
    double *weights = r->vectors[TRAIN_WEIGHTS], *average = r->vectors[TRAIN_AVERAGE];
    double *m = r->vectors[TRAIN_MOMENT1], *v = r->vectors[TRAIN_MOMENT2];
    for (int k = 0; k < r->soap.n_matrices; k++)
        MLFF_TRY(soap_step_reference(&r->soap.matrices[k], u, scale, r->total, weights, m, v, average, r->vectors[TRAIN_SOAP]));
    for (int t = 0; t < layout->n_tensors; t++) {
        const train_tensor *tensor = &layout->tensors[t];
        if (r->soap.of_tensor && r->soap.of_tensor[t] >= 0) continue;
        double keep = tensor->decays ? 1 - u->learning_rate * u->weight_decay : 1;
        for (int64_t k = tensor->offset; k < tensor->offset + tensor->n_elements; k++) {
            double g = scale * r->total[k];
            m[k] = u->beta1 * m[k] + (1 - u->beta1) * g;
            v[k] = u->beta2 * v[k] + (1 - u->beta2) * g * g;
            weights[k] =
                keep * weights[k] - u->learning_rate * (m[k] / u->correction1) / (sqrt(v[k] / u->correction2) + u->epsilon);
            average[k] += (1 - u->average) * (weights[k] - average[k]);
        }
    }
done:
    return status;
}

static mlff_status step(train_backend *backend, const int32_t *frames, int n_frames, const mlff_loss *loss, const train_update *u)
{
    mlff_status status = MLFF_OK;
    reference_train *r = (reference_train *)backend;
    double value = 0, square = 0;
    MLFF_TRY(compute_gradient(r, frames, n_frames, loss, &r->sums, &value));
    for (int64_t k = 0; k < backend->layout.n_parameters; k++) square += r->total[k] * r->total[k];
    r->sums.loss += value;
    r->sums.n_steps++;
    if (!isfinite(value) || !isfinite(square)) {
        r->sums.finite = false;
        goto done;
    }
    double norm = sqrt(square);
    MLFF_TRY(update(r, u, u->clip > 0 && norm > u->clip ? u->clip / norm : 1));
done:
    return status;
}

static mlff_status gradient(train_backend *backend, const int32_t *frames, int n_frames, const mlff_loss *loss,
                            double *gradient_out, double *loss_out)
{
    mlff_status status = MLFF_OK;
    reference_train *r = (reference_train *)backend;
    train_sums ignored = {0};
    double value = 0;
    MLFF_TRY(compute_gradient(r, frames, n_frames, loss, &ignored, &value));
    memcpy(gradient_out, r->total, sizeof *gradient_out * (size_t)backend->layout.n_parameters);
    *loss_out = value;
done:
    return status;
}

static mlff_status evaluate(train_backend *backend, const train_set *set, const mlff_loss *loss, train_sums *sums_out)
{
    mlff_status status = MLFF_OK;
    reference_train *r = (reference_train *)backend;
    train_sums sums = {.n_steps = 1, .finite = true};
    for (int64_t frame = 0; frame < set->n_frames;) {
        int32_t frames[2] = {(int32_t)frame, (int32_t)frame + 1};
        int n = set->probe_step && set->probe_step[frame] > 0 && frame + 1 < set->n_frames ? 2 : 1;
        MLFF_TRY(predict(r, set, frames, n, r->vectors[TRAIN_AVERAGE]));
        r->batch.total_frames = set->n_frames;
        r->batch.total_atoms = set->n_atoms;
        sums.loss += train_batch_loss(&r->batch, 0, n, loss, &sums);
        frame += n;
    }
    sums.finite = isfinite(sums.loss);
    *sums_out = sums;
done:
    return status;
}

static mlff_status take_sums(train_backend *backend, train_sums *sums_out)
{
    reference_train *r = (reference_train *)backend;
    *sums_out = r->sums;
    r->sums = (train_sums){.finite = true};
    return MLFF_OK;
}

static mlff_status get(train_backend *backend, enum train_vector which, double *values_out)
{
    memcpy(values_out, ((reference_train *)backend)->vectors[which], sizeof(double) * (size_t)train_vector_size(backend, which));
    return MLFF_OK;
}

static mlff_status set(train_backend *backend, enum train_vector which, const double *values)
{
    memcpy(((reference_train *)backend)->vectors[which], values, sizeof(double) * (size_t)train_vector_size(backend, which));
    return MLFF_OK;
}

static void destroy(train_backend *backend)
{
    if (!backend) return;
    reference_train *r = (reference_train *)backend;
    painn_gradient_destroy(r->gradient);
    soap_plan_free(&r->soap);
    train_batch_free(&r->batch);
    for (int k = 0; k < TRAIN_VECTORS; k++) base_free(r->vectors[k]);
    base_free(r->total);
    base_free(r->pairs);
    train_layout_free(&backend->layout);
    base_free(r);
}

mlff_status painn_train_reference_create(const mlff_model *model, const train_backend_options *options,
                                         train_backend **backend_out)
{
    // One thread, one path.
    mlff_status status = MLFF_OK;
    reference_train *r = base_alloc(1, sizeof *r, "a trainer");
    if (!r) return MLFF_ERR_MEMORY;
    r->backend = (train_backend){.set_data = set_data,
                                 .step = step,
                                 .gradient = gradient,
                                 .evaluate = evaluate,
                                 .sums = take_sums,
                                 .get = get,
                                 .set = set,
                                 .destroy = destroy};
    r->sums.finite = true;
    r->parameters = *(const painn_parameters *)model->parameters;
    MLFF_TRY(painn_trainable_create(model, &r->backend.layout, &r->trainable));
    if (options->optimizer == MLFF_SOAP) MLFF_TRY(soap_plan_create(&r->backend.layout, 1, &r->soap));
    r->backend.n_soap_values = r->soap.n_state;
    size_t n = (size_t)r->backend.layout.n_parameters;
    for (int k = 0; k < TRAIN_VECTORS; k++) {
        const size_t size = (size_t)train_vector_size(&r->backend, (enum train_vector)k);
        if (!(r->vectors[k] = base_alloc(size, sizeof(double), "weights"))) MLFF_TRY(MLFF_ERR_MEMORY);
    }
    soap_begin(&r->soap, r->vectors[TRAIN_SOAP]);
    if (!(r->total = base_alloc(n, sizeof(double), "a gradient"))) MLFF_TRY(MLFF_ERR_MEMORY);
    train_layout_read(&r->backend.layout, model, r->vectors[TRAIN_WEIGHTS]);
    memcpy(r->vectors[TRAIN_AVERAGE], r->vectors[TRAIN_WEIGHTS], sizeof(double) * n);
    MLFF_TRY(painn_gradient_create(&r->parameters, &r->trainable, &r->gradient));
    *backend_out = &r->backend;
    r = NULL;
done:
    destroy((train_backend *)r);
    return status;
}
