// SPDX-License-Identifier: MIT
// schnetpack.c: a SchNetPack `best_model` (a torch.save of the whole model: a zip with one pickle and one raw array
// for each storage) as weights and metadata. Every object whose class affects the result must be known here; others are
// refused by name, so that a different model is never read silently.
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "schnetpack.h"

enum { MAX_LIST = 64 }; // modules in a list

typedef struct reader {
    const char *path;
    torch_file *file;
    model_weights weights;
    const char *activation; // "silu"; NULL until the first was seen
    const char *output_key; // of the energy
    double scale;           // of ScaleProperty
    double mean;            // per atom
} reader;

// ---- objects

static const pickle_value *attribute(const pickle_value *object, const char *name)
{
    return pickle_get(pickle_state(object), name);
}

static const pickle_value *child(const pickle_value *module, const char *name)
{
    return pickle_get(attribute(module, "_modules"), name);
}

static mlff_status expect_class(const reader *r, const pickle_value *object, const char *where, const char *name)
{
    if (pickle_is(object, name)) return MLFF_OK;
    return mlff_fail(MLFF_ERR_UNSUPPORTED, "%s: its %s is %s; only %s can be imported", r->path, where, pickle_class(object),
                     name);
}

// A module may hold nothing but `members` (a list ended by NULL): an extra one would change the result without notice.
static mlff_status expect_members(const reader *r, const pickle_value *module, const char *where, const char *const *members)
{
    static const char *const groups[] = {"_parameters", "_buffers", "_modules"};
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
        const pickle_value *group = attribute(module, groups[g]);
        if (!group || group->kind != PICKLE_DICT)
            return mlff_fail(MLFF_ERR_FORMAT, "%s: its %s (%s) is not a PyTorch module", r->path, where, pickle_class(module));
        for (uint32_t i = 0; i + 1 < group->n; i += 2) {
            const pickle_value *key = group->items[i], *value = group->items[i + 1];
            bool known = value->kind == PICKLE_NONE;
            for (int m = 0; !known && members[m]; m++) known = key->kind == PICKLE_TEXT && strcmp(key->text, members[m]) == 0;
            if (!known)
                return mlff_fail(MLFF_ERR_UNSUPPORTED, "%s: its %s (%s) has a member \"%.80s\" (%s) that is not known here",
                                 r->path, where, pickle_class(module), key->kind == PICKLE_TEXT ? key->text : "",
                                 pickle_class(value));
        }
    }
    return MLFF_OK;
}

// The modules of a ModuleList or Sequential, in order.
static mlff_status list_modules(const reader *r, const pickle_value *list, const char *where,
                                const pickle_value *modules[MAX_LIST], int *n_out)
{
    if (!pickle_is(list, "torch.nn.modules.container.ModuleList") && !pickle_is(list, "torch.nn.modules.container.Sequential"))
        return mlff_fail(MLFF_ERR_UNSUPPORTED, "%s: its %s is %s; expected a ModuleList or Sequential", r->path, where,
                         pickle_class(list));
    const pickle_value *entries = attribute(list, "_modules");
    if (!entries || entries->kind != PICKLE_DICT || entries->n / 2 > MAX_LIST)
        return mlff_fail(MLFF_ERR_FORMAT, "%s: its %s holds no modules, or more than %d", r->path, where, MAX_LIST);
    *n_out = (int)(entries->n / 2);
    for (int i = 0; i < *n_out; i++) {
        char key[16];
        snprintf(key, sizeof key, "%d", i);
        if (!(modules[i] = pickle_get(entries, key)) || modules[i]->kind != PICKLE_OBJECT)
            return mlff_fail(MLFF_ERR_FORMAT, "%s: its %s lacks the module %d of %d", r->path, where, i, *n_out);
    }
    return MLFF_OK;
}

static mlff_status get_integer(const reader *r, const pickle_value *object, const char *where, const char *name,
                               int64_t *value_out)
{
    const pickle_value *value = attribute(object, name);
    if (!value || value->kind != PICKLE_INTEGER)
        return mlff_fail(MLFF_ERR_FORMAT, "%s: %s.%s is %s; expected an integer", r->path, where, name, pickle_class(value));
    *value_out = value->integer;
    return MLFF_OK;
}

static bool is_true(const pickle_value *object, const char *name, bool otherwise)
{
    const pickle_value *value = attribute(object, name);
    return value && value->kind == PICKLE_BOOL ? value->integer != 0 : otherwise;
}

// Parameter or buffer `member` of a module, under its state_dict name.
static mlff_status add_member(reader *r, const pickle_value *module, const char *where, const char *member)
{
    char name[256];
    const pickle_value *value = pickle_get(attribute(module, "_parameters"), member);
    if (!value) value = pickle_get(attribute(module, "_buffers"), member);
    snprintf(name, sizeof name, "%s.%s", where, member);
    return torch_file_add_tensor(r->file, value, name, &r->weights);
}

// The one number of a tensor that is not kept: a mean, a scale.
static mlff_status get_number(reader *r, const pickle_value *value, const char *name, double *number_out)
{
    mlff_status status = MLFF_OK;
    model_weights alone = {0};
    MLFF_TRY(torch_file_add_tensor(r->file, value, name, &alone));
    MLFF_TRY(weights_check_finite(&alone, r->path));
    const model_tensor *tensor = &alone.tensors[0];
    if (tensor->n_elements != 1)
        MLFF_FAIL(MLFF_ERR_FORMAT, "%s: %s has %" PRId64 " numbers; expected one", r->path, name, tensor->n_elements);
    *number_out = tensor->is_double ? *(const double *)tensor->data : (double)*(const float *)tensor->data;
done:
    weights_free(&alone);
    return status;
}

// ---- parts of the model

// An activation is a function by name, or a module. Identity is "none".
static mlff_status read_activation(const reader *r, const pickle_value *dense, const char *where, const char **name_out)
{
    static const char *const known[][2] = {
        {"torch.nn.modules.linear.Identity", "none"},
        {"torch.nn.functional.silu", "silu"},
        {"torch.nn.modules.activation.SiLU", "silu"},
        {"schnetpack.nn.activations.shifted_softplus", "shifted_softplus"},
    };
    const pickle_value *activation = child(dense, "activation");
    if (!activation) activation = attribute(dense, "activation");
    for (size_t i = 0; activation && i < sizeof known / sizeof *known; i++)
        if ((activation->kind == PICKLE_GLOBAL || activation->kind == PICKLE_OBJECT) &&
            strcmp(pickle_class(activation), known[i][0]) == 0) {
            *name_out = known[i][1];
            return MLFF_OK;
        }
    return mlff_fail(MLFF_ERR_UNSUPPORTED, "%s: the activation of %s is %s; only silu and shifted_softplus can be imported",
                     r->path, where, pickle_class(activation));
}

enum { PLAIN = 0, BIASED = 1, ACTIVATED = 2 }; // what a Dense of PaiNN has besides its weight

// A Dense that must have these and no more; all activations of a model must be the same.
static mlff_status read_dense(reader *r, const pickle_value *dense, const char *where, int parts)
{
    static const char *const members[] = {"weight", "bias", "activation", NULL};
    mlff_status status = MLFF_OK;
    const char *activation = NULL;
    const bool activated = parts & ACTIVATED, biased = parts & BIASED;

    MLFF_TRY(expect_class(r, dense, where, "schnetpack.nn.base.Dense"));
    MLFF_TRY(expect_members(r, dense, where, members));
    MLFF_TRY(read_activation(r, dense, where, &activation));
    if (activated != (strcmp(activation, "none") != 0))
        MLFF_FAIL(MLFF_ERR_UNSUPPORTED, "%s: the activation of %s is %s, which is not PaiNN's", r->path, where, activation);
    if (activated && r->activation && strcmp(r->activation, activation) != 0)
        MLFF_FAIL(MLFF_ERR_UNSUPPORTED, "%s: the activation of %s is %s, elsewhere it is %s; only one for all can be imported",
                  r->path, where, activation, r->activation);
    if (activated) r->activation = activation;
    MLFF_TRY(add_member(r, dense, where, "weight"));
    const pickle_value *bias = pickle_get(attribute(dense, "_parameters"), "bias");
    if (biased) MLFF_TRY(add_member(r, dense, where, "bias"));
    if (!biased && bias && bias->kind != PICKLE_NONE)
        MLFF_FAIL(MLFF_ERR_UNSUPPORTED, "%s: %s has a bias, which PaiNN has not", r->path, where);
done:
    return status;
}

// Two Dense, the first activated.
static mlff_status read_context_net(reader *r, const pickle_value *net, const char *where)
{
    mlff_status status = MLFF_OK;
    const pickle_value *modules[MAX_LIST];
    char name[200];
    int n = 0;
    MLFF_TRY(list_modules(r, net, where, modules, &n));
    if (n != 2) MLFF_FAIL(MLFF_ERR_UNSUPPORTED, "%s: %s has %d layer%s; PaiNN has 2", r->path, where, n, base_plural(n));
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "%s.%d", where, i);
        MLFF_TRY(read_dense(r, modules[i], name, i == 0 ? BIASED | ACTIVATED : BIASED));
    }
done:
    return status;
}

static mlff_status read_layers(reader *r, const pickle_value *representation, int64_t n_layers)
{
    static const char *const message_members[] = {"interatomic_context_net", NULL};
    static const char *const mixing_members[] = {"intraatomic_context_net", "mu_channel_mix", NULL};
    mlff_status status = MLFF_OK;
    const pickle_value *messages[MAX_LIST], *mixings[MAX_LIST];
    int n_messages = 0, n_mixings = 0;
    double epsilon = 1e-8;
    char where[128];

    MLFF_TRY(list_modules(r, child(representation, "interactions"), "representation.interactions", messages, &n_messages));
    MLFF_TRY(list_modules(r, child(representation, "mixing"), "representation.mixing", mixings, &n_mixings));
    if (n_layers < 1 || n_layers != n_messages || n_layers != n_mixings)
        MLFF_FAIL(MLFF_ERR_FORMAT, "%s: n_interactions is %" PRId64 ", yet it holds %d interactions and %d mixings", r->path,
                  n_layers, n_messages, n_mixings);
    bool shared = n_layers > 1;
    for (int l = 1; l < n_layers; l++) shared = shared && messages[l] == messages[0] && mixings[l] == mixings[0];
    for (int l = 0; l < (shared ? 1 : n_layers); l++) {
        snprintf(where, sizeof where, "representation.interactions.%d", l);
        MLFF_TRY(expect_class(r, messages[l], where, "schnetpack.representation.painn.PaiNNInteraction"));
        MLFF_TRY(expect_members(r, messages[l], where, message_members));
        snprintf(where, sizeof where, "representation.interactions.%d.interatomic_context_net", l);
        MLFF_TRY(read_context_net(r, child(messages[l], "interatomic_context_net"), where));

        snprintf(where, sizeof where, "representation.mixing.%d", l);
        MLFF_TRY(expect_class(r, mixings[l], where, "schnetpack.representation.painn.PaiNNMixing"));
        MLFF_TRY(expect_members(r, mixings[l], where, mixing_members));
        const pickle_value *own = attribute(mixings[l], "epsilon");
        if (!own || own->kind != PICKLE_REAL || (l > 0 && own->real != epsilon))
            MLFF_FAIL(MLFF_ERR_UNSUPPORTED, "%s: %s.epsilon is %s, or not the same in all layers", r->path, where,
                      pickle_class(own));
        epsilon = own->real;
        snprintf(where, sizeof where, "representation.mixing.%d.intraatomic_context_net", l);
        MLFF_TRY(read_context_net(r, child(mixings[l], "intraatomic_context_net"), where));
        snprintf(where, sizeof where, "representation.mixing.%d.mu_channel_mix", l);
        MLFF_TRY(read_dense(r, child(mixings[l], "mu_channel_mix"), where, PLAIN));
    }
    MLFF_TRY(weights_set(&r->weights, "epsilon", "%.17g", epsilon));
    MLFF_TRY(weights_set(&r->weights, "shared_interactions", "%s", shared ? "true" : "false"));
done:
    return status;
}

static mlff_status read_cutoff(reader *r, const pickle_value *representation)
{
    static const char *const members[] = {"cutoff", "eps", NULL};
    mlff_status status = MLFF_OK;
    const pickle_value *function = child(representation, "cutoff_fn");
    bool mollifier = pickle_is(function, "schnetpack.nn.cutoff.MollifierCutoff");
    double cutoff = 0.0, epsilon = 0.0;

    if (!mollifier && !pickle_is(function, "schnetpack.nn.cutoff.CosineCutoff"))
        MLFF_FAIL(MLFF_ERR_UNSUPPORTED, "%s: its cutoff function is %s; only CosineCutoff and MollifierCutoff can be imported",
                  r->path, pickle_class(function));
    MLFF_TRY(expect_members(r, function, "cutoff function", members));
    const pickle_value *buffers = attribute(function, "_buffers");
    MLFF_TRY(get_number(r, pickle_get(buffers, "cutoff"), "representation.cutoff_fn.cutoff", &cutoff));
    if (mollifier) {
        MLFF_TRY(get_number(r, pickle_get(buffers, "eps"), "representation.cutoff_fn.eps", &epsilon));
        if (fabs(epsilon - 1e-7) > 1e-9)
            MLFF_FAIL(MLFF_ERR_UNSUPPORTED, "%s: eps of its cutoff function is %g; only 1e-07 can be imported", r->path, epsilon);
    }
    MLFF_TRY(torch_file_add_tensor(r->file, pickle_get(buffers, "cutoff"), "representation.cutoff_fn.cutoff", &r->weights));
    MLFF_TRY(weights_set(&r->weights, "cutoff", "%.17g", cutoff));
    MLFF_TRY(weights_set(&r->weights, "cutoff_function", mollifier ? "mollifier" : "cosine"));
done:
    return status;
}

static mlff_status read_radial_basis(reader *r, const pickle_value *representation)
{
    static const char *const members[] = {"widths", "offsets", "freqs", NULL};
    mlff_status status = MLFF_OK;
    const pickle_value *basis = child(representation, "radial_basis");
    bool bessel = pickle_is(basis, "schnetpack.nn.radial.BesselRBF");
    int64_t n_radial = 0;

    if (!bessel && !pickle_is(basis, "schnetpack.nn.radial.GaussianRBF") &&
        !pickle_is(basis, "schnetpack.nn.radial.GaussianRBFCentered"))
        MLFF_FAIL(MLFF_ERR_UNSUPPORTED, "%s: its radial basis is %s; only GaussianRBF and BesselRBF can be imported", r->path,
                  pickle_class(basis));
    MLFF_TRY(expect_members(r, basis, "radial basis", members));
    MLFF_TRY(get_integer(r, basis, "radial_basis", "n_rbf", &n_radial));
    MLFF_TRY(weights_set(&r->weights, "n_radial", "%" PRId64, n_radial));
    MLFF_TRY(weights_set(&r->weights, "radial_basis", bessel ? "bessel" : "gaussian"));
    if (bessel) {
        MLFF_TRY(add_member(r, basis, "representation.radial_basis", "freqs"));
    } else {
        MLFF_TRY(add_member(r, basis, "representation.radial_basis", "widths"));
        MLFF_TRY(add_member(r, basis, "representation.radial_basis", "offsets"));
    }
done:
    return status;
}

static mlff_status read_embedding(reader *r, const pickle_value *representation)
{
    static const char *const members[] = {"weight", NULL};
    mlff_status status = MLFF_OK;
    const pickle_value *embedding = child(representation, "embedding");
    const pickle_value *electronic = child(representation, "electronic_embeddings"); // absent in old files
    const pickle_value *max_norm = attribute(embedding, "max_norm");
    const pickle_value *modules[MAX_LIST];
    int n = 0;

    MLFF_TRY(expect_class(r, embedding, "embedding", "torch.nn.modules.sparse.Embedding"));
    MLFF_TRY(expect_members(r, embedding, "embedding", members));
    if (max_norm && max_norm->kind != PICKLE_NONE)
        MLFF_FAIL(MLFF_ERR_UNSUPPORTED, "%s: its embedding has a max_norm, which is not supported", r->path);
    if (electronic && electronic->kind != PICKLE_NONE) {
        MLFF_TRY(list_modules(r, electronic, "electronic_embeddings", modules, &n));
        if (n > 0)
            MLFF_FAIL(MLFF_ERR_UNSUPPORTED,
                      "%s: it has an electronic embedding (%s: total charge or spin), which is not supported", r->path,
                      pickle_class(modules[0]));
    }
    MLFF_TRY(add_member(r, embedding, "representation.embedding", "weight"));
done:
    return status;
}

static mlff_status read_representation(reader *r, const pickle_value *representation)
{
    static const char *const members[] = {"cutoff_fn",  "radial_basis", "embedding", "electronic_embeddings",
                                          "filter_net", "interactions", "mixing",    NULL};
    mlff_status status = MLFF_OK;
    int64_t n_features = 0, n_layers = 0;

    MLFF_TRY(expect_class(r, representation, "representation", "schnetpack.representation.painn.PaiNN"));
    MLFF_TRY(expect_members(r, representation, "representation", members));
    MLFF_TRY(get_integer(r, representation, "representation", "n_atom_basis", &n_features));
    MLFF_TRY(get_integer(r, representation, "representation", "n_interactions", &n_layers));
    const pickle_value *share = attribute(representation, "share_filters");
    if (!share || share->kind != PICKLE_BOOL)
        MLFF_FAIL(MLFF_ERR_FORMAT, "%s: representation.share_filters is %s; expected a bool", r->path, pickle_class(share));
    MLFF_TRY(weights_set(&r->weights, "n_features", "%" PRId64, n_features));
    MLFF_TRY(weights_set(&r->weights, "n_layers", "%" PRId64, n_layers));
    MLFF_TRY(weights_set(&r->weights, "shared_filters", "%s", share->integer ? "true" : "false"));
    MLFF_TRY(read_cutoff(r, representation));
    MLFF_TRY(read_radial_basis(r, representation));
    MLFF_TRY(read_embedding(r, representation));
    MLFF_TRY(read_dense(r, child(representation, "filter_net"), "representation.filter_net", BIASED));
    MLFF_TRY(read_layers(r, representation, n_layers));
done:
    return status;
}

static mlff_status read_atomwise(reader *r, const pickle_value *atomwise)
{
    static const char *const members[] = {"outnet", NULL};
    mlff_status status = MLFF_OK;
    const pickle_value *modules[MAX_LIST];
    const char *aggregation = pickle_text(attribute(atomwise, "aggregation_mode"), "none");
    int64_t n_out = 0;
    int n = 0;
    char where[64];

    MLFF_TRY(expect_members(r, atomwise, "output module", members));
    MLFF_TRY(get_integer(r, atomwise, "Atomwise", "n_out", &n_out));
    if (n_out != 1)
        MLFF_FAIL(MLFF_ERR_UNSUPPORTED, "%s: its output module gives %" PRId64 " numbers for an atom, not an energy", r->path,
                  n_out);
    if (strcmp(aggregation, "sum") != 0)
        MLFF_FAIL(MLFF_ERR_UNSUPPORTED,
                  "%s: aggregation_mode of its output module is \"%.20s\"; an energy for dynamics needs \"sum\"", r->path,
                  aggregation);
    r->output_key = pickle_text(attribute(atomwise, "output_key"), "");
    MLFF_TRY(list_modules(r, child(atomwise, "outnet"), "output_modules.0.outnet", modules, &n));
    if (n < 1) MLFF_FAIL(MLFF_ERR_FORMAT, "%s: its output module has no layers", r->path);
    for (int i = 0; i < n; i++) {
        snprintf(where, sizeof where, "output_modules.0.outnet.%d", i);
        MLFF_TRY(read_dense(r, modules[i], where, i < n - 1 ? BIASED | ACTIVATED : BIASED));
    }
done:
    return status;
}

// One Atomwise, the energy; Forces differentiates it and holds nothing.
static mlff_status read_outputs(reader *r, const pickle_value *model)
{
    mlff_status status = MLFF_OK;
    const pickle_value *modules[MAX_LIST];
    int n = 0;
    MLFF_TRY(list_modules(r, child(model, "output_modules"), "output_modules", modules, &n));
    for (int i = 0; i < n; i++) {
        if (pickle_is(modules[i], "schnetpack.atomistic.response.Forces")) continue;
        MLFF_TRY(expect_class(r, modules[i], "output module", "schnetpack.atomistic.atomwise.Atomwise"));
        if (r->output_key)
            MLFF_FAIL(MLFF_ERR_UNSUPPORTED, "%s: it has several Atomwise output modules; only one, the energy, can be imported",
                      r->path);
        MLFF_TRY(read_atomwise(r, modules[i]));
    }
    if (!r->output_key) MLFF_FAIL(MLFF_ERR_UNSUPPORTED, "%s: it has no Atomwise output module, hence no energy", r->path);
done:
    return status;
}

static mlff_status read_inputs(reader *r, const pickle_value *model)
{
    mlff_status status = MLFF_OK;
    const pickle_value *modules[MAX_LIST];
    int n = 0;
    MLFF_TRY(list_modules(r, child(model, "input_modules"), "input_modules", modules, &n));
    for (int i = 0; i < n; i++)
        if (!pickle_is(modules[i], "schnetpack.atomistic.response.Strain"))
            MLFF_TRY(expect_class(r, modules[i], "input module", "schnetpack.atomistic.distances.PairwiseDistances"));
done:
    return status;
}

// ---- postprocessors of the energy

// Nothing happens if there is no such tensor.
static void scale_tensor(reader *r, const char *name, double scale)
{
    for (size_t i = 0; i < r->weights.n_tensors; i++) {
        model_tensor *tensor = &r->weights.tensors[i];
        if (strcmp(tensor->name, name) != 0) continue;
        for (int64_t k = 0; k < tensor->n_elements; k++) {
            if (tensor->is_double)
                ((double *)tensor->data)[k] *= scale;
            else
                ((float *)tensor->data)[k] = (float)(scale * (double)((float *)tensor->data)[k]);
        }
    }
}

static mlff_status read_offsets(reader *r, const pickle_value *offsets)
{
    mlff_status status = MLFF_OK;
    const pickle_value *buffers = attribute(offsets, "_buffers");
    bool mean = is_true(offsets, "add_mean", false), atomrefs = is_true(offsets, "add_atomrefs", false);
    double value = 0.0;

    if (strcmp(pickle_text(attribute(offsets, "_property"), ""), r->output_key) != 0)
        MLFF_FAIL(MLFF_ERR_UNSUPPORTED, "%s: its AddOffsets shifts \"%.40s\", not the energy \"%.40s\"", r->path,
                  pickle_text(attribute(offsets, "_property"), ""), r->output_key);
    if ((mean || atomrefs) && !is_true(offsets, "is_extensive", true))
        MLFF_FAIL(MLFF_ERR_UNSUPPORTED, "%s: its AddOffsets is not extensive: its energy does not grow with the atoms", r->path);
    if (mean) {
        MLFF_TRY(get_number(r, pickle_get(buffers, "mean"), "postprocessors.mean", &value));
        r->mean += value;
    }
    if (atomrefs) {
        if (weights_find(&r->weights, "postprocessors.atomref"))
            MLFF_FAIL(MLFF_ERR_UNSUPPORTED, "%s: two of its AddOffsets have atomrefs", r->path);
        MLFF_TRY(torch_file_add_tensor(r->file, pickle_get(buffers, "atomref"), "postprocessors.atomref", &r->weights));
    }
done:
    return status;
}

static mlff_status read_scale(reader *r, const pickle_value *property)
{
    mlff_status status = MLFF_OK;
    double scale = 0.0;
    const char *key = pickle_text(attribute(property, "input_key"), "");
    if (strcmp(key, r->output_key) != 0 || strcmp(pickle_text(attribute(property, "output_key"), key), key) != 0)
        MLFF_FAIL(MLFF_ERR_UNSUPPORTED, "%s: its ScaleProperty scales \"%.40s\", not the energy \"%.40s\"", r->path, key,
                  r->output_key);
    MLFF_TRY(get_number(r, pickle_get(attribute(property, "_buffers"), "scale"), "postprocessors.scale", &scale));
    r->scale *= scale;
    r->mean *= scale;
    scale_tensor(r, "postprocessors.atomref", scale);
done:
    return status;
}

// The scale goes into the last layer of the readout.
static void fold_scale(reader *r)
{
    char name[64];
    int last = 0;
    if (r->scale == 1.0) return;
    for (;; last++) {
        snprintf(name, sizeof name, "output_modules.0.outnet.%d.weight", last + 1);
        if (!weights_find(&r->weights, name)) break;
    }
    snprintf(name, sizeof name, "output_modules.0.outnet.%d.weight", last);
    scale_tensor(r, name, r->scale);
    snprintf(name, sizeof name, "output_modules.0.outnet.%d.bias", last);
    scale_tensor(r, name, r->scale);
}

static mlff_status read_postprocessors(reader *r, const pickle_value *model)
{
    static const char *const casts[] = {"schnetpack.transform.casting.CastTo64", "schnetpack.transform.casting.CastTo32",
                                        "schnetpack.transform.casting.CastMap"};
    mlff_status status = MLFF_OK;
    const pickle_value *modules[MAX_LIST];
    int n = 0;
    r->scale = 1.0;
    MLFF_TRY(list_modules(r, child(model, "postprocessors"), "postprocessors", modules, &n));
    if (!is_true(model, "do_postprocessing", true)) {
        if (n > 0)
            base_warn("%s: it was saved with do_postprocessing off, so that its energy offsets are left out here too", r->path);
        n = 0;
    }
    for (int i = 0; i < n; i++) {
        bool cast = false;
        for (size_t k = 0; k < sizeof casts / sizeof *casts; k++) cast = cast || pickle_is(modules[i], casts[k]);
        if (cast) continue;
        if (pickle_is(modules[i], "schnetpack.transform.atomistic.AddOffsets"))
            MLFF_TRY(read_offsets(r, modules[i]));
        else if (pickle_is(modules[i], "schnetpack.transform.atomistic.ScaleProperty"))
            MLFF_TRY(read_scale(r, modules[i]));
        else
            MLFF_FAIL(MLFF_ERR_UNSUPPORTED,
                      "%s: its postprocessor %d is %s; only CastTo64, AddOffsets and ScaleProperty can be imported", r->path, i,
                      pickle_class(modules[i]));
    }
    fold_scale(r);
    MLFF_TRY(weights_set(&r->weights, "energy_mean", "%.17g", r->mean));
done:
    return status;
}

// ---- the whole file

static mlff_status set_units(reader *r, const mlff_import_options *options)
{
    mlff_status status = MLFF_OK;
    const char *length = options->length_unit ? options->length_unit : "Ang";
    bool bohr = strcmp(length, "Bohr") == 0;
    double unit = 0;

    if (!options->energy_unit)
        return mlff_fail(MLFF_ERR_USAGE, "%s: its energy unit is not in the file; give it as kcal/mol, eV or Hartree", r->path);
    if (!bohr && strcmp(length, "Ang") != 0)
        return mlff_fail(MLFF_ERR_USAGE, "length unit \"%.40s\" is not known; use Ang or Bohr", length);
    MLFF_TRY(model_energy_unit(options->energy_unit, &unit));
    MLFF_TRY(weights_set(&r->weights, "energy_unit", "%s", options->energy_unit));
    MLFF_TRY(weights_set(&r->weights, "energy_unit_ev", "%.17g", unit));
    MLFF_TRY(weights_set(&r->weights, "length_unit", "%s", length));
    MLFF_TRY(weights_set(&r->weights, "length_unit_angstrom", "%.17g", bohr ? BASE_BOHR_ANGSTROM : 1.0));
done:
    return status;
}

static mlff_status check_root(const reader *r, const pickle_value *model)
{
    if (model->kind == PICKLE_DICT) {
        if (pickle_get(model, "pytorch-lightning_version") || pickle_get(model, "state_dict"))
            return mlff_fail(MLFF_ERR_UNSUPPORTED,
                             "%s: is a training checkpoint (Lightning); import the best_model that stands beside it", r->path);
        return mlff_fail(MLFF_ERR_UNSUPPORTED,
                         "%s: is a bare state_dict, weights without the settings that give them meaning; save the whole model: "
                         "torch.save(model, …)",
                         r->path);
    }
    return expect_class(r, model, "model", "schnetpack.model.base.NeuralNetworkPotential");
}

static mlff_status read_model(reader *r, const pickle_value *model, const mlff_import_options *options)
{
    static const char *const members[] = {"postprocessors", "representation", "input_modules", "output_modules", NULL};
    mlff_status status = MLFF_OK;
    const char *slash = strrchr(r->path, '/'), *file_name = slash ? slash + 1 : r->path;

    MLFF_TRY(check_root(r, model));
    MLFF_TRY(expect_members(r, model, "model", members));
    MLFF_TRY(weights_set(&r->weights, "format", "mlff"));
    MLFF_TRY(weights_set(&r->weights, "architecture", "painn"));
    MLFF_TRY(read_representation(r, child(model, "representation")));
    MLFF_TRY(read_inputs(r, model));
    MLFF_TRY(read_outputs(r, model));
    MLFF_TRY(weights_set(&r->weights, "activation", "%s", r->activation ? r->activation : "silu"));
    MLFF_TRY(read_postprocessors(r, model));
    MLFF_TRY(set_units(r, options));
    MLFF_TRY(model_elements_set(&r->weights, options->elements));
    MLFF_TRY(weights_set(&r->weights, "trained", "true"));
    MLFF_TRY(weights_set(&r->weights, "source", "%s", weights_utf8_valid(file_name, strlen(file_name)) ? file_name : "unknown"));
    MLFF_TRY(weights_set(&r->weights, "source_format", "SchNetPack"));
    MLFF_TRY(weights_set(&r->weights, "source_version", "%.64s", pickle_text(attribute(model, "spk_version"), "unknown")));
    MLFF_TRY(weights_set(&r->weights, "source_precision", "%.64s", pickle_text(attribute(model, "input_dtype_str"), "unknown")));
    MLFF_TRY(weights_check_finite(&r->weights, r->path));
done:
    return status;
}

// Objects that the model does not refer to have no effect here, but Python would run what they name.
static mlff_status check_globals(const reader *r)
{
    static const char *const known[] = {
        "torch.",          "schnetpack.",       "numpy.",       "ase.",          "collections.OrderedDict",
        "__builtin__.set", "__builtin__.slice", "builtins.set", "builtins.slice"};
    const char *name;
    for (size_t i = 0; (name = torch_file_global(r->file, i)); i++) {
        bool found = false;
        for (size_t k = 0; k < sizeof known / sizeof *known && !found; k++) {
            size_t length = strlen(known[k]);
            found = known[k][length - 1] == '.' ? strncmp(name, known[k], length) == 0 : strcmp(name, known[k]) == 0;
        }
        if (!found)
            return mlff_fail(MLFF_ERR_UNSUPPORTED,
                             "%s: its pickle names %s, which is not of PyTorch, SchNetPack, NumPy or ASE; do not open this file "
                             "with Python unless you trust its author",
                             r->path, name);
    }
    return MLFF_OK;
}

mlff_status schnetpack_read(torch_file *file, const char *path, const mlff_import_options *options, model_weights *weights_out)
{
    mlff_status status = MLFF_OK;
    reader r = {.path = path, .file = file};

    MLFF_TRY(read_model(&r, torch_file_root(r.file), options));
    MLFF_TRY(check_globals(&r));
    *weights_out = r.weights;
    r.weights = (model_weights){0};
done:
    weights_free(&r.weights);
    return status;
}
