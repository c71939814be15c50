/* SPDX-License-Identifier: MIT */
/* extrapolation.h: when a model's forces are extrapolated, in sentences that are told once in a run. By the library's interface alone: the
 * bindings for KIM and LAMMPS are built with it too. */
#ifndef EXTRAPOLATION_H
#define EXTRAPOLATION_H

#include <stdbool.h>

#include "mlff.h"

typedef struct extrapolation {
    bool told_distance, told_temperature;
    double hottest_kelvin; /* so far: cooler steps need not look into the model's metadata */
} extrapolation;

enum { EXTRAPOLATION_TEXT = 256 };

/* True, and the sentence, the first time that pairs are nearer than in training structures (mlff_evaluator_info). */
bool extrapolation_by_distance(extrapolation *told, const mlff_model *model, int64_t n_near_pairs, char text[EXTRAPOLATION_TEXT]);
/* The same for the temperature at a step of n_atoms that may move; what may be a fluctuation, up to five standard deviations, is not told. */
bool extrapolation_by_temperature(extrapolation *told, const mlff_model *model, double temperature_kelvin, double n_atoms,
                                  char text[EXTRAPOLATION_TEXT]);

#endif
