/* SPDX-License-Identifier: MIT */
/* covalent.h: sizes of atoms, and which elements are metals. */
#ifndef COVALENT_H
#define COVALENT_H

#include <stdbool.h>

/* Covalent radius in Å (Cordero et al. 2008, doi:10.1039/b801115j; carbon sp³, metals low spin), 1.5 beyond curium. */
double covalent_radius(int atomic_number);
/* Atoms nearer than this times the sum of their radii are bonded: ethanol's bonds are 0.95 to 1.04 of the sum, its closest other pair is
 * 1.6. */
#define COVALENT_REACH 1.25
/* All elements but noble gases, halogens, H, B, C, Si, Ge, N, P, As, O, S, Se and Te. */
bool element_is_metal(int atomic_number);

#endif
