// SPDX-License-Identifier: MIT
// worker.c: a process that computes what its socket brings with a library of others.
//
// Labels do not depend on the order of structures: nothing of one may be the beginning of the next.
#include "worker.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

bool worker_send(int socket, const void *bytes, size_t n_bytes)
{
    const char *from = bytes;
    while (n_bytes > 0) {
        const ssize_t sent = send(socket, from, n_bytes, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) return false;
        from += sent;
        n_bytes -= (size_t)sent;
    }
    return true;
}

bool worker_receive(int socket, void *bytes, size_t n_bytes)
{
    char *to = bytes;
    while (n_bytes > 0) {
        const ssize_t got = recv(socket, to, n_bytes, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        to += got;
        n_bytes -= (size_t)got;
    }
    return true;
}

// ---- libraries

bool worker_find(void *library, const char *name, void *function)
{
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, sizeof symbol); // POSIX: a function pointer fits
    return symbol != NULL;
}

void worker_library_file(const void *function, char *text, size_t text_bytes)
{
    Dl_info info;
    char target[PATH_MAX];
    const char *path = "";
    if (dladdr(function, &info) && info.dli_fname) path = realpath(info.dli_fname, target) ? target : info.dli_fname;
    const char *slash = strrchr(path, '/');
    snprintf(text, text_bytes, "%.100s", slash ? slash + 1 : path);
}

void worker_limit_threads(void)
{
    static const char *const setters[] = {"omp_set_num_threads", "openblas_set_num_threads"};
    setenv("OMP_NUM_THREADS", "1", 1); // read by libraries that are not loaded yet
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    for (size_t k = 0; k < sizeof setters / sizeof *setters; k++) { // the parent may have loaded them
        void (*set)(int);
        if (worker_find(RTLD_DEFAULT, setters[k], &set)) set(1);
    }
}

// ---- the process

// One request and its reply; false when the socket is closed.
static bool serve(const worker_kind *kind, void *session, int socket)
{
    worker_request request;
    if (!worker_receive(socket, &request, sizeof request)) return false;
    const size_t n = (size_t)request.n_atoms;
    int32_t *species = malloc(n * sizeof *species);
    double *positions = malloc(3 * n * sizeof *positions), *forces = calloc(3 * n, sizeof *forces);
    worker_reply reply = {.stress = {NAN}};
    bool alive = species && positions && forces && worker_receive(socket, species, n * sizeof *species) &&
                 worker_receive(socket, positions, 3 * n * sizeof *positions);
    if (alive) {
        reply.status = kind->compute(session, &request, species, positions, &reply, forces);
        snprintf(reply.text, sizeof reply.text, "%.190s", reply.status == MLFF_OK ? "" : mlff_last_error());
        alive = worker_send(socket, &reply, sizeof reply) &&
                (reply.status != MLFF_OK || worker_send(socket, forces, 3 * n * sizeof *forces));
    }
    free(species);
    free(positions);
    free(forces);
    return alive;
}

// Of the parent's, nothing but the socket: no terminal, no files, no signals of its own.
static int settle(int socket)
{
    // What ends the parent reaches its group: a worker that died of it would look like a structure that cannot be computed. It ends
    // when the parent's socket closes.
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGSEGV, SIG_DFL);
    signal(SIGBUS, SIG_DFL);
    signal(SIGFPE, SIG_DFL);
    signal(SIGABRT, SIG_DFL);
    // xtb has arrays on the stack: with the usual 8 MiB it ends by SIGSEGV at some 600 atoms.
    struct rlimit stack;
    if (getrlimit(RLIMIT_STACK, &stack) == 0) {
        stack.rlim_cur = stack.rlim_max;
        setrlimit(RLIMIT_STACK, &stack);
    }
    socket = fcntl(socket, F_DUPFD, 4); // out of the way of 0 to 3
    const int silence = open("/dev/null", O_RDWR);
    for (int k = 0; k < 3; k++) dup2(silence, k);
    dup2(socket, 3);
    close_range(4, ~0u, 0);
    return 3;
}

// Ends the process once the parent's socket is closed: a structure may take for ever, and a parent that was killed ends no worker.
static void *watch_parent(void *context)
{
    struct pollfd parent = {.fd = *(const int *)context}; // POLLHUP is told unasked
    while (poll(&parent, 1, -1) < 1) continue;
    _exit(0);
}

void worker_run(int socket, const worker_kind *kind, const char *argument)
{
    pthread_t watch;
    worker_hello hello = {0};
    void *session = NULL;
    socket = settle(socket);
    if (pthread_create(&watch, NULL, watch_parent, &socket) == 0) pthread_detach(watch);
    worker_limit_threads();
    hello.status = kind->open(argument, &session, &hello);
    if (hello.status != MLFF_OK) snprintf(hello.text, sizeof hello.text, "%.390s", mlff_last_error());
    if (worker_send(socket, &hello, sizeof hello) && hello.status == MLFF_OK)
        while (serve(kind, session, socket)) continue;
    _exit(0);
}
