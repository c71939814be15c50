// SPDX-License-Identifier: MIT
// dataset_split.c: a part of a dataset is held back for validation, by whole groups.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dataset.h"

enum { N_RUNS = 50, STREAM_SPLIT = 0x73706c74, STREAM_CHOOSE = 0x63686f6f };

// One frame's place in the split: structures of equal key stay together.
typedef struct place {
    int64_t key;
    size_t frame;
} place;

// A group of structures and its rank in a random order.
typedef struct split_group {
    int64_t key;
    const char *type; // config_type of its first structure
    double rank;
    size_t n_frames;
    bool validation;
    bool is_atom;         // a structure of one atom
    uint64_t elements[2]; // bit z: it has atoms of this element
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

static int compare_types(const void *a, const void *b)
{
    const split_group *x = a, *y = b;
    const int order = strcmp(x->type, y->type);
    return order != 0 ? order : compare_ranks(a, b);
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

static bool has_element(const split_group *group, int z)
{
    return group->elements[z / 64] >> z % 64 & 1;
}

// Has every element of this group another one, of which `n_groups_of` are not held back? A model learns nothing of an element without, nor
// from other structures of the energy of an atom alone.
static bool may_leave(const split_group *group, const size_t *n_groups_of)
{
    if (group->is_atom) return false;
    for (int z = 0; z <= MLFF_MAX_ATOMIC_NUMBER; z++)
        if (has_element(group, z) && n_groups_of[z] < 2) return false;
    return true;
}

// Type by type, groups in random order go to validation while more than half of each is within the share of the types so far and they leave
// others of their elements; the smallest where none does. Of groups that fit into the share as a whole, nine trajectories of which one is
// short would always hold out the short one alone.
static void choose_groups(split_group *groups, size_t n_groups, double fraction)
{
    double share = 0;
    size_t taken = 0, smallest = 0, smallest_to_leave = n_groups, n_groups_of[MLFF_MAX_ATOMIC_NUMBER + 1] = {0};
    qsort(groups, n_groups, sizeof *groups, compare_types);
    for (size_t g = 0; g < n_groups; g++)
        for (int z = 0; z <= MLFF_MAX_ATOMIC_NUMBER; z++) n_groups_of[z] += has_element(&groups[g], z);
    for (size_t g = 0; g < n_groups; g++) {
        if (g == 0 || strcmp(groups[g].type, groups[g - 1].type) != 0)
            for (size_t k = g; k < n_groups && strcmp(groups[k].type, groups[g].type) == 0; k++)
                share += fraction * (double)groups[k].n_frames;
        if (groups[g].n_frames < groups[smallest].n_frames) smallest = g;
        if (!may_leave(&groups[g], n_groups_of)) continue;
        if (smallest_to_leave == n_groups || groups[g].n_frames < groups[smallest_to_leave].n_frames) smallest_to_leave = g;
        if ((double)taken + 0.5 * (double)groups[g].n_frames > share) continue;
        groups[g].validation = true;
        taken += groups[g].n_frames;
        for (int z = 0; z <= MLFF_MAX_ATOMIC_NUMBER; z++) n_groups_of[z] -= has_element(&groups[g], z);
    }
    if (taken == 0) groups[smallest_to_leave < n_groups ? smallest_to_leave : smallest].validation = true;
}

static void note_elements(split_group *group, const mlff_system *system)
{
    const bool periodic = system->periodic[0] || system->periodic[1] || system->periodic[2];
    group->is_atom = group->is_atom || (system->n_atoms == 1 && !periodic);
    for (int i = 0; i < system->n_atoms; i++) {
        const int z = system->species[i];
        group->elements[z / 64] |= UINT64_C(1) << z % 64;
    }
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
            groups[n_groups] = (split_group){.key = places[k].key, .type = dataset->frames[places[k].frame].system->config_type};
            groups[n_groups].rank = base_random_uniform(seed, STREAM_SPLIT, n_groups);
            n_groups++;
        }
        groups[n_groups - 1].n_frames++;
        note_elements(&groups[n_groups - 1], dataset->frames[places[k].frame].system);
    }
    if (n_groups < 2) MLFF_FAIL(MLFF_ERR_USAGE, "a dataset of one Hessian probe cannot be split");
    choose_groups(groups, n_groups, fraction);
    qsort(groups, n_groups, sizeof *groups, compare_keys);
    for (size_t k = 0, g = 0; k < n; k++) {
        while (groups[g].key != places[k].key) g++;
        validates[places[k].frame] = groups[g].validation;
    }

    MLFF_TRY(mlff_dataset_create(&parts[0]));
    MLFF_TRY(mlff_dataset_create(&parts[1]));
    for (int k = 0; k < 2; k++) MLFF_TRY(energy_kinds_join(&parts[k]->kinds, &dataset->kinds));
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

// ---- a part of many structures

mlff_status dataset_choose(mlff_dataset *dataset, int64_t n, uint64_t seed)
{
    mlff_status status = MLFF_OK;
    const size_t n_frames = dataset->n_frames;
    size_t n_groups = 0, n_left = (size_t)n;
    split_group *groups = base_alloc(n_frames, sizeof *groups, "a choice"); // a structure, or a probe's two
    bool *removed = base_alloc(n_frames, sizeof *removed, "a choice");
    if (!groups || !removed) MLFF_TRY(MLFF_ERR_MEMORY);
    for (size_t f = 0; f < n_frames; f++) {
        if (!is_probe_end(dataset, f)) groups[n_groups++] = (split_group){.key = (int64_t)f};
        groups[n_groups - 1].n_frames++;
    }
    for (size_t g = 0; g < n_groups; g++) groups[g].rank = base_random_uniform(seed, STREAM_CHOOSE, g);
    qsort(groups, n_groups, sizeof *groups, compare_ranks);
    for (size_t g = 0; g < n_groups; g++) {
        if (groups[g].n_frames > n_left)
            removed[groups[g].key] = true;
        else
            n_left -= groups[g].n_frames;
    }
    dataset_remove(dataset, removed);
done:
    base_free(removed);
    base_free(groups);
    return status;
}
