/* SPDX-License-Identifier: MIT */
/* network_shape.cuh: the shape of a tile of a network (tile_network.cuh), its division of shared memory, its mbarriers. */
#ifndef GPU_NETWORK_SHAPE_CUH
#define GPU_NETWORK_SHAPE_CUH

#include "tile.cuh"

enum { NETWORK_SLOTS = 16 }; // of a ring, at most

static constexpr int least(int a, int b)
{
    return a < b ? a : b;
}

// Blocks of 8 of k in a slot, of `bytes` each; 4 where one plane fills it.
static constexpr int slot_depth(int bytes, int slot_bytes, int most)
{
    return 4 * bytes > slot_bytes ? 4 : least(slot_bytes / bytes, most);
}

/* BLOCKS_: of a cluster; PROJECTS_: a fourth layer may follow, of the results, twice as wide as the hidden ones. ROWS_: 0: rows are operand A of products, 64
 * in a slab; else weights are operand A, and a tile has so many rows, a multiple of 16. A slab of rows is computed by one group or by two that share its columns;
 * slabs wait for each other only where they share weights. */
template <int NUMBERS_, int BLOCKS_, bool PROJECTS_, int ROWS_> struct network_tile {
    typedef number_format<NUMBERS_> format;
    static constexpr int NUMBERS = NUMBERS_, planes = format::planes, BLOCKS = BLOCKS_, GROUPS = BLOCKS == 8 ? 1 : 2;
    static constexpr bool PROJECTS = PROJECTS_, TWO = PROJECTS_; // TWO: operands of the input
    static constexpr bool TRANSPOSED = ROWS_ > 0;
    static constexpr int HIDDEN = GPU_NETWORK_HIDDEN, COLUMNS = HIDDEN / BLOCKS, LAST = GPU_NORM_WIDTH / BLOCKS; // of a block
    static constexpr int SLABS = BLOCKS == 2 && !TRANSPOSED ? 2 / planes : 1, SLAB_ROWS = TRANSPOSED ? ROWS_ : GPU_SLAB,
                         ROWS = SLABS * SLAB_ROWS, SHARING = GROUPS / SLABS; // SHARING: groups that share a slab
    // Columns and rows of a group: of the third layer, groups that share a slab share its rows if weights are operand A.
    static constexpr int MINE = COLUMNS / SHARING, MINE_LAST = TRANSPOSED ? LAST : LAST / SHARING,
                         ROWS_LAST = TRANSPOSED ? SLAB_ROWS / SHARING : SLAB_ROWS;
    static constexpr int PARTS = TRANSPOSED ? 4 * BLOCKS : SHARING * BLOCKS; // of a row of results
    static constexpr int LANES_APART = TRANSPOSED ? 8 : 1;                   // four lanes have the same rows
    // Of a thread in an epilogue: Q blocks of eight columns, 32 columns from each other, of H rows, 8 from each other.
    static constexpr int Q = MINE / (TRANSPOSED ? 128 : 32), H = TRANSPOSED ? SLAB_ROWS / 8 : 2,
                         Q_LAST = MINE_LAST / (TRANSPOSED ? 128 : 32), H_LAST = TRANSPOSED ? ROWS_LAST / 8 : 2;
    /* Rows as operand A: blocks of 8 columns of hidden features are 32 bytes further apart than they are long, since a quarter of a warp stores 16 bytes of two
     * rows of four blocks. */
    static constexpr int INPUT_BYTES = SLAB_ROWS * 16, BLOCK_BYTES = INPUT_BYTES + (TRANSPOSED ? 0 : 32),
                         SLAB_BYTES = HIDDEN / 8 * BLOCK_BYTES;
    static constexpr int SLOT_BYTES = BLOCKS == 8 ? 8192 : 16384;
    // Blocks of 8 of k in a slot: of one block's share of what it multiplies, a multiple of four. Products in parts take four at a time.
    static constexpr int WIDE = 2 * COLUMNS, MOST = format::split ? 4 : COLUMNS / 8,
                         K8 = slot_depth(planes * COLUMNS * 16, SLOT_BYTES, MOST),
                         K8_LAST = slot_depth(planes * LAST * 16, SLOT_BYTES, MOST),
                         K8_WIDE = slot_depth(planes * WIDE * 16, SLOT_BYTES, format::split ? 4 : LAST / 8);
    static constexpr int CONSTANTS = 2 * COLUMNS + TILE_CONSTANTS * LAST + (PROJECTS ? WIDE : 0);
    static constexpr int RING_AT = planes * SLABS * SLAB_BYTES, REST = PARTS * ROWS * 8 + CONSTANTS * 4 + 512,
                         SLOTS = least((227 * 1024 - RING_AT - REST) / SLOT_BYTES, NETWORK_SLOTS),
                         MOMENTS_AT = RING_AT + SLOTS * SLOT_BYTES, CONSTANTS_AT = MOMENTS_AT + PARTS * ROWS * 8,
                         BARRIERS_AT = CONSTANTS_AT + CONSTANTS * 4, SHARED_BYTES = BARRIERS_AT + 512;
    static constexpr int COMPUTING = 128 * GROUPS, THREADS = COMPUTING + 128;
    static_assert(!TRANSPOSED || (BLOCKS == 2 && !PROJECTS && ROWS % 16 == 0), "all 128 columns of the third layer in a group");
    static_assert((PROJECTS ? WIDE : COLUMNS) <= COMPUTING, "a thread copies one constant of a vector");
    static_assert(SHARED_BYTES <= 227 * 1024, "shared memory of a multiprocessor");
};

struct network_barriers {
    uint64_t full[NETWORK_SLOTS], empty[NETWORK_SLOTS]; // of the ring
    uint64_t input[3], consumed; // a part of a tile's input is there; the columns of the first part are free
    uint64_t released;           // the region is free, in all blocks
    uint64_t arrived[2][7];      // another block's share is there, [slabs][BLOCKS - 1]: of a slab's hidden layer, of its results
    /* Of each slab. */
    uint64_t read[2];    // all blocks have read an operand of the first or the second layer
    uint64_t moments[2]; // sums of rows of all blocks are there
};

/* What an epilogue knows of its place: the first row and column of a thread, the end of all rows, the part of the row that the group has; constant: `column`
 * among the block's columns. */
struct network_place {
    int row, column, n_rows, lane, part, constant;
};

/* What a product waits for, and whose it is. */
struct network_turn {
    int slab, lane;
    bool first;  // of the threads of the slab
    int phase;   // of a tile's inputs, or of the shares
    int results; // 1: the shares are of results
};

#endif
