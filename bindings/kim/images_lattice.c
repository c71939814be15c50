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

int images_bin_of(const fold *d, int axis, double f)
{
    if (axis < d->rank) {
        const int bin = (int)((f - floor(f)) * d->bins[axis]);
        return bin < d->bins[axis] ? bin : 0;
    }
    const double range = d->high[axis] - d->low[axis];
    const double at = range > 0 ? (f - d->low[axis]) / range * d->bins[axis] : 0;
    return at <= 0 ? 0 : at >= d->bins[axis] - 1 ? d->bins[axis] - 1 : (int)at;
}

// The owned atom at r up to a lattice vector, −1 where there is none; with the shift that leads from it to r.
int images_look_up(fold *d, const double *r, int species, int32_t *shift_out)
{
    double f[3];
    int bins[3][2], n[3];
    d->lookups++;
    times(r, d->inverse, f);
    for (int k = 0; k < 3; k++) {
        const double column[3] = {d->inverse[k], d->inverse[3 + k], d->inverse[6 + k]}, width = d->tolerance * length_of(column);
        bins[k][0] = images_bin_of(d, k, f[k] - width);
        bins[k][1] = images_bin_of(d, k, f[k] + width);
        n[k] = bins[k][0] == bins[k][1] ? 1 : 2;
    }
    for (int b = 0; b < n[0] * n[1] * n[2]; b++) {
        const int x = bins[0][b % n[0]], y = bins[1][b / n[0] % n[1]], z = bins[2][b / n[0] / n[1]];
        for (int o = d->head[(x * d->bins[1] + y) * d->bins[2] + z]; o >= 0; o = d->next[o]) {
            const int i = d->owned[o];
            double away[3], moved[3], shift[3] = {0}, square = 0;
            for (int c = 0; c < 3; c++) away[c] = r[c] - d->positions[3 * (size_t)i + (size_t)c];
            times(away, d->inverse, f);
            for (int k = 0; k < d->rank; k++) shift[k] = round(f[k]);
            times(shift, d->basis, moved);
            for (int c = 0; c < 3; c++) square += (away[c] - moved[c]) * (away[c] - moved[c]);
            if (d->species[i] != species || !(square <= d->tolerance * d->tolerance)) continue;
            for (int k = 0; shift_out && k < 3; k++) shift_out[k] = (int32_t)shift[k];
            return i;
        }
    }
    return -1;
}

// Fills the grid of a lattice. False where two owned atoms are images of each other, or the lattice has no volume.
bool images_fold(images *im, fold *d)
{
    for (int k = 0; k < d->rank; k++)
        if (!(length_of(d->basis + 3 * k) >= shortest)) return false;
    if (!images_complete_basis(d->basis, d->rank) || !invert(d->basis, d->inverse)) return false;
    d->tolerance = tolerance;
    double length[3], volume = 1;
    for (int k = 0; k < 3; k++) d->low[k] = INFINITY, d->high[k] = -INFINITY;
    for (int o = 0; o < d->n_owned; o++) {
        double f[3];
        times(d->positions + 3 * (size_t)d->owned[o], d->inverse, f);
        for (int k = 0; k < 3; k++) d->low[k] = fmin(d->low[k], f[k]), d->high[k] = fmax(d->high[k], f[k]);
    }
    for (int k = 0; k < 3; k++) {
        length[k] = k < d->rank ? length_of(d->basis + 3 * k) : d->high[k] - d->low[k];
        volume *= fmax(length[k], 0.1);
    }
    const double width = fmax(cbrt(volume / d->n_owned), 0.1); // of about one atom
    size_t n_bins = 1;
    for (int k = 0; k < 3; k++) {
        d->bins[k] = (int)fmin(fmax(length[k] / width, 1), 4096);
        n_bins *= (size_t)d->bins[k];
    }
    if (n_bins > 64 * (size_t)d->n_owned + 4096) return false;
    if (n_bins > im->bin_capacity) {
        if (!images_grow(&im->head, n_bins, sizeof(int))) return false;
        im->bin_capacity = n_bins;
    }
    d->head = im->head;
    d->next = im->next;
    memset(d->head, 0xff, sizeof(int) * n_bins);
    for (int o = 0; o < d->n_owned; o++) {
        const int i = d->owned[o];
        const double *r = d->positions + 3 * (size_t)i;
        double f[3];
        if (images_look_up(d, r, d->species[i], NULL) >= 0) return false;
        times(r, d->inverse, f);
        const int bin =
            (images_bin_of(d, 0, f[0]) * d->bins[1] + images_bin_of(d, 1, f[1])) * d->bins[2] + images_bin_of(d, 2, f[2]);
        d->next[o] = d->head[bin];
        d->head[bin] = o;
    }
    return true;
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

static int collect_left(images *im, fold *d, int n_atoms, const int *contributing)
{
    int n = 0;
    for (int i = 0; i < n_atoms; i++)
        if (!contributing[i] && images_look_up(d, d->positions + 3 * (size_t)i, d->species[i], NULL) < 0) im->left[n++] = i;
    return n;
}

// Whether t moves an owned atom to another one. Those that it moves into the others come first in `order`.
static bool moves_to_owned(const images *im, fold *d, const double *t)
{
    for (int o = 0; o < d->n_owned; o++) {
        const int i = im->order[o].atom;
        double r[3];
        for (int c = 0; c < 3; c++) r[c] = d->positions[3 * (size_t)i + (size_t)c] + t[c];
        if (images_look_up(d, r, d->species[i], NULL) >= 0) return true;
    }
    return false;
}

static void mean_of_owned(const fold *d, double *mean)
{
    memset(mean, 0, 3 * sizeof *mean);
    for (int o = 0; o < d->n_owned; o++)
        for (int c = 0; c < 3; c++) mean[c] += d->positions[3 * (size_t)d->owned[o] + (size_t)c] / d->n_owned;
}

// Sorts owned atoms along the way to a ghost.
static void sort_owned(images *im, const fold *d, const double *mean, int ghost)
{
    double way[3];
    for (int c = 0; c < 3; c++) way[c] = d->positions[3 * (size_t)ghost + (size_t)c] - mean[c];
    for (int o = 0; o < d->n_owned; o++) im->order[o] = (ranked){dot(way, d->positions + 3 * (size_t)d->owned[o]), d->owned[o]};
    qsort(im->order, (size_t)d->n_owned, sizeof *im->order, by_key);
}

// The translation of ghost `chosen` of `left` that also explains most of the others, the shortest of these. Returns their number, or −1.
static int translation_of(images *im, fold *d, int n_left, int chosen, double *t_out)
{
    const int g = im->left[chosen];
    const bool all = (int64_t)d->n_owned * n_left <= ALL_OF;
    const int n_sample = all || n_left < FEW + 1 ? n_left : FEW + 1;
    int n = 0;
    for (int o = 0; o < d->n_owned && d->lookups < MAX_LOOKUPS; o++) {
        const int i = d->owned[o];
        double t[3];
        int score = 0;
        if (d->species[i] != d->species[g]) continue;
        way_between(d, i, g, t);
        for (int k = 1; k < n_sample; k++) {
            const int h = im->left[(chosen + k) % n_left];
            double r[3];
            for (int c = 0; c < 3; c++) r[c] = d->positions[3 * (size_t)h + (size_t)c] - t[c];
            const int owner = images_look_up(d, r, d->species[h], NULL);
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
bool images_search(images *im, fold *d, int n_atoms, const int *contributing)
{
    double vectors[4][3] = {{0}};
    static const double unit[9] = {1, 0, 0, 0, 1, 0, 0, 0, 1};
    im->rank = d->rank = 0;
    for (int trial = 0; trial < MAX_TRIALS; trial++) {
        memcpy(d->basis, unit, sizeof d->basis);
        memcpy(d->basis, vectors, sizeof(double) * 3 * (size_t)d->rank);
        if (!images_fold(im, d)) return false;
        const int n_left = collect_left(im, d, n_atoms, contributing);
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
