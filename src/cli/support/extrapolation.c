// SPDX-License-Identifier: MIT
// extrapolation.c: when a model's forces are extrapolated.
#include "extrapolation.h"

#include <math.h>
#include <stdio.h>

bool extrapolation_by_distance(extrapolation *told, const mlff_model *model, int64_t n_near_pairs, char text[EXTRAPOLATION_TEXT])
{
    const double nearest = mlff_model_nearest(model);
    if (n_near_pairs <= 0 || told->told_distance) return false;
    told->told_distance = true;
    if (isfinite(nearest))
        snprintf(text, EXTRAPOLATION_TEXT,
                 "atoms are nearer than in any training structure of the model (%.3g of the sum of their covalent radii): its "
                 "forces are "
                 "extrapolated (said once)",
                 nearest);
    else
        snprintf(
            text, EXTRAPOLATION_TEXT,
            "atoms are within the model's core repulsion, and its file does not say how near those of its training structures "
            "come: its forces may be extrapolated (said once)");
    return true;
}

// The temperature of n degrees of freedom is distributed as T χ²(n)/n, the cube root of which is nearly normal (Wilson and Hilferty
// 1931): mean 1 − 2/9n, variance 2/9n. The factor is exceeded in one of some million independent configurations, five standard deviations.
static double largest_fluctuation(double n_degrees)
{
    const double variance = 2 / (9 * n_degrees), root = 1 - variance + 5 * sqrt(variance);
    return root * root * root;
}

bool extrapolation_by_temperature(extrapolation *told, const mlff_model *model, double temperature_kelvin, double n_atoms,
                                  char text[EXTRAPOLATION_TEXT])
{
    double highest;
    if (told->told_temperature || n_atoms < 1 || !(temperature_kelvin > told->hottest_kelvin)) return false;
    told->hottest_kelvin = temperature_kelvin;
    if (!mlff_model_extrapolates_at(model, temperature_kelvin / largest_fluctuation(3 * n_atoms), &highest)) return false;
    told->told_temperature = true;
    snprintf(text, EXTRAPOLATION_TEXT, "the model was trained at up to %g K; at %.4g K its forces are extrapolated (said once)",
             highest, temperature_kelvin);
    return true;
}
