/* SPDX-License-Identifier: MIT */
/* fuzz_file.h: bytes as a file for readers that take a path, and what fuzz targets demand. */
#ifndef FUZZ_FILE_H
#define FUZZ_FILE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "fuzz/memory_files.h"

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t length);

/* Unlike assert(), also in release builds. */
static inline void fuzz_demand(bool holds, const char *promise)
{
    if (holds) return;
    fprintf(stderr, "broken promise: %s; last error: %s\n", promise, mlff_last_error());
    abort();
}

/* A failure says why, in one line. */
static inline void fuzz_demand_text(mlff_status status)
{
    if (status != MLFF_OK)
        fuzz_demand(*mlff_last_error() && !strchr(mlff_last_error(), '\n'), "a failure has a text of one line");
}

#define FUZZ_FIRST "/memory/first"
#define FUZZ_SECOND "/memory/second" /* what a target writes */

/* A file in memory that holds these bytes. */
static inline const char *fuzz_file(const void *bytes, size_t length)
{
    memory_files_put(FUZZ_FIRST, bytes, length);
    return FUZZ_FIRST;
}

#endif
