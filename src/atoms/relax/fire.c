// SPDX-License-Identifier: MIT
// fire.c: the fast inertial relaxation engine (Bitzek et al. 2006, doi:10.1103/PhysRevLett.97.170201), its own parameters.
#include <math.h>
#include <string.h>

#include "atoms/relax/relax.h"

void fire_step(relaxation *r)
{
    double power = 0, ff = 0, vv = 0, *v = r->velocity;
    for (size_t k = 0; k < r->n; k++) {
        power += r->force[k] * v[k];
        ff += r->force[k] * r->force[k];
        vv += v[k] * v[k];
    }
    if (power > 0) {
        const double along = ff > 0 ? r->mixing * sqrt(vv / ff) : 0;
        for (size_t k = 0; k < r->n; k++) v[k] = (1 - r->mixing) * v[k] + along * r->force[k];
        if (++r->n_downhill > 5) {
            r->timestep = fmin(1.1 * r->timestep, 1.0);
            r->mixing *= 0.99;
        }
    } else if (r->n_steps > 0) {
        memset(v, 0, r->n * sizeof *v);
        r->timestep *= 0.5;
        r->mixing = 0.1;
        r->n_downhill = 0;
    }
    // The step is made in the place of the velocity, so that one longer than allowed shortens the velocity as well.
    for (size_t k = 0; k < r->n; k++) v[k] = r->timestep * (v[k] + r->timestep * r->force[k]);
    relaxation_limit(v, r->n);
    for (size_t k = 0; k < r->n; k++) {
        r->x[k] += v[k];
        v[k] /= r->timestep;
    }
}
