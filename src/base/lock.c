// SPDX-License-Identifier: MIT
// lock.c: one process writes a file that grows in place.
#include <errno.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>

#include "base.h"

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
            return mlff_fail(MLFF_ERR_IO, "%s: another process is writing %s there; wait for its end or write to another file",
                             path, what);
        nanosleep(&(struct timespec){.tv_nsec = LOCK_WAIT_NS}, NULL);
    }
    return MLFF_OK;
}
