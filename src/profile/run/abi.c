// SPDX-License-Identifier: MIT
// abi.c: sizes of the profiler's public structs, for bindings that write them down a second time.
#include <string.h>

#include "mlff_profile.h"

size_t mlff_profile_abi_size(const char *struct_name)
{
    static const struct {
        const char *name;
        size_t size;
    } sizes[] = {
#define SIZE(type) {#type, sizeof(type)}
        SIZE(mlff_callable),        SIZE(mlff_statistics),
        SIZE(mlff_process_memory),  SIZE(mlff_profile_options),
        SIZE(mlff_profile_verdict), SIZE(mlff_profile_stage),
        SIZE(mlff_profile_summary), SIZE(mlff_comparison_options),
        SIZE(mlff_comparison_row),  SIZE(mlff_implementations_options),
        SIZE(mlff_implementation),  SIZE(mlff_scaling),
#undef SIZE
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (strcmp(sizes[i].name, struct_name) == 0) return sizes[i].size;
    return 0;
}
