/* SPDX-License-Identifier: MIT */
/* painn_gradient.h: training gradient of one structure in float64 (painn_gradient_reference.c). */
#ifndef PAINN_GRADIENT_H
#define PAINN_GRADIENT_H

#include "painn_trainable.h"

typedef struct painn_gradient painn_gradient;

/* One structure. Pairs and atoms count from 0; the list is symmetric or not. */
typedef struct painn_gradient_frame {
    int n_atoms;
    const int32_t *species;    /* [n_atoms] */
    const int64_t *first_pair; /* [n_atoms + 1]; rows begin at first_pair[i] − first_pair[0] of the pairs' arrays */
    const int32_t *neighbor;   /* [n_pairs] */
    const double *vectors;     /* [n_pairs][3] */
} painn_gradient_frame;

/* Borrows `parameters` and `trainable`. */
mlff_status painn_gradient_create(const painn_parameters *parameters, const painn_trainable *trainable,
                                  painn_gradient **gradient_out);
void painn_gradient_destroy(painn_gradient *gradient);

/* Energies of atoms and dE/dr of pairs, with the flat vector `weights`. */
mlff_status painn_gradient_base(painn_gradient *gradient, const painn_gradient_frame *frame, const double *weights,
                                double *atom_energy /* [n_atoms] */, double *pair_gradient /* [n_pairs][3] */);
/* Adds d/dθ (Σ c_i ε_i + Σ_e g_e·w_e), with c and w held fixed, to total[n_parameters]. atom_tangent (or NULL) gets the energies'
 * tangents along w, [n_atoms], whose sum is Σ_e g_e·w_e. */
mlff_status painn_gradient_add(painn_gradient *gradient, const painn_gradient_frame *frame, const double *weights,
                               const double *c /* [n_atoms] */, const double *w /* [n_pairs][3] */, double *total,
                               double *atom_tangent);

#endif
