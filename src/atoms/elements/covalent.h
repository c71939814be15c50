/* SPDX-License-Identifier: MIT */
/* covalent.h: sizes of atoms, and which elements are metals. */
#ifndef COVALENT_H
#define COVALENT_H

#include <stdbool.h>

/* Covalent radius in Å (Cordero et al. 2008, doi:10.1039/b801115j; carbon sp³, metals low spin), 1.5 beyond curium. */
double covalent_radius(int atomic_number);
/* All elements but noble gases, halogens, H, B, C, Si, Ge, N, P, As, O, S, Se and Te. */
bool element_is_metal(int atomic_number);

#endif
