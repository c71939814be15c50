// SPDX-License-Identifier: GPL-2.0-only
// compute_mlff_deviation.cc: forces of each member, ghosts' parts sent to their owners, then the deviation over members.
#include "compute_mlff_deviation.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "atom.h"
#include "comm.h"
#include "error.h"
#include "force.h"
#include "memory.h"
#include "update.h"

#include "pair_mlff.h"

using namespace LAMMPS_NS;

ComputeMlffDeviation::ComputeMlffDeviation(LAMMPS *lammps, int n, char **words) : Compute(lammps, n, words)
{
    if (n != 3) error->all(FLERR, std::string("compute mlff/deviation: expected compute ID GROUP mlff/deviation"));
    peratom_flag = 1;
    size_peratom_cols = 0;
    vector_flag = 1;
    size_vector = 2;
    extvector = 0;
    vector = totals;
}

ComputeMlffDeviation::~ComputeMlffDeviation()
{
    memory->destroy(vector_atom);
}

void ComputeMlffDeviation::init()
{
    pair = dynamic_cast<PairMlff *>(Pointers::force->pair_match("mlff", 1));
    if (!pair) error->all(FLERR, std::string("compute mlff/deviation: the run has no pair_style mlff, or more than one; it needs exactly one"));
    n_members = pair->n_members();
    if (n_members < 2) error->all(FLERR, std::string("compute mlff/deviation: the model is not an ensemble"));
    comm_reverse = 3 * n_members;
}

double *ComputeMlffDeviation::force(int member, int i)
{
    const int row = pair->row(i);
    return row < 0 ? nullptr : &forces[3 * (static_cast<size_t>(member) * pair->n_rows() + row)];
}

void ComputeMlffDeviation::compute_peratom()
{
    if (invoked_peratom == update->ntimestep) return;
    invoked_peratom = update->ntimestep;
    if (atom->nmax > capacity) {
        capacity = atom->nmax;
        memory->destroy(vector_atom);
        memory->create(vector_atom, capacity, "mlff/deviation:vector_atom");
    }
    pair->compute_members(energies, forces);
    comm->reverse_comm_compute(this);
    for (int i = 0; i < atom->nlocal; i++) {
        double square = 0;
        for (int c = 0; c < 3 && pair->row(i) >= 0; c++) {
            double mean = 0;
            for (int m = 0; m < n_members; m++) mean += force(m, i)[c] / n_members;
            for (int m = 0; m < n_members; m++) square += (force(m, i)[c] - mean) * (force(m, i)[c] - mean);
        }
        vector_atom[i] = atom->mask[i] & groupbit ? std::sqrt(square / (n_members - 1)) : 0;
    }
}

void ComputeMlffDeviation::compute_vector()
{
    invoked_vector = update->ntimestep;
    compute_peratom();
    std::vector<double> sums(n_members);
    MPI_Allreduce(energies.data(), sums.data(), n_members, MPI_DOUBLE, MPI_SUM, world);
    double mean = 0, square = 0, largest = 0;
    for (double energy : sums) mean += energy / n_members;
    for (double energy : sums) square += (energy - mean) * (energy - mean);
    for (int i = 0; i < atom->nlocal; i++) largest = std::max(largest, vector_atom[i]);
    totals[0] = std::sqrt(square / (n_members - 1));
    MPI_Allreduce(&largest, &totals[1], 1, MPI_DOUBLE, MPI_MAX, world);
}

int ComputeMlffDeviation::pack_reverse_comm(int n, int first, double *buffer)
{
    for (int k = 0; k < n; k++)
        for (int m = 0; m < n_members; m++, buffer += 3) {
            const double *from = force(m, first + k);
            for (int c = 0; c < 3; c++) buffer[c] = from ? from[c] : 0;
        }
    return n * comm_reverse;
}

void ComputeMlffDeviation::unpack_reverse_comm(int n, int *atoms, double *buffer)
{
    for (int k = 0; k < n; k++)
        for (int m = 0; m < n_members; m++, buffer += 3) {
            double *to = force(m, atoms[k]);
            for (int c = 0; c < 3 && to; c++) to[c] += buffer[c];
        }
}

double ComputeMlffDeviation::memory_usage()
{
    return static_cast<double>((capacity + energies.capacity() + forces.capacity()) * sizeof(double));
}
