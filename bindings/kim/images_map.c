// SPDX-License-Identifier: MIT
// images_map.c: owners and shifts of all ghosts by a lattice, and whether it is the simulator's (images.c).
#include "images_state.h"

// ---- shifts ----------------------------------------------------------------------------------------------------------------

static size_t code_of(const images *im, const int32_t *shift)
{
    size_t code = 0;
    for (int k = 0; k < 3; k++) code = code * (size_t)im->n_shifts[k] + (size_t)(shift[k] - im->first_shift[k]);
    return code;
}

void images_translate(images *im)
{
    for (int c = 0; c < im->n_shifts[0] * im->n_shifts[1] * im->n_shifts[2]; c++) {
        const int32_t *shift = im->shift_of + 3 * (size_t)c;
        times((double[3]){shift[0], shift[1], shift[2]}, im->basis, im->translation + 3 * (size_t)c);
    }
}

static void list_shifts(images *im)
{
    int32_t *shift = im->shift_of;
    for (int x = 0; x < im->n_shifts[0]; x++)
        for (int y = 0; y < im->n_shifts[1]; y++)
            for (int z = 0; z < im->n_shifts[2]; z++, shift += 3)
                shift[0] = im->first_shift[0] + x, shift[1] = im->first_shift[1] + y, shift[2] = im->first_shift[2] + z;
}

bool images_has(const images *im, int atom, const int32_t *shift)
{
    for (int k = 0; k < 3; k++)
        if (shift[k] < im->first_shift[k] || shift[k] >= im->first_shift[k] + im->n_shifts[k]) return false;
    const size_t bit = code_of(im, shift) * (size_t)im->n_owned + (size_t)atom;
    return im->there[bit / 64] >> (bit % 64) & 1;
}

// Whether atom i is the image that ghost `at` of the list before was.
static bool is_as_before(const images *im, const fold *d, int i, int at)
{
    const int32_t owner = im->owner_before[at];
    const double *t = im->translation + 3 * (size_t)im->code[at];
    double way[3];
    way_between(d, owner, i, way);
    for (int c = 0; c < 3; c++) way[c] -= t[c];
    return (dot(way, way) <= tolerance * tolerance) & (d->species[i] == d->species[owner]);
}

// Ghosts with a place by the lattice of d; false where one has none. A new list is mostly the one before, but for a few ghosts here and there:
// each is first compared with those that follow in that list.
static bool find_owners(images *im, const fold *d, int n_ghosts)
{
    int32_t last[3] = {INT32_MIN, INT32_MIN, INT32_MIN}, first[3] = {INT32_MAX, INT32_MAX, INT32_MAX};
    int32_t *const swap = im->owner_before;
    int next = 0, failed = 0;
    im->owner_before = im->owner;
    im->owner = swap;
    for (int g = 0; g < n_ghosts; g++) {
        const int i = d->n_owned + g, end = next + AHEAD + failed < im->n_before ? next + AHEAD + failed : im->n_before;
        int32_t *shift = im->shift + 3 * (size_t)g;
        int at = next;
        while (at < end && !is_as_before(im, d, i, at)) at++;
        if (at < end) {
            im->owner[g] = im->owner_before[at];
            memcpy(shift, im->shift_of + 3 * (size_t)im->code[at], 3 * sizeof *shift);
            next = at + 1;
            failed = 0;
        } else {
            double f[3];
            times(d->positions + 3 * (size_t)i, d->inverse, f);
            if ((im->owner[g] = images_look_up(d, f, d->species[i], tolerance, shift)) < 0) return false;
            failed = failed < MAX_AHEAD ? failed + 1 : MAX_AHEAD;
        }
        for (int k = 0; k < 3; k++) {
            first[k] = shift[k] < first[k] ? shift[k] : first[k];
            last[k] = shift[k] > last[k] ? shift[k] : last[k];
        }
    }
    memcpy(im->first_shift, first, sizeof first);
    for (int k = 0; k < 3; k++) im->n_shifts[k] = last[k] - first[k] + 1;
    return true;
}

// Numbers of shifts. False where two ghosts are one image, one is the atom itself, or shifts are much more than ghosts: images near atoms fill
// the cells around theirs.
static bool number_shifts(images *im, int n_ghosts)
{
    const double n_shifts = (double)im->n_shifts[0] * im->n_shifts[1] * im->n_shifts[2];
    const double n_bits = n_shifts * im->n_owned;
    if (n_shifts > 4.0 * n_ghosts + 4096 || n_bits > 1024.0 * (im->n_owned + n_ghosts) + 65536) return false;
    const size_t n_words = (size_t)n_bits / 64 + 1;
    if (n_words > im->bit_capacity) {
        if (!images_grow(&im->there, n_words, sizeof *im->there)) return false;
        im->bit_capacity = n_words;
    }
    if ((size_t)n_shifts > im->shift_capacity) {
        if (!images_grow(&im->translation, 3 * (size_t)n_shifts, sizeof *im->translation) ||
            !images_grow(&im->shift_of, 3 * (size_t)n_shifts, sizeof *im->shift_of))
            return false;
        im->shift_capacity = (size_t)n_shifts;
    }
    list_shifts(im);
    memset(im->there, 0, n_words * sizeof *im->there);
    for (int g = 0; g < n_ghosts; g++) {
        const int32_t *shift = im->shift + 3 * (size_t)g;
        const size_t code = code_of(im, shift), bit = code * (size_t)im->n_owned + (size_t)im->owner[g];
        uint64_t *word = im->there + bit / 64;
        const uint64_t mask = UINT64_C(1) << bit % 64;
        if ((*word & mask) || (shift[0] == 0 && shift[1] == 0 && shift[2] == 0)) return false;
        *word |= mask;
        im->code[g] = (int32_t)code;
    }
    return true;
}

// ---- references ------------------------------------------------------------------------------------------------------------

// An atom's shift, 0 of owned ones, and owner.
static int owner_of(const images *im, int i, int32_t *shift)
{
    memset(shift, 0, 3 * sizeof *shift);
    if (i < im->n_owned) return i;
    memcpy(shift, im->shift + 3 * (size_t)(i - im->n_owned), 3 * sizeof *shift);
    return im->owner[i - im->n_owned];
}

// Whether another owned atom than the ghosts' owner can be theirs: by the lattice it would have all neighbors at[0 … n − 1] that they have.
static bool has_double(const fold *d, int owner, int n, const int *neighbors, const double *ways)
{
    for (int i = 0; i < d->n_owned; i++) {
        bool other = i != owner && d->species[i] == d->species[owner];
        other = other && (n == 0 || images_can_be_at(d, d->place[3 * (size_t)i] + ways[0], doubt));
        for (int k = 0; k < n && other; k++) {
            double f[3];
            for (int c = 0; c < 3; c++) f[c] = d->place[3 * (size_t)i + (size_t)c] + ways[3 * k + c];
            other = images_look_up(d, f, d->species[neighbors[k]], doubt, NULL) >= 0;
        }
        if (other) return true;
    }
    return false;
}

// Whether ghost g can be an image of its owner alone. Another owner would have the same neighbors within reach, as far as those of g are known:
// the images there are ghosts, and so all of them have a place by the lattice that was found.
static bool has_one_owner(images *im, const fold *d, int n_atoms, int g)
{
    int n = 0;
    for (int h = 0; h < n_atoms; h++) {
        double way[3];
        way_between(d, g, h, way);
        if (h == g || !(dot(way, way) <= im->reach * im->reach)) continue;
        im->left[n] = h;
        times(way, d->inverse, im->ways + 3 * (size_t)n++);
    }
    return !has_double(d, im->owner[g - im->n_owned], n, im->left, im->ways);
}

// Ghosts with one possible owner whose shifts are a basis of all, each by its own neighbors.
static bool choose_references(images *im, const fold *d, int n_atoms, double *rows)
{
    int n = 0, tried = 0;
    for (int pass = 0; pass < 2 && n < im->rank; pass++) // neighboring cells first
        for (int i = im->n_owned; i < n_atoms && n < im->rank; i++) {
            const int32_t *shift = im->shift + 3 * (size_t)(i - im->n_owned);
            const double row[3] = {shift[0], shift[1], shift[2]};
            if ((pass == 0 && abs(shift[0]) + abs(shift[1]) + abs(shift[2]) != 1) || !is_independent(rows, n, row)) continue;
            if (tried++ == MAX_REFERENCES) return false;
            if (!has_one_owner(im, d, n_atoms, i)) continue;
            memcpy(rows + 3 * n, row, sizeof row);
            im->reference[n++] = i;
        }
    return n == im->rank;
}

// Neighbors of all ghosts of `owner` by the given shifts: of those that are next to the first of them in the list.
static int find_witnesses(images *im, const fold *d, int n_atoms, int first, const int32_t (*shifts)[3])
{
    int n = 0;
    for (int step = 1; step < 4 * MAX_WITNESSES && n < MAX_WITNESSES; step++)
        for (int sign = -1; sign <= 1 && n < MAX_WITNESSES; sign += 2) {
            const int h = first + sign * step;
            int32_t shift[3], moved[3];
            double way[3];
            if (h < 0 || h >= n_atoms) continue;
            const int owner = owner_of(im, h, shift);
            way_between(d, first, h, way);
            bool known = dot(way, way) <= im->reach * im->reach;
            for (int k = 1; k < im->rank && known; k++) {
                for (int c = 0; c < 3; c++) moved[c] = shift[c] - shifts[0][c] + shifts[k][c];
                known = (moved[0] == 0 && moved[1] == 0 && moved[2] == 0) || images_has(im, owner, moved);
            }
            if (!known) continue;
            im->left[n] = h;
            times(way, d->inverse, im->ways + 3 * (size_t)n++);
        }
    return n;
}

// The same of one atom that has an image along each vector: one search for others tells all of them.
static bool choose_corner(images *im, const fold *d, int n_atoms, double *rows)
{
    int32_t shifts[3][3] = {{0}};
    int owner = -1, tried = 0;
    for (int g = 0; g < n_atoms - im->n_owned; g++) {
        bool is_corner = im->owner[g] != owner;
        for (int k = 0; k < im->rank && is_corner; k++) {
            shifts[k][k] = 1;
            if (!images_has(im, im->owner[g], shifts[k])) shifts[k][k] = -1;
            is_corner = images_has(im, im->owner[g], shifts[k]);
        }
        if (!is_corner) continue;
        owner = im->owner[g];
        for (int h = 0, n = 0; h < n_atoms - im->n_owned && n < im->rank; h++)
            for (int k = 0; im->owner[h] == owner && k < im->rank; k++)
                if (memcmp(im->shift + 3 * (size_t)h, shifts[k], sizeof shifts[k]) == 0) im->reference[k] = im->n_owned + h, n++;
        const int n_witnesses = find_witnesses(im, d, n_atoms, im->reference[0], shifts);
        if (n_witnesses > 0 && !has_double(d, owner, n_witnesses, im->left, im->ways)) {
            for (int k = 0; k < im->rank; k++)
                for (int c = 0; c < 3; c++) rows[3 * k + c] = shifts[k][c];
            return true;
        }
        if (++tried == 2) return false;
    }
    return false;
}

static bool find_references(images *im, const fold *d, int n_atoms)
{
    double rows[9], normal[3], ways[9], inverse[9];
    if (!choose_corner(im, d, n_atoms, rows) && !choose_references(im, d, n_atoms, rows)) return false;
    complete_rows(rows, im->rank);
    cross(rows + 3, rows + 6, normal);
    if (!(fabs(dot(rows, normal)) < 1.5) || !invert(rows, im->from_shifts)) return false;
    memcpy(ways, im->basis, sizeof ways);
    for (int k = 0; k < im->rank; k++) {
        im->reference_owner[k] = im->owner[im->reference[k] - im->n_owned];
        way_between(d, im->reference_owner[k], im->reference[k], ways + 3 * k);
    }
    return invert(ways, inverse); // what images_add_virial divides by
}

// ---- the map ---------------------------------------------------------------------------------------------------------------

// Where the cell changes, the lattice of the call before is near to this one's: ghosts that are near to places of it give the new one. Whether it
// differs.
static bool follow(images *im, const fold *d, int n_atoms)
{
    const int n_ghosts = n_atoms - im->n_owned, n_tried = n_ghosts < MAX_FOLLOWED ? n_ghosts : MAX_FOLLOWED;
    double rows[9], ways[9], inverse[9], basis[9], largest = 0;
    int n = 0;
    for (int k = 0; k < n_tried && n < im->rank; k++) {
        const int i = im->n_owned + (int)((int64_t)k * n_ghosts / n_tried);
        int32_t shift[3];
        double f[3];
        times(d->positions + 3 * (size_t)i, d->inverse, f);
        const int owner = images_look_up(d, f, d->species[i], step_of_cell, shift);
        const double row[3] = {shift[0], shift[1], shift[2]};
        if (owner < 0 || abs(shift[0]) > 1 || abs(shift[1]) > 1 || abs(shift[2]) > 1 || !is_independent(rows, n, row)) continue;
        memcpy(rows + 3 * n, row, sizeof row);
        way_between(d, owner, i, ways + 3 * n++);
    }
    if (n < im->rank) return false;
    complete_rows(rows, n);
    if (!invert(rows, inverse)) return false;
    memcpy(basis, im->basis, sizeof basis);
    memcpy(ways + 3 * n, im->basis + 3 * n, sizeof(double) * 3 * (size_t)(3 - n));
    for (int k = 0; k < n; k++) {
        times(inverse + 3 * k, ways, basis + 3 * k);
        for (int c = 0; c < 3; c++) largest = fmax(largest, fabs(basis[3 * k + c] - im->basis[3 * k + c]));
    }
    if (!(largest > 0.01 * tolerance)) return false;
    memcpy(im->basis, basis, sizeof basis);
    return true;
}

bool images_map(images *im, fold *d, int n_atoms)
{
    im->n_atoms = -1;
    d->rank = im->rank;
    memcpy(d->basis, im->basis, sizeof d->basis);
    if (!images_fold(im, d)) return false;
    if (follow(im, d, n_atoms)) {
        memcpy(d->basis, im->basis, sizeof d->basis);
        if (!images_fold(im, d)) return false;
    }
    memcpy(im->basis, d->basis, sizeof im->basis);
    memcpy(im->inverse, d->inverse, sizeof im->inverse);
    const int n_ghosts = n_atoms - im->n_owned;
    if (im->n_before > 0) images_translate(im);
    const bool mapped = find_owners(im, d, n_ghosts) && number_shifts(im, n_ghosts);
    im->n_before = mapped ? n_ghosts : 0;
    if (!mapped || !find_references(im, d, n_atoms)) return false;
    images_translate(im);
    im->n_atoms = n_atoms;
    im->is_checked = false;
    return true;
}
