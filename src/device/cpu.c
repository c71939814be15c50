// SPDX-License-Identifier: MIT
// cpu.c: which fast paths this build has and this processor runs.
#include "device/cpu.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

const char *const *mlff_cpu_paths(void)
{
#if defined(__x86_64__)
    static const char *const all[] = {"avx512", "avx2", "portable", NULL};
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("bmi2"))
        return all;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2")) return all + 1;
    return all + 2;
#else
    static const char *const portable[] = {"portable", NULL};
    return portable;
#endif
}

mlff_status cpu_path_choose(const char *wanted, const char **path_out)
{
    const char *origin = "cpu_path";
    if (!wanted) {
        wanted = getenv("MLFF_CPU");
        origin = "MLFF_CPU";
    }
    const char *const *paths = mlff_cpu_paths();
    if (!wanted || !*wanted) {
        *path_out = paths[0];
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
