// SPDX-License-Identifier: GPL-2.0-only
// lmp_mlff.cc: LAMMPS with pair_style mlff and compute mlff/deviation. Debian's LAMMPS has no plugins, so the styles are entered into its
// tables of styles, whenever LAMMPS has made them; everything else, options included, is LAMMPS's own.
#include <dlfcn.h>
#include <mpi.h>

#include "error.h"
#include "force.h"
#include "input.h"
#include "lammps.h"
#include "library.h"
#include "modify.h"

#include "compute_mlff_deviation.h"
#include "pair_mlff.h"

using namespace LAMMPS_NS;

static Pair *create_pair(LAMMPS *lammps)
{
    return new PairMlff(lammps);
}

static Compute *create_deviation(LAMMPS *lammps, int n, char **words)
{
    return new ComputeMlffDeviation(lammps, n, words);
}

// LAMMPS calls this after it has made its tables: at the start and at each command `clear`. The library's calls reach this definition,
// since the dynamic linker searches the program first.
void LAMMPS::post_create()
{
    using member = void (*)(LAMMPS *);
    const auto original = reinterpret_cast<member>(dlsym(RTLD_NEXT, "_ZN9LAMMPS_NS6LAMMPS11post_createEv"));
    if (!original) {
        const std::string text = "lmp_mlff: liblammps has no LAMMPS::post_create(); build lmp_mlff with the headers of this liblammps";
        error->all(FLERR, text);
    }
    (*force->pair_map)["mlff"] = create_pair;
    (*modify->compute_map)["mlff/deviation"] = create_deviation;
    original(this);
}

int main(int n_arguments, char **arguments)
{
    MPI_Init(&n_arguments, &arguments);
    auto *lammps = new LAMMPS(n_arguments, arguments, MPI_COMM_WORLD);
    lammps->input->file();
    delete lammps;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
