// SPDX-License-Identifier: MIT
// teacher_xtb.c: GFN2-xTB and GFN1-xTB by libxtb, in worker processes (xtb_worker.c).
//
// Each structure goes to an idle worker. One that does not answer in time is killed, one that died is replaced; both cost their
// structure and nothing else. xtb's own threads are off: with two of them, small systems take up to 25 times longer (their
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

#include "teacher.h"
#include "xtb_worker.h"

enum { MAX_WORKERS = 256, MAX_ATOMIC_NUMBER = 86, START_TIMEOUT_MS = 60000 };

typedef struct worker {
    pid_t process; // 0: none
    int socket;
    bool busy;
} worker;

typedef struct xtb_state {
    int method, n_workers;
    double timeout_s;
    pthread_mutex_t lock; // of `busy`
    pthread_cond_t idle;
    worker workers[MAX_WORKERS];
    char library[200]; // its file
} xtb_state;

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

static mlff_status worker_start(xtb_state *state, worker *w)
{
    int sockets[2];
    xtb_reply hello;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0)
        return mlff_fail(MLFF_ERR_LIMIT, "xtb: no socket for a process: %s", strerror(errno));
    const pid_t process = fork();
    if (process == 0) xtb_worker_run(sockets[1], state->method);
    close(sockets[1]);
    if (process < 0) {
        close(sockets[0]);
        return mlff_fail(MLFF_ERR_LIMIT, "xtb: a process cannot be started: %s", strerror(errno));
    }
    w->process = process;
    w->socket = sockets[0];
    // A worker that hangs takes nothing from a full socket, and may have sent half of a reply.
    const struct timeval limit = {.tv_sec = (time_t)state->timeout_s + 1};
    setsockopt(w->socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    setsockopt(w->socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (!wait_readable(w->socket, START_TIMEOUT_MS) || !xtb_receive(w->socket, &hello, sizeof hello)) {
        worker_end(w, 0);
        return mlff_fail(MLFF_ERR_UNSUPPORTED, "xtb: its process did not start; does the command xtb work here?");
    }
    hello.text[sizeof hello.text - 1] = 0;
    if (hello.status != MLFF_OK) {
        worker_end(w, 0);
        return mlff_fail((mlff_status)hello.status, "%s", hello.text);
    }
    snprintf(state->library, sizeof state->library, "%s", hello.text);
    return MLFF_OK;
}

// Electrons beyond the closed shells of the neutral system: 0 or 1, or what the spin says.
static int unpaired_electrons(const mlff_system *system)
{
    int n_electrons = 0;
    if (isfinite(system->spin) && system->spin >= 1) return (int)lround(system->spin) - 1;
    for (int i = 0; i < system->n_atoms; i++) n_electrons += system->species[i];
    return n_electrons % 2;
}

static bool worker_send(worker *w, const mlff_system *system)
{
    const size_t n = (size_t)system->n_atoms;
    xtb_request request = {.n_atoms = system->n_atoms, .n_unpaired = unpaired_electrons(system), .periodic = system->periodic[0]};
    memcpy(request.cell, system->cell, sizeof request.cell);
    return xtb_send(w->socket, &request, sizeof request) && xtb_send(w->socket, system->species, n * sizeof *system->species) &&
           xtb_send(w->socket, system->positions, 3 * n * sizeof(double));
}

// The worker's process ended within a structure, which fails.
static mlff_status lost(worker *w)
{
    const int cause = worker_end(w, 1000);
    if (WIFSIGNALED(cause)) return mlff_fail(MLFF_ERR_VALUE, "xtb: its process ended by signal %d", WTERMSIG(cause));
    return mlff_fail(MLFF_ERR_VALUE, "xtb: its process ended");
}

static mlff_status worker_compute(xtb_state *state, worker *w, const mlff_system *system, mlff_label *label)
{
    mlff_status status = MLFF_OK;
    xtb_reply reply;

    if (!worker_send(w, system)) MLFF_TRY(lost(w));
    if (!wait_readable(w->socket, (int64_t)(1000 * state->timeout_s))) {
        worker_end(w, 0);
        MLFF_FAIL(MLFF_ERR_VALUE, "xtb: no answer within %g s", state->timeout_s);
    }
    if (!xtb_receive(w->socket, &reply, sizeof reply)) MLFF_TRY(lost(w));
    reply.text[sizeof reply.text - 1] = 0;
    if (reply.status != MLFF_OK) MLFF_FAIL((mlff_status)reply.status, "%s", reply.text);
    if (!xtb_receive(w->socket, label->forces, 3 * (size_t)system->n_atoms * sizeof(double))) MLFF_TRY(lost(w));
    label->energy = reply.energy;
done:
    return status;
}

// ---- all of them

static worker *take_worker(xtb_state *state)
{
    worker *taken = NULL;
    pthread_mutex_lock(&state->lock);
    while (!taken) {
        for (int k = 0; k < state->n_workers && !taken; k++)
            if (!state->workers[k].busy) taken = &state->workers[k];
        if (!taken) pthread_cond_wait(&state->idle, &state->lock);
    }
    taken->busy = true;
    pthread_mutex_unlock(&state->lock);
    return taken;
}

static void give_worker(xtb_state *state, worker *w)
{
    pthread_mutex_lock(&state->lock);
    w->busy = false;
    pthread_cond_signal(&state->idle);
    pthread_mutex_unlock(&state->lock);
}

// A call's structures, which several threads take one after the other.
typedef struct job {
    xtb_state *state;
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
        worker *w = take_worker(j->state);
        mlff_status status = teacher_label_allocate(&j->labels[k], j->systems[k]->n_atoms, false);
        if (status == MLFF_OK && w->process <= 0) status = worker_start(j->state, w);
        if (status != MLFF_OK)
            job_fail(j, status);
        else if ((status = worker_compute(j->state, w, j->systems[k], &j->labels[k])) != MLFF_OK)
            teacher_label_fail(&j->labels[k], status);
        give_worker(j->state, w);
    }
}

static mlff_status xtb_compute(mlff_teacher *teacher, const mlff_system *const *systems, int n, mlff_label *labels)
{
    xtb_state *state = teacher->state;
    job j = {.state = state, .systems = systems, .labels = labels, .n = n};
    pthread_t threads[MAX_WORKERS];
    int n_threads = 0;
    const int wanted = n < state->n_workers ? n : state->n_workers;

    pthread_mutex_init(&j.lock, NULL);
    while (n_threads < wanted - 1 && pthread_create(&threads[n_threads], NULL, run_job, &j) == 0) n_threads++;
    run_job(&j);
    for (int t = 0; t < n_threads; t++) pthread_join(threads[t], NULL);
    pthread_mutex_destroy(&j.lock);
    return j.status == MLFF_OK ? MLFF_OK : mlff_fail(j.status, "%s", j.text);
}

static mlff_status xtb_check(const mlff_teacher *teacher, const mlff_system *system, const char *name)
{
    const xtb_state *state = teacher->state;
    const char *colon = name[0] ? ": " : "";
    const int n_periodic = system->periodic[0] + system->periodic[1] + system->periodic[2];
    if (n_periodic > 0 && (state->method == 2 || n_periodic < 3))
        return mlff_fail(MLFF_ERR_UNSUPPORTED, "%s%s%s", name, colon,
                         state->method == 2 ? "GFN2-xTB knows no periodic systems; take xtb:gfn1 or remove the cell"
                                            : "xtb knows systems without a cell or with three periodic axes, nothing between");
    return MLFF_OK;
}

static void xtb_state_free(xtb_state *state)
{
    if (!state) return;
    for (int k = 0; k < state->n_workers; k++) worker_end(&state->workers[k], 0);
    pthread_mutex_destroy(&state->lock);
    pthread_cond_destroy(&state->idle);
    base_free(state);
}

static void xtb_destroy(mlff_teacher *teacher)
{
    xtb_state_free(teacher->state);
}

static int count_cores(void)
{
    mlff_device_info info = {.struct_size = sizeof info};
    const mlff_device cpu = {MLFF_CPU, 0};
    return mlff_device_info_get(cpu, &info) == MLFF_OK && info.n_multiprocessors > 0 ? info.n_multiprocessors : 1;
}

mlff_status teacher_xtb_open(const char *method, const mlff_teacher_options *options, mlff_teacher **teacher_out)
{
    static const teacher_kind kind = {.compute = xtb_compute, .check = xtb_check, .destroy = xtb_destroy, .concurrent = true};
    mlff_status status = MLFF_OK;
    mlff_teacher *teacher = NULL;
    unsigned char digest[SHA256_BYTES];
    char identity[512];
    const int number = strcmp(method, "gfn2") == 0 ? 2 : strcmp(method, "gfn1") == 0 ? 1 : 0;

    if (!number) return mlff_fail(MLFF_ERR_USAGE, "xtb:%s: not a method of xtb here; xtb:gfn2 and xtb:gfn1 are", method);
    xtb_state *state = base_alloc(1, sizeof *state, "a teacher");
    if (!state) return MLFF_ERR_MEMORY;
    pthread_mutex_init(&state->lock, NULL);
    pthread_cond_init(&state->idle, NULL);
    state->method = number;
    state->timeout_s = options->timeout_s;
    state->n_workers = options->n_threads > 0 ? options->n_threads : count_cores();
    if (state->n_workers > MAX_WORKERS) state->n_workers = MAX_WORKERS;
    for (int k = 0; k < state->n_workers; k++) MLFF_TRY(worker_start(state, &state->workers[k]));

    MLFF_TRY(teacher_allocate(&kind, options, &teacher));
    snprintf(teacher->name, sizeof teacher->name, "xtb:%s", method);
    snprintf(teacher->description, sizeof teacher->description, "GFN%d-xTB, %s", number, state->library);
    snprintf(identity, sizeof identity, "xtb:%s %s", method, state->library);
    sha256_of(identity, strlen(identity), digest);
    sha256_text(digest, teacher->hash);
    for (int z = 1; z <= MAX_ATOMIC_NUMBER; z++) teacher->elements[teacher->n_elements++] = (unsigned char)z;
    teacher->n_parallel = state->n_workers;
    teacher->state = state;
    state = NULL;
    *teacher_out = teacher;
    teacher = NULL;
done:
    mlff_teacher_destroy(teacher);
    xtb_state_free(state);
    return status;
}
