/* SPDX-License-Identifier: MIT */
/* decompose.h: which atoms of a system each domain owns, which ghosts it needs, and where their features come from.
 *
 * Domains are boxes in fractions of the cell: a grid along its axes whose planes are placed so that domains own as many atoms each. Axes
 * with one domain only keep their period. A domain has a ghost for every atom, or image of one, within `reach` of its box. A
 * decomposition serves while no atom has moved by half the skin and all are of the same elements. */
#ifndef DECOMPOSE_H
#define DECOMPOSE_H

#include "atoms/neighbors.h"

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
    size_t atom_capacity, shift_capacity, source_capacity, source_row_capacity, shared_capacity, first_capacity, holder_capacity,
        holder_row_capacity;
} domain_atoms;

/* What a share of the system's atoms is to one domain: atoms that it owns, images that are its ghosts, and copies elsewhere of the
 * atoms that it owns, in the order of the atoms, domains and images. */
typedef struct domain_share {
    int n_owned, n_ghosts, n_copies, n_shared; /* n_shared: owned atoms that have copies */
    struct owned_atom {
        int32_t atom, shift[3]; /* index in the system, cells to be added */
    } * owned;
    struct ghost_atom {
        int32_t atom, shift[3], source, place; /* source: the domain that owns the atom; place: among that domain's `owned` */
    } * ghosts;
    struct atom_copy {
        int32_t place, domain, ghost; /* of an owned atom; its ghost's domain, and the place among that domain's `ghosts` */
    } * copies;
    int first_owned, first_ghost, first_copy, first_shared; /* where those of this share begin among all of the domain */
    size_t owned_capacity, ghost_capacity, copy_capacity;
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
    double *positions;    /* [n_atoms][3] Å, when it was made */
    int32_t *species;     /* [n_atoms] likewise; domains have copies of them */
    double cell[9];       /* as given */
    unsigned char periodic[3];
    double *sampled, *sample;  /* fractions of some atoms, [][3]; those along one axis in a part of the cell */
    domain_atoms *domains;     /* [n_domains] */
    int n_shares, most_shares; /* runs of atoms that threads sort */
    domain_share *shares;      /* [n_shares][n_domains] */
    size_t positions_capacity, species_capacity, sampled_capacity, sample_capacity, plane_capacity[3];
} decomposition;

mlff_status decomposition_create(int n_domains, double cutoff, double skin, decomposition **decomposition_out);
void decomposition_destroy(decomposition *decomposition);
/* Whether the decomposition still serves the batch of one system. */
bool decomposition_serves(const decomposition *decomposition, const mlff_batch *batch);
/* Decomposes the batch of one system, by as many threads as n_threads (0: all cores) and its size allow; the result does not depend on
 * their number. On failure it serves none. Fails with MLFF_ERR_VALUE for a cell or positions without meaning, MLFF_ERR_MEMORY. */
mlff_status decomposition_make(decomposition *decomposition, int n_threads, const mlff_batch *batch);

#endif
