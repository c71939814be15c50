// SPDX-License-Identifier: MIT
// sha256.c: SHA-256 as in FIPS 180-4; names follow the standard (sections 4.1.2, 4.2.2, 6.2).
#include "sha256.h"

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

static void compress(uint32_t state[8], const unsigned char block[64])
{
    uint32_t w[64], v[8];
    for (int t = 0; t < 16; t++)
        w[t] =
            (uint32_t)block[4 * t] << 24 | (uint32_t)block[4 * t + 1] << 16 | (uint32_t)block[4 * t + 2] << 8 | block[4 * t + 3];
    for (int t = 16; t < 64; t++) {
        const uint32_t s0 = rotate_right(w[t - 15], 7) ^ rotate_right(w[t - 15], 18) ^ w[t - 15] >> 3;
        const uint32_t s1 = rotate_right(w[t - 2], 17) ^ rotate_right(w[t - 2], 19) ^ w[t - 2] >> 10;
        w[t] = w[t - 16] + s0 + w[t - 7] + s1;
    }
    memcpy(v, state, sizeof v);
    for (int t = 0; t < 64; t++) {
        const uint32_t s1 = rotate_right(v[4], 6) ^ rotate_right(v[4], 11) ^ rotate_right(v[4], 25);
        const uint32_t choice = (v[4] & v[5]) ^ (~v[4] & v[6]);
        const uint32_t t1 = v[7] + s1 + choice + K[t] + w[t];
        const uint32_t s0 = rotate_right(v[0], 2) ^ rotate_right(v[0], 13) ^ rotate_right(v[0], 22);
        const uint32_t majority = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += t1;
        v[0] = t1 + s0 + majority;
    }
    for (int k = 0; k < 8; k++) state[k] += v[k];
}

void sha256_begin(sha256 *hash)
{
    *hash = (sha256){.state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

void sha256_add(sha256 *hash, const void *bytes, size_t n_bytes)
{
    const unsigned char *from = bytes;
    while (n_bytes > 0) {
        const size_t used = hash->n_bytes % 64, room = 64 - used, taken = n_bytes < room ? n_bytes : room;
        memcpy(hash->block + used, from, taken);
        hash->n_bytes += taken;
        from += taken;
        n_bytes -= taken;
        if (used + taken == 64) compress(hash->state, hash->block);
    }
}

void sha256_end(sha256 *hash, unsigned char digest[SHA256_BYTES])
{
    static const unsigned char padding[64] = {0x80};
    const uint64_t n_bits = 8 * hash->n_bytes;
    const size_t used = hash->n_bytes % 64;
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
