// SPDX-License-Identifier: MIT
// verdict_compositions.c: errors on held-out structures, by their composition.
#include "verdict_compositions.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double composition_force_error(const verdict_composition *c)
{
    return c->n_components > 0 ? c->force_absolute / (double)c->n_components : NAN;
}

double composition_energy_error(const verdict_composition *c)
{
    return c->n_energies > 0 ? c->energy_absolute / (double)c->n_energies : NAN;
}

static int compare_names(const void *left, const void *right)
{
    const verdict_composition *a = left, *b = right;
    return strcmp(a->name, b->name);
}

// Those without labelled forces come last.
static int compare_errors(const void *left, const void *right)
{
    const verdict_composition *a = left, *b = right;
    const double x = a->n_components > 0 ? composition_force_error(a) : -1.0;
    const double y = b->n_components > 0 ? composition_force_error(b) : -1.0;
    return x != y ? (x < y) - (x > y) : compare_names(left, right);
}

int compositions_merge(verdict_composition *list, size_t n)
{
    int n_names = 0;
    if (n == 0) return 0;
    qsort(list, n, sizeof *list, compare_names);
    for (size_t k = 1; k < n; k++) {
        verdict_composition *sum = &list[n_names];
        if (strcmp(sum->name, list[k].name) != 0) {
            list[++n_names] = list[k];
            continue;
        }
        sum->n_structures += list[k].n_structures;
        sum->n_components += list[k].n_components;
        sum->n_energies += list[k].n_energies;
        sum->force_absolute += list[k].force_absolute;
        sum->energy_absolute += list[k].energy_absolute;
    }
    n_names++;
    qsort(list, (size_t)n_names, sizeof *list, compare_errors);
    return n_names;
}
