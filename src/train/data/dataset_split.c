// SPDX-License-Identifier: MIT
// dataset_split.c: a part of a dataset is held back for validation, by whole groups.
#include <math.h>
#include <stdlib.h>

#include "dataset.h"

enum { N_RUNS = 50, STREAM_SPLIT = 0x73706c74 };

// One frame's place in the split: structures of equal key stay together.
typedef struct place {
    int64_t key;
    size_t frame;
} place;

// A group of structures and its rank in a random order.
typedef struct split_group {
    int64_t key;
    double rank;
    size_t n_frames;
    bool validation;
} split_group;

static int compare_places(const void *a, const void *b)
{
    const place *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return (x->frame > y->frame) - (x->frame < y->frame);
}

static int compare_ranks(const void *a, const void *b)
{
    const split_group *x = a, *y = b;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

static int compare_keys(const void *a, const void *b)
{
    const split_group *x = a, *y = b;
    return (x->key > y->key) - (x->key < y->key);
}

static bool is_probe_end(const mlff_dataset *dataset, size_t frame)
{
    return frame > 0 && dataset->frames[frame - 1].probe_step > 0;
}

// The frame's group; a run of consecutive frames, as a negative key, where it has none or all share one.
static void find_places(const mlff_dataset *dataset, place *places)
{
    const size_t n = dataset->n_frames;
    bool one_group = true;
    for (size_t f = 1; f < n; f++) one_group = one_group && dataset->frames[f].system->group == dataset->frames[0].system->group;
    for (size_t f = 0; f < n; f++) {
        const int64_t group = dataset->frames[f].system->group;
        places[f] = (place){.key = group >= 0 && !one_group ? group : -1 - (int64_t)(f * N_RUNS / n), .frame = f};
        if (is_probe_end(dataset, f)) places[f].key = places[f - 1].key;
    }
}

// Groups in random order go to validation while they fit into the share; the smallest where none does.
static void choose_groups(split_group *groups, size_t n_groups, size_t n_frames, double fraction)
{
    const double share = fmax(1, fraction * (double)n_frames);
    size_t taken = 0, smallest = 0;
    qsort(groups, n_groups, sizeof *groups, compare_ranks);
    for (size_t g = 0; g < n_groups; g++) {
        if (groups[g].n_frames < groups[smallest].n_frames) smallest = g;
        if ((double)(taken + groups[g].n_frames) > share) continue;
        groups[g].validation = true;
        taken += groups[g].n_frames;
    }
    if (taken == 0) groups[smallest].validation = true;
}

static mlff_status distribute(const mlff_dataset *dataset, const bool *validates, mlff_dataset *parts[2])
{
    mlff_status status = MLFF_OK;
    for (size_t f = 0; f < dataset->n_frames && status == MLFF_OK; f++)
        status = dataset_add_copy(parts[validates[f]], &dataset->frames[f]);
    return status;
}

mlff_status mlff_dataset_split(const mlff_dataset *dataset, double fraction, uint64_t seed, mlff_dataset **training_out,
                               mlff_dataset **validation_out)
{
    mlff_status status = MLFF_OK;
    mlff_dataset *parts[2] = {NULL, NULL};
    place *places = NULL;
    split_group *groups = NULL;
    bool *validates = NULL;
    const size_t n = dataset->n_frames;
    size_t n_groups = 0;

    if (!(fraction > 0 && fraction < 1))
        return mlff_fail(MLFF_ERR_USAGE, "a share of %g for validation; give a number above 0 and below 1", fraction);
    if (n < 2)
        return mlff_fail(MLFF_ERR_USAGE, "a dataset of %zu structure%s cannot be split; two are needed", n,
                         base_plural((int64_t)n));
    if (!(places = base_alloc(n, sizeof *places, "a split")) || !(groups = base_alloc(n, sizeof *groups, "a split")) ||
        !(validates = base_alloc(n, sizeof *validates, "a split")))
        MLFF_TRY(MLFF_ERR_MEMORY);

    find_places(dataset, places);
    qsort(places, n, sizeof *places, compare_places);
    for (size_t k = 0; k < n; k++) {
        if (k == 0 || places[k].key != places[k - 1].key) {
            groups[n_groups] = (split_group){.key = places[k].key};
            groups[n_groups].rank = base_random_uniform(seed, STREAM_SPLIT, n_groups);
            n_groups++;
        }
        groups[n_groups - 1].n_frames++;
    }
    if (n_groups < 2) MLFF_FAIL(MLFF_ERR_USAGE, "a dataset of one Hessian probe cannot be split");
    choose_groups(groups, n_groups, n, fraction);
    qsort(groups, n_groups, sizeof *groups, compare_keys);
    for (size_t k = 0, g = 0; k < n; k++) {
        while (groups[g].key != places[k].key) g++;
        validates[places[k].frame] = groups[g].validation;
    }

    MLFF_TRY(mlff_dataset_create(&parts[0]));
    MLFF_TRY(mlff_dataset_create(&parts[1]));
    MLFF_TRY(distribute(dataset, validates, parts));
    *training_out = parts[0];
    *validation_out = parts[1];
    parts[0] = parts[1] = NULL;
done:
    base_free(validates);
    base_free(groups);
    base_free(places);
    mlff_dataset_destroy(parts[0]);
    mlff_dataset_destroy(parts[1]);
    return status;
}
