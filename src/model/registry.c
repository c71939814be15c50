// SPDX-License-Identifier: MIT
// registry.c: architectures by name; loading, saving, importing and creating models.
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "atoms/elements/covalent.h"
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

// The largest mean that metadata may have, 1e12, in the largest unit, 1e6 eV. Sums of larger ones would not be finite.
static mlff_status check_offsets(const mlff_model *model)
{
    for (int z = 1; z <= MLFF_MAX_ATOMIC_NUMBER; z++)
        if (!(fabs(model->offset[z]) <= 2e18))
            return mlff_fail(MLFF_ERR_VALUE, "%s: the energy of a single atom of %s is %g eV; expected less than 2e18 eV",
                             model->name, mlff_element_symbol(z), model->offset[z]);
    return MLFF_OK;
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
    if (format && strcmp(format, MODEL_CHECKPOINT_FORMAT) == 0)
        MLFF_FAIL(
            MLFF_ERR_FORMAT,
            "%s: is a checkpoint of a training, not a model; mlff info tells of it, and its best student so far is beside it, "
            "a file that ends in .best.safetensors",
            path);
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
    MLFF_TRY(check_offsets(model));
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
        *kind_out = start[0] == 0x80 && start[1] >= 1 && start[1] <= 5 ? FILE_PICKLE : FILE_UNKNOWN; // the protocol
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

// An ANI's files say their units and elements themselves: an option that says otherwise is refused, not ignored.
static mlff_status check_ani_options(const char *path, const mlff_import_options *options, const model_weights *weights)
{
    mlff_status status = MLFF_OK;
    model_weights given = {0};
    double unit = 0, own = 0;
    const char *elements = weights_get(weights, "elements");
    if (options->energy_unit) {
        MLFF_TRY(model_energy_unit(options->energy_unit, &unit));
        if (!base_parse_double(weights_get(weights, "energy_unit_ev"), &own) || unit != own)
            MLFF_FAIL(MLFF_ERR_USAGE, "%s: says itself that its energy unit is %g eV, not %s; leave the energy unit out", path,
                      own, options->energy_unit);
    }
    if (options->length_unit && strcmp(options->length_unit, "Ang") != 0)
        MLFF_FAIL(MLFF_ERR_USAGE, "%s: lengths of an ANI model are in Å; leave the length unit out", path);
    if (options->elements) {
        MLFF_TRY(model_elements_set(&given, options->elements));
        if (strcmp(weights_get(&given, "elements"), elements) != 0)
            MLFF_FAIL(MLFF_ERR_USAGE, "%s: says itself that its elements are %s; leave the elements out", path,
                      weights_get(weights, "species"));
    }
done:
    weights_free(&given);
    return status;
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
    if (kind == FILE_NEUROCHEM || kind == FILE_FNX) MLFF_TRY(check_ani_options(path, &wanted, &weights));
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
