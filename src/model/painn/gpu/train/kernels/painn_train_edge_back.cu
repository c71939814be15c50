// SPDX-License-Identifier: MIT
// painn_train_edge_back.cu: the way back of messages along pairs in a training step (painn_train_edge.cu), and its tangents, gathered by the
// sender j over its own row, whose pair e' = (j, i) is the reverse of e = (i, j): u_e = −u_e',
//   P = Σ_c u_c μ̄'_ic ;  Q = Σ_c μ̄'_ic∘μ_jc ;  D = [q̄'_i | P | Q]
//   x̄_j = Σ W∘D ;  μ̄_j = μ̄'_j + Σ (Wμ∘xμ_j)∘μ̄'_i ;  W̄ = x_j∘D ;  dE/dd = Σ_f W̄·W' ;  ū = Σ_f (WR∘xR_j) μ̄'_i
//   G_[A|b] = Σ_e W̄̇ ψᵀ + W̄ ψ'ᵀ ḋ   (of tangents)
// Blocks and warps as there. Bound by instructions on a row's sums and by accesses to the L1 cache.
#include "gpu/train/tf32_product.cuh"
#include "painn_train_edge.cuh"

// Blocks of a multiprocessor, as many as registers allow.
static constexpr int message_back_blocks(bool first)
{
    return first ? 5 : 4;
}

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

// ---- values -------------------------------------------------------------------------------------------------------------

template <int PARTS, int SHARES, bool FIRST>
static __global__ void __launch_bounds__(THREADS, message_back_blocks(FIRST)) message_back(edge_step step)
{
    enum { X = FIRST ? 2 : 3 }; // parts of x
    const painn_train_step &s = step.s;
    const int F = s.n_features, l = step.l, pieces = F / 16;
    const auto [lane, range, filters] = begin_pairs<SHARES>(s, l);
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
            float2 x[X], mu[3], q1[2], m[2][3], mu1;
            float4 u[2];
            load_x<FIRST>(L.x.value, s.mu[l].value, F, atom, lane.f, x, mu);
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const uint32_t i = (uint32_t)neighbor[e];
                q1[e] = load2(L.q1_bar.value + i * F + lane.f);
                for (int c = 0; c < 3; c++) m[e][c] = load2(L.mu1_bar.value + (i * 3 + c) * F + lane.f);
                u[e] = edge_of(s.edge, w, lane.t, e);
            }
            if (!FIRST && ends) mu1 = load_reverse(lane, F, own, L.mu1_bar.value);
            const pair_basis basis = load_basis<PARTS, true>(s, w, lane);
            more = walk_on<SHARES>(w);
            for (int e = 0; e < 2; e++) neighbor[e] = neighbor_of(s, w, first, lane.t, e);
            float4 W[X], dW[X];
            for (int b = 0; b < X; b++) filter_products<PARTS, true>(filters, b, basis, W[b], dW[b]);
            float pair_sums[8] = {};
#pragma unroll
            for (int e = 0; e < 2; e++)
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    float D[3] = {of_pair(q1[e], j), 0, 0};
                    for (int c = 0; c < 3; c++) {
                        D[1] -= of_axis(u[e], c) * of_pair(m[e][c], j);
                        if (!FIRST) D[2] += of_pair(m[e][c], j) * of_pair(mu[c], j);
                    }
                    const float R = of_product(W[1], j, e) * of_pair(x[1], j);
                    for (int c = 0; c < 3; c++) pair_sums[4 * e + c] += R * of_pair(m[e][c], j);
                    for (int b = 0; b < X; b++) pair_sums[4 * e + 3] += of_pair(x[b], j) * D[b] * of_product(dW[b], j, e);
                    const float M = of_product(W[X - 1], j, e) * of_pair(x[X - 1], j);
                    for (int b = 0; b < 3 && !FIRST; b++) {
                        (j == 0 ? x_bar[b].x : x_bar[b].y) += of_product(W[b % X], j, e) * D[b];
                        (j == 0 ? mu_bar[b].x : mu_bar[b].y) += M * of_pair(m[e][b], j);
                    }
                }
            const float sum = sum_over_features(pair_sums, lane.g);
            if (writes) *to = before + sum;
            if (FIRST || !ends) continue;
            write_reverse<PARTS, SHARES>(x_bar, mu_bar, lane, F, atom, mu1, L.x_bar.value, s.mu_bar[l].value);
        }
    }
}

// ---- tangents -----------------------------------------------------------------------------------------------------------

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
template <int PARTS, int TILES, bool FIRST>
static __global__ void __launch_bounds__(THREADS, PAINN_TRAIN_GRADIENT_BLOCKS) message_back_tangent(edge_step step)
{
    enum { X = FIRST ? 2 : 3 };
    const painn_train_step &s = step.s;
    const int F = s.n_features, l = step.l;
    const auto [lane, range, filters] = begin_pairs<1>(s, l);
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
            if (!FIRST && ends) mu1 = load_reverse(lane, F, own, L.mu1_bar.tangent);
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
            for (int b = 0; b < X; b++) {
                float4 W, dW;
                filter_products<PARTS, true>(filters, b, basis, W, dW);
                const float2 x = load2(L.x.value + (FIRST ? (uint32_t)atom * 2 * F + painn_first_x(b, lane.f) : own + b * F));
                const float2 dx = FIRST ? make_float2(0, 0) : load2(L.x.tangent + own + b * F);
                float2 mu[3] = {}, moved[3] = {};
                for (int c = 0; c < 3 && b == 2; c++) {
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
                        const float bar = of_pair(x, j) * dD, all = FIRST ? bar : of_pair(dx, j) * D + bar;
                        tf32_split<PARTS>(all, high[0][2 * e + j], low[0][2 * e + j]);
                        tf32_split<PARTS>(of_pair(x, j) * D * r.du[e].w, high[1][2 * e + j], low[1][2 * e + j]);
                        const float Y = filter * of_pair(x, j), dY = change * of_pair(x, j) + filter * of_pair(dx, j);
                        for (int c = 0; c < 3 && b == 2; c++) // not of FIRST
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

template <int PARTS, bool FIRST>
static int launch_of(const edge_step &edge, const painn_train_plan *plan, int tangent, void *stream)
{
    if (!tangent)
        return launch_shared(edge, plan, message_back_blocks(FIRST), message_back<PARTS, 1, FIRST>,
                             message_back<PARTS, WARPS, FIRST>, stream);
    void (*kernel)(edge_step) = edge.s.basis_rows == PAINN_TRAIN_SMALL_BASIS ? message_back_tangent<PARTS, 3, FIRST>
                                                                             : message_back_tangent<PARTS, 4, FIRST>;
    return launch(kernel, edge.s.filter_sums * (edge.s.n_features / 16), THREADS, 0, 1, plan->overlap, stream, edge);
}

extern "C" int painn_train_launch_message_back(const painn_train_step *step, const painn_train_plan *plan, int l, int tangent,
                                               void *stream)
{
    const edge_step edge = {*step, l, l + 1 == step->n_layers};
    if (plan->parts == 3)
        return l ? launch_of<3, false>(edge, plan, tangent, stream) : launch_of<3, true>(edge, plan, tangent, stream);
    return l ? launch_of<1, false>(edge, plan, tangent, stream) : launch_of<1, true>(edge, plan, tangent, stream);
}
