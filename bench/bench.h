/* SPDX-License-Identifier: MIT */
/* bench.h: what the programs of this folder share: the clock, an ending with the library's text, an order for qsort. */
#ifndef BENCH_H
#define BENCH_H

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "mlff_base.h"

static inline double bench_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static inline void bench_check(mlff_status status)
{
    if (status == MLFF_OK) return;
    fprintf(stderr, "bench: %s\n", mlff_last_error());
    exit(1);
}

static inline int bench_ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

#endif
