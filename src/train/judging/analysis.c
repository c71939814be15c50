// SPDX-License-Identifier: MIT
// analysis.c: distance histograms, distances between curves, bonds.
#include "analysis.h"

#include <math.h>

#include "atoms/elements/covalent.h"
#include "atoms/images.h"

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

// From atom i to the nearest image of atom j.
static double image_distance(const mlff_system *system, const atoms_images *images, int i, int j)
{
    const double *a = system->positions + 3 * (size_t)i, *b = system->positions + 3 * (size_t)j;
    double r[3] = {b[0] - a[0], b[1] - a[1], b[2] - a[2]};
    atoms_nearest_image(images, r);
    return sqrt(r[0] * r[0] + r[1] * r[1] + r[2] * r[2]);
}

void distance_histogram_add(distance_histogram *histogram, const mlff_system *system)
{
    atoms_images images;
    atoms_images_make(system, &images);
    for (int i = 0; i < system->n_atoms; i++)
        for (int j = i + 1; j < system->n_atoms; j++) {
            const double d = image_distance(system, &images, i, j);
            const double bin = d / histogram->width;
            if (bin < histogram->n_bins) {
                histogram->count[(int)bin] += 1;
                histogram->total += 1;
            }
        }
}

// ---- curves -------------------------------------------------------------------------------------------------------

double analysis_distance(const double *a, const double *b, int n)
{
    double sum_a = 0, sum_b = 0, distance = 0;
    for (int k = 0; k < n; k++) sum_a += a[k], sum_b += b[k];
    if (!(sum_a > 0 && sum_b > 0)) return NAN;
    for (int k = 0; k < n; k++) distance += fabs(a[k] / sum_a - b[k] / sum_b);
    return 0.5 * distance;
}

// ---- shares

// The probability that of n at most `most` are found, each with probability `share`.
static double at_most(int most, int n, double share)
{
    double sum = 0;
    for (int k = 0; k <= most; k++)
        sum += exp(lgamma(n + 1.0) - lgamma(k + 1.0) - lgamma(n - k + 1.0) + k * log(share) + (n - k) * log1p(-share));
    return sum;
}

// The share at which at most `most` of n are found with the given probability, which falls with the share.
static double share_of(int most, int n, double probability)
{
    double low = 0, high = 1;
    while (high - low > 1e-9) {
        const double middle = (low + high) / 2;
        *(at_most(most, n, middle) > probability ? &low : &high) = middle;
    }
    return (low + high) / 2;
}

analysis_interval analysis_share(int found, int n, double error)
{
    return (analysis_interval){found == 0 ? 0 : share_of(found - 1, n, 1 - error), found == n ? 1 : share_of(found, n, error)};
}

// ---- drift ----------------------------------------------------------------------------------------------------------

analysis_slope analysis_drift(const double *values, int64_t n, double limit)
{
    analysis_slope drift = {NAN, NAN, false};
    if (n < BASE_DRIFT_LEAST) return drift;
    base_drift(NULL, values, n, 0.99, &drift.slope, &drift.half); // a run is looked at up to three times
    drift.decided = fabs(drift.slope) + drift.half <= limit || fabs(drift.slope) - drift.half > limit;
    return drift;
}

// ---- bonds ----------------------------------------------------------------------------------------------------------

static double sum_of_radii(const mlff_system *system, int i, int j)
{
    return covalent_radius(system->species[i]) + covalent_radius(system->species[j]);
}

static bool has_metal(const mlff_system *system, int i, int j)
{
    return element_is_metal(system->species[i]) || element_is_metal(system->species[j]);
}

mlff_status bond_list_create(const mlff_system *system, bond_list *bonds)
{
    mlff_status status = MLFF_OK;
    atoms_images images;
    atoms_images_make(system, &images);
    *bonds = (bond_list){.in_contact = base_alloc((size_t)system->n_atoms, 1, "bonds")};
    if (!bonds->in_contact) MLFF_TRY(MLFF_ERR_MEMORY);
    for (int i = 0; i < system->n_atoms; i++)
        for (int j = i + 1; j < system->n_atoms; j++) {
            const double d = image_distance(system, &images, i, j);
            if (d > COVALENT_REACH * sum_of_radii(system, i, j)) continue;
            if (has_metal(system, i, j)) {
                bonds->in_contact[i] = bonds->in_contact[j] = 1;
                continue;
            }
            MLFF_TRY(base_grow(&bonds->atoms, &bonds->atom_capacity, (size_t)bonds->n + 1, sizeof *bonds->atoms, "bonds"));
            MLFF_TRY(base_grow(&bonds->length, &bonds->length_capacity, (size_t)bonds->n + 1, sizeof(double), "bonds"));
            bonds->atoms[bonds->n][0] = i;
            bonds->atoms[bonds->n][1] = j;
            bonds->length[bonds->n++] = d;
        }
    for (int i = 0; i < system->n_atoms; i++) bonds->n_in_contact += bonds->in_contact[i];
done:
    if (status != MLFF_OK) bond_list_free(bonds);
    return status;
}

void bond_list_free(bond_list *bonds)
{
    base_free(bonds->atoms);
    base_free(bonds->length);
    base_free(bonds->in_contact);
    *bonds = (bond_list){0};
}

int bond_list_worst(const bond_list *bonds, const mlff_system *system, double *stretch_out)
{
    double most = -1;
    int worst = -1;
    atoms_images images;
    atoms_images_make(system, &images);
    for (int k = 0; k < bonds->n; k++) {
        const double d = image_distance(system, &images, bonds->atoms[k][0], bonds->atoms[k][1]);
        const double change = fabs(d - bonds->length[k]);
        if (change > most) most = change, worst = k;
    }
    *stretch_out = most > 0 ? most : 0;
    return worst;
}

contact_range bond_list_contacts(const bond_list *bonds, const mlff_system *system)
{
    contact_range range = {.closest = INFINITY};
    atoms_images images;
    atoms_images_make(system, &images);
    for (int i = 0; i < system->n_atoms && bonds->n_in_contact > 0; i++) {
        double nearest = INFINITY;
        if (!bonds->in_contact[i]) continue;
        for (int j = 0; j < system->n_atoms; j++) {
            if (j == i) continue;
            const double d = image_distance(system, &images, i, j) / sum_of_radii(system, i, j);
            if (d < nearest) nearest = d;
            if (d < range.closest && has_metal(system, i, j)) range.closest = d, range.pair[0] = i, range.pair[1] = j;
        }
        if (nearest > range.farthest) range.farthest = nearest, range.alone = i;
    }
    return range;
}
