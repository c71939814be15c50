// SPDX-License-Identifier: MIT
// analysis.c: distance histograms, vibrational spectra, bonds.
#include "analysis.h"

#include <math.h>
#include <string.h>

#include "atoms/covalent.h"

// ---- distances ------------------------------------------------------------------------------------------------------

mlff_status distance_histogram_create(int n_bins, double width, distance_histogram *histogram)
{
    *histogram = (distance_histogram){.n_bins = n_bins, .width = width};
    histogram->count = base_alloc((size_t)n_bins, sizeof *histogram->count, "a histogram");
    return histogram->count ? MLFF_OK : MLFF_ERR_MEMORY;
}

void distance_histogram_free(distance_histogram *histogram)
{
    base_free(histogram->count);
    histogram->count = NULL;
}

// Rows of the inverse cell, by which a vector's fractional coordinates are formed; false without three independent axes.
static bool invert(const double h[9], double inverse[9])
{
    const double c[9] = {h[4] * h[8] - h[5] * h[7], h[2] * h[7] - h[1] * h[8], h[1] * h[5] - h[2] * h[4],
                         h[5] * h[6] - h[3] * h[8], h[0] * h[8] - h[2] * h[6], h[2] * h[3] - h[0] * h[5],
                         h[3] * h[7] - h[4] * h[6], h[1] * h[6] - h[0] * h[7], h[0] * h[4] - h[1] * h[3]};
    const double determinant = h[0] * c[0] + h[1] * c[3] + h[2] * c[6];
    if (!(fabs(determinant) > 0)) return false;
    for (int k = 0; k < 9; k++) inverse[k] = c[k] / determinant;
    return true;
}

// Length of the shortest image of a vector where all three axes repeat and the cell is not too oblique; else its own.
static double image_length(const mlff_system *system, bool wraps, const double inverse[9], const double v[3])
{
    double r[3] = {v[0], v[1], v[2]};
    for (int a = 0; wraps && a < 3; a++) {
        if (!system->periodic[a]) continue;
        const double fraction = v[0] * inverse[a] + v[1] * inverse[3 + a] + v[2] * inverse[6 + a], n = floor(fraction + 0.5);
        for (int c = 0; c < 3; c++) r[c] -= n * system->cell[3 * a + c];
    }
    return sqrt(r[0] * r[0] + r[1] * r[1] + r[2] * r[2]);
}

void distance_histogram_add(distance_histogram *histogram, const mlff_system *system)
{
    double inverse[9] = {0};
    const bool wraps = invert(system->cell, inverse);
    for (int i = 0; i < system->n_atoms; i++)
        for (int j = i + 1; j < system->n_atoms; j++) {
            const double *a = system->positions + 3 * (size_t)i, *b = system->positions + 3 * (size_t)j;
            const double d = image_length(system, wraps, inverse, (double[3]){b[0] - a[0], b[1] - a[1], b[2] - a[2]});
            const double bin = d / histogram->width;
            if (bin < histogram->n_bins) {
                histogram->count[(int)bin] += 1;
                histogram->total += 1;
            }
        }
}

// ---- spectrum -------------------------------------------------------------------------------------------------------

mlff_status analysis_spectrum(const double *velocities, int64_t n_frames, const double *masses, int n_atoms, double dt_fs,
                              int n_lags, double *spectrum, double *step_out)
{
    const double light_cm_per_fs = 2.99792458e-5;
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
    *step_out = 1.0 / (2.0 * n_lags * dt_fs * light_cm_per_fs);
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
    if (!invert(m, inverse)) memset(inverse, 0, sizeof inverse);
    for (int c = 0; c < 3; c++) omega[c] = inverse[3 * c] * L[0] + inverse[3 * c + 1] * L[1] + inverse[3 * c + 2] * L[2];
}

void analysis_internal_velocities(const mlff_system *system, double *out)
{
    double mass = 0, center[3] = {0}, drift[3] = {0}, inertia[9] = {0}, L[3] = {0}, omega[3] = {0};
    for (int i = 0; i < system->n_atoms; i++) {
        mass += system->masses[i];
        for (int c = 0; c < 3; c++) {
            center[c] += system->masses[i] * system->positions[3 * (size_t)i + c];
            drift[c] += system->masses[i] * system->velocities[3 * (size_t)i + c];
        }
    }
    for (int c = 0; c < 3; c++) center[c] /= mass, drift[c] /= mass;
    const bool turns = !system->periodic[0] && !system->periodic[1] && !system->periodic[2] && system->n_atoms > 1;
    for (int i = 0; turns && i < system->n_atoms; i++) {
        const double m = system->masses[i], *x = system->positions + 3 * (size_t)i, *v = system->velocities + 3 * (size_t)i;
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

double analysis_distance(const double *a, const double *b, int n)
{
    double sum_a = 0, sum_b = 0, distance = 0;
    for (int k = 0; k < n; k++) sum_a += a[k], sum_b += b[k];
    if (!(sum_a > 0 && sum_b > 0)) return NAN;
    for (int k = 0; k < n; k++) distance += fabs(a[k] / sum_a - b[k] / sum_b);
    return 0.5 * distance;
}

// ---- bonds ----------------------------------------------------------------------------------------------------------

mlff_status bond_list_create(const mlff_system *system, bond_list *bonds)
{
    mlff_status status = MLFF_OK;
    double inverse[9] = {0};
    const bool wraps = invert(system->cell, inverse);
    *bonds = (bond_list){0};
    for (int i = 0; i < system->n_atoms; i++)
        for (int j = i + 1; j < system->n_atoms; j++) {
            const double *a = system->positions + 3 * (size_t)i, *b = system->positions + 3 * (size_t)j;
            const double d = image_length(system, wraps, inverse, (double[3]){b[0] - a[0], b[1] - a[1], b[2] - a[2]});
            if (d > 1.25 * (covalent_radius(system->species[i]) + covalent_radius(system->species[j]))) continue;
            MLFF_TRY(base_grow(&bonds->atoms, &bonds->atom_capacity, (size_t)bonds->n + 1, sizeof *bonds->atoms, "bonds"));
            MLFF_TRY(base_grow(&bonds->length, &bonds->length_capacity, (size_t)bonds->n + 1, sizeof(double), "bonds"));
            bonds->atoms[bonds->n][0] = i;
            bonds->atoms[bonds->n][1] = j;
            bonds->length[bonds->n++] = d;
        }
done:
    if (status != MLFF_OK) bond_list_free(bonds);
    return status;
}

void bond_list_free(bond_list *bonds)
{
    base_free(bonds->atoms);
    base_free(bonds->length);
    *bonds = (bond_list){0};
}

int bond_list_worst(const bond_list *bonds, const mlff_system *system, double *stretch_out)
{
    double inverse[9] = {0}, most = -1;
    const bool wraps = invert(system->cell, inverse);
    int worst = -1;
    for (int k = 0; k < bonds->n; k++) {
        const double *a = system->positions + 3 * (size_t)bonds->atoms[k][0],
                     *b = system->positions + 3 * (size_t)bonds->atoms[k][1];
        const double d = image_length(system, wraps, inverse, (double[3]){b[0] - a[0], b[1] - a[1], b[2] - a[2]});
        const double change = fabs(d - bonds->length[k]);
        if (change > most) most = change, worst = k;
    }
    *stretch_out = most > 0 ? most : 0;
    return worst;
}
