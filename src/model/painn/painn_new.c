// SPDX-License-Identifier: MIT
// painn_new.c: an untrained PaiNN with SchNetPack's initialization: Xavier-uniform weights, zero biases,
// an embedding from N(0, 1). Each tensor draws from its own stream of the seed.
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "painn.h"

struct maker {
    model_weights *weights;
    uint64_t seed, stream;
};

// ±√(6 / (in + out)): keeps the variance of features and of gradients alike (Glorot and Bengio 2010).
static mlff_status add_matrix(struct maker *maker, int rows, int columns, const char *name)
{
    model_tensor *tensor = weights_add(maker->weights, name, 0, 2, (int64_t[]){rows, columns});
    if (!tensor) return MLFF_ERR_MEMORY;
    double bound = sqrt(6.0 / (rows + columns));
    uint64_t stream = maker->stream++;
    for (int64_t k = 0; k < tensor->n_elements; k++)
        ((float *)tensor->data)[k] = (float)(bound * (2.0 * base_random_uniform(maker->seed, stream, (uint64_t)k) - 1.0));
    return MLFF_OK;
}

static mlff_status add_zeros(struct maker *maker, int length, const char *name)
{
    return weights_add(maker->weights, name, 0, 1, (int64_t[]){length}) ? MLFF_OK : MLFF_ERR_MEMORY;
}

// prefix.weight (out × in) and prefix.bias.
static mlff_status add_linear(struct maker *maker, int out, int in, const char *prefix)
{
    char name[160];
    snprintf(name, sizeof name, "%s.weight", prefix);
    mlff_status status = add_matrix(maker, out, in, name);
    snprintf(name, sizeof name, "%s.bias", prefix);
    return status == MLFF_OK ? add_zeros(maker, out, name) : status;
}

static mlff_status add_layer(struct maker *maker, int F, int l)
{
    mlff_status status = MLFF_OK;
    char name[128];
    snprintf(name, sizeof name, "representation.interactions.%d.interatomic_context_net.0", l);
    MLFF_TRY(add_linear(maker, F, F, name));
    snprintf(name, sizeof name, "representation.interactions.%d.interatomic_context_net.1", l);
    MLFF_TRY(add_linear(maker, 3 * F, F, name));
    snprintf(name, sizeof name, "representation.mixing.%d.intraatomic_context_net.0", l);
    MLFF_TRY(add_linear(maker, F, 2 * F, name));
    snprintf(name, sizeof name, "representation.mixing.%d.intraatomic_context_net.1", l);
    MLFF_TRY(add_linear(maker, 3 * F, F, name));
    snprintf(name, sizeof name, "representation.mixing.%d.mu_channel_mix.weight", l);
    MLFF_TRY(add_matrix(maker, 2 * F, F, name));
done:
    return status;
}

// Gaussians: centers evenly from 0 to the cutoff, their distance as width. Bessel: frequencies (k + 1) π / cutoff.
static mlff_status add_radial(struct maker *maker, const painn_options *options)
{
    int K = options->n_radial;
    int64_t shape[1] = {K};
    if (strcmp(options->radial_basis, "bessel") == 0) {
        model_tensor *frequency = weights_add(maker->weights, "representation.radial_basis.freqs", 0, 1, shape);
        if (!frequency) return MLFF_ERR_MEMORY;
        for (int k = 0; k < K; k++) ((float *)frequency->data)[k] = (float)((k + 1) * BASE_PI / options->cutoff);
        return MLFF_OK;
    }
    double spacing = options->cutoff / (K - 1);
    model_tensor *center = weights_add(maker->weights, "representation.radial_basis.offsets", 0, 1, shape);
    float *centers = center ? center->data : NULL;
    model_tensor *width = weights_add(maker->weights, "representation.radial_basis.widths", 0, 1, shape);
    if (!centers || !width) return MLFF_ERR_MEMORY;
    for (int k = 0; k < K; k++) {
        centers[k] = (float)(k * spacing);
        ((float *)width->data)[k] = (float)spacing;
    }
    return MLFF_OK;
}

static const char *const bases[] = {"gaussian", "bessel", NULL}, *const cutoffs[] = {"cosine", "mollifier", NULL};

#define AT(field) offsetof(painn_options, field)
const model_setting painn_settings[] = {
    {"n_features", "128", "width of the atoms' features", SETTING_COUNT, AT(n_features), 2, PAINN_MAX_FEATURES, NULL},
    {"n_layers", "3", "message-passing layers", SETTING_COUNT, AT(n_layers), 1, PAINN_MAX_LAYERS, NULL},
    {"n_radial", "20", "radial basis functions", SETTING_COUNT, AT(n_radial), 2, PAINN_MAX_RADIAL, NULL},
    {"cutoff", "5", "cutoff radius of a layer, Å", SETTING_NUMBER, AT(cutoff), 0.1, 100, NULL},
    {"radial_basis", "gaussian", "gaussian or bessel", SETTING_TEXT, AT(radial_basis), 0, 0, bases},
    {"cutoff_function", "cosine", "cosine or mollifier", SETTING_TEXT, AT(cutoff_function), 0, 0, cutoffs},
    {"shared_filters", "false", "one filter network for all layers", SETTING_FLAG, AT(shared_filters), 0, 0, NULL},
    {"shared_interactions", "false", "one set of weights for all layers", SETTING_FLAG, AT(shared_interactions), 0, 0, NULL},
    {"core_repulsion", "0", "onset of a repulsion of nuclei, as a part of the sum of covalent radii (0.7); 0: none",
     SETTING_NUMBER, AT(core_repulsion), 0, 1, NULL},
    {"elements", NULL, "elements that the model accepts, as H,C,O; not set: 1 to 99", SETTING_TEXT, AT(elements), 0, 0, NULL},
    {"seed", "0", "of the random weights", SETTING_SEED, AT(seed), 0, 0, NULL},
    {0}};
#undef AT

enum { N_SPECIES = 100 };

static mlff_status set_metadata(model_weights *weights, const painn_options *options)
{
    mlff_status status = MLFF_OK;
    MLFF_TRY(model_untrained_set(weights, "painn", options->seed));
    MLFF_TRY(weights_set(weights, "n_features", "%d", options->n_features));
    MLFF_TRY(weights_set(weights, "n_layers", "%d", options->n_layers));
    MLFF_TRY(weights_set(weights, "n_radial", "%d", options->n_radial));
    MLFF_TRY(weights_set(weights, "cutoff", "%.17g", options->cutoff));
    MLFF_TRY(weights_set(weights, "radial_basis", "%s", options->radial_basis));
    MLFF_TRY(weights_set(weights, "cutoff_function", "%s", options->cutoff_function));
    MLFF_TRY(weights_set(weights, "activation", "silu"));
    MLFF_TRY(weights_set(weights, "epsilon", "1e-08"));
    MLFF_TRY(weights_set(weights, "shared_filters", "%s", options->shared_filters ? "true" : "false"));
    MLFF_TRY(weights_set(weights, "shared_interactions", "%s", options->shared_interactions ? "true" : "false"));
    if (options->core_repulsion > 0) MLFF_TRY(weights_set(weights, "core_repulsion", "%.17g", options->core_repulsion));
    MLFF_TRY(model_elements_set_within(weights, options->elements, N_SPECIES - 1, "a PaiNN"));
    MLFF_TRY(weights_set(weights, "energy_mean", "0"));
done:
    return status;
}

mlff_status painn_new(const void *settings, model_weights *weights_out)
{
    mlff_status status = MLFF_OK;
    const painn_options *options = settings;
    model_weights weights = {0};
    struct maker maker = {.weights = &weights, .seed = options->seed};
    int F = options->n_features, L = options->n_layers;

    MLFF_TRY(set_metadata(&weights, options));
    model_tensor *embedding = weights_add(&weights, "representation.embedding.weight", 0, 2, (int64_t[]){N_SPECIES, F});
    if (!embedding) {
        status = MLFF_ERR_MEMORY;
        goto done;
    }
    uint64_t stream = maker.stream++;
    for (int64_t k = 0; k < embedding->n_elements; k++)
        ((float *)embedding->data)[k] = (float)base_random_normal(options->seed, stream, (uint64_t)k);
    MLFF_TRY(add_radial(&maker, options));
    MLFF_TRY(add_linear(&maker, (options->shared_filters ? 1 : L) * 3 * F, options->n_radial, "representation.filter_net"));
    for (int l = 0; l < (options->shared_interactions ? 1 : L); l++) MLFF_TRY(add_layer(&maker, F, l));
    MLFF_TRY(add_linear(&maker, F / 2, F, "output_modules.0.outnet.0"));
    MLFF_TRY(add_linear(&maker, 1, F / 2, "output_modules.0.outnet.1"));

    *weights_out = weights;
    weights = (model_weights){0};
done:
    weights_free(&weights);
    return status;
}

mlff_status painn_set_shifts(model_weights *weights, const double shifts[MLFF_MAX_ATOMIC_NUMBER + 1])
{
    static const char name[] = "postprocessors.atomref";
    double unit = 1;
    const char *text = weights_get(weights, "energy_unit_ev");
    const model_tensor *embedding = weights_find(weights, "representation.embedding.weight");
    if (!text || !base_parse_double(text, &unit) || !embedding)
        return mlff_fail(MLFF_ERR_FORMAT, "the model has no energy unit or no embedding");
    const model_tensor *found = weights_find(weights, name);
    const int64_t n = embedding->shape[0];
    model_tensor *tensor = found ? (model_tensor *)found : weights_add(weights, name, 1, 1, &n);
    if (!tensor) return MLFF_ERR_MEMORY;
    for (int64_t z = 0; z < tensor->n_elements; z++) {
        const double shift = z <= MLFF_MAX_ATOMIC_NUMBER ? shifts[z] / unit : 0;
        if (tensor->is_double)
            ((double *)tensor->data)[z] = shift;
        else
            ((float *)tensor->data)[z] = (float)shift;
    }
    return weights_set(weights, "energy_mean", "0");
}
