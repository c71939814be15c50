// SPDX-License-Identifier: MIT
// images_missing.c: whether images that matter are missing (images.c).
#include "images_state.h"

// Places of owned atoms.
static void find_places(images *im, const double *positions)
{
    for (int o = 0; o < im->n_owned; o++) times(positions + 3 * (size_t)o, im->inverse, im->place + 3 * (size_t)o);
}

// Lowest and highest f of images that can matter; no axis that does not repeat has a limit.
static void range_of(const images *im, double reach, double *range)
{
    for (int k = 0; k < 3; k++) range[k] = INFINITY, range[3 + k] = -INFINITY;
    for (int o = 0; o < im->n_owned; o++) {
        const double *f = im->place + 3 * (size_t)o;
        for (int k = 0; k < 3; k++) {
            range[k] = f[k] < range[k] ? f[k] : range[k];
            range[3 + k] = f[k] > range[3 + k] ? f[k] : range[3 + k];
        }
    }
    for (int k = 0; k < 3; k++) { // 1 / height of the cell: length of the reciprocal vector
        const double column[3] = {im->inverse[k], im->inverse[3 + k], im->inverse[6 + k]};
        range[k] -= k < im->rank ? reach * length_of(column) : INFINITY;
        range[3 + k] += k < im->rank ? reach * length_of(column) : INFINITY;
    }
}

// Shifts within the range of an atom at f: from `first` to `last`.
static void shifts_of(const images *im, const double *range, const double *f, int32_t *first, int32_t *last)
{
    for (int k = 0; k < 3; k++) {
        first[k] = k < im->rank ? (int32_t)ceil_of(range[k] - f[k]) : 0;
        last[k] = k < im->rank ? (int32_t)floor_of(range[3 + k] - f[k]) : 0;
    }
}

static bool is_whole_by_number(const images *im, int n_atoms, double reach)
{
    double range[6];
    int32_t first[3], last[3];
    int64_t missing = 0;
    range_of(im, reach, range);
    for (int o = 0; o < im->n_owned; o++) {
        shifts_of(im, range, im->place + 3 * (size_t)o, first, last);
        missing += (int64_t)(last[0] - first[0] + 1) * (last[1] - first[1] + 1) * (last[2] - first[2] + 1) - 1;
    }
    for (int g = 0; g < n_atoms - im->n_owned; g++) { // an integer is above a number where it is above its ceiling
        const int32_t *n = im->shift + 3 * (size_t)g;
        const double *f = im->place + 3 * (size_t)im->owner[g];
        missing -= (n[0] >= range[0] - f[0]) & (n[0] <= range[3] - f[0]) & (n[1] >= range[1] - f[1]) & (n[1] <= range[4] - f[1]) &
                   (n[2] >= range[2] - f[2]) & (n[2] <= range[5] - f[2]);
    }
    return missing == 0;
}

static bool is_near_owned(const fold *d, const double *r, double reach)
{
    int first[3], last[3]; // the grid's axes are x, y, z
    for (int k = 0; k < 3; k++) {
        if (r[k] < d->low[k] - reach || r[k] > d->high[k] + reach) return false;
        first[k] = images_bin_of(d, k, r[k] - reach);
        last[k] = images_bin_of(d, k, r[k] + reach);
    }
    for (int x = first[0]; x <= last[0]; x++)
        for (int y = first[1]; y <= last[1]; y++)
            for (int z = first[2]; z <= last[2]; z++) {
                const int bin = (x * d->bins[1] + y) * d->bins[2] + z;
                for (int32_t p = d->first[bin]; p < d->first[bin + 1]; p++) {
                    double square = 0;
                    for (int c = 0; c < 3; c++) square += (r[c] - d->placed[p].f[c]) * (r[c] - d->placed[p].f[c]);
                    if (square <= reach * reach) return true;
                }
            }
    return false;
}

// Whether all images within `reach` of an owned atom are there.
static bool is_whole_by_distance(images *im, const int *species, const double *positions, double reach)
{
    fold d = {.basis = {1, 0, 0, 0, 1, 0, 0, 0, 1}, .n_owned = im->n_owned, .species = species, .positions = positions};
    double range[6];
    int32_t first[3], last[3], n[3];
    find_places(im, positions);
    range_of(im, reach, range);
    if (!images_fold(im, &d)) return false; // places are positions now
    for (int o = 0; o < im->n_owned; o++) {
        const double *from = positions + 3 * (size_t)o;
        double f[3];
        times(from, im->inverse, f);
        shifts_of(im, range, f, first, last);
        for (n[0] = first[0]; n[0] <= last[0]; n[0]++)
            for (n[1] = first[1]; n[1] <= last[1]; n[1]++)
                for (n[2] = first[2]; n[2] <= last[2]; n[2]++) {
                    double r[3];
                    if ((n[0] == 0 && n[1] == 0 && n[2] == 0) || images_has(im, o, n)) continue;
                    for (int c = 0; c < 3; c++)
                        r[c] = from[c] + n[0] * im->basis[c] + n[1] * im->basis[3 + c] + n[2] * im->basis[6 + c];
                    if (is_near_owned(&d, r, reach)) return false;
                }
    }
    return true;
}

// The largest change of a distance between an owned atom and an image that matters since the last check; infinite where positions of owned atoms
// cannot be used.
static double change_since_check(const images *im, const double *positions)
{
    double largest = 0, change = 0;
    bool usable = true;
    for (size_t o = 0; o < 3 * (size_t)im->n_owned; o += 3) {
        const double *r = positions + o, *old = im->checked_positions + o;
        const double d[3] = {r[0] - old[0], r[1] - old[1], r[2] - old[2]}, square = dot(d, d);
        usable &= (fabs(r[0]) <= farthest) & (fabs(r[1]) <= farthest) & (fabs(r[2]) <= farthest);
        largest = square > largest ? square : largest;
    }
    for (int k = 0; k < im->rank; k++) {
        double d[3];
        for (int c = 0; c < 3; c++) d[c] = im->basis[3 * k + c] - im->checked_basis[3 * k + c];
        change += im->checked_cells[k] * length_of(d);
    }
    return usable ? change + 2 * sqrt(largest) : INFINITY;
}

// Whether no image that matters is missing, and owned atoms have positions that can be used.
bool images_are_whole(images *im, int n_atoms, const int *species, const double *positions)
{
    double range[6];
    if (im->is_checked) {
        const double change = change_since_check(im, positions);
        if (!(change < INFINITY)) return false;
        if (change <= im->whole_within) return true;
        find_places(im, positions);
    } // else places and positions are the map's
    im->is_checked = true;
    range_of(im, im->reach + margin, range);
    for (int k = 0; k < 3; k++) im->checked_cells[k] = range[3 + k] - range[k] + 1;
    im->whole_within = is_whole_by_number(im, n_atoms, im->reach + margin)                ? margin
                       : is_whole_by_number(im, n_atoms, im->reach)                       ? 0
                       : is_whole_by_distance(im, species, positions, im->reach + margin) ? margin
                       : is_whole_by_distance(im, species, positions, im->reach)          ? 0
                                                                                          : -1;
    memcpy(im->checked_basis, im->basis, sizeof im->checked_basis);
    memcpy(im->checked_positions, positions, sizeof(double) * 3 * (size_t)im->n_owned);
    return im->whole_within >= 0;
}
