// SPDX-License-Identifier: MIT
// linear_pack.c: weights of dense layers in the order in which tiles read them, and the choice of tiles. Runs on the host.
#include <math.h>
#include <string.h>

#include "linear.h"

// A thread's 16 sums of 32 columns are to be 8 adjacent columns of two rows: place p of 32 holds column 8 t + 2 j + c, p = 8 j + 2 t + c.
static int column_at(int place)
{
    const int p = place % 32;
    return place - p + p % 8 / 2 * 8 + p / 8 * 2 + p % 2;
}

enum { CHUNK = 64 };

static float largest_weight(int outputs, int inputs, gpu_weights weights, const void *context)
{
    float largest = 0, values[CHUNK];
    for (int k = 0; k < inputs; k += CHUNK)
        for (int n = 0; n < outputs; n++) {
            const int count = inputs - k < CHUNK ? inputs - k : CHUNK;
            weights(context, n, k, count, values);
            largest = gpu_largest(values, (size_t)count, largest);
        }
    return largest;
}

// The largest weight just below 2¹³: its low part and those of weights 2⁻¹³ as large are normal halves.
static float scale_of(float largest)
{
    return largest > 0 && isfinite(largest) ? ldexpf(1.0f, (int)fmin(13 - ceil(log2((double)largest)), 100)) : 1.0f;
}

enum { INPUTS = 8, PLACES = GPU_ROUNDED / INPUTS };

// Stores the numbers of places p, p + 1, … and of inputs k … k + 7.
static void store_places(uint16_t *plane, int rows, int p, int k, const uint16_t numbers[GPU_ROUNDED])
{
    for (int j = 0; j < PLACES; j += 8)
        memcpy(plane + ((size_t)(k / GPU_WEIGHT_DEPTH) * (size_t)rows + (size_t)(p + j)) * GPU_WEIGHT_DEPTH +
                   (size_t)(k % GPU_WEIGHT_DEPTH) * 8,
               numbers + INPUTS * j, 8 * INPUTS * sizeof *numbers);
}

gpu_linear gpu_pack_linear(gpu_packer *packer, enum gpu_number numbers, int outputs, int inputs, const float *bias,
                           gpu_weights weights, const void *context)
{
    const int rows = (outputs + GPU_WEIGHT_BLOCK - 1) / GPU_WEIGHT_BLOCK * GPU_WEIGHT_BLOCK, k_padded = (inputs + 63) / 64 * 64;
    gpu_linear layer = {.unit = 1.0f, .inputs = k_padded, .outputs = (outputs + 63) / 64 * 64};
    const size_t bytes = (size_t)rows * (size_t)k_padded * 2;
    const void *at;
    uint16_t *high = gpu_pack(packer, bytes, &layer.high), *low = NULL;
    if (numbers == GPU_NUMBER_FLOAT32) low = gpu_pack(packer, bytes, &layer.low);
    if (bias) {
        float *place = gpu_pack(packer, sizeof(float) * (size_t)layer.outputs, &at);
        layer.bias = at;
        for (int n = 0; place && n < layer.outputs; n++) place[n] = n < outputs ? bias[n] : 0.0f;
    }
    if (!high) return layer;
    const float scale = numbers == GPU_NUMBER_BF16 ? 1.0f : scale_of(largest_weight(outputs, inputs, weights, context));
    layer.unit = 1.0f / scale;
    for (int block = 0; block < rows; block += 2 * PLACES) // 32 columns, whose places column_at permutes
        for (int k = 0; k < k_padded; k += INPUTS)
            for (int p = block; p < block + 2 * PLACES; p += PLACES) {
                const int count = inputs - k < INPUTS ? inputs - k : INPUTS;
                float values[GPU_ROUNDED] = {0};
                for (int j = 0; j < PLACES; j++)
                    if (column_at(p + j) < outputs && count > 0)
                        weights(context, column_at(p + j), k, count, values + INPUTS * j);
                for (int e = 0; e < GPU_ROUNDED; e++) values[e] *= scale;
                uint16_t rounded[GPU_ROUNDED];
                (numbers == GPU_NUMBER_BF16 ? gpu_round_to_bfloats : gpu_round_to_halves)(values, rounded);
                store_places(high, rows, p, k, rounded);
                if (low) {
                    gpu_round_to_halves(values, rounded);
                    store_places(low, rows, p, k, rounded);
                }
            }
    return layer;
}

gpu_linear_plan gpu_linear_choose(enum gpu_number numbers, int rows, int outputs, int n_multiprocessors, int hopper)
{
    gpu_linear_plan plan = {.numbers = numbers, .wide = 0, .blocks = n_multiprocessors, .overlap = 0};
    if (!hopper) return plan;
    const int slabs = (rows + 63) / 64, columns = (outputs + 63) / 64;
    if ((rows + 15) / 16 * 2 * columns <= n_multiprocessors)
        plan.wide = 3;
    else if ((rows + 31) / 32 * 2 * columns * 4 <= n_multiprocessors * 5) // a few more than run at once
        plan.wide = 4;
    else
        plan.wide = slabs * columns <= 3 * n_multiprocessors ? 2 : 1;
    return plan;
}

int gpu_linear_parts(const gpu_linear_plan *plan)
{
    return plan->wide == 2 ? 4 : plan->wide >= 3 ? 8 : 1;
}
