// SPDX-License-Identifier: MIT
// painn_edges.cu: messages: sums over the edges of an atom, forward and backward.
//
//   forward, row of i:    q'_i = q_i + Σ W^q∘x^q_j ;  μ'_i = μ_i + Σ (W^R∘x^R_j) u + (W^μ∘x^μ_j)∘μ_j
//   backward, row of j in `incoming` (its entry (j, i) is the pair (i, j) reversed: same d, u of opposite sign):
//     P = Σ_c u_c μ̄'_i,c ;  Q = Σ_c μ̄'_i,c∘μ_j,c
//     x̄_j += [W^q∘q̄'_i | W^R∘P | W^μ∘Q] ;  μ̄_j += (W^μ∘x^μ_j)∘μ̄'_i
//     κ += Σ_f x^q∘q̄'∘dW^q + x^R∘P∘dW^R + x^μ∘Q∘dW^μ ;  ū_c += Σ_f W^R∘x^R∘μ̄'_i,c
//   With halo hooks q̄' and μ̄' of ghosts come from their owners, and no x̄ or μ̄ of ghosts is computed.
//
// W_l(d) comes from a table: 128 intervals, a polynomial of degree 4 in each (in the fast modes of degree 3, in halves); dW is the
// derivative of that polynomial. Only dW needs degree 4: the forward pass has a table of degree 3. A warp handles one atom and a slice of
// 16 features; each of its quarters (8 lanes × 2 features) takes every fourth edge, and the quarters are added at the end: nothing is
// added atomically, the order is fixed. κ and ū of eight edges are summed together, so that each lane writes one number. Gathered rows
// are 128 bytes for each pair of components. Bound by latency for small systems, by L1 (table and gathers) for large ones: there a block
// keeps its slice of the table in shared memory and walks over neighboring atoms, whose neighbors it finds in L1. A quarter without an
// edge reads an atom of zeros.
#include "gpu/neighbors/rows.cuh"
#include "painn_edges.cuh"

// Threads of a walking block: as many as registers allow, more in the first layer.
enum { FORWARD_THREADS = 1024, FORWARD_THREADS_SHORT = 768, BACKWARD_THREADS_FIRST = 1024, BACKWARD_THREADS = 768 };
template <bool first_layer> constexpr int threads_short = first_layer ? FORWARD_THREADS : FORWARD_THREADS_SHORT;
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

// Loads from global memory before this stay before what follows. Without it the compiler saves registers by placing the loads of a neighbor's
// features behind reads of the filter table, and a warp waits for one after the other.
static __device__ __forceinline__ void keep_loads_before()
{
    __syncwarp();
}

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
    if (in_shared) request_table<value_table<true, fast>, BLOCKS, FORWARD_THREADS>(step.layer[l], shared, blockIdx.x % SLICES);
    // The search, which the first layer follows, stores the call and lets this kernel start before. Above, rows are read before the features
    // are awaited.
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
    if (in_shared) await_table();

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
                const message_inputs<first_layer> in(rows + (size_t)(unsigned)e.j * (SLICES * width * sizeof(float)));
                if (in_shared && !first_layer && !fast) keep_loads_before();
                if (in_shared) e.filter(table);
                const edge_view<BLOCKS, false> now = e;
                if (!in_shared && k + task.step < n) {
                    e.locate(chunk, packed, mine + task.step);
                    e.filter(table);
                }
                sums.add(now, in);
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

// Writes the sums of atom j: x̄ by the first three quarters of a warp, μ̄, which starts from its own μ̄', by the last three.
template <int F>
static __device__ __forceinline__ void write_senders(const float2 (&mine)[2], int j, int quarter, const float *start, float *out)
{
    float *to = out + (size_t)(unsigned)j * (6 * F);
    if (quarter < 3) *(float2 *)to = mine[0];
    if (quarter > 0) {
        const float *from = start + (size_t)(unsigned)j * (4 * F);
        *(float2 *)(to + 32) = make_float2(from[0] + mine[1].x, from[2] + mine[1].y);
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
        write_senders<F>(mine, j, quarter, start, out);
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
static __global__ void __launch_bounds__(threads_short<first_layer>)
    message_short_kernel(const __grid_constant__ painn_gpu_step step, int l)
{
    DYNAMIC_SHARED(shared);
    const int SLICES = F / PAINN_GPU_SLICE, BLOCKS = first_layer ? 2 : 3;
    request_table<value_table<true, fast>, BLOCKS, threads_short<first_layer>>(step.layer[l], shared, blockIdx.x % SLICES);
    if (first_layer) begin_stage(step.gpu, stage_message(l));
    const edge_tasks task(SLICES, step.gpu.call->n_atoms, true);
    const value_table<true, fast> table(step.layer[l], shared, task.slice);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, quarter = lane / 8, f = 2 * (lane % 8);
    const int width = first_layer ? 32 : 96, first = task.atom - warp;
    const char *rows = pin_in_register((first_layer ? step.x0 : step.state[l]) + task.slice * width + 2 * f);
    row_of_quarter next(first + 4 * warp + quarter, task.end);
    if (first + 4 * warp < task.end) next.load(step, step.gpu.neighbors.edges, step.gpu.neighbors.row_length, 0);
    if (!first_layer) begin_stage(step.gpu, stage_message(l));
    await_table();

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
                const message_inputs<first_layer> in(rows + (size_t)(unsigned)e.j * (SLICES * width * sizeof(float)));
                if (!first_layer && !fast) keep_loads_before();
                e.filter(table);
                sums.add(e, in);
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
        *(float2 *)(to + 32) = sums.bm();
        *(float2 *)(to + 48) = mx;
        *(float2 *)(to + 64) = my;
        *(float2 *)(to + 80) = mz;
    }
}

// ---- launches -------------------------------------------------------------------------------------------------------

// Of the filters of the way back, or of the values.
template <bool fast> static constexpr int table_bytes(bool back, bool first_layer)
{
    typedef value_table<true, fast> values;
    const int entries = back          ? filter_table<true, fast>::ENTRIES
                        : first_layer ? values::template staged<2>::ENTRIES
                                      : values::template staged<3>::ENTRIES;
    return entries * (int)sizeof(uint4);
}

// Blocks that walk over atoms, one on a multiprocessor: those of a slice share all atoms. Some multiprocessors are left to the kernels of
// other streams, else a block would begin when such a kernel ends, and the step would wait for it.
static int walking_blocks(const gpu_plan *plan, int slices)
{
    return max(plan->n_multiprocessors - PAINN_GPU_SPARE, slices) / slices * slices;
}

template <int F, bool in_shared, bool fast>
static int launch_edge(const painn_gpu_step *step, const gpu_plan *plan, int layer, bool back, void *stream)
{
    const int slices = F / PAINN_GPU_SLICE, threads = !in_shared   ? 128
                                                      : !back      ? FORWARD_THREADS
                                                      : layer == 0 ? BACKWARD_THREADS_FIRST
                                                                   : BACKWARD_THREADS;
    const int blocks = in_shared ? walking_blocks(plan, slices) : plan->n_atoms * slices;
    void (*kernel)(painn_gpu_step, int) =
        back         ? layer == 0 ? message_back_kernel<F, true, in_shared, fast> : message_back_kernel<F, false, in_shared, fast>
                : layer == 0 ? message_kernel<F, true, in_shared, fast>
                     : message_kernel<F, false, in_shared, fast>;
    return launch(kernel, blocks, threads, in_shared ? table_bytes<fast>(back, layer == 0) : 0, 1, plan->overlap, stream, *step,
                  layer);
}

template <int F, bool fast>
static int launch_short(const painn_gpu_step *step, const gpu_plan *plan, int layer, bool back, void *stream)
{
    const int slices = F / PAINN_GPU_SLICE, threads = back         ? BACKWARD_THREADS
                                                      : layer == 0 ? threads_short<true>
                                                                   : threads_short<false>;
    void (*kernel)(painn_gpu_step, int) =
        back         ? layer == 0 ? message_back_short_kernel<F, true, fast> : message_back_short_kernel<F, false, fast>
                : layer == 0 ? message_short_kernel<F, true, fast>
                     : message_short_kernel<F, false, fast>;
    return launch(kernel, walking_blocks(plan, slices), threads, table_bytes<fast>(back, layer == 0), 1, plan->overlap, stream,
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

// Shared memory for the table and no more: the rest of the memory is the L1 cache, which the gathers use.
template <typename Kernel> static void give_shared(Kernel *kernel, int bytes)
{
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxL1);
}

template <int F, bool fast> static void raise()
{
    give_shared(message_kernel<F, true, true, fast>, table_bytes<fast>(false, true));
    give_shared(message_kernel<F, false, true, fast>, table_bytes<fast>(false, false));
    give_shared(message_back_kernel<F, true, true, fast>, table_bytes<fast>(true, true));
    give_shared(message_back_kernel<F, false, true, fast>, table_bytes<fast>(true, false));
    give_shared(message_short_kernel<F, true, fast>, table_bytes<fast>(false, true));
    give_shared(message_short_kernel<F, false, fast>, table_bytes<fast>(false, false));
    give_shared(message_back_short_kernel<F, true, fast>, table_bytes<fast>(true, true));
    give_shared(message_back_short_kernel<F, false, fast>, table_bytes<fast>(true, false));
}

int painn_gpu_table_bytes(int numbers)
{
    return numbers == PAINN_GPU_SPLIT_HALVES ? table_bytes<false>(true, false) : table_bytes<true>(true, false);
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
