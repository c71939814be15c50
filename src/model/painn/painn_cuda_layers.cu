// SPDX-License-Identifier: MIT
// painn_cuda_layers.cu: all layers of a small batch, forward and back, in one kernel: for systems whose step is bound by
// the time between kernels and by the weights' way from L2.
//
// The mathematics is that of painn_cuda_node.cuh and painn_cuda_edge.cu. A cluster of 8 blocks has a tile of 8 atoms, each block
// 16 of the features. In a product the weights are the rows (16 features) and the atoms the 8 columns, so that a stage sends few
// bytes: what a block has computed goes as mail (stores that count themselves in) to the other blocks of its tile. Weights come
// through a ring of bulk copies that runs ahead of the products. Between layers neighbours' features pass through L2, behind a
// barrier of all tiles.
//
// With 3 layers there are 28 products, each of which waits for one mail. A warp alone needs some 6 cycles an instruction, so what
// stands between the sums and the next mail is divided among four warps that do nothing else, while the twelve others have made
// ready for the next product. What each product reads stands in a table made by the host (painn_cuda_pack.c).
#include "model/wide_cuda.cuh"
#include "painn_cuda_edge.cuh"
#include "painn_cuda_tile.cuh"

enum {
    LAYERS_WARPS = 16,
    SUMMING_WARPS = 12,                 // the others finish products
    K_TILES = PAINN_CUDA_LAYERS_F / 16, // of F features
    ATOM_ROW = 24, // floats of an atom's features, and of half its sums, in shared memory: without bank conflicts
    ATOM_SUMS = 12,
    FEATURES = PAINN_CUDA_TILE_ATOMS * ATOM_ROW, // floats of one component
    HALF_SUMS = PAINN_CUDA_TILE_ATOMS * ATOM_SUMS,
    PARTIAL = SUMMING_WARPS * 2 * HALF_SUMS, // of one product
    GATES = 16
};

static int layers_bytes(const painn_cuda_step *step, int piece_bytes)
{
    return (PAINN_CUDA_OPERANDS + PAINN_CUDA_RING) * piece_bytes + step->n_layers * PAINN_CUDA_SAVED * 32 * 16 + 2 * PARTIAL * 4 +
           (4 + 2 * 6) * FEATURES * 4 + (GATES + step->n_products) * 8 + step->n_products * (int)sizeof(painn_cuda_product);
}

// Products of 16 features with 8 atoms: weights of two column tiles, values of the atoms.
static __device__ __forceinline__ void multiply_piece(float4 (&sum)[3], const uint4 &even, const uint4 &odd, const uint4 *at,
                                                      int lane, split_halves)
{
    const uint2 lower = ((const uint2 *)at)[lane], upper = ((const uint2 *)at)[32 + lane];
    const uint4 v = make_uint4(lower.x, lower.y, upper.x, upper.y);
    const uint4 high = make_uint4(even.x, odd.x, even.y, odd.y), low = make_uint4(even.z, odd.z, even.w, odd.w);
    product<false>(sum[1], low, v.x, v.z);
    product<false>(sum[2], high, v.y, v.w);
    product<false>(sum[0], high, v.x, v.z);
}
template <bool bfloat>
static __device__ __forceinline__ void multiply_piece(float4 (&sum)[3], const uint2 &even, const uint2 &odd, const uint2 *at,
                                                      int lane, single_numbers<bfloat>)
{
    const uint32_t *v = (const uint32_t *)at;
    product<bfloat>(sum[0], make_uint4(even.x, odd.x, even.y, odd.y), v[lane], v[32 + lane]);
}
// Half a piece: two features of an atom.
static __device__ __forceinline__ uint2 pack_pair(float2 v, split_halves)
{
    const uint32_t high = pack_half2(v.x, v.y);
    const float2 rounded = unpack_half2(high);
    return make_uint2(high, pack_half2(v.x - rounded.x, v.y - rounded.y));
}
template <bool bfloat> static __device__ __forceinline__ uint32_t pack_pair(float2 v, single_numbers<bfloat>)
{
    return bfloat ? pack_bfloat2(v.x, v.y) : pack_half2(v.x, v.y);
}

static __device__ __forceinline__ float2 add2(float2 a, float2 b)
{
    return make_float2(a.x + b.x, a.y + b.y);
}
static __device__ __forceinline__ float2 times(float2 a, float s)
{
    return make_float2(a.x * s, a.y * s);
}

template <typename Numbers> struct layers : activations {
    typedef typename Numbers::piece piece;
    char *shared;
    piece *operands, *ring;
    float2 *keep;
    float *partial, *own, *sums; // own: q, μ or q̄, μ̄ of this block's atoms; sums: of two halves of the edges
    uint64_t *gates, *boxes;
    painn_cuda_product *products;
    int lane, warp, rank, first;
    int n_atoms, n_tiles;
    uint32_t box;                    // offset of the mailbox of the next mail
    int cluster;                     // blocks of the cluster: of one tile, or all there are
    int n_products, done, n_fetched; // n_fetched: by the thread that fetches weights
    int peer;                        // place in the cluster of the tile's first block

    __device__ __forceinline__ layers(const painn_cuda_step &s, uint4 *memory, int cluster_blocks, int forces)
        : activations(s), cluster(cluster_blocks), n_products(forces ? s.n_products : s.n_products_forward), done(0), n_fetched(0)
    {
        shared = (char *)memory;
        operands = (piece *)memory;
        ring = operands + PAINN_CUDA_OPERANDS;
        keep = (float2 *)(ring + PAINN_CUDA_RING);
        partial = (float *)(keep + s.n_layers * PAINN_CUDA_SAVED * 64);
        own = partial + 2 * PARTIAL;
        sums = own + 4 * FEATURES;
        gates = (uint64_t *)(sums + 2 * 6 * FEATURES);
        boxes = gates + GATES;
        products = (painn_cuda_product *)(boxes + s.n_products);
        box = (uint32_t)((char *)boxes - shared);
        lane = threadIdx.x % 32;
        warp = __shfl_sync(~0u, (int)threadIdx.x / 32, 0); // the same in all lanes, as the compiler then knows
        rank = blockIdx.x % PAINN_CUDA_TILE_BLOCKS;
        peer = (int)blockIdx.x % cluster - rank;
        first = (int)(blockIdx.x / PAINN_CUDA_TILE_BLOCKS) * PAINN_CUDA_TILE_ATOMS;
    }

    // The table, mailboxes, gates, and the first weights on their way.
    __device__ __forceinline__ void prepare()
    {
        const int words = step.n_products * (int)sizeof(painn_cuda_product) / 4;
        for (int k = threadIdx.x; k < words; k += LAYERS_WARPS * 32)
            ((uint32_t *)products)[k] = __ldg((const uint32_t *)step.products + k);
        if (threadIdx.x < GATES) gate_init(gates + threadIdx.x, 1);
        __syncthreads();
        for (int k = threadIdx.x; k < step.n_products; k += LAYERS_WARPS * 32)
            mailbox_init(boxes + k, products[k].mail * K_TILES * 16 * (int)sizeof(piece));
        mailbox_publish();
        if (fetches()) fetch(0);
        cluster_barrier<PAINN_CUDA_TILE_BLOCKS>();
    }
    __device__ __forceinline__ bool fetches() const
    {
        return threadIdx.x == (SUMMING_WARPS - 1) * 32;
    }
    // The weights for which there is room by now.
    __device__ __forceinline__ void fetch(int n_done)
    {
        while (n_fetched < n_products && products[n_fetched].after < n_done) {
            const painn_cuda_product &p = products[n_fetched];
            uint64_t *gate = gates + n_fetched % GATES;
            gate_expect(gate, p.copies * p.bytes);
            for (int k = 0; k < p.copies; k++)
                bulk_copy((char *)(ring + p.position) + k * p.bytes,
                          (const char *)p.source[k] + (size_t)(rank & (p.ranks - 1)) * p.bytes, p.bytes, gate);
            n_fetched++;
        }
    }

    __device__ __forceinline__ void wait_for_weights()
    {
        for (int k = 0; k < n_fetched; k++) gate_wait(gates + k % GATES, k / GATES & 1);
    }

    // ---- values of a lane that finishes a product: atom lane / 4 of the tile, two of the block's features: of the lower or the
    // upper half of these
    __device__ __forceinline__ int half() const
    {
        return warp % 2;
    }
    // Who finishes is there twice, each with half of the mails and of what is to be written.
    __device__ __forceinline__ int share() const
    {
        return warp / 2 % 2;
    }
    __device__ __forceinline__ int atom() const
    {
        return first + lane / 4;
    }
    __device__ __forceinline__ int feature() const
    {
        return 8 * half() + 2 * (lane % 4);
    }
    __device__ __forceinline__ float2 &own_of(int c) const
    {
        return *(float2 *)(own + c * FEATURES + lane / 4 * ATOM_ROW + feature());
    }
    __device__ __forceinline__ float2 sum_of(int c) const
    {
        const float *at = sums + c * FEATURES + lane / 4 * ATOM_ROW + feature();
        return add2(*(const float2 *)at, *(const float2 *)(at + 6 * FEATURES));
    }
    __device__ __forceinline__ float2 &kept(int layer, int quantity) const
    {
        return keep[((layer * PAINN_CUDA_SAVED + quantity) * 2 + half()) * 32 + lane];
    }
    // v as a part of this block's k tile of the operand at `at`, to half of the blocks of the tile.
    __device__ __forceinline__ void put(int at, float2 v) const
    {
        const auto mine = pack_pair(times(v, PAINN_CUDA_OPERAND_SCALE), Numbers());
        const uint32_t offset = (uint32_t)((at + rank * 32) * (int)sizeof(piece) + (32 * half() + lane) * (int)sizeof mine);
#pragma unroll
        for (int r = 0; r < PAINN_CUDA_TILE_BLOCKS / 2; r++)
            mail(find_peer(shared, peer + share() * (PAINN_CUDA_TILE_BLOCKS / 2) + r), offset, box, mine);
    }
    // Two components side by side; `at`: of the slice.
    __device__ __forceinline__ void put_paired(float *at, float2 v, float2 u) const
    {
        *(float4 *)(at + 2 * feature()) = make_float4(v.x, u.x, v.y, u.y);
    }

    // ---- products
    __device__ __forceinline__ void sum(const painn_cuda_product &p, const uint64_t *mailbox)
    {
        const int items = p.items, shares = p.shares,
                  share = items == 1   ? warp
                          : items == 2 ? warp / 2
                          : items == 3 ? warp / 3
                                       : warp / 6;
        const int item = warp - share * items, stored = p.stored * 32;
        const int block = p.row_sets == 1 ? item : item >= 3 ? 1 : 0, set = p.row_sets == 1 ? 0 : item - 3 * block;
        const piece *at = ring + p.position + 2 * block * stored + share * 32 + lane;
        const piece *v = operands + p.rows + set * p.item_rows + share * 32;
        const int n = share < shares ? p.n : 0;
        piece even[2], odd[2];
        gate_wait(gates + done % GATES, done / GATES & 1);
        if (n > 0) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                even[i] = at[i * shares * 32];
                odd[i] = at[i * shares * 32 + stored];
            }
        }
        float *to = partial + (done % 2 * SUMMING_WARPS + warp) * (2 * HALF_SUMS) + 2 * (lane % 4) * ATOM_SUMS + lane / 4;
        mailbox_wait((uint64_t *)mailbox);
        if (n > 0) {
            float4 sum[3] = {make_float4(0, 0, 0, 0), make_float4(0, 0, 0, 0), make_float4(0, 0, 0, 0)};
            multiply_piece(sum, even[0], odd[0], v, lane, Numbers());
            if (n > 1) multiply_piece(sum, even[1], odd[1], v + shares * 32, lane, Numbers());
#pragma unroll 1
            for (int i = 2; i < n; i++)
                multiply_piece(sum, at[i * shares * 32], at[i * shares * 32 + stored], v + i * shares * 32, lane, Numbers());
            const float4 total = Numbers::PRODUCTS == 1 ? sum[0] : sum[0] + (sum[1] + sum[2]);
            to[0] = total.x;
            to[ATOM_SUMS] = total.y;
            to[HALF_SUMS] = total.z;
            to[HALF_SUMS + ATOM_SUMS] = total.w;
        }
    }

    // What is made of product p by the warps that finish it. q_bar lasts from product to product, and is t from TO_V to TO_Q.
    __device__ __forceinline__ void finish(const painn_cuda_product &p, float2 &q_bar, int forces)
    {
        const int l = p.layer, kind = p.kind, unit = K_TILES * 32;
        const float2 zero = make_float2(0, 0);
        const bool last = l + 1 == step.n_layers;
        float2 bias[3];
#pragma unroll
        for (int k = 0; k < 3; k++)
            bias[k] = p.bias[k] ? __ldg((const float2 *)(p.bias[k] + 16 * (rank & (p.ranks - 1)) + feature())) : zero;
        const float *from = partial + (done % 2 * SUMMING_WARPS * 2 + half()) * HALF_SUMS + lane / 4 * ATOM_SUMS + 2 * (lane % 4);
        const int next = p.items * 2 * HALF_SUMS;
        const bool four = p.shares == 4;
        const float scale = step.weight_unit;
        const auto result = [&](int item) {
            const float *at = from + item * 2 * HALF_SUMS;
            float2 total = add2(*(const float2 *)at, *(const float2 *)(at + next));
            if (four) total = add2(total, add2(*(const float2 *)(at + 2 * next), *(const float2 *)(at + 3 * next)));
            return times(total, scale);
        };
        __syncthreads();
        const float2 sum = result(0);
        if (kind == TO_G || kind == TO_H) { // hidden layers: act(sum + bias)
            const float2 x = add2(sum, bias[0]);
            put(kind == TO_G ? PAINN_CUDA_AT_B : PAINN_CUDA_AT_A, activate(x));
            if (share() == 0) kept(l, kind == TO_G ? 6 : 9) = x;
        } else if (kind == TO_G_BAR || kind == TO_H_BAR) { // their reverse: sum ∘ act'
            put(kind == TO_G_BAR ? PAINN_CUDA_AT_A : PAINN_CUDA_AT_Q, mul2(sum, slope(kept(l, kind == TO_G_BAR ? 6 : 9))));
        } else if (kind == TO_V) {
            float2 V[3], B[3], square = make_float2(step.epsilon, step.epsilon), t = zero;
#pragma unroll
            for (int c = 0; c < 3; c++) {
                V[c] = c == 0 ? sum : result(c);
                fma2(square, V[c], V[c]);
            }
            put(PAINN_CUDA_AT_N, make_float2(square.x * rsqrtf(square.x), square.y * rsqrtf(square.y)));
#pragma unroll
            for (int c = 0; c < 3; c++) {
                B[c] = result(3 + c);
                fma2(t, V[c], B[c]);
                kept(l, c + 3 * share()) = share() ? B[c] : V[c];
            }
            q_bar = t;
        } else if (kind == TO_Q) {
            const float2 yt = add2(result(1), bias[1]), ymu = last ? zero : add2(result(2), bias[2]);
            float2 q = add2(sum_of(0), add2(sum, bias[0]));
            fma2(q, yt, q_bar);
            put(PAINN_CUDA_AT_Q, q);
            kept(l, 8 - share()) = share() ? ymu : yt;
            if (share() == 0) own_of(0) = q;
#pragma unroll
            for (int c = 0; c < 3; c++) {
                if (c / 2 != share()) continue;
                float2 mu = sum_of(1 + c);
                fma2(mu, ymu, kept(l, 3 + c));
                own_of(1 + c) = mu;
            }
        } else if (kind == TO_X) {
            float *at = step.state[l] + ((size_t)atom() * K_TILES + rank) * 96;
            if (share() == 0) {
                put_paired(at, add2(sum, bias[0]), add2(result(1), bias[1]));
                put_paired(at + 32, own_of(1), own_of(2));
            } else {
                put_paired(at + 64, own_of(3), add2(result(2), bias[2]));
            }
        } else if (kind == TO_ENERGY) {
            finish_energy(add2(sum, bias[0]), bias[1], forces);
        } else if (kind == TO_Q_BAR || kind == TO_Q_BELOW) {
            // What flows into the update of layer l, or of the one below: q̄, q̄∘t, and Σ μ̄∘B.
            const int of = kind == TO_Q_BAR ? l : l - 1;
            q_bar = kind == TO_Q_BAR ? sum : add2(sum, own_of(0));
            put(PAINN_CUDA_AT_B, q_bar);
            float2 t = zero, gate = zero;
#pragma unroll
            for (int c = 0; c < 3; c++) {
                const float2 B = kept(of, 3 + c);
                fma2(t, kept(of, c), B);
                if (kind == TO_Q_BELOW) fma2(gate, sum_of(3 + c), B);
            }
            put(PAINN_CUDA_AT_B + unit, mul2(q_bar, t));
            if (kind == TO_Q_BELOW) put(PAINN_CUDA_AT_B + 2 * unit, gate);
        } else if (kind == TO_V_BAR) {
            float2 V[3], square = make_float2(step.epsilon, step.epsilon);
            const float2 t_bar = mul2(q_bar, kept(l, 8)), ymu = kept(l, 7);
#pragma unroll
            for (int c = 0; c < 3; c++) {
                V[c] = kept(l, c);
                fma2(square, V[c], V[c]);
            }
            const float2 ratio = mul2(result(1), make_float2(rsqrtf(square.x), rsqrtf(square.y)));
#pragma unroll
            for (int c = 0; c < 3; c++) {
                float2 V_bar = mul2(ratio, V[c]), B_bar = mul2(t_bar, V[c]);
                fma2(V_bar, t_bar, kept(l, 3 + c));
                if (!last) fma2(B_bar, sum_of(3 + c), ymu);
                put(PAINN_CUDA_AT_B + 2 * c * unit, V_bar);
                put(PAINN_CUDA_AT_B + (2 * c + 1) * unit, B_bar);
            }
            q_bar = add2(q_bar, sum);
        } else { // TO_MU_BAR
            float *at = step.adjoint + ((size_t)atom() * K_TILES + rank) * 64;
            const int c = share() ? 1 : 0; // q̄ and μ̄_x, or μ̄_y and μ̄_z
            float2 upper = c ? result(1) : q_bar, lower = c ? result(2) : sum;
            if (!last) {
                if (c) upper = add2(upper, sum_of(4));
                lower = add2(lower, sum_of(3 + 2 * c));
            }
            put_paired(at + 32 * c, upper, lower);
            own_of(2 * c) = upper;
            own_of(2 * c + 1) = lower;
        }
    }
    __device__ __forceinline__ void finish_energy(float2 z, float2 o2, int forces)
    {
        if (rank >= 4) return;
        // A ghost has no energy of its own: nothing flows back from it.
        const float owned = atom() < n_atoms && step.owned[atom()] ? 1.0f : 0.0f;
        if (forces) put(PAINN_CUDA_AT_A, times(mul2(slope(z), o2), owned));
        const float2 s = mul2(activate(z), o2);
        float e = s.x + s.y;
        e += __shfl_xor_sync(~0u, e, 1);
        e += __shfl_xor_sync(~0u, e, 2);
        // Who does not wait for the report sees from the energies that the step went wrong.
        if (step.report->flags != 0) e = nanf("");
        if (share() == 0 && lane % 4 == 0) step.raw_energy[(size_t)(2 * rank + half()) * step.atom_capacity + atom()] = owned * e;
    }

    // ---- all tiles
    __device__ __forceinline__ void meet()
    {
        if (cluster == (int)gridDim.x)
            cluster_barrier<PAINN_CUDA_TILE_BLOCKS>(); // not by the way through L2
        else
            grid_barrier(step.meeting, n_tiles * PAINN_CUDA_TILE_BLOCKS);
    }
    __device__ __forceinline__ void stamp(int number) const
    {
        if (step.stamps && blockIdx.x == 0 && threadIdx.x == 0) step.stamps[number] = gpu_timer();
    }

    // ---- messages: two warps an atom, each with half of its edges
    __device__ __forceinline__ void message(int l)
    {
        const bool first_layer = l == 0; // μ is zero, and x a function of the element
        const int SLICES = K_TILES, stride = 8, start = warp % 2 * 4;
        const int i = first + warp / 2, quarter = lane / 8, f = 2 * (lane % 8);
        const filter_table<false, 128, Numbers::PRODUCTS == 1> table(step.layer[l], NULL, rank);
        const float *rows = (first_layer ? step.x0 : step.state[l]) + 2 * f;
        const int width = first_layer ? 32 : 96;
        edge_chunk chunk;
        edge_view<3, false> e;
        message_sums messages;
        chunk.load(step.edges, step.row_length, step.row_capacity, i, 0);
        const auto packed_of = [&]() {
            return first_layer
                       ? __float_as_int(chunk.b.z) * PAINN_CUDA_INTERVALS + __float_as_int(chunk.b.x) % PAINN_CUDA_INTERVALS
                       : __float_as_int(chunk.b.x);
        };
        const int length = __shfl_sync(~0u, i < n_atoms ? chunk.length : 0, 0);
        int packed = packed_of();
        if (start < min(32, length)) {
            e.locate(chunk, packed, start);
            e.filter(table, start + quarter < min(32, length));
        }
        if (!first_layer) meet();
        stamp(stage_message(l));
        // What an edge gathers is asked for one edge ahead.
        float4 x0, x1 = make_float4(0, 0, 0, 0), x2 = x1; // of two features: q, R; μ_x, μ_y; μ_z, x^μ
        const auto gather = [&]() {
            const float *x = rows + (size_t)(e.j * SLICES + rank) * width;
            x0 = *(const float4 *)x;
            if (!first_layer) {
                x1 = *(const float4 *)(x + 32);
                x2 = *(const float4 *)(x + 64);
            }
        };
        if (start < min(32, length)) gather();
        for (int begin = 0; begin < length; begin += 32) {
            const int n = min(32, length - begin);
            if (begin > 0) {
                chunk.load(step.edges, step.row_length, step.row_capacity, i, begin);
                packed = packed_of();
                if (start < n) {
                    e.locate(chunk, packed, start);
                    gather();
                    e.filter(table, start + quarter < n);
                }
            }
            for (int k = start; k < n; k += stride) {
                const edge_view<3, false> now = e;
                const float4 y0 = x0, y1 = x1, y2 = x2;
                if (k + stride < n) {
                    e.locate(chunk, packed, k + stride);
                    gather();
                    e.filter(table, k + stride + quarter < n);
                }
                messages.template add<false>(now, y0, y1, y2);
            }
        }
        float2 mine = messages.finish(quarter);
        const int at = quarter * FEATURES + warp / 2 * ATOM_ROW + f;
        if (warp % 2 == 0) {
            float2 before = make_float2(0, 0);
            if (!first_layer)
                before = *(const float2 *)(own + at);
            else if (quarter == 0 && i < n_atoms)
                before = *(const float2 *)(step.embedding + ((size_t)step.species[i] * SLICES + rank) * 16 + f);
            mine.x += before.x;
            mine.y += before.y;
        }
        *(float2 *)(sums + warp % 2 * (6 * FEATURES) + at) = mine;
        __syncthreads();
        const int c = warp / 4;
        put(c == 0 ? PAINN_CUDA_AT_Q : PAINN_CUDA_AT_A + (c - 1) * K_TILES * 32, sum_of(c));
    }

    __device__ __forceinline__ void message_back(int l)
    {
        const bool first_layer = l == 0;
        const int SLICES = K_TILES, stride = 8, start = warp % 2 * 4;
        const int j = first + warp / 2, quarter = lane / 8, f = 2 * (lane % 8);
        const filter_table<false, 128, Numbers::PRODUCTS == 1> table(step.layer[l], NULL, rank);
        const float scale = step.table_scale; // dt/dd
        const bool accumulate = l + 1 < step.n_layers;
        float *gradient = step.edge_gradient + (size_t)rank * step.atom_capacity * step.row_capacity * 4;
        edge_chunk chunk;
        edge_view<3, true> e;
        chunk.load(step.edges, step.row_length, step.row_capacity, j, 0);
        const int length = __shfl_sync(~0u, j < n_atoms ? chunk.length : 0, 0);
        int packed = __float_as_int(chunk.b.x);
        if (start < min(32, length)) {
            e.locate(chunk, packed, start);
            e.filter(table, start + quarter < min(32, length));
        }
        reverse_sums back;
        if (j < n_atoms)
            back.load(first_layer ? step.x0 + ((size_t)step.species[j] * SLICES + rank) * 32 + 2 * f
                                  : step.state[l] + ((size_t)j * SLICES + rank) * 96 + 2 * f,
                      first_layer);
        meet();
        stamp(stage_edges(step.n_layers, l));
        const size_t row_at = (size_t)j * step.row_capacity;
        float4 next0, next1;
        float *place, before = 0;
        const auto gather = [&](int k, bool active) {
            const float *bar = step.adjoint + ((size_t)e.j * SLICES + rank) * 64 + 2 * f;
            next0 = *(const float4 *)bar;
            next1 = *(const float4 *)(bar + 32);
            place = gradient + (row_at + k + quarter) * 4 + (lane % 8) / 2;
            if (accumulate && active) before = *place;
        };
        if (start < min(32, length)) gather(start, start + quarter < min(32, length));
        for (int begin = 0; begin < length; begin += 32) {
            const int n = min(32, length - begin);
            if (begin > 0) {
                chunk.load(step.edges, step.row_length, step.row_capacity, j, begin);
                packed = __float_as_int(chunk.b.x);
                if (start < n) {
                    e.locate(chunk, packed, start);
                    gather(begin + start, start + quarter < n);
                    e.filter(table, start + quarter < n);
                }
            }
            for (int k = start; k < n; k += stride) {
                const bool active = k + quarter < n;
                const edge_view<3, true> now = e;
                const float4 bar0 = next0, bar1 = next1;
                float *const at = place;
                const float so_far = before;
                if (k + stride < n) {
                    e.locate(chunk, packed, k + stride);
                    gather(begin + k + stride, k + stride + quarter < n);
                    e.filter(table, k + stride + quarter < n);
                }
                const float mine = back.template add<false>(now, bar0, bar1, scale);
                if (active && lane % 2 == 0) *at = so_far + mine;
            }
        }
        if (first_layer) return;
        // μ̄ begins as the atom's own μ̄'.
        float2 mine[2];
        back.finish(quarter, mine);
        const int at = warp / 2 * ATOM_ROW + f, half = warp % 2 * (6 * FEATURES);
        if (quarter < 3) *(float2 *)(sums + half + quarter * FEATURES + at) = mine[0];
        if (quarter > 0) {
            if (warp % 2 == 0) {
                const float2 before = *(const float2 *)(own + quarter * FEATURES + at);
                mine[1].x += before.x;
                mine[1].y += before.y;
            }
            *(float2 *)(sums + half + (2 + quarter) * FEATURES + at) = mine[1];
        }
        __syncthreads();
        if (warp < 12) put(PAINN_CUDA_AT_A + warp / 4 * K_TILES * 32, sum_of(warp / 4));
    }
};

template <typename Numbers>
static __global__ void __launch_bounds__(LAYERS_WARPS * 32, 1)
    layers_kernel(const __grid_constant__ painn_cuda_step step, int cluster, int forces)
{
    DYNAMIC_SHARED(shared);
    layers<Numbers> n(step, shared, cluster, forces);
    n.prepare();
    begin_stage(step, stage_message(0));
    n.n_atoms = step.call->n_atoms;
    n.n_tiles = (n.n_atoms + PAINN_CUDA_TILE_ATOMS - 1) / PAINN_CUDA_TILE_ATOMS;
    if (n.first >= n.n_atoms) {
        if (n.fetches()) n.wait_for_weights(); // they must not come when the block has left
        for (int k = 1; cluster == (int)gridDim.x && k < (forces ? 2 : 1) * step.n_layers; k++) n.meet();
        return;
    }
    float2 q_bar = make_float2(0, 0);
    for (; n.done < n.n_products; n.done++) {
        const painn_cuda_product &p = n.products[n.done];
        // Edges before an update, and before the reverse of a message network.
        if (p.kind == TO_V) {
            n.message(p.layer);
            n.stamp(stage_message(p.layer) + 1);
        } else if (p.kind == TO_H_BAR) {
            n.message_back(p.layer);
            n.stamp(stage_edges(step.n_layers, p.layer) + 1);
        }
        const uint64_t *box = (const uint64_t *)(n.shared + n.box);
        n.box += 8; // of what is made of this product
        if (n.warp < SUMMING_WARPS) {
            n.sum(p, box);
            __syncthreads();
            if (n.fetches()) n.fetch(n.done + 1);
        } else {
            n.finish(p, q_bar, forces);
        }
    }
    if (forces) n.message_back(0);
}

// ---- launches -------------------------------------------------------------------------------------------------------

// Blocks of a cluster: two tiles are one cluster where there is room for such.
static int cluster_of(int tiles, int two_at_once)
{
    return tiles == 2 && two_at_once ? 2 * PAINN_CUDA_TILE_BLOCKS : PAINN_CUDA_TILE_BLOCKS;
}

template <typename Numbers> static int launch_layers(const painn_cuda_step *step, const painn_cuda_plan *plan, void *stream)
{
    const int tiles = (plan->n_atoms + PAINN_CUDA_TILE_ATOMS - 1) / PAINN_CUDA_TILE_ATOMS,
              cluster = cluster_of(tiles, plan->whole == 2);
    return launch(layers_kernel<Numbers>, tiles * PAINN_CUDA_TILE_BLOCKS, LAYERS_WARPS * 32,
                  layers_bytes(step, sizeof(typename Numbers::piece)), cluster, plan->overlap | LAUNCH_TOGETHER, stream, *step,
                  cluster, plan->forces);
}

int painn_cuda_launch_layers(const painn_cuda_step *step, const painn_cuda_plan *plan, void *stream)
{
    return step->numbers == PAINN_CUDA_BFLOATS  ? launch_layers<single_numbers<true>>(step, plan, stream)
           : step->numbers == PAINN_CUDA_HALVES ? launch_layers<single_numbers<false>>(step, plan, stream)
                                                : launch_layers<split_halves>(step, plan, stream);
}

template <typename Numbers> static int prepare_layers(const painn_cuda_step *step, int tiles)
{
    const int bytes = layers_bytes(step, sizeof(typename Numbers::piece));
    const auto set = [](cudaFuncAttribute attribute, int value) {
        return cudaFuncSetAttribute(layers_kernel<Numbers>, attribute, value) == cudaSuccess;
    };
    const bool can = set(cudaFuncAttributeMaxDynamicSharedMemorySize, bytes) &&
                     (tiles < 2 || set(cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
    cudaGetLastError();
    return can ? clusters_at_once(layers_kernel<Numbers>, tiles * PAINN_CUDA_TILE_BLOCKS, LAYERS_WARPS * 32, bytes) : 0;
}

int painn_cuda_prepare_layers(const painn_cuda_step *step, int tiles)
{
    if (!step->n_products) return 0;
    return step->numbers == PAINN_CUDA_BFLOATS  ? prepare_layers<single_numbers<true>>(step, tiles)
           : step->numbers == PAINN_CUDA_HALVES ? prepare_layers<single_numbers<false>>(step, tiles)
                                                : prepare_layers<split_halves>(step, tiles);
}
