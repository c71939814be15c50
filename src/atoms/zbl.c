// SPDX-License-Identifier: MIT
// zbl.c: value and slope of the repulsion of two nuclei.
#include "zbl.h"

#include <math.h>

static const double weights[4] = {0.18175, 0.50986, 0.28022, 0.02817}, rates[4] = {3.19980, 0.94229, 0.40290, 0.20162};

double zbl_pair(int z1, int z2, double end, double r, double *slope_out)
{
    const double t = r / end;
    double phi = 0, phi_slope = 0;
    *slope_out = 0;
    if (!(r < end)) return 0;
    const double a = ZBL_SCREENING / (pow(z1, 0.23) + pow(z2, 0.23)), charge = ZBL_COULOMB * z1 * z2 / r;
    for (int k = 0; k < 4; k++) {
        const double term = weights[k] * exp(-rates[k] * r / a);
        phi += term;
        phi_slope -= rates[k] / a * term;
    }
    const double s = (1 - t) * (1 - t) * (1 - t) * (1 + 3 * t + 6 * t * t), s_slope = -30 * t * t * (1 - t) * (1 - t) / end;
    *slope_out = charge * ((phi_slope - phi / r) * s + phi * s_slope);
    return charge * phi * s;
}
