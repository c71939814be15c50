/* SPDX-License-Identifier: MIT */
/* orb_model.h: parameters of an Orb model (v2, v3 direct, v3 conservative, OMol), shared by its implementations. Symbols as in
 * README.md of this folder.
 *
 * N atoms, P directed edges (sender i -> receiver j, vector r_j - r_i, at most max_neighbors for each sender), F features,
 * H hidden width, T layers. An MLP is Linear act Linear act Linear, and where it has a norm, that of its output. Data flow:
 *
 *   edges        [P]        the nearest max_neighbors pairs of each atom within the cutoff; the rest is dropped
 *   features     [P][D]     D edge inputs (Gaussians and direction, or Bessel × harmonics × envelope); envelope c [P]
 *   encoder      n [N][F]   node MLP of the embedding row of the element; the same for equal elements
 *                e [P][F]   edge MLP of the inputs
 *   each layer t = 0 .. T - 1:
 *     condition  n += condition z_s     z_s [F] of the system's charge and spin, OMol only
 *     gates      g_s, g_r [P]           sigmoid(w·e + b) c, with e before the update
 *     edge       m [P][F]               edge MLP of [e | n_sender | n_receiver]
 *     sums       A_s, A_r [N][F]        sum of g_s m over the row of an atom; sum of g_r m over the edges that end in it
 *     node       n += node MLP of [n | A_r | A_s],  e += m  (the last layer's e is not read)
 *   readout      mean of n over a system -> energy, stress (direct); n of an atom -> forces (direct), confidence
 *   forces       direct: the mean removed, without a cell the net torque removed, then scale and mean
 *   repulsion    ZBL pair term, where the model has it: sum over atoms, or their mean (see README.md) */
#ifndef ORB_MODEL_H
#define ORB_MODEL_H

#include "model/model.h"

/* Warning of a tie at the limit of neighbors: atoms concerned, all atoms, the limit. */
#define ORB_TIES_WARNING                                                                                                         \
    "%d of %d atoms have neighbors at the same distance of which only some are among the %d nearest that the model sees; "       \
    "which ones is arbitrary (here the first of the list), and forces depend on it: displace the atoms of a perfect "            \
    "crystal, or take a model with more neighbors"

enum orb_activation { ORB_SHIFTED_SOFTPLUS, ORB_SILU };
enum orb_norm { ORB_LAYER_NORM, ORB_RMS_NORM }; /* LayerNorm has a bias, RMSNorm none */
enum orb_edge_input { ORB_GAUSSIAN_UNIT, ORB_BESSEL_HARMONICS };
enum orb_repulsion { ORB_NO_REPULSION, ORB_REPULSION_SUM, ORB_REPULSION_MEAN };

enum {
    ORB_MAX_LAYERS = 32,
    ORB_MAX_FEATURES = 1024, /* F and the heads' hidden width */
    ORB_MAX_HIDDEN = 4096,
    ORB_MAX_RADIAL = 64,
    ORB_HARMONICS = 16, /* l = 0 .. 3 */
    ORB_MAX_NEIGHBORS = 1024,
    ORB_MAX_BINS = 256
};

/* y = x Wᵀ + b; weight is (out, in), row-major, as in the file. */
typedef struct orb_linear {
    int n_in, n_out;
    const float *weight, *bias;
} orb_linear;

typedef struct orb_mlp {
    orb_linear linear[3];                 /* in -> H -> H -> F */
    const float *norm_weight, *norm_bias; /* [F]; norm_bias is NULL with RMSNorm */
} orb_mlp;

typedef struct orb_layer {
    orb_mlp edge;             /* 3F inputs: e, n of the sender, n of the receiver */
    orb_mlp node;             /* 3F inputs: n, received, sent */
    orb_linear send, receive; /* F -> 1: gates */
    orb_linear condition;     /* F -> F; weight is NULL without conditioning */
} orb_layer;

/* Linear act Linear; linear[0].weight is NULL where the model lacks it. */
typedef struct orb_head {
    orb_linear linear[2]; /* F -> n_head -> n_out */
} orb_head;

typedef struct orb_parameters {
    int n_features, n_hidden, n_layers, n_head;
    int n_radial, n_edge_inputs; /* D: n_radial + 3, or n_radial × 16 */
    int n_species;               /* rows of the embedding, by atomic number */
    int n_bins;                  /* of the confidence; 0: it has none */
    int max_neighbors;           /* edges that an atom sends at most */
    double cutoff;               /* Å */
    enum orb_activation activation;
    enum orb_norm norm;
    enum orb_edge_input edge_input;
    enum orb_repulsion repulsion;
    double norm_epsilon; /* added to the mean of squares, in every precision */
    bool conservative;   /* forces are the derivative of the energy; else of heads */
    bool conditioned;    /* by charge and spin of the system */

    const float *embedding; /* [n_species][F] */
    orb_mlp node_encoder, edge_encoder;
    orb_layer layer[ORB_MAX_LAYERS];
    orb_head energy, forces, stress, confidence; /* 1, 3, 6, n_bins outputs */

    double gaussian_center[ORB_MAX_RADIAL];                    /* Å: exp(-(r - center)²) */
    double bessel_frequency[ORB_MAX_RADIAL], bessel_prefactor; /* prefactor · sin(frequency r) / r */
    const float *confidence_edges;                             /* [n_bins + 1] eV/Å, ascending; NULL without confidence */
    const float *charge_frequency, *spin_frequency;            /* [F / 4] each; NULL without conditioning */
    double energy_scale, energy_mean;                          /* eV per atom: E = N (scale y + mean) + Σ model->offset[Z] */
    double force_scale, force_mean;                            /* eV/Å */
    double stress_scale[6], stress_mean[6];                    /* eV/Å³, order xx yy zz yz xz xy */
    double repulsion_radius[MLFF_MAX_ATOMIC_NUMBER + 1];       /* Å, by Z: covalent radius of element Z + 1 (README.md) */
} orb_parameters;

/* Settings of an untrained model. */
typedef struct orb_options {
    int n_features, n_hidden, n_layers, n_head, max_neighbors;
    int conditioned;
    const char *elements;
    uint64_t seed;
} orb_options;
extern const model_setting orb_v2_settings[], orb_v3_direct_settings[], orb_v3_conservative_settings[];
extern const model_stage orb_stage_descriptions[];
extern const model_published orb_v2_published[], orb_v3_direct_published[], orb_v3_conservative_published[];
/* Weights of an untrained model, under orb-models' names. Fails with MLFF_ERR_ELEMENT, MLFF_ERR_USAGE, MLFF_ERR_MEMORY. */
mlff_status orb_v2_new(const void *options, model_weights *weights_out);
mlff_status orb_v3_direct_new(const void *options, model_weights *weights_out);
mlff_status orb_v3_conservative_new(const void *options, model_weights *weights_out);

/* The stages of every implementation: features, encoder, then edge and node of each layer, readout, and where forces are
 * the derivative of the energy the same backward. Freed with base_free. */
mlff_status orb_stages_create(const orb_parameters *parameters, mlff_stage **stages_out, int *n_out);

/* float64, plain: orb_reference.c. */
mlff_status orb_reference_create(const mlff_model *model, const cpu_options *options, model_backend **backend_out);

#endif
