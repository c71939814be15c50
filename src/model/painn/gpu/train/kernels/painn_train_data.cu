// SPDX-License-Identifier: MIT
// painn_train_data.cu: what surrounds the network in a training step: the batch is gathered from the data set, radial functions
// are made, forces and the loss are summed, edges get their tangents.
//
//   ψ_k(d) = φ_k(d) f(d), ψ_K = f ;  F_i = Σ_e g_rev(e') − g_e ;  dE/dε = Σ g ⊗ r
//   c_i = ∂L/∂ε_i ;  v_i = ∂L/∂F_i ;  B = (1/V) ∂L/∂σ                (the loss: model/train_batch.c)
//   w_e = v_i − v_j + B r_e ;  ḋ = u·w ;  u̇ = (w − u ḋ)/d
// A warp has an atom and its lanes the pairs; a block has a frame's loss, in float64. Bound by latency and memory.
#include "gpu/train/tf32_product.cuh"
#include "painn_train_math.cuh"
#include "painn_train_pairs.cuh"

enum { THREADS = 128, WARPS = THREADS / 32, BEGIN_THREADS = 256 };

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

// One tile of 32 × 32 weights of a matrix: into operands of products, as it is and transposed, which the way back reads. By a block.
static __device__ void write_operands(const float *from, int n_out, int n_in, int tile, int parts, float *to, float *transposed)
{
    __shared__ float rows[32][33];
    const int tiles_in = n_in / 32, out = tile / tiles_in * 32, in = tile % tiles_in * 32;
    const int x = (int)threadIdx.x % 32, y = (int)threadIdx.x / 32;
    for (int r = y; r < 32 && out + r < n_out; r += BEGIN_THREADS / 32) {
        const size_t at = (size_t)(out + r) * n_in + in + x;
        rows[r][x] = to[at] = parts == 1 ? tf32_operand<1>(from[at]) : from[at];
    }
    __syncthreads();
    for (int c = y; c < 32 && out + x < n_out; c += BEGIN_THREADS / 32)
        transposed[(size_t)(in + c) * n_out + out + x] = rows[x][c];
}

static __device__ void write_tile(const painn_train_step &s, int tile, int parts)
{
    const int F = s.n_features, unit = F / 32 * (F / 32), of_layer = PAINN_OPERANDS_SIZE * unit, l = tile / of_layer;
    if (l >= s.n_layers) {
        write_operands(s.weights.base + s.weights.O1, s.n_hidden, F, tile - s.n_layers * of_layer, parts,
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
            write_operands(s.weights.base + offset[which], n_out * F, n_in * F, tile - first, parts, painn_weights(&s, l, which),
                           painn_transposed(&s, l, which));
    }
}

static int operand_tiles(const painn_train_step *s)
{
    const int unit = s->n_features / 32;
    return s->n_layers * PAINN_OPERANDS_SIZE * unit * unit + (s->n_hidden + 31) / 32 * unit;
}

// The slot of this call, the filters' weights as halves, and operands of products, a tile for each block behind `begin_blocks`.
static __global__ void __launch_bounds__(BEGIN_THREADS) begin(painn_train_step s, int begin_blocks, int parts)
{
    wait_for_previous();
    let_next_start();
    if ((int)blockIdx.x >= begin_blocks) {
        write_tile(s, (int)blockIdx.x - begin_blocks, parts);
        return;
    }
    const int n_filter = s.n_layers * 12 * s.n_features;
    const int thread = (int)(blockIdx.x * blockDim.x + threadIdx.x), n_threads = begin_blocks * BEGIN_THREADS;
    const int words = (int)(sizeof(gpu_train_call) / 4) + 3 * s.frame_capacity + 2;
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
        const float w = s.width[k], z = (float)((d - s.center[k]) / w);
        phi = expf(-0.5f * z * z);
        dphi = -z / w * phi;
    } else {
        const float w = s.frequency[k], inverse = (float)(1.0 / d);
        float sine, cosine;
        sine_cosine(w * d, sine, cosine);
        phi = sine * inverse;
        dphi = (w * cosine - phi) * inverse;
    }
}

// What lane t of a pair has of ψ and ψ' (painn_train_pairs.cuh).
static __device__ void write_basis(const painn_train_step &s, double d, int t, uint4 *to)
{
    const int of_lane = s.basis_rows / 4;
    float f, df, value[8], slope[8];
    cutoff_of(s, d, f, df);
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
        to[8 * which + t] = make_uint4(high[which][0], high[which][1], high[which][2], high[which][3]);
        to[8 * which + 4 + t] = make_uint4(low[which][0], low[which][1], low[which][2], low[which][3]);
    }
}

enum { GATHER_PAIRS = 16 }; // of an atom, above which it has a block instead of a warp

// An atom has `threads` threads, whole warps.
static __global__ void __launch_bounds__(THREADS) gather(painn_train_step s, int threads)
{
    wait_for_previous();
    let_next_start();
    const gpu_train_call &call = *s.call;
    const int lane = (int)threadIdx.x % threads, atom = (int)(blockIdx.x * THREADS + threadIdx.x) / threads;
    if (blockIdx.x == 0 && threadIdx.x == 0) *s.turn += 1;
    if (atom >= call.n_atoms) return;
    const int k = find_frame(s.first_atom, call.n_frames, atom), from_atom = s.first_atom[k];
    const int64_t first = s.data.first_atom[s.frames[k]], there = first + (atom - from_atom);
    const int64_t first_pair = s.data.first_pair[first], begin_there = s.data.first_pair[there];
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
        write_basis(s, s.data.distance[from], t, (uint4 *)s.basis_halves + p * 16);
    }
}

// ---- forces -------------------------------------------------------------------------------------------------------------

// dE/dr of the reverse of pair p: κ u + (ū − u (u·ū))/d with u = −u_p.
static __device__ __forceinline__ void gradient_of(const painn_train_step &s, size_t p, const float4 &edge, float (&g)[3])
{
    const int pieces = s.n_features / 16;
    float bar[3] = {}, kappa = 0;
    for (int k = 0; k < pieces; k++) {
        const float4 v = *(const float4 *)(s.pair_gradient + (p * pieces + k) * 4);
        bar[0] += v.x;
        bar[1] += v.y;
        bar[2] += v.z;
        kappa += v.w;
    }
    const float u[3] = {-edge.x, -edge.y, -edge.z}, along = u[0] * bar[0] + u[1] * bar[1] + u[2] * bar[2];
    for (int c = 0; c < 3; c++) g[c] = kappa * u[c] + (bar[c] - u[c] * along) / edge.w;
}

static __global__ void __launch_bounds__(THREADS) forces(painn_train_step s)
{
    wait_for_previous();
    let_next_start();
    const int lane = (int)threadIdx.x % 32, atom = (int)blockIdx.x * WARPS + (int)threadIdx.x / 32;
    if (atom >= s.call->n_atoms) return;
    float sum[12] = {}; // force, dE/dε
    for (int p = s.row[atom] + lane; p < s.row[atom + 1]; p += 32) {
        const size_t reverse = (size_t)s.reverse[p];
        const float4 edge = *(const float4 *)(s.edge + 4 * (size_t)p);
        float own[3], other[3];
        gradient_of(s, (size_t)p, edge, own);
        gradient_of(s, reverse, make_float4(-edge.x, -edge.y, -edge.z, edge.w), other);
        const float r[3] = {edge.x * edge.w, edge.y * edge.w, edge.z * edge.w};
        for (int a = 0; a < 3; a++) {
            sum[a] += other[a] - own[a];
            for (int b = 0; b < 3; b++) sum[3 + 3 * a + b] += other[a] * r[b];
        }
    }
    for (int k = 0; k < 12; k++)
        for (int offset = 16; offset > 0; offset /= 2) sum[k] += __shfl_xor_sync(0xffffffffu, sum[k], offset);
    if (lane > 0) return;
    for (int a = 0; a < 3; a++) s.forces[3 * (size_t)atom + a] = sum[a];
    for (int a = 0; a < 9; a++) s.strain[9 * (size_t)atom + a] = sum[3 + a];
}

// ---- loss ---------------------------------------------------------------------------------------------------------------

// Sums of N values over a block of THREADS or 32 threads, in all of them.
template <int N> static __device__ void block_sums(double (&value)[N])
{
    __shared__ double sums[WARPS][N];
    __syncthreads();
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2)
#pragma unroll
        for (int k = 0; k < N; k++) value[k] += __shfl_xor_sync(0xffffffffu, value[k], offset);
    if (blockDim.x == 32) return;
    for (int k = 0; k < N; k++)
        if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32][k] = value[k];
    __syncthreads();
    for (int k = 0; k < N; k++) {
        value[k] = 0;
        for (int w = 0; w < WARPS; w++) value[k] += sums[w][k];
    }
}

// One frame of the batch, in the data set and in the batch.
struct frame_of_batch {
    int k, begin, end, frame;
    int64_t first;
};

static __device__ __forceinline__ frame_of_batch frame_of(const painn_train_step &s, int k)
{
    return {k, s.first_atom[k], s.first_atom[k + 1], s.frames[k], s.data.first_atom[s.frames[k]]};
}

// ∂L/∂E of the frame; its share of the loss, by one thread. The sum over atoms is `energy`.
static __device__ double energy_term(const painn_train_step &s, const frame_of_batch &b, double energy, double *sums)
{
    const gpu_train_call &call = *s.call;
    const double label = s.data.energy[b.frame];
    if (isnan(label)) return 0;
    const int n = b.end - b.begin;
    const double per = call.energy_per_atom ? n : 1.0, delta = energy - label;
    const double factor = call.energy_weight * s.data.weight[b.frame] / call.total_frames / (per * per);
    sums[0] += factor * delta * delta;
    sums[1] = fabs(delta) / n;
    sums[2] = delta * delta / ((double)n * n);
    sums[6] = 1;
    return 2 * factor * delta;
}

static __device__ void stress_term(const painn_train_step &s, const frame_of_batch &b, const double *strain, double *sums)
{
    const gpu_train_call &call = *s.call;
    const double *label = s.data.stress + 9 * (int64_t)b.frame, volume = s.data.volume[b.frame];
    const bool there = !isnan(label[0]) && !isnan(volume);
    const double factor = call.stress_weight * s.data.weight[b.frame] / (9.0 * call.total_frames);
    for (int a = 0; a < 9; a++) {
        const double delta = there ? strain[a] / volume - label[a] : 0.0;
        s.B[9 * (size_t)b.k + a] = there ? (float)(2 * factor * delta / volume) : 0.0f;
        sums[0] += factor * delta * delta;
        sums[5] += fabs(delta);
    }
    sums[8] = there ? 1 : 0;
}

// v of one atom by its own force label.
static __device__ void force_term(const painn_train_step &s, const frame_of_batch &b, int atom, double (&v)[3], double *sums)
{
    const gpu_train_call &call = *s.call;
    const double *label = s.data.forces + 3 * (b.first + atom - b.begin);
    const float *force = s.forces + 3 * (size_t)atom;
    const double factor = call.forces_weight * s.data.weight[b.frame] / (3.0 * call.total_atoms), limit = call.huber_forces;
    double delta[3], square = 0;
    for (int a = 0; a < 3; a++) {
        delta[a] = force[a] - label[a];
        square += delta[a] * delta[a];
        sums[3] += fabs(delta[a]);
    }
    sums[4] += square;
    const double size = sqrt(square);
    const bool beyond = limit > 0 && size > limit;
    sums[0] += factor * (beyond ? 2 * limit * size - limit * limit : square);
    for (int a = 0; a < 3; a++) v[a] += 2 * factor * (beyond ? limit / size : 1.0) * delta[a];
}

// v of one atom of a Hessian probe: `side` 1 of its + frame, −1 of its − frame, which is `other`.
static __device__ void probe_term(const painn_train_step &s, const frame_of_batch &b, const frame_of_batch &other, int side,
                                  int atom, double (&v)[3], double *sums)
{
    const gpu_train_call &call = *s.call;
    const int at = atom - b.begin, plus_frame = side > 0 ? b.frame : other.frame;
    const double *label = s.data.forces + 3 * (b.first + at), *label_other = s.data.forces + 3 * (other.first + at);
    const float *force = s.forces + 3 * (size_t)atom, *force_other = s.forces + 3 * (size_t)(other.begin + at);
    const double per_step = 0.5 / s.data.probe_step[plus_frame];
    const double factor = call.hessian_weight * s.data.weight[plus_frame] / (3.0 * call.total_atoms);
    for (int a = 0; a < 3; a++) { // side · Δy
        const double delta = -per_step * (((double)force[a] - force_other[a]) - (label[a] - label_other[a]));
        v[a] -= 2 * factor * delta * per_step;
        if (side > 0) sums[0] += factor * delta * delta;
    }
}

static __device__ __forceinline__ bool is_probe(const painn_train_step &s, int plus)
{
    return s.data.probe_step && plus >= 0 && plus + 1 < s.call->n_frames && s.data.probe_step[s.frames[plus]] > 0 &&
           s.frames[plus + 1] == s.frames[plus] + 1;
}

static __global__ void __launch_bounds__(THREADS) loss(painn_train_step s)
{
    wait_for_previous();
    let_next_start();
    const int k = (int)blockIdx.x;
    if (k >= s.call->n_frames) return;
    const gpu_train_call &call = *s.call;
    const frame_of_batch b = frame_of(s, k);
    const bool have_forces = !isnan(s.data.forces[3 * b.first]), plus = is_probe(s, k), minus = is_probe(s, k - 1);
    const bool have_atoms = s.data.atom_energies && !isnan(s.data.atom_energies[b.first]);
    const frame_of_batch other = plus ? frame_of(s, k + 1) : minus ? frame_of(s, k - 1) : b;
    const bool probe = (plus || minus) && have_forces && !isnan(s.data.forces[3 * other.first]);
    double sums[GPU_TRAIN_FRAME_SUMS] = {}, total[10] = {}; // strain, energy
    for (int i = b.begin + (int)threadIdx.x; i < b.end; i += (int)blockDim.x) {
        total[9] += s.atom_energy[i];
        for (int a = 0; a < 9; a++) total[a] += s.strain[9 * (size_t)i + a];
    }
    block_sums(total);
    double ignored[GPU_TRAIN_FRAME_SUMS] = {};
    const double c = energy_term(s, b, total[9], threadIdx.x ? ignored : sums);
    if (threadIdx.x == 0) stress_term(s, b, total, sums);
    const double atoms_factor = call.atom_energies_weight * s.data.weight[b.frame] / call.total_atoms;
    for (int i = b.begin + (int)threadIdx.x; i < b.end; i += (int)blockDim.x) {
        double v[3] = {}, own = 0;
        if (have_forces) force_term(s, b, i, v, sums);
        if (probe && plus) probe_term(s, b, other, 1, i, v, sums);
        if (probe && minus) probe_term(s, b, other, -1, i, v, sums);
        if (have_atoms) {
            own = s.atom_energy[i] - s.data.atom_energies[b.first + i - b.begin];
            sums[0] += atoms_factor * own * own;
        }
        s.c[i] = (float)(c + 2 * atoms_factor * own);
        for (int a = 0; a < 3; a++) s.v[3 * (size_t)i + a] = (float)v[a];
    }
    if (threadIdx.x == 0 && have_forces) sums[7] = 3.0 * (b.end - b.begin);
    block_sums(sums);
    for (int a = 0; a < GPU_TRAIN_FRAME_SUMS && threadIdx.x == 0; a++)
        s.frame_sums[(size_t)k * GPU_TRAIN_FRAME_SUMS + a] = sums[a];
}

// ---- tangents of pairs --------------------------------------------------------------------------------------------------

static __global__ void __launch_bounds__(THREADS) pair_tangents(painn_train_step s)
{
    wait_for_previous();
    let_next_start();
    const int lane = (int)threadIdx.x % 32, atom = (int)blockIdx.x * WARPS + (int)threadIdx.x / 32;
    if (atom >= s.call->n_atoms) return;
    const float *v = s.v + 3 * (size_t)atom, *B = s.B + 9 * (size_t)s.frame[atom];
    for (int p = s.row[atom] + lane; p < s.row[atom + 1]; p += 32) {
        const float4 edge = *(const float4 *)(s.edge + 4 * (size_t)p);
        const float *v_j = s.v + 3 * (size_t)s.neighbor[p], u[3] = {edge.x, edge.y, edge.z};
        float w[3], along = 0;
        for (int a = 0; a < 3; a++) {
            w[a] = v[a] - v_j[a] + edge.w * (B[3 * a] * u[0] + B[3 * a + 1] * u[1] + B[3 * a + 2] * u[2]);
            along += u[a] * w[a];
        }
        *(float4 *)(s.edge_tangent + 4 * (size_t)p) =
            make_float4((w[0] - u[0] * along) / edge.w, (w[1] - u[1] * along) / edge.w, (w[2] - u[2] * along) / edge.w, along);
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

static int blocks_of_atoms(const painn_train_plan *plan)
{
    return (plan->n_atoms + WARPS - 1) / WARPS;
}

extern "C" int painn_train_launch_begin(const painn_train_step *step, const painn_train_plan *plan, void *stream)
{
    const int n = step->n_layers * 12 * step->n_features, blocks = (n + BEGIN_THREADS - 1) / BEGIN_THREADS;
    return launch(begin, blocks + operand_tiles(step), BEGIN_THREADS, 0, 1, plan->overlap, stream, *step, blocks, plan->parts);
}

extern "C" int painn_train_launch_gather(const painn_train_step *step, const painn_train_plan *plan, void *stream)
{
    const int threads = plan->n_pairs > GATHER_PAIRS * plan->n_atoms ? THREADS : 32;
    const int blocks = (plan->n_atoms * threads + THREADS - 1) / THREADS;
    return launch(gather, blocks, THREADS, 0, 1, plan->overlap, stream, *step, threads);
}

extern "C" int painn_train_launch_forces(const painn_train_step *step, const painn_train_plan *plan, void *stream)
{
    return launch(forces, blocks_of_atoms(plan), THREADS, 0, 1, plan->overlap, stream, *step);
}

extern "C" int painn_train_launch_loss(const painn_train_step *step, const painn_train_plan *plan, void *stream)
{
    const int threads = plan->n_atoms > 32 * plan->n_frames ? THREADS : 32;
    return launch(loss, plan->n_frames, threads, 0, 1, plan->overlap, stream, *step);
}

extern "C" int painn_train_launch_pair_tangents(const painn_train_step *step, const painn_train_plan *plan, void *stream)
{
    return launch(pair_tangents, blocks_of_atoms(plan), THREADS, 0, 1, plan->overlap, stream, *step);
}

extern "C" int painn_train_launch_embedding(const painn_train_step *step, const painn_train_plan *plan, void *stream)
{
    const int n = (plan->n_atoms + PAINN_TRAIN_EMBEDDING_ATOMS - 1) / PAINN_TRAIN_EMBEDDING_ATOMS;
    const int at_once = step->n_elements < ELEMENTS_AT_ONCE ? step->n_elements : ELEMENTS_AT_ONCE;
    return launch(embedding_gradient, n, step->n_features, sizeof(float) * (size_t)(at_once * step->n_features), 1, plan->overlap,
                  stream, *step);
}
