/* SPDX-License-Identifier: MIT */
/* gpu_pack.h: constants of a model in one block, laid out as kernels want them; runs on the host. */
#ifndef GPU_PACK_H
#define GPU_PACK_H

#include <stddef.h>
#include <stdint.h>

typedef struct gpu_packer {
    char *block;      /* NULL: count only */
    const char *base; /* address of the block on the device */
    size_t at;        /* bytes so far */
} gpu_packer;

/* Reserves `bytes`, 256-byte aligned; returns the place in the block (NULL if only counting) and sets the device address. */
void *gpu_pack(gpu_packer *packer, size_t bytes, const void **device_out);
const float *gpu_pack_floats(gpu_packer *packer, const float *values, size_t n);

/* Packs parts 0 … n − 1 behind one another, several at the same time. `part` packs part k: the same bytes whenever it is called, and nothing
 * that another part writes. It is called once more for each part, with a packer that counts. */
typedef void (*gpu_part)(void *context, gpu_packer *packer, int k);
void gpu_pack_parts(gpu_packer *packer, int n, gpu_part part, void *context);

/* Operands of the tensor cores: numbers split into two halves (high, low: 22 bits together), or rounded to one half (11 bits) or one
 * bfloat16 (8 bits); or split into three bfloat16 (24 bits), which have float32's range. */
enum { GPU_SPLIT_HALVES, GPU_HALVES, GPU_BFLOATS, GPU_THREE_BFLOATS };

/* Writes B[k][n] … B[k + 15][n] of an operand to `values` [16]; k is a multiple of 16. */
typedef void (*gpu_column)(const void *context, int n, int k, float *values);

/* Operand B of the product y[n] = Σ_k a[k] B[k][n]. Tile (n/8, k/16): lane (g, t) holds k = 2t, 2t+1, 2t+8, 2t+9 of column n = g; of split
 * numbers the high parts, then the lower ones. Numbers are stored times `scale`, a power of two. */
const void *gpu_pack_operand(gpu_packer *packer, int numbers, int n_columns, int n_rows, float scale, gpu_column column,
                             const void *context);

/* Rounds to halves or bfloat16 numbers, ties to even, and leaves in `values` what rounding took from them. */
enum { GPU_ROUNDED = 128 };
void gpu_round_to_halves(float values[GPU_ROUNDED], uint16_t halves[GPU_ROUNDED]);
void gpu_round_to_bfloats(float values[GPU_ROUNDED], uint16_t bfloats[GPU_ROUNDED]);
/* The largest magnitude of numbers and of `largest`. */
float gpu_largest(const float *values, size_t n, float largest);
/* The half nearest to a number, ties to even. */
uint16_t gpu_to_half(double value);
uint16_t gpu_to_bfloat(double value);
double gpu_from_half(uint16_t value);

#endif
