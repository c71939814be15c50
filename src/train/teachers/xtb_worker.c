// SPDX-License-Identifier: MIT
// xtb_worker.c: a process that opens libxtb (C API 1.0.0, header xtb.h of libxtb 6.5) and computes what its socket brings.
//
// Results do not depend on the order of structures: each begins from its own guess of the charges. (A warm start from the
// structure before saves nothing for displaced molecules: 2.05 ms a call either way for ethanol.)
#include "xtb_worker.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LIBRARY "libxtb.so.6"
// Of the self-consistent field, relative to xtb's default of 1: forces are then the energy's derivative to 2e-6 eV/Å (1e-5 at 1),
// for 11 % more time.
#define ACCURACY 0.1
enum { MUTED = 0 };

bool xtb_send(int socket, const void *bytes, size_t n_bytes)
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

bool xtb_receive(int socket, void *bytes, size_t n_bytes)
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

// ---- the library

// Functions of xtb.h; its handles are pointers.
typedef struct xtb_library {
    void *(*newEnvironment)(void);
    void (*setVerbosity)(void *environment, int verbosity);
    int (*checkEnvironment)(void *environment);
    void (*getError)(void *environment, char *text, const int *text_bytes);
    void *(*newMolecule)(void *environment, const int *n_atoms, const int *numbers, const double *positions, const double *charge,
                         const int *n_unpaired, const double *lattice, const bool *periodic);
    void (*updateMolecule)(void *environment, void *molecule, const double *positions, const double *lattice);
    void (*delMolecule)(void **molecule);
    void *(*newCalculator)(void);
    void (*delCalculator)(void **calculator);
    void (*loadGFN1xTB)(void *environment, void *molecule, void *calculator, char *file);
    void (*loadGFN2xTB)(void *environment, void *molecule, void *calculator, char *file);
    void (*setAccuracy)(void *environment, void *calculator, double accuracy);
    void *(*newResults)(void);
    void (*delResults)(void **results);
    void (*singlepoint)(void *environment, void *molecule, void *calculator, void *results);
    void (*getEnergy)(void *environment, void *results, double *energy);
    void (*getGradient)(void *environment, void *results, double *gradient);
} xtb_library;

static bool find(void *handle, const char *name, void *function)
{
    void *symbol = dlsym(handle, name);
    memcpy(function, &symbol, sizeof symbol); // POSIX: a function pointer fits
    return symbol != NULL;
}

// The library's file, links resolved, so that its name tells the version: libxtb.so.6.5.1.
static void find_file(const void *function, char *text, size_t text_bytes)
{
    Dl_info info;
    char target[PATH_MAX];
    const char *path = LIBRARY;
    if (dladdr(function, &info) && info.dli_fname) path = realpath(info.dli_fname, target) ? target : info.dli_fname;
    const char *slash = strrchr(path, '/');
    snprintf(text, text_bytes, "%.100s", slash ? slash + 1 : path);
}

static void limit_threads(void)
{
    static const char *const setters[] = {"omp_set_num_threads", "openblas_set_num_threads"};
    setenv("OMP_NUM_THREADS", "1", 1); // read by libraries that are not loaded yet
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    for (size_t k = 0; k < sizeof setters / sizeof *setters; k++) { // the parent may have loaded them
        void (*set)(int);
        if (find(RTLD_DEFAULT, setters[k], &set)) set(1);
    }
}

static mlff_status library_open(xtb_library *xtb, xtb_reply *reply)
{
    limit_threads();
    void *h = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!h)
        return mlff_fail(MLFF_ERR_UNSUPPORTED, "xtb: %s cannot be opened (%s); install it: apt-get install libxtb6", LIBRARY,
                         dlerror());
    const bool complete = find(h, "xtb_newEnvironment", &xtb->newEnvironment) &&
                          find(h, "xtb_setVerbosity", &xtb->setVerbosity) &&
                          find(h, "xtb_checkEnvironment", &xtb->checkEnvironment) && find(h, "xtb_getError", &xtb->getError) &&
                          find(h, "xtb_newMolecule", &xtb->newMolecule) && find(h, "xtb_updateMolecule", &xtb->updateMolecule) &&
                          find(h, "xtb_delMolecule", &xtb->delMolecule) && find(h, "xtb_newCalculator", &xtb->newCalculator) &&
                          find(h, "xtb_delCalculator", &xtb->delCalculator) && find(h, "xtb_loadGFN1xTB", &xtb->loadGFN1xTB) &&
                          find(h, "xtb_loadGFN2xTB", &xtb->loadGFN2xTB) && find(h, "xtb_setAccuracy", &xtb->setAccuracy) &&
                          find(h, "xtb_newResults", &xtb->newResults) && find(h, "xtb_delResults", &xtb->delResults) &&
                          find(h, "xtb_singlepoint", &xtb->singlepoint) && find(h, "xtb_getEnergy", &xtb->getEnergy) &&
                          find(h, "xtb_getGradient", &xtb->getGradient);
    if (!complete)
        return mlff_fail(MLFF_ERR_UNSUPPORTED, "xtb: %s lacks functions of its C API 1.0.0; install libxtb 6.5", LIBRARY);
    limit_threads(); // now those that came with it
    void *function;
    memcpy(&function, &xtb->newEnvironment, sizeof function);
    find_file(function, reply->text, sizeof reply->text);
    return MLFF_OK;
}

// ---- computing

// MLFF_OK, or what the library says is wrong.
static mlff_status check(const xtb_library *xtb, void *environment)
{
    char text[512] = "";
    const int bytes = sizeof text;
    if (!xtb->checkEnvironment(environment)) return MLFF_OK;
    xtb->getError(environment, text, &bytes);
    text[sizeof text - 1] = 0;
    return mlff_fail(MLFF_ERR_VALUE, "xtb: %.180s", text[0] ? text : "failed without saying why");
}

// A molecule and its calculator, kept for the next structure of the same atoms: making them takes as long as the calculation of a
// small molecule.
typedef struct prepared {
    void *molecule, *calculator;
    xtb_request request; // of which they are
    int *species;        // [n_atoms]
} prepared;

typedef struct session {
    xtb_library xtb;
    void *environment;
    int method;
    prepared kept;
} session;

static void forget(session *s)
{
    if (s->kept.calculator) s->xtb.delCalculator(&s->kept.calculator);
    if (s->kept.molecule) s->xtb.delMolecule(&s->kept.molecule);
    free(s->kept.species);
    s->kept = (prepared){0};
}

// The same atoms, and no cell on either side.
static bool fits(const prepared *kept, const xtb_request *request, const int *species)
{
    return kept->molecule && !request->periodic && !kept->request.periodic && kept->request.n_atoms == request->n_atoms &&
           kept->request.n_unpaired == request->n_unpaired && kept->request.charge == request->charge &&
           memcmp(kept->species, species, (size_t)request->n_atoms * sizeof *species) == 0;
}

// Brings the kept molecule to these positions (Bohr), or makes another.
static mlff_status prepare(session *s, const xtb_request *request, const int *species, const double *positions)
{
    const xtb_library *xtb = &s->xtb;
    double lattice[9], charge = request->charge;
    bool periodic[3] = {request->periodic, request->periodic, request->periodic};
    if (fits(&s->kept, request, species)) {
        xtb->updateMolecule(s->environment, s->kept.molecule, positions, NULL);
        return check(xtb, s->environment);
    }
    forget(s);
    for (int k = 0; k < 9; k++) lattice[k] = request->cell[k] / BASE_BOHR_ANGSTROM;
    s->kept.request = *request;
    if (!(s->kept.species = malloc((size_t)request->n_atoms * sizeof *species)))
        return mlff_fail(MLFF_ERR_MEMORY, "xtb: out of memory");
    memcpy(s->kept.species, species, (size_t)request->n_atoms * sizeof *species);
    s->kept.molecule = xtb->newMolecule(s->environment, &request->n_atoms, species, positions, &charge, &request->n_unpaired,
                                        request->periodic ? lattice : NULL, request->periodic ? periodic : NULL);
    mlff_status status = check(xtb, s->environment);
    if (status != MLFF_OK) return status;
    s->kept.calculator = xtb->newCalculator();
    (s->method == 1 ? xtb->loadGFN1xTB : xtb->loadGFN2xTB)(s->environment, s->kept.molecule, s->kept.calculator, NULL);
    if ((status = check(xtb, s->environment)) != MLFF_OK) return status;
    xtb->setAccuracy(s->environment, s->kept.calculator, ACCURACY);
    return check(xtb, s->environment);
}

static mlff_status compute(session *s, const xtb_request *request, const int *species, double *positions, double *energy_out,
                           double *gradient)
{
    mlff_status status = MLFF_OK;
    const xtb_library *xtb = &s->xtb;
    void *results = NULL;

    for (size_t k = 0; k < 3 * (size_t)request->n_atoms; k++) positions[k] /= BASE_BOHR_ANGSTROM;
    MLFF_TRY(prepare(s, request, species, positions));
    results = xtb->newResults();
    xtb->singlepoint(s->environment, s->kept.molecule, s->kept.calculator, results);
    MLFF_TRY(check(xtb, s->environment));
    xtb->getEnergy(s->environment, results, energy_out);
    xtb->getGradient(s->environment, results, gradient);
    MLFF_TRY(check(xtb, s->environment));
done:
    if (results) xtb->delResults(&results);
    if (status != MLFF_OK) forget(s); // whatever state a failure left
    return status;
}

// One request and its reply; false when the socket is closed.
static bool serve(session *s, int socket)
{
    xtb_request request;
    if (!xtb_receive(socket, &request, sizeof request)) return false;
    const size_t n = (size_t)request.n_atoms;
    int *species = malloc(n * sizeof *species);
    double *positions = malloc(3 * n * sizeof *positions), *gradient = calloc(3 * n, sizeof *gradient);
    xtb_reply reply = {.n_atoms = request.n_atoms};
    bool alive = species && positions && gradient && xtb_receive(socket, species, n * sizeof *species) &&
                 xtb_receive(socket, positions, 3 * n * sizeof *positions);
    if (alive) {
        reply.status = compute(s, &request, species, positions, &reply.energy, gradient);
        reply.energy *= BASE_HARTREE_EV;
        for (size_t k = 0; k < 3 * n; k++) gradient[k] *= -BASE_HARTREE_EV / BASE_BOHR_ANGSTROM;
        snprintf(reply.text, sizeof reply.text, "%.190s", reply.status == MLFF_OK ? "" : mlff_last_error());
        alive = xtb_send(socket, &reply, sizeof reply) &&
                (reply.status != MLFF_OK || xtb_send(socket, gradient, 3 * n * sizeof *gradient));
    }
    free(species);
    free(positions);
    free(gradient);
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
    socket = fcntl(socket, F_DUPFD, 4); // out of the way of 0 to 3
    const int silence = open("/dev/null", O_RDWR);
    for (int k = 0; k < 3; k++) dup2(silence, k);
    dup2(socket, 3);
    close_range(4, ~0u, 0);
    return 3;
}

void xtb_worker_run(int socket, int method)
{
    session s = {.method = method};
    xtb_reply hello = {0};
    socket = settle(socket);
    hello.status = library_open(&s.xtb, &hello);
    if (hello.status != MLFF_OK) snprintf(hello.text, sizeof hello.text, "%.190s", mlff_last_error());
    if (xtb_send(socket, &hello, sizeof hello) && hello.status == MLFF_OK) {
        s.environment = s.xtb.newEnvironment();
        s.xtb.setVerbosity(s.environment, MUTED);
        while (serve(&s, socket)) continue;
    }
    _exit(0);
}
