// SPDX-License-Identifier: MIT
// images_lattice.c: owned atoms by their place in a cell, and the lattice that makes ghosts their images (images.c).
#include "images_state.h"

// Vectors 0 … rank − 1 are completed by unit vectors that are normal to them.
bool images_complete_basis(double *basis, int rank)
{
    if (rank == 1) {
        const double a[3] = {fabs(basis[0]), fabs(basis[1]), fabs(basis[2])};
        const int least = a[0] <= a[1] && a[0] <= a[2] ? 0 : a[1] <= a[2] ? 1 : 2;
        const double axis[3] = {least == 0, least == 1, least == 2};
        cross(basis, axis, basis + 3);
        const double length = length_of(basis + 3);
        for (int c = 0; c < 3; c++) basis[3 + c] /= length;
    }
    if (rank <= 2) {
        cross(basis, basis + 3, basis + 6);
        const double length = length_of(basis + 6);
        if (!(length > 1e-6 * length_of(basis) * length_of(basis + 3))) return false;
        for (int c = 0; c < 3; c++) basis[6 + c] /= length;
    }
    return true;
}

// ---- owned atoms by place --------------------------------------------------------------------------------------------------

static double in_bins(const fold *d, int axis, double f)
{
    return (axis < d->rank ? f - floor_of(f) : f - d->low[axis]) * d->scale[axis];
}

static int bin_at(const fold *d, int axis, double at)
{
    return at < d->bins[axis] - 1 ? (at > 0 ? (int)at : 0) : d->bins[axis] - 1;
}

int images_bin_of(const fold *d, int axis, double f)
{
    return bin_at(d, axis, in_bins(d, axis, f));
}

// Bins that atoms within `width` of f can be in, two of them where a boundary is that near.
static int bins_near(const fold *d, int axis, double f, double width, int *bins)
{
    bins[0] = images_bin_of(d, axis, f - width);
    bins[1] = images_bin_of(d, axis, f + width);
    return bins[0] == bins[1] ? 1 : 2;
}

static bool is_at(const fold *d, const placed *p, const double *f, double within, int32_t *shift_out)
{
    double away[3], n[3];
    for (int k = 0; k < 3; k++) {
        away[k] = f[k] - p->f[k];
        n[k] = k < d->rank ? floor_of(away[k] + 0.5) : 0;
        away[k] -= n[k];
        if (!(fabs(away[k]) <= within * d->width[k])) return false;
    }
    times(away, d->basis, away);
    if (!(dot(away, away) <= within * within)) return false;
    for (int k = 0; shift_out && k < 3; k++) shift_out[k] = (int32_t)n[k];
    return true;
}

// An owned atom at place f up to a lattice vector, but for atom `other`.
static int find_other(const fold *d, const double *f, int species, double within, int other, int32_t *shift_out)
{
    int bins[3][2], n[3];
    for (int k = 0; k < 3; k++) n[k] = bins_near(d, k, f[k], within * d->width[k], bins[k]);
    for (int x = 0; x < n[0]; x++)
        for (int y = 0; y < n[1]; y++)
            for (int z = 0; z < n[2]; z++) {
                const int bin = (bins[0][x] * d->bins[1] + bins[1][y]) * d->bins[2] + bins[2][z];
                for (const placed *p = d->placed + d->first[bin], *end = d->placed + d->first[bin + 1]; p < end; p++)
                    if (p->species == species && p->atom != other && is_at(d, p, f, within, shift_out)) return p->atom;
            }
    return -1;
}

int images_look_up(const fold *d, const double *f, int species, double within, int32_t *shift_out)
{
    return find_other(d, f, species, within, -1, shift_out);
}

// Bins of about one atom. False where the atoms are too few for their range.
static bool choose_bins(images *im, fold *d)
{
    double length[3], volume = 1;
    size_t n_bins = 1;
    for (int k = 0; k < 3; k++) {
        const double column[3] = {d->inverse[k], d->inverse[3 + k], d->inverse[6 + k]};
        d->width[k] = length_of(column);
        if (!(d->width[k] * farthest < 1e8)) return false; // shifts are integers of 32 bits
        length[k] = k < d->rank ? length_of(d->basis + 3 * k) : d->high[k] - d->low[k];
        volume *= fmax(length[k], 0.1);
    }
    const double width = fmax(cbrt(volume / d->n_owned), 0.1);
    for (int k = 0; k < 3; k++) {
        d->bins[k] = (int)fmin(fmax(length[k] / width, 1), 4096);
        d->scale[k] = k < d->rank ? d->bins[k] : length[k] > 0 ? d->bins[k] / length[k] : 0;
        n_bins *= (size_t)d->bins[k];
    }
    if (n_bins > 64 * (size_t)d->n_owned + 4096) return false;
    if (n_bins + 1 <= im->bin_capacity) return true;
    if (!images_grow(&im->first, n_bins + 1, sizeof *im->first)) return false;
    im->bin_capacity = n_bins + 1;
    return true;
}

// Atoms in the order of their bins.
static void fill_bins(images *im, fold *d)
{
    const int n_bins = d->bins[0] * d->bins[1] * d->bins[2];
    memset(im->first, 0, sizeof *im->first * (size_t)(n_bins + 1));
    for (int o = 0; o < d->n_owned; o++) {
        const double *f = im->place + 3 * (size_t)o;
        im->bin[o] =
            (images_bin_of(d, 0, f[0]) * d->bins[1] + images_bin_of(d, 1, f[1])) * d->bins[2] + images_bin_of(d, 2, f[2]);
        im->first[im->bin[o] + 1]++;
    }
    for (int b = 0; b < n_bins; b++) im->first[b + 1] += im->first[b];
    for (int o = d->n_owned - 1; o >= 0; o--) {
        placed *p = im->placed + --im->first[im->bin[o] + 1];
        memcpy(p->f, im->place + 3 * (size_t)o, sizeof p->f);
        p->atom = o;
        p->species = d->species[o];
    }
    // Now first[b + 1] is where bin b begins.
    memmove(im->first, im->first + 1, sizeof *im->first * (size_t)n_bins);
    im->first[n_bins] = d->n_owned;
    d->place = im->place;
    d->placed = im->placed;
    d->first = im->first;
}

static size_t slice_of(const fold *d, double f)
{
    const double at = in_bins(d, 0, f) * d->slices_of_bin;
    return at < d->n_slices - 1 ? (at > 0 ? (size_t)at : 0) : (size_t)d->n_slices - 1;
}

static bool is_taken(const fold *d, size_t slice)
{
    return d->slices[slice / 64] >> (slice % 64) & 1;
}

bool images_can_be_at(const fold *d, double f, double within)
{
    const double width = within * d->width[0];
    return is_taken(d, slice_of(d, f - width)) | is_taken(d, slice_of(d, f + width));
}

// Whether two owned atoms are images of each other. Marks the slices of atoms.
static bool is_doubled(images *im, fold *d)
{
    d->n_slices = SLICES * d->n_owned;
    d->slices_of_bin = (double)d->n_slices / d->bins[0];
    d->slices = im->slices;
    memset(im->slices, 0, sizeof *im->slices * ((size_t)d->n_slices / 64 + 1));
    for (int o = 0; o < d->n_owned; o++) {
        const double *f = im->place + 3 * (size_t)o;
        if (images_can_be_at(d, f[0], tolerance) && find_other(d, f, d->species[o], tolerance, o, NULL) >= 0) return true;
        const size_t slice = slice_of(d, f[0]);
        im->slices[slice / 64] |= UINT64_C(1) << slice % 64;
    }
    return false;
}

bool images_fold(images *im, fold *d)
{
    for (int k = 0; k < d->rank; k++)
        if (!(length_of(d->basis + 3 * k) >= shortest)) return false;
    if (!images_complete_basis(d->basis, d->rank) || !invert(d->basis, d->inverse)) return false;
    for (int k = 0; k < 3; k++) d->low[k] = INFINITY, d->high[k] = -INFINITY;
    for (int o = 0; o < d->n_owned; o++) {
        double *f = im->place + 3 * (size_t)o;
        times(d->positions + 3 * (size_t)o, d->inverse, f);
        for (int k = 0; k < 3; k++) {
            d->low[k] = f[k] < d->low[k] ? f[k] : d->low[k];
            d->high[k] = f[k] > d->high[k] ? f[k] : d->high[k];
        }
    }
    if (!choose_bins(im, d)) return false;
    fill_bins(im, d);
    return !is_doubled(im, d);
}

// ---- the lattice -----------------------------------------------------------------------------------------------------------

// Makes v shorter by one of w, or by a sum or difference of w and u. False where none does.
static bool shorten(double *v, const double *w, const double *u)
{
    const double old = dot(v, v);
    double best[3], square = old * (1 - 1e-9);
    bool shorter = false;
    for (int k = 0; k < (u ? 4 : 1); k++) {
        double trial[3];
        for (int c = 0; c < 3; c++)
            trial[c] = u ? v[c] + (k & 1 ? w[c] : -w[c]) + (k & 2 ? u[c] : -u[c]) : v[c] - round(dot(v, w) / dot(w, w)) * w[c];
        if (dot(trial, trial) >= square) continue;
        square = dot(trial, trial);
        memcpy(best, trial, sizeof best);
        shorter = true;
    }
    if (shorter) memcpy(v, best, sizeof best);
    return shorter;
}

// A basis of the lattice that n ≤ 4 vectors make, the shortest first. Returns its number of vectors; more than 3 where none was found.
static int reduce(double (*v)[3], int n)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (int i = 1; i < n; i++) // by length
            for (int k = i; k > 0 && length_of(v[k]) < length_of(v[k - 1]); k--)
                for (int c = 0; c < 3; c++) {
                    const double swap = v[k][c];
                    v[k][c] = v[k - 1][c];
                    v[k - 1][c] = swap;
                }
        while (n > 0 && length_of(v[0]) < 1e-6) memmove(v[0], v[1], sizeof *v * (size_t)--n);
        for (int i = 1; i < n && !changed; i++)
            for (int j = 0; j < i && !changed; j++) {
                changed = shorten(v[i], v[j], NULL);
                for (int k = 0; k < j && !changed; k++) changed = shorten(v[i], v[j], v[k]);
            }
    }
    return n;
}

static int by_key(const void *a, const void *b)
{
    const ranked *left = a, *right = b;
    return left->key < right->key ? -1 : left->key > right->key;
}

// The owned atom at r up to a lattice vector.
static int owned_at(fold *d, const double *r, int species)
{
    double f[3];
    d->lookups++;
    times(r, d->inverse, f);
    return images_look_up(d, f, species, tolerance, NULL);
}

static int collect_left(images *im, fold *d, int n_atoms)
{
    int n = 0;
    for (int i = d->n_owned; i < n_atoms; i++)
        if (owned_at(d, d->positions + 3 * (size_t)i, d->species[i]) < 0) im->left[n++] = i;
    return n;
}

// Whether t moves an owned atom to another one. Those that it moves into the others come first in `by_way`.
static bool moves_to_owned(const images *im, fold *d, const double *t)
{
    for (int o = 0; o < d->n_owned; o++) {
        const int i = im->by_way[o].atom;
        double r[3];
        for (int c = 0; c < 3; c++) r[c] = d->positions[3 * (size_t)i + (size_t)c] + t[c];
        if (owned_at(d, r, d->species[i]) >= 0) return true;
    }
    return false;
}

static void mean_of_owned(const fold *d, double *mean)
{
    memset(mean, 0, 3 * sizeof *mean);
    for (int o = 0; o < d->n_owned; o++)
        for (int c = 0; c < 3; c++) mean[c] += d->positions[3 * (size_t)o + (size_t)c] / d->n_owned;
}

// Sorts owned atoms along the way to a ghost.
static void sort_owned(images *im, const fold *d, const double *mean, int ghost)
{
    double way[3];
    for (int c = 0; c < 3; c++) way[c] = d->positions[3 * (size_t)ghost + (size_t)c] - mean[c];
    for (int o = 0; o < d->n_owned; o++) im->by_way[o] = (ranked){dot(way, d->positions + 3 * (size_t)o), o};
    qsort(im->by_way, (size_t)d->n_owned, sizeof *im->by_way, by_key);
}

// The translation of ghost `chosen` of `left` that also explains most of the others, the shortest of these. Returns their number, or −1.
static int translation_of(images *im, fold *d, int n_left, int chosen, double *t_out)
{
    const int g = im->left[chosen];
    const bool all = (int64_t)d->n_owned * n_left <= ALL_OF;
    const int n_sample = all || n_left < FEW + 1 ? n_left : FEW + 1;
    int n = 0;
    for (int i = 0; i < d->n_owned && d->lookups < MAX_LOOKUPS; i++) {
        double t[3];
        int score = 0;
        if (d->species[i] != d->species[g]) continue;
        way_between(d, i, g, t);
        for (int k = 1; k < n_sample; k++) {
            const int h = im->left[(chosen + k) % n_left];
            double r[3];
            for (int c = 0; c < 3; c++) r[c] = d->positions[3 * (size_t)h + (size_t)c] - t[c];
            const int owner = owned_at(d, r, d->species[h]);
            score += owner >= 0 && owner != i; // images of i, where some axes are known, are so by any t
        }
        im->candidates[n++] = (ranked){length_of(t) - 1e9 * score, i};
    }
    qsort(im->candidates, (size_t)n, sizeof *im->candidates, by_key);
    for (int k = 0; k < n && d->lookups < MAX_LOOKUPS; k++) {
        way_between(d, im->candidates[k].atom, g, t_out);
        if (!moves_to_owned(im, d, t_out)) return (int)ceil(-1e-9 * im->candidates[k].key);
    }
    return -1;
}

// A translation of one of the ghosts that are nearest to the owned atoms' mean.
static bool find_translation(images *im, fold *d, int n_left, double *t_out)
{
    double mean[3], last = -1;
    int best = -1;
    mean_of_owned(d, mean);
    for (int turn = 0; turn < MAX_GHOSTS && best < 1; turn++) {
        double nearest = INFINITY;
        int chosen = -1;
        for (int k = 0; k < n_left; k++) {
            double away[3];
            for (int c = 0; c < 3; c++) away[c] = d->positions[3 * (size_t)im->left[k] + (size_t)c] - mean[c];
            const double square = dot(away, away);
            if (square <= last || square >= nearest) continue;
            nearest = square;
            chosen = k;
        }
        if (chosen < 0) break;
        last = nearest;
        sort_owned(im, d, mean, im->left[chosen]);
        double t[3];
        const int score = translation_of(im, d, n_left, chosen, t);
        if (score > best) memcpy(t_out, t, sizeof t);
        best = score > best ? score : best;
        if (d->n_owned == 1) break; // its only translation
    }
    return best >= 0 && d->lookups < MAX_LOOKUPS;
}

// Finds rank and basis.
bool images_search(images *im, fold *d, int n_atoms)
{
    double vectors[4][3] = {{0}};
    static const double unit[9] = {1, 0, 0, 0, 1, 0, 0, 0, 1};
    im->rank = d->rank = 0;
    for (int trial = 0; trial < MAX_TRIALS; trial++) {
        memcpy(d->basis, unit, sizeof d->basis);
        memcpy(d->basis, vectors, sizeof(double) * 3 * (size_t)d->rank);
        if (!images_fold(im, d)) return false;
        const int n_left = collect_left(im, d, n_atoms);
        if (n_left == 0) {
            memcpy(im->basis, d->basis, sizeof im->basis);
            im->rank = d->rank;
            return d->rank > 0;
        }
        if (!find_translation(im, d, n_left, vectors[d->rank])) return false;
        d->rank = reduce(vectors, d->rank + 1);
        if (d->rank > 3) return false;
    }
    return false;
}
