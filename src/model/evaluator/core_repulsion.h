/* SPDX-License-Identifier: MIT */
/* core_repulsion.h: a fixed repulsion of nuclei that come closer than any structure a model was trained on: zbl_pair (atoms/zbl.h) below
 * core_repulsion times the sum of the covalent radii, where core_repulsion is a setting of the model file, 0 where there is none.
 * It is not trained: the trainer subtracts it from the labels. Structures to train on should not reach into it, since weights would
 * learn to cancel it there. */
#ifndef CORE_REPULSION_H
#define CORE_REPULSION_H

#include "model/model.h"

/* Adds the repulsion of the pairs of owned atoms to a CPU backend's outputs, in the model's units; returns the number of pairs
 * within it. Vectors of the graph are in Å; every pair counts half, for the atom that it begins at. */
int64_t core_repulsion_add(const mlff_model *model, const model_graph *graph, const model_outputs *outputs);

#endif
