// SPDX-License-Identifier: MIT
// kim_ghosts.c: ghosts are the images that the neighbor list of the cell finds within the influence distance of an atom.
//
// That list also has the rows of the structure's own atoms, which are all that most models ask for. Rows of ghosts need a search among all
// particles: with cutoffs of 30 Å, as some pair potentials have, they are thousands of times as many.
#include "kim_ghosts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "atoms/neighbors.h"

// Lists may hold more than a model's cutoff, and models test distances themselves: what is added keeps pairs that rounding, of units
// too, would drop. Å.
static const double MARGIN = 1e-6;

enum { MAX_LISTS = 16 };

// An image of an atom, not the atom itself.
typedef struct image {
    int32_t owner, shift[3];
} image;

typedef struct list {
    double cutoff;         // Å
    mlff_neighbors *all;   // of the particles; NULL where ghosts have no rows
    mlff_pairs pairs;      // of `all`
    int *first, *neighbor; // [n_atoms + 1], [n_pairs] where ghosts have no rows
    size_t first_capacity, neighbor_capacity;
} list;

struct kim_ghosts {
    int n_lists, n_atoms, n_particles;
    mlff_neighbors *cell_list; // of the structure, to the influence distance
    list lists[MAX_LISTS];
    image *images;
    int *owner, *contributing;
    int32_t *species;
    double *positions;
    size_t images_capacity, owner_capacity, contributing_capacity, species_capacity, positions_capacity;
};

static void destroy(kim_ghosts *g)
{
    mlff_neighbors_destroy(g->cell_list);
    for (int k = 0; k < g->n_lists; k++) mlff_neighbors_destroy(g->lists[k].all);
    base_free(g);
}

mlff_status kim_ghosts_create(double influence, int n_lists, const double *cutoffs, const int *no_ghost_rows,
                              kim_ghosts **ghosts_out)
{
    mlff_status status = MLFF_OK;
    kim_ghosts *g = NULL;

    if (n_lists > MAX_LISTS) MLFF_FAIL(MLFF_ERR_LIMIT, "%d neighbor lists; at most %d are made", n_lists, MAX_LISTS);
    if (!(g = base_alloc(1, sizeof *g, "ghosts"))) MLFF_TRY(MLFF_ERR_MEMORY);
    for (int k = 0; k < n_lists; k++) influence = fmax(influence, cutoffs[k]);
    MLFF_TRY(neighbors_create_on(influence + MARGIN, 0, NULL, 1, &g->cell_list));
    for (; g->n_lists < n_lists; g->n_lists++) {
        list *l = &g->lists[g->n_lists];
        l->cutoff = cutoffs[g->n_lists] + MARGIN;
        if (!no_ghost_rows[g->n_lists]) MLFF_TRY(neighbors_create_on(l->cutoff, 0, NULL, 1, &l->all));
    }
    *ghosts_out = g;
    g = NULL;
done:
    if (g) destroy(g);
    return status;
}

static int compare_images(const void *a, const void *b)
{
    const image *x = a, *y = b;
    if (x->owner != y->owner) return x->owner < y->owner ? -1 : 1;
    for (int c = 0; c < 3; c++)
        if (x->shift[c] != y->shift[c]) return x->shift[c] < y->shift[c] ? -1 : 1;
    return 0;
}

// Which images are within the influence distance of an atom, each once.
static mlff_status find_images(kim_ghosts *g, const mlff_pairs *pairs, int n_atoms, size_t *n_out)
{
    const size_t n_pairs = (size_t)pairs->first[n_atoms];
    size_t n = 0, n_unique = 0;
    mlff_status status = base_grow(&g->images, &g->images_capacity, n_pairs, sizeof *g->images, "ghosts");
    if (status != MLFF_OK) return status;
    for (size_t p = 0; p < n_pairs; p++) {
        const int32_t *shift = pairs->shift + 3 * p;
        if (shift[0] || shift[1] || shift[2]) g->images[n++] = (image){pairs->neighbor[p], {shift[0], shift[1], shift[2]}};
    }
    qsort(g->images, n, sizeof *g->images, compare_images);
    for (size_t k = 0; k < n; k++)
        if (k == 0 || compare_images(&g->images[k], &g->images[k - 1]) != 0) g->images[n_unique++] = g->images[k];
    *n_out = n_unique;
    return MLFF_OK;
}

static mlff_status reserve(kim_ghosts *g, size_t n)
{
    mlff_status status = base_grow(&g->owner, &g->owner_capacity, n, sizeof *g->owner, "ghosts");
    if (status == MLFF_OK) status = base_grow(&g->contributing, &g->contributing_capacity, n, sizeof *g->contributing, "ghosts");
    if (status == MLFF_OK) status = base_grow(&g->species, &g->species_capacity, n, sizeof *g->species, "ghosts");
    return status == MLFF_OK ? base_grow(&g->positions, &g->positions_capacity, 3 * n, sizeof *g->positions, "ghosts") : status;
}

// The particles: the atoms, then their images.
static mlff_status place_particles(kim_ghosts *g, const double cell[9], const int32_t *species, const double *positions,
                                   size_t n_images)
{
    const int n_atoms = g->n_atoms;
    const mlff_status status = reserve(g, (size_t)n_atoms + n_images);
    if (status != MLFF_OK) return status;
    g->n_particles = n_atoms + (int)n_images;
    memcpy(g->positions, positions, 3 * (size_t)n_atoms * sizeof *positions);
    for (int i = 0; i < g->n_particles; i++) {
        const image *from = i < n_atoms ? NULL : &g->images[i - n_atoms];
        g->owner[i] = from ? from->owner : i;
        g->contributing[i] = !from;
        g->species[i] = species[g->owner[i]];
        for (int c = 0; from && c < 3; c++)
            g->positions[3 * i + c] = positions[3 * from->owner + c] + from->shift[0] * cell[c] + from->shift[1] * cell[3 + c] +
                                      from->shift[2] * cell[6 + c];
    }
    return MLFF_OK;
}

// Rows of the structure's atoms, from the pairs of the cell.
static mlff_status make_rows(const kim_ghosts *g, list *l, const mlff_pairs *pairs, const double *vectors)
{
    int n = 0;
    const size_t n_images = (size_t)(g->n_particles - g->n_atoms);
    mlff_status status = base_grow(&l->first, &l->first_capacity, (size_t)g->n_atoms + 1, sizeof(int), "neighbors");
    if (status == MLFF_OK)
        status = base_grow(&l->neighbor, &l->neighbor_capacity, (size_t)pairs->first[g->n_atoms], sizeof(int), "neighbors");
    if (status != MLFF_OK) return status;
    for (int i = 0; i < g->n_atoms; i++) {
        l->first[i] = n;
        for (int p = pairs->first[i]; p < pairs->first[i + 1]; p++) {
            const int32_t *shift = pairs->shift + 3 * (size_t)p;
            const double *v = vectors + 3 * (size_t)p;
            const image wanted = {pairs->neighbor[p], {shift[0], shift[1], shift[2]}};
            if (v[0] * v[0] + v[1] * v[1] + v[2] * v[2] >= l->cutoff * l->cutoff) continue;
            const image *found =
                shift[0] || shift[1] || shift[2] ? bsearch(&wanted, g->images, n_images, sizeof wanted, compare_images) : NULL;
            l->neighbor[n++] = found ? g->n_atoms + (int)(found - g->images) : wanted.owner;
        }
    }
    l->first[g->n_atoms] = n;
    return MLFF_OK;
}

mlff_status kim_ghosts_update(kim_ghosts *g, const worker_request *request, const int32_t *species, const double *positions)
{
    const unsigned char periodic[3] = {request->periodic[0] != 0, request->periodic[1] != 0, request->periodic[2] != 0};
    int32_t first_atom[2] = {0, request->n_atoms};
    size_t n_images = 0;
    mlff_status status = MLFF_OK;
    mlff_pairs pairs;
    const double *vectors;
    mlff_batch batch = {.n_systems = 1, .first_atom = first_atom, .species = species, .positions = positions};

    if (periodic[0] || periodic[1] || periodic[2]) {
        batch.cells = request->cell;
        batch.periodic = periodic;
    }
    g->n_atoms = request->n_atoms;
    MLFF_TRY(mlff_neighbors_update(g->cell_list, &batch));
    mlff_neighbors_get(g->cell_list, &pairs, &vectors, NULL);
    MLFF_TRY(find_images(g, &pairs, g->n_atoms, &n_images));
    MLFF_TRY(place_particles(g, request->cell, species, positions, n_images));
    first_atom[1] = g->n_particles;
    batch = (mlff_batch){.n_systems = 1, .first_atom = first_atom, .species = g->species, .positions = g->positions};
    for (int k = 0; k < g->n_lists; k++) {
        list *l = &g->lists[k];
        if (!l->all) {
            MLFF_TRY(make_rows(g, l, &pairs, vectors));
            continue;
        }
        MLFF_TRY(mlff_neighbors_update(l->all, &batch));
        mlff_neighbors_get(l->all, &l->pairs, NULL, NULL);
    }
done:
    return status;
}

int kim_ghosts_get(const kim_ghosts *g, const int **owner_out, const int **contributing_out, const double **positions_out)
{
    *owner_out = g->owner;
    *contributing_out = g->contributing;
    *positions_out = g->positions;
    return g->n_particles;
}

int kim_ghosts_list(void *ghosts, int n_lists, const double *cutoffs, int index, int particle, int *n_out,
                    const int **neighbors_out)
{
    const kim_ghosts *g = ghosts;
    (void)n_lists, (void)cutoffs; // those of kim_ghosts_create
    if (index < 0 || index >= g->n_lists) return 1;
    const list *l = &g->lists[index];
    const int *first = l->all ? l->pairs.first : l->first, *neighbor = l->all ? l->pairs.neighbor : l->neighbor;
    if (particle < 0 || particle >= (l->all ? g->n_particles : g->n_atoms)) return 1;
    *n_out = first[particle + 1] - first[particle];
    *neighbors_out = neighbor + first[particle];
    return 0;
}
