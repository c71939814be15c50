// SPDX-License-Identifier: MIT
// gpu_pack.c: constants in one block; weights as operands of the tensor cores.
#include "gpu_pack.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
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

// ---- parts on several threads ---------------------------------------------------------------------------------------------

typedef struct shared_parts {
    gpu_packer *packers; // one for each part, at its place
    int n;
    atomic_int next;
    gpu_part part;
    void *context;
} shared_parts;

static void *pack_next_parts(void *shared)
{
    shared_parts *p = shared;
    for (int k; (k = atomic_fetch_add(&p->next, 1)) < p->n;) p->part(p->context, &p->packers[k], k);
    return NULL;
}

void gpu_pack_parts(gpu_packer *packer, int n, gpu_part part, void *context)
{
    enum { MOST_HELPERS = 7 };
    pthread_t helpers[MOST_HELPERS];
    cpu_set_t cores;
    shared_parts shared = {
        .packers = packer->block ? malloc(sizeof *packer * (size_t)n) : NULL, .n = n, .part = part, .context = context};
    if (!shared.packers) { // counting, or without memory
        for (int k = 0; k < n; k++) part(context, packer, k);
        return;
    }
    gpu_packer counter = {NULL, packer->base, packer->at};
    for (int k = 0; k < n; k++) {
        shared.packers[k] = (gpu_packer){packer->block, packer->base, counter.at};
        part(context, &counter, k);
    }
    int wanted = sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) - 1 : 0, started = 0;
    if (wanted > n - 1) wanted = n - 1;
    if (wanted > MOST_HELPERS) wanted = MOST_HELPERS;
    while (started < wanted && pthread_create(&helpers[started], NULL, pack_next_parts, &shared) == 0) started++;
    pack_next_parts(&shared);
    while (started > 0) pthread_join(helpers[--started], NULL);
    packer->at = counter.at;
    free(shared.packers);
}

// ---- numbers ----------------------------------------------------------------------------------------------------------------

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

enum { TILE_COLUMNS = 8, TILE_ROWS = 16, TILE = GPU_ROUNDED };

static int32_t bits_of(float value)
{
    int32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float with_bits(int32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// Integers are in the order of the numbers without sign.
float gpu_largest(const float *values, size_t n, float largest)
{
    int32_t most = bits_of(largest);
    for (size_t k = 0; k < n; k++) {
        const int32_t size = bits_of(values[k]) & INT32_MAX;
        most = size > most ? size : most;
    }
    return with_bits(most);
}

// By selects alone, so that compilers vectorize it.
void gpu_round_to_halves(float values[GPU_ROUNDED], uint16_t halves[GPU_ROUNDED])
{
    const int32_t smallest = 0x38800000, too_large = 0x477ff000, half = 0x3f000000; // 2⁻¹⁴, 65520 and 0.5 as bits
    for (int k = 0; k < TILE; k++) {
        const int32_t bits = bits_of(values[k]), size = bits & INT32_MAX, sign = bits >> 16 & 0x8000;
        const int32_t normal = ((size + 0xfff + (size >> 13 & 1)) >> 13) - (112 << 10);
        const int32_t subnormal = bits_of(with_bits(size) + 0.5f) - half; // 0.5 has multiples of 2⁻²⁴ in its last bits
        int32_t rounded = size < smallest ? subnormal : normal;
        rounded = size < too_large ? rounded : 0x7c00;
        halves[k] = (uint16_t)(sign | rounded);
        const float of_subnormal = with_bits(half + rounded) - 0.5f;
        const int32_t back = rounded < 1024 ? bits_of(of_subnormal) : (rounded << 13) + (112 << 23);
        values[k] -= with_bits(back | (int32_t)((uint32_t)sign << 16));
    }
}

void gpu_round_to_bfloats(float values[GPU_ROUNDED], uint16_t bfloats[GPU_ROUNDED])
{
    for (int k = 0; k < TILE; k++) {
        const uint32_t bits = (uint32_t)bits_of(values[k]), rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
        bfloats[k] = (uint16_t)rounded;
        values[k] -= with_bits((int32_t)(rounded << 16));
    }
}

const void *gpu_pack_operand(gpu_packer *packer, int numbers, int n_columns, int n_rows, float scale, gpu_column column,
                             const void *context)
{
    const void *device;
    const int parts = numbers == GPU_SPLIT_HALVES ? 2 : numbers == GPU_THREE_BFLOATS ? 3 : 1;
    const bool bfloats = numbers == GPU_BFLOATS || numbers == GPU_THREE_BFLOATS;
    uint16_t *place = gpu_pack(packer, (size_t)n_columns * (size_t)n_rows * 2 * (size_t)parts, &device), rounded[TILE];
    float values[TILE];
    if (!place) return device;
    for (int n = 0; n < n_columns; n += TILE_COLUMNS)
        for (int k = 0; k < n_rows; k += TILE_ROWS, place += TILE * parts) {
            for (int g = 0; g < TILE_COLUMNS; g++) column(context, n + g, k, values + TILE_ROWS * g);
            for (int e = 0; e < TILE; e++) values[e] *= scale;
            for (int part = 0; part < parts; part++) {
                (bfloats ? gpu_round_to_bfloats : gpu_round_to_halves)(values, rounded);
                for (int lane = 0; lane < 32; lane++) { // its numbers are two pairs of a column
                    const uint16_t *pair = rounded + lane / 4 * TILE_ROWS + 2 * (lane % 4);
                    memcpy(place + 4 * (lane * parts + part), pair, 4);
                    memcpy(place + 4 * (lane * parts + part) + 2, pair + 8, 4);
                }
            }
        }
    return device;
}
