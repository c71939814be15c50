// SPDX-License-Identifier: MIT
// dataset_split.c: a part of a dataset is held back for validation, by whole groups.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "composition.h"
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
    const char *type;                         // config_type of its first structure
    char composition[COMPOSITION_NAME_BYTES]; // of that structure
    size_t kind, family;
    double rank;
    size_t n_frames;
    bool validation;
    bool missing;         // in validation its family has none yet
    bool is_atom;         // a structure of one atom
    uint64_t elements[2]; // bit z: it has atoms of this element
} split_group;

// Groups of one kind (composition and type), or of one family (composition and the type's first word: "md" of "md 300 K").
typedef struct split_count {
    size_t n_groups, n_held;
} split_count;

typedef struct split_state {
    split_group *groups; // [n_groups]
    size_t n_groups;
    split_count *kinds, *families;                  // [n_groups] at most
    size_t n_groups_of[MLFF_MAX_ATOMIC_NUMBER + 1]; // with this element, not held back
    size_t n_frames, taken;
    double fraction;
} split_state;

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

static int compare_words(const split_group *a, const split_group *b)
{
    const size_t length_a = strcspn(a->type, " "), length_b = strcspn(b->type, " ");
    const int order = memcmp(a->type, b->type, length_a < length_b ? length_a : length_b);
    return order != 0 ? order : (length_a > length_b) - (length_a < length_b);
}

static int compare_families(const split_group *a, const split_group *b)
{
    const int order = compare_words(a, b);
    return order != 0 ? order : strcmp(a->composition, b->composition);
}

static int compare_kinds(const void *a, const void *b)
{
    const int order = compare_families(a, b);
    return order != 0 ? order : compare_types(a, b);
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

static void count_kinds(split_state *split)
{
    split_group *groups = split->groups;
    size_t kind = 0, family = 0;
    qsort(groups, split->n_groups, sizeof *groups, compare_kinds);
    for (size_t g = 0; g < split->n_groups; g++) {
        const bool is_other = g > 0 && compare_families(&groups[g], &groups[g - 1]) != 0;
        family += is_other;
        kind += is_other || (g > 0 && strcmp(groups[g].type, groups[g - 1].type) != 0);
        groups[g].family = family;
        groups[g].kind = kind;
        split->families[family].n_groups++;
        split->kinds[kind].n_groups++;
        split->n_frames += groups[g].n_frames;
        for (int z = 0; z <= MLFF_MAX_ATOMIC_NUMBER; z++) split->n_groups_of[z] += has_element(&groups[g], z);
    }
}

// Groups of a family that may be held back: of three one, so that there are others for training and for another such split.
static size_t most_held(const split_count *family, double fraction)
{
    const size_t most = (size_t)ceil(fmax(fraction, 1.0 / 3) * (double)family->n_groups - 1e-9);
    return family->n_groups > 1 && most == family->n_groups ? most - 1 : most;
}

// Has every element of this group, and its kind, another one that is not held back? A model learns nothing of an element without, nor
// from other structures of the energy of an atom alone.
static bool may_leave(const split_state *split, const split_group *group)
{
    const split_count *kind = &split->kinds[group->kind], *family = &split->families[group->family];
    if (group->is_atom || family->n_held >= most_held(family, split->fraction)) return false;
    if (kind->n_groups > 1 && kind->n_held + 1 >= kind->n_groups) return false;
    for (int z = 0; z <= MLFF_MAX_ATOMIC_NUMBER; z++)
        if (has_element(group, z) && split->n_groups_of[z] < 2) return false;
    return true;
}

static void hold_back(split_state *split, split_group *group)
{
    group->validation = true;
    split->taken += group->n_frames;
    split->kinds[group->kind].n_held++;
    split->families[group->family].n_held++;
    for (int z = 0; z <= MLFF_MAX_ATOMIC_NUMBER; z++) split->n_groups_of[z] -= has_element(group, z);
}

// Where a word has groups of some compositions alone in validation, marks one of each other composition that has two. Returns their frames.
static size_t mark_missing(split_state *split)
{
    split_group *groups = split->groups;
    size_t n_frames = 0;
    for (size_t first = 0, end; first < split->n_groups; first = end) {
        bool any = false;
        for (end = first; end < split->n_groups && compare_words(&groups[end], &groups[first]) == 0; end++)
            any = any || groups[end].validation;
        for (size_t g = first, next; any && g < end; g = next) {
            split_group *lowest = NULL;
            for (next = g; next < end && groups[next].family == groups[g].family; next++)
                if (may_leave(split, &groups[next]) && (!lowest || groups[next].rank < lowest->rank)) lowest = &groups[next];
            if (!lowest || next - g < 2 || split->families[groups[g].family].n_held > 0) continue;
            lowest->missing = true;
            n_frames += lowest->n_frames;
        }
    }
    return n_frames;
}

// The few long trajectories of each of several molecules are more than their share: by that alone, errors would be those of the molecule
// with the shortest ones. Not of hundreds of molecules, where that would be far more than the share of all.
static void add_missing(split_state *split)
{
    split_group *groups = split->groups;
    qsort(groups, split->n_groups, sizeof *groups, compare_kinds);
    if ((double)(split->taken + mark_missing(split)) > 2 * split->fraction * (double)split->n_frames) return;
    for (size_t g = 0; g < split->n_groups; g++)
        if (groups[g].missing && may_leave(split, &groups[g])) hold_back(split, &groups[g]);
}

// Type by type, groups in random order go to validation while more than half of each is within the share of the types so far and they leave
// others of their elements and kinds; the smallest where none does. Of groups that fit into the share as a whole, nine trajectories of which
// one is short would always hold out the short one alone.
static void choose_groups(split_state *split)
{
    double share = 0;
    split_group *groups = split->groups;
    const size_t n_groups = split->n_groups;
    size_t smallest = 0, smallest_to_leave = n_groups;
    count_kinds(split);
    qsort(groups, n_groups, sizeof *groups, compare_types);
    for (size_t g = 0; g < n_groups; g++) {
        if (g == 0 || strcmp(groups[g].type, groups[g - 1].type) != 0)
            for (size_t k = g; k < n_groups && strcmp(groups[k].type, groups[g].type) == 0; k++)
                share += split->fraction * (double)groups[k].n_frames;
        if (groups[g].n_frames < groups[smallest].n_frames) smallest = g;
        if (!may_leave(split, &groups[g])) continue;
        if (smallest_to_leave == n_groups || groups[g].n_frames < groups[smallest_to_leave].n_frames) smallest_to_leave = g;
        if ((double)split->taken + 0.5 * (double)groups[g].n_frames > share) continue;
        hold_back(split, &groups[g]);
    }
    if (split->taken == 0)
        groups[smallest_to_leave < n_groups ? smallest_to_leave : smallest].validation = true;
    else
        add_missing(split);
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
    split_state split = {.fraction = fraction};
    bool *validates = NULL;
    const size_t n = dataset->n_frames;
    size_t n_groups = 0;

    if (!(fraction > 0 && fraction < 1))
        return mlff_fail(MLFF_ERR_USAGE, "a share of %g for validation; give a number above 0 and below 1", fraction);
    if (n < 2)
        return mlff_fail(MLFF_ERR_USAGE, "a dataset of %zu structure%s cannot be split; two are needed", n,
                         base_plural((int64_t)n));
    if (!(places = base_alloc(n, sizeof *places, "a split")) || !(groups = base_alloc(n, sizeof *groups, "a split")) ||
        !(validates = base_alloc(n, sizeof *validates, "a split")) ||
        !(split.kinds = base_alloc(n, sizeof *split.kinds, "a split")) ||
        !(split.families = base_alloc(n, sizeof *split.families, "a split")))
        MLFF_TRY(MLFF_ERR_MEMORY);

    find_places(dataset, places);
    qsort(places, n, sizeof *places, compare_places);
    for (size_t k = 0; k < n; k++) {
        if (k == 0 || places[k].key != places[k - 1].key) {
            const mlff_system *system = dataset->frames[places[k].frame].system;
            groups[n_groups] = (split_group){.key = places[k].key, .type = system->config_type};
            composition_name(system, groups[n_groups].composition);
            groups[n_groups].rank = base_random_uniform(seed, STREAM_SPLIT, n_groups);
            n_groups++;
        }
        groups[n_groups - 1].n_frames++;
        note_elements(&groups[n_groups - 1], dataset->frames[places[k].frame].system);
    }
    if (n_groups < 2) MLFF_FAIL(MLFF_ERR_USAGE, "a dataset of one Hessian probe cannot be split");
    split.groups = groups;
    split.n_groups = n_groups;
    choose_groups(&split);
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
    base_free(split.families);
    base_free(split.kinds);
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
