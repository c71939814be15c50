// SPDX-License-Identifier: MIT
// barostats.c: the cell at constant pressure: stochastic rescaling and Martyna-Tobias-Klein. The cell is strained along x, y and z;
// isotropic strains are equal. Positions and cell vectors are scaled about the origin of coordinates.
//
//   P_a = (Σ m v_a² + w_a) / V,  w the diagonal of the virial, P the mean of the P_a
//   SCR    d ln V = (β/τ) (P - P0) dt + sqrt(2 k_B T β / (V τ)) dW;  a third of it along each axis, or, anisotropic,
//          d ln L_a = (β/3τ) (P_a - P0) dt + sqrt(2 k_B T β / (3 V τ)) dW_a.  Velocities are divided by the same factors.
//          (In ln V the k_B T/V of the equation in V is Itô's term.) Kick, scale, drift.
//   MTK    W dv_a/dt = V (P_a - P0) + Σ m v²/N_f,  W = (N_f + 3)/3 k_B T τ²; isotropic: the mean of the right side
//          dr/dt = v + v_a r,  dv/dt = F/m - (v_a + Σ v_b/N_f) v,  as Tuckerman et al. 2006, doi:10.1088/0305-4470/39/19/S18
// Both sample V^(N-1) exp(-P0 V/k_B T) times the configurations' weight dV, or dL_x dL_y dL_z (momentum of the whole zero).
#include <math.h>

#include "atoms/dynamics/dynamics.h"

enum { STREAM_CELL = 8 }; // of random numbers, times 2⁴⁰: beyond those of atoms and thermostats

// Multiplies positions and cell along each axis by `factor`.
static void scale_space(mlff_system *system, const double factor[3])
{
    for (size_t k = 0; k < 3 * (size_t)system->n_atoms; k++) system->positions[k] *= factor[k % 3];
    for (int k = 0; k < 9; k++) system->cell[k] *= factor[k % 3];
}

static void scale_motion(mlff_system *system, const double factor[3])
{
    for (size_t k = 0; k < 3 * (size_t)system->n_atoms; k++) system->velocities[k] *= factor[k % 3];
}

static void average(double value[3])
{
    value[0] = value[1] = value[2] = (value[0] + value[1] + value[2]) / 3;
}

// ---- stochastic cell rescaling ----------------------------------------------------------------------------------------

// The strain of this step from positions, velocities and virial where it begins; dynamics_scr applies it after the kick.
void dynamics_scr_choose(mlff_dynamics *dynamics)
{
    const mlff_dynamics_options *options = &dynamics->options;
    const double volume = mlff_system_volume(dynamics->system);
    const double kt = BASE_KB_EV_PER_K * dynamics_target_temperature(options, dynamics->step);
    const double rate = options->compressibility / (3 * options->barostat_fs) * options->timestep_fs,
                 spread = sqrt(2 * kt * rate / volume);
    double twice[3], *strain = dynamics->bath.strain;
    dynamics_twice_kinetic(dynamics->system, twice);
    for (int c = 0; c < 3; c++) {
        const double noise = base_random_normal(options->seed, (uint64_t)(STREAM_CELL + c) << 40, (uint64_t)dynamics->step);
        strain[c] = rate * ((twice[c] + dynamics->virial[c]) / volume - options->pressure) + spread * noise;
        dynamics->bath.work_before[c] = dynamics->virial[c];
    }
    if (!options->anisotropic) average(strain); // of three independent deviates: the variance of d ln V is that of their sum
}

void dynamics_scr(mlff_dynamics *dynamics)
{
    mlff_system *system = dynamics->system;
    const double *strain = dynamics->bath.strain, volume = mlff_system_volume(system);
    double up[3], down[3], before[3], after[3];
    for (int c = 0; c < 3; c++) up[c] = exp(strain[c]), down[c] = 1 / up[c];
    dynamics_twice_kinetic(system, before);
    scale_space(system, up);
    scale_motion(system, down);
    dynamics_twice_kinetic(system, after);
    for (int c = 0; c < 3; c++) dynamics->bath.heat += 0.5 * (after[c] - before[c]);
    dynamics->bath.heat += dynamics->options.pressure * (mlff_system_volume(system) - volume);
}

// Potential energy changes by -w_a per strain; the mean of the virials before and after is exact to third order.
void dynamics_scr_finish(mlff_dynamics *dynamics)
{
    dynamics_bath *bath = &dynamics->bath;
    for (int c = 0; c < 3; c++) bath->heat -= 0.5 * bath->strain[c] * (bath->work_before[c] + dynamics->virial[c]);
}

// ---- Martyna-Tobias-Klein ---------------------------------------------------------------------------------------------

double dynamics_strain_mass(const mlff_dynamics *dynamics, double temperature_kelvin)
{
    const double time = dynamics->options.barostat_fs;
    return (dynamics_n_degrees(dynamics) + 3) / 3 * BASE_KB_EV_PER_K * temperature_kelvin * time * time;
}

void dynamics_mtk_strain_rate(mlff_dynamics *dynamics, double temperature_kelvin)
{
    const double mass = dynamics_strain_mass(dynamics, temperature_kelvin), volume = mlff_system_volume(dynamics->system);
    double twice[3], push[3];
    dynamics_twice_kinetic(dynamics->system, twice);
    const double share = (twice[0] + twice[1] + twice[2]) / dynamics_n_degrees(dynamics);
    for (int c = 0; c < 3; c++) push[c] = twice[c] + dynamics->virial[c] - volume * dynamics->options.pressure + share;
    if (!dynamics->options.anisotropic) average(push);
    for (int c = 0; c < 3; c++) dynamics->bath.strain_rate[c] += 0.5 * dynamics->options.timestep_fs * push[c] / mass;
}

// sinh(x)/x
static double sinhc(double x)
{
    const double square = x * x;
    return fabs(x) < 0.05 ? 1 + square / 6 * (1 + square / 20 * (1 + square / 42)) : sinh(x) / x;
}

void dynamics_mtk_kick(mlff_dynamics *dynamics)
{
    mlff_system *system = dynamics->system;
    const double *rate = dynamics->bath.strain_rate, half = 0.5 * dynamics->options.timestep_fs;
    const double trace = (rate[0] + rate[1] + rate[2]) / dynamics_n_degrees(dynamics);
    double keep[3], gain[3];
    for (int c = 0; c < 3; c++) {
        const double x = 0.5 * half * (rate[c] + trace);
        keep[c] = exp(-2 * x);
        gain[c] = half * exp(-x) * sinhc(x);
    }
    for (int i = 0; i < system->n_atoms; i++)
        for (size_t c = 0; c < 3; c++) {
            const size_t k = 3 * (size_t)i + c;
            system->velocities[k] = keep[c] * system->velocities[k] + gain[c] * inverse_mass(system, i) * dynamics->forces[k];
        }
}

void dynamics_mtk_drift(mlff_dynamics *dynamics)
{
    mlff_system *system = dynamics->system;
    const double dt = dynamics->options.timestep_fs;
    double up[3], along[3];
    for (int c = 0; c < 3; c++) {
        const double x = 0.5 * dt * dynamics->bath.strain_rate[c];
        up[c] = exp(2 * x);
        along[c] = dt * exp(x) * sinhc(x);
    }
    scale_space(system, up);
    for (size_t k = 0; k < 3 * (size_t)system->n_atoms; k++) system->positions[k] += along[k % 3] * system->velocities[k];
}
