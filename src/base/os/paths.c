// SPDX-License-Identifier: MIT
// paths.c: what a name on the file system stands for, before it is opened.
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"

mlff_status base_fail_reading(const char *path, int error)
{
    return mlff_fail(MLFF_ERR_IO, "%s: %s", path,
                     error == EISDIR ? "is a folder; give a file"
                     : error         ? strerror(error)
                                     : "cannot be read");
}

// A FIFO opened without waiting; poll and nanosleep are the calls that no handler restarts.
static mlff_status open_fifo(const char *path, bool reads, FILE **file_out)
{
    int fifo = -1;
    if (reads) {
        fifo = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        if (fifo >= 0 && poll(&(struct pollfd){.fd = fifo, .events = POLLIN}, 1, -1) < 0 && errno == EINTR) {
            close(fifo);
            return mlff_fail(MLFF_ERR_INTERRUPTED, "%s: interrupted while waiting for input", path);
        }
    } else {
        while ((fifo = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC)) < 0 && errno == ENXIO)
            if (nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL) != 0)
                return mlff_fail(MLFF_ERR_INTERRUPTED, "%s: interrupted while waiting for a reader", path);
    }
    if (fifo >= 0 && fcntl(fifo, F_SETFL, fcntl(fifo, F_GETFL) & ~O_NONBLOCK) == 0) *file_out = fdopen(fifo, reads ? "rb" : "wb");
    const int error = errno;
    if (fifo >= 0 && !*file_out) close(fifo);
    errno = error;
    return MLFF_OK;
}

mlff_status base_open(const char *path, const char *mode, FILE **file_out)
{
    mlff_status status = MLFF_OK;
    struct stat there;
    const bool reads = *mode == 'r';
    *file_out = NULL;
    if (stat(path, &there) == 0 && S_ISFIFO(there.st_mode))
        status = open_fifo(path, reads, file_out);
    else
        *file_out = fopen(path, reads ? "rb" : "wb");
    if (status != MLFF_OK || *file_out) return status;
    return reads ? base_fail_reading(path, errno) : mlff_fail(MLFF_ERR_IO, "%s: %s", path, strerror(errno));
}

bool base_is_folder(const char *path)
{
    struct stat there;
    return stat(path, &there) == 0 && S_ISDIR(there.st_mode);
}

// Some file systems count no links, so that the name is asked for too.
bool base_is_removed(int descriptor, const char *path)
{
    struct stat file;
    return fstat(descriptor, &file) == 0 && file.st_nlink == 0 && access(path, F_OK) != 0;
}

mlff_status base_make_folder_of(const char *path)
{
    mlff_status status = MLFF_OK;
    char *folder = base_strdup(path);
    if (!folder) return MLFF_ERR_MEMORY;
    for (char *c = folder + 1; *folder && *c && status == MLFF_OK; c++) {
        if (*c != '/') continue;
        *c = 0;
        if (mkdir(folder, 0777) != 0 && errno != EEXIST && !base_is_folder(folder))
            status = mlff_fail(MLFF_ERR_IO, "%s: cannot make this folder: %s", folder, strerror(errno));
        *c = '/';
    }
    base_free(folder);
    return status;
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
    char copy[PATH_MAX], target[PATH_MAX];
    if (base_link_target(path, target)) path = target;
    if (strlen(path) >= sizeof copy) return false;
    strcpy(copy, path);
    if (!realpath(dirname(copy), folder)) return false;
    const char *slash = strrchr(path, '/');
    strcpy(name, slash ? slash + 1 : path);
    return true;
}

bool base_link_target(const char *path, char *target)
{
    enum { MAX_LINKS = 40 }; // as Linux follows
    char next[PATH_MAX], at[PATH_MAX];
    struct stat there;
    if (strlen(path) >= sizeof at || lstat(path, &there) != 0 || !S_ISLNK(there.st_mode)) return false;
    if (realpath(path, target)) return true;
    strcpy(at, path);
    for (int k = 0; k < MAX_LINKS; k++) {
        const ssize_t length = readlink(at, next, sizeof next - 1);
        if (length < 0) { // no link: a file that does not exist yet
            strcpy(target, at);
            return errno == ENOENT;
        }
        next[length] = 0;
        char *slash = strrchr(at, '/'); // a relative link starts from the folder of the link
        const size_t folder = next[0] == '/' || !slash ? 0 : (size_t)(slash - at) + 1;
        if (folder + (size_t)length >= sizeof at) return false;
        memcpy(at + folder, next, (size_t)length + 1);
    }
    return false;
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
