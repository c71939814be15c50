// SPDX-License-Identifier: MIT
// orb_node_layers.cu: a layer's nodes in one kernel, for few atoms of Orb-v2 with direct forces on Hopper. All blocks run at once.
//
//   received = Σ g_r norm(m);   sent = Σ g_s norm(m)
//   z = V₃ f(V₂ f(V₁ [n | received | sent] + c₁) + c₂) + c₃;   n += norm(z);   projections W_s n + b, W_r n of the next layer's edges
//
// 16 blocks compute a unit of 16 nodes. Each has the same columns of every product, so that it requests its weights before the messages exist, and sums
// what one of the atoms received and sent. Blocks of a unit pass the sums, both hidden layers and z to each other through memory (gpu/ptx/exchange.cuh);
// the norm, of 16 rows, is computed by all of them. A kernel empties the exchange of the next one, which nothing reads before that begins.
#include "gpu/nn/attention.cuh"
#include "orb_together.cuh"

enum { NODE_BLOCKS = 16, NODE_UNITS = 4 }; // of a unit; of a block: at most

static_assert(2 * ORB_GPU_NODE_SLOT_BYTES <= ORB_GPU_SLOTS * ORB_GPU_SLOT_BYTES, "room for two layers in turn");

/* What blocks exchange for a unit, in bytes: as mma reads it, and floats. */
template <int planes> struct node_exchange {
    static constexpr int PLANE = ORB_GPU_NODE_UNIT * 2 * GPU_NETWORK_HIDDEN, SUMS = 0, HIDDEN_A = planes * PLANE,
                         HIDDEN_B = 2 * planes * PLANE, Z = 3 * planes * PLANE,
                         BYTES = Z + ORB_GPU_NODE_UNIT * ORB_GPU_LATENT * 4;
    static_assert(BYTES <= ORB_GPU_NODE_UNIT_BYTES && BYTES % (16 * NODE_BLOCKS) == 0, "room for the exchange");
};

struct node_layers_shared {
    float4 partial[2][TOGETHER_WARPS * 8 * 32];
    float2 moments[2][TOGETHER_WARPS * 32];
    float weight[TOGETHER_WARPS];
};
typedef float4 node_rows[4 * TOGETHER_THREADS]; // behind it, of each unit: a thread's rows g, g + 8 and columns 32 w + 8 t …

template <int NUMBERS> struct node_layers_block : together_block<NUMBERS, node_layers_shared> {
    typedef together_block<NUMBERS, node_layers_shared> base;
    using base::g, base::lane, base::planes, base::shared, base::t, base::thread, base::warp;
    typedef node_exchange<planes> place_of;
    static constexpr int LATENT = ORB_GPU_LATENT, HIDDEN = GPU_NETWORK_HIDDEN;
    // Blocks of 8 columns of a hidden layer, of the third one and of the projections. Two lists of edges of a block's atom, which a half of the warps each
    // add up: what it received, what it sent.
    static constexpr int TILES = HIDDEN / 8 / NODE_BLOCKS, LAST_TILES = TILES / 2, PROJECTED = 2 * TILES,
                         PARTS = TOGETHER_WARPS / 2;
    static constexpr bool EARLY = planes == 1; // all weights are requested first; in float32 registers suffice for two layers
    typedef attention_edges<planes == 1 ? 8 : 4, planes == 1> edges; // messages are halves in the fast modes

    const orb_gpu_node_layers &call;
    node_rows *const nodes;
    const int tile, n_atoms;

    __device__ __forceinline__ node_layers_block(const orb_gpu_node_layers &call_, uint4 *memory)
        : base(*(node_layers_shared *)memory, call_.epsilon), call(call_),
          nodes((node_rows *)((char *)memory + sizeof(node_layers_shared))), tile(blockIdx.x % NODE_BLOCKS),
          n_atoms(*call_.attention.edges.n_atoms)
    {
    }
    __device__ __forceinline__ int unit_of(int own) const
    {
        return base::block / NODE_BLOCKS + own * (base::blocks / NODE_BLOCKS);
    }
    __device__ __forceinline__ bool has_unit(int own) const
    {
        return unit_of(own) * ORB_GPU_NODE_UNIT < n_atoms;
    }
    __device__ __forceinline__ char *exchange_of(int own) const
    {
        return call.exchange + (size_t)unit_of(own) * place_of::BYTES;
    }

    // ---- before the products
    // Nodes were written two kernels before, and nothing reads the next exchange any more.
    __device__ __forceinline__ void begin_unit(int own) const
    {
        constexpr int SHARE = place_of::BYTES / NODE_BLOCKS;
        const int row = unit_of(own) * ORB_GPU_NODE_UNIT + g;
        eight n[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            n[r] = {};
            if (row + 8 * r < n_atoms) n[r] = load_operand<NUMBERS>(call.nodes, row + 8 * r, 32 * warp + 8 * t);
        }
        base::keep_rows(nodes[own], n);
        exchange_clear(call.next_exchange + (size_t)unit_of(own) * place_of::BYTES + tile * SHARE, SHARE, thread,
                       TOGETHER_THREADS);
    }
    __device__ __forceinline__ int received() const // or sent, of this warp's list
    {
        return warp / PARTS;
    }
    __device__ __forceinline__ attention_list list_of(int own) const
    {
        const int atom = unit_of(own) * ORB_GPU_NODE_UNIT + tile;
        return edges::list_of(call.attention, received(), atom, atom < n_atoms, warp % PARTS, PARTS, lane);
    }
    __device__ __forceinline__ void add_messages(int own, const attention_list &list)
    {
        eight sum = {};
        float weight = 0;
        edges::add_list(call.attention, received(), list, PARTS, lane, sum, weight);
        base::template store_sums<2>(exchange_of(own) + place_of::SUMS, place_of::PLANE, tile, received(), sum, weight,
                                     call.attention.scale, call.attention.shift);
    }

    // ---- products
    // Which block of 8 columns of a layer a warp finishes, if it is one of the first `tiles`.
    __device__ __forceinline__ int block_of(int tiles) const
    {
        return tiles * tile + warp % tiles;
    }
    __device__ __forceinline__ void store_hidden(char *to, float4 x) const
    {
        const int j = block_of(TILES);
        if (warp < TILES)
            base::store_four(to + base::operand_place(0, j / 4, HIDDEN) + base::place_of_two(j % 4), place_of::PLANE,
                             base::soften_four(x));
    }
    __device__ __forceinline__ void first_layer(int own, const uint4 (&b)[planes * 3 * TILES], float2 bias)
    {
        uint4 a[planes * 6], sums[planes * 4];
        float4 sum[TILES];
        eight n[2];
        base::load_rows(nodes[own], n);
        base::round_rows(n, a, a + (planes - 1) * 6);
        base::template wait_for_rows<1, 2>(sums, exchange_of(own) + place_of::SUMS, place_of::PLANE, 0);
#pragma unroll
        for (int k = 0; k < planes * 4; k++) a[k / 4 * 6 + 2 + k % 4] = sums[k];
        base::template multiply<1, TILES, 3>(sum, a, b);
        store_hidden(exchange_of(own) + place_of::HIDDEN_A,
                     base::scale_and_add(base::add_warps(sum, warp), call.mlp.layer[0].unit, bias));
    }
    __device__ __forceinline__ void second_layer(int own, const uint4 (&b)[planes * 2 * TILES], float2 bias)
    {
        uint4 a[planes * 4];
        float4 sum[TILES];
        base::template wait_for_rows<1, 2>(a, exchange_of(own) + place_of::HIDDEN_A, place_of::PLANE, 0);
        base::template multiply<1, TILES, 2>(sum, a, b);
        store_hidden(exchange_of(own) + place_of::HIDDEN_B,
                     base::scale_and_add(base::add_warps(sum, warp), call.mlp.layer[1].unit, bias));
    }
    __device__ __forceinline__ void third_layer(int own, const uint4 (&b)[planes * 2 * LAST_TILES], float2 bias)
    {
        const int j = block_of(LAST_TILES);
        uint4 a[planes * 4];
        float4 sum[LAST_TILES];
        base::template wait_for_rows<1, 2>(a, exchange_of(own) + place_of::HIDDEN_B, place_of::PLANE, 0);
        base::template multiply<1, LAST_TILES, 2>(sum, a, b);
        const float4 z = base::scale_and_add(base::add_warps(sum, warp), call.mlp.layer[2].unit, bias);
        if (warp < LAST_TILES)
            base::store_floats_of(exchange_of(own) + place_of::Z + base::float_place(g, j / 4, j % 4 / 2, t) + j % 2 * 8, z);
    }
    __device__ __forceinline__ void update(int own, const uint4 (&b)[planes * PROJECTED], float2 bias)
    {
        const int row = unit_of(own) * ORB_GPU_NODE_UNIT + g;
        uint4 a[planes * 2];
        float4 sum[PROJECTED];
        eight n[2];
        base::load_rows(nodes[own], n);
        base::add_normalized(n, exchange_of(own) + place_of::Z, 0, call.mlp.scale, call.mlp.shift);
        if (tile == 0)
#pragma unroll
            for (int r = 0; r < 2; r++)
                if (row + 8 * r < n_atoms) store_operand<NUMBERS>(call.nodes, row + 8 * r, 32 * warp + 8 * t, n[r]);
        if (!call.projects) return;
        base::round_rows(n, a, a + (planes - 1) * 2);
        base::template multiply<1, PROJECTED, 1>(sum, a, b);
        const float4 all = base::scale_and_add(base::add_warps(sum, warp), call.project.unit, bias);
        if (warp >= PROJECTED) return;
        if (row < n_atoms) store_projections(row, all.x, all.y);
        if (row + 8 < n_atoms) store_projections(row + 8, all.z, all.w);
    }
    __device__ __forceinline__ void store_projections(int row, float x, float y) const
    {
        const size_t at = (size_t)row * (2 * HIDDEN) + base::column_of(block_of(PROJECTED));
        if (call.rounds)
            *(uint32_t *)((uint16_t *)call.projects + at) = pack_pair<number_format<NUMBERS>::bfloat>(x, y);
        else
            *(float2 *)(call.projects + at) = make_float2(x, y);
    }

    __device__ __forceinline__ void run()
    {
        uint4 first[planes * 3 * TILES], second[planes * 2 * TILES], third[planes * 2 * LAST_TILES], project[planes * PROJECTED];
        const orb_gpu_mlp &of = call.mlp;
        const auto request_last = [&]() {
            base::template request<LAST_TILES, 2, LATENT>(third, of.layer[2], 8 * LAST_TILES * tile);
            if (call.projects) base::template request<PROJECTED, 1, 2 * HIDDEN>(project, call.project, 8 * PROJECTED * tile);
        };
        base::template request<TILES, 3, HIDDEN>(first, of.layer[0], 8 * TILES * tile);
        base::template request<TILES, 2, HIDDEN>(second, of.layer[1], 8 * TILES * tile);
        if (EARLY) request_last();
        const int hidden = base::column_of(block_of(TILES));
        const float2 bias[4] = {request_two(of.layer[0].bias + hidden), request_two(of.layer[1].bias + hidden),
                                request_two(of.layer[2].bias + base::column_of(block_of(LAST_TILES))),
                                call.projects ? request_two(call.project.bias + base::column_of(block_of(PROJECTED)))
                                              : make_float2(0, 0)};
        attention_list list = list_of(0);
#pragma unroll 1
        for (int own = 0; has_unit(own); own++) begin_unit(own);
        wait_for_previous();
        let_next_start();
        if (call.attention.stamp && base::block == 0 && thread == 0) *call.attention.stamp = gpu_timer();
#pragma unroll 1
        for (int own = 0; has_unit(own); own++) {
            if (own > 0) list = list_of(own);
            add_messages(own, list);
        }
#pragma unroll 1
        for (int own = 0; has_unit(own); own++) first_layer(own, first, bias[0]);
        if (!EARLY) request_last();
#pragma unroll 1
        for (int own = 0; has_unit(own); own++) second_layer(own, second, bias[1]);
#pragma unroll 1
        for (int own = 0; has_unit(own); own++) third_layer(own, third, bias[2]);
#pragma unroll 1
        for (int own = 0; has_unit(own); own++) update(own, project, bias[3]);
    }
};

template <int NUMBERS>
static __global__ void __launch_bounds__(TOGETHER_THREADS, 1)
    orb_node_layers_kernel(const __grid_constant__ orb_gpu_node_layers call, int unused)
{
    DYNAMIC_SHARED(memory);
    node_layers_block<NUMBERS> run(call, memory);
    run.run();
}

// ---- launches -------------------------------------------------------------------------------------------------------

static int divided_up(int a, int b)
{
    return (a + b - 1) / b;
}

// Groups of 16 blocks: the fewest with which no block computes more units one behind the other.
static int groups_of(const gpu_plan *plan)
{
    const int units = ORB_GPU_NODE_UNITS(plan->n_atoms), most = plan->n_multiprocessors / NODE_BLOCKS;
    return most > 0 ? divided_up(units, divided_up(units, most)) : 0;
}

static size_t shared_bytes(int units)
{
    return sizeof(node_layers_shared) + (size_t)units * sizeof(node_rows);
}

int orb_gpu_has_node_layers(const gpu_plan *plan)
{
    return plan->n_atoms > 0 && plan->n_atoms <= ORB_GPU_NODES_TOGETHER &&
           ORB_GPU_NODE_UNITS(plan->n_atoms) <= NODE_UNITS * groups_of(plan);
}

template <int NUMBERS> static int launch_one(const orb_gpu_node_layers *call, const gpu_plan *plan, void *stream)
{
    const int groups = groups_of(plan), units = divided_up(ORB_GPU_NODE_UNITS(plan->n_atoms), groups);
    return launch(orb_node_layers_kernel<NUMBERS>, NODE_BLOCKS * groups, TOGETHER_THREADS, shared_bytes(units), 1,
                  plan->overlap | LAUNCH_TOGETHER, stream, *call, 0);
}

int orb_gpu_launch_node_layers(const orb_gpu_node_layers *call, enum gpu_number numbers, const gpu_plan *plan, void *stream)
{
    return FOR_NUMBERS(numbers, launch_one, call, plan, stream);
}

template <int NUMBERS> static int prepare_one(int unused)
{
    return (int)cudaFuncSetAttribute(orb_node_layers_kernel<NUMBERS>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     (int)shared_bytes(NODE_UNITS));
}

int orb_gpu_prepare_node_layers(void)
{
    int error = 0;
    FOR_EACH_NUMBERS(error, prepare_one, 0);
    return error;
}
