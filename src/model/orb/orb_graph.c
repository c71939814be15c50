// SPDX-License-Identifier: MIT
// orb_graph.c: the nearest neighbors of each atom, as edges, and the edges that end in each atom.
#include "orb_graph.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct orb_candidate {
    double square;
    int32_t pair;
} orb_candidate;

static int nearer(const void *a, const void *b)
{
    const orb_candidate *p = a, *q = b;
    if (p->square != q->square) return p->square < q->square ? -1 : 1;
    return p->pair < q->pair ? -1 : 1;
}

static int by_pair(const void *a, const void *b)
{
    const orb_candidate *p = a, *q = b;
    return p->pair < q->pair ? -1 : p->pair > q->pair;
}

// The edges of sender i. Distances that differ by less than rounding, 1e-9 of their square, count as equal.
static void select_row(orb_graph *graph, const orb_parameters *p, const model_graph *pairs, int i)
{
    orb_candidate *row = graph->row;
    int n = 0;
    for (int k = pairs->first[i]; k < pairs->first[i + 1]; k++) {
        const double *v = pairs->vectors + 3 * (size_t)k, square = v[0] * v[0] + v[1] * v[1] + v[2] * v[2];
        if (square < p->cutoff * p->cutoff) row[n++] = (orb_candidate){square, k};
    }
    if (n > p->max_neighbors) {
        qsort(row, (size_t)n, sizeof *row, nearer);
        const double last = row[p->max_neighbors - 1].square, dropped = row[p->max_neighbors].square;
        graph->n_ties += dropped - last < 1e-9 * dropped;
        n = p->max_neighbors;
        qsort(row, (size_t)n, sizeof *row, by_pair);
    }
    for (int k = 0; k < n; k++) {
        const size_t e = (size_t)graph->n_edges++;
        const double *v = pairs->vectors + 3 * (size_t)row[k].pair, d = sqrt(row[k].square);
        graph->sender[e] = i;
        graph->receiver[e] = pairs->neighbor[row[k].pair];
        graph->pair[e] = row[k].pair;
        graph->distance[e] = d;
        for (int c = 0; c < 3; c++) graph->direction[3 * e + (size_t)c] = v[c] / d;
        graph->envelope[e] = orb_envelope(4, d, p->cutoff, &graph->envelope_slope[e]);
    }
}

static void find_incoming(orb_graph *graph)
{
    int32_t *first = graph->first_incoming;
    memset(first, 0, sizeof *first * ((size_t)graph->n_atoms + 1));
    for (int e = 0; e < graph->n_edges; e++) first[graph->receiver[e] + 1]++;
    for (int j = 0; j < graph->n_atoms; j++) first[j + 1] += first[j];
    for (int e = 0; e < graph->n_edges; e++) graph->incoming[first[graph->receiver[e]]++] = e;
    for (int j = graph->n_atoms; j > 0; j--) first[j] = first[j - 1]; // each first has become the end of its row
    first[0] = 0;
}

static mlff_status reserve(orb_graph *graph, size_t n_atoms, size_t n_edges, size_t row)
{
    mlff_status status = MLFF_OK;
    const size_t before = graph->atom_capacity + graph->edge_capacity + graph->row_capacity;
    if (n_atoms + 1 > graph->atom_capacity) {
        const size_t n = n_atoms + n_atoms / 4 + 1;
        size_t none;
        MLFF_TRY((none = 0, base_grow(&graph->first, &none, n, sizeof(int32_t), "edges")));
        MLFF_TRY((none = 0, base_grow(&graph->first_incoming, &none, n, sizeof(int32_t), "edges")));
        graph->atom_capacity = n;
    }
    if (n_edges > graph->edge_capacity || !graph->sender) {
        const size_t n = n_edges + n_edges / 4 + 1;
        int32_t **counts[] = {&graph->sender, &graph->receiver, &graph->pair, &graph->incoming};
        double **values[] = {&graph->distance, &graph->envelope, &graph->envelope_slope};
        size_t none;
        for (size_t k = 0; k < sizeof counts / sizeof *counts; k++)
            MLFF_TRY((none = 0, base_grow(counts[k], &none, n, sizeof(int32_t), "edges")));
        for (size_t k = 0; k < sizeof values / sizeof *values; k++)
            MLFF_TRY((none = 0, base_grow(values[k], &none, n, sizeof(double), "edges")));
        MLFF_TRY((none = 0, base_grow(&graph->direction, &none, 3 * n, sizeof(double), "edges")));
        graph->edge_capacity = n;
    }
    MLFF_TRY(base_grow(&graph->row, &graph->row_capacity, row, sizeof *graph->row, "edges"));
    if (before != graph->atom_capacity + graph->edge_capacity + graph->row_capacity) graph->n_growths++;
done:
    return status;
}

static void warn_of_ties(orb_graph *graph, int max_neighbors)
{
    if (graph->n_ties == 0 || graph->warned_of_ties) return;
    graph->warned_of_ties = true;
    base_warn(ORB_TIES_WARNING, graph->n_ties, graph->n_atoms, max_neighbors);
}

mlff_status orb_graph_update(orb_graph *graph, const orb_parameters *p, const model_graph *pairs)
{
    size_t n_edges = 0, longest = 1;
    for (int i = 0; i < pairs->n_atoms; i++) {
        const size_t n = (size_t)(pairs->first[i + 1] - pairs->first[i]);
        n_edges += n < (size_t)p->max_neighbors ? n : (size_t)p->max_neighbors;
        if (n > longest) longest = n;
    }
    mlff_status status = reserve(graph, (size_t)pairs->n_atoms, n_edges, longest);
    if (status != MLFF_OK) return status;
    graph->n_atoms = pairs->n_atoms;
    graph->n_edges = graph->n_ties = 0;
    for (int i = 0; i < pairs->n_atoms; i++) {
        graph->first[i] = graph->n_edges;
        select_row(graph, p, pairs, i);
    }
    graph->first[pairs->n_atoms] = graph->n_edges;
    find_incoming(graph);
    warn_of_ties(graph, p->max_neighbors);
    return MLFF_OK;
}

int64_t orb_graph_bytes(const orb_graph *graph)
{
    return (int64_t)(graph->atom_capacity * 2 * sizeof(int32_t) +
                     graph->edge_capacity * (4 * sizeof(int32_t) + 6 * sizeof(double)) +
                     graph->row_capacity * sizeof *graph->row);
}

void orb_graph_free(orb_graph *graph)
{
    void *arrays[] = {graph->first,          graph->sender,         graph->receiver, graph->pair,
                      graph->first_incoming, graph->incoming,       graph->distance, graph->direction,
                      graph->envelope,       graph->envelope_slope, graph->row};
    for (size_t k = 0; k < sizeof arrays / sizeof *arrays; k++) base_free(arrays[k]);
    *graph = (orb_graph){0};
}

mlff_status orb_check_graph(const orb_parameters *p, const model_graph *pairs)
{
    for (int s = 0; p->conditioned && s < pairs->n_systems; s++) {
        const double charge = pairs->charges ? pairs->charges[s] : NAN, spin = pairs->spins ? pairs->spins[s] : NAN;
        if (!isfinite(charge) || !isfinite(spin))
            return mlff_fail(MLFF_ERR_VALUE,
                             "this model depends on charge and spin, and system %d has none; give both (charge= "
                             "and spin= in the comment of extended XYZ, atoms.info in Python)",
                             s);
    }
    return MLFF_OK;
}
