// SPDX-License-Identifier: MIT
#include "dataset_changes.h"

#include <stdlib.h>
#include <string.h>

#include "device/team.h"

#define LARGEST_FACTOR 5.0
enum { LOOK_BACK = 20 }; // structures before one that it is compared with

typedef struct change_search {
    const mlff_dataset *dataset;
    const dataset_comparison *comparison;
    dataset_change *changes; // [n_frames]
} change_search;

static bool is_same_kind(const mlff_system *a, const mlff_system *b)
{
    return a->n_atoms == b->n_atoms && memcmp(a->species, b->species, (size_t)a->n_atoms * sizeof *a->species) == 0;
}

// From the nearest of the structures before this one.
static dataset_change find_change(const change_search *s, size_t frame)
{
    const mlff_system *b = s->dataset->frames[frame].system;
    double nearest = CHANGES_LARGEST_MOVE;
    dataset_change found = {0};
    atoms_images images;
    if (!s->comparison->has_labels(b)) return found;
    atoms_images_make(b, &images);
    for (size_t back = 1; back <= LOOK_BACK && back <= frame; back++) {
        const mlff_system *a = s->dataset->frames[frame - back].system;
        dataset_change change = {0};
        if (!s->comparison->has_labels(a) || !is_same_kind(a, b)) continue;
        const double move = s->comparison->compare(a, b, &images, &change);
        if (!(move < nearest)) continue;
        nearest = move;
        found = change;
    }
    found.frame = frame;
    return found;
}

static void find_changes(void *context, const team_member *member)
{
    const change_search *s = context;
    for (size_t f = (size_t)member->thread; f < s->dataset->n_frames; f += (size_t)member->n) s->changes[f] = find_change(s, f);
}

mlff_status dataset_find_changes(const mlff_dataset *dataset, const dataset_comparison *comparison, dataset_change **changes_out,
                                 size_t *n_out)
{
    size_t n = 0;
    dataset_change *changes = base_alloc(dataset->n_frames, sizeof *changes, "energies");
    if (!changes) return MLFF_ERR_MEMORY;
    team_run(team_size(dataset->n_threads), find_changes, &(change_search){dataset, comparison, changes});
    for (size_t f = 0; f < dataset->n_frames; f++)
        if (changes[f].tells) changes[n++] = changes[f];
    *changes_out = changes;
    *n_out = n;
    return MLFF_OK;
}

static int compare_ratios(const void *a, const void *b)
{
    const dataset_change *x = a, *y = b;
    const double difference = x->energy / x->by_labels - y->energy / y->by_labels;
    return difference < 0 ? -1 : difference > 0 ? 1 : 0;
}

size_t dataset_wrong_changes(dataset_change *changes, size_t n, size_t *first_out)
{
    size_t n_wrong = 0;
    *first_out = SIZE_MAX;
    for (size_t k = 0; k < n; k++) {
        const double ratio = changes[k].energy / changes[k].by_labels;
        if (ratio > 1 / LARGEST_FACTOR && ratio < LARGEST_FACTOR) continue;
        n_wrong++;
        if (changes[k].frame < *first_out) *first_out = changes[k].frame;
    }
    if (n > 0) qsort(changes, n, sizeof *changes, compare_ratios);
    return n_wrong;
}
