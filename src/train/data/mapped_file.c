// SPDX-License-Identifier: MIT
// mapped_file.c: maps a file.
#include "mapped_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

mlff_status mapped_file_open(const char *path, mapped_file *map_out)
{
    struct stat file;
    mapped_file map = {0};
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return base_fail_reading(path, errno);
    if (fstat(descriptor, &file) != 0 || !S_ISREG(file.st_mode)) {
        close(descriptor);
        return mlff_fail(MLFF_ERR_IO, "%s: is not a regular file", path);
    }
    map.length = (size_t)file.st_size;
    if (map.length > 0) {
        map.bytes = mmap(NULL, map.length, PROT_READ, MAP_PRIVATE, descriptor, 0);
        if (map.bytes == MAP_FAILED) map.bytes = NULL;
    }
    close(descriptor);
    if (map.length > 0 && !map.bytes) return mlff_fail(MLFF_ERR_MEMORY, "%s: cannot be mapped: %s", path, strerror(errno));
    *map_out = map;
    return MLFF_OK;
}

void mapped_file_close(mapped_file *map)
{
    if (map->bytes) munmap((void *)map->bytes, map->length);
    *map = (mapped_file){0};
}
