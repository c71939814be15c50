// SPDX-License-Identifier: MIT
// paths.c: what a name on the file system stands for, before it is opened.
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base.h"

mlff_status base_fail_reading(const char *path, int error)
{
    return mlff_fail(MLFF_ERR_IO, "%s: %s", path,
                     error == EISDIR ? "is a folder; give a file"
                     : error         ? strerror(error)
                                     : "cannot be read");
}

bool base_is_folder(const char *path)
{
    struct stat there;
    return stat(path, &there) == 0 && S_ISDIR(there.st_mode);
}

bool base_is_stream(const char *path)
{
    struct stat there;
    if (strcmp(path, "-") == 0) return true;
    return stat(path, &there) == 0 && !S_ISREG(there.st_mode) && !S_ISDIR(there.st_mode);
}

// The folder of a file that need not be there yet, and the file's name in it.
static bool place_of(const char *path, char folder[PATH_MAX], char name[PATH_MAX])
{
    char copy[PATH_MAX];
    if (strlen(path) >= sizeof copy) return false;
    strcpy(copy, path);
    if (!realpath(dirname(copy), folder)) return false;
    const char *slash = strrchr(path, '/');
    strcpy(name, slash ? slash + 1 : path);
    return true;
}

bool base_same_file(const char *a, const char *b)
{
    struct stat there[2];
    char folders[2][PATH_MAX], names[2][PATH_MAX];
    bool has_a = stat(a, &there[0]) == 0, has_b = stat(b, &there[1]) == 0;
    if (has_a && has_b) return there[0].st_dev == there[1].st_dev && there[0].st_ino == there[1].st_ino;
    if (has_a || has_b || !place_of(a, folders[0], names[0]) || !place_of(b, folders[1], names[1])) return false;
    return strcmp(folders[0], folders[1]) == 0 && strcmp(names[0], names[1]) == 0;
}
