/* SPDX-License-Identifier: MIT */
/* orb_plain.h: layers of Orb in float64, plain, with their reverse passes; used by the reference, and for the heads by the fast path. */
#ifndef ORB_PLAIN_H
#define ORB_PLAIN_H

#include "model/orb/orb_model.h"

enum { ORB_PLAIN_ROWS = 32 }; /* rows that a network is applied to at a time */

/* y [n][n_out] = x [n][n_in] Wᵀ + b */
void orb_plain_linear(const orb_linear *linear, int n, const double *x, double *y);
/* x_bar [n][n_in] += y_bar [n][n_out] W */
void orb_plain_linear_backward(const orb_linear *linear, int n, const double *y_bar, double *x_bar);
double orb_plain_slope(enum orb_activation kind, double x);

/* Doubles of scratch that the functions below need. */
size_t orb_plain_scratch(const orb_parameters *parameters);
/* y [n][F] = norm(MLP(x)), x [n][n_in]. */
void orb_plain_mlp(const orb_parameters *parameters, const orb_mlp *mlp, int n, const double *x, double *y, double *scratch);
/* x_bar [n][n_in] = dE/dx from y_bar [n][F]; x as in the forward pass. */
void orb_plain_mlp_backward(const orb_parameters *parameters, const orb_mlp *mlp, int n, const double *x, const double *y_bar,
                            double *x_bar, double *scratch);
/* y [n][n_out] of a head on x [n][F]. */
void orb_plain_head(const orb_parameters *parameters, const orb_head *head, int n, const double *x, double *y, double *scratch);
/* The error of an atom's force components, eV/Å, that the confidence head expects from the atom's features [F]: the mean of the
 * centers of its bins, weighted with their probabilities (softmax). */
double orb_plain_force_error(const orb_parameters *parameters, const double *features, double *scratch);

#endif
