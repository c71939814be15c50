/* SPDX-License-Identifier: MIT */
/* assemble.h: from a backend's outputs in model units to results in eV and Å. */
#ifndef ASSEMBLE_H
#define ASSEMBLE_H

#include "model/model.h"

/* Fails with MLFF_ERR_VALUE on the first output that is not finite, and names its atom. */
mlff_status assemble_check_finite(const mlff_batch *batch, const model_graph *graph, const model_outputs *outputs);
/* 0 if all n numbers are finite, NaN if not; x may be NULL. */
double assemble_zero_if_finite(const double *x, size_t n);
/* Fills what `results` wants, each from the outputs that the model has. `graph` has edge vectors in Å. */
void assemble_results(const mlff_model *model, const mlff_batch *batch, const model_graph *graph, const model_outputs *outputs,
                      const mlff_results *results);
/* Whether all three axes of a system are periodic: else it has no stress. */
bool assemble_has_stress(const mlff_batch *batch, int system);
/* Stress, eV/Å³, from a system's virial, eV; NaN where not all three axes are periodic. */
void assemble_stress(const mlff_batch *batch, int system, const double virial[9], double stress[6]);
/* The virial, eV, that belongs to a predicted stress, eV/Å³: -V σ; NaN where not all three axes are periodic. */
void assemble_virial(const mlff_batch *batch, int system, const double stress[6], double virial[9]);

#endif
