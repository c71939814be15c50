// SPDX-License-Identifier: MIT
// worker_pool.c: the parent's side of worker processes.
//
// Each structure goes to an idle worker. One that does not answer in time is killed, one that died is replaced; both cost their
// structure and nothing else. Threads of the libraries are off (with two of xtb's, small systems take up to 25 times longer: their
// barriers spin), so structures are what runs in parallel.
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "worker.h"

enum { MAX_WORKERS = 256, START_TIMEOUT_MS = 60000 };

typedef struct worker {
    pid_t process; // 0: none
    int socket;
    bool busy;
} worker;

struct worker_pool {
    const worker_kind *kind;
    char *argument;
    worker_hello hello; // of the first worker
    int n_workers;
    double timeout_s;
    pthread_mutex_t lock; // of `busy`
    pthread_cond_t idle;
    worker workers[MAX_WORKERS];
};

// ---- one worker; used by the thread that holds it

// Ends the process, or finds that it ended; returns how (see waitpid), 0 where it had to be killed. A process that crashes closes
// its socket before it can be waited for: `patience_ms` for that.
static int worker_end(worker *w, int patience_ms)
{
    int cause = 0;
    bool ended = false;
    if (w->process <= 0) return 0;
    for (int ms = 0; !ended && ms <= patience_ms; ms++) {
        if (ms > 0) usleep(1000);
        ended = waitpid(w->process, &cause, WNOHANG) == w->process;
    }
    if (!ended) {
        kill(w->process, SIGKILL);
        while (waitpid(w->process, NULL, 0) < 0 && errno == EINTR) continue;
    }
    close(w->socket);
    w->process = 0;
    return ended ? cause : 0;
}

// Is there something to read before the time is over?
static bool wait_readable(int socket, int64_t timeout_ms)
{
    const int64_t end = base_clock_ns() + timeout_ms * 1000000;
    for (;;) {
        const int64_t left = (end - base_clock_ns()) / 1000000;
        struct pollfd input = {.fd = socket, .events = POLLIN};
        const int got = poll(&input, 1, left > 0 ? (int)fmin((double)left, 1e9) : 0);
        if (got > 0) return true;
        if (got == 0 && left <= 0) return false;
        if (got < 0 && errno != EINTR) return false;
    }
}

// The first worker's greeting is the pool's; those that begin later must have opened the same.
static mlff_status worker_start(worker_pool *pool, worker *w)
{
    int sockets[2];
    worker_hello hello;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0)
        return mlff_fail(MLFF_ERR_LIMIT, "%s: no socket for a process: %s", pool->kind->name, strerror(errno));
    const pid_t process = fork();
    if (process == 0) worker_run(sockets[1], pool->kind, pool->argument);
    close(sockets[1]);
    if (process < 0) {
        close(sockets[0]);
        return mlff_fail(MLFF_ERR_LIMIT, "%s: a process cannot be started: %s", pool->kind->name, strerror(errno));
    }
    w->process = process;
    w->socket = sockets[0];
    // A worker that hangs takes nothing from a full socket, and may have sent half of a reply.
    const struct timeval limit = {.tv_sec = (time_t)pool->timeout_s + 1};
    setsockopt(w->socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    setsockopt(w->socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (!wait_readable(w->socket, START_TIMEOUT_MS) || !worker_receive(w->socket, &hello, sizeof hello)) {
        worker_end(w, 0);
        return mlff_fail(MLFF_ERR_UNSUPPORTED, "%s:%s: its process did not start; %s", pool->kind->name, pool->argument,
                         pool->kind->hint);
    }
    hello.text[sizeof hello.text - 1] = 0;
    if (hello.status != MLFF_OK) {
        worker_end(w, 0);
        return mlff_fail((mlff_status)hello.status, "%s", hello.text);
    }
    if (w == pool->workers && !pool->hello.hash[0]) pool->hello = hello;
    if (strcmp(hello.hash, pool->hello.hash) == 0) return MLFF_OK;
    worker_end(w, 0);
    return mlff_fail(MLFF_ERR_VALUE, "%s:%s was changed while it was in use", pool->kind->name, pool->argument);
}

// Electrons beyond the closed shells of the neutral system: 0 or 1, or what the spin says.
static int unpaired_electrons(const mlff_system *system)
{
    int n_electrons = 0;
    if (isfinite(system->spin) && system->spin >= 1) return (int)lround(system->spin) - 1;
    for (int i = 0; i < system->n_atoms; i++) n_electrons += system->species[i];
    return n_electrons % 2;
}

static bool send_system(const worker *w, const mlff_system *system)
{
    const size_t n = (size_t)system->n_atoms;
    worker_request request = {.n_atoms = system->n_atoms, .n_unpaired = unpaired_electrons(system)};
    for (int k = 0; k < 3; k++) request.periodic[k] = system->periodic[k];
    memcpy(request.cell, system->cell, sizeof request.cell);
    return worker_send(w->socket, &request, sizeof request) &&
           worker_send(w->socket, system->species, n * sizeof *system->species) &&
           worker_send(w->socket, system->positions, 3 * n * sizeof(double));
}

// The worker's process ended within a structure, which fails.
static mlff_status lost(const worker_pool *pool, worker *w)
{
    const int cause = worker_end(w, 1000);
    if (WIFSIGNALED(cause))
        return mlff_fail(MLFF_ERR_VALUE, "%s: its process ended by signal %d", pool->kind->name, WTERMSIG(cause));
    return mlff_fail(MLFF_ERR_VALUE, "%s: its process ended", pool->kind->name);
}

static mlff_status worker_compute(worker_pool *pool, worker *w, const mlff_system *system, mlff_label *label)
{
    mlff_status status = MLFF_OK;
    worker_reply reply;

    if (!send_system(w, system)) MLFF_TRY(lost(pool, w));
    if (!wait_readable(w->socket, (int64_t)(1000 * pool->timeout_s))) {
        worker_end(w, 0);
        MLFF_FAIL(MLFF_ERR_VALUE, "%s: no answer within %g s", pool->kind->name, pool->timeout_s);
    }
    if (!worker_receive(w->socket, &reply, sizeof reply)) MLFF_TRY(lost(pool, w));
    reply.text[sizeof reply.text - 1] = 0;
    if (reply.status != MLFF_OK) MLFF_FAIL((mlff_status)reply.status, "%s", reply.text);
    if (!worker_receive(w->socket, label->forces, 3 * (size_t)system->n_atoms * sizeof(double))) MLFF_TRY(lost(pool, w));
    label->energy = reply.energy;
    memcpy(label->stress, reply.stress, sizeof label->stress);
done:
    return status;
}

// ---- all of them

static worker *take_worker(worker_pool *pool)
{
    worker *taken = NULL;
    pthread_mutex_lock(&pool->lock);
    while (!taken) {
        for (int k = 0; k < pool->n_workers && !taken; k++)
            if (!pool->workers[k].busy) taken = &pool->workers[k];
        if (!taken) pthread_cond_wait(&pool->idle, &pool->lock);
    }
    taken->busy = true;
    pthread_mutex_unlock(&pool->lock);
    return taken;
}

static void give_worker(worker_pool *pool, worker *w)
{
    pthread_mutex_lock(&pool->lock);
    w->busy = false;
    pthread_cond_signal(&pool->idle);
    pthread_mutex_unlock(&pool->lock);
}

// A call's structures, which several threads take one after the other.
typedef struct job {
    worker_pool *pool;
    const mlff_system *const *systems;
    mlff_label *labels;
    int n, next;
    mlff_status status;   // of the call: no worker could be started
    char text[256];       // its error
    pthread_mutex_t lock; // of `next`, `status` and `text`
} job;

// Ends the call.
static void job_fail(job *j, mlff_status status)
{
    pthread_mutex_lock(&j->lock);
    j->status = status;
    snprintf(j->text, sizeof j->text, "%.250s", mlff_last_error());
    j->next = j->n;
    pthread_mutex_unlock(&j->lock);
}

static void *run_job(void *context)
{
    job *j = context;
    for (;;) {
        pthread_mutex_lock(&j->lock);
        const int k = j->next++;
        pthread_mutex_unlock(&j->lock);
        if (k >= j->n) return NULL;
        worker *w = take_worker(j->pool);
        mlff_status status = teacher_label_allocate(&j->labels[k], j->systems[k]->n_atoms, false);
        if (status == MLFF_OK && w->process <= 0) status = worker_start(j->pool, w);
        if (status != MLFF_OK)
            job_fail(j, status);
        else if ((status = worker_compute(j->pool, w, j->systems[k], &j->labels[k])) != MLFF_OK)
            teacher_label_fail(&j->labels[k], status);
        give_worker(j->pool, w);
    }
}

mlff_status worker_pool_compute(worker_pool *pool, const mlff_system *const *systems, int n, mlff_label *labels)
{
    job j = {.pool = pool, .systems = systems, .labels = labels, .n = n};
    pthread_t threads[MAX_WORKERS];
    int n_threads = 0;
    const int wanted = n < pool->n_workers ? n : pool->n_workers;

    pthread_mutex_init(&j.lock, NULL);
    while (n_threads < wanted - 1 && pthread_create(&threads[n_threads], NULL, run_job, &j) == 0) n_threads++;
    run_job(&j);
    for (int t = 0; t < n_threads; t++) pthread_join(threads[t], NULL);
    pthread_mutex_destroy(&j.lock);
    return j.status == MLFF_OK ? MLFF_OK : mlff_fail(j.status, "%s", j.text);
}

void worker_pool_destroy(worker_pool *pool)
{
    if (!pool) return;
    for (int k = 0; k < pool->n_workers; k++) worker_end(&pool->workers[k], 0);
    pthread_mutex_destroy(&pool->lock);
    pthread_cond_destroy(&pool->idle);
    base_free(pool->argument);
    base_free(pool);
}

static int count_cores(void)
{
    mlff_device_info info = {.struct_size = sizeof info};
    const mlff_device cpu = {MLFF_CPU, 0};
    return mlff_device_info_get(cpu, &info) == MLFF_OK && info.n_multiprocessors > 0 ? info.n_multiprocessors : 1;
}

mlff_status worker_pool_create(const worker_kind *kind, const char *argument, const mlff_teacher_options *options,
                               worker_pool **pool_out)
{
    mlff_status status = MLFF_OK;
    worker_pool *pool = base_alloc(1, sizeof *pool, "a teacher");

    if (!pool) return MLFF_ERR_MEMORY;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->idle, NULL);
    pool->kind = kind;
    pool->timeout_s = options->timeout_s;
    pool->n_workers = options->n_threads > 0 ? options->n_threads : count_cores();
    if (pool->n_workers > MAX_WORKERS) pool->n_workers = MAX_WORKERS;
    if (!(pool->argument = base_alloc(strlen(argument) + 1, 1, "a teacher"))) MLFF_TRY(MLFF_ERR_MEMORY);
    memcpy(pool->argument, argument, strlen(argument));
    for (int k = 0; k < pool->n_workers; k++) MLFF_TRY(worker_start(pool, &pool->workers[k]));
    *pool_out = pool;
    pool = NULL;
done:
    worker_pool_destroy(pool);
    return status;
}

const worker_hello *worker_pool_hello(const worker_pool *pool)
{
    return &pool->hello;
}

int worker_pool_size(const worker_pool *pool)
{
    return pool->n_workers;
}
