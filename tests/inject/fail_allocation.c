/* SPDX-License-Identifier: MIT */
/* fail_allocation.c: a library to be preloaded (LD_PRELOAD) that makes one allocation fail, and all after it where
 * MLFF_FAIL_ALL is set. MLFF_FAIL_ALLOCATION is the number of the allocation, from 1; 0 counts only. At the end of the process the
 * number of allocations is written to the file MLFF_COUNT_ALLOCATIONS. Allocations of the loader before main are not counted. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

static atomic_long count;
static long failing, all, active;

__attribute__((constructor)) static void begin(void)
{
    const char *number = getenv("MLFF_FAIL_ALLOCATION");
    failing = number ? atol(number) : 0;
    all = getenv("MLFF_FAIL_ALL") != NULL;
    active = 1;
}

__attribute__((destructor)) static void end(void)
{
    const char *path = getenv("MLFF_COUNT_ALLOCATIONS");
    const long n = atomic_load(&count);
    active = 0;
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file) return;
    fprintf(file, "%ld\n", n);
    fclose(file);
}

static int fails(void)
{
    if (!active) return 0;
    const long number = atomic_fetch_add(&count, 1) + 1;
    if (failing == 0 || (all ? number < failing : number != failing)) return 0;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t bytes)
{
    return fails() ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
    return fails() ? NULL : __libc_calloc(n, bytes);
}

void *realloc(void *pointer, size_t bytes)
{
    return fails() ? NULL : __libc_realloc(pointer, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return fails() ? NULL : __libc_memalign(alignment, bytes);
}

int posix_memalign(void **pointer, size_t alignment, size_t bytes)
{
    if (fails()) return ENOMEM;
    *pointer = __libc_memalign(alignment, bytes);
    return *pointer ? 0 : ENOMEM;
}
