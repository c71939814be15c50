// SPDX-License-Identifier: MIT
// painn_reference.c: PaiNN in float64, plain: the truth the other implementations are tested against.
//
// The equations and symbols are those of src/model/painn/README.md (Schütt et al. 2021, arXiv:2102.03150, with
// SchNetPack's conventions); a bar over a symbol there is a suffix `_bar` here: x_bar = dE/dx. Sums over pairs run in
// list order, reverse sums are scattered to the neighbor, so the list need not be symmetric.
#include <assert.h>
#include <math.h>
#include <string.h>

#include "painn_plain.h"

enum { STAGE_RADIAL, STAGE_LAYERS }; // then message and update of each layer, readout, and the same backward

typedef struct reference_layer {
    double *W1, *W1t, *W2, *W2t, *U, *Ut, *M1, *M1t, *M2, *M2t; // (out, in), and transposed
    double *At;                                                 // of the filters: [K][3F]
    // Saved by the forward pass. All [n_atoms][…].
    double *mu;            // [3][F] layer input
    double *h, *x;         // [F], [3F]
    double *mu1, *V, *B;   // [3][F] each; mu1 after the message
    double *n, *t, *g, *y; // [F], [F], [F], [3F]
} reference_layer;

typedef struct reference {
    model_backend backend;
    painn_parameters parameters;
    mlff_stage *stages;
    double *readout[PAINN_MAX_READOUT], *readout_t[PAINN_MAX_READOUT];
    size_t atom_capacity, pair_capacity;
    int64_t n_growths;
    reference_layer layer[PAINN_MAX_LAYERS];
    double *q, *mu, *scratch, *scratch2;                 // [F], [3][F], [3F], [3F] per atom
    double *q_bar, *mu_bar, *x_bar, *y_bar, *UB_bar;     // [F], [3][F], [3F], [3F], [3][2F] per atom
    double *readout_z[PAINN_MAX_READOUT];                // [width] per atom: inputs of the activations
    double *psi, *dpsi, *psi_bar, *u_bar, *distance, *u; // per pair: [K+1] ×3, [3], 1, [3]
} reference;

// ---- radial functions ---------------------------------------------------------------------------------------------

void painn_radial(const painn_parameters *p, double d, double *psi, double *derivative)
{
    int K = p->n_radial;
    double f = 0, df = 0, rc = p->cutoff;
    if (p->cutoff_function == PAINN_COSINE && d < rc) {
        f = 0.5 * (1.0 + cos(BASE_PI * d / rc));
        df = -0.5 * BASE_PI / rc * sin(BASE_PI * d / rc);
    } else if (p->cutoff_function == PAINN_MOLLIFIER && d + 1e-7 < rc) {
        double s = d / rc, w = 1.0 - s * s;
        f = exp(1.0 - 1.0 / w);
        df = -f * 2.0 * s / (rc * w * w);
    }
    for (int k = 0; k < K; k++) {
        double phi, dphi;
        if (p->basis == PAINN_GAUSSIAN) {
            double w = p->width[k], z = d - p->center[k];
            phi = exp(-0.5 * z * z / (w * w));
            dphi = -z / (w * w) * phi;
        } else {
            double w = p->frequency[k];
            phi = sin(w * d) / d;
            dphi = (w * cos(w * d) - phi) / d;
        }
        psi[k] = phi * f;
        derivative[k] = dphi * f + phi * df;
    }
    psi[K] = f;
    derivative[K] = df;
}

// ---- matrices ---------------------------------------------------------------------------------------------------

static void set_rows(int n, int width, const float *bias, double *y)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < width; j++) y[(size_t)i * width + j] = bias ? bias[j] : 0.0;
}

// y = x wᵀ + bias with w transposed to [in][out]
static void linear(int n, int in, int out, const double *x, const double *w_transposed, const float *bias, double *y)
{
    set_rows(n, out, bias, y);
    plain_add_product(n, in, out, x, w_transposed, y);
}

static double *to_double(const float *w, int rows, int columns, bool transpose)
{
    double *copy = base_alloc((size_t)rows * columns, sizeof *copy, "weights");
    if (!copy) return NULL;
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c++)
            copy[transpose ? (size_t)c * rows + r : (size_t)r * columns + c] = w[(size_t)r * columns + c];
    return copy;
}

// ---- forward ----------------------------------------------------------------------------------------------------

static void radial(reference *r, const model_graph *graph)
{
    int K1 = r->parameters.n_radial + 1;
    for (int p = 0; p < graph->n_pairs; p++) {
        const double *v = graph->vectors + 3 * (size_t)p;
        double d = sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
        r->distance[p] = d;
        for (int c = 0; c < 3; c++) r->u[3 * (size_t)p + c] = v[c] / d;
        painn_radial(&r->parameters, d, r->psi + (size_t)p * K1, r->dpsi + (size_t)p * K1);
    }
}

// W = [A | b] ψ of one pair and layer, [3F]
static void filter(const painn_layer *layer, const reference_layer *L, int F, int K, const double *psi, double *W)
{
    for (int f = 0; f < 3 * F; f++) W[f] = layer->filter_bias[f] * psi[K];
    plain_add_product(1, K, 3 * F, psi, L->At, W);
}

// Δq_i = Σ W^q∘x^q_j ; Δμ_i = Σ (W^R∘x^R_j) u + (W^μ∘x^μ_j)∘μ_j
static void message(reference *r, const model_graph *graph, int l)
{
    const painn_parameters *P = &r->parameters;
    const reference_layer *L = &r->layer[l];
    int F = P->n_features, K = P->n_radial;
    double *W = r->scratch2;
    memcpy(L->mu1, L->mu, sizeof(double) * 3 * F * (size_t)graph->n_atoms);
    for (int i = 0; i < graph->n_atoms; i++)
        for (int p = graph->first[i]; p < graph->first[i + 1]; p++) {
            size_t j = graph->neighbor[p];
            filter(&P->layer[l], L, F, K, r->psi + (size_t)p * (K + 1), W);
            const double *x = L->x + j * 3 * F, *mu_j = L->mu + j * 3 * F, *u = r->u + 3 * (size_t)p;
            for (int f = 0; f < F; f++) {
                r->q[(size_t)i * F + f] += W[f] * x[f];
                double along_u = W[F + f] * x[F + f], along_mu = W[2 * F + f] * x[2 * F + f];
                for (int c = 0; c < 3; c++) L->mu1[((size_t)i * 3 + c) * F + f] += along_u * u[c] + along_mu * mu_j[c * F + f];
            }
        }
}

static void update(reference *r, int n, int l)
{
    const painn_parameters *P = &r->parameters;
    const painn_layer *w = &P->layer[l];
    reference_layer *L = &r->layer[l];
    int F = P->n_features;
    // [V | B] = μ' Uᵀ, split at once
    double *both = r->UB_bar;
    linear(3 * n, F, 2 * F, L->mu1, L->Ut, NULL, both);
    for (int row = 0; row < 3 * n; row++) {
        memcpy(L->V + (size_t)row * F, both + (size_t)row * 2 * F, sizeof(double) * F);
        memcpy(L->B + (size_t)row * F, both + (size_t)row * 2 * F + F, sizeof(double) * F);
    }
    double *context = r->scratch; // [q' | n], [2F]
    for (int i = 0; i < n; i++)
        for (int f = 0; f < F; f++) {
            double VV = 0, VB = 0;
            for (int c = 0; c < 3; c++) {
                size_t k = ((size_t)i * 3 + c) * F + f;
                VV += L->V[k] * L->V[k];
                VB += L->V[k] * L->B[k];
            }
            size_t k = (size_t)i * F + f;
            L->n[k] = sqrt(VV + P->epsilon);
            L->t[k] = VB;
            context[(size_t)i * 2 * F + f] = r->q[k];
            context[(size_t)i * 2 * F + F + f] = L->n[k];
        }
    linear(n, 2 * F, F, context, L->M1t, w->c1, L->g);
    for (size_t k = 0; k < (size_t)n * F; k++) r->scratch[k] = plain_activation(P->activation, L->g[k]);
    linear(n, F, 3 * F, r->scratch, L->M2t, w->c2, L->y);
    for (int i = 0; i < n; i++)
        for (int f = 0; f < F; f++) {
            const double *y = L->y + (size_t)i * 3 * F;
            r->q[(size_t)i * F + f] += y[f] + y[2 * F + f] * L->t[(size_t)i * F + f];
            for (int c = 0; c < 3; c++) {
                size_t k = ((size_t)i * 3 + c) * F + f;
                r->mu[k] = L->mu1[k] + y[F + f] * L->B[k];
            }
        }
}

static void readout(reference *r, const model_graph *graph, double *atom_energy)
{
    const painn_parameters *P = &r->parameters;
    int n = graph->n_atoms;
    const double *input = r->q;
    for (int k = 0; k < P->n_readout; k++) {
        linear(n, P->readout_width[k], P->readout_width[k + 1], input, r->readout_t[k], P->readout_bias[k], r->readout_z[k]);
        if (k + 1 < P->n_readout)
            for (size_t e = 0; e < (size_t)n * P->readout_width[k + 1]; e++)
                r->scratch[e] = plain_activation(P->activation, r->readout_z[k][e]);
        input = r->scratch;
    }
    for (int i = 0; i < n; i++) atom_energy[i] = graph->owned && !graph->owned[i] ? 0.0 : r->readout_z[P->n_readout - 1][i];
}

// ---- backward ---------------------------------------------------------------------------------------------------

static void readout_backward(reference *r, const model_graph *graph)
{
    const painn_parameters *P = &r->parameters;
    int n = graph->n_atoms;
    double *bar = r->scratch, *next = r->scratch2;
    for (int i = 0; i < n; i++) bar[i] = graph->owned && !graph->owned[i] ? 0.0 : 1.0;
    for (int k = P->n_readout - 1; k >= 0; k--) {
        int in = P->readout_width[k], out = P->readout_width[k + 1];
        memset(next, 0, sizeof(double) * (size_t)n * in);
        plain_add_product(n, out, in, bar, r->readout[k], next);
        if (k > 0)
            for (size_t e = 0; e < (size_t)n * in; e++)
                next[e] *= plain_activation_derivative(P->activation, r->readout_z[k - 1][e]);
        double *swap = bar;
        bar = next;
        next = swap;
    }
    memcpy(r->q_bar, bar, sizeof(double) * (size_t)n * P->n_features);
    memset(r->mu_bar, 0, sizeof(double) * (size_t)n * 3 * P->n_features);
}

static void update_backward(reference *r, int n, int l)
{
    const painn_parameters *P = &r->parameters;
    const reference_layer *L = &r->layer[l];
    int F = P->n_features;
    for (int i = 0; i < n; i++)
        for (int f = 0; f < F; f++) {
            size_t k = (size_t)i * F + f;
            double *y_bar = r->y_bar + (size_t)i * 3 * F;
            double gate = 0;
            for (int c = 0; c < 3; c++) gate += r->mu_bar[((size_t)i * 3 + c) * F + f] * L->B[((size_t)i * 3 + c) * F + f];
            y_bar[f] = r->q_bar[k];
            y_bar[F + f] = gate;
            y_bar[2 * F + f] = r->q_bar[k] * L->t[k];
        }
    double *g_bar = r->scratch, *context_bar = r->scratch2;
    memset(g_bar, 0, sizeof(double) * (size_t)n * F);
    plain_add_product(n, 3 * F, F, r->y_bar, L->M2, g_bar);
    for (size_t k = 0; k < (size_t)n * F; k++) g_bar[k] *= plain_activation_derivative(P->activation, L->g[k]);
    memset(context_bar, 0, sizeof(double) * (size_t)n * 2 * F);
    plain_add_product(n, F, 2 * F, g_bar, L->M1, context_bar);
    for (int i = 0; i < n; i++)
        for (int f = 0; f < F; f++) {
            size_t k = (size_t)i * F + f;
            const double *y = L->y + (size_t)i * 3 * F;
            double t_bar = r->q_bar[k] * y[2 * F + f], n_ratio = context_bar[(size_t)i * 2 * F + F + f] / L->n[k];
            for (int c = 0; c < 3; c++) {
                size_t v = ((size_t)i * 3 + c) * F + f;
                double *both = r->UB_bar + ((size_t)i * 3 + c) * 2 * F;
                both[f] = t_bar * L->B[v] + n_ratio * L->V[v];
                both[F + f] = r->mu_bar[v] * y[F + f] + t_bar * L->V[v];
            }
            r->q_bar[k] += context_bar[(size_t)i * 2 * F + f];
        }
    plain_add_product(3 * n, 2 * F, F, r->UB_bar, L->U, r->mu_bar);
}

static void message_backward(reference *r, const model_graph *graph, int l)
{
    const painn_parameters *P = &r->parameters;
    const painn_layer *w = &P->layer[l];
    const reference_layer *L = &r->layer[l];
    int F = P->n_features, K = P->n_radial, n = graph->n_atoms;
    double *W = r->scratch2, *W_bar = r->scratch2 + 3 * F;
    // μ̄ of the layer's input starts as μ̄', which the sums below still read: it is copied aside.
    double *mu1_bar = r->UB_bar;
    memcpy(mu1_bar, r->mu_bar, sizeof(double) * (size_t)n * 3 * F);
    memset(r->x_bar, 0, sizeof(double) * (size_t)n * 3 * F);
    for (int i = 0; i < n; i++)
        for (int p = graph->first[i]; p < graph->first[i + 1]; p++) {
            size_t j = graph->neighbor[p];
            const double *x = L->x + j * 3 * F, *mu_j = L->mu + j * 3 * F, *u = r->u + 3 * (size_t)p;
            const double *mu_i_bar = mu1_bar + (size_t)i * 3 * F, *q_i_bar = r->q_bar + (size_t)i * F;
            double *x_bar = r->x_bar + j * 3 * F, *mu_j_bar = r->mu_bar + j * 3 * F;
            filter(w, L, F, K, r->psi + (size_t)p * (K + 1), W);
            for (int f = 0; f < F; f++) {
                double P_e = 0, Q_e = 0, along_mu = W[2 * F + f] * x[2 * F + f];
                for (int c = 0; c < 3; c++) {
                    double bar = mu_i_bar[c * F + f];
                    P_e += u[c] * bar;
                    Q_e += mu_j[c * F + f] * bar;
                    mu_j_bar[c * F + f] += along_mu * bar;
                    r->u_bar[3 * (size_t)p + c] += W[F + f] * x[F + f] * bar;
                }
                x_bar[f] += W[f] * q_i_bar[f];
                x_bar[F + f] += W[F + f] * P_e;
                x_bar[2 * F + f] += W[2 * F + f] * Q_e;
                W_bar[f] = x[f] * q_i_bar[f];
                W_bar[F + f] = x[F + f] * P_e;
                W_bar[2 * F + f] = x[2 * F + f] * Q_e;
            }
            double *psi_bar = r->psi_bar + (size_t)p * (K + 1);
            for (int f = 0; f < 3 * F; f++) {
                for (int k = 0; k < K; k++) psi_bar[k] += W_bar[f] * w->filter_weight[(size_t)f * K + k];
                psi_bar[K] += W_bar[f] * w->filter_bias[f];
            }
        }
    double *h_bar = r->scratch;
    memset(h_bar, 0, sizeof(double) * (size_t)n * F);
    plain_add_product(n, 3 * F, F, r->x_bar, L->W2, h_bar);
    for (size_t k = 0; k < (size_t)n * F; k++) h_bar[k] *= plain_activation_derivative(P->activation, L->h[k]);
    plain_add_product(n, F, F, h_bar, L->W1, r->q_bar);
}

// g = (ψ̄·ψ') u + (ū − u (u·ū)) / d
static void edge_gradient(const reference *r, int n_pairs, double *pair_gradient)
{
    int K1 = r->parameters.n_radial + 1;
    for (int p = 0; p < n_pairs; p++) {
        const double *u = r->u + 3 * (size_t)p, *u_bar = r->u_bar + 3 * (size_t)p;
        double along = 0, radial_part = u[0] * u_bar[0] + u[1] * u_bar[1] + u[2] * u_bar[2];
        for (int k = 0; k < K1; k++) along += r->psi_bar[(size_t)p * K1 + k] * r->dpsi[(size_t)p * K1 + k];
        for (int c = 0; c < 3; c++)
            pair_gradient[3 * (size_t)p + c] = along * u[c] + (u_bar[c] - u[c] * radial_part) / r->distance[p];
    }
}

// ---- the backend --------------------------------------------------------------------------------------------------

static mlff_status resize(reference *r, int n_atoms, int n_pairs)
{
    mlff_status status = MLFF_OK;
    const painn_parameters *P = &r->parameters;
    size_t F = P->n_features, K1 = (size_t)P->n_radial + 1, wide = 3 * F, none;
    for (int k = 0; k < P->n_readout; k++)
        if ((size_t)P->readout_width[k] > wide) wide = P->readout_width[k];
    if ((size_t)n_atoms > r->atom_capacity) {
        size_t n = (size_t)n_atoms + n_atoms / 4;
        r->n_growths++;
        for (int l = 0; l < P->n_layers; l++) {
            reference_layer *L = &r->layer[l];
            struct {
                double **array;
                size_t width;
            } arrays[] = {{&L->mu, 3 * F}, {&L->h, F}, {&L->x, 3 * F}, {&L->mu1, 3 * F}, {&L->V, 3 * F},
                          {&L->B, 3 * F},  {&L->n, F}, {&L->t, F},     {&L->g, F},       {&L->y, 3 * F}};
            for (size_t a = 0; a < sizeof arrays / sizeof *arrays; a++) {
                none = 0;
                MLFF_TRY(base_grow(arrays[a].array, &none, n * arrays[a].width, sizeof(double), "atom features"));
            }
        }
        struct {
            double **array;
            size_t width;
        } arrays[] = {{&r->q, F},          {&r->mu, 3 * F},    {&r->scratch, wide}, {&r->scratch2, wide + 6 * F}, {&r->q_bar, F},
                      {&r->mu_bar, 3 * F}, {&r->x_bar, 3 * F}, {&r->y_bar, 3 * F},  {&r->UB_bar, 6 * F}};
        for (size_t a = 0; a < sizeof arrays / sizeof *arrays; a++) {
            none = 0;
            MLFF_TRY(base_grow(arrays[a].array, &none, n * arrays[a].width, sizeof(double), "atom features"));
        }
        for (int k = 0; k < P->n_readout; k++) {
            none = 0;
            MLFF_TRY(base_grow(&r->readout_z[k], &none, n * P->readout_width[k + 1], sizeof(double), "atom features"));
        }
        r->atom_capacity = n;
    }
    if ((size_t)n_pairs > r->pair_capacity || !r->psi) {
        size_t n = (size_t)n_pairs + n_pairs / 4;
        struct {
            double **array;
            size_t width;
        } arrays[] = {{&r->psi, K1}, {&r->dpsi, K1}, {&r->psi_bar, K1}, {&r->u_bar, 3}, {&r->distance, 1}, {&r->u, 3}};
        r->n_growths++;
        for (size_t a = 0; a < sizeof arrays / sizeof *arrays; a++) {
            none = 0;
            MLFF_TRY(base_grow(arrays[a].array, &none, n * arrays[a].width, sizeof(double), "pairs"));
        }
        r->pair_capacity = n;
    }
done:
    return status;
}

static mlff_status compute(model_backend *backend, const model_graph *graph, const model_outputs *outputs, stage_clock *clock,
                           int stage)
{
    mlff_status status = MLFF_OK;
    double *atom_energy = outputs->atom_energy, *pair_gradient = outputs->pair_gradient;
    reference *r = (reference *)backend;
    const painn_parameters *P = &r->parameters;
    int n = graph->n_atoms, F = P->n_features, n_layers = P->n_layers, back = stage + STAGE_LAYERS + 2 * n_layers;
    MLFF_TRY(resize(r, n, graph->n_pairs));

    radial(r, graph);
    for (int i = 0; i < n; i++)
        for (int f = 0; f < F; f++) r->q[(size_t)i * F + f] = P->embedding[(size_t)graph->species[i] * F + f];
    memset(r->mu, 0, sizeof(double) * (size_t)n * 3 * F);
    stage_end(clock, stage + STAGE_RADIAL);

    for (int l = 0; l < n_layers; l++) {
        reference_layer *L = &r->layer[l];
        memcpy(L->mu, r->mu, sizeof(double) * (size_t)n * 3 * F);
        linear(n, F, F, r->q, L->W1t, P->layer[l].b1, L->h);
        for (size_t k = 0; k < (size_t)n * F; k++) r->scratch[k] = plain_activation(P->activation, L->h[k]);
        linear(n, F, 3 * F, r->scratch, L->W2t, P->layer[l].b2, L->x);
        message(r, graph, l);
        stage_end(clock, stage + STAGE_LAYERS + 2 * l);
        update(r, n, l);
        stage_end(clock, stage + STAGE_LAYERS + 2 * l + 1);
        if (graph->halo && l + 1 < n_layers) {
            mlff_halo_array arrays[2] = {{r->q, F, 8}, {r->mu, 3 * F, 8}};
            MLFF_TRY(graph->halo->forward(graph->halo->context, l, arrays, 2, MLFF_HOST, NULL));
            stage_begin(clock);
        }
    }
    readout(r, graph, atom_energy);
    stage_end(clock, back);
    if (!pair_gradient) goto done;

    memset(r->psi_bar, 0, sizeof(double) * (size_t)graph->n_pairs * (P->n_radial + 1));
    memset(r->u_bar, 0, sizeof(double) * (size_t)graph->n_pairs * 3);
    readout_backward(r, graph);
    stage_end(clock, back + 1);
    for (int l = n_layers - 1; l >= 0; l--) {
        update_backward(r, n, l);
        stage_end(clock, back + 2 + 2 * (n_layers - 1 - l));
        message_backward(r, graph, l);
        stage_end(clock, back + 3 + 2 * (n_layers - 1 - l));
        if (graph->halo && l > 0) {
            mlff_halo_array arrays[2] = {{r->q_bar, F, 8}, {r->mu_bar, 3 * F, 8}};
            MLFF_TRY(graph->halo->reverse(graph->halo->context, l, arrays, 2, MLFF_HOST, NULL));
            stage_begin(clock);
        }
    }
    edge_gradient(r, graph->n_pairs, pair_gradient);
    stage_end(clock, back + 2 + 2 * n_layers);
done:
    return status;
}

static void info(const model_backend *backend, int64_t *bytes, int64_t *n_growths)
{
    const reference *r = (const reference *)backend;
    const painn_parameters *P = &r->parameters;
    int64_t F = P->n_features, per_layer = 20 * F, per_pair = 3 * (P->n_radial + 1) + 7;
    *bytes = 8 * ((int64_t)r->atom_capacity * (P->n_layers * per_layer + 36 * F) + (int64_t)r->pair_capacity * per_pair);
    *n_growths = r->n_growths;
}

static void destroy(model_backend *backend)
{
    reference *r = (reference *)backend;
    for (int l = 0; l < PAINN_MAX_LAYERS; l++) {
        reference_layer *L = &r->layer[l];
        double *arrays[] = {L->W1, L->W1t, L->W2, L->W2t, L->U, L->Ut, L->M1, L->M1t, L->M2, L->M2t, L->At,
                            L->mu, L->h,   L->x,  L->mu1, L->V, L->B,  L->n,  L->t,   L->g,  L->y};
        for (size_t a = 0; a < sizeof arrays / sizeof *arrays; a++) base_free(arrays[a]);
    }
    for (int k = 0; k < PAINN_MAX_READOUT; k++) {
        base_free(r->readout[k]);
        base_free(r->readout_t[k]);
        base_free(r->readout_z[k]);
    }
    double *arrays[] = {r->q,      r->mu,  r->scratch, r->scratch2, r->q_bar, r->mu_bar,   r->x_bar, r->y_bar,
                        r->UB_bar, r->psi, r->dpsi,    r->psi_bar,  r->u_bar, r->distance, r->u};
    for (size_t a = 0; a < sizeof arrays / sizeof *arrays; a++) base_free(arrays[a]);
    base_free(r->stages);
    base_free(r);
}

mlff_status painn_stages_create(int n_layers, mlff_stage **stages_out, int *n_out)
{
    int n = 4 + 4 * n_layers, k = 0;
    mlff_stage *stages = base_alloc((size_t)n, sizeof *stages, "stages");
    if (!stages) return MLFF_ERR_MEMORY;
    stages[k++] = (mlff_stage){"radial", "forward", -1, "embedding"};
    for (int l = 0; l < n_layers; l++) {
        stages[k++] = (mlff_stage){"message", "forward", l, "filter"};
        stages[k++] = (mlff_stage){"update", "forward", l, ""};
    }
    stages[k++] = (mlff_stage){"readout", "forward", -1, ""};
    stages[k++] = (mlff_stage){"readout", "backward", -1, ""};
    for (int l = n_layers - 1; l >= 0; l--) {
        stages[k++] = (mlff_stage){"update", "backward", l, ""};
        stages[k++] = (mlff_stage){"message", "backward", l, "filter"};
    }
    stages[k++] = (mlff_stage){"radial", "backward", -1, "geometry"};
    assert(k == n);
    *stages_out = stages;
    *n_out = n;
    return MLFF_OK;
}

mlff_status painn_reference_create(const mlff_model *model, const cpu_options *options, model_backend **backend_out)
{
    mlff_status status = MLFF_OK;
    (void)options; // one thread, one path
    reference *r = base_alloc(1, sizeof *r, "an evaluator");
    if (!r) return MLFF_ERR_MEMORY;
    r->backend = (model_backend){.compute = compute, .info = info, .destroy = destroy};
    r->parameters = *(const painn_parameters *)model->parameters;
    const painn_parameters *P = &r->parameters;
    int F = P->n_features;
    bool complete = true;
    for (int l = 0; l < P->n_layers; l++) {
        const painn_layer *w = &P->layer[l];
        reference_layer *L = &r->layer[l];
        complete = complete && (L->W1 = to_double(w->W1, F, F, false)) && (L->W1t = to_double(w->W1, F, F, true)) &&
                   (L->W2 = to_double(w->W2, 3 * F, F, false)) && (L->W2t = to_double(w->W2, 3 * F, F, true)) &&
                   (L->U = to_double(w->U, 2 * F, F, false)) && (L->Ut = to_double(w->U, 2 * F, F, true)) &&
                   (L->M1 = to_double(w->M1, F, 2 * F, false)) && (L->M1t = to_double(w->M1, F, 2 * F, true)) &&
                   (L->M2 = to_double(w->M2, 3 * F, F, false)) && (L->M2t = to_double(w->M2, 3 * F, F, true)) &&
                   (L->At = to_double(w->filter_weight, 3 * F, P->n_radial, true));
    }
    for (int k = 0; k < P->n_readout; k++)
        complete = complete &&
                   (r->readout[k] = to_double(P->readout_weight[k], P->readout_width[k + 1], P->readout_width[k], false)) &&
                   (r->readout_t[k] = to_double(P->readout_weight[k], P->readout_width[k + 1], P->readout_width[k], true));
    if (!complete) {
        status = MLFF_ERR_MEMORY;
        goto done;
    }
    MLFF_TRY(painn_stages_create(P->n_layers, &r->stages, &r->backend.n_stages));
    r->backend.stages = r->stages;
    *backend_out = &r->backend;
    r = NULL;
done:
    if (r) destroy(&r->backend);
    return status;
}
