// SPDX-License-Identifier: MIT
// motion.c: random displacements and velocities at a temperature.
#include <math.h>

#include "atoms/atoms.h"

#define HBAR_EV_FS 0.6582119514 // CODATA 2014
#define MAX_DISPLACEMENT 0.3    // Å

// Streams of the random numbers: displacements and velocities of one seed are independent.
enum { STREAM_DISPLACEMENT = 0x70657274, STREAM_VELOCITY };

static mlff_status check_temperature(double temperature_kelvin)
{
    if (temperature_kelvin >= 0.0 && isfinite(temperature_kelvin)) return MLFF_OK;
    return mlff_fail(MLFF_ERR_VALUE, "a temperature of %g K; it must be 0 or more", temperature_kelvin);
}

mlff_status mlff_system_perturb(mlff_system *system, double temperature_kelvin, uint64_t seed)
{
    mlff_status status = check_temperature(temperature_kelvin);
    if (status != MLFF_OK) return status;
    // ω² is proportional to 1/m, so that the spring m ω² is the same for all: 28 amu at ħω = 25 meV, 4.2 eV/Å².
    double omega = 0.025 / HBAR_EV_FS;
    double spring = 28.0 * BASE_AMU_ANG2_FS2_EV * omega * omega;
    double deviation = sqrt(BASE_KB_EV_PER_K * temperature_kelvin / spring);

    for (int i = 0; i < system->n_atoms; i++) {
        if (system->fixed && system->fixed[i]) continue;
        for (size_t k = 3 * (size_t)i; k < 3 * (size_t)i + 3; k++) {
            double displacement = deviation * base_random_normal(seed, STREAM_DISPLACEMENT, k);
            system->positions[k] += fmin(fmax(displacement, -MAX_DISPLACEMENT), MAX_DISPLACEMENT);
        }
    }
    atoms_drop_labels(system);
    return MLFF_OK;
}

void atoms_stop_drift(mlff_system *system)
{
    double momentum[3] = {0}, total_mass = 0.0;
    for (int i = 0; i < system->n_atoms; i++) {
        double mass = atoms_mass(system, i);
        total_mass += mass;
        for (int c = 0; c < 3; c++) momentum[c] += mass * system->velocities[3 * (size_t)i + c];
    }
    for (int i = 0; i < system->n_atoms; i++)
        for (int c = 0; c < 3; c++) system->velocities[3 * (size_t)i + c] -= momentum[c] / total_mass;
}

mlff_status mlff_system_thermalize(mlff_system *system, double temperature_kelvin, uint64_t seed)
{
    mlff_status status = check_temperature(temperature_kelvin);
    if (status != MLFF_OK) return status;
    int n_free = 0;
    for (int i = 0; i < system->n_atoms; i++) {
        n_free += !(system->fixed && system->fixed[i]);
        if (!(atoms_mass(system, i) > 0.0)) return mlff_fail(MLFF_ERR_VALUE, "atom %d has no mass; set its species or mass", i);
    }
    status = mlff_system_add_velocities(system);
    if (status != MLFF_OK) return status;

    for (int i = 0; i < system->n_atoms; i++) {
        bool is_fixed = system->fixed && system->fixed[i];
        double deviation = sqrt(BASE_KB_EV_PER_K * temperature_kelvin / (atoms_mass(system, i) * BASE_AMU_ANG2_FS2_EV));
        for (size_t k = 3 * (size_t)i; k < 3 * (size_t)i + 3; k++)
            system->velocities[k] = is_fixed ? 0.0 : deviation * base_random_normal(seed, STREAM_VELOCITY, k);
    }
    // A single atom has nothing but its drift.
    bool drifts = n_free == system->n_atoms && n_free > 1;
    if (drifts) atoms_stop_drift(system);

    double kinetic = 0.0; // eV
    for (int i = 0; i < system->n_atoms; i++)
        for (size_t k = 3 * (size_t)i; k < 3 * (size_t)i + 3; k++)
            kinetic += 0.5 * atoms_mass(system, i) * BASE_AMU_ANG2_FS2_EV * system->velocities[k] * system->velocities[k];
    int n_degrees = 3 * n_free - (drifts ? 3 : 0);
    if (!(kinetic > 0.0)) return MLFF_OK;
    double factor = sqrt(0.5 * n_degrees * BASE_KB_EV_PER_K * temperature_kelvin / kinetic);
    for (size_t k = 0; k < 3 * (size_t)system->n_atoms; k++) system->velocities[k] *= factor;
    return MLFF_OK;
}
