/* SPDX-License-Identifier: MIT */
/* rows.cuh: what all neighbor searches share: the exact test of a candidate, and the entries of rows. */
#ifndef GPU_ROWS_CUH
#define GPU_ROWS_CUH

#include "cell.h"
#include "gpu/gpu_stage.cuh"

static __device__ void raise_flag(const gpu_step &step, int flag, int atom, int other)
{
    // The first flag names its atoms; later ones may follow from it.
    if (atomicOr(&step.report->flags, flag) == 0) {
        step.report->atom = atom;
        step.report->other = other;
    }
}

// Writes entry `slot` of row i.
static __device__ __forceinline__ void write_edge(const gpu_step &step, int i, int slot, int j, int species, double rx, double ry,
                                                  double rz, double square, int sx, int sy, int sz, bool keep = true)
{
    gpu_edge edge;
    const double inverse = rsqrt(square), d = square * inverse, along = d * step.neighbors.intervals_per_angstrom;
    int interval = (int)along;
    interval = min(interval, (1 << step.neighbors.tag_bits) - 1);
    edge.u[0] = (float)(rx * inverse);
    edge.u[1] = (float)(ry * inverse);
    edge.u[2] = (float)(rz * inverse);
    edge.d = (float)(d * step.neighbors.inverse_unit);
    edge.packed = j << step.neighbors.tag_bits | interval;
    edge.position = (float)((2.0 * (along - interval) - 1.0) * step.neighbors.position_scale);
    edge.species = species;
    edge.shift = (sx + 512) | (sy + 512) << 10 | (sz + 512) << 20;
    if (keep) step.neighbors.edges[(size_t)i * step.neighbors.row_capacity + slot] = edge;
}

static __device__ void close_row(const gpu_step &step, int i, int length)
{
    if (threadIdx.x % 32 != 0) return;
    if (length > step.neighbors.row_capacity) {
        atomicMax(&step.report->longest_row, length);
        raise_flag(step, GPU_ROW_FULL, i, -1);
        length = step.neighbors.row_capacity;
    }
    step.neighbors.row_length[i] = length;
    atomicAdd(&step.neighbors.pair_counts[i % GPU_PAIR_COUNTS * 32], length);
}

// Sum of v over the lanes before this one (exclusive scan).
static __device__ __forceinline__ int sum_before(int v)
{
    const int lane = threadIdx.x % 32;
    int sum = v;
#pragma unroll
    for (int k = 1; k < 32; k *= 2) {
        const int other = __shfl_sync(~0u, sum, lane - k);
        if (lane >= k) sum += other;
    }
    return sum - v;
}

// Vector from atom i to atom j, from wrapped coordinates: the image m0, m1, m2 cells from the nearest one.
struct pair_vector {
    double x, y, z, square;
    int s0, s1, s2;
};

static __device__ __forceinline__ pair_vector pair_of(const gpu_system &system, const double *own, const double *other, int m0,
                                                      int m1, int m2)
{
    pair_vector p;
    double d0 = other[0] - own[0], d1 = other[1] - own[1], d2 = other[2] - own[2];
    p.s0 = m0 - (system.wrapped[0] ? (int)rint(d0) : 0);
    p.s1 = m1 - (system.wrapped[1] ? (int)rint(d1) : 0);
    p.s2 = m2 - (system.wrapped[2] ? (int)rint(d2) : 0);
    d0 += p.s0;
    d1 += p.s1;
    d2 += p.s2;
    // In a fixed order of operations, so that all search kernels get the same bits.
    p.x = fma(d2, system.cell[6], fma(d1, system.cell[3], d0 * system.cell[0]));
    p.y = fma(d2, system.cell[7], fma(d1, system.cell[4], d0 * system.cell[1]));
    p.z = fma(d2, system.cell[8], fma(d1, system.cell[5], d0 * system.cell[2]));
    p.square = fma(p.z, p.z, fma(p.y, p.y, p.x * p.x));
    return p;
}

// Whether a pair belongs to row i.
static __device__ __forceinline__ bool is_neighbor(const gpu_step &step, const pair_vector &p, int i, int j, bool keep = true)
{
    const bool inside =
        p.square < step.neighbors.cutoff * step.neighbors.cutoff && (j != i || p.s0 != 0 || p.s1 != 0 || p.s2 != 0);
    if (!inside || p.square >= 1e-8) return inside;
    if (keep) raise_flag(step, GPU_SAME_POINT, i, j);
    return false;
}

// Tests 32 candidates (−1: none) in double precision and appends the neighbors to row i; returns the row's length.
static __device__ int decide_candidates(const gpu_step &step, const gpu_system &system, int i, int candidate, int images, int n1,
                                        int n2, int length)
{
    bool inside = false;
    int j = 0;
    pair_vector p = {};
    if (candidate >= 0) {
        j = system.first + candidate / images;
        const int image = candidate % images;
        p = pair_of(system, step.neighbors.fractional + (size_t)i * 3, step.neighbors.fractional + (size_t)j * 3,
                    image / (n1 * n2) - system.images[0], image / n2 % n1 - system.images[1], image % n2 - system.images[2]);
        inside = is_neighbor(step, p, i, j) &&
                 (!step.neighbors.drop_ghost_pairs || step.neighbors.owned[i] || step.neighbors.owned[j]);
    }
    const unsigned found = __ballot_sync(~0u, inside);
    const int slot = length + __popc(found & ((1u << (threadIdx.x % 32)) - 1));
    if (inside && slot < step.neighbors.row_capacity)
        write_edge(step, i, slot, j, step.neighbors.species[j], p.x, p.y, p.z, p.square, p.s0, p.s1, p.s2);
    return length + __popc(found);
}

// Index in row j, of n entries, of the pair (j, i) with this shift; −1: not there. Rows of a search are ordered by (neighbor, shift); rows
// of given pairs may have any order.
static __device__ __forceinline__ int find_entry(const gpu_edge *row, int tag_bits, int n, int i, int shift, bool ordered_row)
{
    const auto neighbor = [&](int m) { return row[m].packed >> tag_bits; };
    const auto ordered = [](int v) { return (v & 1023) << 20 | (v >> 10 & 1023) << 10 | (v >> 20 & 1023); };
    int low = 0, high = n;
    while (low < high) {
        const int m = (low + high) / 2, other = neighbor(m);
        if (other < i || (other == i && ordered(row[m].shift) < ordered(shift)))
            low = m + 1;
        else
            high = m;
    }
    if (low < n && neighbor(low) == i && row[low].shift == shift) return low;
    for (int m = 0; m < n && !ordered_row; m++)
        if (neighbor(m) == i && row[m].shift == shift) return m;
    return -1;
}

// Index of the reverse of entry k of row i. After an overflow rows are truncated and some reverses are missing; such a step is repeated.
static __device__ __forceinline__ int find_reverse(const gpu_step &step, int i, int k, bool *found_out)
{
    const gpu_edge &edge = step.neighbors.edges[(size_t)i * step.neighbors.row_capacity + k];
    const int j = edge.packed >> step.neighbors.tag_bits, shift = edge.shift;
    const int wanted = (1024 - (shift & 1023)) | (1024 - (shift >> 10 & 1023)) << 10 | (1024 - (shift >> 20 & 1023)) << 20;
    const int other = j * step.neighbors.row_capacity,
              found = find_entry(step.neighbors.edges + other, step.neighbors.tag_bits, step.neighbors.row_length[j], i, wanted,
                                 !step.neighbors.given_pairs);
    *found_out = found >= 0;
    return other + max(found, 0);
}

// Whether a search made the rows and left out pairs of two ghosts.
static __device__ __forceinline__ bool leaves_out_ghost_pairs(const gpu_step &step)
{
    return step.neighbors.drop_ghost_pairs && !step.neighbors.given_pairs;
}

// reverse[(i, k)] for entries k and k + 32 of row i, in rows of a search: two binary searches at once, as each waits for memory. If rows are
// truncated, which is flagged already, a reverse may be missing.
static __device__ __forceinline__ void find_two_reverses(const gpu_step &step, int i, int k, int length)
{
    const gpu_neighbors &list = step.neighbors;
    const int capacity = list.row_capacity;
    const size_t row = (size_t)i * capacity;
    int first[2], low[2] = {0, 0}, high[2], wanted[2];
    const auto ordered = [](int v) { return (v & 1023) << 20 | (v >> 10 & 1023) << 10 | (v >> 20 & 1023); };
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const gpu_edge &edge = list.edges[row + min(k + 32 * r, length - 1)];
        first[r] = (edge.packed >> list.tag_bits) * capacity;
        wanted[r] = (1 << 30) + (1 << 20) + (1 << 10) - ordered(edge.shift); // 1024 − each of the three
    }
#pragma unroll
    for (int r = 0; r < 2; r++) high[r] = min(list.row_length[first[r] / capacity], capacity);
    while (low[0] < high[0] || low[1] < high[1]) {
        int other[2], shift[2], middle[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            middle[r] = min((low[r] + high[r]) / 2, capacity - 1); // a search that has ended reads on
            other[r] = list.edges[first[r] + middle[r]].packed >> list.tag_bits;
            shift[r] = list.edges[first[r] + middle[r]].shift;
        }
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const bool before = other[r] < i || (other[r] == i && ordered(shift[r]) < wanted[r]), open = low[r] < high[r];
            low[r] = open && before ? middle[r] + 1 : low[r];
            high[r] = open && !before ? middle[r] : high[r];
        }
    }
    list.reverse[row + k] = first[0] + min(low[0], capacity - 1);
    if (k + 32 < length) list.reverse[row + k + 32] = first[1] + min(low[1], capacity - 1);
}

// reverse[(i, k)] for all k: index of the pair (j, i) with the opposite shift. By a warp, one lane for each entry, or for two.
static __device__ __forceinline__ void find_reverses(const gpu_step &step, int i)
{
    const int length = step.neighbors.row_length[i];
    if (!step.neighbors.given_pairs) {
        for (int k = threadIdx.x % 32; k < length; k += 64) find_two_reverses(step, i, k, length);
        return;
    }
    for (int k = threadIdx.x % 32; k < length; k += 32) {
        bool found;
        step.neighbors.reverse[(size_t)i * step.neighbors.row_capacity + k] = find_reverse(step, i, k, &found);
        if (!found) raise_flag(step, GPU_NOT_SYMMETRIC, i, -1);
    }
}

// x minus the nearest integer, for |x| < 2²² (adding and subtracting 1.5 · 2²³ is cheaper than rounding).
static __device__ __forceinline__ float nearest_image(float x)
{
    return x - ((x + 12582912.0f) - 12582912.0f);
}

/* How many of `keys` are smaller: the key's rank, for different keys. */
static __device__ __forceinline__ int rank_among(const int32_t *keys, int n, int key)
{
    int rank = 0;
    for (int k = 0; k < n; k++) rank += keys[k] < key;
    return rank;
}

/* The float test of a candidate: whether its distance may be below √reach2. Takes differences of wrapped coordinates. */
struct near_test {
    float w0, w1, w2, h[9], reach2;
    __device__ __forceinline__ near_test(const gpu_system &system, double reach)
    {
        w0 = system.wrapped[0], w1 = system.wrapped[1], w2 = system.wrapped[2];
#pragma unroll
        for (int c = 0; c < 9; c++) h[c] = (float)system.cell[c];
        reach2 = (float)(reach * reach);
    }
    /* The image s0, s1, s2 cells from the nearest one. Close to half a cell only the exact test can tell which image is nearest. */
    __device__ __forceinline__ bool image(float a0, float a1, float a2, int s0, int s1, int s2) const
    {
        float b0 = wrap(a0, w0), b1 = wrap(a1, w1), b2 = wrap(a2, w2);
        return inside(b0 + (float)s0, b1 + (float)s1, b2 + (float)s2) || ambiguous(b0, b1, b2);
    }
    __device__ __forceinline__ float wrap(float a, float w) const
    {
        return fmaf(w, nearest_image(a) - a, a);
    }
    __device__ __forceinline__ bool inside(float a0, float a1, float a2) const
    {
        const float x = a0 * h[0] + a1 * h[3] + a2 * h[6], y = a0 * h[1] + a1 * h[4] + a2 * h[7],
                    z = a0 * h[2] + a1 * h[5] + a2 * h[8];
        return x * x + y * y + z * z < reach2;
    }
    __device__ __forceinline__ bool ambiguous(float a0, float a1, float a2) const
    {
        return fmaxf(w0 * fabsf(a0), fmaxf(w1 * fabsf(a1), w2 * fabsf(a2))) > 0.4999f;
    }
};

#endif
