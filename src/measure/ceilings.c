// SPDX-License-Identifier: MIT
// ceilings.c: the most this machine does: float32 multiply-adds, and bytes read from each level of memory, on so many threads.
// A few hundredths of a second once a process; the best of several tries, for a ceiling is what was ever reached. What cores
// do not share is measured on one and multiplied: on a busy machine all of them at once would be too low a ceiling.
#include <math.h>
#include <pthread.h>
#include <string.h>

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
} job;

static void *work(void *context)
{
    job *j = context;
#if defined(__x86_64__)
    if (j->path == 2 && j->data) read_avx512(j->data, j->n, j->rounds, &j->seed);
    if (j->path == 2 && !j->data) multiply_add_avx512(&j->seed, j->rounds);
    if (j->path == 1 && j->data) read_avx2(j->data, j->n, j->rounds, &j->seed);
    if (j->path == 1 && !j->data) multiply_add_avx2(&j->seed, j->rounds);
#endif
    if (j->path == 0 && j->data) read_portable(j->data, j->n, j->rounds, &j->seed);
    if (j->path == 0 && !j->data) multiply_add_portable(&j->seed, j->rounds);
    return NULL;
}

enum { THREADS_MAX = 256, TRIES = 5, OWN_LEVELS = 3 };

// ns that all threads together need for their jobs.
static double timed(job *jobs, int n_threads)
{
    pthread_t threads[THREADS_MAX];
    int started = 0;
    int64_t start = mlff_clock_ns();
    for (int t = 1; t < n_threads; t++)
        if (pthread_create(&threads[started], NULL, work, &jobs[t]) == 0) started++;
    work(&jobs[0]);
    for (int t = 0; t < started; t++) pthread_join(threads[t], NULL);
    return started == n_threads - 1 ? (double)(mlff_clock_ns() - start) : INFINITY;
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
        double flops = (double)n_threads * ROUNDS * FLOPS_A_ROUND / timed(jobs, 1);
        c->flops_a_ns = fmax(c->flops_a_ns, flops);
    }
    for (int level = 0; level < CEILING_LEVELS; level++) {
        size_t n = level + 1 < CEILING_LEVELS ? level_bytes[level] / sizeof *data : each;
        int64_t rounds = (int64_t)((32 << 20) / (n * sizeof *data)) + 1;
        c->level_bytes[level] = (double)(n * sizeof *data);
        for (int attempt = 0; attempt < TRIES; attempt++) {
            for (int t = 0; t < n_threads; t++)
                jobs[t] = (job){.data = data + (size_t)t * each, .n = n, .rounds = rounds, .path = path};
            double bytes =
                (double)n_threads * (double)rounds * (double)(n * sizeof *data) / timed(jobs, level < OWN_LEVELS ? 1 : n_threads);
            c->bytes_a_ns[level] = fmax(c->bytes_a_ns[level], bytes);
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

// Of the smallest level that holds the working set of one thread.
double ceilings_bytes_a_ns(const ceilings *c, double working_set)
{
    for (int level = 0; level + 1 < CEILING_LEVELS; level++)
        if (working_set / c->n_threads <= c->level_bytes[level]) return c->bytes_a_ns[level];
    return c->bytes_a_ns[CEILING_LEVELS - 1];
}
