// SPDX-License-Identifier: MIT
// clock.c: the monotonic host clock. Alone in its file, so that a test program can put a clock of its own in its place.
#include <time.h>

#include "measure.h"

int64_t mlff_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
