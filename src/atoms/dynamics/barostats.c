// SPDX-License-Identifier: MIT
// barostats.c: the cell at constant pressure: stochastic rescaling and Martyna-Tobias-Klein. The cell is strained along x, y and z;
// isotropic strains are equal. Positions and cell vectors are scaled about the origin of coordinates.
//
//   P_a = (Σ m v_a² + w_a) / V,  w the diagonal of the virial, P the mean of the P_a
//   SCR    d ln V = (β/τ) (P - P0) dt + sqrt(2 k_B T β / (V τ)) dW;  a third of it along each axis, or, anisotropic,
//          d ln L_a = (β/3τ) (P_a - P0) dt + sqrt(2 k_B T β / (3 V τ)) dW_a.  Velocities are divided by the same factors.
//          (In ln V the k_B T/V of the equation in V is Itô's term.) Kick, scale, drift. The strain of a step is half of the drift, the
//          noise and half of the drift: in sqrt(V) the noise does not depend on V (Bernetti & Bussi 2020, doi:10.1063/5.0020514), and
//          Stratonovich's drift has P_a + k_B T/2V in place of P_a. With the virial of the beginning, of second order for an ideal gas.
//   MTK    W dv_a/dt = V (P_a - P0) + Σ m v²/N_f,  W = (N_f + 3)/3 k_B T τ²; isotropic: the mean of the right side
//          dr/dt = v + v_a r,  dv/dt = F/m - (v_a + Σ v_b/N_f) v,  as Tuckerman et al. 2006, doi:10.1088/0305-4470/39/19/S18
// The arithmetic of strains and rates is in bath.h. Both sample V^(N-1) exp(-P0 V/k_B T) times the configurations' weight dV, or
// dL_x dL_y dL_z (momentum of the whole zero).
#include <math.h>

#include "atoms/dynamics/dynamics.h"

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

// ---- stochastic cell rescaling ----------------------------------------------------------------------------------------

// dynamics_scr applies the strain after the kick.
void dynamics_scr_choose(mlff_dynamics *dynamics)
{
    double twice[3];
    dynamics_twice_kinetic(dynamics->system, twice);
    bath_choose_strain(&dynamics->options, dynamics->step, mlff_system_volume(dynamics->system), twice, dynamics->virial,
                       &dynamics->bath);
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

void dynamics_scr_finish(mlff_dynamics *dynamics)
{
    bath_count_strain(dynamics->virial, &dynamics->bath);
}

// ---- Martyna-Tobias-Klein ---------------------------------------------------------------------------------------------

void dynamics_mtk_strain_rate(mlff_dynamics *dynamics, double temperature_kelvin)
{
    double twice[3];
    dynamics_twice_kinetic(dynamics->system, twice);
    bath_push_strain_rate(&dynamics->options, dynamics_n_degrees(dynamics), temperature_kelvin,
                          mlff_system_volume(dynamics->system), twice, dynamics->virial, &dynamics->bath);
}

void dynamics_mtk_kick(mlff_dynamics *dynamics)
{
    mlff_system *system = dynamics->system;
    double keep[3], gain[3];
    bath_strained_kick(&dynamics->options, dynamics_n_degrees(dynamics), &dynamics->bath, keep, gain);
    for (int i = 0; i < system->n_atoms; i++)
        for (size_t c = 0; c < 3; c++) {
            const size_t k = 3 * (size_t)i + c;
            system->velocities[k] = keep[c] * system->velocities[k] + gain[c] * inverse_mass(system, i) * dynamics->forces[k];
        }
}

void dynamics_mtk_drift(mlff_dynamics *dynamics)
{
    mlff_system *system = dynamics->system;
    double up[3], along[3];
    bath_strained_drift(&dynamics->options, &dynamics->bath, up, along);
    scale_space(system, up);
    for (size_t k = 0; k < 3 * (size_t)system->n_atoms; k++) system->positions[k] += along[k % 3] * system->velocities[k];
}
