// SPDX-License-Identifier: MIT
// ani_settings.c: what an ANI's file says beside its networks, and an untrained ensemble of ANI-2x's shape.
#include "ani.h"

#include <math.h>
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

// The shape of ANI-2x (Devereux et al. 2020), its weights drawn.
mlff_status ani_new(int n_members, uint64_t seed, model_weights *weights_out)
{
    static const int hidden[7][3] = {{256, 192, 160}, {224, 192, 160}, {192, 160, 128}, {192, 160, 128},
                                     {160, 128, 96},  {160, 128, 96},  {160, 128, 96}};
    mlff_status status = MLFF_OK;
    model_weights weights = {0};
    char symbols[ANI_MAX_SPECIES][4];
    ani_settings s = {.species = "H,C,N,O,S,F,Cl",
                      .n_species = 7,
                      .n_members = n_members,
                      .n_radial = 16,
                      .n_shifts = 8,
                      .n_sections = 4,
                      .radial_cutoff = 5.1,
                      .angular_cutoff = 3.5,
                      .eta_radial = 19.7,
                      .eta_angular = 12.5,
                      .zeta = 14.1,
                      .energy_unit = BASE_HARTREE_EV};
    for (int k = 0; k < 16; k++) s.radial_shift[k] = 0.8 + k * (5.1 - 0.8) / 16;
    for (int k = 0; k < 8; k++) s.angular_shift[k] = 0.8 + k * (3.5 - 0.8) / 8;
    for (int k = 0; k < 4; k++) s.section[k] = BASE_PI * (k + 0.5) / 4;
    ani_species_parse(s.species, symbols);
    MLFF_TRY(ani_settings_write(&s, "untrained", &weights));
    MLFF_TRY(weights_set(&weights, "trained", "false"));
    MLFF_TRY(weights_set(&weights, "seed", "%llu", (unsigned long long)seed));
    for (int m = 0; m < n_members; m++)
        for (int e = 0; e < 7; e++)
            for (int l = 0, in = ani_length(&s); l < 4; l++) {
                int out = l < 3 ? hidden[e][l] : 1;
                char name[128];
                snprintf(name, sizeof name, "member.%d.%s.%d.weight", m, symbols[e], l);
                model_tensor *weight = weights_add(&weights, name, 0, 2, (int64_t[]){out, in});
                if (!weight) MLFF_TRY(MLFF_ERR_MEMORY);
                // He et al. 2015: the variance of a layer's output stays that of its input.
                double width = sqrt(2.0 / in);
                for (int64_t k = 0; k < weight->n_elements; k++)
                    ((float *)weight->data)[k] =
                        (float)(width * base_random_normal(seed, (uint64_t)((m * 7 + e) * 4 + l), (uint64_t)k));
                snprintf(name, sizeof name, "member.%d.%s.%d.bias", m, symbols[e], l);
                if (!weights_add(&weights, name, 0, 1, (int64_t[]){out})) MLFF_TRY(MLFF_ERR_MEMORY);
                in = out;
            }
    *weights_out = weights;
    weights = (model_weights){0};
done:
    weights_free(&weights);
    return status;
}
