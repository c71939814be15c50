// SPDX-License-Identifier: MIT
// painn_gradient_reference.c: training gradients of PaiNN in float64, plain: the truth the other implementations are tested
// against. Derivation and symbols: src/model/painn/README.md, "Training".
//
// Every quantity is a dual number: a value and its derivative (tangent) as all edge vectors r_e move along w_e. The reverse pass
// over dual numbers, with the readout seeded (1, c_i), gives adjoints and their tangents; the tangent part of a weight's gradient
// is d/dθ (Σ c ε + Σ g·w). Without w and c the same code computes values only: energies and g = dE/dr.
#include <assert.h>
#include <string.h>

#include "model/painn/reference/painn_plain.h"
#include "painn_gradient.h"

// [n][width] values and tangents.
typedef struct dual {
    double *value, *tangent;
} dual;

// Per atom. Saved by the forward pass.
typedef struct layer_state {
    dual q, mu;      // layer input [F], [3][F]
    dual h, a, x;    // message network [F], [F], [3F]; a = act(h)
    dual mu1;        // after the message [3][F]
    dual VB;         // [3][2F]: V, then B
    dual context;    // [2F] = [q' | n]
    dual g, s, y, t; // update network [F], [F], [3F], dot product [F]; s = act(g)
} layer_state;

struct painn_gradient {
    const painn_parameters *parameters;
    const painn_trainable *trainable;
    const double *weights;
    double *total; // NULL: values only
    size_t atom_capacity, pair_capacity;
    layer_state layer[PAINN_MAX_LAYERS];
    dual z[PAINN_MAX_READOUT], act_z[PAINN_MAX_READOUT]; // readout [width]
    dual q, mu;                                          // running features
    // Adjoints.
    dual q_bar, mu_bar, mu1_bar, x_bar, a_bar, y_bar, s_bar, context_bar, VB_bar, z_bar, input_bar;
    // Pairs.
    dual u, psi, psi_bar, u_bar; // [3], [K + 1], [K + 1], [3]; of the last two the values only
    double *distance, *dpsi;     // 1, [K + 1]
    dual filter, filter_bar;     // of one pair [3F]
};

// ---- buffers --------------------------------------------------------------------------------------------------------------

typedef struct buffer {
    dual *array;
    size_t width;
} buffer;

static mlff_status allocate(dual *array, size_t count)
{
    mlff_status status = MLFF_OK;
    size_t none;
    MLFF_TRY((none = 0, base_grow(&array->value, &none, count, sizeof(double), "a gradient")));
    MLFF_TRY((none = 0, base_grow(&array->tangent, &none, count, sizeof(double), "a gradient")));
done:
    return status;
}

static void release(dual *array)
{
    base_free(array->value);
    base_free(array->tangent);
    *array = (dual){0};
}

// Arrays of atoms (and their number of columns) into `list`; returns how many.
static int atom_buffers(painn_gradient *G, buffer *list)
{
    const painn_parameters *P = G->parameters;
    size_t F = (size_t)P->n_features, widest = 1;
    int n = 0;
    for (int k = 0; k <= P->n_readout; k++)
        if ((size_t)P->readout_width[k] > widest) widest = (size_t)P->readout_width[k];
    for (int l = 0; l < P->n_layers; l++) {
        layer_state *L = &G->layer[l];
        const buffer all[] = {{&L->q, F},      {&L->mu, 3 * F},      {&L->h, F}, {&L->a, F}, {&L->x, 3 * F}, {&L->mu1, 3 * F},
                              {&L->VB, 6 * F}, {&L->context, 2 * F}, {&L->g, F}, {&L->s, F}, {&L->y, 3 * F}, {&L->t, F}};
        for (size_t b = 0; b < sizeof all / sizeof *all; b++) list[n++] = all[b];
    }
    for (int k = 0; k < P->n_readout; k++) {
        list[n++] = (buffer){&G->z[k], (size_t)P->readout_width[k + 1]};
        list[n++] = (buffer){&G->act_z[k], (size_t)P->readout_width[k + 1]};
    }
    const buffer all[] = {
        {&G->q, F},          {&G->mu, 3 * F},     {&G->q_bar, F},         {&G->mu_bar, 3 * F}, {&G->mu1_bar, 3 * F},
        {&G->x_bar, 3 * F},  {&G->a_bar, F},      {&G->y_bar, 3 * F},     {&G->s_bar, F},      {&G->context_bar, 2 * F},
        {&G->VB_bar, 6 * F}, {&G->z_bar, widest}, {&G->input_bar, widest}};
    for (size_t b = 0; b < sizeof all / sizeof *all; b++) list[n++] = all[b];
    return n;
}

enum { MAX_BUFFERS = 12 * PAINN_MAX_LAYERS + 2 * PAINN_MAX_READOUT + 16 };

static mlff_status resize(painn_gradient *G, size_t n_atoms, size_t n_pairs)
{
    mlff_status status = MLFF_OK;
    buffer list[MAX_BUFFERS];
    size_t K1 = (size_t)G->parameters->n_radial + 1, none;
    if (n_atoms > G->atom_capacity) {
        int n = atom_buffers(G, list);
        size_t room = n_atoms + n_atoms / 4;
        G->atom_capacity = 0;
        for (int b = 0; b < n; b++) MLFF_TRY(allocate(list[b].array, room * list[b].width));
        G->atom_capacity = room;
    }
    if (n_pairs > G->pair_capacity || !G->dpsi) {
        size_t room = n_pairs + n_pairs / 4;
        const buffer all[] = {{&G->u, 3}, {&G->psi, K1}, {&G->psi_bar, K1}, {&G->u_bar, 3}};
        G->pair_capacity = 0;
        for (size_t b = 0; b < sizeof all / sizeof *all; b++) MLFF_TRY(allocate(all[b].array, room * all[b].width));
        MLFF_TRY((none = 0, base_grow(&G->distance, &none, room, sizeof(double), "a gradient")));
        MLFF_TRY((none = 0, base_grow(&G->dpsi, &none, room * K1, sizeof(double), "a gradient")));
        G->pair_capacity = room;
    }
done:
    return status;
}

static void set_zero(const painn_gradient *G, dual x, size_t count)
{
    memset(x.value, 0, sizeof(double) * count);
    if (G->total) memset(x.tangent, 0, sizeof(double) * count);
}

static void copy(const painn_gradient *G, dual to, dual from, size_t count)
{
    memcpy(to.value, from.value, sizeof(double) * count);
    if (G->total) memcpy(to.tangent, from.tangent, sizeof(double) * count);
}

// ---- layers ---------------------------------------------------------------------------------------------------------------

// y[n][out] = x[n][in] Wᵀ + b
static void linear(const painn_gradient *G, int n, int in, int out, dual x, int64_t W, int64_t b, dual y)
{
    const double *w = G->weights + W, *bias = b < 0 ? NULL : G->weights + b;
    for (int i = 0; i < n; i++)
        for (int o = 0; o < out; o++) {
            const double *row = w + (size_t)o * in, *value = x.value + (size_t)i * in, *tangent = x.tangent + (size_t)i * in;
            double sum = 0, moved = 0;
            for (int k = 0; k < in; k++) sum += row[k] * value[k];
            if (G->total)
                for (int k = 0; k < in; k++) moved += row[k] * tangent[k];
            y.value[(size_t)i * out + o] = sum + (bias ? bias[o] : 0);
            y.tangent[(size_t)i * out + o] = moved;
        }
}

// x̄ += ȳ W; of the weights d/dθ: ȳ̇ᵀ x + ȳᵀ ẋ, and of the bias Σ ȳ̇.
static void linear_backward(const painn_gradient *G, int n, int in, int out, dual y_bar, dual x, int64_t W, int64_t b, dual x_bar)
{
    const double *w = G->weights + W;
    plain_add_product(n, out, in, y_bar.value, w, x_bar.value);
    if (!G->total) return;
    plain_add_product(n, out, in, y_bar.tangent, w, x_bar.tangent);
    for (int i = 0; i < n; i++)
        for (int o = 0; o < out; o++) {
            double bar = y_bar.value[(size_t)i * out + o], moved = y_bar.tangent[(size_t)i * out + o];
            double *row = G->total + W + (size_t)o * in;
            for (int k = 0; k < in; k++) row[k] += moved * x.value[(size_t)i * in + k] + bar * x.tangent[(size_t)i * in + k];
            if (b >= 0) G->total[b + o] += moved;
        }
}

static void activate(const painn_gradient *G, size_t count, dual x, dual y)
{
    enum painn_activation kind = G->parameters->activation;
    for (size_t k = 0; k < count; k++) {
        y.value[k] = plain_activation(kind, x.value[k]);
        y.tangent[k] = G->total ? plain_activation_derivative(kind, x.value[k]) * x.tangent[k] : 0;
    }
}

// ȳ = adjoint of act(x) becomes that of x, in place.
static void activate_backward(const painn_gradient *G, size_t count, dual x, dual y_bar)
{
    enum painn_activation kind = G->parameters->activation;
    for (size_t k = 0; k < count; k++) {
        double slope = plain_activation_derivative(kind, x.value[k]);
        if (G->total)
            y_bar.tangent[k] =
                y_bar.tangent[k] * slope + y_bar.value[k] * plain_activation_second(kind, x.value[k]) * x.tangent[k];
        y_bar.value[k] *= slope;
    }
}

// ---- pairs ----------------------------------------------------------------------------------------------------------------

// ḋ = u·w, u̇ = (w − u ḋ)/d, ψ̇ = ψ' ḋ
static void radial(painn_gradient *G, const painn_gradient_frame *frame, int n_pairs, const double *w)
{
    int K1 = G->parameters->n_radial + 1;
    for (int p = 0; p < n_pairs; p++) {
        const double *r = frame->vectors + 3 * (size_t)p;
        double d = sqrt(r[0] * r[0] + r[1] * r[1] + r[2] * r[2]), moved = 0, *u = G->u.value + 3 * (size_t)p;
        double *psi = G->psi.value + (size_t)p * K1, *dpsi = G->dpsi + (size_t)p * K1;
        G->distance[p] = d;
        for (int c = 0; c < 3; c++) u[c] = r[c] / d;
        painn_radial(G->parameters, d, psi, dpsi);
        if (!w) continue;
        for (int c = 0; c < 3; c++) moved += u[c] * w[3 * (size_t)p + c];
        for (int c = 0; c < 3; c++) G->u.tangent[3 * (size_t)p + c] = (w[3 * (size_t)p + c] - u[c] * moved) / d;
        for (int k = 0; k < K1; k++) G->psi.tangent[(size_t)p * K1 + k] = dpsi[k] * moved;
    }
}

// W = [A | b] ψ of one pair and layer.
static void compute_filter(painn_gradient *G, int l, int p)
{
    int F3 = 3 * G->parameters->n_features, K = G->parameters->n_radial;
    const double *A = G->weights + G->trainable->layer[l].filter_weight, *b = G->weights + G->trainable->layer[l].filter_bias;
    const double *psi = G->psi.value + (size_t)p * (K + 1), *moved = G->psi.tangent + (size_t)p * (K + 1);
    for (int f = 0; f < F3; f++) {
        double value = b[f] * psi[K], tangent = 0;
        for (int k = 0; k < K; k++) value += A[(size_t)f * K + k] * psi[k];
        if (G->total) {
            tangent = b[f] * moved[K];
            for (int k = 0; k < K; k++) tangent += A[(size_t)f * K + k] * moved[k];
        }
        G->filter.value[f] = value;
        G->filter.tangent[f] = tangent;
    }
}

// ψ̄ += [A | b]ᵀ W̄, or, where the weights' gradient is wanted, Ġ += W̄̇ ψᵀ + W̄ ψ̇ᵀ
static void filter_backward(painn_gradient *G, int l, int p)
{
    int F3 = 3 * G->parameters->n_features, K = G->parameters->n_radial;
    const painn_trainable_layer *T = &G->trainable->layer[l];
    const double *psi = G->psi.value + (size_t)p * (K + 1), *moved = G->psi.tangent + (size_t)p * (K + 1);
    double *psi_bar = G->psi_bar.value + (size_t)p * (K + 1);
    for (int f = 0; f < F3; f++) {
        double bar = G->filter_bar.value[f], bar_moved = G->filter_bar.tangent[f];
        if (G->total) {
            double *row = G->total + T->filter_weight + (size_t)f * K;
            for (int k = 0; k < K; k++) row[k] += bar_moved * psi[k] + bar * moved[k];
            G->total[T->filter_bias + f] += bar_moved * psi[K] + bar * moved[K];
        } else {
            const double *row = G->weights + T->filter_weight + (size_t)f * K;
            for (int k = 0; k < K; k++) psi_bar[k] += bar * row[k];
            psi_bar[K] += bar * G->weights[T->filter_bias + f];
        }
    }
}

// Calls body(i, p, j) for every pair.
#define EACH_PAIR(frame, i, p, j)                                                                                                \
    for (int i = 0; i < (frame)->n_atoms; i++)                                                                                   \
        for (int p = (int)((frame)->first_pair[i] - (frame)->first_pair[0]), j = 0;                                              \
             p < (int)((frame)->first_pair[i + 1] - (frame)->first_pair[0]) && (j = (frame)->neighbor[p], true); p++)

// q' = q + Σ W^q∘x^q_j ; μ'_c = μ_c + Σ (W^R∘x^R_j) u_c + (W^μ∘x^μ_j)∘μ_jc ; q' goes to the context's first half.
static void message(painn_gradient *G, const painn_gradient_frame *frame, int l)
{
    layer_state *L = &G->layer[l];
    size_t F = (size_t)G->parameters->n_features;
    double *q_value = G->q.value, *q_tangent = G->q.tangent;
    copy(G, L->mu1, L->mu, 3 * F * (size_t)frame->n_atoms);
    EACH_PAIR(frame, i, p, j)
    {
        compute_filter(G, l, p);
        const double *W = G->filter.value, *dW = G->filter.tangent, *x = L->x.value + 3 * F * (size_t)j;
        const double *dx = L->x.tangent + 3 * F * (size_t)j, *u = G->u.value + 3 * (size_t)p, *du = G->u.tangent + 3 * (size_t)p;
        for (size_t f = 0; f < F; f++) {
            double YR = W[F + f] * x[F + f], Ym = W[2 * F + f] * x[2 * F + f];
            q_value[(size_t)i * F + f] += W[f] * x[f];
            for (size_t c = 0; c < 3; c++)
                L->mu1.value[((size_t)i * 3 + c) * F + f] += YR * u[c] + Ym * L->mu.value[((size_t)j * 3 + c) * F + f];
            if (!G->total) continue;
            double dYR = dW[F + f] * x[F + f] + W[F + f] * dx[F + f];
            double dYm = dW[2 * F + f] * x[2 * F + f] + W[2 * F + f] * dx[2 * F + f];
            q_tangent[(size_t)i * F + f] += dW[f] * x[f] + W[f] * dx[f];
            for (size_t c = 0; c < 3; c++) {
                size_t at = ((size_t)j * 3 + c) * F + f;
                L->mu1.tangent[((size_t)i * 3 + c) * F + f] +=
                    dYR * u[c] + YR * du[c] + dYm * L->mu.value[at] + Ym * L->mu.tangent[at];
            }
        }
    }
}

static void message_backward(painn_gradient *G, const painn_gradient_frame *frame, int l)
{
    const layer_state *L = &G->layer[l];
    size_t F = (size_t)G->parameters->n_features;
    copy(G, G->mu1_bar, G->mu_bar, 3 * F * (size_t)frame->n_atoms); // μ̄', read below while μ̄ is added to
    set_zero(G, G->x_bar, 3 * F * (size_t)frame->n_atoms);
    EACH_PAIR(frame, i, p, j)
    {
        compute_filter(G, l, p);
        const double *W = G->filter.value, *dW = G->filter.tangent, *x = L->x.value + 3 * F * (size_t)j;
        const double *dx = L->x.tangent + 3 * F * (size_t)j, *u = G->u.value + 3 * (size_t)p, *du = G->u.tangent + 3 * (size_t)p;
        double *W_bar = G->filter_bar.value, *dW_bar = G->filter_bar.tangent;
        double *x_bar = G->x_bar.value + 3 * F * (size_t)j, *dx_bar = G->x_bar.tangent + 3 * F * (size_t)j;
        for (size_t f = 0; f < F; f++) {
            double D[3] = {G->q_bar.value[(size_t)i * F + f], 0, 0}, dD[3] = {G->q_bar.tangent[(size_t)i * F + f], 0, 0};
            double YR = W[F + f] * x[F + f], Ym = W[2 * F + f] * x[2 * F + f];
            double dYm = dW[2 * F + f] * x[2 * F + f] + W[2 * F + f] * dx[2 * F + f];
            for (size_t c = 0; c < 3; c++) {
                size_t at_i = ((size_t)i * 3 + c) * F + f, at_j = ((size_t)j * 3 + c) * F + f;
                double bar = G->mu1_bar.value[at_i], mu = L->mu.value[at_j];
                D[1] += u[c] * bar;
                D[2] += mu * bar;
                G->mu_bar.value[at_j] += Ym * bar;
                G->u_bar.value[3 * (size_t)p + c] += YR * bar;
                if (!G->total) continue;
                double dbar = G->mu1_bar.tangent[at_i], dmu = L->mu.tangent[at_j];
                dD[1] += du[c] * bar + u[c] * dbar;
                dD[2] += dmu * bar + mu * dbar;
                G->mu_bar.tangent[at_j] += dYm * bar + Ym * dbar;
            }
            for (size_t b = 0; b < 3; b++) {
                size_t k = b * F + f;
                x_bar[k] += W[k] * D[b];
                W_bar[k] = x[k] * D[b];
                if (!G->total) continue;
                dx_bar[k] += dW[k] * D[b] + W[k] * dD[b];
                dW_bar[k] = dx[k] * D[b] + x[k] * dD[b];
            }
        }
        filter_backward(G, l, p);
    }
}

// g = (ψ̄·ψ') u + (ū − u (u·ū))/d
static void edge_gradient(const painn_gradient *G, int n_pairs, double *pair_gradient)
{
    int K1 = G->parameters->n_radial + 1;
    for (int p = 0; p < n_pairs; p++) {
        const double *u = G->u.value + 3 * (size_t)p, *u_bar = G->u_bar.value + 3 * (size_t)p;
        double along = 0, radial_part = u[0] * u_bar[0] + u[1] * u_bar[1] + u[2] * u_bar[2];
        for (int k = 0; k < K1; k++) along += G->psi_bar.value[(size_t)p * K1 + k] * G->dpsi[(size_t)p * K1 + k];
        for (int c = 0; c < 3; c++)
            pair_gradient[3 * (size_t)p + c] = along * u[c] + (u_bar[c] - u[c] * radial_part) / G->distance[p];
    }
}

// ---- update ---------------------------------------------------------------------------------------------------------------

static void update(painn_gradient *G, int n, int l)
{
    const painn_parameters *P = G->parameters;
    const painn_trainable_layer *T = &G->trainable->layer[l];
    layer_state *L = &G->layer[l];
    int F = P->n_features;
    linear(G, 3 * n, F, 2 * F, L->mu1, T->U, -1, L->VB);
    for (int i = 0; i < n; i++)
        for (int f = 0; f < F; f++) {
            size_t k = (size_t)i * F + f, at = (size_t)i * 2 * F + f;
            double VV = P->epsilon, VdV = 0, VB = 0, dVB = 0;
            for (int c = 0; c < 3; c++) {
                size_t v = ((size_t)i * 3 + c) * 2 * F + f, b = v + F;
                VV += L->VB.value[v] * L->VB.value[v];
                VB += L->VB.value[v] * L->VB.value[b];
                if (!G->total) continue;
                VdV += L->VB.value[v] * L->VB.tangent[v];
                dVB += L->VB.tangent[v] * L->VB.value[b] + L->VB.value[v] * L->VB.tangent[b];
            }
            L->t.value[k] = VB;
            L->context.value[at] = G->q.value[k];
            L->context.value[at + F] = sqrt(VV);
            L->t.tangent[k] = dVB;
            L->context.tangent[at] = G->q.tangent[k];
            L->context.tangent[at + F] = VdV / sqrt(VV);
        }
    linear(G, n, 2 * F, F, L->context, T->M1, T->c1, L->g);
    activate(G, (size_t)n * F, L->g, L->s);
    linear(G, n, F, 3 * F, L->s, T->M2, T->c2, L->y);
    for (int i = 0; i < n; i++)
        for (int f = 0; f < F; f++) {
            size_t k = (size_t)i * F + f;
            const double *y = L->y.value + (size_t)i * 3 * F + f, *dy = L->y.tangent + (size_t)i * 3 * F + f;
            G->q.value[k] += y[0] + y[2 * F] * L->t.value[k];
            G->q.tangent[k] += dy[0] + dy[2 * F] * L->t.value[k] + y[2 * F] * L->t.tangent[k];
            for (int c = 0; c < 3; c++) {
                size_t m = ((size_t)i * 3 + c) * F + f, b = ((size_t)i * 3 + c) * 2 * F + F + f;
                G->mu.value[m] = L->mu1.value[m] + y[F] * L->VB.value[b];
                if (G->total) G->mu.tangent[m] = L->mu1.tangent[m] + dy[F] * L->VB.value[b] + y[F] * L->VB.tangent[b];
            }
        }
}

// q̄, μ̄ after the layer become q̄', μ̄' after its message.
static void update_backward(painn_gradient *G, int n, int l)
{
    const painn_trainable_layer *T = &G->trainable->layer[l];
    const layer_state *L = &G->layer[l];
    int F = G->parameters->n_features;
    bool dual_numbers = G->total != NULL;
    for (int i = 0; i < n; i++)
        for (int f = 0; f < F; f++) {
            size_t k = (size_t)i * F + f, at = (size_t)i * 3 * F + f;
            double gate = 0, dgate = 0, q = G->q_bar.value[k], dq = dual_numbers ? G->q_bar.tangent[k] : 0;
            for (int c = 0; c < 3; c++) {
                size_t m = ((size_t)i * 3 + c) * F + f, b = ((size_t)i * 3 + c) * 2 * F + F + f;
                gate += G->mu_bar.value[m] * L->VB.value[b];
                if (dual_numbers) dgate += G->mu_bar.tangent[m] * L->VB.value[b] + G->mu_bar.value[m] * L->VB.tangent[b];
            }
            G->y_bar.value[at] = q;
            G->y_bar.value[at + F] = gate;
            G->y_bar.value[at + 2 * F] = q * L->t.value[k];
            G->y_bar.tangent[at] = dq;
            G->y_bar.tangent[at + F] = dgate;
            G->y_bar.tangent[at + 2 * F] = dq * L->t.value[k] + q * L->t.tangent[k];
        }
    set_zero(G, G->s_bar, (size_t)n * F);
    linear_backward(G, n, F, 3 * F, G->y_bar, L->s, T->M2, T->c2, G->s_bar);
    activate_backward(G, (size_t)n * F, L->g, G->s_bar);
    set_zero(G, G->context_bar, (size_t)n * 2 * F);
    linear_backward(G, n, 2 * F, F, G->s_bar, L->context, T->M1, T->c1, G->context_bar);
    for (int i = 0; i < n; i++)
        for (int f = 0; f < F; f++) {
            size_t k = (size_t)i * F + f, at = (size_t)i * 2 * F + f;
            const double *y = L->y.value + (size_t)i * 3 * F + f, *dy = L->y.tangent + (size_t)i * 3 * F + f;
            double t_bar = G->q_bar.value[k] * y[2 * F], norm = L->context.value[at + F];
            double ratio = G->context_bar.value[at + F] / norm, dt_bar = 0, dratio = 0;
            if (dual_numbers) {
                dt_bar = G->q_bar.tangent[k] * y[2 * F] + G->q_bar.value[k] * dy[2 * F];
                dratio = (G->context_bar.tangent[at + F] - ratio * L->context.tangent[at + F]) / norm;
            }
            for (int c = 0; c < 3; c++) {
                size_t m = ((size_t)i * 3 + c) * F + f, v = ((size_t)i * 3 + c) * 2 * F + f, b = v + F;
                double V = L->VB.value[v], B = L->VB.value[b], mu = G->mu_bar.value[m];
                G->VB_bar.value[v] = t_bar * B + ratio * V;
                G->VB_bar.value[b] = mu * y[F] + t_bar * V;
                if (!dual_numbers) continue;
                double dV = L->VB.tangent[v], dB = L->VB.tangent[b];
                G->VB_bar.tangent[v] = dt_bar * B + t_bar * dB + dratio * V + ratio * dV;
                G->VB_bar.tangent[b] = G->mu_bar.tangent[m] * y[F] + mu * dy[F] + dt_bar * V + t_bar * dV;
            }
            G->q_bar.value[k] += G->context_bar.value[at];
            if (dual_numbers) G->q_bar.tangent[k] += G->context_bar.tangent[at];
        }
    linear_backward(G, 3 * n, F, 2 * F, G->VB_bar, L->mu1, T->U, -1, G->mu_bar);
}

// ---- the whole pass -------------------------------------------------------------------------------------------------------

static void forward(painn_gradient *G, const painn_gradient_frame *frame)
{
    const painn_parameters *P = G->parameters;
    int n = frame->n_atoms, F = P->n_features;
    set_zero(G, G->q, (size_t)n * F);
    set_zero(G, G->mu, (size_t)n * 3 * F);
    for (int i = 0; i < n; i++)
        memcpy(G->q.value + (size_t)i * F, G->weights + G->trainable->embedding + (size_t)frame->species[i] * F,
               sizeof(double) * (size_t)F);
    for (int l = 0; l < P->n_layers; l++) {
        const painn_trainable_layer *T = &G->trainable->layer[l];
        layer_state *L = &G->layer[l];
        copy(G, L->q, G->q, (size_t)n * F);
        copy(G, L->mu, G->mu, (size_t)n * 3 * F);
        linear(G, n, F, F, L->q, T->W1, T->b1, L->h);
        activate(G, (size_t)n * F, L->h, L->a);
        linear(G, n, F, 3 * F, L->a, T->W2, T->b2, L->x);
        message(G, frame, l);
        update(G, n, l);
    }
    dual input = G->q;
    for (int k = 0; k < P->n_readout; k++) {
        int in = P->readout_width[k], out = P->readout_width[k + 1];
        linear(G, n, in, out, input, G->trainable->readout_weight[k], G->trainable->readout_bias[k], G->z[k]);
        activate(G, (size_t)n * out, G->z[k], G->act_z[k]);
        input = G->act_z[k];
    }
}

// `c` NULL: values only.
static void backward(painn_gradient *G, const painn_gradient_frame *frame, const double *c)
{
    const painn_parameters *P = G->parameters;
    int n = frame->n_atoms, F = P->n_features, last = P->n_readout - 1;
    for (int i = 0; i < n; i++) {
        G->z_bar.value[i] = 1;
        G->z_bar.tangent[i] = c ? c[i] : 0;
    }
    for (int k = last; k >= 0; k--) {
        int in = P->readout_width[k], out = P->readout_width[k + 1];
        if (k < last) activate_backward(G, (size_t)n * out, G->z[k], G->z_bar);
        set_zero(G, G->input_bar, (size_t)n * in);
        linear_backward(G, n, in, out, G->z_bar, k ? G->act_z[k - 1] : G->q, G->trainable->readout_weight[k],
                        G->trainable->readout_bias[k], G->input_bar);
        copy(G, G->z_bar, G->input_bar, (size_t)n * in);
    }
    copy(G, G->q_bar, G->z_bar, (size_t)n * F);
    set_zero(G, G->mu_bar, (size_t)n * 3 * F);
    for (int l = P->n_layers - 1; l >= 0; l--) {
        const painn_trainable_layer *T = &G->trainable->layer[l];
        const layer_state *L = &G->layer[l];
        update_backward(G, n, l);
        message_backward(G, frame, l);
        set_zero(G, G->a_bar, (size_t)n * F);
        linear_backward(G, n, F, 3 * F, G->x_bar, L->a, T->W2, T->b2, G->a_bar);
        activate_backward(G, (size_t)n * F, L->h, G->a_bar);
        linear_backward(G, n, F, F, G->a_bar, L->q, T->W1, T->b1, G->q_bar);
    }
    for (int i = 0; G->total && i < n; i++)
        for (int f = 0; f < F; f++)
            G->total[G->trainable->embedding + (int64_t)frame->species[i] * F + f] += G->q_bar.tangent[(size_t)i * F + f];
}

mlff_status painn_gradient_base(painn_gradient *G, const painn_gradient_frame *frame, const double *weights, double *atom_energy,
                                double *pair_gradient)
{
    mlff_status status = MLFF_OK;
    int n_pairs = (int)(frame->first_pair[frame->n_atoms] - frame->first_pair[0]);
    MLFF_TRY(resize(G, (size_t)frame->n_atoms, (size_t)n_pairs));
    G->weights = weights;
    G->total = NULL;
    memset(G->psi_bar.value, 0, sizeof(double) * (size_t)n_pairs * ((size_t)G->parameters->n_radial + 1));
    memset(G->u_bar.value, 0, sizeof(double) * (size_t)n_pairs * 3);
    radial(G, frame, n_pairs, NULL);
    forward(G, frame);
    memcpy(atom_energy, G->z[G->parameters->n_readout - 1].value, sizeof(double) * (size_t)frame->n_atoms);
    backward(G, frame, NULL);
    edge_gradient(G, n_pairs, pair_gradient);
done:
    return status;
}

mlff_status painn_gradient_add(painn_gradient *G, const painn_gradient_frame *frame, const double *weights, const double *c,
                               const double *w, double *total, double *atom_tangent)
{
    mlff_status status = MLFF_OK;
    int n_pairs = (int)(frame->first_pair[frame->n_atoms] - frame->first_pair[0]);
    MLFF_TRY(resize(G, (size_t)frame->n_atoms, (size_t)n_pairs));
    G->weights = weights;
    G->total = total;
    radial(G, frame, n_pairs, w);
    forward(G, frame);
    if (atom_tangent) memcpy(atom_tangent, G->z[G->parameters->n_readout - 1].tangent, sizeof(double) * (size_t)frame->n_atoms);
    backward(G, frame, c);
done:
    return status;
}

mlff_status painn_gradient_create(const painn_parameters *parameters, const painn_trainable *trainable,
                                  painn_gradient **gradient_out)
{
    mlff_status status = MLFF_OK;
    painn_gradient *G = base_alloc(1, sizeof *G, "a gradient");
    if (!G) return MLFF_ERR_MEMORY;
    G->parameters = parameters;
    G->trainable = trainable;
    MLFF_TRY(allocate(&G->filter, 3 * (size_t)parameters->n_features));
    MLFF_TRY(allocate(&G->filter_bar, 3 * (size_t)parameters->n_features));
    *gradient_out = G;
    G = NULL;
done:
    painn_gradient_destroy(G);
    return status;
}

void painn_gradient_destroy(painn_gradient *G)
{
    if (!G) return;
    buffer list[MAX_BUFFERS];
    for (int b = atom_buffers(G, list) - 1; b >= 0; b--) release(list[b].array);
    dual *rest[] = {&G->u, &G->psi, &G->psi_bar, &G->u_bar, &G->filter, &G->filter_bar};
    for (size_t b = 0; b < sizeof rest / sizeof *rest; b++) release(rest[b]);
    base_free(G->distance);
    base_free(G->dpsi);
    base_free(G);
}
