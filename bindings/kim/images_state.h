/* SPDX-License-Identifier: MIT */
/* images_state.h: what the files of images.h share. */
#ifndef IMAGES_STATE_H
#define IMAGES_STATE_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "images.h"

// Ghosts are copies of positions plus a multiple of the cell's vectors: equal up to rounding, Å.
static const double tolerance = 1e-9;
// Atoms that differ by less from what a translation makes of others may be images of these by the simulator's lattice, Å.
static const double doubt = 1e-6;
// Positions of up to so much are known to the tolerance, Å. Shorter lattice vectors than the second belong to no cell of atoms.
static const double farthest = 1e6, shortest = 0.1;
// Images are looked for this much farther away, so that a set is known to be whole while atoms move by less, Å.
static const double margin = 0.3;
// Images are this near to where the lattice of the call before has them, Å, where the cell changes from step to step.
static const double step_of_cell = 0.1;
enum {
    FEW = 7,                // ghosts that confirm a translation where there are many atoms
    ALL_OF = 200000,        // products of owned atoms and ghosts up to which all ghosts do
    MAX_GHOSTS = 12,        // whose translations are compared where they explain no other ghost
    MAX_TRIALS = 24,        // translations that are tried for one lattice
    MAX_REFERENCES = 12,    // ghosts that are tried as references
    MAX_WITNESSES = 8,      // neighbors by which an atom is told from others before all are taken
    SLICES = 32,            // slices of the cell along its first axis for each owned atom
    AHEAD = 4,              // ghosts of the list before that one of the new list is compared with
    MAX_AHEAD = 60,         // how many more after ghosts that were not found
    MAX_FOLLOWED = 256,     // ghosts that are looked at to follow a cell that changes
    MAX_LOOKUPS = 20000000, // of one search for a lattice: a few seconds
    LONGEST_DELAY = 1024    // calls between two searches where all before failed
};

typedef struct placed {
    double f[3];
    int32_t atom, species;
} placed;

// Owned atoms by their place in the cell, f = r · inverse, in bins of a grid.
typedef struct fold {
    double basis[9], inverse[9]; // rows: vectors
    double width[3];             // of one Å in f
    int rank, bins[3];
    double low[3], high[3], scale[3]; // of f; bins in 1 of f
    int n_owned;
    const int *species; // of atoms, owned ones first
    const double *positions;
    const double *place;    // [n_owned][3] f
    const int32_t *first;   // [bins + 1] in `placed`
    const placed *placed;   // [n_owned]
    const uint64_t *slices; // bits: an atom is in this slice of the first axis
    int64_t n_slices;
    double slices_of_bin;
    int64_t lookups;
} fold;

typedef struct ranked {
    double key;
    int atom;
} ranked;

/* Atoms are numbered with the owned ones first, and ghosts by their number among ghosts. */
struct images {
    double reach;
    int64_t calls, next_search, delay;

    // Where the simulator has another order.
    bool in_order;
    int *order;                // [n_atoms] index in the caller's arrays
    int *ordered_species;      // [n_atoms]
    double *ordered_positions; // [n_atoms][3]

    // The map; rank 0: none; n_atoms −1: it does not hold.
    int n_atoms, n_owned, rank;
    double basis[9], inverse[9];
    int32_t *owner; // [ghosts] the atom that this one is an image of
    int32_t *code;  // [ghosts] number of the shift
    int32_t *shift; // [ghosts][3]
    int n_before;   // ghosts of the list before, in `code` and:
    int32_t *owner_before;
    int32_t first_shift[3], n_shifts[3];  // shifts have numbers row by row in this box
    int32_t *shift_of;                    // [shifts][3]
    double *translation;                  // [shifts][3] Å
    uint64_t *there;                      // [shifts × n_owned] bits: the image is a ghost
    int reference[3], reference_owner[3]; // atoms: ghosts whose shifts are independent, `rank` of them
    double from_shifts[9];                // inverse of their shifts' matrix, completed by unit vectors

    bool is_checked;                           // since the map was made
    double whole_within;                       // Å beyond the reach, when the set was last found whole; negative: it was not
    double *checked_positions;                 // [n_owned][3] and basis then
    double checked_basis[9], checked_cells[3]; // how many cells away images can be

    double *place; // of searches, and the arrays of their grid
    placed *placed;
    int32_t *bin, *first;
    uint64_t *slices;
    int *left;                   // [n_left] ghosts that no lattice explains; neighbors
    double *ways;                // [neighbors][3] places of neighbors less that of the atom
    ranked *by_way, *candidates; // [n_owned]
    size_t atom_capacity, bin_capacity, shift_capacity, bit_capacity;

    int32_t first_atom[2];
    double cell[9];
    unsigned char periodic[3];
    mlff_batch batch;
};

// array: the address of a pointer. Old content is kept. False without memory.
bool images_grow(void *array, size_t count, size_t size);
// The owned atom at place f up to a lattice vector, −1 where there is none within `within` Å; with the shift that leads from it to f, unless NULL.
int images_look_up(const fold *d, const double *f, int species, double within, int32_t *shift_out);
// Whether an owned atom can be within `within` Å of a place with this f along the first axis.
bool images_can_be_at(const fold *d, double f, double within);
// Bin of a place along an axis.
int images_bin_of(const fold *d, int axis, double f);
// Fills the grid of a lattice. False where two owned atoms are images of each other, or the lattice has no volume.
bool images_fold(images *im, fold *d);
// Vectors 0 … rank − 1 are completed by unit vectors that are normal to them. False where they have no volume.
bool images_complete_basis(double *basis, int rank);
// Finds rank and basis. False where no lattice was found.
bool images_search(images *im, fold *d, int n_atoms);
// Owners and shifts of all ghosts by the lattice of d, and references. False where it does not explain them, or is not the simulator's.
bool images_map(images *im, fold *d, int n_atoms);
// Translations of all shifts by the basis.
void images_translate(images *im);
// Whether a ghost is the image of an atom.
bool images_has(const images *im, int atom, const int32_t *shift);
// Whether no image that matters is missing, and owned atoms have positions that can be used.
bool images_are_whole(images *im, int n_atoms, const int *species, const double *positions);

// ---- vectors ---------------------------------------------------------------------------------------------------------------

static inline double dot(const double *a, const double *b)
{
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

static inline double length_of(const double *v)
{
    return sqrt(dot(v, v));
}

static inline void cross(const double *a, const double *b, double *c)
{
    c[0] = a[1] * b[2] - a[2] * b[1];
    c[1] = a[2] * b[0] - a[0] * b[2];
    c[2] = a[0] * b[1] - a[1] * b[0];
}

// row · m
static inline void times(const double *row, const double *m, double *out)
{
    double r[3];
    for (int c = 0; c < 3; c++) r[c] = row[0] * m[c] + row[1] * m[3 + c] + row[2] * m[6 + c];
    memcpy(out, r, sizeof r);
}

static inline bool invert(const double *m, double *inverse)
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

// libm's functions are calls where the processor is not known to round.
static inline double floor_of(double x)
{
    const double n = (double)(int64_t)x;
    return n > x ? n - 1 : n;
}

static inline double ceil_of(double x)
{
    return -floor_of(-x);
}

// Whether an integer row is independent of rows 0 … n − 1.
static inline bool is_independent(const double *rows, int n, const double *row)
{
    double normal[3] = {0};
    if (n == 1) cross(rows, row, normal);
    if (n == 2) cross(rows, rows + 3, normal);
    return n == 0 ? dot(row, row) > 0.5 : n == 1 ? dot(normal, normal) > 0.5 : fabs(dot(normal, row)) > 0.5;
}

// Rows n … 2: unit vectors of axes that do not repeat, which no shift has a part of.
static inline void complete_rows(double *rows, int n)
{
    for (int k = n; k < 3; k++)
        for (int c = 0; c < 3; c++) rows[3 * k + c] = c == k;
}

static inline void way_between(const fold *d, int from, int to, double *way)
{
    for (int c = 0; c < 3; c++) way[c] = d->positions[3 * (size_t)to + (size_t)c] - d->positions[3 * (size_t)from + (size_t)c];
}

#endif
