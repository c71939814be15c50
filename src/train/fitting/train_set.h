/* SPDX-License-Identifier: MIT */
/* train_set.h: labelled structures with their graphs, as the training backends take them (model/train_backend.h). */
#ifndef TRAIN_SET_H
#define TRAIN_SET_H

#include "model/training/train_backend.h"

/* Builds a set from n_frames systems and their labels in eV and Å: neighbor lists at the model's cutoff, everything in the model's
 * units, total energies without the model's offsets of the elements (atom energies carry none). probe_steps (or NULL): h > 0 of
 * a Hessian probe's + frame, whose − frame comes next; else 0; Å. n_threads: 0 for all cores. Nothing is borrowed afterwards.
 * Freed with train_set_free. Fails with MLFF_ERR_ELEMENT for an element that the model does not know, MLFF_ERR_VALUE for no
 * frames, for two atoms on one point or for a probe without a second frame of as many atoms, MLFF_ERR_LIMIT, MLFF_ERR_MEMORY;
 * errors name the frame. */
mlff_status train_set_build(const mlff_model *model, const mlff_system *const *systems, const mlff_labels *labels,
                            const double *probe_steps, int64_t n_frames, int n_threads, train_set **set_out);
void train_set_free(train_set *set);
/* Whether the atom is fixed and its force, of forces[n_atoms][3], is 0 as a constraint makes it: no label of the set. */
bool train_set_is_constrained(const mlff_system *system, const double *forces, int atom);

#endif
