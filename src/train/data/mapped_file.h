/* SPDX-License-Identifier: MIT */
/* mapped_file.h: the bytes of a file, mapped for reading. */
#ifndef MAPPED_FILE_H
#define MAPPED_FILE_H

#include "base/base.h"

typedef struct mapped_file {
    const char *bytes; /* NULL: empty */
    size_t length;
} mapped_file;

/* Fails with MLFF_ERR_IO for what is not a regular file, MLFF_ERR_MEMORY. */
mlff_status mapped_file_open(const char *path, mapped_file *map_out);
/* Leaves an empty one, which may be closed again. */
void mapped_file_close(mapped_file *map);

#endif
