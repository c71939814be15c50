/* SPDX-License-Identifier: MIT */
/* sha256.h: SHA-256 (FIPS 180-4), to name files and to find damaged ones. */
#ifndef SHA256_H
#define SHA256_H

#include "base.h"

enum { SHA256_BYTES = 32, SHA256_TEXT_BYTES = 65 };

typedef struct sha256 {
    uint32_t state[8];
    uint64_t n_bytes;
    unsigned char block[64];
} sha256;

void sha256_begin(sha256 *hash);
void sha256_add(sha256 *hash, const void *bytes, size_t n_bytes);
void sha256_end(sha256 *hash, unsigned char digest[SHA256_BYTES]);
/* The same in one call; `text`: 64 hexadecimal digits, terminated. */
void sha256_of(const void *bytes, size_t n_bytes, unsigned char digest[SHA256_BYTES]);
void sha256_text(const unsigned char digest[SHA256_BYTES], char text[SHA256_TEXT_BYTES]);
/* Of a file's content. Fails with MLFF_ERR_IO. */
mlff_status sha256_file(const char *path, char text[SHA256_TEXT_BYTES]);

#endif
