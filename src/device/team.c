// SPDX-License-Identifier: MIT
// team.c: threads that wait for work by spinning shortly, then sleeping on a futex.
//
// A run is published as one 32-bit word, generation · 2⁸ + threads − 1, so that a worker decides from a single load whether
// it takes part; only then does it read the work. A run cannot end, and the next cannot begin, before all its members are done.
#include "device/team.h"

#include <limits.h>
#include <linux/futex.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"
#include "device/team_size.h"

enum { SPINS = 2000 };

typedef struct word {
    _Alignas(64) _Atomic uint32_t value;
    _Atomic uint32_t sleepers;
} word;

static struct team {
    atomic_flag busy;
    _Atomic int process; // workers exist in this process only: a forked child uses one thread
    _Atomic int n_workers;
    int n_cores;
    pthread_t workers[TEAM_MAX];
    word announced, arrived_phase;
    _Atomic uint32_t n_arrived;
    _Atomic int stop;
    void (*work)(void *context, const team_member *member);
    void *context;
    int caller_core;
    cpu_set_t caller_cores; // that it may use
    pace pace;
    int64_t asleep_ns; // of the caller, at the barriers of this run
} team = {.busy = ATOMIC_FLAG_INIT};

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

// Returns the time slept, ns: 0 where spinning was enough.
static int64_t word_wait(word *w, uint32_t old, uint32_t group)
{
    int spins = atomic_load_explicit(&team.n_workers, memory_order_relaxed) < team.n_cores ? SPINS : 0;
    for (int i = 0; i < spins; i++) {
        if (atomic_load_explicit(&w->value, memory_order_acquire) != old) return 0;
        relax();
    }
    int64_t begin = base_clock_ns();
    atomic_fetch_add(&w->sleepers, 1);
    while (atomic_load(&w->value) == old) syscall(SYS_futex, &w->value, FUTEX_WAIT_BITSET_PRIVATE, old, NULL, NULL, group);
    atomic_fetch_sub(&w->sleepers, 1);
    return base_clock_ns() - begin;
}

static void word_set(word *w, uint32_t value, uint32_t groups)
{
    atomic_store(&w->value, value);
    if (atomic_load(&w->sleepers) > 0) syscall(SYS_futex, &w->value, FUTEX_WAKE_BITSET_PRIVATE, INT_MAX, NULL, NULL, groups);
}

void team_barrier(const team_member *member)
{
    if (member->n == 1) return;
    uint32_t phase = atomic_load(&team.arrived_phase.value);
    if (atomic_fetch_add(&team.n_arrived, 1) + 1 == (uint32_t)member->n) {
        atomic_store(&team.n_arrived, 0);
        word_set(&team.arrived_phase, phase + 1, UINT32_MAX);
    } else {
        int64_t asleep = word_wait(&team.arrived_phase, phase, UINT32_MAX);
        if (member->thread == 0) team.asleep_ns += asleep;
    }
}

// A scheduler tends to wake a thread on the core of its waker, where the two would alternate instead of running in parallel.
static void leave_core(int core)
{
    cpu_set_t cores = team.caller_cores;
    CPU_CLR(core, &cores);
    if (CPU_COUNT(&cores) == 0) return;
    sched_setaffinity(0, sizeof cores, &cores);
}

// Workers sleep in 32 groups, so that a small run does not wake the whole team.
static uint32_t group_of(int thread)
{
    return 1u << (thread & 31);
}

static void *worker(void *argument)
{
    int thread = (int)(intptr_t)argument;
    uint32_t seen = 0;
    for (;;) {
        word_wait(&team.announced, seen, group_of(thread));
        seen = atomic_load(&team.announced.value);
        if (atomic_load(&team.stop)) return NULL;
        team_member member = {thread, (int)(seen & 0xff) + 1};
        if (thread >= member.n) continue;
        if (sched_getcpu() == team.caller_core) leave_core(team.caller_core);
        team.work(team.context, &member);
        team_barrier(&member);
    }
}

// Signals are left to the program: workers block them.
static void start_workers(int n)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    while (team.n_workers < n) {
        void *number = (void *)(intptr_t)(team.n_workers + 1);
        if (pthread_create(&team.workers[team.n_workers], NULL, worker, number) != 0) break; // fewer suffice
        team.n_workers++;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

void team_run(int n_wanted, void (*work)(void *context, const team_member *member), void *context)
{
    team_member member = {0, n_wanted < TEAM_MAX ? n_wanted : TEAM_MAX};
    if (member.n > 1 && !atomic_flag_test_and_set(&team.busy)) {
        int64_t begin = base_clock_ns(), end;
        int process = (int)getpid();
        if (atomic_load(&team.process) == 0) {
            atomic_store(&team.process, process);
            team.n_cores = team_default_size();
        }
        if (atomic_load(&team.process) == process) {
            if (team.n_workers < member.n - 1) start_workers(member.n - 1);
            if (member.n > team.n_workers + 1) member.n = team.n_workers + 1;
            member.n = pace_threads(&team.pace, member.n, begin);
        } else {
            member.n = 1;
        }
        if (member.n > 1) {
            team.work = work;
            team.context = context;
            team.caller_core = sched_getcpu();
            if (sched_getaffinity(0, sizeof team.caller_cores, &team.caller_cores) != 0) CPU_ZERO(&team.caller_cores);
            uint32_t generation = atomic_load(&team.announced.value) >> 8, groups = 0;
            for (int t = 1; t < member.n; t++) groups |= group_of(t);
            team.asleep_ns = 0;
            word_set(&team.announced, (generation + 1) << 8 | (uint32_t)(member.n - 1), groups);
            work(context, &member);
            team_barrier(&member);
            end = base_clock_ns();
            pace_record(&team.pace, member.n, end - begin, team.asleep_ns, end);
            atomic_flag_clear(&team.busy);
            return;
        }
        atomic_flag_clear(&team.busy);
    }
    member.n = 1;
    work(context, &member);
}

typedef struct zeroing {
    char *bytes;
    size_t n;
} zeroing;

static void zero_slice(void *context, const team_member *member)
{
    const zeroing *z = context;
    const size_t slice = z->n / (size_t)member->n, begin = slice * (size_t)member->thread;
    memset(z->bytes + begin, 0, member->thread + 1 == member->n ? z->n - begin : slice);
}

void *team_alloc(int n_wanted, size_t count, size_t size, const char *what)
{
    void *block = base_alloc_unset(count, size, what);
    if (block) team_run(n_wanted, zero_slice, &(zeroing){block, count * size});
    return block;
}

int team_default_size(void)
{
    cpu_set_t cores;
    long n = sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : sysconf(_SC_NPROCESSORS_ONLN);
    const double paid = ceil(base_cgroup_cores("/proc/self/cgroup", "/sys/fs/cgroup")); // by the quota of a container
    const char *wanted = getenv("OMP_NUM_THREADS");
    if ((double)n > paid) n = (long)paid;
    if (wanted && atoi(wanted) > 0) n = atoi(wanted);
    return n < 1 ? 1 : n < TEAM_MAX ? (int)n : TEAM_MAX;
}

int team_size(int wanted)
{
    return wanted <= 0 ? team_default_size() : wanted < TEAM_MAX ? wanted : TEAM_MAX;
}

// Threads must end before the library is unloaded.
__attribute__((destructor)) static void end_workers(void)
{
    if (team.n_workers == 0 || atomic_load(&team.process) != (int)getpid() || atomic_flag_test_and_set(&team.busy)) return;
    atomic_store(&team.stop, 1);
    word_set(&team.announced, atomic_load(&team.announced.value) + (1u << 8), UINT32_MAX);
    for (int i = 0; i < team.n_workers; i++) pthread_join(team.workers[i], NULL);
}
