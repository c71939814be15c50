// SPDX-License-Identifier: MIT
// linear_pack.c: weights of dense layers in the order in which tiles read them, and the choice of tiles. Runs on the host.
#include <math.h>

#include "linear.h"

// A thread's 16 sums of 32 columns are to be 8 adjacent columns of two rows: place p of 32 holds column 8 t + 2 j + c, p = 8 j + 2 t + c.
static int column_at(int place)
{
    const int p = place % 32;
    return place - p + p % 8 / 2 * 8 + p / 8 * 2 + p % 2;
}

gpu_linear gpu_pack_linear(gpu_packer *packer, enum gpu_number numbers, int outputs, int inputs, const float *bias,
                           gpu_weight value, const void *context)
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
    double largest = 0;
    for (int n = 0; n < outputs; n++)
        for (int k = 0; k < inputs; k++) largest = fmax(largest, fabs(value(context, n, k)));
    // The largest weight just below 2¹³: its low part and those of weights 2⁻¹³ as large are normal halves.
    const double scale = largest > 0 && numbers != GPU_NUMBER_BF16 ? ldexp(1.0, 13 - (int)ceil(log2(largest))) : 1.0;
    layer.unit = (float)(1.0 / scale);
    for (int p = 0; p < rows; p++) {
        const int n = column_at(p);
        for (int k = 0; k < k_padded; k++) {
            const double w = n < outputs && k < inputs ? scale * value(context, n, k) : 0.0;
            const size_t to = (((size_t)(p / GPU_WEIGHT_BLOCK) * (size_t)(k_padded / 8) + (size_t)(k / 8)) * GPU_WEIGHT_BLOCK +
                               (size_t)(p % GPU_WEIGHT_BLOCK)) *
                                  8 +
                              (size_t)(k % 8);
            high[to] = numbers == GPU_NUMBER_BF16 ? gpu_to_bfloat(w) : gpu_to_half(w);
            if (low) low[to] = gpu_to_half(w - gpu_from_half(high[to]));
        }
    }
    return layer;
}

gpu_linear_plan gpu_linear_choose(enum gpu_number numbers, int rows, int outputs, int n_multiprocessors, int hopper)
{
    gpu_linear_plan plan = {.numbers = numbers, .wide = 0, .blocks = n_multiprocessors, .overlap = 0};
    if (!hopper) return plan;
    const int small = (rows + 63) / 64 * ((outputs + 63) / 64);
    plan.wide = small <= 3 * n_multiprocessors ? 2 : 1;
    return plan;
}
