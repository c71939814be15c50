// SPDX-License-Identifier: MIT
// bounds.c: how far a stage is from what this machine can do, without hardware counters: the least work that the force field
// states for its stages, against measured ceilings. It is a lower bound of the time, so that 100 % cannot be exceeded.
#include <math.h>
#include <string.h>

#include "profile/profile.h"

stage_bound bounds_of_stage(const mlff_profile *profile, const profile_stage *first)
{
    stage_bound b = {0};
    double memory_ms = 0.0;
    for (int k = 0; k < profile->n_stages; k++) {
        const profile_stage *row = &profile->stages[k];
        if (strcmp(row->name, first->name) != 0 || strcmp(row->phase, first->phase) != 0) continue;
        b.flops += row->flops;
        b.bytes += row->bytes;
        b.bound_ms += row->bound_ms;
        b.time_ms += row->shown.median_ms;
        if (row->bound_by_memory) memory_ms += row->bound_ms;
    }
    const double arithmetic_ms = b.bound_ms - memory_ms;
    b.by_memory = memory_ms > arithmetic_ms;
    if (b.time_ms > 0.0) b.limit_share = (b.by_memory ? memory_ms : arithmetic_ms) / b.time_ms;
    return b;
}

// A stage, over layers, that took less time than its bound: its kind's first row, or NULL.
static const profile_stage *find_faster(const mlff_profile *profile)
{
    for (int i = 0; i < profile->n_stages; i++) {
        const stage_bound b = bounds_of_stage(profile, &profile->stages[i]);
        if (b.bound_ms > b.time_ms) return &profile->stages[i];
    }
    return NULL;
}

// A core whose units another one shares, as hardware threads and virtual machines do, is slower at times: then nothing is known.
static mlff_status drop_bounds(mlff_profile *profile, const profile_stage *faster)
{
    for (int i = 0; i < profile->n_stages; i++) profile->stages[i].bound_ms = 0;
    return profile_note(
        profile,
        "stages are not compared with this machine's limits: %s/%s was faster than they allow. Programs that used "
        "the cores while they were measured make them too low",
        faster->phase, faster->name);
}

mlff_status bounds_derive(mlff_profile *profile, const mlff_callable *callable, int n_threads, ceiling_products products)
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
    mlff_status status = ceilings_get(n_threads, products, c);
    if (status == MLFF_ERR_MEMORY) // the times of the run stay
        return profile_note(profile, "stages are not compared with this machine's limits: no memory for the bandwidth test");
    if (status != MLFF_OK) return status;
    // Bytes are those of numbers in float32; weights in bfloat16 have half of them.
    const double kept = products == CEILING_BF16_DOTS || products == CEILING_BF16_TILES ? 0.5 : 1;
    for (int i = 0; i < profile->n_stages; i++) {
        profile_stage *row = &profile->stages[i];
        if (!(row->flops > 0.0) && !(row->bytes > 0.0)) continue;
        const double compute = row->flops / ceilings_flops_a_ns(c),
                     memory = kept * row->bytes / ceilings_bytes_a_ns(c, kept * row->resident_bytes);
        row->bound_ms = fmax(compute, memory) * 1e-6;
        row->bound_by_memory = memory > compute;
    }
    const profile_stage *faster = find_faster(profile);
    return faster ? drop_bounds(profile, faster) : MLFF_OK;
}
