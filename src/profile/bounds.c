// SPDX-License-Identifier: MIT
// bounds.c: how far a stage is from what this machine can do, without hardware counters: the arithmetic and the traffic
// that PaiNN's equations need at least, from the numbers of atoms, pairs, features and layers, against measured ceilings.
// It is a lower bound: it leaves out what an implementation adds, so that 100 % cannot be passed and is rarely met.
#include <math.h>
#include <string.h>

#include "profile.h"

// N atoms, P directed pairs, F features. A multiply-add counts as two.
static void work_of(const profile_stage *row, const painn_size *size, double N, double P, double *flops, double *bytes,
                    double *held)
{
    double F = size->n_features, K = size->n_radial, back = strcmp(row->phase, "backward") == 0 ? 2.0 : 1.0;
    bool first = row->shown.layer == 0; // vectors are still zero there: not read, not multiplied
    *flops = *bytes = *held = 0.0;
    if (strcmp(row->name, "message") == 0) {
        // Filters of a pair serve both directions: by splines of six coefficients or from the radial functions, the cheaper.
        double filter = 0.5 * fmin(2.0 * K, 12.0) * 3.0 * F;
        double pair = first ? 10.0 * F : 16.0 * F; // q_j·W, and R, μ_j W onto three components
        *flops = 8.0 * N * F * F + P * back * (filter + pair);
        *bytes = 4.0 * P * back * (first ? 3.0 : 6.0) * F;
        *held = 4.0 * N * back * (first ? 4.0 : 6.0) * F;
    } else if (strcmp(row->name, "update") == 0) {
        *flops = 22.0 * N * F * F; // U on three components 12, the network of the update 10; transposed backward
        *bytes = 4.0 * N * 8.0 * F * back;
        *held = 4.0 * (N * 8.0 * F + 11.0 * F * F);
    } else if (strcmp(row->name, "readout") == 0) {
        *flops = N * (F * F + F);
        *bytes = 4.0 * N * F;
        *held = 4.0 * (N * F + 0.5 * F * F);
    }
}

mlff_status bounds_derive(mlff_profile *profile, const painn_size *size, int n_threads)
{
    ceilings *c = &profile->ceilings;
    double N = profile->summary.n_atoms, P = profile->summary.mean_pairs;
    if (size->n_features < 1 || P < 0.0 || !profile->stages_measured) return MLFF_OK;
    mlff_status status = ceilings_get(n_threads, c);
    if (status != MLFF_OK) return status;
    for (int i = 0; i < profile->n_stages; i++) {
        double flops, bytes, held;
        profile_stage *row = &profile->stages[i];
        work_of(row, size, N, P, &flops, &bytes, &held);
        if (flops <= 0.0) continue;
        double compute = flops / c->flops_a_ns, memory = bytes / ceilings_bytes_a_ns(c, held);
        row->flops = flops;
        row->bytes = bytes;
        row->bound_ms = fmax(compute, memory) * 1e-6;
        row->bound_by_memory = memory > compute;
    }
    return MLFF_OK;
}
