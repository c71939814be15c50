// SPDX-License-Identifier: MIT
// cli_batch.c: several structures as one batch.
#include <string.h>

#include "base/base.h"
#include "cli.h"

mlff_status cli_batch_fill(cli_batch *b, mlff_system *const *systems, int n)
{
    mlff_status status = MLFF_OK;
    size_t n_systems = (size_t)n, n_atoms = 0;
    for (int s = 0; s < n; s++) n_atoms += (size_t)systems[s]->n_atoms;
    if (n_atoms > INT32_MAX)
        return mlff_fail(MLFF_ERR_LIMIT, "%d structures of %zu atoms together are more than one call takes", n, n_atoms);
    MLFF_TRY(base_grow(&b->first_atom, &b->first_capacity, n_systems + 1, sizeof *b->first_atom, "a batch"));
    MLFF_TRY(base_grow(&b->species, &b->species_capacity, n_atoms, sizeof *b->species, "a batch"));
    MLFF_TRY(base_grow(&b->positions, &b->position_capacity, 3 * n_atoms, sizeof *b->positions, "a batch"));
    MLFF_TRY(base_grow(&b->cells, &b->cell_capacity, 9 * n_systems, sizeof *b->cells, "a batch"));
    MLFF_TRY(base_grow(&b->charges, &b->charge_capacity, 2 * n_systems, sizeof *b->charges, "a batch"));
    MLFF_TRY(base_grow(&b->periodic, &b->periodic_capacity, 3 * n_systems, 1, "a batch"));
    b->first_atom[0] = 0;
    for (int s = 0; s < n; s++) {
        const mlff_system *system = systems[s];
        size_t first = (size_t)b->first_atom[s], count = (size_t)system->n_atoms;
        b->first_atom[s + 1] = (int32_t)(first + count);
        for (size_t i = 0; i < count; i++) b->species[first + i] = system->species[i];
        memcpy(b->positions + 3 * first, system->positions, 3 * count * sizeof *b->positions);
        memcpy(b->cells + 9 * (size_t)s, system->cell, sizeof system->cell);
        memcpy(b->periodic + 3 * (size_t)s, system->periodic, 3);
        b->charges[s] = system->charge;
        b->charges[n + s] = system->spin;
    }
    b->batch = (mlff_batch){.n_systems = n,
                            .first_atom = b->first_atom,
                            .species = b->species,
                            .positions = b->positions,
                            .cells = b->cells,
                            .periodic = b->periodic,
                            .charges = b->charges,
                            .spins = b->charges + n};
done:
    return status;
}

mlff_batch cli_batch_one(const cli_batch *b, int s, int32_t first_atom[2])
{
    size_t first = (size_t)b->first_atom[s];
    first_atom[0] = 0;
    first_atom[1] = b->first_atom[s + 1] - b->first_atom[s];
    return (mlff_batch){.n_systems = 1,
                        .first_atom = first_atom,
                        .species = b->species + first,
                        .positions = b->positions + 3 * first,
                        .cells = b->cells + 9 * (size_t)s,
                        .periodic = b->periodic + 3 * (size_t)s,
                        .charges = b->batch.charges + s,
                        .spins = b->batch.spins + s};
}

void cli_batch_free(cli_batch *b)
{
    base_free(b->first_atom);
    base_free(b->species);
    base_free(b->positions);
    base_free(b->cells);
    base_free(b->charges);
    base_free(b->periodic);
    *b = (cli_batch){0};
}
