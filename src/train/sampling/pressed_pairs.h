/* SPDX-License-Identifier: MIT */
/* pressed_pairs.h: structures in which two near atoms are pushed together: the method "pairs" of mlff_sample. */
#ifndef PRESSED_PAIRS_H
#define PRESSED_PAIRS_H

#include "base/base.h"
#include "sample_geometry.h"

typedef struct pressed_pairs {
    double closest; /* distance to which pairs are pushed at most, as a part of the sum of covalent radii */
    double kelvin;  /* of the independent displacements of all atoms */
    uint64_t seed;
    mlff_neighbors *neighbors;
} pressed_pairs;

/* Sets `neighbors`: pairs within 3 Å, which are bonds and next neighbors, or where the structure has no atoms as near, within 4.5 or 6 Å.
 * Fails as mlff_neighbors_create and mlff_neighbors_update. */
mlff_status pressed_pairs_open(const mlff_system *system, pressed_pairs *pairs);
/* A copy of the structure, deterministic in `seed` and `number`. Other atoms may be closer than `closest`. Fixed atoms stay. `pressed_out`
 * (or NULL): the two atoms that were pushed together; none where the atom that was drawn has no neighbor but its own images, or all are
 * fixed. */
mlff_status pressed_pairs_make(const pressed_pairs *pairs, const mlff_system *system, int64_t number, mlff_system **copy_out,
                               sample_contact *pressed_out);
void pressed_pairs_close(pressed_pairs *pairs);

#endif
