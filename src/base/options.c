// SPDX-License-Identifier: MIT
// options.c: structs of options, which grow from one version of the library to the next.
#include <string.h>

#include "base.h"

mlff_status base_take_options(const char *function, const char *type, const void *given, size_t size, void *options)
{
    size_t known;
    if (!given) return MLFF_OK;
    memcpy(&known, given, sizeof known);
    if (known == 0 || known > size)
        return mlff_fail(MLFF_ERR_USAGE, "%s: struct_size is %zu, this library's is %zu; begin with %s_default()", function,
                         known, size, type);
    memcpy(options, given, known);
    memcpy(options, &size, sizeof size);
    return MLFF_OK;
}
