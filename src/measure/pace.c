// SPDX-License-Identifier: MIT
// pace.c: how fast this core runs just now: a chain of multiplications, each of which waits for the one before, takes the same
// number of cycles whatever else the machine does. Alone in its file, so that a test program can plant a pace of its own.
#include "measure.h"

enum { CHAIN = 256, TRIES = 3 };

double pace_ns(void)
{
    int64_t best = INT64_MAX;
    for (int try = 0; try < TRIES; try++) { // the shortest: an interrupt makes one long, none short
        int64_t start = mlff_clock_ns();
        volatile uint64_t seed = (uint64_t)start | 1;
        uint64_t x = seed;
        for (int i = 0; i < CHAIN; i++) x *= x | 1;
        seed = x;
        int64_t time = mlff_clock_ns() - start;
        if (time < best) best = time;
    }
    return (double)best;
}
