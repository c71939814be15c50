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
// With 3 layers there are 28 products, each of which waits for one mail: what stands between two mails decides the time. So each
// product is one warp's, or has three that share its items or its k: the warp has fetched weights into registers when the mail
// comes, sums all of k itself, makes the next operand of the sums in its registers and mails that. Warps of a block wait for one
// another only where a sum of three is exchanged; what is not on the way to the next mail (B, μ'', half of the adjoints) is done
// by other warps meanwhile. Gates tell within a block what is there. Edges are done by all warps together.
//
// A step runs each instruction a few times only, so they are few: one loop over products for the way forward and one for the way
// back, all edges in one loop each. What the kernel has beyond 64 KB of them, or a register that does not fit, costs microseconds.
#include "model/wide_cuda.cuh"
#include "painn_cuda_edge.cuh"
#include "painn_cuda_tile.cuh"

enum {
    LAYERS_WARPS = 16,
    K_TILES = PAINN_CUDA_LAYERS_F / 16,          // of F features
    UNIT = K_TILES * 32,                         // pieces of F features of the tile, as operand
    ATOM_ROW = 20,                               // floats of an atom's features in shared memory: without bank conflicts
    FEATURES = PAINN_CUDA_TILE_ATOMS * ATOM_ROW, // floats of one component
    EDGE_SUMS = 6 * FEATURES                     // of half of the edges
};

// What warps do between two rounds of edges, on the way forward: V of three components; B of these by warps 3, 7 and 11, which are of
// one scheduler; hidden features of the update; q''; hidden features of the message network, or of the readout; x of the next layer.
enum { WARP_G = 4, WARP_Q = 5, WARP_H = 6, WARPS_X = 8, WARP_MU = 12, WARP_T = 14, WARP_FETCH = 15 };
// And back: V̄ and B̄ of three components; adjoints of hidden features of the message network above, and of the update by warps 12, 13
// and 3; the gate of μ; μ̄'; q̄'; q̄''.
enum { WARPS_H_BAR = 4, WARP_GATE = 7, WARPS_MU_BAR = 8, WARP_Q_PRIME = 11, WARP_Q_BAR = 14 };

// Of a product, each used once.
struct product_gates {
    uint64_t mail, early; // mailboxes; what comes before the rest of an operand
    uint64_t weights;     // there
    uint64_t read;        // and no longer needed
    uint64_t part;        // sums that warps exchange
    uint64_t done;        // what it leaves for other warps
};

static int layers_bytes(const painn_cuda_step *step, int piece_bytes)
{
    return (PAINN_CUDA_OPERANDS + PAINN_CUDA_RING) * piece_bytes + (step->n_layers * PAINN_CUDA_SAVED + 4) * 32 * 16 +
           4 * FEATURES * 4 + 2 * EDGE_SUMS * 4 + LAYERS_WARPS * 2 * 32 * 16 +
           step->n_products * (int)(sizeof(product_gates) + sizeof(painn_cuda_product));
}

// Weights of 16 features and 16 of k, of all lanes, as operand A.
template <typename Numbers> struct weights_tile {
    uint4 part[Numbers::wide::PARTS]; // high, low
    __device__ __forceinline__ void load(const uint4 *at)
    {
#pragma unroll
        for (int k = 0; k < Numbers::wide::PARTS; k++) part[k] = at[32 * k];
    }
};
// Their products with 8 atoms.
static __device__ __forceinline__ void multiply_tile(float4 (&sum)[3], const weights_tile<split_halves> &w, const uint4 &v)
{
    product<false>(sum[1], w.part[1], v.x, v.y);
    product<false>(sum[2], w.part[0], v.z, v.w);
    product<false>(sum[0], w.part[0], v.x, v.y);
}
template <bool bfloat>
static __device__ __forceinline__ void multiply_tile(float4 (&sum)[3], const weights_tile<single_numbers<bfloat>> &w,
                                                     const uint2 &v)
{
    product<bfloat>(sum[0], w.part[0], v.x, v.y);
}
// Sums of features × atoms as an operand of atoms: the tensor cores want features in pairs.
static __device__ __forceinline__ uint4 pack_turned(float4 v, split_halves)
{
    const uint32_t lower = pack_half2(v.x, v.y), upper = pack_half2(v.z, v.w);
    const float2 a = unpack_half2(lower), b = unpack_half2(upper);
    return make_uint4(turn_tile(lower), turn_tile(upper), turn_tile(pack_half2(v.x - a.x, v.y - a.y)),
                      turn_tile(pack_half2(v.z - b.x, v.w - b.y)));
}
template <bool bfloat> static __device__ __forceinline__ uint2 pack_turned(float4 v, single_numbers<bfloat>)
{
    return make_uint2(turn_tile(bfloat ? pack_bfloat2(v.x, v.y) : pack_half2(v.x, v.y)),
                      turn_tile(bfloat ? pack_bfloat2(v.z, v.w) : pack_half2(v.z, v.w)));
}

static __device__ __forceinline__ float4 zero4()
{
    return make_float4(0, 0, 0, 0);
}
static __device__ __forceinline__ float4 times(float4 a, float s)
{
    return make_float4(a.x * s, a.y * s, a.z * s, a.w * s);
}
static __device__ __forceinline__ float4 rsqrt4(float4 v)
{
    return make_float4(rsqrtf(v.x), rsqrtf(v.y), rsqrtf(v.z), rsqrtf(v.w));
}

template <typename Numbers> struct layers : activations {
    typedef typename Numbers::piece piece;
    char *shared;
    piece *operands, *ring;
    float4 *keep, *exchanged, *q_bar; // sums of three warps; q̄'' of a layer
    float *own, *sums;                // own: q, μ or q̄, μ̄ of this block's atoms; sums: of two halves of the edges
    float4 *row;                      // of this warp: 32 edges of its atom
    product_gates *gates;
    painn_cuda_product *products;
    int lane, warp, rank, first;
    int n_atoms, n_tiles;
    int cluster;                       // blocks of the cluster: of one tile, or all there are
    int first_peer;                    // the place in it of the tile's first block
    int row_length;                    // of the edges of this warp's atom
    int n_products, n_fetched, n_read; // the last two: of the thread that fetches weights
    uint32_t turn;                     // of all tiles' barrier
    mail_base peers[PAINN_CUDA_TILE_BLOCKS];

    __device__ __forceinline__ layers(const painn_cuda_step &s, uint4 *memory, int cluster_blocks, int forces)
        : activations(s), cluster(cluster_blocks), n_products(forces ? s.n_products : s.n_products_forward), n_fetched(0),
          n_read(0)
    {
        shared = (char *)memory;
        operands = (piece *)memory;
        ring = operands + PAINN_CUDA_OPERANDS;
        keep = (float4 *)(ring + PAINN_CUDA_RING);
        exchanged = keep + s.n_layers * PAINN_CUDA_SAVED * 32;
        q_bar = exchanged + 3 * 32;
        own = (float *)(q_bar + 32);
        sums = own + 4 * FEATURES;
        row = (float4 *)(sums + 2 * EDGE_SUMS);
        gates = (product_gates *)(row + LAYERS_WARPS * 2 * 32);
        products = (painn_cuda_product *)(gates + s.n_products);
        lane = threadIdx.x % 32;
        warp = __shfl_sync(~0u, (int)threadIdx.x / 32, 0); // the same in all lanes, as the compiler then knows
        row += warp * 2 * 32;
        first_peer = (int)blockIdx.x % cluster - (int)blockIdx.x % PAINN_CUDA_TILE_BLOCKS;
        rank = blockIdx.x % PAINN_CUDA_TILE_BLOCKS;
        first = (int)(blockIdx.x / PAINN_CUDA_TILE_BLOCKS) * PAINN_CUDA_TILE_ATOMS;
#pragma unroll
        for (int r = 0; r < PAINN_CUDA_TILE_BLOCKS; r++) peers[r] = find_peer(shared, first_peer + r);
    }

    // The table, mailboxes, gates, and the first weights on their way.
    __device__ __forceinline__ void prepare()
    {
        const int words = step.n_products * (int)sizeof(painn_cuda_product) / 4, unit = UNIT * (int)sizeof(piece);
        for (int k = threadIdx.x; k < words; k += LAYERS_WARPS * 32)
            ((uint32_t *)products)[k] = __ldg((const uint32_t *)step.products + k);
        __syncthreads();
        // By one lane of each warp: gates of several lanes are set up one by one.
        for (int k = warp; lane == 0 && k < step.n_products; k += LAYERS_WARPS) {
            const painn_cuda_product &p = products[k];
            mailbox_init(&gates[k].mail, p.mail * unit / 2);
            if (p.early) mailbox_init(&gates[k].early, p.early * unit / 2);
            gate_init(&gates[k].weights, 1);
            gate_init(&gates[k].read, p.warps);
            if (p.parts) gate_init(&gates[k].part, p.parts);
            gate_init(&gates[k].done, p.warps);
        }
        mailbox_publish();
        __syncthreads();
        cluster_arrive();
        if (warp == WARP_FETCH) fetch(-1);
        cluster_wait();
    }
    // The weights for which there is room once product `last` has read its own. By one thread.
    __device__ __forceinline__ void fetch(int last)
    {
        if (lane == 0) {
            while (n_fetched < n_products && products[n_fetched].after <= last) {
                const painn_cuda_product &p = products[n_fetched];
                for (; n_read <= p.after; n_read++) gate_wait(&gates[n_read].read, 0); // all that came before, too
                uint64_t *gate = &gates[n_fetched].weights;
                gate_expect(gate, p.copies * p.bytes);
                for (int k = 0; k < p.copies; k++)
                    bulk_copy((char *)(ring + p.position) + k * p.bytes,
                              (const char *)p.source[k] + (size_t)(rank & (p.ranks - 1)) * p.bytes, p.bytes, gate);
                n_fetched++;
            }
        }
        __syncwarp();
    }
    // They must not come when the block has left.
    __device__ __forceinline__ void wait_for_weights()
    {
        for (int k = 0; lane == 0 && k < n_fetched; k++) gate_wait(&gates[k].weights, 0);
    }
    __device__ __forceinline__ void arrive(uint64_t &gate) const
    {
        __syncwarp();
        if (lane == 0) gate_arrive(&gate);
    }

    // ---- values of a lane: two features, 2 (lane / 4) of the block's and the next (as rows of weights stand), each of the tile's
    // atoms 2 (lane % 4) and the next
    __device__ __forceinline__ float2 *place_of(float *array) const
    {
        return (float2 *)(array + 2 * (lane % 4) * ATOM_ROW + 2 * (lane / 4));
    }
    static __device__ __forceinline__ float4 gather(const float2 *at)
    {
        const float2 even = at[0], odd = at[ATOM_ROW / 2];
        return make_float4(even.x, odd.x, even.y, odd.y);
    }
    __device__ __forceinline__ float4 own_of(int c) const
    {
        return gather(place_of(own + c * FEATURES));
    }
    __device__ __forceinline__ void set_own(int c, float4 v) const
    {
        float2 *at = place_of(own + c * FEATURES);
        at[0] = make_float2(v.x, v.z);
        at[ATOM_ROW / 2] = make_float2(v.y, v.w);
    }
    __device__ __forceinline__ float4 sum_of(int c) const
    {
        const float2 *at = place_of(sums + c * FEATURES);
        return gather(at) + gather(at + EDGE_SUMS / 2);
    }
    __device__ __forceinline__ float4 &kept(int layer, int quantity) const
    {
        return keep[(layer * PAINN_CUDA_SAVED + quantity) * 32 + lane];
    }
    __device__ __forceinline__ float4 bias(const painn_cuda_product &p, int k) const
    {
        const float2 b = __ldg((const float2 *)(p.bias[k] + 16 * (rank & (p.ranks - 1))) + lane / 4);
        return make_float4(b.x, b.x, b.y, b.y);
    }
    // Component c of P pairs, of an array of atoms.
    template <int P> __device__ __forceinline__ void write(float *array, int c, float4 v) const
    {
        const int next = K_TILES * P * 32;
        float *at = array + ((size_t)(first + 2 * (lane % 4)) * K_TILES + rank) * (P * 32) + c / 2 * 32 + lane / 4 * 4 + c % 2;
        at[0] = v.x;
        at[next] = v.y;
        at[2] = v.z;
        at[next + 2] = v.w;
    }
    // v as this block's k tile of the operand at `at`, to all blocks of the tile; box: offset of the mailbox.
    __device__ __forceinline__ void put(int box, int at, float4 v) const
    {
        const auto mine = pack_turned(times(v, PAINN_CUDA_OPERAND_SCALE), Numbers());
        const uint32_t offset = (uint32_t)((at + rank * 32 + lane) * (int)sizeof(piece));
#pragma unroll
        for (int k = 0; k < PAINN_CUDA_TILE_BLOCKS; k++) mail(peers[k], offset, (uint32_t)box, mine);
    }
    // The same to two of them, from block r on.
    __device__ __forceinline__ void put_two(int box, int at, float4 v, int r) const
    {
        const auto mine = pack_turned(times(v, PAINN_CUDA_OPERAND_SCALE), Numbers());
        const uint32_t offset = (uint32_t)((at + rank * 32 + lane) * (int)sizeof(piece));
#pragma unroll
        for (int k = 0; k < 2; k++) mail(find_peer(shared, first_peer + r + k), offset, (uint32_t)box, mine);
    }
    __device__ __forceinline__ int mail_of(int product) const
    {
        return (int)((char *)gates - shared) + product * (int)sizeof(product_gates);
    }
    __device__ __forceinline__ int early_mail_of(int product) const
    {
        return mail_of(product) + 8;
    }

    // ---- products
    // What a warp sums: a block of a product's weights (`stored` k tiles a block) over F features of k, or half as many, of the operand
    // at `from`; before that over the other F, which come early.
    struct factors {
        int product, stored, block, k, from, early_from; // −1: nothing comes early
        bool half;
    };
    __device__ __forceinline__ float4 multiply(const factors &f) const
    {
        const int NEXT = Numbers::wide::PARTS * 32, HALF = K_TILES / 2;
        const product_gates &g = gates[f.product];
        float4 sum[2][3];
#pragma unroll
        for (int k = 0; k < 6; k++) sum[k / 3][k % 3] = zero4();
        gate_wait((uint64_t *)&g.weights, 0);
        bool early = f.early_from >= 0;
#pragma unroll 1
        for (;;) {
            const uint4 *at = (const uint4 *)(ring + products[f.product].position) +
                              (f.block * f.stored + (early ? K_TILES - f.k : f.k)) * NEXT + lane;
            const piece *v = operands + (early ? f.early_from : f.from) + lane;
            weights_tile<Numbers> w[K_TILES];
#pragma unroll
            for (int i = 0; i < HALF; i++) w[i].load(at + i * NEXT);
            mailbox_wait((uint64_t *)(early ? &g.early : &g.mail));
#pragma unroll
            for (int i = 0; i < HALF; i++) multiply_tile(sum[i % 2], w[i], v[i * 32]);
            if (f.half) break;
#pragma unroll
            for (int i = HALF; i < K_TILES; i++) {
                w[i].load(at + i * NEXT); // there are no registers for more
                multiply_tile(sum[i % 2], w[i], v[i * 32]);
            }
            if (!early) break;
            early = false;
        }
        if (Numbers::PRODUCTS == 1) return times(sum[0][0] + sum[1][0], step.weight_unit);
        return times((sum[0][0] + sum[1][0]) + ((sum[0][1] + sum[1][1]) + (sum[0][2] + sum[1][2])), step.weight_unit);
    }
    // Its own sum for the first of those that share one; that one gets all, added in their order.
    __device__ __forceinline__ void give_part(product_gates &g, int which, float4 v) const
    {
        exchanged[which * 32 + lane] = v;
        arrive(g.part);
    }
    __device__ __forceinline__ float4 take_parts(product_gates &g, float4 mine, int n) const
    {
        gate_wait(&g.part, 0);
        const float4 two = mine + exchanged[32 + lane];
        return n == 2 ? two : two + exchanged[64 + lane];
    }

    // Numbers of layer l's products: on the way back behind one of the readout.
    __device__ __forceinline__ int product_of(int l, int kind) const
    {
        return 5 * l + kind;
    }
    __device__ __forceinline__ int adjoint_of(int l, int kind) const
    {
        return step.n_products_forward + 1 + 5 * (step.n_layers - 1 - l) + kind - TO_G_BAR;
    }
    __device__ __forceinline__ void wait_for(int product) const
    {
        gate_wait(&gates[product].done, 0);
    }
    // Σ V∘B.
    __device__ __forceinline__ float4 t_of(int l) const
    {
        wait_for(product_of(l, TO_V));
        float4 t = kept(l, 0) * kept(l, 3);
        t = fma4(kept(l, 1), kept(l, 4), t);
        return fma4(kept(l, 2), kept(l, 5), t);
    }
    __device__ __forceinline__ float4 epsilon() const
    {
        return make_float4(step.epsilon, step.epsilon, step.epsilon, step.epsilon);
    }

    // ---- the update of layer l and the message network of the next, or the readout
    __device__ __forceinline__ void forward(int l, int forces)
    {
        const bool last = l + 1 == step.n_layers;
        const int V = product_of(l, TO_V);
        factors f = {V, K_TILES, 0, 0, PAINN_CUDA_AT_A, -1, false};
        float4 b = zero4(), t = b;
        if (warp < 3) {
            f.from += warp * UNIT;
        } else if (warp == WARP_FETCH) {
            fetch(last ? V + TO_Q : V + TO_H); // not waiting for the last one: there are edges to do
            return;
        } else if (warp % 4 == 3) {
            f.block = 1;
            f.from += warp / 4 * UNIT;
            gate_wait(&gates[V].part, 0); // V comes first: both want to read much of shared memory
        } else if (warp == WARP_G) {
            f = {V + TO_G, 2 * K_TILES, 0, K_TILES, PAINN_CUDA_AT_N, PAINN_CUDA_AT_Q, false};
            b = bias(products[f.product], 0);
        } else if (warp == WARP_H) {
            f.product = V + TO_H;
            f.from = PAINN_CUDA_AT_Q;
            const painn_cuda_product &p = products[f.product];
            if (last) {
                if (rank >= p.ranks) { // has no hidden features; but nothing may come for a block that has left
                    gate_wait(&gates[f.product].weights, 0);
                    mailbox_wait(&gates[f.product].mail);
                    arrive(gates[f.product].read);
                    return;
                }
                const int atom = first + 2 * (lane % 4);
                // A ghost has no energy of its own: nothing flows back from it.
                const float even = atom < n_atoms && step.owned[atom] ? 1.0f : 0.0f,
                            odd = atom + 1 < n_atoms && step.owned[atom + 1] ? 1.0f : 0.0f;
                t = bias(p, 1) * make_float4(even, odd, even, odd);
            }
            b = bias(p, 0);
        } else if (warp == WARP_Q || warp == WARP_T || (warp == WARP_MU && !last)) {
            f.product = V + TO_Q;
            f.block = warp == WARP_Q ? 0 : warp == WARP_T ? 1 : 2;
            f.from = PAINN_CUDA_AT_B;
            b = bias(products[f.product], f.block);
            if (warp == WARP_Q)
                b = b + sum_of(0);
            else
                t = t_of(l);
        } else if (!last && warp >= WARPS_X && warp < WARPS_X + 3) {
            f.product = V + TO_X;
            f.block = warp - WARPS_X;
            b = bias(products[f.product], f.block);
        } else {
            return;
        }
        product_gates &gate = gates[f.product];
        float4 v = multiply(f) + b, e = b;
        int at = -1; // of what is mailed
        if (warp == WARP_G || warp == WARP_H) {
            e = activate(v);
            at = PAINN_CUDA_AT_A;
            if (warp == WARP_H && last) {
                e = e * t;
                v = slope(v) * t;
                if (!forces) at = -1;
            } else {
                kept(warp == WARP_G ? l : l + 1, warp == WARP_G ? 6 : 9) = v;
                v = e;
                if (warp == WARP_G) at = PAINN_CUDA_AT_B;
            }
        } else if (warp == WARP_Q) {
            gate_wait(&gate.part, 0);
            v = v + exchanged[lane];
            set_own(0, v);
            at = PAINN_CUDA_AT_Q;
        } else if (warp < 3) {
            kept(l, warp) = v;
            give_part(gate, warp, v * v);
            if (warp == 0) {
                v = take_parts(gate, v * v, 3) + epsilon();
                v = v * rsqrt4(v);
                at = PAINN_CUDA_AT_N;
            }
        } else if (warp == WARP_T) {
            give_part(gate, 0, v * t);
            kept(l, 8) = v;
        }
        if (at >= 0) put(mail_of(f.product + 1), at, v);
        if (warp % 4 == 3) {
            kept(l, 3 + warp / 4) = v;
        } else if (warp == WARP_MU) {
            kept(l, 7) = v;
#pragma unroll 1
            for (int c = 0; c < 3; c++) {
                const float4 mu = fma4(v, kept(l, 3 + c), sum_of(1 + c));
                set_own(1 + c, mu);
                write<STATE_PAIRS>(step.state[l + 1], STATE_MUX + c, mu);
            }
        } else if (warp >= WARPS_X && warp < WARPS_X + 3) {
            write<STATE_PAIRS>(step.state[l + 1], f.block == 2 ? (int)STATE_XM : f.block, v);
        } else if (last && warp == WARP_H) {
            write_energies(e);
        }
        arrive(gate.read);
        arrive(gate.done);
    }
    // Of the atoms, by eight hidden features.
    __device__ __forceinline__ void write_energies(float4 e) const
    {
#pragma unroll 1
        for (int mask = 4; mask <= 16; mask *= 2)
            e = e + make_float4(__shfl_xor_sync(~0u, e.x, mask), __shfl_xor_sync(~0u, e.y, mask), __shfl_xor_sync(~0u, e.z, mask),
                                __shfl_xor_sync(~0u, e.w, mask));
        // Who does not wait for the report sees from the energies that the step went wrong.
        if (step.report->flags != 0) e.x = e.y = e.z = e.w = nanf("");
        if (lane < 4) {
            float *at = step.raw_energy + (size_t)(2 * rank) * step.atom_capacity + first + 2 * lane;
            at[0] = e.x;
            at[1] = e.y;
            at[step.atom_capacity] = e.z;
            at[step.atom_capacity + 1] = e.w;
        }
    }

    // ---- back: the message network above layer l or the readout, then the update
    __device__ __forceinline__ void back(int l)
    {
        const bool last = l + 1 == step.n_layers, hidden_above = warp >= WARPS_H_BAR && warp < WARPS_H_BAR + 3,
                   hidden = hidden_above || warp == 12 || warp == 13 || warp == 3,
                   mu_bar = warp >= WARPS_MU_BAR && warp < WARPS_MU_BAR + 3;
        const int V = product_of(l, TO_V), G_bar = adjoint_of(l, TO_G_BAR), which = warp == 3 ? 2 : warp % 4,
                  parts = last && !hidden_above ? 2 : 3; // no μ̄ yet
        factors f = {G_bar + 1, K_TILES, 1, 0, PAINN_CUDA_AT_A, -1, false};
        float4 a = zero4(), b = a, t = a;
        if (warp < 3 || warp == WARP_GATE) {
            // What is mailed before the product, or without one: B̄, or Σ μ̄∘B.
            int at = PAINN_CUDA_AT_B + 2 * UNIT, box = mail_of(G_bar);
            if (warp == WARP_GATE) {
                if (last) return;
#pragma unroll 1
                for (int c = 0; c < 3; c++) t = fma4(sum_of(3 + c), kept(l, 3 + c), t);
            } else {
                at = PAINN_CUDA_AT_B + (3 + warp) * UNIT;
                box = early_mail_of(G_bar + 2);
                wait_for(V);
                wait_for(V + TO_Q);
                a = epsilon();
#pragma unroll 1
                for (int c = 0; c < 3; c++) a = fma4(kept(l, c), kept(l, c), a);
                a = kept(l, warp) * rsqrt4(a);
                wait_for(G_bar - 1);
                b = q_bar[lane] * kept(l, 8); // t̄
                t = b * kept(l, warp);
                if (!last) t = fma4(sum_of(3 + warp), kept(l, 7), t);
                b = b * kept(l, 3 + warp);
            }
            put(box, at, t);
            if (warp == WARP_GATE) return;
        } else if (hidden) {
            if (which >= parts || (last && hidden_above)) return;
            f = {hidden_above ? G_bar - 2 : G_bar,
                 3 * K_TILES,
                 0,
                 which * K_TILES,
                 (hidden_above ? PAINN_CUDA_AT_A : PAINN_CUDA_AT_B) + which * UNIT,
                 -1,
                 false};
            if (!hidden_above) wait_for(V + TO_G);
            if (which == 0) a = slope(hidden_above ? kept(l + 1, 9) : kept(l, 6));
        } else if (mu_bar) {
            f = {G_bar + 2, 2 * K_TILES, 0, 0, PAINN_CUDA_AT_B + which * UNIT, PAINN_CUDA_AT_B + (3 + which) * UNIT, false};
            if (!last) b = sum_of(3 + which);
        } else if (warp == WARP_Q_PRIME) {
            f.block = 0;
            wait_for(G_bar - 1);
            b = q_bar[lane];
        } else if (warp == WARP_Q_BAR) {
            f = {G_bar - 1, last ? K_TILES / 2 : K_TILES, 0, 0, last ? PAINN_CUDA_AT_A : PAINN_CUDA_AT_Q, -1, last};
            if (!last) b = own_of(0);
            t = t_of(l);
        } else {
            if (warp == WARP_FETCH) fetch(G_bar + 1);
            return;
        }
        product_gates &gate = gates[f.product];
        const float4 sum = multiply(f);
        float4 v = sum + b;
        int at = PAINN_CUDA_AT_B, units = 1;
        if (hidden) {
            if (which > 0) {
                give_part(gate, which, sum);
                units = 0;
            } else {
                arrive(gate.part);
                v = take_parts(gate, sum, parts) * a;
                at = hidden_above ? PAINN_CUDA_AT_Q : PAINN_CUDA_AT_A;
            }
        } else if (warp == WARP_Q_BAR) {
            q_bar[lane] = v;
            arrive(gate.done);
            units = 2;
        } else if (warp < 3) {
            v = fma4(sum, a, b);
            at += warp * UNIT;
        } else {
            const int c = mu_bar ? 1 + which : 0;
            write<ADJOINT_PAIRS>(step.adjoint, c, v);
            set_own(c, v);
            units = 0;
        }
#pragma unroll 1
        for (; units > 0; units--) {
            put(mail_of(f.product + 1), at, v);
            at += UNIT;
            v = v * t;
        }
        arrive(gate.read);
    }

    // ---- all tiles
    __device__ __forceinline__ void meet()
    {
        if (cluster == (int)gridDim.x)
            cluster_barrier<PAINN_CUDA_TILE_BLOCKS>(); // not by the way through L2
        else
            grid_barrier(step.meeting, n_tiles * PAINN_CUDA_TILE_BLOCKS, turn);
    }
    __device__ __forceinline__ void stamp(int number) const
    {
        if (step.stamps && blockIdx.x == 0 && threadIdx.x == 0) step.stamps[number] = gpu_timer();
    }

    // 32 edges of an atom's row, from `begin` on; all layers want the first of them.
    __device__ __forceinline__ void take_row(int atom, int begin)
    {
        edge_chunk chunk;
        chunk.load(step.edges, step.row_length, step.row_capacity, atom, begin);
        __syncwarp();
        row[lane] = chunk.a;
        row[32 + lane] = chunk.b;
        row_length = __shfl_sync(~0u, atom < n_atoms ? chunk.length : 0, 0);
        __syncwarp();
    }
    // Where edge k of it is in the table, and its neighbour; the four quarters of a warp have each its own edge.
    __device__ __forceinline__ int packed_of(int k) const
    {
        return __float_as_int(row[32 + k % 32].x);
    }
    // Edge k, and what the table has for it, which is asked for but not waited for.
    template <typename View, typename Table>
    __device__ __forceinline__ void find_edge(View &e, const Table &table, typename Table::entry (&entries)[3], int k) const
    {
        const float4 a = row[k % 32], b = row[32 + k % 32];
        e.ux = a.x, e.uy = a.y, e.uz = a.z, e.t = b.y;
        e.interval = __float_as_int(b.x) % PAINN_CUDA_INTERVALS;
        e.fetch(table, entries);
    }
    // ---- messages: two warps an atom, each with half of its edges
    __device__ __forceinline__ void message(int l)
    {
        const bool first_layer = l == 0; // μ is zero, and x a function of the element
        const int SLICES = K_TILES, stride = 8, start = warp % 2 * 4;
        const int i = first + warp / 2, quarter = lane / 8, f = 2 * (lane % 8);
        typedef filter_table<false, 128, Numbers::PRODUCTS == 1> table_type;
        const table_type table(step.layer[l], NULL, rank);
        const float *rows = (first_layer ? step.x0 : step.state[l]) + 2 * f;
        const int width = first_layer ? 32 : 96;
        edge_view<3, false> e;
        typename table_type::entry entries[3];
        message_sums messages;
        if (first_layer || row_length > 32) take_row(i, 0);
        const int length = row_length;
        if (start < length) find_edge(e, table, entries, start + quarter);
        if (!first_layer) meet();
        stamp(stage_message(l));
        float4 x[3]; // of two features: q, R; μ_x, μ_y; μ_z, x^μ
        x[0] = x[1] = x[2] = make_float4(0, 0, 0, 0);
        const auto gather = [&](float4(&to)[3], int k) {
            const int j =
                first_layer ? __float_as_int(row[32 + (k + quarter) % 32].z) : packed_of(k + quarter) / PAINN_CUDA_INTERVALS;
            const float *at = rows + (size_t)(j * SLICES + rank) * width;
            to[0] = *(const float4 *)at;
            if (!first_layer) {
                to[1] = *(const float4 *)(at + 32);
                to[2] = *(const float4 *)(at + 64);
            }
        };
#pragma unroll 1
        for (int k = start; k < length; k += stride) {
            const int end = min(length, k / 32 * 32 + 32); // of what is at hand of the row
            if (k % 32 == start) {
                if (k >= 32) {
                    take_row(i, k - start);
                    find_edge(e, table, entries, k + quarter);
                }
                gather(x, k);
            }
            e.template evaluate<table_type>(entries, k + quarter < length);
            const edge_view<3, false> now = e;
            const float4 y0 = x[0], y1 = x[1], y2 = x[2];
            if (k + stride < end) {
                find_edge(e, table, entries, k + stride + quarter);
                gather(x, k + stride);
            }
            messages.template add<false>(now, y0, y1, y2);
        }
        float2 mine = messages.finish();
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
        *(float2 *)(sums + warp % 2 * EDGE_SUMS + at) = mine;
        __syncthreads();
        const int c = warp / 4, n = product_of(l, TO_V);
        put_two(c == 0 ? early_mail_of(n + 1) : mail_of(n), c == 0 ? PAINN_CUDA_AT_Q : PAINN_CUDA_AT_A + (c - 1) * UNIT,
                sum_of(c), warp % 4 * 2);
    }

    __device__ __forceinline__ void message_back(int l)
    {
        const bool first_layer = l == 0;
        const int SLICES = K_TILES, stride = 8, start = warp % 2 * 4;
        const int j = first + warp / 2, quarter = lane / 8, f = 2 * (lane % 8);
        typedef filter_table<false, 128, Numbers::PRODUCTS == 1> table_type;
        const table_type table(step.layer[l], NULL, rank);
        const float scale = step.table_scale; // dt/dd
        const bool accumulate = l + 1 < step.n_layers;
        float *gradient =
            step.edge_gradient + ((size_t)rank * step.atom_capacity + j) * step.row_capacity * 4 + (lane % 8) / 2 + quarter * 4;
        edge_view<3, true> e;
        typename table_type::entry entries[3];
        if (row_length > 32) take_row(j, 0);
        const int length = row_length;
        reverse_sums back;
        if (j < n_atoms)
            back.load(first_layer ? step.x0 + ((size_t)step.species[j] * SLICES + rank) * 32 + 2 * f
                                  : step.state[l] + ((size_t)j * SLICES + rank) * 96 + 2 * f,
                      first_layer);
        meet();
        stamp(stage_edges(step.n_layers, l));
        float4 bar[2][2]; // q̄', μ̄'_x; μ̄'_y, μ̄'_z of this edge and of the next
        float before[2] = {0, 0};
#pragma unroll
        for (int b = 0; b < 4; b++) bar[b / 2][b % 2] = make_float4(0, 0, 0, 0);
        const auto gather = [&](float4(&to)[2], float &so_far, int k) {
            const int i = packed_of(k + quarter) / PAINN_CUDA_INTERVALS;
            const float *at = step.adjoint + ((size_t)i * SLICES + rank) * 64 + 2 * f;
            to[0] = *(const float4 *)at;
            to[1] = *(const float4 *)(at + 32);
            if (accumulate && k + quarter < length) so_far = gradient[k * 4];
        };
#pragma unroll 1
        for (int k = start; k < length; k += stride) {
            if (k % 32 == start) {
                if (k >= 32) take_row(j, k - start);
                gather(bar[0], before[0], k);
                if (k + stride < length) gather(bar[1], before[1], k + stride);
            }
            const bool active = k + quarter < length;
            find_edge(e, table, entries, k + quarter);
            e.template evaluate<table_type>(entries, active);
            const float mine = back.template add<false>(e, bar[0][0], bar[0][1], scale);
            if (active && lane % 2 == 0) gradient[k * 4] = before[0] + mine;
            bar[0][0] = bar[1][0], bar[0][1] = bar[1][1], before[0] = before[1];
            if (k + 2 * stride < min(length, k / 32 * 32 + 32)) gather(bar[1], before[1], k + 2 * stride);
        }
        if (first_layer) return;
        // μ̄ begins as the atom's own μ̄'.
        float2 mine[2];
        back.finish(mine);
        const int at = warp / 2 * ATOM_ROW + f, half = warp % 2 * EDGE_SUMS;
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
        if (warp < 12)
            put_two(mail_of(adjoint_of(l, TO_H_BAR)), PAINN_CUDA_AT_A + warp / 4 * UNIT, sum_of(warp / 4), warp % 4 * 2);
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
    const int L = step.n_layers;
    n.turn = *(volatile uint32_t *)step.meeting & 0x80000000u;
    n.n_atoms = step.call->n_atoms;
    n.n_tiles = (n.n_atoms + PAINN_CUDA_TILE_ATOMS - 1) / PAINN_CUDA_TILE_ATOMS;
    if (n.first >= n.n_atoms) {
        if (n.warp == WARP_FETCH) n.wait_for_weights();
        for (int k = 1; cluster == (int)gridDim.x && k < (forces ? 2 : 1) * L; k++) n.meet();
        return;
    }
#pragma unroll 1
    for (int l = 0; l < L; l++) {
        n.message(l);
        n.stamp(stage_message(l) + 1);
        n.forward(l, forces);
    }
    if (!forces) return;
#pragma unroll 1
    for (int l = L - 1; l >= 0; l--) {
        n.back(l);
        n.message_back(l);
        if (l > 0) n.stamp(stage_edges(L, l) + 1);
    }
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
