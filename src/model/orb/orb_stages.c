// SPDX-License-Identifier: MIT
// orb_stages.c: Orb's stages: their list, the least arithmetic and memory traffic that the equations need, and advice.
//
// N atoms, P edges after the cap, F features, H hidden width; a multiply-add counts as two operations. The first layer of a message's
// network is linear in [e | n_i | n_j], so that its atom parts are needed once for each atom.
#include <math.h>
#include <string.h>

#include "model/stages.h"
#include "orb_model.h"

static double n_edges(const orb_parameters *p, const mlff_work_size *size)
{
    return fmin(size->n_pairs, size->n_atoms * p->max_neighbors);
}

static bool has_readers(const orb_parameters *p, const mlff_stage *stage)
{
    return stage->layer + 1 < p->n_layers; // the last layer's edges are read by its own sums only
}

static void message_work(const mlff_model *model, const mlff_stage *stage, const mlff_work_size *size, mlff_stage_work *work)
{
    const orb_parameters *p = model->parameters;
    const double F = p->n_features, H = p->n_hidden, N = size->n_atoms, P = n_edges(p, size);
    work->flops = P * (4.0 * F * H + 2.0 * H * H + 4.0 * F) + N * 4.0 * F * H;
    work->bytes = 4.0 * (P * F * (has_readers(p, stage) ? 2.0 : 1.0) + 4.0 * N * F + 4.0 * F * H + H * H);
    work->resident_bytes = work->bytes;
}

static void update_work(const mlff_model *model, const mlff_stage *stage, const mlff_work_size *size, mlff_stage_work *work)
{
    (void)stage;
    const orb_parameters *p = model->parameters;
    const double F = p->n_features, H = p->n_hidden, N = size->n_atoms;
    work->flops = N * (8.0 * F * H + 2.0 * H * H);
    work->bytes = 4.0 * (4.0 * N * F + 4.0 * F * H + H * H);
    work->resident_bytes = work->bytes;
}

static void encoder_work(const mlff_model *model, const mlff_stage *stage, const mlff_work_size *size, mlff_stage_work *work)
{
    (void)stage;
    const orb_parameters *p = model->parameters;
    const double F = p->n_features, H = p->n_hidden, D = p->n_edge_inputs, P = n_edges(p, size);
    work->flops = P * (2.0 * D * H + 2.0 * H * H + 2.0 * F * H);
    work->bytes = 4.0 * (P * (D + F) + D * H + H * H + F * H);
    work->resident_bytes = work->bytes;
}

const model_stage orb_stage_descriptions[] = {
    {NULL, "radial", "inputs of each edge, and the choice of the nearest neighbors: a sort of each row of the neighbor list",
     NULL},
    {NULL, "encoder", "matrix products for each edge. Fewer neighbors cost less; more threads help", encoder_work},
    {NULL, "message",
     "matrix products for each edge. Its cost is proportional to the number of edges: a model "
     "with 20 neighbors costs less than one named inf; fewer atoms, or more threads",
     message_work},
    {NULL, "update", "matrix products for each atom. More threads while there are enough atoms for them", update_work},
    {NULL, "readout", "means over the atoms of each system, and small networks for each atom", NULL},
    {0}};

mlff_status orb_stages_create(const orb_parameters *p, mlff_stage **stages_out, int *n_out)
{
    const int T = p->n_layers, n = (p->conservative ? 2 : 1) * (3 + 2 * T);
    int k = 0;
    mlff_stage *stages = base_alloc((size_t)n, sizeof *stages, "stages");
    if (!stages) return MLFF_ERR_MEMORY;
    stages[k++] = (mlff_stage){"radial", "forward", -1, "nearest neighbors, envelope"};
    stages[k++] = (mlff_stage){"encoder", "forward", -1, "embedding"};
    for (int t = 0; t < T; t++) {
        stages[k++] = (mlff_stage){"message", "forward", t, "gates, sums over edges"};
        stages[k++] = (mlff_stage){"update", "forward", t, ""};
    }
    stages[k++] = (mlff_stage){"readout", "forward", -1, "heads, repulsion"};
    if (p->conservative) {
        stages[k++] = (mlff_stage){"readout", "backward", -1, "repulsion"};
        for (int t = T - 1; t >= 0; t--) {
            stages[k++] = (mlff_stage){"update", "backward", t, ""};
            stages[k++] = (mlff_stage){"message", "backward", t, "gates, sums over edges"};
        }
        stages[k++] = (mlff_stage){"encoder", "backward", -1, ""};
        stages[k++] = (mlff_stage){"radial", "backward", -1, "geometry"};
    }
    *stages_out = stages;
    *n_out = n;
    return MLFF_OK;
}
