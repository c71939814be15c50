/* SPDX-License-Identifier: MIT */
/* verdict_compositions.h: errors on held-out structures, by their composition. */
#ifndef VERDICT_COMPOSITIONS_H
#define VERDICT_COMPOSITIONS_H

#include "train/data/composition.h"

/* Errors on the structures of one composition. */
typedef struct verdict_composition {
    char name[COMPOSITION_NAME_BYTES]; /* as composition_name makes it */
    int64_t n_structures, n_components, n_energies;
    double force_absolute, energy_absolute; /* sums of |error|: of components, eV/Å, and of energies, eV/atom */
} verdict_composition;

/* Mean absolute error of a force's component, eV/Å, and of the energy, eV/atom; NaN without labels. */
double composition_force_error(const verdict_composition *composition);
double composition_energy_error(const verdict_composition *composition);
/* Adds up those of one name, of a list of n; how many names there are. They are in the order of their force errors, largest first. */
int compositions_merge(verdict_composition *list, size_t n);

#endif
