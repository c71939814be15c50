/* SPDX-License-Identifier: MIT */
/* dynamics.h: the state of a simulation, shared by the integrator (dynamics.c), its baths, the restart file (restart.c) and devices
 * that integrate instead of the host (model/evaluator_gpu.c). */
#ifndef DYNAMICS_H
#define DYNAMICS_H

#include "atoms/dynamics/bath.h"
#include "base/base.h"
#include "mlff_atoms.h"

/* A GPU that integrates; the atoms stay there between steps. One or several systems are there together. */
typedef struct dynamics_resident {
    void *context; /* NULL: the host integrates */
    int gpu_index;
    /* The atoms as they stand in the systems go there, and their forces are computed there. */
    mlff_status (*put)(void *context, mlff_dynamics *const *dynamics, int n);
    /* times_ns (or NULL) gets the time of each step. A failure leaves the atoms at the end of the last good step, *n_done_out;
     * *failed_out is the system that failed. */
    mlff_status (*run)(void *context, int64_t n_steps, double *times_ns, int64_t *n_done_out, int *failed_out);
    /* Copies positions, velocities, forces, potential energy, cell, virial and bath of system `index` of those put. */
    void (*get)(void *context, int index, mlff_dynamics *dynamics);
    void (*destroy)(void *context);
} dynamics_resident;

/* Where a step, or a run of steps on a device, begins, to go back to if it fails; positions and velocities are in old_positions and
 * old_velocities, forces in the array of the next step. */
typedef struct dynamics_place {
    double potential_energy, time_fs, virial[3], cell[9];
    dynamics_bath bath;
    int64_t step;
} dynamics_place;

struct mlff_dynamics {
    mlff_dynamics_options options;
    mlff_system *system; /* the caller's */
    mlff_force_function function;
    mlff_virial_function virial_function; /* or NULL; then used in place of the other */
    void *context;
    double *forces;                         /* [n_atoms][3] eV/Å, of the current positions if has_forces */
    double *new_forces;                     /* [n_atoms][3] of the step being made */
    double *old_positions, *old_velocities; /* [n_atoms][3] where the step began, to go back to if it fails */
    dynamics_place before;                  /* the rest of that */
    bool has_forces;
    double potential_energy; /* eV */
    double virial[3];        /* eV, diagonal of -dE/dstrain, of the current positions; at constant pressure */
    double new_virial[3];    /* of the step being made */
    dynamics_bath bath;
    int64_t step; /* steps made; also the counter of the noise */
    double time_fs;
    double guard_energy, guard_last; /* eV: conserved energy at guard_step, from where explosions are measured; now */
    int64_t guard_step;
    bool guarded;
    dynamics_resident resident;
    bool placed; /* the atoms are on the GPU */
};

/* Å/fs² per eV/Å */
static inline double inverse_mass(const mlff_system *system, int i)
{
    return 1.0 / (system->masses[i] * BASE_AMU_ANG2_FS2_EV);
}

static inline bool is_fixed(const mlff_system *system, int i)
{
    return system->fixed && system->fixed[i];
}

/* ---- the two halves of a step that the host makes, with the computation of forces between them: dynamics.c */

/* Where a step or a run begins, to go back to; without the forces. */
void dynamics_save_place(mlff_dynamics *dynamics);
void dynamics_go_back(mlff_dynamics *dynamics);
/* From the forces of the current positions to the next positions; saves where the step began. */
void dynamics_step_begin(mlff_dynamics *dynamics);
/* Ends the step with `energy`, new_forces and new_virial of the new positions; `computed` other than MLFF_OK is returned. After a
 * failure the system is where the step began. */
mlff_status dynamics_step_end(mlff_dynamics *dynamics, mlff_status computed, double energy);
/* MLFF_ERR_UNSTABLE where a new position, or, with forces known, energy and forces are not finite or absurd. */
mlff_status dynamics_check_positions(const mlff_dynamics *dynamics, int64_t step);
mlff_status dynamics_check_forces(const mlff_dynamics *dynamics, int64_t step, double energy);

/* ---- explosions: explosion.c */

/* Before a step: measures from here if the caller has changed the atoms since the last one. */
void dynamics_guard_begin(mlff_dynamics *dynamics);
/* MLFF_ERR_UNSTABLE if the conserved energy has jumped since the guard's step; the caller goes back to where it was before. */
mlff_status dynamics_guard_check(mlff_dynamics *dynamics);

/* ---- energies: energies.c */

/* Does the ensemble conserve the momentum of the whole? Then its 3 degrees of freedom are not heat. */
bool dynamics_conserves_momentum(const mlff_dynamics *dynamics);
/* Free atoms, and degrees of freedom that the temperature is of. */
int dynamics_count_free(const mlff_system *system);
double dynamics_n_degrees(const mlff_dynamics *dynamics);
/* Twice the kinetic energy along x, y and z, eV. */
void dynamics_twice_kinetic(const mlff_system *system, double twice[3]);
void dynamics_kinetic_state(const mlff_dynamics *dynamics, double *energy_out, double *temperature_out);
double dynamics_pressure(const mlff_dynamics *dynamics);
double dynamics_conserved_energy(const mlff_dynamics *dynamics);

/* ---- thermostats and barostats: thermostats.c, barostats.c */

static inline bool is_constant_pressure(mlff_ensemble ensemble)
{
    return bath_has_pressure(ensemble) != 0;
}
/* The Langevin bath's O step; returns the heat that it gave, eV. */
double dynamics_langevin(mlff_system *system, const mlff_dynamics_options *options, int64_t step);
/* Bussi's rescaling over a whole step. */
void dynamics_bussi(mlff_dynamics *dynamics);
/* Nosé-Hoover chains over half a step: of the atoms and, in MTK, of the cell. */
void dynamics_chains(mlff_dynamics *dynamics, double temperature_kelvin);
/* Energy of chains and cell, eV, of which pressure times volume is a part. */
double dynamics_bath_energy(const mlff_dynamics *dynamics, double temperature_kelvin);
/* A stochastic step of the cell: chosen where the step begins, made after the first kick; its work is accounted for once the new
 * virial is known. */
void dynamics_scr_choose(mlff_dynamics *dynamics);
void dynamics_scr(mlff_dynamics *dynamics);
void dynamics_scr_finish(mlff_dynamics *dynamics);
/* MTK: half a step of the strain rate; half a kick of the atoms; a whole drift of atoms and cell. */
void dynamics_mtk_strain_rate(mlff_dynamics *dynamics, double temperature_kelvin);
void dynamics_mtk_kick(mlff_dynamics *dynamics);
void dynamics_mtk_drift(mlff_dynamics *dynamics);

/* ---- atoms on a device: resident.c */

/* From now on `resident` integrates. It has the atoms already, and is destroyed with the dynamics. */
void dynamics_set_resident(mlff_dynamics *dynamics, const dynamics_resident *resident);
/* The host's copy after `put`, or after a run. */
mlff_status dynamics_resident_fetch(mlff_dynamics *dynamics);
mlff_status dynamics_resident_run(mlff_dynamics *dynamics, int64_t n_steps, double *times_ns);
/* A run of system `index` of `resident`: what is kept before it; and its end after n_done steps. `status` other than MLFF_OK, with its
 * cause, says that it failed in the next step; it is returned with that step. After an explosion the atoms are where the run began,
 * and are to be put on the device again. */
void dynamics_resident_begin(mlff_dynamics *dynamics);
mlff_status dynamics_resident_end(mlff_dynamics *dynamics, const dynamics_resident *resident, int index, int64_t n_done,
                                  mlff_status status, const char *cause);

#endif
