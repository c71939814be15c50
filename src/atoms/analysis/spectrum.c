// SPDX-License-Identifier: MIT
// spectrum.c: the vibrational density of states of velocities.
#include "spectrum.h"

#include <math.h>
#include <string.h>

#include "atoms/atoms.h"

mlff_status spectrum_of(const double *velocities, int64_t n_frames, const double *masses, int n_atoms, double dt_fs, int n_lags,
                        double *spectrum, double *step_out)
{
    double *correlation = base_alloc((size_t)n_lags, sizeof *correlation, "an autocorrelation"), sum = 0;
    if (!correlation) return MLFF_ERR_MEMORY;
    const size_t width = 3 * (size_t)n_atoms;
    for (int lag = 0; lag < n_lags; lag++) {
        for (int64_t k = 0; k + lag < n_frames; k++)
            for (size_t c = 0; c < width; c++)
                correlation[lag] += masses[c / 3] * velocities[(size_t)k * width + c] * velocities[(size_t)(k + lag) * width + c];
        correlation[lag] /= (double)(n_frames - lag);
    }
    for (int k = 0; k < n_lags; k++) {
        double value = 0.5 * correlation[0];
        for (int lag = 1; lag < n_lags; lag++) {
            const double window = 0.5 * (1 + cos(BASE_PI * lag / n_lags));
            value += window * correlation[lag] * cos(BASE_PI * (double)k * lag / n_lags);
        }
        spectrum[k] = value > 0 ? value : 0; // the window's side lobes are the only negative part
        sum += spectrum[k];
    }
    for (int k = 0; k < n_lags; k++) spectrum[k] = sum > 0 ? spectrum[k] / sum : 0;
    *step_out = 1.0 / (2.0 * n_lags * dt_fs * BASE_LIGHT_CM_PER_FS);
    base_free(correlation);
    return MLFF_OK;
}

// ω of the angular momentum L = I ω; a linear molecule's axis, about which nothing turns, is kept from a division by 0.
static void angular_velocity(const double inertia[9], const double L[3], double omega[3])
{
    double m[9], inverse[9];
    memcpy(m, inertia, sizeof m);
    const double small = 1e-9 * (m[0] + m[4] + m[8]);
    for (int c = 0; c < 3; c++) m[4 * c] += small;
    if (!atoms_invert(m, inverse)) memset(inverse, 0, sizeof inverse);
    for (int c = 0; c < 3; c++) omega[c] = inverse[3 * c] * L[0] + inverse[3 * c + 1] * L[1] + inverse[3 * c + 2] * L[2];
}

void spectrum_velocities(const mlff_system *system, double *out)
{
    double mass = 0, center[3] = {0}, drift[3] = {0}, inertia[9] = {0}, L[3] = {0}, omega[3] = {0};
    for (int i = 0; system->fixed && i < system->n_atoms; i++)
        if (system->fixed[i]) {
            memcpy(out, system->velocities, 3 * (size_t)system->n_atoms * sizeof *out);
            return;
        }
    for (int i = 0; i < system->n_atoms; i++) {
        mass += atoms_mass(system, i);
        for (int c = 0; c < 3; c++) {
            center[c] += atoms_mass(system, i) * system->positions[3 * (size_t)i + c];
            drift[c] += atoms_mass(system, i) * system->velocities[3 * (size_t)i + c];
        }
    }
    for (int c = 0; c < 3; c++) center[c] /= mass, drift[c] /= mass;
    const bool turns = !system->periodic[0] && !system->periodic[1] && !system->periodic[2] && system->n_atoms > 1;
    for (int i = 0; turns && i < system->n_atoms; i++) {
        const double m = atoms_mass(system, i), *x = system->positions + 3 * (size_t)i, *v = system->velocities + 3 * (size_t)i;
        const double r[3] = {x[0] - center[0], x[1] - center[1], x[2] - center[2]},
                     square = r[0] * r[0] + r[1] * r[1] + r[2] * r[2];
        for (int a = 0; a < 3; a++) {
            const int b = (a + 1) % 3, c = (a + 2) % 3;
            L[a] += m * (r[b] * (v[c] - drift[c]) - r[c] * (v[b] - drift[b]));
            for (int k = 0; k < 3; k++) inertia[3 * a + k] += m * ((a == k) * square - r[a] * r[k]);
        }
    }
    if (turns) angular_velocity(inertia, L, omega);
    for (int i = 0; i < system->n_atoms; i++) {
        const double *x = system->positions + 3 * (size_t)i, *v = system->velocities + 3 * (size_t)i;
        for (int a = 0; a < 3; a++) {
            const int b = (a + 1) % 3, c = (a + 2) % 3;
            out[3 * (size_t)i + a] = v[a] - drift[a] - (omega[b] * (x[c] - center[c]) - omega[c] * (x[b] - center[b]));
        }
    }
}
