/* SPDX-License-Identifier: MIT */
/* dynamics.h: the state of a simulation, shared by the integrators (dynamics.c) and the restart file (restart.c). */
#ifndef DYNAMICS_H
#define DYNAMICS_H

#include "base/base.h"
#include "mlff_atoms.h"

struct mlff_dynamics {
    mlff_dynamics_options options;
    mlff_system *system; /* the caller's */
    mlff_force_function function;
    void *context;
    double *forces;                         /* [n_atoms][3] eV/Å, of the current positions if has_forces */
    double *new_forces;                     /* [n_atoms][3] of the step being made */
    double *old_positions, *old_velocities; /* [n_atoms][3] where the step began, to go back to if it fails */
    bool has_forces;
    double potential_energy; /* eV */
    double bath_heat;        /* eV that the Langevin bath has given so far */
    int64_t step;            /* steps made; also the counter of the noise */
    double time_fs;
};

#endif
