/* SPDX-License-Identifier: MIT */
/* painn.h: parameters of a PaiNN, shared by its implementations. Symbols as in README.md of this folder. */
#ifndef PAINN_H
#define PAINN_H

#include "model/model.h"

enum painn_basis { PAINN_GAUSSIAN, PAINN_BESSEL };
enum painn_cutoff { PAINN_COSINE, PAINN_MOLLIFIER };
enum painn_activation { PAINN_SILU, PAINN_SHIFTED_SOFTPLUS };

/* Weights are stored (out, in), y = x Wᵀ + b, as in the file; F features, K radial functions. */
typedef struct painn_layer {
    const float *filter_weight; /* [3F][K] blocks q, R, μ */
    const float *filter_bias;   /* [3F] */
    const float *W1, *b1;       /* [F][F], [F]     message network */
    const float *W2, *b2;       /* [3F][F], [3F]   blocks q, R, μ */
    const float *U;             /* [2F][F]         rows V, then B */
    const float *M1, *c1;       /* [F][2F], [F]    columns q', then n */
    const float *M2, *c2;       /* [3F][F], [3F]   blocks q, μ, t */
} painn_layer;

enum { PAINN_MAX_LAYERS = 16, PAINN_MAX_FEATURES = 1024, PAINN_MAX_RADIAL = 256, PAINN_MAX_READOUT = 8 };

typedef struct painn_parameters painn_parameters;
struct painn_parameters {
    int n_features, n_layers, n_radial, n_species; /* n_species: rows of the embedding */
    enum painn_basis basis;
    enum painn_cutoff cutoff_function;
    enum painn_activation activation;
    double cutoff;               /* model length units */
    double epsilon;              /* inside the norm's root */
    const float *center, *width; /* Gaussian: [K] each */
    const float *frequency;      /* Bessel: [K] */
    const float *embedding;      /* [n_species][F] */
    painn_layer layer[PAINN_MAX_LAYERS];
    int n_readout;                            /* linear layers of the readout, activation between */
    int readout_width[PAINN_MAX_READOUT + 1]; /* F, …, 1 */
    const float *readout_weight[PAINN_MAX_READOUT], *readout_bias[PAINN_MAX_READOUT]; /* [out][in], [out] */
    /* painn_radial, for the plugin, which does not link the library. */
    void (*radial)(const painn_parameters *parameters, double d, double *psi, double *derivative);
};

/* The radial functions and their derivative at distance d: psi[k] = φ_k(d) f(d), psi[K] = f(d); both [K + 1]. */
void painn_radial(const painn_parameters *parameters, double d, double *psi, double *derivative);

/* The stages of every CPU implementation: radial, then message and update of each layer, readout, and the same
 * backward. Freed with base_free. */
mlff_status painn_stages_create(int n_layers, mlff_stage **stages_out, int *n_out);

/* Settings of an untrained model. */
typedef struct painn_options {
    int n_features, n_layers, n_radial;
    double cutoff; /* Å */
    const char *radial_basis, *cutoff_function;
    int shared_filters, shared_interactions;
    double core_repulsion; /* onset; 0: none */
    const char *elements;  /* "H,C,O"; NULL: every element 1 to 99 */
    uint64_t seed;
} painn_options;
extern const model_setting painn_settings[];
extern const model_stage painn_stage_descriptions[];
/* Weights of an untrained model: SchNetPack's initialization. `options` is a painn_options within the ranges of painn_settings.
 * Fails with MLFF_ERR_ELEMENT, MLFF_ERR_MEMORY. */
mlff_status painn_new(const void *options, model_weights *weights_out);

/* The elements' own energies, eV by atomic number, as the file's tensor postprocessors.atomref; the mean becomes 0. */
mlff_status painn_set_shifts(model_weights *weights, const double shifts[MLFF_MAX_ATOMIC_NUMBER + 1]);

/* float64, plain, the paper: painn_reference.c. */
mlff_status painn_reference_create(const mlff_model *model, const cpu_options *options, model_backend **backend_out);
/* float32, fast: painn_cpu.c. */
mlff_status painn_cpu_create(const mlff_model *model, const cpu_options *options, model_backend **backend_out);

#endif
