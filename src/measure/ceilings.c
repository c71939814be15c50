// SPDX-License-Identifier: MIT
// ceilings.c: the most this machine does: multiply-adds of vectors in float32, and of what multiplies matrices in bfloat16 where a path does
// so; bytes read from each level of memory; on so many threads.
// A few hundredths of a second once a process; the best of several tries, for a ceiling is what was ever reached. What cores
// do not share is measured on one and multiplied. Threads are timed by their processor time: on a busy machine the time that
// they wait for a processor would make the ceiling too low.
#include <math.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

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

#if defined(__x86_64__)
    enum {
        DOT_FLOPS_A_ROUND = 2 * FLOPS_A_ROUND,
        TILES_A_ROUND = 4,
        TILE_FLOPS_A_ROUND = TILES_A_ROUND * 16 * 16 * 32 * 2
    };

__attribute__((target("avx512f,avx512bf16"))) static void dot_bfloat16(vector16 *seed, int64_t rounds)
{
    __m512 sum[CHAINS];
    const __m512bh a = (__m512bh)_mm512_set1_epi32(0x3c003c00); // 2^-7
    for (int k = 0; k < CHAINS; k++) sum[k] = (__m512)*seed * (float)k;
    for (int64_t i = 0; i < rounds; i++) {
#pragma GCC unroll 12
        for (int k = 0; k < CHAINS; k++) sum[k] = _mm512_dpbf16_ps(sum[k], a, a);
    }
    for (int k = 1; k < CHAINS; k++) sum[0] = _mm512_add_ps(sum[0], sum[k]);
    *seed = (vector16)sum[0];
}

// Four tiles of sums, of two tiles by two, as the kernels have them.
__attribute__((target("amx-tile,amx-bf16"))) static void multiply_tiles(vector16 *seed, int64_t rounds)
{
    static const struct {
        uint8_t palette, start_row, zero[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } shape __attribute__((aligned(64))) = {
        .palette = 1, .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
    uint16_t operand[16 * 32];
    float sums[16 * 16];
    for (int k = 0; k < 16 * 32; k++) operand[k] = 0x3c00;
    __asm__ volatile("" ::: "memory"); // the instructions do not tell the compiler what they read and write
    _tile_loadconfig(&shape);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_loadd(4, operand, 64);
    _tile_loadd(5, operand, 64);
    _tile_loadd(6, operand, 64);
    _tile_loadd(7, operand, 64);
    for (int64_t i = 0; i < rounds; i++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 5, 6);
        _tile_dpbf16ps(2, 4, 7);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(3, sums, 64);
    _tile_release();
    __asm__ volatile("" ::: "memory");
    (*seed)[0] = sums[0];
}
#endif

const char *const ceiling_product_names[N_CEILING_PRODUCTS] = {"", "bf16 by AVX512-BF16", "bf16 by AMX tiles",
                                                               "tf32 by AMX tiles", "float32 by AMX tiles"};

static int best_path(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) return 2;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return 1;
#endif
    return 0;
}

typedef void arithmetic(vector16 *seed, int64_t rounds);

static arithmetic *vectors_of(int path)
{
#if defined(__x86_64__)
    if (path > 0) return path == 2 ? multiply_add_avx512 : multiply_add_avx2;
#endif
    (void)path;
    return multiply_add_portable;
}

typedef struct job {
    arithmetic *multiply; // NULL: data are read
    const vector16 *data;
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
    if (j->multiply) {
        j->multiply(&j->seed, j->rounds);
    } else {
#if defined(__x86_64__)
        if (j->path == 2) read_avx512(j->data, j->n, j->rounds, &j->seed);
        if (j->path == 1) read_avx2(j->data, j->n, j->rounds, &j->seed);
#endif
        if (j->path == 0) read_portable(j->data, j->n, j->rounds, &j->seed);
    }
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

// Flops a ns of so many threads; what cores do not share is measured on one of them.
static double arithmetic_rate(arithmetic *multiply, int n_threads, int64_t rounds, double flops_a_round)
{
    double best = 0;
    for (int attempt = 0; attempt < TRIES; attempt++) {
        job one = {.multiply = multiply, .rounds = rounds, .seed = {0.5f}};
        best = fmax(best, n_threads * rate_of(&one, 1, (double)rounds * flops_a_round));
    }
    return best;
}

static void measure_arithmetic(int n_threads, ceilings *c)
{
    enum { ROUNDS = 200000, TILE_ROUNDS = 10000 }; // 77 Mflop, of tiles 655 Mflop
    c->flops_a_ns = arithmetic_rate(vectors_of(best_path()), n_threads, ROUNDS, FLOPS_A_ROUND);
#if defined(__x86_64__)
    static const int of_one[N_CEILING_PRODUCTS] = {1, 1, 1, 3, 6};
    if (c->products == CEILING_BF16_DOTS)
        c->product_flops_a_ns = arithmetic_rate(dot_bfloat16, n_threads, ROUNDS, DOT_FLOPS_A_ROUND);
    else if (c->products != CEILING_VECTORS)
        c->product_flops_a_ns =
            arithmetic_rate(multiply_tiles, n_threads, TILE_ROUNDS, (double)TILE_FLOPS_A_ROUND / of_one[c->products]);
#endif
}

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
    const int path = best_path();
    measure_arithmetic(n_threads, c);
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

mlff_status ceilings_get(int n_threads, ceiling_products products, ceilings *ceilings_out)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static ceilings kept;
    mlff_status status = MLFF_OK;
    if (n_threads < 1) n_threads = 1;
    if (n_threads > THREADS_MAX) n_threads = THREADS_MAX;
    pthread_mutex_lock(&lock);
    if (kept.n_threads != n_threads || kept.products != products) {
        ceilings c = {.products = products};
        status = measure(n_threads, &c);
        if (status == MLFF_OK) kept = c;
    }
    *ceilings_out = kept;
    pthread_mutex_unlock(&lock);
    return status;
}

double ceilings_flops_a_ns(const ceilings *c)
{
    return fmax(c->flops_a_ns, c->product_flops_a_ns);
}

// Of the largest level that is not larger than the working set of one thread: a smaller set is read at least as fast, so that
// the rate of a set between two levels is not above this one.
double ceilings_bytes_a_ns(const ceilings *c, double working_set)
{
    int level = CEILING_LEVELS - 1;
    while (level > 0 && c->level_bytes[level] > working_set / c->n_threads) level--;
    return c->bytes_a_ns[level];
}
