/* SPDX-License-Identifier: MIT */
/* orb_layers.cuh: what blocks of the kernel of all layers (orb_layers.cu) exchange and have, and which tiles of products are whose. */
#ifndef ORB_LAYERS_CUH
#define ORB_LAYERS_CUH

#include "orb_together.cuh"

enum {
    ENCODER_INPUTS = 64, // columns of an edge's input
    LAYERS_COLUMN_TILES = GPU_NETWORK_HIDDEN / 32,
    LAYERS_NODE_TILES = GPU_NETWORK_HIDDEN / 8,
    LAYERS_PROJECTED = 68, // numbers of a row of projections in shared memory
    LAYERS_SHARED_BYTES = 227 * 1024
};

/* One slot of what blocks exchange, in bytes. */
template <int planes> struct layers_slot {
    static constexpr int ROW = 2 * GPU_NETWORK_HIDDEN, EDGES = ORB_GPU_TOGETHER_EDGES * ROW, NODES = ORB_GPU_TOGETHER_ATOMS * ROW;
    static constexpr int HIDDEN_A = 0, HIDDEN_B = HIDDEN_A + planes * EDGES, MESSAGES = HIDDEN_B + planes * EDGES,
                         GATES = MESSAGES + EDGES, SUMS = GATES + ORB_GPU_TOGETHER_EDGES * 16, NODE_A = SUMS + planes * NODES,
                         NODE_B = NODE_A + planes * NODES, NODE_C = NODE_B + planes * NODES, BYTES = NODE_C + NODES;
    static_assert(BYTES <= ORB_GPU_SLOT_BYTES && BYTES % 16 == 0, "room for the exchange");
};

/* Shared memory of a block. */
struct layers_shared {
    orb_gpu_layer layer[ORB_GPU_MAX_LAYERS];
    float4 partial[2][TOGETHER_WARPS * 8 * 32]; // sums of each warp
    float4 nodes[4 * TOGETHER_THREADS]; // latent features of all nodes: a thread's rows g, g + 8 and columns 32 w + 8 t …
    float projected[ORB_GPU_TOGETHER_ATOMS][LAYERS_PROJECTED]; // of the block's 32 columns: of senders, of receivers
    float2 moments[2][TOGETHER_WARPS * 32], gates[2][TOGETHER_WARPS * 2];
    float weight[TOGETHER_WARPS];
};
/* Of each group of 32 edges that the block has, behind it. */
struct layers_edges {
    float4 latent[8 * TOGETHER_THREADS]; // a thread's rows g, g + 8, g + 16, g + 24 and columns 32 w + 8 t …
    float4 first[TOGETHER_THREADS];      // the first layer's products with them
    int32_t atoms[TOGETHER_THREADS];     // of the thread's two rows: sender and receiver, 8 bits each
};

static_assert(sizeof(orb_gpu_layer) % 16 == 0 && sizeof(layers_shared) % 16 == 0, "copied and read 16 bytes at a time");

template <int NUMBERS> struct layers_block : together_block<NUMBERS, layers_shared> {
    typedef together_block<NUMBERS, layers_shared> tiles;
    typedef layers_slot<tiles::planes> slot_of;
    using tiles::block, tiles::blocks;
    const orb_gpu_layers &call;
    layers_edges *const edges;
    int n_atoms, n_edges, n_rows; // n_rows: of edges, with those that fill the last group of 32

    __device__ __forceinline__ layers_block(const orb_gpu_layers &call_, uint4 *memory)
        : tiles(*(layers_shared *)memory, call_.epsilon), call(call_),
          edges((layers_edges *)((char *)memory + sizeof(layers_shared))), n_atoms(0), n_edges(0), n_rows(0)
    {
    }
    __device__ __forceinline__ char *slot(int layer) const
    {
        return call.exchange + (size_t)((uint32_t)(layer + 1) % ORB_GPU_SLOTS) * slot_of::BYTES;
    }
    // ---- tiles of this block
    __device__ __forceinline__ int column() const // first of its 32 columns of the first two layers of edges
    {
        return block % LAYERS_COLUMN_TILES * 32;
    }
    __device__ __forceinline__ int group_of(int own) const // of 32 edges
    {
        return block / LAYERS_COLUMN_TILES + own * (blocks / LAYERS_COLUMN_TILES);
    }
    __device__ __forceinline__ bool has_group(int own) const
    {
        return 32 * group_of(own) < n_rows;
    }
    __device__ __forceinline__ int last_column() const // of the third layer of edges
    {
        return block % (LAYERS_COLUMN_TILES / 2) * 32;
    }
    __device__ __forceinline__ int last_row(int own) const // of 16 edges
    {
        return 16 * (block / (LAYERS_COLUMN_TILES / 2) + own * (blocks / (LAYERS_COLUMN_TILES / 2)));
    }
    __device__ __forceinline__ bool has_last(int own) const
    {
        return last_row(own) < n_rows;
    }
    // Of 8 columns of the first two layers of nodes, and of the third one: sums of messages, the third layer and the first two are computed by different blocks
    // where there are 128.
    __device__ __forceinline__ int first_node_tile() const
    {
        return blocks - 1 - block;
    }
    __device__ __forceinline__ int third_node_tile() const
    {
        return (blocks / 2 - 1 - block + blocks) % blocks;
    }
};

#endif
