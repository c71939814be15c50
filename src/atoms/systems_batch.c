// SPDX-License-Identifier: MIT
// systems_batch.c: several systems, copied into one batch.
#include "atoms/systems_batch.h"

#include <string.h>

#include "base/base.h"

static mlff_status grow(systems_batch *b, size_t n_systems, size_t n_atoms)
{
    mlff_status status = MLFF_OK;
    MLFF_TRY(base_grow(&b->first_atom, &b->capacity[0], n_systems + 1, sizeof *b->first_atom, "a batch"));
    MLFF_TRY(base_grow(&b->species, &b->capacity[1], n_atoms, sizeof *b->species, "a batch"));
    MLFF_TRY(base_grow(&b->positions, &b->capacity[2], 3 * n_atoms, sizeof *b->positions, "a batch"));
    MLFF_TRY(base_grow(&b->cells, &b->capacity[3], 9 * n_systems, sizeof *b->cells, "a batch"));
    MLFF_TRY(base_grow(&b->charges, &b->capacity[4], n_systems, sizeof *b->charges, "a batch"));
    MLFF_TRY(base_grow(&b->spins, &b->capacity[5], n_systems, sizeof *b->spins, "a batch"));
    MLFF_TRY(base_grow(&b->periodic, &b->capacity[6], 3 * n_systems, 1, "a batch"));
done:
    return status;
}

mlff_status systems_batch_fill(systems_batch *b, mlff_system *const *systems, int n)
{
    size_t n_atoms = 0;
    for (int s = 0; s < n; s++) n_atoms += (size_t)systems[s]->n_atoms;
    if (n_atoms > INT32_MAX)
        return mlff_fail(MLFF_ERR_LIMIT, "%d structures of %zu atoms together are more than one call takes", n, n_atoms);
    const mlff_status status = grow(b, (size_t)n, n_atoms);
    if (status != MLFF_OK) return status;
    b->first_atom[0] = 0;
    for (int s = 0; s < n; s++) {
        const mlff_system *system = systems[s];
        const size_t first = (size_t)b->first_atom[s], count = (size_t)system->n_atoms;
        b->first_atom[s + 1] = (int32_t)(first + count);
        for (size_t i = 0; i < count; i++) b->species[first + i] = system->species[i];
        memcpy(b->positions + 3 * first, system->positions, 3 * count * sizeof *b->positions);
        memcpy(b->cells + 9 * (size_t)s, system->cell, sizeof system->cell);
        memcpy(b->periodic + 3 * (size_t)s, system->periodic, sizeof system->periodic);
        b->charges[s] = system->charge;
        b->spins[s] = system->spin;
    }
    b->batch = (mlff_batch){.n_systems = n,
                            .first_atom = b->first_atom,
                            .species = b->species,
                            .positions = b->positions,
                            .cells = b->cells,
                            .periodic = b->periodic,
                            .charges = b->charges,
                            .spins = b->spins};
    return MLFF_OK;
}

void systems_batch_free(systems_batch *b)
{
    base_free(b->first_atom);
    base_free(b->species);
    base_free(b->positions);
    base_free(b->cells);
    base_free(b->charges);
    base_free(b->spins);
    base_free(b->periodic);
    *b = (systems_batch){0};
}
