// SPDX-License-Identifier: MIT
// bounds.c: how far a stage is from what this machine can do, without hardware counters: the least work that the force field
// states for its stages, against measured ceilings. It is a lower bound of the time, so that 100 % cannot be exceeded.
#include <math.h>

#include "profile/profile.h"

mlff_status bounds_derive(mlff_profile *profile, const mlff_callable *callable, int n_threads)
{
    ceilings *c = &profile->ceilings;
    const mlff_work_size size = {1.0, profile_atoms(profile), profile->summary.mean_pairs};
    bool any = false;
    if (!callable->stage_work || size.n_pairs < 0.0 || !profile->stages_measured) return MLFF_OK;
    for (int i = 0; i < profile->n_stages && i < callable->n_stages; i++) {
        mlff_stage_work work;
        profile_stage *row = &profile->stages[i];
        if (!callable->stage_work(callable->context, i, &size, &work)) continue;
        row->flops = work.flops;
        row->bytes = work.bytes;
        row->resident_bytes = work.resident_bytes;
        any = true;
    }
    if (!any || n_threads == 0) return MLFF_OK;
    mlff_status status = ceilings_get(n_threads, c);
    if (status == MLFF_ERR_MEMORY) // the times of the run stay
        return profile_note(profile, "stages are not compared with this machine's limits: no memory for the bandwidth test");
    if (status != MLFF_OK) return status;
    for (int i = 0; i < profile->n_stages; i++) {
        profile_stage *row = &profile->stages[i];
        if (!(row->flops > 0.0) && !(row->bytes > 0.0)) continue;
        const double compute = row->flops / c->flops_a_ns, memory = row->bytes / ceilings_bytes_a_ns(c, row->resident_bytes);
        row->bound_ms = fmax(compute, memory) * 1e-6;
        row->bound_by_memory = memory > compute;
    }
    return MLFF_OK;
}
