// SPDX-License-Identifier: MIT
// ani_paths.c: the kernel table of a fast path.
#include <string.h>

#include "ani_kernels.h"
#include "device/cpu.h"

extern const ani_kernels ani_kernels_portable;
#if defined(__x86_64__)
extern const ani_kernels ani_kernels_avx2, ani_kernels_avx512;
#endif

const ani_kernels *ani_kernels_get(const char *path)
{
#if defined(__x86_64__)
    path = cpu_vector_path(path);
    if (strcmp(path, "avx512") == 0) return &ani_kernels_avx512;
    if (strcmp(path, "avx2") == 0) return &ani_kernels_avx2;
#else
    (void)path;
#endif
    return &ani_kernels_portable;
}
