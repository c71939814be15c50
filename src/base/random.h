/* SPDX-License-Identifier: MIT */
/* random.h: Philox 4x32-10, a counter-based generator (Salmon et al. 2011, doi:10.1145/2063384.2063405): value i of stream
 * (seed, stream) never depends on what was drawn before. Plain C for the host's and the GPU's compiler; elsewhere
 * base_random_uniform and base_random_normal are called. */
#ifndef BASE_RANDOM_H
#define BASE_RANDOM_H

#include <math.h>
#include <stdint.h>

#ifdef __CUDACC__
#define BASE_HOST_DEVICE __host__ __device__
#else
#define BASE_HOST_DEVICE
#endif

/* Two independent numbers in [0, 1) with 53 bits each. */
static inline BASE_HOST_DEVICE void random_two_uniforms(uint64_t seed, uint64_t stream, uint64_t index, double *first,
                                                        double *second)
{
    uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32), c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
    uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ key0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ key1;
        c3 = (uint32_t)p0;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    *first = (double)((((uint64_t)c0 << 32) | c1) >> 11) * 0x1p-53;
    *second = (double)((((uint64_t)c2 << 32) | c3) >> 11) * 0x1p-53;
}

static inline BASE_HOST_DEVICE double random_uniform(uint64_t seed, uint64_t stream, uint64_t index)
{
    double first, second;
    random_two_uniforms(seed, stream, index, &first, &second);
    return first;
}

/* Box and Muller; 1 - u keeps the logarithm finite. */
static inline BASE_HOST_DEVICE double random_normal(uint64_t seed, uint64_t stream, uint64_t index)
{
    double first, second;
    random_two_uniforms(seed, stream, index, &first, &second);
    return sqrt(-2.0 * log(1.0 - first)) * cos(2.0 * 3.14159265358979323846 * second);
}

#endif
