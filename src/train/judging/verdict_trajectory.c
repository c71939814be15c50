// SPDX-License-Identifier: MIT
// verdict_trajectory.c: molecular dynamics by student or teacher from the structure that a verdict is measured on.
#include "verdict_trajectory.h"

void trajectory_free(trajectory *t)
{
    mlff_dynamics_destroy(t->dynamics);
    mlff_system_destroy(t->system);
    *t = (trajectory){0};
}

mlff_status trajectory_begin_dynamics(const verdict_run *run, const mlff_force_field *field, mlff_ensemble ensemble,
                                      double kelvin, uint64_t seed, trajectory *t)
{
    mlff_dynamics_options options = mlff_dynamics_options_default();
    options.ensemble = ensemble;
    options.timestep_fs = run->verdict->options.timestep_fs;
    options.temperature_kelvin = kelvin;
    options.seed = seed;
    mlff_dynamics_destroy(t->dynamics);
    t->dynamics = NULL;
    if (field == &run->student && run->evaluator) // else a field of the caller's
        return mlff_dynamics_create_on(run->evaluator, &options, t->system, NULL, NULL, &t->dynamics);
    return mlff_dynamics_create(&options, t->system, field->forces, field->context, &t->dynamics);
}

mlff_status trajectory_begin(const verdict_run *run, const mlff_force_field *field, mlff_ensemble ensemble, double kelvin,
                             uint64_t seed, const char *what, trajectory *t)
{
    mlff_status status = MLFF_OK;
    *t = (trajectory){.what = what};
    MLFF_TRY(mlff_system_copy(run->start, &t->system));
    MLFF_TRY(mlff_system_thermalize(t->system, kelvin, seed));
    MLFF_TRY(trajectory_begin_dynamics(run, field, ensemble, kelvin, seed, t));
done:
    return status;
}

mlff_status trajectory_sample(const verdict_run *run, trajectory *t, int64_t n, trajectory_taker take, void *context,
                              int64_t *n_done_out)
{
    mlff_status status = MLFF_OK;
    for (*n_done_out = 0; *n_done_out < n; (*n_done_out)++) {
        mlff_dynamics_state state;
        MLFF_TRY(mlff_dynamics_run(t->dynamics, TRAJECTORY_EVERY, NULL));
        MLFF_TRY(mlff_dynamics_state_get(t->dynamics, &state));
        if (take) MLFF_TRY(take(context, *n_done_out, t->system, &state));
        if (*n_done_out % 16 == 0) MLFF_TRY(verdict_tell(run, t->what, (double)*n_done_out / (double)n));
    }
done:
    return status;
}

int64_t trajectory_samples(const verdict_run *run, double picoseconds)
{
    const double n = picoseconds * 1000 / (TRAJECTORY_EVERY * run->verdict->options.timestep_fs);
    return n < 1 ? 1 : (int64_t)n;
}

double trajectory_length(const verdict_run *run, int64_t n_samples)
{
    return (double)n_samples * TRAJECTORY_EVERY * run->verdict->options.timestep_fs * 1e-3;
}
