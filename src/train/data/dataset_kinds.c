// SPDX-License-Identifier: MIT
// dataset_kinds.c: which energies the labels of a dataset are, and a warning where two kinds are mixed.
//
// With electrons at a temperature (VASP's ISMEAR) forces are the derivative of the free energy, and the energy beside it is extrapolated
// to 0 K. Labels from files with free energies and from files without them may differ by that.
#include "dataset.h"

void energy_kinds_free(energy_kinds *kinds)
{
    base_free(kinds->free);
    base_free(kinds->alone);
    *kinds = (energy_kinds){0};
}

void energy_kinds_compare(const energy_kinds *a, const energy_kinds *b)
{
    const bool is_told = (a->free && a->alone) || (b->free && b->alone);
    const char *const other = a->free ? a->free : b->free, *const alone = a->alone ? a->alone : b->alone;
    if (!is_told && other && alone)
        base_warn("%s: a structure without free_energy, which is the label of %s: energies of two kinds are mixed; give "
                  "free_energy with all structures or with none",
                  alone, other);
}

mlff_status energy_kinds_join(energy_kinds *all, const energy_kinds *later)
{
    energy_kinds_compare(all, later);
    if (!all->free && later->free && !(all->free = base_strdup(later->free))) return MLFF_ERR_MEMORY;
    if (!all->alone && later->alone && !(all->alone = base_strdup(later->alone))) return MLFF_ERR_MEMORY;
    return MLFF_OK;
}

mlff_status mlff_dataset_note_energy(mlff_dataset *dataset, const char *name, int is_free)
{
    char text[512];
    if (!dataset || !name) return mlff_fail(MLFF_ERR_USAGE, "mlff_dataset_note_energy: no dataset or no name");
    snprintf(text, sizeof text, "%s", name);
    return energy_kinds_join(&dataset->kinds, &(energy_kinds){.free = is_free ? text : NULL, .alone = is_free ? NULL : text});
}
