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
#include "painn_cuda_layers.cuh"

// What warps do between two rounds of edges, on the way forward: V of three components; B of these by warps 3, 7 and 11, which are of
// one scheduler; hidden features of the update; q''; hidden features of the message network, or of the readout; x of the next layer.
enum { WARP_G = 4, WARP_Q = 5, WARP_H = 6, WARPS_X = 8, WARP_MU = 12, WARP_T = 14 };
// And back: V̄ and B̄ of three components; adjoints of hidden features of the message network above, and of the update by warps 12, 13
// and 3; the gate of μ; μ̄'; q̄'; q̄''.
enum { WARPS_H_BAR = 4, WARP_GATE = 7, WARPS_MU_BAR = 8, WARP_Q_PRIME = 11, WARP_Q_BAR = 14 };

template <typename Numbers> struct layers : layers_block<Numbers> {
    typedef layers_block<Numbers> block;
    using block::activate, block::adjoint_of, block::arrive, block::bias, block::early_mail_of, block::exchanged, block::fetch,
        block::find_edge, block::first, block::gates, block::give_part, block::kept, block::lane, block::mail_of, block::meet,
        block::multiply, block::n_atoms, block::n_products, block::own, block::own_of, block::packed_of, block::product_of,
        block::products, block::put, block::put_two, block::q_bar, block::rank, block::row, block::row_length, block::set_own,
        block::slope, block::stamp, block::step, block::sum_of, block::sums, block::t_of, block::take_parts, block::take_row,
        block::wait_for, block::warp;
    typedef typename block::factors factors;
    using block::layers_block;

    // ---- the update of layer l and the message network of the next, or the readout
    __device__ __forceinline__ void forward(int l, int forces)
    {
        const bool last = l + 1 == step.n_layers;
        const int V = product_of(l, TO_V);
        factors f = {V, K_TILES, 0, 0, PAINN_CUDA_AT_A, -1, false};
        float4 b = splat(0), t = b;
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
                v = take_parts(gate, v * v, 3) + splat(step.epsilon);
                v = v * map4(rsqrtf, v);
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
                block::template write<STATE_PAIRS>(step.state[l + 1], STATE_MUX + c, mu);
            }
        } else if (warp >= WARPS_X && warp < WARPS_X + 3) {
            block::template write<STATE_PAIRS>(step.state[l + 1], f.block == 2 ? (int)STATE_XM : f.block, v);
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
        float4 a = splat(0), b = a, t = a;
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
                a = splat(step.epsilon);
#pragma unroll 1
                for (int c = 0; c < 3; c++) a = fma4(kept(l, c), kept(l, c), a);
                a = kept(l, warp) * map4(rsqrtf, a);
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
            block::template write<ADJOINT_PAIRS>(step.adjoint, c, v);
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

    // ---- messages: two warps an atom, each with half of its edges
    __device__ __forceinline__ void message(int l)
    {
        const bool first_layer = l == 0; // μ is zero, and x a function of the element
        const int SLICES = K_TILES, stride = 8, start = warp % 2 * 4;
        const int i = first + warp / 2, quarter = lane / 8, f = 2 * (lane % 8);
        typedef filter_table<false, Numbers::PRODUCTS == 1> table_type;
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
            e.template evaluate<table_type>(entries);
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
        typedef filter_table<false, Numbers::PRODUCTS == 1> table_type;
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
            e.template evaluate<table_type>(entries);
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
