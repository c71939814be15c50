/* SPDX-License-Identifier: MIT */
/* core_repulsion.h: a fixed repulsion of two nuclei that come closer than any structure a model was trained on.
 *
 * V(r) = V_ZBL(r) s(r / r_o), the universal potential of Ziegler, Biersack and Littmark (1985), switched off smoothly at
 * r_o = onset · (sum of the covalent radii):
 *   V_ZBL = k e² Z₁ Z₂ / r · φ(r / a)      a = 0.8854 a₀ / (Z₁^0.23 + Z₂^0.23)
 *   φ(x)  = 0.18175 e^(−3.19980 x) + 0.50986 e^(−0.94229 x) + 0.28022 e^(−0.40290 x) + 0.02817 e^(−0.20162 x)
 *   s(t)  = (1 − t)³ (1 + 3t + 6t²), 0 from t = 1 on: value, slope and curvature are continuous there
 * `onset` is the setting core_repulsion of a model file, 0 where there is none. It is not trained: the trainer subtracts it from
 * the labels. Structures to train on should not reach into it, since weights would learn to cancel it there. */
#ifndef CORE_REPULSION_H
#define CORE_REPULSION_H

#include "model/model.h"

enum { CORE_REPULSION_LARGEST = 1 }; /* of the onset: beyond it, bonds would be compressed */

/* V in eV at distance r, and dV/dr in *slope_out, of atomic numbers z1 and z2; 0 from `end` = r_o on. Lengths in Å. */
double core_repulsion_pair(int z1, int z2, double end, double r, double *slope_out);

/* Adds the repulsion of the pairs of owned atoms to a CPU backend's outputs, in the model's units; returns the number of pairs
 * within it. Vectors of the graph are in Å; every pair counts half, for the atom that it begins at. */
int64_t core_repulsion_add(const mlff_model *model, const model_graph *graph, const model_outputs *outputs);

#endif
