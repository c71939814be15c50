// SPDX-License-Identifier: MIT
// resident.c: atoms that a device integrates, and the host's copy of them.
#include <string.h>

#include "atoms/dynamics/dynamics.h"

void dynamics_set_resident(mlff_dynamics *dynamics, const dynamics_resident *resident)
{
    dynamics->resident = *resident;
    dynamics->placed = true;
}

static mlff_status place(mlff_dynamics *dynamics)
{
    if (dynamics->placed) return MLFF_OK;
    mlff_status status = dynamics->resident.put(dynamics->resident.context, &dynamics, 1);
    dynamics->placed = status == MLFF_OK;
    return status;
}

static void fetch(mlff_dynamics *dynamics, const dynamics_resident *resident, int index)
{
    resident->get(resident->context, index, dynamics);
    dynamics->has_forces = true;
}

mlff_status dynamics_resident_fetch(mlff_dynamics *dynamics)
{
    const mlff_status status = place(dynamics);
    if (status == MLFF_OK) fetch(dynamics, &dynamics->resident, 0);
    return status;
}

void dynamics_resident_begin(mlff_dynamics *dynamics)
{
    if (dynamics->has_forces) dynamics_guard_begin(dynamics);
    dynamics_save_place(dynamics);
    memcpy(dynamics->new_forces, dynamics->forces, 3 * (size_t)dynamics->system->n_atoms * sizeof(double));
}

mlff_status dynamics_resident_end(mlff_dynamics *dynamics, const dynamics_resident *resident, int index, int64_t n_done,
                                  mlff_status status, const char *cause)
{
    dynamics->step += n_done;
    for (int64_t k = 0; k < n_done; k++) dynamics->time_fs += dynamics->options.timestep_fs; // the sum that single steps make
    fetch(dynamics, resident, index); // after a failure what it was before the step that failed
    if (status != MLFF_OK)
        return mlff_fail(MLFF_ERR_UNSTABLE, "step %lld: %s (halve the timestep, now %g fs, or relax the start)",
                         (long long)dynamics->step + 1, cause, dynamics->options.timestep_fs);
    if ((status = dynamics_guard_check(dynamics)) == MLFF_OK) return status;
    dynamics_go_back(dynamics);
    memcpy(dynamics->forces, dynamics->new_forces, 3 * (size_t)dynamics->system->n_atoms * sizeof(double));
    return status;
}

mlff_status dynamics_resident_run(mlff_dynamics *dynamics, int64_t n_steps, double *times_ns)
{
    int64_t n_done = 0;
    int failed;
    char cause[900];
    mlff_status status = place(dynamics);
    if (status != MLFF_OK) return status;
    dynamics_resident_begin(dynamics);
    status = dynamics->resident.run(dynamics->resident.context, n_steps, times_ns, &n_done, &failed);
    snprintf(cause, sizeof cause, "%s", mlff_last_error());
    const mlff_status ended = dynamics_resident_end(dynamics, &dynamics->resident, 0, n_done, status, cause);
    return status == MLFF_ERR_DEVICE || status == MLFF_ERR_MEMORY ? mlff_fail(status, "%s", cause) : ended;
}
