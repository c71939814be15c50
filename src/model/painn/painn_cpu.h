/* SPDX-License-Identifier: MIT */
/* painn_cpu.h: the float32 evaluator of PaiNN: packed weights (painn_cpu_weights.c) and the step (painn_cpu.c). */
#ifndef PAINN_CPU_H
#define PAINN_CPU_H

#include "device/team.h"
#include "nn/nn.h"
#include "painn.h"
#include "painn_kernels.h"

typedef struct painn_cpu_layer {
    // Packed for x Wᵀ (forward) and for x̄ W (reverse).
    float *W1, *W2, *U, *M1, *M2, *W1_back, *W2_back, *U_back, *M1_back, *M2_back;
    float *b1, *b2, *c1, *c2;
    float *table;                               // [F/16][n_intervals + 5][3][16]
    float *x, *h_slope, *VB, *g_slope, *y, *mu; // saved by the forward pass, [n_atoms][3F, F, 6F, F, 3F, 3F]
} painn_cpu_layer;

typedef struct painn_cpu {
    model_backend backend;
    painn_parameters parameters;
    const nn_kernels *nn;
    const painn_kernels *painn;
    int n_threads, F; // F is padded
    mlff_stage *stages;
    float *embedding, *x0; // [n_species][F], [n_species][3F]
    int n_intervals;
    size_t slice;
    painn_cpu_layer layer[PAINN_MAX_LAYERS];
    int readout_width[PAINN_MAX_READOUT + 1]; // padded
    float *readout[PAINN_MAX_READOUT], *readout_back[PAINN_MAX_READOUT], *readout_bias[PAINN_MAX_READOUT];

    size_t atom_capacity, pair_capacity, incoming_capacity, level_capacity, x_bar_capacity;
    int64_t n_growths;
    float *q, *mu1;              // [n_atoms][F], [3F]
    float *q_bar[2], *mu_bar[2]; // alternate from layer to layer
    float *x_bar;                // with halo hooks: [n_atoms][3F]
    painn_pair *pairs;           // [n_pairs]
    float *pair_bar;             // [n_pairs][16]
    // Where the list is not symmetric: pairs that end in each atom, by center; how far a layer reads them, and the one before it.
    int32_t *incoming_first, *incoming_row, *incoming_center, *incoming_last, *incoming_before;
    painn_pair *incoming_pairs; // turned around, by the atom they end in
    unsigned char *level;       // [n_atoms] edges from an owned atom
    float *scratch[TEAM_MAX];   // [BLOCK][12 F or the readout's]
    size_t scratch_floats;
} painn_cpu;

/* Fills everything that comes from the parameters: packed layers, filter tables, the table of elements, the readout.
 * cpu->parameters, nn and F are set; on failure what was made is freed with the evaluator. */
mlff_status painn_cpu_load_weights(painn_cpu *cpu);

/* painn_cpu_ghosts.c. reach[k], k = 0..n_layers: atoms that are at most k edges away from an owned atom, where the caller sorted
 * atoms by that number and the list is not symmetric; else all atoms. */
mlff_status painn_cpu_find_reach(painn_cpu *cpu, const model_graph *graph, int reach[PAINN_MAX_LAYERS + 1]);
/* Owned atoms where halo hooks exchange all that others need, and owned atoms come first: layers need computing for those alone. −1 elsewhere. */
int painn_cpu_find_exchanged(const model_graph *graph);
/* The pairs of the first n_rows rows by the atom they end in, in list order: incoming_first, _center, _row (of each pair), room for
 * incoming_pairs; incoming_last = first. */
mlff_status painn_cpu_collect_incoming(painn_cpu *cpu, const model_graph *graph, int n_rows);

#endif
