/* SPDX-License-Identifier: MIT */
/* gpu_operand.h: operands of src/gpu/nn on the host, element by element, for tests that run its kernels by emulation. */
#ifndef GPU_OPERAND_H
#define GPU_OPERAND_H

#include "gpu/nn/linear.h"
#include "support.h"

static inline float operand_from_bfloat(uint16_t bits)
{
    const uint32_t wide = (uint32_t)bits << 16;
    float v;
    memcpy(&v, &wide, sizeof v);
    return v;
}

static inline size_t operand_place(int columns, int r, int c)
{
    return (((size_t)(r / GPU_SLAB) * (size_t)(columns / 8) + (size_t)(c / 8)) * GPU_SLAB + (size_t)(r % GPU_SLAB)) * 8 +
           (size_t)(c % 8);
}

/* 256 rows. */
SUPPORT gpu_operand operand_new(int columns)
{
    const size_t bytes = gpu_plane_bytes(256, columns);
    return (gpu_operand){aligned_alloc(256, bytes), aligned_alloc(256, bytes), columns};
}

SUPPORT void operand_free(gpu_operand m)
{
    free(m.high);
    free(m.low);
}

SUPPORT void operand_set(gpu_operand m, enum gpu_number numbers, int r, int c, double v)
{
    uint16_t *high = (uint16_t *)m.high + operand_place(m.columns, r, c),
             *low = (uint16_t *)m.low + operand_place(m.columns, r, c);
    *high = numbers == GPU_NUMBER_BF16 ? gpu_to_bfloat(v) : gpu_to_half(v);
    *low = numbers == GPU_NUMBER_BF16 ? gpu_to_bfloat(v - operand_from_bfloat(*high)) : gpu_to_half(v - gpu_from_half(*high));
}

SUPPORT double operand_get(gpu_operand m, enum gpu_number numbers, int r, int c)
{
    const uint16_t high = ((uint16_t *)m.high)[operand_place(m.columns, r, c)],
                   low = ((uint16_t *)m.low)[operand_place(m.columns, r, c)];
    return numbers == GPU_NUMBER_BF16 ? (double)operand_from_bfloat(high) + (double)operand_from_bfloat(low)
                                      : gpu_from_half(high) + gpu_from_half(low);
}

#endif
