// SPDX-License-Identifier: MIT
// clock.c: the monotonic host clock. Alone in its file, so that a test program can put a clock of its own in its place.
#include "base/base.h"
#include "measure.h"

int64_t mlff_clock_ns(void)
{
    return base_clock_ns();
}
