/* SPDX-License-Identifier: MIT */
/* dataset_changes.h: how energies change between structures, beside what forces or stresses say of it. */
#ifndef DATASET_CHANGES_H
#define DATASET_CHANGES_H

#include "dataset.h"

enum {
    CHANGES_LOOK_BACK = 20,
    CHANGES_FEWEST = 12
};                         /* structures before one that it is compared with; pairs that allow a statement */
#define CHANGES_LEAST 0.02 /* eV; smaller ones may be the noise of a self-consistent field */

typedef struct dataset_change {
    size_t frame;             /* the later of the two */
    double energy, by_labels; /* eV: what it is, and what the labels say */
} dataset_change;

/* The change of a structure from one before it; false where there is none to compare with. Called by several threads. */
typedef bool (*dataset_change_function)(const mlff_dataset *dataset, size_t frame, dataset_change *change_out);

/* Changes of all structures that have one, in their order; the caller frees them with base_free. Fails with MLFF_ERR_MEMORY. */
mlff_status dataset_find_changes(const mlff_dataset *dataset, dataset_change_function find, dataset_change **changes_out,
                                 size_t *n_out);
/* Number of changes that are off by more than five times, and the first such structure (SIZE_MAX: none). Sorts by energy / by_labels. */
size_t dataset_wrong_changes(dataset_change *changes, size_t n, size_t *first_out);

#endif
