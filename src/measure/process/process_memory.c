// SPDX-License-Identifier: MIT
// process_memory.c: how much memory this process holds, and a bounded record of it along a run.
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#if defined(__GLIBC__) && (__GLIBC__ > 2 || (__GLIBC__ == 2 && __GLIBC_MINOR__ >= 33))
#include <malloc.h>
#define HAVE_MALLINFO2 1
#endif

#include "measure/measure.h"

// The second number of /proc/self/statm is resident pages. Read with read(2): stdio would allocate, and so be measured.
static int64_t resident_now(void)
{
    char text[256];
    int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (file < 0) return -1;
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    if (length <= 0) return -1;
    text[length] = 0;
    char *second;
    (void)strtoll(text, &second, 10);
    long long pages = strtoll(second, NULL, 10);
    return pages > 0 ? pages * (int64_t)sysconf(_SC_PAGESIZE) : -1;
}

static void heap_now(process_memory *memory)
{
    memory->heap_bytes = memory->heap_reserved_bytes = -1;
#ifdef HAVE_MALLINFO2
    struct mallinfo2 heap = mallinfo2();
    memory->heap_bytes = (int64_t)(heap.uordblks + heap.hblkhd);
    memory->heap_reserved_bytes = (int64_t)(heap.arena + heap.hblkhd);
#endif
}

int64_t process_memory_available(void)
{
    const size_t left = base_cgroup_available("/proc/self/cgroup", "/sys/fs/cgroup");
    const int64_t group = left < INT64_MAX ? (int64_t)left : -1;
    int64_t available = -1;
    char line[256];
    FILE *file = fopen("/proc/meminfo", "r");
    while (file && available < 0 && fgets(line, sizeof line, file)) {
        long long kilobytes;
        if (sscanf(line, "MemAvailable: %lld", &kilobytes) == 1) available = kilobytes * 1024;
    }
    if (file) fclose(file);
    return group >= 0 && (available < 0 || group < available) ? group : available;
}

void process_memory_get(process_memory *memory_out)
{
    struct rusage usage;
    *memory_out = (process_memory){.resident_bytes = resident_now(), .peak_bytes = -1};
    heap_now(memory_out);
    if (getrusage(RUSAGE_SELF, &usage) == 0) {
#ifdef __APPLE__
        memory_out->peak_bytes = (int64_t)usage.ru_maxrss; // bytes there, kilobytes elsewhere
#else
        memory_out->peak_bytes = (int64_t)usage.ru_maxrss * 1024;
#endif
    }
}

void mlff_process_memory_get(mlff_process_memory *memory_out)
{
    process_memory memory;
    process_memory_get(&memory);
    *memory_out = (mlff_process_memory){memory.resident_bytes, memory.heap_bytes, memory.peak_bytes};
}

mlff_status memory_series_init(memory_series *s, int n_ledgers, int64_t interval)
{
    *s = (memory_series){.n_ledgers = n_ledgers, .interval = interval};
    s->bytes = base_alloc((size_t)n_ledgers * MEMORY_SAMPLES, sizeof *s->bytes, "memory samples");
    return s->bytes ? MLFF_OK : MLFF_ERR_MEMORY;
}

bool memory_series_due(const memory_series *s, int64_t step)
{
    return step % s->interval == 0;
}

void memory_series_add(memory_series *s, const int64_t *bytes)
{
    for (int k = 0; k < s->n_ledgers; k++) s->bytes[(size_t)k * MEMORY_SAMPLES + (size_t)s->n_samples] = (double)bytes[k];
    if (++s->n_samples == MEMORY_SAMPLES) memory_series_coarsen(s);
}

void memory_series_coarsen(memory_series *s)
{
    int n = (s->n_samples + 1) / 2;
    for (int k = 0; k < s->n_ledgers; k++) {
        double *samples = s->bytes + (size_t)k * MEMORY_SAMPLES;
        for (int i = 0; i < n; i++) samples[i] = samples[2 * i];
    }
    s->n_samples = n;
    s->interval *= 2;
}

void memory_series_free(memory_series *s)
{
    base_free(s->bytes);
    *s = (memory_series){0};
}
