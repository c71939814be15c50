// SPDX-License-Identifier: MIT
// sha256.c: SHA-256 as in FIPS 180-4; names follow the standard (sections 4.1.2, 4.2.2, 6.2).
#include "sha256.h"

#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#endif
#include <errno.h>
#include <string.h>

static const uint32_t K[64] = {0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
                               0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
                               0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
                               0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
                               0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
                               0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
                               0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
                               0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate_right(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

void sha256_compress_portable(uint32_t state[8], const unsigned char *block, size_t n_blocks)
{
    uint32_t w[64];
    for (; n_blocks > 0; n_blocks--, block += SHA256_BLOCK) {
        uint32_t a = state[0], b = state[1], c = state[2], d = state[3], e = state[4], f = state[5], g = state[6], h = state[7];
        for (int t = 0; t < 16; t++)
            w[t] = (uint32_t)block[4 * t] << 24 | (uint32_t)block[4 * t + 1] << 16 | (uint32_t)block[4 * t + 2] << 8 |
                   block[4 * t + 3];
        for (int t = 16; t < 64; t++) {
            const uint32_t s0 = rotate_right(w[t - 15], 7) ^ rotate_right(w[t - 15], 18) ^ w[t - 15] >> 3;
            const uint32_t s1 = rotate_right(w[t - 2], 17) ^ rotate_right(w[t - 2], 19) ^ w[t - 2] >> 10;
            w[t] = w[t - 16] + s0 + w[t - 7] + s1;
        }
#pragma GCC unroll 8 // so that the shift of the eight names costs no instruction
        for (int t = 0; t < 64; t++) {
            const uint32_t s1 = rotate_right(e, 6) ^ rotate_right(e, 11) ^ rotate_right(e, 25);
            const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + K[t] + w[t];
            const uint32_t s0 = rotate_right(a, 2) ^ rotate_right(a, 13) ^ rotate_right(a, 22);
            const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
            h = g, g = f, f = e, e = d + t1;
            d = c, c = b, b = a, a = t1 + t2;
        }
        const uint32_t v[8] = {a, b, c, d, e, f, g, h};
        for (int k = 0; k < 8; k++) state[k] += v[k];
    }
}

#ifdef __x86_64__
// The SHA instructions of x86 (Intel's Software Developer's Manual, volume 2, SHA256RNDS2 and after) keep the state as the two
// vectors ABEF and CDGH, A and C in the highest lane. Two rounds turn ABEF into the next CDGH, and the result is the next ABEF.
__attribute__((target("sha,sse4.1"))) static void compress_by_instructions(uint32_t state[8], const unsigned char *block,
                                                                           size_t n_blocks)
{
    const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    const __m128i dcba = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)state), 0x1b);
    const __m128i hgfe = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(state + 4)), 0x1b);
    __m128i abef = _mm_unpackhi_epi64(hgfe, dcba), cdgh = _mm_unpacklo_epi64(hgfe, dcba), w[4];
    for (; n_blocks > 0; n_blocks--, block += SHA256_BLOCK) {
        const __m128i abef_before = abef, cdgh_before = cdgh;
        for (int q = 0; q < 4; q++) w[q] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)block + q), big_endian);
#pragma GCC unroll 16                  // so that w stays in registers
        for (int q = 0; q < 16; q++) { // four rounds, then their words of the message become those of q + 4
            const __m128i added = _mm_add_epi32(w[q & 3], _mm_loadu_si128((const __m128i *)(K + 4 * q)));
            cdgh = _mm_sha256rnds2_epu32(cdgh, abef, added);
            abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(added, 0x0e));
            const __m128i w1 = w[(q + 1) & 3], w2 = w[(q + 2) & 3], w3 = w[(q + 3) & 3];
            if (q < 12)
                w[q & 3] =
                    _mm_sha256msg2_epu32(_mm_add_epi32(_mm_sha256msg1_epu32(w[q & 3], w1), _mm_alignr_epi8(w3, w2, 4)), w3);
        }
        abef = _mm_add_epi32(abef, abef_before);
        cdgh = _mm_add_epi32(cdgh, cdgh_before);
    }
    _mm_storeu_si128((__m128i *)state, _mm_shuffle_epi32(_mm_unpackhi_epi64(cdgh, abef), 0x1b));
    _mm_storeu_si128((__m128i *)(state + 4), _mm_shuffle_epi32(_mm_unpacklo_epi64(cdgh, abef), 0x1b));
}

static bool has_instructions(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_SSE4_1) && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_SHA);
}
#endif

// The processor is asked once: in a virtual machine the question takes microseconds.
void sha256_compress(uint32_t state[8], const unsigned char *blocks, size_t n_blocks)
{
#ifdef __x86_64__
    static _Atomic int answer; // 0: not asked yet
    if (answer == 0) answer = has_instructions() ? 1 : -1;
    if (answer > 0) {
        compress_by_instructions(state, blocks, n_blocks);
        return;
    }
#endif
    sha256_compress_portable(state, blocks, n_blocks);
}

void sha256_begin(sha256 *hash)
{
    *hash = (sha256){.state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

void sha256_add(sha256 *hash, const void *bytes, size_t n_bytes)
{
    const unsigned char *from = bytes;
    const size_t used = hash->n_bytes % SHA256_BLOCK, room = SHA256_BLOCK - used;
    hash->n_bytes += n_bytes;
    if (used > 0 && n_bytes >= room) {
        memcpy(hash->block + used, from, room);
        sha256_compress(hash->state, hash->block, 1);
        from += room;
        n_bytes -= room;
    }
    const bool begins = used == 0 || from != bytes; // a block begins with what is left
    if (begins && n_bytes >= SHA256_BLOCK) {
        const size_t whole = n_bytes / SHA256_BLOCK;
        sha256_compress(hash->state, from, whole);
        from += whole * SHA256_BLOCK;
        n_bytes -= whole * SHA256_BLOCK;
    }
    if (n_bytes > 0) memcpy(hash->block + (begins ? 0 : used), from, n_bytes);
}

void sha256_end(sha256 *hash, unsigned char digest[SHA256_BYTES])
{
    static const unsigned char padding[SHA256_BLOCK] = {0x80};
    const uint64_t n_bits = 8 * hash->n_bytes;
    const size_t used = hash->n_bytes % SHA256_BLOCK;
    unsigned char length[8];
    for (int k = 0; k < 8; k++) length[k] = (unsigned char)(n_bits >> (56 - 8 * k));
    sha256_add(hash, padding, used < 56 ? 56 - used : 120 - used);
    sha256_add(hash, length, sizeof length);
    for (int k = 0; k < SHA256_BYTES; k++) digest[k] = (unsigned char)(hash->state[k / 4] >> (24 - 8 * (k % 4)));
}

void sha256_of(const void *bytes, size_t n_bytes, unsigned char digest[SHA256_BYTES])
{
    sha256 hash;
    sha256_begin(&hash);
    sha256_add(&hash, bytes, n_bytes);
    sha256_end(&hash, digest);
}

void sha256_text(const unsigned char digest[SHA256_BYTES], char text[SHA256_TEXT_BYTES])
{
    for (int k = 0; k < SHA256_BYTES; k++) snprintf(text + 2 * k, 3, "%02x", digest[k]);
}

mlff_status sha256_file(const char *path, char text[SHA256_TEXT_BYTES])
{
    mlff_status status = MLFF_OK;
    sha256 hash;
    unsigned char bytes[65536], digest[SHA256_BYTES];
    size_t got;

    FILE *file = fopen(path, "rb");
    if (!file) return base_fail_reading(path, errno);
    sha256_begin(&hash);
    while ((got = fread(bytes, 1, sizeof bytes, file)) > 0) sha256_add(&hash, bytes, got);
    if (ferror(file)) MLFF_TRY(base_fail_reading(path, errno));
    sha256_end(&hash, digest);
    sha256_text(digest, text);
done:
    fclose(file);
    return status;
}
