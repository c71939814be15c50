/* SPDX-License-Identifier: MIT */
/* synthetic_clock.h: the profiler's clock, replaced for one test program (the linker takes this definition before the
 * library's): every reading moves it on by some 20 ns and nothing else does. What a planted force field costs is then the
 * same on a machine at rest and on one that is busy with other work. Not for tests that time real work. */
#ifndef SYNTHETIC_CLOCK_H
#define SYNTHETIC_CLOCK_H

#include <stdatomic.h>

#include "mlff_profile.h"

int64_t mlff_clock_ns(void)
{
    static _Atomic uint64_t n_readings;
    uint64_t n = atomic_fetch_add(&n_readings, 1);
    return (int64_t)(20 * n + (n * 0x9e3779b97f4a7c15u >> 61)); // up to 7 ns of jitter; never backwards
}

#endif
