// SPDX-License-Identifier: MIT
// explosion.c: tells a simulation that has lost its trajectory from one that only heats up.
#include <math.h>

#include "atoms/dynamics/dynamics.h"

// The integrator keeps the conserved energy, with a bath too, to some meV/atom. It has lost the trajectory where that energy
// changes by EXPLODED eV for each free atom within WINDOW steps; or, in a large system, by LOST eV while an atom has a kinetic
// energy of HOT eV (thermal at 100,000 K). A strained start heats up, but keeps the conserved energy.
#define EXPLODED 0.5
#define LOST 5.0
#define HOT 10.0
enum { WINDOW = 100 };

static void restart_guard(mlff_dynamics *dynamics, double energy)
{
    dynamics->guard_energy = dynamics->guard_last = energy;
    dynamics->guard_step = dynamics->step;
    dynamics->guarded = true;
}

// Before a step: measures from here if the caller has changed the atoms since the last one.
void dynamics_guard_begin(mlff_dynamics *dynamics)
{
    const double energy = dynamics_conserved_energy(dynamics);
    if (!dynamics->guarded || energy != dynamics->guard_last) restart_guard(dynamics, energy);
}

// The free atom with the highest kinetic energy, eV.
static int hottest_atom(const mlff_system *system, double *energy_out)
{
    int hottest = 0;
    *energy_out = 0;
    for (int i = 0; i < system->n_atoms; i++) {
        const double *v = system->velocities + 3 * (size_t)i;
        const double energy = 0.5 * (v[0] * v[0] + v[1] * v[1] + v[2] * v[2]) * system->masses[i] * BASE_AMU_ANG2_FS2_EV;
        if (!is_fixed(system, i) && energy > *energy_out) *energy_out = energy, hottest = i;
    }
    return hottest;
}

// MLFF_ERR_UNSTABLE if the conserved energy has jumped since the guard's step; the caller goes back to where it was before.
mlff_status dynamics_guard_check(mlff_dynamics *dynamics)
{
    const mlff_system *system = dynamics->system;
    const double energy = dynamics_conserved_energy(dynamics);
    double hot;
    if (!dynamics->guarded) {
        restart_guard(dynamics, energy);
        return MLFF_OK;
    }
    const int64_t n_steps = dynamics->step - dynamics->guard_step;
    const double change = energy - dynamics->guard_energy, windows = fmax(1.0, (double)n_steps / WINDOW);
    const int atom = hottest_atom(system, &hot), n_free = dynamics_count_free(system);
    if (!isfinite(change))
        return mlff_fail(
            MLFF_ERR_UNSTABLE,
            "step %lld: the simulation has exploded: the conserved energy is not finite any more; halve the timestep "
            "(now %g fs) or relax the start",
            (long long)dynamics->step, dynamics->options.timestep_fs);
    if (!(fabs(change) <= EXPLODED * windows * n_free) || (hot > HOT && !(fabs(change) <= LOST * windows)))
        return mlff_fail(MLFF_ERR_UNSTABLE,
                         "step %lld: the simulation has exploded: the conserved energy changed by %.3g eV within %lld step%s; "
                         "atom %d has a kinetic energy of %.3g eV; halve the timestep (now %g fs) or relax the start",
                         (long long)dynamics->step, change, (long long)n_steps, base_plural(n_steps), atom, hot,
                         dynamics->options.timestep_fs);
    dynamics->guard_last = energy;
    if (n_steps >= WINDOW) restart_guard(dynamics, energy);
    return MLFF_OK;
}
