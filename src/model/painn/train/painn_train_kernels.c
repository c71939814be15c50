// SPDX-License-Identifier: MIT
// painn_train_kernels.c: PaiNN's own pieces of a float32 training step, compiled once per instruction set. The equations:
// src/model/painn/README.md, "Training". Sums over edges run in the order of an atom's row, and each atom's sums stay in registers.
//
// Reverse sums gather: atom j reads the edges of its own row, whose reverses are the edges (i, j) that end in it; those have the
// same filter and the opposite direction.
#include "painn_train_kernels.h"

#include "nn/simd.h"

extern const painn_train_kernels SIMD_SYMBOL(painn_train_kernels);

enum { ROW = 3 * NN_PAD }; // floats of a filter's slice

SIMD_INLINE void load3(const float *p, size_t stride, simd out[3])
{
    for (size_t c = 0; c < 3; c++) out[c] = simd_load(p + c * stride);
}

SIMD_INLINE void store3(float *p, size_t stride, const simd x[3])
{
    for (size_t c = 0; c < 3; c++) simd_store(p + c * stride, x[c]);
}

SIMD_INLINE void zero3(simd x[3])
{
    for (int c = 0; c < 3; c++) x[c] = simd_set(0);
}

SIMD_INLINE void message_lanes(const painn_train_edges *e, const int with_mu, int lane)
{
    size_t F = (size_t)e->F, f = (size_t)(e->slice + lane);
    for (size_t i = 0; i < (size_t)e->n_atoms; i++) {
        simd q = simd_load(e->q + i * F + f), sum[3];
        zero3(sum);
        if (with_mu) load3(e->mu + i * 3 * F + f, F, sum);
        for (int k = e->first[i]; k < e->first[i + 1]; k++) {
            const painn_train_edge *edge = &e->edges[k];
            size_t j = (size_t)edge->other, x_row = with_mu ? j : (size_t)e->x_row[j];
            const float *W = e->W + (size_t)edge->pair * ROW + lane, *u = e->u + 4 * (size_t)edge->pair;
            const float *x = e->x + x_row * 3 * F + f;
            q += simd_load(W) * simd_load(x);
            simd YR = simd_load(W + NN_PAD) * simd_load(x + F) * edge->sign;
            for (int c = 0; c < 3; c++) sum[c] += YR * u[c];
            if (with_mu) {
                simd Ym = simd_load(W + 2 * NN_PAD) * simd_load(x + 2 * F), mu[3];
                load3(e->mu + j * 3 * F + f, F, mu);
                for (int c = 0; c < 3; c++) sum[c] += Ym * mu[c];
            }
        }
        simd_store(e->q_out + i * F + f, q);
        store3(e->mu_out + i * 3 * F + f, F, sum);
    }
}

SIMD_INLINE void message_backward_lanes(const painn_train_edges *e, const int with_mu, int lane)
{
    size_t F = (size_t)e->F, f = (size_t)(e->slice + lane);
    int start = e->start && e->slice == 0;
    for (size_t j = 0; j < (size_t)e->n_atoms; j++) {
        simd x[3], mu[3], x_bar[3], mu_bar_out[3];
        load3(e->x + (with_mu ? j : (size_t)e->x_row[j]) * 3 * F + f, F, x);
        zero3(x_bar);
        if (with_mu) {
            load3(e->mu + j * 3 * F + f, F, mu);
            load3(e->mu_bar + j * 3 * F + f, F, mu_bar_out);
        }
        for (int k = e->first[j]; k < e->first[j + 1]; k++) {
            const painn_train_edge *edge = &e->edges[k];
            size_t i = (size_t)edge->other;
            const float *W = e->W + (size_t)edge->pair * ROW + lane, *dW = e->dW + (size_t)edge->pair * ROW + lane;
            const float *u = e->u + 4 * (size_t)edge->pair;
            simd q_bar = simd_load(e->q_bar + i * F + f), mu_bar[3], P = simd_set(0), Q = simd_set(0);
            load3(e->mu_bar + i * 3 * F + f, F, mu_bar);
            for (int c = 0; c < 3; c++) P += mu_bar[c] * u[c];
            P *= -edge->sign;
            simd WR = simd_load(W + NN_PAD);
            simd along_d = simd_load(dW) * (x[0] * q_bar) + simd_load(dW + NN_PAD) * (x[1] * P);
            simd YR = WR * x[1]; // ū of the edge (i, j) is against its own row's edge; along the pair's u the signs cancel
            if (with_mu) {
                simd Wm = simd_load(W + 2 * NN_PAD), Ym = Wm * x[2];
                for (int c = 0; c < 3; c++) {
                    Q += mu_bar[c] * mu[c];
                    mu_bar_out[c] += Ym * mu_bar[c];
                }
                x_bar[0] += simd_load(W) * q_bar;
                x_bar[1] += WR * P;
                x_bar[2] += Wm * Q;
                along_d += simd_load(dW + 2 * NN_PAD) * (x[2] * Q);
            }
            float *out = e->pair_bar + (size_t)edge->pair * NN_PAD + lane;
            simd sums[4] = {along_d};
            YR *= -edge->sign;
            for (int c = 0; c < 3; c++) sums[1 + c] = YR * mu_bar[c];
            simd groups = simd_sum_groups(sums);
            if (!start || edge->sign < 0) groups += simd_load(out);
            simd_store(out, groups);
        }
        if (with_mu) {
            store3(e->x_bar + j * 3 * F + f, F, x_bar);
            store3(e->mu_bar_out + j * 3 * F + f, F, mu_bar_out);
        }
    }
}

SIMD_INLINE void message_tangent_lanes(const painn_train_edges *e, const int with_mu, int lane)
{
    size_t F = (size_t)e->F, f = (size_t)(e->slice + lane);
    for (size_t i = 0; i < (size_t)e->n_atoms; i++) {
        simd q = simd_set(0), sum[3];
        zero3(sum);
        if (with_mu) {
            q = simd_load(e->dq + i * F + f);
            load3(e->dmu + i * 3 * F + f, F, sum);
        }
        for (int k = e->first[i]; k < e->first[i + 1]; k++) {
            const painn_train_edge *edge = &e->edges[k];
            size_t j = (size_t)edge->other, x_row = with_mu ? j : (size_t)e->x_row[j];
            const float *W = e->W + (size_t)edge->pair * ROW + lane, *slope = e->dW + (size_t)edge->pair * ROW + lane;
            const float *u = e->u + 4 * (size_t)edge->pair, *du = e->du + 4 * (size_t)edge->pair;
            simd x[3], dx[3], WR = simd_load(W + NN_PAD), dd = simd_set(du[3]);
            load3(e->x + x_row * 3 * F + f, F, x);
            simd YR = WR * x[1], dYR = dd * simd_load(slope + NN_PAD) * x[1];
            q += dd * simd_load(slope) * x[0];
            if (with_mu) {
                load3(e->dx + j * 3 * F + f, F, dx);
                q += simd_load(W) * dx[0];
                dYR += WR * dx[1];
            }
            YR *= edge->sign;
            dYR *= edge->sign;
            for (int c = 0; c < 3; c++) sum[c] += dYR * u[c] + YR * du[c];
            if (with_mu) {
                simd mu[3], dmu[3], Wm = simd_load(W + 2 * NN_PAD);
                simd Ym = Wm * x[2], dYm = dd * simd_load(slope + 2 * NN_PAD) * x[2] + Wm * dx[2];
                load3(e->mu + j * 3 * F + f, F, mu);
                load3(e->dmu + j * 3 * F + f, F, dmu);
                for (int c = 0; c < 3; c++) sum[c] += dYm * mu[c] + Ym * dmu[c];
            }
        }
        simd_store(e->q_out + i * F + f, q);
        store3(e->mu_out + i * 3 * F + f, F, sum);
    }
}

SIMD_INLINE void message_dual_lanes(const painn_train_edges *e, const int with_mu, int lane)
{
    size_t F = (size_t)e->F, f = (size_t)(e->slice + lane);
    for (size_t j = 0; j < (size_t)e->n_atoms; j++) {
        simd x[3], dx[3], mu[3], dmu[3], x_bar[3], mu_bar_out[3];
        load3(e->x + (with_mu ? j : (size_t)e->x_row[j]) * 3 * F + f, F, x);
        zero3(x_bar);
        if (with_mu) {
            load3(e->dx + j * 3 * F + f, F, dx);
            load3(e->mu + j * 3 * F + f, F, mu);
            load3(e->dmu + j * 3 * F + f, F, dmu);
            load3(e->dmu_bar + j * 3 * F + f, F, mu_bar_out);
        }
        for (int k = e->first[j]; k < e->first[j + 1]; k++) {
            const painn_train_edge *edge = &e->edges[k];
            size_t i = (size_t)edge->other, at = (size_t)edge->pair * ROW + (size_t)lane;
            const float *u = e->u + 4 * (size_t)edge->pair, *du = e->du + 4 * (size_t)edge->pair;
            simd D[3], dD[3], mu_bar[3], dmu_bar[3], W[3], dW[3], dd = simd_set(du[3]);
            load3(e->mu_bar + i * 3 * F + f, F, mu_bar);
            load3(e->dmu_bar + i * 3 * F + f, F, dmu_bar);
            D[0] = simd_load(e->q_bar + i * F + f);
            dD[0] = simd_load(e->dq_bar + i * F + f);
            D[1] = dD[1] = D[2] = dD[2] = simd_set(0);
            for (int c = 0; c < 3; c++) {
                D[1] += mu_bar[c] * u[c];
                dD[1] += mu_bar[c] * du[c] + dmu_bar[c] * u[c];
            }
            D[1] *= -edge->sign;
            dD[1] *= -edge->sign;
            load3(e->W + at, NN_PAD, W);
            load3(e->dW + at, NN_PAD, dW);
            for (int b = 0; b < 3; b++) dW[b] *= dd;
            if (with_mu) {
                simd Ym = W[2] * x[2], dYm = dW[2] * x[2] + W[2] * dx[2];
                for (int c = 0; c < 3; c++) {
                    D[2] += mu_bar[c] * mu[c];
                    dD[2] += dmu_bar[c] * mu[c] + mu_bar[c] * dmu[c];
                    mu_bar_out[c] += dYm * mu_bar[c] + Ym * dmu_bar[c];
                }
            }
            for (int b = 0; b < (with_mu ? 3 : 2); b++) {
                x_bar[b] += dW[b] * D[b] + W[b] * dD[b];
                simd bar = x[b] * dD[b], moved = dd * (x[b] * D[b]);
                if (with_mu) bar += dx[b] * D[b];
                if (edge->sign < 0) {
                    bar += simd_load(e->filter_bar + at + b * NN_PAD);
                    moved += simd_load(e->filter_moved + at + b * NN_PAD);
                }
                simd_store(e->filter_bar + at + b * NN_PAD, bar);
                simd_store(e->filter_moved + at + b * NN_PAD, moved);
            }
        }
        store3(e->x_bar + j * 3 * F + f, F, x_bar);
        if (with_mu) store3(e->mu_bar_out + j * 3 * F + f, F, mu_bar_out);
    }
}

#define SLICE_KERNEL(name)                                                                                                       \
    static void name(const painn_train_edges *e)                                                                                 \
    {                                                                                                                            \
        for (int lane = 0; lane < NN_PAD; lane += SIMD_WIDTH)                                                                    \
            if (e->x_row)                                                                                                        \
                name##_lanes(e, 0, lane);                                                                                        \
            else                                                                                                                 \
                name##_lanes(e, 1, lane);                                                                                        \
    }
SLICE_KERNEL(message)
SLICE_KERNEL(message_backward)
SLICE_KERNEL(message_tangent)
SLICE_KERNEL(message_dual)

// ---- update ---------------------------------------------------------------------------------------------------------------

static void context_tangent(int n, int F, const float *dq, const float *VB, const float *dVB, const float *context,
                            float *dcontext)
{
    for (int i = 0; i < n; i++, dq += F, VB += 6 * F, dVB += 6 * F, context += 2 * F, dcontext += 2 * F)
        for (int f = 0; f < F; f += SIMD_WIDTH) {
            simd VdV = simd_set(0);
            for (int c = 0; c < 3; c++) VdV += simd_load(VB + c * 2 * F + f) * simd_load(dVB + c * 2 * F + f);
            simd_store(dcontext + f, simd_load(dq + f));
            simd_store(dcontext + F + f, VdV / simd_load(context + F + f));
        }
}

// t = Σ V B and its tangent.
SIMD_INLINE void dot_VB(const float *VB, const float *dVB, int F, int f, simd *t, simd *dt)
{
    *t = *dt = simd_set(0);
    for (int c = 0; c < 3; c++) {
        simd V = simd_load(VB + c * 2 * F + f), B = simd_load(VB + c * 2 * F + F + f);
        *t += V * B;
        *dt += simd_load(dVB + c * 2 * F + f) * B + V * simd_load(dVB + c * 2 * F + F + f);
    }
}

static void mix_tangent(int n, int F, int last, const float *y, const float *dy, const float *VB, const float *dVB,
                        const float *dmu1, float *dq, float *dmu)
{
    int width = last ? 2 * F : 3 * F, gate_t = last ? F : 2 * F;
    for (int i = 0; i < n; i++, y += width, dy += width, VB += 6 * F, dVB += 6 * F, dq += F) {
        for (int f = 0; f < F; f += SIMD_WIDTH) {
            simd t, dt;
            dot_VB(VB, dVB, F, f, &t, &dt);
            simd_store(dq + f,
                       simd_load(dq + f) + simd_load(dy + f) + simd_load(dy + gate_t + f) * t + simd_load(y + gate_t + f) * dt);
        }
        if (last) continue;
        for (int c = 0; c < 3; c++, dmu1 += F, dmu += F)
            for (int f = 0; f < F; f += SIMD_WIDTH)
                simd_store(dmu + f, simd_load(dmu1 + f) + simd_load(dy + F + f) * simd_load(VB + c * 2 * F + F + f) +
                                        simd_load(y + F + f) * simd_load(dVB + c * 2 * F + F + f));
    }
}

static void mix_dual(int n, int F, int last, const float *VB, const float *dVB, const float *q_bar, const float *dq_bar,
                     const float *mu_bar, const float *dmu_bar, float *dy_bar)
{
    int width = last ? 2 * F : 3 * F, gate_t = last ? F : 2 * F;
    for (int i = 0; i < n; i++, VB += 6 * F, dVB += 6 * F, q_bar += F, dq_bar += F, dy_bar += width) {
        for (int f = 0; f < F; f += SIMD_WIDTH) {
            simd t, dt, q = simd_load(q_bar + f), dq = simd_load(dq_bar + f);
            dot_VB(VB, dVB, F, f, &t, &dt);
            simd_store(dy_bar + f, dq);
            simd_store(dy_bar + gate_t + f, dq * t + q * dt);
            if (last) continue;
            simd gate = simd_set(0);
            for (int c = 0; c < 3; c++)
                gate += simd_load(dmu_bar + c * F + f) * simd_load(VB + c * 2 * F + F + f) +
                        simd_load(mu_bar + c * F + f) * simd_load(dVB + c * 2 * F + F + f);
            simd_store(dy_bar + F + f, gate);
        }
        if (last) continue;
        mu_bar += 3 * F;
        dmu_bar += 3 * F;
    }
}

static void context_dual(int n, int F, int last, const float *VB, const float *dVB, const float *y, const float *dy,
                         const float *context, const float *dcontext, const float *context_bar, const float *dcontext_bar,
                         const float *q_bar, const float *mu_bar, const float *dmu_bar, float *dq_bar, float *dVB_bar)
{
    int width = last ? 2 * F : 3 * F, gate_t = last ? F : 2 * F;
    for (int i = 0; i < n; i++) {
        for (int f = 0; f < F; f += SIMD_WIDTH) {
            simd q = simd_load(q_bar + f), dq = simd_load(dq_bar + f), gate = simd_load(y + gate_t + f);
            simd t_bar = q * gate, dt_bar = dq * gate + q * simd_load(dy + gate_t + f), norm = simd_load(context + F + f);
            simd ratio = simd_load(context_bar + F + f) / norm;
            simd dratio = (simd_load(dcontext_bar + F + f) - ratio * simd_load(dcontext + F + f)) / norm;
            for (int c = 0; c < 3; c++) {
                simd V = simd_load(VB + c * 2 * F + f), B = simd_load(VB + c * 2 * F + F + f);
                simd dV = simd_load(dVB + c * 2 * F + f), dB = simd_load(dVB + c * 2 * F + F + f);
                simd B_bar = dt_bar * V + t_bar * dV;
                if (!last)
                    B_bar += simd_load(dmu_bar + c * F + f) * simd_load(y + F + f) +
                             simd_load(mu_bar + c * F + f) * simd_load(dy + F + f);
                simd_store(dVB_bar + c * 2 * F + f, dt_bar * B + t_bar * dB + dratio * V + ratio * dV);
                simd_store(dVB_bar + c * 2 * F + F + f, B_bar);
            }
            simd_store(dq_bar + f, dq + simd_load(dcontext_bar + f));
        }
        VB += 6 * F, dVB += 6 * F, dVB_bar += 6 * F, y += width, dy += width, q_bar += F, dq_bar += F;
        context += 2 * F, dcontext += 2 * F, context_bar += 2 * F, dcontext_bar += 2 * F;
        if (!last) mu_bar += 3 * F, dmu_bar += 3 * F;
    }
}

const painn_train_kernels SIMD_SYMBOL(painn_train_kernels) = {message,         message_backward, message_tangent, message_dual,
                                                              context_tangent, mix_tangent,      mix_dual,        context_dual};
