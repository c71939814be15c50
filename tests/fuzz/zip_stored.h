/* SPDX-License-Identifier: MIT */
/* zip_stored.h: a zip in memory with uncompressed entries, as torch.save writes it. */
#ifndef ZIP_STORED_H
#define ZIP_STORED_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct zip_stored {
    unsigned char *bytes; /* large enough: for each entry its bytes, twice its name and 76 bytes; 22 at the end */
    size_t length;
    struct {
        char name[32];
        uint32_t checksum, size, at;
    } entries[32];
    int n_entries;
} zip_stored;

/* With TZ set, libzip's conversion of each entry's time does not look at /etc/localtime, which took two thirds of the time. */
static inline void zip_stored_set_zone(void)
{
    static bool is_set;
    if (!is_set) is_set = setenv("TZ", "UTC", 1) == 0;
}

static inline void zip_stored_number(zip_stored *zip, uint64_t value, int n_bytes)
{
    for (int i = 0; i < n_bytes; i++) zip->bytes[zip->length++] = (unsigned char)(value >> 8 * i);
}

static inline void zip_stored_bytes(zip_stored *zip, const void *bytes, size_t n)
{
    if (n) memcpy(zip->bytes + zip->length, bytes, n);
    zip->length += n;
}

static inline uint32_t zip_stored_checksum(const unsigned char *bytes, size_t n)
{
    uint32_t checksum = 0xffffffff;
    for (size_t i = 0; i < n; i++) {
        checksum ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) checksum = checksum >> 1 ^ (checksum & 1 ? 0xedb88320 : 0);
    }
    return ~checksum;
}

/* Version, flags, method (stored), time and date (1980-01-01), checksum, sizes, length of the name, of the extra field. */
static inline void zip_stored_common(zip_stored *zip, int entry)
{
    zip_stored_number(zip, 20, 2);
    zip_stored_number(zip, 0, 6);
    zip_stored_number(zip, 0x21, 2);
    zip_stored_number(zip, zip->entries[entry].checksum, 4);
    zip_stored_number(zip, zip->entries[entry].size, 4);
    zip_stored_number(zip, zip->entries[entry].size, 4);
    zip_stored_number(zip, (uint32_t)strlen(zip->entries[entry].name), 2);
    zip_stored_number(zip, 0, 2);
}

static inline void zip_stored_add(zip_stored *zip, const char *name, const void *bytes, size_t n)
{
    int entry = zip->n_entries++;
    snprintf(zip->entries[entry].name, sizeof zip->entries[entry].name, "%s", name);
    zip->entries[entry].checksum = zip_stored_checksum(bytes, n);
    zip->entries[entry].size = (uint32_t)n;
    zip->entries[entry].at = (uint32_t)zip->length;
    zip_stored_number(zip, 0x04034b50, 4);
    zip_stored_common(zip, entry);
    zip_stored_bytes(zip, name, strlen(name));
    zip_stored_bytes(zip, bytes, n);
}

/* `zip`, which has room at `bytes`, begins with what `from` holds: checksums of the same entries are formed once. */
static inline void zip_stored_copy(const zip_stored *from, zip_stored *zip)
{
    unsigned char *to = zip->bytes;
    *zip = *from;
    zip->bytes = memcpy(to, from->bytes, from->length);
}

static inline void zip_stored_end(zip_stored *zip)
{
    uint32_t begin = (uint32_t)zip->length;
    for (int entry = 0; entry < zip->n_entries; entry++) {
        zip_stored_number(zip, 0x02014b50, 4);
        zip_stored_number(zip, 20, 2);
        zip_stored_common(zip, entry);
        zip_stored_number(zip, 0, 4); /* comment, disk */
        zip_stored_number(zip, 0, 4); /* attributes */
        zip_stored_number(zip, 0, 2);
        zip_stored_number(zip, zip->entries[entry].at, 4);
        zip_stored_bytes(zip, zip->entries[entry].name, strlen(zip->entries[entry].name));
    }
    uint32_t size = (uint32_t)zip->length - begin;
    zip_stored_number(zip, 0x06054b50, 4);
    zip_stored_number(zip, 0, 4);
    zip_stored_number(zip, (uint32_t)zip->n_entries, 2);
    zip_stored_number(zip, (uint32_t)zip->n_entries, 2);
    zip_stored_number(zip, size, 4);
    zip_stored_number(zip, begin, 4);
    zip_stored_number(zip, 0, 2);
}

#endif
