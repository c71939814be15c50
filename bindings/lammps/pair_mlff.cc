// SPDX-License-Identifier: GPL-2.0-only
// pair_mlff.cc: the pair style. Rows of the batch are the atoms that have an element, in LAMMPS's order: owned atoms, then ghosts.
// Along axes that are not divided among ranks the batch is periodic, and ghosts that are images along them are left out: on one rank
// there are no others. Along divided axes periodic images are ghosts. Forces on ghosts go to their owners by LAMMPS (newton on). The virial
// is the evaluator's: it is no sum of f r over the atoms of a periodic batch.
#include "pair_mlff.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "atom.h"
#include "comm.h"
#include "domain.h"
#include "error.h"
#include "force.h"
#include "group.h"
#include "memory.h"
#include "neighbor.h"
#include "row_exchange.h"
#include "universe.h"
#include "update.h"

extern "C" {
#include "ranks.h"
#include "words.h"
}

using namespace LAMMPS_NS;

static const double list_skin = 0.5;                // of the engine's own list, Å
static const double sort_bin = 1.5;                 // in cutoffs, of LAMMPS's sorting of atoms
static const double kcal_mol = 0.04336410390059322; // eV, CODATA 2014 as all of mlff

PairMlff::PairMlff(LAMMPS *lammps) : Pair(lammps), options(mlff_evaluator_options_default())
{
    single_enable = 0;
    restartinfo = 0; // the input names the model again
    one_coeff = 1;
    manybody_flag = 1;
    no_virial_fdotr_compute = 1;
    centroidstressflag = CENTROID_NOTAVAIL;
    unit_convert_flag = 0;
}

PairMlff::~PairMlff()
{
    release_sort_bins();
    release_evaluator();
    delete exchanger;
    mlff_neighbors_destroy(neighbors);
    mlff_model_destroy(model);
    if (allocated) {
        memory->destroy(setflag);
        memory->destroy(cutsq);
    }
}

// In a step a rank may fail while others wait for its rows; error->one ends them too.
void PairMlff::check(mlff_status status)
{
    if (status != MLFF_OK) error->one(FLERR, std::string("mlff: ") + mlff_last_error());
}

// Called by all ranks: the message of the first that failed, once.
void PairMlff::check_together(mlff_status status)
{
    char text[1000] = "";
    int failed = status != MLFF_OK ? comm->me : comm->nprocs, first_failed;
    MPI_Allreduce(&failed, &first_failed, 1, MPI_INT, MPI_MIN, world);
    if (first_failed == comm->nprocs) return;
    if (comm->me == first_failed) strncpy(text, mlff_last_error(), sizeof text - 1);
    MPI_Bcast(text, sizeof text, MPI_CHAR, first_failed, world);
    refuse((first_failed == 0 ? "mlff: " : "mlff, rank " + std::to_string(first_failed) + ": ") + text);
}

// The same on all ranks. Words of an input file may hold terminal escapes, which the library's errors do not have.
void PairMlff::refuse(const std::string &text)
{
    mlff_fail(MLFF_ERR_USAGE, "%s", text.c_str());
    error->all(FLERR, std::string(mlff_last_error()));
}

void PairMlff::agree(mlff_status status)
{
    if (status != MLFF_OK) error->all(FLERR, std::string(mlff_last_error()));
}

// ---- input -----------------------------------------------------------------------------------------------------------------

void PairMlff::settings(int n, char **words)
{
    const char *device = getenv("MLFF_DEVICE");

    release_evaluator(); // LAMMPS gives a style of the same name new settings, and pair_coeff may not come again
    options = mlff_evaluator_options_default();
    options.n_threads = comm->nprocs > 1 && !getenv("OMP_NUM_THREADS") ? 1 : 0;
    agree(words_style(n, words, &options, &device));
    wanted_device = device ? device : "";
    check_together(ranks_device(device, &options.device));
}

void PairMlff::coeff(int n, char **words)
{
    const int n_types = atom->ntypes;
    if (n != 3 + n_types)
        refuse("pair_coeff of mlff: expected * * MODEL and an element or NULL for each of the " + std::to_string(n_types) +
               " atom types, found " + std::to_string(n) + " words");
    if (strcmp(words[0], "*") != 0 || strcmp(words[1], "*") != 0)
        refuse("pair_coeff of mlff: begins with * *, all types are given in one line");
    release_evaluator();
    mlff_model_destroy(model);
    model = nullptr;
    told = {};
    check_together(mlff_model_load(words[2], &model));

    mlff_model_info info;
    mlff_model_info_get(model, &info);
    cutoff = info.cutoff_angstrom;
    element_of_type.assign(static_cast<size_t>(n_types) + 1, 0);
    agree(words_elements(n_types, words + 3, &info, words[2], element_of_type.data() + 1));
    has_null_types = std::count(element_of_type.begin() + 1, element_of_type.end(), 0) > 0;
    const unsigned outputs = mlff_model_outputs(model);
    if (!info.conservative || !info.has_atom_energies || !(outputs & MLFF_OUTPUT_FORCES))
        refuse(std::string("pair_coeff of mlff: the energy of ") + words[2] +
               " is not a sum over atoms with its derivative as forces; LAMMPS needs that");

    if (!allocated) {
        memory->create(setflag, n_types + 1, n_types + 1, "pair:setflag");
        memory->create(cutsq, n_types + 1, n_types + 1, "pair:cutsq");
        allocated = 1;
    }
    for (int i = 1; i <= n_types; i++)
        for (int j = 1; j <= n_types; j++) {
            setflag[i][j] = i <= j && element_of_type[i] && element_of_type[j];
            cutsq[i][j] = 0;
        }
}

void PairMlff::release_evaluator()
{
    rank_profile_destroy(profile);
    profile = nullptr;
    mlff_evaluator_destroy(evaluator);
    evaluator = nullptr;
}

void PairMlff::create_evaluator()
{
    mlff_model_info info;
    mlff_model_info_get(model, &info);
    mlff_halo halo = {forward_hook, reverse_hook, this, any_hook};
    options.halo = info.n_layers > 1 && comm->nprocs > 1 ? &halo : nullptr;
    mlff_neighbors_destroy(neighbors);
    neighbors = nullptr;
    char where[RANKS_TEXT];
    check_together(ranks_evaluator(wanted_device.c_str(), model, &options, where, &evaluator));
    options.halo = nullptr;
    if (comm->me == 0) utils::logmesg(lmp, std::string("mlff: ") + info.name + " on " + where + "\n");
    const bool list_without_ghosts = options.device.kind == MLFF_CPU && comm->nprocs > 1;
    check_together(list_without_ghosts ? mlff_neighbors_create(cutoff, list_skin, &neighbors) : MLFF_OK);
    measure_exchanges();
    delete exchanger;
    exchanger = exchanges ? new RowExchange(options.device, world, row_bytes) : nullptr;
    check_together(exchanger ? exchanger->choose_route() : MLFF_OK);
    check_together(rank_profile_create(evaluator, model, universe->me, universe->nprocs, exchanges, &profile));
}

// The evaluator says what it exchanges by doing so: a step of one atom, with hooks that only count.
void PairMlff::measure_exchanges()
{
    int element = 0;
    for (size_t t = 1; t < element_of_type.size() && !element; t++) element = element_of_type[t];
    if (!element) refuse("pair_coeff of mlff: every atom type is NULL; name the element of one at least");
    const int32_t one_atom[2] = {0, 1}, one_species[1] = {element};
    const double position[3] = {0, 0, 0};
    double energy, force[3];
    mlff_batch batch = {};
    batch.n_systems = 1;
    batch.first_atom = one_atom;
    batch.species = one_species;
    batch.positions = position;
    mlff_results results = {};
    results.energies = &energy;
    results.forces = force;
    exchanges = false;
    row_bytes = 0;
    n_any = 0;
    measuring = true;
    const mlff_status status = mlff_evaluator_compute(evaluator, &batch, &results);
    measuring = false;
    comm_forward = comm->nprocs > 1 ? 3 : 0; // rank and row of an atom's owner, whether it is an image that the batch repeats
    check_together(status);
}

void PairMlff::init_style()
{
    if (!model) refuse("pair_style mlff: pair_coeff * * MODEL SPECIES is missing");
    if (!force->newton_pair) refuse("pair_style mlff needs newton on: forces on ghost atoms go to their owners");
    if (atom->tag_enable == 0) refuse("pair_style mlff needs atom IDs");
    const std::string units = update->unit_style;
    if (units == "metal")
        energy_unit = 1;
    else if (units == "real")
        energy_unit = 1 / kcal_mol;
    else
        refuse("pair_style mlff: units " + units + " are not metal or real");
    find_hidden();
    if (!evaluator) create_evaluator();
    ghosts_known = false;
    // A GPU's blocks take atoms in order, and share more neighbors in such bins than in LAMMPS's of half a cutoff.
    release_sort_bins();
    if (options.device.kind != MLFF_CPU && atom->userbinsize == 0) atom->userbinsize = own_sort_bins = sort_bin * cutoff;
    // A hybrid style asked for these before the model was known; LAMMPS sizes its buffers by them after this call.
    force->pair->comm_forward = std::max(force->pair->comm_forward, comm_forward);
}

// LAMMPS's sorting is the simulation's: what was chosen here ends with this pair style, and a size from the input stays.
void PairMlff::release_sort_bins()
{
    if (own_sort_bins > 0 && atom->userbinsize == own_sort_bins) atom->userbinsize = 0;
    own_sort_bins = 0;
}

double PairMlff::init_one(int, int)
{
    return cutoff;
}

// ---- a step ----------------------------------------------------------------------------------------------------------------

// Atoms of groups that are excluded from pairs with all atoms: of `neigh_modify exclude group ID all`, and those that fix gcmc tries to
// delete. Other exclusions are of pairs, of which the model's energy is no sum. Beside other styles they are meant for them.
void PairMlff::find_hidden()
{
    int n_others = neighbor->nex_type + neighbor->nex_mol;
    hidden_groups = 0;
    for (int k = 0; k < neighbor->nex_group; k++) {
        const int a = neighbor->ex1_group[k], b = neighbor->ex2_group[k];
        if (a != 0 && b != 0) // group 0 is all
            n_others++;
        else
            hidden_groups |= group->bitmask[a != 0 ? a : b];
    }
    if (force->pair == this && n_others > 0)
        refuse("pair_style mlff: neigh_modify exclude has no effect on a model but for group ID all; remove it (neigh_modify exclude none)");
}

bool PairMlff::seen(int i) const
{
    return element_of_type[atom->type[i]] != 0 && !(atom->mask[i] & hidden_groups);
}

// When LAMMPS's list is new. The owner of each ghost comes by LAMMPS's own communication, in which images of images learn it too.
void PairMlff::find_ghosts()
{
    const int n_all = atom->nlocal + atom->nghost;
    find_hidden(); // a fix may have excluded a group since init_style
    for (int c = 0; c < 3; c++) { // in two dimensions LAMMPS calls z periodic, and has no images along it
        const bool undivided = comm->nprocs == 1 || (comm->layout != Comm::LAYOUT_TILED && comm->procgrid[c] == 1);
        periodic[c] = domain->periodicity[c] && c < domain->dimension && undivided;
    }
    owner_rank.assign(n_all, comm->me);
    owner_row.assign(n_all, -1);
    repeated.assign(n_all, 0);
    for (int i = 0, n = 0; i < atom->nlocal; i++)
        if (seen(i)) owner_row[i] = n++;
    if (comm->nprocs == 1)
        std::fill(repeated.begin() + atom->nlocal, repeated.end(), 1);
    else
        comm->forward_comm_pair(this);
    ghosts_known = true;
}

// The group of comm_modify group, 0 for all: LAMMPS tells it to classes derived from its own alone.
class BorderGroup : public Comm {
public:
    static int of(const Comm *comm) { return comm->*(&BorderGroup::bordergroup); }
};

// With comm_modify group only the first `nfirst` atoms of a rank, which are the group's, become ghosts of others: an atom of the model behind
// them would be missing there. Called by all ranks.
void PairMlff::check_ghost_group()
{
    int missing = 0;
    for (int i = atom->nfirst; i < atom->nlocal && !missing; i++) missing = seen(i);
    MPI_Allreduce(MPI_IN_PLACE, &missing, 1, MPI_INT, MPI_MAX, world);
    if (missing)
        refuse("pair_style mlff: comm_modify group leaves ghost atoms of the model out; its group must have every atom whose type has an "
               "element, or remove it (comm_modify group all)");
}

// Whether an atom of any rank has got or lost its element since `find_ghosts`: types may change while LAMMPS's list holds (fix
// python/invoke). Called by all ranks.
bool PairMlff::rows_changed() const
{
    if (!exchanger || !(has_null_types || hidden_groups)) return false;
    int changed = 0;
    for (int i = 0; i < atom->nlocal && !changed; i++) changed = (owner_row[i] >= 0) != seen(i);
    MPI_Allreduce(MPI_IN_PLACE, &changed, 1, MPI_INT, MPI_MAX, world);
    return changed != 0;
}

void PairMlff::map_rows()
{
    const int n_all = atom->nlocal + atom->nghost;
    int n = 0;
    row_of_atom.resize(n_all);
    atom_of_row.resize(n_all);
    n_owned = 0;
    for (int i = 0; i < n_all; i++) {
        const bool has_row = seen(i) && !repeated[i];
        row_of_atom[i] = has_row ? n : -1;
        if (has_row) atom_of_row[n++] = i;
        if (i < atom->nlocal) n_owned = n;
    }
    atom_of_row.resize(n);
    species.resize(n);
    owned.assign(n, 0);
    std::fill(owned.begin(), owned.begin() + n_owned, 1);
}

// Positions are read where LAMMPS has them, if all rows are there in order.
void PairMlff::gather(bool new_ghosts)
{
    if (new_ghosts || has_null_types || hidden_groups) map_rows();
    const int n = n_rows(), plain = n_plain();
    const size_t coordinates = 3 * static_cast<size_t>(n);
    for (int r = 0; r < n; r++) species[r] = element_of_type[atom->type[r < plain ? r : atom_of_row[r]]];
    row_positions = n > 0 && plain == n ? atom->x[0] : nullptr;
    if (!row_positions) {
        positions.resize(coordinates);
        if (plain > 0) memcpy(positions.data(), atom->x[0], 3 * sizeof(double) * plain);
        for (int r = plain; r < n; r++)
            memcpy(&positions[3 * static_cast<size_t>(r)], atom->x[atom_of_row[r]], 3 * sizeof(double));
        row_positions = positions.data();
    }
    forces.resize(coordinates);
    atom_energies.resize(eflag_atom ? n : 0);
    atom_virials.resize(vflag_atom ? 9 * static_cast<size_t>(n) : 0);
}

// Rows that are the atoms of the same index: where every owned atom has an element, and with its ghosts where those that are no images of
// the batch come first. So it is if the x axis alone is divided: LAMMPS exchanges ghosts along x, y and z, one after the other.
int PairMlff::n_plain() const
{
    const int n = n_rows();
    if (n > 0 && atom_of_row[n - 1] == n - 1) return n;
    return n_owned == atom->nlocal ? n_owned : 0;
}

void PairMlff::plan_exchange()
{
    std::vector<RowExchange::Owner> owners;
    for (int r = n_owned; r < n_rows(); r++) owners.push_back({owner_rank[atom_of_row[r]], owner_row[atom_of_row[r]]});
    const bool first_plan = !exchanger->planned();
    check(exchanger->plan(n_owned, owners));
    if (first_plan && options.device.kind != MLFF_CPU && comm->me == 0)
        utils::logmesg(lmp, std::string("mlff: rows of other ranks by route ") + exchanger->route_name() + " (MLFF_EXCHANGE)\n");
}

// What ghosts have of virials goes to their owners by the computes that ask for it.
void PairMlff::scatter(double energy, const double total_virial[9])
{
    static const int voigt[6] = {0, 4, 8, 1, 2, 5}; // xx yy zz xy xz yz
    if (eflag_global) eng_vdwl += energy * energy_unit;
    for (int k = 0; vflag_global && k < 6; k++) virial[k] += total_virial[voigt[k]] * energy_unit;
    const int plain = n_plain();
    double *f = plain > 0 ? atom->f[0] : nullptr;
    for (size_t k = 0; k < 3 * static_cast<size_t>(plain); k++) f[k] += forces[k] * energy_unit;
    for (int r = plain; r < n_rows(); r++)
        for (int c = 0; c < 3; c++) atom->f[atom_of_row[r]][c] += forces[3 * static_cast<size_t>(r) + c] * energy_unit;
    for (int r = 0; eflag_atom && r < n_owned; r++) eatom[atom_of_row[r]] += atom_energies[r] * energy_unit;
    for (int r = 0; vflag_atom && r < n_rows(); r++)
        for (int k = 0; k < 6; k++) vatom[atom_of_row[r]][k] += atom_virials[9 * static_cast<size_t>(r) + voigt[k]] * energy_unit;
}

// The atoms of `gather`. On the CPU with pairs: rows of owned atoms come first; ghosts have none, as their owners compute them.
void PairMlff::make_batch(mlff_batch &batch, mlff_pairs &pairs)
{
    const double *h = domain->h; // xx yy zz yz xz xy
    const double vectors[9] = {h[0], 0, 0, h[5], h[1], 0, h[4], h[3], h[2]};
    memcpy(cell, vectors, sizeof cell);
    first_atom[1] = n_rows();
    batch = {};
    batch.n_systems = 1;
    batch.first_atom = first_atom;
    batch.species = species.data();
    batch.positions = row_positions;
    batch.cells = cell;
    batch.periodic = periodic;
    batch.owned = comm->nprocs > 1 ? owned.data() : nullptr;
    if (!neighbors) return;
    const int64_t begin = rank_profile_begin(profile);
    check(mlff_neighbors_update(neighbors, &batch));
    mlff_neighbors_get(neighbors, &pairs, nullptr, nullptr);
    first.assign(pairs.first, pairs.first + species.size() + 1);
    for (size_t r = n_owned; r < first.size(); r++) first[r] = first[n_owned];
    pairs.first = first.data();
    pairs.symmetric = n_owned == n_rows();
    batch.pairs = &pairs;
    rank_profile_list(profile, begin, neighbors);
}

void PairMlff::compute(int eflag, int vflag)
{
    ev_init(eflag, vflag);
    if (vflag_atom && options.device.kind != MLFF_CPU)
        refuse("pair_style mlff computes virials of atoms on the CPU only: pair_style mlff device cpu");
    check(rank_profile_step(profile, step_hook, this));
    rank_profile_atoms(profile, species.data(), owned.data(), n_rows());
    if (eflag_global) warn_if_extrapolating(); // a flag that all ranks share
}

mlff_status PairMlff::step_hook(void *pair)
{
    auto *self = static_cast<PairMlff *>(pair);
    const int64_t begin = rank_profile_begin(self->profile);
    const bool new_ghosts = self->neighbor->ago == 0 || !self->ghosts_known || self->rows_changed(); // the same on all ranks
    if (new_ghosts) self->find_ghosts();
    const bool may_change = self->has_null_types || self->hidden_groups; // types and groups, while LAMMPS's list holds
    if ((new_ghosts || may_change) && self->comm->nprocs > 1 && BorderGroup::of(self->comm) != 0) self->check_ghost_group();
    self->gather(new_ghosts);
    if (new_ghosts && self->exchanger) self->plan_exchange();
    rank_profile_add(self->profile, RANK_GATHER, begin);
    if (self->n_rows() > 0)
        self->compute_rows();
    else
        self->exchange_nothing();
    return MLFF_OK; // what fails has ended the run
}

// A rank without atoms takes no part in the exchange of rows, but in the question whether a step is repeated (mlff_halo.any).
void PairMlff::exchange_nothing()
{
    const int64_t begin = rank_profile_begin(profile);
    int flag = 0;
    for (int k = 0; k < n_any; k++) any_hook(this, &flag);
    rank_profile_add(profile, RANK_EXCHANGE, begin);
}

void PairMlff::compute_rows()
{
    double energy = 0, total_virial[9] = {0};
    mlff_batch batch;
    mlff_pairs pairs;
    make_batch(batch, pairs);
    mlff_results results = {};
    results.energies = &energy;
    results.virials = vflag_global ? total_virial : nullptr;
    results.forces = forces.data();
    results.atom_energies = eflag_atom ? atom_energies.data() : nullptr;
    results.atom_virials = vflag_atom ? atom_virials.data() : nullptr;
    check(mlff_evaluator_compute(evaluator, &batch, &results));
    const int64_t begin = rank_profile_begin(profile);
    scatter(energy, total_virial);
    rank_profile_add(profile, RANK_GATHER, begin);
}

// In steps whose energy LAMMPS wants. The sums are those of all ranks, and the first one says it.
void PairMlff::warn_if_extrapolating()
{
    if (told.told_distance && told.told_temperature) return;
    mlff_evaluator_info info;
    mlff_evaluator_info_get(evaluator, &info);
    double own[3] = {n_rows() > 0 ? static_cast<double>(info.n_near_pairs) : 0, 0, 0}, sums[3]; // pairs, m v², atoms
    for (int r = 0; r < n_owned; r++) {
        const int i = atom_of_row[r];
        const double *v = atom->v[i], mass = atom->rmass ? atom->rmass[i] : atom->mass[atom->type[i]];
        own[1] += mass * (v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
        own[2]++;
    }
    MPI_Allreduce(own, sums, 3, MPI_DOUBLE, MPI_SUM, world);
    const double temperature = sums[2] > 0 ? force->mvv2e * sums[1] / (3 * sums[2] * force->boltz) : 0;
    const std::string at = " [mlff, step " + std::to_string(update->ntimestep) + "]";
    char text[EXTRAPOLATION_TEXT];
    if (extrapolation_by_distance(&told, model, static_cast<int64_t>(sums[0]), text) && comm->me == 0) error->warning(FLERR, text + at);
    const bool moves = update->whichflag == 1; // not a minimization
    if (moves && extrapolation_by_temperature(&told, model, temperature, sums[2], text) && comm->me == 0)
        error->warning(FLERR, text + at);
}

int PairMlff::n_members() const
{
    mlff_evaluator_info info;
    mlff_evaluator_info_get(evaluator, &info);
    return info.n_members;
}

void PairMlff::compute_members(std::vector<double> &member_energies, std::vector<double> &member_forces)
{
    gather(false);
    member_energies.assign(n_members(), 0.0);
    member_forces.assign(3 * member_energies.size() * n_rows(), 0.0);
    if (exchanger) refuse("compute mlff/deviation: not for ensembles of models that exchange features");
    if (n_rows() == 0) return;
    double energy;
    mlff_batch batch;
    mlff_pairs pairs;
    make_batch(batch, pairs);
    mlff_results results = {};
    results.energies = &energy;
    results.member_energies = member_energies.data();
    results.member_forces = member_forces.data();
    check(mlff_evaluator_compute(evaluator, &batch, &results));
    for (double &x : member_energies) x *= energy_unit;
    for (double &x : member_forces) x *= energy_unit;
}

// ---- exchange of features and adjoints -------------------------------------------------------------------------------------

mlff_status PairMlff::forward_hook(void *pair, int, const mlff_halo_array *arrays, int n_arrays, mlff_location, void *stream)
{
    return static_cast<PairMlff *>(pair)->exchange(true, arrays, n_arrays, stream);
}

mlff_status PairMlff::reverse_hook(void *pair, int, const mlff_halo_array *arrays, int n_arrays, mlff_location, void *stream)
{
    return static_cast<PairMlff *>(pair)->exchange(false, arrays, n_arrays, stream);
}

mlff_status PairMlff::any_hook(void *pair, int *flag)
{
    PairMlff *self = static_cast<PairMlff *>(pair);
    if (self->measuring)
        self->n_any++;
    else
        MPI_Allreduce(MPI_IN_PLACE, flag, 1, MPI_INT, MPI_MAX, self->world);
    return MLFF_OK;
}

mlff_status PairMlff::exchange(bool forward, const mlff_halo_array *arrays, int n_arrays, void *stream)
{
    if (measuring) {
        size_t bytes = 0;
        for (int k = 0; k < n_arrays; k++) bytes += static_cast<size_t>(arrays[k].width) * arrays[k].element_bytes;
        row_bytes = std::max(row_bytes, bytes);
        exchanges = true;
        return MLFF_OK;
    }
    const int64_t begin = rank_profile_begin(profile);
    const mlff_status status =
        forward ? exchanger->forward(arrays, n_arrays, stream) : exchanger->reverse(arrays, n_arrays, stream);
    rank_profile_add(profile, RANK_EXCHANGE, begin);
    return status;
}

int PairMlff::pack_forward_comm(int n, int *atoms, double *buffer, int pbc_flag, int *pbc)
{
    bool moves = false; // along an axis that the batch repeats
    for (int c = 0; pbc_flag && c < 3; c++) moves = moves || (periodic[c] && pbc[c] != 0);
    for (int k = 0; k < n; k++) {
        buffer[3 * k] = owner_rank[atoms[k]];
        buffer[3 * k + 1] = owner_row[atoms[k]];
        buffer[3 * k + 2] = moves || repeated[atoms[k]];
    }
    return 3 * n;
}

void PairMlff::unpack_forward_comm(int n, int first_ghost, double *buffer)
{
    for (int k = 0; k < n; k++) {
        owner_rank[first_ghost + k] = static_cast<int>(buffer[3 * k]);
        owner_row[first_ghost + k] = static_cast<int>(buffer[3 * k + 1]);
        repeated[first_ghost + k] = buffer[3 * k + 2] != 0;
    }
}

double PairMlff::memory_usage()
{
    double bytes = Pair::memory_usage();
    if (exchanger) bytes += exchanger->bytes();
    return bytes +
           static_cast<double>((positions.capacity() + forces.capacity() + atom_energies.capacity() + atom_virials.capacity()) *
                               sizeof(double));
}
