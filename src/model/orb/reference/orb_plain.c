// SPDX-License-Identifier: MIT
// orb_plain.c: layers of Orb in float64, plain, with their reverse passes.
//
// Norms of a row y with F elements, weight w, bias b:
//   LayerNorm  z = (y − μ)/s,  s = √(mean (y − μ)² + ε),  out = w z + b;  ȳ = (ḡ − mean ḡ − z mean(ḡ z))/s,  ḡ = w ōut
//   RMSNorm    z = y/s,        s = √(mean y² + ε),           out = w z;      ȳ = (ḡ − z mean(ḡ z))/s
#include "orb_plain.h"

#include <math.h>
#include <string.h>

void orb_plain_linear(const orb_linear *linear, int n, const double *x, double *y)
{
    const int n_in = linear->n_in, n_out = linear->n_out;
    for (int i = 0; i < n; i++, x += n_in, y += n_out)
        for (int o = 0; o < n_out; o++) {
            const float *w = linear->weight + (size_t)o * n_in;
            double sum[4] = {linear->bias[o]};
            int k = 0;
            for (; k + 4 <= n_in; k += 4)
                for (int c = 0; c < 4; c++) sum[c] += w[k + c] * x[k + c];
            for (; k < n_in; k++) sum[0] += w[k] * x[k];
            y[o] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
        }
}

void orb_plain_linear_backward(const orb_linear *linear, int n, const double *y_bar, double *x_bar)
{
    const int n_in = linear->n_in, n_out = linear->n_out;
    for (int i = 0; i < n; i++, x_bar += n_in, y_bar += n_out)
        for (int o = 0; o < n_out; o++) {
            const float *w = linear->weight + (size_t)o * n_in;
            for (int k = 0; k < n_in; k++) x_bar[k] += y_bar[o] * w[k];
        }
}

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

// Above 20 PyTorch's softplus is x itself.
static double activation(enum orb_activation kind, double x)
{
    if (kind == ORB_SILU) return x * sigmoid(x);
    return (x > 20.0 ? x : log1p(exp(x))) - 0.6931471805599453;
}

double orb_plain_slope(enum orb_activation kind, double x)
{
    const double s = sigmoid(x);
    if (kind == ORB_SILU) return s * (1.0 + x * (1.0 - s));
    return x > 20.0 ? 1.0 : s;
}

// y becomes z; returns s.
static double standardize(const orb_parameters *p, double *y)
{
    const enum orb_norm kind = p->norm;
    const int F = p->n_features;
    double mean = 0, square = 0;
    for (int f = 0; kind == ORB_LAYER_NORM && f < F; f++) mean += y[f] / F;
    for (int f = 0; f < F; f++) square += (y[f] - mean) * (y[f] - mean) / F;
    const double s = sqrt(square + p->norm_epsilon);
    for (int f = 0; f < F; f++) y[f] = (y[f] - mean) / s;
    return s;
}

static void norm_backward(enum orb_norm kind, int F, const float *weight, const double *z, double s, const double *out_bar,
                          double *y_bar)
{
    double mean = 0, along = 0;
    for (int f = 0; f < F; f++) {
        y_bar[f] = weight[f] * out_bar[f];
        mean += kind == ORB_LAYER_NORM ? y_bar[f] / F : 0;
        along += y_bar[f] * z[f] / F;
    }
    for (int f = 0; f < F; f++) y_bar[f] = (y_bar[f] - mean - z[f] * along) / s;
}

static size_t widest(const orb_parameters *p)
{
    size_t w = (size_t)p->n_hidden;
    if ((size_t)p->n_head > w) w = (size_t)p->n_head;
    return w > (size_t)p->n_features ? w : (size_t)p->n_features;
}

size_t orb_plain_scratch(const orb_parameters *p)
{
    return 6 * ORB_PLAIN_ROWS * widest(p);
}

static void activate(enum orb_activation kind, size_t n, const double *z, double *h)
{
    for (size_t k = 0; k < n; k++) h[k] = activation(kind, z[k]);
}

// One block of at most ORB_PLAIN_ROWS rows: z1, z2 before the activations, y before the norm.
static void block_forward(const orb_parameters *p, const orb_mlp *mlp, int n, const double *x, double *z1, double *z2, double *h,
                          double *y)
{
    const size_t hidden = (size_t)n * (size_t)p->n_hidden;
    orb_plain_linear(&mlp->linear[0], n, x, z1);
    activate(p->activation, hidden, z1, h);
    orb_plain_linear(&mlp->linear[1], n, h, z2);
    activate(p->activation, hidden, z2, h);
    orb_plain_linear(&mlp->linear[2], n, h, y);
}

void orb_plain_mlp(const orb_parameters *p, const orb_mlp *mlp, int n, const double *x, double *y, double *scratch)
{
    const size_t wide = widest(p) * ORB_PLAIN_ROWS, F = (size_t)p->n_features;
    for (int begin = 0; begin < n; begin += ORB_PLAIN_ROWS) {
        const int rows = n - begin < ORB_PLAIN_ROWS ? n - begin : ORB_PLAIN_ROWS;
        double *out = y + (size_t)begin * F;
        block_forward(p, mlp, rows, x + (size_t)begin * (size_t)mlp->linear[0].n_in, scratch, scratch + wide, scratch + 2 * wide,
                      out);
        for (int i = 0; i < rows; i++, out += F) {
            standardize(p, out);
            for (size_t f = 0; f < F; f++) out[f] = out[f] * mlp->norm_weight[f] + (mlp->norm_bias ? mlp->norm_bias[f] : 0);
        }
    }
}

void orb_plain_mlp_backward(const orb_parameters *p, const orb_mlp *mlp, int n, const double *x, const double *y_bar,
                            double *x_bar, double *scratch)
{
    const size_t wide = widest(p) * ORB_PLAIN_ROWS, F = (size_t)p->n_features, H = (size_t)p->n_hidden;
    const size_t n_in = (size_t)mlp->linear[0].n_in;
    double *z1 = scratch, *z2 = z1 + wide, *h_bar = z2 + wide, *h1_bar = h_bar + wide, *y = h1_bar + wide, *bar = y + wide;
    memset(x_bar, 0, sizeof *x_bar * (size_t)n * n_in);
    for (int begin = 0; begin < n; begin += ORB_PLAIN_ROWS) {
        const int rows = n - begin < ORB_PLAIN_ROWS ? n - begin : ORB_PLAIN_ROWS;
        block_forward(p, mlp, rows, x + (size_t)begin * n_in, z1, z2, h_bar, y);
        for (int i = 0; i < rows; i++) {
            const double s = standardize(p, y + (size_t)i * F);
            norm_backward(p->norm, p->n_features, mlp->norm_weight, y + (size_t)i * F, s, y_bar + (size_t)(begin + i) * F,
                          bar + (size_t)i * F);
        }
        memset(h_bar, 0, sizeof *h_bar * (size_t)rows * H);
        orb_plain_linear_backward(&mlp->linear[2], rows, bar, h_bar);
        for (size_t k = 0; k < (size_t)rows * H; k++) h_bar[k] *= orb_plain_slope(p->activation, z2[k]);
        memset(h1_bar, 0, sizeof *h1_bar * (size_t)rows * H);
        orb_plain_linear_backward(&mlp->linear[1], rows, h_bar, h1_bar);
        for (size_t k = 0; k < (size_t)rows * H; k++) h1_bar[k] *= orb_plain_slope(p->activation, z1[k]);
        orb_plain_linear_backward(&mlp->linear[0], rows, h1_bar, x_bar + (size_t)begin * n_in);
    }
}

void orb_plain_head(const orb_parameters *p, const orb_head *head, int n, const double *x, double *y, double *scratch)
{
    for (int i = 0; i < n; i++) {
        orb_plain_linear(&head->linear[0], 1, x + (size_t)i * (size_t)p->n_features, scratch);
        activate(p->activation, (size_t)p->n_head, scratch, scratch);
        orb_plain_linear(&head->linear[1], 1, scratch, y + (size_t)i * (size_t)head->linear[1].n_out);
    }
}

double orb_plain_force_error(const orb_parameters *p, const double *features, double *scratch)
{
    double logit[ORB_MAX_BINS], largest = -INFINITY, sum = 0, error = 0;
    orb_plain_head(p, &p->confidence, 1, features, logit, scratch);
    for (int k = 0; k < p->n_bins; k++) largest = fmax(largest, logit[k]);
    for (int k = 0; k < p->n_bins; k++) {
        const double weight = exp(logit[k] - largest);
        sum += weight;
        error += weight * 0.5 * ((double)p->confidence_edges[k] + (double)p->confidence_edges[k + 1]);
    }
    return error / sum;
}
