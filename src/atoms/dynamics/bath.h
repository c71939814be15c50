/* SPDX-License-Identifier: MIT */
/* bath.h: arithmetic of thermostats and barostats, one system's numbers at a time. Plain C for the host's and the GPU's compiler, which
 * both make the steps of dynamics.c from it; sums over atoms, and the scaling of atoms, are the caller's.
 *
 *   Bussi        v = α v,  α² = c + (1 - c) (k_B T / 2K) (ξ² + Γ) + 2 ξ sqrt(c (1 - c) k_B T / 2K),  c = exp(-dt/τ)
 *                with Γ the sum of the squares of N - 1 normal deviates, drawn as one gamma deviate
 *   Nosé-Hoover  chains of 3, Q_1 = N k_B T τ², Q_k = k_B T τ²; Suzuki-Yoshida of fourth order
 *   SCR, MTK     barostats.c
 * Random values of step s are numbers s (of gamma deviates 64 s …) of their streams, so they depend on nothing drawn before. */
#ifndef BATH_H
#define BATH_H

#include "base/base.h"
#include "base/random.h"
#include "mlff_atoms.h"

/* A Nosé-Hoover chain: thermostat variables of one set of degrees of freedom. */
enum { CHAIN_LENGTH = 3 };
typedef struct nose_hoover_chain {
    double position[CHAIN_LENGTH]; /* η, dimensionless */
    double rate[CHAIN_LENGTH];     /* 1/fs */
} nose_hoover_chain;

/* State of thermostat and barostat. */
typedef struct dynamics_bath {
    double heat; /* eV given to the atoms so far by stochastic baths and by changes of the temperature */
    nose_hoover_chain on_atoms, on_cell;
    double strain_rate[3];            /* 1/fs, of MTK's cell along x, y, z */
    double strain[3], work_before[3]; /* of the last stochastic step of the cell, and the virial it began with, eV */
} dynamics_bath;

/* Streams of random numbers beyond those of the atoms' components, of which there are at most 3 · 2³¹. */
enum { BATH_STREAM_BUSSI = 1, BATH_STREAM_GAMMA_NORMAL, BATH_STREAM_GAMMA_UNIFORM, BATH_STREAM_CELL = 8 };
static inline BASE_HOST_DEVICE uint64_t bath_stream(int kind)
{
    return (uint64_t)kind << 40;
}

static inline BASE_HOST_DEVICE int bath_has_chains(int ensemble)
{
    return ensemble == MLFF_NOSE_HOOVER || ensemble == MLFF_MTK;
}

static inline BASE_HOST_DEVICE int bath_has_rescaling(int ensemble)
{
    return ensemble == MLFF_BUSSI || ensemble == MLFF_SCR;
}

static inline BASE_HOST_DEVICE int bath_has_pressure(int ensemble)
{
    return ensemble == MLFF_SCR || ensemble == MLFF_MTK;
}

/* Of the thermostat at a step, with the ramp, K. */
static inline BASE_HOST_DEVICE double bath_temperature(const mlff_dynamics_options *options, int64_t step)
{
    if (options->ramp_steps <= 0) return options->temperature_kelvin;
    if (step >= options->ramp_steps) return options->ramp_end_kelvin;
    const double share = (double)step / (double)options->ramp_steps;
    return options->temperature_kelvin + share * (options->ramp_end_kelvin - options->temperature_kelvin);
}

static inline BASE_HOST_DEVICE void bath_average(double value[3])
{
    value[0] = value[1] = value[2] = (value[0] + value[1] + value[2]) / 3;
}

static inline BASE_HOST_DEVICE double bath_volume(const double cell[9])
{
    return fabs(cell[0] * (cell[4] * cell[8] - cell[5] * cell[7]) - cell[1] * (cell[3] * cell[8] - cell[5] * cell[6]) +
                cell[2] * (cell[3] * cell[7] - cell[4] * cell[6]));
}

/* ---- Langevin ---------------------------------------------------------------------------------------------------------- */

/* v = keep v + sqrt(noise / m) ξ */
static inline BASE_HOST_DEVICE void bath_langevin(const mlff_dynamics_options *options, int64_t step, double *keep, double *noise)
{
    const double damping = options->friction_per_fs * options->timestep_fs;
    *keep = exp(-damping);
    *noise = -expm1(-2 * damping) * BASE_KB_EV_PER_K * bath_temperature(options, step);
}

/* ---- Bussi ------------------------------------------------------------------------------------------------------------- */

/* Sum of the squares of n normal deviates: twice a gamma deviate of shape n/2 (Marsaglia & Tsang 2000,
 * doi:10.1145/358407.358414). 64 rejections in a row do not occur. */
static inline BASE_HOST_DEVICE double bath_chi_square(double n, uint64_t seed, uint64_t step)
{
    if (n < 1) return 0;
    if (n < 2) {
        const double x = random_normal(seed, bath_stream(BATH_STREAM_GAMMA_NORMAL), 64 * step);
        return x * x;
    }
    const double d = 0.5 * n - 1.0 / 3, c = 1 / sqrt(9 * d);
    double v = 1;
    for (uint64_t k = 64 * step; k < 64 * step + 64; k++) {
        const double x = random_normal(seed, bath_stream(BATH_STREAM_GAMMA_NORMAL), k), u = 1 + c * x;
        v = u * u * u;
        if (v <= 0) continue;
        if (log(1 - random_uniform(seed, bath_stream(BATH_STREAM_GAMMA_UNIFORM), k)) < 0.5 * x * x + d - d * v + d * log(v))
            break;
    }
    return 2 * d * fmax(v, 0.0);
}

/* The random values of a step's rescaling. */
typedef struct bath_deviates {
    double normal, squares;
} bath_deviates;

static inline BASE_HOST_DEVICE bath_deviates bath_draw(const mlff_dynamics_options *options, double n_degrees, int64_t step)
{
    bath_deviates drawn;
    drawn.normal = random_normal(options->seed, bath_stream(BATH_STREAM_BUSSI), (uint64_t)step);
    drawn.squares = bath_chi_square(n_degrees - 1, options->seed, (uint64_t)step);
    return drawn;
}

/* Rescaling over a whole step: the factor of the velocities. Its heat is added. */
static inline BASE_HOST_DEVICE double bath_rescale(const mlff_dynamics_options *options, int64_t step, bath_deviates drawn,
                                                   double kinetic, dynamics_bath *bath)
{
    if (!(kinetic > 0)) return 1;
    const double target = BASE_KB_EV_PER_K * bath_temperature(options, step);
    const double c = exp(-options->timestep_fs / options->thermostat_fs), ratio = (1 - c) * target / (2 * kinetic);
    const double x = drawn.normal;
    const double square = fmax(0.0, c + ratio * (x * x + drawn.squares) + 2 * x * sqrt(c * ratio));
    bath->heat += kinetic * (square - 1);
    return x * sqrt(ratio) + sqrt(c) < 0 ? -sqrt(square) : sqrt(square);
}

/* ---- Nosé-Hoover chains ------------------------------------------------------------------------------------------------ */

typedef struct chain_target {
    double n_degrees, kt, time_fs; /* of the degrees of freedom, and the chain's time constant */
} chain_target;

static inline BASE_HOST_DEVICE chain_target bath_target_of_atoms(const mlff_dynamics_options *options, double n_degrees,
                                                                 double temperature_kelvin)
{
    const chain_target to = {n_degrees, BASE_KB_EV_PER_K * temperature_kelvin, options->thermostat_fs};
    return to;
}

static inline BASE_HOST_DEVICE chain_target bath_target_of_cell(const mlff_dynamics_options *options, double temperature_kelvin)
{
    const chain_target to = {options->anisotropic ? 3.0 : 1.0, BASE_KB_EV_PER_K * temperature_kelvin, options->barostat_fs};
    return to;
}

static inline BASE_HOST_DEVICE double chain_mass(chain_target to, int link)
{
    return (link == 0 ? to.n_degrees : 1) * to.kt * to.time_fs * to.time_fs;
}

/* A quarter step of one link's rate, which the next link damps; `twice_kinetic` of what the chain is on, eV. */
static inline BASE_HOST_DEVICE void chain_push(nose_hoover_chain *chain, int link, chain_target to, double twice_kinetic,
                                               double dt)
{
    double *rate = chain->rate;
    const double damp = link + 1 < CHAIN_LENGTH ? exp(-0.125 * dt * rate[link + 1]) : 1;
    const double push =
        link > 0 ? chain_mass(to, link - 1) * rate[link - 1] * rate[link - 1] - to.kt : twice_kinetic - to.n_degrees * to.kt;
    rate[link] = damp * (rate[link] * damp + 0.25 * dt * push / chain_mass(to, link));
}

/* Half of a step of `timestep_fs`; returns the factor of the velocities that the chain is on. */
static inline BASE_HOST_DEVICE double chain_move(nose_hoover_chain *chain, chain_target to, double twice_kinetic,
                                                 double timestep_fs)
{
    const double outer = 1.3512071919596578, weights[3] = {outer, 1 - 2 * outer, outer}; /* 1/(2 - ∛2), 1 - 2/(2 - ∛2) */
    double factor = 1;
    for (int w = 0; w < 3; w++) {
        const double dt = weights[w] * timestep_fs;
        for (int k = CHAIN_LENGTH - 1; k >= 0; k--) chain_push(chain, k, to, factor * factor * twice_kinetic, dt);
        factor *= exp(-0.5 * dt * chain->rate[0]);
        for (int k = 0; k < CHAIN_LENGTH; k++) chain->position[k] += 0.5 * dt * chain->rate[k];
        for (int k = 0; k < CHAIN_LENGTH; k++) chain_push(chain, k, to, factor * factor * twice_kinetic, dt);
    }
    return factor;
}

static inline BASE_HOST_DEVICE double chain_energy(const nose_hoover_chain *chain, chain_target to)
{
    double energy = to.n_degrees * to.kt * chain->position[0];
    for (int k = 0; k < CHAIN_LENGTH; k++) {
        energy += 0.5 * chain_mass(to, k) * chain->rate[k] * chain->rate[k];
        if (k > 0) energy += to.kt * chain->position[k];
    }
    return energy;
}

/* Mass of MTK's cell along one axis, eV fs²; twice its kinetic energy, eV. */
static inline BASE_HOST_DEVICE double bath_strain_mass(const mlff_dynamics_options *options, double n_degrees,
                                                       double temperature_kelvin)
{
    return (n_degrees + 3) / 3 * BASE_KB_EV_PER_K * temperature_kelvin * options->barostat_fs * options->barostat_fs;
}

static inline BASE_HOST_DEVICE double bath_twice_kinetic_of_cell(const mlff_dynamics_options *options, double n_degrees,
                                                                 const dynamics_bath *bath, double temperature_kelvin)
{
    const double *rate = bath->strain_rate;
    return bath_strain_mass(options, n_degrees, temperature_kelvin) * (rate[0] * rate[0] + rate[1] * rate[1] + rate[2] * rate[2]);
}

/* Chains of atoms and, in MTK, of the cell over half a step; returns the factor of the atoms' velocities. */
static inline BASE_HOST_DEVICE double bath_move_chains(const mlff_dynamics_options *options, double n_degrees,
                                                       double temperature_kelvin, double twice_kinetic, dynamics_bath *bath)
{
    const double factor = chain_move(&bath->on_atoms, bath_target_of_atoms(options, n_degrees, temperature_kelvin), twice_kinetic,
                                     options->timestep_fs);
    if (options->ensemble != MLFF_MTK) return factor;
    const double of_cell =
        chain_move(&bath->on_cell, bath_target_of_cell(options, temperature_kelvin),
                   bath_twice_kinetic_of_cell(options, n_degrees, bath, temperature_kelvin), options->timestep_fs);
    for (int c = 0; c < 3; c++) bath->strain_rate[c] *= of_cell;
    return factor;
}

/* Energy of chains and cell, eV, of which pressure times volume is a part. */
static inline BASE_HOST_DEVICE double bath_energy(const mlff_dynamics_options *options, double n_degrees,
                                                  const dynamics_bath *bath, double volume, double temperature_kelvin)
{
    double energy = 0;
    if (bath_has_pressure(options->ensemble)) energy += options->pressure * volume;
    if (bath_has_chains(options->ensemble))
        energy += chain_energy(&bath->on_atoms, bath_target_of_atoms(options, n_degrees, temperature_kelvin));
    if (options->ensemble == MLFF_MTK)
        energy += chain_energy(&bath->on_cell, bath_target_of_cell(options, temperature_kelvin)) +
                  0.5 * bath_twice_kinetic_of_cell(options, n_degrees, bath, temperature_kelvin);
    return energy;
}

/* At the end of step `step`: along a ramp the energy of the chains is counted from another zero after each step. */
static inline BASE_HOST_DEVICE void bath_end_step(const mlff_dynamics_options *options, double n_degrees, double volume,
                                                  int64_t step, dynamics_bath *bath)
{
    const double now = bath_temperature(options, step), next = bath_temperature(options, step + 1);
    if (now != next)
        bath->heat += bath_energy(options, n_degrees, bath, volume, next) - bath_energy(options, n_degrees, bath, volume, now);
}

/* ---- stochastic cell rescaling ----------------------------------------------------------------------------------------- */

/* Half of the drift of a strain, by the midpoint rule; velocities are scaled with the strain, the virial is that of the beginning. */
static inline BASE_HOST_DEVICE void bath_drift_strain(const mlff_dynamics_options *options, double rate, double kt, double volume,
                                                      const double twice_kinetic[3], const double virial[3], double strain[3])
{
    double at[3] = {strain[0], strain[1], strain[2]};
    for (int stage = 1; stage <= 2; stage++) {
        const double now = volume * exp(at[0] + at[1] + at[2]);
        double push[3];
        for (int c = 0; c < 3; c++)
            push[c] = 0.5 * rate * ((exp(-2 * at[c]) * twice_kinetic[c] + virial[c] + 0.5 * kt) / now - options->pressure);
        if (!options->anisotropic) bath_average(push);
        for (int c = 0; c < 3; c++) at[c] = strain[c] + 0.5 * stage * push[c];
    }
    for (int c = 0; c < 3; c++) strain[c] = at[c];
}

/* The noise of a strain, exact for the volume: sqrt(V) changes by a normal deviate. */
static inline BASE_HOST_DEVICE void bath_draw_strain(const mlff_dynamics_options *options, double rate, double kt, double volume,
                                                     int64_t step, double strain[3])
{
    const double half_spread = sqrt(0.5 * kt * rate / (volume * exp(strain[0] + strain[1] + strain[2])));
    double noise[3];
    for (int c = 0; c < 3; c++) noise[c] = random_normal(options->seed, bath_stream(BATH_STREAM_CELL + c), (uint64_t)step);
    const double growth = half_spread * (noise[0] + noise[1] + noise[2]); /* of sqrt(V), as a part of it; never near -1 */
    const double along = half_spread * (fabs(growth) < 1e-9 ? 2 : 2 * log(fabs(1 + growth)) / growth);
    if (!options->anisotropic) bath_average(noise);
    for (int c = 0; c < 3; c++) strain[c] += along * noise[c];
}

/* The strain of this step from twice the kinetic energy along each axis, virial (its diagonal) and volume where it begins: half of the
 * drift, the noise, half of the drift. */
static inline BASE_HOST_DEVICE void bath_choose_strain(const mlff_dynamics_options *options, int64_t step, double volume,
                                                       const double twice_kinetic[3], const double virial[3], dynamics_bath *bath)
{
    const double kt = BASE_KB_EV_PER_K * bath_temperature(options, step);
    const double rate = options->compressibility / (3 * options->barostat_fs) * options->timestep_fs;
    for (int c = 0; c < 3; c++) {
        bath->strain[c] = 0;
        bath->work_before[c] = virial[c];
    }
    bath_drift_strain(options, rate, kt, volume, twice_kinetic, virial, bath->strain);
    bath_draw_strain(options, rate, kt, volume, step, bath->strain);
    bath_drift_strain(options, rate, kt, volume, twice_kinetic, virial, bath->strain);
}

/* Potential energy changes by -w_a per strain; the mean of the virials before and after is exact to third order. */
static inline BASE_HOST_DEVICE void bath_count_strain(const double virial[3], dynamics_bath *bath)
{
    for (int c = 0; c < 3; c++) bath->heat -= 0.5 * bath->strain[c] * (bath->work_before[c] + virial[c]);
}

/* ---- Martyna-Tobias-Klein ---------------------------------------------------------------------------------------------- */

/* Half a step of the strain rate. */
static inline BASE_HOST_DEVICE void bath_push_strain_rate(const mlff_dynamics_options *options, double n_degrees,
                                                          double temperature_kelvin, double volume, const double twice_kinetic[3],
                                                          const double virial[3], dynamics_bath *bath)
{
    const double mass = bath_strain_mass(options, n_degrees, temperature_kelvin);
    const double share = (twice_kinetic[0] + twice_kinetic[1] + twice_kinetic[2]) / n_degrees;
    double push[3];
    for (int c = 0; c < 3; c++) push[c] = twice_kinetic[c] + virial[c] - volume * options->pressure + share;
    if (!options->anisotropic) bath_average(push);
    for (int c = 0; c < 3; c++) bath->strain_rate[c] += 0.5 * options->timestep_fs * push[c] / mass;
}

/* sinh(x)/x */
static inline BASE_HOST_DEVICE double bath_sinhc(double x)
{
    const double square = x * x;
    return fabs(x) < 0.05 ? 1 + square / 6 * (1 + square / 20 * (1 + square / 42)) : sinh(x) / x;
}

/* Half a kick: v_c = keep_c v_c + gain_c F_c / m. */
static inline BASE_HOST_DEVICE void bath_strained_kick(const mlff_dynamics_options *options, double n_degrees,
                                                       const dynamics_bath *bath, double keep[3], double gain[3])
{
    const double *rate = bath->strain_rate, half = 0.5 * options->timestep_fs;
    const double trace = (rate[0] + rate[1] + rate[2]) / n_degrees;
    for (int c = 0; c < 3; c++) {
        const double x = 0.5 * half * (rate[c] + trace);
        keep[c] = exp(-2 * x);
        gain[c] = half * exp(-x) * bath_sinhc(x);
    }
}

/* A drift: r_c = up_c r_c + along_c v_c; cell vectors times up_c. */
static inline BASE_HOST_DEVICE void bath_strained_drift(const mlff_dynamics_options *options, const dynamics_bath *bath,
                                                        double up[3], double along[3])
{
    for (int c = 0; c < 3; c++) {
        const double x = 0.5 * options->timestep_fs * bath->strain_rate[c];
        up[c] = exp(2 * x);
        along[c] = options->timestep_fs * exp(x) * bath_sinhc(x);
    }
}

#endif
