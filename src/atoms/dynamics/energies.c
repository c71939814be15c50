// SPDX-License-Identifier: MIT
// energies.c: kinetic energy, temperature, pressure and the conserved energy of a simulation.
#include <math.h>

#include "atoms/dynamics/dynamics.h"

int dynamics_count_free(const mlff_system *system)
{
    int n = 0;
    for (int i = 0; i < system->n_atoms; i++) n += !is_fixed(system, i);
    return n > 0 ? n : 1;
}

bool dynamics_conserves_momentum(const mlff_dynamics *dynamics)
{
    const mlff_system *system = dynamics->system;
    return dynamics->options.ensemble != MLFF_LANGEVIN && system->n_atoms > 1 && dynamics_count_free(system) == system->n_atoms;
}

double dynamics_n_degrees(const mlff_dynamics *dynamics)
{
    return 3.0 * dynamics_count_free(dynamics->system) - (dynamics_conserves_momentum(dynamics) ? 3 : 0);
}

void dynamics_twice_kinetic(const mlff_system *system, double twice[3])
{
    twice[0] = twice[1] = twice[2] = 0;
    for (int i = 0; i < system->n_atoms; i++) {
        if (is_fixed(system, i)) continue;
        const double *v = system->velocities + 3 * (size_t)i, m = system->masses[i] * BASE_AMU_ANG2_FS2_EV;
        for (int c = 0; c < 3; c++) twice[c] += m * v[c] * v[c];
    }
}

// The temperature is that of 3 degrees of freedom of each free atom. Where the momentum of the whole is conserved, its motion
// never becomes heat: its 3 degrees and its energy are then left out, as mlff_system_thermalize does.
void dynamics_kinetic_state(const mlff_dynamics *dynamics, double *energy_out, double *temperature_out)
{
    const mlff_system *system = dynamics->system;
    double energy = 0, mass = 0, momentum[3] = {0};
    int n_free = 0;
    for (int i = 0; i < system->n_atoms; i++) {
        if (is_fixed(system, i)) continue;
        const double *v = system->velocities + 3 * (size_t)i;
        double m = system->masses[i] * BASE_AMU_ANG2_FS2_EV;
        energy += 0.5 * m * (v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
        for (int c = 0; c < 3; c++) momentum[c] += m * v[c];
        mass += m;
        n_free++;
    }
    double thermal = energy;
    const double n_degrees = n_free > 0 ? dynamics_n_degrees(dynamics) : 0;
    if (dynamics_conserves_momentum(dynamics))
        thermal -= 0.5 * (momentum[0] * momentum[0] + momentum[1] * momentum[1] + momentum[2] * momentum[2]) / mass;
    *energy_out = energy;
    *temperature_out = n_degrees > 0 ? fmax(0.0, 2 * thermal / (n_degrees * BASE_KB_EV_PER_K)) : 0.0;
}

double dynamics_pressure(const mlff_dynamics *dynamics)
{
    double twice[3], sum = 0;
    if (!is_constant_pressure(dynamics->options.ensemble)) return NAN;
    dynamics_twice_kinetic(dynamics->system, twice);
    for (int c = 0; c < 3; c++) sum += twice[c] + dynamics->virial[c];
    return sum / (3 * mlff_system_volume(dynamics->system));
}

double dynamics_conserved_energy(const mlff_dynamics *dynamics)
{
    double kinetic, temperature;
    dynamics_kinetic_state(dynamics, &kinetic, &temperature);
    const double target = bath_temperature(&dynamics->options, dynamics->step);
    return dynamics->potential_energy + kinetic + dynamics_bath_energy(dynamics, target) - dynamics->bath.heat;
}
