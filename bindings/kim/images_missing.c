// SPDX-License-Identifier: MIT
// images_missing.c: whether images that matter are missing (images.c).
#include "images_state.h"

// Lowest and highest f of images that can matter.
static void range_of(const images *im, const double *positions, double reach, double *range)
{
    for (int k = 0; k < 3; k++) range[k] = INFINITY, range[3 + k] = -INFINITY;
    for (int o = 0; o < im->n_owned; o++) {
        double f[3];
        times(positions + 3 * (size_t)im->owned[o], im->inverse, f);
        for (int k = 0; k < 3; k++) range[k] = fmin(range[k], f[k]), range[3 + k] = fmax(range[3 + k], f[k]);
    }
    for (int k = 0; k < 3; k++) { // 1 / height of the cell: length of the reciprocal vector
        const double column[3] = {im->inverse[k], im->inverse[3 + k], im->inverse[6 + k]};
        range[k] -= reach * length_of(column);
        range[3 + k] += reach * length_of(column);
    }
}

// An atom's shifts within the range: from `first` to `last`.
static void shifts_of(const images *im, const double *range, const double *r, int32_t *first, int32_t *last)
{
    double f[3];
    times(r, im->inverse, f);
    for (int k = 0; k < 3; k++) {
        first[k] = k < im->rank ? (int32_t)ceil(range[k] - f[k]) : 0;
        last[k] = k < im->rank ? (int32_t)floor(range[3 + k] - f[k]) : 0;
    }
}

static bool is_whole_by_number(const images *im, int n_atoms, const double *positions, double reach)
{
    double range[6];
    int32_t first[3], last[3];
    int64_t missing = 0;
    range_of(im, positions, reach, range);
    for (int o = 0; o < im->n_owned; o++) {
        shifts_of(im, range, positions + 3 * (size_t)im->owned[o], first, last);
        missing += (int64_t)(last[0] - first[0] + 1) * (last[1] - first[1] + 1) * (last[2] - first[2] + 1) - 1;
    }
    for (int i = 0; i < n_atoms; i++) {
        if (im->contributing[i]) continue;
        const int32_t *n = im->shift + 3 * (size_t)i;
        shifts_of(im, range, positions + 3 * (size_t)im->owner[i], first, last);
        missing -=
            n[0] >= first[0] && n[0] <= last[0] && n[1] >= first[1] && n[1] <= last[1] && n[2] >= first[2] && n[2] <= last[2];
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
            for (int z = first[2]; z <= last[2]; z++)
                for (int o = d->head[(x * d->bins[1] + y) * d->bins[2] + z]; o >= 0; o = d->next[o]) {
                    double square = 0;
                    for (int c = 0; c < 3; c++) {
                        const double away = r[c] - d->positions[3 * (size_t)d->owned[o] + (size_t)c];
                        square += away * away;
                    }
                    if (square <= reach * reach) return true;
                }
    return false;
}

static bool has_ghost(const images *im, int owner, const int32_t *shift)
{
    for (int g = im->last[owner]; g >= 0; g = im->earlier[g])
        if (memcmp(im->shift + 3 * (size_t)g, shift, 3 * sizeof(int32_t)) == 0) return true;
    return false;
}

// Whether all images within `reach` of an owned atom are there.
static bool is_whole_by_distance(images *im, const int *species, const double *positions, double reach)
{
    fold d = {.basis = {1, 0, 0, 0, 1, 0, 0, 0, 1},
              .n_owned = im->n_owned,
              .owned = im->owned,
              .species = species,
              .positions = positions};
    double range[6];
    int32_t first[3], last[3], n[3];
    if (!images_fold(im, &d)) return false;
    range_of(im, positions, reach, range);
    for (int o = 0; o < im->n_owned; o++) {
        const int i = im->owned[o];
        shifts_of(im, range, positions + 3 * (size_t)i, first, last);
        for (n[0] = first[0]; n[0] <= last[0]; n[0]++)
            for (n[1] = first[1]; n[1] <= last[1]; n[1]++)
                for (n[2] = first[2]; n[2] <= last[2]; n[2]++) {
                    double r[3];
                    if ((n[0] == 0 && n[1] == 0 && n[2] == 0) || has_ghost(im, i, n)) continue;
                    for (int c = 0; c < 3; c++)
                        r[c] = positions[3 * (size_t)i + (size_t)c] + n[0] * im->basis[c] + n[1] * im->basis[3 + c] +
                               n[2] * im->basis[6 + c];
                    if (is_near_owned(&d, r, reach)) return false;
                }
    }
    return true;
}

// The largest change of a distance between an owned atom and an image that matters since the last check.
static double change_since_check(const images *im, const double *positions)
{
    double largest = 0, change = 0;
    for (int o = 0; o < im->n_owned; o++) {
        double d[3];
        for (int c = 0; c < 3; c++)
            d[c] = positions[3 * (size_t)im->owned[o] + (size_t)c] - im->checked_positions[3 * (size_t)o + (size_t)c];
        largest = fmax(largest, dot(d, d));
    }
    for (int k = 0; k < im->rank; k++) {
        double d[3];
        for (int c = 0; c < 3; c++) d[c] = im->basis[3 * k + c] - im->checked_basis[3 * k + c];
        change += im->checked_cells[k] * length_of(d);
    }
    return change + 2 * sqrt(largest);
}

// Whether no image that matters is missing.
bool images_are_whole(images *im, int n_atoms, const int *species, const double *positions)
{
    double range[6];
    if (im->whole_within >= 0 && change_since_check(im, positions) <= im->whole_within) return true;
    im->whole_within = is_whole_by_number(im, n_atoms, positions, im->reach + margin)     ? margin
                       : is_whole_by_number(im, n_atoms, positions, im->reach)            ? 0
                       : is_whole_by_distance(im, species, positions, im->reach + margin) ? margin
                       : is_whole_by_distance(im, species, positions, im->reach)          ? 0
                                                                                          : -1;
    range_of(im, positions, im->reach + margin, range);
    for (int k = 0; k < 3; k++) im->checked_cells[k] = range[3 + k] - range[k] + 1;
    memcpy(im->checked_basis, im->basis, sizeof im->checked_basis);
    for (int o = 0; o < im->n_owned; o++)
        memcpy(im->checked_positions + 3 * (size_t)o, positions + 3 * (size_t)im->owned[o], 3 * sizeof(double));
    return im->whole_within >= 0;
}
