// SPDX-License-Identifier: MIT
// orb_checkpoint.c: a checkpoint of orb-models, a state_dict saved by torch.save, as weights and metadata.
//
// Files of 2024 have older names: node_head, graph_head and stress_head are today's heads.forces, heads.energy and heads.stress,
// a normaliser is a normalizer, and a base model that was wrapped once more has the prefix model.model.
#include <float.h>
#include <inttypes.h>
#include <string.h>

#include "model/orb/orb_model.h"
#include "orb_import.h"

enum { NAME_BYTES = 256 };

typedef struct reader {
    const char *path;
    torch_file *file;
    model_weights weights;
    bool wrapped; // keys of the base model begin with model.model.
} reader;

static bool has_prefix(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static bool has_suffix(const char *text, const char *suffix)
{
    const size_t n = strlen(text), m = strlen(suffix);
    return n >= m && strcmp(text + n - m, suffix) == 0;
}

bool orb_checkpoint_matches(const torch_file *file)
{
    const pickle_value *root = torch_file_root(file);
    for (uint32_t i = 0; root->kind == PICKLE_DICT && i + 1 < root->n; i += 2)
        if (strstr(pickle_text(root->items[i], ""), "gnn_stacks.")) return true;
    return false;
}

// Nothing but tensors: Python would run whatever else the pickle names.
static mlff_status check_globals(const reader *r)
{
    const char *name;
    for (size_t i = 0; (name = torch_file_global(r->file, i)); i++)
        if (!has_prefix(name, "torch.") && strcmp(name, "collections.OrderedDict") != 0)
            return mlff_fail(
                MLFF_ERR_UNSUPPORTED,
                "%s: its pickle names %s, which is not of PyTorch; do not open this file with Python unless you trust "
                "its author",
                r->path, name);
    return MLFF_OK;
}

// Today's name of a key; false: the key is not needed.
static bool name_of(const reader *r, const char *key, char name[NAME_BYTES])
{
    static const char *const aliases[][2] = {{"node_head.", "heads.forces."},
                                             {"graph_head.", "heads.energy."},
                                             {"stress_head.", "heads.stress."},
                                             {"model.model.", "model."}};
    const char *rest = key, *prefix = "";
    if (has_suffix(key, ".num_batches_tracked")) return false;
    if (r->wrapped && has_prefix(key, "model.") && !has_prefix(key, "model.model.")) return false; // parts of its training
    for (size_t k = 0; k < sizeof aliases / sizeof *aliases; k++)
        if (has_prefix(key, aliases[k][0])) {
            prefix = aliases[k][1];
            rest = key + strlen(aliases[k][0]);
            break;
        }
    snprintf(name, NAME_BYTES, "%s%.200s", prefix, rest);
    char *old = strstr(name, "normaliser");
    if (old) old[7] = 'z';
    return true;
}

static mlff_status read_tensors(reader *r)
{
    mlff_status status = MLFF_OK;
    const pickle_value *root = torch_file_root(r->file);
    char name[NAME_BYTES];
    if (root->kind != PICKLE_DICT) MLFF_FAIL(MLFF_ERR_FORMAT, "%s: holds %s, expected a state_dict", r->path, pickle_class(root));
    for (uint32_t i = 0; i + 1 < root->n; i += 2) r->wrapped |= has_prefix(pickle_text(root->items[i], ""), "model.model.");
    for (uint32_t i = 0; i + 1 < root->n; i += 2) {
        const char *key = pickle_text(root->items[i], NULL);
        if (!key)
            MLFF_FAIL(MLFF_ERR_FORMAT, "%s: a key of its state_dict is %s; expected a name", r->path,
                      pickle_class(root->items[i]));
        if (strlen(key) > 200) MLFF_FAIL(MLFF_ERR_FORMAT, "%s: key \"%.40s…\" is longer than any of an Orb model", r->path, key);
        if (!name_of(r, key, name)) continue;
        if (weights_find(&r->weights, name)) MLFF_FAIL(MLFF_ERR_FORMAT, "%s: two of its keys name tensor %s", r->path, name);
        MLFF_TRY(torch_file_add_tensor(r->file, root->items[i + 1], name, &r->weights));
        model_tensor *tensor = &r->weights.tensors[r->weights.n_tensors - 1];
        if (tensor->n_elements == 1 && (strstr(name, ".bn.") || strstr(name, "rbf_transform."))) {
            tensor->n_dimensions = 1; // a scalar's shape depends on the version that wrote it
            tensor->shape[0] = 1;
        }
    }
done:
    return status;
}

// Rows (0) or columns (1) of a matrix.
static mlff_status size_of(const reader *r, const char *name, int dimension, int most, int *size_out)
{
    const model_tensor *tensor = weights_find(&r->weights, name);
    if (!tensor) return mlff_fail(MLFF_ERR_FORMAT, "%s: tensor %s is missing: not an Orb-v2 or Orb-v3 model", r->path, name);
    if (tensor->n_dimensions <= dimension || tensor->shape[dimension] > most)
        return mlff_fail(MLFF_ERR_FORMAT, "%s: tensor %s does not have the shape of an Orb model's", r->path, name);
    *size_out = (int)tensor->shape[dimension];
    return MLFF_OK;
}

static int count_layers(const reader *r)
{
    char prefix[NAME_BYTES];
    for (int t = 0;; t++) {
        bool found = false;
        snprintf(prefix, sizeof prefix, "model.gnn_stacks.%d.", t);
        for (size_t k = 0; k < r->weights.n_tensors && !found; k++) found = has_prefix(r->weights.tensors[k].name, prefix);
        if (!found) return t;
    }
}

// A network of its own for the dispersion, which is added to a model without it; only its file's name says so.
static bool is_dispersion(const char *file_name)
{
    return has_prefix(file_name, "separate-d3") || has_prefix(file_name, "separate-d4");
}

// 20, or 120 for the models named inf, OMol's and those of dispersion: orb-models writes the cap into the name of a model alone.
static int max_neighbors(const reader *r, const char *file_name, bool v3, bool conditioned)
{
    if (!v3 || strstr(file_name, "-20-")) return 20;
    if (is_dispersion(file_name))
        base_warn(
            "%s: computes a dispersion correction alone: its energies and forces are to be added to those of a model without "
            "dispersion",
            r->path);
    else if (!conditioned && !strstr(file_name, "-inf-"))
        base_warn("%s: how many neighbors it was trained with is not in the file, nor -20- or -inf- in its name; 120 are taken; "
                  "if it was trained with 20, rename the file to NAME-20-.ckpt",
                  r->path);
    return 120;
}

typedef struct shape {
    int n_features, n_hidden, n_layers, n_head, n_inputs, n_bins;
    bool v3, conservative, stress, two_scales, conditioned;
} shape;

enum { V2_RADIAL = 20 };

// What distinguishes these models from Orb-v1 and from others of orb-models.
static mlff_status check_shape(const reader *r, const shape *s)
{
    if (!s->v3 && s->conservative)
        return mlff_fail(MLFF_ERR_UNSUPPORTED,
                         "%s: has neither a force head nor Bessel functions: neither an Orb-v2 nor an Orb-v3", r->path);
    if (!s->v3 && s->n_inputs != V2_RADIAL + 3)
        return mlff_fail(MLFF_ERR_UNSUPPORTED, "%s: its edges have %d inputs%s; Orb-v2 has %d, and Orb-v3 Bessel functions",
                         r->path, s->n_inputs, s->n_inputs == 53 ? " (an Orb-v1, which orb-models has withdrawn)" : "",
                         V2_RADIAL + 3);
    if (s->v3 && (s->n_inputs < ORB_HARMONICS || s->n_inputs % ORB_HARMONICS != 0))
        return mlff_fail(MLFF_ERR_UNSUPPORTED,
                         "%s: its edges have %d inputs; Orb-v3 has a multiple of %d, its spherical harmonics", r->path,
                         s->n_inputs, ORB_HARMONICS);
    if (s->conservative && s->stress)
        return mlff_fail(MLFF_ERR_FORMAT,
                         "%s: has a stress head and no force head: tensor heads.forces.mlp.NN-0.weight is missing", r->path);
    return MLFF_OK;
}

static mlff_status find_shape(const reader *r, shape *s)
{
    mlff_status status = MLFF_OK;
    const model_weights *w = &r->weights;
    s->v3 = weights_find(w, "model.rbf_transform.bessel_weights") != NULL;
    s->conservative =
        weights_find(w, "grad_forces_normalizer.bn.running_mean") || !weights_find(w, "heads.forces.mlp.NN-0.weight");
    s->two_scales = weights_find(w, "heads.stress.diag_normalizer.bn.running_mean") != NULL;
    s->stress = weights_find(w, "heads.stress.mlp.NN-0.weight") != NULL;
    s->conditioned = weights_find(w, "model.conditioner.charge_embedding.W") != NULL;
    s->n_layers = count_layers(r);
    MLFF_TRY(size_of(r, "model.atom_emb.embeddings.weight", 1, ORB_MAX_FEATURES, &s->n_features));
    MLFF_TRY(size_of(r, "model._encoder._edge_fn.mlp.NN-0.weight", 0, ORB_MAX_HIDDEN, &s->n_hidden));
    MLFF_TRY(size_of(r, "model._encoder._edge_fn.mlp.NN-0.weight", 1, ORB_MAX_RADIAL * ORB_HARMONICS, &s->n_inputs));
    MLFF_TRY(size_of(r, "heads.energy.mlp.NN-0.weight", 0, ORB_MAX_FEATURES, &s->n_head));
    if (weights_find(w, "heads.confidence.mlp.NN-1.weight"))
        MLFF_TRY(size_of(r, "heads.confidence.mlp.NN-1.weight", 0, ORB_MAX_BINS, &s->n_bins));
    MLFF_TRY(check_shape(r, s));
done:
    return status;
}

static mlff_status set_metadata(reader *r, const shape *s, const mlff_import_options *options)
{
    mlff_status status = MLFF_OK;
    const char *slash = strrchr(r->path, '/'), *file_name = slash ? slash + 1 : r->path;
    model_weights *w = &r->weights;
    MLFF_TRY(weights_set(w, "format", "mlff"));
    MLFF_TRY(weights_set(w, "architecture", "%s", !s->v3 ? "orb-v2" : s->conservative ? "orb-v3-conservative" : "orb-v3-direct"));
    MLFF_TRY(weights_set(w, "n_features", "%d", s->n_features));
    MLFF_TRY(weights_set(w, "n_hidden", "%d", s->n_hidden));
    MLFF_TRY(weights_set(w, "n_layers", "%d", s->n_layers));
    MLFF_TRY(weights_set(w, "n_head", "%d", s->n_head));
    MLFF_TRY(weights_set(w, "n_radial", "%d", s->v3 ? s->n_inputs / ORB_HARMONICS : s->n_inputs - 3));
    MLFF_TRY(weights_set(w, "n_bins", "%d", s->n_bins));
    MLFF_TRY(weights_set(w, "max_neighbors", "%d", max_neighbors(r, file_name, s->v3, s->conditioned)));
    MLFF_TRY(weights_set(w, "cutoff", "6"));
    MLFF_TRY(weights_set(w, "activation", "%s", s->v3 ? "silu" : "shifted_softplus"));
    MLFF_TRY(weights_set(w, "norm", "%s", s->v3 ? "rms_norm" : "layer_norm"));
    MLFF_TRY(weights_set(w, "norm_epsilon", "%.9g", s->v3 ? (double)FLT_EPSILON : 1e-5)); // PyTorch's, of float32
    MLFF_TRY(weights_set(w, "edge_input", "%s", s->v3 ? "bessel_harmonics" : "gaussian_unit"));
    if (!s->v3) MLFF_TRY(weights_set(w, "gaussian_span", "10"));
    MLFF_TRY(weights_set(w, "repulsion", "%s", !s->v3 ? "none" : s->conservative ? "zbl_mean" : "zbl_sum"));
    MLFF_TRY(weights_set(w, "forces", "%s", s->conservative ? "conservative" : "direct"));
    MLFF_TRY(weights_set(w, "direct_stress", "%s", !s->stress ? "none" : s->two_scales ? "two_scales" : "one_scale"));
    MLFF_TRY(weights_set(w, "conditioned", "%s", s->conditioned ? "true" : "false"));
    MLFF_TRY(weights_set(w, "energy_unit", "eV"));
    MLFF_TRY(weights_set(w, "energy_unit_ev", "1"));
    MLFF_TRY(weights_set(w, "length_unit", "Ang"));
    MLFF_TRY(weights_set(w, "length_unit_angstrom", "1"));
    MLFF_TRY(model_elements_set(w, options->elements));
    MLFF_TRY(weights_set(w, "trained", "true"));
    MLFF_TRY(weights_set(w, "source", "%s", weights_utf8_valid(file_name, strlen(file_name)) ? file_name : "unknown"));
    MLFF_TRY(weights_set(w, "source_format", "orb-models"));
done:
    return status;
}

mlff_status orb_checkpoint_read(torch_file *file, const char *path, const mlff_import_options *options,
                                model_weights *weights_out)
{
    mlff_status status = MLFF_OK;
    reader r = {.path = path, .file = file};
    shape s = {0};
    if (options->energy_unit && strcmp(options->energy_unit, "eV") != 0)
        return mlff_fail(MLFF_ERR_USAGE, "%s: an Orb model computes eV; leave the energy unit out", path);
    if (options->length_unit && strcmp(options->length_unit, "Ang") != 0)
        return mlff_fail(MLFF_ERR_USAGE, "%s: lengths of an Orb model are in Å; leave the length unit out", path);
    MLFF_TRY(check_globals(&r));
    MLFF_TRY(read_tensors(&r));
    MLFF_TRY(weights_check_finite(&r.weights, path));
    MLFF_TRY(find_shape(&r, &s));
    MLFF_TRY(set_metadata(&r, &s, options));
    *weights_out = r.weights;
    r.weights = (model_weights){0};
done:
    weights_free(&r.weights);
    return status;
}
