/* SPDX-License-Identifier: MIT */
/* orb_graph.h: the edges of Orb, and the functions of an edge or of a system that are computed in float64 by every CPU
 * implementation. Symbols as in orb_model.h. */
#ifndef ORB_GRAPH_H
#define ORB_GRAPH_H

#include "orb_model.h"

/* Edges grouped by sender, ascending; inside a sender in the order of the neighbor list. */
typedef struct orb_graph {
    int n_atoms, n_edges;
    int32_t *first;                    /* [n_atoms + 1] edges of each sender */
    int32_t *sender, *receiver;        /* [n_edges] */
    int32_t *pair;                     /* [n_edges] index in the neighbor list */
    int32_t *first_incoming;           /* [n_atoms + 1] */
    int32_t *incoming;                 /* [n_edges] edges by receiver, ascending */
    double *distance, *direction;      /* [n_edges], [n_edges][3] from sender to receiver */
    double *envelope, *envelope_slope; /* [n_edges] */
    int64_t n_growths;
    int n_ties; /* senders whose last edge is as long as one that was dropped */
    bool warned_of_ties;
    size_t atom_capacity, edge_capacity, row_capacity;
    struct orb_candidate *row;
} orb_graph;

/* Keeps the nearest max_neighbors pairs of each atom within the cutoff; of equal distances, the first of the list. Fails with
 * MLFF_ERR_MEMORY. Warns once for each `graph` of a tie: the distances do not say which of the neighbors are kept. */
mlff_status orb_graph_update(orb_graph *graph, const orb_parameters *parameters, const model_graph *pairs);
int64_t orb_graph_bytes(const orb_graph *graph);
void orb_graph_free(orb_graph *graph);

/* Polynomial envelope 1 - (p+1)(p+2)/2 x^p + p(p+2) x^(p+1) - p(p+1)/2 x^(p+2) of x = d / end, 0 from `end` on; its slope in d. */
double orb_envelope(int power, double d, double end, double *slope);
/* Inputs of an edge [n_edge_inputs]; `envelope` is its value at d. */
void orb_edge_inputs(const orb_parameters *parameters, double d, const double u[3], double envelope, double *inputs);
/* dE/dr [3] of the edge's vector from dE/d(inputs) and dE/d(envelope), Bessel functions and harmonics only. */
void orb_edge_inputs_backward(const orb_parameters *parameters, double d, const double u[3], double envelope, double slope,
                              const double *inputs_bar, double envelope_bar, double vector_bar[3]);

/* Direct forces [n][3] of one system in place: the mean is removed and, without a cell, the net torque; then scale and mean.
 * `positions` [n][3]. */
void orb_finish_forces(const orb_parameters *parameters, int n, const double *positions, bool has_cell, double *forces);
/* Inputs of the conditioning [F] of a system. */
void orb_condition_inputs(const orb_parameters *parameters, double charge, double spin, double *inputs);
/* Adds the repulsion of every system to the outputs that are not NULL. */
void orb_add_repulsion(const orb_parameters *parameters, const orb_graph *graph, const model_graph *pairs,
                       const model_outputs *outputs);
/* Refuses what Orb cannot compute: atoms of other processes; with conditioning, a system without charge or spin. Fails with
 * MLFF_ERR_UNSUPPORTED, MLFF_ERR_VALUE. */
mlff_status orb_check_graph(const orb_parameters *parameters, const model_graph *pairs);

#endif
