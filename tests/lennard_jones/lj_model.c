// SPDX-License-Identifier: MIT
// lj_model.c: the Lennard-Jones architecture on the CPU, in float64.
#include "lj_model.h"

#include <math.h>
#include <stddef.h>

// ---- settings and loading ---------------------------------------------------------------------------------------------

typedef struct lj_options {
    double epsilon, sigma, cutoff;
    const char *elements;
} lj_options;

#define AT(field) offsetof(lj_options, field)
static const model_setting settings[] = {
    {"epsilon", "0.0104", "depth of the potential, eV", SETTING_NUMBER, AT(epsilon), 1e-6, 1e3, NULL},
    {"sigma", "3.4", "distance at which the potential is zero, Å", SETTING_NUMBER, AT(sigma), 0.1, 100, NULL},
    {"cutoff", "8.5", "cutoff radius, Å", SETTING_NUMBER, AT(cutoff), 0.1, 100, NULL},
    {"elements", "Ar", "elements, all with these parameters", SETTING_TEXT, AT(elements), 0, 0, NULL},
    {0}};
#undef AT

static mlff_status create_weights(const void *given, model_weights *weights_out)
{
    mlff_status status = MLFF_OK;
    const lj_options *options = given;
    model_weights weights = {0};
    MLFF_TRY(weights_set(&weights, "format", "mlff"));
    MLFF_TRY(weights_set(&weights, "architecture", "lennard-jones"));
    MLFF_TRY(weights_set(&weights, "energy_unit_ev", "1"));
    MLFF_TRY(weights_set(&weights, "length_unit_angstrom", "1"));
    MLFF_TRY(weights_set(&weights, "trained", "true"));
    MLFF_TRY(weights_set(&weights, "epsilon", "%.17g", options->epsilon));
    MLFF_TRY(weights_set(&weights, "sigma", "%.17g", options->sigma));
    MLFF_TRY(weights_set(&weights, "cutoff", "%.17g", options->cutoff));
    MLFF_TRY(model_elements_set(&weights, options->elements));
    *weights_out = weights;
    weights = (model_weights){0};
done:
    weights_free(&weights);
    return status;
}

static mlff_status load(mlff_model *model)
{
    mlff_status status = MLFF_OK;
    double epsilon, sigma, derivative_by_r;
    lj_parameters *p = base_alloc(1, sizeof *p, "a model");
    if (!p) return MLFF_ERR_MEMORY;
    model->parameters = p;
    MLFF_TRY(model_metadata_number(model, "epsilon", 1e-6, 1e3, &epsilon));
    MLFF_TRY(model_metadata_number(model, "sigma", 0.1, 100, &sigma));
    MLFF_TRY(model_metadata_number(model, "cutoff", 0.1, 100, &p->cutoff));
    p->four_epsilon = 4.0 * epsilon;
    p->sigma2 = sigma * sigma;
    p->shift = lj_pair(p, p->cutoff * p->cutoff, p->cutoff, &derivative_by_r);
    p->slope = derivative_by_r * p->cutoff;
    model->cutoff = p->cutoff;
    model->n_layers = 1;
    model->n_parameters = 2;
    model->outputs = MODEL_ATOM_ENERGY | MODEL_PAIR_GRADIENT;
    if (!(model->description = base_strdup("Lennard-Jones, shifted to zero energy and force at the cutoff")))
        return MLFF_ERR_MEMORY;
done:
    return status;
}

static void destroy_model(mlff_model *model)
{
    base_free(model->parameters);
    model->parameters = NULL;
}

// ---- the backend ------------------------------------------------------------------------------------------------------

typedef struct lj_backend {
    model_backend backend;
    const lj_parameters *parameters;
} lj_backend;

// Half of a pair's energy belongs to each of its atoms.
static mlff_status compute(model_backend *backend, const model_graph *graph, const model_outputs *outputs, stage_clock *clock,
                           int stage)
{
    const lj_parameters *p = ((const lj_backend *)backend)->parameters;
    for (int i = 0; i < graph->n_atoms; i++) {
        const double half = graph->owned && !graph->owned[i] ? 0.0 : 0.5;
        double energy = 0;
        for (size_t k = (size_t)graph->first[i]; k < (size_t)graph->first[i + 1]; k++) {
            const double *v = graph->vectors + 3 * k, r2 = v[0] * v[0] + v[1] * v[1] + v[2] * v[2];
            double by_r = 0;
            energy += half * lj_pair(p, r2, sqrt(r2), &by_r);
            for (int c = 0; outputs->pair_gradient && c < 3; c++) outputs->pair_gradient[3 * k + (size_t)c] = half * by_r * v[c];
        }
        outputs->atom_energy[i] = energy;
    }
    stage_end(clock, stage);
    return MLFF_OK;
}

static void info(const model_backend *backend, int64_t *bytes, int64_t *n_growths)
{
    (void)backend;
    *bytes = sizeof(lj_backend);
    *n_growths = 0;
}

static void destroy(model_backend *backend)
{
    base_free(backend);
}

static mlff_status create_cpu(const mlff_model *model, const cpu_options *options, model_backend **backend_out)
{
    static const mlff_stage stages[] = {{"pair_sum", "forward", -1, "and its derivative"}};
    (void)options;
    lj_backend *b = base_alloc(1, sizeof *b, "an evaluator");
    if (!b) return MLFF_ERR_MEMORY;
    b->backend = (model_backend){.stages = stages, .n_stages = 1, .compute = compute, .info = info, .destroy = destroy};
    b->parameters = model->parameters;
    *backend_out = &b->backend;
    return MLFF_OK;
}

// ---- stages -----------------------------------------------------------------------------------------------------------

static void pair_work(const mlff_model *model, const mlff_stage *stage, const mlff_work_size *size, mlff_stage_work *work)
{
    (void)model, (void)stage;
    work->flops = LJ_WORK_PER_PAIR * size->n_pairs;
    work->bytes = LJ_BYTES_PER_PAIR * size->n_pairs + LJ_BYTES_PER_ATOM * size->n_atoms;
    work->resident_bytes = work->bytes;
}

static const model_stage stage_descriptions[] = {
    {"forward", "pair_sum", "the sum over pairs of a closed form. A smaller cutoff has fewer pairs", pair_work}, {0}};

const model_architecture lj_architecture = {
    .name = "lennard-jones",
    .title = "Lennard-Jones",
    .reference = "J. E. Lennard-Jones, Proc. R. Soc. A 1924, 106, 463, doi:10.1098/rspa.1924.0082",
    .parameters_bytes = sizeof(lj_parameters),
    .load = load,
    .create_cpu = create_cpu,
    .destroy = destroy_model,
    .settings = settings,
    .options_bytes = sizeof(lj_options),
    .create = create_weights,
    .stages = stage_descriptions,
};
