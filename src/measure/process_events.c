// SPDX-License-Identifier: MIT
// process_events.c: what the system did to this process so far, in numbers that only grow: their differences over a step are
// the causes of a slow one. Alone in its file, so that a test program can plant events of its own.
#ifdef __linux__
#include <link.h>
#endif
#include <sys/resource.h>
#include <unistd.h>

#include "measure.h"

#ifdef __linux__
// The first object knows how many were ever loaded: code that is compiled while the program runs arrives so.
static int loads_of_first(struct dl_phdr_info *info, size_t bytes, void *n_loads)
{
    (void)bytes;
    *(int64_t *)n_loads = (int64_t)info->dlpi_adds;
    return 1;
}
#endif

static int64_t microseconds(const struct timeval *time)
{
    return (int64_t)time->tv_sec * 1000000 + time->tv_usec;
}

void process_events_get(process_events *events_out)
{
    struct rusage usage;
    *events_out = (process_events){.n_allocations = base_allocation_count()};
    if (getrusage(RUSAGE_SELF, &usage) == 0) {
        events_out->n_preempted = usage.ru_nivcsw;
        events_out->n_faults = usage.ru_minflt;
        events_out->n_file_blocks = usage.ru_inblock + usage.ru_oublock + usage.ru_majflt;
    }
    if (getrusage(RUSAGE_CHILDREN, &usage) == 0)
        events_out->children_us = microseconds(&usage.ru_utime) + microseconds(&usage.ru_stime);
#ifdef __linux__
    dl_iterate_phdr(loads_of_first, &events_out->n_loads);
    events_out->heap_end = (int64_t)(uintptr_t)sbrk(0);
#endif
}
