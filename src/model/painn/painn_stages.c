// SPDX-License-Identifier: MIT
// painn_stages.c: PaiNN's stages: the least arithmetic and memory traffic that its equations need, and advice.
//
// N atoms, P directed pairs, F features, K radial functions; a multiply-add counts as two operations. The work leaves out what an
// implementation adds, so that the time it takes at a machine's ceilings is a lower bound.
#include <math.h>
#include <string.h>

#include "model/stages.h"
#include "painn.h"

static void message_work(const mlff_model *model, const mlff_stage *stage, const mlff_work_size *size, mlff_stage_work *work)
{
    const painn_parameters *p = model->parameters;
    const double F = p->n_features, K = p->n_radial, N = size->n_atoms, P = size->n_pairs;
    const double back = strcmp(stage->phase, "backward") == 0 ? 2.0 : 1.0;
    const bool first = stage->layer == 0; // vectors are zero there: neither read nor multiplied
    // Filters of a pair serve both directions: by splines of six coefficients or from the radial functions, the cheaper.
    const double filter = 0.5 * fmin(2.0 * K, 12.0) * 3.0 * F;
    const double pair = first ? 10.0 * F : 16.0 * F; // q_j·W, and R, μ_j W onto three components
    work->flops = 8.0 * N * F * F + P * back * (filter + pair);
    work->bytes = 4.0 * P * back * (first ? 3.0 : 6.0) * F;
    work->resident_bytes = 4.0 * N * back * (first ? 4.0 : 6.0) * F;
}

static void update_work(const mlff_model *model, const mlff_stage *stage, const mlff_work_size *size, mlff_stage_work *work)
{
    const double F = ((const painn_parameters *)model->parameters)->n_features, N = size->n_atoms;
    const double back = strcmp(stage->phase, "backward") == 0 ? 2.0 : 1.0;
    work->flops = 22.0 * N * F * F; // U on three components 12, the network of the update 10; transposed backward
    work->bytes = 4.0 * N * 8.0 * F * back;
    work->resident_bytes = 4.0 * (N * 8.0 * F + 11.0 * F * F);
}

static void readout_work(const mlff_model *model, const mlff_stage *stage, const mlff_work_size *size, mlff_stage_work *work)
{
    (void)stage;
    const double F = ((const painn_parameters *)model->parameters)->n_features, N = size->n_atoms;
    work->flops = N * (F * F + F);
    work->bytes = 4.0 * N * F;
    work->resident_bytes = 4.0 * (N * F + 0.5 * F * F);
}

const model_stage painn_stage_descriptions[] = {
    {NULL, "radial",
     "exponentials and cosines for each pair and basis function. Fewer radial functions or a smaller cutoff cost less", NULL},
    {NULL, "message",
     "the sum over pairs of products of features. A smaller cutoff, fewer features or fewer layers "
     "cost less; more threads help while there are enough atoms for them",
     message_work},
    {NULL, "update",
     "matrix products over atoms. Its cost is proportional to the square of the number of features: fewer "
     "features or layers, or more threads while there are enough atoms for them",
     update_work},
    {NULL, "readout", "a small network for each atom. More threads, or fewer features", readout_work},
    {0}};
