/* SPDX-License-Identifier: MIT */
/* fuzz_file.h: bytes as a file for readers that take a path, and what fuzz targets demand. */
#ifndef FUZZ_FILE_H
#define FUZZ_FILE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"

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

/* A file in memory that holds these bytes; its path is valid until the next call. */
static inline const char *fuzz_file(const void *bytes, size_t length)
{
    static char path[64];
    static int file = -1;
    if (file < 0) file = memfd_create("fuzz", MFD_CLOEXEC);
    fuzz_demand(file >= 0 && ftruncate(file, 0) == 0 && pwrite(file, bytes, length, 0) == (ssize_t)length,
                "a file in memory can be written");
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    return path;
}

static char fuzz_second[64];

static void fuzz_remove_second(void)
{
    unlink(fuzz_second);
}

/* A name for what a target writes; the file is removed at exit. */
static inline const char *fuzz_second_path(void)
{
    if (!*fuzz_second) {
        snprintf(fuzz_second, sizeof fuzz_second, "%s/mlff_fuzz_%ld", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp",
                 (long)getpid());
        atexit(fuzz_remove_second);
    }
    return fuzz_second;
}

#endif
