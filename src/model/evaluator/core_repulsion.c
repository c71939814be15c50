// SPDX-License-Identifier: MIT
// core_repulsion.c: value and slope of the core repulsion, and their sums over the pairs of a graph.
#include "core_repulsion.h"

#include <math.h>

#define COULOMB 14.3996454784   // e²/(4π ε₀), eV Å (CODATA 2018)
#define BOHR    0.529177210903  // Å (CODATA 2018)

static const double weights[4] = {0.18175, 0.50986, 0.28022, 0.02817}, rates[4] = {3.19980, 0.94229, 0.40290, 0.20162};

double core_repulsion_pair(int z1, int z2, double end, double r, double *slope_out)
{
    const double t = r / end;
    double phi = 0, phi_slope = 0;
    *slope_out = 0;
    if (!(r < end)) return 0;
    const double a = 0.8854 * BOHR / (pow(z1, 0.23) + pow(z2, 0.23)), charge = COULOMB * z1 * z2 / r;
    for (int k = 0; k < 4; k++) {
        const double term = weights[k] * exp(-rates[k] * r / a);
        phi += term;
        phi_slope -= rates[k] / a * term;
    }
    const double s = (1 - t) * (1 - t) * (1 - t) * (1 + 3 * t + 6 * t * t), s_slope = -30 * t * t * (1 - t) * (1 - t) / end;
    *slope_out = charge * ((phi_slope - phi / r) * s + phi * s_slope);
    return charge * phi * s;
}

int64_t core_repulsion_add(const mlff_model *model, const model_graph *graph, const model_outputs *outputs)
{
    int64_t n_added = 0;
    const double per_energy = 0.5 / model->energy_unit, per_slope = per_energy * model->length_unit;
    for (int i = 0; i < graph->n_atoms; i++) {
        const int z = graph->species[i];
        if (graph->owned && !graph->owned[i]) continue;
        for (int32_t p = graph->first[i]; p < graph->first[i + 1]; p++) {
            const double *v = graph->vectors + 3 * (size_t)p, square = v[0] * v[0] + v[1] * v[1] + v[2] * v[2];
            const int other = graph->species[graph->neighbor[p]];
            const double end = model->core_radius[z] + model->core_radius[other];
            double slope;
            if (square >= end * end) continue;
            const double r = sqrt(square);
            outputs->atom_energy[i] += per_energy * core_repulsion_pair(z, other, end, r, &slope);
            n_added++;
            if (!outputs->pair_gradient) continue;
            for (int c = 0; c < 3; c++) outputs->pair_gradient[3 * (size_t)p + (size_t)c] += per_slope * slope * v[c] / r;
        }
    }
    return n_added;
}
