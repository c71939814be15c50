// SPDX-License-Identifier: MIT
// Purpose: what the system does to a process is seen where it is made to happen, and not where nothing does.
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "measure/measure.h"
#include "unit/near.h"

static void test_faults(void **state)
{
    (void)state;
    enum { PAGES = 64 };
    process_events before, after;
    size_t bytes = PAGES * (size_t)sysconf(_SC_PAGESIZE);
    char *block = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(block != MAP_FAILED);
    (void)madvise(block, bytes, MADV_NOHUGEPAGE);
    process_events_get(&before);
    for (size_t i = 0; i < bytes; i += bytes / PAGES) block[i] = 1;
    process_events_get(&after);
    assert_true(after.n_faults - before.n_faults >= PAGES);
    assert_int_equal(after.n_allocations, before.n_allocations);
    munmap(block, bytes);
}

// A compiler is a child process that computes.
static void test_children(void **state)
{
    (void)state;
    process_watch watch;
    process_watch_seen seen;
    process_watch_open(&watch);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct timespec used = {0};
        while (used.tv_sec == 0 && used.tv_nsec < 20000000) clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
        _exit(0);
    }
    assert_int_equal(waitpid(child, NULL, 0), child);
    process_watch_read(&watch, &seen);
    assert_true(seen.children_ns > 10000000); // 20 ms, of which a tick of 4 ms or two may not be counted
    process_watch_read(&watch, &seen);
    assert_int_equal(seen.children_ns, 0);
    assert_int_equal(seen.n_loads, 0);
    process_watch_close(&watch);
}

// Bytes are those of the program, not those of the readings themselves; a skipped stretch is not counted.
static void test_bytes(void **state)
{
    (void)state;
    enum { BYTES = 100000 };
    static char block[BYTES];
    process_watch watch;
    process_watch_seen seen;
    FILE *file = tmpfile();
    assert_non_null(file);
    process_watch_open(&watch);
    for (int k = 0; k < 10; k++) process_watch_read(&watch, &seen);
    assert_int_equal(seen.io_bytes, 0);
    assert_int_equal(fwrite(block, 1, BYTES, file), BYTES);
    fflush(file);
    process_watch_read(&watch, &seen);
    if (watch.io_file >= 0) assert_in_range(seen.io_bytes, BYTES, BYTES + 64);
    assert_int_equal(fwrite(block, 1, BYTES, file), BYTES);
    fflush(file);
    process_watch_skip_files(&watch);
    process_watch_read(&watch, &seen);
    assert_int_equal(seen.io_bytes, 0);
    assert_true(watch.fault_ns > 0.0);
    process_watch_close(&watch);
    fclose(file);
}

// A thread that sleeps is blocked; one that computes is not, also where other programs take its CPU. A page read from a file blocks: a few of 1000.
static void test_never_blocked(void **state)
{
    (void)state;
    process_watch watch;
    process_watch_seen seen;
    int n_never = 0;
    process_watch_open(&watch);
    for (int k = 0; k < 1000; k++) {
        process_watch_read(&watch, &seen);
        for (int64_t begin = mlff_clock_ns(); mlff_clock_ns() - begin < 20000;) continue;
        process_watch_read(&watch, &seen);
        n_never += seen.never_blocked;
    }
    assert_true(n_never >= 990);
    for (int k = 0; k < 5; k++) {
        process_watch_read(&watch, &seen);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        process_watch_read(&watch, &seen);
        assert_false(seen.never_blocked);
    }
    process_watch_close(&watch);
}

// A thread that sleeps neither runs nor waits for a CPU; one that computes runs.
static void test_thread_time(void **state)
{
    (void)state;
    process_events before, after;
    process_events_get(&before);
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    process_events_get(&after);
    assert_true(after.cpu_ns - before.cpu_ns < 10000000);
    struct timespec start, now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
    do clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    while ((now.tv_sec - start.tv_sec) * 1000000000 + now.tv_nsec - start.tv_nsec < 20000000);
    process_events_get(&before);
    assert_true(before.cpu_ns - after.cpu_ns >= 20000000);
}

static void test_allocations(void **state)
{
    (void)state;
    enum { BLOCKS = 100, BYTES = 60 << 10 }; // below the size from which malloc maps a block of its own
    process_events before, after;
    void *blocks[BLOCKS];
    process_events_get(&before);
    for (int i = 0; i < BLOCKS; i++) blocks[i] = base_alloc(BYTES, 1, "blocks");
    process_events_get(&after);
    assert_int_equal(after.n_allocations - before.n_allocations, BLOCKS);
    assert_true(after.heap_end >= before.heap_end); // a sanitizer's malloc does not move it
    for (int i = 0; i < BLOCKS; i++) base_free(blocks[i]);
}

static void test_files(void **state)
{
    (void)state;
    static char block[256 << 10];
    char path[] = "mlff-events-XXXXXX"; // here: /tmp may be in memory
    int file = mkstemp(path);
    process_events before, after;
    assert_true(file >= 0);
    process_events_get(&before);
    memset(block, 7, sizeof block);
    bool written = write(file, block, sizeof block) == (ssize_t)sizeof block && fsync(file) == 0;
    process_events_get(&after);
    close(file);
    unlink(path);
    if (!written || after.n_file_blocks == before.n_file_blocks) {
        printf("skipped: this file system does not count what is written\n");
        return;
    }
    assert_true(after.n_file_blocks - before.n_file_blocks >= (int64_t)sizeof block / 512);
}

// The chain is 256 multiplications of three cycles or so: between 20 ns (a core of the future) and a second (an emulator).
static void test_pace(void **state)
{
    (void)state;
    double pace = pace_ns();
    if (!(pace > 20.0 && pace < 1e9)) fail_msg("a pace of %g ns", pace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_faults),      cmocka_unit_test(test_children),      cmocka_unit_test(test_allocations),
        cmocka_unit_test(test_files),       cmocka_unit_test(test_pace),          cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_thread_time), cmocka_unit_test(test_never_blocked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
