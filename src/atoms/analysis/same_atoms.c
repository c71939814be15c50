// SPDX-License-Identifier: MIT
// same_atoms.c: whether each frame of a trajectory has the atoms of the first one, in the same order.
#include "atoms/analysis/same_atoms.h"

#include <string.h>

mlff_status same_atoms_keep(const mlff_system *first, int **species)
{
    base_free(*species);
    *species = base_alloc((size_t)first->n_atoms, sizeof **species, "the atoms of the first frame");
    if (!*species) return MLFF_ERR_MEMORY;
    memcpy(*species, first->species, (size_t)first->n_atoms * sizeof **species);
    return MLFF_OK;
}

mlff_status same_atoms_check_element(int element)
{
    if (element == 0 || mlff_element_symbol(element)) return MLFF_OK;
    return mlff_fail(MLFF_ERR_USAGE, "atomic number %d is of no element; give 1 to %d, or 0 for all atoms", element,
                     MLFF_MAX_ATOMIC_NUMBER);
}

mlff_status same_atoms_check(const mlff_system *system, const int *species, int n_atoms)
{
    if (system->n_atoms != n_atoms)
        return mlff_fail(MLFF_ERR_USAGE, "%d atom%s, where the first frame has %d; give frames of one system", system->n_atoms,
                         base_plural(system->n_atoms), n_atoms);
    for (int i = 0; i < n_atoms; i++)
        if (system->species[i] != species[i])
            return mlff_fail(MLFF_ERR_USAGE,
                             "atom %d is %s, and %s in the first frame; give frames of one system, with its atoms in one order",
                             i, mlff_element_symbol(system->species[i]), mlff_element_symbol(species[i]));
    return MLFF_OK;
}
