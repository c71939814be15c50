// SPDX-License-Identifier: MIT
// painn_cpu_ghosts.c: which ghost atoms a layer matters for, and lists that are not symmetric read from the other end.
//
// The energy of an owned atom depends on layer l of L (0-based) at atoms that are at most L − 1 − l edges away. A caller that sorts
// atoms by that number of edges, as the KIM driver does, makes each layer end early.
#include <string.h>

#include "painn_cpu.h"

// Breadth-first search along the rows; levels beyond n_layers are UINT8_MAX.
static void find_levels(const model_graph *graph, int n_layers, unsigned char *level)
{
    for (int i = 0; i < graph->n_atoms; i++) level[i] = graph->owned[i] ? 0 : UINT8_MAX;
    for (int k = 0; k < n_layers; k++)
        for (int i = 0; i < graph->n_atoms; i++)
            for (int p = graph->first[i]; level[i] == k && p < graph->first[i + 1]; p++)
                if (level[graph->neighbor[p]] > k + 1) level[graph->neighbor[p]] = (unsigned char)(k + 1);
}

mlff_status painn_cpu_find_reach(painn_cpu *c, const model_graph *graph, int reach[PAINN_MAX_LAYERS + 1])
{
    mlff_status status = MLFF_OK;
    const int L = c->parameters.n_layers, n = graph->n_atoms;
    for (int k = 0; k <= L; k++) reach[k] = n;
    // With halo hooks every layer is complete: other processes read it.
    if (graph->reverse || graph->halo || !graph->owned) return MLFF_OK;
    MLFF_TRY(base_grow(&c->level, &c->level_capacity, (size_t)n, 1, "atoms"));
    find_levels(graph, L, c->level);
    for (int i = 1; i < n; i++)
        if (c->level[i] < c->level[i - 1]) return MLFF_OK; // not sorted
    for (int k = L; k >= 0; k--)
        while (reach[k] > 0 && c->level[reach[k] - 1] > k) reach[k]--;
done:
    return status;
}

int painn_cpu_find_exchanged(const model_graph *graph)
{
    if (!graph->halo || !graph->owned) return -1;
    int n_owned = 0;
    while (n_owned < graph->n_atoms && graph->owned[n_owned]) n_owned++;
    for (int i = n_owned; i < graph->n_atoms; i++)
        if (graph->owned[i]) return -1;
    return n_owned;
}

mlff_status painn_cpu_collect_incoming(painn_cpu *c, const model_graph *graph, int n_rows)
{
    mlff_status status = MLFF_OK;
    size_t needed = (size_t)graph->n_atoms + 1 > (size_t)graph->n_pairs ? (size_t)graph->n_atoms + 1 : (size_t)graph->n_pairs;
    if (needed > c->incoming_capacity || !c->incoming_first) {
        size_t wanted = needed + needed / 4, none;
        int32_t **const arrays[] = {&c->incoming_first, &c->incoming_row, &c->incoming_center, &c->incoming_last,
                                    &c->incoming_before};
        c->n_growths++;
        for (size_t k = 0; k < sizeof arrays / sizeof *arrays; k++)
            MLFF_TRY((none = 0, base_grow(arrays[k], &none, wanted, sizeof(int32_t), "pairs")));
        base_free(c->incoming_pairs);
        c->incoming_pairs = NULL;
        MLFF_TRY((none = 0, base_grow(&c->incoming_pairs, &none, wanted, sizeof *c->incoming_pairs, "pairs")));
        c->incoming_capacity = wanted;
    }
    int32_t *first = c->incoming_first;
    memset(first, 0, sizeof *first * ((size_t)graph->n_atoms + 1));
    for (int p = 0; p < graph->first[n_rows]; p++) first[graph->neighbor[p] + 1]++;
    for (int i = 0; i < graph->n_atoms; i++) first[i + 1] += first[i];
    for (int i = 0; i < n_rows; i++)
        for (int p = graph->first[i]; p < graph->first[i + 1]; p++) {
            int32_t at = first[graph->neighbor[p]]++;
            c->incoming_row[p] = at;
            c->incoming_center[at] = i;
        }
    for (int i = graph->n_atoms; i > 0; i--) first[i] = first[i - 1];
    first[0] = 0;
    memcpy(c->incoming_last, first, sizeof *first * (size_t)graph->n_atoms);
done:
    return status;
}
