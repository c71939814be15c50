/* SPDX-License-Identifier: MIT */
/* near_pairs.h: pairs of atoms that are nearer than the structures that a model was trained on let expect, where its forces are extrapolated. */
#ifndef NEAR_PAIRS_H
#define NEAR_PAIRS_H

#include "model/model.h"

/* Radii in Å: a pair is near below the sum of two. Of a model that says how near atoms of its training structures come 0.95 of that; else of one
 * with core repulsion those of the repulsion. False: neither is known. */
bool near_pairs_radii(const mlff_model *model, double radius[MLFF_MAX_ATOMIC_NUMBER + 1]);
/* Near pairs of owned atoms, directed. Vectors of the graph are in Å. */
int64_t near_pairs_count(const model_graph *graph, const double radius[MLFF_MAX_ATOMIC_NUMBER + 1]);

#endif
