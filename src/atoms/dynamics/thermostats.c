// SPDX-License-Identifier: MIT
// thermostats.c: Langevin noise, Bussi's stochastic velocity rescaling, and Nosé-Hoover chains.
//
//   Langevin     v = c v + sqrt((1 - c²) k_B T / m) ξ,  c = exp(-friction dt)
//   Bussi        v = α v,  α² = c + (1 - c) (k_B T / 2K) (ξ² + Γ) + 2 ξ sqrt(c (1 - c) k_B T / 2K),  c = exp(-dt/τ)
//                with Γ the sum of the squares of N - 1 normal deviates, drawn as one gamma deviate
//   Nosé-Hoover  chains of 3, Q_1 = N k_B T τ², Q_k = k_B T τ²; Suzuki-Yoshida of fourth order
// ξ of atom i and component c at step n is value n of stream 3 i + c, so it depends on nothing drawn before.
#include <math.h>

#include "atoms/dynamics/dynamics.h"

// Streams of random numbers beyond those of the atoms' components, of which there are at most 3 · 2³¹.
enum { STREAM_BUSSI = 1, STREAM_GAMMA_NORMAL, STREAM_GAMMA_UNIFORM };
static uint64_t stream(uint64_t kind)
{
    return kind << 40;
}

double dynamics_langevin(mlff_system *system, const mlff_dynamics_options *options, int64_t step)
{
    const double temperature = dynamics_target_temperature(options, step);
    double keep = exp(-options->friction_per_fs * options->timestep_fs), heat = 0;
    double noise = -expm1(-2 * options->friction_per_fs * options->timestep_fs) * BASE_KB_EV_PER_K * temperature;
    for (int i = 0; i < system->n_atoms; i++) {
        if (is_fixed(system, i)) continue;
        double deviation = sqrt(noise * inverse_mass(system, i)), before = 0, after = 0;
        for (size_t k = 3 * (size_t)i; k < 3 * (size_t)i + 3; k++) {
            double v = system->velocities[k];
            before += v * v;
            v = keep * v + deviation * base_random_normal(options->seed, k, (uint64_t)step);
            after += v * v;
            system->velocities[k] = v;
        }
        heat += 0.5 * (after - before) / inverse_mass(system, i);
    }
    return heat;
}

// ---- Bussi ------------------------------------------------------------------------------------------------------------

// Sum of the squares of n normal deviates: twice a gamma deviate of shape n/2 (Marsaglia & Tsang 2000,
// doi:10.1145/358407.358414). Values of step s are numbers 64 s … of the streams; 64 rejections in a row do not occur.
static double chi_square(double n, uint64_t seed, uint64_t step)
{
    if (n < 1) return 0;
    if (n < 2) {
        const double x = base_random_normal(seed, stream(STREAM_GAMMA_NORMAL), 64 * step);
        return x * x;
    }
    const double d = 0.5 * n - 1.0 / 3, c = 1 / sqrt(9 * d);
    double v = 1;
    for (uint64_t k = 64 * step; k < 64 * step + 64; k++) {
        const double x = base_random_normal(seed, stream(STREAM_GAMMA_NORMAL), k), u = 1 + c * x;
        v = u * u * u;
        if (v <= 0) continue;
        if (log(1 - base_random_uniform(seed, stream(STREAM_GAMMA_UNIFORM), k)) < 0.5 * x * x + d - d * v + d * log(v)) break;
    }
    return 2 * d * fmax(v, 0);
}

static void scale_velocities(mlff_system *system, double factor)
{
    for (size_t k = 0; k < 3 * (size_t)system->n_atoms; k++) system->velocities[k] *= factor;
}

static double kinetic_energy(const mlff_system *system)
{
    double twice[3];
    dynamics_twice_kinetic(system, twice);
    return 0.5 * (twice[0] + twice[1] + twice[2]);
}

double dynamics_bussi(mlff_dynamics *dynamics)
{
    const mlff_dynamics_options *options = &dynamics->options;
    const double kinetic = kinetic_energy(dynamics->system);
    const double target = BASE_KB_EV_PER_K * dynamics_target_temperature(options, dynamics->step);
    if (!(kinetic > 0)) return 0;
    const double c = exp(-options->timestep_fs / options->thermostat_fs), ratio = (1 - c) * target / (2 * kinetic);
    const double x = base_random_normal(options->seed, stream(STREAM_BUSSI), (uint64_t)dynamics->step);
    const double squares = chi_square(dynamics_n_degrees(dynamics) - 1, options->seed, (uint64_t)dynamics->step);
    const double square = fmax(0.0, c + ratio * (x * x + squares) + 2 * x * sqrt(c * ratio));
    const double factor = x * sqrt(ratio) + sqrt(c) < 0 ? -sqrt(square) : sqrt(square);
    scale_velocities(dynamics->system, factor);
    return kinetic * (square - 1);
}

// ---- Nosé-Hoover chains -----------------------------------------------------------------------------------------------

typedef struct chain_target {
    double n_degrees, kt, time_fs; /* of the degrees of freedom, and the chain's time constant */
} chain_target;

static double chain_mass(chain_target to, int link)
{
    return (link == 0 ? to.n_degrees : 1) * to.kt * to.time_fs * to.time_fs;
}

// A quarter step of one link's rate, which the next link damps; `twice_kinetic` of what the chain is on, eV.
static void push_link(nose_hoover_chain *chain, int link, chain_target to, double twice_kinetic, double dt)
{
    double *rate = chain->rate;
    const double damp = link + 1 < CHAIN_LENGTH ? exp(-0.125 * dt * rate[link + 1]) : 1;
    const double push =
        link > 0 ? chain_mass(to, link - 1) * rate[link - 1] * rate[link - 1] - to.kt : twice_kinetic - to.n_degrees * to.kt;
    rate[link] = damp * (rate[link] * damp + 0.25 * dt * push / chain_mass(to, link));
}

// Half of a step of `timestep_fs`; returns the factor of the velocities that the chain is on.
static double move_chain(nose_hoover_chain *chain, chain_target to, double twice_kinetic, double timestep_fs)
{
    static const double weights[3] = {1.3512071919596578, -1.7024143839193155, 1.3512071919596578}; // 1/(2 - ∛2), 1 - 2/(2 - ∛2)
    double factor = 1;
    for (int w = 0; w < 3; w++) {
        const double dt = weights[w] * timestep_fs;
        for (int k = CHAIN_LENGTH - 1; k >= 0; k--) push_link(chain, k, to, factor * factor * twice_kinetic, dt);
        factor *= exp(-0.5 * dt * chain->rate[0]);
        for (int k = 0; k < CHAIN_LENGTH; k++) chain->position[k] += 0.5 * dt * chain->rate[k];
        for (int k = 0; k < CHAIN_LENGTH; k++) push_link(chain, k, to, factor * factor * twice_kinetic, dt);
    }
    return factor;
}

static double chain_energy(const nose_hoover_chain *chain, chain_target to)
{
    double energy = to.n_degrees * to.kt * chain->position[0];
    for (int k = 0; k < CHAIN_LENGTH; k++) {
        energy += 0.5 * chain_mass(to, k) * chain->rate[k] * chain->rate[k];
        if (k > 0) energy += to.kt * chain->position[k];
    }
    return energy;
}

static chain_target target_of_atoms(const mlff_dynamics *dynamics, double temperature_kelvin)
{
    return (chain_target){dynamics_n_degrees(dynamics), BASE_KB_EV_PER_K * temperature_kelvin, dynamics->options.thermostat_fs};
}

static chain_target target_of_cell(const mlff_dynamics *dynamics, double temperature_kelvin)
{
    const mlff_dynamics_options *options = &dynamics->options;
    return (chain_target){options->anisotropic ? 3 : 1, BASE_KB_EV_PER_K * temperature_kelvin, options->barostat_fs};
}

// Twice the kinetic energy of MTK's cell, eV.
static double twice_kinetic_of_cell(const mlff_dynamics *dynamics, double temperature_kelvin)
{
    const double *rate = dynamics->bath.strain_rate;
    return dynamics_strain_mass(dynamics, temperature_kelvin) * (rate[0] * rate[0] + rate[1] * rate[1] + rate[2] * rate[2]);
}

void dynamics_chains(mlff_dynamics *dynamics, double temperature_kelvin)
{
    const double dt = dynamics->options.timestep_fs;
    dynamics_bath *bath = &dynamics->bath;
    scale_velocities(dynamics->system, move_chain(&bath->on_atoms, target_of_atoms(dynamics, temperature_kelvin),
                                                  2 * kinetic_energy(dynamics->system), dt));
    if (dynamics->options.ensemble != MLFF_MTK) return;
    const double factor = move_chain(&bath->on_cell, target_of_cell(dynamics, temperature_kelvin),
                                     twice_kinetic_of_cell(dynamics, temperature_kelvin), dt);
    for (int c = 0; c < 3; c++) bath->strain_rate[c] *= factor;
}

double dynamics_bath_energy(const mlff_dynamics *dynamics, double temperature_kelvin)
{
    const mlff_ensemble ensemble = dynamics->options.ensemble;
    double energy = 0;
    if (is_constant_pressure(ensemble)) energy += dynamics->options.pressure * mlff_system_volume(dynamics->system);
    if (ensemble == MLFF_NOSE_HOOVER || ensemble == MLFF_MTK)
        energy += chain_energy(&dynamics->bath.on_atoms, target_of_atoms(dynamics, temperature_kelvin));
    if (ensemble == MLFF_MTK)
        energy += chain_energy(&dynamics->bath.on_cell, target_of_cell(dynamics, temperature_kelvin)) +
                  0.5 * twice_kinetic_of_cell(dynamics, temperature_kelvin);
    return energy;
}
