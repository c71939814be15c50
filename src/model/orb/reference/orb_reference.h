/* SPDX-License-Identifier: MIT */
/* orb_reference.h: the float64 reference with what its stages computed, for tests of other implementations. */
#ifndef ORB_REFERENCE_H
#define ORB_REFERENCE_H

#include "model/orb/orb_graph.h"

/* Arrays of the last compute, in the data flow's order (orb_model.h). Edges are those of `graph`. */
typedef struct orb_reference_state {
    orb_graph graph;
    double *inputs;                    /* [n_edges][n_edge_inputs] */
    double *nodes[ORB_MAX_LAYERS + 1]; /* [n_atoms][F] input of each layer, conditioned; the last one: the output */
    double *edges[ORB_MAX_LAYERS + 1]; /* [n_edges][F] likewise */
    double *send[ORB_MAX_LAYERS];      /* [n_edges] sigmoid of the gate, without the envelope */
    double *receive[ORB_MAX_LAYERS];   /* [n_edges] */
    double *message[ORB_MAX_LAYERS];   /* [n_edges][F] m; after the reverse pass dE/dm */
    double *received[ORB_MAX_LAYERS], *sent[ORB_MAX_LAYERS]; /* [n_atoms][F] A_r, A_s */
    double *mean;                                            /* [n_systems][F] of the last nodes */
    double *force;                                           /* [n_atoms][3] of the head, before the mean is removed */
    double *nodes_bar, *edges_bar, *inputs_bar,
        *envelope_bar; /* dE/d(…) after the reverse pass; nodes: of the encoder's output */
} orb_reference_state;

/* Of a backend of orb_reference_create; valid until its next compute. */
const orb_reference_state *orb_reference_state_get(const model_backend *backend);

#endif
