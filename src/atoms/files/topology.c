// SPDX-License-Identifier: MIT
// topology.c: elements, masses, fixed atoms, charge and periodic axes for frames of formats that do not hold them.
#include <math.h>
#include <string.h>

#include "formats.h"
#include "trajectories.h"

mlff_status mlff_reader_set_topology(mlff_reader *reader, const mlff_system *topology)
{
    mlff_system *copy = NULL;
    if (!reader || !topology)
        return mlff_fail(MLFF_ERR_USAGE, "mlff_reader_set_topology: a reader and a structure must be given");
    if (!reader->takes_topology)
        return mlff_fail(MLFF_ERR_USAGE, "%s: the format names its elements; a topology is for lammps-dump, dcd and netcdf",
                         reader->name);
    mlff_status status = mlff_system_check(topology, NULL);
    if (status == MLFF_OK) status = mlff_system_copy(topology, &copy);
    if (status != MLFF_OK) return status;
    atoms_drop_labels(copy);
    base_free(copy->velocities);
    copy->velocities = NULL;
    copy->time_fs = NAN;
    mlff_system_destroy(reader->topology);
    reader->topology = copy;
    return MLFF_OK;
}

mlff_status topology_check(const mlff_reader *reader, const char *kind, int64_t n_atoms)
{
    if (!reader->topology)
        return mlff_fail(MLFF_ERR_USAGE, "%s: %s names no elements; give a structure of its atoms as topology", reader->name,
                         kind);
    if (reader->topology->n_atoms != n_atoms)
        return mlff_fail(MLFF_ERR_USAGE, "%s: frames of %lld atom%s, but the topology has %d; give a structure of the same atoms",
                         reader->name, (long long)n_atoms, base_plural(n_atoms), reader->topology->n_atoms);
    return MLFF_OK;
}

mlff_status topology_make_system(const mlff_reader *reader, int n_atoms, const double cell[9], mlff_system **system_out)
{
    mlff_system *system = NULL;
    const mlff_system *topology = reader->topology;
    const mlff_status status = topology ? mlff_system_copy(topology, &system) : mlff_system_create(n_atoms, &system);
    if (status != MLFF_OK) return status;
    bool has_cell = false;
    for (int k = 0; topology && k < 9; k++) has_cell |= topology->cell[k] != 0;
    memset(system->cell, 0, sizeof system->cell);
    if (cell) memcpy(system->cell, cell, sizeof system->cell);
    if (!cell || !has_cell) memset(system->periodic, cell != NULL, sizeof system->periodic);
    *system_out = system;
    return MLFF_OK;
}
