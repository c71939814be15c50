// SPDX-License-Identifier: MIT
// painn.c: PaiNN as a row of the registry: checks a file's tensors and metadata and lays out the parameters.
// Tensors keep the names of SchNetPack's state_dict; symbols as in painn.h.
#include "painn.h"
#include "device/device.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "model/painn/train/painn_trainable.h"
#include "model/weights/tensors.h"

// What model->parameters points to.
typedef struct painn_model {
    painn_parameters parameters; // first: the backends see only this
    model_taken taken;
    bool shared_filters, shared_interactions;
} painn_model;

// The tensor `name` with exactly this shape, as floats. `optional` and absent: *data_out is NULL.
static mlff_status take(mlff_model *model, bool optional, const float **data_out, int n_dimensions, const int64_t *shape,
                        const char *name)
{
    painn_model *painn = model->parameters;
    return model_take(model, &painn->taken, optional, data_out, n_dimensions, shape, name);
}

static mlff_status take_matrix(mlff_model *model, const float **data_out, int64_t rows, int64_t columns, const char *name)
{
    return take(model, false, data_out, 2, (int64_t[]){rows, columns}, name);
}

static mlff_status take_vector(mlff_model *model, const float **data_out, int64_t length, const char *name)
{
    return take(model, false, data_out, 1, (int64_t[]){length}, name);
}

// `name` holds "%d" for the layer's index. Shared interactions may be stored once, or once for each layer.
static mlff_status take_of_layer(mlff_model *model, int l, const float **data_out, int64_t rows, int64_t columns,
                                 const char *block, const char *leaf)
{
    const painn_model *painn = model->parameters;
    char name[128], first_name[128];
    int64_t shape[2] = {rows, columns};
    int n_dimensions = columns > 0 ? 2 : 1;
    bool alias = painn->shared_interactions && l > 0;

    snprintf(name, sizeof name, "representation.%s.%d.%s", block, l, leaf);
    mlff_status status = take(model, alias, data_out, n_dimensions, shape, name);
    if (status != MLFF_OK || !alias) return status;

    const float *first = NULL;
    snprintf(first_name, sizeof first_name, "representation.%s.0.%s", block, leaf);
    status = take(model, false, &first, n_dimensions, shape, first_name);
    if (status != MLFF_OK) return status;
    size_t bytes = (size_t)(rows * (columns > 0 ? columns : 1)) * sizeof(float);
    if (*data_out && memcmp(*data_out, first, bytes) != 0)
        return mlff_fail(MLFF_ERR_FORMAT, "%s: its interactions are shared, yet tensors %s and %s differ", model->name,
                         first_name, name);
    *data_out = first;
    return MLFF_OK;
}

static mlff_status take_layer(mlff_model *model, int l)
{
    mlff_status status = MLFF_OK;
    painn_model *painn = model->parameters;
    painn_layer *layer = &painn->parameters.layer[l];
    int64_t F = painn->parameters.n_features;

    MLFF_TRY(take_of_layer(model, l, &layer->W1, F, F, "interactions", "interatomic_context_net.0.weight"));
    MLFF_TRY(take_of_layer(model, l, &layer->b1, F, 0, "interactions", "interatomic_context_net.0.bias"));
    MLFF_TRY(take_of_layer(model, l, &layer->W2, 3 * F, F, "interactions", "interatomic_context_net.1.weight"));
    MLFF_TRY(take_of_layer(model, l, &layer->b2, 3 * F, 0, "interactions", "interatomic_context_net.1.bias"));
    MLFF_TRY(take_of_layer(model, l, &layer->M1, F, 2 * F, "mixing", "intraatomic_context_net.0.weight"));
    MLFF_TRY(take_of_layer(model, l, &layer->c1, F, 0, "mixing", "intraatomic_context_net.0.bias"));
    MLFF_TRY(take_of_layer(model, l, &layer->M2, 3 * F, F, "mixing", "intraatomic_context_net.1.weight"));
    MLFF_TRY(take_of_layer(model, l, &layer->c2, 3 * F, 0, "mixing", "intraatomic_context_net.1.bias"));
    MLFF_TRY(take_of_layer(model, l, &layer->U, 2 * F, F, "mixing", "mu_channel_mix.weight"));
done:
    return status;
}

static mlff_status take_radial(mlff_model *model)
{
    mlff_status status = MLFF_OK;
    painn_parameters *parameters = model->parameters;
    int K = parameters->n_radial;
    const float *cutoff = NULL, *epsilon = NULL;

    if (parameters->basis == PAINN_GAUSSIAN) {
        MLFF_TRY(take_vector(model, &parameters->center, K, "representation.radial_basis.offsets"));
        MLFF_TRY(take_vector(model, &parameters->width, K, "representation.radial_basis.widths"));
        for (int k = 0; k < K; k++)
            if (!(fabsf(parameters->width[k]) >= 1e-6f))
                MLFF_FAIL(MLFF_ERR_VALUE, "%s: width %d of its radial basis is %g", model->name, k, (double)parameters->width[k]);
    } else {
        MLFF_TRY(take_vector(model, &parameters->frequency, K, "representation.radial_basis.freqs"));
    }
    MLFF_TRY(take(model, true, &cutoff, 1, (int64_t[]){1}, "representation.cutoff_fn.cutoff"));
    if (cutoff && fabs((double)*cutoff - parameters->cutoff) > 1e-6 * parameters->cutoff)
        MLFF_FAIL(MLFF_ERR_FORMAT, "%s: metadata cutoff is %g, tensor representation.cutoff_fn.cutoff %g", model->name,
                  parameters->cutoff, (double)*cutoff);
    MLFF_TRY(take(model, true, &epsilon, 1, (int64_t[]){1}, "representation.cutoff_fn.eps"));
done:
    return status;
}

// Widths of the readout are read off its tensors: output_modules.0.outnet.{0, 1, …}, the last one row.
static mlff_status take_readout(mlff_model *model)
{
    mlff_status status = MLFF_OK;
    painn_parameters *parameters = model->parameters;
    int64_t width = parameters->n_features;
    int n = 0;

    parameters->readout_width[0] = (int)width;
    for (;; n++) {
        char weight_name[64], bias_name[64];
        snprintf(weight_name, sizeof weight_name, "output_modules.0.outnet.%d.weight", n);
        snprintf(bias_name, sizeof bias_name, "output_modules.0.outnet.%d.bias", n);
        const model_tensor *weight = weights_find(&model->file, weight_name);
        if (!weight && n > 0) break;
        if (n == PAINN_MAX_READOUT)
            MLFF_FAIL(MLFF_ERR_LIMIT, "%s: its readout has more than %d layers", model->name, PAINN_MAX_READOUT);
        int64_t rows = weight ? weight->shape[0] : 1;
        if (rows < 1 || rows > PAINN_MAX_FEATURES)
            MLFF_FAIL(MLFF_ERR_FORMAT, "%s: tensor %s has %" PRId64 " rows; expected 1 to %d", model->name, weight_name, rows,
                      PAINN_MAX_FEATURES);
        MLFF_TRY(take_matrix(model, &parameters->readout_weight[n], rows, width, weight_name));
        MLFF_TRY(take_vector(model, &parameters->readout_bias[n], rows, bias_name));
        width = rows;
        parameters->readout_width[n + 1] = (int)width;
    }
    if (width != 1)
        MLFF_FAIL(MLFF_ERR_FORMAT, "%s: its readout gives %" PRId64 " numbers for an atom; expected 1, the energy", model->name,
                  width);
    parameters->n_readout = n;
done:
    return status;
}

static mlff_status read_settings(mlff_model *model)
{
    static const char *const bases[] = {[PAINN_GAUSSIAN] = "gaussian", [PAINN_BESSEL] = "bessel", NULL};
    static const char *const cutoffs[] = {[PAINN_COSINE] = "cosine", [PAINN_MOLLIFIER] = "mollifier", NULL};
    static const char *const activations[] = {[PAINN_SILU] = "silu", [PAINN_SHIFTED_SOFTPLUS] = "shifted_softplus", NULL};
    static const char *const truth[] = {"false", "true", NULL};
    mlff_status status = MLFF_OK;
    painn_model *painn = model->parameters;
    painn_parameters *parameters = &painn->parameters;
    int choice = 0;

    MLFF_TRY(model_metadata_count(model, "n_features", 1, PAINN_MAX_FEATURES, &parameters->n_features));
    MLFF_TRY(model_metadata_count(model, "n_layers", 1, PAINN_MAX_LAYERS, &parameters->n_layers));
    MLFF_TRY(model_metadata_count(model, "n_radial", 1, PAINN_MAX_RADIAL, &parameters->n_radial));
    MLFF_TRY(model_metadata_number(model, "cutoff", 1e-3, 1e3, &parameters->cutoff));
    MLFF_TRY(model_metadata_number(model, "epsilon", 1e-30, 1.0, &parameters->epsilon));
    if (weights_get(&model->file, "core_repulsion"))
        MLFF_TRY(model_metadata_number(model, "core_repulsion", 0, 1, &model->core_repulsion));
    MLFF_TRY(model_metadata_choice(model, "radial_basis", bases, &choice));
    parameters->basis = (enum painn_basis)choice;
    MLFF_TRY(model_metadata_choice(model, "cutoff_function", cutoffs, &choice));
    parameters->cutoff_function = (enum painn_cutoff)choice;
    MLFF_TRY(model_metadata_choice(model, "activation", activations, &choice));
    parameters->activation = (enum painn_activation)choice;
    MLFF_TRY(model_metadata_choice(model, "shared_filters", truth, &choice));
    painn->shared_filters = choice;
    MLFF_TRY(model_metadata_choice(model, "shared_interactions", truth, &choice));
    painn->shared_interactions = choice;
done:
    return status;
}

static mlff_status take_tensors(mlff_model *model)
{
    mlff_status status = MLFF_OK;
    painn_model *painn = model->parameters;
    painn_parameters *parameters = &painn->parameters;
    int64_t F = parameters->n_features, K = parameters->n_radial;
    int64_t filter_rows = painn->shared_filters ? 3 * F : 3 * F * parameters->n_layers;
    const float *filter_weight = NULL, *filter_bias = NULL;

    const model_tensor *embedding = weights_find(&model->file, "representation.embedding.weight");
    int64_t n_species = embedding && embedding->n_dimensions == 2 ? embedding->shape[0] : 100;
    if (n_species < 2 || n_species > 1000)
        MLFF_FAIL(MLFF_ERR_FORMAT, "%s: its embedding has %" PRId64 " row%s; expected one for each atomic number", model->name,
                  n_species, base_plural(n_species));
    parameters->n_species = (int)n_species;
    MLFF_TRY(take_matrix(model, &parameters->embedding, n_species, F, "representation.embedding.weight"));
    MLFF_TRY(take_radial(model));
    MLFF_TRY(take_matrix(model, &filter_weight, filter_rows, K, "representation.filter_net.weight"));
    MLFF_TRY(take_vector(model, &filter_bias, filter_rows, "representation.filter_net.bias"));
    for (int l = 0; l < parameters->n_layers; l++) {
        int64_t row = painn->shared_filters ? 0 : 3 * F * l;
        parameters->layer[l].filter_weight = filter_weight + row * K;
        parameters->layer[l].filter_bias = filter_bias + row;
        MLFF_TRY(take_layer(model, l));
    }
    MLFF_TRY(take_readout(model));
done:
    return status;
}

static int64_t count_parameters(const painn_model *painn)
{
    const painn_parameters *parameters = &painn->parameters;
    int64_t F = parameters->n_features, K = parameters->n_radial, L = parameters->n_layers;
    int64_t message = F * F + F + 3 * F * F + 3 * F;
    int64_t mixing = 2 * F * F + F + 3 * F * F + 3 * F + 2 * F * F;
    int64_t count = parameters->n_species * F + (painn->shared_filters ? 1 : L) * 3 * F * (K + 1) +
                    (painn->shared_interactions ? 1 : L) * (message + mixing);
    for (int n = 0; n < parameters->n_readout; n++)
        count += (int64_t)(parameters->readout_width[n] + 1) * parameters->readout_width[n + 1];
    return count;
}

// What is added to each atom's energy: the mean per atom and the element's own, in eV.
static mlff_status take_offsets(mlff_model *model)
{
    mlff_status status = MLFF_OK;
    painn_model *painn = model->parameters;
    int n_species = painn->parameters.n_species;
    double mean = 0.0;

    MLFF_TRY(model_metadata_number(model, "energy_mean", -1e12, 1e12, &mean));
    const model_tensor *atomref = weights_find(&model->file, "postprocessors.atomref");
    if (atomref) {
        if (atomref->n_dimensions != 1 || atomref->n_elements < n_species)
            MLFF_FAIL(MLFF_ERR_FORMAT,
                      "%s: tensor postprocessors.atomref has %" PRId64 " element%s; expected %d, as its embedding", model->name,
                      atomref->n_elements, base_plural(atomref->n_elements), n_species);
        painn->taken.used[atomref - model->file.tensors] = true;
    }
    if (model->n_elements > 0 && model->elements[model->n_elements - 1] >= n_species)
        MLFF_FAIL(MLFF_ERR_FORMAT, "%s: it claims element %d, its embedding ends at %d", model->name,
                  model->elements[model->n_elements - 1], n_species - 1);
    for (int z = 1; z < n_species && z <= MLFF_MAX_ATOMIC_NUMBER; z++) {
        double own = !atomref ? 0.0 : atomref->is_double ? ((double *)atomref->data)[z] : (double)((float *)atomref->data)[z];
        model->offset[z] = (mean + own) * model->energy_unit;
        if (model->n_elements == 0) model->known[z] = true;
    }
done:
    return status;
}

static mlff_status describe(mlff_model *model)
{
    const painn_model *painn = model->parameters;
    const painn_parameters *parameters = &painn->parameters;
    base_text text = {0};
    base_text_add(&text, "PaiNN, %d features, %d layer%s%s, %d %s radial functions%s, %s cutoff %g Å, %s%s",
                  parameters->n_features, parameters->n_layers, base_plural(parameters->n_layers),
                  painn->shared_interactions ? " (shared)" : "", parameters->n_radial,
                  parameters->basis == PAINN_GAUSSIAN ? "Gaussian" : "Bessel", painn->shared_filters ? " (shared filters)" : "",
                  parameters->cutoff_function == PAINN_COSINE ? "cosine" : "mollifier", model->cutoff,
                  parameters->activation == PAINN_SILU ? "silu" : "shifted softplus", model->trained ? "" : ", untrained");
    model->description = text.text; // also on failure: destroyed with the model
    return text.status;
}

static mlff_status painn_load(mlff_model *model)
{
    mlff_status status = MLFF_OK;
    painn_model *painn = base_alloc(1, sizeof *painn, "a model");
    if (!painn) return MLFF_ERR_MEMORY;
    model->parameters = painn;
    MLFF_TRY(model_taken_create(model, &painn->taken));

    painn->parameters.radial = painn_radial;
    MLFF_TRY(read_settings(model));
    MLFF_TRY(take_tensors(model));
    MLFF_TRY(take_offsets(model));
    MLFF_TRY(model_taken_all(model, &painn->taken));
    model->cutoff = painn->parameters.cutoff * model->length_unit;
    model->n_layers = painn->parameters.n_layers;
    model->n_parameters = count_parameters(painn);
    model->outputs = MODEL_ATOM_ENERGY | MODEL_PAIR_GRADIENT;
    MLFF_TRY(describe(model));
done:
    return status;
}

static mlff_status painn_create_cpu(const mlff_model *model, const cpu_options *options, model_backend **backend_out)
{
    return options->precision == MLFF_FLOAT64 ? painn_reference_create(model, options, backend_out)
                                              : painn_cpu_create(model, options, backend_out);
}

static mlff_status painn_create_train(const mlff_model *model, const train_backend_options *options, train_backend **backend_out)
{
    if (options->device.kind == MLFF_CPU && options->precision == MLFF_FLOAT64)
        return painn_train_reference_create(model, options, backend_out);
    if (options->device.kind == MLFF_CPU && options->precision == MLFF_FLOAT32)
        return painn_train_cpu_create(model, options, backend_out);
    if (options->device.kind == MLFF_CUDA) {
        train_layout layout;
        painn_trainable trainable;
        mlff_status status = painn_trainable_create(model, &layout, &trainable);
        if (status != MLFF_OK) return status;
        return train_backend_create_gpu(model, options, &layout, &trainable, sizeof trainable, backend_out);
    }
    return mlff_fail(MLFF_ERR_UNSUPPORTED, "PaiNN is not trained in this precision on the CPU; use float32 or float64");
}

static void painn_destroy(mlff_model *model)
{
    painn_model *painn = model->parameters;
    if (!painn) return;
    model_taken_free(&painn->taken);
    base_free(painn);
    model->parameters = NULL;
}

const model_architecture painn_architecture = {
    .name = "painn",
    .title = "PaiNN",
    .reference =
        "K. T. Schütt, O. T. Unke, M. Gastegger, Equivariant message passing for the prediction of tensorial properties and "
        "molecular spectra, ICML 2021, arXiv:2102.03150",
    .load = painn_load,
    .create_cpu = painn_create_cpu,
    .parameters_bytes = sizeof(painn_parameters),
    .create_train_backend = painn_create_train,
    .set_shifts = painn_set_shifts,
    .destroy = painn_destroy,
    .settings = painn_settings,
    .options_bytes = sizeof(painn_options),
    .create = painn_new,
    .stages = painn_stage_descriptions,
};
