// SPDX-License-Identifier: MIT
// fail_allocation.c: a library for LD_PRELOAD that makes one allocation of a process fail, as a machine short of memory does.
//   MLFF_FAIL_AT=N     the Nth call of malloc, calloc, realloc, aligned_alloc or posix_memalign returns NULL (0: none)
//   MLFF_FAIL_ABOVE=B  calls for more than B bytes return NULL
//   MLFF_FAIL_COUNT=F  the number of calls is written to file F when the process exits
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// glibc's own allocator under names that are not replaced here.
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *pointer, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

static atomic_long n_calls;
static long fail_at = -1; // -1: not known yet, no call is counted
static size_t largest = SIZE_MAX;

__attribute__((constructor)) static void begin(void)
{
    const char *text = getenv("MLFF_FAIL_AT");
    fail_at = text ? atol(text) : 0;
    if ((text = getenv("MLFF_FAIL_ABOVE"))) largest = (size_t)atol(text);
}

__attribute__((destructor)) static void end(void)
{
    const char *path = getenv("MLFF_FAIL_COUNT");
    char text[32];
    int file = path ? open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666) : -1;
    if (file < 0) return;
    int length = snprintf(text, sizeof text, "%ld\n", atomic_load(&n_calls));
    if (write(file, text, (size_t)length) != length) _exit(99);
    close(file);
}

static int fails(size_t size)
{
    if (fail_at < 0 || (atomic_fetch_add(&n_calls, 1) + 1 != fail_at && size <= largest)) return 0;
    errno = ENOMEM;
    return 1;
}

// cuBLAS, which `mlff check` opens to see if it is there, loads libcublasLt, which crashes where an allocation of its initialization
// fails: it is not found here.
void *dlopen(const char *file, int flags)
{
    void *(*original)(const char *, int);
    *(void **)&original = dlsym(RTLD_NEXT, "dlopen");
    return file && strstr(file, "cublas") ? NULL : original(file, flags);
}

void *malloc(size_t size)
{
    return fails(size) ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    return fails(size ? count * size : 0) ? NULL : __libc_calloc(count, size);
}

void *realloc(void *pointer, size_t size)
{
    return fails(size) ? NULL : __libc_realloc(pointer, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return fails(size) ? NULL : __libc_memalign(alignment, size);
}

int posix_memalign(void **pointer, size_t alignment, size_t size)
{
    if (fails(size)) return ENOMEM;
    *pointer = __libc_memalign(alignment, size);
    return *pointer ? 0 : ENOMEM;
}
