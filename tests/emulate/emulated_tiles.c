// SPDX-License-Identifier: MIT
// emulated_tiles.c: in the place of src/device/cpu_paths.c, a processor with the paths "amx", whose tiles are emulated and whose vectors are
// portable, and "portable".
#include <string.h>

#include "device/cpu.h"

const char *const *mlff_cpu_paths(void)
{
    static const char *const paths[] = {"amx", "portable", NULL};
    return paths;
}

const char *cpu_vector_path(const char *path)
{
    return strcmp(path, "amx") == 0 ? "portable" : path;
}

bool cpu_has_bfloat16(void)
{
    return false;
}
