// SPDX-License-Identifier: MIT
// orb_model.c: Orb as rows of the registry: checks a file's tensors and metadata and lays out the parameters.
// Tensors keep the names of orb-models' state_dict; symbols as in orb_model.h.
#include "orb_model.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "atoms/elements/covalent.h"
#include "model/weights/tensors.h"
#include "orb_cpu.h"

enum { NAME_BYTES = 128 };

// What model->parameters points to.
typedef struct orb_model {
    orb_parameters parameters; // first: the implementations see only this
    model_taken taken;
    bool direct_stress, two_normalizers; // v3 scales diagonal and off-diagonal stress apart
} orb_model;

static mlff_status take(mlff_model *model, const float **data_out, int n_dimensions, const int64_t *shape, const char *name)
{
    orb_model *orb = model->parameters;
    return model_take(model, &orb->taken, false, data_out, n_dimensions, shape, name);
}

static mlff_status take_linear(mlff_model *model, int n_in, int n_out, const char *prefix, orb_linear *linear)
{
    mlff_status status = MLFF_OK;
    char name[NAME_BYTES];
    linear->n_in = n_in;
    linear->n_out = n_out;
    snprintf(name, sizeof name, "%.110s.weight", prefix);
    MLFF_TRY(take(model, &linear->weight, 2, (int64_t[]){n_out, n_in}, name));
    snprintf(name, sizeof name, "%.110s.bias", prefix);
    MLFF_TRY(take(model, &linear->bias, 1, (int64_t[]){n_out}, name));
done:
    return status;
}

// prefix.mlp.NN-0 .. NN-2 and prefix.layer_norm.
static mlff_status take_mlp(mlff_model *model, int n_in, const char *prefix, orb_mlp *mlp)
{
    mlff_status status = MLFF_OK;
    const orb_parameters *p = model->parameters;
    const int width[4] = {n_in, p->n_hidden, p->n_hidden, p->n_features};
    char name[NAME_BYTES];
    for (int k = 0; k < 3; k++) {
        snprintf(name, sizeof name, "%.96s.mlp.NN-%d", prefix, k);
        MLFF_TRY(take_linear(model, width[k], width[k + 1], name, &mlp->linear[k]));
    }
    snprintf(name, sizeof name, "%.96s.layer_norm.weight", prefix);
    MLFF_TRY(take(model, &mlp->norm_weight, 1, (int64_t[]){p->n_features}, name));
    if (p->norm == ORB_RMS_NORM) return MLFF_OK;
    snprintf(name, sizeof name, "%.96s.layer_norm.bias", prefix);
    MLFF_TRY(take(model, &mlp->norm_bias, 1, (int64_t[]){p->n_features}, name));
done:
    return status;
}

static mlff_status take_head(mlff_model *model, int n_out, const char *name, orb_head *head)
{
    mlff_status status = MLFF_OK;
    const orb_parameters *p = model->parameters;
    char prefix[NAME_BYTES];
    snprintf(prefix, sizeof prefix, "heads.%.64s.mlp.NN-0", name);
    MLFF_TRY(take_linear(model, p->n_features, p->n_head, prefix, &head->linear[0]));
    snprintf(prefix, sizeof prefix, "heads.%.64s.mlp.NN-1", name);
    MLFF_TRY(take_linear(model, p->n_head, n_out, prefix, &head->linear[1]));
done:
    return status;
}

// The standard deviation and the mean that undo a head's normalization.
static mlff_status take_normalizer(mlff_model *model, const char *prefix, double *scale, double *mean)
{
    mlff_status status = MLFF_OK;
    orb_model *orb = model->parameters;
    char name[NAME_BYTES];
    double variance = 0;
    snprintf(name, sizeof name, "%.96s.bn.running_mean", prefix);
    MLFF_TRY(model_take_doubles(model, &orb->taken, mean, 1, name));
    snprintf(name, sizeof name, "%.96s.bn.running_var", prefix);
    MLFF_TRY(model_take_doubles(model, &orb->taken, &variance, 1, name));
    if (!(variance > 0)) MLFF_FAIL(MLFF_ERR_VALUE, "%s: tensor %s is %g; a variance is above 0", model->name, name, variance);
    *scale = sqrt(variance);
done:
    return status;
}

// Tensors that orb-models saves and that no result depends on: the decoder, and normalizers of training.
static void skip_unread(mlff_model *model)
{
    orb_model *orb = model->parameters;
    static const char *const prefixes[] = {"model._decoder.", "grad_forces_normalizer.", "grad_stress_normalizer."};
    for (size_t k = 0; k < model->file.n_tensors; k++)
        for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
            if (strncmp(model->file.tensors[k].name, prefixes[i], strlen(prefixes[i])) == 0) orb->taken.used[k] = true;
}

static mlff_status read_settings(mlff_model *model)
{
    static const char *const activations[] = {"shifted_softplus", "silu", NULL}, *const norms[] = {"layer_norm", "rms_norm",
                                                                                                   NULL};
    static const char *const inputs[] = {"gaussian_unit", "bessel_harmonics", NULL};
    static const char *const repulsions[] = {"none", "zbl_sum", "zbl_mean", NULL}, *const truth[] = {"false", "true", NULL};
    static const char *const forces[] = {"direct", "conservative", NULL};
    static const char *const stresses[] = {"none", "one_scale", "two_scales", NULL};
    mlff_status status = MLFF_OK;
    orb_model *orb = model->parameters;
    orb_parameters *p = &orb->parameters;
    int choice = 0;

    MLFF_TRY(model_metadata_count(model, "n_features", 4, ORB_MAX_FEATURES, &p->n_features));
    MLFF_TRY(model_metadata_count(model, "n_hidden", 1, ORB_MAX_HIDDEN, &p->n_hidden));
    MLFF_TRY(model_metadata_count(model, "n_layers", 1, ORB_MAX_LAYERS, &p->n_layers));
    MLFF_TRY(model_metadata_count(model, "n_head", 1, ORB_MAX_FEATURES, &p->n_head));
    MLFF_TRY(model_metadata_count(model, "n_radial", 1, ORB_MAX_RADIAL, &p->n_radial));
    MLFF_TRY(model_metadata_count(model, "n_bins", 0, ORB_MAX_BINS, &p->n_bins));
    MLFF_TRY(model_metadata_count(model, "max_neighbors", 1, ORB_MAX_NEIGHBORS, &p->max_neighbors));
    MLFF_TRY(model_metadata_number(model, "cutoff", 0.1, 100, &p->cutoff));
    MLFF_TRY(model_metadata_choice(model, "activation", activations, &choice));
    p->activation = (enum orb_activation)choice;
    MLFF_TRY(model_metadata_choice(model, "norm", norms, &choice));
    p->norm = (enum orb_norm)choice;
    MLFF_TRY(model_metadata_choice(model, "edge_input", inputs, &choice));
    p->edge_input = (enum orb_edge_input)choice;
    MLFF_TRY(model_metadata_number(model, "norm_epsilon", 0, 1, &p->norm_epsilon));
    MLFF_TRY(model_metadata_choice(model, "repulsion", repulsions, &choice));
    p->repulsion = (enum orb_repulsion)choice;
    MLFF_TRY(model_metadata_choice(model, "forces", forces, &choice));
    p->conservative = choice == 1;
    MLFF_TRY(model_metadata_choice(model, "direct_stress", stresses, &choice));
    orb->direct_stress = choice > 0;
    orb->two_normalizers = choice == 2;
    MLFF_TRY(model_metadata_choice(model, "conditioned", truth, &choice));
    p->conditioned = choice == 1;
    if (p->conditioned && p->n_features % 4 != 0)
        MLFF_FAIL(MLFF_ERR_FORMAT, "%s: n_features is %d; with conditioning it is a multiple of 4", model->name, p->n_features);
    if (p->conservative && p->edge_input != ORB_BESSEL_HARMONICS)
        MLFF_FAIL(MLFF_ERR_UNSUPPORTED, "%s: conservative forces are known for the edge inputs bessel_harmonics only",
                  model->name);
    if (p->conservative && orb->direct_stress)
        MLFF_FAIL(MLFF_ERR_FORMAT, "%s: it has a direct stress, yet its forces are the derivative of the energy", model->name);
    p->n_edge_inputs = p->edge_input == ORB_GAUSSIAN_UNIT ? p->n_radial + 3 : p->n_radial * ORB_HARMONICS;
done:
    return status;
}

static mlff_status take_radial(mlff_model *model)
{
    mlff_status status = MLFF_OK;
    orb_model *orb = model->parameters;
    orb_parameters *p = &orb->parameters;
    double span = 0, r_max = 0;
    if (p->edge_input == ORB_GAUSSIAN_UNIT) {
        MLFF_TRY(model_metadata_number(model, "gaussian_span", 0.1, 1000, &span));
        for (int k = 0; k < p->n_radial; k++) p->gaussian_center[k] = span / p->n_radial * k;
        return MLFF_OK;
    }
    const model_tensor *tensor = weights_find(&model->file, "model.rbf_transform.r_max");
    MLFF_TRY(model_take_doubles(model, &orb->taken, p->bessel_frequency, p->n_radial, "model.rbf_transform.bessel_weights"));
    MLFF_TRY(model_take_doubles(model, &orb->taken, &p->bessel_prefactor, 1, "model.rbf_transform.prefactor"));
    if (tensor) MLFF_TRY(model_take_doubles(model, &orb->taken, &r_max, 1, "model.rbf_transform.r_max"));
    if (tensor && fabs(r_max - p->cutoff) > 1e-6 * p->cutoff)
        MLFF_FAIL(MLFF_ERR_FORMAT, "%s: metadata cutoff is %g, tensor model.rbf_transform.r_max %g", model->name, p->cutoff,
                  r_max);
done:
    return status;
}

static mlff_status take_layer(mlff_model *model, int t)
{
    mlff_status status = MLFF_OK;
    orb_parameters *p = model->parameters;
    orb_layer *layer = &p->layer[t];
    const int F = p->n_features;
    char prefix[NAME_BYTES];
    snprintf(prefix, sizeof prefix, "model.gnn_stacks.%d._edge_mlp", t);
    MLFF_TRY(take_mlp(model, 3 * F, prefix, &layer->edge));
    snprintf(prefix, sizeof prefix, "model.gnn_stacks.%d._node_mlp", t);
    MLFF_TRY(take_mlp(model, 3 * F, prefix, &layer->node));
    snprintf(prefix, sizeof prefix, "model.gnn_stacks.%d._send_attn", t);
    MLFF_TRY(take_linear(model, F, 1, prefix, &layer->send));
    snprintf(prefix, sizeof prefix, "model.gnn_stacks.%d._receive_attn", t);
    MLFF_TRY(take_linear(model, F, 1, prefix, &layer->receive));
    snprintf(prefix, sizeof prefix, "model.gnn_stacks.%d._cond_node_proj", t);
    if (p->conditioned) MLFF_TRY(take_linear(model, F, F, prefix, &layer->condition));
done:
    return status;
}

static mlff_status take_heads(mlff_model *model)
{
    mlff_status status = MLFF_OK;
    orb_model *orb = model->parameters;
    orb_parameters *p = &orb->parameters;
    MLFF_TRY(take_head(model, 1, "energy", &p->energy));
    MLFF_TRY(take_normalizer(model, "heads.energy.normalizer", &p->energy_scale, &p->energy_mean));
    if (!p->conservative) {
        MLFF_TRY(take_head(model, 3, "forces", &p->forces));
        MLFF_TRY(take_normalizer(model, "heads.forces.normalizer", &p->force_scale, &p->force_mean));
    }
    if (orb->direct_stress) MLFF_TRY(take_head(model, 6, "stress", &p->stress));
    for (int k = 0; orb->direct_stress && k < 6; k++) {
        const char *name = !orb->two_normalizers ? "heads.stress.normalizer"
                           : k < 3               ? "heads.stress.diag_normalizer"
                                                 : "heads.stress.offdiag_normalizer";
        MLFF_TRY(take_normalizer(model, name, &p->stress_scale[k], &p->stress_mean[k]));
    }
    if (p->n_bins > 0) {
        static const char name[] = "heads.confidence.bin_edges";
        MLFF_TRY(take_head(model, p->n_bins, "confidence", &p->confidence));
        MLFF_TRY(take(model, &p->confidence_edges, 1, (int64_t[]){p->n_bins + 1}, name));
        for (int k = 0; k < p->n_bins; k++)
            if (!(p->confidence_edges[0] >= 0 && p->confidence_edges[k + 1] > p->confidence_edges[k]))
                MLFF_FAIL(MLFF_ERR_FORMAT, "%s: tensor %s: its numbers are errors of forces, eV/Å; expected ascending ones",
                          model->name, name);
    }
done:
    return status;
}

// Energies of single atoms, eV: column Z of a row over the elements.
static mlff_status take_offsets(mlff_model *model)
{
    static const char name[] = "heads.energy.reference.linear.weight";
    mlff_status status = MLFF_OK;
    orb_model *orb = model->parameters;
    const orb_parameters *p = &orb->parameters;
    const model_tensor *tensor = weights_find(&model->file, name);
    if (!tensor) return mlff_fail(MLFF_ERR_FORMAT, "%s: tensor %s is missing", model->name, name);
    if (tensor->n_elements < 2 || tensor->n_elements > 1000)
        return mlff_fail(MLFF_ERR_FORMAT, "%s: tensor %s has %" PRId64 " element%s; expected one for each atomic number",
                         model->name, name, tensor->n_elements, base_plural(tensor->n_elements));
    orb->taken.used[tensor - model->file.tensors] = true;
    const int n = tensor->n_elements < p->n_species ? (int)tensor->n_elements : p->n_species;
    if (model->n_elements > 0 && model->elements[model->n_elements - 1] >= n)
        MLFF_FAIL(MLFF_ERR_FORMAT, "%s: it claims element %d, its embedding and its reference energies end at %d", model->name,
                  model->elements[model->n_elements - 1], n - 1);
    for (int z = 1; z < n && z <= MLFF_MAX_ATOMIC_NUMBER; z++) {
        model->offset[z] = tensor->is_double ? ((double *)tensor->data)[z] : (double)((float *)tensor->data)[z];
        if (model->n_elements == 0) model->known[z] = true;
    }
done:
    return status;
}

// orb-models takes element Z + 1 for element Z, and 2 Å where the table of radii ends (ASE).
static void fill_repulsion(orb_parameters *p)
{
    for (int z = 1; z <= MLFF_MAX_ATOMIC_NUMBER; z++)
        p->repulsion_radius[z] = z + 1 <= 96 ? round(100.0 * covalent_radius(z + 1)) / 100.0 : 2.0; // the table is in 0.01 Å
}

static mlff_status take_tensors(mlff_model *model)
{
    mlff_status status = MLFF_OK;
    orb_parameters *p = model->parameters;
    const model_tensor *embedding = weights_find(&model->file, "model.atom_emb.embeddings.weight");
    const int64_t n_species = embedding && embedding->n_dimensions == 2 ? embedding->shape[0] : 119;
    const int64_t quarter = p->n_features / 4;
    if (n_species < 2 || n_species > 1000)
        MLFF_FAIL(MLFF_ERR_FORMAT, "%s: its embedding has %" PRId64 " row%s; expected one for each atomic number", model->name,
                  n_species, base_plural(n_species));
    p->n_species = (int)n_species;
    MLFF_TRY(take(model, &p->embedding, 2, (int64_t[]){n_species, p->n_features}, "model.atom_emb.embeddings.weight"));
    MLFF_TRY(take_radial(model));
    MLFF_TRY(take_mlp(model, p->n_features, "model._encoder._node_fn", &p->node_encoder));
    MLFF_TRY(take_mlp(model, p->n_edge_inputs, "model._encoder._edge_fn", &p->edge_encoder));
    for (int t = 0; t < p->n_layers; t++) MLFF_TRY(take_layer(model, t));
    if (p->conditioned) {
        MLFF_TRY(take(model, &p->charge_frequency, 1, &quarter, "model.conditioner.charge_embedding.W"));
        MLFF_TRY(take(model, &p->spin_frequency, 1, &quarter, "model.conditioner.spin_embedding.W"));
    }
    MLFF_TRY(take_heads(model));
    MLFF_TRY(take_offsets(model));
    skip_unread(model);
done:
    return status;
}

static bool is_constant(const char *name)
{
    return strstr(name, ".bn.") || strstr(name, "bin_edges") || strstr(name, "rbf_transform.");
}

static mlff_status describe(mlff_model *model)
{
    const orb_parameters *p = model->parameters;
    base_text text = {0};
    base_text_add(&text, "%s, %d layer%s, %d features, hidden %d, %d neighbor%s within %g Å, %s forces%s%s",
                  model->architecture->title, p->n_layers, base_plural(p->n_layers), p->n_features, p->n_hidden, p->max_neighbors,
                  base_plural(p->max_neighbors), p->cutoff, p->conservative ? "conservative" : "direct",
                  p->conditioned ? ", charge and spin" : "", model->trained ? "" : ", untrained");
    model->description = text.text; // also on failure: destroyed with the model
    return text.status;
}

static mlff_status orb_load(mlff_model *model)
{
    mlff_status status = MLFF_OK;
    orb_model *orb = base_alloc(1, sizeof *orb, "a model");
    if (!orb) return MLFF_ERR_MEMORY;
    model->parameters = orb;
    MLFF_TRY(model_taken_create(model, &orb->taken));
    if (model->energy_unit != 1.0 || model->length_unit != 1.0)
        MLFF_FAIL(MLFF_ERR_FORMAT, "%s: its units are not eV and Å", model->name);
    MLFF_TRY(read_settings(model));
    MLFF_TRY(take_tensors(model));
    MLFF_TRY(model_taken_all(model, &orb->taken));
    fill_repulsion(&orb->parameters);
    model->cutoff = orb->parameters.cutoff;
    model->n_layers = orb->parameters.n_layers;
    for (size_t k = 0; k < model->file.n_tensors; k++)
        if (!is_constant(model->file.tensors[k].name)) model->n_parameters += model->file.tensors[k].n_elements;
    model->outputs = MODEL_SYSTEM_ENERGY | (orb->parameters.conservative ? MODEL_PAIR_GRADIENT : MODEL_ATOM_FORCE) |
                     (orb->direct_stress ? MODEL_STRESS : 0) | (orb->parameters.n_bins > 0 ? MODEL_FORCE_ERROR : 0);
    MLFF_TRY(describe(model));
done:
    return status;
}

static void orb_destroy(mlff_model *model)
{
    orb_model *orb = model->parameters;
    if (!orb) return;
    model_taken_free(&orb->taken);
    base_free(orb);
    model->parameters = NULL;
}

static mlff_status orb_create_cpu(const mlff_model *model, const cpu_options *options, model_backend **backend_out)
{
    return options->precision == MLFF_FLOAT64 ? orb_reference_create(model, options, backend_out)
                                              : orb_cpu_create(model, options, backend_out);
}

static const char v2_paper[] = "M. Neumann et al., Orb: A Fast, Scalable Neural Network Potential, 2024, arXiv:2410.22570";
static const char v3_paper[] = "B. Rhodes et al., Orb-v3: atomistic simulation at scale, 2025, arXiv:2504.06231";

const model_architecture orb_v2_architecture = {.name = "orb-v2",
                                                .title = "Orb-v2",
                                                .reference = v2_paper,
                                                .load = orb_load,
                                                .create_cpu = orb_create_cpu,
                                                .cpu_bfloat16 = true,
                                                .parameters_bytes = sizeof(orb_parameters),
                                                .destroy = orb_destroy,
                                                .settings = orb_v2_settings,
                                                .options_bytes = sizeof(orb_options),
                                                .create = orb_v2_new,
                                                .stages = orb_stage_descriptions,
                                                .published = orb_v2_published};

const model_architecture orb_v3_direct_architecture = {.name = "orb-v3-direct",
                                                       .title = "Orb-v3 direct",
                                                       .reference = v3_paper,
                                                       .load = orb_load,
                                                       .create_cpu = orb_create_cpu,
                                                       .cpu_bfloat16 = true,
                                                       .parameters_bytes = sizeof(orb_parameters),
                                                       .destroy = orb_destroy,
                                                       .settings = orb_v3_direct_settings,
                                                       .options_bytes = sizeof(orb_options),
                                                       .create = orb_v3_direct_new,
                                                       .stages = orb_stage_descriptions,
                                                       .published = orb_v3_direct_published};

const model_architecture orb_v3_conservative_architecture = {.name = "orb-v3-conservative",
                                                             .title = "Orb-v3 conservative",
                                                             .reference = v3_paper,
                                                             .load = orb_load,
                                                             .create_cpu = orb_create_cpu,
                                                             .cpu_bfloat16 = true,
                                                             .parameters_bytes = sizeof(orb_parameters),
                                                             .destroy = orb_destroy,
                                                             .settings = orb_v3_conservative_settings,
                                                             .options_bytes = sizeof(orb_options),
                                                             .create = orb_v3_conservative_new,
                                                             .stages = orb_stage_descriptions,
                                                             .published = orb_v3_conservative_published};
