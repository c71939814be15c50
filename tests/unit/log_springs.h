/* SPDX-License-Identifier: MIT */
/* log_springs.h: a molecule in closed form: E = Σ k/2 ln(d/d0)² over all pairs of atoms, which repels without bound at short
 * distances. */
#ifndef LOG_SPRINGS_H
#define LOG_SPRINGS_H

#include <math.h>
#include <string.h>

#include "mlff_atoms.h"

/* An mlff_force_function; `context` is the mlff_system at rest, k is 20 eV. */
static inline mlff_status log_springs(void *context, const mlff_system *system, double *energy, double *forces)
{
    const mlff_system *rest = context;
    const double stiffness = 20;
    *energy = 0;
    memset(forces, 0, 3 * sizeof *forces * (size_t)system->n_atoms);
    for (int i = 0; i < system->n_atoms; i++)
        for (int j = i + 1; j < system->n_atoms; j++) {
            double v[3], d = 0, d0 = 0;
            for (int c = 0; c < 3; c++) {
                v[c] = system->positions[3 * j + c] - system->positions[3 * i + c];
                d += v[c] * v[c];
                const double w = rest->positions[3 * j + c] - rest->positions[3 * i + c];
                d0 += w * w;
            }
            d = sqrt(d), d0 = sqrt(d0);
            *energy += 0.5 * stiffness * log(d / d0) * log(d / d0);
            for (int c = 0; c < 3; c++) {
                const double pull = stiffness * log(d / d0) / d * v[c] / d;
                forces[3 * i + c] += pull;
                forces[3 * j + c] -= pull;
            }
        }
    return MLFF_OK;
}

#endif
