// SPDX-License-Identifier: GPL-2.0-only
// lmp_mlff.cc: LAMMPS with pair_style mlff. Debian's LAMMPS has no plugins, so the style is entered into its table before the input
// is read; everything else, options included, is LAMMPS's own.
#include <mpi.h>

#include "force.h"
#include "input.h"
#include "lammps.h"
#include "library.h"

#include "pair_mlff.h"

using namespace LAMMPS_NS;

static Pair *create_pair(LAMMPS *lammps)
{
    return new PairMlff(lammps);
}

int main(int n_arguments, char **arguments)
{
    MPI_Init(&n_arguments, &arguments);
    auto *lammps = new LAMMPS(n_arguments, arguments, MPI_COMM_WORLD);
    (*lammps->force->pair_map)["mlff"] = create_pair;
    lammps->input->file();
    delete lammps;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
