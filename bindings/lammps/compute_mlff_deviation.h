/* SPDX-License-Identifier: GPL-2.0-only
 * compute_mlff_deviation.h: how far the members of an ensemble differ, in a run of LAMMPS. */
#ifndef COMPUTE_MLFF_DEVIATION_H
#define COMPUTE_MLFF_DEVIATION_H

#include "compute.h"

#include <vector>

namespace LAMMPS_NS
{

class PairMlff;

/*   compute ID GROUP mlff/deviation
 * Of an atom: the length of the standard deviation of its force over the members, sqrt(sum_c s_c^2), n - 1 in the denominator.
 * Of the whole: [1] the standard deviation of the energy, [2] the largest deviation of an atom in GROUP. In the simulation's units.
 * Runs every member once more in the steps that ask for it. Refused for a model that is no ensemble. */
class ComputeMlffDeviation : public Compute
{
  public:
    ComputeMlffDeviation(LAMMPS *lammps, int n, char **words);
    ~ComputeMlffDeviation() override;

    void init() override;
    void compute_vector() override;
    void compute_peratom() override;
    int pack_reverse_comm(int n, int first, double *buffer) override;
    void unpack_reverse_comm(int n, int *atoms, double *buffer) override;
    double memory_usage() override;

  private:
    double *force(int member, int i); // of atom i; null: an atom without an element

    PairMlff *pair = nullptr;
    int n_members = 0, capacity = 0;
    double totals[2] = {0, 0};
    std::vector<double> energies, forces; // [n_members], [n_members][rows][3]
};

} // namespace LAMMPS_NS

#endif
