// SPDX-License-Identifier: MIT
// cores.c: a thread that waits for a CPU does not tell who had it. What all programs used of the cores, less what this one did, does.
#ifdef __linux__
#include <sched.h>
#endif
#include <math.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "cores.h"

#define LOOKS_APART_NS 2e8 // ticks of 10 ms on each core are then a tenth of a core at most

static int64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    if (clock_gettime(clock, &now) != 0) return 0;
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int64_t timeval_ns(const struct timeval *time)
{
    return (int64_t)time->tv_sec * 1000000000 + (int64_t)time->tv_usec * 1000;
}

static int64_t all_ns(void)
{
    int64_t ticks = -1;
#ifdef __linux__
    cpu_set_t allowed;
    char line[512];
    const long rate = sysconf(_SC_CLK_TCK);
    FILE *file = sched_getaffinity(0, sizeof allowed, &allowed) == 0 && rate > 0 ? fopen("/proc/stat", "re") : NULL;
    if (!file) return -1;
    while (fgets(line, sizeof line, file)) {
        int cpu;
        long long user, nice, system, idle, wait, interrupts, soft;
        if (sscanf(line, "cpu%d %lld %lld %lld %lld %lld %lld %lld", &cpu, &user, &nice, &system, &idle, &wait, &interrupts,
                   &soft) != 8)
            continue;
        if (cpu < 0 || cpu >= CPU_SETSIZE || !CPU_ISSET((size_t)cpu, &allowed)) continue;
        ticks = (ticks < 0 ? 0 : ticks) + user + nice + system + interrupts + soft;
    }
    fclose(file);
    if (ticks > 0) return ticks * (1000000000 / rate);
#endif
    return -1;
}

void cores_look(cores_use *use_out)
{
    struct rusage children;
    const int64_t thread_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID), process_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    *use_out = (cores_use){.wall_ns = clock_ns(CLOCK_MONOTONIC), .process_ns = process_ns, .team_ns = process_ns - thread_ns};
    if (getrusage(RUSAGE_CHILDREN, &children) == 0)
        use_out->process_ns += timeval_ns(&children.ru_utime) + timeval_ns(&children.ru_stime);
    use_out->all_ns = all_ns();
}

double cores_of_others(const cores_use *first, const cores_use *last)
{
    const double wall_ns = (double)(last->wall_ns - first->wall_ns);
    if (first->all_ns < 0 || last->all_ns < 0 || wall_ns < LOOKS_APART_NS) return NAN;
    const double others_ns = (double)(last->all_ns - first->all_ns) - (double)(last->process_ns - first->process_ns);
    return fmax(others_ns / wall_ns, 0.0);
}
