// SPDX-License-Identifier: MIT
// pairs.c: pairs given by a caller, cut to the model's cutoff and put in canonical order, so that bits do not
// depend on the order in which an MD engine lists them.
#include "pairs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int compare(const pairs_entry *a, const pairs_entry *b)
{
    if (a->neighbor != b->neighbor) return a->neighbor < b->neighbor ? -1 : 1;
    for (int c = 0; c < 3; c++)
        if (a->shift[c] != b->shift[c]) return a->shift[c] < b->shift[c] ? -1 : 1;
    // Ghosts given as atoms of their own need no shift; equal keys then mean the pair was listed twice.
    return 0;
}

static int compare_void(const void *a, const void *b)
{
    return compare(a, b);
}

// The pairs of one row that lie within the cutoff, with their vectors.
static mlff_status read_row(pairs_filter *filter, const mlff_batch *batch, int system, int i, double cutoff)
{
    const mlff_pairs *pairs = batch->pairs;
    const double *h = batch->cells ? batch->cells + 9 * (size_t)system : NULL;
    int begin = filter->n_pairs;
    for (int p = pairs->first[i]; p < pairs->first[i + 1]; p++) {
        int j = pairs->neighbor[p];
        if (j < batch->first_atom[system] || j >= batch->first_atom[system + 1])
            return mlff_fail(MLFF_ERR_VALUE, "pair %d joins atom %d to atom %d, which is not of its system %d", p, i, j, system);
        pairs_entry entry = {.neighbor = j};
        if (pairs->shift) memcpy(entry.shift, pairs->shift + 3 * (size_t)p, sizeof entry.shift);
        double square = 0;
        for (int c = 0; c < 3; c++) {
            double offset = 0;
            for (int k = 0; k < 3; k++)
                if (entry.shift[k] != 0) offset += entry.shift[k] * (h ? h[3 * k + c] : NAN);
            double r = (batch->positions[3 * (size_t)j + c] - batch->positions[3 * (size_t)i + c]) + offset;
            entry.vector[c] = r;
            square += r * r;
        }
        if (!isfinite(square))
            return mlff_fail(MLFF_ERR_VALUE, "the distance of atoms %d and %d is not finite; check positions, cell and shifts", i,
                             j);
        if (square < 1e-12)
            return mlff_fail(MLFF_ERR_VALUE, "atoms %d and %d of system %d are on one point; move one of them",
                             i - batch->first_atom[system], j - batch->first_atom[system], system);
        if (square < cutoff * cutoff) filter->entries[filter->n_pairs++] = entry;
    }
    int n = filter->n_pairs - begin;
    pairs_entry *row = filter->entries + begin;
    for (int k = 1; k < n; k++)
        if (compare(&row[k - 1], &row[k]) >= 0) { // most engines have rows in another order
            qsort(row, (size_t)n, sizeof *row, compare_void);
            break;
        }
    for (int k = 1; k < n; k++)
        if (compare(&row[k - 1], &row[k]) == 0)
            return mlff_fail(MLFF_ERR_VALUE, "atom %d lists its neighbor %d twice with the same shift", i, (int)row[k].neighbor);
    return MLFF_OK;
}

static mlff_status find_reverse(pairs_filter *filter)
{
    for (int i = 0; i < filter->n_atoms; i++)
        for (int p = filter->first[i]; p < filter->first[i + 1]; p++) {
            const pairs_entry *entry = &filter->entries[p];
            int j = entry->neighbor;
            pairs_entry wanted = {.neighbor = i, .shift = {-entry->shift[0], -entry->shift[1], -entry->shift[2]}};
            const pairs_entry *found = bsearch(&wanted, filter->entries + filter->first[j],
                                               (size_t)(filter->first[j + 1] - filter->first[j]), sizeof wanted, compare_void);
            if (!found)
                return mlff_fail(MLFF_ERR_VALUE,
                                 "pairs are said to be symmetric, but pair %d to %d has no reverse; set symmetric = 0", i, j);
            filter->reverse[p] = (int32_t)(found - filter->entries);
        }
    return MLFF_OK;
}

// What the neighbor list checks of its own systems: a lone atom without a number as position, a cell that gives no stress.
static mlff_status check_system(const mlff_batch *batch, int system)
{
    const unsigned char *periodic = batch->periodic ? batch->periodic + 3 * (size_t)system : NULL;
    const double *h = batch->cells ? batch->cells + 9 * (size_t)system : NULL;
    for (int i = batch->first_atom[system]; i < batch->first_atom[system + 1]; i++)
        for (int c = 0; c < 3; c++)
            if (!isfinite(batch->positions[3 * (size_t)i + (size_t)c]))
                return mlff_fail(MLFF_ERR_VALUE, "atom %d of system %d has a coordinate that is not finite; correct its position",
                                 i - batch->first_atom[system], system);
    if (!periodic || !h) return MLFF_OK;
    double edges = 1;
    for (int k = 0; k < 3; k++) {
        const double edge = sqrt(h[3 * k] * h[3 * k] + h[3 * k + 1] * h[3 * k + 1] + h[3 * k + 2] * h[3 * k + 2]);
        if (periodic[k] && !(edge > 0 && isfinite(edge)))
            return mlff_fail(MLFF_ERR_VALUE, "the cell of system %d has a vector of %g Å along %c, where it repeats; give a cell",
                             system, edge, "abc"[k]);
        edges *= edge;
    }
    const double volume =
        h[0] * (h[4] * h[8] - h[5] * h[7]) - h[1] * (h[3] * h[8] - h[5] * h[6]) + h[2] * (h[3] * h[7] - h[4] * h[6]);
    if (periodic[0] && periodic[1] && periodic[2] && !(fabs(volume) > 1e-8 * edges))
        return mlff_fail(MLFF_ERR_VALUE,
                         "the cell of system %d repeats along a b c but its vectors there span no volume; give a cell", system);
    return MLFF_OK;
}

mlff_status pairs_filter_update(pairs_filter *filter, const mlff_batch *batch, double cutoff)
{
    mlff_status status = MLFF_OK;
    const mlff_pairs *pairs = batch->pairs;
    int n_atoms = batch->first_atom[batch->n_systems];
    if (!pairs->first || !pairs->neighbor || pairs->first[0] != 0)
        return mlff_fail(MLFF_ERR_USAGE, "pairs: first and neighbor must be given, and first[0] must be 0");
    for (int i = 0; i < n_atoms; i++)
        if (pairs->first[i + 1] < pairs->first[i]) return mlff_fail(MLFF_ERR_USAGE, "pairs: row %d ends before it begins", i);

    size_t n_given = (size_t)pairs->first[n_atoms],
           before = filter->entry_capacity + filter->pair_capacity + filter->atom_capacity;
    if (!filter->first || (size_t)n_atoms + 1 > filter->atom_capacity)
        MLFF_TRY(base_grow(&filter->first, &filter->atom_capacity, (size_t)n_atoms + 1, sizeof(int32_t), "pairs"));
    MLFF_TRY(base_grow(&filter->entries, &filter->entry_capacity, n_given, sizeof *filter->entries, "pairs"));
    if (!filter->vectors || n_given > filter->pair_capacity) {
        size_t wanted = n_given + n_given / 4, none;
        MLFF_TRY((none = 0, base_grow(&filter->neighbor, &none, wanted, sizeof(int32_t), "pairs")));
        MLFF_TRY((none = 0, base_grow(&filter->shift, &none, 3 * wanted, sizeof(int32_t), "pairs")));
        MLFF_TRY((none = 0, base_grow(&filter->reverse, &none, wanted, sizeof(int32_t), "pairs")));
        MLFF_TRY((none = 0, base_grow(&filter->vectors, &none, 3 * wanted, sizeof(double), "pairs")));
        filter->pair_capacity = wanted;
    }
    if (before != filter->entry_capacity + filter->pair_capacity + filter->atom_capacity) filter->n_growths++;

    filter->n_atoms = n_atoms;
    filter->n_pairs = 0;
    filter->symmetric = pairs->symmetric != 0;
    for (int s = 0; s < batch->n_systems; s++) MLFF_TRY(check_system(batch, s));
    for (int s = 0; s < batch->n_systems; s++)
        for (int i = batch->first_atom[s]; i < batch->first_atom[s + 1]; i++) {
            filter->first[i] = filter->n_pairs;
            MLFF_TRY(read_row(filter, batch, s, i, cutoff));
        }
    filter->first[n_atoms] = filter->n_pairs;
    for (int p = 0; p < filter->n_pairs; p++) {
        filter->neighbor[p] = filter->entries[p].neighbor;
        memcpy(filter->shift + 3 * (size_t)p, filter->entries[p].shift, sizeof filter->entries[p].shift);
        memcpy(filter->vectors + 3 * (size_t)p, filter->entries[p].vector, sizeof filter->entries[p].vector);
    }
    if (filter->symmetric) MLFF_TRY(find_reverse(filter));
done:
    return status;
}

void pairs_filter_get(const pairs_filter *filter, mlff_pairs *pairs_out, const double **vectors_out, const int32_t **reverse_out)
{
    *pairs_out = (mlff_pairs){filter->first, filter->neighbor, filter->shift, filter->symmetric};
    *vectors_out = filter->vectors;
    *reverse_out = filter->symmetric ? filter->reverse : NULL;
}

int64_t pairs_filter_bytes(const pairs_filter *filter)
{
    return (int64_t)(filter->entry_capacity * sizeof *filter->entries +
                     filter->pair_capacity * (5 * sizeof(int32_t) + 3 * sizeof(double)) +
                     filter->atom_capacity * sizeof(int32_t));
}

void pairs_filter_free(pairs_filter *filter)
{
    base_free(filter->entries);
    base_free(filter->first);
    base_free(filter->neighbor);
    base_free(filter->shift);
    base_free(filter->reverse);
    base_free(filter->vectors);
    *filter = (pairs_filter){0};
}
