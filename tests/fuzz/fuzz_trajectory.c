// SPDX-License-Identifier: MIT
// fuzz_trajectory.c: libFuzzer on the readers of DCD, AMBER NetCDF and LAMMPS dumps, whose elements are those of water or, without a
// topology, the file's own. The first byte chooses.
#include "fuzz/fuzz_reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"a.dcd", "a.nc", "a.dump"};
    mlff_system *water = NULL;
    if (size < 1) return 0;
    if (!(data[0] & 4)) fuzz_demand(mlff_system_build("h2o", 0, 0, &water) == MLFF_OK, "water can be built");
    fuzz_read_atoms(names[(data[0] & 3) % 3], water, data + 1, size - 1);
    mlff_system_destroy(water);
    return 0;
}
