/* SPDX-License-Identifier: MIT */
/* systems_batch.h: several systems, copied into one batch. */
#ifndef SYSTEMS_BATCH_H
#define SYSTEMS_BATCH_H

#include "mlff_atoms.h"

typedef struct systems_batch {
    mlff_batch batch; /* of the arrays below */
    int32_t *first_atom, *species;
    double *positions, *cells, *charges, *spins;
    unsigned char *periodic;
    size_t capacity[7]; /* of the seven arrays */
} systems_batch;

/* Copies the systems in; arrays grow, and are used again by the next call. Fails with MLFF_ERR_LIMIT, MLFF_ERR_MEMORY. */
mlff_status systems_batch_fill(systems_batch *b, mlff_system *const *systems, int n);
void systems_batch_free(systems_batch *b);

#endif
