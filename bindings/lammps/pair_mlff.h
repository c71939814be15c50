/* SPDX-License-Identifier: GPL-2.0-only
 * pair_mlff.h: a model file as a pair style of LAMMPS. A program that is linked with LAMMPS falls under LAMMPS's license, the GPL;
 * this folder is a target apart, and nothing else of the project depends on it. */
#ifndef PAIR_MLFF_H
#define PAIR_MLFF_H

#include "pair.h"

#include <string>
#include <vector>

#include "mlff.h"

extern "C" {
#include "cli/support/extrapolation.h"
#include "rank_profile.h"
}

class RowExchange;

namespace LAMMPS_NS
{

/*   pair_style mlff [precision float32|float64|tf32|bf16] [device auto|cpu|cuda|cuda:N] [threads N]
 *   pair_coeff * * MODEL SPECIES…        one element or NULL for each atom type
 * Axes that are not divided among ranks are periodic in the batch. Ghost atoms of other ranks reach one cutoff; after each layer their
 * features come from the ranks that own them, and in the reverse pass their adjoints go back (row_exchange.h). Energy (also of atoms),
 * forces and virial; units metal and real. */
class PairMlff : public Pair
{
  public:
    explicit PairMlff(LAMMPS *lammps);
    ~PairMlff() override;
    PairMlff(const PairMlff &) = delete;
    PairMlff &operator=(const PairMlff &) = delete;

    void compute(int eflag, int vflag) override;
    void settings(int n, char **words) override;
    void coeff(int n, char **words) override;
    void init_style() override;
    double init_one(int i, int j) override;
    double memory_usage() override;
    int pack_forward_comm(int n, int *atoms, double *buffer, int pbc_flag, int *pbc) override;
    void unpack_forward_comm(int n, int first, double *buffer) override;

    /* Members of the ensemble; 1: none. Known after init_style. */
    int n_members() const;
    /* Of this rank's atoms, ghosts included, as they stand: energies[m] of owned atoms, and forces[m][row][3] with rows of
     * `row_of_atom`, in the simulation's units; what ghosts have belongs to their owners. */
    void compute_members(std::vector<double> &member_energies, std::vector<double> &member_forces);
    /* Row of an atom in `compute_members`; -1: an atom without an element. */
    int row(int i) const
    {
        return row_of_atom[i];
    }
    /* Rows of the last step. */
    int n_rows() const
    {
        return static_cast<int>(species.size());
    }

  private:
    void check(mlff_status status);
    void check_together(mlff_status status);
    [[noreturn]] void refuse(const std::string &text);
    void agree(mlff_status status);
    void release_evaluator();
    void create_evaluator();
    void measure_exchanges();
    void release_sort_bins();
    void find_hidden();
    bool seen(int atom) const;
    void find_ghosts();
    bool rows_changed() const;
    void check_ghost_group();
    void map_rows();
    void gather(bool new_ghosts);
    int n_plain() const;
    void plan_exchange();
    void make_batch(mlff_batch &batch, mlff_pairs &pairs);
    static mlff_status step_hook(void *pair);
    void compute_rows();
    void exchange_nothing();
    void scatter(double energy, const double total_virial[9]);
    void warn_if_extrapolating();
    mlff_status exchange(bool forward, const mlff_halo_array *arrays, int n_arrays, void *stream);
    static mlff_status forward_hook(void *pair, int layer, const mlff_halo_array *arrays, int n_arrays, mlff_location location,
                                    void *stream);
    static mlff_status reverse_hook(void *pair, int layer, const mlff_halo_array *arrays, int n_arrays, mlff_location location,
                                    void *stream);
    static mlff_status any_hook(void *pair, int *flag);

    mlff_evaluator_options options;
    std::string wanted_device; // empty: any
    mlff_model *model = nullptr;
    mlff_evaluator *evaluator = nullptr;
    mlff_neighbors *neighbors = nullptr; // of owned atoms, on several ranks' CPUs; else null: the evaluator makes its own list
    extrapolation told = {};
    rank_profile *profile = nullptr; // null: MLFF_PROFILE is not set
    double cutoff = 0;
    double own_sort_bins = 0; // Å, that were set in `atom`; 0: none
    double energy_unit = 1;   // eV in the simulation's unit
    std::vector<int> element_of_type;
    bool has_null_types = false; // some type is no element
    int hidden_groups = 0;       // bits of groups that LAMMPS excludes from all pairs

    // Atoms whose type has an element and that are not hidden, owned ones first.
    std::vector<int> atom_of_row, row_of_atom; // −1: no element
    std::vector<int32_t> species, first;       // first: of the rows of pairs
    int32_t first_atom[2] = {0, 0};            // of the batch
    const double *row_positions = nullptr;     // LAMMPS's, or `positions`
    std::vector<double> positions, forces, atom_energies, atom_virials;
    std::vector<unsigned char> owned;
    int n_owned = 0;
    double cell[9];                         // of the batch
    unsigned char periodic[3] = {0, 0, 0};  // axes along which the batch repeats: undivided and periodic
    bool ghosts_known = false;              // since init_style
    std::vector<int> owner_rank, owner_row; // of each atom, ghosts too
    std::vector<unsigned char> repeated;    // 1: a ghost that is an image along such an axis

    RowExchange *exchanger = nullptr; // null: the model exchanges no features
    bool measuring = false, exchanges = false;
    size_t row_bytes = 0; // the most that an exchange has of an atom
    int n_any = 0;        // calls of any_hook in a step, for a rank without atoms
};

} // namespace LAMMPS_NS

#endif
