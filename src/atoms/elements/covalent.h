/* SPDX-License-Identifier: MIT */
/* covalent.h: sizes of atoms. */
#ifndef COVALENT_H
#define COVALENT_H

/* Covalent radius in Å (Cordero et al. 2008, doi:10.1039/b801115j; carbon sp³, metals low spin), 1.5 beyond curium. */
double covalent_radius(int atomic_number);

#endif
