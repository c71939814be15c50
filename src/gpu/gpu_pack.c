// SPDX-License-Identifier: MIT
// gpu_pack.c: constants in one block; weights as operands of the tensor cores.
#include "gpu_pack.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

void *gpu_pack(gpu_packer *packer, size_t bytes, const void **device_out)
{
    packer->at = (packer->at + 255) / 256 * 256;
    void *place = packer->block ? packer->block + packer->at : NULL;
    *device_out = packer->base + packer->at;
    packer->at += bytes;
    return place;
}

const float *gpu_pack_floats(gpu_packer *packer, const float *values, size_t n)
{
    const void *device;
    void *place = gpu_pack(packer, n * sizeof(float), &device);
    if (place) memcpy(place, values, n * sizeof(float));
    return device;
}

// By integers: a model has up to 10⁸ numbers to convert.
uint16_t gpu_to_half(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint16_t sign = (uint16_t)(bits >> 48 & 0x8000);
    const double size = fabs(value);
    if (!(size < 65520.0)) return sign | 0x7c00;
    // A subnormal half is a multiple of 2⁻²⁴: so is the sum with 2²⁸, in its last bits.
    const double whole = size + 268435456.0;
    if (size < 6.103515625e-05) {
        memcpy(&bits, &whole, sizeof bits);
        return sign | (uint16_t)(bits & 0xffff);
    }
    bits = (bits & INT64_MAX) + ((UINT64_C(1) << 41) - 1) + (bits >> 42 & 1); // a carry into the exponent is correct
    return sign | (uint16_t)((bits >> 42) - (1008 << 10));
}

double gpu_from_half(uint16_t value)
{
    const uint64_t exponent = value >> 10 & 31, mantissa = value & 1023;
    double size = (double)mantissa * 0x1p-24;
    const uint64_t bits = (exponent + 1008) << 52 | mantissa << 42;
    if (exponent) memcpy(&size, &bits, sizeof size);
    return value & 0x8000 ? -size : size;
}

uint16_t gpu_to_bfloat(double value)
{
    float single = (float)value; // rounded twice: ties of 16 bits caused by the first rounding are negligible
    uint32_t bits;
    memcpy(&bits, &single, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static double from_bfloat(uint16_t value)
{
    const uint32_t bits = (uint32_t)value << 16;
    float single;
    memcpy(&single, &bits, sizeof single);
    return single;
}

const void *gpu_pack_operand(gpu_packer *packer, int numbers, int n_columns, int n_rows, double scale,
                             float (*value)(const void *context, int n, int k), const void *context)
{
    const void *device;
    const size_t parts = numbers == GPU_SPLIT_HALVES ? 2 : numbers == GPU_THREE_BFLOATS ? 3 : 1;
    const bool bfloats = numbers == GPU_BFLOATS || numbers == GPU_THREE_BFLOATS;
    uint16_t *place = gpu_pack(packer, (size_t)n_columns * n_rows * 2 * parts, &device);
    if (!place) return device;
    for (int tile = 0; tile < n_columns / 8; tile++)
        for (int k_tile = 0; k_tile < n_rows / 16; k_tile++)
            for (int lane = 0; lane < 32; lane++, place += 4 * parts)
                for (int e = 0; e < 4; e++) {
                    int n = 8 * tile + lane / 4, k = 16 * k_tile + 2 * (lane % 4) + (e & 1) + 8 * (e >> 1);
                    double w = scale * value(context, n, k);
                    for (size_t part = 0; part < parts; part++) {
                        const uint16_t rounded = bfloats ? gpu_to_bfloat(w) : gpu_to_half(w);
                        place[4 * part + e] = rounded;
                        w -= bfloats ? from_bfloat(rounded) : gpu_from_half(rounded);
                    }
                }
    return device;
}
