/* SPDX-License-Identifier: MIT */
/* memory_files.h: files in memory for fuzz targets. The linker's --wrap (cmake/fuzz.cmake) puts these functions in the place of the
 * system's for every name in "/memory/", so that the library's code is run as it is, without the file system: some 20 times as fast.
 * Names elsewhere go to the system. Not for several threads. */
#ifndef MEMORY_FILES_H
#define MEMORY_FILES_H

#include <stdbool.h>
#include <stddef.h>

/* Gives the file `path` ("/memory/…", below 64 bytes) these bytes, creating it if absent. Aborts if that is not possible. */
void memory_files_put(const char *path, const void *bytes, size_t length);
/* The content of a file, valid until it is changed; NULL if there is none. */
const unsigned char *memory_files_get(const char *path, size_t *length_out);
/* All files are removed. Aborts if one is still open or mapped: a target's code must close what it opened. */
void memory_files_clear(void);
/* While `only` is true every name is looked for in memory ("a" is "/memory/a") and nothing else exists; fopen(…, "w") is the system's. */
void memory_files_only(bool only);

#endif
