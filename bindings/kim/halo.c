// SPDX-License-Identifier: MIT
// halo.c: which ghost atoms take part, and the rows of the neighbor list that are needed.
#include "halo.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// Atoms this much beyond the influence distance are kept, so that the choice holds while no atom moves by half of it: Å.
static const double margin = 1.0;
static const double list_skin = 0.5; // of the neighbor list, Å
// Ghosts are sorted by their distance from the box around the owned atoms in such steps, Å: fine enough that a layer's atoms are few, and
// wide enough that atoms next to each other remain so.
static const double shell_width = 0.5;

struct halo {
    double cutoff;
    int n_layers;
    mlff_neighbors *neighbors; // NULL: the evaluator builds the list

    // The choice of near atoms and what it was made for.
    int n_chosen_from, n_near;
    unsigned char *chosen_contributing; // [n_chosen_from]
    double *chosen_positions;           // [n_chosen_from][3]
    int *near;                          // [n_near] index in the caller's arrays
    int *shell;                         // [n_chosen_from] 0: owned; −1: too far
    int n_shells, *shell_end;           // [n_shells] in `near`

    // Near atoms as a batch.
    int32_t first_atom[2];
    int32_t *species;
    double *positions;
    unsigned char *owned;

    // Reachable atoms, where the batch carries pairs.
    int *level, *queue, *local;    // [n_near] edges from an owned atom, −1: unreachable; breadth-first order; new index
    int *atom;                     // [n] index in the caller's arrays
    int32_t *kept_species;         // [n]
    double *kept_positions;        // [n][3]
    unsigned char *kept_owned;     // [n]
    int32_t *row_first, *neighbor; // [n + 1], [n_pairs]
    size_t atom_capacity, near_capacity, pair_capacity;
    mlff_pairs pairs;
    mlff_batch batch;
};

mlff_status halo_create(double cutoff, int n_layers, bool with_pairs, halo **halo_out)
{
    halo *h = calloc(1, sizeof *h);
    if (!h) return mlff_fail(MLFF_ERR_MEMORY, "out of memory: the halo");
    h->cutoff = cutoff;
    h->n_layers = n_layers;
    h->n_chosen_from = -1;
    h->n_shells = (int)((n_layers * cutoff + margin) / shell_width) + 3;
    h->shell_end = malloc(sizeof *h->shell_end * (size_t)h->n_shells);
    mlff_status status = h->shell_end ? MLFF_OK : mlff_fail(MLFF_ERR_MEMORY, "no memory for the halo");
    if (status == MLFF_OK && with_pairs) status = mlff_neighbors_create(cutoff, list_skin, &h->neighbors);
    if (status != MLFF_OK) {
        halo_destroy(h);
        return status;
    }
    *halo_out = h;
    return MLFF_OK;
}

const mlff_neighbors *halo_neighbors(const halo *h)
{
    return h->neighbors;
}

void halo_destroy(halo *h)
{
    if (!h) return;
    mlff_neighbors_destroy(h->neighbors);
    void *const arrays[] = {h->chosen_contributing,
                            h->chosen_positions,
                            h->near,
                            h->shell,
                            h->shell_end,
                            h->species,
                            h->positions,
                            h->owned,
                            h->level,
                            h->queue,
                            h->local,
                            h->atom,
                            h->kept_species,
                            h->kept_positions,
                            h->kept_owned,
                            h->row_first,
                            h->neighbor};
    for (size_t k = 0; k < sizeof arrays / sizeof *arrays; k++) free(arrays[k]);
    free(h);
}

// ---- memory: arrays that are filled again in each call; old content is not kept ----------------------------------------------

static bool renew(void *array, size_t count, size_t size)
{
    void *memory = malloc(count * size), *old;
    memcpy(&old, array, sizeof old);
    free(old);
    memcpy(array, &memory, sizeof memory);
    return memory != NULL;
}

static mlff_status no_memory(size_t *capacity, size_t count, const char *what)
{
    *capacity = 0;
    return mlff_fail(MLFF_ERR_MEMORY, "out of memory: %zu %s", count, what);
}

static mlff_status reserve_atoms(halo *h, size_t n)
{
    if (n <= h->atom_capacity) return MLFF_OK;
    n += n / 4;
    h->n_chosen_from = -1;
    if (!renew(&h->chosen_contributing, n, 1) || !renew(&h->chosen_positions, 3 * n, sizeof(double)) ||
        !renew(&h->near, n, sizeof(int)) || !renew(&h->shell, n, sizeof(int)))
        return no_memory(&h->atom_capacity, n, "atoms");
    h->atom_capacity = n;
    return MLFF_OK;
}

static mlff_status reserve_near(halo *h, size_t n)
{
    if (n <= h->near_capacity) return MLFF_OK;
    n += n / 4;
    bool good = renew(&h->species, n, sizeof(int32_t)) && renew(&h->positions, 3 * n, sizeof(double)) && renew(&h->owned, n, 1);
    if (h->neighbors)
        good = good && renew(&h->level, n, sizeof(int)) && renew(&h->queue, n, sizeof(int)) && renew(&h->local, n, sizeof(int)) &&
               renew(&h->atom, n, sizeof(int)) && renew(&h->kept_species, n, sizeof(int32_t)) &&
               renew(&h->kept_positions, 3 * n, sizeof(double)) && renew(&h->kept_owned, n, 1) &&
               renew(&h->row_first, n + 1, sizeof(int32_t));
    if (!good) return no_memory(&h->near_capacity, n, "atoms");
    h->near_capacity = n;
    return MLFF_OK;
}

static mlff_status reserve_pairs(halo *h, size_t n)
{
    if (n <= h->pair_capacity) return MLFF_OK;
    n += n / 4;
    if (!renew(&h->neighbor, n, sizeof(int32_t))) return no_memory(&h->pair_capacity, n, "pairs");
    h->pair_capacity = n;
    return MLFF_OK;
}

// ---- near atoms: within influence distance and margin of the box around the owned atoms, by their distance from it ----------

static bool choice_holds(const halo *h, int n_atoms, const int *contributing, const double *positions)
{
    if (n_atoms != h->n_chosen_from) return false;
    for (int i = 0; i < n_atoms; i++) {
        if (h->chosen_contributing[i] != (contributing[i] != 0)) return false;
        double square = 0;
        for (int c = 0; c < 3; c++) {
            double d = positions[3 * (size_t)i + c] - h->chosen_positions[3 * (size_t)i + c];
            square += d * d;
        }
        if (!(square <= 0.25 * margin * margin)) return false;
    }
    return true;
}

static void choose(halo *h, int n_atoms, const int *contributing, const double *positions)
{
    const double reach = h->n_layers * h->cutoff + margin;
    double low[3] = {INFINITY, INFINITY, INFINITY}, high[3] = {-INFINITY, -INFINITY, -INFINITY};
    for (int i = 0; i < n_atoms; i++) {
        h->chosen_contributing[i] = contributing[i] != 0;
        for (int c = 0; contributing[i] && c < 3; c++) {
            low[c] = fmin(low[c], positions[3 * (size_t)i + c]);
            high[c] = fmax(high[c], positions[3 * (size_t)i + c]);
        }
    }
    memset(h->shell_end, 0, sizeof *h->shell_end * (size_t)h->n_shells);
    for (int i = 0; i < n_atoms; i++) {
        double square = 0;
        for (int c = 0; c < 3; c++) {
            double x = positions[3 * (size_t)i + c], outside = fmax(fmax(low[c] - x, x - high[c]), 0);
            square += outside * outside;
        }
        h->shell[i] = contributing[i] ? 0 : square <= reach * reach ? 1 + (int)(sqrt(square) / shell_width) : -1;
        if (h->shell[i] >= 0) h->shell_end[h->shell[i]]++;
    }
    h->n_near = 0;
    for (int s = 0; s < h->n_shells; s++) { // so far the number of its atoms, then its first index
        const int n = h->shell_end[s];
        h->shell_end[s] = h->n_near;
        h->n_near += n;
    }
    for (int i = 0; i < n_atoms; i++)
        if (h->shell[i] >= 0) h->near[h->shell_end[h->shell[i]]++] = i;
    if (n_atoms > 0) memcpy(h->chosen_positions, positions, sizeof(double) * 3 * (size_t)n_atoms);
    h->n_chosen_from = n_atoms;
}

static void gather_near(halo *h, const int *atomic_numbers, const int *contributing, const double *positions)
{
    for (int k = 0; k < h->n_near; k++) {
        int i = h->near[k];
        h->species[k] = atomic_numbers[i];
        h->owned[k] = contributing[i] != 0;
        memcpy(h->positions + 3 * (size_t)k, positions + 3 * (size_t)i, 3 * sizeof(double));
    }
    h->first_atom[1] = h->n_near;
    h->batch = (mlff_batch){.n_systems = 1,
                            .first_atom = h->first_atom,
                            .species = h->species,
                            .positions = h->positions,
                            .owned = h->owned,
                            .location = MLFF_HOST};
}

// ---- reachable atoms and their rows -----------------------------------------------------------------------------------------

// Breadth-first search from the owned atoms, n_layers edges deep. Returns the number of atoms found, in `queue`.
static int find_levels(halo *h, const mlff_pairs *pairs)
{
    int n_queued = 0;
    for (int i = 0; i < h->n_near; i++) {
        h->level[i] = h->owned[i] ? 0 : -1;
        if (h->owned[i]) h->queue[n_queued++] = i;
    }
    for (int head = 0; head < n_queued && h->level[h->queue[head]] < h->n_layers; head++) {
        int i = h->queue[head];
        for (int p = pairs->first[i]; p < pairs->first[i + 1]; p++) {
            int j = pairs->neighbor[p];
            if (h->level[j] >= 0) continue;
            h->level[j] = h->level[i] + 1;
            h->queue[n_queued++] = j;
        }
    }
    return n_queued;
}

// Atoms by their number of edges from an owned atom, which lets the evaluator end each layer early. Returns how many have a row.
static int gather_reachable(halo *h, int n_queued)
{
    int n_rows = 0;
    for (int n = 0; n < n_queued; n++) {
        const int k = h->queue[n];
        h->local[k] = n;
        h->atom[n] = h->near[k];
        h->kept_species[n] = h->species[k];
        h->kept_owned[n] = h->owned[k];
        memcpy(h->kept_positions + 3 * (size_t)n, h->positions + 3 * (size_t)k, 3 * sizeof(double));
        if (h->level[k] < h->n_layers) n_rows = n + 1;
    }
    return n_rows;
}

static void copy_rows(halo *h, const mlff_pairs *pairs, int n_queued, int n_rows)
{
    int32_t n_pairs = 0;
    for (int n = 0; n < n_queued; n++) {
        const int k = h->queue[n];
        h->row_first[n] = n_pairs;
        for (int p = pairs->first[k]; n < n_rows && p < pairs->first[k + 1]; p++)
            h->neighbor[n_pairs++] = h->local[pairs->neighbor[p]];
    }
    h->row_first[n_queued] = n_pairs;
}

static mlff_status add_pairs(halo *h)
{
    mlff_pairs all;
    mlff_status status = mlff_neighbors_update(h->neighbors, &h->batch);
    if (status != MLFF_OK) return status;
    mlff_neighbors_get(h->neighbors, &all, NULL, NULL);
    if ((status = reserve_pairs(h, (size_t)all.first[h->n_near] + 1)) != MLFF_OK) return status;
    const int n = find_levels(h, &all), n_rows = gather_reachable(h, n);
    copy_rows(h, &all, n, n_rows);
    h->first_atom[1] = n;
    h->pairs = (mlff_pairs){.first = h->row_first, .neighbor = h->neighbor, .symmetric = n_rows == n};
    h->batch.species = h->kept_species;
    h->batch.positions = h->kept_positions;
    h->batch.owned = h->kept_owned;
    h->batch.pairs = &h->pairs;
    return MLFF_OK;
}

mlff_status halo_update(halo *h, int n_atoms, const int *atomic_numbers, const int *contributing, const double *positions,
                        const mlff_batch **batch_out, const int **atom_out)
{
    mlff_status status = reserve_atoms(h, (size_t)n_atoms);
    if (status != MLFF_OK) return status;
    if (!choice_holds(h, n_atoms, contributing, positions)) choose(h, n_atoms, contributing, positions);
    if ((status = reserve_near(h, (size_t)h->n_near)) != MLFF_OK) return status;
    gather_near(h, atomic_numbers, contributing, positions);
    if (h->neighbors && h->n_near > 0 && (status = add_pairs(h)) != MLFF_OK) return status;
    *batch_out = &h->batch;
    *atom_out = h->neighbors ? h->atom : h->near;
    return MLFF_OK;
}
