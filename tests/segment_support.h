/* SPDX-License-Identifier: MIT */
/* segment_support.h: a message-passing layer in float64, plain, for tests of the operations of nn and gpu/nn:
 *
 *   v = norm(y),  a = σ(w · e + b) c for sender and receiver of each edge,  sent[i] = Σ a_s v,  received[j] = Σ a_r v,  e' = e + v
 *
 * and the derivatives of L = Σ sent · sent_bar + Σ received · received_bar + Σ e' · e_bar by central differences of the float64 function. */
#ifndef SEGMENT_SUPPORT_H
#define SEGMENT_SUPPORT_H

#include <math.h>

#include "support.h"

enum { SEGMENT_ATOMS = 6, SEGMENT_EDGES = 23, SEGMENT_WIDTH = 256 };

typedef struct segment_case {
    const char *name;
    int width;      /* columns that count */
    int layer_norm; /* 0: RMSNorm */
    double epsilon;
    int32_t first[SEGMENT_ATOMS + 1], first_incoming[SEGMENT_ATOMS + 1];
    int32_t sender[SEGMENT_EDGES], receiver[SEGMENT_EDGES], incoming[SEGMENT_EDGES];
    _Alignas(16) float y[SEGMENT_EDGES][SEGMENT_WIDTH], e[SEGMENT_EDGES][SEGMENT_WIDTH], envelope[SEGMENT_EDGES];
    _Alignas(16) float weight[SEGMENT_WIDTH], shift[SEGMENT_WIDTH], gate[2][SEGMENT_WIDTH],
        gate_bias[2];                                             /* kernels read 16 bytes at a time */
    _Alignas(16) float sums_bar[SEGMENT_ATOMS][2][SEGMENT_WIDTH]; /* received, sent */
    _Alignas(16) float e_bar[SEGMENT_EDGES][SEGMENT_WIDTH];       /* of e' */
    /* ---- results */
    double z[SEGMENT_EDGES][SEGMENT_WIDTH], inverse[SEGMENT_EDGES], v[SEGMENT_EDGES][SEGMENT_WIDTH], sigma[SEGMENT_EDGES][2];
    double sums[SEGMENT_ATOMS][2][SEGMENT_WIDTH];
    double y_grad[SEGMENT_EDGES][SEGMENT_WIDTH], e_grad[SEGMENT_EDGES][SEGMENT_WIDTH], envelope_grad[SEGMENT_EDGES];
} segment_case;

/* Sizes of a case's numbers. Atom 2 has no edges at all; some atoms only send or only receive; an atom sends to itself (an image). */
typedef struct segment_sizes {
    const char *name;
    double y, offset, e, adjoint; /* y is offset + y · normal */
} segment_sizes;
static const segment_sizes segment_all_sizes[] = {
    {"random", 1, 0, 1, 1},           {"small rows", 1e-3, 0, 1, 1},    {"large rows", 1e3, 0, 1, 1},
    {"offset", 1, 3, 1, 1},           {"saturated gates", 1, 0, 40, 1}, {"small adjoints", 1, 0, 1, 1e-5},
    {"large adjoints", 1, 0, 1, 1e3}, {"rows of zeros", 0, 0, 1, 1},
};
enum { SEGMENT_SIZES = sizeof segment_all_sizes / sizeof *segment_all_sizes };

static double segment_sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* v of row y; s is returned. */
static double segment_norm(const segment_case *c, const double *y, double *z, double *v)
{
    double mean = 0, square = 0;
    for (int k = 0; k < c->width && c->layer_norm; k++) mean += y[k] / c->width;
    for (int k = 0; k < c->width; k++) square += (y[k] - mean) * (y[k] - mean) / c->width;
    const double s = sqrt(square + c->epsilon);
    for (int k = 0; k < c->width; k++) {
        z[k] = (y[k] - mean) / s;
        v[k] = c->weight[k] * z[k] + (c->layer_norm ? (double)c->shift[k] : 0.0);
    }
    return s;
}

/* What edge i adds to L. */
static double segment_edge_loss(const segment_case *c, int i, const double *y, const double *e, double envelope)
{
    double z[SEGMENT_WIDTH], v[SEGMENT_WIDTH], logit[2] = {c->gate_bias[0], c->gate_bias[1]}, by[2] = {0, 0}, loss = 0;
    segment_norm(c, y, z, v);
    for (int k = 0; k < c->width; k++) {
        for (int g = 0; g < 2; g++) logit[g] += c->gate[g][k] * e[k];
        by[0] += v[k] * c->sums_bar[c->sender[i]][1][k];
        by[1] += v[k] * c->sums_bar[c->receiver[i]][0][k];
        loss += (e[k] + v[k]) * c->e_bar[i][k];
    }
    return loss + envelope * (segment_sigmoid(logit[0]) * by[0] + segment_sigmoid(logit[1]) * by[1]);
}

static void segment_differentiate(segment_case *c)
{
    for (int i = 0; i < SEGMENT_EDGES; i++) {
        double y[SEGMENT_WIDTH], e[SEGMENT_WIDTH];
        const double envelope = c->envelope[i];
        for (int k = 0; k < c->width; k++) y[k] = c->y[i][k], e[k] = c->e[i][k];
        for (int k = 0; k < c->width; k++) {
            const double at = y[k], step = 1e-4 / c->inverse[i], feature = e[k];
            y[k] = at + step;
            double up = segment_edge_loss(c, i, y, e, envelope);
            y[k] = at - step;
            c->y_grad[i][k] = (up - segment_edge_loss(c, i, y, e, envelope)) / (2 * step);
            y[k] = at;
            e[k] = feature + 1e-3;
            up = segment_edge_loss(c, i, y, e, envelope);
            e[k] = feature - 1e-3;
            c->e_grad[i][k] = (up - segment_edge_loss(c, i, y, e, envelope)) / 2e-3;
            e[k] = feature;
        }
        c->envelope_grad[i] = segment_edge_loss(c, i, y, e, 1) - segment_edge_loss(c, i, y, e, 0); // linear
    }
}

static void segment_connect(segment_case *c)
{
    static const int sends[SEGMENT_ATOMS] = {9, 1, 0, 7, 0, 6};
    int at = 0, n = 0;
    for (int i = 0; i < SEGMENT_ATOMS; i++) {
        c->first[i] = at;
        for (int k = 0; k < sends[i]; k++, at++) {
            const int to = (3 * at + k + i) % SEGMENT_ATOMS;
            c->sender[at] = i;
            c->receiver[at] = to == 2 ? i : to;
        }
    }
    assert_int_equal(at, SEGMENT_EDGES);
    c->first[SEGMENT_ATOMS] = at;
    for (int j = 0; j < SEGMENT_ATOMS; j++) {
        c->first_incoming[j] = n;
        for (int i = 0; i < SEGMENT_EDGES; i++)
            if (c->receiver[i] == j) c->incoming[n++] = i;
    }
    c->first_incoming[SEGMENT_ATOMS] = n;
}

/* Freed by the caller. */
SUPPORT segment_case *segment_case_new(const segment_sizes *sizes, int width, int layer_norm, uint64_t seed)
{
    segment_case *c = aligned_alloc(64, (sizeof *c + 63) / 64 * 64);
    memset(c, 0, sizeof *c);
    uint64_t draw = 0;
#define NORMAL base_random_normal(seed, 9, draw++)
    c->name = sizes->name;
    c->width = width;
    c->layer_norm = layer_norm;
    c->epsilon = layer_norm ? 1e-5 : 1.19209290e-7;
    segment_connect(c);
    for (int k = 0; k < width; k++) {
        c->weight[k] = (float)(1 + 0.3 * NORMAL);
        c->shift[k] = (float)(0.3 * NORMAL);
        for (int g = 0; g < 2; g++) c->gate[g][k] = (float)(NORMAL / sqrt(width));
        for (int i = 0; i < SEGMENT_ATOMS; i++)
            for (int g = 0; g < 2; g++) c->sums_bar[i][g][k] = (float)(sizes->adjoint * NORMAL);
        for (int i = 0; i < SEGMENT_EDGES; i++) {
            c->y[i][k] = (float)(sizes->offset + sizes->y * NORMAL);
            c->e[i][k] = (float)(sizes->e * NORMAL);
            c->e_bar[i][k] = (float)(sizes->adjoint * NORMAL);
        }
    }
    for (int i = 0; i < SEGMENT_EDGES; i++) c->envelope[i] = i == 4 ? 0.0f : (float)base_random_uniform(seed, 8, (uint64_t)i);
    for (int g = 0; g < 2; g++) c->gate_bias[g] = (float)NORMAL;
#undef NORMAL
    for (int i = 0; i < SEGMENT_EDGES; i++) {
        double y[SEGMENT_WIDTH], logit[2] = {c->gate_bias[0], c->gate_bias[1]};
        for (int k = 0; k < width; k++) y[k] = c->y[i][k];
        c->inverse[i] = 1 / segment_norm(c, y, c->z[i], c->v[i]);
        for (int g = 0; g < 2; g++) {
            for (int k = 0; k < width; k++) logit[g] += (double)c->gate[g][k] * c->e[i][k];
            c->sigma[i][g] = segment_sigmoid(logit[g]);
        }
        for (int k = 0; k < width; k++) {
            c->sums[c->sender[i]][1][k] += c->sigma[i][0] * c->envelope[i] * c->v[i][k];
            c->sums[c->receiver[i]][0][k] += c->sigma[i][1] * c->envelope[i] * c->v[i][k];
        }
    }
    segment_differentiate(c);
    return c;
}

/* Softmax over the edges that an atom sends, or over those that end in it, of x [SEGMENT_EDGES][columns] with stride SOFTMAX_COLUMNS, in float64;
 * derivatives of L = Σ share · share_bar by central differences. */
enum { SOFTMAX_COLUMNS = 32 };
typedef struct softmax_case {
    const char *name;
    int columns;
    double adjoint;
    const int32_t *first, *row; /* row NULL: k */
    float x[SEGMENT_EDGES][SOFTMAX_COLUMNS], share_bar[SEGMENT_EDGES][SOFTMAX_COLUMNS];
    double share[SEGMENT_EDGES][SOFTMAX_COLUMNS], x_grad[SEGMENT_EDGES][SOFTMAX_COLUMNS];
} softmax_case;

typedef struct softmax_sizes {
    const char *name;
    double x, offset, adjoint; /* x is offset + x · normal */
} softmax_sizes;
static const softmax_sizes softmax_all_sizes[] = {
    {"random", 1, 0, 1},           {"sharp", 40, 0, 1},    {"one in e^1000", 1000, 0, 1},
    {"offset", 1, 1000, 1},        {"all equal", 0, 7, 1}, {"small adjoints", 1, 0, 1e-5},
    {"large adjoints", 1, 0, 1e3},
};
enum { SOFTMAX_SIZES = sizeof softmax_all_sizes / sizeof *softmax_all_sizes };

/* Shares of column c of segment i, of x that is changed by `step` in its row k; L of these is returned. */
static double softmax_segment(const softmax_case *s, int i, int c, int changed, double step, double *share)
{
    double largest = -INFINITY, sum = 0, loss = 0;
    for (int k = s->first[i]; k < s->first[i + 1]; k++) {
        share[k] = (double)s->x[s->row ? s->row[k] : k][c] + (k == changed ? step : 0);
        largest = fmax(largest, share[k]);
    }
    for (int k = s->first[i]; k < s->first[i + 1]; k++) sum += share[k] = exp(share[k] - largest);
    for (int k = s->first[i]; k < s->first[i + 1]; k++)
        loss += (share[k] /= sum) * (double)s->share_bar[s->row ? s->row[k] : k][c];
    return loss;
}

SUPPORT softmax_case softmax_case_new(const segment_case *edges, const softmax_sizes *sizes, int incoming, int columns,
                                      uint64_t seed)
{
    softmax_case s = {.name = sizes->name,
                      .columns = columns,
                      .adjoint = sizes->adjoint,
                      .first = incoming ? edges->first_incoming : edges->first,
                      .row = incoming ? edges->incoming : NULL};
    double share[SEGMENT_EDGES];
    for (int e = 0; e < SEGMENT_EDGES; e++)
        for (int c = 0; c < columns; c++) {
            const uint64_t at = (uint64_t)(e * SOFTMAX_COLUMNS + c);
            s.x[e][c] = (float)(sizes->offset + sizes->x * base_random_normal(seed, 5, at));
            s.share_bar[e][c] = (float)(sizes->adjoint * base_random_normal(seed, 6, at));
        }
    for (int i = 0; i < SEGMENT_ATOMS; i++)
        for (int c = 0; c < columns; c++) {
            for (int k = s.first[i]; k < s.first[i + 1]; k++) {
                const double step = 1e-4, up = softmax_segment(&s, i, c, k, step, share),
                             down = softmax_segment(&s, i, c, k, -step, share);
                s.x_grad[s.row ? s.row[k] : k][c] = (up - down) / (2 * step);
            }
            softmax_segment(&s, i, c, -1, 0, share);
            for (int k = s.first[i]; k < s.first[i + 1]; k++) s.share[s.row ? s.row[k] : k][c] = share[k];
        }
    return s;
}

/* Worst difference of `got` from `expected` [n][width], of the largest of the n rows (or 1e-30); strides are given. Not finite: INFINITY. */
SUPPORT double segment_error(int n, int width, const double *expected, int stride, const float *got, int got_stride)
{
    double worst = 0, size = 1e-30;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < width; k++) {
            const double truth = expected[(size_t)i * (size_t)stride + (size_t)k],
                         d = fabs(got[(size_t)i * (size_t)got_stride + (size_t)k] - truth);
            size = fmax(size, fabs(truth));
            worst = isfinite(d) ? fmax(worst, d) : INFINITY;
        }
    return worst / size;
}

/* Worst error of shares, or of adjoints relative to the size of those of the shares: where shares are 0 or 1, derivatives are close to 0. */
SUPPORT double softmax_error(const softmax_case *s, const double (*expected)[SOFTMAX_COLUMNS], const float *got, int stride,
                             double size)
{
    double worst = 0;
    for (int e = 0; e < SEGMENT_EDGES; e++)
        for (int c = 0; c < s->columns; c++) {
            const double d = fabs(got[e * stride + c] - expected[e][c]);
            worst = isfinite(d) ? fmax(worst, d) : INFINITY;
        }
    return worst / size;
}

#endif
