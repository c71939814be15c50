// SPDX-License-Identifier: MIT
// cell_list.cu: neighbors of large systems: atoms sorted into bins as wide as cutoff and skin, a Verlet list (the candidates) from the
// bins around each atom's own, rows from the Verlet list.
//
//   prepare (neighbor_list.cu) counts atoms by bin > scan: first index of each bin > sort: atoms in the order of bins
//   > rows: candidates of each atom, and its row from these
//
// The Verlet list is kept while atoms and cells have changed by less than the skin allows, which `prepare` tests; scan and sort then
// return at once. Each candidate is tested exactly in every step, as in the search of all pairs. An atom's place within its bin depends
// on the order of atomic counts; candidates are sorted by (neighbor, image) afterwards, so rows have the same bits however they were
// found.
#include "rows.cuh"

enum { SCAN_THREADS = GPU_SCAN_BLOCK, ROWS_WARPS = 4, SEGMENTS = 32 };

// bin_first from bin_count, which is reset to zero. The bins of all systems are contiguous, as atoms are.
static __global__ void __launch_bounds__(SCAN_THREADS) scan_kernel(const __grid_constant__ gpu_step step, int unused)
{
    __shared__ int warp_count[32], warp_before[32];
    begin_stage(step, 1);
    const int n = step.call->n_atoms, bin = blockIdx.x * SCAN_THREADS + threadIdx.x, lane = threadIdx.x % 32,
              warp = threadIdx.x / 32;
    const int count = bin < n ? step.neighbors.bin_count[bin] : 0, stale = step.neighbors.list->stale;
    if (bin < n) step.neighbors.bin_count[bin] = 0;
    if (blockIdx.x == 0 && threadIdx.x == 0) step.neighbors.list->making = stale;
    if (!stale) return;
    int before = 0; // atoms in the blocks before this one
    for (int k = threadIdx.x; k < (int)blockIdx.x; k += SCAN_THREADS) before += step.neighbors.bin_total[k];
    before = sum_warp(before);
    const int in_warp = sum_before(count);
    if (lane == 31) {
        warp_count[warp] = in_warp + count;
        warp_before[warp] = before;
    }
    __syncthreads();
    const int sums = warp_count[lane], earlier = sum_before(sums);
    const int first = sum_warp(warp_before[lane]) + __shfl_sync(~0u, earlier, warp) + in_warp;
    if (bin < n) step.neighbors.bin_first[bin] = first;
    if (bin == n - 1) step.neighbors.bin_first[n] = n;
}

static __global__ void __launch_bounds__(128) sort_kernel(const __grid_constant__ gpu_step step, int unused)
{
    wait_for_previous();
    let_next_start();
    const int i = blockIdx.x * blockDim.x + threadIdx.x, n = step.call->n_atoms, making = step.neighbors.list->making;
    if (i <= n / GPU_SCAN_BLOCK) step.neighbors.bin_total[i] = 0;
    if (i == 0) {
        const int n_lists = step.neighbors.list->n_lists + making;
        *step.neighbors.list = {n, step.call->n_systems, 0, making, n_lists};
        step.report->n_lists = n_lists;
    }
    if (i >= n || !making) return;
    float4 at = *(const float4 *)(step.neighbors.fractional_float + (size_t)i * 4);
    at.w = __int_as_float(i);
    *(float4 *)(step.neighbors.binned +
                (size_t)(step.neighbors.bin_first[step.neighbors.bin[i]] + step.neighbors.place_in_bin[i]) * 4) = at;
    for (int a = 0; a < 3; a++) step.neighbors.listed[(size_t)i * 3 + a] = step.neighbors.fractional[(size_t)i * 3 + a];
    const int s = step.neighbors.system_of[i];
    if (i != step.neighbors.systems[s].first) return;
    for (int c = 0; c < 9; c++) step.neighbors.listed_cells[(size_t)9 * s + c] = step.neighbors.systems[s].cell[c];
}

// Lane k gets the k-th contiguous range of bins around bin x, y, z: its first index and its length.
static __device__ __forceinline__ int find_segment(const gpu_step &step, const gpu_system &system, int bin, int *begin)
{
    const int *bins = system.bins, lane = threadIdx.x % 32, x = bin % bins[0], y = bin / bins[0] % bins[1],
              z = bin / bins[0] / bins[1];
    // Three bins along an axis, or all if fewer. Along x the three are one range, or two where they wrap around.
    const int n1 = min(3, bins[1]), n2 = min(3, bins[2]), part = lane % 2, row = lane / 2;
    if (row >= n1 * n2) return *begin = 0;
    const int yy = bins[1] < 3 ? row % n1 : (y + row % n1 - 1 + bins[1]) % bins[1];
    const int zz = bins[2] < 3 ? row / n1 : (z + row / n1 - 1 + bins[2]) % bins[2];
    int low = x - 1, high = x + 1;
    if (bins[0] <= 3) {
        low = 0;
        high = part ? -1 : bins[0] - 1;
    } else if (low < 0) {
        low = part ? bins[0] - 1 : 0;
        if (part) high = low;
    } else if (high >= bins[0]) {
        low = part ? 0 : low;
        high = part ? 0 : bins[0] - 1;
    } else if (part) {
        high = low - 1;
    }
    const int first = system.first + (zz * bins[1] + yy) * bins[0];
    if (high < low) return *begin = 0;
    *begin = step.neighbors.bin_first[first + low];
    return step.neighbors.bin_first[first + high + 1] - *begin;
}

// Candidates of the atom at index `place` in the order of bins; returns the atom. In this order neighbors are found in the L1 cache. By
// a warp, with shared memory for the candidates.
static __device__ __forceinline__ int list_candidates(const gpu_step &step, int place, int *found)
{
    __shared__ int segments[ROWS_WARPS][2][SEGMENTS];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int *begins = segments[warp][0], *before = segments[warp][1];
    const float4 own = *(const float4 *)(step.neighbors.binned + (size_t)place * 4);
    const int i = __float_as_int(own.w);
    const gpu_system &system = step.neighbors.systems[step.neighbors.system_of[i]];
    const near_test test(system, cell_reach(&step));
    const bool ghost = step.neighbors.drop_ghost_pairs && !step.neighbors.owned[i];
    const int m0 = system.images[0], m1 = system.images[1], m2 = system.images[2], n1 = 2 * m1 + 1, n2 = 2 * m2 + 1,
              images = (2 * m0 + 1) * n1 * n2;

    int begin;
    const int length = find_segment(step, system, step.neighbors.bin[i] - system.first, &begin), earlier = sum_before(length);
    const int total = sum_warp(length);
    begins[lane] = begin - earlier;
    before[lane] = earlier;
    __syncwarp();
    int n_found = 0;
    for (int base = 0; base < total; base += 32) {
        const int k = base + lane;
        int segment = 0; // the last segment that begins at k or before
        for (int step_size = SEGMENTS / 2; step_size > 0; step_size /= 2)
            if (before[segment + step_size] <= k) segment += step_size;
        const bool inside = k < total;
        const float4 other = *(const float4 *)(step.neighbors.binned + (size_t)(inside ? begins[segment] + k : place) * 4);
        const int j = __float_as_int(other.w);
        const bool there = inside && (!ghost || step.neighbors.owned[j]);
        for (int image = 0; image < images; image++) {
            const bool near = there && (j != i || images > 1) &&
                              test.image(other.x - own.x, other.y - own.y, other.z - own.z, image / (n1 * n2) - m0,
                                         image / n2 % n1 - m1, image % n2 - m2);
            const unsigned mask = __ballot_sync(~0u, near);
            const int slot = n_found + __popc(mask & ((1u << lane) - 1));
            if (near && slot < step.neighbors.candidate_capacity) found[slot] = (j - system.first) * images + image;
            n_found += __popc(mask);
        }
    }
    __syncwarp();
    if (lane == 0) step.neighbors.candidate_length[i] = n_found; // if they do not fit, the row is flagged later
    n_found = min(n_found, step.neighbors.candidate_capacity);
    int32_t *row = step.neighbors.candidates + (size_t)i * step.neighbors.candidate_capacity;
    for (int k = lane; k < n_found; k += 32) row[rank_among(found, n_found, found[k])] = found[k];
    __syncwarp();
    return i;
}

// Rows from candidates, which are listed first if the Verlet list is stale: one warp for each atom.
static __global__ void __launch_bounds__(ROWS_WARPS * 32) rows_kernel(const __grid_constant__ gpu_step step, int unused)
{
    DYNAMIC_SHARED(shared);
    wait_for_previous();
    let_next_start();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, place = blockIdx.x * ROWS_WARPS + warp;
    if (place >= step.call->n_atoms) return;
    const int i = step.neighbors.list->making
                      ? list_candidates(step, place, (int *)shared + warp * step.neighbors.candidate_capacity)
                      : place;
    const gpu_system &system = step.neighbors.systems[step.neighbors.system_of[i]];
    const int n1 = 2 * system.images[1] + 1, n2 = 2 * system.images[2] + 1, images = (2 * system.images[0] + 1) * n1 * n2;
    const int n = step.neighbors.candidate_length[i];
    const int32_t *row = step.neighbors.candidates + (size_t)i * step.neighbors.candidate_capacity;
    const int end = min(n, step.neighbors.candidate_capacity);
    const auto candidate_at = [&](int k) { return k < end ? row[k] : -1; };
    int length = 0, candidate = candidate_at(lane);
    for (int begin = 0; begin < end; begin += 32) {
        const int next = candidate_at(begin + 32 + lane); // ahead: candidates' positions are read through it
        length = decide_candidates(step, system, i, candidate, images, n1, n2, length);
        candidate = next;
    }
    // Some candidates did not fit: ask for a row that would be long enough at the same ratio.
    if (n > step.neighbors.candidate_capacity)
        length = max(length, (int)((long long)n * step.neighbors.row_capacity / step.neighbors.candidate_capacity) + 1);
    close_row(step, i, length);
}

int gpu_launch_cell_list(const gpu_step *step, const gpu_plan *plan, void *stream)
{
    const int rows = (plan->n_atoms + ROWS_WARPS - 1) / ROWS_WARPS, shared = ROWS_WARPS * 4 * step->neighbors.candidate_capacity;
    int error = launch(scan_kernel, (plan->n_atoms + SCAN_THREADS - 1) / SCAN_THREADS, SCAN_THREADS, 0, 1, plan->overlap, stream,
                       *step, 0);
    if (error == 0) error = launch(sort_kernel, plan->n_atoms / 128 + 1, 128, 0, 1, plan->overlap, stream, *step, 0);
    if (error == 0) error = launch(rows_kernel, rows, ROWS_WARPS * 32, (size_t)shared, 1, plan->overlap, stream, *step, 0);
    return error;
}
