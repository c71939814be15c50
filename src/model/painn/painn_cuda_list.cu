// SPDX-License-Identifier: MIT
// painn_cuda_list.cu: neighbours and edge geometry on the GPU, made anew in each step: no skin, nothing to go stale.
//
//   s_i = (R_i − R_first) · cell⁻¹, wrapped on periodic axes ;  r = (s_j − s_i + S) · cell, S integer, |r| < cutoff
//
// `prepare` wraps atoms (a thread an atom). `search` gives a warp to each atom: its lanes test
// 32 candidates (neighbour, image) at a time in float, what may be inside is decided in double, and rows come out in
// the order (neighbour, image). `reverse` finds the place of each pair's reverse. Differences are antisymmetric in
// floating point too, so both directions of a pair always agree. Work is N² within a system, 16 float operations each.
#include "painn_cuda_cell.h"
#include "painn_cuda_device.cuh"

static __device__ void raise_flag(const painn_cuda_step &step, int flag, int atom, int other)
{
    // The first trouble is told; others may follow from it.
    if (atomicOr(&step.report->flags, flag) == 0) {
        step.report->atom = atom;
        step.report->other = other;
    }
}

static __global__ void __launch_bounds__(128) prepare_kernel(const __grid_constant__ painn_cuda_step step, int unused)
{
    begin_stage(step, 0);
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const painn_cuda_call call = *step.call_in;
    if (i == 0) *step.call = call;
    if (i >= call.n_atoms) return;
    const int s = call.system_of[i];
    int z = call.species[i];
    const unsigned char owned = call.owned ? call.owned[i] : 1;
    const double raw[3] = {call.positions[(size_t)i * 3], call.positions[(size_t)i * 3 + 1], call.positions[(size_t)i * 3 + 2]};
    painn_cuda_system system = call.systems[s];
    if (system.pending) {
        const unsigned char periodic[3] = {(unsigned char)system.wrapped[0], (unsigned char)system.wrapped[1],
                                           (unsigned char)system.wrapped[2]};
        system.flags = cell_complete(call.cells + (size_t)s * 9, periodic, step.cutoff, &system);
    }
    if (i == system.first) {
        if (system.flags) raise_flag(step, system.flags, i, -1);
        step.systems[s] = system;
    }
    double r[3];
    bool finite = true, wide = false;
    for (int c = 0; c < 3; c++) {
        r[c] = raw[c] - call.positions[(size_t)system.first * 3 + c];
        finite = finite && isfinite(r[c]);
    }
    for (int a = 0; a < 3; a++) {
        double f = r[0] * system.inverse[a] + r[1] * system.inverse[3 + a] + r[2] * system.inverse[6 + a];
        if (system.wrapped[a])
            f -= floor(f);
        else
            wide = wide || fabs(f) > 5e4;
        if (!finite) f = 0;
        step.fractional[(size_t)i * 3 + a] = f;
        step.fractional_float[(size_t)i * 4 + a] = (float)f;
        if (step.handed_pairs) step.positions[(size_t)i * 3 + a] = finite ? raw[a] : 0.0;
    }
    if (!finite) raise_flag(step, PAINN_CUDA_NOT_FINITE, i, -1);
    if (wide) raise_flag(step, PAINN_CUDA_TOO_WIDE, i, -1);
    if (z < 0 || z >= step.n_species || !isfinite(step.offset[z])) {
        raise_flag(step, PAINN_CUDA_ELEMENT, i, z);
        z = 0;
    }
    step.species[i] = z;
    step.system_of[i] = s;
    step.owned[i] = owned;
}

// Writes entry `slot` of row i.
static __device__ __forceinline__ void write_edge(const painn_cuda_step &step, int i, int slot, int j, double rx, double ry,
                                                  double rz, double square, int sx, int sy, int sz)
{
    painn_cuda_edge edge;
    double d = sqrt(square), inverse = 1.0 / d, along = d * ((double)PAINN_CUDA_INTERVALS / step.cutoff);
    int interval = (int)along;
    if (interval > PAINN_CUDA_INTERVALS - 1) interval = PAINN_CUDA_INTERVALS - 1;
    edge.u[0] = (float)(rx * inverse);
    edge.u[1] = (float)(ry * inverse);
    edge.u[2] = (float)(rz * inverse);
    edge.d = (float)(d / step.length_unit);
    edge.packed = j * PAINN_CUDA_INTERVALS + interval;
    edge.t = (float)((2.0 * (along - interval) - 1.0) / PAINN_CUDA_TABLE_RANGE);
    edge.species = step.species[j];
    edge.shift = (sx + 512) | (sy + 512) << 10 | (sz + 512) << 20;
    step.edges[(size_t)i * step.row_capacity + slot] = edge;
}

static __device__ void close_row(const painn_cuda_step &step, int i, int length)
{
    if (threadIdx.x % 32 != 0) return;
    if (length > step.row_capacity) {
        atomicMax(&step.report->longest_row, length);
        raise_flag(step, PAINN_CUDA_ROW_FULL, i, -1);
        length = step.row_capacity;
    }
    step.row_length[i] = length;
    atomicAdd(&step.report->n_pairs, length);
}

// Decides in double about 32 candidates (−1: none) and appends those inside to row i; answers the row's length.
static __device__ int look_closely(const painn_cuda_step &step, const painn_cuda_system &system, int i, int candidate, int images,
                                   int n1, int n2, int length)
{
    bool inside = false;
    int j = 0, s0 = 0, s1 = 0, s2 = 0;
    double rx = 0, ry = 0, rz = 0, square = 0;
    if (candidate >= 0) {
        j = system.first + candidate / images;
        const int image = candidate % images;
        double d0 = step.fractional[(size_t)j * 3] - step.fractional[(size_t)i * 3];
        double d1 = step.fractional[(size_t)j * 3 + 1] - step.fractional[(size_t)i * 3 + 1];
        double d2 = step.fractional[(size_t)j * 3 + 2] - step.fractional[(size_t)i * 3 + 2];
        s0 = image / (n1 * n2) - system.images[0] - (system.wrapped[0] ? (int)rint(d0) : 0);
        s1 = image / n2 % n1 - system.images[1] - (system.wrapped[1] ? (int)rint(d1) : 0);
        s2 = image % n2 - system.images[2] - (system.wrapped[2] ? (int)rint(d2) : 0);
        d0 += s0;
        d1 += s1;
        d2 += s2;
        rx = d0 * system.cell[0] + d1 * system.cell[3] + d2 * system.cell[6];
        ry = d0 * system.cell[1] + d1 * system.cell[4] + d2 * system.cell[7];
        rz = d0 * system.cell[2] + d1 * system.cell[5] + d2 * system.cell[8];
        square = rx * rx + ry * ry + rz * rz;
        inside = square < step.cutoff * step.cutoff && (j != i || s0 != 0 || s1 != 0 || s2 != 0);
        if (inside && square < 1e-8) {
            raise_flag(step, PAINN_CUDA_SAME_POINT, i, j);
            inside = false;
        }
    }
    const unsigned found = __ballot_sync(~0u, inside);
    const int slot = length + __popc(found & ((1u << (threadIdx.x % 32)) - 1));
    if (inside && slot < step.row_capacity) write_edge(step, i, slot, j, rx, ry, rz, square, s0, s1, s2);
    return length + __popc(found);
}

// x less the nearest integer, for |x| < 2²² (by adding 1.5 · 2²³ and taking it off again: cheaper than a rounding).
static __device__ __forceinline__ float nearest_image(float x)
{
    return x - ((x + 12582912.0f) - 12582912.0f);
}

// Rows i … i + ROWS − 1 of one system: each candidate is read once for all of them.
template <int ROWS> static __device__ void search_rows(const painn_cuda_step &step, int i, int (*queue)[64])
{
    const int lane = threadIdx.x % 32;
    const painn_cuda_system &system = step.systems[step.system_of[i]];
    const int first = system.first, n = system.n, n1 = 2 * system.images[1] + 1, n2 = 2 * system.images[2] + 1;
    const int images = (2 * system.images[0] + 1) * n1 * n2;
    const float w0 = system.wrapped[0], w1 = system.wrapped[1], w2 = system.wrapped[2];
    float h[9];
#pragma unroll
    for (int c = 0; c < 9; c++) h[c] = (float)system.cell[c];
    float4 own[ROWS];
    int length[ROWS], waiting[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        own[r] = *(const float4 *)(step.fractional_float + (size_t)(i + r) * 4);
        length[r] = waiting[r] = 0;
    }
    const float reach = (float)step.cutoff + 0.01f, reach2 = reach * reach;
    const int candidates = n * images;
    for (int begin = 0; begin < candidates; begin += 32) {
        const int candidate = begin + lane;
        const bool there = candidate < candidates;
        float4 other = own[0];
        if (there && images == 1) other = *(const float4 *)(step.fractional_float + (size_t)(first + candidate) * 4);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            bool near = there;
            if (images == 1) {
                float a0 = other.x - own[r].x, a1 = other.y - own[r].y, a2 = other.z - own[r].z;
                a0 = fmaf(w0, nearest_image(a0) - a0, a0);
                a1 = fmaf(w1, nearest_image(a1) - a1, a1);
                a2 = fmaf(w2, nearest_image(a2) - a2, a2);
                const float x = a0 * h[0] + a1 * h[3] + a2 * h[6], y = a0 * h[1] + a1 * h[4] + a2 * h[7],
                            z = a0 * h[2] + a1 * h[5] + a2 * h[8];
                // Close to half a cell the nearest image is for the doubles to decide.
                const float edge = fmaxf(w0 * fabsf(a0), fmaxf(w1 * fabsf(a1), w2 * fabsf(a2)));
                near = near && (x * x + y * y + z * z < reach2 || edge > 0.4999f);
            }
            // What may be inside waits in a queue until there are 32 to look at closely.
            const unsigned found = __ballot_sync(~0u, near);
            if (found == 0) continue;
            if (near) queue[r][waiting[r] + __popc(found & ((1u << lane) - 1))] = candidate;
            waiting[r] += __popc(found);
            __syncwarp();
            if (waiting[r] >= 32) {
                length[r] = look_closely(step, system, i + r, queue[r][lane], images, n1, n2, length[r]);
                const int rest = queue[r][32 + lane];
                __syncwarp();
                queue[r][lane] = rest;
                __syncwarp();
                waiting[r] -= 32;
            }
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        if (waiting[r] > 0)
            length[r] = look_closely(step, system, i + r, lane < waiting[r] ? queue[r][lane] : -1, images, n1, n2, length[r]);
        close_row(step, i + r, length[r]);
    }
}

template <int ROWS>
static __global__ void __launch_bounds__(128) search_kernel(const __grid_constant__ painn_cuda_step step, int unused)
{
    __shared__ int queues[4][ROWS][64];
    begin_stage(step, 1);
    const int warp = threadIdx.x / 32, i = (blockIdx.x * 4 + warp) * ROWS, n_atoms = step.call->n_atoms;
    if (i >= n_atoms) return;
    if (ROWS > 1 && i + ROWS <= n_atoms && step.system_of[i] == step.system_of[i + ROWS - 1]) {
        search_rows<ROWS>(step, i, queues[warp]);
    } else {
        for (int k = i; k < min(i + ROWS, n_atoms); k++) search_rows<1>(step, k, queues[warp]);
    }
}

// Rows from pairs handed in: those inside the cutoff, in the order given.
static __global__ void __launch_bounds__(128) pairs_kernel(const __grid_constant__ painn_cuda_step step, int unused)
{
    begin_stage(step, 1);
    const int lane = threadIdx.x % 32, i = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (i >= step.call->n_atoms) return;
    const painn_cuda_call call = *step.call;
    const double *cell = call.cells ? call.cells + (size_t)step.system_of[i] * 9 : NULL;
    const int first = call.pair_first[i], end = call.pair_first[i + 1];
    const double cutoff2 = step.cutoff * step.cutoff;
    int length = 0;
    for (int begin = first; begin < end; begin += 32) {
        const int p = begin + lane;
        bool inside = false;
        int j = 0, s[3] = {0, 0, 0};
        double r[3] = {0, 0, 0}, square = 0;
        if (p < end) {
            j = call.pair_neighbor[p];
            if (call.pair_shift)
                for (int c = 0; c < 3; c++) s[c] = call.pair_shift[(size_t)p * 3 + c];
            for (int c = 0; c < 3; c++) {
                double shift = cell ? s[0] * cell[c] + s[1] * cell[3 + c] + s[2] * cell[6 + c] : 0.0;
                r[c] = step.positions[(size_t)j * 3 + c] - step.positions[(size_t)i * 3 + c] + shift;
            }
            square = r[0] * r[0] + r[1] * r[1] + r[2] * r[2];
            inside = square < cutoff2;
            if (inside && square < 1e-8) {
                raise_flag(step, PAINN_CUDA_SAME_POINT, i, j);
                inside = false;
            }
            if (inside && (abs(s[0]) > 511 || abs(s[1]) > 511 || abs(s[2]) > 511)) {
                raise_flag(step, PAINN_CUDA_SHIFT_RANGE, i, j);
                inside = false;
            }
        }
        const unsigned found = __ballot_sync(~0u, inside);
        const int slot = length + __popc(found & ((1u << lane) - 1));
        if (inside && slot < step.row_capacity) write_edge(step, i, slot, j, r[0], r[1], r[2], square, s[0], s[1], s[2]);
        length += __popc(found);
    }
    close_row(step, i, length);
}

// reverse[(i, k)]: where in row j the pair (j, i) with the opposite shift stands. A lane an entry.
static __global__ void __launch_bounds__(128) reverse_kernel(const __grid_constant__ painn_cuda_step step, int unused)
{
    const int lane = threadIdx.x % 32, i = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (i >= step.call->n_atoms) return;
    const int length = step.row_length[i];
    const size_t row = (size_t)i * step.row_capacity;
    for (int k = lane; k < length; k += 32) {
        const int j = step.edges[row + k].packed / PAINN_CUDA_INTERVALS, shift = step.edges[row + k].shift;
        const int wanted = (1024 - (shift & 1023)) | (1024 - (shift >> 10 & 1023)) << 10 | (1024 - (shift >> 20 & 1023)) << 20;
        const size_t other = (size_t)j * step.row_capacity;
        const int n = step.row_length[j];
        int found = -1;
        for (int m = 0; m < n && found < 0; m++)
            if (step.edges[other + m].packed / PAINN_CUDA_INTERVALS == i && step.edges[other + m].shift == wanted) found = m;
        if (found < 0) {
            // After an overflow rows are cut; the step is repeated anyway.
            raise_flag(step, PAINN_CUDA_NOT_SYMMETRIC, i, j);
            found = 0;
        }
        step.reverse[row + k] = (int)(other + found);
    }
}

int painn_cuda_launch_list(const painn_cuda_step *step, const painn_cuda_plan *plan, void *stream)
{
    int error = launch(prepare_kernel, (plan->n_atoms + 127) / 128, 128, 0, 1, 0, stream, *step, 0);
    if (error != 0) return error;
    if (step->handed_pairs) return launch(pairs_kernel, (plan->n_atoms + 3) / 4, 128, 0, 1, plan->overlap, stream, *step, 0);
    // Where there are rows enough for all warps, a warp takes two at once (four would leave the GPU half empty at 4096).
    if (plan->n_atoms < 2048 || plan->n_atoms / plan->n_systems < 128)
        return launch(search_kernel<1>, (plan->n_atoms + 3) / 4, 128, 0, 1, plan->overlap, stream, *step, 0);
    if (plan->n_atoms < 16384)
        return launch(search_kernel<2>, (plan->n_atoms + 7) / 8, 128, 0, 1, plan->overlap, stream, *step, 0);
    return launch(search_kernel<4>, (plan->n_atoms + 15) / 16, 128, 0, 1, plan->overlap, stream, *step, 0);
}

int painn_cuda_launch_reverse(const painn_cuda_step *step, const painn_cuda_plan *plan, void *stream)
{
    return launch(reverse_kernel, (plan->n_atoms + 3) / 4, 128, 0, 1, 0, stream, *step, 0);
}
