// SPDX-License-Identifier: MIT
// fnx.c: an ANI model of FeNNol (.fnx: one MessagePack map, arrays as extension 1) as weights and metadata.
// An unknown module or setting is refused by name, so that no different model is read silently.
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "ani_import.h"
#include "msgpack.h"

enum { MAX_ITEMS = 64 }; // of a list or a map that is searched item by item
#define MAX_FILE_BYTES ((size_t)1 << 30)

typedef struct fnx {
    const char *path;
    msgpack_value root, parameters;
    msgpack_value aev, net, constant;          // settings of the three modules
    msgpack_value net_output, constant_output; // what the energy's terms call them
    bool adds_constant;
    char net_name[64], constant_name[64];
    ani_settings settings;
    char symbols[ANI_MAX_SPECIES][4];
    model_weights weights;
} fnx;

static const char *printable(const msgpack_value *v, char text[64])
{
    size_t n = v->kind == MSGPACK_TEXT ? (v->n < 63 ? v->n : 63) : 0;
    for (size_t k = 0; k < n; k++) text[k] = v->data[k] >= ' ' && v->data[k] < 127 ? (char)v->data[k] : '?';
    text[n] = 0;
    return text;
}

static bool same_text(const msgpack_value *a, const msgpack_value *b)
{
    return a->kind == MSGPACK_TEXT && b->kind == MSGPACK_TEXT && a->n == b->n && memcmp(a->data, b->data, a->n) == 0;
}

// ---- settings

static mlff_status known_keys(const fnx *f, const msgpack_value *map, const char *module, const char *const *keys)
{
    msgpack_value key, value;
    char text[64];
    if (map->kind != MSGPACK_MAP || map->n > MAX_ITEMS)
        return mlff_fail(MLFF_ERR_FORMAT, "%s: its %s is not a map of at most %d settings", f->path, module, MAX_ITEMS);
    for (uint32_t i = 0; msgpack_pair(map, i, &key, &value); i++) {
        bool known = false;
        for (int k = 0; !known && keys[k]; k++) known = msgpack_equals(&key, keys[k]);
        if (!known)
            return mlff_fail(MLFF_ERR_UNSUPPORTED, "%s: its %s has a setting \"%s\" that is not known here", f->path, module,
                             printable(&key, text));
    }
    return MLFF_OK;
}

static mlff_status number(const fnx *f, const msgpack_value *map, const char *key, double least, double most, double *value_out)
{
    msgpack_value v;
    if (!msgpack_get(map, key, &v) || v.kind != MSGPACK_NUMBER || !(v.number >= least && v.number <= most))
        return mlff_fail(MLFF_ERR_FORMAT, "%s: has no %s from %g to %g", f->path, key, least, most);
    *value_out = v.number;
    return MLFF_OK;
}

static mlff_status count(const fnx *f, const msgpack_value *map, const char *key, int *value_out)
{
    double value = 0;
    mlff_status status = number(f, map, key, 1, ANI_MAX_GRID, &value);
    if (status == MLFF_OK && value != floor(value)) status = mlff_fail(MLFF_ERR_FORMAT, "%s: %s is %g", f->path, key, value);
    *value_out = (int)value;
    return status;
}

// The key of a module's result: its name, unless its settings say another.
static msgpack_value output_of(const msgpack_value *name, const msgpack_value *settings)
{
    msgpack_value key;
    return msgpack_get(settings, "output_key", &key) && key.kind == MSGPACK_TEXT ? key : *name;
}

static mlff_status find_modules(fnx *f)
{
    msgpack_value modules, module, name, settings, kind;
    char text[64];
    if (!msgpack_get(&f->root, "modules", &modules) || modules.kind != MSGPACK_ARRAY || modules.n > MAX_ITEMS)
        return mlff_fail(MLFF_ERR_FORMAT, "%s: has no list of modules; it is not a FeNNol model", f->path);
    for (uint32_t i = 0; msgpack_item(&modules, i, &module); i++) {
        if (!msgpack_item(&module, 0, &name) || name.kind != MSGPACK_TEXT || !msgpack_item(&module, 1, &settings) ||
            !msgpack_get(&settings, "module_name", &kind))
            return mlff_fail(MLFF_ERR_FORMAT, "%s: module %u is not a pair of a name and its settings", f->path, i);
        if (msgpack_equals(&kind, "ANI_AEV")) {
            f->aev = settings;
        } else if (msgpack_equals(&kind, "SPECIES_INDEX_NET")) {
            f->net = settings;
            printable(&name, f->net_name);
            f->net_output = output_of(&name, &settings);
        } else if (msgpack_equals(&kind, "CHEMICAL_CONSTANT")) {
            f->constant = settings;
            printable(&name, f->constant_name);
            f->constant_output = output_of(&name, &settings);
        } else {
            return mlff_fail(
                MLFF_ERR_UNSUPPORTED,
                "%s: has a module %s; only ANI models (ANI_AEV, SPECIES_INDEX_NET, CHEMICAL_CONSTANT) can be imported", f->path,
                printable(&kind, text));
        }
    }
    if (modules.n != 3 || !f->aev.data || !f->net.data || !f->constant.data)
        return mlff_fail(MLFF_ERR_UNSUPPORTED,
                         "%s: its %u modules are not those of an ANI model: one ANI_AEV, one "
                         "SPECIES_INDEX_NET, one CHEMICAL_CONSTANT",
                         f->path, modules.n);
    return MLFF_OK;
}

// FeNNol's energy is the sum of these results, each as often as it is listed; where there is no list, the one named energy.
static mlff_status read_energy_terms(fnx *f)
{
    msgpack_value terms, term;
    char text[64];
    int n_net = 0, n_constant = 0;
    if (!msgpack_get(&f->root, "energy_terms", &terms)) {
        n_net = msgpack_equals(&f->net_output, "energy");
        n_constant = msgpack_equals(&f->constant_output, "energy");
    } else if (terms.kind != MSGPACK_ARRAY || terms.n > MAX_ITEMS) {
        return mlff_fail(MLFF_ERR_FORMAT, "%s: its energy_terms are not a list of names", f->path);
    } else {
        for (uint32_t i = 0; msgpack_item(&terms, i, &term); i++) {
            const bool net = same_text(&term, &f->net_output), constant = same_text(&term, &f->constant_output);
            if (!net && !constant)
                return mlff_fail(MLFF_ERR_UNSUPPORTED,
                                 "%s: \"%s\" in its energy_terms is the result of neither its networks nor its self energies",
                                 f->path, printable(&term, text));
            n_net += net;
            n_constant += constant;
        }
    }
    if (n_net != 1 || n_constant > 1)
        return mlff_fail(
            MLFF_ERR_UNSUPPORTED,
            "%s: its energy_terms name its networks %d time%s and its self energies %d time%s; expected once, and at "
            "most once",
            f->path, n_net, base_plural(n_net), n_constant, base_plural(n_constant));
    f->adds_constant = n_constant == 1;
    return MLFF_OK;
}

// What makes the neighbors or their weights others than an ANI's: another switching function, a graph without hydrogen.
static mlff_status check_graph(const fnx *f, const msgpack_value *name, const msgpack_value *settings)
{
    msgpack_value value, root;
    char text[64];
    if (msgpack_get(settings, "switch_params", &value) && value.kind != MSGPACK_NIL && value.n > 0)
        return mlff_fail(MLFF_ERR_UNSUPPORTED, "%s: its graph \"%s\" has switch_params; only the cosine of an ANI is known",
                         f->path, printable(name, text));
    if (msgpack_get(settings, "remove_hydrogens", &value) && value.kind != MSGPACK_NIL && value.number != 0)
        return mlff_fail(MLFF_ERR_UNSUPPORTED, "%s: its graph \"%s\" leaves hydrogen out, which is not supported", f->path,
                         printable(name, text));
    if (msgpack_equals(name, "graph") && msgpack_get(settings, "cutoff", &value) && msgpack_get(&f->root, "cutoff", &root) &&
        value.number != root.number)
        return mlff_fail(MLFF_ERR_UNSUPPORTED, "%s: its graph has a cutoff of %g Å, the model %g Å; expected the same", f->path,
                         value.number, root.number);
    return MLFF_OK;
}

// The cutoff of the graph of angles is stored with its filter.
static mlff_status read_graphs(fnx *f)
{
    msgpack_value graph, list, entry, entry_name, settings, made, radial, unused;
    char name[64];
    int n_found = 0;
    if (!msgpack_get(&f->aev, "graph_angle_key", &graph) || !msgpack_get(&f->root, "preprocessing", &list) || list.n > MAX_ITEMS)
        return mlff_fail(MLFF_ERR_FORMAT, "%s: does not say which graph its angles are of", f->path);
    if (msgpack_get(&f->aev, "graph_key", &radial) && !msgpack_equals(&radial, "graph"))
        return mlff_fail(MLFF_ERR_UNSUPPORTED, "%s: its radial functions are of the graph \"%s\"; only \"graph\" is known",
                         f->path, printable(&radial, name));
    for (uint32_t i = 0; msgpack_item(&list, i, &entry); i++) {
        if (!msgpack_item(&entry, 0, &entry_name) || !msgpack_item(&entry, 1, &settings)) continue;
        mlff_status status = check_graph(f, &entry_name, &settings);
        if (status != MLFF_OK) return status;
        if (!msgpack_get(&settings, "graph_key", &made) || !same_text(&made, &graph) ||
            !msgpack_get(&settings, "cutoff", &unused))
            continue;
        status = number(f, &settings, "cutoff", 1e-3, 100, &f->settings.angular_cutoff);
        if (status != MLFF_OK) return status;
        n_found++;
    }
    if (n_found != 1)
        return mlff_fail(MLFF_ERR_FORMAT, "%s: has %d cutoffs of the graph \"%s\"; expected one", f->path, n_found,
                         printable(&graph, name));
    return MLFF_OK;
}

static mlff_status read_species(fnx *f)
{
    msgpack_value order, symbol;
    size_t at = 0;
    bool fits = msgpack_get(&f->aev, "species_order", &order) && order.kind == MSGPACK_ARRAY && order.n <= ANI_MAX_SPECIES;
    for (uint32_t i = 0; fits && msgpack_item(&order, i, &symbol); i++) {
        fits = symbol.kind == MSGPACK_TEXT && symbol.n >= 1 && symbol.n <= 3 && at + symbol.n + 2 < sizeof f->settings.species;
        if (!fits) break;
        if (i > 0) f->settings.species[at++] = ',';
        memcpy(f->settings.species + at, symbol.data, symbol.n);
        at += symbol.n;
    }
    f->settings.n_species = fits ? ani_species_parse(f->settings.species, f->symbols) : 0;
    if (f->settings.n_species == 0)
        return mlff_fail(MLFF_ERR_FORMAT, "%s: its species_order is not a list of up to %d elements", f->path, ANI_MAX_SPECIES);
    return MLFF_OK;
}

static mlff_status read_settings(fnx *f)
{
    static const char *const aev_keys[] = {"angle_sections",
                                           "angular_dist_divisions",
                                           "angular_eta",
                                           "angular_start",
                                           "embedding_key",
                                           "graph_angle_key",
                                           "graph_key",
                                           "module_name",
                                           "radial_dist_divisions",
                                           "radial_eta",
                                           "radial_start",
                                           "species_order",
                                           "zeta",
                                           NULL};
    static const char *const net_keys[] = {"activation", "hidden_neurons",    "input_key", "module_name", "output_dim",
                                           "output_key", "species_index_key", "use_bias",  NULL};
    static const char *const constant_keys[] = {"module_name", "trainable", "value", "output_key", NULL};
    mlff_status status = MLFF_OK;
    ani_settings *s = &f->settings;
    double radial_start = 0, angular_start = 0;
    char text[64] = "";
    msgpack_value v;

    MLFF_TRY(known_keys(f, &f->aev, "ANI_AEV", aev_keys));
    MLFF_TRY(known_keys(f, &f->net, "SPECIES_INDEX_NET", net_keys));
    MLFF_TRY(known_keys(f, &f->constant, "CHEMICAL_CONSTANT", constant_keys));
    MLFF_TRY(read_species(f));
    MLFF_TRY(number(f, &f->root, "cutoff", 1e-3, 100, &s->radial_cutoff));
    MLFF_TRY(read_graphs(f));
    MLFF_TRY(number(f, &f->aev, "radial_eta", 0, 1e6, &s->eta_radial));
    MLFF_TRY(number(f, &f->aev, "angular_eta", 0, 1e6, &s->eta_angular));
    MLFF_TRY(number(f, &f->aev, "zeta", 1, 1e4, &s->zeta));
    MLFF_TRY(number(f, &f->aev, "radial_start", 0, 100, &radial_start));
    MLFF_TRY(number(f, &f->aev, "angular_start", 0, 100, &angular_start));
    MLFF_TRY(count(f, &f->aev, "radial_dist_divisions", &s->n_radial));
    MLFF_TRY(count(f, &f->aev, "angular_dist_divisions", &s->n_shifts));
    MLFF_TRY(count(f, &f->aev, "angle_sections", &s->n_sections));
    for (int k = 0; k < s->n_radial; k++) s->radial_shift[k] = radial_start + k * (s->radial_cutoff - radial_start) / s->n_radial;
    for (int k = 0; k < s->n_shifts; k++)
        s->angular_shift[k] = angular_start + k * (s->angular_cutoff - angular_start) / s->n_shifts;
    for (int k = 0; k < s->n_sections; k++) s->section[k] = BASE_PI * (k + 0.5) / s->n_sections;

    if (!msgpack_get(&f->net, "activation", &v) || !msgpack_equals(&v, "partial(celu, alpha=0.1)"))
        MLFF_FAIL(MLFF_ERR_UNSUPPORTED, "%s: its activation is \"%s\"; only partial(celu, alpha=0.1) is known", f->path,
                  msgpack_get(&f->net, "activation", &v) ? printable(&v, text) : "");
    if (msgpack_get(&f->net, "output_dim", &v) && (v.kind != MSGPACK_NUMBER || v.number != 1))
        MLFF_FAIL(MLFF_ERR_UNSUPPORTED, "%s: its networks have %g outputs; expected 1, the energy", f->path, v.number);
    s->energy_unit = BASE_HARTREE_EV;
    if (msgpack_get(&f->root, "energy_unit", &v)) {
        if (msgpack_equals(&v, "eV"))
            s->energy_unit = 1.0;
        else if (msgpack_equals(&v, "kcal/mol"))
            s->energy_unit = BASE_KCAL_PER_MOL_EV;
        else if (!msgpack_equals(&v, "Ha") && !msgpack_equals(&v, "Hartree"))
            MLFF_FAIL(MLFF_ERR_UNSUPPORTED, "%s: its energy unit is \"%s\"; known are Ha, eV and kcal/mol", f->path,
                      printable(&v, text));
    }
    s->n_members = 1;
done:
    return status;
}

// ---- arrays

// An array of flax: extension 1 with [shape, "float32", bytes]; rank 1 or 2.
static mlff_status array(const fnx *f, const msgpack_value *value, const char *what, int rank, int64_t shape[2],
                         const float **data_out)
{
    msgpack_value inner, dims, type, bytes, dim;
    int64_t n = 1;
    bool fits = value->kind == MSGPACK_EXTENSION && value->extension == 1 &&
                msgpack_parse(value->data, value->n, f->path, &inner) == MLFF_OK && msgpack_item(&inner, 0, &dims) &&
                msgpack_item(&inner, 1, &type) && msgpack_item(&inner, 2, &bytes) && bytes.kind == MSGPACK_BYTES &&
                msgpack_equals(&type, "float32") && dims.kind == MSGPACK_ARRAY && dims.n == (uint32_t)rank;
    for (uint32_t d = 0; fits && d < dims.n; d++) {
        fits = msgpack_item(&dims, d, &dim) && dim.kind == MSGPACK_NUMBER && dim.number >= 1 && dim.number <= 1 << 20 &&
               dim.number == floor(dim.number);
        shape[d] = fits ? (int64_t)dim.number : 0;
        n *= shape[d];
    }
    if (!fits || (uint64_t)n * sizeof(float) != bytes.n)
        return mlff_fail(MLFF_ERR_FORMAT, "%s: %s is not a float32 array of %d dimension%s whose shape fits its bytes", f->path,
                         what, rank, rank > 1 ? "s" : "");
    *data_out = (const float *)(const void *)bytes.data; // unaligned: to be copied by bytes
    return MLFF_OK;
}

static float at(const float *data, int64_t index)
{
    float value;
    memcpy(&value, (const char *)data + (size_t)index * sizeof value, sizeof value);
    return value;
}

static mlff_status read_layer(fnx *f, const msgpack_value *layer, int species, int l, int64_t *width)
{
    mlff_status status = MLFF_OK;
    char name[128];
    msgpack_value kernel, bias, biased;
    const bool expects_bias = !msgpack_get(&f->net, "use_bias", &biased) || biased.kind != MSGPACK_BOOL || biased.number != 0;
    int64_t shape[2] = {0, 0}, rows[2] = {0, 0};
    const float *data = NULL;

    snprintf(name, sizeof name, "the kernel of Layer_%d of %s", l + 1, f->symbols[species]);
    if (!msgpack_get(layer, "kernel", &kernel)) MLFF_FAIL(MLFF_ERR_FORMAT, "%s: has no array that is %s", f->path, name);
    MLFF_TRY(array(f, &kernel, name, 2, shape, &data));
    if (shape[0] != *width || shape[1] > ANI_MAX_WIDTH)
        MLFF_FAIL(MLFF_ERR_FORMAT, "%s: %s is %" PRId64 " × %" PRId64 "; expected %" PRId64 " inputs and at most %d outputs",
                  f->path, name, shape[0], shape[1], *width, ANI_MAX_WIDTH);
    snprintf(name, sizeof name, "member.0.%s.%d.weight", f->symbols[species], l);
    model_tensor *tensor = weights_add(&f->weights, name, 0, 2, (int64_t[]){shape[1], shape[0]});
    if (!tensor) MLFF_TRY(MLFF_ERR_MEMORY);
    for (int64_t i = 0; i < shape[0]; i++)
        for (int64_t o = 0; o < shape[1]; o++) ((float *)tensor->data)[o * shape[0] + i] = at(data, i * shape[1] + o);

    snprintf(name, sizeof name, "member.0.%s.%d.bias", f->symbols[species], l);
    if (!(tensor = weights_add(&f->weights, name, 0, 1, &shape[1]))) MLFF_TRY(MLFF_ERR_MEMORY);
    const bool has_bias = msgpack_get(layer, "bias", &bias);
    if (has_bias != expects_bias)
        MLFF_FAIL(MLFF_ERR_FORMAT, "%s: Layer_%d of %s has %s bias, its settings say use_bias = %s", f->path, l + 1,
                  f->symbols[species], has_bias ? "a" : "no", expects_bias ? "true" : "false");
    if (has_bias) {
        MLFF_TRY(array(f, &bias, name, 1, rows, &data));
        if (rows[0] != shape[1])
            MLFF_FAIL(MLFF_ERR_FORMAT, "%s: %s has %" PRId64 " number%s for %" PRId64 " output%s", f->path, name, rows[0],
                      base_plural(rows[0]), shape[1], base_plural(shape[1]));
        memcpy(tensor->data, data, (size_t)rows[0] * sizeof(float));
    }
    *width = shape[1];
done:
    return status;
}

static mlff_status read_networks(fnx *f)
{
    mlff_status status = MLFF_OK;
    msgpack_value nets, net, layer;
    char name[32];
    if (!msgpack_get(&f->parameters, f->net_name, &nets))
        MLFF_FAIL(MLFF_ERR_FORMAT, "%s: has no parameters of its module \"%s\"", f->path, f->net_name);
    for (int s = 0; s < f->settings.n_species; s++) {
        int64_t width = ani_length(&f->settings);
        if (!msgpack_get(&nets, f->symbols[s], &net) || net.kind != MSGPACK_MAP || net.n < 1 || net.n > ANI_MAX_LAYERS)
            MLFF_FAIL(MLFF_ERR_FORMAT, "%s: has no network of %s with 1 to %d layers", f->path, f->symbols[s], ANI_MAX_LAYERS);
        for (int l = 0; l < (int)net.n; l++) {
            snprintf(name, sizeof name, "Layer_%d", l + 1);
            if (!msgpack_get(&net, name, &layer)) MLFF_FAIL(MLFF_ERR_FORMAT, "%s: %s has no %s", f->path, f->symbols[s], name);
            MLFF_TRY(read_layer(f, &layer, s, l, &width));
        }
        if (width != 1)
            MLFF_FAIL(MLFF_ERR_FORMAT, "%s: the network of %s ends with %" PRId64 " numbers; expected 1", f->path, f->symbols[s],
                      width);
    }
done:
    return status;
}

// The settings hold the self energies as doubles, the parameters as float32, by atomic number. Training may have moved
// the latter: the doubles are taken where they round to them.
static mlff_status read_self_energies(fnx *f)
{
    msgpack_value values, own, variables;
    int64_t shape[2] = {0, 0};
    const float *data = NULL;
    bool has_values = msgpack_get(&f->constant, "value", &values);
    if (msgpack_get(&f->parameters, f->constant_name, &variables) && msgpack_get(&variables, "constant", &own)) {
        mlff_status status = array(f, &own, "the array of self energies", 1, shape, &data);
        if (status != MLFF_OK) return status;
    }
    for (int s = 0; s < f->settings.n_species; s++) {
        int z = mlff_element_number(f->symbols[s]);
        double value = has_values && msgpack_get(&values, f->symbols[s], &own) && own.kind == MSGPACK_NUMBER ? own.number : NAN;
        if (data && z < shape[0] && at(data, z) != (float)value) value = (double)at(data, z);
        if (!f->adds_constant) value = 0;
        if (!isfinite(value)) return mlff_fail(MLFF_ERR_FORMAT, "%s: has no self energy of %s", f->path, f->symbols[s]);
        f->settings.self_energy[s] = value;
    }
    return MLFF_OK;
}

mlff_status fnx_parse(const char *bytes, size_t length, const char *path, model_weights *weights_out)
{
    mlff_status status = MLFF_OK;
    fnx f = {.path = path};
    msgpack_value variables;

    MLFF_TRY(msgpack_parse(bytes, length, path, &f.root));
    if (!msgpack_get(&f.root, "variables", &variables) || !msgpack_get(&variables, "params", &f.parameters))
        MLFF_FAIL(MLFF_ERR_FORMAT, "%s: has no variables with params; it is not a FeNNol model", path);
    MLFF_TRY(find_modules(&f));
    MLFF_TRY(read_energy_terms(&f));
    MLFF_TRY(read_settings(&f));
    MLFF_TRY(read_self_energies(&f));
    MLFF_TRY(ani_settings_write(&f.settings, "FeNNol", &f.weights));
    MLFF_TRY(read_networks(&f));
    MLFF_TRY(weights_check_finite(&f.weights, path));
    *weights_out = f.weights;
    f.weights = (model_weights){0};
done:
    weights_free(&f.weights);
    return status;
}

mlff_status fnx_read(const char *path, model_weights *weights_out)
{
    mlff_status status = MLFF_OK;
    char *bytes = NULL;
    size_t length = 0;
    MLFF_TRY(base_read_file(path, MAX_FILE_BYTES, &bytes, &length));
    MLFF_TRY(fnx_parse(bytes, length, path, weights_out));
done:
    base_free(bytes);
    return status;
}
