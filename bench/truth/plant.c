// SPDX-License-Identifier: MIT
// plant.c: a force field with a known cause of slow steps, profiled. bench/truth/run counts how often the profiler names it.
//
//   plant CAUSE REPORT.json [--steps N] [--every K] [--work US] [--slower PCT]
//
// A usual step computes for --work µs of processor time, counted in arithmetic so that it is the same amount on a busy machine;
// every --every-th step also does what CAUSE says. --slower makes all steps do so much more, %.
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "mlff_profile.h"

extern char **environ;

typedef struct plant {
    const char *cause;
    int64_t n_calls, n_rebuilds, every;
    double rounds; // of arithmetic in a usual step
    double rounds_ms;
    pthread_mutex_t lock;
    pthread_cond_t wanted, taken;
    int holding;
} plant;

static volatile double sink;

// A chain of arithmetic that no compiler can shorten: its end depends on its beginning, which is read.
static void compute(double rounds)
{
    uint64_t x = (uint64_t)sink | 1;
    for (int64_t i = 0; i < (int64_t)rounds; i++) x = x * 6364136223846793005u + 1442695040888963407u;
    sink = (double)(x >> 40 & 0xff);
}

static double calibrate(void)
{
    enum { ROUNDS = 1000000 };
    double best = 1e9;
    for (int k = 0; k < 9; k++) {
        int64_t start = mlff_clock_ns();
        compute(ROUNDS);
        double ms = (double)(mlff_clock_ns() - start) * 1e-6;
        if (ms < best) best = ms;
    }
    return ROUNDS / best;
}

static void sleep_ms(double ms)
{
    nanosleep(&(struct timespec){.tv_nsec = (long)(ms * 1e6)}, NULL);
}

// Another thread that takes the lock when it is asked to, and computes while it holds it.
static void *holder(void *context)
{
    plant *p = context;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (!p->holding) pthread_cond_wait(&p->wanted, &p->lock);
        pthread_cond_signal(&p->taken);
        compute(5.0 * p->rounds_ms);
        p->holding = 0;
    }
    return NULL;
}

static void wait_for_lock(plant *p)
{
    pthread_mutex_lock(&p->lock);
    p->holding = 1;
    pthread_cond_signal(&p->wanted);
    while (p->holding) pthread_cond_wait(&p->taken, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

static void touch_pages(size_t bytes)
{
    char *block = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) exit(1);
#ifdef MADV_NOHUGEPAGE
    (void)madvise(block, bytes, MADV_NOHUGEPAGE);
#endif
    for (size_t i = 0; i < bytes; i += 4096) block[i] = 1;
    munmap(block, bytes);
}

static void write_file(void)
{
    enum { BYTES = 2 << 20 };
    static char block[BYTES];
    char path[] = "/tmp/mlff-truth-XXXXXX";
    int file = mkstemp(path);
    if (file < 0 || write(file, block, BYTES) != BYTES || fsync(file) != 0) exit(1);
    close(file);
    unlink(path);
}

static void run_child(void)
{
    char *argv[] = {"sh", "-c", "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done", NULL};
    pid_t child;
    int ended;
    if (posix_spawn(&child, "/bin/sh", NULL, NULL, argv, environ) != 0) exit(1);
    waitpid(child, &ended, 0);
}

static void leak(void)
{
    char *block = malloc(4096);
    if (block) memset(block, 1, 4096);
    sink = block ? block[100] : 0;
}

static mlff_status step(void *context, const mlff_system *frame, unsigned wanted, double *energy, double *forces, double *stress)
{
    plant *p = context;
    const char *cause = p->cause;
    (void)wanted;
    (void)stress;
    bool slow = ++p->n_calls % p->every == 0;
    compute(p->rounds);
    if (slow && strcmp(cause, "sleep") == 0) sleep_ms(5.0);
    if (slow && strcmp(cause, "work") == 0) compute(5.0 * p->rounds_ms);
    if (slow && strcmp(cause, "rebuild") == 0) {
        compute(3.0 * p->rounds_ms);
        p->n_rebuilds++;
    }
    if (slow && strcmp(cause, "faults") == 0) touch_pages(8 << 20);
    if (slow && strcmp(cause, "files") == 0) write_file();
    if (slow && strcmp(cause, "lock") == 0) wait_for_lock(p);
    if (slow && strcmp(cause, "child") == 0) run_child();
    if (strcmp(cause, "leak") == 0) leak();
    // Clean controls differ in what a healthy force field may do in every step.
    if (strcmp(cause, "clean-reuse") == 0) compute(0.02 * p->rounds_ms);
    if (strcmp(cause, "clean-malloc") == 0) free(malloc(1000));
    if (strcmp(cause, "clean-vary") == 0) compute(0.05 * p->rounds * (double)(p->n_calls * 7 % 5));
    if (strcmp(cause, "clean-rebuild") == 0) p->n_rebuilds++;
    *energy = 1.0;
    for (int i = 0; forces && i < 3 * frame->n_atoms; i++) forces[i] = 0.0;
    return MLFF_OK;
}

static void counters(void *context, int64_t *n_pairs, int64_t *n_rebuilds, int64_t *n_growths)
{
    *n_pairs = 100;
    *n_rebuilds = ((plant *)context)->n_rebuilds;
    *n_growths = 0;
}

static double option(int argc, char **argv, const char *name, double otherwise)
{
    for (int i = 3; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0) return atof(argv[i + 1]);
    return otherwise;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: plant CAUSE REPORT.json [--steps N] [--every K] [--work US] [--slower PCT]\n");
        return 2;
    }
    plant p = {.cause = argv[1], .every = (int64_t)option(argc, argv, "--every", 10), .rounds_ms = calibrate()};
    pthread_t thread;
    mlff_system *system;
    mlff_trajectory *trajectory;
    mlff_profile *profile = NULL;
    // A fixed amount of arithmetic where speeds are compared: calibration would differ from run to run.
    double per_us = argc > 3 && option(argc, argv, "--slower", -1.0) >= 0.0 ? 500.0 : p.rounds_ms * 1e-3;
    p.rounds = per_us * option(argc, argv, "--work", 500.0) * (1.0 + 0.01 * option(argc, argv, "--slower", 0.0));
    pthread_mutex_init(&p.lock, NULL);
    pthread_cond_init(&p.wanted, NULL);
    pthread_cond_init(&p.taken, NULL);
    if (strcmp(p.cause, "lock") == 0 && pthread_create(&thread, NULL, holder, &p) != 0) return 1;

    mlff_callable callable = {.struct_size = sizeof callable,
                              .name = "planted",
                              .context = &p,
                              .properties = MLFF_ENERGY | MLFF_FORCES,
                              .step = step,
                              .counters = counters};
    mlff_profile_options options = mlff_profile_options_default();
    options.n_steps = (int64_t)option(argc, argv, "--steps", 400);
    options.split = options.overhead = 0;
    if (mlff_system_build("silicon", 8, 0, &system) != MLFF_OK ||
        mlff_trajectory_thermal(system, 300.0, 0, &trajectory) != MLFF_OK ||
        mlff_profile_run(&callable, trajectory, &options, &profile) != MLFF_OK ||
        mlff_profile_save(profile, argv[2]) != MLFF_OK) {
        fprintf(stderr, "plant: %s\n", mlff_last_error());
        return 1;
    }
    mlff_profile_destroy(profile);
    mlff_trajectory_destroy(trajectory);
    mlff_system_destroy(system);
    return 0;
}
