// SPDX-License-Identifier: MIT
// ceilings.c: the most this machine does: float32 multiply-adds, and bytes read from each level of memory, on so many threads.
// A few hundredths of a second once a process; the best of several tries, for a ceiling is what was ever reached. What cores
// do not share is measured on one and multiplied. Threads are timed by their processor time: on a busy machine the time that
// they wait for a processor would make the ceiling too low.
#include <math.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "measure.h"

// Vectors in GCC's and clang's own notation: compiled for each instruction set, chosen at run time.
typedef float vector16 __attribute__((vector_size(64), aligned(64)));
enum { CHAINS = 12, FLOPS_A_ROUND = CHAINS * 16 * 2 };

// Twelve independent chains: latency times throughput of the units there are. Results are kept, or the loop would go.
#define MULTIPLY_ADD                                                                                                             \
    {                                                                                                                            \
        vector16 sum[CHAINS], a = *seed, b = a * 1e-7f;                                                                          \
        for (int k = 0; k < CHAINS; k++) sum[k] = a * (float)k;                                                                  \
        for (int64_t i = 0; i < rounds; i++)                                                                                     \
            for (int k = 0; k < CHAINS; k++) sum[k] = sum[k] * a + b;                                                            \
        for (int k = 1; k < CHAINS; k++) sum[0] += sum[k];                                                                       \
        *seed = sum[0];                                                                                                          \
    }
#define READ                                                                                                                     \
    {                                                                                                                            \
        vector16 sum[4] = {0};                                                                                                   \
        for (int64_t round = 0; round < rounds; round++)                                                                         \
            for (size_t i = 0; i + 4 <= n; i += 4)                                                                               \
                for (int k = 0; k < 4; k++) sum[k] += data[i + (size_t)k];                                                       \
        *seed = sum[0] + sum[1] + sum[2] + sum[3];                                                                               \
    }
static void multiply_add_portable(vector16 *seed, int64_t rounds) MULTIPLY_ADD
    static void read_portable(const vector16 *data, size_t n, int64_t rounds, vector16 *seed) READ
#if defined(__x86_64__)
    __attribute__((target("avx2,fma"))) static void multiply_add_avx2(vector16 *seed, int64_t rounds) MULTIPLY_ADD
    __attribute__((target("avx512f"))) static void multiply_add_avx512(vector16 *seed, int64_t rounds) MULTIPLY_ADD
    __attribute__((target("avx2,fma"))) static void read_avx2(const vector16 *data, size_t n, int64_t rounds, vector16 *seed) READ
    __attribute__((target("avx512f"))) static void read_avx512(const vector16 *data, size_t n, int64_t rounds,
                                                               vector16 *seed) READ
#endif

    static int best_path(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) return 2;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return 1;
#endif
    return 0;
}

typedef struct job {
    const vector16 *data; // NULL: multiply-adds
    size_t n;
    int64_t rounds;
    vector16 seed;
    int path;
    double time_ns; // result: processor time of the thread
} job;

static double thread_time_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void *work(void *context)
{
    job *j = context;
    const double start = thread_time_ns();
#if defined(__x86_64__)
    if (j->path == 2 && j->data) read_avx512(j->data, j->n, j->rounds, &j->seed);
    if (j->path == 2 && !j->data) multiply_add_avx512(&j->seed, j->rounds);
    if (j->path == 1 && j->data) read_avx2(j->data, j->n, j->rounds, &j->seed);
    if (j->path == 1 && !j->data) multiply_add_avx2(&j->seed, j->rounds);
#endif
    if (j->path == 0 && j->data) read_portable(j->data, j->n, j->rounds, &j->seed);
    if (j->path == 0 && !j->data) multiply_add_portable(&j->seed, j->rounds);
    j->time_ns = thread_time_ns() - start;
    return NULL;
}

enum { THREADS_MAX = 256, TRIES = 5, OWN_LEVELS = 3 };

// Sum over the threads of `amount` (each one's flops or bytes) per ns of its processor time; 0 if a thread cannot be started.
static double rate_of(job *jobs, int n_threads, double amount)
{
    pthread_t threads[THREADS_MAX];
    int started = 0;
    double rate = 0.0;
    for (int t = 1; t < n_threads; t++)
        if (pthread_create(&threads[started], NULL, work, &jobs[t]) == 0) started++;
    work(&jobs[0]);
    for (int t = 0; t < started; t++) pthread_join(threads[t], NULL);
    if (started < n_threads - 1) return 0.0;
    for (int t = 0; t < n_threads; t++) rate += amount / fmax(jobs[t].time_ns, 1.0);
    return rate;
}

static const size_t level_bytes[CEILING_LEVELS] = {24 << 10, 256 << 10, 2 << 20, 12 << 20, 96 << 20};

static mlff_status measure(int n_threads, ceilings *c)
{
    mlff_status status = MLFF_OK;
    size_t largest = level_bytes[CEILING_LEVELS - 1] / (size_t)n_threads / sizeof(vector16);
    size_t each = largest * sizeof(vector16) > level_bytes[CEILING_LEVELS - 2]
                      ? largest
                      : level_bytes[CEILING_LEVELS - 2] / sizeof(vector16);
    vector16 *data = base_alloc(each * (size_t)n_threads, sizeof *data, "a bandwidth test");
    job *jobs = base_alloc((size_t)n_threads, sizeof *jobs, "a bandwidth test");
    if (!data || !jobs) {
        status = MLFF_ERR_MEMORY;
        goto done;
    }
    int path = best_path();
    enum { ROUNDS = 200000 }; // 77 Mflop a thread
    for (int attempt = 0; attempt < TRIES; attempt++) {
        jobs[0] = (job){.rounds = ROUNDS, .path = path, .seed = {0.5f}};
        c->flops_a_ns = fmax(c->flops_a_ns, n_threads * rate_of(jobs, 1, (double)ROUNDS * FLOPS_A_ROUND));
    }
    for (int level = 0; level < CEILING_LEVELS; level++) {
        size_t n = level + 1 < CEILING_LEVELS ? level_bytes[level] / sizeof *data : each;
        int64_t rounds = (int64_t)((32 << 20) / (n * sizeof *data)) + 1;
        c->level_bytes[level] = (double)(n * sizeof *data);
        for (int attempt = 0; attempt < TRIES; attempt++) {
            for (int t = 0; t < n_threads; t++)
                jobs[t] = (job){.data = data + (size_t)t * each, .n = n, .rounds = rounds, .path = path};
            const int together = level < OWN_LEVELS ? 1 : n_threads;
            const double bytes = (double)rounds * (double)(n * sizeof *data);
            c->bytes_a_ns[level] = fmax(c->bytes_a_ns[level], n_threads / together * rate_of(jobs, together, bytes));
        }
    }
    c->n_threads = n_threads;
done:
    base_free(data);
    base_free(jobs);
    return status;
}

mlff_status ceilings_get(int n_threads, ceilings *ceilings_out)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static ceilings kept;
    mlff_status status = MLFF_OK;
    if (n_threads < 1) n_threads = 1;
    if (n_threads > THREADS_MAX) n_threads = THREADS_MAX;
    pthread_mutex_lock(&lock);
    if (kept.n_threads != n_threads) {
        ceilings c = {0};
        status = measure(n_threads, &c);
        if (status == MLFF_OK) kept = c;
    }
    *ceilings_out = kept;
    pthread_mutex_unlock(&lock);
    return status;
}

// Of the largest level that is not larger than the working set of one thread: a smaller set is read at least as fast, so that
// the rate of a set between two levels is not above this one.
double ceilings_bytes_a_ns(const ceilings *c, double working_set)
{
    int level = CEILING_LEVELS - 1;
    while (level > 0 && c->level_bytes[level] > working_set / c->n_threads) level--;
    return c->bytes_a_ns[level];
}
