// SPDX-License-Identifier: MIT
// painn_paths.c: kernel tables of each instruction set.
#include <string.h>

#include "device/cpu.h"
#include "model/painn/train/painn_train_kernels.h"
#include "painn_kernels.h"

extern const painn_kernels painn_kernels_portable;
extern const painn_train_kernels painn_train_kernels_portable;
#if defined(__x86_64__)
extern const painn_kernels painn_kernels_avx2, painn_kernels_avx512;
extern const painn_train_kernels painn_train_kernels_avx2, painn_train_kernels_avx512;
#endif

const painn_kernels *painn_kernels_get(const char *path)
{
#if defined(__x86_64__)
    path = cpu_vector_path(path);
    if (strcmp(path, "avx512") == 0) return &painn_kernels_avx512;
    if (strcmp(path, "avx2") == 0) return &painn_kernels_avx2;
#else
    (void)path;
#endif
    return &painn_kernels_portable;
}

const painn_train_kernels *painn_train_kernels_get(const char *path)
{
#if defined(__x86_64__)
    path = cpu_vector_path(path);
    if (strcmp(path, "avx512") == 0) return &painn_train_kernels_avx512;
    if (strcmp(path, "avx2") == 0) return &painn_train_kernels_avx2;
#else
    (void)path;
#endif
    return &painn_train_kernels_portable;
}
