// SPDX-License-Identifier: MIT
// cpu.c: choice of a fast path, and subnormal numbers.
#include "device/cpu.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

mlff_status cpu_path_choose(const char *wanted, bool tiled, const char **path_out)
{
    const char *origin = "cpu_path";
    if (!wanted) {
        wanted = getenv("MLFF_CPU");
        origin = "MLFF_CPU";
    }
    const char *const *paths = mlff_cpu_paths();
    if (!wanted || !*wanted) {
        *path_out = paths[0];
        for (int i = 0; tiled && paths[i]; i++)
            if (strcmp(paths[i], "amx") == 0) *path_out = paths[i];
        return MLFF_OK;
    }
    for (int i = 0; paths[i]; i++)
        if (strcmp(paths[i], wanted) == 0) {
            *path_out = paths[i];
            return MLFF_OK;
        }
    return mlff_fail(MLFF_ERR_USAGE, "%s: '%s' is not a fast path this machine runs; the best here is '%s'", origin, wanted,
                     paths[0]);
}

// Intel's Software Developer's Manual, volume 1, 10.2.3: bits 15 (results) and 6 (operands) of MXCSR. Arm's Architecture Reference
// Manual, FPCR: bit 24 is both.
uint64_t cpu_flush_subnormals(void)
{
#if defined(__x86_64__)
    const unsigned before = _mm_getcsr();
    _mm_setcsr(before | 1u << 15 | 1u << 6);
    return before;
#elif defined(__aarch64__)
    uint64_t before;
    __asm__ volatile("mrs %0, fpcr" : "=r"(before));
    __asm__ volatile("msr fpcr, %0" ::"r"(before | 1u << 24) : "memory");
    return before;
#else
    return 0;
#endif
}

void cpu_rounding_restore(uint64_t before)
{
#if defined(__x86_64__)
    _mm_setcsr((unsigned)before);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" ::"r"(before) : "memory");
#else
    (void)before;
#endif
}
