// SPDX-License-Identifier: MIT
// extrapolation.c: when a model's forces are extrapolated.
#include "extrapolation.h"

#include <math.h>
#include <stdio.h>

bool extrapolation_by_cores(extrapolation *told, int64_t n_core_pairs, char text[EXTRAPOLATION_TEXT])
{
    if (n_core_pairs <= 0 || told->told_cores) return false;
    told->told_cores = true;
    snprintf(text, EXTRAPOLATION_TEXT,
             "atoms are closer than in any structure that the model was trained on, within its core repulsion: forces are "
             "extrapolated (said once)");
    return true;
}

bool extrapolation_by_temperature(extrapolation *told, const mlff_model *model, double temperature_kelvin, double n_atoms,
                                  char text[EXTRAPOLATION_TEXT])
{
    double highest;
    if (told->told_temperature || n_atoms < 1) return false;
    const double surely = temperature_kelvin / (1 + 3 * sqrt(2 / (3 * n_atoms)));
    if (!mlff_model_extrapolates_at(model, surely, &highest)) return false;
    told->told_temperature = true;
    snprintf(text, EXTRAPOLATION_TEXT, "the model was trained at up to %g K; at %.4g K its forces are extrapolated (said once)",
             highest, temperature_kelvin);
    return true;
}
