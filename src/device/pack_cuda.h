/* SPDX-License-Identifier: MIT */
/* pack_cuda.h: constants of a model in one block, laid out as kernels want them; runs on the host. */
#ifndef PACK_CUDA_H
#define PACK_CUDA_H

#include <stddef.h>
#include <stdint.h>

typedef struct cuda_packer {
    char *block;      /* NULL: only counts */
    const char *base; /* where the block will stand on the device */
    size_t at;        /* bytes so far */
} cuda_packer;

/* Room for `bytes`, 256-byte aligned: where it is in the block (NULL if only counting) and on the device. */
void *cuda_pack(cuda_packer *packer, size_t bytes, const void **device_out);
const float *cuda_pack_floats(cuda_packer *packer, const float *values, size_t n);

/* How numbers become operands of the tensor cores: split into two halves (high, low: 22 bits together), or rounded to one
 * half (11 bits) or one bfloat16 (8 bits). */
enum { CUDA_SPLIT_HALVES, CUDA_HALVES, CUDA_BFLOATS };

/* Operand B of the product y[n] = Σ_k a[k] B[k][n]. Tile (n/8, k/16): lane (g, t) holds k = 2t, 2t+1, 2t+8, 2t+9 of column
 * n = g, of split halves the high parts and then the low ones. `value(context, n, k)` gives B[k][n]; it is stored times
 * `scale`. */
const void *cuda_pack_operand(cuda_packer *packer, int numbers, int n_columns, int n_rows, double scale,
                              float (*value)(const void *context, int n, int k), const void *context);

/* The half nearest to a number, ties to even. */
uint16_t cuda_to_half(double value);
double cuda_from_half(uint16_t value);

#endif
