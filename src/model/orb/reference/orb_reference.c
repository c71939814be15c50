// SPDX-License-Identifier: MIT
// orb_reference.c: Orb in float64, plain: the truth the other implementations are tested against.
//
// The equations and symbols are those of src/model/orb/README.md; a bar over a symbol there is a suffix `_bar` here. The
// reverse pass computes each network again, so that only the inputs of layers are kept.
#include <math.h>
#include <string.h>

#include "model/orb/orb_graph.h"
#include "orb_plain.h"

// Arrays of a compute, in the data flow's order (orb_model.h). Edges are those of `graph`.
typedef struct reference_state {
    orb_graph graph;
    double *inputs;                    // [n_edges][n_edge_inputs]
    double *nodes[ORB_MAX_LAYERS + 1]; // [n_atoms][F] input of each layer, conditioned; the last one: the output
    double *edges[ORB_MAX_LAYERS + 1]; // [n_edges][F] likewise
    double *send[ORB_MAX_LAYERS];      // [n_edges] sigmoid of the gate, without the envelope
    double *receive[ORB_MAX_LAYERS];   // [n_edges]
    double *message[ORB_MAX_LAYERS];   // [n_edges][F] m; after the reverse pass dE/dm
    double *received[ORB_MAX_LAYERS], *sent[ORB_MAX_LAYERS];   // [n_atoms][F] A_r, A_s
    double *mean;                                              // [n_systems][F] of the last nodes
    double *force;                                             // [n_atoms][3] of the head, before the mean is removed
    double *nodes_bar, *edges_bar, *inputs_bar, *envelope_bar; // dE/d(…) after the reverse pass; nodes: of the encoder's output
} reference_state;

typedef struct reference {
    model_backend backend;
    orb_parameters parameters;
    mlff_stage *stages;
    reference_state state;
    double *rows, *rows_bar; // [n_edges or n_atoms][3F] inputs of a network, and dE/d(…)
    double *sent_bar;        // [n_atoms][2F] dE/d(A_r), dE/d(A_s)
    double *encoded;         // [n_species][F] of the elements that occur
    double *scratch;
    size_t atom_capacity, edge_capacity, system_capacity;
    int64_t n_growths;
} reference;

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

// ---- forward ----------------------------------------------------------------------------------------------------------

static void encode(reference *r, const model_graph *graph)
{
    const orb_parameters *p = &r->parameters;
    reference_state *s = &r->state;
    const size_t F = (size_t)p->n_features;
    bool done[MLFF_MAX_ATOMIC_NUMBER + 1] = {false};
    for (int i = 0; i < graph->n_atoms; i++) {
        const int z = graph->species[i];
        double *row = r->encoded + (size_t)z * F;
        for (size_t f = 0; !done[z] && f < F; f++) r->rows[f] = p->embedding[(size_t)z * F + f];
        if (!done[z]) orb_plain_mlp(p, &p->node_encoder, 1, r->rows, row, r->scratch);
        done[z] = true;
        memcpy(s->nodes[0] + (size_t)i * F, row, sizeof *row * F);
    }
    orb_plain_mlp(p, &p->edge_encoder, s->graph.n_edges, s->inputs, s->edges[0], r->scratch);
}

// n += W_c z + b_c, the same for all atoms of a system.
static void condition(reference *r, const model_graph *graph, int t)
{
    const orb_parameters *p = &r->parameters;
    const size_t F = (size_t)p->n_features;
    double *z = r->rows, *added = r->rows + F;
    for (int s = 0; p->conditioned && s < graph->n_systems; s++) {
        orb_condition_inputs(p, graph->charges[s], graph->spins[s], z);
        orb_plain_linear(&p->layer[t].condition, 1, z, added);
        for (int i = graph->first_atom[s]; i < graph->first_atom[s + 1]; i++)
            for (size_t f = 0; f < F; f++) r->state.nodes[t][(size_t)i * F + f] += added[f];
    }
}

// [e | n_sender | n_receiver]
static void gather_edges(reference *r, int t)
{
    const reference_state *s = &r->state;
    const size_t F = (size_t)r->parameters.n_features;
    for (size_t e = 0; e < (size_t)s->graph.n_edges; e++) {
        double *row = r->rows + 3 * e * F;
        memcpy(row, s->edges[t] + e * F, sizeof *row * F);
        memcpy(row + F, s->nodes[t] + (size_t)s->graph.sender[e] * F, sizeof *row * F);
        memcpy(row + 2 * F, s->nodes[t] + (size_t)s->graph.receiver[e] * F, sizeof *row * F);
    }
}

// [n | A_r | A_s]
static void gather_nodes(reference *r, int t)
{
    const reference_state *s = &r->state;
    const size_t F = (size_t)r->parameters.n_features;
    for (size_t i = 0; i < (size_t)s->graph.n_atoms; i++) {
        double *row = r->rows + 3 * i * F;
        memcpy(row, s->nodes[t] + i * F, sizeof *row * F);
        memcpy(row + F, s->received[t] + i * F, sizeof *row * F);
        memcpy(row + 2 * F, s->sent[t] + i * F, sizeof *row * F);
    }
}

static void message(reference *r, int t)
{
    const orb_parameters *p = &r->parameters;
    reference_state *s = &r->state;
    const orb_graph *graph = &s->graph;
    const size_t F = (size_t)p->n_features;
    const int n_edges = graph->n_edges;
    orb_plain_linear(&p->layer[t].send, n_edges, s->edges[t], s->send[t]);
    orb_plain_linear(&p->layer[t].receive, n_edges, s->edges[t], s->receive[t]);
    gather_edges(r, t);
    orb_plain_mlp(p, &p->layer[t].edge, n_edges, r->rows, s->message[t], r->scratch);
    memset(s->sent[t], 0, sizeof(double) * (size_t)graph->n_atoms * F);
    memset(s->received[t], 0, sizeof(double) * (size_t)graph->n_atoms * F);
    for (size_t e = 0; e < (size_t)n_edges; e++) {
        const double c = graph->envelope[e], gs = s->send[t][e] = sigmoid(s->send[t][e]),
                     gr = s->receive[t][e] = sigmoid(s->receive[t][e]);
        const double *m = s->message[t] + e * F;
        double *sent = s->sent[t] + (size_t)graph->sender[e] * F, *received = s->received[t] + (size_t)graph->receiver[e] * F;
        for (size_t f = 0; f < F; f++) {
            sent[f] += gs * c * m[f];
            received[f] += gr * c * m[f];
            s->edges[t + 1][e * F + f] = s->edges[t][e * F + f] + m[f];
        }
    }
}

static void update(reference *r, int t)
{
    const orb_parameters *p = &r->parameters;
    reference_state *s = &r->state;
    const size_t n = (size_t)s->graph.n_atoms * (size_t)p->n_features;
    gather_nodes(r, t);
    orb_plain_mlp(p, &p->layer[t].node, s->graph.n_atoms, r->rows, s->nodes[t + 1], r->scratch);
    for (size_t k = 0; k < n; k++) s->nodes[t + 1][k] += s->nodes[t][k];
}

static void readout(reference *r, const model_graph *graph, const model_outputs *out)
{
    const orb_parameters *p = &r->parameters;
    reference_state *state = &r->state;
    const size_t F = (size_t)p->n_features;
    const double *nodes = state->nodes[p->n_layers];
    for (int s = 0; s < graph->n_systems; s++) {
        const int begin = graph->first_atom[s], end = graph->first_atom[s + 1], n = end - begin;
        double *mean = state->mean + (size_t)s * F, y = 0, stress[6];
        const double *cell = graph->cells ? graph->cells + 9 * (size_t)s : NULL;
        memset(mean, 0, sizeof *mean * F);
        for (int i = begin; i < end; i++)
            for (size_t f = 0; f < F; f++) mean[f] += nodes[(size_t)i * F + f] / n;
        orb_plain_head(p, &p->energy, 1, mean, &y, r->scratch);
        out->system_energy[s] = n * (p->energy_scale * y + p->energy_mean);
        if (out->stress) {
            orb_plain_head(p, &p->stress, 1, mean, stress, r->scratch);
            for (int k = 0; k < 6; k++)
                out->stress[6 * (size_t)s + (size_t)k] = p->stress_scale[k] * stress[k] + p->stress_mean[k];
        }
        if (!out->atom_force) continue;
        double *force = out->atom_force + 3 * (size_t)begin;
        bool has_cell = false;
        for (int k = 0; cell && k < 9; k++) has_cell |= cell[k] != 0;
        orb_plain_head(p, &p->forces, n, nodes + (size_t)begin * F, force, r->scratch);
        memcpy(state->force + 3 * (size_t)begin, force, sizeof *force * 3 * (size_t)n);
        orb_finish_forces(p, n, graph->positions + 3 * (size_t)begin, has_cell, force);
    }
    for (size_t i = 0; out->force_error && i < (size_t)graph->n_atoms; i++)
        out->force_error[i] = orb_plain_force_error(p, nodes + i * F, r->scratch);
}

// ---- backward ---------------------------------------------------------------------------------------------------------

// E = N (scale y(mean n) + …): dE/dn is the same for all atoms of a system.
static void readout_backward(reference *r, const model_graph *graph)
{
    const orb_parameters *p = &r->parameters;
    reference_state *state = &r->state;
    const orb_linear *first = &p->energy.linear[0], *second = &p->energy.linear[1];
    const size_t F = (size_t)p->n_features;
    double *z = r->scratch, *mean_bar = r->rows;
    for (int s = 0; s < graph->n_systems; s++) {
        orb_plain_linear(first, 1, state->mean + (size_t)s * F, z);
        for (int k = 0; k < p->n_head; k++) z[k] = p->energy_scale * second->weight[k] * orb_plain_slope(p->activation, z[k]);
        memset(mean_bar, 0, sizeof *mean_bar * F);
        orb_plain_linear_backward(first, 1, z, mean_bar);
        for (int i = graph->first_atom[s]; i < graph->first_atom[s + 1]; i++)
            memcpy(state->nodes_bar + (size_t)i * F, mean_bar, sizeof *mean_bar * F);
    }
    memset(state->edges_bar, 0, sizeof(double) * (size_t)state->graph.n_edges * F);
    memset(state->envelope_bar, 0, sizeof(double) * (size_t)state->graph.n_edges);
}

// n' = n + MLP([n | A_r | A_s])
static void update_backward(reference *r, int t)
{
    const orb_parameters *p = &r->parameters;
    reference_state *s = &r->state;
    const size_t F = (size_t)p->n_features;
    gather_nodes(r, t);
    orb_plain_mlp_backward(p, &p->layer[t].node, s->graph.n_atoms, r->rows, s->nodes_bar, r->rows_bar, r->scratch);
    for (size_t i = 0; i < (size_t)s->graph.n_atoms; i++) {
        const double *bar = r->rows_bar + 3 * i * F;
        for (size_t f = 0; f < F; f++) s->nodes_bar[i * F + f] += bar[f];
        memcpy(r->sent_bar + 2 * i * F, bar + F, sizeof *bar * 2 * F);
    }
}

// e' = e + m, A_s = Σ σ(w_s e + b_s) c m, A_r likewise: the gates pass on to e and c, then m = MLP([e | n_s | n_r]).
static void message_backward(reference *r, int t)
{
    const orb_parameters *p = &r->parameters;
    reference_state *s = &r->state;
    const orb_graph *graph = &s->graph;
    const orb_layer *layer = &p->layer[t];
    const size_t F = (size_t)p->n_features;
    for (size_t e = 0; e < (size_t)graph->n_edges; e++) {
        const double *m = s->message[t] + e * F, c = graph->envelope[e], gs = s->send[t][e], gr = s->receive[t][e];
        const double *sent_bar = r->sent_bar + (2 * (size_t)graph->sender[e] + 1) * F;
        const double *received_bar = r->sent_bar + 2 * (size_t)graph->receiver[e] * F;
        double *e_bar = s->edges_bar + e * F, *m_bar = s->message[t] + e * F, send_bar = 0, receive_bar = 0;
        for (size_t f = 0; f < F; f++) {
            send_bar += m[f] * sent_bar[f];
            receive_bar += m[f] * received_bar[f];
        }
        for (size_t f = 0; f < F; f++) m_bar[f] = e_bar[f] + c * (gs * sent_bar[f] + gr * received_bar[f]);
        s->envelope_bar[e] += gs * send_bar + gr * receive_bar;
        send_bar *= c * gs * (1.0 - gs);
        receive_bar *= c * gr * (1.0 - gr);
        for (size_t f = 0; f < F; f++) e_bar[f] += send_bar * layer->send.weight[f] + receive_bar * layer->receive.weight[f];
    }
    gather_edges(r, t);
    orb_plain_mlp_backward(p, &layer->edge, graph->n_edges, r->rows, s->message[t], r->rows_bar, r->scratch);
    for (size_t e = 0; e < (size_t)graph->n_edges; e++) {
        const double *bar = r->rows_bar + 3 * e * F;
        double *sender = s->nodes_bar + (size_t)graph->sender[e] * F, *receiver = s->nodes_bar + (size_t)graph->receiver[e] * F;
        for (size_t f = 0; f < F; f++) {
            s->edges_bar[e * F + f] += bar[f];
            sender[f] += bar[F + f];
            receiver[f] += bar[2 * F + f];
        }
    }
}

static void inputs_backward(reference *r, double *pair_gradient)
{
    const orb_parameters *p = &r->parameters;
    reference_state *s = &r->state;
    const orb_graph *graph = &s->graph;
    for (size_t e = 0; e < (size_t)graph->n_edges; e++)
        orb_edge_inputs_backward(p, graph->distance[e], graph->direction + 3 * e, graph->envelope[e], graph->envelope_slope[e],
                                 s->inputs_bar + e * (size_t)p->n_edge_inputs, s->envelope_bar[e],
                                 pair_gradient + 3 * (size_t)graph->pair[e]);
}

// ---- the backend ------------------------------------------------------------------------------------------------------

typedef struct sized_array {
    double **array;
    size_t width;
} sized_array;

static mlff_status grow_all(const sized_array *arrays, size_t n_arrays, size_t n)
{
    mlff_status status = MLFF_OK;
    for (size_t k = 0; k < n_arrays; k++) {
        size_t none = 0;
        MLFF_TRY(base_grow(arrays[k].array, &none, n * arrays[k].width, sizeof(double), "features"));
    }
done:
    return status;
}

#define GROW_ALL(arrays, n) grow_all(arrays, sizeof(arrays) / sizeof *(arrays), n)

static mlff_status resize(reference *r, int n_systems)
{
    mlff_status status = MLFF_OK;
    const orb_parameters *p = &r->parameters;
    reference_state *s = &r->state;
    const size_t F = (size_t)p->n_features, n_atoms = (size_t)s->graph.n_atoms, n_edges = (size_t)s->graph.n_edges;
    const size_t rows = n_atoms > n_edges ? n_atoms : n_edges, before = r->atom_capacity + r->edge_capacity + r->system_capacity;
    if (n_atoms > r->atom_capacity || n_edges > r->edge_capacity) { // rows of both kinds share two arrays
        const size_t n = rows + rows / 4 + 1;
        const sized_array atoms[] = {{&s->nodes_bar, F}, {&r->sent_bar, 2 * F}, {&s->force, 3}};
        const sized_array edges[] = {{&s->inputs, (size_t)p->n_edge_inputs},
                                     {&s->inputs_bar, (size_t)p->n_edge_inputs},
                                     {&s->edges_bar, F},
                                     {&s->envelope_bar, 1},
                                     {&r->rows, 3 * F},
                                     {&r->rows_bar, 3 * F}};
        MLFF_TRY(GROW_ALL(atoms, n));
        MLFF_TRY(GROW_ALL(edges, n));
        for (int t = 0; t <= p->n_layers; t++) {
            const sized_array inputs[] = {{&s->nodes[t], F}, {&s->edges[t], F}};
            MLFF_TRY(GROW_ALL(inputs, n));
        }
        for (int t = 0; t < p->n_layers; t++) {
            const sized_array layer[] = {
                {&s->send[t], 1}, {&s->receive[t], 1}, {&s->message[t], F}, {&s->received[t], F}, {&s->sent[t], F}};
            MLFF_TRY(GROW_ALL(layer, n));
        }
        r->atom_capacity = r->edge_capacity = n;
    }
    MLFF_TRY(base_grow(&s->mean, &r->system_capacity, (size_t)n_systems * F, sizeof(double), "features"));
    if (before != r->atom_capacity + r->edge_capacity + r->system_capacity) r->n_growths++;
done:
    return status;
}

static void compute_backward(reference *r, const model_graph *graph, double *pair_gradient, stage_clock *clock, int stage)
{
    const orb_parameters *p = &r->parameters;
    reference_state *s = &r->state;
    readout_backward(r, graph);
    stage_end(clock, stage++);
    for (int t = p->n_layers - 1; t >= 0; t--) {
        update_backward(r, t);
        stage_end(clock, stage++);
        message_backward(r, t);
        stage_end(clock, stage++);
    }
    orb_plain_mlp_backward(p, &p->edge_encoder, s->graph.n_edges, s->inputs, s->edges_bar, s->inputs_bar, r->scratch);
    stage_end(clock, stage++);
    memset(pair_gradient, 0, sizeof *pair_gradient * 3 * (size_t)graph->n_pairs); // a pair that was dropped has none
    inputs_backward(r, pair_gradient);
    stage_end(clock, stage);
}

static mlff_status compute(model_backend *backend, const model_graph *graph, const model_outputs *outputs, stage_clock *clock,
                           int stage)
{
    mlff_status status = MLFF_OK;
    reference *r = (reference *)backend;
    const orb_parameters *p = &r->parameters;
    reference_state *s = &r->state;
    MLFF_TRY(orb_check_graph(p, graph));
    MLFF_TRY(orb_graph_update(&s->graph, p, graph));
    MLFF_TRY(resize(r, graph->n_systems));
    for (size_t e = 0; e < (size_t)s->graph.n_edges; e++)
        orb_edge_inputs(p, s->graph.distance[e], s->graph.direction + 3 * e, s->graph.envelope[e],
                        s->inputs + e * (size_t)p->n_edge_inputs);
    stage_end(clock, stage++);
    encode(r, graph);
    stage_end(clock, stage++);
    for (int t = 0; t < p->n_layers; t++) {
        condition(r, graph, t);
        message(r, t);
        stage_end(clock, stage++);
        update(r, t);
        stage_end(clock, stage++);
    }
    readout(r, graph, outputs);
    stage_end(clock, stage++);
    if (outputs->pair_gradient) compute_backward(r, graph, outputs->pair_gradient, clock, stage);
    orb_add_repulsion(p, &s->graph, graph, outputs);
done:
    return status;
}

static void info(const model_backend *backend, int64_t *bytes, int64_t *n_growths)
{
    const reference *r = (const reference *)backend;
    const orb_parameters *p = &r->parameters;
    const int64_t F = p->n_features, T = p->n_layers, per_row = 12 * F + 2 * p->n_edge_inputs + (5 * F + 2) * T + 5 + p->n_bins;
    *bytes = 8 * ((int64_t)r->edge_capacity * per_row + (int64_t)r->system_capacity + p->n_species * F) +
             orb_graph_bytes(&r->state.graph);
    *n_growths = r->n_growths + r->state.graph.n_growths;
}

static void destroy(model_backend *backend)
{
    reference *r = (reference *)backend;
    reference_state *s = &r->state;
    for (int t = 0; t <= ORB_MAX_LAYERS; t++) {
        base_free(s->nodes[t]);
        base_free(s->edges[t]);
    }
    for (int t = 0; t < ORB_MAX_LAYERS; t++) {
        double *arrays[] = {s->send[t], s->receive[t], s->message[t], s->received[t], s->sent[t]};
        for (size_t k = 0; k < sizeof arrays / sizeof *arrays; k++) base_free(arrays[k]);
    }
    double *arrays[] = {s->inputs,       s->mean, s->force,    s->nodes_bar, s->edges_bar, s->inputs_bar,
                        s->envelope_bar, r->rows, r->rows_bar, r->sent_bar,  r->encoded,   r->scratch};
    for (size_t k = 0; k < sizeof arrays / sizeof *arrays; k++) base_free(arrays[k]);
    orb_graph_free(&s->graph);
    base_free(r->stages);
    base_free(r);
}

mlff_status orb_reference_create(const mlff_model *model, const cpu_options *options, model_backend **backend_out)
{
    mlff_status status = MLFF_OK;
    (void)options; // one thread, one path
    reference *r = base_alloc(1, sizeof *r, "an evaluator");
    if (!r) return MLFF_ERR_MEMORY;
    r->backend = (model_backend){.compute = compute, .info = info, .destroy = destroy};
    r->parameters = *(const orb_parameters *)model->parameters;
    const orb_parameters *p = &r->parameters;
    r->scratch = base_alloc(orb_plain_scratch(p), sizeof(double), "features");
    r->encoded = base_alloc((size_t)(MLFF_MAX_ATOMIC_NUMBER + 1) * (size_t)p->n_features, sizeof(double), "features");
    if (!r->scratch || !r->encoded) {
        status = MLFF_ERR_MEMORY;
        goto done;
    }
    MLFF_TRY(orb_stages_create(p, &r->stages, &r->backend.n_stages));
    r->backend.stages = r->stages;
    *backend_out = &r->backend;
    r = NULL;
done:
    if (r) destroy(&r->backend);
    return status;
}
