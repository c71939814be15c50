// SPDX-License-Identifier: MIT
// painn_cpu_weights.c: a model's parameters as the float32 step reads them: padded, packed in panels for both directions,
// filters as tables, the first layer's x for every element.
#include <math.h>
#include <string.h>

#include "painn_cpu.h"

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
    if (!(*forward = base_alloc(nn->packed_floats(columns, rows), sizeof **forward, "weights"))) goto done;
    if (!(*back = base_alloc(nn->packed_floats(rows, columns), sizeof **back, "weights"))) goto done;
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

// 3e-8 of the largest value: half the rounding of the float32 it is stored in.
static mlff_status create_tables(painn_cpu *c)
{
    mlff_status status = MLFF_OK;
    const painn_parameters *P = &c->parameters;
    filter_context context = {P, c->F};
    nn_spline spline = {0};
    status = nn_spline_create(P->n_layers * 3 * c->F, P->cutoff, 3e-8, filter_at, &context, &spline);
    if (status == MLFF_ERR_UNSUPPORTED)
        MLFF_FAIL(status, "the model's radial functions are too narrow for the tables of float32; use precision float64");
    if (status != MLFF_OK) goto done;
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

static mlff_status create_layer(painn_cpu *c, int l)
{
    mlff_status status = MLFF_OK;
    const painn_layer *w = &c->parameters.layer[l];
    painn_cpu_layer *L = &c->layer[l];
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
static mlff_status create_species_table(painn_cpu *c)
{
    mlff_status status = MLFF_OK;
    const painn_parameters *P = &c->parameters;
    const painn_cpu_layer *L = &c->layer[0];
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

static mlff_status create_readout(painn_cpu *c)
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

mlff_status painn_cpu_load_weights(painn_cpu *c)
{
    mlff_status status = MLFF_OK;
    for (int l = 0; l < c->parameters.n_layers; l++) MLFF_TRY(create_layer(c, l));
    MLFF_TRY(create_tables(c));
    MLFF_TRY(create_species_table(c));
    MLFF_TRY(create_readout(c));
done:
    return status;
}
