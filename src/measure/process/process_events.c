// SPDX-License-Identifier: MIT
// process_events.c: what the system has done to this process so far, in numbers that only grow, cheap enough to be read before
// and after every step: their differences say where the time of a step went. Alone in its file, so that a test program can plant
// events of its own.
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "measure/measure.h"

static int64_t microseconds(const struct timeval *time)
{
    return (int64_t)time->tv_sec * 1000000 + time->tv_usec;
}

void process_events_begin(process_events *events)
{
    struct timespec cpu;
    events->n_allocations = base_allocation_count();
#ifdef __linux__
    events->heap_end = (int64_t)(uintptr_t)sbrk(0);
#endif
    bool known = clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu) == 0;
    events->cpu_ns = known ? (int64_t)cpu.tv_sec * 1000000000 + cpu.tv_nsec : -1;
}

void process_events_get(process_events *events_out)
{
    struct rusage usage;
    *events_out = (process_events){0};
    if (getrusage(RUSAGE_SELF, &usage) == 0) {
        events_out->n_preempted = usage.ru_nivcsw;
        events_out->n_faults = usage.ru_minflt;
        events_out->n_file_blocks = usage.ru_inblock + usage.ru_oublock + usage.ru_majflt;
        events_out->system_us = microseconds(&usage.ru_stime);
        events_out->process_us = microseconds(&usage.ru_utime) + events_out->system_us;
    }
    process_events_begin(events_out);
}
