// SPDX-License-Identifier: MIT
// core_repulsion.c: sums of the core repulsion over the pairs of a graph.
#include "core_repulsion.h"

#include <math.h>

#include "atoms/zbl.h"

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
            outputs->atom_energy[i] += per_energy * zbl_pair(z, other, end, r, &slope);
            n_added++;
            if (!outputs->pair_gradient) continue;
            for (int c = 0; c < 3; c++) outputs->pair_gradient[3 * (size_t)p + (size_t)c] += per_slope * slope * v[c] / r;
        }
    }
    return n_added;
}
