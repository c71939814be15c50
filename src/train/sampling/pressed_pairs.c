// SPDX-License-Identifier: MIT
// pressed_pairs.c: structures in which two near atoms are pushed together.
#include "pressed_pairs.h"

#include <math.h>
#include <string.h>

#include "atoms/elements/covalent.h"
#include "samples.h"

enum { STREAM_PAIRS = 0x70616972 };

static mlff_status update(mlff_neighbors *neighbors, const mlff_system *system, mlff_pairs *pairs_out, const double **vectors_out)
{
    int32_t first_atom[2];
    mlff_batch batch;
    mlff_batch_from_system(system, first_atom, &batch);
    const mlff_status status = mlff_neighbors_update(neighbors, &batch);
    if (status == MLFF_OK) mlff_neighbors_get(neighbors, pairs_out, vectors_out, NULL);
    return status;
}

mlff_status pressed_pairs_open(const mlff_system *system, pressed_pairs *pairs)
{
    static const double reaches[] = {3.0, 4.5, 6.0}; // Å
    mlff_status status = MLFF_OK;
    for (size_t k = 0; k < sizeof reaches / sizeof *reaches; k++) {
        mlff_pairs found;
        const double *vectors;
        pressed_pairs_close(pairs);
        MLFF_TRY(mlff_neighbors_create(reaches[k], 0, &pairs->neighbors));
        MLFF_TRY(update(pairs->neighbors, system, &found, &vectors));
        if (found.first[system->n_atoms] > 0) break;
    }
done:
    return status;
}

void pressed_pairs_close(pressed_pairs *pairs)
{
    mlff_neighbors_destroy(pairs->neighbors);
    pairs->neighbors = NULL;
}

// The neighbor that `draw` chooses, by number of atoms i and j and their vector; false if atom i has none.
static bool choose_pair(const mlff_pairs *pairs, const double *vectors, int i, double draw, int *j_out, double vector[3])
{
    const int32_t n = pairs->first[i + 1] - pairs->first[i];
    if (n == 0) return false;
    const int32_t p = pairs->first[i] + (int32_t)(draw * n);
    *j_out = pairs->neighbor[p];
    memcpy(vector, vectors + 3 * (size_t)p, 3 * sizeof *vector);
    return *j_out != i;
}

static bool moves(const mlff_system *system, int i)
{
    return !(system->fixed && system->fixed[i]);
}

// The atom that `draw` chooses of those that are not fixed; -1 if all are.
static int choose_atom(const mlff_system *system, double draw)
{
    int n_moving = 0;
    for (int i = 0; i < system->n_atoms; i++) n_moving += moves(system, i);
    int left = (int)(n_moving * draw);
    for (int i = 0; i < system->n_atoms; i++)
        if (moves(system, i) && left-- == 0) return i;
    return -1;
}

static mlff_status press(const pressed_pairs *pairs, uint64_t stream, mlff_system *system, sample_contact *pressed)
{
    mlff_pairs found;
    const double *vectors;
    double vector[3];
    int j;
    const mlff_status status = update(pairs->neighbors, system, &found, &vectors);
    if (status != MLFF_OK) return status;
    const int i = choose_atom(system, base_random_uniform(pairs->seed, stream, 0));
    *pressed = (sample_contact){-1, -1, NAN};
    if (i < 0 || !choose_pair(&found, vectors, i, base_random_uniform(pairs->seed, stream, 1), &j, vector)) return MLFF_OK;
    // From just above the closest that is accepted, so that pairs that are no bond get a core too, up to 0.95 of their distance.
    const double distance = sqrt(vector[0] * vector[0] + vector[1] * vector[1] + vector[2] * vector[2]);
    const double radii = covalent_radius(system->species[i]) + covalent_radius(system->species[j]);
    const double least = fmin(0.9, 1.02 * pairs->closest * radii / distance);
    const double factor = least + (0.95 - least) * base_random_uniform(pairs->seed, stream, 2);
    const double part = moves(system, j) ? 0.5 : 1; // of the way, which a fixed neighbor does not go
    for (size_t c = 0; c < 3; c++) {
        system->positions[3 * (size_t)i + c] += part * (1 - factor) * vector[c];
        if (moves(system, j)) system->positions[3 * (size_t)j + c] -= part * (1 - factor) * vector[c];
    }
    *pressed = (sample_contact){i, j, factor * distance / radii};
    return MLFF_OK;
}

mlff_status pressed_pairs_make(const pressed_pairs *pairs, const mlff_system *system, int64_t number, mlff_system **copy_out,
                               sample_contact *pressed_out)
{
    const uint64_t stream = ((uint64_t)STREAM_PAIRS << 32) + (uint64_t)number;
    mlff_system *copy;
    sample_contact pressed;
    mlff_status status = sample_perturbed(system, pairs->kelvin, pairs->seed, stream, &copy);
    if (status != MLFF_OK) return status;
    status = press(pairs, stream, copy, &pressed);
    if (status != MLFF_OK) {
        mlff_system_destroy(copy);
        return status;
    }
    *copy_out = copy;
    if (pressed_out) *pressed_out = pressed;
    return MLFF_OK;
}
