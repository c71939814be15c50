// SPDX-License-Identifier: MIT
// thermostats.c: Langevin noise, Bussi's stochastic velocity rescaling, and Nosé-Hoover chains on the atoms of the host. The last two: bath.h.
//
//   Langevin     v = c v + sqrt((1 - c²) k_B T / m) ξ,  c = exp(-friction dt)
// ξ of atom i and component c at step n is value n of stream 3 i + c, so it depends on nothing drawn before.
#include <math.h>

#include "atoms/dynamics/dynamics.h"

double dynamics_langevin(mlff_system *system, const mlff_dynamics_options *options, int64_t step)
{
    double keep, noise, heat = 0;
    bath_langevin(options, step, &keep, &noise);
    for (int i = 0; i < system->n_atoms; i++) {
        if (is_fixed(system, i)) continue;
        double deviation = sqrt(noise * inverse_mass(system, i)), before = 0, after = 0;
        for (size_t k = 3 * (size_t)i; k < 3 * (size_t)i + 3; k++) {
            double v = system->velocities[k];
            before += v * v;
            v = keep * v + deviation * random_normal(options->seed, k, (uint64_t)step);
            after += v * v;
            system->velocities[k] = v;
        }
        heat += 0.5 * (after - before) / inverse_mass(system, i);
    }
    return heat;
}

static void scale_velocities(mlff_system *system, double factor)
{
    for (size_t k = 0; k < 3 * (size_t)system->n_atoms; k++) system->velocities[k] *= factor;
}

static double twice_kinetic_energy(const mlff_system *system)
{
    double twice[3];
    dynamics_twice_kinetic(system, twice);
    return twice[0] + twice[1] + twice[2];
}

void dynamics_bussi(mlff_dynamics *dynamics)
{
    const mlff_dynamics_options *options = &dynamics->options;
    const bath_deviates drawn = bath_draw(options, dynamics_n_degrees(dynamics), dynamics->step);
    scale_velocities(dynamics->system,
                     bath_rescale(options, dynamics->step, drawn, 0.5 * twice_kinetic_energy(dynamics->system), &dynamics->bath));
}

void dynamics_chains(mlff_dynamics *dynamics, double temperature_kelvin)
{
    scale_velocities(dynamics->system, bath_move_chains(&dynamics->options, dynamics_n_degrees(dynamics), temperature_kelvin,
                                                        twice_kinetic_energy(dynamics->system), &dynamics->bath));
}

double dynamics_bath_energy(const mlff_dynamics *dynamics, double temperature_kelvin)
{
    return bath_energy(&dynamics->options, dynamics_n_degrees(dynamics), &dynamics->bath, mlff_system_volume(dynamics->system),
                       temperature_kelvin);
}
