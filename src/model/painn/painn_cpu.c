// SPDX-License-Identifier: MIT
// painn_cpu.c: PaiNN in float32 on the CPU. The equations: README.md of this folder; the kernels: painn_kernels.c.
//
// Atoms are cut into one range a thread. A thread does everything of its atoms and reads only x, μ (forward) and q̄, μ̄
// (reverse) of others, so one barrier a layer and direction is enough: 2 L + 1 in a step. Within a range, blocks of
// BLOCK atoms go through a chain of layers together, so that activations stay in the second cache.
// Exact savings: x of layer 0 depends on the element only (a table); μ of layer 0 is zero; the last layer's μ is unused.
//
// Ghost atoms: layer l of L matters for atoms that are at most L − 1 − l edges away from an owned atom (painn_cpu_ghosts.c). With halo hooks it is
// computed for owned atoms alone: x and μ of ghosts come from their owners, and x̄ and μ̄ go back. With q in place of x rows would be a third
// shorter, and each ghost would need its message network.
#include <string.h>

#include "device/team.h"
#include "painn_cpu.h"

enum { BLOCK = 64 };

// One compute, as all threads see it.
typedef struct run {
    painn_cpu *cpu;
    const model_graph *graph;
    const int32_t *in_first, *in_center, *in_row; // in_row: of each pair the row of the reverse sum
    const painn_pair *in_pairs;                   // of the rows of the reverse sum
    int reach[PAINN_MAX_LAYERS + 1];              // atoms that are at most k edges away from an owned atom: the first ones
    int n_exchanged;                              // with halo hooks: owned atoms, which come first; otherwise −1
    double *atom_energy, *pair_gradient;
    stage_clock *clock;
    int stage;
    mlff_status status; // of halo hooks
} run;

// ---- buffers ------------------------------------------------------------------------------------------------------

static mlff_status regrow(float **array, size_t count, const char *what)
{
    size_t none = 0; // nothing is worth keeping from one compute to the next
    base_free(*array);
    *array = NULL;
    return base_grow(array, &none, count, sizeof(float), what);
}

static mlff_status resize(painn_cpu *c, const model_graph *graph)
{
    mlff_status status = MLFF_OK;
    size_t F = (size_t)c->F, n = (size_t)graph->n_atoms, n_pairs = (size_t)graph->n_pairs;
    if (n > c->atom_capacity) {
        n += n / 4;
        c->n_growths++;
        c->atom_capacity = 0;
        for (int l = 0; l < c->parameters.n_layers; l++) {
            painn_cpu_layer *L = &c->layer[l];
            if (l > 0) {
                MLFF_TRY(regrow(&L->x, 3 * n * F, "atom features"));
                MLFF_TRY(regrow(&L->h_slope, n * F, "atom features"));
                MLFF_TRY(regrow(&L->mu, 3 * n * F, "atom features"));
            }
            MLFF_TRY(regrow(&L->VB, 6 * n * F, "atom features"));
            MLFF_TRY(regrow(&L->g_slope, n * F, "atom features"));
            MLFF_TRY(regrow(&L->y, 3 * n * F, "atom features"));
        }
        MLFF_TRY(regrow(&c->q, n * F, "atom features"));
        MLFF_TRY(regrow(&c->mu1, 3 * n * F, "atom features"));
        for (int k = 0; k < 2; k++) {
            MLFF_TRY(regrow(&c->q_bar[k], n * F, "atom features"));
            MLFF_TRY(regrow(&c->mu_bar[k], 3 * n * F, "atom features"));
        }
        c->atom_capacity = n;
    }
    if (graph->halo) {
        const size_t capacity = c->x_bar_capacity;
        MLFF_TRY(base_grow(&c->x_bar, &c->x_bar_capacity, 3 * n * F, sizeof(float), "atom features"));
        c->n_growths += c->x_bar_capacity > capacity;
    }
    if (n_pairs > c->pair_capacity || !c->pairs) {
        n_pairs += n_pairs / 4 + 16;
        c->n_growths++;
        c->pair_capacity = 0;
        size_t none = 0;
        base_free(c->pairs);
        c->pairs = NULL;
        MLFF_TRY(base_grow(&c->pairs, &none, n_pairs, sizeof *c->pairs, "pairs"));
        MLFF_TRY(regrow(&c->pair_bar, NN_PAD * n_pairs, "pairs"));
        c->pair_capacity = n_pairs;
    }
done:
    return status;
}

// ---- one thread's step ---------------------------------------------------------------------------------------------

typedef struct span {
    int begin, end; // atoms
    float *scratch;
} span;

static void mark(const run *r, int thread, int stage)
{
    if (thread == 0) stage_end(r->clock, r->stage + stage);
}

// x of layer l ≥ 1 from q.
static void message_network(painn_cpu *c, int l, span s)
{
    painn_cpu_layer *L = &c->layer[l];
    int F = c->F, n = s.end - s.begin;
    float *h = s.scratch;
    size_t at = (size_t)s.begin * F;
    c->nn->product(n, F, F, c->q + at, F, L->W1, L->b1, h, F, 0);
    c->nn->activate((enum nn_activation)c->parameters.activation, (size_t)n * F, h, L->h_slope + at);
    c->nn->product(n, 3 * F, F, h, F, L->W2, L->b2, L->x + 3 * at, 3 * F, 0);
}

static void message(const run *r, int l, span s)
{
    painn_cpu *c = r->cpu;
    const painn_cpu_layer *L = &c->layer[l];
    painn_edges edges = {.F = c->F, .begin = s.begin, .end = s.end, .table = L->table, .slice = c->slice};
    edges.first = r->graph->first;
    edges.other = r->graph->neighbor;
    edges.pairs = c->pairs;
    edges.x = l ? L->x : c->x0;
    edges.mu = l ? L->mu : NULL;
    edges.x_row = l ? NULL : r->graph->species;
    edges.q = c->q;
    edges.mu_out = c->mu1;
    c->painn->message(&edges);
}

static void update(painn_cpu *c, int l, span s)
{
    painn_cpu_layer *L = &c->layer[l];
    int F = c->F, n = s.end - s.begin, last = l == c->parameters.n_layers - 1, width = last ? 2 * F : 3 * F;
    size_t at = (size_t)s.begin * F;
    float *context = s.scratch, *g = s.scratch + (size_t)BLOCK * 2 * F, *VB = L->VB + 6 * at, *y = L->y + (size_t)s.begin * width;
    c->nn->product(3 * n, 2 * F, F, c->mu1 + 3 * at, F, L->U, NULL, VB, 2 * F, 0);
    c->painn->context(n, F, (float)c->parameters.epsilon, c->q + at, VB, context);
    c->nn->product(n, F, 2 * F, context, 2 * F, L->M1, L->c1, g, F, 0);
    c->nn->activate((enum nn_activation)c->parameters.activation, (size_t)n * F, g, L->g_slope + at);
    c->nn->product(n, width, F, g, F, L->M2, L->c2, y, width, 0);
    c->painn->mix(n, F, last, y, VB, c->mu1 + 3 * at, c->q + at, last ? NULL : c->layer[l + 1].mu + 3 * at);
}

// Energies, and q̄ if the gradient is wanted. The scratch holds each layer's output and slope.
static void readout(const run *r, span s, float *q_bar, int thread)
{
    painn_cpu *c = r->cpu;
    const painn_parameters *P = &c->parameters;
    const model_graph *graph = r->graph;
    int n = s.end - s.begin, n_layers = P->n_readout, L = P->n_layers;
    float *slope[PAINN_MAX_READOUT], *free_part = s.scratch;
    const float *input = c->q + (size_t)s.begin * c->F;
    for (int k = 0; k < n_layers; k++) {
        int in = c->readout_width[k], out = c->readout_width[k + 1];
        float *z = free_part;
        slope[k] = z + (size_t)BLOCK * out;
        free_part = slope[k] + (size_t)BLOCK * out;
        c->nn->product(n, out, in, input, in, c->readout[k], c->readout_bias[k], z, out, 0);
        if (k + 1 < n_layers) c->nn->activate((enum nn_activation)P->activation, (size_t)n * out, z, slope[k]);
        input = z;
    }
    int width = c->readout_width[n_layers];
    for (int i = 0; i < n; i++)
        r->atom_energy[s.begin + i] = graph->owned && !graph->owned[s.begin + i] ? 0.0 : (double)input[(size_t)i * width];
    mark(r, thread, 1 + 2 * L);
    if (!r->pair_gradient) return;

    float *bar = free_part;
    memset(bar, 0, sizeof *bar * (size_t)n * width);
    for (int i = 0; i < n; i++) bar[(size_t)i * width] = graph->owned && !graph->owned[s.begin + i] ? 0.0f : 1.0f;
    for (int k = n_layers - 1; k >= 0; k--) {
        int in = c->readout_width[k], out = c->readout_width[k + 1];
        float *next = k ? bar + (size_t)BLOCK * out : q_bar + (size_t)s.begin * c->F;
        c->nn->product(n, in, out, bar, out, c->readout_back[k], NULL, next, in, 0);
        if (k) c->painn->multiply((size_t)n * in, next, slope[k - 1]);
        bar = next;
    }
    mark(r, thread, 2 + 2 * L);
}

// q̄, μ̄ after the layer become q̄', μ̄' after its message, in place.
static void update_backward(painn_cpu *c, int l, span s, float *q_bar, float *mu_bar)
{
    painn_cpu_layer *L = &c->layer[l];
    int F = c->F, n = s.end - s.begin, last = l == c->parameters.n_layers - 1, width = last ? 2 * F : 3 * F;
    size_t at = (size_t)s.begin * F;
    float *VB_bar = s.scratch, *y_bar = VB_bar + (size_t)BLOCK * 6 * F, *g_bar = y_bar + (size_t)BLOCK * 3 * F;
    float *context_bar = g_bar + (size_t)BLOCK * F, *q = q_bar + at, *mu = mu_bar + 3 * at;
    const float *VB = L->VB + 6 * at, *y = L->y + (size_t)s.begin * width;
    c->painn->mix_backward(n, F, last, VB, q, mu, y_bar);
    c->nn->product(n, F, width, y_bar, width, L->M2_back, NULL, g_bar, F, 0);
    c->painn->multiply((size_t)n * F, g_bar, L->g_slope + at);
    c->nn->product(n, 2 * F, F, g_bar, F, L->M1_back, NULL, context_bar, 2 * F, 0);
    c->painn->context_backward(n, F, last, (float)c->parameters.epsilon, VB, y, context_bar, mu, q, VB_bar);
    c->nn->product(3 * n, F, 2 * F, VB_bar, 2 * F, L->U_back, NULL, mu, F, !last);
}

// Pairs that end in these atoms are read as far as their centers matter for a layer: further than for the layer above.
static void advance_incoming(painn_cpu *c, span s, int n_centers)
{
    for (int j = s.begin; j < s.end; j++) {
        int32_t at = c->incoming_last[j];
        c->incoming_before[j] = at;
        while (at < c->incoming_first[j + 1] && c->incoming_center[at] < n_centers) at++;
        c->incoming_last[j] = at;
    }
}

// x_bar [atoms of the span][3F].
static void message_backward(const run *r, int l, span s, const float *q_bar, const float *mu_bar, float *x_bar, float *mu_next)
{
    painn_cpu *c = r->cpu;
    const painn_cpu_layer *L = &c->layer[l];
    painn_edges edges = {.F = c->F, .begin = s.begin, .end = s.end, .table = L->table, .slice = c->slice};
    edges.first = r->in_first;
    edges.other = r->in_center;
    edges.pairs = r->in_pairs;
    edges.x = l ? L->x : c->x0;
    edges.mu = l ? L->mu : NULL;
    edges.x_row = l ? NULL : r->graph->species;
    edges.q_bar = q_bar;
    edges.mu_bar = mu_bar;
    edges.x_bar = x_bar;
    edges.mu_bar_out = mu_next;
    edges.pair_bar = c->pair_bar;
    edges.last = r->graph->reverse ? r->in_first + 1 : c->incoming_last;
    if (!r->graph->reverse) {
        advance_incoming(c, s, r->reach[c->parameters.n_layers - 1 - l]);
        edges.first_new = c->incoming_before;
    } else {
        edges.first_new = l == c->parameters.n_layers - 1 ? r->in_first : r->in_first + 1;
    }
    c->painn->message_backward(&edges);
}

// q̄' of layer l ≥ 1 from q̄ and x̄.
static void message_network_backward(painn_cpu *c, int l, span s, const float *x_bar, const float *q_bar, float *q_next)
{
    const painn_cpu_layer *L = &c->layer[l];
    const int F = c->F, n = s.end - s.begin;
    const size_t at = (size_t)s.begin * F;
    float *h_bar = s.scratch + (size_t)BLOCK * 3 * F;
    c->nn->product(n, F, 3 * F, x_bar, 3 * F, L->W2_back, NULL, h_bar, F, 0);
    c->painn->multiply((size_t)n * F, h_bar, L->h_slope + at);
    memcpy(q_next + at, q_bar + at, sizeof(float) * (size_t)n * F);
    c->nn->product(n, F, F, h_bar, F, L->W1_back, NULL, q_next + at, F, 1);
}

// All threads' rows are complete afterwards; with hooks those of ghosts too.
static void exchange(run *r, const team_member *member, bool forward, int layer, float *x, float *mu)
{
    const mlff_halo *hooks = r->graph->halo;
    team_barrier(member);
    if (!hooks) return;
    if (member->thread == 0) {
        mlff_halo_array arrays[2] = {{x, 3 * r->cpu->F, 4}, {mu, 3 * r->cpu->F, 4}};
        mlff_status status = (forward ? hooks->forward : hooks->reverse)(hooks->context, layer, arrays, 2, MLFF_HOST, NULL);
        if (r->status == MLFF_OK) r->status = status;
    }
    team_barrier(member);
    if (member->thread == 0) stage_begin(r->clock); // the exchange is no part of a stage
}

// All blocks of a thread's atoms: for (span s = …).
#define BLOCKS(s, from, to, memory)                                                                                              \
    for (span s = {(from), (from) + BLOCK < (to) ? (from) + BLOCK : (to), (memory)}; s.begin < (to);                             \
         s.begin += BLOCK, s.end = s.begin + BLOCK < (to) ? s.begin + BLOCK : (to))

typedef struct range {
    int from, to;
} range;

// First atom of a thread: ranges of like work. An atom's dense layers cost about as much as 40 of its pairs.
static int range_begin(const model_graph *graph, int n_atoms, int thread, int n_threads)
{
    int64_t goal = ((int64_t)graph->first[n_atoms] + 40 * (int64_t)n_atoms) * thread / n_threads;
    int low = 0, high = n_atoms;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (graph->first[middle] + 40 * (int64_t)middle < goal)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// This thread's of the first n_atoms.
static range range_of(const run *r, const team_member *member, int n_atoms)
{
    return (range){range_begin(r->graph, n_atoms, member->thread, member->n),
                   range_begin(r->graph, n_atoms, member->thread + 1, member->n)};
}

// This thread's of the atoms from begin to end, which have little work.
static range part_of(const team_member *member, int begin, int end)
{
    const int64_t n = end - begin;
    return (range){begin + (int)(n * member->thread / member->n), begin + (int)(n * (member->thread + 1) / member->n)};
}

// Layer l computes the first atoms, and reads messages from more of them, whose x may come from their owners.
static int n_computed(const run *r, int l)
{
    return r->n_exchanged >= 0 ? r->n_exchanged : r->reach[r->cpu->parameters.n_layers - 1 - l];
}

static int n_read(const run *r, int l)
{
    return r->reach[r->cpu->parameters.n_layers - l];
}

static int n_networks(const run *r, int l)
{
    return r->n_exchanged >= 0 ? r->n_exchanged : n_read(r, l);
}

static void find_geometry(const run *r, range atoms)
{
    painn_cpu *c = r->cpu;
    const model_graph *graph = r->graph;
    const int begin = graph->first[atoms.from], end = graph->first[atoms.to];
    c->painn->geometry(begin, end, graph->vectors, c->n_intervals, c->parameters.cutoff, c->pairs);
    if (r->in_pairs == c->pairs || !r->pair_gradient) return;
    for (int p = begin; p < end; p++) {
        painn_pair *turned = &c->incoming_pairs[r->in_row[p]];
        *turned = c->pairs[p];
        for (int k = 0; k < 3; k++) turned->u[k] = -turned->u[k];
    }
}

static void forward(run *r, const team_member *member)
{
    painn_cpu *c = r->cpu;
    const model_graph *graph = r->graph;
    const int L = c->parameters.n_layers, F = c->F, thread = member->thread;
    float *memory = c->scratch[thread];
    range own = range_of(r, member, n_computed(r, 0));
    const range ghosts = part_of(member, n_computed(r, 0), r->reach[L - 1]);

    find_geometry(r, own);
    find_geometry(r, ghosts);
    for (int i = own.from; i < own.to; i++)
        memcpy(c->q + (size_t)i * F, c->embedding + (size_t)graph->species[i] * F, sizeof(float) * (size_t)F);
    mark(r, thread, 0);

    for (int l = 0; l < L; l++) {
        if (l > 0) {
            own = range_of(r, member, n_networks(r, l));
            BLOCKS(s, own.from, own.to, memory) message_network(c, l, s);
            mark(r, thread, 1 + 2 * l);
            exchange(r, member, true, l - 1, c->layer[l].x, c->layer[l].mu);
            own = range_of(r, member, n_computed(r, l));
        }
        BLOCKS(s, own.from, own.to, memory) message(r, l, s);
        mark(r, thread, 1 + 2 * l);
        BLOCKS(s, own.from, own.to, memory) update(c, l, s);
        mark(r, thread, 2 + 2 * l);
    }
}

// What a layer passes back to atoms that it computed nothing of is zero before their messages are added.
static void clear_bars(const run *r, const team_member *member, int l, float *q_bar, float *mu_bar)
{
    const int F = r->cpu->F;
    const range rows = part_of(member, n_computed(r, l), n_read(r, l));
    memset(q_bar + (size_t)rows.from * F, 0, sizeof(float) * (size_t)(rows.to - rows.from) * F);
    memset(mu_bar + 3 * (size_t)rows.from * F, 0, 3 * sizeof(float) * (size_t)(rows.to - rows.from) * F);
}

static void backward(run *r, const team_member *member)
{
    painn_cpu *c = r->cpu;
    const model_graph *graph = r->graph;
    const int L = c->parameters.n_layers, thread = member->thread, back = 1 + 2 * L;
    float *memory = c->scratch[thread];
    float *q_bar = c->q_bar[0], *mu_bar = c->mu_bar[0], *q_next = c->q_bar[1], *mu_next = c->mu_bar[1];
    range own;

    for (int l = L - 1; l >= 0; l--) {
        own = range_of(r, member, n_computed(r, l));
        BLOCKS(s, own.from, own.to, memory) update_backward(c, l, s, q_bar, mu_bar);
        mark(r, thread, back + 2 + 2 * (L - 1 - l));
        clear_bars(r, member, l, q_bar, mu_bar);
        team_barrier(member);
        own = range_of(r, member, n_read(r, l));
        BLOCKS(s, own.from, own.to, memory)
        {
            float *x_bar = graph->halo ? c->x_bar + 3 * (size_t)s.begin * c->F : memory;
            message_backward(r, l, s, q_bar, mu_bar, x_bar, mu_next);
            if (l > 0 && !graph->halo) message_network_backward(c, l, s, x_bar, q_bar, q_next);
        }
        if (l > 0 && graph->halo) {
            mark(r, thread, back + 3 + 2 * (L - 1 - l));
            exchange(r, member, false, l, c->x_bar, mu_next);
            own = range_of(r, member, n_networks(r, l));
            BLOCKS(s, own.from, own.to, memory)
            message_network_backward(c, l, s, c->x_bar + 3 * (size_t)s.begin * c->F, q_bar, q_next);
        }
        mark(r, thread, back + 3 + 2 * (L - 1 - l));
        float *swap = q_bar;
        q_bar = q_next;
        q_next = swap;
        swap = mu_bar;
        mu_bar = mu_next;
        mu_next = swap;
    }
    team_barrier(member);
    own = range_of(r, member, r->reach[L - 1]);
    c->painn->gradient(graph->first[own.from], graph->first[own.to], graph->vectors, r->in_row, c->pair_bar, r->pair_gradient);
    if (thread == 0) { // rows that no owned atom depends on
        const size_t n_pairs = (size_t)graph->first[r->reach[L - 1]];
        memset(r->pair_gradient + 3 * n_pairs, 0, 3 * sizeof(double) * ((size_t)graph->n_pairs - n_pairs));
    }
    team_barrier(member);
    mark(r, thread, back + 2 + 2 * L);
}

static void step(void *context, const team_member *member)
{
    run *r = context;
    const range owned = range_of(r, member, n_computed(r, r->cpu->parameters.n_layers - 1));
    forward(r, member);
    BLOCKS(s, owned.from, owned.to, r->cpu->scratch[member->thread]) readout(r, s, r->cpu->q_bar[0], member->thread);
    if (r->pair_gradient) backward(r, member);
}

// ---- the backend --------------------------------------------------------------------------------------------------

static mlff_status compute(model_backend *backend, const model_graph *graph, const model_outputs *outputs, stage_clock *clock,
                           int stage)
{
    mlff_status status = MLFF_OK;
    double *atom_energy = outputs->atom_energy, *pair_gradient = outputs->pair_gradient;
    painn_cpu *c = (painn_cpu *)backend;
    run r = {
        .cpu = c, .graph = graph, .atom_energy = atom_energy, .pair_gradient = pair_gradient, .clock = clock, .stage = stage};
    MLFF_TRY(resize(c, graph));
    MLFF_TRY(painn_cpu_find_reach(c, graph, r.reach));
    r.n_exchanged = painn_cpu_find_exchanged(graph);
    const int n_energies = n_computed(&r, c->parameters.n_layers - 1);
    memset(atom_energy + n_energies, 0, sizeof(double) * (size_t)(graph->n_atoms - n_energies));
    if (graph->reverse) {
        r.in_first = graph->first;
        r.in_center = graph->neighbor;
        r.in_row = graph->reverse;
        r.in_pairs = c->pairs;
    } else if (pair_gradient) {
        MLFF_TRY(painn_cpu_collect_incoming(c, graph, r.reach[c->parameters.n_layers - 1]));
        r.in_first = c->incoming_first;
        r.in_center = c->incoming_center;
        r.in_row = c->incoming_row;
        r.in_pairs = c->incoming_pairs;
    }
    int n_threads = graph->n_atoms / 4 < c->n_threads ? graph->n_atoms / 4 : c->n_threads;
    team_run(n_threads, step, &r);
    status = r.status;
done:
    return status;
}

static void info(const model_backend *backend, int64_t *bytes, int64_t *n_growths)
{
    const painn_cpu *c = (const painn_cpu *)backend;
    int64_t F = c->F, layers = c->parameters.n_layers, per_atom = (17 * layers - 7 + 12) * F;
    int64_t weights = layers * (2 * 17 * (int64_t)c->nn->packed_floats(c->F, c->F) + (int64_t)c->slice * F / NN_PAD) +
                      4 * F * c->parameters.n_species;
    *bytes = 4 * ((int64_t)c->atom_capacity * per_atom + weights + (int64_t)c->scratch_floats * c->n_threads) +
             (int64_t)c->pair_capacity * (int64_t)(sizeof(painn_pair) + 4 * NN_PAD) +
             (int64_t)(16 + sizeof(painn_pair)) * (int64_t)c->incoming_capacity + 4 * (int64_t)c->x_bar_capacity +
             (int64_t)c->level_capacity;
    *n_growths = c->n_growths;
}

static void destroy(model_backend *backend)
{
    painn_cpu *c = (painn_cpu *)backend;
    for (int l = 0; l < PAINN_MAX_LAYERS; l++) {
        painn_cpu_layer *L = &c->layer[l];
        float *arrays[] = {L->W1,     L->W2,      L->U,       L->M1, L->M2,      L->W1_back, L->W2_back,
                           L->U_back, L->M1_back, L->M2_back, L->b1, L->b2,      L->c1,      L->c2,
                           L->table,  L->x,       L->h_slope, L->VB, L->g_slope, L->y,       L->mu};
        for (size_t a = 0; a < sizeof arrays / sizeof *arrays; a++) base_free(arrays[a]);
    }
    for (int k = 0; k < PAINN_MAX_READOUT; k++) {
        base_free(c->readout[k]);
        base_free(c->readout_back[k]);
        base_free(c->readout_bias[k]);
    }
    for (int t = 0; t < TEAM_MAX; t++) base_free(c->scratch[t]);
    void *arrays[] = {c->stages,
                      c->embedding,
                      c->x0,
                      c->q,
                      c->mu1,
                      c->x_bar,
                      c->q_bar[0],
                      c->q_bar[1],
                      c->mu_bar[0],
                      c->mu_bar[1],
                      c->pairs,
                      c->pair_bar,
                      c->incoming_first,
                      c->incoming_row,
                      c->incoming_pairs,
                      c->incoming_center,
                      c->incoming_last,
                      c->incoming_before,
                      c->level};
    for (size_t a = 0; a < sizeof arrays / sizeof *arrays; a++) base_free(arrays[a]);
    base_free(c);
}

mlff_status painn_cpu_create(const mlff_model *model, const cpu_options *options, model_backend **backend_out)
{
    mlff_status status = MLFF_OK;
    painn_cpu *c = base_alloc(1, sizeof *c, "an evaluator");
    if (!c) return MLFF_ERR_MEMORY;
    c->backend = (model_backend){.compute = compute, .info = info, .destroy = destroy};
    c->parameters = *(const painn_parameters *)model->parameters;
    MLFF_TRY(cpu_products(options, &c->nn));
    c->painn = painn_kernels_get(options->path);
    c->n_threads = options->n_threads < TEAM_MAX ? options->n_threads : TEAM_MAX;
    c->F = nn_padded(c->parameters.n_features);
    MLFF_TRY(painn_cpu_load_weights(c));

    size_t per_atom = 12 * (size_t)c->F, readout_per_atom = 0;
    for (int k = 0; k <= c->parameters.n_readout; k++) readout_per_atom += 3 * (size_t)c->readout_width[k];
    c->scratch_floats = BLOCK * (per_atom > readout_per_atom ? per_atom : readout_per_atom);
    for (int t = 0; t < c->n_threads; t++)
        if (!(c->scratch[t] = base_alloc(c->scratch_floats, sizeof(float), "scratch"))) {
            status = MLFF_ERR_MEMORY;
            goto done;
        }
    MLFF_TRY(painn_stages_create(c->parameters.n_layers, &c->stages, &c->backend.n_stages));
    c->backend.stages = c->stages;
    *backend_out = &c->backend;
    c = NULL;
done:
    if (c) destroy(&c->backend);
    return status;
}
