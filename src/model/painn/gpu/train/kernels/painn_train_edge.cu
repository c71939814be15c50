// SPDX-License-Identifier: MIT
// painn_train_edge.cu: messages along pairs in a training step, and their tangents.
//
//   W_e = [A|b] ψ_e                 filters; with ψ' instead of ψ: W'_e, so that Ẇ_e = W'_e ḋ_e
//   Δq_i = Σ_e Wq∘xq_j ;  Δμ_i = Σ_e (WR∘xR_j) u_e + (Wμ∘xμ_j)∘μ_j
// A block has 16 features; its warps have some consecutive atoms each, whose neighbors' features stay in the L1 cache
// (painn_train_pairs.cuh). Sums have a fixed order: no atomics. Bound by accesses to the L1 cache and by instructions on a row's sums.
#include "painn_train_edge.cuh"

// Blocks of a multiprocessor, as many as registers allow.
static constexpr int message_blocks(bool first)
{
    return first ? 7 : 6;
}
static constexpr int message_tangent_blocks(bool first)
{
    return first ? 5 : 4;
}

// Sums of a row: Δq, Δμ of two features.
struct message_sums {
    float2 v[4];
};

// What a lane adds its sum to, q or μ of an atom, values or tangents; 0 without it. Requested before the sums are made.
static __device__ __forceinline__ float2 load_message(const pair_lane &lane, int F, int atom, const float *q, const float *mu)
{
    const float *from = lane.t == 0 ? q : mu;
    const uint32_t at = lane.t == 0 ? (uint32_t)atom * F : ((uint32_t)atom * 3 + lane.t - 1) * F;
    return from ? load2(from + at + lane.f) : make_float2(0, 0);
}

template <int SHARES>
static __device__ __forceinline__ void write_message(const message_sums &sums, const pair_lane &lane, int F, int atom,
                                                     const float2 &before, float *context, float *mu1)
{
    const float2 own = sum_over_pairs(sums.v, lane.t);
    bool writes;
    const float4 sum = sum_of_shares<SHARES>(make_float4(own.x, own.y, 0, 0), atom, writes);
    if (!writes) return;
    float *to = lane.t == 0 ? context + (uint32_t)atom * 2 * F : mu1 + ((uint32_t)atom * 3 + lane.t - 1) * F;
    *(float2 *)(to + lane.f) = make_float2(before.x + sum.x, before.y + sum.y);
}

template <int PARTS, int SHARES, bool FIRST>
static __global__ void __launch_bounds__(THREADS, message_blocks(FIRST)) message(edge_step step)
{
    enum { X = FIRST ? 2 : 3 }; // parts of x
    const painn_train_step &s = step.s;
    const int F = s.n_features, l = step.l;
    const auto [lane, range, filters] = begin_pairs<SHARES>(s, l);
    if (range.first >= range.last) return;
    const float *x = s.layer[l].x.value, *mu = FIRST ? NULL : s.mu[l].value;
    for (int first = range.first; first < range.last; first += PAIR_ATOMS) {
        pair_walk w = walk_rows<SHARES>(s.row, first, min((int)PAIR_ATOMS, range.last - first));
        int neighbor[2] = {neighbor_of(s, w, first, lane.t, 0), neighbor_of(s, w, first, lane.t, 1)};
        message_sums sums = {};
        for (bool more = true; more;) {
            const int atom = first + w.k;
            const bool ends = row_ends<SHARES>(w);
            float2 x_j[2][X], mu_j[2][3], before = make_float2(0, 0);
            float4 u[2];
#pragma unroll
            for (int e = 0; e < 2; e++) {
                load_x<FIRST>(x, mu, F, neighbor[e], lane.f, x_j[e], mu_j[e]);
                u[e] = edge_of(s.edge, w, lane.t, e);
            }
            if (ends) before = load_message(lane, F, atom, s.q[l].value, mu);
            const pair_basis basis = load_basis<PARTS, false>(s, w, lane);
            more = walk_on<SHARES>(w);
            for (int e = 0; e < 2; e++) neighbor[e] = neighbor_of(s, w, first, lane.t, e);
            float4 W[X], unused;
            for (int b = 0; b < X; b++) filter_products<PARTS, false>(filters, b, basis, W[b], unused);
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const float2 Wq = make_float2(of_product(W[0], 0, e), of_product(W[0], 1, e));
                const float2 R = make_float2(of_product(W[1], 0, e) * x_j[e][1].x, of_product(W[1], 1, e) * x_j[e][1].y);
                sums.v[0].x += Wq.x * x_j[e][0].x;
                sums.v[0].y += Wq.y * x_j[e][0].y;
                for (int c = 0; c < 3; c++) sums.v[1 + c] = fma2(of_axis(u[e], c), R, sums.v[1 + c]);
                if (FIRST) continue;
                const float2 M =
                    make_float2(of_product(W[X - 1], 0, e) * x_j[e][X - 1].x, of_product(W[X - 1], 1, e) * x_j[e][X - 1].y);
                for (int c = 0; c < 3; c++) {
                    sums.v[1 + c].x += M.x * mu_j[e][c].x;
                    sums.v[1 + c].y += M.y * mu_j[e][c].y;
                }
            }
            if (!ends) continue;
            write_message<SHARES>(sums, lane, F, atom, before, s.layer[l].context.value, s.layer[l].mu1.value);
            sums = {};
        }
    }
}

template <int PARTS, int SHARES, bool FIRST>
static __global__ void __launch_bounds__(THREADS, message_tangent_blocks(FIRST)) message_tangent(edge_step step)
{
    enum { X = FIRST ? 2 : 3 };
    const painn_train_step &s = step.s;
    const int F = s.n_features, l = step.l;
    const auto [lane, range, filters] = begin_pairs<SHARES>(s, l);
    if (range.first >= range.last) return;
    const painn_train_layer &L = s.layer[l];
    const float *mu = FIRST ? NULL : s.mu[l].value, *moved = FIRST ? NULL : s.mu[l].tangent;
    for (int first = range.first; first < range.last; first += PAIR_ATOMS) {
        pair_walk w = walk_rows<SHARES>(s.row, first, min((int)PAIR_ATOMS, range.last - first));
        int neighbor[2] = {neighbor_of(s, w, first, lane.t, 0), neighbor_of(s, w, first, lane.t, 1)};
        message_sums sums = {};
        for (bool more = true; more;) {
            const int atom = first + w.k;
            const bool ends = row_ends<SHARES>(w);
            float2 x_j[2][X], dx_j[2][X], mu_j[2][3], dmu_j[2][3], before = make_float2(0, 0);
            float4 u[2], du[2];
#pragma unroll
            for (int e = 0; e < 2; e++) {
                load_x<FIRST>(L.x.value, mu, F, neighbor[e], lane.f, x_j[e], mu_j[e]);
                if (!FIRST) load_x<FIRST>(L.x.tangent, moved, F, neighbor[e], lane.f, dx_j[e], dmu_j[e]); // else 0
                u[e] = edge_of(s.edge, w, lane.t, e);
                du[e] = edge_of(s.edge_tangent, w, lane.t, e);
            }
            if (ends) before = load_message(lane, F, atom, FIRST ? NULL : s.q[l].tangent, moved);
            const pair_basis basis = load_basis<PARTS, true>(s, w, lane);
            more = walk_on<SHARES>(w);
            for (int e = 0; e < 2; e++) neighbor[e] = neighbor_of(s, w, first, lane.t, e);
            float4 W[X], dW[X];
            for (int b = 0; b < X; b++) filter_products<PARTS, true>(filters, b, basis, W[b], dW[b]);
#pragma unroll
            for (int e = 0; e < 2; e++)
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    float y[X], dy[X]; // W∘x and its tangent
                    for (int b = 0; b < X; b++) {
                        const float x = of_pair(x_j[e][b], j), filter = of_product(W[b], j, e);
                        y[b] = filter * x;
                        dy[b] = of_product(dW[b], j, e) * du[e].w * x;
                        if (!FIRST) dy[b] += filter * of_pair(dx_j[e][b], j);
                    }
                    float add[4] = {dy[0]};
                    for (int c = 0; c < 3; c++) {
                        add[1 + c] = dy[1] * of_axis(u[e], c) + y[1] * of_axis(du[e], c);
                        if (!FIRST) add[1 + c] += dy[X - 1] * of_pair(mu_j[e][c], j) + y[X - 1] * of_pair(dmu_j[e][c], j);
                    }
                    for (int k = 0; k < 4; k++) (j == 0 ? sums.v[k].x : sums.v[k].y) += add[k];
                }
            if (!ends) continue;
            write_message<SHARES>(sums, lane, F, atom, before, L.context.tangent, L.mu1.tangent);
            sums = {};
        }
    }
}

// ---- launches -----------------------------------------------------------------------------------------------------------

template <int PARTS, bool FIRST>
static int launch_of(const edge_step &edge, const painn_train_plan *plan, int tangent, void *stream)
{
    return tangent
               ? launch_shared(edge, plan, message_tangent_blocks(FIRST), message_tangent<PARTS, 1, FIRST>,
                               message_tangent<PARTS, WARPS, FIRST>, stream)
               : launch_shared(edge, plan, message_blocks(FIRST), message<PARTS, 1, FIRST>, message<PARTS, WARPS, FIRST>, stream);
}

extern "C" int painn_train_launch_message(const painn_train_step *step, const painn_train_plan *plan, int l, int tangent,
                                          void *stream)
{
    const edge_step edge = {*step, l, 0};
    if (plan->parts == 3)
        return l ? launch_of<3, false>(edge, plan, tangent, stream) : launch_of<3, true>(edge, plan, tangent, stream);
    return l ? launch_of<1, false>(edge, plan, tangent, stream) : launch_of<1, true>(edge, plan, tangent, stream);
}
