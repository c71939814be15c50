// SPDX-License-Identifier: MIT
// random.c: Philox 4x32-10, a counter-based generator (Salmon et al. 2011, doi:10.1145/2063384.2063405).
#include <math.h>

#include "base.h"

static void philox(uint32_t counter[4], uint32_t key0, uint32_t key1)
{
    for (int round = 0; round < 10; round++) {
        uint64_t product0 = (uint64_t)0xD2511F53u * counter[0];
        uint64_t product1 = (uint64_t)0xCD9E8D57u * counter[2];
        uint32_t next[4] = {(uint32_t)(product1 >> 32) ^ counter[1] ^ key0, (uint32_t)product1,
                            (uint32_t)(product0 >> 32) ^ counter[3] ^ key1, (uint32_t)product0};
        for (int i = 0; i < 4; i++) counter[i] = next[i];
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
}

// Two independent numbers in [0, 1) with 53 bits each.
static void two_uniforms(uint64_t seed, uint64_t stream, uint64_t index, double *first, double *second)
{
    uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)stream, (uint32_t)(stream >> 32)};
    philox(counter, (uint32_t)seed, (uint32_t)(seed >> 32));
    *first = (double)((((uint64_t)counter[0] << 32) | counter[1]) >> 11) * 0x1p-53;
    *second = (double)((((uint64_t)counter[2] << 32) | counter[3]) >> 11) * 0x1p-53;
}

double base_random_uniform(uint64_t seed, uint64_t stream, uint64_t index)
{
    double first, second;
    two_uniforms(seed, stream, index, &first, &second);
    return first;
}

// Box and Muller; 1 - u keeps the logarithm finite.
double base_random_normal(uint64_t seed, uint64_t stream, uint64_t index)
{
    double first, second;
    two_uniforms(seed, stream, index, &first, &second);
    return sqrt(-2.0 * log(1.0 - first)) * cos(2.0 * BASE_PI * second);
}
