// SPDX-License-Identifier: MIT
// kernels.c: the kernel table of a fast path.
#include <string.h>

#include "nn/gradient.h"

extern const nn_kernels nn_kernels_portable;
extern const nn_gradient_kernels nn_gradient_kernels_portable;
#if defined(__x86_64__)
extern const nn_kernels nn_kernels_avx2, nn_kernels_avx512;
extern const nn_gradient_kernels nn_gradient_kernels_avx2, nn_gradient_kernels_avx512;
#endif

const nn_kernels *nn_kernels_get(const char *path)
{
#if defined(__x86_64__)
    if (strcmp(path, "avx512") == 0) return &nn_kernels_avx512;
    if (strcmp(path, "avx2") == 0) return &nn_kernels_avx2;
#else
    (void)path;
#endif
    return &nn_kernels_portable;
}

const nn_gradient_kernels *nn_gradient_kernels_get(const char *path)
{
#if defined(__x86_64__)
    if (strcmp(path, "avx512") == 0) return &nn_gradient_kernels_avx512;
    if (strcmp(path, "avx2") == 0) return &nn_gradient_kernels_avx2;
#else
    (void)path;
#endif
    return &nn_gradient_kernels_portable;
}
