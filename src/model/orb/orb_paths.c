// SPDX-License-Identifier: MIT
// orb_paths.c: kernel tables of each instruction set.
#include <string.h>

#include "orb_kernels.h"

extern const orb_kernels orb_kernels_portable;
#if defined(__x86_64__)
extern const orb_kernels orb_kernels_avx2, orb_kernels_avx512;
#endif

const orb_kernels *orb_kernels_get(const char *path)
{
#if defined(__x86_64__)
    if (strcmp(path, "avx512") == 0) return &orb_kernels_avx512;
    if (strcmp(path, "avx2") == 0) return &orb_kernels_avx2;
#else
    (void)path;
#endif
    return &orb_kernels_portable;
}
