/* SPDX-License-Identifier: MIT */
/* sha256.h: SHA-256 (FIPS 180-4), to name files and to find damaged ones. */
#ifndef SHA256_H
#define SHA256_H

#include "base.h"

enum { SHA256_BYTES = 32, SHA256_TEXT_BYTES = 65, SHA256_BLOCK = 64 };

typedef struct sha256 {
    uint32_t state[8];
    uint64_t n_bytes;
    unsigned char block[SHA256_BLOCK];
} sha256;

void sha256_begin(sha256 *hash);
void sha256_add(sha256 *hash, const void *bytes, size_t n_bytes);
void sha256_end(sha256 *hash, unsigned char digest[SHA256_BYTES]);
/* The same in one call; `text`: 64 hexadecimal digits, terminated. */
void sha256_of(const void *bytes, size_t n_bytes, unsigned char digest[SHA256_BYTES]);
void sha256_text(const unsigned char digest[SHA256_BYTES], char text[SHA256_TEXT_BYTES]);
/* Of a file's content. Fails with MLFF_ERR_IO. */
mlff_status sha256_file(const char *path, char text[SHA256_TEXT_BYTES]);

/* The state after blocks of 64 bytes (section 6.2.2): by the processor's SHA instructions where it has them, and without. */
void sha256_compress(uint32_t state[8], const unsigned char *blocks, size_t n_blocks);
void sha256_compress_portable(uint32_t state[8], const unsigned char *blocks, size_t n_blocks);

#endif
