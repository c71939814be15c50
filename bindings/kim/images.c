// SPDX-License-Identifier: MIT
// images.c: finds the lattice that makes ghosts images of owned atoms.
//
// With lattice vectors a_k (rows of `basis`, completed by unit vectors to three) a ghost g is the image of atom i where
//   r_g = r_i + Σ_k n_k a_k,  n_k integer and 0 for k ≥ rank.
// Images within reach of an owned atom matter. In fractional coordinates f they have f_k + n_k within reach / h_k of the range of all owned
// atoms' f_k, where h_k is the cell's height along axis k. None is missing where the number of such ghosts, all different, is the number
// of such images: so it is if the simulator chooses ghosts in this way, along the same axes. Otherwise distances decide.
//
// The lattice is found by translations t = r_g − r_i of ghosts that no lattice explains yet: the right one also moves other ghosts to owned
// atoms, and moves no owned atom to another one. Translations are then reduced to a basis.
//
// Several lattices can explain all ghosts where the structure repeats within the cell, as a crystal on its sites does; the simulator adds
// the forces on ghosts to the owners by its own. So a lattice is used only if each of the ghosts whose shifts span it can be the image of
// one atom alone: then its vectors are vectors of the simulator's lattice too, and owners are the same.
#include "images_state.h"

mlff_status images_create(double reach, images **images_out)
{
    images *im = calloc(1, sizeof *im);
    if (!im) return mlff_fail(MLFF_ERR_MEMORY, "out of memory: images");
    im->reach = reach - 1e-6; // atoms at the influence distance itself have no influence
    im->next_search = im->delay = 1;
    im->n_atoms = -1;
    *images_out = im;
    return MLFF_OK;
}

void images_destroy(images *im)
{
    if (!im) return;
    void *const arrays[] = {im->order,
                            im->ordered_species,
                            im->ordered_positions,
                            im->owner,
                            im->code,
                            im->shift,
                            im->translation,
                            im->there,
                            im->checked_positions,
                            im->place,
                            im->placed,
                            im->bin,
                            im->first,
                            im->left,
                            im->by_way,
                            im->candidates,
                            im->ways,
                            im->owner_before,
                            im->shift_of,
                            im->slices};
    for (size_t k = 0; k < sizeof arrays / sizeof *arrays; k++) free(arrays[k]);
    free(im);
}

// ---- memory ----------------------------------------------------------------------------------------------------------------

bool images_grow(void *array, size_t count, size_t size)
{
    void *memory, *old;
    memcpy(&old, array, sizeof old);
    if (!(memory = realloc(old, count * size))) return false;
    memcpy(array, &memory, sizeof memory);
    return true;
}

static mlff_status reserve(images *im, size_t n)
{
    if (n <= im->atom_capacity) return MLFF_OK;
    n += n / 4;
    if (!images_grow(&im->order, n, sizeof(int)) || !images_grow(&im->ordered_species, n, sizeof(int)) ||
        !images_grow(&im->ordered_positions, 3 * n, sizeof(double)) || !images_grow(&im->owner, n, sizeof(int32_t)) ||
        !images_grow(&im->owner_before, n, sizeof(int32_t)) || !images_grow(&im->code, n, sizeof(int32_t)) ||
        !images_grow(&im->shift, 3 * n, sizeof(int32_t)) || !images_grow(&im->checked_positions, 3 * n, sizeof(double)) ||
        !images_grow(&im->place, 3 * n, sizeof(double)) || !images_grow(&im->placed, n, sizeof(placed)) ||
        !images_grow(&im->bin, n, sizeof(int32_t)) || !images_grow(&im->slices, n * SLICES / 64 + 1, sizeof(uint64_t)) ||
        !images_grow(&im->left, n, sizeof(int)) || !images_grow(&im->ways, 3 * n, sizeof(double)) ||
        !images_grow(&im->by_way, n, sizeof(ranked)) || !images_grow(&im->candidates, n, sizeof(ranked)))
        return mlff_fail(MLFF_ERR_MEMORY, "out of memory: images of %zu atoms", n);
    im->atom_capacity = n;
    return MLFF_OK;
}

// ---- the order of atoms ----------------------------------------------------------------------------------------------------

// Simulators have owned atoms first, as LAMMPS and ASE do; of others arrays in that order are made.
static void arrange(images *im, int n_atoms, const int *contributing, const int **species, const double **positions)
{
    int n = 0, n_first = 0;
    for (int i = 0; i < n_atoms; i++) n += contributing[i] != 0;
    for (int i = 0; i < n; i++) n_first += contributing[i] != 0;
    if (n != im->n_owned) im->n_atoms = -1;
    if (n < im->n_owned) im->n_before = 0; // owners may be gone
    im->n_owned = n;
    im->in_order = n_first == n;
    if (im->in_order) return;
    for (int i = 0, owned = 0, ghost = n; i < n_atoms; i++) {
        const int to = contributing[i] ? owned++ : ghost++;
        im->order[to] = i;
        im->ordered_species[to] = (*species)[i];
        memcpy(im->ordered_positions + 3 * (size_t)to, *positions + 3 * (size_t)i, 3 * sizeof(double));
    }
    *species = im->ordered_species;
    *positions = im->ordered_positions;
}

// ---- a call ----------------------------------------------------------------------------------------------------------------

// Rows: the references' ways from their owners, completed by the basis.
static void reference_ways(const images *im, const double *positions, const int *order, double *ways)
{
    memcpy(ways, im->basis, 9 * sizeof *ways);
    for (int k = 0; k < im->rank; k++) {
        const int to = order ? order[im->reference[k]] : im->reference[k];
        const int from = order ? order[im->reference_owner[k]] : im->reference_owner[k];
        for (int c = 0; c < 3; c++)
            ways[3 * k + c] = positions[3 * (size_t)to + (size_t)c] - positions[3 * (size_t)from + (size_t)c];
    }
}

// The lattice that the references have now, and the translations of all shifts by it.
static bool follow_references(images *im, const double *positions)
{
    double ways[9], inverse[9];
    reference_ways(im, positions, NULL, ways);
    for (int k = 0; k < im->rank; k++) times(im->from_shifts + 3 * k, ways, im->basis + 3 * k);
    if (!images_complete_basis(im->basis, im->rank) || !invert(im->basis, im->inverse)) return false;
    reference_ways(im, positions, NULL, ways);
    if (!invert(ways, inverse)) return false; // what images_add_virial divides by
    images_translate(im);
    return true;
}

// Whether all ghosts are where the map says. The time of a step's check is this loop's: it has no branch.
static bool ghosts_hold(const images *im, int n_atoms, const int *species, const double *positions)
{
    enum { BLOCK = 512 };
    const int n_ghosts = n_atoms - im->n_owned;
    const double *r = positions + 3 * (size_t)im->n_owned;
    const int *ghost_species = species + im->n_owned;
    for (int begin = 0; begin < n_ghosts; begin += BLOCK) {
        const int end = begin + BLOCK < n_ghosts ? begin + BLOCK : n_ghosts;
        int wrong = 0;
        for (int g = begin; g < end; g++) {
            const int32_t owner = im->owner[g];
            const double *at = positions + 3 * (size_t)owner, *t = im->translation + 3 * (size_t)im->code[g],
                         *x = r + 3 * (size_t)g;
            const double d[3] = {x[0] - at[0] - t[0], x[1] - at[1] - t[1], x[2] - at[2] - t[2]};
            wrong |= !(dot(d, d) <= tolerance * tolerance) | (ghost_species[g] != species[owner]);
        }
        if (wrong) return false;
    }
    return true;
}

static bool holds(images *im, int n_atoms, const int *species, const double *positions)
{
    double basis[9];
    if (im->rank == 0 || n_atoms != im->n_atoms) return false;
    memcpy(basis, im->basis, sizeof basis);
    if (follow_references(im, positions) && ghosts_hold(im, n_atoms, species, positions)) return true;
    memcpy(im->basis, basis, sizeof basis); // where the list is new, other atoms have the references' numbers
    return false;
}

static bool can_be_used(int n_atoms, const double *positions)
{
    bool usable = true;
    for (size_t k = 0; k < 3 * (size_t)n_atoms; k++) usable &= fabs(positions[k]) <= farthest;
    return usable;
}

// A lattice that held before is tried first, and searched again where it does not, ever more rarely where searches fail.
static bool find(images *im, int n_atoms, const int *species, const double *positions)
{
    im->calls++;
    if (holds(im, n_atoms, species, positions)) return true;
    im->n_atoms = -1;
    if (im->n_owned == 0 || im->n_owned == n_atoms || !can_be_used(n_atoms, positions)) return false;
    fold d = {.n_owned = im->n_owned, .species = species, .positions = positions};
    if (im->rank > 0 && images_map(im, &d, n_atoms)) return true;
    if (im->calls < im->next_search) return false;
    d.lookups = 0;
    const bool found = images_search(im, &d, n_atoms) && images_map(im, &d, n_atoms);
    im->next_search = im->calls + im->delay;
    im->delay = found ? 1 : im->delay < LONGEST_DELAY ? 2 * im->delay : LONGEST_DELAY;
    if (!found) im->rank = 0;
    return found;
}

static void make_batch(images *im, const int *species, const double *positions)
{
    for (int k = 0; k < 3; k++) {
        im->periodic[k] = k < im->rank;
        for (int c = 0; c < 3; c++) im->cell[3 * k + c] = k < im->rank ? im->basis[3 * k + c] : 0;
    }
    im->first_atom[1] = im->n_owned;
    im->batch = (mlff_batch){.n_systems = 1,
                             .first_atom = im->first_atom,
                             .species = species,
                             .positions = positions,
                             .cells = im->cell,
                             .periodic = im->periodic,
                             .location = MLFF_HOST};
}

mlff_status images_update(images *im, int n_atoms, const int *species, const int *contributing, const double *positions,
                          const mlff_batch **batch_out, const int **atom_out)
{
    *batch_out = NULL;
    mlff_status status = reserve(im, (size_t)n_atoms);
    if (status != MLFF_OK) return status;
    arrange(im, n_atoms, contributing, &species, &positions);
    if (!find(im, n_atoms, species, positions) || !images_are_whole(im, n_atoms, species, positions)) return MLFF_OK;
    make_batch(im, species, positions);
    *batch_out = &im->batch;
    *atom_out = im->in_order ? NULL : im->order;
    return MLFF_OK;
}

typedef double two __attribute__((vector_size(2 * sizeof(double))));

// Σ r ⊗ f of n atoms. Compilers find no such vectors in nine sums.
static void sum_products(int n, const int *order, const double *positions, const double *forces, double *sum)
{
    two row[3] = {{0, 0}, {0, 0}, {0, 0}}, column = {0, 0};
    double corner = 0;
    for (int o = 0; o < n; o++) {
        const size_t i = 3 * (size_t)(order ? order[o] : o);
        const double *r = positions + i, *f = forces + i;
        for (int a = 0; a < 3; a++) row[a] += r[a] * (two){f[0], f[1]};
        column += (two){r[0], r[1]} * f[2];
        corner += r[2] * f[2];
    }
    const double all[9] = {row[0][0], row[0][1], column[0], row[1][0], row[1][1], column[1], row[2][0], row[2][1], corner};
    memcpy(sum, all, sizeof all);
}

// With t_k the way from a reference's owner to it and f_k the force that is added on it, Σ_k t_k ⊗ f_k must be W − Σ_i r_i ⊗ F_i.
void images_add_virial(const images *im, const double *positions, const double *virial, double *forces)
{
    const int *order = im->in_order ? NULL : im->order;
    double sum[9], missing[9], ways[9], inverse[9];
    sum_products(im->n_owned, order, positions, forces, sum);
    for (int k = 0; k < 9; k++) missing[k] = virial[k] - sum[k];
    reference_ways(im, positions, order, ways);
    if (!invert(ways, inverse)) return;
    for (int k = 0; k < im->rank; k++) {
        const int to = order ? order[im->reference[k]] : im->reference[k];
        const int from = order ? order[im->reference_owner[k]] : im->reference_owner[k];
        for (int b = 0; b < 3; b++) {
            const double f = inverse[k] * missing[b] + inverse[3 + k] * missing[3 + b] + inverse[6 + k] * missing[6 + b];
            forces[3 * (size_t)to + (size_t)b] += f;
            forces[3 * (size_t)from + (size_t)b] -= f;
        }
    }
}
