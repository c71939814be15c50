/* SPDX-License-Identifier: MIT */
/* sites.h: atoms of a file whose number is known only at its end; and cells given as lengths and angles. */
#ifndef SITES_H
#define SITES_H

#include "atoms/atoms.h"

typedef struct site {
    int64_t id; /* of the file, or its place in it */
    int species;
    double position[3]; /* Å */
    double mass;        /* amu; 0: the element's */
} site;

typedef struct site_list {
    site *sites; /* [n] */
    size_t n, capacity;
} site_list;

/* The element of a symbol, 0 for none. D is hydrogen of 2.014 amu; *mass_out is set for it alone. */
int sites_element(const char *symbol, double *mass_out);
/* Fails with MLFF_ERR_LIMIT beyond ATOMS_MAX_ATOMS, MLFF_ERR_MEMORY. */
mlff_status sites_add(mlff_reader *reader, site_list *list, const site *added);
/* A system of these atoms, periodic along three axes if `cell` is not NULL, with masses if one is not the element's. Fails as
 * mlff_system_create and mlff_system_check. */
mlff_status sites_make_system(const mlff_reader *reader, const site_list *list, const double cell[9], mlff_system **system_out);
void sites_free(site_list *list);

/* Rows of a cell with a along x and b in the xy plane from lengths (Å) and angles α, β, γ (degrees); false if there is no such cell. */
bool cell_from_lengths(const double lengths[3], const double angles[3], double cell[9]);

#endif
