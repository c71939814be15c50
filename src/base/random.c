// SPDX-License-Identifier: MIT
// random.c: random numbers for the host.
#include "random.h"

#include "base.h"

double base_random_uniform(uint64_t seed, uint64_t stream, uint64_t index)
{
    return random_uniform(seed, stream, index);
}

double base_random_normal(uint64_t seed, uint64_t stream, uint64_t index)
{
    return random_normal(seed, stream, index);
}
