/* SPDX-License-Identifier: MIT */
/* ani_support.h: ANI models of the shared data, and systems of their elements. */
#ifndef ANI_SUPPORT_H
#define ANI_SUPPORT_H

#include "support.h"

#include "model/ani/ani.h"

/* The ANI-2x ensemble of the shared data, or NULL. */
SUPPORT mlff_model *ani_2x(void)
{
    const char *path = support_shared("data/ani2x/ani-2x_8x.info");
    mlff_model *model = NULL;
    if (path) assert_ok(mlff_model_import(path, NULL, &model));
    return model;
}

/* Member 0 of ANI-1x from its NeuroChem files, or NULL: the shared data has this member only, so that a list of one is
 * written beside a link to them. */
SUPPORT mlff_model *ani_1x(void)
{
    const char *folder = support_shared("data/ani1x/ani-1x_8x");
    char place[] = "/tmp/mlff-ani-XXXXXX", path[1100], target[4096];
    mlff_model *model = NULL;
    if (!folder) return NULL;
    assert_non_null(mkdtemp(place));
    assert_non_null(realpath(folder, target));
    snprintf(path, sizeof path, "%s/ani-1x_8x", place);
    assert_int_equal(symlink(target, path), 0);
    snprintf(path, sizeof path, "%s/ani-1x.info", place);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "ani-1x_8x/rHCNO-5.2R_16-3.5A_a4-8.params\nani-1x_8x/sae_linfit.dat\nani-1x_8x/train\n1\n");
    fclose(file);
    assert_ok(mlff_model_import(path, NULL, &model));
    remove(path);
    snprintf(path, sizeof path, "%s/ani-1x_8x", place);
    remove(path);
    remove(place);
    return model;
}

/* Any shape: shifts and sections spread evenly, one hidden layout for all species (ends with 0), random weights. */
typedef struct ani_form {
    const char *species;
    int n_members, n_radial, n_shifts, n_sections;
    double radial_cutoff, angular_cutoff, zeta;
    int hidden[4];
} ani_form;
static const ani_form ani_small_2x __attribute__((unused)) = {"H,C,N,O,S,F,Cl", 3, 16, 8, 4, 5.1, 3.5, 14.1, {48, 32, 16, 0}};

SUPPORT mlff_model *ani_shaped(const ani_form *form, uint64_t seed)
{
    model_weights weights = {0};
    mlff_model *model;
    char symbols[ANI_MAX_SPECIES][4], name[128];
    ani_settings s = {.n_members = form->n_members,
                      .n_radial = form->n_radial,
                      .n_shifts = form->n_shifts,
                      .n_sections = form->n_sections,
                      .radial_cutoff = form->radial_cutoff,
                      .angular_cutoff = form->angular_cutoff,
                      .eta_radial = 19.7,
                      .eta_angular = 12.5,
                      .zeta = form->zeta,
                      .energy_unit = BASE_HARTREE_EV};
    snprintf(s.species, sizeof s.species, "%s", form->species);
    s.n_species = ani_species_parse(s.species, symbols);
    for (int k = 0; k < s.n_radial; k++) s.radial_shift[k] = 0.8 + k * (s.radial_cutoff - 0.8) / s.n_radial;
    for (int k = 0; k < s.n_shifts; k++) s.angular_shift[k] = 0.8 + k * (s.angular_cutoff - 0.8) / s.n_shifts;
    for (int k = 0; k < s.n_sections; k++) s.section[k] = BASE_PI * (k + 0.5) / s.n_sections;
    for (int k = 0; k < s.n_species; k++) s.self_energy[k] = -1.0 - k;
    assert_ok(ani_settings_write(&s, "test", &weights));
    uint64_t stream = 0;
    for (int m = 0; m < s.n_members; m++)
        for (int e = 0; e < s.n_species; e++)
            for (int l = 0, in = ani_length(&s), out = 0; out != 1; l++, in = out, stream++) {
                out = form->hidden[l] ? form->hidden[l] : 1;
                for (int is_bias = 0; is_bias < 2; is_bias++) {
                    snprintf(name, sizeof name, "member.%d.%s.%d.%s", m, symbols[e], l, is_bias ? "bias" : "weight");
                    model_tensor *tensor = weights_add(&weights, name, 0, is_bias ? 1 : 2, (int64_t[]){out, in});
                    assert_non_null(tensor);
                    double width = is_bias ? 0.2 : l ? sqrt(2.0 / in) : 1.0; // an AEV has few elements of any size
                    for (int64_t k = 0; k < tensor->n_elements; k++)
                        ((float *)tensor->data)[k] =
                            (float)(width * base_random_normal(seed, 2 * stream + (uint64_t)is_bias, (uint64_t)k));
                }
            }
    assert_ok(model_from_weights(&weights, "test", &model));
    return model;
}

/* support_random_system with the first n_elements of H, C, N, O, S, F, Cl. */
SUPPORT mlff_system *ani_random_system(int n, int n_elements, int periodic, double closest, uint64_t seed)
{
    static const int elements[] = {1, 6, 7, 8, 16, 9, 17};
    mlff_system *system = support_random_system(n, periodic, closest, seed);
    for (int i = 0; i < n; i++) system->species[i] = elements[(int)(n_elements * base_random_uniform(seed, 9, (uint64_t)i))];
    return system;
}

/* O, H and Cl on a straight line, O in the middle. */
SUPPORT mlff_system *ani_line(double distance)
{
    mlff_system *line;
    assert_ok(mlff_system_create(3, &line));
    line->species[0] = 8;
    line->species[1] = 1;
    line->species[2] = 17;
    for (int i = 1; i < 3; i++) {
        line->positions[3 * i] = distance * 0.6 * (i == 2 ? -1 : 1);
        line->positions[3 * i + 1] = distance * 0.8 * (i == 2 ? -1 : 1);
    }
    return line;
}

#endif
