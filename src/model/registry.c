// SPDX-License-Identifier: MIT
// registry.c: architectures by name; loading, saving, importing and creating models.
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "atoms/elements/covalent.h"
#include "mlff_train.h"
#include "model/ani/import/ani_import.h"
#include "model/model.h"
#include "model/orb/import/orb_import.h"
#include "model/painn/import/schnetpack.h"

extern const model_architecture painn_architecture, ani_architecture, orb_v2_architecture, orb_v3_direct_architecture,
    orb_v3_conservative_architecture;

// The one place on the CPU that names architectures; the rest is NULL until model_architecture_register.
static const model_architecture *architectures[MODEL_MAX_ARCHITECTURES] = {
    &painn_architecture, &ani_architecture, &orb_v2_architecture, &orb_v3_direct_architecture, &orb_v3_conservative_architecture};

const model_architecture *model_architecture_find(const char *name)
{
    for (int i = 0; i < MODEL_MAX_ARCHITECTURES && architectures[i]; i++)
        if (strcmp(architectures[i]->name, name) == 0) return architectures[i];
    return NULL;
}

const model_architecture *model_architecture_of_students(void)
{
    for (int i = 0; i < MODEL_MAX_ARCHITECTURES && architectures[i]; i++)
        if (architectures[i]->create && architectures[i]->create_train_backend) return architectures[i];
    return NULL;
}

const model_published *model_published_find(const char *name, const model_architecture **architecture_out)
{
    for (int i = 0; i < MODEL_MAX_ARCHITECTURES && architectures[i]; i++)
        for (const model_published *p = architectures[i]->published; p && p->names[0]; p++)
            for (int n = 0; n < 4 && p->names[n]; n++)
                if (strcmp(p->names[n], name) == 0) {
                    *architecture_out = architectures[i];
                    return p;
                }
    return NULL;
}

mlff_status model_architecture_register(const model_architecture *architecture)
{
    if (model_architecture_find(architecture->name))
        return mlff_fail(MLFF_ERR_USAGE, "architecture \"%s\" is registered already", architecture->name);
    for (int i = 0; i < MODEL_MAX_ARCHITECTURES; i++)
        if (!architectures[i]) {
            architectures[i] = architecture;
            return MLFF_OK;
        }
    return mlff_fail(MLFF_ERR_LIMIT, "architecture \"%s\": there is room for %d only", architecture->name,
                     MODEL_MAX_ARCHITECTURES);
}

// "painn, ani" into text.
static const char *known_architectures(char *text, size_t text_bytes)
{
    size_t n = 0;
    for (int i = 0; i < MODEL_MAX_ARCHITECTURES && architectures[i] && n < text_bytes; i++)
        n += (size_t)snprintf(text + n, text_bytes - n, "%s%s", i ? ", " : "", architectures[i]->name);
    return text;
}

// ---- metadata of every architecture

mlff_status model_metadata_number(const mlff_model *model, const char *key, double least, double most, double *value_out)
{
    const char *text = weights_get(&model->file, key);
    double value;
    if (!text) return mlff_fail(MLFF_ERR_FORMAT, "%s: its metadata has no %s", model->name, key);
    if (!base_parse_double(text, &value) || !(value >= least && value <= most))
        return mlff_fail(MLFF_ERR_FORMAT, "%s: metadata %s is \"%.40s\"; expected a number from %g to %g", model->name, key, text,
                         least, most);
    *value_out = value;
    return MLFF_OK;
}

mlff_status model_metadata_count(const mlff_model *model, const char *key, int least, int most, int *value_out)
{
    const char *text = weights_get(&model->file, key);
    int64_t value;
    if (!text) return mlff_fail(MLFF_ERR_FORMAT, "%s: its metadata has no %s", model->name, key);
    if (!base_parse_int64(text, &value) || value < least || value > most)
        return mlff_fail(MLFF_ERR_FORMAT, "%s: metadata %s is \"%.40s\"; expected a whole number from %d to %d", model->name, key,
                         text, least, most);
    *value_out = (int)value;
    return MLFF_OK;
}

mlff_status model_metadata_choice(const mlff_model *model, const char *key, const char *const *choices, int *index_out)
{
    const char *text = weights_get(&model->file, key);
    base_text known = {0};
    if (!text) return mlff_fail(MLFF_ERR_FORMAT, "%s: its metadata has no %s", model->name, key);
    for (int i = 0; choices[i]; i++) {
        if (strcmp(text, choices[i]) == 0) {
            *index_out = i;
            base_text_free(&known);
            return MLFF_OK;
        }
        base_text_add(&known, "%s\"%s\"", i ? ", " : "", choices[i]);
    }
    mlff_status status = mlff_fail(MLFF_ERR_FORMAT, "%s: metadata %s is \"%.40s\"; known are %s", model->name, key, text,
                                   known.text ? known.text : "none");
    base_text_free(&known);
    return status;
}

// One element of a list: a symbol or an atomic number. 0 if it is neither.
static int element_of(const char *token, size_t length)
{
    char text[8];
    int64_t number;
    if (length == 0 || length >= sizeof text) return 0;
    memcpy(text, token, length);
    text[length] = 0;
    if (isdigit((unsigned char)text[0]))
        return base_parse_int64(text, &number) && number >= 1 && number <= MLFF_MAX_ATOMIC_NUMBER ? (int)number : 0;
    return mlff_element_number(text);
}

mlff_status model_elements_parse(const char *elements, bool known[MLFF_MAX_ATOMIC_NUMBER + 1])
{
    memset(known, 0, (MLFF_MAX_ATOMIC_NUMBER + 1) * sizeof *known);
    for (const char *token = elements;;) {
        token += strspn(token, " ");
        size_t length = strcspn(token, " ,");
        int number = element_of(token, length);
        if (number == 0)
            return mlff_fail(MLFF_ERR_ELEMENT,
                             "\"%.*s\" in the elements \"%.60s\" is not an element; expected a list such as H,C,O",
                             (int)(length < 20 ? length : 20), token, elements);
        if (known[number])
            return mlff_fail(MLFF_ERR_ELEMENT, "element %d appears twice in the elements \"%.60s\"", number, elements);
        known[number] = true;
        token += length;
        token += strspn(token, " ");
        if (*token == 0) return MLFF_OK;
        if (*token++ != ',') return mlff_fail(MLFF_ERR_ELEMENT, "the elements \"%.60s\" are not a list such as H,C,O", elements);
    }
}

mlff_status model_elements_set(model_weights *weights, const char *elements)
{
    mlff_status status = MLFF_OK;
    bool known[MLFF_MAX_ATOMIC_NUMBER + 1];
    base_text text = {0};

    if (!elements) return weights_set(weights, "elements", "unknown");
    MLFF_TRY(model_elements_parse(elements, known));
    for (int z = 1; z <= MLFF_MAX_ATOMIC_NUMBER; z++)
        if (known[z]) base_text_add(&text, "%s%d", text.length ? "," : "", z);
    MLFF_TRY(text.status);
    MLFF_TRY(weights_set(weights, "elements", "%s", text.text));
done:
    base_text_free(&text);
    return status;
}

mlff_status model_elements_set_within(model_weights *weights, const char *elements, int last, const char *kind)
{
    mlff_status status = MLFF_OK;
    bool known[MLFF_MAX_ATOMIC_NUMBER + 1];
    base_text all = {0};
    if (!elements) {
        for (int z = 1; z <= last; z++) base_text_add(&all, "%s%d", z > 1 ? "," : "", z);
        MLFF_TRY(all.status);
        elements = all.text;
    }
    MLFF_TRY(model_elements_parse(elements, known));
    for (int z = last + 1; z <= MLFF_MAX_ATOMIC_NUMBER; z++)
        if (known[z]) MLFF_FAIL(MLFF_ERR_ELEMENT, "element %d in \"%.60s\": %s has 1 to %d", z, elements, kind, last);
    MLFF_TRY(model_elements_set(weights, elements));
done:
    base_text_free(&all);
    return status;
}

mlff_status model_untrained_set(model_weights *weights, const char *architecture, uint64_t seed)
{
    mlff_status status = MLFF_OK;
    MLFF_TRY(weights_set(weights, "format", "mlff"));
    MLFF_TRY(weights_set(weights, "architecture", "%s", architecture));
    MLFF_TRY(weights_set(weights, "energy_unit", "eV"));
    MLFF_TRY(weights_set(weights, "energy_unit_ev", "1"));
    MLFF_TRY(weights_set(weights, "length_unit", "Ang"));
    MLFF_TRY(weights_set(weights, "length_unit_angstrom", "1"));
    MLFF_TRY(weights_set(weights, "trained", "false"));
    MLFF_TRY(weights_set(weights, "seed", "%llu", (unsigned long long)seed));
    MLFF_TRY(weights_set(weights, "source", "new"));
    MLFF_TRY(weights_set(weights, "source_version", "%s", mlff_version()));
done:
    return status;
}

static mlff_status read_elements(mlff_model *model)
{
    const char *text = weights_get(&model->file, "elements");
    if (!text) return mlff_fail(MLFF_ERR_FORMAT, "%s: its metadata has no elements (a list or \"unknown\")", model->name);
    if (strcmp(text, "unknown") == 0) return MLFF_OK;
    if (model_elements_parse(text, model->known) != MLFF_OK)
        return mlff_fail(MLFF_ERR_FORMAT, "%s: metadata elements is \"%.60s\"; expected atomic numbers such as 1,6,8",
                         model->name, text);
    for (int z = 1; z <= MLFF_MAX_ATOMIC_NUMBER; z++)
        if (model->known[z]) model->elements[model->n_elements++] = (unsigned char)z;
    return MLFF_OK;
}

static mlff_status read_common(mlff_model *model)
{
    static const char *const truth[] = {"false", "true", NULL};
    mlff_status status = MLFF_OK;
    int trained = 0;
    MLFF_TRY(model_metadata_number(model, "energy_unit_ev", 1e-6, 1e6, &model->energy_unit));
    MLFF_TRY(model_metadata_number(model, "length_unit_angstrom", 1e-6, 1e6, &model->length_unit));
    MLFF_TRY(model_metadata_choice(model, "trained", truth, &trained));
    model->trained = trained;
    MLFF_TRY(read_elements(model));
done:
    return status;
}

// What the core repulsion of a loaded model needs, and its mention in the description.
static mlff_status check_core_repulsion(mlff_model *model)
{
    const unsigned needed = MODEL_ATOM_ENERGY | MODEL_PAIR_GRADIENT;
    double largest = 0;
    base_text text = {0};
    if (model->core_repulsion == 0) return MLFF_OK;
    for (int z = 1; z <= MLFF_MAX_ATOMIC_NUMBER; z++) {
        model->core_radius[z] = model->core_repulsion * covalent_radius(z);
        if (model->known[z]) largest = fmax(largest, model->core_radius[z]);
    }
    if ((model->outputs & needed) != needed)
        return mlff_fail(MLFF_ERR_UNSUPPORTED,
                         "%s: its forces are not the derivative of atoms' energies; it cannot have a core repulsion",
                         model->name);
    if (2 * largest >= model->cutoff)
        return mlff_fail(MLFF_ERR_VALUE,
                         "%s: a core repulsion below %g of the covalent distance reaches beyond its cutoff of %g Å", model->name,
                         model->core_repulsion, model->cutoff);
    base_text_add(&text, "%s, core repulsion below %g of the covalent distance", model->description, model->core_repulsion);
    base_free(model->description);
    model->description = text.text;
    return text.status;
}

// The file name without folder and suffix; the caller's.
static char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *name = base_strdup(slash ? slash + 1 : path);
    char *dot = name ? strrchr(name, '.') : NULL;
    if (dot && dot != name) *dot = 0;
    return name;
}

mlff_status model_from_weights(model_weights *weights, const char *path, mlff_model **model_out)
{
    mlff_status status = MLFF_OK;
    mlff_model *model = base_alloc(1, sizeof *model, "a model");
    if (!model) {
        weights_free(weights);
        return MLFF_ERR_MEMORY;
    }
    model->file = *weights;
    *weights = (model_weights){0};
    char *name = name_of(path);
    model->name = base_strdup(path); // named by its path in errors, until all is checked
    if (!name || !model->name) {
        status = MLFF_ERR_MEMORY;
        goto done;
    }
    char known[256];
    const char *format = weights_get(&model->file, "format");
    const char *architecture = weights_get(&model->file, "architecture");
    if (!format || strcmp(format, "mlff") != 0 || !architecture)
        MLFF_FAIL(MLFF_ERR_FORMAT, "%s: its metadata is not that of a model file; make one with: mlff import", path);
    const model_architecture *found = model_architecture_find(architecture);
    if (!found)
        MLFF_FAIL(MLFF_ERR_UNSUPPORTED, "%s: its architecture is \"%.40s\"; this version has %s", path, architecture,
                  known_architectures(known, sizeof known));
    MLFF_TRY(read_common(model));
    model->architecture = found;
    model->n_members = 1;
    MLFF_TRY(found->load(model));
    MLFF_TRY(check_core_repulsion(model));

    base_free(model->name);
    model->name = name;
    name = NULL;
    *model_out = model;
    model = NULL;
done:
    base_free(name);
    mlff_model_destroy(model);
    return status;
}

// ---- files

enum file_kind { FILE_SAFETENSORS, FILE_ZIP, FILE_PICKLE, FILE_NEUROCHEM, FILE_FNX, FILE_UNKNOWN };

static bool has_suffix(const char *path, const char *suffix)
{
    size_t length = strlen(path), n = strlen(suffix);
    return length > n && strcmp(path + length - n, suffix) == 0;
}

static mlff_status file_kind_of(const char *path, enum file_kind *kind_out)
{
    unsigned char start[9] = {0};
    struct stat there;
    if (stat(path, &there) == 0 && S_ISFIFO(there.st_mode))
        return mlff_fail(MLFF_ERR_IO, "%s: is a pipe, and a model is read more than once; give a file", path);
    FILE *file = fopen(path, "rb");
    if (!file) return base_fail_reading(path, errno);
    errno = 0;
    size_t length = fread(start, 1, sizeof start, file);
    int failed = ferror(file) ? errno : 0;
    fclose(file);
    if (failed) return base_fail_reading(path, failed);
    if (length == 0) return mlff_fail(MLFF_ERR_FORMAT, "%s: is empty", path);
    if (length == 9 && start[8] == '{' && memcmp(start + 4, "\0\0\0\0", 4) == 0) // a header of less than 4 GB
        *kind_out = FILE_SAFETENSORS;
    else if (memcmp(start, "PK", 2) == 0)
        *kind_out = FILE_ZIP;
    else if (has_suffix(path, ".info"))
        *kind_out = FILE_NEUROCHEM;
    else if (has_suffix(path, ".fnx"))
        *kind_out = FILE_FNX;
    else
        *kind_out = start[0] == 0x80 ? FILE_PICKLE : FILE_UNKNOWN;
    return MLFF_OK;
}

mlff_status mlff_model_load(const char *name, mlff_model **model_out)
{
    mlff_status status = MLFF_OK;
    model_weights weights = {0};
    enum file_kind kind = FILE_UNKNOWN;
    char *path = NULL;

    if (!name || !model_out) return mlff_fail(MLFF_ERR_USAGE, "mlff_model_load: path and model_out must be given");
    MLFF_TRY(model_path_find(name, &path));
    MLFF_TRY(file_kind_of(path, &kind));
    if (kind == FILE_ZIP || kind == FILE_PICKLE)
        MLFF_FAIL(MLFF_ERR_FORMAT, "%s: is a PyTorch file, not a model file; convert it once: mlff import %s -o NAME.safetensors",
                  path, path);
    if (kind == FILE_NEUROCHEM || kind == FILE_FNX)
        MLFF_FAIL(MLFF_ERR_FORMAT, "%s: is a %s file, not a model file; convert it once: mlff import %s -o NAME.safetensors",
                  path, kind == FILE_FNX ? "FeNNol" : "NeuroChem", path);
    MLFF_TRY(weights_read(path, &weights));
    MLFF_TRY(model_from_weights(&weights, path, model_out));
done:
    base_free(path);
    weights_free(&weights);
    return status;
}

mlff_status mlff_model_save(const mlff_model *model, const char *path)
{
    if (!model || !path) return mlff_fail(MLFF_ERR_USAGE, "mlff_model_save: model and path must be given");
    return weights_write(&model->file, path);
}

mlff_import_options mlff_import_options_default(void)
{
    return (mlff_import_options){.struct_size = sizeof(mlff_import_options)};
}

enum { MAX_TORCH_BYTES = 0x7fffffff };

// A zip of torch.save: a SchNetPack model or an Orb checkpoint, told apart by what was saved.
static mlff_status torch_read(const char *path, const mlff_import_options *options, model_weights *weights_out)
{
    mlff_status status = MLFF_OK;
    torch_file *file = NULL;
    char *bytes = NULL;
    size_t length = 0;
    MLFF_TRY(base_read_file(path, MAX_TORCH_BYTES, &bytes, &length));
    MLFF_TRY(torch_file_parse(bytes, length, path, &file));
    if (orb_checkpoint_matches(file))
        MLFF_TRY(orb_checkpoint_read(file, path, options, weights_out));
    else
        MLFF_TRY(schnetpack_read(file, path, options, weights_out));
done:
    torch_file_destroy(file);
    base_free(bytes);
    return status;
}

mlff_status mlff_model_import(const char *path, const mlff_import_options *options, mlff_model **model_out)
{
    mlff_status status = MLFF_OK;
    mlff_import_options wanted = mlff_import_options_default();
    model_weights weights = {0};
    enum file_kind kind = FILE_UNKNOWN;

    if (!path || !model_out) return mlff_fail(MLFF_ERR_USAGE, "mlff_model_import: path and model_out must be given");
    MLFF_TRY(base_take_options("mlff_model_import", "mlff_import_options", options, sizeof wanted, &wanted));
    MLFF_TRY(file_kind_of(path, &kind));
    if (kind == FILE_SAFETENSORS)
        MLFF_FAIL(MLFF_ERR_USAGE, "%s: is a safetensors file: nothing to import; load it directly", path);
    if (kind == FILE_PICKLE || kind == FILE_UNKNOWN)
        MLFF_FAIL(MLFF_ERR_FORMAT,
                  "%s: neither a SchNetPack model nor an Orb checkpoint (a zip as torch.save writes it since PyTorch 1.6)%s, nor "
                  "NeuroChem's (.info) or FeNNol's (.fnx)",
                  path, kind == FILE_PICKLE ? "; a bare pickle: save it again with a newer PyTorch" : "");
    if (kind == FILE_NEUROCHEM)
        MLFF_TRY(neurochem_read(path, &weights));
    else if (kind == FILE_FNX)
        MLFF_TRY(fnx_read(path, &weights));
    else
        MLFF_TRY(torch_read(path, &wanted, &weights));
    MLFF_TRY(model_from_weights(&weights, path, model_out));
    if ((*model_out)->n_elements == 0)
        base_warn("%s: the elements it was trained on are not in the file, so that no element is refused; give them, as H,C,O",
                  path);
done:
    weights_free(&weights);
    return status;
}

// ---- new models

mlff_status mlff_model_create(const char *architecture, const mlff_setting *settings, mlff_model **model_out)
{
    mlff_status status = MLFF_OK;
    model_weights weights = {0};
    char text[256];
    void *options = NULL;
    const model_published *published = NULL;
    if (!model_out) return mlff_fail(MLFF_ERR_USAGE, "mlff_model_create: model_out must be given");
    const model_architecture *found = architecture ? model_architecture_find(architecture) : model_architecture_of_students();
    if (!found && architecture) published = model_published_find(architecture, &found);
    if (!found || !found->create)
        return mlff_fail(MLFF_ERR_USAGE,
                         "architecture '%.40s' is not one of %s, nor a published model such as orb-v3 or fennol-ani2x",
                         architecture ? architecture : "of students", known_architectures(text, sizeof text));
    if (!(options = base_alloc(1, found->options_bytes, "settings"))) return MLFF_ERR_MEMORY;
    MLFF_TRY(model_settings_parse(found->name, found->settings, published ? published->settings : NULL, settings, options));
    MLFF_TRY(found->create(options, &weights));
    snprintf(text, sizeof text, "%.200s-untrained", architecture ? architecture : found->name);
    MLFF_TRY(model_from_weights(&weights, text, model_out));
done:
    base_free(options);
    weights_free(&weights);
    return status;
}

const char *mlff_architecture_name(int index)
{
    return index >= 0 && index < MODEL_MAX_ARCHITECTURES && architectures[index] ? architectures[index]->name : NULL;
}

const char *mlff_architecture_setting(const char *architecture, int index, const char **default_out, const char **description_out)
{
    const model_architecture *found = architecture ? model_architecture_find(architecture) : NULL;
    const model_published *published = architecture && !found ? model_published_find(architecture, &found) : NULL;
    if (!found || !found->settings || index < 0) return NULL;
    for (int i = 0; i < index; i++)
        if (!found->settings[i].name) return NULL;
    const model_setting *setting = &found->settings[index];
    if (setting->name && default_out) *default_out = setting->value;
    for (const mlff_setting *own = published ? published->settings : NULL; own && own->name && setting->name && default_out;
         own++)
        if (strcmp(own->name, setting->name) == 0) *default_out = own->value;
    if (setting->name && description_out) *description_out = setting->description;
    return setting->name;
}

void mlff_model_destroy(mlff_model *model)
{
    if (!model) return;
    if (model->architecture) model->architecture->destroy(model);
    weights_free(&model->file);
    base_free(model->description);
    base_free(model->name);
    base_free(model);
}

void mlff_model_info_get(const mlff_model *model, mlff_model_info *info_out)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < model->file.n_tensors; i++)
        bytes += model->file.tensors[i].n_elements * (model->file.tensors[i].is_double ? 8 : 4);
    *info_out = (mlff_model_info){
        .architecture = model->architecture->name,
        .name = model->name,
        .description = model->description,
        .reference = model->architecture->reference,
        .cutoff_angstrom = model->cutoff,
        .n_layers = model->n_layers,
        .n_parameters = model->n_parameters,
        .n_bytes = bytes,
        .trained = model->trained,
        .conservative = model_is_conservative(model),
        .has_atom_energies = (model->outputs & MODEL_ATOM_ENERGY) != 0,
        .energy_unit_ev = model->energy_unit,
        .length_unit_angstrom = model->length_unit,
        .n_elements = model->n_elements,
        .elements = model->elements,
        .n_members = model->n_members,
    };
}

unsigned mlff_model_outputs(const mlff_model *model)
{
    const unsigned has = model->outputs;
    unsigned outputs = MLFF_OUTPUT_ENERGIES;
    if (has & MODEL_ATOM_ENERGY) outputs |= MLFF_OUTPUT_ATOM_ENERGIES;
    if (has & (MODEL_PAIR_GRADIENT | MODEL_ATOM_FORCE)) outputs |= MLFF_OUTPUT_FORCES;
    if (has & (MODEL_PAIR_GRADIENT | MODEL_STRESS)) outputs |= MLFF_OUTPUT_STRESS;
    if (has & MODEL_PAIR_GRADIENT) outputs |= MLFF_OUTPUT_VIRIALS;
    if (has & MODEL_FORCE_ERROR) outputs |= MLFF_OUTPUT_FORCE_ERRORS;
    return outputs;
}

int mlff_model_depends_on_charge(const mlff_model *model)
{
    return weights_is_true(&model->file, "conditioned");
}

const char *mlff_model_metadata(const mlff_model *model, int index, const char **value_out)
{
    if (index < 0 || (size_t)index >= model->file.n_keys) return NULL;
    if (value_out) *value_out = model->file.values[index];
    return model->file.keys[index];
}

int mlff_model_extrapolates_at(const mlff_model *model, double temperature_kelvin, double *highest_out)
{
    static const double far_from_training = 1.25;
    const char *text = weights_get(&model->file, "training.highest_kelvin");
    double highest = INFINITY;
    if (text && !base_parse_double(text, &highest)) highest = INFINITY;
    if (highest_out) *highest_out = highest;
    return temperature_kelvin > far_from_training * highest;
}

size_t mlff_abi_size(const char *struct_name)
{
    static const struct {
        const char *name;
        size_t size;
    } sizes[] = {
#define SIZE(type) {#type, sizeof(type)}
        SIZE(mlff_system),
        SIZE(mlff_pairs),
        SIZE(mlff_batch),
        SIZE(mlff_frame_results),
        SIZE(mlff_builder_info),
        SIZE(mlff_neighbors_info),
        SIZE(mlff_dynamics_options),
        SIZE(mlff_dynamics_state),
        SIZE(mlff_relax_options),
        SIZE(mlff_relaxed),
        SIZE(mlff_relax_queue),
        SIZE(mlff_vibrations),
        SIZE(mlff_device),
        SIZE(mlff_import_options),
        SIZE(mlff_setting),
        SIZE(mlff_model_info),
        SIZE(mlff_halo_array),
        SIZE(mlff_halo),
        SIZE(mlff_evaluator_options),
        SIZE(mlff_results),
        SIZE(mlff_stage),
        SIZE(mlff_evaluator_info),
        SIZE(mlff_domain_info),
        SIZE(mlff_work_size),
        SIZE(mlff_stage_work),
        SIZE(mlff_stage_span),
        SIZE(mlff_device_info),
        SIZE(mlff_device_memory),
        SIZE(mlff_labels),
        SIZE(mlff_loss),
        SIZE(mlff_trainer_options),
        SIZE(mlff_training_errors),
        SIZE(mlff_distill_config),
        SIZE(mlff_distill_progress),
        SIZE(mlff_distill_options),
        SIZE(mlff_read_options),
        SIZE(mlff_teacher_options),
        SIZE(mlff_teacher_info),
        SIZE(mlff_label),
        SIZE(mlff_shard_info),
        SIZE(mlff_label_progress),
        SIZE(mlff_label_options),
        SIZE(mlff_sample_options),
        SIZE(mlff_sample_progress),
        SIZE(mlff_explore_options),
        SIZE(mlff_explore_info),
#undef SIZE
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (strcmp(sizes[i].name, struct_name) == 0) return sizes[i].size;
    return 0;
}
