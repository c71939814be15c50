// SPDX-License-Identifier: MIT
// sample_select.c: those samples that differ most, so that labels are not spent on near copies.
//
// Descriptor: for each pair of elements the distances below 6 Å, smeared by 0.15 Å onto a grid of 0.25 Å and faded out by a
// cosine, a sum over pairs divided by sqrt(N): it does not change under rotation, translation or renumbering of atoms.
// Farthest-point selection (Gonzalez 1985): the next one taken is that with the largest distance to the nearest one taken.
#include <math.h>
#include <string.h>

#include "samples.h"

#define REACH 6.0    // Å
#define SPACING 0.25 // Å
#define WIDTH 0.15   // Å
enum { N_GRID = 24, MAX_ELEMENTS = 8, BLOCK = 4096 };

// Which elements have a place in the descriptor; rarer ones beyond the eighth share the last.
typedef struct element_map {
    int place[MLFF_MAX_ATOMIC_NUMBER + 1]; // -1: none yet
    int n;
} element_map;

static void map_elements(element_map *map, const mlff_samples *samples)
{
    for (size_t s = 0; samples && s < samples->n; s++)
        for (int i = 0; i < samples->samples[s].system->n_atoms; i++) {
            int *place = &map->place[samples->samples[s].system->species[i]];
            if (*place < 0) *place = map->n < MAX_ELEMENTS ? map->n++ : MAX_ELEMENTS - 1;
        }
}

// Numbers of a descriptor.
static size_t width_of(const element_map *map)
{
    return (size_t)(map->n * (map->n + 1) / 2) * N_GRID;
}

static void add_distance(float *grid, double distance, double weight)
{
    const double faded = weight * 0.5 * (1 + cos(BASE_PI * distance / REACH));
    const int nearest = (int)(distance / SPACING);
    for (int g = nearest - 2; g <= nearest + 3; g++) {
        if (g < 0 || g >= N_GRID) continue;
        const double x = (distance - g * SPACING) / WIDTH;
        grid[g] += (float)(faded * exp(-0.5 * x * x));
    }
}

static mlff_status describe(const element_map *map, mlff_neighbors *neighbors, const mlff_system *system, float *descriptor)
{
    int32_t first_atom[2];
    mlff_batch batch;
    mlff_pairs pairs;
    const double *vectors;
    mlff_batch_from_system(system, first_atom, &batch);
    const mlff_status status = mlff_neighbors_update(neighbors, &batch);
    if (status != MLFF_OK) return status;
    mlff_neighbors_get(neighbors, &pairs, &vectors, NULL);
    memset(descriptor, 0, width_of(map) * sizeof *descriptor);
    const double weight = 1 / sqrt(system->n_atoms);
    for (int i = 0; i < system->n_atoms; i++)
        for (int32_t p = pairs.first[i]; p < pairs.first[i + 1]; p++) {
            const int a = map->place[system->species[i]], b = map->place[system->species[pairs.neighbor[p]]];
            if (a < b) continue; // of both directions that with a >= b; equal elements come twice
            const double *r = vectors + 3 * (size_t)p;
            add_distance(descriptor + (size_t)(a * (a + 1) / 2 + b) * N_GRID, sqrt(r[0] * r[0] + r[1] * r[1] + r[2] * r[2]),
                         weight);
        }
    return MLFF_OK;
}

static mlff_status describe_all(const element_map *map, const mlff_samples *samples, float **descriptors_out)
{
    mlff_status status = MLFF_OK;
    const size_t width = width_of(map);
    mlff_neighbors *neighbors = NULL;
    float *descriptors = base_alloc(samples->n * width, sizeof *descriptors, "descriptors");
    if (!descriptors) return MLFF_ERR_MEMORY;
    MLFF_TRY(mlff_neighbors_create(REACH, 0, &neighbors));
    for (size_t s = 0; s < samples->n; s++)
        MLFF_TRY(describe(map, neighbors, samples->samples[s].system, descriptors + s * width));
    *descriptors_out = descriptors;
    descriptors = NULL;
done:
    mlff_neighbors_destroy(neighbors);
    base_free(descriptors);
    return status;
}

static float distance_square(const float *a, const float *b, size_t width)
{
    float sum = 0;
    for (size_t k = 0; k < width; k++) sum += (a[k] - b[k]) * (a[k] - b[k]);
    return sum;
}

// Chooses n of the samples first .. end by farthest point. nearest[k]: squared distance to the nearest one taken, INFINITY
// where none is.
static void choose(const float *descriptors, size_t width, size_t first, size_t end, size_t n, float *nearest, bool *taken)
{
    for (size_t c = 0; c < n; c++) {
        size_t farthest = end;
        for (size_t k = first; k < end; k++)
            if (!taken[k] && (farthest == end || nearest[k] > nearest[farthest])) farthest = k;
        if (farthest == end) return;
        taken[farthest] = true;
        for (size_t k = first; k < end; k++)
            if (!taken[k])
                nearest[k] = fminf(nearest[k], distance_square(descriptors + k * width, descriptors + farthest * width, width));
    }
}

// Drops the samples that were not taken, in place.
static void keep_taken(mlff_samples *samples, const bool *taken)
{
    size_t n = 0;
    for (size_t k = 0; k < samples->n; k++) {
        if (taken[k])
            samples->samples[n++] = samples->samples[k];
        else
            mlff_system_destroy(samples->samples[k].system);
    }
    samples->n = n;
}

mlff_status mlff_samples_select(mlff_samples *samples, int64_t n, const mlff_samples *known)
{
    mlff_status status = MLFF_OK;
    element_map map = {.n = 0};
    float *descriptors = NULL, *known_descriptors = NULL, *nearest = NULL;
    bool *taken = NULL;
    size_t width = 0;

    if (n < 1) return mlff_fail(MLFF_ERR_USAGE, "a selection of %lld samples", (long long)n);
    if ((size_t)n >= samples->n) return MLFF_OK;
    for (size_t s = 0; s < samples->n; s++)
        if (samples->samples[s].probe != SAMPLE_PLAIN)
            return mlff_fail(MLFF_ERR_USAGE, "select samples before Hessian probes are added to them");
    for (int z = 0; z <= MLFF_MAX_ATOMIC_NUMBER; z++) map.place[z] = -1;
    map_elements(&map, samples);
    map_elements(&map, known);
    width = width_of(&map);
    MLFF_TRY(describe_all(&map, samples, &descriptors));
    if (known && known->n > 0) MLFF_TRY(describe_all(&map, known, &known_descriptors));
    if (!(nearest = base_alloc(samples->n, sizeof *nearest, "distances")) ||
        !(taken = base_alloc(samples->n, sizeof *taken, "a selection")))
        MLFF_TRY(MLFF_ERR_MEMORY);
    for (size_t k = 0; k < samples->n; k++) {
        nearest[k] = INFINITY;
        for (size_t j = 0; known && j < known->n; j++)
            nearest[k] = fminf(nearest[k], distance_square(descriptors + k * width, known_descriptors + j * width, width));
    }
    // Time is the product of samples and those taken: many are chosen in blocks, each with its share.
    const size_t n_blocks = (samples->n + BLOCK - 1) / BLOCK;
    for (size_t b = 0; b < n_blocks; b++) {
        const size_t first = b * samples->n / n_blocks, end = (b + 1) * samples->n / n_blocks;
        const size_t share = (b + 1) * (size_t)n / n_blocks - b * (size_t)n / n_blocks;
        choose(descriptors, width, first, end, share, nearest, taken);
    }
    keep_taken(samples, taken);
done:
    base_free(descriptors);
    base_free(known_descriptors);
    base_free(nearest);
    base_free(taken);
    return status;
}
