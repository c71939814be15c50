// SPDX-License-Identifier: MIT
// orb_layers.cu: all layers of a small Orb-v2 in one kernel, for direct forces on Hopper. All blocks run at once. Each computes the same tile of every
// product, so that weights are read by all multiprocessors, before the operand exists; blocks exchange tiles through memory (gpu/ptx/exchange.cuh).
//
//   g = σ(w · e + b) c;   h₁ = f(W_e e + (W_s n + b₁)_sender + (W_r n)_receiver);   h₂ = f(W₂ h₁ + b₂);   m = W₃ h₂ + b₃
//   received = Σ g_r norm(m);   sent = Σ g_s norm(m);   e += norm(m)
//   z = V₃ f(V₂ f(V₁ [n | received | sent] + c₁) + c₂) + c₃;   n += norm(z)
//
// Every block keeps all nodes, and the edges of its rows, and normalizes them itself: there is no exchange for norms, none for projections. Seven
// remain: of h₁, h₂, m, the sums, both hidden layers of nodes, z. Rows that fill a group are computed as the others, from zeros, which takes less code than
// to skip them. The encoder of edges, e = norm(W₃ f(W₂ f(W₁ x + b₁) + b₂) + b₃), is computed as layer −1. Numbers of layer t are in slot (t + 1) % ORB_GPU_SLOTS.
// In layer t, when z of layer t − 1 is there, all blocks have read the slot of layer t − 2; a block then clears what it has stored there, and before the
// slot is read again, in layer t + 2, all blocks wait for something that this block stores in layer t + 1. The first three slots are empty at the beginning.
#include "orb_edge_inputs.cuh"
#include "orb_layers.cuh"

template <int NUMBERS> struct orb_layers_block : layers_block<NUMBERS> {
    typedef layers_block<NUMBERS> base;
    typedef typename base::slot_of slot_of;
    using base::add_warps, base::base, base::block, base::blocks, base::call, base::edges, base::g, base::lane, base::n_atoms,
        base::n_edges, base::operand_place, base::place_of_two, base::planes, base::scale_and_add, base::shared, base::slot,
        base::soften_four, base::store_four, base::t, base::thread, base::turn, base::warp;
    static constexpr int LATENT = ORB_GPU_LATENT, HIDDEN = GPU_NETWORK_HIDDEN;
    // Weights are requested one product ahead, where registers allow.
    static constexpr bool EARLY = planes == 1;
    static constexpr int ENCODER_WARPS = ENCODER_INPUTS / 32;

    // Where a thread's two columns of two edges are: of a hidden layer; of the third one, of the first four warps.
    __device__ __forceinline__ uint32_t hidden_place(int own) const
    {
        return operand_place(2 * base::group_of(own) + warp / 4, base::column() / 32, HIDDEN) + place_of_two(warp % 4);
    }
    __device__ __forceinline__ uint32_t message_place(int own) const
    {
        return base::float_place(base::last_row(own) + g, base::last_column() / 32, warp / 2, t) + warp % 2 * 8;
    }

    // ---- before the first layer
    __device__ __forceinline__ void load_layers() const
    {
        const uint4 *const from = (const uint4 *)call.layer;
        for (int k = thread; k < (int)(call.n_layers * sizeof(orb_gpu_layer) / 16); k += TOGETHER_THREADS)
            ((uint4 *)shared.layer)[k] = __ldg(from + k);
        __syncthreads();
    }
    __device__ __forceinline__ void load_nodes()
    {
        eight n[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            n[r] = {};
            if (g + 8 * r < n_atoms)
                n[r] = load_constants(call.node_table + (size_t)call.species[g + 8 * r] * LATENT + 32 * warp + 8 * t);
        }
        base::keep_rows(shared.nodes, n);
    }
    // The encoder's first layer; its input has 64 columns, of two warps.
    __device__ __forceinline__ void encode_edges(const gpu_linear &of, const uint4 (&b)[planes * 4])
    {
        const float2 bias = request_two(of.bias + base::column() + 8 * t + warp % 4 * 2);
#pragma unroll 1
        for (int own = 0; base::has_group(own); own++) {
            const int row = 32 * base::group_of(own) + g;
            eight e[4];
            uint4 a[planes * 4];
            float4 sum[8];
            int atoms = 0;
#pragma unroll
            for (int r = 0; r < 4; r++) {
                e[r] = {};
                if (row + 8 * r >= n_edges) continue;
                if (warp < ENCODER_WARPS)
                    gaussians_and_direction(((const float4 *)call.geometry)[row + 8 * r], 32 * warp + 8 * t, e[r]);
                if (r / 2 == warp / 4) atoms |= (call.sender[row + 8 * r] | call.receiver[row + 8 * r] << 8) << r % 2 * 16;
            }
            edges[own].atoms[thread] = atoms;
            base::round_rows(e, a, a + (planes - 1) * 4);
            base::template multiply<2, 4, 1>(sum, a, b);
            store_four(slot(-1) + slot_of::HIDDEN_A + hidden_place(own), slot_of::EDGES,
                       soften_four(scale_and_add(add_warps(sum, warp), of.unit, bias)));
        }
    }
    __device__ __forceinline__ void encode()
    {
        const orb_gpu_mlp &of = call.encoder;
        uint4 first[planes * 4] = {}, second[planes * 8], third[planes * 8];
        if (warp < ENCODER_WARPS) base::template request<4, 1, HIDDEN>(first, of.layer[0], base::column());
        if (EARLY) base::template request<4, 2, HIDDEN>(second, of.layer[1], base::column());
        wait_for_previous();
        if (call.stamps && block == 0 && thread == 0) *call.stamps = gpu_timer();
        n_atoms = *call.n_atoms;
        n_edges = *call.n_edges;
        base::n_rows = (n_edges + 31) / 32 * 32;
        load_nodes();
        encode_edges(of.layer[0], first);
        if (EARLY) base::template request<4, 2, LATENT>(third, of.layer[2], base::last_column());
        second_edge_layer(of.layer[1], slot(-1), second);
        third_edge_layer(of.layer[2], slot(-1), third);
        request_first(first, 0);
        update_edges<true>(of, slot(-1));
        begin_edges(0, first);
    }

    // ---- edges
    __device__ __forceinline__ void request_first(uint4 (&b)[planes * 4], int layer) const
    {
        base::template request<4, 1, HIDDEN>(b, shared.layer[layer].edge.layer[0], base::column());
    }
    // From the latent features of edges: the first layer's product, with weights b, and gates, of which the blocks of a group have two rows each.
    __device__ __forceinline__ void begin_edges(int layer, const uint4 (&b)[planes * 4])
    {
        const orb_gpu_layer &of = shared.layer[layer];
        if (!base::has_group(0)) return;
        const eight sending = load_constants(of.gate + 32 * warp + 8 * t),
                    receiving = load_constants(of.gate + LATENT + 32 * warp + 8 * t);
#pragma unroll 1
        for (int own = 0; base::has_group(own); own++) {
            eight e[4];
            uint4 a[planes * 4];
            float4 sum[8];
            float2 *const gates = shared.gates[turn];
            base::load_rows(edges[own].latent, e);
            base::round_rows(e, a, a + (planes - 1) * 4);
            base::template multiply<2, 4, 1>(sum, a, b);
            add_gates(gates, e, sending, receiving);
            edges[own].first[thread] = add_warps(sum, warp);
            const int row = gate_row(own);
            if (thread >= 2 || row >= n_edges) continue;
            float s = of.gate_bias[0], r = of.gate_bias[1];
            for (int w = 0; w < TOGETHER_WARPS; w++) s += gates[2 * w + thread].x, r += gates[2 * w + thread].y;
            const float c = call.envelope[row];
            const uint32_t of_s = exchange_bits(logistic(s) * c), of_r = exchange_bits(logistic(r) * c);
            exchange_store(slot(layer) + slot_of::GATES + row * 16, make_uint4(of_s, of_r, of_s, of_r));
        }
    }
    // Of one of the first two threads.
    __device__ __forceinline__ int gate_row(int own) const
    {
        return 32 * base::group_of(own) + block % LAYERS_COLUMN_TILES * 2 + thread;
    }
    __device__ __forceinline__ void add_gates(float2 *gates, const eight (&e)[4], const eight &sending,
                                              const eight &receiving) const
    {
        const int row = block % LAYERS_COLUMN_TILES * 2;
        float s = 0, r = 0;
#pragma unroll
        for (int k = 0; k < 8; k++) {
            const float x = row < 16 ? row < 8 ? e[0].v[k] : e[1].v[k] : row < 24 ? e[2].v[k] : e[3].v[k];
            s = fmaf(x, sending.v[k], s), r = fmaf(x, receiving.v[k], r);
        }
        s = sum_quad(s), r = sum_quad(r);
        if (t == 0 && g / 2 == row % 8 / 2) gates[2 * warp + g % 2] = make_float2(s, r);
    }
    // n of the layer, its projections of the block's columns, and the first hidden layer of edges.
    __device__ __forceinline__ void project(int layer)
    {
        const orb_gpu_layer &of = shared.layer[layer];
        const int c = 8 * t + warp % 4 * 2; // of 32: of the thread's two
        uint4 b[planes * 8], a[planes * 2];
        base::template request<8, 1, 2 * HIDDEN, 4>(b, of.project, base::column(), 0);
        base::template request<8, 1, 2 * HIDDEN, 4>(b, of.project, HIDDEN + base::column(), 4);
        const float2 bias = request_two(of.project.bias + warp / 4 * HIDDEN + base::column() + c);
        eight n[2];
        base::load_rows(shared.nodes, n);
        if (layer > 0) update_nodes(layer - 1, n);
        if (call.stamps && block == 0 && thread == 0) call.stamps[2 * layer + 1] = gpu_timer();
        if (!base::has_group(0)) return;
        base::round_rows(n, a, a + (planes - 1) * 2);
        float4 sum[8];
        base::template multiply<1, 8, 1>(sum, a, b);
        const float4 all = scale_and_add(add_warps(sum, warp), of.project.unit, bias);
        *(float2 *)(shared.projected[g] + warp / 4 * 32 + c) = make_float2(all.x, all.y);
        *(float2 *)(shared.projected[g + 8] + warp / 4 * 32 + c) = make_float2(all.z, all.w);
        __syncthreads();
#pragma unroll 1
        for (int own = 0; base::has_group(own); own++) {
            const uint32_t atoms = edges[own].atoms[thread];
            const float2 upper = projections_of(atoms, c), lower = projections_of(atoms >> 16, c);
            store_four(slot(layer) + slot_of::HIDDEN_A + hidden_place(own), slot_of::EDGES,
                       soften_four(fma4(edges[own].first[thread], splat(of.edge.layer[0].unit),
                                        make_float4(upper.x, upper.y, lower.x, lower.y))));
        }
    }
    __device__ __forceinline__ float2 projections_of(uint32_t atoms, int c) const
    {
        const float2 s = *(const float2 *)(shared.projected[atoms & 0xff] + c),
                     r = *(const float2 *)(shared.projected[atoms >> 8 & 0xff] + 32 + c);
        return make_float2(s.x + r.x, s.y + r.y);
    }
    __device__ __forceinline__ void update_nodes(int layer, eight (&n)[2])
    {
        const orb_gpu_mlp &of = shared.layer[layer].node;
        base::add_normalized(n, slot(layer) + slot_of::NODE_C, 0, of.scale, of.shift);
        base::keep_rows(shared.nodes, n);
    }
    __device__ __forceinline__ void second_edge_layer(const gpu_linear &of, char *in, uint4 (&b)[planes * 8])
    {
        if (!base::has_group(0)) return;
        if (!EARLY) base::template request<4, 2, HIDDEN>(b, of, base::column());
        const float2 bias = request_two(of.bias + base::column() + 8 * t + warp % 4 * 2);
#pragma unroll 1
        for (int own = 0; base::has_group(own); own++) {
            uint4 a[planes * 8];
            float4 sum[8];
            base::template wait_for_rows<2, 2>(a, in + slot_of::HIDDEN_A, slot_of::EDGES, 2 * base::group_of(own));
            base::template multiply<2, 4, 2>(sum, a, b);
            store_four(in + slot_of::HIDDEN_B + hidden_place(own), slot_of::EDGES,
                       soften_four(scale_and_add(add_warps(sum, warp), of.unit, bias)));
        }
    }
    __device__ __forceinline__ void third_edge_layer(const gpu_linear &of, char *in, uint4 (&b)[planes * 8])
    {
        if (!base::has_last(0)) return;
        if (!EARLY) base::template request<4, 2, LATENT>(b, of, base::last_column());
        const float2 bias = request_two(of.bias + base::last_column() + 8 * t + warp % 4 * 2);
#pragma unroll 1
        for (int own = 0; base::has_last(own); own++) {
            uint4 a[planes * 4];
            float4 sum[4];
            base::template wait_for_rows<1, 2>(a, in + slot_of::HIDDEN_B, slot_of::EDGES, base::last_row(own) / 16);
            base::template multiply<1, 4, 2>(sum, a, b);
            const float4 all = scale_and_add(add_warps(sum, warp), of.unit, bias);
            if (warp < 4) base::store_floats_of(in + slot_of::MESSAGES + message_place(own), all);
        }
    }
    // e += norm(m), or of the encoder e = norm(m).
    template <bool replaces> __device__ __forceinline__ void update_edges(const orb_gpu_mlp &of, const char *in)
    {
#pragma unroll 1
        for (int own = 0; base::has_group(own); own++) {
            eight e[4] = {};
            if (!replaces) base::load_rows(edges[own].latent, e);
            base::add_normalized(e, in + slot_of::MESSAGES, 32 * base::group_of(own), of.scale, of.shift);
            base::keep_rows(edges[own].latent, e);
        }
    }

    // ---- sums over edges: Σ a norm(z) of what an atom receives or of what it sends; a warp has every eighth edge, four at the same time
    __device__ __forceinline__ void add_messages(int layer)
    {
        if (call.stamps && block == 0 && thread == 0) call.stamps[2 * layer + 2] = gpu_timer();
#pragma unroll 1
        for (int task = block; task < 2 * ORB_GPU_TOGETHER_ATOMS; task += blocks) add_messages_of(layer, task / 2, task % 2);
    }
    __device__ __forceinline__ void add_messages_of(int layer, int atom, int received)
    {
        const int *const first = received ? call.incoming_first : call.first_edge;
        const int begin = atom < n_atoms ? first[atom] : 0, end = atom < n_atoms ? first[atom + 1] : 0;
        const char *const from = slot(layer);
        eight sum = {};
        float weight = 0;
#pragma unroll 1
        for (int k = begin + warp; k < end; k += 4 * TOGETHER_WARPS) {
            const char *message[4], *gate[4];
#pragma unroll
            for (int m = 0; m < 4; m++) {
                const int at = k + TOGETHER_WARPS * m < end ? k + TOGETHER_WARPS * m : k,
                          e = received ? call.incoming_edge[at] : at;
                message[m] = from + slot_of::MESSAGES + base::float_place(e, lane / 4, 0, t);
                gate[m] = from + slot_of::GATES + e * 16;
            }
            uint4 v[12];
            exchange_wait(v, [&](int p) { return p % 3 == 2 ? gate[p / 3] : message[p / 3] + p % 3 * 64; });
#pragma unroll
            for (int m = 0; m < 4; m++) {
                const eight z = floats_of(v[3 * m], v[3 * m + 1]);
                float mean = 0, squares = 0;
#pragma unroll
                for (int c = 0; c < 8; c++) mean += z.v[c];
                mean = sum_warp(mean) * (1.0f / LATENT);
#pragma unroll
                for (int c = 0; c < 8; c++) squares = fmaf(z.v[c] - mean, z.v[c] - mean, squares);
                const float gate_here = __uint_as_float(received ? v[3 * m + 2].y : v[3 * m + 2].x),
                            a = k + TOGETHER_WARPS * m < end ? gate_here : 0.0f, factor = a * base::scale_of(sum_warp(squares));
#pragma unroll
                for (int c = 0; c < 8; c++) sum.v[c] = fmaf(factor, z.v[c] - mean, sum.v[c]);
                weight += a;
            }
        }
        const orb_gpu_mlp &of = shared.layer[layer].edge;
        base::template store_sums<1>(slot(layer) + slot_of::SUMS, slot_of::NODES, atom, received, sum, weight, of.scale,
                                     of.shift);
    }
    // ---- nodes: tiles of 16 rows and 8 columns
    __device__ __forceinline__ uint32_t node_hidden_place(int tile) const
    {
        return operand_place(0, tile / 4, HIDDEN) + place_of_two(tile % 4);
    }
    __device__ __forceinline__ uint32_t node_place(int tile) const
    {
        return base::float_place(g, tile / 4, tile % 4 / 2, t) + tile % 2 * 8;
    }
    __device__ __forceinline__ float2 node_bias(const gpu_linear &of, int tile) const
    {
        return request_two(of.bias + tile / 4 * 32 + 8 * t + tile % 4 * 2);
    }
    __device__ __forceinline__ void first_node_layer(int layer, uint4 (&b)[planes * 3])
    {
        const gpu_linear &of = shared.layer[layer].node.layer[0];
#pragma unroll 1
        for (int tile = base::first_node_tile(); tile < LAYERS_NODE_TILES; tile += blocks) {
            uint4 a[planes * 6], sums[planes * 4];
            float4 sum[1];
            eight n[2];
            if (tile >= blocks) base::template request<1, 3, HIDDEN>(b, of, 8 * tile);
            const float2 bias = node_bias(of, tile);
            base::load_rows(shared.nodes, n);
            base::round_rows(n, a, a + (planes - 1) * 6);
            base::template wait_for_rows<1, 2>(sums, slot(layer) + slot_of::SUMS, slot_of::NODES, 0);
#pragma unroll
            for (int k = 0; k < planes * 4; k++) a[k / 4 * 6 + 2 + k % 4] = sums[k];
            base::template multiply<1, 1, 3>(sum, a, b);
            const float4 all = scale_and_add(add_warps(sum, warp), of.unit, bias);
            if (warp == 0) store_four(slot(layer) + slot_of::NODE_A + node_hidden_place(tile), slot_of::NODES, soften_four(all));
        }
    }
    // The second one, to 512 columns, or the third one, to 256.
    template <bool last> __device__ __forceinline__ void next_node_layer(int layer, uint4 (&b)[planes * 2])
    {
        const gpu_linear &of = shared.layer[layer].node.layer[last ? 2 : 1];
        char *const to = slot(layer);
#pragma unroll 1
        for (int tile = last ? base::third_node_tile() : base::first_node_tile(); tile < LAYERS_NODE_TILES / (last ? 2 : 1);
             tile += blocks) {
            uint4 a[planes * 4];
            float4 sum[1];
            if (tile >= blocks) base::template request<1, 2, last ? LATENT : HIDDEN>(b, of, 8 * tile);
            const float2 bias = node_bias(of, tile);
            base::template wait_for_rows<1, 2>(a, to + (last ? slot_of::NODE_B : slot_of::NODE_A), slot_of::NODES, 0);
            base::template multiply<1, 1, 2>(sum, a, b);
            const float4 all = scale_and_add(add_warps(sum, warp), of.unit, bias);
            if (warp > 0) continue;
            if (last)
                base::store_floats_of(to + slot_of::NODE_C + node_place(tile), all);
            else
                store_four(to + slot_of::NODE_B + node_hidden_place(tile), slot_of::NODES, soften_four(all));
        }
    }

    // ---- what this thread has stored in a slot is empty again
    __device__ __forceinline__ void clear(char *to) const
    {
        const uint2 two = make_uint2(EXCHANGE_EMPTY, EXCHANGE_EMPTY);
#pragma unroll 1
        for (int own = 0; base::has_group(own); own++) {
            for (int plane = 0; plane < planes; plane++) {
                exchange_store(to + slot_of::HIDDEN_A + plane * slot_of::EDGES + hidden_place(own), two);
                exchange_store(to + slot_of::HIDDEN_B + plane * slot_of::EDGES + hidden_place(own), two);
            }
            if (thread < 2) exchange_store(to + slot_of::GATES + gate_row(own) * 16, make_uint4(two.x, two.x, two.x, two.x));
        }
#pragma unroll 1
        for (int own = 0; warp < 4 && base::has_last(own); own++) clear_floats(to + slot_of::MESSAGES + message_place(own));
#pragma unroll 1
        for (int task = block; thread < 64 && task < 2 * ORB_GPU_TOGETHER_ATOMS; task += blocks)
            for (int k = 0; k < 2 * planes; k++)
                exchange_store(to + slot_of::SUMS + k / 2 * slot_of::NODES + base::sums_place(task / 2, task % 2) + k % 2 * 8,
                               EXCHANGE_EMPTY);
#pragma unroll 1
        for (int tile = base::first_node_tile(); warp == 0 && tile < LAYERS_NODE_TILES; tile += blocks)
            for (int plane = 0; plane < planes; plane++) {
                exchange_store(to + slot_of::NODE_A + plane * slot_of::NODES + node_hidden_place(tile), two);
                exchange_store(to + slot_of::NODE_B + plane * slot_of::NODES + node_hidden_place(tile), two);
            }
#pragma unroll 1
        for (int tile = base::third_node_tile(); warp == 0 && tile < LAYERS_NODE_TILES / 2; tile += blocks)
            clear_floats(to + slot_of::NODE_C + node_place(tile));
        exchange_fence();
    }
    static __device__ __forceinline__ void clear_floats(char *to)
    {
        exchange_store(to, make_uint2(EXCHANGE_EMPTY, EXCHANGE_EMPTY));
        exchange_store(to + 8 * 1024, make_uint2(EXCHANGE_EMPTY, EXCHANGE_EMPTY));
    }

    __device__ __forceinline__ void run_layer(int layer)
    {
        const orb_gpu_layer &of = shared.layer[layer];
        const int next = min(layer + 1, call.n_layers - 1);
        uint4 first[planes * 4], second[planes * 8], third[planes * 8], node_first[planes * 3], node_second[planes * 2],
            node_third[planes * 2];
        const int tile = base::first_node_tile(), last_tile = base::third_node_tile();
        const auto request_nodes = [&]() {
            if (tile < LAYERS_NODE_TILES) {
                base::template request<1, 3, HIDDEN>(node_first, of.node.layer[0], 8 * tile);
                base::template request<1, 2, HIDDEN>(node_second, of.node.layer[1], 8 * tile);
            }
            if (last_tile < LAYERS_NODE_TILES / 2)
                base::template request<1, 2, LATENT>(node_third, of.node.layer[2], 8 * last_tile);
        };
        if (EARLY) base::template request<4, 2, HIDDEN>(second, of.edge.layer[1], base::column());
        project(layer);
        if (EARLY) base::template request<4, 2, LATENT>(third, of.edge.layer[2], base::last_column());
        second_edge_layer(of.edge.layer[1], slot(layer), second);
        third_edge_layer(of.edge.layer[2], slot(layer), third);
        if (EARLY) request_nodes();
        if (EARLY) request_first(first, next);
        add_messages(layer);
        if (layer + 1 < call.n_layers) update_edges<false>(of.edge, slot(layer));
        if (!EARLY) request_nodes();
        // Blocks that have no part in the next product clear, which takes a microsecond, and begin the next layer's edges, while others compute it.
        if (tile >= LAYERS_NODE_TILES) clear(slot(layer + 2));
        first_node_layer(layer, node_first);
        next_node_layer<false>(layer, node_second);
        if (!EARLY) request_first(first, next);
        if (layer + 1 < call.n_layers) begin_edges(next, first);
        if (tile < LAYERS_NODE_TILES) clear(slot(layer + 2));
        next_node_layer<true>(layer, node_third);
    }
    __device__ __forceinline__ void run()
    {
        encode();
#pragma unroll 1
        for (int layer = 0; layer < call.n_layers; layer++) {
            if (layer + 1 == call.n_layers) let_next_start();
            run_layer(layer);
        }
        if (block > 0) return;
        eight n[2];
        base::load_rows(shared.nodes, n);
        update_nodes(call.n_layers - 1, n);
#pragma unroll
        for (int r = 0; r < 2; r++)
            if (g + 8 * r < n_atoms) store_operand<NUMBERS>(call.nodes, g + 8 * r, 32 * warp + 8 * t, n[r]);
    }
};

template <int NUMBERS>
static __global__ void __launch_bounds__(TOGETHER_THREADS, 1)
    orb_layers_kernel(const __grid_constant__ orb_gpu_layers call, int unused)
{
    DYNAMIC_SHARED(memory);
    orb_layers_block<NUMBERS> run(call, memory);
    run.load_layers();
    run.run();
}

// ---- launches -------------------------------------------------------------------------------------------------------

// Blocks, a multiple of the tiles of columns, so that all tiles of a block have the same columns.
static int blocks_of(const gpu_plan *plan)
{
    return min(plan->n_multiprocessors, 8 * LAYERS_COLUMN_TILES) / LAYERS_COLUMN_TILES * LAYERS_COLUMN_TILES;
}

static size_t shared_bytes(const gpu_plan *plan, int edges)
{
    const int rows = 32 * max(blocks_of(plan) / LAYERS_COLUMN_TILES, 1);
    return sizeof(layers_shared) + (size_t)max((edges + rows - 1) / rows, 1) * sizeof(layers_edges);
}

int orb_gpu_has_layers(const gpu_plan *plan, int edges)
{
    return plan->n_atoms <= ORB_GPU_TOGETHER_ATOMS && edges <= ORB_GPU_TOGETHER_EDGES && blocks_of(plan) > 0 &&
           shared_bytes(plan, edges) <= LAYERS_SHARED_BYTES;
}

template <int NUMBERS> static int cleared(int slots)
{
    return slots * layers_slot<number_format<NUMBERS>::planes>::BYTES;
}

int orb_gpu_layers_cleared(enum gpu_number numbers)
{
    return FOR_NUMBERS(numbers, cleared, 3);
}

template <int NUMBERS> static int launch_one(const orb_gpu_layers *call, const gpu_plan *plan, int edges, void *stream)
{
    return launch(orb_layers_kernel<NUMBERS>, blocks_of(plan), TOGETHER_THREADS, shared_bytes(plan, edges), 1,
                  plan->overlap | LAUNCH_TOGETHER, stream, *call, 0);
}

int orb_gpu_launch_layers(const orb_gpu_layers *call, enum gpu_number numbers, const gpu_plan *plan, int edges, void *stream)
{
    return FOR_NUMBERS(numbers, launch_one, call, plan, edges, stream);
}

template <int NUMBERS> static int prepare_one(int unused)
{
    return (int)cudaFuncSetAttribute(orb_layers_kernel<NUMBERS>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     LAYERS_SHARED_BYTES);
}

int orb_gpu_prepare_layers(void)
{
    int error = 0;
    FOR_EACH_NUMBERS(error, prepare_one, 0);
    return error;
}
