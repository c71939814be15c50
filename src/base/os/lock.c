// SPDX-License-Identifier: MIT
// lock.c: one process writes a file that grows in place.
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"

enum { LOCK_TRIES = 200, LOCK_WAIT_NS = 10000000 }; // 2 s

// The kernel ends the threads and worker processes of a killed writer one after the other, and the lock is free after the last
// (some 0.1 s): so long it is waited for.
mlff_status base_lock(int descriptor, const char *path, const char *what)
{
    for (int k = 0; flock(descriptor, LOCK_EX | LOCK_NB) != 0; k++) {
        if (errno == ENOLCK || errno == ENOTSUP || errno == ENOSYS) return MLFF_OK; // a file system without locks
        if (errno != EWOULDBLOCK && errno != EINTR)
            return mlff_fail(MLFF_ERR_IO, "%s: cannot be locked: %s", path, strerror(errno));
        if (k == LOCK_TRIES)
            return mlff_fail(MLFF_ERR_IO, "%s: another process is writing %s there; wait for its end or write elsewhere", path,
                             what);
        nanosleep(&(struct timespec){.tv_nsec = LOCK_WAIT_NS}, NULL);
    }
    return MLFF_OK;
}

mlff_status base_lock_name(const char *path, int flags, const char *what, int *descriptor_out)
{
    for (;;) {
        struct stat locked, named;
        const int descriptor = open(path, flags | O_CREAT | O_CLOEXEC, 0666);
        if (descriptor < 0) return mlff_fail(MLFF_ERR_IO, "%s: %s", path, strerror(errno));
        const mlff_status status = base_lock(descriptor, path, what);
        if (status != MLFF_OK) {
            close(descriptor);
            return status;
        }
        // The process that had the lock before may have removed the file or given its name to another.
        if (fstat(descriptor, &locked) != 0 || stat(path, &named) != 0 || locked.st_ino != named.st_ino ||
            locked.st_dev != named.st_dev) {
            close(descriptor);
            continue;
        }
        *descriptor_out = descriptor;
        return MLFF_OK;
    }
}
