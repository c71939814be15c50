// SPDX-License-Identifier: MIT
// painn_train_edge.cu: messages along pairs in a training step, their way back, and the tangents of both.
//
//   W_e = [A|b] ψ_e                 filters; with ψ' instead of ψ: W'_e, so that Ẇ_e = W'_e ḋ_e
//   Δq_i = Σ_e Wq∘xq_j ;  Δμ_i = Σ_e (WR∘xR_j) u_e + (Wμ∘xμ_j)∘μ_j
// and backwards, gathered by the sender j over its own row, whose pair e' = (j, i) is the reverse of e = (i, j): u_e = −u_e',
//   P = Σ_c u_c μ̄'_ic ;  Q = Σ_c μ̄'_ic∘μ_jc ;  D = [q̄'_i | P | Q]
//   x̄_j = Σ W∘D ;  μ̄_j = μ̄'_j + Σ (Wμ∘xμ_j)∘μ̄'_i ;  W̄ = x_j∘D ;  dE/dd = Σ_f W̄·W' ;  ū = Σ_f (WR∘xR_j) μ̄'_i
//   G_[A|b] = Σ_e W̄̇ ψᵀ + W̄ ψ'ᵀ ḋ   (of tangents; painn_train_filter.cu)
// A block has 16 features; its warps have some consecutive atoms each, whose neighbors' features stay in the L1 cache
// (painn_train_pairs.cuh). Sums have a fixed order: no atomics. Bound by the tensor cores and by instructions on a row's sums.
#include "gpu/train/tf32_product.cuh"
#include "painn_train_pairs.cuh"

// Blocks of a multiprocessor, as many as registers allow.
enum {
    THREADS = PAINN_TRAIN_EDGE_THREADS,
    WARPS = THREADS / 32,
    MESSAGE_BLOCKS = 6,
    MESSAGE_TANGENT_BLOCKS = 4,
    MESSAGE_BACK_BLOCKS = 4
};

typedef struct edge_step {
    painn_train_step s;
    int32_t l, first_back; /* first_back: dE/dr is set, not added to */
} edge_step;

static_assert(sizeof(edge_step) <= 4096, "parameters of a kernel");

static __device__ __forceinline__ float2 load2(const float *from)
{
    return *(const float2 *)from;
}
static __device__ __forceinline__ float2 fma2(float a, const float2 &b, const float2 &c)
{
    return make_float2(fmaf(a, b.x, c.x), fmaf(a, b.y, c.y));
}

// A warp's atoms [first, last).
struct atom_range {
    int first, last;
};
static __device__ __forceinline__ atom_range atoms_of(int n, int group, int n_groups)
{
    const int chunk = (n + n_groups - 1) / n_groups;
    return {min(n, group * chunk), min(n, (group + 1) * chunk)};
}

// Of the warps of a block that share an atom's row: the sum of a lane's numbers, in their order, and which of them writes it. By a block.
template <int SHARES> static __device__ __forceinline__ float4 sum_of_shares(const float4 &own, int atom, bool &writes)
{
    writes = true;
    if (SHARES == 1) return own;
    __shared__ float4 shares[2][SHARES][32]; // used alternately, so that one barrier is enough
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, turn = atom & 1;
    shares[turn][warp][lane] = own;
    __syncthreads();
    float4 sum = shares[turn][0][lane];
    for (int k = 1; k < SHARES; k++) sum = sum + shares[turn][k][lane];
    writes = warp == atom % SHARES;
    return sum;
}

// ---- forward ------------------------------------------------------------------------------------------------------------

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

template <int PARTS, int SHARES> static __global__ void __launch_bounds__(THREADS, MESSAGE_BLOCKS) message(edge_step step)
{
    const painn_train_step &s = step.s;
    const int F = s.n_features, l = step.l;
    int group, n_groups;
    const pair_lane lane = lane_of_pairs<SHARES>(F, group, n_groups);
    const atom_range range = atoms_of(s.call->n_atoms, group, n_groups);
    const pair_filters filters = load_filters(s, l, lane.slice); // written by the first kernel of the step
    wait_for_previous();
    let_next_start();
    if (range.first >= range.last) return;
    const float *x = s.layer[l].x.value, *mu = l ? s.mu[l].value : NULL;
    for (int first = range.first; first < range.last; first += PAIR_ATOMS) {
        pair_walk w = walk_rows<SHARES>(s.row, first, min((int)PAIR_ATOMS, range.last - first));
        int neighbor[2] = {neighbor_of(s, w, first, lane.t, 0), neighbor_of(s, w, first, lane.t, 1)};
        message_sums sums = {};
        for (bool more = true; more;) {
            const int atom = first + w.k;
            const bool ends = row_ends<SHARES>(w);
            float2 x_j[2][3], mu_j[2][3] = {}, before = make_float2(0, 0);
            float4 u[2];
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const uint32_t j = (uint32_t)neighbor[e] * 3 * F + lane.f;
                for (int b = 0; b < 3; b++) x_j[e][b] = load2(x + j + b * F);
                for (int c = 0; c < 3 && l > 0; c++) mu_j[e][c] = load2(mu + j + c * F);
                u[e] = edge_of(s.edge, w, lane.t, e);
            }
            if (ends) before = load_message(lane, F, atom, s.q[l].value, mu);
            const pair_basis basis = load_basis<PARTS, false>(s, w, lane);
            more = walk_on<SHARES>(w);
            for (int e = 0; e < 2; e++) neighbor[e] = neighbor_of(s, w, first, lane.t, e);
            float4 W[3], unused;
            for (int b = 0; b < 3; b++) filter_products<PARTS, false>(filters, b, basis, W[b], unused);
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const float2 Wq = make_float2(of_product(W[0], 0, e), of_product(W[0], 1, e));
                const float2 R = make_float2(of_product(W[1], 0, e) * x_j[e][1].x, of_product(W[1], 1, e) * x_j[e][1].y);
                const float2 M = make_float2(of_product(W[2], 0, e) * x_j[e][2].x, of_product(W[2], 1, e) * x_j[e][2].y);
                sums.v[0].x += Wq.x * x_j[e][0].x;
                sums.v[0].y += Wq.y * x_j[e][0].y;
                for (int c = 0; c < 3; c++) {
                    sums.v[1 + c] = fma2(of_axis(u[e], c), R, sums.v[1 + c]);
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

template <int PARTS, int SHARES>
static __global__ void __launch_bounds__(THREADS, MESSAGE_TANGENT_BLOCKS) message_tangent(edge_step step)
{
    const painn_train_step &s = step.s;
    const int F = s.n_features, l = step.l;
    int group, n_groups;
    const pair_lane lane = lane_of_pairs<SHARES>(F, group, n_groups);
    const atom_range range = atoms_of(s.call->n_atoms, group, n_groups);
    const pair_filters filters = load_filters(s, l, lane.slice); // written by the first kernel of the step
    wait_for_previous();
    let_next_start();
    if (range.first >= range.last) return;
    const painn_train_layer &L = s.layer[l];
    const float *mu = l ? s.mu[l].value : NULL, *moved = l ? s.mu[l].tangent : NULL;
    for (int first = range.first; first < range.last; first += PAIR_ATOMS) {
        pair_walk w = walk_rows<SHARES>(s.row, first, min((int)PAIR_ATOMS, range.last - first));
        int neighbor[2] = {neighbor_of(s, w, first, lane.t, 0), neighbor_of(s, w, first, lane.t, 1)};
        message_sums sums = {};
        for (bool more = true; more;) {
            const int atom = first + w.k;
            const bool ends = row_ends<SHARES>(w);
            float2 x_j[2][3], dx_j[2][3] = {}, mu_j[2][3] = {}, dmu_j[2][3] = {}, before = make_float2(0, 0);
            float4 u[2], du[2];
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const uint32_t j = (uint32_t)neighbor[e] * 3 * F + lane.f;
                for (int b = 0; b < 3; b++) x_j[e][b] = load2(L.x.value + j + b * F);
                for (int c = 0; c < 3 && l > 0; c++) { // tangents of the first layer's x are 0
                    dx_j[e][c] = load2(L.x.tangent + j + c * F);
                    mu_j[e][c] = load2(mu + j + c * F);
                    dmu_j[e][c] = load2(moved + j + c * F);
                }
                u[e] = edge_of(s.edge, w, lane.t, e);
                du[e] = edge_of(s.edge_tangent, w, lane.t, e);
            }
            if (ends) before = load_message(lane, F, atom, l ? s.q[l].tangent : NULL, moved);
            const pair_basis basis = load_basis<PARTS, true>(s, w, lane);
            more = walk_on<SHARES>(w);
            for (int e = 0; e < 2; e++) neighbor[e] = neighbor_of(s, w, first, lane.t, e);
            float4 W[3], dW[3];
            for (int b = 0; b < 3; b++) filter_products<PARTS, true>(filters, b, basis, W[b], dW[b]);
#pragma unroll
            for (int e = 0; e < 2; e++)
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    float y[3], dy[3]; // W∘x and its tangent
                    for (int b = 0; b < 3; b++) {
                        const float x = of_pair(x_j[e][b], j), filter = of_product(W[b], j, e);
                        y[b] = filter * x;
                        dy[b] = of_product(dW[b], j, e) * du[e].w * x + filter * of_pair(dx_j[e][b], j);
                    }
                    float add[4] = {dy[0]};
                    for (int c = 0; c < 3; c++)
                        add[1 + c] = dy[1] * of_axis(u[e], c) + y[1] * of_axis(du[e], c) + dy[2] * of_pair(mu_j[e][c], j) +
                                     y[2] * of_pair(dmu_j[e][c], j);
                    for (int k = 0; k < 4; k++) (j == 0 ? sums.v[k].x : sums.v[k].y) += add[k];
                }
            if (!ends) continue;
            write_message<SHARES>(sums, lane, F, atom, before, L.context.tangent, L.mu1.tangent);
            sums = {};
        }
    }
}

// ---- backward -----------------------------------------------------------------------------------------------------------

// `mu1` of write_reverse, requested before the sums are made.
static __device__ __forceinline__ float2 load_reverse(const pair_lane &lane, int F, uint32_t own, const float *mu1_bar)
{
    return lane.t < 3 ? load2(mu1_bar + own + lane.t * F) : make_float2(0, 0);
}

// Writes the sums of a row, values or tangents, x̄ and μ̄ = μ̄' + …, of an atom and a lane's features, and clears them. NULL: not needed.
template <int PARTS, int SHARES>
static __device__ __forceinline__ void write_reverse(float2 (&x_sums)[3], float2 (&mu_sums)[3], const pair_lane &lane, int F,
                                                     int atom, const float2 &mu1, float *x_bar, float *mu_bar)
{
    float2 x, mu;
    bool writes;
    sum_over_pairs(x_sums, mu_sums, lane.t, x, mu);
    const float4 sum = sum_of_shares<SHARES>(make_float4(x.x, x.y, mu.x, mu.y), atom, writes);
    if (lane.t < 3 && writes) {
        const uint32_t at = ((uint32_t)atom * 3 + lane.t) * F + lane.f;
        if (x_bar) *(float2 *)(x_bar + at) = make_float2(tf32_operand<PARTS>(sum.x), tf32_operand<PARTS>(sum.y));
        if (mu_bar) *(float2 *)(mu_bar + at) = make_float2(mu1.x + sum.z, mu1.y + sum.w);
    }
    for (int c = 0; c < 3; c++) x_sums[c] = mu_sums[c] = make_float2(0, 0);
}

template <int PARTS, int SHARES>
static __global__ void __launch_bounds__(THREADS, MESSAGE_BACK_BLOCKS) message_back(edge_step step)
{
    const painn_train_step &s = step.s;
    const int F = s.n_features, l = step.l, pieces = F / 16;
    int group, n_groups;
    const pair_lane lane = lane_of_pairs<SHARES>(F, group, n_groups);
    const atom_range range = atoms_of(s.call->n_atoms, group, n_groups);
    const pair_filters filters = load_filters(s, l, lane.slice); // written by the first kernel of the step
    wait_for_previous();
    let_next_start();
    if (range.first >= range.last) return;
    const painn_train_layer &L = s.layer[l];
    for (int first = range.first; first < range.last; first += PAIR_ATOMS) {
        pair_walk w = walk_rows<SHARES>(s.row, first, min((int)PAIR_ATOMS, range.last - first));
        int neighbor[2] = {neighbor_of(s, w, first, lane.t, 0), neighbor_of(s, w, first, lane.t, 1)};
        float2 x_bar[3] = {}, mu_bar[3] = {};
        for (bool more = true; more;) {
            const int atom = first + w.k, own_pair = w.p + 2 * lane.t + lane.g / 4;
            const bool ends = row_ends<SHARES>(w), writes = own_pair < w.end;
            const uint32_t own = (uint32_t)atom * 3 * F + lane.f;
            float *to = s.pair_gradient + ((size_t)own_pair * pieces + lane.slice) * 4 + lane.g % 4;
            const float before = step.first_back || !writes ? 0.0f : *to;
            float2 x[3], mu[3] = {}, q1[2], m[2][3], mu1 = make_float2(0, 0);
            float4 u[2];
            for (int b = 0; b < 3; b++) x[b] = load2(L.x.value + own + b * F);
            for (int c = 0; c < 3 && l > 0; c++) mu[c] = load2(s.mu[l].value + own + c * F);
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const uint32_t i = (uint32_t)neighbor[e];
                q1[e] = load2(L.q1_bar.value + i * F + lane.f);
                for (int c = 0; c < 3; c++) m[e][c] = load2(L.mu1_bar.value + (i * 3 + c) * F + lane.f);
                u[e] = edge_of(s.edge, w, lane.t, e);
            }
            if (ends && s.mu_bar[l].value) mu1 = load_reverse(lane, F, own, L.mu1_bar.value);
            const pair_basis basis = load_basis<PARTS, true>(s, w, lane);
            more = walk_on<SHARES>(w);
            for (int e = 0; e < 2; e++) neighbor[e] = neighbor_of(s, w, first, lane.t, e);
            float4 W[3], dW[3];
            for (int b = 0; b < 3; b++) filter_products<PARTS, true>(filters, b, basis, W[b], dW[b]);
            float pair_sums[8] = {};
#pragma unroll
            for (int e = 0; e < 2; e++)
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    const float q = of_pair(q1[e], j);
                    float P = 0, Q = 0;
                    for (int c = 0; c < 3; c++) {
                        P -= of_axis(u[e], c) * of_pair(m[e][c], j);
                        Q += of_pair(m[e][c], j) * of_pair(mu[c], j);
                    }
                    const float R = of_product(W[1], j, e) * of_pair(x[1], j), M = of_product(W[2], j, e) * of_pair(x[2], j);
                    (j == 0 ? x_bar[0].x : x_bar[0].y) += of_product(W[0], j, e) * q;
                    (j == 0 ? x_bar[1].x : x_bar[1].y) += of_product(W[1], j, e) * P;
                    (j == 0 ? x_bar[2].x : x_bar[2].y) += of_product(W[2], j, e) * Q;
                    for (int c = 0; c < 3; c++) {
                        (j == 0 ? mu_bar[c].x : mu_bar[c].y) += M * of_pair(m[e][c], j);
                        pair_sums[4 * e + c] += R * of_pair(m[e][c], j);
                    }
                    pair_sums[4 * e + 3] += of_pair(x[0], j) * q * of_product(dW[0], j, e) +
                                            of_pair(x[1], j) * P * of_product(dW[1], j, e) +
                                            of_pair(x[2], j) * Q * of_product(dW[2], j, e);
                }
            const float sum = sum_over_features(pair_sums, lane.g);
            if (writes) *to = before + sum;
            if (!ends) continue;
            write_reverse<PARTS, SHARES>(x_bar, mu_bar, lane, F, atom, mu1, L.x_bar.value, s.mu_bar[l].value);
        }
    }
}

// ---- backward, tangents -------------------------------------------------------------------------------------------------

// sum += v ψᵀ + d ψ'ᵀ of the group's pairs, for 16 features and 8 basis functions: v and d as a lane has them. With PARTS = 3
// float32 additions between groups: the tensor cores truncate their sums.
template <int PARTS>
static __device__ __forceinline__ void add_filter_gradient(const uint32_t (&high)[2][4], const uint32_t (&low)[2][4],
                                                           const float2 (&value)[2], const float2 (&slope)[2], float (&sum)[4])
{
    const uint32_t value_high[2] = {__float_as_uint(value[0].x), __float_as_uint(value[0].y)};
    const uint32_t value_low[2] = {__float_as_uint(value[1].x), __float_as_uint(value[1].y)};
    const uint32_t slope_high[2] = {__float_as_uint(slope[0].x), __float_as_uint(slope[0].y)};
    const uint32_t slope_low[2] = {__float_as_uint(slope[1].x), __float_as_uint(slope[1].y)};
    float part[4] = {0, 0, 0, 0};
    float(&to)[4] = PARTS == 1 ? sum : part;
    tf32_product<PARTS>(to, high[0], low[0], value_high, value_low);
    tf32_product<PARTS>(to, high[1], low[1], slope_high, slope_low);
    for (int k = 0; k < 4 && PARTS == 3; k++) sum[k] += part[k];
}

// Two pairs' numbers from halves.
template <int PARTS> static __device__ __forceinline__ void unpack_basis(const uint4 (&basis)[2], int m, float2 (&v)[2])
{
    const uint32_t high = m == 0 ? basis[0].x : m == 1 ? basis[0].y : m == 2 ? basis[0].z : basis[0].w;
    v[0] = unpack_half2(transpose_tile(high));
    if (PARTS == 3) {
        const uint32_t low = m == 0 ? basis[1].x : m == 1 ? basis[1].y : m == 2 ? basis[1].z : basis[1].w;
        const float2 rest = unpack_half2(transpose_tile(low));
        v[1] = make_float2(rest.x * (1.0f / LOW_SCALE), rest.y * (1.0f / LOW_SCALE));
    }
}

// Writes the sum of the block's warps, in their order, as partial sum blockIdx.x / slices of the layer.
template <int TILES>
static __device__ __forceinline__ void write_filter_gradient(const painn_train_step &s, int l, int slice,
                                                             const float (&gradient)[3][TILES][4])
{
    enum { PIECES = 3 * TILES * 32 };
    __shared__ float4 shares[WARPS][PIECES];
    const int F = s.n_features;
    float *to = s.filter_sums_of[l] + (size_t)((int)blockIdx.x / (F / 16)) * s.basis_rows * 3 * F + slice * 16;
#pragma unroll
    for (int b = 0; b < 3; b++)
#pragma unroll
        for (int tile = 0; tile < TILES; tile++)
            shares[threadIdx.x / 32][(b * TILES + tile) * 32 + threadIdx.x % 32] =
                make_float4(gradient[b][tile][0], gradient[b][tile][1], gradient[b][tile][2], gradient[b][tile][3]);
    __syncthreads();
    for (int piece = (int)threadIdx.x; piece < PIECES; piece += THREADS) {
        float4 sum = shares[0][piece];
        for (int warp = 1; warp < WARPS; warp++) sum = sum + shares[warp][piece];
        const int g = piece % 32 / 4, t = piece % 4, tile = piece / 32 % TILES, b = piece / 32 / TILES;
        const int k = 2 * TILES * t + 2 * tile;
        *(float2 *)(to + ((size_t)k * 3 + b) * F + 2 * g) = make_float2(sum.x, sum.z);
        *(float2 *)(to + ((size_t)(k + 1) * 3 + b) * F + 2 * g) = make_float2(sum.y, sum.w);
    }
}

// What a lane's two pairs e have of their neighbors and of their geometry.
struct reverse_neighbors {
    float2 q1[2], dq1[2], m[2][3], dm[2][3];
    float4 u[2], du[2];
};

static __device__ __forceinline__ reverse_neighbors load_neighbors(const painn_train_step &s, const painn_train_layer &L,
                                                                   const pair_walk &w, const pair_lane &lane,
                                                                   const int (&neighbor)[2])
{
    const int F = s.n_features;
    reverse_neighbors r;
#pragma unroll
    for (int e = 0; e < 2; e++) {
        const uint32_t i = (uint32_t)neighbor[e];
        r.q1[e] = load2(L.q1_bar.value + i * F + lane.f);
        r.dq1[e] = load2(L.q1_bar.tangent + i * F + lane.f);
        for (int c = 0; c < 3; c++) {
            r.m[e][c] = load2(L.mu1_bar.value + (i * 3 + c) * F + lane.f);
            r.dm[e][c] = load2(L.mu1_bar.tangent + (i * 3 + c) * F + lane.f);
        }
        r.u[e] = edge_of(s.edge, w, lane.t, e);
        r.du[e] = edge_of(s.edge_tangent, w, lane.t, e);
    }
    return r;
}

// Part b of D and its tangent, of pair e and feature j; mu, moved: of the row's atom.
static __device__ __forceinline__ void adjoint_of_pair(const reverse_neighbors &r, int b, int e, int j, const float2 (&mu)[3],
                                                       const float2 (&moved)[3], float &D, float &dD)
{
    D = of_pair(r.q1[e], j), dD = of_pair(r.dq1[e], j);
    if (b > 0) D = dD = 0;
    for (int c = 0; c < 3 && b > 0; c++) {
        const float v = of_pair(r.m[e][c], j), dv = of_pair(r.dm[e][c], j);
        if (b == 1) {
            D -= of_axis(r.u[e], c) * v;
            dD -= of_axis(r.du[e], c) * v + of_axis(r.u[e], c) * dv;
        } else {
            D += v * of_pair(mu[c], j);
            dD += dv * of_pair(mu[c], j) + v * of_pair(moved[c], j);
        }
    }
}

// TILES: of 8 basis functions, 3 or 4; a lane has 2 TILES functions of a pair.
template <int PARTS, int TILES>
static __global__ void __launch_bounds__(THREADS, PAINN_TRAIN_GRADIENT_BLOCKS) message_back_tangent(edge_step step)
{
    const painn_train_step &s = step.s;
    const int F = s.n_features, l = step.l;
    int group, n_groups;
    const pair_lane lane = lane_of_pairs<1>(F, group, n_groups);
    const atom_range range = atoms_of(s.call->n_atoms, group, n_groups);
    const pair_filters filters = load_filters(s, l, lane.slice); // written by the first kernel of the step
    wait_for_previous();
    let_next_start();
    const painn_train_layer &L = s.layer[l];
    float gradient[3][TILES][4] = {};
    for (int first = range.first; first < range.last; first += PAIR_ATOMS) {
        pair_walk w = walk_rows<1>(s.row, first, min((int)PAIR_ATOMS, range.last - first));
        int neighbor[2] = {neighbor_of(s, w, first, lane.t, 0), neighbor_of(s, w, first, lane.t, 1)};
        float2 x_bar[3] = {}, mu_bar[3] = {};
        for (bool more = true; more;) {
            const int atom = first + w.k;
            const bool ends = row_ends<1>(w);
            const uint32_t own = (uint32_t)atom * 3 * F + lane.f;
            const reverse_neighbors r = load_neighbors(s, L, w, lane, neighbor);
            float2 mu1 = make_float2(0, 0);
            if (ends && s.mu_bar[l].tangent) mu1 = load_reverse(lane, F, own, L.mu1_bar.tangent);
            const pair_basis basis = load_basis<PARTS, true>(s, w, lane);
            more = walk_on<1>(w);
            for (int e = 0; e < 2; e++) neighbor[e] = neighbor_of(s, w, first, lane.t, e);
            float2 value[TILES][2] = {}, slope[TILES][2] = {};
#pragma unroll
            for (int tile = 0; tile < TILES && PARTS == 1; tile++) { // with PARTS = 3 there are too few registers
                unpack_basis<PARTS>(basis.value, tile, value[tile]);
                unpack_basis<PARTS>(basis.slope, tile, slope[tile]);
            }
#pragma unroll
            for (int b = 0; b < 3; b++) {
                float4 W, dW;
                filter_products<PARTS, true>(filters, b, basis, W, dW);
                const float2 x = load2(L.x.value + own + b * F);
                const float2 dx = l ? load2(L.x.tangent + own + b * F) : make_float2(0, 0);
                float2 mu[3] = {}, moved[3] = {};
                for (int c = 0; c < 3 && b == 2 && l > 0; c++) {
                    mu[c] = load2(s.mu[l].value + own + c * F);
                    moved[c] = load2(s.mu[l].tangent + own + c * F);
                }
                uint32_t high[2][4], low[2][4]; // W̄̇, W̄ ḋ
#pragma unroll
                for (int e = 0; e < 2; e++)
#pragma unroll
                    for (int j = 0; j < 2; j++) {
                        float D, dD;
                        adjoint_of_pair(r, b, e, j, mu, moved, D, dD);
                        const float filter = of_product(W, j, e), change = of_product(dW, j, e) * r.du[e].w;
                        (j == 0 ? x_bar[b].x : x_bar[b].y) += change * D + filter * dD;
                        tf32_split<PARTS>(of_pair(dx, j) * D + of_pair(x, j) * dD, high[0][2 * e + j], low[0][2 * e + j]);
                        tf32_split<PARTS>(of_pair(x, j) * D * r.du[e].w, high[1][2 * e + j], low[1][2 * e + j]);
                        const float Y = filter * of_pair(x, j), dY = change * of_pair(x, j) + filter * of_pair(dx, j);
                        for (int c = 0; c < 3 && b == 2; c++)
                            (j == 0 ? mu_bar[c].x : mu_bar[c].y) += dY * of_pair(r.m[e][c], j) + Y * of_pair(r.dm[e][c], j);
                    }
#pragma unroll
                for (int tile = 0; tile < TILES; tile++) {
                    if (PARTS == 3) unpack_basis<PARTS>(basis.value, tile, value[tile]);
                    if (PARTS == 3) unpack_basis<PARTS>(basis.slope, tile, slope[tile]);
                    add_filter_gradient<PARTS>(high, low, value[tile], slope[tile], gradient[b][tile]);
                }
            }
            if (!ends) continue;
            write_reverse<PARTS, 1>(x_bar, mu_bar, lane, F, atom, mu1, L.x_bar.tangent, s.mu_bar[l].tangent);
        }
    }
    write_filter_gradient<TILES>(s, l, lane.slice, gradient);
}

// ---- launches -----------------------------------------------------------------------------------------------------------

// Groups of atoms of which each warp has one, or SHARES warps, and whose blocks, one for each slice, all run at once.
static int groups_of(const painn_train_step *step, int n_atoms, int shares, int most)
{
    const int of_block = WARPS / shares, wanted = (n_atoms + of_block - 1) / of_block, groups = most / (step->n_features / 16);
    return wanted < groups ? wanted : groups > 0 ? groups : 1;
}

// How many groups of pairs a warp takes one after the other.
static int turns_of(const painn_train_step *step, const painn_train_plan *plan, int shares, int most)
{
    const int groups = groups_of(step, plan->n_atoms, shares, most) * WARPS / shares,
              atoms = (plan->n_atoms + groups - 1) / groups;
    const int of_row = (plan->n_pairs + PAIR_GROUP * plan->n_atoms - 1) / (PAIR_GROUP * plan->n_atoms);
    return atoms * ((of_row + shares - 1) / shares);
}

#define EDGE_KERNEL(name, which) (plan->parts == 3 ? name<3, which> : name<1, which>)

// Where rows are long and atoms few, the warps of a block share a row.
static int launch_shared(const edge_step &edge, const painn_train_plan *plan, int most, void (*alone)(edge_step),
                         void (*shared)(edge_step), void *stream)
{
    most *= plan->n_multiprocessors;
    const int shares = turns_of(&edge.s, plan, WARPS, most) < turns_of(&edge.s, plan, 1, most) ? WARPS : 1;
    const int blocks = groups_of(&edge.s, plan->n_atoms, shares, most) * (edge.s.n_features / 16);
    return launch(shares > 1 ? shared : alone, blocks, THREADS, 0, 1, plan->overlap, stream, edge);
}

extern "C" int painn_train_launch_message(const painn_train_step *step, const painn_train_plan *plan, int l, int tangent,
                                          void *stream)
{
    const edge_step edge = {*step, l, 0};
    return tangent ? launch_shared(edge, plan, MESSAGE_TANGENT_BLOCKS, EDGE_KERNEL(message_tangent, 1),
                                   EDGE_KERNEL(message_tangent, WARPS), stream)
                   : launch_shared(edge, plan, MESSAGE_BLOCKS, EDGE_KERNEL(message, 1), EDGE_KERNEL(message, WARPS), stream);
}

extern "C" int painn_train_launch_message_back(const painn_train_step *step, const painn_train_plan *plan, int l, int tangent,
                                               void *stream)
{
    const edge_step edge = {*step, l, l + 1 == step->n_layers};
    if (!tangent)
        return launch_shared(edge, plan, MESSAGE_BACK_BLOCKS, EDGE_KERNEL(message_back, 1), EDGE_KERNEL(message_back, WARPS),
                             stream);
    void (*kernel)(edge_step) =
        step->basis_rows == PAINN_TRAIN_SMALL_BASIS ? EDGE_KERNEL(message_back_tangent, 3) : EDGE_KERNEL(message_back_tangent, 4);
    return launch(kernel, step->filter_sums * (step->n_features / 16), THREADS, 0, 1, plan->overlap, stream, edge);
}
