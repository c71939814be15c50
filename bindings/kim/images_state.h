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

// array: the address of a pointer. Old content is kept. False without memory.
bool images_grow(void *array, size_t count, size_t size);
// The owned atom at r up to a lattice vector, −1 where there is none; with the shift that leads from it to r, unless NULL.
int images_look_up(fold *d, const double *r, int species, int32_t *shift_out);
// Bin of a fractional coordinate along an axis.
int images_bin_of(const fold *d, int axis, double f);
// Fills the grid of a lattice. False where two owned atoms are images of each other, or the lattice has no volume.
bool images_fold(images *im, fold *d);
// Vectors 0 … rank − 1 are completed by unit vectors that are normal to them. False where they have no volume.
bool images_complete_basis(double *basis, int rank);
// Finds rank and basis. False where no lattice was found.
bool images_search(images *im, fold *d, int n_atoms, const int *contributing);
// Whether no image that matters is missing.
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

static inline void way_between(const fold *d, int from, int to, double *way)
{
    for (int c = 0; c < 3; c++) way[c] = d->positions[3 * (size_t)to + (size_t)c] - d->positions[3 * (size_t)from + (size_t)c];
}

#endif
