// SPDX-License-Identifier: MIT
// painn_train_data.cu: the two ends of a training step: the batch is gathered from the data set and radial functions are made; the gradient
// of the embedding.
//
//   ψ_k(d) = φ_k(d) f(d), ψ_K = f
// A warp or a block has an atom, four lanes a pair. Bound by latency and memory.
#include "gpu/train/tf32_product.cuh"
#include "painn_train_math.cuh"
#include "painn_train_pairs.cuh"

enum { THREADS = 128, BEGIN_THREADS = 256 };

// ---- begin --------------------------------------------------------------------------------------------------------------

// Two numbers as high and low halves (painn_train_pairs.cuh).
static __device__ __forceinline__ void split_halves(float a, float b, uint32_t &high, uint32_t &low)
{
    high = pack_half2(a, b);
    const float2 rounded = unpack_half2(high);
    low = pack_half2((a - rounded.x) * LOW_SCALE, (b - rounded.y) * LOW_SCALE);
}

// [A | b] of a feature and a place of a lane.
static __device__ __forceinline__ float filter_weight(const painn_train_step &s, int l, int f, int t, int place)
{
    const int K = s.n_radial, of_lane = s.basis_rows / 4, k = of_lane * t + place;
    if (place >= of_lane || k > K) return 0.0f;
    const float *w = s.weights.base;
    return k < K ? w[s.weights.layer[l].filter_weight + (int64_t)f * K + k] : w[s.weights.layer[l].filter_bias + f];
}

// Operand k of 128 bits for both of high and low halves.
static __device__ void write_filter(const painn_train_step &s, int k)
{
    const int F = s.n_features, lane = k % 32, step = k / 32 % 2, b = k / 64 % 3, slice = k / 192 % (F / 16), l = k / (12 * F);
    const int f = b * F + slice * 16 + lane / 4 * 2;
    uint32_t high[4], low[4];
    for (int r = 0; r < 4; r++) {
        const int place = 4 * step + r / 2 * 2;
        split_halves(filter_weight(s, l, f + r % 2, lane % 4, place), filter_weight(s, l, f + r % 2, lane % 4, place + 1),
                     high[r], low[r]);
    }
    uint4 *to = (uint4 *)s.filter_halves + (size_t)(k / 32) * 64 + lane;
    to[0] = make_uint4(high[0], high[1], high[2], high[3]);
    to[32] = make_uint4(low[0], low[1], low[2], low[3]);
}

// One tile of 32 × 32 weights of a matrix: into operands of products, as it is and transposed, which the way back reads. By a block, four numbers
// a thread. `paired`: rows 2r and 2r + 1 alternate number by number, as chains need them (painn_train_chain.cuh).
static __device__ void write_operands(const float *from, int n_out, int n_in, int tile, int parts, bool paired, float *to,
                                      float *transposed)
{
    __shared__ float rows[32][33];
    const int tiles_in = n_in / 32, out = tile / tiles_in * 32, in = tile % tiles_in * 32;
    const int y = (int)threadIdx.x / 8, x = (int)threadIdx.x % 8 * 4;
    if (out + y < n_out) {
        const size_t at = (size_t)(out + y) * n_in + in + x;
        float4 v = *(const float4 *)(from + at);
        if (parts == 1) v = make_float4(tf32_operand<1>(v.x), tf32_operand<1>(v.y), tf32_operand<1>(v.z), tf32_operand<1>(v.w));
        if (!paired) *(float4 *)(to + at) = v;
        rows[y][x] = v.x;
        rows[y][x + 1] = v.y;
        rows[y][x + 2] = v.z;
        rows[y][x + 3] = v.w;
    }
    __syncthreads();
    if (paired) {
        const int r = (int)threadIdx.x / 16 * 2, k = (int)threadIdx.x % 16 * 2; // of two rows two numbers each
        if (out + r < n_out)
            *(float4 *)(to + (size_t)(out + r) * n_in + 2 * (in + k)) =
                make_float4(rows[r][k], rows[r + 1][k], rows[r][k + 1], rows[r + 1][k + 1]);
        if (out + k < n_out)
            *(float4 *)(transposed + (size_t)(in + r) * n_out + 2 * (out + k)) =
                make_float4(rows[k][r], rows[k][r + 1], rows[k + 1][r], rows[k + 1][r + 1]);
    } else if (out + x < n_out) { // rows are a multiple of 16
        *(float4 *)(transposed + (size_t)(in + y) * n_out + out + x) =
            make_float4(rows[x][y], rows[x + 1][y], rows[x + 2][y], rows[x + 3][y]);
    }
}
static_assert((int)BEGIN_THREADS == 256, "a thread for four of 32 × 32 weights");

static __device__ void write_tile(const painn_train_step &s, int tile, int parts, bool paired)
{
    const int F = s.n_features, unit = F / 32 * (F / 32), of_layer = PAINN_OPERANDS_SIZE * unit, l = tile / of_layer;
    if (l >= s.n_layers) {
        write_operands(s.weights.base + s.weights.O1, s.n_hidden, F, tile - s.n_layers * of_layer, parts, paired,
                       painn_weights_of_readout(&s), painn_transposed_readout(&s));
        return;
    }
    const int64_t offset[PAINN_OPERANDS] = {s.weights.layer[l].W1, s.weights.layer[l].W2, s.weights.layer[l].U,
                                            s.weights.layer[l].M1, s.weights.layer[l].M2};
    for (int which = 0; which < PAINN_OPERANDS; which++) {
        int n_out, n_in, place;
        painn_operand_shape(which, &n_out, &n_in, &place);
        const int first = l * of_layer + place * unit;
        if (tile >= first && tile < first + n_out * n_in * unit)
            write_operands(s.weights.base + offset[which], n_out * F, n_in * F, tile - first, parts, paired,
                           painn_weights(&s, l, which), painn_transposed(&s, l, which));
    }
}

static int operand_tiles(const painn_train_step *s)
{
    const int unit = s->n_features / 32;
    return s->n_layers * PAINN_OPERANDS_SIZE * unit * unit + (s->n_hidden + 31) / 32 * unit;
}

// The slot of this call, the filters' weights as halves, and operands of products, a tile for each block behind `begin_blocks`.
static __global__ void __launch_bounds__(BEGIN_THREADS) begin(painn_train_step s, int begin_blocks, int parts, int paired)
{
    wait_for_previous();
    let_next_start();
    if ((int)blockIdx.x >= begin_blocks) {
        write_tile(s, (int)blockIdx.x - begin_blocks, parts, paired);
        return;
    }
    const int n_filter = s.n_layers * 12 * s.n_features;
    const int thread = (int)(blockIdx.x * blockDim.x + threadIdx.x), n_threads = begin_blocks * BEGIN_THREADS;
    const int words = s.n_branches * ((int)(sizeof(gpu_train_call) / 4) + (int)painn_train_list(s.frame_capacity));
    const uint32_t *slot = (const uint32_t *)((const char *)s.slots + (size_t)(*s.turn % PAINN_TRAIN_SLOTS) * s.slot_bytes);
    for (int k = thread; k < words; k += n_threads) ((uint32_t *)s.call)[k] = slot[k];
    for (int k = thread; k < n_filter; k += n_threads) write_filter(s, k);
}

// ---- gather -------------------------------------------------------------------------------------------------------------

// Index k with first[k] ≤ x < first[k + 1], k < n. By a whole warp, which compares 32 places at a time.
static __device__ __forceinline__ int find_frame(const int32_t *first, int n, int x)
{
    const int lane = (int)threadIdx.x % 32;
    int low = 0, high = n;
    while (high - low > 1) {
        const int step = (high - low + 31) / 32, place = low + lane * step;
        const int below = __popc(__ballot_sync(0xffffffffu, place < high && first[place] <= x)); // first[low] is
        low += (below - 1) * step;
        high = min(high, low + step);
    }
    return low;
}

// Sine and cosine of an angle that is reduced in float64 first.
static __device__ __forceinline__ void sine_cosine(double angle, float &sine, float &cosine)
{
    const float rest = (float)(angle - 6.283185307179586 * rint(angle * 0.15915494309189535));
    sine = sinf(rest);
    cosine = cosf(rest);
}

static __device__ __forceinline__ void cutoff_of(const painn_train_step &s, double d, float &f, float &df)
{
    f = df = 0;
    if (s.cutoff_function == 0) { // cosine
        if (d >= s.cutoff) return;
        const double k = 3.141592653589793 / s.cutoff;
        float sine, cosine;
        sine_cosine(k * d, sine, cosine);
        f = 0.5f * (1.0f + cosine);
        df = -0.5f * (float)k * sine;
    } else if (d + 1e-7 < s.cutoff) {
        const double x = d / s.cutoff, w = (1.0 - x) * (1.0 + x);
        f = expf((float)(1.0 - 1.0 / w));
        df = f > 0 ? (float)(-f * 2.0 * x / (s.cutoff * w * w)) : 0.0f;
    }
}

static __device__ __forceinline__ void radial_function(const painn_train_step &s, int k, double d, float &phi, float &dphi)
{
    if (s.basis == 0) { // Gaussian
        const float inverse = 1.0f / s.width[k], z = (float)(d - s.center[k]) * inverse;
        phi = expf(-0.5f * z * z);
        dphi = -z * inverse * phi;
    } else {
        const float w = s.frequency[k], inverse = (float)(1.0 / d);
        float sine, cosine;
        sine_cosine(w * d, sine, cosine);
        phi = sine * inverse;
        dphi = (w * cosine - phi) * inverse;
    }
}

// What lane t of a pair has of ψ and ψ' (painn_train_pairs.cuh); low halves for PARTS 3 only.
template <int PARTS> static __device__ __forceinline__ void write_basis(const painn_train_step &s, double d, int t, uint4 *to)
{
    const int of_lane = s.basis_rows / 4;
    float f, df, value[8], slope[8];
    cutoff_of(s, d, f, df);
#pragma unroll
    for (int place = 0; place < 8; place++) {
        const int k = of_lane * t + place;
        value[place] = slope[place] = 0;
        if (place >= of_lane || k > s.n_radial) continue;
        float phi = 1, dphi = 0;
        if (k < s.n_radial) radial_function(s, k, d, phi, dphi);
        value[place] = phi * f;
        slope[place] = dphi * f + phi * df;
    }
    uint32_t high[2][4], low[2][4];
    for (int r = 0; r < 4; r++) {
        split_halves(value[2 * r], value[2 * r + 1], high[0][r], low[0][r]);
        split_halves(slope[2 * r], slope[2 * r + 1], high[1][r], low[1][r]);
    }
    for (int which = 0; which < 2; which++) {
        to[which * BASIS_KIND + t] = make_uint4(high[which][0], high[which][1], high[which][2], high[which][3]);
        if (PARTS == 3) to[(2 + which) * BASIS_KIND + t] = make_uint4(low[which][0], low[which][1], low[which][2], low[which][3]);
    }
}

enum { GATHER_PAIRS = 16 }; // of an atom, above which it has a block instead of a warp

// An atom has `threads` threads, whole warps.
template <int PARTS> static __global__ void __launch_bounds__(THREADS) gather(painn_train_step s, int threads)
{
    wait_for_previous();
    let_next_start();
    const gpu_train_call &call = *s.call;
    const int lane = (int)threadIdx.x % threads, atom = (int)(blockIdx.x * THREADS + threadIdx.x) / threads;
    if (s.counts_turn && blockIdx.x == 0 && threadIdx.x == 0) *s.turn += 1;
    if (atom >= call.n_atoms) return;
    const int k = find_frame(s.first_atom, call.n_frames, atom), from_atom = s.first_atom[k];
    const int64_t there = s.set_atom[k] + (atom - from_atom), first_pair = s.set_pair[k], begin_there = s.data.first_pair[there];
    const int n_pairs = (int)(s.data.first_pair[there + 1] - begin_there);
    const int row = s.first_pair[k] + (int)(begin_there - first_pair), species = s.data.species[there];
    if (lane == 0) {
        s.species[atom] = species;
        s.frame[atom] = k;
        s.element[atom] = s.element_of[species];
        s.row[atom] = row;
        if (atom == call.n_atoms - 1) s.row[atom + 1] = row + n_pairs;
    }
    const float *embedding = s.weights.base + s.weights.embedding + (int64_t)species * s.n_features;
    for (int f = lane; f < s.n_features; f += threads) s.q[0].value[(size_t)atom * s.n_features + f] = embedding[f];
    for (int k4 = lane; k4 < 4 * n_pairs; k4 += threads) { // four lanes for each pair
        const int e = k4 / 4, t = k4 % 4;
        const int64_t from = begin_there + e;
        const size_t p = (size_t)row + e;
        if (t == 0) *(float4 *)(s.edge + 4 * p) = *(const float4 *)(s.data.edge + 4 * from);
        if (t == 1) s.neighbor[p] = from_atom + s.data.neighbor[from];
        if (t == 2) s.reverse[p] = s.first_pair[k] + s.data.reverse[from];
        write_basis<PARTS>(s, s.data.distance[from], t, (uint4 *)s.basis_halves + basis_place((int)p));
    }
}

// ---- gradient of the embedding ------------------------------------------------------------------------------------------

enum { ELEMENTS_AT_ONCE = 64 };

// Sums of q̄̇ by element over some atoms: a thread has a feature, so that no two threads add to one sum.
static __global__ void embedding_gradient(painn_train_step s)
{
    DYNAMIC_SHARED(memory);
    wait_for_previous();
    let_next_start();
    const int F = s.n_features, f = (int)threadIdx.x, n = s.call->n_atoms;
    const int first = (int)blockIdx.x * PAINN_TRAIN_EMBEDDING_ATOMS, last = min(n, first + PAINN_TRAIN_EMBEDDING_ATOMS);
    if (first >= n) return;
    float value[PAINN_TRAIN_EMBEDDING_ATOMS];
    int element[PAINN_TRAIN_EMBEDDING_ATOMS];
#pragma unroll
    for (int k = 0; k < PAINN_TRAIN_EMBEDDING_ATOMS; k++) {
        const int i = min(first + k, last - 1);
        element[k] = first + k < last ? s.element[i] : -1;
        value[k] = s.q_bar[0].tangent[(size_t)i * F + f];
    }
    float *sums = (float *)memory + f, *to = s.embedding_sums + (size_t)blockIdx.x * s.n_elements * F + f;
    for (int from = 0; from < s.n_elements; from += ELEMENTS_AT_ONCE) {
        const int count = min((int)ELEMENTS_AT_ONCE, s.n_elements - from);
        for (int e = 0; e < count; e++) sums[e * F] = 0;
#pragma unroll
        for (int k = 0; k < PAINN_TRAIN_EMBEDDING_ATOMS; k++) {
            const int e = element[k] - from;
            if (element[k] >= 0 && e >= 0 && e < count) sums[e * F] += value[k];
        }
        for (int e = 0; e < count; e++) to[(from + e) * F] = sums[e * F];
    }
}

// ---- launches -----------------------------------------------------------------------------------------------------------

extern "C" int painn_train_launch_begin(const painn_train_step *step, const painn_train_plan *plan, void *stream)
{
    const int n = step->n_layers * 12 * step->n_features, blocks = (n + BEGIN_THREADS - 1) / BEGIN_THREADS;
    return launch(begin, blocks + operand_tiles(step), BEGIN_THREADS, 0, 1, plan->overlap, stream, *step, blocks, plan->parts,
                  plan->chains);
}

extern "C" int painn_train_launch_gather(const painn_train_step *step, const painn_train_plan *plan, void *stream)
{
    const int threads = plan->n_pairs > GATHER_PAIRS * plan->n_atoms ? THREADS : 32;
    const int blocks = (plan->n_atoms * threads + THREADS - 1) / THREADS;
    return launch(plan->parts == 3 ? gather<3> : gather<1>, blocks, THREADS, 0, 1, plan->overlap, stream, *step, threads);
}

extern "C" int painn_train_launch_embedding(const painn_train_step *step, const painn_train_plan *plan, void *stream)
{
    const int n = (plan->n_atoms + PAINN_TRAIN_EMBEDDING_ATOMS - 1) / PAINN_TRAIN_EMBEDDING_ATOMS;
    const int at_once = step->n_elements < ELEMENTS_AT_ONCE ? step->n_elements : ELEMENTS_AT_ONCE;
    return launch(embedding_gradient, n, step->n_features, sizeof(float) * (size_t)(at_once * step->n_features), 1, plan->overlap,
                  stream, *step);
}
