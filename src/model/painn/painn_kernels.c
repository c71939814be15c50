// SPDX-License-Identifier: MIT
// painn_kernels.c: PaiNN's own pieces of the float32 step, compiled once per instruction set.
//
//   message           q_i  += Σ W^q x^q_j            μ_i += Σ (W^R x^R_j) u + (W^μ x^μ_j) μ_j
//   message_backward  with P = Σ_c u_c μ̄_c, Q = Σ_c μ̄_c μ_jc of each pair (i, j) that ends in j:
//                     x̄_j += [W^q q̄_i | W^R P | W^μ Q]      μ̄_j += (W^μ x^μ_j) μ̄_i
//                     dE/dd += Σ_f W' · [x^q q̄_i | x^R P | x^μ Q]    ū_c += Σ_f W^R x^R_j μ̄_ic
// W and W' of a pair are six rows of the filter table times six weights each. Every atom is written by one thread and
// sums run in list order, so results do not depend on the number of threads.
#include "model/painn/painn_kernels.h"

#include <math.h>

#include "nn/simd.h"

extern const painn_kernels SIMD_SYMBOL(painn_kernels);

enum { ROW = 3 * NN_PAD }; // floats of a row of a table slice

// Pairs in one pass of geometry. Explicit vectors: whichever lane a pair falls into, its bits are the same.
enum { LANES = 8 };
typedef double lanes __attribute__((vector_size(LANES * 8)));
typedef int64_t lanes_int __attribute__((vector_size(LANES * 8)));

// The six spline weights of LANES pairs, for W and for dW/dd.
SIMD_INLINE void spline_weights(lanes t, double per_length, lanes w[6], lanes dw[6])
{
    const double scale = per_length / 120;
    const lanes t2 = t * t, t3 = t2 * t, t4 = t2 * t2, t5 = t4 * t, s = 1 - t, s4 = s * s * s * s;
    w[0] = s4 * s / 120;
    w[1] = (26 - 50 * t + 20 * t2 + 20 * t3 - 20 * t4 + 5 * t5) / 120;
    w[2] = (66 - 60 * t2 + 30 * t4 - 10 * t5) / 120;
    w[3] = (26 + 50 * t + 20 * t2 - 20 * t3 - 20 * t4 + 10 * t5) / 120;
    w[4] = (1 + 5 * t + 10 * t2 + 10 * t3 + 5 * t4 - 5 * t5) / 120;
    w[5] = t5 / 120;
    dw[0] = -5 * s4 * scale;
    dw[1] = (-50 + 40 * t + 60 * t2 - 80 * t3 + 25 * t4) * scale;
    dw[2] = (-120 * t + 120 * t3 - 50 * t4) * scale;
    dw[3] = (50 + 40 * t - 60 * t2 - 80 * t3 + 50 * t4) * scale;
    dw[4] = (5 + 20 * t + 30 * t2 + 20 * t3 - 25 * t4) * scale;
    dw[5] = 5 * t4 * scale;
}

// Directions and lengths of the LANES pairs from p on (beyond the end: the last one again). Returns how many there are.
SIMD_INLINE int load_pairs(int p, int end, const double *vectors, lanes u[3], lanes *d)
{
    const int n = end - p < LANES ? end - p : LANES;
    for (int k = 0; k < LANES; k++)
        for (int c = 0; c < 3; c++) u[c][k] = vectors[3 * ((size_t)p + (size_t)(k < n ? k : n - 1)) + (size_t)c];
    const lanes squared = u[0] * u[0] + u[1] * u[1] + u[2] * u[2];
    for (int k = 0; k < LANES; k++) (*d)[k] = sqrt(squared[k]);
    const lanes inverse = 1.0 / *d;
    for (int c = 0; c < 3; c++) u[c] *= inverse;
    return n;
}

static void geometry(int begin, int end, const double *vectors, int n_intervals, double table_end, painn_pair *pairs)
{
    const double per_length = n_intervals / table_end;
    for (int p = begin; p < end; p += LANES) {
        lanes u[3], d, w[6], dw[6];
        const int n = load_pairs(p, end, vectors, u, &d);
        const lanes place = d * per_length;
        const lanes_int inside = place < (lanes){0} + n_intervals;
        lanes knot = {0};
        for (int k = 0; k < LANES; k++) knot[k] = inside[k] ? (double)(int)place[k] : n_intervals - 1;
        spline_weights(place - knot, per_length, w, dw);
        for (int k = 0; k < n; k++) {
            painn_pair *out = &pairs[p + k];
            out->knot = (int)knot[k];
            for (int c = 0; c < 3; c++) out->u[c] = (float)u[c][k];
            for (int m = 0; m < 6; m++) {
                out->w[m] = inside[k] ? (float)w[m][k] : 0.0f;
                out->dw[m] = inside[k] ? (float)dw[m][k] : 0.0f;
            }
        }
    }
}

SIMD_INLINE void message_slice(const painn_edges *e, const int with_mu, const float *table, int f)
{
    size_t F = (size_t)e->F;
    for (int i = e->begin; i < e->end; i++) {
        simd dq = simd_set(0), dmu[3] = {simd_set(0), simd_set(0), simd_set(0)};
        for (int p = e->first[i]; p < e->first[i + 1]; p++) {
            const painn_pair *pair = &e->pairs[p];
            size_t j = (size_t)e->other[p], x_row = with_mu ? j : (size_t)e->x_row[j];
            const float *T = table + (size_t)pair->knot * ROW, *x = e->x + x_row * 3 * F + f;
            simd Wq = simd_set(0), WR = simd_set(0), Wm = simd_set(0);
            for (int k = 0; k < 6; k++) {
                simd w = simd_set(pair->w[k]);
                Wq += w * simd_load(T + k * ROW);
                WR += w * simd_load(T + k * ROW + NN_PAD);
                if (with_mu) Wm += w * simd_load(T + k * ROW + 2 * NN_PAD);
            }
            dq += Wq * simd_load(x);
            simd along_u = WR * simd_load(x + F);
            for (int c = 0; c < 3; c++) dmu[c] += along_u * pair->u[c];
            if (with_mu) {
                const float *mu = e->mu + j * 3 * F + f;
                simd along_mu = Wm * simd_load(x + 2 * F);
                for (int c = 0; c < 3; c++) dmu[c] += along_mu * simd_load(mu + (size_t)c * F);
            }
        }
        float *q = e->q + (size_t)i * F + f;
        simd_store(q, simd_load(q) + dq);
        for (int c = 0; c < 3; c++) {
            size_t at = ((size_t)i * 3 + (size_t)c) * F + (size_t)f;
            if (with_mu) dmu[c] += simd_load(e->mu + at);
            simd_store(e->mu_out + at, dmu[c]);
        }
    }
}

static void message(const painn_edges *e)
{
    for (int f = 0; f < e->F; f += SIMD_WIDTH) {
        const float *table = e->table + (size_t)(f / NN_PAD) * e->slice + f % NN_PAD;
        if (e->mu)
            message_slice(e, 1, table, f);
        else
            message_slice(e, 0, table, f);
    }
}

SIMD_INLINE void message_backward_slice(const painn_edges *e, const int with_mu, const float *table, int f)
{
    size_t F = (size_t)e->F;
    const int lane = f % NN_PAD;
    for (int j = e->begin; j < e->end; j++) {
        size_t x_row = with_mu ? (size_t)j : (size_t)e->x_row[j];
        const float *x = e->x + x_row * 3 * F + f, *mu = with_mu ? e->mu + (size_t)j * 3 * F + f : NULL;
        // A row stands for its reverse, whose direction is the opposite: P changes its sign.
        simd xq = simd_load(x), xR = simd_load(x + F), xR_P = -xR, xm = simd_set(0), mu_j[3], mu_j_bar[3];
        simd xq_bar = simd_set(0), xR_bar = simd_set(0), xm_bar = simd_set(0);
        if (with_mu) {
            xm = simd_load(x + 2 * F);
            for (int c = 0; c < 3; c++) {
                mu_j[c] = simd_load(mu + (size_t)c * F);
                mu_j_bar[c] = simd_load(e->mu_bar + ((size_t)j * 3 + (size_t)c) * F + f);
            }
        }
        const int first_new = f < NN_PAD ? e->first_new[j] : e->last[j];
        for (int k = e->first[j]; k < e->last[j]; k++) {
            size_t i = (size_t)e->other[k];
            const painn_pair *pair = &e->pairs[k];
            const float *T = table + (size_t)pair->knot * ROW;
            simd Wq = simd_set(0), WR = simd_set(0), Wm = simd_set(0), dq = simd_set(0), dR = simd_set(0), dm = simd_set(0);
            for (int r = 0; r < 6; r++) {
                simd w = simd_set(pair->w[r]), dw = simd_set(pair->dw[r]);
                simd Tq = simd_load(T + r * ROW), TR = simd_load(T + r * ROW + NN_PAD);
                if (with_mu) Wq += w * Tq;
                WR += w * TR;
                dq += dw * Tq;
                dR += dw * TR;
                if (with_mu) {
                    simd Tm = simd_load(T + r * ROW + 2 * NN_PAD);
                    Wm += w * Tm;
                    dm += dw * Tm;
                }
            }
            const float *bar = e->mu_bar + i * 3 * F + f;
            simd q_bar = simd_load(e->q_bar + i * F + f), mu_bar[3], P = simd_set(0), Q = simd_set(0);
            for (int c = 0; c < 3; c++) {
                mu_bar[c] = simd_load(bar + (size_t)c * F);
                P += mu_bar[c] * pair->u[c];
                if (with_mu) Q += mu_bar[c] * mu_j[c];
            }
            simd sum[4];
            sum[0] = dq * (xq * q_bar) + dR * (xR_P * P);
            simd along_u = WR * xR;
            for (int c = 0; c < 3; c++) sum[1 + c] = along_u * mu_bar[c];
            if (with_mu) {
                xq_bar += Wq * q_bar;
                xR_bar += WR * P;
                xm_bar += Wm * Q;
                sum[0] += dm * (xm * Q);
                simd along_mu = Wm * xm;
                for (int c = 0; c < 3; c++) mu_j_bar[c] += along_mu * mu_bar[c];
            }
            float *out = e->pair_bar + (size_t)k * NN_PAD + lane;
            simd groups = simd_sum_groups(sum);
            if (k < first_new) groups += simd_load(out);
            simd_store(out, groups);
        }
        if (with_mu) {
            float *x_bar = e->x_bar + (size_t)(j - e->begin) * 3 * F + f;
            simd_store(x_bar, xq_bar);
            simd_store(x_bar + F, -xR_bar);
            simd_store(x_bar + 2 * F, xm_bar);
            for (int c = 0; c < 3; c++) simd_store(e->mu_bar_out + ((size_t)j * 3 + (size_t)c) * F + f, mu_j_bar[c]);
        }
    }
}

static void message_backward(const painn_edges *e)
{
    for (int f = 0; f < e->F; f += SIMD_WIDTH) {
        const float *table = e->table + (size_t)(f / NN_PAD) * e->slice + f % NN_PAD;
        if (e->mu)
            message_backward_slice(e, 1, table, f);
        else
            message_backward_slice(e, 0, table, f);
    }
}

SIMD_INLINE simd root(simd x)
{
    simd y = x;
    for (int k = 0; k < SIMD_WIDTH; k++) y[k] = __builtin_sqrtf(x[k]);
    return y;
}

static void context(int n, int F, float epsilon, const float *q, const float *VB, float *out)
{
    for (int i = 0; i < n; i++, q += F, VB += 6 * F, out += 2 * F)
        for (int f = 0; f < F; f += SIMD_WIDTH) {
            simd VV = simd_set(epsilon);
            for (int c = 0; c < 3; c++) {
                simd V = simd_load(VB + c * 2 * F + f);
                VV += V * V;
            }
            simd_store(out + f, simd_load(q + f));
            simd_store(out + F + f, root(VV));
        }
}

SIMD_INLINE simd dot_VB(const float *VB, int F, int f)
{
    simd t = simd_set(0);
    for (int c = 0; c < 3; c++) t += simd_load(VB + c * 2 * F + f) * simd_load(VB + c * 2 * F + F + f);
    return t;
}

static void mix(int n, int F, int last, const float *y, const float *VB, const float *mu1, float *q, float *mu)
{
    int width = last ? 2 * F : 3 * F, gate_t = last ? F : 2 * F;
    for (int i = 0; i < n; i++, y += width, VB += 6 * F, q += F) {
        for (int f = 0; f < F; f += SIMD_WIDTH)
            simd_store(q + f, simd_load(q + f) + simd_load(y + f) + simd_load(y + gate_t + f) * dot_VB(VB, F, f));
        if (last) continue;
        for (int c = 0; c < 3; c++, mu1 += F, mu += F)
            for (int f = 0; f < F; f += SIMD_WIDTH)
                simd_store(mu + f, simd_load(mu1 + f) + simd_load(y + F + f) * simd_load(VB + c * 2 * F + F + f));
    }
}

static void mix_backward(int n, int F, int last, const float *VB, const float *q_bar, const float *mu_bar, float *y_bar)
{
    int width = last ? 2 * F : 3 * F, gate_t = last ? F : 2 * F;
    for (int i = 0; i < n; i++, VB += 6 * F, q_bar += F, mu_bar += 3 * F, y_bar += width)
        for (int f = 0; f < F; f += SIMD_WIDTH) {
            simd q = simd_load(q_bar + f);
            simd_store(y_bar + f, q);
            simd_store(y_bar + gate_t + f, q * dot_VB(VB, F, f));
            if (last) continue;
            simd gate = simd_set(0);
            for (int c = 0; c < 3; c++) gate += simd_load(mu_bar + c * F + f) * simd_load(VB + c * 2 * F + F + f);
            simd_store(y_bar + F + f, gate);
        }
}

static void context_backward(int n, int F, int last, float epsilon, const float *VB, const float *y, const float *context_bar,
                             const float *mu_bar, float *q_bar, float *VB_bar)
{
    int width = last ? 2 * F : 3 * F, gate_t = last ? F : 2 * F;
    for (int i = 0; i < n; i++, VB += 6 * F, y += width, context_bar += 2 * F, mu_bar += 3 * F, q_bar += F, VB_bar += 6 * F)
        for (int f = 0; f < F; f += SIMD_WIDTH) {
            simd V[3], VV = simd_set(epsilon), q = simd_load(q_bar + f);
            for (int c = 0; c < 3; c++) {
                V[c] = simd_load(VB + c * 2 * F + f);
                VV += V[c] * V[c];
            }
            simd t_bar = q * simd_load(y + gate_t + f), ratio = simd_load(context_bar + F + f) / root(VV);
            for (int c = 0; c < 3; c++) {
                simd B_bar = t_bar * V[c];
                if (!last) B_bar += simd_load(mu_bar + c * F + f) * simd_load(y + F + f);
                simd_store(VB_bar + c * 2 * F + f, t_bar * simd_load(VB + c * 2 * F + F + f) + ratio * V[c]);
                simd_store(VB_bar + c * 2 * F + F + f, B_bar);
            }
            simd_store(q_bar + f, q + simd_load(context_bar + f));
        }
}

static void multiply(size_t n, float *a, const float *b)
{
    for (size_t k = 0; k < n; k += SIMD_WIDTH) simd_store(a + k, simd_load(a + k) * simd_load(b + k));
}

static void gradient(int begin, int end, const double *vectors, const int32_t *row, const float *pair_bar, double *pair_gradient)
{
    for (int p = begin; p < end; p++) {
        const double *r = vectors + 3 * (size_t)p;
        const float *part = pair_bar + (row ? (size_t)row[p] : (size_t)p) * NN_PAD;
        double sum[4], inverse = 1.0 / sqrt(r[0] * r[0] + r[1] * r[1] + r[2] * r[2]), u[3];
        for (int c = 0; c < 4; c++) sum[c] = (double)((part[c] + part[4 + c]) + (part[8 + c] + part[12 + c]));
        for (int c = 0; c < 3; c++) u[c] = r[c] * inverse;
        double along = sum[0] - (u[0] * sum[1] + u[1] * sum[2] + u[2] * sum[3]) * inverse;
        for (int c = 0; c < 3; c++) pair_gradient[3 * (size_t)p + (size_t)c] = along * u[c] + sum[1 + c] * inverse;
    }
}

const painn_kernels SIMD_SYMBOL(painn_kernels) = {geometry,     message,          message_backward, context, mix,
                                                  mix_backward, context_backward, multiply,         gradient};
