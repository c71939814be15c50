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
    *images_out = im;
    return MLFF_OK;
}

void images_destroy(images *im)
{
    if (!im) return;
    void *const arrays[] = {im->owned,
                            im->owner,
                            im->shift,
                            im->contributing,
                            im->head,
                            im->next,
                            im->left,
                            im->order,
                            im->batch_species,
                            im->batch_positions,
                            im->last,
                            im->earlier,
                            im->checked_positions,
                            im->candidates};
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
    if (!images_grow(&im->owned, n, sizeof(int)) || !images_grow(&im->owner, n, sizeof(int)) ||
        !images_grow(&im->shift, 3 * n, sizeof(int32_t)) || !images_grow(&im->contributing, n, 1) ||
        !images_grow(&im->next, n, sizeof(int)) || !images_grow(&im->left, n, sizeof(int)) ||
        !images_grow(&im->order, n, sizeof(ranked)) || !images_grow(&im->candidates, n, sizeof(ranked)) ||
        !images_grow(&im->last, n, sizeof(int)) || !images_grow(&im->earlier, n, sizeof(int)) ||
        !images_grow(&im->checked_positions, 3 * n, sizeof(double)) || !images_grow(&im->batch_species, n, sizeof(int32_t)) ||
        !images_grow(&im->batch_positions, 3 * n, sizeof(double)))
        return mlff_fail(MLFF_ERR_MEMORY, "out of memory: images of %zu atoms", n);
    im->atom_capacity = n;
    return MLFF_OK;
}

// ---- the map ---------------------------------------------------------------------------------------------------------------

// Lists the ghosts of each owned atom. False where two of them are one image, or one is the atom itself.
static bool list_ghosts(images *im, int n_atoms)
{
    for (int i = 0; i < n_atoms; i++) im->last[i] = -1;
    for (int i = 0; i < n_atoms; i++) {
        if (im->contributing[i]) continue;
        const int owner = im->owner[i];
        const int32_t *shift = im->shift + 3 * (size_t)i;
        if (shift[0] == 0 && shift[1] == 0 && shift[2] == 0) return false;
        for (int k = im->last[owner]; k >= 0; k = im->earlier[k])
            if (memcmp(im->shift + 3 * (size_t)k, shift, 3 * sizeof(int32_t)) == 0) return false;
        im->earlier[i] = im->last[owner];
        im->last[owner] = i;
    }
    return true;
}

// Whether ghost g can be an image of its owner alone. Another owner would have the same neighbors within reach, as far as those of g are known:
// the images there are ghosts, and so all of them have a place by the lattice that was found.
static bool has_one_owner(images *im, fold *d, int n_atoms, int g)
{
    int n = 0;
    double way[3];
    for (int h = 0; h < n_atoms; h++) {
        way_between(d, g, h, way);
        if (h != g && dot(way, way) <= im->reach * im->reach) im->left[n++] = h;
    }
    bool other = false;
    d->tolerance = doubt;
    for (int o = 0; o < d->n_owned && !other; o++) {
        const int i = d->owned[o];
        if (i == im->owner[g] || d->species[i] != d->species[g]) continue;
        other = true;
        for (int k = 0; k < n && other; k++) {
            double r[3];
            way_between(d, g, im->left[k], way);
            for (int c = 0; c < 3; c++) r[c] = d->positions[3 * (size_t)i + (size_t)c] + way[c];
            other = images_look_up(d, r, d->species[im->left[k]], NULL) >= 0;
        }
    }
    d->tolerance = tolerance;
    return !other;
}

// Ghosts with one possible owner whose shifts are a basis of all.
static bool choose_references(images *im, fold *d, int n_atoms)
{
    double rows[9] = {1, 0, 0, 0, 1, 0, 0, 0, 1}, normal[3];
    int n = 0, tried = 0;
    for (int pass = 0; pass < 2 && n < im->rank; pass++) // neighboring cells first
        for (int i = 0; i < n_atoms && n < im->rank; i++) {
            const int32_t *shift = im->shift + 3 * (size_t)i;
            if (im->contributing[i] || (pass == 0 && abs(shift[0]) + abs(shift[1]) + abs(shift[2]) != 1)) continue;
            const double row[3] = {shift[0], shift[1], shift[2]};
            if (n == 1) cross(rows, row, normal);
            if (n == 2) cross(rows, rows + 3, normal);
            if (n == 1 ? dot(normal, normal) < 0.5 : n == 2 ? fabs(dot(normal, row)) < 0.5 : dot(row, row) < 0.5) continue;
            if (tried++ == MAX_REFERENCES) return false;
            if (!has_one_owner(im, d, n_atoms, i)) continue;
            memcpy(rows + 3 * n, row, sizeof row);
            im->reference[n++] = i;
        }
    if (n < im->rank) return false;
    // Rows of axes that do not repeat: unit vectors, which no shift has a part of.
    for (int k = n; k < 3; k++)
        for (int c = 0; c < 3; c++) rows[3 * k + c] = c == k;
    cross(rows + 3, rows + 6, normal);
    return fabs(dot(rows, normal)) < 1.5 && invert(rows, im->from_shifts);
}

// Owners and shifts of all ghosts by the lattice.
static bool map(images *im, fold *d, int n_atoms, const int *contributing)
{
    im->n_atoms = -1;
    d->rank = im->rank;
    memcpy(d->basis, im->basis, sizeof d->basis);
    if (!images_fold(im, d)) return false;
    for (int i = 0; i < n_atoms; i++) {
        im->contributing[i] = contributing[i] != 0;
        im->owner[i] = i;
        memset(im->shift + 3 * (size_t)i, 0, 3 * sizeof(int32_t));
        if (contributing[i]) continue;
        im->owner[i] = images_look_up(d, d->positions + 3 * (size_t)i, d->species[i], im->shift + 3 * (size_t)i);
        if (im->owner[i] < 0) return false;
    }
    if (!list_ghosts(im, n_atoms) || !choose_references(im, d, n_atoms)) return false;
    im->n_atoms = n_atoms;
    im->whole_within = -1;
    return true;
}

// Rows: the references' ways from their owners, completed by the basis.
static void reference_ways(const images *im, const double *positions, double *ways)
{
    memcpy(ways, im->basis, 9 * sizeof *ways);
    for (int k = 0; k < im->rank; k++)
        for (int c = 0; c < 3; c++)
            ways[3 * k + c] = positions[3 * (size_t)im->reference[k] + (size_t)c] -
                              positions[3 * (size_t)im->owner[im->reference[k]] + (size_t)c];
}

// Whether all ghosts are where the map says, by the lattice that the references have now.
static bool holds(images *im, int n_atoms, const int *species, const int *contributing, const double *positions)
{
    double ways[9], inverse[9];
    if (im->rank == 0 || n_atoms != im->n_atoms) return false;
    reference_ways(im, positions, ways);
    for (int k = 0; k < im->rank; k++) times(im->from_shifts + 3 * k, ways, im->basis + 3 * k);
    if (!images_complete_basis(im->basis, im->rank) || !invert(im->basis, im->inverse)) return false;
    reference_ways(im, positions, ways);
    if (!invert(ways, inverse)) return false; // what images_add_virial divides by
    for (int i = 0; i < n_atoms; i++) {
        if (im->contributing[i] != (contributing[i] != 0)) return false;
        if (contributing[i]) continue;
        const int owner = im->owner[i];
        const int32_t *n = im->shift + 3 * (size_t)i;
        double square = 0;
        for (int c = 0; c < 3; c++) {
            const double moved = n[0] * im->basis[c] + n[1] * im->basis[3 + c] + n[2] * im->basis[6 + c];
            const double d = positions[3 * (size_t)i + (size_t)c] - positions[3 * (size_t)owner + (size_t)c] - moved;
            square += d * d;
        }
        if (species[i] != species[owner] || !(square <= tolerance * tolerance)) return false;
    }
    return true;
}

// ---- a call ----------------------------------------------------------------------------------------------------------------

// A lattice that held before is tried first, and searched again where it does not, ever more rarely where searches fail.
static bool find(images *im, int n_atoms, const int *species, const int *contributing, const double *positions)
{
    im->calls++;
    if (holds(im, n_atoms, species, contributing, positions)) return true;
    im->n_atoms = -1;
    im->n_owned = 0;
    for (int i = 0; i < n_atoms; i++)
        if (contributing[i]) im->owned[im->n_owned++] = i;
    if (im->n_owned == 0 || im->n_owned == n_atoms) return false;
    fold d = {.n_owned = im->n_owned, .owned = im->owned, .species = species, .positions = positions};
    if (im->rank > 0 && map(im, &d, n_atoms, contributing) && holds(im, n_atoms, species, contributing, positions)) return true;
    if (im->calls < im->next_search) return false;
    d.lookups = 0;
    const bool found = images_search(im, &d, n_atoms, contributing) && map(im, &d, n_atoms, contributing) &&
                       holds(im, n_atoms, species, contributing, positions);
    im->next_search = im->calls + im->delay;
    im->delay = found ? 1 : im->delay < LONGEST_DELAY ? 2 * im->delay : LONGEST_DELAY;
    if (!found) im->rank = 0;
    return found;
}

static void gather(images *im, const int *species, const double *positions)
{
    for (int o = 0; o < im->n_owned; o++) {
        im->batch_species[o] = species[im->owned[o]];
        memcpy(im->batch_positions + 3 * (size_t)o, positions + 3 * (size_t)im->owned[o], 3 * sizeof(double));
    }
    for (int k = 0; k < 3; k++) {
        im->periodic[k] = k < im->rank;
        for (int c = 0; c < 3; c++) im->cell[3 * k + c] = k < im->rank ? im->basis[3 * k + c] : 0;
    }
    im->first_atom[1] = im->n_owned;
    im->batch = (mlff_batch){.n_systems = 1,
                             .first_atom = im->first_atom,
                             .species = im->batch_species,
                             .positions = im->batch_positions,
                             .cells = im->cell,
                             .periodic = im->periodic,
                             .location = MLFF_HOST};
}

mlff_status images_update(images *im, int n_atoms, const int *species, const int *contributing, const double *positions,
                          const mlff_batch **batch_out, const int **atom_out)
{
    *batch_out = NULL;
    for (size_t k = 0; k < 3 * (size_t)n_atoms; k++)
        if (!(fabs(positions[k]) <= farthest)) return MLFF_OK;
    mlff_status status = reserve(im, (size_t)n_atoms);
    if (status != MLFF_OK || !find(im, n_atoms, species, contributing, positions)) return status;
    if (!images_are_whole(im, n_atoms, species, positions)) return MLFF_OK;
    gather(im, species, positions);
    *batch_out = &im->batch;
    *atom_out = im->owned;
    return MLFF_OK;
}

// With t_k the way from a reference's owner to it and f_k the force that is added on it, Σ_k t_k ⊗ f_k must be W − Σ_i r_i ⊗ F_i.
void images_add_virial(const images *im, const double *positions, const double *virial, double *forces)
{
    double missing[9], ways[9], inverse[9];
    memcpy(missing, virial, sizeof missing);
    for (int o = 0; o < im->n_owned; o++) {
        const size_t i = 3 * (size_t)im->owned[o];
        for (int a = 0; a < 3; a++)
            for (int b = 0; b < 3; b++) missing[3 * a + b] -= positions[i + (size_t)a] * forces[i + (size_t)b];
    }
    reference_ways(im, positions, ways);
    if (!invert(ways, inverse)) return;
    for (int k = 0; k < im->rank; k++)
        for (int b = 0; b < 3; b++) {
            const double f = inverse[k] * missing[b] + inverse[3 + k] * missing[3 + b] + inverse[6 + k] * missing[6 + b];
            forces[3 * (size_t)im->reference[k] + (size_t)b] += f;
            forces[3 * (size_t)im->owner[im->reference[k]] + (size_t)b] -= f;
        }
}
