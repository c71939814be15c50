/* SPDX-License-Identifier: MIT */
/* dataset_changes.h: how energies change between structures, beside what forces or stresses say of it. */
#ifndef DATASET_CHANGES_H
#define DATASET_CHANGES_H

#include "atoms/images.h"
#include "dataset.h"

enum { CHANGES_FEWEST = 12 };    /* pairs that allow a statement */
#define CHANGES_LARGEST_MOVE 0.5 /* Å, of an atom between the two */
#define CHANGES_LEAST 0.02       /* eV; smaller ones may be the noise of a self-consistent field */

typedef struct dataset_change {
    size_t frame;             /* the later of the two */
    double energy, by_labels; /* eV: what it is, and what the labels say */
    bool tells;               /* large enough to be compared */
} dataset_change;

/* Which labels are compared with energies. Called by several threads. */
typedef struct dataset_comparison {
    bool (*has_labels)(const mlff_system *system);
    /* The change from a to b, of the same elements in the same order, but for its frame; `images` are those of b. Returns the largest move
     * of an atom, Å, or infinity where the two cannot be compared. */
    double (*compare)(const mlff_system *a, const mlff_system *b, const atoms_images *images, dataset_change *change_out);
} dataset_comparison;

/* The change of each structure from the nearest of some before it, where it tells, in their order; the caller frees them with base_free.
 * Fails with MLFF_ERR_MEMORY. */
mlff_status dataset_find_changes(const mlff_dataset *dataset, const dataset_comparison *comparison, dataset_change **changes_out,
                                 size_t *n_out);
/* Number of changes that are off by more than five times, and the first such structure (SIZE_MAX: none). Sorts by energy / by_labels. */
size_t dataset_wrong_changes(dataset_change *changes, size_t n, size_t *first_out);

#endif
