/* SPDX-License-Identifier: MIT */
/* dynamics.h: the state of a simulation, shared by the integrators (dynamics.c), the restart file (restart.c) and devices
 * that integrate instead of the host (model/evaluator_gpu.c). */
#ifndef DYNAMICS_H
#define DYNAMICS_H

#include "base/base.h"
#include "mlff_atoms.h"

/* A GPU that integrates; the atoms stay there between steps. */
typedef struct dynamics_resident {
    void *context; /* NULL: the host integrates */
    int gpu_index;
    /* The atoms as they stand in dynamics->system go there, and their forces are computed there. */
    mlff_status (*put)(void *context, const mlff_dynamics *dynamics);
    /* times_ns (or NULL) gets the time of each step. A failure leaves the atoms at the end of the last good step, *n_done_out. */
    mlff_status (*run)(void *context, int64_t n_steps, double *times_ns, int64_t *n_done_out);
    /* bath_heat: since `put`. */
    mlff_status (*get)(void *context, double *positions, double *velocities, double *forces, double *potential_energy,
                       double *bath_heat);
    void (*destroy)(void *context);
} dynamics_resident;

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
    double guard_energy, guard_last; /* eV: conserved energy at guard_step, from where explosions are measured; now */
    int64_t guard_step;
    bool guarded;
    dynamics_resident resident;
    bool placed;             /* the atoms are on the GPU */
    double bath_heat_before; /* eV, up to that */
};

/* From now on `resident` integrates. It has the atoms already, and is destroyed with the dynamics. */
void dynamics_set_resident(mlff_dynamics *dynamics, const dynamics_resident *resident);

#endif
