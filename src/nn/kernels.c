// SPDX-License-Identifier: MIT
// kernels.c: the kernel table of a fast path.
#include <string.h>

#include "nn/gradient.h"
#include "nn/segment.h"

// The tables of a kind, and the function that finds one by its path.
#if defined(__x86_64__)
#define KERNEL_TABLES(type)                                                                                                      \
    extern const type type##_portable, type##_avx2, type##_avx512;                                                               \
    const type *type##_get(const char *path)                                                                                     \
    {                                                                                                                            \
        return strcmp(path, "avx512") == 0 ? &type##_avx512 : strcmp(path, "avx2") == 0 ? &type##_avx2 : &type##_portable;       \
    }
#else
#define KERNEL_TABLES(type)                                                                                                      \
    extern const type type##_portable;                                                                                           \
    const type *type##_get(const char *path)                                                                                     \
    {                                                                                                                            \
        (void)path;                                                                                                              \
        return &type##_portable;                                                                                                 \
    }
#endif
KERNEL_TABLES(nn_kernels)
KERNEL_TABLES(nn_bfloat16_kernels)
KERNEL_TABLES(nn_gradient_kernels)
KERNEL_TABLES(nn_segment_kernels)
