// SPDX-License-Identifier: MIT
// process_watch.c: why a step was not running: time its threads waited for a CPU (the scheduler's own count), bytes read and
// written, processor time of child processes, objects loaded. Each reading costs microseconds: it is taken after slow steps, and
// gives what happened since the one before. Alone in its file, so that a test program can plant readings of its own.
#include <dirent.h>
#include <fcntl.h>
#ifdef __linux__
#include <link.h>
#endif
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "measure/measure.h"

enum { SCAN_NS = 500000000, FAULT_PAGES = 64, TRIES = 3, MOMENT_NS = 100000 };

#ifdef __linux__
// The first object knows how many were ever loaded: code that is compiled while the program runs arrives so.
static int loads_of_first(struct dl_phdr_info *info, size_t bytes, void *n_loads)
{
    (void)bytes;
    *(int64_t *)n_loads = (int64_t)info->dlpi_adds;
    return 1;
}
#endif

static int64_t count_loads(void)
{
    int64_t n_loads = 0;
#ifdef __linux__
    dl_iterate_phdr(loads_of_first, &n_loads);
#endif
    return n_loads;
}

static int64_t thread_cpu_ns(void)
{
    struct timespec cpu = {0};
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
    return (int64_t)cpu.tv_sec * 1000000000 + cpu.tv_nsec;
}

static int64_t children_ns(void)
{
    struct rusage usage;
    if (getrusage(RUSAGE_CHILDREN, &usage) != 0) return 0;
    return ((int64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 + usage.ru_utime.tv_usec +
            usage.ru_stime.tv_usec) *
           1000;
}

// A file of /proc from its beginning; what is read counts as I/O of this process, and is ours.
static int read_whole(process_watch *w, int file, char *text, int text_bytes)
{
    ssize_t n = file >= 0 ? pread(file, text, (size_t)text_bytes - 1, 0) : -1;
    if (n < 0) n = 0;
    text[n] = 0;
    w->own_bytes += n;
    return (int)n;
}

// schedstat: time on a CPU, time waiting for one, both ns.
static int64_t waited_ns(process_watch *w, int file)
{
    char text[128];
    long long ran = 0, waited = -1;
    if (read_whole(w, file, text, sizeof text) == 0 || sscanf(text, "%lld %lld", &ran, &waited) != 2) return -1;
    return waited;
}

// How often this thread gave up its CPU in order to wait, not because its turn was over; -1: not known.
static int64_t blocks(void)
{
#ifdef RUSAGE_THREAD
    struct rusage usage;
    if (getrusage(RUSAGE_THREAD, &usage) == 0) return usage.ru_nvcsw;
#endif
    return -1;
}

static void close_team(process_watch *w)
{
    for (int i = 0; i < w->n_threads; i++) close(w->thread_files[i]);
    w->n_threads = 0;
}

// The other threads of this process; those that came since the last scan begin with what they waited so far.
static void scan_team(process_watch *w, int64_t now_ns)
{
    DIR *folder = opendir("/proc/self/task");
    struct dirent *entry;
    close_team(w);
    w->scanned_ns = now_ns;
    if (!folder) return;
    // cppcheck-suppress readdirCalled ; safe in glibc: no other thread has this stream
    while ((entry = readdir(folder)) && w->n_threads < WATCH_THREADS) {
        char path[300];
        long id = strtol(entry->d_name, NULL, 10);
        if (id <= 0 || id == w->thread) continue;
        snprintf(path, sizeof path, "/proc/self/task/%ld/schedstat", id);
        int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file < 0) continue;
        w->thread_waited_ns[w->n_threads] = waited_ns(w, file);
        w->thread_files[w->n_threads++] = file;
    }
    closedir(folder);
}

static void read_files(process_watch *w, int64_t *bytes)
{
    char text[512];
    long long in = 0, out = 0;
    *bytes = 0;
    if (read_whole(w, w->io_file, text, sizeof text) == 0 || sscanf(text, "rchar: %lld wchar: %lld", &in, &out) != 2) return;
    int64_t moved = in + out - w->own_bytes;
    *bytes = w->io_bytes >= 0 ? moved - w->io_bytes : 0;
    w->io_bytes = moved;
}

void process_watch_skip_files(process_watch *w)
{
    int64_t bytes;
    read_files(w, &bytes);
}

// What a page costs that is touched for the first time: fault and zeroing, the best of three tries.
static double page_cost_ns(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = FAULT_PAGES * page;
    double best = 0.0;
    for (int try = 0; try < 3; try++) {
        // cppcheck-suppress invalidFunctionArg ; an anonymous mapping takes -1
        char *block = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (block == MAP_FAILED) return 0.0;
#ifdef MADV_NOHUGEPAGE
        (void)madvise(block, bytes, MADV_NOHUGEPAGE);
#endif
        int64_t start = mlff_clock_ns();
        for (size_t i = 0; i < bytes; i += page) ((volatile char *)block)[i] = 1;
        double cost = (double)(mlff_clock_ns() - start) / FAULT_PAGES;
        if (try == 0 || cost < best) best = cost;
        munmap(block, bytes);
    }
    return best;
}

void process_watch_open(process_watch *w)
{
    process_watch_seen ignored;
    *w = (process_watch){.io_bytes = -1, .own_file = -1, .io_file = -1, .open = true};
#ifdef __linux__
    w->thread = syscall(SYS_gettid);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%ld/schedstat", w->thread);
    w->own_file = open(path, O_RDONLY | O_CLOEXEC);
    w->io_file = open("/proc/self/io", O_RDONLY | O_CLOEXEC);
#endif
    w->fault_ns = page_cost_ns();
    scan_team(w, mlff_clock_ns());
    process_watch_read(w, &ignored);
}

void process_watch_close(process_watch *w)
{
    if (!w->open) return;
    if (w->own_file >= 0) close(w->own_file);
    if (w->io_file >= 0) close(w->io_file);
    close_team(w);
    w->open = false;
}

void process_watch_read(process_watch *w, process_watch_seen *seen_out)
{
    process_watch_seen seen = {.wait_ns = -1};
    int64_t cpu = 0, now_ns = 0, waited = -1;
    // In this order: reading the thread's clock is where a thread loses the processor whose turn is over. The other two are of one
    // moment if it did not lose it between them.
    for (int try = 0; try < TRIES; try++) {
        cpu = thread_cpu_ns();
        now_ns = mlff_clock_ns();
        waited = waited_ns(w, w->own_file);
        if (mlff_clock_ns() - now_ns < MOMENT_NS) break;
    }
    int64_t children = children_ns(), n_loads = count_loads(), n_blocks = blocks();
    if (waited >= 0) seen.wait_ns = waited - w->waited_ns;
    seen.never_blocked = n_blocks >= 0 && n_blocks == w->n_blocks;
    w->n_blocks = n_blocks;
    seen.wall_ns = now_ns - w->wall_ns;
    seen.cpu_ns = cpu - w->cpu_ns;
    w->waited_ns = waited >= 0 ? waited : 0;
    w->wall_ns = now_ns;
    w->cpu_ns = cpu;
    for (int i = 0; i < w->n_threads; i++) {
        int64_t total = waited_ns(w, w->thread_files[i]), more = total - w->thread_waited_ns[i];
        if (total < 0) continue; // it ended
        if (more > seen.team_wait_ns) seen.team_wait_ns = more;
        w->thread_waited_ns[i] = total;
    }
    seen.children_ns = children - w->children_ns;
    seen.n_loads = n_loads - w->n_loads;
    w->children_ns = children;
    w->n_loads = n_loads;
    read_files(w, &seen.io_bytes);
    if (now_ns - w->scanned_ns > SCAN_NS) scan_team(w, now_ns);
    *seen_out = seen;
}
