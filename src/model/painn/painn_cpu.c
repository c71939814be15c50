// SPDX-License-Identifier: MIT
// painn_cpu.c: PaiNN in float32 on the CPU. The equations: README.md of this folder; the kernels: painn_kernels.c.
//
// Atoms are cut into one range a thread. A thread does everything of its atoms and reads only x, μ (forward) and q̄, μ̄
// (reverse) of others, so one barrier a layer and direction is enough: 2 L + 1 in a step. Within a range, blocks of
// BLOCK atoms go through a chain of layers together, so that activations stay in the second cache.
// Exact savings: x of layer 0 depends on the element only (a table); μ of layer 0 is zero; the last layer's μ is unused.
#include <math.h>
#include <omp.h>
#include <string.h>

#include "nn/nn.h"
#include "painn.h"
#include "painn_kernels.h"

enum { BLOCK = 64, MAX_THREADS = 256 };

typedef struct cpu_layer {
    // Packed for x Wᵀ (forward) and for x̄ W (reverse).
    float *W1, *W2, *U, *M1, *M2, *W1_back, *W2_back, *U_back, *M1_back, *M2_back;
    float *b1, *b2, *c1, *c2;
    float *table;                               // [F/16][n_intervals + 5][3][16]
    float *x, *h_slope, *VB, *g_slope, *y, *mu; // saved by the forward pass, [n_atoms][3F, F, 6F, F, 3F, 3F]
} cpu_layer;

typedef struct cpu {
    model_backend backend;
    painn_parameters parameters;
    const nn_kernels *nn;
    const painn_kernels *painn;
    int n_threads, F; // F is padded
    mlff_stage *stages;
    float *embedding, *x0; // [n_species][F], [n_species][3F]
    int n_intervals;
    size_t slice;
    cpu_layer layer[PAINN_MAX_LAYERS];
    int readout_width[PAINN_MAX_READOUT + 1]; // padded
    float *readout[PAINN_MAX_READOUT], *readout_back[PAINN_MAX_READOUT], *readout_bias[PAINN_MAX_READOUT];

    size_t atom_capacity, pair_capacity, incoming_capacity;
    int64_t n_growths;
    float *q, *mu1;                                            // [n_atoms][F], [3F]
    float *q_bar[2], *mu_bar[2];                               // alternate from layer to layer
    painn_pair *pairs;                                         // [n_pairs]
    float *pair_bar;                                           // [n_pairs][4][16]
    int32_t *incoming_first, *incoming_pair, *incoming_center; // where the list is not symmetric
    float *scratch[MAX_THREADS];                               // [BLOCK][20 F or the readout's]
    size_t scratch_floats;
} cpu;

// One compute, as all threads see it.
typedef struct run {
    cpu *cpu;
    const model_graph *graph;
    int n_threads, begin[MAX_THREADS + 1];
    const int32_t *in_first, *in_pair, *in_center;
    double *atom_energy, *pair_gradient;
    stage_clock *clock;
    int stage;
    mlff_status status; // of halo hooks
} run;

// ---- weights ------------------------------------------------------------------------------------------------------

// Copies w (out_blocks·out, in_blocks·in) with each block padded; `transpose` gives [in][out], what x wᵀ needs.
static float *padded(const float *w, int out_blocks, int out, int in_blocks, int in, bool transpose)
{
    int out_p = nn_padded(out), in_p = nn_padded(in);
    size_t rows = (size_t)out_blocks * out_p, columns = (size_t)in_blocks * in_p;
    float *p = base_alloc(rows * columns, sizeof *p, "weights");
    if (!p) return NULL;
    for (int ob = 0; ob < out_blocks; ob++)
        for (int o = 0; o < out; o++)
            for (int ib = 0; ib < in_blocks; ib++)
                for (int i = 0; i < in; i++) {
                    size_t row = (size_t)ob * out_p + o, column = (size_t)ib * in_p + i;
                    float value = w[((size_t)ob * out + o) * ((size_t)in_blocks * in) + (size_t)ib * in + i];
                    p[transpose ? column * rows + row : row * columns + column] = value;
                }
    return p;
}

static mlff_status pack(const nn_kernels *nn, const float *w, int out_blocks, int out, int in_blocks, int in, float **forward,
                        float **back)
{
    mlff_status status = MLFF_ERR_MEMORY;
    int rows = out_blocks * nn_padded(out), columns = in_blocks * nn_padded(in);
    float *plain = padded(w, out_blocks, out, in_blocks, in, false), *turned = padded(w, out_blocks, out, in_blocks, in, true);
    if (!plain || !turned) goto done;
    if (!(*forward = base_alloc((size_t)rows * columns, sizeof **forward, "weights"))) goto done;
    if (!(*back = base_alloc((size_t)rows * columns, sizeof **back, "weights"))) goto done;
    nn->pack(columns, rows, turned, *forward);
    nn->pack(rows, columns, plain, *back);
    status = MLFF_OK;
done:
    base_free(plain);
    base_free(turned);
    return status;
}

static float *padded_bias(const float *b, int blocks, int width)
{
    float *p = base_alloc((size_t)blocks * nn_padded(width), sizeof *p, "weights");
    for (int k = 0; p && k < blocks; k++)
        memcpy(p + (size_t)k * nn_padded(width), b + (size_t)k * width, sizeof *p * (size_t)width);
    return p;
}

typedef struct filter_context {
    const painn_parameters *parameters;
    int F; // padded
} filter_context;

// ψ continued analytically beyond [0, cutoff], so that the spline meets no kink at its ends.
static void radial_continued(const painn_parameters *P, double d, double *psi)
{
    int K = P->n_radial;
    double rc = P->cutoff, f = 0.5 * (1.0 + cos(BASE_PI * d / rc)), s = d / rc, w = 1.0 - s * s;
    if (P->cutoff_function == PAINN_MOLLIFIER) f = w > 1e-7 ? exp(1.0 - 1.0 / w) : 0.0;
    for (int k = 0; k < K; k++) {
        double phi;
        if (P->basis == PAINN_GAUSSIAN) {
            double z = (d - P->center[k]) / P->width[k];
            phi = exp(-0.5 * z * z);
        } else {
            phi = fabs(d) > 1e-9 ? sin(P->frequency[k] * d) / d : P->frequency[k];
        }
        psi[k] = phi * f;
    }
    psi[K] = f;
}

// All layers' filters at distance d, [L][3][F].
static void filter_at(void *context, double d, double *W)
{
    const filter_context *c = context;
    const painn_parameters *P = c->parameters;
    int K = P->n_radial, F = P->n_features;
    double psi[PAINN_MAX_RADIAL + 1];
    radial_continued(P, d, psi);
    for (int l = 0; l < P->n_layers; l++)
        for (int block = 0; block < 3; block++)
            for (int f = 0; f < c->F; f++) {
                double sum = 0;
                if (f < F) {
                    size_t row = (size_t)block * F + f;
                    sum = P->layer[l].filter_bias[row] * psi[K];
                    for (int k = 0; k < K; k++) sum += P->layer[l].filter_weight[row * K + k] * psi[k];
                }
                W[((size_t)l * 3 + block) * c->F + f] = sum;
            }
}

// 3e-8 of the largest value: below the rounding of the float32 it is stored in.
static mlff_status create_tables(cpu *c)
{
    mlff_status status = MLFF_OK;
    const painn_parameters *P = &c->parameters;
    filter_context context = {P, c->F};
    nn_spline spline = {0};
    MLFF_TRY(nn_spline_create(P->n_layers * 3 * c->F, P->cutoff, 3e-8, filter_at, &context, &spline));
    size_t rows = (size_t)spline.n_intervals + 5;
    c->n_intervals = spline.n_intervals;
    c->slice = rows * 3 * NN_PAD;
    for (int l = 0; l < P->n_layers; l++) {
        float *table = c->layer[l].table = base_alloc(rows * 3 * c->F, sizeof(float), "a filter table");
        if (!table) {
            status = MLFF_ERR_MEMORY;
            goto done;
        }
        for (size_t row = 0; row < rows; row++)
            for (int block = 0; block < 3; block++)
                for (int f = 0; f < c->F; f++)
                    table[(size_t)(f / NN_PAD) * c->slice + row * 3 * NN_PAD + (size_t)block * NN_PAD + f % NN_PAD] =
                        spline.coefficient[row * spline.n_columns + ((size_t)l * 3 + block) * c->F + f];
    }
done:
    nn_spline_free(&spline);
    return status;
}

static mlff_status create_layer(cpu *c, int l)
{
    mlff_status status = MLFF_OK;
    const painn_layer *w = &c->parameters.layer[l];
    cpu_layer *L = &c->layer[l];
    int F = c->parameters.n_features, blocks = 3;
    const float *M2 = w->M2, *c2 = w->c2;
    float *two = NULL; // the last layer's M2 and c2 without the block of μ

    if (l == c->parameters.n_layers - 1) {
        size_t block = (size_t)F * F;
        blocks = 2;
        if (!(two = base_alloc(2 * block + 2 * (size_t)F, sizeof *two, "weights"))) return MLFF_ERR_MEMORY;
        memcpy(two, M2, sizeof *two * block);
        memcpy(two + block, M2 + 2 * block, sizeof *two * block);
        memcpy(two + 2 * block, c2, sizeof *two * (size_t)F);
        memcpy(two + 2 * block + F, c2 + 2 * F, sizeof *two * (size_t)F);
        M2 = two;
        c2 = two + 2 * block;
    }
    MLFF_TRY(pack(c->nn, w->W1, 1, F, 1, F, &L->W1, &L->W1_back));
    MLFF_TRY(pack(c->nn, w->W2, 3, F, 1, F, &L->W2, &L->W2_back));
    MLFF_TRY(pack(c->nn, w->U, 2, F, 1, F, &L->U, &L->U_back));
    MLFF_TRY(pack(c->nn, w->M1, 1, F, 2, F, &L->M1, &L->M1_back));
    MLFF_TRY(pack(c->nn, M2, blocks, F, 1, F, &L->M2, &L->M2_back));
    if (!(L->b1 = padded_bias(w->b1, 1, F)) || !(L->b2 = padded_bias(w->b2, 3, F)) || !(L->c1 = padded_bias(w->c1, 1, F)) ||
        !(L->c2 = padded_bias(c2, blocks, F)))
        status = MLFF_ERR_MEMORY;
done:
    base_free(two);
    return status;
}

// x of layer 0 for every row of the embedding.
static mlff_status create_species_table(cpu *c)
{
    mlff_status status = MLFF_OK;
    const painn_parameters *P = &c->parameters;
    const cpu_layer *L = &c->layer[0];
    int n = P->n_species, F = c->F;
    float *h = base_alloc((size_t)n * F, sizeof *h, "weights");
    c->embedding = base_alloc((size_t)n * F, sizeof *c->embedding, "weights");
    c->x0 = base_alloc((size_t)n * 3 * F, sizeof *c->x0, "weights");
    if (!h || !c->embedding || !c->x0) {
        status = MLFF_ERR_MEMORY;
        goto done;
    }
    for (int z = 0; z < n; z++)
        memcpy(c->embedding + (size_t)z * F, P->embedding + (size_t)z * P->n_features, sizeof(float) * (size_t)P->n_features);
    c->nn->product(n, F, F, c->embedding, F, L->W1, L->b1, h, F, 0);
    c->nn->activate((enum nn_activation)P->activation, (size_t)n * F, h, NULL);
    c->nn->product(n, 3 * F, F, h, F, L->W2, L->b2, c->x0, 3 * F, 0);
done:
    base_free(h);
    return status;
}

static mlff_status create_readout(cpu *c)
{
    mlff_status status = MLFF_OK;
    const painn_parameters *P = &c->parameters;
    c->readout_width[0] = c->F;
    for (int k = 0; k < P->n_readout; k++) {
        int in = P->readout_width[k], out = P->readout_width[k + 1];
        c->readout_width[k + 1] = nn_padded(out);
        MLFF_TRY(pack(c->nn, P->readout_weight[k], 1, out, 1, in, &c->readout[k], &c->readout_back[k]));
        if (!(c->readout_bias[k] = padded_bias(P->readout_bias[k], 1, out))) return MLFF_ERR_MEMORY;
    }
done:
    return status;
}

// ---- buffers ------------------------------------------------------------------------------------------------------

static mlff_status regrow(float **array, size_t count, const char *what)
{
    size_t none = 0; // nothing is worth keeping from one compute to the next
    base_free(*array);
    *array = NULL;
    return base_grow(array, &none, count, sizeof(float), what);
}

static mlff_status resize(cpu *c, const model_graph *graph)
{
    mlff_status status = MLFF_OK;
    size_t F = (size_t)c->F, n = (size_t)graph->n_atoms, n_pairs = (size_t)graph->n_pairs;
    if (n > c->atom_capacity) {
        n += n / 4;
        c->n_growths++;
        c->atom_capacity = 0;
        for (int l = 0; l < c->parameters.n_layers; l++) {
            cpu_layer *L = &c->layer[l];
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
    if (n_pairs > c->pair_capacity || !c->pairs) {
        n_pairs += n_pairs / 4 + 16;
        c->n_growths++;
        c->pair_capacity = 0;
        size_t none = 0;
        base_free(c->pairs);
        c->pairs = NULL;
        MLFF_TRY(base_grow(&c->pairs, &none, n_pairs, sizeof *c->pairs, "pairs"));
        MLFF_TRY(regrow(&c->pair_bar, 4 * NN_PAD * n_pairs, "pairs"));
        c->pair_capacity = n_pairs;
    }
done:
    return status;
}

// Where the list is not symmetric, the pairs that end in each atom are collected by counting, in list order.
static mlff_status collect_incoming(cpu *c, const model_graph *graph)
{
    mlff_status status = MLFF_OK;
    size_t needed = (size_t)graph->n_atoms + 1 > (size_t)graph->n_pairs ? (size_t)graph->n_atoms + 1 : (size_t)graph->n_pairs;
    if (needed > c->incoming_capacity || !c->incoming_first) {
        size_t wanted = needed + needed / 4, none;
        c->n_growths++;
        MLFF_TRY((none = 0, base_grow(&c->incoming_first, &none, wanted, sizeof(int32_t), "pairs")));
        MLFF_TRY((none = 0, base_grow(&c->incoming_pair, &none, wanted, sizeof(int32_t), "pairs")));
        MLFF_TRY((none = 0, base_grow(&c->incoming_center, &none, wanted, sizeof(int32_t), "pairs")));
        c->incoming_capacity = wanted;
    }
    int32_t *first = c->incoming_first;
    memset(first, 0, sizeof *first * ((size_t)graph->n_atoms + 1));
    for (int p = 0; p < graph->n_pairs; p++) first[graph->neighbor[p] + 1]++;
    for (int i = 0; i < graph->n_atoms; i++) first[i + 1] += first[i];
    for (int i = 0; i < graph->n_atoms; i++)
        for (int p = graph->first[i]; p < graph->first[i + 1]; p++) {
            int32_t at = first[graph->neighbor[p]]++;
            c->incoming_pair[at] = p;
            c->incoming_center[at] = i;
        }
    for (int i = graph->n_atoms; i > 0; i--) first[i] = first[i - 1];
    first[0] = 0;
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
static void message_network(cpu *c, int l, span s)
{
    cpu_layer *L = &c->layer[l];
    int F = c->F, n = s.end - s.begin;
    float *h = s.scratch;
    size_t at = (size_t)s.begin * F;
    c->nn->product(n, F, F, c->q + at, F, L->W1, L->b1, h, F, 0);
    c->nn->activate((enum nn_activation)c->parameters.activation, (size_t)n * F, h, L->h_slope + at);
    c->nn->product(n, 3 * F, F, h, F, L->W2, L->b2, L->x + 3 * at, 3 * F, 0);
}

static void message(const run *r, int l, span s)
{
    cpu *c = r->cpu;
    const cpu_layer *L = &c->layer[l];
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

static void update(cpu *c, int l, span s)
{
    cpu_layer *L = &c->layer[l];
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
    cpu *c = r->cpu;
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
static void update_backward(cpu *c, int l, span s, float *q_bar, float *mu_bar)
{
    cpu_layer *L = &c->layer[l];
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

static void message_backward(const run *r, int l, span s, const float *q_bar, const float *mu_bar, float *q_next, float *mu_next)
{
    cpu *c = r->cpu;
    const cpu_layer *L = &c->layer[l];
    int F = c->F, n = s.end - s.begin;
    size_t at = (size_t)s.begin * F;
    float *x_bar = s.scratch, *h_bar = x_bar + (size_t)BLOCK * 3 * F;
    painn_edges edges = {.F = F, .begin = s.begin, .end = s.end, .table = L->table, .slice = c->slice};
    edges.first = r->in_first;
    edges.other = r->in_center;
    edges.pair = r->in_pair;
    edges.pairs = c->pairs;
    edges.x = l ? L->x : c->x0;
    edges.mu = l ? L->mu : NULL;
    edges.x_row = l ? NULL : r->graph->species;
    edges.q_bar = q_bar;
    edges.mu_bar = mu_bar;
    edges.x_bar = x_bar;
    edges.mu_bar_out = mu_next;
    edges.pair_bar = c->pair_bar;
    edges.start = l == c->parameters.n_layers - 1;
    c->painn->message_backward(&edges);
    if (l == 0) return;
    c->nn->product(n, F, 3 * F, x_bar, 3 * F, L->W2_back, NULL, h_bar, F, 0);
    c->painn->multiply((size_t)n * F, h_bar, L->h_slope + at);
    memcpy(q_next + at, q_bar + at, sizeof(float) * (size_t)n * F);
    c->nn->product(n, F, F, h_bar, F, L->W1_back, NULL, q_next + at, F, 1);
}

static void halo(run *r, bool forward, int layer, float *q, float *mu)
{
    const mlff_halo *hooks = r->graph->halo;
    if (!hooks) return;
#pragma omp barrier
#pragma omp master
    {
        mlff_halo_array arrays[2] = {{q, r->cpu->F, 4}, {mu, 3 * r->cpu->F, 4}};
        mlff_status status = (forward ? hooks->forward : hooks->reverse)(hooks->context, layer, arrays, 2, MLFF_HOST, NULL);
        if (r->status == MLFF_OK) r->status = status;
    }
#pragma omp barrier
}

// All blocks of a thread's atoms: for (span s = …).
#define BLOCKS(s, from, to, memory)                                                                                              \
    for (span s = {(from), (from) + BLOCK < (to) ? (from) + BLOCK : (to), (memory)}; s.begin < (to);                             \
         s.begin += BLOCK, s.end = s.begin + BLOCK < (to) ? s.begin + BLOCK : (to))

static void step(run *r, int thread)
{
    cpu *c = r->cpu;
    const model_graph *graph = r->graph;
    int from = r->begin[thread], to = r->begin[thread + 1], L = c->parameters.n_layers, F = c->F, back = 1 + 2 * L;
    float *memory = c->scratch[thread];

    c->painn->geometry(graph->first[from], graph->first[to], graph->vectors, c->n_intervals, c->parameters.cutoff, c->pairs);
    for (int i = from; i < to; i++)
        memcpy(c->q + (size_t)i * F, c->embedding + (size_t)graph->species[i] * F, sizeof(float) * (size_t)F);
    mark(r, thread, 0);

    for (int l = 0; l < L; l++) {
        if (l > 0) {
            BLOCKS(s, from, to, memory) message_network(c, l, s);
#pragma omp barrier
        }
        BLOCKS(s, from, to, memory) message(r, l, s);
        mark(r, thread, 1 + 2 * l);
        BLOCKS(s, from, to, memory) update(c, l, s);
        if (l + 1 < L) halo(r, true, l, c->q, c->layer[l + 1].mu);
        mark(r, thread, 2 + 2 * l);
    }
    float *q_bar = c->q_bar[0], *mu_bar = c->mu_bar[0], *q_next = c->q_bar[1], *mu_next = c->mu_bar[1];
    BLOCKS(s, from, to, memory) readout(r, s, q_bar, thread);
    if (!r->pair_gradient) return;

    for (int l = L - 1; l >= 0; l--) {
        BLOCKS(s, from, to, memory) update_backward(c, l, s, q_bar, mu_bar);
        mark(r, thread, back + 2 + 2 * (L - 1 - l));
#pragma omp barrier
        BLOCKS(s, from, to, memory) message_backward(r, l, s, q_bar, mu_bar, q_next, mu_next);
        if (l > 0) halo(r, false, l, q_next, mu_next);
        mark(r, thread, back + 3 + 2 * (L - 1 - l));
        float *swap = q_bar;
        q_bar = q_next;
        q_next = swap;
        swap = mu_bar;
        mu_bar = mu_next;
        mu_next = swap;
    }
#pragma omp barrier
    c->painn->gradient(graph->first[from], graph->first[to], graph->vectors, c->pair_bar, r->pair_gradient);
#pragma omp barrier
    mark(r, thread, back + 2 + 2 * L);
}

// ---- the backend --------------------------------------------------------------------------------------------------

// Ranges of like work: an atom's dense layers cost about as much as 40 of its pairs.
static void divide(run *r)
{
    const model_graph *graph = r->graph;
    int64_t total = (int64_t)graph->n_pairs + 40 * (int64_t)graph->n_atoms;
    int i = 0;
    for (int t = 0; t < r->n_threads; t++) {
        r->begin[t] = i;
        int64_t goal = total * (t + 1) / r->n_threads;
        while (i < graph->n_atoms && (int64_t)graph->first[i + 1] + 40 * (int64_t)(i + 1) <= goal) i++;
    }
    r->begin[r->n_threads] = graph->n_atoms;
}

static mlff_status compute(model_backend *backend, const model_graph *graph, double *atom_energy, double *pair_gradient,
                           stage_clock *clock, int stage)
{
    mlff_status status = MLFF_OK;
    cpu *c = (cpu *)backend;
    run r = {
        .cpu = c, .graph = graph, .atom_energy = atom_energy, .pair_gradient = pair_gradient, .clock = clock, .stage = stage};
    MLFF_TRY(resize(c, graph));
    if (graph->reverse) {
        r.in_first = graph->first;
        r.in_pair = graph->reverse;
        r.in_center = graph->neighbor;
    } else if (pair_gradient) {
        MLFF_TRY(collect_incoming(c, graph));
        r.in_first = c->incoming_first;
        r.in_pair = c->incoming_pair;
        r.in_center = c->incoming_center;
    }
    r.n_threads = graph->n_atoms / 4 < c->n_threads ? graph->n_atoms / 4 : c->n_threads;
    if (r.n_threads < 1) r.n_threads = 1;
    divide(&r);
    if (r.n_threads == 1) {
        step(&r, 0);
    } else {
#pragma omp parallel num_threads(r.n_threads)
        step(&r, omp_get_thread_num());
    }
    status = r.status;
done:
    return status;
}

static void info(const model_backend *backend, int64_t *bytes, int64_t *n_growths)
{
    const cpu *c = (const cpu *)backend;
    int64_t F = c->F, layers = c->parameters.n_layers, per_atom = (17 * layers - 7 + 12) * F;
    int64_t weights = layers * (2 * 17 * F * F + (int64_t)c->slice * F / NN_PAD) + 4 * F * c->parameters.n_species;
    *bytes = 4 * ((int64_t)c->atom_capacity * per_atom + weights + (int64_t)c->scratch_floats * c->n_threads) +
             (int64_t)c->pair_capacity * (int64_t)(sizeof(painn_pair) + 4 * 4 * NN_PAD) + 12 * (int64_t)c->incoming_capacity;
    *n_growths = c->n_growths;
}

static void destroy(model_backend *backend)
{
    cpu *c = (cpu *)backend;
    for (int l = 0; l < PAINN_MAX_LAYERS; l++) {
        cpu_layer *L = &c->layer[l];
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
    for (int t = 0; t < MAX_THREADS; t++) base_free(c->scratch[t]);
    void *arrays[] = {c->stages,        c->embedding,      c->x0,        c->q,     c->mu1,      c->q_bar[0],
                      c->q_bar[1],      c->mu_bar[0],      c->mu_bar[1], c->pairs, c->pair_bar, c->incoming_first,
                      c->incoming_pair, c->incoming_center};
    for (size_t a = 0; a < sizeof arrays / sizeof *arrays; a++) base_free(arrays[a]);
    base_free(c);
}

mlff_status painn_cpu_create(const mlff_model *model, const cpu_options *options, model_backend **backend_out)
{
    mlff_status status = MLFF_OK;
    cpu *c = base_alloc(1, sizeof *c, "an evaluator");
    if (!c) return MLFF_ERR_MEMORY;
    c->backend = (model_backend){.compute = compute, .info = info, .destroy = destroy};
    c->parameters = *(const painn_parameters *)model->parameters;
    c->nn = nn_kernels_get(options->path);
    c->painn = painn_kernels_get(options->path);
    c->n_threads = options->n_threads < MAX_THREADS ? options->n_threads : MAX_THREADS;
    c->F = nn_padded(c->parameters.n_features);
    for (int l = 0; l < c->parameters.n_layers; l++) MLFF_TRY(create_layer(c, l));
    MLFF_TRY(create_tables(c));
    MLFF_TRY(create_species_table(c));
    MLFF_TRY(create_readout(c));

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
