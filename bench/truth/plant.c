// SPDX-License-Identifier: MIT
// plant.c: a force field with a known cause of slow steps, profiled. bench/truth/run counts how often the profiler names it.
//
//   plant CAUSE REPORT.json [--steps N] [--every K] [--work US] [--plant US] [--slower PCT] [--scatter PCT]
//   plant spells REPORT.json --spell N --slowdown PCT …
//   plant CAUSE REPORT.json --model FILE [--device cuda:0] [--n-atoms 24] [--runs N] …
//
// A usual step computes for --work µs of processor time, counted in arithmetic so that it is the same amount on a busy machine;
// every --every-th step also does what CAUSE says, for --plant µs where it is a matter of time. --slower makes all steps do so much
// more, %. --scatter makes half of the processes as a whole up to so much slower still, %: a machine on which neighbors compute.
// spells: in each step the state is chosen again with a chance of 1/N, and in one of two states steps do --slowdown % more; half of the time
// on average. Prints the states of all calls as 0 and 1.
// With --model a usual step is that of an evaluator on water, and --runs profiles one after another: REPORT.json.0, .1, ….
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <math.h>
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "mlff.h"
#include "mlff_profile.h"

extern char **environ;

typedef struct plant {
    const char *cause;
    int64_t n_calls, n_steps, n_rebuilds, n_growths, every;
    double rounds; // of arithmetic in a usual step
    double rounds_ms, ms;
    int to_answerer, from_answerer; // pipes to a process that answers late
    pthread_mutex_t lock;
    pthread_cond_t wanted, taken;
    int holding;
    atomic_long n_begun, n_ended;   // steps of the team's other thread
    const mlff_callable *evaluator; // NULL: arithmetic
    mlff_system *large;             // the frame of slow steps of `device`
    double *large_forces;
    uint64_t random; // of `spells`
    double change, slowdown;
    bool slow;
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
        compute(p->ms * p->rounds_ms);
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

// Until `counter` is `value`: spins for a while, then sleeps, as teams of threads do.
static void wait_for(plant *p, atomic_long *counter, long value)
{
    enum { SPINS = 20000 };
    for (int k = 0; k < SPINS; k++)
        if (atomic_load(counter) >= value) return;
    pthread_mutex_lock(&p->lock);
    while (atomic_load(counter) < value) pthread_cond_wait(&p->wanted, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

static void advance(plant *p, atomic_long *counter)
{
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(counter, 1);
    pthread_cond_broadcast(&p->wanted);
    pthread_mutex_unlock(&p->lock);
}

// The other thread of a team of two, which computes as much as the first in every step.
static void *teammate(void *context)
{
    plant *p = context;
    for (long step = 1;; step++) {
        wait_for(p, &p->n_begun, step);
        compute(p->rounds);
        advance(p, &p->n_ended);
    }
    return NULL;
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

static void leak_mapping(void)
{
    char *block = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) exit(1);
    block[0] = block[4096] = 1;
}

static void read_file(void)
{
    enum { BYTES = 8 << 20 };
    static char block[BYTES];
    static int file = -1;
    if (file < 0) {
        FILE *made = tmpfile();
        if (!made || fwrite(block, 1, BYTES, made) != BYTES || fflush(made) != 0) exit(1);
        file = fileno(made);
    }
    if (pread(file, block, BYTES, 0) != BYTES) exit(1);
}

static void *compute_in_thread(void *context)
{
    plant *p = context;
    compute(p->ms * p->rounds_ms);
    return NULL;
}

static void run_threads(plant *p)
{
    pthread_t threads[2];
    for (int k = 0; k < 2; k++)
        if (pthread_create(&threads[k], NULL, compute_in_thread, p) != 0) exit(1);
    for (int k = 0; k < 2; k++) pthread_join(threads[k], NULL);
}

// Another process that answers after a while, as another machine does.
static void start_answerer(plant *p)
{
    int there[2], back[2];
    char c;
    if (pipe(there) != 0 || pipe(back) != 0) exit(1);
    pid_t child = fork();
    if (child < 0) exit(1);
    if (child == 0) {
        close(there[1]);
        while (read(there[0], &c, 1) == 1) {
            sleep_ms(p->ms);
            if (write(back[1], &c, 1) != 1) break;
        }
        _exit(0);
    }
    close(there[0]);
    p->to_answerer = there[1];
    p->from_answerer = back[0];
}

static void ask_answerer(const plant *p)
{
    char c = 1;
    if (write(p->to_answerer, &c, 1) != 1 || read(p->from_answerer, &c, 1) != 1) exit(1);
}

// A new object each time, as a compiler at run time makes them: copies of a small one of the C library.
static void load_object(const plant *p)
{
    static char image[1 << 20];
    static size_t bytes;
    static int n_loaded;
    char path[64];
    struct link_map *map;
    if (bytes == 0) {
        void *small = dlopen("libutil.so.1", RTLD_NOW);
        FILE *file = small && dlinfo(small, RTLD_DI_LINKMAP, &map) == 0 ? fopen(map->l_name, "rb") : NULL;
        if (!file || (bytes = fread(image, 1, sizeof image, file)) == 0) exit(1);
        fclose(file);
    }
    compute(p->ms * p->rounds_ms);
    snprintf(path, sizeof path, "/tmp/mlff-truth-%d-%d.so", (int)getpid(), n_loaded++);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(image, 1, bytes, file) != bytes || fclose(file) != 0 || !dlopen(path, RTLD_NOW)) exit(1);
    unlink(path);
}

// What a cause does in a slow step.
static void do_planted(plant *p)
{
    const char *cause = p->cause;
    if (strcmp(cause, "sleep") == 0) sleep_ms(p->ms);
    if (strcmp(cause, "work") == 0) compute(p->ms * p->rounds_ms);
    if (strcmp(cause, "rebuild") == 0 || strcmp(cause, "growth") == 0) compute(0.6 * p->ms * p->rounds_ms);
    p->n_rebuilds += strcmp(cause, "rebuild") == 0;
    p->n_growths += strcmp(cause, "growth") == 0;
    if (strcmp(cause, "faults") == 0) touch_pages(8 << 20);
    if (strcmp(cause, "files") == 0) write_file();
    if (strcmp(cause, "read") == 0) read_file();
    if (strcmp(cause, "lock") == 0) wait_for_lock(p);
    if (strcmp(cause, "threads") == 0) run_threads(p);
    if (strcmp(cause, "answer") == 0) ask_answerer(p);
    if (strcmp(cause, "child") == 0) run_child();
    if (strcmp(cause, "load") == 0) load_object(p);
}

static double draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) * 0x1p-53;
}

static void pass_spell(plant *p)
{
    if (p->n_calls == 1 || draw(&p->random) < p->change) p->slow = draw(&p->random) < 0.5;
    if (p->slow) compute(p->slowdown * p->rounds);
    putchar(p->slow ? '1' : '0');
}

// What it does in every step; clean controls differ in what a healthy force field may do.
static void do_always(plant *p)
{
    const char *cause = p->cause;
    if (strcmp(cause, "spells") == 0) pass_spell(p);
    if (strcmp(cause, "leak") == 0) leak();
    if (strcmp(cause, "leak-mapping") == 0) leak_mapping();
    if (strcmp(cause, "drift") == 0) compute(p->rounds * (double)p->n_calls / (double)p->n_steps);
    if (strcmp(cause, "once") == 0 && p->n_calls == p->n_steps / 2) sleep_ms(p->ms * (double)p->n_steps / (double)p->every);
    if (strcmp(cause, "clean-reuse") == 0) compute(0.02 * p->rounds_ms);
    if (strcmp(cause, "clean-malloc") == 0) free(malloc(1000));
    if (strcmp(cause, "clean-vary") == 0) compute(0.05 * p->rounds * (double)(p->n_calls * 7 % 5));
    if (strcmp(cause, "clean-rebuild") == 0) p->n_rebuilds++;
}

// A usual step of the evaluator, then what is planted: by the host, or as other frames for the GPU.
static plant *on_evaluator;
static mlff_status evaluator_step(void *context, const mlff_system *frame, unsigned wanted, double *energy, double *forces,
                                  double *stress)
{
    plant *p = on_evaluator;
    bool slow = ++p->n_calls % p->every == 0;
    double large_energy;
    mlff_status status = p->evaluator->step(context, frame, wanted, energy, forces, stress);
    if (status == MLFF_OK && slow && strcmp(p->cause, "device") == 0)
        status = p->evaluator->step(context, p->large, wanted, &large_energy, p->large_forces, NULL);
    if (status == MLFF_OK && slow && strcmp(p->cause, "sizes") == 0) {
        mlff_system part = *frame; // of another number of atoms each time
        part.n_atoms -= 1 + (int)(p->n_calls / p->every % 7);
        status = p->evaluator->step(context, &part, wanted, &large_energy, p->large_forces, NULL);
    }
    if (slow) do_planted(p);
    do_always(p);
    return status;
}

static mlff_status step(void *context, const mlff_system *frame, unsigned wanted, double *energy, double *forces, double *stress)
{
    plant *p = context;
    (void)wanted;
    (void)stress;
    bool slow = ++p->n_calls % p->every == 0, team = strcmp(p->cause, "clean-team") == 0;
    if (team) advance(p, &p->n_begun);
    compute(p->rounds);
    if (team) wait_for(p, &p->n_ended, (long)p->n_calls);
    if (slow) do_planted(p);
    do_always(p);
    *energy = slow && strcmp(p->cause, "nan") == 0 ? NAN : 1.0;
    for (int i = 0; forces && i < 3 * frame->n_atoms; i++) forces[i] = 0.0;
    return MLFF_OK;
}

static void counters(void *context, int64_t *n_pairs, int64_t *n_rebuilds, int64_t *n_growths)
{
    *n_pairs = 100;
    *n_rebuilds = ((plant *)context)->n_rebuilds;
    *n_growths = ((plant *)context)->n_growths;
}

static double option(int argc, char **argv, const char *name, double otherwise)
{
    for (int i = 3; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0) return atof(argv[i + 1]);
    return otherwise;
}

static const char *text_option(int argc, char **argv, const char *name, const char *otherwise)
{
    for (int i = 3; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0) return argv[i + 1];
    return otherwise;
}

static int profile_evaluator(plant *p, int argc, char **argv)
{
    enum { LARGE = 3072 };
    mlff_model *model = NULL;
    mlff_evaluator *evaluator = NULL;
    mlff_system *system = NULL;
    mlff_callable callable = {0};
    mlff_evaluator_options settings = mlff_evaluator_options_default();
    mlff_profile_options options = mlff_profile_options_default();
    int n_runs = (int)option(argc, argv, "--runs", 1), n_atoms = (int)option(argc, argv, "--n-atoms", 24), n_done = 0;
    mlff_status status = mlff_device_parse(text_option(argc, argv, "--device", "cuda:0"), &settings.device);
    if (status == MLFF_OK) status = mlff_model_load(text_option(argc, argv, "--model", NULL), &model);
    if (status == MLFF_OK) status = mlff_evaluator_create(model, &settings, &evaluator);
    if (status == MLFF_OK) status = mlff_callable_from_evaluator(evaluator, model, &callable);
    if (status == MLFF_OK) status = mlff_system_build("water", n_atoms, 0, &system);
    if (status == MLFF_OK) status = mlff_system_build("water", (int)option(argc, argv, "--large", LARGE), 1, &p->large);
    if (status == MLFF_OK) p->large_forces = malloc(3 * sizeof(double) * (size_t)(p->large->n_atoms + n_atoms));
    mlff_callable evaluator_alone = callable;
    p->evaluator = &evaluator_alone;
    on_evaluator = p;
    callable.step = evaluator_step;
    options.n_steps = p->n_steps;
    options.split = options.overhead = 0;
    for (; status == MLFF_OK && p->large_forces && n_done < n_runs; n_done++) {
        char path[1024];
        mlff_trajectory *trajectory = NULL;
        mlff_profile *profile = NULL;
        p->n_calls = 0;
        snprintf(path, sizeof path, "%s.%d", argv[2], n_done);
        status = mlff_trajectory_thermal(system, 300.0, (uint64_t)n_done, &trajectory);
        if (status == MLFF_OK) status = mlff_profile_run(&callable, trajectory, &options, &profile);
        if (status == MLFF_OK) status = mlff_profile_save(profile, path);
        mlff_profile_destroy(profile);
        mlff_trajectory_destroy(trajectory);
    }
    if (status != MLFF_OK) fprintf(stderr, "plant: %s\n", mlff_last_error());
    mlff_callable_destroy(&callable);
    mlff_evaluator_destroy(evaluator);
    mlff_model_destroy(model);
    mlff_system_destroy(system);
    mlff_system_destroy(p->large);
    free(p->large_forces);
    return status != MLFF_OK;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: plant CAUSE REPORT.json [--steps N] [--every K] [--work US] [--plant US] [--slower PCT] "
                        "[--scatter PCT]\n       plant spells REPORT.json --spell N --slowdown PCT …\n       plant CAUSE "
                        "REPORT.json --model FILE [--device cuda:0] [--n-atoms 24] [--runs N] …\n");
        return 2;
    }
    plant p = {.cause = argv[1],
               .every = (int64_t)option(argc, argv, "--every", 10),
               .n_steps = (int64_t)option(argc, argv, "--steps", 400),
               .ms = 1e-3 * option(argc, argv, "--plant", 5000.0),
               .rounds_ms = calibrate()};
    pthread_t thread;
    mlff_system *system;
    mlff_trajectory *trajectory;
    mlff_profile *profile = NULL;
    // A fixed amount of arithmetic where speeds are compared: calibration would differ from run to run.
    double per_us = argc > 3 && option(argc, argv, "--slower", -1.0) >= 0.0 ? 500.0 : p.rounds_ms * 1e-3;
    p.rounds = per_us * option(argc, argv, "--work", 500.0) * (1.0 + 0.01 * option(argc, argv, "--slower", 0.0));
    p.random = (uint64_t)mlff_clock_ns() ^ (uint64_t)getpid() << 32;
    double scatter = fmax(2.0 * draw(&p.random) - 1.0, 0.0); // 0 in half of the cases
    p.change = 1.0 / option(argc, argv, "--spell", 1.0);
    p.slowdown = 0.01 * option(argc, argv, "--slowdown", 0.0);
    p.rounds *= 1.0 + 0.01 * scatter * option(argc, argv, "--scatter", 0.0);
    pthread_mutex_init(&p.lock, NULL);
    pthread_cond_init(&p.wanted, NULL);
    pthread_cond_init(&p.taken, NULL);
    if (strcmp(p.cause, "answer") == 0) start_answerer(&p);
    if (strcmp(p.cause, "lock") == 0 && pthread_create(&thread, NULL, holder, &p) != 0) return 1;
    if (strcmp(p.cause, "clean-team") == 0 && pthread_create(&thread, NULL, teammate, &p) != 0) return 1;

    if (text_option(argc, argv, "--model", NULL)) return profile_evaluator(&p, argc, argv);
    mlff_callable callable = {.struct_size = sizeof callable,
                              .name = "planted",
                              .context = &p,
                              .properties = MLFF_ENERGY | MLFF_FORCES,
                              .step = step,
                              .counters = counters};
    mlff_profile_options options = mlff_profile_options_default();
    options.n_steps = p.n_steps;
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
