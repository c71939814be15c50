// SPDX-License-Identifier: MIT
// orb_cpu.c: Orb in float32 on the CPU, with products in a precision of nn.h. The equations: README.md of this folder; norms and sums over
// edges: nn/segment.h.
//
// A thread has a range of edges and a range of atoms, and takes blocks of ORB_BLOCK rows through a whole network, so that hidden
// features stay in the second cache. Two barriers a layer: messages read their atoms' projections, atoms sum their edges' messages.
// The first layer of a message's network is W_e e + (W_s n + b)_sender + (W_r n)_receiver: the projections are computed once for each
// atom. Encoded atoms depend on the element alone (a table). The last layer's edges are not updated: nothing reads them.
#include "orb_cpu.h"

#include <string.h>

#include "device/cpu.h"
#include "model/orb/reference/orb_plain.h"

// ---- networks -----------------------------------------------------------------------------------------------------------

void orb_cpu_mlp_forward(const orb_cpu *cpu, const orb_cpu_mlp *mlp, int n, const float *x, bool started, float *h, float *y,
                         const orb_cpu_saved *saved, int row)
{
    const int H = cpu->H, F = cpu->F;
    const size_t at = (size_t)row * (size_t)H, n_hidden = (size_t)n * (size_t)H;
    float *h2 = h + (size_t)ORB_BLOCK * (size_t)H;
    cpu->nn->product_in_parts(n, H, mlp->n_in, x, mlp->n_in, mlp->W1, started ? NULL : mlp->b1, h, H, started);
    cpu->nn->activate(cpu->activation, n_hidden, h, saved ? saved->slope1 + at : NULL);
    cpu->nn->product_in_parts(n, H, H, h, H, mlp->W2, mlp->b2, h2, H, 0);
    cpu->nn->activate(cpu->activation, n_hidden, h2, saved ? saved->slope2 + at : NULL);
    cpu->nn->product_in_parts(n, F, H, h2, H, mlp->W3, mlp->b3, y, F, 0);
    cpu->segment->norm(&mlp->norm, n, y, saved ? saved->z + (size_t)row * (size_t)F : NULL, saved ? saved->inverse + row : NULL);
}

void orb_cpu_mlp_backward(const orb_cpu *cpu, const orb_cpu_mlp *mlp, int n, const float *y_bar, const orb_cpu_saved *saved,
                          int row, float *scratch, float *h_bar)
{
    const int H = cpu->H, F = cpu->F;
    const size_t at = (size_t)row * (size_t)H, n_hidden = (size_t)n * (size_t)H;
    float *bar = scratch, *h2_bar = scratch + (size_t)ORB_BLOCK * (size_t)F;
    cpu->segment->norm_backward(&mlp->norm, n, saved->z + (size_t)row * (size_t)F, saved->inverse + row, y_bar, bar);
    cpu->nn->product_in_parts(n, H, F, bar, F, mlp->W3_back, NULL, h2_bar, H, 0);
    cpu->segment->multiply(n_hidden, h2_bar, saved->slope2 + at);
    cpu->nn->product_in_parts(n, H, H, h2_bar, H, mlp->W2_back, NULL, h_bar, H, 0);
    cpu->segment->multiply(n_hidden, h_bar, saved->slope1 + at);
}

// ---- one thread's step ----------------------------------------------------------------------------------------------------

static const orb_cpu_saved *saved_or_null(const orb_run *r, const orb_cpu_saved *saved)
{
    return r->outputs->pair_gradient ? saved : NULL;
}

// n += condition of the layer, then the projections that its messages read.
static void begin_layer(const orb_run *r, int t, int begin, int end)
{
    const orb_cpu *c = r->cpu;
    const size_t F = (size_t)c->F;
    for (int i = begin; c->parameters.conditioned && i < end; i++)
        c->segment->add(F, c->nodes + (size_t)i * F,
                        c->condition + ((size_t)c->system_of[i] * (size_t)c->parameters.n_layers + (size_t)t) * F);
    c->nn->product_in_parts(end - begin, 2 * c->H, c->F, c->nodes + (size_t)begin * F, c->F, c->layer[t].project,
                            c->layer[t].project_bias, c->project + (size_t)begin * 2 * (size_t)c->H, 2 * c->H, 0);
}

static void encode(const orb_run *r, orb_span edges, orb_span atoms, float *h)
{
    orb_cpu *c = r->cpu;
    const orb_parameters *p = &c->parameters;
    const size_t F = (size_t)c->F, D = (size_t)c->D;
    double inputs[ORB_MAX_RADIAL * ORB_HARMONICS];
    for (int b = edges.begin; b < edges.end; b += ORB_BLOCK) {
        const int n = edges.end - b < ORB_BLOCK ? edges.end - b : ORB_BLOCK;
        for (size_t e = (size_t)b; e < (size_t)(b + n); e++) {
            orb_edge_inputs(p, c->graph.distance[e], c->graph.direction + 3 * e, c->graph.envelope[e], inputs);
            for (int k = 0; k < p->n_edge_inputs; k++) c->inputs[e * D + (size_t)k] = (float)inputs[k];
            for (size_t k = (size_t)p->n_edge_inputs; k < D; k++) c->inputs[e * D + k] = 0;
            c->envelope[e] = (float)c->graph.envelope[e];
        }
        orb_cpu_mlp_forward(c, &c->encoder, n, c->inputs + (size_t)b * D, false, h, c->e + (size_t)b * F,
                            saved_or_null(r, &c->encoder_saved), b);
    }
    for (int i = atoms.begin; i < atoms.end; i++)
        memcpy(c->nodes + (size_t)i * F, c->encoded + (size_t)r->graph->species[i] * F, sizeof *c->nodes * F);
    if (atoms.begin < atoms.end) begin_layer(r, 0, atoms.begin, atoms.end);
}

static void message(const orb_run *r, int t, orb_span edges, float *h)
{
    orb_cpu *c = r->cpu;
    orb_cpu_layer *layer = &c->layer[t];
    const size_t F = (size_t)c->F;
    for (int b = edges.begin; b < edges.end; b += ORB_BLOCK) {
        const int n = edges.end - b < ORB_BLOCK ? edges.end - b : ORB_BLOCK;
        float *e = c->e + (size_t)b * F, *m = layer->message + (size_t)b * F;
        c->segment->gates(n, c->F, layer->gate, layer->gate_bias, e, layer->gates + 2 * (size_t)b);
        c->segment->gather(&c->edges, b, b + n, c->H, c->project, h);
        orb_cpu_mlp_forward(c, &layer->edge, n, e, true, h, m, saved_or_null(r, &layer->edge_saved), b);
        if (t + 1 < c->parameters.n_layers) c->segment->add((size_t)n * F, e, m);
    }
}

static void predict_forces(const orb_cpu *c, int begin, int n, float *h)
{
    const int head = c->head;
    c->nn->product_in_parts(n, head, c->F, c->nodes + (size_t)begin * (size_t)c->F, c->F, c->force_hidden, c->force_hidden_bias,
                            h, head, 0);
    c->nn->activate(c->activation, (size_t)n * (size_t)head, h, NULL);
    c->nn->product_in_parts(n, NN_PAD, head, h, head, c->force, c->force_bias, c->forces + (size_t)begin * NN_PAD, NN_PAD, 0);
}

static void update(const orb_run *r, int t, orb_span atoms, float *h)
{
    orb_cpu *c = r->cpu;
    orb_cpu_layer *layer = &c->layer[t];
    const size_t F = (size_t)c->F;
    float *context = h + 2 * (size_t)ORB_BLOCK * (size_t)c->H, *y = context + 3 * (size_t)ORB_BLOCK * F;
    for (int b = atoms.begin; b < atoms.end; b += ORB_BLOCK) {
        const int n = atoms.end - b < ORB_BLOCK ? atoms.end - b : ORB_BLOCK;
        for (size_t i = 0; i < (size_t)n; i++) memcpy(context + 3 * i * F, c->nodes + ((size_t)b + i) * F, sizeof *context * F);
        c->segment->attention(&c->edges, b, b + n, c->F, layer->message, layer->gates, context + F, 3 * c->F);
        orb_cpu_mlp_forward(c, &layer->node, n, context, false, h, y, saved_or_null(r, &layer->node_saved), b);
        c->segment->add((size_t)n * F, c->nodes + (size_t)b * F, y);
        if (t + 1 < c->parameters.n_layers)
            begin_layer(r, t + 1, b, b + n);
        else if (r->outputs->atom_force)
            predict_forces(c, b, n, h);
    }
}

static bool has_cell(const model_graph *graph, int s)
{
    bool found = false;
    for (int k = 0; graph->cells && k < 9; k++) found |= graph->cells[9 * (size_t)s + (size_t)k] != 0;
    return found;
}

// One system, in float64: means over its atoms, the heads of energy and stress, and what follows for its forces.
static void readout(const orb_run *r, int s, double *scratch)
{
    orb_cpu *c = r->cpu;
    const orb_parameters *p = &c->parameters;
    const model_outputs *out = r->outputs;
    const size_t F = (size_t)p->n_features;
    const int begin = r->graph->first_atom[s], end = r->graph->first_atom[s + 1], n = end - begin;
    double *mean = c->mean + (size_t)s * F, y = 0, stress[6];
    memset(mean, 0, sizeof *mean * F);
    for (int i = begin; i < end; i++)
        for (size_t f = 0; f < F; f++) mean[f] += (double)c->nodes[(size_t)i * (size_t)c->F + f];
    for (size_t f = 0; f < F; f++) mean[f] /= n;
    orb_plain_head(p, &p->energy, 1, mean, &y, scratch);
    out->system_energy[s] = n * (p->energy_scale * y + p->energy_mean);
    if (out->stress) {
        orb_plain_head(p, &p->stress, 1, mean, stress, scratch);
        for (int k = 0; k < 6; k++) out->stress[6 * (size_t)s + (size_t)k] = p->stress_scale[k] * stress[k] + p->stress_mean[k];
    }
    for (int i = begin; out->force_error && i < end; i++) {
        double *features = scratch + p->n_head;
        for (size_t f = 0; f < F; f++) features[f] = (double)c->nodes[(size_t)i * (size_t)c->F + f];
        out->force_error[i] = orb_plain_force_error(p, features, scratch);
    }
    if (!out->atom_force) return;
    for (int i = begin; i < end; i++)
        for (int k = 0; k < 3; k++)
            out->atom_force[3 * (size_t)i + (size_t)k] = (double)c->forces[(size_t)i * NN_PAD + (size_t)k];
    orb_finish_forces(p, n, r->graph->positions + 3 * (size_t)begin, has_cell(r->graph, s), out->atom_force + 3 * (size_t)begin);
}

static void step(void *context, const team_member *member)
{
    const orb_run *r = context;
    orb_cpu *c = r->cpu;
    const int T = c->parameters.n_layers;
    const orb_span edges = orb_span_of(c->graph.n_edges, member), atoms = orb_span_of(c->graph.n_atoms, member);
    float *h = c->scratch[member->thread];
    encode(r, edges, atoms, h);
    team_barrier(member);
    orb_mark(r, member, 1);
    for (int t = 0; t < T; t++) {
        message(r, t, edges, h);
        team_barrier(member);
        orb_mark(r, member, 2 + 2 * t);
        update(r, t, atoms, h);
        team_barrier(member);
        orb_mark(r, member, 3 + 2 * t);
    }
    for (int s = member->thread; s < r->graph->n_systems; s += member->n) readout(r, s, c->plain[member->thread]);
    team_barrier(member);
    orb_mark(r, member, 2 + 2 * T);
    if (r->outputs->pair_gradient) orb_cpu_backward(r, member);
}

// ---- the backend ------------------------------------------------------------------------------------------------------

typedef struct sized_array {
    float **array;
    size_t width;
} sized_array;

static mlff_status grow_all(orb_cpu *c, const sized_array *arrays, size_t n_arrays, size_t n)
{
    mlff_status status = MLFF_OK;
    for (size_t k = 0; k < n_arrays; k++) {
        size_t none = 0; // nothing is worth keeping from one compute to the next
        base_free(*arrays[k].array);
        *arrays[k].array = NULL;
        MLFF_TRY(base_grow(arrays[k].array, &none, n * arrays[k].width, sizeof(float), "features"));
        c->bytes += (int64_t)(n * arrays[k].width * sizeof(float));
    }
done:
    return status;
}

#define GROW_ALL(c, arrays, n) grow_all(c, arrays, sizeof(arrays) / sizeof *(arrays), n)

static mlff_status grow_saved(orb_cpu *c, orb_cpu_saved *saved, size_t n)
{
    const sized_array arrays[] = {
        {&saved->slope1, (size_t)c->H}, {&saved->slope2, (size_t)c->H}, {&saved->z, (size_t)c->F}, {&saved->inverse, 1}};
    return GROW_ALL(c, arrays, n);
}

// Direct forces keep the messages of one layer, which all layers share.
static mlff_status grow_edges(orb_cpu *c, size_t n)
{
    mlff_status status = MLFF_OK;
    const size_t F = (size_t)c->F, H = (size_t)c->H;
    const bool gradient = c->parameters.conservative;
    const sized_array common[] = {{&c->envelope, 1}, {&c->inputs, (size_t)c->D}, {&c->e, F}};
    const sized_array reverse[] = {{&c->e_bar, F}, {&c->h_bar, H}, {&c->envelope_bar, 1}};
    MLFF_TRY(GROW_ALL(c, common, n));
    if (gradient) {
        MLFF_TRY(GROW_ALL(c, reverse, n));
        MLFF_TRY(grow_saved(c, &c->encoder_saved, n));
    }
    for (int t = 0; t < c->parameters.n_layers; t++) {
        orb_cpu_layer *layer = &c->layer[t];
        const sized_array own[] = {{&layer->message, F}, {&layer->gates, 2}};
        if (t == 0 || gradient) MLFF_TRY(GROW_ALL(c, own, n));
        if (gradient) MLFF_TRY(grow_saved(c, &layer->edge_saved, n));
        if (!gradient) layer->message = c->layer[0].message, layer->gates = c->layer[0].gates;
    }
    c->edge_capacity = n;
done:
    return status;
}

static mlff_status grow_atoms(orb_cpu *c, size_t n)
{
    mlff_status status = MLFF_OK;
    const size_t F = (size_t)c->F;
    const sized_array common[] = {{&c->nodes, F}, {&c->project, 2 * (size_t)c->H}, {&c->forces, NN_PAD}};
    const sized_array reverse[] = {{&c->nodes_bar, F}, {&c->sums_bar, 2 * F}};
    MLFF_TRY(GROW_ALL(c, common, n));
    if (c->parameters.conservative) {
        MLFF_TRY(GROW_ALL(c, reverse, n));
        for (int t = 0; t < c->parameters.n_layers; t++) MLFF_TRY(grow_saved(c, &c->layer[t].node_saved, n));
    }
    c->atom_capacity = n;
done:
    return status;
}

static mlff_status resize(orb_cpu *c, int n_systems)
{
    mlff_status status = MLFF_OK;
    const size_t n_atoms = (size_t)c->graph.n_atoms, n_edges = (size_t)c->graph.n_edges, n = (size_t)n_systems;
    if (n_edges > c->edge_capacity || !c->e) {
        c->n_growths++;
        MLFF_TRY(grow_edges(c, n_edges + n_edges / 4 + 1));
    }
    if (n_atoms > c->atom_capacity) {
        c->n_growths++;
        MLFF_TRY(grow_atoms(c, n_atoms + n_atoms / 4));
    }
    MLFF_TRY(base_grow(&c->mean, &c->system_capacity, n * (size_t)c->parameters.n_features, sizeof(double), "features"));
    if (c->parameters.conditioned) {
        MLFF_TRY(base_grow(&c->system_of, &c->system_of_capacity, n_atoms, sizeof(int32_t), "features"));
        MLFF_TRY(base_grow(&c->condition, &c->condition_capacity, n * (size_t)(c->parameters.n_layers * c->F), sizeof(float),
                           "features"));
    }
done:
    return status;
}

static void condition(orb_cpu *c, const model_graph *graph)
{
    const orb_parameters *p = &c->parameters;
    double *z = c->plain[0], *added = z + p->n_features;
    for (int s = 0; p->conditioned && s < graph->n_systems; s++) {
        orb_condition_inputs(p, graph->charges[s], graph->spins[s], z);
        for (int i = graph->first_atom[s]; i < graph->first_atom[s + 1]; i++) c->system_of[i] = s;
        for (int t = 0; t < p->n_layers; t++) {
            float *row = c->condition + ((size_t)s * (size_t)p->n_layers + (size_t)t) * (size_t)c->F;
            orb_plain_linear(&p->layer[t].condition, 1, z, added);
            for (int f = 0; f < c->F; f++) row[f] = f < p->n_features ? (float)added[f] : 0.0f;
        }
    }
}

static mlff_status compute(model_backend *backend, const model_graph *graph, const model_outputs *outputs, stage_clock *clock,
                           int stage)
{
    mlff_status status = MLFF_OK;
    orb_cpu *c = (orb_cpu *)backend;
    MLFF_TRY(orb_check_graph(&c->parameters, graph));
    MLFF_TRY(orb_graph_update(&c->graph, &c->parameters, graph));
    MLFF_TRY(resize(c, graph->n_systems));
    c->edges =
        (nn_edges){c->graph.sender, c->graph.receiver, c->graph.first, c->graph.first_incoming, c->graph.incoming, c->envelope};
    condition(c, graph);
    stage_end(clock, stage);
    orb_run run = {.cpu = c, .graph = graph, .outputs = outputs, .clock = clock, .stage = stage};
    team_run(c->n_threads, step, &run);
    orb_add_repulsion(&c->parameters, &c->graph, graph, outputs);
    stage_end(clock, stage + c->backend.n_stages - 1);
done:
    return status;
}

static void info(const model_backend *backend, int64_t *bytes, int64_t *n_growths)
{
    const orb_cpu *c = (const orb_cpu *)backend;
    *bytes = c->bytes + orb_graph_bytes(&c->graph) + (int64_t)(c->system_capacity * sizeof(double)) +
             (int64_t)((c->system_of_capacity + c->condition_capacity) * 4);
    *n_growths = c->n_growths + c->graph.n_growths;
}

static void free_saved(orb_cpu_saved *saved)
{
    base_free(saved->slope1);
    base_free(saved->slope2);
    base_free(saved->z);
    base_free(saved->inverse);
}

static void destroy(model_backend *backend)
{
    orb_cpu *c = (orb_cpu *)backend;
    for (int t = 0; t < c->parameters.n_layers; t++) {
        orb_cpu_layer *layer = &c->layer[t];
        free_saved(&layer->edge_saved);
        free_saved(&layer->node_saved);
        if (t > 0 && layer->message == c->layer[0].message) continue;
        base_free(layer->message);
        base_free(layer->gates);
    }
    free_saved(&c->encoder_saved);
    orb_cpu_free_weights(c);
    float *arrays[] = {c->envelope, c->inputs,       c->e,         c->nodes,    c->project,  c->forces, c->e_bar,
                       c->h_bar,    c->envelope_bar, c->nodes_bar, c->sums_bar, c->condition};
    for (size_t k = 0; k < sizeof arrays / sizeof *arrays; k++) base_free(arrays[k]);
    base_free(c->system_of);
    base_free(c->mean);
    for (int t = 0; t < TEAM_MAX; t++) {
        base_free(c->scratch[t]);
        base_free(c->plain[t]);
    }
    orb_graph_free(&c->graph);
    base_free(c->stages);
    base_free(c);
}

static mlff_status create_scratch(orb_cpu *c)
{
    const size_t hidden = (size_t)(c->H > c->head ? c->H : c->head),
                 n = ORB_BLOCK * (4 * hidden + 6 * (size_t)c->F + (size_t)c->D);
    for (int t = 0; t < c->n_threads; t++) {
        c->scratch[t] = base_alloc(n, sizeof(float), "features");
        c->plain[t] = base_alloc(orb_plain_scratch(&c->parameters), sizeof(double), "features");
        if (!c->scratch[t] || !c->plain[t]) return MLFF_ERR_MEMORY;
        c->bytes += (int64_t)(n * sizeof(float) + orb_plain_scratch(&c->parameters) * sizeof(double));
    }
    return MLFF_OK;
}

mlff_status orb_cpu_create(const mlff_model *model, const cpu_options *options, model_backend **backend_out)
{
    mlff_status status = MLFF_OK;
    orb_cpu *c = base_alloc(1, sizeof *c, "an evaluator");
    if (!c) return MLFF_ERR_MEMORY;
    c->backend = (model_backend){.compute = compute, .info = info, .destroy = destroy};
    c->parameters = *(const orb_parameters *)model->parameters;
    const orb_parameters *p = &c->parameters;
    MLFF_TRY(cpu_products(options, &c->nn));
    c->segment = nn_segment_kernels_get(options->path);
    c->activation = p->activation == ORB_SILU ? NN_SILU : NN_SHIFTED_SOFTPLUS;
    c->F = nn_padded(p->n_features);
    c->H = nn_padded(p->n_hidden);
    c->D = nn_padded(p->n_edge_inputs);
    c->head = nn_padded(p->n_head);
    c->n_threads = options->n_threads < TEAM_MAX ? options->n_threads : TEAM_MAX;
    MLFF_TRY(create_scratch(c));
    MLFF_TRY(orb_cpu_pack(c));
    MLFF_TRY(orb_stages_create(p, &c->stages, &c->backend.n_stages));
    c->backend.stages = c->stages;
    *backend_out = &c->backend;
    c = NULL;
done:
    if (c) destroy(&c->backend);
    return status;
}
