// SPDX-License-Identifier: MIT
// painn_paths.c: the kernel table of a fast path.
#include <string.h>

#include "painn_kernels.h"

extern const painn_kernels painn_kernels_portable;
#if defined(__x86_64__)
extern const painn_kernels painn_kernels_avx2, painn_kernels_avx512;
#endif

const painn_kernels *painn_kernels_get(const char *path)
{
#if defined(__x86_64__)
    if (strcmp(path, "avx512") == 0) return &painn_kernels_avx512;
    if (strcmp(path, "avx2") == 0) return &painn_kernels_avx2;
#else
    (void)path;
#endif
    return &painn_kernels_portable;
}
