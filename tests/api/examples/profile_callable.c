// SPDX-License-Identifier: MIT
// profile_callable.c: the profiler measures any force field; here a harmonic one, written on the spot.
//   cc profile_callable.c $(pkg-config --cflags --libs mlff_profile) -o profile_callable && ./profile_callable report.json
#include <stdio.h>

#include "mlff_profile.h"

// Each atom on a spring to the origin: E = ½ k Σ r², F = -k r, with k = 0.1 eV/Å².
static mlff_status harmonic_step(void *context, const mlff_system *frame, unsigned wanted, double *energy, double *forces,
                                 double *stress)
{
    double sum = 0;
    (void)context, (void)wanted, (void)stress;
    for (int k = 0; k < 3 * frame->n_atoms; k++) {
        sum += 0.05 * frame->positions[k] * frame->positions[k];
        if (forces) forces[k] = -0.1 * frame->positions[k];
    }
    if (energy) *energy = sum;
    return MLFF_OK;
}

int main(int argc, char **argv)
{
    mlff_callable callable = {
        .struct_size = sizeof callable, .name = "harmonic", .properties = MLFF_ENERGY | MLFF_FORCES, .step = harmonic_step};
    mlff_system *system = NULL;
    mlff_trajectory *trajectory = NULL;
    mlff_profile *profile = NULL;
    char *text = NULL;

    mlff_status status = mlff_system_build("silicon", 64, 0, &system);
    if (status == MLFF_OK) status = mlff_trajectory_thermal(system, 300.0, 0, &trajectory);
    if (status == MLFF_OK) status = mlff_profile_run(&callable, trajectory, NULL, &profile);
    if (status == MLFF_OK) status = mlff_profile_text(profile, 100, &text);
    if (status == MLFF_OK) fputs(text, stdout);
    if (status == MLFF_OK && argc > 1) status = mlff_profile_save(profile, argv[1]);
    if (status != MLFF_OK) fprintf(stderr, "%s\n", mlff_last_error());

    mlff_text_free(text);
    mlff_profile_destroy(profile);
    mlff_trajectory_destroy(trajectory);
    mlff_system_destroy(system);
    return status == MLFF_OK ? 0 : 1;
}
