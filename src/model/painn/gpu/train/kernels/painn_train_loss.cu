// SPDX-License-Identifier: MIT
// painn_train_loss.cu: what lies between the two passes of a training step, in one kernel: forces, the loss, the tangents of edges.
//
//   F_i = Σ_e g_rev(e) − g_e ;  dE/dε = Σ g ⊗ r
//   c_i = ∂L/∂ε_i ;  v_i = ∂L/∂F_i ;  B = (1/V) ∂L/∂σ                (the loss: model/train_batch.c)
//   w_e = v_i − v_j + B r_e ;  ḋ = u·w ;  u̇ = (w − u ḋ)/d
// A frame has a block, or a cluster where frames are large; an atom has 8 or 32 lanes, which take its pairs in turn. Sums over a frame are made
// in float64 and in a fixed order. Forces of a probe's other frame are made again, so that frames need not wait for one another. Labels
// are requested before the results of the reverse pass are waited for. Bound by latency.
#include "gpu/train/tf32_product.cuh"
#include "model/painn/gpu/train/painn_train_gpu.h"

enum { SMALL_THREADS = 128, THREADS = 256, CLUSTER = PAINN_TRAIN_FRAME_SHARES };

// ---- sums ---------------------------------------------------------------------------------------------------------------

// Sums over a frame: dE/dε, E, and of its atoms the loss, |ΔF|, ΔF² and how many have a force label.
enum { STRAIN = 0, ENERGY = 9, LOSS, ABSOLUTE, SQUARE, LABELLED, SUMS = PAINN_TRAIN_FRAME_TOTALS };
static_assert((int)LABELLED + 1 == (int)SUMS, "sums of a frame");

// Shared memory of a block.
struct block_sums {
    double totals[SUMS], shares[THREADS / 32][SUMS];
};

// Of a block; all threads may read the totals.
static __device__ __forceinline__ void sum_block(double (&value)[SUMS], block_sums &sums)
{
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2)
#pragma unroll
        for (int k = 0; k < SUMS; k++) value[k] += __shfl_xor_sync(0xffffffffu, value[k], offset);
    for (int k = 0; k < SUMS; k++)
        if (threadIdx.x % 32 == 0) sums.shares[threadIdx.x / 32][k] = value[k];
    __syncthreads();
    if (threadIdx.x < SUMS) {
        double sum = 0;
        for (int w = 0; w < (int)blockDim.x / 32; w++) sum += sums.shares[w][threadIdx.x];
        sums.totals[threadIdx.x] = sum;
    }
    __syncthreads();
}

// Of the blocks of frame k, which also see each other's v afterwards.
template <int C> static __device__ __forceinline__ void sum_frame(const painn_train_step &s, int k, double *totals)
{
    if (C == 1) return;
    double *shares = s.frame_shares + (size_t)k * C * SUMS;
    if (threadIdx.x < SUMS) shares[cluster_rank<C>() * SUMS + threadIdx.x] = totals[threadIdx.x];
    cluster_barrier<C>();
    if (threadIdx.x < SUMS) {
        double sum = 0;
        for (int b = 0; b < C; b++) sum += shares[b * SUMS + threadIdx.x];
        totals[threadIdx.x] = sum;
    }
    __syncthreads();
}

// ---- frames and their atoms ---------------------------------------------------------------------------------------------

// A frame, in the data set and in the batch.
struct frame_of_batch {
    int k, begin, end, frame;
    int64_t first;
};

static __device__ __forceinline__ frame_of_batch frame_of(const painn_train_step &s, int k)
{
    return {k, s.first_atom[k], s.first_atom[k + 1], s.frames[k], s.set_atom[k]};
}

static __device__ __forceinline__ bool is_probe(const painn_train_step &s, int plus)
{
    return s.data.probe_step && plus >= 0 && plus + 1 < s.call->n_frames && s.data.probe_step[s.frames[plus]] > 0 &&
           s.frames[plus + 1] == s.frames[plus] + 1;
}

// What the loss compares with. side: 1 of a Hessian probe's + frame, −1 of its − frame, else 0; `other`: the probe's other frame.
struct frame_labels {
    frame_of_batch own, other;
    int side;
    bool atoms;
};

static __device__ __forceinline__ frame_labels labels_of(const painn_train_step &s, int k)
{
    frame_labels f;
    f.own = f.other = frame_of(s, k);
    f.side = is_probe(s, k) ? 1 : is_probe(s, k - 1) ? -1 : 0;
    f.atoms = s.data.atom_energies && !isnan(s.data.atom_energies[f.own.first]);
    if (f.side) f.other = frame_of(s, k + f.side);
    return f;
}

// Some lanes of each atom: `atom` is the first round's of this thread, `step` atoms before that of the next round.
struct atom_lanes {
    int first, atom, step, lane, lanes;
};

template <int C> static __device__ __forceinline__ atom_lanes lanes_of(const frame_of_batch &b, int lanes)
{
    const int at_once = (int)blockDim.x / lanes, first = b.begin + cluster_rank<C>() * at_once;
    return {first, first + (int)threadIdx.x / lanes, C * at_once, (int)threadIdx.x % lanes, lanes};
}

// Reads the first pair of a lane into the L1 cache, before the previous kernel ends.
static __device__ __forceinline__ float read_first_pair(const painn_train_step &s, const frame_of_batch &b, const atom_lanes &a)
{
    if (a.atom >= b.end || s.row[a.atom] + a.lane >= s.row[a.atom + 1]) return 0;
    const int p = s.row[a.atom] + a.lane;
    return read_early(s.edge + 4 * (size_t)p) + read_early((const float *)s.reverse + p);
}

// ---- forces -------------------------------------------------------------------------------------------------------------

// ū and dE/dd of the reverse of pair p, the sum of its PIECES groups of features, whose loads are requested together.
template <int PIECES> struct pair_pieces {
    float4 v[PIECES];

    __device__ __forceinline__ void load(const painn_train_step &s, size_t p)
    {
        const float4 *from = (const float4 *)s.pair_gradient + p * PIECES;
#pragma unroll
        for (int k = 0; k < PIECES; k++) v[k] = from[k];
    }
    __device__ __forceinline__ float4 sum() const
    {
        float4 total = v[0];
#pragma unroll
        for (int k = 1; k < PIECES; k++) total = total + v[k];
        return total;
    }
};

// dE/dr of a pair: κ u + (ū − u (u·ū))/d.
static __device__ __forceinline__ void gradient_of(const float4 &bar, float ux, float uy, float uz, float inverse, float (&g)[3])
{
    const float along = ux * bar.x + uy * bar.y + uz * bar.z, rest = bar.w - along * inverse;
    g[0] = rest * ux + bar.x * inverse;
    g[1] = rest * uy + bar.y * inverse;
    g[2] = rest * uz + bar.z * inverse;
}

// Force and dE/dε of an atom in all its lanes, zeros without `there`. By whole warps.
template <int PIECES>
static __device__ __forceinline__ void sum_pairs(const painn_train_step &s, const atom_lanes &a, int atom, bool there,
                                                 float (&sum)[12])
{
    const int end = there ? s.row[atom + 1] : 0;
    for (int k = 0; k < 12; k++) sum[k] = 0;
    for (int p = there ? s.row[atom] + a.lane : 0; p < end; p += a.lanes) {
        const size_t reverse = (size_t)s.reverse[p];
        const float4 edge = *(const float4 *)(s.edge + 4 * (size_t)p);
        float own[3], other[3];
        pair_pieces<PIECES> own_pieces, other_pieces;
        own_pieces.load(s, (size_t)p);
        other_pieces.load(s, reverse);
        const float inverse = 1.0f / edge.w;
        gradient_of(own_pieces.sum(), -edge.x, -edge.y, -edge.z, inverse, own); // pair p has what its reverse sends
        gradient_of(other_pieces.sum(), edge.x, edge.y, edge.z, inverse, other);
        const float r[3] = {edge.x * edge.w, edge.y * edge.w, edge.z * edge.w};
        for (int c = 0; c < 3; c++) {
            sum[c] += other[c] - own[c];
            for (int b = 0; b < 3; b++) sum[3 + 3 * c + b] += other[c] * r[b];
        }
    }
    for (int offset = a.lanes / 2; offset > 0; offset /= 2)
#pragma unroll
        for (int k = 0; k < 12; k++) sum[k] += __shfl_xor_sync(0xffffffffu, sum[k], offset);
}

// ---- loss ---------------------------------------------------------------------------------------------------------------

// v of an atom by its own force label; returns Σ |ΔF| over its components, −1 without a label.
static __device__ __forceinline__ double force_term(const painn_train_step &s, const frame_of_batch &b, int at,
                                                    const float *force, double (&v)[3], double (&total)[SUMS])
{
    const gpu_train_call &call = *s.call;
    const double *label = s.data.forces + 3 * (b.first + at);
    const double factor = call.forces_weight * s.data.weight[b.frame] / (3.0 * call.total_atoms), limit = call.huber_forces;
    double delta[3], square = 0, absolute = 0;
    if (isnan(label[0])) return -1;
    for (int c = 0; c < 3; c++) {
        delta[c] = force[c] - label[c];
        square += delta[c] * delta[c];
        absolute += fabs(delta[c]);
    }
    total[ABSOLUTE] += absolute;
    total[SQUARE] += square;
    total[LABELLED] += 1;
    const double size = limit > 0 ? sqrt(square) : 0;
    const bool beyond = size > limit;
    total[LOSS] += factor * (beyond ? 2 * limit * size - limit * limit : square);
    for (int c = 0; c < 3; c++) v[c] += 2 * factor * (beyond ? limit / size : 1.0) * delta[c];
    return absolute;
}

// v of an atom of a Hessian probe.
static __device__ __forceinline__ void probe_term(const painn_train_step &s, const frame_labels &f, int at, const float *force,
                                                  const float *force_other, double (&v)[3], double (&total)[SUMS])
{
    const gpu_train_call &call = *s.call;
    const int plus_frame = f.side > 0 ? f.own.frame : f.other.frame;
    const double *label = s.data.forces + 3 * (f.own.first + at), *label_other = s.data.forces + 3 * (f.other.first + at);
    const double per_step = 0.5 / s.data.probe_step[plus_frame];
    const double factor = call.hessian_weight * s.data.weight[plus_frame] / (3.0 * call.total_atoms);
    for (int c = 0; c < 3; c++) { // side · Δy
        const double delta = -per_step * (((double)force[c] - force_other[c]) - (label[c] - label_other[c]));
        if (isnan(label[c] - label_other[c])) continue;
        v[c] -= 2 * factor * delta * per_step;
        if (f.side > 0) total[LOSS] += factor * delta * delta;
    }
}

static __device__ __forceinline__ double atom_factor(const painn_train_step &s, const frame_of_batch &b)
{
    return s.call->atom_energies_weight * s.data.weight[b.frame] / s.call->total_atoms;
}

// Error of an atom's energy, 0 without its label.
static __device__ __forceinline__ double atom_error(const painn_train_step &s, const frame_labels &f, int atom)
{
    return f.atoms ? s.atom_energy[atom] - s.data.atom_energies[f.own.first + atom - f.own.begin] : 0.0;
}

// The share of an atom in the sums of its frame, and its v.
static __device__ __forceinline__ void add_atom(const painn_train_step &s, const frame_labels &f, int atom,
                                                const float (&sum)[12], const float (&other)[12], double (&total)[SUMS])
{
    double v[3] = {};
    const double error = atom_error(s, f, atom);
    for (int k = 0; k < 9; k++) total[STRAIN + k] += sum[3 + k];
    total[ENERGY] += s.atom_energy[atom];
    if (f.atoms) total[LOSS] += atom_factor(s, f.own) * error * error;
    s.force_error[atom] = force_term(s, f.own, atom - f.own.begin, sum, v, total);
    if (f.side) probe_term(s, f, atom - f.own.begin, sum, other, v, total);
    for (int c = 0; c < 3; c++) s.v[3 * (size_t)atom + c] = (float)v[c];
}

// ∂L/∂E of a frame from its sums, whose fields it adds to `sums`.
static __device__ __forceinline__ double energy_term(const painn_train_step &s, const frame_of_batch &b, const double *totals,
                                                     double *sums)
{
    const gpu_train_call &call = *s.call;
    const double label = s.data.energy[b.frame];
    if (isnan(label)) return 0;
    const int n = b.end - b.begin;
    const double per = call.energy_per_atom ? n : 1.0, delta = totals[ENERGY] - label;
    const double factor = call.energy_weight * s.data.weight[b.frame] / call.total_frames / (per * per);
    sums[0] += factor * delta * delta;
    sums[1] = fabs(delta) / n;
    sums[2] = delta * delta / ((double)n * n);
    sums[6] = 1;
    return 2 * factor * delta;
}

// B of a frame.
static __device__ __forceinline__ void stress_term(const painn_train_step &s, const frame_of_batch &b, const double *totals,
                                                   float (&B)[9], double *sums)
{
    const gpu_train_call &call = *s.call;
    const double *label = s.data.stress + 9 * (int64_t)b.frame, volume = s.data.volume[b.frame];
    for (int k = 0; k < 9; k++) B[k] = 0;
    if (isnan(label[0]) || isnan(volume)) return;
    const double factor = call.stress_weight * s.data.weight[b.frame] / (9.0 * call.total_frames);
    for (int k = 0; k < 9; k++) {
        const double delta = totals[STRAIN + k] / volume - label[k];
        B[k] = (float)(2 * factor * delta / volume);
        sums[0] += factor * delta * delta;
        if (k / 3 <= k % 3) sums[5] += fabs(delta);
    }
    sums[8] = 1;
}

// ---- tangents of pairs --------------------------------------------------------------------------------------------------

static __device__ __forceinline__ void pair_tangents(const painn_train_step &s, const atom_lanes &a, int atom,
                                                     const float (&B)[9])
{
    const float *v = s.v + 3 * (size_t)atom;
    for (int p = s.row[atom] + a.lane; p < s.row[atom + 1]; p += a.lanes) {
        const float4 edge = *(const float4 *)(s.edge + 4 * (size_t)p);
        const float *v_j = s.v + 3 * (size_t)s.neighbor[p], u[3] = {edge.x, edge.y, edge.z};
        float w[3], along = 0;
        for (int c = 0; c < 3; c++) {
            w[c] = v[c] - v_j[c] + edge.w * (B[3 * c] * u[0] + B[3 * c + 1] * u[1] + B[3 * c + 2] * u[2]);
            along += u[c] * w[c];
        }
        *(float4 *)(s.edge_tangent + 4 * (size_t)p) =
            make_float4((w[0] - u[0] * along) / edge.w, (w[1] - u[1] * along) / edge.w, (w[2] - u[2] * along) / edge.w, along);
    }
}

// ---- kernel -------------------------------------------------------------------------------------------------------------

// PIECES: groups of 16 features.
template <int C, int PIECES> static __global__ void __launch_bounds__(THREADS) loss(painn_train_step s, int lanes)
{
    DYNAMIC_SHARED(memory);
    block_sums &block = *(block_sums *)memory;
    const double *totals = block.totals;
    const int k = (int)blockIdx.x / C;
    if (k >= s.call->n_frames) { // written by the first kernels of the step, as frames and edges
        wait_for_previous();
        return;
    }
    const frame_labels f = labels_of(s, k);
    const atom_lanes a = lanes_of<C>(f.own, lanes);
    const float early = read_first_pair(s, f.own, a);
    wait_for_previous();
    let_next_start();
    keep_read(early);
    double total[SUMS] = {};
    for (int first = a.first, atom = a.atom; first < f.own.end; first += a.step, atom += a.step) {
        float sum[12], other[12];
        sum_pairs<PIECES>(s, a, atom, atom < f.own.end, sum);
        if (f.side) sum_pairs<PIECES>(s, a, atom - f.own.begin + f.other.begin, atom < f.own.end, other);
        if (atom < f.own.end && a.lane == 0) add_atom(s, f, atom, sum, other, total);
    }
    sum_block(total, block);
    sum_frame<C>(s, k, block.totals);
    float B[9];
    double sums[GPU_TRAIN_FRAME_SUMS] = {totals[LOSS], 0, 0, totals[ABSOLUTE], totals[SQUARE]};
    const double c = energy_term(s, f.own, totals, sums);
    stress_term(s, f.own, totals, B, sums);
    for (int atom = f.own.begin + cluster_rank<C>() * (int)blockDim.x + (int)threadIdx.x; atom < f.own.end;
         atom += C * (int)blockDim.x)
        s.c[atom] = (float)(c + 2 * atom_factor(s, f.own) * atom_error(s, f, atom));
    for (int atom = a.atom; atom < f.own.end; atom += a.step) pair_tangents(s, a, atom, B);
    if (cluster_rank<C>() > 0 || threadIdx.x > 0) return;
    sums[7] = 3 * totals[LABELLED];
    for (int field = 0; field < GPU_TRAIN_FRAME_SUMS; field++)
        s.frame_sums[(size_t)k * GPU_TRAIN_FRAME_SUMS + field] = sums[field];
}

// A block for each atomic number, which adds up its atoms in a fixed order.
static __global__ void __launch_bounds__(THREADS) element_errors(painn_train_step s, painn_train_elements *sums)
{
    __shared__ double shares[2][THREADS];
    wait_for_previous();
    let_next_start();
    const int z = (int)blockIdx.x, n = s.call->n_atoms, thread = (int)threadIdx.x;
    double absolute = 0, count = 0;
    for (int i = thread; i < n; i += THREADS) {
        if (s.species[i] != z || s.force_error[i] < 0) continue;
        absolute += s.force_error[i];
        count += 3;
    }
    shares[0][thread] = absolute;
    shares[1][thread] = count;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        for (int k = 0; k < 2 && thread < half; k++) shares[k][thread] += shares[k][thread + half];
        __syncthreads();
    }
    if (thread > 0) return;
    sums->absolute[z] += shares[0][0];
    sums->n_components[z] += shares[1][0];
}

// ---- launches -----------------------------------------------------------------------------------------------------------

extern "C" int painn_train_launch_element_errors(const painn_train_step *step, const painn_train_plan *plan,
                                                 painn_train_elements *sums, void *stream)
{
    return launch(element_errors, MLFF_MAX_ATOMIC_NUMBER + 1, THREADS, 0, 1, plan->overlap, stream, *step, sums);
}

template <int PIECES> static int launch_loss(const painn_train_step *step, const painn_train_plan *plan, void *stream)
{
    const bool large = plan->n_atoms > 32 * plan->n_frames;
    const int lanes = plan->n_pairs > 16 * plan->n_atoms ? 32 : 8;
    if (large && plan->overlap) // since compute capability 9.0
        return launch(loss<CLUSTER, PIECES>, plan->n_frames * CLUSTER, THREADS, sizeof(block_sums), CLUSTER, plan->overlap,
                      stream, *step, lanes);
    return launch(loss<1, PIECES>, plan->n_frames, large ? THREADS : SMALL_THREADS, sizeof(block_sums), 1, plan->overlap, stream,
                  *step, lanes);
}

extern "C" int painn_train_launch_loss(const painn_train_step *step, const painn_train_plan *plan, void *stream)
{
    return step->n_features == 128  ? launch_loss<8>(step, plan, stream)
           : step->n_features == 64 ? launch_loss<4>(step, plan, stream)
                                    : launch_loss<2>(step, plan, stream);
}
