// SPDX-License-Identifier: MIT
// orb_new.c: an untrained Orb model with orb-models' initialization: weights and biases of a linear layer uniform in
// ±1/√n_in, norms 1, embedding uniform in ±√3. Each tensor draws from its own stream of the seed. Normalizers are 0 and 1, and
// reference energies 0: they come from training data.
#include <float.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "orb_model.h"

// What distinguishes the architectures, besides the sizes.
typedef struct variant {
    const char *name, *activation, *norm, *edge_input, *repulsion, *forces, *direct_stress;
    int n_radial, n_bins;
} variant;

static const variant v2 = {"orb-v2", "shifted_softplus", "layer_norm", "gaussian_unit", "none", "direct", "one_scale", 20, 0};
static const variant v3_direct = {"orb-v3-direct", "silu", "rms_norm", "bessel_harmonics", "zbl_sum", "direct",
                                  "two_scales",    8,      50};
static const variant v3_conservative = {
    "orb-v3-conservative", "silu", "rms_norm", "bessel_harmonics", "zbl_mean", "conservative", "none", 8, 50};

static const double cutoff = 6.0, gaussian_span = 10.0, largest_error = 0.3; // Å, Å, eV/Å

#define AT(field) offsetof(orb_options, field)
#define SETTINGS(hidden, layers)                                                                                                 \
    {                                                                                                                            \
        {"n_features",     "256", "width of the features of atoms and edges", SETTING_COUNT, AT(n_features), 4,                  \
         ORB_MAX_FEATURES, NULL},                                                                                                \
            {"hidden", hidden, "width of the hidden layers", SETTING_COUNT, AT(n_hidden), 1, ORB_MAX_HIDDEN, NULL},              \
            {"n_layers", layers, "message-passing layers", SETTING_COUNT, AT(n_layers), 1, ORB_MAX_LAYERS, NULL},                \
            {"n_head", "256", "width of the heads", SETTING_COUNT, AT(n_head), 1, ORB_MAX_FEATURES, NULL},                       \
            {"max_neighbors",                                                                                                    \
             "20",                                                                                                               \
             "edges of an atom, the nearest; 120 for the models named inf",                                                      \
             SETTING_COUNT,                                                                                                      \
             AT(max_neighbors),                                                                                                  \
             1,                                                                                                                  \
             ORB_MAX_NEIGHBORS,                                                                                                  \
             NULL},                                                                                                              \
            {"conditioned", "false", "by charge and spin, as OMol's models", SETTING_FLAG, AT(conditioned), 0, 0, NULL},         \
            {"elements", NULL, "elements that the model accepts, as H,C,O; not set: 1 to 117", SETTING_TEXT, AT(elements), 0,    \
             0,          NULL},                                                                                                  \
            {"seed", "0", "of the random weights", SETTING_SEED, AT(seed), 0, 0, NULL},                                          \
        {                                                                                                                        \
            0                                                                                                                    \
        }                                                                                                                        \
    }
const model_setting orb_v2_settings[] = SETTINGS("512", "15");
const model_setting orb_v3_direct_settings[] = SETTINGS("1024", "5"), orb_v3_conservative_settings[] = SETTINGS("1024", "5");
#undef SETTINGS
#undef AT

enum { N_EMBEDDED = 119, N_REFERENCE = 118, NAME_BYTES = 128 }; // rows by atomic number, from 0

struct maker {
    model_weights *weights;
    const orb_options *options;
    const variant *variant;
    uint64_t stream;
};

static mlff_status add_uniform(struct maker *maker, const char *name, int n_dimensions, const int64_t *shape, double bound)
{
    model_tensor *tensor = weights_add(maker->weights, name, 0, n_dimensions, shape);
    const uint64_t stream = maker->stream++;
    if (!tensor) return MLFF_ERR_MEMORY;
    for (int64_t k = 0; k < tensor->n_elements; k++)
        ((float *)tensor->data)[k] =
            (float)(bound * (2.0 * base_random_uniform(maker->options->seed, stream, (uint64_t)k) - 1.0));
    return MLFF_OK;
}

static mlff_status add_constant(struct maker *maker, const char *name, int64_t length, double value)
{
    model_tensor *tensor = weights_add(maker->weights, name, 0, 1, &length);
    if (!tensor) return MLFF_ERR_MEMORY;
    for (int64_t k = 0; k < length; k++) ((float *)tensor->data)[k] = (float)value;
    return MLFF_OK;
}

static mlff_status add_linear(struct maker *maker, int n_in, int n_out, const char *prefix)
{
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%.110s.weight", prefix);
    mlff_status status = add_uniform(maker, name, 2, (int64_t[]){n_out, n_in}, 1.0 / sqrt(n_in));
    snprintf(name, sizeof name, "%.110s.bias", prefix);
    return status == MLFF_OK ? add_uniform(maker, name, 1, (int64_t[]){n_out}, 1.0 / sqrt(n_in)) : status;
}

// Linear layers of these widths, NN-0 …, and a norm of the output where `norm` is set.
static mlff_status add_mlp(struct maker *maker, int n_linear, const int *width, const char *prefix, bool norm)
{
    mlff_status status = MLFF_OK;
    char name[NAME_BYTES];
    for (int k = 0; k < n_linear; k++) {
        snprintf(name, sizeof name, "%.96s.mlp.NN-%d", prefix, k);
        MLFF_TRY(add_linear(maker, width[k], width[k + 1], name));
    }
    if (!norm) return MLFF_OK;
    snprintf(name, sizeof name, "%.96s.layer_norm.weight", prefix);
    MLFF_TRY(add_constant(maker, name, width[n_linear], 1));
    snprintf(name, sizeof name, "%.96s.layer_norm.bias", prefix);
    if (strcmp(maker->variant->norm, "layer_norm") == 0) MLFF_TRY(add_constant(maker, name, width[n_linear], 0));
done:
    return status;
}

static mlff_status add_normalizer(struct maker *maker, const char *prefix)
{
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%.96s.bn.running_mean", prefix);
    mlff_status status = add_constant(maker, name, 1, 0);
    snprintf(name, sizeof name, "%.96s.bn.running_var", prefix);
    return status == MLFF_OK ? add_constant(maker, name, 1, 1) : status;
}

static mlff_status add_head(struct maker *maker, int n_out, const char *name)
{
    const int width[3] = {maker->options->n_features, maker->options->n_head, n_out};
    char prefix[NAME_BYTES];
    snprintf(prefix, sizeof prefix, "heads.%.64s", name);
    return add_mlp(maker, 2, width, prefix, false);
}

static mlff_status add_heads(struct maker *maker)
{
    mlff_status status = MLFF_OK;
    const variant *v = maker->variant;
    const bool direct = strcmp(v->forces, "direct") == 0, two = strcmp(v->direct_stress, "two_scales") == 0;
    MLFF_TRY(add_head(maker, 1, "energy"));
    MLFF_TRY(add_normalizer(maker, "heads.energy.normalizer"));
    if (!weights_add(maker->weights, "heads.energy.reference.linear.weight", 0, 2, (int64_t[]){1, N_REFERENCE}))
        return MLFF_ERR_MEMORY;
    if (direct) {
        MLFF_TRY(add_head(maker, 3, "forces"));
        MLFF_TRY(add_normalizer(maker, "heads.forces.normalizer"));
    }
    if (direct && !maker->options->conditioned) {
        MLFF_TRY(add_head(maker, 6, "stress"));
        MLFF_TRY(add_normalizer(maker, two ? "heads.stress.diag_normalizer" : "heads.stress.normalizer"));
        if (two) MLFF_TRY(add_normalizer(maker, "heads.stress.offdiag_normalizer"));
    }
    if (v->n_bins > 0) {
        const int64_t n = v->n_bins + 1;
        MLFF_TRY(add_head(maker, v->n_bins, "confidence"));
        model_tensor *edges = weights_add(maker->weights, "heads.confidence.bin_edges", 0, 1, &n);
        if (!edges) return MLFF_ERR_MEMORY;
        for (int64_t k = 0; k < n; k++) ((float *)edges->data)[k] = (float)(largest_error * (double)k / v->n_bins);
    }
done:
    return status;
}

static mlff_status add_layer(struct maker *maker, int t)
{
    mlff_status status = MLFF_OK;
    const int F = maker->options->n_features, H = maker->options->n_hidden, width[4] = {3 * F, H, H, F};
    char prefix[NAME_BYTES];
    snprintf(prefix, sizeof prefix, "model.gnn_stacks.%d._node_mlp", t);
    MLFF_TRY(add_mlp(maker, 3, width, prefix, true));
    snprintf(prefix, sizeof prefix, "model.gnn_stacks.%d._edge_mlp", t);
    MLFF_TRY(add_mlp(maker, 3, width, prefix, true));
    snprintf(prefix, sizeof prefix, "model.gnn_stacks.%d._receive_attn", t);
    MLFF_TRY(add_linear(maker, F, 1, prefix));
    snprintf(prefix, sizeof prefix, "model.gnn_stacks.%d._send_attn", t);
    MLFF_TRY(add_linear(maker, F, 1, prefix));
    snprintf(prefix, sizeof prefix, "model.gnn_stacks.%d._cond_node_proj", t);
    if (maker->options->conditioned) MLFF_TRY(add_linear(maker, F, F, prefix));
done:
    return status;
}

// Frequencies of the charge's and the spin's sines: N(0, 1).
static mlff_status add_frequencies(struct maker *maker, const char *name)
{
    const int64_t n = maker->options->n_features / 4;
    model_tensor *tensor = weights_add(maker->weights, name, 0, 1, &n);
    const uint64_t stream = maker->stream++;
    if (!tensor) return MLFF_ERR_MEMORY;
    for (int64_t k = 0; k < n; k++)
        ((float *)tensor->data)[k] = (float)base_random_normal(maker->options->seed, stream, (uint64_t)k);
    return MLFF_OK;
}

static mlff_status add_bessel(struct maker *maker)
{
    const int64_t n = maker->variant->n_radial, one = 1;
    model_tensor *tensor = weights_add(maker->weights, "model.rbf_transform.bessel_weights", 1, 1, &n);
    if (!tensor) return MLFF_ERR_MEMORY;
    for (int k = 0; k < n; k++) ((double *)tensor->data)[k] = BASE_PI / cutoff * (k + 1);
    if (!(tensor = weights_add(maker->weights, "model.rbf_transform.r_max", 1, 1, &one))) return MLFF_ERR_MEMORY;
    *(double *)tensor->data = cutoff;
    if (!(tensor = weights_add(maker->weights, "model.rbf_transform.prefactor", 1, 1, &one))) return MLFF_ERR_MEMORY;
    *(double *)tensor->data = sqrt(2.0 / cutoff);
    return MLFF_OK;
}

static mlff_status add_body(struct maker *maker)
{
    mlff_status status = MLFF_OK;
    const orb_options *o = maker->options;
    const bool bessel = strcmp(maker->variant->edge_input, "bessel_harmonics") == 0;
    const int F = o->n_features, H = o->n_hidden, n_radial = maker->variant->n_radial;
    const int node[4] = {F, H, H, F}, edge[4] = {bessel ? n_radial * ORB_HARMONICS : n_radial + 3, H, H, F},
              decoder[4] = {F, H, H, 3};
    MLFF_TRY(add_uniform(maker, "model.atom_emb.embeddings.weight", 2, (int64_t[]){N_EMBEDDED, F}, sqrt(3.0)));
    if (bessel) MLFF_TRY(add_bessel(maker));
    if (o->conditioned) {
        MLFF_TRY(add_frequencies(maker, "model.conditioner.charge_embedding.W"));
        MLFF_TRY(add_frequencies(maker, "model.conditioner.spin_embedding.W"));
    }
    MLFF_TRY(add_mlp(maker, 3, node, "model._encoder._node_fn", true));
    MLFF_TRY(add_mlp(maker, 3, edge, "model._encoder._edge_fn", true));
    for (int t = 0; t < o->n_layers; t++) MLFF_TRY(add_layer(maker, t));
    MLFF_TRY(add_mlp(maker, 3, decoder, "model._decoder.node_fn", false)); // not read; orb-models' loader requires it
done:
    return status;
}

static mlff_status set_metadata(struct maker *maker)
{
    mlff_status status = MLFF_OK;
    const orb_options *o = maker->options;
    const variant *v = maker->variant;
    model_weights *weights = maker->weights;
    MLFF_TRY(model_untrained_set(weights, v->name, o->seed));
    MLFF_TRY(weights_set(weights, "n_features", "%d", o->n_features));
    MLFF_TRY(weights_set(weights, "n_hidden", "%d", o->n_hidden));
    MLFF_TRY(weights_set(weights, "n_layers", "%d", o->n_layers));
    MLFF_TRY(weights_set(weights, "n_head", "%d", o->n_head));
    MLFF_TRY(weights_set(weights, "n_radial", "%d", v->n_radial));
    MLFF_TRY(weights_set(weights, "n_bins", "%d", v->n_bins));
    MLFF_TRY(weights_set(weights, "max_neighbors", "%d", o->max_neighbors));
    MLFF_TRY(weights_set(weights, "cutoff", "%.17g", cutoff));
    MLFF_TRY(weights_set(weights, "activation", "%s", v->activation));
    MLFF_TRY(weights_set(weights, "norm", "%s", v->norm));
    MLFF_TRY(weights_set(weights, "norm_epsilon", "%.9g",
                         strcmp(v->norm, "rms_norm") == 0 ? (double)FLT_EPSILON : 1e-5)); // PyTorch's, of float32
    MLFF_TRY(weights_set(weights, "edge_input", "%s", v->edge_input));
    if (strcmp(v->edge_input, "gaussian_unit") == 0) MLFF_TRY(weights_set(weights, "gaussian_span", "%.17g", gaussian_span));
    MLFF_TRY(weights_set(weights, "repulsion", "%s", v->repulsion));
    MLFF_TRY(weights_set(weights, "forces", "%s", v->forces));
    MLFF_TRY(weights_set(weights, "direct_stress", "%s", o->conditioned ? "none" : v->direct_stress));
    MLFF_TRY(weights_set(weights, "conditioned", "%s", o->conditioned ? "true" : "false"));
    MLFF_TRY(model_elements_set_within(weights, o->elements, N_REFERENCE - 1, "an Orb model"));
done:
    return status;
}

static mlff_status create(const variant *v, const orb_options *options, model_weights *weights_out)
{
    mlff_status status = MLFF_OK;
    model_weights weights = {0};
    struct maker maker = {.weights = &weights, .options = options, .variant = v};
    if (options->conditioned && options->n_features % 4 != 0)
        MLFF_FAIL(MLFF_ERR_USAGE, "n_features is %d; with conditioned=true it is a multiple of 4", options->n_features);
    MLFF_TRY(set_metadata(&maker));
    MLFF_TRY(add_body(&maker));
    MLFF_TRY(add_heads(&maker));
    *weights_out = weights;
    weights = (model_weights){0};
done:
    weights_free(&weights);
    return status;
}

mlff_status orb_v2_new(const void *options, model_weights *weights_out)
{
    return create(&v2, options, weights_out);
}

mlff_status orb_v3_direct_new(const void *options, model_weights *weights_out)
{
    return create(&v3_direct, options, weights_out);
}

mlff_status orb_v3_conservative_new(const void *options, model_weights *weights_out)
{
    return create(&v3_conservative, options, weights_out);
}
