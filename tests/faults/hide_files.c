// SPDX-License-Identifier: MIT
// hide_files.c: a library for LD_PRELOAD: files whose path begins with MLFF_HIDE cannot be opened, as where they do not exist.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int hidden(const char *path)
{
    const char *prefix = getenv("MLFF_HIDE");
    if (!prefix || strncmp(path, prefix, strlen(prefix)) != 0) return 0;
    errno = ENOENT;
    return 1;
}

int open(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    const int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, int) : 0;
    va_end(arguments);
    return hidden(path) ? -1 : openat(AT_FDCWD, path, flags, mode);
}

FILE *fopen(const char *path, const char *mode)
{
    if (hidden(path)) return NULL;
    FILE *(*next)(const char *, const char *) = NULL;
    *(void **)&next = dlsym(RTLD_NEXT, "fopen");
    return next(path, mode);
}
