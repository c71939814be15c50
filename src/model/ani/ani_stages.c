// SPDX-License-Identifier: MIT
// ani_stages.c: ANI's stages: the least arithmetic and memory traffic of its networks, and advice.
//
// The networks of elements differ, and the number of atoms of each element is not part of a batch's size: the smallest one
// counts, so that the work is a lower bound. AEVs are not described: the number of triples does not follow from that of pairs.
#include <math.h>

#include "ani.h"
#include "model/stages.h"

// Weights of the smallest network of one member.
static double smallest_network(const ani_parameters *p, double *activations_out)
{
    double smallest = INFINITY;
    for (int s = 0; s < p->n_species; s++) {
        const ani_network *net = &p->network[0][s];
        double n_weights = 0, n_activations = 0;
        for (int l = 0; l < net->n_layers; l++) {
            n_weights += (double)net->width[l] * net->width[l + 1];
            n_activations += net->width[l + 1];
        }
        if (n_weights >= smallest) continue;
        smallest = n_weights;
        *activations_out = n_activations;
    }
    return smallest;
}

// A product with every weight: forward y = W x, backward x̄ = Wᵀ ȳ. Each member reads its weights once, each atom its AEV.
static void network_work(const mlff_model *model, const mlff_stage *stage, const mlff_work_size *size, mlff_stage_work *work)
{
    (void)stage;
    const ani_parameters *p = model->parameters;
    double n_activations = 0, members = p->n_members, n_weights = smallest_network(p, &n_activations);
    work->flops = 2.0 * members * n_weights * size->n_atoms;
    work->bytes = 4.0 * (members * n_weights + size->n_atoms * p->length);
    work->resident_bytes = 4.0 * (members * n_weights + size->n_atoms * (p->length + members * n_activations));
}

const model_stage ani_stage_descriptions[] = {
    {"forward", "aev_radial",
     "exponentials and a cosine for each pair and radial shift. Its cost is proportional to the number of pairs; more threads "
     "help "
     "while there are enough atoms for them",
     NULL},
    {"forward", "aev_angular",
     "powers and exponentials for each pair of neighbors within the angular cutoff. Its cost is proportional to the square of "
     "the "
     "number of neighbors: dense systems cost most; a model with a smaller angular cutoff, or fewer angles and shifts, costs "
     "less",
     NULL},
    {"forward", "network",
     "matrix products of every member for each atom. Run fewer members, or more threads while there "
     "are enough atoms for them; several structures in one call share the reading of the weights",
     network_work},
    {"backward", "network_backward",
     "matrix products of every member for each atom. Run fewer members, or more threads while there "
     "are enough atoms for them; several structures in one call share the reading of the weights",
     network_work},
    {"backward", "aev_backward",
     "derivatives of the symmetry functions for each pair and triple. Its cost is proportional to the square of the number of "
     "neighbors within the angular cutoff; ask for energies only where forces are not needed",
     NULL},
    {0}};
