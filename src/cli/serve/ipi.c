// SPDX-License-Identifier: MIT
// ipi.c: the i-PI protocol over a UNIX or TCP socket. Messages are 12 bytes, padded with blanks; numbers follow as they lie in
// memory (int32, float64), in atomic units, matrices transposed.
//
//   server                                   client
//   STATUS                                   NEEDINIT | READY | HAVEDATA
//   INIT      bead, n, n bytes
//   POSDATA   cell, its inverse, N, positions
//   GETFORCE                                 FORCEREADY energy, N, forces, virial, n, n bytes
//   EXIT
#include "ipi.h"

#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "cli/support/cli.h"

enum { MESSAGE = 12, MAX_INIT = 1 << 20, WAIT_MS = 200 };

// ---- connecting ----------------------------------------------------------------------------------

static int close_failed(int socket, int error)
{
    close(socket);
    errno = error;
    return -1;
}

static int connect_unix(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int length = snprintf(address.sun_path, sizeof address.sun_path, "%s%s", strchr(name, '/') ? "" : "/tmp/ipi_", name);
    if (length < 0 || (size_t)length >= sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    int found = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (found >= 0 && connect(found, (struct sockaddr *)&address, sizeof address) != 0) return close_failed(found, errno);
    return found;
}

// Waits until `events` may happen. Polling ends every WAIT_MS, for a signal that came just before the call.
static bool wait_for(int socket, short events)
{
    struct pollfd waited = {.fd = socket, .events = events};
    return poll(&waited, 1, WAIT_MS) > 0;
}

// Connects a nonblocking socket before `deadline_ns`; a connection in progress is waited for here, so that a signal ends it.
static int finish_connect(int socket, const struct addrinfo *host, int64_t deadline_ns)
{
    int error = 0;
    socklen_t length = sizeof error;
    if (connect(socket, host->ai_addr, host->ai_addrlen) == 0) return 0;
    if (errno != EINPROGRESS) return errno;
    while (!wait_for(socket, POLLOUT)) {
        if (cli_interrupted()) return EINTR;
        if (mlff_clock_ns() >= deadline_ns) return ETIMEDOUT;
    }
    return getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

static int connect_tcp(const struct addrinfo *hosts, int64_t deadline_ns)
{
    for (const struct addrinfo *host = hosts; host; host = host->ai_next) {
        int on = 1, found = socket(host->ai_family, host->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, host->ai_protocol);
        if (found < 0) continue;
        int error = finish_connect(found, host, deadline_ns);
        if (error == 0) {
            setsockopt(found, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
            return found;
        }
        close_failed(found, error);
    }
    return -1;
}

mlff_status ipi_connect(const ipi_address *address, int *socket_out)
{
    mlff_status status = MLFF_OK;
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *hosts = NULL;
    char port[16], name[300];
    int found = -1;
    const int64_t deadline_ns = mlff_clock_ns() + (int64_t)(address->wait_s * 1e9);

    snprintf(port, sizeof port, "%d", address->port);
    if (address->unix_name)
        snprintf(name, sizeof name, "%s%.200s", strchr(address->unix_name, '/') ? "" : "/tmp/ipi_", address->unix_name);
    else
        snprintf(name, sizeof name, "%.200s:%s", address->host, port);
    if (!address->unix_name) {
        int problem = getaddrinfo(address->host, port, &hints, &hosts);
        if (problem) return mlff_fail(MLFF_ERR_IO, "%s: %s", name, gai_strerror(problem));
    }
    while (true) {
        found = address->unix_name ? connect_unix(address->unix_name) : connect_tcp(hosts, deadline_ns);
        if (found >= 0) break;
        bool may_come = errno == ENOENT || errno == ECONNREFUSED || errno == EINTR || errno == EAGAIN; // EAGAIN: a full queue
        if (cli_interrupted()) MLFF_FAIL(MLFF_ERR_INTERRUPTED, "interrupted while waiting for a server at %s", name);
        if (!may_come || mlff_clock_ns() >= deadline_ns)
            MLFF_FAIL(MLFF_ERR_IO,
                      "%s: %s; start the server first (i-PI, or ASE's SocketIOCalculator), or give it time with --wait", name,
                      strerror(errno));
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
    *socket_out = found;
done:
    if (hosts) freeaddrinfo(hosts);
    return status;
}

// ---- bytes ---------------------------------------------------------------------------------------

// Receives all of it. *closed is set, and MLFF_OK given, if the server closed before the first byte and that is allowed.
static mlff_status receive(int socket, void *data, size_t bytes, bool *closed)
{
    char *at = data;
    size_t had = 0;
    while (had < bytes) {
#ifdef TCP_QUICKACK
        // A server that leaves Nagle's algorithm on waits for our acknowledgement, which TCP likes to delay by 40 ms.
        int on = 1;
        (void)setsockopt(socket, IPPROTO_TCP, TCP_QUICKACK, &on, sizeof on);
#endif
        bool ready = wait_for(socket, POLLIN);
        if (cli_interrupted()) return mlff_fail(MLFF_ERR_INTERRUPTED, "interrupted");
        if (!ready) continue;
        ssize_t got = recv(socket, at + had, bytes - had, 0);
        if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (got < 0) return mlff_fail(MLFF_ERR_IO, "reading from the server: %s", strerror(errno));
        if (got == 0) {
            if (closed && had == 0) {
                *closed = true;
                return MLFF_OK;
            }
            return mlff_fail(MLFF_ERR_IO, "the server closed in the middle of a message");
        }
        had += (size_t)got;
    }
    return MLFF_OK;
}

static mlff_status transmit(int socket, const void *data, size_t bytes)
{
    const char *at = data;
    while (bytes > 0) {
        // Sent at once if there is room: only a server that does not read costs a poll.
        ssize_t sent = send(socket, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno != EINTR && errno != EAGAIN)
            return mlff_fail(MLFF_ERR_IO, "writing to the server: %s", strerror(errno));
        if (sent < 0) {
            if (cli_interrupted()) return mlff_fail(MLFF_ERR_INTERRUPTED, "interrupted while the server did not read");
            (void)wait_for(socket, POLLOUT);
            continue;
        }
        at += sent;
        bytes -= (size_t)sent;
    }
    return MLFF_OK;
}

static mlff_status say(int socket, const char *word)
{
    char message[MESSAGE + 1];
    snprintf(message, sizeof message, "%-12s", word);
    return transmit(socket, message, MESSAGE);
}

// ---- the conversation ------------------------------------------------------------------------------

typedef struct session {
    int socket;
    mlff_system *system;
    ipi_compute compute;
    void *context;
    bool ready, have_data;
    double energy, virial[9];
    double *forces; // [n_atoms][3]
    char *answer;   // FORCEREADY and all that follows, sent at once
    int64_t n_steps;
} session;

static mlff_status on_init(session *s)
{
    mlff_status status = MLFF_OK;
    int32_t bead, n;
    char byte;
    MLFF_TRY(receive(s->socket, &bead, sizeof bead, NULL));
    MLFF_TRY(receive(s->socket, &n, sizeof n, NULL));
    if (n < 0 || n > MAX_INIT) MLFF_FAIL(MLFF_ERR_FORMAT, "the server announces %d bytes of INIT, expected 0 to %d", n, MAX_INIT);
    for (int i = 0; i < n; i++) MLFF_TRY(receive(s->socket, &byte, 1, NULL)); // not used
    s->ready = true;
done:
    return status;
}

static mlff_status on_positions(session *s)
{
    mlff_status status = MLFF_OK;
    double cell[9], inverse[9];
    int32_t n_atoms;
    mlff_system *system = s->system;

    MLFF_TRY(receive(s->socket, cell, sizeof cell, NULL));
    MLFF_TRY(receive(s->socket, inverse, sizeof inverse, NULL));
    MLFF_TRY(receive(s->socket, &n_atoms, sizeof n_atoms, NULL));
    if (n_atoms != system->n_atoms)
        MLFF_FAIL(MLFF_ERR_FORMAT, "the server sent %d atom%s, the input file has %d", n_atoms, base_plural(n_atoms),
                  system->n_atoms);
    MLFF_TRY(receive(s->socket, system->positions, 3 * (size_t)n_atoms * sizeof(double), NULL));
    for (size_t k = 0; k < 3 * (size_t)n_atoms; k++) system->positions[k] *= BASE_BOHR_ANGSTROM;
    if (system->periodic[0] || system->periodic[1] || system->periodic[2]) // the box of a molecule is not used
        for (int a = 0; a < 3; a++)
            for (int b = 0; b < 3; b++) system->cell[3 * a + b] = cell[3 * b + a] * BASE_BOHR_ANGSTROM;

    MLFF_TRY(s->compute(s->context, system, &s->energy, s->forces, s->virial));
    s->n_steps++;
    s->have_data = true;
done:
    return status;
}

static mlff_status on_getforce(session *s)
{
    if (!s->have_data) return mlff_fail(MLFF_ERR_FORMAT, "the server asks for forces before it has sent positions");
    int32_t n_atoms = s->system->n_atoms, extra = 0;
    size_t n = 3 * (size_t)n_atoms;
    char *at = s->answer;
    double value = s->energy / BASE_HARTREE_EV;

    memcpy(at, "FORCEREADY  ", MESSAGE);
    at += MESSAGE;
    memcpy(at, &value, sizeof value);
    at += sizeof value;
    memcpy(at, &n_atoms, sizeof n_atoms);
    at += sizeof n_atoms;
    for (size_t k = 0; k < n; k++, at += sizeof value) {
        value = s->forces[k] * (BASE_BOHR_ANGSTROM / BASE_HARTREE_EV);
        memcpy(at, &value, sizeof value);
    }
    for (int k = 0; k < 9; k++, at += sizeof value) {
        value = s->virial[3 * (k % 3) + k / 3] / BASE_HARTREE_EV;
        memcpy(at, &value, sizeof value);
    }
    memcpy(at, &extra, sizeof extra);
    at += sizeof extra;
    s->have_data = false;
    return transmit(s->socket, s->answer, (size_t)(at - s->answer));
}

static mlff_status converse(session *s)
{
    mlff_status status = MLFF_OK;
    char message[MESSAGE];
    bool closed = false;
    while (true) {
        MLFF_TRY(receive(s->socket, message, sizeof message, &closed));
        if (closed || memcmp(message, "EXIT        ", MESSAGE) == 0) return MLFF_OK;
        if (memcmp(message, "STATUS      ", MESSAGE) == 0)
            MLFF_TRY(say(s->socket, s->have_data ? "HAVEDATA" : s->ready ? "READY" : "NEEDINIT"));
        else if (memcmp(message, "INIT        ", MESSAGE) == 0)
            MLFF_TRY(on_init(s));
        else if (memcmp(message, "POSDATA     ", MESSAGE) == 0)
            MLFF_TRY(on_positions(s));
        else if (memcmp(message, "GETFORCE    ", MESSAGE) == 0)
            MLFF_TRY(on_getforce(s));
        else
            MLFF_FAIL(MLFF_ERR_FORMAT, "the server sent '%.12s', which is not a message of the i-PI protocol", message);
    }
done:
    return status;
}

mlff_status ipi_serve(int socket, mlff_system *system, ipi_compute compute, void *context, int64_t *n_steps_out)
{
    mlff_status status = MLFF_OK;
    session s = {.socket = socket, .system = system, .compute = compute, .context = context};
    size_t n = 3 * (size_t)system->n_atoms;

    s.forces = base_alloc(n, sizeof(double), "forces");
    s.answer = base_alloc(MESSAGE + 2 * sizeof(int32_t) + (1 + n + 9) * sizeof(double), 1, "an answer");
    if (!s.forces || !s.answer)
        status = MLFF_ERR_MEMORY;
    else
        status = converse(&s);
    *n_steps_out = s.n_steps;
    base_free(s.forces);
    base_free(s.answer);
    return status;
}
