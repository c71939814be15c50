/* SPDX-License-Identifier: MIT */
/* images.h: the nearest periodic image of a vector, in any cell. */
#ifndef ATOMS_IMAGES_H
#define ATOMS_IMAGES_H

#include "mlff_atoms.h"

/* A lattice, that of a system's periodic axes, by the vectors that decide which image is the nearest: the origin is nearer to it than
 * any of these and their opposites. */
typedef struct atoms_images {
    int n;                 /* 0 without periodic axes */
    double vectors[13][3]; /* Å */
    double squares[13];    /* Å² */
} atoms_images;

/* Of a system that mlff_system_check accepts. */
void atoms_images_make(const mlff_system *system, atoms_images *images);
/* Replaces v, Å, by the shortest vector that differs from it by a vector of the lattice. Of images of one length, to rounding, any. */
void atoms_nearest_image(const atoms_images *images, double v[3]);

#endif
