// SPDX-License-Identifier: MIT
// ani_network.cu: the networks of an ensemble, forward and backward in one kernel.
//
//   h_l = CELU(W_l h_{l−1} + b_l), e = w·h_L + b ;   δ_L = w ∘ s(h_L), δ_{l−1} = W_lᵀ δ_l ∘ s(h_{l−1}), dE/dG = W_1ᵀ δ_1
//   CELU(x) = x > 0 ? x : (e^{10x} − 1)/10,  s(h) = h > 0 ? 1 : 1 + 10 h
//
// A block, or a cluster of blocks that share the columns of each layer, takes a tile of 16, 32 or 64 slots of one species through one
// member (or several, one after the other). Results of a layer are stored in shared memory as operands of the tensor cores, each number as
// two halves; the backward pass overwrites each h with its δ. Weights come from L2 straight to the one warp that has their columns, which
// copies them ahead of the products. Both passes read the same weights, so that those of an ensemble stay in L2. Sums in float32 and in a
// fixed order. Bound, in large systems, by the tensor cores and L2; in small ones by the latency of 2 L products.
#include "ani_gpu.h"
#include "gpu/ptx/load_tiles.cuh"
#include "gpu/ptx/primitives.cuh"

// Bytes of shared memory after the operands, in this order.
static int partial_bytes(int mt, int warps)
{
    return mt == 1 ? warps * 512 : 0;
}

// Source of a product's rows, in shared memory, counted from the first operand. INPUT: the first `resident` tiles of the inner dimension
// only, where the later layers' results will be; the others are in global memory.
template <bool INPUT> struct rows_at {
    const uint4 *input;
    int first, resident;
};
template <> struct rows_at<false> {
    int first;
};

// G columns of a matrix or of its transpose: the lane's 16 bytes of their first pieces, and the distance to the next tile of the inner
// dimension, in units of 16 bytes.
template <int G> struct weight_columns {
    const uint4 *matrix;
    uint32_t first[G], stride;
};

// Columns that a warp works on at once, and tiles of their weights in flight, or more of fewer columns: L2 answers after some 700 cycles.
static constexpr int columns_at_once(int mt)
{
    return mt == 1 ? 2 : 4;
}
static constexpr int depth_of(int mt)
{
    return mt == 1 ? 3 : mt == 2 ? 2 : 4;
}

template <int MT, int WARPS> struct tile {
    static const int MOST = columns_at_once(MT), DEPTH = depth_of(MT);
    const ani_gpu_step &step;
    uint4 *operands, *ring, *partial; // ring: [WARPS][DEPTH][MOST][32]
    float *energy;                    // [WARPS][16 MT]
    uint64_t *barriers;
    int *stored; // [n_tiles] stored tiles of the first layer
    ani_gpu_network *net;
    int lane, warp, rank, cluster, stage; // stage: number of operands received

    __device__ __forceinline__ tile(const ani_gpu_step &s, uint4 *shared) : step(s)
    {
        operands = shared;
        ring = operands + s.hidden_tiles * MT * 64;
        partial = ring + WARPS * DEPTH * MOST * 32;
        energy = (float *)(partial + (MT == 1 ? WARPS * 32 : 0));
        barriers = (uint64_t *)(energy + WARPS * 16 * MT);
        net = (ani_gpu_network *)(barriers + 2 * ANI_GPU_MAX_HIDDEN);
        stored = (int *)(net + 1);
        lane = threadIdx.x % 32;
        warp = threadIdx.x / 32;
        cluster = s.cluster;
        rank = blockIdx.x % cluster;
        stage = 0;
    }

    // sum[m][g] += rows of tile m times column g of w, over every `stride`-th of `n` tiles of the inner dimension. With INPUT `stored`
    // gives the tile of w for each of the rows'. Rows in shared memory are awaited, if `wait`, after the first weights have been requested.
    // BACK: w is transposed.
    template <int G, bool INPUT, bool BACK>
    __device__ __forceinline__ void multiply(float4 (&sum)[MT][G], rows_at<INPUT> at_rows, const weight_columns<G> &w, int n,
                                             int first, int stride, bool wait)
    {
        const int D = DEPTH * MOST / G;
        const uint4 *rows = operands + at_rows.first + lane;
        const int here = INPUT ? resident_of(at_rows) : n;
        uint4 *mine = ring + warp * (DEPTH * MOST * 32) + lane; // no other warp reads them
        uint4 next[INPUT ? MT : 1][2];
        // One tile of rows has few products that do not wait for each other: those of the low parts have sums of their own.
        constexpr bool APART = MT == 1;
        float4 rows_low[APART ? G : 1], weights_low[APART ? G : 1];
#pragma unroll
        for (int g = 0; APART && g < G; g++) rows_low[g] = weights_low[g] = splat(0);
        const auto fetch = [&](int at, int slot) {
            if (at < n) {
                const int from = INPUT ? stored[at] : at;
#pragma unroll
                for (int g = 0; g < G; g++) copy_async(mine + (slot * G + g) * 32, w.matrix + (w.first[g] + from * w.stride));
            }
            copy_commit();
        };
        const auto fetch_rows = [&](int at) {
            if constexpr (INPUT) {
                if (at < here || at >= n) return;
#pragma unroll
                for (int m = 0; m < MT; m++) {
                    next[m][0] = __ldg(at_rows.input + (m * n + at) * 64 + lane);
                    next[m][1] = __ldg(at_rows.input + (m * n + at) * 64 + 32 + lane);
                }
            }
        };
        for (int d = 0; d < D; d++) fetch(first + d * stride, d);
        fetch_rows(first);
        if (wait) {
            if (INPUT)
                receive_input<D>();
            else
                receive();
        }
        int slot = 0;
#pragma unroll 1
        for (int at = first; at < n; at += stride) {
            uint4 high[MT], low[MT], weight[G];
#pragma unroll
            for (int m = 0; m < MT; m++) {
                uint4 even = next[INPUT ? m : 0][0], odd = next[INPUT ? m : 0][1];
                if (!INPUT || at < here) even = rows[(m * here + at) * 64], odd = rows[(m * here + at) * 64 + 32];
                high[m] = make_uint4(even.x, even.y, odd.x, odd.y);
                low[m] = make_uint4(even.z, even.w, odd.z, odd.w);
            }
            fetch_rows(at + stride);
            copy_wait<D - 1>();
            __syncwarp(); // the copies of all lanes
#pragma unroll
            for (int g = 0; g < G; g++) weight[g] = load_tiles<BACK>(mine + (slot * G + g) * 32);
#pragma unroll
            for (int g = 0; g < G; g++)
#pragma unroll
                for (int m = 0; m < MT; m++)
                    product<false>(APART ? rows_low[APART ? g : 0] : sum[m][g], low[m], weight[g].x, weight[g].y);
#pragma unroll
            for (int g = 0; g < G; g++)
#pragma unroll
                for (int m = 0; m < MT; m++)
                    product<false>(APART ? weights_low[APART ? g : 0] : sum[m][g], high[m], weight[g].z, weight[g].w);
#pragma unroll
            for (int g = 0; g < G; g++)
#pragma unroll
                for (int m = 0; m < MT; m++) product<false>(sum[m][g], high[m], weight[g].x, weight[g].y);
            __syncwarp(); // all lanes have read the slot
            fetch(at + D * stride, slot);
            slot = slot + 1 == D ? 0 : slot + 1;
        }
        copy_wait<0>();
#pragma unroll
        for (int g = 0; APART && g < G; g++) sum[0][g] = sum[0][g] + (rows_low[g] + weights_low[g]);
    }

    // G columns from `column` on, of which those before `end` exist: products and their results.
    template <int G, bool INPUT, bool BACK, bool OUTPUT, class Fetch, class Finish>
    __device__ __forceinline__ void columns(rows_at<INPUT> rows, const uint4 *weight, int n, int n_columns, int column, int end,
                                            bool wait, const Fetch &constants, const Finish &finish)
    {
        float4 sum[MT][G];
        weight_columns<G> w = {weight, {}, stride_of<BACK, OUTPUT>(n_columns)};
#pragma unroll
        for (int g = 0; g < G; g++) {
            w.first[g] = place<INPUT, BACK, OUTPUT>(min(column + g, end - 1), n, n_columns);
#pragma unroll
            for (int m = 0; m < MT; m++) sum[m][g] = splat(0);
        }
        multiply<G, INPUT, BACK>(sum, rows, w, n, 0, 1, wait);
#pragma unroll
        for (int g = 0; g < G; g++)
            if (column + g < end) {
                const float4 own = constants(column + g);
#pragma unroll
                for (int m = 0; m < MT; m++) finish(column + g, m, sum[m][g], own);
            }
    }

    // Forward a column's pieces are contiguous. Backward an inner tile of 16 are two tiles of 8 of the matrix's columns, and a column of
    // the transpose is a half of their pieces.
    template <bool INPUT, bool BACK, bool OUTPUT>
    __device__ __forceinline__ uint32_t place(int column, int n, int n_columns) const
    {
        if (!BACK) return column * (INPUT ? step.stored_tiles : n) * 32 + lane;
        const int tiles = OUTPUT ? step.stored_tiles : n_columns / 2, tile = OUTPUT ? stored[column / 2] : column / 2;
        return (lane / 8 % 2 * tiles + tile) * 32 + lane / 16 * 16 + column % 2 * 8 + lane % 8;
    }
    template <bool BACK, bool OUTPUT> __device__ __forceinline__ uint32_t stride_of(int n_columns) const
    {
        return !BACK ? 32 : 64 * (OUTPUT ? step.stored_tiles : n_columns / 2);
    }

    // One product: `n` tiles of rows times a matrix of n_columns tiles of 8, of which this block has its share. OUTPUT: the columns are
    // those of the AEV. finish(column, m, sum, constants(column)) is called once for each result, in the warp that has the column.
    template <bool INPUT, bool BACK, bool OUTPUT, class Fetch, class Finish>
    __device__ __forceinline__ void layer(rows_at<INPUT> rows, const void *matrix, int n, int n_columns, const Fetch &constants,
                                          const Finish &finish)
    {
        const int begin = n_columns * rank / cluster, end = n_columns * (rank + 1) / cluster, own = end - begin;
        const uint4 *weight = (const uint4 *)matrix;
        if constexpr (MT == 1) {
            if (2 * own <= WARPS && own > 0) { // several warps share the sum of a column
                const int shares = WARPS / own, share = warp / own, column = begin + warp % own;
                float4 sum[1][1] = {{splat(0)}};
                const weight_columns<1> w = {
                    weight, {place<INPUT, BACK, OUTPUT>(column, n, n_columns)}, stride_of<BACK, OUTPUT>(n_columns)};
                const float4 of_column = share == 0 ? constants(column) : splat(0);
                multiply<1, INPUT, BACK>(sum, rows, w, share < shares ? n : 0, share, shares, true);
                if (share > 0 && share < shares) ((float4 *)partial)[(warp - own) * 32 + lane] = sum[0][0];
                __syncthreads();
                if (share == 0) {
                    for (int s = 1; s < shares; s++)
                        sum[0][0] = sum[0][0] + ((float4 *)partial)[((s - 1) * own + warp) * 32 + lane];
                    finish(column, 0, sum[0][0], of_column);
                }
                return;
            }
        }
        const int most = MOST, passes = (own + WARPS * most - 1) / (WARPS * most);
        const int each = passes ? (own + WARPS * passes - 1) / (WARPS * passes) : 0;
        bool wait = true;
        for (int column = begin + warp * each; column < end; column += WARPS * each, wait = false) {
            const int last = min(end, column + each);
            if (each == 1) columns<1, INPUT, BACK, OUTPUT>(rows, weight, n, n_columns, column, last, wait, constants, finish);
            if (each == 2) columns<2, INPUT, BACK, OUTPUT>(rows, weight, n, n_columns, column, last, wait, constants, finish);
            if constexpr (MT > 1) {
                if (each == 3) columns<3, INPUT, BACK, OUTPUT>(rows, weight, n, n_columns, column, last, wait, constants, finish);
                if (each == 4) columns<4, INPUT, BACK, OUTPUT>(rows, weight, n, n_columns, column, last, wait, constants, finish);
            }
        }
        if (wait) { // this warp had no columns
            if (INPUT)
                receive_input<0>();
            else
                receive();
        }
    }

    // ---- operands in shared memory: `buffer` has `tiles` tiles of 16 columns for each of MT tiles of rows
    __device__ __forceinline__ uint4 *piece(int buffer, int tiles, int column, int m) const
    {
        return operands + buffer + (m * tiles + column / 2) * 64 + column % 2 * 32 + lane;
    }
    __device__ __forceinline__ void put(uint4 *at, float4 v, float scale) const
    {
        const uint4 both = pack_split(v * splat(scale));
        if (cluster == 1) {
            *at = both;
            return;
        }
        const uint32_t offset = (uint32_t)((char *)at - (char *)operands),
                       barrier = (uint32_t)((char *)(barriers + stage) - (char *)operands);
        for (int r = 0; r < cluster; r++) store_async(cluster_map(operands, r), offset, barrier, both);
    }
    __device__ __forceinline__ float4 value(const uint4 *at) const
    {
        const uint4 v = *at;
        const float2 a = unpack_half2(v.x), b = unpack_half2(v.y), c = unpack_half2(v.z), d = unpack_half2(v.w);
        const float unit = step.value_unit;
        return make_float4((a.x + c.x) * unit, (a.y + c.y) * unit, (b.x + d.x) * unit, (b.y + d.y) * unit);
    }
    // Initializes mbarriers, one for each operand, with the bytes that each waits for.
    __device__ __forceinline__ void open()
    {
        stage = 0;
        if (cluster == 1) return;
        if (threadIdx.x == 0) {
            int k = 0;
            for (int l = 0; l < net->n_hidden; l++) mbarrier_init_bytes(barriers + k++, net->tiles[l] * MT * 1024);
            for (int l = net->n_hidden - 2; l >= 0; l--) mbarrier_init_bytes(barriers + k++, net->tiles[l] * MT * 1024);
            mbarrier_init_fence();
        }
        cluster_barrier<2>();
    }
    static __device__ __forceinline__ int resident_of(rows_at<true> rows)
    {
        return rows.resident;
    }
    static __device__ __forceinline__ int resident_of(rows_at<false>)
    {
        return 0;
    }
    // Requests the tiles of AEVs that fit; they are awaited with N younger groups of copies in flight.
    __device__ __forceinline__ void request_input(rows_at<true> rows, int n) const
    {
        for (int k = threadIdx.x; k < MT * rows.resident * 64; k += WARPS * 32)
            copy_async(operands + rows.first + k, rows.input + k / (rows.resident * 64) * (n * 64) + k % (rows.resident * 64));
        copy_commit();
    }
    template <int N> __device__ __forceinline__ void receive_input() const
    {
        copy_wait<N>();
        __syncthreads();
    }
    __device__ __forceinline__ void receive()
    {
        if (cluster == 1)
            __syncthreads();
        else
            mbarrier_wait_bytes(barriers + stage++);
    }
};

static __device__ __forceinline__ float celu(float x)
{
    return x > 0 ? x : 0.1f * (__expf(10.0f * x) - 1.0f);
}
static __device__ __forceinline__ float celu_slope(float h)
{
    return h > 0 ? 1.0f : 1.0f + 10.0f * h;
}

// All layers of a tile. Sums of the last layer's values times the output's weights go to e; the first operand of the backward pass is
// stored; returns its offset.
template <int MT, int WARPS>
static __device__ __forceinline__ int run_forward(tile<MT, WARPS> &t, int first, int n_tiles, bool back, float (&e)[MT][2])
{
    const ani_gpu_step &step = t.step;
    const ani_gpu_network &net = *t.net;
    const int L = net.n_hidden, pair = 2 * (t.lane % 4);
    const float unit = step.weight_unit * step.value_unit;
    int rows = 0, buffer = 0, n = n_tiles; // offsets of a layer's rows and of its result; its inner dimension
    for (int l = 0; l < L; l++) {
        const int tiles = net.tiles[l];
        const float *bias = net.bias[l], *output = net.output;
        const bool last = l + 1 == L;
        const auto constants = [&](int column) {
            const float2 b = __ldg((const float2 *)(bias + 8 * column + pair));
            const float2 w = last ? __ldg((const float2 *)(output + 8 * column + pair)) : b;
            return make_float4(b.x, b.y, w.x, w.y);
        };
        const auto finish = [&](int column, int m, float4 v, float4 b) {
            v = make_float4(celu(fmaf(v.x, unit, b.x)), celu(fmaf(v.y, unit, b.y)), celu(fmaf(v.z, unit, b.x)),
                            celu(fmaf(v.w, unit, b.y)));
            float scale = step.value_scale;
            if (last) {
#pragma unroll
                for (int k = 0; k < MT; k++)
                    if (k == m) e[k][0] += v.x * b.z + v.y * b.w, e[k][1] += v.z * b.z + v.w * b.w;
                v = make_float4(b.z * celu_slope(v.x), b.w * celu_slope(v.y), b.z * celu_slope(v.z), b.w * celu_slope(v.w));
                scale = ANI_GPU_ADJOINT_SCALE;
            }
            // Without a backward pass the last layer's result is not stored: a block that has exited must not be written to.
            if (!last || back) t.put(t.piece(buffer, tiles, column, m), v, scale);
        };
        if (l == 0) {
            int later = 0; // tiles of the later layers' results
            for (int k = 1; k < L; k++) later += net.tiles[k];
            const rows_at<true> input = {(const uint4 *)step.aev + (size_t)(first / 16) * n_tiles * 64, MT * tiles * 64,
                                         min(later, n_tiles)};
            t.request_input(input, n);
            t.template layer<true, false, false>(input, net.weight[l], n, 2 * tiles, constants, finish);
        } else
            t.template layer<false, false, false>({rows}, net.weight[l], n, 2 * tiles, constants, finish);
        rows = buffer;
        n = tiles;
        buffer += MT * tiles * 64;
    }
    return rows;
}

// Energies of slots: sums over columns of a warp, over the block's warps, and (when atoms are summed) over the cluster's blocks.
template <int MT, int WARPS>
static __device__ __forceinline__ void add_energies(tile<MT, WARPS> &t, int member, int first, const float (&e)[MT][2])
{
    const ani_gpu_step &step = t.step;
#pragma unroll
    for (int m = 0; m < MT; m++)
        for (int half = 0; half < 2; half++) {
            float v = e[m][half];
            v += __shfl_xor_sync(~0u, v, 1);
            v += __shfl_xor_sync(~0u, v, 2);
            if (t.lane % 4 == 0) t.energy[t.warp * 16 * MT + 16 * m + 8 * half + t.lane / 4] = v;
        }
    __syncthreads();
    if (threadIdx.x < 16 * MT) {
        float v = t.rank == 0 ? t.net->output_bias : 0.0f;
        for (int w = 0; w < WARPS; w++) v += t.energy[w * 16 * MT + threadIdx.x];
        step.member_energy[(size_t)(member * t.cluster + t.rank) * step.slot_capacity + first + threadIdx.x] = v;
    }
}

// From the adjoints in `rows` to dE/dAEV; `add`: accumulates over members.
template <int MT, int WARPS>
static __device__ __forceinline__ void run_back(tile<MT, WARPS> &t, int rows, int first, int n_tiles, float *adjoint, bool add,
                                                float share)
{
    const ani_gpu_network &net = *t.net;
    const float unit = t.step.weight_unit / ANI_GPU_ADJOINT_SCALE;
    const auto none = [](int) { return splat(0); };
    for (int l = net.n_hidden - 1; l > 0; l--) {
        const int tiles = net.tiles[l - 1];
        const int to = rows - MT * tiles * 64;
        const auto finish = [&](int column, int m, float4 v, float4) {
            uint4 *at = t.piece(to, tiles, column, m);
            const float4 h = t.value(at);
            v = make_float4(v.x * unit * celu_slope(h.x), v.y * unit * celu_slope(h.y), v.z * unit * celu_slope(h.z),
                            v.w * unit * celu_slope(h.w));
            t.put(at, v, ANI_GPU_ADJOINT_SCALE);
        };
        t.template layer<false, true, false>({rows}, net.weight[l], net.tiles[l], 2 * tiles, none, finish);
        rows = to;
    }
    const auto finish = [&](int column, int m, float4 v, float4) {
        float2 *upper =
            (float2 *)(adjoint + (size_t)(first + 16 * m + t.lane / 4) * (16 * n_tiles) + 8 * column + 2 * (t.lane % 4));
        float2 *lower = upper + 4 * 16 * n_tiles;
        const float factor = unit * share;
        float2 a = make_float2(v.x * factor, v.y * factor), b = make_float2(v.z * factor, v.w * factor);
        if (add) {
            a.x += upper->x, a.y += upper->y;
            b.x += lower->x, b.y += lower->y;
        }
        *upper = a;
        *lower = b;
    };
    t.template layer<false, true, true>({rows}, net.weight[0], net.tiles[0], 2 * n_tiles, none, finish);
}

// One member: slots `first` … of a tile, forward and, with `back`, on to dE/dAEV; `add`: accumulates over members.
template <int MT, int WARPS>
static __device__ void run_member(tile<MT, WARPS> &t, int member, int first, int n_tiles, float *adjoint, bool add, float share,
                                  bool back, bool stamps)
{
    float e[MT][2]; // energies of slots, of this thread's columns
    for (int m = 0; m < MT; m++) e[m][0] = e[m][1] = 0;
    const int rows = run_forward(t, first, n_tiles, back, e);
    add_energies(t, member, first, e);
    if (!back) return;
    if (stamps) t.step.gpu.stamps[ANI_GPU_STAMP_NETWORK_BACK] = gpu_timer();
    run_back(t, rows, first, n_tiles, adjoint, add, share);
}

template <int MT, int WARPS>
static __global__ void __launch_bounds__(WARPS * 32, MT == 2 ? 2 : 1)
    network_kernel(const __grid_constant__ ani_gpu_step step, int back)
{
    DYNAMIC_SHARED(shared);
    tile<MT, WARPS> t(step, shared);
    // Atoms are sorted long before this kernel: blocks without atoms return at once, and come first so that they delay no other block.
    const ani_gpu_groups &groups = *step.groups;
    const int work = (gridDim.x - 1 - blockIdx.x) / t.cluster, part = work % step.n_parts,
              first = work / step.n_parts * (16 * MT);
    if (first >= groups.first_slot[step.n_species]) {
        // No atom has a slot. The next kernel waits for this one alone, and needs what the AEVs' kernel writes.
        if (first == 0) wait_for_previous();
        return; // the whole cluster returns
    }
    int species = 0;
    while (first >= groups.first_slot[species + 1]) species++;
    const int n_tiles = groups.n_tiles, wanted = step.gpu.call_in->member; // the AEVs' kernel may be the one that stores the call
    const int members = (step.n_members + step.n_parts - 1) / step.n_parts;
    const float share = wanted < 0 ? 1.0f / step.n_members : 1.0f;
    float *adjoint = step.adjoint + (size_t)part * step.slot_capacity * (16 * n_tiles);
    for (int k = threadIdx.x; k < n_tiles; k += WARPS * 32) t.stored[k] = groups.stored_tile[k];
    // The first block to begin stamps the time: that of the last tile.
    const bool stamps = step.gpu.stamps && first + 16 * MT >= groups.first_slot[step.n_species] &&
                        part == (wanted < 0 ? step.n_parts - 1 : wanted / members) && t.rank == 0 && threadIdx.x == 0;
    bool add = false;
    for (int member = part * members; member < min((part + 1) * members, step.n_members); member++) {
        if (wanted >= 0 && member != wanted) continue;
        const uint32_t *net = (const uint32_t *)(step.network + member * step.n_species + species);
        if (add) __syncthreads(); // the previous member's operands have been read
        if (threadIdx.x < sizeof(ani_gpu_network) / 4) ((uint32_t *)t.net)[threadIdx.x] = __ldg(net + threadIdx.x);
        __syncthreads();
        t.open();
        if (!add) {
            wait_for_previous();
            let_next_start();
            if (stamps) step.gpu.stamps[ANI_GPU_STAMP_NETWORK] = gpu_timer();
        }
        run_member(t, member, first, n_tiles, adjoint, add, share, back != 0, stamps && !add);
        add = true;
    }
}

// ---- launches -------------------------------------------------------------------------------------------------------

size_t ani_gpu_network_bytes(const ani_gpu_step *step, int tile_slots)
{
    const int mt = tile_slots / 16, warps = mt == 1 ? 16 : 8;
    return (size_t)(step->hidden_tiles * mt * 1024 + warps * depth_of(mt) * columns_at_once(mt) * 512 + partial_bytes(mt, warps) +
                    warps * 16 * mt * 4 + 2 * ANI_GPU_MAX_HIDDEN * 8 + (int)sizeof(ani_gpu_network) + step->stored_tiles * 4);
}

int ani_gpu_launch_network(const ani_gpu_step *step, const gpu_plan *plan, void *stream)
{
    const int tiles =
        (plan->n_atoms + step->tile - 1) / step->tile + (step->n_species < plan->n_atoms ? step->n_species : plan->n_atoms);
    const int blocks = tiles * step->n_parts * step->cluster;
    const size_t bytes = ani_gpu_network_bytes(step, step->tile);
    if (step->tile == 16)
        return launch(network_kernel<1, 16>, blocks, 512, bytes, step->cluster, plan->overlap, stream, *step, plan->forces);
    if (step->tile == 32)
        return launch(network_kernel<2, 8>, blocks, 256, bytes, step->cluster, plan->overlap, stream, *step, plan->forces);
    return launch(network_kernel<4, 8>, blocks, 256, bytes, step->cluster, plan->overlap, stream, *step, plan->forces);
}

int ani_gpu_prepare_network(int bytes)
{
    cudaError_t e = cudaFuncSetAttribute(network_kernel<1, 16>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (e == cudaSuccess) e = cudaFuncSetAttribute(network_kernel<2, 8>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (e == cudaSuccess) e = cudaFuncSetAttribute(network_kernel<4, 8>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    return (int)e;
}

int ani_gpu_clusters_at_once(const ani_gpu_step *step, int tile, int cluster)
{
    const size_t bytes = ani_gpu_network_bytes(step, tile);
    return tile == 16 ? clusters_at_once(network_kernel<1, 16>, cluster, 512, bytes)
                      : clusters_at_once(network_kernel<2, 8>, cluster, 256, bytes);
}
