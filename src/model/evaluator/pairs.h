/* SPDX-License-Identifier: MIT */
/* pairs.h: pairs given by a caller, cut to the model's cutoff and put in canonical order. */
#ifndef PAIRS_H
#define PAIRS_H

#include "base/base.h"
#include "mlff_atoms.h"

typedef struct pairs_entry {
    int32_t neighbor, shift[3];
    double vector[3];
} pairs_entry;

typedef struct pairs_filter {
    pairs_entry *entries; /* [n_pairs] */
    int32_t *first, *neighbor, *shift, *reverse;
    double *vectors; /* [n_pairs][3] */
    size_t entry_capacity, atom_capacity, pair_capacity;
    int n_atoms, n_pairs;
    bool symmetric;
    int64_t n_growths;
} pairs_filter;

/* Takes batch->pairs; fails for positions or cells that are not finite, a cell that repeats and has no volume, if a pair names an atom outside its system, if two atoms are at one position, or if a
 * pair of a list said to be symmetric has no reverse. */
mlff_status pairs_filter_update(pairs_filter *filter, const mlff_batch *batch, double cutoff);
/* As mlff_neighbors_get; reverse is NULL if the list is not symmetric. */
void pairs_filter_get(const pairs_filter *filter, mlff_pairs *pairs_out, const double **vectors_out, const int32_t **reverse_out);
int64_t pairs_filter_bytes(const pairs_filter *filter);
void pairs_filter_free(pairs_filter *filter);

#endif
