/* SPDX-License-Identifier: MIT */
/* decompose.h: which atoms of a system each domain owns, which ghosts it needs, and where their features come from.
 *
 * Domains are boxes in fractions of the cell: a grid along its axes whose planes are placed so that domains own as many atoms each. Axes
 * with one domain only keep their period. A domain has a ghost for every atom, or image of one, within `reach` of its box. A
 * decomposition serves while no atom has moved by half the skin. */
#ifndef DECOMPOSE_H
#define DECOMPOSE_H

#include "atoms/neighbors.h"
#include "parallel/crew.h"

enum { MAX_DOMAINS = 64 };

/* Atoms of one domain: rows 0 … n_owned − 1 are its own, in the order of the system; then its ghosts. */
typedef struct domain_atoms {
    int n_owned, n_local;
    int32_t *atom;  /* [n_local] index in the system */
    int32_t *shift; /* [n_local][3] cells to be added to the system's positions */
    /* Ghost n_owned + g is a copy of row source_row[g] of domain source[g]. */
    int32_t *source, *source_row; /* [n_local − n_owned] */
    /* Own row shared[k] has copies at rows holder_row[j] of domains holder[j], j = holder_first[k] … holder_first[k + 1] − 1. */
    int n_shared;
    int32_t *shared, *holder_first; /* [n_shared], [n_shared + 1] */
    int32_t *holder, *holder_row;   /* [holder_first[n_shared]] */
    int32_t *count;                 /* [n_owned + 1] scratch */
    size_t atom_capacity, shift_capacity, source_capacity, source_row_capacity, shared_capacity, first_capacity, holder_capacity,
        holder_row_capacity, count_capacity;
} domain_atoms;

/* What one thread finds among its share of the system's atoms for one domain: atoms that it owns, and images that are its ghosts. */
typedef struct domain_share {
    int n_owned, n_ghosts;
    int32_t *owned;  /* [n_owned] index in the system */
    int32_t *ghosts; /* [n_ghosts][4] index, cells to be added */
    size_t owned_capacity, ghost_capacity;
} domain_share;

typedef struct decomposition {
    int n_domains, grid[3]; /* domains along each axis */
    double reach, skin;     /* Å */
    neighbors_grid axes;    /* cell, inverse, heights, periods */
    bool divided[3];
    /* Planes between domains, fractions: along x, then y in each layer of x, then z in each column. */
    double *planes[3]; /* [grid[0] + 1], [grid[0]][grid[1] + 1], [grid[0]][grid[1]][grid[2] + 1] */
    int n_atoms;
    int largest_balanced; /* atoms of the largest domain when planes were last placed; 0: never */
    int64_t n_made;       /* decompositions so far */
    double *fraction;     /* [n_atoms][3] within the cell along periodic axes that are divided */
    int32_t *wrap;        /* [n_atoms][3] cells taken off for that */
    int32_t *owner, *row; /* [n_atoms] */
    double *positions;    /* [n_atoms][3] Å, when it was made */
    double cell[9];       /* as given */
    unsigned char periodic[3];
    double *sample;
    domain_atoms *domains; /* [n_domains] */
    domain_share *shares;  /* [n_domains threads][n_domains] */
    size_t fraction_capacity, wrap_capacity, owner_capacity, row_capacity, positions_capacity, sample_capacity, plane_capacity[3];
} decomposition;

mlff_status decomposition_create(int n_domains, double cutoff, double skin, decomposition **decomposition_out);
void decomposition_destroy(decomposition *decomposition);
/* Whether the decomposition still serves the batch of one system. */
bool decomposition_serves(const decomposition *decomposition, const mlff_batch *batch);
/* Decomposes the batch of one system. On failure it serves none. Fails with MLFF_ERR_VALUE for a cell or positions without meaning,
 * MLFF_ERR_MEMORY. */
mlff_status decomposition_make(decomposition *decomposition, crew *threads, const mlff_batch *batch);

#endif
