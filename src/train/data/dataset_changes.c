// SPDX-License-Identifier: MIT
#include "dataset_changes.h"

#include <stdlib.h>

#include "device/team.h"

#define LARGEST_FACTOR 5.0

typedef struct change_search {
    const mlff_dataset *dataset;
    dataset_change_function find;
    dataset_change *changes; // [n_frames]
    bool *found;             // [n_frames]
} change_search;

static void find_changes(void *context, const team_member *member)
{
    const change_search *s = context;
    for (size_t f = (size_t)member->thread; f < s->dataset->n_frames; f += (size_t)member->n)
        s->found[f] = s->find(s->dataset, f, &s->changes[f]);
}

mlff_status dataset_find_changes(const mlff_dataset *dataset, dataset_change_function find, dataset_change **changes_out,
                                 size_t *n_out)
{
    dataset_change *changes = base_alloc(dataset->n_frames, sizeof *changes, "energies");
    bool *found = base_alloc(dataset->n_frames, sizeof *found, "energies");
    const bool allocated = changes && found;
    size_t n = 0;
    if (allocated) team_run(team_size(dataset->n_threads), find_changes, &(change_search){dataset, find, changes, found});
    for (size_t f = 0; allocated && f < dataset->n_frames; f++)
        if (found[f]) changes[n++] = changes[f];
    base_free(found);
    if (!allocated) base_free(changes);
    *changes_out = allocated ? changes : NULL;
    *n_out = n;
    return allocated ? MLFF_OK : MLFF_ERR_MEMORY;
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
