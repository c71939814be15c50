// SPDX-License-Identifier: MIT
// painn_layers_kernel.cuh: fused layers: all layers of a small batch, forward and backward, in one kernel, for systems whose step is
// bound by the time between kernels and by reading the weights from L2.
//
// The mathematics is that of painn_node.cuh and painn_edges.cu. A cluster of F / 16 blocks has a tile of 8 atoms, each block 16 of the
// features. In a product the weights are the rows (16 features) and the atoms the 8 columns, so that a stage sends few bytes: a block
// stores its results asynchronously in the shared memory of the other blocks of its tile, counted by an mbarrier there. Weights come
// through a ring buffer of bulk copies that runs ahead of the products. Between layers neighbors' features pass through L2, behind a
// barrier of all tiles.
//
// With 3 layers there are 28 products, each of which waits for one operand: the latency from one operand to the next decides the time. So
// each product is computed by one warp, or by three that share its items or its k: the warp has loaded weights into registers before the
// operand arrives, sums over all of k itself, packs the next operand in its registers and stores it to the other blocks. Warps of a block
// wait for each other only where partial sums are added; work that the next operand does not need (B, μ'', half of the adjoints) is done
// by other warps meanwhile. Within a block mbarriers tell what is complete. Edges are processed by all warps together.
//
// With more tiles than clusters (beyond some 120 atoms with 128 features), a cluster has two tiles. Their weights are copied once, and the products of both
// tiles advance concurrently: each of a product's warps works on one tile, and each warp has tasks of two products, one after the other.
//
// A step executes each instruction only a few times, so there are few: one loop over products for each pass, all edges in one loop each.
// Code beyond 64 KB, or registers that spill, cost microseconds.
#ifndef PAINN_GPU_LAYERS_KERNEL_CUH
#define PAINN_GPU_LAYERS_KERNEL_CUH

#include "painn_layers.cuh"

// Tasks of warps between two rounds of edges, forward: V of three components; B of these by warps 3, 7 and 11, which share a scheduler;
// hidden features of the update; q''; hidden features of the message network or of the readout; x of the next layer.
enum { WARP_G = 4, WARP_Q = 5, WARP_H = 6, WARPS_X = 8, WARP_MU = 12, WARP_T = 14 };
// Backward: V̄ and B̄ of three components; adjoints of hidden features of the message network above, and of the update by warps 12, 13 and
// 3; the adjoint of y^μ; μ̄'; q̄'; q̄''.
enum { WARPS_H_BAR = 4, WARP_GATE = 7, WARPS_MU_BAR = 8, WARP_Q_PRIME = 11, WARP_Q_BAR = 14 };

// With two tiles a warp has two of these tasks, in the order of products, so that no wait is circular. Warps that finish sums of both
// tiles at the same time have different schedulers.
enum { TILE_1 = 16, NONE = 13 }; // added to a task of the second tile; no task, in the forward pass
static __constant__ unsigned char parts_forward[FUSED_WARPS][2] = {{0, TILE_1 + WARPS_X},
                                                                   {1, TILE_1 + WARPS_X + 1},
                                                                   {2, TILE_1 + WARPS_X + 2},
                                                                   {TILE_1 + 7, WARP_MU},
                                                                   {WARP_G, WARP_H},
                                                                   {3, WARP_Q},
                                                                   {11, TILE_1 + WARP_Q},
                                                                   {TILE_1 + WARP_G, TILE_1 + WARP_H},
                                                                   {TILE_1 + 11, TILE_1 + WARP_MU},
                                                                   {TILE_1 + 1, WARPS_X + 1},
                                                                   {TILE_1 + 2, WARPS_X + 2},
                                                                   {TILE_1, WARPS_X},
                                                                   {NONE, NONE},
                                                                   {7, TILE_1 + WARP_T},
                                                                   {TILE_1 + 3, WARP_T},
                                                                   {WARP_FETCH, NONE}};
static __constant__ unsigned char parts_back[FUSED_WARPS][2] = {{TILE_1 + 3, TILE_1 + WARPS_MU_BAR + 2},
                                                                {TILE_1 + 13, TILE_1 + WARPS_MU_BAR + 1},
                                                                {TILE_1 + 12, TILE_1 + WARPS_MU_BAR},
                                                                {3, WARPS_MU_BAR + 2},
                                                                {WARPS_H_BAR, TILE_1},
                                                                {WARPS_H_BAR + 1, TILE_1 + 1},
                                                                {WARPS_H_BAR + 2, TILE_1 + 2},
                                                                {WARP_GATE, TILE_1 + WARP_Q_BAR},
                                                                {TILE_1 + WARP_GATE, TILE_1 + WARP_Q_PRIME},
                                                                {TILE_1 + WARPS_H_BAR + 1, 1},
                                                                {TILE_1 + WARPS_H_BAR + 2, 2},
                                                                {TILE_1 + WARPS_H_BAR, 0},
                                                                {12, WARPS_MU_BAR},
                                                                {13, WARPS_MU_BAR + 1},
                                                                {WARP_Q_BAR, WARP_Q_PRIME},
                                                                {WARP_FETCH, WARP_FETCH}};

template <typename Numbers, int F, int TILES, bool paired> struct layers : fused_block<Numbers, F, TILES, paired> {
    typedef fused_block<Numbers, F, TILES, paired> block;
    using block::activate, block::adjoint_of, block::arrive, block::bias, block::choose, block::early_barrier, block::exchanged,
        block::fetch, block::ask, block::first, block::barriers, block::give_part, block::kept, block::lane,
        block::operand_barrier, block::exchange_features, block::multiply, block::n_atoms, block::n_products, block::own,
        block::own_of, block::product_of, block::products, block::put, block::q_bar, block::rank, block::row, block::row_length,
        block::set_own, block::slope, block::stamp, block::step, block::sum_of, block::sums, block::t_of, block::take_parts,
        block::wait_for, block::warp, block::weights, block::ATOM_WARPS, block::AT_A, block::AT_B, block::AT_N, block::AT_Q,
        block::BLOCKS, block::K_TILES, block::UNIT;
    typedef typename block::factors factors;
    using block::fused_block;
    static const int AT_B_BAR = AT_A + UNIT; // once q̄'' has arrived, region A and n are free

    // Task k of this warp; selects its tile.
    template <bool way_back> __device__ __forceinline__ int take_part(int k)
    {
        if (TILES == 1) return warp;
        const int part = __shfl_sync(~0u, (int)(way_back ? parts_back : parts_forward)[warp][k], 0);
        choose(part / TILE_1);
        return part % TILE_1;
    }
    // ---- the update of layer l and the message network of the next, or the readout
    __device__ __forceinline__ void forward(int l, int role, int forces)
    {
        const bool last = l + 1 == step.n_layers;
        const int V = product_of(l, TO_V);
        factors f = {V, K_TILES, 0, 0, AT_A, -1, false};
        float4 b = splat(0), t = b;
        if (role < 3) {
            f.from += role * UNIT;
        } else if (role == WARP_FETCH) {
            fetch(last ? V + TO_Q : V + TO_H, n_products); // without waiting for the last one: edges come first
            return;
        } else if (role % 4 == 3) {
            f.block = 1;
            f.from += role / 4 * UNIT;
            mbarrier_wait(&barriers[V].part, 0); // V first: both read much of shared memory
        } else if (role == WARP_G) {
            f = {V + TO_G, 2 * K_TILES, 0, K_TILES, AT_N, AT_Q, false};
            b = bias(products[f.product], 0);
        } else if (role == WARP_H) {
            f.product = V + TO_H;
            f.from = AT_Q;
            const painn_gpu_product &p = products[f.product];
            if (last) {
                if (rank >= p.ranks) { // has no hidden features, but must not exit before stores to it arrive
                    mbarrier_wait(&weights[f.product].weights, 0);
                    mbarrier_wait_bytes(&barriers[f.product].operand);
                    arrive(barriers[f.product].done);
                    return;
                }
                const int atom = first + 2 * (lane % 4);
                // A ghost has no energy of its own: its adjoint is zero.
                const float even = atom < n_atoms && step.gpu.neighbors.owned[atom] ? 1.0f : 0.0f,
                            odd = atom + 1 < n_atoms && step.gpu.neighbors.owned[atom + 1] ? 1.0f : 0.0f;
                t = bias(p, 1) * make_float4(even, odd, even, odd);
            }
            b = bias(p, 0);
        } else if (role == WARP_Q || role == WARP_T || (role == WARP_MU && !last)) {
            f.product = V + TO_Q;
            f.block = role == WARP_Q ? 0 : role == WARP_T ? 1 : 2;
            f.from = AT_B;
            b = bias(products[f.product], f.block);
            if (role == WARP_Q)
                b = b + sum_of(0);
            else
                t = t_of(l);
        } else if (!last && role >= WARPS_X && role < WARPS_X + 3) {
            f.product = V + TO_X;
            f.block = role - WARPS_X;
            b = bias(products[f.product], f.block);
        } else {
            return;
        }
        product_barriers &barrier = barriers[f.product];
        float4 v = multiply(f) + b, e = b;
        int at = -1; // offset of the operand to store
        if (role == WARP_G || role == WARP_H) {
            e = activate(v);
            at = AT_A;
            if (role == WARP_H && last) {
                e = e * t;
                v = slope(v) * t;
                if (!forces) at = -1;
            } else {
                kept(role == WARP_G ? l : l + 1, role == WARP_G ? 6 : 9) = v;
                v = e;
                if (role == WARP_G) at = AT_B;
            }
        } else if (role == WARP_Q) {
            mbarrier_wait(&barrier.part, 0);
            v = v + exchanged[lane];
            set_own(0, v);
            at = AT_Q;
        } else if (role < 3) {
            kept(l, role) = v;
            give_part(barrier, role, v * v);
            if (role == 0) {
                v = take_parts(barrier, v * v, 3) + splat(step.epsilon);
                v = v * map4(rsqrtf, v);
                at = AT_N;
            }
        } else if (role == WARP_T) {
            give_part(barrier, 0, v * t);
            kept(l, 8) = v;
        }
        if (at >= 0) put(operand_barrier(f.product + 1), at, v);
        if (role % 4 == 3) {
            kept(l, 3 + role / 4) = v;
        } else if (role == WARP_MU) {
            kept(l, 7) = v;
#pragma unroll 1
            for (int c = 0; c < 3; c++) {
                const float4 mu = fma4(v, kept(l, 3 + c), sum_of(1 + c));
                set_own(1 + c, mu);
                block::template write<STATE_PAIRS>(step.state[l + 1], STATE_MUX + c, mu, l);
            }
        } else if (role >= WARPS_X && role < WARPS_X + 3) {
            block::template write<STATE_PAIRS>(step.state[l + 1], f.block == 2 ? (int)STATE_XM : f.block, v, l);
        } else if (last && role == WARP_H) {
            write_energies(e);
        }
        arrive(barrier.done);
    }
    // Energies of the atoms, sums over eight hidden features.
    __device__ __forceinline__ void write_energies(float4 e) const
    {
#pragma unroll 1
        for (int mask = 4; mask <= 16; mask *= 2)
            e = e + make_float4(__shfl_xor_sync(~0u, e.x, mask), __shfl_xor_sync(~0u, e.y, mask), __shfl_xor_sync(~0u, e.z, mask),
                                __shfl_xor_sync(~0u, e.w, mask));
        // A caller that does not wait for the report sees from the energies that the step failed.
        if (step.gpu.report->flags != 0) e.x = e.y = e.z = e.w = nanf("");
        if (lane < 4) {
            float *at = step.raw_energy + (size_t)(2 * rank) * step.gpu.neighbors.atom_capacity + first + 2 * lane;
            at[0] = e.x;
            at[1] = e.y;
            at[step.gpu.neighbors.atom_capacity] = e.z;
            at[step.gpu.neighbors.atom_capacity + 1] = e.w;
        }
    }

    // ---- backward: the message network above layer l or the readout, then the update
    __device__ __forceinline__ void back(int l, int role)
    {
        const bool last = l + 1 == step.n_layers, hidden_above = role >= WARPS_H_BAR && role < WARPS_H_BAR + 3,
                   hidden = hidden_above || role == 12 || role == 13 || role == 3,
                   mu_bar = role >= WARPS_MU_BAR && role < WARPS_MU_BAR + 3;
        const int V = product_of(l, TO_V), G_bar = adjoint_of(l, TO_G_BAR), which = role == 3 ? 2 : role % 4,
                  parts = last && !hidden_above ? 2 : 3; // no μ̄ yet
        factors f = {G_bar + 1, K_TILES, 1, 0, AT_A, -1, false};
        float4 a = splat(0), b = a, t = a;
        if (role < 3 || role == WARP_GATE) {
            // Operands stored before the product, or without one: B̄, or Σ μ̄∘B.
            int at = AT_B + 2 * UNIT, barrier = operand_barrier(G_bar);
            if (role == WARP_GATE) {
                if (last) return;
#pragma unroll 1
                for (int c = 0; c < 3; c++) t = fma4(sum_of(3 + c), kept(l, 3 + c), t);
            } else {
                at = AT_B_BAR + role * UNIT;
                barrier = early_barrier(G_bar + 2);
                wait_for(V);
                wait_for(V + TO_Q);
                a = splat(step.epsilon);
#pragma unroll 1
                for (int c = 0; c < 3; c++) a = fma4(kept(l, c), kept(l, c), a);
                a = kept(l, role) * map4(rsqrtf, a);
                wait_for(G_bar - 1);
                b = q_bar[lane] * kept(l, 8); // t̄
                t = b * kept(l, role);
                if (!last) t = fma4(sum_of(3 + role), kept(l, 7), t);
                b = b * kept(l, 3 + role);
            }
            put(barrier, at, t);
            if (role == WARP_GATE) return;
        } else if (hidden) {
            if (which >= parts || (last && hidden_above)) return;
            f = {hidden_above ? G_bar - 2 : G_bar,
                 3 * K_TILES,
                 0,
                 which * K_TILES,
                 (hidden_above ? AT_A : AT_B) + which * UNIT,
                 -1,
                 false};
            if (!hidden_above) wait_for(V + TO_G);
            if (which == 0) a = slope(hidden_above ? kept(l + 1, 9) : kept(l, 6));
        } else if (mu_bar) {
            f = {G_bar + 2, 2 * K_TILES, 0, 0, AT_B + which * UNIT, AT_B_BAR + which * UNIT, false};
            if (!last) b = sum_of(3 + which);
        } else if (role == WARP_Q_PRIME) {
            f.block = 0;
            wait_for(G_bar - 1);
            b = q_bar[lane];
        } else if (role == WARP_Q_BAR) {
            f = {G_bar - 1, last ? K_TILES / 2 : K_TILES, 0, 0, last ? AT_A : AT_Q, -1, last};
            if (!last) b = own_of(0);
            t = t_of(l);
        } else {
            if (role == WARP_FETCH) fetch(G_bar + 1, step.n_products);
            return;
        }
        product_barriers &barrier = barriers[f.product];
        const float4 sum = multiply(f);
        float4 v = sum + b;
        int at = AT_B, units = 1;
        if (hidden) {
            if (which > 0) {
                give_part(barrier, which, sum);
                units = 0;
            } else {
                arrive(barrier.part);
                v = take_parts(barrier, sum, parts) * a;
                at = hidden_above ? AT_Q : AT_A;
            }
        } else if (role == WARP_Q_BAR) {
            q_bar[lane] = v;
            units = 2;
        } else if (role < 3) {
            v = fma4(sum, a, b);
            at += role * UNIT;
        } else {
            const int c = mu_bar ? 1 + which : 0;
            block::template write<ADJOINT_PAIRS>(block::adjoints_at(block::exchange_back(l)), c, v, block::exchange_back(l));
            set_own(c, v);
            units = 0;
        }
#pragma unroll 1
        for (; units > 0; units--) {
            put(operand_barrier(f.product + 1), at, v);
            at += UNIT;
            v = v * t;
        }
        arrive(barrier.done); // for q̄'' too: its operand is stored before B̄
    }

    // ---- messages: with one tile two warps for each atom, each with half of its edges; with two tiles one warp for each atom
    static const int WARPS_OF_TILE = FUSED_WARPS / TILES;
    // This warp's share of its atom's edges. Of a scheduler's warps, every fourth, two have the first share, which may be larger.
    __device__ __forceinline__ int share_of_edges() const
    {
        return (warp / 4 + warp) % ATOM_WARPS;
    }
    // The warp's atom in its tile.
    __device__ __forceinline__ int atom_of() const
    {
        return warp % WARPS_OF_TILE / ATOM_WARPS;
    }
    // Four sums of a tile are stored in all blocks by four groups of its warps; the sum of this warp's group.
    __device__ __forceinline__ int sent_sum() const
    {
        return warp % WARPS_OF_TILE / (WARPS_OF_TILE / 4);
    }
    __device__ __forceinline__ void send_sum(int barrier, int at) const
    {
        const int SENDERS = WARPS_OF_TILE / 4, EACH = BLOCKS > SENDERS ? BLOCKS / SENDERS : 1, to = warp % SENDERS * EACH;
        if (to < BLOCKS) block::template put_some<EACH>(barrier, at, sum_of(sent_sum()), to);
    }

    __device__ __forceinline__ void message(int l)
    {
        const bool first_layer = l == 0; // μ is zero, and x a function of the element
        const int stride = 4 * ATOM_WARPS, start = 4 * share_of_edges();
        choose(recompute(warp / WARPS_OF_TILE));
        const int i = first + atom_of(), quarter = lane / 8, f = 2 * (lane % 8);
        typedef value_table<false, Numbers::PRODUCTS == 1> table_type;
        const table_type table(step.layer[l], NULL, rank);
        typename table_type::template entries<3> entries;
        message_sums messages;
        if (first_layer || row_length() > 32) block::take_row(i, 0);
        const int length = row_length();
        const float4 *const mine_of_row = row + start + quarter;
        if (start < length) ask(table, entries, mine_of_row);
        const typename block::slices elements = {(float *)step.x0 + rank * 32, K_TILES * 32},
                                     rows = block::template slices_of<STATE_PAIRS>(step.state[l], l - 1);
        if (!first_layer) exchange_features(l - 1);
        stamp(stage_message(l));
        float4 x[3]; // of two features: q, R; μ_x, μ_y; μ_z, x^μ
        x[0] = x[1] = x[2] = make_float4(0, 0, 0, 0);
        const auto gather = [&](const float4 *edge) {
            if (first_layer) {
                x[0] = *(const float4 *)(elements.of(block::species_of(edge)) + 2 * f);
                return;
            }
            const float *at = rows.of(block::neighbor_of(edge)) + 2 * f;
            x[0] = *(const float4 *)at;
            x[1] = *(const float4 *)(at + 32);
            x[2] = *(const float4 *)(at + 64);
        };
        if (start < length && !paired) gather(mine_of_row);
#pragma unroll 1
        for (int left = length;; left -= 32) {
            const float4 *edge = mine_of_row;
#pragma unroll 1
            for (int k = min(left, 32) - start; k > 0; k -= stride, edge += stride) {
                const auto now = block::template view<table_type, edge_view<3, false>>(entries, edge);
                if (paired) gather(edge); // in shared memory: no need to request it earlier
                const float4 y0 = x[0], y1 = x[1], y2 = x[2];
                if (k > stride) {
                    ask(table, entries, edge + stride);
                    if (!paired) gather(edge + stride);
                }
                messages.template add<false>(now, y0, y1, y2);
            }
            if (left <= 32) break;
            block::take_row(i, length - left + 32);
            ask(table, entries, mine_of_row);
            if (!paired) gather(mine_of_row);
        }
        float2 mine = messages.finish();
        const int at = quarter * FEATURES + atom_of() * ATOM_ROW + f;
        if (share_of_edges() == 0) {
            float2 before = make_float2(0, 0);
            if (!first_layer)
                before = *(const float2 *)(own + at);
            else if (quarter == 0 && i < n_atoms)
                before = *(const float2 *)(step.embedding + ((size_t)step.gpu.neighbors.species[i] * K_TILES + rank) * 16 + f);
            mine.x += before.x;
            mine.y += before.y;
        }
        *(float2 *)(sums + share_of_edges() * EDGE_SUMS + at) = mine;
        if (first_layer)
            cluster_wait(); // until all blocks have initialized their barriers
        else
            block::wait_for_operands(l - 1);
        __syncthreads();
        const int c = sent_sum(), n = product_of(l, TO_V);
        send_sum(c == 0 ? early_barrier(n + 1) : operand_barrier(n), c == 0 ? AT_Q : AT_A + (c - 1) * UNIT);
    }

    __device__ __forceinline__ void message_back(int l)
    {
        const bool first_layer = l == 0;
        const int stride = 4 * ATOM_WARPS, start = 4 * share_of_edges();
        choose(recompute(warp / WARPS_OF_TILE));
        const int j = first + atom_of(), quarter = lane / 8, f = 2 * (lane % 8);
        typedef filter_table<false, Numbers::PRODUCTS == 1> table_type;
        const table_type table(step.layer[l], NULL, rank);
        const float scale = step.table_scale; // dt/dd
        const bool accumulate = l + 1 < step.n_layers;
        // 32 bits suffice (choose_fused).
        float *gradient =
            step.edge_gradient + (((unsigned)rank * step.gpu.neighbors.atom_capacity + j) * step.gpu.neighbors.row_capacity * 4 +
                                  (lane % 8) / 2 + (start + quarter) * 4);
        typename table_type::template entries<3> entries;
        if (row_length() > 32) block::take_row(j, 0);
        const int length = row_length();
        reverse_sums back;
        if (j < n_atoms)
            back.load(first_layer ? step.x0 + ((size_t)step.gpu.neighbors.species[j] * K_TILES + rank) * 32 + 2 * f
                                  : step.state[l] + ((size_t)j * K_TILES + rank) * 96 + 2 * f,
                      first_layer);
        const int exchange = block::exchange_back(l);
        const typename block::slices rows = block::template slices_of<ADJOINT_PAIRS>(block::adjoints_at(exchange), exchange);
        // Table entries are far away and depend on no neighbor: request them early, except with pairs of halves and neighbors in global
        // memory, for which registers do not suffice.
        const bool ahead = paired || Numbers::PRODUCTS == 1;
        const float4 *const mine_of_row = row + start + quarter;
        if (ahead && start < length) ask(table, entries, mine_of_row);
        exchange_features(exchange);
        stamp(stage_edges(step.n_layers, l));
        float4 bar0 = make_float4(0, 0, 0, 0), bar1 = bar0; // q̄', μ̄'_x; μ̄'_y, μ̄'_z
        float before = 0;
        const auto gather = [&](const float4 *edge) {
            const float *at = rows.of(block::neighbor_of(edge)) + 2 * f;
            bar0 = *(const float4 *)at;
            bar1 = *(const float4 *)(at + 32);
        };
        // k: edges left, counted from the first quarter's.
        const auto gather_far = [&](const float4 *edge, int k) {
            if (!paired) gather(edge);
            if (accumulate && k > quarter) before = gradient[(edge - mine_of_row) * 4];
        };
        if (start < length) gather_far(mine_of_row, length - start);
#pragma unroll 1
        for (int left = length;; left -= 32) {
            const float4 *edge = mine_of_row;
#pragma unroll 1
            for (int k = min(left, 32) - start; k > 0; k -= stride, edge += stride) {
                if (!ahead) ask(table, entries, edge);
                const auto now = block::template view<table_type, edge_view<3, true>>(entries, edge);
                if (paired) gather(edge);
                const float4 y0 = bar0, y1 = bar1;
                const float so_far = before;
                if (k > stride) {
                    if (ahead) ask(table, entries, edge + stride);
                    gather_far(edge + stride, k - stride);
                }
                const float mine = back.template add<false>(now, y0, y1, scale);
                if (k > quarter && lane % 2 == 0) gradient[(edge - mine_of_row) * 4] = so_far + mine;
            }
            if (left <= 32) break;
            block::take_row(j, length - left + 32);
            gradient += 32 * 4;
            if (ahead) ask(table, entries, mine_of_row);
            gather_far(mine_of_row, left - 32 - start);
        }
        if (first_layer) return;
        // μ̄ starts from the atom's own μ̄'.
        float2 mine[2];
        back.finish(mine);
        const int at = atom_of() * ATOM_ROW + f, share = share_of_edges() * EDGE_SUMS;
        if (quarter < 3) *(float2 *)(sums + share + quarter * FEATURES + at) = mine[0];
        if (quarter > 0) {
            if (share == 0) {
                const float2 before = *(const float2 *)(own + quarter * FEATURES + at);
                mine[1].x += before.x;
                mine[1].y += before.y;
            }
            *(float2 *)(sums + share + (2 + quarter) * FEATURES + at) = mine[1];
        }
        block::wait_for_operands(exchange);
        __syncthreads();
        if (sent_sum() < 3) send_sum(operand_barrier(adjoint_of(l, TO_H_BAR)), AT_A + sent_sum() * UNIT);
    }
};

template <typename Numbers, int F, int TILES, bool paired>
static __global__ void __launch_bounds__(FUSED_WARPS * 32, 1)
    fused_layers_kernel(const __grid_constant__ painn_gpu_step step, int forces)
{
    DYNAMIC_SHARED(shared);
    layers<Numbers, F, TILES, paired> n(step, shared, forces);
    n.prepare();
    begin_stage(step.gpu, stage_message(0));
    n.phase = *(volatile uint32_t *)n.exchange_counter() & 0x80000000u;
    const int L = step.n_layers;
    if (n.first >= n.n_atoms) {
        cluster_wait();
        if (n.warp == WARP_FETCH) n.wait_for_weights();
        return;
    }
#pragma unroll 1
    for (int round = 0; round < L; round++) {
        const int l = recompute(round);
        n.message(l);
        n.stamp(stage_message(l) + 1);
#pragma unroll 1
        for (int k = 0; k < TILES; k++) n.forward(l, n.template take_part<false>(k), forces);
    }
    if (!forces) return;
#pragma unroll 1
    for (int round = L - 1; round >= 0; round--) {
        const int l = recompute(round);
#pragma unroll 1
        for (int k = 0; k < TILES; k++) n.back(l, n.template take_part<true>(k));
        n.message_back(l);
        if (l > 0) n.stamp(stage_edges(L, l) + 1);
    }
}

// ---- launches -------------------------------------------------------------------------------------------------------

template <typename Numbers, int F, int TILES, bool paired>
static int launch_fused(const painn_gpu_step *step, const gpu_plan *plan, void *stream)
{
    const int BLOCKS = PAINN_GPU_TILE_BLOCKS(F), tiles = (plan->n_atoms + PAINN_GPU_TILE_ATOMS - 1) / PAINN_GPU_TILE_ATOMS,
              n_blocks = (tiles + TILES - 1) / TILES * BLOCKS;
    return launch(fused_layers_kernel<Numbers, F, TILES, paired>, n_blocks, FUSED_WARPS * 32,
                  fused_bytes<F, TILES, paired>(step, sizeof(typename Numbers::piece)), paired ? n_blocks : BLOCKS,
                  plan->overlap | (paired ? 0 : LAUNCH_TOGETHER), stream, *step, plan->forces);
}
template <typename Numbers, int F> static int launch_fused(const painn_gpu_step *step, const gpu_plan *plan, void *stream)
{
    return plan->fused == PAINN_GPU_TWO_TILES  ? launch_fused<Numbers, F, 2, false>(step, plan, stream)
           : plan->fused == PAINN_GPU_ONE_TILE ? launch_fused<Numbers, F, 1, false>(step, plan, stream)
                                               : launch_fused<Numbers, F, 1, true>(step, plan, stream);
}

// How many clusters run at once.
template <typename Numbers, int F, int TILES, bool paired> static int prepare_fused(const painn_gpu_step *step)
{
    const int bytes = fused_bytes<F, TILES, paired>(step, sizeof(typename Numbers::piece)),
              cluster = (paired ? 2 : 1) * PAINN_GPU_TILE_BLOCKS(F);
    const auto set = [](cudaFuncAttribute attribute, int value) {
        return cudaFuncSetAttribute(fused_layers_kernel<Numbers, F, TILES, paired>, attribute, value) == cudaSuccess;
    };
    const bool can = set(cudaFuncAttributeMaxDynamicSharedMemorySize, bytes) &&
                     (!paired || set(cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
    cudaGetLastError();
    return can ? clusters_at_once(fused_layers_kernel<Numbers, F, TILES, paired>, cluster, FUSED_WARPS * 32, bytes) : 0;
}
template <typename Numbers, int F> static int prepare_fused(const painn_gpu_step *step, int whole)
{
    return whole == PAINN_GPU_TWO_TILES                   ? 2 * prepare_fused<Numbers, F, 2, false>(step)
           : whole == PAINN_GPU_ONE_TILE                  ? prepare_fused<Numbers, F, 1, false>(step)
           : prepare_fused<Numbers, F, 1, true>(step) > 0 ? 2
                                                          : 0;
}

template <int F> static int launch_fused_of(const painn_gpu_step *step, const gpu_plan *plan, void *stream)
{
    return step->numbers == PAINN_GPU_BFLOATS  ? launch_fused<single_numbers<true>, F>(step, plan, stream)
           : step->numbers == PAINN_GPU_HALVES ? launch_fused<single_numbers<false>, F>(step, plan, stream)
                                               : launch_fused<split_halves, F>(step, plan, stream);
}

template <int F> static int prepare_fused_of(const painn_gpu_step *step, int whole)
{
    return step->numbers == PAINN_GPU_BFLOATS  ? prepare_fused<single_numbers<true>, F>(step, whole)
           : step->numbers == PAINN_GPU_HALVES ? prepare_fused<single_numbers<false>, F>(step, whole)
                                               : prepare_fused<split_halves, F>(step, whole);
}

#endif
