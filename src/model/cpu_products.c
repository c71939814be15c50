// SPDX-License-Identifier: MIT
// cpu_products.c: products of matrices of a CPU path, in the precision that an evaluator wants.
#include "device/cpu.h"
#include "model.h"
#include "nn/nn.h"

mlff_status cpu_products(const cpu_options *options, const nn_kernels **nn_out)
{
    const enum nn_precision precision = options->precision == MLFF_TF32   ? NN_TF32
                                        : options->precision == MLFF_BF16 ? NN_BF16
                                                                          : NN_FLOAT32;
    *nn_out = nn_kernels_get(options->path, precision);
    if (*nn_out) return MLFF_OK;
    if (precision == NN_TF32)
        return mlff_fail(
            MLFF_ERR_UNSUPPORTED,
            "tf32 is a fast mode of GPUs and of processors with AMX (path amx, not %s); on the CPU use float32 or float64",
            options->path);
    return mlff_fail(MLFF_ERR_UNSUPPORTED,
                     "bf16 on the CPU takes AVX-512 with products of bfloat16 (AVX512-BF16) or AMX, which %s lacks; use float32",
                     cpu_has_bfloat16() ? options->path : "this processor");
}
