// SPDX-License-Identifier: MIT
// painn_train_cpu_group.c: the four passes of a float32 training step over a group of frames, by one thread: forward, reverse
// (energies, forces), and after the loss their tangents, with the weights' gradients. Symbols: src/model/painn/README.md, "Training".
//
// Filters are made from ψ 16 features at a time, once for both edges of a pair of atoms: in each pass, or where the group's pairs are
// few (CPU_KEPT_FILTERS) once for all passes.
#include <math.h>
#include <string.h>

#include "painn_train_cpu.h"

// ---- memory ---------------------------------------------------------------------------------------------------------------

static float *carve(float *arena, size_t *at, size_t count)
{
    float *p = arena ? arena + *at : NULL;
    *at += (count + NN_PAD - 1) / NN_PAD * NN_PAD;
    return p;
}

typedef struct slice_of_arena {
    float **array;
    size_t width;
} slice_of_arena;

static void carve_all(float *arena, size_t *at, size_t n, const slice_of_arena *all, size_t count)
{
    for (size_t k = 0; k < count; k++) *all[k].array = carve(arena, at, n * all[k].width);
}
#define CARVE(n, ...)                                                                                                            \
    do {                                                                                                                         \
        const slice_of_arena all[] = {__VA_ARGS__};                                                                              \
        carve_all(arena, &at, n, all, sizeof all / sizeof *all);                                                                 \
    } while (0)

size_t painn_train_cpu_layout(const painn_train_cpu *c, cpu_group *g, int n_atoms, int n_pairs)
{
    float *arena = g->arena;
    size_t at = 0, n = (size_t)n_atoms, m = (size_t)n_pairs, F = (size_t)c->F, K1 = (size_t)c->K1;
    int n_layers = c->parameters.n_layers;
    for (int l = 0; l < n_layers; l++) {
        group_layer *L = &g->layer[l];
        CARVE(n, {&L->mu, 3 * F}, {&L->a, F}, {&L->slope, F}, {&L->curve, F}, {&L->x, 3 * F}, {&L->mu1, 3 * F}, {&L->VB, 6 * F},
              {&L->context, 2 * F}, {&L->s, F}, {&L->g_slope, F}, {&L->g_curve, F}, {&L->y, 3 * F}, {&L->q_bar, F},
              {&L->mu_bar, 3 * F}, {&L->y_bar, 3 * F}, {&L->s_bar, F}, {&L->g_bar, F}, {&L->context_bar, 2 * F},
              {&L->VB_bar, 6 * F}, {&L->q1_bar, F}, {&L->mu1_bar, 3 * F}, {&L->x_bar, 3 * F}, {&L->a_bar, F}, {&L->h_bar, F},
              {&L->dmu, 3 * F}, {&L->dh, F}, {&L->da, F}, {&L->dx, 3 * F}, {&L->dmu1, 3 * F}, {&L->dVB, 6 * F},
              {&L->dcontext, 2 * F}, {&L->dg, F}, {&L->ds, F}, {&L->dy, 3 * F});
    }
    for (int l = 0; l <= n_layers; l++) CARVE(n, {&g->layer[l].q, F}, {&g->layer[l].dq, F});
    size_t widest = F;
    for (int k = 0; k < c->parameters.n_readout; k++) {
        group_readout *R = &g->readout[k];
        size_t out = (size_t)c->readout_width[k + 1];
        if (out > widest) widest = out;
        CARVE(n, {&R->act, out}, {&R->slope, out}, {&R->curve, out}, {&R->dz, out}, {&R->dact, out}, {&R->z_bar, out},
              {&R->act_bar, out});
    }
    CARVE(n, {&g->dq_bar, F}, {&g->dq1_bar, F}, {&g->dmu_bar, 3 * F}, {&g->dmu1_bar, 3 * F}, {&g->dy_bar, 3 * F}, {&g->dg_bar, F},
          {&g->dcontext_bar, 2 * F}, {&g->dVB_bar, 6 * F}, {&g->dx_bar, 3 * F}, {&g->dh_bar, F}, {&g->dz_bar, widest},
          {&g->dact_bar, widest});
    size_t filters = c->keeps_filters ? (size_t)n_layers * F / NN_PAD : 1;
    CARVE(m, {&g->u, 4}, {&g->du, 4}, {&g->psi, K1}, {&g->dpsi, K1}, {&g->pair_bar, NN_PAD}, {&g->W, filters * 3 * NN_PAD},
          {&g->dW, filters * 3 * NN_PAD}, {&g->filter_bar, 3 * NN_PAD}, {&g->filter_moved, 3 * NN_PAD});
    size_t rows = (size_t)(c->n_rows > 0 ? c->n_rows : 1);
    CARVE(rows, {&g->species_x_bar, 3 * F}, {&g->species_a_bar, F}, {&g->species_gather, F});
    g->first = (int32_t *)(void *)carve(arena, &at, n + 1);
    g->species = (int32_t *)(void *)carve(arena, &at, n);
    g->row = (int32_t *)(void *)carve(arena, &at, n);
    g->atoms = (int32_t *)(void *)carve(arena, &at, 2 * m);
    g->set_pair = (int64_t *)(void *)carve(arena, &at, 2 * m);
    g->edges = (painn_train_edge *)(void *)carve(arena, &at, 6 * m);
    return at;
}

// ---- edges ----------------------------------------------------------------------------------------------------------------

// Edges of the group's frames: atoms count from the group's first, pairs in the order of their first edge.
static void gather(painn_train_cpu *c, cpu_group *g)
{
    const train_batch *batch = &c->batch;
    const train_set *set = batch->set;
    int base = batch->first_atom[g->begin], edge = 0;
    g->n = batch->first_atom[g->end] - base;
    g->m = 0;
    for (int k = g->begin; k < g->end; k++) {
        int64_t atom = set->first_atom[batch->frames[k]], first_pair = set->first_pair[atom];
        int start = batch->first_atom[k] - base, first_edge = edge;
        for (int i = 0; i < batch->first_atom[k + 1] - batch->first_atom[k]; i++) {
            g->species[start + i] = set->species[atom + i];
            g->row[start + i] = c->species_row[set->species[atom + i]];
            g->first[start + i] = edge;
            for (int64_t p = set->first_pair[atom + i]; p < set->first_pair[atom + i + 1]; p++, edge++) {
                int64_t reverse = set->reverse[p], here = p - first_pair;
                painn_train_edge *out = &g->edges[edge];
                out->other = start + set->neighbor[p];
                out->sign = here < reverse ? 1.0f : -1.0f;
                out->pair = here < reverse ? g->m : g->edges[first_edge + reverse].pair;
                if (here > reverse) continue;
                g->set_pair[g->m] = p;
                g->atoms[2 * g->m] = start + i;
                g->atoms[2 * g->m + 1] = out->other;
                g->m++;
            }
        }
    }
    g->first[g->n] = edge;
}

static double direction(const double *r, double u[3])
{
    double d = sqrt(r[0] * r[0] + r[1] * r[1] + r[2] * r[2]);
    for (int a = 0; a < 3; a++) u[a] = r[a] / d;
    return d;
}

static void radial(painn_train_cpu *c, cpu_group *g)
{
    double psi[PAINN_MAX_RADIAL + 1], dpsi[PAINN_MAX_RADIAL + 1], u[3];
    for (int p = 0; p < g->m; p++) {
        double d = direction(c->batch.set->vectors + 3 * g->set_pair[p], u);
        painn_radial(&c->parameters, d, psi, dpsi);
        for (int a = 0; a < 3; a++) g->u[4 * (size_t)p + a] = (float)u[a];
        for (int k = 0; k < c->K1; k++) {
            g->psi[(size_t)p * c->K1 + k] = (float)psi[k];
            g->dpsi[(size_t)p * c->K1 + k] = (float)dpsi[k];
        }
    }
}

// ḋ = u·w and u̇ = (w − u ḋ)/d with w = v_i − v_j + B r.
static void edge_tangent(painn_train_cpu *c, cpu_group *g)
{
    const train_batch *batch = &c->batch;
    int base = batch->first_atom[g->begin], frame = g->begin;
    for (int p = 0; p < g->m; p++) {
        int i = g->atoms[2 * p] + base, j = g->atoms[2 * p + 1] + base;
        while (i >= batch->first_atom[frame + 1]) frame++;
        const double *r = batch->set->vectors + 3 * g->set_pair[p], *B = batch->B + 9 * (size_t)frame;
        double u[3], w[3], d = direction(r, u), moved = 0;
        for (int a = 0; a < 3; a++) {
            w[a] = batch->v[3 * (size_t)i + a] - batch->v[3 * (size_t)j + a] + B[3 * a] * r[0] + B[3 * a + 1] * r[1] +
                   B[3 * a + 2] * r[2];
            moved += u[a] * w[a];
        }
        for (int a = 0; a < 3; a++) g->du[4 * (size_t)p + a] = (float)((w[a] - u[a] * moved) / d);
        g->du[4 * (size_t)p + 3] = (float)moved;
    }
}

static painn_train_edges edges_of(const painn_train_cpu *c, const cpu_group *g, int l)
{
    const group_layer *L = &g->layer[l];
    painn_train_edges e = {.F = c->F, .n_atoms = g->n, .first = g->first, .edges = g->edges, .u = g->u, .du = g->du};
    e.x = l ? L->x : c->x0;
    e.x_row = l ? NULL : g->row;
    e.mu = L->mu;
    e.dx = L->dx;
    e.dmu = L->dmu;
    return e;
}

// Filters of the slice of e, W = [A | b] ψ and W' = [A | b] ψ', in e: those of `made` that are not kept from a pass before.
enum { VALUES = 1, SLOPES = 2 };
static void filter_slice(const painn_train_cpu *c, const cpu_group *g, int l, painn_train_edges *e, int made, int used)
{
    const cpu_filter *filter = &c->filters[c->layer[l].filter];
    const size_t slice = (size_t)(e->slice / NN_PAD), width = (size_t)filter->blocks * NN_PAD;
    const size_t kept = c->keeps_filters ? ((size_t)l * (size_t)(c->F / NN_PAD) + slice) * (size_t)c->group_pairs : 0;
    const float *packed = filter->packed + slice * (size_t)c->K1 * width;
    e->W = g->W + kept * 3 * NN_PAD;
    e->dW = g->dW + kept * 3 * NN_PAD;
    const int wanted = c->keeps_filters ? made : used;
    if (wanted & VALUES)
        c->nn->product(g->m, (int)width, c->K1, g->psi, c->K1, packed, NULL, g->W + kept * 3 * NN_PAD, 3 * NN_PAD, 0);
    if (wanted & SLOPES)
        c->nn->product(g->m, (int)width, c->K1, g->dpsi, c->K1, packed, NULL, g->dW + kept * 3 * NN_PAD, 3 * NN_PAD, 0);
}

// ---- dense layers ---------------------------------------------------------------------------------------------------------

// y[n][out] = x Wᵀ + b; bias -1: none.
static void forward(const painn_train_cpu *c, int n, const float *x, int weight, int bias, float *y)
{
    const cpu_weight *w = &c->weights[weight];
    c->nn->product(n, w->padded_rows, w->padded_columns, x, w->padded_columns, w->forward,
                   bias < 0 ? NULL : c->weights[bias].forward, y, w->padded_rows, 0);
}

// x̄[n][in] = ȳ W, or += .
static void backward(const painn_train_cpu *c, int n, const float *y_bar, int weight, float *x_bar, int accumulate)
{
    const cpu_weight *w = &c->weights[weight];
    c->nn->product(n, w->padded_columns, w->padded_rows, y_bar, w->padded_rows, w->back, NULL, x_bar, w->padded_columns,
                   accumulate);
}

// Gradient of W: ȳ̇ᵀ x + ȳᵀ ẋ (dx NULL: no second term), and of b: Σ ȳ̇.
static void add_gradient(const painn_train_cpu *c, int n, int weight, int bias, const float *dy_bar, const float *x,
                         const float *y_bar, const float *dx, float *slot)
{
    const cpu_weight *w = &c->weights[weight];
    const nn_outer operands[2] = {{dy_bar, x}, {y_bar, dx}};
    c->gradient->outer(w->padded_rows, w->padded_columns, n, dx ? 2 : 1, operands, w->padded_rows, w->padded_columns,
                       slot + w->gradient, w->padded_columns);
    if (bias >= 0) c->gradient->column_sums(w->padded_rows, n, dy_bar, w->padded_rows, slot + c->weights[bias].gradient);
}

// ---- forward --------------------------------------------------------------------------------------------------------------

static bool skips(const painn_train_cpu *c, int l)
{
    return c->skips_last && l == c->parameters.n_layers - 1;
}

static void layer_forward(painn_train_cpu *c, cpu_group *g, int l)
{
    const cpu_layer *w = &c->layer[l];
    group_layer *L = &g->layer[l], *next = &g->layer[l + 1];
    int n = g->n, F = c->F;
    size_t count = (size_t)n * (size_t)F;
    if (l > 0) {
        forward(c, n, L->q, w->W1, w->b1, L->a);
        c->gradient->activate(c->activation, count, L->a, L->slope, L->curve);
        forward(c, n, L->a, w->W2, w->b2, L->x);
    }
    painn_train_edges e = edges_of(c, g, l);
    e.q = L->q;
    e.q_out = next->q;
    e.mu_out = L->mu1;
    for (e.slice = 0; e.slice < F; e.slice += NN_PAD) {
        filter_slice(c, g, l, &e, VALUES, VALUES);
        c->train->message(&e);
    }
    forward(c, 3 * n, L->mu1, w->U, -1, L->VB);
    c->painn->context(n, F, (float)c->parameters.epsilon, next->q, L->VB, L->context);
    forward(c, n, L->context, w->M1, w->c1, L->s);
    c->gradient->activate(c->activation, count, L->s, L->g_slope, L->g_curve);
    forward(c, n, L->s, w->M2, w->c2, L->y);
    c->painn->mix(n, F, skips(c, l), L->y, L->VB, L->mu1, next->q, skips(c, l) ? NULL : next->mu ? next->mu : g->dmu_bar);
}

static void readout_forward(painn_train_cpu *c, cpu_group *g)
{
    const float *input = g->layer[c->parameters.n_layers].q;
    int n = g->n, last = c->parameters.n_readout - 1;
    for (int k = 0; k <= last; k++) {
        group_readout *R = &g->readout[k];
        forward(c, n, input, c->readout_weight[k], c->readout_bias[k], R->act);
        if (k < last)
            c->gradient->activate(c->activation, (size_t)n * (size_t)c->readout_width[k + 1], R->act, R->slope, R->curve);
        input = R->act;
    }
    double *energy = c->batch.energy + c->batch.first_atom[g->begin];
    for (int i = 0; i < n; i++) energy[i] = (double)input[(size_t)i * (size_t)c->readout_width[last + 1]];
}

// ---- reverse --------------------------------------------------------------------------------------------------------------

static void readout_backward(painn_train_cpu *c, cpu_group *g)
{
    int n = g->n, last = c->parameters.n_readout - 1, n_layers = c->parameters.n_layers, width = c->readout_width[last + 1];
    float *seed = g->readout[last].z_bar;
    memset(seed, 0, sizeof *seed * (size_t)n * (size_t)width);
    for (int i = 0; i < n; i++) seed[(size_t)i * (size_t)width] = 1.0f;
    for (int k = last; k >= 0; k--) {
        float *out = k ? g->readout[k - 1].act_bar : g->layer[n_layers - 1].q_bar;
        backward(c, n, g->readout[k].z_bar, c->readout_weight[k], out, 0);
        if (k)
            c->gradient->multiply((size_t)n * (size_t)c->readout_width[k], out, g->readout[k - 1].slope, g->readout[k - 1].z_bar);
    }
}

static void layer_backward(painn_train_cpu *c, cpu_group *g, int l)
{
    const cpu_layer *w = &c->layer[l];
    group_layer *L = &g->layer[l];
    int n = g->n, F = c->F, last = skips(c, l);
    size_t count = (size_t)n * (size_t)F;
    if (l == c->parameters.n_layers - 1 && !last) memset(L->mu_bar, 0, sizeof(float) * 3 * count);
    c->painn->mix_backward(n, F, last, L->VB, L->q_bar, L->mu_bar, L->y_bar);
    backward(c, n, L->y_bar, w->M2, L->s_bar, 0);
    c->gradient->multiply(count, L->s_bar, L->g_slope, L->g_bar);
    backward(c, n, L->g_bar, w->M1, L->context_bar, 0);
    memcpy(L->q1_bar, L->q_bar, sizeof(float) * count);
    c->painn->context_backward(n, F, last, (float)c->parameters.epsilon, L->VB, L->y, L->context_bar, L->mu_bar, L->q1_bar,
                               L->VB_bar);
    if (!last) memcpy(L->mu1_bar, L->mu_bar, sizeof(float) * 3 * count);
    backward(c, 3 * n, L->VB_bar, w->U, L->mu1_bar, !last);

    painn_train_edges e = edges_of(c, g, l);
    e.q_bar = L->q1_bar;
    e.mu_bar = L->mu1_bar;
    e.pair_bar = g->pair_bar;
    e.start = l == c->parameters.n_layers - 1;
    e.x_bar = L->x_bar;
    e.mu_bar_out = l ? g->layer[l - 1].mu_bar : NULL;
    for (e.slice = 0; e.slice < F; e.slice += NN_PAD) {
        filter_slice(c, g, l, &e, SLOPES, VALUES | SLOPES);
        c->train->message_backward(&e);
    }
    if (l == 0) return;
    backward(c, n, L->x_bar, w->W2, L->a_bar, 0);
    c->gradient->multiply(count, L->a_bar, L->slope, L->h_bar);
    memcpy(g->layer[l - 1].q_bar, L->q1_bar, sizeof(float) * count);
    backward(c, n, L->h_bar, w->W1, g->layer[l - 1].q_bar, 1);
}

// Forces and dE/dε from the pairs' adjoints: of both edges g − g_reverse = (dE/dd) u + (ū − u (u·ū))/d along the first.
static void assemble(painn_train_cpu *c, cpu_group *g)
{
    train_batch *batch = &c->batch;
    int base = batch->first_atom[g->begin], frame = g->begin;
    memset(batch->forces + 3 * (size_t)base, 0, sizeof(double) * 3 * (size_t)g->n);
    memset(batch->strain + 9 * (size_t)g->begin, 0, sizeof(double) * 9 * (size_t)(g->end - g->begin));
    for (int p = 0; p < g->m; p++) {
        int i = g->atoms[2 * p] + base, j = g->atoms[2 * p + 1] + base;
        while (i >= batch->first_atom[frame + 1]) frame++;
        const double *r = batch->set->vectors + 3 * g->set_pair[p];
        const float *lanes = g->pair_bar + (size_t)p * NN_PAD;
        double sum[4] = {0}, u[3], d = direction(r, u);
        for (int a = 0; a < 4; a++)
            for (int k = a; k < NN_PAD; k += 4) sum[a] += (double)lanes[k];
        double along = u[0] * sum[1] + u[1] * sum[2] + u[2] * sum[3];
        for (int a = 0; a < 3; a++) {
            double gradient = sum[0] * u[a] + (sum[1 + a] - u[a] * along) / d;
            batch->forces[3 * (size_t)i + a] += gradient;
            batch->forces[3 * (size_t)j + a] -= gradient;
            for (int b = 0; b < 3; b++) batch->strain[9 * (size_t)frame + 3 * a + b] += gradient * r[b];
        }
    }
}

void painn_train_cpu_base(painn_train_cpu *c, cpu_group *g)
{
    gather(c, g);
    radial(c, g);
    for (int i = 0; i < g->n; i++)
        memcpy(g->layer[0].q + (size_t)i * c->F, c->embedding + (size_t)g->row[i] * c->F, sizeof(float) * (size_t)c->F);
    for (int l = 0; l < c->parameters.n_layers; l++) layer_forward(c, g, l);
    readout_forward(c, g);
    readout_backward(c, g);
    for (int l = c->parameters.n_layers - 1; l >= 0; l--) layer_backward(c, g, l);
    assemble(c, g);
}

// ---- tangents -------------------------------------------------------------------------------------------------------------

static void layer_tangent(painn_train_cpu *c, cpu_group *g, int l)
{
    const cpu_layer *w = &c->layer[l];
    group_layer *L = &g->layer[l], *next = &g->layer[l + 1];
    int n = g->n, F = c->F;
    size_t count = (size_t)n * (size_t)F;
    if (l > 0) {
        forward(c, n, L->dq, w->W1, -1, L->dh);
        c->gradient->multiply(count, L->dh, L->slope, L->da);
        forward(c, n, L->da, w->W2, -1, L->dx);
    }
    painn_train_edges e = edges_of(c, g, l);
    e.dq = L->dq;
    e.q_out = next->dq;
    e.mu_out = L->dmu1;
    for (e.slice = 0; e.slice < F; e.slice += NN_PAD) {
        filter_slice(c, g, l, &e, 0, VALUES | SLOPES);
        c->train->message_tangent(&e);
    }
    forward(c, 3 * n, L->dmu1, w->U, -1, L->dVB);
    c->train->context_tangent(n, F, next->dq, L->VB, L->dVB, L->context, L->dcontext);
    forward(c, n, L->dcontext, w->M1, -1, L->dg);
    c->gradient->multiply(count, L->dg, L->g_slope, L->ds);
    forward(c, n, L->ds, w->M2, -1, L->dy);
    c->train->mix_tangent(n, F, skips(c, l), L->y, L->dy, L->VB, L->dVB, L->dmu1, next->dq,
                          skips(c, l) ? NULL
                          : next->dmu ? next->dmu
                                      : g->dmu_bar);
}

static void readout_tangent(painn_train_cpu *c, cpu_group *g)
{
    const float *input = g->layer[c->parameters.n_layers].dq;
    int last = c->parameters.n_readout - 1;
    for (int k = 0; k < last; k++) {
        group_readout *R = &g->readout[k];
        forward(c, g->n, input, c->readout_weight[k], -1, R->dz);
        c->gradient->multiply((size_t)g->n * (size_t)c->readout_width[k + 1], R->dz, R->slope, R->dact);
        input = R->dact;
    }
}

// ---- duals: tangents of adjoints, and the weights' gradients --------------------------------------------------------------

static void readout_dual(painn_train_cpu *c, cpu_group *g, float *slot)
{
    const group_layer *features = &g->layer[c->parameters.n_layers];
    int n = g->n, last = c->parameters.n_readout - 1, width = c->readout_width[last + 1];
    const double *seed = c->batch.c + c->batch.first_atom[g->begin];
    float *dz_bar = g->dz_bar, *spare = g->dact_bar;
    memset(dz_bar, 0, sizeof *dz_bar * (size_t)n * (size_t)width);
    for (int i = 0; i < n; i++) dz_bar[(size_t)i * (size_t)width] = (float)seed[i];
    for (int k = last; k >= 0; k--) {
        const group_readout *R = &g->readout[k], *below = &g->readout[k ? k - 1 : 0];
        add_gradient(c, n, c->readout_weight[k], c->readout_bias[k], dz_bar, k ? below->act : features->q, R->z_bar,
                     k ? below->dact : features->dq, slot);
        float *out = k ? spare : g->dq_bar;
        backward(c, n, dz_bar, c->readout_weight[k], out, 0);
        if (!k) return;
        c->gradient->multiply_dual((size_t)n * (size_t)c->readout_width[k], out, below->slope, below->act_bar, below->curve,
                                   below->dz);
        spare = dz_bar;
        dz_bar = out;
    }
}

// Adds the gradient of a layer's filter from the pairs' W̄̇ and ḋ W̄ of one slice.
static void add_filter_gradient(const painn_train_cpu *c, const cpu_group *g, int l, int slice, float *slot)
{
    const nn_outer operands[2] = {{g->psi, g->filter_bar}, {g->dpsi, g->filter_moved}};
    const int width = l ? 3 * NN_PAD : 2 * NN_PAD; // μ of layer 0 is 0
    float *out = slot + c->filters[c->layer[l].filter].gradient + (size_t)(slice / NN_PAD) * (size_t)c->K1 * 3 * NN_PAD;
    c->gradient->outer(c->K1, width, g->m, 2, operands, c->K1, 3 * NN_PAD, out, 3 * NN_PAD);
}

static void update_dual(painn_train_cpu *c, cpu_group *g, int l, float *slot)
{
    const cpu_layer *w = &c->layer[l];
    const group_layer *L = &g->layer[l];
    int n = g->n, F = c->F, last = skips(c, l);
    size_t count = (size_t)n * (size_t)F;
    c->train->mix_dual(n, F, last, L->VB, L->dVB, L->q_bar, g->dq_bar, L->mu_bar, g->dmu_bar, g->dy_bar);
    add_gradient(c, n, w->M2, w->c2, g->dy_bar, L->s, L->y_bar, L->ds, slot);
    backward(c, n, g->dy_bar, w->M2, g->dg_bar, 0);
    c->gradient->multiply_dual(count, g->dg_bar, L->g_slope, L->s_bar, L->g_curve, L->dg);
    add_gradient(c, n, w->M1, w->c1, g->dg_bar, L->context, L->g_bar, L->dcontext, slot);
    backward(c, n, g->dg_bar, w->M1, g->dcontext_bar, 0);
    c->train->context_dual(n, F, last, L->VB, L->dVB, L->y, L->dy, L->context, L->dcontext, L->context_bar, g->dcontext_bar,
                           L->q_bar, L->mu_bar, g->dmu_bar, g->dq_bar, g->dVB_bar);
    add_gradient(c, 3 * n, w->U, -1, g->dVB_bar, L->mu1, L->VB_bar, L->dmu1, slot);
    backward(c, 3 * n, g->dVB_bar, w->U, g->dmu_bar, !last);
}

static void message_dual(painn_train_cpu *c, cpu_group *g, int l, float *slot)
{
    const cpu_layer *w = &c->layer[l];
    const group_layer *L = &g->layer[l];
    int n = g->n, F = c->F;
    painn_train_edges e = edges_of(c, g, l);
    e.q_bar = L->q1_bar;
    e.mu_bar = L->mu1_bar;
    e.dq_bar = g->dq_bar;
    e.dmu_bar = g->dmu_bar;
    e.x_bar = g->dx_bar;
    e.mu_bar_out = g->dmu1_bar;
    e.filter_bar = g->filter_bar;
    e.filter_moved = g->filter_moved;
    for (e.slice = 0; e.slice < F; e.slice += NN_PAD) {
        filter_slice(c, g, l, &e, 0, VALUES | SLOPES);
        c->train->message_dual(&e);
        add_filter_gradient(c, g, l, e.slice, slot);
    }
    if (l == 0) return;
    float *swap = g->dmu_bar;
    g->dmu_bar = g->dmu1_bar;
    g->dmu1_bar = swap;
    add_gradient(c, n, w->W2, w->b2, g->dx_bar, L->a, L->x_bar, L->da, slot);
    backward(c, n, g->dx_bar, w->W2, g->dh_bar, 0);
    c->gradient->multiply_dual((size_t)n * (size_t)F, g->dh_bar, L->slope, L->a_bar, L->curve, L->dh);
    add_gradient(c, n, w->W1, w->b1, g->dh_bar, L->q, L->h_bar, L->dq, slot);
    backward(c, n, g->dh_bar, w->W1, g->dq_bar, 1);
}

void painn_train_cpu_gradient(painn_train_cpu *c, cpu_group *g, float *slot)
{
    int n_layers = c->parameters.n_layers, F = c->F;
    edge_tangent(c, g);
    memset(g->layer[0].dq, 0, sizeof(float) * (size_t)g->n * (size_t)F);
    for (int l = 0; l < n_layers; l++) layer_tangent(c, g, l);
    readout_tangent(c, g);
    readout_dual(c, g, slot);
    if (!c->skips_last) memset(g->dmu_bar, 0, sizeof(float) * 3 * (size_t)g->n * (size_t)F);
    for (int l = n_layers - 1; l >= 0; l--) {
        update_dual(c, g, l, slot);
        message_dual(c, g, l, slot);
    }
    for (int i = 0; i < g->n; i++) { // layer 0: by species
        float *embedding = slot + c->embedding_gradient + (size_t)g->species[i] * (size_t)F;
        float *x_bar = g->species_x_bar + (size_t)g->row[i] * 3 * (size_t)F;
        for (int f = 0; f < F; f++) embedding[f] += g->dq_bar[(size_t)i * (size_t)F + (size_t)f];
        for (int f = 0; f < 3 * F; f++) x_bar[f] += g->dx_bar[(size_t)i * 3 * (size_t)F + (size_t)f];
    }
}

// h, a and x of layer 0 do not move with the atoms: their tangents are 0.
void painn_train_cpu_finish_slot(painn_train_cpu *c, cpu_group *g, float *slot)
{
    const cpu_layer *w = &c->layer[0];
    int n = c->n_rows, F = c->F;
    add_gradient(c, n, w->W2, w->b2, g->species_x_bar, c->a0, NULL, NULL, slot);
    backward(c, n, g->species_x_bar, w->W2, g->species_a_bar, 0);
    c->gradient->multiply((size_t)n * (size_t)F, g->species_a_bar, c->slope0, g->species_a_bar);
    add_gradient(c, n, w->W1, w->b1, g->species_a_bar, c->embedding, NULL, NULL, slot);
    backward(c, n, g->species_a_bar, w->W1, g->species_gather, 0);
    for (int r = 0; r < n; r++) {
        float *embedding = slot + c->embedding_gradient + (size_t)c->row_species[r] * (size_t)F;
        for (int f = 0; f < F; f++) embedding[f] += g->species_gather[(size_t)r * (size_t)F + (size_t)f];
    }
}
