// SPDX-License-Identifier: MIT
// near_pairs.c: pairs of atoms nearer than in training structures.
#include "near_pairs.h"

#include <math.h>

#include "atoms/elements/covalent.h"

// The shortest bond of long dynamics is a little shorter than that of the structures that were trained on: of a C-H bond at 300 K, with a standard
// deviation of 0.029 Å, that of 10^6 independent ones is one deviation, 3 %, below that of 10^4.
#define ALLOWED 0.95

bool near_pairs_radii(const mlff_model *model, double radius[MLFF_MAX_ATOMIC_NUMBER + 1])
{
    const double nearest = mlff_model_nearest(model);
    if (!isfinite(nearest) && model->core_repulsion == 0) return false;
    for (int z = 0; z <= MLFF_MAX_ATOMIC_NUMBER; z++)
        radius[z] = isfinite(nearest) ? ALLOWED * nearest * covalent_radius(z) : model->core_radius[z];
    return true;
}

int64_t near_pairs_count(const model_graph *graph, const double radius[MLFF_MAX_ATOMIC_NUMBER + 1])
{
    int64_t n = 0;
    for (int i = 0; i < graph->n_atoms; i++) {
        const double own = radius[graph->species[i]];
        if (graph->owned && !graph->owned[i]) continue;
        for (int32_t p = graph->first[i]; p < graph->first[i + 1]; p++) {
            const double *v = graph->vectors + 3 * (size_t)p, end = own + radius[graph->species[graph->neighbor[p]]];
            n += v[0] * v[0] + v[1] * v[1] + v[2] * v[2] < end * end;
        }
    }
    return n;
}
