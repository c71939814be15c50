// SPDX-License-Identifier: MIT
// painn_cuda_list.cu: neighbours and edge geometry on the GPU, made anew in each step: no skin, nothing to go stale.
//
//   s_i = (R_i − origin) · cell⁻¹, wrapped on periodic axes ;  r = (s_j − s_i + S) · cell, S integer, |r| < cutoff
//
// `prepare` completes cells and wraps atoms (a thread an atom). `search` gives a warp to each atom: its lanes test
// 32 candidates (neighbour, image) at a time in float, what may be inside is decided in double, and rows come out in
// the order (neighbour, image). `reverse` finds the place of each pair's reverse. Differences are antisymmetric in
// floating point too, so both directions of a pair always agree. Work is N² within a system, 16 float operations each.
#include "painn_cuda_device.cuh"

static __device__ void cross(const double *a, const double *b, double *c)
{
    c[0] = a[1] * b[2] - a[2] * b[1];
    c[1] = a[2] * b[0] - a[0] * b[2];
    c[2] = a[0] * b[1] - a[1] * b[0];
}

static __device__ double norm3(const double *a)
{
    return sqrt(a[0] * a[0] + a[1] * a[1] + a[2] * a[2]);
}

static __device__ void raise_flag(const painn_cuda_step &step, int flag, int atom, int other)
{
    if ((atomicOr(&step.report->flags, flag) & flag) == 0) {
        step.report->atom = atom;
        step.report->other = other;
    }
}

// Cell, completed by unit vectors perpendicular to what is there, its inverse, and how far images reach.
static __device__ void complete(const painn_cuda_step &step, const painn_cuda_call &call, int s, painn_cuda_system &system)
{
    double h[9];
    bool periodic[3], there[3];
    for (int c = 0; c < 9; c++) h[c] = call.cells ? call.cells[(size_t)s * 9 + c] : 0.0;
    for (int a = 0; a < 3; a++) {
        periodic[a] = call.periodic && call.periodic[s * 3 + a];
        // A cell vector of an axis that does not repeat says nothing about distances.
        there[a] = periodic[a];
        if (!there[a]) h[3 * a] = h[3 * a + 1] = h[3 * a + 2] = 0.0;
    }
    for (int a = 0; a < 3; a++) {
        if (there[a]) continue;
        double *v = h + 3 * a, *p = h + 3 * ((a + 1) % 3), *q = h + 3 * ((a + 2) % 3), length;
        bool has_p = norm3(p) > 0, has_q = norm3(q) > 0;
        if (has_p && has_q) {
            cross(p, q, v);
        } else if (has_p || has_q) {
            double *r = has_p ? p : q;
            double axis[3] = {0, 0, 0};
            int smallest = fabs(r[0]) <= fabs(r[1]) && fabs(r[0]) <= fabs(r[2]) ? 0 : fabs(r[1]) <= fabs(r[2]) ? 1 : 2;
            axis[smallest] = 1.0;
            cross(r, axis, v);
        } else {
            v[a] = 1.0;
        }
        length = norm3(v);
        for (int c = 0; c < 3; c++) v[c] /= length;
    }
    double n[3][3];
    cross(h + 3, h + 6, n[0]);
    cross(h + 6, h, n[1]);
    cross(h, h + 3, n[2]);
    double volume = h[0] * n[0][0] + h[1] * n[0][1] + h[2] * n[0][2];
    double scale = norm3(h) * norm3(h + 3) * norm3(h + 6);
    if (!(fabs(volume) > 1e-8 * scale)) { // also not finite
        raise_flag(step, isfinite(volume) && isfinite(scale) ? PAINN_CUDA_NO_VOLUME : PAINN_CUDA_NOT_FINITE, call.first_atom[s], -1);
        volume = 1.0;
    }
    for (int a = 0; a < 3; a++) {
        for (int c = 0; c < 3; c++) {
            system.cell[3 * a + c] = h[3 * a + c];
            system.inverse[3 * c + a] = n[a][c] / volume;
        }
        double height = fabs(volume) / norm3(n[a]);
        double reach = ceil(step.cutoff / height - 0.5);
        system.images[a] = periodic[a] && reach > 0 ? (int)fmin(reach, 500.0) : 0;
        system.wrapped[a] = periodic[a];
    }
}

static __global__ void __launch_bounds__(128) prepare_kernel(const __grid_constant__ painn_cuda_step step, int unused)
{
    begin_stage(step, 0);
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const painn_cuda_call call = *step.call_in;
    if (i == 0) *step.call = call;
    if (i >= call.n_atoms) return;
    int low = 0, high = call.n_systems; // the last system that begins at or before atom i
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (call.first_atom[middle] <= i)
            low = middle;
        else
            high = middle;
    }
    painn_cuda_system system;
    const int first = call.first_atom[low];
    complete(step, call, low, system);
    for (int c = 0; c < 3; c++) system.origin[c] = call.positions[(size_t)first * 3 + c];
    if (i == first) {
        system.first = first;
        system.n = call.first_atom[low + 1] - first;
        step.systems[low] = system;
    }
    double r[3], raw[3];
    bool finite = true, wide = false;
    for (int c = 0; c < 3; c++) {
        raw[c] = call.positions[(size_t)i * 3 + c];
        r[c] = raw[c] - system.origin[c];
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
    int z = call.species[i];
    if (z < 0 || z >= step.n_species || !isfinite(step.offset[z])) {
        raise_flag(step, PAINN_CUDA_ELEMENT, i, z);
        z = 0;
    }
    step.species[i] = z;
    step.system_of[i] = low;
    step.owned[i] = call.owned ? call.owned[i] : 1;
}

// Writes entry `slot` of row i.
static __device__ __forceinline__ void write_edge(const painn_cuda_step &step, int i, int slot, int j, double rx, double ry, double rz,
                                                  double square, int sx, int sy, int sz)
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
    edge.t = (float)(2.0 * (along - interval) - 1.0);
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

static __global__ void __launch_bounds__(128) search_kernel(const __grid_constant__ painn_cuda_step step, int unused)
{
    begin_stage(step, 1);
    const int lane = threadIdx.x % 32, i = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (i >= step.call->n_atoms) return;
    const painn_cuda_system &system = step.systems[step.system_of[i]];
    const int first = system.first, n = system.n, m0 = system.images[0], m1 = system.images[1], m2 = system.images[2];
    const int n1 = 2 * m1 + 1, n2 = 2 * m2 + 1, images = (2 * m0 + 1) * n1 * n2;
    const bool w0 = system.wrapped[0], w1 = system.wrapped[1], w2 = system.wrapped[2];
    float h[9];
    for (int c = 0; c < 9; c++) h[c] = (float)system.cell[c];
    const float4 own = *(const float4 *)(step.fractional_float + (size_t)i * 4);
    const double f0 = step.fractional[(size_t)i * 3], f1 = step.fractional[(size_t)i * 3 + 1], f2 = step.fractional[(size_t)i * 3 + 2];
    const float reach = (float)step.cutoff + 0.01f, reach2 = reach * reach;
    const double cutoff2 = step.cutoff * step.cutoff;
    const long long candidates = (long long)n * images;
    int length = 0;
    for (long long begin = 0; begin < candidates; begin += 32) {
        const long long candidate = begin + lane;
        bool inside = false;
        int j = 0, s0 = 0, s1 = 0, s2 = 0;
        double rx = 0, ry = 0, rz = 0, square = 0;
        if (candidate < candidates) {
            int image = 0;
            if (images == 1) {
                j = first + (int)candidate;
            } else {
                j = first + (int)(candidate / images);
                image = (int)(candidate % images);
            }
            const float4 other = *(const float4 *)(step.fractional_float + (size_t)j * 4);
            float g0 = other.x - own.x, g1 = other.y - own.y, g2 = other.z - own.z;
            if (images > 1) {
                s2 = image % n2 - m2;
                s1 = image / n2 % n1 - m1;
                s0 = image / (n1 * n2) - m0;
            }
            // The nearest image is decided in double only where it matters: within half a cell both agree.
            float b0 = w0 ? -rintf(g0) : 0.0f, b1 = w1 ? -rintf(g1) : 0.0f, b2 = w2 ? -rintf(g2) : 0.0f;
            float a0 = g0 + b0 + s0, a1 = g1 + b1 + s1, a2 = g2 + b2 + s2;
            float x = a0 * h[0] + a1 * h[3] + a2 * h[6], y = a0 * h[1] + a1 * h[4] + a2 * h[7], z = a0 * h[2] + a1 * h[5] + a2 * h[8];
            if (x * x + y * y + z * z < reach2 || images > 1 || fabsf(fabsf(g0) - 0.5f) < 1e-4f || fabsf(fabsf(g1) - 0.5f) < 1e-4f ||
                fabsf(fabsf(g2) - 0.5f) < 1e-4f) {
                double d0 = step.fractional[(size_t)j * 3] - f0, d1 = step.fractional[(size_t)j * 3 + 1] - f1,
                       d2 = step.fractional[(size_t)j * 3 + 2] - f2;
                s0 += w0 ? -(int)rint(d0) : 0;
                s1 += w1 ? -(int)rint(d1) : 0;
                s2 += w2 ? -(int)rint(d2) : 0;
                d0 += s0;
                d1 += s1;
                d2 += s2;
                rx = d0 * system.cell[0] + d1 * system.cell[3] + d2 * system.cell[6];
                ry = d0 * system.cell[1] + d1 * system.cell[4] + d2 * system.cell[7];
                rz = d0 * system.cell[2] + d1 * system.cell[5] + d2 * system.cell[8];
                square = rx * rx + ry * ry + rz * rz;
                inside = square < cutoff2 && (j != i || s0 != 0 || s1 != 0 || s2 != 0);
                if (inside && square < 1e-8) {
                    raise_flag(step, PAINN_CUDA_SAME_POINT, i, j);
                    inside = false;
                }
            }
        }
        const unsigned found = __ballot_sync(~0u, inside);
        const int slot = length + __popc(found & ((1u << lane) - 1));
        if (inside && slot < step.row_capacity) write_edge(step, i, slot, j, rx, ry, rz, square, s0, s1, s2);
        length += __popc(found);
    }
    close_row(step, i, length);
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
    return launch(step->handed_pairs ? pairs_kernel : search_kernel, (plan->n_atoms + 3) / 4, 128, 0, 1, plan->overlap, stream, *step, 0);
}

int painn_cuda_launch_reverse(const painn_cuda_step *step, const painn_cuda_plan *plan, void *stream)
{
    return launch(reverse_kernel, (plan->n_atoms + 3) / 4, 128, 0, 1, 0, stream, *step, 0);
}
