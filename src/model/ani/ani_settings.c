// SPDX-License-Identifier: MIT
// ani_settings.c: the settings of an ANI model file, and an untrained ensemble of ANI-2x's shape.
#include "ani.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

int ani_length(const ani_settings *settings)
{
    int n = settings->n_species;
    return n * settings->n_radial + n * (n + 1) / 2 * settings->n_shifts * settings->n_sections;
}

static mlff_status add_doubles(model_weights *weights, const char *name, int n, const double *values)
{
    model_tensor *tensor = weights_add(weights, name, 1, 1, (int64_t[]){n});
    if (!tensor) return MLFF_ERR_MEMORY;
    memcpy(tensor->data, values, sizeof *values * (size_t)n);
    return MLFF_OK;
}

mlff_status ani_settings_write(const ani_settings *s, const char *source, model_weights *weights)
{
    mlff_status status = MLFF_OK;
    MLFF_TRY(weights_set(weights, "format", "mlff"));
    MLFF_TRY(weights_set(weights, "architecture", "ani"));
    MLFF_TRY(weights_set(weights, "source", "%s", source));
    MLFF_TRY(weights_set(weights, "species", "%s", s->species));
    MLFF_TRY(model_elements_set(weights, s->species));
    MLFF_TRY(weights_set(weights, "n_members", "%d", s->n_members));
    MLFF_TRY(weights_set(weights, "n_radial", "%d", s->n_radial));
    MLFF_TRY(weights_set(weights, "n_angular_shifts", "%d", s->n_shifts));
    MLFF_TRY(weights_set(weights, "n_angle_sections", "%d", s->n_sections));
    MLFF_TRY(weights_set(weights, "radial_cutoff", "%.17g", s->radial_cutoff));
    MLFF_TRY(weights_set(weights, "angular_cutoff", "%.17g", s->angular_cutoff));
    MLFF_TRY(weights_set(weights, "eta_radial", "%.17g", s->eta_radial));
    MLFF_TRY(weights_set(weights, "eta_angular", "%.17g", s->eta_angular));
    MLFF_TRY(weights_set(weights, "zeta", "%.17g", s->zeta));
    MLFF_TRY(weights_set(weights, "activation", "celu_0.1"));
    MLFF_TRY(weights_set(weights, "energy_unit_ev", "%.17g", s->energy_unit));
    MLFF_TRY(weights_set(weights, "length_unit_angstrom", "1"));
    MLFF_TRY(weights_set(weights, "trained", "true"));
    MLFF_TRY(add_doubles(weights, "aev.radial_shift", s->n_radial, s->radial_shift));
    MLFF_TRY(add_doubles(weights, "aev.angular_shift", s->n_shifts, s->angular_shift));
    MLFF_TRY(add_doubles(weights, "aev.angle_section", s->n_sections, s->section));
    MLFF_TRY(add_doubles(weights, "self_energy", s->n_species, s->self_energy));
done:
    return status;
}

// ---- untrained ------------------------------------------------------------------------------------------------------

typedef struct widths {
    int n, of[ANI_MAX_LAYERS];
} widths;

// Hidden layers of an element in ANI-2x (Devereux et al. 2020); what it does not have is as wide as its narrowest.
static widths default_widths(const char *symbol)
{
    static const struct {
        const char *symbol;
        int width[3];
    } known[] = {{"H", {256, 192, 160}}, {"C", {224, 192, 160}}, {"N", {192, 160, 128}}, {"O", {192, 160, 128}}};
    widths result = {3, {160, 128, 96}};
    for (size_t k = 0; k < sizeof known / sizeof *known; k++)
        if (strcmp(symbol, known[k].symbol) == 0) memcpy(result.of, known[k].width, sizeof known[k].width);
    return result;
}

static mlff_status parse_widths(const char *text, widths *result)
{
    result->n = 0;
    for (const char *at = text; result->n < ANI_MAX_LAYERS - 1;) {
        char number[8];
        int64_t width;
        size_t length = strcspn(at, ",");
        snprintf(number, sizeof number, "%.*s", (int)(length < 7 ? length : 7), at);
        if (!base_parse_int64(number, &width) || width < 1 || width > ANI_MAX_WIDTH) break;
        result->of[result->n++] = (int)width;
        if (at[length] == 0) return MLFF_OK;
        at += length + 1;
    }
    return mlff_fail(MLFF_ERR_USAGE, "hidden layers \"%.60s\": expected 1 to %d widths from 1 to %d, such as 160,128,96", text,
                     ANI_MAX_LAYERS - 1, ANI_MAX_WIDTH);
}

#define AT(field) offsetof(ani_options, field)
const model_setting ani_new_settings[] = {
    {"n_members", "8", "members of the ensemble", SETTING_COUNT, AT(n_members), 1, ANI_MAX_MEMBERS, NULL},
    {"elements", "H,C,N,O,S,F,Cl", "elements; their order is that of the file", SETTING_TEXT, AT(elements), 0, 0, NULL},
    {"hidden", NULL, "widths of the hidden layers of every element, as 160,128,96; not set: ANI-2x's", SETTING_TEXT, AT(hidden),
     0, 0, NULL},
    {"cutoff", "5.1", "cutoff radius of the radial part, Å", SETTING_NUMBER, AT(cutoff), 1, 100, NULL},
    {"angular_cutoff", "3.5", "cutoff radius of the angular part, Å", SETTING_NUMBER, AT(angular_cutoff), 1, 100, NULL},
    {"n_radial", "16", "radial functions", SETTING_COUNT, AT(n_radial), 1, ANI_MAX_GRID, NULL},
    {"n_shifts", "8", "shifts of the angular part", SETTING_COUNT, AT(n_shifts), 1, ANI_MAX_GRID, NULL},
    {"n_sections", "4", "angles of the angular part", SETTING_COUNT, AT(n_sections), 1, ANI_MAX_GRID, NULL},
    {"seed", "0", "of the random weights", SETTING_SEED, AT(seed), 0, 0, NULL},
    {0}};
#undef AT

static mlff_status settings_of(const ani_options *o, ani_settings *s, char symbols[ANI_MAX_SPECIES][4])
{
    const double nearest = 0.8; // Å
    if (o->angular_cutoff > o->cutoff)
        return mlff_fail(MLFF_ERR_USAGE, "angular_cutoff is %g Å, more than the cutoff of the radial part, %g Å",
                         o->angular_cutoff, o->cutoff);
    *s = (ani_settings){.n_members = o->n_members,
                        .n_radial = o->n_radial,
                        .n_shifts = o->n_shifts,
                        .n_sections = o->n_sections,
                        .radial_cutoff = o->cutoff,
                        .angular_cutoff = o->angular_cutoff,
                        .eta_radial = 19.7,
                        .eta_angular = 12.5,
                        .zeta = 14.1,
                        .energy_unit = BASE_HARTREE_EV};
    snprintf(s->species, sizeof s->species, "%s", o->elements);
    s->n_species = ani_species_parse(s->species, symbols);
    if (s->n_species == 0)
        return mlff_fail(MLFF_ERR_USAGE, "elements \"%.60s\": expected up to %d different symbols such as H,C,N,O", o->elements,
                         ANI_MAX_SPECIES);
    for (int k = 0; k < s->n_radial; k++) s->radial_shift[k] = nearest + k * (s->radial_cutoff - nearest) / s->n_radial;
    for (int k = 0; k < s->n_shifts; k++) s->angular_shift[k] = nearest + k * (s->angular_cutoff - nearest) / s->n_shifts;
    for (int k = 0; k < s->n_sections; k++) s->section[k] = BASE_PI * (k + 0.5) / s->n_sections;
    return MLFF_OK;
}

static mlff_status add_network(model_weights *weights, const ani_settings *s, int member, int species, const char *symbol,
                               const widths *hidden, uint64_t seed)
{
    for (int l = 0, in = ani_length(s); l <= hidden->n; l++) {
        int out = l < hidden->n ? hidden->of[l] : 1;
        char name[128];
        snprintf(name, sizeof name, "member.%d.%s.%d.weight", member, symbol, l);
        model_tensor *weight = weights_add(weights, name, 0, 2, (int64_t[]){out, in});
        if (!weight) return MLFF_ERR_MEMORY;
        // He et al. 2015: the variance of a layer's output stays that of its input.
        double width = sqrt(2.0 / in);
        uint64_t stream = (uint64_t)((member * s->n_species + species) * (hidden->n + 1) + l);
        for (int64_t k = 0; k < weight->n_elements; k++)
            ((float *)weight->data)[k] = (float)(width * base_random_normal(seed, stream, (uint64_t)k));
        snprintf(name, sizeof name, "member.%d.%s.%d.bias", member, symbol, l);
        if (!weights_add(weights, name, 0, 1, (int64_t[]){out})) return MLFF_ERR_MEMORY;
        in = out;
    }
    return MLFF_OK;
}

mlff_status ani_new(const void *given, model_weights *weights_out)
{
    mlff_status status = MLFF_OK;
    const ani_options *options = given;
    model_weights weights = {0};
    char symbols[ANI_MAX_SPECIES][4];
    ani_settings s;
    widths hidden;
    MLFF_TRY(settings_of(options, &s, symbols));
    if (options->hidden) MLFF_TRY(parse_widths(options->hidden, &hidden));
    MLFF_TRY(ani_settings_write(&s, "untrained", &weights));
    MLFF_TRY(weights_set(&weights, "trained", "false"));
    MLFF_TRY(weights_set(&weights, "seed", "%llu", (unsigned long long)options->seed));
    for (int m = 0; m < s.n_members; m++)
        for (int e = 0; e < s.n_species; e++) {
            if (!options->hidden) hidden = default_widths(symbols[e]);
            MLFF_TRY(add_network(&weights, &s, m, e, symbols[e], &hidden, options->seed));
        }
    *weights_out = weights;
    weights = (model_weights){0};
done:
    weights_free(&weights);
    return status;
}
