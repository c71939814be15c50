// SPDX-License-Identifier: MIT
// neighbor_list.cu: neighbors and edge geometry on the GPU, recomputed in each step; for large systems candidates come from a Verlet
// list (cell_list.cu).
//
//   s_i = (R_i − R_first) · cell⁻¹, wrapped on periodic axes ;  r = (s_j − s_i + S) · cell, S integer, |r| < cutoff
//
// Four ways lead to the same rows, in the order (neighbor, image) and with the same bits:
//   fused search   systems up to 128 atoms: each row group wraps the atoms of its system itself; one system up to 1024 atoms: each block
//   row            `prepare` wraps the atoms, one thread for each; then one block for each row
//   search         the same, with many atoms: one warp for several rows, whose lanes test 32 candidates (neighbor, image) at a time
//   cell list      large systems
// With one image per atom and enough threads, a thread tests an atom in double precision directly. Otherwise candidates are tested in
// float first, those that may be inside wait in a queue, and the queue is tested in double precision, one thread for each entry.
// `reverse` finds the index of each pair's reverse. Differences are antisymmetric in floating point too, so both directions of a pair
// always agree. Work is N² within a system, 16 float operations for each candidate.
#include "fused_search.cuh"
#include "gpu/ptx/wgmma.cuh"

static __device__ bool differ(const gpu_system &a, const gpu_system &b)
{
    bool same = a.first == b.first && a.n == b.n;
    for (int c = 0; c < 3; c++) same = same && a.wrapped[c] == b.wrapped[c] && a.images[c] == b.images[c];
    return !same;
}

// How much nearer two atoms may come by their own motion, in Å of the present cell, without a pair inside the cutoff that is not listed;
// negative: the list is stale. With the deformation M from the listed cell to this one, a pair farther apart than reach = cutoff + skin is
// now farther than reach times M's least singular value, which is at least 1 / (1 + |M⁻¹ − 1|).
static __device__ double slack_of(const gpu_system &system, const double *listed, double cutoff, double skin)
{
    bool same = true;
    double square = 0;
    for (int c = 0; c < 9; c++) same = same && system.cell[c] == listed[c];
    if (same) return skin;
    for (int a = 0; a < 3; a++)
        for (int c = 0; c < 3; c++) {
            double x = a == c ? -1.0 : 0.0;
            for (int k = 0; k < 3; k++) x += system.inverse[3 * a + k] * listed[3 * k + c];
            square += x * x;
        }
    return (cutoff + skin) / (1.0 + sqrt(square)) - cutoff;
}

// The bin of a coordinate: a cell's fraction, or a length in Å, for which bin k is also bin k + bins.
static __device__ int bin_along(double f, int wrapped, int bins, double reach)
{
    if (wrapped) return min((int)(f * bins), bins - 1);
    const int bin = (int)floor(f / reach) % bins;
    return bin < 0 ? bin + bins : bin;
}

// Wraps atom i of system s and stores it; with bins, counts it in its bin, tests whether the Verlet list still holds, and returns the bin.
template <bool bins>
static __device__ __forceinline__ int prepare_atom(const gpu_step &step, const gpu_call &call, const gpu_system &system, int s,
                                                   int i, int rebuild)
{
    bool stale =
        bins && (rebuild || step.neighbors.list->n_atoms != call.n_atoms || step.neighbors.list->n_systems != call.n_systems);
    const int z = call.species[i];
    const unsigned char owned = call.owned ? call.owned[i] : 1;
    // Candidates of a ghost lack the other ghosts: an atom that is owned now needs them.
    stale = stale || (bins && step.neighbors.drop_ghost_pairs && step.neighbors.owned[i] != owned);
    const double *const at = call.positions + (size_t)i * 3, *const from = call.positions + (size_t)system.first * 3;
    const double raw[3] = {at[0], at[1], at[2]}, origin[3] = {from[0], from[1], from[2]};
    if (i == system.first) {
        if (bins && !stale) stale = differ(system, step.neighbors.systems[s]);
        keep_system(step, s, system);
    }
    const wrapped_atom atom = wrap_atom(system, raw, origin);
    double moved[3] = {0, 0, 0};
    int place[3] = {0, 0, 0};
    for (int a = 0; a < 3; a++) {
        const double f = atom.f[a];
        if (bins) {
            moved[a] = f - step.neighbors.listed[(size_t)i * 3 + a];
            if (system.wrapped[a]) moved[a] -= rint(moved[a]);
            place[a] = bin_along(f, system.wrapped[a], system.bins[a], cell_reach(&step));
        }
        step.neighbors.fractional[(size_t)i * 3 + a] = f;
        step.neighbors.fractional_float[(size_t)i * 4 + a] = (float)f;
    }
    keep_atom(step, i, s, z, offset_of(step, z), owned, atom.finite, atom.wide);
    if (!bins) return -1;
    // Coordinates are relative to the system's first atom: a distance changes by at most twice the largest displacement.
    double square = 0;
    for (int c = 0; c < 3; c++) {
        const double x = moved[0] * system.cell[c] + moved[1] * system.cell[3 + c] + moved[2] * system.cell[6 + c];
        square += x * x;
    }
    // In a cell so thin that atoms neighbor their own images, the nearest image changes more often: always rebuild.
    const double slack =
        stale ? -1 : slack_of(system, step.neighbors.listed_cells + (size_t)9 * s, step.neighbors.cutoff, step.neighbors.skin);
    stale = stale || system.images[0] || system.images[1] || system.images[2] || !(slack >= 0 && square <= 0.25 * slack * slack);
    if (stale) atomicOr(&step.neighbors.list->stale, 1);
    const int bin = system.first + (place[2] * system.bins[1] + place[1]) * system.bins[0] + place[0];
    step.neighbors.bin[i] = bin;
    step.neighbors.place_in_bin[i] = atomicAdd(&step.neighbors.bin_count[bin], 1);
    return bin;
}

// Counts the bins of a warp's atoms (−1: no atom) by blocks of bins, most of them in one block: additions to one address take 1 ns each.
static __device__ __forceinline__ void count_blocks(const gpu_step &step, int bin)
{
    const int lane = threadIdx.x % 32, block = bin < 0 ? -1 : bin / GPU_SCAN_BLOCK, first = __shfl_sync(~0u, block, 0);
    const int same = __popc(__ballot_sync(~0u, block == first));
    if (block >= 0 && (lane == 0 || block != first)) atomicAdd(&step.neighbors.bin_total[block], lane == 0 ? same : 1);
}

template <bool bins>
static __device__ __forceinline__ void complete_for_list(const gpu_step &step, const gpu_call &call, int s, gpu_system &system)
{
    if (!system.pending) return;
    complete_system(step, call, s, system);
    if (bins) cell_bins(cell_reach(&step), &system);
}

template <bool bins>
static __global__ void __launch_bounds__(128) prepare_kernel(const __grid_constant__ gpu_step step, int rebuild)
{
    __shared__ gpu_system shared;
    begin_rows(step);
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const gpu_call call = *step.call_in;
    // One system is shared by the block; with several, each thread has its own.
    const bool one = call.n_systems == 1;
    gpu_system own;
    int s = 0;
    if (one) {
        copy_system(shared, call.systems[0], threadIdx.x, blockDim.x);
        __syncthreads();
        if (threadIdx.x == 0) complete_for_list<bins>(step, call, 0, shared);
        __syncthreads();
    } else if (i < call.n_atoms) {
        s = call.system_of[i];
        own = call.systems[s];
        complete_for_list<bins>(step, call, s, own);
    }
    wait_for_integrator(step);
    if (i == 0) {
        *step.call = call;
        if (!bins) step.neighbors.list->n_atoms = -1; // its systems are overwritten
    }
    int bin = -1;
    if (i < call.n_atoms) bin = prepare_atom<bins>(step, call, one ? shared : own, s, i, rebuild);
    if (bins) count_blocks(step, bin);
    wait_for_previous();
}

// Rows i … i + ROWS − 1 of one system: each candidate is read once for all of them.
template <int ROWS> static __device__ void search_rows(const gpu_step &step, int i, int (*queue)[64])
{
    const int lane = threadIdx.x % 32;
    const gpu_system &system = step.neighbors.systems[step.neighbors.system_of[i]];
    const int first = system.first, n = system.n, n1 = 2 * system.images[1] + 1, n2 = 2 * system.images[2] + 1;
    const int images = (2 * system.images[0] + 1) * n1 * n2;
    const near_test test(system, step.neighbors.cutoff + 0.01);
    float4 own[ROWS];
    int length[ROWS], waiting[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        own[r] = *(const float4 *)(step.neighbors.fractional_float + (size_t)(i + r) * 4);
        length[r] = waiting[r] = 0;
    }
    const int candidates = n * images;
    for (int begin = 0; begin < candidates; begin += 32) {
        const int candidate = begin + lane;
        const bool there = candidate < candidates;
        float4 other = own[0];
        int s0 = 0, s1 = 0, s2 = 0;
        if (there) {
            const int j = images == 1 ? candidate : candidate / images;
            other = *(const float4 *)(step.neighbors.fractional_float + (size_t)(first + j) * 4);
            if (images > 1) {
                const int image = candidate - j * images, plane = image / n2;
                s0 = plane / n1 - system.images[0];
                s1 = plane % n1 - system.images[1];
                s2 = image - plane * n2 - system.images[2];
            }
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const bool near = there && test.image(other.x - own[r].x, other.y - own[r].y, other.z - own[r].z, s0, s1, s2);
            // Candidates that may be inside wait in a queue until there are 32 to test exactly.
            const unsigned found = __ballot_sync(~0u, near);
            if (found == 0) continue;
            if (near) queue[r][waiting[r] + __popc(found & ((1u << lane) - 1))] = candidate;
            waiting[r] += __popc(found);
            __syncwarp();
            if (waiting[r] >= 32) {
                length[r] = decide_candidates(step, system, i + r, queue[r][lane], images, n1, n2, length[r]);
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
            length[r] =
                decide_candidates(step, system, i + r, lane < waiting[r] ? queue[r][lane] : -1, images, n1, n2, length[r]);
        close_row(step, i + r, length[r]);
    }
}

template <int ROWS> static __global__ void __launch_bounds__(128) search_kernel(const __grid_constant__ gpu_step step, int unused)
{
    __shared__ int queues[4][ROWS][64];
    begin_stage(step, 1);
    const int warp = threadIdx.x / 32, i = (blockIdx.x * 4 + warp) * ROWS, n_atoms = step.call->n_atoms;
    if (i >= n_atoms) return;
    if (ROWS > 1 && i + ROWS <= n_atoms && step.neighbors.system_of[i] == step.neighbors.system_of[i + ROWS - 1]) {
        search_rows<ROWS>(step, i, queues[warp]);
    } else {
        for (int k = i; k < min(i + ROWS, n_atoms); k++) search_rows<1>(step, k, queues[warp]);
    }
}

// ---- one block for each row -----------------------------------------------------------------------------------------

static __global__ void __launch_bounds__(ROW_WARPS * 32) row_kernel(const __grid_constant__ gpu_step step, int room)
{
    DYNAMIC_SHARED(shared);
    begin_stage(step, 1);
    const int i = blockIdx.x;
    if (i >= step.call->n_atoms) return;
    const gpu_system &system = step.neighbors.systems[step.neighbors.system_of[i]];
    const float *own = step.neighbors.fractional_float + (size_t)i * 4;
    const double *places = step.neighbors.fractional + (size_t)system.first * 3,
                 *exact = step.neighbors.fractional + (size_t)i * 3;
    const row_queue queue = place_queue((char *)shared, blockDim.x / 32, room, 0);
    const near_test test(system, 0);
    const float4 at = *(const float4 *)own;
    const row_group group = {i, 0, (int)blockDim.x, 0};
    queue_candidates(step, system, group, system.n, queue, [&](int j, float *d) {
        const float4 other = *(const float4 *)(step.neighbors.fractional_float + (size_t)(system.first + j) * 4);
        d[0] = test.wrap(other.x - at.x, test.w0);
        d[1] = test.wrap(other.y - at.y, test.w1);
        d[2] = test.wrap(other.z - at.z, test.w2);
        if (test.ambiguous(d[0], d[1], d[2]))
            for (int a = 0; a < 3; a++) {
                const double e = places[(size_t)j * 3 + a] - exact[a];
                d[a] = (float)(system.wrapped[a] ? e - rint(e) : e);
            }
    });
    __syncthreads();
    close_queue(
        step, system, group, queue, [&](int j) { return places + (size_t)j * 3; },
        [&](int j) { return step.neighbors.species[system.first + j]; }, true);
}

// Threads of a block at most: with few blocks; with many, of which a multiprocessor runs three.
enum { FUSED_FEW = 512, FUSED_MANY = 256 };

// Fused search: the atoms of small systems are wrapped by each row's warps, those of one larger system by each block for all its rows.
template <int THREADS, int BLOCKS, bool moves>
static __global__ void __launch_bounds__(THREADS, BLOCKS)
    fused_search_kernel(const __grid_constant__ gpu_step step, int threads, int atoms, int together, int room)
{
    DYNAMIC_SHARED(shared);
    const int number = threadIdx.x / threads, rows = blockDim.x / threads, row = blockIdx.x * rows,
              each = queue_bytes(threads / 32, room) + (together ? 0 : fused_search_bytes(atoms));
    const row_group group = {row + number, number * threads, threads, number + together},
                    team = together ? row_group{row, 0, (int)blockDim.x, 0} : group;
    char *own = (char *)shared + (together ? 0 : number * each);
    begin_rows(step);
    make_row<moves, BLOCKS == 1>(step, group, team, own, (char *)shared + fused_search_bytes(atoms) + number * each, room);
    wait_for_previous();
}

// ---------------------------------------------------------------------------------------------------------------------

enum { PAIRS_WARPS = 12, FEW_BLOCKS = 16 };

// Rows from given pairs: those inside the cutoff, in the order given. Atoms are not wrapped: a warp builds a row from the call and stores
// its atom. Blocks from `rows` on complete the cells, which only stress and reports need.
static __global__ void __launch_bounds__(PAIRS_WARPS * 32, 2) pairs_kernel(const __grid_constant__ gpu_step step, int rows)
{
    DYNAMIC_SHARED(shared); // one system for each warp
    begin_rows(step);
    const gpu_call call = *step.call_in;
    const int lane = threadIdx.x % 32, warps = blockDim.x / 32, warp = threadIdx.x / 32, i = blockIdx.x * warps + warp;
    if ((int)blockIdx.x >= rows) {
        const int s = i - warps * rows;
        if (s >= call.n_systems) return;
        gpu_system &system = ((gpu_system *)shared)[warp];
        copy_system(system, call.systems[s], lane, 32);
        __syncwarp();
        if (lane > 0) return;
        if (system.pending) complete_system(step, call, s, system);
        keep_system(step, s, system);
        return;
    }
    if (i >= call.n_atoms) return;
    if (i == 0 && lane == 0) {
        *step.call = call;
        step.neighbors.list->n_atoms = -1; // its systems are overwritten
    }
    const int first = call.pair_first[i], end = call.pair_first[i + 1], z = call.species[i],
              s = call.n_systems == 1 ? 0 : call.system_of[i];
    const unsigned char owned = call.owned ? call.owned[i] : 1;
    const double *const own = call.positions + (size_t)i * 3;
    const double at[3] = {own[0], own[1], own[2]}, cutoff2 = step.neighbors.cutoff * step.neighbors.cutoff;
    double cell[9] = {0, 0, 0, 0, 0, 0, 0, 0, 0};
    for (int c = 0; c < 9 && call.cells; c++) cell[c] = call.cells[(size_t)s * 9 + c];
    const double offset = offset_of(step, z);
    const bool finite = isfinite(at[0]) && isfinite(at[1]) && isfinite(at[2]);
    if (step.stamps && i == 0 && lane == 0) step.stamps[1] = gpu_timer();
    int length = 0;
#pragma unroll 1
    for (int begin = first; begin < end; begin += 32) {
        const int p = begin + lane;
        bool inside = false;
        int j = 0, species = 0, shift[3] = {0, 0, 0};
        double r[3] = {0, 0, 0}, square = 0;
        if (p < end) {
            j = call.pair_neighbor[p];
            if (call.pair_shift)
                for (int c = 0; c < 3; c++) shift[c] = call.pair_shift[(size_t)p * 3 + c];
            species = known_species(step, call.species[j]);
            for (int c = 0; c < 3; c++)
                r[c] = call.positions[(size_t)j * 3 + c] - at[c] +
                       (shift[0] * cell[c] + shift[1] * cell[3 + c] + shift[2] * cell[6 + c]);
            square = r[0] * r[0] + r[1] * r[1] + r[2] * r[2];
            inside = square < cutoff2;
            if (inside && square < 1e-8) {
                raise_flag(step, GPU_SAME_POINT, i, j);
                inside = false;
            }
            if (inside && (abs(shift[0]) > 511 || abs(shift[1]) > 511 || abs(shift[2]) > 511)) {
                raise_flag(step, GPU_SHIFT_RANGE, i, j);
                inside = false;
            }
        }
        const unsigned found = __ballot_sync(~0u, inside);
        const int slot = length + __popc(found & ((1u << lane) - 1));
        if (inside && slot < step.neighbors.row_capacity)
            write_edge(step, i, slot, j, species, r[0], r[1], r[2], square, shift[0], shift[1], shift[2]);
        length += __popc(found);
    }
    close_row(step, i, length);
    wait_for_previous();
    if (lane > 0) return;
    keep_atom(step, i, s, z, offset, owned, finite, false);
    if (step.neighbors.given_pairs == 2) step.neighbors.incoming_count[i] = 0;
}

// One warp for each row.
static __global__ void __launch_bounds__(128) reverse_kernel(const __grid_constant__ gpu_step step, int unused)
{
    const int warps = blockDim.x / 32, n = step.call->n_atoms;
    for (int i = blockIdx.x * warps + threadIdx.x / 32; i < n; i += gridDim.x * warps) find_reverses(step, i);
}

// Transpose of an asymmetric list, first part: each edge enters its index in the list of the atom it ends in …
static __global__ void __launch_bounds__(128) transpose_count_kernel(const __grid_constant__ gpu_step step, int unused)
{
    const int lane = threadIdx.x % 32, i = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (i >= step.call->n_atoms || (step.neighbors.drop_ghost_pairs && !step.neighbors.owned[i])) return;
    const int length = step.neighbors.row_length[i], row = i * step.neighbors.row_capacity;
    for (int k = lane; k < length; k += 32) {
        const int j = step.neighbors.edges[row + k].packed >> step.neighbors.tag_bits,
                  slot = atomicAdd(&step.neighbors.incoming_count[j], 1);
        if (slot < step.neighbors.row_capacity)
            step.neighbors.incoming_keys[(size_t)j * step.neighbors.row_capacity + slot] = row + k;
    }
}

// … second part: that atom sorts them, since the order of atomic counts varies, and reverses them.
static __global__ void __launch_bounds__(128) transpose_fill_kernel(const __grid_constant__ gpu_step step, int unused)
{
    const int lane = threadIdx.x % 32, j = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (j >= step.call->n_atoms) return;
    int length = step.neighbors.incoming_count[j];
    const int32_t *keys = step.neighbors.incoming_keys + (size_t)j * step.neighbors.row_capacity;
    if (length > step.neighbors.row_capacity) {
        if (lane == 0) {
            atomicMax(&step.report->longest_row, length);
            raise_flag(step, GPU_ROW_FULL, j, -1);
        }
        length = step.neighbors.row_capacity;
    }
    for (int k = lane; k < length; k += 32) {
        const int key = keys[k], at = j * step.neighbors.row_capacity + rank_among(keys, length, key);
        gpu_edge edge = step.neighbors.edges[key];
        const int i = key / step.neighbors.row_capacity;
        for (int c = 0; c < 3; c++) edge.u[c] = -edge.u[c];
        edge.packed = i << step.neighbors.tag_bits | (edge.packed & ((1 << step.neighbors.tag_bits) - 1));
        edge.species = step.neighbors.species[i];
        step.neighbors.incoming_edges[at] = edge;
        step.neighbors.reverse[key] = at;
    }
    __syncwarp();
    if (lane == 0) step.neighbors.incoming_count[j] = length;
}

// With halo hooks the rows of owned atoms are whole, and those of ghosts become their transpose: the list is symmetric then.
static __global__ void __launch_bounds__(128) ghost_rows_kernel(const __grid_constant__ gpu_step step, int unused)
{
    const int lane = threadIdx.x % 32, j = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (j >= step.call->n_atoms || step.neighbors.owned[j]) return;
    const int length = step.neighbors.incoming_count[j];
    const size_t row = (size_t)j * step.neighbors.row_capacity;
    for (int k = lane; k < length; k += 32) step.neighbors.edges[row + k] = step.neighbors.incoming_edges[row + k];
    if (lane == 0) step.neighbors.row_length[j] = length;
}

// Blocks of a cluster, so that the model's next kernel finds whole clusters of multiprocessors free.
static int row_cluster_of(const gpu_plan *plan)
{
    return max(1, plan->row_cluster);
}
static int round_up_blocks(int blocks, int cluster)
{
    return (blocks + cluster - 1) / cluster * cluster;
}

static int launch_pairs(const gpu_step *step, const gpu_plan *plan, void *stream)
{
    const int warps = plan->row_warps ? min((int)PAIRS_WARPS, plan->row_warps) : 4;
    const int rows = (plan->n_atoms + warps - 1) / warps, systems = (plan->n_systems + warps - 1) / warps,
              cluster = row_cluster_of(plan);
    return launch(pairs_kernel, round_up_blocks(rows + systems, cluster), warps * 32, warps * sizeof(gpu_system), cluster,
                  plan->chained, stream, *step, rows);
}

// Launch of the fused search: rows of a block (0: not used), threads of a row, shared memory.
struct fused_search_shape {
    int rows, threads, together, many;
    size_t bytes;
};

static fused_search_shape shape_of_fused_search(const gpu_step *step, const gpu_plan *plan, int room)
{
    fused_search_shape shape = {};
    if (!uses_fused_search(step, plan)) return shape;
    shape.together = plan->fused_search > GPU_FUSED_ATOMS;
    shape.many = !shape.together && plan->n_atoms > 512; // then in blocks that all run at once
    const int share = (plan->n_atoms + plan->n_multiprocessors - 1) / plan->n_multiprocessors,
              most = shape.together ? share
                     : shape.many   ? FUSED_MANY / plan->fused_search
                                    : min(FUSED_FEW / plan->fused_search, (plan->n_atoms + FEW_BLOCKS - 1) / FEW_BLOCKS);
    shape.threads = shape.together ? max(1, min((int)ROW_WARPS, FUSED_FEW / 32 / most)) * 32 : plan->fused_search;
    const int queue = queue_bytes(shape.threads / 32, room), own = fused_search_bytes(plan->fused_search), all = 48 * 1024;
    shape.rows = min(min(most, FUSED_FEW / 32 - 1), shape.together ? (all - own) / queue : all / (own + queue));
    shape.bytes = (size_t)(shape.together ? own + shape.rows * queue : shape.rows * (own + queue));
    return shape;
}

static int launch_fused_search(const gpu_step *step, const gpu_plan *plan, const fused_search_shape &shape, int room,
                               void *stream)
{
    const int cluster = row_cluster_of(plan);
    // With many blocks none waits long for the integrator: a dry run would only add to their work.
    void (*const kernel)(gpu_step, int, int, int, int) =
        shape.many ? step->follows_motion ? fused_search_kernel<FUSED_MANY, 3, true> : fused_search_kernel<FUSED_MANY, 3, false>
        : step->follows_motion ? fused_search_kernel<FUSED_FEW, 1, true>
                               : fused_search_kernel<FUSED_FEW, 1, false>;
    return launch(kernel, round_up_blocks((plan->n_atoms + shape.rows - 1) / shape.rows, cluster), shape.rows * shape.threads,
                  shape.bytes, cluster, plan->chained, stream, *step, shape.threads, plan->fused_search, shape.together, room);
}

int gpu_launch_neighbors(const gpu_step *step, const gpu_plan *plan, void *stream)
{
    // Candidates of a row wait in shared memory; with rows of many hundreds, few blocks would fit.
    const int room = queue_room(step->neighbors.row_capacity), each = plan->n_atoms / plan->n_systems;
    const int warps = each <= 64 ? 2 : 4;
    const bool by_rows = step->neighbors.row_capacity <= ROW_CAPACITY && plan->n_atoms < 2048;
    if (step->neighbors.given_pairs) return launch_pairs(step, plan, stream);
    const fused_search_shape shape = shape_of_fused_search(step, plan, room);
    if (shape.rows > 0) return launch_fused_search(step, plan, shape, room, stream);
    int error = launch(plan->cell_list ? prepare_kernel<true> : prepare_kernel<false>, (plan->n_atoms + 127) / 128, 128, 0, 1,
                       plan->chained, stream, *step, plan->cell_list == 2 ? 1 : 0);
    if (error != 0) return error;
    if (plan->cell_list) return gpu_launch_cell_list(step, plan, stream);
    if (by_rows)
        return launch(row_kernel, plan->n_atoms, warps * 32, (size_t)queue_bytes(warps, room), 1, plan->overlap, stream, *step,
                      room);
    // With enough rows for all warps, a warp takes two at once (four would leave the GPU half empty at 4096 atoms).
    if (plan->n_atoms < 16384)
        return launch(search_kernel<2>, (plan->n_atoms + 7) / 8, 128, 0, 1, plan->overlap, stream, *step, 0);
    return launch(search_kernel<4>, (plan->n_atoms + 15) / 16, 128, 0, 1, plan->overlap, stream, *step, 0);
}

int gpu_launch_reverse(const gpu_step *step, const gpu_plan *plan, void *stream)
{
    const int blocks = (plan->n_atoms + 3) / 4;
    if (step->neighbors.given_pairs != 2) return launch(reverse_kernel, blocks, 128, 0, 1, 0, stream, *step, 0);
    int error = launch(transpose_count_kernel, blocks, 128, 0, 1, 0, stream, *step, 0);
    if (error == 0) error = launch(transpose_fill_kernel, blocks, 128, 0, 1, 0, stream, *step, 0);
    if (error != 0 || !step->neighbors.drop_ghost_pairs) return error;
    error = launch(ghost_rows_kernel, blocks, 128, 0, 1, 0, stream, *step, 0);
    return error ? error : launch(reverse_kernel, blocks, 128, 0, 1, 0, stream, *step, 0);
}
