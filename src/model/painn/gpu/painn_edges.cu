// SPDX-License-Identifier: MIT
// painn_edges.cu: sums over the edges of an atom, forward and backward; forces and virials from them.
//
//   forward, row of i:    q'_i = q_i + Σ W^q∘x^q_j ;  μ'_i = μ_i + Σ (W^R∘x^R_j) u + (W^μ∘x^μ_j)∘μ_j
//   backward, row of j in `incoming` (its entry (j, i) is the pair (i, j) reversed: same d, u of opposite sign):
//     P = Σ_c u_c μ̄'_i,c ;  Q = Σ_c μ̄'_i,c∘μ_j,c
//     x̄_j += [W^q∘q̄'_i | W^R∘P | W^μ∘Q] ;  μ̄_j += (W^μ∘x^μ_j)∘μ̄'_i
//     κ += Σ_f x^q∘q̄'∘dW^q + x^R∘P∘dW^R + x^μ∘Q∘dW^μ ;  ū_c += Σ_f W^R∘x^R∘μ̄'_i,c
//   forces:  g = κ u + (ū − u (u·ū))/d ;  F_i = Σ_row g_(i,j) − g_(j,i) ;  dE/dε = Σ g⊗r
//   With halo hooks q̄' and μ̄' of ghosts come from their owners, and g_(i,j) is known where the sender j is owned: the sums of all processes
//   are complete, and no x̄ or μ̄ of ghosts is computed.
//
// W_l(d) comes from a table: 128 intervals, a polynomial of degree 4 in each (in the fast modes of degree 3, in halves); dW is the
// derivative of that polynomial. Only dW needs degree 4: the forward pass has a table of degree 3. A warp handles one atom and a slice of
// 16 features; each of its quarters (8 lanes × 2 features) takes every fourth edge, and the quarters are added at the end: nothing is
// added atomically, the order is fixed. κ and ū of eight edges are summed together, so that each lane writes one number. Gathered rows
// are 128 bytes for each pair of components. Bound by latency for small systems, by L1 (table and gathers) for large ones: there a block
// keeps its slice of the table in shared memory and walks over neighboring atoms, whose neighbors it finds in L1. A quarter without an
// edge reads an atom of zeros.
#include "gpu/dynamics/integrate.cuh"
#include "gpu/evaluator/system_sums.cuh"
#include "gpu/neighbors/rows.cuh"
#include "painn_core.cuh"
#include "painn_edges.cuh"

// Threads of a walking block: as many as registers allow, more in the first layer.
enum { FORWARD_THREADS = 1024, BACKWARD_THREADS_FIRST = 1024, BACKWARD_THREADS = 768 };
// Atoms of this block: a slice of features and, with the table in shared memory, a contiguous range that its warps walk.
struct edge_tasks {
    int slice, atom, end, stride;
    int begin, step; // edges of a row: this warp's first, and from one to the next
    __device__ __forceinline__ edge_tasks(int n_slices, int n_atoms, bool in_shared)
    {
        const int warp = threadIdx.x / 32, rank = blockIdx.x / n_slices;
        slice = blockIdx.x % n_slices;
        if (in_shared) {
            const int share = gridDim.x / n_slices;
            begin = 0;
            step = 4;
            atom = (int)((long long)n_atoms * rank / share) + warp;
            end = (int)((long long)n_atoms * (rank + 1) / share);
            stride = blockDim.x / 32;
        } else {
            begin = 4 * warp;
            step = 16;
            atom = rank;
            end = min(atom + 1, n_atoms);
            stride = 1;
        }
    }
};

// Adds N values of each lane over the 4 warps of the block; returns true in the first warp, which has the sums.
template <int N> static __device__ __forceinline__ bool add_warps(float2 *v)
{
    __shared__ float2 parts[3][N][32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int k = 0; k < N && warp > 0; k++) parts[warp - 1][k][lane] = v[k];
    __syncthreads();
    for (int k = 0; k < N && warp == 0; k++)
        for (int w = 0; w < 3; w++) {
            v[k].x += parts[w][k][lane].x;
            v[k].y += parts[w][k][lane].y;
        }
    return warp == 0;
}

template <int F, bool first_layer, bool in_shared, bool fast>
static __global__ void __launch_bounds__(in_shared ? FORWARD_THREADS : 128)
    message_kernel(const __grid_constant__ painn_gpu_step step, int l)
{
    DYNAMIC_SHARED(shared);
    const int SLICES = F / PAINN_GPU_SLICE, BLOCKS = first_layer ? 2 : 3;
    if (in_shared) load_table<value_table<true, fast>, FORWARD_THREADS>(step.layer[l], shared, blockIdx.x % SLICES);
    // For layer 1 and above, rows are read before the features are awaited.
    if (first_layer) begin_stage(step.gpu, stage_message(l));
    edge_tasks task(SLICES, step.gpu.call->n_atoms, in_shared);
    value_table<in_shared, fast> table(step.layer[l], shared, task.slice);
    const int lane = threadIdx.x % 32, quarter = lane / 8, f = 2 * (lane % 8);
    const int width = first_layer ? 32 : 96;
    const char *rows = pin_in_register((first_layer ? step.x0 : step.state[l]) + task.slice * width + 2 * f);
    // The sums are added to q in the first quarter, to a component of μ in the others; two features of it.
    const float *own = quarter == 0
                           ? step.q + task.slice * 16 + f
                           : step.state[l] + place_paired<F, STATE_PAIRS>(0, STATE_MUX + quarter - 1, task.slice * 16 + f);
    const unsigned own_stride = quarter == 0 ? F : 6 * F, own_second = quarter == 0 ? 1 : 2;
    float *prime = step.prime + (task.slice * 4 + quarter) * 16 + f;
    edge_chunk next;
    edge_view<BLOCKS, false> e;
    if (task.atom < task.end) next.load(step, step.gpu.neighbors.edges, step.gpu.neighbors.row_length, task.atom, 0);
    if (!first_layer) begin_stage(step.gpu, stage_message(l));

    for (int i = task.atom; i < task.end; i += task.stride) {
        message_sums sums;
        edge_chunk chunk = next;
        chunk.close(step, 0);
        if (i + task.stride < task.end)
            next.load(step, step.gpu.neighbors.edges, step.gpu.neighbors.row_length, i + task.stride, 0);
        const int length = chunk.length;
        for (int begin = 0; begin < length; begin += 32) {
            if (begin > 0) {
                chunk.load(step, step.gpu.neighbors.edges, step.gpu.neighbors.row_length, i, begin);
                chunk.close(step, begin);
            }
            const int packed =
                first_layer ? chunk.species * PAINN_GPU_INTERVALS + chunk.packed % PAINN_GPU_INTERVALS : chunk.packed;
            const int n = min(32, length - begin);
            // With a block for each row, the next edge's filters are evaluated while this one's features are loaded.
            if (!in_shared && task.begin < n) {
                e.locate(chunk, packed, task.begin + quarter);
                e.filter(table);
            }
            for (int k = task.begin, mine = k + quarter; k < n; k += task.step, mine += task.step) {
                if (in_shared) e.locate(chunk, packed, mine);
                const float4 *x = (const float4 *)(rows + (size_t)(unsigned)e.j * (SLICES * width * sizeof(float)));
                const float4 x0 = x[0]; // q, R of two features
                float4 x1, x2;
                if (!first_layer) {
                    x1 = x[8];  // μ_x, μ_y
                    x2 = x[16]; // μ_z, x^μ
                }
                if (in_shared) e.filter(table);
                const edge_view<BLOCKS, false> now = e;
                if (!in_shared && k + task.step < n) {
                    e.locate(chunk, packed, mine + task.step);
                    e.filter(table);
                }
                sums.add<first_layer>(now, x0, x1, x2);
            }
        }
        float2 mine = sums.finish(), before = make_float2(0, 0);
        if (!first_layer)
            before = make_float2(own[(size_t)i * own_stride], own[(size_t)i * own_stride + own_second]);
        else if (quarter == 0)
            before = *(const float2 *)(step.embedding + ((size_t)step.gpu.neighbors.species[i] * SLICES + task.slice) * 16 + f);
        if (!in_shared && !add_warps<1>(&mine)) return;
        *(float2 *)(prime + (size_t)(unsigned)i * (4 * F)) = make_float2(before.x + mine.x, before.y + mine.y);
    }
}

template <int F, bool first_layer, bool in_shared, bool fast>
static __global__ void __launch_bounds__(!in_shared    ? 128
                                         : first_layer ? BACKWARD_THREADS_FIRST
                                                       : BACKWARD_THREADS)
    message_back_kernel(const __grid_constant__ painn_gpu_step step, int l)
{
    DYNAMIC_SHARED(shared);
    const int SLICES = F / PAINN_GPU_SLICE, BLOCKS = first_layer ? 2 : 3,
              THREADS = first_layer ? BACKWARD_THREADS_FIRST : BACKWARD_THREADS;
    if (in_shared) load_table<filter_table<true, fast>, THREADS>(step.layer[l], shared, blockIdx.x % SLICES);
    edge_tasks task(SLICES, step.gpu.call->n_atoms, in_shared);
    filter_table<in_shared, fast> table(step.layer[l], shared, task.slice);
    const int lane = threadIdx.x % 32, quarter = lane / 8, f = 2 * (lane % 8);
    const float scale = lane % 4 == 0 ? step.table_scale : 1.0f; // dt/dd for κ
    // Of κ and ū of eight edges each lane gets one number: of its quarter's edge, or of the one four further; with a block for each row,
    // of four edges.
    const int mine_of = (in_shared ? lane & 4 : (lane & 4) << 20) + quarter, STEP = in_shared ? 8 : 16;
    const int n_above = l + 1 < step.n_layers ? step.call_above->n_atoms : 0; // atoms whose edges have gradients already
    const char *adjoint = pin_in_register((const float4 *)step.adjoint + task.slice * 16 + lane % 8);
    const float *own = (first_layer ? step.x0 + task.slice * 32 : step.state[l] + task.slice * 96) + 2 * f;
    float *out = step.sender + (task.slice * 6 + quarter) * 16 + f; // x̄ of the first three quarters, μ̄ of the last three
    const float *start = step.adjoint + place_paired<F, ADJOINT_PAIRS>(0, ADJOINT_Q + quarter, task.slice * 16 + f);
    float *gradients = step.edge_gradient +
                       (size_t)task.slice * step.gpu.neighbors.atom_capacity * step.gpu.neighbors.row_capacity * 4 + mine_of * 4 +
                       lane % 4;
    edge_chunk next;
    edge_view<BLOCKS, true> e;
    if (first_layer && task.atom < task.end)
        next.load(step, step.gpu.neighbors.incoming, step.gpu.neighbors.incoming_length, task.atom, 0);
    begin_stage(step.gpu, stage_edges(step.n_layers, l)); // only the adjoints come from the previous kernel

    for (int j = task.atom; j < task.end; j += task.stride) {
        reverse_sums sums;
        sums.load(own + (first_layer ? (size_t)step.gpu.neighbors.species[j] * (2 * F) : (size_t)(unsigned)j * (6 * F)),
                  first_layer);
        edge_chunk chunk = next;
        if (!first_layer) chunk.load(step, step.gpu.neighbors.incoming, step.gpu.neighbors.incoming_length, j, 0);
        chunk.close(step, 0);
        if (first_layer && j + task.stride < task.end)
            next.load(step, step.gpu.neighbors.incoming, step.gpu.neighbors.incoming_length, j + task.stride, 0);
        const int length = chunk.length;
        float *gradient = gradients + (size_t)j * step.gpu.neighbors.row_capacity * 4;
        for (int begin = 0; begin < length; begin += 32) {
            if (begin > 0) {
                chunk.load(step, step.gpu.neighbors.incoming, step.gpu.neighbors.incoming_length, j, begin);
                chunk.close(step, begin);
            }
            const int packed = chunk.packed, n = min(32, length - begin);
            if (!in_shared && task.begin < n) {
                e.locate(chunk, packed, task.begin + quarter);
                e.filter(table);
            }
            const int n_before = j < n_above ? n : 0;
            float *at = gradient + (begin + task.begin) * 4, before = 0;
            // Read one step ahead, to hide the latency.
            if (task.begin + mine_of < n_before) before = *at;
            const auto four = [&](int mine) {
                if (in_shared) e.locate(chunk, packed, mine);
                const float4 *bar = (const float4 *)(adjoint + (size_t)(unsigned)e.j * (SLICES * 64 * sizeof(float)));
                const float4 bar0 = bar[0], bar1 = bar[8];
                if (in_shared) e.filter(table);
                const edge_view<BLOCKS, true> now = e;
                if (!in_shared && mine - quarter + task.step < n) {
                    e.locate(chunk, packed, mine + task.step);
                    e.filter(table);
                }
                return sums.terms<first_layer>(now, bar0, bar1);
            };
            // Each lane gets a number of eight edges: two steps of four, the second of which may be empty.
            const auto eight = [&](int k, float4 u, float4 v) {
                float *const here = at;
                const float so_far = before;
                at += 4 * STEP;
                if (k + STEP + mine_of < n_before) before = *at;
                const float mine =
                    share(share(share(u.x, v.x, 4), share(u.z, v.z, 4), 2), share(share(u.y, v.y, 4), share(u.w, v.w, 4), 2), 1);
                if (k + mine_of < n) *here = fmaf(mine, scale, so_far);
            };
            int k = task.begin;
            // In pairs without a condition between; with all filters a second copy of the loop costs more than it saves.
            for (; in_shared && first_layer && k + 4 < n; k += 8) {
                const float4 u = four(k + quarter);
                eight(k, u, four(k + 4 + quarter));
            }
            for (; k < n; k += STEP) {
                const bool both = in_shared && !first_layer && k + 4 < n;
                const float4 u = four(k + quarter);
                eight(k, u, both ? four(k + 4 + quarter) : make_float4(0, 0, 0, 0));
            }
        }
        if (first_layer) continue;
        float2 mine[2];
        sums.finish(mine);
        if (!in_shared && !add_warps<2>(mine)) return;
        float *to = out + (size_t)(unsigned)j * (6 * F);
        if (quarter < 3) *(float2 *)to = mine[0];
        if (quarter > 0) {
            // μ̄_j starts from its own μ̄'_j.
            const float *from = start + (size_t)(unsigned)j * (4 * F);
            *(float2 *)(to + 32) = make_float2(from[0] + mine[1].x, from[2] + mine[1].y);
        }
    }
}

// ---- short rows: each quarter of a warp has a row of its own, so that nothing is summed over quarters at the end of a row, and what begins
// and ends rows is executed once for four of them. Eight edges of each row are read at once. The table is in shared memory.

struct row_of_quarter {
    int i; // clamped
    bool there;
    edge_chunk chunk;
    __device__ __forceinline__ row_of_quarter(int atom, int end) : i(min(atom, end - 1)), there(atom < end)
    {
    }
    // Edges from `begin` on.
    static __device__ __forceinline__ int place(int begin)
    {
        return begin - (int)(threadIdx.x & 24);
    }
    __device__ __forceinline__ void load(const painn_gpu_step &step, const gpu_edge *rows, const int32_t *lengths, int begin)
    {
        chunk.load(step, rows, lengths, i, place(begin));
    }
    // Returns the length of the longest of the warp's rows.
    __device__ __forceinline__ int close(const painn_gpu_step &step, int begin)
    {
        if (!there) chunk.length = 0;
        chunk.close(step, place(begin));
        const int longer = max(chunk.length, __shfl_xor_sync(~0u, chunk.length, 8));
        return max(longer, __shfl_xor_sync(~0u, longer, 16));
    }
};

template <int F, bool first_layer, bool fast>
static __global__ void __launch_bounds__(FORWARD_THREADS) message_short_kernel(const __grid_constant__ painn_gpu_step step, int l)
{
    DYNAMIC_SHARED(shared);
    const int SLICES = F / PAINN_GPU_SLICE, BLOCKS = first_layer ? 2 : 3;
    load_table<value_table<true, fast>, FORWARD_THREADS>(step.layer[l], shared, blockIdx.x % SLICES);
    if (first_layer) begin_stage(step.gpu, stage_message(l));
    const edge_tasks task(SLICES, step.gpu.call->n_atoms, true);
    const value_table<true, fast> table(step.layer[l], shared, task.slice);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, quarter = lane / 8, f = 2 * (lane % 8);
    const int width = first_layer ? 32 : 96, first = task.atom - warp;
    const char *rows = pin_in_register((first_layer ? step.x0 : step.state[l]) + task.slice * width + 2 * f);
    row_of_quarter next(first + 4 * warp + quarter, task.end);
    if (first + 4 * warp < task.end) next.load(step, step.gpu.neighbors.edges, step.gpu.neighbors.row_length, 0);
    if (!first_layer) begin_stage(step.gpu, stage_message(l));

    for (int group = first + 4 * warp; group < task.end; group += 4 * task.stride) {
        message_sums sums;
        row_of_quarter row = next;
        for (int begin = 0;; begin += 8) {
            const int longest = row.close(step, begin);
            const bool more = begin + 8 < longest;
            if (!more) next = row_of_quarter(group + 4 * task.stride + quarter, task.end);
            if (more || group + 4 * task.stride < task.end)
                next.load(step, step.gpu.neighbors.edges, step.gpu.neighbors.row_length, more ? begin + 8 : 0);
            const edge_chunk &chunk = row.chunk;
            const int packed =
                first_layer ? chunk.species * PAINN_GPU_INTERVALS + chunk.packed % PAINN_GPU_INTERVALS : chunk.packed;
            const int n = min(8, longest - begin);
            for (int k = 0; k < n; k++) {
                edge_view<BLOCKS, false> e;
                e.locate(chunk, packed, (lane & 24) + k);
                const float4 *x = (const float4 *)(rows + (size_t)(unsigned)e.j * (SLICES * width * sizeof(float)));
                const float4 x0 = x[0]; // q, R of two features
                float4 x1, x2;
                if (!first_layer) {
                    x1 = x[8];  // μ_x, μ_y
                    x2 = x[16]; // μ_z, x^μ
                }
                e.filter(table);
                sums.add<first_layer>(e, x0, x1, x2);
            }
            if (!more) break;
            row = next;
        }
        if (!row.there) continue;
        const size_t i = (size_t)(unsigned)row.i;
        if (first_layer) {
            const float2 q =
                *(const float2 *)(step.embedding + ((size_t)step.gpu.neighbors.species[i] * SLICES + task.slice) * 16 + f);
            sums.q.x += q.x, sums.q.y += q.y;
        } else {
            const float2 q = *(const float2 *)(step.q + i * F + task.slice * 16 + f);
            const float4 *own = (const float4 *)(rows + i * (SLICES * width * sizeof(float)));
            const float4 xy = own[8], z = own[16];
            sums.q.x += q.x, sums.q.y += q.y;
            sums.mx.x += xy.x, sums.mx.y += xy.z;
            sums.my.x += xy.y, sums.my.y += xy.w;
            sums.mz.x += z.x, sums.mz.y += z.z;
        }
        float *prime = step.prime + i * (4 * F) + task.slice * 64 + f;
        *(float2 *)prime = sums.q;
        *(float2 *)(prime + 16) = sums.mx;
        *(float2 *)(prime + 32) = sums.my;
        *(float2 *)(prime + 48) = sums.mz;
    }
}

template <int F, bool first_layer, bool fast>
static __global__ void __launch_bounds__(BACKWARD_THREADS)
    message_back_short_kernel(const __grid_constant__ painn_gpu_step step, int l)
{
    DYNAMIC_SHARED(shared);
    const int SLICES = F / PAINN_GPU_SLICE, BLOCKS = first_layer ? 2 : 3;
    load_table<filter_table<true, fast>, BACKWARD_THREADS>(step.layer[l], shared, blockIdx.x % SLICES);
    const edge_tasks task(SLICES, step.gpu.call->n_atoms, true);
    const filter_table<true, fast> table(step.layer[l], shared, task.slice);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, quarter = lane / 8, f = 2 * (lane % 8);
    const int second = lane / 4 % 2, first = task.atom - warp;   // second: this lane gets a number of the second of two edges
    const float scale = lane % 4 == 0 ? step.table_scale : 1.0f; // dt/dd for κ
    const int n_above = l + 1 < step.n_layers ? step.call_above->n_atoms : 0; // atoms whose edges have gradients already
    const char *adjoint = pin_in_register((const float4 *)step.adjoint + task.slice * 16 + lane % 8);
    const float *own = (first_layer ? step.x0 + task.slice * 32 : step.state[l] + task.slice * 96) + 2 * f;
    float *gradients = step.edge_gradient +
                       (size_t)task.slice * step.gpu.neighbors.atom_capacity * step.gpu.neighbors.row_capacity * 4 + second * 4 +
                       lane % 4;
    row_of_quarter row(first + 4 * warp + quarter, task.end);
    if (first + 4 * warp < task.end) row.load(step, step.gpu.neighbors.incoming, step.gpu.neighbors.incoming_length, 0);
    begin_stage(step.gpu, stage_edges(step.n_layers, l)); // only the adjoints come from the previous kernel

    for (int group = first + 4 * warp; group < task.end; group += 4 * task.stride) {
        if (group > first + 4 * warp) {
            row = row_of_quarter(group + quarter, task.end);
            row.load(step, step.gpu.neighbors.incoming, step.gpu.neighbors.incoming_length, 0);
        }
        const size_t j = (size_t)(unsigned)row.i;
        const bool accumulates = row.i < n_above;
        reverse_sums sums;
        sums.load(own + (first_layer ? (size_t)step.gpu.neighbors.species[j] * (2 * F) : j * (6 * F)), first_layer);
        float *gradient = gradients + j * step.gpu.neighbors.row_capacity * 4;
        for (int begin = 0;; begin += 8) {
            const int longest = row.close(step, begin), n = min(8, longest - begin);
            const edge_chunk chunk = row.chunk;
            const bool more = begin + 8 < longest;
            if (more) row.load(step, step.gpu.neighbors.incoming, step.gpu.neighbors.incoming_length, begin + 8);
            const int n_here = chunk.length - begin;
            const auto one = [&](int k) {
                edge_view<BLOCKS, true> e;
                e.locate(chunk, chunk.packed, (lane & 24) + k);
                const float4 *bar = (const float4 *)(adjoint + (size_t)(unsigned)e.j * (SLICES * 64 * sizeof(float)));
                const float4 bar0 = bar[0], bar1 = bar[8];
                e.filter(table);
                return sums.terms<first_layer>(e, bar0, bar1);
            };
            for (int k = 0; k < n; k += 2) {
                float *const at = gradient + (begin + k) * 4;
                const float before = accumulates && k + second < n_here ? *at : 0.0f;
                const float4 u = one(k), v = one(k + 1);
                const float mine =
                    share(share(share(u.x, v.x, 4), share(u.z, v.z, 4), 2), share(share(u.y, v.y, 4), share(u.w, v.w, 4), 2), 1);
                if (k + second < n_here) *at = fmaf(mine, scale, before);
            }
            if (!more) break;
        }
        if (first_layer || !row.there) continue;
        float2 m = mul2(sums.x, sums.mux);
        fma2(m, sums.y, sums.muy);
        fma2(m, sums.z, sums.muz);
        // μ̄_j starts from its own μ̄'_j.
        const float4 *start = (const float4 *)(adjoint + j * (SLICES * 64 * sizeof(float)));
        const float4 qx = start[0], yz = start[8];
        float2 mx = make_float2(qx.y, qx.w), my = make_float2(yz.x, yz.z), mz = make_float2(yz.y, yz.w);
        fma2(mx, sums.x, sums.xm);
        fma2(my, sums.y, sums.xm);
        fma2(mz, sums.z, sums.xm);
        float *to = step.sender + j * (6 * F) + task.slice * 96 + f;
        *(float2 *)to = sums.bq;
        *(float2 *)(to + 16) = sums.bR;
        *(float2 *)(to + 32) = m;
        *(float2 *)(to + 48) = mx;
        *(float2 *)(to + 64) = my;
        *(float2 *)(to + 80) = mz;
    }
}

// ---- forces ---------------------------------------------------------------------------------------------------------

// κ and ū of entry `at` of `incoming`, by slices: all loads are issued before the first is awaited.
template <int SLICES> struct edge_gradients {
    float4 part[SLICES];
    __device__ __forceinline__ edge_gradients(const painn_gpu_step &step, size_t at)
    {
        const float4 *from = (const float4 *)step.edge_gradient + at;
        const size_t slice = (size_t)step.gpu.neighbors.atom_capacity * step.gpu.neighbors.row_capacity;
#pragma unroll
        for (int s = 0; s < SLICES; s++) part[s] = from[s * slice];
    }
    // g = dE/dr of the pair whose reverse is that entry, from the pair's u and d.
    __device__ __forceinline__ float3 of_pair(float4 u) const
    {
        float4 sum = part[0];
#pragma unroll
        for (int s = 1; s < SLICES; s++) sum = sum + part[s];
        const float inverse = __fdividef(1.0f, u.w), along = sum.x - (u.x * sum.y + u.y * sum.z + u.z * sum.w) * inverse;
        return make_float3(fmaf(along, u.x, sum.y * inverse), fmaf(along, u.y, sum.z * inverse),
                           fmaf(along, u.z, sum.w * inverse));
    }
};

// An atom's edges from the neighbor list, one incoming and one outgoing for each lane; known long before the gradients.
struct pairs_of_atom {
    static __device__ __forceinline__ bool sends(const gpu_neighbors &list, int sender)
    {
        return !list.drop_ghost_pairs || list.owned[sender];
    }
    int i, n_in, n_out; // n_in = n_out in a symmetric list
    size_t row;
    float4 in, out;           // u and d of an incoming edge, reversed, and of an outgoing one
    int back;                 // index of the outgoing edge's reverse
    float core_in, core_out;  // slopes of their core repulsion
    bool known_in, known_out; // their gradients were computed here

    // Reverses found on another stream are available only after begin_stage.
    __device__ __forceinline__ pairs_of_atom(const painn_gpu_step &step, int atom, bool reverses_are_there)
        : i(atom), n_in(step.gpu.neighbors.incoming_length[atom]), n_out(step.gpu.neighbors.row_length[atom]),
          row((size_t)atom * step.gpu.neighbors.row_capacity), back(-1)
    {
        const int lane = threadIdx.x % 32;
        if (reverses_are_there && lane < n_out) back = step.gpu.neighbors.reverse[row + lane];
        look_at(step, lane);
    }
    __device__ __forceinline__ void look_at(const painn_gpu_step &step, int k)
    {
        in = k < n_in ? *(const float4 *)step.gpu.neighbors.incoming[row + k].u : make_float4(0, 0, 0, 1);
        out = k < n_out ? *(const float4 *)step.gpu.neighbors.edges[row + k].u : make_float4(0, 0, 0, 1);
        const gpu_neighbors &list = step.gpu.neighbors;
        known_in = k < n_in && sends(list, i);
        known_out = k < n_out && (!list.drop_ghost_pairs || sends(list, list.edges[row + k].packed >> list.tag_bits));
        core_in = core_out = 0;
        if (!step.core_radius) return;
        if (k < n_in) core_in = core_slope(step, list.incoming[row + k].packed >> list.tag_bits, list.species[i], in.w);
        if (k < n_out) core_out = core_slope(step, i, list.edges[row + k].species, out.w);
    }
};

// Three sums over a warp; lanes 0, 1 and 2 get one each.
static __device__ __forceinline__ double sum_three(double x, double y, double z)
{
    const int lane = threadIdx.x % 32;
    double sum = (lane & 1 ? y : x) + __shfl_xor_sync(~0u, lane & 1 ? x : y, 1);
    z += __shfl_xor_sync(~0u, z, 1);
    sum = (lane & 2 ? z : sum) + __shfl_xor_sync(~0u, lane & 2 ? sum : z, 2);
#pragma unroll
    for (int mask = 4; mask < 32; mask *= 2) sum += __shfl_xor_sync(~0u, sum, mask);
    return sum;
}

// By the lanes of a warp; each of the first three gets a component. Without `keep`: a dry run over 32 pairs that warms the instruction
// cache; results are discarded.
template <int SLICES>
static __device__ __forceinline__ double forces_of_atom(const painn_gpu_step &step, const gpu_call &call, pairs_of_atom &pairs,
                                                        bool keep)
{
    const int lane = threadIdx.x % 32, i = pairs.i;
    const bool want_virial = call.want_virial;
    float fx = 0, fy = 0, fz = 0, w[9] = {0, 0, 0, 0, 0, 0, 0, 0, 0};
    const int n = max(pairs.n_in, pairs.n_out), end = keep ? n : min(n, 32);
    for (int k = lane; k < end; k += 32) {
        if (k >= 32) pairs.look_at(step, k);
        // A lane without a pair reads a valid entry.
        const int back = k >= pairs.n_out            ? 0
                         : k < 32 && pairs.back >= 0 ? pairs.back
                                                     : step.gpu.neighbors.reverse[pairs.row + k];
        const edge_gradients<SLICES> of_in(step, k < pairs.n_in ? pairs.row + k : 0), of_out(step, back);
        const float4 r = make_float4(-pairs.in.x, -pairs.in.y, -pairs.in.z, pairs.in.w);
        // Pairs (j, i) and (i, j).
        float3 in = of_in.of_pair(r), out = of_out.of_pair(pairs.out);
        if (!pairs.known_in) in = make_float3(0, 0, 0);
        if (!pairs.known_out) out = make_float3(0, 0, 0);
        in = add_core(in, pairs.core_in, r);
        out = add_core(out, pairs.core_out, pairs.out);
        fx += out.x - in.x;
        fy += out.y - in.y;
        fz += out.z - in.z;
        if (want_virial) {
            // dE/dε += g ⊗ r, the virial is its negative.
            const float rx = -r.w * r.x, ry = -r.w * r.y, rz = -r.w * r.z;
            w[0] += in.x * rx, w[1] += in.x * ry, w[2] += in.x * rz;
            w[3] += in.y * rx, w[4] += in.y * ry, w[5] += in.y * rz;
            w[6] += in.z * rx, w[7] += in.z * ry, w[8] += in.z * rz;
        }
    }
    const double force = step.gpu.energy_unit / step.gpu.length_unit * sum_three(fx, fy, fz);
    if (lane < 3 && call.forces && keep) call.forces[(size_t)i * 3 + lane] = force;
    if (lane < 3 && keep) note_overflow(step.gpu, force);
    if (want_virial)
        for (int c = 0; c < 9; c++) {
            double v = sum_warp(w[c]);
            if (lane == c && keep) step.gpu.atom_virial[(size_t)i * 9 + c] = step.gpu.energy_unit * v;
        }
    return force;
}

// Energy of system s, with forces its virial and stress, and energies of its atoms.
template <int SLICES>
static __device__ __forceinline__ void sum_system(const painn_gpu_step &step, const gpu_call &call, int s, bool with_forces,
                                                  const core_ahead &core, bool keep)
{
    sum_system(
        step.gpu, call, s, with_forces, false,
        [&](int atom, double &own) {
            const bool owned = step.gpu.neighbors.owned[atom];
            double raw = owned ? step.o2 : 0.0;
#pragma unroll
            for (int k = 0; k < SLICES; k++) raw += step.raw_energy[(size_t)k * step.gpu.neighbors.atom_capacity + atom];
            if (step.core_radius && owned) raw += core.of(step, atom);
            own = owned ? step.gpu.neighbors.offset[step.gpu.neighbors.species[atom]] : 0.0;
            return raw * step.gpu.energy_unit;
        },
        keep);
}

// Given pairs may lack their reverses, which the report must say: the last block to finish its search publishes it. Called by all threads;
// true in the first thread of that block.
static __device__ __forceinline__ bool last_to_search(const painn_gpu_step &step)
{
    __syncthreads();
    if (threadIdx.x > 0) return false;
    __threadfence();
    const bool last = atomicAdd(&step.gpu.report->n_searched, 1) + 1 == (int)gridDim.x;
    if (last) __threadfence(); // flags of other blocks are visible
    return last;
}

// The last kernel of a step. `after_fused`: starts while the fused layers run, with time to search for the reverses and for a dry run that
// warms the instruction cache. One warp for each atom, which in dynamics moves it; blocks from `sums_from` on sum the systems' energies,
// which need no forces (0: summed elsewhere). Registers suffice for all loads of a lane at once; with fewer, loads would wait for each
// other.
template <int SLICES, bool moves, bool sums>
static __global__ void __launch_bounds__(128, 1)
    forces_kernel(const __grid_constant__ painn_gpu_step step, int after_fused, int sums_from)
{
    if (after_fused) let_next_start();
    const gpu_call call = *step.gpu.call;
    const bool sum = sums && (int)blockIdx.x >= sums_from;
    const int i = sum ? INT32_MAX : blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, s = blockIdx.x - sums_from;
    const bool there = i < call.n_atoms;
    if (after_fused && there) find_reverses(step.gpu, i);
    const bool reports = sums && after_fused && step.gpu.neighbors.given_pairs ? last_to_search(step) : sum && s == 0;
    pairs_of_atom pairs(step, there ? i : 0, after_fused && there);
    const core_ahead core(step, call, s, sum);
    const moving_atom atom(step.gpu.motion, moves ? i : INT32_MAX, step.gpu.motion.place + 1);
    __syncwarp(); // reconverge: lanes that diverged above would stay so
#pragma unroll 1
    for (int pass = after_fused ? 0 : 1; pass < 2; pass++) {
        const bool keep = pass == 1;
        if (keep) begin_stage(step.gpu, 1 + 4 * step.n_layers);
        if (sum && s < call.n_systems) sum_system<SLICES>(step, call, s, false, core, keep);
        if (!there) continue;
        const double force = forces_of_atom<SLICES>(step, call, pairs, keep);
        if (moves) move_atom(step.gpu, atom, force, keep);
    }
    if (reports) publish_report(step.gpu, call);
    if (!step.gpu.stamps || threadIdx.x > 0) return;
    uint64_t *const end = step.gpu.stamps + 2 + 4 * step.n_layers;
    if (sums && (blockIdx.x == 0 || s == 0)) end[sum ? 1 : 0] = gpu_timer();
    if (sums_from == 0 && (int)blockIdx.x == (call.n_atoms - 1) / (int)(blockDim.x / 32)) end[0] = end[1] = gpu_timer();
}

// Sums of large systems, or with virials: one block for each system, in a fixed order.
template <int SLICES>
static __global__ void __launch_bounds__(1024)
    sums_kernel(const __grid_constant__ painn_gpu_step step, int with_forces, int after_fused)
{
    const int s = blockIdx.x;
    const gpu_call call = *step.gpu.call;
    const core_ahead core(step, call, s, true);
#pragma unroll 1
    for (int pass = after_fused ? 0 : 1; pass < 2; pass++) {
        const bool keep = pass == 1;
        if (keep) begin_stage(step.gpu, 2 + 4 * step.n_layers);
        if (s == 0 && keep) publish_report(step.gpu, call);
        if (s < call.n_systems) sum_system<SLICES>(step, call, s, with_forces, core, keep);
    }
    if (step.gpu.stamps && s == 0 && threadIdx.x == 0) step.gpu.stamps[3 + 4 * step.n_layers] = gpu_timer();
}

// ---- launches -------------------------------------------------------------------------------------------------------

template <bool fast> static constexpr int table_bytes(bool back)
{
    return (back ? filter_table<true, fast>::ENTRIES : value_table<true, fast>::ENTRIES) * (int)sizeof(uint4);
}

template <int F, bool in_shared, bool fast>
static int launch_edge(const painn_gpu_step *step, const gpu_plan *plan, int layer, bool back, void *stream)
{
    const int slices = F / PAINN_GPU_SLICE, threads = !in_shared   ? 128
                                                      : !back      ? FORWARD_THREADS
                                                      : layer == 0 ? BACKWARD_THREADS_FIRST
                                                                   : BACKWARD_THREADS;
    const int blocks = in_shared ? plan->n_multiprocessors / slices * slices : plan->n_atoms * slices;
    void (*kernel)(painn_gpu_step, int) =
        back         ? layer == 0 ? message_back_kernel<F, true, in_shared, fast> : message_back_kernel<F, false, in_shared, fast>
                : layer == 0 ? message_kernel<F, true, in_shared, fast>
                     : message_kernel<F, false, in_shared, fast>;
    return launch(kernel, blocks, threads, in_shared ? table_bytes<fast>(back) : 0, 1, plan->overlap, stream, *step, layer);
}

template <int F, bool fast>
static int launch_short(const painn_gpu_step *step, const gpu_plan *plan, int layer, bool back, void *stream)
{
    const int slices = F / PAINN_GPU_SLICE, threads = back ? BACKWARD_THREADS : FORWARD_THREADS;
    void (*kernel)(painn_gpu_step, int) =
        back         ? layer == 0 ? message_back_short_kernel<F, true, fast> : message_back_short_kernel<F, false, fast>
                : layer == 0 ? message_short_kernel<F, true, fast>
                     : message_short_kernel<F, false, fast>;
    return launch(kernel, plan->n_multiprocessors / slices * slices, threads, table_bytes<fast>(back), 1, plan->overlap, stream,
                  *step, layer);
}

template <int F, bool fast>
static int dispatch(const painn_gpu_step *step, const gpu_plan *plan, int layer, bool back, void *stream)
{
    if (plan->edge_mode == PAINN_GPU_SHORT_ROWS) return launch_short<F, fast>(step, plan, layer, back, stream);
    return plan->edge_mode == PAINN_GPU_ROW_BLOCK ? launch_edge<F, false, fast>(step, plan, layer, back, stream)
                                                  : launch_edge<F, true, fast>(step, plan, layer, back, stream);
}

template <bool fast> static int dispatch(const painn_gpu_step *step, const gpu_plan *plan, int layer, bool back, void *stream)
{
    return step->n_features == 32   ? dispatch<32, fast>(step, plan, layer, back, stream)
           : step->n_features == 64 ? dispatch<64, fast>(step, plan, layer, back, stream)
                                    : dispatch<128, fast>(step, plan, layer, back, stream);
}

static int dispatch(const painn_gpu_step *step, const gpu_plan *plan, int layer, bool back, void *stream)
{
    return step->numbers == PAINN_GPU_SPLIT_HALVES ? dispatch<false>(step, plan, layer, back, stream)
                                                   : dispatch<true>(step, plan, layer, back, stream);
}

int painn_gpu_launch_message(const painn_gpu_step *step, const gpu_plan *plan, int layer, void *stream)
{
    return dispatch(step, plan, layer, false, stream);
}

int painn_gpu_launch_edges(const painn_gpu_step *step, const gpu_plan *plan, int layer, void *stream)
{
    return dispatch(step, plan, layer, true, stream);
}

// Where energies are summed. Virials need all forces, and in dynamics energies are read only after a graph's last step. Otherwise during
// the backward pass, or with the forces after fused layers.
enum sums_place { WITH_FORCES, DURING_BACKWARD, AFTER_FORCES };
static sums_place place_of_sums(const painn_gpu_step *step, const gpu_plan *plan)
{
    if (!plan->forces || plan->virial || step->gpu.motion.n_atoms > 0) return AFTER_FORCES;
    return plan->fused ? WITH_FORCES : DURING_BACKWARD;
}

bool painn_gpu_sums_separate(const painn_gpu_step *step, const gpu_plan *plan)
{
    return place_of_sums(step, plan) == DURING_BACKWARD;
}

static int threads_of_sums(const gpu_plan *plan)
{
    return plan->n_atoms / plan->n_systems <= 512 ? 128 : 1024;
}

int painn_gpu_launch_sums(const painn_gpu_step *step, const gpu_plan *plan, void *stream)
{
    painn_gpu_step quiet = *step;
    quiet.gpu.stamps = NULL; // runs concurrently: no stage
    return launch(step->n_features == 32   ? sums_kernel<2>
                  : step->n_features == 64 ? sums_kernel<4>
                                           : sums_kernel<8>,
                  plan->n_systems, threads_of_sums(plan), 0, 1, 0, stream, quiet, 0, 0);
}

template <int SLICES> static int launch_forces(const painn_gpu_step *step, const gpu_plan *plan, int after_fused, void *stream)
{
    const int blocks = (plan->n_atoms + 3) / 4;
    const bool moves = step->gpu.motion.n_atoms > 0, apart = painn_gpu_sums_separate(step, plan);
    int error = 0;
    if (place_of_sums(step, plan) == WITH_FORCES)
        return launch(forces_kernel<SLICES, false, true>, blocks + plan->n_systems, 128, 0, 1, plan->overlap, stream, *step,
                      after_fused, blocks);
    if (plan->forces)
        error = launch(moves ? forces_kernel<SLICES, true, false> : forces_kernel<SLICES, false, false>, blocks, 128, 0, 1,
                       plan->overlap, stream, *step, after_fused, apart ? 0 : blocks);
    if (apart) return error;
    // In dynamics energies are read only after a graph's last step.
    if (error == 0 && (!moves || step->gpu.motion.place + 1 == step->gpu.motion.n_steps))
        error = launch(sums_kernel<SLICES>, plan->n_systems, threads_of_sums(plan), 0, 1, plan->overlap, stream, *step,
                       plan->forces, after_fused);
    return error;
}

int painn_gpu_launch_forces(const painn_gpu_step *step, const gpu_plan *plan, int after_fused, void *stream)
{
    return step->n_features == 32   ? launch_forces<2>(step, plan, after_fused, stream)
           : step->n_features == 64 ? launch_forces<4>(step, plan, after_fused, stream)
                                    : launch_forces<8>(step, plan, after_fused, stream);
}

// Shared memory for the table and no more: the rest of the memory is the L1 cache, which the gathers use.
template <typename Kernel> static void give_shared(Kernel *kernel, int bytes)
{
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxL1);
}

template <int F, bool fast> static void raise()
{
    give_shared(message_kernel<F, true, true, fast>, table_bytes<fast>(false));
    give_shared(message_kernel<F, false, true, fast>, table_bytes<fast>(false));
    give_shared(message_back_kernel<F, true, true, fast>, table_bytes<fast>(true));
    give_shared(message_back_kernel<F, false, true, fast>, table_bytes<fast>(true));
    give_shared(message_short_kernel<F, true, fast>, table_bytes<fast>(false));
    give_shared(message_short_kernel<F, false, fast>, table_bytes<fast>(false));
    give_shared(message_back_short_kernel<F, true, fast>, table_bytes<fast>(true));
    give_shared(message_back_short_kernel<F, false, fast>, table_bytes<fast>(true));
    give_shared(forces_kernel<F / PAINN_GPU_SLICE, false, false>, 0);
}

int painn_gpu_table_bytes(int numbers)
{
    return numbers == PAINN_GPU_SPLIT_HALVES ? table_bytes<false>(true) : table_bytes<true>(true);
}

// If a block has too little shared memory for the filter table, plans choose the mode that leaves it in global memory.
int painn_gpu_prepare_edge(int numbers, int n_features)
{
    const bool fast = numbers != PAINN_GPU_SPLIT_HALVES;
    if (n_features == 32) fast ? raise<32, true>() : raise<32, false>();
    if (n_features == 64) fast ? raise<64, true>() : raise<64, false>();
    if (n_features == 128) fast ? raise<128, true>() : raise<128, false>();
    const cudaError_t error = cudaGetLastError();
    return error == cudaErrorInvalidValue ? 0 : (int)error;
}
