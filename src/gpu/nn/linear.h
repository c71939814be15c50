/* SPDX-License-Identifier: MIT */
/* linear.h: dense layers on tensor cores, y = f(x Wᵀ + b), for matrices of many rows.
 *
 * A matrix that is an operand of a product is stored in slabs of 64 rows, as the tensor cores read it: element (r, c) is at
 * ((r / 64 · columns / 8 + c / 8) · 64 + r % 64) · 8 + c % 8. Numbers are two planes of 16 bits each, a high part and the rest:
 *
 *   float32   two halves (22 bits); a product is the sum of three: low × high, high × low, high × high
 *   tf32      a half (11 bits); one product
 *   bf16      a bfloat16 (8 bits); one product
 *
 * Residual streams keep both planes in all precisions. Sums are float32. Numbers of columns are multiples of 64. */
#ifndef GPU_LINEAR_H
#define GPU_LINEAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu/gpu_pack.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    GPU_SLAB = 64,           /* rows of a slab */
    GPU_WEIGHT_BLOCK = 256,  /* numbers of outputs are padded to it */
    GPU_WEIGHT_DEPTH = 32,   /* inputs whose weights are stored together */
    GPU_NORM_WIDTH = 256,    /* columns of a row that is normalized */
    GPU_LINEAR_TILES = 5,    /* values of gpu_linear_plan.wide */
    GPU_NETWORK_HIDDEN = 512 /* width of the hidden layers of a network that one kernel computes */
};

enum gpu_number { GPU_NUMBER_FLOAT32, GPU_NUMBER_TF32, GPU_NUMBER_BF16 };
enum gpu_activation { GPU_IDENTITY, GPU_SILU, GPU_SHIFTED_SOFTPLUS };

/* An operand: planes of halves or bfloat16 numbers. `low` may be NULL where only high parts are used. */
typedef struct gpu_operand {
    void *high, *low;
    int32_t columns;
} gpu_operand;

/* Weights of a layer, times a power of two; `unit` is its inverse. */
typedef struct gpu_linear {
    const void *high,
        *low;          /* [inputs / 32][outputs / 8][32 / 8][8][8]: 32 inputs of any columns of a tile are one piece of memory */
    const float *bias; /* [outputs], or NULL */
    float unit;
    int32_t inputs, outputs;
} gpu_linear;

/* A product: rows 0 … n_rows − 1 of up to two operands side by side, times the weights. */
typedef struct gpu_product {
    gpu_operand a[2]; /* the second may have 0 columns */
    gpu_linear layer;
    const int32_t *n_rows; /* on the device */
    /* Columns of the operands that are complete before the products directly before this one begin, as n_rows is: with tiles 3 and 4
     * this one may begin before they have ended. */
    int32_t early;
    int32_t first_row, rows; /* rows first_row … first_row + rows − 1 as far as they exist; first_row is a multiple of 128 */
    uint64_t *stamp;         /* where the GPU's time at the beginning is stored; NULL: nowhere */
} gpu_product;

/* A network of three layers, GPU_NETWORK_HIDDEN wide, to GPU_NORM_WIDTH columns: of rows first_row … first_row + rows − 1 as far as they exist. */
typedef struct gpu_network {
    gpu_operand input[2]; /* side by side; the second may have 0 columns, and at most GPU_NETWORK_HIDDEN */
    gpu_linear layer[3];
    gpu_linear project;    /* a fourth layer, of the results; 0 inputs: none */
    const int32_t *n_rows; /* on the device, complete before the previous kernel begins */
    int32_t first_row, rows;
    int32_t early;  /* 1: the first operand of the input is complete, too */
    int32_t blocks; /* of a cluster: 2, or for fewer rows 4 or 8 */
    /* Of clusters of 2: 32 (float32), 48, 64 (not in float32) or 80 rows at a time, as operand B; 0: 128, in float32 64, as operand A. */
    int32_t tile_rows;
    uint64_t *stamp; /* where the GPU's time at the beginning is stored; NULL: nowhere */
} gpu_network;

/* How products are computed. */
typedef struct gpu_linear_plan {
    enum gpu_number numbers;
    int32_t
        wide; /* 1: tiles of 128 × 256 by wgmma; 2: of 64 × 64 by wgmma, rows to be normalized in clusters of 4 blocks; 3 and 4: of 16 × 32
               * and 32 × 32, in clusters of 8; 0: portable */
    int32_t blocks; /* that run at once */
    int32_t overlap;
} gpu_linear_plan;

/* Which tiles to use for so many rows: `hopper` as in gpu_evaluator. */
gpu_linear_plan gpu_linear_choose(enum gpu_number numbers, int rows, int outputs, int n_multiprocessors, int hopper);

/* Blocks that share a row of GPU_NORM_WIDTH columns. */
int gpu_linear_parts(const gpu_linear_plan *plan);
/* The same of a gpu_network, by blocks or groups of their warps. */
static inline int gpu_network_parts(enum gpu_number numbers, int blocks, int tile_rows)
{
    return blocks > 2 || tile_rows ? 8 : numbers == GPU_NUMBER_FLOAT32 ? 4 : 2;
}

/* y = f(x Wᵀ + b) as an operand, as floats [rows][stride], or both; NULL: not wanted. */
typedef struct gpu_dense {
    gpu_product product;
    enum gpu_activation activation;
    gpu_operand out;
    float *values;
    int32_t stride;
    int32_t adds;           /* 1: added to the values */
    int32_t rounds;         /* 1: the values are numbers of 16 bits, halves or bfloat16; nothing is added to them */
    const float *row_scale; /* [rows] the values are y times it; NULL: 1 */
    /* Backward: y = (x W) f'(p) for the saved p of the layer whose output's adjoint this is, which may be
     * the place of `out`; NULL: none. */
    gpu_operand saved;
    /* Forward: where p = x Wᵀ + b is kept for the backward pass; NULL: nowhere. */
    gpu_operand keep;
} gpu_dense;

/* Launches; `stream` is a cudaStream_t, the result a cudaError_t. */
int gpu_launch_dense(const gpu_dense *dense, const gpu_linear_plan *plan, void *stream);
/* Raises the kernels' limits of shared memory; once per device. */
int gpu_prepare_dense(int hopper);

/* Writes the weights of output n and of inputs k … k + count − 1 to `values`. */
typedef void (*gpu_weights)(const void *context, int n, int k, int count, float *values);
/* Packs a layer. Inputs and outputs beyond those given are zero. The transposed layer, for the backward pass, is packed by exchanging n
 * and k. */
gpu_linear gpu_pack_linear(gpu_packer *packer, enum gpu_number numbers, int outputs, int inputs, const float *bias,
                           gpu_weights weights, const void *context);

/* Bytes of one plane of an operand. */
static inline size_t gpu_plane_bytes(size_t rows, int columns)
{
    return (rows + GPU_SLAB - 1) / GPU_SLAB * GPU_SLAB * (size_t)columns * 2;
}

#ifdef __cplusplus
}
#endif
#endif
