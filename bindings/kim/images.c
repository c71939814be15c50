// SPDX-License-Identifier: MIT
// images.c: finds the lattice that makes ghosts images of owned atoms.
//
// With lattice vectors a_k (rows of `basis`, completed by unit vectors to three) a ghost g is the image of atom i where
//   r_g = r_i + Σ_k n_k a_k,  n_k integer and 0 for k ≥ rank.
// Images within reach of an owned atom matter. In fractional coordinates f they have f_k + n_k within reach / h_k of the range of all owned
// atoms' f_k, where h_k is the cell's height along axis k. None is missing where the number of such ghosts, all different, is the number
// of such images: so it is if the simulator chooses ghosts in this way, along the same axes. Otherwise distances decide.
//
// The lattice is found by translations t = r_g − r_i of ghosts that no lattice explains yet: the right one also moves other ghosts to owned
// atoms, and moves no owned atom to another one. Translations are then reduced to a basis.
//
// Several lattices can explain all ghosts where the structure repeats within the cell, as a crystal on its sites does; the simulator adds
// the forces on ghosts to the owners by its own. So a lattice is used only if each of the ghosts whose shifts span it can be the image of
// one atom alone: then its vectors are vectors of the simulator's lattice too, and owners are the same.
#include "images.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// Ghosts are copies of positions plus a multiple of the cell's vectors: equal up to rounding, Å.
static const double tolerance = 1e-9;
// Atoms that differ by less from what a translation makes of others may be images of these by the simulator's lattice, Å.
static const double doubt = 1e-6;
// Positions of up to so much are known to the tolerance, Å. Shorter lattice vectors than the second belong to no cell of atoms.
static const double farthest = 1e6, shortest = 0.1;
// Images are looked for this much farther away, so that a set is known to be whole while atoms move by less, Å.
static const double margin = 0.3;
enum {
    FEW = 7,                // ghosts that confirm a translation where there are many atoms
    ALL_OF = 200000,        // products of owned atoms and ghosts up to which all ghosts do
    MAX_GHOSTS = 12,        // whose translations are compared where they explain no other ghost
    MAX_TRIALS = 24,        // translations that are tried for one lattice
    MAX_REFERENCES = 12,    // ghosts that are tried as references
    MAX_LOOKUPS = 20000000, // of one search for a lattice: a few seconds
    LONGEST_DELAY = 1024    // calls between two searches where all before failed
};

// Owned atoms by their place in the cell, in bins of a grid.
typedef struct fold {
    double basis[9], inverse[9]; // rows: vectors; f = r · inverse
    int rank;
    double tolerance; // of a place, Å
    int bins[3];
    double low[3], high[3]; // of f, of the axes that do not repeat
    int n_owned;
    const int *owned, *species; // [n_owned] indices of atoms; of atoms
    const double *positions;
    int *head, *next; // [bins], [n_owned]
    int64_t lookups;
} fold;

typedef struct ranked {
    double key;
    int atom;
} ranked;

struct images {
    double reach;
    int64_t calls, next_search, delay;

    // The map, of `n_atoms`; rank 0: none.
    int n_atoms, n_owned, rank;
    double basis[9], inverse[9];
    int *owned;                  // [n_owned] index in the caller's arrays
    int *owner;                  // [n_atoms] index of the atom that this one is an image of, its own for owned atoms
    int32_t *shift;              // [n_atoms][3]
    unsigned char *contributing; // [n_atoms]
    int reference[3];            // ghosts whose shifts are independent, `rank` of them
    double from_shifts[9];       // inverse of their shifts' matrix, completed by unit vectors

    int *last, *earlier;                       // [n_atoms] of the ghosts of an owned atom
    double whole_within;                       // Å beyond the reach, when the set was last found whole; negative: it was not
    double *checked_positions;                 // [n_owned][3] and basis then
    double checked_basis[9], checked_cells[3]; // how many cells away images can be

    int *head, *next;           // of searches
    int *left;                  // [n_left] ghosts that no lattice explains
    ranked *order, *candidates; // [n_owned]
    size_t atom_capacity, bin_capacity;

    int32_t first_atom[2], *batch_species;
    double *batch_positions, cell[9];
    unsigned char periodic[3];
    mlff_batch batch;
};

mlff_status images_create(double reach, images **images_out)
{
    images *im = calloc(1, sizeof *im);
    if (!im) return mlff_fail(MLFF_ERR_MEMORY, "out of memory: images");
    im->reach = reach - 1e-6; // atoms at the influence distance itself have no influence
    im->next_search = im->delay = 1;
    *images_out = im;
    return MLFF_OK;
}

void images_destroy(images *im)
{
    if (!im) return;
    void *const arrays[] = {im->owned,
                            im->owner,
                            im->shift,
                            im->contributing,
                            im->head,
                            im->next,
                            im->left,
                            im->order,
                            im->batch_species,
                            im->batch_positions,
                            im->last,
                            im->earlier,
                            im->checked_positions,
                            im->candidates};
    for (size_t k = 0; k < sizeof arrays / sizeof *arrays; k++) free(arrays[k]);
    free(im);
}

// ---- memory ----------------------------------------------------------------------------------------------------------------

static bool grow(void *array, size_t count, size_t size)
{
    void *memory, *old;
    memcpy(&old, array, sizeof old);
    if (!(memory = realloc(old, count * size))) return false;
    memcpy(array, &memory, sizeof memory);
    return true;
}

static mlff_status reserve(images *im, size_t n)
{
    if (n <= im->atom_capacity) return MLFF_OK;
    n += n / 4;
    if (!grow(&im->owned, n, sizeof(int)) || !grow(&im->owner, n, sizeof(int)) || !grow(&im->shift, 3 * n, sizeof(int32_t)) ||
        !grow(&im->contributing, n, 1) || !grow(&im->next, n, sizeof(int)) || !grow(&im->left, n, sizeof(int)) ||
        !grow(&im->order, n, sizeof(ranked)) || !grow(&im->candidates, n, sizeof(ranked)) || !grow(&im->last, n, sizeof(int)) ||
        !grow(&im->earlier, n, sizeof(int)) || !grow(&im->checked_positions, 3 * n, sizeof(double)) ||
        !grow(&im->batch_species, n, sizeof(int32_t)) || !grow(&im->batch_positions, 3 * n, sizeof(double)))
        return mlff_fail(MLFF_ERR_MEMORY, "out of memory: images of %zu atoms", n);
    im->atom_capacity = n;
    return MLFF_OK;
}

// ---- vectors ---------------------------------------------------------------------------------------------------------------

static double dot(const double *a, const double *b)
{
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

static double length_of(const double *v)
{
    return sqrt(dot(v, v));
}

static void cross(const double *a, const double *b, double *c)
{
    c[0] = a[1] * b[2] - a[2] * b[1];
    c[1] = a[2] * b[0] - a[0] * b[2];
    c[2] = a[0] * b[1] - a[1] * b[0];
}

// row · m
static void times(const double *row, const double *m, double *out)
{
    double r[3];
    for (int c = 0; c < 3; c++) r[c] = row[0] * m[c] + row[1] * m[3 + c] + row[2] * m[6 + c];
    memcpy(out, r, sizeof r);
}

static bool invert(const double *m, double *inverse)
{
    double column[3];
    cross(m + 3, m + 6, column);
    const double volume = dot(m, column);
    if (!(fabs(volume) > 1e-6 * length_of(m) * length_of(m + 3) * length_of(m + 6))) return false;
    for (int k = 0; k < 3; k++) {
        cross(m + 3 * ((k + 1) % 3), m + 3 * ((k + 2) % 3), column);
        for (int c = 0; c < 3; c++) inverse[3 * c + k] = column[c] / volume;
    }
    return true;
}

// Vectors 0 … rank − 1 are completed by unit vectors that are normal to them.
static bool complete_basis(double *basis, int rank)
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

static int bin_of(const fold *d, int axis, double f)
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
static int look_up(fold *d, const double *r, int species, int32_t *shift_out)
{
    double f[3];
    int bins[3][2], n[3];
    d->lookups++;
    times(r, d->inverse, f);
    for (int k = 0; k < 3; k++) {
        const double column[3] = {d->inverse[k], d->inverse[3 + k], d->inverse[6 + k]}, width = d->tolerance * length_of(column);
        bins[k][0] = bin_of(d, k, f[k] - width);
        bins[k][1] = bin_of(d, k, f[k] + width);
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
static bool fold_owned(images *im, fold *d)
{
    for (int k = 0; k < d->rank; k++)
        if (!(length_of(d->basis + 3 * k) >= shortest)) return false;
    if (!complete_basis(d->basis, d->rank) || !invert(d->basis, d->inverse)) return false;
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
        if (!grow(&im->head, n_bins, sizeof(int))) return false;
        im->bin_capacity = n_bins;
    }
    d->head = im->head;
    d->next = im->next;
    memset(d->head, 0xff, sizeof(int) * n_bins);
    for (int o = 0; o < d->n_owned; o++) {
        const int i = d->owned[o];
        const double *r = d->positions + 3 * (size_t)i;
        double f[3];
        if (look_up(d, r, d->species[i], NULL) >= 0) return false;
        times(r, d->inverse, f);
        const int bin = (bin_of(d, 0, f[0]) * d->bins[1] + bin_of(d, 1, f[1])) * d->bins[2] + bin_of(d, 2, f[2]);
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
        if (!contributing[i] && look_up(d, d->positions + 3 * (size_t)i, d->species[i], NULL) < 0) im->left[n++] = i;
    return n;
}

static void way_between(const fold *d, int from, int to, double *way)
{
    for (int c = 0; c < 3; c++) way[c] = d->positions[3 * (size_t)to + (size_t)c] - d->positions[3 * (size_t)from + (size_t)c];
}

// Whether t moves an owned atom to another one. Those that it moves into the others come first in `order`.
static bool moves_to_owned(const images *im, fold *d, const double *t)
{
    for (int o = 0; o < d->n_owned; o++) {
        const int i = im->order[o].atom;
        double r[3];
        for (int c = 0; c < 3; c++) r[c] = d->positions[3 * (size_t)i + (size_t)c] + t[c];
        if (look_up(d, r, d->species[i], NULL) >= 0) return true;
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
            const int owner = look_up(d, r, d->species[h], NULL);
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
static bool search(images *im, fold *d, int n_atoms, const int *contributing)
{
    double vectors[4][3] = {{0}};
    static const double unit[9] = {1, 0, 0, 0, 1, 0, 0, 0, 1};
    im->rank = d->rank = 0;
    for (int trial = 0; trial < MAX_TRIALS; trial++) {
        memcpy(d->basis, unit, sizeof d->basis);
        memcpy(d->basis, vectors, sizeof(double) * 3 * (size_t)d->rank);
        if (!fold_owned(im, d)) return false;
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

// ---- the map ---------------------------------------------------------------------------------------------------------------

// Lists the ghosts of each owned atom. False where two of them are one image, or one is the atom itself.
static bool list_ghosts(images *im, int n_atoms)
{
    for (int i = 0; i < n_atoms; i++) im->last[i] = -1;
    for (int i = 0; i < n_atoms; i++) {
        if (im->contributing[i]) continue;
        const int owner = im->owner[i];
        const int32_t *shift = im->shift + 3 * (size_t)i;
        if (shift[0] == 0 && shift[1] == 0 && shift[2] == 0) return false;
        for (int k = im->last[owner]; k >= 0; k = im->earlier[k])
            if (memcmp(im->shift + 3 * (size_t)k, shift, 3 * sizeof(int32_t)) == 0) return false;
        im->earlier[i] = im->last[owner];
        im->last[owner] = i;
    }
    return true;
}

// Whether ghost g can be an image of its owner alone. Another owner would have the same neighbors within reach, as far as those of g are known:
// the images there are ghosts, and so all of them have a place by the lattice that was found.
static bool has_one_owner(images *im, fold *d, int n_atoms, int g)
{
    int n = 0;
    double way[3];
    for (int h = 0; h < n_atoms; h++) {
        way_between(d, g, h, way);
        if (h != g && dot(way, way) <= im->reach * im->reach) im->left[n++] = h;
    }
    bool other = false;
    d->tolerance = doubt;
    for (int o = 0; o < d->n_owned && !other; o++) {
        const int i = d->owned[o];
        if (i == im->owner[g] || d->species[i] != d->species[g]) continue;
        other = true;
        for (int k = 0; k < n && other; k++) {
            double r[3];
            way_between(d, g, im->left[k], way);
            for (int c = 0; c < 3; c++) r[c] = d->positions[3 * (size_t)i + (size_t)c] + way[c];
            other = look_up(d, r, d->species[im->left[k]], NULL) >= 0;
        }
    }
    d->tolerance = tolerance;
    return !other;
}

// Ghosts with one possible owner whose shifts are a basis of all.
static bool choose_references(images *im, fold *d, int n_atoms)
{
    double rows[9] = {1, 0, 0, 0, 1, 0, 0, 0, 1}, normal[3];
    int n = 0, tried = 0;
    for (int pass = 0; pass < 2 && n < im->rank; pass++) // neighboring cells first
        for (int i = 0; i < n_atoms && n < im->rank; i++) {
            const int32_t *shift = im->shift + 3 * (size_t)i;
            if (im->contributing[i] || (pass == 0 && abs(shift[0]) + abs(shift[1]) + abs(shift[2]) != 1)) continue;
            const double row[3] = {shift[0], shift[1], shift[2]};
            if (n == 1) cross(rows, row, normal);
            if (n == 2) cross(rows, rows + 3, normal);
            if (n == 1 ? dot(normal, normal) < 0.5 : n == 2 ? fabs(dot(normal, row)) < 0.5 : dot(row, row) < 0.5) continue;
            if (tried++ == MAX_REFERENCES) return false;
            if (!has_one_owner(im, d, n_atoms, i)) continue;
            memcpy(rows + 3 * n, row, sizeof row);
            im->reference[n++] = i;
        }
    if (n < im->rank) return false;
    // Rows of axes that do not repeat: unit vectors, which no shift has a part of.
    for (int k = n; k < 3; k++)
        for (int c = 0; c < 3; c++) rows[3 * k + c] = c == k;
    cross(rows + 3, rows + 6, normal);
    return fabs(dot(rows, normal)) < 1.5 && invert(rows, im->from_shifts);
}

// Owners and shifts of all ghosts by the lattice.
static bool map(images *im, fold *d, int n_atoms, const int *contributing)
{
    im->n_atoms = -1;
    d->rank = im->rank;
    memcpy(d->basis, im->basis, sizeof d->basis);
    if (!fold_owned(im, d)) return false;
    for (int i = 0; i < n_atoms; i++) {
        im->contributing[i] = contributing[i] != 0;
        im->owner[i] = i;
        memset(im->shift + 3 * (size_t)i, 0, 3 * sizeof(int32_t));
        if (contributing[i]) continue;
        im->owner[i] = look_up(d, d->positions + 3 * (size_t)i, d->species[i], im->shift + 3 * (size_t)i);
        if (im->owner[i] < 0) return false;
    }
    if (!list_ghosts(im, n_atoms) || !choose_references(im, d, n_atoms)) return false;
    im->n_atoms = n_atoms;
    im->whole_within = -1;
    return true;
}

// Rows: the references' ways from their owners, completed by the basis.
static void reference_ways(const images *im, const double *positions, double *ways)
{
    memcpy(ways, im->basis, 9 * sizeof *ways);
    for (int k = 0; k < im->rank; k++)
        for (int c = 0; c < 3; c++)
            ways[3 * k + c] = positions[3 * (size_t)im->reference[k] + (size_t)c] -
                              positions[3 * (size_t)im->owner[im->reference[k]] + (size_t)c];
}

// Whether all ghosts are where the map says, by the lattice that the references have now.
static bool holds(images *im, int n_atoms, const int *species, const int *contributing, const double *positions)
{
    double ways[9], inverse[9];
    if (im->rank == 0 || n_atoms != im->n_atoms) return false;
    reference_ways(im, positions, ways);
    for (int k = 0; k < im->rank; k++) times(im->from_shifts + 3 * k, ways, im->basis + 3 * k);
    if (!complete_basis(im->basis, im->rank) || !invert(im->basis, im->inverse)) return false;
    reference_ways(im, positions, ways);
    if (!invert(ways, inverse)) return false; // what images_add_virial divides by
    for (int i = 0; i < n_atoms; i++) {
        if (im->contributing[i] != (contributing[i] != 0)) return false;
        if (contributing[i]) continue;
        const int owner = im->owner[i];
        const int32_t *n = im->shift + 3 * (size_t)i;
        double square = 0;
        for (int c = 0; c < 3; c++) {
            const double moved = n[0] * im->basis[c] + n[1] * im->basis[3 + c] + n[2] * im->basis[6 + c];
            const double d = positions[3 * (size_t)i + (size_t)c] - positions[3 * (size_t)owner + (size_t)c] - moved;
            square += d * d;
        }
        if (species[i] != species[owner] || !(square <= tolerance * tolerance)) return false;
    }
    return true;
}

// ---- whether images are missing --------------------------------------------------------------------------------------------

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
        first[k] = bin_of(d, k, r[k] - reach);
        last[k] = bin_of(d, k, r[k] + reach);
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
    if (!fold_owned(im, &d)) return false;
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
static bool is_whole(images *im, int n_atoms, const int *species, const double *positions)
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

// ---- a call ----------------------------------------------------------------------------------------------------------------

// A lattice that held before is tried first, and searched again where it does not, ever more rarely where searches fail.
static bool find(images *im, int n_atoms, const int *species, const int *contributing, const double *positions)
{
    im->calls++;
    if (holds(im, n_atoms, species, contributing, positions)) return true;
    im->n_atoms = -1;
    im->n_owned = 0;
    for (int i = 0; i < n_atoms; i++)
        if (contributing[i]) im->owned[im->n_owned++] = i;
    if (im->n_owned == 0 || im->n_owned == n_atoms) return false;
    fold d = {.n_owned = im->n_owned, .owned = im->owned, .species = species, .positions = positions};
    if (im->rank > 0 && map(im, &d, n_atoms, contributing) && holds(im, n_atoms, species, contributing, positions)) return true;
    if (im->calls < im->next_search) return false;
    d.lookups = 0;
    const bool found = search(im, &d, n_atoms, contributing) && map(im, &d, n_atoms, contributing) &&
                       holds(im, n_atoms, species, contributing, positions);
    im->next_search = im->calls + im->delay;
    im->delay = found ? 1 : im->delay < LONGEST_DELAY ? 2 * im->delay : LONGEST_DELAY;
    if (!found) im->rank = 0;
    return found;
}

static void gather(images *im, const int *species, const double *positions)
{
    for (int o = 0; o < im->n_owned; o++) {
        im->batch_species[o] = species[im->owned[o]];
        memcpy(im->batch_positions + 3 * (size_t)o, positions + 3 * (size_t)im->owned[o], 3 * sizeof(double));
    }
    for (int k = 0; k < 3; k++) {
        im->periodic[k] = k < im->rank;
        for (int c = 0; c < 3; c++) im->cell[3 * k + c] = k < im->rank ? im->basis[3 * k + c] : 0;
    }
    im->first_atom[1] = im->n_owned;
    im->batch = (mlff_batch){.n_systems = 1,
                             .first_atom = im->first_atom,
                             .species = im->batch_species,
                             .positions = im->batch_positions,
                             .cells = im->cell,
                             .periodic = im->periodic,
                             .location = MLFF_HOST};
}

mlff_status images_update(images *im, int n_atoms, const int *species, const int *contributing, const double *positions,
                          const mlff_batch **batch_out, const int **atom_out)
{
    *batch_out = NULL;
    for (size_t k = 0; k < 3 * (size_t)n_atoms; k++)
        if (!(fabs(positions[k]) <= farthest)) return MLFF_OK;
    mlff_status status = reserve(im, (size_t)n_atoms);
    if (status != MLFF_OK || !find(im, n_atoms, species, contributing, positions)) return status;
    if (!is_whole(im, n_atoms, species, positions)) return MLFF_OK;
    gather(im, species, positions);
    *batch_out = &im->batch;
    *atom_out = im->owned;
    return MLFF_OK;
}

// With t_k the way from a reference's owner to it and f_k the force that is added on it, Σ_k t_k ⊗ f_k must be W − Σ_i r_i ⊗ F_i.
void images_add_virial(const images *im, const double *positions, const double *virial, double *forces)
{
    double missing[9], ways[9], inverse[9];
    memcpy(missing, virial, sizeof missing);
    for (int o = 0; o < im->n_owned; o++) {
        const size_t i = 3 * (size_t)im->owned[o];
        for (int a = 0; a < 3; a++)
            for (int b = 0; b < 3; b++) missing[3 * a + b] -= positions[i + (size_t)a] * forces[i + (size_t)b];
    }
    reference_ways(im, positions, ways);
    if (!invert(ways, inverse)) return;
    for (int k = 0; k < im->rank; k++)
        for (int b = 0; b < 3; b++) {
            const double f = inverse[k] * missing[b] + inverse[3 + k] * missing[3 + b] + inverse[6 + k] * missing[6 + b];
            forces[3 * (size_t)im->reference[k] + (size_t)b] += f;
            forces[3 * (size_t)im->owner[im->reference[k]] + (size_t)b] -= f;
        }
}
