// SPDX-License-Identifier: MIT
// ani.c: ANI as a row of the registry: checks a file's tensors and metadata and lays out the parameters.
#include "ani.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "device/device.h"
#include "model/weights/tensors.h"

// What model->parameters points to.
typedef struct ani_model {
    ani_parameters parameters; // first: the backends see only this
    model_taken taken;
} ani_model;

const mlff_stage ani_stages[ANI_N_STAGES] = {
    [ANI_RADIAL] = {"aev_radial", "forward", -1, "distances, cutoffs"},
    [ANI_ANGULAR] = {"aev_angular", "forward", -1, ""},
    [ANI_NETWORK] = {"network", "forward", -1, ""},
    [ANI_NETWORK_BACKWARD] = {"network_backward", "backward", -1, ""},
    [ANI_AEV_BACKWARD] = {"aev_backward", "backward", -1, "pair gradients"},
};

int ani_species_parse(const char *list, char symbols[ANI_MAX_SPECIES][4])
{
    int n = 0;
    for (const char *token = list;; token++) {
        size_t length = strcspn(token, ",");
        if (length < 1 || length > 3 || n == ANI_MAX_SPECIES) return 0;
        memcpy(symbols[n], token, length);
        symbols[n][length] = 0;
        if (mlff_element_number(symbols[n]) == 0) return 0;
        for (int k = 0; k < n; k++)
            if (strcmp(symbols[k], symbols[n]) == 0) return 0;
        n++;
        token += length;
        if (*token == 0) return n;
    }
}

int ani_members(const ani_parameters *parameters, const cpu_options *options, int members[ANI_MAX_MEMBERS])
{
    int n = options->n_members ? options->n_members : parameters->n_members;
    for (int k = 0; k < n; k++) members[k] = options->n_members ? options->members[k] : k;
    return n;
}

// ---- loading ----------------------------------------------------------------------------------------------------

static mlff_status take_network(mlff_model *model, int member, const char *symbol, ani_network *network)
{
    mlff_status status = MLFF_OK;
    ani_model *ani = model->parameters;
    int64_t width = ani->parameters.length;
    network->width[0] = (int)width;
    for (int l = 0;; l++) {
        char weight_name[128], bias_name[128];
        snprintf(weight_name, sizeof weight_name, "member.%d.%s.%d.weight", member, symbol, l);
        snprintf(bias_name, sizeof bias_name, "member.%d.%s.%d.bias", member, symbol, l);
        const model_tensor *weight = weights_find(&model->file, weight_name);
        if (!weight && l > 0) break;
        if (l == ANI_MAX_LAYERS)
            MLFF_FAIL(MLFF_ERR_LIMIT, "%s: the network of %s has more than %d layers", model->name, symbol, ANI_MAX_LAYERS);
        int64_t rows = weight ? weight->shape[0] : 1;
        if (rows < 1 || rows > ANI_MAX_WIDTH)
            MLFF_FAIL(MLFF_ERR_FORMAT, "%s: tensor %s has %" PRId64 " rows; expected 1 to %d", model->name, weight_name, rows,
                      ANI_MAX_WIDTH);
        MLFF_TRY(model_take(model, &ani->taken, false, &network->weight[l], 2, (int64_t[]){rows, width}, weight_name));
        MLFF_TRY(model_take(model, &ani->taken, false, &network->bias[l], 1, &rows, bias_name));
        width = rows;
        network->width[l + 1] = (int)width;
        network->n_layers = l + 1;
        model->n_parameters += (int64_t)(network->width[l] + 1) * rows;
    }
    if (network->n_layers < 2) MLFF_FAIL(MLFF_ERR_UNSUPPORTED, "%s: the network of %s has no hidden layer", model->name, symbol);
    if (width != 1)
        MLFF_FAIL(MLFF_ERR_FORMAT, "%s: the network of %s in member %d gives %" PRId64 " numbers; expected 1, the energy",
                  model->name, symbol, member, width);
done:
    return status;
}

static mlff_status read_settings(mlff_model *model, char symbols[ANI_MAX_SPECIES][4])
{
    static const char *const activations[] = {"celu_0.1", NULL};
    mlff_status status = MLFF_OK;
    ani_parameters *P = &((ani_model *)model->parameters)->parameters;
    int choice = 0;

    MLFF_TRY(model_metadata_count(model, "n_members", 1, ANI_MAX_MEMBERS, &P->n_members));
    MLFF_TRY(model_metadata_count(model, "n_radial", 1, ANI_MAX_GRID, &P->n_radial));
    MLFF_TRY(model_metadata_count(model, "n_angular_shifts", 1, ANI_MAX_GRID, &P->n_shifts));
    MLFF_TRY(model_metadata_count(model, "n_angle_sections", 1, ANI_MAX_GRID, &P->n_sections));
    MLFF_TRY(model_metadata_number(model, "radial_cutoff", 1e-3, 1e2, &P->radial_cutoff));
    MLFF_TRY(model_metadata_number(model, "angular_cutoff", 1e-3, 1e2, &P->angular_cutoff));
    MLFF_TRY(model_metadata_number(model, "eta_radial", 0, 1e6, &P->eta_radial));
    MLFF_TRY(model_metadata_number(model, "eta_angular", 0, 1e6, &P->eta_angular));
    MLFF_TRY(model_metadata_number(model, "zeta", 1, 1e4, &P->zeta));
    MLFF_TRY(model_metadata_choice(model, "activation", activations, &choice));
    if (model->length_unit != 1.0)
        MLFF_FAIL(MLFF_ERR_FORMAT, "%s: its length unit is %g Å; lengths of an ANI are in Å", model->name, model->length_unit);

    const char *species = weights_get(&model->file, "species");
    P->n_species = species ? ani_species_parse(species, symbols) : 0;
    if (P->n_species == 0)
        MLFF_FAIL(MLFF_ERR_FORMAT, "%s: metadata species is \"%.60s\"; expected up to %d symbols such as H,C,N,O", model->name,
                  species ? species : "", ANI_MAX_SPECIES);
    for (int z = 0; z <= MLFF_MAX_ATOMIC_NUMBER; z++) P->species_of[z] = -1;
    bool agree = model->n_elements == P->n_species;
    for (int s = 0; s < P->n_species; s++) {
        int z = P->atomic_number[s] = mlff_element_number(symbols[s]);
        P->species_of[z] = s;
        agree = agree && model->known[z];
    }
    if (!agree)
        MLFF_FAIL(MLFF_ERR_FORMAT, "%s: metadata species %s and elements %s are not the same elements", model->name, species,
                  weights_get(&model->file, "elements"));
    P->length = P->n_species * P->n_radial + P->n_species * (P->n_species + 1) / 2 * P->n_shifts * P->n_sections;
done:
    return status;
}

static mlff_status describe(mlff_model *model)
{
    const ani_parameters *P = &((ani_model *)model->parameters)->parameters;
    base_text text = {0};
    base_text_add(&text, "ANI, %d member%s, %s, AEV of %d (%d radial to %g Å; %d × %d angular to %g Å, zeta %g)%s", P->n_members,
                  base_plural(P->n_members), weights_get(&model->file, "species"), P->length, P->n_radial, P->radial_cutoff,
                  P->n_shifts, P->n_sections, P->angular_cutoff, P->zeta, model->trained ? "" : ", untrained");
    model->description = text.text; // also on failure: destroyed with the model
    return text.status;
}

static mlff_status ani_load(mlff_model *model)
{
    mlff_status status = MLFF_OK;
    char symbols[ANI_MAX_SPECIES][4];
    double self_energy[ANI_MAX_SPECIES];
    ani_model *ani = base_alloc(1, sizeof *ani, "a model");
    if (!ani) return MLFF_ERR_MEMORY;
    model->parameters = ani;
    ani_parameters *P = &ani->parameters;

    MLFF_TRY(model_taken_create(model, &ani->taken));
    MLFF_TRY(read_settings(model, symbols));
    MLFF_TRY(model_take_doubles(model, &ani->taken, P->radial_shift, P->n_radial, "aev.radial_shift"));
    MLFF_TRY(model_take_doubles(model, &ani->taken, P->angular_shift, P->n_shifts, "aev.angular_shift"));
    MLFF_TRY(model_take_doubles(model, &ani->taken, P->section, P->n_sections, "aev.angle_section"));
    MLFF_TRY(model_take_doubles(model, &ani->taken, self_energy, P->n_species, "self_energy"));
    if (!(P->network = base_alloc((size_t)P->n_members, sizeof *P->network, "networks"))) return MLFF_ERR_MEMORY;
    for (int m = 0; m < P->n_members; m++)
        for (int s = 0; s < P->n_species; s++) MLFF_TRY(take_network(model, m, symbols[s], &P->network[m][s]));
    for (int s = 0; s < P->n_species; s++) model->offset[P->atomic_number[s]] = self_energy[s] * model->energy_unit;
    MLFF_TRY(model_taken_all(model, &ani->taken));
    model->cutoff = fmax(P->radial_cutoff, P->angular_cutoff);
    model->n_layers = 1;
    model->n_members = P->n_members;
    model->outputs = MODEL_ATOM_ENERGY | MODEL_PAIR_GRADIENT;
    MLFF_TRY(describe(model));
done:
    return status;
}

static mlff_status ani_create_cpu(const mlff_model *model, const cpu_options *options, model_backend **backend_out)
{
    return options->precision == MLFF_FLOAT64 ? ani_reference_create(model, options, backend_out)
                                              : ani_cpu_create(model, options, backend_out);
}

static void ani_destroy(mlff_model *model)
{
    ani_model *ani = model->parameters;
    if (!ani) return;
    model_taken_free(&ani->taken);
    base_free(ani->parameters.network);
    base_free(ani);
    model->parameters = NULL;
}

// The defaults of the settings are ANI-2x's sizes.
static const model_published published[] = {
    {{"fennol-ani2x", "ani2x", "ani-2x"},
     "its weights are public (MIT): ani-2x_8x.info and the files it names, in the folder resources of "
     "github.com/aiqm/ani-model-zoo; then: mlff import ani-2x_8x.info --install fennol-ani2x; untrained, to measure speed: "
     "mlff new --arch fennol-ani2x -o FILE",
     NULL},
    {.names = {NULL}}};

const model_architecture ani_architecture = {
    .name = "ani",
    .title = "ANI",
    .ensemble = true,
    .reference =
        "J. S. Smith, O. Isayev, A. E. Roitberg, ANI-1: an extensible neural network potential with DFT accuracy at force field "
        "computational cost, Chem. Sci. 2017, 8, 3192, doi:10.1039/C6SC05720A; ANI-2x: C. Devereux et al., J. Chem. Theory "
        "Comput. 2020, 16, 4192, doi:10.1021/acs.jctc.0c00121",
    .load = ani_load,
    .create_cpu = ani_create_cpu,
    .parameters_bytes = sizeof(ani_parameters),
    .destroy = ani_destroy,
    .settings = ani_new_settings,
    .options_bytes = sizeof(ani_options),
    .create = ani_new,
    .stages = ani_stage_descriptions,
    .published = published,
};
