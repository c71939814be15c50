// SPDX-License-Identifier: MIT
// shares.c: a step in a handful of parts, for one stacked bar: forward, backward, neighbors and the rest, or what a force field
// without stages has. By medians, as the advice is: on a busy machine means say which stage lost the processor.
#include <math.h>
#include <string.h>

#include "profile/profile.h"

const char *const profile_example_names[N_EXAMPLES] = {"median_step", "slowest_step"};

double profile_stage_typical_ms(const profile_stage *row)
{
    return isfinite(row->shown.median_ms) ? row->shown.median_ms : row->shown.mean_ms;
}

enum step_part profile_stage_part(const char *phase, const char *name)
{
    bool host = strcmp(phase, "host") == 0;
    if (strcmp(name, host ? "wait" : "launch") == 0) return PART_QUEUE;
    return host ? PART_ENQUEUE : PART_DEVICE;
}

bool profile_stage_of_list(const char *name)
{
    return strcmp(name, "neighbors") == 0;
}

static const char *part_of(const mlff_profile *profile, const profile_stage *row)
{
    if (!profile->stages_measured || strcmp(row->name, "integrate") == 0 || strcmp(row->name, "unattributed") == 0)
        return row->name;
    if (profile_stage_of_list(row->name)) return "neighbors";
    if (profile_stage_part(row->phase, row->name) == PART_QUEUE) return "launch and wait";
    if (strcmp(row->phase, "host") == 0) return "host";
    if (strcmp(row->phase, "forward") == 0 || strcmp(row->phase, "backward") == 0) return row->phase;
    return "other stages";
}

int profile_parts(const mlff_profile *profile, profile_part parts[PROFILE_PARTS])
{
    int n = 0;
    double total_ms = 0.0;
    for (int i = 0; i < profile->n_stages; i++) {
        const profile_stage *row = &profile->stages[i];
        const char *name = part_of(profile, row);
        double ms = fmax(profile_stage_typical_ms(row), 0.0);
        int k = 0;
        while (k < n && strcmp(parts[k].name, name) != 0) k++;
        if (k == PROFILE_PARTS) continue;
        if (k == n) parts[n++] = (profile_part){.name = name};
        parts[k].ms += ms;
        total_ms += ms;
    }
    for (int k = 0; k < n; k++) parts[k].share = total_ms > 0.0 ? parts[k].ms / total_ms : 0.0;
    return n;
}
