// SPDX-License-Identifier: MIT
// kernels.c: the kernel table of a fast path.
#include <string.h>

#include "device/cpu.h"
#include "nn/gradient.h"
#include "nn/segment.h"

// The tables of a kind, and the function, of which `get` is the beginning, that finds one by its path.
#if defined(__x86_64__)
#define KERNEL_TABLES(type, get)                                                                                                 \
    extern const type type##_portable, type##_avx2, type##_avx512;                                                               \
    get(const char *path)                                                                                                        \
    {                                                                                                                            \
        path = cpu_vector_path(path);                                                                                            \
        return strcmp(path, "avx512") == 0 ? &type##_avx512 : strcmp(path, "avx2") == 0 ? &type##_avx2 : &type##_portable;       \
    }
#else
#define KERNEL_TABLES(type, get)                                                                                                 \
    extern const type type##_portable;                                                                                           \
    get(const char *path)                                                                                                        \
    {                                                                                                                            \
        (void)path;                                                                                                              \
        return &type##_portable;                                                                                                 \
    }
#endif
KERNEL_TABLES(nn_kernels, static const nn_kernels *float32_kernels)
KERNEL_TABLES(nn_gradient_kernels, const nn_gradient_kernels *nn_gradient_kernels_get)
KERNEL_TABLES(nn_segment_kernels, const nn_segment_kernels *nn_segment_kernels_get)

#if defined(__x86_64__)
extern const nn_kernels nn_bfloat16_kernels_avx512, nn_tile_kernels_avx512[], nn_tile_kernels_portable[];

static const nn_kernels *tile_kernels(enum nn_precision precision)
{
#ifdef TILES_EMULATED
    return &nn_tile_kernels_portable[precision];
#else
    return &nn_tile_kernels_avx512[precision];
#endif
}

const nn_kernels *nn_kernels_get(const char *path, enum nn_precision precision)
{
    if (strcmp(path, "amx") == 0) return tile_kernels(precision);
    if (precision == NN_FLOAT32) return float32_kernels(path);
    return precision == NN_BF16 && strcmp(path, "avx512") == 0 && cpu_has_bfloat16() ? &nn_bfloat16_kernels_avx512 : NULL;
}
#else
const nn_kernels *nn_kernels_get(const char *path, enum nn_precision precision)
{
    return precision == NN_FLOAT32 ? float32_kernels(path) : NULL;
}
#endif
