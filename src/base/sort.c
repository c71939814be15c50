// SPDX-License-Identifier: MIT
#include <stdlib.h>

#include "base.h"

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void base_sort(double *values, size_t n)
{
    if (n > 0) qsort(values, n, sizeof *values, ascending);
}
