/* SPDX-License-Identifier: MIT */
/* ani.h: parameters of an ANI ensemble, shared by its implementations. Symbols as in README.md of this folder. */
#ifndef ANI_H
#define ANI_H

#include "model/model.h"

enum {
    ANI_MAX_SPECIES = 16,
    ANI_MAX_MEMBERS = 64,
    ANI_MAX_LAYERS = 8,
    ANI_MAX_GRID = 64, /* radial shifts, angular shifts, sections */
    ANI_MAX_WIDTH = 4096
};

/* What NeuroChem has and the paper has not. */
#define ANI_RADIAL_FACTOR 0.25
#define ANI_COSINE_FACTOR 0.95
#define ANI_CELU_ALPHA 0.1

/* Dense layers with CELU between, the last one linear with one output. */
typedef struct ani_network {
    int n_layers, width[ANI_MAX_LAYERS + 1];                    /* AEV length, …, 1 */
    const float *weight[ANI_MAX_LAYERS], *bias[ANI_MAX_LAYERS]; /* [out][in], [out] */
} ani_network;

typedef struct ani_parameters {
    int n_species, n_members;
    int atomic_number[ANI_MAX_SPECIES];
    int species_of[MLFF_MAX_ATOMIC_NUMBER + 1]; /* index of a species by atomic number, −1 where unknown */
    int n_radial, n_shifts, n_sections;
    double radial_cutoff, angular_cutoff; /* Å */
    double eta_radial, eta_angular, zeta;
    double radial_shift[ANI_MAX_GRID], angular_shift[ANI_MAX_GRID], section[ANI_MAX_GRID];
    int length;                              /* of the AEV */
    ani_network (*network)[ANI_MAX_SPECIES]; /* [n_members][…] */
} ani_parameters;

/* Place of the unordered pair of species p, q in the angular part: rows of the upper triangle of n species. */
static inline int ani_pair_index(int n, int p, int q)
{
    int low = p < q ? p : q, high = p < q ? q : p;
    return low * n - low * (low - 1) / 2 + (high - low);
}

/* Members this evaluator runs: those of the options, or all. Returns their number. */
int ani_members(const ani_parameters *parameters, const cpu_options *options, int members[ANI_MAX_MEMBERS]);

enum ani_stage { ANI_RADIAL, ANI_ANGULAR, ANI_NETWORK, ANI_NETWORK_BACKWARD, ANI_AEV_BACKWARD, ANI_N_STAGES };
extern const mlff_stage ani_stages[ANI_N_STAGES];

/* float64, plain: ani_reference.c. */
mlff_status ani_reference_create(const mlff_model *model, const cpu_options *options, model_backend **backend_out);
/* float32, fast: ani_cpu.c. */
mlff_status ani_cpu_create(const mlff_model *model, const cpu_options *options, model_backend **backend_out);

/* What an importer fills before it adds the networks. Shifts and sections are arrays of doubles. */
typedef struct ani_settings {
    char species[128]; /* "H,C,N,O" */
    int n_species, n_members;
    int n_radial, n_shifts, n_sections;
    double radial_cutoff, angular_cutoff, eta_radial, eta_angular, zeta;
    double radial_shift[ANI_MAX_GRID], angular_shift[ANI_MAX_GRID], section[ANI_MAX_GRID];
    double self_energy[ANI_MAX_SPECIES];
    double energy_unit; /* eV */
} ani_settings;
mlff_status ani_settings_write(const ani_settings *settings, const char *source, model_weights *weights);
int ani_length(const ani_settings *settings);
/* Symbols of a list such as "H,C,N,O" one by one: fills `symbols`, returns their number, 0 where it is no such list. */
int ani_species_parse(const char *list, char symbols[ANI_MAX_SPECIES][4]);

/* Settings of an untrained ensemble. */
typedef struct ani_options {
    int n_members, n_radial, n_shifts, n_sections;
    double cutoff, angular_cutoff; /* Å */
    const char *elements, *hidden; /* hidden: widths such as "160,128,96"; NULL: ANI-2x's, which differ by element */
    uint64_t seed;
} ani_options;
extern const model_setting ani_new_settings[];
extern const model_stage ani_stage_descriptions[];
/* Weights of an untrained ensemble. `options` is an ani_options within the ranges of ani_new_settings. Fails with
 * MLFF_ERR_USAGE, MLFF_ERR_MEMORY. */
mlff_status ani_new(const void *options, model_weights *weights_out);

#endif
