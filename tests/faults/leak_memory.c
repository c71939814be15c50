// SPDX-License-Identifier: MIT
// leak_memory.c: a library for LD_PRELOAD: each reading of the resources used, which the profiler does after every step, leaks 16 kB.
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LEAK_BYTES = 16384 };

int getrusage(__rusage_who_t who, struct rusage *usage)
{
    void *volatile lost = malloc(LEAK_BYTES);
    if (lost) memset(lost, 1, LEAK_BYTES);
    return (int)syscall(SYS_getrusage, who, usage);
}
